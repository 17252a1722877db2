//! Tests of pipelines and command lines. `FORKLESS_TEST_SCALE` multiplies the number of rounds.

testing::usual_surroundings!();

#[path = "../src/scenario/runner.rs"]
mod runner;

#[test]
fn pipelines() {
    runner::run("pipelines");
}

#[test]
fn one_pipeline_many_runs() {
    runner::run("pipeline-often");
}

#[test]
fn lines() {
    runner::run("lines");
}

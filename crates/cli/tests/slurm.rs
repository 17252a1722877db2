//! `forkless parallel` on a real Slurm of three nodes. `FORKLESS_TEST_SCALE` multiplies the jobs: 200 makes 20,000 jobs in
//! each scene, and 60,000 in that of the order. The lines that begin with `RECORD` are those of the record.

testing::usual_surroundings!();

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
    process::Stdio,
    time::Instant,
};

use cluster::{Cluster, scaled, wait_until};

mod cluster;

/// Jobs of a scene at scale 1.
const JOBS: usize = 100;

fn numbers(jobs: usize) -> String {
    (1..=jobs).map(|number| format!("{number}\n")).collect()
}

/// The idiom of many machines without a master: each task of the step takes each third line.
#[test]
fn shards_of_a_step_are_the_whole_input() {
    let Some(cluster) = Cluster::start("shards_of_a_step_are_the_whole_input") else { return };
    let jobs = scaled(JOBS);
    cluster.write("input", &numbers(jobs));
    let mut srun = cluster.command("srun");
    srun.args(["-N3", "--exclusive", "--ntasks-per-node=1"]).arg(env!("CARGO_BIN_EXE_forkless"));
    srun.args(["parallel", "--shard", "auto", "--joblog", "log", "-a", "input", "echo", "{}"]);
    let output = srun.output().expect("srun");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("numbers");
    let mut found: Vec<usize> = text.lines().map(|line| line.parse().expect("a number")).collect();
    found.sort_unstable();
    assert!(found == (1..=jobs).collect::<Vec<_>>(), "{} of {jobs}: {found:?}", found.len());
    let logs: Vec<usize> = (1..=3).map(|part| cluster.logged(&format!("log.{part}-of-3")).len()).collect();
    assert_eq!(logs, [jobs.div_ceil(3), (jobs + 1) / 3, jobs / 3]);
}

/// All nodes take part; the output is that of one machine, and so are the log and the exit status.
#[test]
fn one_output_one_log_one_exit_status() {
    let Some(cluster) = Cluster::start("one_output_one_log_one_exit_status") else { return };
    let jobs = scaled(3 * JOBS);
    let begun = Instant::now();
    // No job ends before each node has one. Each twelfth fails.
    let job = "h=$PARALLEL_SSHHOST; [ -e at.$h ] || touch at.$h; until [ -e at.n1 -a -e at.n2 -a -e at.n3 ]; do sleep 0.05; done; \
               echo out {}; echo err {} >&2; [ $(({} % 12)) -ne 5 ] || exit 3";
    cluster.write("job", job);
    let line =
        format!("seq {jobs} | $F parallel --slurm --summary --joblog log --tag \"$(cat job)\" > result 2> messages");
    let code = cluster.batch(&line);
    let failed = (1..=jobs).filter(|number| number % 12 == 5).count();
    assert_eq!(code, failed.min(101) as i32, "{}", cluster.text("messages"));
    let expected: String = (1..=jobs).map(|number| format!("{number}\tout {number}\n")).collect();
    assert!(cluster.text("result") == expected, "{}", cluster.text("result"));
    let messages = cluster.text("messages");
    assert!(messages.contains(&format!("ran {jobs}, failed {failed}, skipped 0 of {jobs}\n")), "{messages}");
    let errors = messages.lines().filter(|line| line.contains("\terr ")).count();
    assert_eq!(errors, jobs, "{messages}");
    cluster.has_logged_all(jobs);
    let hosts: BTreeSet<String> = cluster.logged("log").into_values().collect();
    assert_eq!(hosts, BTreeSet::from(["n1", "n2", "n3"].map(str::to_owned)));
    cluster.record("one output in order, of echo with a tag, each twelfth fails", jobs, begun);
}

/// Output of any length and of any bytes, values with quotes, a working directory, programs that do not exist.
#[test]
fn jobs_are_as_on_one_machine() {
    let Some(cluster) = Cluster::start("jobs_are_as_on_one_machine") else { return };
    let lines = [
        "head -c 300000 /dev/urandom > big; $F parallel --slurm cat {} ::: big big > two; cat big big | cmp - two",
        "printf '\\036\\\\\\t\\001' > odd; [ \"$($F parallel --slurm cat ::: odd | od -c)\" = \"$(od -c odd)\" ]",
        "[ \"$($F parallel --slurm echo ::: \"a'b\" '$(false) *' 'c  d')\" = \"a'b\n\\$(false) *\nc  d\" ]",
        "[ \"$($F parallel --slurm --workdir sub/{} 'pwd; echo $PARALLEL_SEQ {}' ::: x)\" = \"$PWD/sub/x\n1 x\" ]",
        "$F parallel --slurm ./no-such-program {} ::: 1 2; [ $? = 2 ]",
        "$F parallel --slurm --timeout 1 sleep ::: 1000 0; [ $? = 1 ]",
        "$F parallel --slurm --retries 3 'echo >> tries.{}; false' ::: 1; [ $(wc -l < tries.1) = 3 ]",
        "$F parallel --slurm -j1 --halt now,fail=1 'exit {}' ::: 0 7 0 0; [ $? = 7 ]",
        "! $F parallel --slurm --pipe cat < job.sh",
        "! $F parallel --slurm echo {%} ::: 1",
    ];
    for (number, line) in lines.iter().enumerate() {
        cluster.write(&format!("line.{number}"), line);
    }
    let count = lines.len();
    let script =
        format!("for n in $(seq 0 {}); do bash line.$n > /dev/null 2> err.$n; echo $n $? >> codes; done", count - 1);
    assert_eq!(cluster.batch(&script), 0);
    let expected: String = (0..count).map(|number| format!("{number} 0\n")).collect();
    assert_eq!(cluster.text("codes"), expected, "{}", cluster.text("err"));
}

/// Two jobs that take longer than all others together: what waits behind them runs elsewhere. The same for a node on which
/// every job takes that long.
#[test]
fn long_jobs_and_slow_nodes_hold_nothing_up() {
    let Some(cluster) = Cluster::start("long_jobs_and_slow_nodes_hold_nothing_up") else { return };
    let jobs = scaled(JOBS);
    let limit = cluster::limit();
    let others = |count: usize| format!("until [ $(wc -l < marks) -ge {count} ]; do sleep 0.1; done");
    let long = format!("[ {{}} != 3 -a {{}} != 5 ] || {}; echo {{}} >> marks", others(jobs - 2));
    // At most one job is on the slow node when the others have run: it has one slot.
    let slow = format!("[ $PARALLEL_SSHHOST != n2 ] || {}; echo {{}} >> marks", others(jobs - 1));
    for (name, job) in [("two jobs that take longer than all others", long), ("a slow node", slow)] {
        let begun = Instant::now();
        cluster.write("marks", "");
        cluster.write("job", &job);
        let line =
            format!("seq {jobs} | timeout {} $F parallel --slurm -j1 --joblog log \"$(cat job)\"", limit.as_secs());
        assert_eq!(cluster.batch(&line), 0, "{name}");
        assert_eq!(cluster.marks(), (1..=jobs).map(|job| (job, 1)).collect::<BTreeMap<_, _>>(), "{name}");
        cluster.has_logged_all(jobs);
        cluster.record(name, jobs, begun);
    }
}

/// A slurmd and its slurmstepd are killed in the middle: their jobs run on other nodes, and the log says which.
#[test]
fn the_jobs_of_a_dead_node_run_elsewhere() {
    let Some(mut cluster) = Cluster::start("the_jobs_of_a_dead_node_run_elsewhere") else { return };
    let jobs = scaled(JOBS);
    let begun = Instant::now();
    cluster.write("marks", "");
    // Half of the jobs run before; the first one on n2 after that never ends.
    let half = jobs / 2;
    let job = format!(
        "echo {{}} >> marks; [ {{}} -gt {half} ] || exit 0; [ $PARALLEL_SSHHOST != n2 ] || {{ touch hangs; exec sleep 9999; }}; \
         until [ -e hangs ]; do sleep 0.05; done"
    );
    cluster.write("job", &job);
    let line = format!("seq {jobs} | $F parallel --slurm --slurm-timeout 4 -j1 --summary --joblog log \"$(cat job)\"");
    cluster.submit(&line, &[]);
    wait_until("a job hangs on n2", || cluster.work("hangs").exists());
    cluster.kill_node("n2");
    let code = cluster.code();
    let words = cluster.text("err");
    assert_eq!(code, 0, "{words}");
    assert!(
        cluster.text("err").contains(&format!("ran {jobs}, failed 0, skipped 0 of {jobs}\n")),
        "{}",
        cluster.text("err")
    );
    cluster.has_logged_all(jobs);
    let marks = cluster.marks();
    assert!((1..=jobs).all(|job| marks.contains_key(&job)), "{marks:?}");
    let twice: BTreeSet<usize> = marks.into_iter().filter(|(_, times)| *times > 1).map(|(job, _)| job).collect();
    let said: BTreeMap<usize, String> =
        cluster.logged("log").into_iter().filter(|(_, host)| host.contains(",lost:")).collect();
    assert!(!twice.is_empty() && twice.iter().all(|job| said.contains_key(job)), "{twice:?}, the log: {said:?}");
    assert!(said.values().any(|host| host.ends_with("lost:n2")), "{said:?}");
    cluster.record("slurmd and slurmstepd of a node killed", jobs, begun);
    // The worker of the dead node has ended its job.
    wait_until("no job runs on the dead node", || !cluster.processes().iter().any(|(_, line)| line == "sleep 9999"));
}

/// Asserts that each job has run and is in the log once, and that those that have run twice were in flight: the log says so.
fn ran_all_and_only_those_in_flight_twice(cluster: &Cluster, jobs: usize) {
    let words = cluster.text("err");
    assert!(words.contains(&format!("ran {jobs}, failed 0, skipped 0 of {jobs}\n")), "{words}");
    cluster.has_logged_all(jobs);
    let (marks, logged) = (cluster.marks(), cluster.logged("log"));
    let missing: Vec<usize> = (1..=jobs).filter(|job| !marks.contains_key(job)).collect();
    assert!(missing.is_empty(), "have not run: {missing:?}: {words}");
    let unsaid: Vec<_> = marks.iter().filter(|(job, times)| **times > 1 && !logged[job].contains(",lost:")).collect();
    assert!(unsaid.is_empty(), "have run twice, and the log does not say so: {unsaid:?}: {words}");
}

/// The orders of the rest are longer than what srun takes after the loss of a node: a second srun runs it on the other two.
/// The first job on n1 after that ends when all others have: those that wait behind it, under the first srun, run elsewhere.
#[test]
fn another_srun_runs_the_rest_without_the_dead_node() {
    let Some(mut cluster) = Cluster::start("another_srun_runs_the_rest_without_the_dead_node") else { return };
    let jobs = scaled(JOBS).max(2500);
    let begun = Instant::now();
    cluster.write("marks", "");
    let others = format!("until [ $(sort -u marks | wc -l) -ge {} ]; do sleep 0.5; done", jobs - 1);
    let long = format!("[ $PARALLEL_SSHHOST != n1 ] || [ ! -e lost ] || ! mkdir long 2> /dev/null || {others}");
    cluster.write("job", &format!("{long}; echo {{}} >> marks; : {}", "x".repeat(1000)));
    let line = format!("seq {jobs} | $F parallel --slurm --slurm-timeout 4 -j1 --summary --joblog log \"$(cat job)\"");
    cluster.submit(&line, &[]);
    wait_until("some jobs have run on n2", || {
        let logged = cluster.logged("log");
        logged.len() >= 100 && logged.values().any(|host| host == "n2")
    });
    cluster.write("lost", "");
    wait_until("a job on n1 waits for all others", || cluster.work("long").exists());
    cluster.kill_node("n2");
    let code = cluster.code();
    let words = cluster.text("err");
    assert_eq!(code, 0, "{words}");
    assert!(words.contains("another srun runs the rest on n1,n3\n"), "{words}");
    ran_all_and_only_those_in_flight_twice(&cluster, jobs);
    let hosts: Vec<String> = cluster.logged("log").into_values().collect();
    assert!(hosts.iter().filter(|host| host.contains(",lost:")).all(|host| !host.starts_with("n2")), "{hosts:?}");
    cluster.record("the same, and a second srun for the rest", jobs, begun);
}

/// srun itself is killed: its workers end, all nodes still answer, and a second srun runs the rest on them.
#[test]
fn another_srun_runs_the_rest_when_srun_ends() {
    let Some(cluster) = Cluster::start("another_srun_runs_the_rest_when_srun_ends") else { return };
    let jobs = scaled(JOBS);
    let begun = Instant::now();
    cluster.write("marks", "");
    write_gated_job(&cluster, jobs);
    cluster.submit(&gated(jobs), &[]);
    wait_until("half of the jobs have run", || cluster.logged("log").len() >= jobs / 2 - 1);
    let sruns: Vec<i32> =
        cluster.processes().into_iter().filter(|(_, line)| line.starts_with("srun ")).map(|(pid, _)| pid).collect();
    assert!(!sruns.is_empty(), "{:?}", cluster.processes());
    sruns.into_iter().for_each(cluster::end);
    wait_until("another srun runs", || cluster.text("err").contains("another srun runs the rest on n1,n2,n3\n"));
    cluster.write("gate", "");
    assert_eq!(cluster.code(), 0, "{}", cluster.text("err"));
    ran_all_and_only_those_in_flight_twice(&cluster, jobs);
    cluster.record("srun killed", jobs, begun);
}

/// A run of which half waits for the file `gate`.
fn gated(jobs: usize) -> String {
    format!("seq {jobs} | $F parallel --slurm -j1 --summary --joblog log --resume \"$(cat job)\"")
}

fn write_gated_job(cluster: &Cluster, jobs: usize) {
    cluster.write(
        "job",
        &format!("[ {{}} -lt {} ] || until [ -e gate ]; do sleep 0.05; done; echo {{}} >> marks", jobs / 2),
    );
}

/// SIGTERM to the steps, as before a preemption, and SIGUSR1 to the script's process: the run stops, and says by its exit
/// code that it can go on. The next one does the rest; nothing runs twice.
#[test]
fn a_signal_of_slurm_stops_a_run_that_then_goes_on() {
    let Some(cluster) = Cluster::start("a_signal_of_slurm_stops_a_run_that_then_goes_on") else { return };
    let jobs = scaled(JOBS);
    write_gated_job(&cluster, jobs);
    let once: BTreeMap<usize, usize> = (1..=jobs).map(|job| (job, 1)).collect();
    for (options, prefix) in
        [(["--signal=TERM"].as_slice(), ""), (&["--signal=USR1", "--batch"], "trap 'kill -USR1 $!' USR1; ")]
    {
        let begun = Instant::now();
        for name in ["gate", "log", "marks", "err"] {
            let _ = std::fs::remove_file(cluster.work(name));
        }
        // As in the documentation: bash waits for its child, and passes the signal on.
        let line = match prefix {
            "" => gated(jobs),
            _ => format!(
                "seq {jobs} > input; {prefix}$F parallel --slurm -j1 --joblog log --resume -a input \"$(cat job)\" & wait; wait $!"
            ),
        };
        let id = cluster.submit(&line, &[]);
        wait_until("half of the jobs have run", || cluster.logged("log").len() >= jobs / 2 - 1);
        let sent = cluster.run("scancel", options.iter().copied().chain([&*id]));
        assert!(sent.status.success(), "{sent:?}");
        wait_until("the run stops", || cluster.text("err").contains("starting no more jobs"));
        cluster.write("gate", "");
        assert_eq!(cluster.code(), 75, "{}", cluster.text("err"));
        let logged: BTreeSet<usize> = cluster.logged("log").into_keys().collect();
        let ran: BTreeSet<usize> = cluster.marks().into_keys().collect();
        assert_eq!(logged, ran, "each job that has run is in the log");
        assert!(logged.len() < jobs, "the signal came too late");
        assert_eq!(cluster.batch(&gated(jobs)), 0, "{}", cluster.text("err"));
        assert_eq!(cluster.marks(), once);
        cluster.has_logged_all(jobs);
        cluster.record(&format!("stopped by {}, then `--resume`", options[0]), jobs, begun);
    }
}

/// `scontrol requeue` kills the run; Slurm starts the script again, and `--resume` does the rest.
#[test]
fn a_requeued_job_does_the_rest() {
    let Some(cluster) = Cluster::start("a_requeued_job_does_the_rest") else { return };
    let jobs = scaled(JOBS);
    let begun = Instant::now();
    write_gated_job(&cluster, jobs);
    let id = cluster.submit(&gated(jobs), &["--requeue"]);
    wait_until("half of the jobs have run", || cluster.logged("log").len() >= jobs / 2 - 1);
    let before: BTreeSet<usize> = cluster.logged("log").into_keys().collect();
    let requeued = cluster.run("scontrol", ["requeue", &id]);
    assert!(requeued.status.success(), "{requeued:?}");
    wait_until("the first run has ended", || {
        !cluster.processes().iter().any(|(_, line)| line.contains("--slurm-worker"))
    });
    let _ = std::fs::remove_file(cluster.work("code"));
    cluster.write("gate", "");
    assert_eq!(cluster.code(), 0, "{}", cluster.text("err"));
    cluster.has_logged_all(jobs);
    let marks = cluster.marks();
    assert!(before.iter().all(|job| marks.get(job) == Some(&1)), "a job of the log has run again: {marks:?}");
    assert_eq!(marks.len(), jobs);
    cluster.record("requeued", jobs, begun);
}

/// scancel: no process stays, the log has what has run, and `--resume` does the rest.
#[test]
fn a_cancelled_job_leaves_no_process() {
    let Some(cluster) = Cluster::start("a_cancelled_job_leaves_no_process") else { return };
    let jobs = scaled(JOBS);
    let begun = Instant::now();
    write_gated_job(&cluster, jobs);
    let id = cluster.submit(&gated(jobs), &[]);
    wait_until("half of the jobs have run", || cluster.logged("log").len() >= jobs / 2 - 1);
    assert!(cluster.run("scancel", [&id]).status.success());
    let is_of_job =
        |line: &str| line.contains("--slurm") || line.contains("sleep 0.05") || line.starts_with("slurmstepd");
    wait_until("all processes of the job have ended", || !cluster.processes().iter().any(|(_, line)| is_of_job(line)));
    let logged: BTreeSet<usize> = cluster.logged("log").into_keys().collect();
    let ran: BTreeSet<usize> = cluster.marks().into_keys().collect();
    assert!(logged.is_subset(&ran) && logged.len() < jobs, "{logged:?} {ran:?}");
    cluster.write("gate", "");
    assert_eq!(cluster.batch(&gated(jobs)), 0, "{}", cluster.text("err"));
    cluster.has_logged_all(jobs);
    let marks = cluster.marks();
    assert!(logged.iter().all(|job| marks.get(job) == Some(&1)), "a job of the log has run again: {marks:?}");
    assert_eq!(marks.len(), jobs);
    cluster.record("cancelled, then `--resume`", jobs, begun);
}

/// Outside of an allocation, a batch job is made and waited for.
#[test]
fn outside_of_a_job_one_is_submitted() {
    let Some(cluster) = Cluster::start("outside_of_a_job_one_is_submitted") else { return };
    let mut forkless = cluster.command(env!("CARGO_BIN_EXE_forkless"));
    forkless.args(["parallel", "--slurm=-N3 --exclusive", "echo {}; exit {}"]);
    let mut run =
        forkless.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("forkless");
    run.stdin.take().expect("a pipe").write_all(b"0\n1\n0\n2\n").expect("input");
    let output = run.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert_eq!(output.stdout, b"0\n1\n0\n2\n", "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("submitted job "), "{output:?}");
    let left = std::fs::read_dir(cluster.path("work")).expect("a directory").count();
    assert_eq!(left, 0, "its files are removed");
    let mut dry = cluster.command(env!("CARGO_BIN_EXE_forkless"));
    let script = dry.args(["parallel", "--dry-run", "--slurm=-N2", "echo", ":::", "a b"]).output().expect("forkless");
    let text = String::from_utf8_lossy(&script.stdout);
    assert!(text.contains("#SBATCH -N2\n") && text.contains(" parallel --slurm echo ::: 'a b' &\n"), "{text}");
    let syntax = cluster.command("sh").args(["-n", "-c", &text]).status().expect("sh");
    assert!(syntax.success(), "{text}");
}

/// The blocks of code of a section of a page.
fn blocks(page: &str, heading: &str) -> Vec<String> {
    let section = page.split_once(heading).expect("the section").1;
    let end = section.find("\n## ").unwrap_or(section.len());
    section[..end].split("```sh\n").skip(1).filter_map(|part| Some(part.split_once("```")?.0.to_owned())).collect()
}

/// The commands of the documentation run as they are written.
#[test]
fn the_documented_commands_run_as_written() {
    let Some(cluster) = Cluster::start("the_documented_commands_run_as_written") else { return };
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_forkless")).parent().expect("a directory");
    let path = format!("{}:{}", program.display(), std::env::var("PATH").expect("PATH"));
    let page = include_str!("../../../docs/runner.md");
    let man = include_str!("../src/help/man/parallel.md");
    let example = blocks(man, "## EXAMPLES\n").into_iter().filter(|block| block.contains("--slurm"));
    let blocks: Vec<String> = blocks(page, "\n### Slurm\n").into_iter().chain(example).collect();
    assert_eq!(blocks.len(), 4);
    for block in blocks {
        for name in ["log", "results"] {
            let _ = std::fs::remove_file(cluster.work(name));
        }
        cluster.write("block", &block);
        let (program, words) = match block.starts_with("#!") {
            true => ("sbatch", ["--wait", "block"]),
            false => ("sh", ["-e", "block"]),
        };
        let output = cluster.command(program).args(words).env("PATH", &path).output().expect("a shell");
        assert!(output.status.success(), "{block}{output:?}");
        let text = cluster.text("results");
        let mut found: Vec<usize> = text.lines().map(|line| line.parse().expect("a number")).collect();
        if block.contains("--shard") {
            found.sort_unstable();
        }
        assert!(found == (1..=1000).map(|number| 2 * number).collect::<Vec<_>>(), "{block}{text}");
    }
}

/// Figures for the record: rates in turn in one allocation, and the times of what Slurm itself does. Prints them; asserts
/// only that all jobs have run. `FORKLESS_TEST_SCALE=200` makes runs of 20,000 jobs.
#[test]
#[ignore = "figures for the record, which take minutes"]
fn figures_of_the_record() {
    /// Jobs that Slurm itself starts: it needs much longer for each.
    const FEW: usize = 60;
    let Some(cluster) = Cluster::start("figures_of_the_record") else { return };
    let jobs = scaled(JOBS);
    let long: String = (1..=jobs)
        .map(|job| if job == jobs / 3 || job == 2 * jobs / 3 { "sleep 5\n" } else { "/bin/true\n" })
        .collect();
    cluster.write("long", &long);
    let measured = [
        (
            "`forkless parallel -k -j3` on one node, no srun",
            jobs,
            "seq $N | $F parallel -k -j3 --joblog log /bin/true {}",
        ),
        ("`--slurm -j1`, three nodes", jobs, "seq $N | $F parallel --slurm -j1 --joblog log /bin/true {}"),
        (
            "`forkless parallel -k -j6` on one node, no srun",
            jobs,
            "seq $N | $F parallel -k -j6 --joblog log /bin/true {}",
        ),
        ("`--slurm -j2`, three nodes", jobs, "seq $N | $F parallel --slurm -j2 --joblog log /bin/true {}"),
        (
            "`srun forkless parallel --shard auto -j2`, three nodes",
            jobs,
            "seq $N > input; srun -N3 --ntasks-per-node=1 $F parallel --shard auto -j2 --joblog log -a input /bin/true; cat log.?-of-3 > log",
        ),
        ("two of the jobs take 5 s, `--slurm -j1`", jobs, "$F parallel --slurm -j1 --joblog log < long"),
        ("`--slurm` with three jobs: placement", 3, "seq 3 | $F parallel --slurm -j1 --joblog log /bin/true {}"),
        (
            "`srun` for each job, six at once",
            FEW,
            "seq $N | xargs -P6 -n1 srun --overlap -N1 -n1 sh -c 'echo $0 | sed \"s/$/......../;s/[.]/\\t/g\" >> log'",
        ),
    ];
    let mut seconds: Vec<Vec<f64>> = vec![Vec::new(); measured.len()];
    for _ in 0..3 {
        for ((what, count, line), seconds) in measured.iter().zip(&mut seconds) {
            let timed = format!(
                "rm -f log log.*; N={count}; s=$EPOCHREALTIME; {line}; c=$?; echo $s $EPOCHREALTIME > times; (exit $c)"
            );
            assert_eq!(cluster.batch(&timed), 0, "{what}: {}", cluster.text("err"));
            let lines = cluster.text("log").lines().filter(|line| !line.starts_with("Seq\t")).count();
            assert_eq!(lines, *count, "{what}");
            let times: Vec<f64> = cluster.text("times").split_whitespace().flat_map(str::parse).collect();
            seconds.push(times[1] - times[0]);
        }
    }
    for ((what, count, _), mut seconds) in measured.iter().zip(seconds) {
        seconds.sort_by(f64::total_cmp);
        println!("RECORD rate | {what} | {count} | {:.2} | {:.0}", seconds[1], *count as f64 / seconds[1]);
    }
    cluster.write("array.sh", "#!/bin/sh\nexec /bin/true\n");
    let begun = Instant::now();
    let array = cluster.run("sbatch", ["--wait", "--array=1-20", "-n1", "-o", "/dev/null", "array.sh"]);
    assert!(array.status.success(), "{array:?}");
    let seconds = begun.elapsed().as_secs_f64();
    println!("RECORD rate | a job array | 20 | {seconds:.2} | {:.1}", 20.0 / seconds);
}

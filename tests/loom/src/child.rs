//! The product's modules about children.

#[path = "../../../crates/forkless/src/child/orphan.rs"]
#[allow(dead_code)]
mod orphan;

#[path = "models/orphans.rs"]
pub mod of_orphans;

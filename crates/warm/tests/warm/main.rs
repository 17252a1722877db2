//! Warm launches against cold ones: the same output, the same end, the same attributes; and cold launches wherever a
//! condition does not hold.

testing::usual_surroundings!();

mod common;
mod equivalence;
mod conditions;
mod pages;
mod templates;
mod attributes;
mod faults;

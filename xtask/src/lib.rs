//! The tasks, and what their tests share. Depends on no crate of the project but `testing`, which depends on none.

pub mod distros;
pub mod faults;
pub mod fuzz;
pub mod json;
pub mod kernels;
pub mod models;
pub mod mutants;
pub mod peers;
pub mod release;
pub mod sanitize;
pub mod sizes;
pub mod site;
pub mod soak;
pub mod suite;
pub mod targets;
pub mod trust;
pub mod version;

/// A program in the project's directory that chooses a toolchain by itself. This process was started by one toolchain's cargo, which
/// has set variables.
pub fn by_own_toolchain(program: &str) -> std::process::Command {
    let mut command = std::process::Command::new(program);
    command.env_remove("CARGO").env_remove("RUSTC").env_remove("RUSTUP_TOOLCHAIN").current_dir(testing::dist::root());
    command
}

/// The number before `word` in "ok. 3 passed; 0 failed; …".
pub fn count(counts: &str, word: &str) -> u64 {
    let before = counts.split(word).next().unwrap_or("").trim_end();
    before.rsplit([' ', ';']).next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn count_reads_the_result_line_of_the_harness() {
        let line = "ok. 12 passed; 3 failed; 4 ignored; 0 measured; 0 filtered out; finished in 0.01s";
        assert_eq!((count(line, "passed"), count(line, "failed"), count(line, "ignored")), (12, 3, 4));
        assert_eq!(count("FAILED. nothing", "passed"), 0);
    }
}

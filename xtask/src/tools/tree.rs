//! The directory in which the calls are made, and the calls.

use crate::dist;
use anyhow::{Context, Result, ensure};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where the tools are looked for: no wrappers of version managers, which cost more than the tools.
pub(super) const PATH: &str = "/usr/bin:/bin";

/// Name, program, arguments.
const TOOLS: [&[&str]; 9] = [
    &["rg", "rg", "-n", "needle", "src"],
    &["git status", "git", "status", "--porcelain"],
    &["git rev-parse", "git", "rev-parse", "HEAD"],
    &["sed", "sed", "-n", "1,40p", "src/d00/f00.txt"],
    &["ls", "ls", "-la", "src"],
    &["cat", "cat", "src/d01/f01.txt"],
    &["python3", "python3", "-c", "pass"],
    &["bash, rg, head", "bash", "-c", "cd src && rg -n needle . | head"],
    &["sh, test", "sh", "-c", "test -f README && echo y"],
];

/// A repository of 400 files.
pub(super) struct Tree {
    pub(super) directory: PathBuf,
    /// The file with the calls, one a line, in fields that are separated by tabs.
    pub(super) list: PathBuf,
    home: PathBuf,
    count: usize,
    /// Tools that are not installed.
    pub(super) lacking: Vec<String>,
}

impl Tree {
    /// # Errors
    /// If a file cannot be written, or git fails.
    pub(super) fn make(place: &Path) -> Result<Tree> {
        let has = |name: &str| PATH.split(':').any(|directory| Path::new(directory).join(name).exists());
        let (directory, list) = (place.join("tree"), place.join("calls.txt"));
        // bash calls rg.
        let is_there = |tool: &[&str]| has(tool[1]) && (tool[1] != "bash" || has("rg"));
        let (there, missing): (Vec<&[&str]>, Vec<&[&str]>) = TOOLS.iter().copied().partition(|tool| is_there(tool));
        let text: String = there.iter().map(|tool| tool.join("\t") + "\n").collect();
        let lacking =
            missing.iter().map(|tool| format!("{} because a program of it is not in {PATH}", tool[0])).collect();
        let tree = Tree { directory, list, home: place.to_owned(), count: there.len(), lacking };
        ensure!(tree.count > 0, "none of the tools is installed");
        if tree.directory.exists() {
            fs::remove_dir_all(&tree.directory)?;
        }
        for n in 0..400 {
            let file = tree.directory.join(format!("src/d{:02}/f{:02}.txt", n / 20, n % 20));
            fs::create_dir_all(file.parent().context("a directory")?)?;
            // All names and lines are of the same length, so that the output has the same size in any order.
            let lines = (0..60).map(|line| if line == 30 && n % 20 == 7 { "a needle\n" } else { "plain hay\n" });
            fs::write(file, lines.collect::<String>())?;
        }
        fs::write(tree.directory.join("README"), "files to search\n")?;
        if has("git") {
            for words in [&["init", "--quiet"][..], &["add", "."], &["commit", "--quiet", "-m", "files"], &["status"]] {
                let mut git = Command::new("git");
                git.args(["-c", "user.name=tools", "-c", "user.email=tools@localhost"]).args(words);
                dist::run(git.current_dir(&tree.directory).envs(tree.environment()).stdout(Stdio::null()))?;
            }
        }
        fs::write(&tree.list, text)?;
        Ok(tree)
    }

    pub(super) fn tools(&self) -> usize {
        self.count
    }

    /// Variables of the parents, so that the user's settings do not count.
    pub(super) fn environment(&self) -> Vec<(&'static str, OsString)> {
        let nothing = OsString::from("/dev/null");
        vec![
            ("PATH", PATH.into()),
            ("HOME", self.home.clone().into()),
            ("GIT_CONFIG_GLOBAL", nothing.clone()),
            ("GIT_CONFIG_SYSTEM", nothing),
            ("LC_ALL", "C".into()),
        ]
    }
}

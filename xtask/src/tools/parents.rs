//! The programs that make the calls: each language with its own module, and with forkless.

use super::Situation;
use super::tree::Tree;
use crate::{dist, modules};
use anyhow::{Context, Result, ensure};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What was built for this measurement. Each is a path, or why it is missing.
pub struct Built {
    /// The example `tool_calls` of the library.
    pub rust: modules::Built,
    /// `libforkless_warm.so`.
    pub warm: modules::Built,
    /// The interpreter of a virtual environment with the Python package.
    pub python: modules::Built,
    /// The directory `node_modules` with the Node package.
    pub node: modules::Built,
}

impl Built {
    /// Builds them in release mode, in cargo's directory `target`.
    ///
    /// # Errors
    /// If one could be built but the build failed.
    pub(super) fn release(place: &Path, target: &Path) -> Result<Built> {
        let target = std::path::absolute(target)?;
        let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        build.current_dir(dist::root()).args(["build", "--quiet", "--release", "--locked", "--package", "forkless"]);
        dist::run(build.args(["--features", "tokio,warm", "--example", "tool_calls", "--target-dir"]).arg(&target))?;
        let warm = place.join("libforkless_warm.so");
        let has_warm = dist::HAS_WARM;
        if has_warm {
            dist::warm(place, &target.join("warm-build"))?;
        }
        Ok(Built {
            warm: if has_warm { Ok(warm) } else { Err("this architecture has none".to_owned()) },
            rust: Ok(target.join("release/examples/tool_calls")),
            python: modules::python(&place.join("python"), &target, modules::Profile::Release)?,
            node: modules::node(&place.join("node"), &target, modules::Profile::Release)?,
        })
    }
}

/// A program that makes the calls by one method.
pub(super) struct Parent {
    pub(super) name: &'static str,
    /// The method of this language that forkless is compared with. Its own name, if it is one.
    pub(super) stock: &'static str,
    words: Vec<OsString>,
    variables: Vec<(&'static str, OsString)>,
}

/// What one parent has reported.
#[derive(Debug, Default)]
pub(super) struct Run {
    /// The tool's name, and the nanoseconds of the call.
    pub(super) calls: Vec<(String, f64)>,
    pub(super) stop_ns: f64,
    pub(super) own_us: f64,
    pub(super) children_us: f64,
    pub(super) bytes: u64,
}

/// Those that exist here, and why others do not.
///
/// # Errors
/// If Go is there and cannot compile.
pub(super) fn find(built: &Built, place: &Path) -> Result<(Vec<Parent>, Vec<String>)> {
    let (mut found, mut lacking, mut warm) = (Vec::new(), Vec::new(), None);
    let script = |name: &str| dist::root().join("bench/tools").join(name).into_os_string();
    let mut add =
        |names: [&'static str; 2], words: Vec<OsString>, modes: [&str; 2], variables: Vec<(&'static str, OsString)>| {
            for (name, mode) in names.into_iter().zip(modes) {
                let words = words.iter().cloned().chain([mode.into()]).collect();
                found.push(Parent { name, stock: names[0], words, variables: variables.clone() });
            }
        };
    match &built.rust {
        Ok(program) => {
            let names = ["Rust: tokio::process", "Rust: forkless::tokio"];
            add(names, vec![program.into()], ["stock", "forkless"], Vec::new());
            match &built.warm {
                Ok(library) => {
                    warm = Some(Parent {
                        name: "Rust: forkless::tokio, warm",
                        stock: names[0],
                        words: vec![program.into(), library.into()],
                        variables: Vec::new(),
                    });
                }
                Err(why) => lacking.push(format!("Rust with warm programs because {why}")),
            }
        }
        Err(why) => lacking.push(format!("Rust because {why}")),
    }
    match &built.python {
        Ok(python) => {
            let words = || vec![python.into(), script("calls.py")];
            let names = ["Python: asyncio", "Python: forkless.asyncio"];
            add(names, words(), ["stock-asyncio", "forkless-asyncio"], Vec::new());
            let names = ["Python: subprocess in threads", "Python: forkless in threads"];
            add(names, words(), ["stock-threads", "forkless-threads"], Vec::new());
        }
        Err(why) => lacking.push(format!("Python because {why}")),
    }
    match (&built.node, program("node")) {
        (Ok(modules), Some(node)) => {
            let names = ["Node: child_process", "Node: forkless, install()"];
            let variables = vec![("NODE_PATH", modules.into())];
            add(names, vec![node.into(), script("calls.js")], ["stock", "forkless"], variables);
        }
        (Err(why), _) => lacking.push(format!("Node because {why}")),
        (_, None) => lacking.push("Node because node is not installed".to_owned()),
    }
    if let Some(warm) = warm {
        // Behind the other two of Rust, which are the first.
        found.insert(2, warm);
    }
    match program("go") {
        Some(go) => {
            let output = place.join("calls");
            let mut build = Command::new(go);
            build.args(["build", "-o"]).arg(&output).arg(script("calls.go")).current_dir(place);
            dist::run(
                build.env("GO111MODULE", "off").env("GOCACHE", place.join("go-cache")).env("GOTOOLCHAIN", "local"),
            )?;
            let name = "Go: os/exec";
            found.push(Parent { name, stock: name, words: vec![output.into()], variables: Vec::new() });
        }
        None => lacking.push("Go because go is not installed".to_owned()),
    }
    Ok((found, lacking))
}

/// The file of a program in PATH.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|file| file.is_file())
}

impl Parent {
    pub(super) fn is_ours(&self) -> bool {
        self.name != self.stock
    }

    /// Runs it once.
    ///
    /// # Errors
    /// If it or one of its calls fails.
    pub(super) fn run(&self, situation: Situation, cycles: usize, tree: &Tree) -> Result<Run> {
        self.report(situation, cycles, tree).with_context(|| format!("{}, {}", self.name, situation.words()))
    }

    fn report(&self, situation: Situation, cycles: usize, tree: &Tree) -> Result<Run> {
        let mut command = Command::new(&self.words[0]);
        let Situation { mebibytes, descriptors, slots } = situation;
        command.args(&self.words[1..]).args([slots, cycles, mebibytes, descriptors].map(|number| number.to_string()));
        command.args([&tree.directory, &tree.list]).current_dir(&tree.directory);
        // cargo sets it for this program, so that it would search its own directories for the tools' libraries. A program is
        // not launched warm with it.
        command.env_remove("LD_LIBRARY_PATH");
        let output = command.envs(tree.environment()).envs(self.variables.iter().cloned()).output()?;
        ensure!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
        read(&String::from_utf8(output.stdout)?)
    }
}

/// Reads the lines `NAME<tab>NUMBER` of a parent.
fn read(text: &str) -> Result<Run> {
    let mut run = Run::default();
    let mut known = 0;
    for line in text.lines() {
        let (name, number) = line.split_once('\t').with_context(|| line.to_owned())?;
        let number: f64 = number.parse().with_context(|| line.to_owned())?;
        known += 1;
        match name {
            "stop" => run.stop_ns = number.max(0.0),
            "own" => run.own_us = number,
            "children" => run.children_us = number,
            "bytes" => run.bytes = number as u64,
            tool => {
                known -= 1;
                run.calls.push((tool.to_owned(), number));
            }
        }
    }
    ensure!(known == 4 && run.bytes > 0, "incomplete: {text}");
    Ok(run)
}

/// Versions of the interpreters and tools.
pub(super) fn versions() -> Vec<(String, String)> {
    let mut versions = Vec::new();
    for (name, about) in
        [("python3", "--version"), ("node", "--version"), ("go", "version"), ("rg", "--version"), ("git", "--version")]
    {
        let output = Command::new(name).arg(about).output();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        versions.extend(text.lines().next().map(|line| (name.to_owned(), line.to_owned())));
    }
    versions
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn a_report_without_an_end_is_refused() {
        let whole = "rg\t5\nrg\t7\nown\t1\nchildren\t2\nstop\t-3\nbytes\t4\n";
        let run = read(whole).expect("a report");
        assert_eq!(run.calls, [("rg".to_owned(), 5.0), ("rg".to_owned(), 7.0)]);
        assert_eq!((run.own_us, run.children_us, run.stop_ns, run.bytes), (1.0, 2.0, 0.0, 4));
        assert!(read(&whole.replace("bytes\t4\n", "")).is_err());
        assert!(read(&whole.replace("stop\t-3", "stop")).is_err());
    }
}

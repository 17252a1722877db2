//! Open files and mappings of engines. An engine with `parent` in its greeting creates them on request; into others, a library is
//! loaded that creates them before main.

use std::{ffi::OsString, fs, path::Path};

use anyhow::{Context, Result, anyhow, ensure};
use forkless::{Command, Stdio};

use super::{
    super::{condition::Condition, units::thousands},
    Engines, Found,
};

/// The source of the library, the command that builds it, and the resulting file.
const SOURCE: &str = include_str!("../../engines/parent/parent.c");
const BUILD: [&str; 6] = ["-O2", "-shared", "-fPIC", "-o", FILE, "parent.c"];
const FILE: &str = "libparent.so";
/// The environment variable that configures it.
const VARIABLE: &str = "FORKLESS_BENCH_PARENT";

/// The number of other descriptors of an engine: its standard streams, those of the protocol, and those that its runtime opens.
const BESIDES: usize = 16;

/// The inheritable descriptors from 3 on of this process.
pub(super) fn inheritable() -> Result<Vec<i32>> {
    let kept = |(number, close_on_exec): &(i32, bool)| *number > 2 && !close_on_exec;
    Ok(descriptors("self")?.into_iter().filter(kept).map(|(number, _)| number).collect())
}

/// The open descriptors of a process, and whether each is close-on-exec.
fn descriptors(process: &str) -> Result<Vec<(i32, bool)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("/proc/{process}/fdinfo")).context("its descriptors")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        // The descriptor of the directory itself is already closed.
        let Ok(text) = fs::read_to_string(format!("/proc/{process}/fdinfo/{name}")) else { continue };
        let flags =
            text.lines().find_map(|line| line.strip_prefix("flags:")).context("no flags in /proc/PID/fdinfo")?;
        let flags = i32::from_str_radix(flags.trim(), 8)?;
        found.push((name.parse()?, flags & libc::O_CLOEXEC != 0));
    }
    Ok(found)
}

/// The number of a process's readable anonymous mappings of one page.
fn pages(process: &str) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/maps")).context("its mappings")?;
    let is_page = |line: &&str| {
        let mut words = line.split_ascii_whitespace();
        let (range, kind) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let address = |text| usize::from_str_radix(text, 16).ok();
        let length = range.split_once('-').and_then(|(start, end)| address(end)?.checked_sub(address(start)?));
        // Anonymous: no path follows offset, device and inode.
        length == Some(rustix::param::page_size()) && matches!(kind, "rw-p" | "r--p") && words.count() == 3
    };
    Ok(text.lines().filter(is_page).count() as u64)
}

/// Fails unless the process has the open files and the mappings of the condition.
pub(super) fn prove(process: u32, condition: &Condition, given: usize) -> Result<()> {
    let Condition { fds, mappings, close_on_exec, .. } = *condition;
    if fds > Condition::SMALL.fds {
        let open = descriptors(&process.to_string())?;
        let count = thousands(open.len() as u64);
        ensure!(open.len() as u64 >= fds, "the engine has {count} open files instead of {}", thousands(fds));
        let unlike = open.iter().filter(|(_, other)| *other != close_on_exec).count();
        let what = if close_on_exec { "not close-on-exec" } else { "close-on-exec" };
        ensure!(unlike <= BESIDES + given, "{} of its {count} open files are {what}", thousands(unlike as u64));
    }
    if mappings > 0 {
        let pages = pages(&process.to_string())?;
        // The first and the last page may be merged with a neighbouring mapping.
        ensure!(
            pages + 2 >= mappings,
            "the engine has {} one-page mappings instead of {}",
            thousands(pages),
            thousands(mappings)
        );
    }
    Ok(())
}

/// The requests to an engine with `parent` in its greeting.
pub(super) fn requests(condition: &Condition) -> Vec<String> {
    let Condition { fds, mappings, close_on_exec, .. } = *condition;
    let kind = if close_on_exec { "cloexec" } else { "inherited" };
    let files = (fds > Condition::SMALL.fds).then(|| format!("files {fds} {kind}"));
    files.into_iter().chain((mappings > 0).then(|| format!("mappings {mappings}"))).collect()
}

impl Engines {
    /// Sets up the command of an engine without `parent` to start with the open files and mappings of the condition.
    ///
    /// # Errors
    /// If there is no C compiler.
    pub(super) fn furnish(&self, command: &mut Command, found: &Found, condition: &Condition) -> Result<()> {
        let Condition { fds, mappings, close_on_exec, .. } = *condition;
        if !close_on_exec {
            // This process is under the same condition; the engine must not inherit its files.
            command.inherit_all(false);
            for &number in &self.given {
                // SAFETY: this process has inherited the descriptor, and no code of it owns or closes it.
                command.fd(unsafe { Stdio::fd(number) }, number);
            }
        }
        if found.has_parent || !condition.has_files_or_mappings() {
            return Ok(());
        }
        let mut preload = self.parent_library()?.as_os_str().to_owned();
        if let Some(list) = std::env::var_os("LD_PRELOAD").filter(|list| !list.is_empty()) {
            preload.push(":");
            preload.push(list);
        }
        let files = if fds > Condition::SMALL.fds { fds } else { 0 };
        let mut words = OsString::from(format!("{files} {} {mappings} ", u8::from(close_on_exec)));
        words.push(&found.program);
        command.env("LD_PRELOAD", preload).env(VARIABLE, words);
        Ok(())
    }

    /// Built on first use.
    fn parent_library(&self) -> Result<&Path> {
        let made = self.parent.get_or_init(|| self.make_parent_library().map_err(|error| format!("{error:#}")));
        made.as_deref().map_err(|error| anyhow!("its open files and mappings need a C compiler: {error}"))
    }

    fn make_parent_library(&self) -> Result<std::path::PathBuf> {
        let directory = self.directory().join("parent");
        fs::create_dir(&directory)?;
        fs::write(directory.join("parent.c"), SOURCE)?;
        let output = Command::new("cc").args(BUILD).current_dir(&directory).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(directory.join(FILE))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::contestant::Contestant;
    use super::super::super::launcher::{Job, Launcher};
    use super::super::super::program::Program;
    use super::super::super::wishes::Wishes;
    use super::*;

    const SMALL: Condition = Condition::SMALL;
    const FILES: Condition = Condition { fds: 300, ..SMALL };
    const INHERITED: Condition = Condition { close_on_exec: false, ..FILES };
    const MAPPINGS: Condition = Condition { mappings: 500, ..SMALL };
    /// Exits with 0 if the variables are unset and the number of open files is in the given range.
    const SCRIPT: &str = r#"[ -z "$LD_PRELOAD$FORKLESS_BENCH_PARENT" ] || exit 4
        set -- "$0" "$1" /proc/$$/fd/*; [ $(($# - 2)) -ge "$1" ] && [ $(($# - 2)) -le "$2" ]"#;

    fn program(least: &str, most: &str) -> Program {
        Program::from_words(&["sh", "-c", SCRIPT, least, most].map(OsString::from)).expect("sh")
    }

    /// Each installed engine has its files and mappings; its children do not see the variables, and inherit only inheritable files.
    #[test]
    fn engines_have_the_requested_files_and_mappings() {
        let engines = Engines::find(&Contestant::ALL, None).expect("temporary directory");
        let (none, few, many) = (Wishes::none(), program("3", "40"), program("280", "1000"));
        for found in &engines.found {
            let (contestant, name) = (found.source.contestant, found.source.contestant.name());
            let start = |condition, program| engines.start(contestant, &Job { program, condition, wishes: &none });
            for condition in [SMALL, FILES, MAPPINGS, Condition { mappings: 500, ..FILES }] {
                let mut engine = start(condition, &few).unwrap_or_else(|e| panic!("{name}: {e:#}"));
                engine.launch().unwrap_or_else(|e| panic!("{name} {}: {e:#}", condition.describe()));
            }
            let passes_on = contestant.unlike().is_none_or(|unlike| !unlike.contains("fds"));
            match start(INHERITED, if passes_on { &many } else { &few }) {
                Ok(mut engine) => _ = engine.launch().unwrap_or_else(|e| panic!("{name} inherits: {e:#}")),
                // Node makes all descriptors that it inherits close-on-exec.
                Err(error) => assert!(name.starts_with("node") && format!("{error:#}").contains("close-on-exec")),
            }
        }
    }

    #[test]
    fn engine_without_the_requested_files_and_mappings_is_an_error() {
        let engines = Engines::find(&[Contestant::Go, Contestant::PerlSystem], None).expect("temporary directory");
        let (none, program) = (Wishes::none(), Program::embedded().expect("temporary directory"));
        for found in &engines.found {
            let job = |condition| Job { program: &program, condition, wishes: &none };
            let start = |condition| engines.start(found.source.contestant, &job(condition)).expect("starts");
            let fails = |has, asked: Condition| {
                let engine = start(has);
                let id = engine.process.as_ref().expect("alive").id();
                prove(id, &has, engines.given.len()).expect("it has what it was started with");
                prove(id, &asked, engines.given.len()).is_err()
            };
            assert!(fails(SMALL, FILES) && fails(SMALL, MAPPINGS) && fails(SMALL, INHERITED));
            assert!(fails(FILES, INHERITED) && fails(INHERITED, FILES) && fails(FILES, MAPPINGS));
            assert!(
                fails(FILES, Condition { fds: 350, ..FILES })
                    && fails(MAPPINGS, Condition { mappings: 600, ..MAPPINGS })
            );
        }
    }

    /// A wrapper script and the other programs that it runs do not get the files and mappings.
    #[test]
    fn interpreter_started_by_a_script_gets_the_files_and_mappings() {
        let engines = Engines::find(&[Contestant::PerlSystem], None).expect("temporary directory");
        let Some(found) = engines.found.first() else {
            return eprintln!("SKIPPED: a script, because perl is not installed");
        };
        let script = engines.directory().join("perl-by-script");
        fs::write(&script, "#!/bin/sh\nsleep 0\nexec perl \"$@\"\n").expect("writable");
        let source = engines.directory().join("perl-system/engine.pl");
        let mut command = Command::new("sh");
        command.arg(&script).arg(source).args(["system", "sh", "-c", SCRIPT, "3", "40"]).inherit_all(true);
        engines.furnish(&mut command, found, &FILES).expect("a library");
        let (mut process, _) = super::super::Process::start(command).expect("starts");
        prove(process.id(), &FILES, engines.given.len()).expect("perl has them");
        process.ask("turn 0 1 1", super::super::PATIENCE).expect("its children have nothing of it");
    }
}

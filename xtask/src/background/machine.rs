//! The machine of the measurement, without host name, user, path or address.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

/// Properties by name.
pub(crate) fn look() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut note = |name: &str, value: Option<String>| {
        if let Some(value) = value.map(|value| value.trim().to_owned()).filter(|value| !value.is_empty()) {
            found.insert(name.to_owned(), value);
        }
    };
    note("date", said("date", &["-u", "+%FT%TZ"]));
    note("kernel", read("/proc/sys/kernel/osrelease"));
    note("arch", Some(std::env::consts::ARCH.to_owned()));
    note("cpu", line_of("/proc/cpuinfo", "model name"));
    note("cores", Some(cores().to_string()));
    note("memory", line_of("/proc/meminfo", "MemTotal"));
    note("huge pages", read("/sys/kernel/mm/transparent_hugepage/enabled"));
    note("libc", said("getconf", &["GNU_LIBC_VERSION"]));
    note("sh", fs::read_link("/bin/sh").ok().map(|path| path.display().to_string()));
    note("perl", said("perl", &["-e", "printf '%vd', $^V"]));
    note("Proc::FastSpawn", said("perl", &["-MProc::FastSpawn", "-e", "print $Proc::FastSpawn::VERSION"]));
    note("raku", said("raku", &["-e", "print $*RAKU.compiler.name, ' ', $*RAKU.compiler.version"]));
    note("rustc", said("rustc", &["--version"]));
    found
}

/// CPUs that this process may use.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

fn line_of(path: &str, name: &str) -> Option<String> {
    let text = read(path)?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.to_owned())
}

fn said(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

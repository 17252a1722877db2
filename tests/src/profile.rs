//! Seccomp filters of container engines and of systemd, compiled from the lists that their packages install.
//!
//! Nothing of the lists is kept here: [`container`] reads an engine's `seccomp.json`, [`systemd`] asks `systemd-analyze`.

use seccompiler::{BpfProgram, TargetArch, compile_from_json, sock_filter};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Error};
use std::path::Path;
use std::process::Command;

/// The capabilities that Docker and containerd leave to a container (runtime-spec's defaults of Moby). Podman leaves fewer.
pub const CONTAINER_CAPABILITIES: [&str; 14] = [
    "CAP_AUDIT_WRITE",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_MKNOD",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_RAW",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
];

/// The format of `seccomp.json`, as Docker, Podman and CRI-O read it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    default_action: String,
    default_errno_ret: Option<u32>,
    syscalls: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    names: Vec<String>,
    action: String,
    errno_ret: Option<u32>,
    args: Option<Vec<Arg>>,
    #[serde(default)]
    includes: Condition,
    #[serde(default)]
    excludes: Condition,
}

/// When a rule is part of the filter.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Condition {
    caps: Vec<String>,
    arches: Vec<String>,
    /// Every kernel that the tests run on has it.
    #[serde(rename = "minKernel")]
    _min_kernel: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Arg {
    index: u8,
    value: u64,
    #[serde(default)]
    value_two: u64,
    op: String,
}

/// The filter of a container with these capabilities, as programs to be installed in this order.
///
/// # Errors
/// A file that cannot be read, or has something that is not known here.
pub fn container(file: &Path, capabilities: &[&str]) -> io::Result<Vec<BpfProgram>> {
    let profile: Profile = serde_json::from_reader(std::fs::File::open(file)?)?;
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => return Err(Error::other(format!("{other} has no name in these profiles"))),
    };
    let names = |list: &[String], name: &str| list.iter().any(|one| one == name);
    let applies = |rule: &&Rule| {
        let (with, without) = (&rule.includes, &rule.excludes);
        (with.arches.is_empty() || names(&with.arches, arch))
            && with.caps.iter().all(|cap| capabilities.contains(&cap.as_str()))
            && !names(&without.arches, arch)
            && !without.caps.iter().any(|cap| capabilities.contains(&cap.as_str()))
    };
    let (mut allowed, mut refused) = (Rules::default(), BTreeMap::<u32, Rules>::new());
    for rule in profile.syscalls.iter().filter(applies) {
        let args = rule.args.iter().flatten().map(Arg::in_json).collect::<io::Result<Vec<Value>>>()?;
        let rules = match rule.action.as_str() {
            "SCMP_ACT_ALLOW" => &mut allowed,
            "SCMP_ACT_ERRNO" => refused.entry(rule.errno_ret.unwrap_or(EPERM)).or_default(),
            other => return Err(Error::other(format!("action {other}"))),
        };
        rule.names.iter().for_each(|name| rules.add(name, &args));
    }
    if profile.default_action != "SCMP_ACT_ERRNO" {
        return Err(Error::other(format!("default action {}", profile.default_action)));
    }
    // Of two errnos the kernel returns that of the later program: those that are named go last.
    let default = json!({ "errno": profile.default_errno_ret.unwrap_or(EPERM) });
    let mut programs = vec![allowed.compile(&default, &json!("allow"))?];
    for (errno, rules) in refused {
        programs.push(rules.compile(&json!("allow"), &json!({ "errno": errno }))?);
    }
    Ok(programs)
}

/// The errno of a rule without `errnoRet`.
const EPERM: u32 = libc::EPERM as u32;

impl Arg {
    fn in_json(&self) -> io::Result<Value> {
        let (op, value) = match self.op.as_str() {
            "SCMP_CMP_EQ" => (json!("eq"), self.value),
            "SCMP_CMP_NE" => (json!("ne"), self.value),
            "SCMP_CMP_MASKED_EQ" => (json!({ "masked_eq": self.value }), self.value_two),
            other => return Err(Error::other(format!("comparison {other}"))),
        };
        Ok(json!({ "index": self.index, "type": "qword", "op": op, "val": value }))
    }
}

/// Names of system calls, each with the lists of conditions of which one must hold; none: it always matches.
#[derive(Default)]
struct Rules(BTreeMap<String, Vec<Vec<Value>>>);

impl Rules {
    fn add(&mut self, name: &str, conditions: &[Value]) {
        let known = self.0.get(name);
        if conditions.is_empty() {
            self.0.insert(name.to_owned(), Vec::new());
        } else if known.is_none_or(|lists| !lists.is_empty()) {
            self.0.entry(name.to_owned()).or_default().push(conditions.to_vec());
        }
    }

    /// Names that this architecture has not got are left out, as the engines do.
    fn compile(&self, otherwise: &Value, matching: &Value) -> io::Result<BpfProgram> {
        let mut rules = Vec::new();
        for (name, lists) in self.0.iter().filter(|(name, _)| is_known(name)) {
            if lists.is_empty() {
                rules.push(json!({ "syscall": name }));
            }
            rules.extend(lists.iter().map(|list| json!({ "syscall": name, "args": list })));
        }
        compile(&json!({ "it": { "mismatch_action": otherwise, "match_action": matching, "filter": rules } }))
    }
}

fn compile(filter: &Value) -> io::Result<BpfProgram> {
    let target: TargetArch = std::env::consts::ARCH.try_into().map_err(Error::other)?;
    let mut compiled = compile_from_json(filter.to_string().as_bytes(), target).map_err(Error::other)?;
    compiled.remove("it").ok_or_else(|| Error::other("no program"))
}

fn is_known(name: &str) -> bool {
    let one = json!([{ "syscall": name }]);
    compile(&json!({ "it": { "mismatch_action": "allow", "match_action": "trap", "filter": one } })).is_ok()
}

/// `SystemCallFilter=SET`: all else is answered with `errno`, or kills the process as systemd does by default.
///
/// # Errors
/// Without `systemd-analyze`, or if that does not know the set.
pub fn systemd(set: &str, errno: Option<i32>) -> io::Result<BpfProgram> {
    let mut rules = Rules::default();
    systemd_calls(set)?.iter().for_each(|name| rules.add(name, &[]));
    let otherwise = errno.map_or(json!("kill_process"), |errno| json!({ "errno": errno }));
    rules.compile(&otherwise, &json!("allow"))
}

/// The calls that `SystemCallFilter=` with this set allows, as the installed systemd has them.
///
/// # Errors
/// As there.
pub fn systemd_calls(set: &str) -> io::Result<BTreeSet<String>> {
    let output = Command::new("systemd-analyze").args(["syscall-filter", "--no-pager"]).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut sets: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut current = None;
    for line in text.lines().filter(|line| !line.trim_start().starts_with('#')) {
        match line.strip_prefix(' ') {
            None => current = Some(sets.entry(line.trim()).or_default()),
            Some(name) => current.iter_mut().for_each(|set| set.push(name.trim())),
        }
    }
    let mut names = BTreeSet::new();
    // Calls that systemd adds to every list of allowed calls: systemd.exec(5).
    let mut wanted = vec![set, "@default"];
    while let Some(name) = wanted.pop() {
        match sets.get(name) {
            Some(members) => wanted.extend(members),
            None if name.starts_with('@') => return Err(Error::other(format!("systemd-analyze knows no {name}"))),
            None => drop(names.insert(name.to_owned())),
        }
    }
    Ok(names)
}

/// `RestrictNamespaces=yes`: no namespace is made or joined, and `clone3`, whose flags no filter can read, is answered with
/// ENOSYS.
///
/// # Errors
/// None on the architectures that this library is for.
pub fn restrict_namespaces() -> io::Result<Vec<BpfProgram>> {
    let kinds = [
        libc::CLONE_NEWNS,
        libc::CLONE_NEWCGROUP,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
    ];
    let (mut refused, mut missing) = (Rules::default(), Rules::default());
    for kind in kinds.map(|kind| kind as u64) {
        for (name, index) in [("clone", 0), ("unshare", 0), ("setns", 1)] {
            let has = json!({ "index": index, "type": "qword", "op": { "masked_eq": kind }, "val": kind });
            refused.add(name, &[has]);
        }
    }
    refused.add("setns", &[json!({ "index": 1, "type": "qword", "op": "eq", "val": 0 })]);
    missing.add("clone3", &[]);
    Ok(vec![
        refused.compile(&json!("allow"), &json!({ "errno": libc::EPERM }))?,
        missing.compile(&json!("allow"), &json!({ "errno": libc::ENOSYS }))?,
    ])
}

/// Programs as text, one after another: for [`install`] by another process.
pub fn encode(programs: &[BpfProgram]) -> String {
    let instruction = |one: &sock_filter| format!("{} {} {} {}\n", one.code, one.jt, one.jf, one.k);
    let text = |program: &BpfProgram| program.iter().map(instruction).collect::<String>();
    programs.iter().map(text).collect::<Vec<_>>().join("-\n")
}

/// Installs what [`encode`] wrote, in this thread and what it executes; with `no_new_privs` only where it must be.
///
/// # Errors
/// What is not of that form, or what the kernel says.
pub fn install(text: &str) -> io::Result<()> {
    for program in text.split("-\n") {
        let lines = program.lines().map(|line| {
            let numbers: Vec<u32> = line.split(' ').filter_map(|number| number.parse().ok()).collect();
            let &[code, jt, jf, k] = numbers.as_slice() else { return Err(Error::other(format!("line {line:?}"))) };
            Ok(libc::sock_filter { code: code as u16, jt: jt as u8, jf: jf as u8, k })
        });
        let mut program = lines.collect::<io::Result<Vec<_>>>()?;
        let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        let set = || {
            let mode = libc::SECCOMP_SET_MODE_FILTER;
            // SAFETY: the kernel copies the instructions, which live in `program` above.
            unsafe { libc::syscall(libc::SYS_seccomp, mode, 0, &raw const program) }
        };
        // SAFETY: a flag of this thread.
        if set() != 0 && (unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 || set() != 0) {
            return Err(Error::last_os_error());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A profile with one rule of each sort does to calls what it says.
    #[test]
    fn a_profile_answers_as_its_rules_say() {
        let arch = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
        let allow = |names: &[&str]| json!({ "names": names, "action": "SCMP_ACT_ALLOW", "args": null });
        let mut with_capability = allow(&["getpriority"]);
        with_capability["includes"] = json!({ "caps": ["CAP_SYS_NICE"], "minKernel": "4.8" });
        let mut of_arch = allow(&["getppid"]);
        of_arch["includes"] = json!({ "arches": [arch] });
        let mut of_other_arch = allow(&["getpgid"]);
        of_other_arch["excludes"] = json!({ "arches": [arch] });
        let mut without_namespaces = allow(&["umask"]);
        without_namespaces["args"] = json!([{ "index": 0, "value": 0o700, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ" }]);
        let mut refused = json!({ "names": ["getsid"], "action": "SCMP_ACT_ERRNO", "errnoRet": libc::E2BIG });
        refused["excludes"] = json!({ "caps": ["CAP_SYS_ADMIN"] });
        let all = [
            "write",
            "futex",
            "exit",
            "munmap",
            "madvise",
            "sigaltstack",
            "rt_sigprocmask",
            "mmap",
            "seccomp",
            "prctl",
        ];
        let profile = json!({
            "defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": libc::ENOLINK,
            "syscalls": [allow(&all), allow(&["no_such_call"]), with_capability, of_arch, of_other_arch,
                without_namespaces, refused],
        });
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), profile.to_string()).expect("written");
        let text = encode(&container(file.path(), &[]).expect("compiled"));
        let answers = std::thread::spawn(move || {
            install(&text).expect("installed");
            // SAFETY: calls without effect but for the umask, which no other test looks at.
            unsafe {
                [
                    (libc::SYS_getppid, 0),
                    (libc::SYS_getpriority, 0),
                    (libc::SYS_getpgid, 0),
                    (libc::SYS_umask, 0o22),
                    (libc::SYS_umask, 0o222),
                    (libc::SYS_getsid, 0),
                ]
                .map(|(call, arg)| if libc::syscall(call, arg, 0) < 0 { *libc::__errno_location() } else { 0 })
            }
        });
        let answers = answers.join().expect("a thread");
        assert_eq!(answers, [0, libc::ENOLINK, libc::ENOLINK, 0, libc::ENOLINK, libc::E2BIG]);
    }

    #[test]
    fn no_namespace_is_made_under_the_restriction() {
        let text = encode(&restrict_namespaces().expect("compiled"));
        let answers = std::thread::spawn(move || {
            install(&text).expect("installed");
            let errno = |answer: i64| if answer < 0 { io::Error::last_os_error().raw_os_error() } else { None };
            // SAFETY: calls that fail, or change this thread alone.
            unsafe {
                [
                    errno(libc::syscall(libc::SYS_unshare, libc::CLONE_NEWUTS)),
                    errno(libc::syscall(libc::SYS_unshare, libc::CLONE_FS)),
                    errno(libc::syscall(libc::SYS_setns, -1, 0)),
                    errno(libc::syscall(libc::SYS_clone3, 0, 0)),
                ]
            }
        });
        let answers = answers.join().expect("a thread");
        assert_eq!(answers, [Some(libc::EPERM), None, Some(libc::EPERM), Some(libc::ENOSYS)]);
    }
}

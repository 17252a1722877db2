//! System calls and files that the program may use. The seccompiler and landlock crates compile the filters.

use std::{fmt::Display, os::fd::OwnedFd, path::PathBuf, str::FromStr};

use clap::Args;
use forkless::{BpfInstruction, Command};
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError,
};
use seccompiler::{TargetArch, compile_from_json};

use super::{super::failure::Failure, syscalls};
use crate::near::did_you_mean;

// No doc comment: clap would take it for the description of `forkless run`.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Filters")]
pub(crate) struct Filters {
    /// Allow only these system calls: [~]NAME,...[:ERROR]
    ///
    /// All others fail with ERROR (default: EPERM), except those needed to start and to exit. With ~, the listed calls
    /// fail and all others are allowed. On x86-64, calls with x32 ABI numbers always fail.
    #[arg(long, value_name = "NAMES", conflicts_with = "seccomp")]
    system_call_filter: Option<SystemCalls>,

    /// Deny access to files, except by --landlock-rule: fs, or fs:ACCESS,... for some kinds of access
    ///
    /// Access that this kernel cannot deny is an error, or with --best-effort=landlock reported at the end.
    #[arg(long, value_name = "ACCESS", conflicts_with_all = ["sandbox", "landlock"])]
    landlock_access: Option<Denied>,

    /// Allow access to files below a path: path-beneath:[ACCESS,...]:PATH (default: all access)
    ///
    /// ACCESS is one of execute, read-file, read-dir, write-file, truncate, remove-file, remove-dir, make-reg, make-dir,
    /// make-sym, make-sock, make-fifo, make-char, make-block, refer and ioctl-dev.
    #[arg(long, value_name = "RULE", requires = "landlock_access")]
    landlock_rule: Vec<Rule>,
}

/// The compiled filter of system calls.
#[derive(Clone, Debug)]
struct SystemCalls {
    program: Vec<BpfInstruction>,
    /// It may refuse calls that any program makes, such as those of the loader and those of forkless itself.
    may_kill: bool,
}

/// The kinds of access to deny.
#[derive(Clone, Debug)]
struct Denied(BitFlags<AccessFs>);

#[derive(Clone, Debug)]
struct Rule {
    access: BitFlags<AccessFs>,
    path: PathBuf,
}

/// The calls that the C library makes before `main`, or forkless to report that the program cannot be executed. A program
/// that is refused one of them usually dies without a message. (The list need not be complete: such a filter is a mistake.)
const VITAL: [&str; 24] = [
    "access",
    "arch_prctl",
    "brk",
    "close",
    "dup3",
    "execve",
    "execveat",
    "exit",
    "exit_group",
    "fcntl",
    "fstat",
    "futex",
    "mmap",
    "mprotect",
    "munmap",
    "newfstatat",
    "openat",
    "pread64",
    "read",
    "rt_sigaction",
    "rt_sigprocmask",
    "set_tid_address",
    "sigaltstack",
    "write",
];

/// The newest set of access rights that this program knows.
const RIGHTS: ABI = ABI::V6;

impl Filters {
    /// May the filter keep the program from starting, or forkless from reporting that it did not start?
    pub(crate) fn can_kill(&self) -> bool {
        self.system_call_filter.as_ref().is_some_and(|filter| filter.may_kill)
    }

    /// `best_effort`: access that the kernel cannot deny stays allowed.
    pub(crate) fn apply(&self, command: &mut Command, best_effort: bool) -> Result<(), Failure> {
        if let Some(program) = self.program() {
            command.seccomp(program.iter().copied());
        }
        if let Some(Denied(access)) = &self.landlock_access {
            let known = deniable(*access, can_deny, best_effort).map_err(|why| {
                Failure::before(format_args!("--landlock-access: {why}; --best-effort=landlock would ignore this"))
            })?;
            if !known.is_empty() {
                command.landlock(self.ruleset(known)?);
            }
        }
        Ok(())
    }

    /// The compiled filter of `--system-call-filter`.
    pub(crate) fn program(&self) -> Option<&[BpfInstruction]> {
        self.system_call_filter.as_ref().map(|filter| &filter.program[..])
    }

    /// Is access to files denied?
    pub(crate) fn has_denied_files(&self) -> bool {
        self.landlock_access.is_some()
    }

    /// Describes the access that could not be denied, for the report after a launch with `best_effort`.
    pub(crate) fn not_denied(&self) -> Option<String> {
        let Denied(access) = self.landlock_access.as_ref()?;
        deniable(*access, can_deny, false).err()
    }

    fn ruleset(&self, denied: BitFlags<AccessFs>) -> Result<OwnedFd, Failure> {
        let failed = |error: &dyn Display| Failure::before(format_args!("--landlock-access: {error}"));
        let made = Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(denied);
        let made = made.and_then(Ruleset::create);
        let mut ruleset = made.map_err(|error| failed(&error))?;
        for Rule { access, path } in &self.landlock_rule {
            let refused = |error: &dyn Display| {
                Failure::before(format_args!("--landlock-rule: {error}; the path of a rule must exist"))
            };
            let below = PathFd::new(path).map_err(|error| refused(&error))?;
            // Access that is not denied needs no rule, and an empty rule is an error.
            if (*access & denied).is_empty() {
                continue;
            }
            let rule = PathBeneath::new(below, *access & denied);
            ruleset = ruleset.add_rule(rule).map_err(|error: RulesetError| refused(&error))?;
        }
        let ruleset: Option<OwnedFd> = ruleset.into();
        ruleset.ok_or_else(|| failed(&NO_LANDLOCK))
    }
}

const NO_LANDLOCK: &str = "this kernel has no Landlock, or it is not enabled";

/// The part of `denied` that the kernel can deny. Anything left over is an error, except with `best_effort`.
fn deniable(
    denied: BitFlags<AccessFs>,
    can_deny: impl Fn(AccessFs) -> bool,
    best_effort: bool,
) -> Result<BitFlags<AccessFs>, String> {
    let known: BitFlags<AccessFs> = denied.iter().filter(|one| can_deny(*one)).collect();
    if known == denied || best_effort {
        return Ok(known);
    }
    if known.is_empty() && !can_deny(AccessFs::Execute) {
        return Err(NO_LANDLOCK.into());
    }
    let lacking = (denied & !known).iter().map(words_of).collect::<Vec<_>>().join(", ");
    Err(format!("this kernel's Landlock cannot deny {lacking}"))
}

/// Can this kernel deny the access?
fn can_deny(one: AccessFs) -> bool {
    Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(one).is_ok()
}

impl FromStr for SystemCalls {
    type Err = String;

    fn from_str(words: &str) -> Result<Self, String> {
        /// Needed to execute the program and to exit.
        const NEEDED: [&str; 5] = ["execve", "execveat", "exit", "exit_group", "rt_sigreturn"];
        let (names, error) = words.rsplit_once(':').unwrap_or((words, "EPERM"));
        let errno = errno(error).ok_or_else(|| {
            format!("no error {error:?}: use a name such as EPERM, or a number{}", did_you_mean(error, errors()))
        })?;
        let denies = names.strip_prefix('~');
        let listed = denies.unwrap_or(names).split(',').map(str::trim).filter(|name| !name.is_empty());
        if listed.clone().next().is_none() {
            return Err("no system call given".into());
        }
        let needed = NEEDED.iter().copied().filter(|_| denies.is_none());
        let rules: Vec<_> = listed.clone().chain(needed).map(|name| serde_json::json!({ "syscall": name })).collect();
        let refuse = serde_json::json!({ "errno": errno });
        let allow = serde_json::json!("allow");
        let (matching, others) = if denies.is_some() { (refuse, allow) } else { (allow, refuse) };
        let text = serde_json::json!({
            "program": { "default_action": others, "filter_action": matching, "filter": rules },
        });
        let machine = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| error.to_string())?;
        let mut programs = compile_from_json(text.to_string().as_bytes(), machine).map_err(|error| {
            // The compiler reports the name only within its message.
            let wrong = listed.clone().find(|name| !is_call(name, machine));
            wrong.map_or_else(|| error.to_string(), |name| unknown_call(name, machine))
        })?;
        let program = programs.remove("program").unwrap_or_default();
        let instruction =
            |one: seccompiler::sock_filter| BpfInstruction { code: one.code, jt: one.jt, jf: one.jf, k: one.k };
        let may_kill = denies.is_none_or(|names| names.split(',').any(|name| VITAL.contains(&name.trim())));
        let program = x32_refused(errno).into_iter().chain(program.into_iter().map(instruction)).collect();
        Ok(Self { program, may_kill })
    }
}

/// Does the filter's compiler know this system call?
fn is_call(name: &str, machine: TargetArch) -> bool {
    let text = serde_json::json!({
        "program": { "default_action": "allow", "filter_action": "kill_process", "filter": [{ "syscall": name }] },
    });
    compile_from_json(text.to_string().as_bytes(), machine).is_ok()
}

fn unknown_call(name: &str, machine: TargetArch) -> String {
    let near = did_you_mean(
        name,
        syscalls::NAMES.split_whitespace().filter(|known| is_near(name, known) && is_call(known, machine)),
    );
    let hint = match name.strip_prefix('@') {
        Some(_) => "; groups of systemd such as @system-service are unknown here: list the calls".to_owned(),
        None if near.is_empty() => format!("; syscalls(2) lists those of {}", std::env::consts::ARCH),
        None => near,
    };
    format!("no system call {name:?}{hint}")
}

/// Saves a compilation for each name that cannot be meant.
fn is_near(name: &str, known: &str) -> bool {
    name.len().abs_diff(known.len()) < 4
}

fn errors() -> impl Iterator<Item = String> {
    (1..134).map(|number| format!("{:?}", nix::errno::Errno::from_raw(number)))
}

/// The first instructions of a filter on x86-64. Without them, a denied system call would still work under its x32 ABI
/// number, which the filter of native numbers does not match: seccomp(2), "Caveats".
fn x32_refused(errno: i32) -> Vec<BpfInstruction> {
    const LOAD: u16 = 0x20;
    const JUMP_IF_AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    const RET_ERRNO: u32 = 0x5_0000;
    const X32_SYSCALL_BIT: u32 = 0x4000_0000;
    if cfg!(not(target_arch = "x86_64")) {
        return Vec::new();
    }
    [(LOAD, 0, 0), (JUMP_IF_AT_LEAST, 1, X32_SYSCALL_BIT), (RETURN, 0, RET_ERRNO | errno as u32)]
        .map(|(code, jf, k)| BpfInstruction { code, jt: 0, jf, k })
        .into()
}

/// An errno by name or number.
fn errno(name: &str) -> Option<i32> {
    let known = (1..134).find(|&number| format!("{:?}", nix::errno::Errno::from_raw(number)) == name);
    known.or_else(|| name.parse().ok().filter(|number| (1..4096).contains(number)))
}

impl FromStr for Denied {
    type Err = String;

    fn from_str(words: &str) -> Result<Self, String> {
        match words.split_once(':').unwrap_or((words, "")) {
            ("fs", kinds) => access(kinds).map(Self),
            (other, _) => Err(format!("cannot deny {other:?}: must be fs or fs:ACCESS,...")),
        }
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(words: &str) -> Result<Self, String> {
        let parts: Vec<_> = words.splitn(3, ':').collect();
        match parts[..] {
            ["path-beneath", kinds, path] if !path.is_empty() => Ok(Self { access: access(kinds)?, path: path.into() }),
            _ => Err("must be path-beneath:[ACCESS,...]:PATH".into()),
        }
    }
}

/// Kinds of access by name; an empty list means all.
fn access(names: &str) -> Result<BitFlags<AccessFs>, String> {
    if names.is_empty() {
        return Ok(AccessFs::from_all(RIGHTS));
    }
    let one = |name: &str| {
        let all = AccessFs::from_all(RIGHTS).iter();
        let found = all.into_iter().find(|one| words_of(*one) == name);
        found.ok_or_else(|| {
            format!("no kind of access {name:?}; use {}{}", kinds().join(", "), did_you_mean(name, kinds()))
        })
    };
    names.split(',').try_fold(BitFlags::empty(), |bits, name| Ok(bits | one(name)?))
}

fn kinds() -> Vec<String> {
    AccessFs::from_all(RIGHTS).iter().map(words_of).collect()
}

/// The name in setpriv(1): `read-file` for `ReadFile`.
fn words_of(one: AccessFs) -> String {
    let mut words = String::new();
    for letter in format!("{one:?}").chars() {
        if letter.is_ascii_uppercase() && !words.is_empty() {
            words.push('-');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_call_filter_accepts_names_and_an_error() {
        assert!(!"~ptrace,mount".parse::<SystemCalls>().unwrap().program.is_empty());
        assert!("read,write:ENOSYS".parse::<SystemCalls>().is_ok());
        assert!("~no_such_call".parse::<SystemCalls>().unwrap_err().contains("no_such_call"));
        let why = "~mount,ptrce".parse::<SystemCalls>().unwrap_err();
        assert_eq!(why, "no system call \"ptrce\"; did you mean \"ptrace\"?");
        assert!("~mount:EWHAT".parse::<SystemCalls>().unwrap_err().contains("EWHAT"));
        assert_eq!(errno("EACCES"), Some(13));
        assert_eq!(errno("38"), Some(38));
    }

    #[test]
    fn system_call_filter_without_a_name_is_an_error() {
        for words in ["", "~", "~,", "~ :EPERM", ",", ":38"] {
            assert!(words.parse::<SystemCalls>().is_err_and(|why| why.contains("no system call")), "{words:?}");
        }
    }

    /// The result of the BPF program for a system call number, the first field of `struct seccomp_data`.
    fn evaluate(program: &[BpfInstruction], number: u32, machine: u32) -> u32 {
        let (mut at, mut accumulator) = (0, 0);
        loop {
            let BpfInstruction { code, jt, jf, k } = program[at];
            let jump = |yes: bool| 1 + usize::from(if yes { jt } else { jf });
            at += match code {
                0x20 => {
                    accumulator = [number, machine][k as usize / 4];
                    1
                }
                0x05 => 1 + k as usize,
                0x15 => jump(accumulator == k),
                0x35 => jump(accumulator >= k),
                0x06 => return k,
                other => panic!("instruction {other:#x}"),
            };
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn system_call_filter_refuses_x32_numbers() {
        const X86_64: u32 = 0xc000_003e;
        const REFUSED: u32 = 0x5_0000 | libc::EXDEV as u32;
        const ALLOWED: u32 = 0x7fff_0000;
        let read = libc::SYS_read as u32;
        let mount = libc::SYS_mount as u32;
        for (words, others) in [("~mount:EXDEV", ALLOWED), ("read:EXDEV", REFUSED)] {
            let SystemCalls { program, .. } = words.parse().unwrap();
            assert_eq!(evaluate(&program, mount, X86_64), REFUSED, "{words}");
            assert_eq!(evaluate(&program, read, X86_64), ALLOWED, "{words}");
            assert_eq!(evaluate(&program, libc::SYS_umask as u32, X86_64), others, "{words}");
            for number in [mount, read, 512, 0x3fff_ffff] {
                assert_eq!(evaluate(&program, number | 0x4000_0000, X86_64), REFUSED, "{words} {number}");
            }
        }
    }

    #[test]
    fn access_that_the_kernel_cannot_deny_is_an_error_unless_best_effort() {
        let first = AccessFs::from_all(ABI::V1);
        let can = |one: AccessFs| first.contains(one);
        let all = AccessFs::from_all(RIGHTS);
        assert_eq!(deniable(first, can, false), Ok(first));
        let why = deniable(all, can, false).unwrap_err();
        assert!(why.ends_with("cannot deny refer, truncate, ioctl-dev"), "{why}");
        assert_eq!(deniable(all, can, true), Ok(first));
        let why = deniable(AccessFs::Refer.into(), can, false).unwrap_err();
        assert!(why.ends_with("cannot deny refer"), "{why}");
        assert_eq!(deniable(all, |_| false, false), Err(NO_LANDLOCK.into()));
        assert_eq!(deniable(all, |_| false, true), Ok(BitFlags::empty()));
    }

    #[test]
    fn landlock_rules_name_access_and_a_path() {
        let rule: Rule = "path-beneath:read-file,read-dir:/a:b".parse().unwrap();
        assert_eq!(rule.access, AccessFs::ReadFile | AccessFs::ReadDir);
        assert_eq!(rule.path, PathBuf::from("/a:b"));
        assert_eq!("fs".parse::<Denied>().unwrap().0, AccessFs::from_all(RIGHTS));
        assert!("fs:make-tea".parse::<Denied>().is_err() && "net".parse::<Denied>().is_err());
        for kind in AccessFs::from_all(RIGHTS).iter() {
            assert_eq!(access(&words_of(kind)), Ok(kind.into()));
        }
    }
}

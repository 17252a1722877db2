//! System calls and files that the program may use: filters that other libraries compile for us.

use std::{fmt::Display, os::fd::OwnedFd, path::PathBuf, str::FromStr};

use clap::Args;
use forkless::{BpfInstruction, Command};
use landlock::{
    ABI, Access, AccessFs, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError,
};
use seccompiler::{TargetArch, compile_from_json};

use super::super::Failure;

// No doc comment: clap would take it for the description of `forkless run`.
#[derive(Args, Debug)]
#[command(next_help_heading = "Filters")]
pub(crate) struct Filters {
    /// System calls that fail with EPERM or the error named: after ~ those listed, else all but those
    /// listed and what it takes to start and to end a program ([~]NAME,...[:ERROR])
    #[arg(long, value_name = "NAMES", conflicts_with = "seccomp")]
    system_call_filter: Option<SystemCalls>,

    /// Deny access to files, to be allowed again by rules: fs, or fs:ACCESS,... for some kinds of it
    #[arg(long, value_name = "ACCESS", conflicts_with = "landlock")]
    landlock_access: Option<Denied>,

    /// Allow access to what is below a path: path-beneath:ACCESS,...:PATH; without ACCESS all
    /// (execute, read-file, read-dir, write-file, truncate, remove-file, remove-dir, make-reg, make-dir,
    /// make-sym, make-sock, make-fifo, make-char, make-block, refer, ioctl-dev)
    #[arg(long, value_name = "RULE", requires = "landlock_access")]
    landlock_rule: Vec<Rule>,
}

/// Names, and the error of what is refused.
#[derive(Clone, Debug)]
struct SystemCalls(Vec<BpfInstruction>);

/// Kinds of access.
#[derive(Clone, Debug)]
struct Denied(BitFlags<AccessFs>);

#[derive(Clone, Debug)]
struct Rule {
    access: BitFlags<AccessFs>,
    path: PathBuf,
}

/// The newest set of rights known here; what an older kernel has not got it does not deny.
const RIGHTS: ABI = ABI::V6;

impl Filters {
    pub(crate) fn apply(&self, command: &mut Command) -> Result<(), Failure> {
        if let Some(SystemCalls(program)) = &self.system_call_filter {
            command.seccomp(program.iter().copied());
        }
        if let Some(Denied(access)) = &self.landlock_access {
            command.landlock(self.ruleset(*access)?);
        }
        Ok(())
    }

    fn ruleset(&self, denied: BitFlags<AccessFs>) -> Result<OwnedFd, Failure> {
        let failed = |error: &dyn Display| Failure::before(format_args!("--landlock-access: {error}"));
        let made = Ruleset::default().handle_access(denied).and_then(Ruleset::create);
        let mut ruleset = made.map_err(|error| failed(&error))?;
        for Rule { access, path } in &self.landlock_rule {
            let refused = |error: &dyn Display| Failure::before(format_args!("--landlock-rule: {path:?}: {error}"));
            let below = PathFd::new(path).map_err(|error| refused(&error))?;
            let rule = PathBeneath::new(below, *access & denied);
            ruleset = ruleset.add_rule(rule).map_err(|error: RulesetError| refused(&error))?;
        }
        let ruleset: Option<OwnedFd> = ruleset.into();
        ruleset.ok_or_else(|| failed(&"Landlock is not there, or not enabled, on this kernel"))
    }
}

impl FromStr for SystemCalls {
    type Err = String;

    fn from_str(words: &str) -> Result<Self, String> {
        /// To become the program, and to end.
        const NEEDED: [&str; 5] = ["execve", "execveat", "exit", "exit_group", "rt_sigreturn"];
        let (names, error) = words.rsplit_once(':').unwrap_or((words, "EPERM"));
        let errno = errno(error).ok_or_else(|| format!("there is no error {error:?}"))?;
        let denies = names.strip_prefix('~');
        let listed = denies.unwrap_or(names).split(',').map(str::trim).filter(|name| !name.is_empty());
        let needed = NEEDED.iter().copied().filter(|_| denies.is_none());
        let rules: Vec<_> = listed.chain(needed).map(|name| serde_json::json!({ "syscall": name })).collect();
        let refuse = serde_json::json!({ "errno": errno });
        let allow = serde_json::json!("allow");
        let (listed, others) = if denies.is_some() { (refuse, allow) } else { (allow, refuse) };
        let text = serde_json::json!({
            "program": { "default_action": others, "filter_action": listed, "filter": rules },
        });
        let machine = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| error.to_string())?;
        let mut programs =
            compile_from_json(text.to_string().as_bytes(), machine).map_err(|error| error.to_string())?;
        let program = programs.remove("program").unwrap_or_default();
        let instruction =
            |one: seccompiler::sock_filter| BpfInstruction { code: one.code, jt: one.jt, jf: one.jf, k: one.k };
        Ok(Self(program.into_iter().map(instruction).collect()))
    }
}

/// By its name or its number.
fn errno(name: &str) -> Option<i32> {
    let known = (1..134).find(|&number| format!("{:?}", nix::errno::Errno::from_raw(number)) == name);
    known.or_else(|| name.parse().ok().filter(|number| (1..4096).contains(number)))
}

impl FromStr for Denied {
    type Err = String;

    fn from_str(words: &str) -> Result<Self, String> {
        match words.split_once(':').unwrap_or((words, "")) {
            ("fs", kinds) => access(kinds).map(Self),
            (other, _) => Err(format!("{other:?} is not fs, which is all that can be denied")),
        }
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(words: &str) -> Result<Self, String> {
        let parts: Vec<_> = words.splitn(3, ':').collect();
        match parts[..] {
            ["path-beneath", kinds, path] if !path.is_empty() => Ok(Self { access: access(kinds)?, path: path.into() }),
            _ => Err("a rule is path-beneath:ACCESS,...:PATH".into()),
        }
    }
}

/// Kinds of access by name; all for none.
fn access(names: &str) -> Result<BitFlags<AccessFs>, String> {
    if names.is_empty() {
        return Ok(AccessFs::from_all(RIGHTS));
    }
    let one = |name: &str| {
        let all = AccessFs::from_all(RIGHTS).iter();
        let found = all.into_iter().find(|one| words_of(*one) == name);
        found.ok_or_else(|| format!("there is no access {name:?}"))
    };
    names.split(',').try_fold(BitFlags::empty(), |bits, name| Ok(bits | one(name)?))
}

/// What setpriv(1) calls it: `read-file` for `ReadFile`.
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
    fn filters_are_read() {
        assert!(!"~ptrace,mount".parse::<SystemCalls>().unwrap().0.is_empty());
        assert!("read,write:ENOSYS".parse::<SystemCalls>().is_ok());
        assert!("~no_such_call".parse::<SystemCalls>().unwrap_err().contains("no_such_call"));
        assert!("~mount:EWHAT".parse::<SystemCalls>().unwrap_err().contains("EWHAT"));
        assert_eq!(errno("EACCES"), Some(13));
        assert_eq!(errno("38"), Some(38));
    }

    #[test]
    fn rules_are_read() {
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

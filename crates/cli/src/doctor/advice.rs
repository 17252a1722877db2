//! Which method of launching suits a caller and its command, and why: a few questions in a fixed order.
//!
//! The questions, and where each answer leads, are data ([`Question::then`]), so that a chart can be drawn of them.

use std::{fs, io};

use forkless::Support;

/// A method of launching that advice can recommend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum AdvisedMethod {
    /// A child that shares the caller's memory until exec, as `Command` makes it.
    Clone,
    /// A small helper process that launches for the caller.
    Zygote,
    /// `posix_spawn(3)` of the C library.
    PosixSpawn,
    /// `fork(2)`, with all that it copies.
    Fork,
}

impl AdvisedMethod {
    /// The name, such as `PosixSpawn`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Clone => "Clone",
            Self::Zygote => "Zygote",
            Self::PosixSpawn => "PosixSpawn",
            Self::Fork => "Fork",
        }
    }

    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Clone => "a child that shares the caller's memory until exec",
            Self::Zygote => "a small helper process that launches for the caller",
            Self::PosixSpawn => "the C library's posix_spawn",
            Self::Fork => "fork, with a copy of the page tables",
        }
    }
}

/// A question that the choice of a method depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Question {
    /// Must code of the caller's run between the clone and the exec?
    Code,
    /// Does the caller have one thread, little memory and few open files?
    Small,
    /// Can a child share the caller's memory on this machine?
    Shared,
    /// Can `posix_spawn(3)` do everything that the command requests?
    Fits,
    /// Is a child allowed to share this caller's memory?
    Allowed,
}

/// Where an answer leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// To another question.
    Ask(Question),
    /// To a method.
    Take(AdvisedMethod),
}

impl Question {
    /// The first question.
    pub(crate) const FIRST: Self = Self::Code;

    pub(crate) const ALL: [Self; 5] = [Self::Code, Self::Small, Self::Shared, Self::Fits, Self::Allowed];

    /// A name that stays the same in all versions.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Code => "code",
            Self::Small => "small",
            Self::Shared => "shared-memory",
            Self::Fits => "posix-spawn",
            Self::Allowed => "may-share",
        }
    }

    /// The question in plain words.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Code => "Must your own code run before exec?",
            Self::Small => "Is the caller small, with one thread?",
            Self::Shared => "Can a child share memory on this machine?",
            Self::Fits => "Can posix_spawn apply all settings?",
            Self::Allowed => "May a child share the caller's memory?",
        }
    }

    /// Where the answer leads: to another question, or to a method.
    pub(crate) fn then(self, yes: bool) -> Next {
        match (self, yes) {
            (Self::Code, true) => Next::Ask(Self::Small),
            (Self::Code, false) => Next::Ask(Self::Shared),
            (Self::Small, true) => Next::Take(AdvisedMethod::Fork),
            (Self::Small, false) => Next::Take(AdvisedMethod::Zygote),
            (Self::Shared, true) => Next::Ask(Self::Allowed),
            (Self::Shared, false) => Next::Ask(Self::Fits),
            (Self::Fits, true) => Next::Take(AdvisedMethod::PosixSpawn),
            (Self::Fits, false) => Next::Take(AdvisedMethod::Fork),
            (Self::Allowed, true) => Next::Take(AdvisedMethod::Clone),
            (Self::Allowed, false) => Next::Take(AdvisedMethod::Zygote),
        }
    }
}

/// What the choice of a method depends on beside the command: the machine, the caller and its requirements.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Situation {
    /// What the kernel supports here.
    pub(crate) support: Support,
    /// The caller's threads.
    pub(crate) threads: u64,
    /// The caller's anonymous memory, in bytes: `fork` must copy or walk its page tables.
    pub(crate) memory: u64,
    /// The caller's open files.
    pub(crate) files: u64,
    /// Code of the caller's must run in the child, as with `pre_exec`.
    pub(crate) code: bool,
    /// A child is allowed to share the caller's memory until its exec.
    pub(crate) may_share: bool,
}

impl Situation {
    /// A caller with more memory, in bytes, is not small: its fork takes more than a millisecond.
    pub(crate) const SMALL_MEMORY: u64 = 32 << 20;
    /// A caller with more open files is not small: fork copies the file-descriptor table, and the child closes what it
    /// should not have.
    pub(crate) const SMALL_FILES: u64 = 1_000;

    /// A small caller, without code of its own to run in the child.
    pub(crate) fn small(support: Support) -> Self {
        Self { support, threads: 1, memory: 0, files: 3, code: false, may_share: true }
    }

    /// The calling process as it is now: `/proc/self`.
    ///
    /// # Errors
    /// As for [`Support::probe`], and when `/proc` cannot be read.
    pub(crate) fn of_caller() -> io::Result<Self> {
        let mut situation = Self::of("self")?;
        // The list contains the directory that is being read.
        situation.files = situation.files.saturating_sub(1);
        Ok(situation)
    }

    /// Another process on this machine as it is now, by its PID. Its open files count as three if they may not be listed.
    ///
    /// # Errors
    /// As for [`of_caller`](Self::of_caller); the process may not exist.
    pub(crate) fn of_process(pid: u32) -> io::Result<Self> {
        Self::of(&pid.to_string())
    }

    fn of(process: &str) -> io::Result<Self> {
        let support = Support::probe()?;
        let status = fs::read_to_string(format!("/proc/{process}/status"))?;
        let files = fs::read_dir(format!("/proc/{process}/fd")).map_or(3, |entries| entries.count() as u64);
        let number = |name: &str| {
            let rest = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            rest.split_whitespace().next()?.parse::<u64>().ok()
        };
        // Since Linux 4.5 anonymous memory is listed apart; fork must copy the page tables of that alone. Kernel
        // threads have none.
        let memory = number("RssAnon").or_else(|| number("VmRSS")).unwrap_or(0) << 10;
        Ok(Self { threads: number("Threads").unwrap_or(1), memory, files, ..Self::small(support) })
    }

    /// The method that suits this caller. `refusal`: why `posix_spawn` cannot apply all settings, if it cannot.
    pub(crate) fn advise(&self, refusal: Option<&str>) -> Advice {
        let mut path = Vec::new();
        let mut question = Question::FIRST;
        loop {
            let (yes, why) = self.judge(question, refusal);
            path.push(AnsweredQuestion { question, yes, why });
            match question.then(yes) {
                Next::Ask(next) => question = next,
                Next::Take(way) => return Advice { way, path },
            }
        }
    }

    fn judge(&self, question: Question, refusal: Option<&str>) -> (bool, String) {
        let answer = |yes: bool, why: &str| (yes, why.to_owned());
        match question {
            Question::Code if self.code => answer(true, "the caller has code that must run in the child"),
            Question::Code => answer(false, "the child only applies settings"),
            Question::Small => self.is_small(),
            Question::Shared if self.support.shared_memory => answer(true, "CLONE_VM shares memory here"),
            Question::Shared => answer(false, "CLONE_VM is refused or shares no memory here"),
            Question::Fits => match refusal {
                None => answer(true, "posix_spawn has all settings in use"),
                Some(why) => answer(false, why),
            },
            Question::Allowed if self.may_share => answer(true, "allowed by default (--no-shared-memory forbids it)"),
            Question::Allowed => answer(false, "the caller forbids it"),
        }
    }

    fn is_small(&self) -> (bool, String) {
        let mut large = Vec::new();
        if self.threads > 1 {
            // A lock that another thread holds during the fork, such as the allocator's, stays locked in the child.
            large.push(format!("{} threads, whose locks would stay locked in a forked child", self.threads));
        }
        if self.memory > Self::SMALL_MEMORY {
            large.push(format!("{} MiB of memory", self.memory >> 20));
        }
        if self.files > Self::SMALL_FILES {
            large.push(format!("{} open files", self.files));
        }
        if large.is_empty() {
            let mib = self.memory.div_ceil(1 << 20);
            return (true, format!("one thread, {mib} MiB of memory, {} open files", self.files));
        }
        (false, large.join("; "))
    }
}

/// One question with its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AnsweredQuestion {
    pub(crate) question: Question,
    pub(crate) yes: bool,
    pub(crate) why: String,
}

/// A method, and the answers that led to it: from [`Situation::advise`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Advice {
    /// The recommended method.
    pub(crate) way: AdvisedMethod,
    /// The questions that led there, in their order.
    pub(crate) path: Vec<AnsweredQuestion>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_situation_has_its_way() {
        let small = Situation::small(Support::ALL);
        let emulated = Situation::small(Support::NONE);
        let large = Situation { threads: 1, memory: 1 << 30, files: 15_000, ..small.clone() };
        let code = |of: &Situation| Situation { code: true, ..of.clone() };
        let mut narrow = Support::NONE;
        narrow.shared_memory = true;
        let table = [
            (small.clone(), AdvisedMethod::Clone),
            (large.clone(), AdvisedMethod::Clone),
            (Situation { threads: 64, ..large.clone() }, AdvisedMethod::Clone),
            (Situation { may_share: false, ..small.clone() }, AdvisedMethod::Zygote),
            (code(&small), AdvisedMethod::Fork),
            (code(&Situation { threads: 2, ..small.clone() }), AdvisedMethod::Zygote),
            (code(&Situation { memory: Situation::SMALL_MEMORY, ..small.clone() }), AdvisedMethod::Fork),
            (code(&Situation { memory: Situation::SMALL_MEMORY + 1, ..small.clone() }), AdvisedMethod::Zygote),
            (code(&Situation { files: Situation::SMALL_FILES + 1, ..small.clone() }), AdvisedMethod::Zygote),
            (code(&emulated), AdvisedMethod::Fork),
            (emulated.clone(), AdvisedMethod::PosixSpawn),
            // What is refused beside CLONE_VM costs something and changes nothing.
            (Situation::small(narrow), AdvisedMethod::Clone),
        ];
        for (situation, wanted) in table {
            assert_eq!(situation.advise(None).way, wanted, "{situation:?}");
        }
        assert_eq!(emulated.advise(Some("posix_spawn does not support rlimit")).way, AdvisedMethod::Fork);
        assert_eq!(small.advise(Some("posix_spawn does not support rlimit")).way, AdvisedMethod::Clone);
    }

    #[test]
    fn a_process_is_read() {
        let mut child = forkless::Command::new("sleep").arg("60").kill_on_drop(true).spawn().expect("sleep");
        let other = Situation::of_process(child.id()).expect("it is there");
        assert_eq!((other.threads, other.code, other.may_share), (1, false, true));
        assert!(other.memory < Situation::SMALL_MEMORY, "{other:?}");
        child.kill().expect("ours");
        child.wait().expect("ours");
        assert!(Situation::of_process(child.id()).is_err());
        let held: Vec<_> = (0..50).map(|_| fs::File::open("/dev/null").expect("there")).collect();
        let here = Situation::of_caller().expect("it is there");
        assert!(here.files >= held.len() as u64 && here.memory > 0, "{here:?}");
    }
}

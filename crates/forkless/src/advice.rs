//! Which method of launching suits a caller and its command, and why: a few questions in a fixed order.
//!
//! The questions, and where each answer leads, are data ([`Question::then`]), so that a chart can be drawn of them.

use crate::launch::support::Support;
use crate::plan::posix_spawn::{self, Extensions};
use crate::prepared::Prepared;
use crate::procfs::{self, Process};
use crate::route::Launcher;
use std::fmt;
use std::fs;
use std::io;

/// A method of launching that advice can recommend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Way {
    /// A child that shares the caller's memory until exec, as [`Command`](crate::Command) makes it.
    Clone,
    /// A small helper process that launches for the caller.
    Zygote,
    /// `posix_spawn(3)` of the C library.
    PosixSpawn,
    /// `fork(2)`, with all that it copies.
    Fork,
}

impl Way {
    /// All methods.
    pub const ALL: [Self; 4] = [Self::Clone, Self::Zygote, Self::PosixSpawn, Self::Fork];

    /// The name, such as `PosixSpawn`.
    ///
    /// ```
    /// assert_eq!(forkless::Way::PosixSpawn.name(), "PosixSpawn");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Self::Clone => "Clone",
            Self::Zygote => "Zygote",
            Self::PosixSpawn => "PosixSpawn",
            Self::Fork => "Fork",
        }
    }

    /// A short description.
    ///
    /// ```
    /// println!("fork is {}", forkless::Way::Fork.words());
    /// ```
    pub fn words(self) -> &'static str {
        match self {
            Self::Clone => "a child that shares the caller's memory until exec",
            Self::Zygote => "a small helper process that launches for the caller",
            Self::PosixSpawn => "the C library's posix_spawn",
            Self::Fork => "fork, with a copy of the page tables",
        }
    }

    /// What [`Command::launcher`](crate::Command::launcher) takes for this method; `None` for a
    /// [`Zygote`](crate::zygote::Zygote), which launches what it is given.
    ///
    /// ```
    /// let way = forkless::Situation::of_caller()?.advise(None).way;
    /// println!("{:?} is launched by {:?}", way, way.launcher());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn launcher(self) -> Option<Launcher> {
        match self {
            Self::Clone => Some(Launcher::Clone),
            Self::Zygote => None,
            Self::PosixSpawn => Some(Launcher::PosixSpawn),
            Self::Fork => Some(Launcher::Fork),
        }
    }
}

/// A question that the choice of a method depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Question {
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
#[non_exhaustive]
pub enum Next {
    /// To another question.
    Ask(Question),
    /// To a method.
    Take(Way),
}

impl Question {
    /// The first question.
    pub const FIRST: Self = Self::Code;

    /// All questions.
    pub const ALL: [Self; 5] = [Self::Code, Self::Small, Self::Shared, Self::Fits, Self::Allowed];

    /// A name that stays the same in all versions.
    ///
    /// ```
    /// assert_eq!(forkless::Question::Code.name(), "code");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Self::Code => "code",
            Self::Small => "small",
            Self::Shared => "shared-memory",
            Self::Fits => "posix-spawn",
            Self::Allowed => "may-share",
        }
    }

    /// The question in plain words.
    ///
    /// ```
    /// assert!(forkless::Question::FIRST.words().ends_with('?'));
    /// ```
    pub fn words(self) -> &'static str {
        match self {
            Self::Code => "Must your own code run before exec?",
            Self::Small => "Is the caller small, with one thread?",
            Self::Shared => "Can a child share memory on this machine?",
            Self::Fits => "Can posix_spawn apply all settings?",
            Self::Allowed => "May a child share the caller's memory?",
        }
    }

    /// Where the answer leads: to another question, or to a method.
    ///
    /// ```
    /// use forkless::{Next, Question, Way};
    /// assert_eq!(Question::Code.then(false), Next::Ask(Question::Shared));
    /// assert_eq!(Question::Allowed.then(true), Next::Take(Way::Clone));
    /// ```
    pub fn then(self, yes: bool) -> Next {
        match (self, yes) {
            (Self::Code, true) => Next::Ask(Self::Small),
            (Self::Code, false) => Next::Ask(Self::Shared),
            (Self::Small, true) => Next::Take(Way::Fork),
            (Self::Small, false) => Next::Take(Way::Zygote),
            (Self::Shared, true) => Next::Ask(Self::Allowed),
            (Self::Shared, false) => Next::Ask(Self::Fits),
            (Self::Fits, true) => Next::Take(Way::PosixSpawn),
            (Self::Fits, false) => Next::Take(Way::Fork),
            (Self::Allowed, true) => Next::Take(Way::Clone),
            (Self::Allowed, false) => Next::Take(Way::Zygote),
        }
    }
}

/// What the choice of a method depends on beside the command: the machine, the process that launches, and its
/// requirements.
///
/// ```
/// use forkless::{Command, Situation, Way};
///
/// let mut situation = Situation::of_caller()?;
/// let command = Command::new("true").prepare()?;
/// # situation.support = forkless::Support::ALL;
/// assert_eq!(situation.advise(Some(&command)).way, Way::Clone);
///
/// // Code that must run between fork and exec, in a large program with threads.
/// situation.code = true;
/// (situation.threads, situation.memory) = (8, 4 << 30);
/// let advice = situation.advise(Some(&command));
/// assert_eq!(advice.way, Way::Zygote);
/// assert!(advice.to_string().contains("8 threads"));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Situation {
    /// What the kernel supports here.
    pub support: Support,
    /// The caller's threads.
    pub threads: u64,
    /// The caller's anonymous memory, in bytes: `fork` must copy or walk its page tables.
    pub memory: u64,
    /// The caller's open files.
    pub files: u64,
    /// Code of the caller's must run in the child, as with `pre_exec`.
    pub code: bool,
    /// A child is allowed to share the caller's memory until its exec.
    pub may_share: bool,
}

impl Situation {
    /// A caller with more memory, in bytes, is not small: its fork takes more than a millisecond.
    pub const SMALL_MEMORY: u64 = 32 << 20;
    /// A caller with more open files is not small: fork copies the file-descriptor table, and the child closes what it
    /// should not have.
    pub const SMALL_FILES: u64 = 1_000;

    /// A small caller, without code of its own to run in the child.
    ///
    /// ```
    /// use forkless::{Situation, Support, Way};
    /// assert_eq!(Situation::small(Support::ALL).advise(None).way, Way::Clone);
    /// assert_eq!(Situation::small(Support::NONE).advise(None).way, Way::PosixSpawn);
    /// ```
    pub fn small(support: Support) -> Self {
        Self { support, threads: 1, memory: 0, files: 3, code: false, may_share: true }
    }

    /// The calling process as it is now: `/proc/self`.
    ///
    /// ```
    /// let situation = forkless::Situation::of_caller()?;
    /// println!("{} threads, {} open files", situation.threads, situation.files);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Support::probe`], and when `/proc` cannot be read.
    pub fn of_caller() -> io::Result<Self> {
        let files = fs::read_dir(procfs::own("fd")).map_or(4, |entries| entries.count() as u64);
        // The list contains the directory that is being read.
        Self::of(&fs::read_to_string(procfs::own("status"))?, files.saturating_sub(1))
    }

    /// Another process on this machine as it is now, by its PID: `/proc/PID`.
    ///
    /// ```
    /// let mut child = forkless::Command::new("sleep").arg("60").spawn()?;
    /// let situation = forkless::Situation::of_process(child.id())?;
    /// assert_eq!(situation.threads, 1);
    /// # child.kill()?;
    /// # child.wait()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`of_caller`](Self::of_caller); the process may not exist, and the `/proc` that is mounted may be that of another PID
    /// namespace. Its open files count as three if the caller
    /// may not see them (`PermissionDenied` from `/proc/PID/fd`).
    pub fn of_process(pid: u32) -> io::Result<Self> {
        let process = Process::open(pid as i32)?;
        let status = String::from_utf8_lossy(&process.read("status")?).into_owned();
        Self::of(&status, process.count_descriptors().map_or(3, |files| files as u64))
    }

    fn of(status: &str, files: u64) -> io::Result<Self> {
        let support = Support::probe()?;
        let number = |name: &str| {
            let rest = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            rest.split_whitespace().next()?.parse::<u64>().ok()
        };
        // Since Linux 4.5 anonymous memory is listed apart; fork must copy the page tables of that alone. Kernel
        // threads have none.
        let memory = number("RssAnon").or_else(|| number("VmRSS")).unwrap_or(0) << 10;
        Ok(Self { threads: number("Threads").unwrap_or(1), memory, files, ..Self::small(support) })
    }

    /// The method that suits this command; without a command, any command with no unusual settings.
    ///
    /// ```
    /// let prepared = forkless::Command::new("true").prepare()?;
    /// let advice = forkless::Situation::of_caller()?.advise(Some(&prepared));
    /// println!("{advice}"); // the method and the reason
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn advise(&self, command: Option<&Prepared>) -> Advice {
        let mut path = Vec::new();
        let mut question = Question::FIRST;
        loop {
            let (yes, why) = self.answer(question, command);
            path.push(Answer { question, yes, why });
            match question.then(yes) {
                Next::Ask(next) => question = next,
                Next::Take(way) => return Advice { way, path },
            }
        }
    }

    fn answer(&self, question: Question, command: Option<&Prepared>) -> (bool, String) {
        let answer = |yes: bool, why: &str| (yes, why.to_owned());
        match question {
            Question::Code if self.code => answer(true, "the caller has code that must run in the child"),
            Question::Code => answer(false, "the child only applies settings"),
            Question::Small => self.is_small(),
            Question::Shared if self.support.shared_memory => answer(true, "CLONE_VM shares memory here"),
            Question::Shared => answer(false, "CLONE_VM is refused or shares no memory here"),
            Question::Fits => {
                match command.and_then(|command| posix_spawn::refusal(command.plan(), Extensions::get())) {
                    None => answer(true, "posix_spawn has all settings in use"),
                    // Without the launchers that can.
                    Some(why) => (false, why.rsplit_once(": ").map_or(why.as_str(), |(what, _)| what).to_owned()),
                }
            }
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
#[non_exhaustive]
pub struct Answer {
    /// The question.
    pub question: Question,
    /// The answer.
    pub yes: bool,
    /// The reason for the answer.
    pub why: String,
}

/// A method, and the answers that led to it: from [`Situation::advise`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Advice {
    /// The recommended method.
    pub way: Way,
    /// The questions that led there, in their order.
    pub path: Vec<Answer>,
}

/// "Clone: a child that …. All that …; CLONE_VM …."
impl fmt::Display for Advice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}, because ", self.way.name(), self.way.words())?;
        for (index, answer) in self.path.iter().enumerate() {
            let join = if index > 0 { "; " } else { "" };
            write!(out, "{join}{}", answer.why)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Command, Namespace, Resource};

    fn way(situation: &Situation, command: &mut Command) -> Way {
        let prepared = command.prepare().unwrap();
        situation.advise(Some(&prepared)).way
    }

    /// A static program, as programs with musl are, cannot look up the function that closes descriptors for posix_spawn.
    const PLAIN_WITHOUT_CLONE: Way = if cfg!(target_feature = "crt-static") { Way::Fork } else { Way::PosixSpawn };

    /// Situations and what suits them, one line each.
    #[test]
    fn each_situation_has_its_way() {
        let small = Situation::small(Support::ALL);
        let emulated = Situation::small(Support::NONE);
        let large = Situation { threads: 1, memory: 1 << 30, files: 15_000, ..small.clone() };
        let code = |of: &Situation| Situation { code: true, ..of.clone() };
        let table = [
            (small.clone(), Way::Clone),
            (large.clone(), Way::Clone),
            (Situation { threads: 64, ..large.clone() }, Way::Clone),
            (Situation { support: Support { clone3: false, ..Support::ALL }, ..small.clone() }, Way::Clone),
            (Situation { may_share: false, ..small.clone() }, Way::Zygote),
            (code(&small), Way::Fork),
            (code(&Situation { threads: 2, ..small.clone() }), Way::Zygote),
            (code(&Situation { memory: Situation::SMALL_MEMORY, ..small.clone() }), Way::Fork),
            (code(&Situation { memory: Situation::SMALL_MEMORY + 1, ..small.clone() }), Way::Zygote),
            (code(&Situation { files: Situation::SMALL_FILES + 1, ..small.clone() }), Way::Zygote),
            (code(&emulated), Way::Fork),
            (emulated.clone(), Way::PosixSpawn),
            // What is refused beside CLONE_VM costs something and changes nothing.
            (Situation::small(Support { shared_memory: true, ..Support::NONE }), Way::Clone),
        ];
        for (situation, wanted) in table {
            assert_eq!(situation.advise(None).way, wanted, "{situation:?}");
            let wanted = if wanted == Way::PosixSpawn { PLAIN_WITHOUT_CLONE } else { wanted };
            assert_eq!(way(&situation, &mut Command::new("true")), wanted, "{situation:?}");
        }
    }

    /// The command counts where there is no sharing of memory, and nowhere else.
    #[test]
    #[cfg_attr(target_feature = "crt-static", ignore = "a static program cannot look up functions of libc")]
    fn what_posix_spawn_has_not_got_needs_a_fork() {
        let (small, emulated) = (Situation::small(Support::ALL), Situation::small(Support::NONE));
        type Ask = fn(&mut Command);
        let fitting: [Ask; 4] = [
            |command| _ = command.current_dir("/"),
            |command| _ = command.process_group(0),
            |command| _ = command.setsid(true),
            |command| _ = command.stdin(crate::Stdio::piped()),
        ];
        let unfit: [(Ask, &str); 4] = [
            (|command| _ = command.rlimit(Resource::Core, 0, 0), "rlimit"),
            (|command| _ = command.no_new_privs(true), "no_new_privs"),
            (|command| _ = command.unshare(Namespace::User), "unshare"),
            (|command| _ = command.signal_ignore(10), "signal_ignore"),
        ];
        for ask in fitting {
            let mut command = Command::new("true");
            ask(&mut command);
            assert_eq!(way(&emulated, &mut command), Way::PosixSpawn, "{command:?}");
        }
        for (ask, what) in unfit {
            let mut command = Command::new("true");
            ask(&mut command);
            assert_eq!(way(&small, &mut command), Way::Clone, "{command:?}");
            let advice = emulated.advise(Some(&command.prepare().unwrap()));
            assert_eq!(advice.way, Way::Fork, "{command:?}");
            assert!(advice.to_string().ends_with(&format!("posix_spawn cannot do {what}")), "{advice}");
        }
    }

    /// Each question is asked of somebody, each way is somebody's, and no answer leads in a circle.
    #[test]
    fn the_questions_are_a_tree() {
        fn walk(question: Question, questions: &mut Vec<Question>, ways: &mut Vec<Way>) {
            assert!(!questions.contains(&question), "{question:?} is come to twice");
            questions.push(question);
            for yes in [true, false] {
                match question.then(yes) {
                    Next::Ask(next) => walk(next, questions, ways),
                    Next::Take(way) => ways.push(way),
                }
            }
        }
        let (mut questions, mut ways) = (Vec::new(), Vec::new());
        walk(Question::FIRST, &mut questions, &mut ways);
        assert!(Question::ALL.iter().all(|question| questions.contains(question)));
        assert!(Way::ALL.iter().all(|way| ways.contains(way)));
        assert_eq!((Way::Clone.launcher(), Way::Zygote.launcher()), (Some(Launcher::Clone), None));
    }

    #[test]
    fn a_process_is_read() {
        let mut child = Command::new("sleep").arg("60").kill_on_drop(true).spawn().unwrap();
        let other = Situation::of_process(child.id()).unwrap();
        assert_eq!((other.threads, other.code, other.may_share), (1, false, true));
        assert!(other.memory < Situation::SMALL_MEMORY, "{other:?}");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(Situation::of_process(child.id()).is_err());

        let held: Vec<_> = (0..50).map(|_| fs::File::open("/dev/null").unwrap()).collect();
        let here = std::thread::spawn(Situation::of_caller).join().unwrap().unwrap();
        assert!(here.threads > 1 && here.files >= held.len() as u64, "{here:?}");
        assert!(here.memory > 0);
    }
}

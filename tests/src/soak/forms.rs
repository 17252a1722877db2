//! One launch in one of the forms, and checks of all its results.

use crate::observe::{self, Dice};
use crate::programs::{CODES, Places};
use forkless::{Capture, Command, Error, Launcher, Pipeline, Prepared, Stdio, Step, WaitSet, zygote::Zygote};
use forkless_tests::process::has_no_closefrom;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Output};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The counters of all threads, and the errors that they found.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) launches: AtomicU64,
    /// Statuses that a foreign reaper took, as documented for a child without a pidfd.
    pub(crate) lost: AtomicU64,
    /// Launches that a filter of the thread's own refused, after `launch` had returned.
    pub(crate) refused: AtomicU64,
    pub(crate) wrong: AtomicU64,
    pub(crate) by_form: [AtomicU64; FORMS.len()],
    first: Mutex<Vec<String>>,
}

/// How many wrong answers are kept in words.
const KEPT: usize = 20;

impl Tally {
    pub(crate) fn made(&self) -> u64 {
        self.launches.load(Relaxed) + self.wrong.load(Relaxed)
    }

    pub(crate) fn wrong(&self, what: String) {
        self.wrong.fetch_add(1, Relaxed);
        let mut first = self.first.lock().expect("no thread panics with it");
        if first.len() < KEPT {
            println!("WRONG: {what}");
            first.push(what);
        }
    }
}

/// The disturbances around the launches of a thread.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Around {
    /// `waitpid(-1)` in other threads.
    pub(crate) reapers: bool,
    /// This thread's calls are filtered: see [`crate::host`].
    pub(crate) filtered: bool,
}

/// The objects that all threads use.
pub(crate) struct Fixtures {
    pub(crate) places: Places,
    pub(crate) tally: Arc<Tally>,
    pub(crate) zygote: Zygote,
    /// One for each exit code.
    pub(crate) prepared: Vec<Prepared>,
    /// The same with a pidfd.
    pub(crate) watched: Vec<Prepared>,
    /// Exits with [`ECHOED`]'s length.
    pub(crate) echo: Prepared,
    /// The negative control: the exit code 7 is taken for wrong.
    pub(crate) control: bool,
}

/// The output of the prepared echo.
pub(crate) const ECHOED: &str = "prepared once, run often";

impl Fixtures {
    pub(crate) fn new(tally: &Arc<Tally>, control: bool) -> io::Result<Self> {
        let places = Places::new();
        let prepare = |pidfd: bool| -> io::Result<Vec<Prepared>> {
            (0..CODES)
                .map(|code| {
                    let mut command = Command::new(places.exits(code));
                    if pidfd {
                        command.pidfd(true);
                    }
                    command.prepare()
                })
                .collect()
        };
        let (prepared, watched) = (prepare(false)?, prepare(true)?);
        let echo = Command::new(&places.echo).arg(ECHOED).prepare()?;
        let zygote = Zygote::start(&forkless::zygote::ZygoteOptions::new())?;
        Ok(Self { places, tally: Arc::clone(tally), zygote, prepared, watched, echo, control })
    }
}

/// A form: its name, of how many in a thousand it is, and the launches.
type Form = (&'static str, u64, fn(&mut Worker<'_>));

/// Forms that copy the memory, or start a shell, are rare: they would be most of the time.
pub(crate) const FORMS: [Form; 18] = [
    ("status", 150, |worker| worker.status()),
    ("spawn", 150, |worker| worker.spawn()),
    ("launch", 150, |worker| worker.launch()),
    ("output", 80, |worker| worker.output()),
    ("prepared", 140, |worker| worker.prepared()),
    ("zygote", 40, |worker| worker.zygote()),
    ("zygote, output", 10, |worker| worker.zygote_output()),
    ("fork", 10, |worker| worker.fork()),
    ("posix_spawn", 30, |worker| worker.posix_spawn()),
    ("wait set", 40, |worker| worker.wait_set()),
    ("line", 15, |worker| worker.line()),
    ("line by sh", 1, |worker| worker.line_by_shell()),
    ("pipeline", 10, |worker| worker.pipeline()),
    ("capture", 10, |worker| worker.capture()),
    ("many at once", 10, |worker| worker.many()),
    ("failed", 70, |worker| worker.failed()),
    ("dropped", 60, |worker| worker.dropped()),
    ("killed", 24, |worker| worker.killed()),
];

/// One thread's.
pub(crate) struct Worker<'a> {
    pub(crate) shared: &'a Fixtures,
    pub(crate) dice: Dice,
    pub(crate) around: Around,
    /// The form that is being tried, for what is wrong.
    form: usize,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(shared: &'a Fixtures, seed: u64, around: Around) -> Self {
        Self { shared, dice: Dice::new(seed), around, form: 0 }
    }

    /// One of the forms.
    pub(crate) fn step(&mut self) {
        let mut at = self.dice.below(FORMS.iter().map(|form| form.1).sum());
        let is_it = |form: &Form| {
            let is_it = at < form.1;
            at = at.wrapping_sub(form.1);
            is_it
        };
        self.form = FORMS.iter().position(is_it).expect("the dice are below the sum");
        FORMS[self.form].2(self);
    }

    fn count(&self, launches: u64) {
        self.shared.tally.launches.fetch_add(launches, Relaxed);
        self.shared.tally.by_form[self.form].fetch_add(launches, Relaxed);
    }

    fn wrong(&self, what: String) {
        self.shared.tally.wrong(format!("{}, {:?}: {what}", FORMS[self.form].0, self.around));
    }

    fn code(&mut self) -> u64 {
        self.dice.below(CODES)
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.dice.below(count) == 0
    }

    fn text(&mut self) -> String {
        let most = if self.one_in(8) { 3000 } else { 60 };
        let (length, first) = (self.dice.below(most), self.dice.below(26));
        (0..length).map(|n| char::from(b'a' + ((n * 7 + first) % 26) as u8)).collect()
    }

    /// The exit code must be this one. A status may be lost where others reap and there is no pidfd.
    fn expect_code(&self, answer: io::Result<ExitStatus>, code: u64, has_pidfd: bool) {
        let code = if self.shared.control && code == 7 { 8 } else { code };
        match answer {
            Ok(status) if status.code() == Some(code as i32) => self.count(1),
            Err(error) if self.is_lost(&error, has_pidfd) => {
                self.count(1);
                self.shared.tally.lost.fetch_add(1, Relaxed);
            }
            Err(error) if self.is_refused(&error) => {
                self.count(1);
                self.shared.tally.refused.fetch_add(1, Relaxed);
            }
            Ok(status) => self.wrong(format!("{status:?}, not code {code}")),
            Err(error) => self.wrong(format!("{error}, not code {code}")),
        }
    }

    /// A status that another part of the program may take, as documented: from Linux 6.15 on none that has a pidfd.
    fn is_lost(&self, error: &io::Error, has_pidfd: bool) -> bool {
        let why = Error::of(error).map(|error| (error.step(), error.errno()));
        let is_safe = has_pidfd && observe::is_kernel_at_least(6, 15);
        self.around.reapers && !is_safe && why == Some((Step::Wait, Some(libc::ECHILD)))
    }

    /// Threads with filters of their own go on learning from each other what is there. `launch` may have returned by the time that a
    /// child of it learns better: then that one launch fails, with what was refused.
    fn is_refused(&self, error: &io::Error) -> bool {
        let why = Error::of(error).map(|error| (error.step(), error.errno()));
        self.around.filtered && matches!(why, Some((Step::Table | Step::PassFd, Some(libc::ENOSYS | libc::EPERM))))
    }

    fn expect_output(&self, answer: io::Result<Output>, text: &str, has_pidfd: bool) {
        let is_wrong = |output: &&Output| output.stdout != text.as_bytes() || !output.stderr.is_empty();
        if let Some(output) = answer.as_ref().ok().filter(is_wrong) {
            let found = String::from_utf8_lossy(&output.stdout);
            return self.wrong(format!("output {found:?} {:?}, not {text:?}", output.stderr));
        }
        self.expect_code(answer.map(|output| output.status), text.len() as u64 & 63, has_pidfd);
    }

    fn expect_failure(&self, answer: io::Result<ExitStatus>, step: Step, errno: i32) {
        match answer {
            Err(error) if Error::of(&error).is_some_and(|e| e.step() == step && e.errno() == Some(errno)) => {
                self.count(1);
            }
            other => self.wrong(format!("{other:?}, not a failure of {step:?} with errno {errno}")),
        }
    }

    /// Settings that change nothing in what is checked. Says whether there is a pidfd for sure.
    fn decorate(&mut self, command: &mut Command) -> bool {
        match self.dice.below(24) {
            0 => drop(command.process_group(0)),
            1 if !self.around.filtered => drop(command.setsid(true)),
            2 => drop(command.current_dir("/")),
            3 => drop(command.umask(0o27)),
            4 => drop(command.signal_block(libc::SIGUSR2).signal_ignore(libc::SIGHUP)),
            5 => drop(command.env("SOAK", "x".repeat(self.dice.below(300) as usize))),
            6 => drop(command.env_clear()),
            7 => drop(command.stdin(Stdio::null())),
            8 => drop(command.stdin(Stdio::piped())),
            9 => drop(command.fd(Stdio::socketpair(), 5)),
            10 => drop(command.arg0("another")),
            11 => drop(command.inherit_signal_mask(false)),
            12 => drop(command.rlimit(forkless::Resource::Core, 0, 0)),
            13 => drop(command.no_new_privs(true)),
            14 => drop(command.stdin(Stdio::open("/dev/null", libc::O_RDONLY, 0))),
            _ => {}
        }
        let pidfd = self.dice.below(3);
        if pidfd < 2 {
            command.pidfd(pidfd == 1);
        }
        pidfd == 1
    }

    fn exits(&mut self) -> (Command, u64, bool) {
        let code = self.code();
        let mut command = Command::new(self.shared.places.exits(code));
        let has_pidfd = self.decorate(&mut command);
        (command, code, has_pidfd)
    }

    /// One that ends when something comes in, or nothing can any more.
    fn waits(&mut self) -> (Command, u64) {
        let text = self.text();
        let mut command = Command::new(&self.shared.places.echo);
        command.args([&text, "wait"]).stdin(Stdio::piped()).stdout(Stdio::null()).pidfd(true);
        (command, text.len() as u64 & 63)
    }

    fn status(&mut self) {
        let (mut command, code, has_pidfd) = self.exits();
        self.expect_code(command.status(), code, has_pidfd);
    }

    fn spawn(&mut self) {
        let (mut command, code, has_pidfd) = self.exits();
        let answer = command.spawn().and_then(|mut child| {
            drop(command);
            child.wait()
        });
        self.expect_code(answer, code, has_pidfd);
    }

    fn launch(&mut self) {
        let (mut command, code, has_pidfd) = self.exits();
        let how = self.dice.below(4);
        let answer = command.launch().and_then(|mut child| {
            drop(command);
            match how {
                0 => child.wait(),
                1 => child.wait_exec().and_then(|()| child.wait()),
                2 => loop {
                    if let Some(status) = child.try_wait()? {
                        break Ok(status);
                    }
                    std::thread::yield_now();
                },
                _ => loop {
                    if let Some(status) = child.wait_timeout(Duration::from_millis(50))? {
                        break Ok(status);
                    }
                },
            }
        });
        self.expect_code(answer, code, has_pidfd);
    }

    fn output(&mut self) {
        let text = self.text();
        let mut command = Command::new(&self.shared.places.echo);
        let has_pidfd = self.decorate(command.arg(&text));
        self.expect_output(command.output(), &text, has_pidfd);
    }

    fn one_prepared(&mut self) -> (&'a Prepared, u64, bool) {
        let (code, watched) = (self.code(), self.one_in(2));
        let shared: &'a Fixtures = self.shared;
        (&(if watched { &shared.watched } else { &shared.prepared })[code as usize], code, watched)
    }

    fn prepared(&mut self) {
        let (one, code, watched) = self.one_prepared();
        let answer = match self.dice.below(4) {
            0 => one.status(),
            1 => one.spawn().and_then(|mut child| child.wait()),
            2 => one.launch().and_then(|mut child| child.wait()),
            _ => return self.expect_output(self.shared.echo.output(), ECHOED, false),
        };
        self.expect_code(answer, code, watched);
    }

    fn zygote(&mut self) {
        if self.around.filtered {
            return self.prepared();
        }
        let (one, code, watched) = self.one_prepared();
        let answer = match self.dice.below(3) {
            0 => self.shared.zygote.status(one),
            1 => self.shared.zygote.spawn(one).and_then(|mut child| child.wait()),
            _ => self.shared.zygote.launch(one).and_then(|mut child| child.wait()),
        };
        // Its pidfd is opened when the child may already have been reaped by another.
        self.expect_code(answer, code, watched && !self.around.reapers);
    }

    fn zygote_output(&mut self) {
        if self.around.filtered {
            return self.prepared();
        }
        self.expect_output(self.shared.zygote.output(&self.shared.echo), ECHOED, false);
    }

    fn fork(&mut self) {
        let (mut command, code, has_pidfd) = self.exits();
        command.launcher(Launcher::Fork);
        let answer =
            if self.one_in(2) { command.status() } else { command.launch().and_then(|mut child| child.wait()) };
        self.expect_code(answer, code, has_pidfd);
    }

    /// Without [settings](Self::decorate): it refuses most of them by name. libc has no way round a filter.
    fn posix_spawn(&mut self) {
        if self.around.filtered {
            return self.prepared();
        }
        let code = self.code();
        let mut command = Command::new(self.shared.places.exits(code));
        command.launcher(Launcher::PosixSpawn).inherit_all(has_no_closefrom());
        let answer = if self.one_in(2) { command.status() } else { command.spawn().and_then(|mut child| child.wait()) };
        self.expect_code(answer, code, false);
    }

    fn wait_set(&mut self) {
        let count = 1 + self.dice.below(8);
        let mut set = match WaitSet::new() {
            Ok(set) => set,
            Err(error) => return self.wrong(format!("a set: {error}")),
        };
        for _ in 0..count {
            let code = self.code();
            match self.shared.watched[code as usize].launch().map(|child| set.insert(child, code)) {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => self.wrong(format!("not inserted: {}", error.error)),
                Err(error) => self.wrong(error.to_string()),
            }
        }
        // Sometimes the set goes with children in it.
        let waits = if self.one_in(10) { self.dice.below(count) } else { count };
        for _ in 0..waits {
            match set.wait() {
                Ok(Some(ended)) => self.expect_code(ended.status, ended.value, true),
                other => self.wrong(format!("the set: {:?}", other.map(|found| found.is_some()))),
            }
        }
        self.count(count - waits);
    }

    fn line(&mut self) {
        let code = self.code();
        let mut line = forkless::shell(format!("{} >/dev/null", self.shared.places.exits(code).display()));
        let answer = if self.one_in(2) { line.status() } else { line.output().map(|output| output.status) };
        self.expect_code(answer, code, false);
    }

    fn line_by_shell(&mut self) {
        let code = self.code();
        self.expect_code(forkless::shell(format!("exit {code}; :")).status(), code, false);
    }

    fn pipeline(&mut self) {
        let codes = [self.code(), self.code(), self.code()];
        let mut pipeline = Pipeline::new();
        for &code in &codes {
            pipeline.prepared(&self.shared.watched[code as usize]);
        }
        match pipeline.status() {
            Ok(status) => {
                let found: Vec<_> = status.all().iter().map(|status| status.code()).collect();
                if found == codes.map(|code| Some(code as i32)) {
                    self.count(codes.len() as u64);
                } else {
                    self.wrong(format!("{found:?}, not {codes:?}"));
                }
            }
            Err(error) if self.is_lost(&error, true) => self.count(codes.len() as u64),
            Err(error) => self.wrong(error.to_string()),
        }
    }

    fn capture(&mut self) {
        let text = self.text();
        let mut command = Command::new(&self.shared.places.echo);
        command.arg(&text).arg("wait").pidfd(true);
        let how = Capture::new().input("x").merged(self.one_in(2)).timeout(Duration::from_secs(600));
        match command.capture(&how) {
            Ok(got) if got.stdout[..] != *text.as_bytes() => self.wrong(format!("{:?}, not {text:?}", got.text())),
            answer => self.expect_code(answer.map(|got| got.status), text.len() as u64 & 63, true),
        }
    }

    fn many(&mut self) {
        let codes: Vec<u64> = (0..2 + self.dice.below(7)).map(|_| self.code()).collect();
        let all: Vec<Prepared> = codes.iter().map(|&code| self.shared.watched[code as usize].clone()).collect();
        for (child, &code) in forkless::launch_all(&all).into_iter().zip(&codes) {
            self.expect_code(child.and_then(|mut child| child.wait()), code, true);
        }
    }

    fn failed(&mut self) {
        let places = &self.shared.places;
        let mut command = Command::new(places.exits(0));
        let (step, errno) = match self.dice.below(5) {
            0 | 1 => {
                command = Command::new(&places.missing);
                (Step::Exec, libc::ENOENT)
            }
            2 => {
                command = Command::new(&places.forbidden);
                (Step::Exec, libc::EACCES)
            }
            3 => {
                command.current_dir(&places.missing);
                (Step::Chdir, libc::ENOENT)
            }
            // A filter's word, where there is one.
            _ if self.around.filtered => {
                command.setsid(true);
                (Step::SetSid, libc::EPERM)
            }
            _ => {
                // SAFETY: nothing is open there.
                command.fd(unsafe { Stdio::fd(7777) }, 4);
                (Step::PassFd, libc::EBADF)
            }
        };
        if self.one_in(3) {
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
        }
        let answer = match self.dice.below(8) {
            0 | 1 => command.status(),
            2 => command.spawn().and_then(|mut child| child.wait()),
            3 => command.output().map(|output| output.status),
            4 => command.launch().and_then(|mut child| child.wait_exec().and_then(|()| child.wait())),
            5 => command.prepare().and_then(|prepared| prepared.spawn()?.wait()),
            6 if self.one_in(4) => command.launcher(Launcher::Fork).spawn().and_then(|mut child| child.wait()),
            _ => command.launch().and_then(|mut child| child.wait()),
        };
        self.expect_failure(answer, step, errno);
    }

    /// Handles that are dropped: at once, before the exec, or while the program runs.
    fn dropped(&mut self) {
        let (mut command, _, _) = self.exits();
        let (mut waiting, _) = self.waits();
        let missing = &self.shared.places.missing;
        let answer = match self.dice.below(8) {
            0 => command.spawn().map(drop),
            1 | 2 => command.launch().map(drop),
            3 => command.stdin(Stdio::piped()).stdout(Stdio::piped()).launch().map(drop),
            // Its input is closed with the handle.
            4 => waiting.launch().map(drop),
            5 => waiting.kill_on_drop(true).launch().map(drop),
            6 if !self.around.filtered => self.shared.zygote.launch(&self.shared.prepared[1]).map(drop),
            _ => {
                // A failure after the handle was dropped is not reported.
                drop(Command::new(missing).launch());
                Ok(())
            }
        };
        match answer {
            Ok(()) => self.count(1),
            Err(error) => self.wrong(error.to_string()),
        }
    }

    fn killed(&mut self) {
        let (mut command, code) = self.waits();
        let early = self.one_in(2);
        let launched = if early { command.launch() } else { command.spawn() };
        let mut child = match launched {
            Ok(child) => child,
            Err(error) => return self.wrong(error.to_string()),
        };
        if self.one_in(3) {
            drop(child.stdin.take());
            return self.expect_code(child.wait(), code, true);
        }
        let signal = if self.one_in(2) { libc::SIGKILL } else { libc::SIGTERM };
        let answer = child.signal(signal).and_then(|()| child.wait());
        match answer {
            Ok(status) if status.signal() == Some(signal) => self.count(1),
            // Killed before its program: this is reported as a failed launch.
            Err(error) if early && Error::of(&error).is_some_and(|e| e.signal() == Some(signal)) => self.count(1),
            other => self.wrong(format!("{other:?}, not killed by {signal}")),
        }
    }
}

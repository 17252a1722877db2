//! The launches of the matrix: `matrix --trace FILE` makes the launch that a file describes, to be traced; `matrix
//! --play FILE` plays cells, each in a process of its own, and reports errors.
//!
//! The filter may refuse the system calls that checks need. But a filter belongs to a thread: so one thread launches
//! under it, and a second one without it checks. They communicate through memory only.

use forkless::zygote::{Zygote, ZygoteOptions};
use forkless::{Child, Error, Launcher, Prepared, mapped_stacks};
use forkless_tests::filter::hang;
use forkless_tests::matrix::cells::{Cell, HANG, KILLS, Launch, ZYGOTE};
use forkless_tests::matrix::{Outcome, Setup};
use forkless_tests::state::{State, errno_after};
use forkless_tests::supervise::{Reply, Supervisor};
use forkless_tests::table::parent::{
    Place, become_it, complain, keep_complaints, limit_it, make, refusals_of, refuse, unmet,
};
use forkless_tests::table::{Ask, ask, errno};
use forkless_tests::trace::{Who, mark, stop_for_tracer};
use serde::Deserialize;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{fs, io, thread};
use tempfile::TempDir;

const EXIT: i32 = 7;

/// The caller's, not close-on-exec: no program is to have it.
const LEAK: i32 = 21;

/// A cell that takes longer hangs, in seconds.
const LIMIT: u32 = 10;

/// The description of the cells to play.
#[derive(Deserialize)]
struct Batch {
    setup: Vec<Setup>,
    #[serde(default)]
    cell: Vec<Cell>,
    launch: Option<Launch>,
}

fn main() -> ExitCode {
    forkless::zygote::serve_if_asked(&forkless::zygote::Registry::new());
    let args: Vec<String> = std::env::args().collect();
    let [_, what, file] = args.as_slice() else { panic!("matrix --trace|--play FILE") };
    keep_complaints();
    let batch: Batch = toml::from_str(&fs::read_to_string(file).expect("a file")).expect("cells");
    match what.as_str() {
        "--trace" => traced(&batch),
        _ => play_all(&batch),
    }
}

fn own_place() -> (TempDir, Place) {
    let own = tempfile::tempdir().expect("a directory");
    let place = Place { dir: own.path().canonicalize().expect("it is there"), probe: "/proc/self/exe".into() };
    make(&place, "program", &format!("exits-if-closed {EXIT} {LEAK}")).expect("a program");
    make(&place, "program that has it", &format!("exits {EXIT}")).expect("a program");
    // SAFETY: a file, at a number that is not used otherwise.
    unsafe {
        let fd = libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY);
        assert!(fd >= 0 && libc::dup2(fd, LEAK) == LEAK && libc::close(fd) == 0);
    }
    (own, place)
}

/// A launch that can be made again and again.
struct Made<'a> {
    prepared: Prepared,
    form: String,
    /// The launcher, if it is a zygote.
    zygote: Option<&'a Zygote>,
}

/// How long a child is watched that is to hang.
const WATCHED: Duration = Duration::from_millis(50);

impl<'a> Made<'a> {
    fn new(launch: &Launch, setup: &Setup, place: &Place) -> io::Result<Self> {
        let own = setup.ask.program == Ask::default().program;
        let program = match setup.ask.program.as_str() {
            _ if own && setup.ask.inherit_all => "{dir}/program that has it",
            _ if own => "{dir}/program",
            other => other,
        };
        let program = program.to_owned();
        let mut command = ask::command(&Ask { program, silent: true, ..setup.ask.clone() }, place)?;
        command.launcher(match launch.launcher.as_str() {
            "fork" => Launcher::Fork,
            "posix_spawn" => Launcher::PosixSpawn,
            _ => Launcher::Clone,
        });
        Ok(Self { prepared: command.prepare()?, form: launch.form.clone(), zygote: None })
    }

    fn by(self, zygote: &'a Zygote) -> Self {
        Self { zygote: Some(zygote), ..self }
    }

    fn launch(&self) -> io::Result<Child> {
        match self.zygote {
            Some(zygote) => zygote.launch(&self.prepared),
            None => self.prepared.launch(),
        }
    }

    fn go(&self) -> io::Result<ExitStatus> {
        let child = match (self.form.as_str(), self.zygote) {
            ("status", None) => return self.prepared.status(),
            ("status", Some(zygote)) => return zygote.status(&self.prepared),
            ("output", None) => return self.prepared.output().map(|output| output.status),
            ("output", Some(zygote)) => return zygote.output(&self.prepared).map(|output| output.status),
            ("launch", _) => self.launch(),
            (_, None) => self.prepared.spawn(),
            (_, Some(zygote)) => zygote.spawn(&self.prepared),
        };
        let mut child = child?;
        drop((child.stdin.take(), child.stdout.take(), child.stderr.take()));
        child.wait_exec()?;
        child.wait()
    }
}

/// `launch` while a call of the child's hangs: the caller goes on, sees that the child has not ended, and can kill it.
fn play_hanging(cell: &Cell, made: &Made, watch: &Watch) -> Result<(), String> {
    let listener = hang(refusals_of(&cell.refusal)[0]).expect("a filter");
    let before = watch.state();
    hangs(made)?;
    let changes = before.differences(&watch.state());
    drop(listener);
    if changes.is_empty() { Ok(()) } else { Err(format!("the parent has changed: {}", changes.join("; "))) }
}

fn hangs(made: &Made) -> Result<(), String> {
    let mut child = made.launch().map_err(|error| format!("launch: {error}"))?;
    drop((child.stdin.take(), child.stdout.take(), child.stderr.take()));
    match child.wait_timeout(WATCHED) {
        Ok(None) => {}
        other => return Err(format!("it should hang: {other:?}")),
    }
    child.kill().map_err(|error| format!("kill: {error}"))?;
    let answer = child.wait();
    let killed = match &answer {
        Ok(status) => status.signal(),
        Err(error) => Error::of(error).and_then(Error::signal),
    };
    if killed != Some(libc::SIGKILL) {
        return Err(format!("it does not say that the child was killed: {answer:?}"));
    }
    Ok(())
}

fn traced(batch: &Batch) -> ExitCode {
    let (launch, setup) = (batch.launch.as_ref().expect("a launch"), &batch.setup[0]);
    let (_own, place) = own_place();
    become_it(&setup.parent, &place).expect("become");
    let made = Made::new(launch, setup, &place).expect("prepare");
    limit_it(&setup.parent).expect("limits");
    refuse(&launch.base).expect("a filter");
    stop_for_tracer();
    mark();
    let zygote;
    let made = if launch.launcher == ZYGOTE {
        zygote = Zygote::start(&ZygoteOptions::new()).expect("a zygote");
        made.by(&zygote)
    } else {
        made
    };
    mark();
    for _ in 0..2 {
        let status = made.go();
        if !matches!(&status, Ok(status) if status.code() == Some(EXIT)) {
            complain(&format!("{launch:?}: {status:?}\n"));
            return ExitCode::FAILURE;
        }
        mark();
    }
    ExitCode::SUCCESS
}

/// Each cell in a fork of this process, which has one thread and has launched nothing.
fn play_all(batch: &Batch) -> ExitCode {
    let (_own, place) = own_place();
    // What a cell leaves behind comes to this process.
    // SAFETY: a flag of this process.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    for (n, cell) in batch.cell.iter().enumerate() {
        let setup = batch.setup.iter().find(|setup| setup.name == cell.launch.setup).expect("its setup");
        // SAFETY: this process has one thread.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: the default action ends the process.
            unsafe {
                libc::alarm(LIMIT);
                // The directory is the other process's to remove.
                let is_right = std::panic::catch_unwind(|| play(cell, setup, &place)).unwrap_or(false);
                libc::_exit(!is_right as i32);
            }
        }
        let mut status = 0;
        // SAFETY: our own child.
        assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
        end_all_children();
        match (libc::WIFEXITED(status), status) {
            (true, 0) => println!("{n} right"),
            (true, _) => println!("{n} wrong"),
            (false, _) if libc::WTERMSIG(status) == libc::SIGALRM => {
                complain(&format!("{}: it hangs\n", cell.name()));
                println!("{n} wrong");
            }
            (false, _) => {
                complain(&format!("{}: ended by signal {}\n", cell.name(), libc::WTERMSIG(status)));
                println!("{n} wrong");
            }
        }
    }
    ExitCode::SUCCESS
}

/// Ends what a cell that failed has left: a child that hangs, and has the listener too, would hang for good.
fn end_all_children() {
    let mut status = 0;
    // SAFETY: this process has one thread, and no children but those of its cells.
    while let 0 = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) } {
        let children = fs::read_to_string("/proc/thread-self/children").expect("children");
        for pid in children.split_whitespace().filter_map(|pid| pid.parse().ok()) {
            forkless_tests::process::kill(pid, libc::SIGKILL);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// The requests to the thread without a filter, and its answers.
#[derive(Default)]
struct Watch {
    asked: AtomicU32,
    done: AtomicU32,
    /// The exit status of the process, and 1.
    verdict: AtomicU32,
    /// The errors.
    complaint: Mutex<String>,
    state: Mutex<Option<State>>,
}

impl Watch {
    fn start() -> Arc<Self> {
        let watch = Arc::new(Self::default());
        let its = Arc::clone(&watch);
        // SAFETY: reads a number.
        let first = unsafe { libc::getpid() };
        thread::Builder::new().spawn(move || its.poll_thread(first)).expect("a thread");
        // It has come to its loop.
        watch.state();
        watch
    }

    fn poll_thread(&self, thread: i32) {
        loop {
            let verdict = self.verdict.load(Ordering::Acquire);
            if verdict != 0 {
                complain(&self.complaint.lock().unwrap());
                // SAFETY: ends the process. The thread that has the filter may not be able to.
                unsafe { libc::_exit(verdict as i32 - 1) };
            }
            let asked = self.asked.load(Ordering::Acquire);
            if asked != self.done.load(Ordering::Relaxed) {
                *self.state.lock().unwrap() = Some(State::of_thread(thread));
                self.done.store(asked, Ordering::Release);
            }
            thread::sleep(Duration::from_micros(50));
        }
    }

    /// The process as it is, and the asking thread.
    fn state(&self) -> State {
        let asked = self.asked.load(Ordering::Relaxed) + 1;
        self.asked.store(asked, Ordering::Release);
        while self.done.load(Ordering::Acquire) != asked {
            std::hint::spin_loop();
        }
        self.state.lock().unwrap().take().expect("a state")
    }
}

/// Errors are printed to standard error.
fn play(cell: &Cell, setup: &Setup, place: &Place) -> bool {
    let name = cell.name();
    let wrong = |what: &str| {
        complain(&format!("{name}: {what}\n"));
        false
    };
    if let Some(why) = unmet(&setup.needs) {
        complain(&format!("SKIPPED: {name} because {why}\n"));
        return true;
    }
    let is_in_fork = ["clone", "set_robust_list"].contains(&cell.call()) && cell.launch.launcher == "fork";
    if is_in_fork && cell.reply_to_call() == "TRAP" && is_sigsys_blocked_in_fork() {
        complain(&format!(
            "SKIPPED: {name} because fork(3) blocks SIGSYS here, and the kernel kills whose call is trapped then\n"
        ));
        return true;
    }
    if let Err(error) = become_it(&setup.parent, place) {
        return wrong(&format!("could not be played: {error}"));
    }
    let plain = Setup {
        name: "nothing".into(),
        needs: vec![],
        launchers: None,
        waits: None,
        parent: Default::default(),
        ask: Ask::default(),
    };
    let made = Made::new(&cell.launch, setup, place).expect("prepare");
    let good = Made::new(&Launch { form: "spawn".into(), ..cell.launch.clone() }, &plain, place).expect("prepare");
    limit_it(&setup.parent).expect("limits");
    let watch = Watch::start();
    let answer = match cell.launch.launcher.as_str() {
        ZYGOTE => play_by_zygote(cell, made, &watch),
        _ => play_under(cell, &made, &good, &watch),
    };
    // Said by the thread that can.
    let verdict = 1 + u32::from(answer.is_err());
    *watch.complaint.lock().unwrap() = answer.err().map_or(String::new(), |what| format!("{name}: {what}\n"));
    watch.verdict.store(verdict, Ordering::Release);
    loop {
        std::hint::spin_loop();
    }
}

/// The result under the filter, and the errors in that.
fn play_under(cell: &Cell, made: &Made, good: &Made, watch: &Watch) -> Result<(), String> {
    if cell.reply_to_call() == "TRAP" {
        handle_sigsys();
    }
    refuse(&cell.launch.base).expect("a filter");
    if !cell.first {
        let status = made.go();
        if !matches!(&status, Ok(status) if status.code() == Some(EXIT)) {
            return Err(format!("the launch before the filter: {status:?}"));
        }
    }
    if cell.outcome == Outcome::Hangs {
        return play_hanging(cell, made, watch);
    }
    refuse(&cell.refusal).expect("a filter");
    let before = watch.state();
    let stacks = mapped_stacks();
    for turn in 0..2 {
        let mut answer = None;
        let errno = errno_after(MARKER, || answer = Some(made.go()));
        let answer = answer.expect("it was launched");
        if let Err(what) = check(cell, turn, &answer) {
            return Err(format!("launch {turn}: {what}"));
        }
        if errno != MARKER && !cell.leaves.iter().any(|what| what == "errno") {
            return Err(format!("launch {turn}: errno has become {errno}"));
        }
    }
    // A launch that fails while its child runs may leave the child on its stack.
    let room = if matches!(cell.outcome, Outcome::Io(_)) { 2 } else { 1 };
    if mapped_stacks() > stacks + room {
        return Err(format!("{stacks} stacks have become {}", mapped_stacks()));
    }
    if cell.is_good_after {
        let status = good.go();
        if !matches!(&status, Ok(status) if status.code() == Some(EXIT)) {
            return Err(format!("a plain launch afterwards: {status:?}"));
        }
    }
    if matches!(cell.outcome, Outcome::Io(_)) {
        // A program whose output could not be read has not been waited for.
        while forkless::reap_orphans() > 0 {}
    }
    let mut changes = before.differences(&watch.state());
    changes.retain(|change| !cell.leaves.iter().any(|what| change.starts_with(what.as_str())));
    if changes.is_empty() { Ok(()) } else { Err(format!("the parent has changed: {}", changes.join("; "))) }
}

/// The same of a launch by a zygote. The supervisor answers only during launches, not when the first helper is started.
fn play_by_zygote(cell: &Cell, made: Made, watch: &Watch) -> Result<(), String> {
    if cell.reply_to_call() == "TRAP" {
        handle_sigsys();
    }
    let refuse_it = || refuse(&cell.refusal).expect("a filter");
    let (who, reply) = (cell.only.as_deref(), reply(cell));
    let supervisor = who.map(|_| {
        let hanging = format!("{} HANG {}", cell.call(), cell.condition());
        Supervisor::start(refusals_of(hanging.trim())[0], reply).expect("a supervisor")
    });
    let before = watch.state();
    if supervisor.is_none() && cell.first {
        refuse_it();
    }
    let zygote = Zygote::start(&ZygoteOptions::new()).map_err(|error| format!("the zygote: {error}"))?;
    let made = made.by(&zygote);
    if !cell.first {
        let status = made.go();
        if !matches!(&status, Ok(status) if status.code() == Some(EXIT)) {
            return Err(format!("the launch before the filter: {status:?}"));
        }
    }
    if supervisor.is_none() && !cell.first {
        refuse_it();
    }
    let stacks = mapped_stacks();
    for turn in 0..2 {
        if let Some(supervisor) = &supervisor {
            let who = match who {
                Some("parent") => Who::Parent,
                Some("helper") => Who::Helper,
                _ => Who::Child,
            };
            supervisor.reply_to(who, zygote.pid().map_or(0, |pid| pid as i32));
        }
        if cell.outcome == Outcome::Hangs {
            hangs(&made).map_err(|what| format!("launch {turn}: {what}"))?;
            continue;
        }
        let answer = made.go();
        check(cell, turn, &answer).map_err(|what| format!("launch {turn}: {what}"))?;
    }
    if mapped_stacks() > stacks + 1 {
        return Err(format!("{stacks} stacks have become {}", mapped_stacks()));
    }
    if let Some(supervisor) = &supervisor {
        supervisor.rest();
        if supervisor.answered() == 0 && cell.is_made {
            return Err("the call was not made".into());
        }
    }
    // The end of the helper, too, leaves nothing.
    drop(zygote);
    if matches!(cell.outcome, Outcome::Io(_)) {
        while forkless::reap_orphans() > 0 {}
    }
    let mut changes = before.differences(&watch.state());
    changes.retain(|change| !cell.leaves.iter().any(|what| change.starts_with(what.as_str())));
    if changes.is_empty() { Ok(()) } else { Err(format!("the parent has changed: {}", changes.join("; "))) }
}

/// The supervisor's reply.
fn reply(cell: &Cell) -> Reply {
    match (cell.reply_to_call(), cell.only.as_deref()) {
        (HANG, Some("helper")) => Reply::HangThenKill,
        (HANG, _) => Reply::Hang,
        (answer, _) if KILLS.contains(&answer) => Reply::Kill,
        (name, _) => Reply::Errno(errno(name)),
    }
}

const MARKER: i32 = 12345;

/// Whether the result is the expected one. `turn`: the number of launches before.
fn check(cell: &Cell, turn: usize, answer: &io::Result<ExitStatus>) -> Result<(), String> {
    let killed = KILLS.contains(&cell.reply_to_call());
    let signal = if cell.only.is_some() { libc::SIGKILL } else { libc::SIGSYS };
    let (step, number) = match &cell.outcome {
        Outcome::Either([step, _]) if answer.is_err() => (step, (!killed).then(|| errno(cell.reply_to_call()))),
        Outcome::Works(_) | Outcome::Either(_) => return check_worked(answer, |status| status.code() == Some(EXIT)),
        // The first one may have been quick enough to be seen.
        Outcome::OnceError(_) if turn > 0 || answer.is_ok() => {
            return check_worked(answer, |status| status.code() == Some(EXIT));
        }
        Outcome::Status(_) => return check_worked(answer, |status| status.signal() == Some(signal)),
        Outcome::Io(_) => {
            let number = answer.as_ref().err().and_then(io::Error::raw_os_error);
            let expected = if killed { libc::ENOSYS } else { errno(cell.reply_to_call()) };
            return if number == Some(expected) {
                Ok(())
            } else {
                Err(format!("should fail with the call's error: {answer:?}"))
            };
        }
        Outcome::NotPlayed(_) | Outcome::Hangs => return Ok(()),
        Outcome::ErrorAs([step, name]) => (step, (name != "none").then(|| errno(name))),
        Outcome::Error(step) | Outcome::OnceError(step) => (step, (!killed).then(|| errno(cell.reply_to_call()))),
    };
    let Err(error) = answer else { return Err(format!("should have failed at {step}: {answer:?}")) };
    let Some(detail) = Error::of(error) else { return Err(format!("an error that names no step: {error:?}")) };
    if format!("{:?}", detail.step()) != *step {
        return Err(format!("the step is {:?}, should be {step}: {error}", detail.step()));
    }
    // A trapped call in the parent fails with its handler's errno.
    let is_trap = cell.reply_to_call() == "TRAP" && detail.errno() == Some(libc::ENOSYS);
    if detail.errno() != number && !is_trap {
        return Err(format!("the errno is {:?}, should be {number:?}: {error}", detail.errno()));
    }
    let name = if cell.only.is_some() { "signal 9" } else { "SIGSYS" };
    if killed && !is_trap && !error.to_string().contains(name) {
        return Err(format!("it does not say what killed the child: {error}"));
    }
    Ok(())
}

fn check_worked(answer: &io::Result<ExitStatus>, is_right: impl Fn(&ExitStatus) -> bool) -> Result<(), String> {
    match answer {
        Ok(status) if is_right(status) => Ok(()),
        Ok(status) => Err(format!("the status is {status:?}")),
        Err(error) => Err(format!("should have worked: {error}")),
    }
}

/// Does the C library block signals while it forks? That of glibc 2.41 does, that of 2.36 does not.
fn is_sigsys_blocked_in_fork() -> bool {
    // SAFETY: the copy of this process makes system calls only, and ends.
    let probe = unsafe { libc::fork() };
    if probe == 0 {
        handle_sigsys();
        let is_refused = refuse("clone TRAP").is_ok();
        // SAFETY: as above.
        unsafe {
            libc::fork();
            libc::_exit(i32::from(!is_refused));
        }
    }
    let mut status = 0;
    // SAFETY: waits for the process above.
    unsafe { libc::waitpid(probe, &raw mut status, 0) };
    libc::WIFSIGNALED(status)
}

/// As a sandbox that emulates system calls: the call fails with ENOSYS.
fn handle_sigsys() {
    extern "C" fn handler(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
        // SAFETY: the kernel gives a signal's context, which it reads again when the handler returns.
        unsafe {
            let context = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext;
            #[cfg(target_arch = "x86_64")]
            {
                context.gregs[libc::REG_RAX as usize] = -i64::from(libc::ENOSYS);
            }
            #[cfg(target_arch = "aarch64")]
            {
                context.regs[0] = -i64::from(libc::ENOSYS) as u64;
            }
        }
    }
    // SAFETY: the handler only writes to the context; all zeroes are an action with an empty mask.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGSYS, &action, std::ptr::null_mut()), 0);
    }
}

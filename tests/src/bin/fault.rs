//! Plays one scene: `fault SCENE PROBE`. `it/faults.rs` lists the scenes.
//!
//! A process of its own, because filters, limits and signal dispositions affect the whole process. A scene that hangs
//! is ended by SIGALRM.

use forkless::{Child, Command, Error, Stdio, Step};
use forkless_tests::patience;
use forkless_tests::state::{State, errno_after};
use forkless_tests::table::parent::{complain, keep_complaints, refuse, reset_signals};
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{io, process, thread};

fn main() {
    patience::end_after(20);
    let args: Vec<String> = std::env::args().collect();
    let [_, scene, probe] = args.as_slice() else { panic!("fault SCENE PROBE") };
    keep_complaints();
    reset_signals();
    let probe = Path::new(probe);
    match scene.as_str() {
        "errno_is_preserved" => errno_is_preserved(probe),
        "a_launch_learns_of_a_refusal" => a_launch_learns(probe, "close_range EPERM"),
        "a_launch_learns_of_a_kill" => a_launch_learns(probe, "close_range KILL"),
        "a_refused_call_is_not_tried_again" => a_launch_does_not_try_again(probe, "close_range EPERM"),
        "a_call_that_kills_is_not_tried_again" => a_launch_does_not_try_again(probe, "close_range KILL"),
        "a_pids_limit_is_an_error_of_clone" => a_pids_limit_is_an_error_of_clone(probe),
        "too_many_descriptors" => too_many_descriptors(),
        "waiting_with_a_limit" => waiting_with_a_limit(true),
        "waiting_with_a_limit_without_pidfds" => without_pidfds(|| waiting_with_a_limit(false)),
        "waiting_for_ever" => waiting_for_ever(probe, true),
        "waiting_for_ever_without_pidfds" => without_pidfds(|| waiting_for_ever(probe, false)),
        "dropped_children" => dropped_children(probe, true),
        "dropped_children_without_pidfds" => without_pidfds(|| dropped_children(probe, false)),
        "a_child_reaped_by_other_code_is_reported" => a_child_reaped_by_other_code_is_reported(probe),
        "usage_is_reported" => usage_is_reported(),
        "large_output_on_both_streams_is_read" => large_output_on_both_streams_is_read(),
        "a_pipe_connects_two_children" => a_pipe_connects_two_children(),
        "a_busy_program" => a_busy_program(probe, None),
        "a_busy_program_retried" => a_busy_program(probe, Some(Duration::from_secs(10))),
        "signals_to_a_child" => signals_to_a_child(),
        "launches_from_a_thread_with_its_own_mask" => a_thread_with_its_own_mask(probe),
        "state_after_every_failure" => state_after_every_failure(probe),
        _ => panic!("no scene of that name"),
    }
}

fn without_pidfds(scene: impl FnOnce()) {
    refuse("pidfd_open EPERM, pidfd_getfd EPERM").expect("a filter");
    scene();
}

fn sleeper() -> Command {
    let mut command = Command::new("sleep");
    command.arg("100");
    command
}

/// The launch path of a prepared command makes no libc call that sets errno.
fn errno_is_preserved(probe: &Path) {
    const MARKER: i32 = 12345;
    let good = Command::new(probe).prepare().unwrap();
    let missing = Command::new("/nonexistent").prepare().unwrap();
    // The first launch of a process also probes the kernel.
    assert_eq!(errno_after(MARKER, || assert!(good.status().unwrap().success())), MARKER);
    assert_eq!(errno_after(MARKER, || assert!(good.status().unwrap().success())), MARKER);
    assert_eq!(errno_after(MARKER, || assert!(missing.status().is_err())), MARKER);
    assert_eq!(errno_after(MARKER, || assert!(good.spawn().unwrap().wait().is_ok())), MARKER);
    assert_eq!(errno_after(MARKER, || assert!(good.launch().unwrap().wait().is_ok())), MARKER);
    assert_eq!(errno_after(MARKER, || drop(good.output().unwrap())), MARKER);
    refuse("clone3 ENOSYS, close_range EPERM, pidfd_open EPERM").unwrap();
    assert_eq!(errno_after(MARKER, || assert!(good.status().unwrap().success())), MARKER);
}

/// `launch` does not stay to see that something is refused since the last time; the next one must know.
fn a_launch_learns(probe: &Path, refusal: &str) {
    let prepared = Command::new(probe).prepare().unwrap();
    assert!(prepared.launch().unwrap().wait().unwrap().success());
    refuse(refusal).unwrap();
    let before = State::now();
    if let Err(error) = prepared.launch().and_then(|mut child| child.wait()) {
        assert_eq!(Error::of(&error).map(Error::step), Some(Step::Table), "{error}");
    }
    State::assert_unchanged(&before);
    for _ in 0..3 {
        assert!(prepared.launch().unwrap().wait().unwrap().success(), "the refusal was not noted");
        State::assert_unchanged(&before);
    }
}

/// A refused call is tried again after a second. But not by a launch that does not wait for the result, nor by one
/// after another launch has tried.
fn a_launch_does_not_try_again(probe: &Path, refusal: &str) {
    let (prepared, missing) = (Command::new(probe).prepare().unwrap(), Command::new("/nonexistent").prepare().unwrap());
    assert!(prepared.launch().unwrap().wait().unwrap().success());
    refuse(refusal).unwrap();
    assert!(prepared.status().unwrap().success(), "by another way");
    let launches = || {
        for _ in 0..3 {
            assert!(prepared.launch().unwrap().wait().unwrap().success(), "what is refused was tried again");
        }
    };
    thread::sleep(Duration::from_millis(1100));
    launches();
    // Another error does not show that the call is refused.
    assert!(missing.launch().and_then(|mut child| child.wait()).is_err());
    launches();
    assert!(prepared.status().unwrap().success(), "by another way, after it was tried");
    launches();
}

/// A cgroup that may have no second process.
fn a_pids_limit_is_an_error_of_clone(probe: &Path) {
    let Some(group) = own_pids_group() else {
        complain(
            "SKIPPED: a_pids_limit_is_an_error_of_clone because there is no cgroup with a pids controller that may be written to\n",
        );
        return;
    };
    let Group(group) = &group;
    fs::write(group.join("pids.max"), "1").unwrap();
    fs::write(group.join("cgroup.procs"), process::id().to_string()).unwrap();
    let prepared = Command::new(probe).prepare().unwrap();
    let before = State::now();
    for _ in 0..2 {
        let error = prepared.status().unwrap_err();
        let detail = Error::of(&error).unwrap();
        assert_eq!((detail.step(), detail.errno()), (Step::Clone, Some(libc::EAGAIN)));
        assert!(error.to_string().contains("pids.max"), "{error}");
        State::assert_unchanged(&before);
    }
    fs::write(group.join("pids.max"), "max").unwrap();
    assert!(prepared.status().unwrap().success());
}

/// A cgroup that is left and removed in the end.
struct Group(PathBuf);

impl Drop for Group {
    fn drop(&mut self) {
        let above = self.0.parent().expect("it was made in one").join("cgroup.procs");
        let _ = fs::write(above, process::id().to_string()).and_then(|()| fs::remove_dir(&self.0));
    }
}

/// A new cgroup, of version 2 or 1, with a limit of processes that can be set.
fn own_pids_group() -> Option<Group> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mut places = mounts.lines().filter_map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let [_, place, kind, options, ..] = words.as_slice() else { return None };
        let fits = *kind == "cgroup2" || (*kind == "cgroup" && options.split(',').any(|option| option == "pids"));
        fits.then(|| PathBuf::from(place))
    });
    places.find_map(|place| {
        let group = place.join(format!("forkless-test-{}", process::id()));
        fs::create_dir(&group).ok()?;
        let usable = fs::write(group.join("pids.max"), "max").is_ok()
            && fs::OpenOptions::new().write(true).open(place.join("cgroup.procs")).is_ok();
        if usable {
            return Some(Group(group));
        }
        let _ = fs::remove_dir(group);
        None
    })
}

/// Room for the descriptors of a child that has 1024 of a launch, and for those that it opens itself.
fn allow_descriptors(count: u64) {
    // SAFETY: reads and sets a limit; the structure is as the call has it.
    unsafe {
        let mut now = std::mem::zeroed::<libc::rlimit>();
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut now), 0);
        now.rlim_cur = now.rlim_cur.max(count).min(now.rlim_max);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const now), 0);
    }
}

fn too_many_descriptors() {
    allow_descriptors(2048);
    let before = State::now();
    let check = |command: &mut Command, text: &str| {
        let error = command.status().unwrap_err();
        assert_eq!(Error::of(&error).map(|error| (error.step(), error.errno())), Some((Step::Check, None)));
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains(text), "{error}");
        State::assert_unchanged(&before);
    };
    let mut command = Command::new("true");
    for number in 3..1024 {
        command.fd(Stdio::null(), number);
    }
    assert!(command.status().unwrap().success(), "1024 descriptors are allowed");
    check(command.fd(Stdio::null(), 1024), "1025 descriptors are more than the 1024");
    let mut command = Command::new("true");
    for number in 10..39 {
        command.fd(Stdio::socketpair(), number);
    }
    assert!(command.status().unwrap().success(), "29 socket pairs are allowed");
    check(command.fd(Stdio::socketpair(), 39), "30 socket pairs are more than the 29");
}

fn waiting_with_a_limit(pidfd: bool) {
    let before = State::now();
    let mut child = sleeper().pidfd(pidfd).spawn().unwrap();
    assert!(child.try_wait().unwrap().is_none());
    assert!(child.wait_timeout(Duration::ZERO).unwrap().is_none());
    assert!(child.wait_timeout(Duration::from_millis(30)).unwrap().is_none());
    assert!(child.usage().is_none());
    child.kill().unwrap();
    let status = child.wait_timeout(patience::limit(15)).unwrap().expect("it has been killed");
    assert_eq!(status.signal(), Some(9));
    assert_eq!(child.try_wait().unwrap(), Some(status));
    assert_eq!(child.wait_timeout(Duration::ZERO).unwrap(), Some(status));
    assert!(child.usage().is_some());
    child.kill().unwrap();
    drop(child);
    State::assert_unchanged(&before);
}

/// Timeouts beyond the range of a clock are no timeouts.
fn waiting_for_ever(probe: &Path, pidfd: bool) {
    let before = State::now();
    let mut command = Command::new(probe);
    let mut child = command.pidfd(pidfd).launch().unwrap();
    assert!(child.wait_exec_timeout(Duration::MAX).unwrap());
    assert!(child.wait_timeout(Duration::MAX).unwrap().unwrap().success());
    drop(child);
    State::assert_unchanged(&before);
}

/// No zombie is left by handles that are dropped before or after the child has ended.
fn dropped_children(probe: &Path, pidfd: bool) {
    let before = State::now();
    let prepared = Command::new(probe).pidfd(pidfd).prepare().unwrap();
    let failing = Command::new("/nonexistent").pidfd(pidfd).prepare().unwrap();
    for _ in 0..50 {
        drop(prepared.spawn().unwrap());
        drop(prepared.launch().unwrap());
        // The failure may be there before the launch returns.
        drop(failing.launch());
    }
    let sleeping = sleeper().pidfd(pidfd).spawn().unwrap();
    let pid = sleeping.id() as i32;
    drop(sleeping);
    // A child of this process that has not ended and was not reaped.
    assert!(forkless_tests::process::kill(pid, libc::SIGKILL));
    while forkless::reap_orphans() > 0 {
        thread::sleep(Duration::from_millis(1));
    }
    State::assert_unchanged(&before);
}

/// The child was reaped by other code: an error that says so, or the status if the kernel keeps it.
fn a_child_reaped_by_other_code_is_reported(probe: &Path) {
    let before = State::now();
    for pidfd in [false, true] {
        let mut child = Command::new(probe).args(["--do", "exit 5"]).pidfd(pidfd).spawn().unwrap();
        // SAFETY: reaps this child.
        assert_eq!(unsafe { libc::waitpid(child.id() as i32, std::ptr::null_mut(), 0) }, child.id() as i32);
        match child.wait() {
            Ok(status) => {
                assert!(pidfd, "a status out of nowhere");
                assert_eq!(status.code(), Some(5));
                assert!(child.usage().is_none());
            }
            Err(error) => {
                assert_eq!(Error::of(&error).map(|error| error.step()), Some(Step::Wait), "{error}");
                assert_eq!(Error::of(&error).and_then(Error::errno), Some(libc::ECHILD));
                assert!(child.wait().is_err() && child.try_wait().is_err());
            }
        }
        child.kill().unwrap();
    }
    State::assert_unchanged(&before);
}

fn usage_is_reported() {
    let mut child =
        Command::new("sh").args(["-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"]).spawn().unwrap();
    assert!(child.usage().is_none());
    assert!(child.wait().unwrap().success());
    let usage = child.usage().expect("waited for");
    assert!(usage.user_time + usage.system_time > Duration::ZERO);
    assert!(usage.wall_time > Duration::ZERO && usage.max_rss_kib > 100 && usage.minor_faults > 0);
}

fn large_output_on_both_streams_is_read() {
    const SCRIPT: &str = "head -c 1000000 /dev/zero; head -c 2000000 /dev/zero >&2; head -c 1000000 /dev/zero; exit 3";
    let before = State::now();
    let mut command = Command::new("sh");
    command.args(["-c", SCRIPT]);
    for output in [command.output().unwrap(), command.prepare().unwrap().output().unwrap()] {
        let found = (output.stdout.len(), output.stderr.len(), output.status.code());
        assert_eq!(found, (2_000_000, 2_000_000, Some(3)));
    }
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    assert_eq!(child.wait_with_output().unwrap().stderr.len(), 2_000_000);
    State::assert_unchanged(&before);
}

/// A handle's pipe is the next child's input, and is closed here when that one has it.
fn a_pipe_connects_two_children() {
    let before = State::now();
    for refusals in ["", "pidfd_getfd EPERM", "close_range EPERM", "clone3 ENOSYS"] {
        if !refusals.is_empty() {
            refuse(refusals).unwrap();
        }
        let mut first = Command::new("echo").arg("through").stdout(Stdio::piped()).spawn().unwrap();
        let pipe = first.stdout.take().unwrap();
        let output = Command::new("cat").stdin(pipe).output().unwrap();
        assert_eq!(output.stdout, b"through\n");
        assert!(first.wait().unwrap().success());
        drop(first);
        State::assert_unchanged(&before);
    }
}

/// A program that is open for writing: ETXTBSY at once, or after a while, or not at all.
fn a_busy_program(probe: &Path, retry: Option<Duration>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("busy");
    fs::copy(probe, &path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let writer = File::options().append(true).open(&path).unwrap();
    let mut command = Command::new(&path);
    let Some(limit) = retry else {
        for command in [&mut command, Command::new(&path).retry_busy(Duration::from_millis(20))] {
            let error = command.spawn().unwrap_err();
            let detail = Error::of(&error).unwrap();
            assert_eq!((detail.step(), detail.errno()), (Step::Exec, Some(libc::ETXTBSY)), "{error}");
        }
        drop(writer);
        assert!(command.status().unwrap().success());
        return;
    };
    let prepared = command.retry_busy(limit).prepare().unwrap();
    let mut child = prepared.launch().unwrap();
    assert!(!child.wait_exec_timeout(Duration::from_millis(30)).unwrap(), "it is busy");
    drop(writer);
    child.wait_exec().unwrap();
    assert!(child.wait().unwrap().success());
}

fn signals_to_a_child() {
    let mut child = sleeper().spawn().unwrap();
    assert!(child.pidfd().is_some());
    assert_eq!(child.signal(0).map_err(|error| error.raw_os_error()), Ok(()));
    assert_eq!(child.signal(999).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    child.signal(libc::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
    child.signal(libc::SIGTERM).unwrap();
    let mut child: Child = sleeper().pidfd(false).spawn().unwrap();
    assert!(child.pidfd().is_none());
    child.signal(libc::SIGHUP).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGHUP));
}

/// The mask is a thread's own: it is the calling thread's that is left alone and, on request, inherited.
fn a_thread_with_its_own_mask(probe: &Path) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("report");
    let mut command = Command::new(probe);
    command.arg("--report").arg(&file).inherit_signal_mask(true);
    let work = move || {
        let mask = 1u64 << (libc::SIGUSR2 - 1);
        // SAFETY: this thread's own mask.
        unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const mask, 0usize, 8usize) };
        for refusals in ["", "clone3 ENOSYS"] {
            if !refusals.is_empty() {
                refuse(refusals).unwrap();
            }
            assert!(command.status().unwrap().success());
            assert_eq!(State::now().mask, mask);
            let report: forkless_tests::table::Report = toml::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
            assert_eq!(report.blocked, [libc::SIGUSR2]);
        }
    };
    thread::spawn(work).join().unwrap();
}

/// A hundred failures of each kind leave nothing: no descriptor, child, mask or mapping.
fn state_after_every_failure(probe: &Path) {
    let mut commands = [
        Command::new("/nonexistent"),
        Command::new("no-such-program-anywhere"),
        Command::new(probe),
        Command::new(probe),
        Command::new(probe),
        Command::new(probe),
    ];
    commands[2].current_dir("/nonexistent");
    // SAFETY: nothing is open there.
    commands[3].fd(unsafe { Stdio::fd(450) }, 5);
    commands[4].process_group(-1);
    commands[5].stdin(Stdio::open("/nonexistent", libc::O_RDONLY, 0));
    for command in &mut commands {
        command.stdout(Stdio::piped()).fd(Stdio::socketpair(), 9);
    }
    let fail_all = |commands: &mut [Command]| {
        for command in commands {
            assert!(command.spawn().is_err());
            assert!(command.launch().and_then(|mut child| child.wait()).is_err());
            assert!(command.status().is_err());
            assert!(command.output().is_err());
        }
    };
    fail_all(&mut commands);
    let before = State::now();
    for _ in 0..100 {
        fail_all(&mut commands);
    }
    State::assert_unchanged(&before);
    State::assert_mappings(&before, 4);
}

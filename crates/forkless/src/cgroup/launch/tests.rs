//! What is left of a launch with a cgroup of its own, and which limits it had. Limits need controllers of version 2; all else is tried
//! without them.

use super::super::own::delegated_above;
use super::super::tests::parent;
use super::*;
use crate::{Capture, Error, Launcher, Pipeline, Stdio, Step, reap_orphans};
use rustix::fs::{XattrFlags, setxattr};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::id;
use std::time::Instant;

/// A cgroup for the launches of one test.
struct LaunchPlace(Cgroup);

impl LaunchPlace {
    fn new(name: &str) -> Option<Self> {
        Some(Self(Cgroup::create(parent()?, &format!("forkless-{name}-{}", id())).expect("a group")))
    }

    fn shell(&self, line: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", line]).cgroup_parent(self.0.path());
        command
    }

    /// The cgroups of launches.
    fn groups(&self) -> usize {
        let entries = fs::read_dir(self.0.path()).expect("a directory").flatten();
        entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).count()
    }

    fn is_empty(&self) -> bool {
        self.groups() == 0 && self.0.wait_empty(Duration::ZERO).expect("cgroup.events")
    }

    fn wait_until_empty(&self) {
        let begun = Instant::now();
        while !self.is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(10), "{} groups", self.groups());
            reap_orphans();
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn each_launch_has_its_own_and_nothing_is_left_in_it() -> io::Result<()> {
    let Some(place) = LaunchPlace::new("launch") else { return Ok(()) };
    for launcher in [Launcher::Clone, Launcher::Fork] {
        let seen = |line| -> io::Result<String> {
            let output = place.shell(line).launcher(launcher).output()?;
            assert!(place.is_empty(), "{launcher:?}");
            Ok(String::from_utf8(output.stdout).expect("text"))
        };
        let [one, other] = [seen("cat /proc/self/cgroup")?, seen("cat /proc/self/cgroup")?];
        let inside = |text: &str| text.contains(&format!("/forkless-launch-{}/forkless-{}", id(), id()));
        assert!(inside(&one) && inside(&other) && one != other, "{launcher:?}: {one}{other}");
        // It holds the pipe, and has left the session.
        assert_eq!(seen("setsid sleep 1000 & echo done")?, "done\n");
        let mut command = place.shell("(setsid sleep 1000 &); exit 4");
        command.launcher(launcher);
        assert_eq!(command.status()?.code(), Some(4));
        assert!(place.is_empty());
        assert_eq!(command.spawn()?.wait_timeout(Duration::from_secs(10))?.and_then(|status| status.code()), Some(4));
        assert!(place.is_empty());
        let prepared = command.prepare()?;
        let (mut first, mut second) = (prepared.launch()?, prepared.spawn()?);
        assert_eq!(place.groups(), 2);
        assert_eq!((first.wait()?.code(), second.wait()?.code()), (Some(4), Some(4)));
        assert!(place.is_empty() && first.limit_events() == Some(LimitEvents::default()));
    }
    let captured = Pipeline::new()
        .command(&mut place.shell("setsid sleep 1000 & echo a"))?
        .command(&mut place.shell("tr a b"))?
        .capture(&Capture::new())?;
    assert_eq!(captured.0.text(), "b");
    assert!(place.is_empty());
    Ok(())
}

#[test]
fn a_kill_and_a_timeout_end_all_of_them() -> io::Result<()> {
    let Some(place) = LaunchPlace::new("kill") else { return Ok(()) };
    let line = "trap '' TERM; (setsid sleep 1000 &); (setsid sh -c 'sleep 1000; sleep 1000' &); sleep 1000; sleep 1000";
    let mut child = place.shell(line).spawn()?;
    child.kill()?;
    // Before its end is waited for, which would kill the others.
    assert!(place.0.wait_empty(Duration::from_secs(10))?);
    assert_eq!(child.wait()?.signal(), Some(9));
    assert!(place.is_empty());
    let captured = place.shell(line).capture(&Capture::new().timeout(Duration::from_millis(100)))?;
    assert!(captured.timed_out && place.is_empty());
    assert_eq!(captured.status.signal(), Some(9));
    let captured = place.shell("setsid yes & yes").capture(&Capture::new().limit(1000).kill_at_limit(true))?;
    assert!(captured.stdout_cut > 0 && place.is_empty());
    drop(place.shell(line).kill_on_drop(true).spawn()?);
    place.wait_until_empty();
    Ok(())
}

#[cfg(feature = "sandbox")]
#[test]
fn it_combines_with_sandboxes_and_kill_tree() -> io::Result<()> {
    use crate::Sandbox;
    let Some(place) = LaunchPlace::new("sandbox") else { return Ok(()) };
    let line = "cat /proc/self/cgroup; setsid sleep 1000 & exit 4";
    for sandbox in [Some(Sandbox::new()), Some(Sandbox::landlock()), None] {
        let mut command = place.shell(line);
        match sandbox.map(|sandbox| sandbox.prepare()) {
            Some(Ok(sandbox)) => _ = command.sandbox(&sandbox).current_dir("/"),
            Some(Err(error)) => {
                eprintln!("SKIPPED: a cgroup with a sandbox: {error}");
                continue;
            }
            None => _ = command.kill_tree(true),
        }
        match command.capture(&Capture::new()) {
            Ok(captured) => {
                assert_eq!(captured.status.code(), Some(4));
                let name = format!("/forkless-{}", id());
                // In a cgroup namespace it is the root.
                let is_it = |line: &str| line.contains(&name) || line == "0::/";
                assert!(captured.text().lines().any(is_it), "{}", captured.text());
            }
            Err(error) => eprintln!("SKIPPED: a cgroup with a sandbox or kill_tree: {error}"),
        }
        assert!(place.is_empty());
        let Ok(mut child) = command.arg0("sleep").spawn() else { continue };
        child.kill()?;
        child.wait()?;
        assert!(place.is_empty());
    }
    // As a part of the sandbox. What the command sets itself goes before it.
    let error = Sandbox::new().memory_max("lots").prepare().map(drop).unwrap_err();
    assert!(error.to_string().contains("memory_max must be"), "{error}");
    let nowhere = std::env::temp_dir();
    let Ok(sandbox) = Sandbox::landlock().memory_max(1 << 30).tasks_max(5).cgroup_parent(nowhere).prepare() else {
        return Ok(());
    };
    let mut command = Command::new("true");
    command.current_dir("/").sandbox(&sandbox);
    assert!(command.has_cgroup());
    assert_eq!(command.prepare()?.steps()[0], "start in a new cgroup, memory.max 1073741824, pids.max 5");
    let error = command.status().unwrap_err();
    assert_eq!(Error::of(&error).map(Error::step), Some(Step::Limits), "{error}");
    command.tasks_max(7).cgroup_parent(place.0.path());
    assert_eq!(command.prepare()?.steps()[0], "start in a new cgroup, memory.max 1073741824, pids.max 7");
    Ok(())
}

#[test]
fn a_dropped_handle_leaves_the_child_and_removes_the_group_later() -> io::Result<()> {
    let Some(place) = LaunchPlace::new("drop") else { return Ok(()) };
    let mut command = place.shell("read line");
    let mut child = command.stdin(Stdio::piped()).spawn()?;
    let stdin = child.stdin.take();
    drop(child);
    reap_orphans();
    assert_eq!(place.groups(), 1);
    assert!(!place.0.wait_empty(Duration::from_millis(20))?, "it still runs");
    drop(stdin);
    place.wait_until_empty();
    Ok(())
}

#[test]
fn a_launch_that_fails_leaves_no_group() -> io::Result<()> {
    let Some(place) = LaunchPlace::new("failed") else { return Ok(()) };
    let path = place.0.path();
    for launcher in [Launcher::Clone, Launcher::Fork] {
        let error = Command::new("/no/such/program").cgroup_parent(path).launcher(launcher).spawn().unwrap_err();
        assert_eq!(Error::of(&error).map(Error::step), Some(Step::Exec), "{error}");
        assert!(place.is_empty());
        let mut late = Command::new("/no/such/program").cgroup_parent(path).launcher(launcher).launch().ok();
        assert!(late.as_mut().is_none_or(|late| late.wait().is_err()));
        drop(late);
        assert!(place.is_empty());
        let error = place.shell(":").current_dir("/no/such").launcher(launcher).status().unwrap_err();
        assert_eq!(Error::of(&error).map(Error::step), Some(Step::Chdir), "{error}");
        assert!(place.is_empty());
    }
    Ok(())
}

/// A copy has neither the child nor its cgroup.
#[test]
fn a_forked_copy_of_this_process_ends_nothing() -> io::Result<()> {
    let Some(place) = LaunchPlace::new("copy") else { return Ok(()) };
    let mut child = place.shell("read line").stdin(Stdio::piped()).spawn()?;
    // SAFETY: the copy drops a handle, and ends.
    match unsafe { nix::libc::fork() } {
        0 => {
            drop(child);
            // SAFETY: nothing else of the copy runs.
            unsafe { nix::libc::_exit(0) };
        }
        copy => {
            let mut status = 0;
            // SAFETY: writes a status.
            assert_eq!(unsafe { nix::libc::waitpid(copy, &mut status, 0) }, copy);
            assert_eq!(status, 0);
        }
    }
    assert!(place.groups() == 1 && child.try_wait()?.is_none());
    child.wait()?;
    assert!(place.is_empty());
    Ok(())
}

#[test]
fn a_value_that_is_none_and_a_setting_that_excludes_it_are_refused() {
    let said = |set: &dyn Fn(&mut Command)| {
        let mut command = Command::new("true");
        set(&mut command);
        let error = command.status().unwrap_err();
        assert_eq!(Error::of(&error).map(Error::step), Some(Step::Check), "{error}");
        error.to_string()
    };
    for bad in ["", "lots", "-1", "+1", "1.5", "1k", "512MB", "16777216T", "0x10"] {
        assert!(said(&|command| _ = command.memory_max(bad)).contains("memory_max must be a number of bytes"), "{bad}");
    }
    assert!(said(&|command| _ = command.tasks_max(1.5)).contains("tasks_max must be a number, or max, not \"1.5\""));
    for bad in ["0", "0.001", "-1", "inf", "NaN", "1e3", "150%", "", "."] {
        assert!(said(&|command| _ = command.cpu_max(bad)).contains("cpu_max must be a number of CPUs"), "{bad}");
    }
    assert!(said(&|command| _ = command.io_max("10M")).contains("io_max must be a device"));
    assert!(said(&|command| _ = command.tasks_max(1).autoreap(true)).contains("never be removed"));
    let directory = fs::File::open("/").expect("a directory");
    assert!(
        said(&|command| _ = command.tasks_max(1).cgroup(directory.try_clone().expect("a copy")))
            .contains("cgroup excludes")
    );
    assert!(said(&|command| _ = command.tasks_max(1).launcher(Launcher::PosixSpawn)).contains("cgroup"));
    assert!(Command::new("true").tasks_max(1).exec().to_string().contains("to make and remove the cgroup"));
    let steps = Command::new("true").tasks_max(1).memory_max("1K").prepare().expect("a plan").steps();
    assert_eq!(steps[0], "start in a new cgroup, memory.max 1024, pids.max 1");
}

#[test]
fn amounts_are_what_the_kernel_takes() {
    assert_eq!(size("512M").as_deref(), Some("536870912"));
    assert_eq!(size("1T").as_deref(), Some("1099511627776"));
    assert_eq!(size("7").as_deref(), Some("7"));
    assert_eq!(size("max").as_deref(), Some("max"));
    assert_eq!(size(&u64::MAX.to_string()).as_deref(), Some("max"));
    let mut command = Command::new("true");
    command.tasks_max("many").memory_max("1X");
    command.memory_max(1u64 << 20).tasks_max(u64::MAX).cpu_max(1.5).io_max("8:0 rbps=1\n8:16 wbps=2");
    let files = &command.sandbox.limits.files;
    let expected = [
        ("cpu.max", "150000 100000"),
        ("io.max", "8:0 rbps=1\n8:16 wbps=2"),
        ("memory.max", "1048576"),
        ("pids.max", "max"),
    ];
    assert_eq!(files.iter().map(|(file, value)| (*file, value.as_str())).collect::<Vec<_>>(), expected);
    assert!(command.sandbox.limits.bad.is_empty(), "a good value replaces a bad one");
}

#[test]
fn where_no_group_can_be_made_an_error_says_what_to_do_or_the_program_runs_without() -> io::Result<()> {
    let nowhere = std::env::temp_dir();
    let error = Command::new("true").memory_max("1M").cgroup_parent(&nowhere).status().unwrap_err();
    assert_eq!(Error::of(&error).map(Error::step), Some(Step::Limits), "{error}");
    assert!(error.to_string().contains("not a cgroup of version 2"), "{error}");
    let mut command = Command::new("echo");
    command
        .arg("on")
        .memory_max("1M")
        .cgroup_parent(&nowhere)
        .best_effort(Step::Limits)
        .best_effort(Step::Nice)
        .nice(5);
    let captured = command.capture(&Capture::new())?;
    assert_eq!((captured.text().as_ref(), captured.skipped.len(), captured.limit_events), ("on", 1, None));
    assert_eq!(captured.skipped[0].step(), Step::Limits);
    let mut child = command.stdout(Stdio::null()).launch()?;
    child.wait()?;
    assert_eq!(child.skipped().len(), 1);
    Ok(())
}

#[test]
fn the_delegated_cgroup_above_is_the_parent() -> io::Result<()> {
    let Some(place) = LaunchPlace::new("delegated") else { return Ok(()) };
    let inner = place.0.path().join("service/main");
    fs::create_dir_all(&inner)?;
    assert_eq!(delegated_above(inner.clone()), inner);
    let service = place.0.path().join("service");
    match setxattr(&service, "user.delegate", b"1", XattrFlags::empty()) {
        Ok(()) => assert_eq!(delegated_above(inner), service),
        Err(error) => eprintln!("SKIPPED: the mark of a delegated cgroup: {error}"),
    }
    Ok(())
}

/// A command with limits, if they can be had here.
fn limited(place: &LaunchPlace, line: &str, limit: impl Fn(&mut Command)) -> Option<Command> {
    let mut command = place.shell(line);
    limit(&mut command);
    match command.status() {
        Err(error) if Error::of(&error).is_some_and(|error| error.step() == Step::Limits) => {
            eprintln!("SKIPPED: {error}");
            None
        }
        _ => Some(command),
    }
}

#[test]
fn limits_hold_for_all_together_and_are_told() -> io::Result<()> {
    let Some(place) = LaunchPlace::new("limits") else { return Ok(()) };
    let below = "cat /sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)";
    let Some(mut command) = limited(&place, &format!("{below}/pids.max {below}/memory.max"), |command| {
        command.tasks_max(100).memory_max("64M");
    }) else {
        return Ok(());
    };
    assert_eq!(command.output()?.stdout, b"100\n67108864\n");
    let mut many = place.shell("for n in 1 2 3 4 5 6 7 8; do sleep 1 & done 2>/dev/null; exit 0");
    let captured = many.tasks_max(4).capture(&Capture::new())?;
    let events = captured.limit_events.expect("limits");
    assert!(events.tasks_max > 0 && events.oom_kills == 0, "{events:?}");
    // Twice 20 MiB: only together they are too much.
    let line = "x=$(head -c 20000000 /dev/zero | tr '\\0' x); sleep 0.3; :";
    let mut hungry = place.shell(&format!("sh -c \"{line}\" & sh -c \"{line}\"; wait"));
    let captured = hungry.memory_max("24M").capture(&Capture::new())?;
    let events = captured.limit_events.expect("limits");
    assert!(events.oom_kills > 0 && events.memory_max > 0, "{events:?}, {:?}", captured.status);
    assert!(place.is_empty());
    if let Some(mut command) = limited(&place, &format!("{below}/cpu.max"), |command| _ = command.cpu_max(0.5)) {
        assert_eq!(command.output()?.stdout, b"50000 100000\n");
    }
    Ok(())
}

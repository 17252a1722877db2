//! Groups that are made, filled, limited, watched and removed. Limits need controllers of version 2, which a machine
//! with those of version 1 has not got to give.

use super::*;
use crate::{Child, Command, Error, Stdio, Step};
use std::env::temp_dir;
use std::process::id;

const LONG: Duration = Duration::from_secs(20);

/// Where a group can be made here, if anywhere: in our own, or where version 2 is usually mounted.
pub(super) fn parent() -> Option<PathBuf> {
    let places = [Cgroup::own().ok(), Some("/sys/fs/cgroup".into()), Some("/sys/fs/cgroup/unified".into())];
    let found = places.into_iter().flatten().find(|parent| {
        let probe = parent.join(format!("forkless-probe-{}-{:?}", id(), std::thread::current().id()));
        parent.join("cgroup.procs").exists() && fs::create_dir(&probe).and_then(|()| fs::remove_dir(&probe)).is_ok()
    });
    if found.is_none() {
        eprintln!("SKIPPED: cgroups, because no cgroup of version 2 is writable here");
    }
    found
}

fn create(name: &str) -> Option<Cgroup> {
    let group = Cgroup::create(parent()?, &format!("forkless-{name}-{}", id())).expect("a group");
    Some(group)
}

/// A group that can have limits of these controllers.
fn limited(name: &str, controllers: &[&str]) -> Option<Cgroup> {
    let parent = parent()?;
    if let Err(error) = Cgroup::hand_down(&parent, controllers) {
        eprintln!("SKIPPED: {name}, because of the controllers {controllers:?}: {error}");
        return None;
    }
    Some(Cgroup::create(parent, &format!("forkless-{name}-{}", id())).expect("a group"))
}

fn shell(group: &Cgroup, script: &str) -> Child {
    let directory = group.directory().expect("a descriptor");
    Command::new("sh").args(["-c", script]).stderr(Stdio::null()).cgroup(directory).spawn().expect("a child")
}

/// Is anybody in it?
fn processes(group: &Cgroup) -> usize {
    group.get("cgroup.procs").expect("a list").lines().count()
}

#[test]
fn a_name_is_found_and_its_end_is_the_end_of_all_in_it() -> io::Result<()> {
    let Some(parent) = parent() else { return Ok(()) };
    let groups = [Cgroup::with_limits(&parent, &[])?, Cgroup::with_limits(&parent, &[])?];
    let paths = groups.each_ref().map(|group| group.path().to_owned());
    assert!(paths[0] != paths[1] && paths.iter().all(|path| path.parent() == Some(&*parent)), "{paths:?}");
    let mut child = shell(&groups[0], "trap '' TERM; (setsid sleep 1000 &); sleep 1000");
    for group in groups {
        group.end()?;
    }
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&child.wait()?), Some(9));
    assert!(paths.iter().all(|path| !path.exists()));
    // What cannot be set leaves nothing behind.
    let error = Cgroup::with_limits(&parent, &[("cgroup.none", "1")]).expect_err("no such file");
    assert!(error.to_string().contains("cgroup"), "{error}");
    assert!(paths.iter().all(|path| !path.exists()));
    Ok(())
}

#[test]
fn a_launch_into_a_killed_group_works_or_says_why_not() -> io::Result<()> {
    let Some(group) = create("killed") else { return Ok(()) };
    group.kill()?;
    let launched = Command::new("true").cgroup(group.directory()?).status();
    match launched {
        Ok(status) => assert!(status.success(), "{status}"),
        Err(error) => assert!(error.to_string().contains("create another one"), "{error}"),
    }
    group.remove()
}

#[test]
fn a_child_is_born_in_it_killed_with_it_and_it_is_removed() -> io::Result<()> {
    let Some(group) = create("born") else { return Ok(()) };
    let name = group.path().file_name().expect("a name").to_str().expect("text").to_owned();
    let again = Cgroup::create(group.path().parent().expect("a parent"), &name).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AlreadyExists);
    let seen = Command::new("cat").arg("/proc/self/cgroup").cgroup(group.directory()?).output()?;
    assert!(String::from_utf8_lossy(&seen.stdout).contains(&format!("/{name}\n")), "{seen:?}");
    let mut child = Command::new("sleep").arg("1000").cgroup(group.directory()?).kill_on_drop(true).spawn()?;
    assert_eq!(fs::remove_dir(group.path()).unwrap_err().kind(), ErrorKind::ResourceBusy);
    assert!(!group.wait_empty(Duration::from_millis(1))?);
    group.kill()?;
    assert!(group.wait_empty(LONG)?, "nobody was killed");
    assert!(!child.wait()?.success());
    let path = group.path().to_owned();
    drop(group);
    assert!(!path.exists());
    Ok(())
}

#[test]
fn a_group_that_is_gone_is_an_error_of_the_clone() -> io::Result<()> {
    let Some(group) = create("gone") else { return Ok(()) };
    let directory = group.directory()?;
    group.remove()?;
    let error = Command::new("true").cgroup(directory).spawn().unwrap_err();
    assert_eq!(Error::of(&error).unwrap().step(), Step::Clone, "{error}");
    Ok(())
}

#[test]
fn what_others_have_left_in_it_is_killed_and_removed_with_it() -> io::Result<()> {
    let Some(group) = create("tree") else { return Ok(()) };
    let path = group.path().to_owned();
    // A program of the group makes groups below, and leaves a process in the lowest.
    let script = format!(
        "cd {}; mkdir a a/b c; sh -c 'echo $$ >a/b/cgroup.procs; exec sleep 1000' & until grep -q . a/b/cgroup.procs; do :; done",
        path.display()
    );
    assert!(shell(&group, &script).wait()?.success());
    assert!(!group.wait_empty(Duration::ZERO)?, "the sleeper counts for the groups above it");
    let refused = Cgroup { path: path.clone(), directory: group.directory()?, removed: false }.remove().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ResourceBusy, "{refused}");
    assert!(path.join("a/b").exists(), "a group with a process in it stays");
    group.kill()?;
    assert!(group.wait_empty(LONG)?);
    group.remove()?;
    assert!(!path.exists());
    Ok(())
}

#[test]
fn removing_what_has_gone_is_no_error() -> io::Result<()> {
    let Some(group) = create("removed") else { return Ok(()) };
    fs::remove_dir(group.path())?;
    group.remove()
}

#[test]
fn a_kernel_without_kill_kills_each() -> io::Result<()> {
    let Some(group) = create("each") else { return Ok(()) };
    fs::create_dir(group.path().join("below"))?;
    let script = format!("echo $$ >{}/below/cgroup.procs; sleep 1000 & wait", group.path().display());
    let mut children = [shell(&group, "trap '' TERM; sleep 1000 & sleep 1000"), shell(&group, &script)];
    while processes(&group) < 2 {
        std::thread::sleep(Duration::from_millis(1));
    }
    group.kill_each()?;
    for child in &mut children {
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&child.wait()?), Some(9));
    }
    assert!(group.wait_empty(LONG)?);
    group.remove()
}

#[test]
fn the_end_of_a_group_is_asked_for_and_then_made() -> io::Result<()> {
    use std::os::unix::process::ExitStatusExt;
    let Some(group) = create("terminate") else { return Ok(()) };
    fs::create_dir(group.path().join("below"))?;
    let ready = |count: usize| {
        while processes(&group) < count {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    assert_eq!(group.terminate(0, LONG).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert!(group.terminate(15, LONG)?, "nobody is in it");
    assert_eq!(group.get("cgroup.freeze")?, "0", "nobody that comes later is frozen");
    // Willing: one in the group, one below, one stopped, one in a session of its own.
    let below = format!("echo $$ >{}/below/cgroup.procs; exec sleep 1000", group.path().display());
    let mut willing = ["exec sleep 1000", &below, "kill -STOP $$; exec sleep 1000", "exec setsid sleep 1000"]
        .map(|script| shell(&group, script));
    ready(3);
    assert!(group.terminate(15, LONG)?);
    for child in &mut willing {
        assert_eq!(child.wait()?.signal(), Some(15));
    }
    // A program may have made a threaded group, which lists no processes.
    fs::create_dir(group.path().join("threaded"))?;
    write(&group.path().join("threaded"), "cgroup.type", "threaded")?;
    let threaded = format!("echo $$ >{}/threaded/cgroup.threads; exec sleep 1000", group.path().display());
    let mut threaded = shell(&group, &threaded);
    while group.get("threaded/cgroup.threads")?.is_empty() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(group.terminate(15, LONG)?);
    assert_eq!(threaded.wait()?.signal(), Some(15));
    fs::remove_dir(group.path().join("threaded"))?;
    // Frozen, they hear all the same; one of them is deaf.
    let mut deaf = [shell(&group, "trap '' TERM; sleep 1000 & wait"), shell(&group, "exec sleep 1000")];
    ready(3);
    group.freeze()?;
    assert!(!group.terminate(15, Duration::from_millis(50))?);
    assert_eq!(group.get("cgroup.freeze")?, "0");
    assert_eq!([deaf[0].wait()?.signal(), deaf[1].wait()?.signal()], [Some(9), Some(15)]);
    assert!(group.wait_empty(Duration::ZERO)?);
    group.remove()
}

/// The exec is waited for as after vfork(2), which no limit ends. A forked child has a limit.
#[test]
fn a_launch_into_a_frozen_cgroup_waits_until_it_is_thawed() -> io::Result<()> {
    let Some(group) = create("launched-into") else { return Ok(()) };
    let (directory, limit) = (group.directory()?, crate::Capture::new().timeout(Duration::from_millis(50)));
    group.freeze()?;
    let vfork = std::thread::spawn({
        let limit = limit.clone();
        move || Command::new("true").cgroup(directory).capture(&limit)
    });
    let forked = Command::new("true").launcher(crate::Launcher::Fork).cgroup(group.directory()?).capture(&limit)?;
    assert!(!forked.status.success());
    std::thread::sleep(Duration::from_millis(100));
    assert!(!vfork.is_finished());
    group.thaw()?;
    vfork.join().expect("a thread")?;
    group.remove()
}

#[test]
fn frozen_is_stopped_until_thawed() -> io::Result<()> {
    let Some(group) = create("frozen") else { return Ok(()) };
    let mut child =
        Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).cgroup(group.directory()?).spawn()?;
    group.freeze()?;
    assert!(group.wait_frozen(LONG)?);
    let (mut input, mut output) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
    input.write_all(b"x")?;
    let mut ready = [rustix::event::PollFd::new(&output, rustix::event::PollFlags::IN)];
    let moment = rustix::event::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    assert_eq!(rustix::event::poll(&mut ready, Some(&moment))?, 0, "it must not answer");
    group.thaw()?;
    let mut answer = [0];
    io::Read::read_exact(&mut output, &mut answer)?;
    drop(input);
    assert!(child.wait()?.success());
    group.remove()
}

#[test]
fn our_own_group_is_the_one_that_lists_us() {
    let Ok(own) = Cgroup::own() else {
        return eprintln!("SKIPPED: cgroup of this process, because no cgroup of version 2 is visible here");
    };
    let list = fs::read_to_string(own.join("cgroup.procs")).expect("a list");
    assert!(list.lines().any(|line| line.parse() == Ok(id())), "{own:?}: {list}");
}

#[test]
fn errors_name_the_file_and_what_may_be_done() -> io::Result<()> {
    let Some(group) = create("errors") else { return Ok(()) };
    let error = group.set("no.such.file", "1").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(
        error.to_string().contains("no.such.file")
            && error.to_string().contains("parent cgroup does not enable \"no\""),
        "{error}"
    );
    let error = Cgroup::hand_down(group.path(), &["no-such-controller"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("no controller \"no-such-controller\""), "{error}");
    let error = group.set("cgroup.freeze", "nonsense").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("cgroup.freeze"), "{error}");
    let error = Cgroup::create(temp_dir().join("no/such/place"), "x").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let error = Cgroup::create(temp_dir(), "forkless-no-group").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert!(!temp_dir().join("forkless-no-group").exists());
    // A name that leads out of the parent: the handle would be of a directory elsewhere.
    let elsewhere = temp_dir().join(format!("forkless-elsewhere-{}", id()));
    let up = format!("../forkless-beside-{}", id());
    for name in [elsewhere.to_str().expect("text"), &up, "", ".", "..", "in/side", "in/"] {
        let error = Cgroup::create(group.path(), name).expect_err(name);
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{name}: {error}");
    }
    assert!(!elsewhere.exists());
    Cgroup::hand_down(group.path(), &[])
}

// ---- limits ----

#[test]
fn a_group_with_processes_hands_nothing_down() -> io::Result<()> {
    let Some(group) = limited("full", &["pids"]) else { return Ok(()) };
    let mut child = shell(&group, "exec sleep 1000");
    let error = Cgroup::hand_down(group.path(), &["pids"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceBusy);
    assert!(error.to_string().contains("enable +pids for the cgroups below: it contains processes"), "{error}");
    assert_eq!(group.get("cgroup.type")?, "domain");
    group.kill()?;
    child.wait()?;
    assert!(group.wait_empty(LONG)?);
    // Without them it does; and what it hands down can be said again.
    Cgroup::hand_down(group.path(), &["pids"])?;
    Cgroup::hand_down(group.path(), &["pids"])?;
    let inner = Cgroup::create(group.path(), "in")?;
    inner.pids_max(3)?;
    assert!(shell(&inner, "exit 0").wait()?.success());
    group.remove()
}

#[test]
fn memory_is_limited_and_its_lack_told() -> io::Result<()> {
    let Some(group) = limited("memory", &["memory"]) else { return Ok(()) };
    group.memory_max(16 << 20)?.memory_high(u64::MAX)?;
    if let Err(error) = group.memory_swap_max(0) {
        eprintln!("SKIPPED: a limit of swap, because of {error}");
    }
    assert_eq!((group.get("memory.max")?, group.get("memory.high")?), ("16777216".into(), "max".into()));
    assert!(shell(&group, "x=a; for n in 1 2 3 4 5 6 7 8 9 10; do x=$x$x; done").wait()?.success());
    assert_eq!(group.oom_kills()?, 0);
    let status = shell(&group, "x=a; while :; do x=$x$x; done").wait()?;
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{status:?}");
    assert_eq!(group.oom_kills()?, 1);
    match group.memory_peak() {
        Ok(peak) => assert!((1 << 20..=16 << 20).contains(&peak), "{peak}"),
        Err(error) => eprintln!("SKIPPED: the peak of memory, because of {error}"),
    }
    group.memory_max(u64::MAX)?;
    assert_eq!(group.get("memory.max")?, "max");
    group.remove()
}

#[test]
fn above_the_high_mark_it_is_slowed_down() -> io::Result<()> {
    let Some(group) = limited("high", &["memory"]) else { return Ok(()) };
    group.memory_high(4 << 20)?;
    // One read into a buffer as large: each return to a program above the mark may take two seconds.
    shell(&group, "dd if=/dev/zero of=/dev/null bs=4M count=1").wait()?;
    assert!(group.counters("memory.events")?["high"] > 0);
    assert_eq!(group.oom_kills()?, 0, "a mark, not a limit");
    group.remove()
}

#[test]
fn processes_are_limited() -> io::Result<()> {
    let Some(group) = limited("processes", &["pids"]) else { return Ok(()) };
    group.pids_max(3)?;
    // A shell gives up at the first fork that fails; what it has started by then stays.
    assert!(!shell(&group, "for n in 1 2 3 4; do sleep 1000 & done").wait()?.success());
    assert_eq!(processes(&group), 2);
    assert!(group.counters("pids.events")?["max"] > 0);
    let mut third = shell(&group, "read x");
    let error = Command::new("true").cgroup(group.directory()?).spawn().unwrap_err();
    assert_eq!(Error::of(&error).and_then(Error::errno), Some(11), "the group is full: {error}");
    match group.pids_peak() {
        Ok(peak) => assert_eq!(peak, 3),
        Err(error) => eprintln!("SKIPPED: the most processes, because of {error}"),
    }
    group.kill()?;
    third.wait()?;
    assert!(group.wait_empty(LONG)?);
    group.remove()
}

#[test]
fn processor_time_is_limited_and_counted() -> io::Result<()> {
    let Some(group) = limited("cpu", &["cpu"]) else { return Ok(()) };
    group.cpu_max(1_000, 100_000)?.cpu_weight(50)?;
    assert_eq!((group.get("cpu.max")?, group.get("cpu.weight")?), ("1000 100000".into(), "50".into()));
    // A grandchild that nobody waits for counts too. It goes on until it has met its limit.
    let mut child = shell(&group, "while :; do :; done & wait");
    let start = std::time::Instant::now();
    while group.counters("cpu.stat")?["nr_throttled"] == 0 {
        assert!(start.elapsed() < LONG, "{:?}", group.counters("cpu.stat")?);
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(group.cpu_time()? > Duration::ZERO);
    assert!(group.cpu_weight(0).is_err());
    group.kill()?;
    child.wait()?;
    assert!(group.wait_empty(LONG)?);
    group.remove()
}

#[test]
fn disks_are_shared_by_weight() -> io::Result<()> {
    let Some(group) = limited("disks", &["io"]) else { return Ok(()) };
    match group.io_weight(250) {
        Ok(_) => assert_eq!(group.get("io.weight")?, "default 250"),
        Err(error) => eprintln!("SKIPPED: the weight at disks, because of {error}"),
    }
    group.remove()
}

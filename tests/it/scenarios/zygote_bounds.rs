//! The comparison of a caller with its zygote, if the kernel's text is long.

use crate::observe::skip;
use crate::zygote::{error_of, says, shell, zygote};
use forkless::zygote::Zygote;
use forkless::{Command, Stdio, Step};
use std::fs;
use std::path::PathBuf;
use std::{env, io, process, thread};

fn is_root() -> bool {
    forkless_tests::process::is_root()
}

scenario!(a_caller_with_a_thousand_groups_launches);
/// A thousand supplementary groups make `/proc/PID/status` longer than a page.
pub fn a_caller_with_a_thousand_groups_launches(_: &[String]) {
    const MANY: u32 = 1_000;
    if !is_root() {
        return skip("a zygote of a caller with many groups", "it needs root");
    }
    let become_member = |first: u32| {
        let groups: Vec<u32> = (first..first + MANY).collect();
        // SAFETY: this process alone, which has one thread.
        assert_eq!(unsafe { libc::setgroups(groups.len(), groups.as_ptr()) }, 0);
    };
    become_member(1_000_000_000);
    let length = fs::read("/proc/self/status").expect("status").len();
    assert!(length > 4096, "{length} bytes");
    let zygote = zygote();
    let count = "grep Groups: /proc/$$/status | wc -w";
    assert_eq!(says(&zygote, count), (MANY + 1).to_string());
    // What stands behind the groups is read as well.
    // SAFETY: as above.
    unsafe { libc::signal(libc::SIGUSR1, libc::SIG_IGN) };
    let ignored = says(&zygote, "grep SigIgn: /proc/$$/status");
    let ignored = ignored.split_whitespace().last().and_then(|mask| u64::from_str_radix(mask, 16).ok());
    assert_eq!(ignored.map(|mask| mask >> (libc::SIGUSR1 - 1) & 1), Some(1));
    assert_eq!(zygote.stats().starts, 1, "none of this needs another helper");
    // The last of them is another one.
    become_member(1_000_000_001);
    let last = says(&zygote, "grep Groups: /proc/$$/status").split_whitespace().last().map(str::to_owned);
    assert_eq!(last, Some((1_000_000_000 + MANY).to_string()));
    assert_eq!(zygote.stats().starts, 2);
}

/// A chain of cgroups, as deep as it is asked for, with the process in the last; all of it is removed at the end.
struct Chain {
    mount: PathBuf,
    before: String,
    depth: usize,
}

impl Chain {
    fn new() -> io::Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let mut fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let mount = fields.find(|fields| fields.get(2) == Some(&"cgroup2")).map(|fields| PathBuf::from(fields[1]));
        let mount = mount.ok_or_else(|| io::Error::other("no cgroup2 is mounted"))?;
        let own = fs::read_to_string("/proc/self/cgroup")?;
        let before = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default().to_owned();
        env::set_current_dir(&mount)?;
        let mut chain = Self { mount, before, depth: 0 };
        chain.deepen(&format!("forkless-test-{}", process::id()))?;
        Ok(chain)
    }

    /// Another level, which becomes the working directory.
    fn deepen(&mut self, name: &str) -> io::Result<()> {
        fs::create_dir(name)?;
        self.depth += 1;
        env::set_current_dir(name)
    }

    /// Puts the whole process into a group of the working directory.
    fn enter(&self, name: &str) {
        move_to(&format!("{name}/cgroup.procs"), process::id());
    }
}

fn move_to(file: &str, id: u32) {
    let write = || io::Write::write_all(&mut fs::OpenOptions::new().write(true).open(file)?, id.to_string().as_bytes());
    write().unwrap_or_else(|error| panic!("{file}: {error}"));
}

impl Drop for Chain {
    fn drop(&mut self) {
        move_to(&self.mount.join(&self.before).join("cgroup.procs").to_string_lossy(), process::id());
        for _ in 0..self.depth {
            for entry in fs::read_dir(".").into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    let _ = fs::remove_dir(entry.path());
                }
            }
            let _ = env::set_current_dir("..");
        }
        let _ = fs::remove_dir(format!("forkless-test-{}", process::id()));
    }
}

/// The end of the path of the cgroup that a child of the zygote is in.
fn group_of_child(zygote: &Zygote) -> String {
    let path = says(zygote, "grep ^0:: /proc/$$/cgroup");
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

/// A chain, unless this process may not create one.
fn chain(what: &str) -> Option<Chain> {
    if !is_root() {
        skip(what, "it needs root");
        return None;
    }
    Chain::new().map_err(|error| skip(what, &format!("no cgroup can be made: {error}"))).ok()
}

scenario!(a_move_to_another_cgroup_is_noticed_however_long_its_path);
/// A caller moves between cgroups whose paths begin alike.
pub fn a_move_to_another_cgroup_is_noticed_however_long_its_path(_: &[String]) {
    let Some(mut chain) = chain("a zygote of a caller that moves between cgroups") else { return };
    for _ in 0..4 {
        chain.deepen(&"long".repeat(25)).expect("a cgroup");
    }
    for name in ["one", "two"] {
        fs::create_dir(name).expect("a cgroup");
    }
    chain.enter("one");
    let zygote = zygote();
    assert_eq!(group_of_child(&zygote), "one");
    assert_eq!(zygote.stats().starts, 1);
    chain.enter("two");
    assert_eq!(group_of_child(&zygote), "two");
    assert_eq!(zygote.stats().starts, 2);
    drop(zygote);
}

scenario!(a_thread_in_a_cgroup_of_its_own_has_its_children_there);
/// A thread may be in a cgroup of its own: its children are born there, or not at all.
pub fn a_thread_in_a_cgroup_of_its_own_has_its_children_there(_: &[String]) {
    const WHAT: &str = "a zygote of a thread in a cgroup of its own";
    let Some(chain) = chain(WHAT) else { return };
    fs::create_dir("thread").expect("a cgroup");
    chain.enter(".");
    if let Err(error) = fs::write("thread/cgroup.type", "threaded") {
        return skip(WHAT, &format!("it cannot be made: {error}"));
    }
    let zygote = zygote();
    assert_ne!(group_of_child(&zygote), "thread");
    thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: reads a number.
            move_to("thread/cgroup.threads", unsafe { libc::gettid() } as u32);
            match zygote.output(&shell("grep ^0:: /proc/$$/cgroup")) {
                Ok(output) => {
                    assert!(String::from_utf8_lossy(&output.stdout).trim().ends_with("/thread"), "{output:?}")
                }
                Err(error) => assert!(error.to_string().contains("attributes: cgroup"), "{error}"),
            }
        });
    });
    drop(zygote);
}

scenario!(each_launch_may_have_a_cgroup_of_its_own);
/// Each launch may make a cgroup for its child. Here it is below the caller's, which is the working directory.
pub fn each_launch_may_have_a_cgroup_of_its_own(_: &[String]) {
    let Some(_chain) = chain("a cgroup for each launch of a zygote") else { return };
    let groups = || fs::read_dir(".").expect("a directory").flatten().filter(|one| one.path().is_dir()).count();
    let mut command = Command::new("sh");
    command.args(["-c", "(setsid sleep 1000 &); read line; exit 4"]).cgroup_parent(".").stdin(Stdio::piped());
    let mut child = zygote().spawn(&command.prepare().expect("a plan")).expect("a child");
    assert_eq!((groups(), child.wait().expect("its end").code(), groups()), (1, Some(4), 0));
}

scenario!(a_cgroup_with_an_unreadable_path_is_refused);
/// The kernel cuts a path that is longer than PATH_MAX, or refuses to report it: a caller there may have come from anywhere.
pub fn a_cgroup_with_an_unreadable_path_is_refused(_: &[String]) {
    let Some(mut chain) = chain("a zygote of a caller in a cgroup with too long a path") else { return };
    let zygote = zygote();
    for _ in 0..17 {
        chain.deepen(&"deep".repeat(60)).expect("a cgroup");
    }
    for name in ["one", "two"] {
        fs::create_dir(name).expect("a cgroup");
        chain.enter(name);
        let reported = fs::read("/proc/self/cgroup").unwrap_or_default();
        assert!(!reported.ends_with(format!("/{name}\n").as_bytes()), "the whole path is reported");
        let error = error_of(zygote.output(&shell("true")));
        assert_eq!(error.step(), Step::Zygote, "{error}");
        assert!(error.to_string().contains("attributes: cgroup"), "{error}");
    }
    drop(zygote);
}

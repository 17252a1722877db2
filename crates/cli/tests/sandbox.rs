//! Sandboxing options of `forkless run`: namespaces, mounts, capabilities, filters. Run as root and as an ordinary user,
//! who creates a user namespace for it. Also runs the example in docs/run.md.

testing::usual_surroundings!();

mod callers;

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    path::Path,
    process::{Child, Stdio},
};

use callers::{Caller, binary, directory, skipped};

const CAP_SETUID: u32 = 7;
const CAP_NET_RAW: u32 = 13;
const CAP_SYS_ADMIN: u32 = 21;

/// `words`, preceded by `--unshare-user` for an ordinary user, who has no privileges without it.
fn allowed<'a>(caller: Caller, words: &[&'a str]) -> Vec<&'a str> {
    let first: &[&str] = if caller == Caller::Ordinary { &["--unshare-user"] } else { &[] };
    [first, words].concat()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are text")
}

// ---- namespaces ----

#[test]
fn each_namespace_is_created_only_on_request() {
    let kinds = ["net", "pid", "uts", "ipc", "cgroup", "time", "mnt"];
    // Before Linux 6.3 only the children of the program are in a new time namespace.
    let link = |kind: &&str| format!("/proc/self/ns/{}", if *kind == "time" { "time_for_children" } else { kind });
    let links: Vec<String> = kinds.iter().map(link).collect();
    for caller in Caller::with_user_namespaces("each_namespace_is_created_only_on_request") {
        let look = |option: &[&str]| -> Vec<String> {
            let links: Vec<&str> = links.iter().map(String::as_str).collect();
            let words = [option, &["readlink"], &links].concat();
            caller.stdout(&allowed(caller, &words)).lines().map(str::to_owned).collect()
        };
        let ours = look(&[]);
        for kind in kinds {
            let option = format!("--unshare-{}", if kind == "mnt" { "mount" } else { kind });
            for (number, link) in look(&[&option]).iter().enumerate() {
                assert_eq!(*link != ours[number], kinds[number] == kind, "{caller:?} {option}: {link}");
            }
        }
        let all = look(&["--unshare-all"]);
        for (number, kind) in kinds.iter().enumerate() {
            assert_eq!(all[number] != ours[number], *kind != "time", "{caller:?} {kind}");
        }
    }
}

#[test]
fn user_and_group_ids_are_mapped() {
    for caller in Caller::with_user_namespaces("user_and_group_ids_are_mapped") {
        let ids = |options: &[&str]| caller.stdout(&[options, &["sh", "-c", "echo $(id -u) $(id -g)"]].concat());
        let same = caller.stdout(&["sh", "-c", "echo $(id -u) $(id -g)"]);
        assert_eq!(ids(&["--map-root-user"]), "0 0\n");
        assert_eq!(ids(&["--map-current-user"]), same);
        assert_eq!(ids(&["--unshare-user"]), same);
        let (users, groups) = (format!("--map-users=5:{}:1", caller.uid()), "--map-groups=6:0:1");
        let groups =
            if caller == Caller::Root { groups.to_owned() } else { format!("--map-groups=6:{}:1", gid(caller)) };
        assert_eq!(ids(&[&users, &groups]), "5 6\n");
        // The error of a map names the file in /proc that rejected it.
        let refused = caller.failure(&["--map-users=0:4294967290:10", "true"]);
        assert!(refused.contains("uid_map"), "{refused}");
    }
    let Some(root) = Caller::root_with("user_and_group_ids_are_mapped, many", CAP_SETUID) else { return };
    let options = ["--map-users=0:100000:10", "--map-groups=0:100000:10", "--reuid=5", "--regid=6", "--groups=7,8"];
    let seen = root.stdout(&[&options[..], &["sh", "-c", "id -u; id -g; id -G"]].concat());
    assert_eq!(seen, "5\n6\n6 7 8\n");
}

fn gid(caller: Caller) -> u32 {
    caller.stdout(&["id", "-g"]).trim().parse().expect("a number")
}

#[test]
fn network_namespace_has_only_a_loopback_device() {
    for caller in Caller::with_user_namespaces("network_namespace_has_only_a_loopback_device") {
        let seen = caller.stdout(&allowed(caller, &["--unshare-net", "cat", "/proc/net/dev"]));
        let devices: Vec<_> = seen.lines().skip(2).filter_map(|line| line.split(':').next()).map(str::trim).collect();
        assert!(devices.contains(&"lo") && !devices.contains(&"eth0"), "{seen}");
    }
}

#[test]
fn hostname_changes_only_in_the_uts_namespace() {
    for caller in Caller::with_user_namespaces("hostname_changes_only_in_the_uts_namespace") {
        let before = fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
        let words = ["--unshare-uts", "--hostname=box-7", "cat", "/proc/sys/kernel/hostname"];
        assert_eq!(caller.stdout(&allowed(caller, &words)), "box-7\n");
        assert_eq!(fs::read_to_string("/proc/sys/kernel/hostname").expect("a name"), before);
    }
}

#[test]
fn program_is_pid_1_in_a_pid_namespace() {
    for caller in Caller::with_user_namespaces("program_is_pid_1_in_a_pid_namespace") {
        assert_eq!(caller.stdout(&allowed(caller, &["--unshare-pid", "sh", "-c", "echo $$"])), "1\n");
        let words = allowed(caller, &["--unshare-pid", "--timeout=100ms", "--kill-after=100ms", "sleep", "60"]);
        assert_eq!(caller.output(&words).status.code(), Some(137), "PID 1 ignores TERM");
    }
}

#[test]
fn join_enters_a_pid_namespace() {
    let test = "join_enters_a_pid_namespace";
    for caller in Caller::with_user_namespaces(test) {
        let (mut held, _) = holder(caller, &["--unshare-pid"]);
        // Its PID in this namespace: the only child of the forkless that holds it.
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", held.id()));
        match children.map(|list| list.trim().to_owned()) {
            Err(_) => skipped(test, "this kernel has no /proc/PID/task/TID/children"),
            Ok(pid) if caller == Caller::Root => {
                let option = format!("--join=pid=/proc/{pid}/ns/pid");
                let number: u32 = caller.stdout(&[&option, "sh", "-c", "echo $$"]).trim().parse().expect("a number");
                assert!((2..100).contains(&number), "PIDs in the namespace start at 1: {number}");
                let theirs = format!("/proc/{pid}/ns/pid");
                let same = caller.stdout(&[&option, "readlink", "/proc/self/ns/pid", &theirs]);
                let lines: Vec<&str> = same.lines().collect();
                assert!(lines.len() == 2 && lines[0] == lines[1], "{same}");
                assert_eq!(caller.output(&[&option, "--timeout=50ms", "sleep", "60"]).status.code(), Some(124));
            }
            Ok(pid) => {
                // The thread that joins the PID namespace cannot join the user namespace first, as the program does.
                let options = ["user", "pid"].map(|kind| format!("--join={kind}=/proc/{pid}/ns/{kind}"));
                let refused = caller.failure(&[&options[0], &options[1], "true"]);
                assert!(refused.contains("join a namespace Pid") && refused.contains("CAP_SYS_ADMIN"), "{refused}");
            }
        }
        drop(held.stdin.take());
        held.wait().expect("ends");
    }
}

/// A program in new namespaces that waits until its input ends, and its PID.
fn holder(caller: Caller, options: &[&str]) -> (Child, String) {
    let words = [options, &["sh", "-c", "echo $$; read -r line"]].concat();
    let mut command = caller.forkless(&allowed(caller, &words));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("forkless starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    (child, line.trim().to_owned())
}

#[test]
fn join_enters_user_network_and_uts_namespaces() {
    for caller in Caller::with_user_namespaces("join_enters_user_network_and_uts_namespaces") {
        let (mut held, pid) = holder(caller, &["--unshare-net", "--unshare-uts", "--hostname=held"]);
        let path = |kind: &str| format!("--join={kind}=/proc/{pid}/ns/{kind}");
        let (user, net, uts) = (path("user"), path("net"), path("uts"));
        let mut words = vec![net.as_str(), &uts, "cat", "/proc/net/dev", "/proc/sys/kernel/hostname"];
        if caller == Caller::Ordinary {
            words.insert(0, &user);
        }
        let seen = caller.stdout(&words);
        assert!(seen.ends_with("held\n") && !seen.contains("eth0"), "{seen}");
        if caller == Caller::Ordinary {
            let words = [&user, "--bounding-set=-all,+net_raw", "--ambient-caps=+net_raw"];
            for name in ["CapBnd", "CapEff"] {
                assert_eq!(u64::from_str_radix(&caller.status(&words, name), 16), Ok(1 << CAP_NET_RAW), "{name}");
            }
        }
        drop(held.stdin.take());
        held.wait().expect("ends");
    }
}

// ---- mounts ----

#[test]
fn mounts_are_made_in_the_given_order() {
    let directory = directory();
    for name in ["source", "target", "other"] {
        fs::create_dir(directory.path().join(name)).expect("mkdir");
    }
    let paths = ["source", "target", "other"].map(|name| directory.path().join(name));
    fs::write(paths[0].join("file"), "here").expect("write");
    let [source, target, other] = paths.each_ref().map(|path| text(path));
    for caller in Caller::with_user_namespaces("mounts_are_made_in_the_given_order") {
        let run = |options: &[&str], script: &str| {
            caller.stdout(&allowed(caller, &[options, &["sh", "-c", script]].concat()))
        };
        let look = format!("ls {target}; [ -w {target} ] && echo writable || echo fixed");
        assert_eq!(run(&["--bind", source, target], "true"), "");
        assert_eq!(run(&["--ro-bind", source, target], &look), "file\nfixed\n");
        assert_eq!(run(&["--tmpfs", target], &look), "writable\n");
        assert_eq!(run(&["--tmpfs", target, "--remount-ro", target], &look), "fixed\n");
        // The last mount is on top.
        assert_eq!(run(&["--ro-bind", source, target, "--tmpfs", target], &look), "writable\n");
        assert_eq!(run(&["--tmpfs", target, "--ro-bind", source, target], &look), "file\nfixed\n");
        // A mount made after the root became read-only is writable.
        let both = format!("[ -w {target} ] && echo writable; [ -w {other} ] || echo fixed");
        assert_eq!(run(&["--remount-ro", "/", "--tmpfs", target], &both), "writable\nfixed\n");
        assert_eq!(fs::read_dir(&paths[1]).expect("target").count(), 0, "mounts must not be visible outside");
        let missing = caller.failure(&allowed(caller, &["--bind", "/no/such/source", target, "true"]));
        assert!(missing.contains("mount \"/no/such/source\" at "), "{missing}");
    }
}

/// On most machines mounts are shared between namespaces: a copy of one would get what is mounted later, and pass on its own.
#[test]
fn later_mounts_do_not_cross_the_border_of_a_mount_namespace() {
    const TEST: &str = "later_mounts_do_not_cross_the_border_of_a_mount_namespace";
    if Caller::root_with(TEST, CAP_SYS_ADMIN).is_none() {
        return;
    }
    for caller in Caller::with_user_namespaces(TEST) {
        // A thread can have a mount namespace of its own, and its children start in that.
        std::thread::scope(|scope| {
            scope.spawn(|| later_mounts(caller)).join().expect("no mount crosses the border");
        });
    }
}

fn later_mounts(caller: Caller) {
    let directory = directory();
    let (path, late) = (text(directory.path()), directory.path().join("late"));
    // SAFETY: changes the mounts and the working directory of this thread alone.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNS) }, 0, "a mount namespace");
    let mount = |place: &Path, flags: &[&str]| {
        let done = std::process::Command::new("mount").args(flags).arg(place).status();
        assert!(done.expect("mount(8)").success(), "{flags:?} {place:?}");
    };
    mount(Path::new("/"), &["--make-rprivate"]);
    mount(directory.path(), &["-t", "tmpfs", "-o", "mode=755", "none"]);
    mount(directory.path(), &["--make-shared"]);
    fs::create_dir(&late).expect("mkdir");
    // Without a namespace the program sees the mount.
    let bound = ["--sandbox", "--bind", path, "/shown"];
    for (options, place, wanted) in [
        (vec![], path, "from the host\n"),
        (allowed(caller, &["--unshare-mount"]), path, ""),
        (bound.to_vec(), "/shown", ""),
    ] {
        let script = format!("echo ready; read -r line; ls -A {place}/late");
        let mut command = caller.forkless(&[&options[..], &["sh", "-c", &script]].concat());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("forkless starts");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        output.read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n", "{caller:?} {options:?}");
        mount(&late, &["-t", "tmpfs", "none"]);
        fs::write(late.join("from the host"), "").expect("write");
        child.stdin.take().expect("a pipe").write_all(b"go\n").expect("write");
        let seen = std::io::read_to_string(output).expect("text");
        assert_eq!(seen, wanted, "{caller:?} {options:?}: a later mount of the host");
        assert!(child.wait().expect("ends").success(), "{caller:?} {options:?}");
        assert!(std::process::Command::new("umount").arg(&late).status().expect("umount(8)").success());
    }
    // The other direction: the mount lasts as long as the program, and its copy on the host would stay.
    // An ordinary user may not attach a mount of this namespace.
    if let (Caller::Root, Ok(tree)) = (caller, open_tree(directory.path())) {
        let number = tree.as_raw_fd().to_string();
        caller.stdout(&["--attach-mount", &number, "/srv", "--tmpfs", "/srv/late", "true"]);
    }
    let words = allowed(caller, &["--unshare-mount", "--tmpfs", text(&late), "true"]);
    assert!(caller.output(&words).status.success(), "{caller:?}");
    let mounts = fs::read_to_string("/proc/thread-self/mounts").expect("mounts");
    assert!(mount_at(&mounts, text(&late)).is_none(), "{caller:?}: a mount of the program on the host: {mounts}");
}

#[test]
fn proc_shows_only_processes_of_the_pid_namespace() {
    for caller in Caller::with_user_namespaces("proc_shows_only_processes_of_the_pid_namespace") {
        let script = "cd /proc; ls -d [0-9]*";
        let words = allowed(caller, &["--unshare-pid", "--proc", "/proc", "sh", "-c", script]);
        let output = caller.output(&words);
        let words = String::from_utf8_lossy(&output.stderr);
        if words.contains("mount \"proc\"") && words.contains("not permitted") {
            skipped(
                "proc_shows_only_processes_of_the_pid_namespace",
                "mounts hide parts of /proc, so procfs cannot be mounted",
            );
            continue;
        }
        assert_eq!(String::from_utf8_lossy(&output.stdout).lines().next(), Some("1"), "{output:?}");
        assert!(output.stdout.len() < 12, "{output:?}");
    }
}

#[test]
fn pivot_root_and_chroot_change_the_root() {
    let directory = directory();
    let root = text(directory.path());
    for caller in Caller::with_user_namespaces("pivot_root_and_chroot_change_the_root") {
        let inside = format!("{root}/srv");
        let words = [
            "--bind",
            "/",
            root,
            "--tmpfs",
            &inside,
            "--pivot-root",
            root,
            "sh",
            "-c",
            "ls /srv; cat /proc/self/mounts",
        ];
        let seen = caller.stdout(&allowed(caller, &words));
        assert!(seen.contains("tmpfs /srv tmpfs"), "{seen}");
        assert!(!seen.contains(root), "the old root must be unmounted: {seen}");
        let refused = caller.failure(&allowed(caller, &["--pivot-root", root, "true"]));
        assert!(refused.contains("mount point"), "{refused}");
        // --chdir is resolved inside the new root.
        let refused = caller.failure(&allowed(caller, &["--chroot=/usr", "--chdir=/usr", "true"]));
        assert!(refused.contains("chdir \"/usr\""), "{refused}");
        let words = allowed(caller, &["--chroot=/", "--chdir=/usr", "pwd"]);
        assert_eq!(caller.stdout(&words), "/usr\n");
        let refused = caller.failure(&allowed(caller, &["--chroot=/no/such/root", "true"]));
        assert!(refused.contains("chroot \"/no/such/root\""), "{refused}");
    }
}

/// The last line of `/proc/self/mounts` for this mount point.
fn mount_at<'a>(mounts: &'a str, place: &str) -> Option<&'a str> {
    mounts.lines().rfind(|line| line.split(' ').nth(1) == Some(place))
}

#[test]
fn tmpfs_dir_symlink_and_mount_apply_their_options() {
    for caller in Caller::with_user_namespaces("tmpfs_dir_symlink_and_mount_apply_their_options") {
        let run = |words: &[&str]| caller.stdout(&allowed(caller, words));
        let words = ["--size=1M", "--perms=700", "--tmpfs=/srv", "--tmpfs=/mnt", "cat", "/proc/self/mounts"];
        let seen = run(&words);
        let (first, second) = (mount_at(&seen, "/srv").expect("a mount"), mount_at(&seen, "/mnt").expect("a mount"));
        assert!(first.contains("size=1024k") && first.contains("mode=700"), "{seen}");
        assert!(!second.contains("size=1024k") && !second.contains("mode=700"), "{seen}");
        let words = ["--tmpfs=/srv", "--perms=710", "--dir=/srv/a", "--dir=/srv/a/b", "--symlink", "a/b", "/srv/c"];
        let script = "stat -c %a /srv/a /srv/a/b; readlink /srv/c; cd /srv/c";
        let answer = caller.output(&allowed(caller, &[&words[..], &["sh", "-c", script]].concat()));
        assert_eq!(String::from_utf8_lossy(&answer.stdout), "710\n755\na/b\n", "{answer:?}");
        let words = ["--mount", "tmpfs", "size=2m,mode=711,noexec,nosuid", "/srv", "cat", "/proc/self/mounts"];
        let seen = run(&words);
        let line = mount_at(&seen, "/srv").expect("a mount");
        for option in ["noexec", "nosuid", "size=2048k", "mode=711"] {
            assert!(line.contains(option), "{option}: {line}");
        }
        let refused = caller.failure(&allowed(caller, &["--mount", "tmpfs", "nonsense=1", "/srv", "true"]));
        assert!(refused.contains("parameter \"nonsense\""), "{refused}");
        let refused = caller.failure(&allowed(caller, &["--mount", "nonsensefs", "defaults", "/srv", "true"]));
        assert!(refused.contains("nonsensefs"), "{refused}");
    }
}

#[test]
fn remount_and_umount_change_mounts() {
    for caller in Caller::with_user_namespaces("remount_and_umount_change_mounts") {
        let look = |words: &[&str]| {
            let seen = caller.stdout(&allowed(caller, &[words, &["cat", "/proc/self/mounts"]].concat()));
            mount_at(&seen, "/srv").map(|line| line.split(' ').nth(3).expect("options").to_owned())
        };
        let made = ["--tmpfs", "/srv"];
        let changed =
            look(&[&made[..], &["--remount", "nosuid,nodev,noexec,noatime", "/srv"]].concat()).expect("a mount");
        for option in ["nosuid", "nodev", "noexec", "noatime"] {
            assert!(changed.split(',').any(|one| one == option), "{option}: {changed}");
        }
        let both = ["--remount", "noexec,ro", "/srv", "--remount", "exec,rw", "/srv"];
        let changed = look(&[&made[..], &both].concat()).expect("a mount");
        assert!(changed.starts_with("rw") && !changed.contains("noexec"), "{changed}");
        assert_eq!(look(&[&made[..], &["--umount", "/srv"]].concat()), None);
    }
}

#[test]
fn dev_mounts_a_minimal_dev() {
    for caller in Caller::with_user_namespaces("dev_mounts_a_minimal_dev") {
        let script = "cd /dev; ls; echo x >null && head -c 3 zero | od -An -c; readlink stdin; echo x >shm/x; ls pts";
        let answer = caller.output(&allowed(caller, &["--dev", "/dev", "sh", "-c", script]));
        let seen = String::from_utf8_lossy(&answer.stdout).into_owned();
        assert!(answer.status.success(), "{answer:?}");
        for name in ["full", "null", "pts", "random", "shm", "stderr", "stdin", "stdout", "urandom", "zero"] {
            assert!(seen.lines().any(|line| line == name), "{name}: {seen}");
        }
        assert!(seen.contains("\\0  \\0  \\0") && seen.contains("/proc/self/fd/0"), "{seen}");
        let kept = ["kmsg", "mem", "sda", "vda", "fuse", "kvm"];
        assert!(!seen.lines().any(|line| kept.contains(&line)), "{seen}");
    }
}

#[test]
fn overlay_writes_to_the_upper_directory_only() {
    for caller in Caller::with_user_namespaces("overlay_writes_to_the_upper_directory_only") {
        let directory = directory();
        let path = |name: &str| text(&directory.path().join(name)).to_owned();
        for name in ["low", "high", "upper", "work", "seen"] {
            let place = path(name);
            fs::create_dir(&place).expect("a directory");
            fs::set_permissions(&place, std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("chmod");
        }
        for (place, words) in [("low/a", "low"), ("low/b", "low"), ("high/b", "high")] {
            fs::write(path(place), words).expect("write");
            if rustix::process::geteuid().is_root() {
                std::os::unix::fs::chown(path(place), Some(caller.uid()), Some(gid(caller))).expect("chown");
            }
        }
        let sources = [format!("--overlay-src={}", path("low")), format!("--overlay-src={}", path("high"))];
        let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
        let (upper, work, seen) = (path("upper"), path("work"), path("seen"));
        let script = format!("cd {seen}; cat a b; echo changed >a && cat a");
        let run = |options: &[&str]| {
            let words = [&sources[..], options, &["sh", "-c", &script]].concat();
            caller.output(&allowed(caller, &words))
        };
        let answer = run(&["--ro-overlay", &seen]);
        let words = String::from_utf8_lossy(&answer.stderr).into_owned();
        if words.contains("No such device") || words.contains("Invalid argument") || words.contains("not permitted") {
            skipped(
                &format!("overlay_writes_to_the_upper_directory_only as {caller:?}"),
                &format!("this kernel or place has none for it: {words}"),
            );
            continue;
        }
        assert_eq!(String::from_utf8_lossy(&answer.stdout), "lowhigh", "{answer:?}");
        assert!(words.contains("ead-only") && !answer.status.success(), "{words}");
        let answer = run(&["--overlay", &upper, &work, &seen]);
        assert_eq!(String::from_utf8_lossy(&answer.stdout), "lowhighchanged\n", "{answer:?}");
        assert_eq!(fs::read_to_string(path("low/a")).expect("a file"), "low");
        assert_eq!(fs::read_to_string(path("upper/a")).expect("a file"), "changed\n");
        // The files that the kernel created in the work directory belong to root or to the other user.
        let _ = caller.shell("rm").args(["-rf", &work, &upper]).output();
    }
}

#[test]
fn attach_mount_attaches_a_detached_mount() {
    let Some(root) = Caller::root_with("attach_mount_attaches_a_detached_mount", CAP_SYS_ADMIN) else { return };
    let directory = directory();
    fs::write(directory.path().join("file"), "here").expect("write");
    let tree = match open_tree(directory.path()) {
        Ok(tree) => tree,
        Err(why) => return skipped("attach_mount_attaches_a_detached_mount", &format!("open_tree(2) fails: {why}")),
    };
    let number = tree.as_raw_fd().to_string();
    assert_eq!(root.stdout(&["--attach-mount", &number, "/srv", "cat", "/srv/file"]), "here");
}

fn open_tree(path: &Path) -> std::io::Result<OwnedFd> {
    const OPEN_TREE_CLONE: libc::c_uint = 1;
    let path = std::ffi::CString::new(text(path)).expect("text");
    // SAFETY: the path ends in NUL.
    let tree = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), OPEN_TREE_CLONE) };
    if tree < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: open_tree has just returned it, so nothing else owns it. Without OPEN_TREE_CLOEXEC it is inherited.
    Ok(unsafe { OwnedFd::from_raw_fd(tree as i32) })
}

// ---- privileges ----

fn capabilities(caller: Caller, options: &[&str], name: &str) -> u64 {
    let seen = caller.status(&allowed(caller, options), name);
    u64::from_str_radix(&seen, 16).expect("a set")
}

#[test]
fn capability_options_change_each_set() {
    let raw = 1 << CAP_NET_RAW;
    for caller in Caller::with_user_namespaces("capability_options_change_each_set") {
        let set = |options: &[&str], name: &str| capabilities(caller, options, name);
        let known = set(&[], "CapBnd");
        assert_eq!(set(&["--bounding-set=-all"], "CapBnd"), 0);
        assert_eq!(set(&["--bounding-set", "-all,+net_raw"], "CapBnd"), raw);
        assert_eq!(set(&["--bounding-set=-CAP_NET_RAW"], "CapBnd"), known & !raw);
        assert_eq!(set(&["--inh-caps=+net_raw"], "CapInh"), raw);
        assert_eq!(set(&["--inh-caps=+net_raw"], "CapAmb"), 0);
        for name in ["CapAmb", "CapInh"] {
            assert_eq!(set(&["--ambient-caps=+net_raw"], name), raw, "{name}");
        }
        // Without capabilities, root has no privileges.
        assert_eq!(capabilities(caller, &["--map-root-user", "--bounding-set=-all"], "CapEff"), 0);
        assert_eq!(capabilities(caller, &["--map-root-user", "--securebits=+noroot"], "CapEff"), 0);
        assert_ne!(capabilities(caller, &["--map-root-user"], "CapEff"), 0);
    }
    let Some(root) = Caller::root_with("capability_options_change_each_set over a change of user", CAP_SETUID) else {
        return;
    };
    for options in [&["--reuid=12345:0", "--ambient-caps=+net_raw"][..], &["--reuid=12345:0", "--inh-caps=+net_raw"]] {
        let ambient = options[1].starts_with("--ambient");
        assert_eq!(capabilities(root, options, "CapInh"), raw, "{options:?}");
        assert_eq!(capabilities(root, options, "CapEff"), if ambient { raw } else { 0 }, "{options:?}");
    }
}

/// The library asks the kernel which capabilities exist. Without an answer it must not conclude that there are none to drop.
#[test]
fn bounding_set_that_cannot_be_read_is_an_error() {
    let Some(root) = Caller::root_with("bounding_set_that_cannot_be_read_is_an_error", 8) else { return };
    let refused = ["--inherit-all", "--system-call-filter=~prctl", binary(), "run"];
    let words = root.failure(&[&refused[..], &["--bounding-set=-all", "true"]].concat());
    assert!(words.contains("capabilities"), "{words}");
}

/// The kernel computes these sets again at exec, so only exec itself shows their effect: without CAP_DAC_OVERRIDE it cannot
/// execute a file whose owner has no execute permission.
#[test]
fn permitted_and_effective_sets_apply_until_exec() {
    for caller in Caller::with_user_namespaces("permitted_and_effective_sets_apply_until_exec") {
        let directory = directory();
        let program = directory.path().join("program");
        fs::copy("/bin/true", &program).expect("copy");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&program, Some(caller.uid()), Some(gid(caller))).expect("chown");
        }
        fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o011)).expect("chmod");
        let code = |options: &[&str]| {
            let words = [&["--map-root-user"], options, &[text(&program)]].concat();
            caller.output(&words).status.code()
        };
        assert_eq!(code(&[]), Some(0), "{caller:?}");
        for options in [
            &["--effective-caps=-all"][..],
            &["--effective=-dac_override"],
            &["--permitted-caps=-all"],
            &["--permitted=-dac_override"],
        ] {
            assert_eq!(code(options), Some(126), "{caller:?} {options:?}");
        }
        for options in [&["--effective-caps=-all,+dac_override"][..], &["--permitted-caps=-all,+dac_override"]] {
            assert_eq!(code(options), Some(0), "{caller:?} {options:?}");
        }
    }
}

#[test]
fn no_new_privs_is_set() {
    for caller in Caller::all("no_new_privs_is_set") {
        assert_eq!(caller.status(&[], "NoNewPrivs"), "0");
        assert_eq!(caller.status(&["--no-new-privs"], "NoNewPrivs"), "1");
        assert_eq!(caller.status(&["--nnp"], "NoNewPrivs"), "1");
    }
}

/// A filter under which `getpriority` fails with ENOSYS and all else is allowed.
fn filter() -> Vec<u8> {
    const LOAD: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const ERRNO: u32 = 0x5_0000;
    const ALLOW: u32 = 0x7fff_0000;
    let instructions = [
        (LOAD, 0, 0, 0),
        (JUMP_IF_EQUAL, 0, 1, libc::SYS_getpriority as u32),
        (RETURN, 0, 0, ERRNO | libc::ENOSYS as u32),
        (RETURN, 0, 0, ALLOW),
    ];
    let bytes =
        |(code, yes, no, k): (u16, u8, u8, u32)| [&code.to_ne_bytes()[..], &[yes, no], &k.to_ne_bytes()].concat();
    instructions.into_iter().flat_map(bytes).collect()
}

#[test]
fn seccomp_reads_a_filter_from_a_file_or_a_descriptor() {
    let directory = directory();
    let path = directory.path().join("filter");
    fs::write(&path, filter()).expect("write");
    for caller in Caller::all("seccomp_reads_a_filter_from_a_file_or_a_descriptor") {
        assert!(caller.output(&["nice"]).status.success());
        let output = caller.output(&["--no-new-privs", "--seccomp", text(&path), "nice"]);
        assert!(!output.status.success(), "nice(1) makes the filtered call: {output:?}");
        assert_eq!(caller.status(&["--no-new-privs", "--seccomp", text(&path)], "Seccomp"), "2");
        let line = "exec 7<\"$1\"; exec \"$0\" run --no-new-privs --seccomp 7 grep -w Seccomp /proc/self/status";
        let output = caller.shell("sh").args(["-c", line, binary(), text(&path)]).output().expect("sh");
        assert_eq!(output.stdout, b"Seccomp:\t2\n", "{output:?}");
        let mut cut = fs::File::create(directory.path().join("cut")).expect("create");
        cut.write_all(&filter()[..9]).expect("write");
        assert!(caller.failure(&["--seccomp", text(&directory.path().join("cut")), "true"]).contains("9 bytes"));
    }
    let refused = Caller::Ordinary.failure(&["--seccomp", text(&path), "true"]);
    assert!(refused.contains("no_new_privs"), "{refused}");
}

/// A Landlock ruleset under which no file can be written to.
fn ruleset() -> Option<OwnedFd> {
    const WRITE_FILE: u64 = 1 << 1;
    let attributes = [WRITE_FILE];
    // SAFETY: the kernel reads the 8 bytes of `attributes`.
    let answer = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, attributes.as_ptr(), 8usize, 0u32) };
    // SAFETY: a descriptor that the kernel has just returned is owned by nothing else.
    (answer >= 0).then(|| unsafe { OwnedFd::from_raw_fd(answer as i32) })
}

#[test]
fn landlock_enforces_an_inherited_ruleset() {
    let Some(ruleset) = ruleset() else {
        return skipped("landlock_enforces_an_inherited_ruleset", "this kernel has no Landlock");
    };
    rustix::io::fcntl_setfd(&ruleset, rustix::io::FdFlags::empty()).expect("no close-on-exec");
    let directory = directory();
    let file = directory.path().join("file");
    fs::write(&file, "").expect("write");
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o666)).expect("chmod");
    let number = ruleset.as_raw_fd().to_string();
    for caller in Caller::all("landlock_enforces_an_inherited_ruleset") {
        let script = format!("echo x >{}", text(&file));
        assert!(caller.output(&["sh", "-c", &script]).status.success());
        let output = caller.output(&["--no-new-privs", "--landlock", &number, "sh", "-c", &script]);
        assert!(!output.status.success(), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("ermission denied"), "{output:?}");
    }
}

// ---- filters ----

#[test]
fn system_call_filter_fails_only_the_listed_calls() {
    for caller in Caller::all("system_call_filter_fails_only_the_listed_calls") {
        let place = directory();
        let wanted = place.path().join("made");
        let make = |filter: &str| {
            let words = ["--no-new-privs", filter, "mkdir", text(&wanted)];
            caller.shell(binary()).arg("run").args(words).output().expect("forkless")
        };
        let output = make("--system-call-filter=~mkdir,mkdirat:EXDEV");
        assert!(String::from_utf8_lossy(&output.stderr).contains("cross-device"), "{caller:?}: {output:?}");
        assert!(!wanted.exists());
        // The program is executed, but it cannot load its libraries.
        assert!(!make("--system-call-filter=read,write").status.success());
        let words = caller.failure(&["--system-call-filter=~mkdir", "--system-call-filter=~nonsense", "true"]);
        assert!(words.contains("--system-call-filter"), "{words}");
        let output = caller.output(&["--no-new-privs", "--system-call-filter=~execve", "true"]);
        assert_eq!(output.status.code(), Some(126), "{caller:?}: {output:?}");
        fs::create_dir(&wanted).expect("a directory");
    }
}

#[test]
fn landlock_access_denies_files_except_by_rule() {
    let options =
        ["--no-new-privs", "--landlock-access=fs", "--landlock-rule=path-beneath:execute,read-file,read-dir:/"];
    for caller in Caller::all("landlock_access_denies_files_except_by_rule") {
        let place = directory();
        let script = format!("ls / >&2; echo mine >{}/file && echo written", text(place.path()));
        let run = |more: &[&str]| {
            let words = [&options[..], more, &["sh", "-c", &script]].concat();
            caller.shell(binary()).arg("run").args(words).output().expect("forkless")
        };
        let output = run(&[]);
        if String::from_utf8_lossy(&output.stderr).contains("no Landlock, or it is not enabled") {
            return skipped("landlock_access_denies_files_except_by_rule", "this kernel has no Landlock");
        }
        assert!(String::from_utf8_lossy(&output.stderr).contains("proc"), "{caller:?}: {output:?}");
        assert_eq!(output.stdout, b"", "{caller:?}: {output:?}");
        let rule = format!("--landlock-rule=path-beneath::{}", text(place.path()));
        assert_eq!(run(&[&rule]).stdout, b"written\n", "{caller:?}");
        let words = caller.failure(&["--landlock-access=fs", "--landlock-rule=path-beneath::/no/such", "true"]);
        assert!(words.contains("/no/such"), "{words}");
    }
}

// ---- the guide ----

/// The shell block, and the text block after it, under "A sandbox in one command".
fn example() -> (String, String) {
    let guide = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/run.md")).expect("the guide");
    let (_, section) = guide.split_once("\n## A sandbox in one command\n").expect("the section");
    let block = |opening: &str| {
        let (_, rest) = section.split_once(opening).expect("a block");
        rest.split_once("\n```").expect("its end").0.to_owned() + "\n"
    };
    (block("```sh\n"), block("```text\n"))
}

#[test]
fn sandbox_example_of_the_guide_prints_what_it_shows() {
    let (command, shown) = example();
    // Run the test's binary: the test must not build, least of all as another user.
    let command = command.replacen("cargo run --release --", "\"$0\"", 1);
    assert!(command.starts_with("\"$0\" run "), "{command}");
    for caller in Caller::with_user_namespaces("sandbox_example_of_the_guide_prints_what_it_shows") {
        let output = caller.shell("sh").args(["-c", &command, binary()]).output().expect("sh");
        assert_eq!(String::from_utf8_lossy(&output.stdout), shown, "{caller:?}: {output:?}");
        assert!(output.status.success(), "{caller:?}: {output:?}");
    }
}

//! A setting that is accepted has its effect: each mount, root and namespace setting of `forkless run` alone, and in each pair,
//! in both orders. The program proves the effect. A pair that is refused by an error is none of this.

testing::usual_surroundings!();

mod callers;

use std::{
    fs,
    io::Read,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    process::{Child, Stdio},
};

use callers::{Caller, directory};

/// Options, and a line of sh that proves their effect. `@` is a directory of the test, `%P` a process in other namespaces, and
/// `%D` its directory.
const SETTINGS: [(&str, &str); 34] = [
    ("--tmpfs @/a", "[ -z \"$(ls -A @/a)\" ]"),
    ("--bind @/source @/b", "grep -q source @/b/file && touch @/b/new"),
    ("--ro-bind @/source @/c", "grep -q source @/c/file && ! touch @/c/new 2>&1"),
    ("--dev-bind /dev @/d", "echo x > @/d/null"),
    ("--dev @/e", "echo x > @/e/null && [ -L @/e/stdin ]"),
    ("--unshare-pid --proc @/f", "[ $(readlink @/f/self) = $$ ] || [ -d @/f/1 ]"),
    ("--overlay-src @/source --overlay-src @/other --ro-overlay @/g", "grep -q source @/g/file && [ -e @/g/other ]"),
    ("--dir @/h/new", "[ -d @/h/new ]"),
    ("--symlink to @/h/link", "[ $(readlink @/h/link) = to ]"),
    ("--mount tmpfs size=1m,noexec @/i", "[ $(df -k --output=size @/i | tail -n1) = 1024 ]"),
    ("--bind @/own @/own", "touch @/own/new"),
    ("--bind @/own @/j --remount ro @/j", "! touch @/j/new 2>&1"),
    ("--remount-ro /", "! touch @/top 2>&1"),
    ("--ro-bind / /", "! touch @/top 2>&1"),
    ("--bind / /", "[ -e @/source/file ]"),
    ("--unshare-uts --hostname box", "[ $(uname -n) = box ]"),
    ("--unshare-net", "[ $(grep -c : /proc/net/dev) = 1 ]"),
    ("--unshare-ipc", "[ $(readlink /proc/self/ns/ipc) != $IPC ]"),
    ("--unshare-cgroup", "[ $(readlink /proc/self/ns/cgroup) != $CGROUP ]"),
    ("--chdir @/source", "[ $(pwd) = @/source ] && [ -e file ]"),
    ("--dev-bind / @/root --pivot-root @/root", "[ -z \"$(ls -A @/root)\" ]"),
    ("--dev-bind / @/root2 --chroot @/root2", "[ -z \"$(ls -A @/root2)\" ]"),
    ("--tmpfs @/k --umount @/k", "[ -e @/k/file ]"),
    ("--unshare-pid", "[ $$ = 1 ]"),
    ("--unshare-time", "[ $(readlink /proc/self/ns/time) != $TIME ]"),
    ("--unshare-user --map-root-user", "[ $(id -u):$(id -g) = 0:0 ] && [ $(readlink /proc/self/ns/user) != $USER ]"),
    ("--umask 0", "[ $(umask) = 0000 ]"),
    ("--join net=/proc/%P/ns/net", "[ $(readlink /proc/self/ns/net) = $JOINED_NET ]"),
    ("--join uts=/proc/%P/ns/uts", "[ $(uname -n) = joined ]"),
    ("--join ipc=/proc/%P/ns/ipc", "[ $(readlink /proc/self/ns/ipc) = $JOINED_IPC ]"),
    ("--join cgroup=/proc/%P/ns/cgroup", "[ $(readlink /proc/self/ns/cgroup) = $JOINED_CGROUP ]"),
    ("--join pid=/proc/%P/ns/pid", "[ $(readlink /proc/self/ns/pid) = $JOINED_PID ]"),
    ("--join mount=/proc/%P/ns/mnt", "[ -e %D/mark ]"),
    ("--reuid 12345:12346 --clear-groups", "[ $(id -u):$(id -G) = 12345:12346 ]"),
];

/// What the second of two such settings restricts are all mounts, those of the first included.
const FOR_ALL: [&str; 3] = ["--remount-ro /", "--ro-bind / /", "--bind / /"];

fn is_root((options, _): (&str, &str)) -> bool {
    options.contains("-root ") || options.contains("--chroot")
}

/// Why pairs are refused, and how many of root's are: what cannot be both, what has no effect, and what the kernel refuses.
const REFUSALS: [(&str, usize); 7] = [
    ("excludes a new", 48),
    ("exclude each other", 2),
    ("is given more than once", 2),
    ("has no effect, because it is outside of the new root", 22),
    ("Read-only file system; its parent cannot be written to", 4),
    ("needs CAP_SYS_ADMIN over the namespace", 10),
    ("an ID is not mapped into the user namespace", 2),
];

fn prepare(place: &Path) {
    for name in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "own", "source", "other", "root", "root2"] {
        fs::create_dir_all(place.join(name)).expect("a directory");
        fs::set_permissions(place.join(name), fs::Permissions::from_mode(0o777)).expect("a mode");
    }
    fs::write(place.join("a/hidden"), "").expect("a file");
    fs::write(place.join("k/file"), "").expect("a file");
    fs::write(place.join("source/file"), "source").expect("a file");
    fs::write(place.join("other/other"), "").expect("a file");
    for name in ["", "source"] {
        fs::set_permissions(place.join(name), fs::Permissions::from_mode(0o777)).expect("a mode");
    }
}

/// A process in namespaces of its own, to join.
struct Others {
    process: Child,
    directory: tempfile::TempDir,
}

impl Others {
    fn start() -> Self {
        let directory = directory();
        let place = directory.path().to_str().expect("UTF-8");
        let script = format!("touch {place}/mark; echo; exec sleep 1000");
        let new = [
            "--supervise",
            "--unshare-net",
            "--unshare-ipc",
            "--unshare-cgroup",
            "--unshare-uts",
            "--hostname",
            "joined",
        ];
        let words = [&new[..], &["--unshare-pid", "--tmpfs", place, "sh", "-c", &script]].concat();
        let mut process = Caller::Root.forkless(&words).stdout(Stdio::piped()).spawn().expect("forkless starts");
        let mut line = [0];
        process.stdout.take().expect("a pipe").read_exact(&mut line).expect("a line");
        Self { process, directory }
    }

    /// The program's, in forkless' own numbering.
    fn pid(&self) -> String {
        let children = format!("/proc/{0}/task/{0}/children", self.process.id());
        fs::read_to_string(children).expect("children").trim().to_owned()
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        // The program is killed with it.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What is wrong with these settings together, or why they are refused.
fn run(caller: Caller, others: Option<&Others>, settings: &[(&str, &str)]) -> Result<Option<String>, String> {
    let directory = directory();
    prepare(directory.path());
    let place = directory.path().to_str().expect("UTF-8");
    let link = |of: &str, name: &str| {
        let link = fs::read_link(format!("/proc/{of}/ns/{name}"));
        link.expect("a link").display().to_string()
    };
    let filled = |text: &str| {
        let text = text.replace('@', place);
        let Some(others) = others else { return text };
        text.replace("%P", &others.pid()).replace("%D", others.directory.path().to_str().expect("UTF-8"))
    };
    let options = filled(&settings.iter().map(|(options, _)| *options).collect::<Vec<_>>().join(" "));
    let overridden = settings.len() > 1 && FOR_ALL.contains(&settings[1].0);
    let proved = &settings[usize::from(overridden)..];
    // The copy of a root that is read-only can be written.
    let proved = if settings.len() > 1 && FOR_ALL.contains(&settings[0].0) && is_root(settings[1]) {
        &settings[1..]
    } else {
        proved
    };
    let proofs = proved.iter().map(|(_, proof)| format!("{{ {proof}; }} || exit 77")).collect::<Vec<_>>().join("; ");
    let mut names = String::new();
    for kind in ["ipc", "cgroup", "time", "user", "net", "pid"] {
        let name = kind.to_uppercase();
        names.push_str(&format!("{name}='{}'; ", link("self", kind)));
        if let Some(others) = others {
            names.push_str(&format!("JOINED_{name}='{}'; ", link(&others.pid(), kind)));
        }
    }
    let script = format!("{names}{}", filled(&proofs));
    let own = if caller == Caller::Root { &[][..] } else { &["--unshare-user", "--map-root-user"] };
    let words: Vec<&str> = own.iter().copied().chain(options.split(' ')).chain(["sh", "-c", &script]).collect();
    let output = caller.output(&words);
    match output.status.code() {
        Some(0) => Ok(None),
        Some(125) => Ok(Some(String::from_utf8(output.stderr).expect("text"))),
        _ => Err(format!("{caller:?}: {options}: {output:?}\n{script}")),
    }
}

#[test]
fn each_setting_has_its_effect_also_beside_each_other_one() {
    for caller in Caller::with_user_namespaces("each_setting_has_its_effect_also_beside_each_other_one") {
        let others = (caller == Caller::Root).then(Others::start);
        let for_root = ["--join", "--reuid", "--map-root-user"];
        let able = |(options, _): &&(&str, &str)| {
            caller == Caller::Root || !for_root.iter().any(|option| options.contains(option))
        };
        let settings: Vec<_> = SETTINGS.iter().filter(able).collect();
        let (mut wrong, mut refused) = (Vec::new(), [0; REFUSALS.len()]);
        for (number, one) in settings.iter().enumerate() {
            let pairs = settings.iter().enumerate().filter(|(other, _)| *other != number);
            let pairs = pairs.map(|(_, other)| vec![**one, **other]);
            for settings in std::iter::once(vec![**one]).chain(pairs) {
                match run(caller, others.as_ref(), &settings) {
                    Ok(None) => {}
                    Ok(Some(why)) => match REFUSALS.iter().position(|(known, _)| why.contains(known)) {
                        Some(number) if settings.len() > 1 => refused[number] += 1,
                        _ => wrong.push(format!("{caller:?}: {settings:?}: {why}")),
                    },
                    Err(why) => wrong.push(why),
                }
            }
        }
        assert!(wrong.is_empty(), "{} without effect:\n{}", wrong.len(), wrong.join("\n"));
        if caller == Caller::Root {
            assert_eq!(refused, REFUSALS.map(|(_, count)| count));
        }
    }
}

/// The options that need no source, with one and without.
#[test]
fn a_source_that_may_be_absent() {
    for caller in Caller::with_user_namespaces("a_source_that_may_be_absent") {
        let own = if caller == Caller::Root { &[][..] } else { &["--unshare-user", "--map-root-user"] };
        let run = |options: &str, script: &str| {
            let directory = directory();
            prepare(directory.path());
            let place = directory.path().to_str().expect("UTF-8");
            let (options, script) = (options.replace('@', place), script.replace('@', place));
            let words: Vec<&str> = own.iter().copied().chain(options.split(' ')).chain(["sh", "-c", &script]).collect();
            caller.output(&words)
        };
        for (option, proof) in [
            ("--bind-try", "touch @/a/new && [ -e @/a/file ]"),
            ("--ro-bind-try", "[ -e @/a/file ] && ! touch @/a/new 2>/dev/null"),
            ("--dev-bind-try", "[ -e @/a/file ]"),
        ] {
            let output =
                run(&format!("{option} @/source @/a --tmpfs @/c"), &format!("{proof} && [ -z \"$(ls @/c)\" ]"));
            assert!(output.status.success(), "{caller:?} {option}: {output:?}");
            let output =
                run(&format!("{option} @/no-such @/a --tmpfs @/c"), "[ -e @/a/hidden ] && [ -z \"$(ls @/c)\" ]");
            assert!(output.status.success(), "{caller:?} {option}: {output:?}");
        }
    }
}

/// In each spelling, and by each option that mounts something.
#[test]
fn a_mount_on_the_root_is_refused_and_the_error_names_pivot_root() {
    for caller in Caller::with_user_namespaces("a_mount_on_the_root_is_refused_and_the_error_names_pivot_root") {
        let directory = directory();
        prepare(directory.path());
        symlink("/", directory.path().join("link")).expect("a link");
        let place = directory.path().to_str().expect("UTF-8");
        let own = if caller == Caller::Root { &[][..] } else { &["--unshare-user", "--map-root-user"] };
        for root in ["/", "//", "/./", "/usr/..", "/proc/self/root", &format!("{place}/link")] {
            for mount in [
                "--tmpfs",
                "--dev",
                "--unshare-pid --proc",
                "--bind @/source",
                "--ro-bind @/source",
                "--dev-bind @/source",
                "--overlay-src @/source --overlay-src @/other --ro-overlay",
                "--mount tmpfs defaults",
            ] {
                let options = format!("{mount} {root}").replace('@', place);
                let words: Vec<&str> = own.iter().copied().chain(options.split(' ')).chain(["true"]).collect();
                let words = caller.failure(&words);
                assert!(words.contains("--pivot-root"), "{caller:?} {options}: {words}");
            }
        }
    }
}

#[test]
fn a_hidden_working_directory_is_left_or_an_error() {
    for caller in Caller::with_user_namespaces("a_hidden_working_directory_is_left_or_an_error") {
        let directory = directory();
        prepare(directory.path());
        let place = directory.path().to_str().expect("UTF-8");
        let own = if caller == Caller::Root { &[][..] } else { &["--unshare-user", "--map-root-user"] };
        let run = |options: &str, script: &str| {
            let options = options.replace('@', place);
            let words: Vec<&str> = own.iter().copied().chain(options.split(' ')).chain(["sh", "-c", script]).collect();
            caller.forkless(&words).current_dir(format!("{place}/source")).output().expect("forkless starts")
        };
        for options in ["--tmpfs @/source", "--bind @/other @/source", "--ro-bind @/other @/source"] {
            let output = run(options, "[ ! -e file ] && pwd");
            assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{place}/source\n"), "{options}: {output:?}");
        }
        let output = run("--tmpfs @", "cat file");
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.code() == Some(125) && words.contains("hides the working directory; add --chdir"),
            "{output:?}"
        );
        let output = run(&format!("--best-effort=chdir --tmpfs {place}"), "cat file");
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        assert!(run("--tmpfs @ --chdir /", "pwd").status.success());
        // A relative path is one of the new tree, too.
        let output = run("--bind @/other @/source --chdir ../source", "[ -e other ]");
        assert!(output.status.success(), "{output:?}");
    }
}

/// What is changed outside of the new root stays outside, unless a later mount copies it from there.
#[test]
fn a_mount_outside_of_the_new_root_is_an_error_unless_it_is_copied() {
    for caller in Caller::with_user_namespaces("a_mount_outside_of_the_new_root_is_an_error_unless_it_is_copied") {
        let own = if caller == Caller::Root { &[][..] } else { &["--unshare-user", "--map-root-user"] };
        let run = |options: &str| {
            let directory = directory();
            prepare(directory.path());
            let options = options.replace('@', directory.path().to_str().expect("UTF-8"));
            let words: Vec<&str> = own.iter().copied().chain(options.split(' ')).chain(["true"]).collect();
            caller.output(&words)
        };
        for change in ["--tmpfs @/a", "--remount-ro @/own", "--umount @/own", "--remount noexec @/root/../own"] {
            for root in ["--pivot-root", "--chroot"] {
                let output = run(&format!("--bind @/own @/own --bind / @/root {change} {root} @/root"));
                let words = String::from_utf8_lossy(&output.stderr).into_owned();
                assert_eq!(output.status.code(), Some(125), "{caller:?} {change}: {output:?}");
                assert!(words.contains("outside of the new root"), "{caller:?} {change}: {words}");
            }
        }
        for options in [
            "--tmpfs @/a --dir @/a/b --bind @/a/b @/root/tmp",
            "--tmpfs @/a --bind @/a @/root/tmp",
            "--dir @/h --dir @/i --overlay-src @/h --overlay-src @/i --ro-overlay @/root/tmp",
            "--remount-ro /",
            "--remount-ro @/root",
        ] {
            for root in ["--pivot-root", "--chroot"] {
                let output = run(&format!("--bind / @/root {options} {root} @/root"));
                assert!(output.status.success(), "{caller:?} {options}: {output:?}");
            }
        }
    }
}

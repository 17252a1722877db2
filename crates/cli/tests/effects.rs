//! A setting that is accepted has its effect: each mount, root and namespace setting of `forkless run` alone, and in each pair,
//! in both orders. The program proves the effect. A pair that is refused by an error is none of this.

mod callers;

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use callers::{Caller, directory};

/// Options, and a line of sh that proves their effect. `@` is a directory of the test.
const SETTINGS: [(&str, &str); 20] = [
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
];

/// What the second of two such settings restricts are all mounts, those of the first included.
const FOR_ALL: [&str; 3] = ["--remount-ro /", "--ro-bind / /", "--bind / /"];

/// This many of 380 pairs are refused: those that make a file below a root that is read-only.
const REFUSED_PAIRS: usize = 4;

fn prepare(place: &Path) {
    for name in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "own", "source", "other"] {
        fs::create_dir_all(place.join(name)).expect("a directory");
        fs::set_permissions(place.join(name), fs::Permissions::from_mode(0o777)).expect("a mode");
    }
    fs::write(place.join("a/hidden"), "").expect("a file");
    fs::write(place.join("source/file"), "source").expect("a file");
    fs::write(place.join("other/other"), "").expect("a file");
    for name in ["", "source"] {
        fs::set_permissions(place.join(name), fs::Permissions::from_mode(0o777)).expect("a mode");
    }
}

/// What is wrong with these settings together; false: they are refused.
fn run(caller: Caller, settings: &[(&str, &str)]) -> Result<bool, String> {
    let directory = directory();
    prepare(directory.path());
    let place = directory.path().to_str().expect("UTF-8");
    let link = |name: &str| fs::read_link(format!("/proc/self/ns/{name}")).expect("a link").display().to_string();
    let options = settings.iter().map(|(options, _)| *options).collect::<Vec<_>>().join(" ").replace('@', place);
    let overridden = settings.len() > 1 && FOR_ALL.contains(&settings[1].0);
    let proved = &settings[usize::from(overridden)..];
    let proofs = proved.iter().map(|(_, proof)| format!("{{ {proof}; }} || exit 77")).collect::<Vec<_>>().join("; ");
    let script = format!("IPC={} CGROUP={}; {proofs}", link("ipc"), link("cgroup")).replace('@', place);
    let own = if caller == Caller::Root { &[][..] } else { &["--unshare-user", "--map-root-user"] };
    let words: Vec<&str> = own.iter().copied().chain(options.split(' ')).chain(["sh", "-c", &script]).collect();
    let output = caller.output(&words);
    match output.status.code() {
        Some(0) => Ok(true),
        Some(125) if !output.stderr.is_empty() => Ok(false),
        _ => Err(format!("{caller:?}: {options}: {output:?}\n{script}")),
    }
}

#[test]
fn each_setting_has_its_effect_also_beside_each_other_one() {
    for caller in Caller::with_user_namespaces("each_setting_has_its_effect_also_beside_each_other_one") {
        let (mut wrong, mut refused) = (Vec::new(), Vec::new());
        for (number, one) in SETTINGS.iter().enumerate() {
            let others =
                SETTINGS.iter().enumerate().filter(|(other, _)| *other != number).map(|(_, other)| vec![*one, *other]);
            for settings in std::iter::once(vec![*one]).chain(others) {
                match run(caller, &settings) {
                    Ok(true) => {}
                    Ok(false) => refused.push(settings),
                    Err(why) => wrong.push(why),
                }
            }
        }
        assert!(wrong.is_empty(), "{} without effect:\n{}", wrong.len(), wrong.join("\n"));
        println!("{caller:?}: {} of 400 are refused", refused.len());
        assert!(refused.len() == REFUSED_PAIRS && refused.iter().all(|of| of.len() > 1), "{refused:#?}");
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

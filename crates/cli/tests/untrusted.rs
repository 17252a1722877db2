//! Options of `forkless run` under attack: symbolic links in untrusted directories, leftover capabilities and groups, other
//! numbers of a filtered system call. Run as root and as an ordinary user, where possible.

testing::usual_surroundings!();

mod callers;

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use callers::{Caller, binary, directory, skipped};

const CAP_SETUID: u32 = 7;
const CAP_SETPCAP: u32 = 8;

fn allowed<'a>(caller: Caller, words: &[&'a str]) -> Vec<&'a str> {
    let first: &[&str] = if caller == Caller::Ordinary { &["--unshare-user"] } else { &[] };
    [first, words].concat()
}

// ---- best effort ----

/// Best effort is for the named steps. What must not reach the caller's namespaces does not depend on a step that failed.
#[test]
fn best_effort_changes_nothing_outside_of_the_namespaces() {
    let directory = directory();
    let place = text(directory.path());
    for caller in Caller::with_user_namespaces("best_effort_changes_nothing_outside_of_the_namespaces") {
        let first = allowed(caller, &["--best-effort=chdir", "--unshare-mount", "--pivot-root", "/no/such/root"]);
        let words = caller.failure(&[&first[..], &["true"]].concat());
        assert!(words.contains("/no/such/root"), "{caller:?}: {words}");
        assert!(caller.output(&["--best-effort=chdir", "--chdir", "/no/such", "true"]).status.success());

        // The namespaces of an outer forkless take the place of those of the system.
        let outer = |options: &[&str], inner: &[&str]| {
            let outer = ["--map-root-user", "--unshare-mount", "--unshare-uts", "--inherit-all"];
            caller.output(&[&outer[..], options, &[binary(), "run"], inner].concat())
        };
        let options =
            ["--best-effort=join-namespace", "--join", "uts=/dev/null", "--hostname", "renamed", "uname", "-n"];
        let output = outer(&[], &options);
        assert_eq!(output.status.code(), Some(125), "{caller:?}: {output:?}");

        let script = format!("grep -c ' {place} ' /proc/self/mounts");
        let look = ["sh", "-c", script.as_str()];
        let fork = ["--launcher=fork", "--best-effort=namespace", "--tmpfs", place];
        let output = outer(&["--system-call-filter=~unshare"], &[&fork[..], &look].concat());
        assert_eq!(output.status.code(), Some(125), "{caller:?}: {output:?}");

        // The mounts could not be made private, and these are made by other calls than mount(2).
        let mounts = ["--best-effort=mount", "--ro-bind", "/etc", place];
        let output = outer(&["--system-call-filter=~mount"], &[&mounts[..], &look].concat());
        assert_eq!(output.stdout, b"0\n", "{caller:?}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("skipped"), "{caller:?}: {output:?}");
    }
}

// ---- paths in untrusted mounts ----

/// Directories for a test: an untrusted one, its mount point, one that it must not reach, and a source for mounts.
struct World {
    _held: tempfile::TempDir,
    untrusted: PathBuf,
    place: PathBuf,
    host: PathBuf,
    source: PathBuf,
}

impl World {
    /// `untrusted/out` is a symbolic link to the host directory, whose path also exists below `untrusted`.
    fn new() -> Self {
        let held = directory();
        let path = |name: &str| held.path().join(name);
        let world = Self {
            untrusted: path("untrusted"),
            place: path("place"),
            host: path("host"),
            source: path("source"),
            _held: held,
        };
        let inside = world.inside();
        for directory in [&world.untrusted, &world.place, &world.host, &world.source, &inside] {
            fs::create_dir_all(directory).expect("a directory");
        }
        for directory in inside.ancestors().take_while(|one| *one != world.untrusted) {
            fs::set_permissions(directory, fs::Permissions::from_mode(0o777)).expect("chmod");
        }
        for directory in [&world.untrusted, &world.host, &world.source] {
            fs::set_permissions(directory, fs::Permissions::from_mode(0o777)).expect("chmod");
        }
        symlink(&world.host, world.untrusted.join("out")).expect("a link");
        world
    }

    /// Where the link leads if the untrusted directory is the root.
    fn inside(&self) -> PathBuf {
        self.untrusted.join(self.host.strip_prefix("/").expect("absolute"))
    }

    fn below(&self, path: &str) -> String {
        self.place.join(path).to_str().expect("text").to_owned()
    }

    fn names(directory: &Path) -> Vec<String> {
        let names = fs::read_dir(directory).expect("a directory").map(|one| one.expect("an entry").file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().expect("text")).collect();
        names.sort();
        names
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are text")
}

/// Options that create, mount, change or unmount something at a path.
const AT_A_PATH: [&[&str]; 12] = [
    &["--dir", "PATH/made"],
    &["--symlink", "to", "PATH/made"],
    &["--tmpfs", "PATH"],
    &["--bind", "SOURCE", "PATH"],
    &["--ro-bind", "SOURCE", "PATH"],
    &["--proc", "PATH"],
    &["--dev", "PATH"],
    &["--mount", "tmpfs", "size=1m", "PATH"],
    &["--remount-ro", "PATH"],
    &["--remount", "noexec", "PATH"],
    &["--umount", "PATH"],
    &["--overlay-src", "SOURCE", "--overlay-src", "SOURCE", "--ro-overlay", "PATH"],
];

fn filled(options: &[&str], path: &str, source: &str) -> Vec<String> {
    options.iter().map(|word| word.replace("PATH", path).replace("SOURCE", source)).collect()
}

#[test]
fn symbolic_link_that_leaves_a_mount_is_an_error() {
    for caller in Caller::with_user_namespaces("symbolic_link_that_leaves_a_mount_is_an_error") {
        for options in AT_A_PATH {
            let world = World::new();
            let options = filled(options, &world.below("out"), text(&world.source));
            let bind = ["--unshare-pid", "--bind", text(&world.untrusted), text(&world.place)];
            let words: Vec<&str> = bind.into_iter().chain(options.iter().map(String::as_str)).chain(["true"]).collect();
            let refused = caller.failure(&allowed(caller, &words));
            let place = format!("looked up inside {:?}: ", world.place);
            // umount2(2) does not follow a link in the last component.
            let why = if options[0] == "--umount" { "Invalid argument" } else { "a link leads out of it" };
            assert!(refused.contains(&place) && refused.contains(why), "{caller:?} {options:?}: {refused}");
            assert_eq!(World::names(&world.host), [""; 0], "{caller:?} {options:?}");
        }
    }
}

/// `--oom-score-adj` writes to a file below /proc, which an option may mount over.
#[test]
fn symbolic_link_mounted_over_proc_is_not_written_to() {
    for caller in Caller::with_user_namespaces("symbolic_link_mounted_over_proc_is_not_written_to") {
        let world = World::new();
        let (own, file) = (world.untrusted.join("self"), world.host.join("file"));
        fs::create_dir(&own).expect("a directory");
        fs::write(&file, "precious").expect("write");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).expect("chmod");
        symlink(&file, own.join("oom_score_adj")).expect("a link");
        // An ordinary user cannot lower the score, which may be high already.
        let words = ["--bind", text(&world.untrusted), "/proc", "--oom-score-adj=1000", "true"];
        let output = caller.output(&allowed(caller, &words));
        assert_eq!(fs::read_to_string(&file).expect("text"), "precious", "{caller:?}: {output:?}");
    }
}

#[test]
fn symbolic_link_in_a_new_root_is_resolved_inside_it() {
    for caller in Caller::with_user_namespaces("symbolic_link_in_a_new_root_is_resolved_inside_it") {
        for root in ["--pivot-root", "--chroot"] {
            let world = World::new();
            let (place, source) = (text(&world.place), text(&world.source));
            let (made, link) = (world.below("out/made"), world.below("out/link"));
            let (bound, inside_bound) = (world.below("out/made"), world.below("out/made/witness"));
            let mut words = vec!["--bind", text(&world.untrusted), place, "--dir", &made, "--symlink", "to", &link];
            // A directory made in the bind mount must appear in its source.
            words.extend(["--bind", source, &bound, "--dir", &inside_bound, root, place, "/none"]);
            let output = caller.output(&allowed(caller, &words));
            assert_eq!(output.status.code(), Some(127), "{caller:?} {root}: {output:?}");
            assert_eq!(World::names(&world.host), [""; 0], "{caller:?} {root}");
            assert_eq!(World::names(&world.inside()), ["link", "made"], "{caller:?} {root}");
            assert_eq!(World::names(&world.source), ["witness"], "{caller:?} {root}");
        }
    }
}

#[test]
fn every_kind_of_mount_works_in_a_new_root() {
    for caller in Caller::with_user_namespaces("every_kind_of_mount_works_in_a_new_root") {
        for options in AT_A_PATH.iter().filter(|options| !options[0].starts_with("--remount")) {
            let world = World::new();
            let source = world.source.to_str().expect("text");
            fs::write(world.source.join("file"), "x").expect("write");
            let first = ["--unshare-pid", "--bind", "/", text(&world.place)];
            let path = world.below(text(&world.host).trim_start_matches('/'));
            let mut options = filled(options, &path, source);
            if options[0] == "--umount" {
                options.splice(0..0, ["--tmpfs".to_owned(), path.clone()]);
            }
            let words: Vec<&str> = first
                .into_iter()
                .chain(options.iter().map(String::as_str))
                .chain([
                    "--pivot-root",
                    text(&world.place),
                    "sh",
                    "-c",
                    "grep \"$1\" /proc/self/mounts; ls \"$1\"",
                    "sh",
                ])
                .chain([text(&world.host)])
                .collect();
            let output = caller.output(&allowed(caller, &words));
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            let seen = String::from_utf8_lossy(&output.stdout).into_owned();
            if errors.contains("\"proc\" (proc)") || errors.contains("(overlay)") {
                skipped("every_kind_of_mount_works_in_a_new_root", &format!("not here: {errors}"));
                continue;
            }
            let wanted = match options[0].as_str() {
                "--dir" | "--symlink" => "made\n",
                "--bind" | "--ro-bind" | "--overlay-src" => "file\n",
                "--proc" => "self\n",
                "--dev" => "null\n",
                _ => "",
            };
            assert!(output.status.success() && seen.contains(wanted), "{caller:?} {options:?}: {seen}{errors}");
            let line = seen.lines().find(|line| line.contains(&format!(" {} ", text(&world.host))));
            let unmounted = options.len() == 4 && options[2] == "--umount";
            let none = unmounted || ["--dir", "--symlink"].contains(&options[0].as_str());
            assert_eq!(line.is_none(), none, "{caller:?} {options:?}: {seen}");
            let fixed = line.is_some_and(|line| line.split(' ').nth(3).expect("options").starts_with("ro"));
            assert_eq!(fixed, ["--ro-bind", "--overlay-src"].contains(&options[0].as_str()), "{options:?}: {seen}");
        }
    }
}

#[test]
fn new_root_below_a_mount_cannot_leave_it_by_a_link() {
    for caller in Caller::with_user_namespaces("new_root_below_a_mount_cannot_leave_it_by_a_link") {
        for root in ["--pivot-root", "--chroot"] {
            let world = World::new();
            let out = world.below("out");
            let words = ["--bind", text(&world.untrusted), text(&world.place), root, &out, "true"];
            let refused = caller.failure(&allowed(caller, &words));
            assert!(refused.contains("a link leads out of it"), "{caller:?} {root}: {refused}");
        }
    }
}

#[test]
fn missing_openat2_is_an_error_with_no_fallback() {
    for caller in Caller::with_user_namespaces("missing_openat2_is_an_error_with_no_fallback") {
        let world = World::new();
        let made = world.below("made");
        let filter = ["--no-new-privs", "--system-call-filter=~openat2:ENOSYS", binary(), "run"];
        let bind = ["--bind", text(&world.untrusted), text(&world.place), "--dir", &world.below("a/made"), "true"];
        let words = [&filter[..], &allowed(caller, &bind)].concat();
        let refused = caller.shell(binary()).arg("run").arg("--inherit-all").args(&words).output().expect("forkless");
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(told.contains("openat2") && told.contains("Linux 5.6"), "{caller:?}: {told}");
        // A path of one component needs no lookup.
        let bind = ["--bind", text(&world.untrusted), text(&world.place), "--dir", &made, "true"];
        let words = [&filter[..], &allowed(caller, &bind)].concat();
        let output = caller.shell(binary()).arg("run").arg("--inherit-all").args(&words).output().expect("forkless");
        assert!(output.status.success(), "{caller:?}: {output:?}");
        assert!(world.untrusted.join("made").is_dir());
    }
}

#[test]
fn read_only_bind_covers_mounts_below_it() {
    for caller in Caller::with_user_namespaces("read_only_bind_covers_mounts_below_it") {
        let world = World::new();
        let (source, place) = (text(&world.source), text(&world.place));
        let sub = format!("{source}/sub");
        fs::create_dir(&sub).expect("mkdir");
        let script = format!("for d in {place} {place}/sub {sub}; do [ -w $d ] && echo writable || echo fixed; done");
        let words = ["--tmpfs", &sub, "--ro-bind", source, place, "sh", "-c", &script];
        assert_eq!(caller.stdout(&allowed(caller, &words)), "fixed\nfixed\nwritable\n", "{caller:?}");
        // The program would not see a mount on top of the root: it is in the root below already.
        let words = ["--ro-bind", "/", "/", "sh", "-c", &format!("[ -w {source} ] || echo fixed")];
        assert_eq!(caller.stdout(&allowed(caller, &words)), "fixed\n", "{caller:?}");
    }
}

#[test]
fn missing_mount_setattr_never_leaves_a_writable_bind() {
    for caller in Caller::with_user_namespaces("missing_mount_setattr_never_leaves_a_writable_bind") {
        let world = World::new();
        fs::write(world.source.join("file"), "x").expect("write");
        let (source, place) = (text(&world.source), text(&world.place));
        let run = |more: &[&str]| {
            let filter =
                ["--inherit-all", "--no-new-privs", "--system-call-filter=~mount_setattr:ENOSYS", binary(), "run"];
            let words = [&filter[..], &allowed(caller, more)].concat();
            caller.shell(binary()).arg("run").args(&words).output().expect("forkless")
        };
        let output = run(&["--ro-bind", source, place, "true"]);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(125) && told.contains("Linux 5.12"), "{caller:?}: {output:?}");
        let output = run(&["--best-effort=mount", "--ro-bind", source, place, "ls", place]);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.stdout, b"", "no writable bind either: {caller:?} {output:?}");
        // The mount itself, and the change of its attributes.
        assert_eq!(told.matches("skipped: ").count(), 2, "{caller:?}: {told}");
    }
}

// ---- filters ----

#[test]
fn filter_applies_to_x32_system_call_numbers() {
    if cfg!(not(target_arch = "x86_64")) {
        return skipped("filter_applies_to_x32_system_call_numbers", "only x86-64 has the x32 ABI");
    }
    for caller in Caller::all("filter_applies_to_x32_system_call_numbers") {
        // A kernel without the x32 ABI would return ENOSYS if the filter let the call through.
        let script = "for (110, 0x40000000 + 110) { syscall($_); print $! + 0, ' ' }";
        let words = ["--no-new-privs", "--system-call-filter=~getppid:EXDEV", "perl", "-e", script];
        assert_eq!(caller.stdout(&words), format!("{0} {0} ", libc::EXDEV), "{caller:?}");
    }
}

#[test]
fn filter_without_system_calls_is_an_error() {
    for filter in ["--system-call-filter=~", "--system-call-filter=~:EPERM", "--system-call-filter="] {
        let output = Caller::Ordinary.output(&["--no-new-privs", filter, "true"]);
        assert!(!output.status.success(), "{filter}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("no system call given"), "{filter}: {output:?}");
    }
}

#[test]
fn landlock_access_that_cannot_be_denied_is_an_error_or_reported() {
    for caller in Caller::all("landlock_access_that_cannot_be_denied_is_an_error_or_reported") {
        let run = |more: &[&str]| {
            let filter = ["--inherit-all", "--no-new-privs", "--system-call-filter=~landlock_create_ruleset:ENOSYS"];
            let words = [&["run"], &filter[..], &[binary(), "run", "--landlock-access=fs"], more, &["true"]].concat();
            caller.shell(binary()).args(words).output().expect("forkless")
        };
        let output = run(&[]);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(125) && told.contains("no Landlock, or it is not enabled"), "{output:?}");
        let output = run(&["--best-effort=landlock"]);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && told.contains("skipped: restrict by Landlock"), "{output:?}");
    }
}

// ---- identity ----

/// Runs `id -G` under these options, with a caller whose groups include 1, 2 and 3.
fn groups(outer: &[&str], options: &[&str]) -> std::process::Output {
    let outer = [&["--inherit-all", "--groups=1,2,3"], outer, &[binary(), "run"], options].concat();
    Caller::Root.output(&[&outer[..], &["sh", "-c", "id -G"]].concat())
}

#[test]
fn supplementary_groups_are_kept_only_on_request() {
    let Some(_) = Caller::root_with("supplementary_groups_are_kept_only_on_request", CAP_SETUID) else { return };
    // A caller that is not root but may change its IDs.
    let other = ["--reuid=12345", "--regid=12345", "--ambient-caps=+setuid,+setgid"];
    for outer in [&other[..], &[]] {
        let seen = |options: &[&str]| {
            let output = groups(outer, options);
            assert!(output.status.success(), "{outer:?} {options:?}: {output:?}");
            let words = String::from_utf8(output.stdout).expect("text");
            let mut found: Vec<u32> = words.split_whitespace().map(|word| word.parse().expect("a group")).collect();
            found.sort();
            found
        };
        let own = if outer.is_empty() { 0 } else { 12345 };
        assert_eq!(seen(&[&format!("--reuid=23456:{own}")]), [own], "{outer:?}");
        assert_eq!(seen(&["--reuid=23456", "--regid=23456"]), [23456], "{outer:?}");
        let kept = if own == 0 { [0, 1, 2, 3] } else { [1, 2, 3, own] };
        assert_eq!(seen(&[&format!("--reuid=23456:{own}"), "--keep-groups"]), kept, "{outer:?}");
        assert_eq!(seen(&["--reuid=daemon", "--keep-groups"]), [1, 2, 3], "{outer:?}");
        assert_eq!(seen(&["--regid=23456", "--keep-groups"]), [1, 2, 3, 23456], "{outer:?}");
        assert_eq!(seen(&["--regid=23456", "--clear-groups"]), [23456], "{outer:?}");
        assert_eq!(seen(&["--regid=23456", "--groups=7"]), [7, 23456], "{outer:?}");
        let refused = groups(outer, &["--regid=23456"]);
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(125) && told.contains("--keep-groups"), "{outer:?}: {refused:?}");
        let refused = groups(outer, &["--reuid=23456:23456", "--init-groups"]);
        assert_eq!(refused.status.code(), Some(125), "{outer:?}: {refused:?}");
        // It would keep the group of the caller.
        for options in [&["--reuid=23456"][..], &["--user=23456", "--keep-groups"], &["--reuid=23456", "--groups=7"]] {
            let refused = groups(outer, options);
            let told = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert!(
                refused.status.code() == Some(125) && told.contains("--regid is needed"),
                "{options:?}: {refused:?}"
            );
        }
    }
    // A caller that may change its user but not its groups gets an error.
    let refused = groups(&["--reuid=12345:0", "--ambient-caps=+setuid"], &["--reuid=23456:0"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("CAP_SETGID"), "{refused:?}");
}

/// Root of a user namespace that is an ordinary user outside has no other ID, and keeps it. One that is root outside owns the files of root, so
/// the user must be set.
#[test]
fn sandbox_of_root_without_other_ids() {
    for caller in Caller::with_user_namespaces("sandbox_of_root_without_other_ids") {
        let run = |options: &[&str]| {
            let outer = ["--map-root-user", "--inherit-all", binary(), "run", "--sandbox", "--chdir=/"];
            let output = caller.output(
                &[&outer[..], options, &["sh", "-c", "id -u; id -G; : > /tmp/new; stat -c %u /tmp/new"]].concat(),
            );
            (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
        };
        let kept = (Some(0), "0\n0\n0\n".to_owned());
        if caller == Caller::Ordinary {
            assert_eq!(run(&[]), kept);
        } else {
            let (code, words) = run(&[]);
            assert!(
                code == Some(125) && words.contains("user 65534") && words.contains("set user and group to 0"),
                "{words}"
            );
            assert_eq!(run(&["--reuid=0", "--regid=0"]), kept);
            let outer = ["--bounding-set=-all", "--inherit-all", binary(), "run", "--sandbox", "--chdir=/", "true"];
            let refused = caller.failure(&outer);
            assert!(refused.contains("root without CAP_SETUID and CAP_SETGID"), "{refused}");
        }
    }
}

// ---- capabilities, directory, steps that may fail ----

#[test]
fn bounding_set_also_drops_inheritable_capabilities() {
    let test = "bounding_set_also_drops_inheritable_capabilities";
    let Some(root) = Caller::root_with(test, CAP_SETPCAP) else { return };
    let outer = ["--inherit-all", "--inh-caps=+net_raw,+kill", binary(), "run"];
    let set = |options: &[&str], name: &str| {
        let seen = root.status(&[&outer[..], options].concat(), name);
        u64::from_str_radix(&seen, 16).expect("a set")
    };
    let both = 1 << 13 | 1 << 5;
    assert_eq!(set(&[], "CapInh"), both);
    for name in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(set(&["--bounding-set=-all"], name), 0, "{name}");
        assert_eq!(set(&["--bounding-set=-all", "--reuid=12345:12345"], name), 0, "{name}");
    }
    assert_eq!(set(&["--bounding-set=-all,+kill"], "CapInh"), 1 << 5);
    assert_eq!(set(&["--bounding-set=-all,+kill", "--ambient-caps=+kill"], "CapInh"), 1 << 5);
    assert_eq!(set(&["--bounding-set=-all", "--inh-caps=-kill"], "CapInh"), 1 << 13, "--inh-caps overrides");
}

#[test]
fn working_directory_outside_a_new_root_is_an_error() {
    for caller in Caller::with_user_namespaces("working_directory_outside_a_new_root_is_an_error") {
        let run = |options: &str| {
            let user = if caller == Caller::Ordinary { "--unshare-user" } else { "" };
            let line = format!("exec 7</usr; exec \"$0\" run {user} --chdir-fd 7 {options}");
            caller.shell("sh").args(["-c", &line, binary()]).output().expect("sh")
        };
        for options in ["--chroot=/ pwd", "--chroot=/ --chdir=/ pwd", "--bind /usr /mnt --pivot-root=/mnt pwd"] {
            let output = run(options);
            assert_eq!(output.status.code(), Some(125), "{caller:?} {options}: {output:?}");
            assert!(String::from_utf8_lossy(&output.stderr).contains("current_dir_fd"), "{caller:?}: {output:?}");
        }
        let output = run("--chroot=.. pwd");
        assert_eq!(output.stdout, b"/\n", "a relative root is looked up from it: {caller:?} {output:?}");
    }
}

#[test]
fn every_skipped_step_is_reported() {
    let test = "every_skipped_step_is_reported";
    for caller in Caller::with_user_namespaces(test) {
        let none: Vec<String> = (0..40).map(|n| format!("--tmpfs=/no/such/{n}")).collect();
        let mut words = vec!["--best-effort=mount"];
        words.extend(none.iter().map(String::as_str));
        words.push("true");
        let output = caller.output(&allowed(caller, &words));
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{caller:?}: {output:?}");
        for place in none.iter().map(|word| word.trim_start_matches("--tmpfs=")) {
            assert!(told.lines().any(|line| line.contains(&format!("{place:?}"))), "{caller:?} {place}: {told}");
        }
        let many: Vec<String> = (0..200).map(|n| format!("--tmpfs=/no/such/{n}")).collect();
        words = vec!["--best-effort=mount"];
        words.extend(many.iter().map(String::as_str));
        words.push("true");
        let refused = caller.failure(&allowed(caller, &words));
        assert!(refused.contains("at most 128 steps"), "{caller:?}: {refused}");
    }
    let output = Caller::Ordinary.output(&["--bounding-set=-all", "--best-effort=capabilities", "true"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && told.contains("bounding set without 0-"), "{output:?}");
    assert_eq!(told.lines().count(), 1, "one setting is one line: {told}");
}

//! Programs in a sandbox by Landlock: what they can reach, and which commands are refused.

use super::preset::NOBODY;
use super::*;
use crate::{Launcher, Stdio};

/// The sandbox of this kernel, if it can have one.
fn prepared(sandbox: &Sandbox) -> Option<PreparedSandbox> {
    match sandbox.prepare() {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            eprintln!("SKIPPED: sandbox: {error}");
            None
        }
        sandbox => Some(sandbox.expect("a sandbox")),
    }
}

/// A directory of this test, which anybody may use.
fn directory(name: &str) -> PathBuf {
    let place = std::env::temp_dir().join(format!("forkless-sandbox-{}-{name}", std::process::id()));
    for name in ["inside", "outside"] {
        let path = place.join(name);
        std::fs::create_dir_all(&path).expect("a directory");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(path, mode).expect("chmod");
    }
    place
}

fn shell(sandbox: &PreparedSandbox, line: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", line]).current_dir("/").sandbox(sandbox);
    command
}

/// What a shell in the sandbox writes.
fn lines_of(sandbox: &PreparedSandbox, line: &str) -> String {
    let output = shell(sandbox, line).stderr(Stdio::null()).output().expect("a launch");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_program_writes_and_reads_only_where_it_may() {
    let place = directory("files");
    let (inside, outside) = (place.join("inside"), place.join("outside"));
    std::fs::write(outside.join("secret"), "secret").expect("write");
    let Some(sandbox) = prepared(Sandbox::landlock().write(&inside)) else { return };
    let line = format!(
        "echo 1 > {0}/a && cat {0}/a && mkdir {0}/d && mv {0}/a {0}/d/b && rm -r {0}/d; \
         echo 2 > {1}/b || cat {1}/secret || ls {1} || mv {0} {1}/c || echo refused",
        inside.display(),
        outside.display()
    );
    assert_eq!(lines_of(&sandbox, &line), "1\nrefused\n");
    let Some(both) = prepared(Sandbox::landlock().write(&inside).read(&outside)) else { return };
    let line = format!("cat {0}/secret; echo 2 > {0}/b || : > {0}/secret || rm {0}/secret", outside.display());
    assert_eq!(lines_of(&both, &line), "secret");
    std::fs::remove_dir_all(place).expect("removed");
}

#[test]
fn attributes_change_only_on_request() {
    let place = directory("attributes");
    let inside = place.join("inside");
    let mut sandbox = Sandbox::landlock();
    sandbox.write(&inside);
    for (may, wanted) in [(false, "no\nno\nno\ntouched\n"), (true, "chmod\ntimes\nhere\ntouched\n")] {
        let Some(sandbox) = prepared(sandbox.change_attributes(may)) else { return };
        let line = format!(
            "cd {}; : > f$$; (chmod 600 f$$ && echo chmod || echo no); (touch -h f$$ && echo times || echo no); \
             (chmod 700 . && chmod 777 . && echo here || echo no); touch f$$ && echo touched",
            inside.display()
        );
        // Only the owner may change a mode.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(&inside, mode).expect("chmod");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&inside, Some(NOBODY), Some(NOBODY)).expect("chown");
        }
        assert_eq!(lines_of(&sandbox, &line), wanted, "{may}");
    }
    std::fs::remove_dir_all(place).expect("removed");
}

#[test]
fn a_replaced_directory_is_an_error_that_names_it() {
    let place = directory("replaced");
    let inside = place.join("inside");
    let Some(sandbox) = prepared(Sandbox::landlock().write(&inside)) else { return };
    std::fs::rename(&inside, place.join("moved")).expect("moved");
    for is_back in [false, true] {
        if is_back {
            std::fs::create_dir(&inside).expect("a directory");
        }
        let error = shell(&sandbox, "true").status().expect_err("replaced");
        let words = error.to_string();
        assert!(words.contains(&inside.display().to_string()) && words.contains("prepare it again"), "{words}");
        assert_eq!(Error::of(&error).map(Error::step), Some(Step::Landlock));
    }
    let error = Sandbox::landlock().read(place.join("none")).prepare().expect_err("missing");
    assert!(error.to_string().contains("none: No such file"), "{error}");
    std::fs::remove_dir_all(place).expect("removed");
}

#[test]
fn signals_are_refused_where_landlock_cannot() {
    if prepared(&Sandbox::landlock()).is_none() {
        return;
    }
    let line = "sleep 9 & kill -KILL $! && wait $!; echo $?";
    for (version, wanted) in [(5, "1\n"), (6, "137\n")] {
        let Ok(sandbox) = Sandbox::landlock().prepare_for(version) else { return };
        let line = if version == 5 { "kill -0 $$; echo $?" } else { line };
        assert_eq!(lines_of(&sandbox, line), wanted, "version {version}");
    }
    let error = Sandbox::landlock().prepare_for(2).expect_err("too old");
    assert!(error.kind() == io::ErrorKind::Unsupported && error.to_string().contains("Linux 6.2"), "{error}");
}

#[test]
fn a_program_has_no_privileges_and_few_variables() {
    let Some(sandbox) = prepared(Sandbox::landlock().keep_env("CARGO_PKG_NAME")) else { return };
    let line = "env | cut -d= -f1 | grep CARGO; sed -n 's/^\\(Cap[^B].*\\|NoNew.*\\|Seccomp\\):\\t//p' /proc/self/status; \
                test $(id -u) = 0 || echo ordinary; test $(cut -d' ' -f6 /proc/self/stat) = $$ && echo session; ulimit -c";
    let none = "0000000000000000\n".repeat(4);
    let found = lines_of(&sandbox, line);
    // Cargo sets it; the program may also be run by itself.
    let kept = if std::env::var_os("CARGO_PKG_NAME").is_some() { "CARGO_PKG_NAME\n" } else { "" };
    assert_eq!(found, format!("{kept}{none}1\n2\nordinary\nsession\n0\n"));
    let output = shell(&sandbox, "echo $GIVEN$PATH").env_clear().env("GIVEN", "x").output().expect("a launch");
    assert!(output.stdout.starts_with(b"x"), "{output:?}");
}

#[cfg(feature = "shell")]
fn in_shell(line: &str, sandbox: &PreparedSandbox) -> crate::ShellCommand {
    let mut line = crate::shell(line);
    line.settings().sandbox(sandbox);
    line
}

#[test]
fn every_form_of_launch_is_in_the_sandbox() {
    let Some(sandbox) = prepared(&Sandbox::landlock()) else { return };
    let line = "cat /proc/self/status | grep -q 'Seccomp:.2' && ! ls /tmp 2> /dev/null";
    let is_inside = |status: std::process::ExitStatus| assert!(status.success(), "{status}");
    is_inside(shell(&sandbox, line).status().expect("status"));
    is_inside(shell(&sandbox, line).spawn().expect("spawn").wait().expect("an end"));
    is_inside(shell(&sandbox, line).launch().expect("launch").wait().expect("an end"));
    is_inside(shell(&sandbox, line).prepare().expect("prepare").status().expect("an end"));
    is_inside(shell(&sandbox, line).launcher(Launcher::Fork).status().expect("fork"));
    #[cfg(feature = "pty")]
    {
        let pty = crate::Pty::open(crate::PtySize::default()).expect("a pty");
        is_inside(shell(&sandbox, line).pty(&pty).status().expect("with a pty"));
    }
    #[cfg(feature = "shell")]
    {
        is_inside(in_shell(line, &sandbox).status().expect("a shell line"));
        // Without a sandbox this line needs no shell.
        let output = in_shell("/usr/bin/env", &sandbox).output().expect("a simple line").stdout;
        assert!(!String::from_utf8_lossy(&output).contains("CARGO"));
    }
    let error = shell(&sandbox, line).launcher(Launcher::PosixSpawn).status().expect_err("cannot");
    assert!(error.to_string().contains("posix_spawn"), "{error}");
}

#[test]
fn settings_that_would_weaken_it_are_refused() {
    let Some(sandbox) = prepared(&Sandbox::landlock()) else { return };
    let mut commands = [(); 4].map(|()| shell(&sandbox, "true"));
    commands[0].inherit_all(true);
    commands[1].best_effort(Step::Nice);
    commands[2].landlock(Ruleset::new(OLDEST).expect("a ruleset").into_file());
    commands[3].exactly(vec!["/bin/true".into()], vec!["true".into()], std::iter::empty());
    let words = ["inherit_all", "best_effort", "Landlock ruleset", "environment"];
    for (command, word) in commands.iter_mut().zip(words) {
        let error = command.status().expect_err(word);
        assert!(error.to_string().contains(word), "{error}");
        assert_eq!(Error::of(&error).map(Error::step), Some(Step::Check));
    }
    let allow = BpfInstruction { code: 6, jt: 0, jf: 0, k: filter::ALLOW };
    assert!(!shell(&sandbox, "ls /tmp").seccomp([allow]).status().expect("a launch").success());
}

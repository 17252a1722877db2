//! Programs in a sandbox of namespaces: what they see, and what their init does.
//!
//! Longer than 700 lines: each test needs the same few functions.

use super::super::{Network, PreparedSandbox, Sandbox};
use crate::{CapabilitySet, Capture, Command, Error, Launcher, Stdio, Step};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The sandbox, if user namespaces are allowed here.
fn prepared(sandbox: &Sandbox) -> Option<PreparedSandbox> {
    let sandbox = sandbox.prepare().expect("a sandbox");
    match (shell(&sandbox, "true").status(), sandbox.check()) {
        (Err(error), check) if Error::of(&error).is_some_and(|error| error.step() == Step::Clone) => {
            eprintln!("SKIPPED: {}", check.expect_err("no namespaces"));
            None
        }
        (status, check) => {
            assert!(status.expect("a launch").success());
            check.expect("a sandbox that works");
            Some(sandbox)
        }
    }
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

/// A directory of this test outside of /tmp, which anybody may use.
fn directory(name: &str) -> PathBuf {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let place = Path::new("/var/tmp").join(format!("forkless-namespaces-{}-{number}-{name}", std::process::id()));
    for name in ["inside/nested", "outside"] {
        std::fs::create_dir_all(place.join(name)).expect("a directory");
    }
    for path in [place.join("inside/nested"), place.join("inside"), place.join("outside")] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o777)).expect("chmod");
    }
    place
}

#[test]
fn a_program_sees_what_it_was_given_and_nothing_else() {
    let place = directory("files");
    let (inside, outside) = (place.join("inside"), place.join("outside"));
    std::fs::write(place.join("file"), "text").expect("write");
    std::fs::write(outside.join("secret"), "secret").expect("write");
    let mut sandbox = Sandbox::new();
    // The order of the calls does not matter.
    sandbox.read(inside.join("nested")).write(&inside).read(place.join("file"));
    let Some(sandbox) = prepared(&sandbox) else { return };
    let line = format!(
        "cd {0}/inside; echo 1 > a && cat a && chmod 700 a && rm a; echo 2 > nested/b || echo nested; cat ../file; echo > ../file || echo file; \
         ls {0} | tr '\\n' ' '; ls /home /root /var/lib 2> /dev/null; echo > /usr/x || echo > /x || echo root; ls / | tr '\\n' ' '; \
         grep -o '^tmpfs / tmpfs ro,' /proc/self/mounts",
        place.display()
    );
    let found = lines_of(&sandbox, &line);
    let (start, end) = found.split_at(found.find("root").unwrap_or(0));
    assert_eq!(start, "1\nnested\ntextfile\nfile inside ", "{found}");
    assert!(
        ["dev", "etc", "proc", "run", "tmp", "usr", "var", "tmpfs / tmpfs ro,"].iter().all(|name| end.contains(name)),
        "{found}"
    );
    assert!(["home", "boot", "mnt", "sys"].iter().all(|name| !end.contains(name)), "{found}");
    std::fs::remove_dir_all(place).expect("removed");
}

/// Otherwise a hook of git, say, would run outside later.
#[test]
fn what_is_read_only_keeps_its_place_though_all_around_it_may_be_written_to() {
    let place = directory("pinned");
    let project = place.join("inside");
    for name in [".git/hooks/deep", "other"] {
        std::fs::create_dir_all(project.join(name)).expect("a directory");
    }
    for name in ["", ".git", ".git/hooks", ".git/hooks/deep", "other"] {
        std::fs::set_permissions(project.join(name), PermissionsExt::from_mode(0o777)).expect("chmod");
    }
    let mut sandbox = Sandbox::new();
    sandbox
        .read(project.join(".git/hooks/deep"))
        .write(project.join(".git/hooks"))
        .write(&project)
        .read(project.join("other"));
    let Some(sandbox) = prepared(&sandbox) else { return };
    let line = format!(
        "cd {}; for one in .git .git/hooks .git/hooks/deep other; do mv $one $one-moved && echo $one; done; rm -r .git; echo > .git/hooks/new && echo written; \
         echo > .git/new && echo > new && echo written; echo > .git/hooks/deep/new || echo refused",
        project.display()
    );
    assert_eq!(lines_of(&sandbox, &line), "written\nwritten\nrefused\n");
    assert!(project.join(".git/hooks/deep").is_dir() && !project.join(".git-moved").exists());
    // A link in what may be written to.
    std::os::unix::fs::symlink(".git/hooks", project.join("link")).expect("a link");
    let error = Sandbox::new().write(&project).read(project.join("link/deep")).prepare().expect_err("a link");
    assert!(error.to_string().contains("symbolic link"), "{error}");
    std::fs::remove_dir_all(place).expect("removed");
}

#[test]
fn a_project_may_be_changed_but_not_what_is_obeyed_there_outside() {
    let place = directory("project");
    let project = place.join("inside");
    std::fs::create_dir_all(project.join(".git/hooks")).expect("a directory");
    std::fs::write(project.join(".git/config"), "[core]\n").expect("write");
    std::fs::write(project.join(".envrc"), "").expect("write");
    for name in [".git", ".git/hooks", ".git/config", ".envrc"] {
        std::fs::set_permissions(project.join(name), PermissionsExt::from_mode(0o777)).expect("chmod");
    }
    let Some(sandbox) = prepared(Sandbox::new().writable_project(&project)) else { return };
    let line = format!(
        "cd {}; for one in .git/hooks/new .git/config .envrc; do echo > $one || echo refused; done; rm -f .envrc; mv .git x; mv .git/config .git/x; \
         for one in .git/index new .vscode; do echo > $one && echo written; done",
        project.display()
    );
    assert_eq!(lines_of(&sandbox, &line), "refused\nrefused\nrefused\nwritten\nwritten\nwritten\n");
    assert!(project.join(".git/config").is_file() && !project.join(".git/x").exists());
    let error = Sandbox::landlock().writable_project(&project).prepare().expect_err("no namespaces");
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    std::fs::remove_dir_all(place).expect("removed");
}

#[test]
fn what_is_hidden_cannot_be_opened_and_nothing_is_left_there() {
    let place = directory("hidden");
    let project = place.join("inside");
    for name in ["deep/er", "secrets/public", "other/secrets", "closed"] {
        std::fs::create_dir_all(project.join(name)).expect("a directory");
    }
    let files =
        [".env", "deep/.env", "deep/er/.env", "deep/file", "secrets/key", "secrets/public/text", "other/secrets/key"];
    for name in files {
        std::fs::write(project.join(name), format!("{name}\n")).expect("write");
    }
    std::os::unix::fs::symlink("deep/file", project.join("link.pem")).expect("a link");
    let of_caller = |name: &str| std::fs::read_to_string(project.join(name)).expect("a file");
    let before: Vec<_> = files.iter().map(|name| of_caller(name)).collect();
    let everywhere = project.clone();
    let mut sandbox = Sandbox::new();
    // In any order: a place below a hidden directory is shown.
    sandbox.hide(project.join("secrets")).read(project.join("secrets/public")).write(&everywhere);
    sandbox.hide("**/.env").hide("*.pem").hide("nonesuch").hide("**/nonesuch").hide("/etc/passwd");
    let Some(sandbox) = prepared(&sandbox) else { return };
    let line = format!(
        "cd {}; for one in {} link.pem /etc/passwd; do cat $one 2>&1 | sed 's/.*: //'; done; ls secrets 2>&1 | sed 's/.*: //'; \
         for one in .env deep/.env link.pem secrets; do echo >> $one; chmod 777 $one; rm -f $one; done; echo > secrets/new; \
         mv deep moved; cat moved/.env 2>&1 | sed 's/.*: //'; cat moved/er/.env; mv moved deep; ln deep/.env again",
        project.display(),
        files.join(" ")
    );
    let denied = "Permission denied";
    let expected = [
        denied,
        denied,
        denied,
        denied,
        "No such file or directory",
        "secrets/public/text",
        "other/secrets/key",
        denied,
        denied,
        denied,
        denied,
    ];
    assert_eq!(lines_of(&sandbox, &line).lines().collect::<Vec<_>>(), expected);
    assert_eq!(files.iter().map(|name| of_caller(name)).collect::<Vec<_>>(), before);
    let left = ["again", "moved", "secrets/new", "nonesuch"].map(|name| project.join(name).exists());
    assert_eq!(left, [false; 4], "something is left");
    let error = Sandbox::landlock().hide(".env").prepare().expect_err("Landlock cannot");
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    // A place further down pins the directories above it, and a hidden directory is searched for it.
    std::fs::create_dir_all(project.join("other/private/public")).expect("a directory");
    for name in ["other/.env", "other/private/public/.env", "other/private/public/text"] {
        std::fs::write(project.join(name), name).expect("write");
    }
    let mut nested = Sandbox::new();
    nested.write(&project).read(project.join("other/private/public"));
    nested.hide(project.join("**/.env")).hide(project.join("**/private"));
    let nested = prepared(&nested).expect("as before");
    let line = format!(
        "cd {}/other; cat .env private/public/.env; cat private/public/text; ls private; mv ../other ../x",
        project.display()
    );
    assert_eq!(lines_of(&nested, &line), "other/private/public/text");
    let mut pinned = Sandbox::new();
    pinned.write(&project).read(project.join("other/private/public")).hide("**/.env");
    let line = format!("cd {}/other; cat .env private/public/.env; cat private/public/text", project.display());
    assert_eq!(lines_of(&prepared(&pinned).expect("as before"), &line), "other/private/public/text");
    // In a project, what is obeyed outside can be hidden, too.
    for name in [".git/hooks/pre", ".envrc"] {
        std::fs::create_dir_all(project.join(name).parent().expect("a directory")).expect("a directory");
        std::fs::write(project.join(name), "obeyed").expect("write");
    }
    let mut of_project = Sandbox::new();
    of_project.writable_project(&project).hide("**/.git").hide("**/.envrc");
    let of_project = prepared(&of_project).expect("as before");
    let line = format!("cd {}; cat .git/hooks/pre .envrc || ls -a .git || echo refused", project.display());
    assert_eq!(lines_of(&of_project, &line), "refused\n");
    // Looked up at the launch.
    std::fs::write(project.join("deep/late.pem"), "late").expect("write");
    std::fs::write(project.join("late.pem"), "late").expect("write");
    assert_eq!(lines_of(&sandbox, &format!("cd {}; cat late.pem deep/late.pem", project.display())), "late");
    std::fs::remove_dir_all(place).expect("removed");
}

/// A mount point that is there already may be a file of the host.
#[test]
fn files_of_the_host_stay_as_they_are() {
    let place = directory("kept");
    let file = place.join("inside/file");
    std::fs::write(&file, "text").expect("write");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o666)).expect("chmod");
    for path in [file.clone(), place.join("outside/../inside/file"), "/etc/passwd".into()] {
        let Some(sandbox) = prepared(Sandbox::new().write(place.join("inside")).read(&path)) else { return };
        let line = format!("cat {0}/inside/file; echo > {0}/inside/file || echo refused", place.display());
        let is_listed = path != Path::new("/etc/passwd");
        assert_eq!(lines_of(&sandbox, &line), if is_listed { "textrefused\n" } else { "text" }, "{path:?}");
        assert_eq!(std::fs::read_to_string(&file).expect("a file"), if is_listed { "text" } else { "\n" }, "{path:?}");
    }
    std::fs::remove_dir_all(place).expect("removed");
}

#[test]
fn no_two_launches_share_a_new_directory() {
    let place = std::env::temp_dir().join(format!("forkless-namespaces-below-tmp-{}", std::process::id()));
    std::fs::create_dir_all(&place).expect("a directory");
    let Some(sandbox) = prepared(Sandbox::new().read(&place)) else { return };
    for name in ["/tmp", "/dev/shm"] {
        let line = format!("ls {name} | grep kept; echo > {name}/kept && ls {name} | grep -c kept");
        assert_eq!([(); 2].map(|()| lines_of(&sandbox, &line)), ["1\n", "1\n"], "{name}");
    }
    assert_eq!(lines_of(&sandbox, &format!("test -d {} && echo shown", place.display())), "shown\n");
    std::fs::remove_dir_all(place).expect("removed");
}

#[test]
fn every_form_of_launch_has_an_init_and_tells_how_the_program_ended() {
    let Some(sandbox) = prepared(&Sandbox::new()) else { return };
    // The second process, whose parent is init.
    let line =
        "test $$ = 2 && grep -q 'PPid:.1$' /proc/self/status && exit 7 || sh -c 'test $PPID = 2' && exit 7; exit 1";
    let is_seven = |status: std::process::ExitStatus| assert_eq!(status.code(), Some(7), "{status}");
    is_seven(shell(&sandbox, line).status().expect("status"));
    is_seven(shell(&sandbox, line).spawn().expect("spawn").wait().expect("an end"));
    is_seven(shell(&sandbox, line).launch().expect("launch").wait().expect("an end"));
    let ready = shell(&sandbox, line).prepare().expect("prepare");
    for _ in 0..2 {
        is_seven(ready.status().expect("prepared"));
    }
    let captured = shell(&sandbox, line).capture(&Capture::new().limit(100)).expect("a capture");
    is_seven(captured.status);
    let mut child = shell(&sandbox, line).spawn().expect("spawn");
    let status = loop {
        if let Some(status) = child.try_wait().expect("try_wait") {
            break status;
        }
        let _ = child.wait_timeout(Duration::from_secs(9)).expect("wait_timeout").map(is_seven);
    };
    is_seven(status);
    #[cfg(feature = "pty")]
    {
        let pty = crate::Pty::open(crate::PtySize::default()).expect("a pty");
        is_seven(shell(&sandbox, "test -t 0 && exit 7").pty(&pty).status().expect("with a pty"));
    }
    let mut pipeline = crate::Pipeline::new();
    for part in ["echo 7", "read code; exit $code"] {
        pipeline.command(&mut shell(&sandbox, part)).expect("a command");
    }
    is_seven(pipeline.status().expect("a pipeline").all()[1]);
    #[cfg(feature = "tokio")]
    ::tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(async {
        let awaited = |line| crate::tokio::Command::from(shell(&sandbox, line));
        is_seven(awaited(line).status().await.expect("awaited"));
        is_seven(awaited(line).spawn().expect("spawned").wait().await.expect("an end"));
        let mut absent = Command::new("/no/such/program");
        absent.current_dir("/").sandbox(&sandbox);
        let error = crate::tokio::Command::from(absent).status().await.expect_err("absent");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    });
    for signal in [6, 9, 11, 15] {
        let status = shell(&sandbox, &format!("ulimit -c 0; kill -{signal} $$")).status().expect("an end");
        assert_eq!(status.signal(), Some(signal), "{status}");
    }
    for (launcher, word) in [(Launcher::PosixSpawn, "posix_spawn"), (Launcher::Fork, "needs Launcher::Clone")] {
        let error = shell(&sandbox, line).launcher(launcher).status().expect_err(word);
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[test]
fn a_program_that_cannot_be_executed_is_an_error_that_names_it() {
    let Some(sandbox) = prepared(&Sandbox::new()) else { return };
    let own = std::env::current_exe().expect("a path");
    let hidden = own.to_str().expect("text");
    for (program, kind, words) in [
        ("/no/such/program", io::ErrorKind::NotFound, "/no/such/program"),
        ("no-such-program", io::ErrorKind::NotFound, "searched PATH"),
        ("/etc/passwd", io::ErrorKind::PermissionDenied, "not executable"),
        ("/etc/passwd/x", io::ErrorKind::NotADirectory, "/etc/passwd/x"),
        (hidden, io::ErrorKind::NotFound, "exists, but inside the sandbox it, its interpreter or its loader does not"),
    ] {
        let command = || {
            let mut command = Command::new(program);
            command.current_dir("/").sandbox(&sandbox);
            command
        };
        let errors = [
            command().spawn().map(drop),
            command().status().map(drop),
            command().launch().and_then(|mut child| child.wait_exec()),
            command().launch().and_then(|mut child| child.wait()).map(drop),
        ];
        for error in errors.map(|answer| answer.expect_err(program)) {
            assert_eq!((error.kind(), Error::of(&error).map(Error::step)), (kind, Some(Step::Exec)), "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
    }
    // What may not be executed is a better reason than what is absent later.
    let mut command = Command::new("passwd");
    command.env("PATH", "/etc:/no/such").current_dir("/").sandbox(&sandbox);
    assert_eq!(command.status().expect_err("forbidden").kind(), io::ErrorKind::PermissionDenied);
    // What is found later in the search is executed after all.
    let mut command = Command::new("true");
    command.env("PATH", "/no/such:/etc/passwd:/usr/bin:/bin").current_dir("/").sandbox(&sandbox);
    assert!(command.status().expect("an end").success());
}

/// As CPython does: `Command::try_all`.
#[test]
fn init_tries_what_comes_after_any_failure_where_that_was_requested() {
    let place = directory("tried");
    let file = place.join("true");
    std::fs::write(&file, "neither text nor a program\0").expect("write");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).expect("chmod");
    let Some(sandbox) = prepared(Sandbox::new().read(&place)) else { return };
    let place = place.display();
    for (path, all, wanted) in [
        (format!("/no/such:{place}:/usr/bin:/bin"), true, None),
        (format!("/no/such:{place}:/usr/bin:/bin"), false, Some(8)),
        // The first failure that is more than absence.
        (format!("/no/such:{place}:/no/such"), true, Some(8)),
        (format!("/no/such:/etc/passwd:{place}"), true, Some(8)),
        ("/no/such:/etc/passwd:/no/such".into(), true, Some(2)),
    ] {
        let mut command = Command::new("true");
        command.env("PATH", &path).current_dir("/").sandbox(&sandbox).try_all(all);
        let found = command.status().map_err(|error| Error::of(&error).and_then(Error::errno));
        assert_eq!(found.map(|status| status.success()), wanted.map_or(Ok(true), |errno| Err(Some(errno))), "{path}");
    }
    std::fs::remove_dir_all(place.to_string()).expect("removed");
}

#[test]
fn the_end_is_known_though_another_part_of_the_process_reaped_init() {
    let Some(sandbox) = prepared(&Sandbox::new()) else { return };
    for has_pidfd in [true, false] {
        let mut child = shell(&sandbox, "kill -TERM $$").pidfd(has_pidfd).spawn().expect("spawn");
        let pid = nix::unistd::Pid::from_raw(child.id() as i32);
        let ended = nix::sys::wait::waitpid(pid, None).expect("waitpid");
        assert_eq!(ended, nix::sys::wait::WaitStatus::Exited(pid, 128 + 15));
        assert_eq!(child.wait().expect("an end").signal(), Some(15), "{has_pidfd}");
        let mut missing = Command::new("/no/such/program");
        let mut child = missing.current_dir("/").sandbox(&sandbox).pidfd(has_pidfd).launch().expect("launch");
        let pid = nix::unistd::Pid::from_raw(child.id() as i32);
        // It may not have executed init yet, and has no exit signal until then.
        let ended = nix::sys::wait::waitpid(pid, Some(nix::sys::wait::WaitPidFlag::__WALL)).expect("waitpid");
        assert_eq!(ended, nix::sys::wait::WaitStatus::Exited(pid, 127));
        assert_eq!(child.wait().expect_err("no program").kind(), io::ErrorKind::NotFound, "{has_pidfd}");
    }
}

#[test]
fn the_end_of_the_program_is_the_end_of_all() {
    let Some(sandbox) = prepared(&Sandbox::new()) else { return };
    // Processes in sessions of their own hold the pipe, ignore signals and are children of init.
    let line = "for n in 1 2 3; do (setsid sh -c 'trap \"\" TERM HUP INT; sleep 600' &) & done; sleep 0.1; echo done";
    assert_eq!(lines_of(&sandbox, line), "done\n");
    // The end of another child of init is not.
    assert_eq!(lines_of(&sandbox, "(sh -c 'exit 9' &); (sleep 0.01 &); sleep 0.2; echo done"), "done\n");
    // The death of init is.
    let line = "(setsid sleep 600 &) & echo ready; sleep 600";
    let mut child = shell(&sandbox, line).stdout(Stdio::piped()).spawn().expect("spawn");
    let mut text = [0; 6];
    let mut output = child.stdout.take().expect("a pipe");
    output.read_exact(&mut text).expect("ready");
    child.kill().expect("kill");
    assert_eq!(output.read_to_end(&mut Vec::new()).expect("the end"), 0);
    assert_eq!(child.wait().expect("an end").signal(), Some(9));
}

#[test]
fn other_processes_have_a_while_when_the_program_has_ended() {
    let with = |linger| prepared(Sandbox::new().linger(Duration::from_millis(linger)));
    let (Some(default), Some(none)) = (prepared(&Sandbox::new()), with(0)) else { return };
    let (Some(some), Some(long)) = (with(100), with(100_000)) else { return };
    let late = "(sleep 0.05; echo late) & echo done";
    assert_eq!(lines_of(&default, late), "done\nlate\n");
    assert_eq!(lines_of(&none, late), "done\n");
    // The wait is over when nobody is left, and not longer where others come and go.
    assert_eq!(lines_of(&long, late), "done\nlate\n");
    let limits = Capture::new().timeout(Duration::from_secs(30));
    for line in ["(setsid sleep 600 &) & exit 3", "(while :; do (true &); sleep 0.01; done) & exit 3"] {
        let captured = shell(&some, line).capture(&limits).expect("a launch");
        assert_eq!((captured.timed_out, captured.status.code()), (false, Some(3)), "{line}");
    }
    // A signal that ends programs ends it.
    let line = "(trap '' TERM WINCH; exec setsid sleep 600 > /dev/null) & exit 5";
    let mut child = shell(&long, line).stdout(Stdio::piped()).spawn().expect("spawn");
    assert_eq!(child.stdout.take().expect("a pipe").read_to_end(&mut Vec::new()).expect("the end"), 0);
    for _ in 0..10 {
        child.signal(28).expect("a signal");
        assert!(child.wait_timeout(Duration::from_millis(10)).expect("a wait").is_none());
    }
    while child.wait_timeout(Duration::from_millis(10)).expect("a wait").is_none() {
        child.signal(15).expect("a signal");
    }
    assert_eq!(child.wait().expect("an end").code(), Some(5));
    let refused = Sandbox::landlock().linger(Duration::ZERO).prepare().expect_err("no init");
    assert!(refused.to_string().contains("needs namespaces"), "{refused}");
}

#[test]
fn init_passes_signals_on_and_keeps_no_descriptor() {
    let Some(sandbox) = prepared(&Sandbox::new()) else { return };
    let line = "trap 'echo caught; exit 3' TERM; exec 2>&-; echo ready; while :; do sleep 0.01; done";
    let mut child = shell(&sandbox, line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("spawn");
    // The program has closed it, and nobody else has it.
    assert_eq!(child.stderr.take().expect("a pipe").read_to_end(&mut Vec::new()).expect("the end"), 0);
    let mut output = child.stdout.take().expect("a pipe");
    output.read_exact(&mut [0; 6]).expect("ready");
    child.signal(15).expect("a signal");
    let mut text = String::new();
    output.read_to_string(&mut text).expect("text");
    assert_eq!((text.as_str(), child.wait().expect("an end").code()), ("caught\n", Some(3)));
    // The program leads a session.
    assert_eq!(lines_of(&sandbox, "test $(cut -d' ' -f6 /proc/self/stat) = $$ && echo session"), "session\n");
    // A signal that stops: none of a session without a terminal does.
    let mut child = shell(&sandbox, "kill -TSTP $$; exit 4").spawn().expect("spawn");
    assert_eq!(child.wait().expect("an end").code(), Some(4));
    // Descriptors get through init, and the socket of init does not get to the program.
    let mut command = shell(&sandbox, "ls /proc/self/fd | tr '\\n' ' '; cat <&5");
    let file = std::fs::File::open("/etc/hostname").expect("a file");
    let output = command.fd(file, 5).stdin(Stdio::null()).output().expect("a launch");
    assert!(output.stdout.starts_with(b"0 1 2 3 5 "), "{output:?}");
    // Nobody inside can look at init.
    assert_eq!(
        lines_of(&sandbox, "ls /proc/1/fd /proc/1/cwd/ || kill -KILL 1; kill -TERM 1; sleep 0.1; echo lives"),
        "lives\n"
    );
}

/// The status gets through though the kernel would discard it, and though a filter refuses calls of init.
#[test]
fn init_learns_how_the_program_ended_whatever_is_refused() {
    let Some(sandbox) = prepared(&Sandbox::new()) else { return };
    let line = "(sleep 0.05; exit 1) & kill -9 $$";
    let killed = |command: &mut Command| {
        let status = command.status().expect("an end");
        assert_eq!(status.signal(), Some(9), "{status}");
    };
    // The signal is ignored by the program, as the command says.
    let mut command = Command::new("grep");
    command.args(["-q", "SigIgn:.*1....$", "/proc/self/status"]).current_dir("/").sandbox(&sandbox).signal_ignore(17);
    assert_eq!(command.status().expect("an end").code(), Some(0));
    killed(shell(&sandbox, line).signal_ignore(17));
    use super::super::filter::ALLOW;
    const LOAD_NUMBER: crate::BpfInstruction = crate::BpfInstruction { code: 0x20, jt: 0, jf: 0, k: 0 };
    let answer = |k| crate::BpfInstruction { code: 6, jt: 0, jf: 0, k };
    for refused in [nix::libc::SYS_ppoll, nix::libc::SYS_read, nix::libc::SYS_signalfd4, nix::libc::SYS_getsockopt] {
        let is_it = crate::BpfInstruction { code: 0x15, jt: 0, jf: 1, k: refused as u32 };
        let filter = [LOAD_NUMBER, is_it, answer(0x5_0000 | 1), answer(ALLOW)];
        // A static program needs no read(2) to start.
        let status = shell(&sandbox, line).seccomp(filter).status().expect("an end");
        let is_loader = refused == nix::libc::SYS_read && status.code() == Some(127);
        assert!(status.signal() == Some(9) || is_loader, "{refused}: {status}");
    }
}

#[test]
fn variables_that_the_command_sets_stay() {
    let Some(sandbox) = prepared(&Sandbox::new()) else { return };
    let output = shell(&sandbox, "echo $HOME").env("HOME", "/no/such").output().expect("a launch");
    assert_eq!(output.stdout, b"/no/such\n");
}

#[test]
fn a_dropped_handle_does_not_end_it() {
    let place = directory("dropped");
    let Some(sandbox) = prepared(Sandbox::new().write(place.join("inside"))) else { return };
    let line = format!("sleep 0.2; echo > {}/inside/done", place.display());
    drop(shell(&sandbox, &line).spawn().expect("spawn"));
    let patience = std::time::Instant::now() + Duration::from_secs(20);
    while !place.join("inside/done").exists() {
        assert!(std::time::Instant::now() < patience, "it was ended");
        std::thread::sleep(Duration::from_millis(10));
    }
    while crate::reap_orphans() > 0 && std::time::Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::fs::remove_dir_all(place).expect("removed");
}

#[test]
fn what_was_replaced_is_not_shown() {
    let place = directory("replaced");
    let inside = place.join("inside");
    std::fs::write(place.join("outside/secret"), "secret").expect("write");
    let Some(sandbox) = prepared(Sandbox::new().read(&inside)) else { return };
    // Compiled before the change, so that only the child can see it.
    let ready = shell(&sandbox, &format!("cat {}/secret", inside.display())).prepare().expect("prepare");
    std::fs::rename(&inside, place.join("moved")).expect("moved");
    std::os::unix::fs::symlink("outside", &inside).expect("a link");
    let error = ready.status().expect_err("replaced by a link");
    assert_eq!(Error::of(&error).map(Error::step), Some(Step::Mount), "{error}");
    assert!(error.to_string().contains(&inside.display().to_string()), "{error}");
    let error = shell(&sandbox, "true").status().expect_err("replaced");
    assert!(error.to_string().contains("prepare it again"), "{error}");
    std::fs::remove_dir_all(place).expect("removed");
}

#[test]
fn settings_that_do_not_fit_are_refused() {
    let Some(sandbox) = prepared(&Sandbox::new()) else { return };
    let mut commands = [(); 6].map(|()| shell(&sandbox, "true"));
    commands[0].unshare(crate::Namespace::Network);
    commands[1].chroot("/");
    commands[2].retry_busy(Duration::from_secs(1));
    commands[3].user("nobody");
    commands[4].inherit_all(true);
    commands[5].current_dir("/home");
    let words = ["namespaces", "a root of its own", "100 ms", "by their numbers", "inherit_all", "not visible inside"];
    for (command, word) in commands.iter_mut().zip(words) {
        let error = command.status().expect_err(word);
        assert!(error.to_string().contains(word), "{error}");
    }
    let unfit = [
        Sandbox::new().change_attributes(true).prepare(),
        Sandbox::landlock().network(Network::None).prepare(),
        Sandbox::new().write("/proc/sys").prepare(),
        Sandbox::new().read("/").prepare(),
    ];
    for answer in unfit {
        assert_eq!(answer.expect_err("unfit").kind(), io::ErrorKind::InvalidInput);
    }
}

#[test]
fn a_program_has_the_network_that_was_chosen() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    // Connects to the caller, or to itself.
    let line = format!(
        "python3 -c 'import socket as s\ntry: s.create_connection((\"127.0.0.1\", {port}))\nexcept ConnectionRefusedError: print(\"own\")\n\
         except OSError as e: print(e.strerror)\nelse: print(\"host\")'"
    );
    for (network, wanted) in [
        (Network::None, "own\n"),
        (Network::Refused, "Address family not supported by protocol\n"),
        (Network::Host, "host\n"),
    ] {
        let Some(sandbox) = prepared(Sandbox::new().network(network)) else { return };
        if lines_of(&sandbox, "command -v python3").is_empty() {
            eprintln!("SKIPPED: no python3 below /usr");
            return;
        }
        assert_eq!(lines_of(&sandbox, &line), wanted, "{network:?}");
    }
}

/// Each reason is an error, with the words of the launch.
#[test]
fn what_a_machine_cannot_give_is_found_by_trying() {
    let place = directory("checked");
    let Some(sandbox) = prepared(Sandbox::new().read(place.join("inside"))) else { return };
    let landlock = Sandbox::landlock().read(place.join("inside")).prepare();
    std::fs::remove_dir_all(&place).expect("removed");
    let reasons = [("namespaces", Ok(sandbox)), ("landlock", landlock)];
    for (mode, sandbox) in reasons.into_iter().filter_map(|(mode, sandbox)| Some((mode, sandbox.ok()?))) {
        let error = sandbox.check().expect_err(mode);
        assert!(error.to_string().contains("a trial of the sandbox"), "{error}");
        assert!(error.to_string().contains("prepare it again"), "{error}");
    }
    match Sandbox::landlock().prepare() {
        Ok(sandbox) => sandbox.check().expect("a sandbox that works"),
        Err(error) => eprintln!("SKIPPED: {error}"),
    }
}

/// The memory that all children share may be non-dumpable because of one of them. Then the files of the ID maps of the others belong to root:
/// as root, also as other users, without and with a capability.
#[test]
fn threads_use_one_sandbox_at_once() {
    let Some(sandbox) = prepared(&Sandbox::new()) else { return };
    if nix::unistd::geteuid().is_root() {
        for capabilities in [CapabilitySet::EMPTY, CapabilitySet::from_bits(1 << 13)] {
            let mut other = Command::new("threads");
            other.program_fd(std::fs::File::open("/proc/self/exe").expect("this program"));
            other.args(["sandbox::namespaces::tests::threads_use_one_sandbox_at_once", "--exact"]).current_dir("/");
            other.uid(12345).gid(12345).groups(&[]).inheritable(capabilities).ambient(capabilities);
            let output = other.permitted(capabilities).effective(capabilities).output().expect("it starts");
            let words = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && words.contains("1 passed"), "{words}");
        }
    }
    std::thread::scope(|scope| {
        for code in 0..4 {
            let sandbox = &sandbox;
            scope.spawn(move || {
                for _ in 0..10 {
                    let status = shell(sandbox, &format!("exit {code}")).status().expect("an end");
                    assert_eq!(status.code(), Some(code));
                }
            });
        }
    });
}

/// As execvp(3): what the kernel takes for no program may be a text for the shell.
#[test]
fn a_text_is_run_by_the_shell_on_request() {
    let place = directory("text");
    for (name, content) in
        [("text", &b"echo by $0 $1; exit 3\n"[..]), ("late", b"exit 4\n\0"), ("binary", b"\x7fELF\0\n")]
    {
        std::fs::write(place.join("inside").join(name), content).expect("write");
        let mode = PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(place.join("inside").join(name), mode).expect("chmod");
    }
    let Some(sandbox) = prepared(Sandbox::new().read(place.join("inside"))) else { return };
    let run = |name: &str, by_shell| {
        let mut command = Command::new(place.join("inside").join(name));
        command.arg("x").current_dir("/").sandbox(&sandbox).scripts_by_shell(by_shell).stdout(Stdio::piped());
        command.spawn().and_then(|child| child.wait_with_output())
    };
    let output = run("text", true).expect("by the shell");
    let wanted = format!("by {} x\n", place.join("inside/text").display());
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned()), (Some(3), wanted));
    assert_eq!(run("late", true).expect("by the shell").status.code(), Some(4));
    for (name, by_shell) in [("binary", true), ("text", false)] {
        let error = run(name, by_shell).expect_err("no program");
        assert_eq!(Error::of(&error).and_then(Error::errno), Some(nix::libc::ENOEXEC), "{name}: {error}");
        assert!(error.to_string().contains(name), "{error}");
    }
    std::fs::remove_dir_all(place).expect("removed");
}

#[test]
fn mounts_of_the_command_are_made_in_its_root() {
    let place = directory("mounts");
    let (inside, outside) = (place.join("inside"), place.join("outside"));
    let Some(sandbox) = prepared(&Sandbox::new()) else { return };
    let mut command = shell(
        &sandbox,
        "echo 1 > /own/x && cat /own/x; echo 2 > /own/in/y && echo written; echo 3 > /own/in/nested/z || echo fixed; \
         mv /own/in/nested /own/in/moved || echo kept; ls -d /tmp/a/b /x/null /x/etc/passwd /fs/in/nested; ls /x/proc 2>/dev/null; \
         for one in /x /again; do echo > $one/new || echo fixed; done; for one in /again /other; do grep -c . $one/timer_list; \
         echo 1 > $one/self/comm || echo fixed; done; grep -c ' /fs tmpfs [^ ]*nosuid,nodev' /proc/self/mounts; cat /again/1/comm",
    );
    command.tmpfs("/own", "mode=777").bind(&inside, "/own/in").bind_read_only(&outside, "/own/in/nested");
    command.file_system("tmpfs", [("mode", Some("755"))], 0, "/fs").bind(&inside, "/fs/in");
    command
        .make_dir("/tmp/a/b", 0o755)
        .devices("/x")
        .bind_read_only("/etc", "/x/etc")
        .proc("/again")
        .file_system("proc", [("hidepid", None::<&str>); 0], 0, "/other")
        .stderr(Stdio::null());
    let output = command.output().expect("a launch");
    let wanted = "1\nwritten\nfixed\nkept\n/fs/in/nested\n/tmp/a/b\n/x/etc/passwd\n/x/null\nfixed\nfixed\n0\nfixed\n0\nfixed\n1\n";
    let found = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(found.starts_with(wanted) && found.len() > wanted.len(), "{found}");
    assert!(inside.join("y").exists() && !outside.join("z").exists());
    // On file systems of the host no mount point is made.
    for (target, word) in [("/", "/"), ("/usr/forkless-no-such", "/usr/forkless-no-such")] {
        let error = shell(&sandbox, "true").bind(&inside, target).status().expect_err("no place for it");
        assert!(error.to_string().contains(word), "{error}");
    }
    let error = shell(&sandbox, "true").bind("/no/such/source", "/x").status().expect_err("no source");
    assert!(error.to_string().contains("/no/such/source"), "{error}");
    let mut linked = shell(&sandbox, "true");
    linked.bind(&inside, "/w").make_symlink("nested", "/w/link").bind_read_only(&outside, "/w/link/b");
    let error = linked.status().expect_err("a link that could be replaced");
    assert!(error.to_string().contains("symbolic link"), "{error}");
    std::fs::remove_dir_all(place).expect("removed");
}

/// A read-only mount does not keep anybody from writing to a FIFO.
#[test]
fn what_may_only_be_read_is_not_written_to_through_a_fifo() {
    let place = directory("fifo");
    let fifo = place.join("inside/fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o666);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).expect("a FIFO");
    std::fs::set_permissions(&fifo, PermissionsExt::from_mode(0o666)).expect("chmod");
    let Some(sandbox) = prepared(&Sandbox::new()) else { return };
    if !sandbox.has_landlock() {
        eprintln!("SKIPPED: no Landlock");
        return;
    }
    let line = "echo x 1<> /shown/fifo && echo written";
    let mut reads = shell(&sandbox, line);
    reads.bind_read_only(place.join("inside"), "/shown").stderr(Stdio::null());
    assert_eq!(reads.output().expect("a launch").stdout, b"");
    let mut writes = shell(&sandbox, line);
    assert_eq!(writes.bind(place.join("inside"), "/shown").output().expect("a launch").stdout, b"written\n");
    // What is mounted over it takes the right away.
    writes.bind_read_only(place.join("inside"), "/shown").stderr(Stdio::null());
    assert_eq!(writes.output().expect("a launch").stdout, b"");
    std::fs::remove_dir_all(place).expect("removed");
}

#[test]
fn strict_executes_nothing_that_the_program_has_written() {
    let line = "cp /bin/true /tmp/true && /tmp/true && echo executed";
    for (strict, wanted) in [(false, "executed\n"), (true, "")] {
        match Sandbox::new().strict(strict).prepare() {
            Ok(sandbox) => {
                if shell(&sandbox, "true").status().is_ok() {
                    assert_eq!(lines_of(&sandbox, line), wanted, "{strict}");
                }
            }
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{error}"),
        }
    }
    let error = Sandbox::landlock().strict(true).prepare().expect_err("namespaces");
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

/// The user of a program that root starts may not enter the directories of root.
#[test]
fn the_directory_of_the_caller_may_be_closed_to_the_program() {
    let Some(sandbox) = prepared(&Sandbox::new()) else { return };
    let place = directory("closed");
    std::fs::set_permissions(place.join("outside"), PermissionsExt::from_mode(0o700)).expect("chmod");
    let outside = place.join("outside");
    let launch = move || {
        // SAFETY: only this thread gets a working directory of its own.
        unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::FS) }.expect("a directory of its own");
        std::env::set_current_dir(outside).expect("chdir");
        shell(&sandbox, "pwd").output().expect("a launch").stdout
    };
    assert_eq!(std::thread::spawn(launch).join().expect("a thread"), b"/\n");
    std::fs::remove_dir_all(place).expect("removed");
}

/// Beside the project nothing is visible, so a `..` cannot be followed inside.
#[test]
fn a_directory_may_be_given_with_dots() {
    let place = directory("dots");
    let dots = place.join("outside/../inside/./nested");
    let Some(sandbox) = prepared(Sandbox::new().write(place.join("outside/../inside"))) else { return };
    let output = shell(&sandbox, "pwd -P; echo > new && echo written").current_dir(&dots).output().expect("a launch");
    let seen = String::from_utf8_lossy(&output.stdout);
    assert!(seen.ends_with("-dots/inside/nested\nwritten\n"), "{seen}");
    let error = shell(&sandbox, "true").current_dir(place.join("inside/../outside")).status().expect_err("hidden");
    assert!(error.to_string().contains("not visible inside"), "{error}");
    std::fs::remove_dir_all(place).expect("removed");
}

// ---- init(false): the program is PID 1 ----

#[test]
fn without_an_init_every_form_of_launch_has_the_program_as_the_only_process() {
    let Some(sandbox) = prepared(Sandbox::new().init(false)) else { return };
    let seen = lines_of(&sandbox, "echo $$ $PPID /proc/[0-9]*; read name < /proc/1/comm; echo $name");
    assert_eq!(seen, "1 0 /proc/1\nsh\n");
    let line = "test $$ = 1 && exit 7";
    let is_seven = |status: std::process::ExitStatus| assert_eq!(status.code(), Some(7), "{status}");
    is_seven(shell(&sandbox, line).status().expect("status"));
    is_seven(shell(&sandbox, line).launch().expect("launch").wait().expect("an end"));
    is_seven(shell(&sandbox, line).prepare().expect("prepare").status().expect("prepared"));
    // The status is that of the process, for any code that reaps it.
    let child = shell(&sandbox, line).spawn().expect("spawn");
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    let ended = nix::sys::wait::waitpid(pid, None).expect("waitpid");
    assert_eq!(ended, nix::sys::wait::WaitStatus::Exited(pid, 7));
    #[cfg(feature = "pty")]
    {
        let pty = crate::Pty::open(crate::PtySize::default()).expect("a pty");
        is_seven(shell(&sandbox, "test -t 0 && exit 7").pty(&pty).status().expect("with a pty"));
    }
}

#[test]
fn without_an_init_nothing_outlives_the_program() {
    let Some(sandbox) = prepared(Sandbox::new().init(false)) else { return };
    let orphan = "(setsid sh -c 'trap \"\" TERM HUP INT; sleep 600' &) & sleep 0.1; echo ready";
    // The orphan holds the pipe, which is at its end only when both have gone.
    assert_eq!(lines_of(&sandbox, orphan), "ready\n");
    let waits = &format!("{orphan}; sleep 600");
    let mut child = shell(&sandbox, waits).stdout(Stdio::piped()).spawn().expect("spawn");
    let mut output = child.stdout.take().expect("a pipe");
    output.read_exact(&mut [0; 6]).expect("ready");
    child.kill().expect("kill");
    assert_eq!(output.read_to_end(&mut Vec::new()).expect("the end"), 0);
    assert_eq!(child.wait().expect("an end").signal(), Some(9));
    let limits = Capture::new().timeout(Duration::from_millis(500));
    let captured = shell(&sandbox, waits).capture(&limits).expect("a launch");
    assert_eq!((captured.timed_out, &*captured.stdout), (true, &b"ready\n"[..]));
}

/// As `pid_namespaces(7)` says.
#[test]
fn without_an_init_the_program_gets_the_signals_that_it_handles() {
    let Some(sandbox) = prepared(Sandbox::new().init(false)) else { return };
    for (trap, wanted) in [("trap 'exit 3' TERM", Ok(Some(3))), ("", Err(Some(9)))] {
        let line = format!("{trap}; kill -TERM $$; echo ready; while :; do sleep 0.01; done");
        let line = if trap.is_empty() { line.trim_start_matches("; ") } else { &line };
        let mut child = shell(&sandbox, line).stdout(Stdio::piped()).spawn().expect("spawn");
        if trap.is_empty() {
            child.stdout.take().expect("a pipe").read_exact(&mut [0; 6]).expect("ready");
            child.signal(15).expect("a signal");
            assert!(child.wait_timeout(Duration::from_millis(50)).expect("a wait").is_none());
            child.kill().expect("kill");
        }
        let status = child.wait().expect("an end");
        assert_eq!(status.code().map_or(Err(status.signal()), |code| Ok(Some(code))), wanted);
    }
}

#[test]
fn without_an_init_a_failed_exec_names_the_program() {
    let Some(sandbox) = prepared(Sandbox::new().init(false)) else { return };
    let own = std::env::current_exe().expect("a path");
    for (program, kind, words) in [
        ("/no/such/program", io::ErrorKind::NotFound, "/no/such/program"),
        ("no-such-program", io::ErrorKind::NotFound, "searched PATH"),
        ("/etc/passwd", io::ErrorKind::PermissionDenied, "not executable"),
        (own.to_str().expect("text"), io::ErrorKind::NotFound, "exists, but inside the sandbox"),
    ] {
        let error = Command::new(program).current_dir("/").sandbox(&sandbox).status().expect_err(program);
        assert_eq!((error.kind(), Error::of(&error).map(Error::step)), (kind, Some(Step::Exec)), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn what_needs_an_init_is_refused_without_one() {
    let refused = |sandbox: &Sandbox| sandbox.prepare().expect_err("a contradiction").to_string();
    let lingers = refused(Sandbox::new().init(false).linger(Duration::ZERO));
    assert!(lingers.contains("linger") && lingers.contains("init(false)"), "{lingers}");
    let landlock = refused(Sandbox::landlock().init(false));
    assert!(landlock.contains("init(false)") && landlock.contains("namespaces"), "{landlock}");
    let sandbox = Sandbox::new().init(false).prepare().expect("a sandbox");
    let file = std::fs::File::open("/bin/sh").expect("a file");
    let outside = shell(&sandbox, "true").program_fd(file).status().expect_err("a file outside").to_string();
    assert!(outside.contains("program_fd"), "{outside}");
    let tree =
        shell(&sandbox, "true").kill_tree(true).status().expect_err("nothing ends it with the caller").to_string();
    assert!(tree.contains("kill_tree") && tree.contains("init(false)"), "{tree}");
}

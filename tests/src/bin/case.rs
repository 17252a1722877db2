//! Plays one case of the behaviour table on one route: `case CASE ROUTE PROBE`, with the case as TOML.
//!
//! Other uses: `case --random SETTINGS USER PROBE` plays a list of settings ([`model`]); `case --traced SETTINGS
//! [REFUSALS]` launches between two marks, for a tracer that counts system calls; `case --control ids|oom` shows what a
//! child without guards changes in its parent.
//!
//! A process of its own, because conditions and filters affect the whole process. On failure prints the errors to
//! standard error and exits with 1. A case that hangs is ended by SIGALRM.

use forkless::Command;
use forkless_tests::state::State;
use forkless_tests::table::parent::{self, Place, complain, keep_complaints, make};
use forkless_tests::table::{Case, model, play, settings};
use forkless_tests::trace::mark;
use std::os::unix::fs::PermissionsExt;
use std::process::ExitCode;
use tempfile::TempDir;

fn main() -> ExitCode {
    forkless::zygote::serve_if_asked(&forkless::zygote::Registry::new());
    forkless_tests::patience::end_after(20);
    let args: Vec<String> = std::env::args().collect();
    match args.get(1).map(String::as_str) {
        Some("--traced") => return traced(&args[2], args.get(3).map_or("", String::as_str)),
        Some("--control") => return control(&args[2]),
        Some("--random") => return random(&args[2..]),
        _ => {}
    }
    let [_, case, route, probe] = args.as_slice() else { panic!("case CASE ROUTE PROBE") };
    keep_complaints();
    let case: Case = toml::from_str(case).expect("a case");
    let (_own, place) = own_place(probe);
    let wrong = play::play(&case, route, &place).unwrap_or_else(|error| vec![format!("could not be played: {error}")]);
    tell(&wrong)
}

fn own_place(probe: &str) -> (TempDir, Place) {
    let own = tempfile::tempdir().expect("a directory");
    // Accessible to the ordinary user that a case may become.
    std::fs::set_permissions(own.path(), std::fs::Permissions::from_mode(0o777)).expect("one's own directory");
    let place = Place { dir: own.path().canonicalize().expect("it is there"), probe: probe.into() };
    (own, place)
}

fn tell(wrong: &[String]) -> ExitCode {
    for what in wrong {
        complain(&format!("  {what}\n"));
    }
    ExitCode::from(!wrong.is_empty() as u8)
}

/// `case --random SETTINGS USER PROBE`: `USER` is `nobody` or anything else.
fn random(args: &[String]) -> ExitCode {
    let [settings, user, probe] = args else { panic!("case --random SETTINGS USER PROBE") };
    keep_complaints();
    let (_own, place) = own_place(probe);
    let list: model::List = toml::from_str(settings).expect("a list of settings");
    tell(&model::play(&list, user == "nobody", &place).unwrap_or_else(|error| vec![format!("could not: {error}")]))
}

fn traced(text: &str, refusals: &str) -> ExitCode {
    let (_own, place) = own_place("");
    make(&place, "program", "exits 0").expect("a program");
    let mut command = Command::new(place.file("program"));
    settings::apply(&toml::from_str(text).expect("settings"), &mut command, &place).expect("applied");
    parent::refuse(refusals).expect("a filter");
    let mut launch = || assert!(command.status().expect("launched").success());
    launch();
    mark();
    launch();
    mark();
    ExitCode::SUCCESS
}

/// The code of the child of [`control`].
extern "C" fn unguarded(what: *mut libc::c_void) -> i32 {
    // SAFETY: system calls alone, in a child that shares memory; the texts are static.
    unsafe {
        if what.is_null() {
            libc::syscall(libc::SYS_setresuid, 1234, 1234, 1234);
        } else {
            let path = c"/proc/self/oom_score_adj".as_ptr();
            let file = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, libc::O_WRONLY);
            libc::syscall(libc::SYS_write, file, c"777".as_ptr(), 3);
        }
        libc::syscall(libc::SYS_exit_group, 0);
    }
    0
}

/// A child in shared memory without this library's guards; returns what has changed in the parent.
fn control(what: &str) -> ExitCode {
    let before = State::now();
    let mut stack = vec![0u128; 4096];
    let what = if what == "oom" { stack.as_mut_ptr().cast() } else { std::ptr::null_mut() };
    // SAFETY: the stack outlives the child, which makes system calls alone.
    unsafe {
        let top = stack.as_mut_ptr().add(4095).cast();
        let pid = libc::clone(unguarded, top, libc::CLONE_VM | libc::SIGCHLD, what);
        assert_eq!(libc::waitpid(pid, std::ptr::null_mut(), 0), pid);
    }
    for change in before.differences(&State::now()) {
        println!("{change}");
    }
    ExitCode::SUCCESS
}

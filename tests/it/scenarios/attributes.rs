//! One attribute that a process inherits, changed after a zygote was started: every launcher's child has it.

use crate::observe::{self, skip};
use forkless::{Command, Error, Launcher, Prepared, Stdio, Step};
use forkless_tests::attributes::{Fate, change, table};
use forkless_tests::process::{has_no_closefrom, is_root};
use std::io;
use std::path::Path;
use std::thread;

fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

fn text(output: io::Result<forkless::Output>) -> String {
    let output = output.expect("output");
    assert!(output.status.success(), "{}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

/// What the child of each launcher prints; the first is the kernel's own answer.
fn children(program: &str) -> Vec<(&'static str, String)> {
    let by = |launcher: Launcher| text(command(program).launcher(launcher).inherit_all(has_no_closefrom()).output());
    vec![
        ("fork", by(Launcher::Fork)),
        ("clone", text(command(program).output())),
        ("posix_spawn", by(Launcher::PosixSpawn)),
        ("a thread that clones", text(command(program).parent_death_signal(libc::SIGKILL).output())),
    ]
}

part!(changed);
/// attributes CHANGE process|thread PROGRAM SCRATCH
pub fn changed(args: &[String]) {
    let [name, scope, program, scratch] = args else { panic!("CHANGE SCOPE PROGRAM SCRATCH") };
    let row = table().attribute.into_iter().find(|row| row.change.as_deref() == Some(name)).expect("an attribute");
    let what = format!("{} of a {scope}", row.name);
    let zygote = crate::zygote::zygote();
    let plain: Prepared = command(program).prepare().expect("a plan");
    let work = || {
        let before = children(program);
        assert_eq!(text(zygote.output(&plain)), before[0].1, "before the change");
        assert!(before.iter().all(|(_, text)| *text == before[0].1), "before the change: {before:#?}");
        if let Err(error) = change(name, Path::new(scratch)) {
            return skip(&what, &error.to_string());
        }
        let after = children(program);
        let truth = &after[0].1;
        if *truth == before[0].1 {
            return skip(&what, "this kernel accepts it without effect");
        }
        let by_zygote = zygote.output(&plain);
        let mut all = after.clone();
        match row.zygote {
            Fate::Refused => {
                let error = by_zygote.expect_err("a refusal");
                assert_eq!(Error::of(&error).map(Error::step), Some(Step::Zygote), "{what}: {error}");
                return println!("CHECKED: {what}");
            }
            _ => all.push(("a zygote", text(by_zygote))),
        }
        for (launcher, text) in &all {
            let differs: Vec<_> = truth.lines().zip(text.lines()).filter(|(truth, text)| truth != text).collect();
            assert!(
                differs.is_empty() && truth.lines().count() == text.lines().count(),
                "{what}, {launcher}: {differs:?}"
            );
        }
        let helpers = if row.zygote == Fate::TakenOn { 1 } else { 2 };
        assert_eq!(zygote.stats().starts, helpers, "{what}: {:?}", row.zygote);
        println!("CHECKED: {what}");
    };
    match &**scope {
        "process" => work(),
        _ => thread::scope(|scope| scope.spawn(work).join().expect("a thread")),
    }
    drop(zygote);
    if is_root() {
        observe::assert_no_orphans();
    }
}

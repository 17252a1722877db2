//! The command as `cargo xtask dist` installs it, with man pages and completions, and its removal by `share/forkless/uninstall`.

testing::usual_surroundings!();

use std::{fs, process::Command};

use testing::{
    dist::{self, InstallPlace},
    installed,
};

#[test]
fn uninstall_leaves_nothing_of_the_installed_command() {
    let base = tempfile::tempdir().expect("temporary directory");
    let prefix = base.path().join("prefix");
    let place = InstallPlace { prefix: prefix.clone(), libdir: "lib".into(), destdir: None };
    let staged = InstallPlace { destdir: Some(base.path().join("stage")), ..place.clone() };
    dist::install_command(&staged, &[env!("CARGO_BIN_EXE_forkless").into()]).expect("strip, and the command");
    dist::licences(&staged).expect("the licences");
    installed::install(&staged, &place).expect("installed");
    let run = |program: &str| {
        let output = Command::new(prefix.join(program)).arg("--version").output().expect("it starts");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    assert!(run("bin/forkless").starts_with("forkless "));
    let foreign = prefix.join("share/man/man1/other.1");
    fs::write(&foreign, "of another program").expect("writable");
    let removed = run("share/forkless/uninstall");
    for name in ["bin/forkless", "share/man/man1/forkless-run.1", "share/doc/forkless/LICENSE-MIT", "share/forkless/"] {
        assert!(removed.contains(&format!("removed {}/{name}\n", prefix.display())), "{name}: {removed}");
    }
    let left = Command::new("find").arg(&prefix).args(["!", "-type", "d"]).output().expect("find");
    assert_eq!(String::from_utf8_lossy(&left.stdout), format!("{}\n", foreign.display()));
    let entries = fs::read_dir(&prefix).expect("a directory").flatten().map(|entry| entry.file_name());
    assert_eq!(entries.collect::<Vec<_>>(), ["share"], "empty directories are left");
}

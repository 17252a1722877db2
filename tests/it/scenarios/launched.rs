//! Commands with the launcher of the scenario's arguments: `scenario NAME launcher=fork`.

use forkless::Launcher;
use forkless_tests::process::has_no_closefrom;
use std::ffi::OsStr;
use std::sync::OnceLock;

static LAUNCHER: OnceLock<Launcher> = OnceLock::new();

/// Takes the launcher out of the arguments.
pub(crate) fn choose(args: &mut Vec<String>) {
    args.retain(|arg| {
        let Some(name) = arg.strip_prefix("launcher=") else { return true };
        let launcher = match name {
            "fork" => Launcher::Fork,
            "posix_spawn" => Launcher::PosixSpawn,
            _ => panic!("{name} is no launcher"),
        };
        LAUNCHER.set(launcher).expect("one launcher");
        false
    });
}

/// So many of those that cost a copy of the memory are enough.
pub(crate) fn fewer(count: usize) -> usize {
    if LAUNCHER.get().is_some() { count / 6 } else { count }
}

/// In the place of [`forkless::Command`].
pub(crate) struct Command(());

impl Command {
    #[expect(clippy::new_ret_no_self, reason = "it stands for the other one's")]
    pub(crate) fn new(program: impl AsRef<OsStr>) -> forkless::Command {
        let mut command = forkless::Command::new(program);
        command.launcher(LAUNCHER.get().copied().unwrap_or(Launcher::Clone));
        command.inherit_all(LAUNCHER.get() == Some(&Launcher::PosixSpawn) && has_no_closefrom());
        command
    }
}

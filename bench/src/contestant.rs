//! The methods to launch a process that the bench compares: their names and properties.

/// A method to launch a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Contestant {
    /// vfork, execve and wait4 in C: the vfork baseline, to which all ratios refer
    Floor,
    /// fork, execve and waitpid in C
    Fork,
    /// posix_spawn and waitpid in C
    #[value(name = "posix_spawn")]
    PosixSpawn,
    /// posix_spawn that closes all descriptors from 3 on, and waitpid in C
    #[value(name = "posix_spawn-closefrom")]
    PosixSpawnClosefrom,
    /// system(3), with a shell
    System,
    /// popen(3), read to the end, pclose(3), with a shell
    Popen,
    /// Rust's std::process::Command, spawn and wait
    Std,
    /// Go's os/exec, Start and Wait
    Go,
    /// CPython's subprocess.Popen and wait
    #[value(name = "cpython")]
    CPython,
    /// CPython's asyncio.create_subprocess_exec and wait
    #[value(name = "cpython-asyncio")]
    CPythonAsyncio,
    /// Perl's system with a list
    PerlSystem,
    /// Perl's backticks
    PerlBackticks,
    /// Perl's Proc::FastSpawn and waitpid
    #[value(name = "perl-fastspawn")]
    PerlFastSpawn,
    /// Perl's IPC::Run
    PerlIpcRun,
    /// Node's child_process.spawn and its exit event
    NodeSpawn,
    /// Node's child_process.spawnSync
    #[value(name = "node-spawnsync")]
    NodeSpawnSync,
    /// Java's ProcessBuilder, start and waitFor
    Java,
    /// GLib's g_spawn_async and waitpid
    Glib,
    /// libuv's uv_spawn and its event loop
    Libuv,
    /// tokio::process::Command, spawn and wait
    Tokio,
    /// forkless Command, spawn and wait
    ForklessSpawn,
    /// forkless Command, launch and wait
    ForklessLaunch,
    /// forkless Command with inherit_all, spawn and wait
    ForklessInherit,
    /// forkless Command with Launcher::Fork, spawn and wait
    ForklessFork,
    /// forkless Command with Launcher::PosixSpawn, spawn and wait
    #[value(name = "forkless-posix_spawn")]
    ForklessPosixSpawn,
    /// forkless Command, status
    ForklessStatus,
    /// forkless Prepared, spawn and wait, no pidfd
    ForklessPrepared,
    /// forkless Prepared, launch and wait, no pidfd
    ForklessPreparedLaunch,
    /// forkless Prepared, status
    ForklessPreparedStatus,
    /// forkless Command, output
    ForklessOutput,
    /// forkless Prepared, output
    ForklessPreparedOutput,
    /// forkless Command, capture in a memfd
    ForklessMemoryFile,
    /// forkless Command through a zygote, spawn and wait
    ForklessZygote,
    /// forkless Prepared through a zygote, spawn and wait, no pidfd
    ForklessPreparedZygote,
    /// forkless Prepared from a template of a warm program, launch and wait, no pidfd
    ForklessWarm,
    /// forkless::tokio::Command, spawn and wait
    ForklessTokio,
    /// forkless::tokio::Command, status
    ForklessTokioStatus,
    /// forkless::tokio::Prepared, status
    ForklessTokioPreparedStatus,
    /// forkless_spawn of the C library and waitpid in C
    #[value(name = "forkless-c-spawn")]
    ForklessCSpawn,
    /// forkless_system of the C library
    #[value(name = "forkless-c-system")]
    ForklessCSystem,
    /// forkless_popen of the C library, read to the end, forkless_pclose
    #[value(name = "forkless-c-popen")]
    ForklessCPopen,
    /// Perl's system with a list, under `use Forkless`
    ForklessPerlSystem,
    /// Perl's backticks, under `use Forkless`
    ForklessPerlBackticks,
    /// Perl's Forkless::FastSpawn and waitpid
    #[value(name = "forkless-perl-fastspawn")]
    ForklessPerlFastSpawn,
    /// forkless.Popen of the Python package and wait
    #[value(name = "forkless-cpython")]
    ForklessCPython,
    /// forkless.run of the Python package
    #[value(name = "forkless-cpython-run")]
    ForklessCPythonRun,
    /// forkless.asyncio.create_subprocess_exec of the Python package and wait
    #[value(name = "forkless-cpython-asyncio")]
    ForklessCPythonAsyncio,
    /// Node's child_process.spawn and its exit event, after install() of the Node package
    ForklessNodeSpawn,
    /// Node's child_process.spawnSync, after install() of the Node package
    #[value(name = "forkless-node-spawnsync")]
    ForklessNodeSpawnSync,
    /// posix_spawn and waitpid in C, under the preload library
    #[value(name = "forkless-preload-posix_spawn")]
    ForklessPreloadPosixSpawn,
    /// posix_spawn-closefrom, under the preload library
    ForklessPreloadClosefrom,
    /// posix_spawn under the preload library, configured to pass only the standard streams
    ForklessPreloadStdio,
    /// system(3) under the preload library
    ForklessPreloadSystem,
    /// popen(3), read to the end, pclose(3), under the preload library
    ForklessPreloadPopen,
}

impl Contestant {
    /// All methods, in the order of the tables.
    pub(crate) const ALL: [Self; 54] = [
        Self::Floor,
        Self::Fork,
        Self::PosixSpawn,
        Self::PosixSpawnClosefrom,
        Self::System,
        Self::Popen,
        Self::Std,
        Self::Go,
        Self::CPython,
        Self::CPythonAsyncio,
        Self::PerlSystem,
        Self::PerlBackticks,
        Self::PerlFastSpawn,
        Self::PerlIpcRun,
        Self::NodeSpawn,
        Self::NodeSpawnSync,
        Self::Java,
        Self::Glib,
        Self::Libuv,
        Self::Tokio,
        Self::ForklessSpawn,
        Self::ForklessLaunch,
        Self::ForklessInherit,
        Self::ForklessFork,
        Self::ForklessPosixSpawn,
        Self::ForklessStatus,
        Self::ForklessPrepared,
        Self::ForklessPreparedLaunch,
        Self::ForklessPreparedStatus,
        Self::ForklessOutput,
        Self::ForklessPreparedOutput,
        Self::ForklessMemoryFile,
        Self::ForklessZygote,
        Self::ForklessPreparedZygote,
        Self::ForklessWarm,
        Self::ForklessTokio,
        Self::ForklessTokioStatus,
        Self::ForklessTokioPreparedStatus,
        Self::ForklessCSpawn,
        Self::ForklessCSystem,
        Self::ForklessCPopen,
        Self::ForklessPerlSystem,
        Self::ForklessPerlBackticks,
        Self::ForklessPerlFastSpawn,
        Self::ForklessCPython,
        Self::ForklessCPythonRun,
        Self::ForklessCPythonAsyncio,
        Self::ForklessNodeSpawn,
        Self::ForklessNodeSpawnSync,
        Self::ForklessPreloadPosixSpawn,
        Self::ForklessPreloadClosefrom,
        Self::ForklessPreloadStdio,
        Self::ForklessPreloadSystem,
        Self::ForklessPreloadPopen,
    ];

    /// Name in tables, in the JSON and in `--launchers`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::Fork => "fork",
            Self::PosixSpawn => "posix_spawn",
            Self::PosixSpawnClosefrom => "posix_spawn-closefrom",
            Self::System => "system",
            Self::Popen => "popen",
            Self::Std => "std",
            Self::Go => "go",
            Self::CPython => "cpython",
            Self::CPythonAsyncio => "cpython-asyncio",
            Self::PerlSystem => "perl-system",
            Self::PerlBackticks => "perl-backticks",
            Self::PerlFastSpawn => "perl-fastspawn",
            Self::PerlIpcRun => "perl-ipc-run",
            Self::NodeSpawn => "node-spawn",
            Self::NodeSpawnSync => "node-spawnsync",
            Self::Java => "java",
            Self::Glib => "glib",
            Self::Libuv => "libuv",
            Self::Tokio => "tokio",
            Self::ForklessSpawn => "forkless-spawn",
            Self::ForklessLaunch => "forkless-launch",
            Self::ForklessInherit => "forkless-inherit",
            Self::ForklessFork => "forkless-fork",
            Self::ForklessPosixSpawn => "forkless-posix_spawn",
            Self::ForklessStatus => "forkless-status",
            Self::ForklessPrepared => "forkless-prepared",
            Self::ForklessPreparedLaunch => "forkless-prepared-launch",
            Self::ForklessPreparedStatus => "forkless-prepared-status",
            Self::ForklessOutput => "forkless-output",
            Self::ForklessPreparedOutput => "forkless-prepared-output",
            Self::ForklessMemoryFile => "forkless-memory-file",
            Self::ForklessZygote => "forkless-zygote",
            Self::ForklessPreparedZygote => "forkless-prepared-zygote",
            Self::ForklessWarm => "forkless-warm",
            Self::ForklessTokio => "forkless-tokio",
            Self::ForklessTokioStatus => "forkless-tokio-status",
            Self::ForklessTokioPreparedStatus => "forkless-tokio-prepared-status",
            Self::ForklessCSpawn => "forkless-c-spawn",
            Self::ForklessCSystem => "forkless-c-system",
            Self::ForklessCPopen => "forkless-c-popen",
            Self::ForklessPerlSystem => "forkless-perl-system",
            Self::ForklessPerlBackticks => "forkless-perl-backticks",
            Self::ForklessPerlFastSpawn => "forkless-perl-fastspawn",
            Self::ForklessCPython => "forkless-cpython",
            Self::ForklessCPythonRun => "forkless-cpython-run",
            Self::ForklessCPythonAsyncio => "forkless-cpython-asyncio",
            Self::ForklessNodeSpawn => "forkless-node-spawn",
            Self::ForklessNodeSpawnSync => "forkless-node-spawnsync",
            Self::ForklessPreloadPosixSpawn => "forkless-preload-posix_spawn",
            Self::ForklessPreloadClosefrom => "forkless-preload-closefrom",
            Self::ForklessPreloadStdio => "forkless-preload-stdio",
            Self::ForklessPreloadSystem => "forkless-preload-system",
            Self::ForklessPreloadPopen => "forkless-preload-popen",
        }
    }

    /// Whether the method can give the child three pipes.
    pub(crate) fn can_take_pipes(self) -> bool {
        matches!(self, Self::Floor | Self::PosixSpawn | Self::Std | Self::ForklessSpawn | Self::ForklessPrepared)
    }

    /// Whether the method takes part in the thread sweep. The others would add no information.
    pub(crate) fn is_in_crowd(self) -> bool {
        matches!(
            self,
            Self::Floor
                | Self::PosixSpawn
                | Self::Std
                | Self::ForklessStatus
                | Self::ForklessPrepared
                | Self::ForklessPreparedStatus
        )
    }

    /// Whether the method takes part if output is captured (`output`), or if none is.
    pub(crate) fn does_capture(self, output: bool) -> bool {
        match self {
            Self::Floor | Self::Std | Self::Tokio | Self::ForklessTokio => true,
            Self::ForklessOutput | Self::ForklessPreparedOutput | Self::ForklessMemoryFile => output,
            _ => !output,
        }
    }

    /// Whether the method launches from tasks.
    pub(crate) fn does_await(self) -> bool {
        matches!(
            self,
            Self::Tokio | Self::ForklessTokio | Self::ForklessTokioStatus | Self::ForklessTokioPreparedStatus
        )
    }

    /// Whether the method takes part with the programs that may be warm.
    pub(crate) fn can_take_programs(self) -> bool {
        matches!(self, Self::Floor | Self::PosixSpawn | Self::ForklessPrepared | Self::ForklessWarm)
    }

    /// Whether the method takes part while other threads cause page faults.
    pub(crate) fn can_bear_faults(self) -> bool {
        self.is_in_crowd() || matches!(self, Self::Fork | Self::System | Self::ForklessSpawn | Self::ForklessCSystem)
    }

    /// Whether the method takes part with a search in PATH and with a large environment.
    pub(crate) fn is_apart(self) -> bool {
        let first = [Self::Floor, Self::Fork, Self::PosixSpawn, Self::System, Self::Popen, Self::Std];
        let ours = [Self::ForklessSpawn, Self::ForklessStatus, Self::ForklessPrepared];
        let in_c = [Self::ForklessCSpawn, Self::ForklessCSystem, Self::ForklessCPopen];
        self.is_engine() || first.contains(&self) || ours.contains(&self) || in_c.contains(&self)
    }

    /// Whether the method runs in a separate process.
    pub(crate) fn is_engine(self) -> bool {
        match self {
            Self::Go | Self::Java | Self::Glib | Self::Libuv => true,
            Self::CPython | Self::CPythonAsyncio => true,
            Self::ForklessCPython | Self::ForklessCPythonRun | Self::ForklessCPythonAsyncio => true,
            Self::PerlSystem | Self::PerlBackticks | Self::PerlFastSpawn | Self::PerlIpcRun => true,
            Self::ForklessPerlSystem | Self::ForklessPerlBackticks | Self::ForklessPerlFastSpawn => true,
            Self::NodeSpawn | Self::NodeSpawnSync | Self::ForklessNodeSpawn | Self::ForklessNodeSpawnSync => true,
            _ => self.is_preloaded(),
        }
    }

    /// Whether the method is this program under the preload library.
    pub(crate) fn is_preloaded(self) -> bool {
        let functions = [Self::ForklessPreloadPosixSpawn, Self::ForklessPreloadSystem, Self::ForklessPreloadPopen];
        functions.contains(&self) || matches!(self, Self::ForklessPreloadClosefrom | Self::ForklessPreloadStdio)
    }

    /// Whether the method takes part in the sweeps of the parent: not if it launches like another of the same language.
    pub(crate) fn does_grow(self) -> bool {
        let alike = [Self::CPythonAsyncio, Self::PerlBackticks, Self::PerlIpcRun, Self::NodeSpawnSync];
        let in_perl = [Self::ForklessPerlBackticks, Self::ForklessPerlFastSpawn];
        let in_python = [Self::ForklessCPythonRun, Self::ForklessCPythonAsyncio];
        let in_node = [Self::ForklessNodeSpawnSync];
        let is_alike = [&alike[..], &in_perl, &in_python, &in_node].iter().any(|list| list.contains(&self));
        !is_alike && (!self.is_preloaded() || self == Self::ForklessPreloadPosixSpawn)
    }

    /// How the child differs from that of the vfork baseline, which inherits the environment, the standard streams and every
    /// descriptor that is not close-on-exec, and uses no shell. A test checks this.
    pub(crate) fn unlike(self) -> Option<&'static str> {
        match self {
            Self::Floor | Self::Fork | Self::PosixSpawn | Self::Std | Self::Go | Self::Libuv | Self::Tokio => None,
            Self::PerlSystem
            | Self::PerlFastSpawn
            | Self::PerlIpcRun
            | Self::ForklessInherit
            | Self::ForklessCSpawn => None,
            Self::ForklessPreloadPosixSpawn | Self::ForklessPerlSystem | Self::ForklessPerlFastSpawn => None,
            Self::System | Self::ForklessPreloadSystem => Some("shell"),
            Self::Popen | Self::ForklessPreloadPopen => Some("stdio, shell"),
            Self::PerlBackticks | Self::ForklessPerlBackticks => Some("stdio"),
            // No shell runs, but the line is parsed as by one, and PWD is set.
            Self::ForklessCSystem => Some("fds, shell"),
            Self::ForklessCPopen => Some("stdio, fds, shell"),
            _ => Some("fds"),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn names_equal_the_values_of_the_launchers_option() {
        for contestant in Contestant::ALL {
            let value = contestant.to_possible_value().expect("none is hidden");
            assert_eq!(value.get_name(), contestant.name());
        }
        assert_eq!(Contestant::ALL, Contestant::value_variants());
    }
}

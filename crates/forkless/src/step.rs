//! The steps of a launch. An error names the step that failed.

macro_rules! steps {
    (
        played { $(
            $(#[$rustdoc:meta])*
            $setting:ident $arg:tt { line $line:literal step $name:ident = $code:literal, $words:literal, $doc:literal op $($rest:tt)* }
        )* }
        passed $passed:tt
    ) => {
        steps! {
            $($name = $code, $words, $doc;)*
            // Steps of the child are below 100, those of the caller above.
            Table = 1, "make a file-descriptor table", "The child's own file-descriptor table.";
            PassFd = 2, "pass fd", "Moving a descriptor to its number in the child.";
            CloseFds = 4, "close other fds", "Closing the descriptors that the program must not inherit.";
            SetSid = 5, "setsid", "`setsid(2)`.";
            SetPgid = 6, "setpgid", "`setpgid(2)`.";
            Chdir = 7, "chdir", "`chdir(2)`.";
            Open = 8, "open", "`open(2)` in the child.";
            Dup = 9, "dup fd", "`dup3(2)` of a descriptor in the child.";
            Signals = 10, "set signals", "Signal dispositions and mask.";
            Exec = 13, "exec", "`execve(2)`.";
            Rlimit = 20, "set the limit", "`prlimit(2)`.";
            Scheduler = 22, "set the scheduler", "`sched_setscheduler(2)`.";
            Affinity = 23, "set the CPU affinity", "`sched_setaffinity(2)`.";
            IoPriority = 24, "set the I/O priority", "`ioprio_set(2)`.";
            Terminal = 28, "take the terminal", "`ioctl(2)` TIOCSCTTY.";
            Foreground = 29, "take the foreground", "`tcsetpgrp(3)`.";
            Chroot = 30, "chroot", "`chroot(2)`.";
            SetGroups = 31, "setgroups", "`setgroups(2)`.";
            SetGid = 32, "setgid", "`setresgid(2)`.";
            SetUid = 33, "setuid", "`setresuid(2)`.";
            Umask = 34, "umask", "`umask(2)`.";
            Call = 35, "system call", "A call from `Command::call`.";
            NoNewPrivs = 36, "set no_new_privs", "`prctl(2)` PR_SET_NO_NEW_PRIVS.";
            ParentDeathSignal = 37, "set the parent-death signal", "`prctl(2)` PR_SET_PDEATHSIG.";
            Namespace = 38, "make a namespace", "`unshare(2)`.";
            JoinNamespace = 39, "join a namespace", "`setns(2)`.";
            IdMaps = 40, "map ids", "`/proc/PID/uid_map` and its like, written by the parent.";
            Hostname = 41, "set the host name", "`sethostname(2)`.";
            Mount = 42, "mount", "`mount(2)`, `mount_setattr(2)`.";
            PivotRoot = 43, "pivot_root", "`pivot_root(2)`, and `umount2(2)` of the old root.";
            Capabilities = 44, "set capabilities", "`capset(2)`, `prctl(2)`.";
            Securebits = 45, "set securebits", "`prctl(2)` PR_SET_SECUREBITS.";
            Landlock = 46, "restrict by Landlock", "`landlock_restrict_self(2)`.";
            Seccomp = 47, "set the seccomp filter", "`seccomp(2)`.";
            MakeDir = 49, "make the directory", "`mkdirat(2)` among the mounts.";
            PreExec = 60, "pre_exec", "A closure of `Command::pre_exec`, in a forked child.";
            ControlGroup = 61, "join the cgroup", "Writing to `cgroup.procs`, in a forked child.";
            Symlink = 50, "make the symbolic link", "`symlinkat(2)` among the mounts.";
            HandBack = 48, "send a descriptor to the caller", "`sendmsg(2)` of a descriptor to the caller.";
            Adopt = 62, "take on the caller's attributes", "A zygote's child taking on the caller's attributes.";
            Function = 63, "call the function", "A function that a zygote's child calls before exec.";
            Check = 101, "check", "Checking the settings, before the launch begins.";
            Pipe = 102, "make a pipe", "Making a pipe or a pair of sockets.";
            Stack = 103, "map the child's stack", "Memory for the child's stack.";
            Probe = 104, "probe the kernel", "Testing what this kernel allows.";
            Clone = 105, "clone", "`clone3(2)` or `clone(2)`.";
            Wait = 106, "wait", "Waiting for the child's end, and reading its status.";
            Zygote = 110, "clone in the zygote", "Asking a `zygote::Zygote` for a child.";
            Limits = 108, "make a cgroup for limits", "Making a cgroup for the launch: `Command::memory_max` and its like.";
            OpenTerminal = 107, "open the pseudo-terminal", "Opening the other side of a `Pty`.";
        }
    };
    ($($name:ident = $code:literal, $words:literal, $doc:literal;)*) => {
        /// The step of a launch that failed. The numbers of [`Step::code`] never change.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Step {
            $(#[doc = $doc] $name,)*
        }

        impl Step {
            /// The step's number. It stays the same in all versions, and is never used for another step.
            ///
            /// ```
            /// assert_eq!(forkless::Step::Exec.code(), 13);
            /// ```
            pub fn code(self) -> u32 {
                match self { $(Self::$name => $code,)* }
            }

            /// The step that has this [`code`](Self::code). `None` if no step has it.
            ///
            /// ```
            /// use forkless::Step;
            /// assert_eq!(Step::of_code(13), Some(Step::Exec));
            /// assert_eq!(Step::of_code(0), None);
            /// ```
            pub fn of_code(code: u32) -> Option<Self> {
                match code { $($code => Some(Self::$name),)* _ => None }
            }

            /// The step as error messages name it.
            ///
            /// ```
            /// assert_eq!(forkless::Step::Rlimit.describe(), "set the limit");
            /// ```
            pub fn describe(self) -> &'static str {
                match self { $(Self::$name => $words,)* }
            }
        }
    };
}

crate::settings!(steps);

impl Step {
    /// Whether [`Command::best_effort`](crate::Command::best_effort) accepts this step: whether a launch can go on
    /// after it has failed.
    ///
    /// No launch goes on without the child's descriptors, its ID maps, its cgroup, or its program. A closure of
    /// `pre_exec` decides for itself.
    ///
    /// ```
    /// use forkless::Step;
    /// assert!(Step::OomScore.can_fail());
    /// assert!(!Step::PassFd.can_fail());
    /// ```
    pub fn can_fail(self) -> bool {
        if self == Self::Limits {
            return true;
        }
        (Self::SetSid.code()..100).contains(&self.code())
            && !matches!(
                self,
                Self::Exec | Self::IdMaps | Self::PreExec | Self::ControlGroup | Self::Adopt | Self::Function
            )
    }
}

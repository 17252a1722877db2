//! The table of settings: one row per setting, from which all front ends are generated.
//!
//! Macros generate from a row: the builder with its documentation and example, the field, the step, the op (if one
//! system call is enough), the check of its range, the refusal by `posix_spawn`, the verdict for shell lines, the C
//! setter, Python's keyword and the flag of `forkless run`. `cargo xtask settings` writes the parts of forkless.h,
//! Perl's table, Python's stub and docs/settings.md.
//!
//! A row of `played`:
//!
//! | field | meaning |
//! | --- | --- |
//! | `name(argument: kind)` | the builder. Kinds: `u64`, `u32`, `i32(lowest, highest)`, `flag` (only `true` has an effect), `word(Type)`: a type with `FromStr` and `Display` |
//! | `line` | one line without a full stop, for the header, the stub and the help |
//! | `step` | the step that fails: name, number, words in errors, documentation |
//! | `op` | `{ by_hand }`, or when the call is made (`Resources`, `Last`), the call, and the object in errors |
//! | `memory` | `shared`, or `own`: the call changes the memory, which a cloned child shares with the caller, so it needs `Launcher::Fork` |
//! | `ids` | `kept`, or `changed`: the child changes its IDs before exec |
//! | `posix_spawn` | `refused`: it cannot make other system calls |
//! | `shell` | `inherited`: a shell would pass it to its programs, so a line can run without the shell; or `affects_the_shell`: it affects the shell itself |
//! | `run` | flag of `forkless run`, name of its value, heading; or `{ by_hand "its flags in the docs" }` |
//! | `docs` | the system call, and the privileges that it needs |
//! | `example` | a value, as text |
//!
//! A row of `passed` has its own builder. Only its other front ends are generated. The kind `amount` is a number or text: whatever has
//! `Display`.

/// Expands `then! { played { rows } passed { rows } }`.
#[doc(hidden)]
#[macro_export]
macro_rules! settings {
    ($then:ident) => {
        $then! {
            played {
                /// Sets the child's nice value, from -20 (most CPU time) to 19 (least): `setpriority(2)`. It is a
                /// value, not an adjustment of the caller's. Lowering it needs CAP_SYS_NICE or RLIMIT_NICE.
                ///
                /// # Errors
                /// The launch fails at [`Step::Nice`], with EACCES if the caller may not lower the value.
                /// [`Step::Check`]: a value out of range.
                ///
                /// ```
                /// use forkless::Command;
                /// let output = Command::new("nice").nice(19).output()?;
                /// assert_eq!(output.stdout, b"19\n");
                /// # Ok::<(), std::io::Error>(())
                /// ```
                nice(nice: i32(-20, 19)) {
                    line "Set the nice value, from -20 to 19"
                    step Nice = 21, "set the nice value", "`setpriority(2)`."
                    op { by_hand }
                    memory shared ids kept posix_spawn refused shell inherited
                    run { by_hand "`--nice` (an adjustment)" }
                    docs "setpriority", "CAP_SYS_NICE or RLIMIT_NICE to lower it"
                    example "19"
                }

                /// Sets how late the child's timers may expire, in nanoseconds: `prctl(2)` PR_SET_TIMERSLACK. The
                /// default, also for 0, is the value of the calling thread.
                ///
                /// ```
                /// use forkless::Command;
                /// // One millisecond: the kernel may serve several timers by one wake-up.
                /// let status = Command::new("true").timer_slack(1_000_000).status()?;
                /// assert!(status.success());
                /// # Ok::<(), std::io::Error>(())
                /// ```
                timer_slack(nanoseconds: u64) {
                    line "Set the timer slack, in nanoseconds (0: the caller's default)"
                    step TimerSlack = 25, "set the timer slack", "`prctl(2)` PR_SET_TIMERSLACK."
                    op { Resources: __NR_prctl(prctl::PR_SET_TIMERSLACK, nanoseconds), "to {nanoseconds} ns" }
                    memory shared ids kept posix_spawn refused shell inherited
                    run { "timer-slack", "NS", "Scheduling" }
                    docs "prctl", ""
                    example "1000"
                }

                /// Sets the child's execution domain and its flags, such as ADDR_NO_RANDOMIZE: `personality(2)`.
                ///
                /// # Errors
                /// The launch fails at [`Step::Personality`], for example with EPERM under a seccomp filter that
                /// refuses the value.
                ///
                /// ```no_run
                /// use forkless::Command;
                /// const ADDR_NO_RANDOMIZE: u32 = 0x004_0000;
                /// // As `setarch -R` does it: the same addresses in each run.
                /// Command::new("./program").personality(ADDR_NO_RANDOMIZE).status()?;
                /// # Ok::<(), std::io::Error>(())
                /// ```
                personality(persona: u32) {
                    line "Set the execution domain and its flags: personality(2)"
                    step Personality = 26, "set the personality", "`personality(2)`."
                    op { Resources: __NR_personality(persona), "{persona:#x}" }
                    memory shared ids kept posix_spawn refused shell inherited
                    run { by_hand "`--personality`, `--no-aslr`" }
                    docs "personality", ""
                    example "0"
                }

                /// Sets how likely the OOM killer is to kill the child, from -1000 (never) to 1000:
                /// `/proc/self/oom_score_adj`, `proc(5)`; three system calls. Lowering the value needs
                /// CAP_SYS_RESOURCE.
                ///
                /// The child is started with `CLONE_VFORK`: without it the kernel would give the value to the caller
                /// too, whose memory the child shares. So the launch returns no sooner than the exec. If a signal
                /// stops the child before the exec, the launch waits until the child is continued. Id maps are then
                /// written by a thread that is made for that.
                ///
                /// # Errors
                /// The launch fails at [`Step::OomScore`]: EACCES if the caller may not lower the value, ENOENT
                /// without `/proc`. [`Step::Check`]: a value out of range.
                ///
                /// ```
                /// use forkless::Command;
                /// // When memory runs out, this child is the first to be killed.
                /// let status = Command::new("true").oom_score_adj(1000).status()?;
                /// assert!(status.success());
                /// # Ok::<(), std::io::Error>(())
                /// ```
                oom_score_adj(score: i32(-1000, 1000)) {
                    line "Set how readily the OOM killer kills the child, from -1000 (never) to 1000"
                    step OomScore = 27, "set oom_score_adj", "`/proc/self/oom_score_adj`."
                    op { by_hand }
                    memory shared ids kept posix_spawn refused shell inherited
                    run { "oom-score-adj", "N", "Scheduling" }
                    docs "open, write, close (and CLONE_VFORK)", "CAP_SYS_RESOURCE to lower it"
                    example "500"
                }

                /// Sets the NUMA nodes from which the child gets its memory: `set_mempolicy(2)`, in the terms of
                /// numactl(8). The program's children inherit it.
                ///
                /// The launch fails with ENOSYS if the kernel has no NUMA support, and with EINVAL if a node does not
                /// exist or none of them is allowed. Docker's seccomp filter requires CAP_SYS_NICE.
                ///
                /// ```no_run
                /// use forkless::{Command, MemoryPolicy};
                /// Command::new("database").memory_policy("interleave:all".parse()?).spawn()?;
                /// Command::new("worker").memory_policy(MemoryPolicy::membind([0, 1])).spawn()?;
                /// # Ok::<(), Box<dyn std::error::Error>>(())
                /// ```
                memory_policy(policy: word(MemoryPolicy)) {
                    line "Set the NUMA memory policy: local, preferred:NODE, membind:NODES or interleave:NODES (0-3,5 or all)"
                    step MemoryPolicy = 51, "set the memory policy", "`set_mempolicy(2)`."
                    op { Resources: __NR_set_mempolicy(policy.mode(), &policy.mask()[..], policy.bits()), "{policy}" }
                    memory shared ids kept posix_spawn refused shell inherited
                    run { "memory-policy", "POLICY", "Memory" }
                    docs "set_mempolicy", "NUMA; in Docker CAP_SYS_NICE"
                    example "local"
                }

                /// Denies the program memory that is both writable and executable, and memory that becomes executable
                /// later: `prctl(2)` PR_SET_MDWE, Linux 6.3. It cannot be undone, and the program's children inherit
                /// it.
                ///
                /// It needs [`Launcher::Fork`](crate::Launcher::Fork): the kernel stores it in the memory of the
                /// process that calls `prctl`, and other children share that memory with this process until exec.
                /// `Launcher::Clone`, `Launcher::PosixSpawn` and a [zygote](crate::zygote) refuse it. With
                /// [`exec`](Self::exec) it is set in this process, and stays set if the program cannot be executed.
                /// (The other flag, PR_MDWE_NO_INHERIT, ends at exec, so it would have no effect on a program.)
                ///
                /// ```
                /// use forkless::{Command, Error, Launcher, Step};
                /// let mut command = Command::new("true");
                /// let error = command.memory_deny_write_execute(true).status().unwrap_err();
                /// assert!(error.to_string().contains("Launcher::Fork"));
                /// match command.launcher(Launcher::Fork).status() {
                ///     Ok(status) => assert!(status.success()),
                ///     // Before Linux 6.3.
                ///     Err(error) => assert_eq!(Error::of(&error).unwrap().step(), Step::DenyWriteExecute),
                /// }
                /// ```
                memory_deny_write_execute(on: flag) {
                    line "Deny memory that is writable and executable: PR_SET_MDWE; needs the launcher fork unless the caller becomes the program"
                    step DenyWriteExecute = 52, "deny writable and executable memory", "`prctl(2)` PR_SET_MDWE."
                    op { Last: __NR_prctl(prctl::PR_SET_MDWE, prctl::PR_MDWE_REFUSE_EXEC_GAIN), "from Linux 6.3 on" }
                    memory own ids kept posix_spawn refused shell inherited
                    run { "memory-deny-write-execute", "", "Memory" }
                    docs "prctl", "Linux 6.3; `Launcher::Fork`, except for `exec`"
                    example "1"
                }
            }
            passed {
                chroot(root: path) { line "Set the root directory: chroot(2)" python yes }
                umask(mask: mode) { line "Set the file mode creation mask: umask(2)" python no }
                controlling_terminal(child_fd: number) {
                    line "Make the terminal at this descriptor of the child its controlling terminal; needs a new session" python yes
                }
                foreground(child_fd: number) {
                    line "Make the child's process group the foreground group of the terminal at this descriptor" python yes
                }
                no_new_privs(on: flag) { line "Prevent exec from granting privileges: PR_SET_NO_NEW_PRIVS" python yes }
                parent_death_signal(number: signal) {
                    line "Send the child this signal when the calling process ends (this may start a thread of the library)" python yes
                }
                thread_death_signal(number: signal) {
                    line "Send the child this signal when the thread ends that launches it" python yes
                }
                hostname(name: text) { line "Set the host name of the new UTS namespace" python yes }
                pivot_root(new_root: path) { line "Make this directory the root of the mount namespace: pivot_root(2)" python yes }
                cgroup(fd: file) {
                    line "Start in this cgroup (version 2), named by its directory; every launch then waits for the exec" python yes
                }
                memory_max(bytes: amount) {
                    line "Limit the memory of the child with all that it starts, in bytes (suffix K, M, G or T): a cgroup for each launch" python yes
                }
                tasks_max(count: amount) { line "Limit the processes and threads of the child with all that it starts" python yes }
                cpu_max(cpus: amount) { line "Limit the CPU time of the child with all that it starts: a number of CPUs, such as 1.5" python yes }
                io_max(limits: amount) {
                    line "Limit the disk I/O of the child with all that it starts: a line of io.max, such as 8:0 rbps=10485760" python yes
                }
                cgroup_parent(directory: path) { line "Make a cgroup for each launch below this one, named by its directory; what the child leaves in it is killed" python yes }
                bounding_set(capabilities: capabilities) { line "Set the bounding set: capabilities(7)" python yes }
                permitted(capabilities: capabilities) { line "Set the permitted capabilities" python yes }
                effective(capabilities: capabilities) { line "Set the effective capabilities" python yes }
                inheritable(capabilities: capabilities) { line "Set the inheritable capabilities" python yes }
                ambient(capabilities: capabilities) { line "Set the ambient capabilities" python yes }
                securebits(bits: u32) { line "Set the securebits: capabilities(7)" python yes }
                kill_tree(on: flag) { line "End all that the program has started together with it: Linux 6.12, or a sandbox of namespaces" python yes }
                landlock(fd: fd) { line "Restrict the child by a Landlock ruleset: landlock(7)" python yes }
            }
        }
    };
}

/// A row, for generators and tests of pages.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Row {
    pub name: &'static str,
    pub argument: &'static str,
    pub kind: &'static str,
    pub line: &'static str,
    /// The flag of `forkless run` and the name of its value. `None`: written by hand.
    pub run: Option<(&'static str, &'static str)>,
    /// The flags of `forkless run`, for the docs.
    pub run_words: &'static str,
    /// The system call and the privileges that it needs. `None`: the docs' row is written by hand.
    pub docs: Option<(&'static str, &'static str)>,
    /// A value, for tests. Empty: none.
    pub example: &'static str,
    /// Whether it is a keyword of Python's `Settings`.
    pub in_python: bool,
}

/// The generated flag with its value's name, and the flags for the docs.
type GeneratedFlag = (Option<(&'static str, &'static str)>, &'static str);

macro_rules! run {
    ({ by_hand $words:literal }) => {{
        const RUN: GeneratedFlag = (None, $words);
        RUN
    }};
    ({ $flag:literal, $value:literal, $heading:literal }) => {{
        const RUN: GeneratedFlag = (Some(($flag, $value)), concat!("`--", $flag, "`"));
        RUN
    }};
}

macro_rules! is_yes {
    (yes) => {
        true
    };
    (no) => {
        false
    };
}

macro_rules! table {
    (
        played { $(
            $(#[$doc:meta])*
            $name:ident($arg:ident: $kind:ident $(($($more:tt)*))?) {
                line $line:literal step $step:ident = $code:literal, $words:literal, $of:literal op $op:tt
                memory $memory:ident ids $ids:ident posix_spawn $posix:ident shell $shell:ident
                run $run:tt docs $call:literal, $needs:literal example $example:literal
            }
        )* }
        passed { $(
            $pname:ident($parg:ident: $pkind:ident) { line $pline:literal python $python:ident }
        )* }
    ) => {
        /// The rows of `played`, then those of `passed`.
        #[doc(hidden)]
        pub static TABLE: &[Row] = &[
            $(Row {
                name: stringify!($name),
                argument: stringify!($arg),
                kind: stringify!($kind),
                line: $line,
                run: run!($run).0,
                run_words: run!($run).1,
                docs: Some(($call, $needs)),
                example: $example,
                in_python: true,
            },)*
            $(Row {
                name: stringify!($pname),
                argument: stringify!($parg),
                kind: stringify!($pkind),
                line: $pline,
                run: None,
                run_words: "",
                docs: None,
                example: "",
                in_python: is_yes!($python),
            },)*
        ];
    };
}

crate::settings!(table);

/*
 * forkless: start programs from a process of any size without copying its memory. Linux, C99 or C++.
 *
 *     cc prog.c $(pkg-config --cflags --libs forkless)
 *
 * RETURN VALUES
 *   Functions that return int, pid_t or ssize_t return 0 or a positive result, and on failure a negative errno such as -ENOENT. They
 *   leave errno unchanged. The replacements for libc functions (forkless_popen, forkless_popenv, forkless_pclose, forkless_system)
 *   return and set errno as the libc functions do.
 *   A null pointer where none is allowed, or a number out of range, is -EINVAL and never a crash. A pointer to unmapped memory is
 *   undefined behaviour.
 *
 * OUTPUT PARAMETERS come last, before the error. They are written only on success.
 *
 * ERRORS
 *   Functions that start a program or wait for one, and cgroup functions, take a pointer to a forkless_error of the caller. NULL means
 *   that the caller does not need it. It is written only on failure: the step that failed, the errno and a message.
 *
 * HANDLES
 *   Each handle type has a _free function, which accepts NULL. After it, the handle and the strings and bytes that it gave must not be
 *   used. Only one thread at a time may use a command, a child, a pipeline or a wait set; a second thread gets -EBUSY. Any number of
 *   threads may use the other handles at the same time.
 *   Handles do not depend on each other, except where a function says so.
 *
 * FILE DESCRIPTORS that are passed to the library still belong to the caller. Where the library needs one later, it makes a copy. The
 *   exception is forkless_command_fd: its descriptor must be open when the command is run. Descriptors that the library creates are
 *   close-on-exec.
 *
 * STRINGS are byte strings without an encoding, except where UTF-8 is stated, and are copied. Functions that return a string work like
 *   snprintf(3): they write at most `size` bytes with a terminating NUL and return the full length. text may be NULL if size is 0.
 *
 * THREADS  No function is a cancellation point. Except where stated, no function calls back, installs a signal handler or starts a
 *   thread. A forked copy of the process may use the library, but the children of the original process are not its children.
 *
 * THE CHILD runs none of the caller's code, except for forkless_command_pre_exec. Between clone and exec it shares the caller's memory
 *   and makes a list of system calls. Their order is fixed and does not depend on the order of the setters' calls. pthread_atfork(3)
 *   handlers do not run.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef FORKLESS_H
#define FORKLESS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the library, such as "0.1.0". */
const char *forkless_version(void);

/* ---- Errors -------------------------------------------------------------------------------------------------------------------
 *
 *     forkless_error error;
 *     if (forkless_command_spawn(command, &child, &error) < 0)
 *         fprintf(stderr, "%s\n", error.message);    // failed to start "gitt": exec: No such file or directory (searched PATH: ...)
 */

#define FORKLESS_MESSAGE_SIZE 504

typedef struct forkless_error {
    int step;                             /* the step that failed, FORKLESS_STEP_...; 0: no particular step */
    int errnum;                           /* the errno, positive; the function returns it negated */
    char message[FORKLESS_MESSAGE_SIZE];  /* UTF-8; a longer message is truncated */
} forkless_error;

/* The steps of a launch. A number never changes its meaning. FORKLESS_STEP_CHECK with EINVAL is an invalid request. ECANCELED: the
 * child was killed before it could run the program. ENOTRECOVERABLE: a bug in the library. */
/* steps: begin */
enum {
    FORKLESS_STEP_TABLE = 1,
    FORKLESS_STEP_PASS_FD = 2,
    FORKLESS_STEP_CLOSE_FDS = 4,
    FORKLESS_STEP_SET_SID = 5,
    FORKLESS_STEP_SET_PGID = 6,
    FORKLESS_STEP_CHDIR = 7,
    FORKLESS_STEP_OPEN = 8,
    FORKLESS_STEP_DUP = 9,
    FORKLESS_STEP_SIGNALS = 10,
    FORKLESS_STEP_EXEC = 13,
    FORKLESS_STEP_RLIMIT = 20,
    FORKLESS_STEP_NICE = 21,
    FORKLESS_STEP_SCHEDULER = 22,
    FORKLESS_STEP_AFFINITY = 23,
    FORKLESS_STEP_IO_PRIORITY = 24,
    FORKLESS_STEP_TIMER_SLACK = 25,
    FORKLESS_STEP_PERSONALITY = 26,
    FORKLESS_STEP_OOM_SCORE = 27,
    FORKLESS_STEP_TERMINAL = 28,
    FORKLESS_STEP_FOREGROUND = 29,
    FORKLESS_STEP_CHROOT = 30,
    FORKLESS_STEP_SET_GROUPS = 31,
    FORKLESS_STEP_SET_GID = 32,
    FORKLESS_STEP_SET_UID = 33,
    FORKLESS_STEP_UMASK = 34,
    FORKLESS_STEP_CALL = 35,
    FORKLESS_STEP_NO_NEW_PRIVS = 36,
    FORKLESS_STEP_PARENT_DEATH_SIGNAL = 37,
    FORKLESS_STEP_NAMESPACE = 38,
    FORKLESS_STEP_JOIN_NAMESPACE = 39,
    FORKLESS_STEP_ID_MAPS = 40,
    FORKLESS_STEP_HOSTNAME = 41,
    FORKLESS_STEP_MOUNT = 42,
    FORKLESS_STEP_PIVOT_ROOT = 43,
    FORKLESS_STEP_CAPABILITIES = 44,
    FORKLESS_STEP_SECUREBITS = 45,
    FORKLESS_STEP_LANDLOCK = 46,
    FORKLESS_STEP_SECCOMP = 47,
    FORKLESS_STEP_HAND_BACK = 48,
    FORKLESS_STEP_MAKE_DIR = 49,
    FORKLESS_STEP_SYMLINK = 50,
    FORKLESS_STEP_MEMORY_POLICY = 51,
    FORKLESS_STEP_DENY_WRITE_EXECUTE = 52,
    FORKLESS_STEP_PRE_EXEC = 60,
    FORKLESS_STEP_CONTROL_GROUP = 61,
    FORKLESS_STEP_ADOPT = 62,
    FORKLESS_STEP_FUNCTION = 63,
    FORKLESS_STEP_CHECK = 101,
    FORKLESS_STEP_PIPE = 102,
    FORKLESS_STEP_STACK = 103,
    FORKLESS_STEP_PROBE = 104,
    FORKLESS_STEP_CLONE = 105,
    FORKLESS_STEP_WAIT = 106,
    FORKLESS_STEP_OPEN_TERMINAL = 107,
    FORKLESS_STEP_LIMITS = 108,
    FORKLESS_STEP_ZYGOTE = 110
};
/* steps: end */

/* The name of the step, such as "set the limit". -ENOENT if no step has this number. */
int forkless_step_words(int step, char *text, size_t size);

/* ---- Commands: a program, its arguments and settings --------------------------------------------------------------------------
 *
 *     forkless_command *command;
 *     int status;
 *     forkless_command_new("make", &command);
 *     forkless_command_arg(command, "-s");
 *     forkless_command_current_dir(command, "/usr/src/project");
 *     forkless_command_fd_null(command, 0);
 *     if (forkless_command_status(command, &status, NULL) == 0 && WIFEXITED(status)) ...
 *     forkless_command_free(command);
 *
 * By default the program inherits the environment, the working directory, the standard streams and the calling thread's signal mask.
 * It inherits no other descriptors, even those that are not close-on-exec. SIGPIPE is reset to its default action.
 *
 * Setters only record a value, so most errors are reported when the command is run. If one returns an error, the command is not run
 * without that setting: every function that would run it fails. For the parameter `on`, 0 means no and any other value yes.
 */

typedef struct forkless_command forkless_command;

/* Create a command. A program with a slash in its name is a path. Otherwise it is searched for in PATH: that of the child, if the
 * command changes it. */
int forkless_command_new(const char *program, forkless_command **command);
/* The same with arguments. argv[0] is the program; a null pointer ends the list. */
int forkless_command_new_argv(char *const argv[], forkless_command **command);
void forkless_command_free(forkless_command *command);

/* Add a fallback, which is tried if the programs before it are not found. */
int forkless_command_or_else(forkless_command *command, const char *program);
/* Execute the program that this descriptor refers to, with execveat(2). The command's program name is then only used as argv[0] and in
 * messages. */
int forkless_command_program_fd(forkless_command *command, int fd);
/* Append an argument, or a list of arguments that ends in a null pointer. No shell interprets them. */
int forkless_command_arg(forkless_command *command, const char *arg);
int forkless_command_args(forkless_command *command, char *const args[]);
/* Set argv[0] (default: the program). */
int forkless_command_arg0(forkless_command *command, const char *arg0);

/* Change the environment: set a variable, remove one, remove all. */
int forkless_command_env(forkless_command *command, const char *name, const char *value);
int forkless_command_env_remove(forkless_command *command, const char *name);
int forkless_command_env_clear(forkless_command *command);
/* Replace the whole environment by this list of NAME=value strings. As with getenv(3), the first entry of a name counts. Entries
 * without = are left out. */
int forkless_command_envs(forkless_command *command, char *const envp[]);

/* Set the working directory, with chdir(2) or fchdir(2). A relative path of the program is resolved from it, too. */
int forkless_command_current_dir(forkless_command *command, const char *path);
int forkless_command_current_dir_fd(forkless_command *command, int fd);

/* ---- File descriptors of the program ------------------------------------------------------------------------------------------
 *
 *     forkless_command_fd(command, 5, sockets[1]);         // any descriptor at any number; swaps and cycles work
 *     forkless_command_fd_open(command, 1, "log", O_WRONLY | O_CREAT | O_APPEND, 0666);
 *     forkless_command_fd_dup(command, 2, 1);              // 2>&1
 *
 * child_fd is the number of the descriptor in the program.
 */

/* A copy of the caller's descriptor fd, which must be open when the command is run. */
int forkless_command_fd(forkless_command *command, int child_fd, int fd);
/* The caller's descriptor of the same number. */
int forkless_command_fd_inherit(forkless_command *command, int child_fd);
/* /dev/null. */
int forkless_command_fd_null(forkless_command *command, int child_fd);
/* A pipe (child_fd must be 0, 1 or 2). forkless_child_fd returns the other end. */
int forkless_command_fd_pipe(forkless_command *command, int child_fd);
/* One of two connected stream sockets. forkless_child_take_fd returns the other one. */
int forkless_command_fd_socketpair(forkless_command *command, int child_fd);
/* A duplicate of the program's descriptor of_child_fd, made after all others are in place. */
int forkless_command_fd_dup(forkless_command *command, int child_fd, int of_child_fd);
/* A file that the child opens, with open(2), relative to its working directory. Paths in procfs fail with EOPNOTSUPP: /proc/self would
 * refer to the caller. */
int forkless_command_fd_open(forkless_command *command, int child_fd, const char *path, int flags, mode_t mode);
/* Inherit every descriptor that is not close-on-exec, as after execve(2). This costs a copy of the file-descriptor table. */
int forkless_command_inherit_all(forkless_command *command, int on);

/* ---- Session, signals, child handle ---------------------------------------------------------------------------------------- */

/* Start a new session, with setsid(2). */
int forkless_command_setsid(forkless_command *command, int on);
/* Join a process group, with setpgid(2). 0: a new one, which the child leads. */
int forkless_command_process_group(forkless_command *command, pid_t group);
/* Set the signal's disposition in the program: default, ignored, or inherited from the caller. */
int forkless_command_signal_default(forkless_command *command, int number);
int forkless_command_signal_ignore(forkless_command *command, int number);
int forkless_command_signal_inherit(forkless_command *command, int number);
/* Block this signal, too. With `on` (default) the program inherits the calling thread's signal mask; otherwise only signals of
 * forkless_command_signal_block are blocked. */
int forkless_command_signal_block(forkless_command *command, int number);
int forkless_command_inherit_signal_mask(forkless_command *command, int on);
/* Whether the handle has a pidfd (default: yes for spawn and launch, no for status). */
int forkless_command_pidfd(forkless_command *command, int on);
/* Whether forkless_command_launch waits until the child has a file-descriptor table of its own (default: no): then record locks of the
 * caller (fcntl(2) F_SETLK) stay if it executes another program, and are not the child's if it ends. */
int forkless_command_keep_record_locks(forkless_command *command, int on);
/* Whether forkless_child_free kills the child (default: no). */
int forkless_command_kill_on_free(forkless_command *command, int on);
/* Have the kernel reap the child (CLONE_AUTOREAP, Linux 7.1; -EINVAL at the launch on older kernels). The child leaves no zombie and
 * sends no SIGCHLD, and waitpid(-1) elsewhere in the process never returns it. Its status is only available through the pidfd, and
 * there is no resource usage. Not with FORK, POSIX_SPAWN, a zygote, pidfd(0) or seccomp. */
int forkless_command_autoreap(forkless_command *command, int on);
/* The same, and the kernel kills the child when the last descriptor of its pidfd is closed: by forkless_child_free, or because the
 * calling process has ended for any reason. Needs forkless_command_no_new_privs or CAP_SYS_ADMIN. */
int forkless_command_pidfd_autokill(forkless_command *command, int on);
/* How long to retry while the program's file is open for writing (ETXTBSY), in milliseconds (default: 100). */
int forkless_command_retry_busy(forkless_command *command, uint32_t limit_ms);
/* Whether /bin/sh runs a file that the kernel does not recognize and that has no #! line (ENOEXEC), as execvp(3) does. Default: no, it
 * is an error. A binary, such as a program for another machine, is one in any case. */
int forkless_command_scripts_by_shell(forkless_command *command, int on);
/* Continue if this step fails. forkless_child_skipped lists the steps that were skipped. */
int forkless_command_best_effort(forkless_command *command, int step);
/* How the child is created (default: CLONE). FORK copies the caller's memory. POSIX_SPAWN supports only some settings and refuses the
 * others. ZYGOTE and WARM are only returned by forkless_child_launcher; forkless_zygote_spawn and forkless_command_warm start such
 * children. */
enum {
    FORKLESS_LAUNCHER_CLONE = 0,
    FORKLESS_LAUNCHER_FORK = 1,
    FORKLESS_LAUNCHER_POSIX_SPAWN = 2,
    FORKLESS_LAUNCHER_ZYGOTE = 4,
    FORKLESS_LAUNCHER_WARM = 5
};
int forkless_command_launcher(forkless_command *command, int launcher);
/* Call the function in the child right before exec (FORK only). A nonzero return value is the errno of a failed launch. Only
 * async-signal-safe functions may be called, as after every fork of a process with threads. */
typedef int (*forkless_function)(void *value);
int forkless_command_pre_exec(forkless_command *command, forkless_function function, void *value);

/* ---- User and group IDs, limits, scheduling -----------------------------------------------------------------------------------
 *
 *     forkless_command_user(command, "www-data");                       // and its supplementary groups
 *     forkless_command_rlimit(command, RLIMIT_NOFILE, 64, 64);
 */

/* Set the IDs, with setresuid(2), setresgid(2) and setgroups(2). If root sets a uid and no groups, the child has no supplementary
 * groups. In all other cases they are inherited. */
int forkless_command_uid(forkless_command *command, uid_t uid);
int forkless_command_gid(forkless_command *command, gid_t gid);
int forkless_command_groups(forkless_command *command, const gid_t *groups, size_t count);
/* The same by name, which is looked up when the command is run. A user name also sets the primary and supplementary groups. */
int forkless_command_user(forkless_command *command, const char *name);
int forkless_command_group(forkless_command *command, const char *name);
/* A limit, RLIMIT_...: prlimit(2). UINT64_MAX: none. */
int forkless_command_rlimit(forkless_command *command, int resource, uint64_t soft, uint64_t hard);
/* SCHED_OTHER, SCHED_FIFO...: sched_setscheduler(2). */
int forkless_command_scheduler(forkless_command *command, int policy, int priority);
/* The CPUs that it may run on, from 0. */
int forkless_command_cpu_affinity(forkless_command *command, const int *processors, size_t count);
/* Class 1 to 3 (real-time, best effort, idle) and level 0 to 7: ioprio_set(2). */
int forkless_command_io_priority(forkless_command *command, int io_class, int level);

/* ---- Namespaces, mounts, privileges -------------------------------------------------------------------------------------------
 *
 *     forkless_command_unshare(command, CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID);
 *     forkless_command_tmpfs(command, "/tmp", "size=10m");
 *     forkless_command_proc(command, "/proc");
 *
 * Mounts are made in the order of the calls.
 */

/* Create new namespaces (CLONE_NEW...); join an existing one, given by a descriptor. */
int forkless_command_unshare(forkless_command *command, uint64_t namespaces);
int forkless_command_join(forkless_command *command, uint64_t name_space, int fd);
/* Map `count` IDs of the new user namespace, from `inside` on, to the caller's IDs from `outside` on. */
int forkless_command_map_uid(forkless_command *command, uint32_t inside, uint32_t outside, uint32_t count);
int forkless_command_map_gid(forkless_command *command, uint32_t inside, uint32_t outside, uint32_t count);
/* mount(2). source, kind and data may be NULL. kind is UTF-8, as are the options below. */
int forkless_command_mount(forkless_command *command, const char *source, const char *target, const char *kind,
                           unsigned long flags, const char *data);
/* Bind-mount source at target; the same, read-only, with open_tree(2) and mount_setattr(2) (Linux 5.12). A target below the new root
 * or another mount is resolved inside it, with openat2(2) (Linux 5.6): see docs/settings.md, "Paths of mounts". */
int forkless_command_bind(forkless_command *command, const char *source, const char *target);
int forkless_command_bind_read_only(forkless_command *command, const char *source, const char *target);
/* Make the mount at target and all mounts below it read-only; set and clear MOUNT_ATTR_... of it, with mount_setattr(2). */
int forkless_command_read_only(forkless_command *command, const char *target);
int forkless_command_mount_attributes(forkless_command *command, const char *target, uint64_t set, uint64_t clear);
/* Mount a new file system, with fsopen(2), fsconfig(2) and fsmount(2). Parameters are "name=value" or "flag", and a null pointer ends
 * the list. */
int forkless_command_file_system(forkless_command *command, const char *kind, char *const parameters[],
                                 uint64_t attributes, const char *target);
/* Attach a detached mount of the caller, with move_mount(2). */
int forkless_command_attach_mount(forkless_command *command, int fd, const char *target);
/* Mount an overlay: the directories `lower`, topmost first, below `upper` with its work directory. It is read-only if upper and work
 * are NULL. */
int forkless_command_overlay(forkless_command *command, char *const lower[], const char *upper, const char *work,
                             const char *target);
int forkless_command_unmount(forkless_command *command, const char *target);
int forkless_command_make_dir(forkless_command *command, const char *path, mode_t mode);
int forkless_command_make_symlink(forkless_command *command, const char *to, const char *path);
/* Mount at target: a minimal /dev; a tmpfs; procfs for the child's PID namespace. */
int forkless_command_devices(forkless_command *command, const char *target);
int forkless_command_tmpfs(forkless_command *command, const char *target, const char *options);
int forkless_command_proc(forkless_command *command, const char *target);
/* Restrict the child with a seccomp(2) filter, an array of <linux/filter.h> instructions. It needs forkless_command_no_new_privs or
 * privileges. */
struct sock_filter;
int forkless_command_seccomp(forkless_command *command, const struct sock_filter *filter, size_t count);

/* Make any system call in the child. The child shares the caller's memory, so the call must not write to memory. Its result can be
 * stored in a variable (0 to 14; -1: not stored), for later calls or, if it is a descriptor, for forkless_command_hand_back. The
 * caller receives that descriptor with forkless_child_take_handed_back. */
enum { FORKLESS_CALL_NUMBER = 0, FORKLESS_CALL_BYTES = 1, FORKLESS_CALL_VARIABLE = 2 };
typedef struct forkless_call_arg {
    int kind;           /* FORKLESS_CALL_... */
    uint64_t number;    /* NUMBER: the argument; BYTES: the size; VARIABLE: its index */
    const void *bytes;  /* BYTES: copied, with a NUL appended; the argument is a pointer to the copy */
} forkless_call_arg;
int forkless_command_call(forkless_command *command, uint32_t call, const forkless_call_arg *args, size_t count, int result);
int forkless_command_hand_back(forkless_command *command, uint32_t variable);

/* ---- Settings of one value -----------------------------------------------------------------------------------------------------
 *
 *     forkless_command_nice(command, 5);
 *     forkless_command_no_new_privs(command, 1);
 *     forkless_command_parent_death_signal(command, SIGKILL);
 *
 * Sets of capabilities have bit n for capability n. What is on or off takes 1 or 0.
 */

/* settings: begin */
/* Set the nice value, from -20 to 19. */
int forkless_command_nice(forkless_command *command, int nice);
/* Set the timer slack, in nanoseconds (0: the caller's default). */
int forkless_command_timer_slack(forkless_command *command, uint64_t nanoseconds);
/* Set the execution domain and its flags: personality(2). */
int forkless_command_personality(forkless_command *command, uint32_t persona);
/* Set how readily the OOM killer kills the child, from -1000 (never) to 1000. */
int forkless_command_oom_score_adj(forkless_command *command, int score);
/* Set the NUMA memory policy: local, preferred:NODE, membind:NODES or interleave:NODES (0-3,5 or all). */
int forkless_command_memory_policy(forkless_command *command, const char *policy);
/* Deny memory that is writable and executable: PR_SET_MDWE; needs the launcher fork unless the caller becomes the program. */
int forkless_command_memory_deny_write_execute(forkless_command *command, int on);
/* Set the root directory: chroot(2). */
int forkless_command_chroot(forkless_command *command, const char *root);
/* Set the file mode creation mask: umask(2). */
int forkless_command_umask(forkless_command *command, mode_t mask);
/* Make the terminal at this descriptor of the child its controlling terminal; needs a new session. */
int forkless_command_controlling_terminal(forkless_command *command, int child_fd);
/* Make the child's process group the foreground group of the terminal at this descriptor. */
int forkless_command_foreground(forkless_command *command, int child_fd);
/* Prevent exec from granting privileges: PR_SET_NO_NEW_PRIVS. */
int forkless_command_no_new_privs(forkless_command *command, int on);
/* Send the child this signal when the calling process ends (this may start a thread of the library). */
int forkless_command_parent_death_signal(forkless_command *command, int number);
/* Send the child this signal when the thread ends that launches it. */
int forkless_command_thread_death_signal(forkless_command *command, int number);
/* Set the host name of the new UTS namespace. */
int forkless_command_hostname(forkless_command *command, const char *name);
/* Make this directory the root of the mount namespace: pivot_root(2). */
int forkless_command_pivot_root(forkless_command *command, const char *new_root);
/* Start in this cgroup (version 2), named by its directory; every launch then waits for the exec. */
int forkless_command_cgroup(forkless_command *command, int fd);
/* Limit the memory of the child with all that it starts, in bytes (suffix K, M, G or T): a cgroup for each launch. */
int forkless_command_memory_max(forkless_command *command, const char *bytes);
/* Limit the processes and threads of the child with all that it starts. */
int forkless_command_tasks_max(forkless_command *command, const char *count);
/* Limit the CPU time of the child with all that it starts: a number of CPUs, such as 1.5. */
int forkless_command_cpu_max(forkless_command *command, const char *cpus);
/* Limit the disk I/O of the child with all that it starts: a line of io.max, such as 8:0 rbps=10485760. */
int forkless_command_io_max(forkless_command *command, const char *limits);
/* Make a cgroup for each launch below this one, named by its directory; what the child leaves in it is killed. */
int forkless_command_cgroup_parent(forkless_command *command, const char *directory);
/* Set the bounding set: capabilities(7). */
int forkless_command_bounding_set(forkless_command *command, uint64_t capabilities);
/* Set the permitted capabilities. */
int forkless_command_permitted(forkless_command *command, uint64_t capabilities);
/* Set the effective capabilities. */
int forkless_command_effective(forkless_command *command, uint64_t capabilities);
/* Set the inheritable capabilities. */
int forkless_command_inheritable(forkless_command *command, uint64_t capabilities);
/* Set the ambient capabilities. */
int forkless_command_ambient(forkless_command *command, uint64_t capabilities);
/* Set the securebits: capabilities(7). */
int forkless_command_securebits(forkless_command *command, uint32_t bits);
/* End all that the program has started together with it: Linux 6.12, or a sandbox of namespaces. */
int forkless_command_kill_tree(forkless_command *command, int on);
/* Restrict the child by a Landlock ruleset: landlock(7). */
int forkless_command_landlock(forkless_command *command, int fd);
/* settings: end */

/* ---- Running --------------------------------------------------------------------------------------------------------------- */

typedef struct forkless_child forkless_child;
typedef struct forkless_prepared forkless_prepared;

/* Start the program and return when it has been executed, or fail with the error that prevented it. */
int forkless_command_spawn(forkless_command *command, forkless_child **child, forkless_error *error);
/* Return as soon as the child exists. forkless_child_wait_exec and _wait report whether the program could be executed; the call itself
 * fails if that is known already. Under a debugger, and for a child that enters another cgroup or changes its IDs, it does wait for the
 * exec. */
int forkless_command_launch(forkless_command *command, forkless_child **child, forkless_error *error);
/* Run the program and wait until it has ended. The status is that of waitpid(2). */
int forkless_command_status(forkless_command *command, int *status, forkless_error *error);

/* Do the work that is the same for all launches once. The launches then allocate no memory, and several threads may launch at the same
 * time. The environment is copied now. */
int forkless_command_prepare(forkless_command *command, forkless_prepared **prepared, forkless_error *error);
int forkless_prepared_spawn(forkless_prepared *prepared, forkless_child **child, forkless_error *error);
int forkless_prepared_launch(forkless_prepared *prepared, forkless_child **child, forkless_error *error);
int forkless_prepared_status(forkless_prepared *prepared, int *status, forkless_error *error);
/* List the steps of the child, one per line. */
int forkless_prepared_steps(const forkless_prepared *prepared, char *text, size_t size);
void forkless_prepared_free(forkless_prepared *prepared);
/* Launch many children, using several CPUs. Each entry of children is a handle, or NULL with a negative errno in errors. Returns the
 * number of children that were launched. */
int forkless_launch_all(forkless_prepared *const prepared[], size_t count, forkless_child *children[], int errors[]);

/* ---- Output -------------------------------------------------------------------------------------------------------------------
 *
 *     forkless_capture how = FORKLESS_CAPTURE_INIT;
 *     forkless_output *output;
 *     how.input = "hello", how.input_size = 5, how.timeout_ms = 10000;
 *     if (forkless_command_capture(command, &how, &output, &error) == 0) {
 *         fwrite(output->out, 1, output->out_size, stdout);
 *         forkless_output_free(output);
 *     }
 */

typedef struct forkless_usage {
    uint64_t wall_ns, user_ns, system_ns; /* nanoseconds; wall: from the launch until the child was reaped */
    uint64_t max_rss_kib;                 /* includes the caller's resident memory, which the child shares until exec */
    uint64_t minor_faults, major_faults;
    uint64_t blocks_in, blocks_out; /* of 512 bytes */
    uint64_t voluntary_switches, involuntary_switches;
} forkless_usage;

/* How often the program, with all that it started, has reached its limits: forkless_command_memory_max, forkless_command_tasks_max. */
typedef struct forkless_limit_events {
    uint64_t oom_kills;  /* processes that the OOM killer has killed */
    uint64_t memory_max; /* how often the memory was about to exceed its limit; the kernel then frees caches */
    uint64_t tasks_max;  /* forks and new threads that failed with EAGAIN */
} forkless_limit_events;

enum { FORKLESS_OUTPUT_TIMED_OUT = 1, FORKLESS_OUTPUT_HELD_OPEN = 2 };

/* Created by the library. Later versions may append members. */
typedef struct forkless_output {
    int status;          /* of waitpid(2) */
    int flags;           /* TIMED_OUT: the timeout expired; HELD_OPEN: another process still had the streams open */
    const char *out;     /* standard output, with a NUL appended (not with MEMORY_FILE) */
    size_t out_size;     /* without the NUL */
    const char *err;     /* standard error */
    size_t err_size;
    uint64_t out_cut;    /* bytes beyond the limit, which were discarded */
    uint64_t err_cut;
    size_t input_left;   /* bytes of the input that the program did not read */
    forkless_usage usage;
    forkless_limit_events limit_events; /* zeroes without limits */
} forkless_output;

enum { FORKLESS_CAPTURE_MERGED = 1, FORKLESS_CAPTURE_KILL_AT_LIMIT = 2, FORKLESS_CAPTURE_MEMORY_FILE = 4 };

/* Initialize with FORKLESS_CAPTURE_INIT: no input, no limits. Times are in milliseconds; a negative time means no limit. */
typedef struct forkless_capture {
    size_t size;         /* of this struct */
    int flags;           /* MERGED: 2>&1; KILL_AT_LIMIT: kill the program at the limit; MEMORY_FILE: capture into a memfd */
    int signal;          /* signal at the timeout, followed by SIGKILL after grace_ms (negative: never); 0: SIGKILL at once */
    const void *input;   /* standard input; NULL: empty */
    size_t input_size;
    size_t limit;        /* bytes to keep of each stream; 0: all */
    int64_t timeout_ms;
    int64_t grace_ms;
    int64_t linger_ms;   /* after the program's end, how long to read while others hold its streams open; negative: until EOF, but
                            100 ms after a timeout */
} forkless_capture;

#define FORKLESS_CAPTURE_INIT { sizeof(forkless_capture), 0, 0, NULL, 0, 0, -1, 0, -1 }

/* Run the program until it has ended. Write its input and read both output streams at the same time. options may be NULL. Streams that
 * the command redirects are not captured. */
int forkless_command_capture(forkless_command *command, const forkless_capture *options, forkless_output **output,
                             forkless_error *error);
int forkless_prepared_capture(forkless_prepared *prepared, const forkless_capture *options, forkless_output **output,
                              forkless_error *error);
void forkless_output_free(forkless_output *output);

/* ---- Children -----------------------------------------------------------------------------------------------------------------
 *
 *     forkless_child *child;
 *     int status;
 *     if (forkless_command_spawn(command, &child, NULL) == 0) {
 *         if (forkless_child_wait_timeout(child, 5000, &status, NULL) == 0)    // not ended by then
 *             forkless_child_terminate(child, SIGTERM, 1000, &status, NULL);
 *         forkless_child_free(child);
 *     }
 *
 * Freeing the handle does not kill the child and leaves no zombie: a later launch, or forkless_reap_orphans, reaps the child. To send a
 * signal to a child while another thread waits for it, use pidfd_send_signal(2) with its pidfd.
 */

void forkless_child_free(forkless_child *child);
/* Free the handle without reaping the child. Waits for the exec; returns the pid, for waitpid(2), or the error of the launch. -EINVAL
 * for an autoreaped child, -ECHILD for one that has been waited for. The handle is freed in these cases too, but not with -EBUSY. */
pid_t forkless_child_release(forkless_child *child);
pid_t forkless_child_pid(forkless_child *child);
/* The pidfd, which is readable when the child has ended. It belongs to the handle. -ENOENT if there is none. */
int forkless_child_pidfd(forkless_child *child);
/* The caller's end of the pipe at the child's 0, 1 or 2. It belongs to the handle. -ENOENT if there is none. */
int forkless_child_fd(forkless_child *child, int child_fd);
/* The same, or the other socket of a pair, but the caller must close it. */
int forkless_child_take_fd(forkless_child *child, int child_fd);
/* The next descriptor that the child has handed back; the caller must close it. -ENOENT if there are no more. */
int forkless_child_take_handed_back(forkless_child *child);
/* A description of how the child was launched; the launcher, FORKLESS_LAUNCHER_.... */
int forkless_child_route(forkless_child *child, char *text, size_t size);
int forkless_child_launcher(forkless_child *child);
/* The reason why the launch was not warm. -ENOENT if it was warm, or the command has no forkless_warm. */
int forkless_child_cold_reason(forkless_child *child, char *text, size_t size);
/* The resource usage, once the child has been waited for. -ENODATA before, and for an autoreaped child. */
int forkless_child_usage(forkless_child *child, forkless_usage *usage);
/* Which limits were reached, once the child has been waited for. -ENODATA before, and without limits. */
int forkless_child_limit_events(forkless_child *child, forkless_limit_events *events);
/* The best-effort step that failed, by index. Returns 1, or 0 if there are no more. */
int forkless_child_skipped(forkless_child *child, size_t index, forkless_error *skipped);
int forkless_child_kill_on_free(forkless_child *child, int on);

/* Wait until the program has been executed. Returns 1, or 0 at the timeout. timeout_ms, here and below: negative for no timeout. */
int forkless_child_wait_exec(forkless_child *child, int64_t timeout_ms, forkless_error *error);
/* Close the child's standard input, and end the input of its sockets that were not taken, as shutdown(2) does with SHUT_WR. Then wait
 * for the child's end. -ECHILD if it was reaped by other code. */
int forkless_child_wait(forkless_child *child, int *status, forkless_error *error);
/* Check, or wait with a timeout, whether the child has ended. Returns 1 and the status, or 0. */
int forkless_child_try_wait(forkless_child *child, int *status, forkless_error *error);
int forkless_child_wait_timeout(forkless_child *child, int64_t timeout_ms, int *status, forkless_error *error);
/* The same, but also returns when the child is stopped or continued: WIFSTOPPED, WIFCONTINUED. */
int forkless_child_wait_change(forkless_child *child, int64_t timeout_ms, int *status, forkless_error *error);
/* Send SIGKILL; any signal; a signal to the process group, which the child must lead. A child that has ended is no error. */
int forkless_child_kill(forkless_child *child);
int forkless_child_signal(forkless_child *child, int number);
int forkless_child_signal_group(forkless_child *child, int number);
/* Send the signal, and SIGKILL if the child (or a member of its group) is still running after grace_ms. Waits for the child's end. */
int forkless_child_terminate(forkless_child *child, int number, int64_t grace_ms, int *status, forkless_error *error);
int forkless_child_terminate_group(forkless_child *child, int number, int64_t grace_ms, int *status, forkless_error *error);
/* End the child's input as forkless_child_wait does, read its pipes until end of file, and wait for its end. */
int forkless_child_output(forkless_child *child, forkless_output **output, forkless_error *error);
/* Reap children whose handles were freed before they ended. Returns how many are still running. */
size_t forkless_reap_orphans(void);
/* Set the process's dumpable flag, 0 or 1, as PR_SET_DUMPABLE of prctl(2) does. While a child that changes its IDs shares the caller's
 * memory, that memory is not dumpable. The library restores the previous flag when the child has executed its program, so a change
 * made with prctl(2) in the meantime is lost. A change made with this function is kept: 0 takes effect at once, 1 when no such child
 * is left. */
int forkless_set_dumpable(int dumpable);

/* ---- Command lines ------------------------------------------------------------------------------------------------------------
 *
 *     char *argv[] = {"/bin/sh", "-c", "grep -c total <log", NULL};
 *     forkless_ending *ending;
 *     forkless_command_new_argv(argv, &command);
 *     if (forkless_command_spawn_line(command, &child, &ending, &error) == 0) {
 *         forkless_child_wait(child, &status, NULL);
 *         forkless_ending_status(ending, status, &status, NULL);    // as the shell would have ended
 *         forkless_ending_free(ending), forkless_child_free(child);
 *     }
 *
 * For callers that have to behave as `/bin/sh -c LINE` does and wait in their own way. forkless_system and forkless_popen are simpler.
 */

typedef struct forkless_ending forkless_ending;

/* Start a command line. The command's program must be the path of a shell, with the arguments -c and LINE; otherwise -EINVAL. If LINE
 * is one simple command and nothing would differ, its program is started without the shell, otherwise the shell. A program that is not
 * found is reported by the shell: message and exit code 127. The child's pid is that of the program: signals sent to it reach the
 * program, not a shell. */
int forkless_command_spawn_line(forkless_command *command, forkless_child **child, forkless_ending **ending, forkless_error *error);
/* Translate the child's status, of waitpid(2), to that of the shell. Call it once, when the child has ended. If dash would wait for the
 * program, death by signal n is exit code 128+n, and "Killed" or the like is written to the child's standard error; SIGHUP, SIGINT and
 * SIGQUIT stay as they are, because a terminal sends them to the shell, too. Does not block: -EAGAIN if the message does not fit into
 * the pipe yet; read it and try again. */
int forkless_ending_status(const forkless_ending *ending, int program, int *status, forkless_error *error);
/* How the line was started: "directly", or "by the shell: " and the reason. */
int forkless_ending_route(const forkless_ending *ending, char *text, size_t size);
/* Free the ending. It has a copy of the child's standard error for the message: a pipe there has no end of file before this call. So
 * do not read to the end of file first, and do not use forkless_child_output. */
void forkless_ending_free(forkless_ending *ending);

/* ---- Pipelines ----------------------------------------------------------------------------------------------------------------
 *
 *     forkless_pipeline *pipeline;
 *     int statuses[2], status;
 *     forkless_pipeline_new(&pipeline);
 *     forkless_pipeline_command(pipeline, sort, NULL);
 *     forkless_pipeline_command(pipeline, uniq, NULL);
 *     forkless_pipeline_status(pipeline, 2, statuses, &status, &error);    // sort | uniq
 *     forkless_pipeline_free(pipeline);
 *
 * The standard output of each program is connected to the standard input of the next. A redirection of the command takes precedence
 * over the pipe. A pipeline can be run any number of times.
 */

typedef struct forkless_pipeline forkless_pipeline;

int forkless_pipeline_new(forkless_pipeline **pipeline);
void forkless_pipeline_free(forkless_pipeline *pipeline);
/* Append a program. The command is copied: the caller can change it or free it afterwards. */
int forkless_pipeline_command(forkless_pipeline *pipeline, forkless_command *command, forkless_error *error);
/* The same with a prepared command, which can be freed afterwards. */
int forkless_pipeline_prepared(forkless_pipeline *pipeline, const forkless_prepared *prepared);
/* With `on`, the pipeline's status is that of the last program that failed, as with `set -o pipefail` of a shell. Default: the status
 * of the last program. */
int forkless_pipeline_pipefail(forkless_pipeline *pipeline, int on);
/* The number of programs. */
int forkless_pipeline_count(forkless_pipeline *pipeline);
/* Start all programs. Writes one handle per program to children, in their order, and returns their number. `count` is the size of the
 * array and must not be less. If a program cannot be started, those already started are killed and reaped. */
int forkless_pipeline_spawn(forkless_pipeline *pipeline, size_t count, forkless_child *children[], forkless_error *error);
/* Run the pipeline and wait until all programs have ended. statuses receives the status of the first `count` programs; it may be NULL
 * if count is 0. */
int forkless_pipeline_status(forkless_pipeline *pipeline, size_t count, int statuses[], int *status, forkless_error *error);
/* The same, but write input to the first program and capture the standard output of the last program and the standard error of all.
 * The output's status is the pipeline's. Options are those of forkless_command_capture without MEMORY_FILE. The output has no resource
 * usage. */
int forkless_pipeline_capture(forkless_pipeline *pipeline, const forkless_capture *options, size_t count, int statuses[],
                              forkless_output **output, forkless_error *error);

/* ---- Wait sets: waiting for many children -------------------------------------------------------------------------------------
 *
 *     forkless_ended ended;
 *     while (forkless_waitset_wait(set, -1, &ended, NULL) > 0) {
 *         printf("job %d: %d\n", ((struct job *)ended.value)->number, ended.status);
 *         forkless_child_free(ended.child);
 *     }
 *
 * The cost per child does not depend on the number of children in the set. In a forked copy of the process,
 * forkless_waitset_insert and forkless_waitset_wait return -ECHILD.
 */

typedef struct forkless_waitset forkless_waitset;

typedef struct forkless_ended {
    forkless_child *child;  /* belongs to the caller again */
    void *value;            /* the value given to forkless_waitset_insert */
    int status;             /* of waitpid(2) */
    int error;              /* 0, or a negative errno if waiting failed; status is then invalid */
} forkless_ended;

int forkless_waitset_new(forkless_waitset **set);
/* Frees the children in the set too, as forkless_child_free does. */
void forkless_waitset_free(forkless_waitset *set);
/* Add a child. The handle then belongs to the set; the caller must not use it until the set returns it. On failure it still belongs to
 * the caller. key may be NULL. */
int forkless_waitset_insert(forkless_waitset *set, forkless_child *child, void *value, uint64_t *key, forkless_error *error);
/* Remove a child from the set and return its handle. -ENOENT if it is not in the set. */
int forkless_waitset_remove(forkless_waitset *set, uint64_t key, forkless_child **child);
int forkless_waitset_signal(forkless_waitset *set, uint64_t key, int number);
/* Wait for the next child to end. Returns 1, or 0 at the timeout or if the set is empty. */
int forkless_waitset_wait(forkless_waitset *set, int64_t timeout_ms, forkless_ended *ended, forkless_error *error);
int forkless_waitset_count(forkless_waitset *set);
/* A descriptor that is readable when a child has ended; then call forkless_waitset_wait with a timeout of 0 until it returns 0. It
 * belongs to the set. */
int forkless_waitset_fd(forkless_waitset *set);

/* ---- Zygotes: launching from a helper process ---------------------------------------------------------------------------------
 *
 *     static int greet(const void *bytes, size_t size) { return write(1, bytes, size) < 0 ? errno : 0; }
 *     static const forkless_zygote_entry functions[] = {{"greet", greet}};
 *
 *     int main(void) {
 *         forkless_zygote_serve_if_asked(functions, 1);    // before anything else
 *         ...
 *         forkless_zygote_call calls[] = {{"greet", "hello\n", 6}};
 *         if (forkless_zygote_start(NULL, &zygote, &error) == 0)
 *             forkless_zygote_spawn_with(zygote, prepared, calls, 1, &child, &error);
 *
 * A helper process clones the children. They never share the caller's memory, but are the caller's children (CLONE_PARENT). The helper
 * is another instance of the calling program, or a program such as `forkless zygote`. Differences from other launches:
 * docs/design/zygote.md.
 */

typedef struct forkless_zygote forkless_zygote;

/* A function that a child of the zygote calls right before exec, identified by its name (UTF-8, copied). The child is a copy of the
 * helper with memory of its own, so the function may do anything. Data that it uses must exist in the helper before
 * forkless_zygote_serve_if_asked is called. If it returns an errno instead of 0, the launch fails with -ECANCELED,
 * FORKLESS_STEP_FUNCTION and that errno in the message. */
typedef int (*forkless_zygote_function)(const void *bytes, size_t size);
typedef struct forkless_zygote_entry {
    const char *name;
    forkless_zygote_function function;
} forkless_zygote_entry;

/* Serve as a helper if this process was started as one, and never return; otherwise return 0 at once. Call it first in main, before
 * threads are started and files are opened. */
int forkless_zygote_serve_if_asked(const forkless_zygote_entry *entries, size_t count);

enum { FORKLESS_RESTART_ALWAYS = 0, FORKLESS_RESTART_NEVER = 1 };

/* Initialize with FORKLESS_ZYGOTE_INIT. */
typedef struct forkless_zygote_options {
    size_t size;          /* of this struct */
    const char *program;  /* program of the helper; NULL: the calling program, which must call forkless_zygote_serve_if_asked */
    char *const *args;    /* arguments after argv[0], ended by a null pointer; NULL: none */
    int restart;          /* FORKLESS_RESTART_...: when the helper has died, start another one, or fail all launches */
} forkless_zygote_options;

#define FORKLESS_ZYGOTE_INIT { sizeof(forkless_zygote_options), NULL, NULL, FORKLESS_RESTART_ALWAYS }

/* Start the helper and wait until it accepts requests. The first call also starts a thread in the calling process. options may be
 * NULL. -EINVAL if the helper is to be the calling program and that has not called forkless_zygote_serve_if_asked. A forked copy of
 * the process cannot use the handle and gets an error. */
int forkless_zygote_start(const forkless_zygote_options *options, forkless_zygote **zygote, forkless_error *error);
/* Ends the helper, too; its children continue. */
void forkless_zygote_free(forkless_zygote *zygote);

/* As forkless_prepared_spawn, _launch and _status. Errors of the helper have FORKLESS_STEP_ZYGOTE. -ECANCELED: the helper has ended,
 * or its children cannot take on the caller's attributes. */
int forkless_zygote_spawn(const forkless_zygote *zygote, const forkless_prepared *prepared, forkless_child **child,
                          forkless_error *error);
int forkless_zygote_launch(const forkless_zygote *zygote, const forkless_prepared *prepared, forkless_child **child,
                           forkless_error *error);
int forkless_zygote_status(const forkless_zygote *zygote, const forkless_prepared *prepared, int *status, forkless_error *error);
/* Run the program until it has ended and capture both output streams. The output has no resource usage. */
int forkless_zygote_output(const forkless_zygote *zygote, const forkless_prepared *prepared, forkless_output **output,
                           forkless_error *error);

/* A call of a function in the child, with its data. */
typedef struct forkless_zygote_call {
    const char *name;
    const void *bytes;
    size_t size;
} forkless_zygote_call;

/* The same, but right before exec the child makes these calls, in this order. */
int forkless_zygote_spawn_with(const forkless_zygote *zygote, const forkless_prepared *prepared,
                               const forkless_zygote_call *calls, size_t count, forkless_child **child, forkless_error *error);
int forkless_zygote_launch_with(const forkless_zygote *zygote, const forkless_prepared *prepared,
                                const forkless_zygote_call *calls, size_t count, forkless_child **child, forkless_error *error);

/* Later versions may append members. */
typedef struct forkless_zygote_stats {
    uint64_t launches, starts, deaths; /* children cloned; helpers started, including the first; those that replaced a dead one */
} forkless_zygote_stats;

/* The pid of the helper. -ENOENT while there is none. */
pid_t forkless_zygote_pid(const forkless_zygote *zygote);
/* Get the statistics. size: sizeof(forkless_zygote_stats). */
int forkless_zygote_get_stats(const forkless_zygote *zygote, forkless_zygote_stats *stats, size_t size);

/* ---- Warm programs: launches without an exec. Experimental: these functions may change in any release ------------------------
 *
 *     forkless_warm *warm;
 *     if (forkless_warm_open(NULL, &warm, &error) == 0) {
 *         forkless_command_warm(command, warm);
 *         for (int n = 0; n < 3; n++)                          // the first launch is cold, and starts the template beside it
 *             forkless_command_status(command, &status, &error);
 *         forkless_warm_free(warm);
 *     }
 *
 * A template is the program, executed once and stopped before its own code begins. A warm launch clones it. A launch that could differ
 * from a cold one is cold, and forkless_child_cold_reason returns the reason. docs/warm.md has the conditions, and the differences that
 * a program can see. Templates are children of this process: waitpid(-1) sees their end. Each template has a thread of this process.
 * They end when the process ends in any way.
 */

typedef struct forkless_warm forkless_warm;

/* Initialize with FORKLESS_WARM_INIT. Negative times are no limits. */
typedef struct forkless_warm_options {
    size_t size;          /* of this struct */
    const char *library;  /* absolute path of libforkless_warm.so; NULL: searched for, first beside this library */
    size_t templates;     /* the number of templates that are kept; 0: all launches are cold */
    int64_t idle_ms;      /* a template ends after this time without a launch */
    int64_t life_ms;      /* a template ends after this time */
    uint32_t launches;    /* a template is replaced after this number of launches */
} forkless_warm_options;

#define FORKLESS_WARM_INIT { sizeof(forkless_warm_options), NULL, 16, 60000, 600000, 100 }

/* Make a set of templates. options may be NULL: the set that this process shares, with the defaults; it ends with the process. -ENOENT
 * if there is no libforkless_warm.so, -ENOTSUP if this is not x86-64 with glibc. */
int forkless_warm_open(const forkless_warm_options *options, forkless_warm **warm, forkless_error *error);
/* The templates end with the last command, prepared command and handle that has the set. A forked copy of the process ends none. */
void forkless_warm_free(forkless_warm *warm);

/* Launch this command warm, if it can be. All functions that start it, or a prepared command made of it, do so. The command then has
 * the set, so the handle may be freed. */
int forkless_command_warm(forkless_command *command, const forkless_warm *warm);

/* Start the template of a command ahead of its first launch, and wait until it is ready. -ENOTSUP, with the reason in the message, if
 * launches of this command are cold. */
int forkless_warm_start(const forkless_warm *warm, const forkless_prepared *prepared, forkless_error *error);
/* The PIDs of the templates. Writes at most count of them, and returns their number. */
int forkless_warm_templates(const forkless_warm *warm, pid_t *pids, size_t count);

/* Later versions may append members. */
typedef struct forkless_warm_stats {
    uint64_t warm, cold;      /* launches */
    uint64_t starts;          /* templates that were started */
    uint64_t refusals;        /* programs that cannot have a template */
    uint64_t idle, crashes;   /* templates that were ended because they were idle; because a child crashed */
} forkless_warm_stats;

/* Get the statistics. size: sizeof(forkless_warm_stats). */
int forkless_warm_get_stats(const forkless_warm *warm, forkless_warm_stats *stats, size_t size);

/* ---- Cgroups ------------------------------------------------------------------------------------------------------------------
 *
 *     char *limits[] = {"memory.max", "512M", "pids.max", "100", NULL};
 *     forkless_cgroup *group;
 *     if (forkless_cgroup_with_limits("/sys/fs/cgroup/my.slice", limits, &group, &error) == 0) {
 *         forkless_command_cgroup(command, forkless_cgroup_directory(group, NULL));
 *         forkless_command_status(command, &status, &error);
 *         forkless_cgroup_end(group, &error);                // with descendants that still run
 *     }
 *
 * Only version 2, see cgroups(7). A cgroup's limits, statistics, freezing and killing include the cgroups below it. File names and
 * values are UTF-8. Errors name the file.
 */

typedef struct forkless_cgroup forkless_cgroup;

/* The directory of the calling process's cgroup, below which others can be created. -ENOENT if no version 2 hierarchy is visible. */
int forkless_cgroup_own(char *text, size_t size, forkless_error *error);
/* Enable controllers for the cgroups below this directory, through cgroup.subtree_control, so that they can have limits. The list ends
 * in a null pointer. -EBUSY if processes are in this very cgroup, -ENOENT if a controller is not available in it. */
int forkless_cgroup_hand_down(const char *directory, char *const controllers[], forkless_error *error);
/* Create the cgroup `name` below the directory of another. -EEXIST if it exists, -EINVAL if the directory is not a cgroup. */
int forkless_cgroup_create(const char *parent, const char *name, forkless_cgroup **cgroup, forkless_error *error);
/* Create one with an unused name below the directory of another (NULL: below the nearest one that systemd has delegated, else one's own),
 * hand the controllers down, and set limits: pairs of a file and its value, as in cgroups(7), and a null pointer. -ENOENT if the parent has
 * not got a controller to hand down, -EBUSY if it has processes itself. */
int forkless_cgroup_with_limits(const char *parent, char *const limits[], forkless_cgroup **cgroup, forkless_error *error);
/* Free the handle, and remove the cgroup and those below it if they are empty. Does not kill processes or wait for them. */
void forkless_cgroup_free(forkless_cgroup *cgroup);
/* The same, but reports errors: -EBUSY if there is a process in one of them. The handle is freed in any case. */
int forkless_cgroup_remove(forkless_cgroup *cgroup, forkless_error *error);
/* Send SIGKILL to all processes, wait until they have ended, for 10 seconds at most, and remove the cgroup. The handle is freed in any case. */
int forkless_cgroup_end(forkless_cgroup *cgroup, forkless_error *error);
/* The cgroup's directory: its path; a descriptor, for forkless_command_cgroup, which belongs to the handle. */
int forkless_cgroup_path(const forkless_cgroup *cgroup, char *text, size_t size, forkless_error *error);
int forkless_cgroup_directory(const forkless_cgroup *cgroup, forkless_error *error);

/* Limits: memory in bytes, hard (the OOM killer enforces it) and soft (the kernel throttles and reclaims); swap in bytes; number of
 * processes and threads. UINT64_MAX: no limit. -ENOENT if the controller is not enabled in the parent cgroup. */
int forkless_cgroup_memory_max(const forkless_cgroup *cgroup, uint64_t bytes, forkless_error *error);
int forkless_cgroup_memory_high(const forkless_cgroup *cgroup, uint64_t bytes, forkless_error *error);
int forkless_cgroup_memory_swap_max(const forkless_cgroup *cgroup, uint64_t bytes, forkless_error *error);
int forkless_cgroup_pids_max(const forkless_cgroup *cgroup, uint64_t count, forkless_error *error);
/* CPU time, in microseconds per period; weights for CPU and disk, from 1 to 10000. */
int forkless_cgroup_cpu_max(const forkless_cgroup *cgroup, uint64_t quota, uint64_t period, forkless_error *error);
int forkless_cgroup_cpu_weight(const forkless_cgroup *cgroup, uint32_t weight, forkless_error *error);
int forkless_cgroup_io_weight(const forkless_cgroup *cgroup, uint32_t weight, forkless_error *error);
/* Write or read any file of the cgroup, such as io.max. A value is returned without its last newline. */
int forkless_cgroup_set(const forkless_cgroup *cgroup, const char *file, const char *value, forkless_error *error);
int forkless_cgroup_get(const forkless_cgroup *cgroup, const char *file, char *text, size_t size, forkless_error *error);

/* The value of a key in a flat-keyed file such as cpu.stat, memory.events or pids.events. -ENOENT if the key does not exist. */
int forkless_cgroup_counter(const forkless_cgroup *cgroup, const char *file, const char *name, uint64_t *value,
                            forkless_error *error);
/* Usage: peak memory (Linux 5.19); peak number of processes and threads (Linux 6.1); processes killed by the OOM killer; CPU time of
 * all processes, including those that have not been waited for. */
int forkless_cgroup_memory_peak(const forkless_cgroup *cgroup, uint64_t *bytes, forkless_error *error);
int forkless_cgroup_pids_peak(const forkless_cgroup *cgroup, uint64_t *count, forkless_error *error);
int forkless_cgroup_oom_kills(const forkless_cgroup *cgroup, uint64_t *count, forkless_error *error);
int forkless_cgroup_cpu_time(const forkless_cgroup *cgroup, uint64_t *nanoseconds, forkless_error *error);

/* Freeze all processes; thaw them. Freezing is asynchronous: see forkless_cgroup_wait_frozen. */
int forkless_cgroup_freeze(const forkless_cgroup *cgroup, forkless_error *error);
int forkless_cgroup_thaw(const forkless_cgroup *cgroup, forkless_error *error);
/* Wait until all processes are frozen; until the cgroup is empty. Returns 1, or 0 at the timeout. */
int forkless_cgroup_wait_frozen(const forkless_cgroup *cgroup, int64_t timeout_ms, forkless_error *error);
int forkless_cgroup_wait_empty(const forkless_cgroup *cgroup, int64_t timeout_ms, forkless_error *error);
/* Send SIGKILL to all processes. forkless_cgroup_wait_empty waits until they have ended. */
int forkless_cgroup_kill(const forkless_cgroup *cgroup, forkless_error *error);
/* Send a signal to all processes, none of which can escape by forking. */
int forkless_cgroup_signal(const forkless_cgroup *cgroup, int number, forkless_error *error);
/* Send the signal to all processes, SIGKILL to those that remain after grace_ms, and wait until the cgroup is empty. Returns 1 if none
 * had to be killed, else 0. */
int forkless_cgroup_terminate(const forkless_cgroup *cgroup, int number, int64_t grace_ms, forkless_error *error);

/* ---- Sandboxes ----------------------------------------------------------------------------------------------------------------
 *
 *     char *write[] = {"/srv/results", NULL};
 *     forkless_sandbox_options options = FORKLESS_SANDBOX_INIT;
 *     options.write = write;
 *     if (forkless_sandbox_namespaces(&options, &sandbox, &error) == 0 && forkless_command_sandbox(command, sandbox) == 0
 *         && forkless_command_status(command, &status, &error) == 0) ...
 *
 * What a program that is not trusted may do, prepared once for any number of launches by any thread: files, a filter of system calls, no
 * capabilities, few variables of the environment. docs/sandbox.md says what it may do, and what cannot be hidden from it.
 */

/* NETWORK: the caller's network, without Unix sockets. NETWORK_REFUSED: no sockets but pairs, as with Landlock anyway; else, in
 * namespaces, one with a loopback device alone. CHANGE_ATTRIBUTES, for Landlock: it may change modes, owners, extended attributes and times,
 * which then holds for every file of its user. STRICT, in namespaces: -ENOTSUP without Landlock of Linux 6.12, and what it writes to /tmp and
 * /dev/shm cannot be executed. NO_INIT, in namespaces: the program is PID 1 of the sandbox. That is faster, but docs/sandbox.md says what it
 * loses: signals without a handler, and its end with this process. */
enum {
    FORKLESS_SANDBOX_NETWORK = 1,
    FORKLESS_SANDBOX_CHANGE_ATTRIBUTES = 2,
    FORKLESS_SANDBOX_NETWORK_REFUSED = 4,
    FORKLESS_SANDBOX_STRICT = 8,
    FORKLESS_SANDBOX_NO_INIT = 16
};

/* Lists end in a null pointer; NULL: none. read, write: paths that the program may read, or also write to, with all below them. keep_env:
 * names of variables that it inherits beside PATH, HOME, TERM, LANG and the like. project: as write, in
 * namespaces, but what programs outside obey there, such as hooks of git, stays read-only. hide: in namespaces, paths and patterns below
 * these that cannot be opened, such as "*.pem", looked up at each launch, or by forkless_command_prepare: docs/sandbox.md. */
typedef struct forkless_sandbox_options {
    size_t size; /* sizeof(forkless_sandbox_options) */
    int flags;
    char *const *read;
    char *const *write;
    char *const *keep_env;
    char *const *project;
    int64_t linger_ms; /* in namespaces, how long other processes have when the program has ended; negative: 200 */
    char *const *limits; /* of each launch: names of settings and their values, such as {"memory_max", "512M", "tasks_max", "100", NULL} */
    char *const *hide;
} forkless_sandbox_options;
#define FORKLESS_SANDBOX_INIT {sizeof(forkless_sandbox_options), 0, NULL, NULL, NULL, NULL, -1, NULL, NULL}

typedef struct forkless_sandbox forkless_sandbox;

/* Prepare a sandbox of namespaces(7): the program sees nothing else, and has an init, whose PID is that of the handle, but for NO_INIT. The
 * handle alone learns how the program ended; waitpid(2) gets the end of init. Where user namespaces are refused, the launch fails at FORKLESS_STEP_CLONE.
 * -ENOENT if a path does not exist; -EACCES if no program may be in memory (vm.memfd_noexec). */
int forkless_sandbox_namespaces(const forkless_sandbox_options *options, forkless_sandbox **sandbox, forkless_error *error);
/* Prepare a sandbox of landlock(7), which hides nothing and works where user namespaces are refused. -ENOTSUP if the kernel has none, or that of a Linux before 6.2; -ENOENT if a path does not exist. */
int forkless_sandbox_landlock(const forkless_sandbox_options *options, forkless_sandbox **sandbox, forkless_error *error);
/* Whether this machine can give the sandbox to this process, by trying. The error says what is refused. */
int forkless_sandbox_check(const forkless_sandbox *sandbox, forkless_error *error);
void forkless_sandbox_free(forkless_sandbox *sandbox);
/* Launch the program in the sandbox, which may be freed afterwards. The launch fails if a path was replaced since the sandbox was prepared,
 * or with a setting that would weaken it: inherit_all, best_effort, a Landlock ruleset. */
int forkless_command_sandbox(forkless_command *command, const forkless_sandbox *sandbox);

/* ---- Pseudo-terminals ---------------------------------------------------------------------------------------------------------
 *
 *     forkless_pty *pty;
 *     forkless_output *output;
 *     if (forkless_pty_open(NULL, &pty, &error) == 0 && forkless_command_pty(command, pty) == 0
 *         && forkless_command_spawn(command, &child, &error) == 0
 *         && forkless_pty_read_until_exit(pty, child, 0, &output, &error) == 0) ...
 *
 * The handle holds the master side: reading returns the programs' output, and what is written becomes their input. One thread may read
 * while another writes. Freeing the handle hangs up the terminal, see pty(7). struct winsize is in <sys/ioctl.h>.
 */

typedef struct forkless_pty forkless_pty;
struct winsize;

/* Open a new pseudo-terminal. size NULL: 24 rows, 80 columns. */
int forkless_pty_open(const struct winsize *size, forkless_pty **pty, forkless_error *error);
void forkless_pty_free(forkless_pty *pty);
/* Start the child in a new session on this terminal. It becomes the standard streams that the command does not redirect. The command
 * does not keep the handle: it must exist when the child is launched. A terminal serves one session at a time. */
int forkless_command_pty(forkless_command *command, const forkless_pty *pty);

/* The master side, for poll(2). It belongs to the handle. */
int forkless_pty_fd(const forkless_pty *pty);
/* As read(2), but returns 0 instead of EIO when the last program that had the terminal open has closed it. Returns a negative errno on
 * failure. */
ssize_t forkless_pty_read(const forkless_pty *pty, void *buffer, size_t size);
/* As write(2). Blocks while the terminal's input buffer (a few KiB) is full. */
ssize_t forkless_pty_write(const forkless_pty *pty, const void *data, size_t size);
/* Send end of file (Ctrl-D), which ends one read. -EINVAL if a program has put the terminal into raw mode. */
int forkless_pty_send_eof(const forkless_pty *pty);
/* Read until the child has ended, and wait for it. The data is the output's `out`. linger_ms: how long to keep reading while other
 * processes have the terminal open; negative: until they close it. */
int forkless_pty_read_until_exit(const forkless_pty *pty, forkless_child *child, int64_t linger_ms, forkless_output **output,
                                 forkless_error *error);
/* Get the window size; set it, which sends SIGWINCH to the foreground process group. */
int forkless_pty_size(const forkless_pty *pty, struct winsize *size);
int forkless_pty_resize(const forkless_pty *pty, const struct winsize *size);
/* Set raw mode, as cfmakeraw(3) does; turn echo on or off; copy the modes of another terminal. */
int forkless_pty_make_raw(const forkless_pty *pty);
int forkless_pty_echo(const forkless_pty *pty, int on);
int forkless_pty_copy_modes(const forkless_pty *pty, int fd);
/* With `on`, reads and writes that would block fail with -EAGAIN. */
int forkless_pty_set_nonblocking(const forkless_pty *pty, int on);
/* The foreground process group; 0: none. */
pid_t forkless_pty_foreground_group(const forkless_pty *pty);
/* The slave side: its path, /dev/pts/N; a new descriptor of it, which the caller must close. While it is open, reads from the master
 * do not reach end of file. */
int forkless_pty_path(const forkless_pty *pty, char *text, size_t size);
int forkless_pty_follower(const forkless_pty *pty);

/* ---- Simple calls -------------------------------------------------------------------------------------------------------------
 *
 *     char *argv[] = {"ls", "-l", NULL};
 *     pid_t pid = forkless_spawnp("ls", argv, environ);
 *     if (pid > 0) waitpid(pid, &status, 0);
 *
 * The program inherits the signal mask and the ignored signals, SIGPIPE included, as with the libc functions.
 */

/* Start the program at path. Returns its pid, for waitpid(2), once it has been executed, or a negative errno. The program inherits
 * every descriptor that is not close-on-exec. envp NULL: the caller's environment. */
pid_t forkless_spawn(const char *path, char *const argv[], char *const envp[]);
/* The same, but search for the file in the PATH of envp (default: /bin:/usr/bin). */
pid_t forkless_spawnp(const char *file, char *const argv[], char *const envp[]);
/* Whether programs of these two functions inherit the descriptor: clears or sets its close-on-exec flag. */
int forkless_fd_inherit(int fd, int on);

enum { FORKLESS_STDERR_INHERIT = 0, FORKLESS_STDERR_NULL = 1, FORKLESS_STDERR_MERGE = 2 };

/* popen(3), mode "r" or "w". A command line that is one simple command is executed without a shell, if the result is the same. The
 * program inherits the standard streams and no other descriptor. The stream is close-on-exec. */
FILE *forkless_popen(const char *command, const char *mode);
/* The same without a shell: if the program cannot be executed, the call fails with NULL and errno. flags: FORKLESS_STDERR_...; MERGE
 * is 2>&1. */
FILE *forkless_popenv(char *const argv[], const char *mode, int flags);
/* Start a program with a stream to its standard input and one from its standard output. fclose(3) to_child to send end of file; close
 * from_child with forkless_pclose. Returns 0 or a negative errno. */
int forkless_popen2(char *const argv[], int flags, FILE **to_child, FILE **from_child);
/* pclose(3): close the stream and wait. Returns the status, as of waitpid(2). -1 and EINVAL for a stream that this library has not
 * opened, which stays open; -1 and ECHILD if the child was reaped by other code. */
int forkless_pclose(FILE *stream);
/* system(3). SIGINT and SIGQUIT are ignored and SIGCHLD is blocked until the command has ended; several threads may do this at the
 * same time. The shell (or the program, if no shell is needed) inherits the standard streams and no other descriptor. */
int forkless_system(const char *command);

#ifdef __cplusplus
}
#endif

#endif

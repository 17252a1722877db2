/*
 * forkless: start a process from any process, however big, at the speed of exec. Linux, C99 or C++.
 *
 *     cc prog.c $(pkg-config --cflags --libs forkless)
 *
 * WHAT FUNCTIONS ANSWER
 *   Functions that return int, pid_t or ssize_t: 0 or a number that is wanted; on failure a negative errno, such as -ENOENT. errno itself
 *   is not touched, so it need not be saved around calls, and no function is mistaken for another whose errno was left over.
 *   The few that stand in for libc's (forkless_popen, forkless_popenv, forkless_pclose, forkless_system) answer as those do.
 *   Null pointers where none is allowed, numbers that mean nothing and the like are -EINVAL, never a crash. What is done with
 *   pointers to memory that is not there is undefined, as everywhere in C.
 *
 * RESULTS come last, before the error, and are written only on success. The names of the parameters say what they are.
 *
 * ERRORS  Functions that start or wait for something, and those of control groups, take a forkless_error, a struct of yours (NULL: you
 *   do not want to know), which is written only on failure: the step of the launch that failed, the errno, and a sentence for people.
 *
 * HANDLES are made by a function that gives you one and end with the _free function of their type, which takes NULL. A command, a
 *   child, a pipeline or a wait set serves one thread at a time; a second one is told -EBUSY. The others serve any number.
 *   Handles of different things are independent, and the library has no global state that you could meet.
 *
 * DESCRIPTORS you pass stay yours. Where the library keeps one it keeps a copy; only those of forkless_command_fd must be open when
 *   the command is run. Descriptors that the library makes are close-on-exec.
 *
 * TEXTS are bytes without encoding, unless said otherwise, and are copied. Functions that give a text do so as snprintf(3): at most
 *   `size` bytes with a NUL at the end, and the answer is the length of the whole (text may be NULL if size is 0).
 *
 * THREADS  No function is a cancellation point. None calls back, installs a signal handler or makes a thread, unless said.
 *   A forked copy of your process may use the library; children of the original are not its own.
 *
 * IN THE CHILD runs no code of yours (but for forkless_command_pre_exec): between clone and exec it shares your memory and plays a
 *   list of system calls, in a fixed order whatever the order of your calls. pthread_atfork(3) handlers do not run.
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
    int step;                             /* the step that failed, FORKLESS_STEP_...; 0: none in particular */
    int errnum;                           /* the errno, positive; the function has returned its negative */
    char message[FORKLESS_MESSAGE_SIZE];  /* UTF-8; what is too long is cut */
} forkless_error;

/* The steps. Their numbers never mean another step. Where a request makes no sense it is FORKLESS_STEP_CHECK, with EINVAL. A child
 * that was killed before it could run the program is ECANCELED; a fault of the library itself ENOTRECOVERABLE. */
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
    FORKLESS_STEP_ZYGOTE = 110
};
/* steps: end */

/* The step in words, such as "set the limit". -ENOENT if there is none of that number. */
int forkless_step_words(int step, char *text, size_t size);

/* ---- Commands: what is to be run ----------------------------------------------------------------------------------------------
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
 * Unless told otherwise the program gets your environment, directory and standard streams; of your other descriptors none, be they
 * close-on-exec or not; SIGPIPE at its default and the calling thread's signal mask.
 *
 * Functions that set something only note it, so most mistakes are told when the command is run. `on`: 0 for no.
 */

typedef struct forkless_command forkless_command;

/* A program: a path if it has a slash in it, else searched for in PATH, the child's if the command changes it. */
int forkless_command_new(const char *program, forkless_command **command);
/* The same with arguments: argv[0] is the program, and a null pointer ends the list. */
int forkless_command_new_argv(char *const argv[], forkless_command **command);
void forkless_command_free(forkless_command *command);

/* Another program to try where the ones before are not there. */
int forkless_command_or_else(forkless_command *command, const char *program);
/* The program by a descriptor, execveat(2); its name is then only what it is called. */
int forkless_command_program_fd(forkless_command *command, int fd);
/* Adds an argument, or those of a list that ends in a null pointer. No shell looks at them. */
int forkless_command_arg(forkless_command *command, const char *arg);
int forkless_command_args(forkless_command *command, char *const args[]);
/* What the program sees as argv[0]. */
int forkless_command_arg0(forkless_command *command, const char *arg0);

/* The environment: sets a variable, removes one, removes all. */
int forkless_command_env(forkless_command *command, const char *name, const char *value);
int forkless_command_env_remove(forkless_command *command, const char *name);
int forkless_command_env_clear(forkless_command *command);
/* All of it: what getenv(3) would find in this list of NAME=value, so the first of each name; what has no = is left out. */
int forkless_command_envs(forkless_command *command, char *const envp[]);

/* The directory, chdir(2) or fchdir(2), from which a relative path of the program counts too. */
int forkless_command_current_dir(forkless_command *command, const char *path);
int forkless_command_current_dir_fd(forkless_command *command, int fd);

/* ---- Descriptors: what the program finds at child_fd --------------------------------------------------------------------------
 *
 *     forkless_command_fd(command, 5, sockets[1]);         // any of yours at any number, swaps and cycles too
 *     forkless_command_fd_open(command, 1, "log", O_WRONLY | O_CREAT | O_APPEND, 0666);
 *     forkless_command_fd_dup(command, 2, 1);              // 2>&1
 */

/* Your descriptor fd, which must be open when the command is run. */
int forkless_command_fd(forkless_command *command, int child_fd, int fd);
/* Yours of the same number, as it is then. */
int forkless_command_fd_inherit(forkless_command *command, int child_fd);
/* /dev/null. */
int forkless_command_fd_null(forkless_command *command, int child_fd);
/* A pipe, at 0, 1 or 2; its other end is forkless_child_fd's. */
int forkless_command_fd_pipe(forkless_command *command, int child_fd);
/* One of two connected stream sockets; the other is forkless_child_take_fd's. */
int forkless_command_fd_socketpair(forkless_command *command, int child_fd);
/* The same as the child's own of_child_fd, when all others are in place. */
int forkless_command_fd_dup(forkless_command *command, int child_fd, int of_child_fd);
/* A file, opened in the child: open(2), from its directory. Nothing in procfs, where the child would be its caller: EOPNOTSUPP. */
int forkless_command_fd_open(forkless_command *command, int child_fd, const char *path, int flags, mode_t mode);
/* POSIX's rule: every descriptor that is not close-on-exec. Costs a copy of the descriptor table. */
int forkless_command_inherit_all(forkless_command *command, int on);

/* ---- Session, signals, the handle ------------------------------------------------------------------------------------------ */

/* A session of its own, setsid(2). */
int forkless_command_setsid(forkless_command *command, int on);
/* A process group; 0: a new one. setpgid(2). */
int forkless_command_process_group(forkless_command *command, pid_t group);
/* The program starts with the signal at its default, ignored, or as it is with you. */
int forkless_command_signal_default(forkless_command *command, int number);
int forkless_command_signal_ignore(forkless_command *command, int number);
int forkless_command_signal_inherit(forkless_command *command, int number);
/* It starts with the signal blocked, too; with the calling thread's mask (the default), or with nothing else blocked. */
int forkless_command_signal_block(forkless_command *command, int number);
int forkless_command_inherit_signal_mask(forkless_command *command, int on);
/* Should the handle hold a pidfd? Unless told otherwise spawn and launch have one, status has none. */
int forkless_command_pidfd(forkless_command *command, int on);
/* Should forkless_child_free kill the child? */
int forkless_command_kill_on_free(forkless_command *command, int on);
/* Linux 7.1, else -EINVAL at the launch. The kernel reaps the child: no zombie, no SIGCHLD at its end, no status for another's waitpid(-1);
 * its status comes by the pidfd alone, and there is no usage. Not with FORK, POSIX_SPAWN, a zygote, pidfd(0) or seccomp. */
int forkless_command_autoreap(forkless_command *command, int on);
/* The same, and the kernel kills the child when the last descriptor of its pidfd is closed: by forkless_child_free, or because your process
 * has ended, however. Needs forkless_command_no_new_privs or CAP_SYS_ADMIN. */
int forkless_command_pidfd_autokill(forkless_command *command, int on);
/* How long to try again while the program is open for writing (ETXTBSY); 100 ms unless told otherwise. */
int forkless_command_retry_busy(forkless_command *command, uint32_t limit_ms);
/* Is a file without #! that is no program (ENOEXEC) run by /bin/sh, as execvp(3) does? Unless told otherwise it is an error. */
int forkless_command_scripts_by_shell(forkless_command *command, int on);
/* Goes on if this step fails: see forkless_child_missed. */
int forkless_command_best_effort(forkless_command *command, int step);
/* How the child is made; CLONE unless told otherwise. FORK copies your memory; POSIX_SPAWN cannot do everything, and says so. The other
 * is not a command's to choose: see forkless_child_launcher. */
enum {
    FORKLESS_LAUNCHER_CLONE = 0,
    FORKLESS_LAUNCHER_FORK = 1,
    FORKLESS_LAUNCHER_POSIX_SPAWN = 2,
    FORKLESS_LAUNCHER_ZYGOTE = 4
};
int forkless_command_launcher(forkless_command *command, int launcher);
/* With FORK: calls the function in the child just before exec; what it returns, if not 0, is the errno of a failed launch. As after every
 * fork of a process with threads, it may use only what is async-signal-safe. */
typedef int (*forkless_function)(void *value);
int forkless_command_pre_exec(forkless_command *command, forkless_function function, void *value);

/* ---- Ids, limits, scheduling ---------------------------------------------------------------------------------------------------
 *
 *     forkless_command_user(command, "www-data");                       // with its groups
 *     forkless_command_rlimit(command, RLIMIT_NOFILE, 64, 64);
 */

/* setresuid(2), setresgid(2), setgroups(2). If you are root and say nothing about groups, a child with a uid has none; any
 * other caller's are kept, and so are root's with a gid alone. */
int forkless_command_uid(forkless_command *command, uid_t uid);
int forkless_command_gid(forkless_command *command, gid_t gid);
int forkless_command_groups(forkless_command *command, const gid_t *groups, size_t count);
/* By name, looked up when the command is run; a user brings its groups. */
int forkless_command_user(forkless_command *command, const char *name);
int forkless_command_group(forkless_command *command, const char *name);
/* A limit, RLIMIT_...: prlimit(2). UINT64_MAX: none. */
int forkless_command_rlimit(forkless_command *command, int resource, uint64_t soft, uint64_t hard);
/* SCHED_OTHER, SCHED_FIFO...: sched_setscheduler(2). */
int forkless_command_scheduler(forkless_command *command, int policy, int priority);
/* The processors that it may run on, from 0. */
int forkless_command_cpu_affinity(forkless_command *command, const int *processors, size_t count);
/* Class 1 to 3 (real-time, best effort, idle) and level 0 to 7: ioprio_set(2). */
int forkless_command_io_priority(forkless_command *command, int io_class, int level);

/* ---- Namespaces, mounts, privileges ---------------------------------------------------------------------------------------------
 *
 *     forkless_command_unshare(command, CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID);
 *     forkless_command_tmpfs(command, "/tmp", "size=10m");
 *     forkless_command_proc(command, "/proc");
 *
 * Mounts are made in the order of the calls.
 */

/* New namespaces, CLONE_NEW...; one to join, by a descriptor of it. */
int forkless_command_unshare(forkless_command *command, uint64_t namespaces);
int forkless_command_join(forkless_command *command, uint64_t name_space, int fd);
/* In the new user namespace, `count` ids from `inside` on are yours from `outside` on. */
int forkless_command_map_uid(forkless_command *command, uint32_t inside, uint32_t outside, uint32_t count);
int forkless_command_map_gid(forkless_command *command, uint32_t inside, uint32_t outside, uint32_t count);
/* mount(2): source, kind and data may be NULL. kind is UTF-8, as options below. */
int forkless_command_mount(forkless_command *command, const char *source, const char *target, const char *kind,
                           unsigned long flags, const char *data);
/* source is seen at target too; the same, read-only, by open_tree(2) and mount_setattr(2) (Linux 5.12). A target below the
 * new root or another mount is looked up inside it by openat2(2) (Linux 5.6): see docs/settings.md, "Paths of mounts". */
int forkless_command_bind(forkless_command *command, const char *source, const char *target);
int forkless_command_bind_read_only(forkless_command *command, const char *source, const char *target);
/* What is mounted at target and below becomes read-only; gets and loses MOUNT_ATTR_...: mount_setattr(2). */
int forkless_command_read_only(forkless_command *command, const char *target);
int forkless_command_mount_attributes(forkless_command *command, const char *target, uint64_t set, uint64_t clear);
/* fsopen(2), fsconfig(2), fsmount(2): parameters are "name=value" or "flag", and a null pointer ends the list. */
int forkless_command_file_system(forkless_command *command, const char *kind, char *const parameters[],
                                 uint64_t attributes, const char *target);
/* A mount of yours that is attached nowhere: move_mount(2). */
int forkless_command_attach_mount(forkless_command *command, int fd, const char *target);
/* The directories lower, topmost first, below upper with its work directory (both NULL: nothing can be changed). */
int forkless_command_overlay(forkless_command *command, char *const lower[], const char *upper, const char *work,
                             const char *target);
int forkless_command_unmount(forkless_command *command, const char *target);
int forkless_command_make_dir(forkless_command *command, const char *path, mode_t mode);
int forkless_command_make_symlink(forkless_command *command, const char *to, const char *path);
/* A small /dev, a file system in memory, the processes of the child's namespace, at target. */
int forkless_command_devices(forkless_command *command, const char *target);
int forkless_command_tmpfs(forkless_command *command, const char *target, const char *options);
int forkless_command_proc(forkless_command *command, const char *target);
/* A filter of <linux/filter.h>: seccomp(2). Needs no_new_privs or privileges. */
struct sock_filter;
int forkless_command_seccomp(forkless_command *command, const struct sock_filter *filter, size_t count);

/* A system call that this library does not know, in the child, which shares your memory: it must not write to that. Its result goes to
 * a variable (0 to 14; -1: nowhere) for later calls, or, if it is a descriptor, back to you (forkless_child_take_handed_back). */
enum { FORKLESS_CALL_NUMBER = 0, FORKLESS_CALL_BYTES = 1, FORKLESS_CALL_VARIABLE = 2 };
typedef struct forkless_call_arg {
    int kind;           /* FORKLESS_CALL_... */
    uint64_t number;    /* the number itself; how many bytes; the variable */
    const void *bytes;  /* copied, with a NUL behind them */
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
/* Set how readily the OOM killer kills it, from -1000 (never) to 1000. */
int forkless_command_oom_score_adj(forkless_command *command, int score);
/* Set the NUMA memory policy: local, preferred:NODE, membind:NODES or interleave:NODES (0-3,5 or all). */
int forkless_command_memory_policy(forkless_command *command, const char *policy);
/* Deny memory that is writable and executable: PR_SET_MDWE; needs the launcher fork. */
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
/* Restrict the child by a Landlock ruleset: landlock(7). */
int forkless_command_landlock(forkless_command *command, int fd);
/* settings: end */

/* ---- Running ------------------------------------------------------------------------------------------------------------------- */

typedef struct forkless_child forkless_child;
typedef struct forkless_prepared forkless_prepared;

/* Starts the program and returns when it has been executed, or with the error that kept it from being so. */
int forkless_command_spawn(forkless_command *command, forkless_child **child, forkless_error *error);
/* Returns as soon as the child exists: forkless_child_wait_exec and _wait report whether the program could be executed. Under a
 * debugger, and for a child that enters another cgroup or changes its ids, it waits for the exec. */
int forkless_command_launch(forkless_command *command, forkless_child **child, forkless_error *error);
/* Runs the program to its end; the status is as waitpid(2) gives it. */
int forkless_command_status(forkless_command *command, int *status, forkless_error *error);

/* Does the work that all runs share, once: runs allocate nothing, and may go on in several threads at once. The environment is that of
 * now. */
int forkless_command_prepare(forkless_command *command, forkless_prepared **prepared, forkless_error *error);
int forkless_prepared_spawn(forkless_prepared *prepared, forkless_child **child, forkless_error *error);
int forkless_prepared_launch(forkless_prepared *prepared, forkless_child **child, forkless_error *error);
int forkless_prepared_status(forkless_prepared *prepared, int *status, forkless_error *error);
/* What the child is going to do, a step a line. */
int forkless_prepared_steps(const forkless_prepared *prepared, char *text, size_t size);
void forkless_prepared_free(forkless_prepared *prepared);
/* Launches many, on several processors. For each a handle, or NULL and its negative errno. Returns how many were launched. */
int forkless_launch_all(forkless_prepared *const prepared[], size_t count, forkless_child *children[], int errors[]);

/* ---- Output --------------------------------------------------------------------------------------------------------------------
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
    uint64_t wall_ns, user_ns, system_ns; /* nanoseconds; wall: from the launch until the end was noticed */
    uint64_t max_rss_kib;                 /* until the exec it is yours too */
    uint64_t minor_faults, major_faults;
    uint64_t blocks_in, blocks_out; /* of 512 bytes */
    uint64_t voluntary_switches, involuntary_switches;
} forkless_usage;

enum { FORKLESS_OUTPUT_TIMED_OUT = 1, FORKLESS_OUTPUT_HELD_OPEN = 2 };

/* The library's; later versions may have more at its end. */
typedef struct forkless_output {
    int status;          /* as of waitpid(2) */
    int flags;           /* TIMED_OUT: its time was up; HELD_OPEN: something else had its streams open */
    const char *out;     /* standard output, with a NUL behind it (but for MEMORY_FILE) */
    size_t out_size;     /* without that */
    const char *err;     /* standard error */
    size_t err_size;
    uint64_t out_cut;    /* bytes that came after the limit and were dropped */
    uint64_t err_cut;
    size_t input_left;   /* bytes of the input that it did not take */
    forkless_usage usage;
} forkless_output;

enum { FORKLESS_CAPTURE_MERGED = 1, FORKLESS_CAPTURE_KILL_AT_LIMIT = 2, FORKLESS_CAPTURE_MEMORY_FILE = 4 };

/* Begin with FORKLESS_CAPTURE_INIT: no input, no limits. Times are in milliseconds, and a negative one is none. */
typedef struct forkless_capture {
    size_t size;         /* of this struct */
    int flags;           /* MERGED: standard error goes where standard output does; KILL_AT_LIMIT; MEMORY_FILE: memfd_create(2) */
    int signal;          /* when the time is up: this signal, and grace_ms later SIGKILL; 0: SIGKILL at once */
    const void *input;   /* what it reads; NULL: nothing */
    size_t input_size;
    size_t limit;        /* bytes kept of each stream; 0: all */
    int64_t timeout_ms;
    int64_t grace_ms;
    int64_t linger_ms;   /* how long to read on when it has ended and its streams have not; negative: until they end */
} forkless_capture;

#define FORKLESS_CAPTURE_INIT { sizeof(forkless_capture), 0, 0, NULL, 0, 0, -1, 0, -1 }

/* Runs the program to its end, feeding it and reading both streams at once. Options may be NULL. Streams of which the command says
 * something are as it says. */
int forkless_command_capture(forkless_command *command, const forkless_capture *options, forkless_output **output,
                             forkless_error *error);
int forkless_prepared_capture(forkless_prepared *prepared, const forkless_capture *options, forkless_output **output,
                              forkless_error *error);
void forkless_output_free(forkless_output *output);

/* ---- Children ------------------------------------------------------------------------------------------------------------------
 *
 *     forkless_child *child;
 *     int status;
 *     if (forkless_command_spawn(command, &child, NULL) == 0) {
 *         if (forkless_child_wait_timeout(child, 5000, &status, NULL) == 0)    // not ended by then
 *             forkless_child_terminate(child, SIGTERM, 1000, &status, NULL);
 *         forkless_child_free(child);
 *     }
 *
 * Freeing the handle neither kills the child nor leaves a zombie: a later launch, or forkless_reap_orphans, reaps it. To signal a child
 * for which another thread waits, use its pidfd with pidfd_send_signal(2).
 */

void forkless_child_free(forkless_child *child);
/* Frees the handle and leaves the child to you: its pid, for waitpid(2), when it has executed the program, or why it has not.
 * -EINVAL for an autoreaped one. */
pid_t forkless_child_release(forkless_child *child);
pid_t forkless_child_pid(forkless_child *child);
/* The pidfd, readable when the child has ended. The handle's; -ENOENT if it has none. */
int forkless_child_pidfd(forkless_child *child);
/* Your end of the pipe at the child's 0, 1 or 2, which stays the handle's. -ENOENT if there is none. */
int forkless_child_fd(forkless_child *child, int child_fd);
/* The same, or the other socket of a pair: it becomes yours, to be closed. */
int forkless_child_take_fd(forkless_child *child, int child_fd);
/* The next descriptor that the child has handed back: yours. -ENOENT if there is no further one. */
int forkless_child_take_handed_back(forkless_child *child);
/* How it was launched, in words; who made it, FORKLESS_LAUNCHER_.... */
int forkless_child_route(forkless_child *child, char *text, size_t size);
int forkless_child_launcher(forkless_child *child);
/* What it has used, when it has been waited for: else, and of an autoreaped one, -ENODATA. */
int forkless_child_usage(forkless_child *child, forkless_usage *usage);
/* The best-effort step that failed, of this index: 1, or 0 if there are no more. */
int forkless_child_missed(forkless_child *child, size_t index, forkless_error *missed);
int forkless_child_kill_on_free(forkless_child *child, int on);

/* Waits until the program has been executed: 1; 0 if the time is up. timeout_ms, here and below: negative for no limit. */
int forkless_child_wait_exec(forkless_child *child, int64_t timeout_ms, forkless_error *error);
/* Waits for its end, after closing its standard input. -ECHILD if another part of your program has reaped it. */
int forkless_child_wait(forkless_child *child, int *status, forkless_error *error);
/* 1 if it has ended, with the status; 0 if it has not, or not by then. */
int forkless_child_try_wait(forkless_child *child, int *status, forkless_error *error);
int forkless_child_wait_timeout(forkless_child *child, int64_t timeout_ms, int *status, forkless_error *error);
/* The same, also when it is stopped or goes on: WIFSTOPPED, WIFCONTINUED. */
int forkless_child_wait_change(forkless_child *child, int64_t timeout_ms, int *status, forkless_error *error);
/* SIGKILL; any signal; any to its process group, which it must lead. Nobody there is no error. */
int forkless_child_kill(forkless_child *child);
int forkless_child_signal(forkless_child *child, int number);
int forkless_child_signal_group(forkless_child *child, int number);
/* The signal, and SIGKILL if it (or one of its group) is there after the grace; waits for its end. */
int forkless_child_terminate(forkless_child *child, int number, int64_t grace_ms, int *status, forkless_error *error);
int forkless_child_terminate_group(forkless_child *child, int number, int64_t grace_ms, int *status, forkless_error *error);
/* Reads its pipes to their ends, and waits. */
int forkless_child_output(forkless_child *child, forkless_output **output, forkless_error *error);
/* Reaps children whose handles were freed before they ended; how many still run. */
size_t forkless_reap_orphans(void);
/* PR_SET_DUMPABLE of prctl(2), of 0 or 1. While a child that changes its ids shares your memory that is not dumpable, and what you ask
 * for by prctl(2) yourself is lost when that child has executed its program; what you ask for here is not: 0 holds at once, 1 when no
 * such child is left. */
int forkless_set_dumpable(int dumpable);

/* ---- Pipelines: programs in a row ------------------------------------------------------------------------------------------------
 *
 *     forkless_pipeline *pipeline;
 *     int statuses[2], status;
 *     forkless_pipeline_new(&pipeline);
 *     forkless_pipeline_command(pipeline, sort, NULL);
 *     forkless_pipeline_command(pipeline, uniq, NULL);
 *     forkless_pipeline_status(pipeline, 2, statuses, &status, &error);    // sort | uniq
 *     forkless_pipeline_free(pipeline);
 *
 * The standard output of each is the standard input of the next. Where a command says what its standard input or output is, that
 * holds, and the pipe ends there. It can be run any number of times.
 */

typedef struct forkless_pipeline forkless_pipeline;

int forkless_pipeline_new(forkless_pipeline **pipeline);
void forkless_pipeline_free(forkless_pipeline *pipeline);
/* Adds a program at the end, as the command is now: that stays yours, and can be changed and freed. */
int forkless_pipeline_command(forkless_pipeline *pipeline, forkless_command *command, forkless_error *error);
/* The same of one that has been prepared, which can be freed too. */
int forkless_pipeline_prepared(forkless_pipeline *pipeline, const forkless_prepared *prepared);
/* Is its status that of the last program that failed, as with a shell's `set -o pipefail`? Else it is the last program's. */
int forkless_pipeline_pipefail(forkless_pipeline *pipeline, int on);
/* How many programs it has. */
int forkless_pipeline_count(forkless_pipeline *pipeline);
/* Starts all programs; the answer is how many. A handle for each, in their order: yours. `count`: how many there is room for, no
 * fewer than there are programs. If one cannot be started, those that could are killed and reaped. */
int forkless_pipeline_spawn(forkless_pipeline *pipeline, size_t count, forkless_child *children[], forkless_error *error);
/* Runs it to its end. statuses: those of the first `count` programs; NULL if that is 0. */
int forkless_pipeline_status(forkless_pipeline *pipeline, size_t count, int statuses[], int *status, forkless_error *error);
/* The same, feeding the first program and keeping what the last one writes and everybody's standard error, with the pipeline's status.
 * Options as for forkless_command_capture, but for MEMORY_FILE. No usage is told. */
int forkless_pipeline_capture(forkless_pipeline *pipeline, const forkless_capture *options, size_t count, int statuses[],
                              forkless_output **output, forkless_error *error);

/* ---- Wait sets: the next of many to end ----------------------------------------------------------------------------------------
 *
 *     forkless_ended ended;
 *     while (forkless_waitset_wait(set, -1, &ended, NULL) > 0) {
 *         printf("job %d: %d\n", ((struct job *)ended.value)->number, ended.status);
 *         forkless_child_free(ended.child);
 *     }
 *
 * One end costs the same whether ten children are waited for or ten thousand.
 */

typedef struct forkless_waitset forkless_waitset;

typedef struct forkless_ended {
    forkless_child *child;  /* yours again */
    void *value;            /* what it was inserted with */
    int status;             /* as of waitpid(2) */
    int error;              /* 0, or the negative errno of waiting; then there is no status */
} forkless_ended;

int forkless_waitset_new(forkless_waitset **set);
/* Frees the children too, as forkless_child_free does. */
void forkless_waitset_free(forkless_waitset *set);
/* The handle becomes the set's: do not use it any more. On failure it stays yours. key may be NULL. */
int forkless_waitset_insert(forkless_waitset *set, forkless_child *child, void *value, uint64_t *key, forkless_error *error);
/* Takes a child out again. -ENOENT if it is not there. */
int forkless_waitset_remove(forkless_waitset *set, uint64_t key, forkless_child **child);
int forkless_waitset_signal(forkless_waitset *set, uint64_t key, int number);
/* 1 and the next child to have ended; 0 if the time is up or there is no child. */
int forkless_waitset_wait(forkless_waitset *set, int64_t timeout_ms, forkless_ended *ended, forkless_error *error);
int forkless_waitset_count(forkless_waitset *set);
/* Readable when a child has ended; call forkless_waitset_wait with a time of 0 until it gives none. The set's. */
int forkless_waitset_fd(forkless_waitset *set);

/* ---- Zygotes: children that a helper clones --------------------------------------------------------------------------------------
 *
 *     static int greet(const void *bytes, size_t size) { return write(1, bytes, size) < 0 ? errno : 0; }
 *     static const forkless_zygote_entry functions[] = {{"greet", greet}};
 *
 *     int main(void) {
 *         forkless_zygote_serve_if_asked(functions, 1);    // first of all
 *         ...
 *         forkless_zygote_call calls[] = {{"greet", "hello\n", 6}};
 *         if (forkless_zygote_start(NULL, &zygote, &error) == 0)
 *             forkless_zygote_spawn_with(zygote, prepared, calls, 1, &child, &error);
 *
 * They never share your memory, and are your children all the same. The helper is a process: your program, executed once more, or
 * another one that serves, such as `forkless zygote`. What differs from other launches: docs/design/zygote.md.
 */

typedef struct forkless_zygote forkless_zygote;

/* What children may call by its name (UTF-8, copied) right before exec. They are copies of the helper, with memory of their own, so the
 * function may do anything; what it uses must be there when forkless_zygote_serve_if_asked is called. If it returns an errno and not 0
 * the launch fails: -ECANCELED, FORKLESS_STEP_FUNCTION, with that errno's words in the message. */
typedef int (*forkless_zygote_function)(const void *bytes, size_t size);
typedef struct forkless_zygote_entry {
    const char *name;
    forkless_zygote_function function;
} forkless_zygote_entry;

/* Never returns if this process was started to be a helper; else 0, at once. To be called first in main, before threads are started and
 * files opened. */
int forkless_zygote_serve_if_asked(const forkless_zygote_entry *entries, size_t count);

enum { FORKLESS_RESTART_ALWAYS = 0, FORKLESS_RESTART_NEVER = 1 };

/* Begin with FORKLESS_ZYGOTE_INIT. */
typedef struct forkless_zygote_options {
    size_t size;          /* of this struct */
    const char *program;  /* the helper's; NULL: your own, which has called forkless_zygote_serve_if_asked */
    char *const *args;    /* its further arguments, up to a null pointer; NULL: none */
    int restart;          /* when the helper has been killed: another one, or an error for all launches; FORKLESS_RESTART_... */
} forkless_zygote_options;

#define FORKLESS_ZYGOTE_INIT { sizeof(forkless_zygote_options), NULL, NULL, FORKLESS_RESTART_ALWAYS }

/* Starts the helper (and, once, a thread of the library's) and waits until it serves. Options may be NULL. -EINVAL if this program is to
 * be the helper and has not asked. A forked copy of your process cannot use the handle, and is told so. */
int forkless_zygote_start(const forkless_zygote_options *options, forkless_zygote **zygote, forkless_error *error);
/* Ends the helper too; children go on. */
void forkless_zygote_free(forkless_zygote *zygote);

/* As forkless_prepared_spawn, _launch and _status. Errors of the helper are FORKLESS_STEP_ZYGOTE: -ECANCELED where it has ended, or its
 * children cannot be what you are. */
int forkless_zygote_spawn(const forkless_zygote *zygote, const forkless_prepared *prepared, forkless_child **child,
                          forkless_error *error);
int forkless_zygote_launch(const forkless_zygote *zygote, const forkless_prepared *prepared, forkless_child **child,
                           forkless_error *error);
int forkless_zygote_status(const forkless_zygote *zygote, const forkless_prepared *prepared, int *status, forkless_error *error);
/* Runs the program to its end with both streams read. No usage is told. */
int forkless_zygote_output(const forkless_zygote *zygote, const forkless_prepared *prepared, forkless_output **output,
                           forkless_error *error);

/* A function of the helper's, and what it gets. */
typedef struct forkless_zygote_call {
    const char *name;
    const void *bytes;
    size_t size;
} forkless_zygote_call;

/* The same; right before exec the child makes these calls, in this order. */
int forkless_zygote_spawn_with(const forkless_zygote *zygote, const forkless_prepared *prepared,
                               const forkless_zygote_call *calls, size_t count, forkless_child **child, forkless_error *error);
int forkless_zygote_launch_with(const forkless_zygote *zygote, const forkless_prepared *prepared,
                                const forkless_zygote_call *calls, size_t count, forkless_child **child, forkless_error *error);

/* Later versions may have more at its end. */
typedef struct forkless_zygote_stats {
    uint64_t launches, starts, deaths; /* children made; helpers started, the first one too; how many of these because one had ended */
} forkless_zygote_stats;

/* The helper. -ENOENT while there is none. */
pid_t forkless_zygote_pid(const forkless_zygote *zygote);
/* size: of your struct. */
int forkless_zygote_get_stats(const forkless_zygote *zygote, forkless_zygote_stats *stats, size_t size);

/* ---- Control groups ------------------------------------------------------------------------------------------------------------
 *
 *     char *controllers[] = {"memory", "pids", NULL};
 *     forkless_cgroup *group;
 *     forkless_cgroup_hand_down("/sys/fs/cgroup/my.slice", controllers, &error);
 *     if (forkless_cgroup_create("/sys/fs/cgroup/my.slice", "build-7", &group, &error) == 0) {
 *         forkless_cgroup_memory_max(group, 512 << 20, &error);
 *         forkless_command_cgroup(command, forkless_cgroup_directory(group, NULL));
 *         forkless_command_status(command, &status, &error);
 *         forkless_cgroup_kill(group, NULL);                // whatever it has left behind
 *         forkless_cgroup_free(group);
 *     }
 *
 * Of version 2, cgroups(7). Groups that programs make below one are limited, counted, frozen and killed with it. File names and
 * their values are UTF-8, and errors name the file.
 */

typedef struct forkless_cgroup forkless_cgroup;

/* The directory of the group that you are in, to make others in. -ENOENT where no group of version 2 is to be seen. */
int forkless_cgroup_own(char *text, size_t size, forkless_error *error);
/* Has the group of this directory hand controllers down to those made in it, which can then have limits: cgroup.subtree_control. The
 * list ends in a null pointer. -EBUSY where processes are in that very group, -ENOENT where it has not got a controller. */
int forkless_cgroup_hand_down(const char *directory, char *const controllers[], forkless_error *error);
/* Makes the group `name` in the directory of another. -EEXIST if it is there already, -EINVAL where that is no group. */
int forkless_cgroup_create(const char *parent, const char *name, forkless_cgroup **cgroup, forkless_error *error);
/* Removes the group too, and those below, if nobody is in them; neither kills nor waits for who is. */
void forkless_cgroup_free(forkless_cgroup *cgroup);
/* The same, and tells: -EBUSY while a process is in one of them. The handle is freed, whatever the answer. */
int forkless_cgroup_remove(forkless_cgroup *cgroup, forkless_error *error);
/* Its directory: by name; by a descriptor, for forkless_command_cgroup, which stays the handle's. */
int forkless_cgroup_path(const forkless_cgroup *cgroup, char *text, size_t size, forkless_error *error);
int forkless_cgroup_directory(const forkless_cgroup *cgroup, forkless_error *error);

/* Limits of memory in bytes (one where the kernel kills, one where it slows down), of swap, of processes and threads; UINT64_MAX:
 * none. -ENOENT where the group above does not hand the controller down. */
int forkless_cgroup_memory_max(const forkless_cgroup *cgroup, uint64_t bytes, forkless_error *error);
int forkless_cgroup_memory_high(const forkless_cgroup *cgroup, uint64_t bytes, forkless_error *error);
int forkless_cgroup_memory_swap_max(const forkless_cgroup *cgroup, uint64_t bytes, forkless_error *error);
int forkless_cgroup_pids_max(const forkless_cgroup *cgroup, uint64_t count, forkless_error *error);
/* Processor time, in microseconds of each period of as many; shares of processors and disks, from 1 to 10000. */
int forkless_cgroup_cpu_max(const forkless_cgroup *cgroup, uint64_t quota, uint64_t period, forkless_error *error);
int forkless_cgroup_cpu_weight(const forkless_cgroup *cgroup, uint32_t weight, forkless_error *error);
int forkless_cgroup_io_weight(const forkless_cgroup *cgroup, uint32_t weight, forkless_error *error);
/* Any of its files, such as io.max; what one says, without the end of the last line. */
int forkless_cgroup_set(const forkless_cgroup *cgroup, const char *file, const char *value, forkless_error *error);
int forkless_cgroup_get(const forkless_cgroup *cgroup, const char *file, char *text, size_t size, forkless_error *error);

/* The number behind a name in a file that has such lines, as cpu.stat, memory.events, pids.events. -ENOENT if there is none. */
int forkless_cgroup_counter(const forkless_cgroup *cgroup, const char *file, const char *name, uint64_t *value,
                            forkless_error *error);
/* What was used: the most memory (Linux 5.19), the most processes and threads (6.1), processes killed for want of memory, processor time
 * of all, also of those that nobody has waited for. */
int forkless_cgroup_memory_peak(const forkless_cgroup *cgroup, uint64_t *bytes, forkless_error *error);
int forkless_cgroup_pids_peak(const forkless_cgroup *cgroup, uint64_t *count, forkless_error *error);
int forkless_cgroup_oom_kills(const forkless_cgroup *cgroup, uint64_t *count, forkless_error *error);
int forkless_cgroup_cpu_time(const forkless_cgroup *cgroup, uint64_t *nanoseconds, forkless_error *error);

/* Asks all to stop where they are; lets them go on. */
int forkless_cgroup_freeze(const forkless_cgroup *cgroup, forkless_error *error);
int forkless_cgroup_thaw(const forkless_cgroup *cgroup, forkless_error *error);
/* 1 when all are frozen, when nobody is left; 0 if the time is up. */
int forkless_cgroup_wait_frozen(const forkless_cgroup *cgroup, int64_t timeout_ms, forkless_error *error);
int forkless_cgroup_wait_empty(const forkless_cgroup *cgroup, int64_t timeout_ms, forkless_error *error);
/* SIGKILL to all. They have gone when forkless_cgroup_wait_empty says so. */
int forkless_cgroup_kill(const forkless_cgroup *cgroup, forkless_error *error);
/* The signal to all, SIGKILL to those that are there after the grace; waits until nobody is left. 1 if none had to be killed, else 0. */
int forkless_cgroup_terminate(const forkless_cgroup *cgroup, int number, int64_t grace_ms, forkless_error *error);

/* ---- Pseudo-terminals -----------------------------------------------------------------------------------------------------------
 *
 *     forkless_pty *pty;
 *     forkless_output *output;
 *     if (forkless_pty_open(NULL, &pty, &error) == 0 && forkless_command_pty(command, pty) == 0
 *         && forkless_command_spawn(command, &child, &error) == 0
 *         && forkless_pty_read_until_exit(pty, child, 0, &output, &error) == 0) ...
 *
 * The handle holds your side, the master: what programs write is read there, and what is written there is typed to them. One thread
 * may read while another writes. When it is freed the terminal is hung up: pty(7). Sizes are of <sys/ioctl.h>.
 */

typedef struct forkless_pty forkless_pty;
struct winsize;

/* A new one; size NULL: 24 lines of 80 characters. */
int forkless_pty_open(const struct winsize *size, forkless_pty **pty, forkless_error *error);
void forkless_pty_free(forkless_pty *pty);
/* The child begins a session on this terminal, with its streams there where nothing else is said of them. The command does not hold it:
 * it must still be there when the child is launched, and serves one session at a time. */
int forkless_command_pty(forkless_command *command, const forkless_pty *pty);

/* Your side, for poll(2). The handle's. */
int forkless_pty_fd(const forkless_pty *pty);
/* As read(2), but the end is 0 and not EIO: when the last program that had the terminal open has gone. ssize_t or a negative errno. */
ssize_t forkless_pty_read(const forkless_pty *pty, void *buffer, size_t size);
/* As write(2): it waits while the program does not read and some KiB are under way. */
ssize_t forkless_pty_write(const forkless_pty *pty, const void *data, size_t size);
/* Types the end of input (Ctrl-D), which ends one read. -EINVAL where the program has put the terminal in raw mode. */
int forkless_pty_send_eof(const forkless_pty *pty);
/* Reads until the child has ended, and waits for it; what it has written is the output's `out`. linger_ms: how long to read on while others
 * have the terminal open; negative: until its end. */
int forkless_pty_read_until_exit(const forkless_pty *pty, forkless_child *child, int64_t linger_ms, forkless_output **output,
                                 forkless_error *error);
/* The size; another one, of which programs in the foreground are told by SIGWINCH. */
int forkless_pty_size(const forkless_pty *pty, struct winsize *size);
int forkless_pty_resize(const forkless_pty *pty, const struct winsize *size);
/* Bytes pass unchanged: cfmakeraw(3). Is what is typed written back? The modes of another terminal. */
int forkless_pty_make_raw(const forkless_pty *pty);
int forkless_pty_echo(const forkless_pty *pty, int on);
int forkless_pty_copy_modes(const forkless_pty *pty, int fd);
/* Reading and writing are -EAGAIN where they would wait. */
int forkless_pty_set_nonblocking(const forkless_pty *pty, int on);
/* The process group in the foreground; 0: none. */
pid_t forkless_pty_foreground_group(const forkless_pty *pty);
/* The other side: its name, /dev/pts/N; opened, to be closed by you. No end is read as long as it is open. */
int forkless_pty_path(const forkless_pty *pty, char *text, size_t size);
int forkless_pty_follower(const forkless_pty *pty);

/* ---- Simple calls --------------------------------------------------------------------------------------------------------------
 *
 *     char *argv[] = {"ls", "-l", NULL};
 *     pid_t pid = forkless_spawnp("ls", argv, environ);
 *     if (pid > 0) waitpid(pid, &status, 0);
 *
 * These start a program as libc's functions do: it has your signal mask, and ignores what you ignore.
 */

/* Starts the program at path; answers with its pid, for waitpid(2), when it has been executed, or with a negative errno. It inherits
 * every descriptor that is not close-on-exec. envp NULL: your environment. */
pid_t forkless_spawn(const char *path, char *const argv[], char *const envp[]);
/* The same, with the file searched for in the PATH of envp (/bin:/usr/bin if it has none). */
pid_t forkless_spawnp(const char *file, char *const argv[], char *const envp[]);
/* Is the descriptor to be inherited by these two? Clears or sets its close-on-exec flag. */
int forkless_fd_inherit(int fd, int on);

enum { FORKLESS_STDERR_INHERIT = 0, FORKLESS_STDERR_NULL = 1, FORKLESS_STDERR_MERGE = 2 };

/* popen(3): mode "r" or "w". A line that is one simple command runs without a shell where nothing differs. The program has its
 * standard streams and no other descriptor of yours, and the stream is close-on-exec. */
FILE *forkless_popen(const char *command, const char *mode);
/* The same without a shell, so a program that cannot be executed is NULL and errno. flags: FORKLESS_STDERR_...; MERGE is 2>&1. */
FILE *forkless_popenv(char *const argv[], const char *mode, int flags);
/* Both directions. End to_child by fclose(3), which ends the program's input, and from_child by forkless_pclose. Returns 0 or a
 * negative errno. */
int forkless_popen2(char *const argv[], int flags, FILE **to_child, FILE **from_child);
/* pclose(3): closes the stream and waits; the status as of waitpid(2). -1 and EINVAL for a stream of others, which stays as it is; -1 and
 * ECHILD if another part of your program has reaped the child. */
int forkless_pclose(FILE *stream);
/* system(3): SIGINT and SIGQUIT are ignored and SIGCHLD is blocked meanwhile, in several threads too. The shell, or the
 * program where none is needed, has your standard streams and no other descriptor. */
int forkless_system(const char *command);

#ifdef __cplusplus
}
#endif

#endif

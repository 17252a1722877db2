/* Tests of setters: arguments, environment, descriptors, signals, IDs, limits. */
#include "check.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/syscall.h>
#include <stddef.h>

static void arguments(void) {
    forkless_command *command;
    char *more[] = {"c", "", NULL};
    EXPECT(0, forkless_command_new("printf", &command));
    EXPECT(0, forkless_command_arg(command, "%s|"));
    EXPECT(0, forkless_command_arg(command, "a b"));
    EXPECT(0, forkless_command_args(command, more));
    expect_output(command, "a b|c||");

    EXPECT(0, forkless_command_new("/bin/sh", &command));
    EXPECT(0, forkless_command_arg0(command, "other"));
    char *line[] = {"-c", "echo $0", NULL};
    EXPECT(0, forkless_command_args(command, line));
    expect_output(command, "other\n");

    EXPECT(0, forkless_command_new("/no/such/echo", &command));
    EXPECT(0, forkless_command_or_else(command, "echo"));
    EXPECT(0, forkless_command_arg(command, "found"));
    expect_output(command, "found\n");

    int fd = open("/bin/sh", O_RDONLY | O_CLOEXEC);
    command = shell("echo by fd");
    EXPECT(0, forkless_command_program_fd(command, fd));
    close(fd); /* the command has a duplicate */
    expect_output(command, "by fd\n");
}

static void environment(void) {
    setenv("FORKLESS_A", "1", 1), setenv("FORKLESS_B", "2", 1);
    forkless_command *command = shell("echo $FORKLESS_A,$FORKLESS_B,$FORKLESS_C");
    EXPECT(0, forkless_command_env(command, "FORKLESS_C", "3=3"));
    EXPECT(0, forkless_command_env_remove(command, "FORKLESS_B"));
    expect_output(command, "1,,3=3\n");

    EXPECT(0, forkless_command_new("/usr/bin/env", &command));
    EXPECT(0, forkless_command_env_clear(command));
    EXPECT(0, forkless_command_env(command, "ONLY", ""));
    expect_output(command, "ONLY=\n");

    char *envp[] = {"A=first", "A=second", "nothing", "=x", "B=2", NULL};
    EXPECT(0, forkless_command_new("/usr/bin/env", &command));
    EXPECT(0, forkless_command_envs(command, envp));
    expect_output(command, "A=first\nB=2\n");
}

static void directory(void) {
    forkless_command *command;
    EXPECT(0, forkless_command_new("pwd", &command));
    EXPECT(0, forkless_command_current_dir(command, "/usr"));
    expect_output(command, "/usr\n");
    EXPECT(0, forkless_command_new("pwd", &command));
    int fd = open("/usr", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    EXPECT(0, forkless_command_current_dir_fd(command, fd));
    close(fd);
    expect_output(command, "/usr\n");
}

static void descriptors(void) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    forkless_command *command = shell("echo five >&5; echo err >&2; readlink /proc/self/fd/7; ls /proc/self/fd | wc -l");
    EXPECT(0, forkless_command_fd(command, 5, ends[1]));
    EXPECT(0, forkless_command_fd_null(command, 7));
    EXPECT(0, forkless_command_fd_dup(command, 2, 5));
    /* 0, 1, 2, 5, 7, and the descriptor of ls itself. */
    expect_output(command, "/dev/null\n6\n");
    char text[32] = "";
    EXPECT(9, read(ends[0], text, sizeof text));
    CHECK(strcmp(text, "five\nerr\n") == 0);
    close(ends[0]), close(ends[1]);

    command = shell("head -c 5 <&3");
    EXPECT(0, forkless_command_fd_open(command, 3, "/etc/passwd", O_RDONLY, 0));
    EXPECT(0, forkless_command_fd_inherit(command, 2));
    expect_output(command, "root:");

    /* Files of procfs are refused: /proc/self would be the caller. */
    int status = 77;
    forkless_error error;
    command = shell("cat <&3");
    EXPECT(0, forkless_command_fd_open(command, 3, "/proc/self/comm", O_RDONLY, 0));
    EXPECT(-EOPNOTSUPP, forkless_command_status(command, &status, &error));
    EXPECT(FORKLESS_STEP_OPEN, error.step);
    CHECK(strstr(error.message, "it leads to procfs"));
    forkless_command_free(command);

    /* A descriptor that is closed when the command is run. */
    command = shell("true");
    EXPECT(0, forkless_command_fd(command, 4, 900));
    EXPECT(-EBADF, forkless_command_status(command, &status, &error));
    EXPECT(FORKLESS_STEP_PASS_FD, error.step);
    EXPECT(EBADF, error.errnum);
    EXPECT(77, status);
    forkless_command_free(command);

    int kept = fcntl(0, F_DUPFD, 50);
    command = shell("test -e /proc/self/fd/50 && echo yes || echo no");
    EXPECT(0, forkless_command_inherit_all(command, 1));
    expect_output(command, "yes\n");
    expect_output(shell("test -e /proc/self/fd/50 && echo yes || echo no"), "no\n");
    close(kept);
}

static void settings(void) {
    forkless_command *command = shell("umask; ulimit -n; ulimit -c; nice; cut -d' ' -f5,6 /proc/self/stat | tr ' ' = | "
                                      "sed 's/^\\(.*\\)=\\1$/session/'");
    EXPECT(0, forkless_command_umask(command, 027));
    EXPECT(0, forkless_command_rlimit(command, RLIMIT_NOFILE, 64, 128));
    struct rlimit core;
    EXPECT(0, getrlimit(RLIMIT_CORE, &core));
    EXPECT(0, forkless_command_rlimit(command, RLIMIT_CORE, 0, core.rlim_max));
    EXPECT(0, forkless_command_nice(command, 15));
    EXPECT(0, forkless_command_setsid(command, 1));
    expect_output(command, "0027\n64\n0\n15\nsession\n");

    command = shell("grep -E 'NoNewPrivs|Cpus_allowed_list' /proc/self/status; cat /proc/self/timerslack_ns");
    int processors[] = {0};
    EXPECT(0, forkless_command_no_new_privs(command, 1));
    EXPECT(0, forkless_command_timer_slack(command, 12345));
    cpu_set_t allowed;
    sched_getaffinity(0, sizeof allowed, &allowed);
    if (CPU_ISSET(0, &allowed)) EXPECT(0, forkless_command_cpu_affinity(command, processors, 1));
    forkless_output *output;
    EXPECT(0, forkless_command_capture(command, NULL, &output, NULL));
    CHECK(strstr(output->out, "NoNewPrivs:\t1\n") != NULL);
    CHECK(!CPU_ISSET(0, &allowed) || strstr(output->out, "Cpus_allowed_list:\t0\n") != NULL);
    forkless_output_free(output);
    forkless_command_free(command);

    command = shell("true");
    EXPECT(0, forkless_command_scheduler(command, SCHED_BATCH, 0));
    EXPECT(0, forkless_command_io_priority(command, 2, 7));
    EXPECT(0, forkless_command_personality(command, 0));
    EXPECT(0, forkless_command_oom_score_adj(command, 500));
    EXPECT(0, forkless_command_parent_death_signal(command, SIGKILL));
    EXPECT(0, forkless_command_retry_busy(command, 10));
    EXPECT(0, forkless_command_scripts_by_shell(command, 1));
    EXPECT(0, forkless_command_process_group(command, 0));
    expect_output(command, "");
}

static void signals(void) {
    /* Not in a shell, which changes signal dispositions. */
    char *argv[] = {"grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status", NULL};
    forkless_command *command;
    /* glibc leaves its two internal signals ignored in children, such as this program, and its functions cannot change them. */
    struct { void *handler; unsigned long flags; void *restorer; uint64_t mask; } dfl = {NULL, 0, NULL, 0};
    for (int own = 32; own < 34; own++) EXPECT(0, syscall(SYS_rt_sigaction, own, &dfl, NULL, 8));
    EXPECT(0, forkless_command_new_argv(argv, &command));
    EXPECT(0, forkless_command_signal_ignore(command, SIGHUP));
    EXPECT(0, forkless_command_signal_block(command, SIGUSR1));
    expect_output(command, "SigBlk:\t0000000000000200\nSigIgn:\t0000000000000001\n");

    sigset_t block, old;
    sigemptyset(&block), sigaddset(&block, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &block, &old);
    signal(SIGPIPE, SIG_IGN);
    EXPECT(0, forkless_command_new_argv(argv, &command));
    EXPECT(0, forkless_command_signal_inherit(command, SIGPIPE));
    expect_output(command, "SigBlk:\t0000000000000800\nSigIgn:\t0000000000001000\n");
    EXPECT(0, forkless_command_new_argv(argv, &command));
    EXPECT(0, forkless_command_inherit_signal_mask(command, 0));
    expect_output(command, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
    signal(SIGPIPE, SIG_DFL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static void ids(void) {
    forkless_command *command = shell("true");
    int status;
    forkless_error error;
    EXPECT(0, forkless_command_user(command, "no such user"));
    CHECK(forkless_command_status(command, &status, &error) < 0);
    EXPECT(FORKLESS_STEP_CHECK, error.step);
    forkless_command_free(command);
    if (geteuid() != 0) {
        printf("SKIPPED: ids of children of C programs because it takes root\n");
        return;
    }
    gid_t groups[] = {7, 8};
    command = shell("id -u; id -g; id -G");
    EXPECT(0, forkless_command_uid(command, 1234));
    EXPECT(0, forkless_command_gid(command, 2345));
    EXPECT(0, forkless_command_groups(command, groups, 2));
    expect_output(command, "1234\n2345\n2345 7 8\n");
    command = shell("id -un; id -gn");
    EXPECT(0, forkless_command_user(command, "daemon"));
    EXPECT(0, forkless_command_group(command, "bin"));
    expect_output(command, "daemon\nbin\n");
    command = shell("grep CapBnd /proc/self/status");
    EXPECT(0, forkless_command_bounding_set(command, 1 << 5));
    expect_output(command, "CapBnd:\t0000000000000020\n");
}

static void sandbox(void) {
    forkless_command *command = shell("true");
    forkless_command_free(command);

    command = shell("uname -n; id -u; echo x >/tmp/file && ls /tmp; ls /root-of-all 2>/dev/null; echo $$");
    EXPECT(0, forkless_command_unshare(command, CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWPID));
    EXPECT(0, forkless_command_map_uid(command, 0, geteuid(), 1));
    EXPECT(0, forkless_command_map_gid(command, 0, getegid(), 1));
    EXPECT(0, forkless_command_hostname(command, "inside"));
    EXPECT(0, forkless_command_tmpfs(command, "/tmp", "size=1m"));
    EXPECT(0, forkless_command_current_dir(command, "/")); /* the caller's own may be below /tmp */
    forkless_output *output;
    forkless_error error;
    if (forkless_command_capture(command, NULL, &output, &error) < 0) {
        CHECK(error.errnum == EPERM || error.errnum == ENOSPC || error.errnum == EACCES);
        printf("SKIPPED: a sandbox of a C program because user namespaces are refused: %s\n", error.message);
    } else {
        if (strcmp(output->out, "inside\n0\nfile\n1\n") != 0) {
            fprintf(stderr, "%s%s", output->out, output->err);
            exit(1);
        }
        forkless_output_free(output);
    }
    forkless_command_free(command);
}

/* A seccomp filter that returns errno 49 for uname(2). */
static void filter(void) {
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_uname, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 49),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    forkless_command *command = shell("uname -n 2>/dev/null || echo refused");
    EXPECT(0, forkless_command_no_new_privs(command, 1));
    EXPECT(0, forkless_command_seccomp(command, program, sizeof program / sizeof *program));
    expect_output(command, "refused\n");
}

static void system_calls(void) {
    /* openat(AT_FDCWD, "comm", O_RDONLY) in /proc/self: only the child can open its own comm. */
    forkless_call_arg args[] = {
        {FORKLESS_CALL_NUMBER, (uint64_t)AT_FDCWD, NULL},
        {FORKLESS_CALL_BYTES, 4, "comm"},
        {FORKLESS_CALL_NUMBER, O_RDONLY, NULL},
    };
    forkless_command *command = shell("exec sleep 10");
    forkless_child *child;
    EXPECT(0, forkless_command_current_dir(command, "/proc/self"));
    EXPECT(0, forkless_command_call(command, SYS_openat, args, 3, 0));
    EXPECT(0, forkless_command_hand_back(command, 0));
    EXPECT(0, forkless_command_kill_on_free(command, 1));
    EXPECT(0, forkless_command_spawn(command, &child, NULL));
    int fd = forkless_child_take_handed_back(child), status;
    CHECK(fd >= 0);
    EXPECT(-ENOENT, forkless_child_take_handed_back(child));
    char text[32] = "";
    CHECK(read(fd, text, sizeof text) > 0);
    close(fd);
    EXPECT(0, forkless_child_kill(child));
    EXPECT(0, forkless_child_wait(child, &status, NULL));
    forkless_child_free(child);
    forkless_command_free(command);
}

/* Uses the flags of Linux 7.1, or gets the error that names them. */
static void autoreaped(void) {
    forkless_command *command = shell("exit 3");
    forkless_child *child;
    forkless_error error;
    forkless_usage usage;
    int status;
    EXPECT(0, forkless_command_no_new_privs(command, 1));
    EXPECT(0, forkless_command_autoreap(command, 1));
    EXPECT(0, forkless_command_pidfd_autokill(command, 1));
    int answer = forkless_command_spawn(command, &child, &error);
    if (answer == 0) {
        EXPECT(0, forkless_child_wait(child, &status, NULL));
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
        EXPECT(-ENODATA, forkless_child_usage(child, &usage));
        EXPECT(-EINVAL, forkless_child_release(child));
    } else {
        CHECK(answer == -EINVAL && error.step == FORKLESS_STEP_CLONE && strstr(error.message, "CLONE_PIDFD_AUTOKILL"));
    }
    EXPECT(0, forkless_command_keep_record_locks(command, 1));
    EXPECT(0, forkless_command_pidfd(command, 0));
    EXPECT(-EINVAL, forkless_command_spawn(command, &child, &error));
    CHECK(error.step == FORKLESS_STEP_CHECK && strstr(error.message, "pidfd_autokill"));
    forkless_command_free(command);
}

static void best_effort(void) {
    forkless_command *command = shell("true");
    forkless_child *child;
    forkless_error skipped;
    int status;
    EXPECT(0, forkless_command_chroot(command, "/no/such/root"));
    EXPECT(0, forkless_command_best_effort(command, FORKLESS_STEP_CHROOT));
    EXPECT(0, forkless_command_spawn(command, &child, &skipped));
    EXPECT(1, forkless_child_skipped(child, 0, &skipped));
    EXPECT(FORKLESS_STEP_CHROOT, skipped.step);
    CHECK(strstr(skipped.message, "/no/such/root") != NULL);
    EXPECT(0, forkless_child_skipped(child, 1, &skipped));
    EXPECT(0, forkless_child_wait(child, &status, NULL));
    EXPECT(0, status);
    forkless_child_free(child);
    forkless_command_free(command);
}

static int says(void *value) {
    return write(1, value, strlen((const char *)value)) > 0 ? 0 : EIO;
}

static int refuses(void *value) {
    return *(int *)value;
}

/* pre_exec needs fork, selected explicitly. */
static void pre_exec_needs_fork(void) {
    static char text[] = "said\n";
    static int errnum = EDOM;
    int status;
    forkless_error error;
    forkless_command *command = shell("echo run");
    EXPECT(0, forkless_command_pre_exec(command, says, text));
    CHECK(forkless_command_status(command, &status, &error) < 0);
    EXPECT(FORKLESS_STEP_CHECK, error.step);
    EXPECT(0, forkless_command_launcher(command, FORKLESS_LAUNCHER_FORK));
    expect_output(command, "said\nrun\n");
    command = shell("true");
    EXPECT(0, forkless_command_launcher(command, FORKLESS_LAUNCHER_FORK));
    EXPECT(0, forkless_command_pre_exec(command, refuses, &errnum));
    EXPECT(-EDOM, forkless_command_status(command, &status, &error));
    EXPECT(FORKLESS_STEP_PRE_EXEC, error.step);
    forkless_command_free(command);
    command = shell("echo so");
    EXPECT(0, forkless_command_launcher(command, FORKLESS_LAUNCHER_POSIX_SPAWN));
#if defined(__GLIBC__) && __GLIBC__ == 2 && __GLIBC_MINOR__ < 34
    /* Its posix_spawn has no closefrom. */
    EXPECT(0, forkless_command_inherit_all(command, 1));
#endif
    expect_output(command, "so\n");
}

/* The list of steps, returned as by snprintf(3). */
static void steps_are_described(void) {
    forkless_command *command = shell("true");
    forkless_prepared *prepared;
    char text[4096], short_text[5];
    EXPECT(0, forkless_command_umask(command, 077));
    EXPECT(0, forkless_command_prepare(command, &prepared, NULL));
    int length = forkless_prepared_steps(prepared, text, sizeof text);
    EXPECT((int)strlen(text), length);
    CHECK(strstr(text, "umask") != NULL && strstr(text, "/sh") != NULL);
    EXPECT(length, forkless_prepared_steps(prepared, NULL, 0));
    EXPECT(length, forkless_prepared_steps(prepared, short_text, sizeof short_text));
    CHECK(strlen(short_text) == 4 && strncmp(short_text, text, 4) == 0);
    forkless_prepared_free(prepared);
    forkless_command_free(command);
    EXPECT(4, forkless_step_words(FORKLESS_STEP_EXEC, text, sizeof text));
    CHECK(strcmp(text, "exec") == 0);
    EXPECT(-ENOENT, forkless_step_words(-1, text, sizeof text));
}

int main(void) {
    int fds = open_fds();
    arguments();
    environment();
    directory();
    descriptors();
    settings();
    signals();
    ids();
    sandbox();
    filter();
    system_calls();
    autoreaped();
    best_effort();
    pre_exec_needs_fork();
    steps_are_described();
    expect_nothing_left(fds);
    return 0;
}

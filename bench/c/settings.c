/* `fork` with settings of the child, as efficient as possible with fork: one clone3 creates the namespace and starts the child in
 * its cgroup; each other setting is one system call in the child. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "settings.h"

#ifndef CLONE_INTO_CGROUP
#define CLONE_INTO_CGROUP 0x200000000ULL
#endif

/* fork(2) with clone3 flags, which fork(3) does not accept. The child makes system calls only, so the atfork handlers of fork(3)
 * are not needed. */
static pid_t clone_as_fork(const struct bench_wishes *wishes)
{
    struct {
        uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size,
            cgroup;
    } args;
    memset(&args, 0, sizeof args);
    args.exit_signal = SIGCHLD;
    if (wishes->uid_map)
        args.flags |= CLONE_NEWUSER;
    if (wishes->cgroup >= 0) {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = (uint64_t)wishes->cgroup;
    }
    return (pid_t)syscall(SYS_clone3, &args, sizeof args);
}

static int write_file(pid_t pid, const char *name, const char *text)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t wrote = write(fd, text, strlen(text));
    int error = errno;
    close(fd);
    return wrote < 0 ? -error : 0;
}

static int write_maps(pid_t pid, const struct bench_wishes *wishes)
{
    int error = write_file(pid, "uid_map", wishes->uid_map);
    if (!error && wishes->deny_setgroups)
        error = write_file(pid, "setgroups", "deny");
    return error ? error : write_file(pid, "gid_map", wishes->gid_map);
}

/* In the child; returns only if a step fails. */
static void play(const struct bench_wishes *wishes)
{
    for (size_t i = 0; i < wishes->limit_count; i++) {
        struct rlimit limit = {wishes->limits[i].value, wishes->limits[i].value};
        if (setrlimit(wishes->limits[i].resource, &limit) != 0)
            _exit(126);
    }
    /* Raw calls: libc's functions would signal all threads that it believes to exist. */
    long id = (long)wishes->id;
    if (wishes->change_ids && (syscall(SYS_setgroups, 0, NULL) != 0 || syscall(SYS_setresgid, id, id, id) != 0 ||
                               syscall(SYS_setresuid, id, id, id) != 0))
        _exit(125);
    if (wishes->filter_length) {
        struct sock_fprog filter = {wishes->filter_length, wishes->filter};
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
            syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) != 0)
            _exit(124);
    }
}

pid_t bench_fork_with(const struct bench_wishes *wishes, const char *path, char *const *argv, char *const *envp)
{
    int gate[2];
    if (!wishes->uid_map) {
        pid_t pid = wishes->cgroup >= 0 ? clone_as_fork(wishes) : fork();
        if (pid == 0) {
            play(wishes);
            execve(path, argv, envp);
            _exit(127);
        }
        return pid;
    }
    /* A byte means that the maps were written; the end of the pipe, that this failed. */
    if (pipe2(gate, O_CLOEXEC) != 0)
        return -1;
    pid_t pid = clone_as_fork(wishes);
    if (pid == 0) {
        char byte;
        close(gate[1]);
        if (read(gate[0], &byte, 1) != 1)
            _exit(123);
        play(wishes);
        execve(path, argv, envp);
        _exit(127);
    }
    int error = errno;
    close(gate[0]);
    if (pid > 0) {
        int refused = write_maps(pid, wishes);
        if (!refused && write(gate[1], "", 1) != 1)
            refused = -errno;
        (void)refused; /* the child exits with 123, which the parent sees */
    }
    close(gate[1]);
    errno = error;
    return pid;
}

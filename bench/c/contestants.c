/* The C methods of `forkless bench`: one launch per call, timed inside, so that no Rust code lies between the
 * two readings of the clock.
 *
 * Each function returns the wait status of the child (0: it exited with 0), or -errno if it could not be launched.
 * `held` is the time until the caller continues, `total` the time until the child is reaped, in ns. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "contestants.h"
#include "settings.h"

uint64_t bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- three pipes -------------------------------------------------------------------------------------------- */

struct pipes {
    int child[3];  /* what becomes 0, 1, 2 of the child */
    int parent[3]; /* the other ends */
};

static void close_three(int fds[3])
{
    for (int i = 0; i < 3; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

static int open_pipes(struct pipes *p)
{
    for (int i = 0; i < 3; i++)
        p->child[i] = p->parent[i] = -1;
    for (int i = 0; i < 3; i++) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) != 0) {
            int error = errno;
            close_three(p->child);
            close_three(p->parent);
            return -error;
        }
        int child_end = i == 0 ? 0 : 1; /* the child reads stdin and writes the other two */
        p->child[i] = ends[child_end];
        p->parent[i] = ends[1 - child_end];
    }
    return 0;
}

int bench_reap(pid_t pid)
{
    int status;
    while (wait4(pid, &status, 0, NULL) < 0)
        if (errno != EINTR)
            return -errno;
    return status;
}

static int is_path(const struct bench_plan *plan)
{
    return strchr(plan->path, '/') != NULL;
}

/* In the child. libc's execvpe makes only system calls there, which is safe after vfork. */
static void execute(const struct bench_plan *plan)
{
    if (is_path(plan))
        execve(plan->path, plan->argv, plan->envp);
    else
        execvpe(plan->path, plan->argv, plan->envp);
}

/* ---- floor: vfork, execve, wait4 ---------------------------------------------------------------------------- */

/* The child of vfork runs on the caller's stack frame and must not return from it, so this is a separate function that
 * must not be inlined; variables that the child writes and the parent reads are volatile. The pipe ends are never 0, 1 or 2
 * (the bench keeps those open), so three dup2 suffice. */
__attribute__((noinline)) static pid_t vfork_exec(const struct bench_plan *plan, const struct pipes *p,
                                                  volatile int *child_error)
{
    pid_t pid = vfork();
    if (pid == 0) {
        if (plan->pipes)
            for (int i = 0; i < 3; i++)
                if (dup2(p->child[i], i) < 0) {
                    *child_error = errno;
                    _exit(127);
                }
        execute(plan);
        *child_error = errno;
        _exit(127);
    }
    return pid;
}

int bench_floor(const struct bench_plan *plan, struct bench_times *times)
{
    struct pipes p;
    volatile int child_error = 0;
    uint64_t start = bench_now();
    if (plan->pipes) {
        int error = open_pipes(&p);
        if (error)
            return error;
    }
    pid_t pid = vfork_exec(plan, &p, &child_error);
    int error = errno;
    if (plan->pipes)
        close_three(p.child);
    times->held = bench_now() - start;
    if (pid < 0) {
        if (plan->pipes)
            close_three(p.parent);
        return -error;
    }
    int status = bench_reap(pid);
    if (plan->pipes)
        close_three(p.parent);
    times->total = bench_now() - start;
    return child_error ? -child_error : status;
}

/* ---- fork, execve, waitpid ---------------------------------------------------------------------------------- */

int bench_fork(const struct bench_plan *plan, struct bench_times *times)
{
    uint64_t start = bench_now();
    pid_t pid = plan->wishes ? bench_fork_with(plan->wishes, plan->path, plan->argv, plan->envp) : fork();
    if (pid == 0) {
        execute(plan);
        _exit(127);
    }
    times->held = bench_now() - start;
    if (pid < 0)
        return -errno;
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -errno;
    times->total = bench_now() - start;
    return status;
}

/* ---- posix_spawn -------------------------------------------------------------------------------------------- */

static int spawn_with_pipes(const struct bench_plan *plan, struct pipes *p, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    int error = posix_spawn_file_actions_init(&actions);
    if (error)
        return error;
    for (int i = 0; i < 3 && !error; i++)
        error = posix_spawn_file_actions_adddup2(&actions, p->child[i], i);
    if (!error)
        error = posix_spawn(pid, plan->path, &actions, NULL, plan->argv, plan->envp);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

int bench_posix_spawn(const struct bench_plan *plan, struct bench_times *times)
{
    struct pipes p;
    pid_t pid;
    int error;
    uint64_t start = bench_now();
    if (plan->pipes) {
        error = open_pipes(&p);
        if (error)
            return error;
        error = spawn_with_pipes(plan, &p, &pid);
        close_three(p.child);
    } else {
        error = (is_path(plan) ? posix_spawn : posix_spawnp)(&pid, plan->path, NULL, NULL, plan->argv, plan->envp);
    }
    times->held = bench_now() - start;
    if (error) {
        if (plan->pipes)
            close_three(p.parent);
        return -error;
    }
    int status = bench_reap(pid);
    if (plan->pipes)
        close_three(p.parent);
    times->total = bench_now() - start;
    return status;
}

/* A file action of glibc 2.34 closes all descriptors except the standard streams. */
#if defined(__GLIBC__) && defined(__GLIBC_PREREQ)
#if __GLIBC_PREREQ(2, 34)
#define HAS_CLOSEFROM 1
#endif
#endif

#ifdef HAS_CLOSEFROM
int bench_has_closefrom(void)
{
    return 1;
}

int bench_closefrom(const struct bench_plan *plan, struct bench_times *times)
{
    pid_t pid;
    posix_spawn_file_actions_t actions;
    uint64_t start = bench_now();
    int error = posix_spawn_file_actions_init(&actions);
    if (error)
        return -error;
    error = posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    if (!error)
        error = (is_path(plan) ? posix_spawn : posix_spawnp)(&pid, plan->path, &actions, NULL, plan->argv, plan->envp);
    posix_spawn_file_actions_destroy(&actions);
    times->held = bench_now() - start;
    if (error)
        return -error;
    int status = bench_reap(pid);
    times->total = bench_now() - start;
    return status;
}
#else
int bench_has_closefrom(void)
{
    return 0;
}

int bench_closefrom(const struct bench_plan *plan, struct bench_times *times)
{
    (void)plan, (void)times;
    return -ENOSYS;
}
#endif

/* ---- forkless_spawn ------------------------------------------------------------------------------------------ */

int bench_spawn(const struct bench_plan *plan, struct bench_times *times)
{
    uint64_t start = bench_now();
    pid_t pid = (is_path(plan) ? plan->library->spawn : plan->library->spawnp)(plan->path, plan->argv, plan->envp);
    times->held = bench_now() - start;
    if (pid < 0)
        return (int)pid;
    int status = bench_reap(pid);
    times->total = bench_now() - start;
    return status;
}

/* ---- system, popen ------------------------------------------------------------------------------------------ */

int bench_system(const struct bench_plan *plan, struct bench_times *times)
{
    uint64_t start = bench_now();
    int status = plan->library->system(plan->shell_command);
    times->held = times->total = bench_now() - start;
    return status == -1 ? -errno : status;
}

int bench_popen(const struct bench_plan *plan, struct bench_times *times)
{
    char buffer[4096];
    uint64_t start = bench_now();
    FILE *stream = plan->library->popen(plan->shell_command, "re");
    times->held = bench_now() - start;
    if (!stream)
        return -errno;
    while (fread(buffer, 1, sizeof buffer, stream) > 0)
        ;
    int status = plan->library->pclose(stream);
    times->total = bench_now() - start;
    return status == -1 ? -errno : status;
}

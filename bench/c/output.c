/* The vfork baseline with captured output: vfork, two pipes, one growing buffer, wait4. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "contestants.h"

enum { PIPE = 64 * 1024 };

struct bytes {
    char *data;
    size_t length, room;
};

/* One read; 1 if there may be more, 0 at the end, -errno. */
static int read_some(int fd, struct bytes *into)
{
    if (into->room - into->length < PIPE) {
        size_t room = into->room ? into->room * 2 : PIPE * 2;
        char *data = realloc(into->data, room);
        if (!data)
            return -ENOMEM;
        into->data = data;
        into->room = room;
    }
    ssize_t got = read(fd, into->data + into->length, into->room - into->length);
    if (got < 0)
        return errno == EINTR ? 1 : -errno;
    into->length += (size_t)got;
    return got > 0;
}

/* Reads both streams to their ends. */
static int read_both(const int fds[2], struct bytes into[2])
{
    struct pollfd ready[2] = {{fds[0], POLLIN, 0}, {fds[1], POLLIN, 0}};
    while (ready[0].fd >= 0 || ready[1].fd >= 0) {
        if (poll(ready, 2, -1) < 0 && errno != EINTR)
            return -errno;
        for (int i = 0; i < 2; i++) {
            if (ready[i].fd < 0 || !ready[i].revents)
                continue;
            int answer = read_some(ready[i].fd, &into[i]);
            if (answer < 0)
                return answer;
            if (answer == 0)
                ready[i].fd = -1;
        }
    }
    return 0;
}

__attribute__((noinline)) static pid_t vfork_exec(const struct bench_plan *plan, const int out[2], const int err[2],
                                                  volatile int *child_error)
{
    pid_t pid = vfork();
    if (pid == 0) {
        if (dup2(out[1], 1) >= 0 && dup2(err[1], 2) >= 0)
            execve(plan->path, plan->argv, plan->envp);
        *child_error = errno;
        _exit(127);
    }
    return pid;
}

int bench_output(const struct bench_plan *plan, struct bench_times *times)
{
    int out[2], err[2];
    struct bytes got[2] = {{0}, {0}};
    volatile int child_error = 0;
    uint64_t start = bench_now();
    if (pipe2(out, O_CLOEXEC) != 0)
        return -errno;
    if (pipe2(err, O_CLOEXEC) != 0) {
        int error = errno;
        close(out[0]);
        close(out[1]);
        return -error;
    }
    pid_t pid = vfork_exec(plan, out, err, &child_error);
    int answer = pid < 0 ? -errno : 0;
    close(out[1]);
    close(err[1]);
    if (!answer)
        answer = read_both((int[]){out[0], err[0]}, got);
    close(out[0]);
    close(err[0]);
    if (pid > 0) {
        int status = bench_reap(pid);
        answer = answer ? answer : status;
    }
    for (size_t i = 0; i < got[0].length; i += 4096)
        if (((volatile char *)got[0].data)[i] != 'x')
            answer = -EBADMSG;
    times->held = times->total = bench_now() - start;
    if (!answer && got[0].length != plan->output)
        answer = -EBADMSG;
    free(got[0].data);
    free(got[1].data);
    return child_error ? -child_error : answer;
}

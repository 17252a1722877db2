/* Launches a program that prints one line, time and again, in one of the ways that popen_noshell is compared with.
 *
 *     launches WAY COUNT MEBIBYTES PROGRAM
 *
 * The process has so much memory, and has written to half of it. Ways that have a pipe check what comes through it; the others' goes
 * to /dev/null. Every status is checked. On standard output come the wall, user and system time of the launches, of this process and
 * its children together, in nanoseconds. Linked with a library that has popen_noshell.h: ours, or another of that interface. */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <popen_noshell.h>
#include <spawn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

extern char **environ;

static char *program;

static void wait_for(pid_t pid) {
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid) err(1, "a child");
    if (status != 0) errx(1, "status %d", status);
}

static void by_fork(void) {
    pid_t pid = fork();
    if (pid == 0) {
        execl(program, program, (char *)NULL);
        _exit(127);
    }
    wait_for(pid);
}

static void by_vfork(void) {
    pid_t pid = vfork();
    if (pid == 0) {
        execl(program, program, (char *)NULL);
        _exit(127);
    }
    wait_for(pid);
}

static void by_posix_spawn(void) {
    char *argv[] = {program, NULL};
    pid_t pid;
    int error = posix_spawn(&pid, program, NULL, NULL, argv, environ);
    if (error) errx(1, "posix_spawn: %s", strerror(error));
    wait_for(pid);
}

static void by_system(void) {
    if (system(program) != 0) err(1, "system");
}

static void take_line(FILE *stream) {
    char line[64];
    int lines = 0;
    if (!stream) err(1, "no stream");
    while (fgets(line, sizeof line, stream)) {
        if (strcmp(line, "Hello, world!\n") != 0) errx(1, "answer: %s", line);
        lines++;
    }
    if (lines != 1) errx(1, "%d lines", lines);
}

static void check(int status) {
    if (status == -1) err(1, "close");
    if (status != 0) errx(1, "status %d", status);
}

static void by_popen(void) {
    FILE *stream = popen(program, "r");
    take_line(stream);
    check(pclose(stream));
}

static void by_popen_noshell(void) {
    const char *const argv[] = {program, NULL};
    struct popen_noshell_pass_to_pclose arg;
    take_line(popen_noshell(program, argv, "r", &arg, 0));
    check(pclose_noshell(&arg));
}

static void by_popen_noshell_compat(void) {
    struct popen_noshell_pass_to_pclose arg;
    take_line(popen_noshell_compat(program, "r", &arg));
    check(pclose_noshell(&arg));
}

static const struct {
    const char *name;
    void (*launch)(void);
    int mode;
} ways[] = {
    {"fork", by_fork, 0},
    {"vfork", by_vfork, 0},
    {"posix_spawn", by_posix_spawn, 0},
    {"system", by_system, 0},
    {"popen", by_popen, 0},
    {"popen_noshell", by_popen_noshell, POPEN_NOSHELL_MODE_CLONE},
    {"popen_noshell_compat", by_popen_noshell_compat, POPEN_NOSHELL_MODE_CLONE},
    {"popen_noshell,fork", by_popen_noshell, POPEN_NOSHELL_MODE_FORK},
    {"popen_noshell_compat,fork", by_popen_noshell_compat, POPEN_NOSHELL_MODE_FORK},
    {"popen_noshell,posix_spawn", by_popen_noshell, POPEN_NOSHELL_MODE_POSIX_SPAWN},
    {"popen_noshell_compat,posix_spawn", by_popen_noshell_compat, POPEN_NOSHELL_MODE_POSIX_SPAWN},
};

static int64_t in_ns(struct timeval time) { return time.tv_sec * INT64_C(1000000000) + time.tv_usec * 1000; }

struct times {
    int64_t wall, user, system;
};

static struct times now(void) {
    struct timespec wall;
    struct rusage self, children;
    clock_gettime(CLOCK_MONOTONIC, &wall);
    getrusage(RUSAGE_SELF, &self);
    getrusage(RUSAGE_CHILDREN, &children);
    return (struct times){wall.tv_sec * INT64_C(1000000000) + wall.tv_nsec, in_ns(self.ru_utime) + in_ns(children.ru_utime),
                          in_ns(self.ru_stime) + in_ns(children.ru_stime)};
}

int main(int argc, char **argv) {
    if (argc != 5) errx(2, "usage: launches WAY COUNT MEBIBYTES PROGRAM");
    size_t way = 0, ways_there = sizeof ways / sizeof *ways, size = strtoul(argv[3], NULL, 10) << 20;
    while (way < ways_there && strcmp(ways[way].name, argv[1]) != 0) way++;
    if (way == ways_there) errx(2, "no such way: %s", argv[1]);
    volatile char *memory = malloc(size + 1);
    if (!memory) err(1, "memory");
    for (size_t at = 0; at < size / 2; at++) memory[at] = 'z';
    program = argv[4];
    int out = dup(1), null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (out < 0 || null < 0 || dup2(null, 1) != 1 || fcntl(out, F_SETFD, FD_CLOEXEC) != 0) err(1, "standard output");
    popen_noshell_set_fork_mode(ways[way].mode);
    ways[way].launch(); /* what is set up once is not timed */
    struct times before = now();
    for (long count = atol(argv[2]); count > 0; count--) ways[way].launch();
    struct times after = now();
    dprintf(out, "%lld %lld %lld\n", (long long)(after.wall - before.wall), (long long)(after.user - before.user),
            (long long)(after.system - before.system));
    return 0;
}

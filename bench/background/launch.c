/* Launches a program with its output to /dev/null, time and again, in one way, from a process with memory.
 *
 *     launch WAY COUNT KIND MEBIBYTES PROGRAM
 *
 * KIND is "touched": one piece of memory, every page written to, or "mappings": mappings of 64 KiB, one page of each written to, and
 * neighbours with different protection so that the kernel cannot merge them. On standard output come the wall, user and system time
 * of the launches, each until its end is known, of this process and its children together, in nanoseconds. Every status is checked. */
#define _GNU_SOURCE
#include "timing.h"

#include <fcntl.h>
#include <forkless.h>
#include <sched.h>
#include <spawn.h>
#include <string.h>

extern char **environ;

static char *argv_of_child[2];
static int null;
static forkless_command *command;

static int in_child(void *unused) {
    (void)unused;
    if (dup2(null, 1) == 1) execve(argv_of_child[0], argv_of_child, environ);
    _exit(127);
}

static void by_fork(void) {
    pid_t pid = fork();
    if (pid == 0) in_child(NULL);
    must_end_with_0(pid);
}

static void by_vfork(void) {
    pid_t pid = vfork();
    if (pid == 0) {
        if (dup2(null, 1) == 1) execve(argv_of_child[0], argv_of_child, environ);
        _exit(127);
    }
    must_end_with_0(pid);
}

static void by_posix_spawn(void) {
    posix_spawn_file_actions_t actions;
    pid_t pid;
    if (posix_spawn_file_actions_init(&actions) || posix_spawn_file_actions_adddup2(&actions, null, 1)) errx(1, "actions");
    int error = posix_spawn(&pid, argv_of_child[0], &actions, NULL, argv_of_child, environ);
    if (error) errx(1, "posix_spawn: %s", strerror(error));
    posix_spawn_file_actions_destroy(&actions);
    must_end_with_0(pid);
}

/* The stack is the child's until it has been waited for. */
static void by_clone_with(int flags) {
    static char stack[64 << 10] __attribute__((aligned(16)));
    must_end_with_0(clone(in_child, stack + sizeof stack, flags | SIGCHLD, NULL));
}

static void by_clone_vm(void) { by_clone_with(CLONE_VM); }

static void by_clone_vm_vfork(void) { by_clone_with(CLONE_VM | CLONE_VFORK); }

static void by_forkless(void) {
    int status;
    int error = forkless_command_status(command, &status, NULL);
    if (error < 0) errx(1, "forkless: %s", strerror(-error));
    if (status != 0) errx(1, "status %d", status);
}

static const struct {
    const char *name;
    void (*launch)(void);
} ways[] = {
    {"fork", by_fork},         {"vfork", by_vfork},
    {"clone_vm", by_clone_vm}, {"clone_vm_vfork", by_clone_vm_vfork},
    {"forkless", by_forkless}, {"posix_spawn", by_posix_spawn},
};

static void have(const char *kind, size_t size) {
    if (strcmp(kind, "touched") == 0) {
        if (size) touch(map(size), size);
        return;
    }
    const size_t piece = 64 << 10;
    char *memory = size ? map(size) : NULL;
    for (size_t at = 0; at < size; at += piece) {
        memory[at] = 1;
        if (at / piece % 2 && mprotect(memory + at, piece, PROT_READ) != 0) err(1, "a mapping");
    }
}

int main(int argc, char **argv) {
    if (argc != 6) errx(2, "usage: launch WAY COUNT touched|mappings MEBIBYTES PROGRAM");
    size_t way = 0, ways_there = sizeof ways / sizeof *ways;
    while (way < ways_there && strcmp(ways[way].name, argv[1]) != 0) way++;
    if (way == ways_there) errx(2, "no such way: %s", argv[1]);
    have(argv[3], strtoul(argv[4], NULL, 10) << 20);
    argv_of_child[0] = argv[5];
    null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null < 0) err(1, "/dev/null");
    if (forkless_command_new(argv[5], &command) < 0 || forkless_command_fd_null(command, 1) < 0) errx(1, "a command");
    ways[way].launch(); /* what is set up once is not timed */
    struct times before = times_now();
    for (long count = atol(argv[2]); count > 0; count--) ways[way].launch();
    struct times after = times_now();
    printf("%lld %lld %lld\n", (long long)(after.wall - before.wall), (long long)(after.user - before.user),
           (long long)(after.system - before.system));
    return 0;
}

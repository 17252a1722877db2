/* Declarations for all methods in C. */
#ifndef FORKLESS_BENCH_CONTESTANTS_H
#define FORKLESS_BENCH_CONTESTANTS_H

#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* Equivalent functions of libc and of forkless, so that the same code times both. */
struct bench_library {
    pid_t (*spawn)(const char *path, char *const argv[], char *const envp[]); /* forkless only */
    pid_t (*spawnp)(const char *file, char *const argv[], char *const envp[]);
    int (*system)(const char *command);
    FILE *(*popen)(const char *command, const char *mode);
    int (*pclose)(FILE *stream);
};

struct bench_plan {
    const char *path; /* without a slash: searched for in PATH */
    char *const *argv;
    char *const *envp;
    const char *shell_command; /* the same launch as a line for sh(1) */
    int pipes;                 /* 0, or 3: stdin, stdout and stderr are pipes to the caller */
    const struct bench_wishes *wishes; /* settings of the child, or null; `floor` leaves them out */
    uint64_t output;           /* bytes that the program writes, if captured */
    const struct bench_library *library;
};

struct bench_times {
    uint64_t held;
    uint64_t total;
};

/* CLOCK_MONOTONIC, in ns. */
uint64_t bench_now(void);

/* Waits; the wait status, or -errno. */
int bench_reap(pid_t pid);

#endif

/* The vfork baseline: `floor COUNT PROGRAM` runs the program with vfork, execve and wait4, with the caller's environment, and prints
 * the nanoseconds of each launch. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static long long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

int main(int argc, char **argv) {
    int count = argc > 2 ? atoi(argv[1]) : 0;
    for (int n = -1; n < count; n++) {
        long long start = now();
        pid_t pid = vfork();
        if (pid == 0) {
            execve(argv[2], argv + 2, environ);
            _exit(127);
        }
        int status;
        struct rusage usage;
        if (pid < 0 || wait4(pid, &status, 0, &usage) != pid || status != 0)
            return 1;
        if (n >= 0) /* the first one warms up */
            printf("%lld\n", now() - start);
    }
    return count > 0 ? 0 : 2;
}

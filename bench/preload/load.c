/* What a program pays that loads a library and starts no other program: runs a program with each library in turn, and prints the
 * medians of the wall time from vfork to the end.
 * load PROGRAM ROUNDS LIBRARY...   LIBRARY: an absolute path, or "none", which is the first one */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST 8

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int order(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    int rounds = argc > 3 ? atoi(argv[2]) : 0, count = argc - 3;
    if (rounds < 1 || count > MOST)
        return fprintf(stderr, "usage: load PROGRAM ROUNDS LIBRARY...\n"), 2;
    double *took[MOST];
    char variable[MOST][4096];
    for (int n = 0; n < count; n++) {
        took[n] = malloc((size_t)rounds * sizeof *took[n]);
        snprintf(variable[n], sizeof variable[n], "LD_PRELOAD=%s", argv[3 + n]);
    }
    /* One CPU: the program must not start on a cold one. */
    cpu_set_t last;
    CPU_ZERO(&last);
    CPU_SET((size_t)sysconf(_SC_NPROCESSORS_ONLN) - 1, &last);
    sched_setaffinity(0, sizeof last, &last);
    for (int round = 0; round < rounds; round++)
        for (int n = 0; n < count; n++) {
            char *environment[] = {variable[n], NULL}, *program[] = {argv[1], NULL};
            if (strcmp(argv[3 + n], "none") == 0)
                environment[0] = NULL;
            double begin = now();
            pid_t pid = vfork();
            if (pid == 0) {
                execve(argv[1], program, environment);
                _exit(127);
            }
            int status;
            if (waitpid(pid, &status, 0) != pid || status != 0)
                return fprintf(stderr, "%s with %s: status %x\n", argv[1], argv[3 + n], status), 1;
            took[n][round] = now() - begin;
        }
    double alone = 0;
    for (int n = 0; n < count; n++) {
        qsort(took[n], (size_t)rounds, sizeof *took[n], order);
        double median = took[n][rounds / 2];
        alone = n == 0 ? median : alone;
        const char *name = strrchr(argv[3 + n], '/');
        printf("%-28s %8.1f us  p99 %8.1f  added %6.1f\n", name ? name + 1 : argv[3 + n], median, took[n][rounds * 99 / 100], median - alone);
    }
    return 0;
}

/* Time of fork, and of vfork, in a process that grows by one MiB at a time.
 *
 *     growth untouched|touched STEPS NANOSECONDS LEAST
 *
 * Memory comes from malloc(3), a MiB at a time: "untouched" leaves it at that, "touched" writes to every page. The child only exits.
 * After each growth fork is called until so many nanoseconds have been used and LEAST are made, and then vfork as often; a line
 * has the median of each until the child has been reaped, in nanoseconds, the number of each, and the resident memory in KiB. */
#define _GNU_SOURCE
#include "timing.h"

#include <string.h>
#include <sys/prctl.h>

enum { MOST = 10000 };

static int64_t one(pid_t (*call)(void)) {
    int64_t start = clock_ns();
    must_end_with_0(call());
    return clock_ns() - start;
}

static pid_t by_fork(void) {
    pid_t pid = fork();
    if (pid == 0) _exit(0);
    return pid;
}

/* vfork's frame must not be returned from, so the child exits where it is. */
__attribute__((noinline)) static pid_t by_vfork(void) {
    pid_t pid = vfork();
    if (pid == 0) _exit(0);
    return pid;
}

static int smaller(const void *a, const void *b) {
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

static long resident(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file || fscanf(file, "%*s %ld", &pages) != 1) err(1, "/proc/self/statm");
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

int main(int argc, char **argv) {
    if (argc != 5) errx(2, "usage: growth untouched|touched STEPS NANOSECONDS LEAST");
    static int64_t forks[MOST], vforks[MOST];
    int touched = strcmp(argv[1], "touched") == 0;
    long long budget = atoll(argv[3]), least = atoll(argv[4]);
    /* Huge pages would hide what is measured; one call for all of the heap. */
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    one(by_fork);
    one(by_vfork);
    for (long step = atol(argv[2]); step > 0; step--) {
        char *memory = malloc(1 << 20);
        if (!memory) err(1, "memory");
        if (touched) touch(memory, 1 << 20);
        __asm__ volatile("" : : "r"(memory) : "memory"); /* not optimized away */
        int n = 0;
        for (int64_t end = clock_ns() + budget; n < MOST && (n < least || clock_ns() < end); n++) {
            forks[n] = one(by_fork);
        }
        one(by_vfork); /* it takes back the pages that fork has left to be copied on write */
        for (int i = 0; i < n; i++) vforks[i] = one(by_vfork);
        qsort(forks, n, sizeof *forks, smaller);
        qsort(vforks, n, sizeof *vforks, smaller);
        printf("%lld %lld %d %ld\n", (long long)forks[n / 2], (long long)vforks[n / 2], n, resident());
        fflush(stdout); /* or the children's copies would have it too */
    }
    return 0;
}

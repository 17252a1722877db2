/* Runs a runner once and measures it.
 *
 *     measure INPUT OUTPUT ERRORS WORDS...
 *
 * INPUT, OUTPUT and ERRORS are the runner's standard streams. Prints its wait status, wall time in nanoseconds, CPU time of the
 * runner and of everything that it has waited for in microseconds, CPU time of the runner alone in microseconds, the largest
 * resident size of any of these processes in KiB, and by how much the number of processes started on this machine has grown.
 *
 * The CPU time of the runner alone is that of all its threads, from /proc/PID/stat between its end and wait4, in ticks. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static long long nanoseconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

/* The line "processes" of /proc/stat: forks since boot. */
static long long processes(void) {
    char line[4096];
    long long count = -1;
    FILE *file = fopen("/proc/stat", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "processes %lld", &count) == 1) break;
    }
    if (file != NULL) fclose(file);
    return count;
}

/* User and system time of the ended process itself. */
static long long own_cpu(pid_t pid) {
    char path[64], text[4096];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    if (file == NULL) fail(path);
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = 0;
    /* The name of the program may contain blanks and parentheses. */
    char *rest = strrchr(text, ')');
    unsigned long long user, system;
    const char *format = ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu";
    if (rest == NULL || sscanf(rest, format, &user, &system) != 2) fail("stat");
    return (long long)((user + system) * (1000000 / (unsigned long long)sysconf(_SC_CLK_TCK)));
}

int main(int argc, char **argv) {
    if (argc < 5) {
        fprintf(stderr, "usage: measure INPUT OUTPUT ERRORS WORDS...\n");
        return 1;
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, argv[1], O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, argv[2], O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0666);
    posix_spawn_file_actions_addopen(&actions, 2, argv[3], O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0666);
    long long before = processes(), start = nanoseconds();
    pid_t pid;
    if (posix_spawnp(&pid, argv[4], &actions, NULL, argv + 4, environ) != 0) fail(argv[4]);
    siginfo_t info;
    if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) != 0) fail("waitid");
    long long wall = nanoseconds() - start, own = own_cpu(pid);
    int status;
    struct rusage usage;
    if (wait4(pid, &status, 0, &usage) != pid) fail("wait4");
    long long tree = (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000LL + usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
    printf("%d %lld %lld %lld %ld %lld\n", status, wall, tree, own, usage.ru_maxrss, processes() - before);
    return 0;
}

/* libc's functions and the preload library's, in turn in one process: `pairs LIBRARY TINY HELLO LAUNCHES`.

   Both are found by dlsym(3) in their own libraries, and called through pointers alike. A turn is a few launches of each; what is told of
   a way is the median of its launches, and the median over the turns of its ratio to libc's. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
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

struct library {
    int (*system)(const char *);
    FILE *(*popen)(const char *, const char *);
    int (*pclose)(FILE *);
    __typeof__(posix_spawn) *spawn;
};

static struct library libc, ours;
static const char *tiny, *hello;

static void die(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static void *find(void *library, const char *name) {
    void *function = dlsym(library, name);
    if (!function)
        die(name);
    return function;
}

static struct library load(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    struct library found;
    *(void **)&found.system = find(library, "system");
    *(void **)&found.popen = find(library, "popen");
    *(void **)&found.pclose = find(library, "pclose");
    *(void **)&found.spawn = find(library, "posix_spawn");
    return found;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

/* One launch, from its start until the child has been reaped. */
typedef void launch(const struct library *);

static void by_vfork(const struct library *library) {
    (void)library;
    char *argv[] = {(char *)tiny, NULL};
    pid_t pid = vfork();
    if (!pid) {
        execve(tiny, argv, environ);
        _exit(127);
    }
    int status;
    if (waitpid(pid, &status, 0) != pid || status)
        die("vfork");
}

static void by_system(const struct library *library) {
    if (library->system(tiny))
        die("system");
}

static void by_popen(const struct library *library) {
    char text[32] = "";
    FILE *stream = library->popen(hello, "r");
    if (!stream || !fgets(text, sizeof text, stream) || strcmp(text, "Hello, world!\n") || library->pclose(stream))
        die("popen");
}

static void spawned(const struct library *library, const posix_spawn_file_actions_t *actions) {
    char *argv[] = {(char *)tiny, NULL};
    pid_t pid;
    int status;
    if (library->spawn(&pid, tiny, actions, NULL, argv, environ) || waitpid(pid, &status, 0) != pid || status)
        die("posix_spawn");
}

static void by_spawn(const struct library *library) {
    spawned(library, NULL);
}

static void by_spawn_closefrom(const struct library *library) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    spawned(library, &actions);
    posix_spawn_file_actions_destroy(&actions);
}

static int by_size(const void *one, const void *other) {
    double difference = *(const double *)one - *(const double *)other;
    return (difference > 0) - (difference < 0);
}

static double quantile(double *numbers, int count, double part) {
    qsort(numbers, (size_t)count, sizeof *numbers, by_size);
    return numbers[(int)(part * (count - 1))];
}

enum { TURN = 5 };

/* The floor, libc's and ours in turn. */
static void compare(const char *what, launch *way, int launches) {
    static const struct library *const libraries[] = {NULL, &libc, &ours};
    int turns = launches / TURN > 2 ? launches / TURN : 2;
    double *times[3], *ratios = malloc(sizeof *ratios * (size_t)turns);
    for (int n = 0; n < 3; n++)
        times[n] = malloc(sizeof(double) * (size_t)(turns * TURN));
    for (int n = 1; n < 3; n++)
        way(libraries[n]);
    for (int turn = 0; turn < turns; turn++) {
        double medians[3];
        for (int n = 0; n < 3; n++) {
            /* Nobody always follows the same one. */
            int who = turn % 2 ? 2 - n : n;
            double *mine = times[who] + turn * TURN, sorted[TURN];
            for (int at = 0; at < TURN; at++) {
                double before = now();
                (who ? way : by_vfork)(libraries[who]);
                mine[at] = now() - before;
            }
            memcpy(sorted, mine, sizeof sorted);
            medians[who] = quantile(sorted, TURN, 0.5);
        }
        ratios[turn] = medians[2] / medians[1];
    }
    printf("%-40s", what);
    for (int n = 0; n < 3; n++)
        printf("%10.1f%10.1f", quantile(times[n], turns * TURN, 0.5), quantile(times[n], turns * TURN, 0.99));
    printf("%10.3f\n", quantile(ratios, turns, 0.5));
    fflush(stdout);
    for (int n = 0; n < 3; n++)
        free(times[n]);
    free(ratios);
}

/* So many streams of either library at a time; what one more costs. */
static void with_streams(int count, int launches) {
    FILE **streams = malloc(sizeof *streams * (size_t)count);
    const struct library *libraries[] = {&libc, &ours};
    for (int n = 0; n < count; n++)
        if (!(streams[n] = libraries[n >= count / 2]->popen(tiny, "r")))
            die("popen of many");
    char what[64];
    snprintf(what, sizeof what, "popen beside %d streams of each", count / 2);
    compare(what, by_popen, launches);
    for (int n = 0; n < count; n++)
        libraries[n >= count / 2]->pclose(streams[n]);
    free(streams);
}

int main(int argc, char **argv) {
    if (argc < 5) {
        fprintf(stderr, "usage: pairs LIBRARY TINY HELLO LAUNCHES\n");
        return 2;
    }
    tiny = argv[2];
    hello = argv[3];
    int launches = atoi(argv[4]);
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    libc = load("libc.so.6");
    ours = load(argv[1]);
    printf("%-40s%20s%20s%20s%10s\n%-40s%10s%10s%10s%10s%10s%10s%10s\n", "", "floor µs", "libc µs", "forkless µs", "", "", "p50", "p99",
           "p50", "p99", "p50", "p99", "ratio");
    compare("posix_spawn", by_spawn, launches);
    compare("posix_spawn, closefrom", by_spawn_closefrom, launches);
    compare("system(\"tiny\")", by_system, launches);
    compare("popen, read, pclose", by_popen, launches);
    int streams = limit.rlim_cur > 6000 ? 10000 : (int)limit.rlim_cur / 4;
    if ((rlim_t)streams + 100 > limit.rlim_cur)
        streams = (int)limit.rlim_cur - 200;
    with_streams(streams, launches / 50);

    int files = limit.rlim_cur > 15100 ? 15000 : (int)limit.rlim_cur - 100;
    for (int n = 0; n < files; n++)
        if (open("/dev/null", O_RDONLY | O_CLOEXEC) < 0)
            die("open");
    char what[64];
    snprintf(what, sizeof what, "posix_spawn, %d descriptors", files);
    compare(what, by_spawn, launches / 10);
    snprintf(what, sizeof what, "posix_spawn, closefrom, %d descriptors", files);
    compare(what, by_spawn_closefrom, launches / 10);
    return 0;
}

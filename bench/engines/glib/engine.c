/* The GLib engine of `forkless bench`: g_spawn_async and waitpid. The protocol is in ../README.md. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static FILE *answers;
static char **command;
static GSpawnFlags flags = G_SPAWN_DO_NOT_REAP_CHILD | G_SPAWN_CHILD_INHERITS_STDIN;
static unsigned crowd = 1; /* threads that launch at once */
static pthread_barrier_t barrier; /* for them and the main thread */
/* When the launches began that are counted. */
static int64_t cpu_before, begun;

/* What one thread is to launch in a turn, and what came of it. */
struct run {
    int64_t limit, fewest, most;
    GArray *samples;
    GThread *thread;
};

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static int64_t cpu_ns(void)
{
    static const int whose[] = {RUSAGE_SELF, RUSAGE_CHILDREN};
    int64_t sum = 0;
    for (int i = 0; i < 2; i++) {
        struct rusage usage;
        getrusage(whose[i], &usage);
        sum += (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * INT64_C(1000000000);
        sum += (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * INT64_C(1000);
    }
    return sum;
}

/* Its lock is never given back: the first thread that fails has the last word. */
static _Noreturn void fail(const char *what, const char *why)
{
    flockfile(answers);
    fprintf(answers, "failed %s: %s\n", what, why);
    fflush(answers);
    _exit(1);
}

static void launch(int64_t sample[2])
{
    GPid pid;
    GError *error = NULL;
    int status;
    int64_t start = now();
    if (!g_spawn_async(NULL, command, NULL, flags, NULL, NULL, &pid, &error))
        fail("not launched", error->message);
    sample[0] = now() - start;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            fail("waitpid", strerror(errno));
    g_spawn_close_pid(pid);
    sample[1] = now() - start;
    if (!g_spawn_check_wait_status(status, &error))
        fail("the program did not exit with 0", error->message);
}

static void begin(void)
{
    cpu_before = cpu_ns();
    begun = now();
}

static void launches(struct run *run)
{
    int64_t sample[2], start = now();
    for (int64_t n = 0; n < run->most && (n < run->fewest || now() - start < run->limit); n++) {
        launch(sample);
        g_array_append_val(run->samples, sample);
    }
}

static void run_alone(struct run *run)
{
    int64_t uncounted[2];
    launch(uncounted);
    begin();
    launches(run);
}

static gpointer run_thread(gpointer data)
{
    int64_t uncounted[2];
    launch(uncounted);
    /* Once when all are ready, and once when it is known what time that was. */
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    launches(data);
    return NULL;
}

static void run_threads(struct run *runs)
{
    GError *error = NULL;
    if (pthread_barrier_init(&barrier, NULL, crowd + 1) != 0)
        fail("threads", "no barrier");
    for (unsigned i = 0; i < crowd; i++)
        if (!(runs[i].thread = g_thread_try_new("launcher", run_thread, &runs[i], &error)))
            fail("threads", error->message);
    pthread_barrier_wait(&barrier);
    begin();
    pthread_barrier_wait(&barrier);
    for (unsigned i = 0; i < crowd; i++)
        g_thread_join(runs[i].thread);
    pthread_barrier_destroy(&barrier);
}

static void turn(int64_t limit, int64_t fewest, int64_t most)
{
    struct run *runs = g_new0(struct run, crowd);
    for (unsigned i = 0; i < crowd; i++)
        runs[i] = (struct run){limit, fewest, most, g_array_new(FALSE, FALSE, 2 * sizeof(int64_t)), NULL};
    if (crowd == 1)
        run_alone(runs);
    else
        run_threads(runs);
    int64_t wall = now() - begun;
    fprintf(answers, "done %lld %lld", (long long)wall, (long long)(cpu_ns() - cpu_before));
    for (unsigned i = 0; i < crowd; i++) {
        const int64_t *figures = (const int64_t *)runs[i].samples->data;
        fputs(i > 0 ? " |" : "", answers);
        for (guint j = 0; j < 2 * runs[i].samples->len; j++)
            fprintf(answers, " %lld", (long long)figures[j]);
        g_array_free(runs[i].samples, TRUE);
    }
    fprintf(answers, "\n");
    g_free(runs);
}

static void touch(size_t length)
{
    volatile char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        fail("memory", strerror(errno));
    for (size_t offset = 0; offset < length; offset += 4096)
        memory[offset] = 1;
}

static void answer(const char *request)
{
    long long a, b, c;
    if (sscanf(request, "turn %lld %lld %lld", &a, &b, &c) == 3) {
        turn(a, b, c);
        return;
    }
    if (sscanf(request, "memory %lld", &a) == 1)
        touch((size_t)a << 20);
    else if (sscanf(request, "threads %lld", &a) == 1 && a > 0 && a < G_MAXINT)
        crowd = (unsigned)a;
    else if (strcmp(request, "plain\n") != 0)
        fail("unknown request", request);
    fprintf(answers, "ok\n");
}

int main(int argc, char **argv)
{
    char *line = NULL;
    size_t room = 0;
    if (argc < 2) {
        fprintf(stderr, "usage: engine PROGRAM [ARGS]...; requests at 3, answers at 4\n");
        return 2;
    }
    FILE *requests = fdopen(3, "r");
    answers = fdopen(4, "w");
    if (!requests || !answers || fcntl(3, F_SETFD, FD_CLOEXEC) != 0 || fcntl(4, F_SETFD, FD_CLOEXEC) != 0)
        return 2;
    command = argv + 1;
    if (!strchr(argv[1], '/'))
        flags |= G_SPAWN_SEARCH_PATH;
    fprintf(answers, "forkless-engine 2 %u.%u.%u threads\n", glib_major_version, glib_minor_version, glib_micro_version);
    fflush(answers);
    while (getline(&line, &room, requests) > 0) {
        answer(line);
        fflush(answers);
    }
    return 0;
}

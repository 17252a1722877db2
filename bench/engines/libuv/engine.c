/* The libuv engine of `forkless bench`: uv_spawn and its event loop. The protocol is in ../README.md. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

struct child {
    uv_process_t process; /* first: libuv's pointer to it is one to us */
    size_t index;         /* in `children` */
    int ended;
    int64_t status;
    int signal;
};

/* What one thread is to launch in a turn, and what came of it. */
struct run {
    int64_t limit, fewest, most;
    int64_t (*samples)[2];
    int64_t count;
    uv_thread_t thread;
};

static FILE *answers;
static uv_loop_t *loop; /* the main thread's; each of the others has its own */
static uv_process_options_t options;
static uv_stdio_container_t stdio[3];
static struct child **children;
static size_t count;
static struct child *last_ended;
static unsigned crowd = 1; /* threads that launch at once */
static uv_barrier_t barrier; /* for them and the main thread */
/* When the launches began that are counted. */
static int64_t cpu_before, begun;

/* Its lock is never given back: the first thread that fails has the last word. */
static _Noreturn void fail(const char *what, int error)
{
    flockfile(answers);
    fprintf(answers, "failed %s%s%s\n", what, error ? ": " : "", error ? uv_strerror(error) : "");
    fflush(answers);
    _exit(1);
}

static int64_t clock_ns(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
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

/* ---- one launch after the other ------------------------------------------------------------------------------ */

static void on_exit_close(uv_process_t *process, int64_t status, int signal)
{
    struct child *child = (struct child *)process;
    child->status = status;
    child->signal = signal;
    uv_close((uv_handle_t *)process, NULL);
}

static void launch(uv_loop_t *on, int64_t sample[2])
{
    struct child child = {.status = -1};
    int64_t start = clock_ns(CLOCK_MONOTONIC);
    int error = uv_spawn(on, &child.process, &options);
    sample[0] = clock_ns(CLOCK_MONOTONIC) - start;
    if (error)
        fail("not launched", error);
    uv_run(on, UV_RUN_DEFAULT);
    sample[1] = clock_ns(CLOCK_MONOTONIC) - start;
    if (child.status != 0 || child.signal != 0) {
        char what[96];
        snprintf(what, sizeof what, "the program did not exit with 0 but with %d, signal %d", (int)child.status, child.signal);
        fail(what, 0);
    }
}

static void begin(void)
{
    cpu_before = cpu_ns();
    begun = clock_ns(CLOCK_MONOTONIC);
}

static void launches(uv_loop_t *on, struct run *run)
{
    int64_t start = clock_ns(CLOCK_MONOTONIC), room = 0;
    for (int64_t n = 0; n < run->most && (n < run->fewest || clock_ns(CLOCK_MONOTONIC) - start < run->limit); n++) {
        if (n == room && !(run->samples = realloc(run->samples, (room = 2 * room + 64) * sizeof *run->samples)))
            fail("memory", UV_ENOMEM);
        launch(on, run->samples[n]);
        run->count++;
    }
}

static void run_alone(struct run *run)
{
    int64_t uncounted[2];
    launch(loop, uncounted);
    begin();
    launches(loop, run);
}

static void run_thread(void *run)
{
    uv_loop_t own;
    int64_t uncounted[2];
    int error = uv_loop_init(&own);
    if (error)
        fail("loop", error);
    launch(&own, uncounted);
    /* Once when all are ready, and once when it is known what time that was. */
    uv_barrier_wait(&barrier);
    uv_barrier_wait(&barrier);
    launches(&own, run);
    if ((error = uv_loop_close(&own)))
        fail("loop", error);
}

static void run_threads(struct run *runs)
{
    int error = uv_barrier_init(&barrier, crowd + 1);
    for (unsigned i = 0; i < crowd && !error; i++)
        error = uv_thread_create(&runs[i].thread, run_thread, &runs[i]);
    if (error)
        fail("threads", error);
    uv_barrier_wait(&barrier);
    begin();
    uv_barrier_wait(&barrier);
    for (unsigned i = 0; i < crowd; i++)
        uv_thread_join(&runs[i].thread);
    uv_barrier_destroy(&barrier);
}

static void turn(int64_t limit, int64_t fewest, int64_t most)
{
    struct run *runs = calloc(crowd, sizeof *runs);
    if (!runs)
        fail("memory", UV_ENOMEM);
    for (unsigned i = 0; i < crowd; i++)
        runs[i] = (struct run){.limit = limit, .fewest = fewest, .most = most};
    if (crowd == 1)
        run_alone(runs);
    else
        run_threads(runs);
    int64_t wall = clock_ns(CLOCK_MONOTONIC) - begun;
    fprintf(answers, "done %lld %lld", (long long)wall, (long long)(cpu_ns() - cpu_before));
    for (unsigned i = 0; i < crowd; i++) {
        fputs(i > 0 ? " |" : "", answers);
        for (int64_t j = 0; j < runs[i].count; j++)
            fprintf(answers, " %lld %lld", (long long)runs[i].samples[j][0], (long long)runs[i].samples[j][1]);
        free(runs[i].samples);
    }
    fprintf(answers, "\n");
    free(runs);
}

/* ---- many children alive ------------------------------------------------------------------------------------- */

static void on_close_free(uv_handle_t *handle)
{
    free(handle);
}

static void on_exit_remove(uv_process_t *process, int64_t status, int signal)
{
    struct child *child = (struct child *)process;
    (void)status;
    if (signal != SIGKILL)
        fail("a child ended by itself", 0);
    children[child->index] = children[--count];
    children[child->index]->index = child->index;
    last_ended = child;
    uv_close((uv_handle_t *)process, on_close_free);
}

/* Children read from a pipe that only we can write to, so that they end when we do. */
static void alive(size_t wanted)
{
    static int ends[2] = {-1, -1};
    if (ends[0] < 0 && pipe2(ends, O_CLOEXEC) != 0)
        fail("pipe", -errno);
    stdio[0].data.fd = ends[0];
    options.exit_cb = on_exit_remove;
    if (wanted > count && !(children = realloc(children, wanted * sizeof *children)))
        fail("memory", UV_ENOMEM);
    while (count < wanted) {
        struct child *child = calloc(1, sizeof *child);
        int error = child ? uv_spawn(loop, &child->process, &options) : UV_ENOMEM;
        if (error)
            fail("not launched", error);
        child->index = count;
        children[count++] = child;
    }
    for (size_t i = wanted; i < count; i++)
        uv_process_kill(&children[i]->process, SIGKILL);
    while (count > wanted)
        uv_run(loop, UV_RUN_ONCE);
}

static void exits(size_t wanted)
{
    fprintf(answers, "done");
    for (size_t i = 0; i < wanted; i++) {
        if (count == 0)
            fail("no child is left", 0);
        struct child *victim = children[(i * 7919 + 13) % count];
        last_ended = NULL;
        int64_t start = clock_ns(CLOCK_MONOTONIC);
        uv_process_kill(&victim->process, SIGKILL);
        int64_t cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
        while (!last_ended)
            uv_run(loop, UV_RUN_ONCE);
        cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
        int64_t wall = clock_ns(CLOCK_MONOTONIC) - start;
        if (last_ended != victim)
            fail("another child ended", 0);
        fprintf(answers, " %lld %lld", (long long)cpu, (long long)wall);
    }
    fprintf(answers, "\n");
}

/* ---- the protocol -------------------------------------------------------------------------------------------- */

static void touch(size_t length)
{
    volatile char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        fail("memory", -errno);
    for (size_t offset = 0; offset < length; offset += 4096)
        memory[offset] = 1;
}

static void answer(const char *request)
{
    long long a, b, c;
    if (sscanf(request, "memory %lld", &a) == 1) {
        touch((size_t)a << 20);
        fprintf(answers, "ok\n");
    } else if (sscanf(request, "threads %lld", &a) == 1 && a > 0 && a < INT32_MAX) {
        crowd = (unsigned)a;
        fprintf(answers, "ok\n");
    } else if (strcmp(request, "plain\n") == 0) {
        options.flags &= ~(unsigned)(UV_PROCESS_SETUID | UV_PROCESS_SETGID);
        fprintf(answers, "ok\n");
    } else if (sscanf(request, "ids %lld %lld", &a, &b) == 2) {
        options.flags |= UV_PROCESS_SETUID | UV_PROCESS_SETGID;
        options.uid = (uv_uid_t)a;
        options.gid = (uv_gid_t)b;
        fprintf(answers, "ok\n");
    } else if (sscanf(request, "turn %lld %lld %lld", &a, &b, &c) == 3) {
        turn(a, b, c);
    } else if (sscanf(request, "alive %lld", &a) == 1) {
        alive((size_t)a);
        fprintf(answers, "ok\n");
    } else if (sscanf(request, "exits %lld", &a) == 1) {
        exits((size_t)a);
    } else {
        fail("unknown request", 0);
    }
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
    loop = uv_default_loop();
    for (int i = 0; i < 3; i++) {
        stdio[i].flags = UV_INHERIT_FD;
        stdio[i].data.fd = i;
    }
    options.file = argv[1];
    options.args = argv + 1;
    options.stdio = stdio;
    options.stdio_count = 3;
    options.exit_cb = on_exit_close;
    fprintf(answers, "forkless-engine 2 %s ids threads alive\n", uv_version_string());
    fflush(answers);
    while (getline(&line, &room, requests) > 0) {
        answer(line);
        fflush(answers);
    }
    /* Ends the children with us. */
    return 0;
}

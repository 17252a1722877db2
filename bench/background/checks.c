/* A monitoring server's scheduler: starts so many checks a second, takes the line that each prints, and reaps it.
 *
 *     checks WAY SECONDS RATE MEBIBYTES EXPECTED LINE
 *
 * LINE is a command as for popen(3); what it prints must be the line EXPECTED. The process has so much memory, every page written to.
 * "forked popen" is a server that forks itself for each check, forks again so that it need not wait, and calls popen there;
 * "forked popen_noshell" the same with another popen. The rest start the check from the server itself and read many at once.
 * On standard output come the wall, user and system time in nanoseconds, of this process and its children, and the number of checks. */
#define _GNU_SOURCE
#include "timing.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <popen_noshell.h>
#include <string.h>

/* What may run at once; when all are taken the next check waits, and the rate is not kept. */
enum { AT_ONCE = 256 };

struct check {
    FILE *stream;
    pid_t pid; /* of a forked server; else 0 */
    struct popen_noshell_pass_to_pclose arg;
};

static struct check checks[AT_ONCE];
static int running;
static const char *expected, *line;

static void take_line(FILE *stream) {
    char text[256];
    int lines = 0;
    while (fgets(text, sizeof text, stream)) {
        text[strcspn(text, "\n")] = 0;
        if (strcmp(text, expected) != 0) errx(1, "answer: %s", text);
        lines++;
    }
    if (lines != 1) errx(1, "%d lines", lines);
}

static FILE *start_popen(struct check *check) {
    (void)check;
    return popen(line, "re");
}

static int end_popen(struct check *check) { return pclose(check->stream); }

static FILE *start_noshell(struct check *check) { return popen_noshell_compat(line, "r", &check->arg); }

static int end_noshell(struct check *check) { return pclose_noshell(&check->arg); }

static const struct way {
    const char *name;
    FILE *(*start)(struct check *);
    int (*end)(struct check *);
    int forked;
} ways[] = {
    {"forked popen", start_popen, end_popen, 1},
    {"forked popen_noshell", start_noshell, end_noshell, 1},
    {"popen", start_popen, end_popen, 0},
    {"popen_noshell", start_noshell, end_noshell, 0},
};

static void take(const struct way *way, struct check *check) {
    take_line(check->stream);
    if (way->end(check) != 0) errx(1, "a check failed");
}

static void start(const struct way *way) {
    struct check *check = &checks[running];
    check->pid = 0;
    if (!way->forked) {
        check->stream = way->start(check);
        if (!check->stream) err(1, "a check");
        running++;
        return;
    }
    check->pid = fork();
    if (check->pid < 0) err(1, "fork");
    if (check->pid == 0) {
        pid_t worker = fork();
        if (worker < 0) err(1, "fork");
        if (worker == 0) {
            check->stream = way->start(check);
            if (!check->stream) err(1, "a check");
            take(way, check);
            _exit(0);
        }
        /* A server lets go of the worker here; this one waits, so that its processor time is counted. */
        must_end_with_0(worker);
        _exit(0);
    }
    running++;
}

static void forget(int n) { checks[n] = checks[--running]; }

static int reap_forked(void) {
    int done = 0, status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        int n = 0;
        while (n < running && checks[n].pid != pid) n++;
        if (n == running || status != 0) errx(1, "worker %d: status %d", pid, status);
        forget(n);
        done++;
    }
    return done;
}

static void pause_until(int64_t due) {
    int64_t left = due - clock_ns();
    if (left <= 0) return;
    struct timespec time = {left / 1000000000, left % 1000000000};
    nanosleep(&time, NULL);
}

/* Waits until `due` or for what comes of the checks that run; answers with how many ended. */
static int look(const struct way *way, int64_t due) {
    if (way->forked) {
        int64_t soon = clock_ns() + 500000;
        pause_until(due < soon ? due : soon);
        return reap_forked();
    }
    struct pollfd fds[AT_ONCE];
    for (int n = 0; n < running; n++) fds[n] = (struct pollfd){fileno(checks[n].stream), POLLIN, 0};
    int64_t left = due - clock_ns();
    struct timespec time = {left > 0 ? left / 1000000000 : 0, left > 0 ? left % 1000000000 : 0};
    int done = 0, ready = ppoll(fds, running, &time, NULL);
    if (ready < 0 && errno != EINTR) err(1, "ppoll");
    /* From the last on: whoever is moved into a gap has been looked at. */
    for (int n = running - 1; ready > 0 && n >= 0; n--) {
        if (!fds[n].revents) continue;
        take(way, &checks[n]);
        forget(n);
        done++;
    }
    return done;
}

int main(int argc, char **argv) {
    if (argc != 7) errx(2, "usage: checks WAY SECONDS RATE MEBIBYTES EXPECTED LINE");
    size_t way = 0, ways_there = sizeof ways / sizeof *ways, size = strtoul(argv[4], NULL, 10) << 20;
    while (way < ways_there && strcmp(ways[way].name, argv[1]) != 0) way++;
    if (way == ways_there) errx(2, "no such way: %s", argv[1]);
    double seconds = atof(argv[2]), rate = atof(argv[3]);
    expected = argv[5];
    line = argv[6];
    if (size) touch(map(size), size);
    start(&ways[way]); /* what is set up once is not timed */
    while (running) look(&ways[way], clock_ns() + 1000000);
    long done = 0, started = 0;
    struct times before = times_now();
    int64_t end = before.wall + (int64_t)(seconds * 1e9);
    for (int64_t now = before.wall; now < end; now = clock_ns()) {
        /* A check that is late is started at once, but none is made up for whose turn a full house let pass. */
        int64_t due = before.wall + (int64_t)(started * 1e9 / rate);
        if (now >= due && running < AT_ONCE) {
            start(&ways[way]);
            started++;
        }
        due = before.wall + (int64_t)(started * 1e9 / rate);
        done += look(&ways[way], running == AT_ONCE ? now + 1000000 : due);
    }
    while (running) done += look(&ways[way], clock_ns() + 1000000);
    struct times after = times_now();
    printf("%lld %lld %lld %ld\n", (long long)(after.wall - before.wall), (long long)(after.user - before.user),
           (long long)(after.system - before.system), done);
    return 0;
}

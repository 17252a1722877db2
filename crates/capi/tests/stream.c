/* Tests of forkless_popen, forkless_popenv, forkless_popen2 and forkless_pclose. */
#include "check.h"
#include <sys/utsname.h>

static void expect_line(FILE *stream, const char *line) {
    char buffer[256] = "";
    CHECK(stream != NULL);
    CHECK(fgets(buffer, sizeof buffer, stream) != NULL);
    if (strcmp(buffer, line) != 0) {
        fprintf(stderr, "\"%s\", not \"%s\"\n", buffer, line);
        exit(1);
    }
}

static void reads_and_writes(void) {
    FILE *stream = forkless_popen("echo hello; exit 3", "r");
    expect_line(stream, "hello\n");
    CHECK(fcntl(fileno(stream), F_GETFD) & FD_CLOEXEC);
    EXPECT(3 << 8, forkless_pclose(stream));

    char path[] = "/tmp/forkless-capi-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    char line[128];
    snprintf(line, sizeof line, "cat >%s", path);
    stream = forkless_popen(line, "we");
    CHECK(stream != NULL && fputs("written\n", stream) >= 0);
    EXPECT(0, forkless_pclose(stream));
    char buffer[32] = "";
    EXPECT(8, read(fd, buffer, sizeof buffer));
    CHECK(strcmp(buffer, "written\n") == 0);
    close(fd), unlink(path);
    /* A command line that looks like an option; an empty one. */
    stream = forkless_popen("-x 2>/dev/null", "r");
    EXPECT(127 << 8, forkless_pclose(stream));
    stream = forkless_popen("", "r");
    EXPECT(0, forkless_pclose(stream));
}

static void argv_form(void) {
    char *both[] = {"sh", "-c", "echo err >&2; echo out", NULL};
    FILE *stream = forkless_popenv(both, "r", FORKLESS_STDERR_MERGE);
    expect_line(stream, "err\n");
    expect_line(stream, "out\n");
    EXPECT(0, forkless_pclose(stream));
    stream = forkless_popenv(both, "r", FORKLESS_STDERR_NULL);
    expect_line(stream, "out\n");
    EXPECT(0, forkless_pclose(stream));
    char *words[] = {"printf", "%s|", "", "a b", "*", NULL};
    stream = forkless_popenv(words, "r", FORKLESS_STDERR_INHERIT);
    expect_line(stream, "|a b|*|");
    EXPECT(0, forkless_pclose(stream));
    /* The failure is reported at once. */
    char *missing[] = {"/no/such/program", NULL}, *none[] = {NULL};
    errno = 0;
    CHECK(forkless_popenv(missing, "r", 0) == NULL && errno == ENOENT);
    CHECK(forkless_popenv(none, "r", 0) == NULL && errno == EINVAL);
    CHECK(forkless_popenv(words, "r", 9) == NULL && errno == EINVAL);
}

static void both_directions(void) {
    char *argv[] = {"tr", "a-z", "A-Z", NULL};
    FILE *to = NULL, *from = NULL;
    EXPECT(0, forkless_popen2(argv, 0, &to, &from));
    CHECK(fputs("hello\n", to) >= 0);
    EXPECT(0, fclose(to));
    expect_line(from, "HELLO\n");
    EXPECT(0, forkless_pclose(from));
    EXPECT(-EINVAL, forkless_popen2(argv, 0, NULL, &from));
    char *missing[] = {"/no/such/program", NULL};
    to = from = NULL;
    EXPECT(-ENOENT, forkless_popen2(missing, 0, &to, &from));
    CHECK(to == NULL && from == NULL);
}

static void bad_input(void) {
    errno = 0;
    CHECK(forkless_popen("true", "x") == NULL && errno == EINVAL);
    CHECK(forkless_popen("true", "rw") == NULL && errno == EINVAL);
    CHECK(forkless_popen("true", NULL) == NULL && errno == EINVAL);
    CHECK(forkless_popen(NULL, "r") == NULL && errno == EINVAL);
    errno = 0;
    EXPECT(-1, forkless_pclose(NULL));
    EXPECT(EINVAL, errno);
    FILE *foreign = fopen("/dev/null", "r");
    errno = 0;
    EXPECT(-1, forkless_pclose(foreign));
    EXPECT(EINVAL, errno);
    EXPECT(EOF, fgetc(foreign));
    EXPECT(0, fclose(foreign));
}

/* A later program does not inherit an earlier stream: the first program sees end of file while the second one runs. */
static void streams_are_not_inherited_by_later_programs(void) {
    FILE *first = forkless_popen("cat >/dev/null", "w");
    FILE *second = forkless_popen("exec cat", "w");
    CHECK(first != NULL && second != NULL);
    EXPECT(0, forkless_pclose(first));
    EXPECT(0, forkless_pclose(second));
    /* The program has no other open descriptors. (ls itself opens one more.) */
    int plain = dup(0);
    CHECK(plain >= 0);
    FILE *stream = forkless_popen("ls /proc/self/fd | wc -l", "r");
    expect_line(stream, "4\n");
    EXPECT(0, forkless_pclose(stream));
    close(plain);
}

static void closed_by_fclose(void) {
    FILE *wrong = forkless_popen("true", "r");
    int fd = fileno(wrong);
    fclose(wrong);
    /* Another stream with the same descriptor, but not the same address, is not a stream of this library. */
    FILE *place = fopen("/dev/null", "r");
    EXPECT(fd, fileno(place));
    int moved = dup(fd);
    CHECK(moved >= 0);
    close(fd);
    FILE *plain = fopen("/dev/null", "r");
    EXPECT(fd, fileno(plain));
    errno = 0;
    EXPECT(-1, forkless_pclose(plain));
    EXPECT(EINVAL, errno);
    EXPECT(EOF, fgetc(plain));
    EXPECT(0, fclose(plain));
    EXPECT(fd, dup2(moved, fd));
    close(moved);
    EXPECT(0, fclose(place));
    FILE *next = forkless_popen("exit 4", "r");
    EXPECT(fd, fileno(next));
    EXPECT(4 << 8, forkless_pclose(next));
}

/* Many streams at once, with descriptors around 1024, closed in another order. */
static void many_streams(void) {
    enum { STREAMS = 60, BELOW = 1000 };
    struct rlimit old, more;
    getrlimit(RLIMIT_NOFILE, &old);
    more = old, more.rlim_cur = 4096;
    if (old.rlim_max < 4096) {
        printf("SKIPPED: many streams of a C program because the limit of descriptors is %ld\n", (long)old.rlim_max);
        return;
    }
    setrlimit(RLIMIT_NOFILE, &more);
    int fds[BELOW], count = 0;
    while (count < BELOW && (fds[count] = dup(0)) >= 0 && fds[count] < BELOW) count++;
    FILE *streams[STREAMS];
    char *argv[] = {"sh", "-c", "read word; exit $word", NULL};
    for (int n = 0; n < STREAMS; n++) {
        CHECK((streams[n] = forkless_popenv(argv, "w", 0)) != NULL);
        CHECK(fprintf(streams[n], "%d\n", n) > 0);
    }
    CHECK(fileno(streams[STREAMS - 1]) > 1024);
    for (int n = 0; n < STREAMS; n++) {
        int other = n * 7 % STREAMS;
        EXPECT(other << 8, forkless_pclose(streams[other]));
    }
    if (count < BELOW) close(fds[count]);
    while (count > 0) close(fds[--count]);
    setrlimit(RLIMIT_NOFILE, &old);
}

static void interrupted(void) {
    struct sigaction action, old;
    memset(&action, 0, sizeof action);
    action.sa_handler = count_alarm;
    sigaction(SIGALRM, &action, &old);
    struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    char line[128];
    hold(line, sizeof line, "exit 5");
    FILE *stream = forkless_popen(line, "r");
    setitimer(ITIMER_REAL, &often, NULL);
    int status = forkless_pclose(stream);
    setitimer(ITIMER_REAL, &never, NULL);
    EXPECT(5 << 8, status);
    EXPECT(0, unlink(held_until));
    sigaction(SIGALRM, &old, NULL);
}

static void *many(void *argument) {
    long thread = (long)argument;
    for (int n = 0; n < 50; n++) {
        char line[64], want[64];
        snprintf(line, sizeof line, "echo %ld.%d; exit %d", thread, n, n);
        snprintf(want, sizeof want, "%ld.%d\n", thread, n);
        FILE *stream = forkless_popen(line, "r");
        expect_line(stream, want);
        EXPECT(n << 8, forkless_pclose(stream));
    }
    return NULL;
}

static void in_threads(void) {
    pthread_t threads[4];
    for (long n = 0; n < 4; n++) EXPECT(0, pthread_create(&threads[n], NULL, many, (void *)n));
    for (int n = 0; n < 4; n++) EXPECT(0, pthread_join(threads[n], NULL));
}

/* With SIGCHLD ignored the kernel reaps children: a pidfd keeps the status (Linux 6.15), or it is reported as lost. */
static void sigchld_ignored(void) {
    signal(SIGCHLD, SIG_IGN);
    FILE *stream = forkless_popen("exit 6", "r");
    errno = 0;
    int status = forkless_pclose(stream);
    struct utsname kernel;
    int major = 0, minor = 0;
    CHECK(uname(&kernel) == 0 && sscanf(kernel.release, "%d.%d", &major, &minor) == 2);
    int keeps = major > 6 || (major == 6 && minor >= 15);
    CHECK(status == 6 << 8 || (!keeps && status == -1 && errno == ECHILD));
    signal(SIGCHLD, SIG_DFL);
}

/* A forked process cannot close the stream: the child is not its child. */
static void forked_copy(void) {
    FILE *stream = forkless_popen("exit 7", "r");
    pid_t pid = fork();
    if (pid == 0) {
        errno = 0;
        int gone = forkless_pclose(stream) == -1 && errno == ECHILD;
        FILE *own = forkless_popen("exit 8", "r");
        _exit(gone && forkless_pclose(own) == 8 << 8 ? 0 : 1);
    }
    int status;
    EXPECT(pid, waitpid(pid, &status, 0));
    EXPECT(0, status);
    EXPECT(7 << 8, forkless_pclose(stream));
}

static void no_descriptors_left(void) {
    struct rlimit old, few;
    getrlimit(RLIMIT_NOFILE, &old);
    few = old;
    int free_fd = dup(0);
    close(free_fd);
    few.rlim_cur = (rlim_t)free_fd + 1; /* one, and a pipe takes two */
    setrlimit(RLIMIT_NOFILE, &few);
    errno = 0;
    CHECK(forkless_popen("true", "r") == NULL && errno == EMFILE);
    setrlimit(RLIMIT_NOFILE, &old);
}

/* With all standard streams closed, a pipe's end has one of their numbers. */
static void closed_stdio(void) {
    pid_t pid = fork();
    if (pid == 0) {
        close(0), close(1), close(2);
        char buffer[16] = "";
        FILE *stream = forkless_popen("echo ok", "r");
        if (stream == NULL || fgets(buffer, sizeof buffer, stream) == NULL || strcmp(buffer, "ok\n") != 0) _exit(1);
        if (forkless_pclose(stream) != 0) _exit(2);
        stream = forkless_popen("read word; test \"$word\" = in", "w");
        if (stream == NULL || fputs("in\n", stream) < 0 || forkless_pclose(stream) != 0) _exit(3);
        _exit(0);
    }
    int status;
    EXPECT(pid, waitpid(pid, &status, 0));
    EXPECT(0, status);
}

int main(void) {
    int fds = open_fds();
    reads_and_writes();
    argv_form();
    both_directions();
    bad_input();
    streams_are_not_inherited_by_later_programs();
    closed_by_fclose();
    many_streams();
    interrupted();
    in_threads();
    sigchld_ignored();
    forked_copy();
    no_descriptors_left();
    closed_stdio();
    expect_nothing_left(fds);
    return 0;
}

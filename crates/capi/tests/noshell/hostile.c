/* Invalid arguments and unusual environments, in every mode. */
#include "noshell.h"

static void bad_input(void) {
    const char *const *argv = ARGV("true"), *const none[] = {NULL};
    pclose_arg arg;
    memset(&arg, 0x5a, sizeof arg);
#define REFUSED(call)                                                                \
    do {                                                                             \
        errno = 0;                                                                   \
        CHECK((call) == NULL);                                                       \
        EXPECT(EINVAL, errno);                                                       \
    } while (0)
    REFUSED(popen_noshell(NULL, argv, "r", &arg, 0));
    REFUSED(popen_noshell("true", NULL, "r", &arg, 0));
    REFUSED(popen_noshell("true", none, "r", &arg, 0));
    REFUSED(popen_noshell("true", argv, NULL, &arg, 0));
    REFUSED(popen_noshell("true", argv, "r", NULL, 0));
    const char *types[] = {"", "x", "rw", "r+", "rr", "R", "read"};
    for (size_t n = 0; n < sizeof types / sizeof *types; n++) REFUSED(popen_noshell("true", argv, types[n], &arg, 0));
    REFUSED(popen_noshell("true", argv, "r", &arg, -1));
    REFUSED(popen_noshell("true", argv, "r", &arg, 3));
    REFUSED(popen_noshell_compat(NULL, "r", &arg));
    REFUSED(popen_noshell_compat("true", NULL, &arg));
    REFUSED(popen_noshell_compat("true", "rw", &arg));
    REFUSED(popen_noshell_compat("true", "r", NULL));
    const char *lines[] = {"", " ", "\t \t", "'", "\"", "echo 'a", "echo \"a", "echo 'a\"", "echo a'b\" c\"", "true; true", "true | cat", "true &",
                           "echo $HOME", "echo `date`", "echo \\a", "echo '$'", "echo \"!\"", "(true)", "true >x", "cat <x", "true\n"};
    for (size_t n = 0; n < sizeof lines / sizeof *lines; n++) REFUSED(popen_noshell_compat(lines[n], "r", &arg));
    CHECK(arg.fp == NULL && arg.pid == 0 && arg.stack == NULL && arg.func_args == NULL && arg.free_clone_mem == 0);
    errno = 0;
    EXPECT(-1, pclose_noshell(NULL));
    EXPECT(EINVAL, errno);
    errno = 0;
    EXPECT(-1, pclose_noshell(&arg));
    EXPECT(EINVAL, errno);
    /* Closing twice; closing a stream of other code, which stays open. */
    run(argv, "r", &arg, 0);
    EXPECT(0, pclose_noshell(&arg));
    errno = 0;
    EXPECT(-1, pclose_noshell(&arg));
    EXPECT(EINVAL, errno);
    FILE *foreign = arg.fp = fopen("/dev/null", "re");
    errno = 0;
    EXPECT(-1, pclose_noshell(&arg));
    EXPECT(EINVAL, errno);
    EXPECT(EOF, fgetc(foreign));
    EXPECT(0, fclose(foreign));
    /* A child that the caller has already waited for. */
    int status;
    run(argv, "r", &arg, 0);
    EXPECT(arg.pid, waitpid(arg.pid, &status, __WALL));
    errno = 0;
    EXPECT(-1, pclose_noshell(&arg));
    EXPECT(ECHILD, errno);
}

/* Lines of 8,192 characters and of 1 MiB, in many words and in one. The latter exceeds the kernel's limit. */
static void long_lines(void) {
    const size_t sizes[] = {8192, 1 << 20};
    pclose_arg arg;
    for (int n = 0; n < 2; n++) {
        char *line = malloc(sizes[n] + 1), *got = malloc(sizes[n] + 1);
        for (size_t at = 0; at < sizes[n]; at++) line[at] = at < 5 ? "echo "[at] : at % 100 == 0 ? ' ' : 'a' + (char)(at % 26);
        line[sizes[n]] = '\0';
        FILE *stream = popen_noshell_compat(line, "r", &arg);
        if (stream == NULL && errno == E2BIG && sysconf(_SC_ARG_MAX) < 2 << 20) {
            printf("SKIPPED: a line of 1 MiB because the limit of arguments is %ld\n", sysconf(_SC_ARG_MAX));
        } else {
            CHECK(stream != NULL);
            EXPECT(sizes[n] - 5 + 1, fread(got, 1, sizes[n] + 1, stream));
            CHECK(memcmp(got, line + 5, sizes[n] - 5) == 0 && got[sizes[n] - 5] == '\n');
            EXPECT(0, pclose_noshell(&arg));
        }
        for (char *at = line + 5; *at != '\0'; at++)
            if (*at == ' ') *at = '-';
        errno = 0;
        stream = popen_noshell_compat(line, "r", &arg);
        CHECK(n == 0 ? stream != NULL : stream == NULL && errno == E2BIG);
        if (stream != NULL) {
            EXPECT(sizes[n] - 5 + 1, fread(got, 1, sizes[n] + 1, stream));
            EXPECT(0, pclose_noshell(&arg));
        }
        free(line), free(got);
    }
}

/* With a standard stream closed, so that a pipe's end has its number. */
static void without_streams(int closed) {
    pclose_arg arg;
    char got[16];
    for (int fd = 0; fd < 3; fd++)
        if (closed & 1 << fd) close(fd);
    for (int stderr_mode = 0; stderr_mode <= 2; stderr_mode++) {
        memset(got, 0, sizeof got);
        FILE *stream = popen_noshell("echo", ARGV("echo", "ok"), "r", &arg, stderr_mode);
        if (stream == NULL || fgets(got, sizeof got, stream) == NULL || strcmp(got, "ok\n") != 0) _exit(1);
        if (pclose_noshell(&arg) != 0) _exit(2);
        stream = popen_noshell("sh", ARGV("sh", "-c", "read word; test \"$word\" = in"), "w", &arg, stderr_mode);
        if (stream == NULL || fputs("in\n", stream) < 0 || pclose_noshell(&arg) != 0) _exit(3);
    }
}

static void closed_streams(void) {
    for (int closed = 1; closed < 8; closed++) IN_A_COPY(without_streams(closed));
}

/* With SIGCHLD ignored the kernel reaps children: a pidfd keeps the status (Linux 6.15), or it is reported as lost. */
static void sigchld_ignored(void) {
    pclose_arg arg;
    signal(SIGCHLD, SIG_IGN);
    run(ARGV("sh", "-c", "exit 6"), "r", &arg, 0);
    errno = 0;
    int status = pclose_noshell(&arg);
    CHECK(status == 6 << 8 || (status == -1 && errno == ECHILD));
    signal(SIGCHLD, SIG_DFL);
}

/* With no free descriptor, with one, and with a few more. */
static void few_descriptors(void) {
    struct rlimit old, few;
    pclose_arg arg;
    getrlimit(RLIMIT_NOFILE, &old);
    int fds = open_fds(), first = dup(0);
    close(first);
    for (int room = 0; room < 8; room++) {
        few = old, few.rlim_cur = (rlim_t)(first + room);
        setrlimit(RLIMIT_NOFILE, &few);
        errno = 0;
        FILE *stream = popen_noshell("true", ARGV("true"), "r", &arg, 1);
        int errnum = errno;
        setrlimit(RLIMIT_NOFILE, &old);
        CHECK(room < 2 ? stream == NULL : room < 6 || stream != NULL);
        if (stream != NULL) EXPECT(0, pclose_noshell(&arg));
        else EXPECT(EMFILE, errnum);
        EXPECT(fds, open_fds());
    }
}

static void *many(void *argument) {
    long thread = (long)argument;
    for (int n = 0; n < 40; n++) {
        char word[40], want[48];
        pclose_arg arg;
        snprintf(word, sizeof word, "%ld.%d", thread, n), snprintf(want, sizeof want, "%s\n", word);
        if (n % 3 == 2) {
            CHECK(popen_noshell("/no/such/program", ARGV("x"), "r", &arg, 0) == NULL);
            continue;
        }
        FILE *stream = n % 3 ? run(ARGV("echo", word), "r", &arg, n % 2) : run(ARGV("cat"), "w", &arg, 1);
        if (n % 3) expect_text(want, stream, &arg, 0);
        else EXPECT(0, (fputs(want, stream), pclose_noshell(&arg)));
    }
    return NULL;
}

static volatile int is_done;

/* A thread that keeps changing the mode. */
static void *changes_mode(void *argument) {
    for (int n = 0; !is_done; n++) popen_noshell_set_fork_mode(n % 3), usleep(100);
    return argument;
}

/* A thread that keeps forking; some children live for a while, some use the library themselves. */
static void *forks(void *argument) {
    for (int n = 0; !is_done; n++) {
        pid_t pid = fork();
        if (pid == 0) {
            pclose_arg arg;
            if (n % 2) execlp("sleep", "sleep", "0.02", (char *)NULL);
            FILE *stream = popen_noshell("true", ARGV("true"), "r", &arg, 0);
            _exit(stream != NULL && pclose_noshell(&arg) == 0 ? 0 : 1);
        }
        int status;
        EXPECT(pid, waitpid(pid, &status, 0));
        EXPECT(0, status);
    }
    return argument;
}

static void beside(void *(*other)(void *)) {
    pthread_t threads[4], beside;
    is_done = 0;
    if (other != NULL) EXPECT(0, pthread_create(&beside, NULL, other, NULL));
    for (long n = 0; n < 4; n++) EXPECT(0, pthread_create(&threads[n], NULL, many, (void *)n));
    for (int n = 0; n < 4; n++) EXPECT(0, pthread_join(threads[n], NULL));
    is_done = 1;
    if (other != NULL) EXPECT(0, pthread_join(beside, NULL));
}

static void in_threads(void) {
    beside(NULL);
    beside(forks);
}

/* A forked process cannot close the stream: the child is not its child. */
static void forked_copy(void) {
    pclose_arg arg;
    run(ARGV("sh", "-c", "exit 7"), "r", &arg, 0);
    IN_A_COPY(if (pclose_noshell(&arg) != -1 || errno != ECHILD) _exit(1));
    EXPECT(7 << 8, pclose_noshell(&arg));
}

/* An unknown mode is stored, and means the first mode. */
static void no_such_mode(void) {
    pclose_arg arg;
    popen_noshell_set_fork_mode(99);
    EXPECT(99, popen_noshell_get_fork_mode());
    expect_text("ok\n", run(ARGV("echo", "ok"), "r", &arg, 0), &arg, 0);
}

int main(void) {
    int fds = open_fds();
    no_such_mode();
    in_every_mode(bad_input);
    in_every_mode(long_lines);
    in_every_mode(closed_streams);
    in_every_mode(sigchld_ignored);
    in_every_mode(few_descriptors);
    in_every_mode(in_threads);
    beside(changes_mode);
    in_every_mode(forked_copy);
    expect_nothing_left(fds);
    return 0;
}

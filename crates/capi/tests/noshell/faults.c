/* Known bugs of the original, which are fixed here, in every mode. */
#include "noshell.h"
#include <alloca.h>
#include <dirent.h>
#include <sys/ioctl.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

static void expect_refused(int errnum, FILE *stream, pclose_arg *arg) {
    int got = errno;
    CHECK(stream == NULL && arg->fp == NULL && arg->pid == 0);
    EXPECT(errnum, got);
    errno = 0;
    EXPECT(-1, pclose_noshell(arg));
    EXPECT(EINVAL, errno);
}

/* A program that cannot be executed is an error of opening, and nothing is printed on standard error. */
static void exec_errors(void) {
    pclose_arg arg;
    int ends[2], old = dup(2), said = -1;
    EXPECT(0, pipe2(ends, O_CLOEXEC));
    EXPECT(2, dup2(ends[1], 2));
    const char *const *missing = ARGV("/no/such/program"), *const *nowhere = ARGV("no-such-program-anywhere");
    const char *const *directory = ARGV("/"), *const *below = ARGV("/dev/null/x"), *const *plain = ARGV("/proc/version");
    FILE *answers[] = {
        popen_noshell(missing[0], missing, "r", &arg, 0), popen_noshell(nowhere[0], nowhere, "w", &arg, 0),
        popen_noshell(directory[0], directory, "r", &arg, 0), popen_noshell(below[0], below, "r", &arg, 2),
        popen_noshell(plain[0], plain, "r", &arg, 1), popen_noshell("", missing, "r", &arg, 0),
    };
    EXPECT(0, ioctl(ends[0], FIONREAD, &said));
    EXPECT(2, dup2(old, 2));
    close(old), close(ends[0]), close(ends[1]);
    EXPECT(0, said);
    for (size_t n = 0; n < sizeof answers / sizeof *answers; n++) CHECK(answers[n] == NULL);
    expect_refused(ENOENT, popen_noshell(missing[0], missing, "r", &arg, 0), &arg);
    expect_refused(ENOENT, popen_noshell(nowhere[0], nowhere, "w", &arg, 0), &arg);
    expect_refused(EACCES, popen_noshell(directory[0], directory, "r", &arg, 0), &arg);
    expect_refused(ENOTDIR, popen_noshell(below[0], below, "r", &arg, 0), &arg);
    expect_refused(EACCES, popen_noshell(plain[0], plain, "r", &arg, 0), &arg);
    expect_refused(ENOENT, popen_noshell("", missing, "r", &arg, 0), &arg);
    expect_refused(ENOENT, popen_noshell_compat("no-such-program-anywhere a b", "r", &arg), &arg);
    expect_refused(ENOENT, popen_noshell_compat("''", "r", &arg), &arg);
}

/* Buffered output of the caller is written once, by the caller. */
static void buffers_of_the_caller(void) {
    pclose_arg arg;
    int ends[2], there = -1;
    char got[16] = "";
    EXPECT(0, pipe2(ends, O_CLOEXEC));
    FILE *own = fdopen(dup(ends[1]), "w");
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], 1), dup2(ends[1], 2);
        setvbuf(stdout, NULL, _IOFBF, 4096), setvbuf(stderr, NULL, _IOFBF, 4096);
        printf("o"), fprintf(stderr, "e"), fprintf(own, "f");
        if (popen_noshell("/no/such/program", ARGV("x"), "r", &arg, 0) != NULL) _exit(1);
        if (popen_noshell("true", ARGV("true"), "r", &arg, 9) != NULL) _exit(2);
        FILE *stream = popen_noshell("true", ARGV("true"), "r", &arg, 0);
        if (stream == NULL || pclose_noshell(&arg) != 0) _exit(3);
        if (ioctl(ends[0], FIONREAD, &there) != 0 || there != 0) _exit(4);
        fflush(stdout), fflush(stderr), fflush(own);
        _exit(0);
    }
    int status;
    EXPECT(pid, waitpid(pid, &status, 0));
    EXPECT(0, status);
    EXPECT(3, read(ends[0], got, sizeof got));
    CHECK(strcmp(got, "oef") == 0);
    fclose(own), close(ends[0]), close(ends[1]);
}

/* No stack of a child stays mapped. */
static void stacks(void) {
    enum { STREAMS = 50 };
    pclose_arg args[STREAMS];
    run(ARGV("cat"), "w", &args[0], 0);
    EXPECT(0, pclose_noshell(&args[0]));
    long before = address_space();
    for (int n = 0; n < STREAMS; n++) run(ARGV("cat"), "w", &args[n], 0);
    long after = address_space();
    for (int n = 0; n < STREAMS; n++) EXPECT(0, pclose_noshell(&args[n]));
    CHECK(after - before < 8 * 1024);
}

static long in_use(void) {
#if defined __GLIBC__ && __GLIBC_PREREQ(2, 33)
    return (long)mallinfo2().uordblks;
#else
    return 0;
#endif
}

/* Failed and closed streams leak no memory and no descriptors. */
static void leaks(void) {
    enum { ROUNDS = 300 };
    pclose_arg arg;
    long before = 0;
    int fds = 0;
    for (int n = 0; n < ROUNDS + 20; n++) {
        if (n == 20) before = in_use(), fds = open_fds();
        CHECK(popen_noshell("/no/such/program", ARGV("x", "y"), n & 1 ? "r" : "w", &arg, n % 3) == NULL);
        CHECK(popen_noshell("true", ARGV("true"), "r", &arg, 3) == NULL);
        CHECK(popen_noshell_compat("a 'b", "r", &arg) == NULL);
        CHECK(popen_noshell_compat("a b | c", "r", &arg) == NULL);
        if (n % 4 == 0) {
            run(ARGV("true", "a word"), "r", &arg, 0);
            EXPECT(0, pclose_noshell(&arg));
        }
    }
    long more = in_use() - before;
    if (more >= 32 * ROUNDS) fprintf(stderr, "%ld bytes more\n", more);
    CHECK(more < 32 * ROUNDS); /* less than the smallest block for each */
    expect_nothing_left(fds);
}

/* Closing during a storm of signals without SA_RESTART: the status is returned, and the last bytes arrive. */
static void interrupted(void) {
    struct sigaction action, old;
    struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    char path[] = "/tmp/noshell-storm-XXXXXX", command[128], rest[64], block[4096], number[16] = "";
    pclose_arg arg;
    memset(&action, 0, sizeof action), memset(block, 'x', sizeof block);
    action.sa_handler = count_alarm;
    sigaction(SIGALRM, &action, &old);
    hold(command, sizeof command, "exit 5");
    run(ARGV("sh", "-c", command), "r", &arg, 0);
    setitimer(ITIMER_REAL, &often, NULL);
    int status = pclose_noshell(&arg);
    setitimer(ITIMER_REAL, &never, NULL);
    EXPECT(5 << 8, status);
    EXPECT(0, unlink(held_until));

    int fd = mkstemp(path);
    CHECK(fd >= 0);
    snprintf(rest, sizeof rest, "wc -c >%s", path);
    hold(command, sizeof command, rest);
    FILE *stream = run(ARGV("sh", "-c", command), "w", &arg, 0);
    /* The pipe is full, and the stream's buffer has more data. */
    int room = fcntl(fileno(stream), F_GETPIPE_SZ);
    CHECK(room >= 4096);
    for (int left = room; left > 0; left -= 4096) EXPECT(4096, write(fileno(stream), block, 4096));
    EXPECT(3000, fwrite(block, 1, 3000, stream));
    setitimer(ITIMER_REAL, &often, NULL);
    status = pclose_noshell(&arg);
    setitimer(ITIMER_REAL, &never, NULL);
    EXPECT(0, status);
    EXPECT(0, unlink(held_until));
    CHECK(read(fd, number, sizeof number) > 0);
    EXPECT(room + 3000, atoi(number));
    close(fd), unlink(path);
    sigaction(SIGALRM, &old, NULL);
}

/* Data that the program did not read is reported, and the program has been waited for. */
static void broken_pipe(void) {
    pclose_arg arg;
    siginfo_t info;
    signal(SIGPIPE, SIG_IGN);
    FILE *stream = run(ARGV("true"), "w", &arg, 0);
    CHECK(fputs("for nobody\n", stream) >= 0);
    EXPECT(0, waitid(P_PID, (id_t)arg.pid, &info, WEXITED | WNOWAIT));
    errno = 0;
    EXPECT(-1, pclose_noshell(&arg));
    EXPECT(EPIPE, errno);
    EXPECT(-1, waitpid(arg.pid, NULL, WNOHANG));
    EXPECT(ECHILD, errno);
    signal(SIGPIPE, SIG_DFL);
}

static void empty_arguments(void) {
    pclose_arg arg;
    FILE *stream = popen_noshell_compat("printf [%s] '' a \"\" b''c ''", "r", &arg);
    expect_text("[][a][][bc][]", stream, &arg, 0);
}

/* A program does not inherit another stream's pipe, and so does not keep its input open. */
static void streams_are_not_inherited_by_later_programs(void) {
    pclose_arg first, second;
    run(ARGV("cat"), "w", &first, 0);
    run(ARGV("cat"), "w", &second, 0);
    EXPECT(0, pclose_noshell(&first));
    EXPECT(0, pclose_noshell(&second));
}

static int fn_adds(void *argument) { return ++*(int *)argument, errno = EDOM, 7; }
static int fn_raises(void *argument) { return (void)argument, raise(SIGALRM), 8; }
static int fn_is_deep(void *argument) {
    volatile char *deep = alloca(7 << 20);
    for (int n = 0; n < 7 << 20; n += 4096) deep[n] = 1;
    return (void)argument, deep[4096] + 8;
}

static void vmfork(void) {
    void *memory = &memory;
    int number = 1, status;
    long before = address_space();
    errno = 0;
    pid_t pid = popen_noshell_vmfork(fn_adds, &number, &memory);
    CHECK(pid > 0 && memory == NULL && number == 2 && errno == 0);
    EXPECT(pid, waitpid(pid, &status, __WALL));
    EXPECT(7 << 8, status);
    pid = popen_noshell_vmfork(fn_is_deep, NULL, &memory);
    EXPECT(pid, waitpid(pid, &status, __WALL));
    EXPECT(9 << 8, status);
    CHECK(address_space() - before < 4096);
    /* A signal handler of the caller does not run in the child, which shares its memory. */
    struct sigaction action, old;
    memset(&action, 0, sizeof action);
    action.sa_handler = count_alarm;
    sigaction(SIGALRM, &action, &old);
    alarms = 0;
    pid = popen_noshell_vmfork(fn_raises, NULL, &memory);
    EXPECT(pid, waitpid(pid, &status, __WALL));
    EXPECT(SIGALRM, status);
    EXPECT(0, alarms);
    sigaction(SIGALRM, &old, NULL);
    errno = 0;
    CHECK(popen_noshell_vmfork(NULL, NULL, &memory) == -1 && errno == EINVAL);
    CHECK(popen_noshell_vmfork(fn_adds, &number, NULL) == -1 && errno == EINVAL && number == 2);
}

int main(void) {
    int fds = open_fds();
    /* Without directories that this user may not search, which would return EACCES. */
    setenv("PATH", "/usr/bin:/bin", 1);
    in_every_mode(exec_errors);
    in_every_mode(buffers_of_the_caller);
    in_every_mode(stacks);
    in_every_mode(leaks);
    in_every_mode(interrupted);
    in_every_mode(broken_pipe);
    in_every_mode(empty_arguments);
    in_every_mode(streams_are_not_inherited_by_later_programs);
    vmfork();
    expect_nothing_left(fds);
    return 0;
}

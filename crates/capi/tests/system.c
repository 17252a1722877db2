/* Tests of forkless_system: POSIX's rules for signals, in several threads. */
#include "check.h"

static void return_values(void) {
    CHECK(forkless_system(NULL) != 0);
    EXPECT(0, forkless_system("true"));
    EXPECT(5 << 8, forkless_system("exit 5"));
    EXPECT(SIGTERM, forkless_system("kill -TERM $$"));
    EXPECT(127 << 8, forkless_system("/no/such/program 2>/dev/null"));
    EXPECT(0, forkless_system(""));
}

/* Command lines that need no shell, lines that need one, and invalid lines: the status is that of libc's system. */
static void as_by_libc(void) {
    static const char *const lines[] = {
        "/bin/true", "/bin/false", "env A=1 sh -c 'exit 7'", "A=6 sh -c 'exit $A'", "sh -c 'kill -KILL $$' 2>/dev/null",
        "sh -c 'kill -TERM $$' 2>/dev/null", "test -d / && exit 3", "no-such-program 2>/dev/null", "/ 2>/dev/null", "exit 300", "'' 2>/dev/null",
        "sh -c 'exit 4' <\"/no such file\" 2>/dev/null", "exec 2>/dev/null; (", "a=1; exit $a", "  ", "#", "sleep 0 &",
        "sh -c 'test -e /proc/self/fd/50' 2>/dev/null",
    };
    for (size_t n = 0; n < sizeof lines / sizeof *lines; n++) {
        int theirs = system(lines[n]), ours = forkless_system(lines[n]);
        if (ours != theirs) {
            fprintf(stderr, "%s: %#x, not %#x\n", lines[n], (unsigned)ours, (unsigned)theirs);
            exit(1);
        }
    }
    EXPECT(127 << 8, forkless_system("-x 2>/dev/null"));
    /* One case differs from libc: a terminal sends these three to the shell as well. */
    EXPECT(SIGINT, forkless_system("sh -c 'kill -INT $$'"));
}

/* A command line finds neither the caller's memory nor its close-on-exec descriptors in procfs. */
static void lines_find_nothing_of_the_caller_in_procfs(void) {
    static char secret[] = "a secret of ours", *const names[] = {"/proc/self/mem", "mem"};
    char directory[] = "/tmp/forkless-procfs-XXXXXX", line[300], text[100];
    CHECK(mkdtemp(directory));
    int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(chdir(directory) == 0 && symlink("/proc/self/mem", "mem") == 0 && symlink("/dev/fd", "fds") == 0);
    int fd = open("file", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    EXPECT(sizeof secret, write(fd, secret, sizeof secret));
    for (int n = 0; n < 8; n++) {
        switch (n / 2) {
        case 0: snprintf(line, sizeof line, "dd bs=1 skip=%lu count=%zu <%s 2>/dev/null", (unsigned long)secret, sizeof secret, names[n % 2]); break;
        case 1: snprintf(line, sizeof line, "dd bs=1 seek=%lu count=4 conv=notrunc if=/dev/zero >%s 2>/dev/null", (unsigned long)secret, names[n % 2]); break;
        case 2: snprintf(line, sizeof line, "cat <%s/%d", n % 2 ? "fds" : "/dev/fd", fd); break;
        case 3: snprintf(line, sizeof line, "cat <%s", n % 2 ? "/proc/self/comm" : "/proc/thread-self/comm"); break;
        }
        size_t lengths[2];
        char first[sizeof text] = "";
        int statuses[2];
        for (int ours = 0; ours < 2; ours++) {
            memset(text, 0, sizeof text);
            FILE *stream = ours ? forkless_popen(line, "r") : popen(line, "r");
            CHECK(stream);
            lengths[ours] = fread(text, 1, sizeof text - 1, stream);
            statuses[ours] = ours ? forkless_pclose(stream) : pclose(stream);
            if (!ours)
                memcpy(first, text, sizeof text);
        }
        CHECK(lengths[0] == lengths[1] && statuses[0] == statuses[1] && memcmp(first, text, sizeof text) == 0);
        CHECK(!memmem(text, sizeof text, "secret", 6));
        EXPECT(statuses[0], forkless_system(line));
    }
    CHECK(strcmp(secret, "a secret of ours") == 0);
    CHECK(unlink("mem") == 0 && unlink("fds") == 0 && unlink("file") == 0 && fchdir(here) == 0 && rmdir(directory) == 0);
    close(fd), close(here);
}

/* A command line of megabytes: the result of execve, as the shell's 127 or as an error. */
static void long_line(void) {
    char *line = malloc(1 << 20);
    memset(line, ' ', (1 << 20) - 1);
    line[(1 << 20) - 1] = 0;
    memcpy(line, "true", 4);
    EXPECT(127 << 8, forkless_system(line));
    line[8192] = 0;
    EXPECT(0, forkless_system(line));
    free(line);
}

static volatile sig_atomic_t hits;
static void hit(int signal) { (void)signal, hits++; }

/* A SIGCHLD handler as in servers, which reaps all children. */
static void reap(int signal) {
    (void)signal;
    int error = errno;
    while (waitpid(-1, NULL, WNOHANG) > 0) continue;
    errno = error;
}

/* SIGINT and SIGQUIT, sent to both, only reach the program. SIGCHLD stays blocked until the status is known, so its handler
 * finds no child. */
static void signals_while_waiting(void) {
    struct sigaction action, old_int, old_chld, now;
    memset(&action, 0, sizeof action);
    action.sa_handler = hit;
    sigaction(SIGINT, &action, &old_int);
    action.sa_handler = reap;
    sigaction(SIGCHLD, &action, &old_chld);
    hits = 0;
    EXPECT(SIGINT, forkless_system("kill -INT $PPID; kill -QUIT $PPID; kill -INT $$"));
    EXPECT(0, hits);
    /* Restored: the handler is set, and no signal is blocked. */
    sigaction(SIGINT, NULL, &now);
    CHECK(now.sa_handler == hit);
    raise(SIGINT);
    EXPECT(1, hits);
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    CHECK(!sigismember(&mask, SIGCHLD));
    sigaction(SIGINT, &old_int, NULL);
    sigaction(SIGCHLD, &old_chld, NULL);
    /* Signals that the caller ignores stay ignored in the program, so they cannot kill the shell. */
    signal(SIGINT, SIG_IGN);
    EXPECT(9 << 8, forkless_system("kill -INT $$; exit 9"));
    signal(SIGINT, SIG_DFL);
}

/* The program starts with the same blocked and ignored signals as with libc's system, except for glibc's two internal signals
 * (32, 33), which libc leaves ignored. (dash unblocks all signals; another shell would show them.) */
static void signals_as_by_libc(void) {
    const char *line = "grep -E '^Sig(Blk|Ign)' /proc/self/status | sed 's/000000018/000000000/'";
    char ours[4096] = "", theirs[4096] = "", full[512];
    char path[] = "/tmp/forkless-capi-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    sigset_t block, old;
    sigemptyset(&block);
    sigaddset(&block, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &block, &old);
    signal(SIGPIPE, SIG_IGN), signal(SIGQUIT, SIG_IGN);
    snprintf(full, sizeof full, "%s >%s", line, path);
    EXPECT(0, forkless_system(full));
    CHECK(pread(fd, ours, sizeof ours - 1, 0) > 20);
    EXPECT(0, system(full));
    CHECK(pread(fd, theirs, sizeof theirs - 1, 0) > 20);
    if (strcmp(ours, theirs) != 0) {
        fprintf(stderr, "%snot\n%s", ours, theirs);
        exit(1);
    }
    signal(SIGPIPE, SIG_DFL), signal(SIGQUIT, SIG_DFL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    close(fd), unlink(path);
}

/* The SIGCHLD handler is called once, when the status is known, and not for each change of a program that stops, continues and
 * ends. */
static void one_sigchld_is_handled(void) {
    struct sigaction action, old;
    memset(&action, 0, sizeof action);
    action.sa_handler = hit;
    sigaction(SIGCHLD, &action, &old);
    hits = 0;
    EXPECT(5 << 8, forkless_system("(sleep 0.2; kill -CONT $$) & kill -STOP $$; wait; exit 5"));
    sigaction(SIGCHLD, &old, NULL);
    EXPECT(1, hits);
}

static void *many(void *argument) {
    long thread = (long)argument;
    for (int n = 0; n < 40; n++) {
        char line[32];
        snprintf(line, sizeof line, "exit %ld", thread * 40 + n);
        EXPECT((thread * 40 + n) << 8, forkless_system(line));
    }
    return NULL;
}

/* The handlers are restored when the last of several threads has finished. */
static void in_threads(void) {
    struct sigaction action, now;
    memset(&action, 0, sizeof action);
    action.sa_handler = hit;
    sigaction(SIGINT, &action, NULL);
    pthread_t threads[4];
    for (long n = 0; n < 4; n++) EXPECT(0, pthread_create(&threads[n], NULL, many, (void *)n));
    for (int n = 0; n < 4; n++) EXPECT(0, pthread_join(threads[n], NULL));
    sigaction(SIGINT, NULL, &now);
    CHECK(now.sa_handler == hit);
    signal(SIGINT, SIG_DFL);
}

static void *line(void *argument) {
    EXPECT(3 << 8, forkless_system((const char *)argument));
    return argument;
}

/* Not a cancellation point: a cancelled thread finishes the call, and ends at the next cancellation point. */
static void cancelled(void) {
    pthread_t thread;
    void *result;
    EXPECT(0, pthread_create(&thread, NULL, line, (void *)"sleep 0.1; exit 3"));
    pthread_cancel(thread);
    EXPECT(0, pthread_join(thread, &result));
    struct sigaction now;
    sigaction(SIGINT, NULL, &now);
    CHECK(now.sa_handler == SIG_DFL);
}

/* A process that is forked while a thread waits: its own calls work, and its signals do not stay ignored. */
static void forked_copy(void) {
    pthread_t thread;
    char directory[] = "/tmp/forkless-capi-XXXXXX", fifo[64], held[128];
    CHECK(mkdtemp(directory) != NULL);
    snprintf(fifo, sizeof fifo, "%s/hold", directory);
    EXPECT(0, mkfifo(fifo, 0600));
    snprintf(held, sizeof held, "read go <%s; exit 3", fifo);
    EXPECT(0, pthread_create(&thread, NULL, line, held));
    struct sigaction now;
    do {
        usleep(1000);
        sigaction(SIGINT, NULL, &now);
    } while (now.sa_handler != SIG_IGN);
    pid_t pid = fork();
    if (pid == 0) {
        /* Its own handler is not called during the call, and is set afterwards. */
        signal(SIGQUIT, hit);
        hits = 0;
        int status = forkless_system("kill -QUIT $PPID; exit 4");
        sigaction(SIGINT, NULL, &now);
        if (status != 4 << 8 || now.sa_handler != SIG_DFL || hits != 0)
            _exit(1);
        sigaction(SIGQUIT, NULL, &now);
        _exit(now.sa_handler == hit ? 0 : 2);
    }
    int status;
    EXPECT(pid, waitpid(pid, &status, 0));
    /* Before any check, because after a failure the waiting program would never end. */
    int go = open(fifo, O_WRONLY | O_CLOEXEC);
    CHECK(go >= 0);
    close(go);
    EXPECT(0, pthread_join(thread, NULL));
    unlink(fifo), rmdir(directory);
    EXPECT(0, status);
}

int main(void) {
    int fds = open_fds();
    return_values();
    as_by_libc();
    lines_find_nothing_of_the_caller_in_procfs();
    long_line();
    signals_while_waiting();
    signals_as_by_libc();
    one_sigchld_is_handled();
    in_threads();
    cancelled();
    forked_copy();
    expect_nothing_left(fds);
    return 0;
}

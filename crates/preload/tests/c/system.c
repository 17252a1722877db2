/* Tests system(3): statuses, signals, cancellation, threads. */

#include "common.h"
#include <stdatomic.h>

static void commands(void) {
    static const char *const commands[] = {
        "true", "false", "exit 255", "nonesuch 2>/dev/null", "/tmp 2>/dev/null", "kill -TERM $$", "kill -INT $$", "kill -QUIT $$", "sh -c 'kill -KILL $$'; exit 3",
        "", " ", "#", "exit", "'", "ls >/dev/null", "ls /nonesuch >/dev/null 2>&1", "exec sleep 0", "A=1 sh -c 'exit $A'", "cat </dev/null", "cd / && test $PWD = /",
        "false || exit 4", "! true", "(exit 6)", "{ exit 7; }", "set -e; false; true", "sleep 0.02 & wait $!", "umask 077; umask >/dev/null"};
    for (size_t n = 0; n < sizeof commands / sizeof *commands; n++) {
        errno = 0;
        int status = system(commands[n]);
        say("%s: %s\n", commands[n], status == -1 ? strerrorname_np(errno) : status_words(status));
    }
    say("a shell: %d\n", system(NULL) != 0);
    char facts_line[600];
    snprintf(facts_line, sizeof facts_line, "%s %s 7", facts, report);
    say("facts: %s\n", status_words(system(facts_line)));
    signal(SIGINT, SIG_IGN);
    signal(SIGUSR2, SIG_IGN);
    say("facts: %s\n", status_words(system(facts_line)));
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    say("facts: %s\n", status_words(system(facts_line)));
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    signal(SIGINT, SIG_DFL);
}

/* In a command line, /proc/self must be the shell and not the caller. 6 is close-on-exec. */
static void procfs(void) {
    static char secret[] = "a secret of the caller's";
    char read_it[200], write_it[200], text[200];
    snprintf(read_it, sizeof read_it, "dd bs=1 skip=%lu count=24 </proc/self/mem 2>/dev/null", (unsigned long)secret);
    snprintf(write_it, sizeof write_it, "dd bs=1 seek=%lu conv=notrunc </dev/zero count=24 >mem 2>/dev/null", (unsigned long)secret);
    if (symlink("/proc/self", "self") || symlink("self/mem", "mem") || write(6, "close-on-exec", 13) != 13)
        abort();
    const char *const lines[] = {read_it, write_it, "cat </proc/self/comm", "cat <self/comm", "cat </dev/fd/6 2>/dev/null", "cat <self/fd/6 2>/dev/null",
        "cat </proc/self/fd/4", "cat </dev/stdin", "ls mem >/dev/stdout"};
    for (size_t n = 0; n < sizeof lines / sizeof *lines; n++) {
        FILE *stream = popen(lines[n], "r");
        size_t length = fread(text, 1, sizeof text - 1, stream);
        text[length] = 0;
        int status = pclose(stream);
        say("line %zu: %s; %s\n", n, text, status_words(status));
        say("line %zu: %s\n", n, status_words(system(lines[n])));
    }
    say("still %s\n", secret);
}

static volatile sig_atomic_t seen[65];

static void note(int signal) {
    seen[signal]++;
}

static void show_seen(const char *what) {
    say("%s: INT %d, QUIT %d, CHLD %d, USR1 %d\n", what, seen[SIGINT], seen[SIGQUIT], seen[SIGCHLD] > 0, seen[SIGUSR1]);
    memset((void *)seen, 0, sizeof seen);
}

/* Signals to the caller while it waits. */
static void signals(void) {
    static const int all[] = {SIGINT, SIGQUIT, SIGCHLD, SIGUSR1};
    struct sigaction action = {.sa_handler = note}, after;
    for (int n = 0; n < 4; n++)
        sigaction(all[n], &action, NULL);
    char line[300];
    snprintf(line, sizeof line, "kill -INT %d; kill -QUIT %d; kill -USR1 %d; exit 3", getpid(), getpid(), getpid());
    say("answer: %s\n", status_words(system(line)));
    show_seen("while it waited");
    for (int n = 0; n < 2; n++) {
        sigaction(all[n], NULL, &after);
        say("as before: %d\n", after.sa_handler == note);
    }
    sigset_t mask;
    sigprocmask(SIG_BLOCK, NULL, &mask);
    say("blocked: %d\n", sigismember(&mask, SIGCHLD));
    raise(SIGINT);
    show_seen("afterwards");
    for (int n = 0; n < 4; n++)
        signal(all[n], SIG_DFL);
}

static void *waits(void *line) {
    int status = system(line);
    say("not cancelled: %d\n", status);
    return NULL;
}

/* A thread is cancelled while it waits: its program is killed and reaped, and signal dispositions and mask are
 * restored. */
static void cancelled(void) {
    /* A number that no other process uses. */
    char lines[2][40], kill_it[80];
    snprintf(lines[0], sizeof lines[0], "sleep 8.%d", getpid());
    /* It creates a file if it continues. */
    snprintf(lines[1], sizeof lines[1], "sleep 8.%d; echo >went-on", getpid());
    snprintf(kill_it, sizeof kill_it, "pkill -f '^sleep 8.%d' 2>/dev/null", getpid());
    for (int n = 0; n < 2; n++) {
        pthread_t thread;
        void *result;
        pthread_create(&thread, NULL, waits, lines[n]);
        usleep(200000);
        pthread_cancel(thread);
        pthread_join(thread, &result);
        struct sigaction action;
        sigaction(SIGINT, NULL, &action);
        say("cancelled: %d; INT at its default: %d; a child: %d\n", result == PTHREAD_CANCELED, action.sa_handler == SIG_DFL,
            waitpid(-1, NULL, WNOHANG | __WALL));
    }
    /* Only the shell is killed: a program that it started continues. libc does the same. */
    system(kill_it);
    say("it went on: %d\n", access("went-on", F_OK) == 0);
    /* Cancelled before the call: it takes effect at the first wait. */
    int state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    say("cancellation off: %s\n", status_words(system("exit 5")));
    pthread_setcancelstate(state, NULL);
}

static void *runs(void *line) {
    system(line);
    return NULL;
}

/* At any moment of system(3), from its first instruction to after its end. */
static void cancelled_at_any_moment(void) {
    static char *const lines[] = {"sleep 0.002", "sleep 0.002; exit 3"};
    int changed = 0, first = dup(0);
    for (int n = 0; n < 100; n++) {
        pthread_t thread;
        struct sigaction interrupt, quit;
        sigset_t mask;
        pthread_create(&thread, NULL, runs, lines[n % 2]);
        usleep((unsigned)(n * 61 % 5000));
        pthread_cancel(thread);
        pthread_join(thread, NULL);
        sigaction(SIGINT, NULL, &interrupt);
        sigaction(SIGQUIT, NULL, &quit);
        sigprocmask(SIG_BLOCK, NULL, &mask);
        changed += interrupt.sa_handler != SIG_DFL || quit.sa_handler != SIG_DFL || sigismember(&mask, SIGCHLD) || waitpid(-1, NULL, WNOHANG | __WALL) != -1;
    }
    close(first);
    int last = dup(0);
    close(last);
    say("cancelled at any moment: %d changes, descriptors as before: %d\n", changed, first == last);
}

static void *closes(void *stream) {
    fclose(stream);
    return NULL;
}

/* A thread is cancelled while a stream of a file is flushed: fclose is a cancellation point then. */
static void cancelled_in_fclose(void) {
    int ends[2];
    pthread_t thread;
    void *result;
    char text[4096] = "";
    if (pipe2(ends, O_CLOEXEC))
        abort();
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    while (write(ends[1], text, sizeof text) > 0) {
    }
    fcntl(ends[1], F_SETFL, 0);
    FILE *stream = fdopen(ends[1], "w");
    fputs("more than there is room for", stream);
    pthread_create(&thread, NULL, closes, stream);
    usleep(200000);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    say("cancelled in fclose: %d\n", result == PTHREAD_CANCELED);
}

static atomic_int wrong;

/* In a forked child of a process with threads, glibc's system(3) may wait for ever for its lock, if another thread
 * held it at the fork (sysdeps/posix/system.c). The library's must not; libc's is not tested. */
static int in_forked_copy(void) {
    return is_handled() ? system("exit 3") >> 8 : 3;
}

static void *many(void *number) {
    char line[40];
    for (int n = 0; n < 40; n++) {
        int code = (int)(((long)number + n) % 200);
        snprintf(line, sizeof line, n % 2 ? "exit %d" : "sh -c 'exit %d'", code);
        if (system(line) != code << 8)
            wrong++;
        FILE *stream = popen(line, "r");
        if (!stream || pclose(stream) != code << 8)
            wrong++;
        pid_t pid = fork();
        if (!pid)
            _exit(in_forked_copy());
        int status;
        if (waitpid(pid, &status, 0) != pid || WEXITSTATUS(status) != 3)
            wrong++;
    }
    return NULL;
}

static void threads(void) {
    pthread_t all[6];
    for (long n = 0; n < 6; n++)
        pthread_create(&all[n], NULL, many, (void *)(n * 31));
    for (int n = 0; n < 6; n++)
        pthread_join(all[n], NULL);
    struct sigaction action;
    sigaction(SIGQUIT, NULL, &action);
    say("threads: %d wrong, QUIT at its default: %d\n", wrong, action.sa_handler == SIG_DFL);
}

static void at_fork(void) {
    say("a handler of pthread_atfork ran\n");
}

int main(int argc, char **argv) {
    begin(argc, argv);
    open_some(0);
    commands();
    procfs();
    signals();
    cancelled();
    cancelled_at_any_moment();
    cancelled_in_fclose();
    threads();
    pthread_atfork(at_fork, at_fork, at_fork);
    say("after atfork: %s\n", status_words(system("exit 2")));
    say("closed: %s\n", status_words(pclose(popen("exit 1", "r"))));
    pid_t pid;
    char *argv_true[] = {"true", NULL};
    outcome("spawned", posix_spawnp(&pid, "true", NULL, NULL, argv_true, environ), &pid);
    say("nothing is left: %d\n", waitpid(-1, NULL, WNOHANG | __WALL));
    return 0;
}

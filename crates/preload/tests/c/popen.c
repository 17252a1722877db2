/* Tests popen(3), pclose(3), and fclose(3) of its streams. */

#include "common.h"
#include <poll.h>
#include <wchar.h>

static char line[2000000];

static void child(const char *what, const char *command, const char *mode, int closes) {
    errno = 0;
    FILE *stream = popen(command, mode);
    if (!stream) {
        say("%s: %s\n", what, errno == EINVAL ? "EINVAL" : errno ? "refused" : "?");
        return;
    }
    int flags = fcntl(fileno(stream), F_GETFD), bytes = 0, c;
    /* A program that does not read may have ended before this write, or not. */
    if (strchr(mode, 'w') && !strncmp(command, "cat", 3) && !strstr(command, "<4"))
        fprintf(stream, "for the program\n");
    else if (strchr(mode, 'r'))
        while ((c = getc(stream)) != EOF)
            bytes += c;
    int status = closes ? pclose(stream) : fclose(stream);
    say("%s: close-on-exec %d, sum %d, %s\n", what, flags & FD_CLOEXEC, bytes, status_words(status));
}

static void commands(void) {
    static const char *const commands[] = {
        "true", "false", "exit 9", "echo hello", "cat", "printf '%s\\n' \"a  b\" '' c", "nonesuch", "/nonesuch 2>/dev/null", "kill -TERM $$",
        "kill -INT $$", "sh -c 'kill -KILL $$'", "echo 'unclosed", "", " ", "#", ";", "ls /nonesuch 2>&1", "cat >copy; cat copy", "A=1 env | grep ^A=",
        "seq 1 20000", "sleep 0.05; echo late", "exec 1>&-", "cat <4 2>/dev/null", "echo \1\200\377", "true & wait; echo $?", "!true"};
    for (size_t n = 0; n < sizeof commands / sizeof *commands; n++) {
        child(commands[n], commands[n], "r", n % 2);
        child(commands[n], commands[n], "w", n % 2);
    }
    static const char *const modes[] = {"", "rw", "re", "er", "we", "ew", "rr", "r+", "rb", "x", "e", "eer", "R", "wee"};
    for (size_t n = 0; n < sizeof modes / sizeof *modes; n++)
        child(modes[n], "echo mode", modes[n], 1);
}

/* Runs `facts` in a child of a stream. */
static void find(const char *what, const char *mode) {
    char command[600];
    say("%s, %s\n", what, mode);
    snprintf(command, sizeof command, "%s %s", facts, report);
    child(what, command, mode, 1);
}

static void inheritance(void) {
    signal(SIGUSR1, SIG_IGN);
    find("alone", "r");
    FILE *one = popen("cat >/dev/null", "w"), *two = popen("sleep 0.1", "r"), *three = popen("cat >/dev/null", "we");
    say("at %d %d %d\n", fileno(one), fileno(two), fileno(three));
    find("beside three", "r");
    find("beside three", "w");
    /* Other children inherit the streams. */
    pid_t pid;
    char *argv[] = {"facts", (char *)report, NULL};
    outcome("spawned", posix_spawn(&pid, facts, NULL, NULL, argv, environ), &pid);
    snprintf(line, sizeof line, "%s %s; exit 3", facts, report);
    say("system: %s\n", status_words(system(line)));
    say("closed: %d\n", pclose(two));
    find("beside two", "r");
    say("closed: %d\n", fclose(one));
    find("beside one", "r");
    say("closed: %d\n", pclose(three));

    /* A hundred streams at a time, closed in another order. */
    FILE *many[100];
    for (int n = 0; n < 100; n++)
        many[n] = popen(n % 2 ? "cat >/dev/null" : "sleep 0.01", n % 2 ? "w" : "r");
    find("beside a hundred", "r");
    for (int n = 0; n < 100; n++) {
        int status = pclose(many[n * 37 % 100]);
        if (status)
            say("%d: %s\n", n, status_words(status));
    }
    find("after a hundred", "r");
}

/* Waits until the other end is closed. */
static void unread(FILE *stream) {
    struct pollfd end = {fileno(stream), 0, 0};
    while (poll(&end, 1, -1) != 1 || !(end.revents & POLLERR)) {
    }
}

static void foreign(void) {
    FILE *file = fopen("file", "w+"), *memory = open_memstream(&(char *){NULL}, &(size_t){0});
    fputs("text", file);
    say("a file: %d\n", pclose(file));
    say("a memory stream: %d\n", pclose(memory));
    FILE *stream = popen("exit 5", "r");
    int status;
    say("reaped: %d\n", wait(&status) > 0);
    errno = 0;
    int closed = pclose(stream);
    say("pclose after that: %d %s\n", closed, closed == -1 ? strerrorname_np(errno) : "");
    stream = popen("exit 7", "w");
    unread(stream);
    fputs("nobody reads", stream);
    say("nobody read: %s\n", status_words(pclose(stream)));
    stream = popen("exit 0", "w");
    unread(stream);
    fputs("nobody reads", stream);
    errno = 0;
    closed = pclose(stream);
    say("nobody read: %d, %s\n", closed, strerrorname_np(errno));
}

static void closed_streams(void) {
    int kept[3];
    for (int fd = 0; fd < 3; fd++)
        kept[fd] = fcntl(fd, F_DUPFD_CLOEXEC, 100);
    for (int closed = 1; closed < 8; closed++) {
        for (int fd = 0; fd < 3; fd++)
            if (closed & 1 << fd)
                close(fd);
        snprintf(line, sizeof line, "closed %d", closed);
        find(line, "r");
        find(line, "w");
        say("system: %s\n", status_words(system("true")));
        for (int fd = 0; fd < 3; fd++)
            dup2(kept[fd], fd);
    }
}

/* A stream whose descriptor is 0 or 1, because the caller had closed that, and a second stream. (At 2 it would
 * receive the log.) */
static void low_streams(void) {
    int kept[3];
    for (int fd = 0; fd < 3; fd++)
        kept[fd] = fcntl(fd, F_DUPFD_CLOEXEC, 100);
    static const char *const modes[] = {"r", "w", "re", "we"};
    for (int n = 0; n < 4 * 16; n++) {
        int closed = n / 16;
        const char *one_mode = modes[n / 4 % 4], *two_mode = modes[n % 4];
        for (int fd = 0; fd < 3; fd++)
            if (closed & 1 << fd)
                close(fd);
        FILE *one = popen(*one_mode == 'r' ? "printf one" : "cat >one", one_mode);
        FILE *two = popen(*two_mode == 'r' ? "printf two" : "cat >two", two_mode);
        char text[16] = "";
        FILE *streams[] = {one, two};
        int ends[2];
        for (int at = 1; at >= 0; at--) {
            if (*(at ? two_mode : one_mode) == 'r')
                say("%s ", fgets(text, sizeof text, streams[at]) ? text : "nothing");
            else
                fprintf(streams[at], "for %d", at);
            ends[at] = pclose(streams[at]);
        }
        snprintf(line, sizeof line, "cat one two >>'%s'; rm -f one two", report);
        for (int fd = 0; fd < 3; fd++)
            dup2(kept[fd], fd);
        say("closed %d, %s and %s: %d %d, written: ", closed, one_mode, two_mode, ends[0], ends[1]);
        system(line);
        say("\n");
    }
    for (int closed = 0; closed < 4; closed++) {
        for (int fd = 0; fd < 3; fd++)
            if (closed & 1 << fd)
                close(fd);
        FILE *one = popen("sleep 0.05", "r"), *two = popen("cat >/dev/null", "w");
        snprintf(line, sizeof line, "beside low streams, closed %d", closed);
        find(line, "r");
        find(line, "w");
        pclose(one);
        pclose(two);
        for (int fd = 0; fd < 3; fd++)
            dup2(kept[fd], fd);
    }
    for (int fd = 0; fd < 3; fd++)
        close(kept[fd]);
}

static void orientation(void) {
    for (int n = 0; n < 2; n++) {
        FILE *stream = popen("cat >/dev/null </dev/null", n ? "w" : "r");
        int before = fwide(stream, 0), wanted = fwide(stream, 1);
        say("orientation: %d %d, %d\n", before, wanted, pclose(stream));
    }
}

static void large(void) {
    static const int sizes[] = {8192, 131000, 1 << 20};
    for (int n = 0; n < 3; n++) {
        strcpy(line, "printf %s ");
        memset(line + 10, 'x', (size_t)sizes[n]);
        line[10 + sizes[n]] = 0;
        char what[20];
        snprintf(what, sizeof what, "%d bytes", sizes[n]);
        child(what, line, "r", 1);
    }
    struct rlimit limit;
    getrlimit(RLIMIT_STACK, &limit);
    limit.rlim_cur = 128 << 10;
    setrlimit(RLIMIT_STACK, &limit);
    child("a small stack", "echo small", "r", 1);
    getrlimit(RLIMIT_NOFILE, &limit);
    struct rlimit few = {.rlim_cur = 3, .rlim_max = limit.rlim_max};
    for (int fd = 3; fd < 200; fd++)
        close(fd);
    static const int most[] = {3, 4, 12};
    for (int n = 0; n < 3; n++) {
        few.rlim_cur = (rlim_t)most[n];
        setrlimit(RLIMIT_NOFILE, &few);
        FILE *stream = popen("exit 4", "r");
        int status = stream ? pclose(stream) : -1;
        setrlimit(RLIMIT_NOFILE, &limit);
        say("%d descriptors: %s\n", most[n], stream ? status_words(status) : "refused");
    }
}

static void alarmed(int signal) {
    (void)signal;
}

static void interrupted(void) {
    struct sigaction action = {.sa_handler = alarmed};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, NULL);
    for (int n = 0; n < 5; n++) {
        FILE *stream = popen("sleep 0.1; exit 8", "r");
        say("in a storm: %s\n", status_words(pclose(stream)));
        say("system in a storm: %s\n", status_words(system("sleep 0.05; exit 9")));
    }
    setitimer(ITIMER_REAL, &never, NULL);
}

/* A later program does not inherit an earlier stream. Otherwise the earlier program would never see end of file;
 * this checks before anything waits for that. */
static void earlier(void) {
    char looks[60];
    FILE *first = popen("exec cat >/dev/null", "w");
    snprintf(looks, sizeof looks, "test ! -e /proc/self/fd/%d", fileno(first));
    FILE *second = popen(looks, "r");
    int status = pclose(second);
    say("an earlier stream: %s\n", status_words(status));
    if (status)
        exit(1);
    say("and its own program: %s\n", status_words(pclose(first)));
}

static void *closes(void *stream) {
    return (void *)(long)pclose(stream);
}

/* Nor while another thread closes that stream, and waits for its program to read the last bytes. */
static void closing(void) {
    char looks[60];
    void *status;
    pthread_t thread;
    if (mkfifo("go", 0600))
        abort();
    FILE *slow = popen("read line <go; exec cat >/dev/null", "w");
    int fd = fileno(slow);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    while (write(fd, line, 4096) > 0) {
    }
    fcntl(fd, F_SETFL, 0);
    fputs("the last bytes", slow);
    pthread_create(&thread, NULL, closes, slow);
    usleep(200000);
    snprintf(looks, sizeof looks, "test ! -e /proc/self/fd/%d", fd);
    say("a stream that is being closed: %s\n", status_words(pclose(popen(looks, "r"))));
    close(open("go", O_WRONLY | O_CLOEXEC));
    pthread_join(thread, &status);
    say("and its own program: %s\n", status_words((int)(long)status));
}

int main(int argc, char **argv) {
    begin(argc, argv);
    /* Some programs end without reading their input. */
    signal(SIGPIPE, SIG_IGN);
    open_some(0);
    /* The first stream of the process is close-on-exec. */
    child("first", "exit 3", "re", 1);
    earlier();
    closing();
    commands();
    inheritance();
    foreign();
    closed_streams();
    low_streams();
    orientation();
    interrupted();
    large();
    return 0;
}

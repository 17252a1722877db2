/* Documented behaviour, in every mode. */
#include "noshell.h"

static void statuses(void) {
    pclose_arg arg;
    expect_text("out\n", run(ARGV("sh", "-c", "echo out; exit 3"), "r", &arg, 0), &arg, 3 << 8);
    expect_text("", run(ARGV("sh", "-c", "kill -9 $$"), "r", &arg, 0), &arg, 9);
    FILE *stream = run(ARGV("sh", "-c", "read word; test \"$word\" = in && exit 4"), "w", &arg, 0);
    CHECK(fputs("in\n", stream) >= 0);
    EXPECT(4 << 8, pclose_noshell(&arg));
}

/* The standard stream without a pipe is /dev/null, whatever the caller's is. */
static void the_other_stream(void) {
    pclose_arg arg;
    expect_text("/dev/null\n", run(ARGV("readlink", "/proc/self/fd/0"), "r", &arg, 0), &arg, 0);
    run(ARGV("sh", "-c", "test \"$(readlink /proc/$$/fd/1)\" = /dev/null"), "w", &arg, 0);
    EXPECT(0, pclose_noshell(&arg));
}

static void standard_error(void) {
    const char *const *both = ARGV("sh", "-c", "echo err >&2; echo out");
    pclose_arg arg;
    expect_text("out\n", run(both, "r", &arg, 1), &arg, 0);
    expect_text("err\nout\n", run(both, "r", &arg, 2), &arg, 0);
    /* In mode "w", merged standard error is /dev/null. */
    run(ARGV("sh", "-c", "test \"$(readlink /proc/$$/fd/2)\" = /dev/null"), "w", &arg, 2);
    EXPECT(0, pclose_noshell(&arg));
    int ends[2], old = dup(2);
    char got[8] = "";
    EXPECT(0, pipe2(ends, O_CLOEXEC));
    EXPECT(2, dup2(ends[1], 2));
    FILE *stream = run(both, "r", &arg, 0);
    EXPECT(2, dup2(old, 2));
    close(old), close(ends[1]);
    expect_text("out\n", stream, &arg, 0);
    EXPECT(4, read(ends[0], got, sizeof got));
    CHECK(strcmp(got, "err\n") == 0);
    close(ends[0]);
}

/* argv[0], arguments, and the search in the current PATH. */
static void programs(void) {
    pclose_arg arg;
    FILE *stream = popen_noshell("sh", ARGV("another", "-c", "echo $0"), "r", &arg, 0);
    expect_text("another\n", stream, &arg, 0);
    expect_text("|a b|*|$HOME|", run(ARGV("printf", "%s|", "", "a b", "*", "$HOME"), "r", &arg, 0), &arg, 0);

    char directory[] = "/tmp/noshell-path-XXXXXX", path[64], *old = strdup(getenv("PATH")), with[4096];
    CHECK(mkdtemp(directory) != NULL);
    snprintf(path, sizeof path, "%s/script-without-a-head", directory);
    FILE *script = fopen(path, "we");
    CHECK(script != NULL && fputs("echo \"script of $#\"\n", script) >= 0 && fchmod(fileno(script), 0755) == 0);
    fclose(script);
    snprintf(with, sizeof with, "%s:%s", directory, old);
    setenv("PATH", with, 1);
    /* A file without #! is run by the shell, as with execvp(3), by name and by path. */
    expect_text("script of 2\n", run(ARGV("script-without-a-head", "a", "b"), "r", &arg, 0), &arg, 0);
    expect_text("script of 1\n", run(ARGV(path, "a"), "r", &arg, 0), &arg, 0);
    setenv("PATH", old, 1);
    free(old), unlink(path), rmdir(directory);

    setenv("NOSHELL_TEST", "here", 1);
    expect_text("here\n", run(ARGV("printenv", "NOSHELL_TEST"), "r", &arg, 0), &arg, 0);
    unsetenv("NOSHELL_TEST");
    run(ARGV("printenv", "NOSHELL_TEST"), "r", &arg, 0);
    EXPECT(1 << 8, pclose_noshell(&arg));
}

/* Inherited: every descriptor that is not close-on-exec, ignored signals and the signal mask, as by execve(2). */
static void inherited(void) {
    pclose_arg arg, other;
    char line[128], want[128] = "";
    int open = dup(0), closed = fcntl(0, F_DUPFD_CLOEXEC, 0);
    CHECK(open > 2 && closed > 2);
    FILE *held = run(ARGV("cat"), "w", &other, 0);
    CHECK(fcntl(fileno(held), F_GETFD) & FD_CLOEXEC);
    snprintf(line, sizeof line, "for n in %d %d %d; do test -e /proc/$$/fd/$n; echo $?; done", open, closed, fileno(held));
    expect_text("0\n1\n1\n", run(ARGV("sh", "-c", line), "r", &arg, 0), &arg, 0);
    EXPECT(0, pclose_noshell(&other));
    close(open), close(closed);

    sigset_t some, old;
    sigemptyset(&some), sigaddset(&some, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &some, &old);
    signal(SIGUSR1, SIG_IGN);
    FILE *own = fopen("/proc/self/status", "re");
    while (fgets(line, sizeof line, own))
        if (strncmp(line, "SigBlk", 6) == 0 || strncmp(line, "SigIgn", 6) == 0) strcat(want, line);
    fclose(own);
    CHECK(strlen(want) > 40);
    FILE *stream = run(ARGV("grep", "-E", "SigBlk|SigIgn", "/proc/self/status"), "r", &arg, 0);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    signal(SIGUSR1, SIG_DFL);
    expect_text(want, stream, &arg, 0);
}

static void lines(void) {
    pclose_arg arg;
    FILE *stream = popen_noshell_compat(" printf\t'%s,'  \"a b\"'*' \"it's\" x'y'z # ~ ", "r", &arg);
    expect_text("a b*,it's,xyz,#,~,", stream, &arg, 0);
    CHECK((stream = popen_noshell_compat("sh -c 'read word' ", "w", &arg)) != NULL && fputs("word\n", stream) >= 0);
    EXPECT(0, pclose_noshell(&arg));
}

int main(void) {
    int fds = open_fds();
    EXPECT(POPEN_NOSHELL_MODE_CLONE, popen_noshell_get_fork_mode());
    in_every_mode(statuses);
    in_every_mode(the_other_stream);
    in_every_mode(standard_error);
    in_every_mode(programs);
    in_every_mode(inherited);
    in_every_mode(lines);
    expect_nothing_left(fds);
    return 0;
}

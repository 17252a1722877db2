/* Tests of sandboxes, by namespaces and by Landlock. */
#include "check.h"
#include <limits.h>
#include <sys/stat.h>

typedef int (*preparation)(const forkless_sandbox_options *options, forkless_sandbox **sandbox, forkless_error *error);

static char place[PATH_MAX];

static char *below(const char *name) {
    char *path = NULL;
    CHECK(asprintf(&path, "%s/%s", place, name) > 0);
    return path;
}

static forkless_sandbox *prepare(preparation mode, const forkless_sandbox_options *options) {
    forkless_sandbox *sandbox = NULL;
    EXPECT(0, mode(options, &sandbox, NULL));
    return sandbox;
}

static int works(preparation mode) {
    forkless_sandbox_options options = FORKLESS_SANDBOX_INIT;
    forkless_sandbox *sandbox = NULL;
    forkless_error error;
    int answer = mode(&options, &sandbox, &error);
    if (answer == 0) {
        answer = forkless_sandbox_check(sandbox, &error);
        /* Linux 5.12 has mount_setattr(2). */
        CHECK(answer == 0 || error.step == FORKLESS_STEP_CLONE || error.errnum == ENOSYS);
        forkless_sandbox_free(sandbox);
    } else {
        EXPECT(-ENOTSUP, answer);
    }
    if (answer != 0) printf("SKIPPED: sandboxes in C, because %s\n", error.message);
    return answer == 0;
}

static forkless_command *sandboxed(const char *format, const forkless_sandbox *sandbox) {
    char line[PATH_MAX * 4];
    snprintf(line, sizeof line, format, place, place);
    forkless_command *command = shell(line);
    EXPECT(0, forkless_command_current_dir(command, "/"));
    EXPECT(0, forkless_command_sandbox(command, sandbox));
    return command;
}

static void rules(preparation mode) {
    forkless_sandbox_options options = FORKLESS_SANDBOX_INIT;
    forkless_error error;
    snprintf(place, sizeof place, "/tmp/forkless-c-sandbox-%d", (int)getpid());
    char *inside = below("inside"), *none = below("none");
    EXPECT(0, mkdir(place, 0755));
    EXPECT(0, mkdir(inside, 0777));
    EXPECT(0, chmod(inside, 0777));
    char *write[] = {inside, NULL}, *names[] = {(char *)"KEPT", NULL}, *missing[] = {none, NULL};
    setenv("KEPT", "1", 1);
    setenv("SECRET", "2", 1);
    int fds = open_fds();

    options.write = write;
    options.keep_env = names;
    forkless_sandbox *sandbox = prepare(mode, &options);
    const char *line = "echo $KEPT$SECRET > %s/inside/a && cat %s/inside/a; (ls /root || echo refused) 2> /dev/null";
    expect_output(sandboxed(line, sandbox), "1\nrefused\n");
    /* The command keeps what it needs. */
    forkless_command *command = sandboxed("cat %s/inside/a; rm %s/inside/a", sandbox);
    forkless_sandbox_free(sandbox);
    expect_output(command, "1\n");

    options.read = missing;
    EXPECT(-ENOENT, mode(&options, &sandbox, &error));
    CHECK(strstr(error.message, none) != NULL);
    options.read = NULL;

    sandbox = prepare(mode, &options);
    command = sandboxed("true", sandbox);
    EXPECT(0, forkless_command_inherit_all(command, 1));
    int status;
    EXPECT(-EINVAL, forkless_command_status(command, &status, &error));
    CHECK(strstr(error.message, "inherit_all") != NULL);
    forkless_command_free(command);
    command = sandboxed("true", sandbox);
    EXPECT(0, rmdir(inside));
    EXPECT(-ENOENT, forkless_command_status(command, &status, &error));
    EXPECT(FORKLESS_STEP_LANDLOCK, error.step);
    forkless_command_free(command);
    forkless_sandbox_free(sandbox);
    expect_nothing_left(fds);
    EXPECT(0, rmdir(place));
    free(inside);
    free(none);
}

static void project(void) {
    snprintf(place, sizeof place, "/tmp/forkless-c-project-%d", (int)getpid());
    char *hooks = below(".git/hooks"), *git = below(".git"), *projects[] = {place, NULL};
    EXPECT(0, mkdir(place, 0777));
    EXPECT(0, mkdir(git, 0777));
    EXPECT(0, mkdir(hooks, 0777));
    EXPECT(0, chmod(place, 0777) | chmod(git, 0777) | chmod(hooks, 0777));
    forkless_sandbox_options options = FORKLESS_SANDBOX_INIT;
    options.project = projects;
    forkless_sandbox *sandbox = prepare(forkless_sandbox_namespaces, &options);
    const char *line = "(cd %s && echo > new && rm new; echo > %s/.git/hooks/a || echo refused) 2> /dev/null";
    expect_output(sandboxed(line, sandbox), "refused\n");
    forkless_sandbox_free(sandbox);
    char *hidden[] = {(char *)"**/.gi?", hooks, NULL};
    options.hide = hidden;
    sandbox = prepare(forkless_sandbox_namespaces, &options);
    expect_output(sandboxed("(ls %s/.git || echo denied) 2> /dev/null", sandbox), "denied\n");
    forkless_sandbox_free(sandbox);
    EXPECT(0, rmdir(hooks) | rmdir(git) | rmdir(place));
    free(hooks);
    free(git);
}

/* The handle knows how the program ended, and waitpid(2) how init did. */
static void ends(void) {
    forkless_sandbox_options options = FORKLESS_SANDBOX_INIT;
    options.flags = FORKLESS_SANDBOX_NETWORK_REFUSED;
    forkless_sandbox *sandbox = prepare(forkless_sandbox_namespaces, &options);
    forkless_command *command = sandboxed("test $PPID = 1 && kill -TERM $$", sandbox);
    forkless_child *child;
    int status;
    EXPECT(0, forkless_command_status(command, &status, NULL));
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    EXPECT(0, forkless_command_spawn(command, &child, NULL));
    pid_t pid = forkless_child_pid(child);
    EXPECT(pid, waitpid(pid, &status, 0));
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGTERM);
    EXPECT(0, forkless_child_wait(child, &status, NULL));
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    forkless_child_free(child);
    forkless_command_free(command);
    forkless_sandbox_free(sandbox);
}

/* What else runs when the program has ended. */
static void lingers(void) {
    forkless_sandbox_options options = FORKLESS_SANDBOX_INIT;
    for (int n = 0; n < 2; n++) {
        options.linger_ms = n ? 0 : -1;
        forkless_sandbox *sandbox = prepare(forkless_sandbox_namespaces, &options);
        expect_output(sandboxed("(sleep 0.05; echo late) & echo done", sandbox), n ? "done\n" : "done\nlate\n");
        forkless_sandbox_free(sandbox);
    }
}

/* The program is PID 1, and its status that of waitpid(2). */
static void has_no_init(void) {
    forkless_sandbox_options options = FORKLESS_SANDBOX_INIT;
    forkless_sandbox *none;
    forkless_error error;
    int status;
    options.flags = FORKLESS_SANDBOX_NO_INIT;
    forkless_sandbox *sandbox = prepare(forkless_sandbox_namespaces, &options);
    expect_output(sandboxed("(setsid sleep 600 &) & echo $$; read name < /proc/1/comm; echo $name", sandbox), "1\nsh\n");
    forkless_command *command = sandboxed("exit 7", sandbox);
    forkless_child *child;
    EXPECT(0, forkless_command_spawn(command, &child, NULL));
    pid_t pid = forkless_child_pid(child);
    EXPECT(pid, waitpid(pid, &status, 0));
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    forkless_child_free(child);
    forkless_command_free(command);
    forkless_sandbox_free(sandbox);
    options.linger_ms = 0;
    EXPECT(-EINVAL, forkless_sandbox_namespaces(&options, &none, &error));
    CHECK(strstr(error.message, "linger"));
}

/* What it writes to /tmp is not executed. */
static void strict(void) {
    forkless_sandbox_options options = FORKLESS_SANDBOX_INIT;
    forkless_sandbox *sandbox;
    forkless_error error;
    options.flags = FORKLESS_SANDBOX_STRICT;
    EXPECT(-EINVAL, forkless_sandbox_landlock(&options, &sandbox, &error));
    int made = forkless_sandbox_namespaces(&options, &sandbox, &error);
    if (made == -ENOTSUP) return;
    EXPECT(0, made);
    expect_output(sandboxed("cp /bin/true /tmp/true && /tmp/true 2>/dev/null || echo $?", sandbox), "126\n");
    forkless_sandbox_free(sandbox);
}

int main(void) {
    if (works(forkless_sandbox_landlock)) rules(forkless_sandbox_landlock);
    if (works(forkless_sandbox_namespaces)) {
        rules(forkless_sandbox_namespaces);
        ends();
        lingers();
        has_no_init();
        strict();
        project();
    }
    return 0;
}

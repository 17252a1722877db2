/* Tests of sandboxes by Landlock. */
#include "check.h"
#include <limits.h>
#include <sys/stat.h>

static char place[PATH_MAX];

static char *below(const char *name) {
    char *path = NULL;
    CHECK(asprintf(&path, "%s/%s", place, name) > 0);
    return path;
}

static forkless_sandbox *prepare(const forkless_sandbox_options *options) {
    forkless_sandbox *sandbox = NULL;
    forkless_error error;
    int answer = forkless_sandbox_landlock(options, &sandbox, &error);
    if (answer == -ENOTSUP) {
        printf("SKIPPED: sandboxes in C, because %s\n", error.message);
        exit(0);
    }
    EXPECT(0, answer);
    return sandbox;
}

static forkless_command *sandboxed(const char *format, const forkless_sandbox *sandbox) {
    char line[PATH_MAX * 4];
    snprintf(line, sizeof line, format, place, place);
    forkless_command *command = shell(line);
    EXPECT(0, forkless_command_current_dir(command, "/"));
    EXPECT(0, forkless_command_sandbox(command, sandbox));
    return command;
}

int main(void) {
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
    forkless_sandbox *sandbox = prepare(&options);
    const char *line = "echo $KEPT$SECRET > %s/inside/a && cat %s/inside/a; (ls /tmp || echo refused) 2> /dev/null";
    expect_output(sandboxed(line, sandbox), "1\nrefused\n");
    /* The command keeps what it needs. */
    forkless_command *command = sandboxed("cat %s/inside/a; rm %s/inside/a", sandbox);
    forkless_sandbox_free(sandbox);
    expect_output(command, "1\n");

    options.read = missing;
    EXPECT(-ENOENT, forkless_sandbox_landlock(&options, &sandbox, &error));
    CHECK(strstr(error.message, none) != NULL);
    options.read = NULL;

    sandbox = prepare(&options);
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
    return 0;
}

/* Tests of zygotes. The helper is another instance of this program. */
#include "check.h"

static int number;

/* Functions that children call before exec. */
static int say(const void *bytes, size_t size) {
    return write(1, bytes, size) == (ssize_t)size ? 0 : errno;
}

static int refuse(const void *bytes, size_t size) {
    (void)bytes;
    return size == 0 ? EACCES : 0;
}

static int tell_number(const void *bytes, size_t size) {
    (void)bytes, (void)size;
    number += 100;
    return dprintf(1, "%d\n", number - 100) > 0 ? 0 : EIO;
}

static const forkless_zygote_entry functions[] = {{"say", say}, {"refuse", refuse}, {"number", tell_number}};

static forkless_zygote *start(int restart) {
    forkless_zygote_options how = FORKLESS_ZYGOTE_INIT;
    forkless_zygote *zygote = NULL;
    forkless_error error;
    how.restart = restart;
    if (forkless_zygote_start(&how, &zygote, &error) < 0) {
        fprintf(stderr, "%s\n", error.message);
        exit(1);
    }
    return zygote;
}

static forkless_prepared *prepare(const char *line) {
    forkless_command *command = shell(line);
    forkless_prepared *prepared = NULL;
    EXPECT(0, forkless_command_fd_pipe(command, 1));
    EXPECT(0, forkless_command_prepare(command, &prepared, NULL));
    forkless_command_free(command);
    return prepared;
}

static void expect_end(forkless_child *child, const char *text, int status) {
    forkless_output *output;
    EXPECT(0, forkless_child_output(child, &output, NULL));
    CHECK(strcmp(output->out, text) == 0);
    EXPECT(status, output->status);
    forkless_output_free(output);
    forkless_child_free(child);
}

static void launched_by_a_zygote(void) {
    forkless_zygote *zygote = start(FORKLESS_RESTART_ALWAYS);
    forkless_prepared *prepared = prepare("echo $PPID; exit 3"), *none;
    forkless_command *command;
    forkless_zygote_stats stats;
    forkless_child *child = NULL;
    forkless_output *output;
    forkless_error error;
    char own[32], route[256];
    int status;
    /* The child is this process's child, and not the helper's. */
    snprintf(own, sizeof own, "%d\n", (int)getpid());
    CHECK(forkless_zygote_pid(zygote) > 0 && forkless_zygote_pid(zygote) != getpid());
    EXPECT(0, forkless_zygote_spawn(zygote, prepared, &child, NULL));
    EXPECT(FORKLESS_LAUNCHER_ZYGOTE, forkless_child_launcher(child));
    CHECK(forkless_child_route(child, route, sizeof route) > 0 && strstr(route, "zygote") != NULL);
    expect_end(child, own, 3 << 8);
    EXPECT(0, forkless_zygote_launch(zygote, prepared, &child, NULL));
    EXPECT(1, forkless_child_wait_exec(child, -1, NULL));
    expect_end(child, own, 3 << 8);
    EXPECT(0, forkless_zygote_output(zygote, prepared, &output, NULL));
    CHECK(strcmp(output->out, own) == 0);
    EXPECT(3 << 8, output->status);
    forkless_output_free(output);
    EXPECT(0, forkless_zygote_status(zygote, prepared, &status, NULL));
    EXPECT(0, forkless_prepared_spawn(prepared, &child, NULL));
    EXPECT(FORKLESS_LAUNCHER_CLONE, forkless_child_launcher(child));
    expect_end(child, own, 3 << 8);
    forkless_prepared_free(prepared);

    EXPECT(0, forkless_command_new("/no/such/program", &command));
    EXPECT(0, forkless_command_prepare(command, &none, NULL));
    child = NULL;
    EXPECT(-ENOENT, forkless_zygote_spawn(zygote, none, &child, &error));
    EXPECT(FORKLESS_STEP_EXEC, error.step);
    CHECK(child == NULL);
    forkless_prepared_free(none);
    EXPECT(0, forkless_command_inherit_all(command, 1));
    EXPECT(0, forkless_command_prepare(command, &none, NULL));
    EXPECT(-EINVAL, forkless_zygote_launch(zygote, none, &child, &error));
    EXPECT(FORKLESS_STEP_CHECK, error.step);
    forkless_prepared_free(none);
    /* A zygote cannot be selected as a command's launcher. */
    EXPECT(-EINVAL, forkless_command_launcher(command, FORKLESS_LAUNCHER_ZYGOTE));
    forkless_command_free(command);
    EXPECT(0, forkless_zygote_get_stats(zygote, &stats, sizeof stats));
    EXPECT(4, stats.launches);
    EXPECT(1, stats.starts);
    EXPECT(0, stats.deaths);
    forkless_zygote_free(zygote);
}

static void functions_are_called_before_the_program(void) {
    forkless_zygote *zygote = start(FORKLESS_RESTART_ALWAYS);
    forkless_prepared *prepared = prepare("echo program");
    forkless_child *child = NULL;
    forkless_error error;
    forkless_zygote_call calls[] = {{"say", "one\n", 4}, {"say", NULL, 0}, {"say", "two\n", 4}};
    forkless_zygote_call failing[] = {{"say", "", 0}, {"refuse", NULL, 0}};
    forkless_zygote_call none[] = {{"no such", NULL, 0}};
    EXPECT(0, forkless_zygote_spawn_with(zygote, prepared, calls, 3, &child, NULL));
    expect_end(child, "one\ntwo\nprogram\n", 0);
    EXPECT(0, forkless_zygote_launch_with(zygote, prepared, calls, 1, &child, NULL));
    expect_end(child, "one\nprogram\n", 0);
    EXPECT(0, forkless_zygote_spawn_with(zygote, prepared, NULL, 0, &child, NULL));
    expect_end(child, "program\n", 0);
    child = NULL;
    EXPECT(-ECANCELED, forkless_zygote_spawn_with(zygote, prepared, failing, 2, &child, &error));
    EXPECT(FORKLESS_STEP_FUNCTION, error.step);
    CHECK(strstr(error.message, "refuse") != NULL && strstr(error.message, strerror(EACCES)) != NULL);
    CHECK(forkless_zygote_launch_with(zygote, prepared, none, 1, &child, &error) < 0);
    EXPECT(FORKLESS_STEP_FUNCTION, error.step);
    CHECK(strstr(error.message, "no such") != NULL);
    none[0].name = NULL;
    EXPECT(-EINVAL, forkless_zygote_launch_with(zygote, prepared, none, 1, &child, NULL));
    EXPECT(-EINVAL, forkless_zygote_launch_with(zygote, prepared, NULL, 1, &child, NULL));
    CHECK(child == NULL);
    forkless_prepared_free(prepared);
    forkless_zygote_free(zygote);
}

/* The child has the helper's memory, as of forkless_zygote_serve_if_asked, and not that of this process. */
static void children_have_the_helpers_memory(void) {
    forkless_zygote *zygote = start(FORKLESS_RESTART_ALWAYS);
    forkless_prepared *prepared = prepare("echo program");
    forkless_zygote_call call = {"number", NULL, 0};
    forkless_child *child;
    number = 5;
    EXPECT(0, forkless_zygote_spawn_with(zygote, prepared, &call, 1, &child, NULL));
    expect_end(child, "1\nprogram\n", 0);
    EXPECT(5, number);
    forkless_prepared_free(prepared);
    forkless_zygote_free(zygote);
}

static void a_killed_helper_is_replaced(void) {
    forkless_zygote *zygote = start(FORKLESS_RESTART_ALWAYS);
    forkless_prepared *prepared = prepare("echo on");
    forkless_child *child = NULL;
    forkless_zygote_stats stats = {77, 77, 77};
    forkless_error error;
    EXPECT(0, kill(forkless_zygote_pid(zygote), SIGKILL));
    EXPECT(0, forkless_zygote_spawn(zygote, prepared, &child, NULL));
    expect_end(child, "on\n", 0);
    /* With a shorter struct, only that part is written. */
    EXPECT(0, forkless_zygote_get_stats(zygote, &stats, 2 * sizeof(uint64_t)));
    EXPECT(1, stats.launches);
    EXPECT(2, stats.starts);
    EXPECT(77, stats.deaths);
    forkless_zygote_free(zygote);
    zygote = start(FORKLESS_RESTART_NEVER);
    EXPECT(0, kill(forkless_zygote_pid(zygote), SIGKILL));
    child = NULL;
    EXPECT(-ECANCELED, forkless_zygote_spawn(zygote, prepared, &child, &error));
    EXPECT(FORKLESS_STEP_ZYGOTE, error.step);
    CHECK(child == NULL);
    EXPECT(-ENOENT, forkless_zygote_pid(zygote));
    forkless_prepared_free(prepared);
    forkless_zygote_free(zygote);
}

/* The helper's children are children of the original process. */
static void a_forked_process_cannot_use_the_zygote(void) {
    forkless_zygote *zygote = start(FORKLESS_RESTART_ALWAYS);
    forkless_prepared *prepared = prepare("echo on");
    forkless_child *child = NULL;
    int status;
    pid_t copy = fork();
    CHECK(copy >= 0);
    if (copy == 0) {
        forkless_error error;
        EXPECT(-ECANCELED, forkless_zygote_spawn(zygote, prepared, &child, &error));
        EXPECT(FORKLESS_STEP_ZYGOTE, error.step);
        EXPECT(-ENOENT, forkless_zygote_pid(zygote));
        _exit(3);
    }
    EXPECT(copy, waitpid(copy, &status, 0));
    EXPECT(3 << 8, status);
    EXPECT(0, forkless_zygote_spawn(zygote, prepared, &child, NULL));
    expect_end(child, "on\n", 0);
    forkless_prepared_free(prepared);
    forkless_zygote_free(zygote);
}

static void programs_that_cannot_be_a_helper(void) {
    forkless_zygote_options how = FORKLESS_ZYGOTE_INIT;
    forkless_zygote *zygote = NULL;
    forkless_error error;
    char *args[] = {(char *)"-c", (char *)"exit 0", NULL};
    how.program = "/bin/sh", how.args = args;
    CHECK(forkless_zygote_start(&how, &zygote, &error) < 0);
    CHECK(error.message[0] != 0);
    how.program = "/no/such/program";
    EXPECT(-ENOENT, forkless_zygote_start(&how, &zygote, NULL));
    how.restart = 9;
    EXPECT(-EINVAL, forkless_zygote_start(&how, &zygote, NULL));
    CHECK(zygote == NULL);
}

int main(void) {
    forkless_zygote *zygote = NULL;
    int asked_already = getenv("FORKLESS_ZYGOTE") != NULL;
    /* A program that has not called forkless_zygote_serve_if_asked cannot be its own helper. */
    if (!asked_already) EXPECT(-EINVAL, forkless_zygote_start(NULL, &zygote, NULL));
    number = 1;
    EXPECT(0, forkless_zygote_serve_if_asked(functions, 3));
    CHECK(!asked_already && zygote == NULL);
    int fds = open_fds();
    if (access("/proc/self/exe", R_OK) < 0) {
        printf("SKIPPED: zygotes in C, because /proc is not there\n");
        return 0;
    }
    launched_by_a_zygote();
    functions_are_called_before_the_program();
    children_have_the_helpers_memory();
    a_killed_helper_is_replaced();
    a_forked_process_cannot_use_the_zygote();
    programs_that_cannot_be_a_helper();
    expect_nothing_left(fds);
    return 0;
}

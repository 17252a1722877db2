/* Tests of warm programs. WARM_LIBRARY: where the library is; without it, libforkless.so finds it beside itself. */
#include "check.h"

static forkless_warm *open_set(void) {
    forkless_warm_options how = FORKLESS_WARM_INIT;
    forkless_warm *warm = NULL;
    forkless_error error;
    how.library = getenv("WARM_LIBRARY");
    if (forkless_warm_open(&how, &warm, &error) < 0) {
        fprintf(stderr, "%s\n", error.message);
        exit(1);
    }
    return warm;
}

/* A command whose output shows its arguments, environment and directory. */
static forkless_command *command_with(forkless_warm *warm) {
    forkless_command *command = shell("echo \"$0 $* $VALUE\"; pwd; cat; cat /proc/$$/comm; exit 3");
    EXPECT(0, forkless_command_arg(command, "name"));
    EXPECT(0, forkless_command_arg(command, "one  two"));
    /* With a variable for the loader, which the tests have, launches are cold. */
    EXPECT(0, forkless_command_env_remove(command, "LD_LIBRARY_PATH"));
    EXPECT(0, forkless_command_env(command, "VALUE", "of this test"));
    EXPECT(0, forkless_command_current_dir(command, "/usr"));
    EXPECT(0, forkless_command_fd_null(command, 0));
    EXPECT(0, forkless_command_fd_pipe(command, 1));
    if (warm != NULL) EXPECT(0, forkless_command_warm(command, warm));
    return command;
}

static forkless_prepared *prepare(forkless_command *command) {
    forkless_prepared *prepared = NULL;
    EXPECT(0, forkless_command_prepare(command, &prepared, NULL));
    forkless_command_free(command);
    return prepared;
}

/* The output of a child, which must have ended with status 3. Frees the child. */
static void read_output(forkless_child *child, char *text, size_t size) {
    forkless_output *output;
    EXPECT(0, forkless_child_output(child, &output, NULL));
    EXPECT(3 << 8, output->status);
    snprintf(text, size, "%s", output->out);
    forkless_output_free(output);
    forkless_child_free(child);
}

/* Starts the template. The libraries may have been installed a moment ago, and templates are made of older files only. */
static void start(forkless_warm *warm, forkless_prepared *prepared) {
    forkless_error error;
    for (int n = 0; forkless_warm_start(warm, prepared, &error) < 0; n++) {
        if (strstr(error.message, "a moment ago") == NULL || n == 1000) {
            fprintf(stderr, "no template: %s\n", error.message);
            exit(1);
        }
        usleep(100000);
    }
}

/* Whether the next launch is warm; compares its output. */
static int is_warm(forkless_prepared *prepared, const char *text) {
    forkless_child *child;
    char out[256], reason[256];
    EXPECT(0, forkless_prepared_spawn(prepared, &child, NULL));
    int answer = forkless_child_cold_reason(child, reason, sizeof reason);
    int warm = forkless_child_launcher(child) == FORKLESS_LAUNCHER_WARM;
    CHECK(warm ? answer == -ENOENT : answer > 0 && (size_t)answer == strlen(reason));
    read_output(child, out, sizeof out);
    CHECK(strcmp(out, text) == 0);
    return warm;
}

static char expected[256];

static void a_warm_launch_is_as_a_cold_one(void) {
    forkless_warm *warm = open_set();
    forkless_prepared *cold = prepare(command_with(NULL)), *prepared = prepare(command_with(warm));
    forkless_warm_stats stats;
    forkless_child *child;
    char out[256], reason[256];
    EXPECT(0, forkless_prepared_spawn(cold, &child, NULL));
    EXPECT(-ENOENT, forkless_child_cold_reason(child, reason, sizeof reason));
    read_output(child, expected, sizeof expected);
    CHECK(strcmp(expected, "name one  two of this test\n/usr\nsh\n") == 0);
    forkless_prepared_free(cold);

    /* The first launch is cold. */
    EXPECT(0, forkless_prepared_spawn(prepared, &child, NULL));
    CHECK(forkless_child_cold_reason(child, reason, sizeof reason) > 0);
    CHECK(strcmp(reason, "the template was not started yet") == 0);
    EXPECT(FORKLESS_LAUNCHER_CLONE, forkless_child_launcher(child));
    read_output(child, out, sizeof out);
    CHECK(strcmp(out, expected) == 0);
    start(warm, prepared);
    CHECK(is_warm(prepared, expected));
    EXPECT(0, forkless_prepared_launch(prepared, &child, NULL));
    EXPECT(FORKLESS_LAUNCHER_WARM, forkless_child_launcher(child));
    EXPECT(1, forkless_child_wait_exec(child, -1, NULL));
    read_output(child, out, sizeof out);
    CHECK(strcmp(out, expected) == 0);
    EXPECT(0, forkless_warm_get_stats(warm, &stats, sizeof stats));
    EXPECT(2, stats.warm);
    EXPECT(1, stats.cold);
    CHECK(stats.starts >= 1 && stats.crashes == 0);
    forkless_prepared_free(prepared);
    forkless_warm_free(warm);
}

static void a_setting_that_exec_looks_at_is_cold(void) {
    forkless_warm *warm = open_set();
    forkless_command *command = command_with(warm);
    forkless_prepared *prepared;
    forkless_child *child;
    forkless_error error;
    char out[256], reason[256];
    EXPECT(0, forkless_command_no_new_privs(command, 1));
    prepared = prepare(command);
    EXPECT(-ENOTSUP, forkless_warm_start(warm, prepared, &error));
    EXPECT(0, forkless_prepared_spawn(prepared, &child, NULL));
    CHECK(forkless_child_cold_reason(child, reason, sizeof reason) > 0 && strcmp(reason, error.message) == 0);
    CHECK(strstr(reason, "exec") != NULL);
    read_output(child, out, sizeof out);
    CHECK(strcmp(out, expected) == 0);
    EXPECT(0, forkless_warm_templates(warm, NULL, 0));
    forkless_prepared_free(prepared);
    forkless_warm_free(warm);
}

/* A command has the set also when the handle has been freed. With the last of them the templates end. */
static void templates_end_with_the_last_owner(void) {
    forkless_warm *warm = open_set();
    forkless_prepared *prepared = prepare(command_with(warm));
    pid_t pids[2] = {0, 0};
    start(warm, prepared);
    EXPECT(1, forkless_warm_templates(warm, pids, 2));
    CHECK(pids[0] > 0 && pids[1] == 0 && kill(pids[0], 0) == 0);
    forkless_warm_free(warm);
    CHECK(kill(pids[0], 0) == 0);
    CHECK(is_warm(prepared, expected));
    forkless_prepared_free(prepared);
    while (kill(pids[0], 0) == 0) usleep(1000);
    EXPECT(ESRCH, errno);
}

/* A forked copy of this process launches cold. It ends no template. */
static void a_forked_copy_is_cold(void) {
    forkless_warm *warm = open_set();
    forkless_prepared *prepared = prepare(command_with(warm));
    pid_t pids[1], copy;
    int status;
    start(warm, prepared);
    EXPECT(1, forkless_warm_templates(warm, pids, 1));
    copy = fork();
    CHECK(copy >= 0);
    if (copy == 0) {
        EXPECT(0, is_warm(prepared, expected));
        EXPECT(0, forkless_warm_templates(warm, pids, 1));
        forkless_prepared_free(prepared);
        forkless_warm_free(warm);
        _exit(0);
    }
    EXPECT(copy, waitpid(copy, &status, 0));
    EXPECT(0, status);
    CHECK(is_warm(prepared, expected));
    EXPECT(1, forkless_warm_templates(warm, &copy, 1));
    EXPECT(pids[0], copy);
    forkless_prepared_free(prepared);
    forkless_warm_free(warm);
}

static void *launches(void *given) {
    /* Each thread has commands of its own; the set is shared. */
    for (int n = 0; n < 25; n++) {
        forkless_prepared *prepared = prepare(command_with((forkless_warm *)given));
        CHECK(is_warm(prepared, expected));
        forkless_prepared_free(prepared);
    }
    return NULL;
}

static void threads_share_a_set(void) {
    forkless_warm_options how = FORKLESS_WARM_INIT;
    forkless_warm *warm;
    forkless_warm_stats stats;
    pthread_t threads[4];
    how.library = getenv("WARM_LIBRARY");
    how.launches = 10000;
    how.idle_ms = how.life_ms = -1;
    EXPECT(0, forkless_warm_open(&how, &warm, NULL));
    forkless_prepared *prepared = prepare(command_with(warm));
    start(warm, prepared);
    for (int n = 0; n < 4; n++) EXPECT(0, pthread_create(&threads[n], NULL, launches, warm));
    for (int n = 0; n < 4; n++) EXPECT(0, pthread_join(threads[n], NULL));
    EXPECT(0, forkless_warm_get_stats(warm, &stats, sizeof stats));
    EXPECT(100, stats.warm);
    EXPECT(1, stats.starts);
    forkless_prepared_free(prepared);
    forkless_warm_free(warm);
}

int main(void) {
#if defined(__GLIBC__) && __GLIBC__ == 2 && __GLIBC_MINOR__ < 34
    printf("SKIPPED: warm launches in C, because glibc is older than 2.34\n");
    return 0;
#endif
#if defined(__x86_64__) && defined(__GLIBC__)
    a_warm_launch_is_as_a_cold_one();
    a_setting_that_exec_looks_at_is_cold();
    templates_end_with_the_last_owner();
    a_forked_copy_is_cold();
    threads_share_a_set();
    while (forkless_reap_orphans() > 0) usleep(1000);
    EXPECT(-1, waitpid(-1, NULL, WNOHANG | __WALL));
    EXPECT(ECHILD, errno);
#else
    forkless_warm *warm = NULL;
    EXPECT(-ENOTSUP, forkless_warm_open(NULL, &warm, NULL));
#endif
    return 0;
}

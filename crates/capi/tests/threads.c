/* Tests with several threads, and with cancelled ones. */
#include "check.h"

static forkless_prepared *prepared;

static void *runs(void *argument) {
    for (int n = 0; n < 100; n++) {
        int status;
        forkless_child *child;
        EXPECT(0, forkless_prepared_status(prepared, &status, NULL));
        EXPECT(3 << 8, status);
        EXPECT(0, forkless_prepared_launch(prepared, &child, NULL));
        EXPECT(0, forkless_child_wait(child, &status, NULL));
        EXPECT(3 << 8, status);
        forkless_child_free(child);
        forkless_command *own;
        forkless_error error;
        EXPECT(0, forkless_command_new("/no/such/program", &own));
        EXPECT(-ENOENT, forkless_command_status(own, &status, &error));
        CHECK(strstr(error.message, "/no/such/program") != NULL);
        forkless_command_free(own);
    }
    return argument;
}

static void a_prepared_command_is_shared(void) {
    pthread_t threads[4];
    forkless_command *command = shell("exit 3");
    EXPECT(0, forkless_command_prepare(command, &prepared, NULL));
    forkless_command_free(command);
    for (int n = 0; n < 4; n++) EXPECT(0, pthread_create(&threads[n], NULL, runs, NULL));
    for (int n = 0; n < 4; n++) EXPECT(0, pthread_join(threads[n], NULL));
    forkless_prepared_free(prepared);
}

static void *waits(void *argument) {
    int status, result;
    /* The other thread may just have the child. */
    while ((result = forkless_child_wait((forkless_child *)argument, &status, NULL)) == -EBUSY) usleep(100);
    EXPECT(0, result);
    EXPECT(SIGKILL, status);
    return argument;
}

/* A second thread that uses a handle gets EBUSY, and nothing is lost. */
static void a_child_is_used_by_one_thread_at_a_time(void) {
    pthread_t thread;
    forkless_command *command = shell("exec sleep 20");
    forkless_child *child;
    EXPECT(0, forkless_command_spawn(command, &child, NULL));
    forkless_command_free(command);
    pid_t pid = forkless_child_pid(child);
    EXPECT(0, pthread_create(&thread, NULL, waits, child));
    while (forkless_child_kill_on_free(child, 0) != -EBUSY) usleep(1000);
    EXPECT(-EBUSY, forkless_child_kill(child));
    EXPECT(0, kill(pid, SIGKILL));
    EXPECT(0, pthread_join(thread, NULL));
    EXPECT(0, forkless_child_kill(child));
    forkless_child_free(child);
}

static void *runs_once(void *command) {
    int status, result;
    /* The setter may just have the command. */
    while ((result = forkless_command_status((forkless_command *)command, &status, NULL)) == -EBUSY) usleep(100);
    EXPECT(0, result);
    return NULL;
}

/* The setter fails while the other thread runs the command. It is not run without that setting. */
static void a_setter_that_comes_too_early_is_not_left_out(void) {
    pthread_t thread;
    int status;
    forkless_error error;
    forkless_command *command = shell("sleep 0.3");
    EXPECT(0, pthread_create(&thread, NULL, runs_once, command));
    while (forkless_command_umask(command, 077) != -EBUSY) usleep(1000);
    EXPECT(0, pthread_join(thread, NULL));
    EXPECT(-EBUSY, forkless_command_status(command, &status, &error));
    CHECK(strstr(error.message, "an earlier setter failed: another thread") == error.message);
    forkless_command_free(command);
}

static void *captures(void *argument) {
    forkless_command *command = shell("sleep 0.2; echo done");
    forkless_output *output;
    EXPECT(0, forkless_command_capture(command, NULL, &output, NULL));
    CHECK(strcmp(output->out, "done\n") == 0);
    forkless_output_free(output);
    forkless_command_free(command);
    *(int *)argument = 1;
    pthread_testcancel();
    return argument; /* not reached */
}

/* A thread that is cancelled during a call ends after the call. */
static void cancelled(void) {
    pthread_t thread;
    void *result;
    int done = 0;
    EXPECT(0, pthread_create(&thread, NULL, captures, &done));
    pthread_cancel(thread);
    EXPECT(0, pthread_join(thread, &result));
    CHECK(result == PTHREAD_CANCELED);
    EXPECT(1, done);
}

int main(void) {
    int fds = open_fds();
    a_prepared_command_is_shared();
    a_child_is_used_by_one_thread_at_a_time();
    a_setter_that_comes_too_early_is_not_left_out();
    cancelled();
    expect_nothing_left(fds);
    return 0;
}

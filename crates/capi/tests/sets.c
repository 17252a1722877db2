/* Tests of wait sets. */
#include "check.h"
#include <poll.h>

static forkless_child *launch(const char *line) {
    forkless_command *command = shell(line);
    forkless_child *child = NULL;
    EXPECT(0, forkless_command_launch(command, &child, NULL));
    forkless_command_free(command);
    return child;
}

/* A child that has executed its program: a signal before that would be reported as ECANCELED. */
static forkless_child *sleeper(void) {
    forkless_child *child = launch("exec sleep 100");
    EXPECT(1, forkless_child_wait_exec(child, -1, NULL));
    return child;
}

static void children_are_returned_as_they_end(void) {
    enum { CHILDREN = 50 };
    forkless_waitset *set;
    forkless_ended ended;
    int values[CHILDREN], seen = 0;
    EXPECT(0, forkless_waitset_new(&set));
    for (int n = 0; n < CHILDREN; n++) {
        char line[32];
        snprintf(line, sizeof line, "exit %d", n);
        values[n] = n;
        EXPECT(0, forkless_waitset_insert(set, launch(line), &values[n], NULL, NULL));
    }
    EXPECT(CHILDREN, forkless_waitset_count(set));
    while (forkless_waitset_wait(set, -1, &ended, NULL) == 1) {
        int *value = (int *)ended.value;
        EXPECT(0, ended.error);
        EXPECT(*value << 8, ended.status);
        *value = -1;
        forkless_usage usage;
        EXPECT(0, forkless_child_usage(ended.child, &usage));
        forkless_child_free(ended.child);
        seen++;
    }
    EXPECT(CHILDREN, seen);
    EXPECT(0, forkless_waitset_count(set));
    forkless_waitset_free(set);
}

static void children_are_inserted_and_removed(void) {
    forkless_waitset *set;
    forkless_child *child;
    forkless_ended ended;
    uint64_t key, other;
    int status;
    EXPECT(0, forkless_waitset_new(&set));
    EXPECT(0, forkless_waitset_insert(set, sleeper(), NULL, &key, NULL));
    EXPECT(0, forkless_waitset_insert(set, sleeper(), set, &other, NULL));
    CHECK(key != other);
    EXPECT(0, forkless_waitset_wait(set, 1, &ended, NULL));
    struct pollfd poll_fd = {forkless_waitset_fd(set), POLLIN, 0};
    EXPECT(0, poll(&poll_fd, 1, 0));
    EXPECT(0, forkless_waitset_remove(set, key, &child));
    EXPECT(-ENOENT, forkless_waitset_remove(set, key, &child));
    EXPECT(0, forkless_child_kill(child));
    EXPECT(0, forkless_child_wait(child, &status, NULL));
    EXPECT(SIGKILL, status);
    forkless_child_free(child);
    EXPECT(-EINVAL, forkless_waitset_signal(set, other, 1000));
    EXPECT(0, forkless_waitset_signal(set, other, SIGTERM));
    EXPECT(1, poll(&poll_fd, 1, 60000));
    EXPECT(1, forkless_waitset_wait(set, 0, &ended, NULL));
    CHECK(ended.value == set && ended.status == SIGTERM);
    /* Inserted again: it has ended, and is returned once more. */
    EXPECT(0, forkless_waitset_insert(set, ended.child, NULL, NULL, NULL));
    EXPECT(1, forkless_waitset_wait(set, -1, &ended, NULL));
    EXPECT(SIGTERM, ended.status);
    forkless_child_free(ended.child);
    /* A child that never executed its program. */
    forkless_command *command;
    EXPECT(0, forkless_command_new("/no/such/program", &command));
    child = failing(command, -ENOENT);
    forkless_command_free(command);
    EXPECT(0, forkless_waitset_insert(set, child, NULL, NULL, NULL));
    EXPECT(1, forkless_waitset_wait(set, -1, &ended, NULL));
    EXPECT(-ENOENT, ended.error);
    forkless_child_free(ended.child);
    forkless_waitset_free(set);
}

/* A child that cannot be inserted still belongs to the caller. */
static void refused(void) {
    forkless_waitset *set;
    forkless_command *command = shell("exit 5");
    forkless_child *child;
    forkless_error error;
    struct rlimit old, few;
    int status;
    EXPECT(0, forkless_waitset_new(&set));
    EXPECT(0, forkless_command_pidfd(command, 0));
    EXPECT(0, forkless_command_spawn(command, &child, NULL));
    EXPECT(-ENOENT, forkless_child_pidfd(child));
    forkless_command_free(command);
    getrlimit(RLIMIT_NOFILE, &old);
    few = old, few.rlim_cur = 0;
    setrlimit(RLIMIT_NOFILE, &few);
    EXPECT(-EMFILE, forkless_waitset_insert(set, child, NULL, NULL, &error));
    setrlimit(RLIMIT_NOFILE, &old);
    EXPECT(EMFILE, error.errnum);
    EXPECT(0, forkless_waitset_count(set));
    EXPECT(0, forkless_child_wait(child, &status, NULL));
    EXPECT(5 << 8, status);
    forkless_child_free(child);
    forkless_waitset_free(set);
}

/* A forked copy has the same epoll instance. It must not take the end of a child from the original. */
static void a_forked_copy_takes_no_child(void) {
    forkless_waitset *set;
    forkless_child *child = launch("exit 6");
    forkless_ended ended;
    int status;
    EXPECT(0, forkless_waitset_new(&set));
    EXPECT(0, forkless_waitset_insert(set, child, NULL, NULL, NULL));
    struct pollfd poll_fd = {forkless_waitset_fd(set), POLLIN, 0};
    EXPECT(1, poll(&poll_fd, 1, 60000));
    pid_t copy = fork();
    if (copy == 0) {
        forkless_error error;
        EXPECT(-ECHILD, forkless_waitset_wait(set, 0, &ended, &error));
        EXPECT(ECHILD, error.errnum);
        child = launch("exit 7");
        EXPECT(-ECHILD, forkless_waitset_insert(set, child, NULL, NULL, NULL));
        EXPECT(0, forkless_child_wait(child, &status, NULL)); /* still the caller's */
        EXPECT(7 << 8, status);
        forkless_child_free(child);
        forkless_waitset_free(set);
        _exit(0);
    }
    EXPECT(copy, waitpid(copy, &status, 0));
    EXPECT(0, status);
    EXPECT(1, forkless_waitset_wait(set, 60000, &ended, NULL));
    EXPECT(6 << 8, ended.status);
    forkless_child_free(ended.child);
    forkless_waitset_free(set);
}

int main(void) {
    int fds = open_fds();
    children_are_returned_as_they_end();
    a_forked_copy_takes_no_child();
    children_are_inserted_and_removed();
    refused();
    expect_nothing_left(fds);
    return 0;
}

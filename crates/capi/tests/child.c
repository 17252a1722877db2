/* Tests of children: starting, waiting, signals, pipes, errors, output, and the simple calls. */
#include "check.h"
#include <sys/prctl.h>

static forkless_child *spawn(const char *line) {
    forkless_command *command = shell(line);
    forkless_child *child = NULL;
    EXPECT(0, forkless_command_process_group(command, 0));
    EXPECT(0, forkless_command_spawn(command, &child, NULL));
    forkless_command_free(command);
    return child;
}

static void waits(void) {
    int status = 77;
    forkless_command *command = shell("read go; sleep 0.2; exit 3");
    forkless_child *child;
    EXPECT(0, forkless_command_fd_pipe(command, 0));
    EXPECT(0, forkless_command_spawn(command, &child, NULL));
    forkless_command_free(command);
    int hold = forkless_child_take_fd(child, 0);
    CHECK(forkless_child_pid(child) > 0);
    EXPECT(0, forkless_child_try_wait(child, &status, NULL));
    EXPECT(0, forkless_child_wait_timeout(child, 1, &status, NULL));
    EXPECT(77, status);
    forkless_usage usage;
    EXPECT(-ENODATA, forkless_child_usage(child, &usage));
    close(hold);
    EXPECT(1, forkless_child_wait_timeout(child, -1, &status, NULL));
    EXPECT(3 << 8, status);
    EXPECT(1, forkless_child_try_wait(child, &status, NULL));
    EXPECT(0, forkless_child_wait(child, &status, NULL));
    EXPECT(3 << 8, status);
    EXPECT(0, forkless_child_usage(child, &usage));
    CHECK(usage.wall_ns > 100000000 && usage.max_rss_kib > 0);
    char route[256];
    CHECK(forkless_child_route(child, route, sizeof route) > 0 && strstr(route, "clone") != NULL);
    forkless_child_free(child);
}

static void dumpable(void) {
    EXPECT(0, forkless_set_dumpable(0));
    EXPECT(0, prctl(PR_GET_DUMPABLE));
    EXPECT(0, forkless_set_dumpable(1));
    EXPECT(1, prctl(PR_GET_DUMPABLE));
}

static void signals(void) {
    int status;
    forkless_child *child = spawn("exec sleep 100");
    EXPECT(-EINVAL, forkless_child_signal(child, 1000));
    EXPECT(0, forkless_child_signal(child, SIGSTOP));
    EXPECT(1, forkless_child_wait_change(child, -1, &status, NULL));
    CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    EXPECT(0, forkless_child_signal(child, SIGCONT));
    EXPECT(1, forkless_child_wait_change(child, -1, &status, NULL));
    CHECK(WIFCONTINUED(status));
    EXPECT(0, forkless_child_wait_change(child, 1, &status, NULL));
    EXPECT(0, forkless_child_terminate(child, SIGTERM, 60000, &status, NULL));
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    EXPECT(0, forkless_child_kill(child));
    forkless_child_free(child);

    child = spawn("trap '' TERM; echo; sleep 100 & wait; sleep 100");
    EXPECT(0, forkless_child_terminate_group(child, SIGTERM, 50, &status, NULL));
    CHECK(WIFSIGNALED(status));
    forkless_child_free(child);

    child = spawn("sleep 100 & wait");
    EXPECT(0, forkless_child_signal_group(child, SIGKILL));
    EXPECT(0, forkless_child_wait(child, &status, NULL));
    EXPECT(SIGKILL, status);
    forkless_child_free(child);
}

static void pipes(void) {
    forkless_command *command = shell("read word; echo $word; echo err >&2; cat <&5 >&2");
    forkless_child *child;
    forkless_output *output;
    for (int fd = 0; fd < 3; fd++) EXPECT(0, forkless_command_fd_pipe(command, fd));
    EXPECT(0, forkless_command_fd_socketpair(command, 5));
    EXPECT(0, forkless_command_launch(command, &child, NULL));
    EXPECT(1, forkless_child_wait_exec(child, -1, NULL));
    int in = forkless_child_fd(child, 0);
    CHECK(in > 2 && fcntl(in, F_GETFD) == FD_CLOEXEC);
    EXPECT(in, forkless_child_take_fd(child, 0));
    EXPECT(-ENOENT, forkless_child_take_fd(child, 0));
    EXPECT(-ENOENT, forkless_child_fd(child, 9));
    EXPECT(5, write(in, "word\n", 5));
    close(in);
    int socket = forkless_child_take_fd(child, 5);
    CHECK(socket >= 0);
    EXPECT(3, write(socket, "end", 3));
    close(socket);
    EXPECT(0, forkless_child_output(child, &output, NULL));
    CHECK(strcmp(output->out, "word\n") == 0 && strcmp(output->err, "err\nend") == 0 && output->status == 0);
    forkless_output_free(output);
    forkless_child_free(child);
    forkless_command_free(command);

    /* Reading the output ends the input, also that of a socket, before the end of the output. */
    command = shell("cat; echo end");
    EXPECT(0, forkless_command_fd_socketpair(command, 0));
    EXPECT(0, forkless_command_fd_pipe(command, 1));
    EXPECT(0, forkless_command_spawn(command, &child, NULL));
    EXPECT(0, forkless_child_output(child, &output, NULL));
    CHECK(strcmp(output->out, "end\n") == 0 && output->status == 0);
    forkless_output_free(output);
    forkless_child_free(child);
    forkless_command_free(command);
}

static void failures(void) {
    forkless_command *command;
    forkless_child *child = NULL;
    forkless_prepared *prepared = NULL;
    forkless_error error;
    int status = 77;
    EXPECT(0, forkless_command_new("/no/such/program", &command));
    errno = 1234;
    EXPECT(-ENOENT, forkless_command_spawn(command, &child, &error));
    CHECK(child == NULL && errno == 1234);
    EXPECT(FORKLESS_STEP_EXEC, error.step);
    EXPECT(ENOENT, error.errnum);
    CHECK(strstr(error.message, "failed to start \"/no/such/program\": exec: No such file or directory") != NULL);
    EXPECT(-ENOENT, forkless_command_status(command, &status, NULL));
    EXPECT(77, status);
    /* After a launch the error comes later. */
    child = failing(command, -ENOENT);
    EXPECT(-ENOENT, forkless_child_wait_exec(child, -1, &error));
    EXPECT(-ENOENT, forkless_child_wait(child, &status, &error));
    EXPECT(77, status);
    forkless_child_free(child);
    EXPECT(0, forkless_command_current_dir(command, "/no/such/directory"));
    EXPECT(0, forkless_command_prepare(command, &prepared, &error));
    EXPECT(-ENOENT, forkless_prepared_status(prepared, &status, &error));
    EXPECT(FORKLESS_STEP_CHDIR, error.step);
    forkless_prepared_free(prepared);
    forkless_command_free(command);
    /* Invalid requests. */
    command = shell("true");
    EXPECT(0, forkless_command_fd_dup(command, 5, 6));
    EXPECT(0, forkless_command_fd_dup(command, 6, 5));
    CHECK(forkless_command_status(command, &status, &error) < 0);
    forkless_command_free(command);
}

static void captures(void) {
    forkless_capture how = FORKLESS_CAPTURE_INIT;
    forkless_output *output;
    forkless_error error;
    /* Input that the program does not read, with SIGPIPE at its default action: no signal is raised. */
    size_t size = 1 << 20;
    char *input = malloc(size);
    memset(input, 'x', size);
    how.input = input, how.input_size = size;
    forkless_command *command = shell("exec <&-; echo done");
    EXPECT(0, forkless_command_capture(command, &how, &output, NULL));
    CHECK(strcmp(output->out, "done\n") == 0 && output->input_left > 0);
    forkless_output_free(output);
    forkless_command_free(command);
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    CHECK(!sigismember(&mask, SIGPIPE));
    sigpending(&mask);
    CHECK(!sigismember(&mask, SIGPIPE));

    command = shell("cat");
    how.limit = 1000;
    EXPECT(0, forkless_command_capture(command, &how, &output, NULL));
    CHECK(output->out_size == 1000 && output->out_cut == size - 1000 && output->input_left == 0);
    CHECK(output->out[999] == 'x' && output->out[1000] == 0);
    forkless_output_free(output);
    how.limit = 0, how.flags = FORKLESS_CAPTURE_MEMORY_FILE;
    EXPECT(0, forkless_command_capture(command, &how, &output, NULL));
    CHECK(output->out_size == size && memcmp(output->out, input, size) == 0);
    forkless_output_free(output);
    forkless_command_free(command);
    free(input);

    command = shell("echo out; echo err >&2; sleep 100");
    forkless_capture timed = FORKLESS_CAPTURE_INIT;
    timed.timeout_ms = 150, timed.flags = FORKLESS_CAPTURE_MERGED, timed.signal = SIGTERM, timed.grace_ms = 60000;
    EXPECT(0, forkless_command_process_group(command, 0));
    /* With a longer timeout if the program had not written its output yet. */
    EXPECT(0, forkless_command_capture(command, &timed, &output, NULL));
    for (int tries = 0; output->out_size < 8 && tries < 3; tries++) {
        forkless_output_free(output);
        timed.timeout_ms *= 5;
        EXPECT(0, forkless_command_capture(command, &timed, &output, NULL));
    }
    CHECK(strcmp(output->out, "out\nerr\n") == 0 && output->err_size == 0 && output->err[0] == 0);
    CHECK(output->flags & FORKLESS_OUTPUT_TIMED_OUT);
    EXPECT(SIGTERM, output->status);
    CHECK(output->usage.wall_ns > 100000000);
    forkless_output_free(output);
    forkless_command_free(command);

    /* What has left the session holds the pipe. */
    command = shell("setsid sleep 100 & sleep 100");
    forkless_capture killed = timed;
    killed.signal = 0, killed.grace_ms = 0;
    EXPECT(0, forkless_command_kill_tree(command, 1));
    if (forkless_command_capture(command, &killed, &output, &error) == 0) {
        CHECK(output->flags & FORKLESS_OUTPUT_TIMED_OUT);
        EXPECT(SIGKILL, output->status);
        CHECK(output->usage.wall_ns < 50000000000);
        forkless_output_free(output);
    } else {
        CHECK(strstr(error.message, "Landlock"));
        fprintf(stderr, "SKIPPED: %s\n", error.message);
    }
    forkless_command_free(command);

    /* Without a limit of the grace, SIGKILL is never sent. */
    command = shell("trap 'sleep 0.2; exit 5' TERM; echo ready; while :; do sleep 0.01; done");
    timed.timeout_ms = 150, timed.grace_ms = -1;
    EXPECT(0, forkless_command_capture(command, &timed, &output, NULL));
    for (int tries = 0; output->out_size == 0 && tries < 3; tries++) {
        forkless_output_free(output);
        timed.timeout_ms *= 5;
        EXPECT(0, forkless_command_capture(command, &timed, &output, NULL));
    }
    EXPECT(5 << 8, output->status);
    forkless_output_free(output);
    timed.size = 3;
    output = NULL;
    EXPECT(-EINVAL, forkless_command_capture(command, &timed, &output, &error));
    CHECK(output == NULL && error.step == FORKLESS_STEP_CHECK);
    timed.size = sizeof timed, timed.flags = 64;
    EXPECT(-EINVAL, forkless_command_capture(command, &timed, &output, NULL));
    forkless_command_free(command);
}

static void prepared_runs(void) {
    forkless_command *command = shell("exit 4");
    forkless_prepared *prepared, *all[3];
    forkless_child *children[3];
    int errors[3], status;
    EXPECT(0, forkless_command_prepare(command, &prepared, NULL));
    forkless_command_free(command); /* the prepared command does not need it */
    for (int n = 0; n < 10; n++) {
        EXPECT(0, forkless_prepared_status(prepared, &status, NULL));
        EXPECT(4 << 8, status);
    }
    EXPECT(0, forkless_prepared_spawn(prepared, &children[0], NULL));
    EXPECT(0, forkless_child_wait(children[0], &status, NULL));
    forkless_child_free(children[0]);
    forkless_output *output;
    EXPECT(0, forkless_prepared_capture(prepared, NULL, &output, NULL));
    EXPECT(4 << 8, output->status);
    forkless_output_free(output);
    all[0] = all[1] = all[2] = prepared;
    EXPECT(3, forkless_launch_all(all, 3, children, errors));
    for (int n = 0; n < 3; n++) {
        EXPECT(0, errors[n]);
        EXPECT(0, forkless_child_wait(children[n], &status, NULL));
        EXPECT(4 << 8, status);
        forkless_child_free(children[n]);
    }
    forkless_prepared_free(prepared);
}

static void dropped(void) {
    forkless_child *child = spawn("exec sleep 100");
    int pid = forkless_child_pid(child);
    EXPECT(0, forkless_child_kill_on_free(child, 1));
    forkless_child_free(child);
    while (forkless_reap_orphans() > 0) usleep(1000);
    EXPECT(-1, kill(pid, 0));
}

static void released(void) {
    int status;
    forkless_child *child = spawn("exit 4");
    pid_t pid = forkless_child_release(child);
    CHECK(pid > 0);
    /* A later launch does not reap a child that is still in a handle. */
    EXPECT(0, forkless_system("true"));
    EXPECT(0, forkless_reap_orphans());
    EXPECT(pid, waitpid(pid, &status, 0));
    EXPECT(4 << 8, status);
    EXPECT(-EINVAL, forkless_child_release(NULL));
    child = spawn("exit 5");
    EXPECT(0, forkless_child_wait(child, &status, NULL));
    EXPECT(-ECHILD, forkless_child_release(child));
}

static void simple_calls(void) {
    extern char **environ;
    int status, fd = fcntl(0, F_DUPFD_CLOEXEC, 40);
    char *argv[] = {"sh", "-c", "test -e /proc/self/fd/40 && exit 1; test \"$WORD\" = x && exit 2; exit 3", NULL};
    char *envp[] = {"PATH=/no/such:/bin:/usr/bin", "WORD=x", NULL}, *nowhere[] = {"PATH=/no/such", NULL};
    pid_t pid = forkless_spawnp("sh", argv, envp);
    CHECK(pid > 0);
    /* A later launch does not reap it: it is for waitpid. */
    EXPECT(0, forkless_system("true"));
    forkless_reap_orphans();
    EXPECT(pid, waitpid(pid, &status, 0));
    EXPECT(2 << 8, status);
    EXPECT(0, forkless_fd_inherit(fd, 1));
    pid = forkless_spawn("/bin/sh", argv, environ);
    EXPECT(pid, waitpid(pid, &status, 0));
    EXPECT(1 << 8, status);
    EXPECT(0, forkless_fd_inherit(fd, 0));
    pid = forkless_spawn("/bin/sh", argv, NULL);
    EXPECT(pid, waitpid(pid, &status, 0));
    EXPECT(3 << 8, status);
    close(fd);
    EXPECT(-EBADF, forkless_fd_inherit(fd, 1));
    EXPECT(-ENOENT, forkless_spawnp("sh", argv, nowhere));
    EXPECT(-ENOENT, forkless_spawn("sh", argv, envp)); /* not searched for */
    EXPECT(-ENOENT, forkless_spawn("", argv, envp));
    EXPECT(-EACCES, forkless_spawn("/", argv, envp));
    EXPECT(-ENOENT, forkless_spawnp("", argv, envp));
    EXPECT(-ENOENT, forkless_spawnp("", argv, NULL));
    /* The environment is passed unchanged, and its PATH is searched as by execvp(3). */
    char *odd[] = {"B=1", "PATH=/no/such::/bin", "A=1", "B=2", "no name", NULL};
    char *env[] = {"cat", "/proc/self/environ", NULL};
    int ends[2];
    EXPECT(0, pipe2(ends, O_CLOEXEC));
    int saved = fcntl(1, F_DUPFD_CLOEXEC, 3);
    EXPECT(1, dup2(ends[1], 1));
    pid = forkless_spawnp("cat", env, odd);
    EXPECT(1, dup2(saved, 1));
    EXPECT(pid, waitpid(pid, &status, 0));
    char seen[100] = "";
    const char expected[] = "B=1\0PATH=/no/such::/bin\0A=1\0B=2\0no name";
    EXPECT((int)sizeof expected, read(ends[0], seen, sizeof seen));
    EXPECT(0, memcmp(seen, expected, sizeof expected));
    close(ends[0]), close(ends[1]), close(saved);
    char *none[] = {NULL};
    EXPECT(-EINVAL, forkless_spawn("/bin/sh", none, envp));
}

int main(void) {
    int fds = open_fds();
    waits();
    signals();
    dumpable();
    pipes();
    failures();
    captures();
    prepared_runs();
    dropped();
    released();
    simple_calls();
    expect_nothing_left(fds);
    return 0;
}

/* Tests of pipelines. */
#include "check.h"

static forkless_pipeline *pipeline_of(const char *const lines[]) {
    forkless_pipeline *pipeline = NULL;
    EXPECT(0, forkless_pipeline_new(&pipeline));
    for (; *lines != NULL; lines++) {
        forkless_command *command = shell(*lines);
        EXPECT(0, forkless_pipeline_command(pipeline, command, NULL));
        /* The pipeline has copied it. */
        forkless_command_free(command);
    }
    return pipeline;
}

static void every_status_is_returned(void) {
    const char *lines[] = {"exit 3", "cat; exit 4", "cat >/dev/null", NULL};
    forkless_pipeline *pipeline = pipeline_of(lines);
    int statuses[4] = {77, 77, 77, 77}, status = 77;
    EXPECT(3, forkless_pipeline_count(pipeline));
    EXPECT(0, forkless_pipeline_status(pipeline, 4, statuses, &status, NULL));
    EXPECT(3 << 8, statuses[0]);
    EXPECT(4 << 8, statuses[1]);
    EXPECT(0, statuses[2]);
    EXPECT(77, statuses[3]);
    EXPECT(0, status);
    /* Again, with pipefail, and room for one status or none. */
    EXPECT(0, forkless_pipeline_pipefail(pipeline, 1));
    statuses[0] = statuses[1] = 77;
    EXPECT(0, forkless_pipeline_status(pipeline, 1, statuses, &status, NULL));
    EXPECT(3 << 8, statuses[0]);
    EXPECT(77, statuses[1]);
    EXPECT(4 << 8, status);
    EXPECT(0, forkless_pipeline_status(pipeline, 0, NULL, &status, NULL));
    EXPECT(4 << 8, status);
    forkless_pipeline_free(pipeline);
}

static void input_is_written_and_output_captured(void) {
    const char *lines[] = {"echo one >&2; tr a-z A-Z", "echo two >&2; sort", "echo three >&2; uniq; exit 5", NULL};
    enum { LINES = 100000 };
    char *input = (char *)malloc(4 * LINES);
    forkless_pipeline *pipeline = pipeline_of(lines);
    forkless_capture how = FORKLESS_CAPTURE_INIT;
    forkless_output *output = NULL;
    int statuses[3];
    /* More data than the pipes hold, so that all programs must run at the same time. */
    for (int n = 0; n < LINES; n++) memcpy(input + 4 * n, n % 2 ? "aaa\n" : "bbb\n", 4);
    how.input = input, how.input_size = 4 * LINES;
    EXPECT(0, forkless_pipeline_capture(pipeline, &how, 3, statuses, &output, NULL));
    CHECK(strcmp(output->out, "AAA\nBBB\n") == 0);
    EXPECT(8, output->out_size);
    CHECK(strstr(output->err, "one\n") && strstr(output->err, "two\n") && strstr(output->err, "three\n"));
    EXPECT(0, output->input_left);
    EXPECT(5 << 8, output->status);
    EXPECT(0, statuses[0] + statuses[1]);
    EXPECT(5 << 8, statuses[2]);
    forkless_output_free(output);
    forkless_pipeline_free(pipeline);
    free(input);
}

static void a_reader_that_leaves_ends_the_writer(void) {
    const char *lines[] = {"exec yes", "exec head -n 2", NULL};
    forkless_pipeline *pipeline = pipeline_of(lines);
    forkless_output *output = NULL;
    int statuses[2];
    EXPECT(0, forkless_pipeline_capture(pipeline, NULL, 2, statuses, &output, NULL));
    CHECK(strcmp(output->out, "y\ny\n") == 0);
    CHECK(WIFSIGNALED(statuses[0]) && WTERMSIG(statuses[0]) == SIGPIPE);
    EXPECT(0, output->status);
    forkless_output_free(output);
    forkless_pipeline_free(pipeline);
}

static void spawn_returns_all_handles(void) {
    forkless_pipeline *pipeline;
    forkless_command *first = shell("cat; exit 6"), *last = shell("cat; exit 7");
    forkless_prepared *prepared;
    forkless_child *children[3] = {NULL, NULL, NULL};
    char text[16];
    int status;
    EXPECT(0, forkless_command_fd_pipe(first, 0));
    EXPECT(0, forkless_command_fd_pipe(last, 1));
    EXPECT(0, forkless_command_prepare(last, &prepared, NULL));
    EXPECT(0, forkless_pipeline_new(&pipeline));
    EXPECT(0, forkless_pipeline_command(pipeline, first, NULL));
    EXPECT(0, forkless_pipeline_prepared(pipeline, prepared));
    forkless_command_free(first);
    forkless_command_free(last);
    forkless_prepared_free(prepared);
    EXPECT(2, forkless_pipeline_spawn(pipeline, 3, children, NULL));
    forkless_pipeline_free(pipeline);
    CHECK(children[0] != NULL && children[1] != NULL && children[2] == NULL);
    EXPECT(5, write(forkless_child_fd(children[0], 0), "hello", 5));
    EXPECT(5, read(forkless_child_fd(children[1], 1), text, sizeof text));
    CHECK(memcmp(text, "hello", 5) == 0);
    /* This closes its input, and so ends the next program's. */
    EXPECT(0, forkless_child_wait(children[0], &status, NULL));
    EXPECT(6 << 8, status);
    EXPECT(0, forkless_child_wait(children[1], &status, NULL));
    EXPECT(7 << 8, status);
    forkless_child_free(children[0]);
    forkless_child_free(children[1]);
}

static int nothing(void *value) {
    return value != NULL;
}

static void a_failed_start_kills_the_other_programs(void) {
    forkless_pipeline *pipeline;
    forkless_command *first = shell("exec sleep 1000"), *last;
    forkless_child *children[2] = {NULL, NULL};
    forkless_error error;
    int status = 77, statuses[2] = {77, 77};
    EXPECT(0, forkless_command_new("/no/such/program", &last));
    EXPECT(0, forkless_pipeline_new(&pipeline));
    EXPECT(0, forkless_pipeline_command(pipeline, first, NULL));
    EXPECT(0, forkless_pipeline_command(pipeline, last, NULL));
    EXPECT(-ENOENT, forkless_pipeline_spawn(pipeline, 2, children, &error));
    EXPECT(FORKLESS_STEP_EXEC, error.step);
    CHECK(strstr(error.message, "/no/such/program") != NULL);
    CHECK(children[0] == NULL && children[1] == NULL);
    EXPECT(-ENOENT, forkless_pipeline_status(pipeline, 2, statuses, &status, NULL));
    EXPECT(77 * 3, status + statuses[0] + statuses[1]);
    /* An invalid command is not added. */
    EXPECT(0, forkless_command_pre_exec(first, nothing, NULL));
    EXPECT(-EINVAL, forkless_pipeline_command(pipeline, first, &error));
    EXPECT(FORKLESS_STEP_CHECK, error.step);
    EXPECT(2, forkless_pipeline_count(pipeline));
    forkless_pipeline_free(pipeline);
    forkless_command_free(first);
    forkless_command_free(last);
}

int main(void) {
    int fds = open_fds();
    every_status_is_returned();
    input_is_written_and_output_captured();
    a_reader_that_leaves_ends_the_writer();
    spawn_returns_all_handles();
    a_failed_start_kills_the_other_programs();
    expect_nothing_left(fds);
    return 0;
}

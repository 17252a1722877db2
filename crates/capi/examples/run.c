/* Runs a program with settings, writes its input, captures its output, and reports an error. */
#include <forkless.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

static int fail(const forkless_error *error) {
    fprintf(stderr, "%s\n", error->message);
    return EXIT_FAILURE;
}

int main(void) {
    forkless_command *command;
    forkless_capture how = FORKLESS_CAPTURE_INIT;
    forkless_output *output;
    forkless_error error;

    if (forkless_command_new("tr", &command) < 0) return EXIT_FAILURE;
    forkless_command_arg(command, "a-z");
    forkless_command_arg(command, "A-Z");
    forkless_command_current_dir(command, "/");
    forkless_command_rlimit(command, RLIMIT_CORE, 0, 0);
    forkless_command_no_new_privs(command, 1);

    how.input = "hello";
    how.input_size = strlen("hello");
    how.timeout_ms = 60000;
    if (forkless_command_capture(command, &how, &output, &error) < 0) return fail(&error);
    printf("%s: %d, after %.1f ms\n", output->out, WEXITSTATUS(output->status), (double)output->usage.wall_ns / 1e6);
    if (strcmp(output->out, "HELLO") != 0) return EXIT_FAILURE;
    forkless_output_free(output);
    forkless_command_free(command);

    /* An error names program, step and reason. */
    if (forkless_command_new("gitt", &command) < 0) return EXIT_FAILURE;
    forkless_child *child;
    if (forkless_command_spawn(command, &child, &error) == 0) return EXIT_FAILURE;
    printf("%s\n", error.message);
    forkless_command_free(command);
    return error.step == FORKLESS_STEP_EXEC ? EXIT_SUCCESS : EXIT_FAILURE;
}

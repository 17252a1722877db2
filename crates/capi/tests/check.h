/* Shared by the C tests of forkless.h. */
#ifndef CHECK_H
#define CHECK_H
#include "expect.h"
#include <forkless.h>

/* A command that runs a line with a shell. */
static inline forkless_command *shell(const char *line) {
    char *argv[] = {(char *)"sh", (char *)"-c", (char *)line, NULL};
    forkless_command *command = NULL;
    EXPECT(0, forkless_command_new_argv(argv, &command));
    return command;
}

/* Runs the command, frees it, and compares its standard output. */
static inline void expect_output(forkless_command *command, const char *text) {
    forkless_output *output = NULL;
    forkless_error error = {0, 0, ""};
    if (forkless_command_capture(command, NULL, &output, &error) < 0) {
        fprintf(stderr, "%s\n", error.message);
        exit(1);
    }
    if (strcmp(text, output->out) != 0 || output->out_size != strlen(text)) {
        fprintf(stderr, "output \"%s\", not \"%s\"; errors: %s\n", output->out, text, output->err);
        exit(1);
    }
    forkless_output_free(output);
    forkless_command_free(command);
}

/* A child whose launch fails. A launch may already report the failure itself. */
static inline forkless_child *failing(forkless_command *command, int error) {
    forkless_child *child = NULL;
    int answer;
    while ((answer = forkless_command_launch(command, &child, NULL)) < 0) EXPECT(error, answer);
    return child;
}

/* Expects no more descriptors than before, and no child. */
static inline void expect_nothing_left(int fds) {
    while (forkless_reap_orphans() > 0) usleep(1000);
    EXPECT(fds, open_fds());
    EXPECT(-1, waitpid(-1, NULL, WNOHANG | __WALL));
    EXPECT(ECHILD, errno);
}
#endif

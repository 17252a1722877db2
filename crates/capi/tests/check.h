/* What the tests in C share. */
#ifndef CHECK_H
#define CHECK_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <forkless.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what)                                                                   \
    do {                                                                              \
        if (!(what)) {                                                                \
            fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #what, errno); \
            exit(1);                                                                  \
        }                                                                             \
    } while (0)

/* Expects a number, and shows the one that came. */
#define EXPECT(number, what)                                                                              \
    do {                                                                                                  \
        long long expect_ = (number), got_ = (what);                                                      \
        if (expect_ != got_) {                                                                            \
            fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #what, got_, expect_);   \
            exit(1);                                                                                      \
        }                                                                                                 \
    } while (0)

/* A command of a shell's line. */
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

static inline int open_fds(void) {
    int fd, count = 0;
    for (fd = 0; fd < 1024; fd++) count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* No descriptor more than before, and no child. */
static inline void expect_nothing_left(int fds) {
    forkless_reap_orphans();
    EXPECT(fds, open_fds());
    EXPECT(-1, waitpid(-1, NULL, WNOHANG | __WALL));
    EXPECT(ECHILD, errno);
}
#endif

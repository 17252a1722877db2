/* Runs many children of one prepared command, and handles their ends in the order in which they happen. */
#include <forkless.h>
#include <stdlib.h>
#include <sys/wait.h>

struct job {
    int number;
    int done;
};

int main(void) {
    enum { JOBS = 20 };
    struct job jobs[JOBS] = {{0, 0}};
    forkless_command *command;
    forkless_prepared *prepared;
    forkless_waitset *set;
    forkless_error error;
    forkless_ended ended;
    int n, left = JOBS;

    if (forkless_command_new("true", &command) < 0 || forkless_waitset_new(&set) < 0) return EXIT_FAILURE;
    if (forkless_command_prepare(command, &prepared, &error) < 0) {
        fprintf(stderr, "%s\n", error.message);
        return EXIT_FAILURE;
    }
    for (n = 0; n < JOBS; n++) {
        forkless_child *child;
        jobs[n].number = n;
        if (forkless_prepared_launch(prepared, &child, &error) < 0 ||
            forkless_waitset_insert(set, child, &jobs[n], NULL, &error) < 0) {
            fprintf(stderr, "%s\n", error.message);
            return EXIT_FAILURE;
        }
    }
    while (forkless_waitset_wait(set, -1, &ended, &error) > 0) {
        struct job *job = (struct job *)ended.value;
        if (ended.error != 0 || !WIFEXITED(ended.status) || job->done++) return EXIT_FAILURE;
        left--;
        forkless_child_free(ended.child);
    }
    printf("%d jobs, %d left\n", JOBS, left);
    forkless_waitset_free(set);
    forkless_prepared_free(prepared);
    forkless_command_free(command);
    return left == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

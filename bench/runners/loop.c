/* The baseline of forkless bench runners: what a loop over posix_spawn costs.
 *
 *     loop SLOTS JOBS PROGRAM
 *
 * Runs PROGRAM with the numbers 1 to JOBS as its argument. Keeps SLOTS children alive and waits for any with waitpid(-1). Fails if
 * a job fails. */
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

extern char **environ;

static void fail(const char *what) {
    fprintf(stderr, "loop: %s\n", what);
    exit(1);
}

int main(int argc, char **argv) {
    if (argc != 4) fail("usage: loop SLOTS JOBS PROGRAM");
    long slots = atol(argv[1]), jobs = atol(argv[2]);
    long started = 0, ended = 0;
    while (ended < jobs) {
        while (started < jobs && started - ended < slots) {
            char number[32];
            snprintf(number, sizeof number, "%ld", ++started);
            char *const words[] = {argv[3], number, NULL};
            pid_t pid;
            if (posix_spawnp(&pid, argv[3], NULL, NULL, words, environ) != 0) fail("posix_spawnp");
        }
        int status;
        if (waitpid(-1, &status, 0) <= 0) fail("waitpid");
        if (status != 0) fail("a job failed");
        ended++;
    }
    return 0;
}

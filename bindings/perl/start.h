/* A program started as perl's exec would, for waitpid(2). SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef START_H
#define START_H

#ifdef FORKLESS_PLANTED
#include <stdlib.h>
#include <string.h>
/* Faults on purpose, for the trials of the tests alone: one is chosen by the variable of that name. */
#define PLANTED(name) (getenv("FORKLESS_PLANTED") != NULL && strcmp(getenv("FORKLESS_PLANTED"), name) == 0)
#else
#define PLANTED(name) 0
#endif

#include <signal.h>
#include <sys/types.h>

enum { STREAM_KEPT = -1, STREAM_AS_OUT = -2 };

struct start {
    const char *program; /* NULL: the first of argv */
    char *const *argv;
    int streams[3];        /* the program's 0, 1 and 2: descriptors of ours, or STREAM_... */
    /* What was blocked, and how SIGINT and SIGQUIT were dealt with, before we changed it; mask NULL: nothing has been changed. */
    const sigset_t *mask;
    const struct sigaction *interrupt, *quit;
    int ignores_fpe; /* perl ignores SIGFPE; the program does only if perl was started so */
};

#define START_INIT { NULL, NULL, { STREAM_KEPT, STREAM_KEPT, STREAM_KEPT }, NULL, NULL, NULL, 0 }

/* Searches PATH, and gives a file without #! to /bin/sh, as execvp(3). Every descriptor that is not close-on-exec is inherited. The
 * pid, or a negative errno. */
pid_t start(const struct start *how);

/* forkless_spawnp, where a file without #! is given to /bin/sh, as execvp(3) gives it. */
pid_t start_in_path(const char *program, char *const *argv, char *const *envp);

#endif

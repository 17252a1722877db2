/* Starts a program as perl's exec would, for waitpid(2).
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef START_H
#define START_H

#include <signal.h>
#include <sys/types.h>

enum { STREAM_KEPT = -1, STREAM_AS_OUT = -2 };

struct start {
    const char *program; /* NULL: argv[0] */
    char *const *argv;
    int streams[3];        /* the program's 0, 1 and 2: descriptors of this process, or STREAM_... */
    /* The signal mask, and the dispositions of SIGINT and SIGQUIT, from before system changed them. mask NULL: unchanged. */
    const sigset_t *mask;
    const struct sigaction *interrupt, *quit;
    int ignores_fpe; /* perl ignores SIGFPE; the program must only if perl inherited that */
};

#define START_INIT { NULL, NULL, { STREAM_KEPT, STREAM_KEPT, STREAM_KEPT }, NULL, NULL, NULL, 0 }

/* Search PATH, and run a file without #! with /bin/sh, as execvp(3) does. Every descriptor that is not close-on-exec is inherited.
 * Returns the pid, or a negative errno. */
pid_t start(const struct start *how);

/* As forkless_spawnp, but run a file without #! with /bin/sh, as execvp(3) does. */
pid_t start_in_path(const char *program, char *const *argv, char *const *envp);

#endif

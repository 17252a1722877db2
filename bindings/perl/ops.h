/* perl's built-in system, qx and open of pipes, without fork.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef OPS_H
#define OPS_H

#include "start.h"

/* Macros that the oldest supported perl does not have. */
#ifndef PERL_VERSION_LT
#define PERL_VERSION_LT(major, minor, patch) (PERL_VERSION < (minor) || (PERL_VERSION == (minor) && PERL_SUBVERSION < (patch)))
#endif
#ifndef av_count
#define av_count(array) (av_len(array) + 1)
#endif

/* Install the op checkers, which look for the lexical hints "Forkless/system" and so on. */
void ops_boot(pTHX);
/* Replace the function in all code compiled from now on, without a hint: 1 for system, 2 for readpipe, 4 for open. */
void ops_everywhere(int which);

/* The bytes that perl's exec would pass for this value; freed at the end of the statement. NULL and errno if they contain a NUL. */
char *ops_bytes(pTHX_ SV *value);

/* Determine the program that perl would start for these arguments. A single string is a command line, which may be empty
 * (OPS_NOTHING). */
enum { OPS_READY, OPS_NOTHING, OPS_BAD };
int ops_ready(pTHX_ struct start *how, SV *program, SSize_t first, SSize_t count);

/* Flush all output of perl and start the program. Returns the pid, or -1 and errno after perl's warning. */
pid_t ops_start(pTHX_ const struct start *how);

/* Start the program with a pipe to or from it (is_ready: false for an empty command). Returns perl's end with these layers, and the
 * pid; or NULL and errno, after perl's warning. */
PerlIO *ops_piped(pTHX_ struct start *how, int is_ready, int reads, const char *layers, pid_t *pid);

/* Mark a handle as opened by open on a pipe, so that close waits for the program. */
void ops_own(pTHX_ IO *io, pid_t pid);

/* Wait for the process; perl's signal handlers run in the meantime. Returns the status, or -1 and errno. */
int ops_wait(pTHX_ pid_t pid);

#endif

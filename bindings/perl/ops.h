/* perl's own system, qx and open, and pipes to and from programs, without fork. SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef OPS_H
#define OPS_H

#include "start.h"

/* Of later perls than the oldest that this is for. */
#ifndef PERL_VERSION_LT
#define PERL_VERSION_LT(major, minor, patch) (PERL_VERSION < (minor) || (PERL_VERSION == (minor) && PERL_SUBVERSION < (patch)))
#endif
#ifndef av_count
#define av_count(array) (av_len(array) + 1)
#endif

/* Makes the compiler choose these where a lexical hint, "Forkless/system" and so on, asks for them. */
void ops_boot(pTHX);
/* Everywhere from now on, hint or not: 1 for system, 2 for readpipe, 4 for open. */
void ops_everywhere(int which);

/* The bytes that perl's exec would pass of this, until the end of the statement. NULL and errno if a NUL is among them. */
char *ops_bytes(pTHX_ SV *value);

/* What perl would start for these arguments: one string is a line, of which there may be nothing left. */
enum { OPS_READY, OPS_NOTHING, OPS_BAD };
int ops_ready(pTHX_ struct start *how, SV *program, SSize_t first, SSize_t count);

/* Starts it, when all output of perl's has been written: the pid. -1, errno and perl's warning if it cannot be. */
pid_t ops_start(pTHX_ const struct start *how);

/* Starts what is ready (or nothing) with a pipe to read from it or to write to it: our end, with these layers, and the pid. NULL, errno
 * and perl's warning if it cannot be. */
PerlIO *ops_piped(pTHX_ struct start *how, int is_ready, int reads, const char *layers, pid_t *pid);

/* Makes a handle one that perl closes as a pipe of open's: it waits for the program. */
void ops_own(pTHX_ IO *io, pid_t pid);

/* Waits, while handlers of signals run: the status, or -1 and errno. */
int ops_wait(pTHX_ pid_t pid);

#endif

/* perl's own system and qx, and pipes to and from programs, without fork. SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef OPS_H
#define OPS_H

#include "start.h"

/* Makes the compiler choose these where a lexical hint, "Forkless/system" or "Forkless/readpipe", asks for them. */
void ops_boot(pTHX);
/* Everywhere from now on, hint or not: 1 for system, 2 for readpipe. */
void ops_everywhere(int which);

/* The bytes that perl's exec would pass of this, until the end of the statement. NULL and errno if a NUL is among them. */
char *ops_bytes(pTHX_ SV *value);

/* What perl would start for these arguments: one string is a line, of which there may be nothing left. */
enum { OPS_READY, OPS_NOTHING, OPS_BAD };
int ops_ready(pTHX_ struct start *how, SV *program, SSize_t first, SSize_t count);

/* Starts it, when all output of perl's has been written: the pid. -1, errno and perl's warning if it cannot be. */
pid_t ops_start(pTHX_ const struct start *how);

/* Waits, while handlers of signals run: the status, or -1 and errno. */
int ops_wait(pTHX_ pid_t pid);

#endif

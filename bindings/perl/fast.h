/* Proc::FastSpawn's functions, without the perl glue.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef FAST_H
#define FAST_H

#include <forkless.h>

/* The last command as a prepared one, and what it was made from: path, arguments and environment, one after the other. */
struct fast {
    forkless_prepared *prepared;
    char *made_of;
    size_t size, room;
};

/* As forkless_spawn with the caller's environment. Repeating the last command reuses its prepared form. */
pid_t fast_spawn(struct fast *last, const char *path, char *const *argv);
void fast_free(struct fast *last);

#endif

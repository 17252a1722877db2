/* Proc::FastSpawn's functions, but for perl. SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef FAST_H
#define FAST_H

#include <forkless.h>

/* The last command, prepared, and what it was made of: path, arguments and environment, one behind the other. */
struct fast {
    forkless_prepared *prepared;
    char *made_of;
    size_t size, room;
};

/* As forkless_spawn with the caller's environment. Who launches the same again is spared the making of it. */
pid_t fast_spawn(struct fast *last, const char *path, char *const *argv);
void fast_free(struct fast *last);

#endif

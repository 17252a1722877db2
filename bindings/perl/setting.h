/* The settings of a command, by name.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef SETTING_H
#define SETTING_H

#include <forkless.h>

/* The arguments of a setting, one letter for each:
 *   i  int   u  unsigned   U  uint64_t   f  descriptor   g  signal
 *   s  string   S  string or NULL   L  list of strings   N  list of numbers
 *   B  seccomp filter, 8 bytes per instruction */
struct setting {
    const char *name;
    const char *kinds;
    void (*function)(void);
};

/* An argument of a setting. The letter selects the member. */
struct argument {
    int64_t number;
    uint64_t bits;
    const char *text;
    char **texts;
    const int *numbers;
    size_t count;
};

/* Ended by an entry whose name is NULL. */
extern const struct setting settings[];

/* Call the setting's function, with as many arguments as there are letters. Returns 0 or a negative errno. */
int setting_apply(const struct setting *setting, forkless_command *command, const struct argument *a);

#endif

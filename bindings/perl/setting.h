/* The settings of a command, by their names. SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef SETTING_H
#define SETTING_H

#include <forkless.h>

/* What a setting takes, a letter for each argument:
 *   i  a number    u  one from 0 on   U  64 bits
 *   f  a descriptor   g  a signal   s  a text   S  a text or none
 *   L  texts   N  numbers   B  instructions of a filter, 8 bytes each */
struct setting {
    const char *name;
    const char *kinds;
    void (*function)(void);
};

/* An argument, as its letter says. */
struct argument {
    int64_t number;
    uint64_t bits;
    const char *text;
    char **texts;
    const int *numbers;
    size_t count;
};

/* Ends with a name that is NULL. */
extern const struct setting settings[];

/* Calls the function, with as many arguments as there are letters: 0 or a negative errno. */
int setting_apply(const struct setting *setting, forkless_command *command, const struct argument *a);

#endif

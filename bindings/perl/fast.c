/* Proc::FastSpawn's functions, without the perl glue.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "fast.h"

#include "start.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

/* Compare the command's path, arguments and environment with the recorded ones (`same`), or record them. Returns false if they differ,
 * or if they cannot be recorded. */
static int go_over(struct fast *last, const char *text, size_t *at, int same) {
    size_t size = strlen(text) + 1;
    if (same) {
        if (size > last->size - *at || memcmp(last->made_of + *at, text, size) != 0) return 0;
    } else {
        if (last->room - *at < size) {
            size_t room = (*at + size) * 2;
            char *larger = realloc(last->made_of, room);
            if (larger == NULL) return 0;
            last->made_of = larger;
            last->room = room;
        }
        memcpy(last->made_of + *at, text, size);
    }
    *at += size;
    return 1;
}

static int go_over_all(struct fast *last, const char *path, char *const *argv, int same) {
    size_t at = 0, count = 0;
    char words[24];
    while (argv[count] != NULL) count++;
    /* The number of arguments, so that an argument cannot be mistaken for a variable of the environment. */
    snprintf(words, sizeof words, "%zu", count);
    if (!go_over(last, words, &at, same) || !go_over(last, path, &at, same)) return 0;
    for (; *argv != NULL; argv++)
        if (!go_over(last, *argv, &at, same)) return 0;
    for (char *const *entry = environ; entry != NULL && *entry != NULL; entry++)
        if (!go_over(last, *entry, &at, same)) return 0;
    if (same) return at == last->size;
    last->size = at;
    return 1;
}

#define TRY(answer, call) ((answer) < 0 ? (void)0 : (void)((answer) = (call)))

static int prepare(struct fast *last, const char *path, char *const *argv) {
    forkless_command *command;
    int answer = forkless_command_new(path, &command);
    if (answer < 0) return answer;
    TRY(answer, forkless_command_arg0(command, argv[0]));
    TRY(answer, forkless_command_args(command, argv + 1));
    TRY(answer, forkless_command_inherit_all(command, 1));
    TRY(answer, forkless_command_pidfd(command, 0));
    TRY(answer, forkless_command_signal_inherit(command, SIGPIPE));
    TRY(answer, forkless_command_prepare(command, &last->prepared, NULL));
    forkless_command_free(command);
    return answer;
}

void fast_free(struct fast *last) {
    forkless_prepared_free(last->prepared);
    free(last->made_of);
    memset(last, 0, sizeof *last);
}

pid_t fast_spawn(struct fast *last, const char *path, char *const *argv) {
    forkless_child *child;
    /* A name without a slash is a file in the working directory: forkless_spawn does not search PATH. */
    if (strchr(path, '/') == NULL) return forkless_spawn(path, argv, NULL);
    if (last->prepared == NULL || !go_over_all(last, path, argv, 1)) {
        forkless_prepared_free(last->prepared);
        last->prepared = NULL;
        if (!go_over_all(last, path, argv, 0)) return -ENOMEM;
        int answer = prepare(last, path, argv);
        if (answer < 0) return answer;
    }
    int answer = forkless_prepared_spawn(last->prepared, &child, NULL);
    return answer < 0 ? answer : forkless_child_release(child);
}

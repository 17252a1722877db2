/* Starts a program as perl's exec would: searched for in PATH, with every descriptor that is not close-on-exec and with the caller's
 * signal mask.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "start.h"

#include <errno.h>
#include <forkless.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Make the call, unless an earlier one has failed. */
#define TRY(answer, call) ((answer) < 0 ? (void)0 : (void)((answer) = (call)))

static int set_signal(forkless_command *command, int signal, const struct sigaction *action) {
    if (action->sa_handler == SIG_IGN) return forkless_command_signal_ignore(command, signal);
    return forkless_command_signal_default(command, signal);
}

static int set_signals(forkless_command *command, const struct start *how) {
    int answer = forkless_command_signal_inherit(command, SIGPIPE);
    if (!how->ignores_fpe) TRY(answer, forkless_command_signal_default(command, SIGFPE));
    if (how->mask == NULL) return answer;
    TRY(answer, forkless_command_inherit_signal_mask(command, 0));
    for (int signal = 1; signal < NSIG; signal++)
        if (sigismember(how->mask, signal) == 1) TRY(answer, forkless_command_signal_block(command, signal));
    TRY(answer, set_signal(command, SIGINT, how->interrupt));
    TRY(answer, set_signal(command, SIGQUIT, how->quit));
    return answer;
}

static int set_streams(forkless_command *command, const int streams[3]) {
    int answer = 0;
    for (int n = 0; n < 3; n++) {
        if (streams[n] == STREAM_AS_OUT) TRY(answer, forkless_command_fd_dup(command, n, 1));
        else if (streams[n] != STREAM_KEPT) TRY(answer, forkless_command_fd(command, n, streams[n]));
    }
    return answer;
}

static pid_t start_once(const struct start *how, const char *program, char *const *argv) {
    forkless_command *command;
    forkless_child *child = NULL;
    int answer = forkless_command_new(program, &command);
    if (answer < 0) return answer;
    TRY(answer, forkless_command_arg0(command, argv[0]));
    TRY(answer, forkless_command_args(command, argv + 1));
    TRY(answer, forkless_command_inherit_all(command, 1));
    TRY(answer, forkless_command_pidfd(command, 0));
    TRY(answer, set_signals(command, how));
    TRY(answer, set_streams(command, how->streams));
    TRY(answer, forkless_command_spawn(command, &child, NULL));
    forkless_command_free(command);
    return answer < 0 ? answer : forkless_child_release(child);
}

/* The file that execvp(3) would execute with this PATH (NULL: the default path), or NULL if there is none. The caller frees it. */
static char *find(const char *program, const char *path) {
    char *file = NULL;
    struct stat found;
    if (strchr(program, '/') != NULL) return strdup(program);
    for (const char *at = path != NULL ? path : "/bin:/usr/bin";; at++) {
        size_t length = strcspn(at, ":");
        if (asprintf(&file, "%.*s%s%s", (int)length, at, length > 0 ? "/" : "", program) < 0) return NULL;
        if (stat(file, &found) == 0 && S_ISREG(found.st_mode) && access(file, X_OK) == 0) return file;
        free(file);
        at += length;
        if (*at == '\0') return NULL;
    }
}

/* The list "/bin/sh FILE ARGUMENTS", in one allocation. The caller frees it; file is not copied. */
static char **for_shell(char *file, char *const *argv) {
    size_t count = 0;
    while (argv[count] != NULL) count++;
    char **list = malloc((count + 3) * sizeof *list);
    if (list == NULL) return NULL;
    list[0] = (char *)"/bin/sh";
    list[1] = file;
    memcpy(list + 2, argv + (count > 0), (count + (count == 0)) * sizeof *list);
    return list;
}

pid_t start(const struct start *how) {
    const char *program = how->program != NULL && *how->program != '\0' ? how->program : how->argv[0];
    if (program == NULL || *program == '\0') return -ENOENT;
    pid_t pid = start_once(how, program, how->argv);
    if (pid != -ENOEXEC) return pid;
    char *file = find(program, getenv("PATH"));
    char **argv = file != NULL ? for_shell(file, how->argv) : NULL;
    if (argv != NULL) pid = start_once(how, "/bin/sh", argv);
    free(argv);
    free(file);
    return pid;
}

static const char *path_of(char *const *envp) {
    for (; *envp != NULL; envp++)
        if (strncmp(*envp, "PATH=", 5) == 0) return *envp + 5;
    return NULL;
}

pid_t start_in_path(const char *program, char *const *argv, char *const *envp) {
    pid_t pid = forkless_spawnp(program, argv, envp);
    if (pid != -ENOEXEC) return pid;
    char *file = find(program, envp != NULL ? path_of(envp) : getenv("PATH"));
    char **list = file != NULL ? for_shell(file, argv) : NULL;
    if (list != NULL) pid = forkless_spawn("/bin/sh", list, envp);
    free(list);
    free(file);
    return pid;
}

/*
 * popen_noshell by its own names: Ivan Zahariev's functions, made anew on forkless. A program that used his relinks. Linux, C99 or C++.
 *
 *     cc prog.c $(pkg-config --cflags --libs popen_noshell)
 *
 * What is the same, what is better and what differs is in forkless's docs/drop-in.md.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef POPEN_NOSHELL_H
#define POPEN_NOSHELL_H

#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of stack that the function of popen_noshell_vmfork has. Nothing else here has one of its own. */
#define POPEN_NOSHELL_STACK_SIZE (8 * 1024 * 1024)

/* For popen_noshell_set_fork_mode. */
#define POPEN_NOSHELL_MODE_CLONE 0       /* from the start: the child shares the caller's memory until exec */
#define POPEN_NOSHELL_MODE_FORK 1        /* fork(2): it costs more, the bigger the caller */
#define POPEN_NOSHELL_MODE_POSIX_SPAWN 2 /* posix_spawn(3) of the C library */

/* Nothing uses it here; func_args below points to one in the original. */
struct popen_noshell_clone_arg {
    int pipefd_0;
    int pipefd_1;
    int read_pipe;
    int stderr_mode;
    const char *file;
    const char *const *argv;
};

/* What pclose_noshell wants to know. The caller's; it may hold anything before it is passed to an opening function. */
struct popen_noshell_pass_to_pclose {
    FILE *fp;           /* the stream; NULL if there is none, or none any more */
    pid_t pid;          /* the program's */
    int free_clone_mem; /* 0 */
    void *stack;        /* NULL */
    struct popen_noshell_clone_arg *func_args; /* NULL */
};

/* Starts a program without a shell and gives a stream: with type "r" of its standard output, with "w" to its standard input; the
 * other of the two is /dev/null. file is looked for in PATH unless it has a slash. argv begins with the name that the program is to
 * be told and ends with NULL. stderr_mode: 0, the program has the caller's standard error; 1, /dev/null; 2, its standard output.
 * NULL and errno if it cannot be started, which includes the exec: ENOENT, EACCES, E2BIG ...; EINVAL for null pointers, an empty
 * argv and numbers and types that are none of these. pclose_arg->fp is NULL then, and nothing is left to close. */
FILE *popen_noshell(const char *file, const char *const *argv, const char *type, struct popen_noshell_pass_to_pclose *pclose_arg,
                    int stderr_mode);

/* The same for a line, with standard error as it is. The line is split at blanks and tabs; between quotation marks, single or double,
 * those are part of a word. A line with one of ! \ $ ` | & ; ( ) < > or a newline in it, with a quotation that does not end, or
 * without a word is refused: EINVAL. */
FILE *popen_noshell_compat(const char *command, const char *type, struct popen_noshell_pass_to_pclose *pclose_arg);

/* Closes the stream, waits for the program, whatever signals come, and gives its status as waitpid(2) does. -1 and errno: EINVAL for
 * what is not open; ECHILD if somebody else has waited for it; or why the last of what was written did not reach the program, such
 * as EPIPE. In every case but EINVAL stream and child are gone afterwards. */
int pclose_noshell(struct popen_noshell_pass_to_pclose *arg);

/* Calls fn(arg) in a child that shares the caller's memory, and returns its pid when the child has called exec or has ended; what fn
 * returns is its status. The calling thread stands still meanwhile, the others do not: fn may do what it might after vfork(2), on a
 * stack of its own, and no signal handler runs in it. -1 and errno on failure. Wait for the child by waitpid(2) with __WALL. For
 * *memory_to_free_on_child_exit, which takes free(3) as it always did, there is nothing to free: it is NULL. */
pid_t popen_noshell_vmfork(int (*fn)(void *), void *arg, void **memory_to_free_on_child_exit);

/* For measurements: how children are made from now on, in the whole process. A number that is no mode is POPEN_NOSHELL_MODE_CLONE's. */
void popen_noshell_set_fork_mode(int mode);
int popen_noshell_get_fork_mode(void);

#ifdef __cplusplus
}
#endif
#endif

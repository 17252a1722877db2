/*
 * The functions of Ivan Zahariev's popen_noshell, implemented with forkless. Programs that use the original only need to be linked
 * again. Linux, C99 or C++.
 *
 *     cc prog.c $(pkg-config --cflags --libs popen_noshell)
 *
 * Differences from the original: docs/drop-in.md in forkless's sources.
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

/* Size in bytes of the stack on which popen_noshell_vmfork calls its function. */
#define POPEN_NOSHELL_STACK_SIZE (8 * 1024 * 1024)

/* Modes of popen_noshell_set_fork_mode. */
#define POPEN_NOSHELL_MODE_CLONE 0       /* default: the child shares the caller's memory until exec */
#define POPEN_NOSHELL_MODE_FORK 1        /* fork(2), whose cost grows with the caller's memory */
#define POPEN_NOSHELL_MODE_POSIX_SPAWN 2 /* posix_spawn(3) of the C library */

/* Unused. It exists because func_args below has this type in the original. */
struct popen_noshell_clone_arg {
    int pipefd_0;
    int pipefd_1;
    int read_pipe;
    int stderr_mode;
    const char *file;
    const char *const *argv;
};

/* The state that pclose_noshell needs. The caller allocates it; the opening functions initialize it. */
struct popen_noshell_pass_to_pclose {
    FILE *fp;           /* the stream; NULL before it is opened and after it is closed */
    pid_t pid;          /* pid of the program */
    int free_clone_mem; /* 0 */
    void *stack;        /* NULL */
    struct popen_noshell_clone_arg *func_args; /* NULL */
};

/* Start a program without a shell and open a stream: with type "r" from its standard output, with "w" to its standard input. The other
 * of the two is /dev/null. file is searched for in PATH unless it has a slash. argv includes argv[0] and ends with NULL. stderr_mode:
 * 0, inherit standard error; 1, /dev/null; 2, the program's standard output. Returns NULL and sets errno if the program cannot be
 * executed (ENOENT, EACCES, E2BIG ...) or an argument is invalid (EINVAL). pclose_arg->fp is then NULL and must not be closed. */
FILE *popen_noshell(const char *file, const char *const *argv, const char *type, struct popen_noshell_pass_to_pclose *pclose_arg,
                    int stderr_mode);

/* The same for a command line; standard error is inherited. The line is split at blanks and tabs, except between single or double
 * quotation marks. A line that is empty, has an unterminated quotation, or contains a newline or one of ! \ $ ` | & ; ( ) < > is
 * refused with EINVAL. */
FILE *popen_noshell_compat(const char *command, const char *type, struct popen_noshell_pass_to_pclose *pclose_arg);

/* Close the stream and wait for the program, also when signals arrive. Returns its status, as of waitpid(2). On failure returns -1 and
 * sets errno: EINVAL if the stream is not open; ECHILD if the child was reaped by other code; or the error of writing the last
 * buffered data, such as EPIPE. Except with EINVAL, the stream is closed and the child reaped afterwards. */
int pclose_noshell(struct popen_noshell_pass_to_pclose *arg);

/* Call fn(arg) in a child that shares the caller's memory. Returns the child's pid when it has called exec or has ended; fn's return
 * value is its exit status. Only the calling thread is suspended meanwhile. fn may do what a child of vfork(2) may do; it has a stack
 * of its own, and no signal handlers run in it. Returns -1 and sets errno on failure. Wait for the child with waitpid(2) and __WALL.
 * *memory_to_free_on_child_exit is set to NULL; calling free(3) on it, as with the original, is harmless. */
pid_t popen_noshell_vmfork(int (*fn)(void *), void *arg, void **memory_to_free_on_child_exit);

/* Select how children are created, in the whole process. For benchmarks. An unknown mode selects POPEN_NOSHELL_MODE_CLONE. */
void popen_noshell_set_fork_mode(int mode);
int popen_noshell_get_fork_mode(void);

#ifdef __cplusplus
}
#endif
#endif

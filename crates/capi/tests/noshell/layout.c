/* Names, numbers and the layout that programs have compiled in. C99 and C++11. */
#include <popen_noshell.h>
#include <stddef.h>
#include <stdlib.h>

#define IS(name, what) typedef char name[(what) ? 1 : -1] __attribute__((unused))
#define AT(type, member, words, ints) \
    IS(type##_##member, offsetof(struct type, member) == (words) * sizeof(void *) + (ints) * sizeof(int))

IS(clone_is_0, POPEN_NOSHELL_MODE_CLONE == 0);
IS(fork_is_1, POPEN_NOSHELL_MODE_FORK == 1);
IS(posix_spawn_is_2, POPEN_NOSHELL_MODE_POSIX_SPAWN == 2);
IS(stack_is_8_mib, POPEN_NOSHELL_STACK_SIZE == 8388608);

AT(popen_noshell_pass_to_pclose, fp, 0, 0);
AT(popen_noshell_pass_to_pclose, pid, 1, 0);
AT(popen_noshell_pass_to_pclose, free_clone_mem, 1, 1);
AT(popen_noshell_pass_to_pclose, stack, 1, 2);
AT(popen_noshell_pass_to_pclose, func_args, 2, 2);
IS(pass_to_pclose, sizeof(struct popen_noshell_pass_to_pclose) == 3 * sizeof(void *) + 2 * sizeof(int));

AT(popen_noshell_clone_arg, pipefd_0, 0, 0);
AT(popen_noshell_clone_arg, pipefd_1, 0, 1);
AT(popen_noshell_clone_arg, read_pipe, 0, 2);
AT(popen_noshell_clone_arg, stderr_mode, 0, 3);
AT(popen_noshell_clone_arg, file, 0, 4);
AT(popen_noshell_clone_arg, argv, 1, 4);
IS(clone_arg, sizeof(struct popen_noshell_clone_arg) == 2 * sizeof(void *) + 4 * sizeof(int));

int main(void) {
    /* The types of the functions: none of these assignments causes a warning. */
    FILE *(*open_argv)(const char *, const char *const *, const char *, struct popen_noshell_pass_to_pclose *, int) = popen_noshell;
    FILE *(*open_line)(const char *, const char *, struct popen_noshell_pass_to_pclose *) = popen_noshell_compat;
    int (*close_either)(struct popen_noshell_pass_to_pclose *) = pclose_noshell;
    pid_t (*vmfork)(int (*)(void *), void *, void **) = popen_noshell_vmfork;
    void (*set)(int) = popen_noshell_set_fork_mode;
    int (*get)(void) = popen_noshell_get_fork_mode;
    struct popen_noshell_pass_to_pclose pclose_arg;
    struct popen_noshell_clone_arg *func_args;
    if (get() != POPEN_NOSHELL_MODE_CLONE || !open_line || !vmfork || !set) return 1;
    const char *const argv[] = {"true", NULL};
    FILE *stream = open_argv("true", argv, "r", &pclose_arg, 0);
    func_args = pclose_arg.func_args;
    if (!stream || pclose_arg.fp != stream || pclose_arg.pid <= 0 || pclose_arg.free_clone_mem || pclose_arg.stack || func_args) return 2;
    return close_either(&pclose_arg) == 0 ? 0 : 3;
}

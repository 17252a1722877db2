/* A program that was compiled with the original header: the declarations are its own. It is linked with this library. */
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

struct noshell_arguments;
struct popen_noshell_pass_to_pclose {
    FILE *fp;
    pid_t pid;
    int free_clone_mem;
    void *stack;
    struct noshell_arguments *func_args;
};
extern FILE *popen_noshell(const char *, const char *const *, const char *, struct popen_noshell_pass_to_pclose *, int);
extern FILE *popen_noshell_compat(const char *, const char *, struct popen_noshell_pass_to_pclose *);
extern int pclose_noshell(struct popen_noshell_pass_to_pclose *);
extern void popen_noshell_set_fork_mode(int);
extern int popen_noshell_get_fork_mode();

/* Bytes around the structure, which must not change. */
struct guarded {
    char before[64];
    struct popen_noshell_pass_to_pclose pclose_arg;
    char after[64];
};

int main() {
    for (int mode = 0; mode <= 2; mode++) {
        struct guarded here;
        char line[32] = "";
        memset(&here, 0x5a, sizeof here);
        popen_noshell_set_fork_mode(mode);
        if (popen_noshell_get_fork_mode() != mode) return 1;
        const char *argv[] = {"echo", "ok", NULL};
        FILE *stream = mode == 1 ? popen_noshell_compat("echo ok", "r", &here.pclose_arg)
                                 : popen_noshell(argv[0], argv, "r", &here.pclose_arg, 2);
        if (!stream || stream != here.pclose_arg.fp || here.pclose_arg.pid <= 0) return 2;
        if (!fgets(line, sizeof line, stream) || strcmp(line, "ok\n") != 0) return 3;
        if (pclose_noshell(&here.pclose_arg) != 0) return 4;
        for (size_t n = 0; n < sizeof here.before; n++)
            if (here.before[n] != 0x5a || here.after[n] != 0x5a) return 5;
    }
    return 0;
}

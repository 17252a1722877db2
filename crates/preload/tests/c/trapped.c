/* A program under a filter that traps system calls of the library, which its SIGSYS handler answers. Prints for each call whether
 * the program lives on. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#ifndef SYS_faccessat2
#define SYS_faccessat2 439
#endif
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

extern char **environ;

static void answer(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
#ifdef __x86_64__
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = -ENOSYS;
#else
    ((ucontext_t *)context)->uc_mcontext.regs[0] = (unsigned long)-ENOSYS;
#endif
}

static void run(int call) {
    /* A loop without an end. */
    alarm(10);
    struct sigaction action = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO};
    sigaction(SIGSYS, &action, NULL);
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        _exit(3);
    char *argv[] = {"true", NULL};
    pid_t pid;
    if (posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ) == 0)
        waitpid(pid, NULL, 0);
    if (system("/bin/true >/dev/null") == -1 && errno == 0)
        _exit(4);
    FILE *stream = popen("/bin/true", "r");
    if (stream)
        pclose(stream);
    _exit(0);
}

int main(void) {
    static const struct {
        const char *name;
        int number;
    } calls[] = {{"statx", SYS_statx},         {"readlinkat", SYS_readlinkat}, {"fcntl", SYS_fcntl},   {"madvise", SYS_madvise},
                 {"getpid", SYS_getpid},       {"gettid", SYS_gettid},         {"pipe2", SYS_pipe2},   {"openat", SYS_openat},
                 {"newfstatat", SYS_newfstatat}, {"dup3", SYS_dup3},           {"getppid", SYS_getppid}, {"kcmp", SYS_kcmp},
                 {"prlimit64", SYS_prlimit64}, {"faccessat2", SYS_faccessat2}, {"faccessat", SYS_faccessat}, {"sched_getaffinity", SYS_sched_getaffinity}};
    for (size_t n = 0; n < sizeof calls / sizeof *calls; n++) {
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0)
            run(calls[n].number);
        int status;
        waitpid(pid, &status, 0);
        /* What the trapped call itself makes of a program is not the question. */
        int by = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
        printf("%s: %s\n", calls[n].name, by == SIGSYS ? "killed" : by == SIGALRM ? "hangs" : "lives");
    }
    return 0;
}

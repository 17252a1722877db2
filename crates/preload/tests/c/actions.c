/* `posix_spawn(3)` with random lists of file actions: `actions FACTS REPORT SEED COUNT [close-on-exec|no-close-range]`. */

#include "common.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

static unsigned long long state;

static unsigned chance(unsigned below) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(state >> 33) % below;
}

static int number(void) {
    static const int higher[] = {15, 20, 33, 59, 12, 40};
    return chance(5) ? (int)chance(11) : higher[chance(6)];
}

static void one(int n, int closes_from) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    say("list %d:", n);
    unsigned count = 1 + chance(7);
    for (unsigned at = 0; at <= count; at++) {
        int a = number(), b = number(), error = 0;
        unsigned kind = chance(16);
        if (at == count && !closes_from)
            break;
        if (at == count)
            kind = 15;
        if (kind < 3)
            error = posix_spawn_file_actions_addclose(&actions, a), say(" close(%d)", a);
        else if (kind < 10)
            error = posix_spawn_file_actions_adddup2(&actions, a, b), say(" dup2(%d,%d)", a, b);
        else if (kind < 13)
            error = posix_spawn_file_actions_addopen(&actions, a, b % 2 ? "opened" : "sub/../opened", O_RDWR | O_CREAT, 0600),
            say(" open(%d)", a);
        else if (kind == 13)
            error = posix_spawn_file_actions_addchdir_np(&actions, b % 2 ? "sub" : "."), say(" chdir(%d)", b % 2);
        else if (kind == 14 && b > 5)
            error = posix_spawn_file_actions_addfchdir_np(&actions, 8), say(" fchdir");
        else if (kind == 15 && (closes_from || chance(3) == 0))
            a = at == count ? (int)(chance(3) ? 3 : chance(12)) : a,
            error = posix_spawn_file_actions_addclosefrom_np(&actions, a), say(" closefrom(%d)", a);
        if (error)
            say(" (%d)", error);
    }
    say("\n");
    char *argv[] = {"facts", (char *)report, NULL};
    pid_t pid = -7;
    int error = posix_spawn(&pid, facts, &actions, NULL, argv, environ);
    if (error && pid != -7)
        say("the pid was written in spite of the failure\n");
    outcome("ended", error, &pid);
    posix_spawn_file_actions_destroy(&actions);
}

/* As under a container runtime that does not know close_range, and as before Linux 5.9. */
static void refuse_close_range(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        abort();
}

/* Several ranges of streams: a program inherits none of the earlier ones. */
static void streams(void) {
    FILE *earlier[6];
    for (int n = 0; n < 6; n++)
        earlier[n] = popen("exec cat >&2", n % 2 ? "r" : "w");
    char line[600];
    snprintf(line, sizeof line, "%s %s; exit 3", facts, report);
    FILE *last = popen(line, "w");
    say("the last stream: %s\n", last ? status_words(pclose(last)) : "none");
    for (int n = 0; n < 6; n++)
        say("stream %d: %s\n", n, earlier[n] ? status_words(pclose(earlier[n])) : "none");
}

int main(int argc, char **argv) {
    begin(argc, argv);
    state = strtoull(argv[3], NULL, 10);
    int count = atoi(argv[4]), all_close_on_exec = argc > 5 && !strcmp(argv[5], "close-on-exec");
    if (argc > 5 && !all_close_on_exec)
        refuse_close_range();
    open_some(all_close_on_exec);
    mkdir("sub", 0755);
    int directory = open("sub", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    dup3(directory, 8, all_close_on_exec ? O_CLOEXEC : 0);
    close(directory);
    streams();
    for (int n = 0; n < count; n++)
        one(n, n % 2);
    return 0;
}

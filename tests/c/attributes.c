/* Prints what a process finds of itself that it may have inherited, one attribute a line. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

struct attributes {
    unsigned size, policy;
    unsigned long long flags;
    int nice;
    unsigned priority;
    unsigned long long runtime, deadline, period;
    unsigned clamps[2];
};

static void lines(const char *file, const char *const labels[]) {
    char line[8192];
    FILE *stream = fopen(file, "r");
    while (stream && fgets(line, sizeof line, stream))
        for (int n = 0; labels[n]; n++)
            if (strncmp(line, labels[n], strlen(labels[n])) == 0 && line[strlen(labels[n])] == ':')
                fputs(line, stdout);
    if (stream)
        fclose(stream);
}

static void contents(const char *file) {
    char text[4096];
    int fd = open(file, O_RDONLY);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text);
    printf("%s %.*s\n", file, length > 0 ? (int)length : 0, text);
    close(fd);
}

int main(void) {
    static const char *const labels[] = {"Umask", "Uid", "Gid", "Groups", "SigBlk", "SigIgn", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Seccomp_filters", "Speculation_Store_Bypass", "SpeculationIndirectBranch", "Cpus_allowed", "Mems_allowed", NULL};
    lines("/proc/self/status", labels);
    static const char *const links[] = {"cwd", "root", "ns/cgroup", "ns/ipc", "ns/mnt", "ns/net", "ns/time", "ns/time_for_children", "ns/user", "ns/uts"};
    for (size_t n = 0; n < sizeof links / sizeof *links; n++) {
        char path[64], to[256] = "";
        snprintf(path, sizeof path, "/proc/self/%s", links[n]);
        if (readlink(path, to, sizeof to - 1) < 0)
            strcpy(to, "none");
        printf("%s %s\n", links[n], to);
    }
    contents("/proc/self/loginuid");
    contents("/proc/self/sessionid");
    contents("/proc/self/oom_score_adj");
    contents("/proc/self/coredump_filter");
    contents("/proc/self/cgroup");
    struct rlimit limit;
    for (int n = 0; n < RLIM_NLIMITS; n++)
        if (getrlimit(n, &limit) == 0)
            printf("limit %d %llx %llx\n", n, (unsigned long long)limit.rlim_cur, (unsigned long long)limit.rlim_max);
    struct attributes of = {0};
    syscall(SYS_sched_getattr, 0, &of, sizeof of, 0);
    printf("policy %u nice %d priority %u slice %llu clamps %u %u\n", of.policy, of.nice, of.priority, of.runtime, of.clamps[0], of.clamps[1]);
    printf("session %d group %d\n", getsid(0), getpgid(0));
    printf("I/O priority %lx\n", syscall(SYS_ioprio_get, 1, 0));
    printf("personality %x\n", personality(0xffffffff));
    printf("timer slack %d", prctl(PR_GET_TIMERSLACK));
    prctl(PR_SET_TIMERSLACK, 0);
    printf(" default %d\n", prctl(PR_GET_TIMERSLACK));
    int mode = 0, tsc = 0;
    unsigned long nodes[16] = {0};
    syscall(SYS_get_mempolicy, &mode, nodes, 1024, 0, 0);
    prctl(PR_GET_TSC, &tsc);
    printf("memory policy %d %lx, errors %d, flusher %d, tsc %d\n", mode, nodes[0], prctl(PR_MCE_KILL_GET, 0, 0, 0, 0), prctl(58, 0, 0, 0, 0), tsc);
    printf("huge pages %d, merging %d, mdwe %d, securebits %d\n", prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0), prctl(68, 0, 0, 0, 0), prctl(66, 0, 0, 0, 0), prctl(PR_GET_SECUREBITS));
    unsigned long long cookie = 0;
    prctl(62, 0, 0, 0, &cookie);
    printf("keyring %ld cookie %llx\n", syscall(SYS_keyctl, 0, -3, 0, 0, 0), cookie);
    return 0;
}

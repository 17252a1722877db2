/* Appends what a program inherits to the file in its first argument: `facts FILE [ARG…]`. Linked statically, so that
 * it never contains the library under test. */

#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void line_of_status(FILE *out, const char *name) {
    char line[256];
    FILE *status = fopen("/proc/self/status", "re");
    while (status && fgets(line, sizeof line, status))
        if (!strncmp(line, name, strlen(name))) {
            /* posix_spawn of glibc 2.31 leaves its own signals, 32 and 33, ignored. */
            unsigned long long set = strtoull(strchr(line, ':') + 1, NULL, 16);
            fprintf(out, "%s %llx\n", name, strcmp(name, "SigIgn") ? set : set & ~(3ull << 31));
        }
    if (status)
        fclose(status);
}

int main(int argc, char **argv) {
    if (argc < 2)
        return 99;
    /* Before this program opens any file. */
    char targets[64][256];
    int flags[64];
    for (int fd = 0; fd < 64; fd++) {
        char path[32];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(path, targets[fd], 255);
        targets[fd][length < 0 ? 0 : length] = 0;
        flags[fd] = fcntl(fd, F_GETFL);
    }
    int fd = open(argv[1], O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    FILE *out = fdopen(fd, "a");
    if (!out)
        return 98;
    for (int n = 0; n < argc; n++)
        fprintf(out, "[%s]", n == 1 ? "" : argv[n]);
    fputc('\n', out);
    for (int fd = 0; fd < 64; fd++)
        if (targets[fd][0]) {
            /* Remove the numbers of pipes and sockets, which differ from run to run. */
            char *number = strchr(targets[fd], '[');
            if (number)
                *number = 0;
            fprintf(out, " %d=%s,%o", fd, targets[fd], flags[fd] & (O_ACCMODE | O_APPEND | O_NONBLOCK));
        }
    char directory[4096];
    struct sched_param param;
    sched_getparam(0, &param);
    fprintf(out, "\n %s; umask %o; session %d, group %d of its own; policy %d, priority %d; %s\n",
            getcwd(directory, sizeof directory), umask(0), getsid(0) == getpid(), getpgrp() == getpid(),
            sched_getscheduler(0), param.sched_priority, getenv("FACT") ? getenv("FACT") : "no FACT");
    line_of_status(out, "SigBlk");
    line_of_status(out, "SigIgn");
    line_of_status(out, "SigCgt");
    fclose(out);
    return argc > 2 ? atoi(argv[2]) : 0;
}

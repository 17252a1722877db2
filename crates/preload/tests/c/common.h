/* Shared by the test programs. Each program reports what it observes; it is run with and without the library, and
 * the reports are compared. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

/* What glibc 2.31 does not have fails with the library and without it. */
#if !__GLIBC_PREREQ(2, 32)
#define strerrorname_np strerror
#endif
#if !__GLIBC_PREREQ(2, 33)
#define mallinfo2 mallinfo
#endif
#if !__GLIBC_PREREQ(2, 34)
#define _Fork fork
static int posix_spawn_file_actions_addclosefrom_np(posix_spawn_file_actions_t *actions, int fd) {
    (void)actions;
    return fd < 0 ? EBADF : ENOSYS;
}
#endif
#if !__GLIBC_PREREQ(2, 35)
static int posix_spawn_file_actions_addtcsetpgrp_np(posix_spawn_file_actions_t *actions, int fd) {
    (void)actions;
    return fd < 0 ? EBADF : ENOSYS;
}
#endif

/* Whether the library handles the calls, and not libc. */
static int is_handled(void) {
    const char *mode = getenv("FORKLESS");
    return getenv("LD_PRELOAD") && !(mode && !strcmp(mode, "off"));
}

/* All output goes to a file, so that the tests can change the standard streams. */
static const char *facts, *report;

static void say(const char *format, ...) {
    char text[4096];
    va_list list;
    va_start(list, format);
    int length = vsnprintf(text, sizeof text, format, list);
    va_end(list);
    int fd = open(report, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, text, (size_t)length) != length)
        abort();
    close(fd);
}

static const char *status_words(int status) {
    static char words[64];
    if (WIFEXITED(status))
        snprintf(words, sizeof words, "exit %d", WEXITSTATUS(status));
    else if (WIFSIGNALED(status))
        snprintf(words, sizeof words, "signal %d", WTERMSIG(status));
    else
        snprintf(words, sizeof words, "status %x", (unsigned)status);
    return words;
}

/* Reports the result of a call and its child's status. */
static void outcome(const char *what, int error, const pid_t *pid) {
    int status = 0;
    if (error) {
        say("%s: %s\n", what, strerrorname_np(error) ? strerrorname_np(error) : "?");
        return;
    }
    if (waitpid(*pid, &status, 0) != *pid)
        say("%s: lost, %d\n", what, errno);
    else
        say("%s: %s\n", what, status_words(status));
}

static void begin(int argc, char **argv) {
    if (argc < 3)
        exit(99);
    facts = argv[1];
    report = argv[2];
    /* Close descriptors that the test harness left open. */
    for (int fd = 3; fd < 1024; fd++)
        close(fd);
}

/* Opens files `0` to `59` of the working directory, at 3 to 9 and at some higher numbers. Every third is
 * close-on-exec. */
static void open_some(int all_close_on_exec) {
    static const int numbers[] = {3, 4, 5, 6, 7, 8, 9, 15, 20, 33, 59};
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++) {
        char name[16];
        snprintf(name, sizeof name, "%d", numbers[n]);
        int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        int close_on_exec = all_close_on_exec || numbers[n] % 3 == 0;
        if (dup3(fd, numbers[n], close_on_exec ? O_CLOEXEC : 0) < 0 && fd != numbers[n])
            abort();
        if (fd == numbers[n])
            fcntl(fd, F_SETFD, close_on_exec ? FD_CLOEXEC : 0);
        else
            close(fd);
    }
}

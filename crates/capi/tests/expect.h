/* Shared by the C tests of both libraries. */
#ifndef EXPECT_H
#define EXPECT_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what)                                                                   \
    do {                                                                              \
        if (!(what)) {                                                                \
            fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #what, errno); \
            exit(1);                                                                  \
        }                                                                             \
    } while (0)

/* Expects a number, and prints the actual one. */
#define EXPECT(number, what)                                                                              \
    do {                                                                                                  \
        long long expect_ = (number), got_ = (what);                                                      \
        if (expect_ != got_) {                                                                            \
            fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #what, got_, expect_);   \
            exit(1);                                                                                      \
        }                                                                                                 \
    } while (0)

static inline int open_fds(void) {
    int fd, count = 0;
    for (fd = 0; fd < 1024; fd++) count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static volatile sig_atomic_t alarms;
static char held_until[] = "/tmp/forkless-held-XXXXXX";
/* Signals: after some of them, creates the file that `hold` waits for. */
static inline void count_alarm(int signal) {
    int saved = errno;
    if (++alarms == 20) close(open(held_until, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    (void)signal, errno = saved;
}

/* A command line that first waits for the file of `count_alarm`. */
static inline void hold(char *line, size_t size, const char *rest) {
    strcpy(held_until + strlen(held_until) - 6, "XXXXXX");
    close(mkstemp(held_until)), unlink(held_until);
    snprintf(line, size, "until test -e %s; do sleep 0.01; done; %s", held_until, rest);
    alarms = 0;
}
#endif

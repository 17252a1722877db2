/* Stands in for the program under test: has the server launch it with these arguments, environment, descriptors and
   attributes, passes signals on to it, and ends as it ends. The path of the server's socket is compiled in, because tests
   clear the environment. In C, because the runtime of Rust opens closed standard streams. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 16 };

/* As in mod.rs. The strings follow it. */
struct request {
    uint64_t length, ignored, blocked;
    uint64_t limits[16][2];
    uint32_t arguments, variables, mask, count;
    int32_t numbers[MOST];
};

extern char **environ;

static volatile pid_t child;

static void pass_on(int signal) {
    if (child > 0)
        kill(child, signal);
}

static void fail(const char *what) {
    dprintf(2, "warm-suites: %s: %s\n", what, strerror(errno));
    _exit(126);
}

static void send_all(int socket, const char *data, size_t length) {
    while (length > 0) {
        ssize_t sent = send(socket, data, length, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR)
            fail("send");
        if (sent > 0)
            data += sent, length -= (size_t)sent;
    }
}

static int receive(int socket) {
    int32_t number;
    ssize_t length;
    do
        length = recv(socket, &number, sizeof number, MSG_WAITALL);
    while (length < 0 && errno == EINTR);
    if (length != sizeof number)
        fail("recv");
    return number;
}

/* The first free number from 64 on. */
static int away(int fd) {
    int moved = fcntl(fd, F_DUPFD_CLOEXEC, 64);
    if (moved < 0)
        return fd;
    close(fd);
    return moved;
}

int main(int count, char **argv) {
    (void)count;
    static const int passed[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGXCPU, SIGXFSZ};
    struct request request = {0};
    char control[CMSG_SPACE((MOST + 1) * sizeof(int))] = {0};
    int fds[MOST + 1];
    sigset_t blocked;
    sigprocmask(SIG_SETMASK, NULL, &blocked);
    for (int n = 1; n <= 64; n++) {
        struct sigaction action;
        if (sigaction(n, NULL, &action) == 0 && action.sa_handler == SIG_IGN)
            request.ignored |= 1ull << (n - 1);
        if (sigismember(&blocked, n) == 1)
            request.blocked |= 1ull << (n - 1);
    }
    for (int n = 0; n < 16; n++) {
        struct rlimit limit;
        if (getrlimit(n, &limit) == 0)
            request.limits[n][0] = limit.rlim_cur, request.limits[n][1] = limit.rlim_max;
    }
    request.mask = umask(0);
    for (int fd = 0; fd < 64 && request.count < MOST; fd++) {
        int flags = fcntl(fd, F_GETFD);
        if (flags >= 0 && !(flags & FD_CLOEXEC)) {
            request.numbers[request.count++] = fd;
            fds[request.count] = fd;
        }
    }
    int directory = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (directory < 0 || server < 0)
        fail("open");
    fds[0] = away(directory), server = away(server);
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = SOCKET};
    while (connect(server, (struct sockaddr *)&address, sizeof address) < 0)
        if (errno != EINTR)
            fail("connect");
    for (char **text = argv; *text; text++)
        request.arguments++, request.length += strlen(*text) + 1;
    for (char **text = environ; *text; text++)
        request.variables++, request.length += strlen(*text) + 1;
    struct iovec vector = {&request, sizeof request};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = control};
    size_t bytes = (request.count + 1) * sizeof(int);
    message.msg_controllen = CMSG_SPACE(bytes);
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS, head->cmsg_len = CMSG_LEN(bytes);
    memcpy(CMSG_DATA(head), fds, bytes);
    if (sendmsg(server, &message, MSG_NOSIGNAL) != sizeof request)
        fail("sendmsg");
    for (char **text = argv; *text; text++)
        send_all(server, *text, strlen(*text) + 1);
    for (char **text = environ; *text; text++)
        send_all(server, *text, strlen(*text) + 1);
    /* The reader of a pipe, say, must see its end when the program ends. */
    for (unsigned n = 1; n <= request.count; n++)
        close(fds[n]);
    for (unsigned n = 0; n < sizeof passed / sizeof *passed; n++)
        if (!(request.ignored >> (passed[n] - 1) & 1))
            signal(passed[n], pass_on);
    child = receive(server);
    int status = receive(server);
    if (child == 0)
        _exit(status);
    if (WIFEXITED(status))
        _exit(WEXITSTATUS(status));
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    signal(WTERMSIG(status), SIG_DFL);
    sigemptyset(&blocked);
    sigprocmask(SIG_SETMASK, &blocked, NULL);
    raise(WTERMSIG(status));
    _exit(127);
}

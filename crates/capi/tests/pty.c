/* Tests of pseudo-terminals. */
#include "check.h"
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>

static forkless_pty *open_pty(void) {
    forkless_pty *pty = NULL;
    forkless_error error;
    if (forkless_pty_open(NULL, &pty, &error) < 0) {
        fprintf(stderr, "%s\n", error.message);
        exit(1);
    }
    return pty;
}

static forkless_child *spawn_on(forkless_pty *pty, const char *line) {
    forkless_command *command = shell(line);
    forkless_child *child = NULL;
    forkless_error error;
    EXPECT(0, forkless_command_pty(command, pty));
    if (forkless_command_spawn(command, &child, &error) < 0) {
        fprintf(stderr, "%s\n", error.message);
        exit(1);
    }
    forkless_command_free(command);
    return child;
}

/* Reads until end of file, or until the text `until` if it is given. */
static void expect_text(forkless_pty *pty, const char *until, const char *text) {
    char found[4096] = "";
    size_t size = 0;
    while (until == NULL || strstr(found, until) == NULL) {
        ssize_t count = forkless_pty_read(pty, found + size, sizeof found - 1 - size);
        CHECK(count >= 0);
        if (count == 0) break;
        found[size += (size_t)count] = 0;
    }
    if (strcmp(text, found) != 0) {
        fprintf(stderr, "read \"%s\", not \"%s\"\n", found, text);
        exit(1);
    }
}

static void expect_end(forkless_child *child, int expected) {
    int status;
    EXPECT(0, forkless_child_wait(child, &status, NULL));
    EXPECT(expected, status);
    forkless_child_free(child);
}

static void the_terminal_is_written_and_read(void) {
    forkless_pty *pty = open_pty();
    char path[64], name[128];
    CHECK(forkless_pty_path(pty, path, sizeof path) > 0);
    CHECK(strncmp(path, "/dev/pts/", 9) == 0);
    EXPECT(0, forkless_pty_echo(pty, 0));
    EXPECT(0, forkless_pty_foreground_group(pty));
    forkless_child *child = spawn_on(pty, "read name; echo hello $name; tty; test -t 0 -a -t 1 -a -t 2 && exit 3");
    EXPECT(forkless_child_pid(child), forkless_pty_foreground_group(pty));
    EXPECT(6, forkless_pty_write(pty, "world\n", 6));
    snprintf(name, sizeof name, "hello world\r\n%s\r\n", path);
    expect_text(pty, NULL, name);
    expect_end(child, 3 << 8);
    /* No program has the terminal open. */
    EXPECT(0, forkless_pty_read(pty, name, sizeof name));
    /* The next child; this time with end of file as input. */
    child = spawn_on(pty, "cat; exit 4");
    EXPECT(0, forkless_pty_send_eof(pty));
    expect_text(pty, NULL, "");
    expect_end(child, 4 << 8);
    forkless_pty_free(pty);
}

static void sizes(void) {
    forkless_pty *pty;
    struct winsize size = {30, 100, 5, 6}, found;
    EXPECT(0, forkless_pty_open(&size, &pty, NULL));
    EXPECT(0, forkless_pty_size(pty, &found));
    CHECK(memcmp(&size, &found, sizeof size) == 0);
    forkless_child *child =
        spawn_on(pty, "stty -echo; trap 'stty size; exit 0' WINCH; stty size; while :; do sleep 1; done");
    expect_text(pty, "\n", "30 100\r\n");
    size.ws_row = 40;
    EXPECT(0, forkless_pty_resize(pty, &size));
    expect_text(pty, "\n", "40 100\r\n");
    expect_end(child, 0);
    EXPECT(-EINVAL, forkless_pty_resize(pty, NULL));
    EXPECT(-EINVAL, forkless_pty_size(pty, NULL));
    forkless_pty_free(pty);
    pty = open_pty();
    EXPECT(0, forkless_pty_size(pty, &found));
    CHECK(found.ws_row == 24 && found.ws_col == 80);
    forkless_pty_free(pty);
}

static void modes(void) {
    forkless_pty *pty = open_pty(), *other = open_pty();
    struct termios found;
    char byte;
    int follower = forkless_pty_follower(pty), null = open("/dev/null", O_RDONLY);
    CHECK(follower >= 0 && isatty(follower));
    EXPECT(FD_CLOEXEC, fcntl(follower, F_GETFD));
    EXPECT(0, forkless_pty_echo(pty, 0));
    EXPECT(0, tcgetattr(follower, &found));
    CHECK(!(found.c_lflag & ECHO) && (found.c_lflag & ICANON));
    EXPECT(0, forkless_pty_make_raw(pty));
    EXPECT(0, tcgetattr(follower, &found));
    CHECK(!(found.c_lflag & (ICANON | ISIG)));
    EXPECT(-EINVAL, forkless_pty_send_eof(pty));
    EXPECT(0, forkless_pty_copy_modes(other, follower));
    EXPECT(0, tcgetattr(forkless_pty_fd(other), &found));
    CHECK(!(found.c_lflag & (ICANON | ISIG)));
    EXPECT(-ENOTTY, forkless_pty_copy_modes(other, null));
    EXPECT(-EBADF, forkless_pty_copy_modes(other, -1));
    /* Bytes in both directions, and EAGAIN instead of blocking. */
    EXPECT(0, forkless_pty_set_nonblocking(pty, 1));
    EXPECT(-EAGAIN, forkless_pty_read(pty, &byte, 1));
    EXPECT(-EINVAL, forkless_pty_read(pty, NULL, 1));
    EXPECT(0, forkless_pty_read(pty, NULL, 0));
    EXPECT(-EINVAL, forkless_pty_write(pty, NULL, 1));
    EXPECT(1, write(follower, "\n", 1));
    struct pollfd ready = {forkless_pty_fd(pty), POLLIN, 0};
    EXPECT(1, poll(&ready, 1, 20000));
    EXPECT(1, forkless_pty_read(pty, &byte, 1));
    EXPECT('\n', byte);
    close(follower);
    close(null);
    forkless_pty_free(pty);
    forkless_pty_free(other);
}

static void read_until_the_end_of_a_child(void) {
    forkless_pty *pty = open_pty();
    forkless_output *output = NULL;
    /* Another process keeps the terminal open, so reading does not reach end of file. */
    forkless_child *child = spawn_on(pty, "trap '' HUP; sleep 1000 & echo $!; exit 5");
    EXPECT(-EINVAL, forkless_pty_read_until_exit(pty, child, 0, NULL, NULL));
    EXPECT(-EINVAL, forkless_pty_read_until_exit(pty, NULL, 0, &output, NULL));
    EXPECT(0, forkless_pty_read_until_exit(pty, child, 0, &output, NULL));
    EXPECT(5 << 8, output->status);
    EXPECT(0, output->err_size);
    CHECK(strcmp(output->out + output->out_size - 2, "\r\n") == 0);
    CHECK(output->usage.wall_ns > 0);
    EXPECT(0, kill((pid_t)atoi(output->out), SIGKILL));
    forkless_output_free(output);
    expect_end(child, 5 << 8);
    forkless_pty_free(pty);
}

static void a_closed_terminal_is_an_error(void) {
    forkless_pty *pty = open_pty();
    forkless_command *command = shell("exit 0");
    forkless_child *child = NULL;
    forkless_error error;
    EXPECT(0, forkless_command_pty(command, pty));
    forkless_pty_free(pty);
    CHECK(forkless_command_spawn(command, &child, &error) < 0);
    CHECK(child == NULL && error.message[0] != 0);
    forkless_command_free(command);
    /* No free descriptor. */
    struct rlimit old, few;
    int fds[1024], count = 0;
    EXPECT(0, getrlimit(RLIMIT_NOFILE, &old));
    few = old, few.rlim_cur = 64;
    EXPECT(0, setrlimit(RLIMIT_NOFILE, &few));
    while ((fds[count] = dup(0)) >= 0) count++;
    pty = NULL;
    EXPECT(-EMFILE, forkless_pty_open(NULL, &pty, &error));
    EXPECT(EMFILE, error.errnum);
    CHECK(pty == NULL && strstr(error.message, "/dev/ptmx") != NULL);
    while (count > 0) close(fds[--count]);
    EXPECT(0, setrlimit(RLIMIT_NOFILE, &old));
}

int main(void) {
    int fds = open_fds();
    if (access("/dev/ptmx", R_OK | W_OK) < 0) {
        printf("SKIPPED: pseudo-terminals in C, because /dev/ptmx cannot be opened here\n");
        return 0;
    }
    the_terminal_is_written_and_read();
    sizes();
    modes();
    read_until_the_end_of_a_child();
    a_closed_terminal_is_an_error();
    expect_nothing_left(fds);
    return 0;
}

/* Command lines, by the shell and without it where it is not needed: status, output and messages are the same. */
#include "check.h"
#include <poll.h>

typedef struct seen {
    int status;
    char out[256], err[256];
    char route[128];
} seen;

static char place[] = "/tmp/forkless-line-XXXXXX";

static forkless_command *of_line(const char *line) {
    char *argv[] = {(char *)"/bin/sh", (char *)"-c", (char *)line, NULL};
    forkless_command *command = NULL;
    EXPECT(0, forkless_command_new_argv(argv, &command));
    EXPECT(0, forkless_command_current_dir(command, place));
    EXPECT(0, forkless_command_fd_null(command, 0));
    return command;
}

static void read_all(int fd, char *text, size_t size) {
    size_t length = 0;
    ssize_t count;
    while ((count = read(fd, text + length, size - 1 - length)) > 0) length += (size_t)count;
    EXPECT(0, count);
    text[length] = '\0';
    close(fd);
}

/* Waits for the end by the pidfd, and reads the pipes when they have been closed. */
static seen play(const char *line, int is_line) {
    seen seen = {0, "", "", ""};
    forkless_command *command = of_line(line);
    forkless_child *child = NULL;
    forkless_ending *ending = NULL;
    forkless_error error = {0, 0, ""};
    EXPECT(0, forkless_command_fd_pipe(command, 1));
    EXPECT(0, forkless_command_fd_pipe(command, 2));
    int answer = is_line ? forkless_command_spawn_line(command, &child, &ending, &error) : forkless_command_spawn(command, &child, &error);
    if (answer < 0) {
        fprintf(stderr, "%s: %s\n", line, error.message);
        exit(1);
    }
    int out = forkless_child_take_fd(child, 1), err = forkless_child_take_fd(child, 2);
    CHECK(out >= 0 && err >= 0);
    EXPECT(0, forkless_child_wait(child, &seen.status, NULL));
    if (is_line) {
        EXPECT(0, forkless_ending_status(ending, seen.status, &seen.status, NULL));
        CHECK(forkless_ending_route(ending, seen.route, sizeof seen.route) > 0);
        forkless_ending_free(ending);
    }
    read_all(out, seen.out, sizeof seen.out), read_all(err, seen.err, sizeof seen.err);
    forkless_child_free(child);
    forkless_command_free(command);
    return seen;
}

static int is_dash(void) {
    char path[256] = "";
    return realpath("/bin/sh", path) != NULL && strstr(path, "/dash") != NULL;
}

static const struct {
    const char *line;
    int direct;
} table[] = {
    {"uname -s", 1},
    {"env printf '<%s>' '' ' ' '$HOME' \"a'b\"", 1},
    {"cat <text", 1},
    {"ls text missing 2>/dev/null", 1},
    {"ls missing", 1},
    {"ls text missing >/dev/null 2>&1", 1},
    {"A=1 sh -c 'echo $A; exit 7'", 1},
    {"sh -c 'exit 255'", 1},
    {"exec uname -s", 1},
    {"sh -c 'ulimit -c 0; kill -TERM $$'", 1},
    {"sh -c 'echo before >&2; ulimit -c 0; kill -KILL $$'", 1},
    {"sh -c 'ulimit -c 0; echo out; kill -SEGV $$' 2>&1", 1},
    {"sh -c 'ulimit -c 0; kill -USR1 $$' 2>/dev/null", 1},
    {"sh -c 'kill -PIPE $$'", 1},
    {"exec sh -c 'kill -TERM $$'", 1},
    {"no-such-program-xyz a b", 0},
    {"no-such-program-xyz 2>&1", 0},
    {"./text", 0},
    {"./directory", 0},
    {"./script x", 0},
    {"cat <missing", 0},
    {"uname -s | cat", 0},
    {"echo one; exit 3", 0},
    {"kill -TERM $$", 0},
    {"ls \"", 0},
    {"", 0},
};

static void lines_end_as_by_the_shell(void) {
    for (size_t n = 0; n < sizeof table / sizeof *table; n++) {
        seen shell = play(table[n].line, 0), line = play(table[n].line, 1);
        if (shell.status != line.status || strcmp(shell.out, line.out) != 0 || strcmp(shell.err, line.err) != 0) {
            fprintf(stderr, "%s: by the shell %#x <%s> <%s>, as a line %#x <%s> <%s>, %s\n", table[n].line, shell.status, shell.out,
                    shell.err, line.status, line.out, line.err, line.route);
            exit(1);
        }
        if (is_dash() && (strcmp(line.route, "directly") == 0) != table[n].direct) {
            fprintf(stderr, "%s: %s\n", table[n].line, line.route);
            exit(1);
        }
    }
}

/* The message goes to a file of the caller, also if that has been closed since. */
static void a_message_goes_to_a_descriptor_of_the_caller(void) {
    forkless_command *command = of_line("sh -c 'ulimit -c 0; kill -KILL $$'");
    forkless_child *child = NULL;
    forkless_ending *ending = NULL;
    char text[64] = "", route[64] = "";
    int status, fds[2];
    EXPECT(0, pipe(fds));
    EXPECT(0, forkless_command_fd(command, 1, fds[1]));
    EXPECT(0, forkless_command_fd_dup(command, 2, 1));
    EXPECT(0, forkless_command_spawn_line(command, &child, &ending, NULL));
    close(fds[1]);
    EXPECT(0, forkless_child_wait(child, &status, NULL));
    EXPECT(0, forkless_ending_status(ending, status, &status, NULL));
    CHECK(forkless_ending_route(ending, route, sizeof route) > 0);
    forkless_ending_free(ending);
    read_all(fds[0], text, sizeof text);
    if (is_dash()) {
        EXPECT(0, strcmp(text, "Killed\n"));
        EXPECT(137, WEXITSTATUS(status));
        EXPECT(0, strcmp(route, "directly"));
    }
    /* The command is what it was before, and no other kind of command is accepted. */
    forkless_child_free(child);
    EXPECT(0, forkless_command_fd_null(command, 1));
    EXPECT(0, forkless_command_status(command, &status, NULL));
    EXPECT(1, is_dash() ? WIFEXITED(status) && WEXITSTATUS(status) == 137 : 1);
    EXPECT(0, forkless_command_arg(command, "name"));
    EXPECT(-EINVAL, forkless_command_spawn_line(command, &child, &ending, NULL));
    EXPECT(0, forkless_command_status(command, &status, NULL));
    forkless_command_free(command);
}

static void a_message_waits_for_room(void) {
    if (!is_dash()) return;
    forkless_command *command = of_line("sh -c 'head -c 100000 /dev/zero >&2; ulimit -c 0; kill -KILL $$'");
    forkless_child *child = NULL;
    forkless_ending *ending = NULL;
    static char room[200000];
    int status, size = 0;
    EXPECT(0, forkless_command_fd_pipe(command, 2));
    EXPECT(0, forkless_command_spawn_line(command, &child, &ending, NULL));
    int err = forkless_child_fd(child, 2);
    /* Nine pages of a pipe of sixteen: it is full again when the rest has been written. */
    while (size < 9 * 4096) {
        ssize_t count = read(err, room + size, (size_t)(9 * 4096 - size));
        CHECK(count > 0);
        size += (int)count;
    }
    EXPECT(0, forkless_child_wait(child, &status, NULL));
    forkless_error error = {0, 0, ""};
    EXPECT(-EAGAIN, forkless_ending_status(ending, status, &status, &error));
    CHECK(strstr(error.message, "full") != NULL);
    CHECK(WIFSIGNALED(status));
    size += (int)read(err, room + size, 65536);
    EXPECT(0, forkless_ending_status(ending, status, &status, NULL));
    EXPECT(137, WEXITSTATUS(status));
    forkless_ending_free(ending);
    ssize_t count;
    while ((count = read(err, room + size, sizeof room - (size_t)size)) > 0) size += (int)count;
    EXPECT(100007, size);
    EXPECT(0, memcmp(room + 100000, "Killed\n", 7));
    forkless_child_free(child);
    forkless_command_free(command);
}

static void make(const char *name, const char *text, mode_t mode) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", place, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, mode);
    EXPECT((ssize_t)strlen(text), write(fd, text, strlen(text)));
    close(fd);
}

int main(void) {
    CHECK(mkdtemp(place) != NULL);
    int fds = open_fds();
    make("text", "one\ntwo\n", 0644);
    make("script", "echo \"script $0 $1\"; exit 4\n", 0755);
    char path[128];
    snprintf(path, sizeof path, "%s/directory", place);
    EXPECT(0, mkdir(path, 0755));
    lines_end_as_by_the_shell();
    a_message_goes_to_a_descriptor_of_the_caller();
    a_message_waits_for_room();
    expect_nothing_left(fds);
    forkless_command *command = shell("rm -r \"$1\"");
    EXPECT(0, forkless_command_arg(command, "sh"));
    EXPECT(0, forkless_command_arg(command, place));
    expect_output(command, "");
    return 0;
}

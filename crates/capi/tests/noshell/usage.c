/* The usage examples of the original: a list or a command line, reading and writing, and both directions with vmfork. */
#include <err.h>
#include <popen_noshell.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

static void list_descriptors(int by_line) {
    struct popen_noshell_pass_to_pclose pclose_arg;
    char *program = "ls", *argv[] = {program, "-la", "/proc/self/fd", NULL};
    char line[256];
    int lines = 0, status;
    FILE *fp = by_line ? popen_noshell_compat("ls -la /proc/self/fd", "r", &pclose_arg)
                       : popen_noshell(program, (const char *const *)argv, "r", &pclose_arg, 0);
    if (!fp) err(EXIT_FAILURE, "ls");
    while (fgets(line, sizeof(line) - 1, fp)) lines++;
    status = pclose_noshell(&pclose_arg);
    if (status == -1) err(EXIT_FAILURE, "pclose_noshell()");
    if (status != 0 || lines < 5) errx(EXIT_FAILURE, "ls: status %d, %d lines", status, lines);
}

static void append(const char *path, int by_line) {
    struct popen_noshell_pass_to_pclose pclose_arg;
    char *argv[] = {"tee", "-a", (char *)path, NULL}, command[256];
    snprintf(command, sizeof command, "tee -a '%s'", path);
    FILE *fp = by_line ? popen_noshell_compat(command, "w", &pclose_arg)
                       : popen_noshell("tee", (const char *const *)argv, "w", &pclose_arg, 0);
    if (!fp) err(EXIT_FAILURE, "tee");
    if (fprintf(fp, "line of %d\n", by_line) < 0) err(EXIT_FAILURE, "fprintf()");
    if (pclose_noshell(&pclose_arg) != 0) err(EXIT_FAILURE, "pclose_noshell()");
}

struct both {
    int to[2], from[2];
};

static int translate(void *argument) {
    struct both *both = argument;
    char *argv[] = {"tr", "a-z", "A-Z", NULL};
    close(both->to[1]), close(both->from[0]);
    dup2(both->to[0], 0), close(both->to[0]);
    dup2(both->from[1], 1), close(both->from[1]);
    execvp(argv[0], argv);
    return 127;
}

static void both_directions(void) {
    struct both both;
    void *memory = &both;
    char answer[8] = "";
    int status;
    if (pipe(both.to) != 0 || pipe(both.from) != 0) err(EXIT_FAILURE, "pipe()");
    pid_t pid = popen_noshell_vmfork(translate, &both, &memory);
    if (pid == -1) err(EXIT_FAILURE, "popen_noshell_vmfork()");
    close(both.to[0]), close(both.from[1]);
    if (write(both.to[1], "abc\n", 4) != 4) err(EXIT_FAILURE, "write()");
    close(both.to[1]);
    if (read(both.from[0], answer, sizeof answer - 1) != 4 || strcmp(answer, "ABC\n") != 0) errx(EXIT_FAILURE, "%s", answer);
    close(both.from[0]);
    if (waitpid(pid, &status, __WALL) != pid || status != 0) err(EXIT_FAILURE, "waitpid()");
    free(memory);
}

int main(void) {
    char path[] = "/tmp/noshell-usage-XXXXXX", text[64] = "";
    int fd = mkstemp(path);
    if (fd < 0) err(EXIT_FAILURE, "mkstemp()");
    for (int by_line = 0; by_line <= 1; by_line++) {
        list_descriptors(by_line);
        append(path, by_line);
    }
    if (read(fd, text, sizeof text - 1) < 0 || strcmp(text, "line of 0\nline of 1\n") != 0) errx(EXIT_FAILURE, "\"%s\"", text);
    unlink(path);
    both_directions();
    return 0;
}

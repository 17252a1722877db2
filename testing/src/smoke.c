/* A program that starts another one, or none, and ends. `cargo xtask dist` runs it with the new preload library.
 * smoke none|system|popen|posix_spawn return|exit|_exit|signal
 * It ends with status 7, or by SIGTERM; any other end is a fault. */
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int has_launched(const char *by) {
    if (strcmp(by, "system") == 0)
        return system("exit 3") == 3 << 8;
    if (strcmp(by, "popen") == 0) {
        char line[8] = "";
        FILE *stream = popen("echo hello", "r");
        return stream && fgets(line, sizeof line, stream) && strcmp(line, "hello\n") == 0 && pclose(stream) == 0;
    }
    if (strcmp(by, "posix_spawn") == 0) {
        char *argv[] = {"true", NULL};
        pid_t pid;
        int status;
        return posix_spawnp(&pid, "true", NULL, NULL, argv, environ) == 0 && waitpid(pid, &status, 0) == pid && status == 0;
    }
    return 1;
}

/* ld.so leaves out what it cannot load, and goes on. */
static int has_library(void) {
    char line[4096];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        found |= strstr(line, "libforkless_preload.so") != NULL;
    return maps && fclose(maps) == 0 && found;
}

int main(int argc, char **argv) {
    if (argc != 3 || !has_library() || !has_launched(argv[1]))
        return 1;
    if (strcmp(argv[2], "exit") == 0)
        exit(7);
    if (strcmp(argv[2], "_exit") == 0)
        _exit(7);
    if (strcmp(argv[2], "signal") == 0)
        raise(SIGTERM);
    return 7;
}

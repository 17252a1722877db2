/* Exercises what a sanitizer would report: memory that libforkless frees, threads that use its tables at the same
 * time, children that share memory. Compiled with -fsanitize=address, thread or undefined. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define MUST(what) ((what) ? (void)0 : (fprintf(stderr, "line %d: %s, errno %d\n", __LINE__, #what, errno), exit(1)))

static void runs(const char *line, int status) {
    MUST(system(line) == status);
    FILE *stream = popen(line, "r");
    MUST(stream);
    char text[64];
    while (fgets(text, sizeof text, stream)) {
    }
    MUST(pclose(stream) == status);
}

static void writes(void) {
    FILE *stream = popen("cat >/dev/null; exit 5", "w");
    MUST(stream);
    for (int n = 0; n < 10000; n++)
        fprintf(stream, "%d\n", n);
    MUST(pclose(stream) == 5 << 8);
}

static void spawns(void) {
    int ends[2], status;
    pid_t pid;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    char *words[] = {"sh", "-c", "echo $0; exit 6", NULL}, text[8] = "";
    MUST(pipe(ends) == 0 && posix_spawn_file_actions_init(&actions) == 0 && posix_spawnattr_init(&attributes) == 0);
    MUST(posix_spawn_file_actions_adddup2(&actions, ends[1], 1) == 0);
    MUST(posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0) == 0);
#if __GLIBC_PREREQ(2, 34)
    MUST(posix_spawn_file_actions_addclosefrom_np(&actions, 3) == 0);
#endif
    sigemptyset(&none);
    MUST(posix_spawnattr_setsigmask(&attributes, &none) == 0);
    MUST(posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK) == 0);
    MUST(posix_spawnp(&pid, "sh", &actions, &attributes, words, environ) == 0);
    close(ends[1]);
    MUST(read(ends[0], text, sizeof text) == 3 && strcmp(text, "sh\n") == 0);
    close(ends[0]);
    MUST(waitpid(pid, &status, 0) == pid && status == 6 << 8);
    MUST(posix_spawn(&pid, "/nonexistent", NULL, &attributes, words, environ) == ENOENT);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
}

static void *all(void *unused) {
    for (int n = 0; n < 5; n++) {
        runs("uname -s >/dev/null", 0);
        runs("exit 3", 3 << 8);
        runs("nonesuch 2>/dev/null", 127 << 8);
        writes();
        spawns();
    }
    return unused;
}

int main(int count, char **words) {
    pthread_t threads[4];
    /* Started programs must not load the sanitizer. */
    MUST(unsetenv("LD_PRELOAD") == 0 && system(NULL) == 1);
    all(NULL);
    for (int n = 0; n < 4; n++)
        MUST(pthread_create(&threads[n], NULL, all, NULL) == 0);
    for (int n = 0; n < 4; n++)
        MUST(pthread_join(threads[n], NULL) == 0);
    puts("all of it");
    fflush(stdout);
    /* A planted error that the sanitizer must report, on request: a negative control. */
    if (count > 1 && !strcmp(words[1], "wrong")) {
        volatile int *freed = malloc(sizeof(int)), most = 0x7fffffff;
        free((void *)freed);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
        *freed = 1;
#endif
        most += count;
    }
    return 0;
}

/* Launches leak no memory, descriptors or children, in this process and in a forked one. `leaks FACTS REPORT` */

#include "common.h"
#include <dirent.h>
#include <malloc.h>

static int descriptors(void) {
    DIR *all = opendir("/proc/self/fd");
    int count = 0;
    while (readdir(all))
        count++;
    closedir(all);
    return count;
}

static void round_of(int times) {
    char *argv[] = {"true", NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    for (int n = 0; n < times; n++) {
        pid_t pid;
        system("/bin/true");
        system("exit 1");
        pclose(popen("/bin/true", "r"));
        fclose(popen("exit 2", "we"));
        popen("true", "x");
        posix_spawn_file_actions_init(&actions);
        posix_spawnattr_init(&attributes);
        posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
        posix_spawn_file_actions_addopen(&actions, 5, "/dev/null", O_RDONLY, 0);
        posix_spawn_file_actions_adddup2(&actions, 2, 9);
        posix_spawn_file_actions_addchdir_np(&actions, "/");
        posix_spawn_file_actions_addclosefrom_np(&actions, 10);
        if (!posix_spawnp(&pid, "true", &actions, &attributes, argv, environ))
            waitpid(pid, NULL, 0);
        posix_spawnp(&pid, "nonesuch", &actions, &attributes, argv, environ);
        posix_spawn_file_actions_adddup2(&actions, 77, 9);
        posix_spawn(&pid, "/bin/true", &actions, NULL, argv, environ);
        posix_spawn_file_actions_destroy(&actions);
        posix_spawnattr_destroy(&attributes);
    }
}

enum { TIMES = 40 };

/* Memory that is allocated once, or in steps, is no leak: at least one of several rounds must add less than the
 * smallest leak, 32 bytes per launch. */
static void both(const char *who) {
    int open_before = descriptors(), grew = 1;
    for (int n = 0; n < 14 && grew; n++) {
        size_t memory = mallinfo2().uordblks;
        round_of(TIMES);
        grew = (size_t)mallinfo2().uordblks >= memory + TIMES * 24;
    }
    say("%s: descriptors %d more, children %d, grows without end: %d\n", who, descriptors() - open_before,
        waitpid(-1, NULL, WNOHANG | __WALL), grew);
}

int main(int argc, char **argv) {
    /* malloc counts its per-thread caches as in use: turn them off. */
    if (!getenv("GLIBC_TUNABLES")) {
        setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0", 1);
        execv("/proc/self/exe", argv);
    }
    begin(argc, argv);
    both("parent");
    pid_t pid = fork();
    if (!pid) {
        both("forked copy");
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    return 0;
}

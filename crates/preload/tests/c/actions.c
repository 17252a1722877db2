/* `posix_spawn(3)` with random lists of file actions: `actions FACTS REPORT SEED COUNT [close-on-exec]`. */

#include "common.h"

static unsigned long long state;

static unsigned chance(unsigned below) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(state >> 33) % below;
}

static int number(void) {
    static const int higher[] = {15, 20, 33, 59, 12, 40};
    return chance(5) ? (int)chance(11) : higher[chance(6)];
}

static void one(int n, int closes_from) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    say("list %d:", n);
    unsigned count = 1 + chance(7);
    for (unsigned at = 0; at <= count; at++) {
        int a = number(), b = number(), error = 0;
        unsigned kind = chance(16);
        if (at == count && !closes_from)
            break;
        if (at == count)
            kind = 15;
        if (kind < 3)
            error = posix_spawn_file_actions_addclose(&actions, a), say(" close(%d)", a);
        else if (kind < 10)
            error = posix_spawn_file_actions_adddup2(&actions, a, b), say(" dup2(%d,%d)", a, b);
        else if (kind < 13)
            error = posix_spawn_file_actions_addopen(&actions, a, b % 2 ? "opened" : "sub/../opened", O_RDWR | O_CREAT, 0600),
            say(" open(%d)", a);
        else if (kind == 13)
            error = posix_spawn_file_actions_addchdir_np(&actions, b % 2 ? "sub" : "."), say(" chdir(%d)", b % 2);
        else if (kind == 14 && b > 5)
            error = posix_spawn_file_actions_addfchdir_np(&actions, 8), say(" fchdir");
        else if (kind == 15 && (closes_from || chance(3) == 0))
            a = at == count ? (int)(chance(3) ? 3 : chance(12)) : a,
            error = posix_spawn_file_actions_addclosefrom_np(&actions, a), say(" closefrom(%d)", a);
        if (error)
            say(" (%d)", error);
    }
    say("\n");
    char *argv[] = {"facts", (char *)report, NULL};
    pid_t pid = -7;
    int error = posix_spawn(&pid, facts, &actions, NULL, argv, environ);
    if (error && pid != -7)
        say("the pid was written in spite of the failure\n");
    outcome("ended", error, &pid);
    posix_spawn_file_actions_destroy(&actions);
}

int main(int argc, char **argv) {
    begin(argc, argv);
    state = strtoull(argv[3], NULL, 10);
    int count = atoi(argv[4]);
    open_some(argc > 5);
    mkdir("sub", 0755);
    int directory = open("sub", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    dup3(directory, 8, argc > 5 ? O_CLOEXEC : 0);
    close(directory);
    for (int n = 0; n < count; n++)
        one(n, n % 2);
    return 0;
}

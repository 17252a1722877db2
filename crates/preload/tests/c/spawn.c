/* Tests posix_spawn(3): attributes, errors, the search for a program. */

#include "common.h"
#include <sys/prctl.h>

static char *words[] = {"facts", NULL, NULL, NULL};

static void with(const char *what, posix_spawnattr_t *attributes) {
    pid_t pid;
    int error = posix_spawn(&pid, facts, NULL, attributes, words, environ);
    outcome(what, error, &pid);
}

static void attributes(void) {
    posix_spawnattr_t attributes;
    sigset_t set;
    struct sched_param param = {.sched_priority = 0};
    posix_spawnattr_init(&attributes);
    with("none", NULL);
    with("initial", &attributes);

    signal(SIGUSR1, SIG_IGN);
    signal(SIGUSR2, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    with("ignored signals", &attributes);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGPIPE);
    sigaddset(&set, SIGKILL);
    posix_spawnattr_setsigdefault(&attributes, &set);
    with("without the flag", &attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    with("signals to default", &attributes);
    sigfillset(&set);
    posix_spawnattr_setsigdefault(&attributes, &set);
    with("all signals to default", &attributes);

    sigprocmask(SIG_SETMASK, NULL, &set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGRTMIN);
    sigprocmask(SIG_SETMASK, &set, NULL);
    with("the caller's mask", &attributes);
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGRTMAX);
    posix_spawnattr_setsigmask(&attributes, &set);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    with("a mask", &attributes);
    sigfillset(&set);
    posix_spawnattr_setsigmask(&attributes, &set);
    with("a full mask", &attributes);
    sigemptyset(&set);
    sigprocmask(SIG_SETMASK, &set, NULL);

    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
    with("a session", &attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    with("a group", &attributes);
    posix_spawnattr_setpgroup(&attributes, getpgrp());
    with("the caller's group", &attributes);
    posix_spawnattr_setpgroup(&attributes, 1);
    with("a group that cannot be", &attributes);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETPGROUP);
    with("session and group", &attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_RESETIDS | POSIX_SPAWN_USEVFORK);
    with("ids, vfork", &attributes);
    /* In a program whose effective user is not its real user. */
    if (geteuid() == 0 && seteuid(65534) == 0) {
        pid_t pid;
        int error = posix_spawn(&pid, facts, NULL, &attributes, words, environ);
        if (seteuid(0))
            abort();
        outcome("ids, to be reset", error, &pid);
    }

    posix_spawnattr_setschedparam(&attributes, &param);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSCHEDPARAM);
    with("priority 0", &attributes);
    param.sched_priority = 5;
    posix_spawnattr_setschedparam(&attributes, &param);
    with("a priority that cannot be", &attributes);
    posix_spawnattr_setschedpolicy(&attributes, SCHED_RR);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSCHEDULER);
    with("round robin", &attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSCHEDULER | POSIX_SPAWN_SETSCHEDPARAM);
    with("round robin, with its priority", &attributes);

    short flags;
    pid_t group;
    int policy;
    say("refused: %d %d\n", posix_spawnattr_setflags(&attributes, 0x4000), posix_spawnattr_setschedpolicy(&attributes, 77));
    posix_spawnattr_getflags(&attributes, &flags);
    posix_spawnattr_getpgroup(&attributes, &group);
    posix_spawnattr_getschedpolicy(&attributes, &policy);
    posix_spawnattr_getschedparam(&attributes, &param);
    posix_spawnattr_getsigmask(&attributes, &set);
    say("read: %d %d %d %d %d\n", flags, group, policy, param.sched_priority, sigismember(&set, SIGSEGV));
    posix_spawnattr_destroy(&attributes);
}

/* The library wraps prctl(2). */
static void controls(void) {
    static const unsigned long values[] = {0, 1, 2, 7, 1ul << 32, 1};
    for (size_t n = 0; n < sizeof values / sizeof *values; n++) {
        errno = 0;
        int answer = prctl(PR_SET_DUMPABLE, values[n], 0, 0, 0);
        say("dumpable %lx: %d %d, ", values[n], answer, errno);
        say("so it is %d\n", prctl(PR_GET_DUMPABLE, 0, 0, 0, 0));
    }
    char name[17] = "";
    int set = prctl(PR_SET_NAME, "a name"), got = prctl(PR_GET_NAME, name);
    say("%d %d: %s\n", set, got, name);
    errno = 0;
    set = prctl(-1, 1ul, 2ul, 3ul, 4ul);
    say("no such option: %d %s\n", set, strerrorname_np(errno));
    errno = 0;
    /* All five arguments must be passed: this option fails with EINVAL unless the last three are 0. */
    set = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 1);
    say("a fifth argument: %d %s\n", set, strerrorname_np(errno));
}

/* Reports whether the file actions were made before the step that failed: one of them creates a file. */
static void after_actions(const char *what, const char *path, posix_spawnattr_t *attributes) {
    posix_spawn_file_actions_t actions;
    pid_t pid;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 5, "made", O_WRONLY | O_CREAT, 0600);
    outcome(what, posix_spawnp(&pid, path, &actions, attributes, words, environ), &pid);
    say(" made: %d\n", unlink("made"));
    posix_spawn_file_actions_addopen(&actions, 5, "no/such/directory", O_RDONLY, 0);
    outcome(what, posix_spawnp(&pid, path, &actions, attributes, words, environ), &pid);
    say(" made: %d\n", unlink("made"));
    posix_spawn_file_actions_destroy(&actions);
}

static void order(void) {
    posix_spawnattr_t attributes;
    struct sched_param param = {.sched_priority = 5};
    static const int policies[] = {SCHED_OTHER, SCHED_FIFO, SCHED_RR, SCHED_BATCH, SCHED_IDLE, 4, 6, 77, -1};
    char long_name[300], long_path[5001];
    memset(long_name, 'n', sizeof long_name - 1);
    memset(long_path, 'n', sizeof long_path - 1);
    long_name[sizeof long_name - 1] = long_path[sizeof long_path - 1] = 0;
    long_path[0] = '/';
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setschedparam(&attributes, &param);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSCHEDPARAM);
    after_actions("a priority that cannot be", facts, &attributes);
    posix_spawnattr_setpgroup(&attributes, 1);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSCHEDPARAM);
    after_actions("nor a group", facts, &attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    after_actions("no group", facts, &attributes);
    after_actions("an empty name", "", NULL);
    after_actions("a long name", long_name, NULL);
    after_actions("a long path", long_path, NULL);
    setenv("PATH", "", 1);
    after_actions("an empty name in an empty PATH", "", NULL);
    unsetenv("PATH");
    after_actions("an empty name without PATH", "", NULL);
    after_actions("a long name without PATH", long_name, NULL);
    char *path = malloc(5001);
    memset(path, 'p', 5000);
    path[5000] = 0;
    setenv("PATH", path, 1);
    after_actions("nothing but a long PATH", "true", NULL);
    free(path);
    setenv("PATH", "/usr/bin:/bin", 1);
    for (size_t n = 0; n < sizeof policies / sizeof *policies; n++) {
        /* Set directly: a program may use policies that posix_spawnattr_setschedpolicy refuses. */
        attributes.__policy = policies[n];
        for (int priority = 0; priority < 2; priority++) {
            param.sched_priority = priority;
            posix_spawnattr_setschedparam(&attributes, &param);
            posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSCHEDULER);
            char what[40];
            snprintf(what, sizeof what, "policy %d, priority %d", policies[n], priority);
            after_actions(what, facts, &attributes);
        }
    }
    /* Signals that sigfillset(3) leaves out. */
    static const int own[] = {32, 33, 34};
    for (size_t n = 0; n < sizeof own / sizeof *own; n++) {
        memset(&attributes.__ss, 0, sizeof attributes.__ss);
        ((unsigned long *)&attributes.__ss)[0] = 1ul << (own[n] - 1);
        attributes.__sd = attributes.__ss;
        posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
        with("a mask of one", &attributes);
        posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
        with("one to default", &attributes);
    }
    memset(&attributes.__ss, 0xff, sizeof attributes.__ss);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    with("a mask of all bits", &attributes);
    for (int flag = 1; flag < 0x8000; flag <<= 1)
        say("flag %x: %d\n", (unsigned)flag, posix_spawnattr_setflags(&attributes, (short)flag));
    posix_spawnattr_destroy(&attributes);
}

static void file(const char *name, const char *text, mode_t mode) {
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
    if (write(fd, text, strlen(text)) < 0 || fchmod(fd, mode))
        abort();
    close(fd);
}

/* The symbol versions of programs that were linked long ago. */
__asm__(".symver old_spawn, posix_spawn@GLIBC_2.2.5");
__asm__(".symver old_spawnp, posix_spawnp@GLIBC_2.2.5");
extern __typeof__(posix_spawn) old_spawn, old_spawnp;

static void search(void) {
    char *script[] = {"zeroth", "first", "second", NULL}, *none[] = {NULL};
    char long_name[300], *long_path = malloc(300000);
    pid_t pid;
    memset(long_name, 'n', sizeof long_name);
    long_name[299] = 0;
    mkdir("bin", 0755);
    mkdir("bin/directory", 0755);
    file("bin/closed", "#!/bin/sh\nexit 1\n", 0);
    file("bin/plain", "echo \"$0 $# $1\" >>\"$REPORT\"; exit 4\n", 0755);
    file("bin/hashed", "#!/bin/sh\necho \"$# $1\" >>\"$REPORT\"; exit 5\n", 0755);
    file("bin/lost", "#!/no/such/interpreter\n", 0755);
    file("here", "#!/bin/sh\nexit 6\n", 0755);
    setenv("REPORT", report, 1);
    static const char *const names[] = {"closed", "plain", "hashed", "lost", "here", "directory", "nowhere", "", "bin/hashed",
                                        "/bin/sh/x", "./nowhere", "bin"};
    static const char *const paths[] = {"bin:/usr/bin", "/nowhere:bin", "", ":bin", "bin:", "here:bin", NULL};
    for (size_t p = 0; p < sizeof paths / sizeof *paths; p++) {
        if (paths[p])
            setenv("PATH", paths[p], 1);
        else
            unsetenv("PATH");
        for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
            say("%s in %s\n", names[n], paths[p] ? paths[p] : "nothing");
            outcome(" p", posix_spawnp(&pid, names[n], NULL, NULL, script, environ), &pid);
            outcome(" old p", old_spawnp(&pid, names[n], NULL, NULL, script, environ), &pid);
        }
    }
    /* The caller's PATH is searched, not that of the new environment. */
    char *other[] = {"PATH=/nowhere", NULL};
    setenv("PATH", "/usr/bin:/bin", 1);
    outcome("sh", posix_spawnp(&pid, "true", NULL, NULL, script, other), &pid);
    memset(long_path, 'p', 300000);
    memcpy(long_path + 5000, ":bin", 5);
    setenv("PATH", long_path, 1);
    outcome("long path", posix_spawnp(&pid, "hashed", NULL, NULL, script, environ), &pid);
    setenv("PATH", "bin:/usr/bin:/bin", 1);
    outcome("long name", posix_spawnp(&pid, long_name, NULL, NULL, script, environ), &pid);
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        char path[64];
        snprintf(path, sizeof path, "bin/%s", names[n]);
        outcome(path, posix_spawn(&pid, path, NULL, NULL, script, environ), &pid);
        outcome(" old", old_spawn(&pid, path, NULL, NULL, script, environ), &pid);
    }
    /* The maximum number of arguments, and none. */
    outcome("empty environment", posix_spawn(&pid, facts, NULL, NULL, words, none), &pid);
    outcome("no environment", posix_spawn(&pid, facts, NULL, NULL, words, NULL), &pid);
    outcome("no file", posix_spawn(&pid, NULL, NULL, NULL, words, environ), &pid);
    outcome("no arguments", posix_spawn(&pid, facts, NULL, NULL, none, environ), &pid);
    char *large = malloc(200001);
    memset(large, 'x', 200000);
    large[200000] = 0;
    char *too_long[] = {"facts", large, NULL};
    outcome("too long", posix_spawn(&pid, facts, NULL, NULL, too_long, environ), &pid);
    char odd[] = {"\1\200\377=\n"}, *binary[] = {"facts", words[1], "3", odd, NULL}, *binary_env[] = {"FACT", "FACT=x", odd, NULL};
    outcome("binary", posix_spawn(&pid, facts, NULL, NULL, binary, binary_env), &pid);
    int status = posix_spawn(NULL, "/bin/true", NULL, NULL, script, environ);
    say("no place for the pid: %d, %d\n", status, wait(&status) > 0);
    free(large);
    free(long_path);
}

/* The functions refuse descriptors that are out of range. */
static void refusals(void) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    static const int numbers[] = {-1, 0, 1 << 20, 1 << 30};
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++) {
        int fd = numbers[n];
        say("%d: %d %d %d %d %d %d %d\n", fd, posix_spawn_file_actions_addclose(&actions, fd),
            posix_spawn_file_actions_adddup2(&actions, fd, 1), posix_spawn_file_actions_adddup2(&actions, 1, fd),
            posix_spawn_file_actions_addopen(&actions, fd, "x", O_RDONLY, 0), posix_spawn_file_actions_addfchdir_np(&actions, fd),
            posix_spawn_file_actions_addclosefrom_np(&actions, fd), posix_spawn_file_actions_addtcsetpgrp_np(&actions, fd));
    }
    posix_spawn_file_actions_destroy(&actions);
    posix_spawn_file_actions_init(&actions);
    for (int n = 0; n < 100; n++)
        posix_spawn_file_actions_addopen(&actions, 1, "many", O_WRONLY | O_CREAT | O_APPEND, 0600);
    pid_t pid;
    outcome("many actions", posix_spawn(&pid, facts, &actions, NULL, words, environ), &pid);
    posix_spawn_file_actions_addtcsetpgrp_np(&actions, 0);
    outcome("no terminal", posix_spawn(&pid, facts, &actions, NULL, words, environ), &pid);
    posix_spawn_file_actions_destroy(&actions);
}

/* Files of procfs, by their paths and by links: 4 is inherited, 6 is close-on-exec. */
static void procfs(void) {
    static const char *const paths[] = {"/dev/fd/4", "/dev/fd/6", "fds/4", "fds/6", "fds/40", "/dev/stdin", "/proc/sys/kernel/ostype", "ostype"};
    if (symlink("/dev/fd", "fds") || symlink("/proc/sys/kernel/ostype", "ostype"))
        abort();
    for (size_t n = 0; n < 2 * (sizeof paths / sizeof *paths); n++) {
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_addopen(&actions, 0, paths[n / 2], O_RDONLY, 0);
        if (n % 2)
            posix_spawn_file_actions_addclosefrom_np(&actions, 3);
        pid_t pid;
        outcome(paths[n / 2], posix_spawn(&pid, facts, &actions, NULL, words, environ), &pid);
        posix_spawn_file_actions_destroy(&actions);
    }
}

int main(int argc, char **argv) {
    begin(argc, argv);
    words[1] = argv[2];
    setenv("FACT", "a fact", 1);
    open_some(0);
    controls();
    attributes();
    order();
    refusals();
    procfs();
    search();
    say("nothing is left: %d\n", waitpid(-1, NULL, WNOHANG | __WALL));
    return 0;
}

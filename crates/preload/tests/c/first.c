/* The first use of the library, when the loader looks up functions of libc for it: in threads at once, in a child that shares memory,
 * while other threads fork, and after chroot(2). The first argument says which; no output and status 0 if all is well. `facts` is the static program that the children run. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            dprintf(2, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #what, errno);                                    \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

static const char *program = "/bin/true";

static void launch(void) {
    char *argv[] = {"true", NULL};
    pid_t pid;
    int status;
    CHECK(posix_spawn(&pid, program, NULL, NULL, argv, environ) == 0);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static pthread_barrier_t start;

static void *launches(void *unused) {
    (void)unused;
    pthread_barrier_wait(&start);
    launch();
    CHECK(system("exit 3") == 3 << 8);
    return NULL;
}

static void *keeps_dumpable(void *unused) {
    (void)unused;
    pthread_barrier_wait(&start);
    for (int n = 0; n < 50; n++)
        CHECK(prctl(PR_SET_DUMPABLE, 1) == 0);
    return NULL;
}

/* Of all threads, some are first at the same moment. */
static void threads(void) {
    pthread_t thread[9];
    pthread_barrier_init(&start, NULL, 9);
    for (int n = 0; n < 9; n++)
        CHECK(pthread_create(&thread[n], NULL, n ? launches : keeps_dumpable, NULL) == 0);
    for (int n = 0; n < 9; n++)
        pthread_join(thread[n], NULL);
}

static void *forks(void *unused) {
    (void)unused;
    pthread_barrier_wait(&start);
    for (int n = 0; n < 8; n++) {
        pid_t pid = fork();
        if (pid == 0) {
            launch();
            _exit(0);
        }
        int status;
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    }
    return NULL;
}

static int shared_child(void *unused) {
    (void)unused;
    launch();
    return 0;
}

/* Each kind of launch, with each kind of action. */
static void all_kinds(void) {
    posix_spawn_file_actions_t does;
    posix_spawnattr_t has;
    sigset_t none;
    sigemptyset(&none);
    CHECK(posix_spawn_file_actions_init(&does) == 0 && posix_spawnattr_init(&has) == 0);
    CHECK(posix_spawn_file_actions_addopen(&does, 5, "/dev/null", O_RDWR, 0) == 0);
    CHECK(posix_spawn_file_actions_adddup2(&does, 5, 1) == 0);
    CHECK(posix_spawn_file_actions_addclose(&does, 5) == 0);
    CHECK(posix_spawn_file_actions_addchdir_np(&does, "/") == 0);
    CHECK(posix_spawnattr_setsigmask(&has, &none) == 0 && posix_spawnattr_setsigdefault(&has, &none) == 0);
    CHECK(posix_spawnattr_setflags(&has, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP) == 0);
    char *argv[] = {"true", NULL};
    pid_t pid;
    int status;
    CHECK(posix_spawnp(&pid, "true", &does, &has, argv, environ) == 0);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(posix_spawn(&pid, "/does/not/exist", &does, &has, argv, environ) == ENOENT);
    CHECK(system("true") == 0 && system("exec true | true; :") == 0);
    FILE *stream = popen("echo hello", "r");
    char line[10];
    CHECK(stream && fgets(line, sizeof line, stream) && strcmp(line, "hello\n") == 0 && pclose(stream) == 0);
    posix_spawn_file_actions_destroy(&does);
    posix_spawnattr_destroy(&has);
}

int main(int argc, char **argv) {
    const char *which = argv[1];
    if (argc > 2)
        program = argv[2];
    if (!strcmp(which, "threads")) {
        threads();
    } else if (!strcmp(which, "forks")) {
        pthread_t thread[2];
        pthread_barrier_init(&start, NULL, 2);
        CHECK(pthread_create(&thread[0], NULL, forks, NULL) == 0);
        CHECK(pthread_create(&thread[1], NULL, launches, NULL) == 0);
        pthread_join(thread[0], NULL);
        pthread_join(thread[1], NULL);
    } else if (!strcmp(which, "shared")) {
        static char stack[1 << 18] __attribute__((aligned(16)));
        pid_t pid = clone(shared_child, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
        int status;
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
        launch();
    } else if (!strcmp(which, "dlerror")) {
        CHECK(dlopen("/does/not/exist.so", RTLD_NOW) == NULL);
        launch();
        CHECK(dlerror() != NULL);
    } else if (!strcmp(which, "chroot")) {
        CHECK(chroot(argv[2]) == 0 && chdir("/") == 0);
        program = argv[3];
        launch();
        fclose(fopen(argv[3], "r"));
    } else if (!strcmp(which, "kinds")) {
        all_kinds();
    } else if (!strcmp(which, "kinds-in-a-copy")) {
        int status;
        if (fork() == 0) {
            all_kinds();
            _exit(0);
        }
        CHECK(wait(&status) > 0 && status == 0);
    } else {
        CHECK(!"a known argument");
    }
    return 0;
}

/* Shared by the tests of popen_noshell. */
#include "../expect.h"
#include <popen_noshell.h>

typedef struct popen_noshell_pass_to_pclose pclose_arg;

/* An argument list that begins with the program. */
#define ARGV(...) ((const char *const[]){__VA_ARGS__, NULL})

static inline FILE *run(const char *const *argv, const char *type, pclose_arg *arg, int stderr_mode) {
    FILE *stream = popen_noshell(argv[0], argv, type, arg, stderr_mode);
    if (stream == NULL) perror(argv[0]);
    CHECK(stream != NULL);
    return stream;
}

/* Reads until end of file, compares, closes. */
static inline void expect_text(const char *text, FILE *stream, pclose_arg *arg, int status) {
    char got[4096];
    CHECK(stream != NULL);
    size_t size = fread(got, 1, sizeof got - 1, stream);
    got[size] = '\0';
    if (strcmp(text, got) != 0) {
        fprintf(stderr, "\"%s\", not \"%s\"\n", got, text);
        exit(1);
    }
    EXPECT(status, pclose_noshell(arg));
}

/* Runs the statement in a forked process, if it would affect later tests. */
#define IN_A_COPY(work)                                  \
    do {                                                 \
        fflush(NULL);                                    \
        pid_t copy = fork();                             \
        int copy_status;                                 \
        if (copy == 0) {                                 \
            work;                                        \
            _exit(0);                                    \
        }                                                \
        EXPECT(copy, waitpid(copy, &copy_status, 0));    \
        EXPECT(0, copy_status);                          \
    } while (0)

/* Expects no more descriptors than before, and no child. */
static inline void expect_nothing_left(int fds) {
    EXPECT(fds, open_fds());
    EXPECT(-1, waitpid(-1, NULL, WNOHANG | __WALL));
    EXPECT(ECHILD, errno);
}

/* The size of the address space in KiB. */
static inline long address_space(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    CHECK(file != NULL && fscanf(file, "%ld", &pages) == 1);
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/* Calls the test in each of the three modes, or in that of the environment: valgrind only supports fork. */
static inline void in_every_mode(void (*test)(void)) {
    const char *only = getenv("NOSHELL_TEST_MODE");
    for (int mode = POPEN_NOSHELL_MODE_CLONE; mode <= POPEN_NOSHELL_MODE_POSIX_SPAWN; mode++) {
        if (only != NULL && mode != atoi(only)) continue;
        popen_noshell_set_fork_mode(mode);
        EXPECT(mode, popen_noshell_get_fork_mode());
        test();
    }
    popen_noshell_set_fork_mode(POPEN_NOSHELL_MODE_CLONE);
}

/* What these programs share: the times of this process and its children, memory, and the wait for a child that must end with 0. */
#include <err.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct times {
    int64_t wall, user, system;
};

static inline int64_t clock_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static inline int64_t in_ns(struct timeval time) { return time.tv_sec * INT64_C(1000000000) + time.tv_usec * 1000; }

static inline struct times times_now(void) {
    struct rusage self, children;
    getrusage(RUSAGE_SELF, &self);
    getrusage(RUSAGE_CHILDREN, &children);
    return (struct times){clock_ns(), in_ns(self.ru_utime) + in_ns(children.ru_utime),
                          in_ns(self.ru_stime) + in_ns(children.ru_stime)};
}

/* Without huge pages, so that the page tables are those of a heap that grew. */
static inline char *map(size_t size) {
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) err(1, "memory");
    madvise(memory, size, MADV_NOHUGEPAGE);
    return memory;
}

static inline void touch(volatile char *memory, size_t size) {
    for (size_t at = 0; at < size; at += 4096) memory[at] = 1;
}

static inline void must_end_with_0(pid_t pid) {
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid) err(1, "a child");
    if (status != 0) errx(1, "status %d", status);
}

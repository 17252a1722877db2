/* Loaded by LD_PRELOAD into an engine of `forkless bench`: before main it has the open files and the mappings that the
 * condition asks for, as the bench itself has them. What told it so is taken from the environment, so that no child is told.
 *
 * FORKLESS_BENCH_PARENT is FILES CLOEXEC MAPPINGS PROGRAM: open files, 1 if those that are added are close-on-exec or 0, mappings
 * to add, and the path of the engine's program. In another program, as in a script that looks for an interpreter and executes
 * it, nothing is done. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* Instead of the greeting, where the bench reads it. */
static _Noreturn void fail(const char *what, long count)
{
    dprintf(4, "failed cannot have %ld %s: %s\n", count, what, strerror(errno));
    _exit(1);
}

/* The lowest free numbers are taken, so that what the engine opens gets high ones. */
static void open_until(long count, int flags)
{
    int fd;
    while ((fd = socket(AF_UNIX, SOCK_DGRAM | flags, 0)) >= 0)
        if (fd >= count) {
            close(fd);
            return;
        }
    fail("open files", count);
}

/* One touched page each: neighbours differ in protection, so the kernel cannot merge them. */
static void map_pages(long count)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), length = (size_t)count * page;
    char *start = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED)
        fail("mappings", count);
    /* Kernels without huge pages refuse it, which is as good. */
    madvise(start, length, MADV_NOHUGEPAGE);
    for (size_t at = 0; at < length; at += page)
        ((volatile char *)start)[at] = 1;
    for (size_t at = page; at < length; at += 2 * page)
        if (mprotect(start + at, page, PROT_READ) != 0)
            fail("mappings", count);
}

/* The rest of the list is not ours. */
static void forget_ourselves(void)
{
    const char *list = getenv("LD_PRELOAD"), *rest = list ? strchr(list, ':') : NULL;
    int failed = rest ? setenv("LD_PRELOAD", rest + 1, 1) : unsetenv("LD_PRELOAD");
    if (failed || unsetenv("FORKLESS_BENCH_PARENT") != 0)
        fail("variables", 2);
}

__attribute__((constructor)) static void become_like(void)
{
    char own[PATH_MAX];
    long files, mappings;
    int close_on_exec, at = 0;
    const char *words = getenv("FORKLESS_BENCH_PARENT");
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    if (!words || length < 0 || sscanf(words, "%ld %d %ld %n", &files, &close_on_exec, &mappings, &at) != 3)
        return;
    own[length] = '\0';
    if (strcmp(own, words + at) != 0)
        return;
    forget_ourselves();
    if (files > 0)
        open_until(files, close_on_exec ? SOCK_CLOEXEC : 0);
    if (mappings > 0)
        map_pages(mappings);
}

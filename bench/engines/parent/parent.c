/* Loaded by LD_PRELOAD into an engine of `forkless bench`: creates the open files and mappings of the condition before main, as
 * the bench does for itself. Removes its variables from the environment, so that children do not see them.
 *
 * FORKLESS_BENCH_PARENT is FILES CLOEXEC MAPPINGS PROGRAM: the number of open files, 1 if added files are close-on-exec (else 0),
 * the number of mappings to add, and the path of the engine's executable. Does nothing in any other executable, such as the shell
 * of a script that starts the interpreter. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* Written in place of the greeting, so that the bench reports it. */
static _Noreturn void fail(const char *what, long count)
{
    dprintf(4, "failed cannot create %ld %s: %s\n", count, what, strerror(errno));
    _exit(1);
}

/* Uses the lowest free numbers, so that descriptors that the engine opens later get high ones. */
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
    /* Kernels without huge pages return an error, which is harmless. */
    madvise(start, length, MADV_NOHUGEPAGE);
    for (size_t at = 0; at < length; at += page)
        ((volatile char *)start)[at] = 1;
    for (size_t at = page; at < length; at += 2 * page)
        if (mprotect(start + at, page, PROT_READ) != 0)
            fail("mappings", count);
}

/* Keep the other libraries in the list. */
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

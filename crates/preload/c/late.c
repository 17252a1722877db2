/* What is done when a program first calls one of the library's functions that start programs. docs/design/late.md says why.
 *
 * Nothing is locked here, because another thread's lock would never be released in a forked copy of the process. Several threads
 * may do all of it at once, and so may a child that shares memory: each does the same.
 *
 * Until `forkless_preload_prepare` has returned, no pointer in the library's data is valid. This file has none in its data. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Tags of the dynamic section that `cargo xtask dist` writes: where the relocations are that the loader does not see, and how many. */
#define TAG_TABLE 0x6000f001
#define TAG_COUNT 0x6000f002
/* The type of a program header: the pages to make read-only. The loader does not know it. */
#define PT_READ_ONLY 0x6000f003

#define LOCAL __attribute__((visibility("hidden")))

extern const ElfW(Ehdr) __ehdr_start LOCAL;
extern ElfW(Dyn) _DYNAMIC[] LOCAL;

/* Its address names this library to libc. It is in the start files, which are left out because they have initialization code. */
LOCAL void *__dso_handle;

/* Whether the relocations are done. */
LOCAL char forkless_preload_ready;

/* An exported function. */
struct entry {
    int32_t own;  /* this library's function, by its distance from this record */
    char names[]; /* libc's function, and after the NUL its version, or "" */
};

LOCAL void *forkless_preload_prepare(const struct entry *entry);

struct range {
    char *start, *end;
};

/* The pages that are made read-only when the relocations are done; PT_GNU_RELRO if the loader has done both. */
static struct range read_only_pages(char *base) {
    const ElfW(Phdr) *header = (const void *)(base + __ehdr_start.e_phoff);
    size_t page = getauxval(AT_PAGESZ);
    for (int n = 0; n < __ehdr_start.e_phnum; n++)
        if (header[n].p_type == PT_READ_ONLY || header[n].p_type == PT_GNU_RELRO) {
            size_t start = (size_t)base + header[n].p_vaddr, end = start + header[n].p_memsz;
            return (struct range){(char *)(start & -page), (char *)(end & -page)};
        }
    return (struct range){base, base};
}

/* Does the relocations in a copy of these pages, makes the copy read-only, and exchanges the pages for the copy in one step. So no
 * thread sees a part of the work. Returns false if the kernel refuses. */
static int relocate(char *base, const ElfW(Rela) *table, size_t count, struct range fixed) {
    size_t size = (size_t)(fixed.end - fixed.start);
    char *copy = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED)
        return 0;
    memcpy(copy, fixed.start, size);
    for (size_t n = 0; n < count; n++) {
        char *place = base + table[n].r_offset, *value = base + table[n].r_addend;
        if (place >= fixed.start && place < fixed.end) {
            memcpy(copy + (place - fixed.start), &value, sizeof value);
        } else {
            /* Other data stays writable. If another thread has done this before, the library may have changed it since. */
            char *before = (char *)table[n].r_addend;
            __atomic_compare_exchange_n((char **)place, &before, value, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
        }
    }
    if (mprotect(copy, size, PROT_READ) == 0 &&
        mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, fixed.start) != MAP_FAILED)
        return 1;
    munmap(copy, size);
    return 0;
}

static int prepared(void) {
    if (__atomic_load_n(&forkless_preload_ready, __ATOMIC_ACQUIRE))
        return 1;
    char *base = (char *)&__ehdr_start;
    const ElfW(Rela) *table = NULL;
    size_t count = 0;
    for (const ElfW(Dyn) *one = _DYNAMIC; one->d_tag != DT_NULL; one++) {
        if (one->d_tag == TAG_TABLE)
            table = (const void *)(base + one->d_un.d_val);
        if (one->d_tag == TAG_COUNT)
            count = one->d_un.d_val;
    }
    if (!relocate(base, table, count, read_only_pages(base)))
        return 0;
    __atomic_store_n(&forkless_preload_ready, 1, __ATOMIC_RELEASE);
    return 1;
}

/* Returns the function that a call of `entry` goes to: this library's, or libc's if the kernel refuses what must be done first.
 * The objects of posix_spawn(3) have the same layout for both. */
void *forkless_preload_prepare(const struct entry *entry) {
    int saved = errno;
    void *function = (char *)entry + entry->own;
    if (!prepared()) {
        const char *version = entry->names + strlen(entry->names) + 1;
        function = *version ? dlvsym(RTLD_NEXT, entry->names, version) : dlsym(RTLD_NEXT, entry->names);
        if (!function)
            __builtin_trap(); /* a function that this libc does not have */
    }
    errno = saved;
    return function;
}

/* As long as no program has been started, no stream is ours. */
#define CLOSES(name)                                                                                                   \
    LOCAL int forkless_early_##name(FILE *stream);                                                                     \
    int forkless_early_##name(FILE *stream) {                                                                          \
        static int (*next)(FILE *);                                                                                    \
        int (*found)(FILE *) = __atomic_load_n(&next, __ATOMIC_ACQUIRE);                                               \
        if (!found) {                                                                                                  \
            int saved = errno;                                                                                         \
            found = (int (*)(FILE *))dlsym(RTLD_NEXT, #name);                                                          \
            __atomic_store_n(&next, found, __ATOMIC_RELEASE);                                                          \
            errno = saved;                                                                                             \
        }                                                                                                              \
        return found(stream);                                                                                          \
    }

CLOSES(fclose)
CLOSES(pclose)

extern int forkless_own_prctl(int option, ...) LOCAL;
LOCAL int forkless_early_prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d);

/* PR_SET_DUMPABLE is for this library if another thread is at its first launch, which protects the memory. */
int forkless_early_prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d) {
    int saved = errno;
    if (option == PR_SET_DUMPABLE && prepared()) {
        errno = saved;
        return forkless_own_prctl(option, a, b, c, d);
    }
    return (int)syscall(SYS_prctl, option, a, b, c, d);
}

#include <features.h>

/* The address of this object names the library to libc: pthread_atfork(3) and thread-exit handlers. Usually gcc's start files have
 * it, which the library is linked without. */
__attribute__((visibility("hidden"))) void *__dso_handle;

/* Before glibc 2.34, dlsym(3) calls malloc when a thread first calls it. A signal handler may start a program while malloc's memory
 * is ruined or in use, so libc's functions are found now. */
#if !__GLIBC_PREREQ(2, 34)
extern void forkless_preload_find(void);
__attribute__((constructor)) static void find(void) { forkless_preload_find(); }
#endif

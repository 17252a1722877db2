/* system(3). It is C because a thread may be cancelled while it waits: its frames are then unwound, and must not
 * include Rust frames. */

#include "wait.h"
#include <pthread.h>

typedef int system_function(const char *line);

/* In src/system.rs. None of these is a cancellation point. */
extern system_function *forkless_preload_system_of_libc(void);
extern int forkless_preload_system_begin(const char *line, int *answer, void **running, pid_t *pid);
extern int forkless_preload_system_end(void *running);
extern void forkless_preload_system_cancelled(void *running);

int system(const char *line) {
    int answer;
    void *running;
    pid_t pid;
    system_function *of_libc = forkless_preload_system_of_libc();
    if (of_libc)
        return of_libc(line);
    if (!forkless_preload_system_begin(line, &answer, &running, &pid))
        return answer;
    pthread_cleanup_push(forkless_preload_system_cancelled, running);
    await_end(pid);
    pthread_cleanup_pop(0);
    return forkless_preload_system_end(running);
}

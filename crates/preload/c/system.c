/* system(3). It is C because a thread may be cancelled while it waits: its frames are then unwound, and must not
 * include Rust frames. */

#include "wait.h"
#include <pthread.h>

typedef int system_function(const char *line);

/* In src/system.rs. None of these is a cancellation point. */
extern int forkless_preload_system_begin(const char *line, int *answer, void **running, pid_t *pid, system_function **of_libc);
extern int forkless_preload_system_end(void *running);
extern void forkless_preload_system_cancelled(void *running);

int system(const char *line) {
    int answer, cancel;
    void *running;
    pid_t pid;
    system_function *of_libc = NULL;
    /* A thread that can be cancelled at any point is cancelled while it waits: then there is something that ends the program. */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    if (forkless_preload_system_begin(line, &answer, &running, &pid, &of_libc)) {
        pthread_cleanup_push(forkless_preload_system_cancelled, running);
        pthread_setcancelstate(cancel, NULL);
        await_end(pid);
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
        pthread_cleanup_pop(0);
        answer = forkless_preload_system_end(running);
    }
    pthread_setcancelstate(cancel, NULL);
    return of_libc ? of_libc(line) : answer;
}

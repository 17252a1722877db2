/* pclose(3) and fclose(3), which are the same function in glibc. They are C because a thread may be cancelled while
 * libc's fclose writes buffered data: its frames are then unwound, and must not include Rust frames. */

#include "wait.h"
#include <pthread.h>
#include <stdio.h>

typedef int close_function(FILE *stream);

/* In src/popen.rs. None of these is a cancellation point. */
extern close_function *forkless_preload_pclose_of_libc(void);
extern close_function *forkless_preload_fclose_of_libc(void);
extern void *forkless_preload_taken(FILE *stream, pid_t *pid);
extern int forkless_preload_closed(void *taken, int unwritten);
extern void forkless_preload_left(void *taken);

static int close_and_reap(FILE *stream, void *taken, pid_t pid) {
    int saved = errno, cancel, unwritten;
    /* libc's fclose may wait for ever until the program reads. If the thread is cancelled, the stream stays open. */
    pthread_cleanup_push(forkless_preload_left, taken);
    unwritten = forkless_preload_fclose_of_libc()(stream) == 0 ? 0 : errno;
    pthread_cleanup_pop(0);
    errno = saved;
    /* As in glibc, the wait for the program is no cancellation point. */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    await_end(pid);
    int answer = forkless_preload_closed(taken, unwritten);
    pthread_setcancelstate(cancel, NULL);
    return answer;
}

int pclose(FILE *stream) {
    pid_t pid;
    void *taken = forkless_preload_taken(stream, &pid);
    return taken ? close_and_reap(stream, taken, pid) : forkless_preload_pclose_of_libc()(stream);
}

int fclose(FILE *stream) {
    pid_t pid;
    void *taken = forkless_preload_taken(stream, &pid);
    return taken ? close_and_reap(stream, taken, pid) : forkless_preload_fclose_of_libc()(stream);
}

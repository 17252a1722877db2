/* pclose(3) and fclose(3), which are the same function in glibc. They are C because a thread may be cancelled while
 * libc's fclose writes buffered data: its frames are then unwound, and must not include Rust frames. */

#include <stddef.h>
#include <stdio.h>

typedef int close_function(FILE *stream);

/* In src/popen.rs. None of these is a cancellation point. */
extern close_function *forkless_preload_pclose_of_libc(void);
extern close_function *forkless_preload_fclose_of_libc(void);
extern void *forkless_preload_taken(FILE *stream);
extern int forkless_preload_closed(FILE *stream, void *taken);

int pclose(FILE *stream) {
    void *taken = forkless_preload_taken(stream);
    return taken ? forkless_preload_closed(stream, taken) : forkless_preload_pclose_of_libc()(stream);
}

int fclose(FILE *stream) {
    void *taken = forkless_preload_taken(stream);
    return taken ? forkless_preload_closed(stream, taken) : forkless_preload_fclose_of_libc()(stream);
}

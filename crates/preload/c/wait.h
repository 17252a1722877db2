/* A wait during which signal handlers run, and none of this library's locks is held. */

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/wait.h>

/* Waits until the child has ended. WNOWAIT: it is reaped later, by who knows how it was started, and who also sees any error of
 * this wait. A cancellation point. */
static inline void await_end(pid_t pid) {
    int saved = errno;
    siginfo_t ended;
    while (waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOWAIT | __WALL) < 0 && errno == EINTR) {
    }
    errno = saved;
}

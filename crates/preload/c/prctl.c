/* prctl(2). Only PR_SET_DUMPABLE is special: while a launch keeps the memory non-dumpable, the program's value is
 * recorded and takes effect when that launch is over. All other options are a plain system call, as in libc. */

#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* In src/dumpable.rs. */
extern int forkless_preload_set_dumpable(int dumpable);

int prctl(int option, ...) {
    unsigned long given[4];
    va_list arguments;
    va_start(arguments, option);
    for (int n = 0; n < 4; n++)
        given[n] = va_arg(arguments, unsigned long);
    va_end(arguments);
    /* The kernel checks the whole argument; for values other than 0 and 1 it returns the error itself. */
    if (option == PR_SET_DUMPABLE && given[0] <= 1)
        return forkless_preload_set_dumpable((int)given[0]);
    return (int)syscall(SYS_prctl, option, given[0], given[1], given[2], given[3]);
}

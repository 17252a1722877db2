/* small_pages PROGRAM ARGS...: runs it without transparent huge pages, which would make a fork of a large heap look cheap. */
#include <err.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc < 2) errx(2, "usage: small_pages PROGRAM ARGS...");
    if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0) err(1, "prctl");
    execvp(argv[1], argv + 1);
    err(127, "%s", argv[1]);
}

/* Launches in a constructor, before main, and in a destructor, after it. */

#include "common.h"

__attribute__((constructor)) static void before(void) {
    char text[16] = "";
    FILE *stream = popen("echo before", "r");
    if (!stream || !fgets(text, sizeof text, stream) || pclose(stream) || system("exit 4") != 4 << 8)
        _exit(77);
}

static void after(void) {
    say("after: %s\n", status_words(system("exit 5")));
}

int main(int argc, char **argv) {
    begin(argc, argv);
    atexit(after);
    say("main: %s\n", status_words(system("exit 6")));
    return 0;
}

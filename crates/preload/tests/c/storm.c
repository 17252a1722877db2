/* Signals are sent to the whole group while children are created. Each child is started, and may be killed, but none
 * is lost. `storm FACTS REPORT COUNT` */

#include "common.h"

static volatile int ends;

static void *storm(void *nothing) {
    while (!ends)
        kill(0, SIGTERM), kill(0, SIGURG);
    return nothing;
}

static void ignored(int signal) {
    (void)signal;
}

int main(int argc, char **argv) {
    begin(argc, argv);
    setpgid(0, 0);
    struct sigaction action = {.sa_handler = ignored, .sa_flags = SA_RESTART};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGURG, &action, NULL);
    pthread_t thread;
    pthread_create(&thread, NULL, storm, NULL);
    int failed = 0, lost = 0, killed = 0, count = atoi(argv[3]);
    char *words[] = {"sleep", "0.001", NULL};
    for (int n = 0; n < count; n++) {
        pid_t pid;
        int status;
        if (posix_spawnp(&pid, "sleep", NULL, NULL, words, environ))
            failed++;
        else if (waitpid(pid, &status, 0) != pid)
            lost++;
        else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM)
            killed++;
    }
    for (int n = 0; n < count / 4; n++) {
        int status = system("sleep 0.001");
        if (status && (!WIFSIGNALED(status) || WTERMSIG(status) != SIGTERM) && status != (128 + SIGTERM) << 8)
            failed++;
        FILE *stream = popen("sleep 0.001", "r");
        status = stream ? pclose(stream) : -1;
        if (status && (!WIFSIGNALED(status) || WTERMSIG(status) != SIGTERM) && status != (128 + SIGTERM) << 8)
            failed++;
    }
    ends = 1;
    pthread_join(thread, NULL);
    say("failed %d, lost %d, killed: %d\n", failed, lost, killed > 0);
    return 0;
}

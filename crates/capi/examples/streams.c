/* The simple calls: a command line, a stream in each direction, and a pid for waitpid(2). */
#include <forkless.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

int main(void) {
    char line[64];
    char word_sh[] = "sh", word_c[] = "-c", word_exit[] = "exit 3", word_sort[] = "sort";
    char *sh[] = {word_sh, word_c, word_exit, NULL}, *sort[] = {word_sort, NULL};
    FILE *stream, *to, *from;
    int status;
    pid_t pid;

    stream = forkless_popen("ls / | wc -l", "r");
    if (stream == NULL || fgets(line, sizeof line, stream) == NULL) return EXIT_FAILURE;
    printf("%d names in /\n", atoi(line));
    if (forkless_pclose(stream) != 0) return EXIT_FAILURE;

    if (forkless_popen2(sort, FORKLESS_STDERR_INHERIT, &to, &from) < 0) return EXIT_FAILURE;
    fputs("b\na\n", to);
    fclose(to);
    if (fgets(line, sizeof line, from) == NULL || strcmp(line, "a\n") != 0) return EXIT_FAILURE;
    if (forkless_pclose(from) < 0) return EXIT_FAILURE;

    pid = forkless_spawnp("sh", sh, NULL);
    if (pid < 0 || waitpid(pid, &status, 0) != pid || WEXITSTATUS(status) != 3) return EXIT_FAILURE;
    return forkless_system("test -d /") == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* A job that leaves a mark: adds a line with its last argument to the file in the variable MARKS, by one write. The count of the
 * lines is the count of the jobs that ran. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    char line[128];
    const char *marks = getenv("MARKS");
    if (marks == NULL || argc < 2 || strlen(argv[argc - 1]) > 100) return 1;
    int length = snprintf(line, sizeof line, "%s\n", argv[argc - 1]);
    int file = open(marks, O_WRONLY | O_APPEND);
    return file >= 0 && write(file, line, (size_t)length) == length ? 0 : 1;
}

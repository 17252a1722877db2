/* How perl interprets a command that is a single string: perlfunc, "exec" and "system". This file does not include perl's headers, so
 * that it can be tested without perl.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "line.h"

#include <string.h>

#define BLANKS " \t\n\v\f\r"
#define DIGITS_AND_LETTERS "0123456789_ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

static int is_blank(char c) {
    return c != '\0' && strchr(BLANKS, c) != NULL;
}

/* Whether this '>' is that of a " 2>&1" at the end of the line. */
static int is_merge(const char *start, const char *at) {
    if (strncmp(at, ">&1", 3) != 0 || at - start < 2 || at[-1] != '2' || !is_blank(at[-2])) return 0;
    return at[3 + strspn(at + 3, BLANKS)] == '\0';
}

static int needs_shell(const char *text) {
    /* ". file", "exec program" and "NAME=value program" need a shell. */
    if (text[0] == '.' && is_blank(text[1])) return 1;
    if (strncmp(text, "exec", 4) == 0 && is_blank(text[4])) return 1;
    return text[strspn(text, DIGITS_AND_LETTERS)] == '=';
}

int line_split(char *text, char **words) {
    int kind = LINE_WORDS;
    text += strspn(text, BLANKS);
    if (needs_shell(text)) return LINE_SHELL;
    /* As in perl, the first shell metacharacter decides. */
    char *at = strpbrk(text, "$&*(){}[]'\";\\|?<>~`\n");
    if (at != NULL && *at == '\n' && at[1] == '\0') {
        *at = '\0';
    } else if (at != NULL && is_merge(text, at)) {
        kind = LINE_MERGED;
        at[-2] = '\0';
    } else if (at != NULL) {
        return LINE_SHELL;
    }
    size_t count = 0;
    char *rest;
    for (char *word = strtok_r(text, BLANKS, &rest); word != NULL; word = strtok_r(NULL, BLANKS, &rest)) words[count++] = word;
    words[count] = NULL;
    return kind;
}

/* How perl interprets a command that is a single string.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef LINE_H
#define LINE_H

enum { LINE_SHELL, LINE_WORDS, LINE_MERGED };

/* LINE_SHELL: the line needs /bin/sh -c. LINE_WORDS: the line is a program and its arguments. The text is cut into words in place, and
 * `words` receives them and a null pointer; it must have room for half as many entries as the text has bytes, and two more.
 * LINE_MERGED: the same, and standard error goes to standard output. */
int line_split(char *text, char **words);

#endif

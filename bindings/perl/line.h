/* What perl does with a command that is one string. SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef LINE_H
#define LINE_H

enum { LINE_SHELL, LINE_WORDS, LINE_MERGED };

/* LINE_SHELL: a line for /bin/sh -c. LINE_WORDS: the words of a program, cut out of the text and put into `words`, for which there must be
 * room for half as many as the text has bytes, and two more; a null pointer ends them. LINE_MERGED: the same, and standard error goes
 * where standard output does. */
int line_split(char *text, char **words);

#endif

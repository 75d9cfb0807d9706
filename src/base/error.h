/* SPDX-License-Identifier: Apache-2.0 */
/* error.h: the text of a thread's last failed call, for penstock_error() and for who names a fault to its
 * caller. */
#ifndef PST_ERROR_H
#define PST_ERROR_H

/* Keeps the text and returns @result, so that a failure is one statement; the text so far may be among
 * what the new one is made of. */
int pst_fail(int result, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *pst_error_text(void);
/* Replaces control characters: a key or an argument that is quoted makes no line of its own, and says nothing
 * to a terminal. */
void pst_printable(char *line);

#endif

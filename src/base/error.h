/* error.h: the text of a thread's last failed call, for penstock_error(). */
#ifndef PST_ERROR_H
#define PST_ERROR_H

/* Keeps the text and returns @result, so that a failure is one statement. */
int pst_fail(int result, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *pst_error_text(void);

#endif

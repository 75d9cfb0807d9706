/* check.h: cmocka with what it needs in front of it. */
#ifndef E2E_CHECK_H
#define E2E_CHECK_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* A result with its name in the message. */
#define assert_result(call, wanted) e2e_assert_result((call), (wanted), #call, __FILE__, __LINE__)

void e2e_assert_result(int got, int wanted, const char *call, const char *file, int line);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* check.h: results of calls with their names, for cmocka. */
#ifndef E2E_CHECK_H
#define E2E_CHECK_H

#include "lib/cm.h"

#include <errno.h>

/* A result with its name in the message. */
#define assert_result(call, wanted) e2e_assert_result((call), (wanted), #call, __FILE__, __LINE__)

void e2e_assert_result(int got, int wanted, const char *call, const char *file, int line);

#endif

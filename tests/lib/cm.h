/* SPDX-License-Identifier: Apache-2.0 */
/* cm.h: what cmocka wants included before it, once; and how patient a test has to be. */
#ifndef PST_TEST_CM_H
#define PST_TEST_CM_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

/* How many times as long as in a plain build things may take. */
static inline unsigned slowness(void)
{
    const char *text = getenv("TEST_SLOWNESS");

    return text ? (unsigned)atoi(text) : 1;
}

#endif

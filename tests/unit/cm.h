/* cm.h: what cmocka wants included before it, once. */
#ifndef PST_TEST_CM_H
#define PST_TEST_CM_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif

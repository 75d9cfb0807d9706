/* SPDX-License-Identifier: Apache-2.0 */
/* wire_bytes.h: random bytes, the same in every run, of which keys and values are cut. */
#ifndef PST_TEST_WIRE_BYTES_H
#define PST_TEST_WIRE_BYTES_H

#include "lib/cm.h"

#include "base/base.h"

static uint8_t bytes[16 << 10]; /* keys, attributes and values are cut from here */

static inline uint64_t random_next(void)
{
    static uint64_t x = 0x9e3779b97f4a7c15;

    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return x;
}

static inline int fill_bytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)random_next();
    return 0;
}

#endif

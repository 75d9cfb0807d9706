/* SPDX-License-Identifier: Apache-2.0 */
/* names.h: keys of figures about a directory, by number, and chance. */
#ifndef PST_BENCH_NAMES_H
#define PST_BENCH_NAMES_H

#include "base/hash.h"

static inline uint64_t draw(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static inline struct pst_hash128 name(uint64_t key)
{
    return pst_hash128(&key, sizeof(key), 7);
}

#endif

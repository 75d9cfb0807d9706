/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz.h: what the fuzzers share: taking an input apart. Whatever a decoder is given lies in memory of
 * exactly its size, so that the sanitizer sees the first byte behind it.
 */
#ifndef PST_FUZZ_H
#define PST_FUZZ_H

#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

struct fuzz {
    const uint8_t *at;
    size_t left;
};

/* The next @bytes as a little-endian number; zeros behind the end. */
static inline uint64_t fuzz_number(struct fuzz *in, size_t bytes)
{
    uint64_t n = 0;

    for (size_t i = 0; i < bytes && in->left > 0; i++, in->left--)
        n |= (uint64_t)*in->at++ << 8 * i;
    return n;
}

static inline uint32_t fuzz_below(struct fuzz *in, uint32_t limit)
{
    return (uint32_t)fuzz_number(in, limit > 256 ? 4 : 1) % limit;
}

/* A copy of the next bytes, @bytes at the most. Freed by the caller. */
static inline uint8_t *fuzz_take(struct fuzz *in, size_t bytes, size_t *taken)
{
    size_t n = pst_min(bytes, in->left);
    uint8_t *copy = malloc(n > 0 ? n : 1);

    pst_assert(copy);
    memcpy(copy, in->at, n);
    in->at += n;
    in->left -= n;
    *taken = n;
    return copy;
}

/* The same as text. */
static inline char *fuzz_text(struct fuzz *in, size_t bytes)
{
    size_t n = pst_min(bytes, in->left);
    char *copy = malloc(n + 1);

    pst_assert(copy);
    memcpy(copy, in->at, n);
    copy[n] = '\0';
    in->at += n;
    in->left -= n;
    return copy;
}

#endif

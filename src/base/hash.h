/* SPDX-License-Identifier: Apache-2.0 */
/* hash.h: the only user of xxhash and of ISA-L's CRCs. */
#ifndef PST_HASH_H
#define PST_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* XXH3, 64 bits, keyed by @seed. */
uint64_t pst_hash64(const void *data, size_t len, uint64_t seed);

struct pst_hash128 {
    uint64_t low, high;
};

/* XXH3, 128 bits, keyed by @seed: for tables that do not keep what they are asked for. */
struct pst_hash128 pst_hash128(const void *data, size_t len, uint64_t seed);

static inline bool pst_hash128_equal(const struct pst_hash128 *a, const struct pst_hash128 *b)
{
    return a->low == b->low && a->high == b->high;
}

/* crc32c (Castagnoli) of @data; pass a previous result as @crc to go on, 0 to begin. */
uint32_t pst_crc32c(uint32_t crc, const void *data, size_t len);
/* The CRC-32 of zlib, in the same way. */
uint32_t pst_crc32(uint32_t crc, const void *data, size_t len);
/* CRC-64/NVME, in the same way. */
uint64_t pst_crc64nvme(uint64_t crc, const void *data, size_t len);

/* Fills @out with bytes from the kernel's random generator; aborts where there is none. */
void pst_random(void *out, size_t len);

#endif

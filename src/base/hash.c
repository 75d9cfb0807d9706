/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"
#include "base/base.h"

#include <isa-l/crc.h>
#include <sys/random.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t pst_hash64(const void *data, size_t len, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, len, seed);
}

struct pst_hash128 pst_hash128(const void *data, size_t len, uint64_t seed)
{
    XXH128_hash_t hash = XXH3_128bits_withSeed(data, len, seed);

    return (struct pst_hash128){.low = hash.low64, .high = hash.high64};
}

uint32_t pst_crc32c(uint32_t crc, const void *data, size_t len)
{
    pst_assert(data || len == 0);
    /* ISA-L takes an int length, does not invert, and never writes through its non-const pointer. */
    const size_t chunk_bytes = 1u << 30;
    const unsigned char *at = data;

    crc = ~crc;
    while (len > 0) {
        size_t n = len < chunk_bytes ? len : chunk_bytes;

        crc = crc32_iscsi((unsigned char *)(uintptr_t)at, (int)n, crc);
        at += n;
        len -= n;
    }
    return ~crc;
}

void pst_random(void *out, size_t len)
{
    size_t done = 0;

    while (done < len) {
        ssize_t n = getrandom((char *)out + done, len - done, 0);

        pst_assert(n > 0 || errno == EINTR);
        done += n > 0 ? (size_t)n : 0;
    }
}

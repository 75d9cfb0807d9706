/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"
#include "base/base.h"

#include <isa-l/crc.h>
#include <pthread.h>
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

/* ISA-L takes an int length, and never writes through its non-const pointer. */
#define CRC_BYTES_AT_ONCE ((size_t)1 << 30)

uint32_t pst_crc32c(uint32_t crc, const void *data, size_t len)
{
    const unsigned char *at = data;

    pst_assert(data || len == 0);
    crc = ~crc; /* ISA-L does not invert this one */
    while (len > 0) {
        size_t n = pst_min(len, CRC_BYTES_AT_ONCE);

        crc = crc32_iscsi((unsigned char *)(uintptr_t)at, (int)n, crc);
        at += n;
        len -= n;
    }
    return ~crc;
}

uint32_t pst_crc32(uint32_t crc, const void *data, size_t len)
{
    pst_assert(data || len == 0);
    return len ? crc32_gzip_refl(crc, data, len) : crc;
}

/* ---- CRC-64/NVME, eight bytes at a time: ISA-L has it from 2.31 on ---- */

enum { CRC64_BYTES_AT_ONCE = 8 };

static uint64_t crc64_table[CRC64_BYTES_AT_ONCE][256];

static void crc64_fill(void)
{
    const uint64_t polynomial = 0x9a6c9329ac4bc9b5u; /* its bits from the last to the first */

    for (uint32_t i = 0; i < 256; i++) {
        uint64_t crc = i;

        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? polynomial : 0);
        crc64_table[0][i] = crc;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int k = 1; k < CRC64_BYTES_AT_ONCE; k++)
            crc64_table[k][i] = crc64_table[k - 1][i] >> 8 ^ crc64_table[0][crc64_table[k - 1][i] & 255];
}

uint64_t pst_crc64nvme(uint64_t crc, const void *data, size_t len)
{
    static pthread_once_t filled = PTHREAD_ONCE_INIT;
    const uint8_t *at = data;

    pst_assert(data || len == 0);
    pthread_once(&filled, crc64_fill);
    crc = ~crc;
    for (; len >= CRC64_BYTES_AT_ONCE; len -= CRC64_BYTES_AT_ONCE, at += CRC64_BYTES_AT_ONCE) {
        uint64_t word, next = 0;

        memcpy(&word, at, sizeof(word)); /* little-endian, as all that we build for */
        word ^= crc;
        for (int k = 0; k < CRC64_BYTES_AT_ONCE; k++)
            next ^= crc64_table[CRC64_BYTES_AT_ONCE - 1 - k][word >> 8 * k & 255];
        crc = next;
    }
    for (; len > 0; len--)
        crc = crc >> 8 ^ crc64_table[0][(crc ^ *at++) & 255];
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

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chunk.h: files cut into chunks: at every 64 KiB, which is quick, and finds what was changed in place; or
 * where their content says, so that bytes that were put in or taken out move no cut but those near them. And
 * the digests by which chunks are known. Any thread.
 *
 * A digest is XXH3 of 128 bits, keyed anew for each transfer, as both sides compute it of their own bytes:
 * whoever makes a file does not know the key, and cannot make two chunks with one digest. SHA-256 would cost
 * half of a transfer's time.
 */
#ifndef PST_FILES_CHUNK_H
#define PST_FILES_CHUNK_H

#include "base/base.h"
#include "base/hash.h"

enum {
    PST_CHUNK_BYTES = 64 << 10, /* of one that is cut by its place */
    PST_CHUNK_BYTES_MIN = 16 << 10,
    PST_CHUNK_BYTES_MAX = 256 << 10, /* on the average some 80 KiB */
    PST_DIGEST_BYTES = 16,
};

struct pst_digest {
    uint8_t bytes[PST_DIGEST_BYTES];
};

/* @key: of the transfer. */
static inline void pst_digest_of(const void *data, size_t bytes, uint64_t key, struct pst_digest *out)
{
    struct pst_hash128 hash = pst_hash128(data, bytes, key);

    _Static_assert(sizeof(hash) == sizeof(*out), "a digest has 128 bits");
    memcpy(out->bytes, &hash, sizeof(hash));
}

static inline bool pst_digest_equal(const struct pst_digest *a, const struct pst_digest *b)
{
    return memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

/* How long the chunk is that begins at @data. If fewer than PST_CHUNK_BYTES_MAX bytes are given, the file
 * ends behind them. Return: 1 to @bytes. */
size_t pst_chunk_cut(const uint8_t *data, size_t bytes);

/* A chunk of a file; @data: borrowed during the call. Return: 0, or what ends the reading. */
typedef int pst_chunk_each(void *ctx, uint64_t at, const uint8_t *data, size_t bytes);

/* Reads a file of @bytes and calls @each for its chunks in order. Return: 0, -ESTALE it is shorter, -ENOMEM,
 * -errno; what @each returned, if not 0. */
int pst_chunks_of(int fd, uint64_t bytes, bool by_content, pst_chunk_each *each, void *ctx);

#endif

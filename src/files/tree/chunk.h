/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chunk.h: files cut into chunks: at every 64 KiB, which is quick, and finds what was changed in place; or
 * where their content says, so that bytes that were put in or taken out move no cut but those near them. And
 * the digests by which chunks are known. Any thread.
 *
 * A digest is Poly1305 under a random key, new for each transfer. Whoever makes a file does not know the key,
 * and two chunks of theirs have one digest with a chance of 2^-89 at the most, however they choose the bytes
 * (Bernstein, "The Poly1305-AES message-authentication code", 2005, theorem 3.3). It runs at 10 GB/s a core
 * here, SHA-256 at 1.8.
 */
#ifndef PST_FILES_CHUNK_H
#define PST_FILES_CHUNK_H

#include "base/base.h"

enum {
    PST_CHUNK_BYTES = 64 << 10, /* of one that is cut by its place */
    PST_CHUNK_BYTES_MIN = 16 << 10,
    PST_CHUNK_BYTES_MAX = 256 << 10, /* on the average some 80 KiB */
    PST_DIGEST_BYTES = 16,
};

struct pst_digest {
    uint8_t bytes[PST_DIGEST_BYTES];
};

enum { PST_DIGEST_KEY_BYTES = 32 };

/* Makes the digests of a transfer. One thread. */
struct pst_digester;

/* Return: NULL without memory. */
struct pst_digester *pst_digester_open(const uint8_t key[PST_DIGEST_KEY_BYTES]);
void pst_digest_of(struct pst_digester *digester, const void *data, size_t bytes, struct pst_digest *out);
/* Another one for the same transfer. Return: NULL without memory. */
struct pst_digester *pst_digester_copy(const struct pst_digester *digester);
/* Returns NULL. */
struct pst_digester *pst_digester_close(struct pst_digester *digester);

static inline bool pst_digest_equal(const struct pst_digest *a, const struct pst_digest *b)
{
    return memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

/* Whether a hole can stand for them. */
static inline bool pst_is_zeros(const uint8_t *data, size_t bytes)
{
    return data[0] == 0 && memcmp(data, data + 1, bytes - 1) == 0;
}

/* For names, and for what is kept. */
enum {
    PST_SHA256_BYTES = 32,
    PST_SHA256_TEXT_BYTES = 2 * PST_SHA256_BYTES + 1, /* in hexadecimal digits, with a NUL */
};

void pst_sha256(const void *data, size_t bytes, uint8_t out[PST_SHA256_BYTES]);
void pst_sha256_print(const uint8_t sha256[PST_SHA256_BYTES], char out[PST_SHA256_TEXT_BYTES]);

/* How long the chunk is that begins at @data. If fewer than PST_CHUNK_BYTES_MAX bytes are given, the file
 * ends behind them. Return: 1 to @bytes. */
size_t pst_chunk_cut(const uint8_t *data, size_t bytes);

/* Reads bytes of a file. Return: 0, -ESTALE it is shorter, -errno. */
int pst_read_at(int fd, uint64_t at, void *into, size_t bytes);

/* Bytes of a file; @data: borrowed during the call. Return: 0, or what ends the reading. */
typedef int pst_chunk_each(void *ctx, uint64_t at, const uint8_t *data, size_t bytes);

/* Reads a file of @bytes and calls @each for its chunks in order. Return: 0, -ESTALE it is shorter, -ENOMEM,
 * -errno; what @each returned, if not 0. */
int pst_chunks_of(int fd, uint64_t bytes, bool by_content, pst_chunk_each *each, void *ctx);

enum {
    PST_READ_THREADS = 2,     /* more would wait for memory */
    PST_READ_BYTES = 1 << 20, /* of one turn: they are still in the cache when they are written elsewhere */
};

/* Reads a file of @bytes on several threads. Each takes turns of PST_READ_BYTES, the last one shorter, and
 * calls @each for a turn, with an element of @ctxs that is the thread's own. The caller's thread has the
 * first one. Return: as above. */
int pst_read_in_turns(int fd, uint64_t bytes, pst_chunk_each *each, void *const ctxs[PST_READ_THREADS]);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* chunk.c: a hash of the last bytes, which is rolled over the content; where its high bits are zero is a cut.
 */
#include "files/tree/chunk.h"

#include "base/hex.h"

#include <openssl/evp.h>
#include <pthread.h>
#include <stdatomic.h>

enum {
    CUT_BITS = 16, /* a cut in 64 KiB behind the least size */
    READ_BYTES = 4 << 20,
};

_Static_assert(PST_CHUNK_BYTES_MIN <= PST_CHUNK_BYTES && PST_CHUNK_BYTES <= PST_CHUNK_BYTES_MAX,
               "a chunk that is cut by its place is one that is cut by content could be");
_Static_assert((int)READ_BYTES >= (int)PST_CHUNK_BYTES_MAX, "what is read at once has a whole chunk");

static uint64_t
    gear[256]; /* a number for each byte: any that look random, as long as all sides have the same */
static pthread_once_t once = PTHREAD_ONCE_INIT;

struct pst_digester {
    EVP_MAC *poly1305;
    EVP_MAC_CTX *ctx;
    uint8_t key[PST_DIGEST_KEY_BYTES];
};

struct pst_digester *pst_digester_open(const uint8_t key[PST_DIGEST_KEY_BYTES])
{
    struct pst_digester *digester = calloc(1, sizeof(*digester));

    if (!digester)
        return NULL;
    memcpy(digester->key, key, sizeof(digester->key));
    digester->poly1305 = EVP_MAC_fetch(NULL, "POLY1305", NULL);
    digester->ctx = digester->poly1305 ? EVP_MAC_CTX_new(digester->poly1305) : NULL;
    return digester->ctx ? digester : pst_digester_close(digester);
}

void pst_digest_of(struct pst_digester *digester, const void *data, size_t bytes, struct pst_digest *out)
{
    size_t written = 0;

    pst_assert(EVP_MAC_init(digester->ctx, digester->key, sizeof(digester->key), NULL) == 1);
    pst_assert(EVP_MAC_update(digester->ctx, data, bytes) == 1);
    pst_assert(EVP_MAC_final(digester->ctx, out->bytes, &written, sizeof(out->bytes)) == 1);
    pst_assert(written == sizeof(out->bytes));
}

struct pst_digester *pst_digester_copy(const struct pst_digester *digester)
{
    return pst_digester_open(digester->key);
}

struct pst_digester *pst_digester_close(struct pst_digester *digester)
{
    if (!digester)
        return NULL;
    EVP_MAC_CTX_free(digester->ctx);
    EVP_MAC_free(digester->poly1305);
    explicit_bzero(digester->key, sizeof(digester->key));
    free(digester);
    return NULL;
}

void pst_sha256(const void *data, size_t bytes, uint8_t out[PST_SHA256_BYTES])
{
    pst_assert(EVP_Digest(data, bytes, out, NULL, EVP_sha256(), NULL) == 1);
}

void pst_sha256_print(const uint8_t sha256[PST_SHA256_BYTES], char out[PST_SHA256_TEXT_BYTES])
{
    pst_hex_print(sha256, PST_SHA256_BYTES, out);
}

static void chunk_prepare(void)
{
    uint64_t state = 0x70656e73746f636bull;

    for (size_t i = 0; i < pst_count_of(gear); i++) { /* splitmix64 */
        uint64_t x = state += 0x9e3779b97f4a7c15ull;

        x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
        x = (x ^ x >> 27) * 0x94d049bb133111ebull;
        gear[i] = x ^ x >> 31;
    }
}

size_t pst_chunk_cut(const uint8_t *data, size_t bytes)
{
    size_t end = pst_min(bytes, PST_CHUNK_BYTES_MAX), at = PST_CHUNK_BYTES_MIN;
    uint64_t hash = 0;

    pst_assert(bytes > 0);
    pthread_once(&once, chunk_prepare);
    for (; at < end; at++) {
        hash = (hash << 1) + gear[data[at]];
        if (hash >> (64 - CUT_BITS) == 0)
            return at + 1;
    }
    return end;
}

int pst_read_at(int fd, uint64_t at, void *into, size_t bytes)
{
    size_t done = 0;

    while (done < bytes) {
        ssize_t n = pread(fd, (uint8_t *)into + done, bytes - done, (off_t)(at + done));

        if (n == 0 || (n < 0 && errno != EINTR))
            return n == 0 ? -ESTALE : -errno;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

int pst_chunks_of(int fd, uint64_t bytes, bool by_content, pst_chunk_each *each, void *ctx)
{
    pst_cleanup_free uint8_t *buffer = malloc(READ_BYTES);
    uint64_t base = 0; /* where the buffer's bytes lie in the file */
    size_t kept = 0;   /* bytes that belong to no chunk yet */
    int r = buffer ? 0 : -ENOMEM;

    while (r == 0 && base < bytes) {
        size_t wanted = pst_min(bytes - base - kept, READ_BYTES - kept), cut = 0;

        r = pst_read_at(fd, base + kept, buffer + kept, wanted);
        kept += wanted;
        while (r == 0 && cut < kept && (kept - cut >= PST_CHUNK_BYTES_MAX || base + kept == bytes)) {
            size_t chunk =
                by_content ? pst_chunk_cut(buffer + cut, kept - cut) : pst_min(PST_CHUNK_BYTES, kept - cut);

            r = each(ctx, base + cut, buffer + cut, chunk);
            cut += chunk;
        }
        pst_assert(r != 0 || cut > 0);
        base += cut;
        kept -= cut;
        memmove(buffer, buffer + cut, kept);
    }
    return r;
}

/* ---- on several threads ---- */

struct read_turns {
    int fd;
    uint64_t bytes;
    pst_chunk_each *each;
    atomic_uint_least64_t next; /* where the next turn begins */
    atomic_int result;
};

struct read_thread {
    struct read_turns *turns;
    void *ctx;
};

static void *read_turns_take(void *arg)
{
    const struct read_thread *thread = arg;
    struct read_turns *turns = thread->turns;
    pst_cleanup_free uint8_t *buffer = malloc(PST_READ_BYTES);
    int r = buffer ? 0 : -ENOMEM, none = 0;

    pst_assert(turns->each);
    while (r == 0 && atomic_load(&turns->result) == 0) {
        uint64_t at = atomic_fetch_add(&turns->next, PST_READ_BYTES);
        size_t bytes = at < turns->bytes ? pst_min(PST_READ_BYTES, turns->bytes - at) : 0;

        if (bytes == 0)
            break;
        r = pst_read_at(turns->fd, at, buffer, bytes);
        if (r == 0)
            r = turns->each(thread->ctx, at, buffer, bytes);
    }
    if (r != 0)
        atomic_compare_exchange_strong(&turns->result, &none, r);
    return NULL;
}

int pst_read_in_turns(int fd, uint64_t bytes, pst_chunk_each *each, void *const ctxs[PST_READ_THREADS])
{
    struct read_turns turns = {.fd = fd, .bytes = bytes, .each = each};
    struct read_thread threads[PST_READ_THREADS];
    pthread_t ids[PST_READ_THREADS];
    size_t begun = 1;

    for (size_t i = 0; i < PST_READ_THREADS; i++)
        threads[i] = (struct read_thread){&turns, ctxs[i]};
    while (begun < PST_READ_THREADS && begun * PST_READ_BYTES < bytes &&
           pthread_create(&ids[begun], NULL, read_turns_take, &threads[begun]) == 0)
        begun++; /* without another thread this one takes all turns */
    read_turns_take(&threads[0]);
    for (size_t i = 1; i < begun; i++)
        pst_assert(pthread_join(ids[i], NULL) == 0);
    return atomic_load(&turns.result);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* wanted.c: chunks of a new file, found by their digests. */
#include "files/tree/wanted.h"

void pst_wanted_fini(struct pst_wanted *wanted)
{
    free(wanted->chunks);
    free(wanted->sorted);
    *wanted = (struct pst_wanted){.chunks = NULL};
}

static int wanted_grow(struct pst_wanted *wanted)
{
    uint32_t room = wanted->room ? 2 * wanted->room : 256;
    struct pst_wanted_chunk *grown = realloc(wanted->chunks, room * sizeof(*grown));

    if (!grown)
        return -ENOMEM;
    wanted->chunks = grown;
    wanted->room = room;
    return 0;
}

int pst_wanted_add(struct pst_wanted *wanted, const struct pst_digest *digest, uint32_t bytes,
                   uint64_t file_bytes)
{
    uint64_t left = file_bytes - wanted->bytes;

    pst_assert(!wanted->sorted);
    pst_assert(wanted->bytes <= file_bytes);
    if (bytes == 0 || bytes > left || bytes > PST_CHUNK_BYTES_MAX ||
        (bytes < left && bytes < PST_CHUNK_BYTES_MIN) || wanted->count == PST_WANTED_MAX)
        return -EPROTO;
    if (wanted->count == wanted->room && wanted_grow(wanted) < 0)
        return -ENOMEM;
    pst_assert(wanted->count < wanted->room);
    wanted->chunks[wanted->count++] = (struct pst_wanted_chunk){*digest, wanted->bytes, bytes, false};
    wanted->bytes += bytes;
    return 0;
}

uint64_t pst_wanted_memory(const struct pst_wanted *wanted)
{
    return wanted->room *
           (sizeof(*wanted->chunks) + 2 * sizeof(*wanted->sorted)); /* qsort_r() takes as much */
}

static int wanted_compare(const struct pst_wanted_chunk *chunk, const struct pst_digest *digest,
                          uint32_t bytes)
{
    int order = memcmp(chunk->digest.bytes, digest->bytes, sizeof(digest->bytes));

    return order ? order : (chunk->bytes > bytes) - (chunk->bytes < bytes);
}

static int wanted_order(const void *a, const void *b, void *ctx)
{
    const struct pst_wanted *wanted = ctx;
    const struct pst_wanted_chunk *other = &wanted->chunks[*(const uint32_t *)b];

    return wanted_compare(&wanted->chunks[*(const uint32_t *)a], &other->digest, other->bytes);
}

int pst_wanted_sort(struct pst_wanted *wanted)
{
    pst_assert(!wanted->sorted);
    wanted->sorted = malloc((wanted->count + 1) * sizeof(*wanted->sorted));
    if (!wanted->sorted)
        return -ENOMEM;
    for (uint32_t i = 0; i < wanted->count; i++)
        wanted->sorted[i] = i;
    qsort_r(wanted->sorted, wanted->count, sizeof(*wanted->sorted), wanted_order, wanted);
    return 0;
}

/* The first place in @sorted that is not before the content's. */
static uint32_t wanted_first(const struct pst_wanted *wanted, const struct pst_digest *digest, uint32_t bytes)
{
    uint32_t low = 0, high = wanted->count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (wanted_compare(&wanted->chunks[wanted->sorted[middle]], digest, bytes) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void wanted_mark(struct pst_wanted *wanted, struct pst_wanted_chunk *chunk, bool taken)
{
    pst_assert(chunk->taken != taken);
    pst_assert(wanted->taken < wanted->count + !taken);
    chunk->taken = taken;
    wanted->taken += taken ? 1 : -1u;
    wanted->taken_bytes += taken ? chunk->bytes : -(uint64_t)chunk->bytes;
    pst_assert(wanted->taken_bytes <= wanted->bytes);
}

int pst_wanted_take(struct pst_wanted *wanted, const struct pst_digest *digest, uint32_t bytes,
                    pst_wanted_each *each, void *ctx)
{
    pst_assert(wanted->sorted);
    for (uint32_t i = wanted_first(wanted, digest, bytes); i < wanted->count; i++) {
        struct pst_wanted_chunk *chunk = &wanted->chunks[wanted->sorted[i]];
        int r;

        /* One is taken when all of them will be. */
        if (wanted_compare(chunk, digest, bytes) != 0 || chunk->taken)
            break;
        wanted_mark(wanted, chunk, true); /* another thread may come here while the bytes are written */
        r = each(ctx, chunk->at);
        if (r < 0) {
            wanted_mark(wanted, chunk, false);
            return r;
        }
    }
    return 0;
}

void pst_wanted_bits(const struct pst_wanted *wanted, uint8_t *bits)
{
    pst_assert(wanted->taken <= wanted->count);
    memset(bits, 0, (wanted->count + 7) / 8);
    for (uint32_t i = 0; i < wanted->count; i++)
        bits[i / 8] |= (uint8_t)(!wanted->chunks[i].taken << i % 8);
}

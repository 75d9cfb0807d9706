/* SPDX-License-Identifier: Apache-2.0 */
/* upload.c: bytes cut into chunks, of which the store gets those that it has not. */
#include "cli/pooled/trees_priv.h"

#include "files/tree/chunk.h"

struct upload_chunk {
    char key[PST_POOLED_KEY_BYTES + 1];
    size_t at; /* in the buffer */
    uint32_t bytes;
};

int upload_open(struct upload *u, struct trees *trees, struct trees_lock *lock)
{
    *u = (struct upload){.trees = trees, .lock = lock};
    u->buffer = malloc(TREES_BATCH_BYTES);
    u->chunks = calloc(TREES_BATCH_CHUNKS, sizeof(*u->chunks));
    u->ops = calloc(TREES_BATCH_CHUNKS, sizeof(*u->ops));
    return u->buffer && u->chunks && u->ops ? 0 : trees_fail(trees, -ENOMEM, "out of memory");
}

void upload_close(struct upload *u)
{
    free(u->buffer);
    free(u->chunks);
    free(u->ops);
    *u = (struct upload){.buffer = NULL};
}

/* All chunks are put, whatever is there: their bytes may be others, or their copies few. */
static bool upload_forces(const struct upload *u)
{
    return u->trees->flags & PST_ARRIVAL_FORCE;
}

/* Asks which chunks are there, and moves those that are not to the front. */
static int upload_ask(struct upload *u, uint32_t *missing)
{
    uint32_t count = 0;
    int r;

    *missing = u->count;
    if (upload_forces(u))
        return 0;
    for (uint32_t i = 0; i < u->count; i++)
        penstock_prep(&u->ops[i], PENSTOCK_STAT_KEY, u->chunks[i].key, PST_POOLED_KEY_BYTES);
    r = penstock_batch(u->trees->store, u->ops, u->count);
    if (r < 0)
        return trees_fail_key(u->trees, u->chunks[0].key, r);
    for (uint32_t i = 0; i < u->count; i++) {
        const struct upload_chunk *chunk = &u->chunks[i];

        if (u->ops[i].result < 0 || u->ops[i].result == PENSTOCK_BUSY)
            return trees_fail_key(u->trees, chunk->key, u->ops[i].result);
        if (u->ops[i].result == 0 && u->ops[i].value_bytes != chunk->bytes)
            return trees_fail(u->trees, -EBADMSG,
                              "%s: it has other bytes than its name says; --force puts it anew", chunk->key);
        if (u->ops[i].result == 0)
            u->there += chunk->bytes;
        else
            u->chunks[count++] = *chunk;
    }
    *missing = count;
    return 0;
}

/* A chunk is what its name says, so that it can be put again. */
static int upload_put(struct upload *u, uint32_t count)
{
    for (uint32_t tries = 0; count > 0; tries++) {
        uint32_t again = 0;
        int r;

        for (uint32_t i = 0; i < count; i++) {
            penstock_prep_put(&u->ops[i], u->chunks[i].key, PST_POOLED_KEY_BYTES, u->buffer + u->chunks[i].at,
                              u->chunks[i].bytes);
            u->ops[i].flags = PENSTOCK_CHECKSUM | (upload_forces(u) ? 0 : PENSTOCK_IF_ABSENT);
        }
        r = penstock_batch(u->trees->store, u->ops, count);
        if (r < 0)
            return trees_fail_key(u->trees, u->chunks[0].key, r);
        for (uint32_t i = 0; i < count; i++) {
            const struct upload_chunk *chunk = &u->chunks[i];

            r = u->ops[i].result;
            if (r == PENSTOCK_UNKNOWN && tries < TREES_TRIES)
                u->chunks[again++] = *chunk;
            else if (r != 0 && r != PENSTOCK_EXISTS)
                return trees_fail_key(u->trees, chunk->key, r);
            else
                *(r ? &u->there : &u->sent) += chunk->bytes;
        }
        count = again;
    }
    return 0;
}

static int upload_send(struct upload *u)
{
    uint32_t missing = 0;
    int r = trees_lock_keep(u->trees, u->lock);

    if (r == 0 && u->count)
        r = upload_ask(u, &missing);
    if (r == 0)
        r = upload_put(u, missing);
    u->count = 0;
    u->filled -= u->cut;
    memmove(u->buffer, u->buffer + u->cut, u->filled);
    u->cut = 0;
    if (u->trees->bar)
        pst_progress_show(u->trees->bar, u->sent + u->there);
    return r;
}

/* Cuts one chunk. Of runs of the same bytes, such as zeros, one is sent. */
static int upload_cut_one(struct upload *u)
{
    const uint8_t *data = u->buffer + u->cut;
    struct pst_pooled_chunk chunk = {.bytes = (uint32_t)pst_chunk_cut(data, u->filled - u->cut)};
    struct upload_chunk *next = &u->chunks[u->count];
    int r;

    pst_sha256(data, chunk.bytes, chunk.sha256);
    r = pst_pooled_chunks_add(u->list, &chunk);
    if (r < 0)
        return trees_fail(u->trees, r, "%s: too many chunks", u->trees->name);
    *next = (struct upload_chunk){.at = u->cut, .bytes = chunk.bytes};
    pst_pooled_key(&chunk, next->key);
    u->cut += chunk.bytes;
    if (u->count && strcmp(next[-1].key, next->key) == 0)
        u->there += chunk.bytes;
    else
        u->count++;
    return u->count == TREES_BATCH_CHUNKS ? upload_send(u) : 0;
}

int upload_space(struct upload *u, uint8_t **at, size_t *room)
{
    int r = u->filled == TREES_BATCH_BYTES ? upload_send(u) : 0;

    pst_assert(u->filled < TREES_BATCH_BYTES);
    *at = u->buffer + u->filled;
    *room = TREES_BATCH_BYTES - u->filled;
    return r;
}

int upload_filled(struct upload *u, size_t bytes)
{
    int r = 0;

    u->filled += bytes;
    pst_assert(u->filled <= TREES_BATCH_BYTES);
    while (r == 0 && u->filled - u->cut >= PST_CHUNK_BYTES_MAX)
        r = upload_cut_one(u);
    return r;
}

int upload_cut(struct upload *u)
{
    int r = 0;

    while (r == 0 && u->cut < u->filled)
        r = upload_cut_one(u);
    return r;
}

int upload_end(struct upload *u)
{
    int r = upload_cut(u);

    return r == 0 ? upload_send(u) : r;
}

/* The next of them, as many as a batch has. Return: 1 they are there, 0 not all of them are. */
static int upload_know(struct upload *u, const struct pst_pooled_chunk *chunks, uint32_t count)
{
    uint64_t there = u->there;
    uint32_t missing = 0;
    int r;

    pst_assert(u->count == 0);
    pst_assert(count <= TREES_BATCH_CHUNKS);
    for (uint32_t i = 0; i < count; i++) {
        u->chunks[i] = (struct upload_chunk){.bytes = chunks[i].bytes};
        pst_pooled_key(&chunks[i], u->chunks[i].key);
    }
    u->count = count;
    r = upload_ask(u, &missing);
    u->count = 0;
    u->there = there;
    return r < 0 ? r : missing == 0;
}

int upload_known(struct upload *u, const struct pst_pooled_chunk *chunks, uint32_t count)
{
    int r = upload_end(u); /* its places are needed */

    for (uint32_t i = 0; i < count && r >= 0; i += TREES_BATCH_CHUNKS) {
        r = upload_know(u, chunks + i, (uint32_t)pst_min(count - i, TREES_BATCH_CHUNKS));
        if (r <= 0)
            return r;
    }
    for (uint32_t i = 0; i < count && r >= 0; i++) {
        r = pst_pooled_chunks_add(u->list, &chunks[i]);
        if (r < 0)
            return trees_fail(u->trees, r, "%s: too many chunks", u->trees->name);
        u->there += chunks[i].bytes;
    }
    return r < 0 ? r : 1;
}

int upload_write(void *ctx, const void *data, size_t bytes)
{
    struct upload *u = ctx;
    int r = 0;

    while (r == 0 && bytes) {
        uint8_t *at;
        size_t room;

        r = upload_space(u, &at, &room);
        if (r < 0)
            return r;
        room = pst_min(room, bytes);
        memcpy(at, data, room);
        data = (const uint8_t *)data + room;
        bytes -= room;
        r = upload_filled(u, room);
    }
    return r;
}

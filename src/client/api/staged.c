/* SPDX-License-Identifier: Apache-2.0 */
/*
 * staged.c: puts from and gets into device memory. What fits the buffer is one operation, with the buffer for
 * its data. A larger put is a reservation that is written part by part; a larger get reads ranges of one
 * generation, and begins anew if there is another meanwhile.
 */
#include "client/api/staged_priv.h"

#include "base/hash.h"
#include "gpu/gpu.h"

enum {
    STAGE_BYTES = 4 << 20, /* a buffer for each operation underway */
    TRIES_MAX = 16,        /* of a get, while the value changes */
};

/* A part of a registered memory. */
struct place {
    struct pst_gpu_memory *memory;
    uint64_t offset;
};

/* ---- what is registered ---- */

int pst_staged_add(struct penstock *store, void *addr, size_t bytes)
{
    struct pst_gpu_memory *memory;
    int r = pst_gpu_find(addr, bytes, &memory);

    if (r < 0)
        return r;
    r = -ENOSPC;
    pthread_mutex_lock(&store->staged.lock);
    pst_assert(store->staged.count <= STAGED_MAX);
    if (store->staged.count < STAGED_MAX) {
        store->staged.items[store->staged.count++] = (struct pst_staged_memory){addr, bytes, memory};
        r = 0;
    }
    pthread_mutex_unlock(&store->staged.lock);
    if (r < 0)
        pst_gpu_lose(memory);
    return r;
}

int pst_staged_drop(struct penstock *store, const void *addr)
{
    struct pst_gpu_memory *memory = NULL;

    pthread_mutex_lock(&store->staged.lock);
    pst_assert(store->staged.count <= STAGED_MAX);
    for (uint32_t i = 0; i < store->staged.count && !memory; i++) {
        if (store->staged.items[i].addr != addr)
            continue;
        memory = store->staged.items[i].memory;
        store->staged.items[i] = store->staged.items[--store->staged.count];
    }
    pthread_mutex_unlock(&store->staged.lock);
    if (!memory)
        return -ENOENT;
    pst_gpu_lose(memory);
    return 0;
}

void pst_staged_fini(struct penstock *store)
{
    while (store->staged.count > 0)
        pst_gpu_lose(store->staged.items[--store->staged.count].memory);
    pthread_mutex_destroy(&store->staged.lock);
}

/* Return: false: the bytes are not of such memory. */
static bool place_find(struct penstock *store, const void *data, struct place *out)
{
    const uint8_t *at = data;
    bool found = false;

    pthread_mutex_lock(&store->staged.lock);
    for (uint32_t i = 0; i < store->staged.count && !found; i++) {
        const struct pst_staged_memory *m = &store->staged.items[i];
        const uint8_t *begin = m->addr;

        pst_assert(m->memory);
        found = at >= begin && at < begin + m->bytes;
        if (found)
            *out = (struct place){m->memory, (uint64_t)(at - begin)};
    }
    pthread_mutex_unlock(&store->staged.lock);
    return found;
}

bool pst_op_staged(struct penstock *store, const struct penstock_op *op)
{
    struct place place;
    bool moves = op->code == PENSTOCK_PUT || op->code == PENSTOCK_GET || op->code == PENSTOCK_WRITE_AT;

    if (!moves || op->bytes == 0)
        return false;
    for (uint32_t i = 0; op->iov && i < op->iov_count; i++) {
        if (place_find(store, op->iov[i].iov_base, &place))
            return true;
    }
    return !op->iov && place_find(store, op->data, &place);
}

/* ---- bytes ---- */

static int place_read(const struct place *place, uint64_t at, void *to, uint64_t bytes)
{
    int r;

    pst_assert(bytes > 0);
    pst_assert(bytes <= STAGE_BYTES);
    r = pst_gpu_copy_out(place->memory, place->offset + at, to, bytes);
    return r < 0 ? r : pst_gpu_settle(place->memory->gpu);
}

static int place_write(const struct place *place, uint64_t at, const void *from, uint64_t bytes)
{
    int r;

    pst_assert(bytes <= STAGE_BYTES);
    r = pst_gpu_copy_in(place->memory, place->offset + at, from, bytes);
    return r < 0 ? r : pst_gpu_settle(place->memory->gpu);
}

/* The operation with the buffer for its data. Return: its result. */
static int run_buffered(struct penstock *store, struct penstock_op *op, void *buffer)
{
    void *data = op->data;

    pst_assert(op->bytes <= STAGE_BYTES);
    pst_assert(!op->iov);
    op->data = buffer;
    pst_run(store, op, 1, NULL);
    op->data = data;
    return op->result;
}

/* ---- put ---- */

static int put_reserve(struct penstock *store, const struct penstock_op *op,
                       struct penstock_reservation *reservation, struct penstock_op *out)
{
    const uint32_t kept = PENSTOCK_IF_ABSENT | PENSTOCK_IF_GENERATION | PENSTOCK_TTL;

    pst_assert(op->bytes > STAGE_BYTES);
    *out = (struct penstock_op){0};
    penstock_prep_reserve(out, op->key, op->key_bytes, op->bytes, reservation);
    out->flags = (op->flags & kept) | PENSTOCK_REPLACE;
    out->ttl_ms = op->ttl_ms;
    out->if_generation = op->if_generation;
    out->depth = op->depth;
    out->attrs = op->attrs;
    out->attr_bytes = op->attr_bytes;
    pst_run(store, out, 1, NULL);
    return out->result;
}

static int put_write(struct penstock *store, const struct penstock_op *op, const struct place *place,
                     const struct penstock_reservation *reservation, void *buffer, uint32_t *crc)
{
    int r = 0;

    for (uint64_t at = 0, bytes; r == 0 && at < op->bytes; at += bytes) {
        struct penstock_op write = {0};

        bytes = pst_min(op->bytes - at, STAGE_BYTES);
        r = place_read(place, at, buffer, bytes);
        if (r < 0)
            return r;
        *crc = pst_crc32c(*crc, buffer, bytes);
        penstock_prep_write_at(&write, op->key, op->key_bytes, reservation, at, buffer, bytes);
        pst_run(store, &write, 1, NULL);
        r = write.result;
    }
    return r;
}

static int put_large(struct penstock *store, struct penstock_op *op, const struct place *place, void *buffer)
{
    struct penstock_reservation reservation;
    struct penstock_op last;
    uint32_t crc = 0;
    int r = put_reserve(store, op, &reservation, &last);

    if (r == 0) {
        r = put_write(store, op, place, &reservation, buffer, &crc);
        last = (struct penstock_op){0};
        if (r == 0)
            penstock_prep_reservation_commit(&last, op->key, op->key_bytes, &reservation);
        else
            penstock_prep_reservation_abort(&last, op->key, op->key_bytes, &reservation);
        last.flags = r == 0 ? op->flags & (PENSTOCK_DURABLE | PENSTOCK_CHECKSUM) : 0;
        last.value_crc = last.flags & PENSTOCK_CHECKSUM ? crc : 0;
        pst_run(store, &last, 1, NULL);
        r = r == 0 ? last.result : r;
    }
    op->generation = last.generation;
    op->value_bytes = last.value_bytes;
    op->error_detail = last.error_detail;
    return r;
}

/* A part of a reservation: as many writes as it has parts of the buffer's size. */
static int write_large(struct penstock *store, const struct penstock_op *op, const struct place *place,
                       void *buffer)
{
    int r = 0;

    for (uint64_t at = 0; r == 0 && at < op->bytes; at += STAGE_BYTES) {
        struct penstock_op part = *op;

        part.offset = op->offset + at;
        part.bytes = pst_min(op->bytes - at, STAGE_BYTES);
        part.data = buffer;
        r = place_read(place, at, buffer, part.bytes);
        if (r < 0)
            return r;
        pst_run(store, &part, 1, NULL);
        r = part.result;
    }
    return r;
}

/* ---- get ---- */

/* What the value is, without a byte of it: a range of none. Return: the get's result as far as that goes. */
static int get_head(struct penstock *store, struct penstock_op *op, uint64_t *bytes)
{
    struct penstock_op head = *op;

    if (op->flags & PENSTOCK_RANGE) {
        *bytes = op->bytes;
    } else {
        head.flags = (head.flags & ~(uint32_t)PENSTOCK_EXACT) | PENSTOCK_RANGE;
        head.offset = 0;
    }
    head.bytes = 0;
    head.data = NULL;
    pst_run(store, &head, 1, NULL);
    op->generation = head.generation;
    op->value_bytes = head.value_bytes;
    op->attr_bytes = head.attr_bytes;
    op->error_detail = head.error_detail;
    if (head.result != 0 || op->flags & PENSTOCK_RANGE)
        return head.result;
    *bytes = head.value_bytes;
    if (op->flags & PENSTOCK_EXACT && head.value_bytes != op->bytes)
        return -EMSGSIZE;
    return head.value_bytes > op->bytes ? -ENOBUFS : 0;
}

static int get_part(struct penstock *store, const struct penstock_op *op, const struct place *place,
                    uint64_t at, uint64_t bytes, void *buffer)
{
    struct penstock_op part = {0};

    pst_assert(bytes <= STAGE_BYTES);
    pst_assert(at + bytes <= op->bytes);
    penstock_prep_get_range(&part, op->key, op->key_bytes, (op->flags & PENSTOCK_RANGE ? op->offset : 0) + at,
                            buffer, bytes);
    part.flags |= PENSTOCK_IF_GENERATION;
    part.if_generation = op->generation;
    pst_run(store, &part, 1, NULL);
    return part.result == 0 ? place_write(place, at, buffer, bytes) : part.result;
}

static int get_large(struct penstock *store, struct penstock_op *op, const struct place *place, void *buffer)
{
    uint64_t bytes = 0;
    int r = PENSTOCK_STALE;

    pst_assert(op->code == PENSTOCK_GET);
    for (int tries = 0; r == PENSTOCK_STALE && tries < TRIES_MAX; tries++) {
        r = get_head(store, op, &bytes);
        if (r != 0)
            return r;
        pst_assert(bytes <= op->bytes);
        for (uint64_t at = 0; r == 0 && at < bytes; at += STAGE_BYTES)
            r = get_part(store, op, place, at, pst_min(bytes - at, STAGE_BYTES), buffer);
    }
    return r == PENSTOCK_STALE ? PENSTOCK_BUSY : r;
}

/* ---- both ---- */

static int stage_small(struct penstock *store, struct penstock_op *op, const struct place *place,
                       void *buffer)
{
    bool get = op->code == PENSTOCK_GET;
    int r = get ? 0 : place_read(place, 0, buffer, op->bytes);

    if (r == 0)
        r = run_buffered(store, op, buffer);
    if (r == 0 && get)
        r = place_write(place, 0, buffer,
                        op->flags & PENSTOCK_RANGE ? op->bytes : pst_min(op->value_bytes, op->bytes));
    return r;
}

/* Return: the operation's result. */
static int stage_one(struct penstock *store, struct penstock_op *op)
{
    struct place place;
    pst_cleanup_free void *buffer = NULL;

    pst_assert(op->bytes > 0);
    op->generation = op->value_bytes = 0;
    op->error_detail = (struct penstock_error_detail){0};
    if (op->iov || !place_find(store, op->data, &place))
        return -EOPNOTSUPP;
    if (op->flags & PST_WIRE_OWN_FLAGS)
        return -EINVAL;
    buffer = malloc(pst_min(op->bytes, STAGE_BYTES));
    if (!buffer)
        return -ENOMEM;
    if (op->bytes <= STAGE_BYTES)
        return stage_small(store, op, &place, buffer);
    if (op->code == PENSTOCK_WRITE_AT)
        return write_large(store, op, &place, buffer);
    return op->code == PENSTOCK_PUT ? put_large(store, op, &place, buffer)
                                    : get_large(store, op, &place, buffer);
}

bool pst_staged_run(struct penstock *store, struct penstock_op *ops, size_t count)
{
    size_t first = 0;

    while (first < count && !pst_op_staged(store, &ops[first]))
        first++;
    if (first == count)
        return false;
    for (size_t i = 0; i < count; i++) {
        if (pst_op_staged(store, &ops[i]))
            ops[i].result = stage_one(store, &ops[i]);
        else
            pst_run_given(store, &ops[i], 1);
    }
    return true;
}

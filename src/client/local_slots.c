/* local_slots.c: slots of the embedded store. */
#include "client/local_priv.h"

#include "base/clock.h"

static int reserve_once(struct pst_local *l, uint32_t number, struct penstock_op *op)
{
    struct pst_shard *shard = pst_local_lock(l, number);
    struct pst_put put = pst_local_put(op);
    struct penstock_slot *out = op->data;
    struct pst_answer answer = {0};
    struct pst_slot *slot;
    int r;

    put.lookup = pst_shard_lookup(shard, (struct pst_bytes){op->key, op->key_bytes});
    r = pst_slot_reserve(shard, &l->holders[number], &put, op->flags & PENSTOCK_REPLACE, pst_now_ns(), &slot,
                         &answer);

    pst_assert(out);
    if (r == 0) {
        *out = (struct penstock_slot){
            .handle = pst_slot_handle(slot), .bytes = op->bytes, .tier = PENSTOCK_TIER_DRAM};
        out->location_bytes = (uint16_t)pst_slot_location(shard, slot, out->location);
    }
    op->generation = answer.generation;
    op->value_bytes = answer.value_bytes;
    pst_local_unlock(l, number);
    return r;
}

/* Copies without the lock: nobody else has the slot's memory, and what uses it keeps it. */
static void copy_in(struct pst_local *l, struct pst_shard *shard, uint32_t number,
                    const struct pst_slot *slot, const struct penstock_op *op)
{
    struct iovec piece;

    for (uint64_t at = 0; pst_slot_piece(shard, slot, op->offset + at, op->bytes - at, &piece);
         at += piece.iov_len) {
        bool unlocked = piece.iov_len > COPY_LOCKED_BYTES_MAX;

        pst_assert(piece.iov_len > 0 && piece.iov_len <= op->bytes - at);
        if (unlocked)
            pst_local_unlock(l, number);
        pst_op_copy_out(op, at, piece.iov_base, piece.iov_len);
        if (unlocked)
            pst_local_lock(l, number);
    }
}

static int write_once(struct pst_local *l, uint32_t number, struct penstock_op *op)
{
    struct pst_shard *shard = pst_local_lock(l, number);
    struct pst_slot *slot = pst_slot_find(&l->holders[number], op->if_generation);
    int r = slot ? pst_slot_write(shard, slot, op->offset, op->bytes, pst_now_ns()) : PENSTOCK_MISS;

    if (r == 0) {
        copy_in(l, shard, number, slot, op);
        pst_slot_written(shard, slot, op->offset, op->bytes, true);
    }
    pst_local_unlock(l, number);
    return r;
}

static int commit_once(struct pst_local *l, uint32_t number, struct penstock_op *op)
{
    struct pst_shard *shard = pst_local_lock(l, number);
    struct pst_slot_named named = {.handle = op->if_generation,
                                   .key = {op->key, op->key_bytes},
                                   .location = {op->attrs, op->attrs ? op->attr_bytes : 0},
                                   .bytes = op->bytes,
                                   .crc = (uint32_t)op->offset,
                                   .tier = (uint8_t)pst_min(op->depth, UINT8_MAX),
                                   .checksum = op->flags & PENSTOCK_CHECKSUM,
                                   .durable = op->flags & PENSTOCK_DURABLE};
    struct pst_answer answer = {0};
    int r = pst_slot_commit(shard, &l->holders[number], &named, pst_now_ns(), &answer);

    if (r == 0 && op->flags & PENSTOCK_DURABLE) {
        struct pst_lookup lookup = pst_shard_lookup(shard, named.key);

        r = pst_local_save(l, number, op, pst_shard_find(shard, &lookup));
    }
    op->generation = answer.generation;
    op->value_bytes = answer.value_bytes;
    pst_shard_tick(shard, pst_now_ns());
    pst_local_unlock(l, number);
    return r;
}

int pst_local_slot_op(struct pst_local *l, uint32_t number, struct penstock_op *op)
{
    int tries = 0;
    int r;

    pst_assert(op->code >= PENSTOCK_RESERVE && op->code <= PENSTOCK_SLOT_ABORT);
    if (op->code == PENSTOCK_SLOT_ABORT) {
        pst_slot_abort(pst_local_lock(l, number), &l->holders[number], op->if_generation);
        pst_local_unlock(l, number);
        return 0;
    }
    do
        r = op->code == PENSTOCK_RESERVE      ? reserve_once(l, number, op)
            : op->code == PENSTOCK_SLOT_WRITE ? write_once(l, number, op)
                                              : commit_once(l, number, op);
    while (r == PST_BUSY && pst_local_again(l, op, &tries));
    return r;
}

int pst_local_slot_memory(struct pst_local *l, uint32_t number, uint64_t handle, struct iovec *pieces,
                          int max)
{
    struct pst_shard *shard = pst_local_lock(l, number);
    struct pst_slot *slot = pst_slot_find(&l->holders[number], handle);
    int r = slot ? pst_slot_map(shard, slot, pieces, max) : -ENOENT;

    pst_local_unlock(l, number);
    return r;
}

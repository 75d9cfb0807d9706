/* SPDX-License-Identifier: Apache-2.0 */
/* reservations.c: reservations of the embedded store. */
#include "client/embedded/embedded_priv.h"

#include "base/clock.h"
#include "store/reservation.h"

static int reserve_once(struct pst_local *l, uint32_t number, struct penstock_op *op)
{
    struct pst_shard *shard = pst_local_lock(l, number);
    struct pst_put put = pst_local_put(op);
    struct penstock_reservation *out = op->reservation;
    struct pst_answer answer = {0};
    struct pst_reservation *reservation;
    int r;

    put.lookup = pst_shard_lookup(shard, (struct pst_bytes){op->key, op->key_bytes});
    r = pst_reservation_reserve(shard, &l->holders[number], &put, op->flags & PENSTOCK_REPLACE, pst_now_ns(),
                                &reservation, &answer);

    pst_assert(out);
    if (r == 0) {
        *out = (struct penstock_reservation){
            .handle = pst_reservation_handle(reservation), .bytes = op->bytes, .tier = PENSTOCK_TIER_DRAM};
        out->location_bytes = (uint16_t)pst_reservation_location(shard, reservation, out->location);
        pst_assert(out->location_bytes < sizeof(out->location));
    }
    pst_local_answer(op, &answer);
    pst_local_unlock(l, number);
    return r;
}

/* Copies without the lock: nobody else has the reservation's memory, and what uses it keeps it. */
static void copy_in(struct pst_local *l, struct pst_shard *shard, uint32_t number,
                    const struct pst_reservation *reservation, const struct penstock_op *op)
{
    struct iovec piece;

    for (uint64_t at = 0; pst_reservation_piece(shard, reservation, op->offset + at, op->bytes - at, &piece);
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
    struct pst_reservation *reservation = pst_reservation_find(&l->holders[number], op->handle);
    int r = reservation ? pst_reservation_write(shard, reservation, op->offset, op->bytes, pst_now_ns())
                        : PENSTOCK_MISS;

    if (r == 0) {
        copy_in(l, shard, number, reservation, op);
        pst_reservation_written(shard, reservation, op->offset, op->bytes, true);
    }
    pst_local_unlock(l, number);
    return r;
}

static int commit_once(struct pst_local *l, uint32_t number, struct penstock_op *op)
{
    struct pst_shard *shard = pst_local_lock(l, number);
    struct pst_reservation_named named = {.handle = op->handle,
                                          .key = {op->key, op->key_bytes},
                                          .location = {op->attrs, op->attrs ? op->attr_bytes : 0},
                                          .bytes = op->bytes,
                                          .crc = op->value_crc,
                                          .tier = (uint8_t)pst_min(op->tier, UINT8_MAX),
                                          .checksum = op->flags & PENSTOCK_CHECKSUM,
                                          .durable = op->flags & PENSTOCK_DURABLE};
    struct pst_answer answer = {0};
    int r = pst_reservation_commit(shard, &l->holders[number], &named, pst_now_ns(), &answer);

    if (r == 0 && op->flags & PENSTOCK_DURABLE) {
        struct pst_lookup lookup = pst_shard_lookup(shard, named.key);

        r = pst_local_save(l, number, op, pst_shard_find(shard, &lookup));
    }
    pst_local_answer(op, &answer);
    pst_shard_tick(shard, pst_now_ns());
    pst_local_unlock(l, number);
    return r;
}

int pst_local_reservation_op(struct pst_local *l, uint32_t number, struct penstock_op *op)
{
    int tries = 0;
    int r;

    pst_assert(pst_code_has(op->code, PST_CODE_RESERVATION));
    if (op->code == PENSTOCK_RESERVATION_ABORT) {
        pst_reservation_abort(pst_local_lock(l, number), &l->holders[number], op->handle);
        pst_local_unlock(l, number);
        return 0;
    }
    do
        r = op->code == PENSTOCK_RESERVE    ? reserve_once(l, number, op)
            : op->code == PENSTOCK_WRITE_AT ? write_once(l, number, op)
                                            : commit_once(l, number, op);
    while (r == PST_BUSY && pst_local_again(l, op, &tries));
    return r;
}

int pst_local_reservation_memory(struct pst_local *l, uint32_t number, uint64_t handle, struct iovec *pieces,
                                 int max)
{
    struct pst_shard *shard = pst_local_lock(l, number);
    struct pst_reservation *reservation = pst_reservation_find(&l->holders[number], handle);
    int r = reservation ? pst_reservation_map(shard, reservation, pieces, max) : -ENOENT;

    pst_assert(r <= max);
    pst_local_unlock(l, number);
    return r;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* reservations.c: what the operations on reservations do: reserve, write, commit, abort. Large writes leave a
 * struct pst_write behind, as large puts do. */
#include "node/commit.h"
#include "node/node_priv.h"
#include "node/op.h"
#include "node/op/op_priv.h"

static void answer(struct pst_request *q, int result, const struct pst_answer *answer)
{
    struct pst_wire_result wire = pst_reply_result(result, answer);

    if (result == PST_BUSY)
        pst_workers_relieve(q->worker);
    pst_reply_add(q, &wire);
}

void pst_apply_reserve(struct pst_request *q, uint32_t index)
{
    struct pst_worker *w = q->worker;
    const struct pst_wire_op *op = &w->ops[index];
    struct pst_put put = pst_asked_put(w, index);
    struct {
        struct pst_wire_reservation reservation;
        char location[PST_RESERVATION_LOCATION_BYTES_MAX + 1];
    } data = {.reservation = {.bytes = op->bytes, .tier = PST_TIER_DRAM}};
    struct pst_answer in_the_way = {0};
    struct pst_wire_result wire;
    struct pst_reservation *reservation;
    int r = PST_BUSY;

    if (pst_node_route(w->node, op->key) != w->number)
        r = -ESTALE;
    else if (pst_reply_room(q, index) >= sizeof(data))
        r = pst_reservation_reserve(w->shard, &q->shard_session->holder, &put, op->flags & PST_WIRE_REPLACE,
                                    w->now_ns, &reservation, &in_the_way);
    if (r != 0) {
        answer(q, r, &in_the_way);
        return;
    }
    data.reservation.handle = pst_reservation_handle(reservation);
    data.reservation.location_bytes =
        (uint16_t)pst_reservation_location(w->shard, reservation, data.location);
    pst_assert(data.reservation.location_bytes <= PST_RESERVATION_LOCATION_BYTES_MAX);
    wire = (struct pst_wire_result){
        .data = &data, .bytes = (uint32_t)sizeof(data.reservation) + data.reservation.location_bytes};
    pst_reply_add(q, &wire);
}

static void copy_in(const struct pst_shard *shard, const struct pst_reservation *reservation,
                    const struct pst_wire_op *op)
{
    const uint8_t *from = op->value;
    struct iovec piece;

    for (uint64_t at = 0; pst_reservation_piece(shard, reservation, op->offset + at, op->bytes - at, &piece);
         at += piece.iov_len)
        memcpy(piece.iov_base, from + at, piece.iov_len);
}

void pst_apply_reservation_write(struct pst_request *q, uint32_t index)
{
    struct pst_worker *w = q->worker;
    const struct pst_wire_op *op = &w->ops[index];
    struct pst_reservation *reservation = pst_reservation_find(&q->shard_session->holder, op->handle);
    struct pst_answer none = {0};
    int r = reservation ? pst_reservation_write(w->shard, reservation, op->offset, op->bytes, w->now_ns)
                        : PST_MISS;

    if (op->flags & PST_WIRE_VALUE_IN_BULK) {
        pst_assert(q->write_count < q->count);
        q->writes[q->write_count++] = (struct pst_write){.put = {.value_bytes = op->bytes},
                                                         .reservation = r == 0 ? reservation : NULL,
                                                         .offset = op->offset,
                                                         .bytes_left = op->bytes,
                                                         .op = index,
                                                         .reply_at = (uint32_t)q->reply_bytes,
                                                         .refused = r != 0};
        if (r == 0)
            pst_await_value(q);
    } else if (r == 0) {
        copy_in(w->shard, reservation, op);
        pst_reservation_written(w->shard, reservation, op->offset, op->bytes, true);
    }
    answer(q, r, &none);
}

/* Other nodes have to have it first. */
static void commit_copied(struct pst_request *q, const struct pst_reservation_named *named)
{
    struct pst_worker *w = q->worker;
    size_t reply_at = q->reply_bytes;
    struct pst_answer value = {0};
    struct pst_put put;
    bool again = false;
    int r =
        pst_reservation_prepare(w->shard, &q->shard_session->holder, named, w->now_ns, &put, &again, &value);

    answer(q, r, &value);
    if (r != 0 || again)
        return;
    r = pst_commit_reservation(q, &put, named, (uint32_t)reply_at);
    if (r != 0) {
        pst_assert(q->reply_bytes > reply_at);
        q->reply_bytes = reply_at;
        answer(q, r, &value);
    }
}

void pst_apply_reservation_commit(struct pst_request *q, uint32_t index)
{
    struct pst_worker *w = q->worker;
    const struct pst_wire_op *op = &w->ops[index];
    struct pst_reservation_named named = {.handle = op->handle,
                                          .key = op->key,
                                          .location = op->attrs,
                                          .bytes = op->bytes,
                                          .crc = op->value_crc,
                                          .tier = (uint8_t)pst_min(op->tier, UINT8_MAX),
                                          .checksum = op->flags & PST_WIRE_CHECKSUM,
                                          .durable = op->flags & PST_WIRE_DURABLE};
    struct pst_answer value = {0};
    int r;

    if (pst_node_copied(w->node, op->key)) {
        commit_copied(q, &named);
        return;
    }
    r = pst_reservation_commit(w->shard, &q->shard_session->holder, &named, w->now_ns, &value);

    if (r == 0 && named.durable)
        r = pst_request_save(q, pst_shard_find(w->shard, &w->lookups[index]), (uint32_t)q->reply_bytes);
    answer(q, r, &value);
}

void pst_apply_reservation_abort(struct pst_request *q, uint32_t index)
{
    struct pst_answer none = {0};

    pst_reservation_abort(q->worker->shard, &q->shard_session->holder, q->worker->ops[index].handle);
    answer(q, PST_OK, &none);
}

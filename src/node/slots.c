/* slots.c: what the operations on slots do: reserve, write, commit, abort. Large writes leave a struct
 * pst_write behind, as large puts do. */
#include "node/node_priv.h"

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
        struct pst_wire_slot slot;
        char location[PST_SLOT_LOCATION_BYTES_MAX + 1];
    } data = {.slot = {.bytes = op->bytes, .tier = PST_TIER_DRAM}};
    struct pst_answer in_the_way = {0};
    struct pst_wire_result wire;
    struct pst_slot *slot;
    int r = PST_BUSY;

    if (pst_node_route(w->node, op->key) != w->number)
        r = -ESTALE;
    else if (pst_reply_room(q, index) >= sizeof(data))
        r = pst_slot_reserve(w->shard, &q->visitor->holder, &put, op->flags & PST_WIRE_REPLACE, w->now_ns,
                             &slot, &in_the_way);
    if (r != 0) {
        answer(q, r, &in_the_way);
        return;
    }
    data.slot.handle = pst_slot_handle(slot);
    data.slot.location_bytes = (uint16_t)pst_slot_location(w->shard, slot, data.location);
    wire = (struct pst_wire_result){.data = &data,
                                    .bytes = (uint32_t)sizeof(data.slot) + data.slot.location_bytes};
    pst_reply_add(q, &wire);
}

static void copy_in(const struct pst_shard *shard, const struct pst_slot *slot, const struct pst_wire_op *op)
{
    const uint8_t *from = op->value;
    struct iovec piece;

    for (uint64_t at = 0; pst_slot_piece(shard, slot, op->offset + at, op->bytes - at, &piece);
         at += piece.iov_len)
        memcpy(piece.iov_base, from + at, piece.iov_len);
}

void pst_apply_slot_write(struct pst_request *q, uint32_t index)
{
    struct pst_worker *w = q->worker;
    const struct pst_wire_op *op = &w->ops[index];
    struct pst_slot *slot = pst_slot_find(&q->visitor->holder, op->if_generation);
    struct pst_answer none = {0};
    int r = slot ? pst_slot_write(w->shard, slot, op->offset, op->bytes, w->now_ns) : PST_MISS;

    if (op->flags & PST_WIRE_VALUE_IN_BULK) {
        q->writes[q->write_count++] = (struct pst_write){.put = {.value_bytes = op->bytes},
                                                         .slot = r == 0 ? slot : NULL,
                                                         .offset = op->offset,
                                                         .bytes_left = op->bytes,
                                                         .op = index,
                                                         .reply_at = (uint32_t)q->reply_bytes,
                                                         .refused = r != 0};
        q->writes_open += r == 0;
    } else if (r == 0) {
        copy_in(w->shard, slot, op);
        pst_slot_written(w->shard, slot, op->offset, op->bytes, true);
    }
    answer(q, r, &none);
}

/* Other nodes have to have it first. */
static void commit_copied(struct pst_request *q, const struct pst_slot_named *named)
{
    struct pst_worker *w = q->worker;
    struct pst_write write = {.reply_at = (uint32_t)q->reply_bytes, .durable = named->durable};
    struct pst_answer value = {0};
    int r = pst_slot_take(w->shard, &q->visitor->holder, named, w->now_ns, &write.put, &write.reservation,
                          &value);

    answer(q, r, &value);
    if (r != 0)
        return;
    r = pst_commit_write(q, &write);
    if (r != 0) {
        pst_shard_abort(w->shard, &write.reservation);
        q->reply_bytes = write.reply_at;
        answer(q, r, &value);
    }
}

void pst_apply_slot_commit(struct pst_request *q, uint32_t index)
{
    struct pst_worker *w = q->worker;
    const struct pst_wire_op *op = &w->ops[index];
    struct pst_slot_named named = {.handle = op->if_generation,
                                   .key = op->key,
                                   .location = op->attrs,
                                   .bytes = op->bytes,
                                   .crc = op->crc,
                                   .tier = (uint8_t)pst_min(op->depth, UINT8_MAX),
                                   .checksum = op->flags & PST_WIRE_CHECKSUM,
                                   .durable = op->flags & PST_WIRE_DURABLE};
    struct pst_answer value = {0};
    int r;

    if (pst_node_copied(w->node, op->key)) {
        commit_copied(q, &named);
        return;
    }
    r = pst_slot_commit(w->shard, &q->visitor->holder, &named, w->now_ns, &value);

    if (r == 0 && named.durable)
        r = pst_request_save(q, pst_shard_find(w->shard, &w->lookups[index]), (uint32_t)q->reply_bytes);
    answer(q, r, &value);
}

void pst_apply_slot_abort(struct pst_request *q, uint32_t index)
{
    struct pst_answer none = {0};

    pst_slot_abort(q->worker->shard, &q->visitor->holder, q->worker->ops[index].if_generation);
    answer(q, PST_OK, &none);
}

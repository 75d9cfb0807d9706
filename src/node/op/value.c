/* SPDX-License-Identifier: Apache-2.0 */
/*
 * value.c: puts, gets, deletes and pins of one key. Small values go into the reply at once; large ones leave
 * a read or a write behind that the request's later steps carry out.
 */
#include "node/commit.h"
#include "node/node_priv.h"
#include "node/op.h"
#include "node/op/op_priv.h"
#include "store/exec.h"
#include "store/read.h"

int pst_reserve_write(struct pst_request *q, const struct pst_put *put, struct pst_pending *pending,
                      struct pst_answer *answer)
{
    struct pst_worker *w = q->worker;
    struct pst_quota *quota = &q->shard_session->session->quota;
    int r = -EFBIG;

    pst_assert(!pending->record);
    if (put->value_bytes <= pst_store_value_bytes_max(w->node->store))
        r = pst_quota_take_underway(quota, put->value_bytes);
    if (r != 0)
        return r;
    r = pst_shard_reserve(w->shard, put, w->now_ns, pending, answer);
    if (r != 0)
        pst_quota_give_underway(quota, put->value_bytes);
    return r;
}

/* The client may have given the request more time than a value has. */
static void bound_deadline(struct pst_request *q)
{
    q->deadline_ns = pst_min(q->deadline_ns, q->worker->now_ns + q->worker->node->value_ns);
}

void pst_await_value(struct pst_request *q)
{
    q->writes_open++;
    pst_assert(q->writes_open <= q->write_count);
    bound_deadline(q);
}

void pst_begin_write(struct pst_request *q, const struct pst_put *put, const struct pst_pending *pending,
                     uint32_t index, bool refused)
{
    struct pst_write *write = &q->writes[q->write_count++];

    pst_assert(q->write_count <= q->count);
    pst_assert(index < q->count);
    pst_assert(refused == !pending->record);

    *write = (struct pst_write){.put = *put,
                                .bytes_left = put->value_bytes,
                                .op = index,
                                .reply_at = (uint32_t)q->reply_bytes,
                                .refused = refused,
                                .durable = q->worker->ops[index].flags & PST_WIRE_DURABLE};
    if (refused)
        return;
    write->pending = *pending;
    write->counted = true;
    write->put.lookup.key = pst_record_key(pending->record);
    write->put.attrs = (struct pst_bytes){NULL, 0};
    pst_await_value(q);
}

_Static_assert((int)PST_PUT_IF_ABSENT == (int)PST_WIRE_IF_ABSENT &&
                   (int)PST_PUT_IF_GENERATION == (int)PST_WIRE_IF_GENERATION &&
                   (int)PST_PUT_CHECKSUM == (int)PST_WIRE_CHECKSUM,
               "the store's flags");

struct pst_put pst_asked_put(const struct pst_worker *w, uint32_t index)
{
    const struct pst_wire_op *op = &w->ops[index];

    pst_assert(op->code == PST_WIRE_PUT || op->code == PST_WIRE_RESERVE);
    return (struct pst_put){.lookup = w->lookups[index],
                            .attrs = op->attrs,
                            .value_bytes = op->bytes,
                            .if_generation = op->if_generation,
                            .ttl_ms = op->flags & PST_WIRE_TTL ? op->ttl_ms : 0,
                            .depth = op->depth,
                            .copies = op->copies,
                            .flags = op->flags & (PST_PUT_IF_ABSENT | PST_PUT_IF_GENERATION)};
}

void pst_apply_put(struct pst_request *q, uint32_t index)
{
    struct pst_worker *w = q->worker;
    const struct pst_wire_op *op = &w->ops[index];
    struct pst_put put = pst_asked_put(w, index);
    bool bulk = op->flags & PST_WIRE_VALUE_IN_BULK, durable = op->flags & PST_WIRE_DURABLE;
    struct pst_pending pending = {0};
    struct pst_answer answer = {0};
    struct pst_wire_result result;
    int r = durable ? pst_put_check_durable(w->shard, &put, &answer) : 0;

    if (r == 0 && !bulk && pst_node_copied(w->node, op->key)) {
        pst_apply_alone(q, index);
        return;
    }
    put.value_crc = op->flags & PST_WIRE_CHECKSUM ? op->value_crc : 0;
    put.flags |= op->flags & PST_PUT_CHECKSUM;
    if (pst_node_route(w->node, op->key) != w->number)
        r = -ESTALE; /* the client routes by another table */
    else if (r == 0 && bulk)
        r = pst_reserve_write(q, &put, &pending, &answer);
    else if (r == 0)
        r = pst_shard_put(w->shard, &put, op->value, w->now_ns, &answer);
    if (bulk)
        pst_begin_write(q, &put, &pending, index, r != 0);
    else if (r == 0 && durable)
        r = pst_request_save(q, pst_shard_find(w->shard, &put.lookup), (uint32_t)q->reply_bytes);
    if (r == PST_BUSY)
        pst_workers_relieve(w);
    result = pst_reply_result(r, &answer);
    pst_reply_add(q, &result);
}

/* What is read in part stays as a whole, and counts so. Return: 0, PST_BUSY, -EDQUOT, -ENOMEM. */
static int begin_read(struct pst_request *q, const struct pst_read *read)
{
    struct pst_quota *quota = &q->shard_session->session->quota;
    int r = pst_quota_take_underway(quota, read->record->value_bytes);

    pst_assert(q->read_count < q->count);
    pst_assert(read->bytes <= read->record->value_bytes);
    pst_assert(read->offset <= read->record->value_bytes - read->bytes);
    if (r == 0 && pst_shard_ref(q->worker->shard, read->record) < 0) {
        pst_quota_give_underway(quota, read->record->value_bytes);
        r = -ENOMEM;
    }
    if (r != 0)
        return r;
    q->reads[q->read_count++] = *read;
    bound_deadline(q);
    return 0;
}

void pst_end_read(struct pst_request *q, const struct pst_read *read)
{
    pst_assert(q->read_count > 0);
    pst_assert(read->offset + read->bytes <= read->record->value_bytes);
    pst_quota_give_underway(&q->shard_session->session->quota, read->record->value_bytes);
    pst_shard_unref(q->worker->shard, read->record);
}

/* Small values go into the reply while there is room in it. */
static void answer_value(struct pst_request *q, uint32_t index, struct pst_record *record, uint64_t offset,
                         uint64_t bytes, struct pst_wire_result *result)
{
    struct pst_worker *w = q->worker;
    struct iovec piece;

    if (bytes <= PST_WIRE_INLINE_BYTES_MAX && bytes <= pst_reply_room(q, index) &&
        pst_record_iov(w->shard, record, offset, bytes, &piece, 1) >= 0) {
        result->bytes = (uint32_t)bytes;
        result->data = bytes ? piece.iov_base : NULL;
        if (bytes == result->value_bytes)
            result->flags &= (uint8_t)~PST_WIRE_SIZE;
        return;
    }
    if (pst_unlikely(w->tiered))
        pst_shard_read(w->shard, record);
    result->result = (int16_t)begin_read(q, &(struct pst_read){record, offset, bytes, index});
    if (result->result != 0)
        return;
    result->flags |= PST_WIRE_IN_BULK;
    result->bulk_bytes = bytes;
}

int pst_plan_get(const struct pst_wire_op *op, const struct pst_record *record, uint64_t *offset,
                 uint64_t *bytes)
{
    const struct pst_get get = {.offset = pst_wire_range_offset(op->flags, op->offset),
                                .bytes = op->bytes,
                                .generation = op->if_generation,
                                .only = op->flags & PST_WIRE_IF_GENERATION,
                                .unless = op->flags & PST_WIRE_UNLESS_GENERATION,
                                .range = op->flags & PST_WIRE_RANGE,
                                .exact = op->flags & PST_WIRE_EXACT};

    return pst_get_plan(record, &get, offset, bytes);
}

void pst_apply_get(struct pst_request *q, uint32_t index)
{
    struct pst_worker *w = q->worker;
    const struct pst_wire_op *op = &w->ops[index];
    struct pst_record *record = pst_shard_find(w->shard, &w->lookups[index]);
    struct pst_wire_result result = {.result = PST_MISS};
    uint64_t offset, bytes = 0;

    if (record) {
        result = (struct pst_wire_result){
            .flags = PST_WIRE_SIZE, .generation = record->generation, .value_bytes = record->value_bytes};
        if (op->flags & PST_WIRE_WANT_ATTRS) {
            result.flags |= PST_WIRE_ATTRS;
            result.attrs = pst_record_attrs(record);
        }
    }
    if (op->code == PST_WIRE_GET) {
        pst_shard_count_read(w->shard, record != NULL);
        if (record) {
            if (record->flags & PST_RECORD_CHECKSUM) {
                result.flags |= PST_WIRE_CRC;
                result.crc = record->value_crc;
            }
            result.result = (int16_t)pst_plan_get(op, record, &offset, &bytes);
            pst_shard_touch(w->shard, record, w->now_ns);
            if (result.result == 0)
                result.result = (int16_t)pst_get_locate(w->shard, &record, &offset, bytes);
            if (result.result == 0)
                answer_value(q, index, record, offset, bytes, &result);
        }
    }
    pst_reply_add(q, &result);
}

/* What other nodes hold, too, is deleted there first. */
void pst_apply_delete(struct pst_request *q, uint32_t index)
{
    struct pst_worker *w = q->worker;
    const struct pst_wire_op *op = &w->ops[index];
    const struct pst_lookup *lookup = &w->lookups[index];
    bool spares = op->flags & PST_WIRE_SPARE && pst_shard_pinned(w->shard, lookup, w->now_ns);
    struct pst_answer answer = {0};
    struct pst_wire_result result;
    int r = PST_EXISTS;

    if (!spares && pst_node_copied(w->node, op->key)) {
        pst_apply_alone(q, index);
        return;
    }
    if (!spares)
        r = pst_shard_delete(w->shard, lookup, op->flags & PST_WIRE_IF_GENERATION, op->if_generation,
                             &answer);
    result = pst_reply_result(r, &answer);
    pst_reply_add(q, &result);
}

void pst_apply_pin(struct pst_request *q, uint32_t index)
{
    struct pst_worker *w = q->worker;
    struct pst_wire_result result = {.result = (int16_t)pst_shard_pin(w->shard, &q->shard_session->holder,
                                                                      &w->lookups[index],
                                                                      w->ops[index].pin_ms, w->now_ns)};

    pst_reply_add(q, &result);
}

void pst_apply_unpin(struct pst_request *q, uint32_t index)
{
    struct pst_worker *w = q->worker;
    struct pst_wire_result result = {
        .result = (int16_t)pst_shard_unpin(w->shard, &q->shard_session->holder, &w->lookups[index])};

    pst_reply_add(q, &result);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy.c: what the primary of a partition has this node do, which holds a copy: values under the generations
 * that they have there. The primary has one write of a key underway at a time, so they come in its order;
 * what comes twice, or from a primary of before, changes nothing.
 */
#include "node/node_priv.h"
#include "node/op.h"
#include "node/op/op_priv.h"
#include "store/keys.h"

/* Reads what is in front of the value's attributes. Return: 0, or the operation's result. */
static int read_copy(const struct pst_worker *w, uint32_t index, struct pst_wire_copy *copy)
{
    const struct pst_wire_op *op = &w->ops[index];
    const struct pst_node_role *role = &w->node->role;

    if (!role->may_copy)
        return -EOPNOTSUPP;
    pst_assert(op->attrs.len >= sizeof(*copy)); /* wire/check.c */
    memcpy(copy, op->attrs.data, sizeof(*copy));
    if (copy->what > (copy->partition_epoch ? PST_WIRE_COPIED_DELETE : PST_WIRE_COPIED_PUT) ||
        copy->generation == 0 || copy->generation >= PST_GENERATION_PEER_MAX ||
        copy->copies > PST_WIRE_COPIES_MAX)
        return -EPROTO;
    if (pst_node_route(w->node, op->key) != w->number)
        return -ESTALE;
    return role->may_copy(role->ctx, role->partition_of(role->ctx, op->key), copy->partition_epoch);
}

static struct pst_put put_of(const struct pst_worker *w, uint32_t index, const struct pst_wire_copy *copy)
{
    const struct pst_wire_op *op = &w->ops[index];
    uint64_t now_ms = pst_shard_wall_ms(w->shard);

    pst_assert(op->attrs.len >= sizeof(*copy));
    pst_assert(copy->generation > 0 && copy->generation < PST_GENERATION_PEER_MAX);
    return (struct pst_put){
        .lookup = w->lookups[index],
        .attrs = {(const uint8_t *)op->attrs.data + sizeof(*copy), op->attrs.len - sizeof(*copy)},
        .value_bytes = op->bytes,
        .value_crc = copy->crc,
        .ttl_ms = copy->expires_ms > now_ms ? copy->expires_ms - now_ms : copy->expires_ms > 0,
        .generation = copy->partition_epoch ? copy->generation : 0,
        .depth = op->depth,
        .copies = copy->copies,
        .flags = (copy->checksum ? PST_PUT_CHECKSUM : 0) | (copy->expires_ms ? 0 : PST_PUT_FETCHED) |
                 (copy->partition_epoch ? 0 : PST_PUT_IF_ABSENT),
    };
}

void pst_apply_copy(struct pst_request *q, uint32_t index)
{
    struct pst_worker *w = q->worker;
    const struct pst_wire_op *op = &w->ops[index];
    bool bulk = op->flags & PST_WIRE_VALUE_IN_BULK, durable = op->flags & PST_WIRE_DURABLE;
    struct pst_pending pending = {0};
    struct pst_answer answer = {0};
    struct pst_wire_copy copy = {0};
    struct pst_wire_result result;
    struct pst_put put = {.value_bytes = op->bytes};
    int r = read_copy(w, index, &copy);

    if (r == 0 && copy.what == PST_WIRE_COPIED_DELETE) {
        r = pst_shard_delete_replica(w->shard, &w->lookups[index], copy.generation);
        r = r == PST_MISS ? 0 : r;
    } else if (r == 0) {
        put = put_of(w, index, &copy);
        r = durable ? pst_put_check_durable(w->shard, &put, &answer) : 0;
    }
    if (r == 0 && copy.what == PST_WIRE_COPIED_PUT)
        r = bulk ? pst_reserve_write(q, &put, &pending, &answer)
                 : pst_shard_put(w->shard, &put, op->value, w->now_ns, &answer);
    if (durable && (r == PST_EXISTS || (r == 0 && !bulk)))
        r = pst_request_save(q, r == 0 ? pst_shard_find(w->shard, &put.lookup) : NULL,
                             (uint32_t)q->reply_bytes);
    if (bulk)
        pst_begin_write(q, &put, &pending, index, !pending.record);
    if (bulk && pending.record)
        q->writes[q->write_count - 1].partition_epoch = copy.partition_epoch;
    if (r == PST_BUSY)
        pst_workers_relieve(w);
    result = pst_reply_result(r == PST_EXISTS ? 0 : r, &answer);
    pst_reply_add(q, &result);
}

int pst_copy_landed(struct pst_request *q, struct pst_write *write, struct pst_answer *answer)
{
    struct pst_worker *w = q->worker;
    const struct pst_node_role *role = &w->node->role;
    struct pst_record *record = write->pending.record;
    int r = role->may_copy(role->ctx, role->partition_of(role->ctx, write->put.lookup.key),
                           write->partition_epoch);

    pst_assert(record);
    pst_assert(write->put.generation);
    pst_assert(!write->refused);
    if (r != 0) {
        pst_shard_abort(w->shard, &write->pending);
        return r;
    }
    r = pst_shard_commit(w->shard, &write->put, &write->pending, w->now_ns, answer);
    pst_assert(!write->pending.record);
    if (write->durable && (r == 0 || r == PST_EXISTS))
        r = pst_request_save(q, r == 0 ? record : NULL, write->reply_at);
    write->durable = false; /* seen to */
    return r == PST_EXISTS ? 0 : r;
}

/* ---- what goes ---- */

struct cleared {
    const struct pst_node *node;
    struct pst_bytes partitions; /* struct pst_wire_cleared, in any number */
    bool joins;                  /* this node is to have copies of them: what was here must not come back */
};

/* Whether the key's partition is among those that are cleared. */
static bool is_cleared(void *ctx, struct pst_bytes key)
{
    const struct cleared *cleared = ctx;
    const struct pst_node_role *role = &cleared->node->role;
    uint32_t partition = role->partition_of(role->ctx, key);

    for (size_t at = 0; at < cleared->partitions.len; at += sizeof(struct pst_wire_cleared)) {
        struct pst_wire_cleared one;

        memcpy(&one, (const uint8_t *)cleared->partitions.data + at, sizeof(one));
        if (one.partition == partition)
            return one.partition_epoch > 0 || role->stranded(role->ctx, key);
    }
    return false;
}

static int may_clear(struct cleared *cleared)
{
    const struct pst_node_role *role = &cleared->node->role;
    struct pst_bytes partitions = cleared->partitions;
    int r = role->may_copy ? 0 : -EOPNOTSUPP;

    pst_assert(partitions.len % sizeof(struct pst_wire_cleared) == 0); /* wire/check.c */
    for (size_t at = 0; at < partitions.len && r == 0; at += sizeof(struct pst_wire_cleared)) {
        struct pst_wire_cleared one;

        memcpy(&one, (const uint8_t *)partitions.data + at, sizeof(one));
        if (one.partition >= PST_PARTITIONS)
            r = -EPROTO;
        else if (one.partition_epoch > 0)
            r = role->may_copy(role->ctx, one.partition, one.partition_epoch);
        cleared->joins |= one.partition_epoch > 0;
    }
    return r;
}

void pst_apply_copy_clear(struct pst_request *q, uint32_t index)
{
    struct pst_worker *w = q->worker;
    const struct pst_wire_op *op = &w->ops[index];
    struct cleared cleared = {.node = w->node, .partitions = op->attrs};
    struct pst_range range = {
        .start = op->key, .after = op->flags & PST_WIRE_AFTER, .wanted = is_cleared, .ctx = &cleared};
    struct pst_wire_result result = {.data = w->scratch};
    bool raises = op->flags & PST_WIRE_FLOOR;
    int r = raises && op->generation_floor >= PST_GENERATION_PEER_MAX ? -EPROTO : may_clear(&cleared);

    if (r == 0 && raises) {
        pst_shard_pass_generation(w->shard, op->generation_floor);
        result.generation = pst_shard_generation(w->shard);
    }
    if (r == 0 && op->attrs.len == 0) {
        pst_reply_add(q, &result);
        return;
    }
    if (r == 0 && (pst_reply_room(q, index) < PST_SWEEP_BYTES_MAX || op->bytes < PST_SWEEP_BYTES_MAX))
        r = PST_BUSY;
    if (r == 0)
        result.bytes = (uint32_t)pst_shard_sweep(w->shard, &range, false, w->now_ns, w->scratch);
    pst_assert(result.bytes <= PST_SWEEP_BYTES_MAX);
    if (r == 0 && cleared.joins && result.bytes > 0) {
        pst_tier_new_era(w->shard);
        r = pst_request_sync(q, (uint32_t)q->reply_bytes);
    }
    result.result = (int16_t)(r == 0 && result.bytes == 0 ? PST_BUSY : r);
    pst_reply_add(q, &result);
}

bool pst_sweep_counts(void *ctx, struct pst_bytes key)
{
    const struct pst_node *node = ctx;

    pst_assert(node->role.stranded);
    pst_assert(key.len > 0);
    return !node->role.stranded(node->role.ctx, key); /* else its value is elsewhere, or was */
}

bool pst_sweeps(void *ctx, struct pst_bytes key)
{
    const struct pst_node *node = ctx;

    pst_assert(node->role.copied);
    return (pst_node_may_serve(node, key) == 0 && !pst_node_copied(node, key)) ||
           node->role.stranded(node->role.ctx, key);
}

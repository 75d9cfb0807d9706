/* SPDX-License-Identifier: Apache-2.0 */
/* range.c: a listing and a deletion of many keys, a piece at a time. */
#include "node/commit.h"
#include "node/node_priv.h"
#include "node/op.h"
#include "node/op/op_priv.h"
#include "store/keys.h"

_Static_assert((int)PST_SWEEP_BYTES_MAX <= (int)SCRATCH_BYTES, "a sweep's answer fits");

static struct pst_range range_of(const struct pst_wire_op *op)
{
    return (struct pst_range){.start = op->key, .end = op->attrs, .after = op->flags & PST_WIRE_AFTER};
}

/* generation 1: the end was reached. */
void pst_apply_list(struct pst_request *q, uint32_t index)
{
    struct pst_worker *w = q->worker;
    struct pst_range range = range_of(&w->ops[index]);
    uint64_t room = pst_min(pst_min(w->ops[index].bytes, pst_reply_room(q, index)), SCRATCH_BYTES);
    struct pst_wire_result result = {.data = w->scratch};
    bool end = false;
    int64_t bytes = pst_shard_list(w->shard, &range, w->scratch, room, &end);

    pst_assert(bytes <= (int64_t)room);
    result.generation = end;
    if (bytes < 0) /* too little room is the fault of its neighbours in the batch, unless the client gave too
                      little itself */
        result.result = (int16_t)(room < w->ops[index].bytes ? PST_BUSY : bytes);
    else
        result.bytes = (uint32_t)bytes;
    pst_reply_add(q, &result);
}

void pst_apply_sweep(struct pst_request *q, uint32_t index)
{
    struct pst_worker *w = q->worker;
    const struct pst_wire_op *op = &w->ops[index];
    struct pst_range range = range_of(op);
    struct pst_wire_result result = {.result = PST_BUSY, .data = w->scratch};

    if (w->node->role.copied) {
        range.wanted = pst_sweeps;
        range.counts = pst_sweep_counts;
        range.ctx = w->node;
    }
    if (pst_reply_room(q, index) >= PST_SWEEP_BYTES_MAX && op->bytes >= PST_SWEEP_BYTES_MAX) {
        result.bytes =
            (uint32_t)pst_shard_sweep(w->shard, &range, op->flags & PST_WIRE_SPARE, w->now_ns, w->scratch);
        result.result = result.bytes ? PST_OK : PST_BUSY;
    }
    pst_assert(result.bytes <= PST_SWEEP_BYTES_MAX);
    pst_reply_add(q, &result);
}

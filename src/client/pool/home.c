/* SPDX-License-Identifier: Apache-2.0 */
/* home.c: operations on keys that lie home: to the primary of their partition, who decides as a node alone
 * does. */
#include "client/pool/pool_op_priv.h"

bool pst_pool_key_home(const struct pool *pool, struct pst_bytes key)
{
    const struct pst_map_prefix *prefix = pst_map_prefix_of(pool->map, key);

    return prefix && prefix->placement == PST_PLACE_HOME;
}

struct pool_node *pst_pool_primary(struct pool *pool, struct pst_bytes key)
{
    const struct pst_map_partition *partition = &pool->map->partitions[pst_map_partition_of(pool->map, key)];

    return partition->state == PST_MAP_SERVED ? pst_pool_node(pool, partition->replicas[0]) : NULL;
}

static struct pst_bytes key_of(const struct penstock_op *op)
{
    return (struct pst_bytes){op->key, op->key_bytes};
}

/* Whether one node can see to all of a commit. */
static bool has_all_keys(struct pool *pool, const struct penstock_op *commit, const struct pool_node *node)
{
    const struct penstock_op *members = commit->data;

    pst_assert(commit->code == PST_WIRE_COMMIT);
    pst_assert(commit->member_count > 0 && commit->member_count <= PENSTOCK_COMMIT_OPS_MAX);
    for (uint64_t i = 0; i < commit->member_count; i++) {
        if (pst_pool_primary(pool, key_of(&members[i])) != node)
            return false;
    }
    return true;
}

void pst_home_begin(struct pool *pool, struct pool_op *pool_op)
{
    const struct pst_map_partition *partition =
        &pool->map->partitions[pst_map_partition_of(pool->map, key_of(pool_op->op))];
    struct pool_node *node = pst_pool_primary(pool, key_of(pool_op->op));

    pst_assert(pool_op->kind == POOL_OP_HOME);
    pst_assert(pool_op->attempts == 0);
    if (node && pool_op->op->code == PST_WIRE_COMMIT) {
        if (has_all_keys(pool, pool_op->op, node))
            pst_attempt_send(pool, &pool_op->first, pool_op, node, 0);
        else
            pst_pool_op_finish(pool, pool_op, NULL, -EOPNOTSUPP);
        return;
    }
    if (node) {
        pst_pool_op_send_first(pool, pool_op, node);
        return;
    }
    pst_pool_map_fetch(pool);
    pst_pool_op_later(pool, pool_op, NULL,
                      partition->state == PST_MAP_EMPTY ? PENSTOCK_BUSY : PENSTOCK_INCOMPLETE);
}

void pst_home_ended(struct pool *pool, struct pool_op *pool_op, struct attempt *attempt, int result)
{
    const struct pst_map_partition *partition =
        &pool->map->partitions[pst_map_partition_of(pool->map, key_of(pool_op->op))];
    bool reads = pst_code_has(pool_op->op->code, PST_CODE_READS);

    pst_assert(pool_op->kind == POOL_OP_HOME);
    pst_assert(attempt == &pool_op->first);
    pst_assert(pool_op->attempts == 0);
    if (result == PENSTOCK_MISS && reads && partition->lost) {
        pst_pool_map_fetch(pool); /* it may be forgiven by now, which the next one is to hear of */
        result = PENSTOCK_LOST;
    }
    if (result == -ESTALE) /* another has it: no fault of the caller's, if no master says who in time */
        result = PENSTOCK_BUSY;
    if (result == PENSTOCK_BUSY || result == PENSTOCK_INCOMPLETE || pst_pool_op_unreachable(result)) {
        pst_pool_map_fetch(pool); /* another may have the partition by now, known to this one or not */
        pst_pool_op_later(pool, pool_op, attempt, result);
    } else {
        pool_op->copies = (uint8_t)pst_op_copies(&attempt->op);
        pst_pool_op_finish(pool, pool_op, attempt, result);
    }
}

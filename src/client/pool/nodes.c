/* SPDX-License-Identifier: Apache-2.0 */
/* nodes.c: the nodes of a pool as its master sees them, and which of them are to be needed no more. */
#include "client/pool/pool_priv.h"

enum {
    ROWS_MAX = PST_POOL_NODES_MAX,
    TRIES_MAX = 1000,
    TRY_US = 5000,
};

_Static_assert((int)PENSTOCK_NODE_DRAINS == (int)PST_POOL_NODE_DRAINS &&
                   (int)PENSTOCK_NODE_DRAINED == (int)PST_POOL_NODE_DRAINED &&
                   (int)PENSTOCK_NODE_SUSPECT == (int)PST_POOL_NODE_SUSPECT &&
                   (int)PENSTOCK_NODE_STUCK == (int)PST_POOL_NODE_STUCK,
               "flags of a node");

static int ask(struct penstock *store, struct penstock_op *op)
{
    int shard = store->pool ? POOL_SHARD_OF_MASTER : 0, r = pst_store_check(store);

    if (r < 0)
        return r;
    if (store->local)
        op->result = -EOPNOTSUPP;
    else
        pst_run(store, op, 1, &shard);
    if (op->result == -EOPNOTSUPP)
        return pst_fail(op->result, "%s: no pool, nor its master", store->url);
    return pst_explain(store, op, op->result);
}

static struct penstock_pool_node node_of(const struct pst_pool_node *row)
{
    struct penstock_pool_node node = {.member = row->member,
                                      .flags = row->flags,
                                      .primaries = row->primaries,
                                      .copies = row->copies,
                                      .keys_left = row->keys_left,
                                      .capacity_bytes = row->dram.capacity_bytes,
                                      .used_bytes = row->dram.used_bytes};

    _Static_assert(sizeof(node.id) == sizeof(row->id) && sizeof(node.address) == sizeof(row->address),
                   "a node's name");
    memcpy(node.id, row->id, sizeof(node.id));
    memcpy(node.address, row->address, sizeof(node.address) - 1);
    return node;
}

/* What the other shares of the directory know of the nodes: none needs keys of a node that is drained. Nobody
 * says so for a share that does not answer. */
static int join_shares(struct penstock *store, uint64_t first, struct pst_pool_node *rows, size_t count)
{
    uint32_t shares = pst_pool_shares(store);
    pst_cleanup_free struct pst_pool_node *others = shares > 1 ? malloc(ROWS_MAX * sizeof(*others)) : NULL;

    pst_assert(shares <= PST_MAP_SHARES_MAX);
    pst_assert(count <= ROWS_MAX);
    if (shares > 1 && !others)
        return pst_fail(-ENOMEM, "out of memory");
    for (uint32_t share = 1; share < shares; share++) {
        struct penstock_op op = {
            .code = PST_POOL_NODES, .offset = first, .data = others, .bytes = ROWS_MAX * sizeof(*others)};
        int r = pst_run_one(store, &op, POOL_SHARD_OF_MASTER + (int)share);
        size_t known = r == 0 ? op.value_bytes / sizeof(*others) : 0, at = 0;

        pst_assert(known <= ROWS_MAX);
        for (size_t i = 0; i < count; i++) { /* both in the order of members */
            while (at < known && others[at].member < rows[i].member)
                at++;
            if (at < known && memcmp(others[at].id, rows[i].id, sizeof(rows[i].id)) == 0) {
                rows[i].keys_left += others[at].keys_left;
                rows[i].flags |= others[at].flags & PST_POOL_NODE_STUCK;
                rows[i].flags &= others[at].flags | (uint8_t)~PST_POOL_NODE_DRAINED;
            } else {
                rows[i].flags &= (uint8_t)~PST_POOL_NODE_DRAINED;
            }
        }
    }
    return 0;
}

int penstock_pool_nodes(struct penstock *store, struct penstock_pool_node *nodes, size_t *count)
{
    pst_cleanup_free struct pst_pool_node *rows = calloc(ROWS_MAX, sizeof(*rows));
    size_t found = 0, more = ROWS_MAX;
    uint64_t next = 0;

    if (!count || (*count && !nodes))
        return pst_fail(-EINVAL, "penstock_pool_nodes: nowhere to put the nodes");
    if (!rows)
        return pst_fail(-ENOMEM, "out of memory");
    while (more == ROWS_MAX) {
        struct penstock_op op = {
            .code = PST_POOL_NODES, .offset = next, .data = rows, .bytes = ROWS_MAX * sizeof(*rows)};
        int r = ask(store, &op);

        if (r != 0)
            return r;
        more = op.value_bytes / sizeof(*rows);
        r = join_shares(store, next, rows, more);
        if (r != 0)
            return r;
        for (size_t i = 0; i < more; i++, found++) {
            if (rows[i].member < next)
                return pst_explain(store, &op, -EPROTO);
            next = rows[i].member + 1u;
            if (found < *count)
                nodes[found] = node_of(&rows[i]);
        }
    }
    *count = found;
    return 0;
}

/* Until the pool map that says so is stored. */
static int ask_until_stored(struct penstock *store, struct penstock_op *op)
{
    int r;

    for (int i = 0; (r = ask(store, op)) == PENSTOCK_BUSY && i < TRIES_MAX; i++)
        usleep(TRY_US);
    return r;
}

const char *penstock_pool_node_state(const struct penstock_pool_node *node)
{
    if (node->flags & PENSTOCK_NODE_SUSPECT)
        return "silent";
    if (node->flags & PENSTOCK_NODE_DRAINED)
        return "drained";
    if (node->flags & PENSTOCK_NODE_STUCK)
        return "stuck";
    return node->flags & PENSTOCK_NODE_DRAINS ? "draining" : "serving";
}

int penstock_pool_forgive(struct penstock *store)
{
    struct penstock_op op = {.code = PST_POOL_FORGIVE};

    return ask_until_stored(store, &op);
}

int penstock_pool_drain(struct penstock *store, const uint8_t node_id[16], int drains)
{
    struct pst_pool_drain drain = {.drains = drains != 0};
    struct penstock_op op = {.code = PST_POOL_DRAIN, .attrs = &drain, .attr_bytes = sizeof(drain)};
    int r;

    if (!node_id)
        return pst_fail(-EINVAL, "penstock_pool_drain: which node is not said");
    memcpy(drain.id, node_id, sizeof(drain.id));
    r = ask_until_stored(store, &op);
    return r == -ESTALE ? pst_fail(-EHOSTUNREACH, "%s: no member of the pool has that id", store->url) : r;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool_op.c: operations on their way over a pool: pool operations and their attempts, whatever their kind,
 * and the shortest kind, to a shard. Values that lie *home* have one owner at a time, who decides about them
 * as a node alone does (home.c). Values that lie *anywhere* are what their name says, wherever they are
 * (anywhere.c, put.c).
 */
#include "client/pool/pool_op_priv.h"

#include "base/clock.h"
#include "base/ms.h"
#include "wire/pool_key.h"

enum {
    DELAY_US_MIN = 200,
    DELAY_US_MAX = 20000,
    BUSY_NS = 200000,       /* a node that is busy is asked again, */
    PATIENT_NS = 100000000, /* for so long, before another may be */
};

/* ---- pool operations ---- */

static struct pool_op *pool_op_take(struct pool *pool)
{
    struct pool_op *pool_op;

    if (!pst_list_empty(&pool->idle)) {
        pool_op = pst_list_first(&pool->idle, struct pool_op, link);
        pst_assert(pool_op->magic == PST_POOL_OP_MAGIC);
        pst_assert(pool_op->attempts == 0);
        pst_list_remove(&pool_op->link);
    } else {
        pool_op = malloc(sizeof(*pool_op));
        pool->pool_op_count += pool_op != NULL;
    }
    if (!pool_op)
        return NULL;
    memset(pool_op, 0, sizeof(*pool_op));
    pool_op->magic = PST_POOL_OP_MAGIC;
    pst_list_init(&pool_op->link);
    return pool_op;
}

void pst_pool_pool_ops_free(struct pool *pool)
{
    while (!pst_list_empty(&pool->idle)) {
        struct pool_op *pool_op = pst_list_first(&pool->idle, struct pool_op, link);

        pst_assert(pool_op->attempts == 0);
        pst_assert(pool->pool_op_count > 0);
        pst_list_remove(&pool_op->link);
        free(pool_op);
        pool->pool_op_count--;
    }
    pst_assert(pool->pool_op_count == 0);
}

void pst_pool_op_finish(struct pool *pool, struct pool_op *pool_op, const struct attempt *attempt, int result)
{
    pst_assert(pool_op->magic == PST_POOL_OP_MAGIC);
    pst_assert(pool_op->attempts == 0);
    pst_assert(pst_list_empty(&pool_op->link));
    pst_assert(pool_op->op);
    pst_assert(pool->pool_op_count > 0);
    pst_op_end_as(pool_op->op, attempt ? &attempt->op : &pool_op->first.op, result, pool_op->copies);
    pst_list_push_front(&pool->idle, &pool_op->link);
}

void pst_pool_op_later(struct pool *pool, struct pool_op *pool_op, const struct attempt *attempt, int result)
{
    uint64_t now_ns = pst_now_ns();

    pst_assert(pool_op->magic == PST_POOL_OP_MAGIC);
    pst_assert(pool_op->attempts == 0);
    pst_assert(pst_list_empty(&pool_op->link));
    pst_assert(result != 0);
    if (now_ns >= pool_op->until_ns) {
        pst_pool_op_finish(pool, pool_op, attempt, result);
        return;
    }
    pool->counters.retries++;
    pool_op->delay_us = (uint32_t)pst_min(pst_max(2 * pool_op->delay_us, DELAY_US_MIN), DELAY_US_MAX);
    pool_op->due_ns = pst_min(now_ns + pool_op->delay_us * 1000ull, pool_op->until_ns);
    pool_op->result = result;
    pool->due_ns = pst_min(pool->due_ns, pool_op->due_ns);
    pst_list_push_back(&pool->waiting, &pool_op->link);
}

/* ---- pool maps that are waited for ---- */

void pst_pool_op_await_map(struct pool *pool, struct pool_op *pool_op)
{
    pst_assert(pool_op->magic == PST_POOL_OP_MAGIC);
    pst_assert(pool_op->attempts == 0);
    pst_assert(pst_list_empty(&pool_op->link));
    pool_op->awaits_map = pool_op->map_asked = true;
    pool_op->due_ns = pool_op->until_ns;
    pool->due_ns = pst_min(pool->due_ns, pool_op->due_ns);
    pst_list_push_back(&pool->waiting, &pool_op->link);
    pst_pool_map_want(pool);
}

void pst_pool_map_ended(struct pool *pool)
{
    pst_assert(!pool->fetch.underway);
    pst_list_each (it, &pool->waiting) {
        struct pool_op *pool_op = pst_list_entry(it, struct pool_op, link);

        if (pool_op->awaits_map)
            pool->due_ns = pool_op->due_ns = 0;
    }
}

void pst_pool_op_await_node(struct pool *pool, struct pool_op *pool_op)
{
    pst_assert(pool->node_count == 0);
    pst_pool_map_fetch(pool);
    pst_pool_op_later(pool, pool_op, NULL, PENSTOCK_BUSY);
}

bool pst_pool_op_doubts_map(struct pool *pool, struct pool_op *pool_op)
{
    pst_assert(pool_op->attempts == 0);
    pst_assert(pool->map);
    if (!pst_pool_op_unreachable(pool_op->result))
        return false;
    pool_op->stale_version = pool->map->version;
    pool_op->stale_result = pool_op->result;
    pst_pool_op_await_map(pool, pool_op);
    return true;
}

bool pst_pool_op_ends_by_map(struct pool *pool, struct pool_op *pool_op)
{
    pst_assert(pool_op->attempts == 0);
    pst_assert(pst_list_empty(&pool_op->link));
    if (!pool_op->stale_result || pool_op->stale_version != pool->map->version)
        return false;
    pst_pool_op_finish(pool, pool_op, NULL, pool_op->stale_result);
    return true;
}

/* ---- attempts ---- */

void pst_attempt_send(struct pool *pool, struct attempt *attempt, struct pool_op *pool_op,
                      struct pool_node *node, int shard)
{
    int r = pst_pool_peer_open(pool, &node->peer);

    pst_assert(pool_op->magic == PST_POOL_OP_MAGIC);
    pst_assert(pst_list_empty(&pool_op->link));
    pst_assert(attempt != &pool_op->first || pool_op->attempts == 0);
    attempt->op = *pool_op->op;
    attempt->op.user = attempt;
    if (attempt->op.code == PST_WIRE_COMMIT) /* its key said which node */
        attempt->op.key_bytes = 0;
    attempt->pool_op = pool_op;
    attempt->node = node;
    attempt->shard = shard;
    attempt->patient_ns = 0;
    pst_list_init(&attempt->link);
    if (pool_op->kind == POOL_OP_PUT)
        attempt->op.flags |= PENSTOCK_IF_ABSENT;
    if (attempt->asks) {
        attempt->op = (struct penstock_op){.user = attempt};
        pst_op_set_trace(&attempt->op, pst_op_trace(pool_op->op));
        penstock_prep(&attempt->op, PENSTOCK_STAT_KEY, pool_op->op->key, pool_op->op->key_bytes);
    } else if (pool_op->op->code == PENSTOCK_PUT) {
        pool->counters.put_bytes += pool_op->op->bytes;
    }
    pool_op->attempts++;
    if (r == 0) {
        pst_pool_peer_submit(pool, &node->peer, &attempt->op, shard, &pool->ended,
                             pool_op->until_ns + POOL_GRACE_NS);
        return;
    }
    node->peer.underway++; /* its end gives that back */
    if (node->peer.underway == 1)
        pst_list_push_back(&pool->busy, &node->peer.link);
    pst_op_begin(&attempt->op, shard, &pool->ended);
    pst_op_end(&attempt->op, r);
}

void pst_pool_op_send_first(struct pool *pool, struct pool_op *pool_op, struct pool_node *node)
{
    pst_assert(pool_op->attempts == 0);
    pool_op->first.asks = false;
    pst_attempt_send(pool, &pool_op->first, pool_op, node, -1);
}

void pst_pool_op_send_another(struct pool *pool, struct pool_op *pool_op, struct pool_node *node)
{
    struct attempt *attempt = pool_op->attempts == 0 ? &pool_op->first : malloc(sizeof(*attempt));

    pst_assert(pool_op->magic == PST_POOL_OP_MAGIC);
    pst_assert(pool_op->kind != POOL_OP_SIDE);
    if (!attempt) {
        pool_op->result = -ENOMEM;
        return;
    }
    attempt->asks = false;
    pst_attempt_send(pool, attempt, pool_op, node, -1);
}

bool pst_pool_op_unreachable(int result)
{
    switch (result) {
    case -ECONNREFUSED:
    case -EHOSTUNREACH:
    case -ENETUNREACH:
    case -ECONNRESET:
    case -ETIMEDOUT:
    case -EPROTO:
    case PST_POOL_STANDBY:
        return true;
    default:
        return false;
    }
}

/* ---- a shard ---- */

/* What a shard held for its session went with the node. */
static void side_gone(struct pool *pool, struct pool_op *pool_op)
{
    pst_pool_op_finish(pool, pool_op, NULL, pst_code_has(pool_op->op->code, PST_CODE_RETURNS) ? 0 : -ESTALE);
}

static void side_begin(struct pool *pool, struct pool_op *pool_op)
{
    const struct pool_shard *side = pool_op->side < pool->shard_count ? &pool->shards[pool_op->side] : NULL;

    pst_assert(pool_op->kind == POOL_OP_SIDE);
    pst_assert(pool_op->attempts == 0);
    pst_assert(pool->shard_count <= POOL_SHARDS_MAX);
    if (side && side->node)
        pst_attempt_send(pool, &pool_op->first, pool_op, side->node, (int)side->shard);
    else
        side_gone(pool, pool_op);
}

static void side_ended(struct pool *pool, struct pool_op *pool_op, struct attempt *attempt, int result)
{
    pst_assert(attempt == &pool_op->first);
    pst_assert(pool_op->attempts == 0);
    if (result == PENSTOCK_BUSY)
        pst_pool_op_later(pool, pool_op, attempt, result);
    else
        pst_pool_op_finish(pool, pool_op, attempt, result);
}

/* ---- all of them ---- */

static void pool_op_begin(struct pool *pool, struct pool_op *pool_op)
{
    static void (*const begin[])(struct pool *, struct pool_op *) = {
        [POOL_OP_SIDE] = side_begin,     [POOL_OP_HOME] = pst_home_begin, [POOL_OP_STICKY] = pst_sticky_begin,
        [POOL_OP_READ] = pst_read_begin, [POOL_OP_PUT] = pst_put_begin,   [POOL_OP_ALL] = pst_all_begin,
    };

    pst_assert(pool_op->magic == PST_POOL_OP_MAGIC);
    pst_assert(pool_op->attempts == 0);
    pst_assert(pool_op->kind < pst_count_of(begin));
    pst_list_remove(&pool_op->link);
    pool_op->awaits_map = false;
    begin[pool_op->kind](pool, pool_op);
}

void pst_pool_routed(struct pool *pool, struct pool_op *pool_op, const struct pst_pool_route *route,
                     int error)
{
    pst_assert(pool_op->magic == PST_POOL_OP_MAGIC);
    pst_assert(pool_op->attempts == 0);
    pst_assert(pst_list_empty(&pool_op->link));
    pst_assert(pool_op->kind == POOL_OP_PUT || pool_op->kind == POOL_OP_READ);
    pst_assert(!route || route->place_count <= PST_POOL_ROUTE_PLACES_MAX); /* decoded */
    if (pool_op->kind == POOL_OP_PUT)
        pst_put_routed(pool, pool_op, route);
    else
        pst_read_routed(pool, pool_op, route, error);
}

/* Counts from the first time that the node was busy. */
static bool is_patient(struct attempt *attempt)
{
    uint64_t now_ns = pst_now_ns();

    pst_assert(attempt->node->peer.underway > 0);
    attempt->patient_ns = attempt->patient_ns ? attempt->patient_ns : now_ns + PATIENT_NS;
    return attempt->node->peer.channel && now_ns < attempt->patient_ns;
}

static void send_refused(struct pool *pool)
{
    while (!pst_list_empty(&pool->refused)) {
        struct attempt *attempt = pst_list_first(&pool->refused, struct attempt, link);

        pst_assert(attempt->node->peer.underway > 0);
        pst_assert(attempt->node->peer.channel);
        pst_assert(attempt->pool_op->attempts > 0);
        pst_assert(attempt->pool_op->magic == PST_POOL_OP_MAGIC);
        pst_list_remove(&attempt->link);
        pool->counters.retries++;
        attempt->node->peer.dirty = true;
        pst_channel_submit_until(attempt->node->peer.channel, &attempt->op, attempt->shard, &pool->ended,
                                 attempt->pool_op->until_ns + POOL_GRACE_NS);
    }
}

void pst_pool_attempt_ended(struct pool *pool, struct penstock_op *op)
{
    static void (*const ended[])(struct pool *, struct pool_op *, struct attempt *, int) = {
        [POOL_OP_SIDE] = side_ended,     [POOL_OP_HOME] = pst_home_ended, [POOL_OP_STICKY] = pst_sticky_ended,
        [POOL_OP_READ] = pst_read_ended, [POOL_OP_PUT] = pst_put_ended,   [POOL_OP_ALL] = pst_all_ended,
    };
    struct attempt *attempt = op->user;
    struct pool_op *pool_op = attempt->pool_op;
    struct pool_node *node = attempt->node;
    bool own = attempt == &pool_op->first;
    int result = op->result;

    pst_assert(pool_op->magic == PST_POOL_OP_MAGIC);
    pst_assert(pool_op->attempts > 0);
    pst_assert(pool_op->kind < pst_count_of(ended));
    pst_assert(node->peer.underway > 0);
    pst_assert(pst_list_empty(&attempt->link));
    if (result == PENSTOCK_BUSY && is_patient(attempt)) {
        if (pst_list_empty(&pool->refused))
            pool->refused_ns = pst_now_ns() + BUSY_NS;
        pst_list_push_back(&pool->refused, &attempt->link);
        return;
    }
    pool_op->attempts--;
    if (pst_pool_op_unreachable(result) && pst_now_ns() >= node->peer.retry_ns && !node->ended) {
        pst_pool_peer_failed(&node->peer, result);
        pst_pool_suspect(pool, node);
    } else if (result >= 0) {
        node->peer.retry_ms = 0;
    }
    (attempt->asks ? pst_put_asked_ended : ended[pool_op->kind])(pool, pool_op, attempt, result);
    pst_pool_node_back(pool, node);
    if (!own)
        free(attempt);
}

bool pst_pool_pool_ops_due(struct pool *pool)
{
    uint64_t now_ns;
    struct pst_list due;

    if (pst_list_empty(&pool->waiting) && pst_list_empty(&pool->refused))
        return false;
    now_ns = pst_now_ns();
    if (now_ns >= pool->refused_ns)
        send_refused(pool);
    if (now_ns < pool->due_ns)
        return false;
    pst_list_init(&due);
    pool->due_ns = UINT64_MAX;
    pst_list_each_safe (it, &pool->waiting) {
        struct pool_op *pool_op = pst_list_entry(it, struct pool_op, link);

        pst_assert(pool_op->magic == PST_POOL_OP_MAGIC);
        pst_assert(pool_op->attempts == 0);
        if (pool_op->due_ns > now_ns) {
            pool->due_ns = pst_min(pool->due_ns, pool_op->due_ns);
            continue;
        }
        pst_list_remove(it);
        pst_list_push_back(&due, it);
    }
    while (!pst_list_empty(&due))
        pool_op_begin(pool, pst_list_first(&due, struct pool_op, link));
    return true;
}

/* Of a key that may lie anywhere. Return: false: the operation is none on a key alone. */
static bool kind_anywhere(const struct penstock_op *op, enum pool_op_kind *kind)
{
    uint32_t traits = pst_code_traits(op->code);

    if (!(traits & PST_CODE_PUBLIC))
        return false;
    pst_assert(op->code == PENSTOCK_PUT ||
               traits & (PST_CODE_READS | PST_CODE_EVERYWHERE | PST_CODE_RESERVATION));
    *kind = op->code == PENSTOCK_PUT       ? POOL_OP_PUT
            : traits & PST_CODE_READS      ? POOL_OP_READ
            : traits & PST_CODE_EVERYWHERE ? POOL_OP_ALL
                                           : POOL_OP_STICKY;
    return true;
}

/* A condition on a generation: each node gives its own, so it means nothing to the others. */
static bool senseless(const struct pool_op *pool_op)
{
    bool writes = pool_op->kind == POOL_OP_PUT || pool_op->kind == POOL_OP_ALL;

    return writes && pool_op->op->flags & PENSTOCK_IF_GENERATION;
}

static uint64_t until_ns(const struct pool *pool, const struct penstock_op *op, uint64_t now_ns)
{
    return pst_deadline_ns(now_ns, pool->options.timeout_ms + pst_op_extra_ms(op) +
                                       pst_op_wait_ms(op, pool->options.timeout_ms));
}

static void set_out(struct pool *pool, struct pool_op *pool_op, struct penstock_op *op, uint64_t now_ns)
{
    const struct pst_map_prefix *prefix =
        pst_map_prefix_of(pool->map, (struct pst_bytes){op->key, op->key_bytes});
    bool known = kind_anywhere(op, &pool_op->kind) || op->code == PST_WIRE_COMMIT;

    pool_op->op = op;
    pool_op->first.op = *op; /* what it says when no node was asked */
    if (pst_pool_key_home(pool, (struct pst_bytes){op->key, op->key_bytes}))
        pool_op->kind = POOL_OP_HOME;
    pool_op->key = pst_hash128(op->key, op->key_bytes, pool->map->seed);
    pool_op->until_ns = until_ns(pool, op, now_ns);
    pool_op->wanted =
        (uint8_t)pst_min(pst_max(pool->replicas, prefix ? prefix->replicas : 1), PST_MAP_REPLICAS_MAX);
    pool_op->wanted = pool_op->wanted ? pool_op->wanted : 1;
    pst_assert(pool_op->wanted >= 1 && pool_op->wanted <= PST_MAP_REPLICAS_MAX);
    if (!known)
        pst_pool_op_finish(pool, pool_op, NULL, -EINVAL);
    else if (senseless(pool_op))
        pst_pool_op_finish(pool, pool_op, NULL, -EOPNOTSUPP);
    else
        pool_op_begin(pool, pool_op);
}

/* ---- from the store ---- */

static void submit_to_side(struct pool *pool, struct penstock_op *op, int shard)
{
    struct pool_op *pool_op = pool_op_take(pool);

    pst_assert(shard >= 0);
    if (!pool_op) {
        pst_op_end(op, -ENOMEM);
        return;
    }
    pool_op->kind = POOL_OP_SIDE;
    pool_op->op = op;
    pool_op->first.op = *op;
    pool_op->side = (uint32_t)shard;
    pool_op->until_ns = until_ns(pool, op, pst_now_ns());
    pool_op_begin(pool, pool_op);
}

void pst_pool_submit(struct penstock *store, struct penstock_op *op, int shard, struct pst_op_list *done)
{
    struct pool *pool = pst_pool_of(store);
    int r = pst_op_begin(op, shard, done);

    if (r < 0)
        pst_op_end(op, r);
    else if (shard == POOL_SHARD_OF_MASTER && op->code == PST_POOL_MAP)
        pst_pool_map_ask(pool, op);
    else if (shard >= POOL_SHARD_OF_MASTER)
        pst_pool_relay(pool, op, (uint32_t)(shard - POOL_SHARD_OF_MASTER));
    else if (shard >= 0)
        submit_to_side(pool, op, shard);
    else
        pst_op_list_push(&pool->pending, op);
}

bool pst_pool_pool_ops_set_out(struct pool *pool)
{
    uint64_t now_ns = pool->pending.count ? pst_now_ns() : 0;
    bool any = false;

    while (pool->pending.count && (!pst_list_empty(&pool->idle) || pool->pool_op_count < POOL_POOL_OPS_MAX)) {
        struct penstock_op *op = pst_op_list_pop(&pool->pending);
        struct pool_op *pool_op = pool_op_take(pool);

        if (pool_op)
            set_out(pool, pool_op, op, now_ns);
        else
            pst_op_end(op, -ENOMEM);
        any = true;
    }
    return any;
}

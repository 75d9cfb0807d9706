/* SPDX-License-Identifier: Apache-2.0 */
/*
 * put.c: puts of keys that may lie anywhere: to new places, unless there is one. A put of what is there
 * is done, and sends nothing.
 */
#include "client/pool/pool_op_priv.h"

#include "base/clock.h"
#include "wire/pool_key.h"

static bool was_tried(const struct pool_op *pool_op, uint16_t member)
{
    pst_assert(pool_op->tried_count <= POOL_TRIED_MAX);
    for (uint32_t i = 0; i < pool_op->tried_count; i++) {
        if (pool_op->tried[i] == member)
            return true;
    }
    return false;
}

static void put_to(struct pool *pool, struct pool_op *pool_op, struct pool_node *node)
{
    pst_assert(pool_op->tried_count < POOL_TRIED_MAX);
    pst_assert(!was_tried(pool_op, node->member));
    pool_op->tried[pool_op->tried_count++] = node->member;
    pst_pool_op_send_another(pool, pool_op, node);
}

static bool host_taken(struct pool *pool, const struct pool_op *pool_op, const struct pool_node *node)
{
    for (uint32_t i = 0; i < pool_op->tried_count; i++) {
        const struct pool_node *other = pst_pool_node(pool, pool_op->tried[i]);

        if (other && pst_id_equal(&other->host, &node->host))
            return true;
    }
    return false;
}

/* A node for one more copy: on this host, else by chance. NULL: none is left. */
static struct pool_node *spare_node(struct pool *pool, const struct pool_op *pool_op)
{
    struct pool_node *best = NULL;
    uint64_t most = 0, now_ns = pst_now_ns();

    pst_assert(pool_op->tried_count <= POOL_TRIED_MAX);
    if (pool_op->tried_count == POOL_TRIED_MAX)
        return NULL;
    for (uint32_t i = 0, left = pool->node_count; left > 0; i++) {
        struct pool_node *node = pool->nodes[i];
        uint64_t score;

        pst_assert(i < PST_MAP_MEMBERS_MAX); /* as many as node_count says */
        if (!node)
            continue;
        left--;
        if (node->drains || was_tried(pool_op, node->member) ||
            now_ns < pst_max(node->peer.retry_ns, node->peer.suspect_ns) ||
            (pool_op->copies > 0 && host_taken(pool, pool_op, node)))
            continue;
        score = pst_hash64(&node->id, sizeof(node->id), pool_op->key.low) >> 1;
        if (pst_id_equal(&node->host, &pool->host))
            score |= 1ull << 63;
        if (!best || score > most) {
            best = node;
            most = score;
        }
    }
    return best;
}

static void put_finish(struct pool *pool, struct pool_op *pool_op)
{
    int result = pool_op->copies ? 0 : pool_op->result;

    pst_assert(pool_op->kind == POOL_OP_PUT);
    pst_assert(pool_op->attempts == 0);
    pst_assert(pool_op->copies <= pool_op->wanted);
    pool_op->first.op.generation = pool_op->generation;
    if (pool_op->copies && !pool_op->written) {
        pool->counters.existed++;
        result = pool_op->op->flags & PENSTOCK_IF_ABSENT ? PENSTOCK_EXISTS : 0;
    }
    if (result == PENSTOCK_BUSY)
        pst_pool_op_later(pool, pool_op, NULL, result);
    else
        pst_pool_op_finish(pool, pool_op, NULL, result);
}

/* All attempts have ended: more copies where they are wanted and there is room. */
static void put_more(struct pool *pool, struct pool_op *pool_op)
{
    struct pool_node *node = NULL;

    pst_assert(pool_op->attempts == 0);
    pst_assert(pool_op->wanted > 0);
    if (pool_op->copies < pool_op->wanted && pool_op->result != PENSTOCK_UNKNOWN)
        node = spare_node(pool, pool_op);
    if (pool->node_count == 0 && !pool_op->copies) {
        pst_pool_op_await_node(pool, pool_op);
        return;
    }
    if (!node) {
        pool_op->result = pool_op->result ? pool_op->result : -EHOSTUNREACH;
        if (pool_op->copies || !pst_pool_op_doubts_map(pool, pool_op))
            put_finish(pool, pool_op);
        return;
    }
    pool->counters.failovers += pool_op->tried_count > 0;
    put_to(pool, pool_op, node);
}

/* Whether it is still where it was once: what is there is not sent. */
static void put_ask(struct pool *pool, struct pool_op *pool_op, struct pool_node *node)
{
    pst_assert(pool_op->kind == POOL_OP_PUT);
    pst_assert(pool_op->attempts == 0);
    pst_assert(!node->ended);
    pool_op->first.asks = true;
    pst_attempt_send(pool, &pool_op->first, pool_op, node, -1);
}

void pst_put_begin(struct pool *pool, struct pool_op *pool_op)
{
    struct pool_node *node = NULL;

    pst_assert(pool_op->kind == POOL_OP_PUT);
    pst_assert(pool_op->attempts == 0);
    if (pst_pool_op_ends_by_map(pool, pool_op))
        return;
    pool_op->result = 0;
    pool_op->tried_count = 0;
    pool_op->asked = false;
    pool_op->place_count = (uint8_t)pst_pool_cache_find(pool->cache, &pool_op->key, pool_op->places);
    pst_assert(pool_op->place_count <= PST_POOL_ROUTE_PLACES_MAX);
    pst_pool_op_sort_places(pool, pool_op);
    if (pool_op->place_count)
        node = pst_pool_node(pool, pool_op->places[0]);
    pool->counters.located += node != NULL;
    if (node)
        put_ask(pool, pool_op, node);
    else
        pst_list_push_back(&pool->placing, &pool_op->link);
}

void pst_put_routed(struct pool *pool, struct pool_op *pool_op, const struct pst_pool_route *route)
{
    bool exists = route && route->status == PST_POOL_EXISTS;
    struct pool_node *node;

    pst_assert(pool_op->attempts == 0);
    pool_op->asked = true;
    if (route && route->status == PST_POOL_UNAVAILABLE)
        pool_op->result = -ENOSPC;
    for (uint32_t i = 0; route && i < route->place_count && pool_op->tried_count < pool_op->wanted; i++) {
        node = pst_pool_node(pool, route->places[i].member);
        if (!node)
            pst_pool_map_fetch(pool);
        if (!node || was_tried(pool_op, node->member))
            continue;
        if (exists) {
            put_ask(pool, pool_op, node);
            return;
        }
        put_to(pool, pool_op, node);
    }
    if (pool_op->attempts == 0) /* no master, or one that knows others than we do */
        put_more(pool, pool_op);
}

void pst_put_asked_ended(struct pool *pool, struct pool_op *pool_op, struct attempt *attempt, int result)
{
    pst_assert(pool_op->attempts == 0);
    pst_assert(attempt->asks);
    pst_assert(attempt == &pool_op->first);
    pst_assert(pool_op->copies == 0);
    if (result == 0) {
        pool_op->copies = 1;
        pool_op->generation = attempt->op.generation;
        pst_pool_cache_add(pool->cache, &pool_op->key, attempt->node->member);
        put_finish(pool, pool_op);
        return;
    }
    pst_pool_cache_drop(pool->cache, &pool_op->key);
    if (!pool_op->asked)
        pst_list_push_back(&pool->placing, &pool_op->link);
    else if (result == PENSTOCK_MISS)
        put_to(pool, pool_op, attempt->node); /* the master has not heard yet that it went */
    else
        put_more(pool, pool_op);
}

void pst_put_ended(struct pool *pool, struct pool_op *pool_op, struct attempt *attempt, int result)
{
    pst_assert(pool_op->kind == POOL_OP_PUT);
    pst_assert(pool_op->wanted > 0);
    if (result == 0 || result == PENSTOCK_EXISTS) {
        pst_assert(pool_op->copies < pool_op->wanted);
        pool_op->copies++;
        pool_op->written |= result == 0;
        pool_op->generation = attempt->op.generation;
        pst_pool_cache_add(pool->cache, &pool_op->key, attempt->node->member);
    } else if (pool_op->result != PENSTOCK_UNKNOWN) {
        pool_op->result = result;
    }
    if (pool_op->attempts > 0)
        return;
    if (pool_op->copies >= pool_op->wanted)
        put_finish(pool, pool_op);
    else if (pool_op->result == 0 || pst_pool_op_unreachable(pool_op->result) || pool_op->result == -ENOSPC ||
             pool_op->result == -EIO || pool_op->result == PENSTOCK_BUSY || pool_op->copies)
        put_more(pool, pool_op);
    else
        put_finish(pool, pool_op); /* refused for what it is */
}

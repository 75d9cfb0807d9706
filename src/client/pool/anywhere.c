/* SPDX-License-Identifier: Apache-2.0 */
/*
 * anywhere.c: operations on keys that may lie anywhere, puts excepted. What is there is what the name
 * says, wherever it is: a read is content with any of the places.
 */
#include "client/pool/pool_op_priv.h"

#include "base/clock.h"
#include "wire/pool_key.h"

/* ---- one node by the key, and all nodes ---- */

/* The node whose number the key's hash likes best: the same for everyone, as long as it is there. */
static struct pool_node *sticky_node(struct pool *pool, const struct pool_op *pool_op)
{
    struct pool_node *best = NULL;
    uint64_t most = 0;

    for (uint32_t i = 0, left = pool->node_count; left > 0; i++) {
        uint64_t score;

        pst_assert(i < PST_MAP_MEMBERS_MAX); /* as many as node_count says */
        if (!pool->nodes[i])
            continue;
        left--;
        score = pst_hash64(&pool->nodes[i]->id, sizeof(struct pst_id), pool_op->key.low) >> 1;
        score |= (uint64_t)!pool->nodes[i]->drains << 63;
        if (!best || score > most) {
            best = pool->nodes[i];
            most = score;
        }
    }
    return best;
}

void pst_sticky_begin(struct pool *pool, struct pool_op *pool_op)
{
    struct pool_node *node = sticky_node(pool, pool_op);

    pst_assert(pool_op->kind == POOL_OP_STICKY);
    pst_assert(pool_op->attempts == 0);
    if (pst_pool_op_ends_by_map(pool, pool_op))
        return;
    if (node)
        pst_pool_op_send_first(pool, pool_op, node);
    else
        pst_pool_op_await_node(pool, pool_op);
}

void pst_sticky_ended(struct pool *pool, struct pool_op *pool_op, struct attempt *attempt, int result)
{
    pst_assert(pool_op->attempts == 0);
    pst_assert(pool_op->kind == POOL_OP_STICKY);
    pst_assert(attempt == &pool_op->first);
    if (result == 0 && pool_op->op->code == PENSTOCK_RESERVATION_COMMIT)
        pst_pool_cache_add(pool->cache, &pool_op->key, attempt->node->member);
    pool_op->result = result;
    if (result == PENSTOCK_BUSY)
        pst_pool_op_later(pool, pool_op, attempt, result);
    else if (!pst_pool_op_doubts_map(pool, pool_op))
        pst_pool_op_finish(pool, pool_op, attempt, result);
}

/* All are those of the pool map as it is now: any of them may have the key. */
void pst_all_begin(struct pool *pool, struct pool_op *pool_op)
{
    pst_assert(pool_op->kind == POOL_OP_ALL);
    pst_assert(pool_op->attempts == 0);
    if (!pool_op->map_asked) {
        pst_pool_op_await_map(pool, pool_op);
        return;
    }
    if (pst_pool_op_ends_by_map(pool, pool_op))
        return;
    if (pool->node_count == 0) {
        pst_pool_op_await_node(pool, pool_op);
        return;
    }
    pool_op->result = pool_op->written ? 0 : PENSTOCK_MISS;
    for (uint32_t i = 0, left = pool->node_count; left > 0; i++) {
        pst_assert(i < PST_MAP_MEMBERS_MAX); /* as many as node_count says */
        if (!pool->nodes[i])
            continue;
        left--;
        pst_pool_op_send_another(pool, pool_op, pool->nodes[i]);
    }
    if (pool_op->op->code == PENSTOCK_DELETE)
        pst_pool_cache_drop(pool->cache, &pool_op->key);
    if (pool_op->attempts == 0)
        pst_pool_op_finish(pool, pool_op, NULL, pool_op->result);
}

/* 0 if some node had the key and none failed, a MISS if none had it; with the generation of the node that
 * said so. */
void pst_all_ended(struct pool *pool, struct pool_op *pool_op, struct attempt *attempt, int result)
{
    bool worse = pool_op->result == PENSTOCK_MISS || (pool_op->result == 0 && result != PENSTOCK_MISS);

    pst_assert(pool_op->kind == POOL_OP_ALL);
    if (worse) {
        pool_op->result = result;
        pool_op->generation = attempt->op.generation;
    }
    pool_op->written |= result == 0;
    if (pool_op->attempts > 0)
        return;
    attempt->op.generation = pool_op->generation;
    pool_op->map_asked = false;
    if (pool_op->result == PENSTOCK_BUSY)
        pst_pool_op_later(pool, pool_op, attempt, pool_op->result);
    else if (!pst_pool_op_doubts_map(pool, pool_op))
        pst_pool_op_finish(pool, pool_op, attempt, pool_op->result);
}

/* ---- reads ---- */

/* Less is better. */
static uint32_t distance(struct pool *pool, uint16_t member)
{
    const struct pool_node *node = pst_pool_node(pool, member);

    if (!node)
        return 3;
    return (pst_id_equal(&node->host, &pool->host) ? 0 : 1) + (pst_now_ns() < node->peer.suspect_ns ? 2 : 0);
}

void pst_pool_op_sort_places(struct pool *pool, struct pool_op *pool_op)
{
    pst_assert(pool_op->place_count <= PST_POOL_ROUTE_PLACES_MAX);
    for (uint32_t i = 1; i < pool_op->place_count; i++) {
        uint16_t place = pool_op->places[i];
        uint32_t far = distance(pool, place), at = i;

        for (; at > 0 && distance(pool, pool_op->places[at - 1]) > far; at--)
            pool_op->places[at] = pool_op->places[at - 1];
        pool_op->places[at] = place;
    }
}

/* Until its value is there: what passes by itself does not end it before its time. */
static bool read_waits(const struct pool_op *pool_op)
{
    int result = pool_op->result;

    return pst_wire_waits(pool_op->op->code, pool_op->op->flags) &&
           (result == PENSTOCK_MISS || result == PENSTOCK_INCOMPLETE || pst_pool_op_unreachable(result));
}

/* What the places said that were asked so far, if any were: another one may have it. */
static bool place_lacks(int result)
{
    return !result || result == PENSTOCK_MISS || pst_pool_op_unreachable(result);
}

static void read_next(struct pool *pool, struct pool_op *pool_op, const struct attempt *attempt)
{
    pst_assert(pool_op->attempts == 0);
    pst_assert(pool_op->place_at <= pool_op->place_count);
    pst_assert(pool_op->place_count <= PST_POOL_ROUTE_PLACES_MAX);
    while (pool_op->place_at < pool_op->place_count) {
        struct pool_node *node = pst_pool_node(pool, pool_op->places[pool_op->place_at++]);

        if (node) {
            pst_pool_op_send_first(pool, pool_op, node);
            return;
        }
        pst_pool_map_fetch(pool); /* a member that we do not know yet, and that has it */
        pool_op->result = PENSTOCK_BUSY;
    }
    if (pool_op->cached) { /* it was there: where is it now? */
        pst_pool_cache_drop(pool->cache, &pool_op->key);
        pool_op->cached = false;
        pst_list_push_back(&pool->locating, &pool_op->link);
        return;
    }
    if (pool_op->result == PENSTOCK_BUSY || read_waits(pool_op))
        pst_pool_op_later(pool, pool_op, attempt, pool_op->result);
    else
        pst_pool_op_finish(pool, pool_op, attempt, pool_op->result ? pool_op->result : PENSTOCK_MISS);
}

struct pool_node *pst_pool_place_of(struct pool *pool, struct pst_bytes key)
{
    struct pool_op pool_op = {.key = pst_hash128(key.data, key.len, pool->map->seed)};

    pool_op.place_count = (uint8_t)pst_pool_cache_find(pool->cache, &pool_op.key, pool_op.places);
    pst_pool_op_sort_places(pool, &pool_op);
    return pool_op.place_count ? pst_pool_node(pool, pool_op.places[0]) : NULL;
}

void pst_read_begin(struct pool *pool, struct pool_op *pool_op)
{
    pst_assert(pool_op->kind == POOL_OP_READ);
    pst_assert(pool_op->attempts == 0);
    pool_op->result = 0;
    pool_op->place_at = 0;
    pool_op->place_count = (uint8_t)pst_pool_cache_find(pool->cache, &pool_op->key, pool_op->places);
    pst_assert(pool_op->place_count <= PST_POOL_ROUTE_PLACES_MAX);
    pool_op->cached = pool_op->place_count > 0;
    pool->counters.located += pool_op->cached;
    pst_pool_op_sort_places(pool, pool_op);
    if (pool_op->cached)
        read_next(pool, pool_op, NULL);
    else
        pst_list_push_back(&pool->locating, &pool_op->link);
}

void pst_read_routed(struct pool *pool, struct pool_op *pool_op, const struct pst_pool_route *route,
                     int error)
{
    pst_assert(pool_op->kind == POOL_OP_READ);
    pst_assert(pool_op->attempts == 0);
    if (!route) {
        pool_op->result = pool_op->result && pool_op->result != PENSTOCK_MISS ? pool_op->result : error;
        if (read_waits(pool_op))
            pst_pool_op_later(pool, pool_op, NULL, pool_op->result);
        else
            pst_pool_op_finish(pool, pool_op, NULL, pool_op->result);
        return;
    }
    pool_op->place_at = 0;
    pool_op->place_count = route->status == PST_POOL_ROUTED ? route->place_count : 0;
    for (uint32_t i = 0; i < pool_op->place_count; i++)
        pool_op->places[i] = route->places[i].member;
    pst_pool_op_sort_places(pool, pool_op);
    /* A place that was known and has it not is none any more. */
    if (pool_op->place_count == 0 && place_lacks(pool_op->result))
        pool_op->result = route->status == PST_POOL_INCOMPLETE ? PENSTOCK_INCOMPLETE : PENSTOCK_MISS;
    read_next(pool, pool_op, NULL);
}

/* A place that has it not, not any more, or not now; why the next may do better. */
static bool read_goes_on(int result)
{
    return pst_pool_op_unreachable(result) || result == PENSTOCK_MISS || result == PENSTOCK_STALE ||
           result == PENSTOCK_BUSY || result == -EBADMSG || result == -ESTALE;
}

void pst_read_ended(struct pool *pool, struct pool_op *pool_op, struct attempt *attempt, int result)
{
    pst_assert(pool_op->kind == POOL_OP_READ);
    pst_assert(attempt == &pool_op->first);
    pst_assert(pool_op->attempts == 0);
    pst_assert(pool_op->place_at <= pool_op->place_count);
    if (!read_goes_on(result)) {
        if (result >= 0 || result == -ENOBUFS)
            pst_pool_cache_add(pool->cache, &pool_op->key, attempt->node->member);
        pst_pool_op_finish(pool, pool_op, attempt, result);
        return;
    }
    if (!pool_op->result || pool_op->result == PENSTOCK_MISS)
        pool_op->result = result; /* only where all places say so is the value missing */
    pool->counters.failovers += pool_op->place_at < pool_op->place_count;
    read_next(pool, pool_op, attempt);
}

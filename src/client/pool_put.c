/*
 * pool_put.c: puts of keys that may lie anywhere: to new places, unless there is one. A put of what is there
 * is done, and sends nothing.
 */
#include "client/pool_trip_priv.h"

#include "base/clock.h"

static bool was_tried(const struct trip *trip, uint16_t member)
{
    for (uint32_t i = 0; i < trip->tried_count; i++) {
        if (trip->tried[i] == member)
            return true;
    }
    return false;
}

static void put_to(struct pool *pool, struct trip *trip, struct pool_node *node)
{
    pst_assert(trip->tried_count < POOL_TRIED_MAX);
    trip->tried[trip->tried_count++] = node->member;
    pst_trip_send_another(pool, trip, node);
}

static bool host_taken(struct pool *pool, const struct trip *trip, const struct pool_node *node)
{
    for (uint32_t i = 0; i < trip->tried_count; i++) {
        const struct pool_node *other = pst_pool_node(pool, trip->tried[i]);

        if (other && pst_id_equal(&other->host, &node->host))
            return true;
    }
    return false;
}

/* A node for one more copy: on this host, else by chance. NULL: none is left. */
static struct pool_node *spare_node(struct pool *pool, const struct trip *trip)
{
    struct pool_node *best = NULL;
    uint64_t most = 0, now_ns = pst_now_ns();

    if (trip->tried_count == POOL_TRIED_MAX)
        return NULL;
    for (uint32_t i = 0, left = pool->node_count; left > 0; i++) {
        struct pool_node *node = pool->nodes[i];
        uint64_t score;

        if (!node)
            continue;
        left--;
        if (node->drains || was_tried(trip, node->member) ||
            now_ns < pst_max(node->end.retry_ns, node->end.suspect_ns) ||
            (trip->copies > 0 && host_taken(pool, trip, node)))
            continue;
        score = pst_hash64(&node->id, sizeof(node->id), trip->key.low) >> 1;
        if (pst_id_equal(&node->host, &pool->host))
            score |= 1ull << 63;
        if (!best || score > most) {
            best = node;
            most = score;
        }
    }
    return best;
}

static void put_finish(struct pool *pool, struct trip *trip)
{
    int result = trip->copies ? 0 : trip->result;

    trip->first.op.generation = trip->generation;
    if (trip->copies && !trip->written) {
        pool->counters.existed++;
        result = trip->op->flags & PENSTOCK_IF_ABSENT ? PENSTOCK_EXISTS : 0;
    }
    if (result == PENSTOCK_BUSY) {
        trip->tried_count = 0;
        pst_trip_later(pool, trip, NULL, result);
    } else {
        pst_trip_finish(pool, trip, NULL, result);
    }
}

/* All legs have ended: more copies where they are wanted and there is room. */
static void put_more(struct pool *pool, struct trip *trip)
{
    struct pool_node *node = NULL;

    if (trip->copies < trip->wanted && trip->result != PENSTOCK_UNKNOWN)
        node = spare_node(pool, trip);
    if (!node) {
        trip->result = trip->result ? trip->result : -EHOSTUNREACH;
        put_finish(pool, trip);
        return;
    }
    pool->counters.failovers += trip->tried_count > 0;
    put_to(pool, trip, node);
}

/* Whether it is still where it was once: what is there is not sent. */
static void put_ask(struct pool *pool, struct trip *trip, struct pool_node *node)
{
    trip->first.asks = true;
    pst_leg_send(pool, &trip->first, trip, node, -1);
}

void pst_put_begin(struct pool *pool, struct trip *trip)
{
    struct pool_node *node = NULL;

    trip->result = 0;
    trip->asked = false;
    trip->place_count = (uint8_t)pst_pool_cache_find(pool->cache, &trip->key, trip->places);
    pst_trip_sort_places(pool, trip);
    if (trip->place_count)
        node = pst_pool_node(pool, trip->places[0]);
    pool->counters.located += node != NULL;
    if (node)
        put_ask(pool, trip, node);
    else
        pst_list_push_back(&pool->placing, &trip->link);
}

void pst_put_routed(struct pool *pool, struct trip *trip, const struct pst_pool_route *route)
{
    bool exists = route && route->status == PST_POOL_EXISTS;
    struct pool_node *node;

    trip->asked = true;
    if (route && route->status == PST_POOL_UNAVAILABLE)
        trip->result = -ENOSPC;
    for (uint32_t i = 0; route && i < route->place_count && trip->tried_count < trip->wanted; i++) {
        node = pst_pool_node(pool, route->places[i].member);
        if (!node)
            pst_pool_view_fetch(pool);
        if (!node || was_tried(trip, node->member))
            continue;
        if (exists) {
            put_ask(pool, trip, node);
            return;
        }
        put_to(pool, trip, node);
    }
    if (trip->legs == 0) /* no master, or one that knows others than we do */
        put_more(pool, trip);
}

void pst_put_asked_ended(struct pool *pool, struct trip *trip, struct leg *leg, int result)
{
    if (result == 0) {
        trip->copies = 1;
        trip->generation = leg->op.generation;
        pst_pool_cache_add(pool->cache, &trip->key, leg->node->member);
        put_finish(pool, trip);
        return;
    }
    pst_pool_cache_drop(pool->cache, &trip->key);
    if (!trip->asked)
        pst_list_push_back(&pool->placing, &trip->link);
    else if (result == PENSTOCK_MISS)
        put_to(pool, trip, leg->node); /* the master has not heard yet that it went */
    else
        put_more(pool, trip);
}

void pst_put_ended(struct pool *pool, struct trip *trip, struct leg *leg, int result)
{
    if (result == 0 || result == PENSTOCK_EXISTS) {
        trip->copies++;
        trip->written |= result == 0;
        trip->generation = leg->op.generation;
        pst_pool_cache_add(pool->cache, &trip->key, leg->node->member);
    } else if (trip->result != PENSTOCK_UNKNOWN) {
        trip->result = result;
    }
    if (trip->legs > 0)
        return;
    if (trip->copies >= trip->wanted)
        put_finish(pool, trip);
    else if (trip->result == 0 || pst_trip_unreachable(trip->result) || trip->result == -ENOSPC ||
             trip->result == PENSTOCK_BUSY || trip->copies)
        put_more(pool, trip);
    else
        put_finish(pool, trip); /* refused for what it is */
}

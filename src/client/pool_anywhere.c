/*
 * pool_anywhere.c: operations on keys that may lie anywhere, puts excepted. What is there is what the name
 * says, wherever it is: a read is content with any of the places.
 */
#include "client/pool_trip_priv.h"

#include "base/clock.h"

/* ---- one node by the key, and all nodes ---- */

/* The node whose number the key's hash likes best: the same for everyone, as long as it is there. */
static struct pool_node *sticky_node(struct pool *pool, const struct trip *trip)
{
    struct pool_node *best = NULL;
    uint64_t most = 0;

    for (uint32_t i = 0, left = pool->node_count; left > 0; i++) {
        uint64_t score;

        if (!pool->nodes[i])
            continue;
        left--;
        score = pst_hash64(&pool->nodes[i]->id, sizeof(struct pst_id), trip->key.low) >> 1;
        score |= (uint64_t)!pool->nodes[i]->drains << 63;
        if (!best || score > most) {
            best = pool->nodes[i];
            most = score;
        }
    }
    return best;
}

void pst_sticky_begin(struct pool *pool, struct trip *trip)
{
    struct pool_node *node = sticky_node(pool, trip);

    if (node)
        pst_trip_send_first(pool, trip, node);
    else
        pst_trip_finish(pool, trip, NULL, -EHOSTUNREACH);
}

void pst_sticky_ended(struct pool *pool, struct trip *trip, struct leg *leg, int result)
{
    if (result == 0 && trip->op->code == PENSTOCK_SLOT_COMMIT)
        pst_pool_cache_add(pool->cache, &trip->key, leg->node->member);
    if (result == PENSTOCK_BUSY)
        pst_trip_later(pool, trip, leg, result);
    else
        pst_trip_finish(pool, trip, leg, result);
}

void pst_all_begin(struct pool *pool, struct trip *trip)
{
    trip->result = pool->node_count ? PENSTOCK_MISS : -EHOSTUNREACH;
    for (uint32_t i = 0, left = pool->node_count; left > 0; i++) {
        if (!pool->nodes[i])
            continue;
        left--;
        pst_trip_send_another(pool, trip, pool->nodes[i]);
    }
    if (trip->op->code == PENSTOCK_DELETE)
        pst_pool_cache_drop(pool->cache, &trip->key);
    if (trip->legs == 0)
        pst_trip_finish(pool, trip, NULL, trip->result);
}

/* Done when it is done everywhere, and there was something to do. */
void pst_all_ended(struct pool *pool, struct trip *trip, struct leg *leg, int result)
{
    bool worse = trip->result == PENSTOCK_MISS || (trip->result == 0 && result != PENSTOCK_MISS);

    if (worse)
        trip->result = result;
    if (trip->legs > 0)
        return;
    if (trip->result == PENSTOCK_BUSY)
        pst_trip_later(pool, trip, leg, trip->result);
    else
        pst_trip_finish(pool, trip, leg, trip->result);
}

/* ---- reads ---- */

/* Less is better. */
static uint32_t distance(struct pool *pool, uint16_t member)
{
    const struct pool_node *node = pst_pool_node(pool, member);

    if (!node)
        return 3;
    return (pst_id_equal(&node->host, &pool->host) ? 0 : 1) + (pst_now_ns() < node->end.suspect_ns ? 2 : 0);
}

void pst_trip_sort_places(struct pool *pool, struct trip *trip)
{
    for (uint32_t i = 1; i < trip->place_count; i++) {
        uint16_t place = trip->places[i];
        uint32_t far = distance(pool, place), at = i;

        for (; at > 0 && distance(pool, trip->places[at - 1]) > far; at--)
            trip->places[at] = trip->places[at - 1];
        trip->places[at] = place;
    }
}

static void read_next(struct pool *pool, struct trip *trip, const struct leg *leg)
{
    while (trip->place_at < trip->place_count) {
        struct pool_node *node = pst_pool_node(pool, trip->places[trip->place_at++]);

        if (node) {
            pst_trip_send_first(pool, trip, node);
            return;
        }
        pst_pool_view_fetch(pool); /* a member that we do not know yet */
        trip->result = trip->result ? trip->result : PENSTOCK_BUSY;
    }
    if (trip->cached) { /* it was there: where is it now? */
        pst_pool_cache_drop(pool->cache, &trip->key);
        trip->cached = false;
        pst_list_push_back(&pool->locating, &trip->link);
        return;
    }
    if (trip->result == PENSTOCK_BUSY ||
        (trip->result == PENSTOCK_MISS && pst_wire_waits(trip->op->code, trip->op->flags)))
        pst_trip_later(pool, trip, leg, trip->result);
    else
        pst_trip_finish(pool, trip, leg, trip->result ? trip->result : PENSTOCK_MISS);
}

struct pool_node *pst_pool_place_of(struct pool *pool, struct pst_bytes key)
{
    struct trip trip = {.key = pst_hash128(key.data, key.len, pool->view->seed)};

    trip.place_count = (uint8_t)pst_pool_cache_find(pool->cache, &trip.key, trip.places);
    pst_trip_sort_places(pool, &trip);
    return trip.place_count ? pst_pool_node(pool, trip.places[0]) : NULL;
}

void pst_read_begin(struct pool *pool, struct trip *trip)
{
    trip->result = 0;
    trip->place_at = 0;
    trip->place_count = (uint8_t)pst_pool_cache_find(pool->cache, &trip->key, trip->places);
    trip->cached = trip->place_count > 0;
    pool->counters.located += trip->cached;
    pst_trip_sort_places(pool, trip);
    if (trip->cached)
        read_next(pool, trip, NULL);
    else
        pst_list_push_back(&pool->locating, &trip->link);
}

void pst_read_routed(struct pool *pool, struct trip *trip, const struct pst_pool_route *route, int error)
{
    if (!route) {
        trip->result = trip->result && trip->result != PENSTOCK_MISS ? trip->result : error;
        pst_trip_finish(pool, trip, NULL, trip->result);
        return;
    }
    trip->place_at = 0;
    trip->place_count = route->status == PST_POOL_ROUTED ? route->place_count : 0;
    for (uint32_t i = 0; i < trip->place_count; i++)
        trip->places[i] = route->places[i].member;
    pst_trip_sort_places(pool, trip);
    if (trip->place_count == 0 && !trip->result)
        trip->result = route->status == PST_POOL_INCOMPLETE ? PENSTOCK_INCOMPLETE : PENSTOCK_MISS;
    read_next(pool, trip, NULL);
}

/* A place that has it not, not any more, or not now; why the next may do better. */
static bool read_goes_on(int result)
{
    return pst_trip_unreachable(result) || result == PENSTOCK_MISS || result == PENSTOCK_STALE ||
           result == PENSTOCK_BUSY || result == -EBADMSG || result == -ESTALE;
}

void pst_read_ended(struct pool *pool, struct trip *trip, struct leg *leg, int result)
{
    if (!read_goes_on(result)) {
        if (result >= 0 || result == -ENOBUFS)
            pst_pool_cache_add(pool->cache, &trip->key, leg->node->member);
        pst_trip_finish(pool, trip, leg, result);
        return;
    }
    if (!trip->result || trip->result == PENSTOCK_MISS)
        trip->result = result; /* only where all places say so is the value missing */
    pool->counters.failovers += trip->place_at < trip->place_count;
    read_next(pool, trip, leg);
}

/*
 * pool_trip.c: operations on their way over a pool. Values that lie *home* have one owner at a time, who
 * decides about them as a node alone does. Values that lie *anywhere* are what their name says, wherever they
 * are: a put of what is there is done, a read is content with any of the places.
 *
 * A write goes to another node, or is sent again, only when it is known not to have been applied.
 */
#include "client/pool_priv.h"

#include "base/clock.h"

enum {
    DELAY_US_MIN = 200,
    DELAY_US_MAX = 20000,
    BUSY_NS = 200000,        /* a node that is busy is asked again, */
    PATIENT_NS = 100000000,  /* for so long, before another may be */
    BYTES_PER_MS = 64 << 10, /* extra time that a large value gets, as over a channel */
};

/* ---- trips ---- */

static struct trip *trip_take(struct pool *pool)
{
    struct trip *trip;

    if (!pst_list_empty(&pool->idle)) {
        trip = pst_list_first(&pool->idle, struct trip, link);
        pst_list_remove(&trip->link);
    } else {
        trip = malloc(sizeof(*trip));
        pool->trip_count += trip != NULL;
    }
    if (!trip)
        return NULL;
    memset(trip, 0, sizeof(*trip));
    trip->magic = PST_TRIP_MAGIC;
    pst_list_init(&trip->link);
    return trip;
}

void pst_pool_trips_free(struct pool *pool)
{
    while (!pst_list_empty(&pool->idle)) {
        struct trip *trip = pst_list_first(&pool->idle, struct trip, link);

        pst_list_remove(&trip->link);
        free(trip);
        pool->trip_count--;
    }
    pst_assert(pool->trip_count == 0);
}

/* @leg: whose answer it is; NULL: none. */
static void finish(struct pool *pool, struct trip *trip, const struct leg *leg, int result)
{
    pst_assert(trip->magic == PST_TRIP_MAGIC && trip->legs == 0);
    pst_op_end_as(trip->op, leg ? &leg->op : &trip->first.op, result, trip->copies);
    pst_list_push_front(&pool->idle, &trip->link);
}

/* It is tried again in a moment; when its time is over it ends with @result. */
static void later(struct pool *pool, struct trip *trip, const struct leg *leg, int result)
{
    uint64_t now_ns = pst_now_ns();

    if (now_ns >= trip->until_ns) {
        finish(pool, trip, leg, result);
        return;
    }
    pool->counters.retries++;
    trip->delay_us = (uint32_t)pst_min(pst_max(2 * trip->delay_us, DELAY_US_MIN), DELAY_US_MAX);
    trip->due_ns = pst_min(now_ns + trip->delay_us * 1000ull, trip->until_ns);
    trip->result = result;
    pool->due_ns = pst_min(pool->due_ns, trip->due_ns);
    pst_list_push_back(&pool->waiting, &trip->link);
}

/* ---- legs ---- */

/* @leg: that is free. What cannot be sent ends as if it had been refused. */
static void leg_send(struct pool *pool, struct leg *leg, struct trip *trip, struct pool_node *node, int shard)
{
    int r = pst_pool_end_open(pool, &node->end);

    leg->op = *trip->op;
    leg->op.user = leg;
    leg->trip = trip;
    leg->node = node;
    leg->shard = shard;
    leg->patient_ns = 0;
    pst_list_init(&leg->link);
    if (trip->kind == TRIP_PUT)
        leg->op.flags |= PENSTOCK_IF_ABSENT;
    if (leg->asks) {
        leg->op = (struct penstock_op){.user = leg};
        penstock_prep(&leg->op, PENSTOCK_STAT_KEY, trip->op->key, trip->op->key_bytes);
    } else if (trip->op->code == PENSTOCK_PUT) {
        pool->counters.put_bytes += trip->op->bytes;
    }
    trip->legs++;
    if (r == 0) {
        pst_pool_end_submit(pool, &node->end, &leg->op, shard, &pool->ended);
        return;
    }
    node->end.underway++; /* its end gives that back */
    if (node->end.underway == 1)
        pst_list_push_back(&pool->busy, &node->end.link);
    pst_op_begin(&leg->op, shard, &pool->ended);
    pst_op_end(&leg->op, r);
}

/* The trip's own leg is sent to that node. */
static void send_first(struct pool *pool, struct trip *trip, struct pool_node *node)
{
    pst_assert(trip->legs == 0);
    trip->first.asks = false;
    leg_send(pool, &trip->first, trip, node, -1);
}

/* One of several. */
static void send_another(struct pool *pool, struct trip *trip, struct pool_node *node)
{
    struct leg *leg = trip->legs == 0 ? &trip->first : malloc(sizeof(*leg));

    if (!leg) {
        trip->result = -ENOMEM;
        return;
    }
    leg->asks = false;
    leg_send(pool, leg, trip, node, -1);
}

/* The operation was not carried out, and the node is not there, or not the one. */
static bool unreachable(int result)
{
    switch (result) {
    case -ECONNREFUSED:
    case -EHOSTUNREACH:
    case -ENETUNREACH:
    case -ECONNRESET:
    case -ETIMEDOUT:
    case -EPROTO:
        return true;
    default:
        return false;
    }
}

/* ---- home ---- */

bool pst_pool_key_home(const struct pool *pool, struct pst_bytes key)
{
    const struct pst_view_prefix *prefix = pst_view_prefix_of(pool->view, key);

    return prefix && prefix->placement == PST_PLACE_HOME;
}

struct pool_node *pst_pool_primary(struct pool *pool, struct pst_bytes key)
{
    const struct pst_view_slot *slot = &pool->view->slots[pst_view_slot_of(pool->view, key)];

    return slot->state == PST_VIEW_SERVED ? pst_pool_node(pool, slot->copies[0]) : NULL;
}

static struct pst_bytes key_of(const struct trip *trip)
{
    return (struct pst_bytes){trip->op->key, trip->op->key_bytes};
}

static void home_begin(struct pool *pool, struct trip *trip)
{
    const struct pst_view_slot *slot = &pool->view->slots[pst_view_slot_of(pool->view, key_of(trip))];
    struct pool_node *node = pst_pool_primary(pool, key_of(trip));

    if (node) {
        send_first(pool, trip, node);
        return;
    }
    pst_pool_view_fetch(pool);
    later(pool, trip, NULL, slot->state == PST_VIEW_EMPTY ? PENSTOCK_BUSY : PENSTOCK_INCOMPLETE);
}

static void home_ended(struct pool *pool, struct trip *trip, struct leg *leg, int result)
{
    const struct pst_view_slot *slot = &pool->view->slots[pst_view_slot_of(pool->view, key_of(trip))];
    bool reads = trip->op->code == PENSTOCK_GET || trip->op->code == PENSTOCK_STAT_KEY;

    if (result == PENSTOCK_MISS && reads && slot->lost)
        result = PENSTOCK_LOST;
    if (result == -ESTALE || unreachable(result)) { /* another may have the slot by now */
        pst_pool_view_fetch(pool);
        later(pool, trip, leg, result);
    } else if (result == PENSTOCK_BUSY || result == PENSTOCK_INCOMPLETE) {
        pst_pool_view_fetch(pool); /* it may have lost the slot without knowing to whom */
        later(pool, trip, leg, result);
    } else {
        finish(pool, trip, leg, result);
    }
}

/* ---- anywhere: one node by the key, and all nodes ---- */

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
        score = pst_hash64(&pool->nodes[i]->id, sizeof(struct pst_id), trip->key.low);
        if (!best || score > most) {
            best = pool->nodes[i];
            most = score;
        }
    }
    return best;
}

static void sticky_begin(struct pool *pool, struct trip *trip)
{
    struct pool_node *node = sticky_node(pool, trip);

    if (node)
        send_first(pool, trip, node);
    else
        finish(pool, trip, NULL, -EHOSTUNREACH);
}

static void sticky_ended(struct pool *pool, struct trip *trip, struct leg *leg, int result)
{
    if (result == 0 && trip->op->code == PENSTOCK_SLOT_COMMIT)
        pst_pool_cache_add(pool->cache, &trip->key, leg->node->member);
    if (result == PENSTOCK_BUSY)
        later(pool, trip, leg, result);
    else
        finish(pool, trip, leg, result);
}

static void all_begin(struct pool *pool, struct trip *trip)
{
    trip->result = pool->node_count ? PENSTOCK_MISS : -EHOSTUNREACH;
    for (uint32_t i = 0, left = pool->node_count; left > 0; i++) {
        if (!pool->nodes[i])
            continue;
        left--;
        send_another(pool, trip, pool->nodes[i]);
    }
    if (trip->op->code == PENSTOCK_DELETE)
        pst_pool_cache_drop(pool->cache, &trip->key);
    if (trip->legs == 0)
        finish(pool, trip, NULL, trip->result);
}

/* Done when it is done everywhere, and there was something to do. */
static void all_ended(struct pool *pool, struct trip *trip, struct leg *leg, int result)
{
    bool worse = trip->result == PENSTOCK_MISS || (trip->result == 0 && result != PENSTOCK_MISS);

    if (worse)
        trip->result = result;
    if (trip->legs > 0)
        return;
    if (trip->result == PENSTOCK_BUSY)
        later(pool, trip, leg, trip->result);
    else
        finish(pool, trip, leg, trip->result);
}

/* ---- anywhere: reads ---- */

/* Less is better. */
static uint32_t distance(struct pool *pool, uint16_t member)
{
    const struct pool_node *node = pst_pool_node(pool, member);

    if (!node)
        return 3;
    return (pst_id_equal(&node->host, &pool->host) ? 0 : 1) + (pst_now_ns() < node->end.suspect_ns ? 2 : 0);
}

static void sort_places(struct pool *pool, struct trip *trip)
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
            send_first(pool, trip, node);
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
        later(pool, trip, leg, trip->result);
    else
        finish(pool, trip, leg, trip->result ? trip->result : PENSTOCK_MISS);
}

struct pool_node *pst_pool_place_of(struct pool *pool, struct pst_bytes key)
{
    struct trip trip = {.key = pst_hash128(key.data, key.len, pool->view->seed)};

    trip.place_count = (uint8_t)pst_pool_cache_find(pool->cache, &trip.key, trip.places);
    sort_places(pool, &trip);
    return trip.place_count ? pst_pool_node(pool, trip.places[0]) : NULL;
}

static void read_begin(struct pool *pool, struct trip *trip)
{
    trip->result = 0;
    trip->place_at = 0;
    trip->place_count = (uint8_t)pst_pool_cache_find(pool->cache, &trip->key, trip->places);
    trip->cached = trip->place_count > 0;
    pool->counters.located += trip->cached;
    sort_places(pool, trip);
    if (trip->cached)
        read_next(pool, trip, NULL);
    else
        pst_list_push_back(&pool->locating, &trip->link);
}

static void read_routed(struct pool *pool, struct trip *trip, const struct pst_pool_route *route, int error)
{
    if (!route) {
        trip->result = trip->result && trip->result != PENSTOCK_MISS ? trip->result : error;
        finish(pool, trip, NULL, trip->result);
        return;
    }
    trip->place_at = 0;
    trip->place_count = route->status == PST_POOL_ROUTED ? route->place_count : 0;
    for (uint32_t i = 0; i < trip->place_count; i++)
        trip->places[i] = route->places[i].member;
    sort_places(pool, trip);
    if (trip->place_count == 0 && !trip->result)
        trip->result = route->status == PST_POOL_INCOMPLETE ? PENSTOCK_INCOMPLETE : PENSTOCK_MISS;
    read_next(pool, trip, NULL);
}

/* A place that has it not, not any more, or not now; why the next may do better. */
static bool read_goes_on(int result)
{
    return unreachable(result) || result == PENSTOCK_MISS || result == PENSTOCK_STALE ||
           result == PENSTOCK_BUSY || result == -EBADMSG || result == -ESTALE;
}

static void read_ended(struct pool *pool, struct trip *trip, struct leg *leg, int result)
{
    if (!read_goes_on(result)) {
        if (result >= 0 || result == -ENOBUFS)
            pst_pool_cache_add(pool->cache, &trip->key, leg->node->member);
        finish(pool, trip, leg, result);
        return;
    }
    if (!trip->result || trip->result == PENSTOCK_MISS)
        trip->result = result; /* only where all places say so is the value missing */
    pool->counters.failovers += trip->place_at < trip->place_count;
    read_next(pool, trip, leg);
}

/* ---- anywhere: puts ---- */

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
    send_another(pool, trip, node);
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
        if (was_tried(trip, node->member) || now_ns < pst_max(node->end.retry_ns, node->end.suspect_ns) ||
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
        later(pool, trip, NULL, result);
    } else {
        finish(pool, trip, NULL, result);
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
    leg_send(pool, &trip->first, trip, node, -1);
}

static void put_begin(struct pool *pool, struct trip *trip)
{
    struct pool_node *node = NULL;

    trip->result = 0;
    trip->asked = false;
    trip->place_count = (uint8_t)pst_pool_cache_find(pool->cache, &trip->key, trip->places);
    sort_places(pool, trip);
    if (trip->place_count)
        node = pst_pool_node(pool, trip->places[0]);
    pool->counters.located += node != NULL;
    if (node)
        put_ask(pool, trip, node);
    else
        pst_list_push_back(&pool->placing, &trip->link);
}

static void put_routed(struct pool *pool, struct trip *trip, const struct pst_pool_route *route)
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

static void asked_ended(struct pool *pool, struct trip *trip, struct leg *leg, int result)
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

static void put_ended(struct pool *pool, struct trip *trip, struct leg *leg, int result)
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
    else if (trip->result == 0 || unreachable(trip->result) || trip->result == -ENOSPC ||
             trip->result == PENSTOCK_BUSY || trip->copies)
        put_more(pool, trip);
    else
        put_finish(pool, trip); /* refused for what it is */
}

/* ---- a shard ---- */

/* What a shard held for its session went with the node. */
static void side_gone(struct pool *pool, struct trip *trip)
{
    bool orphan = trip->op->code == PST_WIRE_RELEASE || trip->op->code == PST_WIRE_WATCH_CLOSE;

    finish(pool, trip, NULL, orphan ? 0 : -ESTALE);
}

static void side_begin(struct pool *pool, struct trip *trip)
{
    const struct pool_side *side = trip->side < pool->side_count ? &pool->sides[trip->side] : NULL;

    if (side && side->node)
        leg_send(pool, &trip->first, trip, side->node, (int)side->shard);
    else
        side_gone(pool, trip);
}

static void side_ended(struct pool *pool, struct trip *trip, struct leg *leg, int result)
{
    if (result == PENSTOCK_BUSY)
        later(pool, trip, leg, result);
    else
        finish(pool, trip, leg, result);
}

/* ---- all of them ---- */

static void trip_begin(struct pool *pool, struct trip *trip)
{
    static void (*const begin[])(struct pool *, struct trip *) = {
        [TRIP_SIDE] = side_begin, [TRIP_HOME] = home_begin, [TRIP_STICKY] = sticky_begin,
        [TRIP_READ] = read_begin, [TRIP_PUT] = put_begin,   [TRIP_ALL] = all_begin,
    };

    pst_list_remove(&trip->link);
    begin[trip->kind](pool, trip);
}

void pst_pool_routed(struct pool *pool, struct trip *trip, const struct pst_pool_route *route, int error)
{
    pst_assert(trip->magic == PST_TRIP_MAGIC && trip->legs == 0);
    if (trip->kind == TRIP_PUT)
        put_routed(pool, trip, route);
    else
        read_routed(pool, trip, route, error);
}

/* Counts from the first time that the node was busy. */
static bool is_patient(struct leg *leg)
{
    uint64_t now_ns = pst_now_ns();

    leg->patient_ns = leg->patient_ns ? leg->patient_ns : now_ns + PATIENT_NS;
    return leg->node->end.channel && now_ns < leg->patient_ns;
}

static void send_refused(struct pool *pool)
{
    while (!pst_list_empty(&pool->refused)) {
        struct leg *leg = pst_list_first(&pool->refused, struct leg, link);

        pst_list_remove(&leg->link);
        pool->counters.retries++;
        leg->node->end.dirty = true;
        pst_channel_submit(leg->node->end.channel, &leg->op, leg->shard, &pool->ended);
    }
}

void pst_pool_leg_ended(struct pool *pool, struct penstock_op *op)
{
    static void (*const ended[])(struct pool *, struct trip *, struct leg *, int) = {
        [TRIP_SIDE] = side_ended, [TRIP_HOME] = home_ended, [TRIP_STICKY] = sticky_ended,
        [TRIP_READ] = read_ended, [TRIP_PUT] = put_ended,   [TRIP_ALL] = all_ended,
    };
    struct leg *leg = op->user;
    struct trip *trip = leg->trip;
    struct pool_node *node = leg->node;
    bool own = leg == &trip->first;
    int result = op->result;

    pst_assert(trip->magic == PST_TRIP_MAGIC && trip->legs > 0);
    if (result == PENSTOCK_BUSY && is_patient(leg)) {
        if (pst_list_empty(&pool->refused))
            pool->refused_ns = pst_now_ns() + BUSY_NS;
        pst_list_push_back(&pool->refused, &leg->link);
        return;
    }
    trip->legs--;
    if (unreachable(result) && pst_now_ns() >= node->end.retry_ns && !node->ended) {
        pst_pool_end_failed(&node->end, result);
        pst_pool_suspect(pool, node);
    } else if (result >= 0) {
        node->end.retry_ms = 0;
    }
    (leg->asks ? asked_ended : ended[trip->kind])(pool, trip, leg, result);
    pst_pool_node_back(pool, node);
    if (!own)
        free(leg);
}

bool pst_pool_trips_due(struct pool *pool)
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
        struct trip *trip = pst_list_entry(it, struct trip, link);

        if (trip->due_ns > now_ns) {
            pool->due_ns = pst_min(pool->due_ns, trip->due_ns);
            continue;
        }
        pst_list_remove(it);
        pst_list_push_back(&due, it);
    }
    while (!pst_list_empty(&due))
        trip_begin(pool, pst_list_first(&due, struct trip, link));
    return true;
}

static enum trip_kind kind_of(const struct pool *pool, const struct penstock_op *op)
{
    if (pst_pool_key_home(pool, (struct pst_bytes){op->key, op->key_bytes}))
        return TRIP_HOME;
    switch (op->code) {
    case PENSTOCK_GET:
    case PENSTOCK_STAT_KEY:
        return TRIP_READ;
    case PENSTOCK_PUT:
        return TRIP_PUT;
    case PENSTOCK_DELETE:
    case PENSTOCK_PIN:
    case PENSTOCK_UNPIN:
        return TRIP_ALL;
    default:
        return TRIP_STICKY;
    }
}

/* What has another meaning in each place, and so has none anywhere. */
static bool senseless(const struct trip *trip)
{
    bool writes = trip->kind == TRIP_PUT || trip->kind == TRIP_ALL;

    return writes && trip->op->flags & PENSTOCK_IF_GENERATION;
}

static uint64_t until_ns(const struct pool *pool, const struct penstock_op *op, uint64_t now_ns)
{
    bool moves_bytes = op->code <= PENSTOCK_GET || op->code == PENSTOCK_SLOT_WRITE;

    return now_ns + 1000000 * (pool->options.timeout_ms + (moves_bytes ? op->bytes / BYTES_PER_MS : 0) +
                               pst_op_wait_ms(op, pool->options.timeout_ms));
}

static void set_out(struct pool *pool, struct trip *trip, struct penstock_op *op, uint64_t now_ns)
{
    const struct pst_view_prefix *prefix =
        pst_view_prefix_of(pool->view, (struct pst_bytes){op->key, op->key_bytes});

    trip->op = op;
    trip->first.op = *op; /* what it says when no node was asked */
    trip->kind = kind_of(pool, op);
    trip->key = pst_hash128(op->key, op->key_bytes, pool->view->seed);
    trip->until_ns = until_ns(pool, op, now_ns);
    trip->wanted =
        (uint8_t)pst_min(pst_max(pool->replicas, prefix ? prefix->replicas : 1), PST_VIEW_COPIES_MAX);
    trip->wanted = trip->wanted ? trip->wanted : 1;
    if (senseless(trip))
        finish(pool, trip, NULL, -EOPNOTSUPP);
    else
        trip_begin(pool, trip);
}

/* ---- from the store ---- */

static void submit_to_side(struct pool *pool, struct penstock_op *op, int shard)
{
    struct trip *trip = trip_take(pool);

    if (!trip) {
        pst_op_end(op, -ENOMEM);
        return;
    }
    trip->kind = TRIP_SIDE;
    trip->op = op;
    trip->first.op = *op;
    trip->side = (uint32_t)shard;
    trip->until_ns = until_ns(pool, op, pst_now_ns());
    trip_begin(pool, trip);
}

void pst_pool_submit(struct penstock *store, struct penstock_op *op, int shard, struct pst_op_list *done)
{
    struct pool *pool = pst_pool_of(store);
    int r = pst_op_begin(op, shard, done);

    if (r < 0)
        pst_op_end(op, r);
    else if (shard == POOL_SHARD_OF_MASTER && op->code == PST_POOL_VIEW)
        pst_pool_view_ask(pool, op);
    else if (shard == POOL_SHARD_OF_MASTER)
        pst_pool_relay(pool, op);
    else if (shard >= 0)
        submit_to_side(pool, op, shard);
    else
        pst_op_list_push(&pool->pending, op);
}

bool pst_pool_trips_set_out(struct pool *pool)
{
    uint64_t now_ns = pool->pending.count ? pst_now_ns() : 0;
    bool any = false;

    while (pool->pending.count && (!pst_list_empty(&pool->idle) || pool->trip_count < POOL_TRIPS_MAX)) {
        struct penstock_op *op = pst_op_list_pop(&pool->pending);
        struct trip *trip = trip_take(pool);

        if (trip)
            set_out(pool, trip, op, now_ns);
        else
            pst_op_end(op, -ENOMEM);
        any = true;
    }
    return any;
}

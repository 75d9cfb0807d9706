/*
 * pool_trip.c: operations on their way over a pool: trips and their legs, whatever their kind, and the
 * shortest kind, to a shard. Values that lie *home* have one owner at a time, who decides about them as a
 * node alone does (pool_home.c). Values that lie *anywhere* are what their name says, wherever they are
 * (pool_anywhere.c, pool_put.c).
 */
#include "client/pool_trip_priv.h"

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

void pst_trip_finish(struct pool *pool, struct trip *trip, const struct leg *leg, int result)
{
    pst_assert(trip->magic == PST_TRIP_MAGIC && trip->legs == 0);
    pst_op_end_as(trip->op, leg ? &leg->op : &trip->first.op, result, trip->copies);
    pst_list_push_front(&pool->idle, &trip->link);
}

void pst_trip_later(struct pool *pool, struct trip *trip, const struct leg *leg, int result)
{
    uint64_t now_ns = pst_now_ns();

    if (now_ns >= trip->until_ns) {
        pst_trip_finish(pool, trip, leg, result);
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

void pst_leg_send(struct pool *pool, struct leg *leg, struct trip *trip, struct pool_node *node, int shard)
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
        pst_pool_end_submit(pool, &node->end, &leg->op, shard, &pool->ended, trip->until_ns + POOL_GRACE_NS);
        return;
    }
    node->end.underway++; /* its end gives that back */
    if (node->end.underway == 1)
        pst_list_push_back(&pool->busy, &node->end.link);
    pst_op_begin(&leg->op, shard, &pool->ended);
    pst_op_end(&leg->op, r);
}

void pst_trip_send_first(struct pool *pool, struct trip *trip, struct pool_node *node)
{
    pst_assert(trip->legs == 0);
    trip->first.asks = false;
    pst_leg_send(pool, &trip->first, trip, node, -1);
}

void pst_trip_send_another(struct pool *pool, struct trip *trip, struct pool_node *node)
{
    struct leg *leg = trip->legs == 0 ? &trip->first : malloc(sizeof(*leg));

    if (!leg) {
        trip->result = -ENOMEM;
        return;
    }
    leg->asks = false;
    pst_leg_send(pool, leg, trip, node, -1);
}

bool pst_trip_unreachable(int result)
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

/* ---- a shard ---- */

/* What a shard held for its session went with the node. */
static void side_gone(struct pool *pool, struct trip *trip)
{
    bool orphan = trip->op->code == PST_WIRE_RELEASE || trip->op->code == PST_WIRE_WATCH_CLOSE;

    pst_trip_finish(pool, trip, NULL, orphan ? 0 : -ESTALE);
}

static void side_begin(struct pool *pool, struct trip *trip)
{
    const struct pool_side *side = trip->side < pool->side_count ? &pool->sides[trip->side] : NULL;

    if (side && side->node)
        pst_leg_send(pool, &trip->first, trip, side->node, (int)side->shard);
    else
        side_gone(pool, trip);
}

static void side_ended(struct pool *pool, struct trip *trip, struct leg *leg, int result)
{
    if (result == PENSTOCK_BUSY)
        pst_trip_later(pool, trip, leg, result);
    else
        pst_trip_finish(pool, trip, leg, result);
}

/* ---- all of them ---- */

static void trip_begin(struct pool *pool, struct trip *trip)
{
    static void (*const begin[])(struct pool *, struct trip *) = {
        [TRIP_SIDE] = side_begin,     [TRIP_HOME] = pst_home_begin, [TRIP_STICKY] = pst_sticky_begin,
        [TRIP_READ] = pst_read_begin, [TRIP_PUT] = pst_put_begin,   [TRIP_ALL] = pst_all_begin,
    };

    pst_list_remove(&trip->link);
    begin[trip->kind](pool, trip);
}

void pst_pool_routed(struct pool *pool, struct trip *trip, const struct pst_pool_route *route, int error)
{
    pst_assert(trip->magic == PST_TRIP_MAGIC && trip->legs == 0);
    if (trip->kind == TRIP_PUT)
        pst_put_routed(pool, trip, route);
    else
        pst_read_routed(pool, trip, route, error);
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
        pst_channel_submit_until(leg->node->end.channel, &leg->op, leg->shard, &pool->ended,
                                 leg->trip->until_ns + POOL_GRACE_NS);
    }
}

void pst_pool_leg_ended(struct pool *pool, struct penstock_op *op)
{
    static void (*const ended[])(struct pool *, struct trip *, struct leg *, int) = {
        [TRIP_SIDE] = side_ended,     [TRIP_HOME] = pst_home_ended, [TRIP_STICKY] = pst_sticky_ended,
        [TRIP_READ] = pst_read_ended, [TRIP_PUT] = pst_put_ended,   [TRIP_ALL] = pst_all_ended,
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
    if (pst_trip_unreachable(result) && pst_now_ns() >= node->end.retry_ns && !node->ended) {
        pst_pool_end_failed(&node->end, result);
        pst_pool_suspect(pool, node);
    } else if (result >= 0) {
        node->end.retry_ms = 0;
    }
    (leg->asks ? pst_put_asked_ended : ended[trip->kind])(pool, trip, leg, result);
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
        pst_trip_finish(pool, trip, NULL, -EOPNOTSUPP);
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

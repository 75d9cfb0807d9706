/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.c: a watch of a prefix on every shard. Each shard holds one question of the watch until it has
 * something to tell or its time is over; what came is given out event by event. When the session breaks, its
 * watches are gone with it: the shards are asked to watch anew, and the caller is told that events may be
 * missing. So it is when a pool has other nodes, or keys other primaries, which its master is asked again and
 * again.
 */
#include "client/client_priv.h"

#include "base/clock.h"
#include "base/ms.h"

#define PST_EVENTS_MAGIC 0x65766e74u

enum {
    ASK_MS = 5000,      /* how long a shard holds the question, ... */
    ASK_POOL_MS = 1000, /* ... and one of a pool */
    LOOK_NS = 1000000000,
    DATA_BYTES = 16 << 10,
    SIDES_MAX = 256, /* of all watches of a store: their questions take requests from everyone else */
};

enum side_state { SIDE_CLOSED, SIDE_OPENING, SIDE_OPEN, SIDE_ASKING, SIDE_CLOSING };

/* A shard's side of the watch. */
struct side {
    struct penstock_op op;
    enum side_state state;
    uint64_t handle;
    size_t at, bytes; /* of what came and was not given out */
    uint8_t *data;
};

struct penstock_watch {
    uint32_t magic;
    struct penstock *store;
    struct penstock_queue *queue;
    struct side *sides;
    uint32_t side_count;
    uint32_t next;                       /* the side that is looked at first */
    bool broken;                         /* a side is lost: all are opened anew once nothing is underway */
    bool told;                           /* of the loss before that: the caller has been told */
    int fault;                           /* why it could not be opened anew, ... */
    struct penstock_error_detail detail; /* ... and more of it */
    struct penstock_op look;             /* at the pool's nodes */
    bool looks;                          /* it is underway */
    uint64_t look_ns;                    /* the next one */
    uint64_t layout;                     /* of the pool whose shards are the sides ... */
    bool outdated;                       /* ... and which has another one now */
    bool moves;
    size_t prefix_bytes;
    uint8_t prefix[];
};

/* ---- asking ---- */

static void submit(struct penstock_watch *w, struct side *side, uint8_t code, enum side_state state)
{
    struct penstock *store = w->store;

    pst_assert(w->magic == PST_EVENTS_MAGIC);
    pst_assert(side->state != SIDE_ASKING);
    pst_assert(side->state != SIDE_OPENING);
    pst_assert(side >= w->sides && side < w->sides + w->side_count);
    side->op.code = code;
    side->state = state;
    pst_enter(store);
    store->backend->submit(store, &side->op, (int)(side - w->sides), &w->queue->done);
    store->backend->flush(store);
    w->queue->underway++;
    pst_leave(store);
}

static void ask_to_open(struct penstock_watch *w, struct side *side)
{
    pst_assert(side->state == SIDE_CLOSED);
    side->op = (struct penstock_op){.flags = w->moves ? PST_WIRE_MOVES : 0,
                                    .key = w->prefix,
                                    .key_bytes = (uint16_t)w->prefix_bytes,
                                    .user = side};
    submit(w, side, PST_WIRE_WATCH_OPEN, SIDE_OPENING);
}

static void ask_for_events(struct penstock_watch *w, struct side *side)
{
    pst_assert(side->state == SIDE_OPEN);
    pst_assert(side->at == side->bytes);
    side->op = (struct penstock_op){.handle = side->handle,
                                    .wait_ms = w->store->backend->look ? ASK_POOL_MS : ASK_MS,
                                    .data = side->data,
                                    .bytes = DATA_BYTES,
                                    .user = side};
    submit(w, side, PST_WIRE_WATCH_NEXT, SIDE_ASKING);
}

/* Asks for the pool's nodes when it is time to. */
static void look(struct penstock_watch *w)
{
    const struct pst_backend *backend = w->store->backend;
    uint64_t now_ns = backend->look && !w->looks ? pst_now_ns() : 0;

    pst_assert(w->looks <= w->queue->underway);
    if (now_ns < w->look_ns || !now_ns)
        return;
    w->look_ns = now_ns + LOOK_NS;
    w->looks = true;
    pst_enter(w->store);
    backend->look(w->store, &w->look, &w->queue->done);
    backend->flush(w->store);
    w->queue->underway++;
    pst_leave(w->store);
}

static void ask_to_close(struct penstock_watch *w, struct side *side, struct penstock_op *op)
{
    pst_assert(side->state >= SIDE_OPEN);
    pst_assert(side >= w->sides && side < w->sides + w->side_count);
    *op = (struct penstock_op){.code = PST_WIRE_WATCH_CLOSE, .handle = side->handle};
    pst_enter(w->store);
    w->store->backend->submit(w->store, op, (int)(side - w->sides), &w->queue->done);
    w->store->backend->flush(w->store);
    w->queue->underway++;
    pst_leave(w->store);
}

/* ---- answers ---- */

static bool what_known(const struct penstock_watch *w, uint8_t what)
{
    return (what >= PST_WIRE_CHANGE_PUT && what <= PST_WIRE_CHANGE_MISSED) ||
           (what == PST_WIRE_CHANGE_MOVED && w->moves);
}

/* Checks that the answer holds whole events, since it came from elsewhere. */
static bool events_whole(const struct penstock_watch *w, const struct side *side)
{
    size_t at = 0;

    pst_assert(side->bytes <= DATA_BYTES);
    while (at < side->bytes) {
        struct pst_wire_change change;

        if (side->bytes - at < sizeof(change))
            return false;
        memcpy(&change, side->data + at, sizeof(change));
        at += sizeof(change);
        if (!what_known(w, change.what) || side->bytes - at < change.key_bytes)
            return false;
        at += change.key_bytes;
    }
    return true;
}

static void take_answer(struct penstock_watch *w, struct side *side)
{
    int result = side->op.result;

    pst_assert(side >= w->sides && side < w->sides + w->side_count);
    pst_assert(w->magic == PST_EVENTS_MAGIC);
    if (side->state == SIDE_OPENING) {
        side->state = result ? SIDE_CLOSED : SIDE_OPEN;
        side->handle = side->op.generation;
        w->broken |= result != 0;
        if (result) {
            w->fault = result;
            w->detail = side->op.error_detail;
        }
        return;
    }
    if (side->state == SIDE_CLOSING) {
        side->state = SIDE_CLOSED;
        return;
    }
    pst_assert(side->state == SIDE_ASKING);
    side->state = SIDE_OPEN;
    side->at = 0;
    side->bytes = result ? 0 : pst_min(side->op.value_bytes, DATA_BYTES);
    if (result || !events_whole(w, side)) {
        side->bytes = 0;
        side->state = SIDE_CLOSED;
        w->broken = true;
        w->told = false;
    }
}

static uint64_t layout_of(struct penstock *store)
{
    uint64_t layout = 0;

    pst_assert(!store->backend->layout == !store->backend->look);
    if (store->backend->layout) {
        pst_enter(store);
        layout = store->backend->layout(store);
        pst_leave(store);
    }
    return layout;
}

static void take_look(struct penstock_watch *w)
{
    pst_assert(w->looks);
    pst_assert(w->store->backend->look);
    w->looks = false;
    w->outdated |= layout_of(w->store) != w->layout;
    w->broken |= w->outdated;
}

/* Return: answers taken, or -errno. */
static int take_answers(struct penstock_watch *w, int timeout_ms)
{
    struct penstock_op *ops[64];
    int count = penstock_reap(w->queue, ops, (int)pst_count_of(ops), timeout_ms);

    pst_assert(count <= (int)pst_count_of(ops));
    for (int i = 0; i < count; i++) {
        if (ops[i] == &w->look)
            take_look(w);
        else
            take_answer(w, ops[i]->user);
    }
    return count;
}

/* ---- events ---- */

static bool next_event(struct penstock_watch *w, struct penstock_event *event)
{
    for (uint32_t i = 0; i < w->side_count; i++) {
        struct side *side = &w->sides[(w->next + i) % w->side_count];
        struct pst_wire_change change;

        pst_assert(side->at <= side->bytes && side->bytes <= DATA_BYTES);
        if (side->at == side->bytes || side->state == SIDE_ASKING)
            continue;
        memcpy(&change, side->data + side->at, sizeof(change));
        *event = (struct penstock_event){.what = change.what,
                                         .on_ssd = change.away == PST_WIRE_ON_SSD,
                                         .on_device = change.away == PST_WIRE_ON_DEVICE,
                                         .key = side->data + side->at + sizeof(change),
                                         .key_bytes = change.key_bytes,
                                         .generation = change.generation,
                                         .value_bytes = change.value_bytes};
        if (change.what == PST_WIRE_CHANGE_MISSED) {
            event->missed = change.value_bytes;
            event->value_bytes = 0;
        }
        side->at += sizeof(change) + change.key_bytes;
        pst_assert(side->at <= side->bytes); /* events_whole() */
        w->next = (w->next + i + (side->at == side->bytes)) % w->side_count;
        return true;
    }
    return false;
}

/* ---- sides ---- */

/* Counts the sides of all watches of the store. Return: false when there would be too many. */
static bool account(struct penstock_watch *w, int64_t more)
{
    bool room;

    pthread_mutex_lock(&w->store->lock);
    pst_assert(w->store->watch_sides + more >= 0);
    room = w->store->watch_sides + more <= SIDES_MAX;
    if (room)
        w->store->watch_sides = (uint32_t)(w->store->watch_sides + more);
    pst_assert(w->store->watch_sides <= SIDES_MAX);
    pthread_mutex_unlock(&w->store->lock);
    return room;
}

static void drop_sides(struct penstock_watch *w, uint32_t count)
{
    while (w->side_count > count)
        free(w->sides[--w->side_count].data);
    w->next = 0;
    pst_assert(w->side_count <= count);
}

static int add_sides(struct penstock_watch *w, uint32_t count)
{
    struct side *larger = realloc(w->sides, count * sizeof(*larger));

    pst_assert(count > w->side_count && count <= SIDES_MAX);
    if (!larger)
        return -ENOMEM;
    w->sides = larger;
    for (; w->side_count < count; w->side_count++) {
        larger[w->side_count] = (struct side){.data = malloc(DATA_BYTES)};
        if (!larger[w->side_count].data)
            return -ENOMEM;
    }
    pst_assert(w->side_count == count);
    return 0;
}

/* One side for each shard of the store as it is now; nothing is underway. Return: 0 or -errno. */
static int fit_sides(struct penstock_watch *w)
{
    uint32_t count, had = w->side_count;
    int r = pst_refresh(w->store);

    pst_assert(w->queue->underway == w->looks);
    if (r < 0)
        return r;
    w->outdated = false;
    w->layout = layout_of(w->store);
    count = pst_shards(w->store);
    if (!account(w, (int64_t)count - had))
        return -EMFILE;
    drop_sides(w, count);
    if (count > had)
        r = add_sides(w, count);
    if (r < 0) {
        account(w, (int64_t)had - count);
        drop_sides(w, had);
    }
    pst_assert(w->side_count == (r < 0 ? had : count));
    w->broken = true;
    return r;
}

/* Nothing is underway: begins to open all that is not open. */
static void open_anew(struct penstock_watch *w)
{
    pst_assert(w->queue->underway == w->looks);
    w->broken = false;
    w->fault = 0;
    for (uint32_t i = 0; i < w->side_count; i++) {
        if (w->sides[i].state == SIDE_CLOSED && pst_shard_at(w->store, i) >= 0)
            ask_to_open(w, &w->sides[i]);
    }
}

static bool all_open(const struct penstock_watch *w)
{
    for (uint32_t i = 0; i < w->side_count; i++) {
        if (w->sides[i].state < SIDE_OPEN && pst_shard_at(w->store, i) >= 0)
            return false;
    }
    return !w->broken;
}

/* ---- the calls ---- */

/* @detail: of the answer that did not let a side open. */
static int explain_fault(struct penstock *store, const void *prefix, size_t prefix_bytes,
                         struct penstock_error_detail detail, int r)
{
    const struct penstock_op op = {.code = PST_WIRE_WATCH_OPEN,
                                   .key = prefix,
                                   .key_bytes = (uint16_t)prefix_bytes,
                                   .error_detail = detail};

    return pst_explain(store, r == -EACCES && detail.denied & PST_DENIED_RIGHT ? &op : NULL, r);
}

static int check_options(const struct penstock *store, const struct penstock_watch_options *options)
{
    if (options->size < sizeof(*options) || options->flags & ~(uint32_t)PENSTOCK_WATCH_MOVES)
        return pst_fail(-EINVAL, "penstock_watch_open_with: options without their size, or unknown flags");
    if (options->prefix_bytes && !options->prefix)
        return pst_fail(-EINVAL, "penstock_watch_open: no prefix");
    if (options->prefix_bytes > PENSTOCK_KEY_BYTES_MAX)
        return pst_fail(-ENAMETOOLONG, "%s: prefix longer than %d bytes", store->url, PENSTOCK_KEY_BYTES_MAX);
    return 0;
}

int penstock_watch_open_with(struct penstock *store, const struct penstock_watch_options *options,
                             struct penstock_watch **out)
{
    struct penstock_error_detail detail;
    struct penstock_watch *w;
    int r = pst_store_check(store);

    if (r < 0)
        return r;
    if (!out || !options)
        return pst_fail(-EINVAL, "penstock_watch_open: no options, or nowhere to put the watch");
    r = check_options(store, options);
    if (r < 0)
        return r;
    w = calloc(1, sizeof(*w) + options->prefix_bytes);
    if (!w)
        return pst_fail(-ENOMEM, "out of memory");
    w->magic = PST_EVENTS_MAGIC;
    w->store = store;
    w->told = true;
    w->moves = options->flags & PENSTOCK_WATCH_MOVES;
    w->prefix_bytes = options->prefix_bytes;
    if (options->prefix_bytes)
        memcpy(w->prefix, options->prefix, options->prefix_bytes);
    r = penstock_queue_open(store, &w->queue);
    if (r == 0)
        r = fit_sides(w);
    if (r == 0)
        open_anew(w);
    while (r == 0 && w->queue->underway && (r = take_answers(w, -1)) > 0)
        r = 0;
    if (r == 0 && w->broken)
        r = w->fault;
    if (r) {
        detail = w->detail;
        penstock_watch_close(w);
        return explain_fault(store, options->prefix, options->prefix_bytes, detail, r);
    }
    *out = w;
    return 0;
}

int penstock_watch_open(struct penstock *store, const void *prefix, size_t prefix_bytes,
                        struct penstock_watch **out)
{
    struct penstock_watch_options options = {
        .size = sizeof(options), .prefix = prefix, .prefix_bytes = prefix_bytes};

    return penstock_watch_open_with(store, &options, out);
}

/* What the sides have not told yet is older than what the others tell. Return: whether any is being closed.
 */
static bool close_sides(struct penstock_watch *w)
{
    bool closing = false;

    pst_assert(w->queue->underway == w->looks);
    pst_assert(w->outdated && w->broken);
    for (uint32_t i = 0; i < w->side_count; i++) {
        struct side *side = &w->sides[i];

        pst_assert(side->state <= SIDE_OPEN); /* nothing is underway */
        if (side->state != SIDE_OPEN)
            continue;
        pst_assert(side->at == side->bytes);
        side->op = (struct penstock_op){.handle = side->handle, .user = side};
        submit(w, side, PST_WIRE_WATCH_CLOSE, SIDE_CLOSING);
        closing = true;
    }
    return closing;
}

/* Brings the watch in order when all of its questions have been answered. Return: 0 or -errno. */
static int mend(struct penstock_watch *w)
{
    int r = 0;

    pst_assert(w->magic == PST_EVENTS_MAGIC);
    if (w->queue->underway > w->looks)
        return 0;
    if (w->outdated && close_sides(w))
        return 0;
    if (w->outdated ||
        w->side_count != pst_shards(w->store)) { /* a session was lost, and the node has others */
        w->told = false;
        r = fit_sides(w);
    } else if (w->fault) {
        r = w->fault;
    }
    w->fault = 0;
    if (r == 0 && w->broken)
        open_anew(w);
    return r;
}

/* Gives out what is there, and asks for more. Return: 1 an event, 0 none yet, -errno. */
static int go_on(struct penstock_watch *w, struct penstock_event *event)
{
    int r;

    if (next_event(w, event))
        return 1;
    look(w);
    r = mend(w);
    if (r < 0)
        return explain_fault(w->store, w->prefix, w->prefix_bytes, w->detail, r);
    if (!all_open(w))
        return 0;
    if (!w->told) { /* everything from here on will be told of */
        w->told = true;
        *event = (struct penstock_event){.what = PENSTOCK_EVENT_RESET};
        return 1;
    }
    for (uint32_t i = 0; i < w->side_count; i++) {
        if (w->sides[i].state == SIDE_OPEN)
            ask_for_events(w, &w->sides[i]);
    }
    return 0;
}

int penstock_watch_next(struct penstock_watch *w, int timeout_ms, struct penstock_event *event)
{
    uint64_t end_ns = timeout_ms < 0 ? UINT64_MAX : pst_deadline_ns(pst_now_ns(), (uint64_t)timeout_ms),
             now_ns, wait_ns;
    int r;

    if (!w || !event)
        return pst_fail(-EINVAL, "penstock_watch_next: no watch, or nowhere to put an event");
    pst_assert(w->magic == PST_EVENTS_MAGIC);
    r = pst_store_check(w->store);
    if (r < 0)
        return r;
    for (;;) {
        r = go_on(w, event);
        if (r)
            return r;
        now_ns = pst_now_ns();
        wait_ns = w->store->backend->look && !w->looks ? pst_min(end_ns, w->look_ns) : end_ns;
        r = take_answers(w,
                         wait_ns == UINT64_MAX ? -1 : (int)pst_min(pst_ms_left(wait_ns, now_ns), INT32_MAX));
        if (r < 0)
            return r;
        if (r == 0 && pst_now_ns() >= end_ns)
            return 0;
    }
}

int penstock_watch_fd(struct penstock_watch *w)
{
    if (!w)
        return pst_fail(-EINVAL, "no watch");
    pst_assert(w->magic == PST_EVENTS_MAGIC);
    return penstock_queue_fd(w->queue);
}

struct penstock_watch *penstock_watch_close(struct penstock_watch *w)
{
    struct penstock_op *ops = NULL, *done[64];

    if (!w)
        return NULL;
    pst_assert(w->magic == PST_EVENTS_MAGIC);
    if (pst_store_check(w->store) == 0) {
        ops = calloc(w->side_count ? w->side_count : 1, sizeof(*ops));
        for (uint32_t i = 0; ops && i < w->side_count; i++) {
            if (w->sides[i].state >= SIDE_OPEN)
                ask_to_close(w, &w->sides[i], &ops[i]);
        }
        while (w->queue && w->queue->underway &&
               penstock_reap(w->queue, done, (int)pst_count_of(done), -1) > 0)
            ;
    }
    penstock_queue_close(w->queue);
    if (pst_store_check(w->store) == 0)
        account(w, -(int64_t)w->side_count);
    drop_sides(w, 0);
    free(w->sides);
    free(ops);
    free(w);
    return NULL;
}

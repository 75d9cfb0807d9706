/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wait.c: operations of the embedded store that wait. The thread that writes a key only says that it is
 * there; the operation is done by a thread that waits or reaps for it, so that nobody else touches its
 * buffers and its list.
 */
#include "client/embedded/embedded_priv.h"

#include "base/clock.h"
#include "base/ms.h"
#include "base/turn.h"
#include "base/wait.h"
#include "store/figures.h"

#define LOCAL_WAIT_MAGIC 0x6c776169u

enum { TURN_NS = 1000000 }; /* of the disk's work, for a thread that has something else to do */

struct local_wait {
    uint32_t magic;
    uint32_t shard;
    bool of_tier;
    union { /* under the shard's lock */
        struct pst_wait wait;
        struct pst_tier_wait tier;
    };
    /* Under the store's lock: */
    struct pst_list link;
    struct penstock_op *op;
    uint64_t until_ns;
    bool ready;
};

void pst_local_waits_init(struct pst_local *l)
{

    pst_list_init(&l->waits);
    pst_cond_init(&l->stirred);
}

static void unlink_wait(struct pst_local *l, struct local_wait *lw)
{
    pst_assert(lw->magic == LOCAL_WAIT_MAGIC);
    pst_assert(lw->of_tier || l->wait_count > 0);
    pst_assert(!pst_list_empty(&lw->link));
    pst_assert(l->wait_count <= LOCAL_WAITS_MAX);
    pst_list_remove(&lw->link);
    l->wait_count -= !lw->of_tier;
}

void pst_local_waits_fini(struct pst_local *l)
{
    while (!pst_list_empty(&l->waits)) {
        struct local_wait *lw = pst_list_first(&l->waits, struct local_wait, link);

        if (lw->of_tier)
            pst_tier_leave(pst_store_shard(l->store, lw->shard), &lw->tier);
        else
            pst_shard_unwait(pst_store_shard(l->store, lw->shard), &lw->wait);
        unlink_wait(l, lw);
        free(lw);
    }
    pst_assert(l->wait_count == 0);
    pthread_cond_destroy(&l->stirred);
}

/* Waits for the disk end by themselves and are not counted. Return: LOCAL_PARKED, -EDQUOT, -ENOMEM. */
static int wait_new(struct pst_local *l, uint32_t number, struct penstock_op *op, uint64_t until_ns,
                    bool of_tier, struct local_wait **out)
{
    struct local_wait *lw = calloc(1, sizeof(*lw));
    bool room;

    if (!lw)
        return -ENOMEM;
    *lw = (struct local_wait){
        .magic = LOCAL_WAIT_MAGIC, .shard = number, .of_tier = of_tier, .op = op, .until_ns = until_ns};
    pst_list_init(&lw->tier.link);
    pthread_mutex_lock(&l->handle->lock);
    room = of_tier || l->wait_count < LOCAL_WAITS_MAX;
    if (room) {
        pst_assert(l->wait_count <= LOCAL_WAITS_MAX);
        pst_assert(number < l->shard_count);
        l->wait_count += !of_tier;
        pst_list_push_back(&l->waits, &lw->link);
    }
    pthread_mutex_unlock(&l->handle->lock);
    if (!room) {
        free(lw);
        return -EDQUOT;
    }
    *out = lw;
    return LOCAL_PARKED;
}

int pst_local_park(struct pst_local *l, uint32_t number, struct penstock_op *op, uint64_t until_ns,
                   const struct pst_lookup *lookup, struct pst_watch *watch)
{
    struct local_wait *lw;
    int r = wait_new(l, number, op, until_ns, false, &lw);

    pst_assert(!lookup != !watch); /* for the one or the other */
    if (r != LOCAL_PARKED)
        return r;
    if (watch)
        pst_watch_wait(watch, &lw->wait);
    else
        pst_shard_wait(pst_store_shard(l->store, number), lookup, &lw->wait);
    return LOCAL_PARKED;
}

int pst_local_park_tier(struct pst_local *l, uint32_t number, struct penstock_op *op,
                        struct pst_tier_wait **wait)
{
    struct local_wait *lw;
    int r = wait_new(l, number, op, UINT64_MAX, true, &lw);

    if (r == LOCAL_PARKED)
        *wait = &lw->tier;
    return r;
}

int pst_local_unpark(struct pst_local *l, struct pst_tier_wait *wait, int result)
{
    struct local_wait *lw = pst_container_of(wait, struct local_wait, tier);

    pst_assert(lw->of_tier);
    pst_assert(!lw->ready);
    pthread_mutex_lock(&l->handle->lock);
    unlink_wait(l, lw);
    pthread_mutex_unlock(&l->handle->lock);
    free(lw);
    return result;
}

static void ready(struct local_wait *lw)
{
    pst_assert(lw->magic == LOCAL_WAIT_MAGIC);
    pst_assert(!lw->ready);
    lw->ready = true;
    pst_op_list_wake(pst_op_done_list(lw->op));
}

void pst_local_wake(struct pst_local *l, struct pst_shard *shard)
{
    struct pst_tier_wait *tier;
    struct pst_wait *wait;

    pthread_mutex_lock(&l->handle->lock);
    while ((wait = pst_shard_ready(shard)))
        ready(pst_container_of(wait, struct local_wait, wait));
    while ((tier = pst_tier_ended(shard)))
        ready(pst_container_of(tier, struct local_wait, tier));
    if (l->disk_led)
        pst_event_set(l->wake_fd);
    pthread_cond_broadcast(&l->stirred);
    pthread_mutex_unlock(&l->handle->lock);
}

/* ---- for those who wait ---- */

/* A wait for @done that is ready or out of time. *@next_ns: when the first of the others will be. */
static struct local_wait *next_due(struct pst_local *l, const struct pst_op_list *done, uint64_t *next_ns,
                                   bool *on_disk)
{
    uint64_t now_ns = pst_now_ns();

    *next_ns = UINT64_MAX;
    *on_disk = false;
    pst_list_each (it, &l->waits) {
        struct local_wait *lw = pst_list_entry(it, struct local_wait, link);

        pst_assert(lw->magic == LOCAL_WAIT_MAGIC);
        if (pst_op_done_list(lw->op) != done)
            continue;
        if (lw->ready || lw->until_ns <= now_ns)
            return lw;
        *next_ns = pst_min(*next_ns, lw->until_ns);
        *on_disk |= lw->of_tier;
    }
    return NULL;
}

/* What was fetched stays until the operation has been done with it; what was written ends the operation. */
static void finish_tier(struct pst_local *l, struct local_wait *lw)
{
    bool fetched = lw->tier.fetch;
    int r = lw->tier.result;

    pst_assert(lw->of_tier);
    pst_assert(lw->ready);
    pst_assert(pst_list_empty(&lw->link));
    if (!fetched && lw->op->code != PST_WIRE_FLUSH)
        r = pst_tier_unsaved(r);
    if (r == 0 && fetched)
        r = pst_local_apply(l, lw->shard, lw->op, 0);
    pst_tier_leave(pst_local_lock(l, lw->shard), &lw->tier);
    pst_local_unlock(l, lw->shard);
    if (r == PST_BUSY && fetched &&
        pst_local_once_more(l, lw->op)) /* there was no memory: others are done with theirs */
        r = pst_local_apply(l, lw->shard, lw->op, 0);
    if (r != LOCAL_PARKED)
        pst_op_end(lw->op, r);
    free(lw);
}

/* Does the operation of a wait that is in no list any more: ends it, or waits on. */
static void finish(struct pst_local *l, struct local_wait *lw)
{
    struct penstock_op *op = lw->op;
    uint64_t until_ns = lw->until_ns;
    uint32_t number = lw->shard;
    int r;

    pst_assert(lw->magic == LOCAL_WAIT_MAGIC);
    pst_assert(pst_list_empty(&lw->link));
    if (lw->of_tier) {
        finish_tier(l, lw);
        return;
    }
    pst_shard_unwait(pst_local_lock(l, number), &lw->wait);
    pst_local_unlock(l, number);
    free(lw);
    r = pst_local_apply(l, number, op, until_ns);
    if (r != LOCAL_PARKED)
        pst_op_end(op, r);
}

void pst_local_sleep(struct pst_local *l, uint64_t until_ns)
{
    if (until_ns == UINT64_MAX)
        pthread_cond_wait(&l->stirred, &l->handle->lock);
    else
        pst_cond_wait_until(&l->stirred, &l->handle->lock, until_ns);
}

uint64_t pst_local_await(struct penstock *store, const struct pst_op_list *done, size_t count,
                         uint64_t deadline_ns)
{
    struct pst_local *l = store->local;
    struct pst_turn turn = pst_turn_begin(pst_now_ns, TURN_NS);
    uint64_t next_ns;
    bool on_disk, looked = false, more = false;

    pthread_mutex_lock(&store->lock);
    for (;;) {
        struct local_wait *lw = next_due(l, done, &next_ns, &on_disk);

        if (lw) {
            unlink_wait(l, lw);
            pthread_mutex_unlock(&store->lock);
            finish(l, lw);
            pthread_mutex_lock(&store->lock);
        } else if (done->count >= count || (next_ns == UINT64_MAX && !on_disk) ||
                   (pst_now_ns() >= deadline_ns && (looked || !on_disk))) {
            break;
        } else if (on_disk) {
            /* Who only looks in carries the disk's work on, too, as far as it goes in a turn. */
            more = pst_local_tier_round(l, pst_min(next_ns, deadline_ns));
            looked = !more || pst_turn_is_over(&turn);
        } else {
            pst_local_sleep(l, pst_min(next_ns, deadline_ns));
        }
    }
    pthread_mutex_unlock(&store->lock);
    return on_disk ? pst_min(next_ns, pst_deadline_ns(pst_now_ns(), more ? 0 : ROUND_MS_MAX)) : next_ns;
}

/* ---- watches ---- */

/* A question that is underway must not look at the watch again. */
static void forget_watch(struct pst_local *l, uint64_t handle)
{
    pthread_mutex_lock(&l->handle->lock);
    pst_list_each (it, &l->waits) {
        struct penstock_op *op = pst_list_entry(it, struct local_wait, link)->op;

        if (op->code == PST_WIRE_WATCH_NEXT && op->handle == handle)
            op->handle = 0;
    }
    pthread_mutex_unlock(&l->handle->lock);
}

static int read_changes(struct pst_watch *watch, struct penstock_op *op)
{
    int64_t bytes = pst_watch_read(watch, op->data, op->bytes);

    pst_assert(bytes <= (int64_t)op->bytes);
    op->value_bytes = bytes < 0 ? 0 : (uint64_t)bytes;
    return bytes < 0 ? (int)bytes : 0;
}

int pst_local_watch(struct pst_local *l, uint32_t number, struct penstock_op *op, uint64_t until_ns)
{
    struct pst_shard *shard = pst_store_shard(l->store, number);
    struct pst_watch *watch = (struct pst_watch *)(uintptr_t)op->handle;
    struct pst_shard_later later;
    int r;

    pst_assert(number < l->shard_count);
    switch (op->code) {
    case PST_WIRE_WATCH_OPEN:
        pst_shard_stat_later(shard, &later);
        pst_assert(later.watches <= LOCAL_WATCHES_MAX);
        if (later.watches == LOCAL_WATCHES_MAX)
            return -EMFILE;
        r = pst_watch_open(shard, (struct pst_bytes){op->key, op->key_bytes}, op->flags & PST_WIRE_MOVES,
                           &watch);
        op->generation = (uintptr_t)watch;
        return r;
    case PST_WIRE_WATCH_NEXT:
        if (!watch)
            return -EBADF;
        if (pst_watch_pending(watch) || pst_now_ns() >= until_ns)
            return read_changes(watch, op);
        return pst_local_park(l, number, op, until_ns, NULL, watch);
    default:
        pst_assert(op->code == PST_WIRE_WATCH_CLOSE);
        forget_watch(l, op->handle);
        pst_watch_close(watch);
        return 0;
    }
}

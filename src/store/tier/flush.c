/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flush.c: all that a shard has in memory or on the device alone, and a crash is to bring back, goes to the
 * log, which is then synced. One flush at a time, for all who asked before it began:
 *
 *   NONE    asked for: WALK; of a mere sync: SAVES
 *   WALK    begins saves in the order of keys, and counts those that are underway already; the last: SAVES
 *   SAVES   all that were counted have ended: SYNC; but once more WALK where a value was missed
 *   SYNC    the log is synced: NONE, and who waits is told the first fault, or that there was none
 *
 * Values that are written later are not its business. So a value is *missed* that was overwritten before the
 * walk came to it, or while its save failed: what is there now has to do for it, and the second walk takes
 * newer values, too. A save that finds the log full has the walk begin anew while room may come; any other
 * fault is the flush's, which goes on with the rest.
 */
#include "store/index/order.h"
#include "store/pins_priv.h"
#include "store/place.h"
#include "store/tier/tier_priv.h"

enum {
    AGAIN_NS = 10000000,   /* after a value of the device that found no memory */
    SHORT_NS = 2000000000, /* none did for so long: then the flush does not wait any more */
};

static void flush_count_save(struct pst_flush *f, struct pst_save *save)
{
    pst_assert(f->state != PST_FLUSH_NONE);
    f->saves += !save->of_flush;
    save->of_flush = true;
}

static void flush_fails(struct pst_flush *f, int result)
{
    pst_assert(result < 0);
    f->result = f->result ? f->result : result;
}

static void flush_walk_anew(struct pst_flush *f)
{
    pst_assert(f->walks);
    f->state = PST_FLUSH_WALK;
    f->key_bytes = 0;
}

/* Room is waited for once: the rest of a flush that has failed for want of it is tried without. */
static bool flush_awaits_room(struct pst_tier *t, int result)
{
    return result == -ENOSPC && t->flush.result != -ENOSPC && pst_tier_awaits_room(t);
}

void pst_flush_superseded(struct pst_tier *t, const struct pst_record *old, struct pst_save *underway,
                          bool behind)
{
    struct pst_flush *f = &t->flush;

    if (f->state != PST_FLUSH_WALK || old->generation > f->generation || pst_record_placed(old))
        return;
    if (underway)
        flush_count_save(f, underway);
    else if (behind || old->flags & PST_RECORD_TIERED || pst_older_find(t, old))
        f->missed = true;
}

void pst_flush_save_done(struct pst_tier *t, const struct pst_save *save, int result)
{
    struct pst_flush *f = &t->flush;
    bool deleted = save->record->state & PST_RECORD_UNLINKED && !save->newer;

    pst_assert(f->saves > 0);
    f->saves--;
    if (save->fetch)
        f->again_ns = 0; /* its memory comes back */
    if (!f->walks || result == 0 || result == -ESTALE || deleted)
        return;
    if (flush_awaits_room(t, result)) {
        f->takes_newer |= save->newer > 0;
        flush_walk_anew(f);
    } else if (save->newer && !f->takes_newer) {
        f->missed = true;
    } else {
        flush_fails(f, result);
    }
}

/* ---- the walk ---- */

static void flush_let_fetch(struct pst_flush *f)
{
    if (f->fetch)
        pst_fetch_leave(f->fetch);
    f->fetch = NULL;
}

/* Memory was short for a value of the device. Return: PST_BUSY it may not be soon, -ENOSPC it has been too
 * long. */
static int flush_is_short(struct pst_flush *f, uint64_t now_ns)
{
    f->short_ns = f->short_ns ? f->short_ns : now_ns;
    f->again_ns = now_ns + AGAIN_NS;
    return now_ns - f->short_ns < SHORT_NS ? PST_BUSY : -ENOSPC;
}

/* A value that the device alone has is read into memory that nobody knows, for the log to be written from
 * there. Return: 0 it is there, PST_BUSY it is to be, -errno. */
static int flush_fetch(struct pst_tier *t, struct pst_record *r)
{
    struct pst_flush *f = &t->flush;
    uint64_t now_ns = t->clock();
    int result;

    if (f->fetch && f->fetch->stub != r) /* another value has come to be where the walk is */
        flush_let_fetch(f);
    if (!f->fetch && now_ns >= f->again_ns)
        f->fetch = pst_fetch_join(t, r, 0, r->value_bytes);
    if (!f->fetch || !f->fetch->ended)
        return PST_BUSY;
    result = f->fetch->result;
    if (result == 0) {
        f->short_ns = 0;
        return 0;
    }
    flush_let_fetch(f);
    return result == PST_BUSY || result == -ENOSPC ? flush_is_short(f, now_ns) : result;
}

/* Begins to save the value, or counts the save that is underway. Return: 0, PST_BUSY, -errno. */
static int flush_save(struct pst_tier *t, struct pst_record *r)
{
    struct pst_flush *f = &t->flush;
    struct pst_save *save = pst_save_underway(t, r);
    bool fetches = !save && pst_record_away(r);
    int result = fetches ? flush_fetch(t, r) : 0;

    if (!save && result == 0)
        result = pst_save_begin(t, r, PST_SAVE_FLUSH, fetches ? f->fetch : NULL, &save);
    if (fetches && result == 0)
        f->fetch = NULL; /* the save's now */
    if (result == 0)
        flush_count_save(f, save);
    return flush_awaits_room(t, result) ? PST_BUSY : result;
}

/* Return: false when nothing more can begin now. */
static bool flush_one(struct pst_tier *t, struct pst_record *r)
{
    struct pst_flush *f = &t->flush;
    int result;

    pst_assert(f->state == PST_FLUSH_WALK);
    if (r->flags & PST_RECORD_ON_DISK || pst_record_placed(r) || r->state & PST_STATE_RESERVED ||
        (r->generation > f->generation && !f->takes_newer))
        return true;
    if (!(r->flags & PST_RECORD_TIERED) || pst_record_doomed(t->shard, r)) {
        /* It does not outlive the node, and what it overwrote must not come back. */
        pst_save_forget(t, r);
        pst_older_delete(t, r, 0);
        return true;
    }
    result = flush_save(t, r);
    if (result < 0)
        flush_fails(f, result);
    return result != PST_BUSY;
}

static void flush_walk_behind(struct pst_flush *f, const struct pst_record *r)
{
    struct pst_bytes key = pst_record_key(r);

    pst_assert(key.len > 0 && key.len <= sizeof(f->key));
    f->key_bytes = r->key_bytes;
    memcpy(f->key, key.data, key.len);
}

/* Return: true when it went on. */
static bool flush_walk(struct pst_tier *t)
{
    struct pst_shard *s = t->shard;
    struct pst_flush *f = &t->flush;
    struct pst_order_cursor cursor =
        pst_order_seek(s->order, (struct pst_bytes){f->key, f->key_bytes}, f->key_bytes > 0);
    uint64_t changes = s->changes;
    bool went_on = false;

    pst_assert(f->state == PST_FLUSH_WALK);
    pst_assert(f->key_bytes <= PST_KEY_BYTES_MAX);
    do {
        uint64_t ref = pst_order_next(s->order, &cursor);

        if (!ref)
            f->state = PST_FLUSH_SAVES;
        if (!ref || !flush_one(t, pst_ref_record(s, ref)))
            break;
        flush_walk_behind(f, pst_ref_record(s, ref));
        went_on = true;
        /* A fetch that the next one leaves may be the last to keep a cleared value: that one goes then, and
         * the cursor is of before. */
    } while (s->changes == changes && !pst_turn_is_over(&t->turn));
    if (f->state == PST_FLUSH_SAVES)
        flush_let_fetch(f);
    return went_on || f->state == PST_FLUSH_SAVES;
}

/* ---- from one to the next ---- */

void pst_tier_sync(struct pst_shard *s, struct pst_tier_wait *wait)
{
    pst_assert(s->tier);
    *wait = (struct pst_tier_wait){0};
    pst_list_push_back(&s->tier->flush.waits_next, &wait->link);
}

void pst_tier_flush(struct pst_shard *s, struct pst_tier_wait *wait)
{
    pst_tier_sync(s, wait);
    s->tier->flush.walks_next = true;
}

static void flush_begin(struct pst_tier *t)
{
    struct pst_flush *f = &t->flush;

    pst_assert(f->state == PST_FLUSH_NONE);
    pst_assert(f->saves == 0 && !f->fetch);
    pst_assert(pst_list_empty(&f->waits));
    while (!pst_list_empty(&f->waits_next)) {
        struct pst_list *first = f->waits_next.next;

        pst_list_remove(first);
        pst_list_push_back(&f->waits, first);
    }
    f->walks = f->walks_next;
    f->state = f->walks ? PST_FLUSH_WALK : PST_FLUSH_SAVES;
    f->walks_next = f->missed = f->takes_newer = false;
    f->short_ns = f->again_ns = 0;
    f->result = 0;
    f->key_bytes = 0;
    f->generation = t->shard->generation;
    /* What was deleted while it was on its way is deleted when it has come there. */
    for (int i = 0; i < PST_SAVES_MAX; i++) {
        if (t->saves[i].record)
            flush_count_save(f, &t->saves[i]);
    }
}

static void flush_sync(struct pst_tier *t)
{
    struct pst_flush *f = &t->flush;

    pst_assert(f->state == PST_FLUSH_SAVES && f->saves == 0);
    f->state = PST_FLUSH_SYNC;
    f->op = (struct pst_log_sync){0};
    pst_log_sync(t->lane, &f->op);
}

bool pst_flush_run(struct pst_tier *t)
{
    struct pst_flush *f = &t->flush;

    if (f->state == PST_FLUSH_NONE && !pst_list_empty(&f->waits_next))
        flush_begin(t);
    if (f->state == PST_FLUSH_WALK)
        return flush_walk(t);
    if (f->state != PST_FLUSH_SAVES || f->saves > 0)
        return false;
    if (f->missed && !f->takes_newer) {
        f->takes_newer = true;
        flush_walk_anew(f);
    } else {
        flush_sync(t);
    }
    return true;
}

void pst_flush_synced(struct pst_tier *t, int result)
{
    struct pst_flush *f = &t->flush;

    pst_assert(f->state == PST_FLUSH_SYNC);
    pst_assert(f->saves == 0);
    f->state = PST_FLUSH_NONE;
    if (result < 0) {
        t->shard->stat_later.ssd_errors++;
        flush_fails(f, result);
    }
    while (!pst_list_empty(&f->waits))
        pst_tier_end_wait(t, pst_list_first(&f->waits, struct pst_tier_wait, link), f->result);
}

bool pst_flush_idle(const struct pst_tier *t)
{
    return t->flush.state == PST_FLUSH_NONE && pst_list_empty(&t->flush.waits_next) &&
           pst_list_empty(&t->wanted);
}

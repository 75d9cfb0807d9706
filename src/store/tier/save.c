/* SPDX-License-Identifier: Apache-2.0 */
/*
 * save.c: values on their way to the log: those that give their memory up, those that a writer wants to be
 * durable, and those of a flush (flush.c). A save keeps its record by a reference and changes nothing before
 * the log has the value.
 */
#include "store/memory_priv.h"
#include "store/pins_priv.h"
#include "store/place.h"
#include "store/record_mark.h"
#include "store/tier/tier_priv.h"

enum { SAVES_OF_FLUSH = 16 };

/* ---- one value ---- */

static void save_count_pages(struct pst_save *save, bool more)
{
    struct pst_store *store = save->tier->shard->store;

    pst_assert(save->tier && save->tier->magic == PST_TIER_MAGIC);
    pst_assert(more || (store->saving_pages >= save->pages && store->saves > 0));
    atomic_fetch_add_explicit(&store->saving_pages, more ? save->pages : -save->pages, memory_order_relaxed);
    atomic_fetch_add_explicit(&store->saves, more ? 1 : -1u, memory_order_relaxed);
}

/* One copy of a value is enough, and a second would outlive the word of the first one's death. */
struct pst_save *pst_save_underway(struct pst_tier *t, const struct pst_record *r)
{
    pst_assert(t->saves_underway <= PST_SAVES_MAX);
    for (int i = 0; r->state & PST_RECORD_PINNED && i < PST_SAVES_MAX; i++) {
        if (t->saves[i].record == r)
            return &t->saves[i];
    }
    return NULL;
}

/* What has overwritten the save's value; 0: nothing, or that has gone, too. */
static void set_newer(struct pst_tier *t, struct pst_save *save, uint64_t newer)
{
    t->overtaken += !!newer - !!save->newer;
    save->newer = newer;
    pst_assert(t->overtaken <= t->saves_underway);
}

/* Saves of values that @r has overwritten, of each one after the other: now @newer has. Return: whether there
 * are any. */
static bool saves_behind(struct pst_tier *t, const struct pst_record *r, uint64_t newer)
{
    bool any = false;

    for (int i = 0; t->overtaken > 0 && i < PST_SAVES_MAX; i++) {
        const struct pst_record *old = t->saves[i].record;

        if (old && t->saves[i].newer == r->generation &&
            pst_bytes_equal(pst_record_key(old), pst_record_key(r))) {
            set_newer(t, &t->saves[i], newer);
            any = true;
        }
    }
    return any;
}

void pst_save_superseded(struct pst_tier *t, const struct pst_record *old, const struct pst_record *r)
{
    struct pst_save *underway = pst_save_underway(t, old);
    bool behind = saves_behind(t, old, r->generation);

    pst_assert(r->generation > old->generation);
    if (underway)
        set_newer(t, underway, r->generation);
    pst_flush_superseded(t, old, underway, behind);
}

void pst_save_forget(struct pst_tier *t, const struct pst_record *r)
{
    (void)saves_behind(t, r, 0);
}

static void save_give(struct pst_tier *t, struct pst_save *save)
{
    pst_assert(save->record);
    pst_assert(save->tier == t);
    pst_tier_pieces_free(&save->pieces);
    if (save->fetch)
        pst_fetch_leave(save->fetch);
    save->fetch = NULL;
    save->record = NULL;
    save->wait = NULL;
    pst_list_remove(&save->link);
    pst_list_push_front(&t->saves_idle, &save->link);
}

/* Between polls the first one begins a turn. */
static bool demoted_enough(struct pst_tier *t)
{
    if (!t->turn_begun)
        pst_tier_begin_turn(t);
    pst_assert(t->turn_begun);
    return t->demoted && pst_turn_is_over(&t->turn);
}

int pst_save_begin(struct pst_tier *t, struct pst_record *r, enum pst_save_reason reason,
                   struct pst_fetch *fetch, struct pst_save **out)
{
    struct pst_shard *s = t->shard;
    struct pst_save *save;
    bool demotes = reason == PST_SAVE_DEMOTES;
    int result;

    pst_assert(r->flags & PST_RECORD_TIERED);
    pst_assert(!pst_record_placed(r));
    pst_assert(!pst_save_underway(t, r));
    pst_assert(fetch ? fetch->stub == r && fetch->record : !pst_record_away(r));
    if (demotes)
        t->log_busy = t->log_busy || demoted_enough(t);
    if (pst_list_empty(&t->saves_idle) || (demotes && t->log_busy))
        return PST_BUSY;
    save = pst_list_first(&t->saves_idle, struct pst_save, link);
    result = pst_tier_pieces(s, fetch ? fetch->record : r, &save->pieces);
    if (result < 0)
        return result;
    save->append = (struct pst_log_append){.value = pst_record_log_value(r),
                                           .iov = save->pieces.iov,
                                           .iov_count = (uint32_t)save->pieces.count,
                                           .durable = reason == PST_SAVE_LASTS};
    result = pst_shard_ref(s, r);
    if (result == 0) {
        result = pst_log_append(t->lane, &save->append);
        if (result < 0)
            pst_shard_unref(s, r);
    }
    if (result < 0) {
        pst_tier_pieces_free(&save->pieces);
        t->log_busy |= result == -EBUSY;
        return result == -EBUSY ? PST_BUSY : result;
    }
    pst_assert(!save->record && !save->newer && !save->wait && !save->fetch);
    pst_assert(t->saves_underway < PST_SAVES_MAX);
    save->record = r;
    save->fetch = fetch;
    save->demotes = demotes;
    t->demoted = t->demoted || demotes;
    save->of_flush = false;
    save->pages = demotes ? pst_record_pages(r) : 0;
    save_count_pages(save, true);
    pst_list_remove(&save->link);
    t->saves_underway++;
    if (!demotes)
        t->starved_ns = 0;
    *out = save;
    return 0;
}

void pst_record_clean(struct pst_shard *s, struct pst_record *r, struct pst_log_place place, uint32_t crc)
{
    pst_assert(r->flags & PST_RECORD_TIERED);
    pst_assert(!(r->flags & PST_RECORD_ON_DISK));
    if (r->value_bytes <= PST_LOG_BLOCK_BYTES && !(r->flags & PST_RECORD_CHECKSUM) && r->value_crc != crc) {
        pst_record_mark(r, 0);
        r->value_crc = crc;
        pst_record_mark(r, pst_record_check(r, s->store->check_seed, pst_record_offset(s, r)));
    }
    pst_record_set_place(r, place);
}

/* A value that was overwritten while it was saved is what a crash is to bring back, like one that was
 * overwritten afterwards. Return: 0, -ENOMEM, -ESTALE it is not: its key has been deleted, or a newer one
 * saved. */
static int settle_older(struct pst_tier *t, const struct pst_save *save)
{
    const struct pst_record *r = save->record;
    struct pst_lookup lookup = pst_shard_lookup(t->shard, pst_record_key(r));
    const struct pst_record *now = save->newer ? pst_shard_find(t->shard, &lookup) : NULL;
    const struct pst_older *older = now ? pst_older_find(t, now) : NULL;

    if (!now || now->generation != save->newer || pst_record_placed(now) ||
        (older && older->generation > r->generation))
        return -ESTALE;
    pst_assert(!(now->state & PST_STATE_RESERVED));
    pst_older_delete(t, now, save->append.op.ticket);
    return pst_older_add(t, now,
                         (struct pst_older){.generation = r->generation,
                                            .place = save->append.place,
                                            .value_bytes = r->value_bytes & PST_VALUE_BYTES_MASK,
                                            .attr_bytes = r->attr_bytes})
               ? 0
               : -ENOMEM;
}

/* The log has a copy. Return: 0, -EBADMSG: of other bytes than the writer's, -ESTALE and -ENOMEM: it does not
 * keep that. */
static int settle_copy(struct pst_tier *t, struct pst_save *save)
{
    struct pst_shard *s = t->shard;
    struct pst_record *r = save->record;
    struct pst_log_value value = pst_record_log_value(r);
    bool one_block = r->value_bytes <= PST_LOG_BLOCK_BYTES;
    bool damaged = one_block && r->flags & PST_RECORD_CHECKSUM && r->value_crc != save->append.crc;
    int result = damaged ? -EBADMSG : r->state & PST_RECORD_UNLINKED ? settle_older(t, save) : 0;

    pst_assert(save->append.op.result == 0);
    if (damaged)
        s->stat_later.ssd_corrupt++;
    if (result < 0) {
        value.era = save->append.value.era;
        /* Alone: the log's copy of an earlier value may be what a crash is to bring back. */
        if (pst_log_delete_alone(t->lane, &value, save->append.place) < 0)
            s->stat_later.ssd_errors++;
        return result;
    }
    if (r->state & PST_RECORD_UNLINKED)
        return 0;
    pst_assert(!pst_record_placed(r));
    pst_record_clean(s, r, save->append.place, save->append.crc);
    pst_older_delete(t, r, save->append.op.ticket);
    return 0;
}

bool pst_record_only_ours(struct pst_shard *s, const struct pst_record *r)
{
    const struct pst_pin *pin = pst_record_pin(s, r);

    pst_assert(pin && pin->refs > 0);
    return !(r->state & PST_RECORD_UNLINKED) && pin->refs == 1 && !pin->hard && !pin->until_ns &&
           !pin->doomed;
}

/* What was to be durable has been overwritten or deleted before the log had it: then that has to be, or a
 * crash might bring back what was there before either. */
static void save_follow(struct pst_tier *t, struct pst_tier_wait *wait, const struct pst_record *r)
{
    struct pst_lookup lookup = pst_shard_lookup(t->shard, pst_record_key(r));
    struct pst_record *now = pst_shard_find(t->shard, &lookup);

    pst_assert(!wait->ended);
    if (now && pst_record_placed(now))
        pst_tier_sync(t->shard, wait);
    else if (!now || now->state & PST_STATE_RESERVED || pst_record_away(now) ||
             pst_tier_save(t->shard, now, wait) < 0)
        pst_tier_flush(t->shard, wait);
}

void pst_save_done(struct pst_tier *t, struct pst_save *save, uint64_t now_ns)
{
    struct pst_shard *s = t->shard;
    struct pst_record *r = save->record;
    int result = save->append.op.result;
    bool goes;

    pst_assert(t->saves_underway > 0);
    pst_assert(r);
    save_count_pages(save, false);
    if (result == -ENOSPC)
        pst_tier_full(t, now_ns);
    else if (result < 0)
        s->stat_later.ssd_errors++;
    else
        result = settle_copy(t, save);
    goes = result == 0 && save->demotes && pst_record_only_ours(s, r);
    if (result == 0 && save->demotes)
        s->stat_later.demoted_bytes += r->value_bytes;
    if (save->wait && result == -ESTALE)
        save_follow(t, save->wait, r);
    else if (save->wait)
        pst_tier_end_wait(t, save->wait, result);
    if (save->of_flush)
        pst_flush_save_done(t, save, result);
    set_newer(t, save, 0);
    t->saves_underway--;
    pst_shard_unref(s, r);
    if (goes) {
        s->stat_later.demotions++;
        pst_stub_replace(s, r);
    }
    save_give(t, save);
}

/* ---- durable writes ---- */

int pst_tier_save(struct pst_shard *s, struct pst_record *r, struct pst_tier_wait *wait)
{
    int result = r->flags & PST_RECORD_EXPIRES ? -EINVAL : pst_shard_ref(s, r);

    pst_assert(s->tier);
    pst_assert(!pst_record_away(r));
    if (result < 0)
        return result;
    *wait = (struct pst_tier_wait){.record = r};
    pst_list_push_back(&s->tier->wanted, &wait->link);
    return 0;
}

/* All of them for writers would have a flush wait as long as there are many. */
static bool leaves_some_for_flush(const struct pst_tier *t)
{
    return t->flush.state != PST_FLUSH_WALK || t->saves_underway < PST_SAVES_MAX - SAVES_OF_FLUSH;
}

bool pst_save_run(struct pst_tier *t)
{
    bool something = false;

    if (pst_list_empty(&t->wanted))
        return false;
    do {
        struct pst_tier_wait *wait = pst_list_first(&t->wanted, struct pst_tier_wait, link);
        struct pst_record *r = wait->record;
        struct pst_save *save;
        int result = 0;
        bool gone;

        pst_assert(r);
        gone = r->state & PST_RECORD_UNLINKED || pst_record_placed(r);
        save = gone ? NULL : pst_save_underway(t, r);
        if (!gone)
            result = save || !leaves_some_for_flush(t) ? PST_BUSY
                                                       : pst_save_begin(t, r, PST_SAVE_LASTS, NULL, &save);
        if (result == PST_BUSY || (result == -ENOSPC && pst_tier_awaits_room(t)))
            break;
        something = true;
        wait->record = NULL;
        pst_list_remove(&wait->link);
        if (gone)
            save_follow(t, wait, r);
        else if (result < 0)
            pst_tier_end_wait(t, wait, result);
        else
            save->wait = wait;
        pst_shard_unref(t->shard, r);
    } while (!pst_list_empty(&t->wanted) && !pst_turn_is_over(&t->turn));
    return something;
}

bool pst_tier_saves(const struct pst_shard *s, const struct pst_record *r)
{
    struct pst_tier *t = s->tier;

    if (!pst_tier_logs(t) || r->flags & PST_RECORD_EXPIRES)
        return false;
    if (r->flags & PST_RECORD_ON_DISK || pst_record_placed(r) || pst_older_find(t, r) ||
        pst_save_underway(t, r))
        return true;
    for (const struct pst_list *link = t->wanted.next; link != &t->wanted; link = link->next)
        if (pst_container_of(link, struct pst_tier_wait, link)->record == r)
            return true;
    return false;
}

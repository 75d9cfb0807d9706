/* SPDX-License-Identifier: Apache-2.0 */
/*
 * save.c: values on their way to the log: those that give their memory up, those that a writer wants to be
 * durable, and all of a shard at a flush. A save keeps its record by a reference and changes nothing before
 * the log has the value.
 */
#include "store/index/order.h"
#include "store/memory_priv.h"
#include "store/pins_priv.h"
#include "store/place.h"
#include "store/record_mark.h"
#include "store/tier/tier_priv.h"

enum {
    AGAIN_NS = 10000000,   /* after a value of the device that found no memory */
    SHORT_NS = 2000000000, /* none did for so long: then the flush does not wait any more */
};

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
static struct pst_save *underway_of(struct pst_tier *t, const struct pst_record *r)
{
    pst_assert(t->saves_underway <= PST_SAVES_MAX);
    for (int i = 0; r->state & PST_RECORD_PINNED && i < PST_SAVES_MAX; i++) {
        if (t->saves[i].record == r)
            return &t->saves[i];
    }
    return NULL;
}

/* The save of a value that @r has overwritten. */
static struct pst_save *save_behind(struct pst_tier *t, const struct pst_record *r)
{
    for (int i = 0; t->overtaken > 0 && i < PST_SAVES_MAX; i++) {
        const struct pst_record *old = t->saves[i].record;

        if (old && t->saves[i].newer == r->generation &&
            pst_bytes_equal(pst_record_key(old), pst_record_key(r)))
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

/* The flush waits for it. */
static void count_for_flush(struct pst_tier *t, struct pst_save *save)
{
    pst_assert(t->flush.underway);
    t->flush.saves += !save->of_flush;
    save->of_flush = true;
}

void pst_save_superseded(struct pst_tier *t, const struct pst_record *old, const struct pst_record *r)
{
    struct pst_save *underway = underway_of(t, old), *save = underway ? underway : save_behind(t, old);

    pst_assert(r->generation > old->generation);
    if (save)
        set_newer(t, save, r->generation);
    if (!pst_flush_walks(t) || old->generation > t->flush.generation || pst_record_placed(old) ||
        (!(old->flags & PST_RECORD_TIERED) && !pst_older_find(t, old)))
        return;
    if (underway)
        count_for_flush(t, underway);
    else
        t->flush.missed = true;
}

void pst_save_forget(struct pst_tier *t, const struct pst_record *r)
{
    struct pst_save *save = save_behind(t, r);

    if (save)
        set_newer(t, save, 0);
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

int pst_save_begin(struct pst_tier *t, struct pst_record *r, bool durable, bool demotes,
                   struct pst_save **out)
{
    struct pst_shard *s = t->shard;
    struct pst_save *save;
    int result;

    pst_assert(r->flags & PST_RECORD_TIERED);
    pst_assert(!pst_record_placed(r));
    pst_assert(!underway_of(t, r));
    if (demotes)
        t->log_busy = t->log_busy || demoted_enough(t);
    if (pst_list_empty(&t->saves_idle) || (demotes && t->log_busy))
        return PST_BUSY;
    save = pst_list_first(&t->saves_idle, struct pst_save, link);
    pst_assert(!pst_record_away(r) || (t->flush.fetch && t->flush.fetch->stub == r));
    result = pst_tier_pieces(s, pst_record_away(r) ? t->flush.fetch->record : r, &save->pieces);
    if (result < 0)
        return result;
    save->append = (struct pst_log_append){.value = pst_record_log_value(r),
                                           .iov = save->pieces.iov,
                                           .iov_count = (uint32_t)save->pieces.count,
                                           .durable = durable};
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
    pst_assert(!save->record);
    pst_assert(t->saves_underway < PST_SAVES_MAX);
    save->record = r;
    pst_assert(!save->newer && !save->fetch);
    if (pst_record_away(r)) {
        save->fetch = t->flush.fetch;
        t->flush.fetch = NULL;
    }
    save->demotes = demotes;
    t->demoted = t->demoted || demotes;
    save->of_flush = false;
    save->wait = NULL;
    save->pages = demotes ? pst_record_pages(r) : 0;
    save_count_pages(save, true);
    pst_list_remove(&save->link);
    t->saves_underway++;
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
 * overwritten afterwards. Return: 0, -ENOMEM, -ESTALE it is not: its key has been deleted, or the newer one
 * saved. */
static int settle_older(struct pst_tier *t, const struct pst_save *save)
{
    const struct pst_record *r = save->record;
    struct pst_lookup lookup = pst_shard_lookup(t->shard, pst_record_key(r));
    const struct pst_record *now = save->newer ? pst_shard_find(t->shard, &lookup) : NULL;

    if (!now || now->generation != save->newer || pst_record_placed(now))
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
    if (!now || now->state & PST_STATE_RESERVED || pst_record_placed(now) || pst_record_away(now) ||
        pst_tier_save(t->shard, now, wait) < 0)
        pst_tier_flush(t->shard, wait);
}

static void flush_walk_anew(struct pst_flush *f)
{
    pst_assert(f->underway && f->walks);
    f->walked = false;
    f->key_bytes = 0;
}

static void flush_fails(struct pst_tier *t, int result)
{
    pst_assert(result < 0);
    t->flush.result = t->flush.result ? t->flush.result : result;
}

/* A save that the flush waited for has ended. Where it failed and its value has been overwritten, the log is
 * to have what is there now. */
static void flush_save_done(struct pst_tier *t, const struct pst_save *save, int result)
{
    struct pst_flush *f = &t->flush;
    bool deleted = save->record->state & PST_RECORD_UNLINKED && !save->newer;

    pst_assert(f->saves > 0);
    f->saves--;
    if (!f->walks || result == 0 || result == -ESTALE || deleted)
        return;
    if (result == -ENOSPC && pst_tier_awaits_room(t)) {
        f->again |= save->newer > 0;
        flush_walk_anew(f);
    } else if (save->newer && !f->again) {
        f->missed = true;
    } else {
        flush_fails(t, result);
    }
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
        flush_save_done(t, save, result);
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

static bool begin_wanted(struct pst_tier *t)
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
        save = gone ? NULL : underway_of(t, r);
        if (!gone)
            result = save ? PST_BUSY : pst_save_begin(t, r, true, false, &save);
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
    if (r->flags & PST_RECORD_ON_DISK || pst_record_placed(r) || pst_older_find(t, r) || underway_of(t, r))
        return true;
    for (const struct pst_list *link = t->wanted.next; link != &t->wanted; link = link->next)
        if (pst_container_of(link, struct pst_tier_wait, link)->record == r)
            return true;
    return false;
}

/* ---- flush ---- */

void pst_tier_sync(struct pst_shard *s, struct pst_tier_wait *wait)
{
    pst_assert(s->tier);
    *wait = (struct pst_tier_wait){0};
    pst_list_push_back(&s->tier->flush.waits_next, &wait->link);
}

void pst_tier_new_era(struct pst_shard *s)
{
    if (pst_tier_logs(s->tier))
        pst_log_new_era(s->store->log);
}

void pst_tier_flush(struct pst_shard *s, struct pst_tier_wait *wait)
{
    pst_tier_sync(s, wait);
    s->tier->flush.walks_next = true;
}

bool pst_flush_idle(const struct pst_tier *t)
{
    return !t->flush.underway && pst_list_empty(&t->flush.waits_next) && pst_list_empty(&t->wanted);
}

static void flush_begin(struct pst_tier *t)
{
    struct pst_flush *f = &t->flush;

    pst_assert(!f->underway);
    pst_assert(f->saves == 0);
    pst_assert(pst_list_empty(&f->waits));
    while (!pst_list_empty(&f->waits_next)) {
        struct pst_list *first = f->waits_next.next;

        pst_list_remove(first);
        pst_list_push_back(&f->waits, first);
    }
    f->underway = true;
    f->walks = f->walks_next;
    f->walked = !f->walks;
    f->walks_next = f->syncing = false;
    f->missed = f->again = false;
    f->short_ns = f->again_ns = 0;
    f->result = 0;
    f->key_bytes = 0;
    f->generation = t->shard->generation;
    /* What was deleted while it was on its way is deleted when it has come there. */
    for (int i = 0; i < PST_SAVES_MAX; i++) {
        if (t->saves[i].record)
            count_for_flush(t, &t->saves[i]);
    }
}

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

/* Return: false when nothing more can begin now. */
static bool flush_one(struct pst_tier *t, struct pst_record *r)
{
    struct pst_save *save;
    int result;

    pst_assert(t->flush.underway);
    pst_assert(!t->flush.walked);
    if (r->flags & PST_RECORD_ON_DISK || pst_record_placed(r) || r->state & PST_STATE_RESERVED ||
        (r->generation > t->flush.generation && !t->flush.again))
        return true;
    if (!(r->flags & PST_RECORD_TIERED) || pst_record_doomed(t->shard, r)) {
        pst_older_delete(t, r,
                         0); /* it does not outlive the node, and what it overwrote must not come back */
        return true;
    }
    save = underway_of(t, r);
    if (save) {
        count_for_flush(t, save);
        return true;
    }
    result = pst_record_away(r) ? flush_fetch(t, r) : 0;
    if (result == 0) {
        result = pst_save_begin(t, r, false, false, &save);
        if (result == -ENOSPC && pst_tier_awaits_room(t))
            result = PST_BUSY;
    }
    if (result == 0)
        count_for_flush(t, save);
    else if (result < 0)
        flush_fails(t, result);
    return result != PST_BUSY;
}

/* Return: true when it went on. */
static bool flush_walk(struct pst_tier *t)
{
    struct pst_shard *s = t->shard;
    struct pst_flush *f = &t->flush;
    struct pst_order_cursor cursor =
        pst_order_seek(s->order, (struct pst_bytes){f->key, f->key_bytes}, f->key_bytes > 0);
    struct pst_record *last = NULL;
    uint64_t changes = s->changes;

    pst_assert(f->underway);
    pst_assert(!f->walked);
    pst_assert(f->key_bytes <= PST_KEY_BYTES_MAX);
    do {
        uint64_t ref = pst_order_next(s->order, &cursor);

        f->walked = ref == 0;
        if (!ref || !flush_one(t, pst_ref_record(s, ref)))
            break;
        last = pst_ref_record(s, ref);
        /* A fetch that was left may have been the last to keep a cleared value: the cursor is of before. */
    } while (s->changes == changes && !pst_turn_is_over(&t->turn));
    if (last) {
        f->key_bytes = last->key_bytes;
        memcpy(f->key, pst_record_key(last).data, last->key_bytes);
    }
    if (f->walked)
        flush_let_fetch(f);
    return last != NULL || f->walked;
}

static bool flush_run(struct pst_tier *t)
{
    struct pst_flush *f = &t->flush;

    if (!f->underway) {
        if (pst_list_empty(&f->waits_next) || !pst_list_empty(&t->wanted))
            return false;
        flush_begin(t);
    }
    if (!f->walked)
        return flush_walk(t);
    if (f->saves || f->syncing)
        return false;
    if (f->missed && !f->again) { /* what is there now does for what was there when it began */
        f->again = true;
        flush_walk_anew(f);
        return true;
    }
    pst_assert(f->walked);
    pst_assert(f->saves == 0);
    f->syncing = true;
    f->op = (struct pst_log_flush){0};
    pst_log_flush(t->lane, &f->op);
    return true;
}

void pst_flush_done(struct pst_tier *t, int result)
{
    struct pst_flush *f = &t->flush;

    pst_assert(f->underway);
    pst_assert(f->syncing);
    pst_assert(f->walked);
    pst_assert(f->saves == 0);
    f->underway = f->syncing = false;
    if (result < 0)
        t->shard->stat_later.ssd_errors++;
    while (!pst_list_empty(&f->waits))
        pst_tier_end_wait(t, pst_list_first(&f->waits, struct pst_tier_wait, link),
                          f->result ? f->result : result);
}

bool pst_save_run(struct pst_tier *t)
{
    bool something = begin_wanted(t);

    pst_assert(t->magic == PST_TIER_MAGIC);
    return flush_run(t) || something;
}

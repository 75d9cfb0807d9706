/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fetch.c: values on their way back from the log or the device, into a record that nobody knows. Who wants
 * the same bytes shares a fetch. A whole value of the log then takes its stub's place, unless it is too large
 * or memory too short for one that is used once in a long time; what does not goes with the last operation
 * that waited for it. One of the device stays there, unless it is to make room.
 */
#include "store/place.h"
#include "store/tier/tier_priv.h"
#include "store/write_priv.h"

enum {
    PROMOTED_SHARE = 8, /* a value of more than one part of so many of the memory is never promoted */
    ROUNDS = 15,
    ROUND_MIN = 64,          /* fetches */
    ROOM_NS = 2000000000,    /* how long one waits for memory */
    ROOM_IDLE_NS = 20000000, /* the same when nothing is underway that would free some */
};

static struct pst_list *bucket_of(struct pst_tier *t, const struct pst_record *stub)
{
    return &t->fetches[((uintptr_t)stub >> 3) * 0x9e3779b97f4a7c15ull >> 56];
}

static bool fetch_covers(const struct pst_fetch *f, const struct pst_record *stub, uint64_t offset,
                         uint64_t bytes)
{
    pst_assert(f->from + f->bytes <= f->stub->value_bytes);
    return f->stub == stub && offset >= f->from && offset + bytes <= f->from + f->bytes;
}

static struct pst_fetch *fetch_find(struct pst_tier *t, const struct pst_record *stub, uint64_t offset,
                                    uint64_t bytes)
{
    pst_assert(t->fetch_count <= PST_FETCHES_MAX);
    pst_list_each (it, bucket_of(t, stub)) {
        struct pst_fetch *f = pst_list_entry(it, struct pst_fetch, link);

        if (fetch_covers(f, stub, offset, bytes) && !(f->ended && f->result == PST_BUSY))
            return f;
    }
    return NULL;
}

/* It was never a write: it has nothing of a quota, which its stub is in. */
static void fetch_give_record(struct pst_fetch *f)
{
    pst_assert(f->record->state & PST_STATE_RESERVED);
    f->record->state &= (uint8_t)~PST_STATE_RESERVED;
    pst_record_give(f->tier->shard, f->record);
    f->record = NULL;
}

static void fetch_free(struct pst_fetch *f)
{
    struct pst_tier *t = f->tier;

    pst_assert(f->users == 0);
    pst_assert(!f->underway);
    pst_assert(t->fetch_count > 0);
    pst_assert(pst_list_empty(&f->waits));
    if (f->lowers)
        pst_device_lowered(t, f->stub, f->result);
    if (f->record && f->ended)
        pst_shard_unref(t->shard, f->record);
    else if (f->record)
        fetch_give_record(f);
    pst_shard_unref(t->shard, f->stub);
    pst_list_remove(&f->link);
    pst_list_remove(&f->todo);
    pst_tier_pieces_free(&f->pieces);
    t->fetch_count--;
    atomic_fetch_sub_explicit(&t->shard->store->saves, 1, memory_order_relaxed);
    free(f);
}

/* Over, well or badly: those who wait for it go on. */
static void fetch_finish(struct pst_fetch *f, int result)
{
    pst_assert(!f->ended);
    pst_assert(!f->underway);
    f->ended = true;
    f->result = result;
    pst_list_remove(&f->todo);
    if (result != 0 && f->record)
        fetch_give_record(f);
    while (!pst_list_empty(&f->waits))
        pst_tier_end_wait(f->tier, pst_list_first(&f->waits, struct pst_tier_wait, link), result);
    if (f->users == 0)
        fetch_free(f);
}

/* ---- begin ---- */

static bool tier_is_moving(const struct pst_tier *t)
{
    pst_assert(t->saves_underway <= PST_SAVES_MAX);
    pst_assert(t->reads_underway <= t->fetch_count);
    return t->saves_underway + t->reads_underway > 0;
}

/* Memory for the bytes. Return: 0, PST_BUSY, -ENOSPC, -ENOMEM. */
static int fetch_take_memory(struct pst_fetch *f, uint64_t now_ns)
{
    struct pst_shard *s = f->tier->shard;
    const struct pst_record *stub = f->stub;
    struct pst_put put = {
        .lookup = pst_shard_lookup(s, pst_record_key(stub)),
        .attrs = pst_record_attrs(stub),
        .value_bytes = f->bytes,
        .value_crc = stub->value_crc,
        .depth = stub->depth,
        .copies = stub->copies,
        .flags = (uint8_t)(PST_PUT_FETCHED | (stub->flags & PST_RECORD_CHECKSUM ? PST_PUT_CHECKSUM : 0))};
    int r = pst_record_reserve_fetch(s, &put, stub->flags & PST_RECORD_CACHE, !f->lowers, now_ns, &f->record);

    pst_assert(r != 0 || f->record->state & PST_STATE_RESERVED);
    if (r == 0)
        return pst_tier_pieces(s, f->record, &f->pieces);
    if (pst_list_empty(&f->waits)) /* no reader wants it, and others may behind it */
        return r == PST_BUSY ? -EAGAIN : r;
    f->since_ns = f->since_ns ? f->since_ns : now_ns;
    if (r == -ENOSPC || r == PST_BUSY) /* what has all of the memory may not for long */
        r = now_ns - f->since_ns < (tier_is_moving(f->tier) ? ROOM_NS : ROOM_IDLE_NS) ? PST_BUSY : -EAGAIN;
    return r;
}

/* Return: 0 it reads, PST_BUSY not yet, -errno. */
static int fetch_begin_log(struct pst_fetch *f)
{
    struct pst_tier *t = f->tier;
    int r;

    pst_assert(pst_record_placed(f->stub));
    f->read = (struct pst_log_read){.value = pst_record_log_value(f->stub),
                                    .place = pst_record_place(f->stub),
                                    .crc = f->stub->value_crc,
                                    .offset = f->from,
                                    .bytes = f->bytes,
                                    .iov = f->pieces.iov,
                                    .iov_count = (uint32_t)f->pieces.count};
    r = pst_log_read(t->lane, &f->read);
    if (r == -EBUSY)
        return PST_BUSY;
    if (r == 0) {
        t->shard->stat_later.fetches++;
        t->shard->stat_later.fetched_bytes += f->bytes;
    }
    return r;
}

/* Return: 0 it is being read, PST_BUSY not yet, -errno. */
static int fetch_begin(struct pst_fetch *f, uint64_t now_ns)
{
    struct pst_tier *t = f->tier;
    int r;

    if (f->stub->state & PST_RECORD_UNLINKED) /* deleted meanwhile: something else may lie there */
        return -EAGAIN;
    pst_assert(!f->underway);
    pst_assert(!f->ended);
    pst_assert(pst_record_away(f->stub));
    r = f->record ? 0 : fetch_take_memory(f, now_ns);
    if (r != 0)
        return r;
    if (f->of_device)
        pst_device_read(t, f);
    else
        r = fetch_begin_log(f);
    if (r == 0) {
        f->underway = true;
        t->reads_underway++;
    }
    return r;
}

/* Return: NULL: no memory. */
static struct pst_fetch *fetch_new(struct pst_tier *t, struct pst_record *stub, uint64_t offset,
                                   uint64_t bytes)
{
    struct pst_fetch *f = t->fetch_count < PST_FETCHES_MAX ? calloc(1, sizeof(*f)) : NULL;

    if (!f)
        return NULL;
    if (pst_shard_ref(t->shard, stub) < 0) {
        free(f);
        return NULL;
    }
    f->tier = t;
    f->stub = stub;
    f->from = offset;
    f->bytes = bytes;
    f->of_device = pst_device_has(t, stub);
    if (!f->of_device)
        pst_log_span(stub->value_bytes, &f->from, &f->bytes);
    pst_assert(fetch_covers(f, stub, offset, bytes));
    f->whole = f->bytes == stub->value_bytes;
    f->pieces.iov = f->pieces.own;
    pst_list_init(&f->waits);
    pst_list_push_back(bucket_of(t, stub), &f->link);
    pst_list_push_back(&t->todo, &f->todo);
    t->fetch_count++;
    atomic_fetch_add_explicit(&t->shard->store->saves, 1, memory_order_relaxed);
    pst_assert(t->fetch_count <= PST_FETCHES_MAX);
    pst_assert(f->from + f->bytes <= stub->value_bytes);
    return f;
}

struct pst_fetch *pst_fetch_join(struct pst_tier *t, struct pst_record *stub, uint64_t offset, uint64_t bytes)
{
    struct pst_fetch *f = fetch_find(t, stub, offset, bytes);

    pst_assert(pst_record_away(stub));
    pst_assert(!(stub->state & PST_RECORD_UNLINKED));
    if (!f)
        f = fetch_new(t, stub, offset, bytes);
    if (f)
        f->users++;
    return f;
}

void pst_fetch_leave(struct pst_fetch *f)
{
    pst_assert(f->users > 0);
    f->users--;
    if (f->users == 0 && !f->underway)
        fetch_free(f);
}

int pst_tier_fetch(struct pst_shard *s, struct pst_record *stub, uint64_t offset, uint64_t bytes,
                   uint64_t now_ns, struct pst_tier_wait *wait)
{
    struct pst_tier *t = s->tier;
    struct pst_fetch *f;

    pst_assert(t);
    if (stub->flags & PST_RECORD_ON_DEVICE)
        pst_device_used(t, stub);
    f = pst_fetch_join(t, stub, offset, bytes);
    if (!f)
        return PST_BUSY;
    *wait = (struct pst_tier_wait){.fetch = f};
    pst_list_push_back(&f->waits, &wait->link);
    if (f->ended)
        pst_tier_end_wait(t, wait, f->result);
    else if (!f->underway)
        pst_fetch_run(t, now_ns);
    return 0;
}

bool pst_fetch_lower(struct pst_tier *t, struct pst_record *r)
{
    struct pst_fetch *f;

    pst_assert(r->flags & PST_RECORD_ON_DEVICE);
    if (fetch_find(t, r, 0, r->value_bytes))
        return false; /* once it has been read */
    f = fetch_new(t, r, 0, r->value_bytes);
    if (f)
        f->lowers = true;
    return f != NULL;
}

bool pst_fetch_run(struct pst_tier *t, uint64_t now_ns)
{
    bool something = false;

    if (pst_list_empty(&t->todo))
        return false;
    do {
        struct pst_fetch *f = pst_list_first(&t->todo, struct pst_fetch, todo);
        pst_assert(!f->underway);
        pst_assert(!f->ended);
        int r = fetch_begin(f, now_ns);

        if (r == PST_BUSY)
            break;
        something = true;
        pst_list_remove(&f->todo);
        if (r < 0)
            fetch_finish(f, r == -EAGAIN ? PST_BUSY : r);
    } while (!pst_list_empty(&t->todo) && !pst_turn_is_over(&t->turn));
    return something;
}

/* ---- end ---- */

bool pst_rounds_lately(const struct pst_rounds *rounds, const struct pst_record *r)
{
    uint32_t round = r->state / PST_RECORD_USED_AT;

    pst_assert(round <= ROUNDS);
    return round && (round == rounds->round || round % ROUNDS + 1 == rounds->round);
}

void pst_rounds_note(struct pst_rounds *rounds, struct pst_record *r, uint64_t values)
{
    if (rounds->round_left == 0) {
        rounds->round = (uint8_t)(rounds->round % ROUNDS + 1);
        rounds->round_left = pst_max(values, ROUND_MIN);
    }
    pst_assert(rounds->round > 0 && rounds->round <= ROUNDS);
    rounds->round_left--;
    r->state = (uint8_t)(r->state % PST_RECORD_USED_AT + rounds->round * PST_RECORD_USED_AT);
}

/* Where memory is short a value's place is worth more than one use in a long time. */
static bool wants_promotion(const struct pst_fetch *f)
{
    const struct pst_store *store = f->tier->shard->store;
    uint32_t free_pages = atomic_load_explicit(&store->pages.free_count, memory_order_relaxed);

    pst_assert(f->record && f->record->value_bytes == f->bytes);
    if (f->stub->flags & PST_RECORD_ON_DEVICE)
        return f->whole && (f->lowers || !f->of_device); /* for room, or since the device has failed */
    if (!f->whole || pst_record_pages(f->record) > store->arenas.page_count / PROMOTED_SHARE)
        return false;
    return free_pages >= 2 * store->pages_low || pst_rounds_lately(&f->tier->rounds, f->stub);
}

/* The bytes are there and checked. */
static void fetch_settle(struct pst_fetch *f, uint64_t now_ns)
{
    struct pst_shard *s = f->tier->shard;

    pst_assert(f->record);
    pst_assert(!f->underway);
    pst_assert(!f->ended);
    if (pst_shard_ref(s, f->record) < 0) {
        fetch_finish(f, -ENOMEM);
        return;
    }
    if (wants_promotion(f) && pst_stub_promote(s, f->stub, f->record, now_ns)) {
        s->stat_later.promotions += !!(f->stub->flags & PST_RECORD_ON_DISK);
    } else {
        if (f->stub->flags & PST_RECORD_ON_DISK)
            pst_rounds_note(&f->tier->rounds, f->stub, s->listed);
        f->record->state = (uint8_t)((f->record->state & ~PST_STATE_RESERVED) | PST_RECORD_UNLINKED);
    }
    fetch_finish(f, 0);
}

void pst_fetch_done(struct pst_tier *t, struct pst_fetch *f, int result, uint64_t now_ns)
{
    pst_assert(f->underway);
    pst_assert(f->tier == t);
    pst_assert(t->reads_underway > 0);
    pst_assert(f->record);
    f->underway = false;
    t->reads_underway--;
    pst_tier_pieces_free(&f->pieces);
    if (result < 0 && f->of_device) {
        result = pst_device_failed(t, f->stub);
    } else {
        t->shard->stat_later.ssd_corrupt += result == -EBADMSG;
        t->shard->stat_later.ssd_errors += result < 0 && result != -EBADMSG;
    }
    if (result != 0)
        fetch_finish(f, result);
    else
        fetch_settle(f, now_ns);
}

int pst_tier_fetched(struct pst_shard *s, const struct pst_record *stub, uint64_t offset, uint64_t bytes,
                     struct pst_record **record, uint64_t *from)
{
    struct pst_fetch *f = fetch_find(s->tier, stub, offset, bytes);

    if (!f || !f->ended)
        return PST_BUSY;
    if (f->result != 0)
        return f->result;
    pst_assert(f->record);
    pst_assert(f->from <= offset);
    *record = f->record;
    *from = f->from;
    return 0;
}

void pst_tier_leave(struct pst_shard *s, struct pst_tier_wait *wait)
{
    struct pst_fetch *f = wait->fetch;
    struct pst_tier *t = s->tier;

    pst_assert(t && t->magic == PST_TIER_MAGIC);
    pst_list_remove(&wait->link);
    if (f) {
        pst_fetch_leave(f);
    } else if (wait->record) {
        pst_shard_unref(s, wait->record);
    } else if (!wait->ended) {
        for (int i = 0; i < PST_SAVES_MAX; i++) {
            if (t->saves[i].wait == wait)
                t->saves[i].wait = NULL;
        }
    }
    *wait = (struct pst_tier_wait){0};
}

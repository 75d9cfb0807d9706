/*
 * slot.c: values that are written in several steps. What has been written is kept as a short list of spans,
 * so that no byte that nobody wrote ever becomes visible, and nothing need be cleared before. A slot of a
 * known size has its record from the start; one that grows takes pages as it is written and gets its record
 * with its commit.
 */
#include "store/shard_priv.h"

#include "base/hash.h"

#include <stdio.h>

#define SLOT_MAGIC 0x736c6f74u

enum {
    RECENT_MAX = 256, /* a power of two */
    SPANS_MAX = PST_SLOT_GAPS_MAX + 1,
};

struct span {
    uint64_t from, to;
};

struct pst_slot {
    uint32_t magic;
    uint32_t users;            /* transfers and commits underway */
    struct pst_list link;      /* of its holder */
    struct pst_holder *holder; /* NULL: given up, goes with its last user */
    struct pst_quota *quota;
    struct pst_claim claim; /* of its key, unless it replaces */
    bool owns, grows;
    uint64_t handle;
    uint64_t bytes_counted;             /* in the quota */
    struct pst_put put;                 /* its key and attributes lie behind the slot */
    struct pst_reservation reservation; /* no record yet: it grows */
    struct pst_run *runs;               /* of one that grows, PST_RUNS_MAX at the most */
    uint32_t run_count, run_room;
    uint32_t pages;
    uint32_t span_count;
    struct span spans[SPANS_MAX + 1]; /* written; apart, ascending; one more while two are joined */
    uint8_t names[];
};

struct recent {
    uint64_t handle, hash;
    struct pst_answer answer;
};

struct pst_recent {
    uint32_t next;
    struct recent commits[RECENT_MAX];
};

static struct pst_slot *slot_check(struct pst_slot *slot)
{
    pst_assert(slot && slot->magic == SLOT_MAGIC);
    return slot;
}

/* ---- life ---- */

void pst_holder_init(struct pst_holder *holder, struct pst_quota *quota)
{
    *holder = (struct pst_holder){.quota = quota};
    pst_list_init(&holder->slots);
}

static void uncount(struct pst_slot *slot)
{
    pst_quota_give_slot(slot->quota);
    pst_quota_give_bytes(slot->quota, slot->bytes_counted);
    slot->quota = NULL;
}

static void slot_free(struct pst_shard *s, struct pst_slot *slot)
{
    pst_assert(slot->users == 0 && pst_list_empty(&slot->link));
    pst_shard_abort(s, &slot->reservation);
    pst_runs_give(s, slot->runs, slot->run_count);
    if (slot->owns)
        pst_claim_remove(s, &slot->claim);
    uncount(slot);
    s->stat_later.slots--;
    s->stat_later.slot_bytes -= slot->bytes_counted;
    free(slot->runs);
    slot->magic = 0;
    free(slot);
}

/* Nobody finds it any more; its memory goes now or with its last user, who may outlive the session. */
static void give_up(struct pst_shard *s, struct pst_slot *slot)
{
    pst_list_remove(&slot->link);
    slot->holder = NULL;
    uncount(slot);
    if (slot->users == 0)
        slot_free(s, slot);
}

static void release(struct pst_shard *s, struct pst_slot *slot)
{
    pst_assert(slot->users > 0);
    slot->users--;
    if (slot->users == 0 && !slot->holder)
        slot_free(s, slot);
}

void pst_holder_end(struct pst_shard *s, struct pst_holder *holder)
{
    pst_list_each_safe (it, &holder->slots)
        give_up(s, pst_list_entry(it, struct pst_slot, link));
    free(holder->recent);
    holder->recent = NULL;
}

struct pst_slot *pst_slot_find(const struct pst_holder *holder, uint64_t handle)
{
    pst_list_each (it, &holder->slots) {
        struct pst_slot *slot = slot_check(pst_list_entry(it, struct pst_slot, link));

        if (slot->handle == handle)
            return slot;
    }
    return NULL;
}

uint64_t pst_slot_handle(const struct pst_slot *slot)
{
    return slot->handle;
}

/* ---- reserve ---- */

static struct pst_slot *slot_new(struct pst_shard *s, struct pst_holder *holder, const struct pst_put *put)
{
    struct pst_bytes key = put->lookup.key, attrs = put->attrs;
    struct pst_slot *slot;

    if (!holder->recent)
        holder->recent = calloc(1, sizeof(*holder->recent));
    slot = holder->recent ? calloc(1, sizeof(*slot) + key.len + attrs.len) : NULL;
    if (!slot)
        return NULL;
    slot->magic = SLOT_MAGIC;
    pst_list_init(&slot->link);
    slot->quota = holder->quota;
    slot->handle = ++s->slot_handle;
    slot->grows = put->value_bytes == PST_SLOT_GROWS;
    slot->put = *put;
    slot->put.lookup = (struct pst_lookup){.key = {slot->names, key.len}, .hash = put->lookup.hash};
    slot->put.attrs = (struct pst_bytes){slot->names + key.len, attrs.len};
    memcpy(slot->names, key.data, key.len);
    if (attrs.len)
        memcpy(slot->names + key.len, attrs.data, attrs.len);
    return slot;
}

static int check_reserve(struct pst_shard *s, const struct pst_put *put, bool owns, struct pst_answer *answer)
{
    struct pst_put shape = *put;
    int r;

    if (put->value_bytes == PST_SLOT_GROWS)
        shape.value_bytes = 0;
    r = pst_put_check_shape(s, &shape);
    if (r == 0 && pst_shard_locked(s, &put->lookup, false))
        r = PST_BUSY;
    if (r == 0)
        r = pst_put_check(put, pst_shard_find(s, &put->lookup), answer);
    if (r == 0 && owns && pst_claim_find(s, &put->lookup, PST_CLAIM_SLOT))
        r = PST_OWNED;
    return r;
}

/* Counts more memory against the session. */
static int count_bytes(struct pst_shard *s, struct pst_slot *slot, uint64_t bytes)
{
    int r = pst_quota_take_bytes(slot->quota, bytes);

    if (r < 0)
        return r;
    slot->bytes_counted += bytes;
    s->stat_later.slot_bytes += bytes;
    return 0;
}

static int fill_slot(struct pst_shard *s, struct pst_slot *slot, uint64_t now_ns, struct pst_answer *answer)
{
    int r;

    if (slot->grows)
        return 0;
    r = count_bytes(s, slot, slot->put.value_bytes);
    if (r == 0)
        r = pst_shard_reserve(s, &slot->put, now_ns, &slot->reservation, answer);
    if (r == 0)
        pst_reservation_lasts(s, &slot->reservation);
    return r;
}

int pst_slot_reserve(struct pst_shard *s, struct pst_holder *holder, const struct pst_put *given,
                     bool replace, uint64_t now_ns, struct pst_slot **out, struct pst_answer *answer)
{
    struct pst_put put = *given;
    struct pst_slot *slot;
    int r;

    if (!replace && !(put.flags & PST_PUT_IF_GENERATION))
        put.flags |= PST_PUT_IF_ABSENT;
    r = check_reserve(s, &put, !replace, answer);
    if (r == 0)
        r = pst_quota_take_slot(holder->quota);
    if (r != 0)
        return r;
    slot = slot_new(s, holder, &put);
    if (!slot) {
        pst_quota_give_slot(holder->quota);
        return -ENOMEM;
    }
    s->stat_later.slots++;
    r = fill_slot(s, slot, now_ns, answer);
    if (r != 0) {
        slot_free(s, slot);
        return r;
    }
    if (!replace) {
        slot->claim = (struct pst_claim){
            .key = slot->put.lookup.key, .hash = slot->put.lookup.hash, .kind = PST_CLAIM_SLOT};
        pst_claim_add(s, &slot->claim);
        slot->owns = true;
    }
    slot->holder = holder;
    pst_list_push_front(&holder->slots, &slot->link);
    *out = slot;
    return 0;
}

size_t pst_slot_location(const struct pst_shard *s, const struct pst_slot *slot,
                         char text[PST_SLOT_LOCATION_BYTES_MAX + 1])
{
    struct pst_location location;
    char *whole;
    int len;

    text[0] = '\0';
    if (slot->grows)
        return 0;
    pst_record_location(s, slot->reservation.record, &location);
    len = pst_location_print(&location, text, PST_SLOT_LOCATION_BYTES_MAX + 1);
    if (len <= PST_SLOT_LOCATION_BYTES_MAX)
        return (size_t)len;
    whole = malloc((size_t)len + 1);
    if (whole)
        pst_location_print(&location, whole, (size_t)len + 1);
    len = snprintf(text, PST_SLOT_LOCATION_BYTES_MAX + 1, "#%016llx",
                   (unsigned long long)(whole ? pst_hash64(whole, (size_t)len, 0) : slot->handle));
    free(whole);
    return (size_t)len;
}

/* ---- write ---- */

static bool touches(const struct pst_slot *slot, uint64_t from, uint64_t to)
{
    for (uint32_t i = 0; i < slot->span_count; i++) {
        if (slot->spans[i].from <= to && from <= slot->spans[i].to)
            return true;
    }
    return false;
}

/* Joins [from, to) with the spans that it overlaps or touches. */
static void add_span(struct pst_slot *slot, uint64_t from, uint64_t to)
{
    uint32_t at = 0, last;

    if (from == to)
        return;
    while (at < slot->span_count && slot->spans[at].to < from)
        at++;
    for (last = at; last < slot->span_count && slot->spans[last].from <= to; last++) {
        from = pst_min(from, slot->spans[last].from);
        to = pst_max(to, slot->spans[last].to);
    }
    memmove(&slot->spans[at + 1], &slot->spans[last], (slot->span_count - last) * sizeof(slot->spans[0]));
    slot->spans[at] = (struct span){from, to};
    slot->span_count += at + 1 - last;
    pst_assert(slot->span_count <= SPANS_MAX);
}

static int runs_room(struct pst_slot *slot, uint32_t more)
{
    uint32_t room = slot->run_count + more;
    struct pst_run *larger;

    if (room <= slot->run_room)
        return 0;
    room = (uint32_t)pst_max(room, pst_min(2 * slot->run_room, PST_RUNS_MAX));
    larger = realloc(slot->runs, room * sizeof(*larger));
    if (!larger)
        return -ENOMEM;
    slot->runs = larger;
    slot->run_room = room;
    return 0;
}

static void add_run(const struct pst_shard *s, struct pst_slot *slot, struct pst_run run)
{
    struct pst_run *last = slot->run_count ? &slot->runs[slot->run_count - 1] : NULL;

    pst_assert(slot->runs && slot->run_count < slot->run_room);
    if (last && last->page + last->count == run.page && run.page % s->store->arenas.arena_pages)
        last->count += run.count;
    else
        slot->runs[slot->run_count++] = run;
}

/* Takes the pages that a value of @bytes wants beyond those that the slot has. */
static int grow(struct pst_shard *s, struct pst_slot *slot, uint64_t bytes, uint64_t now_ns)
{
    uint64_t page_bytes = s->store->arenas.page_bytes;
    uint32_t more;
    int r, runs;

    if (bytes > pst_store_value_bytes_max(s->store))
        return -EFBIG;
    if (slot->run_count == PST_RUNS_MAX)
        return -ENOSPC;
    if (bytes <= slot->pages * page_bytes)
        return 0;
    more = (uint32_t)pst_div_up(bytes, page_bytes) - slot->pages;
    r = count_bytes(s, slot, more * page_bytes);
    if (r < 0)
        return r;
    while ((runs = pst_runs_take(s, more, s->runs, PST_RUNS_MAX - slot->run_count)) == -ENOSPC &&
           pst_shard_make_room(s, more, now_ns))
        ;
    r = runs == -ENOSPC ? pst_shard_no_room(s, more, now_ns) : runs_room(slot, (uint32_t)runs);
    if (r != 0) {
        if (runs > 0)
            pst_runs_give(s, s->runs, (uint32_t)runs);
        pst_quota_give_bytes(slot->quota, more * page_bytes);
        slot->bytes_counted -= more * page_bytes;
        s->stat_later.slot_bytes -= more * page_bytes;
        return r;
    }
    for (int i = 0; i < runs; i++)
        add_run(s, slot, s->runs[i]);
    slot->pages += more;
    return 0;
}

int pst_slot_write(struct pst_shard *s, struct pst_slot *slot, uint64_t offset, uint64_t bytes,
                   uint64_t now_ns)
{
    uint64_t end;
    int r = 0;

    slot_check(slot);
    if (pst_add_overflows(offset, bytes, &end) || (!slot->grows && end > slot->put.value_bytes))
        return -ERANGE;
    if (slot->span_count + slot->users >= SPANS_MAX && !touches(slot, offset, end))
        return slot->users ? PST_BUSY : -E2BIG;
    if (slot->grows)
        r = grow(s, slot, end, now_ns);
    if (r == 0)
        slot->users++;
    return r;
}

void pst_slot_written(struct pst_shard *s, struct pst_slot *slot, uint64_t offset, uint64_t bytes,
                      bool landed)
{
    slot_check(slot);
    if (landed)
        add_span(slot, offset, offset + bytes);
    release(s, slot);
}

bool pst_slot_piece(const struct pst_shard *s, const struct pst_slot *slot, uint64_t offset, uint64_t bytes,
                    struct iovec *piece)
{
    if (!slot->grows)
        return pst_record_piece(s, slot->reservation.record, offset, bytes, piece);
    if (bytes)
        *piece = pst_runs_piece(s, slot->runs, slot->run_count, offset, bytes);
    return bytes > 0;
}

static void clear_gaps(const struct pst_shard *s, struct pst_slot *slot)
{
    uint64_t from = 0;
    struct iovec piece;

    for (uint32_t i = 0; i <= slot->span_count; i++) {
        uint64_t to = i < slot->span_count ? slot->spans[i].from : slot->put.value_bytes;

        for (; from < to; from += piece.iov_len) {
            pst_slot_piece(s, slot, from, to - from, &piece);
            memset(piece.iov_base, 0, piece.iov_len);
        }
        from = i < slot->span_count ? slot->spans[i].to : from;
    }
    add_span(slot, 0, slot->put.value_bytes);
}

int pst_slot_map(struct pst_shard *s, struct pst_slot *slot, struct iovec *pieces, int max)
{
    int count;

    slot_check(slot);
    if (slot->grows)
        return -EOPNOTSUPP;
    if (slot->users)
        return -EBUSY;
    count = pst_reservation_iov(s, &slot->reservation, pieces, max);
    if (count >= 0)
        clear_gaps(s, slot);
    return count;
}

/* ---- commit ---- */

/* Bytes from the start on without a gap, and nothing behind them. */
static bool written_whole(const struct pst_slot *slot, uint64_t bytes)
{
    if (bytes == 0)
        return slot->span_count == 0;
    return slot->span_count == 1 && slot->spans[0].from == 0 && slot->spans[0].to == bytes;
}

static int check_named(const struct pst_shard *s, const struct pst_slot *slot,
                       const struct pst_slot_named *named)
{
    char text[PST_SLOT_LOCATION_BYTES_MAX + 1];
    struct pst_bytes location = {text, pst_slot_location(s, slot, text)};
    uint64_t end = slot->span_count ? slot->spans[slot->span_count - 1].to : 0;

    if (!pst_bytes_equal(named->key, slot->put.lookup.key) || named->tier != PST_TIER_DRAM ||
        !pst_bytes_equal(named->location, location))
        return -EINVAL;
    if (named->bytes != (slot->grows ? end : slot->put.value_bytes))
        return -EMSGSIZE;
    return written_whole(slot, named->bytes) ? 0 : -ENODATA;
}

/* A slot that has grown gets its record. Return: 0, -ENOSPC, PST_BUSY, -ENOMEM. */
static int settle(struct pst_shard *s, struct pst_slot *slot, uint64_t now_ns, struct pst_answer *answer)
{
    bool cache = pst_key_evictable(s->store, slot->put.lookup.key);
    int r;

    if (!slot->grows)
        return 0;
    slot->put.value_bytes = slot->span_count ? slot->spans[0].to : 0;
    pst_shard_time(s, now_ns);
    r = pst_prefix_quota_admit(s, &slot->put, now_ns, answer);
    if (r != 0)
        return r;
    while ((r = pst_record_take_pages(s, &slot->put, cache, slot->runs, slot->run_count,
                                      &slot->reservation.record)) == -ENOSPC &&
           pst_shard_make_room(s, 0, now_ns))
        ;
    if (r == -ENOSPC)
        return pst_shard_no_room(s, 0, now_ns);
    if (r < 0)
        return r;
    slot->run_count = 0;
    slot->grows = false;
    return 0;
}

static void remember(struct pst_holder *holder, const struct pst_slot *slot, const struct pst_answer *answer)
{
    struct pst_recent *recent = holder->recent;

    recent->commits[recent->next++ % RECENT_MAX] =
        (struct recent){slot->handle, slot->put.lookup.hash, *answer};
}

static int commit_again(const struct pst_shard *s, const struct pst_holder *holder,
                        const struct pst_slot_named *named, struct pst_answer *answer)
{
    struct pst_lookup lookup = pst_shard_lookup(s, named->key);

    for (uint32_t i = 0; named->handle && holder->recent && i < RECENT_MAX; i++) {
        const struct recent *commit = &holder->recent->commits[i];

        if (commit->handle == named->handle && commit->hash == lookup.hash) {
            *answer = commit->answer;
            return PST_OK;
        }
    }
    return PST_MISS;
}

static int check_durable(const struct pst_shard *s, const struct pst_slot *slot,
                         const struct pst_slot_named *named, struct pst_answer *answer)
{
    struct pst_put put = slot->put;

    put.value_bytes = named->bytes;
    return pst_put_check_durable(s, &put, answer);
}

/* Whether it can become the key's value. Anything but 0, PST_BUSY, -EOPNOTSUPP and -EFBIG gives it up. */
static int make_ready(struct pst_shard *s, struct pst_slot *slot, const struct pst_slot_named *named,
                      uint64_t now_ns, struct pst_answer *answer)
{
    int r;

    if (slot->users || pst_shard_locked(s, &slot->put.lookup, false))
        return PST_BUSY;
    r = named->durable ? check_durable(s, slot, named, answer) : 0;
    if (r == -EFBIG)
        return r;
    if (r == 0)
        r = check_named(s, slot, named);
    if (r == 0)
        r = settle(s, slot, now_ns, answer);
    if (r == PST_BUSY)
        return r;
    if (r == 0 && named->checksum) {
        slot->reservation.record->flags |= PST_RECORD_CHECKSUM;
        slot->reservation.record->value_crc = named->crc;
    }
    if (r != 0)
        give_up(s, slot);
    return r;
}

int pst_slot_commit(struct pst_shard *s, struct pst_holder *holder, const struct pst_slot_named *named,
                    uint64_t now_ns, struct pst_answer *answer)
{
    struct pst_slot *slot = pst_slot_find(holder, named->handle);
    int r;

    if (named->durable && !s->tier)
        return -EOPNOTSUPP;
    if (!slot)
        return commit_again(s, holder, named, answer);
    r = make_ready(s, slot, named, now_ns, answer);
    if (r != 0)
        return r;
    r = pst_shard_commit(s, &slot->put, &slot->reservation, now_ns, answer);
    if (r == 0)
        remember(holder, slot, answer);
    give_up(s, slot);
    return r;
}

int pst_slot_take(struct pst_shard *s, struct pst_holder *holder, const struct pst_slot_named *named,
                  uint64_t now_ns, struct pst_put *put, struct pst_reservation *reservation,
                  struct pst_answer *answer)
{
    struct pst_slot *slot = pst_slot_find(holder, named->handle);
    int r = PST_MISS;

    if (named->durable && !s->tier)
        return -EOPNOTSUPP;
    if (slot)
        r = make_ready(s, slot, named, now_ns, answer);
    if (r != 0)
        return r;
    *put = slot->put;
    put->lookup.key = named->key;
    *reservation = slot->reservation;
    slot->reservation = (struct pst_reservation){0};
    give_up(s, slot);
    return 0;
}

void pst_slot_abort(struct pst_shard *s, struct pst_holder *holder, uint64_t handle)
{
    struct pst_slot *slot = pst_slot_find(holder, handle);

    if (slot)
        give_up(s, slot);
}

/* ---- as a part of a larger commit ---- */

int pst_slot_lend(struct pst_slot *slot, const struct pst_put *put, struct pst_record **out)
{
    slot_check(slot);
    if (slot->users)
        return PST_BUSY;
    if (slot->grows || !pst_bytes_equal(put->lookup.key, slot->put.lookup.key))
        return -EINVAL;
    if (put->value_bytes != slot->put.value_bytes)
        return -EMSGSIZE;
    if (!written_whole(slot, slot->put.value_bytes))
        return -ENODATA;
    slot->users++;
    *out = slot->reservation.record;
    return 0;
}

void pst_slot_return(struct pst_shard *s, struct pst_slot *slot, bool taken)
{
    slot_check(slot);
    pst_assert(slot->users == 1);
    if (taken) {
        slot->reservation.record = NULL;
        slot->users--;
        give_up(s, slot);
        return;
    }
    release(s, slot);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reservation.c: values that are written in several steps. What has been written is kept as a short list of
 * spans, so that no byte that nobody wrote ever becomes visible, and nothing need be cleared before. A
 * reservation of a known size has its record from the start; one that grows takes pages as it is written and
 * gets its record with its commit.
 */
#include "base/hash.h"
#include "mem/location.h"
#include "store/evict_priv.h"
#include "store/pins_priv.h"
#include "store/read.h"
#include "store/shard_priv.h"
#include "store/reservation.h"
#include "store/write_priv.h"

#include <stdio.h>

#define RESERVATION_MAGIC 0x736c6f74u

enum {
    RECENT_MAX = 256, /* a power of two */
    SPANS_MAX = PST_RESERVATION_GAPS_MAX + 1,
};

struct span {
    uint64_t from, to;
};

/*
 * What may happen to a reservation:
 *
 *          write, map, commit   lend    return         give up
 *   OPEN   done                 LENT    -              GONE
 *   LENT   busy                 busy    OPEN, or free  LENT_GONE
 *   GONE and LENT_GONE are found by nobody; they are freed when no write, and no commit, uses them
 */
enum reservation_state { RESERVATION_OPEN, RESERVATION_LENT, RESERVATION_GONE, RESERVATION_LENT_GONE };

struct pst_reservation {
    uint32_t magic;
    enum reservation_state state;
    uint32_t writes;         /* underway */
    struct pst_list link;    /* of its holder */
    struct pst_quota *quota; /* which counts it until it is freed; NULL: none, or its session has ended */
    struct pst_claim claim;  /* of its key, unless it replaces */
    bool owns;
    bool sizeless; /* what is written last says how large it is */
    bool grows;    /* and it has no record, which the first commit that might be gives it */
    uint64_t handle;
    uint64_t bytes_counted;     /* in the quota */
    struct pst_put put;         /* its key and attributes lie behind the reservation */
    struct pst_pending pending; /* no record yet: it grows */
    struct pst_run *runs;       /* of one that grows, as many as its record has room for */
    uint32_t run_count, run_room;
    uint32_t pages;
    uint32_t span_count;
    struct span spans[SPANS_MAX + 1]; /* written; apart, ascending; one more while two are joined */
    uint8_t names[];
};

struct recent {
    uint64_t handle, hash;
    uint64_t generation, value_bytes;
};

struct pst_recent {
    uint32_t next;
    struct recent commits[RECENT_MAX];
};

static struct pst_reservation *reservation_check(struct pst_reservation *reservation)
{
    pst_assert(reservation && reservation->magic == RESERVATION_MAGIC);
    return reservation;
}

static void state_becomes(struct pst_reservation *reservation, enum reservation_state state)
{
    static const uint8_t follows[] = {
        [RESERVATION_OPEN] = 1 << RESERVATION_LENT,
        [RESERVATION_LENT] = 1 << RESERVATION_OPEN,
        [RESERVATION_GONE] = 1 << RESERVATION_OPEN | 1 << RESERVATION_GONE | 1 << RESERVATION_LENT_GONE,
        [RESERVATION_LENT_GONE] = 1 << RESERVATION_LENT | 1 << RESERVATION_LENT_GONE,
    };

    pst_assert(state < pst_count_of(follows) && follows[state] >> reservation->state & 1);
    reservation->state = state;
}

/* ---- life ---- */

void pst_holder_init(struct pst_holder *holder, struct pst_quota *quota)
{
    *holder = (struct pst_holder){.quota = quota};
    pst_list_init(&holder->reservations);
    pst_list_init(&holder->pins);
}

static void reservation_uncount(struct pst_reservation *reservation)
{
    pst_assert(reservation->magic == RESERVATION_MAGIC);
    pst_quota_give_reservation(reservation->quota);
    pst_quota_give_bytes(reservation->quota, reservation->bytes_counted);
    reservation->quota = NULL;
}

static void reservation_free(struct pst_shard *s, struct pst_reservation *reservation)
{
    pst_assert(reservation->magic == RESERVATION_MAGIC);
    pst_assert(reservation->writes == 0 && reservation->state != RESERVATION_LENT_GONE);
    pst_list_remove(&reservation->link);
    pst_shard_abort(s, &reservation->pending);
    pst_runs_give(s, reservation->runs, reservation->run_count);
    if (reservation->owns)
        pst_claim_remove(s, &reservation->claim);
    reservation_uncount(reservation);
    pst_assert(s->stat_later.reservations > 0 &&
               s->stat_later.reservation_bytes >= reservation->bytes_counted);
    s->stat_later.reservations--;
    s->stat_later.reservation_bytes -= reservation->bytes_counted;
    free(reservation->runs);
    reservation->magic = 0;
    free(reservation);
}

/* Nobody finds it any more; its memory goes now or with its last user, who may outlive the session. */
static void reservation_give_up(struct pst_shard *s, struct pst_reservation *reservation)
{
    pst_assert(reservation->magic == RESERVATION_MAGIC);
    state_becomes(reservation,
                  reservation->state == RESERVATION_OPEN || reservation->state == RESERVATION_GONE
                      ? RESERVATION_GONE
                      : RESERVATION_LENT_GONE);
    if (reservation->state == RESERVATION_GONE && reservation->writes == 0)
        reservation_free(s, reservation);
}

void pst_holder_end(struct pst_shard *s, struct pst_holder *holder)
{
    pst_list_each_safe (it, &holder->reservations) {
        struct pst_reservation *reservation =
            reservation_check(pst_list_entry(it, struct pst_reservation, link));

        pst_list_remove(&reservation->link);
        reservation_uncount(reservation);
        reservation_give_up(s, reservation);
    }
    pst_assert(pst_list_empty(&holder->reservations));
    pst_holder_disown(holder);
    free(holder->recent);
    holder->recent = NULL;
}

static bool is_found(const struct pst_reservation *reservation)
{
    return reservation->state == RESERVATION_OPEN || reservation->state == RESERVATION_LENT;
}

struct pst_reservation *pst_reservation_find(const struct pst_holder *holder, uint64_t handle)
{
    pst_list_each (it, &holder->reservations) {
        struct pst_reservation *reservation =
            reservation_check(pst_list_entry(it, struct pst_reservation, link));

        if (reservation->handle == handle && is_found(reservation))
            return reservation;
    }
    return NULL;
}

uint64_t pst_reservation_handle(const struct pst_reservation *reservation)
{
    pst_assert(reservation->magic == RESERVATION_MAGIC);
    return reservation->handle;
}

/* ---- reserve ---- */

static struct pst_reservation *reservation_new(struct pst_shard *s, struct pst_holder *holder,
                                               const struct pst_put *put)
{
    struct pst_bytes key = put->lookup.key, attrs = put->attrs;
    struct pst_reservation *reservation;

    pst_assert(key.len > 0 && key.len <= PST_KEY_BYTES_MAX && attrs.len <= PST_ATTR_BYTES_MAX);
    if (!holder->recent)
        holder->recent = calloc(1, sizeof(*holder->recent));
    reservation = holder->recent ? calloc(1, sizeof(*reservation) + key.len + attrs.len) : NULL;
    if (!reservation)
        return NULL;
    reservation->magic = RESERVATION_MAGIC;
    pst_list_init(&reservation->link);
    reservation->quota = holder->quota;
    reservation->handle = ++s->reservation_handle;
    reservation->sizeless = reservation->grows = put->value_bytes == PST_RESERVATION_GROWS;
    reservation->put = *put;
    reservation->put.lookup =
        (struct pst_lookup){.key = {reservation->names, key.len}, .hash = put->lookup.hash};
    reservation->put.attrs = (struct pst_bytes){reservation->names + key.len, attrs.len};
    memcpy(reservation->names, key.data, key.len);
    if (attrs.len)
        memcpy(reservation->names + key.len, attrs.data, attrs.len);
    return reservation;
}

static int check_reserve(struct pst_shard *s, const struct pst_put *put, bool owns, struct pst_answer *answer)
{
    struct pst_put shape = *put;
    int r;

    if (put->value_bytes == PST_RESERVATION_GROWS)
        shape.value_bytes = 0;
    r = pst_put_check_shape(s, &shape);
    if (r == 0 && pst_shard_locked(s, &put->lookup, false))
        r = PST_BUSY;
    if (r == 0)
        r = pst_put_check(put, pst_shard_find(s, &put->lookup), answer);
    if (r == 0 && owns && pst_claim_find(s, &put->lookup, PST_CLAIM_RESERVATION))
        r = PST_OWNED;
    return r;
}

/* Counts more memory against the session. */
static int count_bytes(struct pst_shard *s, struct pst_reservation *reservation, uint64_t bytes)
{
    int r = pst_quota_take_bytes(reservation->quota, bytes);

    if (r != 0)
        return r;
    reservation->bytes_counted += bytes;
    s->stat_later.reservation_bytes += bytes;
    pst_assert(s->stat_later.reservation_bytes >= reservation->bytes_counted);
    return 0;
}

static void uncount_bytes(struct pst_shard *s, struct pst_reservation *reservation, uint64_t bytes)
{
    pst_assert(bytes <= reservation->bytes_counted && s->stat_later.reservation_bytes >= bytes);
    pst_quota_give_bytes(reservation->quota, bytes);
    reservation->bytes_counted -= bytes;
    s->stat_later.reservation_bytes -= bytes;
}

static int fill_reservation(struct pst_shard *s, struct pst_reservation *reservation, uint64_t now_ns,
                            struct pst_answer *answer)
{
    struct pst_put put = reservation->put;
    int r;

    if (reservation->grows)
        return 0;
    put.flags |= PST_PUT_LASTS;
    r = count_bytes(s, reservation, put.value_bytes);
    if (r == 0)
        r = pst_shard_reserve(s, &put, now_ns, &reservation->pending, answer);
    if (r == 0)
        pst_pending_lasts(s, &reservation->pending);
    pst_assert(r != 0 || !reservation->pending.brief);
    return r;
}

int pst_reservation_reserve(struct pst_shard *s, struct pst_holder *holder, const struct pst_put *given,
                            bool replace, uint64_t now_ns, struct pst_reservation **out,
                            struct pst_answer *answer)
{
    struct pst_put put = *given;
    struct pst_reservation *reservation;
    int r;

    if (!replace && !(put.flags & PST_PUT_IF_GENERATION))
        put.flags |= PST_PUT_IF_ABSENT;
    r = check_reserve(s, &put, !replace, answer);
    if (r == 0)
        r = pst_quota_take_reservation(holder->quota);
    if (r != 0)
        return r;
    reservation = reservation_new(s, holder, &put);
    if (!reservation) {
        pst_quota_give_reservation(holder->quota);
        return -ENOMEM;
    }
    s->stat_later.reservations++;
    r = fill_reservation(s, reservation, now_ns, answer);
    if (r != 0) {
        reservation_free(s, reservation);
        return r;
    }
    if (!replace) {
        reservation->claim = (struct pst_claim){.key = reservation->put.lookup.key,
                                                .hash = reservation->put.lookup.hash,
                                                .kind = PST_CLAIM_RESERVATION};
        pst_claim_add(s, &reservation->claim);
        reservation->owns = true;
    }
    pst_assert(reservation->grows == !reservation->pending.record && reservation->owns == !replace);
    pst_list_push_front(&holder->reservations, &reservation->link);
    *out = reservation;
    return 0;
}

size_t pst_reservation_location(const struct pst_shard *s, const struct pst_reservation *reservation,
                                char text[PST_RESERVATION_LOCATION_BYTES_MAX + 1])
{
    struct pst_location location;
    char *whole;
    int len;

    text[0] = '\0';
    if (reservation->sizeless)
        return 0;
    pst_assert(reservation->pending.record);
    pst_record_location(s, reservation->pending.record, &location);
    len = pst_location_print(&location, text, PST_RESERVATION_LOCATION_BYTES_MAX + 1);
    if (len <= PST_RESERVATION_LOCATION_BYTES_MAX)
        return (size_t)len;
    whole = malloc((size_t)len + 1);
    if (whole)
        pst_location_print(&location, whole, (size_t)len + 1);
    len = snprintf(text, PST_RESERVATION_LOCATION_BYTES_MAX + 1, "#%016llx",
                   (unsigned long long)(whole ? pst_hash64(whole, (size_t)len, 0) : reservation->handle));
    free(whole);
    return (size_t)len;
}

/* ---- write ---- */

static bool spans_touch(const struct pst_reservation *reservation, uint64_t from, uint64_t to)
{
    pst_assert(from <= to && reservation->span_count <= SPANS_MAX);
    for (uint32_t i = 0; i < reservation->span_count; i++) {
        if (reservation->spans[i].from <= to && from <= reservation->spans[i].to)
            return true;
    }
    return false;
}

/* Joins [from, to) with the spans that it overlaps or touches. */
static void add_span(struct pst_reservation *reservation, uint64_t from, uint64_t to)
{
    uint32_t at = 0, last;

    pst_assert(from <= to && reservation->span_count <= SPANS_MAX);
    if (from == to)
        return;
    while (at < reservation->span_count && reservation->spans[at].to < from)
        at++;
    for (last = at; last < reservation->span_count && reservation->spans[last].from <= to; last++) {
        from = pst_min(from, reservation->spans[last].from);
        to = pst_max(to, reservation->spans[last].to);
    }
    memmove(&reservation->spans[at + 1], &reservation->spans[last],
            (reservation->span_count - last) * sizeof(reservation->spans[0]));
    reservation->spans[at] = (struct span){from, to};
    reservation->span_count += at + 1 - last;
    pst_assert(reservation->span_count <= SPANS_MAX);
}

static int runs_room(struct pst_reservation *reservation, uint32_t more)
{
    uint32_t room = reservation->run_count + more;
    struct pst_run *larger;

    if (room <= reservation->run_room)
        return 0;
    room = (uint32_t)pst_max(room, pst_min(2 * reservation->run_room, PST_RUNS_MAX));
    larger = realloc(reservation->runs, room * sizeof(*larger));
    if (!larger)
        return -ENOMEM;
    reservation->runs = larger;
    reservation->run_room = room;
    pst_assert(reservation->run_count + more <= reservation->run_room);
    return 0;
}

static void add_run(const struct pst_shard *s, struct pst_reservation *reservation, struct pst_run run)
{
    struct pst_run *last = reservation->run_count ? &reservation->runs[reservation->run_count - 1] : NULL;

    pst_assert(run.count > 0);
    pst_assert(reservation->runs && reservation->run_count < reservation->run_room);
    if (last && last->page + last->count == run.page && run.page % s->store->arenas.arena_pages)
        last->count += run.count;
    else
        reservation->runs[reservation->run_count++] = run;
}

/* Return: how many runs, -ENOSPC, -E2BIG. */
static int take_runs(struct pst_shard *s, const struct pst_wanted *wanted)
{
    if (!pst_shard_leaves_spare(s, wanted->pages))
        return -ENOSPC;
    return pst_runs_take(s, wanted->pages, s->runs, wanted->runs_max);
}

/* Return: 0, -ENOSPC, PST_BUSY, -ENOMEM. */
static int reservation_take_pages(struct pst_shard *s, struct pst_reservation *reservation, uint32_t pages,
                                  uint64_t now_ns)
{
    struct pst_wanted wanted = {.pages = pages,
                                .runs_max = pst_put_runs_max(s, &reservation->put) - reservation->run_count,
                                .spare = s->store->pages_spare};
    struct pst_record *named;
    int r, runs;

    pst_assert(pages > 0 && wanted.runs_max <= PST_RUNS_MAX); /* it has no more than it may */
    if (wanted.runs_max == 0)
        return -ENOSPC;
    r = pst_put_keep_named(s, &reservation->put, &named);
    if (r < 0)
        return r;
    while ((runs = take_runs(s, &wanted)) < 0 && pst_shard_make_runs(s, &wanted, runs, now_ns))
        ;
    pst_put_let_named(s, named);
    r = runs < 0 ? pst_shard_no_runs(s, &wanted, runs, now_ns) : runs_room(reservation, (uint32_t)runs);
    if (r != 0 && runs > 0)
        pst_runs_give(s, s->runs, (uint32_t)runs);
    for (int i = 0; r == 0 && i < runs; i++)
        add_run(s, reservation, s->runs[i]);
    return r;
}

/* Takes the pages that a value of @bytes wants beyond those that the reservation has. */
static int reservation_grow(struct pst_shard *s, struct pst_reservation *reservation, uint64_t bytes,
                            uint64_t now_ns)
{
    uint64_t page_bytes = s->store->arenas.page_bytes;
    uint32_t more;
    int r;

    pst_assert(reservation->grows && reservation->bytes_counted == reservation->pages * page_bytes);
    if (bytes <= reservation->pages * page_bytes)
        return 0;
    more = (uint32_t)pst_div_up(bytes, page_bytes) - reservation->pages;
    r = count_bytes(s, reservation, more * page_bytes);
    if (r != 0)
        return r;
    r = reservation_take_pages(s, reservation, more, now_ns);
    if (r == 0)
        reservation->pages += more;
    else
        uncount_bytes(s, reservation, more * page_bytes);
    pst_assert(reservation->bytes_counted == reservation->pages * page_bytes);
    return r;
}

/* More is to be written behind a commit that came to nothing: from its record into pages, which are counted
 * still. */
static int reservation_unsettle(struct pst_shard *s, struct pst_reservation *reservation, uint64_t now_ns)
{
    struct iovec from, to;
    int r;

    pst_assert(reservation->sizeless && !reservation->grows && reservation->run_count == 0);
    if (reservation->writes)
        return PST_BUSY;
    r = reservation->pages ? reservation_take_pages(s, reservation, reservation->pages, now_ns) : 0;
    if (r != 0)
        return r;
    for (uint64_t at = 0; pst_reservation_piece(s, reservation, at, reservation->put.value_bytes - at, &from);
         at += to.iov_len) {
        to = pst_runs_piece(s, reservation->runs, reservation->run_count, at, from.iov_len);
        memcpy(to.iov_base, from.iov_base, to.iov_len);
    }
    pst_shard_abort(s, &reservation->pending);
    reservation->grows = true;
    pst_assert(!reservation->pending.record);
    return 0;
}

/* Gives back the pages that a value of @bytes leaves empty: those of writes that did not land. */
static void reservation_shrink(struct pst_shard *s, struct pst_reservation *reservation, uint64_t bytes)
{
    uint64_t page_bytes = s->store->arenas.page_bytes;
    uint32_t wanted = (uint32_t)pst_div_up(bytes, page_bytes);

    pst_assert(wanted <= reservation->pages);
    while (reservation->pages > wanted) {
        struct pst_run *last = &reservation->runs[reservation->run_count - 1], end;

        pst_assert(reservation->run_count > 0 && last->count > 0);
        end.count = (uint32_t)pst_min(reservation->pages - wanted, last->count);
        last->count -= end.count;
        end.page = last->page + last->count;
        pst_runs_give(s, &end, 1);
        reservation->run_count -= last->count == 0;
        reservation->pages -= end.count;
        uncount_bytes(s, reservation, end.count * page_bytes);
    }
}

int pst_reservation_write(struct pst_shard *s, struct pst_reservation *reservation, uint64_t offset,
                          uint64_t bytes, uint64_t now_ns)
{
    uint64_t end;
    int r = 0;

    reservation_check(reservation);
    if (reservation->state == RESERVATION_LENT) /* what a commit is about to show stays as it is */
        return PST_BUSY;
    if (pst_add_overflows(offset, bytes, &end) ||
        (!reservation->sizeless && end > reservation->put.value_bytes))
        return -ERANGE;
    if (reservation->sizeless && end > pst_store_value_bytes_max(s->store))
        return -EFBIG;
    if (reservation->span_count + reservation->writes >= SPANS_MAX && !spans_touch(reservation, offset, end))
        return reservation->writes ? PST_BUSY : -E2BIG;
    if (!reservation->grows && end > reservation->put.value_bytes)
        r = reservation_unsettle(s, reservation, now_ns);
    if (r == 0 && reservation->grows && bytes > 0)
        r = reservation_grow(s, reservation, end, now_ns);
    pst_assert(reservation->state == RESERVATION_OPEN && reservation->writes < UINT32_MAX);
    if (r == 0)
        reservation->writes++;
    return r;
}

void pst_reservation_written(struct pst_shard *s, struct pst_reservation *reservation, uint64_t offset,
                             uint64_t bytes, bool landed)
{
    reservation_check(reservation);
    pst_assert(reservation->writes > 0 &&
               (reservation->state == RESERVATION_OPEN || reservation->state == RESERVATION_GONE));
    if (landed)
        add_span(reservation, offset, offset + bytes);
    reservation->writes--;
    if (reservation->state == RESERVATION_GONE && reservation->writes == 0)
        reservation_free(s, reservation);
}

bool pst_reservation_piece(const struct pst_shard *s, const struct pst_reservation *reservation,
                           uint64_t offset, uint64_t bytes, struct iovec *piece)
{
    pst_assert(reservation->magic == RESERVATION_MAGIC);
    if (!reservation->grows)
        return pst_record_piece(s, reservation->pending.record, offset, bytes, piece);
    if (bytes)
        *piece = pst_runs_piece(s, reservation->runs, reservation->run_count, offset, bytes);
    return bytes > 0;
}

static void clear_gaps(const struct pst_shard *s, struct pst_reservation *reservation)
{
    uint64_t from = 0;
    struct iovec piece;

    pst_assert(!reservation->sizeless && reservation->writes == 0);
    for (uint32_t i = 0; i <= reservation->span_count; i++) {
        uint64_t to = i < reservation->span_count ? reservation->spans[i].from : reservation->put.value_bytes;

        for (; from < to; from += piece.iov_len) {
            pst_reservation_piece(s, reservation, from, to - from, &piece);
            memset(piece.iov_base, 0, piece.iov_len);
        }
        from = i < reservation->span_count ? reservation->spans[i].to : from;
    }
    add_span(reservation, 0, reservation->put.value_bytes);
}

int pst_reservation_map(struct pst_shard *s, struct pst_reservation *reservation, struct iovec *pieces,
                        int max)
{
    int count;

    reservation_check(reservation);
    if (reservation->sizeless)
        return -EOPNOTSUPP;
    if (reservation->state == RESERVATION_LENT || reservation->writes)
        return -EBUSY;
    pst_assert(reservation->state == RESERVATION_OPEN && reservation->pending.record);
    count = pst_pending_iov(s, &reservation->pending, pieces, max);
    if (count >= 0)
        clear_gaps(s, reservation);
    return count;
}

/* ---- commit ---- */

/* Bytes from the start on without a gap, and nothing behind them. */
static bool written_whole(const struct pst_reservation *reservation, uint64_t bytes)
{
    pst_assert(reservation->span_count <= SPANS_MAX);
    if (bytes == 0)
        return reservation->span_count == 0;
    return reservation->span_count == 1 && reservation->spans[0].from == 0 &&
           reservation->spans[0].to == bytes;
}

static int check_named(const struct pst_shard *s, const struct pst_reservation *reservation,
                       const struct pst_reservation_named *named)
{
    char text[PST_RESERVATION_LOCATION_BYTES_MAX + 1];
    struct pst_bytes location = {text, pst_reservation_location(s, reservation, text)};
    uint64_t end = reservation->span_count ? reservation->spans[reservation->span_count - 1].to : 0;

    pst_assert(location.len <= PST_RESERVATION_LOCATION_BYTES_MAX);
    if (!pst_bytes_equal(named->key, reservation->put.lookup.key) || named->tier != PST_TIER_DRAM ||
        !pst_bytes_equal(named->location, location))
        return -EINVAL;
    if (named->bytes != (reservation->grows ? end : reservation->put.value_bytes))
        return -EMSGSIZE;
    return written_whole(reservation, named->bytes) ? 0 : -ENODATA;
}

/* A reservation that has grown gets its record. Return: 0, -ENOSPC, PST_BUSY, -ENOMEM. */
static int make_settled(struct pst_shard *s, struct pst_reservation *reservation, uint64_t now_ns,
                        struct pst_answer *answer)
{
    bool cache = pst_key_evictable(s->store, reservation->put.lookup.key);
    int r = pst_prefix_quota_take(s, &reservation->put, now_ns, answer);

    if (r != 0)
        return r;
    while ((r = pst_record_take_pages(s, &reservation->put, cache, reservation->runs, reservation->run_count,
                                      &reservation->pending.record)) == -ENOSPC &&
           pst_shard_make_room(s, 0, now_ns))
        ;
    if (r < 0)
        pst_prefix_quota_give(s, &reservation->put);
    return r == -ENOSPC ? pst_shard_no_room(s, 0, now_ns) : r;
}

static int reservation_settle(struct pst_shard *s, struct pst_reservation *reservation, uint64_t now_ns,
                              struct pst_answer *answer)
{
    struct pst_record *named;
    int r;

    if (!reservation->grows)
        return 0;
    pst_assert(reservation->writes == 0 && !reservation->pending.record);
    reservation->put.value_bytes = reservation->span_count ? reservation->spans[0].to : 0;
    reservation_shrink(s, reservation, reservation->put.value_bytes);
    pst_shard_time(s, now_ns);
    r = pst_put_keep_named(s, &reservation->put, &named);
    if (r < 0)
        return r;
    r = make_settled(s, reservation, now_ns, answer);
    pst_put_let_named(s, named);
    if (r != 0)
        return r;
    reservation->run_count = 0;
    reservation->grows = false;
    pst_assert(reservation->pending.record &&
               reservation->pending.record->value_bytes == reservation->put.value_bytes);
    return 0;
}

static void recent_remember(struct pst_holder *holder, uint64_t handle, uint64_t hash,
                            const struct pst_answer *answer)
{
    struct pst_recent *recent = holder->recent;

    pst_assert(recent && handle);
    recent->commits[recent->next++ % RECENT_MAX] =
        (struct recent){handle, hash, answer->generation, answer->value_bytes};
}

static int commit_again(const struct pst_shard *s, const struct pst_holder *holder,
                        const struct pst_reservation_named *named, struct pst_answer *answer)
{
    struct pst_lookup lookup = pst_shard_lookup(s, named->key);

    for (uint32_t i = 0; named->handle && holder->recent && i < RECENT_MAX; i++) {
        const struct recent *commit = &holder->recent->commits[i];

        if (commit->handle == named->handle && commit->hash == lookup.hash) {
            answer->generation = commit->generation;
            answer->value_bytes = commit->value_bytes;
            return PST_OK;
        }
    }
    return PST_MISS;
}

static int check_durable(const struct pst_shard *s, const struct pst_reservation *reservation,
                         const struct pst_reservation_named *named, struct pst_answer *answer)
{
    struct pst_put put = reservation->put;

    pst_assert(s->store->log);
    put.value_bytes = named->bytes;
    return pst_put_check_durable(s, &put, answer);
}

/* What a commit may come to and leave the reservation as it was. -ESTALE: the key is somebody else's, or will
 * be in a moment. */
static bool leaves_reservation(int result)
{
    return result == PST_BUSY || result == -EOPNOTSUPP || result == -EFBIG || result == -ESTALE;
}

/* What the writer says of its bytes, if it does. */
static void set_checksum(struct pst_record *r, bool checksum, uint32_t crc)
{
    pst_assert(r->state & PST_STATE_RESERVED);
    r->flags = (uint8_t)(checksum ? r->flags | PST_RECORD_CHECKSUM : r->flags & ~PST_RECORD_CHECKSUM);
    r->value_crc = crc;
}

/* Whether it can become the key's value; given up unless leaves_reservation(). */
static int reservation_make_ready(struct pst_shard *s, struct pst_reservation *reservation,
                                  const struct pst_reservation_named *named, uint64_t now_ns,
                                  struct pst_answer *answer)
{
    int r;

    if (reservation->state == RESERVATION_LENT || reservation->writes ||
        pst_shard_locked(s, &reservation->put.lookup, false))
        return PST_BUSY;
    r = named->durable ? check_durable(s, reservation, named, answer) : 0;
    if (r == 0)
        r = check_named(s, reservation, named);
    if (r == 0)
        r = reservation_settle(s, reservation, now_ns, answer);
    if (r != 0 && !leaves_reservation(r))
        reservation_give_up(s, reservation);
    pst_assert(r != 0 || reservation->pending.record);
    return r;
}

int pst_reservation_prepare(struct pst_shard *s, struct pst_holder *holder,
                            const struct pst_reservation_named *named, uint64_t now_ns, struct pst_put *put,
                            bool *again, struct pst_answer *answer)
{
    struct pst_reservation *reservation = pst_reservation_find(holder, named->handle);
    int r;

    if (named->durable && !s->store->log)
        return -EOPNOTSUPP;
    *again = !reservation;
    if (!reservation)
        return commit_again(s, holder, named, answer);
    r = reservation_make_ready(s, reservation, named, now_ns, answer);
    if (r != 0)
        return r;
    *put = reservation->put;
    if (named->checksum) {
        put->flags |= PST_PUT_CHECKSUM;
        put->value_crc = named->crc;
    }
    pst_assert(put->lookup.key.len > 0);
    return 0;
}

int pst_reservation_commit(struct pst_shard *s, struct pst_holder *holder,
                           const struct pst_reservation_named *named, uint64_t now_ns,
                           struct pst_answer *answer)
{
    struct pst_reservation *reservation;
    struct pst_put put;
    bool again = false;
    int r = pst_reservation_prepare(s, holder, named, now_ns, &put, &again, answer);

    if (r != 0 || again)
        return r;
    reservation = pst_reservation_find(holder, named->handle);
    pst_assert(reservation && reservation->state == RESERVATION_OPEN && reservation->pending.record);
    if (named->checksum)
        set_checksum(reservation->pending.record, true, named->crc);
    r = pst_shard_commit(s, &reservation->put, &reservation->pending, now_ns, answer);
    if (r == 0)
        recent_remember(holder, reservation->handle, reservation->put.lookup.hash, answer);
    reservation_give_up(s, reservation);
    return r;
}

void pst_reservation_ended(struct pst_shard *s, struct pst_holder *holder, uint64_t handle, uint64_t hash,
                           int result, const struct pst_answer *answer)
{
    struct pst_reservation *reservation = pst_reservation_find(holder, handle);

    pst_assert(result != PST_OK || !reservation);
    if (result == PST_OK && holder->recent) /* the session's first holder here may have ended meanwhile */
        recent_remember(holder, handle, hash, answer);
    else if (reservation && !leaves_reservation(result))
        reservation_give_up(s, reservation);
}

void pst_reservation_abort(struct pst_shard *s, struct pst_holder *holder, uint64_t handle)
{
    struct pst_reservation *reservation = pst_reservation_find(holder, handle);

    if (reservation)
        reservation_give_up(s, reservation);
}

/* ---- as a part of a larger commit ---- */

int pst_reservation_lend(struct pst_reservation *reservation, const struct pst_put *put,
                         struct pst_record **out)
{
    reservation_check(reservation);
    if (reservation->state == RESERVATION_LENT || reservation->writes)
        return PST_BUSY;
    if (reservation->grows || !pst_bytes_equal(put->lookup.key, reservation->put.lookup.key))
        return -EINVAL;
    if (put->value_bytes != reservation->put.value_bytes)
        return -EMSGSIZE;
    if (!written_whole(reservation, reservation->put.value_bytes))
        return -ENODATA;
    pst_assert(reservation->pending.record && reservation->pending.record->state & PST_STATE_RESERVED);
    state_becomes(reservation, RESERVATION_LENT);
    *out = reservation->pending.record;
    if (put->flags & PST_PUT_CHECKSUM)
        set_checksum(*out, true, put->value_crc);
    return 0;
}

void pst_reservation_return(struct pst_shard *s, struct pst_reservation *reservation, bool taken)
{
    reservation_check(reservation);
    pst_assert(reservation->writes == 0 &&
               (reservation->state == RESERVATION_LENT || reservation->state == RESERVATION_LENT_GONE));
    if (taken)
        reservation->pending.record = NULL;
    else
        set_checksum(reservation->pending.record, reservation->put.flags & PST_PUT_CHECKSUM,
                     reservation->put.value_crc);
    state_becomes(reservation, reservation->state == RESERVATION_LENT ? RESERVATION_OPEN : RESERVATION_GONE);
    if (taken || reservation->state == RESERVATION_GONE)
        reservation_give_up(s, reservation);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.c: where a record and its value lie: one slab cell for the record, pages and a tail cell for a value
 * that does not fit in it; and the moving of records, by which a half-empty slab page is taken back.
 */
#include "base/fault.h"
#include "base/hash.h"
#include "mem/location.h"
#include "store/evict_priv.h"
#include "store/index/index.h"
#include "store/index/order.h"
#include "store/memory_priv.h"
#include "store/pins_priv.h"
#include "store/place.h"
#include "store/put.h"
#include "store/read.h"
#include "store/record_mark.h"
#include "store/tiering_priv.h"

enum {
    TAIL_UNIT = 4096, /* a tail behind whole pages can be mapped behind them */
    PAGES_TRIED_MAX = 64,
};

/* With @external in the place of the record's own. */
static uint32_t check_with(const struct pst_record *r, uint32_t seed, uint64_t offset,
                           const struct pst_external *external)
{
    size_t key_at = pst_record_key_at(r->flags), state_at = offsetof(struct pst_record, state);
    size_t body_at = pst_record_body_at(r->flags, r->key_bytes, r->attr_bytes), rest_at = body_at;
    const uint8_t *bytes = (const uint8_t *)r;
    uint32_t crc = seed ^ (uint32_t)(offset >> 3) ^ (uint32_t)(offset >> 35);

    pst_assert(rest_at <= pst_record_bytes(r));
    crc = pst_crc32c(crc, &r->value_crc, state_at - offsetof(struct pst_record, value_crc));
    if (external) {
        crc = pst_crc32c(crc, bytes + key_at, body_at - key_at);
        crc = pst_crc32c(crc, external, sizeof(*external));
        rest_at += sizeof(*external);
    } else {
        rest_at = key_at;
    }
    crc = pst_crc32c(crc, bytes + rest_at, pst_record_bytes(r) - rest_at);
    return crc ? crc : 1;
}

uint32_t pst_record_check(const struct pst_record *r, uint32_t seed, uint64_t offset)
{
    return check_with(r, seed, offset, NULL);
}

struct pst_word pst_record_word(const struct pst_shard *s, const struct pst_record *r, uint32_t check)
{
    pst_assert(!(r->flags & PST_RECORD_ON_DISK));
    _Static_assert(offsetof(struct pst_record, check) == 0 && offsetof(struct pst_record, value_crc) == 4,
                   "the record's first word");
    return (struct pst_word){pst_record_offset(s, r), (uint64_t)r->value_crc << 32 | check};
}

/* @kind: extents from now on, or free. */
static void mark_extents(struct pst_shard *s, const struct pst_run *runs, uint32_t run_count, uint8_t kind)
{
    uint32_t pages = 0, before;

    pst_assert(kind == PST_PAGE_EXTENT || kind == PST_PAGE_FREE);
    for (uint32_t i = 0; i < run_count; i++) {
        for (uint32_t p = 0; p < runs[i].count; p++) {
            struct pst_page_desc *desc = pst_page_desc(&s->store->arenas, runs[i].page + p);

            desc->kind = kind;
            desc->shard = (uint16_t)s->number;
        }
        pages += runs[i].count;
    }
    if (kind == PST_PAGE_EXTENT)
        before = atomic_fetch_add_explicit(&s->store->extent_pages, pages, memory_order_relaxed);
    else
        before = atomic_fetch_sub_explicit(&s->store->extent_pages, pages, memory_order_relaxed);
    pst_assert(before <= s->store->arenas.page_count);
    pst_assert(kind == PST_PAGE_EXTENT || before >= pages);
}

struct shape {
    uint32_t pages;
    uint32_t tail_bytes;
};

/* Whole pages, and the rest in a cell where that is half a page or less, else in a page that is partly used.
 */
static struct shape shape_of(const struct pst_shard *s, uint64_t value_bytes)
{
    uint64_t page_bytes = s->store->arenas.page_bytes, rest = value_bytes % page_bytes;
    struct shape shape = {.pages = (uint32_t)(value_bytes / page_bytes)};

    if (shape.pages > 0)
        rest = pst_round_up(rest, TAIL_UNIT);
    if (rest > pst_slab_bytes_max(s->slab))
        shape.pages++;
    else
        shape.tail_bytes = (uint32_t)rest;
    pst_assert(shape.tail_bytes <= pst_slab_bytes_max(s->slab));
    return shape;
}

uint32_t pst_value_pages(const struct pst_shard *s, uint64_t value_bytes)
{
    return value_bytes > PST_INLINE_BYTES_MAX ? shape_of(s, value_bytes).pages : 0;
}

uint32_t pst_put_pages(const struct pst_shard *s, const struct pst_put *put)
{
    const uint8_t largest = PST_RECORD_EXTERNAL | PST_RECORD_CACHE | PST_RECORD_EXPIRES | PST_RECORD_TIERED;
    size_t cell_bytes = pst_record_body_at(largest, put->lookup.key.len, put->attrs.len);
    struct shape shape = {0};

    if (put->value_bytes > PST_INLINE_BYTES_MAX) {
        shape = shape_of(s, put->value_bytes);
        cell_bytes += sizeof(struct pst_external) + sizeof(struct pst_run);
    } else {
        cell_bytes += put->value_bytes;
    }
    return shape.pages + !pst_slab_has_room(s->slab, cell_bytes) +
           (shape.tail_bytes && !pst_slab_has_room(s->slab, shape.tail_bytes));
}

static uint32_t count_pages(const struct pst_run *runs, uint32_t run_count)
{
    uint32_t pages = 0;

    for (uint32_t i = 0; i < run_count; i++)
        pages += runs[i].count;
    return pages;
}

uint32_t pst_record_pages(const struct pst_record *r)
{
    const struct pst_external *e = r->flags & PST_RECORD_EXTERNAL ? pst_record_external(r) : NULL;

    return e ? count_pages(pst_external_runs(e), e->run_count) : 0;
}

uint32_t pst_put_runs_max(const struct pst_shard *s, const struct pst_put *put)
{
    const uint8_t largest = PST_RECORD_EXTERNAL | PST_RECORD_CACHE | PST_RECORD_EXPIRES | PST_RECORD_TIERED;
    size_t bytes = pst_record_body_at(largest, put->lookup.key.len, put->attrs.len);
    uint64_t bytes_max = pst_slab_bytes_max(s->slab);

    bytes += sizeof(struct pst_external);
    pst_assert(bytes + sizeof(struct pst_run) <= bytes_max);
    return (uint32_t)pst_min((bytes_max - bytes) / sizeof(struct pst_run), PST_RUNS_MAX);
}

static int take_value(struct pst_shard *s, struct shape shape, uint32_t runs_max, struct pst_external *out)
{
    int runs = 0;

    *out = (struct pst_external){.tail_bytes = shape.tail_bytes};
    if (shape.pages) {
        runs = pst_pages_take(&s->store->pages, shape.pages, s->runs, (int)runs_max);
        if (runs < 0)
            return runs;
        mark_extents(s, s->runs, (uint32_t)runs, PST_PAGE_EXTENT);
    }
    pst_assert((uint32_t)runs <= runs_max);
    pst_assert(!runs == !shape.pages);
    out->run_count = (uint32_t)runs;
    if (shape.tail_bytes) {
        int r = pst_slab_take(s->slab, shape.tail_bytes, &out->tail_offset);

        if (r < 0) {
            mark_extents(s, s->runs, (uint32_t)runs, PST_PAGE_FREE);
            pst_pages_give(&s->store->pages, s->runs, runs);
            return r;
        }
    }
    return 0;
}

static void give_value(struct pst_shard *s, const struct pst_external *e, const struct pst_run *runs)
{
    pst_assert(e->run_count <= PST_RUNS_MAX);
    mark_extents(s, runs, e->run_count, PST_PAGE_FREE);
    pst_pages_give(&s->store->pages, runs, (int)e->run_count);
    if (e->tail_bytes)
        pst_slab_give(s->slab, e->tail_offset);
}

static void set_owner(struct pst_shard *s, uint64_t cell_offset, uint64_t owner)
{
    if (pst_slab_cell_bytes(s->slab, cell_offset) >= PST_OWNER_BYTES_MIN)
        pst_slab_set_owner(s->slab, cell_offset, owner);
}

void pst_record_own_cells(struct pst_shard *s, struct pst_record *r)
{
    uint64_t ref = pst_record_ref(s, r);

    pst_assert(ref <= PST_REF_MASK);
    pst_assert(!(r->state & PST_RECORD_UNLINKED));
    set_owner(s, pst_ref_offset(s, ref), ref);
    if (r->flags & PST_RECORD_EXTERNAL && pst_record_external(r)->tail_bytes)
        set_owner(s, pst_record_external(r)->tail_offset, ref | PST_OWNER_TAIL);
}

static void fill_record(struct pst_record *r, const struct pst_put *put, uint8_t flags)
{
    struct pst_bytes key = put->lookup.key;
    uint8_t *at = (uint8_t *)r + pst_record_key_at(flags);

    pst_assert(key.len > 0 && key.len <= PST_KEY_BYTES_MAX);
    pst_assert(put->attrs.len <= PST_ATTR_BYTES_MAX);
    *r = (struct pst_record){
        .value_crc = put->value_crc,
        .value_bytes = put->value_bytes & PST_VALUE_BYTES_MASK,
        .key_bytes = (uint16_t)key.len,
        .attr_bytes = put->attrs.len & PST_RECORD_ATTRS_MASK,
        .copies = put->copies & 7u,
        .depth = put->depth,
        .flags = flags,
        .state = PST_STATE_RESERVED,
    };
    if (flags & PST_RECORD_TIERED)
        pst_record_set_place(r, (struct pst_log_place){0, 0});
    memcpy(at, key.data, key.len);
    if (put->attrs.len)
        memcpy(at + key.len, put->attrs.data, put->attrs.len);
    memset(at + key.len + put->attrs.len, 0,
           pst_record_body_at(flags, key.len, put->attrs.len) - pst_record_key_at(flags) - key.len -
               put->attrs.len);
}

/* The record of a value: with it inside, or where @external names memory of its own, behind that. */
static int make_record(struct pst_shard *s, const struct pst_put *put, bool cache,
                       const struct pst_external *external, const struct pst_run *runs,
                       struct pst_record **out)
{
    uint64_t expires_ms = pst_put_expires_ms(s, put);
    uint8_t flags = (uint8_t)((external ? PST_RECORD_EXTERNAL : 0) | (cache ? PST_RECORD_CACHE : 0) |
                              (put->flags & PST_PUT_CHECKSUM ? PST_RECORD_CHECKSUM : 0) |
                              (expires_ms      ? PST_RECORD_EXPIRES
                               : s->store->log ? PST_RECORD_TIERED
                                               : 0));
    size_t bytes = pst_record_body_at(flags, put->lookup.key.len, put->attrs.len);
    struct pst_record *record;
    uint64_t offset;
    int r;

    pst_assert(!external || external->run_count <= PST_RUNS_MAX);
    bytes += external ? sizeof(*external) + external->run_count * sizeof(*runs) : put->value_bytes;
    pst_assert(bytes <= pst_slab_bytes_max(s->slab));
    r = pst_fault(PST_FAULT_record_enospc) ? -ENOSPC : pst_slab_take(s->slab, bytes, &offset);
    if (r == 0 && pst_unlikely(expires_ms)) {
        r = pst_expiry_prepare(s);
        if (r < 0)
            pst_slab_give(s->slab, offset);
    }
    if (r < 0)
        return r;
    pst_assert(pst_ref_of_offset(s, offset) <= PST_REF_MASK);
    record = (struct pst_record *)(void *)(s->base + offset);
    fill_record(record, put, flags);
    if (pst_unlikely(expires_ms))
        pst_record_set_expiry(record, expires_ms);
    if (external) {
        *pst_record_external(record) = *external;
        memcpy(pst_external_runs(pst_record_external(record)), runs, external->run_count * sizeof(*runs));
    }
    pst_record_own_cells(s, record);
    *out = record;
    return 0;
}

int pst_record_take(struct pst_shard *s, const struct pst_put *put, bool cache, struct pst_record **out)
{
    struct pst_external external = {0};
    int r;

    if (put->value_bytes <= PST_INLINE_BYTES_MAX)
        return make_record(s, put, cache, NULL, NULL, out);
    r = take_value(s, shape_of(s, put->value_bytes), pst_put_runs_max(s, put), &external);
    if (r < 0)
        return r;
    r = make_record(s, put, cache, &external, s->runs, out);
    if (r < 0)
        give_value(s, &external, s->runs);
    pst_assert(r < 0 || (*out)->flags & PST_RECORD_EXTERNAL);
    return r;
}

/* ---- pages of a value that is still written ---- */

int pst_runs_take(struct pst_shard *s, uint32_t pages, struct pst_run *runs, uint32_t runs_max)
{
    int count = pst_pages_take(&s->store->pages, pages, runs, (int)runs_max);

    pst_assert(count <= (int)runs_max);
    if (count < 0)
        return count;
    mark_extents(s, runs, (uint32_t)count, PST_PAGE_EXTENT);
    return count;
}

void pst_runs_give(struct pst_shard *s, const struct pst_run *runs, uint32_t run_count)
{
    pst_assert(run_count <= PST_RUNS_MAX);
    mark_extents(s, runs, run_count, PST_PAGE_FREE);
    pst_pages_give(&s->store->pages, runs, (int)run_count);
}

int pst_runs_claim(struct pst_shard *s, const struct pst_run *runs, uint32_t run_count)
{
    uint32_t arena_pages = s->store->arenas.arena_pages, claimed = 0;
    int r = 0;

    for (; claimed < run_count; claimed++) {
        struct pst_run run = runs[claimed];

        r = run.count == 0 || run.count > arena_pages - run.page % arena_pages
                ? -ERANGE
                : pst_pages_claim(&s->store->pages, run);
        if (r < 0)
            break;
    }
    if (r < 0)
        pst_pages_give(&s->store->pages, runs, (int)claimed);
    else
        mark_extents(s, runs, run_count, PST_PAGE_EXTENT);
    pst_assert(claimed <= run_count);
    pst_assert(r < 0 || claimed == run_count);
    return r;
}

struct iovec pst_runs_piece(const struct pst_shard *s, const struct pst_run *runs, uint32_t run_count,
                            uint64_t offset, uint64_t bytes)
{
    for (uint32_t i = 0;; i++) {
        uint64_t len = runs[i].count * s->store->arenas.page_bytes;

        pst_assert(i < run_count);
        if (offset < len)
            return (struct iovec){s->base + pst_page_offset(&s->store->arenas, runs[i].page) + offset,
                                  pst_min(bytes, len - offset)};
        offset -= len;
    }
}

/* A value that ended up small moves into its record. */
static int take_inline(struct pst_shard *s, const struct pst_put *put, bool cache, const struct pst_run *runs,
                       uint32_t run_count, struct pst_record **out)
{
    int r = pst_record_take(s, put, cache, out);

    pst_assert(put->value_bytes <= PST_INLINE_BYTES_MAX);
    pst_assert(run_count <= 1);
    if (r < 0)
        return r;
    if (put->value_bytes)
        memcpy(pst_record_body(*out), pst_runs_piece(s, runs, run_count, 0, put->value_bytes).iov_base,
               put->value_bytes);
    pst_runs_give(s, runs, run_count);
    return 0;
}

int pst_record_take_pages(struct pst_shard *s, const struct pst_put *put, bool cache, struct pst_run *runs,
                          uint32_t run_count, struct pst_record **out)
{
    struct shape shape = shape_of(s, put->value_bytes);
    struct pst_external external = {.run_count = run_count};
    uint64_t tail_at = shape.pages * s->store->arenas.page_bytes;
    struct pst_run *last, page;
    int r;

    pst_assert(count_pages(runs, run_count) == pst_div_up(put->value_bytes, s->store->arenas.page_bytes));
    if (put->value_bytes <= PST_INLINE_BYTES_MAX)
        return take_inline(s, put, cache, runs, run_count, out);
    pst_assert(run_count > 0);
    last = &runs[run_count - 1];
    page = (struct pst_run){last->page + last->count - 1, 1};
    if (shape.tail_bytes && pst_slab_take(s->slab, shape.tail_bytes, &external.tail_offset) == 0) {
        external.tail_bytes = shape.tail_bytes;
        memcpy(s->base + external.tail_offset, s->base + pst_page_offset(&s->store->arenas, page.page),
               put->value_bytes - tail_at);
        last->count--;
        external.run_count -= last->count == 0;
    }
    r = make_record(s, put, cache, &external, runs, out);
    if (external.tail_bytes && r == 0)
        pst_runs_give(s, &page, 1);
    if (external.tail_bytes && r < 0) {
        pst_slab_give(s->slab, external.tail_offset);
        last->count++;
    }
    return r;
}

void pst_record_give_value(struct pst_shard *s, const struct pst_record *r)
{
    if (r->flags & PST_RECORD_EXTERNAL) {
        struct pst_external *e = pst_record_external(r);

        give_value(s, e, pst_external_runs(e));
    } else if (pst_unlikely(r->flags & PST_RECORD_ON_DEVICE)) {
        pst_tier_give_device(s->tier, r);
    }
}

void pst_record_give(struct pst_shard *s, struct pst_record *r)
{
    uint64_t offset = pst_record_offset(s, r);

    pst_assert(!(r->state & PST_RECORD_PINNED));
    pst_record_mark(r, 0);
    if (r->state & PST_STATE_RESERVED) {
        pst_prefix_quota_count(s, r, false);
        if (r->flags & PST_RECORD_EXPIRES)
            pst_expiry_abandon(s);
    }
    pst_record_give_value(s, r);
    r->generation = 0;
    pst_slab_give(s->slab, offset);
}

bool pst_record_piece(const struct pst_shard *s, const struct pst_record *r, uint64_t offset, uint64_t bytes,
                      struct iovec *piece)
{
    const struct pst_external *e;
    uint64_t at = 0;

    pst_assert(offset <= r->value_bytes);
    pst_assert(bytes <= r->value_bytes - offset);
    if (bytes == 0)
        return false; /* of a stub as well: an empty value has nothing elsewhere */
    pst_assert(!pst_record_away(r));
    if (!(r->flags & PST_RECORD_EXTERNAL)) {
        *piece = (struct iovec){(uint8_t *)pst_record_body(r) + offset, bytes};
        return true;
    }
    e = pst_record_external(r);
    for (uint32_t i = 0;; i++) {
        bool tail = i == e->run_count;
        const struct pst_run *run = &pst_external_runs(e)[i];
        uint64_t len = tail ? e->tail_bytes : run->count * s->store->arenas.page_bytes;

        pst_assert(i <= e->run_count);
        if (offset < at + len) {
            uint64_t start = tail ? e->tail_offset : pst_page_offset(&s->store->arenas, run->page);

            *piece = (struct iovec){s->base + start + (offset - at), pst_min(bytes, at + len - offset)};
            return true;
        }
        at += len;
    }
}

void pst_record_fill(const struct pst_shard *s, const struct pst_record *r, const uint8_t *value)
{
    struct iovec piece;

    pst_assert(r->state & PST_STATE_RESERVED);
    for (uint64_t at = 0; pst_record_piece(s, r, at, r->value_bytes - at, &piece); at += piece.iov_len)
        memcpy(piece.iov_base, value + at, piece.iov_len);
}

int pst_record_iov(const struct pst_shard *s, const struct pst_record *r, uint64_t offset, uint64_t bytes,
                   struct iovec *iov, int iov_max)
{
    int count = 0;

    /* Each step walks the runs from the first on: few values have more than one. */
    while (bytes > 0) {
        if (count == iov_max)
            return -E2BIG;
        pst_record_piece(s, r, offset, bytes, &iov[count]);
        pst_assert(iov[count].iov_len > 0 && iov[count].iov_len <= bytes);
        offset += iov[count].iov_len;
        bytes -= iov[count++].iov_len;
    }
    return count;
}

static void count_view(const struct pst_shard *s, uint32_t page, bool begins)
{
    struct pst_page_desc *desc = pst_page_desc(&s->store->arenas, page);

    pst_assert(begins || desc->views > 0);
    if (begins && desc->views == 0)
        desc->view_first = s->store->arenas.turn;
    if (begins)
        desc->view_last = s->store->arenas.turn;
    desc->views += begins ? 1 : -1u;
}

void pst_record_viewed(struct pst_shard *s, const struct pst_record *r, bool begins)
{
    const struct pst_arenas *a = &s->store->arenas;
    const struct pst_external *e = r->flags & PST_RECORD_EXTERNAL ? pst_record_external(r) : NULL;

    if (!s->store->kept)
        return;
    pst_assert(r->state & PST_RECORD_PINNED);
    for (uint32_t i = 0; e && i < e->run_count; i++) {
        for (uint32_t p = 0; p < pst_external_runs(e)[i].count; p++)
            count_view(s, pst_external_runs(e)[i].page + p, begins);
    }
    if (!e || e->tail_bytes)
        count_view(s, pst_offset_page(a, e ? e->tail_offset : pst_record_offset(s, r)), begins);
}

void pst_record_location(const struct pst_shard *s, const struct pst_record *r, struct pst_location *out)
{
    const struct pst_arenas *a = &s->store->arenas;
    const struct pst_external *e = r->flags & PST_RECORD_EXTERNAL ? pst_record_external(r) : NULL;
    uint64_t tail = pst_record_offset(s, r), tail_bytes = r->value_bytes;

    pst_assert(!pst_record_away(r));
    *out = (struct pst_location){.arena_pages = a->arena_pages};
    if (e) {
        out->run_count = e->run_count;
        out->runs = pst_external_runs(e);
        tail = e->tail_offset;
        tail_bytes = e->tail_bytes;
    } else {
        tail += pst_record_body_at(r->flags, r->key_bytes, r->attr_bytes);
    }
    if (tail_bytes) {
        out->tail_page = pst_offset_page(a, tail);
        out->tail_start = (uint32_t)(tail - pst_page_offset(a, out->tail_page));
        out->tail_bytes = (uint32_t)tail_bytes;
    }
}

/* A cell for what moves: to empty one page by filling a fresh one would gain nothing. */
static int take_beside(struct pst_shard *s, uint64_t bytes, uint64_t *offset)
{
    pst_assert(bytes > 0 && bytes <= pst_slab_bytes_max(s->slab));
    return pst_slab_has_room(s->slab, bytes) ? pst_slab_take(s->slab, bytes, offset) : -ENOSPC;
}

/* A whole record at @offset, with its tail at @tail_offset if that is another one. */
static struct pst_record *copy_record(struct pst_shard *s, const struct pst_record *r, uint64_t offset,
                                      uint64_t tail_offset)
{
    struct pst_record *to = (struct pst_record *)(void *)(s->base + offset);

    pst_assert(tail_offset == PST_TAIL_STAYS || r->flags & PST_RECORD_EXTERNAL);
    memcpy(to, r, pst_record_bytes(r));
    if (tail_offset != PST_TAIL_STAYS) {
        struct pst_external *e = pst_record_external(to);

        memcpy(s->base + tail_offset, s->base + e->tail_offset, e->tail_bytes);
        e->tail_offset = tail_offset;
    }
    pst_record_mark(to, pst_record_check(to, s->store->check_seed, offset));
    return to;
}

void pst_record_move(struct pst_shard *s, struct pst_record *r, uint64_t offset, uint64_t tail_offset,
                     struct pst_slab *from_slab)
{
    struct pst_lookup lookup = pst_shard_lookup(s, pst_record_key(r));
    uint64_t from = pst_record_ref(s, r);
    struct pst_record *to = copy_record(s, r, offset, tail_offset);
    int result;

    pst_assert(to != r);
    pst_assert(!(r->state & (PST_STATE_RESERVED | PST_RECORD_UNLINKED)));
    s->changes++;
    result = pst_index_replace(s->index, lookup.hash, from, pst_record_ref(s, to));
    pst_assert(result == 0);
    result = pst_order_replace(s->order, lookup.key, pst_record_ref(s, to));
    pst_assert(result == 0);
    if (pst_record_listed(to->flags))
        pst_recency_moved(s, to, from);
    else if (pst_unlikely(to->flags & PST_RECORD_ON_DEVICE))
        pst_tier_moved(s->tier, to);
    if (to->state & PST_RECORD_PINNED)
        pst_pins_rename(&s->pins, pst_pins_find(&s->pins, from), pst_record_ref(s, to));
    pst_record_own_cells(s, to);
    pst_record_mark(r, 0);
    r->generation = 0;
    if (tail_offset != PST_TAIL_STAYS)
        pst_slab_give(from_slab, pst_record_external(r)->tail_offset);
    pst_slab_give(from_slab, pst_ref_offset(s, from));
}

/* Gives the record another cell. Return: 0 or -ENOSPC. */
static int move_record(struct pst_shard *s, struct pst_record *r)
{
    uint64_t offset;
    int result = take_beside(s, pst_record_bytes(r), &offset);

    pst_assert(!(r->state & (PST_STATE_RESERVED | PST_RECORD_UNLINKED)));
    if (result == 0)
        pst_record_move(s, r, offset, PST_TAIL_STAYS, s->slab);
    return result;
}

/* Gives the tail another cell; its record learns of it in one step. Return: 0 or -ENOSPC. */
static int move_tail(struct pst_shard *s, struct pst_record *r)
{
    struct pst_external *e = pst_record_external(r), moved = *e;
    uint64_t offset = pst_record_offset(s, r), from = e->tail_offset;
    int result = take_beside(s, e->tail_bytes, &moved.tail_offset);
    struct pst_word words[2];

    pst_assert(e->tail_bytes > 0);
    if (result < 0)
        return result;
    memcpy(s->base + moved.tail_offset, s->base + e->tail_offset, e->tail_bytes);
    words[0] = (struct pst_word){(uint64_t)((uint8_t *)&e->tail_offset - s->base), moved.tail_offset};
    words[1] = pst_record_word(s, r, check_with(r, s->store->check_seed, offset, &moved));
    pst_words_write(s->store, words, 2);
    pst_slab_give(s->slab, from);
    set_owner(s, moved.tail_offset, pst_record_ref(s, r) | PST_OWNER_TAIL);
    return 0;
}

/* True when nobody holds an address inside the record. */
static bool record_is_movable(const struct pst_shard *s, const struct pst_record *r)
{
    const struct pst_pin *pin;

    if (r->state & (PST_STATE_RESERVED | PST_RECORD_UNLINKED))
        return false;
    pin = pst_record_pin(s, r);
    return !pin || pin->refs == 0;
}

/* Moves what the cell holds, or evicts it where there is no room to move to. Return: false when neither could
 * be done. */
static bool empty_cell(struct pst_shard *s, uint64_t offset)
{
    uint64_t owner = pst_slab_cell_bytes(s->slab, offset) >= PST_OWNER_BYTES_MIN
                         ? pst_slab_owner(s->slab, offset)
                         : pst_ref_of_offset(s, offset);
    struct pst_record *r = pst_ref_record(s, owner & ~PST_OWNER_TAIL);
    int result;

    pst_assert(owner & ~PST_OWNER_TAIL);
    if (!record_is_movable(s, r))
        return false;
    result = owner & PST_OWNER_TAIL ? move_tail(s, r) : move_record(s, r);
    if (result == 0) {
        s->stat.moved++;
        return true;
    }
    if (!(r->flags & PST_RECORD_CACHE) || r->state & PST_RECORD_PINNED)
        return false;
    if (atomic_load_explicit(&s->store->pages.free_count, memory_order_relaxed) > 0)
        return false; /* no value need go for the sake of a page */
    pst_record_evict(s, r);
    return true;
}

/* Empties a page that no cells are taken from. Return: false when something has to stay there. */
static bool empty_page(struct pst_shard *s, uint32_t page)
{
    uint64_t cells[64];
    uint32_t count;

    pst_assert(page < s->store->arenas.page_count);
    do {
        count = pst_slab_page_cells(s->slab, page, cells, pst_count_of(cells));
        for (uint32_t i = 0; i < count; i++) {
            /* Moving one may have evicted another of the same page. */
            if (pst_slab_cell_bytes(s->slab, cells[i]) && !empty_cell(s, cells[i]))
                return false;
        }
    } while (count == pst_count_of(cells));
    return true;
}

bool pst_shard_take_back(struct pst_shard *s, uint32_t used_percent)
{
    uint32_t kept[PAGES_TRIED_MAX], kept_count = 0;
    bool emptied = false;

    pst_assert(used_percent <= 100);
    /* A sparse page may hold the only cells of a class, or a value in transfer: then the next one. */
    while (!emptied && kept_count < PAGES_TRIED_MAX) {
        int64_t page = pst_slab_sparse_page(s->slab, used_percent);

        if (page < 0)
            break;
        emptied = empty_page(s, (uint32_t)page);
        if (!emptied)
            kept[kept_count++] = (uint32_t)page;
    }
    while (kept_count > 0)
        pst_slab_page_keep(s->slab, kept[--kept_count]);
    pst_assert(kept_count == 0);
    return emptied;
}

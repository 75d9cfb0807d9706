/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recency.c: the lines of cache records, and the policies that are no more than an order: `lru`, and
 * `prefix`, in which the pages of a chain stand with the deepest at the cold end, since a chain is useless
 * behind the page that is lost.
 */
#include "store/evict_priv.h"
#include "store/policy.h"

enum { MOMENT_MS = 10000 }; /* what comes this soon after what came last may be of its chain */

static struct pst_recency *recency_at(const struct pst_shard *s, uint64_t ref)
{
    return pst_record_recency(pst_ref_record(s, ref));
}

static struct pst_lines *lines_of(const struct pst_shard *s, const struct pst_record *r)
{
    pst_assert(pst_record_recency(r)->group < s->store->group_count);
    return &s->lines[pst_record_recency(r)->group];
}

/* ---- the cold ends ---- */

void pst_recency_publish(struct pst_shard *s)
{
    uint64_t ms = UINT64_MAX;

    for (uint32_t i = 0; i < s->store->group_count; i++)
        ms = pst_min(ms, s->lines[i].tail_ms);
    if (atomic_load_explicit(&s->tail_ms, memory_order_relaxed) != ms)
        atomic_store_explicit(&s->tail_ms, ms, memory_order_relaxed);
}

static void tail_changed(struct pst_shard *s, struct pst_lines *lines)
{
    uint64_t ms = UINT64_MAX;

    pst_assert(lines >= s->lines && lines < s->lines + s->store->group_count);
    for (int i = 0; i < PST_LINES; i++) {
        if (lines->line[i].oldest)
            ms = pst_min(ms, recency_at(s, lines->line[i].oldest)->touched_ms);
    }
    lines->tail_ms = ms;
    pst_recency_publish(s);
}

void pst_recency_loosened(struct pst_shard *s)
{
    if (s->listed && atomic_load_explicit(&s->tail_ms, memory_order_relaxed) == UINT64_MAX)
        pst_recency_publish(s);
}

/* ---- lines ---- */

/* Only this thread writes it. */
static void count_changed(struct pst_lines *lines, uint64_t by)
{
    uint64_t count = atomic_load_explicit(&lines->count, memory_order_relaxed);

    pst_assert(by == 1 || count > 0);
    atomic_store_explicit(&lines->count, count + by, memory_order_relaxed);
}

static void set_newer(const struct pst_shard *s, struct pst_line *line, uint64_t of, uint64_t ref)
{
    pst_assert(of != ref || !of);
    if (of)
        recency_at(s, of)->newer = ref & PST_REF_MASK;
    else
        line->oldest = ref;
}

static void set_older(const struct pst_shard *s, struct pst_line *line, uint64_t of, uint64_t ref)
{
    pst_assert(of != ref || !of);
    if (of)
        recency_at(s, of)->older = ref & PST_REF_MASK;
    else
        line->newest = ref;
}

/* @newer: the record behind which it comes; 0: none, it is the newest. */
static void line_insert(struct pst_shard *s, struct pst_lines *lines, uint32_t number, struct pst_record *r,
                        uint64_t newer)
{
    struct pst_line *line = &lines->line[number];
    struct pst_recency *rec = pst_record_recency(r);
    uint64_t ref = pst_record_ref(s, r);

    pst_assert(number < PST_LINES);
    pst_assert(ref != newer);
    pst_assert(!line->newest == !line->count);
    pst_assert(!line->oldest == !line->count);
    pst_assert(!newer || recency_at(s, newer)->line == number);
    rec->line = number & 15;
    rec->newer = newer & PST_REF_MASK;
    rec->older = (newer ? recency_at(s, newer)->older : line->newest) & PST_REF_MASK;
    set_older(s, line, newer, ref);
    set_newer(s, line, rec->older, ref);
    line->count++;
    count_changed(lines, 1);
    if (!rec->older)
        tail_changed(s, lines);
    pst_assert(line->newest);
    pst_assert(line->oldest);
}

static void line_take_out(struct pst_shard *s, struct pst_lines *lines, struct pst_record *r)
{
    struct pst_recency *rec = pst_record_recency(r);
    struct pst_line *line = &lines->line[rec->line];
    uint64_t ref = pst_record_ref(s, r);

    pst_assert(rec->line < PST_LINES);
    pst_assert(line->count > 0);
    pst_assert(rec->newer ? recency_at(s, rec->newer)->older == ref : line->newest == ref);
    pst_assert(rec->older ? recency_at(s, rec->older)->newer == ref : line->oldest == ref);
    set_older(s, line, rec->newer, rec->older);
    set_newer(s, line, rec->older, rec->newer);
    line->count--;
    count_changed(lines, UINT64_MAX);
    if (lines->chain == ref)
        lines->chain = rec->newer; /* the page before it, where it was of a chain */
    if (lines->walk.left == ref)
        lines->walk.left = rec->older;
    if (!rec->older)
        tail_changed(s, lines);
    pst_assert(!line->newest == !line->count);
    pst_assert(!line->oldest == !line->count);
}

static uint32_t depth_of(const struct pst_record *r)
{
    return r->depth == PST_DEPTH_NONE ? 0 : r->depth;
}

/* The record of this line behind which the chain that came last goes on with @r; 0: none. */
static uint64_t chain_end(const struct pst_shard *s, const struct pst_lines *lines, uint32_t line,
                          const struct pst_record *r, uint64_t now_ms)
{
    const struct pst_record *last = lines->chain ? pst_ref_record(s, lines->chain) : NULL;

    pst_assert(!last || pst_record_recency(last)->line < PST_LINES);
    if (!last || depth_of(r) <= depth_of(last))
        return 0;
    if (pst_record_recency(last)->line != line || now_ms - lines->chain_ms > MOMENT_MS)
        return 0;
    return lines->chain;
}

/*
 * In a chain a step deeper counts as a ms older, so that times fall towards the cold end as in the rest of
 * the line: else the shard that lost the end of its part would have the coldest end again, and lose all of
 * it.
 */
static uint64_t behind_ms(const struct pst_shard *s, uint64_t newer, const struct pst_record *r)
{
    uint64_t ms = recency_at(s, newer)->touched_ms;

    pst_assert(depth_of(r) > depth_of(pst_ref_record(s, newer)));
    return ms - pst_min(ms, depth_of(r) - depth_of(pst_ref_record(s, newer)));
}

void pst_line_add(struct pst_shard *s, struct pst_lines *lines, uint32_t line, struct pst_record *r,
                  bool chained, uint64_t now_ms)
{
    uint64_t newer = chained ? chain_end(s, lines, line, r, now_ms) : 0;

    pst_assert(line < PST_LINES);
    pst_recency_touched(pst_record_recency(r), newer ? behind_ms(s, newer, r) : now_ms);
    line_insert(s, lines, line, r, newer);
    lines->chain = pst_record_ref(s, r);
    lines->chain_ms = now_ms;
}

void pst_line_move(struct pst_shard *s, struct pst_lines *lines, uint32_t line, struct pst_record *r)
{
    pst_assert(line < PST_LINES);
    pst_line_move_behind(s, lines, line, r, 0);
}

void pst_line_move_behind(struct pst_shard *s, struct pst_lines *lines, uint32_t line, struct pst_record *r,
                          uint64_t newer)
{
    pst_assert(newer != pst_record_ref(s, r));
    line_take_out(s, lines, r);
    line_insert(s, lines, line, r, newer);
}

void pst_line_take(struct pst_shard *s, struct pst_lines *lines, struct pst_record *r)
{
    pst_assert(lines->count > 0);
    line_take_out(s, lines, r);
}

/* ---- what the engine calls ---- */

void pst_recency_add(struct pst_shard *s, struct pst_record *r, uint64_t now_ns)
{
    /* What is only moved to the log makes no room in a quota. */
    uint32_t group = r->flags & PST_RECORD_CACHE ? pst_key_group(s->store, pst_record_key(r)) : 0;

    pst_assert(group < s->store->group_count);
    *pst_record_recency(r) = (struct pst_recency){.group = group & 0xfff};
    s->store->policy->added(s, lines_of(s, r), r, pst_shard_ms(s, now_ns));
    atomic_store_explicit(&lines_of(s, r)->kept_until_ns, 0, memory_order_relaxed);
    pst_assert(lines_of(s, r)->count > 0);
}

void pst_recency_remove(struct pst_shard *s, struct pst_record *r)
{
    pst_assert(pst_record_recency(r)->line < PST_LINES);
    line_take_out(s, lines_of(s, r), r);
}

void pst_recency_moved(struct pst_shard *s, struct pst_record *r, uint64_t from)
{
    struct pst_recency *rec = pst_record_recency(r);
    struct pst_lines *lines = lines_of(s, r);
    struct pst_line *line = &lines->line[rec->line];
    uint64_t ref = pst_record_ref(s, r);

    pst_assert(from != ref);
    pst_assert(rec->line < PST_LINES);
    pst_assert(line->count > 0);
    pst_assert(rec->newer ? recency_at(s, rec->newer)->older == from : line->newest == from);
    pst_assert(rec->older ? recency_at(s, rec->older)->newer == from : line->oldest == from);
    set_older(s, line, rec->newer, ref);
    set_newer(s, line, rec->older, ref);
    if (lines->chain == from)
        lines->chain = ref;
    if (lines->walk.left == from)
        lines->walk.left = ref;
}

void pst_recency_spare(struct pst_shard *s, struct pst_record *r, uint64_t now_ns)
{
    struct pst_recency *rec = pst_record_recency(r);

    pst_assert(rec->line < PST_LINES);
    pst_assert(!(r->state & PST_RECORD_UNLINKED));
    pst_recency_touched(rec, pst_shard_ms(s, now_ns));
    pst_line_move(s, lines_of(s, r), rec->line, r);
}

void pst_shard_touch(struct pst_shard *s, struct pst_record *r, uint64_t now_ns)
{
    struct pst_lines *lines;

    if (!pst_record_listed(r->flags) || r->state & PST_RECORD_UNLINKED)
        return;
    lines = lines_of(s, r);
    s->store->policy->used(s, lines, r, pst_shard_ms(s, now_ns));
    if (!pst_record_recency(r)->older) /* it stayed at the cold end, and is younger than it was */
        tail_changed(s, lines);
}

/* ---- policies ---- */

static void lru_added(struct pst_shard *s, struct pst_lines *lines, struct pst_record *r, uint64_t now_ms)
{
    pst_line_add(s, lines, 0, r, false, now_ms);
}

static void prefix_added(struct pst_shard *s, struct pst_lines *lines, struct pst_record *r, uint64_t now_ms)
{
    pst_line_add(s, lines, 0, r, true, now_ms);
}

static void order_used(struct pst_shard *s, struct pst_lines *lines, struct pst_record *r, uint64_t now_ms)
{
    pst_assert(pst_record_recency(r)->line == 0);
    if (!pst_record_recency(r)->newer) { /* its place stays, its time does not */
        pst_recency_touched(pst_record_recency(r), now_ms);
        return;
    }
    line_take_out(s, lines, r);
    s->store->policy->added(s, lines, r, now_ms);
}

static struct pst_record *order_oldest(struct pst_shard *s, struct pst_lines *lines, uint64_t now_ms)
{
    pst_assert(!lines->line[0].oldest == !lines->line[0].count);
    (void)now_ms;
    return lines->line[0].oldest ? pst_ref_record(s, lines->line[0].oldest) : NULL;
}

const struct pst_policy pst_policy_lru = {
    .name = "lru",
    .added = lru_added,
    .used = order_used,
    .next = order_oldest,
};

const struct pst_policy pst_policy_prefix = {
    .name = "prefix",
    .added = prefix_added,
    .used = order_used,
    .next = order_oldest,
};

const struct pst_policy *pst_policy_find(const char *name)
{
    static const struct pst_policy *const policies[] = {&pst_policy_chains, &pst_policy_s3fifo,
                                                        &pst_policy_prefix, &pst_policy_lru};

    for (size_t i = 0; i < pst_count_of(policies); i++) {
        if (!name || !*name || strcmp(name, policies[i]->name) == 0)
            return policies[i];
    }
    return NULL;
}

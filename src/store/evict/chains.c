/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chains.c: the policy `chains`, and `s3fifo`, of which it is the part that knows no depth.
 *
 * What comes for the first time stands in a short line and goes soon, unless it is used there; what was used,
 * or comes back after it went, stands in the long one. A use of a key without depth is only counted, so a
 * read changes no neighbour: records get their next turn when they arrive at a line's cold end. After Yang et
 * al., "FIFO queues are all you need for cache eviction" (SOSP 2023).
 *
 * Records with a depth are pages of chains, and `chains` moves them as they are used. A *walk* is as many
 * touches as have growing depths. Its pages stand together, the deepest at the cold end, and have one stamp.
 * Pages that stood behind the one from which a walk went on differently are *left*. Which line loses one is
 * decided by what rates.c learnt of lines and ages, if that differs by more than half and enough was seen;
 * else as in `s3fifo`.
 *
 * A request's pages lie in all shards, and hit if none of them is lost: shards have to decide alike. They
 * share a clock, the number of the present walk, and what they learnt. A touch of a page with a depth reads
 * that number; a shard's part of the rest is added now and then. Keys without depth touch none of it.
 */
#include "base/hash.h"
#include "store/policy.h"
#include "store/shard_priv.h"

enum {
    SHORT_PERCENT = 20,       /* of the records; measured in docs/reference/performance.md */
    CHAIN_SHORT_PERCENT = 10, /* where chains are */
    USES_MAX = 3,
    TURNS_MAX = 4096,  /* of records at one eviction, for which their uses have paid; rarely so many follow
                          each other */
    CHAIN_GHOSTS = 2,  /* times as many are remembered: rates are learnt from them, and a page that is not
                          recognised costs all behind it */
    BACK_AGES = 4,     /* touches for each record, within which what comes back was worth keeping */
    LEFT_MAX = 256,    /* records that are looked at as a walk parts */
    TELL_TOUCHES = 16, /* so often a shard tells the others its clock, and asks for theirs, */
    TELL_PART = 128,   /* or as often as this part of its records, if that is more often */
};

#define CLEARLY 1.5 /* so much less worth is one line's end than the other's */

static uint64_t lines_records(const struct pst_lines *lines)
{
    return lines->line[PST_LINE_SHORT].count + lines->line[PST_LINE_LONG].count;
}

static uint64_t hash_of(const struct pst_shard *s, const struct pst_record *r)
{
    return pst_shard_lookup(s, pst_record_key(r)).hash;
}

/* How far the clock goes on while the shard is touched once. */
static uint64_t lines_pace(const struct pst_shard *s, const struct pst_lines *lines)
{
    pst_assert(s->store->shard_count > 0);
    return lines->rates ? s->store->shard_count : 1;
}

/* ---- without chains ---- */

static bool take_ghost(struct pst_shard *s, struct pst_lines *lines, const struct pst_record *r,
                       struct pst_ghost *ghost)
{
    bool found;

    pst_ghosts_fit(&lines->ghosts, (lines_records(lines) + 1) * (lines->rates ? CHAIN_GHOSTS : 1));
    found = pst_ghosts_take(&lines->ghosts, hash_of(s, r), lines->clock / lines_pace(s, lines), ghost);
    if (found)
        ghost->stamp *= lines_pace(s, lines);
    return found;
}

static void came_alone(struct pst_shard *s, struct pst_lines *lines, struct pst_record *r, uint64_t now_ms)
{
    struct pst_ghost ghost;
    bool back = take_ghost(s, lines, r, &ghost) &&
                lines->clock - ghost.stamp <= (2 * lines_records(lines) + 2) * lines_pace(s, lines);

    pst_assert(pst_record_recency(r)->uses == 0);
    pst_recency_set_stamp(pst_record_recency(r), lines->clock++);
    pst_line_add(s, lines, back ? PST_LINE_LONG : PST_LINE_SHORT, r, true, now_ms);
}

static void count_use(struct pst_shard *s, struct pst_lines *lines, struct pst_record *r, uint64_t now_ms)
{
    struct pst_recency *rec = pst_record_recency(r);

    pst_assert(rec->line < PST_LINES);
    pst_assert(rec->uses <= USES_MAX);
    (void)s;
    lines->chain = 0; /* what comes next goes on with what was used, not with what came last */
    lines->clock++;
    pst_recency_touched(rec, now_ms);
    if (rec->uses < USES_MAX)
        rec->uses++;
}

/* ---- chains ---- */

/* Of the last 2^32 touches. */
static uint64_t stamp_of(const struct pst_lines *lines, const struct pst_record *r)
{
    pst_assert(pst_record_recency(r)->line < PST_LINES);
    return lines->clock - (uint32_t)(lines->clock - pst_recency_stamp(pst_record_recency(r)));
}

static bool in_walk(const struct pst_lines *lines, const struct pst_record *r)
{
    pst_assert(lines->walk.depth <= PST_DEPTH_NONE);
    return lines->walk.depth != PST_DEPTH_NONE && stamp_of(lines, r) == lines->walk.stamp;
}

/* What stands behind the page that was used last, if it was of the same walk once, is worth little now. A
 * shard that has a part of the pages does not know which page came next, and leaves them. */
static void walk_parts(struct pst_shard *s, struct pst_lines *lines)
{
    struct pst_walk *walk = &lines->walk;
    uint64_t ref = walk->left, newer = 0;
    uint32_t depth = walk->left_depth;

    pst_assert(lines->rates || !ref);
    walk->left = 0;
    for (int i = 0; depth > 0 && ref && i < LEFT_MAX; i++) {
        struct pst_record *r = pst_ref_record(s, ref);
        struct pst_recency *rec = pst_record_recency(r);
        uint64_t next = rec->older;

        pst_assert(rec->line < PST_LINES);
        if (stamp_of(lines, r) != walk->left_stamp || r->depth != ++depth || rec->line == PST_LINE_LEFT)
            return;
        pst_rates_left(lines->rates, rec->line, walk->left_stamp, lines->clock, false);
        pst_recency_set_stamp(rec, walk->stamp);
        pst_rates_came(lines->rates, PST_LINE_LEFT, walk->stamp);
        pst_line_move_behind(s, lines, PST_LINE_LEFT, r, newer);
        newer = ref;
        ref = next;
    }
}

static void end_walk(struct pst_shard *s, struct pst_lines *lines)
{
    if (lines->walk.left)
        walk_parts(s, lines);
    lines->walk = (struct pst_walk){.depth = PST_DEPTH_NONE, .number = lines->walk.number};
    pst_assert(!lines->walk.left);
}

/* Touches that the shard counted are told; those of all of them are its clock. */
static void tell_clock(struct pst_lines *lines)
{
    uint64_t own = lines->clock - lines->told;

    pst_assert(lines->clock >= lines->told);
    lines->told = own + atomic_fetch_add_explicit(&lines->learnt->clock, own, memory_order_relaxed);
    lines->clock = lines->told;
}

/* True when the page is not of the walk that the shard was on. Of a walk a shard sees some pages only, so
 * their depths may grow though it is another: then the shard with its first page has given it a number. */
static bool begins_walk(struct pst_lines *lines, const struct pst_record *r)
{
    _Atomic uint32_t *last = &lines->learnt->walk;
    uint32_t number = atomic_load_explicit(last, memory_order_relaxed);
    bool another = lines->walk.depth == PST_DEPTH_NONE || r->depth <= lines->walk.depth;

    pst_assert(r->depth != PST_DEPTH_NONE);
    if (r->depth == 0 || (another && lines->walk.number == number))
        number = atomic_fetch_add_explicit(last, 1, memory_order_relaxed) + 1;
    another = another || lines->walk.number != number;
    lines->walk.number = number;
    return another;
}

/* A page is touched: the walk goes on, or another begins. Return: false when there is no memory to learn. */
static bool chain_walk(struct pst_shard *s, struct pst_lines *lines, const struct pst_record *r)
{
    struct pst_walk *walk = &lines->walk;

    pst_assert(r->depth != PST_DEPTH_NONE);
    if (!lines->rates) {
        tell_clock(lines);
        lines->rates = pst_rates_open(lines->learnt, s->store->shard_count, lines->clock);
    }
    if (!lines->rates)
        return false;
    if (begins_walk(lines, r)) {
        end_walk(s, lines);
        walk->stamp = lines->clock;
        lines->chain = 0;
    }
    walk->depth = r->depth;
    pst_assert(walk->depth != PST_DEPTH_NONE);
    pst_assert(lines->rates);
    return true;
}

/* A clock that is late by a good part of a shard's records has it lose other ages than the others do. */
static bool clock_is_due(const struct pst_lines *lines)
{
    return lines->clock - lines->told >= pst_min(TELL_TOUCHES, 1 + lines_records(lines) / TELL_PART);
}

static void chain_enter(struct pst_shard *s, struct pst_lines *lines, uint32_t line, struct pst_record *r,
                        uint64_t now_ms)
{
    pst_assert(lines->rates);
    pst_assert(line < PST_LINES);
    pst_assert(lines->walk.depth == r->depth);
    pst_recency_set_stamp(pst_record_recency(r), lines->walk.stamp);
    pst_rates_came(lines->rates, line, lines->walk.stamp);
    pst_line_add(s, lines, line, r, true, now_ms);
    lines->clock++;
    if (clock_is_due(lines))
        tell_clock(lines);
    pst_rates_pass(lines->rates, lines->clock, lines_records(lines) * s->store->shard_count);
}

/* A page that was known, with this line and stamp, is touched. Return: the line that it comes to. */
static uint32_t chain_knew(struct pst_lines *lines, uint32_t line, uint64_t stamp)
{
    pst_assert(lines->rates);
    pst_assert(line < PST_LINES);
    pst_assert(stamp <= lines->clock);
    pst_rates_left(lines->rates, line, stamp, lines->clock, true);
    return line == PST_LINE_LEFT ? PST_LINE_SHORT : PST_LINE_LONG;
}

static void chains_added(struct pst_shard *s, struct pst_lines *lines, struct pst_record *r, uint64_t now_ms)
{
    uint32_t line = PST_LINE_SHORT;
    struct pst_ghost ghost;

    if (r->depth == PST_DEPTH_NONE || !chain_walk(s, lines, r)) {
        end_walk(s, lines);
        came_alone(s, lines, r, now_ms);
        return;
    }
    if (lines->walk.left)
        walk_parts(s, lines);
    if (take_ghost(s, lines, r, &ghost)) {
        line = chain_knew(lines, ghost.line, ghost.stamp);
        if (lines->clock - ghost.stamp >
            BACK_AGES * lines_records(lines) * lines_pace(s, lines)) /* to come back so late says little */
            line = PST_LINE_SHORT;
    }
    chain_enter(s, lines, line, r, now_ms);
}

static void chains_used(struct pst_shard *s, struct pst_lines *lines, struct pst_record *r, uint64_t now_ms)
{
    struct pst_recency *rec = pst_record_recency(r);
    uint64_t stamp;
    uint32_t line;

    pst_assert(rec->line < PST_LINES);
    if (pst_likely(r->depth == PST_DEPTH_NONE)) {
        lines->walk.depth = PST_DEPTH_NONE;
        count_use(s, lines, r, now_ms);
        return;
    }
    if (lines->chain == pst_record_ref(s, r) ||
        !chain_walk(s, lines, r)) { /* written anew, it has just come */
        count_use(s, lines, r, now_ms);
        return;
    }
    stamp = stamp_of(lines, r);
    line = chain_knew(lines, rec->line, stamp);
    lines->walk.left = rec->older;
    lines->walk.left_stamp = stamp;
    lines->walk.left_depth = r->depth;
    pst_line_take(s, lines, r);
    chain_enter(s, lines, line, r, now_ms);
}

/* ---- who goes ---- */

/* Not the short line's turn for the sake of what came just now. */
static uint32_t turn_of(const struct pst_lines *lines)
{
    uint64_t short_count = lines->line[PST_LINE_SHORT].count;
    uint64_t percent = lines->rates ? CHAIN_SHORT_PERCENT : SHORT_PERCENT;
    bool many = short_count > 1 && short_count * 100 >= lines_records(lines) * percent;

    pst_assert(lines->line[PST_LINE_SHORT].count <= lines->count);
    return !lines->line[PST_LINE_LONG].count || many ? PST_LINE_SHORT : PST_LINE_LONG;
}

typedef double (*worth_fn)(const struct pst_learnt *learnt, uint32_t line, uint64_t age);

static double line_worth(const struct pst_shard *s, const struct pst_lines *lines, uint32_t line, worth_fn of)
{
    const struct pst_record *r = pst_ref_record(s, lines->line[line].oldest);

    pst_assert(line < PST_LINES);
    pst_assert(lines->line[line].oldest);
    if (line != PST_LINE_LEFT && in_walk(lines, r))
        return 1;
    return of(lines->learnt, line, lines->clock - stamp_of(lines, r));
}

static uint32_t learnt_turn_of(const struct pst_shard *s, const struct pst_lines *lines)
{
    uint32_t line = turn_of(lines);
    double least = lines_records(lines) ? line_worth(s, lines, line, pst_rates_index) : 0;

    pst_assert(lines->rates);
    pst_assert(lines->count > 0);
    if (lines->line[PST_LINE_SHORT].count && lines->line[PST_LINE_LONG].count) {
        uint32_t other = line == PST_LINE_SHORT ? PST_LINE_LONG : PST_LINE_SHORT;
        double others = line_worth(s, lines, other, pst_rates_at_most);

        if (others * CLEARLY < least) {
            line = other;
            least = others;
        }
    }
    if (lines->line[PST_LINE_LEFT].count &&
        (!lines_records(lines) || line_worth(s, lines, PST_LINE_LEFT, pst_rates_index) <= least))
        return PST_LINE_LEFT;
    return line;
}

static struct pst_record *chains_next(struct pst_shard *s, struct pst_lines *lines, uint64_t now_ms)
{
    (void)now_ms;
    for (int turn = 1; lines->count; turn++) {
        uint32_t line = lines->rates ? learnt_turn_of(s, lines) : turn_of(lines);
        struct pst_record *r = pst_ref_record(s, lines->line[line].oldest);
        struct pst_recency *rec = pst_record_recency(r);

        pst_assert(lines->line[line].oldest);
        pst_assert(rec->line == line);
        pst_assert(!rec->older);
        if (!rec->uses || turn == TURNS_MAX)
            return r;
        rec->uses = rec->line == PST_LINE_LONG ? rec->uses - 1 : 0;
        pst_line_move(s, lines, PST_LINE_LONG, r);
    }
    return NULL;
}

static void ghost_remember(struct pst_shard *s, const struct pst_record *r)
{
    const struct pst_recency *rec = pst_record_recency(r);
    struct pst_lines *lines = &s->lines[rec->group];
    struct pst_ghost ghost = {.line = rec->line, .stamp = stamp_of(lines, r) / lines_pace(s, lines)};

    pst_assert(rec->group < s->store->group_count);
    pst_assert(rec->line < PST_LINES);
    pst_ghosts_add(&lines->ghosts, hash_of(s, r), ghost, lines->clock / lines_pace(s, lines));
}

static void s3fifo_evicted(struct pst_shard *s, const struct pst_record *r)
{
    pst_assert(pst_record_recency(r)->line < PST_LINES);
    if (pst_record_recency(r)->line == PST_LINE_SHORT)
        ghost_remember(s, r);
}

static void chains_evicted(struct pst_shard *s, const struct pst_record *r)
{
    pst_assert(pst_record_recency(r)->line < PST_LINES);
    if (pst_record_recency(r)->line != PST_LINE_LEFT)
        ghost_remember(s, r);
}

const struct pst_policy pst_policy_s3fifo = {
    .name = "s3fifo",
    .added = came_alone,
    .used = count_use,
    .next = chains_next,
    .evicted = s3fifo_evicted,
};

const struct pst_policy pst_policy_chains = {
    .name = "chains",
    .added = chains_added,
    .used = chains_used,
    .next = chains_next,
    .evicted = chains_evicted,
};

/*
 * s3fifo.c: the policy `s3fifo`: what comes for the first time stands in a short line and goes soon, unless
 * it is used there; what was used, or comes back after it went, stands in the long one. A use is only
 * counted, so a read changes no neighbour: records get their next turn when they arrive at a line's cold end.
 * Chains stand with their deepest page at the cold end, as in `prefix`.
 *
 * After Yang et al., "FIFO queues are all you need for cache eviction" (SOSP 2023).
 */
#include "store/shard_priv.h"

#include "base/hash.h"

enum {
    SHORT,
    LONG,
    SHORT_PERCENT = 20, /* of the records; measured in docs/performance.md */
    USES_MAX = 3,
    TURNS_MAX = 4096, /* of records at one eviction, for which their uses have paid; rarely so many follow
                         each other */
};

static uint64_t records(const struct pst_lines *lines)
{
    return lines->line[SHORT].count + lines->line[LONG].count;
}

static uint64_t hash_of(const struct pst_shard *s, const struct pst_record *r)
{
    return pst_shard_lookup(s, pst_record_key(r)).hash;
}

static void added(struct pst_shard *s, struct pst_lines *lines, struct pst_record *r, uint64_t now_ms)
{
    bool back;

    pst_ghosts_fit(&lines->ghosts, records(lines) + 1);
    back = pst_ghosts_take(&lines->ghosts, hash_of(s, r), records(lines) + 1);
    pst_line_add(s, lines, back ? LONG : SHORT, r, true, now_ms);
}

static void used(struct pst_shard *s, struct pst_lines *lines, struct pst_record *r, uint64_t now_ms)
{
    struct pst_recency *rec = pst_record_recency(r);

    (void)s;
    lines->chain = 0; /* what comes next goes on with what was used, not with what came last */
    pst_recency_touched(rec, now_ms);
    if (rec->uses < USES_MAX)
        rec->uses++;
}

/* The line whose turn it is to lose one: not the short one for the sake of what came just now. */
static const struct pst_line *turn_of(const struct pst_lines *lines)
{
    uint64_t newcomers = lines->line[SHORT].count;

    if (!lines->line[LONG].count || (newcomers > 1 && newcomers * 100 >= records(lines) * SHORT_PERCENT))
        return &lines->line[SHORT];
    return &lines->line[LONG];
}

static struct pst_record *next(struct pst_shard *s, struct pst_lines *lines, uint64_t now_ms)
{
    (void)now_ms;
    for (int turn = 1; records(lines); turn++) {
        struct pst_record *r = pst_ref_record(s, turn_of(lines)->oldest);
        struct pst_recency *rec = pst_record_recency(r);

        if (!rec->uses || turn == TURNS_MAX)
            return r;
        rec->uses = rec->line == SHORT ? 0 : rec->uses - 1;
        pst_line_move(s, lines, LONG, r);
    }
    return NULL;
}

static void evicted(struct pst_shard *s, const struct pst_record *r)
{
    const struct pst_recency *rec = pst_record_recency(r);

    if (rec->line == SHORT)
        pst_ghosts_add(&s->lines[rec->group].ghosts, hash_of(s, r));
}

const struct pst_policy pst_policy_s3fifo = {
    .name = "s3fifo",
    .added = added,
    .used = used,
    .next = next,
    .evicted = evicted,
};

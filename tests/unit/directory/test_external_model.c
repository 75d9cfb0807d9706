/* SPDX-License-Identifier: Apache-2.0 */
/* test_external_model.c: random reports, revokes, hits and questions, against a naive model. */
#include "lib/external_rig.h"

/* ---- against a naive model ---- */

enum { BLOCKS = 60, MODEL_ENTRIES = 150, MODEL_HITS = 20, MODEL_STEPS = 4000, MODEL_SEEDS = 50 };

struct model {
    struct pst_external *x;
    uint64_t seed, random, step, now_ns;
    bool held[NODES][PST_EXTERNAL_TIERS][BLOCKS];
    uint32_t entries;
    uint64_t refused;
    struct {
        uint32_t count;
        uint64_t end_ns, used; /* in which order the last hits came */
    } hits[BLOCKS];
    uint64_t uses, dropped;
    uint32_t numbers[PST_EXTERNAL_QUERY_MAX]; /* the blocks of the present batch */
    struct pst_hash128 hashes[PST_EXTERNAL_QUERY_MAX];
    uint32_t count;
};

#define model_expect(m, condition)                                                                           \
    do {                                                                                                     \
        if (!(condition))                                                                                    \
            fail_msg("seed %lu, step %lu: not %s", (unsigned long)(m)->seed, (unsigned long)(m)->step,       \
                     #condition);                                                                            \
    } while (0)

static uint32_t model_random(struct model *m, uint32_t below)
{
    m->random += 0x9e3779b97f4a7c15;
    return (uint32_t)(pst_hash64(&m->random, sizeof(m->random), m->seed) % below);
}

/* Some blocks, with repeats. */
static void model_batch(struct model *m)
{
    m->count = model_random(m, 8) ? model_random(m, 12) : model_random(m, PST_EXTERNAL_QUERY_MAX + 1);
    for (uint32_t i = 0; i < m->count; i++) {
        m->numbers[i] = model_random(m, BLOCKS);
        m->hashes[i] = block(m->numbers[i]);
    }
}

static void model_report(struct model *m, uint32_t node, uint32_t tier)
{
    uint32_t refused = pst_external_report(m->x, node, tier, m->hashes, m->count), expected = 0;

    for (uint32_t i = 0; i < m->count; i++) {
        bool *held = &m->held[node][tier < PST_EXTERNAL_TIERS ? tier : UNKNOWN][m->numbers[i]];

        if (*held)
            continue;
        *held = m->entries < MODEL_ENTRIES;
        m->entries += *held;
        expected += !*held;
    }
    m->refused += expected;
    model_expect(m, refused == expected);
}

static void model_revoke(struct model *m, uint32_t node, uint32_t tier)
{
    uint32_t removed = pst_external_revoke(m->x, node, tier, m->hashes, m->count), expected = 0;

    for (uint32_t i = 0; i < m->count; i++) {
        bool *held = &m->held[node][tier < PST_EXTERNAL_TIERS ? tier : UNKNOWN][m->numbers[i]];

        expected += *held;
        *held = false;
    }
    m->entries -= expected;
    model_expect(m, removed == expected);
}

static void model_revoke_tiers(struct model *m, uint32_t node, uint32_t from, uint32_t to)
{
    uint32_t expected = 0, removed = from == to ? pst_external_revoke_tier(m->x, node, from, UINT32_MAX)
                                                : pst_external_revoke_node(m->x, node, UINT32_MAX);

    for (uint32_t tier = from; tier <= to; tier++)
        for (uint32_t number = 0; number < BLOCKS; number++) {
            expected += m->held[node][tier][number];
            m->held[node][tier][number] = false;
        }
    m->entries -= expected;
    model_expect(m, removed == expected);
}

static void model_hit(struct model *m, uint32_t number)
{
    uint32_t live = 0, oldest = BLOCKS;

    for (uint32_t i = 0; i < BLOCKS; i++) {
        live += m->hits[i].used > 0;
        if (m->hits[i].used > 0 && (oldest == BLOCKS || m->hits[i].used < m->hits[oldest].used))
            oldest = i;
    }
    if (m->hits[number].used == 0 && live == MODEL_HITS) {
        m->dropped += m->hits[oldest].end_ns > m->now_ns;
        m->hits[oldest].used = 0;
    }
    if (m->hits[number].used == 0 || m->hits[number].end_ns <= m->now_ns)
        m->hits[number].count = 0;
    m->hits[number].count++;
    m->hits[number].end_ns = m->now_ns + TTL_NS;
    m->hits[number].used = ++m->uses;
}

/* What @node should show of the batch; its @hash_count is also 0 when it is to have no row. */
static struct pst_external_match model_row(const struct model *m, uint32_t node)
{
    struct pst_external_match row = {.node = node};

    for (uint32_t i = 0; i < m->count; i++) {
        uint32_t first = 0, shown = 0;

        while (m->numbers[first] != m->numbers[i])
            first++;
        if (first < i)
            continue;
        for (uint32_t tier = PST_EXTERNAL_TIERS; tier-- > 0;) {
            if (!m->held[node][tier][m->numbers[i]] || (tier == UNKNOWN && shown > 0))
                continue;
            row.tiers[tier][i / 64] |= (uint64_t)1 << i % 64;
            shown++;
        }
        row.hash_count += shown > 0;
    }
    return row;
}

static void model_match(struct model *m, bool is_hit)
{
    struct pst_external_match rows[NODES];
    uint32_t count = pst_external_match(m->x, m->hashes, m->count, m->now_ns, is_hit, rows, NODES);
    uint32_t expected = 0, first;

    for (uint32_t node = 0; node < NODES; node++) {
        struct pst_external_match row = model_row(m, node);
        uint32_t same = 0;

        for (uint32_t i = 0; i < count; i++)
            same += memcmp(&rows[i], &row, sizeof(row)) == 0;
        model_expect(m, same == (row.hash_count > 0));
        expected += row.hash_count > 0;
    }
    model_expect(m, count == expected);
    for (uint32_t i = 0; is_hit && i < m->count; i++) {
        bool held = false;

        for (first = 0; m->numbers[first] != m->numbers[i];)
            first++;
        for (uint32_t owner = 0; owner < NODES * PST_EXTERNAL_TIERS; owner++)
            held |= m->held[owner / PST_EXTERNAL_TIERS][owner % PST_EXTERNAL_TIERS][m->numbers[i]];
        if (first == i && held)
            model_hit(m, m->numbers[i]);
    }
}

static void model_check(struct model *m)
{
    struct pst_external_stats stats = pst_external_stats(m->x);

    model_expect(m, stats.entries == m->entries);
    model_expect(m, stats.added - stats.removed == m->entries);
    model_expect(m, stats.refused == m->refused);
    model_expect(m, stats.hits_dropped == m->dropped);
    for (uint32_t number = 0; number < BLOCKS; number++) {
        bool live = m->hits[number].used > 0 && m->hits[number].end_ns > m->now_ns;

        model_expect(m, hits_of(m->x, number, m->now_ns) == (live ? m->hits[number].count : 0));
    }
    for (uint32_t owner = 0; owner < NODES * PST_EXTERNAL_TIERS; owner++) {
        uint32_t node = owner / PST_EXTERNAL_TIERS, tier = owner % PST_EXTERNAL_TIERS, held = 0;

        for (uint32_t number = 0; number < BLOCKS; number++)
            held += m->held[node][tier][number];
        model_expect(m, pst_external_count(m->x, node, tier) == held);
    }
}

static void model_step(struct model *m)
{
    uint32_t node = model_random(m, NODES), tier = model_random(m, PST_EXTERNAL_TIERS + 1);
    uint32_t dice = model_random(m, 100), known = tier % PST_EXTERNAL_TIERS;

    m->now_ns += model_random(m, 20) ? model_random(m, 5) : model_random(m, 2 * TTL_NS);
    model_batch(m);
    if (dice < 40)
        model_report(m, node, tier);
    else if (dice < 60)
        model_revoke(m, node, tier);
    else if (dice < 64)
        model_revoke_tiers(m, node, known, known);
    else if (dice < 66)
        model_revoke_tiers(m, node, 0, PST_EXTERNAL_TIERS - 1);
    else
        model_match(m, dice < 85);
    model_check(m);
}

/* TEST_SEED=N runs one seed, as a failure names it. */
static void agrees_with_a_naive_model(void **state)
{
    const char *only = getenv("TEST_SEED");
    uint64_t refused = 0, dropped = 0, from = only ? strtoul(only, NULL, 10) : 1;

    (void)state;
    for (uint64_t seed = from; seed < (only ? from + 1 : MODEL_SEEDS + 1); seed++) {
        struct model m = {.seed = seed, .x = open_external(NODES, MODEL_ENTRIES, MODEL_HITS)};

        for (m.step = 0; m.step < MODEL_STEPS / slowness(); m.step++)
            model_step(&m);
        refused += m.refused;
        dropped += m.dropped;
        pst_external_close(m.x);
    }
    assert_true(refused > 0 && dropped > 0); /* both bounds were met */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_a_naive_model),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

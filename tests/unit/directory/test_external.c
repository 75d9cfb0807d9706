/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/cm.h"

/* The table itself is compiled in here, so that its memory can be counted, and refused. */
#include "base/base.h"
#include "base/hash.h"

static int64_t takes_left = INT64_MAX; /* allocations until they fail */
static uint64_t taken_bytes;

static void *counted_calloc(size_t count, size_t bytes)
{
    taken_bytes += count * bytes;
    return takes_left-- > 0 ? calloc(count, bytes) : NULL;
}

#define calloc counted_calloc
#include "directory/external.c"
#include "directory/external_hits.c"
#undef calloc

#include "lib/external_rig.h"

static struct pst_external *open_with(uint32_t nodes_max, uint32_t entries_max, uint32_t hits_max)
{
    takes_left = INT64_MAX;
    taken_bytes = 0;
    return open_external(nodes_max, entries_max, hits_max);
}

static void report(struct pst_external *x, uint32_t node, uint32_t tier, uint64_t number)
{
    assert_int_equal(pst_external_report(x, node, tier, (struct pst_hash128[]){block(number)}, 1), 0);
}

static uint32_t take_back(struct pst_external *x, uint32_t node, uint32_t tier, uint64_t number)
{
    return pst_external_revoke(x, node, tier, (struct pst_hash128[]){block(number)}, 1);
}

/* The tiers on which @node shows block @number, one bit each. */
static uint32_t tiers_of(struct pst_external *x, uint32_t node, uint64_t number)
{
    struct pst_external_match rows[NODES];
    uint32_t tiers = 0,
             count = pst_external_match(x, (struct pst_hash128[]){block(number)}, 1, 0, false, rows, NODES);

    assert_in_range(count, 0, NODES);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t tier = 0; tier < PST_EXTERNAL_TIERS; tier++)
            if (rows[i].node == node)
                tiers |= (uint32_t)(rows[i].tiers[tier][0] & 1) << tier;
    return tiers;
}

static void hit(struct pst_external *x, uint64_t number, uint64_t now_ns)
{
    struct pst_external_match row;

    pst_external_match(x, (struct pst_hash128[]){block(number)}, 1, now_ns, true, &row, 1);
}

/* ---- what is held ---- */

static void a_report_adds_a_tier_and_a_revoke_takes_one(void **state)
{
    struct pst_external *x = open_with(NODES, 100, 10);

    (void)state;
    report(x, 1, HBM, 5);
    report(x, 1, SSD, 5);
    report(x, 2, DRAM, 5);
    assert_int_equal(tiers_of(x, 1, 5), 1 << HBM | 1 << SSD);
    assert_int_equal(tiers_of(x, 2, 5), 1 << DRAM);
    assert_int_equal(tiers_of(x, 3, 5), 0);
    assert_int_equal(take_back(x, 1, HBM, 5), 1);
    assert_int_equal(take_back(x, 1, HBM, 5), 0);
    assert_int_equal(take_back(x, 2, HBM, 5), 0);
    assert_int_equal(tiers_of(x, 1, 5), 1 << SSD);
    assert_int_equal(tiers_of(x, 2, 5), 1 << DRAM);
    pst_external_close(x);
}

static void a_report_that_comes_twice_is_one(void **state)
{
    struct pst_external *x = open_with(NODES, 2, 10);
    struct pst_hash128 twice[] = {block(5), block(5)};

    (void)state;
    assert_int_equal(pst_external_report(x, 1, HBM, twice, 2), 0);
    report(x, 1, HBM, 5);
    assert_int_equal(pst_external_count(x, 1, HBM), 1);
    assert_int_equal(pst_external_stats(x).added, 1);
    assert_int_equal(pst_external_revoke(x, 1, HBM, twice, 2), 1);
    assert_int_equal(tiers_of(x, 1, 5), 0);
    pst_external_close(x);
}

static void an_unknown_tier_never_shadows_a_known_one(void **state)
{
    struct pst_external *x = open_with(NODES, 100, 10);

    (void)state;
    report(x, 1, UNKNOWN, 5);
    assert_int_equal(tiers_of(x, 1, 5), 1 << UNKNOWN);
    report(x, 1, DRAM, 5);
    report(x, 1, 9, 5); /* a tier of somebody newer */
    assert_int_equal(pst_external_count(x, 1, UNKNOWN), 1);
    report(x, 2, UNKNOWN, 5);
    assert_int_equal(tiers_of(x, 1, 5), 1 << DRAM);
    assert_int_equal(tiers_of(x, 2, 5), 1 << UNKNOWN);
    assert_int_equal(take_back(x, 1, DRAM, 5), 1);
    assert_int_equal(tiers_of(x, 1, 5), 1 << UNKNOWN);
    assert_int_equal(take_back(x, 1, UINT32_MAX, 5), 1);
    assert_int_equal(tiers_of(x, 1, 5), 0);
    pst_external_close(x);
}

static void all_of_a_tier_or_a_node_goes_at_once(void **state)
{
    struct pst_external *x = open_with(NODES, 1000, 10);

    (void)state;
    for (uint64_t number = 0; number < 100; number++) {
        report(x, 1, HBM, number);
        report(x, 1, SSD, number);
        report(x, 2, HBM, number);
    }
    assert_int_equal(pst_external_revoke_tier(x, 1, HBM, 70), 70);
    assert_int_equal(pst_external_count(x, 1, HBM), 30);
    assert_int_equal(pst_external_revoke_tier(x, 1, HBM, UINT32_MAX), 30);
    assert_int_equal(pst_external_revoke_tier(x, 1, HBM, UINT32_MAX), 0);
    assert_int_equal(tiers_of(x, 1, 99), 1 << SSD);
    assert_int_equal(tiers_of(x, 2, 99), 1 << HBM);
    report(x, 1, UNKNOWN, 7);
    assert_int_equal(pst_external_revoke_node(x, 1, 60), 60); /* 1 of UNKNOWN, 59 of SSD */
    assert_int_equal(pst_external_count(x, 1, SSD), 41);
    assert_int_equal(pst_external_revoke_node(x, 1, UINT32_MAX), 41);
    assert_int_equal(tiers_of(x, 1, 7), 0);
    assert_int_equal(tiers_of(x, 2, 7), 1 << HBM);
    assert_int_equal(pst_external_stats(x).entries, 100);
    pst_external_close(x);
}

static void a_full_table_refuses_and_counts(void **state)
{
    struct pst_external *x = open_with(NODES, 10, 10);
    struct pst_hash128 hashes[14];

    (void)state;
    for (uint64_t i = 0; i < 14; i++)
        hashes[i] = block(i);
    assert_int_equal(pst_external_report(x, 0, HBM, hashes, 8), 0);
    assert_int_equal(pst_external_report(x, 0, HBM, hashes, 14), 4);
    assert_int_equal(pst_external_report(x, 1, HBM, hashes, 1), 1);
    assert_int_equal(pst_external_stats(x).refused, 5);
    assert_int_equal(pst_external_stats(x).entries, 10);
    assert_int_equal(tiers_of(x, 0, 9), 1 << HBM);
    assert_int_equal(tiers_of(x, 0, 10), 0);
    assert_int_equal(take_back(x, 0, HBM, 3), 1);
    report(x, 1, DRAM, 13);
    assert_int_equal(tiers_of(x, 1, 13), 1 << DRAM);
    pst_external_close(x);
}

/* ---- questions ---- */

static void a_match_names_positions_and_counts_distinct_hashes(void **state)
{
    struct pst_external *x = open_with(NODES, 1000, 10);
    struct pst_external_match rows[NODES];
    struct pst_hash128 query[PST_EXTERNAL_QUERY_MAX];

    (void)state;
    for (uint32_t i = 0; i < PST_EXTERNAL_QUERY_MAX; i++)
        query[i] = block(i);
    query[200] = query[70]; /* answered where it comes first */
    report(x, 2, HBM, 0);
    report(x, 2, DRAM, 0);
    report(x, 2, HBM, 70);
    report(x, 2, SSD, 255);
    report(x, 2, HBM, 256); /* nobody asks */
    report(x, 3, UNKNOWN, 200);
    assert_int_equal(pst_external_match(x, query, PST_EXTERNAL_QUERY_MAX, 0, false, rows, NODES), 1);
    assert_int_equal(rows[0].node, 2);
    assert_int_equal(rows[0].hash_count, 3);
    assert_true(rows[0].tiers[HBM][0] == 1 && rows[0].tiers[DRAM][0] == 1);
    assert_true(rows[0].tiers[HBM][1] == 1 << 6 && rows[0].tiers[HBM][3] == 0);
    assert_true(rows[0].tiers[SSD][3] == (uint64_t)1 << 63);
    assert_int_equal(pst_external_match(x, query, 0, 0, false, rows, NODES), 0);
    pst_external_close(x);
}

/* The rows go to those who have the beginning; the count says that there are more. */
static void more_nodes_than_rows_are_counted(void **state)
{
    struct pst_external *x = open_with(NODES, 100, 10);
    struct pst_external_match rows[3] = {[2].node = 42};
    struct pst_hash128 query[] = {block(0), block(1), block(2)};

    (void)state;
    report(x, 0, HBM, 2);
    report(x, 1, HBM, 1);
    report(x, 2, HBM, 0);
    report(x, 3, HBM, 2);
    assert_int_equal(pst_external_match(x, query, 3, 0, true, rows, 2), 4);
    assert_int_equal(rows[0].node, 2);
    assert_int_equal(rows[1].node, 1);
    assert_int_equal(rows[2].node, 42);
    assert_int_equal(hits_of(x, 2, 0), 1);
    assert_int_equal(pst_external_match(x, query, 3, 0, false, NULL, 0), 4);
    pst_external_close(x);
}

/* ---- hits ---- */

static void hits_count_what_users_ask_for(void **state)
{
    struct pst_external *x = open_with(NODES, 100, 10);
    struct pst_external_match rows[NODES];
    struct pst_hash128 query[] = {block(0), block(1), block(0)};

    (void)state;
    report(x, 0, HBM, 0);
    report(x, 1, DRAM, 0); /* several holders are one hit, and so is a hash asked for twice */
    pst_external_match(x, query, 3, 10, false, rows, NODES);
    assert_int_equal(hits_of(x, 0, 10), 0);
    pst_external_match(x, query, 3, 10, true, rows, NODES);
    pst_external_match(x, query, 3, 10, true, rows, NODES);
    assert_int_equal(hits_of(x, 0, 10), 2);
    assert_int_equal(hits_of(x, 1, 10), 0); /* nobody has it */
    assert_int_equal(pst_external_stats(x).hits, 2);
    pst_external_revoke_node(x, 0, UINT32_MAX);
    pst_external_revoke_node(x, 1, UINT32_MAX);
    assert_int_equal(hits_of(x, 0, 10), 2);
    pst_external_close(x);
}

static void hits_end_so_long_after_the_last_one(void **state)
{
    struct pst_external *x = open_with(NODES, 100, 10);

    (void)state;
    report(x, 0, HBM, 0);
    hit(x, 0, 0);
    hit(x, 0, TTL_NS - 1);
    assert_int_equal(hits_of(x, 0, 2 * TTL_NS - 2), 2);
    assert_int_equal(hits_of(x, 0, 2 * TTL_NS - 1), 0);
    hit(x, 0, 2 * TTL_NS - 1);
    assert_int_equal(hits_of(x, 0, 2 * TTL_NS), 1);
    pst_external_close(x);
}

static void counts_beyond_the_bound_give_way_by_age(void **state)
{
    struct pst_external *x = open_with(NODES, 100, 3);

    (void)state;
    for (uint64_t number = 0; number < 5; number++)
        report(x, 0, HBM, number);
    for (uint64_t number = 0; number < 3; number++)
        hit(x, number, number);
    hit(x, 0, 3);
    hit(x, 3, 4);
    assert_int_equal(hits_of(x, 0, 4), 2);
    assert_int_equal(hits_of(x, 1, 4), 0);
    assert_int_equal(hits_of(x, 2, 4), 1);
    assert_int_equal(hits_of(x, 3, 4), 1);
    assert_int_equal(pst_external_stats(x).hits_dropped, 1);
    hit(x, 4, TTL_NS + 2); /* 2 has ended and is not missed */
    assert_int_equal(pst_external_stats(x).hits_dropped, 1);
    assert_int_equal(hits_of(x, 0, TTL_NS + 2), 2);
    pst_external_close(x);
}

/* ---- cost ---- */

/* Steps to revoke 1,000 hashes of node 0 at once, beside @others of other nodes. */
static uint64_t steps_beside(uint32_t others)
{
    struct pst_external *x = open_with(NODES, 1000000, 10);
    uint64_t steps;

    for (uint64_t number = 0; number < 1000; number++)
        report(x, 0, DRAM, number);
    for (uint64_t number = 0; number < others; number++)
        report(x, 1 + (uint32_t)number % 3, (uint32_t)number % PST_EXTERNAL_TIERS, number);
    steps = pst_external_stats(x).steps;
    assert_int_equal(pst_external_revoke_tier(x, 0, DRAM, UINT32_MAX), 1000);
    steps = pst_external_stats(x).steps - steps;
    pst_external_close(x);
    return steps;
}

static void revoking_at_once_costs_what_it_removes(void **state)
{
    (void)state;
    assert_in_range(steps_beside(0), 1000, 1100);
    assert_in_range(steps_beside(999000), 1000, 3000); /* chains of one entry or two */
}

static void a_popular_hash_costs_its_holders_nothing(void **state)
{
    enum { HOLDERS = 10000 };
    struct pst_external *x = open_with(HOLDERS, HOLDERS, 10);
    uint64_t steps;

    (void)state;
    for (uint32_t node = 0; node < HOLDERS; node++)
        report(x, node, HBM, 5);
    steps = pst_external_stats(x).steps;
    assert_in_range(steps, 0, 2 * HOLDERS);
    for (uint32_t node = 0; node < HOLDERS; node++)
        assert_int_equal(
            node % 2 ? take_back(x, node, HBM, 5) : pst_external_revoke_node(x, node, UINT32_MAX), 1);
    assert_in_range(pst_external_stats(x).steps - steps, HOLDERS, 3 * HOLDERS);
    pst_external_close(x);
}

static void a_million_entries_cost_48_bytes_each(void **state)
{
    enum { ENTRIES = 1000000 };
    struct pst_external *x = open_with(1, ENTRIES, 1);

    (void)state;
    for (uint64_t number = 0; number < ENTRIES; number++)
        report(x, 0, DRAM, number);
    assert_int_equal(pst_external_report(x, 0, DRAM, (struct pst_hash128[]){block(ENTRIES)}, 1), 1);
    assert_in_range(taken_bytes / ENTRIES, 1, 48);
    for (uint64_t number = 0; number < ENTRIES; number += 997)
        assert_int_equal(tiers_of(x, 0, number), 1 << DRAM);
    pst_external_close(x);
}

static void opening_wants_sense_and_memory(void **state)
{
    static const struct pst_external_settings wrong[] = {
        {0, 10, 10, 1},        {10, 0, 10, 1},          {10, 10, 0, 1},
        {1u << 30, 10, 10, 1}, {10, UINT32_MAX, 10, 1}, {10, 10, UINT32_MAX, 1},
    };
    struct pst_external_settings settings = {10, 10, 10, 1};
    struct pst_external *x = NULL;
    int64_t takes = 0;

    (void)state;
    for (size_t i = 0; i < pst_count_of(wrong); i++)
        assert_int_equal(pst_external_open(&wrong[i], &x), -EINVAL);
    for (takes_left = 0; pst_external_open(&settings, &x) == -ENOMEM; takes_left = ++takes)
        assert_null(x);
    assert_int_equal(takes, 8);
    takes_left = INT64_MAX;
    assert_null(pst_external_close(x));
    assert_null(pst_external_close(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_report_adds_a_tier_and_a_revoke_takes_one),
        cmocka_unit_test(a_report_that_comes_twice_is_one),
        cmocka_unit_test(an_unknown_tier_never_shadows_a_known_one),
        cmocka_unit_test(all_of_a_tier_or_a_node_goes_at_once),
        cmocka_unit_test(a_full_table_refuses_and_counts),
        cmocka_unit_test(a_match_names_positions_and_counts_distinct_hashes),
        cmocka_unit_test(more_nodes_than_rows_are_counted),
        cmocka_unit_test(hits_count_what_users_ask_for),
        cmocka_unit_test(hits_end_so_long_after_the_last_one),
        cmocka_unit_test(counts_beyond_the_bound_give_way_by_age),
        cmocka_unit_test(revoking_at_once_costs_what_it_removes),
        cmocka_unit_test(a_popular_hash_costs_its_holders_nothing),
        cmocka_unit_test(a_million_entries_cost_48_bytes_each),
        cmocka_unit_test(opening_wants_sense_and_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

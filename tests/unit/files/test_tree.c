/* SPDX-License-Identifier: Apache-2.0 */
/* test_tree.c: who fetches from whom in a broadcast of files. */
#include "lib/cm.h"

#include "files/group/tree.h"

#include <stdio.h>

#define KEY pst_bytes_of("ns/key")
static const struct pst_tree_pod source = {"10.0.0.1", "source"};

static char *ip_of(uint32_t rank)
{
    static char texts[4][24];
    static unsigned at;
    char *text = texts[at++ % 4];

    snprintf(text, sizeof(texts[0]), "10.1.%u.%u", rank / 256, rank % 256);
    return text;
}

static struct pst_tree_place join_with(struct pst_trees *trees, uint32_t rank, uint32_t fanout)
{
    const struct pst_tree_pod pod = {ip_of(rank), "pod"};
    struct pst_tree_place place;

    assert_int_equal(pst_tree_join(trees, "g", KEY, &pod, fanout, &source, "path", 0, &place), 0);
    return place;
}

static void ranks_and_parents(void **state)
{
    struct pst_trees *trees = pst_trees_open();

    (void)state;
    for (uint32_t rank = 1; rank <= 40; rank++) {
        struct pst_tree_place place = join_with(trees, rank, 3);
        uint32_t parent = (rank - 1) / 3;

        assert_int_equal(place.rank, rank);
        assert_int_equal(place.members, rank);
        assert_int_equal(place.parent_rank, parent);
        assert_string_equal(place.parent.ip, parent ? ip_of(parent) : "10.0.0.1");
        assert_string_equal(place.parent.pod_name, parent ? "pod" : "source");
        assert_string_equal(place.source.ip, "10.0.0.1");
        assert_string_equal(place.source_path, "path");
    }
    assert_int_equal(join_with(trees, 17, 0).rank, 17); /* again */
    assert_int_equal(join_with(trees, 17, 0).members, 40);
    pst_trees_close(trees);
}

static void trees_are_apart(void **state)
{
    struct pst_trees *trees = pst_trees_open();
    const struct pst_tree_pod pod = {"10.1.0.1", NULL}, moved = {"10.0.0.2", NULL};
    struct pst_tree_place place;

    (void)state;
    assert_int_equal(pst_tree_join(trees, "g", KEY, &pod, 0, NULL, NULL, 0, &place), -ENOENT);
    join_with(trees, 1, 2);
    join_with(trees, 2, 2);
    assert_int_equal(pst_tree_join(trees, "g", pst_bytes_of("ns/k2"), &pod, 0, &source, NULL, 0, &place), 0);
    assert_int_equal(place.rank, 1);
    assert_string_equal(place.source_path, "");
    assert_int_equal(pst_tree_join(trees, "h", KEY, &pod, 0, &source, "", 0, &place), 0);
    assert_int_equal(place.members, 1);
    /* A source that has changed is told from then on, and one that has gone is the last that was known. */
    assert_int_equal(pst_tree_join(trees, "g", KEY, &pod, 0, &moved, "new", 0, &place), 0);
    assert_string_equal(place.parent.ip, "10.0.0.2");
    assert_int_equal(pst_tree_join(trees, "g", KEY, &pod, 0, NULL, NULL, 0, &place), 0);
    assert_string_equal(place.source_path, "new");
    pst_trees_close(trees);
}

static int report(struct pst_trees *trees, uint32_t reporter, uint32_t lost, struct pst_tree_place *place)
{
    return pst_tree_unreachable(trees, "g", KEY, ip_of(reporter), ip_of(lost), 0, place);
}

static void the_lost_are_stepped_over(void **state)
{
    struct pst_trees *trees = pst_trees_open();
    struct pst_tree_place place;

    (void)state;
    for (uint32_t rank = 1; rank <= 13; rank++) /* 13 fetches from 4, which does from 1 */
        join_with(trees, rank, 3);
    assert_int_equal(report(trees, 13, 4, &place), 0);
    assert_int_equal(place.parent_rank, 1);
    assert_int_equal(report(trees, 13, 4, &place), 0); /* the same again */
    assert_int_equal(place.parent_rank, 1);
    assert_int_equal(join_with(trees, 14, 3).parent_rank, 4); /* of one report */
    assert_int_equal(report(trees, 13, 1, &place), 0);
    assert_int_equal(place.parent_rank, 0);
    assert_int_equal(report(trees, 7, 9, &place), -EINVAL);
    assert_int_equal(report(trees, 99, 2, &place), -ENOENT);
    assert_int_equal(pst_tree_unreachable(trees, "g", KEY, ip_of(2), "10.0.0.1", 0, &place), -EHOSTUNREACH);
    pst_trees_close(trees);
}

static void two_reports_are_believed(void **state)
{
    struct pst_trees *trees = pst_trees_open();
    struct pst_tree_place place;

    (void)state;
    for (uint32_t rank = 1; rank <= 6; rank++) /* 3 and 4 fetch from 1, 5 and 6 from 2 */
        join_with(trees, rank, 2);
    assert_int_equal(report(trees, 3, 1, &place), 0);
    assert_int_equal(place.parent_rank, 0);
    assert_int_equal(join_with(trees, 7, 2).parent_rank, 3);
    assert_int_equal(join_with(trees, 8, 2).parent_rank, 3);
    assert_int_equal(report(trees, 7, 3, &place), 0); /* to 1, which one alone has reported */
    assert_int_equal(place.parent_rank, 1);
    assert_int_equal(report(trees, 4, 1, &place), 0);
    assert_int_equal(report(trees, 8, 3, &place), 0); /* both are lost now */
    assert_int_equal(place.parent_rank, 0);
    for (uint32_t rank = 9; rank <= 20; rank++) {
        uint32_t parent = join_with(trees, rank, 2).parent_rank;

        assert_int_not_equal(parent, 1);
        assert_int_not_equal(parent, 3);
    }
    pst_trees_close(trees);
}

static void count_tree(void *arg, const struct pst_tree_info *info)
{
    uint32_t *counts = arg;

    counts[0]++;
    counts[1] += info->members;
    counts[2] += info->lost;
}

static void bounds(void **state)
{
    struct pst_trees *trees = pst_trees_open();
    static char text[PST_TREE_GROUP_BYTES_MAX + 2];
    const struct pst_tree_pod pod = {"10.1.0.1", NULL}, none = {"", NULL};
    uint32_t counts[3] = {0};
    struct pst_tree_place place;

    (void)state;
    memset(text, 'g', sizeof(text) - 1);
    assert_int_equal(pst_tree_join(trees, text, KEY, &pod, 0, &source, "", 0, &place), -EINVAL);
    assert_int_equal(pst_tree_join(trees, "", KEY, &pod, 0, &source, "", 0, &place), -EINVAL);
    assert_int_equal(pst_tree_join(trees, "g", KEY, &none, 0, &source, "", 0, &place), -EINVAL);
    assert_int_equal(pst_tree_join(trees, "g", KEY, &pod, 1001, &source, "", 0, &place), -EINVAL);
    for (uint32_t rank = 1; rank <= PST_TREE_MEMBERS_MAX; rank++)
        assert_int_equal(join_with(trees, rank, 50).parent_rank, (rank - 1) / 50);
    assert_int_equal(pst_tree_join(trees, "g", KEY, &source, 0, &source, "", 0, &place), -ENOSPC);
    for (int i = 1; i < PST_TREES_MAX; i++) {
        snprintf(text, sizeof(text), "%d", i);
        assert_int_equal(pst_tree_join(trees, text, KEY, &pod, 0, &source, "", 5, &place), 0);
    }
    assert_int_equal(pst_tree_join(trees, "more", KEY, &pod, 0, &source, "", 0, &place), -ENOSPC);
    pst_trees_list(trees, count_tree, counts);
    assert_int_equal(counts[0], PST_TREES_MAX);
    assert_int_equal(counts[1], PST_TREE_MEMBERS_MAX + PST_TREES_MAX - 1);
    pst_trees_forget(trees, PST_TREE_LIFE_MS + 1); /* the first, of 0 */
    pst_trees_list(trees, count_tree, memset(counts, 0, sizeof(counts)));
    assert_int_equal(counts[0], PST_TREES_MAX - 1);
    pst_trees_close(trees);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_and_parents),
        cmocka_unit_test(trees_are_apart),
        cmocka_unit_test(the_lost_are_stepped_over),
        cmocka_unit_test(two_reports_are_believed),
        cmocka_unit_test(bounds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

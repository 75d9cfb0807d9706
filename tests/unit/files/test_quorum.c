/* SPDX-License-Identifier: Apache-2.0 */
/* test_quorum.c: when a broadcast that waits for its pods begins, and with whom. */
#include "lib/cm.h"

#include "files/group/quorum.h"

#include <stdio.h>

static struct pst_quorum_info join_at(struct pst_quorums *quorums, const char *ip, bool is_putter,
                                      const struct pst_quorum_window *window, uint64_t now_ms)
{
    const struct pst_quorum_member member = {ip, "pod", is_putter};
    struct pst_quorum_info info;

    assert_int_equal(pst_quorum_join(quorums, "name", &member, window, now_ms, &info), 0);
    assert_true(info.is_member);
    return info;
}

static void count_member(void *arg, const struct pst_quorum_member *member)
{
    uint32_t *counts = arg;

    counts[member->is_putter]++;
    assert_string_equal(member->pod_name, "pod");
}

static void it_closes_by_its_size(void **state)
{
    const struct pst_quorum_window window = {.world_size = 3};
    struct pst_quorums *quorums = pst_quorums_open();
    struct pst_quorum_info info = join_at(quorums, "1", true, &window, 0);
    char id[PST_QUORUM_ID_CAP];
    uint32_t counts[2] = {0};

    (void)state;
    strcpy(id, info.id);
    assert_int_equal(info.state, PST_QUORUM_WAITING);
    assert_int_equal(join_at(quorums, "1", true, &window, 1).putters, 1); /* again */
    assert_int_equal(join_at(quorums, "2", false, &window, 2).state, PST_QUORUM_WAITING);
    assert_int_equal(pst_quorum_complete(quorums, id, "1", 3, &info), -EAGAIN);
    info = join_at(quorums, "3", false, &window, 4);
    assert_int_equal(info.state, PST_QUORUM_READY);
    assert_int_equal(info.putters, 1);
    assert_int_equal(info.getters, 2);
    assert_string_equal(info.id, id);
    assert_int_equal(pst_quorum_status(quorums, id, "9", 5, &info, count_member, counts), 0);
    assert_false(info.is_member);
    assert_int_equal(counts[0], 2);
    assert_int_equal(counts[1], 1);
    /* Late ones open another; a member that asks again is where it was. */
    assert_string_not_equal(join_at(quorums, "4", false, &window, 6).id, id);
    assert_string_equal(join_at(quorums, "2", false, &window, 7).id,
                        join_at(quorums, "4", false, &window, 7).id);
    assert_int_equal(pst_quorum_complete(quorums, id, "1", 8, &info), 0);
    assert_int_equal(pst_quorum_complete(quorums, id, "2", 8, &info), 0);
    assert_int_equal(info.state, PST_QUORUM_READY);
    assert_int_equal(pst_quorum_complete(quorums, id, "3", 8, &info), 0);
    assert_int_equal(info.state, PST_QUORUM_COMPLETED);
    assert_int_equal(pst_quorum_complete(quorums, id, "9", 8, &info), -ENOENT);
    assert_int_equal(pst_quorum_status(quorums, "broadcast-9", "1", 8, &info, NULL, NULL), -ENOENT);
    pst_quorums_close(quorums);
}

static void it_closes_by_its_time(void **state)
{
    const struct pst_quorum_window window = {.timeout_ms = 100, .world_size = 9};
    struct pst_quorums *quorums = pst_quorums_open();
    struct pst_quorum_info info;
    char id[PST_QUORUM_ID_CAP];

    (void)state;
    strcpy(id, join_at(quorums, "1", true, &window, 1000).id);
    assert_int_equal(pst_quorum_status(quorums, id, "1", 1099, &info, NULL, NULL), 0);
    assert_int_equal(info.state, PST_QUORUM_WAITING);
    assert_int_equal(pst_quorum_status(quorums, id, "1", 1100, &info, NULL, NULL), 0);
    assert_int_equal(info.state, PST_QUORUM_READY);
    assert_string_not_equal(join_at(quorums, "2", false, &window, 1101).id, id);
    pst_quorums_forget(quorums, 1101 + PST_QUORUM_LIFE_MS);
    assert_int_equal(pst_quorum_status(quorums, id, "1", 1102 + PST_QUORUM_LIFE_MS, &info, NULL, NULL),
                     -ENOENT);
    pst_quorums_close(quorums);
}

static void it_closes_by_its_addresses(void **state)
{
    const char *const ips[] = {"1", "3"};
    const struct pst_quorum_window window = {.ips = ips, .ip_count = 2};
    struct pst_quorums *quorums = pst_quorums_open();

    (void)state;
    assert_int_equal(join_at(quorums, "1", false, &window, 0).state, PST_QUORUM_WAITING);
    assert_int_equal(join_at(quorums, "2", false, &window, 0).state, PST_QUORUM_WAITING);
    assert_int_equal(join_at(quorums, "3", false, &window, 0).state, PST_QUORUM_READY);
    pst_quorums_close(quorums);
}

static void bounds(void **state)
{
    const struct pst_quorum_window window = {.world_size = PST_QUORUM_MEMBERS_MAX}, none = {.timeout_ms = 0};
    const struct pst_quorum_member member = {"1", NULL, false}, nobody = {"", NULL, false};
    struct pst_quorums *quorums = pst_quorums_open();
    struct pst_quorum_info info;
    char text[16];

    (void)state;
    assert_int_equal(pst_quorum_join(quorums, "", &member, &window, 0, &info), -EINVAL);
    assert_int_equal(pst_quorum_join(quorums, "n", &nobody, &window, 0, &info), -EINVAL);
    assert_int_equal(pst_quorum_join(quorums, "n", &member, &none, 0, &info), -EINVAL);
    for (int i = 0; i < PST_QUORUMS_MAX; i++) {
        snprintf(text, sizeof(text), "%d", i);
        assert_int_equal(pst_quorum_join(quorums, text, &member, &window, 0, &info), 0);
    }
    assert_int_equal(pst_quorum_join(quorums, "n", &member, &window, 0, &info), -ENOSPC);
    for (int i = 0; i < PST_QUORUM_MEMBERS_MAX; i++) {
        struct pst_quorum_member one = {text, NULL, i % 2};

        snprintf(text, sizeof(text), "%d", i);
        assert_int_equal(pst_quorum_join(quorums, "7", &one, &window, 0, &info), 0);
    }
    assert_int_equal(info.state, PST_QUORUM_READY);
    pst_quorums_close(quorums);
}

/* A loop that broadcasts in each of its steps has a new quorum each time. */
static void old_ones_make_room(void **state)
{
    const struct pst_quorum_window window = {.world_size = 1};
    struct pst_quorums *quorums = pst_quorums_open();
    struct pst_quorum_info info;
    char id[PST_QUORUM_ID_CAP];

    (void)state;
    strcpy(id, join_at(quorums, "1", true, &window, 0).id);
    for (int i = 0; i < 3 * PST_QUORUMS_MAX; i++) {
        info = join_at(quorums, "1", true, &window, 0);
        assert_int_equal(info.state, PST_QUORUM_READY);
        assert_int_equal(pst_quorum_complete(quorums, info.id, "1", 0, &info), 0);
    }
    assert_int_equal(pst_quorum_status(quorums, id, "1", 0, &info, NULL, NULL), -ENOENT);
    pst_quorums_close(quorums);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_closes_by_its_size),      cmocka_unit_test(it_closes_by_its_time),
        cmocka_unit_test(it_closes_by_its_addresses), cmocka_unit_test(bounds),
        cmocka_unit_test(old_ones_make_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/directory_rig.h"

#include <stdio.h>

static uint32_t places_of(struct rig *rig, uint64_t key)
{
    struct pst_hash128 fingerprint = rig_key(key);
    struct pst_places places;

    pst_directory_look_up(rig->d, &fingerprint, 1, &places);
    return places.count;
}

/* ---- members ---- */

static void an_id_belongs_to_one_living_process(void **state)
{
    struct rig *rig = rig_open();
    struct pst_registered first, again, second;

    (void)state;
    assert_int_equal(rig_register(rig, 1, 1, 100, 0, &first), 0);
    assert_int_equal(rig_register(rig, 1, 1, 200, 0, &second), -EAGAIN); /* the first is not stored yet */
    rig_store(rig);
    assert_int_equal(rig_register(rig, 1, 1, 100, 0, &again), 0); /* its answer was lost */
    assert_int_equal(again.epoch, first.epoch);
    assert_int_equal(rig_register(rig, 1, 1, 200, 0, &second), -EEXIST);
    assert_string_equal(second.holder->address, "127.0.0.1:7000");
    assert_int_equal(rig_counters(rig)->refused_twice, 1);
    rig->now_ns += 4000 * RIG_MS - 1; /* the lease and a second */
    assert_int_equal(rig_register(rig, 1, 1, 200, 0, &second), -EEXIST);
    rig->now_ns++;
    assert_int_equal(rig_register(rig, 1, 1, 200, 0, &second), 0);
    assert_true(second.epoch > first.epoch);
    assert_int_equal(second.member, first.member);
    rig_store(rig);
    rig->sequences[first.member] = 0;
    assert_int_equal(rig_beat(rig, (struct rig_node){first.member, first.epoch}, RIG_FULL, NULL, 0, NULL),
                     -ESTALE);
    assert_int_equal(rig_counters(rig)->heartbeats_stale, 1);
    rig_close(rig);
}

/* Its answer was lost; meanwhile others change the pool map again and again. */
static void who_asks_again_waits_for_no_other_change(void **state)
{
    struct rig *rig = rig_open();
    struct pst_registered out, again;

    (void)state;
    assert_int_equal(rig_register(rig, 1, 1, 100, 0, &out), 0);
    assert_int_equal(rig_register(rig, 1, 1, 100, 0, &again), 0);
    assert_int_equal(again.version, out.version); /* it is not stored yet */
    rig_store(rig);
    for (uint8_t i = 2; i < 5; i++) {
        assert_int_equal(rig_register(rig, i, i, 100, 0, &out), 0);
        assert_true(pst_directory_unstored(rig->d));
        assert_int_equal(rig_register(rig, 1, 1, 100, 0, &again), 0);
        assert_true(again.version <= pst_directory_map(rig->d)->version);
        rig_store(rig);
    }
    rig_close(rig);
}

static void nobody_hears_of_what_is_not_stored(void **state)
{
    struct rig *rig = rig_open();
    struct pst_heartbeat_answer answer;
    struct pst_registered out;
    uint64_t version;

    (void)state;
    assert_int_equal(rig_register(rig, 1, 1, 100, 0, &out), 0);
    assert_int_equal(pst_directory_map(rig->d)->version, 0);
    assert_int_equal(out.version, 1);
    assert_int_equal(rig_beat(rig, (struct rig_node){out.member, out.epoch}, RIG_FULL, NULL, 0, &answer),
                     -ESTALE);
    rig->stored_bytes = pst_directory_store_begin(rig->d, rig->stored, sizeof(rig->stored), &version);
    assert_false(pst_directory_unstored(rig->d));
    assert_int_equal(rig_register(rig, 2, 2, 100, 0, &out), 0); /* goes into the next one */
    assert_int_equal(out.version, 2);
    pst_directory_stored(rig->d, version, rig->now_ns);
    assert_int_equal(pst_directory_map(rig->d)->members[0].epoch, 1);
    assert_int_equal(pst_directory_map(rig->d)->members[1].epoch, 0);
    assert_true(pst_directory_unstored(rig->d));
    rig_store(rig);
    assert_int_equal(pst_directory_map(rig->d)->members[1].epoch, 2);
    rig_restart(rig);
    assert_int_equal(pst_directory_map(rig->d)->members[1].epoch, 2);
    rig_close(rig);
}

static void a_member_leaves_or_is_taken_for_dead(void **state)
{
    struct rig *rig = rig_open();
    struct rig_node nodes[3] = {rig_join(rig, 1, 1), rig_join(rig, 2, 2), rig_join(rig, 3, 3)};
    struct pst_event events[] = {rig_add(1, 1)};
    struct pst_directory_state figures;
    uint64_t version;

    (void)state;
    for (int i = 0; i < 3; i++)
        assert_int_equal(rig_beat(rig, nodes[i], 0, events, 1, NULL), 0);
    assert_int_equal(places_of(rig, 1), 3);
    assert_int_equal(pst_directory_unregister(rig->d, nodes[0].member, nodes[0].epoch, PST_LEFT_KEPT,
                                              rig->now_ns, &version),
                     0);
    assert_int_equal(places_of(rig, 1), 3); /* until it is stored */
    rig_store(rig);
    assert_int_equal(places_of(rig, 1), 2);
    assert_int_equal(pst_directory_unregister(rig->d, nodes[0].member, nodes[0].epoch, PST_LEFT_KEPT,
                                              rig->now_ns, &version),
                     -ESTALE);
    rig_wait(rig, 9500, &nodes[1], 1);
    assert_int_equal(places_of(rig, 1), 2);
    pst_directory_state(rig->d, rig->now_ns, &figures);
    assert_int_equal(figures.members_suspect, 1);
    rig_wait(rig, 6000, &nodes[1], 1);
    assert_int_equal(places_of(rig, 1), 1);
    assert_int_equal(rig_counters(rig)->deaths, 1);
    pst_directory_state(rig->d, rig->now_ns, &figures);
    assert_int_equal(figures.members, 1);
    assert_int_equal(figures.entries, 1); /* swept */
    rig_close(rig);
}

static void the_number_of_members_is_bounded(void **state)
{
    struct rig *rig = rig_open();
    struct pst_registered out;

    (void)state;
    for (uint8_t i = 0; i < RIG_MEMBERS; i++)
        rig_join(rig, i + 1, i);
    assert_int_equal(rig_register(rig, 99, 99, 1, 0, &out), -ENOSPC);
    rig_close(rig);
}

static void a_directory_begins_from_no_damaged_map(void **state)
{
    struct rig *rig = rig_open();
    struct pst_directory *d;

    (void)state;
    rig_store(rig);
    rig->stored[rig->stored_bytes / 2] ^= 1;
    assert_int_equal(pst_directory_open(&rig->settings, (struct pst_bytes){rig->stored, rig->stored_bytes},
                                        &(struct pst_id){{1}}, 1, &d),
                     -EBADMSG);
    rig_close(rig);
}

/* ---- heartbeats ---- */

/* Also without a member of its own it does not say that a key is not there while somebody else's nodes ask.
 */
static void another_pools_are_strangers(void **state)
{
    struct rig *rig = rig_open();
    struct pst_id own = pst_directory_map(rig->d)->pool, other = {{7}};

    (void)state;
    assert_int_equal(rig_get_status(rig, 1), PST_ROUTE_MISS);
    assert_int_equal(pst_directory_check_pool(rig->d, &own, rig->now_ns), 0);
    assert_int_equal(rig_get_status(rig, 1), PST_ROUTE_MISS);
    assert_int_equal(pst_directory_check_pool(rig->d, &other, rig->now_ns), -EXDEV);
    assert_int_equal(rig_get_status(rig, 1), PST_ROUTE_INCOMPLETE);
    assert_int_equal(rig_counters(rig)->strangers, 1);
    rig->now_ns += rig->settings.member_ttl_ms * RIG_MS;
    assert_int_equal(rig_get_status(rig, 1), PST_ROUTE_MISS);
    rig_join(rig, 1, 1); /* that an empty node has joined meanwhile changes nothing */
    assert_int_equal(pst_directory_check_pool(rig->d, &other, rig->now_ns), -EXDEV);
    assert_int_equal(rig_get_status(rig, 1), PST_ROUTE_INCOMPLETE);
    rig_close(rig);
    rig = rig_open();
    rig_join(rig, 1, 1);
    assert_int_equal(pst_directory_check_pool(rig->d, &other, rig->now_ns), -EXDEV);
    assert_int_equal(rig_get_status(rig, 1), PST_ROUTE_MISS); /* it had members before: it has lost nothing */
    rig_close(rig);
}

static void a_lost_pool_goes_on_by_its_name(void **state)
{
    struct rig *rig = rig_open(), *lost = rig_open();
    struct pst_id name = {{9}};
    const struct pst_map *map;

    (void)state;
    assert_int_equal(pst_directory_adopt(rig->d, &name, 1000), 0);
    rig_store(rig);
    map = pst_directory_map(rig->d);
    assert_true(pst_id_equal(&map->pool, &name));
    assert_int_equal(map->version, 1001);
    for (uint32_t i = 0; i < PST_PARTITIONS; i++)
        assert_true(map->partitions[i].lost && map->partitions[i].epoch == 1000);
    assert_true(rig_join(rig, 1, 1).epoch >= 1000);
    assert_int_equal(pst_directory_adopt(rig->d, &name, 2000), 0); /* it has been done */
    assert_true(pst_directory_map(rig->d)->version < 2000);
    rig_restart(rig);
    assert_true(pst_id_equal(&pst_directory_map(rig->d)->pool, &name));
    name.bytes[1] = 1;
    assert_int_equal(pst_directory_adopt(rig->d, &name, 3000), -EEXIST);
    pst_directory_close(lost->d); /* its hashes are the name's, whoever draws it */
    name.bytes[1] = 0;
    assert_int_equal(
        pst_directory_open(&lost->settings, (struct pst_bytes){NULL, 0}, &name, lost->now_ns, &lost->d), 0);
    assert_int_equal(pst_directory_map(lost->d)->seed, pst_directory_map(rig->d)->seed);
    rig_close(lost);
    rig_close(rig);
}

static void heartbeats_are_taken_in_order_or_not_at_all(void **state)
{
    struct rig *rig = rig_open();
    struct rig_node node = rig_join(rig, 1, 1);
    struct pst_event events[] = {rig_add(1, 1)}, bad[] = {rig_add(2, 1)};
    struct pst_heartbeat_answer answer;

    (void)state;
    assert_int_equal(rig_beat(rig, node, 0, events, 1, &answer), 0);
    assert_int_equal(answer.lease_ms, 3000);
    rig->sequences[node.member]--; /* once more */
    assert_int_equal(rig_beat(rig, node, 0, events, 1, &answer), -EALREADY);
    assert_int_equal(answer.lease_ms, 0);
    assert_int_equal(answer.sequence_next, 3);
    rig->sequences[node.member]++; /* one is missing */
    events[0].kind = PST_EVENT_DEL;
    assert_int_equal(rig_beat(rig, node, 0, events, 1, &answer), -EILSEQ);
    assert_true(answer.sync && answer.lease_ms > 0);
    assert_int_equal(places_of(rig, 1), 1);
    bad[0].tier = PST_POOL_TIERS;
    assert_int_equal(rig_beat(rig, node, 0, bad, 1, &answer), -EINVAL);
    bad[0].tier = 0;
    assert_int_equal(rig_beat(rig, node, PST_HEARTBEAT_BEGIN, bad, 1, &answer), -EINVAL);
    assert_int_equal(rig_beat(rig, node, 8, NULL, 0, &answer), -EINVAL);
    assert_int_equal(rig_beat(rig, node, PST_HEARTBEAT_BEGIN, NULL, 0, &answer), 0);
    assert_int_equal(rig_counters(rig)->heartbeats_past, 1);
    assert_int_equal(rig_counters(rig)->gaps, 1);
    assert_int_equal(rig_counters(rig)->heartbeats_bad, 3);
    rig_close(rig);
}

static void a_full_report_replaces_when_it_is_whole(void **state)
{
    struct rig *rig = rig_open();
    struct rig_node node = rig_join(rig, 1, 1);
    struct pst_event first[] = {rig_add(1, 1), rig_add(2, 1)}, second[] = {rig_add(2, 1), rig_add(3, 1)};

    (void)state;
    assert_int_equal(rig_beat(rig, node, 0, first, 2, NULL), 0);
    assert_int_equal(rig_beat(rig, node, PST_HEARTBEAT_BEGIN, second, 1, NULL), 0);
    assert_int_equal(places_of(rig, 1), 1); /* nothing vanishes in between */
    assert_int_equal(rig_beat(rig, node, PST_HEARTBEAT_BEGIN, second, 1, NULL), 0); /* from the start again */
    assert_int_equal(places_of(rig, 1), 1);
    assert_int_equal(rig_beat(rig, node, PST_HEARTBEAT_END, second + 1, 1, NULL), 0);
    assert_int_equal(places_of(rig, 1), 0);
    assert_int_equal(places_of(rig, 2), 1);
    assert_int_equal(places_of(rig, 3), 1);
    rig_close(rig);
}

static void until_all_have_reported_nothing_is_a_miss(void **state)
{
    struct rig *rig = rig_open();
    struct rig_node one = rig_join(rig, 1, 1), two = rig_join(rig, 2, 2);
    struct pst_event events[] = {rig_add(1, 1)};
    struct pst_heartbeat_answer answer;

    (void)state;
    assert_int_equal(rig_beat(rig, one, 0, events, 1, NULL), 0);
    assert_int_equal(rig_get_status(rig, 2), PST_ROUTE_MISS);
    rig_restart(rig);
    assert_int_equal(rig_get_status(rig, 1), PST_ROUTE_INCOMPLETE);
    assert_int_equal(rig_beat(rig, one, 0, NULL, 0, &answer), -EILSEQ);
    assert_true(answer.sync);
    assert_int_equal(rig_beat(rig, one, RIG_FULL, events, 1, NULL), 0);
    assert_int_equal(rig_get_status(rig, 1), PST_ROUTE_TO);
    assert_int_equal(rig_get_status(rig, 2), PST_ROUTE_INCOMPLETE);
    assert_int_equal(rig_beat(rig, two, RIG_FULL, NULL, 0, NULL), 0);
    assert_int_equal(rig_get_status(rig, 2), PST_ROUTE_MISS);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_id_belongs_to_one_living_process),
        cmocka_unit_test(who_asks_again_waits_for_no_other_change),
        cmocka_unit_test(nobody_hears_of_what_is_not_stored),
        cmocka_unit_test(a_member_leaves_or_is_taken_for_dead),
        cmocka_unit_test(the_number_of_members_is_bounded),
        cmocka_unit_test(a_directory_begins_from_no_damaged_map),
        cmocka_unit_test(another_pools_are_strangers),
        cmocka_unit_test(a_lost_pool_goes_on_by_its_name),
        cmocka_unit_test(heartbeats_are_taken_in_order_or_not_at_all),
        cmocka_unit_test(a_full_report_replaces_when_it_is_whole),
        cmocka_unit_test(until_all_have_reported_nothing_is_a_miss),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

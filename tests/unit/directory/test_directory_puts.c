/* SPDX-License-Identifier: Apache-2.0 */
/* test_directory_puts.c: where new values go, and which place of a key is named first. */
#include "lib/directory_rig.h"

#include <stdio.h>

static int place(struct rig *rig, const char *prefix, uint32_t replicas, uint64_t *version)
{
    return pst_directory_place(rig->d, (struct pst_bytes){prefix, strlen(prefix)}, PST_PLACE_HOME, replicas,
                               version);
}

static void placements_are_kept_in_order(void **state)
{
    struct rig *rig = rig_open();
    char text[PST_MAP_PREFIX_BYTES_MAX + 2];
    uint64_t version, before;

    (void)state;
    for (int i = 0; i < PST_MAP_PREFIXES_MAX; i++) {
        (void)snprintf(text, sizeof(text), "p%02d/", i * 37 % PST_MAP_PREFIXES_MAX);
        assert_int_equal(place(rig, text, 2, &version), 0);
    }
    assert_int_equal(place(rig, "q/", 2, &version), -ENOSPC);
    rig_store(rig);
    before = pst_directory_map(rig->d)->version;
    assert_int_equal(place(rig, "p05/", 2, &version), 0); /* it has that */
    assert_int_equal(version, before);
    assert_int_equal(place(rig, "p05/", 3, &version), 0);
    assert_int_equal(version, before + 1);
    rig_store(rig);
    assert_int_equal(pst_map_prefix_of(pst_directory_map(rig->d), (struct pst_bytes){"p05/a", 5})->replicas,
                     3);
    assert_int_equal(place(rig, "p05/", 0, &version), -EINVAL);
    assert_int_equal(place(rig, "p05/", PST_MAP_REPLICAS_MAX + 1, &version), -EINVAL);
    memset(text, 'a', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    assert_int_equal(place(rig, text, 1, &version), -EINVAL);
    rig_restart(rig); /* in order, or the pool map would be refused */
    assert_int_equal(pst_directory_map(rig->d)->prefix_count, PST_MAP_PREFIXES_MAX);
    rig_close(rig);
}

static uint64_t reserved(struct rig *rig)
{
    struct pst_directory_state figures;

    pst_directory_state(rig->d, rig->now_ns, &figures);
    return figures.reserved_bytes[PST_POOL_DRAM];
}

static void room_that_is_promised_is_nobody_elses(void **state)
{
    struct rig *rig = rig_open();
    struct rig_node node = rig_join(rig, 1, 1);
    struct pst_event met = rig_add(1, 1);

    (void)state;
    assert_int_equal(rig_get_status(rig, 1), PST_ROUTE_MISS);
    assert_int_equal(rig_put(rig, 9, 1, RIG_GIB / 2, 1).status, PST_ROUTE_TO);
    assert_int_equal(rig_get_status(rig, 1), PST_ROUTE_TO); /* it may be there before the node has said so */
    assert_int_equal(rig_put(rig, 9, 2, RIG_GIB / 2, 1).status, PST_ROUTE_TO);
    assert_int_equal(rig_put(rig, 9, 3, 1, 1).status, PST_ROUTE_UNAVAILABLE);
    assert_int_equal(rig_put(rig, 9, 2, RIG_GIB / 2, 1).status, PST_ROUTE_TO); /* the same again */
    assert_int_equal(reserved(rig), RIG_GIB);
    assert_int_equal(rig_beat(rig, node, 0, NULL, 0, NULL), 0); /* which says that nothing is used */
    assert_int_equal(reserved(rig), RIG_GIB);
    rig->used_bytes = RIG_GIB / 2;
    assert_int_equal(rig_beat(rig, node, 0, &met, 1, NULL), 0);
    assert_int_equal(reserved(rig), RIG_GIB / 2);
    assert_int_equal(rig_put(rig, 9, 3, 1, 1).status, PST_ROUTE_UNAVAILABLE);
    assert_int_equal(rig_put(rig, 9, 1, 1, 1).status, PST_ROUTE_EXISTS);
    rig_wait(rig, 5000, &node, 1);
    assert_int_equal(reserved(rig), 0);
    assert_int_equal(rig_get_status(rig, 1), PST_ROUTE_TO);
    assert_int_equal(rig_get_status(rig, 2), PST_ROUTE_MISS);
    assert_int_equal(rig_put(rig, 9, 3, 1, 1).status, PST_ROUTE_TO);
    assert_int_equal(rig_counters(rig)->reservations, 3);
    assert_int_equal(rig_counters(rig)->reservations_met, 1);
    assert_int_equal(rig_counters(rig)->reservations_expired, 1);
    rig_close(rig);
}

static void what_memory_has_no_room_for_goes_to_the_ssd(void **state)
{
    struct rig *rig = rig_open();
    struct rig_node node = rig_join(rig, 1, 1);
    struct pst_heartbeat message = {.member = node.member, .epoch = node.epoch, .sequence = 2};
    struct pst_put evictable = {.key = rig_key(9), .bytes = 200, .replicas = 1, .evictable = true};
    struct pst_heartbeat_answer answer;
    struct pst_caller caller = {{{9}}};
    struct pst_route route;

    (void)state;
    message.tiers[PST_POOL_DRAM] = (struct pst_tier_use){1000, 900};
    message.tiers[PST_POOL_SSD] = (struct pst_tier_use){300, 0};
    assert_int_equal(pst_directory_heartbeat(rig->d, &message, rig->now_ns, &answer), 0);
    assert_int_equal(rig_put(rig, 9, 1, 100, 1).places.items[0].tier, PST_POOL_DRAM);
    assert_int_equal(rig_put(rig, 9, 2, 200, 1).places.items[0].tier, PST_POOL_SSD);
    assert_int_equal(rig_put(rig, 9, 3, 200, 1).status, PST_ROUTE_UNAVAILABLE);
    pst_directory_route_put(rig->d, &caller, &evictable, 1, rig->now_ns, &route);
    assert_int_equal(route.status, PST_ROUTE_TO); /* the node makes room */
    assert_int_equal(route.places.items[0].tier, PST_POOL_DRAM);
    rig_close(rig);
}

static void promises_end_with_their_member(void **state)
{
    struct rig *rig = rig_open();
    struct rig_node node = rig_join(rig, 1, 1);
    uint64_t version;

    (void)state;
    for (uint64_t key = 0; key < 2000; key++) /* twice the bound: the oldest end early */
        assert_int_equal(rig_put(rig, 9, key, 1000, 1).status, PST_ROUTE_TO);
    assert_int_equal(reserved(rig), 1000 * 1000);
    assert_int_equal(
        pst_directory_unregister(rig->d, node.member, node.epoch, PST_LEFT_KEPT, rig->now_ns, &version), 0);
    rig_store(rig);
    assert_int_equal(rig_put(rig, 9, 1, 1, 1).status, PST_ROUTE_UNAVAILABLE);
    node = rig_join(rig, 2, 2);
    assert_int_equal(node.member, 0);
    assert_int_equal(reserved(rig), 0);
    assert_int_equal(rig_put(rig, 9, 5000, 10, 1).status, PST_ROUTE_TO);
    rig_wait(rig, 6000, &node, 1);
    assert_int_equal(reserved(rig), 0);
    rig_close(rig);
}

/* As one would say it who wants the sums to wrap around. */
static void absurd_sizes_do_no_harm(void **state)
{
    const struct pst_caller caller = {.host = {{9}}};
    struct rig *rig = rig_open();
    struct rig_node node;

    (void)state;
    rig->capacity_bytes = PST_TIER_BYTES_MAX;
    node = rig_join(rig, 1, 1);
    for (uint64_t key = 0; key < 600; key++) {
        const struct pst_put put = {
            .key = rig_key(key), .bytes = PST_TIER_BYTES_MAX, .replicas = 1, .evictable = true};
        struct pst_route route;

        pst_directory_route_put(rig->d, &caller, &put, 1, rig->now_ns, &route);
        assert_int_equal(route.status, PST_ROUTE_TO);
        assert_true(reserved(rig) <= rig->capacity_bytes);
    }
    rig_wait(rig, rig->settings.reserve_ms + 500, &node, 1);
    assert_int_equal(reserved(rig), 0);
    rig->capacity_bytes++;
    assert_int_equal(rig_beat(rig, node, 0, NULL, 0, NULL), -EINVAL);
    assert_int_equal(rig_counters(rig)->heartbeats_bad, 1);
    rig_close(rig);
}

static void nodes_of_one_host_share_its_puts(void **state)
{
    struct rig *rig = rig_open();
    struct rig_node nodes[3];
    uint32_t counts[3] = {0};

    (void)state;
    for (uint8_t i = 0; i < 3; i++)
        nodes[i] = rig_join(rig, i + 1, i < 2 ? 1 : 2);
    for (uint64_t key = 0; key < 100; key++) {
        struct pst_route route = rig_put(rig, 1, key, 10, 1);

        assert_int_equal(route.places.count, 1);
        for (int i = 0; i < 3; i++)
            counts[i] += route.places.items[0].member == nodes[i].member;
    }
    assert_in_range(counts[0], 25, 75);
    assert_int_equal(counts[0] + counts[1], 100);
    rig_close(rig);
}

static void replicas_lie_on_distinct_hosts(void **state)
{
    struct rig *rig = rig_open();
    struct pst_route route;

    (void)state;
    for (uint8_t i = 0; i < 12; i++)
        rig_join(rig, i + 1, i % 3);
    for (uint64_t key = 0; key < 200; key++) {
        uint32_t hosts = 0;

        route = rig_put(rig, 9, key, 1000, 4);
        assert_int_equal(route.places.count, 3); /* as many as there are */
        for (uint32_t i = 0; i < 3; i++)
            hosts |= 1u << pst_directory_map(rig->d)->members[route.places.items[i].member].host.bytes[0];
        assert_int_equal(hosts, 7);
    }
    route = rig_put(rig, 2, 1000, 1000, 1); /* near who asks */
    assert_int_equal(pst_directory_map(rig->d)->members[route.places.items[0].member].host.bytes[0], 2);
    rig_close(rig);
}

/* What a node evicted comes back to it, also when its share has changed a little meanwhile. */
static void a_key_goes_where_it_was(void **state)
{
    struct rig *rig = rig_open();
    struct rig_node nodes[3];
    uint16_t before[500];
    uint32_t same = 0;

    (void)state;
    for (uint8_t i = 0; i < 3; i++)
        nodes[i] = rig_join(rig, i + 1, i);
    rig_wait(rig, 40000, nodes, 3);
    for (uint64_t key = 0; key < 500; key++)
        before[key] = rig_put(rig, 99, key, 1, 1).places.items[0].member;
    rig->used_bytes = RIG_GIB / 100;
    rig_wait(rig, 10000, nodes, 3); /* room that was reserved has been given back */
    for (uint64_t key = 0; key < 500; key++)
        same += rig_put(rig, 99, key, 1, 1).places.items[0].member == before[key];
    assert_in_range(same, 480, 500); /* by chance a third */
    rig_close(rig);
}

static uint32_t share_of(struct rig *rig, uint16_t member, uint64_t *key)
{
    uint32_t count = 0;

    for (int i = 0; i < 1000; i++)
        count += rig_put(rig, 99, (*key)++, 1, 1).places.items[0].member == member;
    return count;
}

static void a_newcomer_and_a_suspect_draw_less(void **state)
{
    struct rig *rig = rig_open();
    struct rig_node nodes[5];
    uint64_t key = 0;

    (void)state;
    rig->used_bytes = RIG_GIB / 100 * 95;
    for (uint8_t i = 0; i < 4; i++)
        nodes[i] = rig_join(rig, i + 1, i);
    rig_wait(rig, 40000, nodes, 4);
    rig->used_bytes = 0;
    nodes[4] = rig_join(rig, 9, 9);
    assert_in_range(share_of(rig, nodes[4].member, &key), 50, 250); /* about a fifth of those of an equal */
    rig->used_bytes = RIG_GIB / 100 * 95;
    rig_wait(rig, 40000, nodes, 4); /* by now the newcomer has been forgotten */
    assert_int_equal(rig_counters(rig)->deaths, 1);
    nodes[4] = rig_join(rig, 9, 9);
    rig_wait(rig, 31000, nodes, 4 + 1);
    assert_in_range(share_of(rig, nodes[4].member, &key), 120, 280);
    assert_int_equal(pst_directory_suspect(rig->d, nodes[0].member, nodes[0].epoch, rig->now_ns), 0);
    assert_int_equal(share_of(rig, nodes[0].member, &key), 0);
    rig_wait(rig, 3000, &nodes[0], 4); /* the last is late by now */
    assert_int_equal(share_of(rig, nodes[4].member, &key), 0);
    assert_in_range(share_of(rig, nodes[0].member, &key), 150, 350);
    rig_close(rig);
}

static void the_nearest_and_fastest_place_comes_first(void **state)
{
    struct rig *rig = rig_open();
    struct rig_node nodes[3] = {rig_join(rig, 1, 1), rig_join(rig, 2, 2), rig_join(rig, 3, 3)};
    struct pst_event event = rig_add(1, 1);
    struct pst_hash128 key = rig_key(1);
    struct pst_caller caller = {{{1}}};
    struct pst_route route;

    (void)state;
    event.tier = PST_POOL_SSD;
    for (int i = 0; i < 3; i++)
        assert_int_equal(rig_beat(rig, nodes[i], 0, &event, 1, NULL), 0);
    event.tier = PST_POOL_DRAM;
    assert_int_equal(rig_beat(rig, nodes[2], 0, &event, 1, NULL), 0);
    pst_directory_route_get(rig->d, &caller, &key, 1, rig->now_ns, &route);
    assert_int_equal(route.places.count, 3);
    assert_int_equal(route.places.items[0].member, nodes[0].member); /* of the caller's host */
    assert_int_equal(route.places.items[1].member, nodes[2].member);
    assert_int_equal(route.places.items[1].tier, PST_POOL_DRAM);
    assert_int_equal(route.places.items[2].member, nodes[1].member);
    assert_int_equal(pst_directory_suspect(rig->d, nodes[2].member, nodes[2].epoch, rig->now_ns), 0);
    pst_directory_route_get(rig->d, &caller, &key, 1, rig->now_ns, &route);
    assert_int_equal(route.places.items[1].member, nodes[1].member);
    assert_int_equal(route.places.items[2].member, nodes[2].member);
    rig_close(rig);
}

static void a_key_that_moved_is_where_it_was_told_last(void **state)
{
    struct rig *rig = rig_open();
    struct rig_node node = rig_join(rig, 1, 1);
    struct pst_event down = rig_add(1, 5), late = rig_add(1, 4), gone = rig_add(1, 5);
    struct pst_caller caller = {{{1}}};
    struct pst_hash128 key = rig_key(1);
    struct pst_event up = rig_add(1, 5);
    struct pst_route route;

    (void)state;
    down.tier = PST_POOL_SSD;
    gone.kind = PST_EVENT_DEL;
    assert_int_equal(rig_beat(rig, node, 0, &up, 1, NULL), 0);
    assert_int_equal(rig_beat(rig, node, 0, &down, 1, NULL), 0);
    assert_int_equal(rig_beat(rig, node, 0, &late, 1, NULL), 0);
    pst_directory_route_get(rig->d, &caller, &key, 1, rig->now_ns, &route);
    assert_int_equal(route.places.count, 1);
    assert_int_equal(route.places.items[0].tier, PST_POOL_SSD);
    assert_int_equal(route.places.items[0].generation, 5);
    assert_int_equal(rig_beat(rig, node, 0, &up, 1, NULL), 0);
    pst_directory_route_get(rig->d, &caller, &key, 1, rig->now_ns, &route);
    assert_int_equal(route.places.count, 1);
    assert_int_equal(route.places.items[0].tier, PST_POOL_DRAM);
    assert_int_equal(rig_beat(rig, node, 0, &down, 1, NULL), 0);
    assert_int_equal(rig_beat(rig, node, 0, &gone, 1, NULL), 0); /* from wherever it lay */
    assert_int_equal(rig_get_status(rig, 1), PST_ROUTE_MISS);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(placements_are_kept_in_order),
        cmocka_unit_test(room_that_is_promised_is_nobody_elses),
        cmocka_unit_test(what_memory_has_no_room_for_goes_to_the_ssd),
        cmocka_unit_test(promises_end_with_their_member),
        cmocka_unit_test(absurd_sizes_do_no_harm),
        cmocka_unit_test(nodes_of_one_host_share_its_puts),
        cmocka_unit_test(replicas_lie_on_distinct_hosts),
        cmocka_unit_test(a_newcomer_and_a_suspect_draw_less),
        cmocka_unit_test(a_key_goes_where_it_was),
        cmocka_unit_test(the_nearest_and_fastest_place_comes_first),
        cmocka_unit_test(a_key_that_moved_is_where_it_was_told_last),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

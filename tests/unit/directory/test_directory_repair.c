/* SPDX-License-Identifier: Apache-2.0 */
/* test_directory_repair.c: keys of which members are lost or leave are sent to others again. */
#include "lib/directory_rig.h"

/* ---- repair ---- */

/* What the node is told of the key, which has one copy as far as it knows. */
static struct pst_route ask_repair(struct rig *rig, struct rig_node node, uint64_t key)
{
    const struct pst_put put = {.key = rig_key(key), .bytes = 1000, .replicas = 1};
    struct pst_heartbeat_answer answer;
    struct pst_repair message = {.member = node.member, .epoch = node.epoch};
    struct pst_route route;

    assert_int_equal(rig_beat(rig, node, 0, NULL, 0, &answer), 0);
    message.repair = answer.repair;
    assert_int_equal(pst_directory_repair(rig->d, &message, &put, 1, rig->now_ns, &route), 0);
    message.repair++;
    assert_int_equal(pst_directory_repair(rig->d, &message, &put, 1, rig->now_ns, &route), -ESTALE);
    message.repair--;
    message.epoch++;
    assert_int_equal(pst_directory_repair(rig->d, &message, &put, 1, rig->now_ns, &route), -ESTALE);
    return route;
}

/* A key that is put on two of three nodes, and reported by them: the first two of @nodes behind this. */
static void put_on_two(struct rig *rig, struct rig_node nodes[3])
{
    const struct pst_put put = {.key = rig_key(1), .bytes = 1000, .replicas = 2};
    const struct pst_event added = rig_add(1, 5);
    const struct pst_caller caller = {.host = {{9}}};
    struct pst_route route;

    for (uint8_t i = 0; i < 3; i++)
        nodes[i] = rig_join(rig, i + 1, i + 1);
    pst_directory_route_put(rig->d, &caller, &put, 1, rig->now_ns, &route);
    assert_int_equal(route.places.count, 2);
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t at = i;
        struct rig_node other = nodes[i];

        while (nodes[at].member != route.places.items[i].member)
            at++;
        nodes[i] = nodes[at];
        nodes[at] = other;
        assert_int_equal(rig_beat(rig, nodes[i], 0, &added, 1, NULL), 0);
    }
}

static void copies_of_a_lost_member_are_made_again_once(void **state)
{
    struct rig *rig = rig_open();
    struct rig_node nodes[3];
    struct pst_route route;
    uint64_t version;

    (void)state;
    put_on_two(rig, nodes);
    assert_int_equal(ask_repair(rig, nodes[1], 1).status, PST_ROUTE_EXISTS);
    assert_int_equal(pst_directory_unregister(rig->d, nodes[0].member, nodes[0].epoch, PST_LEFT_KEPT,
                                              rig->now_ns, &version),
                     0);
    rig_store(rig);
    route = ask_repair(rig, nodes[1], 1);
    assert_int_equal(route.status, PST_ROUTE_TO);
    assert_int_equal(route.places.count, 1);
    assert_int_equal(route.places.items[0].member, nodes[2].member);
    assert_int_equal(ask_repair(rig, nodes[1], 1).status, PST_ROUTE_EXISTS); /* it is underway */
    rig_close(rig);
}

/* One that has a key which nobody else needs to have is not done before another has it. */
static void what_drains_is_needed_until_others_have_its_keys(void **state)
{
    const struct pst_event added = rig_add(1, 5);
    struct rig *rig = rig_open();
    struct rig_node nodes[2] = {rig_join(rig, 1, 1), rig_join(rig, 2, 2)};
    struct pst_put put = {.key = rig_key(1), .bytes = 1000, .replicas = 1};
    struct pst_repair message = {
        .member = nodes[0].member, .epoch = nodes[0].epoch, .flags = PST_REPAIR_BEGIN | PST_REPAIR_END};
    const struct pst_id id = {{1}}, nobody = {{9}};
    const struct pst_caller caller = {.host = {{1}}};
    struct pst_heartbeat_answer answer;
    struct pst_directory_node node;
    struct pst_route route;
    uint64_t version;

    (void)state;
    assert_int_equal(rig_beat(rig, nodes[0], 0, &added, 1, NULL), 0);
    assert_int_equal(pst_directory_drain(rig->d, &nobody, true, &version), -ESTALE);
    assert_int_equal(pst_directory_drain(rig->d, &id, true, &version), 0);
    rig_store(rig);
    assert_true(pst_directory_map(rig->d)->members[nodes[0].member].drains);
    for (int round = 0; round < 3; round++) {
        assert_int_equal(pst_directory_nodes(rig->d, 0, rig->now_ns, &node, 1), 1);
        assert_true(node.drains && !node.drained);
        rig_wait(rig, round ? 12000 : 0, nodes, 2); /* what was underway to the other is so no more */
        assert_int_equal(rig_beat(rig, nodes[0], 0, NULL, 0, &answer), 0);
        message.repair = answer.repair;
        assert_int_equal(pst_directory_repair(rig->d, &message, &put, 1, rig->now_ns, &route), 0);
        assert_int_equal(route.status, round < 2 ? PST_ROUTE_TO : PST_ROUTE_EXISTS);
        if (round == 1)
            assert_int_equal(rig_beat(rig, nodes[1], 0, &added, 1, NULL), 0);
    }
    assert_int_equal(pst_directory_nodes(rig->d, 0, rig->now_ns, &node, 1), 1);
    assert_true(node.drained && node.keys_left == 0);
    put.key = rig_key(2);
    pst_directory_route_put(rig->d, &caller, &put, 1, rig->now_ns, &route);
    assert_int_equal(route.places.items[0].member, nodes[1].member); /* farther, but it stays */
    assert_int_equal(pst_directory_drain(rig->d, &id, false, &version), 0);
    rig_store(rig);
    pst_directory_route_put(rig->d, &caller, &put, 1, rig->now_ns, &route);
    rig_close(rig);
}

static void copies_that_nobody_has_room_for_are_looked_at_again(void **state)
{
    struct rig *rig = rig_open();
    struct pst_heartbeat_answer before, after;
    struct rig_node nodes[3];
    uint64_t version;

    (void)state;
    put_on_two(rig, nodes);
    rig->used_bytes = rig->capacity_bytes;
    assert_int_equal(pst_directory_unregister(rig->d, nodes[0].member, nodes[0].epoch, PST_LEFT_KEPT,
                                              rig->now_ns, &version),
                     0);
    rig_store(rig);
    rig_wait(rig, 500, nodes + 1, 2);
    assert_int_equal(ask_repair(rig, nodes[1], 1).status, PST_ROUTE_UNAVAILABLE);
    assert_int_equal(rig_beat(rig, nodes[1], 0, NULL, 0, &before), 0);
    rig->used_bytes = 0;
    rig_wait(rig, rig->settings.repair_again_ms + 1000, nodes + 1, 2);
    assert_int_equal(rig_beat(rig, nodes[1], 0, NULL, 0, &after), 0);
    assert_int_equal(after.repair, before.repair + 1);
    assert_int_equal(ask_repair(rig, nodes[1], 1).status, PST_ROUTE_TO);
    rig_close(rig);
}

/* Two have the key, and one of them is to send it. Who that is changes when both are asking. */
static void copies_that_nobody_was_told_to_send_are_looked_at_again(void **state)
{
    const struct pst_put put = {.key = rig_key(1), .bytes = 1000, .replicas = 3};
    const struct pst_event added = rig_add(1, 5);
    const struct pst_caller caller = {.host = {{9}}};
    struct pst_heartbeat_answer before, after;
    struct rig *rig = rig_open();
    struct rig_node nodes[4];
    struct pst_route route;
    uint32_t sender;

    (void)state;
    for (uint8_t i = 0; i < 4; i++)
        nodes[i] = rig_join(rig, i + 1, i + 1);
    pst_directory_route_put(rig->d, &caller, &put, 1, rig->now_ns, &route);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(rig_beat(rig, nodes[i], 0, &added, 1, NULL), 0);
    rig_wait(rig, 12000, nodes, 4); /* the client has died before there was a third */
    sender = ask_repair(rig, nodes[0], 1).status == PST_ROUTE_TO ? 0 : 1;
    rig_wait(rig, 24000, nodes, 4); /* and the node, what it sent: that has been looked at again */
    assert_int_equal(ask_repair(rig, nodes[1 - sender], 1).status, PST_ROUTE_EXISTS);
    assert_int_equal(pst_directory_suspect(rig->d, nodes[sender].member, nodes[sender].epoch, rig->now_ns),
                     0);
    assert_int_equal(ask_repair(rig, nodes[sender], 1).status, PST_ROUTE_EXISTS);
    assert_int_equal(rig_beat(rig, nodes[0], 0, NULL, 0, &before), 0);
    rig_wait(rig, rig->settings.repair_again_ms + 1000, nodes, 4);
    assert_int_equal(rig_beat(rig, nodes[0], 0, NULL, 0, &after), 0);
    assert_int_equal(after.repair, before.repair + 1);
    assert_int_equal(ask_repair(rig, nodes[sender], 1).status, PST_ROUTE_TO);
    rig_close(rig);
}

/* Six places are remembered, and all of them are on too few hosts. */
static void copies_that_would_not_be_remembered_are_not_made(void **state)
{
    const struct pst_put put = {.key = rig_key(1), .bytes = 1000, .replicas = 3};
    const struct pst_event added = rig_add(1, 5);
    const struct pst_caller caller = {.host = {{9}}};
    struct rig_node nodes[PST_PLACES_MAX + 1];
    struct rig *rig = rig_open();
    struct pst_route route;

    (void)state;
    for (uint8_t i = 0; i <= PST_PLACES_MAX; i++)
        nodes[i] = rig_join(rig, i + 1, i < PST_PLACES_MAX ? i % 2 + 1 : 3);
    pst_directory_route_put(rig->d, &caller, &put, 1, rig->now_ns, &route);
    for (uint32_t i = 0; i < PST_PLACES_MAX; i++)
        assert_int_equal(rig_beat(rig, nodes[i], 0, &added, 1, NULL), 0);
    rig_wait(rig, 12000, nodes, PST_PLACES_MAX + 1);
    for (uint32_t i = 0; i < PST_PLACES_MAX; i++)
        assert_int_equal(ask_repair(rig, nodes[i], 1).status, PST_ROUTE_EXISTS);
    rig_close(rig);
}

static void what_a_node_let_go_of_is_not_brought_back(void **state)
{
    struct rig *rig = rig_open();
    struct pst_event gone = rig_add(1, 5);
    struct pst_heartbeat_answer answer;
    struct rig_node nodes[3];

    (void)state;
    assert_int_equal(rig_beat(rig, rig_join(rig, 9, 2), 0, NULL, 0, &answer), 0);
    assert_int_equal(answer.repair, 0); /* nobody wants copies */
    put_on_two(rig, nodes);
    gone.kind = PST_EVENT_DEL;
    assert_int_equal(rig_beat(rig, nodes[0], 0, &gone, 1, NULL), 0);
    assert_int_equal(ask_repair(rig, nodes[1], 1).status, PST_ROUTE_EXISTS);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_of_a_lost_member_are_made_again_once),
        cmocka_unit_test(what_drains_is_needed_until_others_have_its_keys),
        cmocka_unit_test(copies_that_nobody_has_room_for_are_looked_at_again),
        cmocka_unit_test(copies_that_nobody_was_told_to_send_are_looked_at_again),
        cmocka_unit_test(copies_that_would_not_be_remembered_are_not_made),
        cmocka_unit_test(what_a_node_let_go_of_is_not_brought_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

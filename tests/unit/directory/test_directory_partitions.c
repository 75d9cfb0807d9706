/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/directory_partitions_rig.h"

#include "pool/lease.h"

/* The nodes but @out, moved to the front of a copy. */
static void others(const struct rig_node *nodes, uint32_t count, uint16_t out, struct rig_node *left)
{
    for (uint32_t i = 0; i < count; i++)
        if (nodes[i].member != out)
            *left++ = nodes[i];
}

static void partitions_are_dealt_out_over_hosts(void **state)
{
    struct rig_node nodes[4];
    struct rig *rig = rig_with(nodes, 4, 2);
    uint32_t shares[4] = {0};

    (void)state;
    for (uint32_t i = 0; i < PST_PARTITIONS; i++) {
        const struct pst_map_partition *partition = partition_of(rig, i);

        assert_int_equal(partition->state, PST_MAP_SERVED);
        assert_int_equal(partition->replica_count, 2);
        assert_int_not_equal(partition->replicas[0], partition->replicas[1]);
        assert_int_equal(partition->base, partition->epoch);
        shares[partition->replicas[0]]++;
    }
    for (int i = 0; i < 4; i++)
        assert_in_range(shares[i], PST_PARTITIONS / 4 - 150, PST_PARTITIONS / 4 + 150);
    rig_close(rig);
}

static void a_backup_takes_over_when_the_lease_is_long_over(void **state)
{
    struct rig_node nodes[3], left[2];
    struct rig *rig = rig_with(nodes, 3, 2);
    struct pst_map_partition before = *partition_of(rig, 7);
    struct rig_node primary = primary_of(rig, 7);
    struct pst_heartbeat_answer answer;
    uint64_t version;

    (void)state;
    others(nodes, 3, primary.member, left);
    rig_wait(rig, 3500, left, 2);
    assert_int_equal(primary_of(rig, 7).member, primary.member);
    assert_int_equal(rig_beat(rig, primary, 0, NULL, 0, &answer), 0); /* just in time */
    assert_int_equal(answer.lease_ms, 3000);
    rig_wait(rig, 3500, left, 2);
    assert_int_equal(primary_of(rig, 7).member, primary.member);
    rig->now_ns += 500 * RIG_MS;
    for (int i = 0; i < 2; i++)
        assert_int_equal(rig_beat(rig, left[i], 0, NULL, 0, NULL), 0);
    pst_directory_tick(rig->d, rig->now_ns);
    /* Decided, and not stored: it returns, and must get no lease for what it believes to have. */
    assert_int_equal(rig_beat(rig, primary, 0, NULL, 0, &answer), 0);
    assert_int_equal(answer.lease_ms, 0);
    rig->stored_bytes = pst_directory_store_begin(rig->d, rig->stored, sizeof(rig->stored), &version);
    assert_int_equal(rig_beat(rig, primary, 0, NULL, 0, &answer), 0);
    assert_int_equal(answer.lease_ms, 0);
    pst_directory_stored(rig->d, version, rig->now_ns);
    assert_int_equal(rig_beat(rig, primary, 0, NULL, 0, &answer), 0);
    assert_int_equal(answer.lease_ms, 3000);
    assert_int_equal(answer.lease_version, version); /* and that pool map says: */
    assert_int_equal(primary_of(rig, 7).member, before.replicas[1]);
    assert_int_equal(pst_map_lineage(partition_of(rig, 7)->epoch), pst_map_lineage(before.epoch) + 1);
    assert_int_equal(partition_of(rig, 7)->base, before.base);
    assert_int_equal(partition_of(rig, 7)->replicas[1],
                     primary.member); /* until the new one has it dropped */
    rig_close(rig);
}

/* Who takes over may have died a moment ago; who was silent has all, and may be back. */
static void a_slow_primary_has_its_partition_again_when_its_successor_is_dead(void **state)
{
    struct rig_node nodes[3], left[2];
    struct rig *rig = rig_with(nodes, 3, 2);
    struct pst_map_partition before = *partition_of(rig, 7);
    struct rig_node slow = primary_of(rig, 7);
    uint16_t dead = before.replicas[1];

    (void)state;
    others(nodes, 3, slow.member, left);
    rig_wait(rig, 1000, left, 2);
    others(nodes, 3, dead, left);
    rig_wait(rig, 3500, left[0].member == slow.member ? &left[1] : &left[0], 1);
    assert_int_equal(primary_of(rig, 7).member, dead);
    rig_wait(rig, 20000, left, 2);
    assert_int_equal(partition_of(rig, 7)->state, PST_MAP_SERVED);
    assert_int_equal(primary_of(rig, 7).member, slow.member);
    assert_int_equal(partition_of(rig, 7)->replica_count, 1);
    assert_int_equal(partition_of(rig, 7)->base, before.base);
    rig_close(rig);
}

static void the_primary_alone_changes_its_copies(void **state)
{
    struct rig_node nodes[3];
    struct rig *rig = rig_with(nodes, 3, 2);
    struct rig_node primary = primary_of(rig, 9), backup = node_of(rig, partition_of(rig, 9)->replicas[1]),
                    third;
    uint64_t epoch = partition_of(rig, 9)->epoch;
    struct pst_heartbeat_answer answer;
    bool wanted = false;

    (void)state;
    third = nodes[3 - primary.member - backup.member];
    assert_int_equal(change(rig, PST_COPY_DROP, 9, epoch, backup, primary), -ESTALE);
    assert_int_equal(change(rig, PST_COPY_DROP, 9, epoch - 1, primary, backup), -ESTALE);
    assert_int_equal(change(rig, PST_COPY_JOIN, 9, epoch, primary, backup), -ESTALE); /* it is a copy */
    assert_int_equal(change(rig, PST_COPY_DROP, 9, epoch, primary, third),
                     0); /* it is none, and will not be */
    assert_int_equal(change(rig, PST_COPY_JOIN, 9, epoch++, primary, third), -ESTALE);
    assert_int_equal(change(rig, PST_COPY_DROP, 9, epoch, primary, primary), -EINVAL);
    assert_int_equal(change(rig, PST_COPY_DROP, 9, epoch, primary, backup), 0);
    assert_int_equal(change(rig, PST_COPY_DROP, 9, epoch, primary, backup), -ESTALE); /* done already */
    rig_store(rig);
    assert_int_equal(partition_of(rig, 9)->replica_count, 1);
    for (int i = 0; i < 20 && !wanted; i++) {
        assert_int_equal(rig_beat(rig, primary, 0, NULL, 0, &answer), 0);
        for (uint32_t j = 0; j < answer.want_count; j++)
            wanted |= answer.wants[j].partition == 9 && answer.wants[j].partition_epoch == epoch + 1;
    }
    assert_true(wanted);
    third.epoch++;
    assert_int_equal(change(rig, PST_COPY_JOIN, 9, epoch + 1, primary, third), -ESTALE);
    third.epoch--;
    assert_int_equal(change(rig, PST_COPY_JOIN, 9, epoch + 1, primary, third), 0);
    rig_store(rig);
    assert_int_equal(partition_of(rig, 9)->replicas[1], third.member);
    assert_int_equal(partition_of(rig, 9)->epoch, epoch + 2);
    rig_close(rig);
}

static void a_primary_hands_its_partition_over(void **state)
{
    struct rig_node primary, backup, third;
    struct rig *rig = rig_of_three(9, &primary, &backup, &third);
    uint64_t epoch = partition_of(rig, 9)->epoch;
    struct pst_heartbeat_answer answer;

    (void)state;
    assert_int_equal(change(rig, PST_COPY_LEAD, 9, epoch, backup, primary), -ESTALE);
    assert_int_equal(change(rig, PST_COPY_LEAD, 9, epoch, primary, third), -ESTALE);
    backup.epoch++;
    assert_int_equal(change(rig, PST_COPY_LEAD, 9, epoch, primary, backup), -ESTALE);
    backup.epoch--;
    assert_int_equal(change(rig, PST_COPY_LEAD, 9, epoch, primary, backup), 0);
    /* Of what it still has, it gets a lease once the pool map says what that is. */
    assert_int_equal(rig_beat(rig, primary, 0, NULL, 0, &answer), 0);
    assert_int_equal(answer.lease_ms, 0);
    rig_store(rig);
    assert_int_equal(rig_beat(rig, primary, 0, NULL, 0, &answer), 0);
    assert_int_equal(answer.lease_ms, 3000);
    assert_int_equal(answer.lease_version, pst_directory_map(rig->d)->version);
    assert_int_equal(partition_of(rig, 9)->replicas[0], backup.member);
    assert_int_equal(partition_of(rig, 9)->replicas[1], primary.member);
    assert_int_equal(partition_of(rig, 9)->epoch, epoch + 1);
    assert_int_equal(pst_map_lineage(epoch + 1), pst_map_lineage(epoch));
    rig_close(rig);
}

/* ---- restarts and leases ---- */

/* Does what the directory wants of the node, at once. */
static void obey(struct rig *rig, struct rig_node node)
{
    struct pst_heartbeat_answer answer;

    assert_int_equal(rig_beat(rig, node, 0, NULL, 0, &answer), 0);
    for (uint32_t i = 0; i < answer.want_count; i++)
        assert_int_equal(change(rig, answer.wants[i].leads ? PST_COPY_LEAD : PST_COPY_JOIN,
                                answer.wants[i].partition, answer.wants[i].partition_epoch, node,
                                node_of(rig, answer.wants[i].member)),
                         0);
    rig_tick(rig);
}

/* What keys had homes for has values still, and would be lost with the node. */
static void what_drains_lets_go_of_partitions_when_no_keys_have_homes_any_more(void **state)
{
    struct rig_node nodes[2];
    struct rig *rig = rig_with(nodes, 2, 1);
    const struct pst_id id = {{1}};
    struct pst_repair message = {
        .member = nodes[0].member, .epoch = nodes[0].epoch, .flags = PST_REPAIR_BEGIN | PST_REPAIR_END};
    struct pst_heartbeat_answer answer;
    struct pst_directory_node node;
    uint64_t version;

    (void)state;
    assert_int_equal(
        pst_directory_place(rig->d, (struct pst_bytes){"h/", 2}, PST_PLACE_ANYWHERE, 1, &version), 0);
    assert_int_equal(pst_directory_drain(rig->d, &id, true, &version), 0);
    rig_store(rig);
    for (int i = 0; i < 3 * PST_PARTITIONS / PST_WANTS_MAX; i++)
        obey(rig, nodes[0]);
    assert_int_equal(rig_beat(rig, nodes[0], 0, NULL, 0, &answer), 0);
    message.repair = answer.repair;
    assert_int_equal(pst_directory_repair(rig->d, &message, NULL, 0, rig->now_ns, NULL), 0);
    assert_int_equal(pst_directory_nodes(rig->d, 0, rig->now_ns, &node, 1), 1);
    assert_int_equal(node.primaries + node.copies, 0);
    assert_true(node.drained);
    for (uint32_t i = 0; i < PST_PARTITIONS; i++)
        assert_int_equal(primary_of(rig, i).member, nodes[1].member);
    rig_close(rig);
}

static void a_new_directory_moves_nothing_before_old_leases_end(void **state)
{
    struct rig_node nodes[3], left[2];
    struct rig *rig = rig_with(nodes, 3, 2);
    struct rig_node primary = primary_of(rig, 7);
    struct pst_bytes stored;
    struct pst_heartbeat_answer answer;

    (void)state;
    others(nodes, 3, primary.member, left);
    stored = (struct pst_bytes){rig->stored, rig->stored_bytes};
    pst_directory_close(rig->d);
    assert_int_equal(pst_directory_open(&rig->settings, stored, &(struct pst_id){{1}}, rig->now_ns, &rig->d),
                     0);
    assert_int_equal(rig_beat(rig, left[0], RIG_FULL, NULL, 0, &answer), 0);
    assert_int_equal(answer.lease_ms, 0); /* it is not known to be the only one */
    rig_store(rig);
    assert_int_equal(rig_beat(rig, left[1], RIG_FULL, NULL, 0, &answer), 0);
    assert_int_equal(answer.lease_ms, 3000);
    rig_wait(rig, 3500, left, 2);
    assert_int_equal(primary_of(rig, 7).member, primary.member);
    rig_wait(rig, 500, left, 2);
    assert_int_not_equal(primary_of(rig, 7).member, primary.member);
    rig_close(rig);
}

/* Nobody was heard while it was stopped: that is no silence of theirs. */
static void a_directory_that_was_stopped_moves_nothing(void **state)
{
    struct rig_node nodes[3], left[2];
    struct rig *rig = rig_with(nodes, 3, 2);
    struct rig_node primary = primary_of(rig, 7);
    uint64_t version = pst_directory_map(rig->d)->version;

    (void)state;
    rig->now_ns += 60000 * RIG_MS;
    rig_tick(rig);
    rig_wait(rig, 500, nodes, 3);
    assert_int_equal(pst_directory_map(rig->d)->version, version);
    rig->now_ns += 60000 * RIG_MS;
    rig_wait(rig, 500, nodes, 3); /* heartbeats that had come meanwhile are the first that it sees */
    assert_int_equal(pst_directory_map(rig->d)->version, version);
    assert_int_equal(pst_directory_counters(rig->d)->pauses, 2);
    others(nodes, 3, primary.member, left);
    rig_wait(rig, 4500, left, 2);
    assert_int_not_equal(primary_of(rig, 7).member, primary.member);
    rig_close(rig);
}

static void a_node_serves_by_lease_map_and_epoch(void **state)
{
    struct rig_node nodes[2];
    struct rig *rig = rig_with(nodes, 2, 2);
    const struct pst_map *map = pst_directory_map(rig->d);
    struct rig_node primary = primary_of(rig, 7), backup = node_of(rig, partition_of(rig, 7)->replicas[1]);
    struct pst_lease lease = {.until_ns = 0};

    (void)state;
    assert_int_equal(pst_lease_serve(&lease, map, primary.member, primary.epoch, 7, 0), PST_SERVE_BUSY);
    assert_true(pst_lease_grant(&lease, 1000 * RIG_MS, 3000, map->version, 2));
    assert_int_equal(pst_lease_serve(&lease, map, primary.member, primary.epoch, 7, 4000 * RIG_MS - 1),
                     PST_SERVE_YES);
    assert_int_equal(pst_lease_serve(&lease, map, primary.member, primary.epoch, 7, 4000 * RIG_MS),
                     PST_SERVE_BUSY);
    assert_int_equal(pst_lease_serve(&lease, map, backup.member, backup.epoch, 7, 0), PST_SERVE_ELSEWHERE);
    assert_int_equal(pst_lease_serve(&lease, map, primary.member, primary.epoch - 1, 7, 0),
                     PST_SERVE_ELSEWHERE);
    assert_false(pst_lease_grant(&lease, 9000 * RIG_MS, 3000, map->version, 1)); /* from a directory before */
    assert_true(pst_lease_grant(&lease, 500 * RIG_MS, 3000, map->version + 1, 2));
    assert_int_equal(pst_lease_serve(&lease, map, primary.member, primary.epoch, 7, 0), PST_SERVE_BUSY);
    assert_true(pst_lease_holds(&lease, map->version + 1, 4000 * RIG_MS - 1));
    pst_lease_drop(&lease);
    assert_false(pst_lease_holds(&lease, map->version + 1, 1));
    assert_int_equal(pst_lease_epoch(map, 7, partition_of(rig, 7)->epoch), PST_EPOCH_SAME);
    assert_int_equal(pst_lease_epoch(map, 7, partition_of(rig, 7)->epoch - 1), PST_EPOCH_OLD);
    assert_int_equal(pst_lease_epoch(map, 7, partition_of(rig, 7)->epoch + 1), PST_EPOCH_NEW);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(partitions_are_dealt_out_over_hosts),
        cmocka_unit_test(a_backup_takes_over_when_the_lease_is_long_over),
        cmocka_unit_test(a_slow_primary_has_its_partition_again_when_its_successor_is_dead),
        cmocka_unit_test(the_primary_alone_changes_its_copies),
        cmocka_unit_test(a_primary_hands_its_partition_over),
        cmocka_unit_test(what_drains_lets_go_of_partitions_when_no_keys_have_homes_any_more),
        cmocka_unit_test(a_new_directory_moves_nothing_before_old_leases_end),
        cmocka_unit_test(a_directory_that_was_stopped_moves_nothing),
        cmocka_unit_test(a_node_serves_by_lease_map_and_epoch),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* test_directory_last_copy.c: who joins, who comes back, and what becomes of partitions whose last copy is
 * away.
 */
#include "lib/directory_partitions_rig.h"

/* ---- the last copy ---- */

/* The nodes do at once what they are asked for. Return: the most that anyone was asked for at a time. */
static uint32_t follow_wants(struct rig *rig, const struct rig_node *nodes, uint32_t count, uint32_t rounds)
{
    static struct pst_heartbeat_answer answer;
    uint32_t most = 0;

    for (uint32_t round = 0; round < rounds; round++) {
        rig_wait(rig, 500, nodes, count);
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(rig_beat(rig, nodes[i], 0, NULL, 0, &answer), 0);
            most = (uint32_t)pst_max(most, answer.want_count);
            for (uint32_t j = 0; j < answer.want_count; j++) {
                const struct pst_want *want = &answer.wants[j];
                const struct pst_copy_request request = {.member = nodes[i].member,
                                                         .epoch = nodes[i].epoch,
                                                         .change =
                                                             want->leads ? PST_COPY_LEAD : PST_COPY_JOIN,
                                                         .partition = want->partition,
                                                         .partition_epoch = want->partition_epoch,
                                                         .copy = want->member,
                                                         .copy_epoch = want->member_epoch};
                uint64_t version;

                assert_int_equal(pst_directory_change_copy(rig->d, &request, &version), 0);
            }
            rig_store(rig);
        }
    }
    return most;
}

static uint32_t served_by(const struct rig *rig, struct rig_node node)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < PST_PARTITIONS; i++)
        count += partition_of(rig, i)->replicas[0] == node.member && partition_of(rig, i)->replica_count == 1;
    return count;
}

static bool any_lacks(const struct rig *rig, uint32_t replicas)
{
    bool lacks = false;

    for (uint32_t i = 0; i < PST_PARTITIONS; i++)
        lacks |= partition_of(rig, i)->replica_count < replicas;
    return lacks;
}

static void who_joins_gets_a_share_and_then_nothing_moves(void **state)
{
    struct rig_node nodes[3];
    struct rig *rig = rig_with(nodes, 1, 1);
    const struct pst_id third = {{3}};
    uint64_t version, balanced;

    (void)state;
    nodes[1] = rig_join(rig, 2, 2);
    assert_int_equal(follow_wants(rig, nodes, 2, 200), rig->settings.balance_partitions);
    assert_in_range(served_by(rig, nodes[0]), PST_PARTITIONS / 2, PST_PARTITIONS / 2 + 160);
    assert_int_equal(served_by(rig, nodes[0]) + served_by(rig, nodes[1]), PST_PARTITIONS);
    balanced = pst_directory_counters(rig->d)->balanced;
    assert_in_range(balanced, PST_PARTITIONS / 2 - 160, PST_PARTITIONS / 2);
    assert_int_equal(follow_wants(rig, nodes, 2, 20), 0);
    nodes[2] = rig_join(rig, 3, 3);
    assert_int_equal(pst_directory_drain(rig->d, &third, true, &version), 0);
    assert_int_equal(follow_wants(rig, nodes, 3, 20), 0);
    assert_int_equal(pst_directory_drain(rig->d, &third, false, &version), 0);
    place_home(rig, 3); /* what lacks copies gets them; until then nothing moves */
    for (int i = 0; i < 100 && any_lacks(rig, 3); i++) {
        assert_int_equal(pst_directory_counters(rig->d)->balanced, balanced);
        follow_wants(rig, nodes, 3, 1);
    }
    assert_false(any_lacks(rig, 3));
    follow_wants(rig, nodes, 3, 200);
    assert_true(pst_directory_counters(rig->d)->balanced > balanced); /* who serves what all have */
    rig_close(rig);
}

static void the_last_copy_may_come_back(void **state)
{
    struct rig_node nodes[2];
    struct rig *rig = rig_with(nodes, 2, 1);
    struct rig_node lost = primary_of(rig, 3), kept = nodes[1 - lost.member];
    uint64_t epoch = partition_of(rig, 3)->epoch, base = partition_of(rig, 3)->base;
    struct pst_registered out;

    (void)state;
    rig_wait(rig, 16000, &kept, 1);
    assert_int_equal(partition_of(rig, 3)->state, PST_MAP_INCOMPLETE);
    assert_true(pst_directory_map(rig->d)->members[lost.member].gone);
    rig_restart(rig); /* the pool map remembers whom it waits for */
    assert_int_equal(rig_register(rig, (uint8_t)(lost.member + 1), 1, 777, lost.epoch, &out), 0);
    assert_int_equal(out.member, lost.member);
    rig_store(rig);
    assert_int_equal(partition_of(rig, 3)->state, PST_MAP_SERVED);
    assert_int_equal(partition_of(rig, 3)->replicas[0], lost.member);
    assert_int_equal(partition_of(rig, 3)->epoch, epoch + 2);
    assert_int_equal(partition_of(rig, 3)->base, base);
    assert_false(partition_of(rig, 3)->lost);
    rig_close(rig);
}

/* It was taken in, and its membership ended before the answer came: it knows the one before alone. */
static void a_process_that_never_heard_of_its_membership_has_what_it_had(void **state)
{
    struct rig_node nodes[2];
    struct rig *rig = rig_with(nodes, 2, 1);
    struct rig_node lost = primary_of(rig, 3), kept = nodes[1 - lost.member];
    struct pst_registered out;

    (void)state;
    for (int round = 0; round < 2; round++) {
        rig_wait(rig, 16000, &kept, 1);
        assert_int_equal(partition_of(rig, 3)->state, PST_MAP_INCOMPLETE);
        assert_int_equal(rig_register(rig, (uint8_t)(lost.member + 1), 1, 777, lost.epoch, &out), 0);
        rig_store(rig);
        assert_int_equal(partition_of(rig, 3)->state, PST_MAP_SERVED);
        assert_int_equal(partition_of(rig, 3)->replicas[0], lost.member);
    }
    rig_close(rig);
}

/* Processes that are killed before they hear that they were taken in: nothing was written in between. That is
 * known as long as the membership is, also to the next master. */
static void processes_that_never_heard_of_their_memberships_have_what_there_was(void **state)
{
    (void)state;
    for (uint64_t ms = 5000; ms <= 16000; ms += 11000) { /* it is silent; it has ended */
        for (int restarts = 0; restarts < 2; restarts++) {
            struct rig_node nodes[2];
            struct rig *rig = rig_with(nodes, 2, 1);
            struct rig_node lost = primary_of(rig, 3), kept = nodes[1 - lost.member];
            struct pst_registered out;

            rig_wait(rig, 16000, &kept, 1);
            for (uint64_t start = 777; start < 780; start++) {
                assert_int_equal(rig_register(rig, (uint8_t)(lost.member + 1), 1, start, lost.epoch, &out),
                                 0);
                rig_store(rig);
                assert_int_equal(partition_of(rig, 3)->state, PST_MAP_SERVED);
                assert_int_equal(partition_of(rig, 3)->replicas[0], lost.member);
                assert_false(partition_of(rig, 3)->lost);
                if (restarts) {
                    rig_restart(rig);
                    rig_beat(rig, kept, PST_HEARTBEAT_BEGIN, NULL, 0, NULL);
                }
                rig_wait(rig, ms, &kept, 1);
            }
            rig_close(rig);
        }
    }
}

/* Who is heard may be given values, and another process may have lost them. That is known to the next master.
 */
static void a_membership_that_was_heard_has_values_of_its_own(void **state)
{
    (void)state;
    for (int restarts = 0; restarts < 2; restarts++) {
        struct rig_node nodes[2];
        struct rig *rig = rig_with(nodes, 2, 1);
        struct rig_node lost = primary_of(rig, 3), kept = nodes[1 - lost.member];
        struct pst_registered out;

        rig_wait(rig, 16000, &kept, 1);
        assert_int_equal(rig_register(rig, (uint8_t)(lost.member + 1), 1, 777, lost.epoch, &out), 0);
        rig_store(rig);
        assert_int_equal(partition_of(rig, 3)->state, PST_MAP_SERVED);
        rig->sequences[out.member] = 0;
        assert_int_equal(rig_beat(rig, (struct rig_node){out.member, out.epoch}, RIG_FULL, NULL, 0, NULL), 0);
        rig_store(rig);
        if (restarts) {
            rig_restart(rig);
            rig_beat(rig, kept, PST_HEARTBEAT_BEGIN, NULL, 0, NULL);
        }
        rig_wait(rig, 5000, &kept, 1);
        assert_int_equal(rig_register(rig, (uint8_t)(lost.member + 1), 1, 780, lost.epoch, &out), 0);
        rig_store(rig);
        assert_true(partition_of(rig, 3)->lost);
        rig_close(rig);
    }
}

/* Whom it is dealt to anew has dropped what it had. */
static void take(struct rig *rig, uint32_t partition)
{
    struct rig_node by = primary_of(rig, partition);

    assert_true(pst_map_partition_dealt(partition_of(rig, partition)));
    assert_int_equal(partition_of(rig, partition)->replica_count, 1);
    assert_int_equal(change(rig, PST_COPY_TAKE, partition, partition_of(rig, partition)->epoch, by, by), 0);
    rig_store(rig);
    assert_int_equal(partition_of(rig, partition)->state, PST_MAP_SERVED);
}

/* As long as it is not, nobody serves it, and nobody has anything of it: not who returns either. */
static void what_is_dealt_anew_is_taken_first(void **state)
{
    struct rig_node nodes[3];
    struct rig *rig = rig_with(nodes, 3, 2);
    struct rig_node to, other;
    struct pst_registered out;
    uint64_t epoch, version;

    (void)state;
    rig_wait(rig, 80000, NULL, 0);
    assert_int_equal(pst_directory_counters(rig->d)->partitions_lost, 0); /* to whom would they go? */
    for (uint16_t i = 0; i < 3; i++)
        nodes[i] = rig_join(rig, (uint8_t)(i + 1), (uint8_t)(i + 1));
    assert_int_equal(pst_directory_counters(rig->d)->partitions_lost, PST_PARTITIONS);
    rig_wait(rig, 5000, nodes, 3);
    to = primary_of(rig, 3);
    other = nodes[to.member == nodes[0].member ? 1 : 0];
    epoch = partition_of(rig, 3)->epoch;
    assert_int_equal(change(rig, PST_COPY_TAKE, 3, epoch, other, other), -ESTALE);
    assert_int_equal(change(rig, PST_COPY_TAKE, 3, epoch, to, other), -EINVAL);
    assert_int_equal(change(rig, PST_COPY_TAKE, 3, epoch - 1, to, to), -ESTALE);
    assert_int_equal(change(rig, PST_COPY_JOIN, 3, epoch, to, other), -ESTALE);
    rig_restart(rig);
    for (int i = 0; i < 3; i++)
        assert_int_equal(rig_beat(rig, nodes[i], PST_HEARTBEAT_BEGIN, NULL, 0, NULL), 0);
    rig_wait(rig, 80000, nodes, 3); /* it is waited for, as long as it is there */
    assert_int_equal(partition_of(rig, 3)->epoch, epoch);
    rig->now_ns += 4500 * RIG_MS;
    assert_int_equal(rig_register(rig, (uint8_t)(to.member + 1), 1, 777, to.epoch, &out), 0);
    rig_store(rig);
    assert_int_equal(partition_of(rig, 3)->state, PST_MAP_EMPTY);
    nodes[to.member].epoch = out.epoch;
    rig->sequences[to.member] = 0;
    assert_int_equal(rig_beat(rig, nodes[to.member], RIG_FULL, NULL, 0, NULL), 0);
    rig_wait(rig, 5000, nodes, 3);
    to = primary_of(rig, 3);
    assert_true(pst_map_partition_dealt(partition_of(rig, 3)));
    assert_int_equal(
        pst_directory_unregister(rig->d, to.member, to.epoch, PST_LEFT_KEPT, rig->now_ns, &version), 0);
    rig_store(rig);
    assert_int_equal(partition_of(rig, 3)->state, PST_MAP_EMPTY);
    assert_int_equal(pst_directory_counters(rig->d)->partitions_lost, 0); /* there was nothing to lose */
    rig_close(rig);
}

static void a_last_copy_that_kept_nothing_is_lost(void **state)
{
    struct rig_node nodes[2], again;
    struct rig *rig = rig_with(nodes, 2, 1);
    struct rig_node lost = primary_of(rig, 3), kept = nodes[1 - lost.member];
    uint64_t base = partition_of(rig, 3)->base, version;

    (void)state;
    rig_wait(rig, 16000, &kept, 1);
    again = rig_join(rig, (uint8_t)(lost.member + 1), (uint8_t)(lost.member + 1));
    assert_int_equal(partition_of(rig, 3)->state, PST_MAP_EMPTY);
    assert_true(partition_of(rig, 3)->lost);
    nodes[lost.member] = again;
    rig_wait(rig, 5000, nodes, 2);
    take(rig, 3);
    assert_true(partition_of(rig, 3)->lost && partition_of(rig, 3)->base > base);
    pst_directory_forgive(rig->d, &version);
    rig_store(rig);
    assert_false(partition_of(rig, 3)->lost);
    rig_close(rig);
}

/* Whoever is the only one with a partition says that its values end with it: nobody waits for it. */
static void what_ends_with_a_node_that_leaves_is_dealt_anew_at_once(void **state)
{
    static const struct {
        enum pst_left left;
        bool lost;
    } cases[] = {{PST_LEFT_LOST, true}, {PST_LEFT_VOID, false}};

    (void)state;
    for (size_t i = 0; i < pst_count_of(cases); i++) {
        struct rig_node nodes[2];
        struct rig *rig = rig_with(nodes, 1, 1);
        uint64_t base = partition_of(rig, 3)->base, version;

        assert_int_equal(pst_directory_unregister(rig->d, nodes[0].member, nodes[0].epoch, cases[i].left,
                                                  rig->now_ns, &version),
                         0);
        rig_store(rig);
        assert_int_equal(partition_of(rig, 3)->state, PST_MAP_EMPTY);
        assert_int_equal(partition_of(rig, 3)->lost, cases[i].lost);
        assert_int_equal(pst_directory_counters(rig->d)->partitions_lost, cases[i].lost ? PST_PARTITIONS : 0);
        assert_int_equal(pst_directory_map(rig->d)->members[nodes[0].member].epoch, 0);
        nodes[1] = rig_join(rig, 2, 2);
        rig_wait(rig, 5000, &nodes[1], 1);
        take(rig, 3);
        assert_int_equal(partition_of(rig, 3)->replicas[0], nodes[1].member);
        assert_true(partition_of(rig, 3)->base > base);
        assert_int_equal(partition_of(rig, 3)->lost, cases[i].lost);
        rig_close(rig);
    }
}

/* The other copy is silent: it may be back with all, and is waited for. */
static void a_silent_copy_is_waited_for_when_the_other_ends(void **state)
{
    struct rig_node nodes[2];
    struct rig *rig = rig_with(nodes, 2, 2);
    struct rig_node leaver = primary_of(rig, 3), silent = nodes[1 - leaver.member];
    struct pst_registered out;
    uint64_t version;

    (void)state;
    rig_wait(rig, 5000, &leaver, 1);
    assert_int_equal(partition_of(rig, 3)->replica_count, 2);
    assert_int_equal(
        pst_directory_unregister(rig->d, leaver.member, leaver.epoch, PST_LEFT_LOST, rig->now_ns, &version),
        0);
    rig_store(rig);
    assert_int_equal(partition_of(rig, 3)->state, PST_MAP_INCOMPLETE);
    assert_int_equal(partition_of(rig, 3)->replica_count, 1);
    assert_false(partition_of(rig, 3)->lost);
    assert_int_equal(rig_register(rig, (uint8_t)(silent.member + 1), 1, 777, silent.epoch, &out), 0);
    rig_store(rig);
    assert_int_equal(partition_of(rig, 3)->state, PST_MAP_SERVED);
    assert_int_equal(partition_of(rig, 3)->replicas[0], silent.member);
    assert_false(partition_of(rig, 3)->lost);
    rig_close(rig);
}

/* Comes back with its disk alone. */
static struct pst_register returns(const struct rig_node *node, uint64_t start, bool durable)
{
    return (struct pst_register){.id = {{(uint8_t)(node->member + 1)}},
                                 .host = {{(uint8_t)(node->member + 1)}},
                                 .start = start,
                                 .kept_epoch = node->epoch,
                                 .kept_durable = durable,
                                 .address = "127.0.0.1:7000",
                                 .unix_path = "",
                                 .tags = ""};
}

static uint64_t come_back(struct rig *rig, struct rig_node node)
{
    struct pst_register message = returns(&node, rig->now_ns, true);
    struct pst_registered out;

    assert_int_equal(pst_directory_register(rig->d, &message, rig->now_ns, &out), 0);
    assert_int_equal(out.member, node.member);
    rig_store(rig);
    rig->sequences[out.member] = 0;
    assert_int_equal(rig_beat(rig, (struct rig_node){out.member, out.epoch}, RIG_FULL, NULL, 0, NULL), 0);
    return out.epoch;
}

static void what_was_durable_waits_for_more(void **state)
{
    struct rig_node primary, backup, third;
    struct rig *rig = rig_of_three(5, &primary, &backup, &third);
    uint64_t base = partition_of(rig, 5)->base;
    struct pst_registered out;

    (void)state;
    rig_wait(rig, 16000, &third, 1);
    primary.epoch = come_back(rig, primary);
    assert_int_equal(partition_of(rig, 5)->state, PST_MAP_INCOMPLETE);
    assert_int_equal(partition_of(rig, 5)->sparse, 1);
    assert_int_equal(partition_of(rig, 5)->replicas[0], backup.member);
    rig_restart(rig); /* the pool map remembers who has less */
    assert_int_equal(rig_beat(rig, third, PST_HEARTBEAT_BEGIN, NULL, 0, NULL), 0);
    assert_int_equal(rig_beat(rig, primary, PST_HEARTBEAT_BEGIN, NULL, 0, NULL), 0);
    rig_wait(rig, 2000, (struct rig_node[]){third, primary}, 2);
    assert_int_equal(partition_of(rig, 5)->state, PST_MAP_INCOMPLETE);
    assert_int_equal(rig_register(rig, (uint8_t)(backup.member + 1), (uint8_t)(backup.member + 1), 777,
                                  backup.epoch, &out),
                     0);
    rig_store(rig);
    assert_int_equal(partition_of(rig, 5)->state, PST_MAP_SERVED);
    assert_int_equal(partition_of(rig, 5)->replica_count, 1);
    assert_int_equal(partition_of(rig, 5)->replicas[0], backup.member);
    assert_true(partition_of(rig, 5)->base == base && !partition_of(rig, 5)->lost &&
                !partition_of(rig, 5)->sparse);
    rig_close(rig);
}

static void what_was_durable_is_taken_up(void **state)
{
    struct rig_node primary, backup, third;
    struct rig *rig = rig_of_three(5, &primary, &backup, &third);
    uint64_t base = partition_of(rig, 5)->base;

    (void)state;
    rig_wait(rig, 16000, &third, 1);
    primary.epoch = come_back(rig, primary);
    rig_wait(rig, 1000, (struct rig_node[]){third, primary}, 2);
    backup.epoch = come_back(rig, backup); /* nobody has more */
    rig_wait(rig, 1000, (struct rig_node[]){third, primary, backup}, 3);
    assert_int_equal(partition_of(rig, 5)->state, PST_MAP_SERVED);
    assert_int_equal(partition_of(rig, 5)->replica_count, 1);
    assert_true(partition_of(rig, 5)->lost && partition_of(rig, 5)->base == base &&
                !partition_of(rig, 5)->sparse);
    rig_close(rig);
}

/* The other one was heard a moment later, and then no more. Who comes back has all that it had, or what was
 * durable. */
static void who_failed_last_is_not_taken_for_alive(void **state)
{
    (void)state;
    for (int durable = 0; durable < 2; durable++) {
        struct rig_node primary, backup, third;
        struct rig *rig = rig_of_three(5, &primary, &backup, &third);
        struct pst_register message = returns(&primary, 777, durable);
        struct pst_registered out;

        rig_wait(rig, 500, (struct rig_node[]){third, backup}, 2);
        rig_wait(rig, 3500, &third, 1);
        assert_int_equal(pst_directory_register(rig->d, &message, rig->now_ns, &out), -EAGAIN);
        rig_wait(rig, 500, &third, 1);
        assert_int_equal(pst_directory_register(rig->d, &message, rig->now_ns, &out), 0);
        rig_store(rig);
        assert_int_equal(partition_of(rig, 5)->state, durable ? PST_MAP_INCOMPLETE : PST_MAP_SERVED);
        assert_int_equal(partition_of(rig, 5)->replica_count, 2);
        assert_true(durable || partition_of(rig, 5)->replicas[0] == primary.member);
        rig_close(rig);
    }
}

/* A master that succeeds another gives each member the time that a lease may have left. Of one that is not
 * heard it is not known that it lives. */
static void who_was_never_heard_is_not_taken_for_alive(void **state)
{
    struct rig_node primary, backup, third;
    struct rig *rig = rig_of_three(5, &primary, &backup, &third);
    struct pst_register message = returns(&primary, 777, true);
    struct pst_registered out;

    (void)state;
    rig_restart(rig);
    pst_directory_succeed(rig->d, rig->now_ns + 30000000000, 0);
    assert_int_equal(rig_beat(rig, primary, PST_HEARTBEAT_BEGIN, NULL, 0, NULL), 0);
    assert_int_equal(rig_beat(rig, third, PST_HEARTBEAT_BEGIN, NULL, 0, NULL), 0);
    rig_wait(rig, 7000, &third, 1);
    assert_int_equal(pst_directory_register(rig->d, &message, rig->now_ns, &out), -EAGAIN);
    rig_wait(rig, 28000, &third, 1);
    assert_int_equal(pst_directory_register(rig->d, &message, rig->now_ns, &out), 0);
    rig_store(rig);
    assert_true(pst_map_replica_at(partition_of(rig, 5), primary.member) >= 0);
    rig_close(rig);
}

/* A master begins with shorter leases than the one before it. Until the longer ones have run out, of who was
 * never heard, and of who was heard once, nobody gets their partitions, and the next master is told. */
static void who_has_a_longer_lease_of_the_master_before_serves_on(void **state)
{
    (void)state;
    for (int heard = 0; heard < 2; heard++) {
        struct rig_node primary, backup, third;
        struct rig *rig = rig_of_three(5, &primary, &backup, &third);
        struct rig_node others[] = {backup, third};
        uint64_t before_ms = rig->settings.lease_ms;

        rig->settings.lease_ms = 500;
        rig_restart(rig);
        pst_directory_succeed(rig->d, rig->now_ns, before_ms);
        for (int i = 0; i < 2; i++)
            assert_int_equal(rig_beat(rig, others[i], RIG_FULL, NULL, 0, NULL), 0);
        rig_wait(rig, 500, others, 2);
        if (heard)
            assert_int_equal(rig_beat(rig, primary, RIG_FULL, NULL, 0, NULL), 0);
        rig_wait(rig, before_ms - 500 * !heard + 500, others, 2);
        assert_int_equal(partition_of(rig, 5)->replicas[0], primary.member);
        rig_wait(rig, 1000, others, 2);
        assert_int_equal(partition_of(rig, 5)->replicas[0], backup.member);
        assert_int_equal(pst_directory_lease_ms(rig->d, rig->now_ns), 500);
        rig_restart(rig);
        pst_directory_succeed(rig->d, rig->now_ns, before_ms);
        assert_int_equal(pst_directory_lease_ms(rig->d, rig->now_ns), before_ms);
        rig_close(rig);
    }
}

static void nobody_waits_for_ever_for_more_than_was_durable(void **state)
{
    struct rig_node primary, backup, third;
    struct rig *rig = rig_of_three(5, &primary, &backup, &third);

    (void)state;
    rig_wait(rig, 16000, &third, 1);
    primary.epoch = come_back(rig, primary);
    rig_wait(rig, 40000, (struct rig_node[]){third, primary}, 2);
    assert_int_equal(partition_of(rig, 5)->state, PST_MAP_INCOMPLETE);
    rig_wait(rig, 25000, (struct rig_node[]){third, primary}, 2);
    assert_int_equal(partition_of(rig, 5)->state, PST_MAP_SERVED);
    assert_int_equal(partition_of(rig, 5)->replicas[0], primary.member);
    assert_true(partition_of(rig, 5)->lost);
    rig_close(rig);
}

static void after_a_while_nobody_waits_for_the_last_copy(void **state)
{
    struct rig_node nodes[2];
    struct rig *rig = rig_with(nodes, 2, 1);
    struct rig_node lost = primary_of(rig, 3), kept = nodes[1 - lost.member];

    (void)state;
    rig_wait(rig, 60000, &kept, 1);
    assert_int_equal(partition_of(rig, 3)->state, PST_MAP_INCOMPLETE);
    rig->settings.nodes_min = 1; /* the other alone takes them, in the directory that follows */
    rig_restart(rig);
    assert_int_equal(rig_beat(rig, kept, PST_HEARTBEAT_BEGIN, NULL, 0, NULL), 0);
    rig_wait(rig, 75000, &kept, 1);
    take(rig, 3);
    assert_int_equal(partition_of(rig, 3)->replicas[0], kept.member);
    assert_true(partition_of(rig, 3)->lost);
    assert_int_equal(pst_directory_map(rig->d)->members[lost.member].epoch, 0); /* nothing refers to it */
    rig_close(rig);
}

static void silent_copies_are_all_waited_for(void **state)
{
    struct rig_node primary, backup, third;
    struct rig *rig = rig_of_three(5, &primary, &backup, &third);

    (void)state;
    rig_wait(rig, 9000, &third, 1); /* both are silent, neither is dead */
    assert_int_equal(partition_of(rig, 5)->state, PST_MAP_SERVED);
    assert_int_equal(rig_beat(rig, backup, 0, NULL, 0, NULL), 0);
    rig_tick(rig);
    assert_int_equal(primary_of(rig, 5).member, backup.member);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_joins_gets_a_share_and_then_nothing_moves),
        cmocka_unit_test(the_last_copy_may_come_back),
        cmocka_unit_test(a_process_that_never_heard_of_its_membership_has_what_it_had),
        cmocka_unit_test(processes_that_never_heard_of_their_memberships_have_what_there_was),
        cmocka_unit_test(a_membership_that_was_heard_has_values_of_its_own),
        cmocka_unit_test(what_is_dealt_anew_is_taken_first),
        cmocka_unit_test(a_last_copy_that_kept_nothing_is_lost),
        cmocka_unit_test(what_ends_with_a_node_that_leaves_is_dealt_anew_at_once),
        cmocka_unit_test(a_silent_copy_is_waited_for_when_the_other_ends),
        cmocka_unit_test(what_was_durable_waits_for_more),
        cmocka_unit_test(what_was_durable_is_taken_up),
        cmocka_unit_test(who_failed_last_is_not_taken_for_alive),
        cmocka_unit_test(who_was_never_heard_is_not_taken_for_alive),
        cmocka_unit_test(who_has_a_longer_lease_of_the_master_before_serves_on),
        cmocka_unit_test(nobody_waits_for_ever_for_more_than_was_durable),
        cmocka_unit_test(after_a_while_nobody_waits_for_the_last_copy),
        cmocka_unit_test(silent_copies_are_all_waited_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

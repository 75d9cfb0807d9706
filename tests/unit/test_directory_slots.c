#include "directory_rig.h"

#include "directory/lease.h"

static const struct pst_view_slot *slot_of(const struct rig *rig, uint32_t slot)
{
    return &pst_directory_view(rig->d)->slots[slot];
}

static struct rig_node primary_of(const struct rig *rig, uint32_t slot)
{
    uint16_t member = slot_of(rig, slot)->copies[0];

    return (struct rig_node){member, pst_directory_view(rig->d)->members[member].epoch};
}

static void place_home(struct rig *rig, uint32_t replicas)
{
    uint64_t version;

    assert_int_equal(
        pst_directory_place(rig->d, (struct pst_bytes){"h/", 2}, PST_PLACE_HOME, replicas, &version), 0);
}

/* Nodes on hosts of their own, with all slots dealt out among them. */
static struct rig *rig_with(struct rig_node *nodes, uint32_t count, uint32_t replicas)
{
    struct rig *rig = rig_open();

    rig->settings.nodes_min = count;
    pst_directory_close(rig->d);
    assert_int_equal(
        pst_directory_open(&rig->settings, (struct pst_bytes){NULL, 0}, 42, rig->now_ns, &rig->d), 0);
    place_home(rig, replicas);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(slot_of(rig, 0)->state, PST_VIEW_EMPTY);
        nodes[i] = rig_join(rig, (uint8_t)(i + 1), (uint8_t)(i + 1));
        rig_tick(rig);
    }
    rig_wait(rig, 5000, nodes, count);
    return rig;
}

/* The nodes but @out, moved to the front of a copy. */
static void others(const struct rig_node *nodes, uint32_t count, uint16_t out, struct rig_node *left)
{
    for (uint32_t i = 0; i < count; i++)
        if (nodes[i].member != out)
            *left++ = nodes[i];
}

static void slots_are_dealt_out_over_hosts(void **state)
{
    struct rig_node nodes[4];
    struct rig *rig = rig_with(nodes, 4, 2);
    uint32_t shares[4] = {0};

    (void)state;
    for (uint32_t i = 0; i < PST_SLOTS; i++) {
        const struct pst_view_slot *slot = slot_of(rig, i);

        assert_int_equal(slot->state, PST_VIEW_SERVED);
        assert_int_equal(slot->copy_count, 2);
        assert_int_not_equal(slot->copies[0], slot->copies[1]);
        assert_int_equal(slot->base, slot->epoch);
        shares[slot->copies[0]]++;
    }
    for (int i = 0; i < 4; i++)
        assert_in_range(shares[i], PST_SLOTS / 4 - 150, PST_SLOTS / 4 + 150);
    rig_close(rig);
}

static void a_backup_takes_over_when_the_lease_is_long_over(void **state)
{
    struct rig_node nodes[3], left[2];
    struct rig *rig = rig_with(nodes, 3, 2);
    struct pst_view_slot before = *slot_of(rig, 7);
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
    assert_int_equal(answer.lease_version, version); /* and that view says: */
    assert_int_equal(primary_of(rig, 7).member, before.copies[1]);
    assert_int_equal(slot_of(rig, 7)->epoch, before.epoch + 2);
    assert_int_equal(slot_of(rig, 7)->base, before.base);
    assert_int_equal(slot_of(rig, 7)->copies[1], primary.member); /* until the new one has it dropped */
    rig_close(rig);
}

/* Who takes over may have died a moment ago; who was silent has all, and may be back. */
static void a_slow_primary_has_its_slot_again_when_its_successor_is_dead(void **state)
{
    struct rig_node nodes[3], left[2];
    struct rig *rig = rig_with(nodes, 3, 2);
    struct pst_view_slot before = *slot_of(rig, 7);
    struct rig_node slow = primary_of(rig, 7);
    uint16_t dead = before.copies[1];

    (void)state;
    others(nodes, 3, slow.member, left);
    rig_wait(rig, 1000, left, 2);
    others(nodes, 3, dead, left);
    rig_wait(rig, 3500, left[0].member == slow.member ? &left[1] : &left[0], 1);
    assert_int_equal(primary_of(rig, 7).member, dead);
    rig_wait(rig, 20000, left, 2);
    assert_int_equal(slot_of(rig, 7)->state, PST_VIEW_SERVED);
    assert_int_equal(primary_of(rig, 7).member, slow.member);
    assert_int_equal(slot_of(rig, 7)->copy_count, 1);
    assert_int_equal(slot_of(rig, 7)->base, before.base);
    rig_close(rig);
}

static int change(struct rig *rig, enum pst_copy_change kind, uint32_t slot, uint64_t epoch,
                  struct rig_node by, struct rig_node copy)
{
    struct pst_copy_request request = {.member = by.member,
                                       .epoch = by.epoch,
                                       .change = kind,
                                       .slot = (uint16_t)slot,
                                       .slot_epoch = epoch,
                                       .copy = copy.member,
                                       .copy_epoch = copy.epoch};
    uint64_t version;

    return pst_directory_change_copy(rig->d, &request, &version);
}

static struct rig_node node_of(const struct rig *rig, uint16_t member)
{
    return (struct rig_node){member, pst_directory_view(rig->d)->members[member].epoch};
}

static void the_primary_alone_changes_its_copies(void **state)
{
    struct rig_node nodes[3];
    struct rig *rig = rig_with(nodes, 3, 2);
    struct rig_node primary = primary_of(rig, 9), backup = node_of(rig, slot_of(rig, 9)->copies[1]), third;
    uint64_t epoch = slot_of(rig, 9)->epoch;
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
    assert_int_equal(slot_of(rig, 9)->copy_count, 1);
    for (int i = 0; i < 20 && !wanted; i++) {
        assert_int_equal(rig_beat(rig, primary, 0, NULL, 0, &answer), 0);
        for (uint32_t j = 0; j < answer.want_count; j++)
            wanted |= answer.wants[j].slot == 9 && answer.wants[j].slot_epoch == epoch + 1;
    }
    assert_true(wanted);
    third.epoch++;
    assert_int_equal(change(rig, PST_COPY_JOIN, 9, epoch + 1, primary, third), -ESTALE);
    third.epoch--;
    assert_int_equal(change(rig, PST_COPY_JOIN, 9, epoch + 1, primary, third), 0);
    rig_store(rig);
    assert_int_equal(slot_of(rig, 9)->copies[1], third.member);
    assert_int_equal(slot_of(rig, 9)->epoch, epoch + 2);
    rig_close(rig);
}

/* Two copies of the slot, and a node without. */
static struct rig *rig_of_three(uint32_t slot, struct rig_node *primary, struct rig_node *backup,
                                struct rig_node *third)
{
    struct rig_node nodes[3];
    struct rig *rig = rig_with(nodes, 3, 2);

    *primary = primary_of(rig, slot);
    *backup = node_of(rig, slot_of(rig, slot)->copies[1]);
    *third = nodes[3 - primary->member - backup->member];
    return rig;
}

static void a_primary_hands_its_slot_over(void **state)
{
    struct rig_node primary, backup, third;
    struct rig *rig = rig_of_three(9, &primary, &backup, &third);
    uint64_t epoch = slot_of(rig, 9)->epoch;
    struct pst_heartbeat_answer answer;

    (void)state;
    assert_int_equal(change(rig, PST_COPY_LEAD, 9, epoch, backup, primary), -ESTALE);
    assert_int_equal(change(rig, PST_COPY_LEAD, 9, epoch, primary, third), -ESTALE);
    backup.epoch++;
    assert_int_equal(change(rig, PST_COPY_LEAD, 9, epoch, primary, backup), -ESTALE);
    backup.epoch--;
    assert_int_equal(change(rig, PST_COPY_LEAD, 9, epoch, primary, backup), 0);
    /* Of what it still has, it gets a lease once the view says what that is. */
    assert_int_equal(rig_beat(rig, primary, 0, NULL, 0, &answer), 0);
    assert_int_equal(answer.lease_ms, 0);
    rig_store(rig);
    assert_int_equal(rig_beat(rig, primary, 0, NULL, 0, &answer), 0);
    assert_int_equal(answer.lease_ms, 3000);
    assert_int_equal(answer.lease_version, pst_directory_view(rig->d)->version);
    assert_int_equal(slot_of(rig, 9)->copies[0], backup.member);
    assert_int_equal(slot_of(rig, 9)->copies[1], primary.member);
    assert_int_equal(slot_of(rig, 9)->epoch, epoch + 1);
    rig_close(rig);
}

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
                                                         .slot = want->slot,
                                                         .slot_epoch = want->slot_epoch,
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

    for (uint32_t i = 0; i < PST_SLOTS; i++)
        count += slot_of(rig, i)->copies[0] == node.member && slot_of(rig, i)->copy_count == 1;
    return count;
}

static bool any_lacks(const struct rig *rig, uint32_t replicas)
{
    bool lacks = false;

    for (uint32_t i = 0; i < PST_SLOTS; i++)
        lacks |= slot_of(rig, i)->copy_count < replicas;
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
    assert_int_equal(follow_wants(rig, nodes, 2, 200), rig->settings.balance_slots);
    assert_in_range(served_by(rig, nodes[0]), PST_SLOTS / 2, PST_SLOTS / 2 + 160);
    assert_int_equal(served_by(rig, nodes[0]) + served_by(rig, nodes[1]), PST_SLOTS);
    balanced = pst_directory_counters(rig->d)->balanced;
    assert_in_range(balanced, PST_SLOTS / 2 - 160, PST_SLOTS / 2);
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
    uint64_t epoch = slot_of(rig, 3)->epoch, base = slot_of(rig, 3)->base;
    struct pst_registered out;

    (void)state;
    rig_wait(rig, 16000, &kept, 1);
    assert_int_equal(slot_of(rig, 3)->state, PST_VIEW_INCOMPLETE);
    assert_true(pst_directory_view(rig->d)->members[lost.member].gone);
    rig_restart(rig); /* the view remembers whom it waits for */
    assert_int_equal(rig_register(rig, (uint8_t)(lost.member + 1), 1, 777, lost.epoch, &out), 0);
    assert_int_equal(out.member, lost.member);
    rig_store(rig);
    assert_int_equal(slot_of(rig, 3)->state, PST_VIEW_SERVED);
    assert_int_equal(slot_of(rig, 3)->copies[0], lost.member);
    assert_int_equal(slot_of(rig, 3)->epoch, epoch + 2);
    assert_int_equal(slot_of(rig, 3)->base, base);
    assert_false(slot_of(rig, 3)->lost);
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
        assert_int_equal(slot_of(rig, 3)->state, PST_VIEW_INCOMPLETE);
        assert_int_equal(rig_register(rig, (uint8_t)(lost.member + 1), 1, 777, lost.epoch, &out), 0);
        rig_store(rig);
        assert_int_equal(slot_of(rig, 3)->state, PST_VIEW_SERVED);
        assert_int_equal(slot_of(rig, 3)->copies[0], lost.member);
    }
    rig_wait(rig, 16000, &kept, 1); /* and another process may have lost what it was given in between */
    assert_int_equal(rig_register(rig, (uint8_t)(lost.member + 1), 1, 778, lost.epoch, &out), 0);
    rig_store(rig);
    assert_true(slot_of(rig, 3)->lost);
    rig_close(rig);
}

/* Whom it is dealt to anew has dropped what it had. */
static void take(struct rig *rig, uint32_t slot)
{
    struct rig_node by = primary_of(rig, slot);

    assert_true(pst_view_slot_dealt(slot_of(rig, slot)));
    assert_int_equal(slot_of(rig, slot)->copy_count, 1);
    assert_int_equal(change(rig, PST_COPY_TAKE, slot, slot_of(rig, slot)->epoch, by, by), 0);
    rig_store(rig);
    assert_int_equal(slot_of(rig, slot)->state, PST_VIEW_SERVED);
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
    assert_int_equal(pst_directory_counters(rig->d)->slots_lost, 0); /* to whom would they go? */
    for (uint16_t i = 0; i < 3; i++)
        nodes[i] = rig_join(rig, (uint8_t)(i + 1), (uint8_t)(i + 1));
    assert_int_equal(pst_directory_counters(rig->d)->slots_lost, PST_SLOTS);
    rig_wait(rig, 5000, nodes, 3);
    to = primary_of(rig, 3);
    other = nodes[to.member == nodes[0].member ? 1 : 0];
    epoch = slot_of(rig, 3)->epoch;
    assert_int_equal(change(rig, PST_COPY_TAKE, 3, epoch, other, other), -ESTALE);
    assert_int_equal(change(rig, PST_COPY_TAKE, 3, epoch, to, other), -EINVAL);
    assert_int_equal(change(rig, PST_COPY_TAKE, 3, epoch - 1, to, to), -ESTALE);
    assert_int_equal(change(rig, PST_COPY_JOIN, 3, epoch, to, other), -ESTALE);
    rig_restart(rig);
    for (int i = 0; i < 3; i++)
        assert_int_equal(rig_beat(rig, nodes[i], PST_HEARTBEAT_BEGIN, NULL, 0, NULL), 0);
    rig_wait(rig, 80000, nodes, 3); /* it is waited for, as long as it is there */
    assert_int_equal(slot_of(rig, 3)->epoch, epoch);
    rig->now_ns += 4500 * RIG_MS;
    assert_int_equal(rig_register(rig, (uint8_t)(to.member + 1), 1, 777, to.epoch, &out), 0);
    rig_store(rig);
    assert_int_equal(slot_of(rig, 3)->state, PST_VIEW_EMPTY);
    nodes[to.member].epoch = out.epoch;
    rig->sequences[to.member] = 0;
    assert_int_equal(rig_beat(rig, nodes[to.member], RIG_FULL, NULL, 0, NULL), 0);
    rig_wait(rig, 5000, nodes, 3);
    to = primary_of(rig, 3);
    assert_true(pst_view_slot_dealt(slot_of(rig, 3)));
    assert_int_equal(pst_directory_unregister(rig->d, to.member, to.epoch, rig->now_ns, &version), 0);
    rig_store(rig);
    assert_int_equal(slot_of(rig, 3)->state, PST_VIEW_EMPTY);
    assert_int_equal(pst_directory_counters(rig->d)->slots_lost, 0); /* there was nothing to lose */
    rig_close(rig);
}

static void a_last_copy_that_kept_nothing_is_lost(void **state)
{
    struct rig_node nodes[2], again;
    struct rig *rig = rig_with(nodes, 2, 1);
    struct rig_node lost = primary_of(rig, 3), kept = nodes[1 - lost.member];
    uint64_t base = slot_of(rig, 3)->base, version;

    (void)state;
    rig_wait(rig, 16000, &kept, 1);
    again = rig_join(rig, (uint8_t)(lost.member + 1), (uint8_t)(lost.member + 1));
    assert_int_equal(slot_of(rig, 3)->state, PST_VIEW_EMPTY);
    assert_true(slot_of(rig, 3)->lost);
    nodes[lost.member] = again;
    rig_wait(rig, 5000, nodes, 2);
    take(rig, 3);
    assert_true(slot_of(rig, 3)->lost && slot_of(rig, 3)->base > base);
    pst_directory_forgive(rig->d, &version);
    rig_store(rig);
    assert_false(slot_of(rig, 3)->lost);
    rig_close(rig);
}

/* Comes back with its disk alone. */
static uint64_t come_back(struct rig *rig, struct rig_node node)
{
    struct pst_register message = {.id = {{(uint8_t)(node.member + 1)}},
                                   .host = {{(uint8_t)(node.member + 1)}},
                                   .start = rig->now_ns,
                                   .kept_epoch = node.epoch,
                                   .kept_durable = true,
                                   .address = "127.0.0.1:7000",
                                   .unix_path = "",
                                   .tags = ""};
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
    uint64_t base = slot_of(rig, 5)->base;
    struct pst_registered out;

    (void)state;
    rig_wait(rig, 16000, &third, 1);
    primary.epoch = come_back(rig, primary);
    assert_int_equal(slot_of(rig, 5)->state, PST_VIEW_INCOMPLETE);
    assert_int_equal(slot_of(rig, 5)->sparse, 1);
    assert_int_equal(slot_of(rig, 5)->copies[0], backup.member);
    rig_restart(rig); /* the view remembers who has less */
    assert_int_equal(rig_beat(rig, third, PST_HEARTBEAT_BEGIN, NULL, 0, NULL), 0);
    assert_int_equal(rig_beat(rig, primary, PST_HEARTBEAT_BEGIN, NULL, 0, NULL), 0);
    rig_wait(rig, 2000, (struct rig_node[]){third, primary}, 2);
    assert_int_equal(slot_of(rig, 5)->state, PST_VIEW_INCOMPLETE);
    assert_int_equal(rig_register(rig, (uint8_t)(backup.member + 1), (uint8_t)(backup.member + 1), 777,
                                  backup.epoch, &out),
                     0);
    rig_store(rig);
    assert_int_equal(slot_of(rig, 5)->state, PST_VIEW_SERVED);
    assert_int_equal(slot_of(rig, 5)->copy_count, 1);
    assert_int_equal(slot_of(rig, 5)->copies[0], backup.member);
    assert_true(slot_of(rig, 5)->base == base && !slot_of(rig, 5)->lost && !slot_of(rig, 5)->sparse);
    rig_close(rig);
}

static void what_was_durable_is_taken_up(void **state)
{
    struct rig_node primary, backup, third;
    struct rig *rig = rig_of_three(5, &primary, &backup, &third);
    uint64_t base = slot_of(rig, 5)->base;

    (void)state;
    rig_wait(rig, 16000, &third, 1);
    primary.epoch = come_back(rig, primary);
    rig_wait(rig, 1000, (struct rig_node[]){third, primary}, 2);
    backup.epoch = come_back(rig, backup); /* nobody has more */
    rig_wait(rig, 1000, (struct rig_node[]){third, primary, backup}, 3);
    assert_int_equal(slot_of(rig, 5)->state, PST_VIEW_SERVED);
    assert_int_equal(slot_of(rig, 5)->copy_count, 1);
    assert_true(slot_of(rig, 5)->lost && slot_of(rig, 5)->base == base && !slot_of(rig, 5)->sparse);
    rig_close(rig);
}

/* The other one was heard a moment later, and then no more. */
static void who_failed_last_is_not_taken_for_alive(void **state)
{
    struct rig_node primary, backup, third;
    struct rig *rig = rig_of_three(5, &primary, &backup, &third);
    struct pst_register message = {.id = {{(uint8_t)(primary.member + 1)}},
                                   .start = 777,
                                   .kept_epoch = primary.epoch,
                                   .kept_durable = true,
                                   .address = "127.0.0.1:7000",
                                   .unix_path = "",
                                   .tags = ""};
    struct pst_registered out;

    (void)state;
    rig_wait(rig, 500, (struct rig_node[]){third, backup}, 2);
    rig_wait(rig, 3500, &third, 1);
    assert_int_equal(pst_directory_register(rig->d, &message, rig->now_ns, &out), -EAGAIN);
    rig_wait(rig, 500, &third, 1);
    assert_int_equal(pst_directory_register(rig->d, &message, rig->now_ns, &out), 0);
    rig_store(rig);
    assert_int_equal(slot_of(rig, 5)->state, PST_VIEW_INCOMPLETE);
    assert_int_equal(slot_of(rig, 5)->copy_count, 2);
    rig_close(rig);
}

static void nobody_waits_for_ever_for_more_than_was_durable(void **state)
{
    struct rig_node primary, backup, third;
    struct rig *rig = rig_of_three(5, &primary, &backup, &third);

    (void)state;
    rig_wait(rig, 16000, &third, 1);
    primary.epoch = come_back(rig, primary);
    rig_wait(rig, 40000, (struct rig_node[]){third, primary}, 2);
    assert_int_equal(slot_of(rig, 5)->state, PST_VIEW_INCOMPLETE);
    rig_wait(rig, 25000, (struct rig_node[]){third, primary}, 2);
    assert_int_equal(slot_of(rig, 5)->state, PST_VIEW_SERVED);
    assert_int_equal(slot_of(rig, 5)->copies[0], primary.member);
    assert_true(slot_of(rig, 5)->lost);
    rig_close(rig);
}

static void after_a_while_nobody_waits_for_the_last_copy(void **state)
{
    struct rig_node nodes[2];
    struct rig *rig = rig_with(nodes, 2, 1);
    struct rig_node lost = primary_of(rig, 3), kept = nodes[1 - lost.member];

    (void)state;
    rig_wait(rig, 60000, &kept, 1);
    assert_int_equal(slot_of(rig, 3)->state, PST_VIEW_INCOMPLETE);
    rig->settings.nodes_min = 1; /* the other alone takes them, in the directory that follows */
    rig_restart(rig);
    assert_int_equal(rig_beat(rig, kept, PST_HEARTBEAT_BEGIN, NULL, 0, NULL), 0);
    rig_wait(rig, 75000, &kept, 1);
    take(rig, 3);
    assert_int_equal(slot_of(rig, 3)->copies[0], kept.member);
    assert_true(slot_of(rig, 3)->lost);
    assert_int_equal(pst_directory_view(rig->d)->members[lost.member].epoch, 0); /* nothing refers to it */
    rig_close(rig);
}

static void silent_copies_are_all_waited_for(void **state)
{
    struct rig_node primary, backup, third;
    struct rig *rig = rig_of_three(5, &primary, &backup, &third);

    (void)state;
    rig_wait(rig, 9000, &third, 1); /* both are silent, neither is dead */
    assert_int_equal(slot_of(rig, 5)->state, PST_VIEW_SERVED);
    assert_int_equal(rig_beat(rig, backup, 0, NULL, 0, NULL), 0);
    rig_tick(rig);
    assert_int_equal(primary_of(rig, 5).member, backup.member);
    rig_close(rig);
}

/* ---- restarts and leases ---- */

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
    assert_int_equal(pst_directory_open(&rig->settings, stored, 1, rig->now_ns, &rig->d), 0);
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
    uint64_t version = pst_directory_view(rig->d)->version;

    (void)state;
    rig->now_ns += 60000 * RIG_MS;
    rig_tick(rig);
    rig_wait(rig, 500, nodes, 3);
    assert_int_equal(pst_directory_view(rig->d)->version, version);
    rig->now_ns += 60000 * RIG_MS;
    rig_wait(rig, 500, nodes, 3); /* heartbeats that had come meanwhile are the first that it sees */
    assert_int_equal(pst_directory_view(rig->d)->version, version);
    assert_int_equal(pst_directory_counters(rig->d)->pauses, 2);
    others(nodes, 3, primary.member, left);
    rig_wait(rig, 4500, left, 2);
    assert_int_not_equal(primary_of(rig, 7).member, primary.member);
    rig_close(rig);
}

static void a_node_serves_by_lease_view_and_epoch(void **state)
{
    struct rig_node nodes[2];
    struct rig *rig = rig_with(nodes, 2, 2);
    const struct pst_view *view = pst_directory_view(rig->d);
    struct rig_node primary = primary_of(rig, 7), backup = node_of(rig, slot_of(rig, 7)->copies[1]);
    struct pst_lease lease = {.until_ns = 0};

    (void)state;
    assert_int_equal(pst_lease_serve(&lease, view, primary.member, primary.epoch, 7, 0), PST_SERVE_BUSY);
    assert_true(pst_lease_grant(&lease, 1000 * RIG_MS, 3000, view->version, 2));
    assert_int_equal(pst_lease_serve(&lease, view, primary.member, primary.epoch, 7, 4000 * RIG_MS - 1),
                     PST_SERVE_YES);
    assert_int_equal(pst_lease_serve(&lease, view, primary.member, primary.epoch, 7, 4000 * RIG_MS),
                     PST_SERVE_BUSY);
    assert_int_equal(pst_lease_serve(&lease, view, backup.member, backup.epoch, 7, 0), PST_SERVE_ELSEWHERE);
    assert_int_equal(pst_lease_serve(&lease, view, primary.member, primary.epoch - 1, 7, 0),
                     PST_SERVE_ELSEWHERE);
    assert_false(
        pst_lease_grant(&lease, 9000 * RIG_MS, 3000, view->version, 1)); /* from a directory before */
    assert_true(pst_lease_grant(&lease, 500 * RIG_MS, 3000, view->version + 1, 2));
    assert_int_equal(pst_lease_serve(&lease, view, primary.member, primary.epoch, 7, 0), PST_SERVE_BUSY);
    assert_true(pst_lease_holds(&lease, view->version + 1, 4000 * RIG_MS - 1));
    pst_lease_drop(&lease);
    assert_false(pst_lease_holds(&lease, view->version + 1, 1));
    assert_int_equal(pst_lease_epoch(view, 7, slot_of(rig, 7)->epoch), PST_EPOCH_SAME);
    assert_int_equal(pst_lease_epoch(view, 7, slot_of(rig, 7)->epoch - 1), PST_EPOCH_OLD);
    assert_int_equal(pst_lease_epoch(view, 7, slot_of(rig, 7)->epoch + 1), PST_EPOCH_NEW);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_are_dealt_out_over_hosts),
        cmocka_unit_test(a_backup_takes_over_when_the_lease_is_long_over),
        cmocka_unit_test(a_slow_primary_has_its_slot_again_when_its_successor_is_dead),
        cmocka_unit_test(the_primary_alone_changes_its_copies),
        cmocka_unit_test(a_primary_hands_its_slot_over),
        cmocka_unit_test(who_joins_gets_a_share_and_then_nothing_moves),
        cmocka_unit_test(the_last_copy_may_come_back),
        cmocka_unit_test(a_process_that_never_heard_of_its_membership_has_what_it_had),
        cmocka_unit_test(what_is_dealt_anew_is_taken_first),
        cmocka_unit_test(a_last_copy_that_kept_nothing_is_lost),
        cmocka_unit_test(what_was_durable_waits_for_more),
        cmocka_unit_test(what_was_durable_is_taken_up),
        cmocka_unit_test(who_failed_last_is_not_taken_for_alive),
        cmocka_unit_test(nobody_waits_for_ever_for_more_than_was_durable),
        cmocka_unit_test(after_a_while_nobody_waits_for_the_last_copy),
        cmocka_unit_test(silent_copies_are_all_waited_for),
        cmocka_unit_test(a_new_directory_moves_nothing_before_old_leases_end),
        cmocka_unit_test(a_directory_that_was_stopped_moves_nothing),
        cmocka_unit_test(a_node_serves_by_lease_view_and_epoch),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

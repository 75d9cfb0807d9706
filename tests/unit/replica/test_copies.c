/* SPDX-License-Identifier: Apache-2.0 */
/* What other nodes may answer the sender of copies: driven without a thread, over a network that is written
 * here. */
#include "lib/cm.h"

#include "replica/copies_priv.h"
#include "wire/pool_member.h"

#include <stdlib.h>

enum { PRIMARY = 0, BACKUP = 1, NEWCOMER = 2, NOBODY = 3, GONE = 4, MEMBERS = 5, SENT_MAX = 128, MANY = 100 };

static const char nodes[MANY] = {PRIMARY, BACKUP, NEWCOMER};

struct rig {
    struct pst_serving *serving;
    struct pst_map *map;
    struct pst_copies *copies;
    struct send *sent[SENT_MAX]; /* underway, in their order */
    uint32_t count;
    int changed_fd;
    uint64_t now_ns;
};

static int way_open(void *ctx, const struct pst_map_member *member, void **way)
{
    (void)ctx;
    *way = (void *)&nodes[member ? member->epoch - 1 : PRIMARY];
    return 0;
}

static void way_close(void *ctx, void *way)
{
    (void)ctx;
    (void)way;
}

static void way_submit(void *ctx, struct send *send, int shard)
{
    struct rig *rig = ctx;

    (void)shard;
    assert_true(rig->count < SENT_MAX);
    assert_true(send->op.key_bytes <= PST_WIRE_KEY_BYTES_MAX);
    rig->sent[rig->count++] = send;
}

static uint32_t way_shards(void *ctx, const void *way)
{
    (void)ctx;
    return way != NULL;
}

static const struct copies_net net = {
    .open = way_open, .close = way_close, .submit = way_submit, .shards = way_shards};

static void turn(struct rig *rig)
{
    rig->now_ns += 200000000;
    copies_turn(rig->copies, rig->now_ns, rig->now_ns);
}

static void tell_map(struct rig *rig)
{
    assert_int_equal(pst_copies_map(rig->copies, rig->map, PRIMARY, PRIMARY + 1), 0);
    assert_int_equal(pst_serving_map(rig->serving, rig->map, PRIMARY, PRIMARY + 1), 0);
    turn(rig);
}

/* Partitions with a primary, which is this node, and a backup. */
static void rig_open(struct rig *rig)
{
    const struct pst_copies_settings settings = {.replica_ms = 1000, .repair_bytes = 1 << 30};
    struct pst_map_prefix all = {.placement = PST_PLACE_HOME, .replicas = 2};
    struct pst_map_prefix anywhere = {
        .text = "any/", .bytes = 4, .placement = PST_PLACE_ANYWHERE, .replicas = 2};

    *rig = (struct rig){.changed_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    rig->copies = calloc(1, sizeof(*rig->copies));
    assert_non_null(rig->copies);
    assert_int_equal(pst_serving_open(&rig->serving), 0);
    assert_int_equal(copies_init(rig->copies, &settings, rig->serving, rig->changed_fd, &net, rig), 0);
    assert_int_equal(pst_map_open(MEMBERS, 7, &rig->map), 0);
    rig->map->version = 1;
    rig->map->prefix_count = 2;
    rig->map->prefixes[0] = all;
    rig->map->prefixes[1] = anywhere;
    for (uint32_t i = PRIMARY; i <= NEWCOMER; i++)
        rig->map->members[i].epoch = i + 1;
    for (uint32_t i = 0; i < PST_PARTITIONS; i++)
        rig->map->partitions[i] = (struct pst_map_partition){.epoch = 1,
                                                             .base = 1,
                                                             .state = PST_MAP_SERVED,
                                                             .replica_count = 2,
                                                             .replicas = {PRIMARY, BACKUP}};
    tell_map(rig);
}

/* The first message to this node ends so. */
static void answer(struct rig *rig, int node, int result, const void *data, size_t bytes)
{
    struct send *send;
    uint32_t at = 0;

    while (at < rig->count && rig->sent[at]->peer->way != &nodes[node])
        at++;
    assert_true(at < rig->count);
    send = rig->sent[at];
    assert_true(bytes <= send->op.bytes);
    memmove(rig->sent + at, rig->sent + at + 1, (--rig->count - at) * sizeof(rig->sent[0]));
    if (bytes)
        memcpy(send->op.data, data, bytes);
    send->op.value_bytes = bytes;
    send->op.result = result;
    copies_ended_send(rig->copies, send);
    turn(rig);
}

static void rig_close(struct rig *rig)
{
    copies_stop(rig->copies);
    turn(rig);
    while (rig->count > 0)
        answer(rig, (int)((const char *)rig->sent[0]->peer->way - nodes), PENSTOCK_UNKNOWN, NULL, 0);
    copies_close_peers(rig->copies);
    copies_fini(rig->copies);
    free(rig->copies);
    pst_serving_close(rig->serving);
    pst_map_close(rig->map);
    pst_close_fd(&rig->changed_fd);
}

static void want_newcomer(struct rig *rig, uint16_t partition)
{
    const struct pst_pool_want want = {
        .partition_epoch = 1, .member_epoch = NEWCOMER + 1, .partition = partition, .member = NEWCOMER};

    pst_copies_wants(rig->copies, &want, 1);
    turn(rig);
}

/* Where a newcomer says to go on is as long as a key may be. */
static void a_newcomer_names_no_longer_key(void **state)
{
    static uint8_t data[sizeof(struct pst_wire_sweep) + 6000];
    struct pst_wire_sweep swept = {.resume_bytes = 6000};
    struct rig rig;

    (void)state;
    rig_open(&rig);
    want_newcomer(&rig, 9);
    assert_int_equal(rig.count, 1);
    assert_int_equal(rig.sent[0]->op.code, PST_WIRE_COPY_CLEAR);
    memset(data, 'k', sizeof(data));
    memcpy(data, &swept, sizeof(swept));
    answer(&rig, NEWCOMER, 0, data, sizeof(data));
    assert_int_equal(rig.count, 0);
    assert_int_equal(rig.copies->partitions[9].state, PARTITION_SPOILT);
    rig_close(&rig);
}

/* Too much to do is no reason to give the partition up: it is asked again, from where it has come to. */
static void a_busy_newcomer_is_asked_again(void **state)
{
    static uint8_t more[sizeof(struct pst_wire_sweep) + 3];
    struct pst_wire_sweep swept = {.resume_bytes = 3}, done = {.done = 1};
    struct rig rig;

    (void)state;
    memcpy(more, &swept, sizeof(swept));
    memcpy(more + sizeof(swept), "key", 3);
    rig_open(&rig);
    want_newcomer(&rig, 9);
    for (int i = 0; i < 5; i++)
        answer(&rig, NEWCOMER, PENSTOCK_BUSY, NULL, 0);
    answer(&rig, NEWCOMER, 0, more, sizeof(more));
    answer(&rig, NEWCOMER, PENSTOCK_BUSY, NULL, 0);
    assert_int_equal(rig.count, 1);
    assert_int_equal(rig.sent[0]->op.code, PST_WIRE_COPY_CLEAR);
    assert_int_equal(rig.sent[0]->op.key_bytes, 3);
    answer(&rig, NEWCOMER, 0, &done, sizeof(done));
    assert_int_equal(rig.copies->partitions[9].state, PARTITION_FILLS);
    turn(&rig);
    turn(&rig);
    for (int node = PRIMARY; node <= NEWCOMER; node += NEWCOMER) { /* what generations there are, and were */
        answer(&rig, node, PENSTOCK_BUSY, NULL, 0);
        answer(&rig, node, 0, NULL, 0);
    }
    assert_int_equal(rig.copies->partitions[9].state, PARTITION_FILLS);
    rig_close(&rig);
}

/* Who is a copy already would lose what it has. */
static void a_copy_is_no_newcomer(void **state)
{
    const struct pst_pool_want wants[] = {
        {.partition_epoch = 1, .member_epoch = BACKUP + 1, .partition = 3, .member = BACKUP},
        {.partition_epoch = 1, .member_epoch = PRIMARY + 1, .partition = 4, .member = PRIMARY},
        {.partition_epoch = 1, .member_epoch = NEWCOMER + 1, .partition = PST_PARTITIONS, .member = NEWCOMER},
        {.partition_epoch = 1, .member_epoch = NEWCOMER + 1, .partition = 5, .member = UINT16_MAX}};
    struct rig rig;

    (void)state;
    rig_open(&rig);
    pst_copies_wants(rig.copies, wants, pst_count_of(wants));
    turn(&rig);
    assert_int_equal(rig.count, 0);
    rig_close(&rig);
}

static void ended(struct pst_replica *replica, int result)
{
    assert_true(replica->sends == 0);
    *(int *)replica->writes[0].attrs.data = result;
}

/* A copy that has no room ends the write, and the newcomer hears nothing of it. */
static void what_a_copy_refuses_goes_to_nobody(void **state)
{
    int verdict = 77;
    struct pst_wire_sweep done = {.done = 1};
    struct pst_replica_write write = {
        .key = {"key", 3}, .attrs = {&verdict, sizeof(verdict)}, .generation = 5, .what = PST_REPLICA_PUT};
    struct pst_replica replica = {.writes = &write, .write_count = 1, .done = ended};
    struct rig rig;
    uint32_t partition;

    (void)state;
    rig_open(&rig);
    partition = pst_serving_partition_of(rig.serving, write.key);
    want_newcomer(&rig, (uint16_t)partition);
    answer(&rig, NEWCOMER, 0, &done, sizeof(done));
    assert_int_equal(rig.copies->partitions[partition].state, PARTITION_FILLS);
    pst_copies_replicate(rig.copies, &replica);
    turn(&rig);
    answer(&rig, BACKUP, -ENOSPC, NULL, 0);
    assert_int_equal(verdict, -ENOSPC);
    for (uint32_t i = 0; i < rig.count; i++)
        assert_ptr_not_equal(rig.sent[i]->peer->way, &nodes[NEWCOMER]);
    assert_int_equal(rig.copies->partitions[partition].state, PARTITION_FILLS);
    pst_copies_replicated(rig.copies, &replica);
    rig_close(&rig);
}

/* Nothing goes to a member that is none, or is none any more, and the same one is found when it is one. */
static void a_value_for_no_member_is_refused(void **state)
{
    struct rig rig;

    (void)state;
    rig_open(&rig);
    rig.map->members[GONE].epoch = GONE + 1;
    rig.map->members[GONE].gone = true;
    rig.map->version++;
    tell_map(&rig);
    for (uint16_t member = 0; member <= MEMBERS; member++) {
        int verdict = 77;
        struct pst_replica_write write = {.key = {"any/key", 7},
                                          .attrs = {&verdict, sizeof(verdict)},
                                          .generation = 5,
                                          .what = PST_REPLICA_SEND};
        struct pst_replica replica = {
            .writes = &write, .write_count = 1, .addressed = true, .member = member, .done = ended};
        bool there = member <= NEWCOMER;

        pst_copies_replicate(rig.copies, &replica);
        turn(&rig);
        assert_int_equal(rig.count, there);
        assert_int_equal(verdict, there ? 77 : -ESTALE);
        if (there)
            answer(&rig, member, 0, NULL, 0);
        assert_true(!there || verdict == 0);
        pst_copies_replicated(rig.copies, &replica);
    }
    rig_close(&rig);
}

/* What is asked for somebody else than the member that has this number makes no difference. */
static void a_want_for_no_member_is_none(void **state)
{
    const struct pst_pool_want wants[] = {
        {.partition_epoch = 1, .member_epoch = 0, .partition = 3, .member = NOBODY},
        {.partition_epoch = 1, .member_epoch = 77, .partition = 4, .member = NEWCOMER},
        {.partition_epoch = 1, .member_epoch = 0, .partition = 5, .member = BACKUP, .leads = true},
        {.partition_epoch = 1, .member_epoch = 77, .partition = 6, .member = BACKUP, .leads = true}};
    struct rig rig;

    (void)state;
    rig_open(&rig);
    for (uint32_t i = 0; i < pst_count_of(wants); i++) {
        pst_copies_wants(rig.copies, &wants[i], 1);
        turn(&rig);
        assert_int_equal(rig.count, 0);
        assert_int_equal(rig.copies->partitions[wants[i].partition].state, PARTITION_SHARED);
        assert_false(pst_serving_held(rig.serving, wants[i].partition));
    }
    rig_close(&rig);
}

static void tell_partition(struct rig *rig, uint32_t partition, struct pst_map_partition next)
{
    next.base = 1;
    next.state = PST_MAP_SERVED;
    rig->map->partitions[partition] = next;
    rig->map->version++;
    tell_map(rig);
}

/* The former primary's copy goes at once, so the pool map with the hand-over alone is often missed. */
static void what_was_handed_over_is_served_at_once(void **state)
{
    struct rig rig;

    (void)state;
    rig_open(&rig);
    tell_partition(
        &rig, 9,
        (struct pst_map_partition){.epoch = 2, .replica_count = 3, .replicas = {BACKUP, PRIMARY, NEWCOMER}});
    tell_partition(
        &rig, 9, (struct pst_map_partition){.epoch = 4, .replica_count = 2, .replicas = {PRIMARY, NEWCOMER}});
    assert_false(pst_serving_held(rig.serving, 9));
    assert_int_equal(rig.copies->partitions[9].state, PARTITION_SHARED);
    rig_close(&rig);
}

/* Another was primary meanwhile, and may have sent writes to one copy and not to the other. */
static void what_another_took_over_is_held(void **state)
{
    const uint64_t later = pst_map_lineage(2) + 2;
    struct rig rig;

    (void)state;
    rig_open(&rig);
    tell_partition(&rig, 9,
                   (struct pst_map_partition){.epoch = later << PST_MAP_LINEAGE_SHIFT,
                                              .replica_count = 2,
                                              .replicas = {PRIMARY, BACKUP}});
    assert_true(pst_serving_held(rig.serving, 9));
    assert_int_equal(rig.copies->partitions[9].state, PARTITION_DROPS);
    tell_partition(&rig, 9,
                   (struct pst_map_partition){.epoch = (later << PST_MAP_LINEAGE_SHIFT) + 1,
                                              .replica_count = 1,
                                              .replicas = {PRIMARY}});
    assert_false(pst_serving_held(rig.serving, 9));
    rig_close(&rig);
}

/* Of a write that nobody was sent it is known that nobody has it; of another it is not. */
static void a_write_of_what_another_has_now(void **state)
{
    (void)state;
    for (int sent = 0; sent < 2; sent++) {
        int verdict = 77;
        struct pst_replica_write write = {.key = {"key", 3},
                                          .attrs = {&verdict, sizeof(verdict)},
                                          .generation = 5,
                                          .what = PST_REPLICA_PUT};
        struct pst_replica replica = {.writes = &write, .write_count = 1, .done = ended};
        struct rig rig;

        rig_open(&rig);
        if (sent) {
            pst_copies_replicate(rig.copies, &replica);
            turn(&rig);
        }
        tell_partition(
            &rig, pst_serving_partition_of(rig.serving, write.key),
            (struct pst_map_partition){.epoch = 2, .replica_count = 2, .replicas = {BACKUP, PRIMARY}});
        assert_int_equal(rig.count, sent);
        if (sent)
            answer(&rig, BACKUP, -ESTALE, NULL, 0);
        else
            pst_copies_replicate(rig.copies, &replica);
        turn(&rig);
        assert_int_equal(verdict, sent ? PENSTOCK_UNKNOWN : -ESTALE);
        pst_copies_replicated(rig.copies, &replica);
        rig_close(&rig);
    }
}

struct lone {
    int verdict;
    struct pst_replica_write write;
    struct pst_replica replica;
};

static void send_to(struct rig *rig, struct lone *one, uint16_t member)
{
    one->verdict = 77;
    one->write = (struct pst_replica_write){.key = {"any/key", 7},
                                            .attrs = {&one->verdict, sizeof(one->verdict)},
                                            .generation = 5,
                                            .what = PST_REPLICA_SEND};
    one->replica = (struct pst_replica){
        .writes = &one->write, .write_count = 1, .addressed = true, .member = member, .done = ended};
    pst_copies_replicate(rig->copies, &one->replica);
    turn(rig);
}

/* Keys of two partitions. */
static void keys_of_two(const struct rig *rig, struct pst_replica_write writes[2], int *verdict)
{
    for (int i = 0; i < 2; i++)
        writes[i] = (struct pst_replica_write){.key = {i ? "other" : "key", i ? 5 : 3},
                                               .attrs = {verdict, sizeof(*verdict)},
                                               .generation = 5,
                                               .what = PST_REPLICA_PUT};
    assert_int_not_equal(pst_serving_partition_of(rig->serving, writes[0].key),
                         pst_serving_partition_of(rig->serving, writes[1].key));
}

/* One of them is being handed over, or is another's already: nobody is sent any of the commit. */
static void a_commit_is_sent_whole_or_not(void **state)
{
    (void)state;
    for (int handed_over = 0; handed_over < 2; handed_over++) {
        for (int moved = 0; moved < 2; moved++) {
            int verdict = 77;
            struct pst_replica_write writes[2];
            struct pst_replica replica = {.writes = writes, .write_count = 2, .done = ended};
            struct pst_pool_want want = {
                .partition_epoch = 1, .member_epoch = BACKUP + 1, .member = BACKUP, .leads = true};
            struct rig rig;

            rig_open(&rig);
            keys_of_two(&rig, writes, &verdict);
            want.partition = (uint16_t)pst_serving_partition_of(rig.serving, writes[moved].key);
            if (handed_over) {
                tell_partition(&rig, want.partition,
                               (struct pst_map_partition){
                                   .epoch = 2, .replica_count = 2, .replicas = {BACKUP, PRIMARY}});
            } else {
                pst_copies_wants(rig.copies, &want, 1);
                turn(&rig);
                assert_int_equal(rig.copies->partitions[want.partition].state, PARTITION_LEADS);
            }
            pst_copies_replicate(rig.copies, &replica);
            turn(&rig);
            assert_int_equal(rig.count, 0);
            assert_int_equal(verdict, -ESTALE);
            pst_copies_replicated(rig.copies, &replica);
            rig_close(&rig);
        }
    }
}

/* It waits for the writes that began before, and not for a large value that goes elsewhere. */
static void a_hand_over_waits_for_no_long_send(void **state)
{
    for (int write = 0; write < 2; write++) {
        struct pst_pool_copy changes[PST_POOL_COPIES_MAX];
        struct pst_pool_want want = {.partition_epoch = 1,
                                     .member_epoch = BACKUP + 1,
                                     .partition = 9,
                                     .member = BACKUP,
                                     .leads = true};
        struct lone one;
        struct rig rig;

        (void)state;
        rig_open(&rig);
        send_to(&rig, &one, NEWCOMER);
        if (write)
            one.write.what = PST_REPLICA_PUT;
        assert_int_equal(rig.count, 1);
        pst_copies_wants(rig.copies, &want, 1);
        turn(&rig);
        turn(&rig);
        assert_int_equal(pst_copies_changes(rig.copies, changes), write ? 0 : 1);
        assert_true(write || (changes[0].change == PST_POOL_COPY_LEAD && changes[0].partition == 9));
        answer(&rig, NEWCOMER, 0, NULL, 0);
        assert_int_equal(one.verdict, 0);
        pst_copies_replicated(rig.copies, &one.replica);
        turn(&rig);
        assert_int_equal(pst_copies_changes(rig.copies, changes), 1);
        rig_close(&rig);
    }
}

/* What was sent before the hand-over is answered, and nothing else. */
static void what_is_handed_over_answers_its_writes(void **state)
{
    struct pst_bytes key = {"key", 3};
    struct pst_pool_want want = {
        .partition_epoch = 1, .member_epoch = BACKUP + 1, .member = BACKUP, .leads = true};
    struct rig rig;

    (void)state;
    rig_open(&rig);
    pst_serving_lease(rig.serving, UINT64_MAX);
    want.partition = (uint16_t)pst_serving_partition_of(rig.serving, key);
    pst_copies_wants(rig.copies, &want, 1);
    turn(&rig);
    assert_int_equal(rig.copies->partitions[want.partition].state, PARTITION_LEADS);
    assert_int_equal(pst_serving_allows(rig.serving, key), PENSTOCK_BUSY);
    assert_int_equal(pst_serving_allows_answer(rig.serving, key), 0);
    pst_serving_lease(rig.serving, 0);
    assert_int_equal(pst_serving_allows_answer(rig.serving, key), PENSTOCK_BUSY);
    pst_serving_lease(rig.serving, UINT64_MAX);
    pst_serving_leave(rig.serving);
    assert_int_equal(pst_serving_allows_answer(rig.serving, key), 0);
    pst_serving_lease(rig.serving, UINT64_MAX);
    tell_partition(&rig, want.partition,
                   (struct pst_map_partition){.epoch = (pst_map_lineage(1) + 2) << PST_MAP_LINEAGE_SHIFT,
                                              .replica_count = 2,
                                              .replicas = {PRIMARY, BACKUP}});
    assert_int_equal(pst_serving_allows_answer(rig.serving, key), PENSTOCK_BUSY); /* it is taken over */
    assert_int_equal(rig.copies->partitions[want.partition].state, PARTITION_DROPS);
    rig_close(&rig);
}

static void rig_open_many(struct rig *rig)
{
    struct pst_map *few;

    rig_open(rig);
    few = rig->map;
    assert_int_equal(pst_map_open(MANY, 7, &rig->map), 0);
    memcpy(rig->map->prefixes, few->prefixes, sizeof(few->prefixes));
    memcpy(rig->map->partitions, few->partitions, sizeof(few->partitions));
    rig->map->prefix_count = few->prefix_count;
    rig->map->version = few->version + 1;
    for (uint32_t i = 0; i < MANY; i++)
        rig->map->members[i].epoch = i + 1;
    pst_map_close(few);
    tell_map(rig);
}

/* Of a pool of many, each has its turn, although there are fewer channels. */
static void more_nodes_than_channels(void **state)
{
    struct lone one;
    struct rig rig;

    (void)state;
    rig_open_many(&rig);
    for (uint16_t member = 1; member < MANY; member++) {
        send_to(&rig, &one, member);
        assert_int_equal(rig.count, 1);
        answer(&rig, member, 0, NULL, 0);
        assert_int_equal(one.verdict, 0);
        pst_copies_replicated(rig.copies, &one.replica);
    }
    rig_close(&rig);
}

/* While all channels have something underway, what is for another node waits, and fails nobody. */
static void who_finds_all_channels_busy_waits(void **state)
{
    static struct lone all[PEERS_MAX + 1];
    struct rig rig;

    (void)state;
    rig_open_many(&rig);
    for (uint16_t i = 0; i <= PEERS_MAX; i++)
        send_to(&rig, &all[i], (uint16_t)(i + 1));
    assert_int_equal(rig.count, PEERS_MAX);
    assert_int_equal(all[PEERS_MAX].verdict, 77);
    answer(&rig, 1, 0, NULL, 0);
    turn(&rig);
    assert_int_equal(rig.count, PEERS_MAX);
    for (uint16_t i = 2; i <= PEERS_MAX + 1; i++)
        answer(&rig, i, 0, NULL, 0);
    for (uint32_t i = 0; i <= PEERS_MAX; i++) {
        assert_int_equal(all[i].verdict, 0);
        pst_copies_replicated(rig.copies, &all[i].replica);
    }
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_newcomer_names_no_longer_key),
        cmocka_unit_test(a_busy_newcomer_is_asked_again),
        cmocka_unit_test(a_copy_is_no_newcomer),
        cmocka_unit_test(what_a_copy_refuses_goes_to_nobody),
        cmocka_unit_test(a_value_for_no_member_is_refused),
        cmocka_unit_test(a_want_for_no_member_is_none),
        cmocka_unit_test(what_was_handed_over_is_served_at_once),
        cmocka_unit_test(what_another_took_over_is_held),
        cmocka_unit_test(a_write_of_what_another_has_now),
        cmocka_unit_test(a_commit_is_sent_whole_or_not),
        cmocka_unit_test(a_hand_over_waits_for_no_long_send),
        cmocka_unit_test(what_is_handed_over_answers_its_writes),
        cmocka_unit_test(more_nodes_than_channels),
        cmocka_unit_test(who_finds_all_channels_busy_waits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

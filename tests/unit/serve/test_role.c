/* SPDX-License-Identifier: Apache-2.0 */
/* What a node is besides a store: its operations reach it over sessions like all others, and their answers
 * come back. */
#include "lib/cm.h"

#include "base/clock.h"
#include "call/call.h"
#include "serve/role.h"
#include "node/node.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { TIMEOUT_MS = 20000, SHORT_MS = 3000, ECHOES = 40 };

struct rig {
    char folder[64];
    struct pst_node *node;
    struct pst_channel *channel;
    struct pst_op_list done;
};

/* Answers with what it was told, twice; the code is the answer's generation. */
static void echo(void *ctx, const struct pst_wire_op *op, uint64_t now_ns, uint8_t *to, size_t room,
                 struct pst_wire_result *result)
{
    assert_ptr_equal(ctx, &echo);
    assert_true(now_ns > 0);
    result->generation = op->code;
    if (room < 2 * op->attrs.len) {
        result->result = -ENOBUFS;
        return;
    }
    for (int i = 0; i < 2 && op->attrs.len; i++)
        memcpy(to + (size_t)i * op->attrs.len, op->attrs.data, op->attrs.len);
    result->bytes = (uint32_t)(2 * op->attrs.len);
}

enum { REFUSAL = 7 };

static _Atomic int refused_from; /* keys that begin with 'n' are refused from this question on */

static int may_serve(void *ctx, struct pst_bytes key)
{
    assert_ptr_equal(ctx, &echo);
    return *(const char *)key.data == 'n' && atomic_fetch_sub(&refused_from, 1) <= 0 ? REFUSAL : 0;
}

/* @ssd: a folder; NULL: there is none, and two shards. */
static void rig_open_as(struct rig *rig, const struct pst_node_role *role, const char *ssd)
{
    struct pst_channel_options options = {.connect_ms = TIMEOUT_MS, .timeout_ms = TIMEOUT_MS};
    struct pst_node_settings settings = {0};
    char fault[PST_FAULT_BYTES], path[96];
    const char *why;

    *rig = (struct rig){.folder = "/tmp/penstock-role-XXXXXX"};
    assert_non_null(mkdtemp(rig->folder));
    snprintf(path, sizeof(path), "%s/socket", rig->folder);
    assert_int_equal(pst_options_preset(&pst_node_options, &settings, fault), 0);
    assert_int_equal(pst_options_set(&pst_node_options, &settings, "unix", path, fault), 0);
    assert_int_equal(pst_options_set(&pst_node_options, &settings, "dram", "16M", fault), 0);
    assert_int_equal(pst_options_set(&pst_node_options, &settings, "shards", ssd ? "1" : "2", fault), 0);
    if (ssd) {
        assert_int_equal(pst_options_set(&pst_node_options, &settings, "ssd", ssd, fault), 0);
        assert_int_equal(pst_options_set(&pst_node_options, &settings, "ssd-bytes", "64M", fault), 0);
        assert_int_equal(pst_options_set(&pst_node_options, &settings, "ssd-segment", "2M", fault), 0);
        assert_int_equal(pst_options_set(&pst_node_options, &settings, "ssd-driver", "posix", fault), 0);
    }
    assert_int_equal(pst_node_open(&settings, role, NULL, NULL, &rig->node, fault), 0);
    assert_int_equal(pst_node_begin(rig->node, fault), 0);
    pst_options_free(&pst_node_options, &settings);
    assert_int_equal(pst_boot_address_parse(path, &options.address, &why), 0);
    assert_int_equal(pst_channel_open(&options, &rig->channel, &why), 0);
}

static void rig_open(struct rig *rig, bool role)
{
    static const struct pst_node_role echoes = {
        .ctx = (void *)&echo, .carry_out = echo, .may_serve = may_serve};

    rig_open_as(rig, role ? &echoes : NULL, NULL);
}

static void rig_close(struct rig *rig)
{
    pst_channel_close(rig->channel);
    pst_node_close(rig->node);
    assert_int_equal(rmdir(rig->folder), 0);
}

static void run(struct rig *rig, struct penstock_op *ops, size_t count)
{
    for (size_t i = 0; i < count; i++)
        pst_channel_submit(rig->channel, &ops[i], (int)(i % 2), &rig->done);
    pst_channel_flush(rig->channel);
    while (rig->done.count < count)
        pst_channel_poll(rig->channel);
    while (pst_op_list_pop(&rig->done))
        ;
}

static void run_by_key(struct rig *rig, struct penstock_op *op)
{
    pst_channel_submit(rig->channel, op, -1, &rig->done);
    pst_channel_flush(rig->channel);
    while (!rig->done.count)
        pst_channel_poll(rig->channel);
    pst_op_list_pop(&rig->done);
}

static void answers_come_back(void **state)
{
    static uint8_t told[PST_WIRE_KEY_BYTES_MAX], answers[ECHOES][2 * PST_WIRE_KEY_BYTES_MAX];
    struct penstock_op ops[ECHOES] = {0};
    struct rig rig;

    (void)state;
    rig_open(&rig, true);
    for (size_t i = 0; i < sizeof(told); i++)
        told[i] = (uint8_t)(i * 7 + i / 256);
    for (uint32_t i = 0; i < ECHOES; i++)
        ops[i] = (struct penstock_op){.code = (uint8_t)(PST_WIRE_ROLE_FIRST + i % 32),
                                      .attrs = told,
                                      .attr_bytes = (uint16_t)(i == 0 ? 0 : sizeof(told) - i),
                                      .data = answers[i],
                                      .bytes = sizeof(answers[i])};
    run(&rig, ops, ECHOES); /* they do not fit into one answer */
    for (uint32_t i = 0; i < ECHOES; i++) {
        assert_int_equal(ops[i].result, 0);
        assert_int_equal(ops[i].generation, ops[i].code);
        assert_int_equal(ops[i].value_bytes, 2 * ops[i].attr_bytes);
        assert_memory_equal(answers[i], told, ops[i].attr_bytes);
        assert_memory_equal(answers[i] + ops[i].attr_bytes, told, ops[i].attr_bytes);
    }
    rig_close(&rig);
}

static void too_little_room_is_said(void **state)
{
    uint8_t told[8] = {1}, answer[15];
    struct penstock_op op = {.code = PST_WIRE_ROLE_LAST,
                             .attrs = told,
                             .attr_bytes = sizeof(told),
                             .data = answer,
                             .bytes = sizeof(answer)};
    struct rig rig;

    (void)state;
    rig_open(&rig, true);
    run(&rig, &op, 1);
    assert_int_equal(op.result, -ENOBUFS);
    rig_close(&rig);
}

static void a_store_alone_says_so(void **state)
{
    uint8_t answer[16];
    struct penstock_op ops[2] = {{.code = PST_WIRE_ROLE_FIRST, .data = answer, .bytes = sizeof(answer)},
                                 {.code = PST_WIRE_PING}};
    struct rig rig;

    (void)state;
    rig_open(&rig, false);
    run(&rig, ops, 2);
    assert_int_equal(ops[0].result, -EOPNOTSUPP);
    assert_int_equal(ops[1].result, 0);
    assert_int_equal(pst_channel_session(rig.channel), 1); /* the session lives */
    rig_close(&rig);
}

/* Of all operations on keys, and of nothing else; a large value that comes all the same is let go by. */
static void keys_are_refused(void **state)
{
    static char value[300000], partition[512];
    static const uint8_t all[] = {
        PST_WIRE_GET,     PST_WIRE_STAT_KEY,           PST_WIRE_DELETE, PST_WIRE_PIN, PST_WIRE_UNPIN,
        PST_WIRE_RESERVE, PST_WIRE_RESERVATION_COMMIT, PST_WIRE_PUT};
    struct penstock_op ops[2] = {{.code = PST_WIRE_PING},
                                 {.code = PST_WIRE_LIST, .data = value, .bytes = 1000}};
    struct rig rig;

    (void)state;
    rig_open(&rig, true);
    for (uint32_t i = 0; i < 2 * pst_count_of(all); i++) {
        bool yes = i % 2;
        struct penstock_op op = {.code = all[i / 2],
                                 .key = yes ? "yes" : "no",
                                 .key_bytes = yes ? 3 : 2,
                                 .data = all[i / 2] == PST_WIRE_PUT ? value : partition,
                                 .bytes = all[i / 2] == PST_WIRE_PUT ? sizeof(value) : sizeof(partition)};

        refused_from = 0;
        run_by_key(&rig, &op);
        if (yes)
            assert_int_not_equal(op.result, REFUSAL);
        else
            assert_int_equal(op.result, REFUSAL);
    }
    run(&rig, ops, 2);
    assert_int_equal(ops[0].result, 0);
    assert_int_equal(ops[1].result, 0);
    rig_close(&rig);
}

/* A large put is asked about when it begins and when all of it is there. */
static void a_put_is_asked_about_twice(void **state)
{
    static char value[300000];
    struct rig rig;

    (void)state;
    rig_open(&rig, true);
    for (int asked = 0; asked < 3; asked++) {
        struct penstock_op put = {
            .code = PST_WIRE_PUT, .key = "no", .key_bytes = 2, .data = value, .bytes = sizeof(value)};
        struct penstock_op look = {.code = PST_WIRE_STAT_KEY, .key = "no", .key_bytes = 2};

        refused_from = asked;
        run_by_key(&rig, &put);
        assert_int_equal(put.result, asked < 2 ? REFUSAL : 0);
        refused_from = 1;
        run_by_key(&rig, &look);
        assert_int_equal(look.result, asked < 2 ? PENSTOCK_MISS : 0);
    }
    rig_close(&rig);
}

static void commits_are_refused(void **state)
{
    struct penstock_op changes[2] = {
        {.code = PST_WIRE_PUT, .key = "yes", .key_bytes = 3, .data = "v", .bytes = 1},
        {.code = PST_WIRE_PUT, .key = "no", .key_bytes = 2, .data = "v", .bytes = 1}};
    struct penstock_op commit = {.code = PST_WIRE_COMMIT, .data = changes, .bytes = 2};
    struct penstock_op look = {.code = PST_WIRE_STAT_KEY, .key = "yes", .key_bytes = 3};
    struct rig rig;

    (void)state;
    rig_open(&rig, true);
    refused_from = 0;
    run(&rig, &commit, 1);
    assert_int_equal(commit.result, REFUSAL);
    run_by_key(&rig, &look);
    assert_int_equal(look.result, PENSTOCK_MISS);
    rig_close(&rig);
}

/* ---- copies ---- */

static int copies_all(void *ctx, uint32_t partition, uint64_t partition_epoch)
{
    (void)ctx;
    (void)partition;
    (void)partition_epoch;
    return 0;
}

static int serves_all(void *ctx, struct pst_bytes key)
{
    (void)ctx;
    (void)key;
    return 0;
}

static bool no_key(void *ctx, struct pst_bytes key)
{
    (void)ctx;
    (void)key;
    return false;
}

static uint32_t one_partition(void *ctx, struct pst_bytes key)
{
    (void)ctx;
    (void)key;
    return 0;
}

static void run_briefly(struct rig *rig, struct penstock_op *ops, size_t count)
{
    for (size_t i = 0; i < count; i++)
        pst_channel_submit_until(rig->channel, &ops[i], 0, &rig->done, pst_now_ns() + SHORT_MS * 1000000ull);
    pst_channel_flush(rig->channel);
    while (rig->done.count < count)
        pst_channel_poll(rig->channel);
    while (pst_op_list_pop(&rig->done))
        ;
}

static char cold[30000];

/* A folder with two values: a node that begins with it has them on SSD alone. */
static void ssd_make(char *ssd)
{
    struct penstock_op puts[2] = {
        {.code = PST_WIRE_PUT,
         .flags = PST_WIRE_DURABLE,
         .key = "cold",
         .key_bytes = 4,
         .data = cold,
         .bytes = sizeof(cold)},
        {.code = PST_WIRE_PUT, .flags = PST_WIRE_DURABLE, .key = "empty", .key_bytes = 5}};
    struct rig rig;

    assert_non_null(mkdtemp(ssd));
    memset(cold, 'c', sizeof(cold));
    rig_open_as(&rig, NULL, ssd);
    run_briefly(&rig, puts, 2);
    assert_int_equal(puts[0].result, 0);
    assert_int_equal(puts[1].result, 0);
    rig_close(&rig);
}

static void ssd_remove(const char *ssd)
{
    char command[64];

    snprintf(command, sizeof(command), "rm -r %s", ssd);
    assert_int_equal(system(command), 0);
}

/* In one request: the value of the copy comes by itself, and does not wait for the SSD. */
static void a_large_copy_beside_a_read_of_the_ssd(void **state)
{
    static const struct pst_node_role holder = {.may_serve = serves_all,
                                                .may_answer = serves_all,
                                                .copied = no_key,
                                                .may_copy = copies_all,
                                                .stranded = no_key,
                                                .partition_of = one_partition};
    static char value[300000], found[sizeof(cold)];
    struct pst_wire_copy head = {.partition_epoch = 1, .generation = 1ull << 40};
    struct penstock_op both[2] = {
        {.code = PST_WIRE_COPY,
         .key = "copy",
         .key_bytes = 4,
         .attrs = &head,
         .attr_bytes = sizeof(head),
         .data = value,
         .bytes = sizeof(value)},
        {.code = PST_WIRE_GET, .key = "cold", .key_bytes = 4, .data = found, .bytes = sizeof(found)}};
    char ssd[] = "/tmp/penstock-role-ssd-XXXXXX";
    struct rig rig;

    (void)state;
    ssd_make(ssd);
    rig_open_as(&rig, &holder, ssd);
    run_briefly(&rig, both, 2);
    assert_int_equal(both[0].result, 0);
    assert_int_equal(both[1].result, 0);
    assert_memory_equal(found, cold, sizeof(cold));
    rig_close(&rig);
    ssd_remove(ssd);
}

/* What keys are answered, before and after the copies have them. */
static _Atomic int serves_now, serves_then, answers_then;

static int serves_so(void *ctx, struct pst_bytes key)
{
    (void)ctx;
    (void)key;
    return serves_now;
}

static int answers_so(void *ctx, struct pst_bytes key)
{
    (void)ctx;
    (void)key;
    return answers_then;
}

static bool every_key(void *ctx, struct pst_bytes key)
{
    (void)ctx;
    (void)key;
    return true;
}

static _Atomic uint32_t sent_bytes;

/* Sends nothing, and says that others hold it. */
static void hold(void *ctx, struct pst_replica *replica)
{
    (void)ctx;
    assert_int_equal(replica->write_count, 1);
    assert_int_equal(replica->writes[0].what, PST_REPLICA_SEND);
    sent_bytes += (uint32_t)replica->writes[0].value_bytes;
    replica->copies = 2;
    replica->done(replica, 0);
}

static void let_go(void *ctx, struct pst_replica *replica)
{
    (void)ctx;
    assert_int_equal(replica->write_count, 1);
}

/* Values that the SSD alone has are sent to a node that joins, one without bytes as well. */
static void values_on_ssd_are_sent(void **state)
{
    static const struct pst_node_role primary = {.may_serve = serves_all,
                                                 .may_answer = serves_all,
                                                 .copied = every_key,
                                                 .replicate = hold,
                                                 .replicated = let_go,
                                                 .may_copy = copies_all,
                                                 .stranded = no_key,
                                                 .partition_of = one_partition};
    struct penstock_op sends[2] = {{.code = PST_WIRE_COPY_SEND, .key = "cold", .key_bytes = 4},
                                   {.code = PST_WIRE_COPY_SEND, .key = "empty", .key_bytes = 5}};
    char ssd[] = "/tmp/penstock-role-ssd-XXXXXX";
    struct rig rig;

    (void)state;
    ssd_make(ssd);
    rig_open_as(&rig, &primary, ssd);
    sent_bytes = 0;
    for (int i = 0; i < 2; i++) {
        run_briefly(&rig, &sends[i], 1);
        assert_int_equal(sends[i].result, 0);
        assert_int_equal(sent_bytes, sizeof(cold));
    }
    rig_close(&rig);
    ssd_remove(ssd);
}

static void copy_at_once(void *ctx, struct pst_replica *replica)
{
    (void)ctx;
    serves_now = serves_then;
    replica->done(replica, 0);
}

static void copied_all(void *ctx, struct pst_replica *replica)
{
    (void)ctx;
    (void)replica;
}

/* The copies have it, and this node may not serve. What it hands over it still answers. Without a lease it
 * has what they have, for it may go on; what another serves it does not touch. Nobody is told either way. */
static void a_lease_that_ends_while_copies_are_made(void **state)
{
    static const struct pst_node_role primary = {.may_serve = serves_so,
                                                 .may_answer = answers_so,
                                                 .copied = every_key,
                                                 .replicate = copy_at_once,
                                                 .replicated = copied_all,
                                                 .may_copy = copies_all,
                                                 .stranded = no_key,
                                                 .partition_of = one_partition};
    static const struct {
        int then, answers, put, look;
    } cases[] = {{0, 0, 0, 0},
                 {PENSTOCK_BUSY, 0, 0, 0},
                 {PENSTOCK_BUSY, PENSTOCK_BUSY, PENSTOCK_UNKNOWN, 0},
                 {-ESTALE, -ESTALE, PENSTOCK_UNKNOWN, PENSTOCK_MISS}};
    struct rig rig;

    (void)state;
    rig_open_as(&rig, &primary, NULL);
    for (size_t i = 0; i < pst_count_of(cases); i++) {
        char key = (char)('a' + i);
        struct penstock_op put = {.code = PST_WIRE_PUT, .key = &key, .key_bytes = 1, .data = "v", .bytes = 1};
        struct penstock_op look = {.code = PST_WIRE_STAT_KEY, .key = &key, .key_bytes = 1};

        serves_now = 0;
        serves_then = cases[i].then;
        answers_then = cases[i].answers;
        run_by_key(&rig, &put);
        assert_int_equal(put.result, cases[i].put);
        serves_now = 0;
        run_by_key(&rig, &look);
        assert_int_equal(look.result, cases[i].look);
    }
    rig_close(&rig);
}

/* A node listens before it has a part in a pool: nobody sends copies for it yet. */
static void nothing_is_sent_before_there_is_a_pool(void **state)
{
    const struct pst_copies_settings copying = {.replica_ms = 1000};
    struct pst_pool_role *pool;
    struct pst_node_role role;
    struct pst_wire_target target = {.member = 1};
    struct penstock_op sends[3] = {{.code = PST_WIRE_COPY_SEND, .key = "cold", .key_bytes = 4},
                                   {.code = PST_WIRE_COPY_SEND,
                                    .key = "cold",
                                    .key_bytes = 4,
                                    .attrs = &target,
                                    .attr_bytes = sizeof(target)},
                                   {.code = PST_WIRE_PING}};
    char ssd[] = "/tmp/penstock-role-ssd-XXXXXX";
    struct rig rig;

    (void)state;
    ssd_make(ssd);
    assert_int_equal(pst_pool_role_open(&copying, &pool), 0);
    role = pst_pool_role_table(pool);
    rig_open_as(&rig, &role, ssd);
    run_briefly(&rig, sends, 3);
    assert_true(sends[0].result == PENSTOCK_BUSY || sends[0].result == -ETIMEDOUT);
    assert_true(sends[1].result == PENSTOCK_BUSY || sends[1].result == -ETIMEDOUT);
    assert_int_equal(sends[2].result, 0);
    rig_close(&rig);
    pst_pool_role_close(pool);
    ssd_remove(ssd);
}

/* A node in a process that is more than that: what it did not open is not its own to close. */
static void a_member_that_cannot_begin_closes_nothing_else(void **state)
{
    static const struct pst_member_sender nobody;
    struct pst_member_settings settings = {.master = {.count = 1, .items = {(char *)"no:such:address"}}};
    struct pst_member_counters counters = {0};
    struct pst_member_node node = {.counters = &counters, .sender = &nobody};
    char fault[PST_FAULT_BYTES];
    struct pst_member *member;

    (void)state;
    assert_true(fcntl(STDIN_FILENO, F_GETFD) >= 0 || open("/dev/null", O_RDONLY) == STDIN_FILENO);
    assert_int_equal(pst_serving_open(&node.serving), 0);
    assert_int_equal(pst_member_open(&settings, &node, NULL, NULL, &member, fault), -EINVAL);
    assert_true(fcntl(STDIN_FILENO, F_GETFD) >= 0);
    pst_serving_close(node.serving);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_come_back),
        cmocka_unit_test(too_little_room_is_said),
        cmocka_unit_test(a_store_alone_says_so),
        cmocka_unit_test(keys_are_refused),
        cmocka_unit_test(a_put_is_asked_about_twice),
        cmocka_unit_test(commits_are_refused),
        cmocka_unit_test(a_large_copy_beside_a_read_of_the_ssd),
        cmocka_unit_test(values_on_ssd_are_sent),
        cmocka_unit_test(a_lease_that_ends_while_copies_are_made),
        cmocka_unit_test(nothing_is_sent_before_there_is_a_pool),
        cmocka_unit_test(a_member_that_cannot_begin_closes_nothing_else),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

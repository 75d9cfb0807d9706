/* What a node is besides a store: its operations reach it over sessions like all others, and their answers
 * come back. */
#include "cm.h"

#include "call/call.h"
#include "node/node.h"

#include <stdio.h>
#include <stdlib.h>

enum { TIMEOUT_MS = 20000, ECHOES = 40 };

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

static void rig_open(struct rig *rig, bool role)
{
    static const struct pst_node_role echoes = {(void *)&echo, echo};
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
    assert_int_equal(pst_options_set(&pst_node_options, &settings, "shards", "2", fault), 0);
    assert_int_equal(pst_node_open(&settings, role ? &echoes : NULL, NULL, NULL, &rig->node, fault), 0);
    pst_options_free(&pst_node_options, &settings);
    assert_int_equal(pst_boot_address_parse(path, &options.address, &why), 0);
    assert_int_equal(pst_channel_open(&options, &rig->channel, &why), 0);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_come_back),
        cmocka_unit_test(too_little_room_is_said),
        cmocka_unit_test(a_store_alone_says_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

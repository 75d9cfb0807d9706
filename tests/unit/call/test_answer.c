/* SPDX-License-Identifier: Apache-2.0 */
/* test_answer.c: replies as a channel reads them, from a node that is not to be believed. */
#include "lib/one_get.h"

enum { BYTES = 64 };

/* A channel with one request underway: a get of at most BYTES. */
struct rig {
    struct pst_channel *channel;
    struct pst_call *call;
    struct pst_op_list done;
    struct penstock_op op;
    uint8_t value[BYTES];
};

static void rig_open(struct rig *rig)
{
    static char port; /* nothing is sent, nor polled */
    struct pst_channel *ch = calloc(1, sizeof(*ch));
    struct pst_call *call = calloc(1, sizeof(*call));

    assert_non_null(ch);
    assert_non_null(call);
    *rig = (struct rig){.channel = ch, .call = call};
    one_get_begin(ch, call, (struct pst_port *)(void *)&port, &rig->op, &rig->done, rig->value, BYTES);
}

static void rig_close(struct rig *rig)
{
    free(rig->call);
    free(rig->channel);
}

static void reply(struct rig *rig, const struct pst_wire_result *result)
{
    struct pst_wire_head head = {.type = PST_WIRE_REPLY,
                                 .version = PST_WIRE_VERSION,
                                 .count = 1,
                                 .request = rig->call->id,
                                 .token = ONE_GET_TOKEN};
    uint8_t body[1024];
    size_t bytes = (size_t)(pst_wire_put_result(body, result) - body);
    struct pst_net_event event = {
        .kind = PST_NET_EAGER, .header = {&head, sizeof(head)}, .data = {body, bytes}};

    pst_channel_on_message(rig->channel, &event);
}

static void a_reply_ends_its_operation(void **state)
{
    const struct pst_wire_result result = {.bytes = 3, .value_bytes = 3, .generation = 7, .data = "abc"};
    struct rig rig;

    (void)state;
    rig_open(&rig);
    reply(&rig, &result);
    assert_int_equal(rig.channel->state, CHANNEL_UP);
    assert_int_equal(rig.done.count, 1);
    assert_int_equal(rig.op.result, 0);
    assert_int_equal(rig.op.value_bytes, 3);
    assert_memory_equal(rig.value, "abc", 3);
    rig_close(&rig);
}

/* A detail stands in the place of the value's size, so the size of an earlier answer would be believed. */
static void a_detail_of_a_success_ends_the_session(void **state)
{
    const struct pst_wire_result result = {.flags = PST_WIRE_DETAIL | PST_WIRE_CRC, .limit_bytes = 0};
    struct rig rig;

    (void)state;
    rig_open(&rig);
    rig.op.value_bytes = 1 << 20; /* from an answer that said "busy" */
    reply(&rig, &result);
    assert_int_equal(rig.channel->state, CHANNEL_CLOSING);
    assert_int_equal(rig.channel->down_error, -EPROTO);
    assert_int_equal(rig.done.count, 0);
    rig_close(&rig);
}

/* Who wants just so many bytes relies on all of them: what a shorter value leaves of the room is not its. */
static void another_size_than_the_exact_one_ends_the_session(void **state)
{
    static const char value[BYTES] = "all of it";

    (void)state;
    for (uint32_t less = 0; less < 2; less++) {
        const struct pst_wire_result result = {.flags = PST_WIRE_SIZE,
                                               .bytes = BYTES - less,
                                               .value_bytes = BYTES - less,
                                               .generation = 7,
                                               .data = value};
        struct rig rig;

        rig_open(&rig);
        rig.op.flags = PENSTOCK_EXACT;
        reply(&rig, &result);
        assert_int_equal(rig.channel->state, less ? CHANNEL_CLOSING : CHANNEL_UP);
        assert_int_equal(rig.done.count, less ? 0 : 1);
        rig_close(&rig);
    }
}

static void a_refusal_of_an_exact_get_says_any_size(void **state)
{
    const struct pst_wire_result refused = {
        .result = -EMSGSIZE, .flags = PST_WIRE_SIZE, .value_bytes = BYTES + 1};
    struct rig rig;

    (void)state;
    rig_open(&rig);
    rig.op.flags = PENSTOCK_EXACT;
    reply(&rig, &refused);
    assert_int_equal(rig.channel->state, CHANNEL_UP);
    assert_int_equal(rig.op.result, -EMSGSIZE);
    assert_int_equal(rig.op.value_bytes, BYTES + 1);
    rig_close(&rig);
}

/* Of a key's attributes there are no more than the caller has been told to have room for. */
static void longer_attributes_end_the_session(void **state)
{
    static uint8_t attrs[PENSTOCK_ATTR_BYTES_MAX + 1];

    (void)state;
    for (uint16_t more = 0; more < 2; more++) {
        const struct pst_wire_result result = {.flags = PST_WIRE_ATTRS,
                                               .attrs = {attrs, PENSTOCK_ATTR_BYTES_MAX + more}};
        struct rig rig;

        rig_open(&rig);
        rig.op.code = PENSTOCK_STAT_KEY;
        rig.op.attrs = attrs;
        rig.op.attr_bytes = PENSTOCK_ATTR_BYTES_MAX;
        reply(&rig, &result);
        assert_int_equal(rig.channel->state, more ? CHANNEL_CLOSING : CHANNEL_UP);
        assert_int_equal(rig.done.count, more ? 0 : 1);
        rig_close(&rig);
    }
}

/* A client that asks one thing at a time uses one place: its numbers wrap around after four million requests.
 */
static void numbers_wrap_around(void **state)
{
    struct penstock_op op = {.code = PENSTOCK_STAT_KEY, .key = "k", .key_bytes = 1};
    struct pst_call *call;
    struct rig rig;

    (void)state;
    rig_open(&rig);
    call = rig.call;
    call->state = CALL_IDLE;
    call->body = malloc(CALL_BODY_BYTES);
    assert_non_null(call->body);
    call->count = 0;
    call->id = 0u - CALLS_MAX;
    pst_list_remove(&call->link);
    pst_list_push_front(&rig.channel->idle, &call->link);
    rig.channel->tick_ns = UINT64_MAX;
    pst_channel_submit(rig.channel, &op, 0, &rig.done);
    assert_int_equal(call->count, 1);
    assert_true(pst_wire_later(call->id, 0u - CALLS_MAX));
    assert_int_not_equal((uint32_t)pst_op_request(&op), 0);
    free(call->body);
    rig_close(&rig);
}

/* What a handle of the last session means in the next one is not known, and the view is gone. */
static void a_release_waits_for_no_other_session(void **state)
{
    struct penstock_op op = {.code = PST_WIRE_RELEASE, .handle = 1};
    struct rig rig;

    (void)state;
    rig_open(&rig);
    rig.channel->state = CHANNEL_DOWN;
    rig.channel->tick_ns = UINT64_MAX;
    pst_channel_submit(rig.channel, &op, 0, &rig.done);
    assert_int_equal(rig.channel->waiting.count, 0);
    assert_int_equal(rig.done.count, 1);
    assert_int_equal(op.result, 0);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reply_ends_its_operation),
        cmocka_unit_test(a_detail_of_a_success_ends_the_session),
        cmocka_unit_test(another_size_than_the_exact_one_ends_the_session),
        cmocka_unit_test(a_refusal_of_an_exact_get_says_any_size),
        cmocka_unit_test(longer_attributes_end_the_session),
        cmocka_unit_test(numbers_wrap_around),
        cmocka_unit_test(a_release_waits_for_no_other_session),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

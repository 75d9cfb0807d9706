/* SPDX-License-Identifier: Apache-2.0 */
/* test_stranger.c: a value for a request that comes over a connection that the channel has not made. */
#include "lib/net_sides.h"
#include "lib/one_get.h"

enum { BYTES = 256 << 10 };

/* A channel to @node with one get underway, and @stranger, which knows the channel's address and token. */
struct rig {
    struct pst_net *net;
    struct side client, node, stranger;
    struct pst_channel channel;
    struct pst_call call;
    struct pst_op_list done;
    struct penstock_op op;
    uint8_t value[BYTES];
};

static void rig_open(struct rig *rig)
{
    struct pst_channel *ch = &rig->channel;
    struct pst_call *call = &rig->call;

    rig->net = net_open();
    assert_int_equal(pst_port_open(rig->net, EVENTS_MAX, &rig->client.port), 0);
    assert_int_equal(pst_port_open(rig->net, EVENTS_MAX, &rig->node.port), 0);
    assert_int_equal(pst_port_open(rig->net, EVENTS_MAX, &rig->stranger.port), 0);
    side_connect(&rig->node, &rig->client);
    side_connect(&rig->stranger, &rig->client);
    one_get_begin(ch, call, rig->client.port, &rig->op, &rig->done, rig->value, BYTES);
    ch->tick_ns = UINT64_MAX; /* there is no socket to look at */
    call->deadline_ns = UINT64_MAX;
}

static void channel_connect(struct rig *rig)
{
    uint8_t address[PST_NET_ADDRESS_BYTES_MAX];
    int bytes = pst_port_address(rig->node.port, true, address, sizeof(address));

    assert_true(bytes > 0);
    assert_int_equal(
        pst_peer_open(rig->client.port, address, (size_t)bytes, &rig->channel, &rig->channel.peers[0]), 0);
    rig->channel.peers_open = 1;
}

static void send_value(struct side *from)
{
    static uint8_t data[BYTES];
    struct {
        struct pst_wire_head head;
        struct pst_wire_part part;
    } header = {.head = {.type = PST_WIRE_BULK,
                         .version = PST_WIRE_VERSION,
                         .count = 1,
                         .request = CALLS_MAX,
                         .token = ONE_GET_TOKEN},
                .part = {.bytes = BYTES}};
    struct iovec iov = {data, BYTES};

    assert_int_equal(pst_peer_send_bulk(from->peer, bytes_of(&header, sizeof(header)), &iov, 1, from), 0);
}

/* What it would bring could come into memory that the caller has back: nobody waits for its end. */
static void a_value_of_a_stranger_ends_the_session(void **state)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    struct pst_channel *ch = &rig->channel;

    (void)state;
    network = true;
    rig_open(rig);
    channel_connect(rig);
    send_value(&rig->stranger);
    while (ch->state == CHANNEL_UP && rig->call.bulks_next == 0) {
        side_poll(&rig->stranger);
        side_poll(&rig->node);
        pst_channel_poll(ch);
    }
    if (ch->state == CHANNEL_UP) /* it was taken, and is underway while the session ends */
        pst_channel_break(ch, -ECONNRESET);
    assert_int_equal(rig->call.bulks_arrived, 0);
    while (ch->state != CHANNEL_DOWN) {
        side_poll(&rig->node);
        pst_channel_poll(ch);
    }
    assert_int_equal(ch->down_error, -EPROTO);
    assert_int_equal(rig->done.count, 1);
    assert_int_equal(rig->op.result, -ETIMEDOUT); /* it would be asked again, had it any time */
    assert_int_equal(rig->call.bulks_next, 0);
    pst_port_close(rig->stranger.port);
    pst_port_close(rig->node.port);
    pst_net_close(rig->net);
    free(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_value_of_a_stranger_ends_the_session),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

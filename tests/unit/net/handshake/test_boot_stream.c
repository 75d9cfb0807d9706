/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions over the stream: who gets one, and whose connections become part of it. */
#include "lib/boot_rig.h"

#include "net/stream.h"
#include "net/stream/channel.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

enum { EVENTS_MAX = 16, SHARD = 3 };

static const struct pst_boot_server_options offers = {
    .secret = {"s", 1}, .sessions_max = 4, .handshakes_max = 4, .stream = true};

static int dial_over(struct client *c, const struct pst_boot_address *address,
                     enum pst_boot_transport transport)
{
    struct pst_boot_client_options options = {
        .transport = transport, .secret = {"s", 1}, .deadline_ns = pst_now_ns() + 10 * SECOND_NS};

    return dial_with(c, address, &options);
}

static void choice(void **state)
{
    enum { REFUSED = -EPROTONOSUPPORT };
    static const struct {
        bool stream, no_ucx;
        int over[3]; /* by the client's wish: 1 the stream, 0 UCX */
    } rows[] = {
        {true, false, {[PST_BOOT_AUTO] = 0, [PST_BOOT_UCX] = 0, [PST_BOOT_STREAM] = 1}},
        {true, true, {[PST_BOOT_AUTO] = 1, [PST_BOOT_UCX] = REFUSED, [PST_BOOT_STREAM] = 1}},
        {false, false, {[PST_BOOT_AUTO] = 0, [PST_BOOT_UCX] = 0, [PST_BOOT_STREAM] = REFUSED}},
    };
    struct client *c = calloc(1, sizeof(*c));
    struct rig rig;

    (void)state;
    for (size_t i = 0; i < pst_count_of(rows); i++) {
        struct pst_boot_server_options options = offers;

        options.stream = rows[i].stream;
        options.no_ucx = rows[i].no_ucx;
        rig_open_with(&rig, &options);
        rig_run(&rig);
        for (int wish = PST_BOOT_AUTO; wish <= PST_BOOT_STREAM; wish++) {
            int r = dial_over(c, &rig.path, (enum pst_boot_transport)wish);

            assert_int_equal(r < 0 ? r : c->welcome.stream, rows[i].over[wish]);
            assert_false(r == 0 && c->welcome.stream && c->welcome.same_host);
            if (r == REFUSED)
                assert_non_null(strstr(c->fault, "the node does not offer"));
            pst_boot_link_close(c->link);
        }
        rig_close(&rig);
    }
    free(c);
}

/* A port with a session, and one peer that is the session's connection to a shard. */
struct caller {
    struct client client;
    struct pst_net *net;
    struct pst_port *port;
    struct pst_peer *peer;
    uint8_t address[PST_NET_ADDRESS_BYTES_MAX];
    size_t address_bytes;
};

static struct caller *caller_new(const struct pst_boot_address *address)
{
    struct pst_net_options options = {.transport = PST_NET_STREAM};
    struct caller *caller = calloc(1, sizeof(*caller));
    int r;

    assert_int_equal(pst_net_open(&options, &caller->net), 0);
    assert_int_equal(pst_port_open(caller->net, EVENTS_MAX, &caller->port), 0);
    assert_int_equal(dial_over(&caller->client, address, PST_BOOT_STREAM), 0);
    assert_int_equal(client_address(&caller->client), 0);
    r = pst_boot_link_stream_address(caller->client.link, SHARD, caller->address, sizeof(caller->address));
    assert_true(r > 0);
    caller->address_bytes = (size_t)r;
    return caller;
}

static void caller_connect(struct caller *caller)
{
    assert_int_equal(
        pst_peer_open(caller->port, caller->address, caller->address_bytes, caller, &caller->peer), 0);
    assert_true(pst_peer_send(caller->peer, pst_bytes_of("header"), pst_bytes_of("data"), NULL) >= 0);
}

static struct pst_net_event caller_await(struct pst_port *port, struct pst_port *other)
{
    uint64_t deadline_ns = pst_now_ns() + 20 * SECOND_NS;
    struct pst_net_event event;

    while (pst_port_poll(port, &event, 1) == 0) {
        struct pst_net_event its;

        assert_true(pst_now_ns() < deadline_ns);
        assert_true(!other || pst_port_poll(other, &its, 1) == 0);
    }
    return event;
}

static void caller_free(struct caller *caller)
{
    pst_port_close(caller->port);
    pst_net_close(caller->net);
    pst_boot_link_close(caller->client.link);
    free(caller);
}

/* What follows the proof of a connection reaches the peer that waits for it. */
static void connections_are_attached(void **state)
{
    struct rig rig;

    (void)state;
    rig_open_with(&rig, &offers);
    rig_run(&rig);
    for (int local = 0; local < 2; local++) {
        struct caller *caller = caller_new(local ? &rig.path : &rig.tcp);
        uint8_t waits[PST_NET_ADDRESS_BYTES_MAX];
        struct pst_net_event event;
        struct pst_port *shard;
        struct pst_peer *peer;
        int bytes;

        caller_connect(caller);
        while (rig.attaches <= local)
            assert_int_equal(pst_port_poll(caller->port, &event, 1), 0);
        assert_int_equal(rig.shard, SHARD);
        assert_int_equal(pst_port_open(caller->net, EVENTS_MAX, &shard), 0);
        bytes = pst_port_address(shard, true, waits, sizeof(waits));
        assert_int_equal(pst_peer_open(shard, waits, (size_t)bytes, NULL, &peer), 0);
        pst_stream_attach(peer, rig.attached, (struct pst_bytes){rig.early, rig.early_bytes});
        event = caller_await(shard, caller->port);
        assert_int_equal(event.kind, PST_NET_EAGER);
        assert_memory_equal(event.data.data, "data", 4);
        pst_msg_free(event.msg);
        assert_string_equal(pst_peer_lane(peer), local ? "stream-unix" : "stream");
        pst_port_close(shard);
        assert_int_equal(caller_await(caller->port, NULL).kind, PST_NET_PEER_LOST);
        caller_free(caller);
    }
    assert_int_equal(rig.refusals, 0);
    rig_close(&rig);
}

static void pause_ns(uint64_t ns)
{
    uint64_t end = pst_now_ns() + ns;

    while (pst_now_ns() < end)
        ;
}

/* However its bytes come: once a shard has it, the bootstrap reads no more of it. */
static void connections_come_in_pieces(void **state)
{
    enum { FRAME_BYTES = BOOT_HEAD_BYTES + BOOT_ATTACH_BYTES, LAST = 12 }; /* pieces that race its reads */
    struct caller *caller;
    struct rig rig;

    (void)state;
    rig_open_with(&rig, &offers);
    rig_run(&rig);
    caller = caller_new(&rig.tcp);
    for (int round = 0; round < 3000; round++) {
        const uint8_t *frame = caller->address + caller->address_bytes - FRAME_BYTES;
        int fd = raw_connect(&rig), one = 1;
        size_t piece;

        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        for (size_t i = 0; i < FRAME_BYTES; i += piece) {
            piece = i < FRAME_BYTES - LAST ? FRAME_BYTES - LAST : 1;
            assert_int_equal(send(fd, frame + i, piece, MSG_NOSIGNAL), piece);
            pause_ns((uint64_t)round % 64 * 250);
        }
        await_count(&rig.attaches, round + 1);
        rig.attached = stream_channel_close(rig.attached);
        close(fd);
    }
    assert_int_equal(rig.refusals, 0);
    caller_free(caller);
    rig_close(&rig);
}

/* Any other byte in what it says makes it somebody else's connection. */
static void foreign_connections_are_refused(void **state)
{
    enum { ATTACH_BYTES = BOOT_ATTACH_BYTES };
    struct caller *caller;
    struct rig rig;
    int refused = 0;

    (void)state;
    rig_open_with(&rig, &offers);
    rig_run(&rig);
    caller = caller_new(&rig.path);
    for (size_t i = 1; i <= ATTACH_BYTES; i += 5) {
        caller->address[caller->address_bytes - i] ^= 1;
        caller_connect(caller);
        assert_int_equal(caller_await(caller->port, NULL).kind, PST_NET_PEER_LOST);
        pst_peer_close(caller->peer);
        assert_int_equal(caller_await(caller->port, NULL).kind, PST_NET_PEER_GONE);
        caller->address[caller->address_bytes - i] ^= 1;
        await_count(&rig.refusals, ++refused);
    }
    assert_int_equal(rig.attaches, 0);
    /* Nor does one outlive its session. */
    pst_boot_link_close(caller->client.link);
    caller->client.link = NULL;
    await_count(&rig.ends, 1);
    caller_connect(caller);
    assert_int_equal(caller_await(caller->port, NULL).kind, PST_NET_PEER_LOST);
    await_count(&rig.refusals, ++refused);
    caller_free(caller);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choice),
        cmocka_unit_test(connections_are_attached),
        cmocka_unit_test(connections_come_in_pieces),
        cmocka_unit_test(foreign_connections_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The stream against a peer whose frames are wrong, cut, or more than anybody takes. */
#include "lib/cm.h"

#include "base/clock.h"
#include "net/stream/stream_priv.h"

#define SECOND_NS 1000000000ull

enum { EVENTS_MAX = 64 };

/* A port with two peers, each with the other end of its connection. */
struct rig {
    struct pst_net *net;
    struct pst_port *port;
    struct pst_peer *peers[2];
    int fds[2];
};

static void rig_open(struct rig *rig)
{
    struct pst_net_options options = {.transport = PST_NET_STREAM};
    uint8_t address[PST_NET_ADDRESS_BYTES_MAX];
    int bytes;

    assert_int_equal(pst_net_open(&options, &rig->net), 0);
    assert_int_equal(pst_port_open(rig->net, EVENTS_MAX, &rig->port), 0);
    bytes = pst_port_address(rig->port, true, address, sizeof(address));
    for (int i = 0; i < 2; i++) {
        struct stream_channel *channel;
        int fds[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
        assert_int_equal(pst_peer_open(rig->port, address, (size_t)bytes, &rig->fds[i], &rig->peers[i]), 0);
        assert_int_equal(stream_channel_plain(fds[0], &channel), 0);
        pst_stream_attach(rig->peers[i], channel, (struct pst_bytes){NULL, 0});
        rig->fds[i] = fds[1];
    }
}

static void rig_close(struct rig *rig)
{
    pst_port_close(rig->port);
    pst_net_close(rig->net);
    close(rig->fds[0]);
    close(rig->fds[1]);
}

static void say(const struct rig *rig, int which, const void *data, size_t bytes)
{
    assert_int_equal(send(rig->fds[which], data, bytes, MSG_NOSIGNAL), bytes);
}

static struct stream_head hear(const struct rig *rig, int which)
{
    struct stream_head head;

    assert_int_equal(recv(rig->fds[which], &head, sizeof(head), 0), sizeof(head));
    return head;
}

static struct pst_net_event next(const struct rig *rig)
{
    uint64_t deadline_ns = pst_now_ns() + 20 * SECOND_NS;
    struct pst_net_event event;

    while (pst_port_poll(rig->port, &event, 1) == 0)
        assert_true(pst_now_ns() < deadline_ns);
    return event;
}

/* The first peer is lost for what it said; the second one has seen nothing. */
static void expect_lost(struct rig *rig)
{
    static const struct stream_head hello = {.type = STREAM_EAGER, .header_bytes = 2};
    struct pst_net_event event = next(rig);

    assert_int_equal(event.kind, PST_NET_PEER_LOST);
    assert_int_equal(event.status, -EPROTO);
    assert_ptr_equal(event.arg, &rig->fds[0]);
    assert_int_equal(pst_peer_send(rig->peers[0], pst_bytes_of("h"), pst_bytes_of(""), NULL), -ECONNRESET);
    say(rig, 1, &hello, sizeof(hello));
    say(rig, 1, "hi", 2);
    do /* the ends of what was underway with the first one come before */
        event = next(rig);
    while (event.kind == PST_NET_SENT || event.kind == PST_NET_RECEIVED);
    assert_int_equal(event.kind, PST_NET_EAGER);
    pst_msg_free(event.msg);
}

static void heads_that_are_none(void **state)
{
    static const struct stream_head heads[] = {
        {.type = 0},
        {.type = 6},
        {.type = 255},
        {.type = STREAM_EAGER, .zero = 1},
        {.type = STREAM_EAGER, .id = 1},
        {.type = STREAM_EAGER, .value = 1},
        {.type = STREAM_EAGER, .header_bytes = PST_NET_HEADER_BYTES_MAX + 1},
        {.type = STREAM_EAGER, .body_bytes = PST_NET_EAGER_BYTES_MAX + 1},
        {.type = STREAM_EAGER, .body_bytes = UINT32_MAX},
        {.type = STREAM_BULK, .id = 1},
        {.type = STREAM_BULK, .id = 1, .value = STREAM_BULK_BYTES_MAX + 1},
        {.type = STREAM_BULK, .id = 1, .value = UINT64_MAX},
        {.type = STREAM_BULK, .id = 1, .value = 1, .body_bytes = 1},
        {.type = STREAM_BULK, .id = 1, .value = 1, .header_bytes = UINT16_MAX},
        {.type = STREAM_GO},
        {.type = STREAM_GO, .id = UINT64_MAX},
        {.type = STREAM_GO, .header_bytes = 1},
        {.type = STREAM_REFUSED, .value = 1},
        {.type = STREAM_REFUSED, .id = 1ull << 32},
        {.type = STREAM_BODY},
        {.type = STREAM_BODY, .body_bytes = 1},
        {.type = STREAM_BODY, .body_bytes = STREAM_BODY_BYTES_MAX + 1},
        {.type = STREAM_BODY, .body_bytes = 1, .id = 1ull << 32},
    };

    (void)state;
    for (size_t i = 0; i < pst_count_of(heads); i++) {
        struct rig rig;

        rig_open(&rig);
        say(&rig, 0, &heads[i], sizeof(heads[i]));
        expect_lost(&rig);
        rig_close(&rig);
    }
}

/* Announces a message of @bytes over the first connection, which is received. Return: the number to send to.
 */
static uint64_t announce(struct rig *rig, void *to, size_t bytes)
{
    struct stream_head bulk = {.type = STREAM_BULK, .id = 7, .value = bytes};
    struct iovec iov = {to, bytes};
    struct pst_net_event event;
    struct stream_head go;

    say(rig, 0, &bulk, sizeof(bulk));
    event = next(rig);
    assert_int_equal(event.kind, PST_NET_BULK);
    assert_int_equal(event.data.len, bytes);
    assert_int_equal(pst_msg_receive(event.msg, &iov, 1, to), 0);
    go = hear(rig, 0);
    assert_int_equal(go.type, STREAM_GO);
    assert_int_equal(go.id, 7);
    return go.value;
}

/* Bytes go where they were asked for, and no others: not behind the end, nor by another connection. */
static void bytes_that_nobody_asked_for(void **state)
{
    uint8_t room[100];
    struct stream_head body = {.type = STREAM_BODY, .body_bytes = 101};
    struct rig rig;

    (void)state;
    memset(room, 0xaa, sizeof(room));
    rig_open(&rig);
    body.id = announce(&rig, room, sizeof(room));
    say(&rig, 0, &body, sizeof(body));
    expect_lost(&rig);
    assert_int_equal(room[0], 0xaa);
    rig_close(&rig);

    rig_open(&rig);
    body.id = announce(&rig, room, sizeof(room));
    body.body_bytes = 1;
    say(&rig, 1, &body, sizeof(body));
    assert_int_equal(next(&rig).kind, PST_NET_PEER_LOST);
    assert_int_equal(room[0], 0xaa);
    body.body_bytes = sizeof(room);
    say(&rig, 0, &body, sizeof(body)); /* the right one goes on */
    memset(room, 0x55, sizeof(room));
    say(&rig, 0, room, sizeof(room));
    assert_int_equal(next(&rig).kind, PST_NET_RECEIVED);
    say(&rig, 0, &body, sizeof(body)); /* once */
    assert_int_equal(next(&rig).status, -EPROTO);
    rig_close(&rig);
}

static void answers_that_fit_nothing(void **state)
{
    for (int i = 0; i < 3; i++) {
        struct stream_head answer = {.type = STREAM_GO};
        struct iovec iov = {.iov_base = "value", .iov_len = 5};
        struct rig rig;

        (void)state;
        rig_open(&rig);
        assert_int_equal(pst_peer_send_bulk(rig.peers[1], (struct pst_bytes){NULL, 0}, &iov, 1, NULL), 0);
        answer.id = hear(&rig, 1).id;
        if (i == 0) { /* of another connection */
            say(&rig, 0, &answer, sizeof(answer));
            expect_lost(&rig);
        } else { /* twice */
            say(&rig, 1, &answer, sizeof(answer));
            answer.type = i == 1 ? STREAM_GO : STREAM_REFUSED;
            say(&rig, 1, &answer, sizeof(answer));
            do
                answer.zero = (uint8_t)next(&rig).kind;
            while (answer.zero == PST_NET_SENT);
            assert_int_equal(answer.zero, PST_NET_PEER_LOST);
        }
        rig_close(&rig);
    }
}

/* One byte at a time is as good as all at once. */
static void frames_in_bytes(void **state)
{
    struct stream_head eager = {.type = STREAM_EAGER, .header_bytes = 3, .body_bytes = 4};
    struct stream_head body = {.type = STREAM_BODY, .body_bytes = 5};
    uint8_t frame[sizeof(eager) + 7], room[10];
    struct pst_net_event event = {.kind = PST_NET_SENT};
    struct rig rig;

    (void)state;
    rig_open(&rig);
    memcpy(frame, &eager, sizeof(eager));
    memcpy(frame + sizeof(eager), "abcdefg", 7);
    for (size_t i = 0; i < sizeof(frame); i++) {
        assert_int_equal(pst_port_poll(rig.port, &event, 1), 0);
        say(&rig, 0, frame + i, 1);
    }
    event = next(&rig);
    assert_memory_equal(event.header.data, "abc", 3);
    assert_memory_equal(event.data.data, "defg", 4);
    pst_msg_free(event.msg);
    body.id = announce(&rig, room, sizeof(room));
    memcpy(frame, &body, sizeof(body));
    for (int round = 0; round < 2; round++) {
        memcpy(frame + sizeof(body), round ? "fghij" : "abcde", 5);
        for (size_t i = 0; i < sizeof(body) + 5; i++) {
            assert_int_equal(pst_port_poll(rig.port, &event, 1), 0);
            say(&rig, 0, frame + i, 1);
        }
    }
    assert_int_equal(next(&rig).kind, PST_NET_RECEIVED);
    assert_memory_equal(room, "abcdefghij", 10);
    rig_close(&rig);
}

/* Messages that nobody frees are bounded; those that wait in the socket come when there is room. */
static void floods_wait(void **state)
{
    enum { MESSAGES = 20000, HELD_MAX = STREAM_MSGS_MAX + STREAM_SCRATCH_BYTES / STREAM_HEAD_BYTES + 1 };
    static struct pst_msg *held[MESSAGES];
    static const struct stream_head eager = {.type = STREAM_EAGER};
    uint64_t deadline_ns = pst_now_ns() + 60 * SECOND_NS;
    uint32_t said = 0, came = 0, freed = 0, most = 0;
    struct rig rig;

    (void)state;
    rig_open(&rig);
    while (freed < MESSAGES) {
        uint32_t before = came;
        struct pst_net_event event;

        assert_true(pst_now_ns() < deadline_ns);
        while (said < MESSAGES && send(rig.fds[0], &eager, sizeof(eager), MSG_NOSIGNAL) == sizeof(eager))
            said++;
        while (pst_port_poll(rig.port, &event, 1) == 1) {
            assert_int_equal(event.kind, PST_NET_EAGER);
            held[came++] = event.msg;
        }
        most = (uint32_t)pst_max(most, came - freed);
        if (came == before && said >= pst_min(MESSAGES, came)) /* no more of them comes */
            while (freed < came)
                pst_msg_free(held[freed++]);
    }
    assert_true(most >= STREAM_MSGS_MAX && most <= HELD_MAX);
    assert_int_equal(came, MESSAGES);
    rig_close(&rig);
}

/* Who does not take what it is sent is not heard, and has no more than its share; then all comes. */
static void who_does_not_read_is_not_read(void **state)
{
    enum { BYTES = 64 << 10, SHARE = 16 };
    static const struct stream_head eager = {.type = STREAM_EAGER};
    static uint8_t data[BYTES];
    const struct pst_bytes none = {NULL, 0};
    uint64_t deadline_ns = pst_now_ns() + 60 * SECOND_NS;
    int waiting = 0, ended = 0, came = 0;
    struct pst_net_event event;
    struct rig rig;

    (void)state;
    rig_open(&rig);
    while (waiting < SHARE)
        waiting += pst_peer_send(rig.peers[0], none, (struct pst_bytes){data, BYTES}, NULL) == 0;
    say(&rig, 0, &eager, sizeof(eager));
    say(&rig, 1, &eager, sizeof(eager));
    event = next(&rig);
    assert_int_equal(event.kind, PST_NET_EAGER);
    pst_msg_free(event.msg);
    assert_int_equal(pst_peer_send(rig.peers[1], none, (struct pst_bytes){data, 1}, NULL), 1);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(pst_port_poll(rig.port, &event, 1), 0);
    while (ended < waiting || came < 1) {
        static uint8_t taken[BYTES];

        assert_true(pst_now_ns() < deadline_ns);
        (void)!recv(rig.fds[0], taken, sizeof(taken), 0);
        if (pst_port_poll(rig.port, &event, 1) == 0)
            continue;
        ended += event.kind == PST_NET_SENT && event.status == 0;
        came += event.kind == PST_NET_EAGER;
        assert_true(came == 0 || ended >= SHARE / 2);
        if (event.kind == PST_NET_EAGER)
            pst_msg_free(event.msg);
    }
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_that_are_none),
        cmocka_unit_test(bytes_that_nobody_asked_for),
        cmocka_unit_test(answers_that_fit_nothing),
        cmocka_unit_test(frames_in_bytes),
        cmocka_unit_test(floods_wait),
        cmocka_unit_test(who_does_not_read_is_not_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

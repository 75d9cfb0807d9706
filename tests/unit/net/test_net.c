/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transports between two ports of one process. UCX's tests run over shared memory and over TCP, on a net
 * that is confined to loopback; with PENSTOCK_NET=memory, in a test build, what does not need UCX runs over
 * the transport in memory, and with PENSTOCK_NET=stream over a stream on a unix socket and on TCP.
 */
#include "lib/net_sides.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>

static void eager_sizes(void **state)
{
    static const size_t sizes[] = {0,     1,     7,     63,     64,     100,
                                   1000,  4096,  8000,  8191,   8192,   8193,
                                   30000, 65535, 65536, 100000, 131071, PST_NET_EAGER_BYTES_MAX};
    uint8_t *header = malloc(PST_NET_HEADER_BYTES_MAX), *data = malloc(PST_NET_EAGER_BYTES_MAX);
    struct pair *p = pair_open();
    uint32_t seed = 1;

    (void)state;
    for (size_t i = 0; i < pst_count_of(header_sizes) * pst_count_of(sizes) * 2; i++, seed += 2) {
        struct side *from = i % 2 ? &p->a : &p->b, *to = i % 2 ? &p->b : &p->a;
        size_t h = header_sizes[i / 2 % pst_count_of(header_sizes)];
        size_t d = sizes[i / 2 / pst_count_of(header_sizes)];
        struct pst_net_event event;

        fill(header, h, seed);
        fill(data, d, seed + 1);
        send_whole(from, to, bytes_of(header, h), bytes_of(data, d));
        memset(header, 0, h);
        memset(data, 0, d);
        event = await(to, from, PST_NET_EAGER);
        assert_int_equal(event.header.len, h);
        assert_int_equal(event.data.len, d);
        expect_filled(event.header.data, h, seed);
        expect_filled(event.data.data, d, seed + 1);
        pst_msg_free(event.msg);
    }
    assert_int_equal(
        pst_peer_send(p->a.peer, bytes_of(header, PST_NET_HEADER_BYTES_MAX + 1), bytes_of(data, 0), NULL),
        -EMSGSIZE);
    assert_int_equal(
        pst_peer_send(p->a.peer, bytes_of(header, 0), bytes_of(data, PST_NET_EAGER_BYTES_MAX + 1), NULL),
        -EMSGSIZE);
    pair_close(p);
    free(header);
    free(data);
}

/* Many messages that nobody polls for, until there is no room; then all of them come, whole and in order. */
static void eager_backlog(void **state)
{
    enum { COUNT = 4000, LEN = 3000 };
    struct pair *p = pair_open();
    uint8_t *data = malloc(COUNT * LEN);
    uint32_t sent = 0, came = 0, underway = 0;
    int r = 0;

    (void)state;
    fill(data, COUNT * LEN, 1);
    settle(&p->a, &p->b);
    while (sent < COUNT) {
        r = pst_peer_send(p->a.peer, bytes_of(&sent, sizeof(sent)), bytes_of(data + sent * LEN, LEN), NULL);
        if (r < 0)
            break;
        underway += r == 0;
        sent++;
    }
    assert_int_equal(r, -EBUSY);
    assert_int_equal(underway, EVENTS_MAX);
    for (; came < sent; came++) {
        struct pst_net_event event = await(&p->b, &p->a, PST_NET_EAGER);

        assert_memory_equal(event.header.data, &came, sizeof(came));
        assert_int_equal(event.data.len, LEN);
        assert_true(memcmp(event.data.data, data + came * LEN, LEN) == 0);
        pst_msg_free(event.msg);
    }
    while (underway-- > 0)
        assert_int_equal(await(&p->a, &p->b, PST_NET_SENT).status, 0);
    pair_close(p);
    free(data);
}

static void operations_are_bounded(void **state)
{
    struct pair *p = malloc(sizeof(*p));
    struct iovec iov = {.iov_base = malloc(1 << 20), .iov_len = 1 << 20};
    struct pst_net_event event;

    (void)state;
    pair_open_sized(p, 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pst_peer_send_bulk(p->a.peer, bytes_of("h", 1), &iov, 1, p), 0);
    assert_int_equal(pst_peer_send_bulk(p->a.peer, bytes_of("h", 1), &iov, 1, p), -EBUSY);
    assert_int_equal(pst_peer_send(p->a.peer, bytes_of("h", 1), bytes_of("d", 1), p), -EBUSY);
    event = await(&p->b, &p->a, PST_NET_BULK);
    pst_msg_free(event.msg); /* refused: its sender sees an end */
    await(&p->a, &p->b, PST_NET_SENT);
    send_whole(&p->a, &p->b, bytes_of("h", 1), bytes_of("d", 1));
    pair_close(p);
    free(iov.iov_base);
}

static void bulk_sizes(void **state)
{
    static const size_t sizes[] = {1, 7, 100, 4095, 4096, 65536, 1 << 20, (4 << 20) + 3, 64 << 20};
    struct pair *p = pair_open();

    (void)state;
    for (size_t i = 0; i < pst_count_of(sizes); i++) {
        bulk_once(&p->a, &p->b, header_sizes[i], sizes[i], 1, 1);
        bulk_once(&p->b, &p->a, header_sizes[pst_count_of(sizes) - 1 - i], sizes[i], 1, 1);
    }
    assert_int_equal(p->a.count + p->b.count, 0);
    pair_close(p);
}

static void bulk_pieces(void **state)
{
    static const struct {
        size_t len;
        int out, in;
    } rows[] = {
        {256 << 10, 32, 1}, {2 << 20, 1, 32}, {256 << 10, 32, 32}, {256 << 10, 1024, 1024}, {5000, 1000, 3},
        {1024, 1024, 1024}, {3, 3, 1},        {64 << 20, 1, 64},   {100001, 4, 5},          {100001, 5, 4},
    };
    struct pair *p = pair_open();

    (void)state;
    for (size_t i = 0; i < pst_count_of(rows); i++) {
        bulk_once(&p->a, &p->b, 48, rows[i].len, rows[i].out, rows[i].in);
        bulk_once(&p->b, &p->a, 300, rows[i].len, rows[i].out, rows[i].in);
    }
    pair_close(p);
}

static void bulk_limits(void **state)
{
    uint8_t *data = malloc(8 << 20);
    struct iovec far[2] = {{.iov_base = data, .iov_len = 2 << 20},
                           {.iov_base = data + (4 << 20), .iov_len = 3 << 20}};
    struct iovec touching[3] = {{.iov_base = data, .iov_len = 4 << 20},
                                {.iov_base = data, .iov_len = 0},
                                {.iov_base = data + (4 << 20), .iov_len = 4 << 20}};
    struct iovec small[2] = {{.iov_base = data, .iov_len = 10}, {.iov_base = data + 100, .iov_len = 10}};
    struct iovec none = {.iov_base = data, .iov_len = 0};
    struct pair *p = pair_open();
    bool gathers = pst_peer_gathers(p->a.peer);

    (void)state;
    assert_int_equal(gathers, !network || over_stream());
    assert_int_equal(pst_peer_send_bulk(p->a.peer, bytes_of("", 0), &none, 1, NULL), -EMSGSIZE);
    assert_int_equal(pst_peer_send_bulk(p->a.peer, bytes_of("", 0), far, 2, NULL), gathers ? 0 : -EMSGSIZE);
    /* What touches in memory is one piece, and any length of it may go. */
    assert_int_equal(pst_peer_send_bulk(p->a.peer, bytes_of("", 0), touching, 3, NULL), 0);
    for (int i = 0; i < 8; i++)
        assert_int_equal(pst_peer_send_bulk(p->a.peer, bytes_of("", 0), small, 2, NULL), 0);
    assert_int_equal(pst_peer_send_bulk(p->a.peer, bytes_of("", 0), small, 2, NULL), gathers ? 0 : -EBUSY);
    for (int i = 0; i < (gathers ? 11 : 9); i++)
        pst_msg_free(await(&p->b, &p->a, PST_NET_BULK).msg);
    for (int i = 0; i < (gathers ? 11 : 9); i++)
        await(&p->a, &p->b, PST_NET_SENT);
    assert_int_equal(pst_peer_send_bulk(p->a.peer, bytes_of("", 0), small, 2, NULL),
                     0); /* buffers are back */
    pair_close(p);
    free(data);
}

/* Many bulk messages at once, both ways, received out of order. */
static void bulk_window(void **state)
{
    enum { WINDOW = 16, LEN = 300000 };
    struct pair *p = pair_open();
    uint8_t *out = malloc(WINDOW * LEN), *in = malloc(WINDOW * LEN);
    struct pst_msg *msgs[WINDOW];

    (void)state;
    fill(out, WINDOW * LEN, 3);
    for (int i = 0; i < WINDOW; i++) {
        struct iovec iov = {.iov_base = out + i * LEN, .iov_len = LEN};

        assert_int_equal(pst_peer_send_bulk(p->a.peer, bytes_of(&i, sizeof(i)), &iov, 1, NULL), 0);
    }
    for (int i = 0; i < WINDOW; i++) {
        struct pst_net_event event = await(&p->b, &p->a, PST_NET_BULK);
        int number;

        memcpy(&number, event.header.data, sizeof(number));
        msgs[number] = event.msg;
    }
    for (int i = WINDOW - 1; i >= 0; i--) {
        struct iovec iov = {.iov_base = in + i * LEN, .iov_len = LEN};

        assert_int_equal(pst_msg_receive(msgs[i], &iov, 1, NULL), 0);
    }
    for (int i = 0; i < WINDOW; i++) {
        assert_int_equal(await(&p->b, &p->a, PST_NET_RECEIVED).status, 0);
        assert_int_equal(await(&p->a, &p->b, PST_NET_SENT).status, 0);
    }
    assert_true(memcmp(in, out, WINDOW * LEN) == 0);
    pair_close(p);
    free(in);
    free(out);
}

static const char *lane(void)
{
    if (over_stream())
        return network ? "stream" : "stream-unix";
    return getenv("PENSTOCK_NET") ? "memory" : network ? "tcp" : "posix";
}

static void lanes(void **state)
{
    struct pair *p = pair_open();

    (void)state;
    assert_string_equal(pst_peer_lane(p->a.peer), lane());
    assert_false(pst_peer_direct(p->a.peer));
    send_whole(&p->a, &p->b, bytes_of("h", 1), bytes_of("d", 1));
    pst_msg_free(await(&p->b, &p->a, PST_NET_EAGER).msg);
    assert_string_equal(pst_peer_lane(p->b.peer), lane());
    pair_close(p);
}

static void arm_and_wake(void **state)
{
    struct pair *p = pair_open();
    struct pollfd fd = {.fd = pst_port_fd(p->b.port), .events = POLLIN};
    uint64_t deadline_ns = pst_now_ns() + 20 * SECOND_NS;
    int r;

    (void)state;
    for (int i = 0; i < 2; i++) { /* with the second one the endpoints get to know each other */
        send_whole(&p->a, &p->b, bytes_of("h", 1), bytes_of("d", 1));
        pst_msg_free(await(&p->b, &p->a, PST_NET_EAGER).msg);
    }
    settle(&p->a, &p->b);
    for (int i = 0; i < 50; i++) {
        while ((r = pst_port_arm(p->b.port)) == -EAGAIN && pst_now_ns() < deadline_ns)
            side_poll(&p->b);
        assert_int_equal(r, 0);
        send_whole(&p->a, NULL, bytes_of("wake", 4), bytes_of("d", 1));
        assert_int_equal(poll(&fd, 1, 10000), 1);
        pst_msg_free(await(&p->b, NULL, PST_NET_EAGER).msg);
    }
    /* An event that waits for its poll forbids sleep. */
    send_whole(&p->a, NULL, bytes_of("1", 1), bytes_of("d", 1));
    send_whole(&p->a, NULL, bytes_of("2", 1), bytes_of("d", 1));
    while (pst_port_poll(p->b.port, p->b.got, 1) == 0)
        assert_true(pst_now_ns() < deadline_ns);
    pst_msg_free(p->b.got[0].msg);
    r = pst_port_arm(p->b.port);
    if (r == 0 && over_stream()) /* it is still in the socket */
        assert_int_equal(poll(&fd, 1, 10000), 1);
    else
        assert_int_equal(r, -EAGAIN);
    pst_msg_free(await(&p->b, NULL, PST_NET_EAGER).msg);
    pair_close(p);
}

/* Whole transfers between two that sleep whenever they may: every wake-up that one needs comes. */
static void transfer_asleep(void **state)
{
    enum { LEN = 16 << 20, SMALL = 64 };
    struct pair *p = pair_open();
    uint8_t *out = calloc(1, LEN), *in = malloc(LEN);
    struct iovec iov = {.iov_base = out, .iov_len = LEN};
    uint64_t deadline_ns = pst_now_ns() + 30 * SECOND_NS;
    int wanted = SMALL + 2, sleeps = 0;
    struct pst_net_event event;

    (void)state;
    assert_int_equal(pst_peer_send_bulk(p->a.peer, bytes_of("h", 1), &iov, 1, NULL), 0);
    for (int i = 0; i < SMALL; i++) /* more than a lane takes at once */
        wanted += pst_peer_send(p->a.peer, bytes_of("h", 1), bytes_of(out, 100000), NULL) == 0;
    while (wanted > 0) {
        struct pollfd fds[2] = {{.fd = pst_port_fd(p->a.port), .events = POLLIN},
                                {.fd = pst_port_fd(p->b.port), .events = POLLIN}};

        assert_true(pst_now_ns() < deadline_ns);
        if (side_poll(&p->a) + side_poll(&p->b) == 0 && pst_port_arm(p->a.port) == 0 &&
            pst_port_arm(p->b.port) == 0) {
            sleeps++;
            assert_true(poll(fds, 2, 500) > 0);
        }
        while (side_find(&p->a, PST_NET_SENT, &event) || side_find(&p->b, PST_NET_RECEIVED, &event))
            wanted--;
        while (side_find(&p->b, PST_NET_EAGER, &event)) {
            pst_msg_free(event.msg);
            wanted--;
        }
        if (side_find(&p->b, PST_NET_BULK, &event)) {
            iov.iov_base = in;
            assert_int_equal(pst_msg_receive(event.msg, &iov, 1, NULL), 0);
        }
    }
    assert_true(memcmp(in, out, LEN) == 0);
    (void)sleeps;
    pair_close(p);
    free(out);
    free(in);
}

static void addresses(void **state)
{
    struct pair *p = pair_open();
    uint8_t buf[PST_NET_ADDRESS_BYTES_MAX];
    struct pst_peer *peer;
    int full = pst_port_address(p->a.port, false, buf, sizeof(buf));
    int net = pst_port_address(p->a.port, true, buf, sizeof(buf));

    (void)state;
    assert_true(net > 0 && full > net);
    assert_int_equal(pst_port_address(p->a.port, true, buf, (size_t)net - 1), -ENOSPC);
    assert_int_equal(pst_peer_open(p->a.port, buf, 0, NULL, &peer), -EINVAL);
    pair_close(p);
}

static void memory_is_registered(void **state)
{
    struct pst_net *net = net_open();
    void *memory = malloc(1 << 20), *handle = NULL;

    (void)state;
    assert_int_equal(pst_net_register(net, memory, 1 << 20, &handle), 0);
    pst_net_unregister(net, handle);
    pst_net_close(net);
    free(memory);
}

static int run_memory(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lanes),         cmocka_unit_test(eager_sizes),
        cmocka_unit_test(eager_backlog), cmocka_unit_test(operations_are_bounded),
        cmocka_unit_test(bulk_sizes),    cmocka_unit_test(bulk_pieces),
        cmocka_unit_test(bulk_limits),   cmocka_unit_test(bulk_window),
        cmocka_unit_test(arm_and_wake),  cmocka_unit_test(transfer_asleep),
        cmocka_unit_test(addresses),     cmocka_unit_test(memory_is_registered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

static int run_stream(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(lanes),
        BOTH(eager_sizes),
        BOTH(eager_backlog),
        BOTH(operations_are_bounded),
        BOTH(bulk_sizes),
        BOTH(bulk_pieces),
        BOTH(bulk_limits),
        BOTH(bulk_window),
        BOTH(arm_and_wake),
        BOTH(transfer_asleep),
        cmocka_unit_test(memory_is_registered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(lanes),         BOTH(eager_sizes),
        BOTH(eager_backlog), BOTH(operations_are_bounded),
        BOTH(bulk_sizes),    BOTH(bulk_pieces),
        BOTH(bulk_limits),   BOTH(bulk_window),
        BOTH(arm_and_wake),  BOTH(transfer_asleep),
        BOTH(addresses),     cmocka_unit_test(memory_is_registered),
    };

    if (over_stream())
        return run_stream();
    if (getenv("PENSTOCK_NET"))
        return run_memory();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

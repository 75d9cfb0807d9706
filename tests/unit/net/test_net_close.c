/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_net_close.c: ports and peers of the transports that end, with anything underway. Which transports: see
 * test_net.c.
 */
#include "lib/net_sides.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>

/*
 * A receive that is underway when its peer is closed: it ends, and the memory is ours again: whatever the
 * sender still sends does not get into it.
 */
static void close_with_receive_underway(void **state)
{
    enum { LEN = 16 << 20 };
    struct pair *p = pair_open();
    uint8_t *out = malloc(LEN), *in = malloc(LEN), *clean = malloc(LEN);
    struct iovec iov = {.iov_base = out, .iov_len = LEN};
    uint64_t until_ns;
    int cut = 0;

    (void)state;
    memset(out, 0x55, LEN);
    for (int polls = 0; polls < 40; polls += 4) { /* at various points of the transfer */
        struct pst_net_event event;

        iov.iov_base = out;
        assert_int_equal(pst_peer_send_bulk(p->b.peer, bytes_of("h", 1), &iov, 1, NULL), 0);
        event = await(&p->a, &p->b, PST_NET_BULK);
        iov.iov_base = in;
        assert_int_equal(pst_msg_receive(event.msg, &iov, 1, NULL), 0);
        for (int i = 0; i < polls; i++) {
            side_poll(&p->b);
            side_poll(&p->a);
        }
        pst_peer_close(p->a.peer);
        await(&p->a, NULL, PST_NET_PEER_GONE);
        assert_int_equal(p->a.count, 1); /* the receive's end came before */
        assert_int_equal(p->a.got[0].kind, PST_NET_RECEIVED);
        assert_true(p->a.got[0].status == -ECANCELED || p->a.got[0].status == 0);
        cut += p->a.got[0].status != 0;
        memset(in, 0xaa, LEN);
        memset(clean, 0xaa, LEN);
        until_ns = pst_now_ns() + SECOND_NS / 20;
        while (pst_now_ns() < until_ns) {
            side_poll(&p->b);
            side_poll(&p->a);
        }
        assert_true(memcmp(in, clean, LEN) == 0);
        pst_peer_close(p->b.peer);
        await(&p->b, &p->a, PST_NET_PEER_GONE);
        p->a.count = p->b.count = 0;
        side_connect(&p->a, &p->b);
        side_connect(&p->b, &p->a);
    }
    assert_true(cut > 0);
    bulk_once(&p->a, &p->b, 1, 1 << 20, 1, 1);
    bulk_once(&p->b, &p->a, 1, 1 << 20, 1, 1);
    pair_close(p);
    free(out);
    free(in);
    free(clean);
}

static void close_with_sends_underway(void **state)
{
    enum { LEN = 8 << 20 };
    struct pair *p = pair_open();
    uint8_t *data = calloc(1, LEN);
    struct iovec iov = {.iov_base = data, .iov_len = LEN};
    int r, bulk = 0;

    (void)state;
    settle(&p->a, &p->b);
    for (int i = 0; i < 10; i++)
        bulk += pst_peer_send_bulk(p->a.peer, bytes_of("h", 1), &iov, 1, NULL) == 0;
    assert_int_equal(bulk, 10);
    do { /* eager ones until they queue up: nobody reads before the close */
        r = pst_peer_send(p->a.peer, bytes_of("h", 1), bytes_of(data, PST_NET_EAGER_BYTES_MAX), NULL);
        bulk += r == 0;
    } while (r >= 0);
    assert_int_equal(r, -EBUSY);
    assert_int_equal(bulk, EVENTS_MAX);
    pst_peer_close(p->a.peer);
    await(&p->a, &p->b, PST_NET_PEER_GONE);
    assert_int_equal(p->a.count, EVENTS_MAX); /* each with an end, before the peer's */
    p->a.count = 0;
    settle(&p->a, &p->b);
    pair_close(p);
    free(data);
}

/* Announced messages outlive their peer as something that may be freed or received in vain. */
static void close_with_messages_held(void **state)
{
    struct pair *p = pair_open();
    uint8_t data[20000] = {0};
    struct iovec iov = {.iov_base = data, .iov_len = sizeof(data)};
    struct pst_net_event held, bulk[3];

    (void)state;
    send_whole(&p->b, &p->a, bytes_of("h", 1), bytes_of(data, sizeof(data)));
    held = await(&p->a, &p->b, PST_NET_EAGER);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pst_peer_send_bulk(p->b.peer, bytes_of("h", 1), &iov, 1, NULL), 0);
        bulk[i] = await(&p->a, &p->b, PST_NET_BULK);
    }
    pst_peer_close(p->a.peer);
    assert_int_equal(pst_msg_receive(bulk[0].msg, &iov, 1, &held), 0);
    assert_int_equal(await(&p->a, NULL, PST_NET_RECEIVED).status, -ECANCELED);
    await(&p->a, &p->b, PST_NET_PEER_GONE);
    assert_int_equal(pst_msg_receive(bulk[1].msg, &iov, 1, &held), 0);
    assert_int_equal(await(&p->a, NULL, PST_NET_RECEIVED).status, -ECANCELED);
    pst_msg_free(bulk[2].msg);
    assert_int_equal(((const uint8_t *)held.data.data)[19999], 0); /* eager ones stay readable */
    pst_msg_free(held.msg);
    pair_close(p);
}

/* A peer that is announced to us by its messages before we have opened it. */
static void messages_before_open(void **state)
{
    struct pair *p = pair_open();
    struct side c = {.count = 0};
    uint8_t *data = calloc(1, 1 << 20), *in = malloc(1 << 20);
    struct iovec iov = {.iov_base = data, .iov_len = 1 << 20};
    struct pst_net_event event;

    (void)state;
    assert_int_equal(pst_port_open(p->net, EVENTS_MAX, &c.port), 0);
    side_connect(&c, &p->a);
    assert_int_equal(pst_peer_send_bulk(c.peer, bytes_of("h", 1), &iov, 1, NULL), 0);
    event = await(&p->a, &c, PST_NET_BULK);
    iov.iov_base = in;
    assert_int_equal(pst_msg_receive(event.msg, &iov, 1, NULL), 0);
    pst_peer_close(p->a.peer);
    await(&p->a, NULL, PST_NET_PEER_GONE);
    side_connect(&p->a, &c); /* takes the receive over */
    pst_peer_close(p->a.peer);
    await(&p->a, NULL, PST_NET_PEER_GONE);
    assert_int_equal(p->a.count, 1);
    assert_int_equal(p->a.got[0].kind, PST_NET_RECEIVED);
    pst_port_close(c.port);
    pair_close(p);
    free(data);
    free(in);
}

static void port_close_with_everything_underway(void **state)
{
    for (int order = 0; order < 2; order++) {
        struct pair *p = pair_open();
        uint8_t *data = calloc(1, 1 << 20), *in = malloc(1 << 20);
        struct iovec iov = {.iov_base = data, .iov_len = 1 << 20};
        struct pst_net_event event;

        (void)state;
        for (int i = 0; i < 20; i++) {
            assert_true(pst_peer_send(p->a.peer, bytes_of("h", 1), bytes_of(data, 50000), NULL) >= 0);
            assert_int_equal(pst_peer_send_bulk(p->a.peer, bytes_of("h", 1), &iov, 1, NULL), 0);
        }
        event = await(&p->b, &p->a, PST_NET_BULK);
        iov.iov_base = in;
        assert_int_equal(pst_msg_receive(event.msg, &iov, 1, NULL), 0);
        await(&p->b, &p->a, PST_NET_BULK);  /* held */
        await(&p->b, &p->a, PST_NET_EAGER); /* held */
        if (order == 0) {                   /* the receiver first */
            p->b.port = pst_port_close(p->b.port);
            for (int i = 0; i < 50; i++)
                side_poll(&p->a);
        } else {
            p->a.port = pst_port_close(p->a.port);
            for (int i = 0; i < 50; i++)
                side_poll(&p->b);
        }
        pair_close(p);
        free(data);
        free(in);
    }
}

/* A receiver that takes nothing more: what is underway ends all the same, each once. */
static void abandoned_port_tells_every_end(void **state)
{
    enum { SMALL = 300, BULKS = 3 };
    struct pair *p = pair_open();
    uint8_t *data = calloc(1, 4 << 20);
    struct iovec iov = {.iov_base = data, .iov_len = 4 << 20};
    int sent = 0, gone = 0;

    (void)state;
    send_whole(&p->a, &p->b, bytes_of("h", 1), bytes_of("d", 1));
    pst_msg_free(await(&p->b, &p->a, PST_NET_EAGER).msg);
    settle(&p->a, &p->b);
    p->a.count = 0;
    for (int i = 0; i < BULKS; i++)
        assert_int_equal(pst_peer_send_bulk(p->a.peer, bytes_of("h", 1), &iov, 1, data), 0);
    for (int i = 0; i < SMALL; i++)
        assert_true(pst_peer_send(p->a.peer, bytes_of("h", 1), bytes_of(data, 1000), NULL) >= 0);
    pst_peer_close(p->a.peer);
    pst_port_abandon(p->a.port);
    await(&p->a, NULL, PST_NET_PEER_GONE);
    for (int i = 0; i < p->a.count; i++) {
        sent += p->a.got[i].kind == PST_NET_SENT && p->a.got[i].arg == data;
        gone += p->a.got[i].kind == PST_NET_PEER_GONE;
    }
    assert_int_equal(sent, BULKS);
    assert_int_equal(gone, 0); /* the one that was awaited */
    pair_close(p);
    free(data);
}

static int descriptors_open(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;

    while (dir && readdir(dir))
        count++;
    closedir(dir);
    return count;
}

/* A peer that comes late with a port's address must not find the next port's memory under it. */
static void numbers_do_not_come_back(void **state)
{
    enum { NUMBERS = 512, PORTS = 5 };
    bool other[NUMBERS], had[NUMBERS] = {false};
    struct pst_net *net = net_open();

    (void)state;
    for (int n = 0; n < NUMBERS; n++)
        other[n] = fcntl(n, F_GETFD) >= 0;
    for (int i = 0; i < PORTS; i++) {
        bool has[NUMBERS];
        struct pst_port *port;
        int count = 0;

        assert_int_equal(pst_port_open(net, EVENTS_MAX, &port), 0);
        for (int n = 0; n < NUMBERS; n++) {
            has[n] = !other[n] && fcntl(n, F_GETFD) >= 0;
            count += has[n];
            assert_false(has[n] && had[n]);
        }
        assert_true(count > 0);
        memcpy(had, has, sizeof(had));
        pst_port_close(port);
    }
    pst_net_close(net);
}

/* Clients that come and go leave nothing behind in a port that stays. */
static void descriptors_come_back(void **state)
{
    struct pair *p = pair_open();
    uint64_t deadline_ns;
    int before = 0, after = 0;

    (void)state;
    for (int round = 0; round < 12; round++) {
        struct side c = {.count = 0}, d = {.port = p->a.port};

        assert_int_equal(pst_port_open(p->net, 16, &c.port), 0);
        side_connect(&c, &p->a);
        side_connect(&d, &c);
        for (int i = 0; i < 3; i++) {
            send_whole(&c, &d, bytes_of("h", 1), bytes_of("d", 1));
            pst_msg_free(await(&d, &c, PST_NET_EAGER).msg);
            send_whole(&d, &c, bytes_of("h", 1), bytes_of("d", 1));
            pst_msg_free(await(&c, &d, PST_NET_EAGER).msg);
        }
        pst_port_close(c.port);
        pst_peer_close(d.peer);
        await(&d, NULL, PST_NET_PEER_GONE);
        for (int i = 0; i < 100; i++)
            side_poll(&d);
        if (round == 1)
            before = descriptors_open();
    }
    deadline_ns = pst_now_ns() + 5 * SECOND_NS;
    do {
        side_poll(&p->a);
        after = descriptors_open();
    } while (after > before && pst_now_ns() < deadline_ns);
    assert_int_equal(after, before);
    pair_close(p);
}

/* The process's nets stand on one context: whichever is closed first, the others go on. */
static void nets_outlive_each_other(void **state)
{
    struct pst_net *first = net_open();
    struct pair *p = pair_open();
    struct pst_net *last = net_open();

    (void)state;
    assert_ptr_not_equal(first, last);
    pst_net_close(first);
    send_whole(&p->a, &p->b, bytes_of("h", 1), bytes_of("d", 1));
    pst_msg_free(await(&p->b, &p->a, PST_NET_EAGER).msg);
    pair_close(p);
    p = pair_open();
    pst_net_close(last);
    send_whole(&p->a, &p->b, bytes_of("h", 1), bytes_of("d", 1));
    pst_msg_free(await(&p->b, &p->a, PST_NET_EAGER).msg);
    pair_close(p);
}

static int run_memory(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(close_with_receive_underway),
        cmocka_unit_test(close_with_sends_underway),
        cmocka_unit_test(close_with_messages_held),
        cmocka_unit_test(messages_before_open),
        cmocka_unit_test(port_close_with_everything_underway),
        cmocka_unit_test(abandoned_port_tells_every_end),
        cmocka_unit_test(descriptors_come_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

static int run_stream(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(close_with_receive_underway),
        BOTH(close_with_sends_underway),
        BOTH(close_with_messages_held),
        BOTH(descriptors_come_back),
        BOTH(port_close_with_everything_underway),
        BOTH(nets_outlive_each_other),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(close_with_receive_underway),
        BOTH(close_with_sends_underway),
        BOTH(close_with_messages_held),
        BOTH(messages_before_open),
        BOTH(port_close_with_everything_underway),
        BOTH(descriptors_come_back),
        BOTH(nets_outlive_each_other),
        cmocka_unit_test(numbers_do_not_come_back),
    };

    if (over_stream())
        return run_stream();
    if (getenv("PENSTOCK_NET"))
        return run_memory();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

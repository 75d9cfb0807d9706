/*
 * The transports: two ports in one process, and two processes. UCX's tests run over shared memory (full
 * addresses) and over TCP (network-only addresses), on a net that is confined to loopback; with
 * PENSTOCK_NET=memory, in a test build, what does not need UCX runs over the transport in memory. All waiting
 * has a deadline.
 */
#include "cm.h"

#include "base/clock.h"
#include "net/net.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define SECOND_NS 1000000000ull

enum {
    GOT_MAX = 8192,
    EVENTS_MAX = 256,
};

static bool network; /* which of the two a group of tests runs over */

/* A port with its one peer, and the events that nobody has asked for yet. */
struct side {
    struct pst_port *port;
    struct pst_peer *peer;
    struct pst_net_event got[GOT_MAX];
    int count;
};

struct pair {
    struct pst_net *net;
    struct side a, b;
};

static struct pst_bytes bytes_of(const void *data, size_t len)
{
    return (struct pst_bytes){data, len};
}

static void fill(uint8_t *data, size_t len, uint32_t seed)
{
    uint64_t x = seed * 0x9e3779b97f4a7c15u + 1;

    for (size_t i = 0; i < len; i += 8) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        memcpy(data + i, &x, len - i < 8 ? len - i : 8);
    }
}

static void expect_filled(const uint8_t *data, size_t len, uint32_t seed)
{
    uint8_t *wanted = malloc(len + 1);

    fill(wanted, len, seed);
    assert_true(len == 0 || memcmp(data, wanted, len) == 0); /* assert_memory_equal is slow on much */
    free(wanted);
}

static struct pst_net *net_open(void)
{
    struct pst_net_options options = {.loopback_only = true};
    struct pst_net *net;

    assert_int_equal(pst_net_open(&options, &net), 0);
    return net;
}

static void side_connect(struct side *side, struct side *to)
{
    uint8_t address[PST_NET_ADDRESS_BYTES_MAX];
    int bytes = pst_port_address(to->port, network, address, sizeof(address));

    assert_true(bytes > 0);
    assert_int_equal(pst_peer_open(side->port, address, (size_t)bytes, side, &side->peer), 0);
}

static void pair_open_sized(struct pair *p, uint32_t events_max)
{
    memset(p, 0, sizeof(*p));
    p->net = net_open();
    assert_int_equal(pst_port_open(p->net, events_max, &p->a.port), 0);
    assert_int_equal(pst_port_open(p->net, events_max, &p->b.port), 0);
    side_connect(&p->a, &p->b);
    side_connect(&p->b, &p->a);
}

static struct pair *pair_open(void)
{
    struct pair *p = malloc(sizeof(*p));

    pair_open_sized(p, EVENTS_MAX);
    return p;
}

static void pair_close(struct pair *p)
{
    pst_port_close(p->a.port);
    pst_port_close(p->b.port);
    pst_net_close(p->net);
    free(p);
}

/* Return: events that came. */
static int side_poll(struct side *side)
{
    int n = pst_port_poll(side->port, side->got + side->count, 16);

    side->count += n;
    assert_true(side->count <= GOT_MAX - 16);
    return n;
}

static bool side_find(struct side *side, enum pst_net_kind kind, struct pst_net_event *out)
{
    for (int i = 0; i < side->count; i++) {
        if (side->got[i].kind != kind)
            continue;
        *out = side->got[i];
        side->count--;
        memmove(side->got + i, side->got + i + 1, (size_t)(side->count - i) * sizeof(*out));
        return true;
    }
    return false;
}

/* The next event of a kind at @side, while @other (or NULL) is polled too. */
static struct pst_net_event await(struct side *side, struct side *other, enum pst_net_kind kind)
{
    uint64_t deadline_ns = pst_now_ns() + 20 * SECOND_NS;
    struct pst_net_event event = {.status = 0};

    while (!side_find(side, kind, &event)) {
        if (pst_now_ns() > deadline_ns)
            fail_msg("no event of kind %d", kind);
        side_poll(side);
        if (other)
            side_poll(other);
    }
    return event;
}

/* Sends, polling both while there is no room, and waits for the end. */
static void send_whole(struct side *from, struct side *to, struct pst_bytes header, struct pst_bytes data)
{
    int r = pst_peer_send(from->peer, header, data, from);

    assert_true(r == 0 || r == 1);
    if (r == 0) {
        struct pst_net_event event = await(from, to, PST_NET_SENT);

        assert_int_equal(event.status, 0);
        assert_ptr_equal(event.arg, from);
    }
}

static void settle(struct side *a, struct side *b)
{
    for (int i = 0; i < 200; i++) {
        side_poll(a);
        side_poll(b);
    }
}

static const size_t header_sizes[] = {0, 1, 48, 255, 256, 257, 1000, 4095, 4096};

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

/* Sends @len bytes in @pieces_out pieces and receives them in @pieces_in, both in an order of their own. */
static void bulk_once(struct side *from, struct side *to, size_t header_len, size_t len, int pieces_out,
                      int pieces_in)
{
    uint8_t header[PST_NET_HEADER_BYTES_MAX], *data = malloc(len), *out = malloc(len), *in = malloc(len);
    struct iovec *iov = calloc(PST_NET_BULK_IOV_MAX, sizeof(*iov));
    size_t step = len / (size_t)pieces_out, at = 0;
    struct pst_net_event event;
    int r;

    fill(header, header_len, 5);
    fill(data, len, (uint32_t)len);
    /* The pieces lie in memory from the last to the first, so none can be joined. */
    for (int i = 0; i < pieces_out; i++) {
        size_t n = i == pieces_out - 1 ? len - at : step;

        iov[i] = (struct iovec){.iov_base = out + len - at - n, .iov_len = n};
        memcpy(iov[i].iov_base, data + at, n);
        at += n;
    }
    r = pst_peer_send_bulk(from->peer, bytes_of(header, header_len), iov, pieces_out, data);
    assert_int_equal(r, 0);
    event = await(to, from, PST_NET_BULK);
    assert_int_equal(event.header.len, header_len);
    expect_filled(event.header.data, header_len, 5);
    assert_null(event.data.data);
    assert_int_equal(event.data.len, len);
    step = len / (size_t)pieces_in;
    at = 0;
    for (int i = 0; i < pieces_in; i++) {
        size_t n = i == pieces_in - 1 ? len - at : step;

        iov[i] = (struct iovec){.iov_base = in + len - at - n, .iov_len = n};
        at += n;
    }
    assert_int_equal(pst_msg_receive(event.msg, iov, pieces_in, in), 0);
    event = await(to, from, PST_NET_RECEIVED);
    assert_int_equal(event.status, 0);
    assert_ptr_equal(event.arg, in);
    event = await(from, to, PST_NET_SENT);
    assert_int_equal(event.status, 0);
    assert_ptr_equal(event.arg, data);
    at = 0;
    for (int i = 0; i < pieces_in; i++) {
        assert_true(memcmp(iov[i].iov_base, data + at, iov[i].iov_len) == 0);
        at += iov[i].iov_len;
    }
    free(iov);
    free(data);
    free(out);
    free(in);
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
    assert_int_equal(gathers, !network);
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
    return getenv("PENSTOCK_NET") ? "memory" : network ? "tcp" : "posix";
}

static void lanes(void **state)
{
    struct pair *p = pair_open();

    (void)state;
    assert_string_equal(pst_peer_lane(p->a.peer), lane());
    send_whole(&p->a, &p->b, bytes_of("h", 1), bytes_of("d", 1));
    pst_msg_free(await(&p->b, &p->a, PST_NET_EAGER).msg);
    assert_string_equal(pst_peer_lane(p->b.peer), lane());
    pair_close(p);
}

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
    assert_int_equal(pst_port_arm(p->b.port), -EAGAIN);
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

/* ---- two processes ---- */

static void exchange(int fd, struct side *side)
{
    uint8_t address[PST_NET_ADDRESS_BYTES_MAX] = {0};

    assert_true(pst_port_address(side->port, network, address, sizeof(address)) > 0);
    assert_int_equal(send(fd, address, sizeof(address), MSG_NOSIGNAL), sizeof(address));
    assert_int_equal(recv(fd, address, sizeof(address), MSG_WAITALL), sizeof(address));
    assert_int_equal(pst_peer_open(side->port, address, sizeof(address), side, &side->peer), 0);
}

static struct side *process_side(int fd, struct pst_net **net)
{
    struct side *side = calloc(1, sizeof(*side));

    *net = net_open();
    assert_int_equal(pst_port_open(*net, EVENTS_MAX, &side->port), 0);
    exchange(fd, side);
    return side;
}

/* Answers eager messages with the same, receives bulk ones and sends them back, until it is told to quit or
 * killed. */
static void echo(int fd)
{
    struct pst_net *net;
    struct side *side = process_side(fd, &net);
    uint64_t deadline_ns = pst_now_ns() + 60 * SECOND_NS;

    while (pst_now_ns() < deadline_ns) {
        struct pst_net_event e;

        side_poll(side);
        while (side_find(side, PST_NET_EAGER, &e)) {
            uint8_t *copy = malloc(e.data.len + 1), header[PST_NET_HEADER_BYTES_MAX];

            if (e.header.len == 4 && memcmp(e.header.data, "quit", 4) == 0) {
                pst_msg_free(e.msg);
                pst_port_close(side->port);
                pst_net_close(net);
                _exit(0);
            }
            memcpy(copy, e.data.data, e.data.len);
            memcpy(header, e.header.data, e.header.len);
            pst_msg_free(e.msg);
            if (pst_peer_send(side->peer, bytes_of(header, e.header.len), bytes_of(copy, e.data.len), copy) ==
                1)
                free(copy);
        }
        while (side_find(side, PST_NET_BULK, &e)) {
            struct iovec *iov = malloc(sizeof(*iov));

            *iov = (struct iovec){.iov_base = malloc(e.data.len), .iov_len = e.data.len};
            pst_msg_receive(e.msg, iov, 1, iov);
        }
        while (side_find(side, PST_NET_RECEIVED, &e)) {
            struct iovec *iov = e.arg;

            pst_peer_send_bulk(side->peer, bytes_of("back", 4), iov, 1, iov->iov_base);
            free(iov);
        }
        while (side_find(side, PST_NET_SENT, &e))
            free(e.arg);
    }
    _exit(1);
}

static struct side *child_start(pid_t *pid, int *fd, struct pst_net **net)
{
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    *pid = fork();
    assert_true(*pid >= 0);
    if (*pid == 0) {
        close(fds[0]);
        echo(fds[1]);
    }
    close(fds[1]);
    *fd = fds[0];
    return process_side(fds[0], net);
}

static void side_end(struct side *side, struct pst_net *net, int fd)
{
    pst_port_close(side->port);
    pst_net_close(net);
    close(fd);
    free(side);
}

static void two_processes(void **state)
{
    static const size_t sizes[] = {0, 100, 5000, 8192, 65536, PST_NET_EAGER_BYTES_MAX};
    uint8_t *out = malloc(64 << 20), *in = malloc(64 << 20);
    struct pst_net_event event;
    struct pst_net *net;
    struct side *side;
    int fd, status;
    pid_t pid;

    (void)state;
    side = child_start(&pid, &fd, &net);
    assert_string_equal(pst_peer_lane(side->peer), network ? "tcp" : "posix");
    fill(out, 64 << 20, 9);
    for (size_t i = 0; i < pst_count_of(sizes) * pst_count_of(header_sizes); i++) {
        size_t h = header_sizes[i % pst_count_of(header_sizes)], d = sizes[i / pst_count_of(header_sizes)];
        int r = pst_peer_send(side->peer, bytes_of(out + 7, h), bytes_of(out, d), NULL);

        assert_true(r >= 0);
        event = await(side, NULL, PST_NET_EAGER);
        assert_int_equal(event.header.len, h);
        assert_int_equal(event.data.len, d);
        assert_true(memcmp(event.header.data, out + 7, h) == 0 && memcmp(event.data.data, out, d) == 0);
        pst_msg_free(event.msg);
        if (r == 0)
            await(side, NULL, PST_NET_SENT);
    }
    for (size_t len = 1; len <= 64 << 20; len *= 64) {
        struct iovec iov = {.iov_base = out, .iov_len = len};

        assert_int_equal(pst_peer_send_bulk(side->peer, bytes_of("go", 2), &iov, 1, NULL), 0);
        event = await(side, NULL, PST_NET_BULK);
        assert_int_equal(event.data.len, len);
        iov.iov_base = in;
        assert_int_equal(pst_msg_receive(event.msg, &iov, 1, NULL), 0);
        assert_int_equal(await(side, NULL, PST_NET_RECEIVED).status, 0);
        assert_int_equal(await(side, NULL, PST_NET_SENT).status, 0);
        assert_true(memcmp(in, out, len) == 0);
    }
    assert_true(pst_peer_send(side->peer, bytes_of("quit", 4), bytes_of("", 0), NULL) >= 0);
    for (int i = 0; waitpid(pid, &status, WNOHANG) == 0 && i < 20000; i++) {
        side_poll(side);
        poll(NULL, 0, 1);
    }
    assert_int_equal(status, 0);
    side_end(side, net, fd);
    free(out);
    free(in);
}

static void peer_killed_in_transfer(void **state)
{
    enum { LEN = 64 << 20, COUNT = 8 };
    uint8_t *out = calloc(1, LEN);
    struct iovec iov = {.iov_base = out, .iov_len = LEN};
    struct pst_net_event event;
    struct pst_net *net;
    struct side *side;
    int fd, ends;
    pid_t pid;

    (void)state;
    side = child_start(&pid, &fd, &net);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(pst_peer_send_bulk(side->peer, bytes_of("go", 2), &iov, 1, NULL), 0);
    event = await(side, NULL, PST_NET_BULK);
    assert_int_equal(pst_msg_receive(event.msg, &iov, 1, NULL), 0);
    for (int i = 0; i < 5; i++)
        side_poll(side);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    event = await(side, NULL, PST_NET_PEER_LOST);
    assert_ptr_equal(event.arg, side);
    assert_int_equal(event.status, -ECONNRESET);
    assert_int_equal(pst_peer_send(side->peer, bytes_of("x", 1), bytes_of("", 0), NULL), -ECONNRESET);
    assert_int_equal(pst_peer_send_bulk(side->peer, bytes_of("x", 1), &iov, 1, NULL), -ECONNRESET);
    pst_peer_close(side->peer);
    await(side, NULL, PST_NET_PEER_GONE);
    ends = 0;
    for (int i = 0; i < side->count; i++)
        ends += side->got[i].kind == PST_NET_SENT || side->got[i].kind == PST_NET_RECEIVED;
    assert_int_equal(ends, COUNT + 1);                        /* every one, before the peer's own */
    assert_false(side_find(side, PST_NET_PEER_LOST, &event)); /* once */
    side_end(side, net, fd);
    free(out);
}

/* A peer that stops and goes on after we have given it up: its late bytes do not land. */
static void peer_stopped_in_transfer(void **state)
{
    enum { LEN = 64 << 20 };
    uint8_t *out = calloc(1, LEN), *in = calloc(1, LEN), *clean = malloc(LEN);
    struct iovec iov = {.iov_base = out, .iov_len = LEN};
    struct pst_net_event event;
    struct pst_net *net;
    struct side *side;
    uint64_t until_ns;
    int fd, status;
    pid_t pid;

    (void)state;
    side = child_start(&pid, &fd, &net);
    assert_int_equal(pst_peer_send_bulk(side->peer, bytes_of("go", 2), &iov, 1, NULL), 0);
    event = await(side, NULL, PST_NET_BULK);
    iov.iov_base = in;
    assert_int_equal(pst_msg_receive(event.msg, &iov, 1, NULL), 0);
    side_poll(side);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    pst_peer_close(side->peer);
    await(side, NULL, PST_NET_PEER_GONE);
    assert_int_equal(await(side, NULL, PST_NET_RECEIVED).status, -ECANCELED);
    memset(in, 0xaa, LEN);
    memset(clean, 0xaa, LEN);
    assert_int_equal(kill(pid, SIGCONT), 0);
    until_ns = pst_now_ns() + SECOND_NS / 2;
    while (pst_now_ns() < until_ns)
        side_poll(side);
    assert_true(memcmp(in, clean, LEN) == 0);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    side_end(side, net, fd);
    free(out);
    free(in);
    free(clean);
}

/* Answers both ports of its parent twice, announces a value to the second and never looks at anything again.
 */
static void deaf(int fd)
{
    static uint8_t value[1 << 20];
    struct iovec iov = {.iov_base = value, .iov_len = sizeof(value)};
    struct side *first, second = {0};
    struct pst_net *net;

    first = process_side(fd, &net);
    second.port = first->port;
    exchange(fd, &second);
    for (int i = 0; i < 4; i++) {
        pst_msg_free(await(first, NULL, PST_NET_EAGER).msg);
        assert_true(
            pst_peer_send(i < 2 ? first->peer : second.peer, bytes_of("in", 2), bytes_of("", 0), NULL) >= 0);
    }
    assert_int_equal(pst_peer_send_bulk(second.peer, bytes_of("go", 2), &iov, 1, NULL), 0);
    assert_int_equal(send(fd, "", 1, MSG_NOSIGNAL), 1);
    for (;;)
        pause();
}

static void greet_twice(struct side *side)
{
    for (int i = 0; i < 2; i++) {
        send_whole(side, NULL, bytes_of("out", 3), bytes_of("", 0));
        pst_msg_free(await(side, NULL, PST_NET_EAGER).msg);
    }
}

/* A bulk message from a peer that dies with its queue full asks nothing of us that could not be sent. */
static void announced_by_the_dead(void **state)
{
    enum { SENDS_MAX = 10000 };
    struct side first = {0}, second = {0};
    struct pst_net *net;
    int fds[2], sends = 0;
    pid_t pid;
    char told;

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        deaf(fds[1]);
    net = net_open();
    assert_int_equal(pst_port_open(net, EVENTS_MAX, &first.port), 0);
    assert_int_equal(pst_port_open(net, EVENTS_MAX, &second.port), 0);
    exchange(fds[0], &first);
    exchange(fds[0], &second);
    greet_twice(&first);
    greet_twice(&second);
    assert_int_equal(recv(fds[0], &told, 1, 0), 1);
    while (pst_peer_send(first.peer, bytes_of("full", 4), bytes_of("", 0), NULL) == 1)
        assert_true(sends++ < SENDS_MAX);
    assert_true(sends > 0);
    settle(&first, &second);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    pst_peer_close(second.peer);
    await(&second, NULL, PST_NET_PEER_GONE);
    pst_port_close(second.port);
    pst_port_close(first.port);
    pst_net_close(net);
    close(fds[0]);
    close(fds[1]);
}

/* ---- once ---- */

static bool inode_is_ours(unsigned long inode)
{
    char path[300], target[64], wanted[64];
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *entry;
    bool ours = false;

    snprintf(wanted, sizeof(wanted), "socket:[%lu]", inode);
    while (dir && (entry = readdir(dir))) {
        ssize_t n;

        snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
        n = readlink(path, target, sizeof(target) - 1);
        target[n > 0 ? n : 0] = 0;
        ours = ours || strcmp(target, wanted) == 0;
    }
    closedir(dir);
    return ours;
}

/* Return: this process's listening sockets in @file; *@strays those elsewhere than on @loopback. */
static int listeners(const char *file, const char *loopback, int *strays)
{
    FILE *f = fopen(file, "re");
    char line[512], local[128];
    unsigned long inode;
    unsigned socket_state;
    int count = 0;

    while (f && fgets(line, sizeof(line), f)) {
        if (sscanf(line, " %*d: %127s %*s %x %*s %*s %*s %*s %*s %lu", local, &socket_state, &inode) != 3 ||
            socket_state != 10 || !inode_is_ours(inode))
            continue;
        count++;
        *strays += strncmp(local, loopback, strlen(loopback)) != 0;
    }
    if (f)
        fclose(f);
    return count;
}

static void everything_listens_on_loopback(void **state)
{
    struct pair *p = pair_open();
    int strays = 0, count;

    (void)state;
    assert_int_equal(setenv("UCX_NET_DEVICES", "eth0", 1), 0); /* what the user says does not widen it */
    count = listeners("/proc/net/tcp", "0100007F:", &strays) +
            listeners("/proc/net/tcp6", "00000000000000000000000001000000:", &strays);
    assert_true(count >= 2);
    assert_int_equal(strays, 0);
    pair_close(p);
    p = pair_open();
    strays = 0;
    assert_true(listeners("/proc/net/tcp", "0100007F:", &strays) >= 2);
    assert_int_equal(strays, 0);
    pair_close(p);
    unsetenv("UCX_NET_DEVICES");
}

/* A write that fails while there is something to read, in the middle of a packet: UCX's own way to write
 * aborts here. */
static void peer_ends_within_a_packet(void **state)
{
    uint8_t *data = calloc(1, 50000);

    (void)state;
    network = true;
    setenv("UCX_TCP_SNDBUF", "16k", 1);
    for (int round = 0; round < 20; round++) {
        struct pair *p = pair_open();

        for (int i = 0; i < 20; i++) {
            assert_true(pst_peer_send(p->a.peer, bytes_of("h", 1), bytes_of(data, 50000), NULL) >= 0);
            if (i == 0)
                pst_msg_free(await(&p->b, &p->a, PST_NET_EAGER).msg);
            assert_true(pst_peer_send(p->b.peer, bytes_of("h", 1), bytes_of(data, 1000), NULL) >= 0);
        }
        p->b.port = pst_port_close(p->b.port);
        for (int i = 0; i < 50; i++)
            side_poll(&p->a);
        pair_close(p);
    }
    unsetenv("UCX_TCP_SNDBUF");
    free(data);
}

/* A lane whose packets are too short for long headers: they travel apart. */
static void short_packets(void **state)
{
    static const char *const segments[] = {"2K", "300"};

    (void)state;
    network = true;
    for (size_t s = 0; s < pst_count_of(segments); s++) {
        struct pair *p;
        uint8_t header[PST_NET_HEADER_BYTES_MAX];

        assert_int_equal(setenv("UCX_TCP_TX_SEG_SIZE", segments[s], 1), 0);
        p = pair_open();
        for (size_t i = 0; i < pst_count_of(header_sizes); i++) {
            struct pst_net_event event;

            bulk_once(&p->a, &p->b, header_sizes[i], 300000, 1, 3);
            bulk_once(&p->b, &p->a, header_sizes[i], 10, 2, 1);
            fill(header, header_sizes[i], 8);
            send_whole(&p->a, &p->b, bytes_of(header, header_sizes[i]), bytes_of("data", 4));
            event = await(&p->b, &p->a, PST_NET_EAGER);
            assert_int_equal(event.header.len, header_sizes[i]);
            expect_filled(event.header.data, event.header.len, 8);
            assert_memory_equal(event.data.data, "data", 4);
            pst_msg_free(event.msg);
        }
        pst_peer_send_bulk(p->a.peer, bytes_of(header, sizeof(header)), &(struct iovec){header, 100}, 1,
                           NULL);
        settle(&p->a, &p->b);
        pair_close(p);
    }
    unsetenv("UCX_TCP_TX_SEG_SIZE");
}

/* Error handling and shared memory together take an option that the user may also turn off. */
static void user_options_stay(void **state)
{
    struct pair *p;

    (void)state;
    network = false;
    setenv("UCX_MM_ERROR_HANDLING", "n", 1);
    p = pair_open();
    assert_string_equal(pst_peer_lane(p->a.peer), "tcp");
    pair_close(p);
    unsetenv("UCX_MM_ERROR_HANDLING");
    setenv("UCX_TLS", "tcp", 1);
    p = pair_open();
    assert_string_equal(pst_peer_lane(p->a.peer), "tcp");
    pair_close(p);
    unsetenv("UCX_TLS");
}

/* Without confinement, too, one host is shared memory. */
static void unconfined_net(void **state)
{
    struct pst_net_options options = {.loopback_only = false};
    struct pair *p = calloc(1, sizeof(*p));

    (void)state;
    for (int i = 0; i < 2; i++) {
        network = i;
        assert_int_equal(pst_net_open(&options, &p->net), 0);
        assert_int_equal(pst_port_open(p->net, EVENTS_MAX, &p->a.port), 0);
        assert_int_equal(pst_port_open(p->net, EVENTS_MAX, &p->b.port), 0);
        side_connect(&p->a, &p->b);
        side_connect(&p->b, &p->a);
        if (!network)
            assert_string_equal(pst_peer_lane(p->a.peer), "posix");
        bulk_once(&p->a, &p->b, 4096, 256 << 10, 3, 2);
        pst_port_close(p->a.port);
        pst_port_close(p->b.port);
        pst_net_close(p->net);
    }
    free(p);
}

static int over_memory(void **state)
{
    (void)state;
    network = false;
    return 0;
}

static int over_network(void **state)
{
    (void)state;
    network = true;
    return 0;
}

#define BOTH(test)                                                                                           \
    {"posix: " #test, test, over_memory, NULL, NULL},                                                        \
    {                                                                                                        \
        "tcp: " #test, test, over_network, NULL, NULL                                                        \
    }

static int run_memory(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lanes),
        cmocka_unit_test(eager_sizes),
        cmocka_unit_test(eager_backlog),
        cmocka_unit_test(operations_are_bounded),
        cmocka_unit_test(bulk_sizes),
        cmocka_unit_test(bulk_pieces),
        cmocka_unit_test(bulk_limits),
        cmocka_unit_test(bulk_window),
        cmocka_unit_test(close_with_receive_underway),
        cmocka_unit_test(close_with_sends_underway),
        cmocka_unit_test(close_with_messages_held),
        cmocka_unit_test(messages_before_open),
        cmocka_unit_test(port_close_with_everything_underway),
        cmocka_unit_test(abandoned_port_tells_every_end),
        cmocka_unit_test(arm_and_wake),
        cmocka_unit_test(transfer_asleep),
        cmocka_unit_test(descriptors_come_back),
        cmocka_unit_test(addresses),
        cmocka_unit_test(memory_is_registered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(two_processes), /* those that fork first: a child inherits no transport */
        BOTH(peer_killed_in_transfer),
        BOTH(peer_stopped_in_transfer),
        {"posix: announced_by_the_dead", announced_by_the_dead, over_memory, NULL, NULL},
        BOTH(lanes),
        BOTH(eager_sizes),
        BOTH(eager_backlog),
        BOTH(operations_are_bounded),
        BOTH(bulk_sizes),
        BOTH(bulk_pieces),
        BOTH(bulk_limits),
        BOTH(bulk_window),
        BOTH(close_with_receive_underway),
        BOTH(close_with_sends_underway),
        BOTH(close_with_messages_held),
        BOTH(messages_before_open),
        BOTH(port_close_with_everything_underway),
        BOTH(arm_and_wake),
        BOTH(transfer_asleep),
        BOTH(descriptors_come_back),
        BOTH(nets_outlive_each_other),
        BOTH(addresses),
        cmocka_unit_test(numbers_do_not_come_back),
        cmocka_unit_test(memory_is_registered),
        cmocka_unit_test(everything_listens_on_loopback),
        cmocka_unit_test(peer_ends_within_a_packet),
        cmocka_unit_test(short_packets),
        cmocka_unit_test(user_options_stay),
        cmocka_unit_test(unconfined_net),
    };

    if (getenv("PENSTOCK_NET"))
        return run_memory();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

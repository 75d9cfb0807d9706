/* SPDX-License-Identifier: Apache-2.0 */
/* sides.c: see sides.h. */
#include "lib/net_sides.h"

#include "net/stream.h"
#include "net/stream/channel.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

bool network;

/* Of a stream's connection one side has been opened, and awaits the other. */
static struct {
    struct side *side;
    struct pst_port *to;
} half;

bool over_stream(void)
{
    const char *wanted = getenv("PENSTOCK_NET");

    return wanted && strcmp(wanted, "stream") == 0;
}

struct pst_bytes bytes_of(const void *data, size_t len)
{
    return (struct pst_bytes){data, len};
}

void fill(uint8_t *data, size_t len, uint32_t seed)
{
    uint64_t x = seed * 0x9e3779b97f4a7c15u + 1;

    for (size_t i = 0; i < len; i += 8) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        memcpy(data + i, &x, len - i < 8 ? len - i : 8);
    }
}

void expect_filled(const uint8_t *data, size_t len, uint32_t seed)
{
    uint8_t *wanted = malloc(len + 1);

    fill(wanted, len, seed);
    assert_true(len == 0 || memcmp(data, wanted, len) == 0); /* assert_memory_equal is slow on much */
    free(wanted);
}

struct pst_net *net_open(void)
{
    struct pst_net_options options = {.transport = over_stream() ? PST_NET_STREAM : PST_NET_UCX,
                                      .loopback_only = true};
    struct pst_net *net;

    assert_int_equal(pst_net_open(&options, &net), 0);
    return net;
}

static void tcp_pair(int fds[2])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(at);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, bytes) | listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &bytes), 0);
    assert_int_equal(connect(fds[0], (struct sockaddr *)&at, bytes), 0);
    fds[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fds[1] >= 0);
    close(listener);
}

/* What a session's bootstrap does between two processes. */
static void stream_join(struct side *a, struct side *b)
{
    struct side *sides[2] = {a, b};
    int fds[2];

    if (network)
        tcp_pair(fds);
    else
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    for (int i = 0; i < 2; i++) {
        struct stream_channel *channel;

        assert_int_equal(fcntl(fds[i], F_SETFL, O_NONBLOCK), 0);
        assert_int_equal(stream_channel_plain(fds[i], &channel), 0);
        pst_stream_attach(sides[i]->peer, channel, bytes_of("", 0));
    }
}

void side_connect(struct side *side, struct side *to)
{
    uint8_t address[PST_NET_ADDRESS_BYTES_MAX];
    int bytes = pst_port_address(to->port, network, address, sizeof(address));

    assert_true(bytes > 0);
    assert_int_equal(pst_peer_open(side->port, address, (size_t)bytes, side, &side->peer), 0);
    if (!over_stream())
        return;
    if (half.side && half.side->port == to->port && half.to == side->port) {
        stream_join(half.side, side);
        half.side = NULL;
    } else {
        half.side = side;
        half.to = to->port;
    }
}

void pair_open_sized(struct pair *p, uint32_t events_max)
{
    memset(p, 0, sizeof(*p));
    p->net = net_open();
    assert_int_equal(pst_port_open(p->net, events_max, &p->a.port), 0);
    assert_int_equal(pst_port_open(p->net, events_max, &p->b.port), 0);
    side_connect(&p->a, &p->b);
    side_connect(&p->b, &p->a);
}

struct pair *pair_open(void)
{
    struct pair *p = malloc(sizeof(*p));

    pair_open_sized(p, EVENTS_MAX);
    return p;
}

void pair_close(struct pair *p)
{
    pst_port_close(p->a.port);
    pst_port_close(p->b.port);
    pst_net_close(p->net);
    free(p);
}

int side_poll(struct side *side)
{
    int n = pst_port_poll(side->port, side->got + side->count, 16);

    side->count += n;
    assert_true(side->count <= GOT_MAX - 16);
    return n;
}

bool side_find(struct side *side, enum pst_net_kind kind, struct pst_net_event *out)
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

struct pst_net_event await(struct side *side, struct side *other, enum pst_net_kind kind)
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

void send_whole(struct side *from, struct side *to, struct pst_bytes header, struct pst_bytes data)
{
    int r = pst_peer_send(from->peer, header, data, from);

    assert_true(r == 0 || r == 1);
    if (r == 0) {
        struct pst_net_event event = await(from, to, PST_NET_SENT);

        assert_int_equal(event.status, 0);
        assert_ptr_equal(event.arg, from);
    }
}

void settle(struct side *a, struct side *b)
{
    for (int i = 0; i < 200; i++) {
        side_poll(a);
        side_poll(b);
    }
}

void bulk_once(struct side *from, struct side *to, size_t header_len, size_t len, int pieces_out,
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
    assert_ptr_equal(event.arg, to);
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

int over_memory(void **state)
{
    (void)state;
    network = false;
    return 0;
}

int over_network(void **state)
{
    (void)state;
    network = true;
    return 0;
}

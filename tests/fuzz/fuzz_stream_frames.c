/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_stream_frames.c: a peer of the stream transport that says what it likes, cut where it likes, between
 * sends and receives of our own. Whatever it says, what we lent comes back, once and before the peer has
 * gone, nothing is written outside of it, and our own frames are right.
 */
#include "fuzz.h"

#include "net/stream.h"
#include "net/stream/stream_priv.h"

#include <fcntl.h>

enum { OPS_MAX = 8, HELD_MAX = 16, VALUE_BYTES_MAX = 300000, EVENTS_MAX = 16 };

enum act { ACT_RAW, ACT_HEAD, ACT_EAGER, ACT_ANNOUNCE, ACT_BODY, ACT_ANSWER, ACT_SEND, ACT_BULK, ACT_COUNT };

/* A fuzzer's end of the connection, and what it has heard. */
struct other {
    int fd;
    struct stream_head head;
    uint32_t head_bytes;
    uint64_t skip;
    uint64_t receive;   /* the last number that a GO told */
    uint64_t announced; /* and a BULK */
};

struct run {
    struct pst_net *net;
    struct pst_port *port;
    struct pst_peer *peer;
    struct other other;
    struct pst_msg *held[HELD_MAX];
    size_t held_bytes[HELD_MAX];
    uint32_t held_count;
    uint32_t lent; /* operations whose end is awaited */
    bool lost, gone;
};

/* Everything that the port has sent, which has to be frames. */
static void other_hear(struct other *other)
{
    static uint8_t buf[64 << 10];
    ssize_t n;

    while ((n = read(other->fd, buf, sizeof(buf))) > 0) {
        for (size_t at = 0; at < (size_t)n;) {
            size_t some = pst_min((size_t)n - at, other->skip);

            if (some == 0) {
                some = pst_min((size_t)n - at, STREAM_HEAD_BYTES - other->head_bytes);
                memcpy((uint8_t *)&other->head + other->head_bytes, buf + at, some);
                other->head_bytes += (uint32_t)some;
            } else {
                other->skip -= some;
            }
            at += some;
            if (other->head_bytes < STREAM_HEAD_BYTES)
                continue;
            other->head_bytes = 0;
            pst_assert(stream_head_check(&other->head) == 0);
            other->skip = (uint64_t)other->head.header_bytes + other->head.body_bytes;
            if (other->head.type == STREAM_GO)
                other->receive = other->head.value;
            if (other->head.type == STREAM_BULK)
                other->announced = other->head.id;
        }
    }
}

static void other_say(struct other *other, const void *data, size_t bytes)
{
    ssize_t n = send(other->fd, data, bytes, MSG_NOSIGNAL);

    (void)n; /* what finds no room was cut off */
}

static void say_head(struct run *run, struct fuzz *in, enum stream_type type)
{
    static const uint8_t zeros[4096];
    struct stream_head head = {.type = (uint8_t)type};
    size_t follow = 0;

    if (type == STREAM_EAGER || type == STREAM_BULK)
        head.header_bytes = (uint16_t)fuzz_below(in, 200);
    if (type == STREAM_EAGER || type == STREAM_BODY)
        head.body_bytes = fuzz_below(in, 4000);
    if (type == STREAM_BULK)
        head.value = 1 + fuzz_number(in, 3);
    if (type != STREAM_EAGER)
        head.id = type == STREAM_BODY ? run->other.receive : run->other.announced;
    if (type == STREAM_GO)
        head.value = fuzz_number(in, 8);
    follow = (size_t)head.header_bytes + head.body_bytes;
    other_say(&run->other, &head, sizeof(head));
    other_say(&run->other, zeros, pst_min(follow, sizeof(zeros)));
    if (follow > sizeof(zeros))
        other_say(&run->other, zeros, follow - sizeof(zeros));
}

static void on_message(struct run *run, const struct pst_net_event *event)
{
    pst_assert(event->header.len <= PST_NET_HEADER_BYTES_MAX);
    if (event->kind == PST_NET_EAGER) {
        pst_assert(event->data.len <= PST_NET_EAGER_BYTES_MAX);
        for (size_t i = 0; i < event->data.len; i += 64)
            (void)((volatile const uint8_t *)event->data.data)[i];
    } else {
        pst_assert(event->data.len > 0 && event->data.len <= STREAM_BULK_BYTES_MAX);
    }
    if (run->held_count == HELD_MAX) {
        pst_msg_free(event->msg);
        return;
    }
    run->held_bytes[run->held_count] = event->kind == PST_NET_BULK ? event->data.len : 0;
    run->held[run->held_count++] = event->msg;
}

static void run_poll(struct run *run)
{
    struct pst_net_event events[EVENTS_MAX];
    int count = pst_port_poll(run->port, events, EVENTS_MAX);

    for (int i = 0; i < count; i++) {
        pst_assert(!run->gone);
        switch (events[i].kind) {
        case PST_NET_EAGER:
        case PST_NET_BULK:
            on_message(run, &events[i]);
            break;
        case PST_NET_SENT:
        case PST_NET_RECEIVED:
            pst_assert(run->lent > 0);
            run->lent--;
            free(events[i].arg);
            break;
        case PST_NET_PEER_LOST:
            pst_assert(!run->lost && events[i].arg == run);
            run->lost = true;
            break;
        case PST_NET_PEER_GONE:
            run->gone = true;
            break;
        }
    }
    other_hear(&run->other);
}

/* Takes, refuses or frees one of the messages that are held. */
static void run_answer(struct run *run, struct fuzz *in)
{
    uint32_t i = run->held_count ? fuzz_below(in, run->held_count) : 0;
    bool take = fuzz_below(in, 4) > 0;
    struct iovec iov;

    if (run->held_count == 0)
        return;
    iov.iov_len = run->held_bytes[i];
    iov.iov_base = take && iov.iov_len > 0 && iov.iov_len <= VALUE_BYTES_MAX ? malloc(iov.iov_len) : NULL;
    if (iov.iov_base && pst_msg_receive(run->held[i], &iov, 1, iov.iov_base) == 0) {
        run->lent++;
    } else {
        free(iov.iov_base);
        pst_msg_free(run->held[i]);
    }
    run->held[i] = run->held[--run->held_count];
    run->held_bytes[i] = run->held_bytes[run->held_count];
}

static void run_send(struct run *run, struct fuzz *in, bool bulk)
{
    size_t bytes = 1 + fuzz_below(in, bulk ? VALUE_BYTES_MAX : PST_NET_EAGER_BYTES_MAX);
    struct iovec iov = {calloc(1, bytes), bytes};
    int r = bulk ? pst_peer_send_bulk(run->peer, pst_bytes_of("header"), &iov, 1, iov.iov_base)
                 : pst_peer_send(run->peer, pst_bytes_of("header"), (struct pst_bytes){iov.iov_base, bytes},
                                 iov.iov_base);

    pst_assert(r == 0 || (!bulk && r == 1) || r == -EBUSY || r == -ECONNRESET);
    if (r == 0)
        run->lent++;
    else
        free(iov.iov_base);
}

static void run_act(struct run *run, struct fuzz *in)
{
    enum act act = (enum act)fuzz_below(in, ACT_COUNT);
    size_t bytes;
    uint8_t *raw;

    switch (act) {
    case ACT_RAW:
        raw = fuzz_take(in, fuzz_below(in, 64), &bytes);
        other_say(&run->other, raw, bytes);
        free(raw);
        break;
    case ACT_HEAD:
        say_head(run, in, (enum stream_type)(fuzz_below(in, 2) ? STREAM_GO : STREAM_REFUSED));
        break;
    case ACT_EAGER:
    case ACT_ANNOUNCE:
    case ACT_BODY:
        say_head(run, in, act == ACT_EAGER ? STREAM_EAGER : act == ACT_ANNOUNCE ? STREAM_BULK : STREAM_BODY);
        break;
    case ACT_ANSWER:
        run_answer(run, in);
        break;
    default:
        run_send(run, in, act == ACT_BULK);
    }
}

static void run_begin(struct run *run)
{
    struct pst_net_options options = {.transport = PST_NET_STREAM};
    uint8_t address[PST_NET_ADDRESS_BYTES_MAX];
    struct stream_channel *channel;
    int fds[2], bytes;

    pst_assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
    pst_assert(pst_net_open(&options, &run->net) == 0 && pst_port_open(run->net, OPS_MAX, &run->port) == 0);
    bytes = pst_port_address(run->port, true, address, sizeof(address));
    pst_assert(bytes > 0 && pst_peer_open(run->port, address, (size_t)bytes, run, &run->peer) == 0);
    pst_assert(stream_channel_plain(fds[0], &channel) == 0);
    pst_stream_attach(run->peer, channel, (struct pst_bytes){NULL, 0});
    run->other.fd = fds[1];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz in = {data, bytes};
    struct run run = {.lent = 0};

    run_begin(&run);
    while (in.left > 0) {
        run_act(&run, &in);
        run_poll(&run);
    }
    pst_peer_close(run.peer);
    for (int i = 0; i < 100 && !run.gone; i++)
        run_poll(&run);
    pst_assert(run.gone && run.lent == 0);
    while (run.held_count > 0)
        pst_msg_free(run.held[--run.held_count]);
    pst_port_close(run.port);
    pst_net_close(run.net);
    close(run.other.fd);
    return 0;
}

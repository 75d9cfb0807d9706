/* SPDX-License-Identifier: Apache-2.0 */
/* peer.c: a connection: how it comes about, what is sent over it, how it ends. */
#include "net/stream/stream_priv.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>

static const char magic[8] = "pst-strm";

enum { ADDRESS_WAITS = 1, ADDRESS_DIALS };

_Static_assert(sizeof(struct stream_address) + sizeof(struct sockaddr_storage) + STREAM_HOST_BYTES_MAX +
                       STREAM_PREFACE_BYTES_MAX <=
                   PST_NET_ADDRESS_BYTES_MAX,
               "an address that dials fits");

void stream_address_write(struct stream_address *address)
{
    *address = (struct stream_address){.kind = ADDRESS_WAITS};
    memcpy(address->magic, magic, sizeof(magic));
}

int pst_stream_dial_address(const struct pst_stream_dial *dial, void *buf, size_t cap)
{
    struct stream_address address = {.kind = ADDRESS_DIALS,
                                     .to_bytes = dial->to_bytes,
                                     .host_bytes = dial->host ? (uint32_t)strlen(dial->host) + 1 : 0,
                                     .preface_bytes = (uint32_t)dial->preface.len};
    size_t bytes = sizeof(address) + address.to_bytes + address.host_bytes + address.preface_bytes;
    uint8_t *at = buf;

    pst_assert(dial->to_bytes <= sizeof(struct sockaddr_storage));
    pst_assert(address.host_bytes <= STREAM_HOST_BYTES_MAX);
    pst_assert(dial->preface.len <= STREAM_PREFACE_BYTES_MAX);
    if (bytes > cap)
        return -ENOSPC;
    memcpy(address.magic, magic, sizeof(magic));
    memcpy(at, &address, sizeof(address));
    at += sizeof(address);
    memcpy(at, dial->to, address.to_bytes);
    at += address.to_bytes;
    if (dial->host)
        memcpy(at, dial->host, address.host_bytes);
    at += address.host_bytes;
    memcpy(at, dial->preface.data, address.preface_bytes);
    return (int)bytes;
}

/* ---- what the port is to do for it ---- */

void stream_peer_turn(struct stream_peer *peer)
{
    if (pst_list_empty(&peer->turn))
        pst_list_push_back(&stream_port_of(peer)->turns, &peer->turn);
}

void stream_peer_changed(struct stream_peer *peer)
{
    if (pst_list_empty(&peer->change))
        pst_list_push_back(&stream_port_of(peer)->changes, &peer->change);
}

uint32_t stream_peer_wants(const struct stream_peer *peer)
{
    uint32_t wants = 0;

    if (peer->state == STREAM_PEER_DIALS)
        return EPOLLOUT;
    if (peer->state == STREAM_PEER_STARTS)
        return stream_channel_wants(peer->channel);
    if (peer->state != STREAM_PEER_UP)
        return 0;
    wants |= peer->rests ? 0 : EPOLLIN;
    wants |= peer->blocked ? EPOLLOUT : 0;
    /* One that rests and has nothing to write calls its channel for nothing. */
    return peer->rests && !peer->blocked ? wants : wants | stream_channel_wants(peer->channel);
}

/* Gives the peer a channel, which port and epoll get to know. Return: 0 or -errno. */
static int peer_take_channel(struct stream_peer *peer, struct stream_channel *channel)
{
    struct epoll_event event = {.data.ptr = peer};
    int domain = AF_UNSPEC;
    socklen_t bytes = sizeof(domain);
    bool plain = stream_channel_is_plain(channel);

    pst_assert(!peer->channel);
    pst_assert(peer->watched == 0);
    if (epoll_ctl(stream_port_of(peer)->epoll_fd, EPOLL_CTL_ADD, stream_channel_fd(channel), &event) != 0)
        return -errno;
    (void)getsockopt(stream_channel_fd(channel), SOL_SOCKET, SO_DOMAIN, &domain, &bytes);
    peer->lane = domain == AF_UNIX ? "stream-unix" : plain ? "stream" : "stream-tls";
    peer->channel = channel;
    stream_port_of(peer)->channel_count++;
    return 0;
}

/* ---- beginning ---- */

static void node_init(struct pst_event_node *node, enum pst_net_kind kind, void *ctx)
{
    pst_list_init(&node->link);
    node->event = (struct pst_net_event){.kind = kind, .arg = ctx};
}

static struct stream_peer *peer_new(struct stream_port *port, void *ctx)
{
    struct stream_peer *peer = calloc(1, sizeof(*peer));

    if (!peer)
        return NULL;
    peer->base = (struct pst_peer){.magic = PST_PEER_MAGIC, .port = &port->base, .ctx = ctx};
    peer->state = STREAM_PEER_WAITS;
    peer->lane = "none";
    pst_list_init(&peer->turn);
    pst_list_init(&peer->change);
    pst_list_init(&peer->outs);
    pst_list_init(&peer->ops);
    pst_list_init(&peer->msgs);
    node_init(&peer->node_lost, PST_NET_PEER_LOST, ctx);
    node_init(&peer->node_gone, PST_NET_PEER_GONE, ctx);
    pst_list_push_back(&port->peers, &peer->link);
    return peer;
}

void stream_peer_free(struct stream_peer *peer)
{
    pst_assert(peer->base.magic == PST_PEER_MAGIC);
    pst_assert(!peer->channel);
    pst_assert(pst_list_empty(&peer->ops));
    pst_assert(pst_list_empty(&peer->msgs));
    pst_assert(pst_list_empty(&peer->outs));
    pst_port_unready(peer->base.port, &peer->node_lost);
    pst_port_unready(peer->base.port, &peer->node_gone);
    pst_list_remove(&peer->link);
    peer->base.magic = 0;
    free(peer);
}

/* Makes the socket, and the channel that it will be. What the preface says goes first. */
static int peer_dial(struct stream_peer *peer, const char *host, struct pst_bytes preface)
{
    const struct stream_net *net = stream_net_cast(peer->base.port->net);
    const struct pst_bytes none = {NULL, 0};
    struct stream_channel *channel;
    struct stream_letter *letter;
    int r, fd = socket(peer->to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -errno;
    r = host ? net->wrap(net->wrap_ctx, fd, host, &channel) : stream_channel_plain(fd, &channel);
    if (r < 0) {
        close(fd);
        return r;
    }
    r = peer_take_channel(peer, channel);
    if (r < 0) {
        stream_channel_close(channel);
        return r;
    }
    peer->state = STREAM_PEER_DIALS;
    stream_peer_changed(peer);
    letter = preface.len ? stream_letter_new(peer, preface, none, none) : NULL;
    if (preface.len && !letter)
        return -ENOMEM;
    if (letter)
        stream_out_push(peer, &letter->out);
    peer->preface = host && net->seal ? letter : NULL;
    stream_peer_step(peer);
    return 0;
}

/* Return: 0, with the parts of an address; -EHOSTUNREACH it is none of ours. */
static int address_read(const uint8_t *at, size_t bytes, struct stream_address *out)
{
    size_t rest;

    if (bytes < sizeof(*out))
        return -EHOSTUNREACH;
    memcpy(out, at, sizeof(*out));
    rest = bytes - sizeof(*out);
    if (memcmp(out->magic, magic, sizeof(magic)) != 0)
        return -EHOSTUNREACH;
    if (out->kind == ADDRESS_WAITS)
        return 0;
    if (out->kind != ADDRESS_DIALS || out->to_bytes > sizeof(struct sockaddr_storage) ||
        out->host_bytes > STREAM_HOST_BYTES_MAX || out->preface_bytes > STREAM_PREFACE_BYTES_MAX)
        return -EHOSTUNREACH;
    at += sizeof(*out) + out->to_bytes;
    return rest == (size_t)out->to_bytes + out->host_bytes + out->preface_bytes &&
                   (out->host_bytes == 0 || at[out->host_bytes - 1] == 0)
               ? 0
               : -EHOSTUNREACH;
}

/* The channel ends, and with it all that is underway. */
static void peer_over(struct stream_peer *peer, int status)
{
    struct stream_port *port = stream_port_of(peer);

    pst_assert(peer->state != STREAM_PEER_OVER);
    pst_assert(status < 0);
    peer->state = STREAM_PEER_OVER;
    pst_list_remove(&peer->change);
    if (peer->channel) {
        /* A child that was forked may have a copy of the descriptor, with which epoll would go on. */
        (void)epoll_ctl(port->epoll_fd, EPOLL_CTL_DEL, stream_channel_fd(peer->channel), NULL);
        (void)shutdown(stream_channel_fd(peer->channel), SHUT_RDWR);
        peer->channel = stream_channel_close(peer->channel);
        port->channel_count--;
    }
    peer->rests = false;
    peer->preface = NULL;
    stream_msgs_orphan(peer);
    pst_list_remove(&peer->turn);
    peer->in = (struct stream_in){.head_bytes = 0};
    stream_outs_drop(peer);
    while (!pst_list_empty(&peer->ops))
        stream_op_end(pst_list_first(&peer->ops, struct stream_op, link), status);
    pst_assert(peer->receives == 0);
    pst_assert(peer->eagers == 0);
    pst_assert(pst_list_empty(&peer->outs));
}

int stream_peer_open(struct pst_port *base, const void *at, size_t bytes, void *ctx, struct pst_peer **out)
{
    struct stream_address address;
    struct stream_peer *peer;
    const uint8_t *rest = (const uint8_t *)at + sizeof(address);
    int r = address_read(at, bytes, &address);

    if (r == 0 && address.host_bytes && !stream_net_cast(base->net)->wrap)
        r = -EHOSTUNREACH;
    if (r < 0)
        return r;
    peer = peer_new(stream_port_cast(base), ctx);
    if (!peer)
        return -ENOMEM;
    if (address.kind == ADDRESS_DIALS) {
        const char *host = (const char *)rest + address.to_bytes;

        memcpy(&peer->to, rest, address.to_bytes);
        peer->to_bytes = address.to_bytes;
        r = peer_dial(peer, address.host_bytes ? host : NULL,
                      (struct pst_bytes){host + address.host_bytes, address.preface_bytes});
    }
    if (r < 0) {
        peer_over(peer, r);
        stream_peer_free(peer);
        return r;
    }
    *out = &peer->base;
    return 0;
}

static void peer_is_up(struct stream_peer *peer)
{
    pst_assert(peer->channel);
    peer->state = STREAM_PEER_UP;
    stream_peer_changed(peer);
    stream_peer_turn(peer);
}

/* Return: 0 it is done, -EAGAIN not yet, -errno. */
static int dial_step(struct stream_peer *peer)
{
    int fd = stream_channel_fd(peer->channel), one = 1;
    int r = connect(fd, (const struct sockaddr *)&peer->to, peer->to_bytes);

    r = r < 0 && errno != EISCONN ? -errno : 0;
    if (r == -EINPROGRESS || r == -EALREADY || r == -EINTR)
        return -EAGAIN;
    if (r == 0 && peer->to.ss_family != AF_UNIX)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return r;
}

/* Nothing leaves before the peer is up, so the preface is still whole. Return: 0 or -errno. */
static int peer_seal(struct stream_peer *peer)
{
    struct stream_letter *letter = peer->preface;

    if (!letter)
        return 0;
    pst_assert(letter->out.front_done == 0);
    pst_assert(peer->state == STREAM_PEER_STARTS);
    peer->preface = NULL;
    return stream_net_cast(peer->base.port->net)->seal(peer->channel, letter->front, letter->out.front_bytes);
}

bool stream_peer_step(struct stream_peer *peer)
{
    enum stream_peer_state before = peer->state;
    const char *fault;
    int r = 0;

    if (peer->state == STREAM_PEER_DIALS) {
        r = dial_step(peer);
        if (r == 0)
            peer->state = STREAM_PEER_STARTS;
    }
    if (peer->state == STREAM_PEER_STARTS) {
        r = stream_channel_start(peer->channel, &fault);
        stream_peer_changed(peer);
        if (r == 0)
            r = peer_seal(peer);
    }
    if (r == 0)
        peer_is_up(peer);
    else if (r != -EAGAIN)
        stream_peer_lose(peer, r);
    return peer->state != before;
}

void pst_stream_attach(struct pst_peer *base, struct stream_channel *channel, struct pst_bytes early)
{
    struct stream_peer *peer = base ? stream_peer_cast(base) : NULL;

    if (!peer || peer->state != STREAM_PEER_WAITS || peer_take_channel(peer, channel) < 0) {
        stream_channel_close(channel);
        return;
    }
    peer_is_up(peer);
    stream_in_parse(peer, early.data, early.len);
}

/* ---- end ---- */

void stream_peer_lose(struct stream_peer *peer, int error)
{
    if (peer->state == STREAM_PEER_OVER)
        return;
    peer->node_lost.event.status = error == -EPROTO ? error : -ECONNRESET;
    pst_port_ready(peer->base.port, &peer->node_lost);
    peer_over(peer, -ECONNRESET);
}

void stream_peer_close(struct pst_peer *base)
{
    struct stream_peer *peer = stream_peer_cast(base);

    pst_assert(base->closing);
    pst_port_unready(base->port, &peer->node_lost);
    if (peer->state != STREAM_PEER_OVER)
        peer_over(peer, -ECANCELED);
    pst_port_ready(base->port, &peer->node_gone);
}

/* ---- sending ---- */

const char *stream_peer_lane(struct pst_peer *base)
{
    return stream_peer_cast(base)->lane;
}

bool stream_peer_gathers(struct pst_peer *base)
{
    (void)base;
    return true;
}

bool stream_peer_direct(struct pst_peer *base)
{
    (void)base;
    return false;
}

static struct pst_bytes head_bytes(const struct stream_head *head)
{
    return (struct pst_bytes){head, sizeof(*head)};
}

/* Sends what is borrowed. Return: as stream_peer_send(). */
static int send_borrowed(struct stream_peer *peer, struct stream_op *op, struct stream_letter *letter)
{
    letter->out.op = op;
    letter->out.body_left = op->left;
    stream_op_start(op, peer, STREAM_OP_EAGER);
    op->quiet = true;
    stream_out_push(peer, &letter->out);
    stream_out_hurry(peer);
    op->quiet = false;
    if (op->state != STREAM_OP_ENDED)
        return 0;
    stream_op_give(op);
    return op->node.event.status == 0 ? 1 : -ECONNRESET;
}

int stream_peer_send(struct pst_peer *base, struct pst_bytes header, struct pst_bytes data, void *arg)
{
    const struct pst_bytes none = {NULL, 0};
    struct stream_peer *peer = stream_peer_cast(base);
    bool copies = data.len <= STREAM_COPY_BYTES_MAX && peer->queued_bytes < STREAM_QUEUED_BYTES_MAX;
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data.data, .iov_len = data.len};
    struct stream_head head = {
        .type = STREAM_EAGER, .header_bytes = (uint16_t)header.len, .body_bytes = (uint32_t)data.len};
    struct stream_letter *letter;
    struct stream_op *op;

    if (peer->state == STREAM_PEER_OVER)
        return -ECONNRESET;
    op = stream_op_take(stream_port_cast(base->port), PST_NET_SENT, &iov, 1, arg);
    if (!op)
        return -EBUSY;
    letter = stream_letter_new(peer, head_bytes(&head), header, copies ? data : none);
    if (letter && !copies)
        return send_borrowed(peer, op, letter);
    stream_op_give(op);
    if (!letter)
        return -EBUSY;
    stream_out_push(peer, &letter->out);
    stream_out_hurry(peer);
    return 1;
}

int stream_peer_send_bulk(struct pst_peer *base, struct pst_bytes header, const struct iovec *iov,
                          int iov_count, void *arg)
{
    const struct pst_bytes none = {NULL, 0};
    struct stream_peer *peer = stream_peer_cast(base);
    struct stream_head head = {.type = STREAM_BULK, .header_bytes = (uint16_t)header.len};
    struct stream_letter *letter;
    struct stream_op *op;

    if (peer->state == STREAM_PEER_OVER)
        return -ECONNRESET;
    op = stream_op_take(stream_port_cast(base->port), PST_NET_SENT, iov, iov_count, arg);
    if (!op)
        return -EBUSY;
    head.id = stream_op_id(op);
    head.value = op->left;
    letter = stream_letter_new(peer, head_bytes(&head), header, none);
    if (!letter) {
        stream_op_give(op);
        return -EBUSY;
    }
    stream_op_start(op, peer, STREAM_OP_ANNOUNCED);
    stream_out_push(peer, &letter->out);
    stream_out_hurry(peer);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* port.c: a thread's connections, and the epoll that wakes it for them. */
#include "net/stream/stream_priv.h"

#include <sys/epoll.h>

enum {
    ROUNDS_MAX = 16, /* of one progress */
    EVENTS_MAX = 64,
    CHANNELS_FEW = 3, /* so many are read without asking epoll first */
};

static void apply_changes(struct stream_port *port)
{
    while (!pst_list_empty(&port->changes)) {
        struct stream_peer *peer = pst_list_first(&port->changes, struct stream_peer, change);
        struct epoll_event event = {.events = stream_peer_wants(peer), .data.ptr = peer};

        pst_list_remove(&peer->change);
        if (!peer->channel || event.events == peer->watched)
            continue;
        if (epoll_ctl(port->epoll_fd, EPOLL_CTL_MOD, stream_channel_fd(peer->channel), &event) != 0)
            stream_peer_lose(peer, -errno);
        else
            peer->watched = event.events;
    }
}

/* Return: whether anything happened. */
static bool peer_run(struct stream_peer *peer)
{
    bool rested = peer->rests;

    if (peer->state == STREAM_PEER_DIALS || peer->state == STREAM_PEER_STARTS)
        return stream_peer_step(peer);
    if (peer->state == STREAM_PEER_UP && !pst_list_empty(&peer->outs))
        stream_out_flush(peer);
    return peer->state == STREAM_PEER_UP && !rested && stream_in_read(peer);
}

static bool run_turns(struct stream_port *port)
{
    struct pst_list now;
    bool something = false;

    pst_list_init(&now);
    pst_list_splice(&now, &port->turns);
    while (!pst_list_empty(&now)) {
        struct stream_peer *peer = pst_list_first(&now, struct stream_peer, turn);

        pst_list_remove(&peer->turn);
        peer->wrote = false;
        something |= !pst_list_empty(&peer->outs) && !peer->blocked;
        if (peer->state == STREAM_PEER_UP && !peer->blocked)
            stream_out_flush(peer);
        if (peer->state == STREAM_PEER_UP && !peer->rests && stream_channel_buffered(peer->channel))
            something |= stream_in_read(peer);
    }
    return something;
}

static bool run_each(struct stream_port *port)
{
    bool something = false;

    pst_list_each (it, &port->peers)
        something |= peer_run(pst_list_entry(it, struct stream_peer, link));
    return something;
}

static bool run_epoll(struct stream_port *port)
{
    struct epoll_event events[EVENTS_MAX];
    int count;

    apply_changes(port);
    count = epoll_wait(port->epoll_fd, events, EVENTS_MAX, 0);
    for (int i = 0; i < count; i++) {
        struct stream_peer *peer = events[i].data.ptr;

        pst_assert(peer->base.magic == PST_PEER_MAGIC);
        peer_run(peer);
        /* One that is not read would be told of again and again. */
        if (peer->rests && events[i].events & (EPOLLHUP | EPOLLERR))
            stream_peer_lose(peer, -ECONNRESET);
    }
    return count > 0;
}

static void port_progress(struct pst_port *base)
{
    struct stream_port *port = stream_port_cast(base);
    bool something = true;

    for (int i = 0; i < ROUNDS_MAX && something && base->ready_count == 0; i++) {
        something = run_turns(port);
        if (base->ready_count > 0 || port->channel_count == 0)
            break;
        if (port->armed || port->channel_count > CHANNELS_FEW)
            something |= run_epoll(port);
        else
            something |= run_each(port);
        port->armed = false;
    }
    run_turns(port);
    port->busy = base->ready_count > 0;
}

static int port_arm(struct pst_port *base)
{
    struct stream_port *port = stream_port_cast(base);

    pst_assert(base->ready_count == 0);
    if (!pst_list_empty(&port->turns))
        return -EAGAIN;
    apply_changes(port);
    if (base->ready_count > 0)
        return -EAGAIN;
    port->armed = true;
    return 0;
}

static int port_fd(struct pst_port *base)
{
    return stream_port_cast(base)->epoll_fd;
}

static int port_address(struct pst_port *base, bool network_only, void *buf, size_t cap)
{
    struct stream_address address;

    (void)network_only;
    pst_assert(base->magic == PST_PORT_MAGIC);
    if (cap < sizeof(address))
        return -ENOSPC;
    stream_address_write(&address);
    memcpy(buf, &address, sizeof(address));
    return (int)sizeof(address);
}

static void port_taken(struct pst_port *base, struct pst_event_node *node)
{
    pst_assert(base->magic == PST_PORT_MAGIC);
    if (node->event.kind == PST_NET_SENT || node->event.kind == PST_NET_RECEIVED)
        stream_op_give(pst_container_of(node, struct stream_op, node));
    else if (node->event.kind == PST_NET_PEER_GONE)
        stream_peer_free(pst_container_of(node, struct stream_peer, node_gone));
}

static int port_open(struct pst_net *net, uint32_t events_max, struct pst_port **out)
{
    struct stream_port *port = calloc(1, sizeof(*port));
    int r = -ENOMEM;

    pst_assert(events_max > 0);
    if (port)
        port->ops = calloc(events_max, sizeof(*port->ops));
    if (port && port->ops) {
        port->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        r = port->epoll_fd < 0 ? -errno : 0;
    }
    if (r < 0) {
        if (port)
            free(port->ops);
        free(port);
        return r;
    }
    port->base = (struct pst_port){.magic = PST_PORT_MAGIC, .net = net};
    port->ops_max = events_max;
    pst_list_init(&port->base.ready);
    pst_list_init(&port->peers);
    pst_list_init(&port->turns);
    pst_list_init(&port->changes);
    pst_list_init(&port->orphans);
    pst_list_init(&port->ops_free);
    *out = &port->base;
    return 0;
}

static void drop_events(struct pst_port *base)
{
    while (!pst_list_empty(&base->ready)) {
        struct pst_event_node *node = pst_list_first(&base->ready, struct pst_event_node, link);

        pst_port_unready(base, node);
        if (node->event.kind == PST_NET_SENT || node->event.kind == PST_NET_RECEIVED)
            stream_op_give(pst_container_of(node, struct stream_op, node));
    }
    pst_assert(base->ready_count == 0);
}

static void port_close(struct pst_port *base)
{
    struct stream_port *port = stream_port_cast(base);

    pst_list_each (it, &port->peers) {
        struct pst_peer *peer = &pst_list_entry(it, struct stream_peer, link)->base;

        if (peer->closing)
            continue;
        peer->closing = true;
        stream_peer_close(peer);
    }
    drop_events(base);
    pst_list_each_safe (it, &port->peers)
        stream_peer_free(pst_list_entry(it, struct stream_peer, link));
    while (!pst_list_empty(&port->orphans)) {
        struct stream_msg *msg = pst_list_first(&port->orphans, struct stream_msg, link);

        pst_list_remove(&msg->link);
        free(msg);
    }
    pst_assert(port->channel_count == 0);
    close(port->epoll_fd);
    free(port->ops);
    base->magic = 0;
    free(port);
}

/* ---- the net ---- */

static void net_close(struct pst_net *base)
{
    struct stream_net *net = stream_net_cast(base);

    base->magic = 0;
    free(net);
}

const struct pst_net_ops pst_net_stream = {
    .name = "stream",
    .net_close = net_close,
    .port_open = port_open,
    .port_close = port_close,
    .port_address = port_address,
    .port_progress = port_progress,
    .port_taken = port_taken,
    .port_fd = port_fd,
    .port_arm = port_arm,
    .peer_open = stream_peer_open,
    .peer_close = stream_peer_close,
    .peer_lane = stream_peer_lane,
    .peer_gathers = stream_peer_gathers,
    .peer_direct = stream_peer_direct,
    .peer_send = stream_peer_send,
    .peer_send_bulk = stream_peer_send_bulk,
    .msg_receive = stream_msg_receive,
    .msg_free = stream_msg_free,
};

int pst_stream_open(const struct pst_net_options *options, struct pst_net **out)
{
    struct stream_net *net = malloc(sizeof(*net));

    if (!net)
        return -ENOMEM;
    *net = (struct stream_net){.base = {.magic = PST_NET_MAGIC, .ops = &pst_net_stream},
                               .wrap = options->wrap,
                               .wrap_ctx = options->wrap_ctx,
                               .seal = options->seal};
    *out = &net->base;
    return 0;
}

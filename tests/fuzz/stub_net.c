/* SPDX-License-Identifier: Apache-2.0 */
#include "stub_net.h"

struct stub_port {
    struct pst_port base;
    stub_sent sent;
    void *ctx;
    uint32_t message_count;
};

struct stub_peer {
    struct pst_peer base;
    struct pst_event_node gone;
};

struct stub_msg {
    struct pst_msg base;
    uint8_t *header, *data;
    struct pst_event_node received;
};

static struct stub_port *port_cast(struct pst_port *port)
{
    pst_assert(port->magic == PST_PORT_MAGIC);
    return pst_container_of(port, struct stub_port, base);
}

static void progress(struct pst_port *port)
{
    (void)port;
}

/* A carrier ends with its event. */
static void taken(struct pst_port *port, struct pst_event_node *node)
{
    if (node->event.kind == PST_NET_PEER_GONE) {
        free(pst_container_of(node, struct stub_peer, gone));
        return;
    }
    port_cast(port)->message_count--;
    free(pst_container_of(node, struct stub_msg, received));
}

static int peer_open(struct pst_port *port, const void *address, size_t bytes, void *ctx,
                     struct pst_peer **out)
{
    struct stub_peer *peer = calloc(1, sizeof(*peer));

    (void)address;
    (void)bytes;
    pst_assert(peer);
    peer->base = (struct pst_peer){.magic = PST_PEER_MAGIC, .port = port, .ctx = ctx};
    pst_list_init(&peer->gone.link);
    *out = &peer->base;
    return 0;
}

static void peer_close(struct pst_peer *base)
{
    struct stub_peer *peer = pst_container_of(base, struct stub_peer, base);

    peer->gone.event = (struct pst_net_event){.kind = PST_NET_PEER_GONE, .arg = base->ctx};
    pst_port_ready(base->port, &peer->gone);
}

static const char *peer_lane(struct pst_peer *peer)
{
    (void)peer;
    return "stub";
}

static bool peer_direct(struct pst_peer *peer)
{
    (void)peer;
    return false;
}

static bool peer_gathers(struct pst_peer *peer)
{
    (void)peer;
    return true;
}

static int peer_send(struct pst_peer *peer, struct pst_bytes header, struct pst_bytes data, void *arg)
{
    struct stub_port *port = port_cast(peer->port);

    (void)arg;
    port->sent(port->ctx, header, data);
    return 1;
}

static int peer_send_bulk(struct pst_peer *peer, struct pst_bytes header, const struct iovec *iov,
                          int iov_count, void *arg)
{
    uint8_t ends[2];

    for (int i = 0; i < iov_count; i++) { /* the sanitizer looks at the ends of each piece */
        memcpy(&ends[0], iov[i].iov_base, 1);
        memcpy(&ends[1], (const uint8_t *)iov[i].iov_base + iov[i].iov_len - 1, 1);
    }
    return peer_send(peer, header, (struct pst_bytes){iov[0].iov_base, iov[0].iov_len}, arg);
}

static struct stub_msg *msg_cast(struct pst_msg *base)
{
    pst_assert(base->magic == PST_MSG_MAGIC);
    return pst_container_of(base, struct stub_msg, base);
}

static void drop_bytes(struct stub_msg *msg)
{
    free(msg->header);
    free(msg->data);
    msg->header = msg->data = NULL;
}

static int msg_receive(struct pst_msg *base, const struct iovec *iov, int iov_count, void *arg)
{
    struct stub_msg *msg = msg_cast(base);
    const uint8_t *from = msg->data;

    for (int i = 0; i < iov_count; from += iov[i++].iov_len)
        memcpy(iov[i].iov_base, from, iov[i].iov_len);
    drop_bytes(msg);
    base->magic = 0;
    msg->received.event = (struct pst_net_event){.kind = PST_NET_RECEIVED, .arg = arg};
    pst_port_ready(base->port, &msg->received);
    return 0;
}

static void msg_free(struct pst_msg *base)
{
    struct stub_msg *msg = msg_cast(base);

    port_cast(base->port)->message_count--;
    drop_bytes(msg);
    base->magic = 0;
    free(msg);
}

static void port_close(struct pst_port *base)
{
    struct pst_net_event event;

    while (base->ready_count > 0)
        pst_port_poll(base, &event, 1);
    free(port_cast(base));
}

static const struct pst_net_ops ops = {
    .name = "stub",
    .port_close = port_close,
    .port_progress = progress,
    .port_taken = taken,
    .peer_open = peer_open,
    .peer_close = peer_close,
    .peer_lane = peer_lane,
    .peer_direct = peer_direct,
    .peer_gathers = peer_gathers,
    .peer_send = peer_send,
    .peer_send_bulk = peer_send_bulk,
    .msg_receive = msg_receive,
    .msg_free = msg_free,
};

static struct pst_net net = {.magic = PST_NET_MAGIC, .ops = &ops};

struct stub_port *stub_port_open(stub_sent sent, void *ctx)
{
    struct stub_port *port = calloc(1, sizeof(*port));

    pst_assert(port && sent);
    port->base = (struct pst_port){.magic = PST_PORT_MAGIC, .net = &net};
    net.port_count++;
    pst_list_init(&port->base.ready);
    port->sent = sent;
    port->ctx = ctx;
    return port;
}

struct pst_port *stub_port_base(struct stub_port *port)
{
    return &port->base;
}

struct stub_port *stub_port_close(struct stub_port *port)
{
    pst_port_close(&port->base);
    return NULL;
}

struct pst_net_event stub_message(struct stub_port *port, enum pst_net_kind kind, struct pst_bytes header,
                                  struct pst_bytes data)
{
    struct stub_msg *msg = calloc(1, sizeof(*msg));

    pst_assert(msg && (kind == PST_NET_EAGER || kind == PST_NET_BULK));
    msg->base = (struct pst_msg){
        .magic = PST_MSG_MAGIC, .port = &port->base, .bulk_bytes = kind == PST_NET_BULK ? data.len : 0};
    pst_list_init(&msg->received.link);
    msg->header = malloc(header.len ? header.len : 1);
    msg->data = calloc(1, data.len ? data.len : 1);
    pst_assert(msg->header && msg->data);
    if (header.len > 0)
        memcpy(msg->header, header.data, header.len);
    if (data.data)
        memcpy(msg->data, data.data, data.len);
    port->message_count++;
    return (struct pst_net_event){
        .kind = kind,
        .msg = &msg->base,
        .header = {msg->header, header.len},
        .data = {kind == PST_NET_BULK ? NULL : msg->data, data.len},
    };
}

uint32_t stub_messages(const struct stub_port *port)
{
    return port->message_count;
}

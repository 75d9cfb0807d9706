/* SPDX-License-Identifier: Apache-2.0 */
/* peer.c: a direction between two ports, and what is sent over it. */
#include "net/inproc/inproc_priv.h"

#include "base/clock.h"

enum { CUT_NS = 20000000 };

/* Names a port of this process; a forked child is another one. */
struct mem_address {
    char magic[8];
    uint64_t process;
    uint64_t id;
    uint64_t same_host; /* left out of a network address */
};

static const char magic[8] = "pst-mem";

_Static_assert(sizeof(struct mem_address) <= PST_NET_ADDRESS_BYTES_MAX, "an address fits");

size_t mem_address_bytes(bool network_only)
{
    return network_only ? offsetof(struct mem_address, same_host) : sizeof(struct mem_address);
}

void mem_address_write(const struct mem_port *port, bool network_only, void *buf)
{
    struct mem_address address = {.process = (uint64_t)getpid(), .id = port->id};

    memcpy(address.magic, magic, sizeof(magic));
    memcpy(buf, &address, mem_address_bytes(network_only));
}

static void node_init(struct pst_event_node *node, enum pst_net_kind kind, void *ctx)
{
    pst_assert(kind == PST_NET_PEER_LOST || kind == PST_NET_PEER_GONE);
    pst_list_init(&node->link);
    node->event = (struct pst_net_event){
        .kind = kind, .status = kind == PST_NET_PEER_LOST ? -ECONNRESET : 0, .arg = ctx};
}

int mem_peer_open(struct pst_port *base, const void *bytes_of, size_t bytes, void *ctx, struct pst_peer **out)
{
    struct mem_port *port = mem_port_cast(base);
    struct mem_address address = {.id = 0};
    struct mem_peer *peer;

    memcpy(&address, bytes_of, pst_min(bytes, sizeof(address)));
    if (memcmp(address.magic, magic, sizeof(magic)) != 0 || address.process != (uint64_t)getpid())
        return -EHOSTUNREACH;
    peer = calloc(1, sizeof(*peer));
    if (!peer)
        return -ENOMEM;
    peer->base = (struct pst_peer){.magic = PST_PEER_MAGIC, .port = base, .ctx = ctx};
    peer->to = address.id;
    peer->stream = port->id << 40 | peer->to << 16 | (uint16_t)port->peers_opened++;
    node_init(&peer->node_lost, PST_NET_PEER_LOST, ctx);
    node_init(&peer->node_gone, PST_NET_PEER_GONE, ctx);
    mem_lock();
    pst_list_push_back(&port->peers, &peer->link);
    /* The other side may have announced something before that is being received already. */
    pst_list_each (it, &port->ops_live) {
        struct mem_op *op = pst_list_entry(it, struct mem_op, link);

        if (!op->peer && op->node.event.kind == PST_NET_RECEIVED && op->from == peer->to) {
            op->peer = peer;
            peer->ops_count++;
        }
    }
    if (!mem_port_find(peer->to)) {
        peer->doomed = true;
        mem_post_news(port);
    }
    mem_unlock();
    *out = &peer->base;
    return 0;
}

void mem_peer_lose(struct mem_peer *peer)
{
    pst_assert(peer->doomed);
    if (peer->lost || peer->base.closing)
        return;
    peer->lost = true;
    pst_port_ready(peer->base.port, &peer->node_lost);
}

void mem_peer_cut(struct mem_peer *peer)
{
    struct mem_port *port = mem_port_cast(peer->base.port);
    bool idle = peer->ops_count == 0;

    pst_assert(peer->base.closing);
    pst_assert(!peer->gone);
    peer->cut = true;
    pst_list_each_safe (it, &port->ops_live) {
        struct mem_op *op = pst_list_entry(it, struct mem_op, link);

        if (op->peer == peer)
            mem_op_end(op, -ECANCELED); /* the last one queues the peer's own event */
    }
    if (!idle)
        return;
    peer->gone = true;
    pst_port_ready(&port->base, &peer->node_gone);
}

/* What has been announced cannot be received any more. What is being received or sent goes on until the close
 * takes effect, which is later where things take time: until then the memory is not its owner's. */
void mem_peer_close(struct pst_peer *base)
{
    struct mem_peer *peer = mem_peer_cast(base);
    struct mem_port *port = mem_port_cast(base->port);
    const struct pst_bytes none = {NULL, 0};
    struct mem_packet *packet;

    pst_assert(base->closing);
    pst_assert(!peer->gone);
    mem_lock();
    pst_port_unready(&port->base, &peer->node_lost);
    pst_list_each (it, &port->msgs) {
        struct mem_msg *msg = pst_list_entry(it, struct mem_msg, link);

        if (msg->from == peer->to)
            mem_msg_drop(msg);
    }
    if (mem_chance_slow()) {
        packet = mem_packet_new(MEM_CUT, none, none, NULL);
        pst_assert(packet);
        packet->peer = peer;
        mem_post(port, packet, pst_now_ns() + CUT_NS);
    } else {
        mem_peer_cut(peer);
    }
    mem_unlock();
}

void mem_peer_forget(struct mem_peer *peer)
{
    pst_assert(peer->cut);
    pst_assert(peer->ops_count == 0);
    pst_assert(peer->base.magic == PST_PEER_MAGIC);
    pst_port_unready(peer->base.port, &peer->node_gone);
    pst_list_remove(&peer->link);
    peer->base.magic = 0;
    free(peer);
}

const char *mem_peer_lane(struct pst_peer *base)
{
    return mem_peer_cast(base)->lost ? "unknown" : "memory";
}

bool mem_peer_direct(struct pst_peer *base)
{
    (void)base;
    return false;
}

bool mem_peer_gathers(struct pst_peer *base)
{
    (void)base;
    return true;
}

/* Posts @packet to arrive as @fate says: behind those before it, unless it is one that is overtaken. */
static void post_as_fated(struct mem_peer *peer, struct mem_port *to, struct mem_packet *packet,
                          const struct mem_fate *fate)
{
    uint64_t due_ns = pst_now_ns() + fate->delay_ns;

    pst_assert(packet->kind == MEM_EAGER || packet->kind == MEM_BULK);
    if (fate->reorder)
        due_ns += fate->behind_ns;
    else
        peer->last_due_ns = due_ns = pst_max(due_ns, peer->last_due_ns);
    packet->from = mem_port_cast(peer->base.port)->id;
    mem_post(to, packet, due_ns);
}

/* Sends one message, twice or not at all. */
static int send_fated(struct mem_peer *peer, struct mem_port *to, enum mem_kind kind, struct pst_bytes header,
                      struct pst_bytes data, struct mem_transfer *transfer, struct mem_fate fate)
{
    for (int copy = 0; copy <= fate.dup; copy++) {
        struct mem_packet *packet = mem_packet_new(kind, header, data, transfer);

        pst_assert(packet);
        if (transfer)
            transfer->copies++;
        fate.reorder |= copy > 0;
        post_as_fated(peer, to, packet, &fate);
    }
    return 0;
}

static struct mem_transfer *transfer_new(struct mem_op *op, const struct mem_fate *fate)
{
    struct mem_transfer *transfer = calloc(1, sizeof(*transfer));

    pst_assert(transfer);
    transfer->op = op;
    transfer->hold_ns = fate->hold_ns;
    op->transfer = mem_transfer_hold(transfer);
    pst_assert(transfer->holders == 1);
    pst_assert(transfer->copies == 0);
    return transfer;
}

/* With the lock held. */
static int send_eager(struct mem_peer *peer, struct mem_port *to, struct pst_bytes header,
                      struct pst_bytes data, void *arg)
{
    struct mem_port *port = mem_port_cast(peer->base.port);
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data.data, .iov_len = data.len};
    bool lend = to->inbox_count >= MEM_WINDOW || (mem_chance_slow() && data.len > 0);
    struct mem_transfer *transfer = NULL;
    struct mem_op *op = mem_op_take(port, PST_NET_SENT, &iov, 1, arg);
    struct mem_fate fate;

    pst_assert(!peer->doomed);
    pst_assert(!peer->base.closing);
    if (!op)
        return -EBUSY;
    fate = mem_fate(peer);
    if (lend) {
        transfer = transfer_new(op, &fate);
        mem_op_start(op, peer);
    }
    if (!fate.drop)
        send_fated(peer, to, MEM_EAGER, header, data, transfer, fate);
    else if (transfer) /* the sender cannot tell */
        mem_transfer_end(transfer, 0, pst_now_ns());
    if (!lend)
        mem_op_give(op);
    return lend ? 0 : 1;
}

int mem_peer_send(struct pst_peer *base, struct pst_bytes header, struct pst_bytes data, void *arg)
{
    struct mem_peer *peer = mem_peer_cast(base);
    struct mem_port *to;
    int r = -ECONNRESET;

    pst_assert(!base->closing);
    mem_lock();
    to = peer->doomed ? NULL : mem_port_find(peer->to);
    if (to)
        r = send_eager(peer, to, header, data, arg);
    mem_unlock();
    return r;
}

int mem_peer_send_bulk(struct pst_peer *base, struct pst_bytes header, const struct iovec *iov, int iov_count,
                       void *arg)
{
    struct mem_peer *peer = mem_peer_cast(base);
    struct pst_bytes data = {NULL, 0};
    struct mem_transfer *transfer;
    struct mem_port *to;
    struct mem_fate fate;
    struct mem_op *op;

    pst_assert(pst_iov_total(iov, iov_count, &data.len));
    mem_lock();
    to = peer->doomed ? NULL : mem_port_find(peer->to);
    op = to ? mem_op_take(mem_port_cast(base->port), PST_NET_SENT, iov, iov_count, arg) : NULL;
    if (!op) {
        mem_unlock();
        return to ? -EBUSY : -ECONNRESET;
    }
    fate = mem_fate(peer);
    transfer = transfer_new(op, &fate);
    transfer->lost = fate.lost;
    mem_op_start(op, peer);
    if (!fate.drop || fate.lost) /* else it stays underway until its peer is closed */
        send_fated(peer, to, MEM_BULK, header, data, transfer, fate);
    mem_unlock();
    return 0;
}

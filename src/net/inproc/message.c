/* SPDX-License-Identifier: Apache-2.0 */
/* message.c: what arrives, and what the receiver does with it. */
#include "net/inproc/inproc_priv.h"

#include "base/clock.h"

static void copy_pieces(const struct mem_op *from, const struct mem_op *to)
{
    size_t from_at = 0, to_at = 0;

    pst_assert(from->iov_count > 0);
    pst_assert(to->iov_count > 0);
    for (int i = 0, k = 0; i < from->iov_count && k < to->iov_count;) {
        size_t n = pst_min(from->iov[i].iov_len - from_at, to->iov[k].iov_len - to_at);

        if (n)
            memcpy((uint8_t *)to->iov[k].iov_base + to_at, (const uint8_t *)from->iov[i].iov_base + from_at,
                   n);
        from_at += n;
        to_at += n;
        if (from_at == from->iov[i].iov_len)
            i++, from_at = 0;
        if (k < to->iov_count && to_at == to->iov[k].iov_len)
            k++, to_at = 0;
    }
}

static struct mem_peer *peer_of(struct mem_port *port, uint64_t from)
{
    pst_assert(port->base.magic == PST_PORT_MAGIC);
    pst_list_each (it, &port->peers) {
        struct mem_peer *peer = pst_list_entry(it, struct mem_peer, link);

        if (peer->to == from && !peer->base.closing)
            return peer;
    }
    return NULL;
}

/* Queues the event of a message. Eager data that was lent is copied now. */
static void mem_arrive(struct mem_port *port, struct mem_packet *packet, uint64_t now_ns)
{
    bool bulk = packet->kind == MEM_BULK;
    struct mem_transfer *transfer = packet->transfer;
    size_t copied = bulk ? 0 : packet->data_bytes;
    struct mem_msg *msg;

    pst_assert(packet->kind == MEM_EAGER || packet->kind == MEM_BULK);
    if (!bulk && transfer && !transfer->op) /* taken back */
        return;
    msg = malloc(sizeof(*msg) + packet->header_bytes + copied);
    pst_assert(msg);
    *msg = (struct mem_msg){.base = {.magic = PST_MSG_MAGIC, .port = &port->base}, .from = packet->from};
    pst_list_init(&msg->node.link);
    pst_list_push_back(&port->msgs, &msg->link);
    memcpy(msg->bytes, packet->bytes, packet->header_bytes + (transfer ? 0 : copied));
    msg->node.event = (struct pst_net_event){.kind = bulk ? PST_NET_BULK : PST_NET_EAGER,
                                             .msg = &msg->base,
                                             .header = {msg->bytes, packet->header_bytes},
                                             .data = {NULL, packet->data_bytes}};
    if (bulk) {
        const struct mem_peer *peer = peer_of(port, packet->from);

        msg->node.event.arg = peer ? peer->base.ctx : NULL;
        msg->base.bulk_bytes = packet->data_bytes;
        msg->transfer = mem_transfer_hold(transfer);
    } else {
        msg->node.event.data.data = msg->bytes + packet->header_bytes;
        if (transfer) {
            memcpy(msg->bytes + packet->header_bytes, transfer->op->iov[0].iov_base, copied);
            pst_assert(transfer->copies > 0);
            if (--transfer->copies == 0)
                mem_transfer_end(transfer, 0, now_ns);
        }
    }
    pst_port_ready(&port->base, &msg->node);
}

static void copy_now(struct mem_packet *packet, uint64_t now_ns)
{
    struct mem_transfer *transfer = packet->transfer;
    struct mem_op *op = packet->op;

    pst_assert(op->copy == packet);
    op->copy = NULL;
    if (!transfer->op) {
        mem_op_end(op, -ECONNRESET);
        return;
    }
    copy_pieces(transfer->op, op);
    mem_op_end(op, 0);
    mem_transfer_end(transfer, 0, now_ns);
}

void mem_deliver(struct mem_port *port, struct mem_packet *packet, uint64_t now_ns)
{
    pst_assert(packet->kind <= MEM_CUT);
    pst_assert(pst_list_empty(&packet->link));
    switch (packet->kind) {
    case MEM_EAGER:
    case MEM_BULK:
        mem_arrive(port, packet, now_ns);
        break;
    case MEM_ENDED:
        if (packet->transfer->op)
            mem_op_end(packet->transfer->op, packet->status);
        break;
    case MEM_COPY:
        copy_now(packet, now_ns);
        break;
    case MEM_CUT:
        mem_peer_cut(packet->peer);
        break;
    }
    mem_packet_free(packet);
}

/* Its peer was closed: it may only be freed now, or received in vain. */
void mem_msg_drop(struct mem_msg *msg)
{
    pst_assert(msg->base.magic == PST_MSG_MAGIC);
    if (msg->transfer)
        mem_transfer_drop(msg->transfer);
    msg->transfer = NULL;
}

static void msg_end(struct mem_msg *msg)
{
    pst_assert(pst_list_empty(&msg->node.link));
    mem_msg_drop(msg);
    pst_list_remove(&msg->link);
    msg->base.magic = 0;
    free(msg);
}

static void receive_begin(struct mem_op *op, struct mem_transfer *transfer)
{
    const struct pst_bytes none = {NULL, 0};
    struct mem_packet *packet;

    pst_assert(transfer->op);
    pst_assert(!transfer->taken);
    pst_assert(!op->copy);
    op->transfer = mem_transfer_hold(transfer);
    transfer->taken = true;
    if (transfer->lost)
        return;
    packet = mem_packet_new(MEM_COPY, none, none, transfer);
    pst_assert(packet);
    packet->op = op;
    op->copy = packet;
    mem_post(op->port, packet, pst_now_ns() + transfer->hold_ns);
}

int mem_msg_receive(struct pst_msg *base, const struct iovec *iov, int iov_count, void *arg)
{
    struct mem_msg *msg = mem_msg_cast(base);
    struct mem_port *port = mem_port_cast(base->port);
    struct mem_transfer *transfer = msg->transfer;
    struct mem_op *op;

    pst_assert(pst_list_empty(&msg->node.link));
    mem_lock();
    op = mem_op_take(port, PST_NET_RECEIVED, iov, iov_count, arg);
    if (!op) {
        mem_unlock();
        return -EBUSY;
    }
    op->from = msg->from;
    mem_op_start(op, peer_of(port, msg->from));
    if (!transfer || !transfer->op || transfer->taken)
        mem_op_end(op, -ECANCELED);
    else
        receive_begin(op, transfer);
    msg_end(msg);
    mem_unlock();
    return 0;
}

void mem_msg_free(struct pst_msg *base)
{
    struct mem_msg *msg = mem_msg_cast(base);
    struct mem_transfer *transfer = msg->transfer;

    mem_lock();
    pst_assert(!transfer || transfer->copies > 0);
    if (transfer && --transfer->copies == 0 && !transfer->taken)
        mem_transfer_end(transfer, -ECANCELED, pst_now_ns());
    msg_end(msg);
    mem_unlock();
}

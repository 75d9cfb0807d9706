/* SPDX-License-Identifier: Apache-2.0 */
/* op.c: sends and receives underway, what they lend, and the packets that carry it. With the lock held.
 */
#include "net/inproc/inproc_priv.h"

struct mem_op *mem_op_take(struct mem_port *port, enum pst_net_kind kind, const struct iovec *iov,
                           int iov_count, void *arg)
{
    struct iovec *copy;
    struct mem_op *op;

    pst_assert(iov);
    pst_assert(iov_count > 0);
    if (pst_list_empty(&port->ops_free))
        return NULL;
    copy = malloc((size_t)iov_count * sizeof(*iov));
    if (!copy)
        return NULL;
    memcpy(copy, iov, (size_t)iov_count * sizeof(*iov));
    op = pst_list_first(&port->ops_free, struct mem_op, link);
    pst_assert(op->magic == MEM_OP_MAGIC);
    pst_assert(!op->iov);
    pst_assert(!op->transfer);
    pst_assert(!op->copy);
    pst_list_remove(&op->link);
    op->iov = copy;
    op->iov_count = iov_count;
    op->node.event = (struct pst_net_event){.kind = kind, .arg = arg};
    return op;
}

void mem_op_give(struct mem_op *op)
{
    pst_assert(op->magic == MEM_OP_MAGIC);
    pst_assert(pst_list_empty(&op->link));
    pst_assert(pst_list_empty(&op->node.link));
    pst_assert(!op->transfer);
    pst_assert(!op->copy);
    free(op->iov);
    op->iov = NULL;
    pst_list_push_front(&op->port->ops_free, &op->link);
}

void mem_op_start(struct mem_op *op, struct mem_peer *peer)
{
    pst_assert(pst_list_empty(&op->link));
    op->peer = peer;
    if (peer)
        peer->ops_count++;
    pst_list_push_back(&op->port->ops_live, &op->link);
}

static void peer_settle(struct mem_peer *peer)
{
    if (!peer->cut || peer->ops_count > 0 || peer->gone)
        return;
    pst_assert(peer->base.closing);
    peer->gone = true;
    pst_port_ready(peer->base.port, &peer->node_gone);
}

/* From here on nobody touches the memory that the operation was given. */
void mem_op_end(struct mem_op *op, int status)
{
    struct mem_peer *peer = op->peer;

    pst_assert(op->magic == MEM_OP_MAGIC);
    pst_assert(!pst_list_empty(&op->link));
    pst_list_remove(&op->link);
    if (op->copy)
        mem_unpost(op->port, op->copy);
    if (op->transfer && op->node.event.kind == PST_NET_SENT)
        op->transfer->op = NULL;
    if (op->transfer)
        mem_transfer_drop(op->transfer);
    op->transfer = NULL;
    op->peer = NULL;
    op->node.event.status = status;
    pst_port_ready(&op->port->base, &op->node);
    if (!peer)
        return;
    pst_assert(peer->ops_count > 0);
    peer->ops_count--;
    peer_settle(peer);
}

struct mem_transfer *mem_transfer_hold(struct mem_transfer *transfer)
{
    pst_assert(transfer->holders < UINT32_MAX);
    transfer->holders++;
    return transfer;
}

void mem_transfer_drop(struct mem_transfer *transfer)
{
    pst_assert(transfer->holders > 0);
    if (--transfer->holders > 0)
        return;
    pst_assert(!transfer->op);
    free(transfer);
}

struct mem_packet *mem_packet_new(enum mem_kind kind, struct pst_bytes header, struct pst_bytes data,
                                  struct mem_transfer *transfer)
{
    size_t copied = transfer ? 0 : data.len;
    struct mem_packet *packet = malloc(sizeof(*packet) + header.len + copied);

    pst_assert(kind <= MEM_CUT);
    if (!packet)
        return NULL;
    *packet = (struct mem_packet){.kind = kind, .header_bytes = header.len, .data_bytes = data.len};
    pst_list_init(&packet->link);
    if (header.len)
        memcpy(packet->bytes, header.data, header.len);
    if (copied)
        memcpy(packet->bytes + header.len, data.data, copied);
    if (transfer)
        packet->transfer = mem_transfer_hold(transfer);
    return packet;
}

void mem_packet_free(struct mem_packet *packet)
{
    pst_assert(pst_list_empty(&packet->link));
    if (packet->transfer)
        mem_transfer_drop(packet->transfer);
    free(packet);
}

void mem_transfer_end(struct mem_transfer *transfer, int status, uint64_t now_ns)
{
    const struct pst_bytes none = {NULL, 0};
    struct mem_packet *packet;

    pst_assert(status <= 0);
    pst_assert(transfer->holders > 0);
    if (!transfer->op) /* the sender has closed */
        return;
    packet = mem_packet_new(MEM_ENDED, none, none, transfer);
    pst_assert(packet); /* a test transport may fall over without memory, as long as it says so */
    packet->status = status;
    mem_post(transfer->op->port, packet, now_ns + transfer->hold_ns);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* op.c: sends and receives that are underway, and how far each is with the memory that it was given. */
#include "net/stream/stream_priv.h"

static struct stream_op *op_unused(struct stream_port *port)
{
    struct stream_op *op;

    if (!pst_list_empty(&port->ops_free)) {
        op = pst_list_first(&port->ops_free, struct stream_op, link);
        pst_list_remove(&op->link);
        return op;
    }
    if (port->ops_used == port->ops_max)
        return NULL;
    op = &port->ops[port->ops_used++];
    op->magic = STREAM_OP_MAGIC;
    op->port = port;
    pst_list_init(&op->link);
    pst_list_init(&op->node.link);
    return op;
}

struct stream_op *stream_op_take(struct stream_port *port, enum pst_net_kind kind, const struct iovec *iov,
                                 int iov_count, void *arg)
{
    struct stream_op *op = op_unused(port);

    pst_assert(iov_count > 0 && iov_count <= PST_NET_BULK_IOV_MAX);
    if (!op)
        return NULL;
    pst_assert(op->magic == STREAM_OP_MAGIC);
    pst_assert(op->state == STREAM_OP_FREE);
    pst_assert(!op->iov);
    op->iov = iov_count == 1 ? &op->one : malloc((size_t)iov_count * sizeof(*iov));
    if (!op->iov) {
        pst_list_push_front(&port->ops_free, &op->link);
        return NULL;
    }
    memcpy(op->iov, iov, (size_t)iov_count * sizeof(*iov));
    op->iov_count = iov_count;
    op->iov_at = 0;
    op->iov_done = 0;
    op->quiet = false;
    op->use++;
    pst_assert(pst_iov_total(iov, iov_count, &op->left));
    op->node.event = (struct pst_net_event){.kind = kind, .arg = arg};
    return op;
}

void stream_op_give(struct stream_op *op)
{
    pst_assert(op->magic == STREAM_OP_MAGIC);
    pst_assert(pst_list_empty(&op->link));
    pst_assert(pst_list_empty(&op->node.link));
    if (op->iov != &op->one)
        free(op->iov);
    op->iov = NULL;
    op->peer = NULL;
    op->state = STREAM_OP_FREE;
    pst_list_push_front(&op->port->ops_free, &op->link);
}

void stream_op_start(struct stream_op *op, struct stream_peer *peer, enum stream_op_state state)
{
    pst_assert(pst_list_empty(&op->link));
    pst_assert(op->state == STREAM_OP_FREE);
    op->peer = peer;
    op->state = state;
    pst_list_push_back(&peer->ops, &op->link);
    peer->receives += state == STREAM_OP_RECEIVES;
    if (state == STREAM_OP_EAGER) {
        peer->eagers++;
        stream_in_weigh(peer);
    }
}

void stream_op_end(struct stream_op *op, int status)
{
    pst_assert(op->magic == STREAM_OP_MAGIC);
    pst_assert(op->state != STREAM_OP_ENDED);
    if (op->state == STREAM_OP_RECEIVES) {
        pst_assert(op->peer->receives > 0);
        op->peer->receives--;
    }
    if (op->state == STREAM_OP_EAGER) {
        pst_assert(op->peer->eagers > 0);
        op->peer->eagers--;
        stream_in_weigh(op->peer);
    }
    pst_list_remove(&op->link);
    op->state = STREAM_OP_ENDED;
    op->node.event.status = status;
    if (!op->quiet)
        pst_port_ready(&op->port->base, &op->node);
}

uint64_t stream_op_id(const struct stream_op *op)
{
    pst_assert(op >= op->port->ops && op < op->port->ops + op->port->ops_used);
    return (uint64_t)op->use << 32 | (uint64_t)(op - op->port->ops);
}

struct stream_op *stream_op_find(struct stream_peer *peer, uint64_t id, enum stream_op_state state)
{
    struct stream_port *port = stream_port_of(peer);
    uint32_t place = (uint32_t)id, use = (uint32_t)(id >> 32);
    struct stream_op *op = place < port->ops_used ? &port->ops[place] : NULL;

    /* One of another peer, or one that has ended, is nobody's business here. */
    return op && op->use == use && op->state == state && op->peer == peer ? op : NULL;
}

int stream_op_pieces(const struct stream_op *op, size_t *bytes, struct iovec *iov, int iov_max)
{
    size_t wanted = pst_min(*bytes, op->left), done = op->iov_done, total = 0;
    int count = 0;

    for (int i = op->iov_at; i < op->iov_count && count < iov_max && total < wanted; i++, done = 0) {
        size_t n = pst_min(op->iov[i].iov_len - done, wanted - total);

        if (n == 0)
            continue;
        iov[count++] = (struct iovec){(uint8_t *)op->iov[i].iov_base + done, n};
        total += n;
    }
    pst_assert(total <= wanted);
    *bytes = total;
    return count;
}

void stream_op_advance(struct stream_op *op, size_t bytes)
{
    pst_assert(bytes <= op->left);
    op->left -= bytes;
    while (bytes > 0) {
        size_t n = pst_min(bytes, op->iov[op->iov_at].iov_len - op->iov_done);

        pst_assert(op->iov_at < op->iov_count);
        bytes -= n;
        op->iov_done += n;
        if (op->iov_done == op->iov[op->iov_at].iov_len) {
            op->iov_at++;
            op->iov_done = 0;
        }
    }
}

void stream_op_fill(struct stream_op *op, const uint8_t *from, size_t bytes)
{
    pst_assert(op->state == STREAM_OP_RECEIVES);
    pst_assert(bytes <= op->left);
    while (bytes > 0) {
        struct iovec piece;
        size_t n = bytes;

        pst_assert(stream_op_pieces(op, &n, &piece, 1) == 1);
        pst_assert(n > 0);
        memcpy(piece.iov_base, from, n);
        stream_op_advance(op, n);
        from += n;
        bytes -= n;
    }
}

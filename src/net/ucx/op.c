/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op.c: the pool of operations. A port has as many as events may wait, so a send or receive that got one
 * can always report its end. What an operation needs to borrow to UCX (header, pieces, staging buffer) lives
 * with it.
 */
#include "net/ucx/ucx_priv.h"

struct ucx_op *ucx_op_take(struct ucx_port *port)
{
    struct ucx_op *op;

    if (pst_list_empty(&port->ops_free))
        return NULL;
    op = pst_list_first(&port->ops_free, struct ucx_op, link);
    pst_assert(op->magic == UCX_OP_MAGIC);
    pst_assert(op->pack < 0);
    pst_list_remove(&op->link);
    op->silent = false;
    op->iov_count = 0;
    return op;
}

static void pack_release(struct ucx_op *op)
{
    pst_assert(op->pack < UCX_PACKS);
    if (op->pack < 0)
        return;
    pst_assert(op->port->packs_used & 1u << op->pack);
    op->port->packs_used &= ~(1u << op->pack);
    op->pack = -1;
}

void ucx_op_give(struct ucx_op *op)
{
    pst_assert(op->magic == UCX_OP_MAGIC);
    pst_assert(pst_list_empty(&op->link));
    pst_assert(pst_list_empty(&op->node.link));
    pack_release(op);
    pst_list_push_front(&op->port->ops_free, &op->link); /* the warmest first */
}

void ucx_op_start(struct ucx_op *op, struct ucx_peer *peer, ucp_ep_h ep)
{
    pst_assert(pst_list_empty(&op->link));
    pst_assert(pst_list_empty(&op->node.link));
    pst_assert(!peer || peer->base.port == &op->port->base);
    op->peer = peer;
    op->ep = ep;
    if (peer)
        peer->ops_count++;
    pst_list_push_back(&op->port->ops_live, &op->link);
}

void ucx_op_stop(struct ucx_op *op)
{
    struct ucx_peer *peer = op->peer;

    pst_assert(op->magic == UCX_OP_MAGIC);
    pst_assert(!pst_list_empty(&op->link));
    pst_list_remove(&op->link);
    pst_list_remove(&op->held);
    op->peer = NULL;
    if (!peer)
        return;
    pst_assert(peer->ops_count > 0);
    peer->ops_count--;
}

void ucx_op_end(struct ucx_op *op, int status)
{
    struct ucx_peer *peer = op->peer;

    pst_assert(op->magic == UCX_OP_MAGIC);
    pst_assert(status <= 0);
    ucx_op_stop(op);
    pack_release(op);
    if (op->silent) {
        ucx_op_give(op);
    } else {
        op->node.event.status = status;
        pst_port_ready(&op->port->base, &op->node);
    }
    if (peer)
        ucx_peer_settle(peer);
}

void *ucx_op_header(struct ucx_op *op, struct pst_bytes header, size_t small_max)
{
    void *at = op->header_small;

    pst_assert(header.len <= PST_NET_HEADER_BYTES_MAX);
    pst_assert(small_max <= sizeof(op->header_small));
    if (header.len > small_max) {
        if (!op->header_big)
            op->header_big = malloc(PST_NET_HEADER_BYTES_MAX);
        at = op->header_big;
    }
    if (at && header.len > 0)
        memcpy(at, header.data, header.len);
    return at;
}

struct iovec *ucx_op_iov(struct ucx_op *op)
{
    pst_assert(op->iov_count <= UCX_IOV_SMALL || op->iov_big);
    return op->iov_count > UCX_IOV_SMALL ? op->iov_big : op->iov_small;
}

/* Joins in place of order: @out may hold as many pieces as came. Return: pieces written. */
static int pieces_join(const struct iovec *iov, int iov_count, struct iovec *out)
{
    int count = 0;

    pst_assert(iov && out);
    for (int i = 0; i < iov_count; i++) {
        struct iovec *last = count > 0 ? &out[count - 1] : NULL;

        if (iov[i].iov_len == 0)
            continue;
        if (last && (char *)last->iov_base + last->iov_len == iov[i].iov_base)
            last->iov_len += iov[i].iov_len;
        else
            out[count++] = iov[i];
    }
    pst_assert(count <= iov_count);
    return count;
}

/* Room for as many pieces as there may be. */
static int big_ready(struct ucx_op *op)
{
    if (!op->iov_big)
        op->iov_big = malloc(PST_NET_BULK_IOV_MAX * sizeof(*op->iov_big));
    return op->iov_big ? 0 : -ENOMEM;
}

int ucx_op_pieces(struct ucx_op *op, const struct iovec *iov, int iov_count)
{
    struct iovec *out = op->iov_small;

    pst_assert(iov_count >= 1 && iov_count <= PST_NET_BULK_IOV_MAX);
    if (iov_count > UCX_IOV_SMALL) {
        if (big_ready(op) < 0)
            return -ENOMEM;
        out = op->iov_big;
    }
    op->iov_count = pieces_join(iov, iov_count, out);
    pst_assert(op->iov_count >= 1);
    if (out == op->iov_big && op->iov_count <= UCX_IOV_SMALL)
        memcpy(op->iov_small, op->iov_big, (size_t)op->iov_count * sizeof(*out));
    return 0;
}

int ucx_op_stage(struct ucx_op *op, struct iovec *whole)
{
    struct ucx_port *port = op->port;
    int place = __builtin_ctz(~port->packs_used);
    size_t total;

    pst_assert(op->iov_count > 1);
    pst_assert(op->pack < 0);
    if (!pst_iov_total(ucx_op_iov(op), op->iov_count, &total) || total > PST_NET_PACK_BYTES_MAX)
        return -EMSGSIZE;
    if (place >= UCX_PACKS)
        return -EBUSY;
    if (!port->packs[place])
        port->packs[place] = aligned_alloc(4096, PST_NET_PACK_BYTES_MAX);
    if (!port->packs[place])
        return -ENOMEM;
    port->packs_used |= 1u << place;
    op->pack = place;
    *whole = (struct iovec){.iov_base = port->packs[place], .iov_len = total};
    return 0;
}

void ucx_op_unstage(struct ucx_op *op)
{
    const struct iovec *iov = ucx_op_iov(op);
    const char *from;

    pst_assert(op->magic == UCX_OP_MAGIC);
    pst_assert(op->pack < UCX_PACKS);
    if (op->pack < 0)
        return;
    from = op->port->packs[op->pack];
    for (int i = 0; i < op->iov_count; from += iov[i++].iov_len)
        memcpy(iov[i].iov_base, from, iov[i].iov_len);
}

int ucx_op_pack(struct ucx_op *op)
{
    const struct iovec *iov = ucx_op_iov(op);
    struct iovec whole;
    size_t done = 0;
    int r = ucx_op_stage(op, &whole);

    if (r < 0)
        return r;
    for (int i = 0; i < op->iov_count; i++) {
        memcpy((char *)whole.iov_base + done, iov[i].iov_base, iov[i].iov_len);
        done += iov[i].iov_len;
    }
    pst_assert(done == whole.iov_len);
    op->iov_count = 1;
    op->iov_small[0] = whole;
    return 0;
}

void ucx_op_fini(struct ucx_op *op)
{
    pst_assert(op->magic == UCX_OP_MAGIC);
    free(op->iov_big);
    free(op->header_big);
    op->magic = 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* op.h: a send or a receive that is underway, or whose event waits for a poll; a port has a pool of them. */
#ifndef PST_UCX_OP_H
#define PST_UCX_OP_H

#include "net/net_priv.h"

#include <ucp/api/ucp.h>

struct ucx_peer;
struct ucx_port;

enum {
    UCX_OP_MAGIC = 0x7e7e0010,
    UCX_HEADER_SMALL =
        256, /* headers up to this are copied in place, longer ones need a block of their own */
    UCX_IOV_SMALL = 4,
};

struct ucx_op {
    uint32_t magic;
    bool silent;          /* ends without an event: our own PREFIX messages */
    int pack;             /* staging buffer in use, or -1 */
    struct pst_list link; /* port->ops_free, or port->ops_live while UCX knows it */
    struct pst_event_node node;
    struct ucx_port *port;
    struct ucx_peer
        *peer; /* whose end waits for this; NULL for a receive from a peer that is not open here */
    ucp_ep_h ep;
    struct pst_list held; /* peer->held, a send until the way is open; how it is to be sent then: */
    const void *header;
    uint32_t header_bytes, am, flags;
    int iov_count;
    struct iovec iov_small[UCX_IOV_SMALL];
    struct iovec *iov_big; /* PST_NET_BULK_IOV_MAX of them, allocated when first needed, kept */
    uint8_t *header_big;   /* PST_NET_HEADER_BYTES_MAX, likewise */
    uint8_t header_small[UCX_HEADER_SMALL];
};

static inline struct ucx_op *ucx_op_cast(void *arg)
{
    struct ucx_op *op = arg;

    pst_assert(op->magic == UCX_OP_MAGIC);
    return op;
}

struct ucx_op *ucx_op_take(struct ucx_port *port);
void ucx_op_give(struct ucx_op *op);
/* Counts @op as underway for @peer (which may be NULL); ended without an event; ended with its event queued.
 */
void ucx_op_start(struct ucx_op *op, struct ucx_peer *peer, ucp_ep_h ep);
void ucx_op_stop(struct ucx_op *op);
void ucx_op_end(struct ucx_op *op, int status);
/* Copies a header into @op, in place when it has at most @small_max bytes. Return: where it lies; NULL
 * without memory. */
void *ucx_op_header(struct ucx_op *op, struct pst_bytes header, size_t small_max);
/* Copies pieces into @op, joining those that touch, dropping empty ones. Return: 0 or -ENOMEM. */
int ucx_op_pieces(struct ucx_op *op, const struct iovec *iov, int iov_count);
struct iovec *ucx_op_iov(struct ucx_op *op);
/* Replaces several pieces by a staging buffer that holds them. Return: 0, -EBUSY, -EMSGSIZE, -ENOMEM. */
int ucx_op_pack(struct ucx_op *op);
/* For a receive into several pieces: *@whole is a staging buffer for all of them. Return: the same. */
int ucx_op_stage(struct ucx_op *op, struct iovec *whole);
/* Copies what has come from there into the pieces, if it came there. */
void ucx_op_unstage(struct ucx_op *op);
void ucx_op_fini(struct ucx_op *op);

#endif

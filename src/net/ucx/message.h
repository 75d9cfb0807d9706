/* SPDX-License-Identifier: Apache-2.0 */
/*
 * message.h: what has come and nobody has freed yet. What travels is UCX active messages:
 *
 *   id      user header              data
 *   EAGER   the header (<= 256 B)    the data
 *   JOINED  u32 header bytes         header, then data: UCX keeps data for us, its header only in callbacks
 *   BULK    the header               rendezvous
 *   PARTED  u64 number               rendezvous; the header is longer than a lane's first packet
 *   PREFIX  u64 number               the header of the PARTED message of that number, in any order
 */
#ifndef PST_UCX_MESSAGE_H
#define PST_UCX_MESSAGE_H

#include "net/net_priv.h"
#include "net/ucx/op.h"

enum ucx_am {
    UCX_AM_EAGER = 1,
    UCX_AM_JOINED,
    UCX_AM_BULK,
    UCX_AM_PARTED,
    UCX_AM_PREFIX,
};

enum ucx_msg_kind {
    UCX_MSG_WHOLE,  /* delivered, or in the queue */
    UCX_MSG_PARTED, /* waits for its PREFIX */
    UCX_MSG_PREFIX, /* waits for its PARTED */
};

struct ucx_msg {
    struct pst_msg base;
    enum ucx_msg_kind kind;
    struct pst_list link; /* port->msgs_free or port->msgs_live */
    struct pst_event_node node;
    ucp_ep_h ep;         /* of a bulk message: what it is forgotten with */
    uint64_t number;     /* joins the halves */
    void *desc;          /* UCX's hold on the data or on the announcement; NULL when there is none */
    uint8_t *header_big; /* PST_NET_HEADER_BYTES_MAX, allocated when first needed, kept */
    uint8_t header_small[UCX_HEADER_SMALL];
};

static inline struct ucx_msg *ucx_msg_cast(void *arg)
{
    struct pst_msg *msg = arg;

    pst_assert(msg->magic == PST_MSG_MAGIC);
    return pst_container_of(msg, struct ucx_msg, base);
}

int ucx_messages_open(struct ucx_port *port);
/* Lets go of what UCX holds for messages, and of those that nobody has polled. */
void ucx_messages_release(struct ucx_port *port);
void ucx_messages_close(struct ucx_port *port);
/* The endpoint is about to end: lets go of what it announced and nobody has received. */
void ucx_messages_drop(struct ucx_port *port, ucp_ep_h ep);
int ucx_msg_receive(struct pst_msg *base, const struct iovec *iov, int iov_count, void *arg);
void ucx_msg_free(struct pst_msg *base);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* peer.h: an endpoint, and the sends that wait until its way is open. */
#ifndef PST_UCX_PEER_H
#define PST_UCX_PEER_H

#include "net/net_priv.h"

#include <ucp/api/ucp.h>

struct ucx_port;

struct ucx_peer {
    struct pst_peer base;
    struct pst_list link;    /* a bucket of port->peers */
    ucp_ep_h ep;             /* NULL once closed */
    bool lost;               /* UCX reported it */
    bool wired;              /* something was sent: the way is open */
    bool opening;            /* UCX will say when it is */
    struct pst_list held;    /* sends that wait for that */
    struct pst_list opened;  /* port->opened, when it has and they can go */
    bool asked;              /* the endpoints know each other, or are about to */
    uint64_t close_ns;       /* closing, not wired: when at the latest */
    struct pst_list parting; /* port->parting until then */
    bool gone;               /* its last event is queued */
    uint32_t ops_count;      /* underway at UCX */
    struct pst_event_node node_lost, node_gone;
    bool lane_known, gathers, direct;
    char lane[24];
};

static inline struct ucx_peer *ucx_peer_cast(void *arg)
{
    struct pst_peer *peer = arg;

    pst_assert(peer->magic == PST_PEER_MAGIC);
    return pst_container_of(peer, struct ucx_peer, base);
}

int ucx_peer_open(struct pst_port *base, const void *address, size_t bytes, void *ctx, struct pst_peer **out);
void ucx_peer_close(struct pst_peer *base);
void ucx_peer_close_now(struct ucx_peer *peer);
/* UCX has told, or will not tell any more, whether the way is open. */
void ucx_peer_opened(struct ucx_peer *peer, bool well);
/* Sends what waited for ways that are open now. */
void ucx_peers_begin(struct ucx_port *port);
/* Closes those whose close has waited long enough, or @all. */
void ucx_peers_part(struct ucx_port *port, bool all);
const char *ucx_peer_lane(struct pst_peer *base);
bool ucx_peer_direct(struct pst_peer *base);
bool ucx_peer_gathers(struct pst_peer *base);
int ucx_peer_send(struct pst_peer *base, struct pst_bytes header, struct pst_bytes data, void *arg);
int ucx_peer_send_bulk(struct pst_peer *base, struct pst_bytes header, const struct iovec *iov, int iov_count,
                       void *arg);
struct ucx_peer *ucx_peer_find(struct ucx_port *port, ucp_ep_h ep);
/* Queues PST_NET_PEER_GONE once the peer is closed and none of its operations is left. */
void ucx_peer_settle(struct ucx_peer *peer);
/* Takes it off its port and frees it. */
void ucx_peer_forget(struct ucx_peer *peer);

#endif

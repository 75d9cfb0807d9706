/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ucx_priv.h: the objects of the UCX transport. Included by files of ucx/ only: no UCX type leaves them.
 *
 * One worker a port, one endpoint a peer. UCX's callbacks run inside of ucp_worker_progress() and of the
 * calls that we make, and do one thing: they queue an event. Each operation, message and peer carries its own
 * event.
 */
#ifndef PST_UCX_PRIV_H
#define PST_UCX_PRIV_H

#include "net/net_priv.h"
#include "net/ucx/address.h"
#include "net/ucx/message.h"
#include "net/ucx/op.h"
#include "net/ucx/peer.h"
#include "net/ucx/version.h"

#include <ucp/api/ucp.h>

enum {
    UCX_PACKS = 8,     /* staging buffers of PST_NET_PACK_BYTES_MAX a port */
    UCX_MSG_SLAB = 64, /* messages allocated at a time */
    UCX_PROGRESS_ROUNDS = 64,
    UCX_PARTING_MS = 250, /* how long an endpoint that is not wired waits for its peer's death */
    UCX_DRAIN_MS = 5000,  /* how long a closing port waits for its operations */
    UCX_DRAIN_ENDABLE_MS = 250,
    UCX_PEER_BUCKETS = 256,
};

/* Shared by the process's nets that confine it alike. */
struct ucx_context {
    struct pst_list link;
    uint32_t refs;
    bool loopback_only, serves;
    _Atomic bool stuck; /* a port could not be drained: its worker still stands on the context */
    ucp_context_h context;
    char devices[];
};

struct ucx_net {
    struct pst_net base;
    struct ucx_context *shared;
};

struct ucx_port {
    struct pst_port base;
    ucp_worker_h worker; /* NULL: abandoned */
    int fd;
    uint32_t ops_max;
    struct ucx_op *ops; /* ops_max */
    struct pst_list ops_free, ops_live;
    struct pst_list msgs_free, msgs_live;
    struct pst_list slabs;
    uint32_t halves_count; /* live messages that wait for their other half */
    struct ucx_address_form form;
    size_t header_direct_max; /* user header that fits into every lane's first packet */
    uint64_t parted_number;
    struct pst_list peers[UCX_PEER_BUCKETS]; /* by endpoint */
    struct pst_list parting;                 /* closing peers that are not wired yet */
    struct pst_list opened;                  /* peers whose first sends can go */
    void *packs[UCX_PACKS];
    uint32_t packs_used; /* bit per staging buffer */
};

static inline struct ucx_net *ucx_net_cast(struct pst_net *net)
{
    pst_assert(net->magic == PST_NET_MAGIC);
    pst_assert(net->ops == &pst_net_ucx);
    return pst_container_of(net, struct ucx_net, base);
}

static inline struct ucx_port *ucx_port_cast(void *arg)
{
    struct pst_port *port = arg;

    pst_assert(port->magic == PST_PORT_MAGIC);
    pst_assert(port->net->ops == &pst_net_ucx);
    return pst_container_of(port, struct ucx_port, base);
}

/* context.c */
int ucx_errno(ucs_status_t status);

/* settings.c: UCX's configuration for @options. Return: 0; -ELIBBAD this UCX cannot be used, as the fault
 * says; -errno. */
int ucx_settings_make(const struct pst_net_options *options, ucp_config_t **out);

/* port.c */
int ucx_port_open(struct pst_net *net, uint32_t events_max, struct pst_port **out);
void ucx_port_close(struct pst_port *base);
void ucx_port_abandon(struct pst_port *base);
int ucx_port_address(struct pst_port *base, bool network_only, void *buf, size_t cap);
void ucx_port_progress(struct pst_port *base);
void ucx_port_taken(struct pst_port *base, struct pst_event_node *node);
int ucx_port_fd(struct pst_port *base);
int ucx_port_arm(struct pst_port *base);

/* sockets.c: this thread polls a port that serves, from now on, or no more. */
void ucx_sockets_answering(bool now);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net_priv.h: what the transports share: the heads of their objects, the queue of events, and the table that
 * net.c dispatches through. Every transport's object begins with the head that is declared here.
 */
#ifndef PST_NET_PRIV_H
#define PST_NET_PRIV_H

#include "base/base.h"
#include "base/list.h"
#include "net/net.h"

enum {
    PST_NET_MAGIC = 0x7e7e0001,
    PST_PORT_MAGIC = 0x7e7e0002,
    PST_PEER_MAGIC = 0x7e7e0003,
    PST_MSG_MAGIC = 0x7e7e0004,
};

/* An event with its place in the queue. It lives in the object that it is about, so queueing one cannot fail.
 */
struct pst_event_node {
    struct pst_list link;
    struct pst_net_event event;
};

/* What a transport does; net.c has checked sizes and magics before. Contracts: net.h, function of the same
 * name. */
struct pst_net_ops {
    const char *name;
    void (*net_close)(struct pst_net *net);
    /* Both NULL: all memory is alike. */
    int (*net_register)(struct pst_net *net, void *addr, size_t bytes, void **out_handle);
    void (*net_unregister)(struct pst_net *net, void *handle);
    int (*port_open)(struct pst_net *net, uint32_t events_max, struct pst_port **out);
    void (*port_close)(struct pst_port *port);
    void (*port_abandon)(struct pst_port *port); /* NULL: what is closed always ends */
    int (*port_address)(struct pst_port *port, bool network_only, void *buf, size_t cap);
    /* Works until there is an event in the queue or nothing more to do; bounded rounds. */
    void (*port_progress)(struct pst_port *port);
    /* @node's event was handed out: its carrier may be used again, or ends here. */
    void (*port_taken)(struct pst_port *port, struct pst_event_node *node);
    int (*port_fd)(struct pst_port *port);
    int (*port_arm)(struct pst_port *port);
    int (*peer_open)(struct pst_port *port, const void *address, size_t bytes, void *ctx,
                     struct pst_peer **out);
    void (*peer_close)(struct pst_peer *peer);
    const char *(*peer_lane)(struct pst_peer *peer);
    bool (*peer_direct)(struct pst_peer *peer);
    bool (*peer_gathers)(struct pst_peer *peer);
    int (*peer_send)(struct pst_peer *peer, struct pst_bytes header, struct pst_bytes data, void *arg);
    int (*peer_send_bulk)(struct pst_peer *peer, struct pst_bytes header, const struct iovec *iov,
                          int iov_count, void *arg);
    int (*msg_receive)(struct pst_msg *msg, const struct iovec *iov, int iov_count, void *arg);
    void (*msg_free)(struct pst_msg *msg);
};

struct pst_net {
    uint32_t magic;
    uint32_t port_count;
    const struct pst_net_ops *ops;
};

struct pst_port {
    uint32_t magic;
    uint32_t ready_count;
    struct pst_net *net;
    struct pst_list ready; /* pst_event_node, oldest first */
};

struct pst_peer {
    uint32_t magic;
    bool closing; /* pst_peer_close() was called */
    struct pst_port *port;
    void *ctx;
};

struct pst_msg {
    uint32_t magic;
    struct pst_port *port;
    size_t bulk_bytes; /* announced; 0 for an eager message */
};

extern const struct pst_net_ops pst_net_ucx, pst_net_stream;

/* Before any of UCX is called: 0, or -ELIBACC where it was to be loaded and is not there, or never is. */
int pst_ucx_load(void);
/* What that means. */
const char *pst_ucx_load_fault(void);
/* Of this thread's last -ELIBBAD: UCX's version, and the setting that it does not take. */
const char *ucx_settings_fault(void);
/* The UCX transport's part of pst_net_open(). */
int pst_ucx_open(const struct pst_net_options *options, struct pst_net **out);
/* The stream's. */
int pst_stream_open(const struct pst_net_options *options, struct pst_net **out);

#ifdef PST_FAULTS_ON
extern const struct pst_net_ops pst_net_memory;

/* The same of the transport in memory; @chance: see inproc.h, empty: as it is. */
int pst_mem_open(const char *chance, struct pst_net **out);
#endif

static inline void pst_port_ready(struct pst_port *port, struct pst_event_node *node)
{
    pst_assert(pst_list_empty(&port->ready) == (port->ready_count == 0));
    pst_assert(port->magic == PST_PORT_MAGIC);
    pst_assert(pst_list_empty(&node->link));
    pst_list_push_back(&port->ready, &node->link);
    port->ready_count++;
}

/* Takes an event back that nobody has seen yet; harmless when it is not queued. */
static inline void pst_port_unready(struct pst_port *port, struct pst_event_node *node)
{
    if (pst_list_empty(&node->link))
        return;
    pst_assert(port->ready_count > 0);
    pst_list_remove(&node->link);
    port->ready_count--;
}

/* Sum of the pieces. Return: false when it overflows. */
bool pst_iov_total(const struct iovec *iov, int iov_count, size_t *total);

#endif

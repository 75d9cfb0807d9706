/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inproc_priv.h: the objects of the transport in memory. One lock for all of them: what one thread lends,
 * another copies from, and who closes must be sure that nobody still does.
 */
#ifndef PST_MEM_PRIV_H
#define PST_MEM_PRIV_H

#include "net/inproc.h"
#include "net/net_priv.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    MEM_OP_MAGIC = 0x7e7e0030,
    MEM_WINDOW = 64, /* messages in a port's inbox beyond which senders' data is lent, not copied */
    MEM_ROUNDS = 64,
};

enum mem_kind {
    MEM_EAGER,
    MEM_BULK,
    MEM_ENDED, /* to the sender: its bytes have been taken, or never will be */
    MEM_COPY,  /* to the receiver itself: now the bytes arrive */
    MEM_CUT,   /* to itself: a peer's close takes effect */
};

/* The bytes that a sender lends until its send has ended. */
struct mem_transfer {
    uint32_t holders;
    struct mem_op *op; /* the sender's; NULL once it has ended: the bytes are its owner's again */
    uint32_t copies;   /* of the announcement that may still be answered */
    uint64_t hold_ns;
    bool taken; /* one of them was */
    bool lost;  /* the bytes do not arrive */
};

struct mem_packet {
    struct pst_list link; /* port->inbox, by time */
    uint64_t due_ns;
    enum mem_kind kind;
    int status;                    /* ENDED */
    uint64_t from;                 /* the sender's port */
    struct mem_transfer *transfer; /* NULL: eager data is in here */
    struct mem_op *op;             /* COPY: the receive */
    struct mem_peer *peer;         /* CUT */
    size_t header_bytes, data_bytes;
    uint8_t bytes[];
};

/* A send or a receive that is underway, or whose event waits for a poll. */
struct mem_op {
    uint32_t magic;
    int iov_count;
    struct pst_list link; /* port->ops_free or ->ops_live */
    struct pst_event_node node;
    struct mem_port *port;
    struct mem_peer *peer; /* whose end waits for this */
    uint64_t from;         /* of a receive: the sender's port */
    struct iovec *iov;
    struct mem_transfer *transfer;
    struct mem_packet *copy; /* of a receive */
};

struct mem_msg {
    struct pst_msg base;
    struct pst_list link; /* port->msgs */
    struct pst_event_node node;
    uint64_t from;
    struct mem_transfer *transfer; /* of a bulk message; NULL when its peer was closed */
    uint8_t bytes[];
};

struct mem_peer {
    struct pst_peer base;
    struct pst_list link; /* port->peers */
    uint64_t to;
    uint64_t stream, number; /* of its messages */
    uint64_t last_due_ns;
    uint32_t ops_count;
    bool doomed; /* the other port has closed */
    bool lost;   /* and that was told */
    bool cut;    /* its close has taken effect: nothing touches its operations' memory any more */
    bool gone;
    struct pst_event_node node_lost, node_gone;
};

struct mem_port {
    struct pst_port base;
    uint64_t id;
    struct pst_list all; /* every port of the process */
    int fd;              /* a timer: the next packet's time */
    bool armed;
    _Atomic uint32_t pending; /* packets and other news, so that a poll need not take the lock */
    uint32_t inbox_count;
    uint32_t peers_opened;
    struct pst_list inbox;
    uint32_t ops_max;
    struct mem_op *ops;
    struct pst_list ops_free, ops_live;
    struct pst_list msgs, peers;
};

static inline struct mem_port *mem_port_cast(struct pst_port *port)
{
    pst_assert(port->magic == PST_PORT_MAGIC);
    pst_assert(port->net->ops == &pst_net_memory);
    return pst_container_of(port, struct mem_port, base);
}

static inline struct mem_peer *mem_peer_cast(struct pst_peer *peer)
{
    pst_assert(peer->magic == PST_PEER_MAGIC);
    pst_assert(peer->port->net->ops == &pst_net_memory);
    return pst_container_of(peer, struct mem_peer, base);
}

static inline struct mem_msg *mem_msg_cast(struct pst_msg *msg)
{
    pst_assert(msg->magic == PST_MSG_MAGIC);
    pst_assert(msg->port->net->ops == &pst_net_memory);
    return pst_container_of(msg, struct mem_msg, base);
}

/* port.c */
void mem_lock(void);
void mem_unlock(void);
/* All of these with the lock held. */
struct mem_port *mem_port_find(uint64_t id);
/* Hands @packet over, to arrive at @due_ns. */
void mem_post(struct mem_port *port, struct mem_packet *packet, uint64_t due_ns);
void mem_post_news(struct mem_port *port);
/* Takes a packet back before it has arrived. */
void mem_unpost(struct mem_port *port, struct mem_packet *packet);

/* peer.c */
int mem_peer_open(struct pst_port *base, const void *address, size_t bytes, void *ctx, struct pst_peer **out);
void mem_peer_close(struct pst_peer *base);
void mem_peer_cut(struct mem_peer *peer);
void mem_peer_forget(struct mem_peer *peer);
const char *mem_peer_lane(struct pst_peer *base);
bool mem_peer_direct(struct pst_peer *base);
bool mem_peer_gathers(struct pst_peer *base);
int mem_peer_send(struct pst_peer *base, struct pst_bytes header, struct pst_bytes data, void *arg);
int mem_peer_send_bulk(struct pst_peer *base, struct pst_bytes header, const struct iovec *iov, int iov_count,
                       void *arg);
/* The other port has closed: queues the event. */
void mem_peer_lose(struct mem_peer *peer);
void mem_address_write(const struct mem_port *port, bool network_only, void *buf);
size_t mem_address_bytes(bool network_only);

/* op.c */
struct mem_op *mem_op_take(struct mem_port *port, enum pst_net_kind kind, const struct iovec *iov,
                           int iov_count, void *arg);
void mem_op_give(struct mem_op *op);
void mem_op_start(struct mem_op *op, struct mem_peer *peer);
void mem_op_end(struct mem_op *op, int status);
struct mem_transfer *mem_transfer_hold(struct mem_transfer *transfer);
void mem_transfer_drop(struct mem_transfer *transfer);
struct mem_packet *mem_packet_new(enum mem_kind kind, struct pst_bytes header, struct pst_bytes data,
                                  struct mem_transfer *transfer);
void mem_packet_free(struct mem_packet *packet);
/* Tells the sender that its bytes are its own again. */
void mem_transfer_end(struct mem_transfer *transfer, int status, uint64_t now_ns);

/* message.c */
void mem_deliver(struct mem_port *port, struct mem_packet *packet, uint64_t now_ns);
int mem_msg_receive(struct pst_msg *base, const struct iovec *iov, int iov_count, void *arg);
void mem_msg_free(struct pst_msg *base);
void mem_msg_drop(struct mem_msg *msg);

/* chance.c */
struct mem_fate {
    bool drop, dup, reorder, lost;
    uint64_t delay_ns;  /* of the message */
    uint64_t behind_ns; /* on top: of its copy, or of one that is overtaken */
    uint64_t hold_ns;   /* of its bytes, and of its sender's being told */
};
struct mem_fate mem_fate(struct mem_peer *peer);
/* Whether data is lent even where it could be copied, and a close takes its time. */
bool mem_chance_slow(void);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream_priv.h: what is behind the frames of the stream: messages, peers and ports.
 *
 * A peer has one channel. Frames leave in the order of their queueing, and a long bulk message leaves in
 * several of BODY, so that what is queued behind it waits for one of them at most. What comes is read into
 * where it belongs, as soon as the head has told where that is.
 */
#ifndef PST_STREAM_PRIV_H
#define PST_STREAM_PRIV_H

#include "net/stream.h"
#include "net/stream/channel.h"
#include "net/stream/op_priv.h"

#include <sys/socket.h>

enum {
    STREAM_COPY_BYTES_MAX = 2048,        /* eager data up to this is copied, and its send has ended */
    STREAM_QUEUED_BYTES_MAX = 256 << 10, /* copied for a peer that takes nothing; then data is borrowed */
    STREAM_MSGS_MAX = 1024,              /* of one peer that nobody has freed: then its channel is not read */
    STREAM_MSG_BYTES_MAX = 8 << 20,
    STREAM_SCRATCH_BYTES = 64 << 10,
    STREAM_PREFACE_BYTES_MAX = 256,
    STREAM_HOST_BYTES_MAX = 256, /* with its end */
};

struct stream_msg {
    struct pst_msg base;
    struct pst_list link; /* peer->msgs, or port->orphans */
    struct pst_event_node node;
    struct stream_peer *peer; /* NULL: its channel has ended */
    uint64_t id;              /* of a bulk message: the sender's operation */
    uint32_t bytes_count;
    struct stream_out answer;
    struct stream_head answer_head;
    uint8_t bytes[];
};

enum stream_peer_state {
    STREAM_PEER_WAITS, /* for a channel */
    STREAM_PEER_DIALS,
    STREAM_PEER_STARTS, /* the channel's own handshake */
    STREAM_PEER_UP,
    STREAM_PEER_OVER, /* its channel has ended */
};

/* What is being read. */
struct stream_in {
    struct stream_head head;
    uint32_t head_bytes; /* of head that have come; all of them: what follows goes to msg or op */
    struct stream_msg *msg;
    uint32_t msg_done;
    struct stream_op *op;
    uint32_t body_left; /* for op */
};

struct stream_peer {
    struct pst_peer base;
    enum stream_peer_state state;
    struct pst_list link;   /* port->peers */
    struct pst_list turn;   /* port->turns: has something to do that no descriptor tells of */
    struct pst_list change; /* port->changes: epoll is to watch for something else */
    struct stream_channel *channel;
    uint32_t watched; /* by epoll */
    bool blocked;     /* the channel took no more */
    bool rests;       /* not read: too much of it is held, or too much waits for it to take it */
    bool wrote;       /* since the last progress */
    struct pst_list outs, ops, msgs;
    size_t queued_bytes; /* copied ones */
    uint32_t msg_count;
    size_t msg_bytes;
    uint32_t receives, eagers; /* of ops: those in STREAM_OP_RECEIVES, and in STREAM_OP_EAGER */
    struct stream_in in;
    const char *lane;
    struct sockaddr_storage to; /* DIALS */
    socklen_t to_bytes;
    struct stream_letter *preface; /* to be sealed before it leaves; NULL: nothing is */
    struct pst_event_node node_lost, node_gone;
};

struct stream_net {
    struct pst_net base;
    int (*wrap)(void *ctx, int fd, const char *host, struct stream_channel **out);
    void *wrap_ctx;
    int (*seal)(const struct stream_channel *channel, void *preface, size_t bytes);
};

struct stream_port {
    struct pst_port base;
    int epoll_fd;
    bool armed;
    bool busy; /* the last progress brought events: the owner does something about them, and polls again */
    uint32_t channel_count; /* of its peers */
    struct pst_list peers, turns, changes, orphans;
    uint32_t ops_max, ops_used; /* used: from here on never taken */
    struct stream_op *ops;
    struct pst_list ops_free;
    uint8_t scratch[STREAM_SCRATCH_BYTES];
};

static inline struct stream_net *stream_net_cast(struct pst_net *net)
{
    pst_assert(net->magic == PST_NET_MAGIC);
    pst_assert(net->ops == &pst_net_stream);
    return pst_container_of(net, struct stream_net, base);
}

static inline struct stream_port *stream_port_cast(struct pst_port *port)
{
    pst_assert(port->magic == PST_PORT_MAGIC);
    pst_assert(port->net->ops == &pst_net_stream);
    return pst_container_of(port, struct stream_port, base);
}

static inline struct stream_peer *stream_peer_cast(struct pst_peer *peer)
{
    pst_assert(peer->magic == PST_PEER_MAGIC);
    pst_assert(peer->port->net->ops == &pst_net_stream);
    return pst_container_of(peer, struct stream_peer, base);
}

static inline struct stream_msg *stream_msg_cast(struct pst_msg *msg)
{
    pst_assert(msg->magic == PST_MSG_MAGIC);
    pst_assert(msg->port->net->ops == &pst_net_stream);
    return pst_container_of(msg, struct stream_msg, base);
}

static inline struct stream_port *stream_port_of(const struct stream_peer *peer)
{
    return stream_port_cast(peer->base.port);
}

/* in.c */

/* Has the peer rest, or ends that, by what is held of it and what it has not taken. */
void stream_in_weigh(struct stream_peer *peer);
/* Reads once. Return: whether there was anything. */
bool stream_in_read(struct stream_peer *peer);
/* Bytes that somebody else has read from the channel. */
void stream_in_parse(struct stream_peer *peer, const uint8_t *data, size_t bytes);
int stream_msg_receive(struct pst_msg *base, const struct iovec *iov, int iov_count, void *arg);
void stream_msg_free(struct pst_msg *base);
/* The messages of a channel that has ended may only be freed, or received in vain. */
void stream_msgs_orphan(struct stream_peer *peer);

/* peer.c */

/* The head of every address: one that waits is no longer than this. */
struct stream_address {
    char magic[8];
    uint32_t kind;
    uint32_t to_bytes, host_bytes, preface_bytes; /* of what is behind it, of one that dials */
};

int stream_peer_open(struct pst_port *base, const void *address, size_t bytes, void *ctx,
                     struct pst_peer **out);
void stream_peer_close(struct pst_peer *base);
void stream_peer_free(struct stream_peer *peer);
const char *stream_peer_lane(struct pst_peer *base);
bool stream_peer_gathers(struct pst_peer *base);
bool stream_peer_direct(struct pst_peer *base);
int stream_peer_send(struct pst_peer *base, struct pst_bytes header, struct pst_bytes data, void *arg);
int stream_peer_send_bulk(struct pst_peer *base, struct pst_bytes header, const struct iovec *iov,
                          int iov_count, void *arg);
/* Its channel has failed, or what came over it was wrong: -EPROTO. */
void stream_peer_lose(struct stream_peer *peer, int error);
/* It dials or starts: a step further. Return: whether anything happened. */
bool stream_peer_step(struct stream_peer *peer);
/* Asks for a turn at the next progress. */
void stream_peer_turn(struct stream_peer *peer);
/* What epoll is to watch may have changed. */
void stream_peer_changed(struct stream_peer *peer);
/* Return: what epoll is to watch. */
uint32_t stream_peer_wants(const struct stream_peer *peer);
void stream_address_write(struct stream_address *address);

#endif

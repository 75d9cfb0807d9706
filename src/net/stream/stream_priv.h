/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream_priv.h: frames of our own over byte channels, and the objects behind them.
 *
 * A frame, little-endian like everything in it:
 *
 *   0      1      2              4            8      16      24
 *   +------+------+--------------+------------+------+-------+----------------+--------------+
 *   | type | zero | header_bytes | body_bytes | id   | value | header         | body         |
 *   | u8   | u8   | u16          | u32        | u64  | u64   | header_bytes B | body_bytes B |
 *   +------+------+--------------+------------+------+-------+----------------+--------------+
 *
 *   1 EAGER    header and body are the message; id and value 0
 *   2 BULK     announces a bulk message: its header; id: the sender's operation, value: the total
 *   3 GO       answers BULK: id as there, value: the receiver's operation
 *   4 REFUSED  answers BULK: id as there; none of its bytes are wanted
 *   5 BODY     the next bytes of a bulk message; id: the receiver's operation
 *
 * A peer has one channel. Frames leave in the order of their queueing, and a long bulk message leaves in
 * several of BODY, so that what is queued behind it waits for one of them at most. What comes is read into
 * where it belongs, as soon as the head has told where that is.
 */
#ifndef PST_STREAM_PRIV_H
#define PST_STREAM_PRIV_H

#include "net/net_priv.h"
#include "net/stream.h"
#include "net/stream/channel.h"

#include <sys/socket.h>

enum {
    STREAM_OP_MAGIC = 0x7e7e0041,
    STREAM_HEAD_BYTES = 24,
    STREAM_BODY_BYTES_MAX = 1 << 20,     /* of one BODY */
    STREAM_COPY_BYTES_MAX = 2048,        /* eager data up to this is copied, and its send has ended */
    STREAM_QUEUED_BYTES_MAX = 256 << 10, /* copied for a peer that takes nothing; then data is borrowed */
    STREAM_MSGS_MAX = 1024,              /* of one peer that nobody has freed: then its channel is not read */
    STREAM_MSG_BYTES_MAX = 8 << 20,
    STREAM_SCRATCH_BYTES = 64 << 10,
    STREAM_PREFACE_BYTES_MAX = 256,
    STREAM_HOST_BYTES_MAX = 256, /* with its end */
};

#define STREAM_BULK_BYTES_MAX (1ull << 46)

enum stream_type { STREAM_EAGER = 1, STREAM_BULK, STREAM_GO, STREAM_REFUSED, STREAM_BODY };

struct stream_head {
    uint8_t type;
    uint8_t zero;
    uint16_t header_bytes;
    uint32_t body_bytes;
    uint64_t id;
    uint64_t value;
};

_Static_assert(sizeof(struct stream_head) == STREAM_HEAD_BYTES, "a head is as it is drawn");
_Static_assert(PST_NET_HEADER_BYTES_MAX <= UINT16_MAX, "a header's length fits");

struct stream_op;
struct stream_peer;

/* A frame on its way out. Its front is its head and what of it was copied; then come bytes of the operation.
 */
struct stream_out {
    struct pst_list link; /* peer->outs */
    const uint8_t *front;
    uint32_t front_bytes, front_done;
    struct stream_op *op; /* NULL: no bytes but the front's */
    size_t body_left;
    void (*written)(struct stream_out *out); /* all of it */
    void (*dropped)(struct stream_out *out); /* the channel has ended before */
};

/* A frame that owns its front. */
struct stream_letter {
    struct stream_out out;
    struct stream_peer *peer;
    uint8_t front[];
};

enum stream_op_state {
    STREAM_OP_FREE,
    STREAM_OP_EAGER,     /* its frame is queued */
    STREAM_OP_ANNOUNCED, /* its BULK is queued, or awaits an answer */
    STREAM_OP_SENDS,
    STREAM_OP_RECEIVES,
    STREAM_OP_ENDED, /* its event awaits a poll */
};

/* A send or a receive that is underway, or whose event waits for a poll. */
struct stream_op {
    uint32_t magic;
    uint32_t use; /* counts: tells an operation from the one before in its place */
    enum stream_op_state state;
    bool quiet;           /* ends without an event: the call that began it tells */
    struct pst_list link; /* port->ops_free, peer->ops */
    struct pst_event_node node;
    struct stream_port *port;
    struct stream_peer *peer;
    struct iovec *iov; /* ours, or one */
    struct iovec one;
    int iov_count, iov_at;
    size_t iov_done;       /* of iov[iov_at] */
    size_t left;           /* bytes that have not moved yet */
    struct stream_out out; /* BODY */
    struct stream_head head;
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
    bool rests;       /* not read: too much of it is held */
    bool wrote;       /* since the last progress */
    struct pst_list outs, ops, msgs;
    size_t queued_bytes; /* copied ones */
    uint32_t msg_count;
    size_t msg_bytes;
    uint32_t receives;
    struct stream_in in;
    const char *lane;
    struct sockaddr_storage to; /* DIALS */
    socklen_t to_bytes;
    struct pst_event_node node_lost, node_gone;
};

struct stream_net {
    struct pst_net base;
    int (*wrap)(void *ctx, int fd, const char *host, struct stream_channel **out);
    void *wrap_ctx;
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
    pst_assert(net->magic == PST_NET_MAGIC && net->ops == &pst_net_stream);
    return pst_container_of(net, struct stream_net, base);
}

static inline struct stream_port *stream_port_cast(struct pst_port *port)
{
    pst_assert(port->magic == PST_PORT_MAGIC && port->net->ops == &pst_net_stream);
    return pst_container_of(port, struct stream_port, base);
}

static inline struct stream_peer *stream_peer_cast(struct pst_peer *peer)
{
    pst_assert(peer->magic == PST_PEER_MAGIC && peer->port->net->ops == &pst_net_stream);
    return pst_container_of(peer, struct stream_peer, base);
}

static inline struct stream_msg *stream_msg_cast(struct pst_msg *msg)
{
    pst_assert(msg->magic == PST_MSG_MAGIC && msg->port->net->ops == &pst_net_stream);
    return pst_container_of(msg, struct stream_msg, base);
}

static inline struct stream_port *stream_port_of(const struct stream_peer *peer)
{
    return stream_port_cast(peer->base.port);
}

/* frame.c: pure. */

/* Whether the head may be one. Return: 0 or -EPROTO. */
int stream_head_check(const struct stream_head *head);

/* op.c */

/* Copies @iov. Return: NULL when there are too many, or no memory. */
struct stream_op *stream_op_take(struct stream_port *port, enum pst_net_kind kind, const struct iovec *iov,
                                 int iov_count, void *arg);
void stream_op_give(struct stream_op *op);
void stream_op_start(struct stream_op *op, struct stream_peer *peer, enum stream_op_state state);
/* From here on nobody touches the memory that the operation was given. */
void stream_op_end(struct stream_op *op, int status);
uint64_t stream_op_id(const struct stream_op *op);
/* The peer's operation that is in this state and has this number. NULL: there is none. */
struct stream_op *stream_op_find(struct stream_peer *peer, uint64_t id, enum stream_op_state state);
/* The next pieces of the operation's bytes, @bytes at the most. Return: pieces; *@bytes: theirs. */
int stream_op_pieces(const struct stream_op *op, size_t *bytes, struct iovec *iov, int iov_max);
/* So many more have moved. */
void stream_op_advance(struct stream_op *op, size_t bytes);
/* Copies bytes to where they belong, and moves on. */
void stream_op_fill(struct stream_op *op, const uint8_t *from, size_t bytes);

/* out.c */

/* Queues a frame; what the caller gave to fill is in it. */
void stream_out_push(struct stream_peer *peer, struct stream_out *out);
/* Return: a frame of these bytes, or NULL without memory. */
struct stream_letter *stream_letter_new(struct stream_peer *peer, struct pst_bytes head,
                                        struct pst_bytes header, struct pst_bytes data);
/* Writes what the channel takes; a few rounds. */
void stream_out_flush(struct stream_peer *peer);
/* Lets the frames that are queued go out: at once, unless some have gone at once since the last progress, and
 * the next one is near. */
void stream_out_hurry(struct stream_peer *peer);
void stream_outs_drop(struct stream_peer *peer);
/* The receiver wants the bytes, under this number. */
void stream_body_begin(struct stream_op *op, uint64_t to);

/* in.c */

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

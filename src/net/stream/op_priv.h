/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_priv.h: sends and receives of the stream, and their frames on their way out. Of the port's thread.
 */
#ifndef PST_STREAM_OP_PRIV_H
#define PST_STREAM_OP_PRIV_H

#include "net/net_priv.h"
#include "net/stream/frame_priv.h"

enum { STREAM_OP_MAGIC = 0x7e7e0041 };

struct stream_op;
struct stream_peer;
struct stream_port;

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

#endif

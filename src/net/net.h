/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net.h: moving bytes between processes. Knows no message layout and shows no transport type.
 *
 * A *net* is a process's transport context. A *port* is one thread's part of it: it sends, receives and
 * polls, and is used by one thread at a time. A *peer* is a port's connection to another port, made from the
 * address bytes that the bootstrap socket exchanged. Two kinds of message: *eager* ones arrive whole, with
 * the header in front; *bulk* ones announce themselves with their header and total, and the receiver then
 * says where the bytes go.
 *
 * Nothing is called back: everything that happens is an event that pst_port_poll() returns, in the order
 * of its happening. Buffers given to a send or a receive stay borrowed until its event has been polled.
 */
#ifndef PST_NET_H
#define PST_NET_H

#include "base/base.h"

#include <sys/uio.h>

struct pst_net;
struct pst_port;
struct pst_peer;
struct pst_msg;
struct stream_channel;

enum {
    PST_NET_HEADER_BYTES_MAX = 4096,     /* header of a message */
    PST_NET_EAGER_BYTES_MAX = 128 << 10, /* data of an eager message; larger data goes by bulk */
    PST_NET_BULK_IOV_MAX = 1024,         /* pieces of one bulk send or receive */
    PST_NET_PACK_BYTES_MAX = 256 << 10,  /* a bulk send of several pieces holds this much at the most */
    PST_NET_ADDRESS_BYTES_MAX = 2048,
};

enum pst_net_transport {
    PST_NET_UCX,
    PST_NET_STREAM, /* frames of our own over sockets: stream.h */
};

struct pst_net_options {
    enum pst_net_transport transport;
    bool loopback_only; /* confine the transport to the loopback device */
    bool serves; /* a node's: what it connects, it connects before it polls; of two ports that connect to each
                    other at once, on one host, the client's way stays */
    const char *devices; /* network devices to use, comma separated; NULL: the transport's choice */
    /* Of the stream: what becomes of a socket that was dialled to a host by name, which it then owns. Called
     * by any port. Return: 0 or -errno. NULL: such an address is refused. */
    int (*wrap)(void *ctx, int fd, const char *host, struct stream_channel **out);
    void *wrap_ctx;
    /* Of the stream: makes what is said first on a wrapped connection one that serves on no other. Called by
     * any port once the wrapping stands. Return: 0 or -errno. NULL: it is said as it is. */
    int (*seal)(const struct stream_channel *channel, void *preface, size_t bytes);
};

enum pst_net_kind {
    PST_NET_EAGER, /* msg, header, data: valid until pst_msg_free() */
    PST_NET_BULK,  /* msg, header, bytes: answer with pst_msg_receive() or pst_msg_free(). arg is the context
                      of the peer that it came from; NULL: nobody has opened that one here, and no
                      PST_NET_PEER_GONE will wait for what is received of it */
    PST_NET_SENT,  /* arg, status: a send ended */
    PST_NET_RECEIVED,  /* arg, status: a pst_msg_receive() ended; its msg is gone */
    PST_NET_PEER_LOST, /* arg is the peer's context: its connection failed; close it. Not told of one on this
                          host that was killed */
    PST_NET_PEER_GONE, /* arg is the peer's context: pst_peer_close() ended, all of its sends and receives
                          before it */
};

struct pst_net_event {
    enum pst_net_kind kind;
    int status; /* 0 or a negative errno: -ECANCELED closed, -ECONNRESET lost, -EMSGSIZE truncated, -EPROTO
                   the peer said what is no message, -EIO otherwise */
    void *arg;
    struct pst_msg *msg;
    struct pst_bytes header;
    struct pst_bytes data; /* BULK: data.data is NULL and data.len the total announced */
};

/* Transport of one process. Return: 0, -ENODEV no usable device, -ELIBACC no UCX, -ELIBBAD one that cannot be
 * used, -ENOMEM. */
int pst_net_open(const struct pst_net_options *options, struct pst_net **out);
/* What such a failure of this thread's last call means. */
const char *pst_net_fault(int result);
struct pst_net *pst_net_close(struct pst_net *net); /* every port closed before */

/* Memory that bulk transfers will use often: registered once with devices that want it. Return: 0 or -errno.
 */
int pst_net_register(struct pst_net *net, void *addr, size_t bytes, void **out_handle);
void pst_net_unregister(struct pst_net *net, void *handle);

/*
 * One thread's part. @events_max bounds the events that wait for a poll: when as many operations
 * are outstanding, sends and receives return -EBUSY. Return: 0 or -errno.
 */
int pst_port_open(struct pst_net *net, uint32_t events_max, struct pst_port **out);
/*
 * For a port all of whose peers are closed, when some do not go: UCX does not end a transfer with a process
 * that was killed while its shared-memory queue was full. The transport beneath the port ends here, and with
 * it all that is underway: the ends of operations and peers come with the next polls, then nothing more.
 */
void pst_port_abandon(struct pst_port *port);
/* Force-closes the peers that are left, drains, drops undelivered messages. */
struct pst_port *pst_port_close(struct pst_port *port);

/* This port's address for others; @network_only leaves shared memory out. Return: its length or -ENOSPC. */
int pst_port_address(struct pst_port *port, bool network_only, void *buf, size_t cap);

/* Makes progress and writes up to @max events. Return: their number; 0 when nothing happened. */
int pst_port_poll(struct pst_port *port, struct pst_net_event *events, int max);

/* A descriptor that becomes readable after pst_port_arm() returned 0 and something happens. */
int pst_port_fd(struct pst_port *port);
int pst_port_arm(struct pst_port *port); /* 0: sleep on the descriptor; -EAGAIN: poll again first */

/* Connects to the port whose address this is (validated by the caller's authentication). @ctx comes back in
 * events. */
int pst_peer_open(struct pst_port *port, const void *address, size_t bytes, void *ctx, struct pst_peer **out);
/* Starts a forced close; every outstanding operation ends first, then PST_NET_PEER_GONE comes and @peer is
 * gone. */
void pst_peer_close(struct pst_peer *peer);
/* The lanes in use, for people: "posix", "tcp". */
const char *pst_peer_lane(struct pst_peer *peer);
/* True where a bulk message that is received into one piece is not copied on its way: remote DMA reads it. */
bool pst_peer_direct(struct pst_peer *peer);
/* True where a bulk send may gather pieces for free; false where it copies them into one first. */
bool pst_peer_gathers(struct pst_peer *peer);

/*
 * Sends header and data as one message. @header is copied before the call returns.
 * Return: 1 done and @data is free again (no event follows), 0 underway (PST_NET_SENT with @arg follows),
 * -EBUSY too much underway, -EMSGSIZE, -ECONNRESET.
 */
int pst_peer_send(struct pst_peer *peer, struct pst_bytes header, struct pst_bytes data, void *arg);
/* The same for a bulk message; @iov itself is copied, the bytes it names are borrowed. */
int pst_peer_send_bulk(struct pst_peer *peer, struct pst_bytes header, const struct iovec *iov, int iov_count,
                       void *arg);

/*
 * Receives an announced bulk message into @iov, whose lengths sum to the total announced. @iov is copied.
 * Return: 0 underway (PST_NET_RECEIVED with @arg follows; msg is given up), -EBUSY (msg kept, try again).
 */
int pst_msg_receive(struct pst_msg *msg, const struct iovec *iov, int iov_count, void *arg);
/* Ends an eager message's life, or refuses a bulk one (its sender sees its send end). */
void pst_msg_free(struct pst_msg *msg);

#endif

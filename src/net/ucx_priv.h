/*
 * ucx_priv.h: the objects of the UCX transport. Included by ucx_*.c only: no UCX type leaves them.
 *
 * One worker a port, one endpoint a peer. UCX's callbacks run inside of ucp_worker_progress() and of the
 * calls that we make, and do one thing: they queue an event. Each operation, message and peer carries its own
 * event.
 *
 * What travels is UCX active messages:
 *
 *   id      user header                data
 *   EAGER   the header (<= 256 B)      the data
 *   JOINED  u32 header bytes           header, then data: UCX keeps data for us, its header only for the
 * callback BULK    the header                 rendezvous PARTED  u64 number                 rendezvous; its
 * header is longer than a lane's first packet and comes as PREFIX  u64 number                 the header of
 * the PARTED message of that number, in any order
 */
#ifndef PST_UCX_PRIV_H
#define PST_UCX_PRIV_H

#include "net/net_priv.h"

#include <ucp/api/ucp.h>

enum {
    UCX_OP_MAGIC = 0x7e7e0010,
    UCX_HEADER_SMALL =
        256, /* headers up to this are copied in place, longer ones need a block of their own */
    UCX_IOV_SMALL = 4,
    UCX_SHORT_BYTES = 8 << 10, /* a short packet holds what UCX puts into one of these */
    UCX_PACKS = 8,             /* staging buffers of PST_NET_PACK_BYTES_MAX a port */
    UCX_MSG_SLAB = 64,         /* messages allocated at a time */
    UCX_PROGRESS_ROUNDS = 64,
    UCX_PARTING_MS = 250, /* how long an endpoint that is not wired waits for its peer's death */
    UCX_DRAIN_MS = 5000,  /* how long a closing port waits for its operations */
    UCX_DRAIN_ENDABLE_MS = 250,
    UCX_PEER_BUCKETS = 256,
};

enum ucx_am {
    UCX_AM_EAGER = 1,
    UCX_AM_JOINED,
    UCX_AM_BULK,
    UCX_AM_PARTED,
    UCX_AM_PREFIX,
};

/* Shared by the process's nets that confine it alike. */
struct ucx_context {
    struct pst_list link;
    uint32_t refs;
    bool loopback_only, serves, short_packets;
    _Atomic bool stuck; /* a port could not be drained: its worker still stands on the context */
    ucp_context_h context;
    char devices[];
};

struct ucx_net {
    struct pst_net base;
    struct ucx_context *shared;
};

/* A send or a receive that is underway, or whose event waits for a poll. */
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

enum { UCX_LANES_KNOWN_MAX = 32 };

struct ucx_lane_form {
    uint16_t checksum; /* of the transport's name */
    uint8_t device_bytes, bytes;
    bool by_folder; /* of posix: neither a process nor a name says where the memory is */
};

/* What this side's own address has: another side's is held against it. */
struct ucx_address_form {
    bool known; /* our address reads as ucx_address.c expects; else it can judge nobody's */
    uint32_t lane_count;
    struct ucx_lane_form lanes[UCX_LANES_KNOWN_MAX];
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
    pst_assert(net->magic == PST_NET_MAGIC && net->ops == &pst_net_ucx);
    return pst_container_of(net, struct ucx_net, base);
}

static inline struct ucx_port *ucx_port_cast(void *arg)
{
    struct pst_port *port = arg;

    pst_assert(port->magic == PST_PORT_MAGIC && port->net->ops == &pst_net_ucx);
    return pst_container_of(port, struct ucx_port, base);
}

static inline struct ucx_peer *ucx_peer_cast(void *arg)
{
    struct pst_peer *peer = arg;

    pst_assert(peer->magic == PST_PEER_MAGIC);
    return pst_container_of(peer, struct ucx_peer, base);
}

static inline struct ucx_msg *ucx_msg_cast(void *arg)
{
    struct pst_msg *msg = arg;

    pst_assert(msg->magic == PST_MSG_MAGIC);
    return pst_container_of(msg, struct ucx_msg, base);
}

static inline struct ucx_op *ucx_op_cast(void *arg)
{
    struct ucx_op *op = arg;

    pst_assert(op->magic == UCX_OP_MAGIC);
    return op;
}

/* ucx_context.c */
int ucx_errno(ucs_status_t status);

/* ucx_port.c */
int ucx_port_open(struct pst_net *net, uint32_t events_max, struct pst_port **out);
void ucx_port_close(struct pst_port *base);
void ucx_port_abandon(struct pst_port *base);
int ucx_port_address(struct pst_port *base, bool network_only, void *buf, size_t cap);
void ucx_port_progress(struct pst_port *base);
void ucx_port_taken(struct pst_port *base, struct pst_event_node *node);
int ucx_port_fd(struct pst_port *base);
int ucx_port_arm(struct pst_port *base);

/* ucx_address.c: pure. */

/* Reads our own address, which @form then stands for. */
void ucx_address_learn(struct ucx_address_form *form, const void *address, size_t bytes);
/* Whether UCX can be given @address; true also when @own is not known. */
bool ucx_address_sound(const struct ucx_address_form *own, const void *address, size_t bytes);

/* ucx_numbers.c: until the release, new descriptors get numbers that those of the last port did not have. */
enum { UCX_NUMBERS_MAX = 512 };
struct ucx_numbers {
    int held[UCX_NUMBERS_MAX];
    int count;
};

void ucx_numbers_hold(struct ucx_numbers *numbers);
void ucx_numbers_release(struct ucx_numbers *numbers);

/* ucx_sockets.c: this thread polls a port that serves, from now on, or no more. */
void ucx_sockets_answering(bool now);

/* ucx_op.c: the pool of operations. */
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
/*
 * For a peer with short packets: a long last piece is cut into many. UCX copies what has more pieces than it
 * can gather, into packets of 8 KiB at the most (1.13), or puts as few into one as it can gather. Return: 0,
 * -ENOMEM.
 */
int ucx_op_shorten(struct ucx_op *op);
void ucx_op_fini(struct ucx_op *op);

/* ucx_peer.c */
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
bool ucx_peer_gathers(struct pst_peer *base);
bool ucx_peer_direct(struct ucx_peer *peer);
int ucx_peer_send(struct pst_peer *base, struct pst_bytes header, struct pst_bytes data, void *arg);
int ucx_peer_send_bulk(struct pst_peer *base, struct pst_bytes header, const struct iovec *iov, int iov_count,
                       void *arg);
struct ucx_peer *ucx_peer_find(struct ucx_port *port, ucp_ep_h ep);
/* Queues PST_NET_PEER_GONE once the peer is closed and none of its operations is left. */
void ucx_peer_settle(struct ucx_peer *peer);
/* Takes it off its port and frees it. */
void ucx_peer_forget(struct ucx_peer *peer);

/* ucx_message.c */
int ucx_messages_open(struct ucx_port *port);
/* Lets go of what UCX holds for messages, and of those that nobody has polled. */
void ucx_messages_release(struct ucx_port *port);
void ucx_messages_close(struct ucx_port *port);
/* The endpoint is about to end: lets go of what it announced and nobody has received. */
void ucx_messages_drop(struct ucx_port *port, ucp_ep_h ep);
int ucx_msg_receive(struct pst_msg *base, const struct iovec *iov, int iov_count, void *arg);
void ucx_msg_free(struct pst_msg *base);

#endif

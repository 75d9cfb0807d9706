/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handshake.h: the bootstrap socket. It authenticates a peer, and only then swaps transport addresses;
 * afterwards it carries heartbeats and tells by its end of file that the peer is gone.
 *
 * Both sides: one thread, and nothing blocks, but for the client's name service. pst_boot_server_poll()
 * drives the server, the calls below a client's link. Frames: docs/reference/protocol.md, "Bootstrap".
 */
#ifndef PST_BOOT_H
#define PST_BOOT_H

#include "net/address.h"
#include "net/net.h"

enum {
    PST_BOOT_SHARDS_MAX = 256,
    PST_BOOT_ARENAS_MAX = 64,
    PST_BOOT_SECRET_BYTES_MAX = 4096,
    PST_BOOT_SECRETS_MAX = 256,
    PST_BOOT_GRANT_BYTES_MAX = 31, /* of a grant's name */
    PST_BOOT_VERSION = 8, /* of a session, here and over the transport: the highest that both sides speak */
    PST_BOOT_VERSION_OLDEST = 8,
};

/* A client's wish. */
enum pst_boot_transport {
    PST_BOOT_AUTO,   /* UCX if both sides have it, else the stream */
    PST_BOOT_UCX,    /* or not at all */
    PST_BOOT_STREAM, /* or not at all */
};

/* What an option of that name says. NULL is "auto". Return: 0 or -EINVAL. */
int pst_boot_transport_parse(const char *text, enum pst_boot_transport *out);

/* What a node tells an authenticated client. Every port address is PST_NET_ADDRESS_BYTES_MAX at the most. */
struct pst_boot_welcome {
    uint16_t version;        /* of the session; not in the welcome itself, the frames say it */
    void *owner;             /* the node's own: of the secret that the client proved */
    uint64_t token;          /* names the session in every message; random */
    uint64_t partition_seed; /* keys the hash that maps a key to its partition */
    uint64_t page_bytes;
    uint64_t arena_bytes; /* between the starts of two arenas in the address range of views */
    uint64_t value_bytes_max;
    uint32_t shard_count;
    uint32_t arena_count; /* arena descriptors that came along: 0 unless views are possible */
    bool same_host;       /* the addresses are those for shared memory */
    char grant[PST_BOOT_GRANT_BYTES_MAX + 1]; /* what the client may do goes by this name; "": anything */
    bool stream; /* not in the welcome itself: pst_boot_link_stream_address() in place of addresses */
    struct {
        uint16_t bytes;
        uint8_t data[PST_NET_ADDRESS_BYTES_MAX];
    } shards[PST_BOOT_SHARDS_MAX];
};

/* ---- client ---- */

struct pst_boot_link;
struct pst_tls;

struct pst_boot_client_options {
    enum pst_boot_transport transport;
    struct pst_bytes secret; /* empty: none */
    struct pst_tls *tls;     /* borrowed; nothing is said outside of it over TCP; NULL: plain */
    bool network_only;       /* ask for network addresses even on the same host */
    uint32_t ucx;            /* pst_ucx_version(); 0: not told */
    uint64_t deadline_ns;    /* pst_now_ns() clock */
};

/*
 * A link to a node: pst_boot_link_welcome() until that has come, then the caller opens its port, offers its
 * address, and asks for pst_boot_link_ready() until the node has taken it. Return of all: 0, -EAGAIN not yet
 * (the two that are asked again), or, with *@fault a text that names it, valid until the thread's next link:
 * -ECONNREFUSED nothing listens, -EHOSTUNREACH no such host, -ETIMEDOUT, -EACCES wrong or missing secret or
 * certificate (either side), plain where the node wants TLS, or without a secret a unix socket that neither
 * this user nor root serves, -EPROTO not a penstock node, or no TLS, -EPROTONOSUPPORT no version in common,
 * of penstock or of TLS, no transport in common, or UCX's do not go together, -EBUSY session limit.
 */
int pst_boot_link_open(const struct pst_boot_address *address, const struct pst_boot_client_options *options,
                       struct pst_boot_link **out, const char **fault);
/* @arena_fds receives welcome->arena_count read-only descriptors, which the caller then owns. */
int pst_boot_link_welcome(struct pst_boot_link *link, struct pst_boot_welcome *welcome,
                          int arena_fds[PST_BOOT_ARENAS_MAX], const char **fault);
/* This client's port address, MACed. */
int pst_boot_link_offer(struct pst_boot_link *link, const void *address, size_t bytes, uint64_t deadline_ns);
int pst_boot_link_ready(struct pst_boot_link *link, const char **fault);
/* Of a session over the stream that is ready: an address for pst_peer_open() that leads to a shard, in TLS if
 * the link is. Return: its length, -ENOSPC, -ENOMEM. */
int pst_boot_link_stream_address(const struct pst_boot_link *link, uint32_t shard, void *buf, size_t cap);
/* Of such an address's connection in TLS: pst_net_options.seal. Return: 0, -ENOMEM. */
int pst_boot_seal_attach(const struct stream_channel *channel, void *preface, size_t bytes);
/* Until there may be more to do for either, or until then. */
void pst_boot_link_wait(const struct pst_boot_link *link, uint64_t until_ns);
/* Of a session: reads what has come and sends a heartbeat when one is due. Return: 0, -ECONNRESET the node is
 * gone, -ETIMEDOUT silent for 10 s. */
int pst_boot_link_tick(struct pst_boot_link *link, uint64_t now_ns);
int pst_boot_link_fd(struct pst_boot_link *link);
/* A duplicate of the link's descriptor, the caller's, tells the node that the process still looks at the
 * arenas, though it sends no more. */
struct pst_boot_link *pst_boot_link_close(struct pst_boot_link *link);

/* ---- server ---- */

struct pst_boot_server;

/* Who may do without TLS at a node that has it, a unix socket's clients excepted: they may always. */
enum pst_boot_plain {
    PST_BOOT_PLAIN_NOBODY,
    PST_BOOT_PLAIN_LOOPBACK, /* clients on the node's own host */
    PST_BOOT_PLAIN_ANYBODY,
};

struct pst_boot_server_options {
    struct pst_bytes secret; /* empty: none needed; pst_boot_server_secrets() for several */
    struct pst_tls *tls;     /* borrowed; NULL: everything is plain */
    enum pst_boot_plain plain;
    uint32_t sessions_max;   /* authenticated */
    uint32_t handshakes_max; /* not yet authenticated; older ones than 5 s are dropped */
    uint32_t ucx;            /* pst_ucx_version(); 0: not told */
    bool loopback_only;      /* UCX is confined to the loopback device */
    bool no_ucx;             /* sessions use the stream */
    bool stream;             /* they may; takes ops->attach() */
};

/* A connection over which a client's frames for one shard come. */
struct pst_boot_attachment {
    uint64_t token; /* of the session */
    uint32_t shard;
    struct stream_channel *channel;
    struct pst_bytes early; /* what has come over it already */
};

/* Why a peer was refused, as far as it is counted. */
enum pst_boot_refusal {
    PST_BOOT_REFUSED_SECRET,  /* missing or wrong */
    PST_BOOT_REFUSED_VERSION, /* of penstock, or of UCX */
    PST_BOOT_REFUSED_BUSY,
    PST_BOOT_REFUSED_OTHER,       /* too slow, or no client of ours */
    PST_BOOT_REFUSED_PLAIN,       /* it would do without TLS */
    PST_BOOT_REFUSED_TLS,         /* no TLS 1.3, or nothing in common */
    PST_BOOT_REFUSED_CERTIFICATE, /* none, of an unknown issuer, for another purpose */
    PST_BOOT_REFUSED_EXPIRED,     /* a certificate's time is over, or has not come */
    PST_BOOT_REFUSED_REPLAYED,    /* TLS records of another handshake, or changed ones */
    PST_BOOT_REFUSED_BY_CLIENT,   /* which does not take the node's certificate */
    PST_BOOT_REFUSALS
};

/* The node's part: called by pst_boot_server_poll() on its thread. */
struct pst_boot_server_ops {
    /*
     * A peer has authenticated: fill *@welcome, and *@fds, *@fd_count (kept open by the node) when
     * @descriptors may be sent: the peer is of the same user, namespaces and host, on a unix socket.
     * @peer: its printed address. @same_host: shared memory addresses may be given. Return: 0 or -EBUSY.
     */
    int (*welcome)(void *ctx, const char *peer, bool same_host, bool descriptors,
                   struct pst_boot_welcome *welcome, const int **fds, void **session);
    /* The peer's port address has come and was verified: sends are possible. Return: 0, 1 the peer is to wait
     * for pst_boot_server_ready(), or -errno (session ends). */
    int (*connected)(void *ctx, void *session, const void *address, size_t bytes);
    /* A session's client has opened a connection for one of its shards, and proved that. Return: 0 the
     * channel is the node's, or -errno. NULL: there is no stream. */
    int (*attach)(void *ctx, const struct pst_boot_attachment *attachment);
    /* A peer that shares memory sends no more, but its process keeps the unix socket open: it may still look
     * at what it mapped. At most once a session, before ended(); NULL: such a session has ended. */
    void (*parted)(void *ctx, void *session);
    /* The socket ended, or its host is gone. Called once per welcome that returned 0. */
    void (*ended)(void *ctx, void *session, const char *why);
    /* A peer was refused. @peer: its printed address, @why: for the log. */
    void (*refused)(void *ctx, const char *peer, enum pst_boot_refusal kind, const char *why);
};

int pst_boot_server_open(const struct pst_boot_server_options *options, const struct pst_boot_server_ops *ops,
                         void *ctx, struct pst_boot_server **out);
/* Listens; port 0 picks one, written back. A stale unix path is replaced, a live one is -EADDRINUSE. */
int pst_boot_server_listen(struct pst_boot_server *server, struct pst_boot_address *address);
/* One of several secrets that a client may prove. */
struct pst_boot_secret {
    struct pst_bytes secret;
    void *owner;   /* for ops->welcome() */
    bool confined; /* who proves it shares no memory of this host */
};

/*
 * Takes these from now on, in place of those before; sessions that stand go on. A client does not say which
 * it has: the server tries each of them. @count: up to PST_BOOT_SECRETS_MAX; copied. Return: 0, -ENOMEM.
 */
int pst_boot_server_secrets(struct pst_boot_server *server, const struct pst_boot_secret *secrets,
                            uint32_t count);
/* An epoll descriptor: readable when pst_boot_server_poll() has work. */
int pst_boot_server_fd(struct pst_boot_server *server);
/* Does what is ready, answers heartbeats, ends handshakes that take too long. Never blocks. Return: ms until
 * it wants to be called again. */
int pst_boot_server_poll(struct pst_boot_server *server, uint64_t now_ns);
/* Tells a peer whose connected() returned 1 that it may use its port. */
void pst_boot_server_ready(struct pst_boot_server *server, void *session);
/* Ends a session from the node's side. One that shares memory is told to go, and ends when it has closed. */
void pst_boot_server_end(struct pst_boot_server *server, void *session);
struct pst_boot_server *pst_boot_server_close(struct pst_boot_server *server);

#endif

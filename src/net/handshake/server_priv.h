/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server_priv.h: the server's connections. server.c owns sockets, time and limits; session.c
 * what is said on one connection.
 */
#ifndef PST_BOOT_SERVER_PRIV_H
#define PST_BOOT_SERVER_PRIV_H

#include "base/list.h"
#include "net/handshake/handshake_priv.h"
#include "net/stream/channel.h"

enum {
    BOOT_LISTENER_MAGIC = 0x7e7e0021,
    BOOT_CONN_MAGIC = 0x7e7e0022,
    BOOT_SERVER_MAGIC = 0x7e7e0023,
    BOOT_LISTENERS_MAX = 8,
    BOOT_PEER_TEXT_BYTES = 128,
    BOOT_OUT_SMALL_BYTES = 128, /* every answer but the welcome */
    BOOT_WHY_BYTES = 128,
};

_Static_assert(2 * (BOOT_HEAD_BYTES + BOOT_CHALLENGE_BYTES) <= BOOT_OUT_SMALL_BYTES, "answers have room");

enum boot_step {
    BOOT_STEP_HELLO, /* what the client has to say next */
    BOOT_STEP_PROOF,
    BOOT_STEP_ADDRESS,
    BOOT_STEP_PING,
    BOOT_STEP_COUNT,
};

struct boot_listener {
    uint32_t magic; /* first: tells epoll's pointers apart */
    int fd;
    struct pst_boot_address address;
    uint64_t inode; /* of the unix path that we made */
};

struct boot_conn {
    uint32_t magic;
    int fd;                         /* the channel's, once there is one */
    struct stream_channel *channel; /* NULL: it has not said whether it speaks TLS */
    struct pst_boot_server *server;
    struct pst_list link; /* server->handshakes, ->sessions or ->dead; the first two oldest heard first */
    uint64_t heard_ns;    /* handshake: of its begin; session: of the last whole frame */
    enum boot_step step;
    uint16_t version; /* of the session, once the client has said hello */
    bool unix_socket;
    bool loopback; /* its address is */
    bool secured;  /* the channel is TLS, */
    bool started;  /* and frames go through it */
    bool welcomed; /* ops->welcome() returned 0: ops->ended() is owed */
    bool polls_out;
    bool shares;              /* memory of this host: descriptors, or by UCX */
    bool parted;              /* sends no more, and still shares */
    bool stream;              /* the session uses it */
    uint64_t token;           /* of the session */
    const char *ending;       /* why it ends; NULL: it goes on */
    char why[BOOT_WHY_BYTES]; /* the same, where it names numbers */
    void *session;
    struct pst_bytes key; /* of its proofs, our copy; the server may have other secrets by now */
    struct boot_hello hello;
    uint8_t binding[BOOT_MAC_BYTES]; /* what both ends of its TLS know */
    uint8_t transcript[BOOT_TRANSCRIPT_BYTES];
    uint32_t in_bytes;
    uint8_t in[BOOT_FRAME_SMALL_MAX];
    /* What the socket has not taken yet: out_small, or out_big for a welcome, never both. */
    uint8_t *out_big;
    size_t out_bytes, out_done;
    uint8_t out_small[BOOT_OUT_SMALL_BYTES];
    uint32_t fd_count; /* descriptors that go with the first byte */
    int fds[PST_BOOT_ARENAS_MAX];
    char peer[BOOT_PEER_TEXT_BYTES];
};

struct pst_boot_server {
    uint32_t magic;
    int epoll_fd;
    struct pst_boot_server_options options; /* the secret is among the next */
    struct pst_boot_secret *secrets;        /* our copies; an empty one alone: none is needed */
    uint32_t secret_count;
    const struct pst_boot_server_ops *ops;
    void *ctx;
    struct boot_identity identity;
    uint64_t now_ns;          /* of the poll that runs */
    uint64_t paused_until_ns; /* no descriptors left: listeners rest; 0 while they do not */
    uint32_t listener_count;
    uint32_t handshake_count, session_count;
    struct boot_listener listeners[BOOT_LISTENERS_MAX];
    struct pst_list handshakes, sessions, dead;
    struct pst_boot_welcome welcome; /* scratch for the one being made */
};

static inline struct boot_conn *boot_conn_cast(void *arg)
{
    struct boot_conn *conn = arg;

    pst_assert(conn->magic == BOOT_CONN_MAGIC);
    return conn;
}

/* secure.c */

/* Finds out what the client speaks, and takes TLS as far as it goes. Return: whether frames may come; sets
 * conn->ending when the connection is over. */
bool boot_secure_step(struct boot_conn *conn);
/* The connection is plain. Return: false without memory. */
bool boot_secure_not(struct boot_conn *conn);
/* A plain client may go on. */
bool boot_secure_excuses(const struct boot_conn *conn);
/* TLS found a fault: tells the node, and ends the connection. */
void boot_secure_failed(struct boot_conn *conn);

/* session.c */

/* Reads what has come and answers. Sets conn->ending when the connection is over. */
void boot_session_read(struct boot_conn *conn);
/* Writes what is left. */
void boot_session_flush(struct boot_conn *conn);
/* Sends a refusal as far as the socket takes it and ends the connection. */
void boot_session_refuse(struct boot_conn *conn, enum boot_refusal code, const char *why);
/* Tells a client of a running session that the node is through with it. */
void boot_session_ready(struct boot_conn *conn);
void boot_session_dismiss(struct boot_conn *conn);

/* server.c: the session of this name that is connected, or NULL. */
struct boot_conn *boot_server_session(struct pst_boot_server *server, uint64_t token);
/* Takes the connection's channel out, which becomes the caller's. */
struct stream_channel *boot_server_detach(struct boot_conn *conn);
/* Moves a proved connection from the handshakes to the sessions. */
void boot_server_proved(struct boot_conn *conn);
/* Tells the node about a connection that did not become a session. */
void boot_server_refused(struct boot_conn *conn, enum pst_boot_refusal kind, const char *why);

/* listen.c: sockets that listen. */
int boot_listen(struct pst_boot_address *address, uint64_t *inode);
void boot_unlisten(const struct boot_listener *listener);

#endif

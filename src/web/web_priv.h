/* SPDX-License-Identifier: Apache-2.0 */
/*
 * web_priv.h: a server as its files see it. What has a descriptor or a deadline is a party: an HTTP
 * connection (http.c), a WebSocket (socket.c), a relay between libwebsockets and a descriptor (relay.c) or
 * between two descriptors (raw.c). All of them belong to the loop's thread.
 *
 * libwebsockets polls one descriptor of ours, an epoll set with everything that it does not own itself. A
 * closed party's memory stays until its round of the loop is over, as the set may still name it.
 */
#ifndef PST_WEB_PRIV_H
#define PST_WEB_PRIV_H

#include "web/flow_priv.h"
#include "web/head_priv.h"
#include "web/loop_priv.h"
#include "web/pace_priv.h"
#include "web/web.h"

#include <libwebsockets.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#define WEB_MAGIC 0x77656273u

enum {
    WEB_CHUNK_BYTES = 64 << 10,    /* what is moved at once */
    WEB_PIECE_BYTES = 16 << 10,    /* the most that libwebsockets hands over at once */
    WEB_BODIES_BYTES = 64 << 20,   /* of all requests together, and of messages that come in parts */
    WEB_ANSWERS_BYTES = 256 << 20, /* that wait to be sent, together */
    WEB_PEER_BYTES = 64,           /* a peer's address as text */
    WEB_LINGER_MS = 1000,          /* for a refused client to read why */
};

_Static_assert(WEB_PIECE_BYTES <= WEB_CHUNK_BYTES && (int)WEB_CHUNK_BYTES <= (int)FLOW_BYTES,
               "a flow takes what is moved at once");
_Static_assert((int)PST_WEB_BODY_BYTES_MAX <= (int)WEB_BODIES_BYTES &&
                   (int)PST_WEB_MESSAGE_BYTES_MAX <= (int)WEB_BODIES_BYTES,
               "one request's body or message is within the bound of all");

struct work;
struct http;

struct body {
    char *data;
    size_t bytes, room; /* the room counts in web->bodies_bytes */
};

struct workers {
    pthread_mutex_t lock;
    pthread_cond_t wanted;
    struct pst_list todo, done;
    pthread_t *threads;
    uint32_t count;
    bool stopping;
};

struct tunnel {
    char *prefix; /* NULL: there is none */
    struct sockaddr_storage to;
    socklen_t to_bytes;
};

struct pst_web {
    uint32_t magic;
    const struct pst_web_ops *ops;
    void *ctx;
    char *token, *open_paths[PST_WEB_OPEN_MAX], *name;
    size_t token_bytes;
    bool token_on_loopback;
    struct tunnel tunnels[PST_WEB_TUNNELS_MAX];
    uint32_t connections_max;
    uint64_t stall_ns;
    size_t bodies_bytes, answers_bytes;
    uint16_t port;
    int poll_fd;
    struct watch listener, waker, timer;
    bool accepting, stirred, running;
    struct lws_context *lws;
    struct lws_vhost *plain, *secure; /* secure: NULL without TLS */
    pthread_t thread;
    _Atomic bool stopping;
    _Atomic uint32_t connections;
    struct party *adopting; /* the one that libwebsockets is being handed */
    struct pst_list parties, dead;
    pthread_mutex_t lock;
    struct pst_list stirring; /* sockets that another thread has done something to */
    struct workers workers;
    uint8_t chunk[LWS_PRE + WEB_CHUNK_BYTES]; /* what is on its way to libwebsockets */
};

static inline struct pst_web *web_cast(void *arg)
{
    struct pst_web *web = arg;

    pst_assert(web && web->magic == WEB_MAGIC);
    return web;
}

/* ---- bridge.c ---- */

int bridge_open(struct pst_web *web, const char *certificate, const char *private_key);
void bridge_close(struct pst_web *web);
/* Hands a WebSocket's connection over, whose head has been read and found good. @fd: taken over; @key: of the
 * head; @more: what was read behind it. Return: false the party is to be closed. */
bool bridge_adopt_socket(struct party *party, int fd, struct pst_bytes key, struct pst_bytes more);
bool bridge_adopt_tls(struct party *party, int fd);
/* Ends a connection from outside of its callbacks; ops->told() hears of it later. */
void bridge_kill(struct lws *wsi);

/* ---- http.c ---- */

/* @fd: taken over. @around: the TLS connection that it is the inside of, which counts as the client; NULL:
 * it is the client. */
void http_open(struct pst_web *web, int fd, const char *peer, bool loopback, struct party *around);
void http_answered(struct http *http, struct pst_web_answer *answer);

/* ---- workers.c ---- */

void workers_init(struct pst_web *web);
int workers_open(struct pst_web *web, uint32_t count);
void workers_close(struct pst_web *web);
/* Copies the request, but takes the body over. What asks for the open path is answered on this thread, at
 * once. Return: NULL without memory, and the body is the caller's. */
struct work *workers_ask(struct pst_web *web, struct http *http, const struct head *head,
                         const struct body *body, const char *peer);
/* The client has gone: nobody waits for the answer. */
void workers_forget(struct pst_web *web, struct work *work);
/* On the loop's thread: hands answers to those who wait. */
void workers_collect(struct pst_web *web);

/* ---- socket.c, relay.c, raw.c: each takes over @fd and @from's seat ---- */

void socket_open(struct party *from, int fd, const struct head *head, struct pst_bytes more);
void sockets_stirred(struct pst_web *web);
void tunnel_open(struct party *from, int fd, const struct tunnel *tunnel, const struct head *head,
                 struct pst_bytes more);
void tls_open(struct party *from, int fd, const char *peer, bool loopback);
void raw_open(struct party *from, int fd);
/* Begins to connect to its server. Return: a descriptor or -errno. */
int tunnel_connect(const struct tunnel *tunnel);
/* Whether that has come to a connection, once the descriptor takes bytes or has an error. */
bool tunnel_connected(int fd);

#endif

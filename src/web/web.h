/* SPDX-License-Identifier: Apache-2.0 */
/*
 * web.h: an HTTP/1.1 and WebSocket server on one port, which also passes rsync's connections on to an rsync
 * daemon. One thread runs the loop: sockets, deadlines, WebSockets. Worker threads run ops.answer(), so that
 * an answer may wait for a disk while others are served.
 *
 * Requests are parsed here, since libwebsockets hands a path over only after it has decoded and shortened it,
 * and a key with "%2F" in it would be another key. WebSockets, TLS and the loop are libwebsockets'.
 *
 * Bounds: a request's head 32 KiB, its body 4 MiB, a WebSocket's message 1 MiB, all bodies and messages that
 * have come in part 64 MiB, answers that wait to be sent 256 MiB, what waits to be sent on a WebSocket 1 MiB,
 * a tunnel 256 KiB. A chunked body is answered with 411. Without the token where one is needed the answer is
 * 401. Nothing that a peer sends makes the loop wait.
 *
 * rsync without a tunnel: a connection that begins with "@RSYNCD:" is joined to the first tunnel's server.
 * That works with every rsync that speaks first, which rsync 3.5's client does; one that waits for the
 * server's greeting ends after stall_ms. Since it carries no token and no TLS, a peer that would need either
 * is refused.
 */
#ifndef PST_WEB_H
#define PST_WEB_H

#include "base/base.h"

enum {
    PST_WEB_BODY_BYTES_MAX = 4 << 20,
    PST_WEB_MESSAGE_BYTES_MAX = 1 << 20, /* of a WebSocket, to us or from us */
    PST_WEB_TUNNELS_MAX = 2,
    PST_WEB_OPEN_MAX = 2,
};

struct pst_web;
struct pst_web_socket;

/* WebSockets at @prefix and a namespace are joined to a server. */
struct pst_web_tunnel {
    const char *prefix; /* "/rsync/": begins and ends with a slash */
    const char *to;     /* "host:port", looked up once; NULL: there is no such tunnel */
};

/* Copied by pst_web_open(). NULL or 0 is the default, unless said otherwise. */
struct pst_web_settings {
    const char *listen;     /* "host:port", needed; port 0: any */
    struct pst_bytes token; /* that peers off the loopback must show; empty: none */
    bool token_on_loopback; /* there, too */
    /* What a request from the loopback may have as its Host if there is no token, beside addresses, names
     * without a dot and those of localhost or a cluster. NULL: nothing. */
    const char *name;
    const char *open_paths[PST_WEB_OPEN_MAX]; /* that may be read without the token, such as "/health" */
    const char *certificate, *private_key;    /* PEM files; TLS with both, one alone is -EINVAL */
    struct pst_web_tunnel tunnels[PST_WEB_TUNNELS_MAX]; /* the first one is rsync's */
    /* 1024; beyond, 503; tunnels and WebSockets take three quarters of them at the most */
    uint32_t connections_max;
    /* 10000; a head takes no longer, nor does a message in parts; a body or an answer moves 64 KiB in this
     * time, or the 60th part of it if that is more. A tunnel that moves nothing ends after 10 minutes, and it
     * or a silent WebSocket after this time if others wait for its seat. */
    uint32_t stall_ms;
    uint32_t threads; /* workers; 4 */
};

/* Valid during ops.answer(). No text has a NUL in it. */
struct pst_web_request {
    const char *method;       /* "GET" */
    struct pst_bytes path;    /* as it was sent, still percent-encoded; begins with '/' */
    struct pst_bytes query;   /* behind the '?', as it was sent; may be empty */
    struct pst_bytes body;    /* may be empty */
    const char *content_type; /* "" without one */
    const char *peer;         /* the client's address, without its port */
};

struct pst_web_answer {
    int status;               /* 200 to 599 */
    char *text;               /* malloc()ed, the room frees it; NULL: no body */
    size_t text_bytes;        /* 0: as strlen() says */
    const char *content_type; /* static; NULL: application/json */
};

struct pst_web_ops {
    /* On a worker; for open paths on the loop's thread, at once. @answer is {.status = 200} before; a
     * status that is none becomes 500. HEAD comes as HEAD, and its text is not sent. Needed. */
    void (*answer)(void *ctx, const struct pst_web_request *request, struct pst_web_answer *answer);
    /*
     * WebSockets whose path begins with "/ws/", on the loop's thread; NULL: there are none. @path, @query: as
     * they were sent. Return of open: 0, or -errno to refuse; then close is not called. A message is text,
     * whole, valid UTF-8. @socket is valid until close returns, in other threads, too.
     */
    int (*socket_open)(void *ctx, struct pst_web_socket *socket, struct pst_bytes path,
                       struct pst_bytes query);
    void (*socket_message)(void *ctx, struct pst_web_socket *socket, struct pst_bytes text);
    void (*socket_close)(void *ctx, struct pst_web_socket *socket);
    /* A line of libwebsockets', without its end, on any thread. Its log is one for the process: the server
     * that was opened first has all of it. NULL: dropped. */
    void (*log)(void *ctx, const char *line);
};

/*
 * Listens, and serves from then on. @ops: borrowed until closed. Return: 0, or -errno with *@fault a static
 * text: -EINVAL a setting, -EADDRNOTAVAIL, -EADDRINUSE, -EACCES, -EIO libwebsockets refused the certificate
 * or the rest, -ENOMEM.
 */
int pst_web_open(const struct pst_web_settings *settings, const struct pst_web_ops *ops, void *ctx,
                 struct pst_web **out, const char **fault);
/* Ends every connection and waits for answers underway. Not from a callback. Return: NULL. */
struct pst_web *pst_web_close(struct pst_web *web);
uint16_t pst_web_port(const struct pst_web *web);
/* Clients connected now, tunnels included. Any thread. */
uint32_t pst_web_connections(const struct pst_web *web);

/*
 * Queues a text, which is copied. Any thread. Return: 0, -EMSGSIZE, -ENOMEM, -EPIPE it is ending, -ENOBUFS
 * the client does not take what waits for it: the socket ends.
 */
int pst_web_socket_send(struct pst_web_socket *socket, const char *text);
/* Its client may have no time for pings from now on, by which a client that is gone is found out otherwise:
 * as long as its kernel answers, it stays. Any thread. */
void pst_web_socket_excuse(struct pst_web_socket *socket);
/* Ends it once all that was queued is sent. Any thread. */
void pst_web_socket_end(struct pst_web_socket *socket);
/* A pointer of the owner's; loop's thread. */
void pst_web_socket_keep(struct pst_web_socket *socket, void *user);
void *pst_web_socket_kept(const struct pst_web_socket *socket);

/*
 * Decodes "%XX" once; @plus: '+' is a space. @buf ends with a NUL. Return: the length, -EINVAL a broken
 * escape or an encoded NUL, -ENOSPC. Pure.
 */
int pst_web_decode(struct pst_bytes raw, bool plus, char *buf, size_t cap);
/* The first parameter of that name in a raw query, decoded. Return: as above, or -ENOENT. Pure. */
int pst_web_query(struct pst_bytes query, const char *name, char *buf, size_t cap);

#endif

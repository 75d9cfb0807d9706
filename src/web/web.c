/* SPDX-License-Identifier: Apache-2.0 */
/* web.c: a server's settings, its threads, its beginning and its end. */
#include "web/web_priv.h"

#include "base/ms.h"
#include "net/handshake.h"

#include <netdb.h>
#include <stdio.h>

enum {
    CONNECTIONS_PRESET = 1024,
    CONNECTIONS_MAX = 60000, /* a bound of libwebsockets' */
    STALL_MS_PRESET = 10000,
    THREADS_PRESET = 4,
    THREADS_MAX = 256,
};

_Static_assert(CONNECTIONS_PRESET <= CONNECTIONS_MAX && THREADS_PRESET <= THREADS_MAX, "presets are allowed");

static int fail(int result, const char **fault, const char *why)
{
    *fault = why;
    return result;
}

static int check(const struct pst_web_settings *s, const char **fault)
{
    if (!s->listen)
        return fail(-EINVAL, fault, "no address to listen on");
    if (!s->certificate != !s->private_key)
        return fail(-EINVAL, fault, "TLS needs both a certificate and its private key");
    if (s->certificate && (access(s->certificate, R_OK) != 0 || access(s->private_key, R_OK) != 0))
        return fail(-errno, fault, "the certificate or its private key cannot be read");
    for (size_t i = 0; i < pst_count_of(s->tunnels); i++) {
        const struct pst_web_tunnel *tunnel = &s->tunnels[i];

        if (tunnel->to && (!tunnel->prefix || tunnel->prefix[0] != '/' ||
                           tunnel->prefix[strlen(tunnel->prefix) - 1] != '/'))
            return fail(-EINVAL, fault, "a tunnel's prefix must begin and end with a slash");
    }
    if (s->connections_max > CONNECTIONS_MAX || s->threads > THREADS_MAX)
        return fail(-EINVAL, fault, "too many connections or threads");
    return 0;
}

static int listen_at(struct pst_web *web, const char *listen, const char **fault)
{
    struct pst_boot_address address;
    int r = pst_boot_address_parse(listen, &address, fault);

    if (r == 0 && address.path[0])
        r = fail(-EINVAL, fault, "server address must be host:port");
    if (r < 0)
        return r;
    r = pst_boot_listen_tcp(&address);
    if (r < 0)
        return fail(r, fault, r == -EADDRINUSE ? "another process listens there" : "cannot listen there");
    web->listener.fd = r;
    web->port = address.port;
    return 0;
}

static int find_tunnel(struct tunnel *tunnel, const struct pst_web_tunnel *said, const char **fault)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    struct pst_boot_address address;
    char port[8];
    int r = said->to ? pst_boot_address_parse(said->to, &address, fault) : 0;

    if (r < 0 || !said->to)
        return r;
    if (address.path[0] || address.port == 0)
        return fail(-EINVAL, fault, "the tunnel's target must be host:port");
    snprintf(port, sizeof(port), "%u", address.port);
    if (getaddrinfo(address.host, port, &hints, &list) != 0 || !list)
        return fail(-EADDRNOTAVAIL, fault, "the tunnel's target is no known host");
    pst_assert(list->ai_addrlen <= sizeof(tunnel->to));
    memcpy(&tunnel->to, list->ai_addr, list->ai_addrlen);
    tunnel->to_bytes = list->ai_addrlen;
    freeaddrinfo(list);
    tunnel->prefix = strdup(said->prefix);
    return tunnel->prefix ? 0 : -ENOMEM;
}

static int copy_settings(struct pst_web *web, const struct pst_web_settings *s)
{
    web->connections_max = s->connections_max ? s->connections_max : CONNECTIONS_PRESET;
    web->stall_ns = pst_ns_of_ms(s->stall_ms ? s->stall_ms : STALL_MS_PRESET);
    web->token_on_loopback = s->token_on_loopback;
    web->name = strdup(s->name ? s->name : "");
    web->token = malloc(s->token.len + 1);
    if (!web->name || !web->token)
        return -ENOMEM;
    for (size_t i = 0; i < PST_WEB_OPEN_MAX; i++) {
        web->open_paths[i] = strdup(s->open_paths[i] ? s->open_paths[i] : "");
        if (!web->open_paths[i])
            return -ENOMEM;
    }
    if (s->token.len)
        memcpy(web->token, s->token.data, s->token.len);
    web->token_bytes = s->token.len;
    return 0;
}

static int begin(struct pst_web *web, const struct pst_web_settings *s, const char **fault)
{
    int r = copy_settings(web, s);

    *fault = "out of memory or descriptors";
    for (size_t i = 0; r == 0 && i < pst_count_of(web->tunnels); i++)
        r = find_tunnel(&web->tunnels[i], &s->tunnels[i], fault);
    if (r == 0)
        r = listen_at(web, s->listen, fault);
    if (r < 0)
        return r;
    *fault = "out of memory or descriptors";
    r = loop_open(web);
    if (r < 0)
        return r;
    r = bridge_open(web, s->certificate, s->private_key);
    if (r < 0)
        return fail(r, fault, "libwebsockets does not start: the certificate may be wrong");
    r = workers_open(web, s->threads ? s->threads : THREADS_PRESET);
    if (r == 0)
        r = -pthread_create(&web->thread, NULL, loop_main, web);
    web->running = r == 0;
    return r;
}

int pst_web_open(const struct pst_web_settings *settings, const struct pst_web_ops *ops, void *ctx,
                 struct pst_web **out, const char **fault)
{
    struct pst_web *web;
    int r;

    pst_assert(settings && ops && ops->answer);
    pst_assert(!ops->socket_open || ops->socket_message);
    pst_assert(out && fault);
    r = check(settings, fault);
    if (r < 0)
        return r;
    web = calloc(1, sizeof(*web));
    if (!web)
        return fail(-ENOMEM, fault, "out of memory");
    web->magic = WEB_MAGIC;
    web->ops = ops;
    web->ctx = ctx;
    web->poll_fd = web->listener.fd = web->waker.fd = web->timer.fd = -1;
    pst_list_init(&web->parties);
    pst_list_init(&web->dead);
    pst_list_init(&web->stirring);
    pthread_mutex_init(&web->lock, NULL);
    workers_init(web);
    r = begin(web, settings, fault);
    if (r < 0) {
        pst_web_close(web);
        return r;
    }
    *out = web;
    return 0;
}

struct pst_web *pst_web_close(struct pst_web *web)
{
    if (!web)
        return NULL;
    web_cast(web);
    web->stopping = true;
    if (web->running) {
        loop_wake(web);
        pst_assert(pthread_join(web->thread, NULL) == 0);
    }
    workers_close(web);
    if (!web->running)
        bridge_close(web); /* else the loop's thread has */
    loop_close(web);
    pst_assert(web->bodies_bytes == 0);
    pst_assert(web->connections == 0);
    pthread_mutex_destroy(&web->lock);
    free(web->token);
    for (size_t i = 0; i < pst_count_of(web->tunnels); i++)
        free(web->tunnels[i].prefix);
    for (size_t i = 0; i < PST_WEB_OPEN_MAX; i++)
        free(web->open_paths[i]);
    free(web->name);
    web->magic = 0;
    free(web);
    return NULL;
}

uint16_t pst_web_port(const struct pst_web *web)
{
    pst_assert(web && web->magic == WEB_MAGIC);
    return web->port;
}

uint32_t pst_web_connections(const struct pst_web *web)
{
    pst_assert(web && web->magic == WEB_MAGIC);
    return web->connections;
}

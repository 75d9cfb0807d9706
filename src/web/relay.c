/* SPDX-License-Identifier: Apache-2.0 */
/*
 * relay.c: passes bytes between a connection of libwebsockets' and a descriptor: a tunnel's WebSocket and its
 * server, or a client's TLS and the plain inside of it, which http.c takes for a client.
 *
 * Towards the descriptor a flow holds up to 64 KiB, and the client is not read while it is half full. Towards
 * the client nothing is held: the descriptor is read when libwebsockets has room. If the client ends, what it
 * had sent still goes out, then the end of the stream; if the descriptor ends, the client is told after the
 * last byte.
 */
#include "web/web_priv.h"

#include "base/clock.h"
#include "base/ms.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/epoll.h>

#define RELAY_MAGIC 0x72656c61u

struct relay {
    uint32_t magic;
    struct party party;
    struct lws *wsi; /* NULL once the client is gone */
    struct watch watch;
    struct flow up; /* to the descriptor */
    bool tls;       /* what libwebsockets carries is TLS, not a WebSocket */
    bool began;     /* TLS: the handshake is over */
    bool connecting;
    bool paused;     /* the client is not read */
    bool reads_next; /* the descriptor may have more to read */
    bool hung_up;    /* the descriptor's other side has ended */
};

static void relay_watch(struct relay *relay);

static struct relay *relay_cast(struct party *party)
{
    struct relay *relay;

    pst_assert(party && party->magic == PARTY_MAGIC);
    relay = pst_container_of(party, struct relay, party);
    pst_assert(relay->magic == RELAY_MAGIC);
    return relay;
}

static void relay_end(struct relay *relay)
{
    pst_assert(!relay->wsi);
    watch_close(relay->party.web, &relay->watch);
    flow_fini(&relay->up);
    party_close(&relay->party);
}

/* ---- from the client ---- */

static void pause_client(struct relay *relay)
{
    bool full = flow_room(&relay->up) < FLOW_BYTES / 2;

    if (!relay->wsi || relay->paused == full || (relay->paused && flow_room(&relay->up) < FLOW_BYTES))
        return;
    relay->paused = full;
    lws_rx_flow_control(relay->wsi, !full);
}

/* Sends what waits for the descriptor. Return: false that takes no more, ever. */
static bool push(struct relay *relay)
{
    uint64_t before = relay->up.moved;
    int r = relay->connecting ? 0 : flow_drain(&relay->up, relay->watch.fd);

    if (relay->up.moved != before)
        relay->party.moved_ns = pst_now_ns();
    if (r < 0)
        flow_fini(&relay->up); /* it may still have sent something */
    return r == 0;
}

static int client_sent(struct relay *relay, const void *data, size_t bytes)
{
    pst_assert(relay->wsi);
    if (!relay->tls && !lws_frame_is_binary(relay->wsi)) {
        lws_close_reason(relay->wsi, LWS_CLOSE_STATUS_UNACCEPTABLE_OPCODE, NULL, 0);
        return -1;
    }
    if (relay->up.ended) /* nobody reads it any more */
        return 0;
    if (flow_take(&relay->up, data, bytes) < 0)
        return -1;
    push(relay);
    pause_client(relay);
    relay_watch(relay);
    return 0;
}

/* ---- to the client ---- */

static int client_end(struct relay *relay, enum lws_close_status why)
{
    pst_assert(relay->wsi);
    if (!relay->tls)
        lws_close_reason(relay->wsi, why, NULL, 0);
    return -1;
}

/* libwebsockets has room. */
static int client_takes(struct relay *relay)
{
    uint8_t *chunk = relay->party.web->chunk + LWS_PRE;
    ssize_t n;

    pst_assert(relay->wsi);
    if (relay->watch.fd < 0)
        return client_end(relay, LWS_CLOSE_STATUS_UNEXPECTED_CONDITION); /* no connection was to be had */
    if (relay->connecting || !relay->reads_next)
        return 0;
    relay->reads_next = false;
    n = recv(relay->watch.fd, chunk, WEB_CHUNK_BYTES, MSG_DONTWAIT);
    if (n == 0)
        return client_end(relay, LWS_CLOSE_STATUS_NORMAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        return client_end(relay, LWS_CLOSE_STATUS_UNEXPECTED_CONDITION);
    if (n > 0) {
        relay->party.moved_ns = pst_now_ns();
        if (lws_write(relay->wsi, chunk, (size_t)n, relay->tls ? LWS_WRITE_RAW : LWS_WRITE_BINARY) < 0)
            return -1;
    }
    if (n == WEB_CHUNK_BYTES || relay->hung_up) {
        relay->reads_next = true;
        lws_callback_on_writable(relay->wsi);
    }
    relay_watch(relay);
    return 0;
}

/* ---- the descriptor ---- */

/* Asks for what the relay waits for. */
static void relay_watch(struct relay *relay)
{
    uint32_t events = 0;

    if (relay->watch.fd < 0)
        return;
    if (relay->connecting || flow_waits(&relay->up))
        events |= EPOLLOUT;
    if (!relay->connecting && !relay->reads_next && !relay->hung_up)
        events |= EPOLLIN | EPOLLRDHUP;
    watch_set(relay->party.web, &relay->watch, events);
}

/* Of a client that is gone: what the descriptor still says is for nobody. Return: false it has ended. */
static bool discard(struct relay *relay)
{
    ssize_t n = recv(relay->watch.fd, relay->party.web->chunk, WEB_CHUNK_BYTES, MSG_DONTWAIT);

    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

static void connected(struct relay *relay)
{
    pst_assert(relay->connecting);
    pst_assert(relay->watch.fd >= 0);
    relay->connecting = false;
    if (tunnel_connected(relay->watch.fd))
        return;
    flow_fini(&relay->up);
    watch_close(relay->party.web, &relay->watch);
    if (relay->wsi)
        lws_callback_on_writable(relay->wsi); /* where it is ended */
}

/* The client is gone: what it had sent still goes out, and then the end of the stream. */
static void ready_alone(struct relay *relay, uint32_t events)
{
    bool good = relay->watch.fd >= 0 && push(relay);

    pst_assert(!relay->wsi);
    if (good && !relay->connecting && !relay->hung_up)
        relay->hung_up = !discard(relay);
    if (!good || events & (EPOLLHUP | EPOLLERR) || (relay->hung_up && !flow_waits(&relay->up)))
        relay_end(relay);
    else
        relay_watch(relay);
}

static void relay_ready(struct pst_web *web, struct watch *watch, uint32_t events)
{
    struct relay *relay = relay_cast(watch->party);

    if (relay->connecting)
        connected(relay);
    if (!relay->wsi) {
        ready_alone(relay, events);
        return;
    }
    if (watch->fd < 0)
        return;
    push(relay);
    if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
        relay->reads_next = true;
        lws_callback_on_writable(relay->wsi);
    }
    if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR) && !relay->hung_up) {
        relay->hung_up = true;
        relay->party.moved_ns = pst_now_ns();
    }
    if (events & (EPOLLHUP | EPOLLERR))
        watch_silence(web, watch);
    pause_client(relay);
    relay_watch(relay);
}

/* ---- life ---- */

static void client_gone(struct relay *relay)
{
    pst_assert(relay->wsi);
    relay->wsi = NULL;
    relay->party.moved_ns = pst_now_ns();
    relay->reads_next = false;
    relay->up.ended = true;
    if (relay->watch.fd < 0 || relay->watch.silent || !push(relay) || relay->party.web->stopping) {
        relay_end(relay);
        return;
    }
    relay->hung_up = false; /* until discard() has seen the end: bytes unread would take back what was sent */
    relay_watch(relay);
}

static int relay_told(struct party *party, struct lws *wsi, enum lws_callback_reasons reason, void *in,
                      size_t len)
{
    struct relay *relay = relay_cast(party);

    switch (reason) {
    case LWS_CALLBACK_WSI_CREATE:
        pst_assert(!relay->wsi);
        relay->wsi = wsi;
        return 0;
    case LWS_CALLBACK_RAW_RX:
        if (!relay->began)
            lws_set_timeout(wsi, NO_PENDING_TIMEOUT, 0);
        relay->began = true;
        return client_sent(relay, in, len);
    case LWS_CALLBACK_RECEIVE:
        return client_sent(relay, in, len);
    case LWS_CALLBACK_RAW_WRITEABLE:
    case LWS_CALLBACK_SERVER_WRITEABLE:
        return client_takes(relay);
    case LWS_CALLBACK_WSI_DESTROY:
        client_gone(relay);
        return 0;
    default:
        return 0;
    }
}

static void relay_drop(struct party *party)
{
    struct relay *relay = relay_cast(party);

    if (relay->wsi)
        bridge_kill(relay->wsi);
    else
        relay_end(relay);
}

static void relay_tick(struct party *party, uint64_t now_ns)
{
    struct relay *relay = relay_cast(party);
    bool waits = relay->connecting || !relay->wsi || relay->hung_up || (relay->tls && !relay->began);

    if (party_is_late(party, waits, now_ns))
        relay_drop(party);
}

/* Whether the client has taken all that the descriptor had for it, or takes nothing. */
static bool relay_rests(const struct relay *relay)
{
    int unread = 0;

    if (pst_now_ns() - relay->party.moved_ns > pst_ns_of_ms(WEB_LINGER_MS))
        return true;
    return !relay->reads_next && (ioctl(relay->watch.fd, FIONREAD, &unread) < 0 || unread == 0);
}

/* Of TLS: as of the client that speaks in it, which may be through before all was taken that it has said. */
static enum yields relay_yields(const struct party *party)
{
    const struct relay *relay = pst_container_of(party, struct relay, party);
    enum yields inside = YIELDS_LAST;

    if (!relay->tls)
        return YIELDS_NOT;
    if (!relay->began)
        return YIELDS_FIRST;
    if (party->inside)
        inside = party->inside->ops->yields(party->inside);
    else if (!relay->hung_up)
        return YIELDS_NOT;
    return inside != YIELDS_LAST || relay_rests(relay) ? inside : YIELDS_NOT;
}

static void relay_close(struct party *party)
{
    if (!relay_cast(party)->wsi)
        relay_end(relay_cast(party));
}

static void relay_free(struct party *party)
{
    struct relay *relay = pst_container_of(party, struct relay, party);

    pst_assert(!relay->wsi);
    pst_assert(relay->watch.fd < 0);
    relay->magic = 0;
    free(relay);
}

static struct relay *relay_open(struct party *from, int fd)
{
    static const struct party_ops ops = {.tick = relay_tick,
                                         .yields = relay_yields,
                                         .told = relay_told,
                                         .drop = relay_drop,
                                         .close = relay_close,
                                         .free = relay_free};
    struct relay *relay = fd < 0 ? NULL : calloc(1, sizeof(*relay));

    if (!relay) {
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    relay->magic = RELAY_MAGIC;
    party_open(&relay->party, &ops, from->web);
    relay->party.moved_ns = pst_now_ns();
    watch_init(&relay->watch, &relay->party, relay_ready);
    if (watch_open(from->web, &relay->watch, fd, EPOLLOUT) < 0) {
        relay_end(relay);
        return NULL;
    }
    pst_assert(relay->watch.fd == fd);
    party_pass_seat(from, &relay->party);
    return relay;
}

int tunnel_connect(const struct tunnel *tunnel)
{
    int fd = socket(tunnel->to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;

    pst_assert(tunnel->to_bytes > 0);
    if (fd < 0)
        return -errno;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (connect(fd, (const struct sockaddr *)&tunnel->to, tunnel->to_bytes) < 0 && errno != EINPROGRESS) {
        int r = -errno;

        close(fd);
        return r;
    }
    return fd;
}

bool tunnel_connected(int fd)
{
    socklen_t bytes = sizeof(int);
    int error = 0;

    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 && error == 0;
}

void tunnel_open(struct party *from, int fd, const struct tunnel *tunnel, const struct head *head,
                 struct pst_bytes more)
{
    struct relay *relay = relay_open(from, tunnel_connect(tunnel));

    if (!relay) {
        close(fd);
        return;
    }
    relay->connecting = relay->party.passes = true;
    if (!bridge_adopt_socket(&relay->party, fd, head->socket_key, more))
        relay_end(relay);
}

void tls_open(struct party *from, int fd, const char *peer, bool loopback)
{
    struct pst_web *web = from->web;
    struct relay *relay;
    int sides[2];

    pst_assert(web->secure);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sides) < 0) {
        close(fd);
        return;
    }
    relay = relay_open(from, sides[0]);
    if (!relay) {
        close(sides[1]);
        close(fd);
        return;
    }
    relay->tls = true;
    http_open(web, sides[1], peer, loopback, &relay->party);
    relay_watch(relay);
    if (!bridge_adopt_tls(&relay->party, fd))
        relay_end(relay);
}

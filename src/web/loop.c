/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop.c: the loop's set of descriptors, its parties and its thread. libwebsockets' service only notes that
 * the set has something: the set is looked at outside of its callbacks, where connections may be handed to
 * it.
 */
#include "web/web_priv.h"

#include "base/clock.h"
#include "base/ms.h"
#include "net/handshake.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

enum {
    EVENTS_A_ROUND = 64,
    ACCEPTS_A_ROUND = 16,
    TICK_MS_MAX = 100,
    TICKS_A_STALL = 4,
    IDLE_MS = 600000, /* rsync gives a peer up after this time, too */
};

/* ---- descriptors ---- */

void watch_init(struct watch *watch, struct party *party,
                void (*ready)(struct pst_web *, struct watch *, uint32_t))
{
    *watch = (struct watch){.fd = -1, .party = party, .ready = ready};
}

int watch_open(struct pst_web *web, struct watch *watch, int fd, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = watch};

    pst_assert(watch->fd < 0);
    pst_assert(watch->ready);
    pst_assert(fd >= 0);
    if (epoll_ctl(web->poll_fd, EPOLL_CTL_ADD, fd, &event) < 0) {
        int r = -errno;

        close(fd);
        return r;
    }
    watch->fd = fd;
    watch->events = events;
    watch->silent = false;
    return 0;
}

void watch_set(struct pst_web *web, struct watch *watch, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = watch};

    pst_assert(watch->fd >= 0);
    if (watch->silent || watch->events == events)
        return;
    watch->events = events;
    pst_assert(epoll_ctl(web->poll_fd, EPOLL_CTL_MOD, watch->fd, &event) == 0);
}

void watch_silence(struct pst_web *web, struct watch *watch)
{
    pst_assert(watch->fd >= 0);
    if (!watch->silent)
        pst_assert(epoll_ctl(web->poll_fd, EPOLL_CTL_DEL, watch->fd, NULL) == 0);
    watch->silent = true;
}

int watch_give(struct pst_web *web, struct watch *watch)
{
    int fd = watch->fd;

    pst_assert(fd >= 0);
    watch_silence(web, watch);
    watch->fd = -1;
    return fd;
}

void watch_close(struct pst_web *web, struct watch *watch)
{
    if (watch->fd >= 0)
        close(watch_give(web, watch));
}

/* ---- parties ---- */

void party_open(struct party *party, const struct party_ops *ops, struct pst_web *web)
{
    pst_assert(ops->tick);
    pst_assert(ops->close);
    pst_assert(ops->free);
    *party = (struct party){.magic = PARTY_MAGIC, .ops = ops, .web = web};
    pst_list_push_back(&web->parties, &party->link);
}

static void party_leave_seat(struct party *party)
{
    struct pst_web *web = party->web;

    if (!party->seated)
        return;
    pst_assert(web->connections > 0);
    web->connections--;
    party->seated = false;
}

void party_enclose(struct party *inside, struct party *around)
{
    pst_assert(inside->magic == PARTY_MAGIC && !inside->around);
    pst_assert(around->magic == PARTY_MAGIC && !around->inside);
    inside->around = around;
    around->inside = inside;
}

void party_close(struct party *party)
{
    struct pst_web *web = party->web;

    pst_assert(party->magic == PARTY_MAGIC);
    party->magic = 0;
    party_leave_seat(party);
    if (party->inside)
        party->inside->around = NULL;
    if (party->around)
        party->around->inside = NULL;
    party->inside = party->around = NULL;
    pst_list_remove(&party->link);
    pst_list_push_back(&web->dead, &party->link);
}

void party_pass_seat(struct party *from, struct party *to)
{
    pst_assert(from->magic == PARTY_MAGIC);
    pst_assert(to->magic == PARTY_MAGIC);
    pst_assert(!to->seated);
    to->seated = from->seated;
    from->seated = false;
}

static void free_dead(struct pst_web *web)
{
    while (!pst_list_empty(&web->dead)) {
        struct party *party = pst_list_first(&web->dead, struct party, link);

        pst_assert(party->magic == 0);
        pst_list_remove(&party->link);
        party->ops->free(party);
    }
}

bool web_is_late(const struct pst_web *web, uint64_t since_ns, uint64_t now_ns)
{
    return now_ns > since_ns && now_ns - since_ns > web->stall_ns;
}

/* ---- what is passed on ---- */

bool party_is_late(const struct party *party, bool waits, uint64_t now_ns)
{
    if (waits)
        return web_is_late(party->web, party->moved_ns, now_ns);
    return party->passes && now_ns > party->moved_ns && now_ns - party->moved_ns > pst_ns_of_ms(IDLE_MS);
}

/* However many are passed on or WebSockets, or silent, a quarter of the seats is for HTTP. */
bool loop_make_passage(struct pst_web *web)
{
    struct party *idle = NULL;
    uint32_t passed = 0;

    pst_list_each (at, &web->parties) {
        struct party *party = pst_list_entry(at, struct party, link);

        passed += party->passes;
        if (party->passes && (!idle || party->moved_ns < idle->moved_ns))
            idle = party;
    }
    if (passed < web->connections_max - web->connections_max / 4)
        return true;
    pst_assert(idle && idle->passes);
    if (!web_is_late(web, idle->moved_ns, pst_now_ns()))
        return false;
    idle->passes = false;
    idle->ops->drop(idle);
    return true;
}

/* ---- clients ---- */

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_storage room;
};

/* An IPv4 client of an IPv6 port is named by its IPv4 address. */
static void name_peer(const union address *address, char *peer, size_t cap)
{
    const struct in6_addr *v6 = &address->v6.sin6_addr;

    if (address->any.sa_family == AF_INET)
        inet_ntop(AF_INET, &address->v4.sin_addr, peer, (socklen_t)cap);
    else if (address->any.sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(v6))
        inet_ntop(AF_INET, v6->s6_addr + 12, peer, (socklen_t)cap);
    else if (address->any.sa_family == AF_INET6)
        inet_ntop(AF_INET6, v6, peer, (socklen_t)cap);
}

static void refuse(int fd)
{
    static const char text[] =
        "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n"
        "Retry-After: 1\r\n\r\n";

    (void)!send(fd, text, sizeof(text) - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    close(fd);
}

/* Ends the oldest connection that has said nothing yet, or else asks for nothing now: however many are slow,
 * who speaks is heard. Return: whether there is a seat. */
static bool make_room(struct pst_web *web)
{
    struct party *oldest = NULL;
    enum yields yields = YIELDS_NOT;

    pst_assert(web->connections > 0);
    pst_list_each (at, &web->parties) {
        struct party *party = pst_list_entry(at, struct party, link);
        enum yields it = party->seated && party->ops->yields ? party->ops->yields(party) : YIELDS_NOT;

        if (it > yields) {
            oldest = party;
            yields = it;
        }
        if (yields == YIELDS_FIRST)
            break;
    }
    if (oldest) {
        party_leave_seat(oldest); /* also if libwebsockets has still to close it */
        (oldest->ops->drop ? oldest->ops->drop : oldest->ops->close)(oldest);
    }
    return web->connections < web->connections_max;
}

static void accept_clients(struct pst_web *web, struct watch *watch, uint32_t events)
{
    (void)events;
    for (int i = 0; i < ACCEPTS_A_ROUND; i++) {
        union address address = {.any = {.sa_family = AF_UNSPEC}};
        socklen_t bytes = sizeof(address);
        int fd = accept4(watch->fd, &address.any, &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
        struct pst_boot_address peer = {.host = ""};
        int one = 1;

        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
            web->accepting = false; /* until the next tick */
            watch_set(web, watch, 0);
        }
        if (fd < 0)
            return;
        if (web->connections >= web->connections_max && !make_room(web)) {
            refuse(fd);
            continue;
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
        name_peer(&address, peer.host, sizeof(peer.host));
        pst_assert(web->connections < web->connections_max);
        http_open(web, fd, peer.host, pst_boot_address_loopback(&peer), NULL);
    }
}

/* ---- the thread ---- */

static void on_timer(struct pst_web *web, struct watch *watch, uint32_t events)
{
    uint64_t now_ns = pst_now_ns();

    (void)events;
    pst_event_clear(watch->fd);
    if (!web->accepting)
        watch_set(web, &web->listener, EPOLLIN);
    web->accepting = true;
    pst_list_each_safe (at, &web->parties) {
        struct party *party = pst_list_entry(at, struct party, link);

        pst_assert(party->magic == PARTY_MAGIC);
        party->ops->tick(party, now_ns);
    }
}

static void on_wake(struct pst_web *web, struct watch *watch, uint32_t events)
{
    (void)events;
    pst_event_clear(watch->fd);
    workers_collect(web);
    sockets_stirred(web);
}

void loop_wake(struct pst_web *web)
{
    pst_event_set(web->waker.fd);
}

static void look(struct pst_web *web)
{
    struct epoll_event events[EVENTS_A_ROUND];
    int count = epoll_wait(web->poll_fd, events, EVENTS_A_ROUND, 0);

    pst_assert(count <= EVENTS_A_ROUND);
    for (int i = 0; i < count; i++) {
        struct watch *watch = events[i].data.ptr;

        if (watch->fd >= 0 && !watch->silent) /* one before it may have closed it */
            watch->ready(web, watch, events[i].events);
    }
}

void *loop_main(void *arg)
{
    struct pst_web *web = web_cast(arg);

    while (!web->stopping) {
        web->stirred = false;
        pst_assert(lws_service(web->lws, 0) >= 0);
        if (web->stirred)
            look(web);
        free_dead(web);
    }
    pst_list_each_safe (at, &web->parties) {
        struct party *party = pst_list_entry(at, struct party, link);

        party->ops->close(party);
    }
    bridge_close(web); /* tells those that it has connections for */
    pst_assert(pst_list_empty(&web->parties));
    free_dead(web);
    pst_assert(web->connections == 0);
    return NULL;
}

static int open_timer(struct pst_web *web)
{
    uint64_t ns = pst_min(pst_ns_of_ms(TICK_MS_MAX), pst_max(web->stall_ns / TICKS_A_STALL, 1000000));
    struct itimerspec when = {.it_interval = {.tv_nsec = (long)ns}, .it_value = {.tv_nsec = (long)ns}};
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);

    if (fd < 0)
        return -errno;
    pst_assert(timerfd_settime(fd, 0, &when, NULL) == 0);
    return watch_open(web, &web->timer, fd, EPOLLIN);
}

int loop_open(struct pst_web *web)
{
    int fd, listen_fd = web->listener.fd, r;

    pst_assert(listen_fd >= 0);
    watch_init(&web->listener, NULL, accept_clients);
    watch_init(&web->waker, NULL, on_wake);
    watch_init(&web->timer, NULL, on_timer);
    web->poll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (web->poll_fd < 0) {
        r = -errno;
        close(listen_fd);
        return r;
    }
    web->accepting = true;
    r = watch_open(web, &web->listener, listen_fd, EPOLLIN);
    fd = r < 0 ? -1 : eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (r == 0)
        r = fd < 0 ? -errno : watch_open(web, &web->waker, fd, EPOLLIN);
    return r < 0 ? r : open_timer(web);
}

void loop_close(struct pst_web *web)
{
    struct watch *watches[] = {&web->listener, &web->waker, &web->timer};

    for (size_t i = 0; i < pst_count_of(watches); i++)
        pst_close_fd(&watches[i]->fd);
    pst_close_fd(&web->poll_fd);
}

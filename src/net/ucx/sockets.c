/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sockets.c: functions of UCX's, in place of its own: how its TCP transport connects, writes to a socket and
 * hears that one is ready. For versions 1.13 to 1.22 alone, with which they were seen to be needed or whose
 * code is the same there; any other has its own.
 *
 * UCX does not outlive a write that fails. With part of a packet sent, the packet's completion is called
 * twice, otherwise the endpoint may be polled after its end, and either aborts the process ("comp->count >
 * 0", "conn_state != UCT_TCP_EP_CONN_STATE_CLOSED"): a node, when a client died that had asked for large
 * values and left something unread (5 of 600 kills; none of 450 with this file). A
 * read that fails it does handle, and whatever ends a connection makes reads fail too. So writes that fail
 * say "no progress"; the socket is then ready, and is read first.
 *
 * Nor does it outlive an endpoint that is closed by force in the middle of a packet (a session past its
 * deadline, with large values underway). The packet stays, so the socket is told of whenever it can be
 * written. When the other side then says that it has closed too, reading that frees the endpoint, and
 * writing to it comes next. So what has been read first is written only if its socket is still waited for.
 *
 * Nor does it outlive an answer to a client's question that waits for a connection which then fails ("got REP
 * message"). A question that finds the endpoint closed, since its client stopped, or was cut off, in the
 * middle of it, makes UCX connect anew. Whoever serves has connected before it polls, so what would connect
 * while it does gets nowhere.
 *
 * 1.20 alone finds no way over the loopback device: it takes what stands there for an address, a network
 * namespace's number, and looks for a route to it. 1.21 does not look.
 *
 * The dynamic linker finds these before UCX's, since the program or libpenstock.so is searched before libucs.
 * Signatures: ucs/sys/sock.h, the same in all of these versions; ucs/sys/netlink.h, from 1.20 on.
 */
#include "net/ucx/ucx_priv.h"

#include <dlfcn.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <ucs/sys/event_set.h>

#define REPLACES __attribute__((visibility("default")))

REPLACES ucs_status_t ucs_socket_connect(int fd, const struct sockaddr *to);
REPLACES ucs_status_t ucs_socket_send_nb(int fd, const void *data, size_t *bytes);
REPLACES ucs_status_t ucs_socket_sendv_nb(int fd, struct iovec *iov, size_t count, size_t *bytes);
REPLACES ucs_status_t ucs_event_set_del(ucs_sys_event_set_t *set, int fd);
REPLACES ucs_status_t ucs_event_set_wait(ucs_sys_event_set_t *set, unsigned *count, int timeout_ms,
                                         ucs_event_set_handler_t handle, void *arg);
REPLACES int ucs_netlink_is_best_route(int device, const struct sockaddr *to);

static _Thread_local bool answering;
static _Thread_local bool unheard; /* a socket is waited for no more */

/* What UCX has itself. */
static struct {
    void *library;
    uint32_t version;
    bool seen;
    ucs_status_t (*connect)(int, const struct sockaddr *);
    ucs_status_t (*send)(int, const void *, size_t *);
    ucs_status_t (*sendv)(int, struct iovec *, size_t, size_t *);
    ucs_status_t (*del)(ucs_sys_event_set_t *, int);
    ucs_status_t (*wait)(ucs_sys_event_set_t *, unsigned *, int, ucs_event_set_handler_t, void *);
} own;

static void own_find(void)
{
    own.library = dlopen("libucs.so.0", RTLD_LAZY | RTLD_NOLOAD);
    pst_assert(own.library); /* it has called */
    own.version = pst_ucx_version();
    own.seen = pst_ucx_seen(own.version);
    *(void **)(void *)&own.connect = dlsym(own.library, "ucs_socket_connect");
    *(void **)(void *)&own.send = dlsym(own.library, "ucs_socket_send_nb");
    *(void **)(void *)&own.sendv = dlsym(own.library, "ucs_socket_sendv_nb");
    *(void **)(void *)&own.del = dlsym(own.library, "ucs_event_set_del");
    *(void **)(void *)&own.wait = dlsym(own.library, "ucs_event_set_wait");
}

/* Whether UCX's functions are replaced. */
static bool ucx_is_replaced(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, own_find);
    return own.seen;
}

void ucx_sockets_answering(bool now)
{
    pst_assert(answering != now);
    answering = now;
}

ucs_status_t ucs_socket_connect(int fd, const struct sockaddr *to)
{
    socklen_t bytes = to->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    int r;

    if (!ucx_is_replaced())
        return own.connect(fd, to);
    if (answering)
        return UCS_ERR_UNREACHABLE;
    do {
        r = connect(fd, to, bytes);
    } while (r < 0 && errno == EINTR);
    if (r < 0 && errno == EINPROGRESS)
        return UCS_INPROGRESS;
    if (r < 0 && errno == EISCONN)
        return UCS_ERR_ALREADY_EXISTS;
    return r < 0 ? UCS_ERR_UNREACHABLE : UCS_OK;
}

static ucs_status_t send_outcome(ssize_t sent, size_t *bytes)
{
    *bytes = sent > 0 ? (size_t)sent : 0;
    return sent > 0 ? UCS_OK : UCS_ERR_NO_PROGRESS;
}

ucs_status_t ucs_socket_send_nb(int fd, const void *data, size_t *bytes)
{
    if (!ucx_is_replaced())
        return own.send(fd, data, bytes);
    return send_outcome(send(fd, data, *bytes, MSG_NOSIGNAL), bytes);
}

ucs_status_t ucs_socket_sendv_nb(int fd, struct iovec *iov, size_t count, size_t *bytes)
{
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = count};

    if (!ucx_is_replaced())
        return own.sendv(fd, iov, count, bytes);
    return send_outcome(sendmsg(fd, &message, MSG_NOSIGNAL), bytes);
}

ucs_status_t ucs_event_set_del(ucs_sys_event_set_t *set, int fd)
{
    (void)ucx_is_replaced(); /* finds UCX's own */
    unheard = true;
    return own.del(set, fd);
}

struct ready {
    ucs_event_set_handler_t handle;
    void *arg;
};

static void ready_handle(void *endpoint, ucs_event_set_types_t events, void *arg)
{
    const struct ready *ready = arg;
    ucs_event_set_types_t others = events & (ucs_event_set_types_t)~UCS_EVENT_SET_EVWRITE;

    unheard = false;
    if (others)
        ready->handle(endpoint, others, ready->arg);
    if (events != others && !unheard)
        ready->handle(endpoint, UCS_EVENT_SET_EVWRITE, ready->arg);
}

ucs_status_t ucs_event_set_wait(ucs_sys_event_set_t *set, unsigned *count, int timeout_ms,
                                ucs_event_set_handler_t handle, void *arg)
{
    struct ready ready = {.handle = handle, .arg = arg};

    if (!ucx_is_replaced())
        return own.wait(set, count, timeout_ms, handle, arg);
    return own.wait(set, count, timeout_ms, ready_handle, &ready);
}

int ucs_netlink_is_best_route(int device, const struct sockaddr *to)
{
    int (*is_best_route)(int, const struct sockaddr *);
    char name[IF_NAMESIZE];

    if (ucx_is_replaced() && own.version >> 8 == PST_UCX_VERSION(1, 20, 0) >> 8 &&
        if_indextoname((unsigned)device, name) && !strcmp(name, "lo"))
        return 1;
    /* Versions before 1.20 do not call, and have none to find. */
    *(void **)(void *)&is_best_route = dlsym(own.library, "ucs_netlink_is_best_route");
    return is_best_route(device, to);
}

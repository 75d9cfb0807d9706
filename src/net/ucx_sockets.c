/*
 * ucx_sockets.c: functions of UCX's, in place of its own: how its TCP transport connects and writes to a
 * socket.
 *
 * UCX 1.13 does not outlive a write that fails. With part of a packet sent, the packet's completion is called
 * twice, otherwise the endpoint may be polled after its end, and either aborts the process ("comp->count >
 * 0", "conn_state != UCT_TCP_EP_CONN_STATE_CLOSED"): a node, when a client died that had asked for large
 * values and left something unread (5 of 600 kills; none of 450 with this file). A
 * read that fails it does handle, and whatever ends a connection makes reads fail too. So writes that fail
 * say "no progress"; the socket is then ready, and is read first.
 *
 * Nor does it outlive an answer to a client's question that waits for a connection which then fails ("got REP
 * message"). A question that finds the endpoint closed, since its client stopped, or was cut off, in the
 * middle of it, makes UCX connect anew. Whoever serves has connected before it polls, so what would connect
 * while it does gets nowhere.
 *
 * The dynamic linker finds these before UCX's, since the program or libpenstock.so is searched before libucs.
 * Signatures: ucs/sys/sock.h, 1.13.1.
 */
#include "net/ucx_priv.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>

static _Thread_local bool answering;

__attribute__((visibility("default"))) ucs_status_t ucs_socket_send_nb(int fd, const void *data,
                                                                       size_t *bytes);
__attribute__((visibility("default"))) ucs_status_t ucs_socket_sendv_nb(int fd, struct iovec *iov,
                                                                        size_t count, size_t *bytes);

__attribute__((visibility("default"))) ucs_status_t ucs_socket_connect(int fd, const struct sockaddr *to);

void ucx_sockets_answering(bool now)
{
    pst_assert(answering != now);
    answering = now;
}

ucs_status_t ucs_socket_connect(int fd, const struct sockaddr *to)
{
    socklen_t bytes = to->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    int r;

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

static ucs_status_t outcome(ssize_t sent, size_t *bytes)
{
    *bytes = sent > 0 ? (size_t)sent : 0;
    return sent > 0 ? UCS_OK : UCS_ERR_NO_PROGRESS;
}

ucs_status_t ucs_socket_send_nb(int fd, const void *data, size_t *bytes)
{
    return outcome(send(fd, data, *bytes, MSG_NOSIGNAL), bytes);
}

ucs_status_t ucs_socket_sendv_nb(int fd, struct iovec *iov, size_t count, size_t *bytes)
{
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = count};

    return outcome(sendmsg(fd, &message, MSG_NOSIGNAL), bytes);
}

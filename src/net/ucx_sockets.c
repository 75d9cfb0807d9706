/*
 * ucx_sockets.c: two functions of UCX's, in place of its own: how its TCP transport writes to a socket.
 *
 * UCX 1.13 does not outlive a write that fails. With part of a packet sent, the packet's completion is called
 * twice, otherwise the endpoint may be polled after its end, and either aborts the process ("comp->count >
 * 0", "conn_state != UCT_TCP_EP_CONN_STATE_CLOSED"): a node, when a client died that had asked for large
 * values and left something unread (5 of 600 kills; none of 450 with this file). A
 * read that fails it does handle, and whatever ends a connection makes reads fail too. So writes that fail
 * say "no progress"; the socket is then ready, and is read first.
 *
 * The dynamic linker finds these before UCX's, since the program or libpenstock.so is searched before libucs.
 * Signatures: ucs/sys/sock.h, 1.13.1.
 */
#include "net/ucx_priv.h"

#include <sys/socket.h>

__attribute__((visibility("default"))) ucs_status_t ucs_socket_send_nb(int fd, const void *data,
                                                                       size_t *bytes);
__attribute__((visibility("default"))) ucs_status_t ucs_socket_sendv_nb(int fd, struct iovec *iov,
                                                                        size_t count, size_t *bytes);

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

/* SPDX-License-Identifier: Apache-2.0 */
/* connect.c: a socket to a server, without waiting for longer than told. */
#include "files/carry/carry.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>

/* Return: a socket, or -errno. */
static int connect_to(const struct addrinfo *to, uint32_t timeout_ms)
{
    int fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1, error = 0;
    struct pollfd ready = {.fd = fd, .events = POLLOUT};
    socklen_t bytes = sizeof(error);

    if (fd < 0)
        return -errno;
    if (connect(fd, to->ai_addr, to->ai_addrlen) < 0) {
        error = errno;
        if (error == EINPROGRESS) {
            error = ETIMEDOUT;
            if (poll(&ready, 1, (int)timeout_ms) == 1)
                getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
        }
    }
    if (error || fcntl(fd, F_SETFL, 0) < 0) {
        close(fd);
        return error ? -error : -EIO;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return fd;
}

int pst_carry_connect(const char *host, uint16_t port, uint32_t timeout_ms, char fault[PST_FAULT_BYTES])
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    int fd = -EHOSTUNREACH;
    char text[8];

    pst_assert(timeout_ms > 0);
    snprintf(text, sizeof(text), "%u", port);
    if (getaddrinfo(host, text, &hints, &list) != 0)
        list = NULL;
    for (const struct addrinfo *at = list; at && fd < 0; at = at->ai_next)
        fd = connect_to(at, timeout_ms);
    if (list)
        freeaddrinfo(list);
    if (fd < 0)
        snprintf(fault, PST_FAULT_BYTES, "%.200s:%s: %s", host, text, strerror(-fd));
    return fd;
}

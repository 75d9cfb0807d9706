/* SPDX-License-Identifier: Apache-2.0 */
/* peer_socket.c: a blocking connection to HOST:PORT or to a unix socket path. Numeric IPv4 addresses only. */
#include "peer_priv.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int close_failed(int fd)
{
    int r = -errno;

    close(fd);
    return r;
}

static int connect_unix(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd;

    if (strlen(path) >= sizeof(address.sun_path))
        return -ENAMETOOLONG;
    memcpy(address.sun_path, path, strlen(path) + 1);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    return connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0 ? close_failed(fd) : fd;
}

static int connect_tcp(const char *host, const char *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    int nodelay = 1;
    int fd;

    address.sin_port = htons((uint16_t)strtoul(port, NULL, 10));
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1)
        return -EINVAL;
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &nodelay, sizeof(nodelay)) < 0)
        return close_failed(fd);
    return fd;
}

int peer_connect(const char *address)
{
    char host[64];
    const char *colon = strrchr(address, ':');

    if (address[0] == '/')
        return connect_unix(address);
    if (!colon || (size_t)(colon - address) >= sizeof(host))
        return -EINVAL;
    memcpy(host, address, (size_t)(colon - address));
    host[colon - address] = '\0';
    return connect_tcp(host, colon + 1);
}

int peer_send_all(int fd, const char *bytes, size_t byte_count)
{
    while (byte_count > 0) {
        ssize_t sent = send(fd, bytes, byte_count, MSG_NOSIGNAL);

        if (sent < 0)
            return -errno;
        bytes += sent;
        byte_count -= (size_t)sent;
    }
    return 0;
}

ssize_t peer_receive(int fd, char *bytes, size_t room, uint64_t spin_ns)
{
    uint64_t begin_ns = peer_now_ns();
    ssize_t got;

    if (room == 0)
        return -EMSGSIZE;
    do
        got = recv(fd, bytes, room, MSG_DONTWAIT);
    while (got < 0 && errno == EAGAIN && peer_now_ns() - begin_ns < spin_ns);
    if (got < 0 && errno == EAGAIN)
        got = recv(fd, bytes, room, 0);
    if (got < 0)
        return -errno;
    return got == 0 ? -ECONNRESET : got;
}

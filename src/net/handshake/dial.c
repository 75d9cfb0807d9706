/* SPDX-License-Identifier: Apache-2.0 */
/* dial.c: opening the client's socket: each address of the node's name in its turn. Waits for nobody but
 * the name service. */
#include "net/handshake/dial.h"
#include "base/clock.h"
#include "base/ms.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

static int ms_left(uint64_t deadline_ns)
{
    return (int)pst_min(pst_ms_left(deadline_ns, pst_now_ns()), 1000000);
}

void boot_wait(int fd, short what, uint64_t until_ns)
{
    struct pollfd p = {.fd = fd, .events = what};

    pst_assert(fd >= 0);
    poll(&p, 1, ms_left(until_ns));
}

static int dial_errno(int error, const char **fault)
{
    pst_assert(error > 0);
    switch (error) {
    case ECONNREFUSED:
    case ENOENT: /* no such unix socket */
    case ENOTSOCK:
        *fault = "nothing listens there";
        return -ECONNREFUSED;
    case EACCES:
    case EPERM:
        *fault = "no permission for the socket";
        return -EACCES;
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EADDRNOTAVAIL:
        *fault = "no such host";
        return -EHOSTUNREACH;
    case ETIMEDOUT:
        *fault = "no answer in time";
        return -ETIMEDOUT;
    default:
        *fault = "cannot connect";
        return -error;
    }
}

static int add_unix(struct boot_dial *dial, const struct pst_boot_address *address)
{
    struct sockaddr_un un;

    pst_assert(dial->count == 0);
    pst_assert(address->path[0]);
    _Static_assert(sizeof(un) <= sizeof(dial->at[0]), "room for a path");
    boot_address_unix(address, &un);
    memcpy(&dial->at[0], &un, sizeof(un));
    dial->bytes[0] = sizeof(un);
    dial->count = 1;
    return 0;
}

static int add_tcp(struct boot_dial *dial, const struct pst_boot_address *address)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    char port[8];

    pst_assert(dial->count == 0);
    pst_assert(address->port > 0);
    snprintf(port, sizeof(port), "%u", address->port);
    if (getaddrinfo(address->host[0] ? address->host : NULL, port, &hints, &list) != 0)
        return -EHOSTUNREACH;
    for (struct addrinfo *ai = list; ai && dial->count < BOOT_DIAL_MAX; ai = ai->ai_next, dial->count++) {
        pst_assert(ai->ai_addrlen <= sizeof(dial->at[0]));
        memcpy(&dial->at[dial->count], ai->ai_addr, ai->ai_addrlen);
        dial->bytes[dial->count] = ai->ai_addrlen;
    }
    freeaddrinfo(list);
    return dial->count ? 0 : -EHOSTUNREACH;
}

int boot_dial_init(struct boot_dial *dial, const struct pst_boot_address *address, uint64_t deadline_ns,
                   const char **fault)
{
    int r;

    pst_assert(dial && address && fault);
    *dial = (struct boot_dial){.fd = -1, .deadline_ns = deadline_ns, .error = EHOSTUNREACH};
    if (!address->path[0] && address->port == 0) {
        *fault = "invalid port number";
        return -EINVAL;
    }
    r = address->path[0] ? add_unix(dial, address) : add_tcp(dial, address);
    pst_assert(r < 0 || (dial->count > 0 && dial->count <= BOOT_DIAL_MAX));
    return r < 0 ? dial_errno(-r, fault) : 0;
}

/* On loopback the kernel may give a socket the very port that it connects to: with nobody else there, it
 * reaches itself. */
static bool reached_itself(int fd)
{
    struct sockaddr_storage own = {0}, other = {0};
    socklen_t own_bytes = sizeof(own), other_bytes = sizeof(other);

    pst_assert(fd >= 0);
    return getsockname(fd, (struct sockaddr *)&own, &own_bytes) == 0 &&
           getpeername(fd, (struct sockaddr *)&other, &other_bytes) == 0 && own_bytes == other_bytes &&
           memcmp(&own, &other, own_bytes) == 0;
}

/* The time is shared out, so that a silent first address leaves some for the second. */
static int next_socket(struct boot_dial *dial)
{
    uint64_t now_ns = pst_now_ns(), left_ns = dial->deadline_ns > now_ns ? dial->deadline_ns - now_ns : 0;

    pst_assert(dial->next < dial->count);
    pst_assert(dial->fd < 0);
    dial->until_ns = now_ns + left_ns / (dial->count - dial->next);
    dial->fd = socket(dial->at[dial->next].ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    return dial->fd < 0 ? -errno : 0;
}

/* Return: 0, -EAGAIN not yet, -errno. */
static int connect_once(struct boot_dial *dial)
{
    bool local = dial->at[dial->next].ss_family == AF_UNIX;
    int one = 1, r = connect(dial->fd, (struct sockaddr *)&dial->at[dial->next], dial->bytes[dial->next]);

    pst_assert(dial->fd >= 0);
    pst_assert(dial->next < dial->count);
    r = r < 0 && errno != EISCONN ? -errno : 0;
    if (r == -EINPROGRESS || r == -EALREADY || r == -EINTR || r == -EAGAIN)
        return pst_now_ns() < dial->until_ns ? -EAGAIN : -ETIMEDOUT;
    if (r < 0 || local)
        return r;
    setsockopt(dial->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return reached_itself(dial->fd) ? -ECONNREFUSED : 0;
}

int boot_dial_step(struct boot_dial *dial, const char **fault)
{
    for (; dial->next < dial->count; dial->next++) {
        int r = dial->fd < 0 ? next_socket(dial) : 0;

        if (r == 0)
            r = connect_once(dial);
        if (r == 0) {
            int fd = dial->fd;

            dial->fd = -1;
            return fd;
        }
        if (r == -EAGAIN)
            return r;
        dial->error = -r;
        boot_dial_fini(dial);
    }
    pst_assert(dial->fd < 0);
    pst_assert(dial->error > 0);
    return dial_errno(dial->error, fault);
}

void boot_dial_wait(const struct boot_dial *dial, uint64_t until_ns)
{
    pst_assert(dial->fd < 0 || dial->next < dial->count);
    if (dial->fd >= 0 && dial->at[dial->next].ss_family != AF_UNIX)
        boot_wait(dial->fd, POLLOUT, pst_min(until_ns, dial->until_ns));
    else
        poll(NULL, 0, 2); /* a unix socket whose queue is full cannot be waited for */
}

int pst_boot_connect(const struct pst_boot_address *address, uint64_t deadline_ns, const char **fault)
{
    struct boot_dial dial;
    int r = boot_dial_init(&dial, address, deadline_ns, fault);

    if (r < 0)
        return r;
    while ((r = boot_dial_step(&dial, fault)) == -EAGAIN)
        boot_dial_wait(&dial, deadline_ns);
    boot_dial_fini(&dial);
    return r;
}

void boot_dial_fini(struct boot_dial *dial)
{
    pst_close_fd(&dial->fd);
}

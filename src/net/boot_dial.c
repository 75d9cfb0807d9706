/* boot_dial.c: opening the client's socket before a deadline. Blocks, but never past it, name service aside.
 */
#include "net/boot_dial.h"
#include "base/clock.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

static int ms_left(uint64_t deadline_ns)
{
    uint64_t now_ns = pst_now_ns();

    return now_ns >= deadline_ns ? 0 : (int)pst_min(pst_div_up(deadline_ns - now_ns, 1000000), 1000000);
}

int boot_wait(int fd, short what, uint64_t deadline_ns)
{
    struct pollfd p = {.fd = fd, .events = what};

    pst_assert(fd >= 0);
    for (;;) {
        int ms = ms_left(deadline_ns);
        int n = poll(&p, 1, ms);

        if (n > 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n == 0 && ms_left(deadline_ns) == 0)
            return -ETIMEDOUT;
    }
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

static int connect_by(int fd, const struct sockaddr *sa, socklen_t bytes, uint64_t deadline_ns)
{
    socklen_t error_bytes = sizeof(int);
    int error = 0, r;

    pst_assert(fd >= 0 && sa && bytes > 0);
    for (;;) {
        if (connect(fd, sa, bytes) == 0)
            return 0;
        /* A unix socket whose queue is full says EAGAIN and cannot be waited for. */
        if (errno != EAGAIN)
            break;
        if (ms_left(deadline_ns) == 0)
            return -ETIMEDOUT;
        poll(NULL, 0, 2);
    }
    if (errno != EINPROGRESS)
        return -errno;
    r = boot_wait(fd, POLLOUT, deadline_ns);
    if (r < 0)
        return r;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_bytes) != 0)
        return -errno;
    return -error;
}

static int dial_unix(const struct pst_boot_address *address, uint64_t deadline_ns, const char **fault)
{
    struct sockaddr_un un;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int r;

    if (fd < 0)
        return dial_errno(errno, fault);
    boot_address_unix(address, &un);
    r = connect_by(fd, (const struct sockaddr *)&un, sizeof(un), deadline_ns);
    if (r == 0)
        return fd;
    close(fd);
    return dial_errno(-r, fault);
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

static int dial_one(const struct addrinfo *ai, uint64_t deadline_ns)
{
    int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int one = 1, r;

    if (fd < 0)
        return -errno;
    r = connect_by(fd, ai->ai_addr, ai->ai_addrlen, deadline_ns);
    if (r == 0 && reached_itself(fd))
        r = -ECONNREFUSED;
    if (r < 0) {
        close(fd);
        return r;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return fd;
}

static int dial_tcp(const struct pst_boot_address *address, uint64_t deadline_ns, const char **fault)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    int left = 0, r = -EHOSTUNREACH;
    char port[8];

    pst_assert(address->port > 0);
    snprintf(port, sizeof(port), "%u", address->port);
    if (getaddrinfo(address->host[0] ? address->host : NULL, port, &hints, &list) != 0 || !list) {
        *fault = "no such host";
        return -EHOSTUNREACH;
    }
    for (struct addrinfo *ai = list; ai; ai = ai->ai_next)
        left++;
    /* The time is shared out, so that a silent first address leaves some for the second. */
    for (struct addrinfo *ai = list; ai && r < 0; ai = ai->ai_next, left--) {
        uint64_t now_ns = pst_now_ns();
        uint64_t share_ns = deadline_ns > now_ns ? (deadline_ns - now_ns) / (uint64_t)left : 0;

        r = dial_one(ai, now_ns + share_ns);
    }
    freeaddrinfo(list);
    return r < 0 ? dial_errno(-r, fault) : r;
}

int boot_dial(const struct pst_boot_address *address, uint64_t deadline_ns, const char **fault)
{
    pst_assert(address && fault);
    if (address->path[0])
        return dial_unix(address, deadline_ns, fault);
    if (address->port == 0) {
        *fault = "invalid port number";
        return -EINVAL;
    }
    return dial_tcp(address, deadline_ns, fault);
}

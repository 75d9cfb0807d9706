/* SPDX-License-Identifier: Apache-2.0 */
/* link.c: a client's socket, and waiting for it. */
#include "gateway/s3/link/link_priv.h"

#include "base/clock.h"
#include "base/ms.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

enum {
    LINGER_MS = 1000,
    LINGER_BYTES = 4 << 20,
};

/* Until the socket is ready, or the client has been too slow. */
static int link_wait(struct s3_link *link, short events)
{
    uint64_t deadline_ns = link->pace.since_ns + link->patience_ns, left_ms;
    struct pollfd ready = {.fd = link->fd, .events = events};
    int r;

    pst_assert(events != 0);
    left_ms = pst_ms_left(deadline_ns, pst_now_ns());
    r = left_ms ? poll(&ready, 1, (int)pst_min(left_ms, INT32_MAX)) : 0;
    if (r < 0)
        return errno == EINTR ? 0 : -errno;
    return r == 0 ? -ETIMEDOUT : 0;
}

static ssize_t link_try(struct s3_link *link, void *in, const void *out, size_t bytes, short *events)
{
    int flags = MSG_DONTWAIT | MSG_NOSIGNAL | (link->more ? MSG_MORE : 0);
    ssize_t n;

    pst_assert(bytes > 0);
    pst_assert(!in != !out);
    if (link->tls)
        return in ? s3_tls_read(link->tls, in, bytes, events) : s3_tls_write(link->tls, out, bytes, events);
    *events = in ? POLLIN : POLLOUT;
    n = in ? recv(link->fd, in, bytes, MSG_DONTWAIT) : send(link->fd, out, bytes, flags);
    if (n < 0)
        return errno == EINTR || errno == EWOULDBLOCK ? -EAGAIN : -errno;
    return n;
}

/* One of @in and @out is NULL. */
static ssize_t link_move(struct s3_link *link, void *in, const void *out, size_t bytes)
{
    for (;;) {
        short events = 0;
        ssize_t n = link_try(link, in, out, bytes, &events);
        int r;

        pst_assert(n <= (ssize_t)bytes);
        if (n > 0)
            pace_moved(&link->pace, (uint64_t)n, pst_now_ns());
        if (n != -EAGAIN)
            return n;
        r = link_wait(link, events);
        if (r < 0)
            return r;
    }
}

void s3_link_begin(struct s3_link *link)
{
    pace_begin(&link->pace, pst_now_ns());
}

int s3_link_open(struct s3_link *link, int fd, void *tls_context, uint64_t patience_ns)
{
    int r = -EAGAIN;

    pst_assert(fd >= 0);
    pst_assert(patience_ns > 0);
    link->fd = fd;
    link->tls = NULL;
    link->more = false;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)); /* an answer is not held back */
    link->patience_ns = patience_ns;
    link->at = link->bytes = 0;
    s3_link_begin(link);
    if (!tls_context)
        return 0;
    if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
        return -errno;
    link->tls = s3_tls_accept(tls_context, fd);
    while (link->tls && r == -EAGAIN) {
        short events = 0;

        r = s3_tls_start(link->tls, &events);
        if (r == -EAGAIN && link_wait(link, events) < 0)
            r = -ETIMEDOUT;
    }
    return link->tls ? r : -ENOMEM;
}

void s3_link_close(struct s3_link *link)
{
    s3_tls_end(link->tls);
    link->tls = NULL;
}

ssize_t s3_link_fill(struct s3_link *link)
{
    ssize_t n;

    if (link->at > 0 && link->bytes > 0)
        memmove(link->in, link->in + link->at, link->bytes);
    pst_assert(link->at + link->bytes <= sizeof(link->in));
    link->at = 0;
    if (link->bytes == sizeof(link->in))
        return -ENOBUFS;
    n = link_move(link, link->in + link->bytes, NULL, sizeof(link->in) - link->bytes);
    if (n > 0)
        link->bytes += (size_t)n;
    pst_assert(link->bytes <= sizeof(link->in));
    return n;
}

ssize_t s3_link_read(struct s3_link *link, void *buf, size_t bytes)
{
    size_t here = pst_min(link->bytes, bytes);

    pst_assert(bytes > 0);
    if (here == 0)
        return link_move(link, buf, NULL, bytes);
    pst_assert(link->at + here <= sizeof(link->in));
    memcpy(buf, link->in + link->at, here);
    s3_link_take(link, here);
    return (ssize_t)here;
}

int s3_link_write(struct s3_link *link, const void *data, size_t bytes)
{
    const uint8_t *at = data;

    while (bytes > 0) {
        ssize_t n = link_move(link, NULL, at, bytes);

        if (n <= 0)
            return n < 0 ? (int)n : -EPIPE;
        at += n;
        bytes -= (size_t)n;
    }
    return 0;
}

void s3_link_linger(struct s3_link *link)
{
    size_t left = LINGER_BYTES;

    if (link->patience_ns > pst_ns_of_ms(LINGER_MS))
        link->patience_ns = pst_ns_of_ms(LINGER_MS);
    s3_link_begin(link);
    shutdown(link->fd, SHUT_WR);
    link->bytes = 0;
    while (left > 0) {
        uint64_t since_ns = link->pace.since_ns; /* a second in all */
        ssize_t n = link_move(link, link->in, NULL, sizeof(link->in));

        link->pace.since_ns = since_ns;
        if (n <= 0)
            return;
        left -= pst_min(left, (uint64_t)n);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* flow.c: bytes on their way from one socket to another. */
#include "web/flow_priv.h"

#include <sys/socket.h>

void flow_fini(struct flow *flow)
{
    free(flow->data);
    *flow = (struct flow){.ended = true, .shut = true};
}

size_t flow_room(const struct flow *flow)
{
    pst_assert(flow->bytes <= FLOW_BYTES);
    pst_assert(!flow->shut || flow->ended);
    return flow->ended ? 0 : FLOW_BYTES - flow->bytes;
}

/* Makes the room one piece behind what waits. */
static int make_room(struct flow *flow)
{
    if (!flow->data)
        flow->data = malloc(FLOW_BYTES);
    if (!flow->data)
        return -ENOMEM;
    if (flow->at > 0)
        memmove(flow->data, flow->data + flow->at, flow->bytes);
    flow->at = 0;
    return 0;
}

int flow_take(struct flow *flow, const void *data, size_t bytes)
{
    int r;

    if (bytes > flow_room(flow))
        return -ENOBUFS;
    r = make_room(flow);
    if (r < 0)
        return r;
    memcpy(flow->data + flow->bytes, data, bytes);
    flow->bytes += bytes;
    pst_assert(flow->bytes <= FLOW_BYTES);
    return 0;
}

int flow_fill(struct flow *flow, int fd)
{
    ssize_t n;
    int r;

    if (flow_room(flow) == 0)
        return 0;
    r = make_room(flow);
    if (r < 0)
        return r;
    n = recv(fd, flow->data + flow->bytes, FLOW_BYTES - flow->bytes, MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    flow->bytes += (size_t)n;
    flow->moved += (size_t)n;
    pst_assert(flow->at == 0);
    pst_assert(flow->bytes <= FLOW_BYTES);
    flow->ended = n == 0;
    return 0;
}

int flow_drain(struct flow *flow, int fd)
{
    pst_assert(flow->at + flow->bytes <= FLOW_BYTES);
    pst_assert(flow->data || flow->bytes == 0);
    while (flow->bytes > 0) {
        ssize_t n = send(fd, flow->data + flow->at, flow->bytes, MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? 0 : -errno;
        flow->at += (size_t)n;
        flow->bytes -= (size_t)n;
        flow->moved += (size_t)n;
        pst_assert(flow->at <= FLOW_BYTES);
    }
    flow->at = 0;
    if (flow->ended && !flow->shut) {
        flow->shut = true;
        shutdown(fd, SHUT_WR);
    }
    return 0;
}

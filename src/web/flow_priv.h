/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flow_priv.h: one direction of a connection that is passed on: bytes wait here until the socket takes them,
 * and then the end of the stream does. Bounded; one thread.
 */
#ifndef PST_WEB_FLOW_PRIV_H
#define PST_WEB_FLOW_PRIV_H

#include "base/base.h"

enum { FLOW_BYTES = 64 << 10 };

struct flow {
    uint8_t *data; /* NULL until the first byte waits */
    size_t at, bytes;
    uint64_t moved; /* bytes that came in from a socket, and that went out to one */
    bool ended;     /* nothing more comes in */
    bool shut;      /* the socket has all of it, and the end */
};

void flow_fini(struct flow *flow);
size_t flow_room(const struct flow *flow);
/* Return: 0, -ENOBUFS it does not fit, -ENOMEM. */
int flow_take(struct flow *flow, const void *data, size_t bytes);
/* Receives what there is room for. Return: 0, -errno; at the end of the stream flow->ended is set. */
int flow_fill(struct flow *flow, int fd);
/* Sends what the socket takes. Return: 0 or -errno. */
int flow_drain(struct flow *flow, int fd);

static inline bool flow_waits(const struct flow *flow)
{
    return flow->bytes > 0 || (flow->ended && !flow->shut);
}

#endif

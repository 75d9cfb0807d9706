/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pace_priv.h: whether a peer moves what it has to move. It may be as slow as PACE_BYTES in the time that the
 * door is patient; bytes count that it has sent, or that the socket has taken for it. Pure; any thread.
 */
#ifndef PST_GATEWAY_PACE_PRIV_H
#define PST_GATEWAY_PACE_PRIV_H

#include <stdbool.h>
#include <stdint.h>

enum { PACE_BYTES = 64 << 10 };

struct pace {
    uint64_t since_ns;
    uint64_t bytes; /* moved since then */
};

static inline void pace_begin(struct pace *pace, uint64_t now_ns)
{
    *pace = (struct pace){.since_ns = now_ns};
}

static inline void pace_moved(struct pace *pace, uint64_t bytes, uint64_t now_ns)
{
    pace->bytes += bytes;
    if (pace->bytes >= PACE_BYTES)
        pace_begin(pace, now_ns);
}

static inline bool pace_lost(const struct pace *pace, uint64_t now_ns, uint64_t patience_ns)
{
    return now_ns > pace->since_ns && now_ns - pace->since_ns > patience_ns;
}

#endif

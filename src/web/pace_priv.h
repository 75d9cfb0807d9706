/* SPDX-License-Identifier: Apache-2.0 */
/* pace_priv.h: how far a peer has come in the time that it has. Pure. */
#ifndef PST_WEB_PACE_PRIV_H
#define PST_WEB_PACE_PRIV_H

#include "base/base.h"

enum {
    PACE_BYTES = 64 << 10, /* that a peer moves in the time it has, */
    PACE_PARTS = 60,       /* or such a part of all of it, if that is more */
};

struct pace {
    uint64_t since_ns;
    size_t bytes, least; /* moved since then, and to be moved for the time to begin anew */
};

/* @bytes: to be moved in all. */
static inline void pace_begin(struct pace *pace, size_t bytes, uint64_t now_ns)
{
    *pace = (struct pace){.since_ns = now_ns, .least = pst_max(bytes / PACE_PARTS, PACE_BYTES)};
}

static inline void pace_moved(struct pace *pace, size_t bytes, uint64_t now_ns)
{
    pace->bytes += bytes;
    if (pace->bytes >= pace->least)
        *pace = (struct pace){.since_ns = now_ns, .least = pace->least};
}

#endif

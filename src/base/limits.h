/* SPDX-License-Identifier: Apache-2.0 */
/* limits.h: how long a key and its attributes may be, and how high a generation, in memory, on disk and on
 * the wire alike; penstock.h tells users. */
#ifndef PST_LIMITS_H
#define PST_LIMITS_H

enum {
    PST_KEY_BYTES_MAX = 4096,
    PST_ATTR_BYTES_MAX = 256,
};

#define PST_GENERATION_MAX (1ull << 63) /* the clock gets there in 2262 */
/* Whatever a peer says, later generations fit behind its: the clock gets here in 2116. */
#define PST_GENERATION_PEER_MAX (PST_GENERATION_MAX / 2)
/* A log's value has counted on from a peer's. */
#define PST_GENERATION_LOG_MAX (PST_GENERATION_MAX / 8 * 5)
/* A marker is ahead of all of them, and leaves as much to count on. */
#define PST_GENERATION_MARKER_MAX (PST_GENERATION_MAX / 4 * 3)

_Static_assert(PST_GENERATION_PEER_MAX < PST_GENERATION_LOG_MAX, "a log counts on from a peer's");
_Static_assert(PST_GENERATION_LOG_MAX < PST_GENERATION_MARKER_MAX, "a marker is ahead of a log's");
_Static_assert(PST_GENERATION_MARKER_MAX < PST_GENERATION_MAX, "a shard counts on from a marker");

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stored.h: what a keeper keeps of a pool: the pool map, as nodes and clients are told it, and behind it what
 * the next master alone is to know. Included by the master.
 *
 *   the pool map (pool/map.h)  u32 "psth"  u32 lease_ms  u32 crc32c of these two
 *
 * lease_ms: of the leases that may be out none is longer. What an older program stored ends with the pool
 * map.
 */
#ifndef PST_STORED_H
#define PST_STORED_H

#include "pool/map.h"

enum { PST_STORED_END_BYTES = 12 };

static inline size_t pst_stored_bytes_max(uint32_t members_max)
{
    return pst_map_bytes_max(members_max) + PST_STORED_END_BYTES;
}

/* Behind a pool map. */
void pst_stored_put_end(uint8_t to[PST_STORED_END_BYTES], uint64_t lease_ms);
/* Takes the end off @stored, so that the pool map is left. Return: lease_ms; 0: there is no such end. */
uint64_t pst_stored_take_end(struct pst_bytes *stored);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keys.h: many keys of one shard, in order. Whoever lists or sweeps a prefix includes it.
 */
#ifndef PST_STORE_KEYS_H
#define PST_STORE_KEYS_H

#include "base/limits.h"
#include "store/shard.h"
#include "wire/wire.h"

/* Keys in [start, end) in order; an empty end: no end. With @after, start itself is left out. */
struct pst_range {
    struct pst_bytes start;
    struct pst_bytes end;
    bool after;
    bool (*wanted)(void *ctx,
                   struct pst_bytes key); /* a sweep leaves other keys, and counts them; NULL: all are */
    bool (*counts)(void *ctx, struct pst_bytes key); /* what it deletes is a key's value; NULL: all is */
    void *ctx;
};

/*
 * Writes the range's first keys into @buf as struct pst_wire_entry, each with its key, as many as fit.
 * Return: bytes written, -ENOBUFS not even one fits. *@end: the range's end was reached.
 */
int64_t pst_shard_list(struct pst_shard *shard, const struct pst_range *range, void *buf, size_t room,
                       bool *end);

enum { PST_SWEEP_BYTES_MAX = sizeof(struct pst_wire_sweep) + PST_KEY_BYTES_MAX };

/*
 * Deletes keys of the range, a bounded number at a time. @spare_pinned: those with a pin stay until their
 * last pin goes.
 * @buf gets a struct pst_wire_sweep and the key behind which to go on. Return: bytes written; 0: busy, a
 * commit underway holds the first key.
 */
size_t pst_shard_sweep(struct pst_shard *shard, const struct pst_range *range, bool spare_pinned,
                       uint64_t now_ns, uint8_t buf[PST_SWEEP_BYTES_MAX]);

#endif

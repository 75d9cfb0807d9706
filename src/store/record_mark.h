/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record_mark.h: a record as a restart finds it: whole, or not. Whoever completes records or ends them
 * includes it, and who looks for them after a restart.
 */
#ifndef PST_STORE_RECORD_MARK_H
#define PST_STORE_RECORD_MARK_H

#include "store/record.h"

#include <stdatomic.h>

/* The checksum that a record at @offset should carry, never 0; @seed keeps stored bytes from posing as
 * records. */
uint32_t pst_record_check(const struct pst_record *r, uint32_t seed, uint64_t offset);

/* Says that the record is whole, or with 0 that it is gone: behind all that was written before, and before
 * all that is done later, as far as this thread's end is concerned. A stub has no checksum. */
static inline void pst_record_mark(struct pst_record *r, uint32_t check)
{
    if (pst_unlikely(r->flags & PST_RECORD_ON_DISK))
        return;
    atomic_signal_fence(memory_order_seq_cst);
    r->check = check;
    atomic_signal_fence(memory_order_seq_cst);
}

#endif

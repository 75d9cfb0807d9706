/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sum_priv.h: checksums of a value's blocks, computed in steps of some microseconds. append.c makes them,
 * read.c compares them; both include it.
 */
#ifndef PST_LOG_SUM_PRIV_H
#define PST_LOG_SUM_PRIV_H

#include "base/base.h"

#include <sys/uio.h>

/* Pieces of memory, one after the other. */
struct pst_cursor {
    const struct iovec *iov;
    uint64_t skip;
};

struct pst_sum {
    struct pst_cursor at;
    uint64_t left_bytes;
    uint32_t block_bytes, crc; /* of the block so far */
};

/* The checksum of the next @bytes, behind those that have @crc. */
uint32_t pst_cursor_crc(struct pst_cursor *c, uint32_t crc, uint64_t bytes);
/* Return: whether a block has ended, whose checksum is *@crc. */
bool pst_sum_step(struct pst_sum *sum, uint32_t *crc);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* pool_share.h: what a process that has a share of a pool's directory tells the leading master. */
#ifndef PST_WIRE_POOL_SHARE_H
#define PST_WIRE_POOL_SHARE_H

#include "wire/pool.h"

/* The result's generation is the version of the pool map. */
struct pst_pool_share {
    uint8_t pool[PST_POOL_ID_BYTES]; /* whose pool map it has; zeros: none yet */
    uint64_t start;                  /* drawn by the process */
    uint8_t share;                   /* from 1 on */
    uint8_t spare[7];
    char address[PST_POOL_ADDRESS_BYTES]; /* where it is reached, with its NUL */
};
_Static_assert(sizeof(struct pst_pool_share) == 160, "pool share");

/* Return: 0 or -EPROTO, also for an address that does not print. */
int pst_pool_get_share(struct pst_bytes from, struct pst_pool_share *share);

#endif

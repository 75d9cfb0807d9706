/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quota.h: what all holders of a session keep in a store, and may. A node counts transfers and views in it,
 * the store reservations and pins. Several quotas may count in one above them, too, which has bounds of its
 * own. Threads: any.
 */
#ifndef PST_STORE_QUOTA_H
#define PST_STORE_QUOTA_H

#include "base/base.h"

#include <stdatomic.h>

struct pst_quota {
    _Atomic uint64_t reservations_max, pins_max, bytes_max; /* 0: no limit */
    struct pst_quota *above;                                /* NULL: none */
    _Atomic uint64_t reservations;                          /* reserved and not yet committed */
    _Atomic uint64_t pins;                                  /* hard pins made that are there */
    _Atomic uint64_t bytes; /* of values kept by reservations and views, and underway */
    _Atomic uint64_t kept;  /* those of them that are not underway */
};

/*
 * Count against a limit; *underway* are bytes on their way into the store or out of it. @quota may be NULL.
 * Return: 0; nothing is counted with -EDQUOT, or with PST_BUSY when there will be room as soon as values
 * underway have come or gone.
 */
int pst_quota_take_reservation(struct pst_quota *quota);
int pst_quota_take_pin(struct pst_quota *quota);
int pst_quota_take_bytes(struct pst_quota *quota, uint64_t bytes);
int pst_quota_take_underway(struct pst_quota *quota, uint64_t bytes);
void pst_quota_give_reservation(struct pst_quota *quota);
void pst_quota_give_pins(struct pst_quota *quota, uint64_t count);
void pst_quota_give_bytes(struct pst_quota *quota, uint64_t bytes);
void pst_quota_give_underway(struct pst_quota *quota, uint64_t bytes);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order.h: the ordered index of one shard, for listing and for ranges: a B+ tree whose leaves hold only
 * references (the keys stay in their records). One thread. Order: memcmp, then length.
 */
#ifndef PST_ORDER_H
#define PST_ORDER_H

#include "base/base.h"

struct pst_order;

/* @key_of gives the key of a reference, borrowed until its record changes. Return: 0 or -ENOMEM. */
int pst_order_open(struct pst_bytes (*key_of)(void *ctx, uint64_t ref), void *ctx, struct pst_order **out);
struct pst_order *pst_order_close(struct pst_order *order);

/* @key is the key of @ref and absent. Return: 0 or -ENOMEM (nothing changed). */
int pst_order_insert(struct pst_order *order, struct pst_bytes key, uint64_t ref);
/* Return: 0 or -ENOENT. */
int pst_order_remove(struct pst_order *order, struct pst_bytes key);
int pst_order_replace(struct pst_order *order, struct pst_bytes key, uint64_t new_ref);

/* A place between two keys; valid until the next change of the order. */
struct pst_order_cursor {
    void *leaf;
    uint32_t at;
};

/* The first key >= @key (or > @key with @after). */
struct pst_order_cursor pst_order_seek(struct pst_order *order, struct pst_bytes key, bool after);
/* Return: the next reference in order, 0 at the end. */
uint64_t pst_order_next(struct pst_order *order, struct pst_order_cursor *cursor);

uint64_t pst_order_count(const struct pst_order *order);
uint64_t pst_order_memory_bytes(const struct pst_order *order);

#endif

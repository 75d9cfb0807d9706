/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order_priv.h: the nodes of the ordered index, between order.c (the tree) and order_node.c (one or two
 * nodes).
 *
 * A *separator* is the shortest string that is above every key to its left and not above any to its right;
 * nodes own copies, since the keys it was cut from may go away. The two separators around a leaf begin alike,
 * and so do all keys that can ever lie in it: that many bytes are the leaf's *prefix*. The *head* of a key is
 * the few bytes after the prefix, zero-padded; heads order as keys do, so only equal heads need a look at
 * whole keys.
 */
#ifndef PST_ORDER_PRIV_H
#define PST_ORDER_PRIV_H

#include "store/index/order.h"

enum {
    PST_ORDER_MAGIC = 0x0bde4a61,
    PST_LEAF_MAGIC = 0x1eaf4a62,
    PST_LEAF_MAX = 252,
    PST_LEAF_MIN = PST_LEAF_MAX / 4,          /* fewer: joins a sibling */
    PST_LEAF_JOIN_MAX = PST_LEAF_MAX * 3 / 4, /* a joined leaf should not split at once */
    PST_LEAF_SHIFT_MIN = 12,                  /* a sibling with fewer free entries counts as full */
    PST_CHILD_MAX = 128,
    PST_CHILD_MIN = PST_CHILD_MAX / 4,
    PST_ORDER_HEIGHT_MAX = 12, /* never reached: each level has 32 times the nodes */
    PST_ORDER_KEY_BYTES_MAX = 4096,
};

struct pst_separator {
    uint16_t len;
    uint8_t data[];
};

struct pst_leaf {
    struct pst_leaf *next;
    uint32_t magic;
    uint16_t count;
    uint16_t prefix;                /* bytes that all keys share */
    uint64_t entries[PST_LEAF_MAX]; /* head: 24 bits, reference: 40 bits */
};
_Static_assert(sizeof(struct pst_leaf) <= 2048 - 16, "a leaf and what malloc adds are 2 KiB");

struct pst_inner {
    uint16_t count;                                      /* of children; one separator less */
    uint16_t prefix;                                     /* bytes that all separators share */
    uint64_t heads[PST_CHILD_MAX - 1];                   /* 64 bits of separator after the prefix */
    struct pst_separator *separators[PST_CHILD_MAX - 1]; /* separators[i] is between children i and i + 1 */
    void *children[PST_CHILD_MAX];                       /* inner nodes or leaves, by level */
};

struct pst_order {
    uint32_t magic;
    uint32_t height; /* levels of inner nodes; 0: the root is a leaf */
    struct pst_bytes (*key_of)(void *ctx, uint64_t ref);
    void *ctx;
    void *root;
    uint64_t count;
    uint64_t memory_bytes;
};

/* The way from the root to a leaf: inner nodes, root first, and which child was taken. */
struct pst_order_path {
    struct pst_inner *nodes[PST_ORDER_HEIGHT_MAX];
    uint32_t at[PST_ORDER_HEIGHT_MAX];
    struct pst_leaf *leaf;
};

static inline uint64_t pst_leaf_ref(uint64_t entry)
{
    return entry & ((1ull << 40) - 1);
}

static inline struct pst_bytes pst_order_key(const struct pst_order *order, uint64_t entry)
{
    return order->key_of(order->ctx, pst_leaf_ref(entry));
}

static inline struct pst_bytes pst_separator_bytes(const struct pst_separator *separator)
{
    return (struct pst_bytes){separator->data, separator->len};
}

/* Memory that counts. Take: NULL without memory. Give: NULL is fine. */
void *pst_order_take(struct pst_order *order, size_t bytes);
void *pst_order_give(struct pst_order *order, void *p, size_t bytes);

/* The shortest separator of two neighbours, @left < @right. Return: NULL without memory. */
struct pst_separator *pst_separator_new(struct pst_order *order, struct pst_bytes left,
                                        struct pst_bytes right);
void pst_separator_free(struct pst_order *order, struct pst_separator *separator);
/* Bytes that two separators share; NULL, an open end, shares none. */
uint32_t pst_separators_prefix(const struct pst_separator *a, const struct pst_separator *b);

struct pst_leaf *pst_leaf_new(struct pst_order *order);
/* Return: where @key is, or with *@found false where it belongs. */
uint32_t pst_leaf_find(const struct pst_order *order, const struct pst_leaf *leaf, struct pst_bytes key,
                       bool *found);
void pst_leaf_insert(struct pst_leaf *leaf, uint32_t at, struct pst_bytes key, uint64_t ref);
void pst_leaf_replace(struct pst_leaf *leaf, uint32_t at, uint64_t ref);
void pst_leaf_remove(struct pst_leaf *leaf, uint32_t at);
/* Moves entries between neighbours until @left has @left_count; then both need pst_leaf_rehead(). */
void pst_leaves_divide(struct pst_leaf *left, struct pst_leaf *right, uint32_t left_count);
/* Computes heads anew for another prefix, or with @force in any case. */
void pst_leaf_rehead(const struct pst_order *order, struct pst_leaf *leaf, uint32_t prefix, bool force);

struct pst_inner *pst_inner_new(struct pst_order *order);
/* Return: the child that holds @key or should. */
uint32_t pst_inner_find(const struct pst_inner *inner, struct pst_bytes key);
/* Makes @child the right neighbour of child @at, with @separator between the two. There is room. */
void pst_inner_insert(struct pst_inner *inner, uint32_t at, struct pst_separator *separator, void *child);
/* Takes child @at + 1 and the separator before it out. Return: the separator. */
struct pst_separator *pst_inner_remove(struct pst_inner *inner, uint32_t at);
/* Return: the separator that was at @at. */
struct pst_separator *pst_inner_replace(struct pst_inner *inner, uint32_t at,
                                        struct pst_separator *separator);
/*
 * Moves children between neighbours until @left has @left_count (all: @right ends up empty). @middle is the
 * separator between the two. Return: the new one, NULL when @right is empty.
 */
struct pst_separator *pst_inners_divide(struct pst_inner *left, struct pst_inner *right, uint32_t left_count,
                                        struct pst_separator *middle);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slab_priv.h: a slab set from within: classes, pages and blocks. The slab files of mem/ and their tests
 * include it.
 *
 * A *block* is a span or a whole page cut into cells of one class. A class lists its blocks that have a free
 * cell; its first block serves until it is full. A set finds the page of an offset by offset / page_bytes.
 */
#ifndef PST_MEM_SLAB_PRIV_H
#define PST_MEM_SLAB_PRIV_H

#include "base/list.h"
#include "mem/slab.h"

enum {
    PST_SLAB_CLASSES_MAX = 208,      /* half of the largest page is class 202 */
    PST_SLAB_OWNED_BYTES_MIN = 2048, /* cells from here on carry an owner */
    PST_SLAB_SHARES = 64,            /* lists of pages by used share */
};

/* Division of 32-bit numbers by one that stays: a multiplication. The divisor is 2 or more. */
struct pst_divisor {
    uint64_t inverse;
};

static inline struct pst_divisor pst_divisor_of(uint32_t n)
{
    pst_assert(n >= 2);
    return (struct pst_divisor){.inverse = UINT64_MAX / n + 1};
}

static inline uint32_t pst_divide(uint32_t n, struct pst_divisor by)
{
    return (uint32_t)(((unsigned __int128)by.inverse * n) >> 64);
}

struct pst_slab_class {
    uint32_t cell_bytes;
    uint32_t cell_count;        /* in a block */
    struct pst_divisor divisor; /* by cell_bytes */
    struct pst_list partial;
};

/* Kept small: beside a 64 KiB span of 112-byte cells it and its bitmap cost 0.22 bytes a cell. */
struct pst_slab_block {
    struct pst_list node; /* in its class's partial list, or in none */
    struct pst_slab_page *page;
    uint32_t used_count;
    uint32_t word_hint; /* no word of the bitmap before it has a free cell */
    uint32_t start;     /* of the first cell, inside the page */
    uint8_t slab_class;
    uint8_t span;
    uint64_t words[]; /* free bitmap, 1: free; then, for classes that have them, the owners */
};

struct pst_slab_page {
    struct pst_list share_node; /* by used share, or among the held */
    struct pst_list spans_node; /* in spans_free, or in none */
    uint64_t offset;
    uint32_t page;
    uint32_t bytes_used;
    uint32_t bytes_max;   /* all its cells together */
    uint32_t share_start; /* bytes_used in [share_start, share_start + share_bytes) stays in one share list */
    uint32_t share_bytes;
    uint32_t spans_free; /* bit set */
    bool has_spans;
    bool held;
    struct pst_slab_block *blocks[]; /* one a span, or a single one */
};

struct pst_slab {
    struct pst_arenas *arenas;
    struct pst_pages *pages;
    uint16_t shard;
    uint32_t class_count;
    uint32_t span_classes; /* classes below this come from spans */
    uint32_t span_count;   /* in a page */
    uint32_t span_bytes;
    uint32_t frame_count;
    struct pst_divisor page_divisor; /* by page_bytes / 4096, for offsets / 4096 */
    struct pst_divisor span_divisor; /* by span_bytes */
    struct pst_slab_page **frames;   /* by offset / page_bytes; untouched parts cost no memory */
    struct pst_list spans_free;      /* SPANS pages with a free span */
    struct pst_list held;
    struct pst_list shares[PST_SLAB_SHARES];
    struct pst_slab_stat stat;
    struct pst_slab_class classes[PST_SLAB_CLASSES_MAX];
};

/* slab_class.c */
void pst_slab_classes_init(struct pst_slab *slab, uint64_t page_bytes);

/* slab_page.c: pages and blocks come and go. */
int pst_slab_grow(struct pst_slab *slab,
                  uint32_t slab_class); /* 0: the class has a partial block; -ENOSPC, -ENOMEM */
void pst_slab_shrink(struct pst_slab *slab, struct pst_slab_block *empty);
/* The block that a page's descriptor tells of, with page new in the set if need be. Return: 0, -EEXIST the
 * page is someone else's, -ENOMEM. */
int pst_slab_adopt(struct pst_slab *slab, uint32_t page, const struct pst_slab_cut *cut,
                   struct pst_slab_block **out);
void pst_slab_page_shared(struct pst_slab *slab, struct pst_slab_page *page); /* bytes_used left its share */
void pst_slab_page_free(struct pst_slab_page *page);                          /* heap only */

/* The page of this set at @offset, or NULL. */
static inline struct pst_slab_page *pst_slab_page_at(const struct pst_slab *slab, uint64_t offset)
{
    uint32_t frame = pst_divide((uint32_t)(offset >> 12), slab->page_divisor);

    return offset >> 44 || frame >= slab->frame_count ? NULL : slab->frames[frame];
}

static inline bool pst_slab_is_free(const struct pst_slab_block *block, uint32_t cell)
{
    return block->words[cell / 64] >> (cell % 64) & 1;
}

#endif

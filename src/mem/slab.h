/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slab.h: cells for records and values of half a page and less. Files that take or give cells include it.
 *
 * One shard owns a slab set; one thread.
 * Classes: 8-byte steps to 288, then eight steps an octave ((8+i) << k) to half a page: every multiple of 4
 * KiB up to 64 KiB is a class, and cells of such classes are 4 KiB aligned. (With a cell_shift of 4 16-byte
 * steps to 576.) Classes of a span's sixteenth and less are carved from *spans* (64 KiB parts of a page),
 * larger ones from whole pages. All book-keeping is on the heap and in the page descriptors: no header in the
 * page.
 */
#ifndef PST_MEM_SLAB_H
#define PST_MEM_SLAB_H

#include "mem/arena.h"
#include "mem/pages.h"

struct pst_slab;

int pst_slab_open(struct pst_arenas *arenas, struct pst_pages *pages, uint16_t shard, struct pst_slab **out);
struct pst_slab *pst_slab_close(struct pst_slab *slab); /* gives no pages back: the arena goes with it */

/* The smallest class that holds @bytes, which are at most pst_slab_bytes_max(). */
uint32_t pst_slab_class_of(const struct pst_slab *slab, uint64_t bytes);
uint32_t pst_slab_class_bytes(const struct pst_slab *slab, uint32_t slab_class);
uint64_t pst_slab_bytes_max(const struct pst_slab *slab); /* half a page */

/* Return: 0 and *@offset, -ENOSPC no page left for a new slab page, -ENOMEM no heap for its book-keeping. */
int pst_slab_take(struct pst_slab *slab, uint64_t bytes, uint64_t *offset);
/* Whether a take of @bytes is served by the pages that the set has. */
bool pst_slab_has_room(const struct pst_slab *slab, uint64_t bytes);
/* Frees the cell at @offset, which was taken with @bytes of the same class. A span or a page that becomes
 * empty goes back at once. */
void pst_slab_give(struct pst_slab *slab, uint64_t offset);
/* Size of the cell that holds @offset; 0 when it is no taken cell of this set. */
uint32_t pst_slab_cell_bytes(const struct pst_slab *slab, uint64_t offset);

/*
 * What an earlier process left: how part @part of a page was cut, by the page's descriptor; one part, or with
 * spans up to PST_PAGE_SPANS_MAX. Return: false: no cells of this set there.
 */
struct pst_slab_cut {
    uint64_t offset; /* of the first cell */
    uint32_t cell_bytes, cell_count;
};
bool pst_slab_cut(const struct pst_slab *slab, uint32_t page, uint32_t part, struct pst_slab_cut *out);
/* Takes the cell that begins at @offset and holds @bytes. Return: 0, -EINVAL there is no such cell, -EEXIST
 * it is taken, or its page is, -ENOMEM. */
int pst_slab_claim(struct pst_slab *slab, uint64_t offset, uint64_t bytes);

/*
 * Owners: a cell may carry a 64-bit word for whoever must be told when it moves (0: none). Only kept for
 * cells of 2 KiB and more.
 */
void pst_slab_set_owner(struct pst_slab *slab, uint64_t offset, uint64_t owner);
uint64_t pst_slab_owner(const struct pst_slab *slab, uint64_t offset);

/*
 * The slab page of this set with the smallest used share (to within a 64th) of at most @used_percent, for
 * taking back: its page number, or -ENOENT. Cells are not taken from it, nor is it named again, until
 * pst_slab_page_keep() or it has emptied.
 */
int64_t pst_slab_sparse_page(struct pst_slab *slab, uint32_t used_percent);
void pst_slab_page_keep(struct pst_slab *slab, uint32_t page);
/* No cell of the page is taken any more. Harmless for one that is not the set's. */
void pst_slab_page_hold(struct pst_slab *slab, uint32_t page);
/* Offsets of taken cells of @page, at most @max, from the first on. Return: their number. */
uint32_t pst_slab_page_cells(const struct pst_slab *slab, uint32_t page, uint64_t *offsets, uint32_t max);

struct pst_slab_stat {
    uint64_t pages;
    uint64_t bytes_used; /* of taken cells */
};
void pst_slab_stat(const struct pst_slab *slab, struct pst_slab_stat *out);

#endif

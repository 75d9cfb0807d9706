/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory_priv.h: a record's memory: its reservation, pages and tail. Files that make, move or free records
 * include it. Unless said otherwise the functions are evict/memory.c's.
 */
#ifndef PST_STORE_MEMORY_PRIV_H
#define PST_STORE_MEMORY_PRIV_H

#include "mem/pages.h"
#include "store/kept.h"
#include "store/record.h"

#include <sys/uio.h>

struct pst_put;
struct pst_shard;
struct pst_slab;

enum {
    PST_RUNS_MAX = 16384,       /* runs of one value, unless its record has room for fewer */
    PST_OWNER_BYTES_MIN = 2048, /* cells from this size on carry an owner word */
};

#define PST_TAIL_STAYS UINT64_MAX

/* Owner words: the record's reference, and whether the cell is its tail. */
#define PST_OWNER_TAIL (1ull << 63)

/* What a write takes. */
struct pst_wanted {
    uint32_t pages, runs_max;
    uint32_t spare; /* pages that it leaves free */
    bool joins;     /* as few runs as that are free once what may go has gone */
};

/* How many whole pages a value takes at the least. */
uint32_t pst_value_pages(const struct pst_shard *s, uint64_t value_bytes);
/* How many pages a put takes, with those for cells that the slab pages have no room for. */
uint32_t pst_put_pages(const struct pst_shard *s, const struct pst_put *put);
/* How many pages of its own a record has. */
uint32_t pst_record_pages(const struct pst_record *r);
/* How many runs of pages the put's record has room for. */
uint32_t pst_put_runs_max(const struct pst_shard *s, const struct pst_put *put);
/* Takes cell, pages and tail for a record of this shape and fills all of it but the value. Return: 0,
 * -ENOSPC, -E2BIG the free pages are too scattered for one record, -ENOMEM. */
int pst_record_take(struct pst_shard *s, const struct pst_put *put, bool cache, struct pst_record **out);
/*
 * The same for a value that lies in pages already, as few as hold it. A last one that is half empty moves to
 * a cell if there is one. @runs is the caller's to forget on success.
 */
int pst_record_take_pages(struct pst_shard *s, const struct pst_put *put, bool cache, struct pst_run *runs,
                          uint32_t run_count, struct pst_record **out);
/* Copies the whole value into a record that is being written. */
void pst_record_fill(const struct pst_shard *s, const struct pst_record *r, const uint8_t *value);
/* The contiguous piece at @offset of pages that no record names yet, at most @bytes of it. */
struct iovec pst_runs_piece(const struct pst_shard *s, const struct pst_run *runs, uint32_t run_count,
                            uint64_t offset, uint64_t bytes);
/* Pages for a value that is still written, and back; with what the arena's trailer says of them. Return:
 * runs, -ENOSPC, -E2BIG. */
int pst_runs_take(struct pst_shard *s, uint32_t pages, struct pst_run *runs, uint32_t runs_max);
void pst_runs_give(struct pst_shard *s, const struct pst_run *runs, uint32_t run_count);
/* Takes the pages that a record of an earlier process names. Return: 0, -ERANGE there are no such ones,
 * -EEXIST. */
int pst_runs_claim(struct pst_shard *s, const struct pst_run *runs, uint32_t run_count);
/* Tells the record's cells whose they are. */
void pst_record_own_cells(struct pst_shard *s, struct pst_record *r);
/* The word by which the record becomes whole, or with 0 goes. */
struct pst_word pst_record_word(const struct pst_shard *s, const struct pst_record *r, uint32_t check);
/* Gives back what a record has outside of its cell. */
void pst_record_give_value(struct pst_shard *s, const struct pst_record *r);
/* Gives all of a record's memory back. */
void pst_record_give(struct pst_shard *s, struct pst_record *r);
/* Moves a record to the cell at @offset, and its tail to the one at @tail_offset if that does not stay: both
 * are the shard's. Tells everyone who refers to it; those that it had go back to @from_slab. A process that
 * ends meanwhile leaves one of the two whole, or both. */
void pst_record_move(struct pst_shard *s, struct pst_record *r, uint64_t offset, uint64_t tail_offset,
                     struct pst_slab *from_slab);
/* Empties the sparsest slab page that can be, by moving or evicting what it holds. Return: true when a page
 * became free. */
bool pst_shard_take_back(struct pst_shard *s, uint32_t used_percent);

#endif

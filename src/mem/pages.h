/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pages.h: the bitmap of a node's free pages, which all shards share. Files that take, give or name whole
 * pages include it.
 */
#ifndef PST_MEM_PAGES_H
#define PST_MEM_PAGES_H

#include "base/base.h"

#include <pthread.h>
#include <stdatomic.h>

/* A run of pages, contiguous within one arena. */
struct pst_run {
    uint32_t page;
    uint32_t count;
};

/* One lock per call, never per small value. Any thread. */
struct pst_pages {
    pthread_mutex_t lock;
    uint64_t *free_bits; /* 1: free */
    uint64_t *held_bits; /* 1: does not become free; NULL: there is none */
    uint32_t page_count;
    uint32_t arena_pages;
    uint32_t hint;               /* no page before it is free */
    _Atomic uint32_t free_count; /* read without the lock by watermarks */
};

#define PST_PAGES_MAX (UINT32_MAX - 64) /* bit positions are rounded up to whole words in 32 bits */

int pst_pages_init(struct pst_pages *pages, uint32_t page_count, uint32_t arena_pages);
/* For trying out what would fit; pst_pages_fini() ends it. */
int pst_pages_copy(struct pst_pages *copy, struct pst_pages *pages);
void pst_pages_fini(struct pst_pages *pages);

/*
 * Takes @count pages: one contiguous run (first fit) where there is one, else scattered within one arena,
 * else over arenas. Return: number of runs written to @runs (ascending), -ENOSPC too few free pages (nothing
 * taken), -E2BIG more than @runs_max runs needed (nothing taken).
 */
int pst_pages_take(struct pst_pages *pages, uint32_t count, struct pst_run *runs, int runs_max);
/* Gives runs back. Pages that are free already stay free. Return: the number of pages that became free by
 * this. */
uint32_t pst_pages_give(struct pst_pages *pages, const struct pst_run *runs, int run_count);
/* Marks pages taken (rebuild from the trailer, tests). Return: 0, -EEXIST when one is taken already, -ERANGE
 * when there is no such page (nothing done). */
int pst_pages_claim(struct pst_pages *pages, struct pst_run run);

/* The page stays taken, or becomes so, as long as this process lives. Return: 0 or -ENOMEM. */
int pst_pages_hold(struct pst_pages *pages, uint32_t page);

#endif

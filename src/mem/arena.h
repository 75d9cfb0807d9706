/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arena.h: a node's memory, mapped once. The store that owns it, and the files of mem/ that name its parts,
 * include this.
 *
 * All arenas lie in one reserved address range, `stride` bytes apart, so that an *offset* (bytes from the
 * range's start) names a byte in any process that mapped them and survives a restart. Pages are numbered over
 * all arenas: page p begins at arena (p / arena_pages), page (p % arena_pages) inside it.
 * At the end of each arena file lies a trailer: a checked header and one descriptor a page, from which a
 * later process can tell what every page held.
 */
#ifndef PST_MEM_ARENA_H
#define PST_MEM_ARENA_H

#include "base/base.h"

#include <sys/uio.h>

enum {
    PST_PAGE_BYTES_MIN = 64 << 10, /* a page is a multiple of 4 KiB, at least this */
    PST_ARENAS_MAX = 64,
    PST_PAGE_SPANS_MAX = 32, /* slab spans in a page */
    PST_ARENA_PATH_BYTES = 256,
    PST_ARENA_NOTES_BYTES = 12 << 10,
};

struct pst_arena_options {
    uint64_t bytes; /* of all arenas together; rounded down to whole pages */
    uint64_t page_bytes;
    uint64_t arena_bytes; /* of one arena; 0: as few as possible, one a NUMA node */
    const char *folder;   /* tmpfs folder for the 0600 files; NULL: nameless memory files */
    const char *name; /* the files outlive the process, for the next one with this name; NULL: they do not */
    bool prefault;
};

enum pst_page_kind { PST_PAGE_FREE, PST_PAGE_EXTENT, PST_PAGE_SLAB, PST_PAGE_SPANS };

/* What a page held, in the arena's trailer; written by the page's owner. */
struct pst_page_desc {
    uint8_t kind;                           /* enum pst_page_kind */
    uint8_t slab_class;                     /* SLAB */
    uint16_t shard;                         /* SLAB, SPANS */
    uint8_t span_class[PST_PAGE_SPANS_MAX]; /* SPANS: class of each span + 1, 0 free */
    uint32_t views;                         /* of what lies here, by clients that map the arena */
    uint32_t view_first, view_last;         /* the turns of the arena that had them */
    uint8_t spare[16];
};

struct pst_arenas {
    uint8_t *base;   /* start of the reserved range */
    uint64_t stride; /* between arena starts; a multiple of page_bytes */
    uint64_t page_bytes;
    uint32_t arena_pages; /* pages in each arena */
    uint32_t arena_count;
    uint32_t page_count;     /* over all arenas */
    uint32_t cell_shift;     /* cells begin at multiples of 1 << cell_shift: 8, in a large range 16 */
    int fds[PST_ARENAS_MAX]; /* read-write */
    int fds_readonly[PST_ARENAS_MAX]; /* for same-host clients */
    char paths[PST_ARENAS_MAX][PST_ARENA_PATH_BYTES];
    uint64_t seeds[2]; /* random, and the same as long as the files live */
    bool kept;         /* the files stay */
    bool taken_up;     /* they are from an earlier process, with what it left in them */
    uint32_t turn;     /* how many processes had them before */
    bool holes;        /* not all of them is there */
};

/*
 * Checks @options against the cgroup limit (v1 and v2), the tmpfs's free size and free memory before anything
 * is touched, then creates, maps, pre-faults. With a name whose files are there it takes up those instead, if
 * they are of just this size and no other process has them. Return: 0, -EINVAL bad page size, -ENOMEM or
 * -ENOSPC with *@fault naming limit and figures (a static thread-local text); other failures are forwarded,
 * with such a text too. Pages are divided equally: up to one fewer than there are arenas is left out.
 */
int pst_arenas_open(struct pst_arenas *arenas, const struct pst_arena_options *options, const char **fault);
/* Unmaps, closes, and unlinks what has no name to be taken up by; harmless on a zeroed struct. */
void pst_arenas_close(struct pst_arenas *arenas);

static inline uint64_t pst_page_offset(const struct pst_arenas *a, uint32_t page)
{
    return (uint64_t)(page / a->arena_pages) * a->stride + (uint64_t)(page % a->arena_pages) * a->page_bytes;
}

static inline uint32_t pst_offset_page(const struct pst_arenas *a, uint64_t offset)
{
    pst_assert(offset / a->stride < a->arena_count);
    return (uint32_t)(offset / a->stride) * a->arena_pages + (uint32_t)(offset % a->stride / a->page_bytes);
}

/* The pages of one arena. */
static inline struct iovec pst_arena_memory(const struct pst_arenas *a, uint32_t arena)
{
    pst_assert(arena < a->arena_count);
    return (struct iovec){a->base + arena * a->stride, a->arena_pages * a->page_bytes};
}

/* Whether clients of processes of these turns still have arenas open or mapped. */
bool pst_arenas_in_use(const struct pst_arenas *arenas, uint32_t first_turn, uint32_t last_turn);

struct pst_page_desc *pst_page_desc(const struct pst_arenas *arenas, uint32_t page);
/* PST_ARENA_NOTES_BYTES in the first arena, zero at first, for whoever uses the arenas to find again. */
void *pst_arenas_notes(const struct pst_arenas *arenas);

#endif

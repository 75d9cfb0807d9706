/*
 * mem.h: a node's memory: arenas, the page bitmap over them, and slabs for what is smaller than a page.
 *
 * All arenas lie in one reserved address range, `stride` bytes apart, so that an *offset* (bytes from the
 * range's start) names a byte in any process that mapped them and survives a restart. Pages are numbered over
 * all arenas: page p begins at arena (p / arena_pages), page (p % arena_pages) inside it.
 * At the end of each arena file lies a trailer: a checked header and one descriptor a page, from which a
 * later process can tell what every page held.
 */
#ifndef PST_MEM_H
#define PST_MEM_H

#include "base/base.h"
#include "base/list.h"

#include <pthread.h>
#include <stdatomic.h>

/* ---- arenas ---- */

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
    uint32_t slot_shift;     /* slots begin at multiples of 1 << slot_shift: 8, in a large range 16 */
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
    return (uint32_t)(offset / a->stride) * a->arena_pages + (uint32_t)(offset % a->stride / a->page_bytes);
}

/* Whether clients of processes of these turns still have arenas open or mapped. */
bool pst_arenas_in_use(const struct pst_arenas *arenas, uint32_t first_turn, uint32_t last_turn);

struct pst_page_desc *pst_page_desc(const struct pst_arenas *arenas, uint32_t page);
/* PST_ARENA_NOTES_BYTES in the first arena, zero at first, for whoever uses the arenas to find again. */
void *pst_arenas_notes(const struct pst_arenas *arenas);

/* ---- pages ---- */

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

int pst_pages_init(struct pst_pages *pages, uint32_t page_count, uint32_t arena_pages);
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

/* ---- locations ---- */

/* Where a value's bytes lie, in order: whole pages, then possibly a slab slot for the tail. */
struct pst_location {
    uint32_t arena_pages; /* pages per arena, to split page numbers */
    uint32_t run_count;
    const struct pst_run *runs;
    uint32_t tail_page; /* with tail_bytes > 0: the slot's page, its first byte inside it, and its size */
    uint32_t tail_start;
    uint32_t tail_bytes;
};

/*
 * "<arena>:p<i>,<j>;<arena>:p<k>" and, for a tail, ";<arena>:s<page>+<start>/<bytes>" as the last element;
 * pages are numbers within their arena, in the value's order. A value without bytes is "". Like snprintf:
 * returns the length needed.
 */
int pst_location_print(const struct pst_location *location, char *buf, size_t cap);
/* Parses what print wrote. @runs gets up to @runs_max runs. Return: 0, -EINVAL malformed, -ERANGE a page that
 * @page_count has not, -E2BIG. */
int pst_location_parse(const char *text, uint32_t arena_pages, uint32_t page_count, struct pst_run *runs,
                       int runs_max, struct pst_location *out);

/* ---- slabs ---- */

/*
 * Slots for records and values of half a page and less. One shard owns a slab set; one thread.
 * Classes: 8-byte steps to 288, then eight steps an octave ((8+i) << k) to half a page: every multiple of 4
 * KiB up to 64 KiB is a class, and slots of such classes are 4 KiB aligned. (With a slot_shift of 4 16-byte
 * steps to 576.) Classes of a span's sixteenth and less are carved from *spans* (64 KiB parts of a page),
 * larger ones from whole pages. All book-keeping is on the heap and in the page descriptors: no header in the
 * page.
 */
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
/* Frees the slot at @offset, which was taken with @bytes of the same class. A span or a page that becomes
 * empty goes back at once. */
void pst_slab_give(struct pst_slab *slab, uint64_t offset);
/* Size of the slot that holds @offset; 0 when it is no taken slot of this set. */
uint32_t pst_slab_slot_bytes(const struct pst_slab *slab, uint64_t offset);

/*
 * What an earlier process left: how part @part of a page was cut, by the page's descriptor; one part, or with
 * spans up to PST_PAGE_SPANS_MAX. Return: false: no slots of this set there.
 */
struct pst_slab_cut {
    uint64_t offset; /* of the first slot */
    uint32_t slot_bytes, slot_count;
};
bool pst_slab_cut(const struct pst_slab *slab, uint32_t page, uint32_t part, struct pst_slab_cut *out);
/* Takes the slot that begins at @offset and holds @bytes. Return: 0, -EINVAL there is no such slot, -EEXIST
 * it is taken, or its page is, -ENOMEM. */
int pst_slab_claim(struct pst_slab *slab, uint64_t offset, uint64_t bytes);

/*
 * Owners: a slot may carry a 64-bit word for whoever must be told when it moves (0: none). Only kept for
 * slots of 2 KiB and more.
 */
void pst_slab_set_owner(struct pst_slab *slab, uint64_t offset, uint64_t owner);
uint64_t pst_slab_owner(const struct pst_slab *slab, uint64_t offset);

/*
 * The slab page of this set with the smallest used share (to within a 64th) of at most @used_percent, for
 * taking back: its page number, or -ENOENT. Slots are not taken from it, nor is it named again, until
 * pst_slab_page_keep() or it has emptied.
 */
int64_t pst_slab_sparse_page(struct pst_slab *slab, uint32_t used_percent);
void pst_slab_page_keep(struct pst_slab *slab, uint32_t page);
/* No slot of the page is taken any more. Harmless for one that is not the set's. */
void pst_slab_page_hold(struct pst_slab *slab, uint32_t page);
/* Offsets of taken slots of @page, at most @max, from the first on. Return: their number. */
uint32_t pst_slab_page_slots(const struct pst_slab *slab, uint32_t page, uint64_t *offsets, uint32_t max);

struct pst_slab_stat {
    uint64_t pages;
    uint64_t bytes_used; /* of taken slots */
};
void pst_slab_stat(const struct pst_slab *slab, struct pst_slab_stat *out);

#endif

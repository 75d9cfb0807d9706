/*
 * mem_priv.h: what the files of mem/ share: the arena trailer's header, the memory limits, and the parts of a
 * slab set.
 */
#ifndef PST_MEM_PRIV_H
#define PST_MEM_PRIV_H

#include "mem/mem.h"
#include "base/error.h"

/* ---- arena.c: the trailer ----
 *
 *   0                          arena_pages * page_bytes         stride - 16 Ki  stride - 4 Ki stride | page 0
 * | page 1 | ...    | desc 0 | desc 1 | ... | unused | notes         | header | holder | unused |
 *
 * The header's place follows from the file's size alone, so that a later process needs to know nothing else.
 */
enum {
    PST_ARENA_HEADER_ROOM = 4096,
    PST_ARENA_HOLDER_AT = 256, /* in it */
    PST_ARENA_VERSION = 3,
    PST_PAGE_BYTES_MAX = 1 << 30,
};

#define PST_ARENA_MAGIC "PSTARENA"

struct pst_arena_header {
    char magic[8];
    uint32_t version;
    uint32_t desc_bytes;
    uint64_t page_bytes;
    uint64_t stride;
    uint32_t arena_pages;
    uint32_t arena_index;
    uint32_t arena_count;
    uint32_t spare;
    uint64_t set_id; /* random, the same in all arenas of one range */
    uint64_t seeds[2];
    uint32_t spare2;
    uint32_t crc; /* crc32c of all that precedes it */
};

_Static_assert(sizeof(struct pst_arena_header) == 80, "layout of arena files");
_Static_assert(sizeof(struct pst_page_desc) == 64, "layout of arena files");

/* Who has the arena open, or had last. */
struct pst_arena_holder {
    uint32_t pid;
    uint32_t turn; /* how many had it before */
};

const struct pst_arena_header *pst_arena_header(const struct pst_arenas *arenas, uint32_t arena);
bool pst_arena_header_ok(const struct pst_arena_header *header);

/* ---- arena_keep.c ---- */

/* Opens and locks the files of a name, as @arenas is laid out. Return: 0, -ENOENT there are none, or refused.
 */
int pst_arenas_take_up(struct pst_arenas *arenas, const struct pst_arena_options *options);
/* Locks the byte of this process's turn in the descriptors that clients get: such a lock lasts as long as
 * anyone has one of them open or mapped. */
void pst_arenas_lock_turn(const struct pst_arenas *arenas);
/* Gives files that are complete their names, the first one's last. */
int pst_arenas_name(struct pst_arenas *arenas, const struct pst_arena_options *options);

/* ---- arena_fill.c ---- */

/* NUMA nodes that have memory this process may use, as a bit set; 0 when unknown. */
uint64_t pst_numa_nodes(void);
/* Prefers node @node for memory of [@start, @start + @bytes) that is touched from now on; best effort. */
void pst_numa_prefer(void *start, uint64_t bytes, uint32_t node);
/* Backs every page of file arenas with memory, on all cores. Return: 0 or negative errno. */
int pst_arenas_fill(const struct pst_arenas *arenas);

/* ---- limit.c ---- */

/* The tightest bound on the memory that this process can still get. */
struct pst_limit {
    uint64_t left_bytes; /* UINT64_MAX: none found */
    char text[192];      /* which one, with its figures */
};

/* @root is put before /proc and /sys: "" but in tests. */
void pst_limit_read(const char *root, struct pst_limit *out);

/* ---- slabs ----
 *
 * A *block* is a span or a whole page cut into slots of one class. A class lists its blocks that have a free
 * slot; its first block serves until it is full. A set finds the page of an offset by offset / page_bytes.
 */
enum {
    PST_SLAB_CLASSES_MAX = 208,      /* half of the largest page is class 202 */
    PST_SLAB_OWNED_BYTES_MIN = 2048, /* slots from here on carry an owner */
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
    uint32_t slot_bytes;
    uint32_t slot_count;        /* in a block */
    struct pst_divisor divisor; /* by slot_bytes */
    struct pst_list partial;
};

/* Kept small: beside a 64 KiB span of 112-byte slots it and its bitmap cost 0.22 bytes a slot. */
struct pst_slab_block {
    struct pst_list node; /* in its class's partial list, or in none */
    struct pst_slab_page *page;
    uint32_t used_count;
    uint32_t word_hint; /* no word of the bitmap before it has a free slot */
    uint32_t start;     /* of the first slot, inside the page */
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
    uint32_t bytes_max;   /* all its slots together */
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

static inline bool pst_slab_is_free(const struct pst_slab_block *block, uint32_t slot)
{
    return block->words[slot / 64] >> (slot % 64) & 1;
}

#endif

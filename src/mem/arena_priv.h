/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arena_priv.h: how arenas are made, filled, named and bounded. The files of mem/ that do so, and their
 * tests, include it.
 */
#ifndef PST_MEM_ARENA_PRIV_H
#define PST_MEM_ARENA_PRIV_H

#include "base/error.h"
#include "mem/arena.h"

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

_Static_assert(sizeof(struct pst_arena_header) <= PST_ARENA_HOLDER_AT, "the holder follows the header");
_Static_assert(PST_ARENA_HOLDER_AT + sizeof(struct pst_arena_holder) <= PST_ARENA_HEADER_ROOM,
               "the holder lies in the header's room");
_Static_assert(PST_ARENA_NOTES_BYTES % sizeof(uint64_t) == 0, "notes are aligned");

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

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kept.h: what a store leaves for the process after it beside its records: notes in the first arena. The
 * files that write there, or take it up, include it. A store whose arenas end with it has none, and all this
 * costs it nothing.
 */
#ifndef PST_KEPT_H
#define PST_KEPT_H

#include "base/base.h"
#include "mem/arena.h"

#include <stdatomic.h>

struct pst_store;
struct pst_shard;

/* Eight bytes of an arena, and what they become. */
struct pst_word {
    uint64_t offset, value;
};

enum { PST_WORDS_MAX = 600 };

struct pst_kept {
    _Atomic uint64_t generation; /* none above it has been given */
    _Atomic uint64_t mark;       /* words that are being written: their number << 32 | crc32c; 0: none are */
    uint32_t shard_count;        /* of the store that has been here last */
    uint32_t tiered;             /* whether it had an SSD: its records have places in the log */
    struct pst_word words[PST_WORDS_MAX];
};
_Static_assert(sizeof(struct pst_kept) <= PST_ARENA_NOTES_BYTES, "layout of arena files");

/*
 * Writes words that belong together: whoever finds the arenas finds all of them written or none. Any thread;
 * the words are the caller's to write.
 */
void pst_words_write(struct pst_store *store, const struct pst_word *words, uint32_t count);
/* Ends what an earlier process had begun to write. */
void pst_words_finish(struct pst_store *store);

/* Generations up to here may be given, and a later process begins above. */
uint64_t pst_generations_take(struct pst_store *store, uint64_t generation);

/* Finds what an earlier process left, and makes it this store's. Return: 0, -ENOMEM, -ENOSPC with *@fault. */
int pst_store_restore(struct pst_store *store, const char **fault);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* kept.c: words that are written together, and generations that do not come again. */
#include "base/hash.h"
#include "store/kept.h"
#include "store/shard_priv.h"

static const uint64_t GENERATIONS_AT_ONCE = 1ull << 36; /* 2^28 writes, or 69 s of the clock */

typedef uint64_t __attribute__((may_alias)) word;

static void words_apply(const struct pst_store *store, const struct pst_word *words, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        pst_assert(words[i].offset % 8 == 0);
        pst_assert(words[i].offset / store->arenas.stride < store->arenas.arena_count);
        *(volatile word *)(void *)(store->arenas.base + words[i].offset) = words[i].value;
    }
}

static uint64_t mark_of(const struct pst_store *store, const struct pst_word *words, uint32_t count)
{
    pst_assert(count <= PST_WORDS_MAX);
    return (uint64_t)count << 32 | pst_crc32c(store->check_seed, words, count * sizeof(*words));
}

void pst_words_write(struct pst_store *store, const struct pst_word *words, uint32_t count)
{
    struct pst_kept *kept = store->kept;

    pst_assert(!kept || count <= PST_WORDS_MAX);
    atomic_signal_fence(memory_order_seq_cst);
    if (!kept || count < 2) { /* one word is written whole in any case */
        words_apply(store, words, count);
    } else {
        pthread_mutex_lock(&store->words_lock);
        memcpy(kept->words, words, count * sizeof(*words));
        atomic_store(&kept->mark, mark_of(store, words, count));
        words_apply(store, words, count);
        atomic_store(&kept->mark, 0);
        pthread_mutex_unlock(&store->words_lock);
    }
    atomic_signal_fence(memory_order_seq_cst);
}

/* The trailers are not the words' to change. */
static bool words_in_pages(const struct pst_arenas *a, uint64_t offset)
{
    pst_assert(a->stride > a->arena_pages * a->page_bytes);
    return offset % 8 == 0 && offset / a->stride < a->arena_count &&
           offset % a->stride < a->arena_pages * a->page_bytes;
}

void pst_words_finish(struct pst_store *store)
{
    struct pst_kept *kept = store->kept;
    uint64_t mark = atomic_load(&kept->mark), count = mark >> 32;
    bool good = count <= PST_WORDS_MAX && mark == mark_of(store, kept->words, (uint32_t)count);

    pst_assert(store->arenas.taken_up);
    for (uint64_t i = 0; i < count && good; i++)
        good = words_in_pages(&store->arenas, kept->words[i].offset);
    if (good)
        words_apply(store, kept->words, (uint32_t)count);
    atomic_store(&kept->mark, 0);
}

uint64_t pst_generations_take(struct pst_store *store, uint64_t generation)
{
    uint64_t to = generation + GENERATIONS_AT_ONCE, before;

    if (!store->kept)
        return UINT64_MAX;
    before = atomic_load(&store->kept->generation);
    while (before < to && !atomic_compare_exchange_weak(&store->kept->generation, &before, to))
        ;
    pst_assert(to > generation);
    return to;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pages.c: which pages are free, one bit a page. Every search walks words: a run of free pages is found by
 * its first set bit and the next clear one, so a full or an empty stretch costs one look per 64 pages. The
 * hint is a lower bound: nothing below it is free. Single pages are thus found at once and first fit stays
 * exact.
 */
#include "mem/pages.h"
#include "base/fault.h"

static uint64_t mask_from(uint32_t bit)
{
    return ~0ull << (bit % 64);
}

/* The part of the word that holds @bit which lies in [bit, end). */
static uint64_t mask_between(uint32_t bit, uint32_t end)
{
    uint32_t word_end = (bit / 64 + 1) * 64;

    pst_assert(bit < end);
    return end >= word_end ? mask_from(bit) : mask_from(bit) & ~mask_from(end);
}

/* First bit in [from, to) that is free (@flip 0) or taken (@flip ~0); @to when there is none. */
static uint32_t find_bit(const uint64_t *bits, uint32_t from, uint32_t to, uint64_t flip)
{
    uint64_t word;

    if (from >= to)
        return to;
    word = (bits[from / 64] ^ flip) & mask_from(from);
    while (!word) {
        from = (from / 64 + 1) * 64;
        if (from >= to)
            return to;
        word = bits[from / 64] ^ flip;
    }
    return (uint32_t)pst_min(from / 64 * 64 + (uint32_t)__builtin_ctzll(word), to);
}

/* The next run of free pages in [from, to), cut at @longest and at the end of its arena; count 0 at the end.
 */
static struct pst_run next_run(const struct pst_pages *p, uint32_t from, uint32_t to, uint32_t longest)
{
    struct pst_run run = {.page = find_bit(p->free_bits, from, to, 0)};
    uint64_t end;

    if (run.page == to)
        return run;
    end = ((uint64_t)run.page / p->arena_pages + 1) * p->arena_pages;
    end = pst_min(pst_min(end, to), (uint64_t)run.page + longest);
    run.count = find_bit(p->free_bits, run.page, (uint32_t)end, ~0ull) - run.page;
    pst_assert(run.count > 0 && run.count <= longest);
    pst_assert(run.count <= to - run.page);
    return run;
}

static uint32_t count_free(const struct pst_pages *p, uint32_t from, uint32_t to)
{
    uint32_t n = 0;

    pst_assert(from <= to && to <= p->page_count);
    for (uint32_t at = from; at < to; at = (at / 64 + 1) * 64)
        n += (uint32_t)__builtin_popcountll(p->free_bits[at / 64] & mask_between(at, to));
    return n;
}

static void mark_taken(struct pst_pages *p, struct pst_run run)
{
    uint32_t end = run.page + run.count, free_before;

    pst_assert(end >= run.page && end <= p->page_count);
    for (uint32_t at = run.page; at < end; at = (at / 64 + 1) * 64) {
        uint64_t mask = mask_between(at, end);

        pst_assert((p->free_bits[at / 64] & mask) == mask);
        p->free_bits[at / 64] &= ~mask;
    }
    free_before = atomic_fetch_sub_explicit(&p->free_count, run.count, memory_order_relaxed);
    pst_assert(free_before >= run.count);
}

static uint32_t mark_free(struct pst_pages *p, struct pst_run run)
{
    uint32_t end = run.page + run.count, freed = 0, free_before;

    pst_assert(end >= run.page && end <= p->page_count);
    for (uint32_t at = run.page; at < end; at = (at / 64 + 1) * 64) {
        uint64_t mask = mask_between(at, end);

        if (p->held_bits)
            mask &= ~p->held_bits[at / 64];
        freed += (uint32_t)__builtin_popcountll(mask & ~p->free_bits[at / 64]);
        p->free_bits[at / 64] |= mask;
    }
    free_before = atomic_fetch_add_explicit(&p->free_count, freed, memory_order_relaxed);
    pst_assert(freed <= run.count);
    pst_assert(freed <= p->page_count - free_before);
    return freed;
}

int pst_pages_init(struct pst_pages *pages, uint32_t page_count, uint32_t arena_pages)
{
    struct pst_pages p = {.page_count = page_count, .arena_pages = arena_pages};
    int r;

    if (page_count == 0 || arena_pages == 0 || page_count > PST_PAGES_MAX)
        return -EINVAL;
    p.free_bits = calloc(pst_div_up(page_count, 64), sizeof(uint64_t));
    if (!p.free_bits)
        return -ENOMEM;
    mark_free(&p, (struct pst_run){.page = 0, .count = page_count});
    pst_assert(atomic_load_explicit(&p.free_count, memory_order_relaxed) == page_count);
    pst_assert(p.hint == 0);
    r = pthread_mutex_init(&p.lock, NULL);
    if (r) {
        free(p.free_bits);
        return -r;
    }
    *pages = p; /* the lock is fresh: nobody waits at its old place */
    return 0;
}

int pst_pages_copy(struct pst_pages *copy, struct pst_pages *pages)
{
    int r = pst_pages_init(copy, pages->page_count, pages->arena_pages);

    if (r < 0)
        return r;
    pthread_mutex_lock(&pages->lock);
    memcpy(copy->free_bits, pages->free_bits, pst_div_up(pages->page_count, 64) * sizeof(uint64_t));
    copy->free_count = atomic_load_explicit(&pages->free_count, memory_order_relaxed);
    copy->hint = pages->hint;
    pst_assert(count_free(copy, 0, copy->page_count) == copy->free_count);
    pthread_mutex_unlock(&pages->lock);
    return 0;
}

void pst_pages_fini(struct pst_pages *pages)
{
    if (!pages || !pages->free_bits)
        return;
    pst_assert(atomic_load_explicit(&pages->free_count, memory_order_relaxed) <= pages->page_count);
    pthread_mutex_destroy(&pages->lock);
    free(pages->free_bits);
    free(pages->held_bits);
    pages->free_bits = pages->held_bits = NULL;
}

static int take_contiguous(struct pst_pages *p, uint32_t count, struct pst_run *out)
{
    struct pst_run run = next_run(p, p->hint, p->page_count, count);

    pst_assert(p->hint <= p->page_count);
    pst_assert(run.page >= p->hint);
    p->hint = run.page;
    while (run.count > 0 && run.count < count)
        run = next_run(p, run.page + run.count, p->page_count, count);
    if (run.count < count)
        return -ENOSPC;
    pst_assert(run.count == count);
    mark_taken(p, run);
    if (run.page == p->hint)
        p->hint = run.page + run.count;
    *out = run;
    return 1;
}

/* Which free runs a scattered take may use: those of at least @long_min pages, and @short_max that are one
 * shorter. */
struct choice {
    uint32_t long_min;
    uint32_t short_max;
};

/* Lists runs in [from, to) until they hold @count pages; takes nothing. Return: their number, -E2BIG,
 * -ENOSPC. */
static int list_runs(const struct pst_pages *p, uint32_t from, uint32_t to, uint32_t count, struct choice use,
                     struct pst_run *runs, int runs_max)
{
    uint32_t left = count;
    int n = 0;

    while (left > 0) {
        struct pst_run run = next_run(p, from, to, UINT32_MAX);

        if (run.count == 0)
            return -ENOSPC;
        from = run.page + run.count;
        if (run.count < use.long_min && (run.count + 1 < use.long_min || use.short_max == 0))
            continue;
        use.short_max -= run.count < use.long_min;
        if (n == runs_max)
            return -E2BIG;
        pst_assert(n == 0 || run.page >= runs[n - 1].page + runs[n - 1].count);
        run.count = (uint32_t)pst_min(run.count, left);
        left -= run.count;
        runs[n++] = run;
    }
    pst_assert(n > 0 && n <= runs_max);
    return n;
}

static uint32_t count_runs(const struct pst_pages *p, uint32_t long_min)
{
    struct pst_run run = next_run(p, p->hint, p->page_count, UINT32_MAX);
    uint32_t n = 0;

    pst_assert(long_min > 0);
    while (run.count > 0) {
        n += run.count >= long_min;
        run = next_run(p, run.page + run.count, p->page_count, UINT32_MAX);
    }
    return n;
}

/* The @runs_max longest runs, for when those that come first are too short: the last way before -E2BIG. */
static int list_longest(const struct pst_pages *p, uint32_t count, struct pst_run *runs, int runs_max)
{
    uint32_t low = 1, high = count;
    struct choice use;
    int n;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (count_runs(p, middle) <= (uint32_t)runs_max)
            high = middle;
        else
            low = middle + 1;
    }
    pst_assert(low >= 1 && low <= count);
    use.long_min = low;
    use.short_max = (uint32_t)runs_max - (uint32_t)pst_min(count_runs(p, low), (uint32_t)runs_max);
    n = list_runs(p, p->hint, p->page_count, count, use, runs, runs_max);
    return n == -ENOSPC ? -E2BIG : n;
}

/* Within the first arena that has room, else over all of them. */
static int take_scattered(struct pst_pages *p, uint32_t count, struct pst_run *runs, int runs_max)
{
    const struct choice any = {.long_min = 1};
    int n = -ENOSPC;

    for (uint64_t at = 0; at < p->page_count && n < 0; at += p->arena_pages) {
        uint32_t end = (uint32_t)pst_min(at + p->arena_pages, p->page_count);

        if (count_free(p, (uint32_t)at, end) >= count)
            n = list_runs(p, (uint32_t)at, end, count, any, runs, runs_max);
    }
    if (n < 0)
        n = list_runs(p, p->hint, p->page_count, count, any, runs, runs_max);
    if (n == -E2BIG)
        n = list_longest(p, count, runs, runs_max);
    for (int i = 0; i < n; i++) {
        pst_assert(runs[i].count <= count); /* they make up what was asked for */
        count -= runs[i].count;
        mark_taken(p, runs[i]);
    }
    pst_assert(n < 0 || count == 0);
    return n;
}

int pst_pages_take(struct pst_pages *pages, uint32_t count, struct pst_run *runs, int runs_max)
{
    int r = -ENOSPC;

    pst_assert(count > 0);
    pst_assert(runs_max > 0);
    if (pst_fault(PST_FAULT_pages_enospc))
        return r;
    pthread_mutex_lock(&pages->lock);
    if (count <= atomic_load_explicit(&pages->free_count, memory_order_relaxed)) {
        r = take_contiguous(pages, count, runs);
        if (r < 0)
            r = take_scattered(pages, count, runs, runs_max);
    }
    pst_assert(r <= runs_max);
    pst_assert(r != 0);
    pthread_mutex_unlock(&pages->lock);
    return r;
}

static bool run_is_inside(const struct pst_pages *p, struct pst_run run)
{
    return run.page < p->page_count && run.count <= p->page_count - run.page;
}

uint32_t pst_pages_give(struct pst_pages *pages, const struct pst_run *runs, int run_count)
{
    uint32_t freed = 0;

    pst_assert(run_count >= 0);
    pst_assert(runs || run_count == 0);
    pthread_mutex_lock(&pages->lock);
    for (int i = 0; i < run_count; i++) {
        pst_assert(run_is_inside(pages, runs[i]));
        freed += mark_free(pages, runs[i]);
        pages->hint = (uint32_t)pst_min(pages->hint, runs[i].page);
    }
    pst_assert(freed <= atomic_load_explicit(&pages->free_count, memory_order_relaxed));
    pthread_mutex_unlock(&pages->lock);
    return freed;
}

int pst_pages_hold(struct pst_pages *pages, uint32_t page)
{
    pst_assert(page < pages->page_count);
    pthread_mutex_lock(&pages->lock);
    if (!pages->held_bits)
        pages->held_bits = calloc(pst_div_up(pages->page_count, 64), sizeof(uint64_t));
    if (pages->held_bits && pages->free_bits[page / 64] >> (page % 64) & 1)
        mark_taken(pages, (struct pst_run){.page = page, .count = 1});
    if (pages->held_bits)
        pages->held_bits[page / 64] |= 1ull << (page % 64);
    pst_assert(!pages->held_bits || !(pages->free_bits[page / 64] >> (page % 64) & 1));
    pthread_mutex_unlock(&pages->lock);
    return pages->held_bits ? 0 : -ENOMEM;
}

int pst_pages_claim(struct pst_pages *pages, struct pst_run run)
{
    int r = 0;

    if (!run_is_inside(pages, run))
        return -ERANGE;
    pthread_mutex_lock(&pages->lock);
    if (count_free(pages, run.page, run.page + run.count) == run.count)
        mark_taken(pages, run);
    else
        r = -EEXIST;
    pst_assert(r == -EEXIST || count_free(pages, run.page, run.page + run.count) == 0);
    pthread_mutex_unlock(&pages->lock);
    return r;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/cm.h"

#include "mem/slab_priv.h"

#include <stdio.h>

/* A slab set over anonymous arenas. */
struct bench {
    struct pst_arenas arenas;
    struct pst_pages pages;
    struct pst_slab *slab;
};

static const uint64_t page_sizes[] = {64 << 10, 68 << 10, 1536 << 10, 2 << 20, 4 << 20};

static void open_bench_of(struct bench *b, uint64_t page_bytes, uint32_t page_count, uint32_t arena_pages,
                          uint32_t cell_shift)
{
    struct pst_arena_options options = {
        .bytes = page_bytes * page_count, .page_bytes = page_bytes, .arena_bytes = page_bytes * arena_pages};
    const char *fault = "";

    if (pst_arenas_open(&b->arenas, &options, &fault) < 0)
        fail_msg("%s", fault);
    assert_int_equal(b->arenas.cell_shift, 3);
    b->arenas.cell_shift = cell_shift;
    assert_int_equal(pst_pages_init(&b->pages, b->arenas.page_count, b->arenas.arena_pages), 0);
    assert_int_equal(pst_slab_open(&b->arenas, &b->pages, 5, &b->slab), 0);
}

static void open_bench(struct bench *b, uint64_t page_bytes, uint32_t page_count, uint32_t arena_pages)
{
    open_bench_of(b, page_bytes, page_count, arena_pages, 3);
}

static void close_bench(struct bench *b)
{
    assert_null(pst_slab_close(b->slab));
    pst_pages_fini(&b->pages);
    pst_arenas_close(&b->arenas);
}

static uint64_t take(struct bench *b, uint64_t bytes)
{
    uint64_t offset;

    assert_int_equal(pst_slab_take(b->slab, bytes, &offset), 0);
    return offset;
}

static const struct pst_page_desc *desc_of(const struct bench *b, uint64_t offset)
{
    return pst_page_desc(&b->arenas, pst_offset_page(&b->arenas, offset));
}

/* Every page that is free says so in its descriptor. */
static void assert_all_given_back(const struct bench *b)
{
    struct pst_slab_stat stat;

    pst_slab_stat(b->slab, &stat);
    assert_int_equal(stat.pages, 0);
    assert_int_equal(stat.bytes_used, 0);
    assert_int_equal(b->pages.free_count, b->pages.page_count);
    for (uint32_t p = 0; p < b->arenas.page_count; p++) {
        static const struct pst_page_desc free_desc;

        assert_memory_equal(pst_page_desc(&b->arenas, p), &free_desc, sizeof(free_desc));
    }
}

static void classes_of(uint64_t page_bytes, uint32_t cell_shift)
{
    const uint64_t unit = 1u << cell_shift;
    struct bench b;
    uint32_t last = 0;

    open_bench_of(&b, page_bytes, 4, 4, cell_shift);
    assert_int_equal(pst_slab_bytes_max(b.slab), page_bytes / 2);
    assert_int_equal(pst_slab_class_of(b.slab, 0), 0);
    for (uint64_t n = 1; n <= page_bytes / 2; n += n < 5000 ? 1 : 13) {
        uint32_t class = pst_slab_class_of(b.slab, n), bytes = pst_slab_class_bytes(b.slab, class);

        assert_true(class == last || class == last + 1);
        assert_true(bytes >= n && bytes % unit == 0);
        assert_true(class == 0 || pst_slab_class_bytes(b.slab, class - 1) < n);
        assert_true(n <= 36 * unit || bytes - n <= n / 8 + 1);
        last = class;
    }
    for (uint64_t n = unit; n <= 36 * unit; n += unit)
        assert_int_equal(pst_slab_class_bytes(b.slab, pst_slab_class_of(b.slab, n)), n);
    for (uint64_t n = 4096; n <= pst_min(64 << 10, page_bytes / 2); n += 4096)
        assert_int_equal(pst_slab_class_bytes(b.slab, pst_slab_class_of(b.slab, n)), n);
    assert_int_equal(pst_slab_class_bytes(b.slab, pst_slab_class_of(b.slab, page_bytes / 2)), page_bytes / 2);
    close_bench(&b);
}

static void classes_hold_and_waste_little(void **state)
{
    (void)state;
    for (size_t i = 0; i < pst_count_of(page_sizes); i++) {
        classes_of(page_sizes[i], 3);
        classes_of(page_sizes[i], 4);
    }
}

static void cells_are_aligned(void **state)
{
    (void)state;
    for (size_t i = 0; i < pst_count_of(page_sizes); i++) {
        struct bench b;

        open_bench(&b, page_sizes[i], 32, 8);
        for (uint64_t n = 16; n <= page_sizes[i] / 2; n += 4080) {
            uint64_t unit = n % 4096 == 0 && n <= (64 << 10) ? 4096 : n % 64 == 0 && n < 1024 ? 64 : 8;
            uint64_t at[20];

            for (int k = 0; k < 20; k++) {
                if (pst_slab_take(b.slab, n, &at[k]) < 0)
                    at[k] = 0;
                assert_int_equal(at[k] % unit, 0);
            }
            for (int k = 0; k < 20; k++) {
                if (pst_slab_cell_bytes(b.slab, at[k]))
                    pst_slab_give(b.slab, at[k]);
            }
        }
        for (uint64_t n = 4096; n <= pst_min(64 << 10, page_sizes[i] / 2); n += 4096) {
            uint64_t a = take(&b, n), c = take(&b, n);

            assert_int_equal((a | c) % 4096, 0);
            pst_slab_give(b.slab, a);
            pst_slab_give(b.slab, c);
        }
        assert_all_given_back(&b);
        close_bench(&b);
    }
}

/* A set that uses many small sizes lives on one page. */
static void small_classes_share_a_page(void **state)
{
    struct bench b;
    uint64_t at[20];

    (void)state;
    open_bench(&b, 2 << 20, 8, 8);
    for (uint32_t i = 0; i < 20; i++)
        at[i] = take(&b, pst_slab_class_bytes(b.slab, 2 * i));
    for (uint32_t i = 0; i < 20; i++)
        assert_int_equal(pst_offset_page(&b.arenas, at[i]), pst_offset_page(&b.arenas, at[0]));
    assert_int_equal(b.pages.free_count, 7);
    assert_int_equal(desc_of(&b, at[0])->kind, PST_PAGE_SPANS);
    assert_int_equal(desc_of(&b, at[0])->shard, 5);
    for (uint32_t i = 0; i < 20; i++) {
        uint64_t span = at[i] % (2 << 20) / (64 << 10);
        uint32_t bytes = pst_slab_cell_bytes(b.slab, at[i]);

        assert_int_equal(desc_of(&b, at[i])->span_class[span], pst_slab_class_of(b.slab, bytes) + 1);
    }
    for (uint32_t i = 0; i < 19; i++) {
        uint64_t span = at[i] % (2 << 20) / (64 << 10);

        pst_slab_give(b.slab, at[i]);
        assert_int_equal(desc_of(&b, at[i])->span_class[span], 0);
        assert_int_equal(b.pages.free_count, 7);
    }
    pst_slab_give(b.slab, at[19]);
    assert_all_given_back(&b);
    close_bench(&b);
}

static void large_classes_have_pages(void **state)
{
    struct bench b;
    uint64_t a, c, d, e;

    (void)state;
    open_bench(&b, 2 << 20, 3, 3);
    a = take(&b, 1 << 20);
    c = take(&b, (1 << 20) - 5);
    assert_int_equal(c - a, 1 << 20);
    assert_int_equal(desc_of(&b, a)->kind, PST_PAGE_SLAB);
    assert_int_equal(desc_of(&b, a)->slab_class, pst_slab_class_of(b.slab, 1 << 20));
    assert_int_equal(desc_of(&b, a)->shard, 5);
    take(&b, 5000);
    take(&b, 10000);
    assert_int_equal(pst_slab_take(b.slab, 20000, &d), -ENOSPC);
    assert_int_equal(pst_slab_take(b.slab, 64, &d), -ENOSPC);
    pst_slab_give(b.slab, a);
    assert_int_equal(pst_slab_take(b.slab, 64, &d), -ENOSPC);
    pst_slab_give(b.slab, c);
    assert_int_equal(b.pages.free_count, 1);
    e = take(&b, 64);
    assert_int_equal(desc_of(&b, e)->kind, PST_PAGE_SPANS);
    close_bench(&b);
}

static void neighbours_stay_untouched(void **state)
{
    const uint64_t tails[] = {1, 15, 16, 17, 100, 112, 1000, 4096, 5000, 30000};

    (void)state;
    for (size_t i = 0; i < pst_count_of(tails); i++) {
        struct bench b;
        uint64_t at[3];
        uint32_t page_bytes = 1536 << 10, cell;
        const uint8_t *page;

        open_bench(&b, page_bytes, 2, 2);
        for (int k = 0; k < 3; k++)
            at[k] = take(&b, tails[i]);
        cell = pst_slab_cell_bytes(b.slab, at[1]);
        assert_int_equal(at[1] - at[0], cell);
        assert_int_equal(at[2] - at[1], cell);
        page = b.arenas.base + at[1] / page_bytes * page_bytes;
        memset(b.arenas.base, 0xa5, b.arenas.arena_pages * (size_t)page_bytes);
        for (uint64_t k = 0; k < tails[i]; k++)
            b.arenas.base[at[1] + k] = (uint8_t)k;
        for (uint64_t k = 0; k < page_bytes; k++) {
            uint64_t inside = k - at[1] % page_bytes;

            if (page[k] != (inside < tails[i] ? (uint8_t)inside : 0xa5))
                fail_msg("byte %llu of the page", (unsigned long long)k);
        }
        pst_slab_give(b.slab, at[1]);
        assert_int_equal(b.arenas.base[at[2]], 0xa5); /* no book-keeping in the page */
        close_bench(&b);
    }
}

static void what_an_offset_holds(void **state)
{
    struct bench b;
    uint64_t at, page_start;

    (void)state;
    open_bench(&b, 2 << 20, 8, 4);
    assert_int_equal(pst_slab_cell_bytes(b.slab, 0), 0);
    at = take(&b, 100);
    page_start = at / (2 << 20) * (2 << 20);
    assert_int_equal(pst_slab_cell_bytes(b.slab, at), 104);
    assert_int_equal(pst_slab_cell_bytes(b.slab, at + 103), 104);
    assert_int_equal(pst_slab_cell_bytes(b.slab, at + 104), 0);
    assert_int_equal(pst_slab_cell_bytes(b.slab, page_start + (64 << 10) - 1), 0);  /* after the last cell */
    assert_int_equal(pst_slab_cell_bytes(b.slab, page_start + (128 << 10) + 1), 0); /* in a free span */
    assert_int_equal(pst_slab_cell_bytes(b.slab, page_start + (2 << 20)), 0);
    assert_int_equal(pst_slab_cell_bytes(b.slab, b.arenas.stride - 4096), 0);
    assert_int_equal(pst_slab_cell_bytes(b.slab, b.arenas.stride * 2), 0);
    assert_int_equal(pst_slab_cell_bytes(b.slab, at + (1ull << 44)), 0);
    assert_int_equal(pst_slab_cell_bytes(b.slab, UINT64_MAX), 0);
    pst_slab_give(b.slab, at);
    assert_int_equal(pst_slab_cell_bytes(b.slab, at), 0);
    close_bench(&b);
}

static void owners_stay_with_their_cell(void **state)
{
    const uint64_t sizes[] = {2048, 4096, 5000, 200000};
    struct bench b;
    uint64_t small;

    (void)state;
    open_bench(&b, 2 << 20, 16, 16);
    small = take(&b, 1000);
    pst_slab_set_owner(b.slab, small, 9);
    assert_int_equal(pst_slab_owner(b.slab, small), 0); /* too small to have one */
    for (size_t i = 0; i < pst_count_of(sizes); i++) {
        uint64_t at[8];

        for (uint64_t k = 0; k < 8; k++) {
            at[k] = take(&b, sizes[i]);
            assert_int_equal(pst_slab_owner(b.slab, at[k]), 0);
            pst_slab_set_owner(b.slab, at[k], ~k);
        }
        for (uint64_t k = 0; k < 8; k++)
            assert_true(pst_slab_owner(b.slab, at[k]) == ~k);
        pst_slab_give(b.slab, at[3]);
        assert_int_equal(pst_slab_owner(b.slab, at[3]), 0);
        assert_int_equal(take(&b, sizes[i]), at[3]);
        assert_int_equal(pst_slab_owner(b.slab, at[3]), 0);
        assert_true(pst_slab_owner(b.slab, at[4]) == ~4ull);
    }
    close_bench(&b);
}

static void sparse_pages_are_found_and_rested(void **state)
{
    enum { N = 7 * 64 }; /* 32 KiB: 64 cells a page */
    struct bench b;
    uint64_t *at = calloc(N, sizeof(*at)), listed[64], more;
    uint32_t fullest, sparse, next;

    (void)state;
    open_bench(&b, 2 << 20, 8, 8);
    assert_int_equal(pst_slab_sparse_page(b.slab, 100), -ENOENT);
    for (int i = 0; i < N; i++)
        at[i] = take(&b, 32 << 10);
    assert_int_equal(pst_slab_sparse_page(b.slab, 99), -ENOENT);
    /* Page k of the seven keeps 8 * (k + 1) cells. */
    for (int i = 0; i < N; i++) {
        if (i % 64 >= 8 * (i / 64 + 1))
            pst_slab_give(b.slab, at[i]);
    }
    sparse = pst_offset_page(&b.arenas, at[0]);
    next = pst_offset_page(&b.arenas, at[64]);
    fullest = pst_offset_page(&b.arenas, at[6 * 64]);
    assert_int_equal(pst_slab_sparse_page(b.slab, 12), -ENOENT);
    assert_int_equal(pst_slab_sparse_page(b.slab, 13), sparse);
    assert_int_equal(pst_slab_sparse_page(b.slab, 100), next); /* not the same again */
    pst_slab_page_keep(b.slab, next);
    assert_int_equal(pst_slab_page_cells(b.slab, sparse, listed, 64), 8);
    assert_int_equal(pst_slab_page_cells(b.slab, sparse, listed, 5), 5);
    for (int i = 0; i < 5; i++)
        assert_int_equal(listed[i], at[i]);
    for (int i = 0; i < 192; i++) { /* all that the others have free, and not a cell from it */
        if (pst_slab_take(b.slab, 32 << 10, &more) == 0)
            assert_int_not_equal(pst_offset_page(&b.arenas, more), sparse);
    }
    for (int i = 0; i < 7; i++)
        pst_slab_give(b.slab, at[i]);
    pst_slab_page_keep(b.slab, sparse);
    pst_slab_page_keep(b.slab, fullest);             /* never held */
    pst_slab_page_keep(b.slab, b.arenas.page_count); /* no such page */
    for (int i = 0; i < 63; i++)
        (void)pst_slab_take(b.slab, 32 << 10, &more);
    close_bench(&b);
    free(at);
}

static void a_held_page_goes_when_it_empties(void **state)
{
    struct bench b;
    uint64_t a, c, d, listed[8];
    uint32_t page;

    (void)state;
    open_bench(&b, 2 << 20, 8, 8);
    a = take(&b, 100);
    c = take(&b, 1000);
    page = pst_offset_page(&b.arenas, a);
    assert_int_equal(pst_slab_sparse_page(b.slab, 50), page);
    assert_int_equal(pst_slab_page_cells(b.slab, page, listed, 8), 2);
    assert_int_equal(listed[0], a);
    assert_int_equal(listed[1], c);
    d = take(&b, 100); /* neither from its spans nor from a new one */
    assert_int_not_equal(pst_offset_page(&b.arenas, d), page);
    pst_slab_give(b.slab, a);
    pst_slab_give(b.slab, c);
    assert_int_equal(b.pages.free_count, 7);
    assert_int_equal(pst_slab_page_cells(b.slab, page, listed, 8), 0);
    pst_slab_page_keep(b.slab, page);
    pst_slab_give(b.slab, d);
    assert_all_given_back(&b);

    /* Held, partly emptied, kept: its spans and cells serve again. */
    a = take(&b, 100);
    c = take(&b, 1000);
    assert_int_equal(pst_slab_sparse_page(b.slab, 50), pst_offset_page(&b.arenas, a));
    pst_slab_give(b.slab, c);
    pst_slab_page_keep(b.slab, pst_offset_page(&b.arenas, a));
    assert_int_equal(take(&b, 100), a + 104);
    assert_int_equal(take(&b, 1000), c);
    assert_int_equal(b.pages.free_count, 7);
    close_bench(&b);
}

/* Sets of two shards on one bitmap do not see each other's cells. */
static void shards_are_apart(void **state)
{
    struct bench b;
    struct pst_slab *other;
    uint64_t a, c;

    (void)state;
    open_bench(&b, 64 << 10, 8, 8);
    assert_int_equal(pst_slab_open(&b.arenas, &b.pages, 6, &other), 0);
    a = take(&b, 64);
    assert_int_equal(pst_slab_take(other, 64, &c), 0);
    assert_int_not_equal(pst_offset_page(&b.arenas, a), pst_offset_page(&b.arenas, c));
    assert_int_equal(desc_of(&b, c)->shard, 6);
    assert_int_equal(pst_slab_cell_bytes(other, a), 0);
    assert_int_equal(pst_slab_cell_bytes(b.slab, c), 0);
    pst_slab_close(other);
    close_bench(&b);
}

/* Heap beside a page of 112-byte cells, allocator's own included: a quarter of a byte a cell. */
static void book_keeping_is_lean(void **state)
{
    const size_t allocator = 8, spans = 32, cells = (64 << 10) / 112;
    size_t block = sizeof(struct pst_slab_block) + pst_div_up(cells, 64) * sizeof(uint64_t);
    size_t page = sizeof(struct pst_slab_page) + spans * sizeof(void *) + sizeof(void *);

    (void)state;
    assert_true((spans * (block + allocator) + page + allocator) * 4 <= spans * cells);
}

/* ---- model check ---- */

enum { MODEL_CELLS = 3000, UNIT = 8 };

struct model {
    struct bench b;
    uint8_t *taken; /* one byte for each 8 bytes of the range */
    struct {
        uint64_t offset, bytes, owner;
    } cells[MODEL_CELLS];
    uint32_t count;
    uint64_t bytes_used;
};

static void model_take(struct model *m, uint64_t bytes)
{
    uint64_t at, cell;
    int r = pst_slab_take(m->b.slab, bytes, &at);

    if (r < 0) {
        assert_int_equal(r, -ENOSPC);
        assert_int_equal(m->b.pages.free_count, 0);
        return;
    }
    cell = pst_slab_cell_bytes(m->b.slab, at);
    assert_int_equal(cell, pst_slab_class_bytes(m->b.slab, pst_slab_class_of(m->b.slab, bytes)));
    assert_true(at % m->b.arenas.stride + cell <= m->b.arenas.arena_pages * m->b.arenas.page_bytes);
    assert_int_equal(at / m->b.arenas.page_bytes, (at + cell - 1) / m->b.arenas.page_bytes);
    for (uint64_t i = at / UNIT; i < (at + cell) / UNIT; i++) {
        if (m->taken[i]++)
            fail_msg("cell at %llu overlaps another", (unsigned long long)at);
    }
    m->cells[m->count].offset = at;
    m->cells[m->count].bytes = cell;
    m->cells[m->count].owner = cell >= 2048 ? (uint64_t)random() : 0;
    pst_slab_set_owner(m->b.slab, at, m->cells[m->count++].owner);
    m->bytes_used += cell;
}

static void model_give(struct model *m, uint32_t i)
{
    uint64_t at = m->cells[i].offset, bytes = m->cells[i].bytes;

    assert_int_equal(pst_slab_cell_bytes(m->b.slab, at + (uint64_t)random() % bytes), bytes);
    assert_true(pst_slab_owner(m->b.slab, at) == m->cells[i].owner);
    pst_slab_give(m->b.slab, at);
    assert_int_equal(pst_slab_cell_bytes(m->b.slab, at), 0);
    memset(m->taken + at / UNIT, 0, bytes / UNIT);
    m->bytes_used -= bytes;
    m->cells[i] = m->cells[--m->count];
}

/* The cells that the pages list are those that are taken. */
static void model_compare(struct model *m)
{
    uint64_t *offsets = calloc(MODEL_CELLS + 1, sizeof(*offsets)), bytes = 0;
    struct pst_slab_stat stat;
    uint32_t n = 0, pages = 0;

    for (uint32_t p = 0; p < m->b.arenas.page_count; p++) {
        uint32_t here = pst_slab_page_cells(m->b.slab, p, offsets, MODEL_CELLS + 1);

        pages += here > 0;
        n += here;
        for (uint32_t i = 0; i < here; i++) {
            assert_int_equal(m->taken[offsets[i] / UNIT], 1);
            bytes += pst_slab_cell_bytes(m->b.slab, offsets[i]);
        }
        assert_int_equal(pst_page_desc(&m->b.arenas, p)->kind != PST_PAGE_FREE, here > 0);
    }
    pst_slab_stat(m->b.slab, &stat);
    assert_int_equal(n, m->count);
    assert_int_equal(stat.pages, pages);
    assert_int_equal(stat.bytes_used, bytes);
    assert_int_equal(bytes, m->bytes_used);
    assert_int_equal(m->b.pages.free_count, m->b.pages.page_count - pages);
    free(offsets);
}

/* Forgets all that is on the heap, and claims every cell again from the descriptors. */
static void model_restart(struct model *m)
{
    struct bench *b = &m->b;

    assert_null(pst_slab_close(b->slab));
    pst_pages_fini(&b->pages);
    assert_int_equal(pst_pages_init(&b->pages, b->arenas.page_count, b->arenas.arena_pages), 0);
    assert_int_equal(pst_slab_open(&b->arenas, &b->pages, 5, &b->slab), 0);
    for (uint32_t i = 0; i < m->count; i++) {
        uint64_t at = m->cells[i].offset, bytes = m->cells[i].bytes;

        assert_int_equal(pst_slab_claim(b->slab, at + 4, 1), -EINVAL);
        assert_int_equal(pst_slab_claim(b->slab, at, bytes + 1), -EINVAL);
        assert_int_equal(pst_slab_claim(b->slab, at, bytes), 0);
        assert_int_equal(pst_slab_claim(b->slab, at, bytes), -EEXIST);
        pst_slab_set_owner(b->slab, at, m->cells[i].owner);
    }
    assert_int_equal(pst_slab_claim(b->slab, b->arenas.stride * b->arenas.arena_count, 1), -EINVAL);
    assert_int_equal(pst_slab_claim(b->slab, b->arenas.arena_pages * b->arenas.page_bytes, 1), -EINVAL);
    model_compare(m);
}

/* A descriptor that no slab set wrote, and a page that is someone else's. */
static void claims_look_at_descriptors(void **state)
{
    struct pst_slab_cut cut;
    struct bench b;
    uint64_t at;

    (void)state;
    open_bench(&b, 64 << 10, 4, 4);
    assert_int_equal(pst_slab_claim(b.slab, 0, 16), -EINVAL);
    assert_false(pst_slab_cut(b.slab, 0, 0, &cut));
    pst_page_desc(&b.arenas, 1)->kind = PST_PAGE_SLAB;
    pst_page_desc(&b.arenas, 1)->shard = 5;
    pst_page_desc(&b.arenas, 1)->slab_class = 250;
    assert_false(pst_slab_cut(b.slab, 1, 0, &cut));
    pst_page_desc(&b.arenas, 1)->slab_class = (uint8_t)pst_slab_class_of(b.slab, 30000);
    assert_true(pst_slab_cut(b.slab, 1, 0, &cut));
    assert_false(pst_slab_cut(b.slab, 1, 1, &cut));
    assert_int_equal(cut.cell_count, 2);
    assert_int_equal(pst_pages_claim(&b.pages, (struct pst_run){.page = 1, .count = 1}), 0);
    assert_int_equal(pst_slab_claim(b.slab, cut.offset, 30000), -EEXIST);
    pst_page_desc(&b.arenas, 1)->shard = 6;
    assert_int_equal(pst_slab_claim(b.slab, cut.offset, 30000), -EINVAL);
    at = take(&b, 100);
    assert_int_equal(desc_of(&b, at)->kind, PST_PAGE_SPANS);
    assert_false(pst_slab_cut(b.slab, pst_offset_page(&b.arenas, at), PST_PAGE_SPANS_MAX, &cut));
    close_bench(&b);
}

static uint64_t random_bytes(uint64_t max)
{
    uint64_t bits = (uint64_t)random() % (64 - (uint64_t)__builtin_clzll(max)) + 1;

    return pst_min((uint64_t)random() % (1ull << bits), max);
}

static void model_run(uint64_t page_bytes)
{
    struct model *m = calloc(1, sizeof(*m));
    int64_t held = -1;

    open_bench(&m->b, page_bytes, 48, 16);
    m->taken = calloc(m->b.arenas.stride * m->b.arenas.arena_count / UNIT, 1);
    for (int round = 0; round < 40000; round++) {
        bool filling = round / 5000 % 2 == 0;

        if (m->count < MODEL_CELLS && (uint32_t)random() % 16 < (filling ? 10 : 6))
            model_take(m, random_bytes(page_bytes / 2));
        else if (m->count > 0)
            model_give(m, (uint32_t)random() % m->count);
        if (round % 100 == 50 && held < 0)
            held = pst_slab_sparse_page(m->b.slab, 60);
        else if (round % 300 == 99 && held >= 0) {
            pst_slab_page_keep(m->b.slab, (uint32_t)held);
            held = -1;
        }
        if (round % 2000 == 0)
            model_compare(m);
        if (round % 5000 == 4000 && held < 0)
            model_restart(m);
    }
    while (m->count > 0)
        model_give(m, m->count - 1);
    model_compare(m);
    assert_all_given_back(&m->b);
    close_bench(&m->b);
    free(m->taken);
    free(m);
}

static void model_check(void **state)
{
    (void)state;
    srandom(5);
    for (size_t i = 0; i < pst_count_of(page_sizes); i++)
        model_run(page_sizes[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes_hold_and_waste_little),
        cmocka_unit_test(cells_are_aligned),
        cmocka_unit_test(small_classes_share_a_page),
        cmocka_unit_test(large_classes_have_pages),
        cmocka_unit_test(neighbours_stay_untouched),
        cmocka_unit_test(what_an_offset_holds),
        cmocka_unit_test(owners_stay_with_their_cell),
        cmocka_unit_test(sparse_pages_are_found_and_rested),
        cmocka_unit_test(a_held_page_goes_when_it_empties),
        cmocka_unit_test(shards_are_apart),
        cmocka_unit_test(book_keeping_is_lean),
        cmocka_unit_test(claims_look_at_descriptors),
        cmocka_unit_test(model_check),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

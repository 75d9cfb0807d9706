/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slab.c: cells for what is smaller than half a page: taking, giving, and telling what an offset holds. One
 * thread. A take looks at its class's first partial block only; a give finds its block from the offset by two
 * multiplications.
 */
#include "mem/slab_priv.h"

int pst_slab_open(struct pst_arenas *arenas, struct pst_pages *pages, uint16_t shard, struct pst_slab **out)
{
    struct pst_slab *slab = calloc(1, sizeof(*slab));
    uint64_t page_bytes = arenas->page_bytes;

    pst_assert(arenas->stride % page_bytes == 0);
    pst_assert(arenas->page_count == pages->page_count);
    if (!slab)
        return -ENOMEM;
    slab->arenas = arenas;
    slab->pages = pages;
    slab->shard = shard;
    slab->span_count = (uint32_t)pst_min(PST_PAGE_SPANS_MAX, page_bytes / (64 << 10));
    slab->span_bytes = (uint32_t)(page_bytes / slab->span_count / 4096 * 4096);
    pst_assert(slab->span_count > 0);
    pst_assert((uint64_t)slab->span_count * slab->span_bytes <= page_bytes);
    slab->page_divisor = pst_divisor_of((uint32_t)(page_bytes / 4096));
    slab->span_divisor = pst_divisor_of(slab->span_bytes);
    pst_slab_classes_init(slab, page_bytes);
    pst_list_init(&slab->spans_free);
    pst_list_init(&slab->held);
    for (int i = 0; i < PST_SLAB_SHARES; i++)
        pst_list_init(&slab->shares[i]);

    slab->frame_count = (uint32_t)(arenas->stride / page_bytes * arenas->arena_count);
    slab->frames = calloc(slab->frame_count, sizeof(struct pst_slab_page *));
    if (!slab->frames) {
        free(slab);
        return -ENOMEM;
    }
    pst_assert(slab->frame_count >= arenas->page_count);
    pst_assert(slab->stat.pages == 0);
    *out = slab;
    return 0;
}

static void drop_pages(const struct pst_slab *slab, struct pst_list *pages)
{
    pst_list_each_safe (node, pages) {
        struct pst_slab_page *page = pst_list_entry(node, struct pst_slab_page, share_node);

        pst_assert(pst_slab_page_at(slab, page->offset) == page);
        pst_assert(page->held == (pages == &slab->held));
        for (uint32_t i = 0; i < (page->has_spans ? slab->span_count : 1); i++)
            free(page->blocks[i]);
        pst_slab_page_free(page);
    }
}

struct pst_slab *pst_slab_close(struct pst_slab *slab)
{
    if (!slab)
        return NULL;
    for (int i = 0; i < PST_SLAB_SHARES; i++)
        drop_pages(slab, &slab->shares[i]);
    drop_pages(slab, &slab->held);
    pst_assert(pst_list_empty(&slab->held));
    pst_assert(pst_list_empty(&slab->spans_free));
    free(slab->frames);
    free(slab);
    return NULL;
}

/* ---- take, give ---- */

static void count_use(struct pst_slab *slab, struct pst_slab_page *page, uint32_t bytes)
{
    page->bytes_used += bytes; /* modulo 2^32: a give passes the negative */
    slab->stat.bytes_used += (uint64_t)(int32_t)bytes;
    pst_assert(page->bytes_used <= page->bytes_max);
    pst_assert(slab->stat.bytes_used >= page->bytes_used);
    if (pst_unlikely(page->bytes_used - page->share_start >= page->share_bytes))
        pst_slab_page_shared(slab, page);
}

bool pst_slab_has_room(const struct pst_slab *slab, uint64_t bytes)
{
    uint32_t slab_class = pst_slab_class_of(slab, bytes);

    return !pst_list_empty(&slab->classes[slab_class].partial) ||
           (slab_class < slab->span_classes && !pst_list_empty(&slab->spans_free));
}

int pst_slab_take(struct pst_slab *slab, uint64_t bytes, uint64_t *offset)
{
    uint32_t slab_class = pst_slab_class_of(slab, bytes), word, cell;
    struct pst_slab_class *c = &slab->classes[slab_class];
    struct pst_slab_block *block;

    if (pst_unlikely(pst_list_empty(&c->partial))) {
        int r = pst_slab_grow(slab, slab_class);

        if (r < 0)
            return r;
    }
    block = pst_list_first(&c->partial, struct pst_slab_block, node);
    pst_assert(block->used_count < c->cell_count);
    pst_assert(block->slab_class == slab_class);
    pst_assert(!block->page->held);
    for (word = block->word_hint; !block->words[word];)
        word++;
    cell = word * 64 + (uint32_t)__builtin_ctzll(block->words[word]);
    pst_assert(cell < c->cell_count);
    block->words[word] &= block->words[word] - 1;
    block->word_hint = word;
    if (++block->used_count == c->cell_count)
        pst_list_remove(&block->node);
    count_use(slab, block->page, c->cell_bytes);
    *offset = block->page->offset + block->start + cell * c->cell_bytes;
    pst_assert(c->cell_bytes >= bytes);
    pst_assert(*offset % (1u << slab->arenas->cell_shift) == 0);
    return 0;
}

int pst_slab_claim(struct pst_slab *slab, uint64_t offset, uint64_t bytes)
{
    const struct pst_arenas *a = slab->arenas;
    struct pst_slab_block *block;
    struct pst_slab_cut cut;
    uint32_t page, part, cell;
    int r;

    if (offset / a->stride >= a->arena_count || offset % a->stride / a->page_bytes >= a->arena_pages)
        return -EINVAL;
    page = pst_offset_page(a, offset);
    part = (uint32_t)(offset - pst_page_offset(a, page)) / slab->span_bytes;
    if (!pst_slab_cut(slab, page, pst_page_desc(a, page)->kind == PST_PAGE_SPANS ? part : 0, &cut) ||
        offset < cut.offset || bytes > cut.cell_bytes)
        return -EINVAL;
    cell = (uint32_t)(offset - cut.offset) / cut.cell_bytes;
    if (cell >= cut.cell_count || cut.offset + (uint64_t)cell * cut.cell_bytes != offset)
        return -EINVAL;
    r = pst_slab_adopt(slab, page, &cut, &block);
    if (r < 0)
        return r;
    if (cell >= slab->classes[block->slab_class].cell_count || !pst_slab_is_free(block, cell))
        return -EEXIST;
    pst_assert(block->page->page == page);
    pst_assert(block->used_count < cut.cell_count);
    block->words[cell / 64] &= ~(1ull << (cell % 64));
    if (++block->used_count == cut.cell_count)
        pst_list_remove(&block->node);
    count_use(slab, block->page, cut.cell_bytes);
    return 0;
}

struct cell {
    struct pst_slab_block *block;
    uint32_t index;
    uint32_t inside; /* the offset's distance from the cell's start */
};

/* Whether @offset lies in a taken cell of this set, and in which. */
static bool find_cell(const struct pst_slab *slab, uint64_t offset, struct cell *out)
{
    struct pst_slab_page *page = pst_slab_page_at(slab, offset);
    const struct pst_slab_class *c;
    struct pst_slab_block *block;
    uint32_t inside, span = 0, index;

    if (!page)
        return false;
    pst_assert(offset >= page->offset);
    pst_assert(offset - page->offset < slab->arenas->page_bytes);
    inside = (uint32_t)(offset - page->offset);
    if (page->has_spans) {
        span = pst_divide(inside, slab->span_divisor);
        if (span >= slab->span_count)
            return false;
    }
    block = page->blocks[span];
    if (!block)
        return false;
    pst_assert(block->page == page);
    pst_assert(block->span == span);
    pst_assert(inside >= block->start);
    c = &slab->classes[block->slab_class];
    inside -= block->start;
    index = pst_divide(inside, c->divisor);
    if (index >= c->cell_count || pst_slab_is_free(block, index))
        return false;
    pst_assert(inside - index * c->cell_bytes < c->cell_bytes);
    pst_assert(block->used_count > 0);
    *out = (struct cell){.block = block, .index = index, .inside = inside - index * c->cell_bytes};
    return true;
}

static uint64_t *owner_of(const struct pst_slab *slab, const struct cell *cell)
{
    const struct pst_slab_class *c = &slab->classes[cell->block->slab_class];

    pst_assert(cell->index < c->cell_count);
    pst_assert(cell->inside < c->cell_bytes);
    if (c->cell_bytes < PST_SLAB_OWNED_BYTES_MIN)
        return NULL;
    return &cell->block->words[pst_div_up(c->cell_count, 64) + cell->index];
}

void pst_slab_give(struct pst_slab *slab, uint64_t offset)
{
    struct cell cell = {.block = NULL};
    bool found = find_cell(slab, offset, &cell);
    struct pst_slab_block *block = cell.block;
    struct pst_slab_class *c;
    uint64_t *owner;

    pst_assert(found);
    pst_assert(cell.inside == 0);
    c = &slab->classes[block->slab_class];
    pst_assert(block->used_count > 0 && block->used_count <= c->cell_count);
    owner = owner_of(slab, &cell);
    if (owner)
        *owner = 0;
    block->words[cell.index / 64] |= 1ull << (cell.index % 64);
    block->word_hint = (uint32_t)pst_min(block->word_hint, cell.index / 64);
    count_use(slab, block->page, -c->cell_bytes);
    if (--block->used_count == 0)
        pst_slab_shrink(slab, block);
    else if (block->used_count == c->cell_count - 1 && !block->page->held)
        pst_list_push_back(&c->partial, &block->node);
}

/* ---- what an offset holds ---- */

uint32_t pst_slab_cell_bytes(const struct pst_slab *slab, uint64_t offset)
{
    struct cell cell;

    return find_cell(slab, offset, &cell) ? slab->classes[cell.block->slab_class].cell_bytes : 0;
}

void pst_slab_set_owner(struct pst_slab *slab, uint64_t offset, uint64_t owner)
{
    struct cell cell = {.block = NULL};
    bool found = find_cell(slab, offset, &cell);
    uint64_t *kept;

    pst_assert(found);
    kept = owner_of(slab, &cell);
    if (kept)
        *kept = owner;
}

uint64_t pst_slab_owner(const struct pst_slab *slab, uint64_t offset)
{
    struct cell cell;
    const uint64_t *kept = find_cell(slab, offset, &cell) ? owner_of(slab, &cell) : NULL;

    return kept ? *kept : 0;
}

static uint32_t list_cells(const struct pst_slab *slab, const struct pst_slab_block *block, uint64_t *offsets,
                           uint32_t max)
{
    const struct pst_slab_class *c = &slab->classes[block->slab_class];
    uint32_t n = 0;

    pst_assert(block->used_count <= c->cell_count);
    for (uint32_t cell = 0; cell < c->cell_count && n < max; cell++) {
        if (!pst_slab_is_free(block, cell))
            offsets[n++] = block->page->offset + block->start + cell * c->cell_bytes;
    }
    pst_assert(n <= block->used_count);
    return n;
}

uint32_t pst_slab_page_cells(const struct pst_slab *slab, uint32_t page, uint64_t *offsets, uint32_t max)
{
    const struct pst_slab_page *p = pst_slab_page_at(slab, pst_page_offset(slab->arenas, page));
    uint32_t n = 0;

    if (!p)
        return 0;
    pst_assert(p->page == page);
    for (uint32_t i = 0; i < (p->has_spans ? slab->span_count : 1); i++) {
        if (p->blocks[i])
            n += list_cells(slab, p->blocks[i], offsets + n, max - n);
    }
    pst_assert(n <= max);
    pst_assert(n > 0 || p->bytes_used == 0 || max == 0);
    return n;
}

void pst_slab_stat(const struct pst_slab *slab, struct pst_slab_stat *out)
{
    pst_assert(slab->stat.bytes_used <= slab->stat.pages * slab->arenas->page_bytes);
    *out = slab->stat;
}

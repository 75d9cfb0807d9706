/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slab_page.c: how a slab set gets pages, cuts them into blocks, and gives them back. The page's descriptor
 * in the arena trailer says SLAB or SPANS from before its first cell is handed out until after its last one
 * came back.
 */
#include "mem/slab_priv.h"
#include "base/fault.h"

/* ---- pages ---- */

static struct pst_list *share_list(struct pst_slab *slab, const struct pst_slab_page *page)
{
    return page->held ? &slab->held : &slab->shares[page->bytes_used / page->share_bytes];
}

void pst_slab_page_shared(struct pst_slab *slab, struct pst_slab_page *page)
{
    pst_assert(page->bytes_used <= page->bytes_max);
    pst_assert(page->bytes_used / page->share_bytes < PST_SLAB_SHARES);
    page->share_start = page->bytes_used / page->share_bytes * page->share_bytes;
    pst_list_remove(&page->share_node);
    pst_list_push_front(share_list(slab, page), &page->share_node);
}

/* A page for @block_count blocks that together hold @bytes_max, or with @claimed just that page; nothing is
 * in it yet. */
static int page_new(struct pst_slab *slab, uint32_t block_count, uint32_t bytes_max, const uint32_t *claimed,
                    struct pst_slab_page **out)
{
    struct pst_slab_page *page = calloc(1, sizeof(*page) + block_count * sizeof(page->blocks[0]));
    struct pst_run run = {.page = claimed ? *claimed : 0, .count = 1};
    int r;

    pst_assert(block_count > 0);
    pst_assert(bytes_max > 0 && bytes_max <= slab->arenas->page_bytes);
    if (!page || pst_fault(PST_FAULT_slab_page_enomem)) {
        free(page);
        return -ENOMEM;
    }
    r = claimed ? pst_pages_claim(slab->pages, run) : pst_pages_take(slab->pages, 1, &run, 1);
    if (r < 0) {
        free(page);
        return claimed ? r : -ENOSPC;
    }
    pst_assert(run.count == 1);
    pst_assert(run.page < slab->arenas->page_count);
    page->page = run.page;
    page->offset = pst_page_offset(slab->arenas, run.page);
    page->bytes_max = bytes_max;
    page->share_bytes = bytes_max / PST_SLAB_SHARES + 1;
    pst_list_init(&page->share_node);
    pst_list_init(&page->spans_node);
    pst_slab_page_shared(slab, page);
    pst_assert(!pst_slab_page_at(slab, page->offset));
    pst_assert(slab->stat.pages < slab->arenas->page_count);
    slab->frames[page->offset / slab->arenas->page_bytes] = page;
    slab->stat.pages++;
    *out = page;
    return 0;
}

void pst_slab_page_free(struct pst_slab_page *page)
{
    pst_assert(page->bytes_used <= page->bytes_max);
    pst_list_remove(&page->share_node);
    pst_list_remove(&page->spans_node);
    free(page);
}

static void page_give(struct pst_slab *slab, struct pst_slab_page *page)
{
    struct pst_run run = {.page = page->page, .count = 1};
    struct pst_page_desc *desc = pst_page_desc(slab->arenas, page->page);
    bool viewed = desc->views > 0; /* by clients of an earlier process: then it is held */
    uint32_t freed;

    pst_assert(page->bytes_used == 0);
    pst_assert(slab->stat.pages > 0);
    pst_assert(pst_slab_page_at(slab, page->offset) == page);
    /* Before the page is free for others, whose descriptor it is then. */
    *desc = (struct pst_page_desc){
        .views = desc->views, .view_first = desc->view_first, .view_last = desc->view_last};
    slab->frames[page->offset / slab->arenas->page_bytes] = NULL;
    slab->stat.pages--;
    pst_slab_page_free(page);
    freed = pst_pages_give(slab->pages, &run, 1);
    pst_assert(freed == 1 || viewed); /* else someone gave this set's page away */
}

/* ---- blocks ---- */

static struct pst_slab_block *block_new(const struct pst_slab *slab, uint32_t slab_class)
{
    const struct pst_slab_class *c = &slab->classes[slab_class];
    size_t words = pst_div_up(c->cell_count, 64);
    size_t owners = c->cell_bytes >= PST_SLAB_OWNED_BYTES_MIN ? c->cell_count : 0;
    struct pst_slab_block *block = calloc(1, sizeof(*block) + (words + owners) * sizeof(uint64_t));

    pst_assert(slab_class < slab->class_count);
    pst_assert(c->cell_count > 0);
    if (!block)
        return NULL;
    memset(block->words, 0xff, words * sizeof(uint64_t));
    if (c->cell_count % 64)
        block->words[words - 1] = (1ull << (c->cell_count % 64)) - 1;
    block->slab_class = (uint8_t)slab_class;
    pst_list_init(&block->node);
    return block;
}

static int grow_page(struct pst_slab *slab, struct pst_slab_block *block)
{
    const struct pst_slab_class *c = &slab->classes[block->slab_class];
    struct pst_slab_page *page;
    int r = page_new(slab, 1, c->cell_count * c->cell_bytes, NULL, &page);

    pst_assert(block->slab_class >= slab->span_classes);
    if (r < 0)
        return r;
    *pst_page_desc(slab->arenas, page->page) = (struct pst_page_desc){
        .kind = PST_PAGE_SLAB,
        .slab_class = block->slab_class,
        .shard = slab->shard,
    };
    page->blocks[0] = block;
    block->page = page;
    return 0;
}

static int spans_page_new(struct pst_slab *slab, const uint32_t *claimed, struct pst_slab_page **out)
{
    int r = page_new(slab, slab->span_count, slab->span_count * slab->span_bytes, claimed, out);

    if (r < 0)
        return r;
    (*out)->has_spans = true;
    (*out)->spans_free = (uint32_t)((1ull << slab->span_count) - 1);
    pst_list_push_front(&slab->spans_free, &(*out)->spans_node);
    pst_assert((*out)->spans_free != 0);
    pst_assert(!(*out)->held);
    return 0;
}

static int spans_page(struct pst_slab *slab, struct pst_slab_page **out)
{
    int r;

    if (!pst_list_empty(&slab->spans_free)) {
        *out = pst_list_first(&slab->spans_free, struct pst_slab_page, spans_node);
        return 0;
    }
    r = spans_page_new(slab, NULL, out);
    if (r == 0)
        *pst_page_desc(slab->arenas, (*out)->page) = (struct pst_page_desc){
            .kind = PST_PAGE_SPANS,
            .shard = slab->shard,
        };
    pst_assert(r < 0 || (*out)->has_spans);
    return r;
}

/* The span becomes the block's. */
static void fill_span(struct pst_slab_page *page, uint32_t span, uint32_t span_bytes,
                      struct pst_slab_block *block)
{
    pst_assert(page->has_spans);
    pst_assert(page->spans_free >> span & 1);
    pst_assert(!page->held);
    pst_assert(!page->blocks[span]);
    block->span = (uint8_t)span;
    block->start = span * span_bytes;
    block->page = page;
    page->blocks[span] = block;
    page->spans_free &= ~(1u << span);
    if (!page->spans_free)
        pst_list_remove(&page->spans_node);
}

static int grow_span(struct pst_slab *slab, struct pst_slab_block *block)
{
    struct pst_slab_page *page;
    int r = spans_page(slab, &page);

    pst_assert(block->slab_class < slab->span_classes);
    if (r < 0)
        return r;
    pst_assert(page->spans_free);
    fill_span(page, (uint32_t)__builtin_ctz(page->spans_free), slab->span_bytes, block);
    pst_page_desc(slab->arenas, page->page)->span_class[block->span] = (uint8_t)(block->slab_class + 1);
    return 0;
}

int pst_slab_grow(struct pst_slab *slab, uint32_t slab_class)
{
    struct pst_slab_block *block = block_new(slab, slab_class);
    int r;

    if (!block)
        return -ENOMEM;
    pst_assert(pst_list_empty(&slab->classes[slab_class].partial));
    r = slab_class < slab->span_classes ? grow_span(slab, block) : grow_page(slab, block);
    if (r < 0) {
        free(block);
        return r;
    }
    pst_list_push_front(&slab->classes[slab_class].partial, &block->node);
    return 0;
}

void pst_slab_shrink(struct pst_slab *slab, struct pst_slab_block *empty)
{
    struct pst_slab_page *page = empty->page;
    uint32_t all = (uint32_t)((1ull << slab->span_count) - 1);

    pst_assert(empty->used_count == 0);
    pst_assert(page->blocks[empty->span] == empty);
    pst_assert(!page->has_spans || !(page->spans_free >> empty->span & 1));
    pst_list_remove(&empty->node);
    page->blocks[empty->span] = NULL;
    if (page->has_spans) {
        pst_page_desc(slab->arenas, page->page)->span_class[empty->span] = 0;
        if (!page->spans_free && !page->held)
            pst_list_push_front(&slab->spans_free, &page->spans_node);
        page->spans_free |= 1u << empty->span;
    }
    pst_assert(!page->has_spans || (page->spans_free & ~all) == 0);
    free(empty);
    if (!page->has_spans || page->spans_free == all)
        page_give(slab, page);
}

/* ---- what an earlier process left ---- */

/* The class of part @part of a page as its descriptor has it, or -1. */
static int class_of_part(const struct pst_slab *slab, const struct pst_page_desc *desc, uint32_t part)
{
    bool spans = desc->kind == PST_PAGE_SPANS;
    uint32_t slab_class = spans ? desc->span_class[part] - 1u : desc->slab_class;

    if (desc->shard != slab->shard || (!spans && desc->kind != PST_PAGE_SLAB) ||
        part >= (spans ? slab->span_count : 1) || slab_class >= slab->class_count ||
        spans != (slab_class < slab->span_classes))
        return -1;
    return (int)slab_class;
}

bool pst_slab_cut(const struct pst_slab *slab, uint32_t page, uint32_t part, struct pst_slab_cut *out)
{
    const struct pst_page_desc *desc = pst_page_desc(slab->arenas, page);
    int slab_class = part < PST_PAGE_SPANS_MAX ? class_of_part(slab, desc, part) : -1;

    if (slab_class < 0)
        return false;
    *out = (struct pst_slab_cut){
        .offset = pst_page_offset(slab->arenas, page) +
                  (desc->kind == PST_PAGE_SPANS ? (uint64_t)part * slab->span_bytes : 0),
        .cell_bytes = slab->classes[slab_class].cell_bytes,
        .cell_count = slab->classes[slab_class].cell_count,
    };
    pst_assert((uint64_t)out->cell_bytes * out->cell_count <= slab->arenas->page_bytes);
    return true;
}

int pst_slab_adopt(struct pst_slab *slab, uint32_t number, const struct pst_slab_cut *cut,
                   struct pst_slab_block **out)
{
    struct pst_slab_page *page = pst_slab_page_at(slab, cut->offset);
    bool spans = pst_page_desc(slab->arenas, number)->kind == PST_PAGE_SPANS;
    uint32_t part =
        spans ? (uint32_t)(cut->offset - pst_page_offset(slab->arenas, number)) / slab->span_bytes : 0;
    uint32_t slab_class = pst_slab_class_of(slab, cut->cell_bytes);
    struct pst_slab_block *block = page ? page->blocks[part] : NULL;
    int r = 0;

    if (block) {
        *out = block;
        return 0;
    }
    block = block_new(slab, slab_class);
    if (!block)
        return -ENOMEM;
    if (!page && spans)
        r = spans_page_new(slab, &number, &page);
    else if (!page)
        r = page_new(slab, 1, cut->cell_count * cut->cell_bytes, &number, &page);
    if (r < 0) {
        free(block);
        return r;
    }
    if (spans) {
        fill_span(page, part, slab->span_bytes, block);
    } else {
        page->blocks[0] = block;
        block->page = page;
    }
    pst_assert(block->page == page);
    pst_assert(page->page == number);
    pst_assert(!page->held);
    pst_list_push_front(&slab->classes[slab_class].partial, &block->node);
    *out = block;
    return 0;
}

/* ---- taking pages back ---- */

/* A look at so many pages of one share finds one that is sparse enough; a full pass would stall the shard. */
enum { LOOK_MAX = 64 };

static struct pst_slab_page *sparsest_in(const struct pst_list *pages)
{
    struct pst_slab_page *best = NULL;
    uint64_t best_used = UINT64_MAX;
    uint32_t looked = 0;

    pst_list_each (node, pages) {
        struct pst_slab_page *page = pst_list_entry(node, struct pst_slab_page, share_node);
        /* In millionths: pages of different classes hold different amounts. */
        uint64_t used = (uint64_t)page->bytes_used * 1000000 / page->bytes_max;

        pst_assert(page->bytes_used <= page->bytes_max);
        pst_assert(!page->held);
        if (used < best_used) {
            best = page;
            best_used = used;
        }
        if (++looked == LOOK_MAX)
            break;
    }
    pst_assert(looked <= LOOK_MAX);
    pst_assert(best || looked == 0);
    return best;
}

static void slab_page_hold(struct pst_slab *slab, struct pst_slab_page *page)
{
    pst_assert(pst_slab_page_at(slab, page->offset) == page);
    page->held = true;
    pst_slab_page_shared(slab, page);
    pst_list_remove(&page->spans_node);
    for (uint32_t i = 0; i < (page->has_spans ? slab->span_count : 1); i++) {
        if (page->blocks[i])
            pst_list_remove(&page->blocks[i]->node);
    }
}

int64_t pst_slab_sparse_page(struct pst_slab *slab, uint32_t used_percent)
{
    struct pst_slab_page *page = NULL;

    for (int i = 0; i < PST_SLAB_SHARES && !page; i++)
        page = sparsest_in(&slab->shares[i]);
    if (!page || (uint64_t)page->bytes_used * 100 > (uint64_t)page->bytes_max * used_percent)
        return -ENOENT;
    pst_assert(!page->held);
    slab_page_hold(slab, page);
    return page->page;
}

void pst_slab_page_hold(struct pst_slab *slab, uint32_t page_number)
{
    struct pst_slab_page *page = pst_slab_page_at(slab, pst_page_offset(slab->arenas, page_number));

    if (page)
        slab_page_hold(slab, page);
}

void pst_slab_page_keep(struct pst_slab *slab, uint32_t page_number)
{
    struct pst_slab_page *page = pst_slab_page_at(slab, pst_page_offset(slab->arenas, page_number));

    if (!page || !page->held)
        return; /* it emptied meanwhile */
    page->held = false;
    pst_slab_page_shared(slab, page);
    if (page->spans_free)
        pst_list_push_back(&slab->spans_free, &page->spans_node);
    for (uint32_t i = 0; i < (page->has_spans ? slab->span_count : 1); i++) {
        struct pst_slab_block *block = page->blocks[i];

        pst_assert(!block || pst_list_empty(&block->node)); /* while it was held none was added */
        if (block && block->used_count < slab->classes[block->slab_class].cell_count)
            pst_list_push_back(&slab->classes[block->slab_class].partial, &block->node);
    }
}

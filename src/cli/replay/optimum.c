/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optimum.c: Belady's optimum. Whatever is needed last goes first, at once if it came just now; since a page
 * of a chain is never needed before those in front of it, what stays are fronts of chains, and no other
 * choice has more hits by prefix.
 */
#include "cli/replay/trace.h"

#include <stdlib.h>

enum { NEVER = UINT32_MAX };

/* When a page of the cache is needed next; stale once @next[page] says otherwise. */
struct need {
    uint32_t request, page;
    uint32_t depth;
};

struct heap {
    struct need *needs; /* the latest need on top, of one moment the deepest */
    uint64_t count;
};

static bool later(const struct need *a, const struct need *b)
{
    return a->request != b->request ? a->request > b->request : a->depth > b->depth;
}

static void push(struct heap *h, struct need need)
{
    uint64_t at = h->count++;

    for (; at && later(&need, &h->needs[(at - 1) / 2]); at = (at - 1) / 2)
        h->needs[at] = h->needs[(at - 1) / 2];
    h->needs[at] = need;
}

static struct need pop(struct heap *h)
{
    struct need top = h->needs[0], last = h->needs[--h->count];
    uint64_t at = 0;

    for (;;) {
        uint64_t child = 2 * at + 1;

        if (child + 1 < h->count && later(&h->needs[child + 1], &h->needs[child]))
            child++;
        if (child >= h->count || !later(&h->needs[child], &last))
            break;
        h->needs[at] = h->needs[child];
        at = child;
    }
    h->needs[at] = last;
    return top;
}

struct future {
    uint32_t *following; /* of each reference: the request that needs its page next */
    uint32_t *next;      /* of each page in the cache: likewise */
    bool *there;
    struct heap heap;
};

static void look_ahead(const struct pst_trace *t, struct future *f)
{
    memset(f->next, 0xff, t->unique_count * sizeof(*f->next));
    for (uint64_t request = t->request_count; request-- > 0;) {
        for (uint64_t i = t->starts[request]; i < t->starts[request + 1]; i++)
            f->following[i] = f->next[t->pages[i]];
        for (uint64_t i = t->starts[request]; i < t->starts[request + 1]; i++)
            f->next[t->pages[i]] = (uint32_t)request;
    }
}

static int64_t play(const struct pst_trace *t, struct future *f, uint64_t capacity)
{
    uint64_t used = 0;
    int64_t hits = 0;

    for (uint64_t request = 0; request < t->request_count; request++) {
        uint64_t start = t->starts[request], end = t->starts[request + 1], i = start;

        for (; i < end && f->there[t->pages[i]]; i++)
            hits++;
        for (i = start; i < end; i++) {
            uint32_t page = t->pages[i];

            used += !f->there[page];
            f->there[page] = true;
            f->next[page] = f->following[i];
            push(&f->heap, (struct need){f->following[i], page, (uint32_t)(i - start)});
        }
        while (used > capacity) {
            struct need need = pop(&f->heap);

            if (f->there[need.page] && f->next[need.page] == need.request) {
                f->there[need.page] = false;
                used--;
            }
        }
    }
    return hits;
}

int64_t pst_trace_optimum(const struct pst_trace *t, uint64_t capacity)
{
    struct future f = {.following = malloc(t->page_count * sizeof(*f.following)),
                       .next = malloc(t->unique_count * sizeof(*f.next)),
                       .there = calloc(t->unique_count, sizeof(*f.there)),
                       .heap = {.needs = malloc(t->page_count * sizeof(*f.heap.needs))}};
    int64_t hits = -ENOMEM;

    pst_assert(t->page_count > 0);
    pst_assert(t->request_count < NEVER);
    if (f.following && f.next && f.there && f.heap.needs) {
        look_ahead(t, &f);
        hits = play(t, &f, capacity);
    }
    free(f.following);
    free(f.next);
    free(f.there);
    free(f.heap.needs);
    return hits;
}

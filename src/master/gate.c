/*
 * gate.c: the view as the shards' threads need it: who serves a slot, as bits, and the prefixes, which change
 * rarely: those of former views stay until the end, since somebody may be looking at them.
 */
#include "master/gate.h"

#include "base/clock.h"
#include "directory/lease.h"
#include "wire/pool.h"

#include <stdatomic.h>

enum { BUSY = 4, WORDS = PST_SLOTS / 64 };

/* Of a view without members and slots. */
struct prefixes {
    struct prefixes *older;
    struct pst_view *view;
};

struct pst_gate {
    _Atomic(struct prefixes *) prefixes; /* NULL: no view has come */
    _Atomic uint64_t until_ns;
    _Atomic uint64_t ours[WORDS], nobodys[WORDS]; /* slots; a lease of later goes with these or later ones */
};

int pst_gate_open(struct pst_gate **out)
{
    *out = calloc(1, sizeof(**out));
    return *out ? 0 : -ENOMEM;
}

struct pst_gate *pst_gate_close(struct pst_gate *gate)
{
    struct prefixes *p = gate ? gate->prefixes : NULL;

    while (p) {
        struct prefixes *older = p->older;

        pst_view_close(p->view);
        free(p);
        p = older;
    }
    free(gate);
    return NULL;
}

int pst_gate_may_serve(void *ctx, struct pst_bytes key)
{
    struct pst_gate *gate = ctx;
    const struct prefixes *p = atomic_load_explicit(&gate->prefixes, memory_order_acquire);
    const struct pst_view_prefix *prefix;
    uint64_t until_ns, bit;
    uint32_t slot;

    if (!p)
        return BUSY;
    if (p->view->prefix_count == 0)
        return 0;
    prefix = pst_view_prefix_of(p->view, key);
    if (!prefix || prefix->placement != PST_PLACE_HOME)
        return 0;
    /* The lease first: one that is newer than the bits would be another view's. */
    until_ns = atomic_load_explicit(&gate->until_ns, memory_order_acquire);
    slot = pst_view_slot_of(p->view, key);
    bit = 1ull << slot % 64;
    if (atomic_load_explicit(&gate->ours[slot / 64], memory_order_relaxed) & bit)
        return pst_clock_read_ns(CLOCK_BOOTTIME) < until_ns ? 0 : BUSY;
    return atomic_load_explicit(&gate->nobodys[slot / 64], memory_order_relaxed) & bit ? PST_POOL_NO_PRIMARY
                                                                                       : -ESTALE;
}

static bool same_prefixes(const struct prefixes *p, const struct pst_view *view)
{
    return p && p->view->seed == view->seed && p->view->prefix_count == view->prefix_count &&
           memcmp(p->view->prefixes, view->prefixes, view->prefix_count * sizeof(view->prefixes[0])) == 0;
}

static int take_prefixes(struct pst_gate *gate, const struct pst_view *view)
{
    struct prefixes *older = gate->prefixes, *p;
    int r;

    if (same_prefixes(older, view))
        return 0;
    p = calloc(1, sizeof(*p));
    if (!p)
        return -ENOMEM;
    r = pst_view_open(1, view->seed, &p->view);
    if (r < 0) {
        free(p);
        return r;
    }
    p->view->prefix_count = view->prefix_count;
    memcpy(p->view->prefixes, view->prefixes, sizeof(view->prefixes));
    p->older = older;
    atomic_store_explicit(&gate->prefixes, p, memory_order_release);
    return 0;
}

int pst_gate_view(struct pst_gate *gate, const struct pst_view *view, uint16_t member, uint64_t epoch)
{
    const struct pst_lease for_ever = {.until_ns = UINT64_MAX};

    for (uint32_t word = 0; word < WORDS; word++) {
        uint64_t ours = 0, nobodys = 0;

        for (uint32_t i = 0; i < 64; i++) {
            enum pst_serve serve = pst_lease_serve(&for_ever, view, member, epoch, 64 * word + i, 0);

            ours |= (uint64_t)(serve == PST_SERVE_YES) << i;
            nobodys |= (uint64_t)(serve == PST_SERVE_INCOMPLETE) << i;
        }
        atomic_store_explicit(&gate->ours[word], ours, memory_order_relaxed);
        atomic_store_explicit(&gate->nobodys[word], nobodys, memory_order_relaxed);
    }
    return take_prefixes(gate, view);
}

void pst_gate_lease(struct pst_gate *gate, uint64_t until_ns)
{
    atomic_store_explicit(&gate->until_ns, until_ns, memory_order_release);
}

/*
 * gate.c: the view as the shards' threads need it: who serves a slot, as bits, and the prefixes, which change
 * rarely: those of former views stay until the end, since somebody may be looking at them.
 */
#include "master/gate.h"

#include "base/clock.h"
#include "directory/lease.h"
#include "master/copies.h"
#include "wire/pool.h"
#include "wire/wire.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>

enum { BUSY = 4, WORDS = PST_SLOTS / 64 };

/* Of a view without members and slots. */
struct prefixes {
    struct prefixes *older;
    uint32_t number;
    struct pst_view *view;
};

struct pst_gate {
    _Atomic(struct prefixes *) prefixes; /* NULL: no view has come */
    _Atomic uint64_t until_ns;
    _Atomic uint64_t ours[WORDS], nobodys[WORDS]; /* slots; a lease of later goes with these or later ones */
    _Atomic uint64_t held[WORDS];                 /* ours, and not to be served yet */
    _Atomic uint64_t copied[WORDS];               /* others hold them, too */
    _Atomic uint64_t kept[WORDS];                 /* this node is among those that have them */
    _Atomic uint64_t epochs[PST_SLOTS];
    _Atomic uint64_t filled[PST_SLOTS]; /* the last epoch in which another node wrote here */
    _Atomic bool behind;                /* somebody has a newer view */
    _Atomic int wake_fd;                /* of who fetches one; -1: nobody */
    struct pst_copies *_Atomic copies;  /* NULL: not there */
    _Atomic uint64_t counters[PST_GATE_COUNTER_COUNT];
};

static bool has(const _Atomic uint64_t *bits, uint32_t slot)
{
    return atomic_load(&bits[slot / 64]) >> slot % 64 & 1;
}

static void set(_Atomic uint64_t *bits, uint32_t slot, bool on)
{
    if (on)
        atomic_fetch_or(&bits[slot / 64], 1ull << slot % 64);
    else
        atomic_fetch_and(&bits[slot / 64], ~(1ull << slot % 64));
}

int pst_gate_open(struct pst_gate **out)
{
    *out = calloc(1, sizeof(**out));
    if (!*out)
        return -ENOMEM;
    (*out)->wake_fd = -1;
    return 0;
}

struct pst_gate *pst_gate_close(struct pst_gate *gate)
{
    struct prefixes *p = gate ? gate->prefixes : NULL;

    if (gate)
        pst_copies_close(gate->copies);
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
        return pst_clock_read_ns(CLOCK_BOOTTIME) < until_ns && !has(gate->held, slot) ? 0 : BUSY;
    return atomic_load_explicit(&gate->nobodys[slot / 64], memory_order_relaxed) & bit ? PST_POOL_NO_PRIMARY
                                                                                       : -ESTALE;
}

/* The slot of a key that has a home; PST_SLOTS: it has none. */
uint32_t pst_gate_slot_of(void *ctx, struct pst_bytes key)
{
    struct pst_gate *gate = ctx;
    const struct prefixes *p = atomic_load_explicit(&gate->prefixes, memory_order_acquire);
    const struct pst_view_prefix *prefix = p ? pst_view_prefix_of(p->view, key) : NULL;

    return prefix && prefix->placement == PST_PLACE_HOME ? pst_view_slot_of(p->view, key) : PST_SLOTS;
}

uint32_t pst_gate_replicas(const struct pst_gate *gate, struct pst_bytes key)
{
    const struct prefixes *p = atomic_load_explicit(&gate->prefixes, memory_order_acquire);
    const struct pst_view_prefix *prefix = p ? pst_view_prefix_of(p->view, key) : NULL;

    return prefix ? prefix->replicas : 1;
}

bool pst_gate_copied(void *ctx, struct pst_bytes key)
{
    const struct pst_gate *gate = ctx;
    uint32_t slot = pst_gate_slot_of(ctx, key);

    return slot < PST_SLOTS && has(gate->copied, slot);
}

int pst_gate_may_copy(void *ctx, uint32_t slot, uint64_t slot_epoch)
{
    struct pst_gate *gate = ctx;
    uint64_t epoch = slot < PST_SLOTS ? atomic_load(&gate->epochs[slot]) : 0;

    if (slot_epoch == 0)
        return slot < PST_SLOTS ? -ESTALE : atomic_load(&gate->prefixes) ? 0 : BUSY;
    if (slot < PST_SLOTS && slot_epoch > epoch) {
        atomic_store(&gate->behind, true);
        if (gate->wake_fd >= 0)
            pst_event_set(gate->wake_fd);
        return BUSY;
    }
    if (slot_epoch < epoch || slot >= PST_SLOTS || has(gate->ours, slot))
        return -ESTALE;
    atomic_store(&gate->filled[slot], slot_epoch);
    return 0;
}

uint64_t pst_gate_filled(const struct pst_gate *gate, uint32_t slot)
{
    return atomic_load(&gate->filled[slot]);
}

bool pst_gate_elsewhere(const struct pst_gate *gate, uint32_t slot)
{
    /* What is written here under an epoch is written behind its being noted: the note is looked at last. */
    return !has(gate->kept, slot) && atomic_load(&gate->filled[slot]) < atomic_load(&gate->epochs[slot]);
}

bool pst_gate_stranded(void *ctx, struct pst_bytes key)
{
    uint32_t slot = pst_gate_slot_of(ctx, key);

    return slot < PST_SLOTS && pst_gate_elsewhere(ctx, slot);
}

void pst_gate_hold(struct pst_gate *gate, uint32_t slot, bool held)
{
    set(gate->held, slot, held);
}

bool pst_gate_held(const struct pst_gate *gate, uint32_t slot)
{
    return has(gate->held, slot);
}

void pst_gate_copy(struct pst_gate *gate, uint32_t slot, bool copied)
{
    set(gate->copied, slot, copied);
}

void pst_gate_copies(struct pst_gate *gate, struct pst_copies *copies)
{
    gate->copies = copies;
}

void pst_gate_replicate(void *ctx, struct pst_replica *replica)
{
    struct pst_gate *gate = ctx;

    pst_assert(gate->copies); /* who says that a slot has copies */
    pst_copies_replicate(gate->copies, replica);
}

void pst_gate_replicated(void *ctx, struct pst_replica *replica)
{
    struct pst_gate *gate = ctx;

    pst_copies_replicated(gate->copies, replica);
}

bool pst_gate_behind(struct pst_gate *gate)
{
    return atomic_exchange(&gate->behind, false);
}

void pst_gate_wakes(struct pst_gate *gate, int fd)
{
    gate->wake_fd = fd;
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
    p->number = older ? older->number + 1 : 1;
    atomic_store_explicit(&gate->prefixes, p, memory_order_release);
    return 0;
}

uint32_t pst_gate_placements(const struct pst_gate *gate)
{
    const struct prefixes *p = gate->prefixes;

    return p ? p->number : 0;
}

int pst_gate_view(struct pst_gate *gate, const struct pst_view *view, uint16_t member, uint64_t epoch)
{
    const struct pst_lease for_ever = {.until_ns = UINT64_MAX};

    for (uint32_t word = 0; word < WORDS; word++) {
        uint64_t ours = 0, nobodys = 0, kept = 0;

        for (uint32_t i = 0; i < 64; i++) {
            enum pst_serve serve = pst_lease_serve(&for_ever, view, member, epoch, 64 * word + i, 0);

            ours |= (uint64_t)(serve == PST_SERVE_YES) << i;
            nobodys |= (uint64_t)(serve == PST_SERVE_INCOMPLETE) << i;
            kept |= (uint64_t)(pst_view_copy_at(&view->slots[64 * word + i], member) >= 0) << i;
        }
        atomic_store(&gate->kept[word], kept);
        atomic_store_explicit(&gate->ours[word], ours, memory_order_relaxed);
        atomic_store_explicit(&gate->nobodys[word], nobodys, memory_order_relaxed);
        for (uint32_t i = 0; i < 64; i++) /* behind whose they are: what is asked under one finds that, too */
            atomic_store(&gate->epochs[64 * word + i], view->slots[64 * word + i].epoch);
    }
    return take_prefixes(gate, view);
}

void pst_gate_lease(struct pst_gate *gate, uint64_t until_ns)
{
    atomic_store_explicit(&gate->until_ns, until_ns, memory_order_release);
}

void pst_gate_count(struct pst_gate *gate, enum pst_gate_counter counter)
{
    pst_assert(counter < PST_GATE_COUNTER_COUNT);
    gate->counters[counter]++;
}

void pst_gate_carry_out(void *ctx, const struct pst_wire_op *op, uint64_t now_ns, uint8_t *to, size_t room,
                        struct pst_wire_result *result)
{
    static const char *const names[] = {
#define X(name, text) #name,
        PST_GATE_COUNTERS(X)
#undef X
    };
    const struct pst_gate *gate = ctx;
    size_t bytes = 0;

    (void)now_ns;
    result->result = op->code == PST_POOL_FIGURES ? 0 : -EOPNOTSUPP;
    for (uint32_t i = 0; i < PST_GATE_COUNTER_COUNT && result->result == 0; i++) {
        bytes += (size_t)snprintf((char *)to + bytes, room - bytes, "%s %" PRIu64 "\n", names[i],
                                  atomic_load(&gate->counters[i]));
        if (bytes >= room) /* with the zero behind the text, which is not of it */
            result->result = -ENOBUFS;
    }
    result->bytes = result->result == 0 ? (uint32_t)bytes : 0;
}

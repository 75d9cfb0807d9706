/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stub.c: the forms of a value's record: with the value in memory, as a stub that says where the log has it,
 * or with its place on the device. Each takes another's place in the indexes with the same generation.
 */
#include "store/claim.h"
#include "store/evict_priv.h"
#include "store/index/index.h"
#include "store/index/order.h"
#include "store/link_priv.h"
#include "store/pins_priv.h"
#include "store/place.h"
#include "store/record_mark.h"
#include "store/tier/tier_priv.h"
#include "store/write_priv.h"

static uint8_t stub_flags(const struct pst_record *r)
{
    pst_assert(r->flags & PST_RECORD_TIERED);
    return (uint8_t)((r->flags & (PST_RECORD_CACHE | PST_RECORD_CHECKSUM)) | PST_RECORD_TIERED |
                     PST_RECORD_ON_DISK);
}

static void swap_in_indexes(struct pst_shard *s, struct pst_record *from, struct pst_record *to)
{
    struct pst_lookup lookup = pst_shard_lookup(s, pst_record_key(from));
    int r;

    pst_assert(from != to);
    pst_assert(from->generation == to->generation);
    s->changes++;
    r = pst_index_replace(s->index, lookup.hash, pst_record_ref(s, from), pst_record_ref(s, to));
    pst_assert(r == 0);
    r = pst_order_replace(s->order, lookup.key, pst_record_ref(s, to));
    pst_assert(r == 0);
}

/* Fills @to, which may overlap @r, as the same record without its value. */
static void write_away(struct pst_record *to, const struct pst_record *r, uint8_t flags)
{
    struct pst_log_place place = pst_record_place(r);
    struct pst_bytes key = pst_record_key(r);
    struct pst_record head = *r;

    pst_assert(flags & (PST_RECORD_ON_DISK | PST_RECORD_ON_DEVICE));
    head.flags = flags;
    head.state = 0;
    memmove((uint8_t *)to + pst_record_key_at(flags), key.data, key.len + r->attr_bytes);
    *to = head;
    if (flags & PST_RECORD_TIERED)
        pst_record_set_place(to, place);
}

/* A record without the value takes the record's place in the indexes, and its memory goes; nothing refers to
 * it. @more: bytes behind it. Return: that record; NULL: no memory for it. */
static struct pst_record *replace_with_away(struct pst_shard *s, struct pst_record *r, uint8_t flags,
                                            size_t more)
{
    size_t bytes = pst_record_body_at(flags, r->key_bytes, r->attr_bytes) + more;
    struct pst_record *away = r;
    uint64_t offset;

    pst_assert(!(r->flags & PST_RECORD_ON_DISK));
    pst_assert(!(r->state & (PST_RECORD_PINNED | PST_RECORD_UNLINKED | PST_STATE_RESERVED)));
    if (pst_slab_take(s->slab, bytes, &offset) == 0) {
        pst_record_unlist(s, r);
        away = (struct pst_record *)(void *)(s->base + offset);
        write_away(away, r, flags);
        swap_in_indexes(s, r, away);
        pst_record_give(s, r);
    } else if (pst_slab_cell_bytes(s->slab, pst_record_offset(s, r)) >= bytes) { /* it stays in its own */
        pst_record_unlist(s, r);
        pst_record_mark(r, 0);
        pst_record_give_value(s, r);
        write_away(away, r, flags);
    } else {
        return NULL;
    }
    pst_record_own_cells(s, away);
    return away;
}

static void count_stub(struct pst_shard *s, const struct pst_record *stub, bool more)
{
    pst_assert(stub->flags & PST_RECORD_ON_DISK);
    pst_assert(more || (s->stat_later.ssd_keys > 0 && s->stat_later.ssd_bytes >= stub->value_bytes));
    pst_assert(more || !(stub->flags & PST_RECORD_CACHE) || s->ssd_cache_keys > 0);
    s->stat_later.ssd_keys += more ? 1 : -1ull;
    if (stub->flags & PST_RECORD_CACHE) {
        s->ssd_cache_keys += more ? 1 : -1ull;
        pst_prefix_quota_count_away(s, stub, more);
    }
    s->stat_later.ssd_bytes += more ? stub->value_bytes : -(uint64_t)stub->value_bytes;
}

static void tell_moved(struct pst_shard *s, const struct pst_record *r)
{
    pst_assert(!(r->state & PST_STATE_RESERVED));
    if (pst_unlikely(s->listener_count))
        pst_shard_tell(s, r, PST_WIRE_CHANGE_MOVED);
}

void pst_stub_replace(struct pst_shard *s, struct pst_record *r)
{
    struct pst_record *stub;

    pst_assert(pst_record_placed(r));
    if (r->flags & PST_RECORD_ON_DEVICE)
        pst_device_forget(s->tier, r);
    stub = replace_with_away(s, r, stub_flags(r), 0);
    pst_assert(stub); /* it is smaller than the record */
    stub->state = (uint8_t)(s->tier->rounds.round * PST_RECORD_USED_AT);
    count_stub(s, stub, true);
    tell_moved(s, stub);
}

struct pst_record *pst_record_lift(struct pst_shard *s, struct pst_record *r, const struct pst_run *runs,
                                   uint32_t run_count)
{
    const uint8_t kept = PST_RECORD_CACHE | PST_RECORD_CHECKSUM | PST_RECORD_TIERED;
    uint8_t flags = (uint8_t)((r->flags & kept) | PST_RECORD_ON_DEVICE);
    struct pst_record *lifted;

    pst_assert(run_count > 0);
    pst_assert(r->flags & PST_RECORD_EXTERNAL && !(r->flags & PST_RECORD_EXPIRES));
    lifted = replace_with_away(s, r, flags, sizeof(struct pst_device_runs) + run_count * sizeof(*runs));
    if (!lifted)
        return NULL;
    *pst_record_device_runs(lifted) = (struct pst_device_runs){.run_count = run_count};
    memcpy(pst_record_device_runs(lifted)->runs, runs, run_count * sizeof(*runs));
    tell_moved(s, lifted);
    return lifted;
}

/* A commit underway keeps the record that it found; a doomed stub goes with its pins. */
static bool may_promote(struct pst_shard *s, struct pst_record *stub)
{
    struct pst_lookup lookup = pst_shard_lookup(s, pst_record_key(stub));
    const struct pst_pin *pin = pst_record_pin(s, stub);

    pst_assert(pst_record_away(stub));
    return !(stub->state & PST_RECORD_UNLINKED) && !(pin && pin->doomed) &&
           !pst_shard_locked(s, &lookup, true);
}

bool pst_stub_promote(struct pst_shard *s, struct pst_record *away, struct pst_record *r, uint64_t now_ns)
{
    pst_assert(r->state & PST_STATE_RESERVED);
    pst_assert(pst_record_away(away));
    pst_assert(r->value_bytes == away->value_bytes);
    pst_assert(r->key_bytes == away->key_bytes);
    pst_assert((r->flags & PST_RECORD_CACHE) == (away->flags & PST_RECORD_CACHE)); /* as it is counted */
    if (!may_promote(s, away) || pst_pins_inherit(s, away, r) < 0)
        return false;
    r->state &= (uint8_t)~PST_STATE_RESERVED;
    r->generation = away->generation;
    r->value_crc = away->value_crc;
    if (r->flags & PST_RECORD_TIERED)
        pst_record_set_place(r, pst_record_place(away));
    pst_record_mark(r, pst_record_check(r, s->store->check_seed, pst_record_offset(s, r)));
    swap_in_indexes(s, away, r);
    pst_record_list(s, r, now_ns);
    if (away->flags & PST_RECORD_ON_DISK)
        count_stub(s, away, false);
    else
        pst_device_forget(s->tier, away);
    s->stat_device.hbm_demotions += !!(away->flags & PST_RECORD_ON_DEVICE);
    tell_moved(s, r);
    away->state |= PST_RECORD_UNLINKED; /* goes with the fetch's reference */
    return true;
}

void pst_stub_forgotten(struct pst_shard *s, const struct pst_record *stub)
{
    count_stub(s, stub, false);
}

/* ---- after a restart ---- */

static int stub_new(struct pst_shard *s, const struct pst_log_found *found, struct pst_record **out)
{
    const struct pst_log_value *v = &found->value;
    bool cache = pst_key_evictable(s->store, v->key);
    struct pst_record *stub;
    uint64_t offset;
    int r;

    if (v->key.len == 0 || v->key.len > PST_KEY_BYTES_MAX || v->attrs.len > PST_ATTR_BYTES_MAX)
        return -EBADMSG;
    r = pst_slab_take(s->slab, pst_record_body_at(PST_RECORD_ON_DISK, v->key.len, v->attrs.len), &offset);
    if (r < 0)
        return r;
    stub = (struct pst_record *)(void *)(s->base + offset);
    *stub = (struct pst_record){
        .value_crc = v->value_bytes <= PST_LOG_BLOCK_BYTES ? found->crc : v->value_crc,
        .generation = v->generation,
        .value_bytes = v->value_bytes & PST_VALUE_BYTES_MASK,
        .key_bytes = (uint16_t)v->key.len,
        .attr_bytes = v->attrs.len & PST_RECORD_ATTRS_MASK,
        .copies = v->copies & 7u,
        .depth = v->depth,
        .flags = (uint8_t)((v->flags & PST_RECORD_CHECKSUM) | (cache ? PST_RECORD_CACHE : 0) |
                           PST_RECORD_TIERED | PST_RECORD_ON_DISK),
    };
    pst_record_set_place(stub, found->place);
    memcpy(stub + 1, v->key.data, v->key.len);
    if (v->attrs.len)
        memcpy((uint8_t *)(stub + 1) + v->key.len, v->attrs.data, v->attrs.len);
    pst_record_own_cells(s, stub);
    *out = stub;
    return 0;
}

int pst_stub_add(struct pst_shard *s, const struct pst_log_found *found, struct pst_record *old)
{
    struct pst_lookup lookup = pst_shard_lookup(s, found->value.key);
    struct pst_record *stub;
    int r = stub_new(s, found, &stub);

    if (r < 0)
        return r;
    pst_assert(!old || old->generation < stub->generation);
    r = pst_shard_link(s, &lookup, stub, old);
    if (r < 0) {
        pst_slab_give(s->slab, pst_record_offset(s, stub));
        return r;
    }
    if (old)
        pst_shard_drop(s, old);
    pst_key_count(s, stub, true);
    count_stub(s, stub, true);
    pst_prefix_quota_count(s, stub, true);
    return 0;
}

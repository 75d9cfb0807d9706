/* SPDX-License-Identifier: Apache-2.0 */
/* scan.c: many keys in order. Every step is bounded and starts again from a key, so that writes in between do
 * no harm. */
#include "store/claim.h"
#include "store/evict_priv.h"
#include "store/index/order.h"
#include "store/keys.h"
#include "store/link_priv.h"
#include "store/pins_priv.h"

enum { SWEEP_KEYS_MAX = 1024 };

static bool past_end(struct pst_bytes key, struct pst_bytes end)
{
    pst_assert(key.len > 0);
    return end.len && pst_bytes_compare(key, end) >= 0;
}

/* Return: bytes written, 0 when it does not fit. */
static size_t list_put_entry(const struct pst_record *r, uint8_t *at, size_t room)
{
    struct pst_bytes key = pst_record_key(r);
    struct pst_wire_entry entry = {.generation = r->generation,
                                   .value_bytes = r->value_bytes,
                                   .key_bytes = r->key_bytes,
                                   .depth = r->depth,
                                   .cache = !!(r->flags & PST_RECORD_CACHE),
                                   .away = (uint8_t)pst_record_where(r),
                                   .copies = r->copies};

    pst_assert(key.len > 0);
    pst_assert(!(r->state & PST_RECORD_UNLINKED));
    if (room < sizeof(entry) + key.len)
        return 0;
    memcpy(at, &entry, sizeof(entry));
    memcpy(at + sizeof(entry), key.data, key.len);
    return sizeof(entry) + key.len;
}

int64_t pst_shard_list(struct pst_shard *s, const struct pst_range *range, void *buf, size_t room, bool *end)
{
    struct pst_order_cursor cursor = pst_order_seek(s->order, range->start, range->after);
    size_t at = 0, bytes = 0;

    do {
        uint64_t ref = pst_order_next(s->order, &cursor);
        const struct pst_record *r = ref ? pst_ref_record(s, ref) : NULL;

        pst_assert(at <= room);
        *end = !r || past_end(pst_record_key(r), range->end);
        if (*end)
            return (int64_t)at;
        if (pst_unlikely(r->state & PST_STATE_RESERVED) || /* of a commit that has not ended */
            pst_record_expired(s, r)) {
            bytes = 1;
            continue;
        }
        bytes = list_put_entry(r, (uint8_t *)buf + at, room - at);
        at += bytes;
    } while (bytes);
    return at ? (int64_t)at : -ENOBUFS;
}

/* The pin that keeps the key; transfers and views alone do not: its name goes, the bytes with the last of
 * them.
 */
static struct pst_pin *kept_by(struct pst_shard *s, struct pst_record *r, uint64_t now_ns)
{
    struct pst_pin *pin = pst_record_loose(s, r, now_ns) ? NULL : pst_record_pin(s, r);

    pst_assert(!pin || r->state & PST_RECORD_PINNED);
    return pin && (pin->hard || pin->until_ns) ? pin : NULL;
}

bool pst_shard_pinned(struct pst_shard *s, const struct pst_lookup *lookup, uint64_t now_ns)
{
    struct pst_record *r = pst_shard_find(s, lookup);

    return r && kept_by(s, r, now_ns);
}

/* Keys that a pin keeps go when it ends. Return: false when nothing keeps the record. */
static bool sweep_spares(struct pst_shard *s, struct pst_record *r, uint64_t now_ns)
{
    struct pst_pin *pin = kept_by(s, r, now_ns);

    if (!pin)
        return false;
    pst_assert(r->state & PST_RECORD_PINNED);
    pst_assert(!(r->state & PST_RECORD_UNLINKED));
    s->doomed_count += !pin->doomed;
    pin->doomed = true;
    return true;
}

/* A commit underway has a say about the key. */
static bool sweep_meets_lock(const struct pst_shard *s, struct pst_bytes key)
{
    struct pst_lookup lookup = pst_shard_lookup(s, key);

    return pst_shard_locked(s, &lookup, false);
}

size_t pst_shard_sweep(struct pst_shard *s, const struct pst_range *range, bool spare_pinned, uint64_t now_ns,
                       uint8_t buf[PST_SWEEP_BYTES_MAX])
{
    struct pst_wire_sweep out = {.resume_bytes = (uint16_t)range->start.len};
    uint8_t *resume = buf + sizeof(out);
    bool after = range->after;

    pst_assert(range->start.len <= PST_KEY_BYTES_MAX);
    if (range->start.len)
        memcpy(resume, range->start.data, range->start.len);
    for (int i = 0; i < SWEEP_KEYS_MAX && !out.done; i++) {
        struct pst_order_cursor cursor =
            pst_order_seek(s->order, (struct pst_bytes){resume, out.resume_bytes}, after);
        uint64_t ref = pst_order_next(s->order, &cursor);
        struct pst_record *r = ref ? pst_ref_record(s, ref) : NULL;

        out.done = !r || past_end(pst_record_key(r), range->end);
        if (out.done)
            break;
        if (range->wanted && !range->wanted(range->ctx, pst_record_key(r))) {
            memcpy(resume, pst_record_key(r).data, r->key_bytes);
            out.resume_bytes = r->key_bytes;
            after = true;
            out.left++;
            continue;
        }
        if (pst_unlikely(s->claims.locks) && sweep_meets_lock(s, pst_record_key(r))) {
            if (i == 0)
                return 0;
            break;
        }
        memcpy(resume, pst_record_key(r).data, r->key_bytes);
        out.resume_bytes = r->key_bytes;
        after = true;
        if (spare_pinned && sweep_spares(s, r, now_ns)) {
            out.spared++;
            continue;
        }
        out.deleted += !range->counts || range->counts(range->ctx, pst_record_key(r));
        pst_shard_unlink(s, r);
        s->stat.deletes++;
    }
    memcpy(buf, &out, sizeof(out));
    pst_assert(out.resume_bytes <= PST_KEY_BYTES_MAX);
    pst_assert(out.deleted + out.spared + out.left <= SWEEP_KEYS_MAX);
    return sizeof(out) + out.resume_bytes;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prefix_quota.c: how much the keys of a prefix may hold, over all shards. What is counted are the bytes of
 * values that are there or being written; a write's bytes are taken in one step with the look whether they
 * fit, before its memory. Cache keys of a quota form a group of lines of their own, from
 * which they make room for each other.
 */
#include "base/limits.h"
#include "store/evict_priv.h"
#include "store/index/order.h"
#include "store/link_priv.h"
#include "store/pins_priv.h"
#include "store/put.h"

enum {
    WANTED_NS = 500000000, /* a waiting write asks again sooner than this */
    KEPT_NS = 500000000,   /* what may not go is looked at again after this */
    LOOKED_AT_MAX = 4096,  /* keys, for one on SSD */
    LOOKED_AT_FIRST = 64,  /* before one in memory goes instead */
    EVICTIONS_MAX = 4096,  /* of one write in one go: after a restart much may be too much */
};

/* Of what a quota has on SSD the key that has gone last; the next ones in order follow it. */
struct pst_hand {
    uint64_t looked_at; /* keys since one may have come to go; when it is all, it has been round */
    uint16_t key_bytes;
    uint8_t key[PST_KEY_BYTES_MAX];
};

int pst_prefix_numbers_copy(const struct pst_prefix_number *from, uint32_t count,
                            struct pst_prefix_number **out)
{
    size_t bytes = count * sizeof(**out);
    char *text;

    for (uint32_t i = 0; i < count; i++)
        bytes += from[i].prefix.len;
    *out = malloc(pst_max(bytes, 1));
    if (!*out)
        return -ENOMEM;
    text = (char *)(*out + count);
    for (uint32_t i = 0; i < count; i++) {
        (*out)[i] = (struct pst_prefix_number){{text, from[i].prefix.len}, from[i].number};
        memcpy(text, from[i].prefix.data, from[i].prefix.len);
        text += from[i].prefix.len;
    }
    pst_assert((size_t)(text - (char *)*out) == bytes);
    return 0;
}

int pst_prefix_quotas_open(struct pst_store *store, const struct pst_prefix_number *options, uint32_t count)
{
    int r = pst_prefix_numbers_copy(options, count, &store->limits);

    store->quotas = calloc(pst_max(count, 1), sizeof(*store->quotas));
    if (r < 0 || !store->quotas)
        return -ENOMEM;
    for (; store->quota_count < count; store->quota_count++)
        store->quotas[store->quota_count].limit = &store->limits[store->quota_count];
    pst_assert(store->quota_count == count);
    pst_assert(store->quota_count < store->group_count);
    return 0;
}

void pst_prefix_quotas_close(struct pst_store *store)
{
    free(store->quotas);
    free(store->limits);
}

uint32_t pst_key_group(const struct pst_store *store, struct pst_bytes key)
{
    uint32_t group = 0;
    size_t longest = 0;

    for (uint32_t i = 0; i < store->quota_count; i++) {
        struct pst_bytes prefix = store->limits[i].prefix;

        if ((!group || prefix.len > longest) && pst_bytes_begin(key, prefix)) {
            group = i + 1;
            longest = prefix.len;
        }
    }
    pst_assert(group < store->group_count);
    return group;
}

static struct pst_prefix_quota *quota_of(const struct pst_shard *s, struct pst_bytes key)
{
    uint32_t group = pst_key_group(s->store, key);

    pst_assert(group <= s->store->quota_count);
    return group ? &s->store->quotas[group - 1] : NULL;
}

static void quota_give(struct pst_prefix_quota *quota, uint64_t bytes)
{
    uint64_t before = atomic_fetch_sub_explicit(&quota->bytes, bytes, memory_order_relaxed);

    pst_assert(quota->limit);
    pst_assert(before >= bytes);
}

static void group_loosened(struct pst_lines *lines)
{
    atomic_store_explicit(&lines->kept_until_ns, 0, memory_order_relaxed);
    if (lines->hand)
        lines->hand->looked_at = 0;
}

void pst_prefix_quota_count_away(struct pst_shard *s, const struct pst_record *stub, bool more)
{
    uint32_t group = s->store->quota_count ? pst_key_group(s->store, pst_record_key(stub)) : 0;
    struct pst_lines *lines = &s->lines[group];

    pst_assert(stub->flags & PST_RECORD_CACHE);
    if (!group)
        return;
    pst_assert(more || lines->away > 0);
    atomic_store_explicit(&lines->away, lines->away + (more ? 1 : -1ull), memory_order_relaxed);
    group_loosened(lines);
}

void pst_prefix_quota_count(struct pst_shard *s, const struct pst_record *r, bool comes)
{
    struct pst_prefix_quota *quota;

    if (pst_likely(!s->store->quota_count))
        return;
    quota = quota_of(s, pst_record_key(r));
    if (!quota)
        return;
    pst_assert(quota->limit && quota->limit->prefix.len <= r->key_bytes);
    if (comes)
        atomic_fetch_add_explicit(&quota->bytes, r->value_bytes, memory_order_release);
    else
        quota_give(quota, r->value_bytes);
}

/* Counts @bytes if @more of them fit, which is what they add to a value that they replace: other shards take
 * from the same quota meanwhile. Who waited for room does so no more before these bytes count; see
 * is_wanted(). */
static bool quota_take(struct pst_prefix_quota *quota, uint64_t more, uint64_t bytes)
{
    uint64_t now = atomic_load_explicit(&quota->bytes, memory_order_relaxed);

    pst_assert(more <= bytes);
    pst_assert(quota->limit);
    do {
        if (more && now + more > quota->limit->number)
            return false;
        if (pst_unlikely(atomic_load_explicit(&quota->wanted_ns, memory_order_relaxed)))
            atomic_store_explicit(&quota->wanted_ns, 0, memory_order_relaxed);
    } while (!atomic_compare_exchange_weak_explicit(&quota->bytes, &now, now + bytes, memory_order_release,
                                                    memory_order_relaxed));
    return true;
}

/* ---- room ---- */

static struct pst_order_cursor hand_seek(struct pst_shard *s, const struct pst_hand *hand,
                                         struct pst_bytes prefix)
{
    return pst_order_seek(s->order, hand->key_bytes ? (struct pst_bytes){hand->key, hand->key_bytes} : prefix,
                          hand->key_bytes > 0);
}

/* The next of the quota's values on SSD that may go. They are colder than those in memory, and in no order of
 * use. NULL: there is none among the next @looks keys. */
static struct pst_record *away_next(struct pst_shard *s, uint32_t group, const struct pst_record *spared,
                                    uint64_t now_ns, int looks)
{
    struct pst_bytes prefix = s->store->limits[group - 1].prefix;
    struct pst_hand *hand = s->lines[group].hand;
    struct pst_order_cursor cursor = hand_seek(s, hand, prefix);
    bool again = hand->key_bytes > 0;

    for (int i = 0; i < looks; i++) {
        uint64_t ref = pst_order_next(s->order, &cursor);
        struct pst_record *r = ref ? pst_ref_record(s, ref) : NULL;

        if (!r || !pst_bytes_begin(pst_record_key(r), prefix)) {
            if (!again) {
                hand->looked_at = UINT64_MAX;
                return NULL;
            }
            again = false;
            hand->key_bytes = 0;
            cursor = hand_seek(s, hand, prefix);
            continue;
        }
        hand->looked_at += hand->looked_at < UINT64_MAX;
        hand->key_bytes = r->key_bytes;
        memcpy(hand->key, pst_record_key(r).data, r->key_bytes);
        if (r->flags & PST_RECORD_ON_DISK && r->flags & PST_RECORD_CACHE && r != spared &&
            pst_key_group(s->store, pst_record_key(r)) == group && pst_record_loose(s, r, now_ns)) {
            hand->looked_at = 0;
            return r;
        }
    }
    return NULL;
}

/* Drops one of the quota's values, though not @spared. Return: 0, -ENOSPC none may go, PST_BUSY not all have
 * been looked at. */
static int quota_evict(struct pst_shard *s, uint32_t group, const struct pst_record *spared, uint64_t now_ns)
{
    struct pst_lines *lines = &s->lines[group];
    struct pst_record *r = NULL;

    if (lines->away && !lines->hand)
        lines->hand = calloc(1, sizeof(*lines->hand));
    if (!lines->away || !lines->hand)
        return pst_group_evict(s, group, spared, now_ns) ? 0 : -ENOSPC;
    if (lines->hand->looked_at < s->stat.keys) /* else all are kept, as far as is told */
        r = away_next(s, group, spared, now_ns, LOOKED_AT_FIRST);
    if (!r && pst_group_evict(s, group, spared, now_ns))
        return 0;
    if (!r) /* pins end by time, too, and nobody tells */
        r = away_next(s, group, spared, now_ns, LOOKED_AT_MAX);
    if (!r)
        return lines->hand->looked_at < s->stat.keys ? PST_BUSY : -ENOSPC;
    pst_record_evict(s, r);
    return 0;
}

/* True when other shards hold cache values of the quota that may go, as far as can be told without asking
 * them. */
static bool others_hold(const struct pst_shard *s, uint32_t group, uint64_t now_ns)
{
    pst_assert(group > 0 && group < s->store->group_count);
    for (uint32_t i = 0; i < s->store->shard_count; i++) {
        const struct pst_lines *lines = &s->store->shards[i].lines[group];

        if (i != s->number && atomic_load_explicit(&lines->kept_until_ns, memory_order_relaxed) <= now_ns &&
            (atomic_load_explicit(&lines->count, memory_order_relaxed) ||
             atomic_load_explicit(&lines->away, memory_order_relaxed)))
            return true;
    }
    return false;
}

int pst_prefix_quota_take(struct pst_shard *s, const struct pst_put *put, uint64_t now_ns,
                          struct pst_answer *answer)
{
    uint32_t group = s->store->quota_count ? pst_key_group(s->store, put->lookup.key) : 0;
    struct pst_prefix_quota *quota = group ? &s->store->quotas[group - 1] : NULL;
    const struct pst_record *spared, *old;
    uint64_t more;
    bool lasts;
    int r = 0;

    if (pst_likely(!quota))
        return 0;
    pst_assert(group < s->store->group_count);
    lasts = put->flags & PST_PUT_LASTS;
    spared = lasts && !(put->flags & PST_PUT_IF_GENERATION) ? NULL : pst_shard_find(s, &put->lookup);
    old = lasts ? NULL : spared;
    more = old && old->value_bytes < put->value_bytes ? put->value_bytes - old->value_bytes
           : old                                      ? 0
                                                      : put->value_bytes;
    if (put->value_bytes <= quota->limit->number) {
        for (int i = 0; i < EVICTIONS_MAX && r == 0; i++) {
            if (quota_take(quota, more, put->value_bytes))
                return 0;
            r = pst_expiries_drop(s) ? 0 : quota_evict(s, group, spared, now_ns);
        }
        if (r != -ENOSPC || others_hold(s, group, now_ns)) {
            atomic_store(&quota->wanted, more);
            atomic_store(&quota->wanted_ns, now_ns);
            return PST_BUSY;
        }
        if (pst_store_has_ended(s->store, s, now_ns))
            return PST_BUSY;
    }
    s->stat.no_space++;
    *answer = (struct pst_answer){.limit_bytes = quota->limit->number,
                                  .prefix_bytes = (uint32_t)quota->limit->prefix.len};
    return -ENOSPC;
}

void pst_prefix_quota_give(struct pst_shard *s, const struct pst_put *put)
{
    struct pst_prefix_quota *quota = s->store->quota_count ? quota_of(s, put->lookup.key) : NULL;

    if (pst_unlikely(quota))
        quota_give(quota, put->value_bytes);
}

/* Bytes are read first: those of the write that waited count only after it has ceased to wait. */
static bool is_wanted(const struct pst_prefix_quota *quota, uint64_t now_ns)
{
    uint64_t bytes = atomic_load_explicit(&quota->bytes, memory_order_acquire);
    uint64_t wanted_ns = atomic_load_explicit(&quota->wanted_ns, memory_order_relaxed);

    return wanted_ns && now_ns < wanted_ns + WANTED_NS &&
           bytes + atomic_load_explicit(&quota->wanted, memory_order_relaxed) > quota->limit->number;
}

void pst_prefix_quota_loosened(struct pst_shard *s, const struct pst_record *r)
{
    bool counts = s->store->quota_count > 0 && r->flags & PST_RECORD_CACHE;
    uint32_t group = counts ? pst_key_group(s->store, pst_record_key(r)) : 0;

    if (group)
        group_loosened(&s->lines[group]);
}

bool pst_prefix_quotas_tick(struct pst_shard *s, int evictions_max, uint64_t now_ns)
{
    bool more = false;
    int r;

    pst_assert(s->store->quota_count < s->store->group_count);
    for (uint32_t i = 0; i < s->store->quota_count; i++) {
        struct pst_prefix_quota *quota = &s->store->quotas[i];

        if (!is_wanted(quota, now_ns))
            continue;
        if (atomic_exchange(&quota->evicting, true)) {
            more = true; /* two at once would both make the room that one needs */
            continue;
        }
        for (r = 0; is_wanted(quota, now_ns) && evictions_max > 0 && r == 0; evictions_max--)
            r = quota_evict(s, i + 1, NULL, now_ns);
        if (r == -ENOSPC)
            atomic_store_explicit(&s->lines[i + 1].kept_until_ns, now_ns + KEPT_NS, memory_order_relaxed);
        more = more || evictions_max == 0 || r == PST_BUSY;
        atomic_store(&quota->evicting, false);
    }
    return more;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * change.c: a shard's part in a commit over several keys. Preparing does all that can fail: a new key's
 * record enters the indexes at once, still reserved, which the lock on the key hides; references keep old and
 * new records in place, and make room for the pins that a new record inherits. Then one step makes all new
 * records whole and ends all old ones, in all shards; applying only tells the indexes.
 */
#include "store/change.h"
#include "store/evict_priv.h"
#include "store/kept.h"
#include "store/link_priv.h"
#include "store/shard_priv.h"
#include "store/reservation.h"
#include "store/write_priv.h"

/* ---- locks ---- */

/* Whether the commit itself, from @first on, has locked the key of @c already. */
static bool locked_before(const struct pst_change *first, const struct pst_change *c)
{
    pst_assert(c->put.lookup.key.len > 0);
    while (first != c && !(first->claimed && pst_claim_is(&first->claim, &c->put.lookup)))
        first = first->next;
    return first != c;
}

/* Return: 0, PST_BUSY, -EINVAL it would wait for itself. */
static int change_lock(struct pst_shard *s, const struct pst_change *first, struct pst_change *c)
{
    bool shared = c->kind == PST_CHANGE_CHECK || c->kind == PST_CHANGE_KEEP;

    if (pst_shard_locked(s, &c->put.lookup, shared))
        return locked_before(first, c) ? -EINVAL : PST_BUSY;
    c->claim = (struct pst_claim){.key = c->put.lookup.key,
                                  .hash = c->put.lookup.hash,
                                  .kind = shared ? PST_CLAIM_SHARED : PST_CLAIM_WHOLE};
    pst_assert(!c->claimed);
    pst_claim_add(s, &c->claim);
    c->claimed = true;
    return 0;
}

/* ---- prepare ---- */

static int change_check(struct pst_change *c, const struct pst_record *old)
{
    bool conditional = c->put.flags & PST_PUT_IF_GENERATION;

    pst_assert(c->kind <= PST_CHANGE_KEEP);
    c->answer = (struct pst_answer){.generation = old ? old->generation : 0,
                                    .value_bytes = old ? old->value_bytes : 0};
    switch (c->kind) {
    case PST_CHANGE_CHECK:
        return c->put.if_generation == c->answer.generation ? PST_OK : PST_STALE;
    case PST_CHANGE_PUT:
        return pst_put_check(&c->put, old, &c->answer);
    case PST_CHANGE_KEEP:
        return old ? PST_OK : PST_MISS;
    default:
        if (!old)
            return conditional ? PST_MISS : PST_OK;
        return conditional && c->put.if_generation != old->generation ? PST_STALE : PST_OK;
    }
}

/* Conditions and locks come first, for all keys: making room must not evict what another of them needs. */
static int prepare_key(struct pst_shard *s, const struct pst_change *first, struct pst_change *c,
                       bool look_only)
{
    struct pst_record *old = pst_shard_find(s, &c->put.lookup);
    int r = pst_put_check_shape(s, &c->put);

    if (r == 0)
        r = look_only ? (pst_shard_locked(s, &c->put.lookup, true) ? PST_BUSY : 0) : change_lock(s, first, c);
    if (r == 0)
        r = change_check(c, old);
    if (r == 0 && old && !look_only) {
        pst_assert(!c->old);
        pst_assert(c->claimed);
        r = pst_shard_ref(s, old);
        c->old = r == 0 ? old : NULL;
    } else if (r == 0 && c->kind == PST_CHANGE_PUT && !look_only && pst_unlikely(pst_shard_expires(s))) {
        pst_expiry_make_way(s, &c->put.lookup); /* else the lock would keep a value that is over */
    }
    pst_assert(r != 0 || look_only || c->claimed);
    return r;
}

static int change_take_lent(const struct pst_holder *holder, struct pst_change *c)
{
    struct pst_reservation *reservation = holder ? pst_reservation_find(holder, c->reservation_handle) : NULL;
    int r = reservation ? pst_reservation_lend(reservation, &c->put, &c->fresh) : -ENOENT;

    if (r != 0)
        return r;
    pst_assert(!c->reservation);
    pst_assert(c->fresh);
    c->reservation = reservation;
    return 0;
}

static int change_take_given(struct pst_shard *s, struct pst_change *c, uint64_t now_ns)
{
    int r = pst_record_reserve(s, &c->put, now_ns, &c->fresh, &c->answer);

    pst_assert(c->value || c->put.value_bytes == 0);
    if (r == 0)
        pst_record_fill(s, c->fresh, c->value);
    pst_assert(r != 0 || c->fresh->value_bytes == c->put.value_bytes);
    return r;
}

/* The new record: a reservation's, one that is written, or one that is made here. */
static int change_take_fresh(struct pst_shard *s, const struct pst_holder *holder, struct pst_change *c,
                             uint64_t now_ns)
{
    pst_assert(!c->fresh);
    pst_assert(c->kind == PST_CHANGE_PUT);
    switch (c->from) {
    case PST_VALUE_RESERVATION:
        return change_take_lent(holder, c);
    case PST_VALUE_WRITTEN:
        pst_assert(c->pending.record);
        c->fresh = c->pending.record;
        return 0;
    default:
        return change_take_given(s, c, now_ns);
    }
}

/* Nobody refers to it. */
static void change_give_fresh(struct pst_shard *s, struct pst_change *c)
{
    pst_assert(!c->linked || c->fresh);
    if (c->reservation)
        pst_reservation_return(s, c->reservation, false);
    else if (c->from == PST_VALUE_GIVEN)
        pst_record_give(s, c->fresh);
    c->reservation = NULL;
    c->fresh = NULL;
}

static int prepare_value(struct pst_shard *s, const struct pst_holder *holder, struct pst_change *c,
                         uint64_t now_ns)
{
    int r = change_take_fresh(s, holder, c, now_ns);

    if (r != 0)
        return r;
    pst_assert(c->claimed);
    pst_assert(c->fresh);
    pst_assert(c->fresh != c->old);
    pst_assert(c->fresh->state & PST_STATE_RESERVED);
    r = pst_shard_ref(s, c->fresh);
    if (r == 0 && !c->old) {
        r = pst_shard_link(s, &c->put.lookup, c->fresh, NULL);
        c->linked = r == 0;
        if (r < 0)
            pst_shard_unref(s, c->fresh);
    }
    if (r == 0)
        c->check = pst_record_number(s, c->fresh, 0);
    pst_assert(r != 0 || !c->old || c->old->generation < c->fresh->generation);
    if (r == 0)
        c->generation = c->fresh->generation;
    else
        change_give_fresh(s, c);
    return r;
}

bool pst_changes_prepare(struct pst_shard *s, const struct pst_holder *holder, struct pst_change *first,
                         bool look_only, uint64_t now_ns)
{
    bool ok = true;

    pst_shard_time(s, now_ns);
    for (struct pst_change *c = first; c; c = c->next) {
        c->result = prepare_key(s, first, c, look_only);
        ok &= c->result == 0;
    }
    for (struct pst_change *c = first; c && ok && !look_only; c = c->next) {
        if (c->kind == PST_CHANGE_PUT)
            c->result = prepare_value(s, holder, c, now_ns);
        else
            c->generation = s->generation;
        ok &= c->result == 0;
    }
    if (!ok)
        pst_changes_undo(s, first);
    return ok;
}

/* ---- the end ---- */

void pst_changes_decide(struct pst_store *store, const struct pst_change *changes, uint32_t count)
{
    const struct pst_shard *any = &store->shards[0];
    struct pst_word words[2 * PST_WIRE_OPS_MAX];
    uint32_t n = 0;

    pst_assert(count <= PST_WIRE_OPS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        const struct pst_change *c = &changes[i];

        pst_assert(c->claimed);
        pst_assert(c->result == 0);
        pst_assert(!c->fresh == (c->kind != PST_CHANGE_PUT));
        if (c->fresh)
            words[n++] = pst_record_word(any, c->fresh, c->check);
        if (c->old && (c->kind == PST_CHANGE_PUT || c->kind == PST_CHANGE_DELETE) &&
            !(c->old->flags & PST_RECORD_ON_DISK))
            words[n++] = pst_record_word(any, c->old, 0);
    }
    pst_assert(n <= pst_count_of(words));
    pst_words_write(store, words, n);
}

static void change_unlock(struct pst_shard *s, struct pst_change *c)
{
    pst_assert(!c->fresh);
    if (c->old)
        pst_shard_unref(s, c->old);
    if (c->claimed)
        pst_claim_remove(s, &c->claim);
    c->old = NULL;
    c->claimed = false;
}

static void change_apply_put(struct pst_shard *s, struct pst_change *c, uint64_t now_ns)
{
    int r = 0;

    pst_assert(c->fresh);
    pst_assert(c->linked == !c->old);
    pst_assert(c->fresh->check == c->check);
    if (!c->linked)
        r = pst_shard_link(s, &c->put.lookup, c->fresh, c->old);
    pst_assert(r == 0);
    pst_shard_expose(s, c->fresh, c->old, now_ns, &c->answer);
    pst_shard_unref(s, c->fresh);
    if (c->reservation)
        pst_reservation_return(s, c->reservation, true);
    pst_pending_taken(s, &c->pending);
    c->fresh = NULL;
    c->reservation = NULL;
    c->linked = false;
}

void pst_changes_apply(struct pst_shard *s, struct pst_change *first, uint64_t now_ns)
{
    for (struct pst_change *c = first; c; c = c->next) {
        pst_assert(c->claimed);
        pst_assert(c->result == 0);
        if (c->kind == PST_CHANGE_PUT) {
            change_apply_put(s, c, now_ns);
        } else if (c->kind == PST_CHANGE_DELETE && c->old) {
            pst_shard_unlink(s, c->old);
            s->stat.deletes++;
        } else if (c->kind == PST_CHANGE_DELETE) {
            c->result = PST_MISS;
        }
        change_unlock(s, c);
    }
}

static void change_undo_put(struct pst_shard *s, struct pst_change *c)
{
    pst_assert(c->fresh->state & PST_STATE_RESERVED);
    if (c->linked)
        pst_shard_unname(s, c->fresh);
    pst_shard_unref(s, c->fresh);
    change_give_fresh(s, c);
    c->linked = false;
}

void pst_changes_undo(struct pst_shard *s, struct pst_change *first)
{
    for (struct pst_change *c = first; c; c = c->next) {
        if (c->fresh)
            change_undo_put(s, c);
        pst_shard_abort(s, &c->pending);
        change_unlock(s, c);
    }
}

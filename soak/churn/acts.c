/* SPDX-License-Identifier: Apache-2.0 */
/* acts.c: batches of operations on single keys: what each asks, and what the store may answer. */
#include "churn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    PINNED_TREE = 0, /* pins go to its cache keys, so that some are pinned at most times */
    PIN_MS_MAX = 400,
    SPOIL_EVERY = 20,
    PIECES_MAX = 5,
    HOT_EVERY = 12,
};

enum condition { ALWAYS, IF_ABSENT, IF_RIGHT, IF_WRONG };

/* One operation, while it is underway. */
struct act {
    struct penstock_op *op;
    const struct key *key;
    const struct act_kind *kind;
    struct sight sight;
    enum condition condition;
    uint64_t write; /* put, get: its attribute; delete: its number */
    uint64_t begun_ms;
    uint8_t *buf;
    struct iovec pieces[PIECES_MAX];
};

struct act_kind {
    uint32_t weight;
    bool own; /* only of this client's keys */
    void (*prepare)(struct client *c, struct act *act);
    void (*settle)(struct client *c, struct act *act);
};

#define BIT(outcome) (1u << (outcome))

static bool nothing_done(struct client *c, int result)
{
    c->counts.busy += result == PENSTOCK_BUSY;
    c->counts.no_space += result == -ENOSPC;
    return result == PENSTOCK_BUSY || result == -ENOSPC;
}

/* The connection was lost while the operation was underway. The soak judges how many of these there may be.
 */
static bool lost(struct client *c, const struct act *act)
{
    bool is_lost = act->op->result == PENSTOCK_UNKNOWN;

    c->counts.unknown += is_lost;
    return is_lost;
}

/* The same for a write: the value is the one before or this one. */
static bool undecided(struct client *c, const struct act *act)
{
    if (!lost(c, act))
        return false;
    c->memory[act->key->id].uncertain = true;
    return true;
}

/* Nothing fails in this soak but for want of room, so any other error is the store's. */
static void unexpected(struct client *c, const struct act *act, const char *what)
{
    c->memory[act->key->id].uncertain = true;
    churn_violation(c, act->key, "%s: '%s' (%d) may not be the answer; condition %d, value %d, kept %d", what,
                    penstock_result_text(act->op->result), act->op->result, (int)act->condition,
                    c->memory[act->key->id].present, ledger_kept(c, act->key));
}

static bool answered(const struct act *act, uint32_t allowed)
{
    int result = act->op->result;

    return result >= 0 && result < 8 && BIT(result) & allowed;
}

/* ---- put ---- */

static void prepare_put(struct client *c, struct act *act)
{
    uint64_t bytes, cut, at = 0;
    uint32_t count = (uint32_t)draw(c, PIECES_MAX) + 1;

    act->write = ledger_begin(c, act->key, false);
    bytes = value_bytes(c, act->key, act->write);
    value_fill(act->key, act->write, act->buf, bytes);
    penstock_prep_put(act->op, act->key->text, act->key->bytes, act->buf, bytes);
    act->op->attrs = &act->write;
    act->op->attr_bytes = sizeof(act->write);
    if (draw(c, 4) == 0)
        act->op->flags |= PENSTOCK_CHECKSUM;
    if (draw(c, 4) == 0)
        act->op->depth = (uint16_t)draw(c, 100);
    if (draw(c, 4) != 0)
        return;
    for (uint32_t i = 0; i < count; i++, at += cut) {
        cut = i + 1 < count ? draw(c, bytes - at + 1) : bytes - at;
        act->pieces[i] = (struct iovec){act->buf + at, cut};
    }
    act->op->data = NULL;
    act->op->iov = act->pieces;
    act->op->iov_count = count;
}

static void set_condition(struct client *c, struct act *act)
{
    const struct memory *m = &c->memory[act->key->id];

    act->op->flags |= PENSTOCK_IF_GENERATION;
    act->op->if_generation = m->present ? m->write_generation : 0;
    if (act->condition == IF_WRONG)
        act->op->if_generation = m->write_generation + 1 + draw(c, 1000);
}

static void prepare_put_if(struct client *c, struct act *act)
{
    prepare_put(c, act);
    act->condition = (enum condition)(IF_ABSENT + draw(c, 3));
    if (act->condition == IF_ABSENT)
        act->op->flags |= PENSTOCK_IF_ABSENT;
    else
        set_condition(c, act);
    c->counts.conditional_puts++;
}

/* What may become of a put: a value that is not kept may have been evicted. */
static uint32_t put_outcomes(const struct client *c, const struct act *act)
{
    bool present = c->memory[act->key->id].present, kept = ledger_kept(c, act->key);

    switch (act->condition) {
    case IF_ABSENT:
        return present ? BIT(PENSTOCK_EXISTS) | (kept ? 0 : BIT(PENSTOCK_OK)) : BIT(PENSTOCK_OK);
    case IF_RIGHT:
        return BIT(PENSTOCK_OK) | (present && !kept ? BIT(PENSTOCK_STALE) : 0);
    case IF_WRONG:
        return BIT(PENSTOCK_STALE);
    default:
        return BIT(PENSTOCK_OK);
    }
}

/* A refusal names the value that is in the way. */
static void check_refusal(struct client *c, const struct act *act)
{
    struct memory *m = &c->memory[act->key->id];
    uint64_t named = act->op->generation;

    c->counts.checked++;
    if (m->uncertain)
        return;
    if (named == 0 && act->op->result == PENSTOCK_STALE && (!m->present || !ledger_kept(c, act->key)))
        m->present = false;
    else if (!m->present || named != m->write_generation ||
             act->op->value_bytes != value_bytes(c, act->key, m->write))
        churn_violation(c, act->key, "refused over generation %llu of %llu bytes; generation %llu is there",
                        (unsigned long long)named, (unsigned long long)act->op->value_bytes,
                        (unsigned long long)m->write_generation);
}

static void settle_put(struct client *c, struct act *act)
{
    c->counts.puts++;
    if (nothing_done(c, act->op->result) || undecided(c, act))
        return;
    if (act->op->result < 0 || (!c->memory[act->key->id].uncertain && !answered(act, put_outcomes(c, act))))
        unexpected(c, act, "put");
    else if (act->op->result == PENSTOCK_OK)
        ledger_put(c, act->key, act->write, act->op->generation);
    else
        check_refusal(c, act);
}

/* ---- delete ---- */

static void prepare_delete(struct client *c, struct act *act)
{
    act->write = ledger_begin(c, act->key, true);
    penstock_prep(act->op, PENSTOCK_DELETE, act->key->text, act->key->bytes);
    if (draw(c, 2) == 0)
        return;
    act->condition = draw(c, 2) ? IF_RIGHT : IF_WRONG;
    set_condition(c, act);
}

static void settle_delete(struct client *c, struct act *act)
{
    const struct memory *m = &c->memory[act->key->id];
    uint32_t there = BIT(act->condition == IF_WRONG ? PENSTOCK_STALE : PENSTOCK_OK);
    uint32_t allowed = m->present ? there : BIT(PENSTOCK_MISS);

    c->counts.deletes++;
    if (m->present && !ledger_kept(c, act->key))
        allowed |= BIT(PENSTOCK_MISS);
    if (undecided(c, act))
        return;
    if (act->op->result < 0 || (!m->uncertain && !answered(act, allowed))) {
        unexpected(c, act, "delete");
        return;
    }
    if (act->op->result != PENSTOCK_MISS)
        check_refusal(c, act);
    if (act->op->result != PENSTOCK_STALE)
        ledger_deleted(c, act->key, act->write);
}

/* ---- get, stat ---- */

static void prepare_read(struct client *c, struct act *act)
{
    uint64_t room = VALUE_BYTES_MAX;

    act->write = 0;
    penstock_prep_get(act->op, act->key->text, act->key->bytes, act->buf, room);
    act->op->attrs = &act->write;
    act->op->attr_bytes = sizeof(act->write);
    value_poison(act->buf, room);
    c->counts.reads++;
}

static void prepare_get(struct client *c, struct act *act)
{
    const struct memory *m = &c->memory[act->key->id];

    prepare_read(c, act);
    if (!ledger_mine(c, act->key) || !m->present || m->uncertain || draw(c, 4) != 0)
        return;
    act->op->flags |= PENSTOCK_EXACT;
    act->op->bytes = value_bytes(c, act->key, m->write);
}

/* Of an own value any range, of another's one that a value of middle size has. */
static void prepare_range(struct client *c, struct act *act)
{
    const struct memory *m = &c->memory[act->key->id];
    uint64_t whole = 64 << 10;

    prepare_read(c, act);
    if (ledger_mine(c, act->key) && m->present)
        whole = value_bytes(c, act->key, m->write);
    act->op->flags |= PENSTOCK_RANGE;
    act->op->offset = draw(c, whole + 1);
    act->op->bytes = draw(c, whole - act->op->offset + 1);
    c->counts.range_reads++;
}

static void prepare_stat(struct client *c, struct act *act)
{
    prepare_read(c, act);
    act->op->code = PENSTOCK_STAT_KEY;
    act->op->data = NULL;
    act->op->bytes = 0;
    c->counts.key_stats++;
}

static void spoil(struct client *c, const struct act *act, uint64_t bytes)
{
    if (c->plant == PLANT_BYTE && bytes && draw(c, SPOIL_EVERY) == 0)
        act->buf[draw(c, bytes)] ^= 1;
}

static void settle_hit(struct client *c, const struct act *act)
{
    uint64_t whole = value_bytes(c, act->key, act->write), offset = 0, bytes = whole;

    c->counts.hits++;
    if (act->op->attr_bytes != sizeof(act->write) || act->op->value_bytes != whole) {
        churn_violation(c, act->key, "%llu bytes and %u of attributes; write %llu has %llu",
                        (unsigned long long)act->op->value_bytes, act->op->attr_bytes,
                        (unsigned long long)act->write, (unsigned long long)whole);
        return;
    }
    ledger_saw(c, act->key, &act->sight, act->write, act->op->generation);
    if (act->op->code == PENSTOCK_STAT_KEY)
        return;
    if (act->op->flags & PENSTOCK_RANGE) {
        offset = act->op->offset;
        bytes = act->op->bytes;
    }
    if (bytes > whole - offset || offset > whole) {
        churn_violation(c, act->key, "a range beyond the value's %llu bytes was read",
                        (unsigned long long)whole);
        return;
    }
    spoil(c, act, bytes);
    value_check(c, act->key, act->write, offset, act->buf, bytes,
                act->op->flags & PENSTOCK_RANGE ? "range" : "get");
}

static void settle_read(struct client *c, struct act *act)
{
    /* Another's value may be too short for the range; an own one only when it is not what it was thought to
     * be. */
    const struct memory *m = &c->memory[act->key->id];
    bool short_allowed = !ledger_mine(c, act->key) || !m->present || m->uncertain;

    if (act->op->result == PENSTOCK_OK)
        settle_hit(c, act);
    else if (act->op->result == PENSTOCK_MISS)
        ledger_missed(c, act->key, &act->sight);
    else if (act->op->result != -ERANGE || !short_allowed)
        unexpected(c, act, "read");
}

/* ---- pins ---- */

static void prepare_pin(struct client *c, struct act *act)
{
    bool hard = c->hard_pins < HARD_PINS_MAX && draw(c, 2);

    penstock_prep(act->op, PENSTOCK_PIN, act->key->text, act->key->bytes);
    act->op->pin_ms = hard ? 0 : 1 + draw(c, PIN_MS_MAX);
    c->counts.pins++;
}

static void settle_pin(struct client *c, struct act *act)
{
    struct memory *m = &c->memory[act->key->id];

    if (lost(c, act)) {
        m->more_pins = true;
    } else if (act->op->result == PENSTOCK_MISS) {
        ledger_missed(c, act->key, &act->sight);
    } else if (act->op->result != PENSTOCK_OK || (!m->present && !m->uncertain)) {
        unexpected(c, act, "pin");
    } else if (act->op->pin_ms) {
        uint64_t until_ms = act->begun_ms + act->op->pin_ms;

        m->pinned_until_ms = until_ms > m->pinned_until_ms ? until_ms : m->pinned_until_ms;
    } else {
        m->hard_pins++;
        c->hard_pins++;
    }
}

static void prepare_unpin(struct client *c, struct act *act)
{
    (void)c;
    penstock_prep(act->op, PENSTOCK_UNPIN, act->key->text, act->key->bytes);
}

/* One fewer of those that are known, if there was one. */
static bool take_pin(struct client *c, struct memory *m)
{
    bool had = m->hard_pins > 0;

    m->hard_pins -= had;
    c->hard_pins -= had;
    return had;
}

static void settle_unpin(struct client *c, struct act *act)
{
    struct memory *m = &c->memory[act->key->id];
    bool good = act->op->result == -EINVAL && m->hard_pins == 0;

    if (lost(c, act)) {
        take_pin(c, m);
        m->more_pins = true;
        return;
    }
    if (act->op->result == PENSTOCK_MISS) {
        ledger_missed(c, act->key, &act->sight);
        return;
    }
    if (act->op->result == PENSTOCK_OK)
        good = take_pin(c, m) || m->more_pins;
    if (!good)
        unexpected(c, act, "unpin");
}

/* ---- batches ---- */

static const struct act_kind kinds[] = {
    {30, true, prepare_put, settle_put},   {12, true, prepare_put_if, settle_put},
    {30, false, prepare_get, settle_read}, {14, false, prepare_range, settle_read},
    {6, false, prepare_stat, settle_read}, {4, true, prepare_delete, settle_delete},
    {5, true, prepare_pin, settle_pin},    {5, true, prepare_unpin, settle_unpin},
};

static const struct act_kind *draw_kind(struct client *c)
{
    uint32_t sum = 0, at;

    for (size_t i = 0; i < count_of(kinds); i++)
        sum += kinds[i].weight;
    at = (uint32_t)draw(c, sum);
    for (size_t i = 0; i + 1 < count_of(kinds); i++) {
        if (at < kinds[i].weight)
            return &kinds[i];
        at -= kinds[i].weight;
    }
    return &kinds[count_of(kinds) - 1];
}

/* A third of all operations goes to keys that are never evicted, of which there are few. */
static const struct key *draw_key(struct client *c, const struct act_kind *kind)
{
    bool pins = kind->prepare == prepare_pin || kind->prepare == prepare_unpin;
    uint64_t owner = kind->own || draw(c, 2) ? c->number : draw(c, c->client_count);
    uint64_t tree = pins ? PINNED_TREE : draw(c, TREES);
    uint64_t leaf = draw(c, 3) == 0 && !pins ? draw(c, KEEP_LEAVES) : KEEP_LEAVES + draw(c, CACHE_LEAVES);

    if (!pins && draw(c, HOT_EVERY) == 0)
        return ledger_hot(c, owner);
    return &c->keys[owner * CLIENT_KEYS + tree * LEAVES + leaf];
}

static bool taken(const struct act *acts, int count, const struct key *key)
{
    for (int i = 0; i < count; i++) {
        if (acts[i].key == key)
            return true;
    }
    return false;
}

void acts_step(struct client *c)
{
    struct penstock *store = c->stores[draw(c, 4) == 0 ? c->store_count - 1 : 0];
    int wanted = draw(c, 3) == 0 ? (int)draw(c, BATCH_MAX) + 1 : 1, count = 0, r;
    struct penstock_op ops[BATCH_MAX] = {0};
    struct act acts[BATCH_MAX] = {0};

    for (int i = 0; i < wanted; i++) {
        const struct act_kind *kind = draw_kind(c);
        const struct key *key = draw_key(c, kind);
        struct act *act = &acts[count];

        if (taken(acts, count, key))
            continue;
        *act = (struct act){.op = &ops[count], .key = key, .kind = kind, .buf = c->buffers[count]};
        kind->prepare(c, act);
        count++;
    }
    for (int i = 0; i < count; i++) {
        acts[i].sight = ledger_sight(c, acts[i].key);
        acts[i].begun_ms = churn_now_ms();
    }
    r = penstock_batch(store, ops, (size_t)count);
    if (r < 0)
        churn_violation(c, acts[0].key, "a batch of %d: %s", count, penstock_error());
    for (int i = 0; r >= 0 && i < count; i++)
        acts[i].kind->settle(c, &acts[i]);
}

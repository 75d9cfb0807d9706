/* SPDX-License-Identifier: Apache-2.0 */
/* acts.c: batches of operations, and commits, on keys that all actors share, written down before and after.
 */
#include "actor.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    FILLER_KEY = 0xffff,
    FILLER_KEYS = 48, /* of each actor: more than the node has room for */
    PLANT_EVERY = 8,
    EARLY_READS = 200,
    LATE_NS = 1000000000, /* past the deadline, and past what the process was kept from running */
    PULSE_US = 30000,
    PLANTED_S = 600,
};

struct act {
    struct penstock_op op;
    char key[32];
    uint64_t write;
    bool unsent;
    bool called_off; /* by what another operation of its commit found */
};

size_t key_text(uint16_t key, char text[32])
{
    return (size_t)snprintf(text, 32, "%c/shared/%u", key % 2 ? 'c' : 'k', key);
}

static enum value_class class_of(struct actor *a)
{
    uint64_t dice = draw(a, 100);

    if (a->focus == FOCUS_SMALL)
        return VALUE_SMALL;
    if (a->focus == FOCUS_LARGE)
        return VALUE_LARGE;
    return dice < 45 ? VALUE_SMALL : dice < 85 ? VALUE_MIDDLE : VALUE_LARGE;
}

/* Has a generation for each place where it is, and none that could be a condition. */
static bool unordered(const struct actor *a, uint16_t key)
{
    return a->pool && key % 2;
}

static void prepare_put(struct actor *a, struct act *act, uint16_t key, uint8_t *buf)
{
    act->write = value_number(a, class_of(a));
    value_fill(key, act->write, buf);
    penstock_prep_put(&act->op, act->key, strlen(act->key), buf, value_bytes(act->write));
    switch (draw(a, 4)) {
    case 0:
        act->op.flags = PENSTOCK_IF_ABSENT;
        break;
    case 1: /* now and then of a generation that never was */
        act->op.flags = PENSTOCK_IF_GENERATION;
        act->op.if_generation = draw(a, 8) ? a->seen[key] : a->seen[key] + 1;
        break;
    default:
        break;
    }
    if (unordered(a, key))
        act->op.flags &= ~PENSTOCK_IF_GENERATION;
    if (draw(a, 4) == 0)
        act->op.flags |= PENSTOCK_CHECKSUM;
    a->history->counts.puts++;
}

static void prepare_delete(struct actor *a, struct act *act, uint16_t key)
{
    penstock_prep(&act->op, PENSTOCK_DELETE, act->key, strlen(act->key));
    if (a->seen[key] && !unordered(a, key) && draw(a, 2)) {
        act->op.flags = PENSTOCK_IF_GENERATION;
        act->op.if_generation = a->seen[key];
    }
    a->history->counts.deletes++;
}

static void prepare(struct actor *a, struct act *act, uint16_t key, bool commit, uint8_t *buf)
{
    uint64_t dice = draw(a, commit ? 85 : 100);
    uint64_t puts = a->focus == FOCUS_GET ? 10 : a->focus == FOCUS_ALL ? 40 : 80;

    if (commit) /* changes only */
        puts = 80;

    *act = (struct act){0};
    key_text(key, act->key);
    if (dice < puts) {
        prepare_put(a, act, key, buf);
    } else if (dice < puts + 5) {
        prepare_delete(a, act, key);
    } else {
        memset(buf, 0xdb, 64);
        penstock_prep_get(&act->op, act->key, strlen(act->key), buf, VALUE_BYTES_MAX);
        a->history->counts.gets++;
    }
}

/* Memory that others need: what is evicted for it is written down by nobody. */
static void prepare_filler(struct actor *a, struct act *act, uint8_t *buf)
{
    *act = (struct act){.write = value_number(a, VALUE_LARGE)};
    snprintf(act->key, sizeof(act->key), "c/filler/%u/%u", a->number, (unsigned)draw(a, FILLER_KEYS));
    value_fill(FILLER_KEY, act->write, buf);
    penstock_prep_put(&act->op, act->key, strlen(act->key), buf, value_bytes(act->write));
    a->history->counts.fillers++;
}

/* Every outcome that this kind of operation may have when others fail. */
static bool documented(const struct actor *a, const struct penstock_op *op)
{
    bool put = op->code == PENSTOCK_PUT;

    switch (op->result) {
    case PENSTOCK_OK:
        return true;
    case PENSTOCK_MISS:
        return !put;
    case PENSTOCK_EXISTS:
        return put && op->flags & PENSTOCK_IF_ABSENT;
    case PENSTOCK_STALE:
        return op->flags & PENSTOCK_IF_GENERATION;
    case PENSTOCK_UNKNOWN:
        return op->code != PENSTOCK_GET && !a->calm;
    case PENSTOCK_INCOMPLETE:
    case -EPROTO:  /* of a node that was killed before its first word */
    case -EREMCHG: /* no master leads */
        return a->pool;
    case PENSTOCK_BUSY:
    case -ETIMEDOUT:
    case -ECONNRESET:
    case -ECONNREFUSED:
    case -EHOSTUNREACH:
        return !a->calm;
    case -ENOSPC:
        return put;
    default:
        return false;
    }
}

static void count_outcome(struct actor *a, const struct act *act)
{
    const struct penstock_op *op = &act->op;

    a->history->counts.checked++;
    a->history->counts.unknown += op->result == PENSTOCK_UNKNOWN;
    a->history->counts.busy += op->result == PENSTOCK_BUSY;
    a->history->counts.no_space += op->result == -ENOSPC;
    a->history->counts.not_reached += op->result < 0 && op->result != -ENOSPC;
    if (!documented(a, op))
        violation(a, "code %d of %s, flags %u, ended with '%s' (%d)%s", op->code, act->key, op->flags,
                  penstock_result_text(op->result), op->result,
                  a->calm ? ", though nothing disturbs it" : "");
}

static void check_read(struct actor *a, struct act *act, uint16_t key, uint8_t *buf)
{
    if (a->plant == PLANT_TORN && ++a->reads % PLANT_EVERY == 0)
        buf[act->op.value_bytes / 2] ^= 1;
    act->write = value_read(key, buf, act->op.value_bytes);
    a->history->counts.hits++;
    a->history->counts.checked_bytes += act->op.value_bytes;
    if (!act->write)
        violation(a, "a get of %s, generation %llu, gave %llu bytes that are no whole value", act->key,
                  (unsigned long long)act->op.generation, (unsigned long long)act->op.value_bytes);
}

/* What PLANT_STALE tells in place of the truth: the read that it made long before. */
static void make_stale(struct actor *a, struct record *record)
{
    struct record *early = &a->early[record->key];

    if (a->plant != PLANT_STALE || record->code != PENSTOCK_GET || record->result != 0)
        return;
    if (early->write && early->write != record->write && draw(a, PLANT_EVERY) == 0) {
        record->write = early->write;
        record->generation = early->generation;
    } else if (!early->write || draw(a, EARLY_READS) == 0) {
        *early = *record;
    }
}

static void settle(struct actor *a, struct act *act, struct record *record, uint8_t *buf)
{
    const struct penstock_op *op = &act->op;

    if (act->called_off) { /* as good as busy: nothing was done, nothing was said of the key */
        record->result = PENSTOCK_BUSY;
        record->ended_ns = now_ns();
        return;
    }
    count_outcome(a, act);
    if (op->code == PENSTOCK_GET && op->result == 0)
        check_read(a, act, record->key, buf);
    record->write = act->write;
    record->generation = op->generation;
    record->result = op->result;
    if (op->result >= 0 && op->result <= PENSTOCK_STALE && op->generation)
        a->seen[record->key] = op->generation;
    make_stale(a, record);
    record->ended_ns = now_ns();
}

/* Operations end by their deadline, and a little later at the most; time in which this process was stopped,
 * or got no core, is nobody's fault. */
static void check_time(struct actor *a, uint64_t begun_ns, uint64_t stalled_before_ns, uint64_t bytes)
{
    uint64_t took_ns = now_ns() - begun_ns, limit_ns = (a->timeout_ms + bytes / (64 << 10)) * 1000000ull;

    if (a->plant == PLANT_LATE && draw(a, PLANT_EVERY) == 0)
        took_ns += PLANTED_S * 1000000000ull;
    if (took_ns <= limit_ns + LATE_NS)
        return;
    usleep(PULSE_US); /* the pulse may not have counted yet */
    limit_ns += pulse_stalled_ns() - stalled_before_ns;
    if (took_ns > limit_ns + LATE_NS)
        violation(a, "operations ended after %llu ms, %llu are allowed",
                  (unsigned long long)(took_ns / 1000000), (unsigned long long)(limit_ns / 1000000));
}

static enum focus kind_of(const struct act *acts, uint32_t count)
{
    if (count > 1)
        return FOCUS_BATCH;
    if (acts[0].op.code != PENSTOCK_PUT)
        return FOCUS_GET;
    return acts[0].op.bytes > 2048 ? FOCUS_LARGE : FOCUS_SMALL;
}

/* One by one, or all or nothing. Return: whether they were done, each in its own way. */
static bool send(struct actor *a, struct penstock_op *ops, uint32_t count, bool commit)
{
    int r = commit ? penstock_commit(a->store, ops, count) : penstock_batch(a->store, ops, count);

    if (commit ? r == -EINVAL || r == -E2BIG : r < 0)
        violation(a, "a %s was not begun: %s", commit ? "commit" : "batch", penstock_error());
    return !commit || r == 0;
}

static void run(struct actor *a, struct act *acts, uint32_t count, bool commit)
{
    uint64_t stalled_ns = pulse_stalled_ns(), begun_ns = now_ns(), bytes_max = 0;
    struct penstock_op ops[BATCH_MAX];
    uint32_t sent = 0;
    bool done;

    for (uint32_t i = 0; i < count; i++) {
        if (!acts[i].unsent)
            ops[sent++] = acts[i].op;
        bytes_max = acts[i].op.bytes > bytes_max ? acts[i].op.bytes : bytes_max;
    }
    a->history->counts.underway = kind_of(acts, count);
    done = !sent || send(a, ops, sent, commit);
    a->history->counts.underway = 0;
    sent = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (acts[i].unsent)
            continue;
        acts[i].op = ops[sent++];
        acts[i].called_off = !done && acts[i].op.result == 0;
    }
    check_time(a, begun_ns, stalled_ns, bytes_max);
}

/* PLANT_LOST: tells of a put that was never made. */
static void make_lost(struct actor *a, struct act *act)
{
    if (a->plant != PLANT_LOST || act->op.code != PENSTOCK_PUT || draw(a, PLANT_EVERY) != 0)
        return;
    act->unsent = true;
    act->op.result = 0;
    act->op.flags = 0;
    act->op.generation = 0;
}

static void run_shared(struct actor *a, uint32_t count, bool commit)
{
    uint16_t first = (uint16_t)draw(a, KEYS), stride = (uint16_t)(2 * draw(a, KEYS / 2) + 1);
    struct record *records;
    struct act acts[BATCH_MAX];

    for (uint32_t i = 0; i < count; i++) {
        prepare(a, &acts[i], (uint16_t)((first + i * stride) % KEYS), commit, a->buffers[i]);
        make_lost(a, &acts[i]);
    }
    records = history_begin(a, count);
    if (!records)
        return;
    for (uint32_t i = 0; i < count; i++) {
        records[i].key = (uint16_t)((first + i * stride) % KEYS);
        records[i].write = acts[i].write;
        records[i].if_generation = acts[i].op.if_generation;
        records[i].flags = (uint8_t)acts[i].op.flags;
        atomic_thread_fence(memory_order_release);
        records[i].code = acts[i].op.code; /* last: without a code it was not sent */
    }
    run(a, acts, count, commit);
    for (uint32_t i = 0; i < count; i++)
        settle(a, &acts[i], &records[i], a->buffers[i]);
}

static void run_filler(struct actor *a)
{
    struct act act;

    prepare_filler(a, &act, a->buffers[0]);
    run(a, &act, 1, false);
    count_outcome(a, &act);
}

void acts_step(struct actor *a)
{
    uint64_t dice = draw(a, 100);

    if (a->focus == FOCUS_BATCH || dice < 12)
        run_shared(a, 2 + (uint32_t)draw(a, BATCH_MAX - 1), draw(a, 4) == 0 && !a->pool);
    else if (dice < 24 && a->focus == FOCUS_ALL && !a->pool)
        run_filler(a);
    else
        run_shared(a, 1, false);
    if (a->focus == FOCUS_VIEW || dice % 4 == 0)
        views_open(a);
    views_tend(a, false);
}

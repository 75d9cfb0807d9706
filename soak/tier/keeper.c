/* SPDX-License-Identifier: Apache-2.0 */
/* keeper.c: see keeper.h. */
#include "keeper.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TIMEOUT_MS = 10000, OPEN_AGAIN_US = 5000, FAILED_PAUSE_US = 1000, HEAD_BYTES = 16 };

void keeper_violation(struct keeper *k, const char *format, ...)
{
    va_list args;

    if (atomic_fetch_add(&k->violations, 1) > 0)
        return;
    va_start(args, format);
    vsnprintf(k->text, sizeof(k->text), format, args);
    va_end(args);
}

static uint64_t draw(struct keeper_thread *t, uint64_t below)
{
    t->random += 0x9e3779b97f4a7c15ull;
    return keeper_mix(t->random) % below;
}

/* ---- values ---- */

size_t keeper_key_text(uint32_t thread, uint32_t key, char text[24])
{
    return (size_t)snprintf(text, 24, "soak/%u/%u", thread, key);
}

uint64_t keeper_value_bytes(uint32_t version)
{
    uint64_t dice = keeper_mix(version);

    switch (dice % 16) {
    case 0 ... 3:
        return HEAD_BYTES + dice / 16 % 3000;
    case 4 ... 7:
        return 4096 * (dice / 16 % 16 + 1);
    case 8 ... 12:
        return HEAD_BYTES + dice / 16 % 65536;
    default:
        return HEAD_BYTES + dice / 16 % (KEEPER_VALUE_BYTES_MAX - HEAD_BYTES);
    }
}

static uint64_t word_of(uint32_t thread, uint32_t key, uint32_t version, uint64_t i)
{
    return keeper_mix(((uint64_t)thread << 56 | (uint64_t)key << 40 | version) + i * 0x9e3779b97f4a7c15ull);
}

void keeper_fill(uint8_t *to, uint32_t thread, uint32_t key, uint32_t version)
{
    uint64_t bytes = keeper_value_bytes(version), word = version;

    for (uint64_t i = 0; i < bytes / 8; i++) {
        memcpy(to + 8 * i, &word, 8);
        word = word_of(thread, key, version, i + 1);
    }
    memset(to + bytes / 8 * 8, (int)version, bytes % 8);
}

uint32_t keeper_read(const uint8_t *data, uint64_t bytes, uint32_t thread, uint32_t key)
{
    uint64_t word = 0, expected;
    uint32_t version;

    if (bytes < HEAD_BYTES)
        return 0;
    memcpy(&word, data, 8);
    version = (uint32_t)word;
    expected = version;
    if (bytes != keeper_value_bytes(version))
        return 0;
    for (uint64_t i = 0; i < bytes / 8; i++) {
        memcpy(&word, data + 8 * i, 8);
        if (word != expected)
            return 0;
        expected = word_of(thread, key, version, i + 1);
    }
    for (uint64_t i = bytes / 8 * 8; i < bytes; i++) {
        if (data[i] != (uint8_t)version)
            return 0;
    }
    return version;
}

/* ---- what may be there ---- */

static void came_later(struct keeper_key *k, uint32_t version)
{
    k->later[k->later_count++] = version;
}

static void is_durable(struct keeper_key *k, uint32_t version)
{
    k->durable = version;
    k->later_count = 0;
}

static bool may_come_back(const struct keeper_key *k, uint32_t version)
{
    bool found = version == k->durable;

    for (uint32_t i = 0; i < k->later_count; i++)
        found = found || version == k->later[i];
    return found;
}

/* ---- operations ---- */

static void note(struct keeper_thread *t, uint32_t i, char what, uint32_t version, int result)
{
    struct keeper_key *k = &t->keys[i];

    k->events[k->event_count++ % KEEPER_EVENTS] =
        (struct keeper_event){(uint32_t)t->epoch, version, result, what};
}

/* What became of the key before. */
static void wrong(struct keeper_thread *t, uint32_t i, const char *what, uint32_t version)
{
    const struct keeper_key *k = &t->keys[i];
    char text[KEEPER_TEXT_BYTES / 2] = "";
    size_t at = 0;

    for (uint32_t n = k->event_count < KEEPER_EVENTS ? 0 : k->event_count - KEEPER_EVENTS; n < k->event_count;
         n++) {
        const struct keeper_event *e = &k->events[n % KEEPER_EVENTS];

        at += (size_t)snprintf(text + at, sizeof(text) - at, " %u%c%u%s%.0d", e->epoch, e->what, e->version,
                               e->result ? "=" : "", e->result);
        at = at < sizeof(text) ? at : sizeof(text) - 1;
    }
    keeper_violation(
        t->keeper, "key %u of client %u: version %u %s; %u was durable, %u came later, %u or %u was there:%s",
        i, t->number, version, what, k->durable, k->later_count, k->now, k->or_else, text);
}

/* Return: whether another process may have carried it out, or a part. */
static bool crossed(const struct keeper_thread *t)
{
    return atomic_load(&t->keeper->epoch) != t->epoch;
}

static int run(struct keeper_thread *t, struct penstock_op *op)
{
    penstock_batch(t->store, op, 1);
    return op->result;
}

/* A result that says neither that it was done nor what is there. */
static void failed(struct keeper_thread *t, const char *what, uint32_t key, int result)
{
    bool allowed = t->keeper->failures_allowed && (result == -EIO || result == -ENOSPC);

    t->counts.full += result == -ENOSPC;
    t->counts.failed += result != -ENOSPC;
    if (result == -ENOSPC || allowed || crossed(t)) {
        usleep(FAILED_PAUSE_US);
        return;
    }
    /* The process may have died a moment ago, before anybody could know. */
    if (result == PENSTOCK_UNKNOWN || result == PENSTOCK_BUSY || result == -ECONNRESET ||
        result == -ETIMEDOUT || result == -ECONNREFUSED || result == -EHOSTUNREACH || result == -ENOENT ||
        result == -EPIPE) {
        usleep(FAILED_PAUSE_US);
        return;
    }
    keeper_violation(t->keeper, "%s of key %u of client %u ended with '%s' (%d)", what, key, t->number,
                     penstock_result_text(result), result);
}

static void put(struct keeper_thread *t, uint32_t i, bool durable)
{
    struct keeper_key *k = &t->keys[i];
    struct penstock_op op = {0};
    uint32_t version = ++k->version;
    char key[24];
    int r;

    keeper_fill(t->buffer, t->number, i, version);
    penstock_prep_put(&op, key, keeper_key_text(t->number, i, key), t->buffer, keeper_value_bytes(version));
    op.flags = (durable ? PENSTOCK_DURABLE : 0) | (draw(t, 4) == 0 ? PENSTOCK_CHECKSUM : 0);
    came_later(k, version);
    k->or_else = version;
    r = run(t, &op);
    note(t, i, durable ? 'd' : 'p', version, r);
    k->crossing = crossed(t);
    t->counts.puts++;
    if (r != 0) {
        failed(t, durable ? "a durable put" : "a put", i, r);
        return;
    }
    k->now = version;
    if (durable)
        is_durable(k, version);
    t->counts.durable += durable;
}

static void delete (struct keeper_thread *t, uint32_t i)
{
    struct keeper_key *k = &t->keys[i];
    struct penstock_op op = {0};
    char key[24];
    int r;

    penstock_prep(&op, PENSTOCK_DELETE, key, keeper_key_text(t->number, i, key));
    came_later(k, 0);
    k->or_else = 0;
    r = run(t, &op);
    note(t, i, 'x', 0, r);
    k->crossing = crossed(t);
    t->counts.deletes++;
    if (r == 0 || r == PENSTOCK_MISS)
        k->now = 0;
    else
        failed(t, "a delete", i, r);
}

/* Return: whether *@version is what the store has of the key. */
static bool get(struct keeper_thread *t, uint32_t i, uint32_t *version)
{
    struct penstock_op op = {0};
    char key[24];
    int r;

    penstock_prep_get(&op, key, keeper_key_text(t->number, i, key), t->buffer, KEEPER_VALUE_BYTES_MAX);
    r = run(t, &op);
    t->counts.reads++;
    if (r != 0 && r != PENSTOCK_MISS) {
        failed(t, "a get", i, r);
        return false;
    }
    *version = 0;
    if (r == PENSTOCK_MISS)
        return true;
    if (t->keeper->plant && strcmp(t->keeper->plant, "byte") == 0)
        t->buffer[op.value_bytes / 2] ^= 1;
    *version = keeper_read(t->buffer, op.value_bytes, t->number, i);
    if (*version == 0)
        keeper_violation(t->keeper, "key %u of client %u: %llu bytes that nobody wrote", i, t->number,
                         (unsigned long long)op.value_bytes);
    return *version > 0;
}

static void look(struct keeper_thread *t, uint32_t i)
{
    struct keeper_key *k = &t->keys[i];
    uint32_t version;

    if (!get(t, i, &version) || crossed(t))
        return;
    if (version != k->now && version != k->or_else)
        wrong(t, i, "is there", version);
    k->now = k->or_else = version;
}

static void flush(struct keeper_thread *t)
{
    int r = penstock_flush(t->store);

    t->counts.flushes++;
    if (r != 0 || crossed(t)) {
        failed(t, "a flush", 0, r);
        return;
    }
    for (uint32_t i = 0; i < KEEPER_KEYS; i++) {
        if (t->keys[i].now != t->keys[i].or_else)
            continue;
        is_durable(&t->keys[i], t->keys[i].now);
        note(t, i, 'f', t->keys[i].now, r);
    }
}

/* ---- after a crash ---- */

/* What is found then lies on the disk: it is what the next crash brings back. */
static void settle(struct keeper_thread *t)
{
    uint64_t epoch = atomic_load(&t->keeper->epoch);

    t->epoch = epoch;
    t->unsettled = true;
    for (uint32_t i = 0; i < KEEPER_KEYS; i++) {
        struct keeper_key *k = &t->keys[i];
        uint32_t version;

        if (t->keeper->plant && strcmp(t->keeper->plant, "amnesia") == 0 && i == 0)
            k->durable = ++k->version, k->later_count = 0;
        while (!get(t, i, &version)) {
            if (crossed(t) || t->keeper->violations || t->keeper->stop)
                return;
        }
        if (crossed(t))
            return;
        if (!may_come_back(k, version))
            wrong(t, i, "came back", version);
        note(t, i, 'c', version, 0);
        t->counts.verified++;
        t->counts.undone += version != k->now;
        if (!k->crossing)
            is_durable(k, version);
        k->crossing = false;
        k->now = k->or_else = version;
    }
    t->unsettled = false;
    atomic_fetch_add(&t->keeper->settled, 1);
}

static void step(struct keeper_thread *t)
{
    uint32_t i = (uint32_t)draw(t, KEEPER_KEYS);
    struct keeper_key *k = &t->keys[i];
    uint64_t dice = draw(t, 100);

    if (t->unsettled || crossed(t)) {
        settle(t);
        return;
    }
    if (k->later_count >= KEEPER_LATER_MAX - 1)
        flush(t);
    if (k->now != k->or_else || k->later_count >= KEEPER_LATER_MAX - 1)
        look(t, i);
    else if (dice < 33)
        put(t, i, false);
    else if (dice < 60)
        put(t, i, true);
    else if (dice < 72)
        delete (t, i);
    else if (dice < 97)
        look(t, i);
    else
        flush(t);
}

static void *act(void *arg)
{
    struct keeper_thread *t = arg;
    struct keeper *k = t->keeper;
    struct penstock_options options = {.size = sizeof(options), .timeout_ms = TIMEOUT_MS};

    t->store = k->shared;
    while (!t->store && !k->stop) {
        if (penstock_open(k->url, &options, &t->store) < 0)
            usleep(OPEN_AGAIN_US);
    }
    while (!k->stop && k->violations == 0)
        step(t);
    if (!k->shared)
        penstock_close(t->store);
    t->store = NULL;
    return NULL;
}

/* ---- all of them ---- */

void keeper_init(struct keeper *k, uint64_t seed, const char *plant)
{
    *k = (struct keeper){.seed = seed, .plant = plant};
    for (uint32_t i = 0; i < KEEPER_THREADS; i++) {
        struct keeper_thread *t = &k->threads[i];

        *t = (struct keeper_thread){.keeper = k, .number = i, .random = keeper_mix(seed + i)};
        t->buffer = malloc(KEEPER_VALUE_BYTES_MAX);
        if (!t->buffer)
            abort();
    }
}

void keeper_fini(struct keeper *k)
{
    for (uint32_t i = 0; i < KEEPER_THREADS; i++)
        free(k->threads[i].buffer);
}

void keeper_start(struct keeper *k)
{
    k->stop = false;
    for (uint32_t i = 0; i < KEEPER_THREADS; i++) {
        if (pthread_create(&k->threads[i].thread, NULL, act, &k->threads[i]) != 0)
            abort();
    }
}

void keeper_stop(struct keeper *k)
{
    k->stop = true;
    for (uint32_t i = 0; i < KEEPER_THREADS; i++)
        pthread_join(k->threads[i].thread, NULL);
}

void keeper_reset(struct keeper *k)
{
    for (uint32_t i = 0; i < KEEPER_THREADS; i++) {
        for (uint32_t j = 0; j < KEEPER_KEYS; j++)
            k->threads[i].keys[j] = (struct keeper_key){.version = k->threads[i].keys[j].version};
    }
}

void keeper_crashed(struct keeper *k)
{
    atomic_store(&k->settled, 0);
    atomic_fetch_add(&k->epoch, 1);
}

bool keeper_settled(const struct keeper *k)
{
    return k->settled >= KEEPER_THREADS;
}

int keeper_tell(const struct keeper *k, uint64_t checked, const char *more)
{
    uint64_t sums[32] = {0};
    uint32_t n;

    for (uint32_t i = 0; i < KEEPER_THREADS; i++) {
        n = 0;
#define X(name) sums[n++] += k->threads[i].counts.name;
        KEEPER_COUNTS(X)
#undef X
    }
    if (k->violations > 0)
        printf("violation: %s\n", k->text);
    n = 0;
#define X(name) printf("\"" #name "\": %llu, ", (unsigned long long)sums[n++]);
    printf("{");
    KEEPER_COUNTS(X)
#undef X
    printf("%s\"checked\": %llu, \"violations\": %llu}\n", more, (unsigned long long)checked,
           (unsigned long long)k->violations);
    return k->violations > 0;
}

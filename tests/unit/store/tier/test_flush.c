/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_flush.c: what a crash right behind a flush brings back, against a table in the test: puts with an end
 * and without, deletes, clears of pinned keys, reads and demotions go on while the flush walks, in memory, on
 * the SSD and on a device, on a disk that fails now and then. A crash is a copy of the log's folder.
 */
#include "lib/tier_rig.h"

#include "base/fault.h"
#include "gpu/gpu.h"
#include "log/log_priv.h"
#include "store/exec.h"
#include "store/place.h"

enum {
    PAGE = 64 << 10,
    KEYS = 12,
    LIVES = 8,                /* of a store, of each kind */
    FLUSHES = 10,             /* of one life; each ends in a crash of a copy of it */
    CHANGES = 100,            /* before a flush and during it */
    EVENTS_MAX = 4 * CHANGES, /* of a key */
};

/* A key as it may be found after a crash: generations of values without an end since the last flush began,
 * and the state that it had then. */
struct key_past {
    uint64_t generations[EVENTS_MAX];
    uint32_t count;
    bool absent; /* it was deleted, or had an end, or was not there */
};

struct past {
    struct engine e;
    struct key_past keys[KEYS];
    uint64_t now[KEYS]; /* generation of the value without an end; 0: none */
    uint32_t checked;   /* flushes that were well */
};

static void past_open(struct past *p, const char *folder, bool device)
{
    engine_open(&p->e, &(struct engine_shape){.page_bytes = PAGE,
                                              .pages = 64,
                                              .ssd = folder,
                                              .ssd_bytes = 32 << 20,
                                              .segment_bytes = 2 << 20,
                                              .device = device ? &pst_gpu_host : NULL,
                                              .device_pages = device ? 64 : 0});
}

static void note(struct past *p, uint32_t i, uint64_t generation)
{
    struct key_past *key = &p->keys[i];

    p->now[i] = generation;
    if (!generation)
        key->absent = true;
    else
        key->generations[key->count++] = generation;
    assert_true(key->count < EVENTS_MAX);
}

/* What was before the flush that begins now may not come back. A cleared value that a pin keeps may. */
static void past_ends(struct past *p)
{
    for (uint32_t i = 0; i < KEYS; i++) {
        const struct pst_record *r = find(p->e.shard, key_name("k", i));

        p->keys[i].count = 0;
        p->keys[i].absent = false;
        if (r && pst_record_doomed(p->e.shard, r))
            note(p, i, r->generation);
        note(p, i, r && pst_record_doomed(p->e.shard, r) ? 0 : p->now[i]);
    }
}

static uint64_t any_size(void)
{
    static const uint64_t most[] = {200, 3000, PAGE, 3 * PAGE};

    return 1 + random_next() % most[random_next() % 4];
}

static void put_one(struct past *p, uint32_t i)
{
    struct engine *e = &p->e;
    struct pst_put put = put_of(e->shard, key_name("k", i), any_size());
    struct pst_answer answer;
    bool ends = random_next() % 6 == 0;

    put.ttl_ms = ends ? 3600000 : 0;
    if (pst_shard_put(e->shard, &put, pattern((uint32_t)random_next() % 1000), e->now_ns, &answer) == 0)
        note(p, i, ends ? 0 : find(e->shard, key_name("k", i))->generation);
}

/* As a clear of the prefix of one key does: a pinned one goes with its pin. */
static void clear_one(struct past *p, uint32_t i)
{
    char end[64];

    snprintf(end, sizeof(end), "%s~", key_name("k", i));
    sweep_all(&p->e, range_of(key_name("k", i), end), true);
    note(p, i, 0);
}

static void demote_one(struct past *p, uint32_t i)
{
    struct pst_record *r = find(p->e.shard, key_name("k", i));

    if (r && !pst_record_away(r) && pst_record_loose(p->e.shard, r, p->e.now_ns) &&
        pst_tier_takes(p->e.shard->tier, r) && !(r->state & PST_RECORD_PINNED))
        pst_tier_demote(p->e.shard->tier, r, p->e.now_ns);
}

static void change_any(struct past *p)
{
    uint32_t i = (uint32_t)random_next() % KEYS, what = (uint32_t)random_next() % 100;
    const char *key = key_name("k", i);

    p->e.now_ns = pst_now_ns();
    if (what < 60)
        put_one(p, i);
    else if (what < 70 && delete_key(p->e.shard, key) == 0)
        note(p, i, 0);
    else if (what < 75)
        clear_one(p, i);
    else if (what < 85)
        pin(&p->e, key, 0);
    else if (what < 90)
        unpin(&p->e, key);
    else
        demote_one(p, i);
}

/* Return: true when something happened. */
static bool poll_some(struct past *p)
{
    bool something = false;

    for (uint64_t polls = random_next() % 3; polls > 0; polls--)
        something |= pst_shard_poll(p->e.shard, pst_now_ns()) || pst_shard_tick(p->e.shard, pst_now_ns());
    return something;
}

/* Return: what the flush said. */
static int flush_and_change(struct past *p)
{
    struct pst_tier_wait wait;
    int changes = 0, result;

    past_ends(p);
    pst_tier_flush(p->e.shard, &wait);
    while (!wait.ended) {
        if (changes++ < CHANGES)
            change_any(p);
        if (!poll_some(p) && changes >= CHANGES)
            usleep(100);
    }
    result = wait.result;
    pst_tier_leave(p->e.shard, &wait);
    return result;
}

static bool may_be(const struct key_past *key, const struct pst_record *r)
{
    for (uint32_t i = 0; r && i < key->count; i++) {
        if (key->generations[i] == r->generation)
            return true;
    }
    return !r && key->absent;
}

/* The log's folder as it is now, in another store. */
static void crash(struct past *p, const char *folder)
{
    char *copy = copy_of(folder);
    struct past after = {0};

    past_open(&after, copy, false);
    for (uint32_t i = 0; i < KEYS; i++) {
        const struct pst_record *r = find(after.e.shard, key_name("k", i));

        if (!may_be(&p->keys[i], r))
            fail_msg("%s is %s %llu, flush %u", key_name("k", i), r ? "there with generation" : "not there",
                     r ? (unsigned long long)r->generation : 0, p->checked);
    }
    engine_close(&after.e);
    rig_remove(copy);
    p->checked++;
}

static void live(bool device, const char *faults)
{
    char *folder = rig_folder();
    struct past p = {0};

    past_open(&p, folder, device);
    assert_int_equal(pst_faults_arm(faults), 0);
    for (int i = 0; i < FLUSHES; i++) {
        for (int j = 0; j < CHANGES; j++) {
            change_any(&p);
            poll_some(&p);
        }
        if (flush_and_change(&p) == 0)
            crash(&p, folder);
    }
    assert_true(p.checked > 0);
    pst_faults_arm("");
    pst_store_close(p.e.store);
    rig_remove(folder);
}

static uint64_t still_ns;

static uint64_t still_clock(void)
{
    return still_ns;
}

/* What the walk reads from the device is cleared meanwhile, and goes when the walk goes on: no key is passed
 * over. */
static void a_value_goes_under_the_walk(void **state)
{
    static const char *const keys[] = {"b", "c", "d"};
    char *folder = rig_folder();
    struct past p = {0};
    struct engine *e = &p.e;
    struct pst_tier_wait flush, reader;
    struct pst_lookup a;

    (void)state;
    past_open(&p, folder, true);
    put(e, "a", 1, 2 * PAGE);
    put(e, "b", 2, 2 * PAGE);
    while (pst_shard_poll(e->shard, pst_now_ns()) || pst_shard_tick(e->shard, pst_now_ns()))
        ;
    put(e, "c", 3, 3000);
    put(e, "d", 4, 3000);
    assert_int_equal(pst_tier_fetch(e->shard, find(e->shard, "b"), 0, 2 * PAGE, pst_now_ns(), &reader), 0);
    wait_until_ended(e, &reader);
    assert_int_equal(pin(e, "a", 1000), 0);
    pst_tier_flush(e->shard, &flush);
    pst_shard_poll(e->shard, pst_now_ns());
    assert_non_null(e->shard->tier->flush.fetch);
    while (!e->shard->tier->flush.fetch->ended)
        pst_tier_tick(e->shard->tier, pst_now_ns());
    sweep_all(e, range_of("a", "b"), true);
    a = lookup_of(e->shard, "a");
    assert_false(pst_shard_pinned(e->shard, &a, e->now_ns + 2 * SECOND_NS)); /* the fetch still keeps it */
    assert_non_null(find(e->shard, "a"));
    still_ns = pst_now_ns();
    e->shard->tier->clock = still_clock; /* all in one turn */
    wait_until_ended(e, &flush);
    assert_int_equal(flush.result, 0);
    assert_null(find(e->shard, "a"));
    for (size_t i = 0; i < pst_count_of(keys); i++)
        assert_true(pst_tier_saves(e->shard, find(e->shard, keys[i])));
    pst_tier_leave(e->shard, &reader);
    pst_tier_leave(e->shard, &flush);
    engine_close(e);
    rig_remove(folder);
}

static const struct pst_shard *scribbles; /* on cells that are given back; NULL: none does */

void __real_pst_slab_give(struct pst_slab *slab, uint64_t offset);
void __wrap_pst_slab_give(struct pst_slab *slab, uint64_t offset);

/* As another shard may, which has the page next. */
void __wrap_pst_slab_give(struct pst_slab *slab, uint64_t offset)
{
    if (scribbles)
        memset(scribbles->base + offset, 0xff, pst_slab_cell_bytes(slab, offset));
    __real_pst_slab_give(slab, offset);
}

/* The same, and the next value is to be read from the device first: the walk stops behind one that is gone.
 */
static void a_value_goes_behind_the_walk(void **state)
{
    char *folder = rig_folder();
    struct past p = {0};
    struct engine *e = &p.e;
    struct pst_tier_wait flush;
    struct pst_lookup a;

    (void)state;
    past_open(&p, folder, true);
    put(e, "a", 1, 2 * PAGE);
    put(e, "b", 2, 2 * PAGE);
    while (pst_shard_poll(e->shard, pst_now_ns()) || pst_shard_tick(e->shard, pst_now_ns()))
        ;
    assert_int_equal(pin(e, "a", 1000), 0);
    pst_tier_flush(e->shard, &flush);
    pst_shard_poll(e->shard, pst_now_ns());
    assert_non_null(e->shard->tier->flush.fetch);
    while (!e->shard->tier->flush.fetch->ended)
        pst_tier_tick(e->shard->tier, pst_now_ns());
    sweep_all(e, range_of("a", "b"), true);
    a = lookup_of(e->shard, "a");
    assert_false(pst_shard_pinned(e->shard, &a, e->now_ns + 2 * SECOND_NS)); /* the fetch still keeps it */
    still_ns = pst_now_ns();
    e->shard->tier->clock = still_clock; /* all in one turn */
    scribbles = e->shard;
    pst_shard_poll(e->shard, pst_now_ns());
    assert_null(find(e->shard, "a"));
    assert_int_equal(e->shard->tier->flush.key_bytes, 1);
    assert_memory_equal(e->shard->tier->flush.key, "a", 1);
    wait_until_ended(e, &flush);
    scribbles = NULL;
    assert_int_equal(flush.result, 0);
    assert_true(pst_tier_saves(e->shard, find(e->shard, "b")));
    pst_tier_leave(e->shard, &flush);
    engine_close(e);
    rig_remove(folder);
}

/* Nothing but the word of a delete is to be written, and that fails once. */
static void deletes_are_written_again(void **state)
{
    char *folder = rig_folder(), *copy;
    struct past p = {0}, after = {0};

    (void)state;
    past_open(&p, folder, false);
    put(&p.e, "gone", 1, 1000);
    put(&p.e, "stays", 2, 1000);
    assert_int_equal(flush(&p.e), 0);
    assert_int_equal(delete_key(p.e.shard, "gone"), 0);
    assert_int_equal(pst_faults_arm("disk_write_none:nth=1"), 0);
    assert_int_equal(flush(&p.e), 0);
    pst_faults_arm("");
    copy = copy_of(folder);
    past_open(&after, copy, false);
    assert_null(find(after.e.shard, "gone"));
    assert_non_null(find(after.e.shard, "stays"));
    engine_close(&after.e);
    engine_close(&p.e);
    rig_remove(copy);
    rig_remove(folder);
}

/* An SSD full of what stays there has no room for the rest, however often segments of others are taken back.
 */
static void a_full_log_ends_it(void **state)
{
    char *folder = rig_folder();
    struct pst_tier_wait wait;
    struct engine e;
    uint32_t i = 0;
    int full = 0;

    (void)state;
    engine_open(&e, &(struct engine_shape){.page_bytes = PAGE,
                                           .pages = 128,
                                           .cache_prefix = "c/",
                                           .ssd = folder,
                                           .ssd_bytes = 24 << 20,
                                           .segment_bytes = 2 << 20});
    for (uint32_t c = 0; c < 100; c++)
        try_put(e.shard, key_name("c/", c), c, PAGE, e.now_ns);
    for (; full < 1000; i++) {
        full = try_put(e.shard, key_name("k", i), i, PAGE, pst_now_ns()) == -ENOSPC ? full + 1 : 0;
        pst_shard_poll(e.shard, pst_now_ns());
        pst_shard_tick(e.shard, pst_now_ns());
    }
    pst_tier_flush(e.shard, &wait);
    for (uint32_t c = 0; !wait.ended; c++) {
        try_put(e.shard, key_name("c/", c % 300), c, PAGE, pst_now_ns());
        pst_shard_poll(e.shard, pst_now_ns());
        pst_shard_tick(e.shard, pst_now_ns());
    }
    assert_int_equal(wait.result, -ENOSPC);
    pst_tier_leave(e.shard, &wait);
    pst_store_close(e.store);
    rig_remove(folder);
}

static void nothing_older_comes_back(void **state)
{
    (void)state;
    for (int i = 0; i < LIVES; i++)
        live(i % 2, "");
}

static void nor_when_writes_fail(void **state)
{
    char faults[128];

    (void)state;
    for (int i = 0; i < LIVES; i++) {
        snprintf(faults, sizeof(faults),
                 "seed=%d,disk_write_eio:per_million=10000,disk_write_none:per_million=10000,device_copy_eio:"
                 "per_million=1000",
                 i + 1);
        live(i % 2, faults);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_value_goes_under_the_walk), cmocka_unit_test(a_value_goes_behind_the_walk),
        cmocka_unit_test(deletes_are_written_again),   cmocka_unit_test(a_full_log_ends_it),
        cmocka_unit_test(nothing_older_comes_back),    cmocka_unit_test(nor_when_writes_fail),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

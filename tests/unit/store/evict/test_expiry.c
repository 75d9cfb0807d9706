/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/engine.h"

#define MS_NS 1000000ull

static const struct pst_prefix_number some[] = {{{"t/", 2}, 1000}, {{"t/long/", 7}, 100000}};

static void open_shards(struct engine *e, uint32_t shards)
{
    static const char *const prefixes[] = {"c/"};
    const struct pst_store_options options = {.arenas = {.bytes = 8 << 20, .page_bytes = 64 << 10},
                                              .shard_count = shards,
                                              .watermark_percent = 100,
                                              .cache_prefixes = prefixes,
                                              .cache_prefix_count = 1,
                                              .ttls = some,
                                              .ttl_count = pst_count_of(some)};
    const char *fault = "";

    if (pst_store_open(&options, &e->store, &fault) < 0)
        fail_msg("%s", fault);
    e->shard = pst_store_shard(e->store, 0);
    e->now_ns = pst_now_ns();
}

static void open_store(struct engine *e)
{
    open_shards(e, 1);
}

static int put_ttl(struct engine *e, const char *key, uint32_t seed, uint64_t bytes, uint64_t ttl_ms)
{
    struct pst_put put = put_of(e->shard, key, bytes);
    struct pst_answer answer;

    put.ttl_ms = ttl_ms;
    return pst_shard_put(e->shard, &put, pattern(seed), e->now_ns, &answer);
}

static void pass(struct engine *e, uint64_t ms)
{
    e->now_ns += ms * MS_NS;
    pst_shard_time(e->shard, e->now_ns);
}

static uint64_t listed(struct engine *e)
{
    struct pst_range range = range_of("", "");
    static uint8_t buf[1 << 20];
    uint64_t count = 0;
    bool end;
    int64_t bytes = pst_shard_list(e->shard, &range, buf, sizeof(buf), &end);

    assert_true(bytes >= 0 && end);
    for (int64_t at = 0; at < bytes; count++) {
        struct pst_wire_entry entry;

        memcpy(&entry, buf + at, sizeof(entry));
        at += (int64_t)(sizeof(entry) + entry.key_bytes);
    }
    return count;
}

static void what_is_over_is_a_miss_at_once(void **state)
{
    static const uint64_t sizes[] = {0, 1, 8, 2048, 2049, 65536, 200000};

    (void)state;
    for (size_t i = 0; i < pst_count_of(sizes); i++) {
        struct engine e;

        open_store(&e);
        assert_int_equal(put_ttl(&e, "k", 3, sizes[i], 500), 0);
        put(&e, "stays", 4, sizes[i]);
        pass(&e, 499);
        assert_value(e.shard, "k", 3, sizes[i]);
        assert_int_equal(listed(&e), 2);
        pass(&e, 1);
        assert_null(find(e.shard, "k"));
        assert_int_equal(delete_key(e.shard, "k"), PST_MISS);
        assert_int_equal(pin(&e, "k", 0), PST_MISS);
        assert_int_equal(listed(&e), 1);
        assert_int_equal(shard_stat(e.shard).keys, 2); /* its memory is still taken */
        assert_false(pst_shard_tick(e.shard, e.now_ns));
        assert_int_equal(shard_stat(e.shard).keys, 1);
        assert_value(e.shard, "stays", 4, sizes[i]);
        engine_close(&e);
    }
}

static void a_write_begins_a_new_time(void **state)
{
    struct pst_answer answer;
    struct pst_put again;
    struct engine e;

    (void)state;
    open_store(&e);
    assert_int_equal(put_ttl(&e, "longer", 1, 100, 500), 0);
    assert_int_equal(put_ttl(&e, "longer", 2, 100, 2000), 0);
    assert_int_equal(put_ttl(&e, "for ever", 1, 100, 500), 0);
    put(&e, "for ever", 2, 100);
    assert_int_equal(put_ttl(&e, "over", 1, 100, 500), 0);
    pass(&e, 500);
    again = put_of(e.shard, "over", 100); /* nobody has ticked: it takes its place */
    again.flags = PST_PUT_IF_ABSENT;
    assert_int_equal(pst_shard_put(e.shard, &again, pattern(5), e.now_ns, &answer), 0);
    again = put_of(e.shard, "longer", 100);
    again.flags = PST_PUT_IF_ABSENT;
    assert_int_equal(pst_shard_put(e.shard, &again, pattern(5), e.now_ns, &answer), PST_EXISTS);
    assert_false(pst_shard_tick(e.shard, e.now_ns));
    assert_value(e.shard, "over", 5, 100);
    assert_value(e.shard, "longer", 2, 100);
    assert_value(e.shard, "for ever", 2, 100);
    assert_int_equal(shard_stat(e.shard).keys, 3);
    pass(&e, 1500);
    assert_false(pst_shard_tick(e.shard, e.now_ns));
    assert_int_equal(shard_stat(e.shard).keys, 2);
    engine_close(&e);
}

static void prefixes_have_times(void **state)
{
    struct engine e;

    (void)state;
    open_store(&e);
    put(&e, "t/1", 1, 100);
    put(&e, "t/long/1", 1, 100);
    assert_int_equal(put_ttl(&e, "t/2", 1, 100, 5000), 0);
    put(&e, "t", 1, 100);
    pass(&e, 1000);
    assert_null(find(e.shard, "t/1"));
    assert_non_null(find(e.shard, "t/2"));
    pass(&e, 4000);
    assert_null(find(e.shard, "t/2"));
    pass(&e, 94999);
    assert_non_null(find(e.shard, "t/long/1"));
    pass(&e, 1);
    assert_null(find(e.shard, "t/long/1"));
    assert_non_null(find(e.shard, "t"));
    engine_close(&e);
}

/* A thread that sleeps meanwhile would give it back too late. */
static void the_next_end_is_told(void **state)
{
    struct engine e;

    (void)state;
    open_store(&e);
    pass(&e, 0);
    assert_int_equal(pst_shard_expires_in_ms(e.shard), UINT64_MAX);
    assert_int_equal(put_ttl(&e, "later", 1, 100, 2000), 0);
    assert_int_equal(put_ttl(&e, "sooner", 1, 100, 500), 0);
    assert_int_equal(pst_shard_expires_in_ms(e.shard), 500);
    pass(&e, 499);
    assert_int_equal(pst_shard_expires_in_ms(e.shard), 1);
    pass(&e, 2);
    assert_int_equal(pst_shard_expires_in_ms(e.shard), 0);
    assert_false(pst_shard_tick(e.shard, e.now_ns));
    assert_int_equal(pst_shard_expires_in_ms(e.shard), 1499);
    pass(&e, 1499);
    assert_false(pst_shard_tick(e.shard, e.now_ns));
    assert_int_equal(pst_shard_expires_in_ms(e.shard), UINT64_MAX);
    engine_close(&e);
}

/* Most are deleted before their time. The memory of the others still goes at theirs, in their order. */
static void what_was_deleted_delays_no_other(void **state)
{
    enum { KEYS = 600, KEPT = 97, MS_MAX = 1000 };
    struct engine e;
    char key[16];

    (void)state;
    open_store(&e);
    for (uint32_t i = 0; i < KEYS; i++) {
        snprintf(key, sizeof(key), "k%u", i);
        assert_int_equal(put_ttl(&e, key, i, 10, 1 + i * 7919 % MS_MAX), 0);
    }
    for (uint32_t i = KEPT; i < KEYS; i++) {
        snprintf(key, sizeof(key), "k%u", i);
        assert_int_equal(delete_key(e.shard, key), PST_OK);
    }
    assert_int_equal(put_ttl(&e, "one more", 1, 10, MS_MAX), 0); /* what was deleted is forgotten now */
    for (uint32_t ms = 1; ms <= MS_MAX; ms++) {
        uint64_t live = ms < MS_MAX;

        for (uint32_t i = 0; i < KEPT; i++)
            live += 1 + i * 7919 % MS_MAX > ms;
        pass(&e, 1);
        assert_false(pst_shard_tick(e.shard, e.now_ns));
        assert_int_equal(shard_stat(e.shard).keys, live);
    }
    engine_close(&e);
}

/* Though nobody has ticked since, and although none of them may be evicted. */
static void what_is_over_makes_room(void **state)
{
    struct pst_answer answer;
    struct pst_put more;
    struct engine e;
    char key[16];
    int r = 0, count = 0;

    (void)state;
    open_store(&e);
    for (; r == 0; count += r == 0) {
        snprintf(key, sizeof(key), "k%d", count);
        r = put_ttl(&e, key, 1, 200000, 500);
    }
    assert_true(r == -ENOSPC && count > 20);
    pass(&e, 500);
    for (int i = 0; i < count; i++) {
        snprintf(key, sizeof(key), "later%d", i);
        more = put_of(e.shard, key, 200000);
        assert_int_equal(pst_shard_put(e.shard, &more, pattern(2), e.now_ns, &answer), 0);
    }
    engine_close(&e);
}

/* Fills the store with values of @bytes that end in half a second. Return: how many. */
static int fill_ending(struct engine *e, uint64_t bytes)
{
    int r = 0, count = 0;

    for (; r == 0; count += r == 0)
        r = put_ttl(e, key_name("k", (uint32_t)count), 1, bytes, 500);
    assert_int_equal(r, -ENOSPC);
    assert_true(count > 20);
    return count;
}

static struct pst_change change_of(struct engine *e, enum pst_change_kind kind, const char *key,
                                   uint64_t bytes)
{
    return (struct pst_change){.kind = kind, .put = put_of(e->shard, key, bytes), .value = pattern(3)};
}

static bool prepare(struct engine *e, struct pst_change *c)
{
    return pst_changes_prepare(e->shard, NULL, c, false, e->now_ns);
}

static void apply(struct engine *e, struct pst_change *c)
{
    pst_changes_decide(e->store, c, 1);
    pst_changes_apply(e->shard, c, e->now_ns);
}

/* Also the one that it writes anew, be it the only one. */
static void what_is_over_makes_room_for_a_commit(void **state)
{
    struct pst_change c;
    struct engine e;
    int count;

    (void)state;
    open_store(&e);
    assert_int_equal(put_ttl(&e, "over", 1, 200000, 500), 0);
    count = 0;
    while (try_put(e.shard, key_name("stays", (uint32_t)count), 2, 200000, e.now_ns) == 0)
        count++;
    assert_true(count > 20);
    pass(&e, 500);
    c = change_of(&e, PST_CHANGE_PUT, "over", 200000);
    assert_true(prepare(&e, &c));
    apply(&e, &c);
    assert_value(e.shard, "over", 3, 200000);
    assert_int_equal(shard_stat(e.shard).keys, count + 1);
    engine_close(&e);
}

/* What a commit keeps stays until that has ended; all others go, and make room. */
static void a_commit_keeps_no_other(void **state)
{
    struct pst_change check;
    struct engine e;
    int count;

    (void)state;
    open_store(&e);
    count = fill_ending(&e, 200000);
    check = change_of(&e, PST_CHANGE_CHECK, "k0000000", 0);
    check.put.if_generation = find(e.shard, "k0000000")->generation;
    assert_true(prepare(&e, &check));
    pass(&e, 500);
    for (int i = 1; i < count; i++)
        assert_int_equal(try_put(e.shard, key_name("later", (uint32_t)i), 2, 200000, e.now_ns), 0);
    assert_int_equal(try_put(e.shard, "one more", 2, 200000, e.now_ns), -ENOSPC);
    assert_false(pst_shard_tick(e.shard, e.now_ns));
    assert_int_equal(shard_stat(e.shard).keys, count);
    apply(&e, &check);
    assert_int_equal(try_put(e.shard, "one more", 2, 200000, e.now_ns), 0);
    assert_int_equal(shard_stat(e.shard).keys, count);
    engine_close(&e);
}

/* A tick with nothing but such keys is not asked to go on at once. */
static void many_kept_by_commits_are_left_alone(void **state)
{
    enum { COUNT = 300 };
    static struct pst_change checks[COUNT];
    static char keys[COUNT][8];
    struct engine e;

    (void)state;
    open_store(&e);
    for (int i = 0; i < COUNT; i++) {
        snprintf(keys[i], sizeof(keys[i]), "k%d", i);
        assert_int_equal(put_ttl(&e, keys[i], 1, 100, 500), 0);
        checks[i] = change_of(&e, PST_CHANGE_KEEP, keys[i], 0);
        assert_true(prepare(&e, &checks[i]));
    }
    pass(&e, 500);
    assert_false(pst_shard_tick(e.shard, e.now_ns));
    assert_int_equal(shard_stat(e.shard).keys, COUNT);
    for (int i = 0; i < COUNT; i++)
        apply(&e, &checks[i]);
    while (pst_shard_tick(e.shard, e.now_ns))
        ;
    assert_int_equal(shard_stat(e.shard).keys, 0);
    assert_int_equal(e.shard->expiries.count, 0);
    engine_close(&e);
}

/* A write waits for what is over in other shards: they drop it as soon as they look. */
static void what_is_over_elsewhere_makes_room(void **state)
{
    struct pst_shard *other;
    struct pst_change kept;
    struct engine e, there;

    (void)state;
    open_shards(&e, 2);
    other = pst_store_shard(e.store, 1);
    there = (struct engine){e.store, other, e.now_ns};
    fill_ending(&there, 200000);
    assert_int_equal(try_put(e.shard, "wide", 2, 4000000, e.now_ns), -ENOSPC);
    kept = change_of(&there, PST_CHANGE_KEEP, "k0000000", 0);
    assert_true(prepare(&there, &kept));
    pass(&e, 500);
    assert_int_equal(try_put(e.shard, "wide", 2, 4000000, e.now_ns), PST_BUSY);
    assert_int_equal(shard_stat(e.shard).no_space, 1);
    assert_false(pst_shard_tick(other, e.now_ns));
    assert_int_equal(shard_stat(other).keys, 1);
    assert_int_equal(try_put(e.shard, "wide", 2, 4000000, e.now_ns), 0);
    /* What a commit keeps there is nothing to wait for. */
    assert_int_equal(try_put(e.shard, "wider", 2, 4000000, e.now_ns), -ENOSPC);
    apply(&there, &kept);
    engine_close(&e);
}

/* Readers keep the bytes, not the key. */
static void readers_finish(void **state)
{
    struct pst_record *r;
    struct engine e;

    (void)state;
    open_store(&e);
    assert_int_equal(put_ttl(&e, "k", 7, 100000, 500), 0);
    assert_int_equal(pin(&e, "k", 0), 0);
    r = find(e.shard, "k");
    assert_int_equal(pst_shard_ref(e.shard, r), 0);
    pass(&e, 500);
    assert_false(pst_shard_tick(e.shard, e.now_ns));
    assert_int_equal(shard_stat(e.shard).keys, 0);
    assert_range(e.shard, r, 0, 100000, pattern(7));
    pst_shard_unref(e.shard, r);
    assert_int_equal(shard_stat(e.shard).pinned, 0);
    assert_int_equal(engine_pages_used(&e), 0);
    engine_close(&e);
}

static void what_is_not_written_leaves_nothing(void **state)
{
    struct pst_pending pending;
    struct pst_answer answer;
    struct engine e;

    (void)state;
    open_store(&e);
    for (int i = 0; i < 1000; i++) {
        struct pst_put put = put_of(e.shard, "k", 5000);

        put.ttl_ms = 100;
        assert_int_equal(pst_shard_reserve(e.shard, &put, e.now_ns, &pending, &answer), 0);
        pst_shard_abort(e.shard, &pending);
    }
    assert_int_equal(e.shard->expiries.pending, 0);
    assert_int_equal(e.shard->expiries.count, 0);
    assert_int_equal(e.shard->expiries.live, 0);
    engine_close(&e);
}

/* Entries of what is gone do not pile up. */
static void the_heap_holds_little_more_than_there_is(void **state)
{
    struct engine e;

    (void)state;
    open_store(&e);
    for (uint32_t i = 0; i < 100000; i++)
        assert_int_equal(put_ttl(&e, key_name("k", i % 50), i, 100, 1000000 + i % 777), 0);
    assert_int_equal(e.shard->expiries.live, 50);
    assert_in_range(e.shard->expiries.count, 50, 200);
    for (uint32_t i = 0; i < 50; i++)
        assert_int_equal(delete_key(e.shard, key_name("k", i)), 0);
    assert_int_equal(e.shard->expiries.live, 0);
    engine_close(&e);
}

/* A tick does a bounded amount; all go, in any order of times, also those that had to move. */
static void all_go_in_time(void **state)
{
    enum { COUNT = 3000 };
    uint64_t left = COUNT;
    struct engine e;

    (void)state;
    open_store(&e);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(put_ttl(&e, key_name(i % 2 ? "c/" : "k/", i), i, 1000, 1 + i * 7919u % COUNT), 0);
    for (uint32_t i = 0; i < COUNT; i += 3)
        left -= delete_key(e.shard, key_name(i % 2 ? "c/" : "k/", i)) == 0;
    while (pst_shard_take_back(e.shard, 90))
        ;
    assert_true(shard_stat(e.shard).moved > 0);
    for (int ms = 0; ms <= COUNT; ms++) {
        uint64_t before = shard_stat(e.shard).keys;

        e.now_ns += MS_NS;
        while (pst_shard_tick(e.shard, e.now_ns))
            ;
        assert_in_range(before - shard_stat(e.shard).keys, 0, 1);
    }
    assert_true(left > 1900);
    assert_int_equal(shard_stat(e.shard).keys, 0);
    assert_int_equal(e.shard->expiries.count, 0);
    engine_close(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_over_is_a_miss_at_once),
        cmocka_unit_test(a_write_begins_a_new_time),
        cmocka_unit_test(prefixes_have_times),
        cmocka_unit_test(the_next_end_is_told),
        cmocka_unit_test(what_was_deleted_delays_no_other),
        cmocka_unit_test(what_is_over_makes_room),
        cmocka_unit_test(what_is_over_makes_room_for_a_commit),
        cmocka_unit_test(a_commit_keeps_no_other),
        cmocka_unit_test(many_kept_by_commits_are_left_alone),
        cmocka_unit_test(what_is_over_elsewhere_makes_room),
        cmocka_unit_test(readers_finish),
        cmocka_unit_test(what_is_not_written_leaves_nothing),
        cmocka_unit_test(the_heap_holds_little_more_than_there_is),
        cmocka_unit_test(all_go_in_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

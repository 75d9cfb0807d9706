/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/engine.h"

static const struct engine_shape shape = {.page_bytes = 64 << 10, .pages = 1024, .cache_prefix = "c/"};

/* One entry of a page of a listing. */
struct entry {
    struct pst_wire_entry fixed;
    struct pst_bytes key;
};

/* Return: bytes read. */
static size_t read_entry(const uint8_t *at, size_t left, struct entry *out)
{
    pst_assert(left >= sizeof(out->fixed));
    memcpy(&out->fixed, at, sizeof(out->fixed));
    out->key = (struct pst_bytes){at + sizeof(out->fixed), out->fixed.key_bytes};
    pst_assert(left >= sizeof(out->fixed) + out->key.len);
    return sizeof(out->fixed) + out->key.len;
}

/* A listing in pages of @room bytes, each in memory of just that size, with something done between pages. */
struct listing {
    size_t room;
    void (*between)(void *ctx);
    void (*each)(void *ctx, const struct entry *entry);
    void *ctx;
};

/* Return: entries listed. */
static uint64_t list(struct pst_shard *shard, struct pst_range range, const struct listing *l)
{
    uint8_t *buf = malloc(l->room), last[PST_KEY_BYTES_MAX];
    uint64_t count = 0;
    bool end = false, first = true;

    while (!end) {
        int64_t bytes = pst_shard_list(shard, &range, buf, l->room, &end);
        struct entry entry;

        assert_in_range(bytes, 0, l->room);
        assert_true(bytes > 0 || end);
        for (size_t at = 0; at < (size_t)bytes; count++, first = false) {
            at += read_entry(buf + at, (size_t)bytes - at, &entry);
            pst_assert(first || pst_bytes_compare((struct pst_bytes){last, range.start.len}, entry.key) < 0);
            memcpy(last, entry.key.data, entry.key.len);
            range.start = (struct pst_bytes){last, entry.key.len};
            range.after = true;
            if (l->each)
                l->each(l->ctx, &entry);
        }
        if (l->between && !end)
            l->between(l->ctx);
    }
    free(buf);
    return count;
}

static uint64_t count_range(struct pst_shard *shard, const char *start, const char *end)
{
    const struct listing l = {.room = 300};

    return list(shard, range_of(start, end), &l);
}

static void ranges_have_ends(void **state)
{
    static const char *const keys[] = {"a", "a/", "a/1", "a/2", "a/22", "a/3", "a0", "b", "b/1"};
    struct engine e;

    (void)state;
    engine_open(&e, &shape);
    assert_int_equal(count_range(e.shard, "", ""), 0);
    for (size_t i = 0; i < pst_count_of(keys); i++)
        put(&e, keys[(i * 5 + 3) % pst_count_of(keys)], 1, 10);
    assert_int_equal(count_range(e.shard, "", ""), 9);
    assert_int_equal(count_range(e.shard, "a/", "a0"), 5); /* a prefix */
    assert_int_equal(count_range(e.shard, "a/2", "a/3"), 2);
    assert_int_equal(count_range(e.shard, "a/2", ""), 6);
    assert_int_equal(count_range(e.shard, "", "a/2"), 3);
    assert_int_equal(count_range(e.shard, "a/2", "a/2"), 0);
    assert_int_equal(count_range(e.shard, "b", "a"), 0);
    assert_int_equal(count_range(e.shard, "c", ""), 0);
    assert_int_equal(list(e.shard, (struct pst_range){.start = bytes_of("a/2"), .after = true},
                          &(struct listing){.room = 99}),
                     5);
    assert_int_equal(list(e.shard, (struct pst_range){.start = bytes_of("a/21"), .after = true},
                          &(struct listing){.room = 99}),
                     5);
    assert_int_equal(list(e.shard, (struct pst_range){.start = {NULL, 0}}, &(struct listing){.room = 99}), 9);
    engine_close(&e);
}

static void each_entry_tells_its_key(void *ctx, const struct entry *entry)
{
    const struct engine *e = ctx;
    struct pst_lookup lookup = pst_shard_lookup(e->shard, entry->key);
    const struct pst_record *r = pst_shard_find(e->shard, &lookup);

    assert_non_null(r);
    assert_int_equal(entry->fixed.generation, r->generation);
    assert_int_equal(entry->fixed.value_bytes, r->value_bytes);
    assert_int_equal(entry->fixed.depth, r->depth);
    assert_int_equal(entry->fixed.cache, ((const char *)entry->key.data)[0] == 'c');
}

/* Whatever the room is, the pages together are the whole. */
static void pages_of_any_size_make_the_whole(void **state)
{
    struct engine e;

    (void)state;
    engine_open(&e, &shape);
    for (uint32_t i = 0; i < 500; i++)
        put(&e, key_name(i % 2 ? "c/" : "k/", (i * 7919) % 100000), i, i * 20);
    for (size_t room = sizeof(struct pst_wire_entry) + 9; room < 600; room += 7) {
        const struct listing l = {.room = room, .each = each_entry_tells_its_key, .ctx = &e};

        assert_int_equal(list(e.shard, range_of("", ""), &l), 500);
    }
    engine_close(&e);
}

static void too_little_room_is_told(void **state)
{
    struct pst_range range = range_of("", "");
    struct engine e;
    bool end = true;

    (void)state;
    engine_open(&e, &shape);
    put(&e, "key", 1, 10);
    for (size_t room = 0; room < sizeof(struct pst_wire_entry) + 3; room++) {
        uint8_t *buf = malloc(room);

        assert_int_equal(pst_shard_list(e.shard, &range, buf, room, &end), -ENOBUFS);
        assert_false(end);
        free(buf);
    }
    range.start = bytes_of("l"); /* nothing there needs no room */
    assert_int_equal(pst_shard_list(e.shard, &range, NULL, 0, &end), 0);
    assert_true(end);
    engine_close(&e);
}

static void put_bytes_key(struct engine *e, struct pst_bytes key)
{
    struct pst_put put = {.lookup = pst_shard_lookup(e->shard, key), .value_bytes = 8};
    struct pst_answer answer;

    assert_int_equal(pst_shard_put(e->shard, &put, pattern(1), e->now_ns, &answer), 0);
}

static void keys_are_ordered_as_bytes(void **state)
{
    const struct listing l = {.room = 5000};
    static uint8_t longest[PST_KEY_BYTES_MAX];
    struct engine e;

    (void)state;
    engine_open(&e, &shape);
    for (uint32_t i = 0; i < 256; i++) {
        for (uint32_t k = 0; k < 256; k += 15)
            put_bytes_key(&e, (struct pst_bytes){(uint8_t[]){(uint8_t)i, (uint8_t)k}, 2});
        put_bytes_key(&e, (struct pst_bytes){(uint8_t[]){(uint8_t)i}, 1});
    }
    memset(longest, 0xff, sizeof(longest));
    put_bytes_key(&e, (struct pst_bytes){longest, sizeof(longest)});
    assert_int_equal(list(e.shard, range_of("", ""), &l), 256 * 19 + 1);
    assert_int_equal(list(e.shard, (struct pst_range){.start = {"\0", 1}, .end = {"\0\xff", 2}}, &l), 18);
    assert_int_equal(list(e.shard, (struct pst_range){.start = {"\xff", 1}, .after = true}, &l), 19);
    assert_int_equal(
        list(e.shard, (struct pst_range){.start = {longest, sizeof(longest)}, .after = true}, &l), 0);
    engine_close(&e);
}

/* ---- while others write ---- */

enum { STEADY = 100000, MOVING = 30000 };

struct crowd {
    struct engine *e;
    uint8_t seen[STEADY];
};

static const char *moving_key(void)
{
    return key_name(random_next() % 2 ? "s/" : "k/", (uint32_t)random_next() % MOVING * 10 + 5);
}

/* Steady keys end in anything but 5. */
static uint32_t steady_number(uint32_t i)
{
    return i / 9 * 10 + (i % 9 < 5 ? i % 9 : i % 9 + 1);
}

static void crowd_moves(void *ctx)
{
    struct crowd *c = ctx;

    for (int i = 0; i < 40; i++) {
        const char *key = moving_key();

        if (find(c->e->shard, key))
            assert_int_equal(delete_key(c->e->shard, key), PST_OK);
        else
            put(c->e, key, 1, random_next() % 100);
    }
    for (int i = 0; i < 4; i++) /* overwriting moves a record, not its key */
        put(c->e, key_name("k/", steady_number((uint32_t)random_next() % STEADY)), 1, random_next() % 100);
}

static void crowd_seen(void *ctx, const struct entry *entry)
{
    struct crowd *c = ctx;
    uint32_t number, digit;

    pst_assert(entry->key.len == 9);
    number = (uint32_t)strtoul((const char *)entry->key.data + 2, NULL, 10);
    digit = number % 10;
    if (((const char *)entry->key.data)[0] == 'k' && digit != 5)
        c->seen[number / 10 * 9 + (digit < 5 ? digit : digit - 1)]++;
}

static void key_end(void *ctx, const struct entry *entry)
{
    char text[10] = "";
    struct entry copy = *entry;

    memcpy(text, entry->key.data, pst_min(entry->key.len, 9));
    copy.key.data = text; /* strtoul() wants an end */
    crowd_seen(ctx, &copy);
}

static void listings_are_complete_while_others_write(void **state)
{
    const struct engine_shape large = {.page_bytes = 2 << 20, .pages = 64};
    static const size_t rooms[] = {40, 1000, 20000};
    struct crowd *c = calloc(1, sizeof(*c));
    struct engine e;

    (void)state;
    engine_open(&e, &large);
    c->e = &e;
    for (uint32_t i = 0; i < STEADY; i++)
        put(&e, key_name("k/", steady_number(i)), i, i % 64);
    for (size_t r = 0; r < pst_count_of(rooms); r++) {
        const struct listing l = {.room = rooms[r], .between = crowd_moves, .each = key_end, .ctx = c};

        if (r == 0) { /* one entry a page: a part of them will do */
            assert_in_range(list(e.shard, range_of("k/0050000", "k/0055000"), &l), 4500, 5000);
            for (uint32_t i = 45000; i < 49500; i++)
                assert_int_equal(c->seen[i], 1);
        } else {
            assert_in_range(list(e.shard, range_of("", ""), &l), STEADY, STEADY + 2 * MOVING);
            for (uint32_t i = 0; i < STEADY; i++)
                assert_int_equal(c->seen[i], 1);
        }
        memset(c->seen, 0, sizeof(c->seen));
    }
    engine_close(&e);
    free(c);
}

static void delete_listed(void *ctx, const struct entry *entry)
{
    struct engine *e = ctx;
    struct pst_lookup lookup = pst_shard_lookup(e->shard, entry->key);
    struct pst_answer answer;

    assert_int_equal(pst_shard_delete(e->shard, &lookup, true, entry->fixed.generation, &answer), PST_OK);
}

/* Deleting what was listed, the key to go on behind among it, misses nothing. */
static void cursors_survive_deletes(void **state)
{
    struct engine e;
    const struct listing l = {.room = 400, .each = delete_listed, .ctx = &e};

    (void)state;
    engine_open(&e, &shape);
    for (uint32_t i = 0; i < 20000; i++)
        put(&e, key_name("k/", i), i, 30);
    assert_int_equal(list(e.shard, range_of("", ""), &l), 20000);
    assert_int_equal(shard_stat(e.shard).keys, 0);
    assert_int_equal(engine_pages_used(&e), 0);
    engine_close(&e);
}

/* ---- sweeps ---- */

static void sweeps_go_in_bounded_steps(void **state)
{
    struct engine e;
    struct pst_range range = range_of("k/", "k0");
    uint8_t buf[PST_SWEEP_BYTES_MAX];
    struct pst_wire_sweep head;
    struct sweep sum;

    (void)state;
    engine_open(&e, &shape);
    for (uint32_t i = 0; i < 10000; i++)
        put(&e, key_name(i % 2 ? "k/" : "z/", i), i, 30);
    pst_shard_sweep(e.shard, &range, false, e.now_ns, buf);
    memcpy(&head, buf, sizeof(head));
    assert_in_range(head.deleted, 1, 2000);
    assert_false(head.done);
    assert_int_equal(head.resume_bytes, 9);
    sum = sweep_all(&e, range, false);
    assert_int_equal(sum.deleted + head.deleted, 5000);
    assert_int_equal(sum.spared, 0);
    assert_in_range(sum.steps, 2, 100);
    assert_int_equal(shard_stat(e.shard).keys, 5000);
    assert_int_equal(count_range(e.shard, "k/", "k0"), 0);
    for (uint32_t i = 0; i < 10000; i += 2)
        assert_value(e.shard, key_name("z/", i), i, 30);
    assert_int_equal(
        sweep_all(
            &e,
            (struct pst_range){.start = bytes_of("z/0000000"), .end = bytes_of("z/0000010"), .after = true},
            false)
            .deleted,
        4);
    assert_int_equal(sweep_all(&e, (struct pst_range){.start = {NULL, 0}}, false).deleted, 4996);
    assert_int_equal(engine_pages_used(&e), 0);
    engine_close(&e);
}

static void pinned_keys_are_spared_until_their_last_pin_goes(void **state)
{
    struct engine e;
    struct sweep sum;

    (void)state;
    engine_open(&e, &shape);
    for (uint32_t i = 0; i < 3000; i++)
        put(&e, key_name("k/", i), i, 30);
    assert_int_equal(pin(&e, "k/0000001", 0), 0);
    assert_int_equal(pin(&e, "k/0000002", 0), 0);
    assert_int_equal(pin(&e, "k/0000002", 0), 0);
    assert_int_equal(pin(&e, "k/0000003", 10000), 0);
    assert_int_equal(pin(&e, "k/0000004", 10000), 0);
    assert_int_equal(pin(&e, "k/0000004", 0), 0);
    sum = sweep_all(&e, range_of("", ""), true);
    assert_int_equal(sum.deleted, 2996);
    assert_int_equal(sum.spared, 4);
    sum = sweep_all(&e, range_of("", ""), true); /* once more changes nothing */
    assert_int_equal(sum.deleted, 0);
    assert_int_equal(sum.spared, 4);
    for (uint32_t i = 1; i <= 4; i++)
        assert_value(e.shard, key_name("k/", i), i, 30);

    assert_int_equal(unpin(&e, "k/0000001"), 0);
    assert_null(find(e.shard, "k/0000001"));
    assert_int_equal(unpin(&e, "k/0000002"), 0);
    assert_non_null(find(e.shard, "k/0000002"));
    assert_int_equal(unpin(&e, "k/0000002"), 0);
    assert_null(find(e.shard, "k/0000002"));
    pst_shard_tick(e.shard, e.now_ns + 9 * SECOND_NS);
    assert_non_null(find(e.shard, "k/0000003"));
    pst_shard_tick(e.shard, e.now_ns + 10 * SECOND_NS);
    assert_null(find(e.shard, "k/0000003"));
    assert_non_null(find(e.shard, "k/0000004"));
    assert_int_equal(unpin(&e, "k/0000004"), 0);
    assert_null(find(e.shard, "k/0000004"));
    assert_int_equal(shard_stat(e.shard).keys, 0);
    assert_int_equal(shard_stat(e.shard).pinned, 0);
    assert_int_equal(engine_pages_used(&e), 0);
    engine_close(&e);
}

/* What was spared is what was there then: a value written later stays, with the pins of its key. */
static void a_later_value_is_not_swept(void **state)
{
    struct engine e;

    (void)state;
    engine_open(&e, &shape);
    put(&e, "k", 1, 30);
    assert_int_equal(pin(&e, "k", 0), 0);
    assert_int_equal(sweep_all(&e, range_of("", ""), true).spared, 1);
    put(&e, "k", 2, 60);
    assert_int_equal(unpin(&e, "k"), 0);
    assert_value(e.shard, "k", 2, 60);
    engine_close(&e);
}

/* Spared with a pin and a reference: its name goes with the pin, its bytes with the later of the two. */
static void spared_keys_wait_for_references(void **state)
{
    struct engine e;

    (void)state;
    engine_open(&e, &shape);
    for (int order = 0; order < 2; order++) {
        struct pst_record *r;

        put(&e, "k", 1, 100000);
        r = find(e.shard, "k");
        assert_int_equal(pin(&e, "k", 0), 0);
        assert_int_equal(pst_shard_ref(e.shard, r), 0);
        assert_int_equal(sweep_all(&e, range_of("", ""), true).spared, 1);
        if (order == 0) {
            assert_int_equal(unpin(&e, "k"), 0);
            assert_null(find(e.shard, "k"));
            assert_record(e.shard, r, 1, 100000);
            pst_shard_unref(e.shard, r);
        } else {
            pst_shard_unref(e.shard, r);
            assert_value(e.shard, "k", 1, 100000);
            assert_int_equal(unpin(&e, "k"), 0);
        }
        assert_null(find(e.shard, "k"));
        assert_int_equal(engine_pages_used(&e), 0);
    }
    engine_close(&e);
}

/* A plain delete by range takes pinned keys as well, and leaves no pin behind. */
static void plain_sweeps_spare_nothing(void **state)
{
    struct engine e;

    (void)state;
    engine_open(&e, &shape);
    put(&e, "k", 1, 30);
    assert_int_equal(pin(&e, "k", 0), 0);
    assert_int_equal(sweep_all(&e, range_of("", ""), true).spared, 1);
    assert_int_equal(sweep_all(&e, range_of("", ""), false).deleted, 1);
    assert_int_equal(shard_stat(e.shard).pinned, 0);
    put(&e, "k", 1, 30);
    assert_int_equal(unpin(&e, "k"), -EINVAL);
    pst_shard_tick(e.shard, e.now_ns + 1000 * SECOND_NS);
    assert_value(e.shard, "k", 1, 30);
    engine_close(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_have_ends),
        cmocka_unit_test(pages_of_any_size_make_the_whole),
        cmocka_unit_test(too_little_room_is_told),
        cmocka_unit_test(keys_are_ordered_as_bytes),
        cmocka_unit_test(listings_are_complete_while_others_write),
        cmocka_unit_test(cursors_survive_deletes),
        cmocka_unit_test(sweeps_go_in_bounded_steps),
        cmocka_unit_test(pinned_keys_are_spared_until_their_last_pin_goes),
        cmocka_unit_test(a_later_value_is_not_swept),
        cmocka_unit_test(spared_keys_wait_for_references),
        cmocka_unit_test(plain_sweeps_spare_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/engine.h"

#include "store/watch.h"

static struct engine e;

static int open_engine(void **state)
{
    const struct engine_shape shape = {.page_bytes = 64 << 10, .pages = 256, .cache_prefix = "cache/"};

    (void)state;
    engine_open(&e, &shape);
    return 0;
}

static int close_engine(void **state)
{
    (void)state;
    e.store = pst_store_close(e.store);
    return 0;
}

static struct pst_lookup key_lookup(const char *key)
{
    return pst_shard_lookup(e.shard, (struct pst_bytes){key, strlen(key)});
}

static uint64_t write_key(const char *key, uint64_t bytes)
{
    const struct pst_put put = {.lookup = key_lookup(key), .value_bytes = bytes, .depth = PST_DEPTH_NONE};
    struct pst_answer answer = {0};

    assert_int_equal(pst_shard_put(e.shard, &put, pattern(1), e.now_ns, &answer), 0);
    return answer.generation;
}

static uint64_t drop(const char *key)
{
    const struct pst_lookup lookup = key_lookup(key);
    struct pst_answer answer = {0};

    assert_int_equal(pst_shard_delete(e.shard, &lookup, false, 0, &answer), 0);
    return answer.generation;
}

static struct pst_bytes text(const char *text)
{
    return (struct pst_bytes){text, strlen(text)};
}

static struct pst_shard_later figures(void)
{
    struct pst_shard_later later;

    pst_shard_stat_later(e.shard, &later);
    return later;
}

/* ---- waits ---- */

static void a_wait_is_ready_with_its_key(void **state)
{
    struct pst_wait a, b, other;
    struct pst_lookup key = key_lookup("key"), else_where = key_lookup("other");

    (void)state;
    pst_shard_wait(e.shard, &key, &a);
    pst_shard_wait(e.shard, &key, &b);
    pst_shard_wait(e.shard, &else_where, &other);
    assert_int_equal(figures().waits, 3);
    write_key("kex", 10);
    assert_false(pst_shard_has_ready(e.shard));
    write_key("key", 10);
    assert_true(pst_shard_has_ready(e.shard));
    assert_ptr_equal(pst_shard_ready(e.shard), &a);
    assert_ptr_equal(pst_shard_ready(e.shard), &b);
    assert_null(pst_shard_ready(e.shard));
    write_key("key", 20);
    assert_null(pst_shard_ready(e.shard));
    pst_shard_unwait(e.shard, &a); /* harmless: it has been taken */
    pst_shard_unwait(e.shard, &other);
    assert_int_equal(figures().waits, 0);
    write_key("other", 1);
    assert_false(pst_shard_has_ready(e.shard));
}

static void a_wait_ends_in_every_state(void **state)
{
    struct pst_wait wait;
    struct pst_lookup key = key_lookup("key");

    (void)state;
    pst_shard_wait(e.shard, &key, &wait);
    pst_shard_unwait(e.shard, &wait);
    write_key("key", 1);
    assert_null(pst_shard_ready(e.shard));
    drop("key");
    pst_shard_wait(e.shard, &key, &wait);
    write_key("key", 1);
    pst_shard_unwait(e.shard, &wait); /* ready, not taken */
    assert_false(pst_shard_has_ready(e.shard));
    assert_null(pst_shard_ready(e.shard));
}

static void many_waits_find_their_keys(void **state)
{
    enum { MANY = 2000 };
    static struct pst_wait waits[MANY];
    static char keys[MANY][16];

    (void)state;
    for (int i = 0; i < MANY; i++) {
        struct pst_lookup key;

        snprintf(keys[i], sizeof(keys[i]), "many/%d", i);
        key = key_lookup(keys[i]);
        pst_shard_wait(e.shard, &key, &waits[i]);
    }
    for (int i = 0; i < MANY; i++) {
        write_key(keys[(i * 7) % MANY], 1);
        assert_ptr_equal(pst_shard_ready(e.shard), &waits[(i * 7) % MANY]);
        assert_null(pst_shard_ready(e.shard));
    }
    assert_int_equal(figures().waits, 0);
}

/* ---- watches ---- */

/* Reads one change with its key. Return: false when there is none. */
static bool next_change(struct pst_watch *watch, struct pst_wire_change *change, char key[64])
{
    uint8_t buf[sizeof(*change) + 63];
    int64_t bytes = pst_watch_read(watch, buf, sizeof(*change));

    if (bytes == -ENOBUFS) { /* a change with a key: read it alone */
        size_t room = sizeof(*change);

        while (bytes == -ENOBUFS && room < sizeof(buf))
            bytes = pst_watch_read(watch, buf, ++room);
    }
    assert_true(bytes >= 0);
    if (bytes == 0)
        return false;
    memcpy(change, buf, sizeof(*change));
    assert_int_equal(bytes, sizeof(*change) + change->key_bytes);
    memcpy(key, buf + sizeof(*change), change->key_bytes);
    key[change->key_bytes] = '\0';
    return true;
}

static void expect_change(struct pst_watch *watch, enum pst_wire_what what, const char *key, uint64_t bytes,
                          uint64_t generation)
{
    struct pst_wire_change change;
    char got[64];

    assert_true(next_change(watch, &change, got));
    assert_int_equal(change.what, what);
    assert_string_equal(got, key);
    assert_int_equal(change.value_bytes, bytes);
    assert_int_equal(change.generation, generation);
}

static void a_watch_tells_of_its_prefix(void **state)
{
    struct pst_wire_change change;
    struct pst_watch *watch, *all;
    uint64_t first, second, other;
    char key[64];

    (void)state;
    write_key("a/before", 1);
    assert_int_equal(pst_watch_open(e.shard, text("a/"), false, &watch), 0);
    assert_int_equal(pst_watch_open(e.shard, text(""), false, &all), 0);
    assert_int_equal(figures().watches, 2);
    first = write_key("a/x", 10);
    other = write_key("b", 5);
    write_key("a", 6);
    second = write_key("a/x", 20000);
    drop("a/x");
    expect_change(watch, PST_WIRE_CHANGE_PUT, "a/x", 10, first);
    expect_change(watch, PST_WIRE_CHANGE_PUT, "a/x", 20000, second);
    expect_change(watch, PST_WIRE_CHANGE_DELETED, "a/x", 20000, second);
    assert_false(next_change(watch, &change, key));
    assert_false(pst_watch_pending(watch));
    expect_change(all, PST_WIRE_CHANGE_PUT, "a/x", 10, first);
    expect_change(all, PST_WIRE_CHANGE_PUT, "b", 5, other);
    assert_true(pst_watch_pending(all));
    assert_null(pst_watch_close(watch));
    assert_null(pst_watch_close(all));
    assert_int_equal(figures().watches, 0);
}

static void evictions_are_told_as_such(void **state)
{
    struct pst_watch *watch;
    struct pst_wire_change change;
    char key[64];
    uint64_t evicted = 0;

    (void)state;
    assert_int_equal(pst_watch_open(e.shard, text("cache/"), false, &watch), 0);
    for (int i = 0; i < 600; i++) {
        snprintf(key, sizeof(key), "cache/%d", i);
        write_key(key, 50000);
        while (next_change(watch, &change, key))
            evicted += change.what == PST_WIRE_CHANGE_EVICTED;
    }
    assert_true(evicted > 0);
    assert_int_equal(evicted, e.shard->stat.evictions);
    pst_watch_close(watch);
}

static void what_does_not_fit_is_counted(void **state)
{
    enum { MANY = 5000 };
    struct pst_wire_change change;
    struct pst_watch *watch;
    uint64_t generations[MANY], told = 0;
    char key[64];

    (void)state;
    assert_int_equal(pst_watch_open(e.shard, text("k"), false, &watch), 0);
    for (int i = 0; i < MANY; i++) {
        snprintf(key, sizeof(key), "k%d", i % 100);
        generations[i] = write_key(key, 1);
    }
    assert_true(next_change(watch, &change, key));
    assert_int_equal(change.what, PST_WIRE_CHANGE_MISSED);
    assert_int_equal(change.key_bytes, 0);
    assert_true(change.value_bytes > 0 && change.value_bytes < MANY);
    told = change.value_bytes;
    for (; next_change(watch, &change, key); told++) { /* the rest are the last ones, in order */
        assert_int_equal(change.what, PST_WIRE_CHANGE_PUT);
        assert_int_equal(change.generation, generations[told]);
    }
    assert_int_equal(told, MANY);
    pst_watch_close(watch);
}

/* Keys of every length around the ring's end. */
static void long_keys_wrap_around(void **state)
{
    static char key[PST_KEY_BYTES_MAX + 1], got[sizeof(struct pst_wire_change) + PST_KEY_BYTES_MAX];
    struct pst_watch *watch;

    (void)state;
    memset(key, 'k', sizeof(key));
    assert_int_equal(pst_watch_open(e.shard, text("k"), false, &watch), 0);
    for (size_t len = 2; len <= PST_KEY_BYTES_MAX; len += 61) {
        const struct pst_put change_it = {.lookup = pst_shard_lookup(e.shard, (struct pst_bytes){key, len}),
                                          .depth = PST_DEPTH_NONE};
        struct pst_wire_change change;
        struct pst_answer answer;

        key[len - 1] = (char)('a' + len % 26);
        assert_int_equal(pst_shard_put(e.shard, &change_it, "", e.now_ns, &answer), 0);
        assert_int_equal(pst_watch_read(watch, got, 10), -ENOBUFS);
        assert_int_equal(pst_watch_read(watch, got, sizeof(change) + len - 1), -ENOBUFS);
        assert_int_equal(pst_watch_read(watch, got, sizeof(got)), sizeof(change) + len);
        memcpy(&change, got, sizeof(change));
        assert_int_equal(change.key_bytes, len);
        assert_int_equal(change.generation, answer.generation);
        key[len - 1] = 'k';
    }
    pst_watch_close(watch);
}

static void a_wait_for_a_watch(void **state)
{
    struct pst_watch *watch;
    struct pst_wait wait;
    uint8_t buf[256];

    (void)state;
    assert_int_equal(pst_watch_open(e.shard, text("w"), false, &watch), 0);
    pst_watch_wait(watch, &wait);
    assert_false(pst_watch_free(watch));
    write_key("v", 1);
    assert_false(pst_shard_has_ready(e.shard));
    write_key("w", 1);
    write_key("w2", 1);
    assert_ptr_equal(pst_shard_ready(e.shard), &wait);
    assert_null(pst_shard_ready(e.shard));
    assert_true(pst_watch_free(watch));
    pst_watch_wait(watch, &wait); /* there is something to tell: ready at once */
    assert_ptr_equal(pst_shard_ready(e.shard), &wait);
    assert_true(pst_watch_read(watch, buf, sizeof(buf)) > 0);
    pst_watch_wait(watch, &wait);
    pst_shard_unwait(e.shard, &wait);
    write_key("w", 2);
    assert_null(pst_shard_ready(e.shard));
    assert_true(pst_watch_read(watch, buf, sizeof(buf)) > 0);
    pst_watch_wait(watch, &wait);
    pst_watch_close(watch); /* which says so to who waits */
    assert_ptr_equal(pst_shard_ready(e.shard), &wait);
    assert_int_equal(figures().watches, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_wait_is_ready_with_its_key, open_engine, close_engine),
        cmocka_unit_test_setup_teardown(a_wait_ends_in_every_state, open_engine, close_engine),
        cmocka_unit_test_setup_teardown(many_waits_find_their_keys, open_engine, close_engine),
        cmocka_unit_test_setup_teardown(a_watch_tells_of_its_prefix, open_engine, close_engine),
        cmocka_unit_test_setup_teardown(evictions_are_told_as_such, open_engine, close_engine),
        cmocka_unit_test_setup_teardown(what_does_not_fit_is_counted, open_engine, close_engine),
        cmocka_unit_test_setup_teardown(long_keys_wrap_around, open_engine, close_engine),
        cmocka_unit_test_setup_teardown(a_wait_for_a_watch, open_engine, close_engine),
    };

    return cmocka_run_group_tests_name("watch", tests, NULL, NULL);
}

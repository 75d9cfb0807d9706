/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/engine.h"

static const struct engine_shape plain = {.page_bytes = 64 << 10, .pages = 64, .arena_pages = 16};

static int put_if(struct pst_shard *shard, const char *key, uint32_t seed, uint64_t bytes, uint8_t flags,
                  uint64_t generation, struct pst_answer *answer)
{
    struct pst_put put = put_of(shard, key, bytes);

    put.flags = flags;
    put.if_generation = generation;
    *answer = (struct pst_answer){0};
    return pst_shard_put(shard, &put, pattern(seed), pst_now_ns(), answer);
}

static int delete_if(struct pst_shard *shard, const char *key, uint64_t generation, struct pst_answer *answer)
{
    struct pst_lookup lookup = lookup_of(shard, key);

    return pst_shard_delete(shard, &lookup, true, generation, answer);
}

/* ---- conditions ---- */

static void first_writer_wins(void **state)
{
    struct engine e;
    struct pst_answer first, second, third;

    (void)state;
    engine_open(&e, &plain);
    assert_int_equal(put_if(e.shard, "k", 1, 5000, PST_PUT_IF_ABSENT, 0, &first), PST_OK);
    assert_int_equal(first.value_bytes, 5000);
    assert_int_equal(put_if(e.shard, "k", 2, 70000, PST_PUT_IF_ABSENT, 0, &second), PST_EXISTS);
    assert_int_equal(second.generation, first.generation);
    assert_int_equal(second.value_bytes, 5000);
    assert_value(e.shard, "k", 1, 5000);
    assert_int_equal(delete_key(e.shard, "k"), PST_OK);
    assert_int_equal(put_if(e.shard, "k", 3, 10, PST_PUT_IF_ABSENT, 0, &third), PST_OK);
    assert_true(third.generation > first.generation);
    engine_close(&e);
}

static void puts_name_a_generation(void **state)
{
    struct engine e;
    struct pst_answer first, next, answer;

    (void)state;
    engine_open(&e, &plain);
    assert_int_equal(put_if(e.shard, "k", 1, 10, PST_PUT_IF_GENERATION, 77, &answer), PST_STALE);
    assert_int_equal(answer.generation, 0);
    assert_null(find(e.shard, "k"));
    assert_int_equal(put_if(e.shard, "k", 1, 10, PST_PUT_IF_GENERATION, 0, &first), PST_OK); /* 0: absent */
    assert_int_equal(put_if(e.shard, "k", 2, 20, PST_PUT_IF_GENERATION, 0, &answer), PST_STALE);
    assert_int_equal(answer.generation, first.generation);
    assert_int_equal(answer.value_bytes, 10);
    assert_int_equal(put_if(e.shard, "k", 2, 20, PST_PUT_IF_GENERATION, first.generation, &next), PST_OK);
    assert_int_equal(put_if(e.shard, "k", 3, 30, PST_PUT_IF_GENERATION, first.generation, &answer),
                     PST_STALE);
    assert_int_equal(answer.generation, next.generation);
    assert_int_equal(answer.value_bytes, 20);
    assert_value(e.shard, "k", 2, 20);
    engine_close(&e);
}

static int put_copy(struct pst_shard *shard, uint32_t seed, uint64_t generation)
{
    struct pst_put put = put_of(shard, "k", 5000);
    struct pst_answer answer;

    put.generation = generation;
    return pst_shard_put(shard, &put, pattern(seed), pst_now_ns(), &answer);
}

static void copies_keep_their_generation(void **state)
{
    struct engine e;
    struct pst_answer own;
    struct pst_lookup lookup;
    uint64_t later;

    (void)state;
    engine_open(&e, &plain);
    assert_int_equal(put_if(e.shard, "k", 1, 10, 0, 0, &own), PST_OK);
    later = own.generation + (1ull << 40);
    assert_int_equal(put_copy(e.shard, 2, later), PST_OK);
    assert_int_equal(find(e.shard, "k")->generation, later);
    assert_int_equal(put_copy(e.shard, 3, later), PST_EXISTS);
    assert_int_equal(put_copy(e.shard, 3, later - 1), PST_EXISTS);
    assert_value(e.shard, "k", 2, 5000);
    assert_int_equal(put_if(e.shard, "k", 4, 10, 0, 0, &own), PST_OK);
    assert_true(own.generation > later);
    lookup = lookup_of(e.shard, "k");
    assert_int_equal(pst_shard_delete_replica(e.shard, &lookup, own.generation - 1), PST_MISS);
    assert_int_equal(pst_shard_delete_replica(e.shard, &lookup, own.generation + (1ull << 40)), PST_OK);
    assert_null(find(e.shard, "k"));
    later = own.generation + (1ull << 40);
    assert_int_equal(put_if(e.shard, "k", 5, 10, 0, 0, &own), PST_OK);
    assert_true(own.generation > later);
    engine_close(&e);
}

static void deletes_name_a_generation(void **state)
{
    struct engine e;
    struct pst_answer first, answer;

    (void)state;
    engine_open(&e, &plain);
    assert_int_equal(delete_if(e.shard, "k", 0, &answer), PST_MISS);
    assert_int_equal(delete_if(e.shard, "k", 5, &answer), PST_MISS);
    assert_int_equal(put_if(e.shard, "k", 1, 10, 0, 0, &first), PST_OK);
    assert_int_equal(delete_if(e.shard, "k", first.generation + 256, &answer), PST_STALE);
    assert_int_equal(delete_if(e.shard, "k", 0, &answer), PST_STALE);
    assert_int_equal(answer.generation, first.generation);
    assert_value(e.shard, "k", 1, 10);
    assert_int_equal(delete_if(e.shard, "k", first.generation, &answer), PST_OK);
    assert_int_equal(answer.generation, first.generation);
    assert_int_equal(answer.value_bytes, 10);
    assert_null(find(e.shard, "k"));
    assert_int_equal(shard_stat(e.shard).deletes, 1);
    engine_close(&e);
}

/* ---- generations ---- */

static void generations_never_repeat(void **state)
{
    enum { SHARDS = 5 };
    struct engine_shape shape = plain;
    uint64_t last = 0, low[SHARDS];
    struct pst_answer answer;
    struct engine e;

    (void)state;
    shape.shards = SHARDS;
    for (int opened = 0; opened < 3; opened++) {
        engine_open(&e, &shape);
        for (uint32_t s = 0; s < SHARDS; s++)
            low[s] = last;
        for (uint32_t i = 0; i < 2000; i++) {
            struct pst_shard *shard = pst_store_shard(e.store, i % SHARDS);

            assert_int_equal(put_if(shard, "k", 1, 10, 0, 0, &answer), PST_OK);
            assert_true(answer.generation > low[i % SHARDS]);
            assert_int_equal(answer.generation & 0xff, i % SHARDS);
            assert_int_equal(find(shard, "k")->generation, answer.generation);
            low[i % SHARDS] = answer.generation;
            last = pst_max(last, answer.generation);
            if (i / SHARDS % 3 == 0)
                assert_int_equal(delete_key(shard, "k"), PST_OK);
        }
        engine_close(&e);
    }
}

/* ---- bounds ---- */

static void keys_have_bounds(void **state)
{
    static char long_key[PST_KEY_BYTES_MAX + 2];
    struct engine_shape shape = plain;
    struct engine e;

    (void)state;
    shape.pages = 512;
    memset(long_key, 'k', sizeof(long_key));
    engine_open(&e, &shape);
    for (size_t len = 0; len < sizeof(long_key); len++) {
        struct pst_put put = {.value_bytes = len % 77, .depth = PST_DEPTH_NONE};
        struct pst_answer answer;
        int want = len == 0 ? -EINVAL : len > PST_KEY_BYTES_MAX ? -ENAMETOOLONG : 0;

        put.lookup = pst_shard_lookup(e.shard, (struct pst_bytes){long_key, len});
        assert_int_equal(pst_shard_put(e.shard, &put, pattern((uint32_t)len), e.now_ns, &answer), want);
    }
    for (size_t len = 1; len <= PST_KEY_BYTES_MAX; len++) {
        struct pst_lookup lookup = pst_shard_lookup(e.shard, (struct pst_bytes){long_key, len});
        const struct pst_record *r = pst_shard_find(e.shard, &lookup);

        assert_record(e.shard, r, (uint32_t)len, len % 77);
        assert_int_equal(r->key_bytes, len);
    }
    assert_int_equal(shard_stat(e.shard).keys, PST_KEY_BYTES_MAX);
    engine_close(&e);
}

/* Every byte is allowed in a key, and a key is not its prefix. */
static void keys_are_bytes(void **state)
{
    static const uint8_t keys[][3] = {{0, 0, 0}, {0, 0, 1}, {0xff, 0, 0}, {'a', 0, 'b'}};
    struct engine e;

    (void)state;
    engine_open(&e, &plain);
    for (uint32_t i = 0; i < 4 * 3; i++) {
        struct pst_bytes key = {keys[i / 3], 1 + i % 3};
        struct pst_put put = {
            .lookup = pst_shard_lookup(e.shard, key), .value_bytes = 8, .flags = PST_PUT_IF_ABSENT};
        struct pst_answer answer;
        bool again = i == 3 || i == 4; /* the first bytes of {0, 0, 1} are those of {0, 0, 0} */

        assert_int_equal(pst_shard_put(e.shard, &put, pattern(i), e.now_ns, &answer),
                         again ? PST_EXISTS : PST_OK);
    }
    assert_int_equal(shard_stat(e.shard).keys, 10);
    engine_close(&e);
}

static void attributes_are_kept(void **state)
{
    struct engine e;

    (void)state;
    engine_open(&e, &plain);
    for (uint32_t len = 0; len <= PST_ATTR_BYTES_MAX + 1; len++) {
        struct pst_put put = put_of(e.shard, key_name("k", len), len % 2 ? 3000 : 30);
        struct pst_answer answer;

        put.attrs = (struct pst_bytes){pattern(len + 1000), len};
        put.depth = (uint16_t)len;
        put.flags = PST_PUT_CHECKSUM;
        put.value_crc = ~len;
        assert_int_equal(pst_shard_put(e.shard, &put, pattern(len), e.now_ns, &answer),
                         len > PST_ATTR_BYTES_MAX ? -EINVAL : 0);
    }
    for (uint32_t len = 0; len <= PST_ATTR_BYTES_MAX; len++) {
        const struct pst_record *r = find(e.shard, key_name("k", len));

        assert_record(e.shard, r, len, len % 2 ? 3000 : 30);
        assert_int_equal(pst_record_attrs(r).len, len);
        assert_memory_equal(pst_record_attrs(r).data, pattern(len + 1000), len);
        assert_int_equal(r->depth, len);
        assert_int_equal(r->value_crc, ~len);
        assert_true(r->flags & PST_RECORD_CHECKSUM);
    }
    engine_close(&e);
}

static void too_large_is_told_apart_from_full(void **state)
{
    const uint64_t store_bytes = plain.page_bytes * plain.pages;
    struct pst_pending pending;
    struct pst_answer answer;
    struct pst_put large;
    struct engine e;

    (void)state;
    engine_open(&e, &plain);
    put(&e, "k", 1, 100);
    assert_int_equal(pst_store_value_bytes_max(e.store), store_bytes);
    large = put_of(e.shard, "large", store_bytes + 1);
    assert_int_equal(pst_shard_reserve(e.shard, &large, e.now_ns, &pending, &answer), -EFBIG);
    large.value_bytes = UINT64_MAX;
    assert_int_equal(pst_shard_reserve(e.shard, &large, e.now_ns, &pending, &answer), -EFBIG);
    large.value_bytes = store_bytes;
    assert_int_equal(pst_shard_reserve(e.shard, &large, e.now_ns, &pending, &answer), -ENOSPC);
    assert_int_equal(engine_pages_used(&e), 1);
    assert_value(e.shard, "k", 1, 100);
    engine_close(&e);
}

/* Sizes from small to several pages, by number. */
static uint64_t mixed_size(uint32_t i)
{
    static const uint64_t sizes[] = {0, 10, 300, 2048, 2049, 9000, 32768, 32769, 65536, 70000, 229376};

    return sizes[i % pst_count_of(sizes)];
}

static void full_store_loses_nothing(void **state)
{
    struct engine e;
    uint32_t count = 0;

    (void)state;
    engine_open(&e, &plain);
    while (try_put(e.shard, key_name("k", count), count, mixed_size(count), e.now_ns) == 0)
        count++;
    assert_in_range(count, 60, 200);
    for (uint32_t i = 0; i < 50; i++) { /* new keys, and old ones again */
        assert_int_equal(try_put(e.shard, "new", 1, 300000, e.now_ns), -ENOSPC);
        assert_int_equal(try_put(e.shard, key_name("k", i), 1, 1 << 20, e.now_ns), -ENOSPC);
    }
    assert_int_equal(shard_stat(e.shard).no_space, 101);
    for (uint32_t i = 0; i < count; i++)
        assert_value(e.shard, key_name("k", i), i, mixed_size(i));
    assert_int_equal(shard_stat(e.shard).keys, count);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(delete_key(e.shard, key_name("k", i)), PST_OK);
    assert_int_equal(engine_pages_used(&e), 0);
    engine_close(&e);
}

/* ---- reservations ---- */

static void reservations_are_invisible(void **state)
{
    struct engine e;
    struct pst_pending pending;
    struct pst_answer answer;
    struct pst_put put;

    (void)state;
    engine_open(&e, &plain);
    for (uint32_t i = 0; i < 11; i++) {
        put = put_of(e.shard, "k", mixed_size(i));
        assert_int_equal(pst_shard_reserve(e.shard, &put, e.now_ns, &pending, &answer), 0);
        assert_null(find(e.shard, "k"));
        assert_int_equal(shard_stat(e.shard).keys, 0);
        assert_int_equal(shard_stat(e.shard).value_bytes, 0);
        assert_in_range(engine_pages_used(&e), 1, 6);
        pst_shard_abort(e.shard, &pending);
        assert_null(pending.record);
        pst_shard_abort(e.shard, &pending); /* twice is harmless */
        assert_int_equal(engine_pages_used(&e), 0);
    }
    engine_close(&e);
}

/* Two writers of one key: both reserve, the first to commit wins, or is overwritten, as their conditions say.
 */
static void commits_check_again(void **state)
{
    static const uint8_t flags[] = {PST_PUT_IF_ABSENT, PST_PUT_IF_GENERATION, 0};
    static const int outcomes[] = {PST_EXISTS, PST_STALE, PST_OK};
    struct engine e;

    (void)state;
    engine_open(&e, &plain);
    for (uint32_t i = 0; i < 3 * 11; i++) {
        struct pst_put put = put_of(e.shard, "k", mixed_size(i));
        struct pst_pending slow;
        struct pst_answer answer = {0};
        uint64_t generation;

        put.flags = flags[i % 3];
        assert_int_equal(pst_shard_reserve(e.shard, &put, e.now_ns, &slow, &answer), 0);
        for (uint64_t at = 0; at < put.value_bytes;) {
            struct iovec piece;

            pst_record_piece(e.shard, slow.record, at, put.value_bytes - at, &piece);
            memcpy(piece.iov_base, pattern(500) + at, piece.iov_len);
            at += piece.iov_len;
        }
        assert_int_equal(put_if(e.shard, "k", i, 100, put.flags, 0, &answer), PST_OK);
        generation = answer.generation;
        assert_int_equal(pst_shard_commit(e.shard, &put, &slow, e.now_ns, &answer), outcomes[i % 3]);
        assert_null(slow.record);
        if (outcomes[i % 3] == PST_OK) {
            assert_true(answer.generation > generation);
            assert_value(e.shard, "k", 500, put.value_bytes);
        } else {
            assert_int_equal(answer.generation, generation);
            assert_int_equal(answer.value_bytes, 100);
            assert_value(e.shard, "k", i, 100);
        }
        assert_int_equal(delete_key(e.shard, "k"), PST_OK);
        assert_int_equal(engine_pages_used(&e), 0);
    }
    engine_close(&e);
}

/* The generation that a reservation saw may be gone when it commits. */
static void commits_see_deletes(void **state)
{
    struct engine e;
    struct pst_pending pending;
    struct pst_answer answer;
    struct pst_put put;

    (void)state;
    engine_open(&e, &plain);
    assert_int_equal(put_if(e.shard, "k", 1, 10, 0, 0, &answer), PST_OK);
    put = put_of(e.shard, "k", 3000);
    put.flags = PST_PUT_IF_GENERATION;
    put.if_generation = answer.generation;
    assert_int_equal(pst_shard_reserve(e.shard, &put, e.now_ns, &pending, &answer), 0);
    assert_int_equal(delete_key(e.shard, "k"), PST_OK);
    assert_int_equal(pst_shard_commit(e.shard, &put, &pending, e.now_ns, &answer), PST_STALE);
    assert_int_equal(answer.generation, 0);
    assert_null(find(e.shard, "k"));
    assert_int_equal(engine_pages_used(&e), 0);
    engine_close(&e);
}

/* ---- references ---- */

static void overwrite(struct engine *e)
{
    put(e, "k", 999, 77);
}

static void delete_it(struct engine *e)
{
    assert_int_equal(delete_key(e->shard, "k"), PST_OK);
}

static void clear(struct engine *e)
{
    assert_int_equal(sweep_all(e, range_of("k", "l"), false).deleted, 1);
}

static void clear_sparing(struct engine *e)
{
    assert_int_equal(sweep_all(e, range_of("k", "l"), true).deleted, 1);
}

static void references_keep_bytes(void **state)
{
    static void (*const ways[])(struct engine *) = {overwrite, delete_it, clear, clear_sparing};
    struct engine_shape shape = plain;
    struct engine e;

    (void)state;
    shape.pages = 128;
    engine_open(&e, &shape);
    for (uint32_t i = 0; i < 4 * 11; i++) {
        struct pst_record *r;

        put(&e, "k", i, mixed_size(i));
        r = find(e.shard, "k");
        assert_int_equal(pst_shard_ref(e.shard, r), 0);
        assert_int_equal(pst_shard_ref(e.shard, r), 0);
        ways[i % 4](&e);
        assert_int_equal(shard_stat(e.shard).keys, i % 4 == 0);
        assert_int_equal(shard_stat(e.shard).pinned, 1);
        for (uint32_t k = 0; k < 20; k++) /* others come and find no room in it */
            put(&e, key_name("other", k), k, mixed_size(i));
        assert_record(e.shard, r, i, mixed_size(i));
        pst_shard_unref(e.shard, r);
        assert_record(e.shard, r, i, mixed_size(i));
        assert_int_equal(sweep_all(&e, range_of("", ""), false).deleted, 20 + (i % 4 == 0));
        assert_record(e.shard, r, i, mixed_size(i));
        assert_in_range(engine_pages_used(&e), 1, 6);
        pst_shard_unref(e.shard, r);
        assert_int_equal(engine_pages_used(&e), 0);
        assert_int_equal(shard_stat(e.shard).pinned, 0);
    }
    engine_close(&e);
}

/* A reference that ends while the key is still there changes nothing else. */
static void references_come_and_go(void **state)
{
    struct engine e;
    struct pst_record *r;

    (void)state;
    engine_open(&e, &plain);
    put(&e, "k", 1, 100000);
    r = find(e.shard, "k");
    for (int i = 0; i < 1000; i++)
        assert_int_equal(pst_shard_ref(e.shard, r), 0);
    for (int i = 0; i < 1000; i++)
        pst_shard_unref(e.shard, r);
    assert_value(e.shard, "k", 1, 100000);
    assert_int_equal(shard_stat(e.shard).pinned, 0);
    engine_close(&e);
}

/* What a prefetch saw does not outlive a change of the shard. */
static void prefetched_lookups_see_changes(void **state)
{
    struct engine e;
    struct pst_lookup lookup;

    (void)state;
    engine_open(&e, &plain);
    put(&e, "k", 1, 100);
    lookup = lookup_of(e.shard, "k");
    for (uint32_t i = 0; i < 4; i++) {
        pst_shard_prefetch(e.shard, &lookup);
        pst_shard_prefetch_record(e.shard, &lookup);
        assert_non_null(pst_shard_find(e.shard, &lookup));
        if (i == 2)
            assert_int_equal(delete_key(e.shard, "k"), PST_OK);
        put(&e, i == 2 ? "other" : "k", i, 100);
        if (i == 2)
            assert_null(pst_shard_find(e.shard, &lookup));
        else
            assert_record(e.shard, pst_shard_find(e.shard, &lookup), i, 100);
        put(&e, "k", i, 100);
    }
    engine_close(&e);
}

/* ---- the store ---- */

static void stores_refuse_bad_options(void **state)
{
    const char *prefixes[PST_CLASSES_MAX + 1];
    struct pst_store_options good = {.arenas = {.bytes = 1 << 20, .page_bytes = 64 << 10},
                                     .shard_count = 1,
                                     .watermark_percent = 90,
                                     .cache_prefixes = prefixes},
                             bad = good;
    struct pst_store *store = NULL;
    const char *fault = NULL;

    (void)state;
    for (size_t i = 0; i < pst_count_of(prefixes); i++)
        prefixes[i] = "p";
    bad.shard_count = 0;
    assert_int_equal(pst_store_open(&bad, &store, &fault), -EINVAL);
    bad.shard_count = PST_SHARDS_MAX + 1;
    assert_int_equal(pst_store_open(&bad, &store, &fault), -EINVAL);
    bad = good;
    bad.cache_prefix_count = PST_CLASSES_MAX + 1;
    assert_int_equal(pst_store_open(&bad, &store, &fault), -EINVAL);
    bad = good;
    bad.watermark_percent = 101;
    assert_int_equal(pst_store_open(&bad, &store, &fault), -EINVAL);
    bad = good;
    bad.arenas.page_bytes = 1000;
    assert_int_equal(pst_store_open(&bad, &store, &fault), -EINVAL);
    assert_non_null(fault);
    assert_null(store);
    good.cache_prefix_count = PST_CLASSES_MAX;
    good.shard_count = 16;
    assert_int_equal(pst_store_open(&good, &store, &fault), 0);
    assert_int_equal(pst_store_shard_count(store), 16);
    assert_null(pst_store_close(store));
    assert_null(pst_store_close(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_writer_wins),
        cmocka_unit_test(puts_name_a_generation),
        cmocka_unit_test(deletes_name_a_generation),
        cmocka_unit_test(generations_never_repeat),
        cmocka_unit_test(keys_have_bounds),
        cmocka_unit_test(keys_are_bytes),
        cmocka_unit_test(attributes_are_kept),
        cmocka_unit_test(too_large_is_told_apart_from_full),
        cmocka_unit_test(full_store_loses_nothing),
        cmocka_unit_test(reservations_are_invisible),
        cmocka_unit_test(commits_check_again),
        cmocka_unit_test(commits_see_deletes),
        cmocka_unit_test(references_keep_bytes),
        cmocka_unit_test(references_come_and_go),
        cmocka_unit_test(copies_keep_their_generation),
        cmocka_unit_test(prefetched_lookups_see_changes),
        cmocka_unit_test(stores_refuse_bad_options),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

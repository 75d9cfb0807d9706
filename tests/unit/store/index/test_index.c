/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/cm.h"

/* The index itself is compiled in here, so that its allocations can be made to fail one after the other. */
#include "base/base.h"
#include "base/hash.h"

static int64_t takes_left = INT64_MAX; /* allocations until they fail */

static void *short_aligned_alloc(size_t align, size_t bytes)
{
    return takes_left-- > 0 ? aligned_alloc(align, bytes) : NULL;
}

static void *short_malloc(size_t bytes)
{
    return takes_left-- > 0 ? malloc(bytes) : NULL;
}

static void *short_realloc(void *p, size_t bytes)
{
    return takes_left-- > 0 ? realloc(p, bytes) : NULL;
}

#define aligned_alloc short_aligned_alloc
#define malloc        short_malloc
#define realloc       short_realloc
#include "store/index/index.c"
#undef aligned_alloc
#undef malloc
#undef realloc

/* ---- keys that are numbers; key k has the references k + 1 and k + 1 + KEYS_MAX ---- */

enum { KEYS_MAX = 1 << 21 };

static uint64_t (*hash_of_key)(uint64_t key);

static uint64_t hash_of_ref(void *ctx, uint64_t ref)
{
    assert_ptr_equal(ctx, &hash_of_key);
    return hash_of_key((ref - 1) % KEYS_MAX);
}

static uint64_t hash_uniform(uint64_t key)
{
    return pst_hash64(&key, sizeof(key), 7);
}

/* Four tags for all keys. */
static uint64_t hash_few_tags(uint64_t key)
{
    return hash_uniform(key) & ~(uint64_t)0xfffffc;
}

static uint64_t hash_tag_zero(uint64_t key)
{
    return hash_uniform(key) & ~(uint64_t)0xffffff;
}

/* The first 100 keys have one hash. */
static uint64_t hash_clump(uint64_t key)
{
    return hash_uniform(key < 100 ? 0 : key);
}

/* One pair of buckets for all keys. */
static uint64_t hash_top_only(uint64_t key)
{
    return hash_uniform(key) << 40;
}

static struct pst_index *open_with(uint64_t (*hash)(uint64_t key))
{
    struct pst_index *index = NULL;

    hash_of_key = hash;
    takes_left = INT64_MAX;
    assert_int_equal(pst_index_open(hash_of_ref, &hash_of_key, &index), 0);
    return index;
}

static uint64_t random_next(void)
{
    static uint64_t x = 0x9e3779b97f4a7c15;

    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return x;
}

static bool has(const struct pst_index *index, uint64_t key, uint64_t ref)
{
    uint64_t refs[PST_INDEX_CANDIDATES_MAX];
    int count = pst_index_candidates(index, hash_of_key(key), refs);
    int seen = 0;

    assert_in_range(count, 0, PST_INDEX_CANDIDATES_MAX);
    for (int i = 0; i < count; i++)
        seen += refs[i] == ref;
    assert_in_range(seen, 0, 1);
    return seen == 1;
}

static void fill(struct pst_index *index, uint64_t from, uint64_t to)
{
    for (uint64_t key = from; key < to; key++)
        if (pst_index_insert(index, hash_of_key(key), key + 1) != 0)
            fail_msg("insert %lu", (unsigned long)key);
}

static void expect_all(const struct pst_index *index, uint64_t from, uint64_t to)
{
    for (uint64_t key = from; key < to; key++)
        if (!has(index, key, key + 1))
            fail_msg("lost %lu", (unsigned long)key);
}

/* ---- model ---- */

struct model {
    struct pst_index *index;
    uint64_t *refs; /* of each key, 0: absent */
    uint64_t count;
};

static void model_step(struct model *m, uint64_t key, bool grow)
{
    uint64_t hash = hash_of_key(key), *ref = &m->refs[key], fresh = key + 1 + (random_next() & 1) * KEYS_MAX;

    if (*ref == 0) {
        assert_int_equal(pst_index_remove(m->index, hash, fresh), -ENOENT);
        assert_int_equal(pst_index_replace(m->index, hash, fresh, 1), -ENOENT);
    } else {
        assert_true(has(m->index, key, *ref));
    }
    if (*ref == 0 && grow) {
        assert_int_equal(pst_index_insert(m->index, hash, fresh), 0);
        m->count++;
        *ref = fresh;
    } else if (*ref != 0 && random_next() % 4 == 0) {
        assert_int_equal(pst_index_replace(m->index, hash, *ref, fresh), 0);
        *ref = fresh;
    } else if (*ref != 0 && !grow) {
        assert_int_equal(pst_index_remove(m->index, hash, *ref), 0);
        m->count--;
        *ref = 0;
    }
    assert_int_equal(pst_index_count(m->index), m->count);
}

static void model_run(uint64_t (*hash)(uint64_t key), uint64_t keys, uint64_t steps)
{
    struct model m = {.index = open_with(hash), .refs = calloc(keys, sizeof(uint64_t))};

    assert_non_null(m.refs);
    for (uint64_t i = 0; i < steps; i++) /* grows to most of the keys, shrinks, grows again */
        model_step(&m, random_next() % keys, random_next() % 16 < (i * 3 / steps == 1 ? 3 : 13));
    for (uint64_t key = 0; key < keys; key++) {
        assert_int_equal(has(m.index, key, key + 1), m.refs[key] == key + 1);
        assert_int_equal(has(m.index, key, key + 1 + KEYS_MAX), m.refs[key] == key + 1 + KEYS_MAX);
    }
    free(m.refs);
    pst_index_close(m.index);
}

static void agrees_with_a_table(void **state)
{
    (void)state;
    model_run(hash_uniform, 40000, 400000);
}

static void agrees_with_a_table_when_tags_collide(void **state)
{
    (void)state;
    model_run(hash_few_tags, 3000, 100000);
    model_run(hash_tag_zero, 1000, 50000);
}

/* ---- limits ---- */

static void references_and_tags_use_all_their_bits(void **state)
{
    struct pst_index *index = open_with(hash_uniform);
    const uint64_t hashes[] = {0, UINT64_MAX, 0xffffff, ~(uint64_t)0xffffff};
    uint64_t refs[PST_INDEX_CANDIDATES_MAX];

    (void)state;
    for (size_t i = 0; i < pst_count_of(hashes); i++) {
        assert_int_equal(pst_index_candidates(index, hashes[i], refs), 0);
        assert_int_equal(pst_index_insert(index, hashes[i], PST_INDEX_REF_MAX), 0);
        pst_index_prefetch(index, hashes[i]);
        assert_int_equal(pst_index_candidates(index, hashes[i], refs), 1);
        assert_true(refs[0] == PST_INDEX_REF_MAX);
        assert_int_equal(pst_index_replace(index, hashes[i], PST_INDEX_REF_MAX, 1), 0);
        assert_int_equal(pst_index_remove(index, hashes[i], PST_INDEX_REF_MAX), -ENOENT);
        assert_int_equal(pst_index_remove(index, hashes[i], 1), 0);
    }
    pst_index_close(index);
}

static void clump_is_refused(struct pst_index *index)
{
    uint64_t refs[PST_INDEX_CANDIDATES_MAX], memory_bytes;

    for (uint64_t key = 1; key < PST_INDEX_CANDIDATES_MAX; key++)
        assert_int_equal(pst_index_insert(index, hash_of_key(key), key + 1), 0);
    memory_bytes = pst_index_memory_bytes(index);
    for (uint64_t key = PST_INDEX_CANDIDATES_MAX; key < 100; key++)
        assert_int_equal(pst_index_insert(index, hash_of_key(key), key + 1), -ENOMEM);
    assert_int_equal(pst_index_memory_bytes(index), memory_bytes);
    assert_int_equal(pst_index_candidates(index, hash_of_key(0), refs), PST_INDEX_CANDIDATES_MAX);
    expect_all(index, 0, PST_INDEX_CANDIDATES_MAX);
    assert_int_equal(pst_index_remove(index, hash_of_key(3), 4), 0);
    assert_int_equal(pst_index_insert(index, hash_of_key(50), 51), 0);
    assert_int_equal(pst_index_insert(index, hash_of_key(3), 4), -ENOMEM);
}

static void equal_hashes_are_refused_past_the_limit(void **state)
{
    struct pst_index *index = open_with(hash_clump);

    (void)state;
    fill(index, 0, 1);
    clump_is_refused(index);
    pst_index_close(index);

    index = open_with(hash_clump);
    fill(index, 100, 200000);
    fill(index, 0, 1);
    clump_is_refused(index);
    expect_all(index, 100, 200000);
    pst_index_close(index);
}

/* A broken hash meets an end, not endless splits. */
static void one_pair_of_buckets_is_refused_past_the_limit(void **state)
{
    struct pst_index *index = open_with(hash_top_only);

    (void)state;
    fill(index, 0, PST_INDEX_CANDIDATES_MAX);
    for (uint64_t key = PST_INDEX_CANDIDATES_MAX; key < 1000; key++)
        assert_int_equal(pst_index_insert(index, hash_of_key(key), key + 1), -ENOMEM);
    assert_int_equal(index->segment_count, 1);
    expect_all(index, 0, PST_INDEX_CANDIDATES_MAX);
    pst_index_close(index);
}

/* ---- memory ---- */

static void memory_follows_the_keys(void **state)
{
    enum { KEYS = 1000000 };
    struct pst_index *index = open_with(hash_uniform);
    uint64_t empty_bytes = pst_index_memory_bytes(index), memory_bytes = empty_bytes;

    (void)state;
    assert_in_range(empty_bytes, 64 << 10, 80 << 10);
    for (uint64_t key = 0; key < KEYS; key++) {
        uint32_t segment_count = index_segment(index, hash_skew(hash_of_key(key)))->count;

        fill(index, key, key + 1);
        if (pst_index_memory_bytes(index) == memory_bytes)
            continue;
        assert_in_range(segment_count, SEGMENT_ENTRIES * 9 / 10,
                        SEGMENT_ENTRIES); /* well filled before it split */
        memory_bytes = pst_index_memory_bytes(index);
        assert_true((double)memory_bytes <= (key < 200000 ? 17.5 : 12.8) * (double)key);
    }
    assert_true((double)memory_bytes <= 12.8 * KEYS);
    expect_all(index, 0, KEYS);
    for (uint64_t key = 0; key < KEYS; key++)
        assert_int_equal(pst_index_remove(index, hash_of_key(key), key + 1), 0);
    assert_int_equal(pst_index_count(index), 0);
    assert_int_equal(pst_index_memory_bytes(index), empty_bytes);
    fill(index, 0, 10000);
    expect_all(index, 0, 10000);
    pst_index_close(index);
}

static void open_fails_without_memory(void **state)
{
    struct pst_index *index = NULL;

    (void)state;
    for (takes_left = 0; takes_left < 2;) {
        int64_t takes = takes_left;

        assert_int_equal(pst_index_open(hash_of_ref, &hash_of_key, &index), -ENOMEM);
        assert_null(index);
        takes_left = takes + 1;
    }
    takes_left = INT64_MAX;
    assert_null(pst_index_close(NULL));
}

static void insert_without_memory_changes_nothing(void **state)
{
    struct pst_index *index = open_with(hash_uniform);
    uint64_t failures = 0;

    (void)state;
    for (uint64_t key = 0; key < 100000; key++) {
        uint64_t memory_bytes = pst_index_memory_bytes(index);

        for (int64_t takes = 0;; takes++) {
            takes_left = takes;
            if (pst_index_insert(index, hash_of_key(key), key + 1) == 0)
                break;
            failures++;
            assert_int_equal(pst_index_memory_bytes(index), memory_bytes);
            assert_int_equal(pst_index_count(index), key);
            expect_all(index, 0, key);
            assert_false(has(index, key, key + 1));
        }
    }
    assert_true(failures > 10);
    takes_left = 0; /* removing needs no memory */
    for (uint64_t key = 0; key < 100000; key++)
        assert_int_equal(pst_index_remove(index, hash_of_key(key), key + 1), 0);
    assert_int_equal(index->segment_count, 1);
    pst_index_close(index);
    takes_left = INT64_MAX;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_a_table),
        cmocka_unit_test(agrees_with_a_table_when_tags_collide),
        cmocka_unit_test(references_and_tags_use_all_their_bits),
        cmocka_unit_test(equal_hashes_are_refused_past_the_limit),
        cmocka_unit_test(one_pair_of_buckets_is_refused_past_the_limit),
        cmocka_unit_test(memory_follows_the_keys),
        cmocka_unit_test(open_fails_without_memory),
        cmocka_unit_test(insert_without_memory_changes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/cm.h"

/* The tree is compiled in here, so that its allocations can be made to fail and its nodes be looked at. */
#include "base/base.h"

#include <stdio.h>

static int64_t takes_left = INT64_MAX; /* allocations until they fail */

static void *short_malloc(size_t bytes)
{
    return takes_left-- > 0 ? malloc(bytes) : NULL;
}

static void *short_calloc(size_t count, size_t bytes)
{
    return takes_left-- > 0 ? calloc(count, bytes) : NULL;
}

#define malloc short_malloc
#define calloc short_calloc
#include "store/index/order_node.c"
#include "store/index/order.c"
#undef malloc
#undef calloc

/* ---- a universe of keys, sorted; key k has the references k + 1 and k + 1 + KEYS_MAX ---- */

enum { KEYS_MAX = 1 << 21 };

static struct universe {
    struct pst_bytes *keys;
    uint32_t count;
    uint8_t *bytes;
} universe;

static struct pst_bytes key_of_ref(void *ctx, uint64_t ref)
{
    pst_assert(ctx == &universe && (ref - 1) % KEYS_MAX < universe.count);
    return universe.keys[(ref - 1) % KEYS_MAX];
}

static uint64_t random_next(void)
{
    static uint64_t x = 0x2545f4914f6cdd1d;

    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return x;
}

static int compare_keys(const void *a, const void *b)
{
    return pst_bytes_compare(*(const struct pst_bytes *)a, *(const struct pst_bytes *)b);
}

/* @make writes key number @i of at most @bytes_max bytes and returns its length. */
static void universe_make(uint32_t count, size_t bytes_max, size_t (*make)(uint32_t i, uint8_t *out))
{
    uint32_t kept = 0;

    universe.keys = malloc(count * sizeof(struct pst_bytes));
    universe.bytes = malloc(count * bytes_max);
    assert_true(universe.keys && universe.bytes);
    for (uint32_t i = 0; i < count; i++) {
        uint8_t *out = universe.bytes + i * bytes_max;

        universe.keys[i] = (struct pst_bytes){out, make(i, out)};
        assert_in_range(universe.keys[i].len, 1, bytes_max);
    }
    qsort(universe.keys, count, sizeof(struct pst_bytes), compare_keys);
    for (uint32_t i = 0; i < count; i++)
        if (kept == 0 || !pst_bytes_equal(universe.keys[kept - 1], universe.keys[i]))
            universe.keys[kept++] = universe.keys[i];
    universe.count = kept;
}

static void universe_free(void)
{
    free(universe.keys);
    free(universe.bytes);
    memset(&universe, 0, sizeof(universe));
}

static struct pst_order *open_order(void)
{
    struct pst_order *order = NULL;

    takes_left = INT64_MAX;
    assert_int_equal(pst_order_open(key_of_ref, &universe, &order), 0);
    return order;
}

static size_t make_random(uint32_t i, uint8_t *out)
{
    (void)i;
    for (int k = 0; k < 2; k++) {
        uint64_t word = random_next();

        memcpy(out + 8 * k, &word, 8);
    }
    return 16;
}

static size_t make_number(uint32_t i, uint8_t *out)
{
    return (size_t)snprintf((char *)out, 32, "tensor/%010u", i);
}

/* A few families that differ behind 300 equal bytes. */
static size_t make_long_prefix(uint32_t i, uint8_t *out)
{
    memset(out, 'p', 300);
    out[0] = (uint8_t)('a' + i % 3);
    out[150] = (uint8_t)('a' + i / 3 % 5);
    return 300 + (size_t)snprintf((char *)out + 300, 32, "%x", i * 2654435761u);
}

/* Zeros and 0xff only: prefixes of each other, and heads that padding makes equal. */
static size_t make_binary(uint32_t i, uint8_t *out)
{
    size_t len = 1 + random_next() % 16;

    (void)i;
    for (size_t k = 0; k < len; k++)
        out[k] = random_next() % 4 ? 0x00 : 0xff;
    return len;
}

/* x, xx, xxx, ...: each the prefix of all that follow. */
static size_t make_staircase(uint32_t i, uint8_t *out)
{
    memset(out, 'x', i + 1);
    return i + 1;
}

static size_t make_huge(uint32_t i, uint8_t *out)
{
    memset(out, 0xff, 4096);
    out[4095] = (uint8_t)i;
    out[4094] = (uint8_t)(i >> 8);
    out[i % 7 == 0 ? 10 : 4093] = 1;
    return 4096;
}

/* ---- the tree's own rules ---- */

static void check_leaf(const struct pst_order *order, const struct pst_leaf *leaf,
                       const struct pst_separator *before, const struct pst_separator *behind)
{
    assert_int_equal(leaf->magic, PST_LEAF_MAGIC);
    assert_true(leaf->count > 0 || order->height == 0);
    assert_int_equal(leaf->prefix, pst_separators_prefix(before, behind));
    for (uint32_t i = 0; i < leaf->count; i++) {
        struct pst_bytes key = pst_order_key(order, leaf->entries[i]);

        pst_assert(leaf->entries[i] == leaf_entry(key, leaf->prefix, pst_leaf_ref(leaf->entries[i])));
        pst_assert(!before || pst_bytes_compare(pst_separator_bytes(before), key) <= 0);
        pst_assert(!behind || pst_bytes_compare(key, pst_separator_bytes(behind)) < 0);
    }
}

/* Return: the leaf that should follow. */
static const struct pst_leaf *check_node(const struct pst_order *order, const void *node, uint32_t height,
                                         const struct pst_separator *before,
                                         const struct pst_separator *behind, const struct pst_leaf *expected)
{
    const struct pst_inner *inner = node;

    if (height == 0) {
        const struct pst_leaf *leaf = node;

        assert_ptr_equal(leaf, expected);
        check_leaf(order, leaf, before, behind);
        return leaf->next;
    }
    assert_in_range(inner->count, height == order->height ? 2 : PST_CHILD_MIN, PST_CHILD_MAX);
    assert_int_equal(inner->prefix,
                     pst_separators_prefix(inner->separators[0], inner->separators[inner->count - 2]));
    for (uint32_t i = 0; i < inner->count; i++) {
        const struct pst_separator *left = i > 0 ? inner->separators[i - 1] : before;
        const struct pst_separator *right = i + 1u < inner->count ? inner->separators[i] : behind;

        if (i + 1u < inner->count)
            assert_true(inner->heads[i] ==
                        bytes_head(pst_separator_bytes(right), inner->prefix, INNER_HEAD_BYTES));
        expected = check_node(order, inner->children[i], height - 1, left, right, expected);
    }
    return expected;
}

static void check_tree(const struct pst_order *order)
{
    const void *node = order->root;

    for (uint32_t level = 0; level < order->height; level++)
        node = ((const struct pst_inner *)node)->children[0];
    assert_null(check_node(order, order->root, order->height, NULL, NULL, node));
}

/* ---- model ---- */

static void check_listing(struct pst_order *order, const uint64_t *refs)
{
    struct pst_order_cursor cursor = pst_order_seek(order, (struct pst_bytes){NULL, 0}, false);

    for (uint32_t k = 0; k < universe.count; k++)
        if (refs[k] != 0 && pst_order_next(order, &cursor) != refs[k])
            fail_msg("key %u is not where it belongs", k);
    assert_int_equal(pst_order_next(order, &cursor), 0);
    assert_int_equal(pst_order_next(order, &cursor), 0);
    check_tree(order);
}

/* The reference of the first present key from @k on, 0 for none. */
static uint64_t model_from(const uint64_t *refs, uint32_t k)
{
    while (k < universe.count && refs[k] == 0)
        k++;
    return k < universe.count ? refs[k] : 0;
}

static void model_step(struct pst_order *order, uint64_t *refs, uint32_t k, bool grow)
{
    struct pst_bytes key = universe.keys[k];
    uint64_t fresh = k + 1 + (random_next() & 1) * KEYS_MAX;
    struct pst_order_cursor cursor;

    if (refs[k] == 0 && grow) {
        assert_int_equal(pst_order_insert(order, key, fresh), 0);
        refs[k] = fresh;
    } else if (refs[k] == 0) {
        assert_int_equal(pst_order_remove(order, key), -ENOENT);
        assert_int_equal(pst_order_replace(order, key, fresh), -ENOENT);
    } else if (random_next() % 4 == 0) {
        assert_int_equal(pst_order_replace(order, key, fresh), 0);
        refs[k] = fresh;
    } else if (!grow) {
        assert_int_equal(pst_order_remove(order, key), 0);
        refs[k] = 0;
    }
    cursor = pst_order_seek(order, key, false);
    assert_true(pst_order_next(order, &cursor) == model_from(refs, k));
    cursor = pst_order_seek(order, key, true);
    assert_true(pst_order_next(order, &cursor) == model_from(refs, k + 1));
}

static void model_run(uint32_t steps)
{
    uint64_t *refs = calloc(universe.count, sizeof(*refs)), count = 0;
    struct pst_order *order = open_order();

    assert_non_null(refs);
    for (uint32_t i = 0; i < steps; i++) { /* grows to most of the keys, shrinks to few, grows again */
        bool shrinks = (uint64_t)i * 4 / steps % 3 != 0;

        model_step(order, refs, (uint32_t)(random_next() % universe.count),
                   random_next() % 16 < (shrinks ? 1 : 14));
        if (i % (steps / 16) == 0)
            check_listing(order, refs);
    }
    check_listing(order, refs);
    for (uint32_t k = 0; k < universe.count; k++)
        count += refs[k] != 0;
    assert_int_equal(pst_order_count(order), count);
    free(refs);
    pst_order_close(order);
    universe_free();
}

static void agrees_with_a_table_random(void **state)
{
    (void)state;
    universe_make(60000, 16, make_random);
    model_run(600000);
}

static void agrees_with_a_table_long_prefix(void **state)
{
    (void)state;
    universe_make(8000, 332, make_long_prefix);
    model_run(100000);
}

static void agrees_with_a_table_binary(void **state)
{
    (void)state;
    universe_make(20000, 16, make_binary);
    model_run(200000);
}

static void agrees_with_a_table_staircase(void **state)
{
    (void)state;
    universe_make(4096, 4096, make_staircase);
    model_run(20000);
}

static void agrees_with_a_table_huge(void **state)
{
    (void)state;
    universe_make(1500, 4096, make_huge);
    model_run(20000);
}

/* ---- growth ---- */

/* Inserts key (@from + i * @step) mod count for all i, checks, and removes in another order. */
static void insert_all_remove_all(uint64_t from, uint64_t step, double bytes_per_key_max)
{
    struct pst_order *order = open_order();
    uint64_t *refs = calloc(universe.count, sizeof(*refs)), empty_bytes = pst_order_memory_bytes(order);

    assert_non_null(refs);
    for (uint64_t i = 0; i < universe.count; i++) {
        uint64_t k = (from + i * step) % universe.count;

        refs[k] = k + 1;
        if (pst_order_insert(order, universe.keys[k], k + 1) != 0)
            fail_msg("insert %lu", (unsigned long)k);
    }
    assert_int_equal(pst_order_count(order), universe.count);
    assert_true((double)pst_order_memory_bytes(order) <= bytes_per_key_max * universe.count);
    check_listing(order, refs);
    for (uint64_t i = 0; i < universe.count; i++) {
        uint64_t k = (from + i * 7919) % universe.count;

        refs[k] = 0;
        if (pst_order_remove(order, universe.keys[k]) != 0)
            fail_msg("remove %lu", (unsigned long)k);
        if (i == universe.count / 10 * 9) { /* a tenth is left */
            check_listing(order, refs);
            assert_true((double)pst_order_memory_bytes(order) <= 32.0 * (double)pst_order_count(order));
        }
    }
    assert_int_equal(pst_order_memory_bytes(order), empty_bytes);
    check_listing(order, refs);
    free(refs);
    pst_order_close(order);
}

static void a_million_random_keys_fit(void **state)
{
    (void)state;
    universe_make(1000000, 16, make_random);
    insert_all_remove_all(17, 618033, 11.5);
    universe_free();
}

static void a_million_numbers_fit(void **state)
{
    (void)state;
    universe_make(1000000, 32, make_number);
    insert_all_remove_all(0, 1, 8.6);                                   /* ascending */
    insert_all_remove_all(universe.count - 1, universe.count - 1, 9.5); /* descending */
    insert_all_remove_all(0, 1001, 11.5);                               /* many ascending runs side by side */
    universe_free();
}

/* ---- cursors ---- */

static void keys_can_go_while_listing(void **state)
{
    struct pst_order *order;
    struct pst_order_cursor cursor;
    uint64_t ref, seen = 0;

    (void)state;
    universe_make(20000, 32, make_number);
    order = open_order();
    for (uint64_t k = 0; k < universe.count; k++)
        assert_int_equal(pst_order_insert(order, universe.keys[k], k + 1), 0);
    cursor = pst_order_seek(order, universe.keys[0], false);
    while ((ref = pst_order_next(order, &cursor)) != 0) {
        struct pst_bytes key = universe.keys[ref - 1];

        assert_int_equal(ref, ++seen);
        if (ref % 10 != 0)
            assert_int_equal(pst_order_remove(order, key), 0);
        cursor = pst_order_seek(order, key, true);
    }
    assert_int_equal(seen, universe.count);
    assert_int_equal(pst_order_count(order), universe.count / 10);
    check_tree(order);
    pst_order_close(order);
    universe_free();
}

static void empty_order_lists_nothing(void **state)
{
    struct pst_order *order = open_order();
    struct pst_order_cursor cursor = pst_order_seek(order, (struct pst_bytes){"k", 1}, false);

    (void)state;
    assert_int_equal(pst_order_next(order, &cursor), 0);
    assert_int_equal(pst_order_remove(order, (struct pst_bytes){"k", 1}), -ENOENT);
    assert_in_range(pst_order_memory_bytes(order), 1, 4096);
    pst_order_close(order);
    assert_null(pst_order_close(NULL));
}

static void references_use_all_their_bits(void **state)
{
    const uint64_t ref_max = (1ull << 40) - 1;
    static const uint8_t key[4] = {0xff, 0xff, 0xff, 0xff};
    struct pst_order *order;
    struct pst_order_cursor cursor;

    (void)state;
    universe.keys = calloc(KEYS_MAX, sizeof(struct pst_bytes));
    universe.count = KEYS_MAX;
    assert_non_null(universe.keys);
    universe.keys[(ref_max - 1) % KEYS_MAX] = universe.keys[0] = (struct pst_bytes){key, 4};
    order = open_order();
    assert_int_equal(pst_order_insert(order, universe.keys[0], 1), 0);
    assert_int_equal(pst_order_replace(order, universe.keys[0], ref_max), 0);
    cursor = pst_order_seek(order, universe.keys[0], false);
    assert_true(pst_order_next(order, &cursor) == ref_max);
    assert_int_equal(pst_order_next(order, &cursor), 0);
    assert_int_equal(pst_order_remove(order, universe.keys[0]), 0);
    pst_order_close(order);
    universe_free();
}

/* ---- without memory ---- */

static void open_fails_without_memory(void **state)
{
    struct pst_order *order = NULL;

    (void)state;
    takes_left = 0;
    assert_int_equal(pst_order_open(key_of_ref, &universe, &order), -ENOMEM);
    takes_left = 1;
    assert_int_equal(pst_order_open(key_of_ref, &universe, &order), -ENOMEM);
    assert_null(order);
    takes_left = INT64_MAX;
}

/* Each insert again and again with one more allocation granted. Return: how often it failed. */
static uint64_t insert_with_failures(struct pst_order *order, uint64_t k, uint64_t *refs)
{
    uint64_t memory_bytes = pst_order_memory_bytes(order), count = pst_order_count(order), failures = 0;

    for (takes_left = 0; pst_order_insert(order, universe.keys[k], k + 1) < 0;
         takes_left = (int64_t)failures) {
        assert_int_equal(pst_order_memory_bytes(order), memory_bytes);
        assert_int_equal(pst_order_count(order), count);
        if (failures++ == 2 || k % 64 == 0)
            check_listing(order, refs);
    }
    refs[k] = k + 1;
    return failures;
}

static void insert_without_memory_changes_nothing(void **state)
{
    struct pst_order *order;
    uint64_t *refs, failures = 0;

    (void)state;
    universe_make(60000, 16, make_random);
    refs = calloc(universe.count, sizeof(*refs));
    assert_non_null(refs);
    order = open_order();
    for (uint64_t i = 0; i < universe.count; i++)
        failures += insert_with_failures(order, i * 7919 % universe.count, refs);
    check_listing(order, refs);
    assert_int_equal(order->height, 2);
    assert_true(failures > 300);
    takes_left = 0; /* removing needs no memory */
    for (uint64_t k = 0; k < universe.count; k++)
        assert_int_equal(pst_order_remove(order, universe.keys[k * 7 % universe.count]), 0);
    pst_order_close(order);
    takes_left = INT64_MAX;
    free(refs);
    universe_free();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_a_table_random), cmocka_unit_test(agrees_with_a_table_long_prefix),
        cmocka_unit_test(agrees_with_a_table_binary), cmocka_unit_test(agrees_with_a_table_staircase),
        cmocka_unit_test(agrees_with_a_table_huge),   cmocka_unit_test(a_million_random_keys_fit),
        cmocka_unit_test(a_million_numbers_fit),      cmocka_unit_test(keys_can_go_while_listing),
        cmocka_unit_test(empty_order_lists_nothing),  cmocka_unit_test(references_use_all_their_bits),
        cmocka_unit_test(open_fails_without_memory),  cmocka_unit_test(insert_without_memory_changes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

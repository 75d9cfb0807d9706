/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/cm.h"

#include "lib/map_random.h"

enum { MEMBERS = 40, MAPS = 40 };

static uint8_t *encoded(const struct pst_map *map, size_t *bytes)
{
    size_t cap = pst_map_bytes_max(map->members_max);
    uint8_t *to = malloc(cap);

    assert_non_null(to);
    assert_int_equal(pst_map_encode_stored(map, to, cap - 1), 0);
    *bytes = pst_map_encode_stored(map, to, cap);
    assert_true(*bytes > 0);
    return to;
}

static void a_map_reads_back_as_it_was(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < MAPS; seed++) {
        struct pst_map *map = map_random(MEMBERS, seed), *read = NULL;
        size_t bytes;
        uint8_t *text = encoded(map, &bytes);

        assert_int_equal(pst_map_decode((struct pst_bytes){text, bytes}, MEMBERS, &read), 0);
        assert_memory_equal(read, map, sizeof(*map) + MEMBERS * sizeof(map->members[0]));
        pst_map_close(read);
        assert_int_equal(pst_map_decode((struct pst_bytes){text, bytes}, 1, &read), -E2BIG);
        free(text);
        pst_map_close(map);
    }
}

static void a_damaged_map_is_refused(void **state)
{
    struct pst_map *map = map_random(MEMBERS, 3), *read = NULL;
    size_t bytes;
    uint8_t *text = encoded(map, &bytes);

    (void)state;
    for (size_t at = 0; at < bytes; at += at < 4000 ? 1 : 997) {
        text[at] ^= 0x10;
        assert_true(pst_map_decode((struct pst_bytes){text, bytes}, MEMBERS, &read) < 0);
        text[at] ^= 0x10;
        assert_int_equal(pst_map_decode((struct pst_bytes){text, at}, MEMBERS, &read), -EBADMSG);
    }
    free(text);
    pst_map_close(map);
}

/* As someone who can compute a checksum would write it. */
static void expect_refused(struct pst_map *map)
{
    struct pst_map *read = NULL;
    size_t bytes;
    uint8_t *text = encoded(map, &bytes);

    assert_int_equal(pst_map_decode((struct pst_bytes){text, bytes}, MEMBERS, &read), -EBADMSG);
    free(text);
    pst_map_close(map);
}

static void what_no_directory_makes_is_refused(void **state)
{
    struct pst_map *map;

    (void)state;
    map = map_random(MEMBERS, 5);
    map->partitions[9] = (struct pst_map_partition){
        .epoch = 1, .state = PST_MAP_SERVED, .replica_count = 1, .replicas = {MEMBERS}};
    expect_refused(map);
    map = map_random(MEMBERS, 5);
    map->partitions[9] = (struct pst_map_partition){.epoch = 1, .base = 2};
    expect_refused(map);
    for (int which = 0; which < 4; which++) { /* there has to be a next one */
        map = map_random(MEMBERS, 5);
        *(which == 0   ? &map->version
          : which == 1 ? &map->term
          : which == 2 ? &map->epoch_next
                       : &map->partitions[9].epoch) = UINT64_MAX;
        expect_refused(map);
    }
    map = map_random(MEMBERS, 5);
    for (uint32_t i = 0; i < MEMBERS; i++) /* it is printed, in terminals, too */
        if (map->members[i].epoch)
            strcpy(map->members[i].address, "\033]0;x\007:1");
    expect_refused(map);
    map = map_random(MEMBERS, 5);
    map->partitions[9].state = map->partitions[9].replica_count > 0 ? PST_MAP_EMPTY : PST_MAP_SERVED;
    expect_refused(map);
    map = map_random(MEMBERS, 5);
    map->epoch_next = 1;
    expect_refused(map);
    map = map_random(MEMBERS, 5);
    map->share_count = 2;
    map->shares[1] = (struct pst_map_share){.start = 7}; /* nowhere */
    expect_refused(map);
}

/* Programs that know nothing of shares go on with a pool that has one. */
static void one_share_is_written_as_ever(void **state)
{
    enum { FORMAT_AT = 4 };

    (void)state;
    for (uint64_t seed = 0; seed < MAPS; seed++) {
        struct pst_map *map = map_random(MEMBERS, seed);
        size_t bytes;
        uint8_t *text = encoded(map, &bytes);

        assert_int_equal(text[FORMAT_AT], map->share_count > 1 ? 3 : 2);
        free(text);
        pst_map_close(map);
    }
}

/* Nodes and clients of before read it, too. */
static void what_a_membership_has_kept_is_stored_and_not_told(void **state)
{
    struct pst_map *map = map_random(MEMBERS, 3), *read = NULL;
    size_t cap = pst_map_bytes_max(MEMBERS), bytes, told_bytes, kept = 0;
    uint8_t *text = encoded(map, &bytes), *told = malloc(cap);

    (void)state;
    assert_non_null(told);
    told_bytes = pst_map_encode(map, told, cap);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        kept += map->members[i].kept_epoch != 0;
        map->members[i].kept_epoch = 0;
    }
    assert_true(kept > 0);
    assert_int_equal(bytes, told_bytes + kept * sizeof(uint64_t));
    assert_int_equal(pst_map_decode((struct pst_bytes){told, told_bytes}, MEMBERS, &read), 0);
    assert_memory_equal(read, map, sizeof(*map) + MEMBERS * sizeof(map->members[0]));
    pst_map_close(read);
    free(text);
    text = encoded(map, &bytes);
    assert_int_equal(bytes, told_bytes);
    assert_memory_equal(text, told, bytes);
    free(text);
    free(told);
    pst_map_close(map);
}

/* Also of those keys that a table puts into one part, and that have one tag there. */
static void each_share_has_its_part_of_any_keys(void **state)
{
    enum { KEYS = 20000, SHARES = 5 };
    uint32_t all[SHARES] = {0}, alike[SHARES] = {0};

    (void)state;
    for (uint32_t i = 0; i < KEYS; i++) {
        struct pst_hash128 key = pst_hash128(&i, sizeof(i), 7);

        assert_int_equal(pst_map_share_of(&key, 1), 0);
        all[pst_map_share_of(&key, SHARES)]++;
        key.high = (key.high & ~(0xffffull << 48 | 0xff)) | 0x1234ull << 48 | 0x56;
        key.low = 0;
        alike[pst_map_share_of(&key, SHARES)]++;
    }
    for (uint32_t i = 0; i < SHARES; i++) {
        assert_in_range(all[i], KEYS / SHARES * 9 / 10, KEYS / SHARES * 11 / 10);
        assert_int_equal(alike[i], all[i]);
    }
}

static void the_longest_prefix_places_a_key(void **state)
{
    struct pst_map *map;

    (void)state;
    assert_int_equal(pst_map_open(1, 0, &map), 0);
    assert_null(pst_map_prefix_of(map, (struct pst_bytes){"a/b", 3}));
    map->prefixes[0] =
        (struct pst_map_prefix){.placement = PST_PLACE_HOME, .replicas = 2, .bytes = 2, .text = "a/"};
    map->prefixes[1] = (struct pst_map_prefix){.replicas = 3, .bytes = 4, .text = "a/b/"};
    map->prefix_count = 2;
    assert_int_equal(pst_map_prefix_of(map, (struct pst_bytes){"a/b", 3})->placement, PST_PLACE_HOME);
    assert_int_equal(pst_map_prefix_of(map, (struct pst_bytes){"a/b/c", 5})->placement, PST_PLACE_ANYWHERE);
    assert_null(pst_map_prefix_of(map, (struct pst_bytes){"b", 1}));
    assert_int_equal(pst_map_replicas(map), 2); /* anywhere has no partitions */
    pst_map_close(map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_map_reads_back_as_it_was),
        cmocka_unit_test(a_damaged_map_is_refused),
        cmocka_unit_test(what_no_directory_makes_is_refused),
        cmocka_unit_test(one_share_is_written_as_ever),
        cmocka_unit_test(what_a_membership_has_kept_is_stored_and_not_told),
        cmocka_unit_test(each_share_has_its_part_of_any_keys),
        cmocka_unit_test(the_longest_prefix_places_a_key),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What a node of a pool may serve: closed without a pool map, open for what may lie anywhere, and for what
 * has a home as far as pool map and lease say, while one thread tells and others ask. */
#include "lib/cm.h"

#include "base/clock.h"
#include "pool/serving.h"
#include "wire/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

enum { BUSY = 4, OURS = 3, OTHERS = 5, EPOCH = 9, KEYS = 2000 };

static struct pst_bytes key_of(const char *text)
{
    return (struct pst_bytes){text, strlen(text)};
}

static void place(struct pst_map *map, const char *prefix, enum pst_placement placement)
{
    struct pst_map_prefix *p = &map->prefixes[map->prefix_count++];

    *p = (struct pst_map_prefix){
        .placement = (uint8_t)placement, .replicas = 1, .bytes = (uint8_t)strlen(prefix)};
    memcpy(p->text, prefix, strlen(prefix));
}

/* Partitions in turn: ours, another's, nobody's. */
static struct pst_map *a_map(bool homes, uint32_t turn)
{
    struct pst_map *map;

    assert_int_equal(pst_map_open(8, 77, &map), 0);
    map->version = 1 + turn;
    if (homes)
        place(map, "home/", PST_PLACE_HOME);
    map->members[OURS] = (struct pst_map_member){.epoch = EPOCH};
    map->members[OTHERS] = (struct pst_map_member){.epoch = EPOCH + 1};
    for (uint32_t i = 0; i < PST_PARTITIONS; i++) {
        uint32_t whose = (i + turn) % 3;

        map->partitions[i] = (struct pst_map_partition){
            .epoch = 1, .state = whose == 2 ? PST_MAP_INCOMPLETE : PST_MAP_SERVED, .replica_count = 1};
        map->partitions[i].replicas[0] = whose == 0 ? OURS : OTHERS;
    }
    return map;
}

static void closed_without_a_map(void **state)
{
    struct pst_map *map = a_map(false, 0);
    struct pst_serving *serving;

    (void)state;
    assert_int_equal(pst_serving_open(&serving), 0);
    assert_int_equal(pst_serving_allows(serving, key_of("a")), BUSY);
    pst_serving_lease(serving, UINT64_MAX);
    assert_int_equal(pst_serving_allows(serving, key_of("a")), BUSY);
    assert_int_equal(pst_serving_map(serving, map, OURS, EPOCH), 0);
    assert_int_equal(pst_serving_allows(serving, key_of("a")), 0);
    assert_int_equal(pst_serving_allows(serving, key_of("home/a")), 0); /* this pool has no homes */
    pst_map_close(map);
    pst_serving_close(serving);
}

static int expected(const struct pst_map *map, const char *key, uint32_t turn)
{
    static const int results[] = {0, -ESTALE, PST_POOL_NO_PRIMARY};

    return results[(pst_map_partition_of(map, key_of(key)) + turn) % 3];
}

static void partitions_have_a_home(void **state)
{
    struct pst_serving *serving;
    char key[32];

    (void)state;
    assert_int_equal(pst_serving_open(&serving), 0);
    for (uint32_t turn = 0; turn < 3; turn++) {
        struct pst_map *map = a_map(true, turn);

        assert_int_equal(pst_serving_map(serving, map, OURS, EPOCH), 0);
        for (uint32_t i = 0; i < KEYS; i++) {
            int wanted;

            snprintf(key, sizeof(key), "home/%u", i);
            wanted = expected(map, key, turn);
            pst_serving_lease(serving, 0);
            assert_int_equal(pst_serving_allows(serving, key_of(key)), wanted == 0 ? BUSY : wanted);
            pst_serving_lease(serving, pst_clock_read_ns(CLOCK_BOOTTIME)); /* over */
            assert_int_equal(pst_serving_allows(serving, key_of(key)), wanted == 0 ? BUSY : wanted);
            pst_serving_lease(serving, UINT64_MAX);
            assert_int_equal(pst_serving_allows(serving, key_of(key)), wanted);
            assert_int_equal(pst_serving_allows(serving, key_of(key + 5)), 0);
        }
        pst_map_close(map);
    }
    pst_serving_close(serving);
}

static void another_membership_has_nothing(void **state)
{
    struct pst_map *map = a_map(true, 0);
    struct pst_serving *serving;
    char key[32];

    (void)state;
    assert_int_equal(pst_serving_open(&serving), 0);
    assert_int_equal(pst_serving_map(serving, map, OURS, EPOCH + 5), 0);
    pst_serving_lease(serving, UINT64_MAX);
    for (uint32_t i = 0; i < KEYS; i++) {
        snprintf(key, sizeof(key), "home/%u", i);
        assert_int_not_equal(pst_serving_allows(serving, key_of(key)), 0);
    }
    pst_map_close(map);
    pst_serving_close(serving);
}

struct race {
    struct pst_serving *serving;
    atomic_bool stop;
    char key[32];
};

/* The partition is ours in every other pool map, and the lease ends before it is another's. */
static void *ask(void *arg)
{
    struct race *race = arg;

    while (!race->stop) {
        int r = pst_serving_allows(race->serving, key_of(race->key));

        assert_true(r == 0 || r == BUSY || r == -ESTALE || r == PST_POOL_NO_PRIMARY);
    }
    return NULL;
}

static void threads_ask_while_maps_come(void **state)
{
    static struct race race = {.key = "home/race"};
    pthread_t threads[2];

    (void)state;
    assert_int_equal(pst_serving_open(&race.serving), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask, &race), 0);
    for (uint32_t turn = 0; turn < 200; turn++) {
        struct pst_map *map = a_map(turn % 10 != 0, turn); /* the prefixes change now and then */

        pst_serving_lease(race.serving, 0);
        assert_int_equal(pst_serving_map(race.serving, map, OURS, EPOCH), 0);
        pst_serving_lease(race.serving, UINT64_MAX);
        assert_int_equal(pst_serving_allows(race.serving, key_of(race.key)),
                         turn % 10 ? expected(map, race.key, turn) : 0);
        pst_map_close(map);
    }
    race.stop = true;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    pst_serving_close(race.serving);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closed_without_a_map),
        cmocka_unit_test(partitions_have_a_home),
        cmocka_unit_test(another_membership_has_nothing),
        cmocka_unit_test(threads_ask_while_maps_come),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

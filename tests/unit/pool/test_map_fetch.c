/* SPDX-License-Identifier: Apache-2.0 */
/* What a master may answer to who fetches its pool map, piece by piece. */
#include "lib/cm.h"

#include "pool/map_fetch.h"
#include "wire/pool.h"

#include <stdlib.h>

enum { MEMBERS = 4, PIECE_BYTES = 40000 };

struct rig {
    struct pst_map_fetch fetch;
    uint8_t *bytes;
    size_t map_bytes;
    uint8_t answer[sizeof(struct pst_pool_map) + PIECE_BYTES];
};

static int rig_open(void **state)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    size_t room = pst_map_bytes_max(MEMBERS);
    struct pst_map *map;

    assert_non_null(rig);
    assert_int_equal(pst_map_open(MEMBERS, 7, &map), 0);
    map->version = 3;
    rig->bytes = malloc(room);
    assert_non_null(rig->bytes);
    rig->map_bytes = pst_map_encode(map, rig->bytes, room);
    assert_true(rig->map_bytes > PIECE_BYTES && rig->map_bytes <= 3 * PIECE_BYTES);
    pst_map_close(map);
    pst_map_fetch_begin(&rig->fetch);
    *state = rig;
    return 0;
}

static int rig_close(void **state)
{
    struct rig *rig = *state;

    pst_map_fetch_fini(&rig->fetch);
    free(rig->bytes);
    free(rig);
    return 0;
}

/* The master says that the pool map has @map_bytes, and sends @bytes of it. */
static int take(struct rig *rig, uint64_t map_bytes, size_t bytes, uint64_t version)
{
    struct pst_pool_map head = {.map_bytes = map_bytes};
    uint64_t at = pst_min(rig->fetch.at, rig->map_bytes);

    memcpy(rig->answer, &head, sizeof(head));
    memcpy(rig->answer + sizeof(head), rig->bytes + at, pst_min(bytes, rig->map_bytes - at));
    return pst_map_fetch_take(&rig->fetch, (struct pst_bytes){rig->answer, sizeof(head) + bytes}, version);
}

static size_t rest(const struct rig *rig)
{
    return pst_min(rig->map_bytes - rig->fetch.at, PIECE_BYTES);
}

static void pieces_make_the_map(void **state)
{
    struct rig *rig = *state;
    struct pst_map *map;
    int r;

    while ((r = take(rig, rig->map_bytes, rest(rig), 3)) == 1)
        continue;
    assert_int_equal(r, 0);
    assert_int_equal(rig->fetch.restarts, 0);
    assert_int_equal(pst_map_fetch_decode(&rig->fetch, MEMBERS, &map), 0);
    assert_int_equal(map->version, 3);
    pst_map_close(map);
}

static void no_bytes_mean_the_map_that_is_known(void **state)
{
    struct rig *rig = *state;

    assert_int_equal(take(rig, 0, 0, 3), 0);
    assert_int_equal(rig->fetch.map_bytes, 0);
}

/* Of an asker that has none: a follower of the leading master, say. */
static void no_bytes_are_no_map(void **state)
{
    struct rig *rig = *state;
    struct pst_map *map = NULL;

    assert_int_equal(take(rig, 0, 0, 3), 0);
    assert_int_equal(pst_map_fetch_decode(&rig->fetch, MEMBERS, &map), -EPROTO);
    assert_int_equal(take(rig, rig->map_bytes, PIECE_BYTES, 3), 1);
    assert_int_equal(take(rig, rig->map_bytes, rest(rig), 4), 1); /* begins anew, */
    assert_int_equal(take(rig, 0, 0, 4), 0);                      /* and is then denied */
    assert_int_equal(pst_map_fetch_decode(&rig->fetch, MEMBERS, &map), -EPROTO);
    assert_null(map);
}

static void another_version_begins_anew(void **state)
{
    struct rig *rig = *state;

    assert_int_equal(take(rig, rig->map_bytes, PIECE_BYTES, 2), 1);
    assert_int_equal(take(rig, rig->map_bytes, rest(rig), 3), 1);
    assert_int_equal(rig->fetch.at, 0);
    assert_int_equal(rig->fetch.restarts, 1);
    assert_int_equal(take(rig, rig->map_bytes, rest(rig), 3), 1);
    assert_int_equal(rig->fetch.at, PIECE_BYTES);
}

static void nonsense_is_refused(void **state)
{
    struct rig *rig = *state;

    assert_int_equal(take(rig, pst_map_bytes_max(PST_MAP_MEMBERS_MAX) + 1, 1, 3), -EPROTO);
    assert_int_equal(take(rig, UINT64_MAX, 1, 3), -EPROTO);
    assert_int_equal(take(rig, rig->map_bytes, 0, 3), -EPROTO);
    assert_int_equal(take(rig, 100, 101, 3), -EPROTO);
    assert_int_equal(pst_map_fetch_take(&rig->fetch, (struct pst_bytes){rig->answer, 7}, 3), -EPROTO);
    pst_map_fetch_begin(&rig->fetch);
    assert_int_equal(take(rig, rig->map_bytes, PIECE_BYTES, 3), 1);
    assert_int_equal(take(rig, rig->map_bytes + 1, 1, 3), -EPROTO); /* another length in one version */
    assert_int_equal(take(rig, 0, 0, 3), -EPROTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(pieces_make_the_map, rig_open, rig_close),
        cmocka_unit_test_setup_teardown(no_bytes_mean_the_map_that_is_known, rig_open, rig_close),
        cmocka_unit_test_setup_teardown(no_bytes_are_no_map, rig_open, rig_close),
        cmocka_unit_test_setup_teardown(another_version_begins_anew, rig_open, rig_close),
        cmocka_unit_test_setup_teardown(nonsense_is_refused, rig_open, rig_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

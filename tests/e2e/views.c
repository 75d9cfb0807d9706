/* SPDX-License-Identifier: Apache-2.0 */
/* views.c: values in place; registered memory; the store's own questions. */
#include "e2e.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (1ull << 20)

/* Over a network address there is no shared memory to look into. Return: true when the test may go on. */
static bool views_possible(void)
{
    struct penstock_view view;

    if (place_has_views())
        return true;
    put_value(STORE, "v", 3000, 1);
    assert_result(penstock_view(STORE, "v", 1, &view), -EOPNOTSUPP);
    assert_non_null(strstr(penstock_error(), "not possible"));
    assert_result(penstock_view(STORE, "absent", 6, &view), PENSTOCK_MISS);
    expect_bytes(STORE, "v", 3000, 1);
    expect_unpinned(STORE);
    return false;
}

static struct penstock_view open_view(const char *key, uint64_t bytes, uint64_t seed)
{
    struct penstock_view view;

    assert_result(penstock_view(STORE, key, strlen(key), &view), 0);
    assert_int_equal(view.bytes, bytes);
    assert_non_null(view.data);
    assert_true(filled(view.data, bytes, seed));
    return view;
}

static void view_contents(void **state)
{
    static const uint64_t sizes[] = {0, 1, 63, 64, 2048, 2049, 65536, MIB + 1, 2 * MIB, 5 * MIB, 70 * MIB};
    static const char long_key[PENSTOCK_KEY_BYTES_MAX + 1];
    struct penstock_view view;

    (void)state;
    assert_result(penstock_view(STORE, long_key, sizeof(long_key), &view), -ENAMETOOLONG);
    if (!views_possible())
        return;
    assert_result(penstock_view(STORE, "absent", 6, &view), PENSTOCK_MISS);
    assert_result(penstock_view(STORE, "", 0, &view), -EINVAL);
    assert_result(penstock_view(STORE, "v", 1, NULL), -EINVAL);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct penstock_op op = {0};

        put_value(STORE, "v", sizes[i], i);
        penstock_prep(&op, PENSTOCK_STAT_KEY, "v", 1);
        assert_result(run_op(STORE, &op), 0);
        view = open_view("v", sizes[i], i);
        assert_int_equal(view.generation, op.generation);
        assert_int_equal(stat_of(STORE).pinned, 1);
        penstock_view_release(STORE, &view);
        assert_int_equal(view.bytes, 0);
        penstock_view_release(STORE, &view); /* a second time does no harm */
        expect_unpinned(STORE);
    }
    penstock_view_release(STORE, NULL);
}

/* A view keeps its bytes whatever happens to the key, and whatever is written meanwhile. */
static void view_outlives_the_value(void **state)
{
    static const uint64_t sizes[] = {500, 40000, 3 * MIB};

    (void)state;
    if (!views_possible())
        return;
    for (int i = 0; i < 3; i++) {
        struct penstock_view first, second, third;
        uint64_t bytes = sizes[i];

        put_value(STORE, "v", bytes, 10);
        first = open_view("v", bytes, 10);
        put_value(STORE, "v", bytes, 11);
        second = open_view("v", bytes, 11);
        assert_true(second.generation > first.generation);
        assert_result(penstock_delete(STORE, "v", 1), 0);
        put_value(STORE, "v", bytes, 12);
        third = open_view("v", bytes, 12);
        assert_result(penstock_clear(STORE, NULL), 0);
        assert_int_equal(stat_of(STORE).keys, 0);
        for (int k = 0; k < 40; k++) { /* what was freed is used again, but not this */
            char key[16];

            snprintf(key, sizeof(key), "new/%d", k);
            put_value(STORE, key, bytes, 100 + k);
        }
        assert_true(filled(first.data, bytes, 10));
        assert_true(filled(second.data, bytes, 11));
        assert_true(filled(third.data, bytes, 12));
        penstock_view_release(STORE, &second);
        penstock_view_release(STORE, &first);
        assert_true(filled(third.data, bytes, 12));
        penstock_view_release(STORE, &third);
        expect_unpinned(STORE);
        assert_result(penstock_delete_prefix(STORE, "", 0, NULL), 0);
    }
}

/* Puts values of one page until there is no space. Return: their number. */
static int fill_with_pages(const char *prefix)
{
    uint64_t page_bytes = stat_of(STORE).page_bytes;
    char key[32];
    int r;

    for (int count = 0;; count++) {
        snprintf(key, sizeof(key), "%s%d", prefix, count);
        r = put_filled(STORE, key, page_bytes, count);
        if (r == 0)
            continue;
        assert_result(r, -ENOSPC);
        return count;
    }
}

/* Memory in holes of one page each: a value there is in many pieces, its view in one. */
static void view_of_a_scattered_value(void **state)
{
    enum { HOLES = 40, OTHERS = 2 }; /* records need a page, too */
    uint64_t bytes = (HOLES - OTHERS) * stat_of(STORE).page_bytes - 100;
    struct penstock_view view;
    char key[32];

    (void)state;
    if (!views_possible())
        return;
    assert_true(fill_with_pages("hole/") > 2 * HOLES);
    for (int i = 0; i < HOLES; i++) {
        snprintf(key, sizeof(key), "hole/%d", 2 * i);
        assert_result(penstock_delete(STORE, key, strlen(key)), 0);
    }
    put_value(STORE, "v", bytes, 77);
    expect_bytes(STORE, "v", bytes, 77);
    view = open_view("v", bytes, 77);
    assert_result(penstock_delete(STORE, "v", 1), 0);
    assert_in_range(fill_with_pages("more/"), 0, OTHERS); /* the view keeps its memory */
    assert_true(filled(view.data, bytes, 77));
    penstock_view_release(STORE, &view);
    expect_unpinned(STORE);
    assert_in_range(fill_with_pages("last/"), HOLES - 2 * OTHERS, HOLES);
}

static void many_views(void **state)
{
    enum { COUNT = 1000 };
    struct penstock_view views[COUNT];

    (void)state;
    if (!views_possible())
        return;
    for (int i = 0; i < COUNT; i++) {
        char key[16];

        snprintf(key, sizeof(key), "m/%d", i);
        put_value(STORE, key, 3000 + i, i);
        views[i] = open_view(key, 3000 + i, i);
    }
    assert_int_equal(stat_of(STORE).pinned, COUNT);
    assert_result(penstock_delete_prefix(STORE, "m/", 2, NULL), 0);
    for (int i = 0; i < COUNT; i++) {
        assert_true(filled(views[i].data, 3000 + i, i));
        penstock_view_release(STORE, &views[i]);
    }
    expect_unpinned(STORE);
}

/* Views count against a bound of the session: past it one is told so, at once. */
static void too_many_views(void **state)
{
    enum { COUNT = 4097 };
    struct penstock_view *views = calloc(COUNT, sizeof(*views));

    (void)state;
    assert_non_null(views);
    if (fixture.kind != KIND_MEM && place_has_views()) {
        put_value(STORE, "v", 100, 3);
        for (int i = 0; i < COUNT - 1; i++)
            views[i] = open_view("v", 100, 3);
        assert_result(penstock_view(STORE, "v", 1, &views[COUNT - 1]), -EMFILE);
        for (int i = 0; i < COUNT - 1; i++)
            penstock_view_release(STORE, &views[i]);
        views[0] = open_view("v", 100, 3);
        penstock_view_release(STORE, &views[0]);
        expect_unpinned(STORE);
    }
    free(views);
}

/* ---- memory ---- */

static void registered_memory(void **state)
{
    uint64_t bytes = 5 * MIB, value_bytes = 0;
    uint8_t *buf = bytes_new(bytes);

    (void)state;
    assert_result(penstock_register(STORE, NULL, 100), -EINVAL);
    assert_result(penstock_register(STORE, buf, 0), -EINVAL);
    assert_result(penstock_register(NULL, buf, bytes), -EINVAL);
    assert_result(penstock_deregister(STORE, buf), -EINVAL);
    assert_result(penstock_deregister(STORE, NULL), -EINVAL);
    assert_result(penstock_register(STORE, buf, bytes), 0);
    assert_result(penstock_deregister(STORE, buf + 1), -EINVAL);
    fill(buf, bytes, 3);
    assert_result(penstock_put(STORE, "r", 1, buf, bytes), 0);
    memset(buf, 0, bytes);
    assert_result(penstock_get(STORE, "r", 1, buf, bytes, &value_bytes), 0);
    assert_int_equal(value_bytes, bytes);
    assert_true(filled(buf, bytes, 3));
    assert_result(penstock_deregister(STORE, buf), 0);
    assert_result(penstock_deregister(STORE, buf), -EINVAL);
    assert_result(penstock_get(STORE, "r", 1, buf, bytes, NULL), 0); /* not needed, only faster */
    free(buf);
}

/* ---- the store itself ---- */

static void lane_and_ping(void **state)
{
    static const char *const lanes[] = {"memory", "tcp", "posix", "posix", "posix", "memory"};
    uint64_t ns = 0;

    (void)state;
    assert_string_equal(penstock_lane(STORE), lanes[fixture.kind]);
    for (int i = 0; i < 20; i++) {
        ns = 0;
        assert_result(penstock_ping(STORE, &ns), 0);
        assert_in_range(ns, 1, 5000000000);
    }
    assert_result(penstock_ping(STORE, NULL), 0);
}

/* What is left behind by a handle that closes: values stay, its views' pins go. */
static void second_handle(void **state)
{
    struct penstock *other;
    struct penstock_view view;

    (void)state;
    if (fixture.kind == KIND_MEM)
        return;
    other = place_handle(&fixture.place);
    assert_result(penstock_put(other, "other", 5, "value", 5), 0);
    assert_int_equal(stat_of(STORE).sessions, 2);
    if (place_has_views())
        assert_result(penstock_view(other, "other", 5, &view), 0);
    place_handle_close(&fixture.place, other); /* with the view's pin still there, as when a process dies */
    expect_unpinned(STORE);
    for (int i = 0; i < 500 && stat_of(STORE).sessions != 1; i++)
        usleep(10000);
    assert_int_equal(stat_of(STORE).sessions, 1);
    assert_result(penstock_exists(STORE, "other", 5), PENSTOCK_OK);
}

static const struct CMUnitTest tests[] = {
    TEST(view_contents), TEST(view_outlives_the_value), TEST(view_of_a_scattered_value),
    TEST(many_views),    TEST(too_many_views),          TEST(registered_memory),
    TEST(lane_and_ping), TEST(second_handle),
};

PART(part_views, tests);

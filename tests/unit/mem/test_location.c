/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/cm.h"

#include "mem/location.h"

#include <stdio.h>
#include <stdlib.h>

enum { ARENA = 10, PAGES = 40, RUNS_MAX = 8 };

static void assert_prints(const struct pst_location *l, const char *text)
{
    char buf[256];

    assert_int_equal(pst_location_print(l, buf, sizeof(buf)), strlen(text));
    assert_string_equal(buf, text);
}

/* Parses @text, and what it means prints as @text again. */
static struct pst_location parse(const char *text, struct pst_run *runs)
{
    struct pst_location l;

    assert_int_equal(pst_location_parse(text, ARENA, PAGES, runs, RUNS_MAX, &l), 0);
    assert_prints(&l, text);
    return l;
}

static void prints(void **state)
{
    struct pst_run runs[] = {{1, 2}, {5, 1}, {25, 1}, {20, 1}, {0, 1}};
    struct pst_location l = {.arena_pages = ARENA, .run_count = 5, .runs = runs};

    (void)state;
    assert_prints(&l, "0:p1,2,5;2:p5,0;0:p0");
    l.tail_page = 31;
    l.tail_start = 448;
    l.tail_bytes = 112;
    assert_prints(&l, "0:p1,2,5;2:p5,0;0:p0;3:s1+448/112");
    l.run_count = 0;
    assert_prints(&l, "3:s1+448/112");
    l.tail_bytes = 0;
    assert_prints(&l, "");
}

static void prints_like_snprintf(void **state)
{
    struct pst_run runs[] = {{8, 2}, {10, 2}};
    struct pst_location l = {.arena_pages = ARENA, .run_count = 2, .runs = runs};
    const char *whole = "0:p8,9;1:p0,1";

    (void)state;
    for (size_t cap = 0; cap < 20; cap++) {
        char buf[32];

        memset(buf, '#', sizeof(buf));
        assert_int_equal(pst_location_print(&l, buf, cap), strlen(whole));
        if (cap > 0) {
            assert_int_equal(strlen(buf), cap - 1 < strlen(whole) ? cap - 1 : strlen(whole));
            assert_memory_equal(buf, whole, strlen(buf));
        }
        assert_int_equal(buf[cap], '#');
    }
}

static void parses(void **state)
{
    struct pst_run runs[RUNS_MAX];
    struct pst_location l = parse("0:p1,2,5;2:p5,0;0:p0;3:s1+448/112", runs);

    (void)state;
    assert_int_equal(l.arena_pages, ARENA);
    assert_int_equal(l.run_count, 5);
    assert_ptr_equal(l.runs, runs);
    assert_int_equal(runs[0].page, 1);
    assert_int_equal(runs[0].count, 2);
    assert_int_equal(runs[2].page, 25);
    assert_int_equal(runs[4].page, 0);
    assert_int_equal(l.tail_page, 31);
    assert_int_equal(l.tail_start, 448);
    assert_int_equal(l.tail_bytes, 112);

    l = parse("1:s0+0/4294967295", runs);
    assert_int_equal(l.run_count, 0);
    assert_int_equal(l.tail_page, 10);
    assert_int_equal(parse("", runs).run_count, 0);
    assert_int_equal(parse("0:p2,1", runs).run_count, 2);        /* downwards is no run */
    assert_int_equal(parse("0:p8,9;1:p0,1", runs).run_count, 2); /* nor is one over arenas */
    assert_int_equal(parse("0:p1,2,3;2:p9", runs).run_count, 2);
}

/* clang-format off */
static const char *const malformed[] = {
    " ", "0", "0:", "0:p", "p1", ":p1", "0p1", "0:q1", "0:p1,", "0:,1", "0:p,1", "0:p1;", ";0:p1",
    "0:p1;;1:p1", "0:p1 ", " 0:p1", "0:p 1", "0:p+1", "0:p-1", "-1:p1", "+0:p1", "0:p01", "00:p1",
    "0:p1:2", "0:p1;2", "0:p1;2:", "0:p1;p2", "0:p1,2:p3", "0:p1-3", "0:p0x1", "0x0:p1", "0:p1\n",
    "0:P1", "0:s1", "0:s1+", "0:s1+0", "0:s1+0/", "0:s1+0/0", "0:s1/5", "0:s+0/5", "0:s1+0/5;",
    "0:s1+0/5,2", "0:s1+0/5;0:p1", "0:s1+0/5;0:s2+0/5", "0:s1+00/5", "0:s1+0/05", "0:s1+-1/5",
    "0:s1+4294967295/1", "0:s1+1/4294967295", "0:s1+4294967296/1", "0:s1+0/4294967296", "0:p1;0:s1 +0/5",
    "0:s1,2+0/5", "0:p1.5", "0:p1;0:", "0:p\xc2\xb2", "0::p1", "0:pp1", "0:ps1", "0:p1s2+0/4",
};
/* clang-format on */

static void malformed_is_refused(void **state)
{
    struct pst_run runs[RUNS_MAX];
    struct pst_location l = {.run_count = 77};

    (void)state;
    for (size_t i = 0; i < pst_count_of(malformed); i++) {
        int r = pst_location_parse(malformed[i], ARENA, PAGES, runs, RUNS_MAX, &l);

        if (r != -EINVAL)
            fail_msg("\"%s\" gives %d", malformed[i], r);
    }
    assert_int_equal(l.run_count, 77);
}

static void absent_pages_are_refused(void **state)
{
    static const char *const texts[] = {
        "0:p10",         "4:p0",          "3:p9,10",   "0:p4294967295",           "4294967295:p0",
        "0:p4294967296", "4294967296:p0", "0:s10+0/5", "99999999999999999999:p1", "429496730:p6",
    };
    struct pst_run runs[RUNS_MAX];
    struct pst_location l = {.run_count = 77};

    (void)state;
    for (size_t i = 0; i < pst_count_of(texts); i++)
        assert_int_equal(pst_location_parse(texts[i], ARENA, PAGES, runs, RUNS_MAX, &l), -ERANGE);
    /* A last arena that is not full. */
    assert_int_equal(pst_location_parse("3:p4", ARENA, 34, runs, RUNS_MAX, &l), -ERANGE);
    assert_int_equal(pst_location_parse("3:p3", ARENA, 34, runs, RUNS_MAX, &l), 0);
}

static void too_many_runs_are_refused(void **state)
{
    struct pst_run runs[3] = {{0}, {0}, {77, 77}};
    struct pst_location l;

    (void)state;
    assert_int_equal(pst_location_parse("0:p1,3,5", ARENA, PAGES, runs, 2, &l), -E2BIG);
    assert_int_equal(runs[2].page, 77);
    assert_int_equal(pst_location_parse("0:p1,2,3,5,6", ARENA, PAGES, runs, 2, &l), 0);
    assert_int_equal(pst_location_parse("0:p1", ARENA, PAGES, runs, 0, &l), -E2BIG);
    assert_int_equal(pst_location_parse("0:s1+0/64", ARENA, PAGES, runs, 0, &l), 0);
}

static void random_locations_round_trip(void **state)
{
    (void)state;
    srandom(11);
    for (int round = 0; round < 20000; round++) {
        struct pst_run runs[6], back[12];
        struct pst_location in = {.arena_pages = 100, .runs = runs}, out;
        uint32_t n = (uint32_t)(random() % 7), i = 0, k = 0, used = 0;
        char text[2048], again[2048];

        for (; in.run_count < n; in.run_count++) {
            uint32_t page = (uint32_t)(random() % 1000);

            runs[in.run_count] =
                (struct pst_run){page, (uint32_t)(random() % pst_min(20, 100 - page % 100)) + 1};
        }
        if (random() % 2) {
            in.tail_page = (uint32_t)(random() % 1000);
            in.tail_start = (uint32_t)random();
            in.tail_bytes = (uint32_t)random() + 1;
        }
        pst_location_print(&in, text, sizeof(text));
        assert_int_equal(pst_location_parse(text, 100, 1000, back, 12, &out), 0);
        assert_int_equal(out.tail_bytes, in.tail_bytes);
        assert_int_equal(out.tail_start, in.tail_start);
        assert_int_equal(out.tail_page, in.tail_page);
        /* Runs that touched may have been joined; the pages are the same. */
        for (uint32_t b = 0; b < out.run_count; b++) {
            for (uint32_t p = 0; p < back[b].count; p++) {
                assert_true(i < in.run_count);
                assert_int_equal(back[b].page + p, runs[i].page + used);
                if (++used == runs[i].count) {
                    i++;
                    used = 0;
                }
                k++;
            }
        }
        assert_int_equal(i, in.run_count);
        pst_location_print(&out, again, sizeof(again));
        assert_string_equal(again, text);
    }
}

/* Whatever one byte becomes, the parser answers and stays inside the text. */
static void damaged_text_is_survived(void **state)
{
    const char whole[] = "0:p1,2,5;2:p5,0;3:s1+448/112";

    (void)state;
    for (size_t at = 0; at < sizeof(whole) - 1; at++) {
        for (int c = 0; c < 256; c++) {
            char *text = strdup(whole);
            struct pst_run runs[RUNS_MAX];
            struct pst_location l;

            text[at] = (char)c;
            if (pst_location_parse(text, ARENA, PAGES, runs, RUNS_MAX, &l) == 0) {
                for (uint32_t i = 0; i < l.run_count; i++)
                    assert_true(runs[i].page + runs[i].count <= PAGES);
                assert_true(l.tail_page < PAGES);
            }
            free(text);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prints),
        cmocka_unit_test(prints_like_snprintf),
        cmocka_unit_test(parses),
        cmocka_unit_test(malformed_is_refused),
        cmocka_unit_test(absent_pages_are_refused),
        cmocka_unit_test(too_many_runs_are_refused),
        cmocka_unit_test(random_locations_round_trip),
        cmocka_unit_test(damaged_text_is_survived),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/cm.h"

#include "mem/pages.h"

#include <pthread.h>
#include <stdlib.h>

static struct pst_pages open_pages(uint32_t page_count, uint32_t arena_pages)
{
    struct pst_pages p;

    assert_int_equal(pst_pages_init(&p, page_count, arena_pages), 0);
    assert_int_equal(p.free_count, page_count);
    return p;
}

static void claim(struct pst_pages *p, uint32_t page, uint32_t count)
{
    assert_int_equal(pst_pages_claim(p, (struct pst_run){page, count}), 0);
}

static uint32_t give(struct pst_pages *p, uint32_t page, uint32_t count)
{
    struct pst_run run = {page, count};

    return pst_pages_give(p, &run, 1);
}

/* Leaves only the pages in @free (ended by UINT32_MAX). */
static void leave_free(struct pst_pages *p, const uint32_t *free_pages)
{
    claim(p, 0, p->page_count);
    for (; *free_pages != UINT32_MAX; free_pages++)
        give(p, *free_pages, 1);
}

static void assert_run(struct pst_run run, uint32_t page, uint32_t count)
{
    assert_int_equal(run.page, page);
    assert_int_equal(run.count, count);
}

static void bad_sizes_are_refused(void **state)
{
    struct pst_pages p;

    (void)state;
    assert_int_equal(pst_pages_init(&p, 0, 4), -EINVAL);
    assert_int_equal(pst_pages_init(&p, 4, 0), -EINVAL);
    assert_int_equal(pst_pages_init(&p, UINT32_MAX, 4), -EINVAL);
}

static void contiguous_is_first_fit(void **state)
{
    struct pst_pages p = open_pages(1000, 1000);
    struct pst_run run;

    (void)state;
    assert_int_equal(pst_pages_take(&p, 200, &run, 1), 1);
    assert_run(run, 0, 200);
    assert_int_equal(pst_pages_take(&p, 1, &run, 1), 1);
    assert_run(run, 200, 1);
    assert_int_equal(give(&p, 10, 3), 3);
    assert_int_equal(give(&p, 63, 66), 66);
    assert_int_equal(pst_pages_take(&p, 4, &run, 1), 1);
    assert_run(run, 63, 4);
    assert_int_equal(pst_pages_take(&p, 1, &run, 1), 1);
    assert_run(run, 10, 1);
    assert_int_equal(pst_pages_take(&p, 62, &run, 1), 1);
    assert_run(run, 67, 62);
    assert_int_equal(pst_pages_take(&p, 3, &run, 1), 1);
    assert_run(run, 201, 3);
    assert_int_equal(p.free_count, 1000 - 201 - 3 + 2);
    pst_pages_fini(&p);
}

static void runs_stay_within_an_arena(void **state)
{
    struct pst_pages p = open_pages(30, 10);
    struct pst_run runs[4];

    (void)state;
    claim(&p, 0, 6);
    assert_int_equal(pst_pages_take(&p, 8, runs, 4), 1);
    assert_run(runs[0], 10, 8);
    assert_int_equal(pst_pages_take(&p, 11, runs, 4), 3); /* more than one arena holds */
    assert_run(runs[0], 6, 4);
    assert_run(runs[1], 18, 2);
    assert_run(runs[2], 20, 5);
    pst_pages_fini(&p);
}

static void scattered_prefers_one_arena(void **state)
{
    struct pst_pages p = open_pages(200, 100);
    struct pst_run runs[4];

    (void)state;
    leave_free(&p, (const uint32_t[]){3, 64, 110, 112, 163, UINT32_MAX});
    assert_int_equal(pst_pages_take(&p, 3, runs, 4), 3);
    assert_run(runs[0], 110, 1);
    assert_run(runs[1], 112, 1);
    assert_run(runs[2], 163, 1);
    assert_int_equal(pst_pages_take(&p, 2, runs, 4), 2);
    assert_run(runs[0], 3, 1);
    assert_run(runs[1], 64, 1);
    assert_int_equal(p.free_count, 0);
    pst_pages_fini(&p);
}

static void scattered_goes_over_arenas(void **state)
{
    struct pst_pages p = open_pages(200, 100);
    struct pst_run runs[4];

    (void)state;
    leave_free(&p, (const uint32_t[]){3, 99, 100, 101, 163, UINT32_MAX});
    assert_int_equal(pst_pages_take(&p, 5, runs, 4), 4);
    assert_run(runs[0], 3, 1);
    assert_run(runs[1], 99, 1);
    assert_run(runs[2], 100, 2);
    assert_run(runs[3], 163, 1);
    pst_pages_fini(&p);
}

static void refusals_take_nothing(void **state)
{
    struct pst_pages p = open_pages(200, 100);
    struct pst_run runs[4];

    (void)state;
    leave_free(&p, (const uint32_t[]){1, 3, 5, 107, 109, UINT32_MAX});
    assert_int_equal(pst_pages_take(&p, 6, runs, 4), -ENOSPC);
    assert_int_equal(p.free_count, 5);
    assert_int_equal(pst_pages_take(&p, 5, runs, 4), -E2BIG);
    assert_int_equal(p.free_count, 5);
    assert_int_equal(pst_pages_take(&p, 2, runs, 1), -E2BIG);
    assert_int_equal(p.free_count, 5);
    assert_int_equal(give(&p, 0, 200), 195);
    pst_pages_fini(&p);
}

/* Runs that come first are too short for @runs_max; the longest ones do. */
static void few_runs_are_found(void **state)
{
    struct pst_pages p = open_pages(400, 400);
    struct pst_run runs[2];

    (void)state;
    claim(&p, 0, 400);
    for (uint32_t i = 0; i < 100; i += 2)
        give(&p, i, 1);
    give(&p, 150, 5);
    give(&p, 200, 3);
    give(&p, 300, 5);
    assert_int_equal(pst_pages_take(&p, 11, runs, 2), -E2BIG);
    assert_int_equal(pst_pages_take(&p, 9, runs, 2), 2);
    assert_run(runs[0], 150, 5);
    assert_run(runs[1], 300, 4);
    give(&p, 150, 5);
    assert_int_equal(pst_pages_take(&p, 8, runs, 2), 2);
    assert_run(runs[0], 150, 5);
    assert_run(runs[1], 200, 3);
    pst_pages_fini(&p);
}

static void giving_twice_is_harmless(void **state)
{
    struct pst_pages p = open_pages(300, 100);
    struct pst_run run, two[2];

    (void)state;
    assert_int_equal(pst_pages_take(&p, 100, &run, 1), 1);
    two[0] = two[1] = run;
    assert_int_equal(pst_pages_give(&p, two, 2), 100);
    assert_int_equal(pst_pages_give(&p, &run, 1), 0);
    assert_int_equal(p.free_count, 300);
    claim(&p, 50, 10);
    assert_int_equal(give(&p, 0, 300), 10);
    assert_int_equal(p.free_count, 300);
    pst_pages_fini(&p);
}

static void claims_are_all_or_nothing(void **state)
{
    struct pst_pages p = open_pages(300, 100);
    struct pst_run run;

    (void)state;
    claim(&p, 64, 64);
    assert_int_equal(pst_pages_claim(&p, (struct pst_run){0, 65}), -EEXIST);
    assert_int_equal(pst_pages_claim(&p, (struct pst_run){127, 2}), -EEXIST);
    assert_int_equal(p.free_count, 236);
    assert_int_equal(pst_pages_claim(&p, (struct pst_run){300, 1}), -ERANGE);
    assert_int_equal(pst_pages_claim(&p, (struct pst_run){299, 2}), -ERANGE);
    assert_int_equal(pst_pages_claim(&p, (struct pst_run){1, UINT32_MAX}), -ERANGE);
    claim(&p, 0, 64);
    assert_int_equal(pst_pages_take(&p, 1, &run, 1), 1);
    assert_run(run, 128, 1);
    pst_pages_fini(&p);
}

/* Against one byte a page: nothing is handed out twice and every refusal was right. */
static void model_check(void **state)
{
    enum { PAGES = 517, ARENA = 173, HELD = 200 };
    struct pst_pages p = open_pages(PAGES, ARENA);
    struct {
        struct pst_run runs[8];
        int n;
    } held[HELD];
    bool taken[PAGES] = {false};
    uint32_t free_count = PAGES;
    int held_count = 0;

    (void)state;
    srandom(7);
    for (int round = 0; round < 200000; round++) {
        if (random() % 2 && held_count < HELD) {
            uint32_t count = (uint32_t)(random() % 12 + 1), sum = 0;
            int n = pst_pages_take(&p, count, held[held_count].runs, 8);

            assert_true(n > 0 || n == -E2BIG || (n == -ENOSPC && free_count < count));
            for (int i = 0; i < n; i++) {
                struct pst_run run = held[held_count].runs[i];

                assert_true(i == 0 || run.page >= held[held_count].runs[i - 1].page + 1);
                assert_int_equal(run.page / ARENA, (run.page + run.count - 1) / ARENA);
                for (uint32_t k = 0; k < run.count; k++) {
                    assert_false(taken[run.page + k]);
                    taken[run.page + k] = true;
                }
                sum += run.count;
            }
            if (n > 0) {
                assert_int_equal(sum, count);
                held[held_count++].n = n;
                free_count -= count;
            }
        } else if (held_count > 0) {
            int i = (int)(random() % held_count);
            uint32_t sum = 0;

            for (int k = 0; k < held[i].n; k++) {
                sum += held[i].runs[k].count;
                memset(taken + held[i].runs[k].page, 0, held[i].runs[k].count);
            }
            assert_int_equal(pst_pages_give(&p, held[i].runs, held[i].n), sum);
            free_count += sum;
            held[i] = held[--held_count];
        }
        assert_int_equal(p.free_count, free_count);
    }
    pst_pages_fini(&p);
}

enum { HAMMER_PAGES = 512, HAMMER_THREADS = 4, HAMMER_ROUNDS = 20000 };

struct hammer {
    struct pst_pages pages;
    _Atomic int owner[HAMMER_PAGES];
    _Atomic int clashes;
};

static void hold(struct hammer *h, const struct pst_run *runs, int n, int from, int to)
{
    for (int i = 0; i < n; i++) {
        for (uint32_t p = runs[i].page; p < runs[i].page + runs[i].count; p++) {
            if (atomic_exchange(&h->owner[p], to) != from)
                h->clashes++;
        }
    }
}

struct hammer_thread {
    struct hammer *hammer;
    int id;
};

static void *hammer_pages(void *arg)
{
    struct hammer_thread *t = arg;
    unsigned seed = (unsigned)t->id;

    for (int i = 0; i < HAMMER_ROUNDS; i++) {
        struct pst_run a[64], b[64];
        int na = pst_pages_take(&t->hammer->pages, (uint32_t)(rand_r(&seed) % 90 + 1), a, 64), nb;

        hold(t->hammer, a, na, 0, t->id);
        nb = pst_pages_take(&t->hammer->pages, 1, b, 64);
        hold(t->hammer, b, nb, 0, t->id);
        hold(t->hammer, a, na, t->id, 0);
        if (na > 0)
            pst_pages_give(&t->hammer->pages, a, na);
        hold(t->hammer, b, nb, t->id, 0);
        if (nb > 0)
            pst_pages_give(&t->hammer->pages, b, nb);
    }
    return NULL;
}

static void threads_never_share_a_page(void **state)
{
    static struct hammer h;
    struct hammer_thread threads[HAMMER_THREADS];
    pthread_t ids[HAMMER_THREADS];

    (void)state;
    h.pages = open_pages(HAMMER_PAGES, HAMMER_PAGES / 4);
    for (int i = 0; i < HAMMER_THREADS; i++) {
        threads[i] = (struct hammer_thread){&h, i + 1};
        assert_int_equal(pthread_create(&ids[i], NULL, hammer_pages, &threads[i]), 0);
    }
    for (int i = 0; i < HAMMER_THREADS; i++)
        pthread_join(ids[i], NULL);
    assert_int_equal(h.clashes, 0);
    assert_int_equal(h.pages.free_count, HAMMER_PAGES);
    pst_pages_fini(&h.pages);
}

static void held_pages_stay_taken(void **state)
{
    struct pst_pages p;
    struct pst_run run;

    (void)state;
    assert_int_equal(pst_pages_init(&p, 130, 65), 0);
    assert_int_equal(pst_pages_take(&p, 2, &run, 1), 1);
    assert_int_equal(pst_pages_hold(&p, 1), 0);
    assert_int_equal(pst_pages_hold(&p, 2), 0);
    assert_int_equal(pst_pages_hold(&p, 2), 0);
    assert_int_equal(p.free_count, 127);
    assert_int_equal(give(&p, 0, 2), 1);
    assert_int_equal(give(&p, 1, 1), 0);
    assert_int_equal(p.free_count, 128);
    for (uint32_t i = 0; i < 128; i++) {
        assert_int_equal(pst_pages_take(&p, 1, &run, 1), 1);
        assert_run(run, i ? i + 2 : 0, 1);
    }
    assert_int_equal(pst_pages_take(&p, 1, &run, 1), -ENOSPC);
    pst_pages_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_sizes_are_refused),      cmocka_unit_test(contiguous_is_first_fit),
        cmocka_unit_test(runs_stay_within_an_arena),  cmocka_unit_test(scattered_prefers_one_arena),
        cmocka_unit_test(scattered_goes_over_arenas), cmocka_unit_test(refusals_take_nothing),
        cmocka_unit_test(few_runs_are_found),         cmocka_unit_test(giving_twice_is_harmless),
        cmocka_unit_test(claims_are_all_or_nothing),  cmocka_unit_test(model_check),
        cmocka_unit_test(held_pages_stay_taken),      cmocka_unit_test(threads_never_share_a_page),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

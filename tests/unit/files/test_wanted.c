/* SPDX-License-Identifier: Apache-2.0 */
/* test_wanted.c: chunks of a new file that are found in what is there already. */
#include "files/tree/wanted.h"

#include "lib/cm.h"

enum { PLACES = 8 };

struct places {
    uint64_t at[PLACES];
    uint32_t count;
    int error; /* what the next place meets */
};

static int note_place(void *ctx, uint64_t at)
{
    struct places *places = ctx;

    assert_true(places->count < PLACES);
    places->at[places->count++] = at;
    return places->error;
}

static struct pst_digest digest(uint8_t number)
{
    return (struct pst_digest){{number, 1, 2, 3}};
}

static int add(struct pst_wanted *wanted, uint8_t number, uint32_t bytes, uint64_t file_bytes)
{
    const struct pst_digest known = digest(number);

    return pst_wanted_add(wanted, &known, bytes, file_bytes);
}

static uint32_t take(struct pst_wanted *wanted, uint8_t number, uint32_t bytes)
{
    const struct pst_digest known = digest(number);
    struct places places = {0};

    assert_int_equal(pst_wanted_take(wanted, &known, bytes, note_place, &places), 0);
    return places.count;
}

static void each_place_is_taken_once(void **state)
{
    enum { BYTES = PST_CHUNK_BYTES };
    struct pst_wanted wanted = {0};
    struct places places = {0};
    const struct pst_digest twice = digest(7);
    uint8_t bits = 0xff;

    (void)state;
    for (uint8_t i = 0; i < 4; i++) /* 7, 1, 7, 3, and 5 bytes with the digest of 3 */
        assert_int_equal(add(&wanted, i % 2 ? i : 7, BYTES, 4 * BYTES + 5), 0);
    assert_int_equal(add(&wanted, 3, 5, 4 * BYTES + 5), 0);
    assert_int_equal(pst_wanted_sort(&wanted), 0);
    pst_wanted_bits(&wanted, &bits);
    assert_int_equal(bits, 0x1f);
    assert_int_equal(pst_wanted_take(&wanted, &twice, BYTES, note_place, &places), 0);
    assert_int_equal(places.count, 2);
    assert_int_equal(places.at[0] + places.at[1], 2 * BYTES);
    assert_int_equal(take(&wanted, 7, BYTES), 0);
    assert_int_equal(take(&wanted, 7, BYTES - 1), 0);
    assert_int_equal(take(&wanted, 9, BYTES), 0);
    assert_int_equal(take(&wanted, 3, 5), 1);
    pst_wanted_bits(&wanted, &bits);
    assert_int_equal(bits, 0x0a);
    assert_int_equal(wanted.taken, 3);
    assert_int_equal(wanted.taken_bytes, 2 * BYTES + 5);
    pst_wanted_fini(&wanted);
}

static void a_place_that_fails_is_wanted_still(void **state)
{
    const struct pst_digest known = digest(1);
    struct places places = {.error = -ENOSPC};
    struct pst_wanted wanted = {0};

    (void)state;
    assert_int_equal(add(&wanted, 1, 10, 10), 0);
    assert_int_equal(pst_wanted_sort(&wanted), 0);
    assert_int_equal(pst_wanted_take(&wanted, &known, 10, note_place, &places), -ENOSPC);
    assert_int_equal(wanted.taken, 0);
    assert_int_equal(take(&wanted, 1, 10), 1);
    pst_wanted_fini(&wanted);
}

static void lists_that_no_file_has(void **state)
{
    struct pst_wanted wanted = {0};

    (void)state;
    assert_int_equal(add(&wanted, 1, 0, 1 << 20), -EPROTO);
    assert_int_equal(add(&wanted, 1, PST_CHUNK_BYTES_MAX + 1, 1 << 20), -EPROTO);
    assert_int_equal(add(&wanted, 1, PST_CHUNK_BYTES_MIN - 1, 1 << 20),
                     -EPROTO); /* small ones are the last */
    assert_int_equal(add(&wanted, 1, 11, 10), -EPROTO);
    assert_int_equal(add(&wanted, 1, 10, 10), 0);
    assert_int_equal(add(&wanted, 1, 1, 10), -EPROTO);
    pst_wanted_fini(&wanted);
    for (uint32_t i = 0; i < PST_WANTED_MAX; i++)
        assert_int_equal(add(&wanted, 1, PST_CHUNK_BYTES_MIN, UINT64_MAX), 0);
    assert_int_equal(add(&wanted, 1, PST_CHUNK_BYTES_MIN, UINT64_MAX), -EPROTO);
    pst_wanted_fini(&wanted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_place_is_taken_once),
        cmocka_unit_test(a_place_that_fails_is_wanted_still),
        cmocka_unit_test(lists_that_no_file_has),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Milliseconds as nanoseconds: at the edges a time is never, not over. */
#include "lib/cm.h"

#include "base/ms.h"
#include "pool/lease.h"

enum { MS = 1000000 };

static void converts_up_to_what_fits(void **state)
{
    (void)state;
    assert_true(pst_ns_of_ms(0) == 0);
    assert_true(pst_ns_of_ms(1) == MS);
    assert_true(pst_ns_of_ms(UINT32_MAX) == 4294967295000000u);
    assert_true(pst_ns_of_ms(UINT64_MAX / MS) == UINT64_MAX / MS * MS);
    assert_true(pst_ns_of_ms(UINT64_MAX / MS + 1) == UINT64_MAX);
    assert_true(pst_ns_of_ms(UINT64_MAX) == UINT64_MAX);
}

static void deadlines_never_lie_before_their_begin(void **state)
{
    (void)state;
    assert_true(pst_deadline_ns(0, 0) == 0);
    assert_true(pst_deadline_ns(7, 1) == MS + 7);
    assert_true(pst_deadline_ns(7, UINT32_MAX) == 4294967295000007u);
    assert_true(pst_deadline_ns(7, UINT64_MAX) == UINT64_MAX);
    assert_true(pst_deadline_ns(UINT64_MAX, 0) == UINT64_MAX);
    assert_true(pst_deadline_ns(UINT64_MAX - MS, 1) == UINT64_MAX);
    assert_true(pst_deadline_ns(UINT64_MAX - MS + 1, 1) == UINT64_MAX);
    assert_true(pst_deadline_ns(UINT64_MAX, UINT64_MAX) == UINT64_MAX);
}

static void what_is_left_is_rounded_up(void **state)
{
    (void)state;
    assert_true(pst_ms_left(0, 0) == 0);
    assert_true(pst_ms_left(1, 0) == 1);
    assert_true(pst_ms_left(MS, 0) == 1);
    assert_true(pst_ms_left(MS + 1, 0) == 2);
    assert_true(pst_ms_left(5, 6) == 0);
    assert_true(pst_ms_left(0, UINT64_MAX) == 0);
    assert_true(pst_ms_left(UINT64_MAX, 0) == UINT64_MAX / MS + 1);
    assert_true(pst_ms_left(UINT64_MAX, UINT64_MAX) == 0);
}

/* A lease that would end after the clock does has not ended already. */
static void a_lease_may_be_of_any_length(void **state)
{
    static const uint64_t lengths_ms[] = {1, UINT32_MAX, UINT64_MAX / MS + 1, UINT64_MAX};

    (void)state;
    for (size_t i = 0; i < pst_count_of(lengths_ms); i++) {
        struct pst_lease lease = {0};

        assert_true(pst_lease_grant(&lease, 5, lengths_ms[i], 1, 1));
        assert_true(lease.until_ns > MS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(converts_up_to_what_fits),
        cmocka_unit_test(deadlines_never_lie_before_their_begin),
        cmocka_unit_test(what_is_left_is_rounded_up),
        cmocka_unit_test(a_lease_may_be_of_any_length),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

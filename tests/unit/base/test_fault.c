/* SPDX-License-Identifier: Apache-2.0 */
/* Fault points: armed by text, the same passes fail in every run. And what fails is told, not broken. */
#include "lib/cm.h"

#include "base/fault.h"

static uint64_t failed(enum pst_fault fault, uint64_t passes)
{
    uint64_t count = 0;

    for (uint64_t i = 0; i < passes; i++)
        count += pst_fault(fault);
    return count;
}

static void nothing_fails_unarmed(void **state)
{
    (void)state;
    assert_int_equal(pst_faults_arm(""), 0);
    assert_int_equal(failed(PST_FAULT_pages_enospc, 1000), 0);
    assert_int_equal(pst_fault_passes(PST_FAULT_pages_enospc), 1000);
}

static void the_nth_pass_fails(void **state)
{
    (void)state;
    assert_int_equal(pst_faults_arm("pages_enospc:nth=3,net_send_busy:nth=1"), 0);
    assert_false(pst_fault(PST_FAULT_pages_enospc));
    assert_true(pst_fault(PST_FAULT_net_send_busy));
    assert_false(pst_fault(PST_FAULT_pages_enospc));
    assert_true(pst_fault(PST_FAULT_pages_enospc));
    assert_int_equal(failed(PST_FAULT_pages_enospc, 1000), 0);
    assert_int_equal(failed(PST_FAULT_net_send_busy, 1000), 0);
    assert_int_equal(pst_fault_passes(PST_FAULT_pages_enospc), 1003);
    assert_int_equal(pst_fault_hits(PST_FAULT_pages_enospc), 1);
}

static void chance_is_replayed(void **state)
{
    enum { PASSES = 100000 };
    bool first[PASSES];
    uint64_t count, other = 0;

    (void)state;
    assert_int_equal(pst_faults_arm("index_enomem:per_million=10000,seed=42"), 0);
    for (int i = 0; i < PASSES; i++)
        first[i] = pst_fault(PST_FAULT_index_enomem);
    count = pst_fault_hits(PST_FAULT_index_enomem);
    assert_in_range(count, PASSES / 100 - 200, PASSES / 100 + 200);
    assert_int_equal(pst_faults_arm("index_enomem:per_million=10000,seed=42"), 0);
    for (int i = 0; i < PASSES; i++)
        assert_int_equal(pst_fault(PST_FAULT_index_enomem), first[i]);
    assert_int_equal(pst_faults_arm("seed=43,index_enomem:per_million=10000"), 0);
    for (int i = 0; i < PASSES; i++)
        other += pst_fault(PST_FAULT_index_enomem) != first[i];
    assert_true(other > 1000);
}

static void wrong_text_is_refused(void **state)
{
    static const char *const texts[] = {"nothing:nth=1",          "pages_enospc",
                                        "pages_enospc:nth",       "pages_enospc:nth=",
                                        "pages_enospc:nth=x",     "pages_enospc:often=1",
                                        "pages_enospc:nth=-1",    "pages_enosp:nth=1",
                                        "pages_enospc2:nth=1",    "seed=x",
                                        "net_send_busy:nth=1,no", "nth=1"};

    (void)state;
    for (size_t i = 0; i < pst_count_of(texts); i++) {
        assert_int_equal(pst_faults_arm(texts[i]), -EINVAL);
        assert_int_equal(failed(PST_FAULT_pages_enospc, 10) + failed(PST_FAULT_net_send_busy, 10), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_fails_unarmed),
        cmocka_unit_test(the_nth_pass_fails),
        cmocka_unit_test(chance_is_replayed),
        cmocka_unit_test(wrong_text_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Times in buckets: which kind a request is, and which bucket its time. */
#include "lib/cm.h"

#include "node/times.h"
#include "node/trace.h"
#include "wire/codes.h"

static void a_request_has_one_kind_or_is_mixed(void **state)
{
    const uint64_t get = 1ull << PST_WIRE_GET, put = 1ull << PST_WIRE_PUT, list = 1ull << PST_WIRE_LIST;

    (void)state;
    assert_int_equal(pst_time_of_codes(get), PST_TIME_get);
    assert_int_equal(pst_time_of_codes(put), PST_TIME_put);
    assert_int_equal(pst_time_of_codes(list), PST_TIME_list);
    assert_int_equal(pst_time_of_codes(1ull << PST_TRACE_ROLE), PST_TIME_pool);
    assert_int_equal(pst_time_of_codes(1ull << PST_WIRE_PING), PST_TIME_other);
    assert_int_equal(pst_time_of_codes(0), PST_TIME_other); /* none of its operations could be */
    assert_int_equal(pst_time_of_codes(get | put), PST_TIME_mixed);
    assert_int_equal(pst_time_of_codes(get | 1ull << PST_TRACE_ROLE), PST_TIME_mixed);
}

static void every_time_has_its_bucket(void **state)
{
    static const struct {
        uint64_t ns;
        uint32_t bucket;
    } cases[] = {{0, 0},           {255, 0},         {256, 1},         {511, 1},
                 {512, 2},         {1023, 2},        {1024, 3},        {1000000, 12},
                 {1000000000, 22}, {4294967295, 24}, {4294967296, 25}, {UINT64_MAX, 25}};

    (void)state;
    for (size_t i = 0; i < pst_count_of(cases); i++) {
        struct pst_time time = {0};

        pst_time_add(&time, cases[i].ns, 1);
        assert_int_equal(time.total_ns, cases[i].ns);
        for (uint32_t bucket = 0; bucket < PST_TIME_BUCKETS; bucket++)
            assert_int_equal(time.counts[bucket], bucket == cases[i].bucket);
    }
}

static void what_ends_in_its_round_takes_as_long(void **state)
{
    struct pst_times times = {0};
    const uint64_t get = 1ull << PST_WIRE_GET, put = 1ull << PST_WIRE_PUT;

    (void)state;
    pst_times_round(&times, 1000); /* nothing ended */
    pst_times_end(&times, get, 3, 0);
    pst_times_end(&times, put, 1, 0);
    pst_times_end(&times, get, 2, 0);
    pst_times_end(&times, get, 4, 70000); /* it began earlier */
    pst_times_round(&times, 300);
    pst_times_round(&times, 5000); /* it counts for no later one */
    assert_int_equal(times.of[PST_TIME_get].counts[1], 5);
    assert_int_equal(times.of[PST_TIME_get].counts[9], 4);
    assert_int_equal(times.of[PST_TIME_get].total_ns, 5 * 300 + 4 * 70000);
    assert_int_equal(times.of[PST_TIME_put].counts[1], 1);
    assert_int_equal(times.of[PST_TIME_put].total_ns, 300);
    assert_int_equal(times.kinds, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_has_one_kind_or_is_mixed),
        cmocka_unit_test(every_time_has_its_bucket),
        cmocka_unit_test(what_ends_in_its_round_takes_as_long),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

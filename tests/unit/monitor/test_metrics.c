/* SPDX-License-Identifier: Apache-2.0 */
/* The page of /metrics beyond what a node tells today: too many series, names that have to be quoted. */
#include "lib/cm.h"

#include "monitor/monitor_priv.h"

#include <stdio.h>

enum { GRANTS = 3000, TEXT_BYTES = 64 * GRANTS };

static int never_ready(void *ctx, char fault[PST_FAULT_BYTES])
{
    (void)ctx;
    snprintf(fault, PST_FAULT_BYTES, "never");
    return -EAGAIN;
}

static const struct pst_monitor_ops ops = {.role = "node", .ready = never_ready};

static int set_up(void **state)
{
    const struct pst_monitor_settings settings = {.http = "127.0.0.1:0"};
    struct pst_monitor *monitor = NULL;
    char fault[PST_FAULT_BYTES] = "";

    assert_int_equal(pst_monitor_open(&settings, &ops, NULL, &monitor, fault), 0);
    *state = monitor;
    return 0;
}

static int tear_down(void **state)
{
    assert_null(pst_monitor_close(*state));
    return 0;
}

/* The caller frees it. */
static char *page_of(struct pst_monitor *monitor, const char *text)
{
    struct penstock_stat stat = {.size = sizeof(stat), .keys = 7};
    struct pst_web_answer answer = {.status = 200};

    assert_int_equal(monitor_print(monitor, &stat, text, &answer), 0);
    assert_non_null(answer.text);
    return answer.text;
}

static unsigned count_series(const char *page)
{
    unsigned count = 0;

    for (const char *line = page; *line; line = strchr(line, '\n') + 1)
        count += *line != '#';
    return count;
}

static unsigned long long value_of(const char *page, const char *metric)
{
    char start[128];
    const char *found;

    snprintf(start, sizeof(start), "\n%s ", metric);
    found = strstr(page, start);
    assert_non_null(found);
    return strtoull(found + strlen(start), NULL, 10);
}

static void series_beyond_the_bound_are_counted(void **state)
{
    char *text = calloc(1, TEXT_BYTES), *to = text, *page = page_of(*state, "");
    unsigned all = count_series(page) + GRANTS;

    assert_int_equal(value_of(page, "penstock_http_series_dropped_total"), 0);
    free(page);
    for (unsigned i = 0; i < GRANTS; i++)
        to += sprintf(to, "grant.g%u.connections 1\n", i);
    for (unsigned times = 1; times <= 2; times++) {
        page = page_of(*state, text);
        assert_in_range(count_series(page), MONITOR_SERIES_MAX, MONITOR_SERIES_MAX + 10);
        assert_int_equal(value_of(page, "penstock_http_series_dropped_total"),
                         (uint64_t)times * (all - count_series(page)));
        assert_int_equal(value_of(page, "penstock_http_scrapes_total"), times + 1);
        assert_int_equal(value_of(page, "penstock_keys"), 7);
        free(page);
    }
    free(text);
}

static void labels_are_quoted(void **state)
{
    char *page = page_of(*state, "grant.a\"b\\c\td\xc3\xa9.connections 5\n");

    assert_non_null(strstr(page, "\npenstock_grant_connections{grant=\"a\\\"b\\\\c?d\xc3\xa9\"} 5\n"));
    free(page);
}

static void lines_that_are_none_are_passed_over(void **state)
{
    static const char *const texts[] = {"",
                                        "\n\n",
                                        "grant.a.connections\n",
                                        "grant.a.connections 5",
                                        " 5\n \n",
                                        "connections 1\n",
                                        "grant..connections 1\n",
                                        "call_ 1\ncall__total_us 1\n"};

    for (size_t i = 0; i < pst_count_of(texts); i++) {
        char *page = page_of(*state, texts[i]);

        assert_null(strstr(page, "penstock_grant_"));
        assert_null(strstr(page, "penstock_pool_call"));
        free(page);
    }
}

static void a_call_is_a_histogram(void **state)
{
    char *page =
        page_of(*state, "call_join 9\ncall_join_failed 2\ncall_join_total_us 1500000\ncall_join_us_1 3\n"
                        "call_join_us_4 5\ncall_join_us_more 1\ncall_join_us_3000000000 0\n");

    assert_non_null(strstr(page, "penstock_pool_call_failures_total{call=\"join\"} 2\n"));
    assert_non_null(strstr(page, "seconds_bucket{call=\"join\",le=\"1e-06\"} 3\n"));
    assert_non_null(strstr(page, "seconds_bucket{call=\"join\",le=\"2e-06\"} 3\n"));
    assert_non_null(strstr(page, "seconds_bucket{call=\"join\",le=\"4e-06\"} 8\n"));
    assert_non_null(strstr(page, "seconds_bucket{call=\"join\",le=\"+Inf\"} 9\n"));
    assert_non_null(strstr(page, "seconds_sum{call=\"join\"} 1.500000\n"));
    assert_non_null(strstr(page, "seconds_count{call=\"join\"} 9\n"));
    free(page);
}

static void it_refuses_to_be_open_to_all(void **state)
{
    static const char *const addresses[] = {"0.0.0.0:0", "[::]:0", "192.0.2.1:80"};
    struct pst_monitor *monitor = NULL;

    (void)state;
    for (size_t i = 0; i < pst_count_of(addresses); i++) {
        const struct pst_monitor_settings settings = {.http = addresses[i]};
        char fault[PST_FAULT_BYTES] = "";

        assert_int_equal(pst_monitor_open(&settings, &ops, NULL, &monitor, fault), -EINVAL);
        assert_string_equal(fault, "http: off loopback it needs http_token_file or tls_certificate");
    }
    assert_null(monitor);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(series_beyond_the_bound_are_counted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(labels_are_quoted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(lines_that_are_none_are_passed_over, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_call_is_a_histogram, set_up, tear_down),
        cmocka_unit_test(it_refuses_to_be_open_to_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

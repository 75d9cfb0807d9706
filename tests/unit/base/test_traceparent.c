/* SPDX-License-Identifier: Apache-2.0 */
/* test_traceparent.c: which texts name a trace, by W3C's Trace Context. */
#include "lib/cm.h"

#include "base/traceparent.h"

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define SPAN  "00f067aa0ba902b7"

static int parse(const char *text, struct pst_traceparent *out)
{
    size_t bytes = strlen(text);
    char *tight = malloc(bytes ? bytes : 1); /* so that a sanitizer sees a step beyond */
    int r;

    memcpy(tight, text, bytes);
    r = pst_traceparent_parse((struct pst_bytes){tight, bytes}, out);
    free(tight);
    return r;
}

static void what_is_read_is_written(void **state)
{
    static const char text[] = "00-" TRACE "-" SPAN "-01";
    struct pst_traceparent trace;
    char again[PST_TRACEPARENT_TEXT_BYTES];

    (void)state;
    assert_int_equal(parse(text, &trace), 0);
    assert_int_equal(trace.trace_id[0], 0x4b);
    assert_int_equal(trace.span_id[7], 0xb7);
    assert_int_equal(trace.flags, PST_TRACE_SAMPLED);
    assert_true(pst_traceparent_is(&trace));
    pst_traceparent_print(&trace, again);
    assert_string_equal(again, text);
}

static void unknown_flags_are_left_out(void **state)
{
    struct pst_traceparent trace;

    (void)state;
    assert_int_equal(parse("00-" TRACE "-" SPAN "-ff", &trace), 0);
    assert_int_equal(trace.flags, PST_TRACE_SAMPLED | PST_TRACE_RANDOM);
    assert_int_equal(parse("00-" TRACE "-" SPAN "-00", &trace), 0);
    assert_int_equal(trace.flags, 0);
}

static void a_later_version_may_say_more(void **state)
{
    struct pst_traceparent trace;

    (void)state;
    assert_int_equal(parse("cc-" TRACE "-" SPAN "-01", &trace), 0);
    assert_int_equal(parse("cc-" TRACE "-" SPAN "-01-what-the-future-brings", &trace), 0);
    assert_int_equal(trace.flags, PST_TRACE_SAMPLED);
    assert_int_equal(parse("cc-" TRACE "-" SPAN "-01.more", &trace), -EINVAL);
}

static void other_texts_are_refused(void **state)
{
    static const char *const wrong[] = {
        "",
        "00",
        "00-" TRACE "-" SPAN,
        "00-" TRACE "-" SPAN "-0",
        "00-" TRACE "-" SPAN "-01-",
        "00-" TRACE "-" SPAN "-01 ",
        " 00-" TRACE "-" SPAN "-01",
        "ff-" TRACE "-" SPAN "-01",
        "0g-" TRACE "-" SPAN "-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-" SPAN "-01",
        "00-00000000000000000000000000000000-" SPAN "-01",
        "00-" TRACE "-0000000000000000-01",
        "00-" TRACE "_" SPAN "-01",
        "00-" TRACE "-" SPAN "-0x",
        "00--" TRACE SPAN "-01",
    };
    struct pst_traceparent trace = {.flags = 77};

    (void)state;
    for (size_t i = 0; i < pst_count_of(wrong); i++)
        assert_int_equal(parse(wrong[i], &trace), -EINVAL);
    assert_int_equal(trace.flags, 77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_read_is_written),
        cmocka_unit_test(unknown_flags_are_left_out),
        cmocka_unit_test(a_later_version_may_say_more),
        cmocka_unit_test(other_texts_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

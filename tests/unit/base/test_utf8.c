/* SPDX-License-Identifier: Apache-2.0 */
/* What is text, and what becomes of the rest. */
#include "lib/cm.h"

#include "base/utf8.h"

#include <stdio.h>

static void repair(const char *from, const char *to)
{
    char text[32];

    snprintf(text, sizeof(text), "%s", from);
    pst_utf8_repair(text);
    assert_string_equal(text, to);
    assert_true(pst_is_utf8(pst_bytes_of(text)));
    assert_int_equal(pst_is_utf8(pst_bytes_of(from)), strcmp(from, to) == 0);
}

static void text_stays_and_the_rest_is_replaced(void **state)
{
    (void)state;
    repair("", "");
    repair("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
    repair("cut \xc3", "cut ?");
    repair("cut \xf0\x9f\x98", "cut ???");
    repair("\xff\xfe.", "??.");
    repair("overlong \xc0\xaf", "overlong ??");
    repair("surrogate \xed\xa0\x80", "surrogate ???");
    repair("\x80\xc3\xa9", "?\xc3\xa9");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(text_stays_and_the_rest_is_replaced)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

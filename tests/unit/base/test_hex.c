/* SPDX-License-Identifier: Apache-2.0 */
/* Hexadecimal digits: every character is one or none, and bytes come back as they were. */
#include "lib/cm.h"

#include <limits.h>

#include "base/hex.h"

static void every_character_is_a_digit_or_none(void **state)
{
    (void)state;
    for (int c = CHAR_MIN; c <= CHAR_MAX; c++) {
        bool lower = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'), upper = c >= 'A' && c <= 'F';
        char text[2] = {(char)c, '\0'};
        int value = lower || upper ? (int)strtol(text, NULL, 16) : -1;

        assert_int_equal(pst_hex_digit((char)c), lower ? value : -1);
        assert_int_equal(pst_hex_digit_any_case((char)c), value);
    }
}

static void bytes_come_back(void **state)
{
    uint8_t bytes[256], back[256];
    char text[2 * sizeof(bytes) + 1];

    (void)state;
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)i;
    pst_hex_print(bytes, sizeof(bytes), text);
    assert_int_equal(strlen(text), 2 * sizeof(bytes));
    assert_true(pst_hex_parse(text, back, sizeof(back)));
    assert_memory_equal(back, bytes, sizeof(bytes));
    assert_true(pst_hex_parse("", back, 0));
}

static void one_wrong_character_refuses_all(void **state)
{
    uint8_t back[4];

    (void)state;
    assert_true(pst_hex_parse("00ffa0", back, 3));
    for (size_t at = 0; at < 6; at++) {
        char text[] = "00ffa0";

        text[at] = 'F';
        assert_false(pst_hex_parse(text, back, 3));
        text[at] = '\0';
        assert_false(pst_hex_parse(text, back, 3));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_character_is_a_digit_or_none),
        cmocka_unit_test(bytes_come_back),
        cmocka_unit_test(one_wrong_character_refuses_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/cm.h"

#include "files/key.h"

#include <stdio.h>

static int decode(const char *raw, char out[PST_KEY_CAP])
{
    return pst_key_decode((struct pst_bytes){raw, strlen(raw)}, out);
}

static void assert_normal(const char *raw, const char *expected)
{
    char out[PST_KEY_CAP];

    assert_int_equal(decode(raw, out), strlen(expected));
    assert_string_equal(out, expected);
    assert_true(pst_key_is_normal(out));
}

static void keys_have_one_normal_form(void **state)
{
    (void)state;
    assert_normal("", "");
    assert_normal("/", "");
    assert_normal("a", "a");
    assert_normal("/a//b/./c/", "a/b/c");
    assert_normal("a%2Fb%2fc", "a/b/c");
    assert_normal("a%20b+c", "a b+c");
    assert_normal("%C3%A9/%ff", "\xc3\xa9/\xff");
    assert_normal("...", "...");
    assert_normal(".a/..b/c.", ".a/..b/c.");
}

static void keys_are_decoded_once(void **state)
{
    (void)state;
    assert_normal("100%2541", "100%41");
    assert_normal("%252e%252e/a", "%2e%2e/a");
    assert_normal("%25", "%");
}

static void no_key_leaves_the_root(void **state)
{
    (void)state;
    assert_normal("..", "");
    assert_normal("../../a", "a");
    assert_normal("a/../../../b", "b");
    assert_normal("..%2F..%2Fx", "x");
    assert_normal("%2e%2e%2fetc%2Fpasswd", "etc/passwd");
    assert_normal("a/b/../c/..", "a");
    assert_normal("a/%2E/b/.%2e/c", "a/c");
}

static void bad_bytes_are_refused(void **state)
{
    static const char *const wrong[] = {"%",     "a%",    "a%4",   "a%zz", "a%4g", "%%41", "%00",
                                        "a%00b", "a%0ab", "a%1fb", "%7f",  "a\nb", "\x7f", "a%u0041"};
    char out[PST_KEY_CAP] = "untouched";

    (void)state;
    for (size_t i = 0; i < pst_count_of(wrong); i++)
        assert_int_equal(decode(wrong[i], out), -EINVAL);
    assert_int_equal(pst_key_decode((struct pst_bytes){"a\0b", 3}, out), -EINVAL);
    assert_string_equal(out, "untouched");
}

/* @count times @unit, and @last behind. */
static char *repeated(const char *unit, size_t count, const char *last)
{
    size_t len = strlen(unit);
    char *text = malloc(count * len + strlen(last) + 1);

    assert_non_null(text);
    for (size_t i = 0; i < count; i++)
        memcpy(text + i * len, unit, len);
    strcpy(text + count * len, last);
    return text;
}

static void assert_repeated(const char *unit, size_t count, const char *last, int expected)
{
    pst_cleanup_free char *raw = repeated(unit, count, last);
    char out[PST_KEY_CAP];

    assert_int_equal(decode(raw, out), expected);
}

static void keys_have_bounds(void **state)
{
    pst_cleanup_free char *part = repeated("p", PST_KEY_PART_BYTES_MAX, "/");

    (void)state;
    assert_repeated("x", PST_KEY_PART_BYTES_MAX, "", PST_KEY_PART_BYTES_MAX);
    assert_repeated("x", PST_KEY_PART_BYTES_MAX + 1, "", -ENAMETOOLONG);
    assert_repeated("%78", PST_KEY_PART_BYTES_MAX, "", PST_KEY_PART_BYTES_MAX);
    assert_repeated("a/", PST_KEY_PARTS_MAX, "", 2 * PST_KEY_PARTS_MAX - 1);
    assert_repeated("a/", PST_KEY_PARTS_MAX, "b", -ENAMETOOLONG);
    assert_repeated("a/../", 500, "b", 1);
    assert_repeated(part, 15, "", 15 * 256 - 1);
    assert_repeated(part, 15, "0123456789", 15 * 256 + 10);
    assert_repeated(part, 16, "", 4095); /* a slash that is dropped is no byte too many */
    assert_repeated("/", PST_KEY_BYTES_MAX, "", 0);
    assert_repeated("/", PST_KEY_BYTES_MAX, "/", -ENAMETOOLONG);
    assert_repeated("%2f", PST_KEY_BYTES_MAX + 1, "", -ENAMETOOLONG);
}

static void normal_keys_are_known(void **state)
{
    static const char *const wrong[] = {"/", "/a", "a/", "a//b", ".", "a/./b", "..", "a/..", "a\n"};
    static const char *const right[] = {"", "a", "a/b", "100%41", "...", ".a"};
    pst_cleanup_free char *longest = repeated("a/", 2048, "b"), *part = repeated("p", 256, "");

    (void)state;
    for (size_t i = 0; i < pst_count_of(wrong); i++)
        assert_false(pst_key_is_normal(wrong[i]));
    for (size_t i = 0; i < pst_count_of(right); i++)
        assert_true(pst_key_is_normal(right[i]));
    assert_false(pst_key_is_normal(longest));
    assert_false(pst_key_is_normal(part));
    assert_string_equal(pst_key_leaf("a/b/c"), "c");
    assert_string_equal(pst_key_leaf("a"), "a");
}

/* Whatever the bytes are: the result is refused, or normal, and stays what it is. */
static void random_keys_are_refused_or_normal(void **state)
{
    static const char alphabet[] = "..//%%22EFfa0\x01\xff";
    char raw[64], out[PST_KEY_CAP];
    uint64_t seed = 1;

    (void)state;
    for (int round = 0; round < 200000; round++) {
        size_t len = 0;

        for (seed = seed * 6364136223846793005u + 1442695040888963407u; len < (seed >> 58); len++)
            raw[len] = alphabet[((seed * (len + 1)) >> 33) % (sizeof(alphabet) - 1)];
        if (pst_key_decode((struct pst_bytes){raw, len}, out) < 0)
            continue;
        assert_true(pst_key_is_normal(out));
        assert_true(out[0] != '/' && strstr(out, "//") == NULL && strncmp(out, "../", 3) != 0);
    }
}

static void reserved_names_of_puts_may_come(void **state)
{
    (void)state;
    assert_true(pst_key_may_come("a/b"));
    assert_true(pst_key_may_come("a/.penstock-put-0123456789abcdef"));
    assert_true(pst_key_may_come(".penstock-put-0123456789abcdef/penstock-value.1.bin"));
    assert_false(pst_key_may_come("a/.penstock-put-0123456789abcde"));
    assert_false(pst_key_may_come("a/.penstock-put-0123456789abcdef0"));
    assert_false(pst_key_may_come("a/.penstock-put-0123456789abcdeg"));
    assert_false(pst_key_may_come(".penstock-put-0123456789abcdef/.penstock-x"));
    assert_false(pst_key_may_come(".penstock-x/.penstock-put-0123456789abcdef"));
    assert_true(pst_key_is_reserved("a/.penstock-put-0123456789abcdef"));
    assert_false(pst_key_is_reserved("a.penstock-x/penstock"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_have_one_normal_form),
        cmocka_unit_test(keys_are_decoded_once),
        cmocka_unit_test(no_key_leaves_the_root),
        cmocka_unit_test(bad_bytes_are_refused),
        cmocka_unit_test(keys_have_bounds),
        cmocka_unit_test(normal_keys_are_known),
        cmocka_unit_test(reserved_names_of_puts_may_come),
        cmocka_unit_test(random_keys_are_refused_or_normal),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

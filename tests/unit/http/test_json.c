/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/cm.h"

#include "http/json.h"

static int parse(const char *text, struct pst_json **out)
{
    const char *fault = NULL;
    int r = pst_json_parse((struct pst_bytes){text, strlen(text)}, out, &fault);

    assert_true(r == 0 || fault);
    return r;
}

static void members_are_read(void **state)
{
    struct pst_json *root = NULL;
    const struct pst_json *list;
    int64_t integer = 7;
    double number = 0;
    bool flag = false;

    (void)state;
    assert_int_equal(
        parse(" {\"a\":\"x\\u00e9\\n\",\"A\":1,\"list\":[1,2.5,null,true,\"\"],\"big\":1e300,\"o\":{}} \n",
              &root),
        0);
    assert_true(pst_json_is_object(root) && pst_json_count(root) == 5);
    assert_string_equal(pst_json_text(pst_json_get(root, "a")), "x\xc3\xa9\n");
    assert_true(pst_json_integer(pst_json_get(root, "A"), &integer) && integer == 1);
    assert_false(pst_json_integer(pst_json_get(root, "big"), &integer));
    assert_false(pst_json_integer(pst_json_get(root, "a"), &integer));
    assert_int_equal(integer, 1);
    list = pst_json_get(root, "list");
    assert_true(pst_json_is_array(list));
    list = pst_json_next(pst_json_first(list));
    assert_true(pst_json_number(list, &number) && number == 2.5);
    assert_false(pst_json_integer(list, &integer));
    list = pst_json_next(list);
    assert_true(pst_json_is_null(list) && !pst_json_name(list));
    list = pst_json_next(list);
    assert_true(pst_json_flag(list, &flag) && flag);
    assert_null(pst_json_next(pst_json_next(list)));
    assert_null(pst_json_first(list));
    assert_string_equal(pst_json_name(pst_json_first(root)), "a");
    assert_null(pst_json_get(root, "none"));
    assert_null(pst_json_text(pst_json_get(pst_json_get(root, "none"), "deeper")));
    assert_false(pst_json_flag(NULL, &flag));
    assert_null(pst_json_next(NULL));
    assert_null(pst_json_free(root));
    assert_null(pst_json_free(NULL));
}

static void what_is_no_json_is_refused(void **state)
{
    static const char *const wrong[] = {
        "",
        " ",
        "{",
        "{\"a\":}",
        "[1,]",
        "\"a",
        "nul",
        "{} {}",
        "{}x",
        "\"\\u0000\"",
        "\"a\\q\"",
        "\"\x01\"",
        "\"\xff\"",
        "\"\xc0\x80\"",
        "\"\xed\xa0\x80\"",
        "\"\\ud800\"",
        "\xef\xbb\xbf{}",
        "{\"a\" 1}",
        "\"\\",
        "]",
    };
    struct pst_json *root = NULL;
    const char *fault;
    char *text;

    (void)state;
    for (size_t i = 0; i < pst_count_of(wrong); i++)
        if (parse(wrong[i], &root) != -EINVAL)
            fail_msg("%s", wrong[i]);
    assert_int_equal(pst_json_parse((struct pst_bytes){"\"a\0b\"", 5}, &root, &fault), -EINVAL);
    assert_int_equal(pst_json_parse((struct pst_bytes){"1\0", 2}, &root, &fault), -EINVAL);
    text = calloc(1, PST_JSON_BYTES_MAX + 2);
    memset(text, '[', PST_JSON_DEPTH_MAX + 1);
    assert_int_equal(parse(text, &root), -E2BIG);
    memset(text, 0, PST_JSON_DEPTH_MAX + 1);
    memset(text, '[', PST_JSON_DEPTH_MAX);
    memset(text + PST_JSON_DEPTH_MAX, ']', PST_JSON_DEPTH_MAX);
    assert_int_equal(parse(text, &root), 0);
    pst_json_free(root);
    root = NULL;
    text[0] = '[';
    for (int i = 0; i <= PST_JSON_VALUES_MAX; i++)
        memcpy(text + 1 + 2 * i, "1,", 2);
    assert_int_equal(parse(text, &root), -E2BIG);
    memset(text, ' ', PST_JSON_BYTES_MAX + 1);
    assert_int_equal(parse(text, &root), -E2BIG);
    assert_null(root);
    free(text);
}

static void trees_are_printed(void **state)
{
    struct pst_json *root = pst_json_new_object(), *list = pst_json_new_array();
    char *text;

    (void)state;
    assert_int_equal(pst_json_add_text(NULL, "text", "there was no memory for what it is added to"), -ENOMEM);
    assert_int_equal(pst_json_add_text(root, "text", "a\"\\\n\xc3\xa9"), 0);
    assert_int_equal(pst_json_add_text(root, "none", NULL), 0);
    assert_int_equal(pst_json_add_text(root, "bad", "\xff"), -EILSEQ);
    assert_int_equal(pst_json_add_flag(root, "\xff", true), -EILSEQ);
    assert_int_equal(pst_json_add_integer(root, "n", 9007199254740991), 0);
    assert_int_equal(pst_json_add_integer(list, NULL, -3), 0);
    assert_int_equal(pst_json_add_number(list, NULL, 0.5), 0);
    assert_int_equal(pst_json_add_flag(list, NULL, false), 0);
    assert_int_equal(pst_json_add_text(list, NULL, ""), 0);
    assert_int_equal(pst_json_add(root, "list", list), 0);
    assert_int_equal(pst_json_add(root, "lost", NULL), -ENOMEM);
    text = pst_json_print(root);
    assert_string_equal(text, "{\"text\":\"a\\\"\\\\\\n\xc3\xa9\",\"none\":null,\"n\":9007199254740991,"
                              "\"list\":[-3,0.5,false,\"\"]}");
    free(text);
    pst_json_free(root);
}

static void what_is_handed_back_is_the_same(void **state)
{
    static const char text[] =
        "{\"a\":[0,-7,0.1,0.30000000000000004,9007199254740991,-9007199254740991,1000000000000000,1.5e-300],"
        "\"b\":{\"_bytes\":\"\\u0001/w==\"},\"c\":null,\"d\":[true,false,[],{}]}";
    static const char *const lost[] = {"9007199254740992", "[1e300]", "{\"a\":[-9007199254740993]}",
                                       "[1e999]"};
    struct pst_json *root = NULL, *copy = pst_json_new_object();
    char *printed = NULL;

    (void)state;
    assert_int_equal(parse(text, &root), 0);
    assert_int_equal(pst_json_print_exact(root, 4096, &printed), 0);
    assert_string_equal(printed, text);
    assert_int_equal(pst_json_add_printed(copy, "it", printed), 0);
    free(printed);
    pst_json_free(root);
    printed = pst_json_print(copy);
    assert_int_equal(strlen(printed), strlen(text) + strlen("{\"it\":}"));
    free(printed);
    pst_json_free(copy);
    for (size_t i = 0; i < pst_count_of(lost); i++) {
        assert_int_equal(parse(lost[i], &root), 0);
        assert_int_equal(pst_json_print_exact(root, 4096, &printed), -ERANGE);
        pst_json_free(root);
    }
    assert_int_equal(parse("[1,[2,\"three\"]]", &root), 0);
    assert_int_equal(pst_json_print_exact(root, 4, &printed), -EMSGSIZE); /* five values */
    assert_int_equal(pst_json_print_exact(root, 14, &printed), -EMSGSIZE);
    assert_int_equal(pst_json_print_exact(root, 15, &printed), 0);
    free(printed);
    pst_json_free(root);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_are_read),
        cmocka_unit_test(what_is_no_json_is_refused),
        cmocka_unit_test(trees_are_printed),
        cmocka_unit_test(what_is_handed_back_is_the_same),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

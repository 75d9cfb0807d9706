/* SPDX-License-Identifier: Apache-2.0 */
/* What an operation needs of a grant: every code has its right, and no key, range or prefix reaches out of a
 * grant's own. */
#include "lib/cm.h"

#include "node/grant.h"
#include "wire/pool.h"

static struct pst_grant_terms terms_of(uint8_t rights, const char *prefix)
{
    struct pst_grant_terms terms = {.rights = rights, .all_keys = !prefix, .prefix_count = prefix ? 1 : 0};

    if (prefix)
        terms.prefixes[0] = pst_bytes_of(prefix);
    return terms;
}

static struct pst_wire_op op_of(uint8_t code, struct pst_bytes key, struct pst_bytes attrs)
{
    return (struct pst_wire_op){.code = code, .key = key, .attrs = attrs};
}

static const struct pst_bytes nothing = {"", 0};

/* Whoever adds an operation says which right it needs; what is unknown is nobody's but the operator's. */
static void every_code_needs_a_right(void **state)
{
    struct pst_grant_terms few = terms_of(PST_RIGHT_READ | PST_RIGHT_WRITE, NULL);
    int codes = 0;

    (void)state;
    for (int code = 0; code <= UINT8_MAX; code++) {
        uint8_t right = pst_right_needed((uint8_t)code);
        struct pst_wire_op op = op_of((uint8_t)code, pst_bytes_of("k"), nothing);

        if (!pst_code_traits((uint8_t)code)) {
            assert_int_equal(right, 0);
            assert_int_equal(pst_grant_missing(&few, &op), PST_RIGHT_ADMIN);
            continue;
        }
        codes++;
        assert_true(right == PST_RIGHT_READ || right == PST_RIGHT_WRITE || right == PST_RIGHT_ADMIN ||
                    right == PST_RIGHT_NONE);
        if (pst_code_has((uint8_t)code, PST_CODE_WRITES) && code != PST_WIRE_COMMIT)
            assert_true(right == PST_RIGHT_WRITE || right == PST_RIGHT_ADMIN);
        if (pst_code_has((uint8_t)code, PST_CODE_READS))
            assert_int_equal(right, PST_RIGHT_READ);
    }
    assert_true(codes > 30);
}

/* Each operation that is public or names keys, with the right alone that it needs, in the grant and out. */
static void keys_lie_within(void **state)
{
    (void)state;
    for (int code = 0; code <= UINT8_MAX; code++) {
        uint8_t right = pst_right_needed((uint8_t)code), others = PST_RIGHTS_ALL & ~right;
        struct pst_grant_terms own = terms_of(right, "a/"), other = terms_of(others, NULL);
        struct pst_wire_op in = op_of((uint8_t)code, pst_bytes_of("a/k"), pst_bytes_of("a0")), out = in;

        if (right == 0 || right == PST_RIGHT_NONE)
            continue;
        out.key = pst_bytes_of("b/k");
        assert_int_equal(pst_grant_missing(&other, &in), right);
        if (pst_code_has((uint8_t)code, PST_CODE_KEY) && right != PST_RIGHT_ADMIN)
            assert_int_equal(pst_grant_missing(&own, &out), right);
        if (!pst_code_of_role((uint8_t)code))
            assert_int_equal(pst_grant_missing(&own, &in), 0);
    }
}

/* A word against a node keeps new values away from it. */
static void readers_speak_against_nobody(void **state)
{
    struct pst_grant_terms reads = terms_of(PST_RIGHT_READ, NULL), writes = terms_of(PST_RIGHT_WRITE, "a/");
    struct pst_wire_op op = op_of(PST_POOL_SUSPECT, nothing, nothing);

    (void)state;
    assert_int_equal(pst_grant_missing(&reads, &op), PST_RIGHT_WRITE);
    assert_int_equal(pst_grant_missing(&writes, &op), 0);
}

static void keys_do_not_escape(void **state)
{
    static const struct {
        struct pst_bytes key;
        bool within;
    } rows[] = {
        {{"a/", 2}, true},     {{"a/b", 3}, true},       {{"a/\0", 3}, true},
        {{"a/../b", 6}, true}, /* a key like any other: nothing resolves it */
        {{"", 0}, false},      {{"a", 1}, false},        {{"a\0/", 3}, false},
        {{"\0a/", 3}, false},  {{"a0", 2}, false},       {{"A/", 2}, false},
        {{"a%2Fb", 5}, false}, {{"../a/b", 6}, false},   {{"./a/b", 5}, false},
        {{"/a/b", 4}, false},  {{"b/../a/k", 8}, false}, {{"a\xc0\xaf", 3}, false}, /* an overlong slash */
    };
    struct pst_grant_terms terms = terms_of(PST_RIGHTS_ALL, "a/");

    (void)state;
    for (size_t i = 0; i < pst_count_of(rows); i++) {
        struct pst_wire_op get = op_of(PST_WIRE_GET, rows[i].key, nothing);

        assert_int_equal(pst_grant_missing(&terms, &get), rows[i].within ? 0 : PST_RIGHT_READ);
        assert_int_equal(pst_grant_may_watch(&terms, rows[i].key), rows[i].within);
    }
}

static void ranges_do_not_escape(void **state)
{
    static const struct {
        struct pst_bytes prefix, start, end;
        bool within;
    } rows[] = {
        {{"a/", 2}, {"a/", 2}, {"a0", 2}, true},
        {{"a/", 2}, {"a/m", 3}, {"a/n", 3}, true},
        {{"a/", 2}, {"a/m", 3}, {"a/", 2}, true}, /* nothing */
        {{"a/", 2}, {"a/m", 3}, {"Z", 1}, true},
        {{"a/", 2}, {"a/m", 3}, {"a", 1}, true},
        {{"a/", 2}, {"a/", 2}, {"", 0}, false}, /* without an end */
        {{"a/", 2}, {"a/", 2}, {"a0\0", 3}, false},
        {{"a/", 2}, {"a/", 2}, {"a1", 2}, false},
        {{"a/", 2}, {"a/", 2}, {"b", 1}, false},
        {{"a/", 2}, {"", 0}, {"a0", 2}, false},
        {{"a/", 2}, {"a", 1}, {"a0", 2}, false},
        {{"a/", 2}, {"a.", 2}, {"a0", 2}, false},
        {{"a/", 2}, {"b", 1}, {"a0", 2}, false},
        {{"a\xff", 2}, {"a\xff", 2}, {"b", 1}, true},
        {{"a\xff", 2}, {"a\xff\xff", 3}, {"a\xff\xff\xff", 4}, true},
        {{"a\xff", 2}, {"a\xff", 2}, {"b\0", 2}, false},
        {{"a\xff", 2}, {"a\xff", 2}, {"c", 1}, false},
        {{"\xff", 1}, {"\xff", 1}, {"", 0}, true}, /* nothing lies behind it */
        {{"\xff", 1}, {"\xfe", 1}, {"", 0}, false},
        {{"\xff\xff", 2}, {"\xff\xff\x01", 3}, {"", 0}, true},
    };

    (void)state;
    for (size_t i = 0; i < pst_count_of(rows); i++) {
        struct pst_grant_terms terms = {
            .rights = PST_RIGHTS_ALL, .prefix_count = 1, .prefixes = {rows[i].prefix}};
        struct pst_wire_op list = op_of(PST_WIRE_LIST, rows[i].start, rows[i].end),
                           sweep = op_of(PST_WIRE_SWEEP, rows[i].start, rows[i].end);

        assert_int_equal(pst_grant_missing(&terms, &list), rows[i].within ? 0 : PST_RIGHT_READ);
        assert_int_equal(pst_grant_missing(&terms, &sweep), rows[i].within ? 0 : PST_RIGHT_WRITE);
    }
}

/* Two prefixes side by side are no range together, though no key lies between them. */
static void prefixes_count_one_by_one(void **state)
{
    struct pst_grant_terms terms = {
        .rights = PST_RIGHT_READ, .prefix_count = 2, .prefixes = {{"a/", 2}, {"a0", 2}}};
    struct pst_wire_op both = op_of(PST_WIRE_LIST, pst_bytes_of("a/"), pst_bytes_of("a1")),
                       second = op_of(PST_WIRE_LIST, pst_bytes_of("a0"), pst_bytes_of("a1"));

    (void)state;
    assert_int_equal(pst_grant_missing(&terms, &both), PST_RIGHT_READ);
    assert_int_equal(pst_grant_missing(&terms, &second), 0);
}

static void memory_is_for_who_reads_all(void **state)
{
    static const struct {
        uint8_t rights;
        const char *prefix;
        bool confined, everything;
    } rows[] = {
        {PST_RIGHTS_ALL, NULL, false, true},
        {PST_RIGHT_READ, NULL, false, false},
        {PST_RIGHT_WRITE | PST_RIGHT_ADMIN, NULL, true, false},
        {PST_RIGHTS_ALL, "a", true, false},
    };

    (void)state;
    for (size_t i = 0; i < pst_count_of(rows); i++) {
        struct pst_grant_terms terms = terms_of(rows[i].rights, rows[i].prefix);

        assert_int_equal(pst_grant_is_confined(&terms), rows[i].confined);
        assert_int_equal(pst_grant_is_everything(&terms), rows[i].everything);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_needs_a_right),
        cmocka_unit_test(readers_speak_against_nobody),
        cmocka_unit_test(keys_lie_within),
        cmocka_unit_test(keys_do_not_escape),
        cmocka_unit_test(ranges_do_not_escape),
        cmocka_unit_test(prefixes_count_one_by_one),
        cmocka_unit_test(memory_is_for_who_reads_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

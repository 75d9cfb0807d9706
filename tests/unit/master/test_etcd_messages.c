/* SPDX-License-Identifier: Apache-2.0 */
/* What etcd is asked, as its gateway wants it, and what is made of its answers, whatever they are. */
#include "lib/cm.h"

#include "master/etcd/messages.h"

static void base64_both_ways(void **state)
{
    static const char *const texts[] = {"", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"};
    uint8_t all[256];
    struct pst_bytes back;
    char *text;

    (void)state;
    for (size_t i = 0; i < pst_count_of(texts); i++) {
        text = pst_etcd_base64((struct pst_bytes){"foobar", i});
        assert_string_equal(text, texts[i]);
        assert_int_equal(pst_etcd_unbase64(text, i, &back), 0);
        assert_int_equal(back.len, i);
        assert_true(i == 0 || memcmp(back.data, "foobar", i) == 0);
        assert_true(i == 0 || pst_etcd_unbase64(text, i - 1, &back) == -EFBIG);
        free((void *)(uintptr_t)back.data);
        free(text);
    }
    for (size_t i = 0; i < sizeof(all); i++)
        all[i] = (uint8_t)i;
    text = pst_etcd_base64((struct pst_bytes){all, sizeof(all)});
    assert_int_equal(pst_etcd_unbase64(text, sizeof(all), &back), 0);
    assert_memory_equal(back.data, all, sizeof(all));
    free((void *)(uintptr_t)back.data);
    free(text);
}

static void what_is_no_base64_is_refused(void **state)
{
    static const char *const wrong[] = {"A",    "AA",   "AAA",  "AAAAA", "====",     "A===",      "=AAA",
                                        "AA=A", "A-_A", "AA A", "AAA\n", "AAAA=AAA", "\xc3\xa9=="};
    struct pst_bytes out = {"kept", 4};

    (void)state;
    for (size_t i = 0; i < pst_count_of(wrong); i++) {
        assert_int_equal(pst_etcd_unbase64(wrong[i], 1000, &out), -EPROTO);
        assert_int_equal(out.len, 4); /* nothing is written */
    }
}

static void questions_are_as_the_gateway_wants_them(void **state)
{
    struct pst_etcd_txn txn = {.error = 0};
    struct pst_json *json;
    char *text;

    (void)state;
    pst_etcd_if_made(&txn, "p/leader", 7);
    pst_etcd_if_set(&txn, "p/map", 0);
    pst_etcd_then_put(&txn, "p/map", pst_bytes_of("foobar"), INT64_MAX);
    pst_etcd_then_put(&txn, "p/map", pst_bytes_of(""), 0);
    pst_etcd_then_get(&txn, "p/map");
    pst_etcd_else_get(&txn, "p/leader");
    json = pst_etcd_txn_end(&txn);
    assert_true(!txn.conditions && !txn.then && !txn.otherwise);
    text = pst_json_print(json);
    assert_string_equal(
        text,
        "{\"compare\":[{\"key\":\"cC9sZWFkZXI=\",\"target\":\"CREATE\",\"create_revision\":\"7\",\"result\":"
        "\"EQUAL\"},"
        "{\"key\":\"cC9tYXA=\",\"target\":\"MOD\",\"mod_revision\":\"0\",\"result\":\"EQUAL\"}],"
        "\"success\":[{\"request_put\":{\"key\":\"cC9tYXA=\",\"value\":\"Zm9vYmFy\",\"lease\":"
        "\"9223372036854775807\"}},"
        "{\"request_put\":{\"key\":\"cC9tYXA=\",\"value\":\"\"}},{\"request_range\":{\"key\":\"cC9tYXA=\"}}],"
        "\"failure\":[{\"request_range\":{\"key\":\"cC9sZWFkZXI=\"}}]}");
    free(text);
    pst_json_free(json);
    json = pst_etcd_lease(-5);
    text = pst_json_print(json);
    assert_string_equal(text, "{\"ID\":\"-5\"}");
    free(text);
    pst_json_free(json);
    assert_null(pst_etcd_user("u", "\xff")); /* no UTF-8 */
}

static struct pst_json *parsed(const char *text)
{
    struct pst_json *json = NULL;
    const char *why = NULL;

    assert_int_equal(pst_json_parse_answer(pst_bytes_of(text), &json, &why), 0);
    return json;
}

static int lease_of(const char *text, int64_t *lease, uint64_t *ttl_s)
{
    struct pst_json *json = parsed(text);
    int r = pst_etcd_get_lease(json, lease, ttl_s);

    pst_json_free(json);
    return r;
}

static void leases(void **state)
{
    static const char *const wrong[] = {"{}",
                                        "[]",
                                        "7",
                                        "{\"ID\":\"0\",\"TTL\":\"5\"}",
                                        "{\"ID\":\"x\",\"TTL\":\"5\"}",
                                        "{\"ID\":\"\",\"TTL\":\"5\"}",
                                        "{\"ID\":[1],\"TTL\":\"5\"}",
                                        "{\"ID\":\"1\",\"TTL\":\"5s\"}",
                                        "{\"ID\":\"1\",\"TTL\":true}",
                                        "{\"ID\":\"1\",\"TTL\":\"9223372036854775807\"}",
                                        "{\"ID\":\"9223372036854775808\",\"TTL\":\"5\"}",
                                        "{\"ID\":1.5,\"TTL\":\"5\"}",
                                        "{\"result\":[],\"ID\":\"1\"}",
                                        "{\"result\":{}}",
                                        "{\"error\":{\"message\":\"no\"}}"};
    int64_t lease = 1;
    uint64_t ttl_s = 1;

    (void)state;
    for (size_t i = 0; i < pst_count_of(wrong); i++)
        assert_int_equal(lease_of(wrong[i], &lease, &ttl_s), -EPROTO);
    assert_true(lease == 1 && ttl_s == 1);
    assert_int_equal(lease_of("{\"header\":{},\"ID\":\"7587870999\",\"TTL\":\"5\"}", &lease, &ttl_s), 0);
    assert_true(lease == 7587870999 && ttl_s == 5);
    assert_int_equal(lease_of("{\"result\":{\"ID\":\"9223372036854775807\"}}", &lease, &ttl_s), 0);
    assert_true(lease == INT64_MAX && ttl_s == 0); /* it has ended */
    assert_int_equal(lease_of("{\"ID\":-3,\"TTL\":-1}", &lease, &ttl_s), 0);
    assert_true(lease == -3 && ttl_s == 0);
}

#define RANGE                                                                                                \
    "{\"response_range\":{\"kvs\":[{\"key\":\"cA==\",\"create_revision\":\"3\",\"mod_revision\":\"4\","
#define ENTRY           RANGE "\"lease\":\"77\",\"value\":\"Zm9vYmFy\"}],\"count\":\"1\"}}"
#define DONE(responses) "{\"header\":{\"revision\":\"9\"},\"responses\":[" responses "]}"

static int done_of(const char *text, size_t bytes_max, struct pst_etcd_done *done)
{
    struct pst_json *json = parsed(text);
    int r = pst_etcd_get_done(json, bytes_max, done);

    pst_json_free(json);
    return r;
}

static void what_was_done(void **state)
{
    struct pst_etcd_done done;

    (void)state;
    assert_int_equal(done_of("{\"header\":{\"revision\":\"9\"},\"succeeded\":true}", 0, &done), 0);
    assert_true(done.held && done.revision == 9 && done.count == 0);
    assert_int_equal(done_of(DONE("{\"response_put\":{}},{\"response_range\":{}}," ENTRY), 6, &done), 0);
    assert_true(!done.held && done.count == 3 && !done.entries[0].there && !done.entries[1].there);
    assert_true(done.entries[2].there && done.entries[2].made == 3 && done.entries[2].set == 4 &&
                done.entries[2].lease == 77 && done.entries[2].value.len == 6);
    assert_memory_equal(done.entries[2].value.data, "foobar", 6);
    pst_etcd_done_fini(&done);
    assert_int_equal(done_of(DONE(RANGE "\"count\":\"1\"}]}}"), 0, &done),
                     0); /* an empty value is not said */
    assert_true(done.entries[0].there && done.entries[0].value.len == 0);
    pst_etcd_done_fini(&done);
}

static void hostile_answers(void **state)
{
    static const char *const wrong[] = {
        "{}",
        "[]",
        "\"text\"",
        "{\"header\":7}",
        "{\"header\":{\"revision\":\"0\"}}",
        "{\"header\":{\"revision\":\"-1\"}}",
        "{\"header\":{\"revision\":\"18446744073709551617\"}}",
        "{\"header\":{\"revision\":\"9\"},\"succeeded\":\"true\"}",
        "{\"header\":{\"revision\":\"9\"},\"responses\":{}}",
        DONE("7"),
        DONE("{\"response_range\":[]}"),
        DONE("{\"response_range\":{\"kvs\":{}}}"),
        DONE("{\"response_range\":{\"kvs\":[7]}}"),
        DONE("{\"response_range\":{\"kvs\":[{}]}}"),
        DONE("{\"response_range\":{\"kvs\":[{\"create_revision\":\"5\",\"mod_revision\":\"4\"}]}}"),
        DONE("{\"response_range\":{\"kvs\":[{\"create_revision\":\"-5\",\"mod_revision\":\"4\"}]}}"),
        DONE(RANGE "\"value\":7}]}}"),
        DONE(RANGE "\"value\":\"Zg=\"}]}}"),
        DONE(RANGE "\"lease\":{},\"value\":\"Zg==\"}]}}"),
        DONE(ENTRY "," ENTRY "," ENTRY ",7"), /* what was taken before is freed */
        DONE("{},{},{},{},{}"),
    };
    struct pst_etcd_done done = {.revision = -7};

    (void)state;
    for (size_t i = 0; i < pst_count_of(wrong); i++)
        assert_int_equal(done_of(wrong[i], 100, &done), -EPROTO);
    assert_int_equal(done_of(DONE(ENTRY), 5, &done), -EFBIG);
    assert_int_equal(done.revision, -7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(base64_both_ways),
                                       cmocka_unit_test(what_is_no_base64_is_refused),
                                       cmocka_unit_test(questions_are_as_the_gateway_wants_them),
                                       cmocka_unit_test(leases),
                                       cmocka_unit_test(what_was_done),
                                       cmocka_unit_test(hostile_answers)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

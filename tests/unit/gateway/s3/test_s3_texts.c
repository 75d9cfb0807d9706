/* SPDX-License-Identifier: Apache-2.0 */
/* test_s3_texts.c: heads, paths, queries, ranges, conditions, attributes and times. */
#include "lib/cm.h"

#include "gateway/s3/wire/conditions_priv.h"
#include "gateway/s3/wire/target_priv.h"
#include "gateway/s3/wire/time_priv.h"

#include <stdio.h>
#include <string.h>

static struct s3_head head;
static struct s3_target target;

static enum s3_code parse(const char *first, const char *fields)
{
    static char text[64 << 10]; /* the head points into it */
    int n = snprintf(text, sizeof(text), "%s\r\nHost: localhost\r\n%s\r\n", first, fields);

    assert_in_range(n, 1, sizeof(text) - 1);
    assert_int_equal(pst_http_head_end(text, (size_t)n, 0), n);
    return s3_head_parse(text, (size_t)n, &head);
}

static enum s3_code aim(const char *path)
{
    char first[16 << 10];
    enum s3_code code;

    snprintf(first, sizeof(first), "GET %s HTTP/1.1", path);
    code = parse(first, "");
    return code == S3_OK ? s3_target_parse(&head, "s3.test", &target) : code;
}

static void heads(void **state)
{
    static const struct {
        const char *first, *fields;
        enum s3_code code;
    } cases[] = {
        {"GET / HTTP/1.1", "", S3_OK},
        {"PUT /b/k HTTP/1.1", "Content-Length: 5\r\n", S3_OK},
        {"PUT /b/k HTTP/1.1", "Transfer-Encoding: chunked\r\n", S3_OK},
        {"PUT /b/k HTTP/1.1", "Transfer-Encoding: gzip\r\n", S3_NotImplemented},
        {"PUT /b/k HTTP/1.1", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", S3_InvalidRequest},
        {"PUT /b/k HTTP/1.1", "Content-Length: 5\r\nContent-Length: 5\r\n", S3_InvalidRequest},
        {"PUT /b/k HTTP/1.1", "Content-Length: -5\r\n", S3_InvalidRequest},
        {"PUT /b/k HTTP/1.1", "Content-Length: 5 \t\r\n", S3_OK},
        {"PUT /b/k HTTP/1.1", "Content-Length : 5\r\n", S3_InvalidRequest},
        {"PUT /b/k HTTP/1.1", "Host: another\r\n", S3_InvalidRequest},
        {"PUT /b/k HTTP/1.1", " folded\r\n", S3_InvalidRequest},
        {"PUT /b/k HTTP/1.1", "A: b\x01\r\n", S3_InvalidRequest},
        {"PUT /b/k HTTP/1.1", "Expect: 200-fine\r\n", S3_InvalidRequest},
        {"GET / HTTP/2.0", "", S3_InvalidRequest},
        {"GET b HTTP/1.1", "", S3_InvalidURI},
        {"GET /a#b HTTP/1.1", "", S3_InvalidURI},
        {"GET", "", S3_InvalidRequest},
    };

    (void)state;
    for (size_t i = 0; i < pst_count_of(cases); i++)
        assert_int_equal(parse(cases[i].first, cases[i].fields), cases[i].code);
    assert_int_equal(parse("GET / HTTP/1.0", "connection: x, keep-alive\r\nx-a:  b  c \r\n"), S3_OK);
    assert_true(head.keep_alive);
    assert_true(s3_text_is(s3_head_field(&head, "X-A"), "b  c"));
    assert_null(s3_head_field(&head, "x-b").data);
}

static void paths(void **state)
{
    static const struct {
        const char *path, *bucket, *key;
    } cases[] = {
        {"/", "", ""},
        {"/b", "b", ""},
        {"/b/", "b", ""},
        {"/b/k", "b", "k"},
        {"/b//k", "b", "/k"},
        {"/b/../../etc/passwd", "b", "../../etc/passwd"}, /* names, not folders */
        {"/b/a%2Fb%20c", "b", "a/b c"},
        {"/b/a+b", "b", "a+b"},
        {"/b/%E2%82%AC%FF", "b", "\xe2\x82\xac\xff"},
        {"/A_b.c-1/k", "A_b.c-1", "k"},
    };
    char longest[3 * PST_KEY_BYTES_MAX];

    (void)state;
    for (size_t i = 0; i < pst_count_of(cases); i++) {
        assert_int_equal(aim(cases[i].path), S3_OK);
        assert_true(pst_bytes_equal(s3_bucket_of(&target.name), pst_bytes_of(cases[i].bucket)));
        assert_int_equal(s3_has_key(&target.name), cases[i].key[0] != 0);
        if (cases[i].key[0])
            assert_true(pst_bytes_equal(s3_key_of(&target.name), pst_bytes_of(cases[i].key)));
    }
    assert_int_equal(aim("/../b"), S3_InvalidBucketName);
    assert_int_equal(aim("/.s3/uploads"), S3_InvalidBucketName);
    assert_int_equal(aim("/%2e%2e/b"), S3_InvalidBucketName);
    assert_int_equal(aim("/a%00b/c"), S3_InvalidURI);
    assert_int_equal(aim("/b/%zz"), S3_InvalidURI);
    assert_int_equal(aim("//b"), S3_InvalidBucketName);
    memset(longest, 'k', sizeof(longest));
    memcpy(longest, "/b/", 3);
    longest[1 + PST_KEY_BYTES_MAX] = 0;
    assert_int_equal(aim(longest), S3_OK);
    longest[1 + PST_KEY_BYTES_MAX] = 'k';
    longest[2 + PST_KEY_BYTES_MAX] = 0;
    assert_int_equal(aim(longest), S3_KeyTooLongError);
}

static void virtual_hosts(void **state)
{
    static char text[] = "GET /k HTTP/1.1\r\nHost: My-bucket.S3.test:9000\r\n\r\n";

    (void)state;
    assert_int_equal(s3_head_parse(text, sizeof(text) - 1, &head), S3_OK);
    assert_int_equal(s3_target_parse(&head, "s3.test", &target), S3_OK);
    assert_true(pst_bytes_equal(s3_store_key(&target.name), pst_bytes_of("My-bucket/k")));
    assert_int_equal(s3_target_parse(&head, NULL, &target), S3_OK);
    assert_true(pst_bytes_equal(s3_store_key(&target.name), pst_bytes_of("k")));
}

static void queries(void **state)
{
    (void)state;
    assert_int_equal(aim("/b?prefix=a+b%2B&x&&delimiter=/&y="), S3_OK);
    assert_int_equal(target.param_count, 4);
    assert_true(s3_text_is(s3_param(&target, "prefix"), "a b+"));
    assert_true(s3_text_is(s3_param(&target, "delimiter"), "/"));
    assert_true(s3_has_param(&target, "x"));
    assert_true(s3_has_param(&target, "y"));
    assert_false(s3_has_param(&target, "z"));
    assert_int_equal(aim("/b?a=%0"), S3_InvalidURI);
}

static void ranges(void **state)
{
    static const struct {
        const char *text;
        uint64_t size;
        enum s3_code code;
        bool partial;
        uint64_t offset, bytes;
    } cases[] = {
        {"", 10, S3_OK, false, 0, 10},
        {"bytes=0-9", 10, S3_OK, true, 0, 10},
        {"bytes=2-3", 10, S3_OK, true, 2, 2},
        {"bytes=2-", 10, S3_OK, true, 2, 8},
        {"bytes=2-99", 10, S3_OK, true, 2, 8},
        {"bytes=-3", 10, S3_OK, true, 7, 3},
        {"bytes=-99", 10, S3_OK, true, 0, 10},
        {"bytes=10-", 10, S3_InvalidRange, false, 0, 10},
        {"bytes=-0", 10, S3_InvalidRange, false, 0, 10},
        {"bytes=0-0", 0, S3_InvalidRange, false, 0, 0},
        {"bytes=-1", 0, S3_InvalidRange, false, 0, 0},
        {"bytes=3-2", 10, S3_OK, false, 0, 10},
        {"bytes=a-2", 10, S3_OK, false, 0, 10},
        {"bytes=-", 10, S3_OK, false, 0, 10},
        {"bytes=1-2,4-5", 10, S3_OK, false, 0, 10},
        {"lines=1-2", 10, S3_OK, false, 0, 10},
        {"bytes=99999999999999999999-", 10, S3_InvalidRange, false, 0, 10},
        {"bytes=2-9223372036854775807", 10, S3_OK, true, 2, 8},
        {"bytes=2-18446744073709551616", 10, S3_OK, true, 2, 8},
    };

    (void)state;
    for (size_t i = 0; i < pst_count_of(cases); i++) {
        struct s3_range range;

        assert_int_equal(s3_range_parse(pst_bytes_of(cases[i].text), cases[i].size, &range), cases[i].code);
        assert_int_equal(range.partial, cases[i].partial);
        assert_int_equal(range.offset, cases[i].offset);
        assert_int_equal(range.bytes, cases[i].bytes);
    }
}

static void copies_take_all_of_their_range(void **state)
{
    static const struct {
        const char *text;
        enum s3_code code;
    } cases[] = {
        {"bytes=0-9", S3_OK},
        {"bytes=3-3", S3_OK},
        {"bytes=0-10", S3_InvalidRange},
        {"bytes=10-11", S3_InvalidRange},
        {"bytes=0-9223372036854775807", S3_InvalidRange},
        {"0-4", S3_InvalidArgument},
        {"bytes=5-2", S3_InvalidArgument},
        {"bytes=5-", S3_InvalidArgument},
        {"bytes=-5", S3_InvalidRange},
        {"", S3_InvalidArgument},
    };
    struct s3_range range;

    (void)state;
    for (size_t i = 0; i < pst_count_of(cases); i++)
        assert_int_equal(s3_range_within(pst_bytes_of(cases[i].text), 10, &range), cases[i].code);
    assert_int_equal(s3_range_within((struct pst_bytes){NULL, 0}, 10, &range), S3_OK);
    assert_int_equal(range.bytes, 10);
}

#define NEW  "Fri, 24 May 2013 00:00:01 GMT"
#define OLD  "Fri, 24 May 2013 00:00:00 GMT"
#define ETAG "\"00000000000000ff-p\""

static void conditions_of_reads(void **state)
{
    static const struct {
        const char *fields;
        enum s3_code code;
    } cases[] = {
        {"", S3_OK},
        {"If-Match: " ETAG "\r\n", S3_OK},
        {"If-Match: \"x\", " ETAG "\r\n", S3_OK},
        {"If-Match: *\r\n", S3_OK},
        {"If-Match: \"00000000000000fe-p\"\r\n", S3_PreconditionFailed},
        {"If-None-Match: " ETAG "\r\n", S3_NotModified},
        {"If-None-Match: \"x\", W/" ETAG "\r\n", S3_NotModified},
        {"If-None-Match: W/\r\n", S3_OK},
        {"If-Match: W/" ETAG "\r\n", S3_PreconditionFailed},
        {"If-None-Match: \"x\"\r\n", S3_OK},
        {"If-None-Match: \"x\"\r\nIf-Modified-Since: " NEW "\r\n", S3_OK},
        {"If-Modified-Since: " NEW "\r\n", S3_NotModified},
        {"If-Modified-Since: " OLD "\r\n", S3_OK},
        {"If-Modified-Since: never\r\n", S3_OK},
        {"If-Unmodified-Since: " NEW "\r\n", S3_OK},
        {"If-Unmodified-Since: " OLD "\r\n", S3_PreconditionFailed},
        {"If-Match: " ETAG "\r\nIf-Unmodified-Since: " OLD "\r\n", S3_OK},
    };
    int64_t written_s;

    (void)state;
    assert_true(s3_time_of_date(pst_bytes_of(NEW), &written_s));
    for (size_t i = 0; i < pst_count_of(cases); i++) {
        assert_int_equal(parse("GET /b/k HTTP/1.1", cases[i].fields), S3_OK);
        assert_int_equal(s3_conditions_read(&head, "", 255, (uint64_t)written_s * 1000 + 999), cases[i].code);
    }
    /* Nothing is older than what was written at a time that nobody knows. */
    assert_int_equal(parse("GET /b/k HTTP/1.1", "If-Modified-Since: " NEW "\r\n"), S3_OK);
    assert_int_equal(s3_conditions_read(&head, "", 255, 0), S3_OK);
    assert_int_equal(parse("GET /b/k HTTP/1.1", "If-Unmodified-Since: " NEW "\r\n"), S3_OK);
    assert_int_equal(s3_conditions_read(&head, "", 255, 0), S3_PreconditionFailed);
}

static void conditions_of_writes(void **state)
{
    static const struct {
        const char *fields;
        enum s3_code code;
        bool conditional;
        uint64_t generation;
    } cases[] = {
        {"", S3_OK, false, 0},
        {"If-None-Match: *\r\n", S3_OK, true, 0},
        {"If-None-Match: " ETAG "\r\n", S3_NotImplemented, true, 0},
        {"If-Match: " ETAG "\r\n", S3_OK, true, 255},
        {"If-Match: \"d41d8cd98f00b204e9800998ecf8427e\"\r\n", S3_PreconditionFailed, true, 0},
        {"If-Match: " ETAG "\r\nIf-None-Match: *\r\n", S3_NotImplemented, true, 0},
    };

    (void)state;
    for (size_t i = 0; i < pst_count_of(cases); i++) {
        uint64_t generation;
        bool conditional;

        assert_int_equal(parse("PUT /b/k HTTP/1.1", cases[i].fields), S3_OK);
        assert_int_equal(s3_conditions_write(&head, &conditional, &generation), cases[i].code);
        assert_int_equal(conditional, cases[i].conditional);
        assert_int_equal(generation, cases[i].generation);
    }
}

static void attributes(void **state)
{
    struct s3_attrs made, read;
    struct pst_bytes name, value;
    size_t at = 0;
    bool own;

    (void)state;
    assert_int_equal(parse("PUT /b/k HTTP/1.1",
                           "Content-Type: text/plain\r\nContent-Encoding: aws-chunked,gzip\r\n"
                           "X-Amz-Meta-Who: me\r\nx-amz-acl: private\r\n"),
                     S3_OK);
    assert_int_equal(s3_attrs_make(&head, 1234567890123u, &made), S3_OK);
    read = made;
    read.written_ms = 0;
    s3_attrs_take(&read);
    assert_int_equal(read.written_ms, 1234567890123u);
    assert_true(s3_attrs_next(&read, &at, &own, &name, &value) && !own);
    assert_true(s3_text_is(name, "content-type") && s3_text_is(value, "text/plain"));
    assert_true(s3_attrs_next(&read, &at, &own, &name, &value) && !own);
    assert_true(s3_text_is(name, "content-encoding") && s3_text_is(value, "gzip"));
    assert_true(s3_attrs_next(&read, &at, &own, &name, &value) && own);
    assert_true(s3_text_is(name, "Who") && s3_text_is(value, "me"));
    assert_false(s3_attrs_next(&read, &at, &own, &name, &value));
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(parse("PUT /b/k HTTP/1.1", i ? "Content-Encoding: aws-chunked\r\n"
                                                      : "Content-Encoding: gzip , aws-chunked\r\n"),
                         S3_OK);
        assert_int_equal(s3_attrs_make(&head, 1, &made), S3_OK);
        at = 0;
        assert_int_equal(s3_attrs_next(&made, &at, &own, &name, &value), i == 0);
        assert_true(i || s3_text_is(value, "gzip"));
    }
    made = read;
    s3_attrs_stamp(&read, 7);
    s3_attrs_take(&read);
    assert_int_equal(read.written_ms, 7);
    assert_int_equal(read.bytes, made.bytes);
}

/* What others keep with their values is none of ours, nor is what would add a field to an answer. */
static void foreign_attributes(void **state)
{
    struct s3_attrs attrs;

    (void)state;
    assert_int_equal(parse("PUT /b/k HTTP/1.1", "x-amz-meta-a: bcd\r\n"), S3_OK);
    assert_int_equal(s3_attrs_make(&head, 99, &attrs), S3_OK);
    for (uint16_t bytes = 0; bytes < attrs.bytes; bytes++) {
        struct s3_attrs cut = attrs;

        cut.bytes = bytes;
        s3_attrs_take(&cut);
        assert_int_equal(cut.written_ms, bytes == 12 ? 99 : 0);
    }
    attrs.data[attrs.bytes - 2] = '\n';
    s3_attrs_take(&attrs);
    assert_int_equal(attrs.written_ms, 0);
    attrs = (struct s3_attrs){.bytes = 5, .data = "depth"};
    s3_attrs_take(&attrs);
    assert_int_equal(attrs.written_ms, 0);
}

static void too_many_attributes(void **state)
{
    char fields[400];
    struct s3_attrs attrs;

    (void)state;
    snprintf(fields, sizeof(fields), "x-amz-meta-a: %0241d\r\n", 7);
    assert_int_equal(parse("PUT /b/k HTTP/1.1", fields), S3_OK);
    assert_int_equal(s3_attrs_make(&head, 1, &attrs), S3_MetadataTooLarge);
    snprintf(fields, sizeof(fields), "x-amz-meta-a: %0240d\r\n", 7);
    assert_int_equal(parse("PUT /b/k HTTP/1.1", fields), S3_OK);
    assert_int_equal(s3_attrs_make(&head, 1, &attrs), S3_OK);
    assert_int_equal(attrs.bytes, S3_ATTRS_BYTES_MAX);
}

static void etags(void **state)
{
    char text[S3_ETAG_BYTES];

    (void)state;
    s3_etag_print(UINT64_MAX, text);
    assert_string_equal(text, "\"ffffffffffffffff-p\"");
    assert_true(s3_etag_parse(pst_bytes_of(text)) == UINT64_MAX);
    assert_int_equal(s3_etag_parse(pst_bytes_of("00000000000000ff-p")), 255);
    assert_int_equal(s3_etag_parse(pst_bytes_of("\"00000000000000FF-p\"")), 0);
    assert_int_equal(s3_etag_parse(pst_bytes_of("\"ff-p\"")), 0);
    assert_int_equal(s3_etag_parse(pst_bytes_of("\"")), 0);
    assert_int_equal(s3_etag_parse(pst_bytes_of("")), 0);
}

static void dates(void **state)
{
    char text[S3_TIME_TEXT_BYTES];

    (void)state;
    s3_time_date(1369353600123u, text);
    assert_string_equal(text, "Fri, 24 May 2013 00:00:00 GMT");
    s3_time_iso(1369353600023u, text);
    assert_string_equal(text, "2013-05-24T00:00:00.023Z");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads),
        cmocka_unit_test(paths),
        cmocka_unit_test(virtual_hosts),
        cmocka_unit_test(queries),
        cmocka_unit_test(ranges),
        cmocka_unit_test(copies_take_all_of_their_range),
        cmocka_unit_test(conditions_of_reads),
        cmocka_unit_test(conditions_of_writes),
        cmocka_unit_test(attributes),
        cmocka_unit_test(foreign_attributes),
        cmocka_unit_test(too_many_attributes),
        cmocka_unit_test(etags),
        cmocka_unit_test(dates),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

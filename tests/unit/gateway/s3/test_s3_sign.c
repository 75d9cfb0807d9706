/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_s3_sign.c: signatures of requests and chunks, with the requests that AWS publishes as examples: their
 * key, their time and the signatures that come of them are the facts here.
 */
#include "lib/cm.h"

#include "gateway/s3/wire/sign_priv.h"
#include "gateway/s3/wire/time_priv.h"

#include <stdio.h>
#include <string.h>

#define ID     "AKIAIOSFODNN7EXAMPLE"
#define SECRET "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
#define SCOPE  "Credential=" ID "/20130524/us-east-1/s3/aws4_request"
#define EMPTY  "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define HOST   "Host: examplebucket.s3.amazonaws.com\r\n"
#define DATE   "x-amz-date: 20130524T000000Z\r\n"

static int64_t example_s(void)
{
    int64_t now_s;

    assert_true(s3_time_of_stamp(pst_bytes_of("20130524T000000Z"), &now_s));
    return now_s;
}

/* What is said of a request at that time, so many seconds later. */
static enum s3_code judged(const char *text, int64_t later_s, const char *secret, struct s3_signer *signer)
{
    static struct s3_head head;
    static struct s3_target target;
    struct s3_signature signature;
    enum s3_code code = s3_head_parse(text, strlen(text), &head);

    if (code == S3_OK)
        code = s3_target_parse(&head, "s3.amazonaws.com", &target);
    if (code == S3_OK)
        code = s3_sign_read(&head, &target, &signature);
    if (code != S3_OK)
        return code;
    assert_int_not_equal(signature.kind, S3_UNSIGNED);
    assert_true(s3_same(signature.access_key, pst_bytes_of(ID)));
    return s3_sign_check(&signature, &head, &target, pst_bytes_of(secret), example_s() + later_s, signer);
}

static enum s3_code now(const char *text)
{
    struct s3_signer signer;

    return judged(text, 0, SECRET, &signer);
}

#define GET_OBJECT                                                                                           \
    "GET /test.txt HTTP/1.1\r\n" HOST "Range: bytes=0-9\r\nx-amz-content-sha256: " EMPTY "\r\n" DATE         \
    "Authorization: AWS4-HMAC-SHA256 " SCOPE ",SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,"    \
    "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41\r\n\r\n"
#define PUT_OBJECT                                                                                           \
    "PUT /test$file.text HTTP/1.1\r\n" HOST "Date: Fri, 24 May 2013 00:00:00 GMT\r\n" DATE                   \
    "x-amz-storage-class: REDUCED_REDUNDANCY\r\n"                                                            \
    "x-amz-content-sha256: 44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072\r\n"             \
    "Authorization: AWS4-HMAC-SHA256 " SCOPE                                                                 \
    ",SignedHeaders=date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class,"                          \
    "Signature=98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd\r\n\r\n"
#define LIST                                                                                                 \
    "GET /?max-keys=2&prefix=J HTTP/1.1\r\n" HOST "x-amz-content-sha256: " EMPTY "\r\n" DATE                 \
    "Authorization: AWS4-HMAC-SHA256 " SCOPE ",SignedHeaders=host;x-amz-content-sha256;x-amz-date,"          \
    "Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7\r\n\r\n"
#define LIFECYCLE                                                                                            \
    "GET /?lifecycle HTTP/1.1\r\n" HOST "x-amz-content-sha256: " EMPTY "\r\n" DATE                           \
    "Authorization: AWS4-HMAC-SHA256 " SCOPE ",SignedHeaders=host;x-amz-content-sha256;x-amz-date,"          \
    "Signature=fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543\r\n\r\n"
#define PRESIGNED_QUERY                                                                                      \
    "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=" ID "%2F20130524%2Fus-east-1%2Fs3%2Faws4_request"    \
    "&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host"                              \
    "&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
#define PRESIGNED "GET /test.txt?" PRESIGNED_QUERY " HTTP/1.1\r\n" HOST "\r\n"

static void published_requests(void **state)
{
    (void)state;
    assert_int_equal(now(GET_OBJECT), S3_OK);
    assert_int_equal(now(PUT_OBJECT), S3_OK);
    assert_int_equal(now(LIST), S3_OK);
    assert_int_equal(now(LIFECYCLE), S3_OK);
    assert_int_equal(now(PRESIGNED), S3_OK);
}

static void other_secrets(void **state)
{
    struct s3_signer signer;

    (void)state;
    assert_int_equal(judged(GET_OBJECT, 0, "another", &signer), S3_SignatureDoesNotMatch);
    assert_int_equal(judged(PRESIGNED, 0, "another", &signer), S3_SignatureDoesNotMatch);
}

/* A change of a byte of anything that is signed. */
static void changed_requests(void **state)
{
    static const struct {
        const char *text, *from, *to;
    } changes[] = {
        {GET_OBJECT, "/test.txt", "/best.txt"},
        {GET_OBJECT, "GET", "PUT"},
        {GET_OBJECT, "bytes=0-9", "bytes=0-8"},
        {GET_OBJECT, EMPTY, "UNSIGNED-PAYLOAD"},
        {GET_OBJECT, "examplebucket.s3", "examplebuckets.s3"},
        {GET_OBJECT, "bdb41\r", "bdb42\r"},
        {LIST, "max-keys=2", "max-keys=3"},
        {LIST, "prefix=J", "prefix=J&x=1"},
        {PRESIGNED, "Expires=86400", "Expires=96400"},
        {PRESIGNED, "d404 ", "d405 "},
    };

    (void)state;
    for (size_t i = 0; i < pst_count_of(changes); i++) {
        const char *at = strstr(changes[i].text, changes[i].from);
        char text[2048];

        assert_non_null(at);
        snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - changes[i].text), changes[i].text, changes[i].to,
                 at + strlen(changes[i].from));
        assert_int_equal(now(text), S3_SignatureDoesNotMatch);
    }
}

static void times(void **state)
{
    struct s3_signer signer;

    (void)state;
    assert_int_equal(judged(GET_OBJECT, S3_SKEW_S, SECRET, &signer), S3_OK);
    assert_int_equal(judged(GET_OBJECT, S3_SKEW_S + 1, SECRET, &signer), S3_RequestTimeTooSkewed);
    assert_int_equal(judged(GET_OBJECT, -S3_SKEW_S, SECRET, &signer), S3_OK);
    assert_int_equal(judged(GET_OBJECT, -S3_SKEW_S - 1, SECRET, &signer), S3_RequestTimeTooSkewed);
    assert_int_equal(judged(PRESIGNED, 86400, SECRET, &signer), S3_OK);
    assert_int_equal(judged(PRESIGNED, 86401, SECRET, &signer), S3_AccessDenied);
    assert_int_equal(judged(PRESIGNED, -S3_SKEW_S - 1, SECRET, &signer), S3_AccessDenied);
}

/* Each is refused before anything is computed. */
static void broken_requests(void **state)
{
    static const struct {
        const char *text, *from, *to;
        enum s3_code code;
    } broken[] = {
        {GET_OBJECT, "AWS4-HMAC-SHA256 ", "AWS4-ECDSA-P256-SHA256 ", S3_AuthorizationHeaderMalformed},
        {GET_OBJECT, "/s3/aws4_request", "/ec2/aws4_request", S3_AuthorizationHeaderMalformed},
        {GET_OBJECT, "/20130524/", "/20130525/", S3_AuthorizationHeaderMalformed},
        {GET_OBJECT, "20130524T000000Z", "20130524T006000Z", S3_AuthorizationHeaderMalformed},
        {GET_OBJECT, DATE, "", S3_AuthorizationHeaderMalformed},
        {GET_OBJECT, "x-amz-content-sha256: " EMPTY "\r\n", "", S3_InvalidRequest},
        {GET_OBJECT, "=host;range", "=range", S3_AccessDenied},
        {GET_OBJECT, "Range:", "x-amz-acl: public\r\nRange:", S3_AccessDenied},
        {GET_OBJECT, DATE, DATE DATE, S3_InvalidRequest},
        {GET_OBJECT, "/test.txt", "/test.txt?" PRESIGNED_QUERY, S3_InvalidRequest},
        {PRESIGNED, "Expires=86400", "Expires=604801", S3_AuthorizationQueryParametersError},
        {PRESIGNED, "Expires=86400", "Expires=0", S3_AuthorizationQueryParametersError},
        {PRESIGNED, "Expires=86400", "Expires=-1", S3_AuthorizationQueryParametersError},
        {PRESIGNED, "aeeed9", "", S3_AuthorizationQueryParametersError},
    };

    (void)state;
    for (size_t i = 0; i < pst_count_of(broken); i++) {
        const char *at = strstr(broken[i].text, broken[i].from);
        char text[4096];

        assert_non_null(at);
        snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - broken[i].text), broken[i].text, broken[i].to,
                 at + strlen(broken[i].from));
        assert_int_equal(now(text), broken[i].code);
    }
}

/* The published example of a body in chunks of 64 KiB, 1 KiB and none. */
static void published_chunks(void **state)
{
    static const char put[] =
        "PUT /examplebucket/chunkObject.txt HTTP/1.1\r\nHost: s3.amazonaws.com\r\n" DATE
        "x-amz-storage-class: REDUCED_REDUNDANCY\r\nContent-Encoding: aws-chunked\r\n"
        "x-amz-content-sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD\r\n"
        "x-amz-decoded-content-length: 66560\r\nContent-Length: 66824\r\n"
        "Authorization: AWS4-HMAC-SHA256 " SCOPE
        ",SignedHeaders=content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;"
        "x-amz-decoded-content-length;x-amz-storage-class,"
        "Signature=4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9\r\n\r\n";
    static const struct {
        size_t bytes;
        const char *signature;
    } chunks[] = {{65536, "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648"},
                  {1024, "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497"},
                  {0, "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9"}};
    struct s3_signer signer, other;
    struct s3_digest digest;
    uint8_t out[S3_DIGEST_BYTES_MAX];

    (void)state;
    assert_int_equal(judged(put, 0, SECRET, &signer), S3_OK);
    assert_int_equal(s3_digest_open(&digest, S3_SHA256), 0);
    for (size_t i = 0; i < pst_count_of(chunks); i++) {
        for (size_t k = 0; k < chunks[i].bytes; k++)
            s3_digest_add(&digest, "a", 1);
        s3_digest_end(&digest, out);
        other = signer;
        assert_true(s3_sign_chunk(&signer, out, pst_bytes_of(chunks[i].signature)));
        assert_false(s3_sign_chunk(&other, out, pst_bytes_of(EMPTY)));
        assert_false(s3_sign_chunk(&signer, out, pst_bytes_of(chunks[i].signature))); /* twice */
        snprintf(signer.before, sizeof(signer.before), "%s", chunks[i].signature);
    }
    s3_digest_close(&digest);
}

static void digests(void **state)
{
    static const struct {
        enum s3_digest_kind kind;
        const char *base64;
    } known[] = {{S3_SHA256, "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU="},
                 {S3_SHA1, "98O8HYCOBHMq32eZZczDTKeuNEE="},
                 {S3_MD5, "JfnnlDI7RTiF9RgfG2JNCw=="},
                 {S3_CRC32, "y/Q5Jg=="},
                 {S3_CRC32C, "4waSgw=="},
                 {S3_CRC64NVME, "rosUhgp5mIg="}};
    uint8_t out[S3_DIGEST_BYTES_MAX];
    char text[S3_DIGEST_TEXT_MAX];

    (void)state;
    for (size_t i = 0; i < pst_count_of(known); i++) {
        struct s3_digest digest;

        assert_int_equal(s3_digest_open(&digest, known[i].kind), 0);
        for (int again = 0; again < 2; again++) {
            s3_digest_add(&digest, "12345", 5);
            s3_digest_add(&digest, "6789", 4);
            s3_base64(out, s3_digest_end(&digest, out), text);
            assert_string_equal(text, known[i].base64);
        }
        s3_digest_close(&digest);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_requests),
        cmocka_unit_test(other_secrets),
        cmocka_unit_test(changed_requests),
        cmocka_unit_test(times),
        cmocka_unit_test(broken_requests),
        cmocka_unit_test(published_chunks),
        cmocka_unit_test(digests),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

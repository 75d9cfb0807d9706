/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sign.c: Signature Version 4. The canonical request is never written down: its parts go into the digest as
 * they are made.
 */
#include "gateway/s3/wire/sign_priv.h"

#include "base/hex.h"
#include "base/percent.h"
#include "gateway/s3/wire/time_priv.h"

#include <stdio.h>

#define ALGORITHM "AWS4-HMAC-SHA256"

/* ---- reading it ---- */

/* "KEY/20130524/us-east-1/s3/aws4_request". */
static bool sign_credential(struct pst_bytes text, struct s3_signature *out)
{
    out->access_key = pst_http_cut(&text, '/');
    out->date = pst_http_cut(&text, '/');
    out->region = pst_http_cut(&text, '/');
    return s3_text_is(pst_http_cut(&text, '/'), "s3") && s3_text_is(text, "aws4_request") &&
           out->access_key.len > 0 && out->date.len == 8 && out->region.len > 0 && out->region.len <= 64;
}

static bool sign_is_whole(const struct s3_signature *s)
{
    pst_assert(s->kind != S3_UNSIGNED);
    return s->access_key.len && s->fields.len && s->signature.len == S3_SHA256_HEX &&
           s->time.len == S3_TIME_BYTES && memcmp(s->time.data, s->date.data, s->date.len) == 0;
}

static enum s3_code sign_read_field(struct pst_bytes text, const struct s3_head *head,
                                    struct s3_signature *out)
{
    out->kind = S3_SIGNED_HEAD;
    if (!s3_text_is(pst_http_cut(&text, ' '), ALGORITHM))
        return S3_AuthorizationHeaderMalformed;
    while (text.len) {
        struct pst_bytes value = pst_http_trim(pst_http_cut(&text, ','));
        struct pst_bytes name = pst_http_cut(&value, '=');

        if (s3_text_is(name, "Credential") && !sign_credential(value, out))
            return S3_AuthorizationHeaderMalformed;
        if (s3_text_is(name, "SignedHeaders"))
            out->fields = value;
        if (s3_text_is(name, "Signature"))
            out->signature = value;
    }
    out->time = s3_head_field(head, "x-amz-date");
    if (!out->payload.data)
        return S3_InvalidRequest;
    return sign_is_whole(out) ? S3_OK : S3_AuthorizationHeaderMalformed;
}

static enum s3_code sign_read_query(const struct s3_target *target, struct s3_signature *out)
{
    out->kind = S3_SIGNED_QUERY;
    if (!s3_text_is(s3_param(target, "X-Amz-Algorithm"), ALGORITHM) ||
        !sign_credential(s3_param(target, "X-Amz-Credential"), out))
        return S3_AuthorizationQueryParametersError;
    out->fields = s3_param(target, "X-Amz-SignedHeaders");
    out->signature = s3_param(target, "X-Amz-Signature");
    out->time = s3_param(target, "X-Amz-Date");
    if (!out->payload.data)
        out->payload = s3_param(target, "X-Amz-Content-Sha256");
    if (!out->payload.data)
        out->payload = pst_bytes_of("UNSIGNED-PAYLOAD");
    if (!pst_http_number(s3_param(target, "X-Amz-Expires"), &out->expires_s) || out->expires_s == 0 ||
        out->expires_s > S3_EXPIRES_S_MAX)
        return S3_AuthorizationQueryParametersError;
    return sign_is_whole(out) ? S3_OK : S3_AuthorizationQueryParametersError;
}

enum s3_code s3_sign_read(const struct s3_head *head, const struct s3_target *target,
                          struct s3_signature *out)
{
    struct pst_bytes field = s3_head_field(head, "authorization");
    bool in_query = s3_has_param(target, "X-Amz-Signature") || s3_has_param(target, "X-Amz-Algorithm");

    *out = (struct s3_signature){.payload = s3_head_field(head, "x-amz-content-sha256")};
    if (field.data && in_query) /* which of them would hold? */
        return S3_InvalidRequest;
    if (field.data)
        return sign_read_field(field, head, out);
    return in_query ? sign_read_query(target, out) : S3_OK;
}

/* ---- the canonical request ---- */

static void add_text(struct s3_digest *digest, const char *text)
{
    s3_digest_add(digest, text, strlen(text));
}

static void add_encoded(struct s3_digest *digest, struct pst_bytes text, bool keep_slashes)
{
    const char *at = text.data;

    for (size_t i = 0; i < text.len; i++) {
        char quoted[4];
        int n = 1;

        if (keep_slashes && at[i] == '/')
            quoted[0] = '/';
        else
            n = pst_percent_encode((struct pst_bytes){at + i, 1}, quoted, sizeof(quoted));
        pst_assert(n > 0);
        s3_digest_add(digest, quoted, (size_t)n);
    }
}

/* The order of what the texts become when they are encoded. */
static int compare_encoded(struct pst_bytes a, struct pst_bytes b)
{
    const char *one = a.data, *two = b.data;
    size_t same = 0;

    while (same < a.len && same < b.len && one[same] == two[same])
        same++;
    if (same < a.len && same < b.len) {
        char first[4], second[4];

        pst_assert(pst_percent_encode((struct pst_bytes){one + same, 1}, first, sizeof(first)) > 0);
        pst_assert(pst_percent_encode((struct pst_bytes){two + same, 1}, second, sizeof(second)) > 0);
        return strcmp(first, second);
    }
    return (a.len > b.len) - (a.len < b.len);
}

static int compare_params(const void *a, const void *b)
{
    const struct s3_param *one = a, *two = b;
    int order = compare_encoded(one->name, two->name);

    return order ? order : compare_encoded(one->value, two->value);
}

static void add_query(struct s3_digest *digest, const struct s3_target *target)
{
    struct s3_param sorted[S3_PARAMS_MAX];
    uint32_t count = 0;

    pst_assert(target->param_count <= S3_PARAMS_MAX);
    for (uint32_t i = 0; i < target->param_count; i++)
        if (!s3_text_is(target->params[i].name, "X-Amz-Signature"))
            sorted[count++] = target->params[i];
    pst_assert(count <= target->param_count);
    qsort(sorted, count, sizeof(sorted[0]), compare_params);
    for (uint32_t i = 0; i < count; i++) {
        add_text(digest, i ? "&" : "");
        add_encoded(digest, sorted[i].name, false);
        add_text(digest, "=");
        add_encoded(digest, sorted[i].value, false);
    }
}

/* A value with one blank in place of several. */
static void add_value(struct s3_digest *digest, struct pst_bytes value)
{
    const char *at = value.data;

    for (size_t i = 0; i < value.len; i++)
        if (at[i] != ' ' || i + 1 == value.len || at[i + 1] != ' ')
            s3_digest_add(digest, at + i, 1);
}

static bool names_equal(struct pst_bytes name, struct pst_bytes lower)
{
    const char *one = name.data, *two = lower.data;

    if (name.len != lower.len)
        return false;
    for (size_t i = 0; i < name.len; i++)
        if ((one[i] >= 'A' && one[i] <= 'Z' ? one[i] | 0x20 : one[i]) != two[i])
            return false;
    return true;
}

static void add_fields(struct s3_digest *digest, const struct s3_head *head, struct pst_bytes names)
{
    pst_assert(head->field_count <= S3_FIELDS_MAX);
    while (names.len) {
        struct pst_bytes name = pst_http_cut(&names, ';');
        bool first = true;

        s3_digest_add(digest, name.data, name.len);
        add_text(digest, ":");
        for (uint32_t i = 0; i < head->field_count; i++) {
            if (!names_equal(head->fields[i].name, name))
                continue;
            add_text(digest, first ? "" : ",");
            add_value(digest, head->fields[i].value);
            first = false;
        }
        add_text(digest, "\n");
    }
}

static bool is_listed(struct pst_bytes names, struct pst_bytes name)
{
    while (names.len)
        if (names_equal(name, pst_http_cut(&names, ';')))
            return true;
    return false;
}

/* What is acted on must be signed, or a man in the middle could change it. */
static bool signs_enough(const struct s3_head *head, struct pst_bytes names)
{
    pst_assert(head->field_count <= S3_FIELDS_MAX);
    for (uint32_t i = 0; i < head->field_count; i++) {
        struct pst_bytes name = head->fields[i].name;
        bool needed = pst_http_is(name, "host") || pst_http_is(name, "content-md5") ||
                      (name.len > 6 && strncasecmp(name.data, "x-amz-", 6) == 0);

        if (needed && !is_listed(names, name))
            return false;
    }
    return true;
}

static int digest_request(const struct s3_signature *signature, const struct s3_head *head,
                          const struct s3_target *target, char hex[S3_SHA256_HEX + 1])
{
    struct pst_bytes path = head->path;
    uint8_t out[S3_DIGEST_BYTES_MAX];
    char decoded[S3_HEAD_BYTES_MAX];
    struct s3_digest digest;
    int n = pst_percent_decode(path, false, decoded, sizeof(decoded));

    pst_assert(n > 0); /* s3_target_parse() has done so before */
    if (s3_digest_open(&digest, S3_SHA256) < 0) {
        s3_digest_close(&digest);
        return -ENOMEM;
    }
    s3_digest_add(&digest, head->method.data, head->method.len);
    add_text(&digest, "\n");
    add_encoded(&digest, (struct pst_bytes){decoded, (size_t)n}, true);
    add_text(&digest, "\n");
    add_query(&digest, target);
    add_text(&digest, "\n");
    add_fields(&digest, head, signature->fields);
    add_text(&digest, "\n");
    s3_digest_add(&digest, signature->fields.data, signature->fields.len);
    add_text(&digest, "\n");
    s3_digest_add(&digest, signature->payload.data, signature->payload.len);
    s3_digest_end(&digest, out);
    s3_digest_close(&digest);
    pst_hex_print(out, S3_SHA256_BYTES, hex);
    return 0;
}

/* ---- the signature ---- */

static void make_key(const struct s3_signature *signature, struct pst_bytes secret,
                     uint8_t key[S3_SHA256_BYTES])
{
    const struct pst_bytes steps[] = {signature->date, signature->region, pst_bytes_of("s3"),
                                      pst_bytes_of("aws4_request")};
    char first[4 + S3_SECRET_BYTES_MAX];
    struct pst_bytes with = {first, 4 + secret.len};

    pst_assert(secret.len > 0 && secret.len <= S3_SECRET_BYTES_MAX);
    memcpy(first, "AWS4", 4);
    memcpy(first + 4, secret.data, secret.len);
    for (size_t i = 0; i < pst_count_of(steps); i++) {
        uint8_t next[S3_SHA256_BYTES];

        s3_hmac_sha256(with, steps[i], next);
        memcpy(key, next, sizeof(next));
        with = (struct pst_bytes){key, S3_SHA256_BYTES};
    }
}

static enum s3_code check_time(const struct s3_signature *signature, int64_t now_s)
{
    int64_t then_s;

    pst_assert(signature->kind != S3_UNSIGNED);
    if (!s3_time_of_stamp(signature->time, &then_s))
        return signature->kind == S3_SIGNED_HEAD ? S3_AuthorizationHeaderMalformed
                                                 : S3_AuthorizationQueryParametersError;
    if (signature->kind == S3_SIGNED_HEAD)
        return then_s > now_s + S3_SKEW_S || then_s < now_s - S3_SKEW_S ? S3_RequestTimeTooSkewed : S3_OK;
    return then_s > now_s + S3_SKEW_S || now_s > then_s + (int64_t)signature->expires_s ? S3_AccessDenied
                                                                                        : S3_OK;
}

enum s3_code s3_sign_check(const struct s3_signature *signature, const struct s3_head *head,
                           const struct s3_target *target, struct pst_bytes secret, int64_t now_s,
                           struct s3_signer *out)
{
    char request[S3_SHA256_HEX + 1], text[64 + S3_TIME_BYTES + S3_SCOPE_BYTES + S3_SHA256_HEX];
    struct s3_signer signer;
    uint8_t mac[S3_SHA256_BYTES];
    enum s3_code code = check_time(signature, now_s);

    pst_assert(signature->kind != S3_UNSIGNED);
    if (code != S3_OK)
        return code;
    if (!is_listed(signature->fields, pst_bytes_of("host")) || !signs_enough(head, signature->fields))
        return S3_AccessDenied;
    if (digest_request(signature, head, target, request) < 0)
        return S3_SlowDown;
    pst_assert(signature->time.len == S3_TIME_BYTES);
    pst_assert(signature->date.len == 8);
    pst_assert(signature->region.len <= 64);
    snprintf(signer.time, sizeof(signer.time), "%.*s", S3_TIME_BYTES, (const char *)signature->time.data);
    snprintf(signer.scope, sizeof(signer.scope), "%.8s/%.*s/s3/aws4_request",
             (const char *)signature->date.data, (int)signature->region.len,
             (const char *)signature->region.data);
    snprintf(text, sizeof(text), ALGORITHM "\n%s\n%s\n%s", signer.time, signer.scope, request);
    make_key(signature, secret, signer.key);
    s3_hmac_sha256((struct pst_bytes){signer.key, sizeof(signer.key)}, pst_bytes_of(text), mac);
    pst_hex_print(mac, sizeof(mac), signer.before);
    if (!s3_same(pst_bytes_of(signer.before), signature->signature))
        return S3_SignatureDoesNotMatch;
    *out = signer;
    return S3_OK;
}

/* ---- of chunks ---- */

static bool sign_next(struct s3_signer *signer, const char *text, struct pst_bytes shown)
{
    uint8_t mac[S3_SHA256_BYTES];

    s3_hmac_sha256((struct pst_bytes){signer->key, sizeof(signer->key)}, pst_bytes_of(text), mac);
    pst_hex_print(mac, sizeof(mac), signer->before);
    pst_assert(strlen(signer->before) == S3_SHA256_HEX);
    return s3_same(pst_bytes_of(signer->before), shown);
}

bool s3_sign_chunk(struct s3_signer *signer, const uint8_t digest[S3_SHA256_BYTES], struct pst_bytes shown)
{
    static const char empty[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    char hex[S3_SHA256_HEX + 1], text[512];

    pst_hex_print(digest, S3_SHA256_BYTES, hex);
    snprintf(text, sizeof(text), ALGORITHM "-PAYLOAD\n%s\n%s\n%s\n%s\n%s", signer->time, signer->scope,
             signer->before, empty, hex);
    return sign_next(signer, text, shown);
}

bool s3_sign_trailer(struct s3_signer *signer, const uint8_t digest[S3_SHA256_BYTES], struct pst_bytes shown)
{
    char hex[S3_SHA256_HEX + 1], text[512];

    pst_hex_print(digest, S3_SHA256_BYTES, hex);
    snprintf(text, sizeof(text), ALGORITHM "-TRAILER\n%s\n%s\n%s\n%s", signer->time, signer->scope,
             signer->before, hex);
    return sign_next(signer, text, shown);
}

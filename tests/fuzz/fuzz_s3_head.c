/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_s3_head.c: requests of S3 up to their signatures. Nothing that is read of a head lies outside of it,
 * names fit where they are put, and no request without the secret is found to be signed.
 */
#include "fuzz.h"

#include "gateway/s3/wire/conditions_priv.h"
#include "gateway/s3/wire/sign_priv.h"

static void within(struct pst_bytes part, const char *text, size_t bytes)
{
    const char *at = part.data;

    pst_assert(part.len == 0 || (at >= text && at + part.len <= text + bytes));
}

/* No input has the signature of this secret, but for one chance in 2^256. */
static void judge(const struct s3_head *head, const struct s3_target *target)
{
    static const char secret[] = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
    struct s3_signature signature;
    struct s3_signer signer;
    int64_t now_s = 1369353600;

    if (s3_sign_read(head, target, &signature) != S3_OK || signature.kind == S3_UNSIGNED)
        return;
    pst_assert(signature.signature.len == S3_SHA256_HEX && signature.access_key.len > 0);
    pst_assert(s3_sign_check(&signature, head, target, pst_bytes_of(secret), now_s, &signer) != S3_OK);
}

static void read_fields(const struct s3_head *head)
{
    struct s3_attrs attrs, taken;
    struct s3_range range;
    struct s3_name name;
    struct pst_bytes key, value;
    uint64_t generation;
    bool own, conditional;
    size_t at = 0;

    if (s3_range_parse(s3_head_field(head, "range"), 1000, &range) == S3_OK)
        pst_assert(range.offset <= 1000 && range.bytes <= 1000 - range.offset);
    s3_conditions_read(head, "", 255, 1369353600000u);
    s3_conditions_write(head, &conditional, &generation);
    if (s3_name_parse(s3_head_field(head, "x-amz-copy-source"), &name) == S3_OK)
        pst_assert(name.bytes <= PST_KEY_BYTES_MAX && name.text[name.bytes] == 0);
    if (s3_attrs_make(head, 7, &attrs) != S3_OK)
        return;
    taken = attrs;
    s3_attrs_take(&taken);
    pst_assert(taken.written_ms == 7); /* what was made can be read */
    while (s3_attrs_next(&taken, &at, &own, &key, &value))
        pst_assert(at <= taken.bytes);
    pst_assert(at == 0 || at == taken.bytes || taken.bytes == 12);
}

static void parse(const char *text, size_t bytes)
{
    static struct s3_head head;
    static struct s3_target target;

    if (s3_head_parse(text, bytes, &head) != S3_OK)
        return;
    within(head.method, text, bytes);
    within(head.path, text, bytes);
    within(head.query, text, bytes);
    pst_assert(head.field_count <= S3_FIELDS_MAX && (head.has_length || head.body_bytes == 0));
    for (uint32_t i = 0; i < head.field_count; i++) {
        within(head.fields[i].name, text, bytes);
        within(head.fields[i].value, text, bytes);
    }
    read_fields(&head);
    if (s3_target_parse(&head, "s3.test", &target) != S3_OK)
        return;
    pst_assert(target.name.bytes <= PST_KEY_BYTES_MAX && target.name.bucket_bytes <= target.name.bytes);
    pst_assert(target.name.bytes == 0 || s3_is_bucket(s3_bucket_of(&target.name)));
    judge(&head, &target);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz in = {data, bytes};
    size_t portion = fuzz_below(&in, 64) + 1, text_bytes, end, found = 0;
    char *text = (char *)fuzz_take(&in, S3_HEAD_BYTES_MAX, &text_bytes);

    end = pst_http_head_end(text, text_bytes, 0);
    pst_assert(end <= text_bytes);
    for (size_t at = 0, last = 0; at < text_bytes && !found; last = at) {
        at = pst_min(at + portion, text_bytes);
        found = pst_http_head_end(text, at, last);
    }
    pst_assert(found == end);
    if (end)
        parse(text, end);
    free(text);
    return 0;
}

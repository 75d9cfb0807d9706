/* SPDX-License-Identifier: Apache-2.0 */
/* head.c: request heads. */
#include "gateway/s3/wire/head_priv.h"

struct pst_bytes s3_head_field(const struct s3_head *head, const char *name)
{
    pst_assert(head->field_count <= S3_FIELDS_MAX);
    for (uint32_t i = 0; i < head->field_count; i++)
        if (pst_http_is(head->fields[i].name, name))
            return head->fields[i].value;
    return (struct pst_bytes){NULL, 0};
}

static enum s3_code head_first_line(struct pst_bytes line, struct s3_head *out)
{
    struct pst_bytes target;

    out->method = pst_http_cut(&line, ' ');
    target = pst_http_cut(&line, ' ');
    if (!pst_http_is_token(out->method) || out->method.len > 16)
        return S3_InvalidRequest;
    if (!s3_text_is(line, "HTTP/1.1") && !s3_text_is(line, "HTTP/1.0"))
        return S3_InvalidRequest;
    for (size_t i = 0; i < target.len; i++) {
        unsigned char c = ((const unsigned char *)target.data)[i];

        if (c <= ' ' || c == 0x7f || c == '#')
            return S3_InvalidURI;
    }
    out->keep_alive = s3_text_is(line, "HTTP/1.1");
    pst_http_strip_host(&target);
    out->path = pst_http_cut(&target, '?');
    out->query = target;
    return out->path.len && *(const char *)out->path.data == '/' ? S3_OK : S3_InvalidURI;
}

static enum s3_code head_field(struct pst_bytes line, struct s3_head *out)
{
    const char *colon = line.len ? memchr(line.data, ':', line.len) : NULL;
    struct s3_field *field = &out->fields[out->field_count];

    pst_assert(out->field_count <= S3_FIELDS_MAX);
    if (!colon)
        return S3_InvalidRequest;
    if (out->field_count == S3_FIELDS_MAX)
        return S3_RequestHeaderSectionTooLarge;
    field->name = (struct pst_bytes){line.data, (size_t)(colon - (const char *)line.data)};
    field->value = pst_http_trim((struct pst_bytes){colon + 1, line.len - field->name.len - 1});
    /* A folded line and a space before the colon are no token, either. */
    if (!pst_http_is_token(field->name) || !pst_http_is_value(field->value))
        return S3_InvalidRequest;
    out->field_count++;
    pst_assert(out->field_count <= S3_FIELDS_MAX);
    return S3_OK;
}

static void head_connection(struct pst_bytes value, struct s3_head *out)
{
    while (value.len) {
        struct pst_bytes word = pst_http_trim(pst_http_cut(&value, ','));

        if (pst_http_is(word, "close"))
            out->keep_alive = false;
        else if (pst_http_is(word, "keep-alive"))
            out->keep_alive = true;
    }
}

/* What must not come twice: two readers could take one each. */
static bool head_has_twins(const struct s3_head *head)
{
    static const char *const once[] = {"host",
                                       "content-length",
                                       "transfer-encoding",
                                       "authorization",
                                       "x-amz-date",
                                       "x-amz-content-sha256",
                                       "x-amz-decoded-content-length",
                                       "content-encoding",
                                       "x-amz-trailer",
                                       "x-amz-copy-source",
                                       "if-match",
                                       "if-none-match",
                                       "range",
                                       "expect"};

    pst_assert(head->field_count <= S3_FIELDS_MAX);
    for (size_t i = 0; i < pst_count_of(once); i++) {
        uint32_t count = 0;

        for (uint32_t k = 0; k < head->field_count; k++)
            count += pst_http_is(head->fields[k].name, once[i]);
        if (count > 1)
            return true;
    }
    return false;
}

/* What the fields say of the message itself. */
static enum s3_code head_message(struct s3_head *out)
{
    struct pst_bytes length = s3_head_field(out, "content-length");
    struct pst_bytes encoding = s3_head_field(out, "transfer-encoding");
    struct pst_bytes expect = s3_head_field(out, "expect");

    if (head_has_twins(out) || !s3_head_field(out, "host").data)
        return S3_InvalidRequest;
    head_connection(s3_head_field(out, "connection"), out);
    if (encoding.data && (length.data || !pst_http_is(encoding, "chunked")))
        return length.data ? S3_InvalidRequest : S3_NotImplemented;
    out->chunked = encoding.data != NULL;
    out->has_length = length.data != NULL;
    if (length.data && !pst_http_number(length, &out->body_bytes))
        return S3_InvalidRequest;
    if (expect.data && !pst_http_is(expect, "100-continue"))
        return S3_InvalidRequest;
    out->expect_continue = expect.data != NULL;
    return S3_OK;
}

enum s3_code s3_head_parse(const char *text, size_t bytes, struct s3_head *out)
{
    enum s3_code code = S3_OK;
    size_t at = 0;

    pst_assert(bytes >= 4);
    pst_assert(memcmp(text + bytes - 4, "\r\n\r\n", 4) == 0);
    *out = (struct s3_head){.field_count = 0};
    while (at < bytes - 2 && code == S3_OK) {
        const char *end = memmem(text + at, bytes - at, "\r\n", 2);
        struct pst_bytes line = {text + at, (size_t)(end - text) - at};

        pst_assert(end && end < text + bytes);
        code = at == 0 ? head_first_line(line, out) : head_field(line, out);
        at += line.len + 2;
        pst_assert(at <= bytes);
    }
    return code == S3_OK ? head_message(out) : code;
}

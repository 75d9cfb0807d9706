/* SPDX-License-Identifier: Apache-2.0 */
/* attrs.c: attributes of values that are objects. */
#include "gateway/s3/wire/attrs_priv.h"

#include <stdio.h>
#include <strings.h>

#include "base/hex.h"

enum {
    HEAD_BYTES = 12,
    CODE_OWN = 0, /* of x-amz-meta-NAME */
};

#define WRITTEN_MS_MAX 253402300800000u /* the year 10000 */

static const uint8_t magic[4] = {'S', '3', 0, 1};
static const char own_prefix[] = "x-amz-meta-";
/* A code is the place here, from 1 on: only ever append. */
static const char *const kept[] = {"content-type",     "cache-control",    "content-disposition",
                                   "content-encoding", "content-language", "expires"};

static bool attrs_add_byte(struct s3_attrs *attrs, size_t byte)
{
    pst_assert(attrs->bytes <= sizeof(attrs->data));
    if (attrs->bytes == sizeof(attrs->data) || byte > UINT8_MAX)
        return false;
    attrs->data[attrs->bytes++] = (uint8_t)byte;
    return true;
}

static bool attrs_add_text(struct s3_attrs *attrs, struct pst_bytes text)
{
    if (!attrs_add_byte(attrs, text.len) || text.len > sizeof(attrs->data) - attrs->bytes)
        return false;
    if (text.len)
        memcpy(attrs->data + attrs->bytes, text.data, text.len);
    attrs->bytes = (uint16_t)(attrs->bytes + text.len);
    pst_assert(attrs->bytes <= sizeof(attrs->data));
    return true;
}

/* How a body travels is not kept: "aws-chunked", in front of what is, or behind it. */
static struct pst_bytes encoding_kept(struct pst_bytes value)
{
    struct pst_bytes rest = value, first = pst_http_trim(pst_http_cut(&rest, ','));
    const char *comma = value.len ? memrchr(value.data, ',', value.len) : NULL;
    size_t before = comma ? (size_t)(comma - (const char *)value.data) : 0;

    if (pst_http_is(first, "aws-chunked"))
        return pst_http_trim(rest);
    if (comma &&
        pst_http_is(pst_http_trim((struct pst_bytes){comma + 1, value.len - before - 1}), "aws-chunked"))
        return pst_http_trim((struct pst_bytes){value.data, before});
    return value;
}

static bool attrs_add_field(struct s3_attrs *attrs, const struct s3_field *field)
{
    size_t prefix = sizeof(own_prefix) - 1;

    if (field->name.len > prefix && strncasecmp(field->name.data, own_prefix, prefix) == 0) {
        struct pst_bytes name = {(const char *)field->name.data + prefix, field->name.len - prefix};

        return attrs_add_byte(attrs, CODE_OWN) && attrs_add_text(attrs, name) &&
               attrs_add_text(attrs, field->value);
    }
    for (size_t i = 0; i < pst_count_of(kept); i++) {
        struct pst_bytes value = field->value;

        if (!pst_http_is(field->name, kept[i]))
            continue;
        if (pst_http_is(field->name, "content-encoding"))
            value = encoding_kept(value);
        return value.len == 0 || (attrs_add_byte(attrs, i + 1) && attrs_add_text(attrs, value));
    }
    return true;
}

void s3_attrs_stamp(struct s3_attrs *attrs, uint64_t now_ms)
{
    if (attrs->written_ms == 0)
        attrs->bytes = HEAD_BYTES;
    pst_assert(attrs->bytes >= HEAD_BYTES && attrs->bytes <= sizeof(attrs->data));
    memcpy(attrs->data, magic, sizeof(magic));
    for (int i = 0; i < 8; i++)
        attrs->data[sizeof(magic) + (size_t)i] = (uint8_t)(now_ms >> 8 * i);
    attrs->written_ms = now_ms;
}

enum s3_code s3_attrs_make(const struct s3_head *head, uint64_t now_ms, struct s3_attrs *out)
{
    struct s3_attrs attrs = {.written_ms = 0};

    s3_attrs_stamp(&attrs, now_ms);
    for (uint32_t i = 0; i < head->field_count; i++)
        if (!attrs_add_field(&attrs, &head->fields[i]))
            return S3_MetadataTooLarge;
    *out = attrs;
    return S3_OK;
}

/* ---- reading them ---- */

static bool attrs_take_text(const struct s3_attrs *attrs, size_t *at, struct pst_bytes *text)
{
    if (*at >= attrs->bytes || attrs->data[*at] > attrs->bytes - *at - 1)
        return false;
    *text = (struct pst_bytes){attrs->data + *at + 1, attrs->data[*at]};
    *at += 1 + text->len;
    pst_assert(*at <= attrs->bytes);
    for (size_t i = 0; i < text->len; i++) {
        uint8_t c = ((const uint8_t *)text->data)[i];

        if ((c < ' ' && c != '\t') || c == 0x7f) /* would end a line of a head */
            return false;
    }
    return true;
}

static bool attrs_take_one(const struct s3_attrs *attrs, size_t *at, bool *own, struct pst_bytes *name,
                           struct pst_bytes *value)
{
    uint8_t code = attrs->data[(*at)++];

    pst_assert(*at <= attrs->bytes);
    *own = code == CODE_OWN;
    if (code > pst_count_of(kept))
        return false;
    if (*own)
        return attrs_take_text(attrs, at, name) && attrs_take_text(attrs, at, value);
    *name = pst_bytes_of(kept[code - 1]);
    return attrs_take_text(attrs, at, value);
}

bool s3_attrs_next(const struct s3_attrs *attrs, size_t *at, bool *own, struct pst_bytes *name,
                   struct pst_bytes *value)
{
    pst_assert(attrs->bytes <= sizeof(attrs->data));
    if (*at == 0)
        *at = HEAD_BYTES;
    return attrs->written_ms && *at < attrs->bytes && attrs_take_one(attrs, at, own, name, value);
}

void s3_attrs_take(struct s3_attrs *attrs)
{
    struct pst_bytes name, value;
    uint64_t written_ms = 0;
    size_t at = HEAD_BYTES;
    bool own;

    pst_assert(attrs->bytes <= sizeof(attrs->data));
    attrs->written_ms = 0;
    if (attrs->bytes < HEAD_BYTES || memcmp(attrs->data, magic, sizeof(magic)) != 0)
        return;
    for (int i = 0; i < 8; i++)
        written_ms |= (uint64_t)attrs->data[sizeof(magic) + (size_t)i] << 8 * i;
    while (at < attrs->bytes)
        if (!attrs_take_one(attrs, &at, &own, &name, &value))
            return;
    if (written_ms < WRITTEN_MS_MAX)
        attrs->written_ms = written_ms;
}

/* ---- ETags ---- */

void s3_etag_print(uint64_t generation, char out[S3_ETAG_BYTES])
{
    int n = snprintf(out, S3_ETAG_BYTES, "\"%016llx-p\"", (unsigned long long)generation);

    pst_assert(n > 0 && n < S3_ETAG_BYTES);
}

uint64_t s3_etag_parse(struct pst_bytes text)
{
    const char *at = text.data;
    uint64_t generation = 0;

    if (text.len >= 2 && at[0] == '"' && at[text.len - 1] == '"') {
        at++;
        text.len -= 2;
    }
    if (text.len != 18 || at[16] != '-' || at[17] != 'p')
        return 0;
    for (int i = 0; i < 16; i++) {
        int digit = pst_hex_digit(at[i]);

        if (digit < 0)
            return 0;
        generation = generation << 4 | (uint64_t)digit;
    }
    return generation;
}

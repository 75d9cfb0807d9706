/* SPDX-License-Identifier: Apache-2.0 */
/* conditions.c: what RFC 9110 says of ranges and preconditions, as far as S3 does it. */
#include "gateway/s3/wire/conditions_priv.h"

#include "gateway/s3/wire/time_priv.h"

#include <stdio.h>
#include <strings.h>

/* A place in an object: one too large for a number lies behind every end. */
static bool place_parse(struct pst_bytes text, uint64_t *out)
{
    if (pst_http_number(text, out))
        return true;
    for (size_t i = 0; i < text.len; i++)
        if (((const char *)text.data)[i] < '0' || ((const char *)text.data)[i] > '9')
            return false;
    *out = UINT64_MAX;
    return text.len > 0;
}

enum s3_code s3_range_parse(struct pst_bytes text, uint64_t value_bytes, struct s3_range *out)
{
    static const char unit[] = "bytes=";
    struct pst_bytes first, last = {NULL, 0};
    uint64_t from = 0, to = UINT64_MAX;

    *out = (struct s3_range){.bytes = value_bytes};
    if (text.len < sizeof(unit) || strncasecmp(text.data, unit, sizeof(unit) - 1) != 0 ||
        memchr(text.data, ',', text.len))
        return S3_OK;
    last = (struct pst_bytes){(const char *)text.data + sizeof(unit) - 1, text.len - sizeof(unit) + 1};
    if (!memchr(last.data, '-', last.len))
        return S3_OK;
    first = pst_http_trim(pst_http_cut(&last, '-'));
    last = pst_http_trim(last);
    if ((first.len == 0 && last.len == 0) || (first.len && !place_parse(first, &from)) ||
        (last.len && !place_parse(last, &to)) || (first.len && to < from))
        return S3_OK;
    if (first.len == 0) { /* so many of the last bytes */
        from = to < value_bytes ? value_bytes - to : 0;
        to = to ? UINT64_MAX : 0;
    }
    if (from >= value_bytes || to < from)
        return S3_InvalidRange;
    out->partial = true;
    out->offset = from;
    out->bytes = pst_min(to, value_bytes - 1) - from + 1;
    pst_assert(out->offset < value_bytes);
    pst_assert(out->bytes > 0 && out->bytes <= value_bytes - out->offset);
    return S3_OK;
}

enum s3_code s3_range_within(struct pst_bytes text, uint64_t value_bytes, struct s3_range *out)
{
    struct pst_bytes last = text;
    enum s3_code code = s3_range_parse(text, value_bytes, out);
    uint64_t to = 0;

    if (code != S3_OK || !text.data)
        return code;
    (void)pst_http_cut(&last, '-');
    if (!out->partial || !place_parse(pst_http_trim(last), &to))
        return S3_InvalidArgument;
    return to - out->offset + 1 == out->bytes ? S3_OK : S3_InvalidRange;
}

static struct pst_bytes condition_field(const struct s3_head *head, const char *prefix, const char *name)
{
    char whole[64];

    snprintf(whole, sizeof(whole), "%s%s", prefix, name);
    return s3_head_field(head, whole);
}

/* Whether a list of ETags has this one. @weak: also as one of the same content in other bytes, as a proxy
 * that compresses makes it. */
static bool etags_have(struct pst_bytes list, uint64_t generation, bool weak)
{
    while (list.len) {
        struct pst_bytes etag = pst_http_trim(pst_http_cut(&list, ','));

        if (weak && etag.len > 2 && memcmp(etag.data, "W/", 2) == 0)
            etag = (struct pst_bytes){(const char *)etag.data + 2, etag.len - 2};
        if (s3_text_is(etag, "*") || s3_etag_parse(etag) == generation)
            return true;
    }
    return false;
}

enum s3_code s3_conditions_read(const struct s3_head *head, const char *prefix, uint64_t generation,
                                uint64_t written_ms)
{
    struct pst_bytes match = condition_field(head, prefix, "if-match");
    struct pst_bytes none_match = condition_field(head, prefix, "if-none-match");
    int64_t since_s, written_s = (int64_t)(written_ms / 1000);

    pst_assert(generation > 0);
    if (match.data) {
        if (!etags_have(match, generation, false))
            return S3_PreconditionFailed;
    } else if (s3_time_of_date(condition_field(head, prefix, "if-unmodified-since"), &since_s) &&
               (written_ms == 0 || written_s > since_s)) {
        return S3_PreconditionFailed;
    }
    if (none_match.data)
        return etags_have(none_match, generation, true) ? S3_NotModified : S3_OK;
    if (s3_time_of_date(condition_field(head, prefix, "if-modified-since"), &since_s) && written_ms &&
        written_s <= since_s)
        return S3_NotModified;
    return S3_OK;
}

enum s3_code s3_conditions_write(const struct s3_head *head, bool *conditional, uint64_t *generation)
{
    struct pst_bytes match = s3_head_field(head, "if-match");
    struct pst_bytes none_match = s3_head_field(head, "if-none-match");

    *conditional = match.data || none_match.data;
    *generation = 0;
    if ((match.data && none_match.data) || s3_text_is(match, "*"))
        return S3_NotImplemented;
    if (none_match.data)
        return s3_text_is(none_match, "*") ? S3_OK : S3_NotImplemented;
    if (match.data)
        *generation = s3_etag_parse(match);
    return match.data && *generation == 0 ? S3_PreconditionFailed : S3_OK;
}

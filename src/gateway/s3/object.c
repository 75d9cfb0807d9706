/* SPDX-License-Identifier: Apache-2.0 */
/* object.c: GetObject, HeadObject and DeleteObject. */
#include "gateway/s3/s3_priv.h"

#include "gateway/s3/wire/time_priv.h"

#include <stdio.h>
#include <strings.h>

/* ---- reading ---- */

/* "response-content-type" and its like, in place of what was kept. */
static struct pst_bytes object_overridden(const struct s3_session *s, struct pst_bytes name)
{
    char param[64];

    snprintf(param, sizeof(param), "response-%.*s", (int)name.len, (const char *)name.data);
    return s3_param(&s->target, param);
}

static bool object_fits_a_head(struct pst_bytes value)
{
    for (size_t i = 0; i < value.len; i++) {
        unsigned char c = ((const unsigned char *)value.data)[i];

        if (c < ' ' || c == 0x7f)
            return false;
    }
    return true;
}

static const char response[] = "response-";

/* Those of the query, which win. */
static enum s3_code object_override_fields(struct s3_session *s)
{
    size_t prefix = sizeof(response) - 1, bytes = 0;

    pst_assert(s->target.param_count <= S3_PARAMS_MAX);
    for (uint32_t i = 0; i < s->target.param_count; i++) {
        const struct s3_param *param = &s->target.params[i];
        char name[64];

        if (param->name.len <= prefix || memcmp(param->name.data, response, prefix) != 0)
            continue;
        if (!object_fits_a_head(param->value))
            return s3_because(s, S3_InvalidArgument, "a response- parameter has control characters");
        bytes += param->value.len;
        if (bytes > S3_RESPONSE_BYTES)
            return s3_because(s, S3_InvalidArgument, "response- parameters may have %d bytes together",
                              S3_RESPONSE_BYTES);
        snprintf(name, sizeof(name), "%.*s", (int)(param->name.len - prefix),
                 (const char *)param->name.data + prefix);
        s3_field_bytes(s, name, param->value);
    }
    return S3_OK;
}

static void object_kept_fields(struct s3_session *s, const struct s3_attrs *attrs)
{
    bool own, typed = s3_has_param(&s->target, "response-content-type");
    struct pst_bytes name, value;
    size_t at = 0;

    pst_assert(attrs->bytes <= sizeof(attrs->data));
    while (s3_attrs_next(attrs, &at, &own, &name, &value)) {
        char whole[S3_ATTRS_BYTES_MAX + 16];

        if (!own && object_overridden(s, name).data)
            continue;
        typed |= !own && pst_http_is(name, "content-type");
        snprintf(whole, sizeof(whole), "%s%.*s", own ? "x-amz-meta-" : "", (int)name.len,
                 (const char *)name.data);
        s3_field_bytes(s, whole, value);
    }
    if (!typed)
        s3_field(s, "content-type", "binary/octet-stream");
}

/* A value of somebody else's was written at a time that is not known; "now" is never too early. */
static void object_date(struct s3_session *s, const struct s3_attrs *attrs)
{
    char date[S3_TIME_TEXT_BYTES];

    s3_time_date(attrs->written_ms ? attrs->written_ms : s3_now_ms(), date);
    s3_field(s, "Last-Modified", "%s", date);
}

static enum s3_code object_head(struct s3_session *s, const struct s3_object *object,
                                const struct s3_range *range, int status)
{
    enum s3_code code;

    s3_begin(s, status);
    s3_field_etag(s, object->generation);
    object_date(s, &object->attrs);
    if (status == 304)
        return s3_send_head(s, 0);
    s3_field(s, "Accept-Ranges", "bytes");
    pst_assert(range->offset <= object->bytes);
    pst_assert(range->bytes <= object->bytes - range->offset);
    pst_assert(!range->partial || range->bytes > 0);
    if (range->partial)
        s3_field(s, "Content-Range", "bytes %llu-%llu/%llu", (unsigned long long)range->offset,
                 (unsigned long long)(range->offset + range->bytes - 1), (unsigned long long)object->bytes);
    object_kept_fields(s, &object->attrs);
    code = object_override_fields(s);
    return code == S3_OK ? s3_send_head(s, range->bytes) : code;
}

static enum s3_code object_send(struct s3_session *s, struct s3_source *source,
                                const struct s3_object *object, struct s3_range range)
{
    struct pst_bytes piece;
    /* Before the head: if it is not there any more, another one is the answer. */
    enum s3_code code =
        s3_source_piece(s, source, range.offset, pst_min(range.bytes, S3_PIECE_BYTES), &piece);

    pst_assert(range.offset <= source->bytes);
    pst_assert(range.bytes <= source->bytes - range.offset);
    if (code == S3_OK)
        code = object_head(s, object, &range, range.partial ? 206 : 200);
    while (code == S3_OK && range.bytes > 0) {
        code = s3_send(s, piece.data, piece.len);
        pst_assert(piece.len > 0 && piece.len <= range.bytes);
        range.offset += piece.len;
        range.bytes -= piece.len;
        if (code == S3_OK && range.bytes > 0)
            code = s3_source_piece(s, source, range.offset, pst_min(range.bytes, S3_PIECE_BYTES), &piece);
        if (code == S3_CHANGED) /* never parts of two: the answer ends before its length */
            code = S3_GONE;
    }
    return code;
}

/* The Range that counts: one with If-Range goes on with an object that the client has a part of. */
static struct pst_bytes object_range(const struct s3_session *s, const struct s3_object *object)
{
    struct pst_bytes only = s3_head_field(&s->head, "if-range");

    if (only.data && s3_etag_parse(only) != object->generation)
        return (struct pst_bytes){NULL, 0};
    return s3_head_field(&s->head, "range");
}

static enum s3_code object_read(struct s3_session *s, const struct s3_object *object)
{
    bool head_only = s3_text_is(s->head.method, "HEAD");
    struct s3_source source;
    struct s3_range range;
    enum s3_code code = s3_conditions_read(&s->head, "", object->generation, object->attrs.written_ms);

    if (code == S3_NotModified)
        return object_head(s, object, &(struct s3_range){.bytes = 0}, 304);
    if (code == S3_OK)
        code = s3_range_parse(object_range(s, object), object->bytes, &range);
    if (code == S3_InvalidRange)
        s->out_of_bytes = object->bytes;
    if (code != S3_OK)
        return code;
    if (head_only)
        return object_head(s, object, &range, range.partial ? 206 : 200);
    code = s3_source_open(s, s3_store_key(s3_name_of(s)), object, &source);
    if (code == S3_OK)
        code = object_send(s, &source, object, range);
    s3_source_close(s, &source);
    return code;
}

enum s3_code s3_get_object(struct s3_session *s)
{
    enum s3_code code = S3_CHANGED;

    pst_assert(s3_has_key(s3_name_of(s)));
    for (int i = 0; i < S3_TRIES && code == S3_CHANGED; i++) {
        struct s3_object object;

        code = s3_stat(s, s3_store_key(s3_name_of(s)), &object);
        if (code == S3_OK)
            code = object_read(s, &object);
    }
    return code == S3_CHANGED ? s3_because(s, S3_SlowDown, "the object keeps changing") : code;
}

/* ---- deleting ---- */

enum s3_code s3_delete_object(struct s3_session *s)
{
    struct pst_bytes key = s3_store_key(s3_name_of(s));
    struct penstock_op op = {0};
    bool conditional;
    uint64_t generation;
    enum s3_code code = s3_conditions_write(&s->head, &conditional, &generation);

    pst_assert(s3_has_key(s3_name_of(s)));
    if (code != S3_OK)
        return code;
    if ((conditional && generation == 0) || s3_head_field(&s->head, "x-amz-if-match-size").data ||
        s3_head_field(&s->head, "x-amz-if-match-last-modified-time").data)
        return S3_NotImplemented;
    penstock_prep(&op, PENSTOCK_DELETE, key.data, key.len);
    if (conditional) {
        op.flags = PENSTOCK_IF_GENERATION;
        op.if_generation = generation;
    }
    penstock_batch(s->s3->store, &op, 1);
    if (op.result != 0 && op.result != PENSTOCK_MISS)
        return s3_result(s, &op);
    return s3_send_status(s, 204);
}

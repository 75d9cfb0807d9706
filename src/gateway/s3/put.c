/* SPDX-License-Identifier: Apache-2.0 */
/* put.c: PutObject and CopyObject. */
#include "gateway/s3/s3_priv.h"

#include <strings.h>

/* What would be kept in another way than is asked for is refused. */
enum s3_code s3_check_fields(struct s3_session *s)
{
    static const struct {
        const char *name, *but; /* its beginning; a value that asks for nothing */
    } refused[] = {
        {"x-amz-acl", "private"},
        {"x-amz-grant-", NULL},
        {"x-amz-object-lock-", NULL},
        {"x-amz-server-side-encryption", NULL},
        {"x-amz-storage-class", "STANDARD"},
        {"x-amz-tagging", NULL},
        {"x-amz-website-redirect-location", NULL},
        {"x-amz-write-offset-bytes", NULL},
    };

    pst_assert(s->head.field_count <= S3_FIELDS_MAX);
    for (uint32_t i = 0; i < s->head.field_count; i++)
        for (size_t k = 0; k < pst_count_of(refused); k++) {
            struct pst_bytes name = s->head.fields[i].name;
            size_t bytes = strlen(refused[k].name);

            if (name.len >= bytes && strncasecmp(name.data, refused[k].name, bytes) == 0 &&
                !(refused[k].but && s3_text_is(s->head.fields[i].value, refused[k].but)))
                return s3_because(s, S3_NotImplemented, "%s is not implemented", refused[k].name);
        }
    return S3_OK;
}

/* ---- copies ---- */

/* Metadata are the source's, unless the request says REPLACE. */
static enum s3_code copy_attrs(struct s3_session *s, const struct s3_object *from, struct s3_attrs *out)
{
    struct pst_bytes directive = s3_head_field(&s->head, "x-amz-metadata-directive");

    if (s3_text_is(directive, "REPLACE"))
        return s3_attrs_make(&s->head, s3_now_ms(), out);
    if (directive.data && !s3_text_is(directive, "COPY"))
        return S3_InvalidArgument;
    *out = from->attrs;
    s3_attrs_stamp(out, s3_now_ms());
    return S3_OK;
}

static enum s3_code copy_once(struct s3_session *s, const struct s3_name *from, struct s3_sink *sink)
{
    struct s3_source source = {.bytes = 0};
    struct s3_object object;
    struct s3_attrs attrs;
    uint64_t generation = 0;
    enum s3_code code = s3_stat(s, s3_store_key(from), &object);

    pst_assert(!sink->open);
    pst_assert(s3_has_key(from));
    if (code == S3_OK)
        code = s3_conditions_read(&s->head, "x-amz-copy-source-", object.generation, object.attrs.written_ms);
    if (code == S3_NotModified)
        code = S3_PreconditionFailed;
    if (code == S3_OK)
        code = copy_attrs(s, &object, &attrs);
    if (code == S3_OK)
        code = s3_source_open(s, s3_store_key(from), &object, &source);
    sink->attrs = &attrs;
    if (code == S3_OK)
        code = s3_sink_range(s, sink, &source, (struct s3_range){.bytes = source.bytes}, &generation);
    pst_assert(!sink->open);
    s3_source_close(s, &source);
    return code == S3_OK ? s3_send_copied(s, "CopyObjectResult", generation, attrs.written_ms) : code;
}

enum s3_code s3_copy_source(struct s3_session *s, struct s3_name *out)
{
    struct pst_bytes path = s3_head_field(&s->head, "x-amz-copy-source");
    struct pst_bytes bare = path;
    enum s3_code code;

    code = s3_name_parse(pst_http_cut(&bare, '?'), out);
    if (bare.data) /* a version, or a question mark that is not encoded */
        return pst_bytes_begin(bare, pst_bytes_of("versionId=")) ? S3_NotImplemented : S3_InvalidArgument;
    if (code == S3_OK && !s3_has_key(out))
        code = S3_InvalidArgument;
    return code == S3_OK ? s3_may(s, S3_MAY_READ, s3_store_key(out)) : code;
}

static enum s3_code put_copy(struct s3_session *s, struct s3_sink *sink)
{
    struct s3_name from;
    enum s3_code code = s3_copy_source(s, &from);

    if (code != S3_OK)
        return code;
    pst_assert(s3_has_key(&from));
    code = S3_CHANGED;
    for (int i = 0; i < S3_TRIES && code == S3_CHANGED; i++)
        code = copy_once(s, &from, sink);
    return code == S3_CHANGED ? s3_because(s, S3_SlowDown, "the object keeps changing") : code;
}

/* ---- puts ---- */

static enum s3_code put_body(struct s3_session *s, struct s3_sink *sink)
{
    struct s3_attrs attrs;
    uint64_t generation = 0;
    enum s3_code code;

    pst_assert(!sink->open);
    if (!s->head.has_length && !s->head.chunked)
        return S3_MissingContentLength;
    code = s3_attrs_make(&s->head, s3_now_ms(), &attrs);
    sink->attrs = &attrs;
    if (code == S3_OK)
        code = s3_sink_body(s, sink, &generation);
    s3_sink_close(s, sink);
    pst_assert(!sink->open);
    if (code != S3_OK)
        return code;
    s3_begin(s, 200);
    s3_field_etag(s, generation);
    s3_field_checks(s);
    return s3_send_head(s, 0);
}

enum s3_code s3_put_object(struct s3_session *s)
{
    struct s3_sink sink = {.key = s3_store_key(s3_name_of(s))};
    enum s3_code code = s3_check_fields(s);

    if (code == S3_OK)
        code = s3_conditions_write(&s->head, &sink.conditional, &sink.if_generation);
    if (code != S3_OK)
        return code;
    return s3_head_field(&s->head, "x-amz-copy-source").data ? put_copy(s, &sink) : put_body(s, &sink);
}

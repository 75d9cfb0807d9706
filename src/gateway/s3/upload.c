/* SPDX-License-Identifier: Apache-2.0 */
/* upload.c: CreateMultipartUpload, UploadPart, UploadPartCopy, AbortMultipartUpload. */
#include "gateway/s3/upload_priv.h"

#include "base/hash.h"
#include "base/hex.h"

#include <stdio.h>

static enum s3_code upload_name(struct s3_session *s, struct upload *upload)
{
    int n = snprintf(upload->key, sizeof(upload->key), "%s%s/%s", S3_UPLOADS_PREFIX, s3_name_of(s)->text,
                     upload->id);

    /* A name has no NUL, so all of it is there. */
    if (n < 0 || (size_t)n >= sizeof(upload->key))
        return s3_because(s, S3_KeyTooLongError, "the key is too long for an upload in parts");
    pst_assert(n > 0);
    upload->key_bytes = (size_t)n;
    return S3_OK;
}

enum s3_code s3_upload_look(struct s3_session *s, struct upload *out)
{
    struct pst_bytes id = s3_param(&s->target, "uploadId");
    enum s3_code code;

    if (id.len != UPLOAD_ID_BYTES)
        return S3_NoSuchUpload;
    for (size_t i = 0; i < id.len; i++)
        if (!strchr("0123456789abcdef", ((const char *)id.data)[i]) || !((const char *)id.data)[i])
            return S3_NoSuchUpload;
    memcpy(out->id, id.data, id.len);
    out->id[id.len] = 0;
    pst_assert(id.len < sizeof(out->id));
    code = upload_name(s, out);
    if (code == S3_OK)
        code = s3_stat(s, (struct pst_bytes){out->key, out->key_bytes}, &out->object);
    return code == S3_NoSuchKey ? S3_NoSuchUpload : code;
}

enum s3_code s3_upload_find(struct s3_session *s, struct upload *out)
{
    enum s3_code code = s3_upload_look(s, out);

    return code == S3_OK && upload_is_completed(out) ? S3_NoSuchUpload : code;
}

struct pst_bytes s3_part_key(const struct upload *upload, uint32_t part, char key[PART_KEY_BYTES])
{
    int n = snprintf(key, PART_KEY_BYTES, "%s%s/%05u", S3_PARTS_PREFIX, upload->id, part);

    pst_assert(part > 0 && part <= S3_PARTS_MAX);
    pst_assert(n > 0 && n < PART_KEY_BYTES);
    return (struct pst_bytes){key, (size_t)n};
}

/* ---- beginning ---- */

enum s3_code s3_create_upload(struct s3_session *s)
{
    struct s3_attrs attrs;
    struct upload upload;
    uint8_t id[UPLOAD_ID_BYTES / 2];
    struct s3_sink sink = {.attrs = &attrs, .conditional = true, .ttl_ms = S3_UPLOAD_MS};
    struct s3_xml xml;
    uint64_t generation;
    enum s3_code code = s3_check_fields(s);

    if (code == S3_OK)
        code = s3_attrs_make(&s->head, s3_now_ms(), &attrs);
    pst_random(id, sizeof(id));
    pst_hex_print(id, sizeof(id), upload.id);
    if (code == S3_OK)
        code = upload_name(s, &upload);
    if (code != S3_OK)
        return code;
    sink.key = (struct pst_bytes){upload.key, upload.key_bytes};
    code = s3_sink_put(s, &sink, "", 0, &generation);
    if (code != S3_OK)
        return code;
    s3_xml_begin(&xml, "InitiateMultipartUploadResult");
    s3_xml_leaf(&xml, "Bucket", s3_bucket_of(s3_name_of(s)));
    s3_xml_leaf(&xml, "Key", s3_key_of(s3_name_of(s)));
    s3_xml_text(&xml, "UploadId", upload.id);
    return s3_send_xml(s, &xml, "InitiateMultipartUploadResult");
}

/* ---- parts ---- */

static enum s3_code part_copy(struct s3_session *s, struct s3_sink *sink, uint64_t *generation)
{
    struct s3_source source = {.bytes = 0};
    struct s3_object object;
    struct s3_range range;
    struct s3_name from;
    enum s3_code code = s3_copy_source(s, &from);

    if (code == S3_OK)
        code = s3_stat(s, s3_store_key(&from), &object);
    if (code == S3_OK)
        code = s3_conditions_read(&s->head, "x-amz-copy-source-", object.generation, object.attrs.written_ms);
    if (code == S3_NotModified)
        code = S3_PreconditionFailed;
    if (code == S3_OK)
        code = s3_range_within(s3_head_field(&s->head, "x-amz-copy-source-range"), object.bytes, &range);
    if (code == S3_OK)
        code = s3_source_open(s, s3_store_key(&from), &object, &source);
    if (code == S3_OK)
        code = s3_sink_range(s, sink, &source, range, generation);
    s3_source_close(s, &source);
    return code == S3_CHANGED ? s3_because(s, S3_SlowDown, "the object changed meanwhile") : code;
}

/* A part that came while its upload ended is nobody's. */
static enum s3_code part_check(struct s3_session *s, struct pst_bytes key, uint64_t generation)
{
    struct upload upload;
    enum s3_code code = s3_upload_find(s, &upload);

    if (code == S3_NoSuchUpload)
        (void)s3_delete_generation(s, key, generation);
    return code;
}

static enum s3_code part_answer(struct s3_session *s, uint64_t generation, bool copied)
{
    if (copied)
        return s3_send_copied(s, "CopyPartResult", generation, s3_now_ms());
    s3_begin(s, 200);
    s3_field_etag(s, generation);
    s3_field_checks(s);
    return s3_send_head(s, 0);
}

enum s3_code s3_put_part(struct s3_session *s)
{
    bool copied = s3_head_field(&s->head, "x-amz-copy-source").data != NULL;
    struct s3_attrs attrs = {.written_ms = 0};
    struct s3_sink sink = {.attrs = &attrs, .ttl_ms = S3_UPLOAD_MS};
    char key[PART_KEY_BYTES];
    struct upload upload;
    uint64_t number, generation = 0;
    enum s3_code code;

    if (!pst_http_number(s3_param(&s->target, "partNumber"), &number) || number < 1 || number > S3_PARTS_MAX)
        return s3_because(s, S3_InvalidArgument, "partNumber is not from 1 to %d", S3_PARTS_MAX);
    if (!copied && !s->head.has_length && !s->head.chunked)
        return S3_MissingContentLength;
    code = s3_upload_find(s, &upload);
    if (code != S3_OK)
        return code;
    s3_attrs_stamp(&attrs, s3_now_ms());
    sink.key = s3_part_key(&upload, (uint32_t)number, key);
    pst_assert(!sink.open);
    code = copied ? part_copy(s, &sink, &generation) : s3_sink_body(s, &sink, &generation);
    s3_sink_close(s, &sink);
    if (code == S3_OK)
        code = part_check(s, sink.key, generation);
    return code == S3_OK ? part_answer(s, generation, copied) : code;
}

/* ---- its end ---- */

static enum s3_code upload_put(struct s3_session *s, struct upload *upload, struct pst_bytes value,
                               uint64_t ttl_ms)
{
    struct s3_sink sink = {.key = {upload->key, upload->key_bytes},
                           .attrs = &upload->object.attrs,
                           .conditional = true,
                           .if_generation = upload->object.generation,
                           .ttl_ms = ttl_ms};
    enum s3_code code = s3_sink_put(s, &sink, value.data, value.len, &upload->object.generation);

    pst_assert(upload->key_bytes > 0 && upload->key_bytes < sizeof(upload->key));
    return code == S3_PreconditionFailed || code == S3_NoSuchKey ? S3_NoSuchUpload : code;
}

enum s3_code s3_upload_touch(struct s3_session *s, struct upload *upload)
{
    pst_assert(!upload_is_completed(upload));
    return upload_put(s, upload, pst_bytes_of(""), S3_UPLOAD_MS);
}

static enum s3_code upload_delete(struct s3_session *s, const struct upload *upload)
{
    struct pst_bytes key = {upload->key, upload->key_bytes};
    int result;

    pst_assert(upload->key_bytes > 0 && upload->key_bytes < sizeof(upload->key));
    result = s3_delete_generation(s, key, upload->object.generation);
    if (result == PENSTOCK_EXISTS || result == PENSTOCK_STALE)
        return s3_because(s, S3_SlowDown, "another request completes the upload, or has just done so");
    return result == PENSTOCK_MISS ? S3_NoSuchUpload : s3_result_of(s, result);
}

static enum s3_code upload_drop_parts(struct s3_session *s, const struct upload *upload)
{
    char prefix[PART_KEY_BYTES];
    int n = snprintf(prefix, sizeof(prefix), "%s%s/", S3_PARTS_PREFIX, upload->id);

    pst_assert(n > 0);
    pst_assert((size_t)n < sizeof(prefix));
    return s3_result_of(s, penstock_delete_prefix(s->s3->store, prefix, (size_t)n, NULL));
}

void s3_upload_end(struct s3_session *s, struct upload *upload, uint64_t generation)
{
    char etag[S3_ETAG_BYTES];

    pst_assert(!upload_is_completed(upload));
    s3_etag_print(generation, etag);
    if (upload_put(s, upload, pst_bytes_of(etag), S3_ENDED_MS) != S3_OK)
        (void)upload_delete(s, upload); /* nobody will ask again */
    (void)upload_drop_parts(s, upload); /* what cannot go now goes in a week */
}

enum s3_code s3_upload_became(struct s3_session *s, const struct upload *upload, uint64_t *generation)
{
    char etag[S3_ETAG_BYTES] = "";
    struct penstock_op op = {0};

    pst_assert(upload_is_completed(upload));
    penstock_prep_get_range(&op, upload->key, upload->key_bytes, 0, etag,
                            pst_min(upload->object.bytes, sizeof(etag) - 1));
    penstock_batch(s->s3->store, &op, 1);
    *generation = s3_etag_parse(pst_bytes_of(etag));
    if (op.result == 0 && *generation == 0)
        return s3_because(s, S3_InternalError, "somebody else has written the upload's value");
    return op.result == PENSTOCK_MISS ? S3_NoSuchUpload : s3_result(s, &op);
}

/* What cannot go now is there for the next Abort, and so is the upload. */
static enum s3_code upload_drop(struct s3_session *s, struct upload *upload)
{
    enum s3_code code = upload_drop_parts(s, upload);

    pst_assert(!upload_is_completed(upload));
    if (code == S3_OK)
        return code;
    upload->object.generation = 0;
    (void)s3_upload_touch(s, upload);
    return code;
}

enum s3_code s3_abort_upload(struct s3_session *s)
{
    struct upload upload;
    enum s3_code code = s3_upload_find(s, &upload);

    if (code == S3_OK) /* after the look at the upload, whose value a claim changes */
        code = s3_claim_look(s, &upload);
    if (code == S3_OK)
        code = upload_delete(s, &upload);
    if (code == S3_OK)
        code = upload_drop(s, &upload);
    return code == S3_OK ? s3_send_status(s, 204) : code;
}

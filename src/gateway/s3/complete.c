/* SPDX-License-Identifier: Apache-2.0 */
/* complete.c: CompleteMultipartUpload: parts become one value, which is there in one step. */
#include "gateway/s3/upload_priv.h"

enum { STATS_AT_ONCE = 256 };

struct part {
    uint32_t number;
    uint64_t generation, bytes;
};

struct parts {
    struct s3_session *s;
    struct part *items; /* S3_PARTS_MAX */
    size_t count;
    uint64_t bytes;
    enum s3_code code; /* what is wrong with the document beside its form */
};

static bool part_came(void *ctx, const struct pst_bytes leaves[S3_XML_LEAVES_MAX])
{
    struct parts *parts = ctx;
    uint64_t number, generation = s3_etag_parse(leaves[1]);

    pst_assert(parts->count <= S3_PARTS_MAX);
    if (!pst_http_number(pst_http_trim(leaves[0]), &number))
        return false;
    if (number < 1 || number > S3_PARTS_MAX || generation == 0)
        parts->code = S3_InvalidPart;
    else if (parts->count && number <= parts->items[parts->count - 1].number)
        parts->code = S3_InvalidPartOrder;
    if (parts->code == S3_OK)
        parts->items[parts->count++] = (struct part){.number = (uint32_t)number, .generation = generation};
    pst_assert(parts->count <= S3_PARTS_MAX);
    return true;
}

static enum s3_code parts_read(struct s3_session *s, struct parts *parts)
{
    static const struct s3_xml_form form = {.root = "CompleteMultipartUpload",
                                            .item = "Part",
                                            .leaves = {"PartNumber", "ETag"},
                                            .items_max = S3_PARTS_MAX,
                                            .item_came = part_came};
    pst_cleanup_free char *text = NULL;
    size_t bytes = 0;
    enum s3_code code = s3_read_document(s, &text, &bytes);

    if (code == S3_OK)
        code = s3_xml_read((struct pst_bytes){text, bytes}, &form, parts, NULL);
    if (code == S3_OK)
        code = parts->code;
    return code == S3_OK && parts->count == 0 ? S3_MalformedXML : code;
}

/* Some of the parts are what the document says. */
static enum s3_code parts_stat(struct parts *parts, const struct upload *upload, size_t from, size_t count)
{
    struct penstock_op ops[STATS_AT_ONCE];
    char keys[STATS_AT_ONCE][PART_KEY_BYTES];

    pst_assert(count > 0 && count <= STATS_AT_ONCE);
    pst_assert(count <= parts->count);
    pst_assert(from <= parts->count - count);
    for (size_t i = 0; i < count; i++) {
        struct pst_bytes key = s3_part_key(upload, parts->items[from + i].number, keys[i]);

        ops[i] = (struct penstock_op){.code = 0};
        penstock_prep(&ops[i], PENSTOCK_STAT_KEY, key.data, key.len);
    }
    if (penstock_batch(parts->s->s3->store, ops, count) < 0)
        return S3_ServiceUnavailable;
    for (size_t i = 0; i < count; i++) {
        struct part *part = &parts->items[from + i];

        if (ops[i].result == PENSTOCK_MISS || (ops[i].result == 0 && ops[i].generation != part->generation))
            return s3_because(parts->s, S3_InvalidPart, "part %u is not there, or has another ETag",
                              part->number);
        if (ops[i].result != 0)
            return s3_result(parts->s, &ops[i]);
        part->bytes = ops[i].value_bytes;
        if (pst_add_overflows(parts->bytes, part->bytes, &parts->bytes))
            return S3_EntityTooLarge;
    }
    return S3_OK;
}

static enum s3_code part_join(struct parts *parts, struct upload *upload, const struct part *part,
                              struct s3_sink *sink)
{
    const struct s3_object object = {.bytes = part->bytes, .generation = part->generation};
    struct s3_range piece = {.bytes = 0};
    struct s3_source source;
    char key[PART_KEY_BYTES];
    enum s3_code code = s3_source_open(parts->s, s3_part_key(upload, part->number, key), &object, &source);

    pst_assert(sink->open);
    pst_assert(part->number >= 1 && part->number <= S3_PARTS_MAX);
    for (; code == S3_OK && piece.offset < part->bytes; piece.offset += piece.bytes) {
        piece.bytes = pst_min(part->bytes - piece.offset, S3_PIECE_BYTES);
        code = s3_claim_keep(parts->s, upload, false);
        if (code == S3_OK)
            code = s3_sink_source(parts->s, sink, &source, piece);
    }
    s3_source_close(parts->s, &source);
    return code == S3_CHANGED ? S3_InvalidPart : code;
}

/* The object is there with this. */
static enum s3_code parts_commit(struct parts *parts, struct upload *upload, struct s3_sink *sink,
                                 uint64_t *generation)
{
    enum s3_code code = S3_OK;

    pst_assert(sink->bytes == (sink->open ? parts->bytes : 0));
    for (uint32_t i = 0; i < sink->check_count; i++)
        if (!s3_check_holds(&sink->checks[i]))
            return S3_BadDigest;
    pst_assert(sink->attrs);
    code = s3_claim_keep(parts->s, upload, true);
    if (code != S3_OK)
        return code;
    return sink->open ? s3_sink_commit(parts->s, sink, generation)
                      : s3_sink_put(parts->s, sink, "", 0, generation);
}

static enum s3_code parts_join(struct parts *parts, struct upload *upload, struct s3_sink *sink,
                               uint64_t *generation)
{
    enum s3_code code = parts->bytes ? s3_sink_open(parts->s, sink, parts->bytes) : S3_OK;

    pst_assert(code != S3_OK || sink->open == (parts->bytes > 0));
    pst_assert(parts->count > 0 && parts->count <= S3_PARTS_MAX);
    for (size_t i = 0; i < parts->count && parts->bytes && code == S3_OK; i++)
        code = part_join(parts, upload, &parts->items[i], sink);
    if (code == S3_OK)
        code = parts_commit(parts, upload, sink, generation);
    s3_sink_close(parts->s, sink);
    pst_assert(!sink->open);
    return code;
}

static enum s3_code complete_answer(struct s3_session *s, uint64_t generation)
{
    struct pst_bytes path = s->head.path;
    char etag[S3_ETAG_BYTES];
    struct s3_xml xml;

    s3_etag_print(generation, etag);
    s3_xml_begin(&xml, "CompleteMultipartUploadResult");
    s3_xml_leaf(&xml, "Location", path);
    s3_xml_leaf(&xml, "Bucket", s3_bucket_of(s3_name_of(s)));
    s3_xml_leaf(&xml, "Key", s3_key_of(s3_name_of(s)));
    s3_xml_text(&xml, "ETag", etag);
    return s3_send_xml(s, &xml, "CompleteMultipartUploadResult");
}

/* What the request says of the whole object. */
static enum s3_code complete_check(struct s3_session *s, const struct parts *parts,
                                   const struct s3_sink *sink)
{
    struct pst_bytes said = s3_head_field(&s->head, "x-amz-mp-object-size");
    uint64_t bytes;

    if (said.data && (!pst_http_number(said, &bytes) || bytes != parts->bytes))
        return s3_because(s, S3_InvalidRequest, "the parts have another size together");
    for (uint32_t i = 0; i < sink->check_count; i++)
        if (strchr(sink->checks[i].wanted, '-'))
            return s3_because(s, S3_NotImplemented, "checksums of checksums are not implemented");
    return S3_OK;
}

/* Nobody else completes the upload meanwhile. */
static enum s3_code complete_claimed(struct parts *parts, struct upload *upload, struct s3_sink *sink,
                                     uint64_t *generation)
{
    struct s3_session *s = parts->s;
    struct s3_attrs attrs;
    enum s3_code code = s3_upload_look(s, upload); /* another request may have ended it before */

    pst_assert(upload->claim > 0);
    pst_assert(!sink->open);
    if (code == S3_OK && upload_is_completed(upload))
        return s3_upload_became(s, upload, generation);
    if (code == S3_OK)
        code = s3_upload_touch(s, upload);
    for (size_t at = 0; at < parts->count && code == S3_OK; at += STATS_AT_ONCE)
        code = parts_stat(parts, upload, at, pst_min(parts->count - at, STATS_AT_ONCE));
    if (code == S3_OK)
        code = complete_check(s, parts, sink);
    if (code != S3_OK)
        return code;
    attrs = upload->object.attrs;
    s3_attrs_stamp(&attrs, s3_now_ms());
    sink->attrs = &attrs;
    code = parts_join(parts, upload, sink, generation);
    if (code == S3_OK)
        s3_upload_end(s, upload, *generation);
    return code;
}

static enum s3_code complete(struct parts *parts, struct s3_check *checks, uint32_t check_count)
{
    struct s3_session *s = parts->s;
    struct s3_sink sink = {.key = s3_store_key(s3_name_of(s)), .checks = checks, .check_count = check_count};
    struct upload upload;
    uint64_t generation = 0;
    enum s3_code code = s3_conditions_write(&s->head, &sink.conditional, &sink.if_generation);

    if (code == S3_OK)
        code = s3_upload_look(s, &upload);
    if (code == S3_OK)
        code = parts_read(s, parts);
    if (code == S3_OK)
        code = s3_claim_take(s, &upload);
    if (code != S3_OK)
        return code;
    code = complete_claimed(parts, &upload, &sink, &generation);
    s3_claim_give(s, &upload);
    return code == S3_OK ? complete_answer(s, generation) : code;
}

enum s3_code s3_complete_upload(struct s3_session *s)
{
    struct parts parts = {.s = s, .items = calloc(S3_PARTS_MAX, sizeof(*parts.items))};
    struct s3_check checks[S3_CHECKS_MAX];
    uint32_t check_count = s3_body_take_checks(&s->body, checks); /* of the object, not of this body */
    enum s3_code code = parts.items ? complete(&parts, checks, check_count) : S3_SlowDown;

    pst_assert(check_count <= S3_CHECKS_MAX);
    for (uint32_t i = 0; i < check_count; i++)
        s3_digest_close(&checks[i].digest);
    free(parts.items);
    return code;
}

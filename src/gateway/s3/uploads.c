/* SPDX-License-Identifier: Apache-2.0 */
/* uploads.c: ListParts and ListMultipartUploads. */
#include "gateway/s3/upload_priv.h"

#include "base/percent.h"
#include "gateway/s3/wire/time_priv.h"

#include <stdio.h>

/* A number in the query, @preset without it, S3_LIST_MAX at the most. */
static enum s3_code uploads_number(struct s3_session *s, const char *name, uint64_t preset, uint64_t *out)
{
    struct pst_bytes text = s3_param(&s->target, name);

    *out = preset;
    if (text.len && !pst_http_number(text, out))
        return s3_because(s, S3_InvalidArgument, "%s is no number", name);
    return S3_OK;
}

/* Of a listing's entry whose time is not asked for one by one: its value's attributes have it. */
static void uploads_time(struct s3_session *s, struct s3_xml *xml, const char *leaf, struct pst_bytes key)
{
    char time[S3_TIME_TEXT_BYTES];
    struct s3_object object;
    bool known = s3_stat(s, key, &object) == S3_OK && object.attrs.written_ms;

    s3_time_iso(known ? object.attrs.written_ms : s3_now_ms(), time);
    s3_xml_text(xml, leaf, time);
}

/* ---- parts of an upload ---- */

struct part_page {
    uint64_t max, last;
    size_t count;
    bool truncated;
};

static int parts_list(struct s3_session *s, const struct upload *upload, uint64_t after,
                      struct part_page *page, struct s3_xml *xml)
{
    char prefix[PART_KEY_BYTES], start[PART_KEY_BYTES];
    int n = snprintf(prefix, sizeof(prefix), "%s%s/", S3_PARTS_PREFIX, upload->id);
    const struct penstock_list_options options = {
        .size = sizeof(options),
        .prefix = prefix,
        .prefix_bytes = (size_t)n,
        .start = start,
        .start_bytes = s3_part_key(upload, (uint32_t)pst_min(after + 1, S3_PARTS_MAX), start).len};
    struct penstock_list *list;
    struct penstock_entry entry;
    int r = after < S3_PARTS_MAX ? penstock_list_open(s->s3->store, &options, &list) : 0;

    pst_assert(n > 0 && (size_t)n < sizeof(prefix));
    pst_assert(page->count == 0);
    if (r != 0 || after >= S3_PARTS_MAX)
        return r;
    while ((r = penstock_list_next(list, &entry)) > 0) {
        struct pst_bytes key = {entry.key, entry.key_bytes};
        struct pst_bytes digits = {(const char *)entry.key + n, entry.key_bytes - (size_t)n};
        char etag[S3_ETAG_BYTES];
        uint64_t number;

        pst_assert(entry.key_bytes >= (size_t)n);
        if (!pst_http_number(digits, &number))
            continue;
        pst_assert(page->count <= page->max);
        page->truncated = page->max > 0 && page->count == page->max;
        if (page->count == page->max)
            break;
        s3_etag_print(entry.generation, etag);
        s3_xml_open(xml, "Part");
        s3_xml_number(xml, "PartNumber", number);
        uploads_time(s, xml, "LastModified", key);
        s3_xml_text(xml, "ETag", etag);
        s3_xml_number(xml, "Size", entry.value_bytes);
        s3_xml_close(xml, "Part");
        page->last = number;
        page->count++;
    }
    penstock_list_close(list);
    return r < 0 ? r : 0;
}

enum s3_code s3_list_parts(struct s3_session *s)
{
    struct part_page page = {.count = 0};
    struct upload upload;
    struct s3_xml xml;
    uint64_t after = 0;
    enum s3_code code = s3_upload_find(s, &upload);

    if (code == S3_OK)
        code = uploads_number(s, "max-parts", S3_LIST_MAX, &page.max);
    if (code == S3_OK)
        code = uploads_number(s, "part-number-marker", 0, &after);
    if (code != S3_OK)
        return code;
    page.max = pst_min(page.max, S3_LIST_MAX);
    s3_xml_begin(&xml, "ListPartsResult");
    s3_xml_leaf(&xml, "Bucket", s3_bucket_of(s3_name_of(s)));
    s3_xml_leaf(&xml, "Key", s3_key_of(s3_name_of(s)));
    s3_xml_text(&xml, "UploadId", upload.id);
    s3_xml_number(&xml, "PartNumberMarker", after);
    s3_xml_number(&xml, "MaxParts", page.max);
    code = s3_result_of(s, parts_list(s, &upload, after, &page, &xml));
    pst_assert(page.count <= page.max);
    pst_assert(!page.truncated || page.count > 0);
    s3_xml_text(&xml, "IsTruncated", page.truncated ? "true" : "false");
    if (page.truncated)
        s3_xml_number(&xml, "NextPartNumberMarker", page.last);
    if (code == S3_OK)
        return s3_send_xml(s, &xml, "ListPartsResult");
    s3_xml_free(&xml);
    return code;
}

/* ---- uploads of a bucket ---- */

struct upload_page {
    bool encoded, truncated;
    uint64_t max;
    size_t count;
    char last_key[PST_KEY_BYTES_MAX];
    size_t last_key_bytes;
    char last_id[UPLOAD_ID_BYTES + 1];
};

static void uploads_leaf(const struct upload_page *page, struct s3_xml *xml, const char *leaf,
                         struct pst_bytes text)
{
    char buf[3 * PST_KEY_BYTES_MAX + 1];
    int n = page->encoded ? pst_percent_encode(text, buf, sizeof(buf)) : -ENOSPC;

    s3_xml_leaf(xml, leaf, n >= 0 ? (struct pst_bytes){buf, (size_t)n} : text);
}

static void upload_tell(struct s3_session *s, struct upload_page *page, struct s3_xml *xml,
                        struct pst_bytes store_key, struct pst_bytes key, const char *id)
{
    pst_assert(key.len <= sizeof(page->last_key));
    pst_assert(page->count < page->max);
    memcpy(page->last_key, key.data, key.len);
    page->last_key_bytes = key.len;
    memcpy(page->last_id, id, UPLOAD_ID_BYTES);
    page->last_id[UPLOAD_ID_BYTES] = 0;
    page->count++;
    s3_xml_open(xml, "Upload");
    uploads_leaf(page, xml, "Key", key);
    s3_xml_text(xml, "UploadId", page->last_id);
    uploads_time(s, xml, "Initiated", store_key);
    s3_xml_close(xml, "Upload");
}

/* Behind the markers. @path: "KEY/ID". Both of them are a place in the order of these, in which pages follow
 * each other: "a.b/ID" comes before "a/ID". */
static bool upload_is_behind(struct s3_session *s, struct pst_bytes path, struct pst_bytes key)
{
    struct pst_bytes key_marker = s3_param(&s->target, "key-marker");
    struct pst_bytes id_marker = s3_param(&s->target, "upload-id-marker");
    char marker[2 * PST_KEY_BYTES_MAX];
    int n;

    if (key_marker.len == 0)
        return true;
    if (id_marker.len == 0)
        return pst_bytes_compare(key, key_marker) > 0;
    n = snprintf(marker, sizeof(marker), "%.*s/%.*s", (int)pst_min(key_marker.len, PST_KEY_BYTES_MAX),
                 (const char *)key_marker.data, (int)pst_min(id_marker.len, UPLOAD_ID_BYTES),
                 (const char *)id_marker.data);
    pst_assert(n > 0 && (size_t)n < sizeof(marker));
    return pst_bytes_compare(path, (struct pst_bytes){marker, (size_t)n}) > 0;
}

static int uploads_list(struct s3_session *s, struct upload_page *page, struct s3_xml *xml)
{
    struct pst_bytes bucket = s3_bucket_of(s3_name_of(s)), wanted = s3_param(&s->target, "prefix");
    char prefix[2 * PST_KEY_BYTES_MAX];
    int n = snprintf(prefix, sizeof(prefix), "%s%.*s/%.*s", S3_UPLOADS_PREFIX, (int)bucket.len,
                     (const char *)bucket.data, (int)pst_min(wanted.len, PST_KEY_BYTES_MAX),
                     wanted.len ? (const char *)wanted.data : "");
    const struct penstock_list_options options = {
        .size = sizeof(options), .prefix = prefix, .prefix_bytes = (size_t)n};
    size_t front = sizeof(S3_UPLOADS_PREFIX) - 1 + bucket.len + 1;
    struct penstock_list *list;
    struct penstock_entry entry;
    int r = n < PST_KEY_BYTES_MAX ? penstock_list_open(s->s3->store, &options, &list) : 0;

    pst_assert(n > 0 && (size_t)n < sizeof(prefix));
    if (r != 0 || n >= PST_KEY_BYTES_MAX)
        return r;
    while ((r = penstock_list_next(list, &entry)) > 0) {
        struct pst_bytes key = {(const char *)entry.key + front, 0};
        const char *id = (const char *)entry.key + entry.key_bytes - UPLOAD_ID_BYTES;

        if (entry.key_bytes < front + 1 + 1 + UPLOAD_ID_BYTES ||
            entry.value_bytes > 0) /* or it is completed */
            continue;
        key.len = entry.key_bytes - front - 1 - UPLOAD_ID_BYTES;
        if (!pst_bytes_begin(key, wanted) ||
            !upload_is_behind(s, (struct pst_bytes){key.data, key.len + 1 + UPLOAD_ID_BYTES}, key))
            continue;
        page->truncated = page->max > 0 && page->count == page->max;
        if (page->count == page->max)
            break;
        upload_tell(s, page, xml, (struct pst_bytes){entry.key, entry.key_bytes}, key, id);
    }
    penstock_list_close(list);
    return r < 0 ? r : 0;
}

enum s3_code s3_list_uploads(struct s3_session *s)
{
    struct upload_page page = {.encoded = s3_text_is(s3_param(&s->target, "encoding-type"), "url")};
    struct s3_xml xml;
    enum s3_code code = uploads_number(s, "max-uploads", S3_LIST_MAX, &page.max);

    if (code != S3_OK)
        return code;
    page.max = pst_min(page.max, S3_LIST_MAX);
    s3_xml_begin(&xml, "ListMultipartUploadsResult");
    s3_xml_leaf(&xml, "Bucket", s3_bucket_of(s3_name_of(s)));
    uploads_leaf(&page, &xml, "Prefix", s3_param(&s->target, "prefix"));
    s3_xml_number(&xml, "MaxUploads", page.max);
    if (page.encoded)
        s3_xml_text(&xml, "EncodingType", "url");
    code = s3_result_of(s, uploads_list(s, &page, &xml));
    pst_assert(page.count <= page.max);
    s3_xml_text(&xml, "IsTruncated", page.truncated ? "true" : "false");
    if (page.truncated) {
        uploads_leaf(&page, &xml, "NextKeyMarker", (struct pst_bytes){page.last_key, page.last_key_bytes});
        s3_xml_text(&xml, "NextUploadIdMarker", page.last_id);
    }
    if (code == S3_OK)
        return s3_send_xml(s, &xml, "ListMultipartUploadsResult");
    s3_xml_free(&xml);
    return code;
}

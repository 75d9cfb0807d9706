/* SPDX-License-Identifier: Apache-2.0 */
/* answer.c: heads, documents and errors on their way to the client. */
#include "gateway/s3/s3_priv.h"

#include "gateway/s3/wire/time_priv.h"

#include <stdarg.h>
#include <stdio.h>

static void answer_add(struct s3_session *s, const void *data, size_t bytes)
{
    pst_assert(s->out_bytes <= sizeof(s->out));
    if (bytes > sizeof(s->out) - s->out_bytes) {
        s->out_is_full = true;
        return;
    }
    memcpy(s->out + s->out_bytes, data, bytes);
    s->out_bytes += bytes;
    pst_assert(s->out_bytes <= sizeof(s->out));
}

static const char *answer_reason(int status)
{
    switch (status) {
    case 200:
        return "OK";
    case 204:
        return "No Content";
    case 206:
        return "Partial Content";
    case 304:
        return "Not Modified";
    default:
        return "Error"; /* the document says which */
    }
}

void s3_begin(struct s3_session *s, int status)
{
    char text[128], date[S3_TIME_TEXT_BYTES];
    int n;

    pst_assert(!s->answered);
    pst_assert(s->magic == S3_SESSION_MAGIC);
    pst_assert(status >= 200 && status < 600);
    s3_time_date(s3_now_ms(), date);
    n = snprintf(text, sizeof(text), "HTTP/1.1 %d %s\r\nDate: %s\r\nx-amz-request-id: %s\r\n", status,
                 answer_reason(status), date, s->id);
    pst_assert(n > 0);
    pst_assert((size_t)n < sizeof(text));
    s->out_bytes = 0;
    s->out_is_full = false;
    answer_add(s, text, (size_t)n);
}

void s3_field_bytes(struct s3_session *s, const char *name, struct pst_bytes value)
{
    answer_add(s, name, strlen(name));
    answer_add(s, ": ", 2);
    if (value.len)
        answer_add(s, value.data, value.len);
    answer_add(s, "\r\n", 2);
}

void s3_field(struct s3_session *s, const char *name, const char *format, ...)
{
    char text[256];
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    pst_assert(n >= 0);
    pst_assert((size_t)n < sizeof(text));
    s3_field_bytes(s, name, (struct pst_bytes){text, (size_t)n});
}

void s3_field_etag(struct s3_session *s, uint64_t generation)
{
    char etag[S3_ETAG_BYTES];

    s3_etag_print(generation, etag);
    s3_field(s, "ETag", "%s", etag);
}

void s3_field_checks(struct s3_session *s)
{
    pst_assert(s->body.check_count <= S3_CHECKS_MAX);
    for (uint32_t i = 0; i < s->body.check_count; i++) {
        const struct s3_check *check = &s->body.checks[i];

        if (check->digest.kind != S3_MD5 && check->found[0]) {
            char name[48] = "x-amz-checksum-";

            strncat(name, s3_digest_name(check->digest.kind), sizeof(name) - strlen(name) - 1);
            s3_field(s, name, "%s", check->found);
        }
    }
}

enum s3_code s3_send(struct s3_session *s, const void *data, size_t bytes)
{
    int r = bytes ? s3_link_write(&s->link, data, bytes) : 0;

    s->link.more = false;
    if (r == 0)
        return S3_OK;
    s->ends = true;
    return S3_GONE;
}

enum s3_code s3_send_head(struct s3_session *s, uint64_t bytes)
{
    pst_assert(!s->answered);
    pst_assert(s->out_bytes > 0 || s->out_is_full);
    s->ends |= !s3_body_is_taken(&s->body); /* what would come next is still the body */
    s3_field(s, "Content-Length", "%llu", (unsigned long long)bytes);
    s3_field(s, "Connection", s->ends ? "close" : "keep-alive");
    answer_add(s, "\r\n", 2);
    if (s->out_is_full) /* before anything is sent: the error comes in its place */
        return s3_because(s, S3_InternalError, "the answer's head is too large");
    s->answered = true;
    s3_link_begin(&s->link);
    s->link.more = bytes > 0 && !s3_text_is(s->head.method, "HEAD");
    return s3_send(s, s->out, s->out_bytes);
}

enum s3_code s3_send_status(struct s3_session *s, int status)
{
    s3_begin(s, status);
    return s3_send_head(s, 0);
}

enum s3_code s3_send_xml(struct s3_session *s, struct s3_xml *xml, const char *root)
{
    enum s3_code code = S3_SlowDown;

    s3_xml_close(xml, root);
    if (!xml->failed) {
        s3_begin(s, 200);
        s3_field(s, "Content-Type", "application/xml");
        pst_assert(xml->bytes <= xml->room);
        code = s3_send_head(s, xml->bytes);
    }
    if (code == S3_OK)
        code = s3_send(s, xml->text, xml->bytes);
    s3_xml_free(xml);
    return code;
}

enum s3_code s3_send_copied(struct s3_session *s, const char *root, uint64_t generation, uint64_t written_ms)
{
    char etag[S3_ETAG_BYTES], time[S3_TIME_TEXT_BYTES];
    struct s3_xml xml;

    s3_etag_print(generation, etag);
    s3_time_iso(written_ms, time);
    s3_xml_begin(&xml, root);
    s3_xml_text(&xml, "LastModified", time);
    s3_xml_text(&xml, "ETag", etag);
    return s3_send_xml(s, &xml, root);
}

enum s3_code s3_because(struct s3_session *s, enum s3_code code, const char *format, ...)
{
    va_list args;

    pst_assert(code != S3_OK);
    va_start(args, format);
    vsnprintf(s->why, sizeof(s->why), format, args);
    va_end(args);
    return code;
}

/* Without S3's namespace, which clients do not look for there. */
static void answer_document(struct s3_session *s, const struct s3_error *error, struct s3_xml *xml)
{
    *xml = (struct s3_xml){.text = NULL};
    s3_xml_open(xml, "Error");
    s3_xml_text(xml, "Code", error->code);
    s3_xml_text(xml, "Message", s->why[0] ? s->why : error->text);
    s3_xml_leaf(xml, "Resource", s->head.path);
    s3_xml_text(xml, "RequestId", s->id);
    s3_xml_close(xml, "Error");
}

void s3_send_error(struct s3_session *s, enum s3_code code)
{
    const struct s3_error *error = s3_error_of(code);
    bool has_body = !s3_text_is(s->head.method, "HEAD") && error->status != 304;
    struct s3_xml xml;

    pst_assert(s->magic == S3_SESSION_MAGIC);
    if (s->answered) { /* in the middle of a body: its end tells */
        s->ends = true;
        return;
    }
    answer_document(s, error, &xml);
    s3_begin(s, error->status);
    s3_field(s, "Content-Type", "application/xml");
    if (error->status == 503)
        s3_field(s, "Retry-After", "1");
    if (s->out_of_bytes != S3_BYTES_UNKNOWN)
        s3_field(s, "Content-Range", "bytes */%llu", (unsigned long long)s->out_of_bytes);
    if (s3_send_head(s, has_body ? xml.bytes : 0) == S3_OK && has_body)
        s3_send(s, xml.text, xml.bytes);
    s3_xml_free(&xml);
}

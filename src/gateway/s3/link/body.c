/* SPDX-License-Identifier: Apache-2.0 */
/* body.c: bodies, from the socket through their chunks to their checksums. */
#include "gateway/s3/link/body_priv.h"

#include "base/hex.h"

#include <strings.h>

/* ---- opening ---- */

static enum s3_code body_add_check(struct s3_body *body, enum s3_digest_kind kind, struct pst_bytes wanted)
{
    struct s3_check *check = &body->checks[body->check_count];

    pst_assert(body->check_count <= S3_CHECKS_MAX);
    if (body->check_count == S3_CHECKS_MAX)
        return S3_InvalidRequest;
    if (wanted.data && (wanted.len == 0 || wanted.len >= sizeof(check->wanted)))
        return S3_InvalidDigest;
    *check = (struct s3_check){.in_trailer = !wanted.data};
    if (wanted.data)
        memcpy(check->wanted, wanted.data, wanted.len);
    body->check_count++;
    pst_assert(body->check_count <= S3_CHECKS_MAX);
    return s3_digest_open(&check->digest, kind) == 0 ? S3_OK : S3_SlowDown;
}

/* "x-amz-checksum-NAME", of those that are known. Return: false it is none. */
static bool checksum_of(struct pst_bytes name, enum s3_digest_kind *kind)
{
    static const char prefix[] = "x-amz-checksum-";
    size_t bytes = sizeof(prefix) - 1;

    if (name.len <= bytes || strncasecmp(name.data, prefix, bytes) != 0)
        return false;
    for (int i = 0; i < S3_DIGEST_KINDS; i++) {
        struct pst_bytes rest = {(const char *)name.data + bytes, name.len - bytes};

        *kind = (enum s3_digest_kind)i;
        if (i != S3_MD5 && pst_http_is(rest, s3_digest_name(*kind)))
            return true;
    }
    return false;
}

static enum s3_code body_add_checks(struct s3_body *body, const struct s3_head *head)
{
    struct pst_bytes md5 = s3_head_field(head, "content-md5"), trailer = s3_head_field(head, "x-amz-trailer");
    enum s3_code code = md5.data ? body_add_check(body, S3_MD5, md5) : S3_OK;
    enum s3_digest_kind kind;

    pst_assert(head->field_count <= S3_FIELDS_MAX);
    for (uint32_t i = 0; i < head->field_count && code == S3_OK; i++)
        if (checksum_of(head->fields[i].name, &kind))
            code = body_add_check(body, kind, head->fields[i].value);
    if (trailer.data && code == S3_OK)
        code = checksum_of(trailer, &kind) ? body_add_check(body, kind, (struct pst_bytes){NULL, 0})
                                           : S3_NotImplemented;
    return code;
}

static enum s3_code body_set_payload(struct s3_body *body, struct pst_bytes payload, struct s3_signer *signer)
{
    static const char streaming[] = "STREAMING-";
    bool is_streaming = payload.len > 10 && memcmp(payload.data, streaming, 10) == 0;

    pst_assert(!body->aws_chunked);
    pst_assert(!body->signer);
    if (!is_streaming) {
        if (payload.len == S3_SHA256_HEX)
            memcpy(body->sha256_wanted, payload.data, payload.len);
        else if (payload.data && !s3_text_is(payload, "UNSIGNED-PAYLOAD"))
            return S3_InvalidArgument;
        return body->sha256_wanted[0] && s3_digest_open(&body->sha256, S3_SHA256) < 0 ? S3_SlowDown : S3_OK;
    }
    pst_assert(!body->sha256_wanted[0]);
    body->aws_chunked = true;
    body->inner.is_aws = true;
    if (s3_text_is(payload, "STREAMING-UNSIGNED-PAYLOAD-TRAILER"))
        return S3_OK;
    body->trailer_is_signed = s3_text_is(payload, "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER");
    if (!body->trailer_is_signed && !s3_text_is(payload, "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"))
        return S3_NotImplemented; /* as STREAMING-AWS4-ECDSA-... */
    body->signer = signer;
    if (!signer)
        return S3_OK;
    return s3_digest_open(&body->chunk, S3_SHA256) == 0 && s3_digest_open(&body->trailer, S3_SHA256) == 0
               ? S3_OK
               : S3_SlowDown;
}

static enum s3_code body_set_length(struct s3_body *body, const struct s3_head *head)
{
    struct pst_bytes decoded = s3_head_field(head, "x-amz-decoded-content-length");

    body->left = head->body_bytes;
    body->http_chunked = head->chunked;
    body->bytes = head->chunked ? S3_BYTES_UNKNOWN : head->body_bytes;
    if (body->aws_chunked && decoded.data && !pst_http_number(decoded, &body->bytes))
        return S3_InvalidRequest;
    if (body->aws_chunked && !decoded.data) {
        if (!head->chunked)
            return S3_MissingContentLength;
        body->bytes = S3_BYTES_UNKNOWN;
    }
    return S3_OK;
}

enum s3_code s3_body_open(struct s3_body *body, struct s3_link *link, const struct s3_head *head,
                          struct pst_bytes payload, struct s3_signer *signer)
{
    struct pst_bytes encoding;
    enum s3_code code;

    *body = (struct s3_body){.link = link, .awaits_continue = head->expect_continue};
    code = body_set_payload(body, payload, signer);
    encoding = s3_head_field(head, "content-encoding");
    if (code == S3_OK && !body->aws_chunked && encoding.data &&
        memmem(encoding.data, encoding.len, "aws-chunked", 11))
        code = S3_InvalidRequest; /* its chunks would become the object */
    if (code == S3_OK)
        code = body_set_length(body, head);
    if (code == S3_OK)
        code = body_add_checks(body, head);
    /* Nobody has signed it: another checksum, most often a CRC that is ten times as fast, says as much. */
    if (!signer && body->check_count > 0)
        body->sha256_wanted[0] = 0;
    return code;
}

uint32_t s3_body_take_checks(struct s3_body *body, struct s3_check out[S3_CHECKS_MAX])
{
    uint32_t count = 0, kept = 0;

    for (uint32_t i = 0; i < body->check_count; i++) {
        if (body->checks[i].digest.kind == S3_MD5 || body->checks[i].in_trailer)
            body->checks[kept++] = body->checks[i];
        else
            out[count++] = body->checks[i];
    }
    pst_assert(count <= S3_CHECKS_MAX);
    pst_assert(kept + count == body->check_count);
    body->check_count = kept;
    return count;
}

bool s3_check_holds(struct s3_check *check)
{
    uint8_t digest[S3_DIGEST_BYTES_MAX];

    s3_base64(digest, s3_digest_end(&check->digest, digest), check->found);
    return strcmp(check->found, check->wanted) == 0;
}

void s3_body_close(struct s3_body *body)
{
    pst_assert(body->check_count <= S3_CHECKS_MAX);
    for (uint32_t i = 0; i < body->check_count; i++)
        s3_digest_close(&body->checks[i].digest);
    s3_digest_close(&body->sha256);
    s3_digest_close(&body->chunk);
    s3_digest_close(&body->trailer);
    body->check_count = 0;
}

/* ---- what is read ---- */

static enum s3_code body_lost(ssize_t n)
{
    return n == -ETIMEDOUT ? S3_RequestTimeout : n == 0 ? S3_IncompleteBody : S3_GONE;
}

static void body_add(struct s3_body *body, const void *data, size_t bytes)
{
    pst_assert(body->check_count <= S3_CHECKS_MAX);
    pst_assert(!body->ended);
    for (uint32_t i = 0; i < body->check_count; i++)
        s3_digest_add(&body->checks[i].digest, data, bytes);
    if (body->sha256_wanted[0])
        s3_digest_add(&body->sha256, data, bytes);
    if (body->signer)
        s3_digest_add(&body->chunk, data, bytes);
    body->got += bytes;
}

/* All has come. */
static enum s3_code body_verify(struct s3_body *body)
{
    uint8_t digest[S3_DIGEST_BYTES_MAX];
    char hex[S3_SHA256_HEX + 1];

    pst_assert(!body->ended);
    body->ended = true;
    if (body->bytes != S3_BYTES_UNKNOWN && body->got != body->bytes)
        return S3_IncompleteBody;
    if (body->sha256_wanted[0]) {
        pst_hex_print(digest, s3_digest_end(&body->sha256, digest), hex);
        if (strcmp(hex, body->sha256_wanted) != 0)
            return S3_XAmzContentSHA256Mismatch;
    }
    if (body->signer && body->trailer_is_signed && !body->trailer_signature_came)
        return S3_SignatureDoesNotMatch;
    for (uint32_t i = 0; i < body->check_count; i++)
        if (!s3_check_holds(&body->checks[i]))
            return S3_BadDigest;
    return S3_OK;
}

/* "name:value": a checksum, or the trailer's signature. */
static enum s3_code body_trailer(struct s3_body *body, struct pst_bytes line)
{
    struct pst_bytes value = line, name = pst_http_cut(&value, ':');
    uint8_t digest[S3_SHA256_BYTES];
    enum s3_digest_kind kind;

    if (!value.data)
        return S3_InvalidRequest;
    value = pst_http_trim(value);
    if (pst_http_is(name, "x-amz-trailer-signature")) {
        if (!body->signer)
            return S3_OK;
        s3_digest_end(&body->trailer, digest);
        body->trailer_signature_came = true;
        pst_assert(body->aws_chunked);
        return s3_sign_trailer(body->signer, digest, value) ? S3_OK : S3_SignatureDoesNotMatch;
    }
    if (body->trailer_signature_came) /* which is the last line */
        return S3_InvalidRequest;
    if (body->signer) {
        s3_digest_add(&body->trailer, name.data, name.len);
        s3_digest_add(&body->trailer, ":", 1);
        s3_digest_add(&body->trailer, value.data, value.len);
        s3_digest_add(&body->trailer, "\n", 1);
    }
    for (uint32_t i = 0; i < body->check_count; i++) {
        struct s3_check *check = &body->checks[i];

        if (check->in_trailer && checksum_of(name, &kind) && kind == check->digest.kind &&
            value.len < sizeof(check->wanted)) {
            memcpy(check->wanted, value.data, value.len);
            check->wanted[value.len] = 0;
        }
    }
    return S3_OK;
}

static enum s3_code body_chunk_done(struct s3_body *body)
{
    uint8_t digest[S3_SHA256_BYTES];

    pst_assert(body->aws_chunked);
    if (!body->signer)
        return S3_OK;
    s3_digest_end(&body->chunk, digest);
    return s3_sign_chunk(body->signer, digest, s3_chunk_signature(&body->inner)) ? S3_OK
                                                                                 : S3_SignatureDoesNotMatch;
}

/* Makes body->raw what the socket has of the body; stays empty at its end. */
static enum s3_code body_more(struct s3_body *body)
{
    while (body->raw.len == 0 && !body->outer_ended) {
        struct pst_bytes here = s3_link_here(body->link), input;
        enum s3_chunk_event event;

        if (!body->http_chunked && body->left == 0)
            return S3_OK;
        if (here.len == 0) {
            ssize_t n = s3_link_fill(body->link);

            if (n <= 0)
                return body_lost(n);
            continue;
        }
        if (!body->http_chunked) {
            body->raw = (struct pst_bytes){here.data, pst_min(here.len, body->left)};
            body->left -= body->raw.len;
            s3_link_take(body->link, body->raw.len);
            return S3_OK;
        }
        input = here;
        event = s3_chunk_next(&body->outer, &input, &body->raw);
        pst_assert(input.len <= here.len);
        s3_link_take(body->link, here.len - input.len);
        if (event == S3_CHUNK_BROKEN)
            return S3_InvalidRequest;
        body->outer_ended = event == S3_CHUNK_END;
    }
    return S3_OK;
}

/* What is behind the object's bytes: only HTTP's own end. */
static enum s3_code body_end(struct s3_body *body)
{
    enum s3_code code = body_more(body);

    pst_assert(code != S3_OK || body->raw.len > 0 || s3_body_is_taken(body));
    if (code == S3_OK && body->raw.len)
        code = S3_InvalidRequest;
    return code == S3_OK ? body_verify(body) : code;
}

static enum s3_code body_inner_event(struct s3_body *body, enum s3_chunk_event event)
{
    switch (event) {
    case S3_CHUNK_DONE:
        return body_chunk_done(body);
    case S3_CHUNK_TRAILER:
        return body_trailer(body, s3_chunk_line(&body->inner));
    case S3_CHUNK_END:
        return body_end(body);
    case S3_CHUNK_BROKEN:
        return S3_InvalidRequest;
    default:
        return S3_OK;
    }
}

/* Through the chunks. */
static enum s3_code body_read_chunked(struct s3_body *body, uint8_t *buf, size_t bytes, size_t *got)
{
    enum s3_code code = S3_OK;

    while (code == S3_OK && *got < bytes && !body->ended) {
        struct pst_bytes piece = {NULL, 0}, input;
        size_t given;

        code = body_more(body);
        if (code != S3_OK)
            break;
        if (body->raw.len == 0) { /* and no chunk without data before */
            code = body->aws_chunked ? S3_IncompleteBody : body_verify(body);
            break;
        }
        given = pst_min(body->raw.len, bytes - *got);
        pst_assert(given > 0);
        input = (struct pst_bytes){body->raw.data, given};
        if (body->aws_chunked) {
            enum s3_chunk_event event = s3_chunk_next(&body->inner, &input, &piece);

            body->raw = (struct pst_bytes){(const char *)body->raw.data + (given - input.len),
                                           body->raw.len - (given - input.len)};
            code = body_inner_event(body, event);
        } else {
            piece = input;
            body->raw = (struct pst_bytes){(const char *)body->raw.data + given, body->raw.len - given};
        }
        if (code != S3_OK || piece.len == 0)
            continue;
        pst_assert(piece.len <= bytes - *got);
        memcpy(buf + *got, piece.data, piece.len);
        body_add(body, piece.data, piece.len);
        *got += piece.len;
        if (body->bytes != S3_BYTES_UNKNOWN && body->got > body->bytes)
            code = S3_IncompleteBody;
    }
    return code;
}

/* As it is: straight into the reader's memory. */
static enum s3_code body_read_plain(struct s3_body *body, uint8_t *buf, size_t bytes, size_t *got)
{
    while (*got < bytes && body->left > 0) {
        ssize_t n = s3_link_read(body->link, buf + *got, pst_min(bytes - *got, body->left));

        if (n <= 0)
            return body_lost(n);
        pst_assert((uint64_t)n <= body->left);
        body_add(body, buf + *got, (size_t)n);
        body->left -= (uint64_t)n;
        *got += (size_t)n;
        pst_assert(*got <= bytes);
    }
    return body->left == 0 && !body->ended ? body_verify(body) : S3_OK;
}

enum s3_code s3_body_read(struct s3_body *body, void *buf, size_t bytes, size_t *got)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    enum s3_code code;
    size_t filled = 0;

    pst_assert(bytes > 0);
    pst_assert(body->link);
    if (body->awaits_continue && body->link->bytes == 0 &&
        s3_link_write(body->link, go_on, sizeof(go_on) - 1) < 0)
        return S3_GONE;
    body->awaits_continue = false;
    if (body->http_chunked || body->aws_chunked)
        code = body_read_chunked(body, buf, bytes, &filled);
    else
        code = body_read_plain(body, buf, bytes, &filled);
    pst_assert(filled <= bytes);
    if (code == S3_OK)
        *got = filled;
    return code;
}

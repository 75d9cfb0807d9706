/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sink.c: values on their way into the store. A small one is put in one step; a larger one goes into a
 * reservation piece by piece, so a connection never holds more than a piece of it.
 */
#include "gateway/s3/s3_priv.h"

static void sink_prepare(const struct s3_sink *sink, struct penstock_op *op)
{
    pst_assert(!sink->attrs || sink->attrs->bytes <= sizeof(sink->attrs->data));
    if (sink->conditional) {
        op->flags |= PENSTOCK_IF_GENERATION;
        op->if_generation = sink->if_generation;
    }
    if (sink->ttl_ms) {
        op->flags |= PENSTOCK_TTL;
        op->ttl_ms = sink->ttl_ms;
    }
    if (sink->attrs) {
        op->attrs = (void *)(uintptr_t)sink->attrs->data;
        op->attr_bytes = sink->attrs->bytes;
    }
}

/* If-Match of an object that is not there has a code of its own. */
static enum s3_code sink_result(struct s3_session *s, const struct s3_sink *sink,
                                const struct penstock_op *op)
{
    enum s3_code code = s3_result(s, op);
    struct s3_object object;

    if (code == S3_PreconditionFailed && sink->if_generation &&
        s3_stat(s, sink->key, &object) == S3_NoSuchKey)
        return S3_NoSuchKey;
    return code;
}

enum s3_code s3_sink_put(struct s3_session *s, struct s3_sink *sink, const void *data, uint64_t bytes,
                         uint64_t *generation)
{
    struct penstock_op op = {0};

    pst_assert(!sink->open);
    pst_assert(sink->key.len > 0);
    penstock_prep_put(&op, sink->key.data, sink->key.len, data, bytes);
    sink_prepare(sink, &op);
    penstock_batch(s->s3->store, &op, 1);
    if (op.result == 0)
        *generation = op.generation;
    return sink_result(s, sink, &op);
}

enum s3_code s3_sink_open(struct s3_session *s, struct s3_sink *sink, uint64_t bytes)
{
    struct penstock_op op = {0};

    pst_assert(!sink->open);
    pst_assert(bytes > 0);
    penstock_prep_reserve(&op, sink->key.data, sink->key.len,
                          bytes == S3_BYTES_UNKNOWN ? PENSTOCK_BYTES_UNKNOWN : bytes, &sink->reservation);
    op.flags = PENSTOCK_REPLACE;
    sink_prepare(sink, &op);
    penstock_batch(s->s3->store, &op, 1);
    sink->open = op.result == 0;
    sink->bytes = 0;
    return sink_result(s, sink, &op);
}

enum s3_code s3_sink_write(struct s3_session *s, struct s3_sink *sink, const void *data, uint64_t bytes)
{
    struct penstock_op op = {0};

    pst_assert(sink->open);
    pst_assert(bytes > 0);
    pst_assert(sink->check_count <= S3_CHECKS_MAX);
    penstock_prep_write_at(&op, sink->key.data, sink->key.len, &sink->reservation, sink->bytes, data, bytes);
    penstock_batch(s->s3->store, &op, 1);
    if (op.result == PENSTOCK_MISS) /* the session with the node was lost, and with it what was written */
        return S3_ServiceUnavailable;
    if (op.result != 0)
        return s3_result(s, &op);
    sink->bytes += bytes;
    for (uint32_t i = 0; i < sink->check_count; i++)
        s3_digest_add(&sink->checks[i].digest, data, bytes);
    return S3_OK;
}

enum s3_code s3_sink_commit(struct s3_session *s, struct s3_sink *sink, uint64_t *generation)
{
    struct penstock_op op = {0};

    pst_assert(sink->open);
    sink->reservation.bytes = sink->bytes;
    penstock_prep_reservation_commit(&op, sink->key.data, sink->key.len, &sink->reservation);
    penstock_batch(s->s3->store, &op, 1);
    if (op.result == PENSTOCK_MISS)
        return S3_ServiceUnavailable;
    if (op.result == 0) {
        *generation = op.generation;
        sink->open = false;
    }
    return sink_result(s, sink, &op);
}

void s3_sink_close(struct s3_session *s, struct s3_sink *sink)
{
    struct penstock_op op = {0};

    if (!sink->open)
        return;
    penstock_prep_reservation_abort(&op, sink->key.data, sink->key.len, &sink->reservation);
    penstock_batch(s->s3->store, &op, 1); /* of what is gone it succeeds; else it goes with the session */
    sink->open = false;
    pst_assert(!sink->open);
}

/* ---- what fills them ---- */

/* The rest of the body, whose first piece is in @buf. */
static enum s3_code sink_pieces(struct s3_session *s, struct s3_sink *sink, uint8_t *buf, size_t got,
                                uint64_t *generation)
{
    enum s3_code code = S3_OK;
    bool more = true;

    pst_assert(sink->open);
    pst_assert(got <= S3_PIECE_BYTES);
    while (code == S3_OK && more) {
        more = got == S3_PIECE_BYTES;
        if (got)
            code = s3_sink_write(s, sink, buf, got);
        if (code == S3_OK && more)
            code = s3_body_read(&s->body, buf, S3_PIECE_BYTES, &got);
    }
    return code == S3_OK ? s3_sink_commit(s, sink, generation) : code;
}

/* A body of more than S3_SMALL_BYTES, or of a length that nobody knows. */
static enum s3_code sink_large_body(struct s3_session *s, struct s3_sink *sink, uint64_t *generation)
{
    pst_cleanup_free uint8_t *buf = malloc(S3_PIECE_BYTES);
    bool known = s->body.bytes != S3_BYTES_UNKNOWN;
    enum s3_code code = buf ? S3_OK : S3_SlowDown;
    size_t got = 0;

    pst_assert(!sink->open);
    if (code == S3_OK && known) /* what cannot be is refused before its bytes come */
        code = s3_sink_open(s, sink, s->body.bytes);
    if (code == S3_OK)
        code = s3_body_read(&s->body, buf, S3_PIECE_BYTES, &got);
    pst_assert(code != S3_OK || got <= S3_PIECE_BYTES);
    if (code == S3_OK && !known && got < S3_PIECE_BYTES)
        return s3_sink_put(s, sink, buf, got, generation);
    if (code == S3_OK && !known)
        code = s3_sink_open(s, sink, S3_BYTES_UNKNOWN);
    return code == S3_OK ? sink_pieces(s, sink, buf, got, generation) : code;
}

enum s3_code s3_sink_body(struct s3_session *s, struct s3_sink *sink, uint64_t *generation)
{
    size_t bytes = s->body.bytes, got = 0;
    pst_cleanup_free uint8_t *buf = NULL;
    enum s3_code code;

    if (s->body.bytes > S3_SMALL_BYTES)
        return sink_large_body(s, sink, generation);
    buf = malloc(bytes + 1); /* one more: the end of the body is looked for, too */
    if (!buf)
        return S3_SlowDown;
    code = s3_body_read(&s->body, buf, bytes + 1, &got);
    if (code == S3_OK && got != bytes)
        code = S3_IncompleteBody;
    return code == S3_OK ? s3_sink_put(s, sink, buf, got, generation) : code;
}

enum s3_code s3_sink_source(struct s3_session *s, struct s3_sink *sink, struct s3_source *source,
                            struct s3_range range)
{
    enum s3_code code = S3_OK;

    pst_assert(sink->open);
    pst_assert(range.offset <= source->bytes);
    pst_assert(range.bytes <= source->bytes - range.offset);
    while (code == S3_OK && range.bytes > 0) {
        struct pst_bytes piece;

        code = s3_source_piece(s, source, range.offset, pst_min(range.bytes, S3_PIECE_BYTES), &piece);
        if (code != S3_OK)
            return code;
        pst_assert(piece.len > 0 && piece.len <= range.bytes);
        code = s3_sink_write(s, sink, piece.data, piece.len);
        range.offset += piece.len;
        range.bytes -= piece.len;
    }
    return code;
}

enum s3_code s3_sink_range(struct s3_session *s, struct s3_sink *sink, struct s3_source *source,
                           struct s3_range range, uint64_t *generation)
{
    struct pst_bytes piece;
    enum s3_code code;

    pst_assert(!sink->open);
    if (range.bytes <= S3_COPIED_BYTES) {
        code = s3_source_piece(s, source, range.offset, range.bytes, &piece);
        return code == S3_OK ? s3_sink_put(s, sink, piece.data, piece.len, generation) : code;
    }
    code = s3_sink_open(s, sink, range.bytes);
    if (code == S3_OK)
        code = s3_sink_source(s, sink, source, range);
    if (code == S3_OK)
        code = s3_sink_commit(s, sink, generation);
    s3_sink_close(s, sink);
    return code;
}

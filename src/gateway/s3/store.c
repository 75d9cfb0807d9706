/* SPDX-License-Identifier: Apache-2.0 */
/* store.c: results of the store, and values on their way out of it. */
#include "gateway/s3/s3_priv.h"

enum s3_code s3_result_of(struct s3_session *s, int result)
{
    static const struct {
        int result;
        enum s3_code code;
    } known[] = {
        {PENSTOCK_OK, S3_OK},
        {PENSTOCK_MISS, S3_NoSuchKey},
        {PENSTOCK_EXISTS, S3_PreconditionFailed},
        {PENSTOCK_STALE, S3_PreconditionFailed},
        {PENSTOCK_BUSY, S3_SlowDown},
        {PENSTOCK_INCOMPLETE, S3_ServiceUnavailable},
        {-ENOSPC, S3_StorageFull},
        {-EFBIG, S3_EntityTooLarge},
        {-EDQUOT, S3_SlowDown},
        {-EMFILE, S3_SlowDown},
        {-ENOMEM, S3_SlowDown},
        {-EACCES, S3_AccessDenied},
        {-ENAMETOOLONG, S3_KeyTooLongError},
        {-ETIMEDOUT, S3_ServiceUnavailable},
        {-ECONNREFUSED, S3_ServiceUnavailable},
        {-ECONNRESET, S3_ServiceUnavailable},
        {-EHOSTUNREACH, S3_ServiceUnavailable},
    };

    for (size_t i = 0; i < pst_count_of(known); i++)
        if (known[i].result == result)
            return known[i].code;
    return s3_because(s, S3_InternalError, "the store: %s", penstock_result_text(result));
}

enum s3_code s3_result(struct s3_session *s, const struct penstock_op *op)
{
    if (op->result == -EFBIG && op->error_detail.limit_bytes)
        s3_because(s, S3_EntityTooLarge, "the largest object that fits has %llu bytes",
                   (unsigned long long)op->error_detail.limit_bytes);
    return s3_result_of(s, op->result);
}

enum s3_code s3_stat(struct s3_session *s, struct pst_bytes key, struct s3_object *out)
{
    struct penstock_op op = {0};

    pst_assert(key.len > 0);
    penstock_prep(&op, PENSTOCK_STAT_KEY, key.data, key.len);
    op.attrs = out->attrs.data;
    op.attr_bytes = sizeof(out->attrs.data);
    penstock_batch(s->s3->store, &op, 1);
    if (op.result != 0)
        return s3_result(s, &op);
    out->bytes = op.value_bytes;
    out->generation = op.generation;
    out->attrs.bytes = (uint16_t)pst_min(op.attr_bytes, sizeof(out->attrs.data));
    pst_assert(out->attrs.bytes <= sizeof(out->attrs.data));
    s3_attrs_take(&out->attrs);
    return S3_OK;
}

int s3_delete_generation(struct s3_session *s, struct pst_bytes key, uint64_t generation)
{
    struct penstock_op op = {0};

    pst_assert(key.len > 0);
    penstock_prep(&op, PENSTOCK_DELETE, key.data, key.len);
    op.flags = PENSTOCK_IF_GENERATION;
    op.if_generation = generation;
    penstock_batch(s->s3->store, &op, 1);
    return op.result;
}

/* ---- sources ---- */

enum s3_code s3_source_open(struct s3_session *s, struct pst_bytes key, const struct s3_object *object,
                            struct s3_source *out)
{
    int r = -EOPNOTSUPP;

    *out = (struct s3_source){.key = key, .bytes = object->bytes, .generation = object->generation};
    if (object->bytes > S3_COPIED_BYTES)
        r = penstock_view(s->s3->store, key.data, key.len, &out->view);
    if (r == 0) {
        out->viewed = true;
        if (out->view.generation == object->generation && out->view.bytes == object->bytes)
            return S3_OK;
        s3_source_close(s, out);
        return S3_CHANGED;
    }
    if (r == PENSTOCK_MISS)
        return S3_CHANGED;
    pst_assert(!out->viewed);
    pst_assert(!out->buf);
    out->room = pst_min(pst_max(object->bytes, 1), S3_PIECE_BYTES);
    out->buf = malloc(out->room);
    return out->buf ? S3_OK : S3_SlowDown;
}

enum s3_code s3_source_piece(struct s3_session *s, struct s3_source *source, uint64_t offset, uint64_t bytes,
                             struct pst_bytes *piece)
{
    struct penstock_op op = {0};

    pst_assert(offset <= source->bytes);
    pst_assert(bytes <= source->bytes - offset);
    if (source->viewed) {
        *piece = (struct pst_bytes){(const uint8_t *)source->view.data + offset, bytes};
        return S3_OK;
    }
    pst_assert(source->buf);
    pst_assert(source->room > 0);
    *piece = (struct pst_bytes){source->buf, pst_min(bytes, source->room)};
    if (piece->len == 0)
        return S3_OK;
    penstock_prep_get_range(&op, source->key.data, source->key.len, offset, source->buf, piece->len);
    op.flags |= PENSTOCK_IF_GENERATION;
    op.if_generation = source->generation;
    penstock_batch(s->s3->store, &op, 1);
    if (op.result == PENSTOCK_MISS || op.result == PENSTOCK_STALE || op.result == -ERANGE)
        return S3_CHANGED;
    return s3_result(s, &op);
}

void s3_source_close(struct s3_session *s, struct s3_source *source)
{
    if (source->viewed)
        penstock_view_release(s->s3->store, &source->view);
    free(source->buf);
    source->viewed = false;
    source->buf = NULL;
    pst_assert(!source->viewed);
    pst_assert(!source->buf);
}

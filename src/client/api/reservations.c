/* SPDX-License-Identifier: Apache-2.0 */
/* reservations.c: the simple calls on reservations, and puts of unknown length, which are a reservation that
 * grows. */
#include "client/client_priv.h"
#include "client/embedded/embedded_priv.h"

#include "base/hash.h"

/* ---- one operation ---- */

int penstock_reserve(struct penstock *store, const void *key, size_t key_bytes, uint64_t bytes,
                     uint16_t depth, struct penstock_reservation *reservation)
{
    struct penstock_op op = {0};

    penstock_prep_reserve(&op, key, key_bytes, bytes, reservation);
    op.depth = depth;
    return pst_do_one(store, &op);
}

int penstock_write_at(struct penstock *store, const void *key, size_t key_bytes,
                      const struct penstock_reservation *reservation, uint64_t offset, const void *data,
                      uint64_t bytes)
{
    struct penstock_op op = {0};

    if (!reservation)
        return pst_fail(-EINVAL, "penstock_write_at: no reservation");
    penstock_prep_write_at(&op, key, key_bytes, reservation, offset, data, bytes);
    return pst_do_one(store, &op);
}

int penstock_reservation_commit(struct penstock *store, const void *key, size_t key_bytes,
                                const struct penstock_reservation *reservation, uint64_t *generation)
{
    struct penstock_op op = {0};
    int r;

    if (!reservation)
        return pst_fail(-EINVAL, "penstock_reservation_commit: no reservation");
    penstock_prep_reservation_commit(&op, key, key_bytes, reservation);
    r = pst_do_one(store, &op);
    if (generation)
        *generation = op.generation;
    return r;
}

int penstock_reservation_abort(struct penstock *store, const void *key, size_t key_bytes,
                               const struct penstock_reservation *reservation)
{
    struct penstock_op op = {0};

    if (!reservation)
        return pst_fail(-EINVAL, "penstock_reservation_abort: no reservation");
    penstock_prep_reservation_abort(&op, key, key_bytes, reservation);
    return pst_do_one(store, &op);
}

int penstock_reservation_memory(struct penstock *store, const void *key, size_t key_bytes,
                                const struct penstock_reservation *reservation, struct iovec *pieces, int max)
{
    struct penstock_op op = {0};
    int r = pst_store_check(store);

    if (r < 0)
        return r;
    penstock_prep(&op, PENSTOCK_WRITE_AT, key, key_bytes);
    if (!key || !key_bytes || !reservation || !pieces)
        return pst_explain(store, &op, -EINVAL);
    if (!store->local)
        return pst_explain(store, &op, -EOPNOTSUPP);
    r = pst_local_reservation_memory(store->local,
                                     store->backend->shard_of(store, (struct pst_bytes){key, key_bytes}),
                                     reservation->handle, pieces, max);
    return pst_explain(store, &op, r);
}

/* ---- streams ---- */

#define STREAM_MAGIC 0x7374726du

enum { STREAM_BYTES = 1 << 20 }; /* shorter writes are gathered */

struct penstock_stream {
    uint32_t magic;
    struct penstock *store;
    struct penstock_reservation reservation;
    bool checksum, durable;
    uint32_t crc;
    uint64_t offset; /* written into the reservation */
    size_t gathered;
    int failed;
    size_t key_bytes;
    uint8_t *buf; /* STREAM_BYTES, then the key */
};

static struct penstock_stream *stream_free(struct penstock_stream *stream)
{
    pst_assert(stream->buf);
    stream->magic = 0;
    free(stream->buf);
    free(stream);
    return NULL;
}

int penstock_stream_open(struct penstock *store, const struct penstock_op *put, struct penstock_stream **out)
{
    struct penstock_op op = {0};
    struct penstock_stream *stream;
    int r = pst_store_check(store);

    if (r < 0)
        return r;
    if (!put || !out || put->code != PENSTOCK_PUT)
        return pst_fail(-EINVAL, "penstock_stream_open: no put, or nowhere to put the stream");
    if (put->flags &
        ~(PENSTOCK_IF_ABSENT | PENSTOCK_IF_GENERATION | PENSTOCK_CHECKSUM | PENSTOCK_TTL | PENSTOCK_DURABLE))
        return pst_fail(-EINVAL, "penstock_stream_open: a flag that means nothing to a put");
    if (put->flags & PENSTOCK_DURABLE && put->flags & PENSTOCK_TTL)
        return pst_fail(-EINVAL, "penstock_stream_open: a value that ends cannot be durable");
    stream = calloc(1, sizeof(*stream));
    if (stream)
        stream->buf = malloc(STREAM_BYTES + (size_t)put->key_bytes);
    if (!stream || !stream->buf) {
        free(stream);
        return pst_fail(-ENOMEM, "out of memory");
    }
    penstock_prep_reserve(&op, put->key, put->key_bytes, PENSTOCK_BYTES_UNKNOWN, &stream->reservation);
    op.flags = (put->flags & (PENSTOCK_IF_ABSENT | PENSTOCK_IF_GENERATION | PENSTOCK_TTL)) | PENSTOCK_REPLACE;
    op.ttl_ms = put->ttl_ms;
    op.if_generation = put->if_generation;
    op.depth = put->depth;
    op.attrs = put->attrs;
    op.attr_bytes = put->attr_bytes;
    r = pst_run_one(store, &op, -1);
    if (r) {
        stream_free(stream);
        return r;
    }
    stream->magic = STREAM_MAGIC;
    stream->store = store;
    stream->checksum = put->flags & PENSTOCK_CHECKSUM;
    stream->durable = put->flags & PENSTOCK_DURABLE;
    stream->key_bytes = put->key_bytes;
    memcpy(stream->buf + STREAM_BYTES, put->key, put->key_bytes);
    *out = stream;
    return 0;
}

/* What a write or the commit of a stream came to, as its caller is told. */
static int stream_result(const struct penstock_stream *stream, int result)
{
    pst_assert(stream->magic == STREAM_MAGIC);
    pst_assert(stream->key_bytes > 0);
    if (result != PENSTOCK_MISS && result != -ENOENT)
        return result;
    return pst_fail(-ECONNRESET,
                    "%s: key '%.*s': what was written is gone: the connection was lost, or the key has "
                    "another node now",
                    stream->store->url, (int)pst_min(stream->key_bytes, 100),
                    (const char *)stream->buf + STREAM_BYTES);
}

static int append(struct penstock_stream *stream, const void *data, uint64_t bytes)
{
    pst_assert(stream->magic == STREAM_MAGIC);
    pst_assert(stream->gathered == 0); /* bytes keep their order */
    if (stream->failed || !bytes)
        return stream->failed;
    if (stream->checksum)
        stream->crc = pst_crc32c(stream->crc, data, bytes);
    stream->failed =
        stream_result(stream, penstock_write_at(stream->store, stream->buf + STREAM_BYTES, stream->key_bytes,
                                                &stream->reservation, stream->offset, data, bytes));
    stream->offset += bytes;
    return stream->failed;
}

static int append_gathered(struct penstock_stream *stream)
{
    size_t bytes = stream->gathered;

    pst_assert(bytes <= STREAM_BYTES);
    pst_assert(stream->magic == STREAM_MAGIC);
    stream->gathered = 0;
    return append(stream, stream->buf, bytes);
}

int penstock_stream_write(struct penstock_stream *stream, const void *data, uint64_t bytes)
{
    if (!stream || (!data && bytes))
        return pst_fail(-EINVAL, "penstock_stream_write: no stream or no data");
    pst_assert(stream->magic == STREAM_MAGIC);
    if (stream->failed)
        return stream->failed;
    if (bytes > STREAM_BYTES - stream->gathered && append_gathered(stream))
        return stream->failed;
    if (bytes >= STREAM_BYTES)
        return append(stream, data, bytes);
    if (bytes)
        memcpy(stream->buf + stream->gathered, data, bytes);
    stream->gathered += bytes;
    pst_assert(stream->gathered <= STREAM_BYTES);
    return 0;
}

int penstock_stream_commit(struct penstock_stream *stream, uint64_t *generation)
{
    struct penstock_op op = {0};
    int r;

    if (!stream)
        return pst_fail(-EINVAL, "penstock_stream_commit: no stream");
    pst_assert(stream->magic == STREAM_MAGIC);
    r = append_gathered(stream);
    if (r) {
        penstock_stream_abort(stream);
        return r;
    }
    pst_assert(stream->gathered == 0);
    pst_assert(!stream->failed);
    stream->reservation.bytes = stream->offset;
    penstock_prep_reservation_commit(&op, stream->buf + STREAM_BYTES, stream->key_bytes,
                                     &stream->reservation);
    op.flags = (stream->checksum ? PENSTOCK_CHECKSUM : 0) | (stream->durable ? PENSTOCK_DURABLE : 0);
    op.value_crc = stream->crc;
    r = stream_result(stream, pst_do_one(stream->store, &op));
    if (generation)
        *generation = op.generation;
    if (r == PENSTOCK_BUSY || r == -EOPNOTSUPP || r == -EFBIG) /* nothing was done to its reservation */
        penstock_stream_abort(stream);
    else
        stream_free(stream);
    return r;
}

struct penstock_stream *penstock_stream_abort(struct penstock_stream *stream)
{
    if (!stream)
        return NULL;
    pst_assert(stream->magic == STREAM_MAGIC);
    penstock_reservation_abort(stream->store, stream->buf + STREAM_BYTES, stream->key_bytes,
                               &stream->reservation);
    return stream_free(stream);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read.c: Read. A small value is fetched into memory of the stream; a larger one is looked at where it lies,
 * by a view, which keeps the bytes of that one generation in place until the stream ends.
 */
#include "gateway/tsgrpc/tsgrpc_priv.h"

enum { VIEW_TRIES = 2 }; /* a session that ended takes the view with it */

struct reading {
    struct read_request request; /* its bytes are in st->request */
    uint8_t *buf;                /* of a value that is fetched */
    struct penstock_view view;
    bool viewed;
    const uint8_t *at; /* what has not been sent, behind st->body */
    uint64_t left;
};

static struct reading *reading_of(const struct stream *st)
{
    return st->own;
}

static void answer_missing(struct stream *st)
{
    pst_assert(st->head_bytes == 0);
    st->head_bytes = (uint32_t)proto_read_head(st->head, (struct generation){.kind = GENERATION_ABSENT},
                                               st->wall_ns, READ_MISSING, 0);
    stream_answer(st, true);
}

static bool holds(const struct read_request *request, struct generation now)
{
    if (request->if_equal.kind != GENERATION_UNKNOWN && !generation_equal(request->if_equal, now))
        return false;
    return request->if_not_equal.kind == GENERATION_UNKNOWN || !generation_equal(request->if_not_equal, now);
}

/* Return: bytes of the next part, which st->body points to. */
static uint32_t next_part(struct stream *st)
{
    struct reading *reading = st->own;
    uint64_t part_bytes = pst_min(reading->left, PART_BYTES);

    pst_assert(part_bytes == 0 || reading->at);
    pst_assert(st->body_left == 0); /* the part before has been sent */
    st->body = reading->at;
    st->body_left = part_bytes;
    if (part_bytes)
        reading->at += part_bytes;
    reading->left -= part_bytes;
    return (uint32_t)part_bytes;
}

/* @data: the bytes that were asked for. */
static void answer_value(struct stream *st, uint64_t number, const uint8_t *data, uint64_t bytes)
{
    struct generation generation = {GENERATION_VALUE, number};
    bool wanted = holds(&reading_of(st)->request, generation);

    pst_assert(st->own);
    pst_assert(data || bytes == 0);
    reading_of(st)->at = data;
    reading_of(st)->left = wanted ? bytes : 0;
    st->head_bytes = (uint32_t)proto_read_head(st->head, generation, st->wall_ns,
                                               wanted ? READ_VALUE : READ_UNSPECIFIED, next_part(st));
    stream_answer(st, reading_of(st)->left == 0);
}

static void read_in_place(struct stream *st)
{
    struct reading *reading = st->own;
    struct penstock_view *view = &reading->view;
    uint64_t offset = 0, bytes = 0;
    int r = -ECONNRESET;

    pst_assert(!reading->viewed);
    pst_assert(!stream_underway(st));
    for (int i = 0; i < VIEW_TRIES && r == -ECONNRESET; i++)
        r = penstock_view(st->door->store, reading->request.key.data, reading->request.key.len, view);
    if (r == PENSTOCK_MISS) {
        answer_missing(st);
        return;
    }
    if (r) {
        stream_fail_result(st, r, reading->request.key);
        return;
    }
    reading->viewed = true;
    if (!holds(&reading->request, (struct generation){GENERATION_VALUE, view->generation})) {
        answer_value(st, view->generation, NULL, 0);
    } else if (proto_range(&reading->request, view->bytes, &offset, &bytes) < 0) {
        stream_fail(st, STATUS_RANGE, "range [%lld, %lld) is not within the value's %llu bytes",
                    (long long)reading->request.min, (long long)reading->request.max,
                    (unsigned long long)view->bytes);
    } else {
        answer_value(st, view->generation, (const uint8_t *)view->data + offset, bytes);
    }
}

/* A get where the length is known to be small, or may be. Return: false there is none. */
static bool prepare_get(struct stream *st)
{
    const struct read_request *request = &reading_of(st)->request;

    pst_assert(!reading_of(st)->buf);
    if (request->min == 0 && request->max == -1) {
        penstock_prep_get(&st->op, request->key.data, request->key.len, NULL, GET_BYTES_MAX);
    } else if (request->min >= 0 && request->max > request->min &&
               request->max - request->min <= GET_BYTES_MAX) {
        penstock_prep_get_range(&st->op, request->key.data, request->key.len, (uint64_t)request->min, NULL,
                                (uint64_t)(request->max - request->min));
    } else {
        return false;
    }
    pst_assert(st->op.bytes > 0 && st->op.bytes <= GET_BYTES_MAX);
    reading_of(st)->buf = malloc(st->op.bytes);
    st->op.data = reading_of(st)->buf;
    return st->op.data != NULL;
}

static void read_requested(struct stream *st, struct pst_bytes message)
{
    pst_assert(!st->own);
    pst_assert(st->state == STREAM_WORKING);
    st->own = calloc(1, sizeof(struct reading));
    if (!st->own)
        stream_fail(st, STATUS_EXHAUSTED, "out of memory");
    else if (proto_read_request(message, &reading_of(st)->request) < 0)
        stream_fail(st, STATUS_INVALID, "not a ReadRequest");
    else if (reading_of(st)->request.key.len == 0) /* which no value has */
        answer_missing(st);
    else if (reading_of(st)->request.key.len > PST_KEY_BYTES_MAX)
        stream_fail_result(st, -ENAMETOOLONG, reading_of(st)->request.key);
    else if (prepare_get(st))
        door_begin(st);
    else
        read_in_place(st);
}

static void read_ended(struct stream *st)
{
    const struct penstock_op *op = &st->op;

    if (!stream_open_yet(st))
        return;
    pst_assert(st->own);
    if (op->result == 0)
        answer_value(st, op->generation, op->data, op->flags & PENSTOCK_RANGE ? op->bytes : op->value_bytes);
    else if (op->result == PENSTOCK_MISS)
        answer_missing(st);
    else if (op->result == -ENOBUFS ||
             op->result == -ERANGE) /* as seen in place, where conditions come first */
        read_in_place(st);
    else
        stream_fail_result(st, op->result, reading_of(st)->request.key);
}

static void read_more(struct stream *st)
{
    pst_assert(st->state == STREAM_ANSWERING);
    pst_assert(reading_of(st)->left > 0);
    st->head_bytes = (uint32_t)proto_part_head(st->head, next_part(st));
    if (reading_of(st)->left == 0)
        stream_last(st);
}

static bool read_drop(struct stream *st)
{
    if (st->own) {
        if (reading_of(st)->viewed)
            penstock_view_release(st->door->store, &reading_of(st)->view);
        free(reading_of(st)->buf);
        free(st->own);
        st->own = NULL;
    }
    return true;
}

const struct method method_read = {
    .name = "Read",
    .request = read_requested,
    .ended = read_ended,
    .more = read_more,
    .drop = read_drop,
};

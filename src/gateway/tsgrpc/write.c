/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write.c: Write. What fits into one part is gathered and put when the client has sent all. A longer value,
 * whose length nobody knows before its end, goes into a reservation of the store, a part at a time, and
 * becomes visible with the commit. What the client may send is what there is memory for.
 */
#include "gateway/tsgrpc/tsgrpc_priv.h"

struct writing {
    struct write_reader reader;
    struct generation condition;
    uint8_t *buf;
    size_t room, held; /* bytes of buf */
    size_t going;      /* of them, from the front, on their way into the reservation */
    uint64_t offset;   /* bytes in the reservation */
    bool large;        /* room and window are LARGE_BYTES */
    bool reservation_open;
    struct penstock_reservation reservation;
};

static struct writing *writing_of(const struct stream *st)
{
    return st->own;
}

static struct pst_bytes key_of(const struct writing *w)
{
    return (struct pst_bytes){w->reader.key, w->reader.key_bytes};
}

static void set_condition(const struct writing *w, struct penstock_op *op)
{
    pst_assert(w->condition.kind != GENERATION_FOREIGN);
    op->if_generation = 0;
    if (w->condition.kind == GENERATION_UNKNOWN)
        return;
    op->flags |= PENSTOCK_IF_GENERATION;
    op->if_generation = w->condition.number; /* 0: absent */
}

static void begin_first(struct stream *st)
{
    struct writing *w = st->own;
    struct pst_bytes key = key_of(w);

    pst_assert(!w->reservation_open);
    pst_assert(w->going == 0);
    w->condition = write_condition(&w->reader);
    if (w->condition.kind == GENERATION_FOREIGN) {
        stream_written(st, (struct generation){.kind = GENERATION_UNKNOWN});
        return;
    }
    if (key.len == 0) {
        stream_fail(st, STATUS_INVALID, "an empty key, or a value before its key");
        return;
    }
    if (st->state == STREAM_WORKING) {
        penstock_prep_put(&st->op, key.data, key.len, w->buf, w->held);
    } else {
        penstock_prep_reserve(&st->op, key.data, key.len, PENSTOCK_BYTES_UNKNOWN, &w->reservation);
        st->op.flags = PENSTOCK_REPLACE;
    }
    set_condition(w, &st->op);
    door_begin(st);
}

/* The store's next step, when there is one to take now. */
static void go_on(struct stream *st)
{
    struct writing *w = st->own;
    struct pst_bytes key = key_of(w);

    if (stream_underway(st) || !stream_open_yet(st) || (st->state == STREAM_REQUEST && w->held <= PART_BYTES))
        return;
    if (!w->reservation_open) {
        begin_first(st);
        return;
    }
    pst_assert(w->going == 0);
    if (w->held) {
        pst_assert(w->held <= w->room);
        w->going = w->held;
        penstock_prep_write_at(&st->op, key.data, key.len, &w->reservation, w->offset, w->buf, w->going);
    } else {
        w->reservation.bytes = w->offset;
        penstock_prep_reservation_commit(&st->op, key.data, key.len, &w->reservation);
    }
    door_begin(st);
}

/* ---- what the client sends ---- */

/* Whether a large buffer pays, which a message's announced length tells before its bytes have come. */
static bool wants_large(const struct stream *st)
{
    const struct writing *w = st->own;

    return st->state == STREAM_REQUEST && !st->turn && pst_list_empty(&st->line_link) &&
           (w->held > SMALL_BYTES || w->reader.frame.left > SMALL_BYTES);
}

static void write_turn(struct stream *st)
{
    struct pst_door *door = st->door;
    struct writing *w = st->own;
    uint8_t *buf;

    pst_assert(!w->large);
    pst_assert(w->going == 0);
    pst_assert(w->held <= LARGE_BYTES);
    pst_assert(st->state == STREAM_REQUEST);
    pst_assert(!stream_underway(st));
    pst_assert(door->spare_count <= LARGE_MAX); /* the store has none of the buffer */
    buf = door->spare_count ? door->spare[--door->spare_count] : malloc(LARGE_BYTES);
    if (!buf) {
        stream_fail(st, STATUS_EXHAUSTED, "out of memory");
        return;
    }
    if (w->held)
        memcpy(buf, w->buf, w->held);
    free(w->buf);
    w->buf = buf;
    w->room = LARGE_BYTES;
    w->large = true;
    nghttp2_session_set_local_window_size(st->connection->session, NGHTTP2_FLAG_NONE, st->id, LARGE_BYTES);
    door_dirty(st->connection);
}

static int append(struct stream *st, struct pst_bytes piece)
{
    struct writing *w = st->own;

    if (!w->buf) {
        w->buf = malloc(WINDOW_BYTES);
        w->room = w->buf ? WINDOW_BYTES : 0;
    }
    /* No memory: nghttp2 sees to it that no more comes than the window has. */
    if (piece.len > w->room - w->held) {
        stream_fail(st, STATUS_EXHAUSTED, "out of memory");
        return -ENOMEM;
    }
    pst_assert(w->buf);
    pst_assert(w->held + piece.len <= w->room);
    memcpy(w->buf + w->held, piece.data, piece.len);
    w->held += piece.len;
    pst_assert(w->held <= w->room);
    return 0;
}

static void write_input(struct stream *st, struct pst_bytes data)
{
    struct writing *w = st->own;
    size_t kept = 0, all = data.len;
    struct pst_bytes piece;
    int r;

    if (!w)
        w = st->own = calloc(1, sizeof(*w));
    if (!w) {
        stream_fail(st, STATUS_EXHAUSTED, "out of memory");
        return;
    }
    pst_assert(w->going <= w->held);
    pst_assert(w->held <= w->room);
    while ((r = write_next(&w->reader, &data, &piece)) > 0 && append(st, piece) == 0)
        kept += piece.len;
    if (r == -EOPNOTSUPP)
        stream_fail(st, STATUS_UNIMPLEMENTED, "compressed messages are not understood");
    else if (r < 0)
        stream_fail(st, STATUS_INVALID,
                    r == -ENAMETOOLONG ? "key longer than %d bytes" : "not a WriteRequest",
                    PST_KEY_BYTES_MAX);
    stream_consume(st, all - kept);
    if (wants_large(st))
        turn_await(&st->door->large, st);
    go_on(st);
}

static void write_input_end(struct stream *st)
{
    if (!st->own || !write_whole(&writing_of(st)->reader)) {
        stream_fail(st, STATUS_INVALID, "the request ends within a message");
        return;
    }
    pst_list_remove(&st->line_link); /* from the line for a large buffer, which it does not need any more */
    go_on(st);
}

/* ---- what the store says ---- */

static void reservation_written(struct stream *st)
{
    struct writing *w = st->own;
    size_t gone = w->going;

    pst_assert(w->reservation_open);
    pst_assert(gone > 0 && gone <= w->held && w->held <= w->room);
    w->offset += gone;
    w->held -= gone;
    w->going = 0;
    pst_assert(w->held <= w->room);
    memmove(w->buf, w->buf + gone, w->held);
    stream_consume(st, gone);
    go_on(st);
}

static void value_written(struct stream *st)
{
    const struct penstock_op *op = &st->op;

    if (op->result == 0)
        stream_written(st, (struct generation){GENERATION_VALUE, op->generation});
    else if (op->result == PENSTOCK_STALE || op->result == PENSTOCK_EXISTS)
        stream_written(st, (struct generation){.kind = GENERATION_UNKNOWN});
    else
        stream_fail_result(st, op->result, key_of(st->own));
}

static void write_ended(struct stream *st)
{
    struct writing *w = st->own;
    int r = st->op.result;

    pst_assert(w);
    pst_assert(st->batch == NULL);
    switch (st->op.code) {
    case PENSTOCK_RESERVE:
        w->reservation_open = r == 0;
        if (r == 0)
            go_on(st);
        else
            value_written(st);
        return;
    case PENSTOCK_WRITE_AT:
        if (r == 0)
            reservation_written(st);
        else
            stream_fail_result(st, r, key_of(w));
        return;
    case PENSTOCK_RESERVATION_ABORT: /* again if it was not begun, unless all reservations go with the session
                                        soon */
        w->reservation_open = r == PENSTOCK_BUSY && !st->door->stopping;
        return;
    default:
        pst_assert(st->op.code == PENSTOCK_PUT || st->op.code == PENSTOCK_RESERVATION_COMMIT);
        w->reservation_open = w->reservation_open && r != 0; /* a commit that fails may leave it */
        value_written(st);
    }
}

static bool write_drop(struct stream *st)
{
    struct writing *w = st->own;

    if (w && w->reservation_open) {
        penstock_prep_reservation_abort(&st->op, w->reader.key, w->reader.key_bytes, &w->reservation);
        door_begin(st);
        return false;
    }
    pst_assert(!stream_underway(st));
    pst_assert(!w || !w->large || st->door->spare_count < LARGE_MAX);
    if (w && w->large)
        st->door->spare[st->door->spare_count++] = w->buf; /* as many as there are turns */
    else if (w)
        free(w->buf);
    free(w);
    st->own = NULL;
    return true;
}

const struct method method_write = {
    .name = "Write",
    .input = write_input,
    .input_end = write_input_end,
    .ended = write_ended,
    .turn = write_turn,
    .drop = write_drop,
};

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream_priv.h: one call of a client's. It belongs to the door's thread, and works on one operation of the
 * store at a time. A call that has ended while an operation is underway leaves its connection and stays until
 * the store is done, since the operation borrows its memory.
 */
#ifndef PST_DOORS_STREAM_PRIV_H
#define PST_DOORS_STREAM_PRIV_H

#include "base/list.h"
#include "gateway/tsgrpc/bounds_priv.h"
#include "gateway/pace_priv.h"
#include "gateway/tsgrpc/proto_priv.h"

#include <penstock/penstock.h>

#define STREAM_MAGIC 0x7374726du

struct connection;
struct pst_door;
struct stream;

/* What a call is at; stream.c has the table of what may follow what. */
enum stream_state {
    STREAM_HEADERS,   /* its headers come */
    STREAM_REQUEST,   /* its messages come; the store may be at work on the first ones */
    STREAM_WORKING,   /* its request is whole, and not answered */
    STREAM_ANSWERING, /* head and body go out; method->more() has what follows them */
    STREAM_LAST,      /* its status follows head and body */
    STREAM_GONE,      /* its connection does not know it any more */
    STREAM_STATES,
};

/* One of the service's calls. None of these frees the stream. */
struct method {
    const char *name;
    /* The whole request has come, as one message. NULL: see input. */
    void (*request)(struct stream *st, struct pst_bytes message);
    /* In its place, of a call with many messages: bytes of them; and their end. */
    void (*input)(struct stream *st, struct pst_bytes data);
    void (*input_end)(struct stream *st);
    /* st->op has ended; the call may be over. */
    void (*ended)(struct stream *st);
    /* ANSWERING, and head and body have been sent: fill them anew, or say stream_last() or stream_fail(). */
    void (*more)(struct stream *st);
    /* What it waited for in line is its own now. */
    void (*turn)(struct stream *st);
    /* Lets go of what it holds; nothing is underway. Return: false it began an operation, and is called
     * again. */
    bool (*drop)(struct stream *st);
};

extern const struct method method_read, method_write, method_delete, method_list;

/* So many at a time; others wait in line until the loop comes to them. */
struct turns {
    uint32_t left;
    struct pst_list line;
};

struct stream {
    uint32_t magic;
    enum stream_state state;
    struct pst_door *door;
    struct connection *connection; /* NULL: GONE */
    const struct method *method;
    int32_t id;
    bool is_call;              /* its headers say application/grpc */
    struct pst_list link;      /* of its connection */
    struct pst_list line_link; /* of turns or sweeps */
    struct pst_list want_link; /* of the door's wants */
    struct turns *turn;        /* that it has taken */
    struct batch *batch;       /* in which st->op is underway */
    struct pace pace;          /* of its client */
    uint64_t timeout_ns;       /* that its client names; 0: none */
    uint64_t deadline_ns;
    uint64_t wall_ns; /* the time for which the answer holds */
    uint32_t header_bytes;
    struct frame_reader frame;
    uint8_t *request; /* the message, as it comes */
    uint32_t request_bytes, request_room;
    enum status_code status;
    char message[200];
    uint8_t head[PROTO_HEAD_BYTES_MAX];
    uint32_t head_at, head_bytes;
    const uint8_t *body;
    uint64_t body_left;
    struct penstock_op op; /* what goes into the batch, and its results */
    union {
        struct reading *reading;
        struct writing *writing;
        struct deleting *deleting;
        struct listing *listing;
    };
};

/* ---- its life ---- */

/* Return: NULL there are too many. */
struct stream *stream_open(struct connection *c, int32_t id);
void stream_header(struct stream *st, struct pst_bytes name, struct pst_bytes value);
void stream_headers_end(struct stream *st);
void stream_data(struct stream *st, struct pst_bytes data);
void stream_input_end(struct stream *st);
/* HTTP/2 has closed it, or its connection ends. */
void stream_closed(struct stream *st);
void stream_ended(struct stream *st);
void stream_turn(struct stream *st);
/* One step of its deletion of a range. Return: false it was the last one. */
bool stream_sweep(struct stream *st);
void stream_tick(struct stream *st, uint64_t now_ns);

/* ---- for the methods ---- */

/* Whether it is still to be answered. */
static inline bool stream_open_yet(const struct stream *st)
{
    return st->state == STREAM_REQUEST || st->state == STREAM_WORKING;
}

static inline bool stream_underway(const struct stream *st)
{
    return st->batch || !pst_list_empty(&st->want_link);
}

/* Answers with st->head and st->body; @last: with nothing but the status behind them. */
void stream_answer(struct stream *st, bool last);
/* Behind head and body comes the status. */
void stream_last(struct stream *st);
/* An answer of one message: a generation. */
void stream_written(struct stream *st, struct generation generation);
/* Nothing happens to a call whose answer is whole. */
void stream_fail(struct stream *st, enum status_code status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* A result of the store's as status; @key for the text. */
void stream_fail_result(struct stream *st, int result, struct pst_bytes key);
/* What the client has sent may be sent again: its memory is free. */
void stream_consume(struct stream *st, size_t bytes);

static inline struct stream *stream_cast(void *p)
{
    struct stream *st = p;

    pst_assert(st && st->magic == STREAM_MAGIC);
    return st;
}

#endif

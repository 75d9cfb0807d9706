/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream_priv.h: one call of a client's. It belongs to the door's thread, and works on one operation of the
 * store at a time. A call that has ended while an operation is underway leaves its connection and stays until
 * the store is done, since the operation borrows its memory.
 */
#ifndef PST_GRPC_STREAM_PRIV_H
#define PST_GRPC_STREAM_PRIV_H

#include "base/list.h"
#include "gateway/grpc/bounds_priv.h"
#include "gateway/grpc/wire_priv.h"
#include "gateway/pace_priv.h"

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
    /* A step of what it is in line for in door->sweeps. Return: false it was the last one. */
    bool (*step)(struct stream *st);
    /* Lets go of what it holds; nothing is underway. Return: false it began an operation, and is called
     * again. Never NULL. */
    bool (*drop)(struct stream *st);
};

/* What a door serves. */
struct service {
    const char *name;  /* of its options */
    const char *path;  /* "/package.Service/" */
    const char *calls; /* for who asks for another one */
    const struct method *const *methods;
    uint32_t method_count;
    uint32_t request_bytes_max;           /* of a message */
    void (*close)(struct pst_door *door); /* lets go of door->own; NULL: there is none */
};

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
    bool framed;      /* the head of its message is whole, which has frame.left bytes */
    uint8_t *request; /* the message, as it comes */
    uint32_t request_bytes, request_room;
    uint64_t gathered_bytes; /* its part of the door's */
    enum status_code status;
    char message[200];
    uint8_t head[HEAD_BYTES_MAX];
    uint32_t head_at, head_bytes;
    const uint8_t *body;
    uint64_t body_left;
    struct penstock_op op; /* what goes into the batch, and its results */
    void *own;             /* what its method keeps */
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
/* One step of what it does in steps. Return: false it was the last one. */
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
/* Nothing happens to a call whose answer is whole. */
void stream_fail(struct stream *st, enum status_code status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Of the door's for messages and answers, until the call's end. Return: 0; -ENOMEM the call has failed. */
int stream_take_memory(struct stream *st, uint64_t bytes);
/* What the client has sent may be sent again: its memory is free. */
void stream_consume(struct stream *st, size_t bytes);

static inline struct stream *stream_cast(void *p)
{
    struct stream *st = p;

    pst_assert(st && st->magic == STREAM_MAGIC);
    return st;
}

#endif

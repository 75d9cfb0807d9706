/*
 * door_priv.h: a door as its files see it. Connections have streams, a stream is one call of a client's. All
 * of it belongs to the door's thread.
 *
 * A stream works on one operation of the store at a time. One that its client gave up while an operation is
 * underway leaves its connection and stays until the operation has ended, since that borrows its memory.
 */
#ifndef PST_DOOR_PRIV_H
#define PST_DOOR_PRIV_H

#include "base/list.h"
#include "doors/bounds_priv.h"
#include "doors/doors.h"
#include "doors/proto_priv.h"

#include <penstock/penstock.h>

#include <nghttp2/nghttp2.h>
#include <pthread.h>
#include <stdatomic.h>

#define DOOR_MAGIC       0x646f6f72u
#define CONNECTION_MAGIC 0x636f6e6eu
#define STREAM_MAGIC     0x7374726du

struct stream;

/* One of the service's calls. */
struct method {
    const char *name;
    /* The whole request has come, as one message. NULL: see input. */
    void (*request)(struct stream *st, struct pst_bytes message);
    /* In its place, of a call with many messages: bytes of them; and their end. */
    void (*input)(struct stream *st, struct pst_bytes data);
    void (*input_end)(struct stream *st);
    /* st->op has ended. */
    void (*ended)(struct stream *st);
    /* st->head and st->body have been sent: fill them anew, or set st->last. NULL: there is no more. */
    void (*more)(struct stream *st);
    /* What it waited for in line is its own now. */
    void (*turn)(struct stream *st);
    /* Lets go of what it holds; nothing is underway. Return: false it began an operation, and is called
     * again. */
    bool (*drop)(struct stream *st);
};

extern const struct method method_read, method_write, method_delete, method_list;

/* So many at a time; who comes later waits in line. */
struct turns {
    uint32_t left;
    struct pst_list line;
};

struct pst_door {
    uint32_t magic;
    int poll_fd, stop_fd, listen_fd;
    bool listening; /* listen_fd is polled */
    bool queue_watched;
    bool running; /* the thread is */
    _Atomic bool stopping;
    char address[280];
    pthread_t thread;
    struct penstock *store;
    struct penstock_queue *queue;
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;
    struct pst_list connections; /* the one that was quiet for longest first */
    struct pst_list dirty;       /* connections that may have something to send */
    struct pst_list wants;       /* streams whose operation goes out with the next batch */
    struct pst_list sweeps;      /* streams that delete ranges, a step at a time */
    struct turns large, lists;
    uint8_t *spare[LARGE_MAX]; /* memory of streams that wrote much, for the next ones */
    uint32_t spare_count;
    uint32_t connections_max, connection_count, stream_count, underway;
    int *held; /* descriptors for connections that are not there yet */
    uint32_t held_count;
    uint64_t tick_ns;
    uint8_t *input; /* what is received, DOOR_INPUT_BYTES */
};

struct connection {
    uint32_t magic;
    struct pst_door *door;
    struct pst_list link, dirty_link, streams;
    int fd;
    bool settled;
    bool writing; /* the socket is polled for room */
    nghttp2_session *session;
    uint64_t progress_ns;
    size_t out_at, out_bytes;
    uint8_t out[OUT_BYTES];
};

struct stream {
    uint32_t magic;
    struct pst_door *door;
    struct connection *connection; /* NULL: its client is gone */
    const struct method *method;
    int32_t id;
    struct pst_list link;      /* of its connection */
    struct pst_list line_link; /* of turns or sweeps */
    struct pst_list want_link; /* of the door's wants */
    struct turns *turn;        /* that it has taken */
    bool is_call;              /* POST of application/grpc */
    bool input_ended;
    bool answered; /* the response's headers are submitted */
    bool idle;     /* the response waits for more */
    bool last;     /* nothing comes behind head and body */
    bool finished; /* status decides; nothing more is read or begun */
    bool underway;
    uint64_t deadline_ns, progress_ns;
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
    struct batch *batch;   /* in which it is underway */
    union {
        struct reading *reading;
        struct writing *writing;
        struct deleting *deleting;
        struct listing *listing;
    };
};

/* ---- delete.c ---- */

/* One step of a range's deletion. Return: false it was the last one. */
bool delete_step(struct stream *st);

/* ---- door.c ---- */

/* st->op goes out with the next batch; method->ended() follows. */
void door_begin(struct stream *st);
void door_dirty(struct connection *c);
/* A connection has ended: its descriptor's place is kept for the next one. */
void door_hold(struct pst_door *door);
/* Takes a turn, now or later: then method->turn(). */
void turn_take(struct turns *turns, struct stream *st);
void turn_give(struct stream *st);

/* ---- connection.c ---- */

int connection_callbacks(struct pst_door *door);
/* Takes @fd over. Return: 0 or -errno. */
int connection_open(struct pst_door *door, int fd);
void connection_close(struct connection *c);
/* What epoll said. */
void connection_ready(struct connection *c, uint32_t events);
/* Sends what there is to send, a bounded share of it. */
void connection_flush(struct connection *c);
/* Ends what took too long. */
void connection_tick(struct connection *c, uint64_t now_ns);

/* ---- stream.c ---- */

/* Return: NULL there are too many. */
struct stream *stream_open(struct connection *c, int32_t id);
void stream_header(struct stream *st, struct pst_bytes name, struct pst_bytes value);
void stream_headers_end(struct stream *st);
void stream_data(struct stream *st, struct pst_bytes data);
void stream_input_end(struct stream *st);
/* HTTP/2 has closed it, or its connection is gone. */
void stream_closed(struct stream *st);
void stream_ended(struct stream *st);
/* Frees one whose client is gone and of which nothing is underway. */
void stream_release(struct stream *st);
void stream_tick(struct stream *st, uint64_t now_ns);
/* Sends st->head and st->body; the first time with the response's headers. */
void stream_answer(struct stream *st);
/* An answer of one message: a generation. */
void stream_written(struct stream *st, struct generation generation);
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

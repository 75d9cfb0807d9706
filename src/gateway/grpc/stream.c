/* SPDX-License-Identifier: Apache-2.0 */
/* stream.c: one call of a client's, from its headers to its status; what it does is its method's. */
#include "gateway/grpc/door_priv.h"

#include "base/clock.h"
#include "base/ms.h"

#include <stdarg.h>
#include <stdio.h>

static const uint64_t TIMEOUT_NS_MAX = 1ull << 60; /* 36 years */
enum { REQUEST_BYTES_FIRST = 16 << 10 };           /* of memory for a message, before as much has come */

/* What may follow what. */
#define TO(state) (1u << STREAM_##state)
static const uint8_t follows[STREAM_STATES] = {
    [STREAM_HEADERS] = TO(REQUEST) | TO(GONE),
    [STREAM_REQUEST] = TO(WORKING) | TO(ANSWERING) | TO(LAST) | TO(GONE),
    [STREAM_WORKING] = TO(ANSWERING) | TO(LAST) | TO(GONE),
    [STREAM_ANSWERING] = TO(LAST) | TO(GONE),
    [STREAM_LAST] = TO(GONE),
    [STREAM_GONE] = 0,
};

/* ---- its life ---- */

static void stream_move(struct stream *st, enum stream_state state)
{
    pst_assert(st->state < STREAM_STATES);
    pst_assert(state < STREAM_STATES);
    pst_assert(follows[st->state] & 1u << state);
    st->state = state;
}

struct stream *stream_open(struct connection *c, int32_t id)
{
    struct pst_door *door = c->door;
    struct stream *st;

    /* A connection has as many calls as there is room for others: so none has all of them. */
    pst_assert(c->magic == CONNECTION_MAGIC);
    pst_assert(c->stream_count <= door->stream_count);
    if (c->stream_count >= STREAMS_MAX - door->stream_count)
        return NULL;
    st = calloc(1, sizeof(*st));
    if (!st)
        return NULL;
    st->magic = STREAM_MAGIC;
    st->state = STREAM_HEADERS;
    st->door = door;
    st->connection = c;
    st->id = id;
    st->deadline_ns = pst_deadline_ns(pst_now_ns(), SETTLE_MS);
    pace_begin(&st->pace, door->awake_ns);
    pst_list_push_back(&c->streams, &st->link);
    pst_list_init(&st->line_link);
    pst_list_init(&st->want_link);
    c->stream_count++;
    door->stream_count++;
    pst_assert(c->stream_count <= door->stream_count && door->stream_count <= STREAMS_MAX);
    connection_called(c);
    return st;
}

/* What HTTP/2 still has of it ends without it. */
static void stream_leave(struct stream *st)
{
    struct connection *c = st->connection;

    pst_assert(c && c->stream_count > 0);
    pst_assert(!pst_list_empty(&st->link));
    pst_assert(c->magic == CONNECTION_MAGIC);
    stream_move(st, STREAM_GONE);
    nghttp2_session_set_stream_user_data(c->session, st->id, NULL);
    pst_list_remove(&st->link);
    pst_list_remove(&st->line_link);
    c->stream_count--;
    connection_called(c);
    st->connection = NULL;
}

/* Last of all that happens to a stream: one that is gone is freed, unless the store has its memory. */
static void stream_settle(struct stream *st)
{
    if (st->state != STREAM_GONE || stream_underway(st))
        return;
    if (st->method && !st->method->drop(st))
        return;
    turn_give(st);
    pst_assert(st->door->stream_count > 0);
    pst_assert(!st->connection);
    pst_assert(pst_list_empty(&st->line_link));
    pst_assert(st->door->gathered_bytes >= st->gathered_bytes);
    st->door->stream_count--;
    st->door->gathered_bytes -= st->gathered_bytes;
    st->magic = 0;
    free(st->request);
    free(st);
}

void stream_closed(struct stream *st)
{
    stream_leave(st);
    stream_settle(st);
}

void stream_ended(struct stream *st)
{
    pst_assert(!stream_underway(st));
    pst_assert(st->method && st->method->ended);
    pace_begin(&st->pace, st->door->awake_ns);
    st->method->ended(st);
    stream_settle(st);
}

void stream_turn(struct stream *st)
{
    pst_assert(st->turn);
    pst_assert(st->connection);
    pst_assert(pst_list_empty(&st->line_link));
    pst_assert(st->method->turn);
    pace_begin(&st->pace, st->door->awake_ns);
    st->method->turn(st);
    stream_settle(st);
}

bool stream_sweep(struct stream *st)
{
    bool more;

    pst_assert(st->connection);
    pst_assert(st->method && st->method->step);
    more = st->method->step(st);
    stream_settle(st);
    return more;
}

/* Ends it with no status, and lets go of what it holds, whatever is still on its way to the client. */
static void stream_reset(struct stream *st)
{
    pst_assert(st->connection);
    nghttp2_submit_rst_stream(st->connection->session, NGHTTP2_FLAG_NONE, st->id, NGHTTP2_CANCEL);
    door_dirty(st->connection);
    stream_leave(st);
}

/* Whether its client is to move next, and does not. */
static bool stream_stalls(const struct stream *st)
{
    bool waits_for_us = st->state == STREAM_WORKING || stream_underway(st) || !pst_list_empty(&st->line_link);
    bool others_wait = st->turn && !pst_list_empty(&st->turn->line);

    return !waits_for_us &&
           pace_lost(&st->pace, st->door->awake_ns, st->door->patience_ns / (others_wait ? LINE_HASTE : 1));
}

void stream_tick(struct stream *st, uint64_t now_ns)
{
    bool late = now_ns > st->deadline_ns;

    pst_assert(st->connection);
    pst_assert(st->state != STREAM_GONE);
    /* gRPC reads a reset behind the deadline as what it is. */
    if (late && stream_open_yet(st))
        stream_fail(st, STATUS_DEADLINE, "the call's deadline has passed");
    else if (late || stream_stalls(st))
        stream_reset(st);
    stream_settle(st);
}

/* ---- headers ---- */

static bool equals(struct pst_bytes bytes, const char *text)
{
    return bytes.len == strlen(text) && memcmp(bytes.data, text, bytes.len) == 0;
}

static bool begins(struct pst_bytes bytes, const char *text)
{
    return bytes.len >= strlen(text) && memcmp(bytes.data, text, strlen(text)) == 0;
}

static const struct method *method_of(const struct service *service, struct pst_bytes path)
{
    size_t skip = strlen(service->path);

    if (!begins(path, service->path))
        return NULL;
    for (size_t i = 0; i < service->method_count; i++) {
        if (equals((struct pst_bytes){(const char *)path.data + skip, path.len - skip},
                   service->methods[i]->name))
            return service->methods[i];
    }
    return NULL;
}

/* "100m": up to eight digits and a unit. Return: ns, 0 it is something else. */
static uint64_t parse_timeout(struct pst_bytes text)
{
    static const struct {
        char unit;
        uint64_t ns;
    } units[] = {{'H', 3600000000000}, {'M', 60000000000}, {'S', 1000000000},
                 {'m', 1000000},       {'u', 1000},        {'n', 1}};
    const char *at = text.data;
    uint64_t number = 0;

    if (text.len < 2 || text.len > 9)
        return 0;
    for (size_t i = 0; i + 1 < text.len; i++) {
        if (at[i] < '0' || at[i] > '9')
            return 0;
        number = number * 10 + (uint64_t)(at[i] - '0');
    }
    for (size_t i = 0; i < pst_count_of(units); i++) {
        if (at[text.len - 1] == units[i].unit)
            return pst_max(pst_min(number, TIMEOUT_NS_MAX / units[i].ns) * units[i].ns, 1);
    }
    return 0;
}

void stream_header(struct stream *st, struct pst_bytes name, struct pst_bytes value)
{
    if (equals(name, ":path"))
        st->method = method_of(st->door->service, value);
    else if (equals(name, "content-type"))
        st->is_call = begins(value, "application/grpc");
    else if (equals(name, "grpc-timeout") && parse_timeout(value))
        st->timeout_ns = parse_timeout(value);
}

/* Something else than gRPC gets an answer in its own terms. */
static void refuse(struct stream *st)
{
    const nghttp2_nv status = {(uint8_t *)":status", (uint8_t *)"415", 7, 3, 0};

    pst_assert(st->connection);
    nghttp2_submit_response(st->connection->session, st->id, &status, 1, NULL);
    stream_leave(st);
}

void stream_headers_end(struct stream *st)
{
    uint64_t timeout_ns = st->timeout_ns ? st->timeout_ns : pst_ns_of_ms(CALL_MS);

    pst_assert(st->state == STREAM_HEADERS);
    st->deadline_ns = pst_now_ns() + pst_min(timeout_ns, pst_ns_of_ms(CALL_MS_MAX));
    stream_move(st, STREAM_REQUEST);
    if (!st->is_call)
        refuse(st);
    else if (!st->method)
        stream_fail(st, STATUS_UNIMPLEMENTED, "there are %s", st->door->service->calls);
    stream_settle(st);
}

/* ---- what the client sends ---- */

void stream_consume(struct stream *st, size_t bytes)
{
    if (st->connection && bytes) {
        nghttp2_session_consume_stream(st->connection->session, st->id, bytes);
        door_dirty(st->connection);
    }
}

static int begin_message(struct stream *st, struct pst_bytes *data)
{
    uint32_t bytes_max = st->door->service->request_bytes_max;
    int r = frame_head(&st->frame, data);

    pst_assert(!st->framed);
    pst_assert(st->request_bytes == 0);
    if (r < 0)
        stream_fail(st, STATUS_UNIMPLEMENTED, "compressed messages are not understood");
    if (r <= 0)
        return r;
    if (st->frame.left > bytes_max) {
        stream_fail(st, STATUS_INVALID, "a request of %u bytes: %u are taken", st->frame.left, bytes_max);
        return -EMSGSIZE;
    }
    st->framed = true;
    return 1;
}

int stream_take_memory(struct stream *st, uint64_t bytes)
{
    if (bytes > GATHERED_BYTES_MAX - st->door->gathered_bytes) {
        stream_fail(st, STATUS_EXHAUSTED, "other calls have the memory for messages");
        return -ENOMEM;
    }
    st->door->gathered_bytes += bytes;
    st->gathered_bytes += bytes;
    return 0;
}

/* Memory for @bytes of the message, which grows with what has come, whatever the client announces. */
static int make_room(struct stream *st, size_t bytes)
{
    uint64_t room = pst_max(pst_max(bytes, 2 * (uint64_t)st->request_room), REQUEST_BYTES_FIRST);
    uint8_t *request;
    int r;

    pst_assert(bytes <= st->frame.left);
    room = pst_min(room, st->frame.left);
    if (st->request && bytes <= st->request_room)
        return 0;
    r = stream_take_memory(st, room - st->request_room);
    if (r < 0)
        return r;
    request = realloc(st->request, room + 1);
    if (!request) {
        stream_fail(st, STATUS_EXHAUSTED, "out of memory");
        return -ENOMEM;
    }
    st->request = request;
    st->request_room = (uint32_t)room;
    return 0;
}

static void gather(struct stream *st, struct pst_bytes data)
{
    size_t count;

    if (!st->framed && begin_message(st, &data) <= 0)
        return;
    pst_assert(st->request_bytes <= st->frame.left);
    count = pst_min(data.len, st->frame.left - st->request_bytes);
    if (make_room(st, st->request_bytes + count) < 0)
        return;
    if (count)
        memcpy(st->request + st->request_bytes, data.data, count);
    st->request_bytes += (uint32_t)count;
    pst_assert(st->request_bytes <= st->request_room);
    if (count < data.len)
        stream_fail(st, STATUS_INVALID, "more than one message");
}

void stream_data(struct stream *st, struct pst_bytes data)
{
    if (st->state == STREAM_REQUEST) /* else it is to take data, not to send it */
        pace_moved(&st->pace, data.len, st->door->awake_ns);
    if (st->state == STREAM_REQUEST && st->method->input) {
        st->method->input(st, data);
    } else {
        if (st->state == STREAM_REQUEST)
            gather(st, data);
        stream_consume(st, data.len);
    }
    stream_settle(st);
}

void stream_input_end(struct stream *st)
{
    if (st->state != STREAM_REQUEST)
        return; /* it has been answered */
    stream_move(st, STREAM_WORKING);
    st->wall_ns = pst_wall_ns();
    pst_assert(st->method);
    if (st->method->input_end)
        st->method->input_end(st);
    else if (!st->framed || st->request_bytes < st->frame.left)
        stream_fail(st, STATUS_INVALID, "the request ends within its message");
    else
        st->method->request(st, (struct pst_bytes){st->request, st->request_bytes});
    stream_settle(st);
}

/* ---- what the client gets ---- */

static nghttp2_nv header(const char *name, const char *value)
{
    return (nghttp2_nv){(uint8_t *)name, (uint8_t *)value, strlen(name), strlen(value),
                        NGHTTP2_NV_FLAG_NO_COPY_NAME};
}

/* Percent-encodes what a header may not hold. */
static void encode_message(const char *text, char *out, size_t room)
{
    size_t at = 0;

    for (; *text && at + 4 < room; text++) {
        uint8_t byte = (uint8_t)*text;

        if (byte < 0x20 || byte > 0x7e || byte == '%')
            at += (size_t)snprintf(out + at, room - at, "%%%02X", byte);
        else
            out[at++] = (char)byte;
    }
    pst_assert(at < room);
    out[at] = '\0';
}

/* Status and text; behind @count headers that are there already. Return: 0 or nghttp2's error. */
static int submit_status(struct stream *st, bool alone)
{
    char code[8], message[3 * sizeof(st->message) + 8];
    nghttp2_nv nv[4];
    size_t count = 0;

    if (alone) {
        nv[count++] = header(":status", "200");
        nv[count++] = header("content-type", "application/grpc");
    }
    pst_assert(st->connection);
    snprintf(code, sizeof(code), "%d", st->status);
    nv[count++] = header("grpc-status", code);
    encode_message(st->message, message, sizeof(message));
    if (message[0])
        nv[count++] = header("grpc-message", message);
    pst_assert(count <= pst_count_of(nv));
    if (alone)
        return nghttp2_submit_response(st->connection->session, st->id, nv, count, NULL);
    return nghttp2_submit_trailer(st->connection->session, st->id, nv, count);
}

/* How many of st->head's and st->body's bytes go out next: connection.c takes them from where they lie. */
static ssize_t on_read(nghttp2_session *session, int32_t id, uint8_t *buf, size_t room, uint32_t *flags,
                       nghttp2_data_source *source, void *user)
{
    struct stream *st = nghttp2_session_get_stream_user_data(session, id);
    uint64_t left;

    (void)buf;
    (void)source;
    (void)user;
    if (!st)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE; /* it has left */
    pst_assert(st->state == STREAM_ANSWERING || st->state == STREAM_LAST);
    if (st->state == STREAM_ANSWERING && st->head_at == st->head_bytes && !st->body_left) {
        st->head_at = st->head_bytes = 0;
        st->method->more(st);
    }
    pst_assert(st->head_at <= st->head_bytes && st->head_bytes <= sizeof(st->head));
    left = st->head_bytes - st->head_at + st->body_left;
    pst_assert(left || st->state == STREAM_LAST);
    *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    if (left <= room && st->state == STREAM_LAST) {
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        if (submit_status(st, false) != 0)
            return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    return (ssize_t)pst_min(left, room);
}

void stream_answer(struct stream *st, bool last)
{
    const nghttp2_nv nv[] = {header(":status", "200"), header("content-type", "application/grpc")};
    const nghttp2_data_provider provider = {.read_callback = on_read};

    if (!stream_open_yet(st))
        return;
    pst_assert(last || st->method->more);
    pst_assert(!stream_underway(st));
    pst_assert(st->head_at == 0);
    stream_move(st, last ? STREAM_LAST : STREAM_ANSWERING);
    pace_begin(&st->pace, st->door->awake_ns);
    nghttp2_submit_response(st->connection->session, st->id, nv, pst_count_of(nv), &provider);
    door_dirty(st->connection);
}

void stream_last(struct stream *st)
{
    pst_assert(st->state == STREAM_ANSWERING);
    stream_move(st, STREAM_LAST);
}

void stream_fail(struct stream *st, enum status_code status, const char *format, ...)
{
    va_list args;

    if (!stream_open_yet(st) && st->state != STREAM_ANSWERING)
        return;
    va_start(args, format);
    vsnprintf(st->message, sizeof(st->message), format, args);
    va_end(args);
    st->status = status;
    if (st->state == STREAM_ANSWERING) { /* by more(): nothing that was promised is unsent */
        pst_assert(st->head_bytes == 0);
        pst_assert(st->body_left == 0);
        stream_last(st);
        return;
    }
    submit_status(st, true);
    door_dirty(st->connection);
    stream_leave(st);
}

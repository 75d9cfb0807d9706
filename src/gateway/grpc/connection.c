/* SPDX-License-Identifier: Apache-2.0 */
/*
 * connection.c: one client's socket and its HTTP/2 session. nghttp2 calls back from within the two calls that
 * feed and drain it; what it wants to send is gathered in c->out, and goes into the socket from there.
 */
#include "gateway/grpc/door_priv.h"

#include "base/clock.h"
#include "base/ms.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum {
    INPUTS_A_ROUND = 4,                  /* and */
    OUTPUTS_A_ROUND = 8,                 /* buffers of one connection before others have their turn */
    CONNECTION_WINDOW_BYTES = INT32_MAX, /* the streams' windows are what bounds memory */
};

static struct connection *connection_cast(void *p)
{
    struct connection *c = p;

    pst_assert(c && c->magic == CONNECTION_MAGIC);
    return c;
}

static struct stream *find(nghttp2_session *session, int32_t id)
{
    return nghttp2_session_get_stream_user_data(session, id);
}

/* ---- what nghttp2 has received ---- */

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct connection *c = connection_cast(user);
    struct stream *st;

    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    st = stream_open(c, frame->hd.stream_id);
    pst_assert(!st || st->connection == c);
    if (st)
        return nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, st);
    return nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_REFUSED_STREAM);
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_bytes, const uint8_t *value, size_t value_bytes, uint8_t flags, void *user)
{
    struct stream *st = find(session, frame->hd.stream_id);

    (void)flags;
    connection_cast(user);
    if (!st || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    if (name_bytes + value_bytes > HEADER_BYTES_MAX - st->header_bytes)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE; /* the stream's end */
    st->header_bytes += (uint32_t)(name_bytes + value_bytes);
    pst_assert(st->header_bytes <= HEADER_BYTES_MAX);
    pst_assert(st->state == STREAM_HEADERS);
    stream_header(st, (struct pst_bytes){name, name_bytes}, (struct pst_bytes){value, value_bytes});
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data, size_t bytes,
                   void *user)
{
    struct stream *st = find(session, id);

    (void)flags;
    connection_cast(user);
    nghttp2_session_consume_connection(session, bytes);
    pst_assert(!st || st->connection == user);
    if (st)
        stream_data(st, (struct pst_bytes){data, bytes});
    return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct connection *c = connection_cast(user);
    struct stream *st;

    if (frame->hd.type == NGHTTP2_SETTINGS)
        c->settled = true;
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA)
        return 0;
    st = find(session, frame->hd.stream_id);
    pst_assert(!st || st->connection == c);
    if (st && frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
        stream_headers_end(st);
        st = find(session, frame->hd.stream_id); /* it may have left */
    }
    if (st && frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
        stream_input_end(st);
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t why, void *user)
{
    struct stream *st = find(session, id);

    (void)why;
    connection_cast(user);
    if (st)
        stream_closed(st);
    return 0;
}

/* ---- what nghttp2 sends ---- */

static ssize_t on_send(nghttp2_session *session, const uint8_t *data, size_t bytes, int flags, void *user)
{
    struct connection *c = connection_cast(user);
    size_t count = pst_min(bytes, OUT_BYTES - c->out_bytes);

    pst_assert(c->out_bytes <= OUT_BYTES);
    (void)session;
    (void)flags;
    if (count == 0)
        return NGHTTP2_ERR_WOULDBLOCK;
    memcpy(c->out + c->out_bytes, data, count);
    c->out_bytes += count;
    pst_assert(c->out_bytes <= OUT_BYTES);
    return (ssize_t)count;
}

/* A DATA frame: head and body come from where they are, with no copy before the one into the buffer. */
static int on_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *frame_head,
                        size_t bytes, nghttp2_data_source *source, void *user)
{
    enum { FRAME_HEAD_BYTES = 9 };
    struct connection *c = connection_cast(user);
    struct stream *st = find(session, frame->hd.stream_id);
    uint8_t *at = c->out + c->out_bytes;
    size_t head_bytes, body_bytes;

    (void)source;
    if (!st)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE; /* it has left, and its bytes with it */
    pst_assert(st->head_at <= st->head_bytes);
    pst_assert(c->out_bytes <= OUT_BYTES);
    head_bytes = pst_min(bytes, st->head_bytes - st->head_at);
    body_bytes = bytes - head_bytes;
    pst_assert(frame->data.padlen == 0);
    pst_assert(body_bytes <= st->body_left);
    if (FRAME_HEAD_BYTES + bytes > OUT_BYTES - c->out_bytes)
        return NGHTTP2_ERR_WOULDBLOCK;
    memcpy(at, frame_head, FRAME_HEAD_BYTES);
    memcpy(at + FRAME_HEAD_BYTES, st->head + st->head_at, head_bytes);
    st->head_at += (uint32_t)head_bytes;
    if (body_bytes) {
        memcpy(at + FRAME_HEAD_BYTES + head_bytes, st->body, body_bytes);
        st->body += body_bytes;
    }
    st->body_left -= body_bytes;
    pace_moved(&st->pace, bytes, st->door->awake_ns);
    c->out_bytes += FRAME_HEAD_BYTES + bytes;
    pst_assert(c->out_bytes <= OUT_BYTES);
    return 0;
}

static ssize_t on_frame_length(nghttp2_session *session, uint8_t type, int32_t id, int32_t connection_window,
                               int32_t stream_window, uint32_t frame_bytes_max, void *user)
{
    (void)session;
    (void)type;
    (void)id;
    connection_cast(user);
    return (ssize_t)pst_min(pst_min(frame_bytes_max, FRAME_BYTES_MAX),
                            (uint64_t)pst_min((uint64_t)connection_window, (uint64_t)stream_window));
}

/* A status that comes before the client has sent all: the rest is not wanted. */
static int on_frame_sent(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    connection_cast(user);
    if (frame->hd.type != NGHTTP2_HEADERS || !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        return 0;
    if (nghttp2_session_get_stream_remote_close(session, frame->hd.stream_id) == 0)
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_NO_ERROR);
    return 0;
}

int connection_callbacks(struct pst_door *door)
{
    if (nghttp2_session_callbacks_new(&door->callbacks) != 0 || nghttp2_option_new(&door->option) != 0)
        return -ENOMEM;
    nghttp2_option_set_no_auto_window_update(door->option, 1);
    nghttp2_option_set_no_closed_streams(door->option, 1);
    nghttp2_session_callbacks_set_on_begin_headers_callback(door->callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(door->callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(door->callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(door->callbacks, on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(door->callbacks, on_stream_close);
    nghttp2_session_callbacks_set_send_callback(door->callbacks, on_send);
    nghttp2_session_callbacks_set_send_data_callback(door->callbacks, on_send_data);
    nghttp2_session_callbacks_set_data_source_read_length_callback(door->callbacks, on_frame_length);
    nghttp2_session_callbacks_set_on_frame_send_callback(door->callbacks, on_frame_sent);
    return 0;
}

/* ---- life ---- */

static int begin_session(struct connection *c)
{
    static const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, CONNECTION_STREAMS_MAX},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW_BYTES},
        {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, FRAME_BYTES_IN_MAX},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HEADER_BYTES_MAX},
    };

    pst_assert(!c->session);
    pst_assert(c->door->callbacks);
    if (nghttp2_session_server_new2(&c->session, c->door->callbacks, c, c->door->option) != 0 ||
        nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, settings, pst_count_of(settings)) != 0 ||
        nghttp2_session_set_local_window_size(c->session, NGHTTP2_FLAG_NONE, 0, CONNECTION_WINDOW_BYTES) != 0)
        return -ENOMEM;
    return 0;
}

int connection_open(struct pst_door *door, int fd)
{
    struct connection *c = malloc(sizeof(*c));
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    int one = 1, r;

    if (!c) {
        close(fd);
        door_hold(door);
        return -ENOMEM;
    }
    memset(c, 0, offsetof(struct connection, out));
    c->magic = CONNECTION_MAGIC;
    c->door = door;
    c->fd = fd;
    c->quiet_ns = door->awake_ns;
    pst_list_init(&c->streams);
    pst_list_init(&c->dirty_link);
    pst_list_push_back(&door->connections, &c->link);
    door->connection_count++;
    pst_assert(door->connection_count <= door->connections_max);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    r = begin_session(c);
    if (r == 0)
        r = epoll_ctl(door->poll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
    if (r < 0)
        connection_close(c);
    else
        door_dirty(c);
    return r;
}

void connection_close(struct connection *c)
{
    pst_assert(c->magic == CONNECTION_MAGIC);
    pst_list_each_safe (at, &c->streams)
        stream_closed(pst_list_entry(at, struct stream, link));
    pst_assert(pst_list_empty(&c->streams));
    pst_assert(c->stream_count == 0);
    pst_assert(c->door->connection_count > 0);
    nghttp2_session_del(c->session);
    pst_list_remove(&c->link);
    pst_list_remove(&c->dirty_link);
    c->door->connection_count--;
    close(c->fd);
    door_hold(c->door);
    c->magic = 0;
    free(c);
}

static void watch_room(struct connection *c, bool writing)
{
    struct epoll_event event = {.events = EPOLLIN | (writing ? EPOLLOUT : 0u), .data.ptr = c};

    pst_assert(c->fd >= 0);
    if (c->writing == writing)
        return;
    c->writing = writing;
    pace_begin(&c->pace, c->door->awake_ns);
    pst_assert(epoll_ctl(c->door->poll_fd, EPOLL_CTL_MOD, c->fd, &event) == 0);
}

/* Return: 1 all has been sent, 0 the socket is full, -errno. */
static int send_out(struct connection *c)
{
    while (c->out_at < c->out_bytes) {
        ssize_t n = send(c->fd, c->out + c->out_at, c->out_bytes - c->out_at, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? 0 : -errno;
        c->out_at += (size_t)n;
        pst_assert(c->out_at <= c->out_bytes);
        pace_moved(&c->pace, (uint64_t)n, c->door->awake_ns);
    }
    c->out_at = c->out_bytes = 0;
    return 1;
}

void connection_flush(struct connection *c)
{
    int r = 1;

    pst_assert(c->magic == CONNECTION_MAGIC);
    pst_assert(c->out_at <= c->out_bytes);
    for (int i = 0; i < OUTPUTS_A_ROUND && r > 0; i++) {
        r = send_out(c);
        if (r <= 0)
            break;
        if (nghttp2_session_send(c->session) != 0)
            r = -EPROTO;
        else if (c->out_bytes == 0)
            break;
    }
    if (r > 0 && c->out_bytes)
        door_dirty(c); /* others first */
    if (r < 0 ||
        (!c->out_bytes && !nghttp2_session_want_read(c->session) && !nghttp2_session_want_write(c->session)))
        connection_close(c);
    else
        watch_room(c, r == 0);
}

/* Return: false the connection is to end. */
static bool receive(struct connection *c)
{
    for (int i = 0; i < INPUTS_A_ROUND; i++) {
        ssize_t n = recv(c->fd, c->door->input, DOOR_INPUT_BYTES, MSG_DONTWAIT);

        if (n < 0)
            return errno == EAGAIN || errno == EINTR;
        if (n == 0)
            return false;
        pst_assert(n <= DOOR_INPUT_BYTES);
        if (nghttp2_session_mem_recv(c->session, c->door->input, (size_t)n) < 0)
            return false;
        /* It asks for answers that it does not take. */
        if (nghttp2_session_get_outbound_queue_size(c->session) > OUT_FRAMES_MAX)
            return false;
        if (n < DOOR_INPUT_BYTES)
            break;
    }
    return true;
}

void connection_ready(struct connection *c, uint32_t events)
{
    connection_cast(c);
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR) && !receive(c)) {
        connection_close(c);
        return;
    }
    door_dirty(c);
}

void connection_called(struct connection *c)
{
    pst_assert(c->magic == CONNECTION_MAGIC);
    c->quiet_ns = c->door->awake_ns;
    pst_list_remove(&c->link);
    pst_list_push_back(&c->door->connections, &c->link);
}

void connection_tick(struct connection *c, uint64_t now_ns)
{
    const struct pst_door *door = c->door;
    bool lost = c->settled ? c->writing && pace_lost(&c->pace, door->awake_ns, door->patience_ns)
                           : door->awake_ns - c->quiet_ns > pst_ns_of_ms(SETTLE_MS);

    pst_assert(c->magic == CONNECTION_MAGIC);
    pst_assert(door->awake_ns >= c->quiet_ns);
    if (lost) {
        connection_close(c);
        return;
    }
    if (c->writing)
        door_dirty(c); /* epoll tells of room late: when a third of the socket's memory is free */
    pst_list_each_safe (at, &c->streams)
        stream_tick(pst_list_entry(at, struct stream, link), now_ns);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* peer.c: a connection for one call: nghttp2 says what is to be sent, and is told what comes. */
#include "gateway/umbp/peer_priv.h"

#include "base/clock.h"
#include "base/ms.h"
#include "gateway/grpc/wire_priv.h"
#include "net/address.h"

#include <nghttp2/nghttp2.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>

enum { PEER_INPUT_BYTES = 16 << 10, PEER_WINDOW_BYTES = 1 << 20 };

struct call {
    int fd;
    uint64_t deadline_ns;
    uint8_t head[PROTO_FRAME_BYTES];
    struct pst_bytes message;
    size_t at; /* of head and message, sent */
    size_t answer_bytes;
    bool ended;
    int status; /* gRPC's; -1: none came */
};

static ssize_t on_read(nghttp2_session *session, int32_t id, uint8_t *buf, size_t room, uint32_t *flags,
                       nghttp2_data_source *source, void *user)
{
    struct call *call = source->ptr;
    size_t all = sizeof(call->head) + call->message.len, count = 0;

    (void)session;
    (void)id;
    (void)user;
    pst_assert(call->at <= all);
    for (; count < room && call->at < sizeof(call->head); count++)
        buf[count] = call->head[call->at++];
    if (count < room && call->at < all) {
        size_t more = pst_min(room - count, all - call->at);

        memcpy(buf + count, (const uint8_t *)call->message.data + (call->at - sizeof(call->head)), more);
        call->at += more;
        count += more;
    }
    *flags |= call->at == all ? NGHTTP2_DATA_FLAG_EOF : 0u;
    return (ssize_t)count;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_bytes, const uint8_t *value, size_t value_bytes, uint8_t flags, void *user)
{
    struct call *call = user;
    struct pst_bytes text = {value, value_bytes};

    pst_assert(call->fd >= 0);
    (void)session;
    (void)frame;
    (void)flags;
    if (pst_bytes_equal((struct pst_bytes){name, name_bytes}, pst_bytes_of("grpc-status")))
        call->status = pst_bytes_equal(text, pst_bytes_of("0")) ? 0 : 1;
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data, size_t bytes,
                   void *user)
{
    struct call *call = user;

    pst_assert(call->fd >= 0);
    pst_assert(call->answer_bytes <= PEER_ANSWER_BYTES_MAX);
    (void)session;
    (void)flags;
    (void)id;
    (void)data;
    call->answer_bytes += bytes;
    return call->answer_bytes > PEER_ANSWER_BYTES_MAX ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t why, void *user)
{
    struct call *call = user;

    pst_assert(call->fd >= 0);
    (void)session;
    (void)id;
    (void)why;
    call->ended = true;
    return 0;
}

/* Until the socket is ready for @events. Return: 0, -ETIMEDOUT. */
static int wait_for(const struct call *call, short events)
{
    struct pollfd fd = {.fd = call->fd, .events = events};
    uint64_t left_ms = pst_ms_left(call->deadline_ns, pst_now_ns());
    int n = left_ms ? poll(&fd, 1, (int)pst_min(left_ms, INT32_MAX)) : 0;

    pst_assert(call->fd >= 0);
    return n > 0 || (n < 0 && errno == EINTR) ? 0 : -ETIMEDOUT;
}

/* All that the session has to say. Return: 0 or -errno. */
static int send_all(struct call *call, nghttp2_session *session)
{
    const uint8_t *data;
    ssize_t bytes;
    int r = 0;

    pst_assert(call->fd >= 0);
    while ((bytes = nghttp2_session_mem_send(session, &data)) > 0) {
        while (bytes > 0 && r == 0) {
            ssize_t n = send(call->fd, data, (size_t)bytes, MSG_NOSIGNAL | MSG_DONTWAIT);

            if (n < 0 && errno != EAGAIN && errno != EINTR)
                return -ECONNRESET;
            if (n < 0)
                r = wait_for(call, POLLOUT);
            data += pst_max(n, 0);
            bytes -= pst_max(n, 0);
        }
        if (r < 0)
            return r;
    }
    return bytes < 0 ? -EPROTO : 0;
}

static int converse(struct call *call, nghttp2_session *session)
{
    uint8_t input[PEER_INPUT_BYTES];
    int r = 0;

    pst_assert(!call->ended);
    while (r == 0 && !call->ended) {
        ssize_t n;

        r = send_all(call, session);
        if (r == 0)
            r = wait_for(call, POLLIN);
        n = r == 0 ? recv(call->fd, input, sizeof(input), MSG_DONTWAIT) : 0;
        if (r < 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
            continue;
        if (n <= 0)
            return -ECONNRESET;
        if (nghttp2_session_mem_recv(session, input, (size_t)n) < 0)
            return -EPROTO;
    }
    return r < 0 ? r : call->status < 0 ? -EPROTO : call->status > 0 ? -EREMOTEIO : 0;
}

static nghttp2_nv header(const char *name, const char *value)
{
    return (nghttp2_nv){(uint8_t *)name, (uint8_t *)value, strlen(name), strlen(value), 0};
}

static int ask(struct call *call, nghttp2_session *session, const char *address, const char *path)
{
    static const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0}, {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, PEER_WINDOW_BYTES}};
    const nghttp2_data_provider provider = {.source.ptr = call, .read_callback = on_read};
    const nghttp2_nv nv[] = {header(":method", "POST"), header(":scheme", "http"),
                             header(":path", path),     header(":authority", address),
                             header("te", "trailers"),  header("content-type", "application/grpc")};

    pst_assert(call->at == 0);
    pst_assert(strlen(path) > 0);
    if (nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, settings, pst_count_of(settings)) != 0 ||
        nghttp2_submit_request(session, NULL, nv, pst_count_of(nv), &provider, NULL) < 0)
        return -ENOMEM;
    return converse(call, session);
}

static int with_session(struct call *call, const char *address, const char *path)
{
    pst_assert(call->status < 0);
    nghttp2_session_callbacks *callbacks = NULL;
    nghttp2_session *session = NULL;
    int r = -ENOMEM;

    if (nghttp2_session_callbacks_new(&callbacks) != 0)
        return r;
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    if (nghttp2_session_client_new(&session, callbacks, call) == 0)
        r = ask(call, session, address, path);
    nghttp2_session_del(session);
    nghttp2_session_callbacks_del(callbacks);
    return r;
}

int peer_call(const char *address, const char *method, struct pst_bytes message, uint64_t deadline_ns)
{
    struct call call = {.deadline_ns = deadline_ns, .message = message, .status = -1};
    struct pst_boot_address parsed;
    const char *why = "";
    char path[64];
    int r = pst_boot_address_parse(address, &parsed, &why);

    pst_assert(strlen(method) < 32);
    pst_assert(message.len <= UINT32_MAX);
    if (r == 0 && parsed.path[0])
        r = -EINVAL;
    if (r < 0)
        return r;
    call.fd = pst_boot_connect(&parsed, deadline_ns, &why);
    if (call.fd < 0)
        return call.fd;
    proto_frame_head(call.head, (uint32_t)message.len);
    snprintf(path, sizeof(path), "/umbp.UMBPPeer/%s", method);
    r = with_session(&call, address, path);
    close(call.fd);
    return r;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/web_rig.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <strings.h>
#include <sys/socket.h>

enum { PATIENCE_MS = 10000 };

static int patience_ms(void)
{
    return PATIENCE_MS * (int)slowness();
}

/* ---- the owner ---- */

static void rig_answer(void *ctx, const struct pst_web_request *request, struct pst_web_answer *answer)
{
    struct web_rig *rig = ctx;
    size_t cap = request->path.len + request->query.len + request->body.len + 256;

    rig->answers++;
    if (request->path.len == 5 && memcmp(request->path.data, "/hold", 5) == 0) {
        rig->held++;
        while (rig->hold)
            usleep(1000);
    }
    if (request->path.len == 6 && memcmp(request->path.data, "/wrong", 6) == 0)
        answer->status = 42;
    if (request->path.len == 4 && memcmp(request->path.data, "/big", 4) == 0) {
        answer->text = calloc(1, 64 << 20);
        answer->text_bytes = 64 << 20;
        return;
    }
    answer->text = malloc(cap);
    snprintf(answer->text, cap, "%s|%.*s|%.*s|%s|%s|%.*s", request->method, (int)request->path.len,
             (const char *)request->path.data, (int)request->query.len, (const char *)request->query.data,
             request->content_type, request->peer, (int)request->body.len, (const char *)request->body.data);
}

static int rig_socket_open(void *ctx, struct pst_web_socket *socket, struct pst_bytes path,
                           struct pst_bytes query)
{
    struct web_rig *rig = ctx;

    (void)query;
    if (path.len == 8 && memcmp(path.data, "/ws/deny", 8) == 0)
        return -EACCES;
    rig->opens++;
    rig->last = socket;
    pst_web_socket_keep(socket, rig);
    return 0;
}

static void rig_socket_message(void *ctx, struct pst_web_socket *socket, struct pst_bytes text)
{
    char *echo = malloc(text.len + 1);
    struct web_rig *rig = ctx;

    assert_ptr_equal(pst_web_socket_kept(socket), rig);
    memcpy(echo, text.data, text.len);
    echo[text.len] = 0;
    rig->messages++;
    (void)pst_web_socket_send(socket, echo);
    if (strcmp(echo, "bye") == 0)
        pst_web_socket_end(socket);
    free(echo);
}

static void rig_socket_close(void *ctx, struct pst_web_socket *socket)
{
    struct web_rig *rig = ctx;

    if (rig->last == socket)
        rig->last = NULL;
    rig->closes++;
}

static void rig_log(void *ctx, const char *line)
{
    ((struct web_rig *)ctx)->lines++;
    assert_null(strchr(line, '\n'));
    if (getenv("WEB_RIG_LOG"))
        fprintf(stderr, "%s\n", line);
}

void web_rig_open(struct web_rig *rig)
{
    static const struct pst_web_ops ops = {.answer = rig_answer,
                                           .socket_open = rig_socket_open,
                                           .socket_message = rig_socket_message,
                                           .socket_close = rig_socket_close,
                                           .log = rig_log};
    const char *fault = "";

    if (!rig->settings.listen)
        rig->settings.listen = "127.0.0.1:0";
    if (!rig->settings.stall_ms)
        rig->settings.stall_ms = 500 * slowness();
    if (pst_web_open(&rig->settings, &ops, rig, &rig->web, &fault) < 0)
        fail_msg("%s", fault);
    assert_true(pst_web_port(rig->web) > 0);
}

void web_rig_close(struct web_rig *rig)
{
    rig->hold = false;
    assert_null(pst_web_close(rig->web));
    assert_int_equal(rig->opens, rig->closes);
}

int web_listen(uint16_t *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(bind(fd, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(fd, 64), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
    *port = ntohs(address.sin_port);
    return fd;
}

void web_wait_empty(struct web_rig *rig)
{
    for (int i = 0; i < patience_ms() && pst_web_connections(rig->web) > 0; i++)
        usleep(1000);
    assert_int_equal(pst_web_connections(rig->web), 0);
}

void web_wait_count(_Atomic uint32_t *count, uint32_t least)
{
    for (int i = 0; i < patience_ms() && *count < least; i++)
        usleep(1000);
    assert_true(*count >= least);
}

/* ---- clients ---- */

int web_connect(struct web_rig *rig)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons(pst_web_port(rig->web))};
    struct timeval limit = {.tv_sec = patience_ms() / 1000};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    return fd;
}

void web_send(int fd, const void *data, size_t bytes)
{
    const char *at = data;

    while (bytes > 0) {
        ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL);

        if (n < 0)
            return; /* the server has had enough; what it said is read next */
        at += n;
        bytes -= (size_t)n;
    }
}

void web_say(int fd, const char *text)
{
    web_send(fd, text, strlen(text));
}

size_t web_read_all(int fd, char *buf, size_t cap)
{
    size_t bytes = 0;
    ssize_t n;

    while (bytes < cap - 1 && (n = recv(fd, buf + bytes, cap - 1 - bytes, 0)) > 0)
        bytes += (size_t)n;
    buf[bytes] = 0;
    return bytes;
}

/* Exactly so many. Return: false the stream ended. */
static bool read_exactly(int fd, void *buf, size_t bytes)
{
    size_t at = 0;

    while (at < bytes) {
        ssize_t n = recv(fd, (char *)buf + at, bytes - at, 0);

        if (n <= 0)
            return false;
        at += (size_t)n;
    }
    return true;
}

int web_read_answer(int fd, char *buf, size_t cap)
{
    size_t bytes = 0, length = 0;
    const char *field;
    int status = 0;

    while (bytes < 4 || memcmp(buf + bytes - 4, "\r\n\r\n", 4) != 0) {
        assert_true(bytes < cap - 1);
        if (!read_exactly(fd, buf + bytes, 1))
            return 0;
        bytes++;
    }
    buf[bytes] = 0;
    assert_int_equal(sscanf(buf, "HTTP/1.1 %d ", &status), 1);
    field = strcasestr(buf, "\r\nContent-Length: ");
    if (field)
        length = strtoul(field + 18, NULL, 10);
    assert_true(bytes + length < cap);
    if (!read_exactly(fd, buf + bytes, length))
        return 0;
    buf[bytes + length] = 0;
    return status;
}

int web_ask(struct web_rig *rig, const char *request, char *buf, size_t cap)
{
    int fd = web_connect(rig), status;

    web_say(fd, request);
    status = web_read_answer(fd, buf, cap);
    close(fd);
    return status;
}

bool web_ends(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char buf[65536];

    for (;;) {
        ssize_t n;

        if (poll(&p, 1, patience_ms()) <= 0)
            return false;
        n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);
        if (n <= 0)
            return true;
    }
}

/* ---- WebSockets ---- */

int web_upgrade_on(int fd, const char *target, const char *more)
{
    char request[2048], answer[4096];
    int status;

    snprintf(request, sizeof(request),
             "GET %s HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
             "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n%s\r\n",
             target, more);
    web_say(fd, request);
    status = web_read_answer(fd, answer, sizeof(answer));
    if (status == 101) /* the example of RFC 6455 */
        assert_non_null(strstr(answer, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    return status;
}

int web_upgrade(struct web_rig *rig, const char *target, const char *more, int *status)
{
    int fd = web_connect(rig);

    *status = web_upgrade_on(fd, target, more);
    return fd;
}

void web_frame(int fd, uint8_t head, const void *data, size_t bytes)
{
    static const uint8_t mask[4] = {0x37, 0xfa, 0x21, 0x3d};
    uint8_t *frame = malloc(bytes + 14), *at = frame;
    const uint8_t *from = data;

    *at++ = head;
    if (bytes < 126) {
        *at++ = 0x80 | (uint8_t)bytes;
    } else if (bytes < 65536) {
        *at++ = 0x80 | 126;
        *at++ = (uint8_t)(bytes >> 8);
        *at++ = (uint8_t)bytes;
    } else {
        *at++ = 0x80 | 127;
        for (int shift = 56; shift >= 0; shift -= 8)
            *at++ = (uint8_t)((uint64_t)bytes >> shift);
    }
    memcpy(at, mask, 4);
    at += 4;
    for (size_t i = 0; i < bytes; i++)
        *at++ = from[i] ^ mask[i % 4];
    web_send(fd, frame, (size_t)(at - frame));
    free(frame);
}

int web_frame_read(int fd, void *buf, size_t cap, size_t *bytes)
{
    uint8_t head[2], more[8];
    uint64_t length;

    if (!read_exactly(fd, head, 2))
        return -1;
    assert_int_equal(head[1] & 0x80, 0); /* a server masks nothing */
    length = head[1];
    if (length >= 126) {
        size_t wide = length == 126 ? 2 : 8;

        if (!read_exactly(fd, more, wide))
            return -1;
        length = 0;
        for (size_t i = 0; i < wide; i++)
            length = length << 8 | more[i];
    }
    assert_true(length <= cap);
    if (!read_exactly(fd, buf, length))
        return -1;
    *bytes = length;
    return head[0];
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * front.c: connections between a client and the daemon. Both greet as they do; the client's module is held
 * back until its paths have come, since they decide which module it will be:
 *
 *     client                front                     daemon
 *            <- greeting            <- greeting
 *     greeting ->                   greeting ->
 *     "data" ->
 *                    <- "@RSYNCD: OK"
 *     arguments ->                  module ->
 *                                           <- "@RSYNCD: OK"
 *                                   arguments ->
 *            <->            all that follows          <->
 */
#include "files/rsync/front.h"

#include "base/clock.h"
#include "base/ms.h"
#include "net/acceptor.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

enum {
    LINE_BYTES = 1024,
    ARGS_BYTES = 64 << 10,
    FLOW_BYTES = 256 << 10, /* of each direction */
    HEAD_MS = 30000,        /* until both sides have said what they want */
    IDLE_MS = 600000,       /* as the daemon's own timeout */
    OLDEST = 30,            /* rsync 3.0: arguments end with NUL */
};

struct pst_rsync_front {
    int fd, stop_fd;
    struct sockaddr_in daemon;
    const struct pst_rsync_front_ops *ops;
    void *ctx;
    struct pst_acceptor *acceptor;
};

struct side {
    struct pst_rsync_front *front;
    int client, daemon;
    uint64_t until_ns;
};

/* ---- bytes ---- */

static int side_await(const struct side *side, int fd, short events)
{
    struct pollfd ready[] = {{.fd = side->front->stop_fd, .events = POLLIN}, {.fd = fd, .events = events}};
    uint64_t now_ns = pst_now_ns();
    int n = now_ns < side->until_ns ? poll(ready, 2, (int)((side->until_ns - now_ns) / 1000000) + 1) : 0;

    if (n < 0)
        return errno == EINTR ? 0 : -errno;
    return n == 0 ? -ETIMEDOUT : ready[0].revents ? -ECANCELED : 0;
}

static int side_send(const struct side *side, int fd, const void *data, size_t bytes)
{
    size_t done = 0;

    while (done < bytes) {
        ssize_t n = send(fd, (const char *)data + done, bytes - done, MSG_DONTWAIT | MSG_NOSIGNAL);
        int r = n >= 0 ? 0 : errno == EAGAIN ? side_await(side, fd, POLLOUT) : -errno;

        if (r < 0)
            return r;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* One byte at a time: what follows the head is nobody's but rsync's. */
static int side_byte(const struct side *side, int fd, char *byte)
{
    for (;;) {
        ssize_t n = recv(fd, byte, 1, MSG_DONTWAIT);
        int r = n == 1 ? 0 : n == 0 ? -ECONNRESET : errno == EAGAIN ? side_await(side, fd, POLLIN) : -errno;

        if (n == 1 || r < 0)
            return r;
    }
}

/* A line with its end. */
static int side_line(const struct side *side, int fd, char line[LINE_BYTES])
{
    size_t bytes = 0;
    int r = 0;

    do {
        r = bytes + 1 < LINE_BYTES ? side_byte(side, fd, &line[bytes]) : -E2BIG;
        bytes++;
    } while (r == 0 && line[bytes - 1] != '\n');
    if (r == 0)
        line[bytes] = 0;
    pst_assert(r < 0 || bytes < LINE_BYTES);
    return r;
}

static int side_pass_line(const struct side *side, int from, int to, char line[LINE_BYTES])
{
    int r = side_line(side, from, line);

    return r < 0 ? r : side_send(side, to, line, strlen(line));
}

/* ---- the head ---- */

/* Reads arguments up to an empty one behind @bytes. Return: all bytes, or -errno. */
static int args_read(const struct side *side, char *args, size_t bytes)
{
    size_t begin = bytes;

    pst_assert(begin <= ARGS_BYTES);
    for (;;) {
        int r = bytes < ARGS_BYTES ? side_byte(side, side->client, &args[bytes]) : -E2BIG;

        if (r < 0)
            return r;
        bytes++;
        if (!args[bytes - 1] && (bytes - begin == 1 || !args[bytes - 2]))
            return (int)bytes;
    }
}

/* An rsync that hides its arguments from other users sends the paths in a second lot. */
static int args_map(const struct side *side, char *args, char *mapped, char module[64])
{
    const struct pst_rsync_front *front = side->front;
    int bytes = 0, r = 0;

    for (int lot = 0; r == 0 && lot < 2; lot++) {
        bytes = args_read(side, args, (size_t)bytes);
        if (bytes < 0)
            return bytes;
        r = pst_rsync_front_map(args, (size_t)bytes, front->ops, front->ctx, mapped, ARGS_BYTES, module);
    }
    return r == 0 ? -EINVAL : r;
}

static int head_data(const struct side *side)
{
    static const char ok[] = "@RSYNCD: OK\n";
    pst_cleanup_free char *args = malloc(ARGS_BYTES);
    pst_cleanup_free char *mapped = malloc(ARGS_BYTES);
    char module[64], line[LINE_BYTES];
    int bytes, r = args && mapped ? side_send(side, side->client, ok, strlen(ok)) : -ENOMEM;

    if (r < 0)
        return r;
    bytes = args_map(side, args, mapped, module);
    if (bytes < 0)
        return bytes;
    pst_assert(bytes <= ARGS_BYTES);
    pst_assert(bytes > 0);
    snprintf(line, sizeof(line), "%s\n", module);
    r = side_send(side, side->daemon, line, strlen(line));
    if (r == 0)
        r = side_line(side, side->daemon, line);
    if (r == 0 && strcmp(line, ok) != 0)
        r = -EPROTO;
    return r < 0 ? r : side_send(side, side->daemon, mapped, (size_t)bytes);
}

static int head_pass(const struct side *side)
{
    char greeting[LINE_BYTES], line[LINE_BYTES];
    unsigned version = 0;
    int r = side_pass_line(side, side->daemon, side->client, line);

    if (r == 0)
        r = side_pass_line(side, side->client, side->daemon, greeting);
    if (r == 0)
        r = side_line(side, side->client, line);
    if (r < 0)
        return r;
    if (sscanf(greeting, "@RSYNCD: %u.", &version) == 1 && version >= OLDEST && strcmp(line, "data\n") == 0)
        return head_data(side);
    return side_send(side, side->daemon, line, strlen(line));
}

/* ---- all that follows ---- */

/* One direction. What waits for room on its way does not hold up the other one: the daemon takes nothing
 * while it has something to send. */
struct flow {
    int from, to;
    bool over;         /* the end has come */
    size_t begin, end; /* of what the buffer has */
    char buffer[FLOW_BYTES];
};

static bool flow_is_empty(const struct flow *flow)
{
    pst_assert(flow->begin <= flow->end && flow->end <= FLOW_BYTES);
    return flow->begin == flow->end;
}

/* What the flow waits for at @fd. */
static short flow_awaits(const struct flow *flow, int fd)
{
    if (fd == flow->from)
        return flow_is_empty(flow) && !flow->over ? POLLIN : 0;
    return flow_is_empty(flow) ? 0 : POLLOUT;
}

/* Moves what there is as far as there is room. Return: 0 or -errno. */
static int flow_move(struct flow *flow)
{
    ssize_t n;

    pst_assert(flow->from >= 0 && flow->to >= 0);
    pst_assert(flow->from != flow->to);
    if (flow_is_empty(flow) && !flow->over) {
        n = recv(flow->from, flow->buffer, FLOW_BYTES, MSG_DONTWAIT);
        if (n < 0)
            return errno == EAGAIN ? 0 : -errno;
        flow->over = n == 0;
        flow->begin = 0;
        flow->end = (size_t)n;
        if (n == 0)
            shutdown(flow->to, SHUT_WR);
    }
    if (!flow_is_empty(flow)) {
        n = send(flow->to, flow->buffer + flow->begin, flow->end - flow->begin, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0)
            return errno == EAGAIN ? 0 : -errno;
        flow->begin += (size_t)n;
    }
    return 0;
}

static void flow_pass(const struct side *side, struct flow flows[2])
{
    const int fds[] = {side->client, side->daemon};
    struct pollfd ready[] = {{.fd = side->front->stop_fd, .events = POLLIN}, {.fd = -1}, {.fd = -1}};
    struct flow *up = &flows[0], *down = &flows[1];
    int r = 0;

    up->from = down->to = side->client;
    up->to = down->from = side->daemon;
    while (r == 0 && !down->over) {
        for (int i = 0; i < 2; i++) {
            ready[1 + i].events = (short)(flow_awaits(up, fds[i]) | flow_awaits(down, fds[i]));
            ready[1 + i].fd = ready[1 + i].events ? fds[i] : -1; /* its end is nothing to wait for */
        }
        if (poll(ready, pst_count_of(ready), IDLE_MS) <= 0 || ready[0].revents)
            return;
        r = flow_move(up);
        if (r == 0)
            r = flow_move(down);
    }
}

/* ---- connections ---- */

static int daemon_connect(struct pst_rsync_front *front)
{
    struct sockaddr_in at = front->daemon;
    int port = front->ops->daemon(front->ctx), fd;

    if (port < 0)
        return port;
    pst_assert(port > 0 && port <= UINT16_MAX);
    at.sin_port = htons((uint16_t)port);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&at, sizeof(at)) == 0)
        return fd;
    port = -errno;
    if (fd >= 0)
        close(fd);
    return port;
}

static void serve_client(void *ctx, int fd, uint32_t listener)
{
    static const char full[] = "@ERROR: the agent's rsync does not answer\n";
    pst_cleanup_free struct flow *flows = calloc(2, sizeof(*flows));
    struct side side = {.front = ctx, .client = fd, .until_ns = pst_deadline_ns(pst_now_ns(), HEAD_MS)};

    pst_assert(fd >= 0);
    (void)listener;
    side.daemon = daemon_connect(side.front);
    if (side.daemon < 0 || !flows)
        send(side.client, full, strlen(full), MSG_DONTWAIT | MSG_NOSIGNAL);
    else if (head_pass(&side) == 0)
        flow_pass(&side, flows);
    pst_close_fd(&side.daemon);
}

/* ---- beginning and end ---- */

int pst_rsync_front_open(int fd, const char *daemon_host, const struct pst_rsync_front_ops *ops, void *ctx,
                         struct pst_rsync_front **out)
{
    static const struct pst_acceptor_ops acceptor_ops = {.serve = serve_client};
    const struct pst_acceptor_listener listener = {.fd = fd, .connections_max = PST_RSYNC_FRONT_MAX};
    struct pst_rsync_front *front = calloc(1, sizeof(*front));
    int r = -ENOMEM;

    pst_assert(fd >= 0);
    pst_assert(ops && out);
    if (!front) {
        close(fd);
        return r;
    }
    *front = (struct pst_rsync_front){.fd = fd, .ops = ops, .ctx = ctx, .daemon.sin_family = AF_INET};
    front->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (inet_pton(AF_INET, daemon_host, &front->daemon.sin_addr) != 1)
        r = -EINVAL;
    else
        r = front->stop_fd < 0 ? -errno
                               : pst_acceptor_open(&listener, 1, &acceptor_ops, front, &front->acceptor);
    if (r < 0) {
        pst_rsync_front_close(front);
        return r;
    }
    *out = front;
    return 0;
}

struct pst_rsync_front *pst_rsync_front_close(struct pst_rsync_front *front)
{
    if (!front)
        return NULL;
    if (front->acceptor)
        pst_event_set(front->stop_fd); /* those who wait for the daemon, too */
    front->acceptor = pst_acceptor_close(front->acceptor);
    close(front->fd);
    pst_close_fd(&front->stop_fd);
    free(front);
    return NULL;
}

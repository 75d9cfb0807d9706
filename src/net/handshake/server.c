/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server.c: the server's sockets, its limits and its clock. One thread, one epoll; every connection is
 * bounded in bytes and in time, and none waits for another. Connections end in one place, at the end of a
 * poll.
 */
#include "net/handshake/server_priv.h"

#include "base/ms.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum {
    EVENTS_MAX = 64,
    ACCEPTS_MAX = 64, /* a listener and poll */
    PAUSE_MS = 200,   /* rest of the listeners when descriptors have run out */
    EVICT_MS = 1000,  /* a handshake this old makes room for a new one */
    POLL_MS_MAX = 10000,
};

void boot_server_refused(struct boot_conn *conn, enum pst_boot_refusal kind, const char *why)
{
    struct pst_boot_server *server = conn->server;

    pst_assert(!conn->welcomed);
    pst_assert(why);
    pst_assert(server->magic == BOOT_SERVER_MAGIC);
    if (server->ops->refused)
        server->ops->refused(server->ctx, conn->peer, kind, why);
}

void boot_server_proved(struct boot_conn *conn)
{
    struct pst_boot_server *server = conn->server;

    pst_assert(conn->welcomed);
    pst_assert(server->handshake_count > 0);
    server->handshake_count--;
    server->session_count++;
    conn->heard_ns = server->now_ns;
    pst_list_remove(&conn->link);
    pst_list_push_back(&server->sessions, &conn->link);
}

struct boot_conn *boot_server_session(struct pst_boot_server *server, uint64_t token)
{
    pst_assert(server->magic == BOOT_SERVER_MAGIC);
    pst_list_each (it, &server->sessions) {
        struct boot_conn *conn = pst_list_entry(it, struct boot_conn, link);

        if (conn->token == token && conn->step == BOOT_STEP_PING && !conn->ending && !conn->parted)
            return conn;
    }
    return NULL;
}

struct stream_channel *boot_server_detach(struct boot_conn *conn)
{
    struct stream_channel *channel = conn->channel;

    pst_assert(!conn->welcomed);
    pst_assert(conn->started);
    pst_assert(channel);
    (void)epoll_ctl(conn->server->epoll_fd, EPOLL_CTL_DEL, conn->fd, NULL);
    conn->fd = -1;
    conn->channel = NULL;
    return channel;
}

/* Off the lists, told to the node; freed by free_ended(), since this poll's events may still name it. */
static void conn_end(struct boot_conn *conn, const char *why)
{
    struct pst_boot_server *server = conn->server;

    pst_assert(conn->magic == BOOT_CONN_MAGIC);
    if (conn->fd >= 0) { /* else it was detached */
        /* Closing would do, but for a child that was forked meanwhile: through its copy of the descriptor the
         * connection would go on, and epoll with it. */
        (void)epoll_ctl(server->epoll_fd, EPOLL_CTL_DEL, conn->fd, NULL);
        shutdown(conn->fd, SHUT_RDWR);
        if (conn->channel)
            conn->channel = stream_channel_close(conn->channel);
        else
            close(conn->fd);
        conn->fd = -1;
    }
    pst_list_remove(&conn->link);
    pst_list_push_back(&server->dead, &conn->link);
    pst_assert(why);
    pst_assert((conn->welcomed ? server->session_count : server->handshake_count) > 0);
    if (conn->welcomed) {
        server->session_count--;
        server->ops->ended(server->ctx, conn->session, why);
    } else {
        server->handshake_count--;
    }
    if (server->paused_until_ns > 0)
        server->paused_until_ns = 1; /* a descriptor is free again */
}

static void free_ended(struct pst_boot_server *server)
{
    pst_list_each_safe (it, &server->dead) {
        struct boot_conn *conn = pst_list_entry(it, struct boot_conn, link);

        pst_assert(conn->magic == BOOT_CONN_MAGIC);
        pst_assert(conn->fd < 0);
        pst_list_remove(&conn->link);
        free(conn->out_big);
        boot_secret_free(conn->key);
        explicit_bzero(conn->binding, sizeof(conn->binding));
        conn->magic = 0;
        free(conn);
    }
}

static int epoll_set(struct pst_boot_server *server, int op, int fd, uint32_t events, void *what)
{
    struct epoll_event event = {.events = events, .data.ptr = what};

    pst_assert(what);
    pst_assert(fd >= 0);
    return epoll_ctl(server->epoll_fd, op, fd, &event) == 0 ? 0 : -errno;
}

static void conn_run(struct boot_conn *conn, uint32_t events)
{
    struct pst_boot_server *server = conn->server;
    bool polls_out;

    pst_assert(conn->magic == BOOT_CONN_MAGIC);
    pst_assert(conn->fd >= 0);
    if (events & EPOLLOUT)
        boot_session_flush(conn);
    if (!conn->ending && !conn->parted && (events & ~EPOLLOUT || !conn->started))
        boot_session_read(conn);
    if (conn->parted && events & (EPOLLHUP | EPOLLERR) && !conn->ending)
        conn->ending = "connection closed";
    if (conn->welcomed && !conn->ending && conn->heard_ns == server->now_ns) {
        pst_list_remove(&conn->link);
        pst_list_push_back(&server->sessions, &conn->link);
    }
    polls_out = conn->out_bytes > 0 || (conn->channel && stream_channel_wants(conn->channel) & EPOLLOUT);
    if (!conn->ending && (polls_out != conn->polls_out || conn->parted)) {
        /* One that has parted is readable for ever: what is left to come is the end of its last descriptor.
         */
        uint32_t wanted = conn->parted ? 0 : EPOLLIN | (polls_out ? EPOLLOUT : 0);

        if (epoll_set(server, EPOLL_CTL_MOD, conn->fd, wanted, conn) < 0)
            conn->ending = "out of memory";
        conn->polls_out = polls_out;
    }
    if (conn->ending)
        conn_end(conn, conn->ending);
}

static void peer_print(struct boot_conn *conn, const struct pst_boot_address *listening)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } sa = {.any = {.sa_family = AF_UNSPEC}};
    struct pst_boot_address address = {.port = 0};
    socklen_t bytes = sizeof(sa);
    struct ucred cred;

    pst_assert(listening);
    pst_assert(sizeof(conn->peer) > INET6_ADDRSTRLEN + 8);
    if (conn->unix_socket) {
        bytes = sizeof(cred);
        if (getsockopt(conn->fd, SOL_SOCKET, SO_PEERCRED, &cred, &bytes) != 0)
            cred = (struct ucred){.pid = 0};
        snprintf(conn->peer, sizeof(conn->peer), "%.90s pid %d uid %u", listening->path, (int)cred.pid,
                 cred.uid);
        return;
    }
    if (getpeername(conn->fd, &sa.any, &bytes) != 0)
        sa.any.sa_family = AF_UNSPEC;
    address.port = ntohs(sa.any.sa_family == AF_INET6 ? sa.v6.sin6_port : sa.v4.sin_port);
    if (sa.any.sa_family == AF_INET6)
        inet_ntop(AF_INET6, &sa.v6.sin6_addr, address.host, sizeof(address.host));
    else
        inet_ntop(AF_INET, &sa.v4.sin_addr, address.host, sizeof(address.host));
    pst_boot_address_print(&address, conn->peer, sizeof(conn->peer));
    conn->loopback = pst_boot_address_loopback(&address);
}

/* Room for one more handshake: the oldest one goes when it has had its time. */
static bool handshake_room(struct pst_boot_server *server)
{
    struct boot_conn *oldest;

    pst_assert(server->handshake_count <= server->options.handshakes_max);
    if (server->handshake_count < server->options.handshakes_max)
        return true;
    pst_assert(!pst_list_empty(&server->handshakes));
    oldest = pst_list_first(&server->handshakes, struct boot_conn, link);
    if (server->now_ns < pst_deadline_ns(oldest->heard_ns, EVICT_MS))
        return false;
    boot_server_refused(oldest, PST_BOOT_REFUSED_OTHER, "too slow a handshake");
    conn_end(oldest, "too slow a handshake");
    return true;
}

/* A host that is gone or cut off ends its sessions within ten seconds, whatever its clients did last. */
static void watch_host(int fd)
{
    static const struct {
        int level, name, value;
    } options[] = {{IPPROTO_TCP, TCP_NODELAY, 1},  {SOL_SOCKET, SO_KEEPALIVE, 1},
                   {IPPROTO_TCP, TCP_KEEPIDLE, 3}, {IPPROTO_TCP, TCP_KEEPINTVL, 1},
                   {IPPROTO_TCP, TCP_KEEPCNT, 7},  {IPPROTO_TCP, TCP_USER_TIMEOUT, BOOT_SILENCE_MS}};

    pst_assert(fd >= 0);
    for (size_t i = 0; i < pst_count_of(options); i++)
        setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof(options[i].value));
}

static void conn_open(struct pst_boot_server *server, const struct boot_listener *listener, int fd)
{
    struct boot_conn *conn = calloc(1, sizeof(*conn));
    bool room = handshake_room(server);

    pst_assert(fd >= 0);
    pst_assert(listener->magic == BOOT_LISTENER_MAGIC);
    if (!conn) {
        close(fd);
        return;
    }
    conn->magic = BOOT_CONN_MAGIC;
    conn->fd = fd;
    conn->server = server;
    conn->heard_ns = server->now_ns;
    conn->version = PST_BOOT_VERSION; /* until its hello says what both speak */
    conn->unix_socket = listener->address.path[0] != 0;
    peer_print(conn, &listener->address);
    if (!conn->unix_socket)
        watch_host(fd);
    server->handshake_count++;
    pst_assert(server->handshake_count <= server->options.handshakes_max + 1);
    pst_list_push_back(&server->handshakes, &conn->link);
    if (!room) {
        /* What it has said is read first: closing over unread bytes would take the refusal back. */
        ssize_t n = recv(fd, conn->in, sizeof(conn->in), 0);

        (void)n;
        if (boot_secure_not(conn)) /* TLS has not begun: its clients hear this, too */
            boot_session_refuse(conn, BOOT_REFUSED_BUSY, "too many handshakes");
        conn_end(conn, "too many handshakes");
    } else if (epoll_set(server, EPOLL_CTL_ADD, fd, EPOLLIN, conn) < 0) {
        conn_end(conn, "out of memory");
    }
}

static void listeners_arm(struct pst_boot_server *server, bool armed)
{
    pst_assert(server->listener_count <= BOOT_LISTENERS_MAX);
    for (uint32_t i = 0; i < server->listener_count; i++)
        (void)epoll_set(server, EPOLL_CTL_MOD, server->listeners[i].fd, armed ? EPOLLIN : 0,
                        &server->listeners[i]);
}

static void listener_run(struct pst_boot_server *server, struct boot_listener *listener)
{
    pst_assert(listener->magic == BOOT_LISTENER_MAGIC);
    pst_assert(listener->fd >= 0);
    for (int i = 0; i < ACCEPTS_MAX; i++) {
        int fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd >= 0) {
            conn_open(server, listener, fd);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            /* The queue stays readable: without a rest this would spin. Clients wait in the queue meanwhile.
             */
            listeners_arm(server, false);
            server->paused_until_ns = pst_deadline_ns(server->now_ns, PAUSE_MS);
            return;
        }
        if (errno == EAGAIN)
            return;
        /* anything else concerns that one connection, which is gone */
    }
}

static void expire_handshakes(struct pst_boot_server *server)
{
    while (!pst_list_empty(&server->handshakes)) {
        struct boot_conn *conn = pst_list_first(&server->handshakes, struct boot_conn, link);

        pst_assert(!conn->welcomed);
        pst_assert(conn->step <= BOOT_STEP_PROOF);
        if (server->now_ns < pst_deadline_ns(conn->heard_ns, BOOT_HANDSHAKE_MS))
            break;
        boot_server_refused(conn, PST_BOOT_REFUSED_OTHER, "too slow a handshake");
        conn_end(conn, "too slow a handshake");
    }
}

/* A client that is connected may be silent as long as it likes: nothing runs in it between its calls, and the
 * kernel tells when its process or its host is gone. One that never said where it is only holds a place. */
static void expire_unconnected(struct pst_boot_server *server)
{
    pst_list_each_safe (it, &server->sessions) {
        struct boot_conn *conn = pst_list_entry(it, struct boot_conn, link);

        pst_assert(conn->welcomed);
        pst_assert(conn->step >= BOOT_STEP_ADDRESS);
        if (conn->step == BOOT_STEP_ADDRESS &&
            server->now_ns >= pst_deadline_ns(conn->heard_ns, BOOT_HANDSHAKE_MS))
            conn_end(conn, "gave no address");
    }
}

static int ms_until(uint64_t then_ns, uint64_t now_ns, int ms_max)
{
    pst_assert(ms_max >= 0);
    return (int)pst_min(pst_ms_left(then_ns, now_ns), (uint64_t)ms_max);
}

static int next_ms(struct pst_boot_server *server)
{
    uint64_t now_ns = server->now_ns;
    int ms = POLL_MS_MAX;

    pst_assert(pst_list_empty(&server->dead));
    if (!pst_list_empty(&server->handshakes))
        ms = ms_until(pst_deadline_ns(pst_list_first(&server->handshakes, struct boot_conn, link)->heard_ns,
                                      BOOT_HANDSHAKE_MS),
                      now_ns, ms);
    if (server->paused_until_ns > 0)
        ms = ms_until(server->paused_until_ns, now_ns, ms);
    return ms;
}

static void secrets_free(struct pst_boot_secret *secrets, uint32_t count)
{
    pst_assert(count <= PST_BOOT_SECRETS_MAX);
    for (uint32_t i = 0; secrets && i < count; i++)
        boot_secret_free(secrets[i].secret);
    free(secrets);
}

int pst_boot_server_secrets(struct pst_boot_server *server, const struct pst_boot_secret *secrets,
                            uint32_t count)
{
    struct pst_boot_secret *copies = calloc(count, sizeof(*copies));

    pst_assert(server->magic == BOOT_SERVER_MAGIC);
    pst_assert(count >= 1 && count <= PST_BOOT_SECRETS_MAX);
    for (uint32_t i = 0; copies && i < count; i++) {
        copies[i] = secrets[i];
        copies[i].secret.data = boot_secret_copy(secrets[i].secret);
        if (!copies[i].secret.data) {
            secrets_free(copies, i);
            return -ENOMEM;
        }
    }
    if (!copies)
        return -ENOMEM;
    secrets_free(server->secrets, server->secret_count);
    server->secrets = copies;
    server->secret_count = count;
    return 0;
}

int pst_boot_server_open(const struct pst_boot_server_options *options, const struct pst_boot_server_ops *ops,
                         void *ctx, struct pst_boot_server **out)
{
    const struct pst_boot_secret only = {.secret = options->secret};
    struct pst_boot_server *server;
    int r;

    pst_assert(options && ops && ops->welcome);
    pst_assert(ops->connected);
    pst_assert(ops->ended);
    pst_assert(out);
    pst_assert(options->sessions_max > 0);
    pst_assert(options->handshakes_max > 0);
    if (options->secret.len > PST_BOOT_SECRET_BYTES_MAX)
        return -EINVAL;
    server = calloc(1, sizeof(*server));
    if (!server)
        return -ENOMEM;
    server->magic = BOOT_SERVER_MAGIC;
    server->options = *options;
    server->ops = ops;
    server->ctx = ctx;
    pst_list_init(&server->handshakes);
    pst_list_init(&server->sessions);
    pst_list_init(&server->dead);
    boot_identity_own(&server->identity);
    server->options.secret = (struct pst_bytes){NULL, 0};
    server->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    r = server->epoll_fd < 0 ? -errno : pst_boot_server_secrets(server, &only, 1);
    if (r < 0) {
        pst_boot_server_close(server);
        return r;
    }
    pst_assert(server->session_count == 0);
    pst_assert(server->listener_count == 0);
    *out = server;
    return 0;
}

int pst_boot_server_listen(struct pst_boot_server *server, struct pst_boot_address *address)
{
    struct boot_listener *listener = &server->listeners[server->listener_count];
    uint64_t inode;
    int fd, r;

    pst_assert(server->listener_count <= BOOT_LISTENERS_MAX);
    pst_assert(server->magic == BOOT_SERVER_MAGIC);
    pst_assert(address);
    if (server->listener_count == BOOT_LISTENERS_MAX)
        return -ENOSPC;
    fd = boot_listen(address, &inode);
    if (fd < 0)
        return fd;
    *listener =
        (struct boot_listener){.magic = BOOT_LISTENER_MAGIC, .fd = fd, .address = *address, .inode = inode};
    r = epoll_set(server, EPOLL_CTL_ADD, fd, EPOLLIN, listener);
    if (r < 0)
        boot_unlisten(listener);
    else
        server->listener_count++;
    return r;
}

int pst_boot_server_fd(struct pst_boot_server *server)
{
    pst_assert(server->magic == BOOT_SERVER_MAGIC);
    return server->epoll_fd;
}

int pst_boot_server_poll(struct pst_boot_server *server, uint64_t now_ns)
{
    struct epoll_event events[EVENTS_MAX];
    int count;

    pst_assert(server->magic == BOOT_SERVER_MAGIC);
    server->now_ns = now_ns;
    if (server->paused_until_ns > 0 && now_ns >= server->paused_until_ns) {
        server->paused_until_ns = 0;
        listeners_arm(server, true);
    }
    count = epoll_wait(server->epoll_fd, events, EVENTS_MAX, 0);
    pst_assert(count <= EVENTS_MAX);
    for (int i = 0; i < count; i++) {
        uint32_t magic = *(const uint32_t *)events[i].data.ptr;

        if (magic == BOOT_LISTENER_MAGIC) {
            listener_run(server, events[i].data.ptr);
        } else {
            struct boot_conn *conn = boot_conn_cast(events[i].data.ptr);

            if (conn->fd >= 0) /* not ended by an earlier event of this poll */
                conn_run(conn, events[i].events);
        }
    }
    expire_handshakes(server);
    expire_unconnected(server);
    free_ended(server);
    return count == EVENTS_MAX ? 0 : next_ms(server);
}

static struct boot_conn *conn_of(struct pst_boot_server *server, const void *session)
{
    pst_assert(server->magic == BOOT_SERVER_MAGIC);
    pst_assert(session);
    pst_list_each (it, &server->sessions) {
        struct boot_conn *conn = pst_list_entry(it, struct boot_conn, link);

        if (conn->session == session)
            return conn;
    }
    return NULL;
}

void pst_boot_server_ready(struct pst_boot_server *server, void *session)
{
    struct boot_conn *conn = conn_of(server, session);

    pst_assert(!conn || conn->welcomed);
    if (conn && !conn->ending)
        boot_session_ready(conn);
}

void pst_boot_server_end(struct pst_boot_server *server, void *session)
{
    struct boot_conn *conn = conn_of(server, session);

    pst_assert(!conn || conn->welcomed);
    if (!conn)
        return;
    if (conn->shares) {
        boot_session_dismiss(conn);
        return;
    }
    /* The next poll finds the end of file and tells: the node may be in the middle of a callback now. */
    if (!conn->ending)
        conn->ending = "ended by the node";
    shutdown(conn->fd, SHUT_RDWR);
}

struct pst_boot_server *pst_boot_server_close(struct pst_boot_server *server)
{
    if (!server)
        return NULL;
    pst_assert(server->magic == BOOT_SERVER_MAGIC);
    while (!pst_list_empty(&server->handshakes))
        conn_end(pst_list_first(&server->handshakes, struct boot_conn, link), "the node stops");
    while (!pst_list_empty(&server->sessions))
        conn_end(pst_list_first(&server->sessions, struct boot_conn, link), "the node stops");
    free_ended(server);
    pst_assert(server->session_count == 0);
    pst_assert(server->handshake_count == 0);
    for (uint32_t i = 0; i < server->listener_count; i++)
        boot_unlisten(&server->listeners[i]);
    pst_close_fd(&server->epoll_fd);
    secrets_free(server->secrets, server->secret_count);
    server->magic = 0;
    free(server);
    return NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* server.c: the side that serves: a thread accepts, and each connection has one. */
#include "files/carry/carry_priv.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/list.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

enum { CONNECTIONS = 256, RETRY_MS = 100, GREETING_MS = 10000 };

struct pst_carry_server {
    struct pst_carry_server_settings settings;
    char token[PST_CARRY_TOKEN_BYTES_MAX];
    int listen_fd, stop_fd;
    uint16_t port;
    pthread_t acceptor;
    bool accepts;
    pthread_mutex_t lock;
    pthread_cond_t gone;
    struct pst_list connections;
    uint32_t count;
};

struct connection {
    struct pst_list link;
    struct pst_carry_server *server;
    int fd;
};

/* What a client asks for. */
struct request {
    enum carry_operation operation;
    bool force;
    char name[PST_CARRY_NAME_BYTES_MAX + 1];
    struct pst_filter filters[PST_CARRY_FILTERS_MAX];
    uint32_t filter_count;
};

/* ---- what is asked for ---- */

static int read_filters(struct link *link, struct pst_reader *frame, struct request *request)
{
    while (frame->left && !frame->bad) {
        bool takes = pst_read_number(frame, 1);
        size_t bytes = pst_read_number(frame, 2);
        const uint8_t *text = pst_read_bytes(frame, bytes);
        char *pattern =
            text && request->filter_count < PST_CARRY_FILTERS_MAX ? strndup((const char *)text, bytes) : NULL;

        if (!pattern)
            return link_fail(link, -EINVAL, "the filters are none");
        request->filters[request->filter_count++] = (struct pst_filter){takes, pattern};
    }
    return 0;
}

static int read_hello(struct link *link, const struct pst_carry_server_settings *settings,
                      struct request *request)
{
    const struct pst_bytes token = settings->token;
    bool serves_more = settings->serve;
    uint8_t challenge[LINK_CHALLENGE_BYTES], proof[LINK_PROOF_BYTES] = {0}, expected[LINK_PROOF_BYTES];
    struct pst_reader frame;
    enum link_type type;
    uint64_t version, bytes, flags;
    int r;

    pst_random(challenge, sizeof(challenge));
    if (link_take_key(link, challenge) < 0)
        return link->error;
    link_put_number(link, PST_CARRY_VERSION, 2);
    link_put(link, challenge, sizeof(challenge));
    r = link_send(link, LINK_CHALLENGE);
    if (r == 0)
        r = link_receive(link, LINK_HELLO, &type, &frame);
    if (r < 0)
        return r;
    version = pst_read_number(&frame, 2);
    request->operation = (enum carry_operation)pst_read_number(&frame, 1);
    flags = pst_read_number(&frame, 1);
    pst_read_copy(&frame, proof, sizeof(proof));
    bytes = pst_read_number(&frame, 2);
    if (version != PST_CARRY_VERSION)
        return link_fail(link, -EPROTONOSUPPORT, "the client speaks version %u of trees, this server %d",
                         (unsigned)version, PST_CARRY_VERSION);
    if (bytes > PST_CARRY_NAME_BYTES_MAX)
        frame.bad = true;
    pst_read_copy(&frame, request->name, bytes);
    if (frame.bad || flags & ~(uint64_t)CARRY_FORCE || memchr(request->name, 0, bytes) ||
        request->operation < CARRY_PUT || request->operation > (serves_more ? CARRY_FOLLOW : CARRY_GET))
        return link_fail(link, -EPROTO, "the client asks for what there is not");
    request->name[bytes] = 0;
    request->force = flags & CARRY_FORCE;
    if (token.len) {
        link_proof(token, challenge, request->name, expected);
        if (!link_proofs_equal(proof, expected))
            return link_fail(link, -EACCES, "no token, or a wrong one");
    }
    return read_filters(link, &frame, request);
}

static int serve_request(struct link *link, const struct pst_carry_server *server, struct request *request)
{
    const struct pst_carry_server_settings *settings = &server->settings;
    const struct pst_carry_options options = {.force = request->force,
                                              .filters = {request->filters, request->filter_count}};
    char leaf[256] = "", fault[PST_FAULT_BYTES];
    struct pst_arrival_result result;
    struct pst_carry_place place = {.leaf = leaf};
    int folder_fd = -1, r;

    if (request->operation > CARRY_GET) {
        r = link_send(link, LINK_ACCEPT);
        return r < 0 ? r : settings->serve(settings->ctx, link, request->operation, request->name);
    }
    r = settings->resolve(settings->ctx, request->name, request->operation == CARRY_PUT, &folder_fd, leaf,
                          fault);
    if (r < 0)
        return link_fail(link, r, "%s", fault);
    pst_assert(folder_fd >= 0 && leaf[0]);
    place.folder_fd = folder_fd;
    r = link_send(link, LINK_ACCEPT);
    if (r == 0)
        r = request->operation == CARRY_PUT ? carry_receive(link, &place, &options, &result)
                                            : carry_send(link, &place, &options, &result);
    pst_close_fd(&folder_fd);
    return r;
}

static void connection_serve(const struct connection *connection)
{
    const struct pst_carry_server *server = connection->server;
    uint32_t stall_ms = server->settings.stall_ms ? server->settings.stall_ms : PST_CARRY_STALL_MS;
    struct request *request = calloc(1, sizeof(*request));
    char fault[PST_FAULT_BYTES];
    struct link link;
    int r = link_open(&link, connection->fd, (uint32_t)pst_min(stall_ms, GREETING_MS), fault);

    if (r == 0 && !request)
        r = link_fail(&link, -ENOMEM, "out of memory");
    if (r == 0)
        r = read_hello(&link, &server->settings, request);
    if (r == 0) {
        link_set_stall(&link, stall_ms);
        link_trust(&link);
        serve_request(&link, server, request);
    }
    link_close(&link);
    for (uint32_t i = 0; request && i < request->filter_count; i++)
        free((char *)(uintptr_t)request->filters[i].pattern);
    free(request);
}

/* ---- connections ---- */

static void connection_end(struct connection *connection)
{
    struct pst_carry_server *server = connection->server;

    pthread_mutex_lock(&server->lock);
    pst_assert(server->count > 0);
    close(connection->fd); /* under the lock: the server's end shuts down what is listed */
    pst_list_remove(&connection->link);
    if (--server->count == 0)
        pthread_cond_signal(&server->gone);
    pthread_mutex_unlock(&server->lock);
    free(connection);
}

static void *connection_run(void *arg)
{
    struct connection *connection = arg;

    connection_serve(connection);
    connection_end(connection);
    return NULL;
}

/* Takes @fd over. */
static void connection_open(struct pst_carry_server *server, int fd)
{
    struct connection *connection = calloc(1, sizeof(*connection));
    uint32_t most = server->settings.connections_max ? server->settings.connections_max : CONNECTIONS;
    pthread_t thread;
    bool full;
    int one = 1;

    if (!connection) {
        close(fd);
        return;
    }
    *connection = (struct connection){.server = server, .fd = fd};
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    pthread_mutex_lock(&server->lock);
    full = ++server->count > most;
    pst_list_push_back(&server->connections, &connection->link);
    pthread_mutex_unlock(&server->lock);
    if (full || pthread_create(&thread, NULL, connection_run, connection) != 0)
        connection_end(connection);
    else
        pthread_detach(thread);
}

static void *accept_all(void *arg)
{
    struct pst_carry_server *server = arg;
    struct pollfd ready[] = {{.fd = server->stop_fd, .events = POLLIN},
                             {.fd = server->listen_fd, .events = POLLIN}};

    while (!ready[0].revents) {
        int fd = poll(ready, 2, -1) > 0 && ready[1].revents
                     ? accept4(server->listen_fd, NULL, NULL, SOCK_CLOEXEC)
                     : -1;

        if (fd >= 0)
            connection_open(server, fd);
        else if (ready[1].revents && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
            poll(ready, 1, RETRY_MS);
    }
    return NULL;
}

/* ---- beginning and end ---- */

static int server_listen(struct pst_carry_server *server)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(server->settings.port)};
    socklen_t bytes = sizeof(at);
    int one = 1;

    if (server->settings.host && inet_pton(AF_INET, server->settings.host, &at.sin_addr) != 1)
        return -EINVAL;
    server->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (server->listen_fd < 0)
        return -errno;
    setsockopt(server->listen_fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(server->listen_fd, (const struct sockaddr *)&at, sizeof(at)) < 0 ||
        listen(server->listen_fd, SOMAXCONN) < 0 ||
        getsockname(server->listen_fd, (struct sockaddr *)&at, &bytes) < 0)
        return -errno;
    server->port = ntohs(at.sin_port);
    return 0;
}

int pst_carry_server_open(const struct pst_carry_server_settings *settings, struct pst_carry_server **out,
                          char fault[PST_FAULT_BYTES])
{
    struct pst_carry_server *server = calloc(1, sizeof(*server));
    int r = 0;

    pst_assert(settings->resolve && settings->token.len <= PST_CARRY_TOKEN_BYTES_MAX);
    if (!server) {
        snprintf(fault, PST_FAULT_BYTES, "out of memory");
        return -ENOMEM;
    }
    server->settings = *settings;
    memcpy(server->token, settings->token.len ? settings->token.data : "", settings->token.len);
    server->settings.token.data = server->token;
    server->listen_fd = -1;
    pst_list_init(&server->connections);
    pthread_mutex_init(&server->lock, NULL);
    pthread_cond_init(&server->gone, NULL);
    server->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    r = server->stop_fd < 0 ? -errno : server_listen(server);
    if (r == 0) {
        r = -pthread_create(&server->acceptor, NULL, accept_all, server);
        server->accepts = r == 0;
    }
    if (r < 0) {
        snprintf(fault, PST_FAULT_BYTES, "port %u for trees: %s", settings->port, strerror(-r));
        pst_carry_server_close(server);
        return r;
    }
    *out = server;
    return 0;
}

uint16_t pst_carry_server_port(const struct pst_carry_server *server)
{
    return server->port;
}

struct pst_carry_server *pst_carry_server_close(struct pst_carry_server *server)
{
    if (!server)
        return NULL;
    if (server->accepts) {
        pst_event_set(server->stop_fd);
        pst_assert(pthread_join(server->acceptor, NULL) == 0);
    }
    pthread_mutex_lock(&server->lock);
    pst_list_each (it, &server->connections)
        shutdown(pst_list_entry(it, struct connection, link)->fd, SHUT_RDWR);
    while (server->count > 0)
        pthread_cond_wait(&server->gone, &server->lock);
    pthread_mutex_unlock(&server->lock);
    pst_close_fd(&server->listen_fd);
    pst_close_fd(&server->stop_fd);
    pthread_cond_destroy(&server->gone);
    pthread_mutex_destroy(&server->lock);
    explicit_bzero(server->token, sizeof(server->token));
    free(server);
    return NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* server.c: the side that serves, each connection on a thread of its own. */
#include "files/carry/carry_priv.h"

#include "base/hash.h"
#include "net/acceptor.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <arpa/inet.h>
#include <stdio.h>
#include <sys/socket.h>

enum { CONNECTIONS = 256, GREETING_MS = 10000 };

/* Of manifests and lists of chunks: of some hundred large files at once. */
static const uint64_t LISTED_BYTES_MAX = 4ull << 30;

struct pst_carry_server {
    struct pst_carry_server_settings settings;
    char token[PST_CARRY_TOKEN_BYTES_MAX];
    int listen_fd;
    uint16_t port;
    struct pst_acceptor *acceptor;
    struct carry_budget budget;
};

/* What a client asks for. */
struct request {
    enum carry_operation operation;
    uint32_t flags; /* enum pst_arrival_flags, of CARRY_FLAGS */
    char name[PST_CARRY_NAME_BYTES_MAX + 1];
    struct pst_filter filters[PST_CARRY_FILTERS_MAX];
    uint32_t filter_count;
};

/* ---- what is asked for ---- */

static int read_filters(struct link *link, struct pst_reader *frame, struct request *request)
{
    size_t left = PST_CARRY_FILTER_BYTES_MAX;

    pst_assert(request->filter_count == 0);
    while (frame->left && !frame->bad) {
        bool takes = pst_read_number(frame, 1);
        size_t bytes = pst_read_number(frame, 2);
        const uint8_t *text = pst_read_bytes(frame, bytes);
        bool fits = text && bytes <= left && request->filter_count < PST_CARRY_FILTERS_MAX;
        char *pattern = fits ? strndup((const char *)text, bytes) : NULL;

        if (text && !fits)
            return link_fail(link, -E2BIG, "the filters are too many or too long");
        if (!pattern)
            return link_fail(link, -EINVAL, "the filters are none");
        left -= bytes;
        request->filters[request->filter_count++] = (struct pst_filter){takes, pattern};
        pst_assert(request->filter_count <= PST_CARRY_FILTERS_MAX);
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
    uint64_t version;
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
    request->flags = (uint32_t)pst_read_number(&frame, 1);
    pst_read_copy(&frame, proof, sizeof(proof));
    link_read_text(&frame, request->name, sizeof(request->name));
    if (version != PST_CARRY_VERSION)
        return link_fail(link, -EPROTONOSUPPORT, "the client speaks version %u of trees, this server %d",
                         (unsigned)version, PST_CARRY_VERSION);
    if (frame.bad || request->flags & ~(uint32_t)CARRY_FLAGS || request->operation < CARRY_PUT ||
        request->operation > (serves_more ? CARRY_FOLLOW : CARRY_GET))
        return link_fail(link, -EPROTO, "the client asks for what there is not");
    if (token.len) {
        link_proof(token, challenge, request->name, expected);
        if (!link_proofs_equal(proof, expected))
            return link_fail(link, -EACCES, "no token, or a wrong one");
    }
    return read_filters(link, &frame, request);
}

static int serve_request(struct link *link, struct pst_carry_server *server, struct request *request)
{
    const struct pst_carry_server_settings *settings = &server->settings;
    const struct pst_carry_options options = {.flags = request->flags | PST_ARRIVAL_SYNC,
                                              .filters = {request->filters, request->filter_count}};
    char leaf[256] = "", fault[PST_FAULT_BYTES];
    struct pst_arrival_result result;
    struct pst_carry_place place = {.leaf = leaf, .munged = settings->munged};
    struct carry_share share = {.budget = &server->budget};
    int folder_fd = -1, r;

    if (request->operation > CARRY_GET) {
        r = link_send(link, LINK_ACCEPT);
        return r < 0 ? r : settings->serve(settings->ctx, link, request->operation, request->name);
    }
    r = settings->resolve(settings->ctx, request->name, request->operation == CARRY_PUT, &folder_fd, leaf,
                          fault);
    if (r < 0)
        return link_fail(link, r, "%s", fault);
    pst_assert(folder_fd >= 0);
    pst_assert(leaf[0]);
    place.folder_fd = folder_fd;
    r = link_send(link, LINK_ACCEPT);
    if (r == 0)
        r = request->operation == CARRY_PUT ? carry_receive(link, &share, &place, &options, &result)
                                            : carry_send(link, &share, &place, &options, &result);
    if (request->operation == CARRY_PUT && (r == -ENOSPC || r == -EDQUOT)) /* others need what is left */
        pst_arrival_forget(folder_fd, leaf);
    carry_share_end(&share);
    pst_close_fd(&folder_fd);
    return r;
}

static void serve_connection(void *ctx, int fd, uint32_t listener)
{
    struct pst_carry_server *server = ctx;
    uint32_t stall_ms = server->settings.stall_ms ? server->settings.stall_ms : PST_CARRY_STALL_MS;
    struct request *request = calloc(1, sizeof(*request));
    char fault[PST_FAULT_BYTES];
    struct link link;
    int r = link_open(&link, fd, (uint32_t)pst_min(stall_ms, GREETING_MS), fault), one = 1;

    (void)listener;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (r == 0 && !request)
        r = link_fail(&link, -ENOMEM, "out of memory");
    if (r == 0)
        r = read_hello(&link, &server->settings, request);
    if (r == 0) {
        pst_acceptor_keep(server->acceptor, fd);
        link_set_stall(&link, stall_ms);
        link_trust(&link);
        serve_request(&link, server, request);
    }
    link_close(&link);
    for (uint32_t i = 0; request && i < request->filter_count; i++)
        free((char *)(uintptr_t)request->filters[i].pattern);
    free(request);
}

/* ---- beginning and end ---- */

static int server_listen(struct pst_carry_server *server)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(server->settings.port)};
    socklen_t bytes = sizeof(at);
    int one = 1;

    pst_assert(server->listen_fd < 0);
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
    static const struct pst_acceptor_ops ops = {.serve = serve_connection};
    struct pst_carry_server *server = calloc(1, sizeof(*server));
    struct pst_acceptor_listener listener = {
        .connections_max = settings->connections_max ? settings->connections_max : CONNECTIONS,
        .greets = true};
    int r;

    pst_assert(settings->resolve);
    pst_assert(settings->token.len <= PST_CARRY_TOKEN_BYTES_MAX);
    if (!server) {
        snprintf(fault, PST_FAULT_BYTES, "out of memory");
        return -ENOMEM;
    }
    server->settings = *settings;
    memcpy(server->token, settings->token.len ? settings->token.data : "", settings->token.len);
    server->settings.token.data = server->token;
    server->listen_fd = -1;
    carry_budget_init(&server->budget, LISTED_BYTES_MAX);
    r = server_listen(server);
    listener.fd = server->listen_fd;
    if (r == 0)
        r = pst_acceptor_open(&listener, 1, &ops, server, &server->acceptor);
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
    pst_assert(server->port > 0);
    return server->port;
}

struct pst_carry_server *pst_carry_server_close(struct pst_carry_server *server)
{
    if (!server)
        return NULL;
    server->acceptor = pst_acceptor_close(server->acceptor);
    pst_close_fd(&server->listen_fd);
    carry_budget_fini(&server->budget);
    explicit_bzero(server->token, sizeof(server->token));
    free(server);
    return NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* call.c: a member's calls to the store: a connection each, which does not hold up a store that ends. */
#include "files/relay/member_priv.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>

static int refuse(void *ctx, const char *name, bool writes, int *folder_fd, char leaf[256],
                  char fault[PST_FAULT_BYTES])
{
    (void)ctx, (void)name, (void)writes, (void)folder_fd, (void)leaf;
    snprintf(fault, PST_FAULT_BYTES, "a member of a broadcast serves that alone");
    return -EPERM;
}

/* The server's hook: of its children. */
static int serve_child(void *ctx, struct link *link, uint32_t operation, const char *name)
{
    struct relay_member *m = ctx;
    struct relay_follow follow;
    uint8_t key[RELAY_KEY_BYTES];
    uint32_t count;
    bool joined;
    int r = operation == CARRY_FOLLOW && strcmp(name, m->options->name) == 0
                ? relay_receive_follow(link, &follow)
                : link_fail(link, -EPERM, "this member serves children of its broadcast alone");

    if (r < 0)
        return r;
    pthread_mutex_lock(&m->lock);
    memcpy(key, m->place.key, sizeof(key));
    count = m->place.pieces;
    joined = m->place.rank > 0;
    pthread_mutex_unlock(&m->lock);
    if (!joined)
        return link_fail(link, -EAGAIN, "this member has not joined yet");
    return relay_feed_serve(&m->feed, link, &follow, key, count);
}

/* The server listens where the store is reached from. */
static int open_server(struct relay_member *m, int fd, char fault[PST_FAULT_BYTES])
{
    const struct pst_carry_server_settings settings = {.host = m->host,
                                                       .token = m->options->token,
                                                       .connections_max = 16,
                                                       .stall_ms = PST_CARRY_STALL_MS,
                                                       .resolve = refuse,
                                                       .serve = serve_child,
                                                       .ctx = m};
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t bytes = sizeof(at);

    if (m->server)
        return 0;
    if (getsockname(fd, (struct sockaddr *)&at, &bytes) < 0 || at.sin_family != AF_INET ||
        !inet_ntop(AF_INET, &at.sin_addr, m->host, sizeof(m->host))) {
        snprintf(fault, PST_FAULT_BYTES, "a member of a broadcast needs an IPv4 address");
        return -EAFNOSUPPORT;
    }
    return pst_carry_server_open(&settings, &m->server, fault);
}

static void put_join(struct relay_member *m, struct link *link)
{
    pst_assert(m->server);
    pst_assert(link->out_bytes == 0);
    pst_assert(m->host[0]);
    link_put_number(link, PST_BROADCAST_VERSION, 2);
    link_put_number(link, m->id, 8);
    link_put_number(link, m->options->members, 4);
    link_put_number(link, pst_carry_server_port(m->server), 2);
    link_put_text(link, m->host);
    link_put_text(link, m->options->group);
}

static void put_tell(struct relay_member *m, struct link *link, enum relay_word word, uint32_t parent_rank)
{
    uint32_t have;

    pst_assert(link->out_bytes == 0);
    pst_assert(m->place.rank > 0); /* it has joined */
    pthread_mutex_lock(&m->feed.lock);
    have = m->feed.have;
    pthread_mutex_unlock(&m->feed.lock);
    link_put_number(link, m->id, 8);
    link_put_number(link, m->place.rank, 4);
    link_put_number(link, word, 1);
    link_put_number(link, parent_rank, 4);
    link_put_number(link, have, 4);
    link_put_text(link, m->options->group);
}

/* One question and its answer; @word 0: it joins. */
static int call_store(struct relay_member *m, enum relay_word word, uint32_t parent_rank, bool *told,
                      struct relay_place *out, char fault[PST_FAULT_BYTES])
{
    const struct pst_carry_options options = {.token = m->options->token};
    pst_cleanup_close int fd =
        pst_carry_connect(m->options->host, m->options->port, MEMBER_CONNECT_MS, fault);
    struct link link;
    int r = fd < 0 ? fd : 0;

    *told = false;
    if (r == 0 && word == 0)
        r = open_server(m, fd, fault);
    if (r < 0)
        return r;
    pst_assert(word != 0 || m->server);
    r = link_open(&link, fd, (uint32_t)pst_min(MEMBER_CALL_MS, m->timeout_ms), fault);
    if (r == 0)
        r = carry_greet(&link, CARRY_CALL, m->options->name, &options);
    link_trust(&link);
    if (r == 0 && word == 0)
        put_join(m, &link);
    else if (r == 0)
        put_tell(m, &link, word, parent_rank);
    if (r == 0)
        r = link_send(&link, word == 0 ? LINK_JOIN : LINK_TELL);
    if (r == 0)
        r = relay_receive_place(&link, out);
    *told = link.told;
    link_close(&link);
    return r;
}

int member_join(struct relay_member *m, char fault[PST_FAULT_BYTES])
{
    struct relay_place place;
    bool told;
    int r = call_store(m, 0, 0, &told, &place, fault);

    if (r == 0 && !place.copies && (place.rank == 0 || place.pieces == 0)) {
        snprintf(fault, PST_FAULT_BYTES, "the store's answer is none");
        r = -EPROTO;
    }
    if (r < 0)
        return r;
    pthread_mutex_lock(&m->lock);
    m->place = place;
    pthread_mutex_unlock(&m->lock);
    return 0;
}

int member_tell(struct relay_member *m, enum relay_word word, uint32_t parent_rank, bool *told,
                char fault[PST_FAULT_BYTES])
{
    struct relay_place place;
    bool store_told;
    int r;

    pthread_mutex_lock(&m->call_lock);
    r = call_store(m, word, parent_rank, &store_told, &place, fault);
    pthread_mutex_lock(&m->lock);
    m->forgotten |= r == -ESTALE && store_told;
    pthread_mutex_unlock(&m->lock);
    if (r == 0 && word != RELAY_LEAVE) {
        pthread_mutex_lock(&m->lock);
        if (place.parent_rank != m->place.parent_rank && m->parent_fd >= 0)
            shutdown(m->parent_fd, SHUT_RDWR);
        m->place.may_leave = place.may_leave;
        m->place.parent_rank = place.parent_rank;
        m->place.port = place.port;
        memcpy(m->place.host, place.host, sizeof(place.host));
        pthread_mutex_unlock(&m->lock);
    }
    pthread_mutex_unlock(&m->call_lock);
    if (told)
        *told = store_told;
    return r;
}

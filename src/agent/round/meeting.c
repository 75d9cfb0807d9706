/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meeting.c: the sockets of a meeting. Rank 0 has one for each other rank, and some for those who have not
 * said hello yet; the others have one, to rank 0. Whatever one of them brings is heard in meeting_look(),
 * which all waiting goes through.
 */
#include "agent/round/meeting.h"

#include "agent/round/lines.h"
#include "base/clock.h"
#include "base/hex.h"
#include "base/ms.h"
#include "base/utf8.h"
#include "net/address.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>

enum {
    NEWCOMERS_MAX = 64, /* without a hello */
    HELLO_MS = 5000,
    BEAT_MS = 1000,
    SILENCE_MS_MIN = 5000,
    SILENCE_MS_MAX = 20000, /* then a rank has gone, whatever TCP says */
    AGAIN_MS = 100,         /* between two tries to reach rank 0 */
    PART_MS = 1000,         /* to read what is the last */
    NAMED_MAX = 8,          /* missing ranks that an error names */
    GRACE_MS = 2000,        /* for rank 0 to say which ranks are missing */
    LINES_MAX = 64,         /* at a time: each says one a second */
};

enum peer_state { NEW, THERE, DONE };

/* A rank that is at work says that it is there well within the silence that others bear: it looks at the
 * meeting every ROUND_LOOK_MS at least, and waits for one that does not read for ROUND_SAY_MS at most. */
_Static_assert((int)BEAT_MS + (int)ROUND_LOOK_MS + (int)ROUND_SAY_MS < (int)SILENCE_MS_MIN,
               "beats are heard in time");
_Static_assert((int)LINES_MAX > 2 * (int)SILENCE_MS_MAX / (int)BEAT_MS, "beats of a silence are no flood");

struct peer {
    int fd;
    enum peer_state state;
    uint32_t rank; /* from THERE on */
    uint64_t heard_ms;
    char address[INET6_ADDRSTRLEN];
    struct round_lines lines;
};

struct meeting {
    struct meeting_settings settings;
    int listen_fd; /* -1: it does not listen */
    struct peer **peers;
    uint32_t peer_count, there, done, peers_max;
    bool *has_come;   /* of each rank */
    uint64_t beat_ms; /* when to say again that this rank is there */
    int error;        /* why there is no use in going on; 0: there is */
    char fault[PST_FAULT_BYTES], no_nccl[PST_FAULT_BYTES];
    bool names_rank;      /* the fault does */
    struct pst_json *way; /* that rank 0 has said */
    bool begun;           /* rank 0: it has said how */
    bool is_done;         /* this rank is */
    bool all_done;        /* of the others: rank 0 has said that all are */
    uint64_t until_ns;    /* until all have come */
    bool heard_once;      /* rank 0 has said something to this one */
    bool was_busy;        /* another group met at its port */
};

static int meeting_fail(struct meeting *m, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The first error counts. Returns it. */
static int meeting_fail(struct meeting *m, int error, const char *format, ...)
{
    va_list arguments;

    pst_assert(error < 0);
    if (m->error == 0) {
        va_start(arguments, format);
        vsnprintf(m->fault, sizeof(m->fault), format, arguments);
        va_end(arguments);
        pst_utf8_repair(m->fault); /* a text in it may have been cut */
        if (!m->fault[0])
            snprintf(m->fault, sizeof(m->fault), "%s", strerror(-error));
        m->error = error;
        m->names_rank = strstr(m->fault, "rank") != NULL;
    }
    return m->error;
}

static uint64_t silence_ms(const struct meeting *m)
{
    pst_assert(SILENCE_MS_MIN > 2 * BEAT_MS);
    return pst_min(pst_max(m->settings.timeout_ms / 2, SILENCE_MS_MIN), SILENCE_MS_MAX);
}

static bool is_master(const struct meeting *m)
{
    return m->settings.rank == 0;
}

/* ---- what is said ---- */

static void say_error_to_all(struct meeting *m)
{
    char text[PST_FAULT_BYTES + 16];

    pst_assert(m->error < 0);
    /* What has gone wrong at rank 0 names no rank yet; it names the others'. */
    snprintf(text, sizeof(text), "%s%s", is_master(m) && !m->names_rank ? "rank 0: " : "", m->fault);
    for (uint32_t i = 0; i < m->peer_count; i++)
        if (m->peers[i]->state != NEW)
            round_say_text(m->peers[i]->fd, "error", text);
}

static void say_beats(struct meeting *m)
{
    pst_assert(m->peer_count <= m->peers_max);
    m->beat_ms = pst_now_ms() + BEAT_MS;
    for (uint32_t i = 0; i < m->peer_count; i++)
        if (m->peers[i]->state != NEW)
            round_say_text(m->peers[i]->fd, NULL, NULL);
}

/* ---- peers ---- */

static void peer_set_up(int fd)
{
    int on = 1;

    pst_assert(fd >= 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

/* Takes over @fd. Return: NULL without memory. */
static struct peer *peer_add(struct meeting *m, int fd)
{
    struct peer *peer = m->peer_count < m->peers_max ? calloc(1, sizeof(*peer)) : NULL;
    struct sockaddr_storage at = {.ss_family = AF_UNSPEC};
    socklen_t bytes = sizeof(at);

    pst_assert(fd >= 0);
    if (!peer) {
        close(fd);
        return NULL;
    }
    peer_set_up(fd);
    *peer = (struct peer){.fd = fd, .state = NEW, .heard_ms = pst_now_ms()};
    if (getpeername(fd, (struct sockaddr *)&at, &bytes) == 0 && at.ss_family == AF_INET)
        inet_ntop(AF_INET, &((struct sockaddr_in *)&at)->sin_addr, peer->address, sizeof(peer->address));
    else if (at.ss_family == AF_INET6)
        inet_ntop(AF_INET6, &((struct sockaddr_in6 *)&at)->sin6_addr, peer->address, sizeof(peer->address));
    m->peers[m->peer_count++] = peer;
    return peer;
}

static void peer_drop(struct meeting *m, uint32_t index)
{
    struct peer *peer = m->peers[index];

    pst_assert(index < m->peer_count);
    pst_assert(peer->fd >= 0);
    m->peers[index] = m->peers[--m->peer_count];
    close(peer->fd);
    free(peer);
}

/* ---- hello ---- */

static int say_hello(const struct meeting *m, int fd)
{
    const struct meeting_settings *settings = &m->settings;
    struct pst_json *line = pst_json_new_object();
    char token[PST_FAULT_BYTES + 1];
    int r = line ? 0 : -ENOMEM;

    pst_assert(!is_master(m));
    pst_assert(settings->token.len < sizeof(token));
    memcpy(token, settings->token.data, settings->token.len);
    token[settings->token.len] = 0;
    if (r < 0 || pst_json_add_text(line, "group_id", settings->group) < 0 ||
        pst_json_add_integer(line, "rank", settings->rank) < 0 ||
        pst_json_add_integer(line, "world_size", settings->world_size) < 0 ||
        pst_json_add_text(line, "tensors", settings->digest) < 0 ||
        pst_json_add_text(line, "no_nccl", settings->no_nccl) < 0 ||
        (settings->token.len > 0 && pst_json_add_text(line, "token", token) < 0))
        r = -ENOMEM;
    if (r == 0)
        r = round_say(fd, line);
    pst_json_free(line);
    return r;
}

static bool hello_is_ours(const struct meeting *m, const struct pst_json *hello)
{
    const char *group = pst_json_text(pst_json_get(hello, "group_id"));

    return group && strcmp(group, m->settings.group) == 0;
}

/* Why a newcomer does not belong here; NULL: it does, or belongs to another meeting. */
static const char *hello_excuse(const struct meeting *m, const struct pst_json *hello, int64_t rank)
{
    const char *token = pst_json_text(pst_json_get(hello, "token"));

    pst_assert(is_master(m));
    if (m->settings.token.len > 0 && !pst_secret_is(m->settings.token, token))
        return "no token, or a wrong one";
    if (!hello_is_ours(m, hello))
        return NULL;
    if (rank < 1 || rank >= m->settings.world_size)
        return "there is no such rank";
    return m->has_come[rank] ? "this rank has come already" : NULL;
}

/* One that belongs here must expect what this rank does. */
static void hello_compare(struct meeting *m, const struct peer *peer, const struct pst_json *hello)
{
    const char *digest = pst_json_text(pst_json_get(hello, "tensors"));
    const char *no_nccl = pst_json_text(pst_json_get(hello, "no_nccl"));
    int64_t world_size = 0;

    pst_assert(peer->state == THERE);
    pst_assert(peer->rank > 0 && peer->rank < m->settings.world_size);
    if (!pst_json_integer(pst_json_get(hello, "world_size"), &world_size) ||
        world_size != m->settings.world_size)
        meeting_fail(m, -EPROTO, "rank %u (%s) expects %lld ranks, and rank 0 %u", peer->rank, peer->address,
                     (long long)world_size, m->settings.world_size);
    else if (!digest || strcmp(digest, m->settings.digest) != 0)
        meeting_fail(m, -EPROTO, "rank %u (%s) receives other tensors than rank 0 sends", peer->rank,
                     peer->address);
    else if (no_nccl && !m->no_nccl[0])
        snprintf(m->no_nccl, sizeof(m->no_nccl), "rank %u (%s): %.180s", peer->rank, peer->address, no_nccl);
}

/* Return: false: it is refused. */
static bool hear_hello(struct meeting *m, struct peer *peer, const struct pst_json *hello)
{
    const char *excuse;
    int64_t rank = 0;

    pst_assert(peer->state == NEW);
    pst_assert(is_master(m) && m->there < m->settings.world_size);
    pst_json_integer(pst_json_get(hello, "rank"), &rank);
    excuse = hello_excuse(m, hello, rank);
    if (!excuse && !hello_is_ours(m, hello)) {
        round_say_text(peer->fd, "busy", "another group meets here");
        return false;
    }
    if (excuse) {
        round_say_text(peer->fd, "error", excuse);
        return false;
    }
    peer->rank = (uint32_t)rank;
    peer->state = THERE;
    m->has_come[rank] = true;
    m->there++;
    hello_compare(m, peer, hello);
    return true;
}

/* ---- what is heard ---- */

static void hear_error(struct meeting *m, const struct peer *peer, const char *text)
{
    pst_assert(peer->state != NEW);
    text = *text ? text : "it does not say what is wrong";
    if (is_master(m))
        meeting_fail(m, -EIO, "rank %u (%s): %.200s", peer->rank, peer->address, text);
    else
        meeting_fail(m, -EIO, "%s", text); /* which names the rank, or speaks of this one */
}

/* Rank 0. */
static void hear_done(struct meeting *m, struct peer *peer)
{
    pst_assert(is_master(m) && peer->state != NEW);
    if (!m->begun || peer->state == DONE) {
        meeting_fail(m, -EPROTO, "rank %u (%s) says that it is done when it cannot be", peer->rank,
                     peer->address);
        return;
    }
    pst_assert(m->done < m->there);
    peer->state = DONE;
    m->done++;
}

/* The others. */
static void hear_end(struct meeting *m)
{
    pst_assert(!is_master(m));
    if (m->is_done)
        m->all_done = true;
    else
        meeting_fail(m, -EPROTO, "rank 0 says that all are done, and this rank is not");
}

static bool line_says(const struct pst_json *line, const char *name)
{
    bool flag = false;

    pst_assert(*name);
    return pst_json_flag(pst_json_get(line, name), &flag) && flag;
}

/* Takes @line over. Return: false: the peer is to go. */
static bool hear_line(struct meeting *m, struct peer *peer, struct pst_json *line)
{
    const char *error = pst_json_text(pst_json_get(line, "error"));
    bool stays = true;

    pst_assert(pst_json_is_object(line));
    peer->heard_ms = pst_now_ms();
    if (!is_master(m) && !m->heard_once && pst_json_get(line, "busy")) {
        pst_json_free(line);
        m->was_busy = true;
        return false; /* the port is another meeting's for now: this rank calls again */
    }
    m->heard_once = true;
    if (peer->state == NEW)
        stays = hear_hello(m, peer, line);
    else if (error)
        hear_error(m, peer, error);
    else if (is_master(m) && line_says(line, "done"))
        hear_done(m, peer);
    else if (!is_master(m) && line_says(line, "end"))
        hear_end(m);
    else if (!is_master(m) && pst_json_get(line, "way") && !m->way) {
        m->way = line;
        return true;
    }
    pst_json_free(line);
    return stays;
}

/* Return: false: the peer has gone, or is to go. */
static bool hear_peer(struct meeting *m, struct peer *peer)
{
    struct pst_json *line = NULL;
    uint32_t count = 0;
    int r;

    while ((r = round_lines_hear(&peer->lines, peer->fd, &line)) > 0) {
        if (!hear_line(m, peer, line))
            return false;
        if (++count == LINES_MAX) {
            r = -EMSGSIZE; /* else nobody else would be heard */
            break;
        }
    }
    if (r == 0)
        return true;
    if (peer->state == THERE && !m->all_done && (is_master(m) || m->heard_once || r != -ECONNRESET))
        meeting_fail(m, r, "rank %u (%s) %s", peer->rank, peer->address,
                     r == -ECONNRESET ? "has gone" : strerror(-r));
    return false;
}

static void check_silence(struct meeting *m)
{
    uint64_t now_ms = pst_now_ms();

    pst_assert(m->peer_count <= m->peers_max);
    for (uint32_t i = m->peer_count; i-- > 0;) {
        const struct peer *peer = m->peers[i];
        uint64_t silent_ms = now_ms - pst_min(peer->heard_ms, now_ms);

        if (peer->state == NEW && silent_ms > HELLO_MS)
            peer_drop(m, i);
        else if (peer->state == THERE && silent_ms > silence_ms(m))
            meeting_fail(m, -ETIMEDOUT, "rank %u (%s) has said nothing for %llu s", peer->rank, peer->address,
                         (unsigned long long)silent_ms / 1000);
    }
}

/* Those that have said nothing make room for one more, the oldest first. */
static void make_room(struct meeting *m)
{
    uint32_t count = 0, oldest = 0;

    pst_assert(is_master(m));
    for (uint32_t i = 0; i < m->peer_count; i++) {
        if (m->peers[i]->state != NEW)
            continue;
        if (count++ == 0 || m->peers[i]->heard_ms < m->peers[oldest]->heard_ms)
            oldest = i;
    }
    pst_assert(count <= NEWCOMERS_MAX);
    if (count == NEWCOMERS_MAX)
        peer_drop(m, oldest);
}

static void accept_newcomer(struct meeting *m)
{
    int fd;

    pst_assert(m->listen_fd >= 0);
    fd = accept4(m->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
        meeting_fail(m, -errno, "rank 0 has no room for the other ranks: %s", strerror(errno));
    if (fd < 0)
        return;
    make_room(m);
    peer_add(m, fd);
}

/* ---- looking ---- */

/* Of those that were polled; peers may go meanwhile, and others take their index. */
static void hear_polled(struct meeting *m, const struct pollfd *fds, uint32_t count)
{
    pst_assert(count <= m->peer_count);
    for (uint32_t i = count; i-- > 0;) {
        pst_assert(fds[i].fd == m->peers[i]->fd);
        if (fds[i].revents && !hear_peer(m, m->peers[i]))
            peer_drop(m, i);
    }
}

static int meeting_turn(struct meeting *m, int fd, uint32_t wait_ms)
{
    uint32_t count = m->peer_count;
    pst_cleanup_free struct pollfd *fds = calloc(count + 2, sizeof(*fds));

    if (!fds)
        return meeting_fail(m, -ENOMEM, "%s", strerror(ENOMEM));
    for (uint32_t i = 0; i < count; i++)
        fds[i] = (struct pollfd){.fd = m->peers[i]->fd, .events = POLLIN};
    fds[count] = (struct pollfd){.fd = m->listen_fd, .events = POLLIN};
    fds[count + 1] = (struct pollfd){.fd = fd, .events = POLLIN};
    if (poll(fds, count + 2, (int)wait_ms) > 0) {
        hear_polled(m, fds, count);
        if (fds[count].revents)
            accept_newcomer(m);
    }
    if (pst_now_ms() >= m->beat_ms)
        say_beats(m);
    check_silence(m);
    if (m->error == 0 && m->settings.is_over(m->settings.ctx))
        meeting_fail(m, -ECANCELED, "the process that asked for it has gone");
    return m->error;
}

static int meeting_said(const struct meeting *m, int r, char fault[PST_FAULT_BYTES])
{
    pst_assert(r == 0 || m->error < 0);
    pst_assert(r == 0 || m->fault[0]);
    if (r < 0)
        memcpy(fault, m->fault, PST_FAULT_BYTES);
    return r;
}

int meeting_look(struct meeting *m, int fd, uint32_t wait_ms, char fault[PST_FAULT_BYTES])
{
    return meeting_said(m, meeting_turn(m, fd, wait_ms), fault);
}

/* ---- coming together ---- */

/* The port may be another group's for a moment. */
static int meeting_listen(struct meeting *m)
{
    pst_assert(is_master(m));
    for (;;) {
        struct pst_boot_address address = {.port = m->settings.port};

        pst_assert(m->listen_fd < 0);
        snprintf(address.host, sizeof(address.host), "%s", m->settings.host);
        m->listen_fd = pst_boot_listen_tcp(&address);
        if (m->listen_fd >= 0)
            return 0;
        if (m->listen_fd != -EADDRINUSE || pst_now_ns() >= m->until_ns)
            return meeting_fail(m, m->listen_fd, "rank 0 cannot listen on port %u: %s", m->settings.port,
                                strerror(-m->listen_fd));
        if (m->settings.is_over(m->settings.ctx))
            return meeting_fail(m, -ECANCELED, "the process that asked for it has gone");
        m->listen_fd = -1;
        poll(NULL, 0, AGAIN_MS);
    }
}

static int fail_missing(struct meeting *m)
{
    char ranks[12 * NAMED_MAX + 1] = "";
    size_t bytes = 0;
    uint32_t missing = 0;

    for (uint32_t rank = 1; rank < m->settings.world_size; rank++) {
        if (m->has_come[rank])
            continue;
        if (missing++ < NAMED_MAX)
            bytes += (size_t)snprintf(ranks + bytes, sizeof(ranks) - bytes, "%s%u", bytes ? ", " : "", rank);
    }
    pst_assert(missing > 0);
    pst_assert(missing + m->there + 1 == m->settings.world_size);
    return meeting_fail(m, -ETIMEDOUT, "%u of %u ranks did not come within %llu s: rank %s%s", missing,
                        m->settings.world_size, (unsigned long long)m->settings.timeout_ms / 1000, ranks,
                        missing > NAMED_MAX ? " and others" : "");
}

static int meeting_gather(struct meeting *m)
{
    int r = meeting_listen(m);

    while (r == 0 && m->there + 1 < m->settings.world_size) {
        uint64_t left_ms = pst_ms_left(m->until_ns, pst_now_ns());

        r = left_ms > 0 ? meeting_turn(m, -1, (uint32_t)pst_min(left_ms, ROUND_LOOK_MS)) : fail_missing(m);
    }
    pst_close_fd(&m->listen_fd);
    pst_assert(r < 0 || m->there + 1 == m->settings.world_size);
    return r;
}

/* Return: 0, -EAGAIN it is not there. */
static int call_master(struct meeting *m, const char **why)
{
    struct pst_boot_address address = {.port = m->settings.port};
    uint64_t try_ns = pst_deadline_ns(pst_now_ns(), HELLO_MS);
    struct peer *master;
    int fd;

    pst_assert(m->settings.port > 0);
    pst_assert(!is_master(m));
    pst_assert(m->peer_count == 0);
    snprintf(address.host, sizeof(address.host), "%s", m->settings.host);
    fd = pst_boot_connect(&address, pst_min(m->until_ns, try_ns), why);
    if (fd < 0)
        return -EAGAIN;
    master = peer_add(m, fd);
    if (!master)
        return meeting_fail(m, -ENOMEM, "%s", strerror(ENOMEM));
    master->state = THERE;
    if (say_hello(m, master->fd) == 0)
        return 0;
    *why = "it has closed the connection";
    peer_drop(m, 0);
    return -EAGAIN;
}

/* Rank 0 may not listen yet. */
static int go_to_master(struct meeting *m)
{
    const char *why = "it is not there";
    int r;

    pst_assert(!m->way);
    while ((r = call_master(m, &why)) == -EAGAIN) {
        if (m->settings.is_over(m->settings.ctx))
            return meeting_fail(m, -ECANCELED, "the process that asked for it has gone");
        if (pst_now_ns() >= m->until_ns)
            return meeting_fail(m, -ETIMEDOUT, "rank 0 (%.60s:%u) did not come within %llu s: %.80s",
                                m->settings.host, m->settings.port,
                                (unsigned long long)m->settings.timeout_ms / 1000, why);
        poll(NULL, 0, AGAIN_MS);
    }
    return r;
}

int meeting_open(const struct meeting_settings *settings, struct meeting **out, char fault[PST_FAULT_BYTES])
{
    struct meeting *m = calloc(1, sizeof(*m));
    int r;

    pst_assert(settings->rank < settings->world_size && settings->world_size <= ROUND_RANKS_MAX);
    if (m) {
        m->settings = *settings;
        m->listen_fd = -1;
        m->until_ns = pst_deadline_ns(pst_now_ns(), settings->timeout_ms);
        m->peers_max = settings->rank == 0 ? settings->world_size - 1 + NEWCOMERS_MAX : 1;
        m->peers = calloc(m->peers_max, sizeof(m->peers[0]));
        m->has_come = calloc(settings->world_size, sizeof(m->has_come[0]));
    }
    if (!m || !m->peers || !m->has_come) {
        snprintf(fault, PST_FAULT_BYTES, "%s", strerror(ENOMEM));
        meeting_close(m);
        return -ENOMEM;
    }
    r = meeting_said(m, is_master(m) ? meeting_gather(m) : go_to_master(m), fault);
    if (r < 0) {
        say_error_to_all(m);
        meeting_close(m);
        return r;
    }
    *out = m;
    return 0;
}

const char *meeting_no_nccl(const struct meeting *m)
{
    pst_assert(is_master(m));
    return m->no_nccl[0] ? m->no_nccl : NULL;
}

/* ---- the way ---- */

static int way_print(const struct meeting_way *way, struct pst_json *line)
{
    char id[2 * PST_NCCL_ID_BYTES + 1];

    pst_assert(way->by_nccl || (way->port > 0 && way->group[0]));
    if (way->by_nccl) {
        pst_hex_print(way->id, sizeof(way->id), id);
        return pst_json_add_text(line, "way", "nccl") < 0 || pst_json_add_text(line, "id", id) < 0 ? -ENOMEM
                                                                                                   : 0;
    }
    return pst_json_add_text(line, "way", "row") < 0 || pst_json_add_integer(line, "port", way->port) < 0 ||
                   pst_json_add_text(line, "group", way->group) < 0
               ? -ENOMEM
               : 0;
}

static bool way_parse(const struct pst_json *line, struct meeting_way *way)
{
    const char *kind = pst_json_text(pst_json_get(line, "way")),
               *id = pst_json_text(pst_json_get(line, "id"));
    const char *group = pst_json_text(pst_json_get(line, "group"));
    int64_t port = 0;

    pst_assert(line);
    *way = (struct meeting_way){.by_nccl = kind && strcmp(kind, "nccl") == 0};
    if (way->by_nccl)
        return id && strlen(id) == 2 * sizeof(way->id) && pst_hex_parse(id, way->id, sizeof(way->id));
    if (!kind || strcmp(kind, "row") != 0 || !group || strlen(group) >= sizeof(way->group) ||
        !pst_json_integer(pst_json_get(line, "port"), &port) || port < 1 || port > UINT16_MAX)
        return false;
    way->port = (uint16_t)port;
    snprintf(way->group, sizeof(way->group), "%s", group);
    return true;
}

int meeting_begin(struct meeting *m, const struct meeting_way *way, char fault[PST_FAULT_BYTES])
{
    struct pst_json *line = pst_json_new_object();
    int r = line ? way_print(way, line) : -ENOMEM;

    pst_assert(is_master(m) && !m->begun);
    m->begun = true;
    for (uint32_t i = 0; r == 0 && i < m->peer_count; i++)
        if (m->peers[i]->state != NEW)
            r = round_say(m->peers[i]->fd, line);
    pst_json_free(line);
    if (r < 0)
        meeting_fail(m, r, "rank 0 cannot say how: %s", strerror(-r));
    return meeting_said(m, m->error, fault);
}

/* Rank 0 has gone before it has said a word, perhaps to make room: this rank calls again. */
static int await_once(struct meeting *m)
{
    pst_assert(m->peer_count <= 1);
    if (m->peer_count == 0 && !m->heard_once && pst_now_ns() < m->until_ns) {
        poll(NULL, 0, AGAIN_MS);
        return go_to_master(m);
    }
    if (m->peer_count == 0 && m->was_busy)
        return meeting_fail(m, -ETIMEDOUT, "another group meets at rank 0's port %u", m->settings.port);
    if (m->peer_count == 0)
        return meeting_fail(m, -ECONNRESET, "rank 0 has gone");
    if (pst_now_ns() >= pst_deadline_ns(m->until_ns, GRACE_MS))
        return meeting_fail(m, -ETIMEDOUT, "not all ranks came within %llu s",
                            (unsigned long long)m->settings.timeout_ms / 1000);
    return meeting_turn(m, -1, ROUND_LOOK_MS);
}

int meeting_await(struct meeting *m, struct meeting_way *way, char fault[PST_FAULT_BYTES])
{
    int r = 0;

    pst_assert(!is_master(m));
    while (r == 0 && !m->way)
        r = await_once(m);
    if (r == 0 && !way_parse(m->way, way))
        r = meeting_fail(m, -EPROTO, "rank 0 says a way that is not known here");
    return meeting_said(m, r, fault);
}

/* ---- the end ---- */

static int say_done(struct meeting *m)
{
    struct pst_json *line = pst_json_new_object();
    int r = line ? pst_json_add_flag(line, is_master(m) ? "end" : "done", true) : -ENOMEM;

    pst_assert(m->is_done);
    for (uint32_t i = 0; r == 0 && i < m->peer_count; i++)
        if (m->peers[i]->state != NEW && round_say(m->peers[i]->fd, line) < 0 && !is_master(m))
            r = meeting_fail(m, -ECONNRESET, "rank 0 has gone");
    pst_json_free(line);
    return r < 0 ? meeting_fail(m, r, "%s", strerror(-r)) : 0;
}

static bool all_are_done(const struct meeting *m)
{
    pst_assert(m->done <= m->there);
    return is_master(m) ? m->done == m->there : m->all_done;
}

int meeting_end(struct meeting *m, int result, char fault[PST_FAULT_BYTES])
{
    uint64_t until_ns = pst_deadline_ns(pst_now_ns(), ROUND_MOVE_MS_MAX);
    int r = m->error;

    if (result < 0 && r == 0) {
        r = meeting_fail(m, result, "%s", fault);
        m->names_rank = false;
    }
    m->is_done = r == 0;
    if (r == 0 && !is_master(m))
        r = say_done(m);
    while (r == 0 && !all_are_done(m))
        r = pst_now_ns() < until_ns ? meeting_turn(m, -1, ROUND_LOOK_MS)
                                    : meeting_fail(m, -ETIMEDOUT, "not all ranks were done within an hour");
    if (r == 0 && is_master(m))
        say_done(m);
    if (r < 0)
        say_error_to_all(m);
    return meeting_said(m, r, fault);
}

/* A socket that closes with something unread could take away what was said last: all read until all have
 * ended. */
static void meeting_part(struct meeting *m)
{
    uint64_t until_ns = pst_deadline_ns(pst_now_ns(), PART_MS);
    char dropped[ROUND_LINE_BYTES_MAX];

    for (uint32_t i = 0; i < m->peer_count; i++)
        shutdown(m->peers[i]->fd, SHUT_WR);
    while (m->peer_count > 0 && pst_now_ns() < until_ns) {
        struct pollfd last = {.fd = m->peers[m->peer_count - 1]->fd, .events = POLLIN};

        if (poll(&last, 1, (int)pst_ms_left(until_ns, pst_now_ns())) > 0 &&
            read(last.fd, dropped, sizeof(dropped)) <= 0)
            peer_drop(m, m->peer_count - 1);
    }
}

struct meeting *meeting_close(struct meeting *m)
{
    if (!m)
        return NULL;
    if (m->peers)
        meeting_part(m);
    while (m->peers && m->peer_count > 0)
        peer_drop(m, m->peer_count - 1);
    pst_close_fd(&m->listen_fd);
    pst_json_free(m->way);
    free(m->peers);
    free(m->has_come);
    free(m);
    return NULL;
}

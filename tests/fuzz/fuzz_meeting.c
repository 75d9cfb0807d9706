/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_meeting.c: what the others say when ranks meet, to rank 0 or to another rank. Five bytes are the
 * settings, the rest is what the peers say:
 *
 *     ~   a pause: the rest is said once this side has heard what came before, and waits
 *     |   another peer, at the same time
 *     ^   another peer, which comes once the one before it has ended
 *
 * The sockets are ends of socket pairs, and the clock is the fuzzer's: a wait takes no time, and shows
 * whether it would ever end. What this side says are lines, each with an object; it closes each descriptor
 * once; an error has a text. What it concludes is read a second time, out of the bytes that have gone.
 */
#include "fuzz.h"

#include "agent/round/lines.h"
#include "agent/round/meeting.h"
#include "base/ms.h"
#include "net/address.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>

enum {
    PEERS_MAX = 70,
    NEWCOMERS_MAX = 64, /* as meeting.c has it: more may be turned away */
    HEARD_BYTES_MAX = 1 << 18,
    STUCK_MS = 200 * 1000, /* without a word of anybody: longer than all times of a meeting together */
    LOOKS = 3,
};

enum { BIG_WORLD = 1, TOKEN = 2, NO_NCCL = 4, NO_PORT = 8, BY_NCCL = 16, FAILS = 32, LOOKS_AT_FD = 64 };

/* What a peer does after its last word. */
enum peer_end { SHUTS, CLOSES, SHUTS_LATER, IS_SILENT };

struct peer {
    const uint8_t *script;
    size_t bytes, said, gone; /* said: of the script; gone: without the pauses, in @words */
    size_t in_time;           /* of @words, before rank 0 ceased to listen */
    uint8_t *words;
    enum peer_end end;
    bool after; /* the one before it has ended */
    bool came, ended;
    int fd;                 /* the peer's; -1: closed */
    int this_fd;            /* this side's; -1: not there, or closed */
    uint64_t accepted_poll; /* the number of this side's next poll(); 0: not accepted */
    char *heard;
    size_t heard_bytes;
};

static struct {
    struct meeting_settings settings;
    uint32_t flags, refusals, over_in; /* 0: never */
    struct peer peers[PEERS_MAX];
    uint32_t peer_count;
    int listen_fd; /* counts those who have come and were not accepted */
    bool listens, runs;
    uint64_t now_ns, word_ns, polls;
} world;

/* ---- the peers ---- */

static void peer_hear(struct peer *peer)
{
    ssize_t n;

    if (!peer->came || peer->fd < 0)
        return;
    do {
        pst_assert(peer->heard_bytes < HEARD_BYTES_MAX);
        n = recv(peer->fd, peer->heard + peer->heard_bytes, HEARD_BYTES_MAX - peer->heard_bytes,
                 MSG_DONTWAIT);
        peer->heard_bytes += n > 0 ? (size_t)n : 0;
    } while (n > 0);
}

static void peer_come(struct peer *peer)
{
    int ends[2];

    pst_assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    peer->fd = ends[0];
    peer->this_fd = ends[1];
    peer->came = true;
    peer->heard = malloc(HEARD_BYTES_MAX);
    pst_assert(peer->heard);
    if (world.listen_fd >= 0)
        pst_assert(eventfd_write(world.listen_fd, 1) == 0);
}

static void peer_finish(struct peer *peer)
{
    peer->ended = true;
    if (peer->end == CLOSES) {
        peer_hear(peer);
        pst_close_fd(&peer->fd);
    } else if (peer->end != IS_SILENT) {
        shutdown(peer->fd, SHUT_WR);
    }
}

/* Says what comes before the next pause. What the socket does not take is lost. */
static void peer_say(struct peer *peer)
{
    const uint8_t *from = peer->script + peer->said;
    size_t left = peer->bytes - peer->said;
    const uint8_t *pause = left > 0 ? memchr(from, '~', left) : NULL;
    size_t bytes = pause ? (size_t)(pause - from) : left;
    ssize_t n = bytes > 0 ? send(peer->fd, from, bytes, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;

    if (n > 0) {
        memcpy(peer->words + peer->gone, from, (size_t)n);
        peer->gone += (size_t)n;
    }
    peer->said += pause ? bytes + 1 : bytes;
    if (peer->said == peer->bytes && peer->end != SHUTS_LATER)
        peer_finish(peer);
}

/* Each says some more, or ends, or comes. Return: whether one did. */
static bool peers_go_on(void)
{
    bool any = false;

    for (uint32_t i = world.peer_count; i-- > 0;) {
        struct peer *peer = &world.peers[i];

        peer_hear(peer);
        if (peer->ended || (!peer->came && peer->after && !world.peers[i - 1].ended))
            continue;
        any = true;
        if (!peer->came)
            peer_come(peer);
        else if (peer->said < peer->bytes)
            peer_say(peer);
        else
            peer_finish(peer);
    }
    if (any)
        world.word_ns = world.now_ns;
    return any;
}

static struct peer *peer_of(int fd)
{
    for (uint32_t i = 0; i < world.peer_count; i++)
        if (world.peers[i].came && world.peers[i].this_fd == fd)
            return &world.peers[i];
    return NULL;
}

/* Whether it is a peer's own end. */
static bool is_peers(int fd)
{
    for (uint32_t i = 0; i < world.peer_count; i++)
        if (world.peers[i].came && world.peers[i].fd == fd)
            return true;
    return false;
}

/* ---- the system ---- */

int __real_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out)
{
    if (!world.runs || id != CLOCK_MONOTONIC)
        return __real_clock_gettime(id, out);
    *out = (struct timespec){(time_t)(world.now_ns / 1000000000), (long)(world.now_ns % 1000000000)};
    return 0;
}

int __real_poll(struct pollfd *fds, nfds_t count, int wait_ms);
int __wrap_poll(struct pollfd *fds, nfds_t count, int wait_ms);
int __wrap_poll(struct pollfd *fds, nfds_t count, int wait_ms)
{
    int r;

    if (!world.runs)
        return __real_poll(fds, count, wait_ms);
    pst_assert(wait_ms >= 0);
    world.polls++;
    r = __real_poll(fds, count, 0);
    if (r != 0 || wait_ms == 0)
        return r;
    world.now_ns += pst_ns_of_ms((uint64_t)wait_ms);
    if (peers_go_on())
        return __real_poll(fds, count, 0);
    pst_assert(world.now_ns - world.word_ns < pst_ns_of_ms(STUCK_MS)); /* it would wait for ever */
    return 0;
}

int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
    struct peer *peer;

    if (!world.runs)
        return __real_close(fd);
    if (fd == world.listen_fd && world.listens) {
        world.listens = false;
        for (uint32_t i = 0; i < world.peer_count; i++)
            world.peers[i].in_time = world.peers[i].gone;
        return 0; /* the fuzzer's: it goes on counting */
    }
    if (is_peers(fd))
        return __real_close(fd);
    peer = peer_of(fd);
    pst_assert(peer); /* else it is closed twice */
    pst_assert(peer->accepted_poll > 0);
    /* There is room for all: none is turned away before it was listened to. */
    pst_assert(peer->accepted_poll <= world.polls || world.peer_count > NEWCOMERS_MAX ||
               world.settings.rank > 0);
    peer_hear(peer);
    peer->this_fd = -1;
    return __real_close(fd);
}

int __real_accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags);
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags);
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags)
{
    eventfd_t one;

    if (!world.runs)
        return __real_accept4(fd, address, bytes, flags);
    pst_assert(world.listens && fd == world.listen_fd && flags == (SOCK_CLOEXEC | SOCK_NONBLOCK));
    for (uint32_t i = 0; i < world.peer_count; i++) {
        struct peer *peer = &world.peers[i];

        if (!peer->came || peer->accepted_poll > 0)
            continue;
        pst_assert(eventfd_read(world.listen_fd, &one) == 0);
        peer->accepted_poll = world.polls + 1;
        return peer->this_fd;
    }
    errno = EAGAIN;
    return -1;
}

int __wrap_pst_boot_listen_tcp(struct pst_boot_address *address);
int __wrap_pst_boot_listen_tcp(struct pst_boot_address *address)
{
    pst_assert(world.settings.rank == 0 && address->port == world.settings.port);
    if (world.flags & NO_PORT)
        return -EADDRINUSE;
    world.listens = true;
    return world.listen_fd;
}

int __wrap_pst_boot_connect(const struct pst_boot_address *address, uint64_t deadline_ns, const char **fault);
int __wrap_pst_boot_connect(const struct pst_boot_address *address, uint64_t deadline_ns, const char **fault)
{
    struct peer *peer = &world.peers[0];

    pst_assert(world.settings.rank > 0 && address->port == world.settings.port);
    pst_assert(deadline_ns <= world.now_ns + pst_ns_of_ms(5000));
    if (world.refusals > 0 || world.flags & NO_PORT || peer->accepted_poll > 0) { /* it is called once */
        world.refusals -= world.refusals > 0;
        *fault = "connection refused";
        return -ECONNREFUSED;
    }
    if (!peer->came)
        peer_come(peer);
    peer->accepted_poll = world.polls + 1;
    return peer->this_fd;
}

static bool is_over(void *ctx)
{
    pst_assert(ctx == &world);
    return world.over_in > 0 && --world.over_in == 0;
}

/* ---- what was said, read a second time ---- */

/* The next line of the first @bytes that a peer has said, an object. Return: NULL: there is none, or what
 * comes is none, and nobody reads beyond it. */
static struct pst_json *peer_line(const struct peer *peer, size_t bytes, size_t *at)
{
    const uint8_t *from = peer->words + *at;
    const uint8_t *end = memchr(from, '\n', pst_min(bytes - *at, ROUND_LINE_BYTES_MAX));
    struct pst_json *line = NULL;
    const char *why = NULL;

    if (!end || pst_json_parse((struct pst_bytes){from, (size_t)(end - from)}, &line, &why) < 0)
        return NULL;
    *at += (size_t)(end - from) + 1;
    return pst_json_is_object(line) ? line : pst_json_free(line);
}

static bool text_is(const struct pst_json *line, const char *name, const char *wanted)
{
    const char *text = pst_json_text(pst_json_get(line, name));

    return text && strcmp(text, wanted) == 0;
}

static int64_t number_of(const struct pst_json *line, const char *name)
{
    int64_t number = 0;

    return pst_json_integer(pst_json_get(line, name), &number) ? number : 0;
}

/* The rank of a peer that belongs to the meeting, and that (@agrees) expects what rank 0 does; 0: none. */
static int64_t peer_rank(const struct peer *peer, bool agrees)
{
    const struct meeting_settings *settings = &world.settings;
    size_t at = 0;
    struct pst_json *hello = peer_line(peer, peer->in_time, &at);
    int64_t rank = number_of(hello, "rank");
    bool good = hello && (settings->token.len == 0 || text_is(hello, "token", settings->token.data)) &&
                text_is(hello, "group_id", settings->group) && rank >= 1 && rank < settings->world_size;

    if (good && agrees)
        good = text_is(hello, "tensors", settings->digest) &&
               number_of(hello, "world_size") == settings->world_size;
    pst_json_free(hello);
    return good ? rank : 0;
}

/* Whether a line behind the first @skip says @name. */
static bool peer_says(const struct peer *peer, const char *name, uint32_t skip)
{
    struct pst_json *line;
    bool says = false, flag;
    size_t at = 0;

    while (!says && (line = peer_line(peer, peer->gone, &at))) {
        says = skip == 0 && pst_json_flag(pst_json_get(line, name), &flag);
        skip -= skip > 0;
        pst_json_free(line);
    }
    return says;
}

/* Whether each of the other ranks has come, and agrees, and is done. */
static bool all_ranks(bool agree, bool done)
{
    uint32_t ranks = 0, all = (1u << world.settings.world_size) - 2;

    for (uint32_t i = 0; i < world.peer_count; i++) {
        const struct peer *peer = &world.peers[i];
        int64_t rank = peer_rank(peer, agree);

        if (rank > 0 && (!done || peer_says(peer, "done", 1)))
            ranks |= 1u << rank;
    }
    return ranks == all;
}

/* What a peer has heard is lines, and the first one that another rank says is its hello. */
static void check_heard(const struct peer *peer)
{
    const struct meeting_settings *settings = &world.settings;
    const char *at = peer->heard, *end = peer->heard + peer->heard_bytes;
    bool first = settings->rank > 0;

    for (const char *stop; at < end; at = stop + 1, first = false) {
        struct pst_json *line = NULL;
        const char *why = NULL;

        stop = memchr(at, '\n', (size_t)(end - at));
        pst_assert(stop);
        pst_assert(pst_json_parse((struct pst_bytes){at, (size_t)(stop - at)}, &line, &why) == 0);
        pst_assert(pst_json_is_object(line));
        if (first)
            pst_assert(number_of(line, "rank") == settings->rank &&
                       text_is(line, "tensors", settings->digest));
        pst_json_free(line);
    }
}

static void check_result(int r, const char fault[PST_FAULT_BYTES])
{
    size_t bytes = r < 0 ? strnlen(fault, PST_FAULT_BYTES) : 1;

    pst_assert(r <= 0);
    pst_assert(bytes > 0 && bytes < PST_FAULT_BYTES);
}

/* ---- the two sides ---- */

/* Looks, and says how it went. Return: as meeting_end(). */
static int look_and_end(struct meeting *meeting, int r, char fault[PST_FAULT_BYTES])
{
    static int readable_fd = -1;
    int fd = -1;

    if (readable_fd < 0)
        readable_fd = eventfd(1, EFD_CLOEXEC);
    if (world.flags & LOOKS_AT_FD)
        fd = readable_fd;
    for (uint32_t i = 0; r == 0 && i < LOOKS; i++) {
        r = meeting_look(meeting, fd, i * 100, fault);
        check_result(r, fault);
    }
    if (r == 0 && world.flags & FAILS) {
        r = -EIO;
        snprintf(fault, PST_FAULT_BYTES, "tensor '\xff': it broke");
    }
    r = meeting_end(meeting, r, fault);
    check_result(r, fault);
    return r;
}

static void be_master(char fault[PST_FAULT_BYTES])
{
    struct meeting_way way = {.by_nccl = world.flags & BY_NCCL, .port = 7, .group = "abcdef"};
    struct meeting *meeting = NULL;
    int r = meeting_open(&world.settings, &meeting, fault);
    const char *no_nccl;

    check_result(r, fault);
    pst_assert((r == 0) == (meeting != NULL));
    if (r == 0)
        pst_assert(all_ranks(true, false));
    else if (r == -ETIMEDOUT && strstr(fault, "did not come") && world.peer_count <= NEWCOMERS_MAX)
        pst_assert(!all_ranks(false, false));
    if (r < 0)
        return;
    no_nccl = meeting_no_nccl(meeting);
    pst_assert(!no_nccl || *no_nccl);
    r = meeting_begin(meeting, &way, fault);
    check_result(r, fault);
    r = look_and_end(meeting, r, fault);
    if (r == 0)
        pst_assert(all_ranks(true, true));
    pst_assert(!meeting_close(meeting));
}

static void be_other(char fault[PST_FAULT_BYTES])
{
    struct meeting *meeting = NULL;
    struct meeting_way way;
    int r = meeting_open(&world.settings, &meeting, fault);

    check_result(r, fault);
    pst_assert((r == 0) == (meeting != NULL));
    if (r < 0)
        return;
    r = meeting_await(meeting, &way, fault);
    check_result(r, fault);
    if (r == 0 && !way.by_nccl)
        pst_assert(way.port >= 1 && memchr(way.group, 0, sizeof(way.group)));
    r = look_and_end(meeting, r, fault);
    if (r == 0)
        pst_assert(peer_says(&world.peers[0], "end", 0));
    pst_assert(!meeting_close(meeting));
}

/* ---- an input ---- */

static void peers_parse(struct fuzz *in, uint32_t ends)
{
    const uint8_t *at = in->at, *end = in->at + in->left;
    uint32_t peers_max = world.settings.rank == 0 ? PEERS_MAX : 1;
    bool after = false;

    do {
        struct peer *peer = &world.peers[world.peer_count];
        const uint8_t *stop = at;

        while (stop < end && *stop != '|' && *stop != '^')
            stop++;
        *peer = (struct peer){.script = at,
                              .bytes = (size_t)(stop - at),
                              .words = malloc((size_t)(stop - at) + 1),
                              .end = (enum peer_end)(ends >> 2 * (world.peer_count % 3) & 3),
                              .after = after,
                              .fd = -1,
                              .this_fd = -1};
        pst_assert(peer->words);
        world.peer_count++;
        after = stop < end && *stop == '^';
        at = stop + 1;
    } while (at < end && world.peer_count < peers_max);
}

static void world_begin(struct fuzz *in)
{
    uint32_t rank = fuzz_below(in, 2), flags = fuzz_below(in, 256), times = fuzz_below(in, 256);
    uint32_t over_in = fuzz_below(in, 256), ends = fuzz_below(in, 256);

    memset(&world, 0, sizeof(world));
    world.flags = flags;
    world.refusals = times >> 4 & 3;
    world.over_in = over_in & 128 ? (over_in & 127) + 1 : 0;
    world.now_ns = world.word_ns = pst_ns_of_ms(1000 * 1000);
    world.settings = (struct meeting_settings){.group = "g",
                                               .host = "127.0.0.1",
                                               .port = 29500,
                                               .rank = rank,
                                               .world_size = flags & BIG_WORLD ? 3 : 2,
                                               .digest = "0123456789abcdef0123456789abcdef",
                                               .no_nccl = flags & NO_NCCL ? "no GPU" : NULL,
                                               .token = {"secret", flags & TOKEN ? 6 : 0},
                                               .timeout_ms = 1u << (times & 15),
                                               .is_over = is_over,
                                               .ctx = &world};
    world.listen_fd = -1;
    peers_parse(in, ends);
    if (rank == 0)
        world.listen_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
    pst_assert(rank > 0 || world.listen_fd >= 0);
}

static void world_end(void)
{
    pst_assert(!world.listens);
    for (uint32_t i = 0; i < world.peer_count; i++) {
        struct peer *peer = &world.peers[i];

        pst_assert(peer->accepted_poll == 0 || peer->this_fd < 0);
        peer_hear(peer);
        if (peer->came)
            check_heard(peer);
        pst_close_fd(&peer->this_fd);
        pst_close_fd(&peer->fd);
        free(peer->words);
        free(peer->heard);
    }
    pst_close_fd(&world.listen_fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz in = {data, bytes};
    char fault[PST_FAULT_BYTES];

    signal(SIGPIPE, SIG_IGN); /* as the daemon does */
    memset(fault, 'x', sizeof(fault));
    world_begin(&in);
    world.runs = true;
    if (world.settings.rank == 0)
        be_master(fault);
    else
        be_other(fault);
    world.runs = false;
    world_end();
    return 0;
}

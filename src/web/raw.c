/* SPDX-License-Identifier: Apache-2.0 */
/*
 * raw.c: an rsync client that came without a WebSocket, joined to the daemon. Each direction has a flow of
 * 64 KiB and ends by itself; the pair ends when both have.
 */
#include "web/web_priv.h"

#include "base/clock.h"

#include <sys/epoll.h>

struct raw {
    struct party party;
    struct watch client, daemon;
    struct flow up, down; /* to the daemon, to the client */
    bool connecting;
};

static struct raw *raw_cast(struct party *party)
{
    pst_assert(party && party->magic == PARTY_MAGIC);
    return pst_container_of(party, struct raw, party);
}

static void raw_close(struct party *party)
{
    struct raw *raw = raw_cast(party);

    watch_close(party->web, &raw->client);
    watch_close(party->web, &raw->daemon);
    flow_fini(&raw->up);
    flow_fini(&raw->down);
    party_close(party);
}

static void raw_free(struct party *party)
{
    free(pst_container_of(party, struct raw, party));
}

/* A peer that has to read and does not, or whose other side is done; or both are silent. */
static void raw_tick(struct party *party, uint64_t now_ns)
{
    struct raw *raw = raw_cast(party);

    if (party_is_late(party, raw->connecting || raw->up.ended || raw->down.ended, now_ns))
        raw_close(party);
}

static uint32_t events_of(const struct flow *from, const struct flow *to)
{
    return (flow_room(from) > 0 ? EPOLLIN : 0u) | (flow_waits(to) ? EPOLLOUT : 0u);
}

/* Moves what there is, one way. Return: false the pair is to end. */
static bool move(struct raw *raw, struct flow *flow, const struct watch *from, const struct watch *to)
{
    uint64_t before = flow->moved;
    bool was_shut = flow->shut;

    if (flow_fill(flow, from->fd) < 0)
        return false;
    if (!(raw->connecting && to == &raw->daemon) && flow_drain(flow, to->fd) < 0)
        return false;
    if (flow->moved != before || flow->shut != was_shut)
        raw->party.moved_ns = pst_now_ns();
    return true;
}

static void raw_ready(struct pst_web *web, struct watch *watch, uint32_t events)
{
    struct raw *raw = raw_cast(watch->party);
    bool good = true;

    pst_assert(watch == &raw->client || watch == &raw->daemon);
    if (raw->connecting && watch == &raw->daemon) {
        raw->connecting = false;
        good = tunnel_connected(watch->fd);
    }
    good = good && move(raw, &raw->up, &raw->client, &raw->daemon);
    if (good && !raw->connecting)
        good = move(raw, &raw->down, &raw->daemon, &raw->client);
    if (events & EPOLLERR || !good || (raw->up.shut && raw->down.shut)) {
        raw_close(&raw->party);
        return;
    }
    if (events & EPOLLHUP) /* both of its directions are over: the rest is the other one's to take */
        watch_silence(web, watch);
    if (raw->client.silent && raw->daemon.silent) {
        raw_close(&raw->party);
        return;
    }
    watch_set(web, &raw->client, events_of(&raw->up, &raw->down));
    watch_set(web, &raw->daemon, raw->connecting ? EPOLLOUT : events_of(&raw->down, &raw->up));
}

void raw_open(struct party *from, int fd)
{
    static const struct party_ops ops = {
        .tick = raw_tick, .drop = raw_close, .close = raw_close, .free = raw_free};
    static const char full[] = "@ERROR: too many connections; try again later\n";
    struct pst_web *web = from->web;
    bool passes = loop_make_passage(web);
    struct raw *raw = passes ? calloc(1, sizeof(*raw)) : NULL;
    int daemon = raw ? tunnel_connect(&web->tunnels[0]) : -ENOMEM;

    if (!passes)
        (void)!send(fd, full, sizeof(full) - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (daemon < 0) {
        close(fd);
        free(raw);
        return;
    }
    party_open(&raw->party, &ops, web);
    party_pass_seat(from, &raw->party);
    watch_init(&raw->client, &raw->party, raw_ready);
    watch_init(&raw->daemon, &raw->party, raw_ready);
    raw->connecting = raw->party.passes = true;
    raw->party.moved_ns = pst_now_ns();
    if (watch_open(web, &raw->client, fd, EPOLLIN) < 0) {
        close(daemon);
        raw_close(&raw->party);
    } else if (watch_open(web, &raw->daemon, daemon, EPOLLOUT) < 0) {
        raw_close(&raw->party);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* port.c: a worker's port: opened, watched, and opened anew when a client that is gone left its shared memory
 * blocked, a transfer that does not end, or messages that nobody will take. */
#include "node/node_priv.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/hash.h"
#include "base/ms.h"

enum {
    EVENTS_MAX = 16384, /* transport operations of a shard in flight */
    PROBE_NS = 200000000,
    PROBE_MS = 50,
    AWAKE_NS_MAX = 2 * PROBE_MS * 1000000, /* a longer time between two ticks was not the thread's own */
    STUCK_NS = 1000000000, /* a connection closed by force is gone in a millisecond, or never */
    IDLE_MS = 1000,
    REOPEN_MS_MAX = 1000,
};

static int read_addresses(struct pst_worker *w)
{
    int r = 0;

    pst_assert(w->port);
    pthread_mutex_lock(&w->inbox_lock);
    for (int network_only = 0; r >= 0 && network_only < 2; network_only++) {
        r = pst_port_address(w->port, network_only, w->address[network_only], PST_NET_ADDRESS_BYTES_MAX);
        pst_assert(r <= PST_NET_ADDRESS_BYTES_MAX);
        w->address_bytes[network_only] = r < 0 ? 0 : (size_t)r;
    }
    pthread_mutex_unlock(&w->inbox_lock);
    return r < 0 ? r : 0;
}

/* From here on clients are told that the node is busy. */
static void forget_addresses(struct pst_worker *w)
{
    pthread_mutex_lock(&w->inbox_lock);
    w->address_bytes[false] = w->address_bytes[true] = 0;
    pthread_mutex_unlock(&w->inbox_lock);
}

static void close_port(struct pst_worker *w)
{
    pst_assert(w->port);
    forget_addresses(w);
    w->port = pst_port_close(w->port);
    w->probe.self = NULL;
}

int pst_worker_open_port(struct pst_worker *w)
{
    int r;

    pst_assert(!w->port);
    pst_assert(!w->probe.self);
    r = pst_fault(PST_FAULT_node_port_fails) ? -ENOMEM : pst_port_open(w->node->net, EVENTS_MAX, &w->port);
    if (r == 0)
        r = read_addresses(w);
    if (r == 0) {
        pst_random(&w->probe.token, sizeof(w->probe.token));
        r = pst_peer_open(w->port, w->address[0], w->address_bytes[0], w, &w->probe.self);
    }
    if (r < 0 && w->port)
        close_port(w);
    return r;
}

int pst_worker_open_stream(struct pst_worker *w)
{
    pst_assert(!w->stream);
    return w->node->stream ? pst_port_open(w->node->stream, EVENTS_MAX, &w->stream) : 0;
}

void pst_worker_stream_address(struct pst_worker *w, void *buf, uint16_t *bytes)
{
    int r = pst_port_address(w->stream, true, buf, PST_NET_ADDRESS_BYTES_MAX);

    pst_assert(r > 0);
    *bytes = (uint16_t)r;
}

int pst_worker_address(struct pst_worker *w, bool network_only, void *buf, uint16_t *bytes)
{
    pthread_mutex_lock(&w->inbox_lock);
    pst_assert(w->address_bytes[network_only] <= sizeof(w->address[0]));
    *bytes = (uint16_t)w->address_bytes[network_only];
    memcpy(buf, w->address[network_only], *bytes);
    pthread_mutex_unlock(&w->inbox_lock);
    return *bytes > 0 ? 0 : -EBUSY;
}

/* What gathers for free is shared memory; without it there is no queue that a client could block. A peer that
 * is being closed may be gone before its event is read. */
void pst_probe_want(struct pst_worker *w)
{
    if (w->probe.self && !w->probe.reopening)
        w->probe.due |= pst_peer_gathers(w->probe.self);
}

static void send_probe(struct pst_worker *w)
{
    struct pst_wire_head head = {
        .type = PST_WIRE_WELCOME, .version = PST_WIRE_VERSION, .token = w->probe.token};
    int r;

    pst_assert(w->probe.self);
    pst_assert(!w->probe.reopening);
    pst_assert(!w->probe.sent_ns);
    r = pst_fault(PST_FAULT_node_probe_lost)
            ? 1
            : pst_peer_send(w->probe.self, (struct pst_bytes){&head, sizeof(head)},
                            (struct pst_bytes){NULL, 0}, NULL);
    if (r == -EBUSY)
        return; /* at the next tick */
    w->probe.due = false;
    w->probe.sent_ns = w->probe.awake_ns;
}

static void begin_reopening(struct pst_worker *w, const char *why)
{
    pst_assert(!w->probe.reopening);
    pst_node_log(w->node, "shard %u: %s: clients connect anew", w->number, why);
    forget_addresses(w);
    w->probe.reopening = true;
    w->probe.reopening_ns = w->probe.awake_ns;
    w->probe.due = false;
    w->probe.sent_ns = w->probe.unarmed_ns = 0;
    pst_list_each_safe (it, &w->shard_sessions) {
        struct pst_shard_session *v = pst_list_entry(it, struct pst_shard_session, link);

        if (!v->session->stream)
            pst_shard_session_leave(v, "shared memory was blocked");
    }
    if (w->probe.self)
        pst_peer_close(w->probe.self);
}

/* Since @since_ns, of the probe's clock, what ends in a millisecond or never has not ended. */
static bool overdue(const struct pst_worker *w, uint64_t since_ns)
{
    return w->probe.awake_ns > since_ns + STUCK_NS;
}

/*
 * A transfer with a client that was killed may never end, and with it neither do its pages nor the node. One
 * with a client that is stopped or takes nothing ends when the client goes on or dies: until then its pages
 * count against its quota, and nobody else notices.
 */
static bool transfer_stuck(struct pst_worker *w)
{
    pst_assert(!w->parting || !pst_list_empty(&w->shard_sessions));
    if (!w->parting)
        return false;
    pst_list_each (it, &w->shard_sessions) {
        const struct pst_shard_session *v = pst_list_entry(it, struct pst_shard_session, link);

        if (v->leaving && v->peer && !v->session->stream && (v->ended || w->node->stopping) &&
            overdue(w, v->leaving_ns))
            return true;
    }
    return false;
}

/*
 * UCX keeps what it could not hand to a client before that was killed, and memory of that client with it, for
 * good. The shard notices that UCX has something to do while nothing is underway. What a living client has
 * not taken looks the same, so the shard waits until those that were told to go have gone.
 */
static bool messages_stuck(const struct pst_worker *w)
{
    if (!w->probe.unarmed_ns || !overdue(w, w->probe.unarmed_ns) || w->underway > 0)
        return false;
    pst_list_each (it, &w->shard_sessions) {
        const struct pst_shard_session *v = pst_list_entry(it, struct pst_shard_session, link);

        if (v->leaving && !v->ended)
            return false;
    }
    return true;
}

enum peers_left { PEERS_NONE, PEERS_ENDING, PEERS_STUCK };

/* Whether the closing of a peer may still come to an end by itself. */
static enum peers_left peers_left(const struct pst_worker *w)
{
    const struct pst_probe *probe = &w->probe;
    enum peers_left left = PEERS_NONE;

    if (probe->self)
        left = overdue(w, probe->reopening_ns) ? PEERS_STUCK : PEERS_ENDING;
    pst_list_each (it, &w->shard_sessions) {
        const struct pst_shard_session *v = pst_list_entry(it, struct pst_shard_session, link);

        if (v->session->stream)
            continue;
        if (v->peer && !overdue(w, v->leaving_ns))
            return PEERS_ENDING;
        if (v->peer && left == PEERS_NONE)
            left = PEERS_STUCK;
    }
    return left;
}

/* A process that is out of descriptors or memory for the moment gets them back: the shard tries again. */
static void reopen(struct pst_worker *w)
{
    struct pst_probe *probe = &w->probe;
    enum peers_left left = peers_left(w);
    int r;

    pst_assert(probe->reopening);
    if (w->port && left != PEERS_NONE) {
        if (left == PEERS_STUCK)
            pst_port_abandon(w->port); /* the peers' ends come with the next poll */
        return;
    }
    if (w->port)
        close_port(w);
    if (w->now_ns < probe->retry_ns)
        return;
    r = pst_worker_open_port(w);
    if (r < 0 && probe->retry_ms == 0)
        pst_node_log(w->node, "shard %u: cannot open its port, tries again: %s", w->number, strerror(-r));
    else if (r == 0 && probe->retry_ms > 0)
        pst_node_log(w->node, "shard %u: its port is open again", w->number);
    probe->retry_ms = r < 0 ? (uint32_t)pst_min(pst_max(2ull * probe->retry_ms, PROBE_MS), REOPEN_MS_MAX) : 0;
    probe->retry_ns = pst_deadline_ns(w->now_ns, probe->retry_ms);
    probe->reopening = r < 0;
    pst_assert(probe->reopening == !w->port);
}

int pst_probe_tick(struct pst_worker *w)
{
    struct pst_probe *probe = &w->probe;

    pst_assert(w->port || probe->reopening || !w->node->net);
    pst_assert(w->now_ns >= probe->ticked_ns);
    pst_assert(!probe->sent_ns || (!probe->reopening && probe->sent_ns <= probe->awake_ns));
    probe->awake_ns += pst_min(w->now_ns - probe->ticked_ns, AWAKE_NS_MAX);
    probe->ticked_ns = w->now_ns;
    if (probe->reopening)
        reopen(w);
    else if (probe->sent_ns && probe->awake_ns - probe->sent_ns > PROBE_NS)
        begin_reopening(w, "shared memory is blocked by a client that died");
    else if (transfer_stuck(w))
        begin_reopening(w, "a transfer with a client that has gone does not end");
    else if (messages_stuck(w))
        begin_reopening(w, "messages to a client that has gone do not end");
    else if (probe->due && !probe->sent_ns && probe->self)
        send_probe(w);
    return probe->reopening || probe->sent_ns || probe->due || w->parting ? PROBE_MS : IDLE_MS;
}

bool pst_probe_event(struct pst_worker *w, struct pst_net_event *event)
{
    struct pst_wire_head head;

    if (event->arg == w && event->kind == PST_NET_PEER_GONE) {
        pst_assert(w->probe.self);
        w->probe.self = NULL;
        return true;
    }
    if (event->arg == w && event->kind == PST_NET_PEER_LOST) {
        if (!w->probe.reopening)
            begin_reopening(w, "the shard does not reach itself");
        return true;
    }
    if (event->kind != PST_NET_EAGER || pst_wire_get_head(event->header, &head) < 0 ||
        head.token != w->probe.token)
        return false;
    w->probe.sent_ns = 0;
    pst_msg_free(event->msg);
    return true;
}

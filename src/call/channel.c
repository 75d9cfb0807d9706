/* SPDX-License-Identifier: Apache-2.0 */
/* channel.c: the session: connect, poll, notice that it is lost, settle what was underway, connect anew. */
#include "call/call_priv.h"

#include "base/clock.h"
#include "base/ms.h"
#include "wire/route.h"

#include <fcntl.h>
#include <poll.h>

enum {
    TICK_NS = 10000000,
    RETRY_MS_MIN = 10,
    RETRY_MS_MAX = 500,
    LOOK_NS = 50000000,
    CLOSING_NS =
        250000000, /* for the transport to let go of a session: it takes a millisecond, or for ever */
    EVENTS = 64,
    POLLS_PER_CLOCK = 256,
};

struct pst_channel *pst_channel_cast(void *p)
{
    struct pst_channel *ch = p;

    pst_assert(ch && ch->magic == PST_CHANNEL_MAGIC);
    return ch;
}

/* ---- opening and closing ---- */

int pst_channel_begin(const struct pst_channel_options *options, struct pst_channel **out, const char **fault)
{
    struct pst_channel *ch = calloc(1, sizeof(*ch));

    *fault = "out of memory";
    if (!ch)
        return -ENOMEM;
    /* With TLS the session stays in it, unless UCX is asked for. */
    if (!options->fabric_trusted && !pst_boot_address_loopback(&options->address) &&
        (!options->tls || options->transport == PST_BOOT_UCX)) {
        *fault =
            "a node on the network needs tls=1 or ?fabric=trusted: UCX there has no protection of its own";
        free(ch);
        return -EACCES;
    }
    ch->magic = PST_CHANNEL_MAGIC;
    ch->options = *options;
    ch->state = CHANNEL_DOWN;
    ch->retry_ms = RETRY_MS_MIN;
    pst_list_init(&ch->idle);
    pst_list_init(&ch->unsent);
    pst_list_init(&ch->sent);
    pst_bulk_park_init(&ch->park);
    pst_assert(ch->peers_open == 0);
    pst_assert(ch->waiting.count == 0);
    *out = ch;
    return 0;
}

int pst_channel_open(const struct pst_channel_options *options, struct pst_channel **out, const char **fault)
{
    static _Thread_local char text[FAULT_BYTES];
    struct pst_channel *ch;
    int r = pst_channel_begin(options, &ch, fault);

    if (r < 0)
        return r;
    pst_connect_begin(ch, pst_now_ns());
    while (pst_connecting(ch)) {
        pst_channel_poll(ch);
        pst_connect_wait(ch);
    }
    if (ch->state != CHANNEL_UP) {
        r = ch->down_error;
        memcpy(text, ch->fault, sizeof(text));
        *fault = text;
        pst_channel_close(ch);
        return r;
    }
    pst_assert(ch->session > 0);
    pst_assert(ch->port);
    pst_assert(ch->boot);
    *out = ch;
    return 0;
}

struct pst_channel *pst_channel_close(struct pst_channel *ch)
{
    if (!ch)
        return NULL;
    pst_assert(ch->magic == PST_CHANNEL_MAGIC);
    pst_session_drop(ch);
    pst_net_close(ch->net);
    pst_net_close(ch->stream);
    for (uint32_t i = 0; i < ch->call_count; i++) {
        free(ch->calls[i]->body);
        free(ch->calls[i]);
    }
    free(ch);
    return NULL;
}

/* ---- losing the session ---- */

void pst_channel_break(struct pst_channel *ch, int error)
{
    if (ch->state == CHANNEL_HELLO)
        ch->attempt.error = error;
    if (ch->state != CHANNEL_UP)
        return;
    pst_assert(error < 0);
    pst_assert(ch->port);
    ch->state = CHANNEL_CLOSING;
    ch->closing_ns = pst_now_ns();
    ch->down_error = error == -EPROTO ? -EPROTO : -ECONNRESET;
    for (uint32_t i = 0; i < ch->welcome.shard_count; i++) {
        struct pst_call *filling = ch->filling[i];

        pst_assert(!filling || (filling->state == CALL_OPEN && filling->shard == i));
        if (filling)
            pst_list_push_back(&ch->unsent, &filling->link);
        ch->filling[i] = NULL;
        if (ch->peers[i])
            pst_peer_close(ch->peers[i]);
    }
}

static void calls_settle(struct pst_list *list, uint64_t now_ns)
{
    while (!pst_list_empty(list))
        pst_call_settle(pst_list_first(list, struct pst_call, link), now_ns);
    pst_assert(pst_list_empty(list));
}

/* A handle means another view or watch, or none, in the next session. */
static void channel_end_orphans(struct pst_channel *ch)
{
    pst_assert(ch->state == CHANNEL_CLOSING);
    for (size_t left = ch->waiting.count; left > 0; left--) {
        struct penstock_op *op = pst_op_list_pop(&ch->waiting);
        int result;

        if (pst_op_orphaned(op, &result))
            pst_op_end(op, result);
        else
            pst_op_list_push(&ch->waiting, op);
    }
}

/* The transport has let go of everything: operations end or wait for the next session. */
static void channel_settle(struct pst_channel *ch, uint64_t now_ns)
{
    pst_assert(ch->state == CHANNEL_CLOSING);
    pst_assert(ch->peers_open == 0);
    calls_settle(&ch->sent, now_ns);
    calls_settle(&ch->unsent, now_ns);
    channel_end_orphans(ch);
    pst_session_drop(ch);
    ch->retry_ns = now_ns;
    pst_assert(ch->state == CHANNEL_DOWN);
    pst_assert(pst_list_empty(&ch->sent));
    pst_assert(pst_list_empty(&ch->unsent));
}

static void abandon_port(struct pst_channel *ch)
{
    pst_assert(ch->state == CHANNEL_CLOSING);
    pst_assert(ch->port);
    pst_bulk_park_fini(&ch->park);
    pst_port_abandon(ch->port);
}

/* ---- finding the node again ---- */

static void channel_reconnect(struct pst_channel *ch, uint64_t now_ns)
{
    struct penstock_op *op;

    if (ch->state == CHANNEL_DOWN && ch->waiting.count && now_ns >= ch->retry_ns)
        pst_connect_begin(ch, now_ns);
    if (!pst_connecting(ch))
        return;
    pst_connect_step(ch, now_ns);
    if (ch->state == CHANNEL_UP)
        ch->retry_ms = RETRY_MS_MIN;
    if (ch->state != CHANNEL_DOWN)
        return;
    pst_assert(ch->down_error < 0);
    pst_assert(ch->retry_ms <= RETRY_MS_MAX);
    ch->retry_ns = pst_deadline_ns(now_ns, ch->retry_ms);
    ch->retry_ms = (uint32_t)pst_min(2 * ch->retry_ms, RETRY_MS_MAX);
    while (ch->options.impatient && (op = pst_op_list_pop(&ch->waiting)))
        pst_op_end(op, ch->down_error);
}

/* ---- progress ---- */

static void channel_on_event(struct pst_channel *ch, struct pst_net_event *event)
{
    struct pst_call *call = event->arg;

    pst_assert(event->status <= 0);
    switch (event->kind) {
    case PST_NET_EAGER:
        pst_channel_on_message(ch, event);
        break;
    case PST_NET_BULK:
        pst_channel_on_bulk(ch, event);
        break;
    case PST_NET_RECEIVED:
        pst_channel_on_received(pst_bulk_in_cast(event->arg), event->status);
        break;
    case PST_NET_SENT:
        if (!call) /* a hello */
            break;
        pst_assert(call->magic == PST_CALL_MAGIC);
        pst_assert(call->sends > 0);
        call->sends--;
        /* A value that the node refused was not sent, and the reply says why; what else fails ends the
         * session. */
        pst_call_ready(call);
        break;
    case PST_NET_PEER_LOST:
        pst_channel_break(pst_channel_cast(event->arg), event->status ? event->status : -ECONNRESET);
        break;
    case PST_NET_PEER_GONE:
        pst_assert(ch->peers_open > 0);
        pst_assert(ch->state == CHANNEL_CLOSING);
        ch->peers_open--;
        break;
    }
}

static bool any_overdue(const struct pst_channel *ch, uint64_t now_ns)
{
    const struct pst_list *lists[] = {&ch->sent, &ch->unsent};

    pst_assert(ch->state == CHANNEL_UP);
    for (size_t i = 0; i < pst_count_of(lists); i++) {
        pst_list_each (it, lists[i]) {
            if (pst_list_entry(it, struct pst_call, link)->deadline_ns <= now_ns)
                return true;
        }
    }
    return false;
}

void pst_channel_tick(struct pst_channel *ch, uint64_t now_ns)
{
    pst_assert(ch->magic == PST_CHANNEL_MAGIC);
    ch->tick_ns = now_ns + TICK_NS;
    if (ch->state == CHANNEL_UP && (any_overdue(ch, now_ns) || pst_boot_link_tick(ch->boot, now_ns) < 0))
        pst_channel_break(ch, -ETIMEDOUT);
    if (ch->state == CHANNEL_CLOSING && ch->peers_open == 0)
        channel_settle(ch, now_ns);
    else if (ch->state == CHANNEL_CLOSING && now_ns > ch->closing_ns + CLOSING_NS)
        abandon_port(ch);
    if (ch->state != CHANNEL_UP && ch->state != CHANNEL_CLOSING)
        channel_reconnect(ch, now_ns);
    /* Time for a look at least, or a client of short time-outs would never find its node again. */
    if (ch->waiting.count && !(pst_connecting(ch) && now_ns < ch->attempt.begun_ns + LOOK_NS))
        pst_calls_retry_waiting(ch, now_ns);
}

static bool poll_events(struct pst_channel *ch)
{
    struct pst_net_event events[EVENTS];
    int count = pst_port_poll(ch->port, events, EVENTS);

    pst_assert(count <= EVENTS);
    for (int i = 0; i < count; i++)
        channel_on_event(ch, &events[i]);
    return count > 0;
}

bool pst_channel_poll(struct pst_channel *ch)
{
    bool something = ch->port && poll_events(ch);
    uint64_t now_ns = 0;

    pst_assert(ch->magic == PST_CHANNEL_MAGIC);
    ch->submit_ns = 0;
    if (ch->state == CHANNEL_UP && (!pst_list_empty(&ch->unsent) || !pst_list_empty(&ch->sent)))
        pst_calls_send_unsent(ch);
    /* Busy, the clock is read now and then; idle, there is time for it. */
    if (pst_unlikely(ch->waiting.count || ch->state != CHANNEL_UP || !something ||
                     ++ch->polls % POLLS_PER_CLOCK == 0))
        now_ns = pst_now_ns();
    if (now_ns && (now_ns >= ch->tick_ns || ch->state != CHANNEL_UP ||
                   (ch->waiting.count && now_ns >= ch->waiting_until_ns)))
        pst_channel_tick(ch, now_ns);
    return something;
}

int pst_channel_fd(struct pst_channel *ch)
{
    pst_assert(ch->magic == PST_CHANNEL_MAGIC);
    return ch->port ? pst_port_fd(ch->port) : -1;
}

int pst_channel_arm(struct pst_channel *ch)
{
    if (ch->state != CHANNEL_UP || ch->waiting.count)
        return -EBUSY; /* a matter of time, not of events */
    pst_assert(ch->port);
    pst_assert(ch->boot);
    return pst_list_empty(&ch->unsent) ? pst_port_arm(ch->port) : -EAGAIN;
}

void pst_channel_wait(struct pst_channel *ch, const struct pst_op_list *done, int ms)
{
    struct pollfd fd;

    pst_assert(done);
    if (pst_channel_poll(ch) || pst_channel_arm(ch) == -EAGAIN || done->count)
        return;
    fd = (struct pollfd){.fd = pst_channel_fd(ch), .events = POLLIN};
    poll(&fd, 1, fd.fd >= 0 ? ms : 1);
}

/* ---- about it ---- */

uint32_t pst_channel_shards(const struct pst_channel *ch)
{
    pst_assert(ch->welcome.shard_count <= PST_BOOT_SHARDS_MAX);
    return ch->welcome.shard_count;
}

uint32_t pst_channel_shard_of(const struct pst_channel *ch, struct pst_bytes key)
{
    return pst_route_shard(key, ch->welcome.partition_seed, ch->welcome.shard_count);
}

uint64_t pst_channel_seed(const struct pst_channel *ch)
{
    return ch->welcome.partition_seed;
}

const char *pst_channel_lane(const struct pst_channel *ch)
{
    pst_assert(ch->state != CHANNEL_UP || ch->peers[0]);
    return ch->state == CHANNEL_UP ? pst_peer_lane(ch->peers[0]) : "none";
}

uint32_t pst_channel_arenas(const struct pst_channel *ch, const int **fds, uint64_t *stride)
{
    pst_assert(ch->arena_count <= PST_BOOT_ARENAS_MAX);
    *fds = ch->arena_fds;
    *stride = ch->welcome.arena_bytes;
    return ch->arena_count;
}

bool pst_channel_connecting(const struct pst_channel *ch)
{
    pst_assert((ch->waiting.first == NULL) == (ch->waiting.count == 0));
    return ch->state != CHANNEL_UP && (pst_connecting(ch) || ch->waiting.count);
}

const char *pst_channel_fault(const struct pst_channel *ch)
{
    return ch->fault;
}

uint64_t pst_channel_requests(const struct pst_channel *ch)
{
    return ch->requests;
}

uint64_t pst_channel_session(const struct pst_channel *ch)
{
    pst_assert(ch->state != CHANNEL_UP || ch->session > 0);
    return ch->session;
}

int pst_channel_hold(const struct pst_channel *ch)
{
    int fd = ch->boot ? fcntl(pst_boot_link_fd(ch->boot), F_DUPFD_CLOEXEC, 3) : -1;

    pst_assert(ch->magic == PST_CHANNEL_MAGIC);
    if (!ch->boot)
        return -ECONNRESET;
    return fd < 0 ? -errno : fd;
}

int pst_channel_register(struct pst_channel *ch, void *addr, size_t bytes, void **handle)
{
    if (!ch->net) { /* the stream has no use for it */
        *handle = NULL;
        return 0;
    }
    return pst_net_register(ch->net, addr, bytes, handle);
}

void pst_channel_unregister(struct pst_channel *ch, void *handle)
{
    if (handle)
        pst_net_unregister(ch->net, handle);
}

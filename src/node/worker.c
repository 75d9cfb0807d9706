/* SPDX-License-Identifier: Apache-2.0 */
/*
 * worker.c: a shard's thread. It alone touches its shard, its port and its shard sessions; the control thread
 * talks to it through session events. Busy, it polls; idle for a while, it sleeps until the transport, a
 * session event or the next timer wakes it.
 */
#include "node/commit.h"
#include "node/grants.h"
#include "node/node_priv.h"
#include "node/request.h"
#include "base/fault.h"

#include "base/clock.h"
#include "store/claim.h"
#include "store/figures.h"

#include "net/stream.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>

enum {
    EVENTS = 64,
    TICK_NS = 1000000,      /* timers and eviction, while busy */
    SLEEP_UNDERWAY_MS = 50, /* with requests that have a deadline */
    PLACE_MASK = 0xffff,
    SPIN_ALONE_NS = 4000,
    UNARMED_NS = 200000000,
};

static struct pst_shard_session *shard_session_cast(void *p)
{
    struct pst_shard_session *v = p;

    pst_assert(v && v->magic == PST_SHARD_SESSION_MAGIC);
    return v;
}

/* A new round. */
static void worker_clock(struct pst_worker *w)
{
    uint64_t now_ns = pst_now_ns();

    pst_times_round(&w->times, now_ns - w->now_ns);
    w->now_ns = now_ns;
}

/* ---- shard sessions ---- */

int pst_shard_session_add(struct pst_worker *w, struct pst_session *session)
{
    struct pst_shard_session *v =
        pst_fault(PST_FAULT_node_shard_session_enomem) ? NULL : calloc(1, sizeof(*v));

    if (!v)
        return -ENOMEM;
    pst_assert(!w->by_place[session->token & PLACE_MASK]);
    pst_assert(session->magic == PST_SESSION_MAGIC);
    pst_assert((session->token & PLACE_MASK) < w->node->sessions_max);
    v->magic = PST_SHARD_SESSION_MAGIC;
    v->worker = w;
    v->session = session;
    pst_list_init(&v->receiving);
    pst_list_init(&v->requests);
    pst_list_init(&v->late);
    pst_list_init(&v->due);
    pst_list_init(&v->of_due);
    pst_list_init(&v->watches);
    pst_bulk_park_init(&v->park);
    pst_holder_init(&v->holder, &session->quota);
    if (session->grant) {
        v->terms = pst_grant_terms_ref(session->grant, &v->terms_version);
        v->of_grant = &session->grant->shards[w->number];
    }
    pst_list_push_back(&w->shard_sessions, &v->link);
    w->by_place[session->token & PLACE_MASK] = v;
    return 0;
}

/* The transport holds nothing of the shard session any more. */
static void shard_session_quiet(struct pst_shard_session *v)
{
    pst_assert(v->leaving);
    v->peer = NULL;
    while (!pst_list_empty(&v->requests))
        pst_request_abort(pst_list_first(&v->requests, struct pst_request, of_shard_session));
    pst_holder_end(v->worker->shard, &v->holder);
    pst_shard_session_close_watches(v);
    pst_assert(v->watch_count == 0);
    pst_assert(v->underway == 0);
    pst_assert(v->waits == 0);
    pst_assert(pst_list_empty(&v->receiving));
}

/* Nor does its process look at anything. */
static void shard_session_gone(struct pst_shard_session *v)
{
    struct pst_session *session = v->session;

    pst_assert(v->ended);
    pst_assert(!v->peer);
    pst_assert(pst_list_empty(&v->requests));
    pst_shard_session_release_views(v);
    if (session->same_host)
        pst_probe_want(v->worker);
    pst_assert(v->worker->by_place[session->token & PLACE_MASK] == v);
    pst_assert(v->underway == 0);
    pst_assert(v->waits == 0);
    pst_assert(v->watch_count == 0);
    pst_assert(session->shards_left > 0);
    v->worker->by_place[session->token & PLACE_MASK] = NULL;
    pst_list_remove(&v->link);
    pst_assert(v->park.count == 0);
    v->magic = 0;
    pst_terms_unref(v->terms);
    free(v->used);
    free(v);
    atomic_fetch_sub(&session->shards_left, 1);
}

void pst_shard_session_leave(struct pst_shard_session *v, const char *why)
{
    pst_assert(v->magic == PST_SHARD_SESSION_MAGIC);
    if (why) { /* our decision: the control thread tells the other shards */
        const char *none = NULL;

        atomic_compare_exchange_strong(&v->session->kick, &none, why);
        pst_node_wake(v->worker->node);
    }
    if (v->leaving)
        return;
    v->leaving = true;
    v->leaving_ns = v->worker->probe.awake_ns;
    pst_bulk_park_fini(&v->park);
    pst_shard_session_drop_late(v);
    pst_assert(v->park.count == 0);
    pst_assert(v->waits == 0);
    pst_assert(pst_list_empty(&v->late));
    if (!v->peer)
        return;
    pst_peer_close(v->peer);
    v->worker->parting++;
    v->worker->tick_ns = 0; /* the closing may need progress that no descriptor tells of */
}

void pst_shard_session_protocol_error(struct pst_shard_session *v, const char *why)
{
    v->worker->malformed++;
    pst_shard_session_leave(v, why);
}

void pst_shard_session_end(struct pst_shard_session *v)
{
    pst_assert(v->magic == PST_SHARD_SESSION_MAGIC);
    pst_assert(!v->ended);
    pst_assert(v->worker->by_place[v->session->token & PLACE_MASK] == v);
    v->ended = true;
    v->leaving_ns = v->worker->probe.awake_ns;
    pst_shard_session_leave(v, NULL);
    if (!v->peer)
        shard_session_gone(v);
}

void pst_shard_session_peer_gone(struct pst_shard_session *v)
{
    pst_assert(v->worker->parting > 0);
    pst_assert(v->peer);
    pst_assert(v->leaving);
    v->worker->parting--;
    shard_session_quiet(v);
    if (v->ended)
        shard_session_gone(v);
}

/* ---- session events ---- */

void pst_worker_tell(struct pst_worker *w, struct pst_session *session, enum pst_session_event_kind kind)
{
    struct pst_session_event *event = &session->session_events[PST_SESSION_EVENT_KINDS * w->number + kind];

    pst_assert(session->magic == PST_SESSION_MAGIC);
    pst_assert(w->magic == PST_WORKER_MAGIC);
    pst_assert(w->number < w->node->worker_count);
    pst_assert(kind < PST_SESSION_EVENT_KINDS);
    pst_assert(!event->session); /* each kind once */
    *event = (struct pst_session_event){.session = session, .kind = kind};
    pthread_mutex_lock(&w->inbox_lock);
    pst_list_push_back(&w->session_events, &event->link);
    atomic_store(&w->has_mail, true);
    pthread_mutex_unlock(&w->inbox_lock);
    pst_worker_wake(w);
}

void pst_worker_wake(struct pst_worker *w)
{
    pst_event_set(w->wake_fd);
}

void pst_worker_post(struct pst_worker *w, struct pst_commit_message *message)
{
    pst_assert(w->magic == PST_WORKER_MAGIC);
    pst_assert(message->commit);
    pthread_mutex_lock(&w->inbox_lock);
    pst_list_push_back(&w->commit_messages, &message->link);
    atomic_store(&w->mailed, true);
    pthread_mutex_unlock(&w->inbox_lock);
    pst_worker_wake(w);
}

struct pst_holder *pst_worker_holder(struct pst_worker *w, uint64_t token)
{
    struct pst_shard_session *v = w->by_place[token & PLACE_MASK];

    return v && v->session->token == token ? &v->holder : NULL;
}

static struct pst_commit_message *next_commit_message(struct pst_worker *w)
{
    struct pst_commit_message *message = NULL;

    pthread_mutex_lock(&w->inbox_lock);
    if (!pst_list_empty(&w->commit_messages)) {
        message = pst_list_first(&w->commit_messages, struct pst_commit_message, link);
        pst_list_remove(&message->link);
    } else {
        atomic_store(&w->mailed, false);
    }
    pthread_mutex_unlock(&w->inbox_lock);
    return message;
}

/* Return: true when there was some. */
static bool read_commit_messages(struct pst_worker *w)
{
    struct pst_commit_message *message;

    if (!atomic_load_explicit(&w->mailed, memory_order_relaxed))
        return false;
    worker_clock(w);
    while ((message = next_commit_message(w)) != NULL)
        pst_commit_receive(w, message);
    return true;
}

/* A peer that waits for the client's connection. */
static void open_stream_peer(struct pst_shard_session *v)
{
    uint8_t address[PST_NET_ADDRESS_BYTES_MAX];
    uint16_t bytes;
    int r;

    if (v->peer || v->session->ended)
        return;
    pst_assert(v->worker->stream);
    pst_worker_stream_address(v->worker, address, &bytes);
    pst_assert(bytes <= sizeof(address));
    r = pst_peer_open(v->worker->stream, address, bytes, v, &v->peer);
    if (r < 0)
        pst_shard_session_leave(v, "out of memory");
}

static void open_peer(struct pst_shard_session *v)
{
    int r = 0;

    if (v->session->stream) {
        open_stream_peer(v);
        return;
    }
    /* A client that has gone may have begun anew; one whose shard opens its port anew asks again. */
    if (!v->peer && !v->session->ended && !v->worker->probe.reopening)
        r = pst_peer_open(v->worker->port, v->session->address, v->session->address_bytes, v, &v->peer);
    if (r < 0)
        pst_shard_session_leave(v, "no way back to the client");
}

/*
 * Opens the way to the client before the client may poll its port. Where the client's request to connect came
 * first, the transport would queue its answer until the client confirms the socket, and UCX 1.13 aborts the
 * process when a client dies with that answer in the queue. Only on one host is it sure that the client's
 * socket stays, as it must for a client that was forked; beyond, the way is opened when the hello has come.
 */
static void begin_shard_session(struct pst_worker *w, struct pst_session *session)
{
    int r = pst_shard_session_add(w, session);

    pst_assert(session->shards_opening > 0);
    pst_assert(session->shards_left > 0);
    if (r < 0)
        atomic_store(&session->kick, "out of memory");
    else if (w->node->opens_first || session->stream)
        open_peer(w->by_place[session->token & PLACE_MASK]);
    if (atomic_fetch_sub(&session->shards_opening, 1) == 1)
        pst_node_wake(w->node);
}

/* A connection that the control thread has accepted for a session of the stream. */
struct connection {
    struct pst_list link;
    uint64_t token;
    struct stream_channel *channel;
    size_t early_bytes;
    uint8_t early[];
};

int pst_worker_attach(struct pst_worker *w, const struct pst_boot_attachment *attachment)
{
    struct connection *connection = malloc(sizeof(*connection) + attachment->early.len);

    pst_assert(attachment->shard == w->number);
    if (!connection)
        return -ENOMEM;
    connection->token = attachment->token;
    connection->channel = attachment->channel;
    connection->early_bytes = attachment->early.len;
    memcpy(connection->early, attachment->early.data, attachment->early.len);
    pst_list_init(&connection->link);
    pthread_mutex_lock(&w->inbox_lock);
    pst_list_push_back(&w->connections, &connection->link);
    atomic_store(&w->has_mail, true);
    pthread_mutex_unlock(&w->inbox_lock);
    pst_worker_wake(w);
    return 0;
}

static void connections_attach(struct pst_worker *w, struct pst_list *connections)
{
    while (!pst_list_empty(connections)) {
        struct connection *connection = pst_list_first(connections, struct connection, link);
        struct pst_shard_session *v = w->by_place[connection->token & PLACE_MASK];
        struct pst_bytes early = {connection->early, connection->early_bytes};
        bool waits = v && v->session->token == connection->token && v->session->stream && !v->leaving;

        pst_list_remove(&connection->link);
        pst_stream_attach(waits ? v->peer : NULL, connection->channel, early);
        free(connection);
    }
}

static void read_session_events(struct pst_worker *w)
{
    struct pst_list session_events, connections;

    if (!atomic_load_explicit(&w->has_mail, memory_order_relaxed))
        return;
    pst_list_init(&session_events);
    pst_list_init(&connections);
    pthread_mutex_lock(&w->inbox_lock);
    atomic_store(&w->has_mail, false);
    pst_list_splice(&session_events, &w->session_events);
    pst_list_splice(&connections, &w->connections);
    pthread_mutex_unlock(&w->inbox_lock);
    while (!pst_list_empty(&session_events)) {
        struct pst_session_event *event = pst_list_first(&session_events, struct pst_session_event, link);
        struct pst_shard_session *v = w->by_place[event->session->token & PLACE_MASK];

        pst_list_remove(&event->link);
        pst_assert(event->session->magic == PST_SESSION_MAGIC);
        pst_assert(event->kind < PST_SESSION_EVENT_KINDS);
        pst_assert(!v || v->session == event->session);
        if (event->kind == PST_SESSION_BEGINS) {
            begin_shard_session(w, event->session);
        } else if (event->kind == PST_SESSION_PARTS && v) {
            pst_shard_session_leave(v, NULL);
        } else if (event->kind == PST_SESSION_ENDS && v) {
            pst_shard_session_end(v);
        } else if (event->kind == PST_SESSION_ENDS) { /* there was no memory for a shard session; the last
                                                         session event is read */
            pst_assert(event->session->shards_left > 0);
            atomic_fetch_sub(&event->session->shards_left, 1);
        }
    }
    connections_attach(w, &connections);
}

/* ---- messages ---- */

/* Token and place name the session, which has one version; anything else is dropped unread. */
static struct pst_shard_session *shard_session_of(struct pst_worker *w, uint64_t token, uint32_t version)
{
    struct pst_shard_session *v;

    if ((token & PLACE_MASK) >= w->node->sessions_max)
        return NULL;
    v = w->by_place[token & PLACE_MASK];
    if (!v) { /* the client may be faster than the control thread's session event */
        read_session_events(w);
        v = w->by_place[token & PLACE_MASK];
    }
    return v && v->session->token == token && v->session->version == version && !v->leaving ? v : NULL;
}

static void on_hello(struct pst_shard_session *v)
{
    struct pst_wire_head head = {.type = PST_WIRE_WELCOME,
                                 .version = (uint8_t)v->session->version,
                                 .token = v->session->token,
                                 .bulk_count = v->worker->number};
    int r;

    pst_assert(!v->leaving);
    open_peer(v);
    if (!v->peer || v->leaving)
        return;
    r = pst_peer_send(v->peer, (struct pst_bytes){&head, sizeof(head)}, (struct pst_bytes){NULL, 0}, NULL);
    if (r < 0 && r != -EBUSY) /* a client that is not answered asks again */
        pst_shard_session_leave(v, "no way back to the client");
}

static void on_message(struct pst_worker *w, struct pst_net_event *event)
{
    struct pst_wire_head head;
    struct pst_shard_session *v = NULL;
    int r = pst_wire_get_head(event->header, &head);

    pst_assert(event->kind == PST_NET_EAGER || event->kind == PST_NET_BULK);
    if (r == 0 || event->header.len >= sizeof(head))
        v = shard_session_of(w, head.token, head.version);
    if (r < 0) {
        if (v)
            pst_shard_session_protocol_error(v, "malformed message");
        else /* nobody knows whose: the sender's deadline tells it */
            w->malformed++;
        pst_msg_free(event->msg);
        return;
    }
    if (v && event->kind == PST_NET_BULK && head.type == PST_WIRE_BULK && v->peer) {
        pst_request_bulk(v, &head, event);
        return;
    }
    if (v && event->kind == PST_NET_EAGER && head.type == PST_WIRE_HELLO)
        on_hello(v);
    else if (v && event->kind == PST_NET_EAGER && head.type == PST_WIRE_REQUEST && v->peer)
        pst_request_begin(v, &head, pst_wire_get_trace(event->header), event->data);
    else if (v)
        pst_shard_session_protocol_error(v, "unexpected message");
    pst_msg_free(event->msg);
}

static void on_event(struct pst_worker *w, struct pst_net_event *event)
{
    if (pst_probe_event(w, event))
        return;
    switch (event->kind) {
    case PST_NET_EAGER:
    case PST_NET_BULK:
        on_message(w, event);
        break;
    case PST_NET_SENT:
        if (event->arg)
            pst_request_sent(pst_request_cast(event->arg));
        break;
    case PST_NET_RECEIVED:
        pst_request_received(event->arg, event->status);
        break;
    case PST_NET_PEER_LOST:
        if (event->status == -EPROTO)
            pst_shard_session_protocol_error(shard_session_cast(event->arg), "malformed frame");
        else
            pst_shard_session_leave(shard_session_cast(event->arg), "connection lost");
        break;
    case PST_NET_PEER_GONE:
        pst_shard_session_peer_gone(shard_session_cast(event->arg));
        break;
    }
}

/* ---- the loop ---- */

static bool poll_port(struct pst_worker *w, struct pst_port *port)
{
    struct pst_net_event events[EVENTS];
    int count = port ? pst_port_poll(port, events, EVENTS) : 0;

    pst_assert(count <= EVENTS);
    if (count) {
        worker_clock(w);
        pst_shard_time(w->shard, w->now_ns);
    }
    for (int i = 0; i < count; i++)
        on_event(w, &events[i]);
    return count > 0;
}

static void run_stalled(struct pst_worker *w)
{
    struct pst_list again;

    if (pst_list_empty(&w->stalled))
        return;
    again = w->stalled; /* each once: those that stall again go to the emptied list */
    again.next->prev = &again;
    again.prev->next = &again;
    pst_list_init(&w->stalled);
    while (!pst_list_empty(&again)) {
        struct pst_request *q = pst_list_first(&again, struct pst_request, link);

        pst_list_remove(&q->link);
        pst_assert(q->worker == w);
        pst_assert(q->shard_session);
        pst_request_run(q);
    }
}

/* A client that does not take or send what it began is cut off; its memory comes back with the connection's
 * end. */
static void check_deadlines(struct pst_worker *w)
{
    pst_list_each_safe (it, &w->shard_sessions) {
        struct pst_shard_session *v = pst_list_entry(it, struct pst_shard_session, link);

        pst_list_each (at, &v->requests) {
            if (!v->leaving &&
                pst_list_entry(at, struct pst_request, of_shard_session)->deadline_ns < w->now_ns) {
                pst_shard_session_leave(v, "a request ran past its deadline");
                break;
            }
        }
    }
}

/* The client that is silent for longest. */
static struct pst_shard_session *most_silent(const struct pst_worker *w)
{
    struct pst_shard_session *most = NULL;
    uint64_t most_ns = w->node->silent_ns;

    pst_list_each (it, &w->shard_sessions) {
        struct pst_shard_session *v = pst_list_entry(it, struct pst_shard_session, link);
        uint64_t ns = v->leaving ? 0 : pst_requests_silence_ns(v);

        if (ns > most_ns) {
            most = v;
            most_ns = ns;
        }
    }
    return most;
}

/* One a tick: what it gives back may be enough. */
static void end_silent(struct pst_worker *w)
{
    struct pst_shard_session *v = pst_requests_scarce(w) ? most_silent(w) : NULL;

    if (v)
        pst_shard_session_leave(v, "requests are scarce, and it takes and sends nothing of its own");
}

/* Return: true when there is more to do at once. */
static bool tick(struct pst_worker *w)
{
    struct pst_shard_stat stat;
    bool more = pst_shard_tick(w->shard, w->now_ns);

    w->tick_ns = w->now_ns + TICK_NS;
    w->sleep_ms = pst_probe_tick(w);
    pst_shard_stat(w->shard, &stat);
    atomic_store_explicit(&w->keys, stat.keys, memory_order_relaxed);
    if (w->underway) {
        check_deadlines(w);
        end_silent(w);
    }
    return more;
}

static void sleep_until_woken(struct pst_worker *w)
{
    struct pollfd fds[] = {{.fd = w->port ? pst_port_fd(w->port) : -1, .events = POLLIN},
                           {.fd = w->wake_fd, .events = POLLIN},
                           {.fd = pst_tier_descriptor(w->shard), .events = POLLIN},
                           {.fd = w->stream ? pst_port_fd(w->stream) : -1, .events = POLLIN}};
    uint64_t wait_ms = w->underway ? SLEEP_UNDERWAY_MS : (uint64_t)w->sleep_ms;

    /* An end that has come, and waits for a commit, is looked at again soon. */
    wait_ms = pst_min(wait_ms, pst_max(pst_shard_expires_in_ms(w->shard), 1));
    pst_assert(w->late_ns > w->now_ns);
    if (w->late_ns != UINT64_MAX)
        wait_ms = pst_min(wait_ms, (w->late_ns - w->now_ns) / 1000000 + 1);
    if (pst_unlikely(w->tiered) && pst_tier_impatient(w->shard))
        wait_ms = pst_min(wait_ms, 1);
    if (w->stream && pst_port_arm(w->stream) < 0)
        return;
    if (!w->port || pst_port_arm(w->port) == 0) {
        w->probe.unarmed_ns = 0;
    } else {
        if (!w->probe.unarmed_ns)
            w->probe.unarmed_ns = w->probe.awake_ns;
        if (w->probe.awake_ns < w->probe.unarmed_ns + UNARMED_NS)
            return;
        fds[0].fd = -1; /* it stays readable */
        wait_ms = 1;    /* UCX waits for a client that takes nothing: no reason to spin */
    }
    if (poll(fds, pst_count_of(fds), (int)wait_ms) > 0 && fds[1].revents)
        pst_event_clear(w->wake_fd);
    w->tick_ns = 0;
}

static void *worker_main(void *arg)
{
    struct pst_worker *w = arg;
    uint64_t busy_ns = pst_now_ns(), spin_ns = w->node->spin_us * 1000ull;

    pst_assert(w->magic == PST_WORKER_MAGIC);
    while (!w->stopping || w->has_mail || !pst_list_empty(&w->shard_sessions) || w->node->commits) {
        bool busy = poll_port(w, w->port);

        busy |= poll_port(w, w->stream);
        pst_shard_time(w->shard, w->now_ns);
        read_session_events(w);
        busy |= read_commit_messages(w);
        run_stalled(w);
        if (!busy)
            worker_clock(w);
        if (w->now_ns >= w->tick_ns)
            busy |= tick(w);
        busy |= pst_tiereds_run(w);
        busy |= pst_late_run(w);
        if (busy) {
            busy_ns = w->now_ns;
            w->probe.unarmed_ns = 0;
        } else if (w->now_ns - busy_ns >= spin_ns && pst_list_empty(&w->stalled)) {
            sleep_until_woken(w);
        } else if (w->now_ns - busy_ns >= SPIN_ALONE_NS) {
            sched_yield(); /* the client may be waiting for this very core */
        }
    }
    pst_assert(w->underway == 0);
    pst_assert(w->commits == 0);
    pst_assert(w->parting == 0);
    pst_assert(w->waits == 0);
    pst_assert(w->watches == 0);
    pst_assert(pst_list_empty(&w->stalled));
    pst_assert(pst_list_empty(&w->late));
    pst_assert(pst_list_empty(&w->due));
    return NULL;
}

/* ---- life ---- */

int pst_worker_init(struct pst_worker *w, struct pst_node *node, uint32_t number)
{
    pst_assert(number < pst_store_shard_count(node->store));
    pst_assert(!w->magic);
    w->magic = PST_WORKER_MAGIC;
    w->number = number;
    w->view_uses = pst_wall_ns() / 1000;
    w->node = node;
    w->shard = pst_store_shard(node->store, number);
    w->locks = pst_shard_locks(w->shard);
    w->tiered = pst_shard_tiered(w->shard);
    w->logs = pst_shard_logs(w->shard);
    w->wake_fd = -1;
    pthread_mutex_init(&w->inbox_lock, NULL);
    pst_list_init(&w->session_events);
    pst_list_init(&w->connections);
    pst_list_init(&w->commit_messages);
    pst_list_init(&w->shard_sessions);
    pst_list_init(&w->idle);
    pst_list_init(&w->stalled);
    pst_list_init(&w->late);
    pst_list_init(&w->due);
    w->late_ns = UINT64_MAX;
    w->watch_handle = pst_wall_ns();
    for (uint32_t i = 0; i < PST_WIRE_OPS_MAX; i++) {
        const struct pst_wire_result busy = {.result = PST_BUSY};
        uint8_t *end = pst_wire_put_result(w->busy[i], &busy);

        pst_assert(end == w->busy[i] + sizeof(w->busy[i]));
    }
    pst_wire_put_result(w->over_quota, &(const struct pst_wire_result){.result = -EDQUOT});
    w->by_place = calloc(node->sessions_max, sizeof(struct pst_shard_session *));
    if (!w->by_place)
        return -ENOMEM;
    w->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return w->wake_fd < 0 ? -errno : 0;
}

int pst_worker_start(struct pst_worker *w)
{
    int r = w->node->net ? pst_worker_open_port(w) : 0;

    pst_assert(w->magic == PST_WORKER_MAGIC);
    pst_assert(!w->running);
    if (r == 0)
        r = pst_worker_open_stream(w);
    if (r < 0)
        return r;
    r = -pthread_create(&w->thread, NULL, worker_main, w);
    w->running = r == 0;
    return r;
}

void pst_worker_stop(struct pst_worker *w)
{
    if (!w->running)
        return;
    pst_assert(w->node->stopping);
    w->stopping =
        true; /* all sessions have been told that they end: there will be no further session event */
    pst_worker_wake(w);
    pthread_join(w->thread, NULL);
    w->running = false;
}

void pst_worker_fini(struct pst_worker *w)
{
    pst_assert(!w->running);
    pst_assert(w->underway == 0);
    pst_assert(w->commits == 0);
    w->port = pst_port_close(w->port);
    w->stream = pst_port_close(w->stream);
    if (w->magic) {
        pst_assert(pst_list_empty(&w->connections));
        pst_assert(pst_list_empty(&w->session_events));
        pst_assert(pst_list_empty(&w->commit_messages));
        pst_assert(pst_list_empty(&w->shard_sessions));
        pst_requests_fini(w);
        pthread_mutex_destroy(&w->inbox_lock);
        pst_close_fd(&w->wake_fd);
    }
    free(w->by_place);
    free(w->sink);
}

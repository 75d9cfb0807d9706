/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exchange.c: broadcasts of tensors. Pods join over WebSockets, are told what to send and to receive, and say
 * when they are done; the store sees no tensor. A thread does it all: it takes what pods say, one message
 * after the other, tells the members of a group that has closed what to do, and those of one that has ended
 * how, and sends heartbeats. What takes time is done without the lock, which the web's loop takes, too.
 */
#include "agent/store/exchange_priv.h"
#include "agent/store/inbox_priv.h"
#include "base/ms.h"
#include "base/wait.h"

#include <stdio.h>

_Static_assert((int)PST_TREE_GROUP_BYTES_MAX == PST_EXCHANGE_GROUP_BYTES_MAX, "the name of a group");

enum { WAITING_MESSAGES_MAX = 8 }; /* of a participant: it says little before it has its answer */

/* Under the lock. */
struct participant {
    struct pod_socket socket;           /* the first member, with which it is freed */
    struct pst_exchange_member *member; /* NULL: it has not joined, or it is over */
    bool over;                          /* it has been told the last, and what it says is nothing any more */
};

_Static_assert(offsetof(struct participant, socket) == 0, "what is freed");

struct exchanges {
    pthread_mutex_t lock;
    pthread_cond_t wanted;
    struct inbox inbox;
    struct pst_exchanges *all;
    pthread_t thread;
    bool runs, stopping;
};

/* ---- what participants are told; under the lock ---- */

static void tell(struct participant *participant, struct pst_json *json)
{
    char *text = json ? pst_json_print(json) : NULL;

    pst_assert(!participant->over);
    pst_json_free(json);
    socket_send(&participant->socket, text);
    free(text);
}

/* The last that it is told. */
static void tell_end(struct participant *participant, struct pst_json *json)
{
    tell(participant, json);
    socket_end(&participant->socket);
    participant->member = NULL;
    participant->over = true;
}

static void refuse(struct participant *participant, const char *fault)
{
    struct pst_exchange_member *member = participant->member;

    pst_assert(!member || member->owner == participant);
    tell_end(participant, socket_error(fault));
    if (member)
        pst_exchange_leave(member);
}

/* It has closed, and all that it has said was heard. */
static void part(struct participant *participant)
{
    struct pst_exchange_member *member = participant->member;

    participant->member = NULL;
    participant->over = true;
    if (member)
        pst_exchange_leave(member);
}

static void tell_queued(struct participant *participant)
{
    const struct pst_exchange *exchange = participant->member->exchange;
    struct pst_json *json = pst_json_new_object();

    pst_assert(exchange->putters + exchange->getters > 0);
    pst_json_add_text(json, "event", "queued");
    pst_json_add_integer(json, "position", exchange->putters + exchange->getters);
    pst_json_add_text(json, "group_id", exchange_group(exchange));
    tell(participant, json);
    pst_web_socket_excuse(participant->socket.web); /* it says heartbeats, and later it waits for NCCL */
}

/* ---- the loop's thread ---- */

static void participant_message(struct pst_data_store *store, struct pod_socket *socket,
                                struct pst_bytes text)
{
    struct participant *participant = pst_container_of(socket, struct participant, socket);
    struct exchanges *exchanges = store->exchanges;

    pthread_mutex_lock(&exchanges->lock);
    if (participant->member)
        pst_exchange_hear(participant->member, pst_now_ms());
    if (!participant->over && inbox_put(&exchanges->inbox, socket, text) < 0)
        refuse(participant, "the store has too many messages that wait: join again");
    pthread_cond_signal(&exchanges->wanted);
    pthread_mutex_unlock(&exchanges->lock);
}

static void participant_close(struct pst_data_store *store, struct pod_socket *socket)
{
    struct participant *participant = pst_container_of(socket, struct participant, socket);
    struct exchanges *exchanges = store->exchanges;

    pthread_mutex_lock(&exchanges->lock);
    if (socket->waiting == 0)
        part(participant);
    inbox_close(socket);
    pthread_cond_signal(&exchanges->wanted);
    pthread_mutex_unlock(&exchanges->lock);
}

const struct socket_ops exchange_sockets = {sizeof(struct participant), participant_message,
                                            participant_close};

/* ---- the thread; under the lock, unless said otherwise ---- */

static void join(struct exchanges *exchanges, struct participant *participant, struct exchange_said *said,
                 uint64_t came_ms)
{
    char name[PST_EXCHANGE_NAME_BYTES_MAX + 1];
    const char *fault;

    pst_assert(!participant->over);
    pst_assert(*participant->socket.namespace);
    if (participant->member) {
        refuse(participant, "a socket joins once");
        return;
    }
    snprintf(name, sizeof(name), "%s/%s", participant->socket.namespace, participant->socket.group);
    said->joiner.owner = participant;
    if (pst_exchange_join(exchanges->all, name, &said->joiner, came_ms, &participant->member, &fault) < 0)
        refuse(participant, fault);
    else
        tell_queued(participant);
}

static void complete(struct participant *participant, bool success)
{
    int r = participant->member ? pst_exchange_complete(participant->member, success) : -EAGAIN;

    if (r < 0)
        refuse(participant, r == -EAGAIN ? "the broadcast is not ready" : "a participant completes once");
}

static void act(struct exchanges *exchanges, struct participant *participant, struct exchange_said *said,
                uint64_t came_ms)
{
    if (said->action == EXCHANGE_JOIN)
        join(exchanges, participant, said, came_ms);
    else if (said->action == EXCHANGE_COMPLETE)
        complete(participant, said->success);
}

/* The same when the socket has closed since: one that says that it is done need not wait for an answer. */
static void act_behind(struct participant *participant, const struct exchange_said *said, bool good)
{
    pst_assert(participant->socket.closed);
    if (participant->member && good && said->action == EXCHANGE_COMPLETE)
        (void)pst_exchange_complete(participant->member, said->success);
    if (participant->socket.waiting == 1)
        part(participant);
}

/* One message. The lock is not held while it is read, and freed. */
static void hear(struct exchanges *exchanges, struct inbox_message *message)
{
    struct participant *participant = pst_container_of(message->socket, struct participant, socket);
    struct exchange_said said;
    const char *fault;
    int r;

    if (participant->over) {
        inbox_done(message);
        return;
    }
    pthread_mutex_unlock(&exchanges->lock);
    r = exchange_read(message->text, message->socket->namespace, &said, &fault);
    pthread_mutex_lock(&exchanges->lock);
    if (!participant->over && participant->socket.closed)
        act_behind(participant, &said, r == 0);
    else if (!participant->over && r < 0)
        refuse(participant, fault);
    else if (!participant->over)
        act(exchanges, participant, &said, message->came_ms);
    inbox_done(message);
    pthread_mutex_unlock(&exchanges->lock);
    exchange_said_fini(&said);
    pthread_mutex_lock(&exchanges->lock);
}

static void on_beat(void *arg, struct pst_exchange_member *member)
{
    struct participant *participant = member->owner;

    (void)arg;
    pst_assert(participant->member == member);
    socket_send(&participant->socket, "{\"event\":\"heartbeat\"}");
}

static void on_silent(void *arg, struct pst_exchange_member *member)
{
    struct participant *participant = member->owner;

    (void)arg;
    pst_assert(participant->member == member);
    tell_end(participant, socket_error("the participant has said nothing for 70 s"));
}

/* Its members are told what to do, or why they cannot. The lock is not held while that is thought out. */
static void begin(struct exchanges *exchanges, struct pst_exchange *exchange)
{
    struct exchange_orders orders;
    uint32_t at = 0;
    char *fault;
    int r;

    pst_assert(exchange->state == PST_EXCHANGE_CLOSED);
    pthread_mutex_unlock(&exchanges->lock);
    r = exchange_orders_init(exchange, &orders, &fault);
    pthread_mutex_lock(&exchanges->lock);
    if (exchange->state != PST_EXCHANGE_CLOSED) { /* a member has left meanwhile */
        pst_assert(exchange->state == PST_EXCHANGE_ENDED);
    } else if (r < 0) {
        pst_exchange_fail(exchange, "%s", fault ? fault : "the store is out of memory");
    } else {
        pst_list_each (it, &exchange->members) {
            struct participant *participant = pst_list_entry(it, struct pst_exchange_member, link)->owner;

            pst_assert(participant && participant->member);
            socket_send(&participant->socket, orders.texts[orders.plan->pod_of[at++]]);
        }
        pst_assert(at == exchange->putters + exchange->getters);
        pst_exchange_begin(exchange, pst_now_ms());
    }
    exchange_orders_fini(&orders);
    free(fault);
}

static struct pst_json *end_message(const struct pst_exchange *exchange)
{
    struct pst_json *json;

    pst_assert(exchange->failed || !exchange->fault);
    if (exchange->failed)
        return socket_error(exchange->fault ? exchange->fault : "the store is out of memory");
    json = pst_json_new_object();
    pst_json_add_text(json, "event", "completed");
    pst_json_add_text(json, "group_id", exchange_group(exchange));
    return json;
}

static void end(struct pst_exchange *exchange)
{
    pst_assert(exchange->state == PST_EXCHANGE_ENDED);
    pst_assert(exchange->failed || exchange->completed == exchange->putters + exchange->getters);
    pst_list_each (it, &exchange->members) {
        struct pst_exchange_member *member = pst_list_entry(it, struct pst_exchange_member, link);

        if (member->owner)
            tell_end(member->owner, end_message(exchange));
        member->owner = NULL;
    }
    pst_exchange_forget(exchange);
}

static void *serve(void *arg)
{
    struct exchanges *exchanges = arg;

    pthread_mutex_lock(&exchanges->lock);
    while (!exchanges->stopping || !pst_list_empty(&exchanges->inbox.messages)) {
        /* What came in time is heard before a group's time is over, however long it has waited. */
        uint64_t next_ms =
            pst_exchanges_look(exchanges->all, inbox_ms(&exchanges->inbox), on_beat, on_silent, NULL);
        struct pst_exchange *ended = pst_exchanges_find(exchanges->all, PST_EXCHANGE_ENDED);
        struct pst_exchange *closed = ended ? NULL : pst_exchanges_find(exchanges->all, PST_EXCHANGE_CLOSED);
        struct inbox_message *message = ended || closed ? NULL : inbox_take(&exchanges->inbox);

        if (ended)
            end(ended);
        else if (closed)
            begin(exchanges, closed);
        else if (message)
            hear(exchanges, message);
        else if (next_ms == UINT64_MAX)
            pthread_cond_wait(&exchanges->wanted, &exchanges->lock);
        else
            pst_cond_wait_until(&exchanges->wanted, &exchanges->lock, pst_ns_of_ms(next_ms));
    }
    pthread_mutex_unlock(&exchanges->lock);
    return NULL;
}

/* ---- the listing ---- */

static struct pst_json *list_group(const struct pst_exchange *exchange)
{
    struct pst_json *json = pst_json_new_object(), *pods = pst_json_new_array();

    pst_json_add_text(json, "group_id", exchange_group(exchange));
    pst_json_add_text(json, "state", exchange->state == PST_EXCHANGE_WAITING ? "waiting" : "ready");
    pst_json_add_integer(json, "putters_count", exchange->putters);
    pst_json_add_integer(json, "getters_count", exchange->getters);
    if (exchange->world_size)
        pst_json_add_integer(json, "world_size", exchange->world_size);
    else
        pst_json_add_null(json, "world_size");
    pst_list_each (it, &exchange->members) {
        const struct pst_exchange_member *member = pst_list_entry(it, struct pst_exchange_member, link);

        if (member->is_first)
            pst_json_add_text(pods, NULL, member->ip);
    }
    pst_json_add(json, "pods", pods);
    pst_json_add_integer(json, "completed", exchange->completed);
    return json;
}

void exchange_groups(struct call *call)
{
    struct exchanges *exchanges = call->store->exchanges;
    struct pst_json *json = pst_json_new_object(), *groups = pst_json_new_array();
    const struct pst_exchange *exchange = NULL;

    pthread_mutex_lock(&exchanges->lock);
    while ((exchange = pst_exchanges_next(exchanges->all, exchange)))
        if (exchange->state != PST_EXCHANGE_ENDED)
            pst_json_add(groups, NULL, list_group(exchange));
    pthread_mutex_unlock(&exchanges->lock);
    pst_json_add(json, "groups", groups);
    reply_json(call, 200, json);
}

/* ---- beginning and end ---- */

int exchanges_open(struct pst_data_store *store)
{
    struct exchanges *exchanges = calloc(1, sizeof(*exchanges));
    int r;

    pst_assert(!store->exchanges);
    if (!exchanges)
        return -ENOMEM;
    store->exchanges = exchanges;
    pthread_mutex_init(&exchanges->lock, NULL);
    pst_cond_init(&exchanges->wanted);
    inbox_init(&exchanges->inbox, WAITING_MESSAGES_MAX);
    exchanges->all = pst_exchanges_open();
    if (!exchanges->all)
        return -ENOMEM;
    r = -pthread_create(&exchanges->thread, NULL, serve, exchanges);
    exchanges->runs = r == 0;
    return r;
}

void exchanges_close(struct exchanges *exchanges)
{
    if (!exchanges)
        return;
    pthread_mutex_lock(&exchanges->lock);
    exchanges->stopping = true;
    pthread_cond_signal(&exchanges->wanted);
    pthread_mutex_unlock(&exchanges->lock);
    if (exchanges->runs)
        pst_assert(pthread_join(exchanges->thread, NULL) == 0);
    pst_assert(pst_list_empty(&exchanges->inbox.messages));
    pst_exchanges_close(exchanges->all);
    pthread_cond_destroy(&exchanges->wanted);
    pthread_mutex_destroy(&exchanges->lock);
    free(exchanges);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * door.c: the door's life and its loop. A round takes what sockets and store have, sends what came of it to
 * the store as one batch, and then fills the sockets.
 */
#include "gateway/grpc/door_priv.h"

#include "base/clock.h"
#include "base/ms.h"
#include "net/handshake.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

enum {
    EVENTS_A_ROUND = 64,
    ACCEPTS_A_ROUND = 16,
    TICK_MS = 100,      /* deadlines are looked at this often */
    WAIT_MS_MAX = 1000, /* of the loop with clients; beyond, the door itself was stopped */
    QUIET_MS = 10000,   /* of a connection that may give way */
};

/* Operations that were submitted together; its memory is the store's until the last has ended. */
struct batch {
    size_t left;
    struct penstock_op ops[];
};

/* ---- for the streams ---- */

void door_begin(struct stream *st)
{
    pst_assert(!stream_underway(st));
    pst_assert(st->magic == STREAM_MAGIC);
    pst_list_push_back(&st->door->wants, &st->want_link);
}

void door_dirty(struct connection *c)
{
    pst_assert(c->magic == CONNECTION_MAGIC);
    if (pst_list_empty(&c->dirty_link))
        pst_list_push_back(&c->door->dirty, &c->dirty_link);
}

void turn_await(struct turns *turns, struct stream *st)
{
    pst_assert(!st->turn);
    pst_assert(pst_list_empty(&st->line_link));
    pst_list_push_back(&turns->line, &st->line_link);
}

void turn_give(struct stream *st)
{
    pst_assert(!st->turn || st->turn == &st->door->large || st->turn == &st->door->lists);
    if (st->turn)
        st->turn->left++;
    pst_assert(st->door->large.left <= LARGE_MAX);
    pst_assert(st->door->lists.left <= LISTS_MAX);
    st->turn = NULL;
}

static bool turn_due(const struct turns *turns)
{
    return turns->left && !pst_list_empty(&turns->line);
}

static void take_turns(struct turns *turns)
{
    while (turn_due(turns)) {
        struct stream *st = pst_list_first(&turns->line, struct stream, line_link);

        pst_list_remove(&st->line_link);
        pst_assert(!st->turn);
        pst_assert(stream_open_yet(st));
        turns->left--;
        st->turn = turns;
        stream_turn(st);
    }
}

/* ---- the store ---- */

static void poll_for(struct pst_door *door, int fd, void *tag, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = tag};

    pst_assert(epoll_ctl(door->poll_fd, EPOLL_CTL_MOD, fd, &event) == 0);
}

/* The queue's descriptor stirs now and then by itself, so it is polled only while something is underway. */
static void watch_queue(struct pst_door *door, bool watched)
{
    if (door->queue_watched != watched)
        poll_for(door, penstock_queue_fd(door->queue), &door->queue, watched ? EPOLLIN : 0);
    door->queue_watched = watched;
}

static void want_ended(struct stream *st)
{
    struct connection *c = st->connection;

    pst_assert(st->magic == STREAM_MAGIC);
    pst_assert(pst_list_empty(&st->want_link));
    st->batch = NULL;
    stream_ended(st);
    if (c)
        door_dirty(c);
}

static struct stream *next_want(struct pst_door *door)
{
    struct stream *st = pst_list_first(&door->wants, struct stream, want_link);

    pst_assert(!pst_list_empty(&door->wants));
    pst_list_remove(&st->want_link);
    pst_assert(st->magic == STREAM_MAGIC);
    return st;
}

/* Everything that streams want of the store, as one batch. */
static void submit_wants(struct pst_door *door)
{
    struct batch *batch;
    uint32_t count = 0;

    pst_list_each (at, &door->wants)
        count++;
    if (count == 0)
        return;
    batch = malloc(sizeof(*batch) + count * sizeof(batch->ops[0]));
    if (batch)
        batch->left = count;
    for (size_t i = 0; i < count; i++) {
        struct stream *st = next_want(door);

        if (batch) {
            pst_assert(!st->batch);
            batch->ops[i] = st->op;
            batch->ops[i].user = st;
            st->batch = batch;
        } else {
            st->op.result = -ENOMEM;
            want_ended(st);
        }
    }
    if (!batch)
        return;
    watch_queue(door, true);
    pst_assert(penstock_submit(door->queue, batch->ops, count) == 0); /* nobody forks */
    door->underway += count;
}

/* @timeout_ms: as of penstock_reap(). */
static void reap(struct pst_door *door, int timeout_ms)
{
    struct penstock_op *ops[EVENTS_A_ROUND];
    int count;

    if (door->underway == 0)
        return;
    do {
        count = penstock_reap(door->queue, ops, EVENTS_A_ROUND, timeout_ms);
        timeout_ms = 0;
        pst_assert(count <= EVENTS_A_ROUND);
        for (int i = 0; i < count; i++) {
            struct stream *st = stream_cast(ops[i]->user);
            struct batch *batch = st->batch;

            pst_assert(batch);
            pst_assert(door->underway > 0);
            pst_assert(ops[i]->code == st->op.code);
            st->op.result = ops[i]->result;
            st->op.generation = ops[i]->generation;
            st->op.value_bytes = ops[i]->value_bytes;
            st->op.error_detail = ops[i]->error_detail;
            door->underway--;
            pst_assert(batch->left > 0 && batch->left <= door->underway + 1);
            if (--batch->left == 0)
                free(batch);
            want_ended(st);
        }
    } while (count > 0 && door->underway);
}

/* One range a round is deleted a step further. */
static void sweep(struct pst_door *door)
{
    struct stream *st;

    if (pst_list_empty(&door->sweeps))
        return;
    st = pst_list_first(&door->sweeps, struct stream, line_link);
    pst_assert(st->magic == STREAM_MAGIC);
    pst_list_remove(&st->line_link);
    if (stream_sweep(st))
        pst_list_push_back(&door->sweeps, &st->line_link);
}

/* ---- clients ---- */

/*
 * The transport does not survive that descriptors run out, so the node works out how many clients it may have
 * by what is left when it starts. What the door may need later is therefore taken before, and given back as
 * needed.
 */
void door_hold(struct pst_door *door)
{
    int fd = fcntl(door->stop_fd, F_DUPFD_CLOEXEC, 0);

    pst_assert(door->held_count < door->held_max || fd < 0);
    pst_assert(door->held_count <= door->held_max);
    if (fd >= 0)
        door->held[door->held_count++] = fd;
}

void door_let_go(struct pst_door *door, uint32_t count)
{
    for (; count && door->held_count; count--)
        close(door->held[--door->held_count]);
}

static int hold_all(struct pst_door *door)
{
    pst_assert(!door->held);
    pst_assert(door->held_max >= door->connections_max);
    door->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    door->held = calloc(door->held_max, sizeof(*door->held));
    if (door->stop_fd < 0 || !door->held)
        return door->held ? -errno : -ENOMEM;
    for (uint32_t i = 0; i < door->held_max; i++)
        door_hold(door);
    return door->held_count == door->held_max ? 0 : -EMFILE;
}

/* The one that has had no call for longest gives way. */
static bool make_room(struct pst_door *door)
{
    pst_assert(door->connection_count <= door->connections_max);
    if (door->connection_count < door->connections_max)
        return true;
    pst_list_each (at, &door->connections) {
        struct connection *c = pst_list_entry(at, struct connection, link);

        if (pst_list_empty(&c->streams) && door->awake_ns - c->quiet_ns > pst_ns_of_ms(QUIET_MS)) {
            connection_close(c);
            return true;
        }
    }
    return false;
}

static void listen_again(struct pst_door *door, bool on)
{
    if (door->listening != on)
        poll_for(door, door->listen_fd, &door->listen_fd, on ? EPOLLIN : 0);
    door->listening = on;
}

static void accept_clients(struct pst_door *door)
{
    for (int i = 0; i < ACCEPTS_A_ROUND; i++) {
        int fd = accept4(door->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
                listen_again(door, false); /* until the next tick */
            return;
        }
        if (make_room(door)) {
            pst_assert(door->connection_count < door->connections_max);
            door_let_go(door, 1);
            connection_open(door, fd);
        } else {
            close(fd);
        }
    }
}

static void tick(struct pst_door *door, uint64_t now_ns)
{
    pst_assert(now_ns >= door->tick_ns);
    door->awake_ns += pst_min(now_ns - door->tick_ns, pst_ns_of_ms(WAIT_MS_MAX));
    door->tick_ns = now_ns;
    listen_again(door, true);
    pst_list_each_safe (at, &door->connections)
        connection_tick(pst_list_entry(at, struct connection, link), now_ns);
}

/* ---- the loop ---- */

static void flush(struct pst_door *door)
{
    struct pst_list now;

    /* Those that become dirty meanwhile are the next round's. */
    pst_list_init(&now);
    while (!pst_list_empty(&door->dirty)) {
        struct pst_list *link = door->dirty.next;

        pst_list_remove(link);
        pst_list_push_back(&now, link);
    }
    while (!pst_list_empty(&now)) {
        struct connection *c = pst_list_first(&now, struct connection, dirty_link);

        pst_list_remove(&c->dirty_link);
        pst_assert(c->magic == CONNECTION_MAGIC);
        connection_flush(c);
    }
}

static int wait_ms(const struct pst_door *door)
{
    if (!pst_list_empty(&door->dirty) || !pst_list_empty(&door->wants) || !pst_list_empty(&door->sweeps) ||
        turn_due(&door->large) || turn_due(&door->lists))
        return 0;
    if (door->stream_count || !door->listening)
        return TICK_MS;
    return door->connection_count ? WAIT_MS_MAX : -1;
}

static void dispatch(struct pst_door *door, const struct epoll_event *events, int count)
{
    bool arrived = false;

    for (int i = 0; i < count; i++) {
        void *tag = events[i].data.ptr;

        if (tag == &door->listen_fd)
            arrived = true;
        else if (tag == &door->queue)
            watch_queue(door, door->underway > 0);
        else if (tag != &door->stop_fd)
            connection_ready(tag, events[i].events);
    }
    if (arrived) /* last: it may close a connection */
        accept_clients(door);
}

static void finish(struct pst_door *door)
{
    while (!pst_list_empty(&door->connections))
        connection_close(pst_list_first(&door->connections, struct connection, link));
    while (door->stream_count) {
        pst_assert(door->underway || !pst_list_empty(&door->wants)); /* what else would they wait for */
        submit_wants(door);
        reap(door, -1);
    }
    pst_assert(door->stream_count == 0);
    pst_assert(door->underway == 0);
}

static void *door_main(void *arg)
{
    struct pst_door *door = arg;
    struct epoll_event events[EVENTS_A_ROUND];

    pst_assert(door->magic == DOOR_MAGIC);
    door->tick_ns = pst_now_ns();
    while (!door->stopping) {
        int count = epoll_wait(door->poll_fd, events, EVENTS_A_ROUND, wait_ms(door));
        uint64_t now_ns = pst_now_ns();

        dispatch(door, events, count);
        take_turns(&door->large);
        take_turns(&door->lists);
        sweep(door);
        submit_wants(door);
        reap(door, 0); /* once a round, and last: the queue's descriptor is armed then */
        flush(door);
        if (now_ns - door->tick_ns >= pst_ns_of_ms(TICK_MS))
            tick(door, now_ns);
    }
    finish(door);
    return NULL;
}

/* ---- opening ---- */

static int parse(const struct door_opening *opening, struct pst_boot_address *address, char *fault)
{
    const char *why = "", *name = opening->service->name;
    int r = pst_boot_address_parse(opening->address, address, &why);

    if (r == 0 && address->path[0]) {
        why = "server address must be host:port";
        r = -EINVAL;
    }
    if (r == 0 && !opening->network && !pst_boot_address_loopback(address))
        r = -EACCES;
    if (r == -EACCES)
        snprintf(fault, PST_FAULT_BYTES,
                 "%s %.120s: off loopback everyone may read and write: that needs %s_network=yes", name,
                 opening->address, name);
    else if (r < 0)
        snprintf(fault, PST_FAULT_BYTES, "%s %.120s: %s", name, opening->address, why);
    return r;
}

static int bind_address(struct pst_door *door, struct pst_boot_address *address)
{
    int fd = pst_boot_listen_tcp(address);

    if (fd < 0)
        return fd;
    door->listen_fd = fd;
    pst_boot_address_print(address, door->address, sizeof(door->address));
    return 0;
}

static void init(struct pst_door *door, const struct door_opening *opening)
{
    door->magic = DOOR_MAGIC;
    door->service = opening->service;
    door->poll_fd = door->stop_fd = door->listen_fd = -1;
    door->connections_max = opening->connections_max;
    door->held_max = opening->connections_max + opening->descriptors;
    door->patience_ns = pst_ns_of_ms(opening->stall_ms);
    door->large.left = LARGE_MAX;
    door->lists.left = LISTS_MAX;
    pst_list_init(&door->large.line);
    pst_list_init(&door->lists.line);
    pst_list_init(&door->connections);
    pst_list_init(&door->dirty);
    pst_list_init(&door->wants);
    pst_list_init(&door->sweeps);
}

int door_open(const struct door_opening *opening, struct pst_door **out, char fault[PST_FAULT_BYTES])
{
    struct pst_boot_address address;
    struct pst_door *door;
    int r = parse(opening, &address, fault);

    if (r < 0)
        return r;
    for (uint32_t i = 0; i < opening->service->method_count; i++)
        pst_assert(opening->service->methods[i]->drop);
    snprintf(fault, PST_FAULT_BYTES, "%s: out of memory", opening->service->name);
    door = calloc(1, sizeof(*door));
    if (!door)
        return -ENOMEM;
    init(door, opening);
    door->input = malloc(DOOR_INPUT_BYTES);
    r = door->input ? connection_callbacks(door) : -ENOMEM;
    if (r == 0)
        r = bind_address(door, &address);
    if (r == 0)
        r = hold_all(door);
    if (r < 0)
        snprintf(fault, PST_FAULT_BYTES, "%s %.120s: %s", opening->service->name, opening->address,
                 strerror(-r));
    if (r < 0)
        pst_door_close(door);
    else
        *out = door;
    return r;
}

const char *pst_door_address(const struct pst_door *door)
{
    pst_assert(door->magic == DOOR_MAGIC);
    return door->address;
}

static int add(struct pst_door *door, int fd, void *tag, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = tag};

    if (fd < 0)
        return fd;
    return epoll_ctl(door->poll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

static int open_poll(struct pst_door *door)
{
    int r = 0;

    pst_assert(door->poll_fd < 0);
    door->poll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (door->poll_fd < 0)
        return -errno;
    r = add(door, door->stop_fd, &door->stop_fd, EPOLLIN);
    if (r == 0 && door->queue)
        r = add(door, penstock_queue_fd(door->queue), &door->queue, 0);
    if (r == 0)
        r = add(door, door->listen_fd, &door->listen_fd, EPOLLIN);
    door->listening = true;
    return r;
}

int door_run(struct pst_door *door, char fault[PST_FAULT_BYTES])
{
    int r;

    pst_assert(door->magic == DOOR_MAGIC);
    pst_assert(!door->running);
    r = open_poll(door);
    if (r == 0)
        r = -pthread_create(&door->thread, NULL, door_main, door);
    door->running = r == 0;
    if (r < 0)
        snprintf(fault, PST_FAULT_BYTES, "%s: %s", door->service->name, strerror(-r));
    return r;
}

struct pst_door *pst_door_close(struct pst_door *door)
{
    if (!door)
        return NULL;
    pst_assert(door->magic == DOOR_MAGIC);
    if (door->running) {
        door->stopping = true;
        pst_event_set(door->stop_fd);
        pthread_join(door->thread, NULL);
    }
    pst_assert(door->stream_count == 0);
    pst_assert(door->connection_count == 0);
    pst_assert(door->underway == 0);
    pst_assert(door->gathered_bytes == 0);
    if (door->service->close)
        door->service->close(door);
    penstock_queue_close(door->queue);
    penstock_close(door->store);
    nghttp2_session_callbacks_del(door->callbacks);
    nghttp2_option_del(door->option);
    pst_close_fd(&door->listen_fd);
    pst_close_fd(&door->poll_fd);
    pst_close_fd(&door->stop_fd);
    door_let_go(door, door->held_count);
    free(door->held);
    while (door->spare_count)
        free(door->spare[--door->spare_count]);
    free(door->input);
    door->magic = 0;
    free(door);
    return NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "stub_gateway.h"

#include "gateway/tsgrpc/tsgrpc_priv.h"
#include "net/handshake.h"

#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum { FD_POLL = 10000, FD_LISTEN, FD_QUEUE, FD_CLIENTS, OPS_MAX = 4096, RESERVATIONS_MAX = 64 };

struct stub_reservation {
    uint64_t handle, bytes;
    uint16_t key_bytes;
    uint8_t key[PST_KEY_BYTES_MAX];
};

struct stub_world stub;
uint8_t stub_pattern[STUB_PATTERN_BYTES];
static struct penstock_op *pending[OPS_MAX], *ended[OPS_MAX];
static struct stub_reservation reservations[RESERVATIONS_MAX];
static uint64_t last_handle;
static void *listen_tag;
static bool listening;
static void *(*door_routine)(void *);
static struct pst_door *door;

/* ---- clock ---- */

int __real_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out)
{
    if (!stub.running)
        return __real_clock_gettime(id, out);
    *out = (struct timespec){(time_t)(stub.now_ns / 1000000000), (long)(stub.now_ns % 1000000000)};
    return 0;
}

void stub_pass(uint64_t ms)
{
    stub.now_ns += ms * STUB_MS;
    stub.awake_ns += pst_min(ms, 1000) * STUB_MS;
}

/* ---- sockets ---- */

static struct stub_socket *socket_of(int fd)
{
    return stub.running && fd >= FD_CLIENTS && fd < FD_CLIENTS + STUB_CLIENTS ? &stub.sockets[fd - FD_CLIENTS]
                                                                              : NULL;
}

void stub_send(uint32_t client, const void *data, size_t bytes)
{
    struct stub_socket *s = &stub.sockets[client];

    if (!s->open || s->hung_up || !bytes)
        return;
    stub_append(&s->sent, data, bytes);
}

int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
    struct stub_socket *s = socket_of(fd);

    if (fd >= FD_POLL && fd < FD_CLIENTS)
        return 0;
    if (!s)
        return __real_close(fd);
    pst_assert(s->open && s->accepted);
    free(s->sent.data);
    *s = (struct stub_socket){0};
    stub_closed((uint32_t)(fd - FD_CLIENTS));
    return 0;
}

int __real_accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags);
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags);
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags)
{
    if (fd != FD_LISTEN)
        return __real_accept4(fd, address, bytes, flags);
    for (int i = 0; i < STUB_CLIENTS; i++) {
        if (stub.sockets[i].open && !stub.sockets[i].accepted) {
            stub.sockets[i].accepted = true;
            return FD_CLIENTS + i;
        }
    }
    errno = EAGAIN;
    return -1;
}

ssize_t __real_recv(int fd, void *buf, size_t bytes, int flags);
ssize_t __wrap_recv(int fd, void *buf, size_t bytes, int flags);
ssize_t __wrap_recv(int fd, void *buf, size_t bytes, int flags)
{
    struct stub_socket *s = socket_of(fd);
    size_t count;

    if (!s)
        return __real_recv(fd, buf, bytes, flags);
    count = pst_min(pst_min(s->sent.bytes, s->portion), bytes);
    if (count == 0) {
        errno = EAGAIN;
        return s->hung_up ? 0 : -1;
    }
    if (s->busy)
        stub.moved_ns = stub.awake_ns;
    memcpy(buf, s->sent.data, count);
    stub_drop_front(&s->sent, count);
    s->busy = s->busy && s->sent.bytes;
    return (ssize_t)count;
}

ssize_t __real_send(int fd, const void *data, size_t bytes, int flags);
ssize_t __wrap_send(int fd, const void *data, size_t bytes, int flags);
ssize_t __wrap_send(int fd, const void *data, size_t bytes, int flags)
{
    struct stub_socket *s = socket_of(fd);
    size_t count;

    if (!s)
        return __real_send(fd, data, bytes, flags);
    count = pst_min(s->room, bytes);
    if (count == 0) {
        errno = EAGAIN;
        return -1;
    }
    s->room -= count;
    stub.moved_ns = stub.awake_ns;
    stub_taken((uint32_t)(fd - FD_CLIENTS), data, count);
    return (ssize_t)count;
}

int __real_setsockopt(int fd, int level, int name, const void *value, socklen_t bytes);
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t bytes);
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t bytes)
{
    return socket_of(fd) ? 0 : __real_setsockopt(fd, level, name, value, bytes);
}

int __wrap_pst_boot_listen_tcp(struct pst_boot_address *address);
int __wrap_pst_boot_listen_tcp(struct pst_boot_address *address)
{
    (void)address;
    return FD_LISTEN;
}

/* ---- epoll ---- */

int __wrap_epoll_create1(int flags);
int __wrap_epoll_create1(int flags)
{
    (void)flags;
    return FD_POLL;
}

int __wrap_epoll_ctl(int poll_fd, int what, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int poll_fd, int what, int fd, struct epoll_event *event)
{
    struct stub_socket *s = socket_of(fd);

    (void)what;
    pst_assert(poll_fd == FD_POLL);
    if (fd == FD_LISTEN) {
        listen_tag = event->data.ptr;
        listening = event->events;
    } else if (s) {
        pst_assert(s->open);
        s->tag = event->data.ptr;
        s->events = event->events;
    }
    return 0;
}

int __wrap_epoll_wait(int poll_fd, struct epoll_event *events, int max, int timeout_ms);
int __wrap_epoll_wait(int poll_fd, struct epoll_event *events, int max, int timeout_ms)
{
    bool waiting = false;
    int count = 0;

    (void)timeout_ms;
    pst_assert(poll_fd == FD_POLL && max > STUB_CLIENTS);
    if (!stub_step())
        door->stopping = true;
    for (int i = 0; i < STUB_CLIENTS; i++) {
        struct stub_socket *s = &stub.sockets[i];
        uint32_t ready = s->sent.bytes || s->hung_up ? EPOLLIN : 0;

        waiting = waiting || (s->open && !s->accepted);
        ready |= s->room ? EPOLLOUT : 0u;
        if (s->accepted && ready & s->events)
            events[count++] = (struct epoll_event){.events = ready & s->events, .data.ptr = s->tag};
    }
    if (listening && waiting)
        events[count++] = (struct epoll_event){.events = EPOLLIN, .data.ptr = listen_tag};
    return count;
}

/* ---- store: operations ---- */

uint64_t stub_value_bytes(uint64_t generation)
{
    static const uint32_t bytes[] = {65536, 300000, 270000, 0, 70000, 1100000, 10, 400000};

    return bytes[generation % pst_count_of(bytes)];
}

const uint8_t *stub_value(uint64_t generation)
{
    return stub_pattern + generation % 251;
}

/* Return: of the value, 0 there is none. */
static uint64_t generation_of(const void *key, size_t key_bytes)
{
    uint8_t digit = key_bytes == 1 ? *(const uint8_t *)key : 0;

    return digit >= '0' && digit < '0' + STUB_KEYS ? stub.generations[digit - '0'] : 0;
}

void stub_store_changes(uint32_t key)
{
    stub.generations[key % STUB_KEYS] = ++stub.last_generation;
}

static int do_get(struct penstock_op *op)
{
    uint64_t bytes;

    op->generation = generation_of(op->key, op->key_bytes);
    if (!op->generation)
        return PENSTOCK_MISS;
    op->value_bytes = bytes = stub_value_bytes(op->generation);
    if (!(op->flags & PENSTOCK_RANGE)) {
        if (bytes > op->bytes)
            return -ENOBUFS;
        memcpy(op->data, stub_value(op->generation), bytes);
        return 0;
    }
    if (op->offset > bytes || op->bytes > bytes - op->offset)
        return -ERANGE;
    memcpy(op->data, stub_value(op->generation) + op->offset, op->bytes);
    return 0;
}

/* The store reads what it was given, and that is what was sent. */
static void check_written(const struct penstock_op *op, uint64_t offset)
{
    uint8_t *copy = malloc(op->bytes + 1);

    pst_assert(copy);
    if (op->bytes)
        memcpy(copy, op->data, op->bytes);
    if (!stub.garbage && offset + op->bytes <= STUB_PATTERN_BYTES)
        pst_assert(memcmp(copy, stub_pattern + offset, op->bytes) == 0);
    free(copy);
}

static struct stub_reservation *reservation_of(const struct penstock_op *op)
{
    for (int i = 0; i < RESERVATIONS_MAX; i++) {
        struct stub_reservation *reservation = &reservations[i];

        if (reservation->handle && reservation->handle == op->handle) {
            /* The node finds a reservation by its key's shard. */
            pst_assert(reservation->key_bytes == op->key_bytes &&
                       memcmp(reservation->key, op->key, op->key_bytes) == 0);
            return reservation;
        }
    }
    return NULL;
}

static int do_reserve(struct penstock_op *op)
{
    struct penstock_reservation *out = op->data;

    for (int i = 0; i < RESERVATIONS_MAX; i++) {
        if (reservations[i].handle)
            continue;
        reservations[i] = (struct stub_reservation){.handle = ++last_handle, .key_bytes = op->key_bytes};
        memcpy(reservations[i].key, op->key, op->key_bytes);
        *out = (struct penstock_reservation){.handle = last_handle};
        stub.reservations++;
        return 0;
    }
    return -EDQUOT;
}

static int do_reservation(struct penstock_op *op)
{
    struct stub_reservation *reservation = reservation_of(op);

    if (!reservation)
        return PENSTOCK_MISS;
    if (op->code == PENSTOCK_WRITE_AT) {
        pst_assert(op->offset == reservation->bytes);
        check_written(op, op->offset);
        reservation->bytes += op->bytes;
        return 0;
    }
    pst_assert(op->code == PENSTOCK_RESERVATION_ABORT || op->bytes == reservation->bytes);
    *reservation = (struct stub_reservation){0};
    stub.reservations--;
    op->generation = ++stub.last_generation;
    return 0;
}

static int do_operation(struct penstock_op *op)
{
    switch (op->code) {
    case PENSTOCK_GET:
        return do_get(op);
    case PENSTOCK_PUT:
        check_written(op, 0);
        op->generation = ++stub.last_generation;
        return 0;
    case PENSTOCK_RESERVE:
        return do_reserve(op);
    case PENSTOCK_WRITE_AT:
    case PENSTOCK_RESERVATION_COMMIT:
    case PENSTOCK_RESERVATION_ABORT:
        return do_reservation(op);
    default:
        pst_assert(op->code == PENSTOCK_DELETE || op->code == PENSTOCK_STAT_KEY);
        return generation_of(op->key, op->key_bytes) ? 0 : PENSTOCK_MISS;
    }
}

void stub_store_answers(size_t which, uint32_t how)
{
    static const int errors[] = {PENSTOCK_BUSY, PENSTOCK_UNKNOWN, PENSTOCK_STALE, -ENOSPC,
                                 -ENOMEM,       -ETIMEDOUT,       -ECONNRESET,    -EFBIG};
    struct penstock_op *op;
    struct stub_reservation *reservation;

    if (!stub.pending)
        return;
    which %= stub.pending;
    op = pending[which];
    pending[which] = pending[--stub.pending];
    op->result = how ? errors[how % pst_count_of(errors)] : do_operation(op);
    reservation = op->code == PENSTOCK_RESERVATION_COMMIT || op->code == PENSTOCK_RESERVATION_ABORT
                      ? reservation_of(op)
                      : NULL;
    /* Busy leaves a reservation; the end of a session, and what is decided, do not. */
    if (reservation && how && op->result != PENSTOCK_BUSY && op->result != -EFBIG)
        do_reservation(op);
    ended[stub.ended++] = op;
    stub.moved_ns = stub.awake_ns;
}

int __wrap_penstock_submit(struct penstock_queue *queue, struct penstock_op *ops, size_t count);
int __wrap_penstock_submit(struct penstock_queue *queue, struct penstock_op *ops, size_t count)
{
    (void)queue;
    pst_assert(stub.pending + count <= OPS_MAX);
    for (size_t i = 0; i < count; i++)
        pending[stub.pending++] = &ops[i];
    return 0;
}

int __wrap_penstock_reap(struct penstock_queue *queue, struct penstock_op **ops, int max, int timeout_ms);
int __wrap_penstock_reap(struct penstock_queue *queue, struct penstock_op **ops, int max, int timeout_ms)
{
    int count = 0;

    (void)queue;
    if (timeout_ms < 0 && !stub.ended)
        stub_store_answers(0, 0);
    while (count < max && stub.ended)
        ops[count++] = ended[--stub.ended];
    return count;
}

/* ---- store: calls ---- */

int __wrap_penstock_view(struct penstock *store, const void *key, size_t key_bytes,
                         struct penstock_view *view);
int __wrap_penstock_view(struct penstock *store, const void *key, size_t key_bytes,
                         struct penstock_view *view)
{
    uint64_t generation = generation_of(key, key_bytes), bytes = stub_value_bytes(generation);
    uint8_t *copy;

    (void)store;
    if (!generation)
        return PENSTOCK_MISS;
    copy = malloc(bytes + 1);
    pst_assert(copy);
    memcpy(copy, stub_value(generation), bytes);
    *view = (struct penstock_view){.data = copy, .bytes = bytes, .generation = generation};
    stub.views++;
    return 0;
}

void __wrap_penstock_view_release(struct penstock *store, struct penstock_view *view);
void __wrap_penstock_view_release(struct penstock *store, struct penstock_view *view)
{
    (void)store;
    free((void *)(uintptr_t)view->data);
    stub.views--;
}

struct penstock_list {
    uint32_t left;
    char key[512];
};

int __wrap_penstock_list_open(struct penstock *store, const struct penstock_list_options *options,
                              struct penstock_list **out);
int __wrap_penstock_list_open(struct penstock *store, const struct penstock_list_options *options,
                              struct penstock_list **out)
{
    (void)store;
    (void)options;
    *out = calloc(1, sizeof(**out));
    pst_assert(*out);
    (*out)->left = 700; /* more than a connection's memory */
    stub.lists++;
    return 0;
}

int __wrap_penstock_list_next(struct penstock_list *list, struct penstock_entry *entry);
int __wrap_penstock_list_next(struct penstock_list *list, struct penstock_entry *entry)
{
    if (!list->left)
        return 0;
    list->left--;
    memcpy(list->key, &list->left, sizeof(list->left));
    *entry = (struct penstock_entry){.key = list->key, .key_bytes = sizeof(list->key), .value_bytes = 1};
    return 1;
}

struct penstock_list *__wrap_penstock_list_close(struct penstock_list *list);
struct penstock_list *__wrap_penstock_list_close(struct penstock_list *list)
{
    if (list)
        stub.lists--;
    free(list);
    return NULL;
}

int __wrap_penstock_delete_range(struct penstock *store, const void *start, size_t start_bytes,
                                 const void *end, size_t end_bytes, uint64_t *deleted);
int __wrap_penstock_delete_range(struct penstock *store, const void *start, size_t start_bytes,
                                 const void *end, size_t end_bytes, uint64_t *deleted)
{
    (void)store;
    (void)start;
    (void)start_bytes;
    (void)end;
    (void)end_bytes;
    (void)deleted;
    stub.moved_ns = stub.awake_ns;
    return 0;
}

int __wrap_penstock_open(const char *url, const struct penstock_options *options, struct penstock **out);
int __wrap_penstock_open(const char *url, const struct penstock_options *options, struct penstock **out)
{
    (void)url;
    (void)options;
    *out = NULL;
    return 0;
}

int __wrap_penstock_queue_open(struct penstock *store, struct penstock_queue **out);
int __wrap_penstock_queue_open(struct penstock *store, struct penstock_queue **out)
{
    (void)store;
    *out = NULL;
    return 0;
}

int __wrap_penstock_queue_fd(struct penstock_queue *queue);
int __wrap_penstock_queue_fd(struct penstock_queue *queue)
{
    (void)queue;
    return FD_QUEUE;
}

/* ---- the door ---- */

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*routine)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*routine)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*routine)(void *), void *arg)
{
    if (!stub.running)
        return __real_pthread_create(thread, attr, routine, arg);
    door_routine = routine;
    return 0;
}

int __real_pthread_join(pthread_t thread, void **out);
int __wrap_pthread_join(pthread_t thread, void **out);
int __wrap_pthread_join(pthread_t thread, void **out)
{
    return stub.running ? 0 : __real_pthread_join(thread, out);
}

void stub_begin(void)
{
    static uint64_t random;

    for (size_t i = 0; i < STUB_PATTERN_BYTES && !stub_pattern[STUB_PATTERN_BYTES - 1]; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        stub_pattern[i] = (uint8_t)(random >> 33 | 1);
    }
    stub = (struct stub_world){.running = true, .now_ns = 1000ull * 1000000000, .last_generation = 8};
    memset(reservations, 0, sizeof(reservations));
    for (uint32_t i = 1; i < STUB_KEYS; i++)
        stub_store_changes(i);
}

void stub_run(void)
{
    const struct pst_tsgrpc_settings settings = {.tsgrpc = (char *)(uintptr_t) "127.0.0.1:1",
                                               .tsgrpc_connections = STUB_CLIENTS - 1,
                                               .tsgrpc_stall_ms = 60000};
    char fault[PST_FAULT_BYTES];

    pst_assert(pst_tsgrpc_open(&settings, &door, fault) == 0);
    pst_assert(pst_tsgrpc_serve(door, "", (struct pst_bytes){NULL, 0}, fault) == 0);
    door_routine(door);
    pst_assert(stub.pending == 0 && stub.ended == 0);
    door = pst_door_close(door);
    pst_assert(stub.views == 0 && stub.reservations == 0 && stub.lists == 0);
    for (int i = 0; i < STUB_CLIENTS; i++) {
        pst_assert(!stub.sockets[i].accepted);
        free(stub.sockets[i].sent.data);
    }
    stub.running = false;
}

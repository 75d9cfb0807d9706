/* SPDX-License-Identifier: Apache-2.0 */
/*
 * receptions.c: tensors on their way into this pod. Each reception has a thread of its own, a member of the
 * broadcast, which stays until no other pod needs it. Frames that ask for the same share it. It is there from
 * the first frame that asks until the last has its answer and its thread has ended.
 */
#include "agent/pod/casts_priv.h"

#include "base/clock.h"
#include "base/ms.h"
#include "base/wait.h"
#include "files/relay/relay.h"
#include "mem/limit.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>

enum { LOOK_MS = 500 }; /* between two looks at whether a waiting client is still there */

enum reception_state { COMING, THERE, FAILED };

struct pod_reception {
    struct pst_list link;
    struct pst_pod *pod;
    struct pod_order order;
    /* Under the lock: */
    uint32_t askers; /* frames that wait for it, or answer with it */
    bool runs;       /* its thread */
    bool claimed;
    enum reception_state state;
    int error;
    char fault[PST_FAULT_BYTES];
    uint64_t bytes; /* of memory that is not there yet, which others are not to count on */
    _Atomic bool stop;
    /* Of its thread; from THERE on they stay as they are: */
    struct pod_fds memories;
    int table_fd; /* -1: none */
    char *table;
    size_t table_bytes;
};

struct ended {
    pthread_t id;
    bool there;
};

struct pod_receptions {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct pst_list list;
    struct ended last; /* thread that ended: the next to end joins it, as it has joined the one before */
    uint32_t count;
    uint64_t bytes; /* of all */
    bool stopping;
};

/* ---- the sink ---- */

static int sink_fail(int error, const char *what, char fault[PST_FAULT_BYTES])
{
    pst_assert(error < 0);
    snprintf(fault, PST_FAULT_BYTES, "%s: %s", what, strerror(-error));
    return error;
}

/* Takes so much memory into account. Return: 0, -ENOMEM the host has less left. */
static int sink_reserve(struct pod_reception *reception, uint64_t bytes)
{
    struct pod_receptions *all = reception->pod->receptions;
    struct pst_limit limit;
    int r = 0;

    pst_limit_read("", &limit);
    pthread_mutex_lock(&all->lock);
    pst_assert(reception->bytes == 0);
    if (bytes > limit.left_bytes || all->bytes > limit.left_bytes - bytes)
        r = -ENOMEM;
    else {
        reception->bytes = bytes;
        all->bytes += bytes;
    }
    pthread_mutex_unlock(&all->lock);
    return r;
}

/* Under the lock. */
static void reception_release(struct pod_receptions *all, struct pod_reception *reception)
{
    pst_assert(all->bytes >= reception->bytes);
    all->bytes -= reception->bytes;
    reception->bytes = 0;
}

/* What comes must be memories and a table, and nothing else. */
static bool manifest_fits(const struct pst_manifest *m)
{
    if (m->count < 2 || m->count > POD_FDS_MAX + 2 || m->entries[0].kind != PST_ENTRY_FOLDER)
        return false;
    for (uint32_t i = 1; i < m->count; i++) {
        const struct pst_entry *entry = &m->entries[i];
        bool is_table = i == m->count - 1;
        char name[POD_MEMORY_NAME_BYTES] = POD_TABLE_NAME;

        if (!is_table)
            cast_memory_name(i - 1, name);
        if (entry->kind != PST_ENTRY_FILE || strcmp(entry->path, name) != 0 ||
            (is_table && (entry->bytes == 0 || entry->bytes > POD_TABLE_BYTES_MAX)))
            return false;
    }
    return true;
}

static int memory_file(const char *name, uint64_t bytes)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING), r;

    if (fd < 0 || ftruncate(fd, (off_t)bytes) == 0)
        return fd < 0 ? -errno : fd;
    r = -errno;
    close(fd);
    return r;
}

static int sink_begin(void *ctx, const struct pst_manifest *m, char fault[PST_FAULT_BYTES])
{
    struct pod_reception *reception = ctx;
    int r;

    pst_assert(reception->memories.count == 0);
    if (!manifest_fits(m)) {
        snprintf(fault, PST_FAULT_BYTES, "what comes are no tensors");
        return -EBADMSG;
    }
    r = sink_reserve(reception, m->file_bytes);
    if (r < 0) {
        snprintf(fault, PST_FAULT_BYTES, "%llu bytes come, and this host has not as much memory left",
                 (unsigned long long)m->file_bytes);
        return r;
    }
    reception->table_bytes = m->entries[m->count - 1].bytes;
    reception->table_fd = r = memory_file("penstock-table", reception->table_bytes);
    for (uint32_t i = 1; r >= 0 && i < m->count - 1; i++) {
        r = memory_file("penstock-tensor", m->entries[i].bytes);
        if (r >= 0)
            reception->memories.fds[reception->memories.count++] = r;
    }
    return r < 0 ? sink_fail(r, "memory for tensors", fault) : 0;
}

/* The file of an entry of the manifest. */
static int sink_fd(const struct pod_reception *reception, uint32_t entry)
{
    pst_assert(entry > 0 && entry <= reception->memories.count + 1);
    return entry <= reception->memories.count ? reception->memories.fds[entry - 1] : reception->table_fd;
}

static int sink_write(void *ctx, uint32_t entry, uint64_t at, const void *data, size_t bytes,
                      char fault[PST_FAULT_BYTES])
{
    const struct pod_reception *reception = ctx;
    int fd = sink_fd(reception, entry);
    size_t done = data ? 0 : bytes; /* zeros are there */

    pst_assert(reception->state == COMING);
    while (done < bytes) {
        ssize_t n = pwrite(fd, (const char *)data + done, bytes - done, (off_t)(at + done));

        if (n < 0 && errno != EINTR)
            return sink_fail(-errno, "memory for tensors", fault);
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static int sink_open(void *ctx, uint32_t entry)
{
    int copy = fcntl(sink_fd(ctx, entry), F_DUPFD_CLOEXEC, 0);

    return copy < 0 ? -errno : copy;
}

/* Nobody writes to it any more. F_SEAL_WRITE would refuse memory that is still being sent to a child. */
static int memory_seal(int *fd)
{
    char path[32];
    int reads;

    if (fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) < 0)
        return -errno;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", *fd);
    reads = open(path, O_RDONLY | O_CLOEXEC);
    if (reads < 0)
        return -errno;
    close(*fd);
    *fd = reads;
    return 0;
}

static int sink_end(void *ctx, char fault[PST_FAULT_BYTES])
{
    struct pod_reception *reception = ctx;
    struct pod_receptions *all = reception->pod->receptions;
    int r = 0;

    pst_assert(reception->state == COMING);
    pst_assert(!reception->table);
    for (uint32_t i = 0; r == 0 && i < reception->memories.count; i++)
        r = memory_seal(&reception->memories.fds[i]);
    reception->table = r == 0 ? malloc(reception->table_bytes) : NULL;
    if (r == 0 && !reception->table)
        r = -ENOMEM;
    if (r == 0 && pread(reception->table_fd, reception->table, reception->table_bytes, 0) !=
                      (ssize_t)reception->table_bytes)
        r = -EIO;
    if (r < 0)
        return sink_fail(r, "memory for tensors", fault);
    pthread_mutex_lock(&all->lock);
    reception_release(all, reception); /* it counts as taken by now */
    reception->state = THERE;
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->lock);
    return 0;
}

/* What has come whole stays for those who ask. */
static void sink_close(void *ctx)
{
    struct pod_reception *reception = ctx;
    struct pod_receptions *all = reception->pod->receptions;

    if (reception->state == THERE)
        return;
    pthread_mutex_lock(&all->lock);
    reception_release(all, reception);
    pthread_mutex_unlock(&all->lock);
    fds_close(&reception->memories);
    pst_close_fd(&reception->table_fd);
    free(reception->table);
    reception->table = NULL;
}

static const struct pst_broadcast_sink sink = {
    .begin = sink_begin, .write = sink_write, .end = sink_end, .open = sink_open, .close = sink_close};

/* ---- a reception ---- */

/* Under the lock. */
static void reception_end(struct pod_receptions *all, struct pod_reception *reception)
{
    if (reception->askers > 0 || reception->runs)
        return;
    pst_assert(all->count > 0 && reception->bytes == 0);
    all->count--;
    pst_list_remove(&reception->link);
    fds_close(&reception->memories);
    pst_close_fd(&reception->table_fd);
    free(reception->table);
    free(reception);
    pthread_cond_broadcast(&all->changed);
}

static void ended_join(struct ended thread)
{
    if (thread.there)
        pthread_join(thread.id, NULL);
}

static void *reception_run(void *arg)
{
    struct pod_reception *reception = arg;
    const struct pod_order *order = &reception->order;
    struct pst_pod *pod = reception->pod;
    struct pod_receptions *all = pod->receptions;
    struct ended before;
    const struct pst_broadcast_options options = {.host = order->host,
                                                  .port = order->port,
                                                  .group = order->group,
                                                  .name = order->key,
                                                  .token = {pod->token, pod->token_bytes},
                                                  .members = order->members,
                                                  .timeout_ms = order->timeout_ms,
                                                  .stop = &reception->stop};
    char fault[PST_FAULT_BYTES] = "";
    int r = pst_broadcast_receive(&options, &sink, reception, fault);

    if (r == PST_BROADCAST_COPIES) {
        snprintf(fault, sizeof(fault), "the source has a tree of files there");
        r = -EPROTO;
    }
    pthread_mutex_lock(&all->lock);
    pst_assert(r < 0 || reception->state == THERE);
    if (reception->state == COMING) {
        reception->state = FAILED;
        reception->error = r;
        memcpy(reception->fault, fault, sizeof(fault));
    }
    pthread_cond_broadcast(&all->changed);
    reception->runs = false;
    before = all->last;
    all->last = (struct ended){pthread_self(), true};
    reception_end(all, reception);
    pthread_mutex_unlock(&all->lock);
    ended_join(before);
    return NULL;
}

static bool order_is(const struct pod_order *a, const struct pod_order *b)
{
    return strcmp(a->group, b->group) == 0 && strcmp(a->key, b->key) == 0 && strcmp(a->host, b->host) == 0 &&
           a->port == b->port;
}

/* Under the lock, as the next. */
static struct pod_reception *receptions_find(struct pod_receptions *all, const struct pod_order *order)
{
    pst_list_each (it, &all->list) {
        struct pod_reception *reception = pst_list_entry(it, struct pod_reception, link);

        if (reception->runs && !reception->stop && order_is(&reception->order, order))
            return reception;
    }
    return NULL;
}

static int receptions_begin(struct pst_pod *pod, const struct pod_order *order, struct pod_reception **out)
{
    struct pod_receptions *all = pod->receptions;
    struct pod_reception *reception;
    pthread_t thread;
    int r;

    if (all->count == POD_RECEPTIONS_MAX)
        return -EBUSY;
    reception = calloc(1, sizeof(*reception));
    if (!reception)
        return -ENOMEM;
    reception->pod = pod;
    reception->order = *order;
    reception->table_fd = -1;
    reception->runs = true;
    r = -pthread_create(&thread, NULL, reception_run, reception);
    if (r < 0) {
        free(reception);
        return r;
    }
    pst_list_push_back(&all->list, &reception->link);
    all->count++;
    pst_assert(all->count <= POD_RECEPTIONS_MAX);
    *out = reception;
    return 0;
}

/* ---- those who ask ---- */

/* Under the lock, which it lets go. */
static int reception_wait(struct pst_pod *pod, const struct pod_patience *patience,
                          struct pod_reception *reception)
{
    struct pod_receptions *all = pod->receptions;
    bool is_over;
    int r = 0;

    pst_assert(reception->askers > 0);
    while (r == 0 && reception->state == COMING) {
        pthread_mutex_unlock(&all->lock);
        is_over = patience->is_over(patience->ctx);
        pthread_mutex_lock(&all->lock);
        if (all->stopping || is_over)
            r = -ECANCELED;
        else if (reception->state == COMING)
            pst_cond_wait_until(&all->changed, &all->lock, pst_deadline_ns(pst_now_ns(), LOOK_MS));
    }
    return r == 0 && reception->state == FAILED ? reception->error : r;
}

/* Under the lock. */
static void reception_let_go(struct pod_receptions *all, struct pod_reception *reception)
{
    pst_assert(reception->askers > 0);
    reception->askers--;
    if (reception->askers == 0 && reception->state == COMING)
        reception->stop = true;
    reception_end(all, reception);
}

int receptions_await(struct pst_pod *pod, const struct pod_patience *patience, const struct pod_order *order,
                     struct pod_reception **out, char fault[PST_FAULT_BYTES])
{
    struct pod_receptions *all = pod->receptions;
    struct pod_reception *reception;
    int r = 0;

    pthread_mutex_lock(&all->lock);
    reception = receptions_find(all, order);
    if (!reception)
        r = all->stopping ? -ECANCELED : receptions_begin(pod, order, &reception);
    if (r == 0) {
        reception->askers++;
        r = reception_wait(pod, patience, reception);
        memcpy(fault, reception->fault, PST_FAULT_BYTES);
        if (r == 0)
            *out = reception;
        else
            reception_let_go(all, reception);
    }
    pthread_mutex_unlock(&all->lock);
    if (r < 0 && !fault[0])
        snprintf(fault, PST_FAULT_BYTES, "%s",
                 r == -EBUSY       ? "this agent receives too many broadcasts at once"
                 : r == -ECANCELED ? "this agent is stopping"
                                   : strerror(-r));
    return r;
}

const struct pod_fds *reception_memories(const struct pod_reception *reception)
{
    pst_assert(reception->state == THERE);
    return &reception->memories;
}

struct pst_bytes reception_table(const struct pod_reception *reception)
{
    pst_assert(reception->table);
    return (struct pst_bytes){reception->table, reception->table_bytes};
}

bool reception_claim(struct pst_pod *pod, struct pod_reception *reception)
{
    bool claims;

    pthread_mutex_lock(&pod->receptions->lock);
    pst_assert(reception->state == THERE);
    claims = !reception->claimed;
    reception->claimed = true;
    pthread_mutex_unlock(&pod->receptions->lock);
    return claims;
}

void reception_drop(struct pst_pod *pod, struct pod_reception *reception)
{
    pthread_mutex_lock(&pod->receptions->lock);
    reception_let_go(pod->receptions, reception);
    pthread_mutex_unlock(&pod->receptions->lock);
}

/* ---- beginning and end ---- */

int receptions_open(struct pst_pod *pod)
{
    struct pod_receptions *all = calloc(1, sizeof(*all));

    if (!all)
        return -ENOMEM;
    pthread_mutex_init(&all->lock, NULL);
    pst_cond_init(&all->changed);
    pst_list_init(&all->list);
    pod->receptions = all;
    return 0;
}

void receptions_stop(struct pst_pod *pod)
{
    struct pod_receptions *all = pod->receptions;

    if (!all)
        return;
    pthread_mutex_lock(&all->lock);
    all->stopping = true;
    pst_list_each (it, &all->list)
        pst_list_entry(it, struct pod_reception, link)->stop = true;
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->lock);
}

void receptions_close(struct pst_pod *pod)
{
    struct pod_receptions *all = pod->receptions;

    if (!all)
        return;
    pst_assert(!pod->acceptor); /* nobody asks */
    pthread_mutex_lock(&all->lock);
    while (!pst_list_empty(&all->list))
        pthread_cond_wait(&all->changed, &all->lock);
    pst_assert(all->count == 0 && all->bytes == 0);
    pthread_mutex_unlock(&all->lock);
    ended_join(all->last);
    pthread_cond_destroy(&all->changed);
    pthread_mutex_destroy(&all->lock);
    free(all);
    pod->receptions = NULL;
}

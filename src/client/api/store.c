/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.c: opening, and waiting. One thread at a time leads: it polls for everyone; the others sleep until
 * something of theirs has ended or the leader leaves. Nobody polls when nobody waits.
 */
#include "client/api/staged_priv.h"
#include "client/api/trace_priv.h"

#include "base/clock.h"
#include "base/ms.h"
#include "base/options.h"
#include "base/paths.h"
#include "base/wait.h"
#include "net/tls/tls.h"
#include "pool/map.h"

#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>

enum {
    SPIN_NS = 50000,
    SPIN_ALONE_NS = 4000,
    NAP_US = 200,  /* while a busy or broken connection is tried again */
    SLEEP_MS = 20, /* so that deadlines are looked at */
    BURST = 16,    /* polls under one lock */
};

static _Atomic uint32_t forks; /* how often this process's ancestors forked since the library was loaded */

static void count_fork(void)
{
    atomic_fetch_add(&forks, 1);
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, count_fork);
}

/* ---- results ---- */

const char *penstock_error(void)
{
    return pst_error_text();
}

const char *penstock_result_text(int result)
{
    static const struct {
        int result;
        const char *text;
    } texts[] = {
        {PENSTOCK_OK, "done"},
        {PENSTOCK_MISS, "not found"},
        {PENSTOCK_EXISTS, "exists already"},
        {PENSTOCK_STALE, "another generation"},
        {PENSTOCK_BUSY, "busy"},
        {PENSTOCK_UNKNOWN, "unknown: the connection failed after the write was sent"},
        {PENSTOCK_OWNED, "another reservation has the key"},
        {PENSTOCK_INCOMPLETE, "not all of the pool has reported, and who has not may have it"},
        {PENSTOCK_LOST, "lost: the node that had it is gone"},
        {-EREMCHG, "no master that the URL names leads the pool"},
        {-EDQUOT, "more than one session may hold"},
        {-ENODATA, "the reservation is not fully written"},
        {-E2BIG, "too many pieces"},
        {-ENOENT, "no such reservation"},
        {-ENOSPC, "no space"},
        {-EFBIG, "larger than the store takes"},
        {-EACCES, "not allowed"},
        {-EBADMSG, "corrupt: the checksum is wrong"},
        {-ERANGE, "range outside of the value"},
        {-EMSGSIZE, "the value has another size than stated"},
        {-ENOBUFS, "the buffer is smaller than the value"},
        {-EINVAL, "bad argument"},
        {-ENAMETOOLONG, "key longer than 4096 bytes"},
        {-ECONNREFUSED, "nothing listens there"},
        {-EHOSTUNREACH, "unreachable"},
        {-ECONNRESET, "connection lost"},
        {-ETIMEDOUT, "timed out"},
        {-EPROTO, "not a penstock node"},
        {-EPROTONOSUPPORT, "a node of another version"},
        {-EOPNOTSUPP, "not possible on this store"},
        {-ECHILD, "opened before fork: open the store anew in the child"},
        {-EMFILE, "too many views or watches"},
        {-ESTALE, "keys are served by another table now"},
        {-EXDEV, "the master has another pool than the one that was opened"},
        {-ENOMEM, "out of memory"},
    };

    for (size_t i = 0; i < pst_count_of(texts); i++) {
        if (texts[i].result == result)
            return texts[i].text;
    }
    return result < 0 ? strerror(-result) : "unknown result";
}

/* " (request ...)" where the node's log may know more of what went wrong. */
static void print_request(const struct penstock_op *op, int result, char text[32])
{
    bool lost = result == -ETIMEDOUT || result == -ECONNRESET || result == PENSTOCK_UNKNOWN ||
                result == PENSTOCK_BUSY;

    text[0] = '\0';
    if (lost && op && pst_op_request(op))
        snprintf(text, 32, " (request %012" PRIx64 ")", pst_op_request(op));
}

uint64_t penstock_request_id(const struct penstock_op *op)
{
    return op ? pst_op_request(op) : 0;
}

uint32_t penstock_copies(const struct penstock_op *op)
{
    return op ? pst_op_copies(op) : 0;
}

/* The client proved a secret that does not allow this. */
static int explain_denied(const struct penstock *store, const struct penstock_op *op)
{
    static const char *const words[] = {"read", "write", "administer"};
    char grant[PST_BOOT_GRANT_BYTES_MAX + 1], key[128] = "";
    uint32_t right = op->error_detail.denied & PST_DENIED_RIGHT;

    pst_grant_name(op->error_detail.denied >> PST_DENIED_GRANT_SHIFT, grant);
    if (op->key && op->key_bytes)
        snprintf(key, sizeof(key), "key '%.*s': ", (int)pst_min(op->key_bytes, 100), (const char *)op->key);
    return pst_fail(-EACCES, "%s: %snot allowed: grant '%s' has no right to %s %s", store->url, key, grant,
                    words[right == 1   ? 0
                          : right == 2 ? 1
                                       : 2],
                    *key ? "it" : "that");
}

int pst_explain(const struct penstock *store, const struct penstock_op *op, int result)
{
    char request[32];

    print_request(op, result, request);
    if (result >= 0 && result != PENSTOCK_UNKNOWN && result != PENSTOCK_BUSY)
        return result;
    if (op && (op->code == PENSTOCK_PUT || op->code == PENSTOCK_RESERVATION_COMMIT) && result == -EFBIG)
        return pst_fail(result, "%s: key '%.*s': %" PRIu64 " bytes, larger than %s %" PRIu64, store->url,
                        (int)pst_min(op->key_bytes, 100), (const char *)op->key, op->bytes,
                        op->flags & PENSTOCK_DURABLE ? "what can be durable here," : "the store, which takes",
                        op->error_detail.limit_bytes);
    if (op && op->key && result == -ENOSPC && op->error_detail.limit_bytes) /* a quota's doing */
        return pst_fail(result, "%s: key '%.*s': no space: keys with '%.*s' may hold %" PRIu64 " bytes",
                        store->url, (int)pst_min(op->key_bytes, 100), (const char *)op->key,
                        (int)pst_min(pst_min(op->error_detail.prefix_bytes, op->key_bytes), 100),
                        (const char *)op->key, op->error_detail.limit_bytes);
    if (op && result == -EACCES && op->error_detail.denied & PST_DENIED_RIGHT)
        return explain_denied(store, op);
    if (op && op->key && op->key_bytes)
        return pst_fail(result, "%s: key '%.*s': %s%s", store->url, (int)pst_min(op->key_bytes, 100),
                        (const char *)op->key, penstock_result_text(result), request);
    if (op && pst_op_public(op) && op->key_bytes == 0)
        return pst_fail(result, "%s: empty key", store->url);
    return pst_fail(result, "%s: %s%s", store->url, penstock_result_text(result), request);
}

int pst_store_check(struct penstock *store)
{
    if (!store)
        return pst_fail(-EINVAL, "no store");
    pst_assert(store->magic == PST_STORE_MAGIC);
    if (store->forks != atomic_load_explicit(&forks, memory_order_relaxed))
        return pst_explain(store, NULL, -ECHILD);
    return 0;
}

/* ---- opening ---- */

static int open_url(struct penstock *store, const char *text, const struct penstock_options *options)
{
    struct pst_url url;
    int r = pst_url_parse(text, &url);

    if (r < 0)
        return r;
    return url.embedded ? pst_local_open(store, url.query, options) : pst_remote_open(store, &url, options);
}

int penstock_open(const char *url, const struct penstock_options *options, struct penstock **out)
{
    struct penstock_options given = {0};
    struct penstock *store;
    int r;

    if (!out || (options && options->size < sizeof(size_t)))
        return pst_fail(-EINVAL, "penstock_open: options without their size, or nowhere to put the store");
    if (options) /* of an older caller: what it does not know is zero */
        memcpy(&given, options, pst_min(options->size, sizeof(given)));
    store = calloc(1, sizeof(*store));
    if (!store)
        return pst_fail(-ENOMEM, "out of memory");
    store->magic = PST_STORE_MAGIC;
    store->forks = forks;
    snprintf(store->url, sizeof(store->url), "%s", url ? url : "mem:");
    pthread_mutex_init(&store->lock, NULL);
    pthread_mutex_init(&store->staged.lock, NULL);
    pst_cond_init(&store->progress);
    r = open_url(store, url ? url : "mem:", &given);
    if (r < 0) {
        penstock_close(store);
        return r;
    }
    pst_assert(store->backend);
    *out = store;
    return 0;
}

struct penstock *penstock_close(struct penstock *store)
{
    if (!store)
        return NULL;
    pst_assert(store->magic == PST_STORE_MAGIC);
    /* A forked child only drops its copy: the connection is the parent's. */
    if (store->backend && store->forks == forks) {
        penstock_follow_close(store->follow);
        if (store->releases) {
            pst_enter(store);
            pst_views_settle(store);
            pst_leave(store);
        }
        pst_assert(store->releases == 0);
        store->backend->close(store);
    }
    pthread_cond_destroy(&store->progress);
    pst_staged_fini(store);
    pthread_mutex_destroy(&store->lock);
    pst_map_close(store->map);
    explicit_bzero(store->secret, sizeof(store->secret));
    pst_tls_close(store->tls);
    free(store);
    pst_spans_flush();
    return NULL;
}

uint32_t pst_shards(struct penstock *store)
{
    uint32_t shards;

    pst_enter(store);
    shards = store->backend->shards(store);
    pst_leave(store);
    return shards;
}

int pst_shard_at(struct penstock *store, uint32_t shard)
{
    int at;

    if (!store->backend->shard_at)
        return (int)shard;
    pst_enter(store);
    at = store->backend->shard_at(store, shard);
    pst_leave(store);
    return at;
}

uint64_t pst_places(struct penstock *store)
{
    uint64_t places;

    if (!store->backend->places)
        return 0;
    pst_enter(store);
    places = store->backend->places(store);
    pst_leave(store);
    return places;
}

int pst_whole(struct penstock *store, struct pst_bytes start, struct pst_bytes end)
{
    return store->backend->whole ? store->backend->whole(store, start, end) : 0;
}

int pst_refresh(struct penstock *store)
{
    return store->backend->refresh ? store->backend->refresh(store) : 0;
}

/* ---- waiting ---- */

/* An embedded store locks its shards itself, and ends every operation in its submit. */
void pst_enter(struct penstock *store)
{
    if (store->backend->locks_itself)
        return;
    atomic_fetch_add_explicit(&store->crowd, 1, memory_order_relaxed);
    pthread_mutex_lock(&store->lock);
    atomic_fetch_sub_explicit(&store->crowd, 1, memory_order_relaxed);
}

void pst_leave(struct penstock *store)
{
    if (!store->backend->locks_itself)
        pthread_mutex_unlock(&store->lock);
}

/* Sleeps without the lock until the backend stirs. */
static void leader_sleep(struct penstock *store, uint64_t deadline_ns)
{
    struct pollfd fd = {.fd = store->backend->fd(store), .events = POLLIN};
    uint64_t now_ns = pst_now_ns();
    int ms = (int)pst_min(SLEEP_MS, deadline_ns > now_ns ? (deadline_ns - now_ns) / 1000000 + 1 : 0);

    int armed = store->backend->arm(store);

    pst_assert(store->led);
    pst_assert(!store->backend->locks_itself);
    if (armed == -EAGAIN)
        return;
    pthread_mutex_unlock(&store->lock);
    if (armed < 0)
        usleep(NAP_US);
    else
        poll(&fd, fd.fd >= 0, ms);
    pthread_mutex_lock(&store->lock);
}

/* Polls for everyone until what this thread waits for is there. Called and left with the lock held. */
static void lead(struct penstock *store, const struct pst_op_list *done, size_t count, uint64_t deadline_ns)
{
    uint64_t quiet_ns = 0;

    pst_assert(!store->led);
    pst_assert(!store->backend->locks_itself);
    store->led = true;
    while (done->count < count) {
        bool stirred = false;

        for (int i = 0; i < BURST && done->count < count; i++)
            stirred |= store->backend->poll(store);
        if (stirred) {
            quiet_ns = 0;
            pthread_cond_broadcast(&store->progress);
        } else {
            uint64_t now_ns = pst_now_ns();

            if (now_ns >= deadline_ns)
                break;
            quiet_ns = quiet_ns ? quiet_ns : now_ns;
            if (now_ns - quiet_ns > SPIN_NS)
                leader_sleep(store, deadline_ns);
            else if (now_ns - quiet_ns > SPIN_ALONE_NS)
                sched_yield(); /* the node may be waiting for this very core */
        }
        if (atomic_load_explicit(&store->crowd, memory_order_relaxed)) {
            pthread_mutex_unlock(&store->lock);
            sched_yield();
            pthread_mutex_lock(&store->lock);
        }
    }
    pst_assert(store->led);
    store->led = false;
    pthread_cond_broadcast(&store->progress);
}

/* Called and left with the lock held, unless the backend locks itself. */
void pst_wait(struct penstock *store, const struct pst_op_list *done, size_t count, uint64_t deadline_ns)
{
    pst_assert(store->backend->await || !store->backend->locks_itself);
    if (store->backend->await) {
        if (done->count < count)
            store->backend->await(store, done, count, deadline_ns);
        return;
    }
    while (done->count < count && pst_now_ns() < deadline_ns) {
        if (!store->led) {
            lead(store, done, count, deadline_ns);
            continue;
        }
        pst_cond_wait_until(&store->progress, &store->lock, pst_deadline_ns(pst_now_ns(), SLEEP_MS));
    }
}

static void finish_run(struct penstock *store, struct pst_op_list *done, size_t count)
{
    store->backend->flush(store);
    pst_wait(store, done, count, UINT64_MAX);
    pst_leave(store);
    pst_assert(done->count == count); /* each came back, once */
}

void pst_run(struct penstock *store, struct penstock_op *ops, size_t count, const int *shards)
{
    struct pst_op_list done = {0};
    struct pst_traced t;
    const struct pst_traceparent *trace = pst_traced_begin(&t, count);

    pst_enter(store);
    for (size_t i = 0; i < count; i++) {
        pst_op_set_trace(&ops[i], trace);
        store->backend->submit(store, &ops[i], shards ? shards[i] : -1, &done);
    }
    finish_run(store, &done, count);
    if (pst_unlikely(trace))
        pst_traced_end(&t, ops, count);
}

int pst_run_one(struct penstock *store, struct penstock_op *op, int shard)
{
    pst_run(store, op, 1, &shard);
    return pst_explain(store, op, op->result);
}

int pst_do_one(struct penstock *store, struct penstock_op *op)
{
    int r = pst_store_check(store);

    if (r < 0)
        return r;
    if (pst_unlikely(store->staged.count) && pst_staged_run(store, op, 1))
        return pst_explain(store, op, op->result);
    return pst_run_one(store, op, -1);
}

/* From outside: what is the library's own is refused. */
static void submit_given(struct penstock *store, struct penstock_op *op, const struct pst_traceparent *trace,
                         struct pst_op_list *done)
{
    pst_op_set_trace(op, trace);
    if (pst_unlikely(op->flags & PST_WIRE_OWN_FLAGS || !pst_op_public(op))) {
        pst_op_begin(op, -1, done);
        pst_op_end(op, -EINVAL);
        return;
    }
    if (pst_unlikely(store->staged.count) && pst_op_staged(store, op)) { /* only who waits stages */
        pst_op_begin(op, -1, done);
        pst_op_end(op, -EOPNOTSUPP);
        return;
    }
    store->backend->submit(store, op, -1, done);
}

void pst_run_given(struct penstock *store, struct penstock_op *ops, size_t count)
{
    struct pst_op_list done = {0};
    struct pst_traced t;
    const struct pst_traceparent *trace;

    if (pst_unlikely(store->staged.count) && pst_staged_run(store, ops, count))
        return;
    trace = pst_traced_begin(&t, count);
    pst_enter(store);
    for (size_t i = 0; i < count; i++)
        submit_given(store, &ops[i], trace, &done);
    finish_run(store, &done, count);
    if (pst_unlikely(trace))
        pst_traced_end(&t, ops, count);
}

int penstock_batch(struct penstock *store, struct penstock_op *ops, size_t count)
{
    int failed = 0, r = pst_store_check(store);

    if (r < 0)
        return r;
    if (count && !ops)
        return pst_fail(-EINVAL, "penstock_batch: no operations");
    if (count > INT32_MAX)
        return pst_fail(-EINVAL, "penstock_batch: more than %d operations", INT32_MAX);
    pst_run_given(store, ops, count);
    for (size_t i = 0; i < count; i++) {
        failed += ops[i].result != 0;
        pst_explain(store, &ops[i], ops[i].result);
    }
    return failed;
}

/* ---- queues ---- */

int penstock_submit(struct penstock_queue *queue, struct penstock_op *ops, size_t count)
{
    const struct pst_traceparent *trace;
    struct penstock *store;
    int r;

    if (!queue || (count && !ops))
        return pst_fail(-EINVAL, "penstock_submit: no queue or no operations");
    pst_assert(queue->magic == PST_QUEUE_MAGIC);
    store = queue->store;
    r = pst_store_check(store);
    if (r < 0)
        return r;
    trace = pst_traced_submit(count);
    pst_enter(store);
    for (size_t i = 0; i < count; i++)
        submit_given(store, &ops[i], trace, &queue->done);
    store->backend->flush(store);
    queue->underway += count;
    pst_op_list_wake(&queue->done); /* the port is armed when a reap has looked */
    pst_leave(store);
    return 0;
}

/* Makes the progress there is to make; where a descriptor waits for the queue, it is armed for what comes
 * later. */
static void look(struct penstock_queue *queue)
{
    struct penstock *store = queue->store;

    pst_assert(!store->led);
    pst_assert(queue->underway > 0);
    pst_queue_drained(queue);
    if (store->backend->await) {
        pst_queue_until(queue, store->backend->await(store, &queue->done, 1, 0));
        return;
    }
    while (store->backend->poll(store))
        ;
    if (queue->poll_fd < 0)
        return;
    while (!queue->done.count && store->backend->arm(store) == -EAGAIN && store->backend->poll(store))
        ;
    pst_queue_watch_port(queue);
}

int penstock_reap(struct penstock_queue *queue, struct penstock_op **ops, int max, int timeout_ms)
{
    struct penstock *store;
    int count = 0, r;

    if (!queue || !ops || max < 1)
        return pst_fail(-EINVAL, "penstock_reap: no queue, or no room for operations");
    pst_assert(queue->magic == PST_QUEUE_MAGIC);
    store = queue->store;
    r = pst_store_check(store);
    if (r < 0)
        return r;
    pst_enter(store);
    if (!queue->done.count && queue->underway && timeout_ms)
        pst_wait(store, &queue->done, 1,
                 timeout_ms < 0 ? UINT64_MAX : pst_deadline_ns(pst_now_ns(), (uint64_t)timeout_ms));
    else if (queue->underway && !store->led)
        look(queue);
    else
        pst_queue_drained(queue);
    for (; count < max && (ops[count] = pst_op_list_pop(&queue->done)); count++) {
        pst_explain(store, ops[count], ops[count]->result);
        if (pst_unlikely(pst_op_trace(ops[count])))
            pst_traced_reaped(ops[count]);
    }
    pst_assert(queue->underway >= (size_t)count);
    pst_assert(count <= max);
    queue->underway -= (size_t)count;
    pst_leave(store);
    return count;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * late.c: requests that are answered later: a get that waits for its key, a watch that waits for something to
 * tell. Each keeps a copy of its one operation and no request; when its shard says that it is ready, or its
 * time is over, the operation is done as if it had just come.
 */
#include "node/grants.h"
#include "node/node_priv.h"

#include "base/ms.h"
#include "node/request.h"

#define PST_LATE_MAGIC 0x6c617465u

enum { LOOK_NS = 100000000 }; /* at the keys of gets that wait, in a pool */

struct pst_late {
    uint32_t magic;
    uint32_t request; /* the client's number */
    struct pst_shard_session *shard_session;
    struct pst_list link; /* in the worker's late list, or its session's due list */
    struct pst_list of_shard_session;
    struct pst_wait wait;
    uint64_t until_ns;    /* it waits no longer */
    uint64_t deadline_ns; /* the client gives up */
    bool traced;
    struct pst_traceparent trace; /* if `traced` */
    struct pst_wire_op op;
    uint8_t key[];
};

static bool of_get(const struct pst_late *p)
{
    return p->op.code == PST_WIRE_GET;
}

/* It waits: its shard session has it, and it counts. */
static void late_put(struct pst_late *p)
{
    struct pst_shard_session *v = p->shard_session;

    pst_list_push_back(&v->late, &p->of_shard_session);
    v->worker->waits += of_get(p);
    v->waits += of_get(p);
    pst_assert(v->waits <= v->worker->waits);
}

/* It is the caller's, whatever becomes of the session. */
static void late_take(struct pst_late *p)
{
    struct pst_shard_session *v = p->shard_session;

    pst_assert(p->magic == PST_LATE_MAGIC);
    pst_assert(v->waits >= of_get(p));
    pst_assert(v->waits <= v->worker->waits);
    pst_list_remove(&p->of_shard_session);
    v->worker->waits -= of_get(p);
    v->waits -= of_get(p);
}

static void late_free(struct pst_late *p)
{
    pst_assert(p->magic == PST_LATE_MAGIC);
    pst_assert(pst_list_empty(&p->of_shard_session));
    p->magic = 0;
    pst_shard_unwait(p->shard_session->worker->shard, &p->wait);
    pst_list_remove(&p->link);
    free(p);
}

/* Whether its key belongs to another node by now: there it is to wait. */
static bool has_moved(const struct pst_late *p)
{
    pst_assert(p->magic == PST_LATE_MAGIC);
    pst_assert(!of_get(p) || p->op.key.len > 0);
    return of_get(p) && pst_node_may_serve(p->shard_session->worker->node, p->op.key) == -ESTALE;
}

/* What the operation would wait for: a key that is missing, a watch with nothing to tell. */
static bool must_wait(struct pst_shard_session *v, const struct pst_wire_op *op, struct pst_lookup *lookup,
                      struct pst_watch **watch)
{
    if (op->code == PST_WIRE_WATCH_NEXT) {
        *watch = pst_shard_session_watch(v, op->handle);
        return *watch && pst_watch_free(*watch) && !pst_watch_pending(*watch);
    }
    pst_assert(op->code == PST_WIRE_GET);
    *lookup = pst_shard_lookup(v->worker->shard, op->key);
    return !pst_shard_find(v->worker->shard, lookup);
}

/* Begins to wait, or waits on. */
static void begin_wait(struct pst_late *p, struct pst_lookup *lookup, struct pst_watch *watch)
{
    struct pst_worker *w = p->shard_session->worker;

    pst_assert(p->magic == PST_LATE_MAGIC);
    pst_assert(!watch == of_get(p));
    pst_assert(p->until_ns <= p->deadline_ns);
    if (watch) {
        pst_watch_wait(watch, &p->wait);
    } else {
        lookup->key = p->op.key;
        pst_shard_wait(w->shard, lookup, &p->wait);
    }
    pst_list_remove(&p->link);
    pst_list_push_back(&w->late, &p->link);
    w->late_ns = pst_min(w->late_ns, p->until_ns);
    if (w->node->role.may_serve && !watch)
        w->late_ns = pst_min(w->late_ns, w->now_ns + LOOK_NS);
}

static struct pst_late *late_new(struct pst_shard_session *v, const struct pst_wire_head *head,
                                 const struct pst_traceparent *trace, const struct pst_wire_op *op)
{
    struct pst_late *p = malloc(sizeof(*p) + op->key.len);

    pst_assert(op->code == PST_WIRE_GET || op->code == PST_WIRE_WATCH_NEXT);
    pst_assert(!v->leaving);
    if (!p)
        return NULL;
    p->magic = PST_LATE_MAGIC;
    p->request = head->request;
    p->shard_session = v;
    p->traced = trace != NULL;
    if (trace)
        p->trace = *trace;
    p->op = *op;
    p->op.key.data = p->key;
    if (op->key.len)
        memcpy(p->key, op->key.data, op->key.len);
    p->until_ns = pst_deadline_ns(v->worker->now_ns, pst_min(op->wait_ms, head->timeout_ms));
    p->deadline_ns = pst_deadline_ns(v->worker->now_ns, head->timeout_ms);
    pst_list_init(&p->link);
    late_put(p);
    return p;
}

bool pst_late_begin(struct pst_shard_session *v, const struct pst_wire_head *head,
                    const struct pst_traceparent *trace)
{
    struct pst_worker *w = v->worker;
    struct pst_wire_op *op = &w->ops[0];
    struct pst_lookup lookup = {0};
    struct pst_watch *watch = NULL;
    struct pst_late *p = NULL;

    pst_assert(head->count == 1);
    pst_assert(!v->leaving);
    if (!must_wait(v, op, &lookup, &watch))
        return false;
    if (!watch && v->waits >= w->node->session_waits_max) {
        pst_request_over_quota(v, head);
        return true;
    }
    if (watch || w->waits < w->node->waits_max)
        p = late_new(v, head, trace, op);
    if (p)
        begin_wait(p, &lookup, watch);
    else
        pst_request_refuse(v, head);
    return true;
}

/* Return: false when its session may have no request for it now. */
static bool serve(struct pst_late *p)
{
    struct pst_worker *w = p->shard_session->worker;
    struct pst_lookup lookup = {0};
    struct pst_watch *watch = NULL;

    pst_assert(p->magic == PST_LATE_MAGIC);
    pst_assert(!p->shard_session->leaving);
    if (w->now_ns < p->until_ns && !has_moved(p) && must_wait(p->shard_session, &p->op, &lookup, &watch)) {
        begin_wait(p, &lookup, watch); /* it was there, and is gone again */
        return true;
    }
    late_take(p); /* the session may leave when the answer cannot be sent */
    pst_list_remove(&p->link);
    if (!pst_request_deliver(p->shard_session, p->request, p->deadline_ns, p->traced ? &p->trace : NULL,
                             &p->op)) {
        late_put(p);
        pst_list_push_front(&p->shard_session->due, &p->link);
        return false;
    }
    late_free(p);
    return true;
}

static void make_due(struct pst_worker *w, struct pst_late *p)
{
    struct pst_shard_session *v = p->shard_session;

    pst_assert(p->magic == PST_LATE_MAGIC);
    pst_assert(v->worker == w);
    pst_list_remove(&p->link);
    pst_list_push_back(&v->due, &p->link);
    if (pst_list_empty(&v->of_due))
        pst_list_push_back(&w->due, &v->of_due);
}

/* One that has all that it may have underway keeps the rest, and no other session from its own. */
static bool serve_due(struct pst_shard_session *v)
{
    bool something = false;

    pst_assert(v->magic == PST_SHARD_SESSION_MAGIC);
    pst_assert(!pst_list_empty(&v->due));
    while (!pst_list_empty(&v->due) && serve(pst_list_first(&v->due, struct pst_late, link)))
        something = true;
    if (pst_list_empty(&v->due))
        pst_list_remove(&v->of_due);
    return something;
}

/* Those whose time is over, or whose keys have left the node: nobody tells of these. */
static void find_ended(struct pst_worker *w)
{
    bool keys_move = w->node->role.may_serve && w->waits;
    uint64_t next_ns = keys_move ? w->now_ns + LOOK_NS : UINT64_MAX;

    pst_list_each_safe (it, &w->late) {
        struct pst_late *p = pst_list_entry(it, struct pst_late, link);

        if (p->until_ns > w->now_ns && !(keys_move && has_moved(p))) {
            next_ns = pst_min(next_ns, p->until_ns);
            continue;
        }
        pst_shard_unwait(w->shard, &p->wait);
        make_due(w, p);
    }
    w->late_ns = next_ns;
}

bool pst_late_run(struct pst_worker *w)
{
    struct pst_wait *wait;
    bool something = false;

    if (w->now_ns >= w->late_ns)
        find_ended(w);
    while ((wait = pst_shard_ready(w->shard)))
        make_due(w, pst_container_of(wait, struct pst_late, wait));
    pst_list_each_safe (it, &w->due)
        something |= serve_due(pst_list_entry(it, struct pst_shard_session, of_due));
    return something;
}

void pst_shard_session_drop_late(struct pst_shard_session *v)
{
    while (!pst_list_empty(&v->late)) {
        struct pst_late *p = pst_list_first(&v->late, struct pst_late, of_shard_session);

        late_take(p);
        late_free(p);
    }
    pst_list_remove(&v->of_due);
    pst_assert(pst_list_empty(&v->due));
    pst_assert(v->waits == 0);
}

/* ---- watches ---- */

struct pst_watching {
    struct pst_list link;
    uint64_t handle;
    struct pst_watch *watch;
    size_t prefix_bytes;
    uint8_t prefix[];
};

static struct pst_watching *watching(struct pst_shard_session *v, uint64_t handle)
{
    pst_list_each (it, &v->watches) {
        struct pst_watching *at = pst_list_entry(it, struct pst_watching, link);

        if (at->handle == handle)
            return at;
    }
    return NULL;
}

struct pst_watch *pst_shard_session_watch(struct pst_shard_session *v, uint64_t handle)
{
    struct pst_watching *at = watching(v, handle);

    return at ? at->watch : NULL;
}

int pst_shard_session_watch_open(struct pst_shard_session *v, const struct pst_wire_op *op, uint64_t *handle)
{
    struct pst_worker *w = v->worker;
    struct pst_watching *at;
    int r;

    pst_assert(op->code == PST_WIRE_WATCH_OPEN);
    if (w->watches >= w->node->watches_max || v->watch_count >= w->node->session_watches_max)
        return -EMFILE;
    at = calloc(1, sizeof(*at) + op->key.len);
    if (!at)
        return -ENOMEM;
    r = pst_watch_open(w->shard, op->key, op->flags & PST_WIRE_MOVES, &at->watch);
    if (r < 0) {
        free(at);
        return r;
    }
    if (w->node->role.tells)
        pst_watch_limit(at->watch, w->node->role.tells, w->node->role.ctx);
    at->handle = *handle = ++w->watch_handle;
    at->prefix_bytes = op->key.len;
    if (op->key.len)
        memcpy(at->prefix, op->key.data, op->key.len);
    pst_list_push_back(&v->watches, &at->link);
    v->watch_count++;
    w->watches++;
    pst_assert(v->watch_count <= w->node->session_watches_max);
    pst_assert(w->watches <= w->node->watches_max);
    pst_assert(v->watch_count <= w->watches);
    return 0;
}

static void watching_free(struct pst_shard_session *v, struct pst_watching *at)
{
    pst_assert(v->watch_count > 0);
    pst_assert(v->worker->watches > 0);
    pst_watch_close(at->watch);
    pst_list_remove(&at->link);
    v->watch_count--;
    v->worker->watches--;
    free(at);
}

int pst_shard_session_watch_close(struct pst_shard_session *v, uint64_t handle)
{
    struct pst_watching *at = watching(v, handle);

    if (!at)
        return -EBADF;
    watching_free(v, at);
    return 0;
}

void pst_shard_session_close_watches(struct pst_shard_session *v)
{
    while (!pst_list_empty(&v->watches))
        watching_free(v, pst_list_first(&v->watches, struct pst_watching, link));
    pst_assert(v->watch_count == 0);
}

void pst_shard_session_close_unreadable(struct pst_shard_session *v)
{
    pst_assert(v->terms);
    pst_list_each_safe (it, &v->watches) {
        struct pst_watching *at = pst_list_entry(it, struct pst_watching, link);

        if (!pst_grant_may_watch(&v->terms->are, (struct pst_bytes){at->prefix, at->prefix_bytes}))
            watching_free(v, at);
    }
}

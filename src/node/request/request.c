/* SPDX-License-Identifier: Apache-2.0 */
/*
 * request.c: a request from its message to its reply, as named steps with one driver.
 *
 *   fetches  what it reads from SSD comes into memory; nothing has been carried out
 *   values   bytes of large puts arrive in reserved memory; each put commits when its last byte is there
 *   answers  large gets are sent from where they lie
 *   reply    results and small values, one message
 *   drain    the transport lets go of everything
 */
#include "node/commit.h"
#include "node/grants.h"
#include "node/node_priv.h"
#include "node/op.h"
#include "node/request.h"

#include "base/fault.h"
#include "base/ms.h"
#include "store/read.h"

enum {
    REQUESTS_FEW = 16,     /* of one session: it may have those although others have all but a quarter */
    COPY_USES_MAX = 64,    /* of a request's place, in which a message's copy may come */
    SLOW_NS_A_BYTE = 1000, /* the slowest that a client takes or sends, if it does so at all: 1 MB/s */
};

struct pst_step {
    const char *name;
    enum pst_step_result (*run)(struct pst_request *q);
};

#define X(name) static enum pst_step_result step_##name(struct pst_request *q);
PST_REQUEST_STEPS(X)
#undef X

static void take_parked(struct pst_request *q);

static const struct pst_step steps[] = {
#define X(name) {#name, step_##name},
    PST_REQUEST_STEPS(X)
#undef X
};

/* A bulk message on its way into reserved memory. */
struct incoming {
    uint32_t magic;
    uint32_t part_count;
    struct pst_request *request;
    struct pst_wire_part parts[];
};

struct pst_request *pst_request_cast(void *p)
{
    struct pst_request *q = p;

    pst_assert(q && q->magic == PST_REQUEST_MAGIC);
    return q;
}

/* ---- the pool ---- */

static void request_end(struct pst_request *q)
{
    q->magic = 0;
    free(q->reply);
    free(q->writes);
    free(q->reads);
    free(q->fetches.items);
    free(q->saves.items);
    free(q->body);
    free(q);
}

static struct pst_request *request_new(struct pst_worker *w)
{
    struct pst_request *q;

    if (pst_fault(PST_FAULT_node_none_free))
        return NULL;
    if (!pst_list_empty(&w->idle)) {
        q = pst_list_first(&w->idle, struct pst_request, link);
        pst_list_remove(&q->link);
        return q;
    }
    if (w->request_count == w->node->requests_max)
        return NULL;
    pst_assert(w->request_count < w->node->requests_max);
    q = calloc(1, sizeof(*q));
    if (!q)
        return NULL;
    q->reply = malloc(REPLY_BYTES);
    q->writes = malloc(PST_WIRE_OPS_MAX * sizeof(*q->writes));
    q->reads = malloc(PST_WIRE_OPS_MAX * sizeof(*q->reads));
    if (!q->reply || !q->writes || !q->reads) {
        request_end(q);
        return NULL;
    }
    q->magic = PST_REQUEST_MAGIC;
    q->worker = w;
    pst_list_init(&q->link);
    pst_list_init(&q->of_shard_session);
    w->request_count++;
    pst_assert(q->magic == PST_REQUEST_MAGIC);
    pst_assert(q->worker == w);
    return q;
}

void pst_requests_fini(struct pst_worker *w)
{
    pst_assert(w->underway == 0);
    while (!pst_list_empty(&w->idle)) {
        struct pst_request *q = pst_list_first(&w->idle, struct pst_request, link);

        pst_assert(q->worker == w);
        pst_list_remove(&q->link);
        request_end(q);
    }
}

static void request_free(struct pst_request *q)
{
    const struct pst_node *node = q->worker->node;

    pst_assert(q->step == &steps[PST_STEP_drain]);
    pst_assert(q->sends == 0);
    pst_assert(q->receives == 0);
    pst_assert(pst_list_empty(&q->commits));
    pst_assert(q->shard_session->underway > 0);
    pst_assert(q->worker->underway > 0);
    pst_assert(!q->shard_session->of_grant || q->shard_session->of_grant->underway > 0);
    pst_assert(q->fetches.count == 0);
    pst_assert(q->saves.count == 0);
    pst_assert(!q->body);
    if (pst_unlikely(q->trace.kept))
        pst_trace_push(q);
    pst_times_end(&q->worker->times, q->trace.codes, q->count, q->worker->now_ns - q->trace.begin_ns);
    if (pst_unlikely(node->slow_ns && q->worker->now_ns - q->trace.begin_ns >= node->slow_ns)) {
        pst_trace_step(q, PST_STEP_drain);
        pst_trace_end(q);
    }
    pst_list_remove(&q->link);
    pst_list_push_front(&q->worker->idle, &q->link);
    pst_list_remove(&q->of_shard_session);
    q->shard_session->underway--;
    q->worker->underway--;
    if (pst_unlikely(q->shard_session->of_grant))
        q->shard_session->of_grant->underway--;
}

/* ---- begin ---- */

/*
 * A request is carried out once, however often it arrives: a client uses a place again only when its use
 * before has ended, so the number of the last use there, or of one shortly before, is a copy's. One further
 * back is a later one: numbers wrap around, and the client may have used the place for other shards
 * meanwhile.
 */
static bool later(const struct pst_shard_session *v, uint32_t id)
{
    uint32_t place = id % PST_WIRE_PLACES, used = place < v->used_count ? v->used[place] : 0;
    uint32_t behind = (used - 1 - id / PST_WIRE_PLACES) % (UINT32_MAX / PST_WIRE_PLACES + 1);

    return used == 0 || behind >= COPY_USES_MAX;
}

/* Remembers the number. Return: 0 or -ENOMEM. */
static int remember(struct pst_shard_session *v, uint32_t id)
{
    uint32_t place = id % PST_WIRE_PLACES, count = v->used_count ? v->used_count : 16;
    uint32_t *larger;

    if (pst_unlikely(place >= v->used_count)) {
        while (count <= place)
            count *= 2;
        larger = realloc(v->used, count * sizeof(*larger));
        if (!larger)
            return -ENOMEM;
        memset(larger + v->used_count, 0, (count - v->used_count) * sizeof(*larger));
        v->used = larger;
        v->used_count = count;
    }
    pst_assert(place < v->used_count);
    v->used[place] = id / PST_WIRE_PLACES + 1;
    return 0;
}

static void reply_at_once(struct pst_shard_session *v, const struct pst_wire_head *head,
                          struct pst_bytes results)
{
    struct pst_wire_head reply = {.type = PST_WIRE_REPLY,
                                  .version = head->version,
                                  .count = head->count,
                                  .request = head->request,
                                  .token = head->token};

    pst_assert(v->peer);
    /* Should even that not leave at once, the client's deadline settles it. */
    pst_peer_send(v->peer, (struct pst_bytes){&reply, sizeof(reply)}, results, NULL);
}

void pst_request_refuse(struct pst_shard_session *v, const struct pst_wire_head *head)
{
    pst_assert(head->count <= PST_WIRE_OPS_MAX);
    reply_at_once(v, head, (struct pst_bytes){v->worker->busy, head->count * sizeof(v->worker->busy[0])});
}

void pst_request_over_quota(struct pst_shard_session *v, const struct pst_wire_head *head)
{
    pst_assert(head->count == 1);
    reply_at_once(v, head, (struct pst_bytes){v->worker->over_quota, sizeof(v->worker->over_quota)});
}

int pst_request_decode(struct pst_shard_session *v, uint32_t count, struct pst_bytes body)
{
    struct pst_worker *w = v->worker;
    const uint8_t *at = body.data, *end = at + body.len;
    uint64_t members = 0; /* of a commit, that are to come */

    pst_assert(count <= PST_WIRE_OPS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        int r = pst_wire_get_op(&at, end, &w->ops[i]);

        if (r == 0)
            r = pst_wire_check(&w->ops[i], members > 0);
        if (r < 0)
            return r;
        if (pst_unlikely(members))
            members--;
        else if (pst_unlikely(w->ops[i].code == PST_WIRE_COMMIT))
            members = w->ops[i].bytes;
    }
    if (at != end || members)
        return -EPROTO;
    pst_request_judge(v, count);
    return 0;
}

/* Carries out the worker's decoded operations. @body: they came in it; empty: it is gone, and they do not
 * wait. */
static void begin(struct pst_request *q, struct pst_shard_session *v, uint32_t id, uint16_t count,
                  uint64_t deadline_ns, const struct pst_traceparent *trace, struct pst_bytes body)
{
    pst_assert(pst_list_empty(&q->of_shard_session));
    pst_assert(count <= PST_WIRE_OPS_MAX);
    pst_assert(!v->leaving);
    pst_assert(q->worker == v->worker);
    pst_assert(q->saves.count == 0);
    q->shard_session = v;
    q->id = id;
    q->count = count;
    q->turn_ns = v->worker->now_ns;
    q->deadline_ns = pst_min(deadline_ns, v->worker->now_ns + v->worker->node->request_ns);
    q->sends = q->receives = q->bulk_count = q->bulks_next = 0;
    q->bulk_out = (struct pst_bulk_cursor){0, 0};
    q->write_count = q->writes_open = q->read_count = 0;
    q->reply_bytes = 0;
    pst_list_init(&q->commits);
    q->step = &steps[PST_STEP_fetches];
    pst_list_push_back(&v->requests, &q->of_shard_session);
    v->underway++;
    v->worker->underway++;
    pst_assert(v->underway <= v->worker->underway);
    if (pst_unlikely(v->of_grant))
        v->of_grant->underway++;
    pst_trace_begin(q, trace, body.len);
    pst_apply_prefetch(v->worker, count);
    if (pst_likely(!v->worker->tiered) || !pst_fetches_begin(q, body)) {
        q->step = &steps[PST_STEP_values];
        pst_apply(q);
        take_parked(q);
    }
    pst_request_run(q);
}

static bool may_be_late(const struct pst_worker *w, const struct pst_wire_head *head)
{
    return head->count == 1 && pst_wire_waits(w->ops[0].code, w->ops[0].flags) && !w->missing_count;
}

/* All sessions of its grant have as much underway here as they may. */
static bool grant_is_busy(const struct pst_shard_session *v)
{
    uint64_t max = pst_likely(!v->of_grant) ? 0 : v->terms->are.requests_max;

    return max && v->of_grant->underway >= max;
}

bool pst_requests_scarce(const struct pst_worker *w)
{
    pst_assert(w->underway <= w->node->requests_max);
    return w->underway >= w->node->requests_max - w->node->requests_max / 4;
}

/* Whether a session may have one more. Some that never take their answers leave a quarter to the others. */
static bool may_begin(const struct pst_shard_session *v)
{
    const struct pst_node *node = v->worker->node;
    uint64_t few = pst_min(REQUESTS_FEW, node->requests_max / 8);

    if (pst_requests_scarce(v->worker) && v->underway >= few)
        return false;
    return v->underway < node->session_requests_max && !grant_is_busy(v);
}

void pst_request_begin(struct pst_shard_session *v, const struct pst_wire_head *head,
                       const struct pst_traceparent *trace, struct pst_bytes body)
{
    struct pst_worker *w = v->worker;
    struct pst_request *q = NULL;

    pst_assert(!v->leaving);
    if (!later(v, head->request))
        return;
    if (pst_request_decode(v, head->count, body) < 0) {
        pst_shard_session_protocol_error(v, "malformed request");
        return;
    }
    if (remember(v, head->request) == 0) {
        if (pst_unlikely(may_be_late(w, head)) && pst_late_begin(v, head, trace))
            return;
        if (may_begin(v))
            q = request_new(w);
    }
    if (q) {
        begin(q, v, head->request, head->count, pst_deadline_ns(w->now_ns, head->timeout_ms), trace, body);
    } else {
        pst_bulk_park_drop(&v->park, head->request);
        pst_request_refuse(v, head);
    }
}

bool pst_request_deliver(struct pst_shard_session *v, uint32_t id, uint64_t deadline_ns,
                         const struct pst_traceparent *trace, const struct pst_wire_op *op)
{
    struct pst_request *q = may_begin(v) ? request_new(v->worker) : NULL;

    pst_assert(pst_wire_waits(op->code, op->flags));
    if (!q)
        return false;
    v->worker->ops[0] = *op;
    pst_request_judge(v, 1); /* the grant may be another by now */
    begin(q, v, id, 1, deadline_ns, trace, (struct pst_bytes){NULL, 0});
    return true;
}

void pst_request_run(struct pst_request *q)
{
    enum pst_step_result next;

    pst_assert(q->magic == PST_REQUEST_MAGIC);
    pst_assert(q->shard_session->magic == PST_SHARD_SESSION_MAGIC);
    do
        next = q->step->run(q);
    while (next == PST_STEP_MORE);
    if (next == PST_STEP_END)
        request_free(q);
}

static enum pst_step_result go(struct pst_request *q, int step)
{
    pst_assert(step < PST_STEP_COUNT);
    pst_assert(step > q->step - steps);
    pst_trace_step(q, (int)(q->step - steps));
    q->step = &steps[step];
    q->turn_ns = q->worker->now_ns;
    return PST_STEP_MORE;
}

/* The transport takes no more: the worker runs the request again. */
static enum pst_step_result stall(struct pst_request *q)
{
    pst_assert(q->step == &steps[PST_STEP_answers] || q->step == &steps[PST_STEP_reply]);
    pst_list_remove(&q->link);
    pst_list_push_back(&q->worker->stalled, &q->link);
    return PST_STEP_WAIT;
}

/* ---- fetches ---- */

static enum pst_step_result step_fetches(struct pst_request *q)
{
    struct pst_worker *w = q->worker;
    int r;

    pst_assert(q->body);
    pst_assert(q->fetches.count > 0);
    pst_assert(q->fetches.left <= q->fetches.count);
    if (q->fetches.left || q->shard_session->leaving)
        return PST_STEP_WAIT;
    r = pst_request_decode(q->shard_session, q->count, (struct pst_bytes){q->body, q->body_bytes});
    pst_assert(r == 0); /* it was before */
    go(q, PST_STEP_values);
    pst_apply_prefetch(w, q->count);
    pst_apply(q);
    pst_tiereds_end(q, &q->fetches);
    return PST_STEP_MORE;
}

/* ---- values ---- */

static enum pst_step_result step_values(struct pst_request *q)
{
    pst_assert(q->writes_open <= q->write_count);
    pst_assert(q->sends == 0);
    if (q->writes_open == 0 && q->receives == 0 && pst_list_empty(&q->commits) && q->saves.left == 0) {
        pst_list_remove(&q->link);
        pst_bulk_park_drop(&q->shard_session->park, q->id); /* of puts that were refused */
        return go(q, PST_STEP_answers);
    }
    if (pst_list_empty(&q->link))
        pst_list_push_back(&q->shard_session->receiving, &q->link);
    return PST_STEP_WAIT;
}

static struct pst_write *write_of(struct pst_request *q, uint32_t op)
{
    for (uint32_t i = 0; i < q->write_count; i++) {
        if (q->writes[i].op == op)
            return &q->writes[i];
    }
    return NULL;
}

static struct pst_request *receiving(struct pst_shard_session *v, uint32_t id)
{
    pst_list_each (it, &v->receiving) {
        struct pst_request *q = pst_list_entry(it, struct pst_request, link);

        if (q->id == id)
            return q;
    }
    return NULL;
}

/* Where bytes [@offset, @offset + @bytes) of what is written go. Return: pieces, -E2BIG. */
static int write_iov(const struct pst_shard *shard, const struct pst_write *write, uint64_t offset,
                     uint64_t bytes, struct iovec *iov, int iov_max)
{
    int count = 0;

    if (!write->reservation)
        return pst_record_iov(shard, write->pending.record, offset, bytes, iov, iov_max);
    for (uint64_t at = 0; at < bytes; at += iov[count++].iov_len) {
        if (count == iov_max)
            return -E2BIG;
        pst_reservation_piece(shard, write->reservation, write->offset + offset + at, bytes - at,
                              &iov[count]);
    }
    pst_assert(count <= iov_max);
    return count;
}

/* Where the parts go: reserved memory, or the sink for those whose put was refused. Return: pieces, 0 nothing
 * is wanted, -EPROTO. */
static int place_parts(struct pst_request *q, const struct incoming *in, struct iovec *iov)
{
    struct pst_worker *w = q->worker;
    int count = 0;
    bool wanted = false;

    for (uint32_t i = 0; i < in->part_count; i++) {
        const struct pst_wire_part *part = &in->parts[i];
        struct pst_write *write = write_of(q, part->op);
        int r;

        /* In order and without gaps: a value is whole when its last byte is there, and shows no byte of an
         * earlier one. */
        if (!write || !part->bytes || part->offset != write->put.value_bytes - write->bytes_left ||
            part->bytes > write->bytes_left || count == PST_NET_BULK_IOV_MAX)
            return -EPROTO;
        write->bytes_left -= part->bytes;
        if (write->refused) {
            iov[count++] = (struct iovec){w->sink, part->bytes};
            continue;
        }
        wanted = true;
        r = write_iov(w->shard, write, part->offset, part->bytes, iov + count, PST_NET_BULK_IOV_MAX - count);
        if (r < 0)
            return -EPROTO;
        count += r;
    }
    pst_assert(count <= PST_NET_BULK_IOV_MAX);
    return wanted ? count : 0;
}

/* Refused parts that travel with wanted ones end in the sink. */
static bool sink_ready(struct pst_worker *w)
{
    if (!w->sink)
        w->sink = malloc(SINK_BYTES);
    return w->sink != NULL;
}

static void take_bulk(struct pst_request *q, const struct pst_wire_head *head,
                      const struct pst_net_event *event)
{
    struct pst_shard_session *v = q->shard_session;
    struct iovec iov[PST_NET_BULK_IOV_MAX];
    struct incoming *in;
    uint64_t sum = 0;
    int count = -ENOMEM;

    pst_assert(event->kind == PST_NET_BULK);
    pst_assert(head->request == q->id);
    pst_assert(head->bulk_count == q->bulks_next);
    q->bulks_next++;
    in = calloc(1, sizeof(*in) + head->count * sizeof(in->parts[0]));
    if (in && sink_ready(v->worker)) {
        in->magic = PST_INCOMING_MAGIC;
        in->request = q;
        in->part_count = head->count;
        for (uint32_t i = 0; i < head->count; i++) {
            in->parts[i] = pst_wire_get_part(event->header, i);
            sum = in->parts[i].bytes > UINT64_MAX - sum ? UINT64_MAX : sum + in->parts[i].bytes;
        }
        count = sum == event->data.len && (head->count == 1 || sum <= SINK_BYTES) ? place_parts(q, in, iov)
                                                                                  : -EPROTO;
    }
    if (count > 0 && pst_msg_receive(event->msg, iov, count, in) == 0) {
        q->receives++;
        return;
    }
    free(in);
    pst_msg_free(event->msg);
    if (count == -EPROTO)
        pst_shard_session_protocol_error(v, "malformed or unexpected bulk message");
    else if (count != 0)
        pst_shard_session_leave(v, "a value could not be received");
}

static void take_parked(struct pst_request *q)
{
    struct pst_shard_session *v = q->shard_session;
    struct pst_net_event event;
    struct pst_wire_head head;

    while (q->writes_open && !v->leaving && pst_bulk_park_take(&v->park, q->id, q->bulks_next, &head, &event))
        take_bulk(q, &head, &event);
}

void pst_request_bulk(struct pst_shard_session *v, const struct pst_wire_head *head,
                      struct pst_net_event *event)
{
    struct pst_request *q = receiving(v, head->request);
    bool early = q ? head->bulk_count > q->bulks_next : later(v, head->request);

    pst_assert(!v->leaving);
    if (early) {
        if (pst_bulk_park_add(&v->park, head, event) == 0)
            return;
        pst_msg_free(event->msg);
        pst_shard_session_protocol_error(v, "too many bulk messages before their turn");
    } else if (!q || head->bulk_count < q->bulks_next) {
        /* A copy, or every put of the request was refused, and the reply says so. */
        pst_msg_free(event->msg);
    } else {
        take_bulk(q, head, event);
        take_parked(q);
    }
}

static void fill_result(struct pst_request *q, const struct pst_write *write, int result,
                        const struct pst_answer *answer)
{
    struct pst_wire_result wire = pst_reply_result(result, answer);
    uint8_t *end = pst_wire_put_result(q->reply + write->reply_at, &wire);

    pst_assert(end <= q->reply + q->reply_bytes); /* it comes in the place of one as long */
}

/* A put makes it visible. Return: its result; @later_on: when other nodes have it, and not known yet. */
static int show(struct pst_request *q, struct pst_write *write, struct pst_answer *answer, bool *later_on)
{
    struct pst_worker *w = q->worker;
    const struct pst_record *record = write->pending.record;
    struct pst_bytes key = write->put.lookup.key;
    int r;

    pst_assert(record);
    pst_assert(!write->refused);
    if (write->put.generation)
        return pst_copy_landed(q, write, answer);
    r = pst_node_may_serve(w->node, key);
    *later_on = r == 0 && pst_node_copied(w->node, key);
    if (*later_on)
        r = pst_commit_write(q, write);
    else if (r == 0)
        return pst_shard_commit(w->shard, &write->put, &write->pending, w->now_ns, answer);
    *later_on &= r == 0;
    if (r != 0)
        pst_shard_abort(w->shard, &write->pending);
    return r;
}

/* All of it is there: a put makes it visible, a reservation keeps it. */
static void finish(struct pst_request *q, struct pst_write *write)
{
    struct pst_record *record = write->pending.record;
    struct pst_answer answer = {0};
    bool later_on = false;
    int r = 0;

    pst_assert(!write->refused);
    pst_assert(write->bytes_left == 0);
    pst_assert(write->bytes_landed == write->put.value_bytes);
    if (write->reservation) {
        pst_reservation_written(q->worker->shard, write->reservation, write->offset, write->put.value_bytes,
                                true);
        write->reservation = NULL;
    } else {
        r = show(q, write, &answer, &later_on);
        if (r == 0 && write->durable && !later_on)
            r = pst_request_save(q, record, write->reply_at);
    }
    if (!later_on)
        fill_result(q, write, r, &answer);
}

static void abandon(struct pst_request *q, struct pst_write *write)
{
    struct pst_shard *shard = q->worker->shard;

    if (write->reservation)
        pst_reservation_written(shard, write->reservation, write->offset, write->put.value_bytes, false);
    if (write->counted)
        pst_quota_give_underway(&q->shard_session->session->quota, write->put.value_bytes);
    write->reservation = NULL;
    pst_shard_abort(shard, &write->pending);
}

void pst_request_received(void *incoming, int status)
{
    struct incoming *in = incoming;
    struct pst_request *q;

    pst_assert(in && in->magic == PST_INCOMING_MAGIC);
    q = in->request;
    pst_assert(q->magic == PST_REQUEST_MAGIC);
    pst_assert(q->receives > 0);
    q->receives--;
    q->shard_session->moved_ns = q->worker->now_ns;
    if (status < 0)
        pst_shard_session_leave(q->shard_session, "a value did not arrive");
    for (uint32_t i = 0; i < in->part_count && status == 0 && !q->shard_session->leaving; i++) {
        struct pst_write *write = write_of(q, in->parts[i].op);

        pst_assert(write);
        write->bytes_landed += in->parts[i].bytes;
        pst_assert(write->bytes_landed <= write->put.value_bytes - write->bytes_left);
        if (!write->refused && write->bytes_landed == write->put.value_bytes) {
            pst_assert(q->writes_open > 0);
            q->writes_open--;
            finish(q, write);
        }
    }
    free(in);
    pst_request_run(q);
}

/* ---- answers ---- */

static bool next_piece(void *ctx, struct pst_bulk_cursor *cursor, struct iovec *piece, uint32_t *op)
{
    struct pst_request *q = ctx;

    pst_assert(q->magic == PST_REQUEST_MAGIC);
    for (; cursor->item < q->read_count; *cursor = (struct pst_bulk_cursor){cursor->item + 1, 0}) {
        const struct pst_read *read = &q->reads[cursor->item];
        uint64_t left = read->bytes - cursor->offset;

        pst_assert(cursor->offset <= read->bytes);
        *op = read->op;
        if (left &&
            pst_record_piece(q->worker->shard, read->record, read->offset + cursor->offset, left, piece))
            return true;
    }
    return false;
}

static enum pst_step_result step_answers(struct pst_request *q)
{
    struct pst_wire_head head = {.type = PST_WIRE_BULK,
                                 .version = (uint8_t)q->shard_session->session->version,
                                 .request = q->id,
                                 .token = q->shard_session->session->token};
    int r = 0;

    pst_assert(q->receives == 0);
    pst_assert(q->writes_open == 0);
    pst_assert(q->saves.left == 0);
    pst_assert(pst_list_empty(&q->commits));
    pst_assert(q->read_count <= q->count);
    if (!q->shard_session->leaving && q->bulk_out.item < q->read_count)
        r = pst_bulk_send(q->shard_session->peer, &head, next_piece, q, UINT64_MAX, &q->bulk_out, q,
                          &q->bulk_count, &q->sends);
    if (r == -EAGAIN)
        return PST_STEP_WAIT;
    if (r == -EBUSY)
        return stall(q);
    if (r < 0)
        pst_shard_session_leave(q->shard_session, "sending a value failed");
    return go(q, PST_STEP_reply);
}

/* ---- reply ---- */

static enum pst_step_result step_reply(struct pst_request *q)
{
    struct pst_wire_head head = {.type = PST_WIRE_REPLY,
                                 .version = (uint8_t)q->shard_session->session->version,
                                 .count = q->count,
                                 .request = q->id,
                                 .token = q->shard_session->session->token,
                                 .bulk_count = q->bulk_count};
    int r;

    pst_assert(q->reply_bytes <= REPLY_BYTES);
    pst_assert(q->bulk_out.item <= q->read_count);
    if (q->shard_session->leaving)
        return go(q, PST_STEP_drain);
    r = pst_peer_send(q->shard_session->peer, (struct pst_bytes){&head, sizeof(head)},
                      (struct pst_bytes){q->reply, q->reply_bytes}, q);
    if (r == -EBUSY)
        return stall(q);
    if (r < 0)
        pst_shard_session_leave(q->shard_session, "sending a reply failed");
    q->sends += r == 0;
    return go(q, PST_STEP_drain);
}

static enum pst_step_result step_drain(struct pst_request *q)
{
    if (q->sends || q->receives)
        return PST_STEP_WAIT;
    pst_commit_call_off(q);
    pst_tiereds_end(q, &q->fetches);
    pst_tiereds_end(q, &q->saves);
    for (uint32_t i = 0; i < q->read_count; i++)
        pst_end_read(q, &q->reads[i]);
    for (uint32_t i = 0; i < q->write_count; i++)
        abandon(q, &q->writes[i]);
    return PST_STEP_END;
}

void pst_request_sent(struct pst_request *q)
{
    pst_assert(q->sends > 0);
    pst_assert(q->step >= &steps[PST_STEP_answers]);
    q->sends--;
    q->shard_session->moved_ns = q->worker->now_ns;
    if (q->step == &steps[PST_STEP_answers])
        stall(q); /* goes on after a poll, once for however many sends that saw end */
    else if (q->step == &steps[PST_STEP_drain])
        pst_request_run(q);
}

static uint64_t largest_value(const struct pst_request *q)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < q->write_count; i++)
        bytes = pst_max(bytes, q->writes[i].refused ? 0 : q->writes[i].put.value_bytes);
    for (uint32_t i = 0; i < q->read_count; i++)
        bytes = pst_max(bytes, q->reads[i].bytes);
    return bytes;
}

/* A request waits behind others of its client, so that one moves is enough. A value is one transfer, of which
 * only the end shows. What the disk or another node took of the time is not the client's. */
uint64_t pst_requests_silence_ns(const struct pst_shard_session *v)
{
    const struct pst_worker *w = v->worker;
    uint64_t turn_ns = w->now_ns, since_ns, bytes = 0;

    pst_list_each (it, &v->requests) {
        const struct pst_request *q = pst_list_entry(it, struct pst_request, of_shard_session);

        if (q->sends > 0 || q->receives > 0 || q->writes_open > 0)
            turn_ns = pst_min(turn_ns, q->turn_ns);
        bytes = pst_max(bytes, largest_value(q));
    }
    since_ns = w->now_ns - pst_max(v->moved_ns, turn_ns);
    pst_assert(since_ns <= w->now_ns);
    return since_ns / SLOW_NS_A_BYTE > bytes ? since_ns - bytes * SLOW_NS_A_BYTE : 0;
}

void pst_request_abort(struct pst_request *q)
{
    pst_assert(q->sends == 0);
    pst_assert(q->receives == 0);
    pst_assert(q->shard_session->leaving);
    q->step = &steps[PST_STEP_drain];
    pst_request_run(q);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * commit.c: "check these generations, then apply these changes", over shards, all or nothing.
 *
 * The parts of a commit, one for each shard that it touches, are prepared one after the other in the order of
 * the shards: the commit goes from worker to worker by commit message. Who prepares the last one decides, and
 * mails the verdict to all. Until a part has been applied or undone its keys are locked, so whoever has seen
 * one change sees the others too, or waits. Nobody waits for a lock: a part that finds one calls the commit
 * off, and the client tries again; the commit with the highest lock always goes on.
 *
 * A commit outlives its request, should the session end meanwhile: commit messages are always read, so it
 * ends soon.
 *
 * Where other nodes hold the keys as well, what is prepared goes to them before it is decided, and shows when
 * they have it. From then on it is not called off: one of them may be asked for it. Every write of such a key
 * is a commit, if of this key alone.
 */
#include "node/commit.h"
#include "node/node_priv.h"
#include "node/op.h"

#include "call/replica.h"
#include "store/change.h"
#include "store/read.h"

#include <penstock/penstock.h>

enum { COMMITS_MAX = 1024 /* of one coordinator at a time */ };

#define COMMIT_MAGIC 0x636f6d6du

struct part {
    struct pst_commit_message message;
    struct pst_worker *worker;
    struct pst_change *first, *last;
    bool prepared;
};

struct pst_commit {
    uint32_t magic;
    struct pst_node *node;
    struct pst_worker *coordinator;
    struct pst_request *request; /* NULL: it has ended; the coordinator's */
    struct pst_list of_request;
    bool alone;              /* the answer is that to its one change ... */
    bool durable;            /* ... and waits until a crash would not lose it */
    bool of_reservation;     /* ... is to a reservation's commit, which the reservation is told of */
    bool inside;             /* the request is still being begun */
    _Atomic bool called_off; /* nobody waits for it any more */
    uint64_t token;
    uint64_t deadline_ns;
    size_t reply_at;
    bool failed, applies;
    bool copied, sent;          /* to other nodes */
    int verdict;                /* why it is not applied, although it could have been prepared */
    bool doubtful;              /* it is, as the copies have it, and whether this node serves is open */
    struct pst_worker *decider; /* of one that was sent */
    struct pst_commit_message arrived;
    struct pst_replica replica;
    _Atomic uint32_t parts_left; /* to be applied or undone */
    struct pst_commit_message ended;
    uint32_t part_count, change_count;
    struct part *parts;
    struct pst_change *changes;
    uint8_t *bytes; /* of keys, attributes and values */
};

static struct pst_commit *commit_cast(struct pst_commit *commit)
{
    pst_assert(commit && commit->magic == COMMIT_MAGIC);
    return commit;
}

/* ---- the answer ---- */

/* What the commit as a whole came to: busy only when nothing else is wrong with it. */
static int outcome_of(const struct pst_commit *commit)
{
    int outcome = commit->applies ? PST_OK : PST_BUSY;

    if (commit->verdict || commit->doubtful)
        return commit->verdict ? commit->verdict : PENSTOCK_UNKNOWN;
    for (uint32_t i = 0; i < commit->change_count && !commit->applies; i++) {
        int result = commit->changes[i].result;

        if (result != 0 && result != PST_BUSY)
            return result;
    }
    return outcome;
}

/* What one of its changes came to. */
static int outcome_of_change(const struct pst_commit *commit, const struct pst_change *c)
{
    bool told = c->result || !commit->alone;

    return told || (commit->applies && !commit->doubtful) ? c->result : outcome_of(commit);
}

static void fill_results(const struct pst_commit *commit)
{
    struct pst_answer none = {0};
    struct pst_wire_result result = pst_reply_result(outcome_of(commit), &none);
    uint8_t *at = commit->request->reply + commit->reply_at;

    pst_assert(commit->parts_left == 0);
    pst_assert(commit->reply_at < commit->request->reply_bytes);
    pst_assert(!commit->alone || commit->change_count == 1);
    pst_assert(commit->request->worker == commit->coordinator);
    if (!commit->alone)
        at = pst_wire_put_result(at, &result);
    for (uint32_t i = 0; i < commit->change_count; i++) {
        const struct pst_change *c = &commit->changes[i];

        result = pst_reply_result(outcome_of_change(commit, c), &c->answer);
        result.copies = commit->sent && commit->applies ? commit->replica.copies : 0;
        at = pst_wire_put_result(at, &result);
    }
    pst_assert(at <= commit->request->reply + commit->request->reply_bytes);
}

/* Unless it went with its session. */
static void tell_reservation(const struct pst_commit *commit)
{
    struct pst_worker *w = commit->coordinator; /* the reservation's, too */
    struct pst_holder *holder = pst_worker_holder(w, commit->token);
    const struct pst_change *c = &commit->changes[0];

    pst_assert(commit->alone);
    pst_assert(c->from == PST_VALUE_RESERVATION);
    pst_assert(c->kind == PST_CHANGE_PUT);
    if (holder)
        pst_reservation_ended(w->shard, holder, c->reservation_handle, c->put.lookup.hash,
                              outcome_of_change(commit, c), &c->answer);
}

static void writes_free(struct pst_commit *commit)
{
    for (uint32_t i = 0; i < commit->replica.write_count; i++)
        free(commit->replica.writes[i].pieces);
    free(commit->replica.writes);
}

static void commit_free(struct pst_commit *commit)
{
    pst_assert(commit->parts_left == 0);
    pst_assert(pst_list_empty(&commit->of_request));
    pst_assert(commit->coordinator->commits > 0);
    pst_assert(commit->node->commits > 0);
    pst_assert(commit->magic == COMMIT_MAGIC);
    if (commit->sent)
        commit->node->role.replicated(commit->node->role.ctx, &commit->replica);
    writes_free(commit);
    commit->coordinator->commits--;
    atomic_fetch_sub(&commit->node->commits, 1);
    commit->magic = 0;
    free(commit->parts);
    free(commit->changes);
    free(commit->bytes);
    free(commit);
}

/* The copies have it for good already. */
static void save(struct pst_commit *commit)
{
    struct pst_request *q = commit->request;
    struct pst_record *record = pst_shard_find(q->worker->shard, &commit->changes[0].put.lookup);
    int16_t r = (int16_t)pst_request_save(q, record, (uint32_t)commit->reply_at);

    if (r != 0)
        memcpy(q->reply + commit->reply_at, &r, sizeof(r));
}

/* The coordinator: every part has ended. */
static void finish(struct pst_commit *commit)
{
    struct pst_request *q = commit->request;
    bool inside = commit->inside;

    pst_assert(commit->parts_left == 0);
    pst_assert(!q || q->worker == commit->coordinator);
    if (commit->of_reservation)
        tell_reservation(commit);
    if (q) {
        fill_results(commit);
        if (commit->durable && commit->applies)
            save(commit);
        pst_list_remove(&commit->of_request);
    }
    commit_free(commit);
    if (q && !inside)
        pst_request_run(q);
}

/* ---- parts ---- */

static void part_end(struct pst_commit *commit, struct part *part)
{
    struct pst_worker *w = part->worker;

    pst_assert(part->prepared);
    pst_assert(commit->parts_left > 0);
    pst_assert(commit->parts_left <= commit->part_count);
    if (commit->applies)
        pst_changes_apply(w->shard, part->first, w->now_ns);
    else
        pst_changes_undo(w->shard, part->first);
    if (atomic_fetch_sub(&commit->parts_left, 1) > 1)
        return;
    if (w == commit->coordinator)
        finish(commit);
    else
        pst_worker_post(commit->coordinator, &commit->ended);
}

static bool may_go_on(const struct pst_commit *commit, const struct pst_worker *w)
{
    return !commit->failed && !commit->called_off && w->now_ns <= commit->deadline_ns;
}

/* @w has prepared the last part, or found that the commit cannot be: this is the moment at which it happens,
 * or does not. */
static void decide(struct pst_commit *commit, struct pst_worker *w)
{
    struct part *own = NULL;
    uint32_t prepared = 0;

    pst_assert(!commit->applies);
    pst_assert(commit->parts_left == 0); /* once */
    pst_assert(!commit->sent || w == commit->decider);
    commit->applies = !commit->failed && !commit->verdict && (commit->sent || may_go_on(commit, w));
    for (uint32_t i = 0; i < commit->part_count; i++)
        prepared += commit->parts[i].prepared;
    pst_assert(prepared <= commit->part_count);
    pst_assert(!commit->applies || prepared == commit->part_count);
    atomic_store(&commit->parts_left, prepared);
    if (commit->applies)
        pst_changes_decide(commit->node->store, commit->changes, commit->change_count);
    if (prepared == 0) {
        if (w == commit->coordinator)
            finish(commit);
        else
            pst_worker_post(commit->coordinator, &commit->ended);
        return;
    }
    /* With the last part that ends, the commit is gone: no look at it behind that. */
    for (uint32_t i = 0, left = prepared; left > 0; i++) {
        struct part *part = &commit->parts[i];

        if (!part->prepared)
            continue;
        left--;
        if (part->worker == w)
            own = part;
        else
            pst_worker_post(part->worker, &part->message);
    }
    if (own)
        part_end(commit, own);
}

/* ---- copies ---- */

/* What the others are told of a record. Return: 0, -ENOMEM. */
static int describe(const struct pst_shard *shard, const struct pst_record *r, struct pst_replica_write *out)
{
    struct iovec piece;
    uint64_t at;
    int count = 0;

    pst_assert(out->piece_count == 0);
    pst_assert(!out->pieces);
    for (at = 0; pst_record_piece(shard, r, at, r->value_bytes - at, &piece); at += piece.iov_len)
        count++;
    out->pieces = malloc(((size_t)count + 1) * sizeof(*out->pieces));
    if (!out->pieces)
        return -ENOMEM;
    for (at = 0; pst_record_piece(shard, r, at, r->value_bytes - at, &piece); at += piece.iov_len)
        out->pieces[out->piece_count++] = piece;
    pst_assert(at == r->value_bytes);
    pst_assert(out->piece_count == count);
    out->attrs = pst_record_attrs(r);
    out->value_bytes = r->value_bytes;
    out->generation = r->generation;
    out->expires_ms = r->flags & PST_RECORD_EXPIRES ? pst_record_expires_ms(r) : 0;
    out->checksum = r->flags & PST_RECORD_CHECKSUM;
    out->crc = r->value_crc;
    out->depth = r->depth;
    out->copies = r->copies;
    return 0;
}

/* A value on SSD: the request has fetched it, and lets go of it when this has been prepared. */
static int take_fetched(struct pst_shard *shard, struct pst_change *c)
{
    struct pst_record *fetched;
    uint64_t from;
    int r = pst_tier_fetched(shard, c->old, 0, c->old->value_bytes, &fetched, &from);

    if (r == 0)
        r = pst_shard_ref(shard, fetched);
    if (r != 0)
        return r;
    pst_assert(from == 0);
    pst_assert(fetched != c->old);
    pst_assert(fetched->value_bytes == c->old->value_bytes);
    pst_shard_unref(shard, c->old);
    c->old = fetched;
    return 0;
}

static int describe_kept(struct pst_shard *shard, struct pst_change *c, struct pst_replica_write *out)
{
    uint64_t generation = c->old->generation; /* of what was fetched it is not said */
    int r = pst_record_away(c->old) && c->old->value_bytes ? take_fetched(shard, c) : 0;

    if (r == 0)
        r = pst_record_verify(shard, c->old);
    if (r == 0)
        r = describe(shard, c->old, out);
    out->generation = generation;
    return r;
}

static int describe_all(struct pst_commit *commit, struct pst_shard *shard)
{
    struct pst_replica *replica = &commit->replica;
    int r = 0;

    replica->writes = calloc(commit->change_count, sizeof(*replica->writes));
    if (!replica->writes)
        return -ENOMEM;
    for (uint32_t i = 0; i < commit->change_count && r == 0; i++) {
        struct pst_change *c = &commit->changes[i];
        struct pst_replica_write *write = &replica->writes[replica->write_count];

        if (c->kind == PST_CHANGE_CHECK)
            continue;
        *write = (struct pst_replica_write){.key = c->put.lookup.key,
                                            .what = c->kind == PST_CHANGE_PUT      ? PST_REPLICA_PUT
                                                    : c->kind == PST_CHANGE_DELETE ? PST_REPLICA_DELETE
                                                                                   : PST_REPLICA_SEND,
                                            .generation = c->generation,
                                            .durable = commit->durable};
        replica->write_count++;
        pst_assert(replica->write_count <= commit->change_count);
        if (c->kind == PST_CHANGE_PUT) {
            r = describe(shard, c->fresh, write);
        } else if (c->kind == PST_CHANGE_KEEP) {
            write->durable = !replica->addressed && pst_tier_saves(shard, c->old);
            r = describe_kept(shard, c, write);
        }
    }
    return r;
}

static void on_arrival(struct pst_replica *replica, int result)
{
    struct pst_commit *commit = commit_cast(pst_container_of(replica, struct pst_commit, replica));

    pst_assert(commit->sent);
    pst_assert(!commit->applies);
    pst_assert(!commit->verdict);
    commit->verdict = result;
    pst_worker_post(commit->decider, &commit->arrived);
}

/* All parts are prepared. */
static void send_copies(struct pst_commit *commit, struct pst_worker *w)
{
    pst_assert(commit->copied);
    pst_assert(!commit->sent);
    pst_assert(!commit->failed);
    pst_assert(commit->parts[commit->part_count - 1].worker == w);
    pst_assert(commit->change_count > 0);
    commit->verdict = describe_all(commit, w->shard);
    if (commit->verdict) {
        decide(commit, w);
        return;
    }
    commit->decider = w;
    commit->sent = true;
    commit->replica.done = on_arrival;
    commit->node->role.replicate(commit->node->role.ctx, &commit->replica);
}

/*
 * The copies hold it, or it is not known; whether this node still has a say decides. Without a lease just now
 * it has what they have, so that it is their equal if it goes on as primary, or hands over; nobody is told.
 */
static void take_arrival(struct pst_commit *commit)
{
    const struct pst_node_role *role = &commit->node->role;

    pst_assert(commit->sent);
    pst_assert(commit->decider);
    pst_assert(!commit->applies);
    for (uint32_t i = 0; i < commit->change_count && !commit->verdict; i++) {
        int r = commit->changes[i].kind == PST_CHANGE_KEEP
                    ? 0
                    : role->may_answer(role->ctx, commit->changes[i].put.lookup.key);

        commit->doubtful |= r == PENSTOCK_BUSY;
        if (r != 0 && r != PENSTOCK_BUSY)
            commit->verdict = PENSTOCK_UNKNOWN;
    }
    decide(commit, commit->decider);
}

/* ---- preparing ---- */

static bool any_busy(const struct part *part)
{
    const struct pst_change *c = part->first;

    while (c && c->result != PST_BUSY)
        c = c->next;
    return c != NULL;
}

static void part_prepare(struct pst_commit *commit, struct part *part)
{
    struct pst_worker *w = part->worker;
    bool ok, busy, last = part == &commit->parts[commit->part_count - 1];

    pst_assert(w);
    pst_assert(part >= commit->parts && part < commit->parts + commit->part_count);
    pst_assert(part->first);
    pst_assert(!part->prepared);
    pst_assert(!commit->sent);
    pst_assert(!commit->applies);
    ok = pst_changes_prepare(w->shard, pst_worker_holder(w, commit->token), part->first, commit->failed,
                             w->now_ns);
    busy = !ok && any_busy(part);
    part->prepared = ok && !commit->failed;
    commit->failed |= !ok;
    if (busy)
        pst_workers_relieve(w);
    if (last && commit->copied && may_go_on(commit, w))
        send_copies(commit, w);
    else if (busy || last)
        decide(commit, w);
    else
        pst_worker_post(part[1].worker, &part[1].message);
}

void pst_commit_receive(struct pst_worker *w, struct pst_commit_message *message)
{
    struct pst_commit *commit = commit_cast(message->commit);
    struct part *part = pst_container_of(message, struct part, message);

    if (message == &commit->ended) {
        pst_assert(w == commit->coordinator);
        finish(commit);
        return;
    }
    if (message == &commit->arrived) {
        pst_assert(w == commit->decider);
        take_arrival(commit);
        return;
    }
    pst_assert(part->worker == w);
    pst_assert(part >= commit->parts && part < commit->parts + commit->part_count);
    if (part->prepared)
        part_end(commit, part);
    else
        part_prepare(commit, part);
}

void pst_commit_call_off(struct pst_request *q)
{
    while (!pst_list_empty(&q->commits)) {
        struct pst_commit *commit = pst_list_first(&q->commits, struct pst_commit, of_request);

        pst_assert(commit->request == q);
        commit_cast(commit)->called_off = true;
        commit->request = NULL;
        pst_list_remove(&commit->of_request);
    }
}

/* ---- begin ---- */

static struct pst_bytes copy(uint8_t **at, const void *data, size_t len)
{
    struct pst_bytes out = {*at, len};

    if (len)
        memcpy(*at, data, len);
    *at += len;
    return out;
}

static void fill_change(struct pst_change *c, const struct pst_wire_op *op, uint8_t **at)
{
    bool put = op->code == PST_WIRE_PUT, reservation = put && op->flags & PST_WIRE_IN_RESERVATION;

    *c = (struct pst_change){
        .kind = put                              ? PST_CHANGE_PUT
                : op->code == PST_WIRE_DELETE    ? PST_CHANGE_DELETE
                : op->code == PST_WIRE_COPY_SEND ? PST_CHANGE_KEEP
                                                 : PST_CHANGE_CHECK,
        .put = {.lookup.key = copy(at, op->key.data, op->key.len),
                .attrs = put ? copy(at, op->attrs.data, op->attrs.len) : (struct pst_bytes){NULL, 0},
                .value_bytes = put ? op->bytes : 0,
                .if_generation = op->if_generation,
                .value_crc = op->value_crc,
                .depth = op->depth,
                .copies = op->copies,
                .flags = op->flags & (PST_PUT_IF_ABSENT | PST_PUT_IF_GENERATION | PST_PUT_CHECKSUM)},
        .from = reservation ? PST_VALUE_RESERVATION : PST_VALUE_GIVEN,
        .reservation_handle = reservation ? op->value_reservation : 0,
    };
    if (put && op->value)
        c->value = copy(at, op->value, op->bytes).data;
}

/* Sorts the changes into parts, by shard. */
static void deal(struct pst_commit *commit, const struct pst_wire_op *ops)
{
    pst_assert(commit->part_count == 0);
    for (uint32_t shard = 0; shard < commit->node->worker_count; shard++) {
        struct part *part = &commit->parts[commit->part_count];

        for (uint32_t i = 0; i < commit->change_count; i++) {
            struct pst_change *c = &commit->changes[i];

            if (pst_node_route(commit->node, ops[i].key) != shard)
                continue;
            *(part->last ? &part->last->next : &part->first) = c;
            part->last = c;
        }
        if (!part->first)
            continue;
        part->worker = &commit->node->workers[shard];
        part->message.commit = commit;
        for (struct pst_change *c = part->first; c; c = c->next)
            c->put.lookup = pst_shard_lookup(part->worker->shard, c->put.lookup.key);
        commit->part_count++;
    }
    pst_assert(commit->part_count > 0 && commit->part_count <= commit->node->worker_count);
}

static size_t bytes_of(const struct pst_wire_op *ops, uint32_t count)
{
    size_t sum = 1;

    for (uint32_t i = 0; i < count; i++)
        sum += ops[i].key.len + ops[i].attrs.len + (ops[i].value ? ops[i].bytes : 0);
    return sum;
}

/* Takes all of it out of the message. Return: NULL: no memory. */
static struct pst_commit *commit_new(struct pst_request *q, const struct pst_wire_op *ops, uint32_t count)
{
    struct pst_node *node = q->worker->node;
    struct pst_commit *commit = calloc(1, sizeof(*commit));
    uint8_t *at;

    pst_assert(count > 0 && count <= PST_WIRE_OPS_MAX);
    if (!commit)
        return NULL;
    commit->parts = calloc(pst_min(count, node->worker_count) + 1, sizeof(*commit->parts));
    commit->changes = malloc(count * sizeof(*commit->changes));
    commit->bytes = at = malloc(bytes_of(ops, count));
    if (!commit->parts || !commit->changes || !commit->bytes) {
        free(commit->parts);
        free(commit->changes);
        free(commit->bytes);
        free(commit);
        return NULL;
    }
    commit->magic = COMMIT_MAGIC;
    commit->node = node;
    commit->coordinator = q->worker;
    commit->request = q;
    commit->replica.trace = q->trace.trace;
    commit->token = q->shard_session->session->token;
    commit->deadline_ns = q->deadline_ns;
    commit->ended.commit = commit->arrived.commit = commit;
    pst_list_init(&commit->of_request);
    commit->change_count = count;
    for (uint32_t i = 0; i < count; i++) {
        fill_change(&commit->changes[i], &ops[i], &at);
        if (commit->changes[i].kind != PST_CHANGE_CHECK) /* of which the copies need not hear */
            commit->copied |= pst_node_copied(node, ops[i].key);
    }
    if (ops[0].code == PST_WIRE_COPY_SEND && ops[0].attrs.len > 0) {
        struct pst_wire_target target;

        memcpy(&target, ops[0].attrs.data, sizeof(target));
        commit->replica.addressed = commit->copied = true;
        commit->replica.member = target.member;
    }
    deal(commit, ops);
    return commit;
}

/* A node that stops waits for the commits that have begun, and begins no more. */
static bool may_begin(struct pst_worker *w)
{
    atomic_fetch_add(&w->node->commits, 1);
    if (!w->node->stopping && w->commits < COMMITS_MAX) {
        w->commits++;
        pst_assert(w->commits <= COMMITS_MAX);
        return true;
    }
    atomic_fetch_sub(&w->node->commits, 1);
    return false;
}

static void begin(struct pst_request *q, struct pst_commit *commit)
{
    struct part *first = &commit->parts[0];

    pst_assert(commit->part_count > 0 && commit->part_count <= q->worker->node->worker_count);
    pst_assert(!commit->inside);
    pst_assert(pst_list_empty(&commit->of_request));
    pst_assert(commit->request == q);
    pst_assert(commit->reply_at < q->reply_bytes);
    pst_list_push_front(&q->commits, &commit->of_request);
    commit->inside = true;
    if (first->worker == q->worker)
        part_prepare(commit, first);
    else
        pst_worker_post(first->worker, &first->message);
    if (!pst_list_empty(&q->commits) && pst_list_first(&q->commits, struct pst_commit, of_request) == commit)
        commit->inside = false; /* else it is over already, and gone */
}

/* Return: 0, PST_BUSY, -ENOMEM. */
static int commit_open(struct pst_request *q, const struct pst_wire_op *ops, uint32_t count,
                       struct pst_commit **out)
{
    struct pst_worker *w = q->worker;

    if (!may_begin(w))
        return PST_BUSY;
    *out = commit_new(q, ops, count);
    if (*out)
        return 0;
    pst_assert(w->commits > 0);
    w->commits--;
    atomic_fetch_sub(&w->node->commits, 1);
    return -ENOMEM;
}

void pst_apply_alone(struct pst_request *q, uint32_t index)
{
    struct pst_wire_op op = q->worker->ops[index];
    uint64_t ttl_ms = op.code == PST_WIRE_PUT && op.flags & PST_WIRE_TTL ? op.ttl_ms : 0;
    struct pst_answer none = {0};
    struct pst_wire_result result;
    struct pst_commit *commit = NULL;
    const struct pst_node_role *role = &q->worker->node->role;
    size_t reply_at = q->reply_bytes;
    int r = 0;

    op.flags &= ~(uint32_t)PST_WIRE_TTL;
    if (!role->copied)
        r = -EOPNOTSUPP;
    else if (pst_node_route(q->worker->node, op.key) != q->worker->number)
        r = -ESTALE;                        /* the client routes by another table */
    else if (op.code == PST_WIRE_COPY_SEND) /* there is nobody who sends before there is a view */
        r = role->may_copy(role->ctx, PST_PARTITIONS, 0);
    if (r == 0)
        r = commit_open(q, &op, 1, &commit);
    result = pst_reply_result(r, &none);
    pst_reply_add(q, &result);
    if (!commit)
        return;
    commit->alone = commit->copied = true;
    commit->durable = op.code == PST_WIRE_PUT && op.flags & PST_WIRE_DURABLE;
    commit->reply_at = reply_at;
    commit->changes[0].put.ttl_ms = ttl_ms;
    begin(q, commit);
}

/* Of one put, whose value is here. Return: 0, PST_BUSY, -ENOMEM. */
static int put_open(struct pst_request *q, const struct pst_put *put, bool durable, uint32_t reply_at,
                    struct pst_commit **out)
{
    const struct pst_wire_op op = {.code = PST_WIRE_PUT,
                                   .flags = put->flags &
                                            (PST_PUT_IF_ABSENT | PST_PUT_IF_GENERATION | PST_PUT_CHECKSUM),
                                   .copies = put->copies,
                                   .depth = put->depth,
                                   .value_crc = put->value_crc,
                                   .key = put->lookup.key,
                                   .bytes = put->value_bytes,
                                   .if_generation = put->if_generation};
    int r = commit_open(q, &op, 1, out);

    if (r != 0)
        return r;
    (*out)->alone = (*out)->copied = true;
    (*out)->durable = durable;
    (*out)->reply_at = reply_at;
    return 0;
}

int pst_commit_write(struct pst_request *q, struct pst_write *write)
{
    struct pst_commit *commit;
    int r = put_open(q, &write->put, write->durable, write->reply_at, &commit);

    if (r != 0)
        return r;
    pst_assert(commit->change_count == 1);
    pst_assert(write->pending.record);
    commit->changes[0].from = PST_VALUE_WRITTEN;
    commit->changes[0].pending = write->pending;
    write->pending = (struct pst_pending){0};
    begin(q, commit);
    return 0;
}

int pst_commit_reservation(struct pst_request *q, const struct pst_put *put,
                           const struct pst_reservation_named *named, uint32_t reply_at)
{
    struct pst_commit *commit;
    int r = put_open(q, put, named->durable, reply_at, &commit);

    if (r != 0)
        return r;
    pst_assert(commit->change_count == 1);
    commit->of_reservation = true;
    commit->changes[0].from = PST_VALUE_RESERVATION;
    commit->changes[0].reservation_handle = named->handle;
    begin(q, commit);
    return 0;
}

uint32_t pst_apply_commit(struct pst_request *q, uint32_t index)
{
    struct pst_worker *w = q->worker;
    const struct pst_wire_op *ops = &w->ops[index + 1];
    uint32_t count = (uint32_t)w->ops[index].bytes;
    struct pst_answer none = {0};
    struct pst_wire_result result;
    struct pst_commit *commit = NULL;
    size_t reply_at = q->reply_bytes;
    int r = PST_OK;

    pst_assert(count < q->count - index); /* pst_request_decode() has seen to it */
    for (uint32_t i = 0; i < count && r == 0; i++)
        r = pst_node_may_serve(w->node, ops[i].key);
    if (r == 0)
        r = commit_open(q, ops, count, &commit);
    result = pst_reply_result(r, &none);
    for (uint32_t i = 0; i <= count; i++)
        pst_reply_add(q, &result);
    if (commit) {
        commit->reply_at = reply_at;
        begin(q, commit);
    }
    return count;
}

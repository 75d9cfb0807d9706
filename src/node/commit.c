/*
 * commit.c: "check these generations, then apply these changes", over shards, all or nothing.
 *
 * The parts of a commit, one for each shard that it touches, are prepared one after the other in the order of
 * the shards: the commit goes from worker to worker by mail. Who prepares the last one decides, and mails the
 * verdict to all. Until a part has been applied or undone its keys are locked, so whoever has seen one change
 * sees the others too, or waits. Nobody waits for a lock: a part that finds one calls the commit off, and the
 * client tries again; the commit with the highest lock always goes on.
 *
 * A commit outlives its request, should the session end meanwhile: mail is always read, so it ends soon.
 */
#include "node/node_priv.h"

enum { COMMITS_MAX = 256 /* of one coordinator at a time */ };

#define COMMIT_MAGIC 0x636f6d6du

struct part {
    struct pst_mail mail;
    struct pst_worker *worker;
    struct pst_change *first, *last;
    bool prepared;
};

struct pst_commit {
    uint32_t magic;
    struct pst_node *node;
    struct pst_worker *coordinator;
    struct pst_request *request; /* NULL: it has ended; the coordinator's */
    bool inside;                 /* the request is still being begun */
    _Atomic bool called_off;     /* nobody waits for it any more */
    uint64_t token;
    uint64_t deadline_ns;
    size_t reply_at;
    bool failed, applies;
    _Atomic uint32_t parts_left; /* to be applied or undone */
    struct pst_mail ended;
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

    for (uint32_t i = 0; i < commit->change_count && !commit->applies; i++) {
        int result = commit->changes[i].result;

        if (result != 0 && result != PST_BUSY)
            return result;
    }
    return outcome;
}

static void fill_results(const struct pst_commit *commit)
{
    struct pst_answer none = {0};
    struct pst_wire_result result = pst_reply_result(outcome_of(commit), &none);
    uint8_t *at = pst_wire_put_result(commit->request->reply + commit->reply_at, &result);

    for (uint32_t i = 0; i < commit->change_count; i++) {
        result = pst_reply_result(commit->changes[i].result, &commit->changes[i].answer);
        at = pst_wire_put_result(at, &result);
    }
}

static void commit_free(struct pst_commit *commit)
{
    pst_assert(commit->parts_left == 0);
    commit->coordinator->commits--;
    atomic_fetch_sub(&commit->node->commits, 1);
    commit->magic = 0;
    free(commit->parts);
    free(commit->changes);
    free(commit->bytes);
    free(commit);
}

/* The coordinator: every part has ended. */
static void finish(struct pst_commit *commit)
{
    struct pst_request *q = commit->request;
    bool inside = commit->inside;

    if (q) {
        fill_results(commit);
        q->commit = NULL;
    }
    commit_free(commit);
    if (q && !inside)
        pst_request_run(q);
}

/* ---- parts ---- */

static void part_end(struct pst_commit *commit, struct part *part)
{
    struct pst_worker *w = part->worker;

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

/* @w has prepared the last part, or found that the commit cannot be: this is the moment at which it happens,
 * or does not. */
static void decide(struct pst_commit *commit, struct pst_worker *w)
{
    struct part *own = NULL;
    uint32_t prepared = 0;

    commit->applies = !commit->failed && !commit->called_off && w->now_ns <= commit->deadline_ns;
    for (uint32_t i = 0; i < commit->part_count; i++)
        prepared += commit->parts[i].prepared;
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
            pst_worker_post(part->worker, &part->mail);
    }
    if (own)
        part_end(commit, own);
}

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

    pst_assert(w && part->first);
    ok = pst_changes_prepare(w->shard, pst_worker_holder(w, commit->token), part->first, commit->failed,
                             w->now_ns);
    busy = !ok && any_busy(part);
    part->prepared = ok && !commit->failed;
    commit->failed |= !ok;
    if (busy)
        pst_workers_relieve(w);
    if (busy || last)
        decide(commit, w);
    else
        pst_worker_post(part[1].worker, &part[1].mail);
}

void pst_commit_mail(struct pst_worker *w, struct pst_mail *mail)
{
    struct pst_commit *commit = commit_cast(mail->commit);
    struct part *part = pst_container_of(mail, struct part, mail);

    if (mail == &commit->ended) {
        finish(commit);
        return;
    }
    pst_assert(part->worker == w);
    if (part->prepared)
        part_end(commit, part);
    else
        part_prepare(commit, part);
}

void pst_commit_call_off(struct pst_request *q)
{
    if (!q->commit)
        return;
    commit_cast(q->commit)->called_off = true;
    q->commit->request = NULL;
    q->commit = NULL;
}

/* ---- begin ---- */

static bool member_ok(const struct pst_wire_op *op)
{
    if (op->code == PST_WIRE_PUT && op->flags & PST_WIRE_VALUE_IN_BULK)
        return op->flags & PST_WIRE_RANGE; /* the slot's handle */
    return op->code == PST_WIRE_PUT || op->code == PST_WIRE_CHECK || op->code == PST_WIRE_DELETE;
}

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
    bool put = op->code == PST_WIRE_PUT, slot = put && op->flags & PST_WIRE_VALUE_IN_BULK;

    *c = (struct pst_change){
        .kind = put                           ? PST_CHANGE_PUT
                : op->code == PST_WIRE_DELETE ? PST_CHANGE_DELETE
                                              : PST_CHANGE_CHECK,
        .put = {.lookup.key = copy(at, op->key.data, op->key.len),
                .attrs = put ? copy(at, op->attrs.data, op->attrs.len) : (struct pst_bytes){NULL, 0},
                .value_bytes = put ? op->bytes : 0,
                .if_generation = op->if_generation,
                .value_crc = op->crc,
                .depth = op->depth,
                .flags = op->flags & (PST_PUT_IF_ABSENT | PST_PUT_IF_GENERATION | PST_PUT_CHECKSUM)},
        .slot_handle = slot ? op->offset : 0,
    };
    if (put && !slot)
        c->value = copy(at, op->value, op->bytes).data;
}

/* Sorts the changes into parts, by shard. */
static void deal(struct pst_commit *commit, const struct pst_wire_op *ops)
{
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
        part->mail.commit = commit;
        for (struct pst_change *c = part->first; c; c = c->next)
            c->put.lookup = pst_shard_lookup(part->worker->shard, c->put.lookup.key);
        commit->part_count++;
    }
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
    commit->token = q->visitor->session->token;
    commit->deadline_ns = q->deadline_ns;
    commit->ended.commit = commit;
    commit->change_count = count;
    for (uint32_t i = 0; i < count; i++)
        fill_change(&commit->changes[i], &ops[i], &at);
    deal(commit, ops);
    return commit;
}

/* A node that stops waits for the commits that have begun, and begins no more. */
static bool may_begin(struct pst_worker *w)
{
    atomic_fetch_add(&w->node->commits, 1);
    if (!w->node->stopping && w->commits < COMMITS_MAX) {
        w->commits++;
        return true;
    }
    atomic_fetch_sub(&w->node->commits, 1);
    return false;
}

static void begin(struct pst_request *q, struct pst_commit *commit)
{
    struct part *first = &commit->parts[0];

    q->commit = commit;
    commit->inside = true;
    if (first->worker == q->worker)
        part_prepare(commit, first);
    else
        pst_worker_post(first->worker, &first->mail);
    if (q->commit) /* else it is over already, and gone */
        q->commit->inside = false;
}

uint32_t pst_apply_commit(struct pst_request *q, uint32_t index)
{
    struct pst_worker *w = q->worker;
    const struct pst_wire_op *ops = &w->ops[index + 1];
    uint32_t left = q->count - index - 1, count = (uint32_t)pst_min(w->ops[index].bytes, left);
    struct pst_answer none = {0};
    struct pst_wire_result result;
    struct pst_commit *commit = NULL;
    size_t reply_at = q->reply_bytes;
    int r = count > 0 && count == w->ops[index].bytes ? PST_OK : -EINVAL;

    for (uint32_t i = 0; i < count; i++)
        r = member_ok(&ops[i]) ? r : -EINVAL;
    for (uint32_t i = 0; i < count && r == 0; i++)
        r = pst_node_may_serve(w->node, ops[i].key);
    if (r == 0 && (q->commit || !may_begin(w)))
        r = PST_BUSY;
    else if (r == 0 && !(commit = commit_new(q, ops, count))) {
        w->commits--;
        atomic_fetch_sub(&w->node->commits, 1);
        r = -ENOMEM;
    }
    result = pst_reply_result(r, &none);
    for (uint32_t i = 0; i <= count; i++)
        pst_reply_add(q, &result);
    if (commit) {
        commit->reply_at = reply_at;
        begin(q, commit);
    }
    return count;
}

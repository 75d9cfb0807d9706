/* SPDX-License-Identifier: Apache-2.0 */
/*
 * commit.c: several keys at once. Small values travel with the commit; larger ones are written into
 * reservations first, which it then names. So nothing of it shows before the owners of all keys have agreed.
 */
#include "client/client_priv.h"

enum {
    OP_BYTES = 40, /* of an operation in a request, without its key, attributes and value */
    SPILL_BYTES_MIN =
        64,        /* values from here on go into reservations when the request is too long otherwise */
    TRIES_MAX = 3, /* with new reservations, when a lost connection took the old ones along */
};

_Static_assert((int)OP_BYTES + 2 * (int)PST_WIRE_KEY_BYTES_MAX + (int)PST_WIRE_INLINE_BYTES_MAX ==
                   (int)PST_WIRE_OP_BYTES_MAX,
               "an operation's bytes as the wire counts them");
_Static_assert((int)SPILL_BYTES_MIN < (int)PST_WIRE_INLINE_BYTES_MAX, "a long request becomes a shorter one");
_Static_assert((int)PENSTOCK_COMMIT_OPS_MAX + 1 <= (int)PST_WIRE_OPS_MAX, "a commit's members and its head");

struct commit {
    struct penstock *store;
    struct penstock_op *ops; /* the caller's */
    size_t count;
    uint64_t inline_bytes_max;
    /* One for each operation, behind this struct. */
    struct penstock_op *members;               /* what travels */
    struct penstock_op *steps;                 /* on reservations */
    struct penstock_reservation *reservations; /* handle 0: none */
    uint8_t *flat;                             /* small values that come in pieces */
    uint64_t flat_bytes;
};

/* ---- checks ---- */

static int by_key(const void *a, const void *b)
{
    const struct penstock_op *x = *(struct penstock_op *const *)a, *y = *(struct penstock_op *const *)b;

    return pst_bytes_compare((struct pst_bytes){x->key, x->key_bytes},
                             (struct pst_bytes){y->key, y->key_bytes});
}

static bool keys_differ(const struct commit *c)
{
    struct penstock_op *sorted[PENSTOCK_COMMIT_OPS_MAX];

    pst_assert(c->count <= PENSTOCK_COMMIT_OPS_MAX);
    for (size_t i = 0; i < c->count; i++)
        sorted[i] = &c->ops[i];
    qsort(sorted, c->count, sizeof(sorted[0]), by_key);
    for (size_t i = 1; i < c->count; i++) {
        if (by_key(&sorted[i - 1], &sorted[i]) == 0)
            return false;
    }
    return true;
}

static int check_op(const struct penstock_op *op)
{
    uint32_t allowed = PENSTOCK_IF_GENERATION;
    struct penstock_op looked_at;

    if (op->code == PENSTOCK_PUT)
        allowed |= PENSTOCK_IF_ABSENT | PENSTOCK_CHECKSUM;
    if ((op->code != PENSTOCK_CHECK && op->code != PENSTOCK_PUT && op->code != PENSTOCK_DELETE) ||
        op->flags & ~allowed)
        return -EINVAL;
    looked_at = *op;
    if (op->code == PENSTOCK_CHECK) { /* names a key and no more */
        looked_at.code = PENSTOCK_STAT_KEY;
        looked_at.flags = 0;
    }
    return pst_op_begin(&looked_at, -1, NULL);
}

static int check_ops(const struct commit *c)
{
    int r = 0;

    for (size_t i = 0; i < c->count && r == 0; i++) {
        r = check_op(&c->ops[i]);
        c->ops[i].result = r;
        if (r < 0)
            pst_explain(c->store, &c->ops[i], r);
    }
    if (r == 0 && !keys_differ(c))
        r = pst_fail(-EINVAL, "%s: a commit names a key twice", c->store->url);
    return r;
}

/* ---- what travels ---- */

static bool wants_reservation(const struct commit *c, const struct penstock_op *op)
{
    return op->code == PENSTOCK_PUT && op->bytes > c->inline_bytes_max;
}

static uint64_t request_bytes(const struct commit *c)
{
    uint64_t sum = OP_BYTES;

    pst_assert(c->inline_bytes_max <= PST_WIRE_INLINE_BYTES_MAX);
    for (size_t i = 0; i < c->count; i++) {
        const struct penstock_op *op = &c->ops[i];
        bool put = op->code == PENSTOCK_PUT;

        sum += OP_BYTES + op->key_bytes + (put && op->attrs ? op->attr_bytes : 0) +
               (put && !wants_reservation(c, op) ? op->bytes : 0);
    }
    return sum;
}

/* The caller's operation as a member: its value in one piece, for which @*flat has room, or in its
 * reservation. */
static void fill_member(struct commit *c, size_t i, uint8_t **flat)
{
    struct penstock_op *member = &c->members[i];

    pst_assert(i < c->count);
    pst_assert(!c->reservations[i].handle || wants_reservation(c, &c->ops[i]));
    *member = c->ops[i];
    if (member->code == PENSTOCK_CHECK)
        member->flags |= PENSTOCK_IF_GENERATION;
    if (c->reservations[i].handle) {
        member->flags |= PST_WIRE_IN_RESERVATION;
        member->value_reservation = c->reservations[i].handle;
    } else if (member->code == PENSTOCK_PUT && member->iov) {
        pst_assert(member->bytes <= c->flat_bytes - (uint64_t)(*flat - c->flat));
        pst_op_copy_out(member, 0, *flat, member->bytes);
        member->data = *flat;
        member->iov = NULL;
        *flat += member->bytes;
    }
}

/* ---- reservations ---- */

/* Runs the steps that were prepared, as @of names their operations. Return: 0 or the first bad result, which
 * its operation has, too. */
static int run_steps(struct commit *c, const size_t *of, size_t count)
{
    int r = 0;

    pst_assert(count > 0 && count <= c->count);
    pst_run(c->store, c->steps, count, NULL);
    for (size_t i = 0; i < count; i++) {
        int result = c->steps[i].result;

        if (result && result != PENSTOCK_MISS)
            c->ops[of[i]].result = result;
        r = r ? r : result;
    }
    return r;
}

static int fill_reservations(struct commit *c)
{
    size_t of[PENSTOCK_COMMIT_OPS_MAX], count = 0;
    int r;

    for (size_t i = 0; i < c->count; i++) {
        const struct penstock_op *op = &c->ops[i];

        if (!wants_reservation(c, op))
            continue;
        penstock_prep_reserve(&c->steps[count], op->key, op->key_bytes, op->bytes, &c->reservations[i]);
        c->steps[count].flags = PENSTOCK_REPLACE;
        c->steps[count].depth = op->depth;
        c->steps[count].attrs = op->attrs;
        c->steps[count].attr_bytes = op->attr_bytes;
        pst_assert(!c->reservations[i].handle); /* those of a try before were dropped */
        of[count++] = i;
    }
    pst_assert(count <= c->count);
    r = count ? run_steps(c, of, count) : 0;
    for (size_t i = 0; i < count && r == 0; i++) {
        const struct penstock_op *op = &c->ops[of[i]];

        c->steps[i] = (struct penstock_op){0};
        penstock_prep_write_at(&c->steps[i], op->key, op->key_bytes, &c->reservations[of[i]], 0, op->data,
                               op->bytes);
        c->steps[i].iov = op->iov;
        c->steps[i].iov_count = op->iov_count;
    }
    return r || !count ? r : run_steps(c, of, count);
}

static void drop_reservations(struct commit *c)
{
    size_t count = 0;

    for (size_t i = 0; i < c->count; i++) {
        if (!c->reservations[i].handle)
            continue;
        c->steps[count] = (struct penstock_op){0};
        penstock_prep_reservation_abort(&c->steps[count++], c->ops[i].key, c->ops[i].key_bytes,
                                        &c->reservations[i]);
    }
    pst_assert(count <= c->count);
    if (count)
        pst_run(c->store, c->steps, count, NULL);
    memset(c->reservations, 0, c->count * sizeof(c->reservations[0]));
}

/* ---- the commit ---- */

/* The shard that the commit is sent to: any could see to it, the lowest of its keys' does. -1: of the node
 * that has one of its keys. */
static int coordinator(const struct commit *c, struct penstock_op *head)
{
    uint32_t lowest = UINT32_MAX;

    pst_assert(c->count > 0);
    if (c->store->backend->one_owner) {
        head->key = c->ops[0].key;
        head->key_bytes = c->ops[0].key_bytes;
        return -1;
    }
    pst_enter(c->store);
    for (size_t i = 0; i < c->count; i++) {
        struct pst_bytes key = {c->ops[i].key, c->ops[i].key_bytes};

        lowest = (uint32_t)pst_min(lowest, c->store->backend->shard_of(c->store, key));
    }
    pst_leave(c->store);
    pst_assert(lowest <= INT32_MAX); /* there is a key */
    return (int)lowest;
}

/* The members' results are the operations', unless no answer came at all. One that found its key locked,
 * while another found what makes the commit impossible, has nothing to say. */
static void take_results(struct commit *c, int outcome)
{
    bool answered = outcome >= 0 && outcome != PENSTOCK_UNKNOWN;

    for (size_t i = 0; i < c->count; i++)
        answered |= outcome < 0 && c->members[i].result == outcome;
    for (size_t i = 0; i < c->count; i++) {
        const struct penstock_op *member = &c->members[i];
        bool silent = member->result == PENSTOCK_BUSY && outcome != PENSTOCK_BUSY;

        c->ops[i].result = !answered ? outcome : silent ? 0 : member->result;
        c->ops[i].generation = member->generation;
        c->ops[i].value_bytes = member->value_bytes;
        c->ops[i].error_detail = member->error_detail;
    }
}

/* @reservations_lost: the connection failed before the commit, and took the reservations along. */
static int commit_once(struct commit *c, bool *reservations_lost)
{
    struct penstock_op head = {.code = PST_WIRE_COMMIT, .data = c->members, .member_count = c->count};
    int r;

    pst_assert(c->count >= 1 && c->count <= PENSTOCK_COMMIT_OPS_MAX);
    *reservations_lost = false;
    memset(c->members, 0, c->count * sizeof(c->members[0]));
    memset(c->steps, 0, c->count * sizeof(c->steps[0]));
    r = fill_reservations(c);
    *reservations_lost = r == PENSTOCK_MISS;
    if (r == 0) {
        int shard = coordinator(c, &head);
        uint8_t *flat = c->flat;

        for (size_t i = 0; i < c->count; i++)
            fill_member(c, i, &flat);
        pst_run(c->store, &head, 1, &shard);
        r = head.result;
        *reservations_lost = r == -ENOENT;
        take_results(c, r);
    }
    if (r != 0)
        drop_reservations(c);
    return r;
}

static struct commit *commit_new(struct penstock *store, struct penstock_op *ops, size_t count)
{
    struct commit *c =
        calloc(1, sizeof(*c) + count * (2 * sizeof(*ops) + sizeof(struct penstock_reservation)));

    pst_assert(store && ops);
    pst_assert(count >= 1 && count <= PENSTOCK_COMMIT_OPS_MAX);
    if (!c)
        return NULL;
    c->store = store;
    c->ops = ops;
    c->count = count;
    c->inline_bytes_max = PST_WIRE_INLINE_BYTES_MAX;
    c->members = (struct penstock_op *)(c + 1);
    c->steps = c->members + count;
    c->reservations = (struct penstock_reservation *)(c->steps + count);
    for (size_t i = 0; i < count; i++)
        c->flat_bytes += ops[i].iov && !wants_reservation(c, &ops[i]) ? ops[i].bytes : 0;
    c->flat = malloc(c->flat_bytes + 1);
    if (c->flat)
        return c;
    free(c);
    return NULL;
}

/* The first that the client's grant does not allow; NULL: there is none. */
static const struct penstock_op *denied_op(const struct commit *c)
{
    for (size_t i = 0; i < c->count; i++) {
        if (c->ops[i].error_detail.denied & PST_DENIED_RIGHT)
            return &c->ops[i];
        if (c->steps[i].error_detail.denied & PST_DENIED_RIGHT)
            return &c->steps[i];
    }
    return NULL;
}

/* Whether one node can see to all of it, as far as is known. Return: 0 or -errno, explained. */
static int check_owner(struct commit *c)
{
    int r = 0;

    pst_assert(c->count >= 1 && c->count <= PENSTOCK_COMMIT_OPS_MAX);
    pst_assert(!c->store->backend->locks_itself || !c->store->backend->one_owner);
    if (c->store->backend->one_owner) {
        pst_enter(c->store);
        r = c->store->backend->one_owner(c->store, c->ops, c->count);
        pst_leave(c->store);
    }
    return r;
}

static int commit_run(struct commit *c)
{
    bool reservations_lost = true;
    int r = check_ops(c);

    if (r == 0)
        r = check_owner(c);
    if (r < 0)
        return r;
    if (request_bytes(c) > PST_WIRE_BODY_BYTES_MAX)
        c->inline_bytes_max = SPILL_BYTES_MIN;
    if (request_bytes(c) > PST_WIRE_BODY_BYTES_MAX)
        return pst_fail(-E2BIG, "%s: the keys of a commit have %d bytes at the most", c->store->url,
                        PST_WIRE_BODY_BYTES_MAX);
    for (int tries = 0; tries < TRIES_MAX && reservations_lost; tries++)
        r = commit_once(c, &reservations_lost);
    if (r == -EOPNOTSUPP && check_owner(c) < 0) /* by now */
        return r;
    return pst_explain(c->store, r == -EACCES ? denied_op(c) : NULL, reservations_lost ? -ECONNRESET : r);
}

int penstock_commit(struct penstock *store, struct penstock_op *ops, size_t count)
{
    struct commit *c;
    int r = pst_store_check(store);

    if (r < 0)
        return r;
    if (!ops || count < 1 || count > PENSTOCK_COMMIT_OPS_MAX)
        return pst_fail(-EINVAL, "penstock_commit: not 1 to %d operations", PENSTOCK_COMMIT_OPS_MAX);
    c = commit_new(store, ops, count);
    if (!c)
        return pst_fail(-ENOMEM, "out of memory");
    r = commit_run(c);
    free(c->flat);
    free(c);
    return r;
}

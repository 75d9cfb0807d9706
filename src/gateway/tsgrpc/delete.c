/* SPDX-License-Identifier: Apache-2.0 */
/* delete.c: Delete, of a key or of a range of keys; the latter in steps, between which others have their
 * turn. */
#include "gateway/tsgrpc/tsgrpc_priv.h"

struct deleting {
    struct delete_request request; /* its bytes are in st->request */
    uint8_t from[PST_KEY_BYTES_MAX];
};

static struct deleting *deleting_of(const struct stream *st)
{
    return st->own;
}

static void answer(struct stream *st, enum generation_kind kind)
{
    pst_assert(kind != GENERATION_FOREIGN);
    stream_written(st, (struct generation){.kind = kind});
}

static void delete_key(struct stream *st, const struct delete_request *request)
{
    enum generation_kind kind = request->if_equal.kind;
    bool conditional = kind != GENERATION_UNKNOWN;

    pst_assert(!request->ranged);
    pst_assert(!stream_underway(st));
    if (kind == GENERATION_FOREIGN) {
        answer(st, GENERATION_UNKNOWN);
        return;
    }
    if (request->key.len == 0) { /* which no value has */
        answer(st, kind == GENERATION_VALUE ? GENERATION_UNKNOWN : GENERATION_ABSENT);
        return;
    }
    penstock_prep(&st->op, kind == GENERATION_ABSENT ? PENSTOCK_STAT_KEY : PENSTOCK_DELETE, request->key.data,
                  request->key.len);
    if (kind == GENERATION_VALUE)
        st->op.flags = PENSTOCK_IF_GENERATION;
    st->op.if_generation = conditional ? request->if_equal.number : 0;
    door_begin(st);
}

static void delete_requested(struct stream *st, struct pst_bytes message)
{
    struct deleting *d = st->own = calloc(1, sizeof(*d));

    pst_assert(st->state == STREAM_WORKING);
    if (!d) {
        stream_fail(st, STATUS_EXHAUSTED, "out of memory");
    } else if (proto_delete_request(message, &d->request) < 0) {
        stream_fail(st, STATUS_INVALID, "not a DeleteRequest");
    } else if (!d->request.ranged) {
        delete_key(st, &d->request);
    } else if (d->request.end.len && pst_bytes_compare(d->request.start, d->request.end) >= 0) {
        answer(st, GENERATION_UNKNOWN);
    } else {
        pst_list_push_back(&st->door->sweeps, &st->line_link);
    }
}

static void delete_ended(struct stream *st)
{
    enum generation_kind kind = deleting_of(st)->request.if_equal.kind;
    int r = st->op.result;

    pst_assert(st->own);
    if (r == PENSTOCK_MISS) /* what was asked for: absent, or any; but not a value of some generation */
        answer(st, kind == GENERATION_VALUE ? GENERATION_UNKNOWN : GENERATION_ABSENT);
    else if (r == 0)
        answer(st, kind == GENERATION_ABSENT ? GENERATION_UNKNOWN : GENERATION_ABSENT);
    else if (r == PENSTOCK_STALE)
        answer(st, GENERATION_UNKNOWN);
    else
        stream_fail_result(st, r, deleting_of(st)->request.key);
}

/* ---- ranges ---- */

/*
 * Finds the key behind the next SWEEP_KEYS ones, and keeps it as where the step after this one begins.
 * Return: 1 it is in @until, 0 there are fewer keys, or -errno.
 */
static int find_end(struct stream *st, uint8_t until[PST_KEY_BYTES_MAX], struct pst_bytes *out)
{
    const struct delete_request *request = &deleting_of(st)->request;
    const struct penstock_list_options options = {.size = sizeof(options),
                                                  .start = request->start.data,
                                                  .start_bytes = request->start.len,
                                                  .end = request->end.data,
                                                  .end_bytes = request->end.len};
    struct penstock_entry entry;
    struct penstock_list *list;
    int r = penstock_list_open(st->door->store, &options, &list);

    if (r)
        return r < 0 ? r : -EBUSY;
    for (int i = 0; i <= SWEEP_KEYS; i++) {
        r = penstock_list_next(list, &entry);
        if (r != 1)
            break;
    }
    if (r == 1) {
        pst_assert(entry.key_bytes <= PST_KEY_BYTES_MAX);
        memcpy(until, entry.key, entry.key_bytes);
        *out = (struct pst_bytes){until, entry.key_bytes};
    }
    penstock_list_close(list);
    return r > 1 ? -EBUSY : r;
}

static bool delete_step(struct stream *st)
{
    struct delete_request *request = &deleting_of(st)->request;
    struct pst_bytes until = request->end;
    uint8_t key[PST_KEY_BYTES_MAX];
    int more, r;

    pst_assert(request->ranged);
    pst_assert(!stream_underway(st));
    more = find_end(st, key, &until);
    r = more < 0 ? more
                 : penstock_delete_range(st->door->store, request->start.data, request->start.len, until.data,
                                         until.len, NULL);
    if (r) {
        stream_fail_result(st, r, request->start);
        return false;
    }
    if (!more) {
        answer(st, GENERATION_UNKNOWN);
        return false;
    }
    pst_assert(until.len > 0 && until.len <= sizeof(deleting_of(st)->from));
    memcpy(deleting_of(st)->from, until.data, until.len);
    request->start = (struct pst_bytes){deleting_of(st)->from, until.len};
    return true;
}

static bool delete_drop(struct stream *st)
{
    free(st->own);
    st->own = NULL;
    return true;
}

const struct method method_delete = {
    .name = "Delete",
    .request = delete_requested,
    .ended = delete_ended,
    .step = delete_step,
    .drop = delete_drop,
};

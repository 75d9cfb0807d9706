/* SPDX-License-Identifier: Apache-2.0 */
/* sessions_answers.c: what a node answers is held against what it may answer. */
#include "sessions_world.h"

uint8_t byte_of(struct pst_bytes data)
{
    const uint8_t *at = data.data;

    pst_assert(data.len < 2 || memcmp(at, at + 1, data.len - 1) == 0);
    return data.len ? at[0] : 0;
}

static void drop_reservation(uint32_t session, uint64_t handle, uint32_t key)
{
    for (uint32_t i = 0; i < RESERVATIONS; i++) {
        if (w->reservations[i].session == session && w->reservations[i].handle == handle &&
            w->reservations[i].key == key)
            w->reservations[i].live = false;
    }
}

static void take_reservation(uint32_t session, const struct asked_op *op,
                             const struct pst_wire_result *result)
{
    struct reservation *s = &w->reservations[op->reservation];
    struct pst_wire_reservation got;

    pst_assert(result->bytes >= sizeof(got));
    memcpy(&got, result->data, sizeof(got));
    *s = (struct reservation){.live = true,
                              .session = session,
                              .key = op->key,
                              .handle = got.handle,
                              .bytes = got.bytes,
                              .id = op->id,
                              .location_bytes = got.location_bytes};
    pst_assert(got.location_bytes <= PST_RESERVATION_LOCATION_BYTES_MAX);
    memcpy(s->location, (const uint8_t *)result->data + sizeof(got), got.location_bytes);
}

static void take_view(uint32_t session, uint32_t worker, const struct asked_op *op,
                      const struct pst_wire_result *result)
{
    struct view *v = &w->views[op->reservation];
    struct pst_wire_view head;
    struct pst_wire_piece piece = {0};

    memcpy(&head, result->data, sizeof(head));
    if (head.piece_count)
        memcpy(&piece, (const uint8_t *)result->data + sizeof(head), sizeof(piece));
    *v = (struct view){.live = true,
                       .session = session,
                       .worker = worker,
                       .handle = head.handle,
                       .bytes = piece.bytes,
                       .at = (const uint8_t *)pst_store_arenas(w->node.store)->base + piece.offset};
    v->byte = byte_of((struct pst_bytes){v->at, v->bytes});
}

/* Return: whether @result is among the outcomes, each a bit, or one of the errors. */
static bool among(int result, uint32_t outcomes, const int *errors)
{
    if (result >= 0)
        return result < 32 && outcomes >> result & 1;
    for (; *errors; errors++) {
        if (*errors == result)
            return true;
    }
    return false;
}

#define ANSWERED(result, outcomes, ...)                                                                      \
    pst_assert(among(result, outcomes, (const int[]){__VA_ARGS__ __VA_OPT__(, ) 0}))

enum { OK = 1, MISS = 2, EXISTS = 4, STALE = 8, BUSY = 16, OWNED = 64 };

static void hear_get(const struct asked_op *op, const struct pst_wire_result *result)
{
    uint8_t id = op->bulk_id;

    if (result->bytes)
        id = byte_of((struct pst_bytes){result->data, result->bytes});
    ANSWERED(result->result, OK | MISS | BUSY, -ENOBUFS, -EDQUOT);
    if (result->result == PST_OK || result->result == -ENOBUFS)
        model_read(&w->model, op->key, result->generation, id);
    else if (result->result == PST_MISS)
        model_missed(&w->model, op->key);
    else if (result->result == PST_BUSY && !(op->flags & PST_WIRE_WAIT)) /* else too many wait */
        model_busy(&w->model, op->key, false);
}

static void hear_put(const struct asked_op *op, const struct pst_wire_result *result)
{
    ANSWERED(result->result, OK | EXISTS | STALE | BUSY, -ENOSPC, -EDQUOT);
    if (result->result == PST_OK)
        model_written(&w->model, op->key, result->generation, op->id);
    else if (result->result == PST_EXISTS)
        pst_assert(w->model.keys[op->key].vague || model_present(&w->model, op->key) ||
                   model_locked(&w->model, op->key, false));
}

static void hear_delete(const struct asked_op *op, const struct pst_wire_result *result)
{
    ANSWERED(result->result, OK | MISS | EXISTS | STALE | BUSY, 0);
    if (result->result == PST_OK)
        model_deleted(&w->model, op->key, result->generation);
    else if (result->result == PST_MISS)
        model_missed(&w->model, op->key);
    else if (result->result == PST_BUSY)
        model_busy(&w->model, op->key, true);
}

static void hear_reservation(uint32_t session, const struct asked_op *op,
                             const struct pst_wire_result *result)
{
    switch (op->code) {
    case PST_WIRE_RESERVE:
        ANSWERED(result->result, OK | EXISTS | STALE | BUSY | OWNED, -ENOSPC, -EDQUOT);
        if (result->result == PST_OK)
            take_reservation(session, op, result);
        break;
    case PST_WIRE_WRITE_AT:
        ANSWERED(result->result, OK | MISS | BUSY, -ERANGE, -E2BIG, -ENOSPC, -EDQUOT, -EFBIG);
        break;
    case PST_WIRE_RESERVATION_COMMIT:
        ANSWERED(result->result, OK | MISS | EXISTS | STALE | BUSY, -EINVAL, -EMSGSIZE, -ENODATA, -ENOSPC);
        if (result->result == PST_OK) /* maybe not for the first time */
            w->model.keys[op->key].vague |= !w->reservations[op->reservation].live;
        if (result->result == PST_OK && w->reservations[op->reservation].live)
            model_written(&w->model, op->key, result->generation, op->id);
        if (result->result != PST_BUSY)
            drop_reservation(session, op->handle, op->key);
        break;
    default:
        ANSWERED(result->result, OK, 0);
        drop_reservation(session, op->handle, op->key);
    }
}

static void hear_one(uint32_t session, uint32_t worker, const struct asked_op *op,
                     const struct pst_wire_result *result)
{
    switch (op->code) {
    case PST_WIRE_GET:
        return hear_get(op, result);
    case PST_WIRE_PUT:
        return hear_put(op, result);
    case PST_WIRE_DELETE:
        return hear_delete(op, result);
    case PST_WIRE_PIN:
        ANSWERED(result->result, OK | MISS | BUSY, -EDQUOT);
        break;
    case PST_WIRE_UNPIN:
        ANSWERED(result->result, OK | MISS | BUSY, -EINVAL);
        break;
    case PST_WIRE_VIEW:
        ANSWERED(result->result, OK | MISS | BUSY, -EDQUOT, -E2BIG);
        if (result->result == PST_OK)
            take_view(session, worker, op, result);
        break;
    case PST_WIRE_RELEASE:
        ANSWERED(result->result, OK, -EINVAL);
        break;
    case PST_WIRE_SWEEP:
        ANSWERED(result->result, OK | BUSY, 0);
        if (op->flags)
            doom(worker);
        break;
    case PST_WIRE_RESERVE:
    case PST_WIRE_WRITE_AT:
    case PST_WIRE_RESERVATION_COMMIT:
    case PST_WIRE_RESERVATION_ABORT:
        return hear_reservation(session, op, result);
    default:
        break;
    }
}

/* The members' results, and first the whole's. */
static void hear_commit(uint32_t session, struct asked *asked, const struct pst_wire_result *results)
{
    struct model_commit *c = asked->commit;

    ANSWERED(results[0].result, OK | MISS | EXISTS | STALE | BUSY, -ENOSPC, -ENOENT, -EINVAL, -EMSGSIZE,
             -ENODATA, -EDQUOT, -ENOMEM);
    asked->commit = NULL;
    if (results[0].result != PST_OK) {
        model_refused(c);
        return;
    }
    for (uint32_t i = 0; i < c->count; i++) {
        const struct asked_op *op = &asked->ops[i + 1];

        model_applied(&w->model, &c->members[i], results[i + 1].result, results[i + 1].generation);
        if (op->handle)
            drop_reservation(session, op->handle, op->key);
    }
    c->open = false;
}

static void hear_reply(uint32_t session, uint32_t worker, const struct pst_wire_head *head,
                       struct pst_bytes data)
{
    struct asked *asked = &w->asked[session][worker][head->request % PST_WIRE_PLACES];
    struct pst_wire_result results[PST_WIRE_OPS_MAX];
    const uint8_t *at = data.data, *end = at + data.len;

    for (uint32_t i = 0; i < head->count; i++) {
        int r = pst_wire_get_result(&at, end, &results[i]);

        pst_assert(r == 0);
    }
    pst_assert(at == end && asked->open && asked->count == head->count);
    asked->open = false;
    if (asked->garbage) {
        doom(worker);
        return;
    }
    if (asked->commit) {
        hear_commit(session, asked, results);
        return;
    }
    for (uint32_t i = 0; i < head->count; i++)
        hear_one(session, worker, &asked->ops[i], &results[i]);
}

void hear_sent(void *ctx, struct pst_bytes header, struct pst_bytes data)
{
    uint32_t worker = (uint32_t)(uintptr_t)ctx, session;
    struct pst_wire_head head;
    struct asked *asked;
    int r = pst_wire_get_head(header, &head);

    pst_assert(r == 0);
    session = (uint32_t)(head.token & 0xffff);
    pst_assert(session < SESSIONS && head.token == w->sessions[session].token);
    if (head.type == PST_WIRE_REPLY) {
        hear_reply(session, worker, &head, data);
    } else if (head.type == PST_WIRE_BULK) {
        struct pst_wire_part part = pst_wire_get_part(header, 0);

        asked = &w->asked[session][worker][head.request % PST_WIRE_PLACES];
        pst_assert(asked->open && part.op < asked->count);
        asked->ops[part.op].bulk_id = byte_of(data);
    }
}

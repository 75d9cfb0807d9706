/* SPDX-License-Identifier: Apache-2.0 */
/* umbp.c: the service UMBPMaster: its life, its visits, its answers. */
#include "gateway/umbp/umbp_priv.h"

#include <stdio.h>

enum {
    ANSWER_BYTES_MAX = 64 << 20, /* as mori's clients take */
    DEAF_NS_MIN = 1000000,       /* of a step: shorter ones keep nobody from being heard */
};

static void umbp_close(struct pst_door *door)
{
    struct umbp *umbp = door->own;

    if (umbp)
        evict_end(umbp);
    free(umbp);
}

static const struct method *const methods[] = {
    &method_register,      &method_unregister,      &method_heartbeat,       &method_route_get,
    &method_route_put,     &method_batch_route_get, &method_batch_route_put, &method_batch_lookup,
    &method_report_blocks, &method_revoke_blocks,   &method_revoke_tier,     &method_revoke_node,
    &method_match_blocks,  &method_hit_counts,      &method_report_metrics};
static const struct service service = {.name = "umbp",
                                       .path = "/umbp.UMBPMaster/",
                                       .calls = "those of UMBPMaster that mori has had since June 2026",
                                       .methods = methods,
                                       .method_count = pst_count_of(methods),
                                       .request_bytes_max = UMBP_REQUEST_BYTES_MAX,
                                       .close = umbp_close};

/* ---- life ---- */

int pst_umbp_open(const struct pst_umbp_settings *settings, struct pst_door **out,
                  char fault[PST_FAULT_BYTES])
{
    const struct door_opening opening = {.service = &service,
                                         .address = settings->umbp,
                                         .network = settings->umbp_network,
                                         .connections_max = (uint32_t)settings->umbp_connections,
                                         .stall_ms = settings->umbp_stall_ms};

    return door_open(&opening, out, fault);
}

int pst_umbp_serve(struct pst_door *door, const struct pst_umbp_settings *settings,
                   const struct pst_umbp_ops *ops, void *ctx, char fault[PST_FAULT_BYTES])
{
    struct umbp *umbp = calloc(1, sizeof(*umbp));
    int r;

    pst_assert(door->service == &service);
    pst_assert(!door->own);
    pst_assert(ops->enter && ops->leave);
    if (!umbp) {
        snprintf(fault, PST_FAULT_BYTES, "umbp: out of memory");
        return -ENOMEM;
    }
    umbp->ops = ops;
    umbp->ctx = ctx;
    umbp->evict_ms = settings->umbp_evict_ms;
    door->own = umbp;
    r = evict_begin(umbp);
    if (r < 0)
        snprintf(fault, PST_FAULT_BYTES, "umbp: %s", strerror(-r));
    return r == 0 ? door_run(door, fault) : r;
}

/* ---- visits ---- */

static const struct umbp *umbp_of(const struct visit *v)
{
    return v->stream->door->own;
}

static bool enter(struct visit *v)
{
    pst_assert(v->stream && v->stream->door);
    v->steps = PST_GUEST_EVENTS_A_STEP;
    v->since_ns = pst_now_ns();
    if (!umbp_of(v)->ops->enter(umbp_of(v)->ctx, &v->desk)) {
        stream_fail(v->stream, STATUS_UNAVAILABLE, "this master does not lead");
        return false;
    }
    pst_assert(v->desk.guests && v->desk.external && v->desk.map);
    return true;
}

bool visit_begin(struct visit *v, struct stream *st)
{
    pst_assert(st->state == STREAM_WORKING);
    *v = (struct visit){.stream = st};
    if (!enter(v))
        return false;
    v->epoch = pst_guests_epoch(v->desk.guests);
    return true;
}

bool visit_pause(struct visit *v)
{
    pst_assert(v->epoch == pst_guests_epoch(v->desk.guests));
    visit_end(v);
    if (!enter(v))
        return false;
    if (pst_guests_epoch(v->desk.guests) == v->epoch)
        return true;
    visit_end(v);
    stream_fail(v->stream, STATUS_UNAVAILABLE, "this master leads anew, and knows no node yet");
    return false;
}

bool visit_step(struct visit *v)
{
    pst_assert(v->steps > 0);
    return --v->steps > 0 || visit_pause(v);
}

void visit_end(struct visit *v)
{
    uint64_t busy_ns = pst_now_ns() - v->since_ns;

    pst_assert(v->desk.guests);
    if (busy_ns >= DEAF_NS_MIN)
        pst_guests_deaf(v->desk.guests, busy_ns);
    umbp_of(v)->ops->leave(umbp_of(v)->ctx);
}

/* ---- answers ---- */

void answer_free(struct answer *a)
{
    free(a->data);
    *a = (struct answer){0};
}

/* Return: where @bytes more fit; NULL: nowhere. */
static uint8_t *answer_room(struct answer *a, size_t bytes)
{
    size_t room = pst_max(2 * a->room, 256);
    uint8_t *data;

    pst_assert(a->bytes <= a->room);
    if (a->failed || bytes > ANSWER_BYTES_MAX - a->bytes) {
        a->failed = true;
        return NULL;
    }
    if (bytes <= a->room - a->bytes)
        return a->data + a->bytes;
    data = realloc(a->data, pst_max(room, a->bytes + bytes));
    if (!data) {
        a->failed = true;
        return NULL;
    }
    a->data = data;
    a->room = pst_max(room, a->bytes + bytes);
    return a->data + a->bytes;
}

static void answer_to(struct answer *a, const uint8_t *end)
{
    pst_assert(end >= a->data + a->bytes && end <= a->data + a->room);
    a->bytes = (size_t)(end - a->data);
}

void answer_number(struct answer *a, uint32_t number, uint64_t value)
{
    uint8_t *at = answer_room(a, 1 + PROTO_VARINT_BYTES_MAX);

    pst_assert(number > 0 && number < 16);
    if (at)
        answer_to(a, proto_put_number(at, number, value));
}

void answer_packed(struct answer *a, uint64_t value)
{
    uint8_t *at = answer_room(a, PROTO_VARINT_BYTES_MAX);

    if (at)
        answer_to(a, proto_put_varint(at, value));
}

void answer_text(struct answer *a, uint32_t number, struct pst_bytes text)
{
    uint8_t *at = answer_room(a, 1 + PROTO_VARINT_BYTES_MAX + text.len);

    pst_assert(number > 0 && number < 16);
    pst_assert(text.data || text.len == 0);
    if (at)
        answer_to(a, proto_put_bytes(at, number, text.data, text.len));
}

void answer_part(struct answer *a, uint32_t number, struct answer *part)
{
    pst_assert(part != a);
    pst_assert(part->bytes <= part->room);
    a->failed |= part->failed;
    answer_text(a, number, (struct pst_bytes){part->data, part->bytes});
    answer_free(part);
}

void answer_send(struct stream *st, struct answer *a)
{
    pst_assert(a->bytes <= a->room);
    pst_assert(st->state == STREAM_WORKING);
    pst_assert(!st->own);
    st->own = a->data;
    if (a->failed) {
        stream_fail(st, STATUS_EXHAUSTED, "an answer of more than %d MiB, or no memory for it",
                    ANSWER_BYTES_MAX >> 20);
        return;
    }
    if (stream_take_memory(st, a->room) < 0)
        return;
    proto_frame_head(st->head, (uint32_t)a->bytes);
    st->head_bytes = PROTO_FRAME_BYTES;
    st->body = a->data;
    st->body_left = a->bytes;
    stream_answer(st, true);
}

bool answer_drop(struct stream *st)
{
    free(st->own);
    st->own = NULL;
    return true;
}

bool umbp_decoded(struct stream *st, int r)
{
    pst_assert(r <= 0);
    pst_assert(st->method);
    if (r == -E2BIG)
        stream_fail(st, STATUS_INVALID, "more than %d keys, or %d excluded nodes", UMBP_KEYS_MAX,
                    UMBP_EXCLUDED_MAX);
    else if (r < 0)
        stream_fail(st, STATUS_INVALID, "not a message of %s", st->method->name);
    return r == 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* nodes.c: RegisterClient, UnregisterClient, Heartbeat. */
#include "gateway/umbp/umbp_priv.h"

enum { UMBP_ALIVE = 1 }; /* ClientStatus; 0: unknown */

/* ---- coming and going ---- */

static void register_requested(struct stream *st, struct pst_bytes message)
{
    struct pst_guest_register request;
    char tags[PST_GUEST_TAGS_BYTES_MAX];
    struct answer answer = {0};
    struct visit v;
    int r;

    pst_assert(!st->own);
    pst_assert(st->state == STREAM_WORKING);
    if (!umbp_decoded(st, umbp_read_register(message, &request, tags)) || !visit_begin(&v, st))
        return;
    r = pst_guests_register(v.desk.guests, &request, pst_now_ns());
    answer_number(&answer, 1, pst_guests_heartbeat_ms(v.desk.guests));
    visit_end(&v);
    if (r == 0) {
        answer_send(st, &answer);
        return;
    }
    answer_free(&answer);
    if (r == -EEXIST)
        stream_fail(st, STATUS_EXISTS, "node '%.*s' is there already", (int)request.name.len,
                    (const char *)request.name.data);
    else if (r == -ENOSPC)
        stream_fail(st, STATUS_EXHAUSTED, "there are as many nodes as --umbp-nodes allows");
    else
        stream_fail(st, STATUS_INVALID, "a node has a name of up to %d bytes, and addresses of as many",
                    PST_GUEST_NAME_BYTES_MAX);
}

const struct method method_register = {
    .name = "RegisterClient", .request = register_requested, .drop = answer_drop};

static void unregister_requested(struct stream *st, struct pst_bytes message)
{
    static const struct key_fields fields = {.name = 1};
    struct key_request request;
    struct answer answer = {0};
    struct visit v;

    pst_assert(st->state == STREAM_WORKING);
    if (!umbp_decoded(st, umbp_read_keys(message, &fields, &request)) || !visit_begin(&v, st))
        return;
    pst_guests_unregister(v.desk.guests, request.name);
    visit_end(&v);
    answer_send(st, &answer);
}

const struct method method_unregister = {
    .name = "UnregisterClient", .request = unregister_requested, .drop = answer_drop};

/* ---- heartbeats ---- */

static void take_event(const struct visit *v, uint32_t number, const struct bundle_event *event)
{
    pst_assert(v->desk.guests);
    if (event->removed)
        pst_guests_remove(v->desk.guests, number, event->key, event->tier);
    else
        pst_guests_add(v->desk.guests, number, event->key, event->tier, event->bytes);
}

/* A step, behind which the node is there as before: it was heard of just now. */
static bool step(struct visit *v, const struct heartbeat *beat)
{
    pst_assert(v->stream->state == STREAM_WORKING);
    if (!visit_step(v))
        return false;
    if (v->steps < PST_GUEST_EVENTS_A_STEP || pst_guests_hear(v->desk.guests, beat->name, pst_now_ns()) >= 0)
        return true;
    visit_end(v);
    stream_fail(v->stream, STATUS_UNAVAILABLE, "the node ended meanwhile");
    return false;
}

/* Return: false the call has failed, and the visit ended. */
static bool take_events(struct visit *v, const struct heartbeat *beat, uint32_t number, struct bundle *bundle)
{
    struct bundle_event event;

    pst_assert(bundle->at.data || bundle->at.len == 0);
    while (umbp_next_event(bundle, &event)) {
        if (!step(v, beat))
            return false;
        if (!beat->full || !event.removed) /* a full report is what is there */
            take_event(v, number, &event);
    }
    return true;
}

/* All of @beat's bundles, as far as none is missing. Return: as take_events(). */
static bool take_bundles(struct visit *v, const struct heartbeat *beat, uint32_t number, bool *gap)
{
    struct pst_bytes at = beat->message;
    struct bundle bundle;
    int r = 0;

    pst_assert(v->desk.guests);
    pst_assert(beat->name.len > 0);
    if (beat->full)
        pst_guests_sync_begin(v->desk.guests, number);
    while (r != -EILSEQ && umbp_next_bundle(&at, &bundle)) {
        r = beat->full ? 0 : pst_guests_bundle(v->desk.guests, number, bundle.sequence);
        if (r == 0 && !take_events(v, beat, number, &bundle))
            return false;
    }
    if (beat->full)
        pst_guests_sync_end(v->desk.guests, number, beat->baseline);
    *gap = r == -EILSEQ;
    return true;
}

static void heartbeat_requested(struct stream *st, struct pst_bytes message)
{
    struct answer answer = {0};
    struct heartbeat beat;
    bool gap = false;
    struct visit v;
    int number;

    pst_assert(!st->own);
    pst_assert(st->state == STREAM_WORKING);
    if (!umbp_decoded(st, umbp_read_heartbeat(message, &beat)) || !visit_begin(&v, st))
        return;
    number = pst_guests_hear(v.desk.guests, beat.name, pst_now_ns());
    if (number >= 0) {
        pst_guests_tiers(v.desk.guests, (uint32_t)number, beat.tiers);
        if (beat.counts_keys)
            pst_guests_key_counts(v.desk.guests, (uint32_t)number, beat.keys);
        if (!take_bundles(&v, &beat, (uint32_t)number, &gap))
            return;
        answer_number(&answer, 1, UMBP_ALIVE);
        answer_number(&answer, 2, pst_guests_sequence(v.desk.guests, (uint32_t)number));
        answer_number(&answer, 3, gap);
    }
    visit_end(&v);
    answer_send(st, &answer);
}

const struct method method_heartbeat = {
    .name = "Heartbeat", .request = heartbeat_requested, .drop = answer_drop};

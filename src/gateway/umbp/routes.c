/* SPDX-License-Identifier: Apache-2.0 */
/* routes.c: RouteGet, RoutePut, their batches, and BatchLookup. */
#include "gateway/umbp/umbp_priv.h"

enum { PUTS_A_TURN = 256 };                                      /* each looks at all nodes */
enum { UMBP_UNAVAILABLE = 0, UMBP_ROUTED = 1, UMBP_EXISTS = 2 }; /* RoutePutOutcome */

_Static_assert((int)PST_GUEST_UNAVAILABLE == (int)UMBP_UNAVAILABLE &&
                   (int)PST_GUEST_ROUTED == (int)UMBP_ROUTED && (int)PST_GUEST_EXISTS == (int)UMBP_EXISTS,
               "outcomes of a put");

/* Begins the question of @request. Return: as visit_begin(). */
static bool ask(struct visit *v, struct stream *st, const struct key_request *request)
{
    struct pst_bytes at = request->message, name;

    pst_assert(request->fields);
    pst_assert(request->excluded_count <= UMBP_EXCLUDED_MAX);
    if (!visit_begin(v, st))
        return false;
    pst_guests_ask(v->desk.guests, request->name);
    while (request->excluded_count > 0 && umbp_next_text(&at, request->fields->excluded, &name)) {
        if (!visit_step(v))
            return false;
        pst_guests_exclude(v->desk.guests, name);
    }
    return true;
}

/* ---- of one key ---- */

/* Return: whether it is one of a key. */
static bool read_route(struct stream *st, struct pst_bytes message, const struct key_fields *fields,
                       struct key_request *request, struct pst_bytes *key)
{
    struct pst_bytes text;

    pst_assert(fields->keys > 0);
    if (!umbp_decoded(st, umbp_read_keys(message, fields, request)))
        return false;
    *key = (struct pst_bytes){NULL, 0};
    while (umbp_next_text(&message, fields->keys, &text)) /* the last one counts */
        *key = text;
    if (key->len == 0)
        stream_fail(st, STATUS_INVALID, "an empty key");
    return key->len > 0;
}

static void route_get_requested(struct stream *st, struct pst_bytes message)
{
    static const struct key_fields fields = {.keys = 1, .name = 2, .excluded = 3};
    struct answer answer = {0};
    struct pst_guest_place place;
    struct key_request request;
    struct pst_bytes key;
    struct visit v;

    pst_assert(!st->own);
    if (!read_route(st, message, &fields, &request, &key) || !ask(&v, st, &request))
        return;
    if (pst_guests_route_get(v.desk.guests, key, pst_now_ns(), &place)) {
        answer_number(&answer, 1, true);
        answer_text(&answer, 2, place.guest.name);
        answer_number(&answer, 3, place.tier);
        answer_number(&answer, 4, place.bytes);
        answer_text(&answer, 5, place.guest.peer_address);
        pst_guests_counters(v.desk.guests, place.guest.number)->route_get++;
    }
    visit_end(&v);
    answer_send(st, &answer);
}

const struct method method_route_get = {
    .name = "RouteGet", .request = route_get_requested, .drop = answer_drop};

/* A RoutePutResponse, and an entry of a batch's. */
static void answer_put(struct answer *a, enum pst_guest_routed routed, const struct pst_guest_place *place)
{
    pst_assert(routed <= PST_GUEST_EXISTS);
    answer_number(a, 1, routed);
    if (routed != PST_GUEST_ROUTED)
        return;
    answer_text(a, 2, place->guest.name);
    answer_number(a, 3, place->tier);
    answer_text(a, 4, place->guest.peer_address);
}

static void route_put_requested(struct stream *st, struct pst_bytes message)
{
    static const struct key_fields fields = {.keys = 1, .name = 2, .number = 3, .excluded = 4};
    struct answer answer = {0};
    struct pst_guest_place place;
    enum pst_guest_routed routed;
    struct key_request request;
    struct pst_bytes key;
    struct visit v;

    pst_assert(!st->own);
    if (!read_route(st, message, &fields, &request, &key) || !ask(&v, st, &request))
        return;
    routed = pst_guests_route_put(v.desk.guests, key, request.number, &place);
    answer_put(&answer, routed, &place);
    if (routed == PST_GUEST_ROUTED)
        pst_guests_counters(v.desk.guests, place.guest.number)->route_put++;
    visit_end(&v);
    answer_send(st, &answer);
}

const struct method method_route_put = {
    .name = "RoutePut", .request = route_put_requested, .drop = answer_drop};

/* ---- of many keys ---- */

static void batch_put_requested(struct stream *st, struct pst_bytes message)
{
    static const struct key_fields fields = {.name = 1, .keys = 2, .sizes = 3, .excluded = 4};
    struct size_reader sizes = {.message = message};
    struct answer answer = {0};
    struct key_request request;
    struct pst_bytes key;
    uint32_t count = 0;
    struct visit v;
    uint64_t bytes;

    pst_assert(!st->own);
    if (!umbp_decoded(st, umbp_read_keys(message, &fields, &request)))
        return;
    if (request.key_count != request.size_count) {
        stream_fail(st, STATUS_INVALID, "%u keys, and the sizes of %u", request.key_count,
                    request.size_count);
        return;
    }
    if (!ask(&v, st, &request))
        return;
    while (umbp_next_text(&message, fields.keys, &key) && umbp_next_size(&sizes, fields.sizes, &bytes)) {
        struct pst_guest_place place;
        struct answer entry = {0};
        enum pst_guest_routed routed;

        if (++count % PUTS_A_TURN ? !visit_step(&v) : !visit_pause(&v)) {
            answer_free(&answer);
            return;
        }
        routed = pst_guests_route_put(v.desk.guests, key, bytes, &place);
        answer_put(&entry, routed, &place);
        answer_part(&answer, 1, &entry);
        if (routed == PST_GUEST_ROUTED)
            pst_guests_counters(v.desk.guests, place.guest.number)->batch_route_put++;
    }
    visit_end(&v);
    answer_send(st, &answer);
}

const struct method method_batch_route_put = {
    .name = "BatchRoutePut", .request = batch_put_requested, .drop = answer_drop};

/* The columns of a BatchRouteGetResponse, and which of its nodes each guest is. */
struct columns {
    struct answer nodes, refs, tiers, sizes;
    uint32_t node_count;
    uint32_t ref_of[UINT16_MAX]; /* of a guest, by its number; 0: none yet */
};

static void add_row(struct columns *c, const struct pst_guest_place *place)
{
    uint32_t *ref = &c->ref_of[place->guest.number];
    struct answer node = {0};

    pst_assert(place->guest.number < pst_count_of(c->ref_of));
    if (*ref == 0) {
        *ref = ++c->node_count;
        answer_text(&node, 1, place->guest.name);
        answer_text(&node, 2, place->guest.peer_address);
        answer_part(&c->nodes, 1, &node);
    }
    answer_packed(&c->refs, *ref);
    answer_packed(&c->tiers, place->tier);
    answer_packed(&c->sizes, place->bytes);
}

static void add_miss(struct columns *c)
{
    answer_packed(&c->refs, 0);
    answer_packed(&c->tiers, 0);
    answer_packed(&c->sizes, 0);
}

static void columns_free(struct columns *c)
{
    answer_free(&c->nodes);
    answer_free(&c->refs);
    answer_free(&c->tiers);
    answer_free(&c->sizes);
    free(c);
}

/* Return: as visit_step(). */
static bool fill_columns(struct visit *v, struct pst_bytes message, uint32_t keys, struct columns *c)
{
    struct pst_guest_place place;
    struct pst_bytes key;

    pst_assert(keys > 0);
    pst_assert(c->node_count == 0);
    while (umbp_next_text(&message, keys, &key)) {
        if (!visit_step(v))
            return false;
        if (!pst_guests_route_get(v->desk.guests, key, pst_now_ns(), &place)) {
            add_miss(c);
            continue;
        }
        add_row(c, &place);
        pst_guests_counters(v->desk.guests, place.guest.number)->batch_route_get++;
    }
    return true;
}

static void batch_get_requested(struct stream *st, struct pst_bytes message)
{
    static const struct key_fields fields = {.name = 1, .keys = 2, .excluded = 3};
    struct key_request request;
    struct columns *c;
    struct visit v;

    pst_assert(!st->own);
    if (!umbp_decoded(st, umbp_read_keys(message, &fields, &request)))
        return;
    c = calloc(1, sizeof(*c));
    if (!c) {
        stream_fail(st, STATUS_EXHAUSTED, "out of memory");
        return;
    }
    if (ask(&v, st, &request) && fill_columns(&v, message, fields.keys, c)) {
        visit_end(&v);
        answer_part(&c->nodes, 2, &c->refs);
        answer_part(&c->nodes, 3, &c->tiers);
        answer_part(&c->nodes, 4, &c->sizes);
        answer_send(st, &c->nodes);
        c->nodes = (struct answer){0};
    }
    columns_free(c);
}

const struct method method_batch_route_get = {
    .name = "BatchRouteGet", .request = batch_get_requested, .drop = answer_drop};

static void lookup_requested(struct stream *st, struct pst_bytes message)
{
    static const struct key_fields fields = {.name = 1, .keys = 2};
    struct answer found = {0}, answer = {0};
    struct key_request request;
    struct pst_bytes key;
    struct visit v;

    pst_assert(!st->own);
    if (!umbp_decoded(st, umbp_read_keys(message, &fields, &request)) || !ask(&v, st, &request))
        return;
    while (umbp_next_text(&message, fields.keys, &key)) {
        if (!visit_step(&v)) {
            answer_free(&found);
            return;
        }
        answer_packed(&found, pst_guests_has(v.desk.guests, key));
    }
    visit_end(&v);
    answer_part(&answer, 1, &found);
    answer_send(st, &answer);
}

const struct method method_batch_lookup = {
    .name = "BatchLookup", .request = lookup_requested, .drop = answer_drop};

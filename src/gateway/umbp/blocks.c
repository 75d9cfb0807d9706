/* SPDX-License-Identifier: Apache-2.0 */
/* blocks.c: blocks that engines hold in memory of their own: ReportExternalKvBlocks and its like. */
#include "gateway/umbp/umbp_priv.h"

enum { HASHES_A_TURN = 256, REVOKED_A_TURN = 16384 };

_Static_assert((int)HASHES_A_TURN == (int)PST_EXTERNAL_QUERY_MAX, "hashes of a question");

static const struct key_fields of_hashes = {.name = 1, .keys = 2, .number = 3};

static uint32_t tier_of(const struct key_request *request)
{
    pst_assert(request->fields->number > 0);
    return request->number < PST_EXTERNAL_TIERS ? (uint32_t)request->number : PST_EXTERNAL_UNKNOWN;
}

/* Some of the names that are left, hashed as the pool's own clients hash them. Return: how many. */
static uint32_t next_hashes(struct pst_bytes *at, uint32_t field, uint64_t seed,
                            struct pst_hash128 hashes[HASHES_A_TURN])
{
    struct pst_bytes name;
    uint32_t count = 0;

    pst_assert(field > 0);
    while (count < HASHES_A_TURN && umbp_next_text(at, field, &name))
        hashes[count++] = pst_hash128(name.data, name.len, seed);
    return count;
}

/* ---- reports ---- */

/* Return: whether it is a request of a node, about hashes. */
static bool read_blocks(struct stream *st, struct pst_bytes message, struct key_request *request)
{
    pst_assert(st->state == STREAM_WORKING);
    if (!umbp_decoded(st, umbp_read_keys(message, &of_hashes, request)))
        return false;
    if (request->name.len == 0 || request->key_count == 0)
        stream_fail(st, STATUS_INVALID, "no %s", request->name.len == 0 ? "node_id" : "hashes");
    return request->name.len > 0 && request->key_count > 0;
}

/* Reports or revokes what @request names, of the guest. Return: as visit_step(). */
static bool change_blocks(struct visit *v, const struct key_request *request, uint32_t guest, bool report)
{
    struct pst_hash128 hashes[HASHES_A_TURN];
    struct pst_bytes at = request->message;
    struct pst_guest now;
    uint32_t count;

    pst_assert(request->key_count > 0);
    pst_assert(v->desk.map->members_max > 0);
    while ((count = next_hashes(&at, of_hashes.keys, v->desk.map->seed, hashes)) > 0) {
        uint32_t number = pst_guest_block_number(&v->desk, guest);

        if (report)
            pst_external_report(v->desk.external, number, tier_of(request), hashes, count);
        else
            pst_external_revoke(v->desk.external, number, tier_of(request), hashes, count);
        if (!visit_pause(v))
            return false;
        if (!pst_guests_find(v->desk.guests, request->name, &now) || now.number != guest)
            break; /* it ended meanwhile, and its blocks with it */
    }
    return true;
}

static void change_requested(struct stream *st, struct pst_bytes message, bool report)
{
    struct key_request request;
    struct answer answer = {0};
    struct pst_guest guest;
    struct visit v;

    pst_assert(!st->own);
    if (!read_blocks(st, message, &request) || !visit_begin(&v, st))
        return;
    if (pst_guests_find(v.desk.guests, request.name, &guest)) {
        struct pst_guest_counters *counters = pst_guests_counters(v.desk.guests, guest.number);
        uint32_t tier = tier_of(&request);

        *(report ? &counters->report_calls[tier] : &counters->revoke_calls[tier]) += 1;
        *(report ? &counters->report_blocks[tier] : &counters->revoke_blocks[tier]) += request.key_count;
        if (!change_blocks(&v, &request, guest.number, report))
            return;
    } else if (report) { /* mori's own master lets such a report pass */
        pst_guests_totals(v.desk.guests)->reports_refused++;
    }
    visit_end(&v);
    answer_send(st, &answer);
}

static void report_requested(struct stream *st, struct pst_bytes message)
{
    change_requested(st, message, true);
}

const struct method method_report_blocks = {
    .name = "ReportExternalKvBlocks", .request = report_requested, .drop = answer_drop};

static void revoke_requested(struct stream *st, struct pst_bytes message)
{
    change_requested(st, message, false);
}

const struct method method_revoke_blocks = {
    .name = "RevokeExternalKvBlocks", .request = revoke_requested, .drop = answer_drop};

/* ---- all of a tier, or of a node ---- */

/* @tier: PST_EXTERNAL_TIERS: all of them. */
static void revoke_all(struct stream *st, struct pst_bytes name, uint32_t tier)
{
    struct answer answer = {0};
    struct pst_guest guest;
    uint32_t removed = 0;
    struct visit v;

    pst_assert(tier <= PST_EXTERNAL_TIERS);
    pst_assert(st->state == STREAM_WORKING);
    if (name.len == 0)
        stream_fail(st, STATUS_INVALID, "no node_id");
    if (name.len == 0 || !visit_begin(&v, st))
        return;
    if (pst_guests_find(v.desk.guests, name, &guest))
        pst_guests_counters(v.desk.guests, guest.number)->revoke_all_calls++;
    while (pst_guests_find(v.desk.guests, name, &guest)) {
        uint32_t number = pst_guest_block_number(&v.desk, guest.number);

        removed = tier == PST_EXTERNAL_TIERS
                      ? pst_external_revoke_node(v.desk.external, number, REVOKED_A_TURN)
                      : pst_external_revoke_tier(v.desk.external, number, tier, REVOKED_A_TURN);
        if (removed < REVOKED_A_TURN)
            break;
        if (!visit_pause(&v))
            return;
    }
    visit_end(&v);
    answer_send(st, &answer);
}

static void revoke_tier_requested(struct stream *st, struct pst_bytes message)
{
    static const struct key_fields fields = {.name = 1, .number = 2};
    struct key_request request;

    if (umbp_decoded(st, umbp_read_keys(message, &fields, &request)))
        revoke_all(st, request.name, tier_of(&request));
}

const struct method method_revoke_tier = {
    .name = "RevokeAllExternalKvBlocksAtTier", .request = revoke_tier_requested, .drop = answer_drop};

static void revoke_node_requested(struct stream *st, struct pst_bytes message)
{
    static const struct key_fields fields = {.name = 1};
    struct key_request request;

    if (umbp_decoded(st, umbp_read_keys(message, &fields, &request)))
        revoke_all(st, request.name, PST_EXTERNAL_TIERS);
}

const struct method method_revoke_node = {
    .name = "RevokeAllExternalKvBlocksForNode", .request = revoke_node_requested, .drop = answer_drop};

/* ---- hits ---- */

static void hits_requested(struct stream *st, struct pst_bytes message)
{
    static const struct key_fields fields = {.keys = 1};
    struct pst_hash128 hashes[HASHES_A_TURN];
    struct pst_bytes at = message, names = message, name;
    uint32_t hits[HASHES_A_TURN], count;
    struct key_request request;
    struct answer answer = {0};
    struct visit v;

    pst_assert(st->state == STREAM_WORKING);
    if (!umbp_decoded(st, umbp_read_keys(message, &fields, &request)))
        return;
    if (request.key_count > UMBP_HIT_KEYS_MAX) {
        stream_fail(st, STATUS_INVALID, "%u hashes: %d are answered", request.key_count, UMBP_HIT_KEYS_MAX);
        return;
    }
    if (!visit_begin(&v, st))
        return;
    while ((count = next_hashes(&at, fields.keys, v.desk.map->seed, hashes)) > 0) {
        pst_external_hit_counts(v.desk.external, hashes, count, pst_now_ns(), hits);
        for (uint32_t i = 0; i < count && umbp_next_text(&names, fields.keys, &name); i++) {
            struct answer entry = {0};

            if (hits[i] == 0)
                continue;
            answer_text(&entry, 1, name);
            answer_number(&entry, 2, hits[i]);
            answer_part(&answer, 1, &entry);
        }
    }
    visit_end(&v);
    answer_send(st, &answer);
}

const struct method method_hit_counts = {
    .name = "GetExternalKvHitCounts", .request = hits_requested, .drop = answer_drop};

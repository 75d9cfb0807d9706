/* SPDX-License-Identifier: Apache-2.0 */
/*
 * match.c: MatchExternalKv: who holds which of a prompt's blocks. The table is asked for some hashes at a
 * time; what each node has is gathered as bits, one for each hash of the request and tier, and told by the
 * hashes' names in the end, when nobody waits for the desk any more.
 */
#include "gateway/umbp/umbp_priv.h"

#include <stdio.h>

enum { NODES_MAX = 1024 }; /* the first that come up, from the first hash on */

/* One that holds some of them: a guest, or one of the pool's own members. */
struct holder {
    uint32_t number; /* of blocks */
    char name[PST_GUEST_NAME_BYTES_MAX + 1], address[PST_GUEST_NAME_BYTES_MAX + 1];
    uint64_t *bits; /* words for each tier */
};

struct matching {
    struct stream *stream;
    struct pst_bytes *names; /* of the hashes, in the request */
    uint32_t hash_count, words;
    uint32_t holder_count;
    struct holder holders[NODES_MAX];
    struct pst_external_match rows[NODES_MAX];
};

static struct matching *matching_close(struct matching *m)
{
    for (uint32_t i = 0; m && i < m->holder_count; i++)
        free(m->holders[i].bits);
    if (m)
        free(m->names);
    free(m);
    return NULL;
}

static struct matching *matching_open(struct stream *st, uint32_t hash_count)
{
    struct matching *m = malloc(sizeof(*m));

    if (!m)
        return NULL;
    m->stream = st;
    m->names = calloc(pst_max(hash_count, 1), sizeof(*m->names));
    m->hash_count = hash_count;
    m->words = (uint32_t)pst_div_up(hash_count, 64);
    m->holder_count = 0;
    return m->names ? m : matching_close(m);
}

/* A member is called as penstock's own clients call it: by its id if that is a text, else by its digits. */
static void name_member(const struct pst_map_member *member, struct holder *holder)
{
    size_t bytes = strnlen((const char *)member->id.bytes, sizeof(member->id));
    bool text = bytes > 0 && bytes < sizeof(member->id);

    pst_assert(holder->name[0] == '\0');
    for (size_t i = 0; i < sizeof(member->id); i++)
        text &=
            i < bytes ? member->id.bytes[i] > 0x20 && member->id.bytes[i] < 0x7f : member->id.bytes[i] == 0;
    if (text)
        memcpy(holder->name, member->id.bytes, bytes);
    else
        pst_id_print(&member->id, holder->name);
    snprintf(holder->address, sizeof(holder->address), "%s", member->address);
}

/* Return: false nobody of that number is there any more. */
static bool name_holder(const struct pst_guest_desk *desk, struct holder *holder)
{
    struct pst_guest guest;

    pst_assert(desk->map && desk->guests);
    if (holder->number < desk->map->members_max) {
        name_member(&desk->map->members[holder->number], holder);
        return true;
    }
    if (!pst_guests_next(desk->guests, holder->number - desk->map->members_max, &guest) ||
        pst_guest_block_number(desk, guest.number) != holder->number)
        return false;
    memcpy(holder->name, guest.name.data, guest.name.len);
    memcpy(holder->address, guest.peer_address.data, guest.peer_address.len);
    return true;
}

/* The holder of that number, if need be a new one. NULL: there is no room. */
static struct holder *holder_of(struct matching *m, const struct pst_guest_desk *desk, uint32_t number)
{
    uint64_t bytes = (uint64_t)PST_EXTERNAL_TIERS * m->words * sizeof(uint64_t);
    struct holder *holder = m->holders;

    pst_assert(m->words > 0);
    pst_assert(m->holder_count <= NODES_MAX);
    while (holder < m->holders + m->holder_count && holder->number != number)
        holder++;
    if (holder < m->holders + m->holder_count)
        return holder;
    if (m->holder_count == NODES_MAX || stream_take_memory(m->stream, bytes) < 0)
        return NULL;
    *holder = (struct holder){.number = number};
    if (!name_holder(desk, holder))
        return NULL;
    holder->bits = calloc(1, bytes);
    if (!holder->bits)
        return NULL;
    m->holder_count++;
    return holder;
}

static void add_row(struct matching *m, const struct pst_guest_desk *desk, uint32_t first_word,
                    const struct pst_external_match *row)
{
    struct holder *holder = holder_of(m, desk, row->node);

    pst_assert(first_word < m->words);
    pst_assert(row->hash_count <= PST_EXTERNAL_QUERY_MAX);
    for (uint32_t tier = 0; holder && tier < PST_EXTERNAL_TIERS; tier++)
        for (uint32_t w = 0; w < PST_EXTERNAL_WORDS && first_word + w < m->words; w++)
            holder->bits[tier * m->words + first_word + w] |= row->tiers[tier][w];
}

/* Return: as visit_step(). */
static bool gather(struct visit *v, struct matching *m, const struct key_request *request)
{
    struct pst_guest_totals *totals = pst_guests_totals(v->desk.guests);
    struct pst_bytes at = request->message, name;
    struct pst_hash128 hashes[PST_EXTERNAL_QUERY_MAX];

    pst_assert(request->key_count == m->hash_count);
    totals->match_calls++;
    totals->match_queried += request->key_count;
    for (uint32_t first_word = 0;; first_word += PST_EXTERNAL_WORDS) {
        uint32_t count = 0, rows;

        while (count < PST_EXTERNAL_QUERY_MAX && umbp_next_text(&at, request->fields->keys, &name)) {
            m->names[first_word * 64 + count] = name;
            hashes[count++] = pst_hash128(name.data, name.len, v->desk.map->seed);
        }
        if (count == 0)
            return true;
        rows = pst_external_match(v->desk.external, hashes, count, pst_now_ns(), request->number != 0,
                                  m->rows, NODES_MAX);
        for (uint32_t i = 0; i < pst_min(rows, NODES_MAX); i++) {
            pst_guests_totals(v->desk.guests)->match_matched += m->rows[i].hash_count;
            add_row(m, &v->desk, first_word, &m->rows[i]);
        }
        if (m->stream->state != STREAM_WORKING) { /* there was no memory */
            visit_end(v);
            return false;
        }
        if (!visit_pause(v))
            return false;
    }
}

/* What a holder has on one tier: a TierHashes. Return: whether it has any. */
static bool answer_tier(const struct matching *m, const uint64_t *bits, uint32_t tier, struct answer *out)
{
    bool any = false;

    pst_assert(tier < PST_EXTERNAL_TIERS);
    pst_assert(out->bytes == 0);
    answer_number(out, 1, tier);
    for (uint32_t w = 0; w < m->words; w++) {
        for (uint64_t left = bits[w]; left; left &= left - 1)
            answer_text(out, 2, m->names[w * 64 + (uint32_t)__builtin_ctzll(left)]);
        any |= bits[w] != 0;
    }
    return any;
}

static void answer_holder(const struct matching *m, const struct holder *holder, struct answer *answer)
{
    struct answer match = {0};

    pst_assert(holder->bits);
    pst_assert(holder->name[0] != '\0');
    answer_text(&match, 1, pst_bytes_of(holder->name));
    answer_text(&match, 2, pst_bytes_of(holder->address));
    for (uint32_t tier = 0; tier < PST_EXTERNAL_TIERS; tier++) {
        struct answer hashes = {0};

        if (answer_tier(m, holder->bits + (size_t)tier * m->words, tier, &hashes))
            answer_part(&match, 3, &hashes);
        else
            answer_free(&hashes);
    }
    answer_part(answer, 1, &match);
}

static void match_requested(struct stream *st, struct pst_bytes message)
{
    static const struct key_fields fields = {.keys = 1, .number = 2};
    struct key_request request;
    struct answer answer = {0};
    struct matching *m;
    struct visit v;

    pst_assert(st->state == STREAM_WORKING);
    if (!umbp_decoded(st, umbp_read_keys(message, &fields, &request)))
        return;
    m = matching_open(st, request.key_count);
    if (!m) {
        stream_fail(st, STATUS_EXHAUSTED, "out of memory");
        return;
    }
    if (visit_begin(&v, st) && gather(&v, m, &request)) {
        visit_end(&v);
        for (uint32_t i = 0; i < m->holder_count && !answer.failed; i++)
            answer_holder(m, &m->holders[i], &answer);
        answer_send(st, &answer);
    }
    matching_close(m);
}

const struct method method_match_blocks = {
    .name = "MatchExternalKv", .request = match_requested, .drop = answer_drop};

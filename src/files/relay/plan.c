/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c: what a broadcast is about, as memory and as frames. */
#include "files/relay/relay_priv.h"

#include <openssl/evp.h>

#define PLAN_WORDS "penstock broadcast 1" /* in front of what is digested */

void relay_plan_fini(struct relay_plan *plan)
{
    pst_manifest_fini(&plan->m);
    free(plan->starts);
    free(plan->digests);
    *plan = (struct relay_plan){.starts = NULL};
}

int relay_plan_cut(struct relay_plan *plan, uint32_t piece_bytes)
{
    const struct pst_manifest *m = &plan->m;

    pst_assert(!plan->starts && m->count > 0);
    if (piece_bytes < PST_PIECE_BYTES_MIN || piece_bytes > PST_PIECE_BYTES_MAX ||
        pst_div_up(m->file_bytes, piece_bytes) > PST_PIECES_MAX)
        return -E2BIG;
    plan->starts = calloc(m->count + 1, sizeof(*plan->starts));
    if (!plan->starts)
        return -ENOMEM;
    for (uint32_t i = 0; i < m->count; i++)
        plan->starts[i + 1] =
            plan->starts[i] + (m->entries[i].kind == PST_ENTRY_FILE ? m->entries[i].bytes : 0);
    plan->pieces = (struct pst_pieces){plan->starts, m->count, piece_bytes};
    plan->count = pst_pieces_count(&plan->pieces);
    plan->digests = calloc(plan->count + 1, sizeof(*plan->digests));
    return plan->digests ? 0 : -ENOMEM;
}

void relay_piece_digest(const void *data, size_t bytes, uint8_t out[RELAY_DIGEST_BYTES])
{
    pst_assert(EVP_Digest(data, bytes, out, NULL, EVP_sha256(), NULL) == 1);
}

void relay_plan_digest(const struct relay_plan *plan, uint8_t out[RELAY_DIGEST_BYTES])
{
    EVP_MD_CTX *sha256 = EVP_MD_CTX_new();
    uint8_t wire[PST_ENTRY_WIRE_BYTES_MAX];
    uint32_t numbers[] = {htole32(plan->pieces.piece_bytes), htole32(plan->m.count)};

    pst_assert(sha256 && EVP_DigestInit_ex(sha256, EVP_sha256(), NULL) == 1);
    pst_assert(EVP_DigestUpdate(sha256, PLAN_WORDS, sizeof(PLAN_WORDS)) == 1);
    pst_assert(EVP_DigestUpdate(sha256, numbers, sizeof(numbers)) == 1);
    for (uint32_t i = 0; i < plan->m.count; i++)
        pst_assert(EVP_DigestUpdate(sha256, wire, pst_entry_encode(&plan->m.entries[i], wire)) == 1);
    pst_assert(EVP_DigestUpdate(sha256, plan->digests, plan->count * sizeof(*plan->digests)) == 1);
    pst_assert(EVP_DigestFinal_ex(sha256, out, NULL) == 1);
    EVP_MD_CTX_free(sha256);
}

int relay_plan_send(struct link *link, const struct relay_plan *plan)
{
    int r = carry_send_entries(link, &plan->m);

    for (uint32_t i = 0; r == 0 && i < plan->count; i++) {
        if (link_room(link) < sizeof(plan->digests[i]))
            r = link_send(link, LINK_DIGESTS);
        if (r == 0)
            link_put(link, plan->digests[i], sizeof(plan->digests[i]));
    }
    return r < 0 ? r : link_send(link, LINK_DIGESTS);
}

int relay_plan_receive(struct link *link, uint32_t piece_bytes, const uint8_t digest[RELAY_DIGEST_BYTES],
                       struct relay_plan *plan)
{
    uint8_t found[RELAY_DIGEST_BYTES];
    struct pst_reader frame;
    enum link_type type;
    uint32_t taken = 0;
    int r = carry_receive_entries(link, &plan->m);

    if (r == 0 && (r = relay_plan_cut(plan, piece_bytes)) < 0)
        return link_fail(link, r, "the parent's tree has too many pieces, or memory is short");
    while (r == 0 && taken < plan->count) {
        r = link_receive(link, LINK_DIGESTS, &type, &frame);
        if (r == 0 && (frame.left == 0 || frame.left % sizeof(*plan->digests) ||
                       frame.left / sizeof(*plan->digests) > plan->count - taken))
            return link_fail(link, -EBADMSG, "the parent's digests are none of this tree");
        while (r == 0 && frame.left)
            pst_read_copy(&frame, plan->digests[taken++], sizeof(*plan->digests));
    }
    if (r < 0)
        return r;
    relay_plan_digest(plan, found);
    return memcmp(found, digest, sizeof(found)) == 0
               ? 0
               : link_fail(link, -EBADMSG, "the parent's tree is not the source's");
}

/* ---- frames ---- */

void relay_put_text(struct link *link, const char *text)
{
    size_t bytes = strlen(text);

    pst_assert(bytes <= UINT16_MAX);
    link_put_number(link, bytes, 2);
    link_put(link, text, bytes);
}

void relay_read_text(struct pst_reader *frame, char *out, size_t cap)
{
    size_t bytes = pst_read_number(frame, 2);
    const uint8_t *text = bytes < cap ? pst_read_bytes(frame, bytes) : NULL;

    if (!text || memchr(text, 0, bytes)) {
        frame->bad = true;
        bytes = 0;
    } else {
        memcpy(out, text, bytes);
    }
    out[bytes] = 0;
}

int relay_send_place(struct link *link, const struct relay_place *place)
{
    link_put_number(link, (place->may_leave ? RELAY_MAY_LEAVE : 0) | (place->copies ? RELAY_COPIES : 0), 1);
    link_put_number(link, place->rank, 4);
    link_put_number(link, place->parent_rank, 4);
    link_put_number(link, place->port, 2);
    relay_put_text(link, place->host);
    link_put_number(link, place->piece_bytes, 4);
    link_put_number(link, place->pieces, 4);
    link_put_number(link, place->bytes, 8);
    link_put(link, place->digest, sizeof(place->digest));
    return link_send(link, LINK_PLACE);
}

int relay_receive_place(struct link *link, struct relay_place *out)
{
    struct relay_place place = {.rank = 0};
    struct pst_reader frame;
    enum link_type type;
    uint64_t flags;
    int r = link_receive(link, LINK_PLACE, &type, &frame);

    if (r < 0)
        return r;
    flags = pst_read_number(&frame, 1);
    place.may_leave = flags & RELAY_MAY_LEAVE;
    place.copies = flags & RELAY_COPIES;
    place.rank = (uint32_t)pst_read_number(&frame, 4);
    place.parent_rank = (uint32_t)pst_read_number(&frame, 4);
    place.port = (uint16_t)pst_read_number(&frame, 2);
    relay_read_text(&frame, place.host, sizeof(place.host));
    place.piece_bytes = (uint32_t)pst_read_number(&frame, 4);
    place.pieces = (uint32_t)pst_read_number(&frame, 4);
    place.bytes = pst_read_number(&frame, 8);
    pst_read_copy(&frame, place.digest, sizeof(place.digest));
    if (frame.bad || (place.port != 0) != (place.host[0] != 0))
        return link_fail(link, -EPROTO, "the store's answer is none");
    *out = place;
    return 0;
}

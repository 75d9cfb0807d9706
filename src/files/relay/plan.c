/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c: what a broadcast is about, as memory and as frames. */
#include "files/relay/relay_priv.h"

#include <openssl/evp.h>

void relay_plan_fini(struct relay_plan *plan)
{
    pst_manifest_fini(&plan->m);
    free(plan->starts);
    free(plan->digests);
    free(plan->signatures);
    *plan = (struct relay_plan){.starts = NULL};
}

void relay_plan_shrink(struct relay_plan *plan)
{
    const struct relay_plan numbers = {.count = plan->count,
                                       .pieces.piece_bytes = plan->pieces.piece_bytes,
                                       .m.file_bytes = plan->m.file_bytes};

    relay_plan_fini(plan);
    *plan = numbers;
}

static void digest_manifest(struct relay_plan *plan)
{
    EVP_MD_CTX *sha256 = EVP_MD_CTX_new();
    uint8_t wire[PST_ENTRY_WIRE_BYTES_MAX];
    uint32_t numbers[] = {htole32(plan->pieces.piece_bytes), htole32(plan->m.count)};

    pst_assert(sha256);
    pst_assert(EVP_DigestInit_ex(sha256, EVP_sha256(), NULL) == 1);
    pst_assert(EVP_DigestUpdate(sha256, numbers, sizeof(numbers)) == 1);
    for (uint32_t i = 0; i < plan->m.count; i++)
        pst_assert(EVP_DigestUpdate(sha256, wire, pst_entry_encode(&plan->m.entries[i], wire)) == 1);
    pst_assert(EVP_DigestFinal_ex(sha256, plan->manifest_digest, NULL) == 1);
    EVP_MD_CTX_free(sha256);
}

int relay_plan_cut(struct relay_plan *plan, uint32_t piece_bytes)
{
    const struct pst_manifest *m = &plan->m;

    pst_assert(!plan->starts);
    pst_assert(m->count > 0);
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
    plan->batch_pieces = RELAY_BATCH_BYTES / piece_bytes;
    plan->batch_count = (uint32_t)pst_div_up(plan->count, plan->batch_pieces);
    pst_assert(plan->starts[m->count] == m->file_bytes);
    pst_assert(plan->batch_pieces > 0);
    plan->digests = calloc(plan->count + 1, sizeof(*plan->digests));
    plan->signatures = calloc(plan->batch_count + 1, sizeof(*plan->signatures));
    digest_manifest(plan);
    return plan->digests && plan->signatures ? 0 : -ENOMEM;
}

/* ---- batches ---- */

uint32_t relay_batch_count(const struct relay_plan *plan, uint32_t batch)
{
    pst_assert(batch < plan->batch_count);
    return (uint32_t)pst_min(plan->batch_pieces, plan->count - batch * plan->batch_pieces);
}

int relay_batch_send(struct link *link, const struct relay_plan *plan, uint32_t batch)
{
    pst_assert(batch < plan->batch_count);
    pst_assert(plan->digests);
    pst_assert(plan->signatures);
    link_put_number(link, batch, 4);
    link_put(link, plan->signatures[batch], sizeof(plan->signatures[batch]));
    link_put(link, plan->digests[batch * plan->batch_pieces],
             relay_batch_count(plan, batch) * sizeof(*plan->digests));
    return link_send(link, LINK_DIGESTS);
}

int relay_batch_take(struct pst_reader *frame, const uint8_t key[RELAY_KEY_BYTES], struct relay_plan *plan,
                     uint32_t batch)
{
    size_t bytes = relay_batch_count(plan, batch) * sizeof(*plan->digests);

    if (pst_read_number(frame, 4) != batch || frame->left != RELAY_SIGNATURE_BYTES + bytes)
        return -EBADMSG;
    pst_read_copy(frame, plan->signatures[batch], RELAY_SIGNATURE_BYTES);
    pst_read_copy(frame, plan->digests[batch * plan->batch_pieces], bytes);
    pst_assert(!frame->bad);
    pst_assert(frame->left == 0);
    return relay_verify(key, plan, batch) ? 0 : -EBADMSG;
}

/* ---- frames ---- */

int relay_send_place(struct link *link, const struct relay_place *place)
{
    pst_assert((place->port != 0) == (place->host[0] != 0));
    link_put_number(link,
                    (place->may_leave ? RELAY_MAY_LEAVE : 0) | (place->copies ? RELAY_COPIES : 0) |
                        (place->blake2b ? RELAY_BLAKE2B : 0),
                    1);
    link_put_number(link, place->rank, 4);
    link_put_number(link, place->parent_rank, 4);
    link_put_number(link, place->port, 2);
    link_put_text(link, place->host);
    link_put_number(link, place->piece_bytes, 4);
    link_put_number(link, place->pieces, 4);
    link_put_number(link, place->bytes, 8);
    link_put(link, place->key, sizeof(place->key));
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
    place.blake2b = flags & RELAY_BLAKE2B;
    place.rank = (uint32_t)pst_read_number(&frame, 4);
    place.parent_rank = (uint32_t)pst_read_number(&frame, 4);
    place.port = (uint16_t)pst_read_number(&frame, 2);
    link_read_text(&frame, place.host, sizeof(place.host));
    place.piece_bytes = (uint32_t)pst_read_number(&frame, 4);
    place.pieces = (uint32_t)pst_read_number(&frame, 4);
    place.bytes = pst_read_number(&frame, 8);
    pst_read_copy(&frame, place.key, sizeof(place.key));
    if (frame.bad || (place.port != 0) != (place.host[0] != 0))
        return link_fail(link, -EPROTO, "the store's answer is none");
    *out = place;
    return 0;
}

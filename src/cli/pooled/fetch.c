/* SPDX-License-Identifier: Apache-2.0 */
/* fetch.c: chunks out of the store, each of which is what its name says. */
#include "cli/pooled/trees_priv.h"

struct fetch {
    struct penstock_op ops[TREES_BATCH_CHUNKS];
    char keys[TREES_BATCH_CHUNKS][PST_POOLED_KEY_BYTES + 1];
};

/* What came of one of them. */
static int fetch_check(struct trees *trees, const struct trees_slot *slot, const struct penstock_op *op,
                       const char *key)
{
    uint8_t sha256[PST_SHA256_BYTES];

    if (op->result == PENSTOCK_MISS || op->result == PENSTOCK_LOST)
        return trees_fail(trees, -ENOENT, "%s: the store does not have it any more", key);
    if (op->result && op->result != -ENOBUFS)
        return trees_fail_key(trees, key, op->result);
    if (op->result == 0 && op->value_bytes == slot->chunk->bytes) {
        pst_sha256(slot->data, slot->chunk->bytes, sha256);
        if (memcmp(sha256, slot->chunk->sha256, sizeof(sha256)) == 0)
            return 0;
    }
    return trees_fail(trees, -EBADMSG, "%s: it has other bytes than its name says", key);
}

int trees_fetch(struct trees *trees, const struct trees_slot *slots, uint32_t count, uint32_t *failed)
{
    pst_cleanup_free struct fetch *fetch = calloc(1, sizeof(*fetch));
    int r = 0;

    pst_assert(count <= TREES_BATCH_CHUNKS);
    *failed = 0;
    if (!fetch)
        return trees_fail(trees, -ENOMEM, "out of memory");
    for (uint32_t i = 0; i < count; i++) {
        pst_pooled_key(slots[i].chunk, fetch->keys[i]);
        penstock_prep_get(&fetch->ops[i], fetch->keys[i], PST_POOLED_KEY_BYTES, slots[i].data,
                          slots[i].chunk->bytes);
    }
    if (count)
        r = penstock_batch(trees->store, fetch->ops, count);
    if (r < 0)
        return trees_fail_key(trees, fetch->keys[0], r);
    r = 0;
    for (uint32_t i = 0; r == 0 && i < count; i++) {
        r = fetch_check(trees, &slots[i], &fetch->ops[i], fetch->keys[i]);
        *failed = i;
    }
    return r;
}

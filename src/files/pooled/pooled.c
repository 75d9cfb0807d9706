/* SPDX-License-Identifier: Apache-2.0 */
/* pooled.c: the parts of a tree that lies in a store, and what of its files lies in which chunk. */
#include "files/pooled/pooled.h"

#include "base/hex.h"

void pst_pooled_chunks_fini(struct pst_pooled_chunks *chunks)
{
    free(chunks->list);
    *chunks = (struct pst_pooled_chunks){.list = NULL};
}

void pst_pooled_root_fini(struct pst_pooled_root *root)
{
    pst_pooled_chunks_fini(&root->parts);
}

void pst_pooled_fini(struct pst_pooled *tree)
{
    pst_manifest_fini(&tree->m);
    pst_pooled_chunks_fini(&tree->chunks);
    free(tree->holes);
    *tree = (struct pst_pooled){.holes = NULL};
}

/* ---- keys ---- */

void pst_pooled_key(const struct pst_pooled_chunk *chunk, char out[PST_POOLED_KEY_BYTES + 1])
{
    char digits[PST_SHA256_TEXT_BYTES];

    pst_sha256_print(chunk->sha256, digits);
    memcpy(out, PST_POOLED_CHUNKS, sizeof(PST_POOLED_CHUNKS) - 1);
    memcpy(out + sizeof(PST_POOLED_CHUNKS) - 1, digits, sizeof(digits));
    pst_assert(strlen(out) == PST_POOLED_KEY_BYTES);
}

bool pst_pooled_key_parse(const void *key, size_t key_bytes, uint8_t sha256[PST_SHA256_BYTES])
{
    const char *at = (const char *)key + sizeof(PST_POOLED_CHUNKS) - 1;

    return key_bytes == PST_POOLED_KEY_BYTES &&
           memcmp(key, PST_POOLED_CHUNKS, (size_t)(at - (const char *)key)) == 0 &&
           pst_hex_parse(at, sha256, PST_SHA256_BYTES);
}

/* ---- chunks and holes ---- */

int pst_pooled_chunks_add(struct pst_pooled_chunks *chunks, const struct pst_pooled_chunk *chunk)
{
    uint32_t room = chunks->room ? 2 * chunks->room : 64;
    struct pst_pooled_chunk *grown;

    pst_assert(chunks->count <= chunks->room);
    if (chunk->bytes == 0 || chunk->bytes > PST_CHUNK_BYTES_MAX)
        return -EBADMSG;
    if (chunks->count == PST_POOLED_CHUNKS_MAX)
        return -E2BIG;
    if (chunks->count == chunks->room) {
        grown = realloc(chunks->list, room * sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        chunks->list = grown;
        chunks->room = room;
    }
    pst_assert(chunks->count < chunks->room);
    chunks->list[chunks->count++] = *chunk;
    chunks->bytes += chunk->bytes;
    return 0;
}

/* Whether a hole may follow the last one. */
static bool hole_may_follow(const struct pst_pooled *tree, const struct pst_pooled_hole *hole)
{
    const struct pst_pooled_hole *last = tree->hole_count ? &tree->holes[tree->hole_count - 1] : NULL;
    const struct pst_entry *entry;

    if (hole->entry >= tree->m.count || hole->bytes == 0)
        return false;
    entry = &tree->m.entries[hole->entry];
    if (entry->kind != PST_ENTRY_FILE || hole->at > entry->bytes || hole->bytes > entry->bytes - hole->at)
        return false;
    return !last || last->entry < hole->entry ||
           (last->entry == hole->entry && last->at + last->bytes <= hole->at);
}

int pst_pooled_hole_add(struct pst_pooled *tree, const struct pst_pooled_hole *hole)
{
    uint32_t room = tree->hole_room ? 2 * tree->hole_room : 64;
    struct pst_pooled_hole *grown;

    if (!hole_may_follow(tree, hole))
        return -EBADMSG;
    if (tree->hole_count == tree->hole_room) {
        grown = realloc(tree->holes, room * sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        tree->holes = grown;
        tree->hole_room = room;
    }
    pst_assert(tree->hole_count < tree->hole_room);
    tree->holes[tree->hole_count++] = *hole;
    tree->hole_bytes += hole->bytes;
    pst_assert(tree->hole_bytes <= tree->m.file_bytes);
    return 0;
}

/* ---- what lies where ---- */

bool pst_pooled_walk_next(struct pst_pooled_walk *walk, struct pst_pooled_piece *out)
{
    const struct pst_pooled *tree = walk->tree;
    const struct pst_pooled_hole *hole;
    const struct pst_entry *entry;
    uint64_t end;

    while (walk->entry < tree->m.count && walk->at == tree->m.entries[walk->entry].bytes) {
        walk->entry++;
        walk->at = 0;
    }
    if (walk->entry == tree->m.count)
        return false;
    entry = &tree->m.entries[walk->entry];
    hole = walk->hole < tree->hole_count ? &tree->holes[walk->hole] : NULL;
    hole = hole && hole->entry == walk->entry ? hole : NULL;
    *out = (struct pst_pooled_piece){.entry = walk->entry, .chunk = PST_POOLED_HOLE, .at = walk->at};
    if (hole && hole->at == walk->at) {
        out->bytes = hole->bytes;
        walk->hole++;
    } else {
        pst_assert(walk->chunk < tree->chunks.count); /* together they are what no hole is */
        end = hole ? hole->at : entry->bytes;
        out->chunk = walk->chunk;
        out->chunk_offset = walk->chunk_offset;
        out->bytes = pst_min(end - walk->at, tree->chunks.list[walk->chunk].bytes - walk->chunk_offset);
        walk->chunk_offset += (uint32_t)out->bytes;
        if (walk->chunk_offset == tree->chunks.list[walk->chunk].bytes) {
            walk->chunk++;
            walk->chunk_offset = 0;
        }
    }
    walk->at += out->bytes;
    pst_assert(out->bytes > 0);
    pst_assert(walk->at <= entry->bytes);
    return true;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_pooled.c: the root and the list of a tree that lies in a store, whoever wrote them. What is taken is
 * encoded as the same bytes, and each byte of its files lies in one piece.
 */
#include "fuzz.h"

#include "files/pooled/pooled.h"

struct written {
    const uint8_t *list;
    size_t bytes, at;
};

static int written_compare(void *ctx, const void *data, size_t bytes)
{
    struct written *written = ctx;

    pst_assert(bytes <= written->bytes - written->at);
    pst_assert(memcmp(written->list + written->at, data, bytes) == 0);
    written->at += bytes;
    return 0;
}

static void walk(const struct pst_pooled *tree)
{
    struct pst_pooled_walk walk = {.tree = tree};
    struct pst_pooled_piece piece;
    uint64_t bytes = 0, holes = 0;

    while (pst_pooled_walk_next(&walk, &piece)) {
        const struct pst_entry *entry = &tree->m.entries[piece.entry];

        pst_assert(piece.bytes > 0 && piece.at <= entry->bytes && piece.bytes <= entry->bytes - piece.at);
        pst_assert(piece.chunk == PST_POOLED_HOLE ||
                   piece.chunk_offset + piece.bytes <= tree->chunks.list[piece.chunk].bytes);
        bytes += piece.bytes;
        holes += piece.chunk == PST_POOLED_HOLE ? piece.bytes : 0;
    }
    pst_assert(bytes == tree->m.file_bytes && holes == tree->hole_bytes);
}

static void encode(const struct pst_pooled *tree, const struct pst_pooled_root *root, const uint8_t *first,
                   size_t first_bytes, const uint8_t *list, size_t list_bytes)
{
    struct written written = {list, list_bytes, 0};
    uint8_t *bytes;
    size_t count;

    pst_assert(pst_pooled_encode(tree, written_compare, &written) == 0 && written.at == list_bytes);
    pst_assert(pst_pooled_root_encode(tree, &root->parts, &bytes, &count) == 0);
    pst_assert(count == first_bytes && memcmp(bytes, first, count) == 0);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz in = {data, bytes};
    struct pst_pooled tree = {.holes = NULL};
    struct pst_pooled_root root = {.entry_count = 0};
    size_t first_bytes, list_bytes, first_max = fuzz_number(&in, 2);
    uint8_t *first = fuzz_take(&in, first_max, &first_bytes), *list = fuzz_take(&in, in.left, &list_bytes);

    if (pst_pooled_root_decode(first, first_bytes, &root) == 0 &&
        pst_pooled_decode(&root, list, list_bytes, &tree) == 0) {
        walk(&tree);
        encode(&tree, &root, first, first_bytes, list, list_bytes);
    }
    pst_pooled_fini(&tree);
    pst_pooled_root_fini(&root);
    free(first);
    free(list);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* earlier.c: the tree that a put replaces: files that have not changed since are not read again. */
#include "cli/pooled/trees_priv.h"

enum { SHARES = UINT32_MAX };

/* Finds the first chunk of each file that shares none. */
static int earlier_walk(struct trees *trees, struct earlier *earlier)
{
    const struct pst_pooled *tree = &earlier->tree;
    struct pst_pooled_walk walk = {.tree = tree};
    struct pst_pooled_piece piece;

    earlier->first = malloc(tree->m.count * sizeof(*earlier->first));
    if (!earlier->first)
        return trees_fail(trees, -ENOMEM, "out of memory");
    for (uint32_t i = 0; i < tree->m.count; i++)
        earlier->first[i] = SHARES;
    while (pst_pooled_walk_next(&walk, &piece)) {
        uint32_t *first = &earlier->first[piece.entry];
        bool begins = piece.at == 0, is_hole = piece.chunk == PST_POOLED_HOLE;

        if (begins && !is_hole)
            *first = piece.chunk;
        if (is_hole || piece.bytes != tree->chunks.list[piece.chunk].bytes)
            *first = SHARES; /* files with holes are read: few are */
    }
    return 0;
}

int earlier_load(struct trees *trees, struct earlier *earlier)
{
    struct pst_pooled_root root = {.entry_count = 0};
    int r = trees_root(trees, trees->name, &root, NULL);

    if (r == 0)
        r = trees_list(trees, trees->name, &root, &earlier->tree);
    pst_pooled_root_fini(&root);
    if (r == 0)
        return earlier_walk(trees, earlier);
    earlier_fini(earlier);
    return r == -ENOENT || r == -EBADMSG ? 0 : r; /* there is none, or it is broken: the put mends that */
}

void earlier_fini(struct earlier *earlier)
{
    pst_pooled_fini(&earlier->tree);
    free(earlier->first);
    *earlier = (struct earlier){.first = NULL};
}

bool earlier_find(const struct earlier *earlier, const struct pst_entry *entry, uint32_t *chunk,
                  uint32_t *count)
{
    const struct pst_entry *old = earlier->first ? pst_manifest_find(&earlier->tree.m, entry->path) : NULL;
    uint64_t bytes = 0;
    uint32_t i;

    if (!old || old->kind != PST_ENTRY_FILE || old->bytes != entry->bytes ||
        old->modified_ns != entry->modified_ns)
        return false;
    *chunk = earlier->first[old - earlier->tree.m.entries];
    if (*chunk == SHARES)
        return false;
    for (i = *chunk; bytes < entry->bytes; i++)
        bytes += earlier->tree.chunks.list[i].bytes;
    pst_assert(bytes == entry->bytes);
    *count = i - *chunk;
    return true;
}

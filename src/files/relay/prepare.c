/* SPDX-License-Identifier: Apache-2.0 */
/* prepare.c: the source's tree is listed, cut and read once for the digests of its pieces. */
#include "files/relay/relay_priv.h"

#include <fcntl.h>

/* Reads one piece, with the file that was read last open in *@fd. Return: 0, or -errno and the file in
 * *@entry. */
static int tree_read_piece(struct relay_tree *tree, uint32_t piece, uint8_t *into, int *fd, uint32_t *entry)
{
    struct pst_piece_walk walk;
    struct pst_piece_part part;

    pst_piece_walk(&tree->plan.pieces, piece, &walk);
    while (pst_piece_next(&walk, &part)) {
        uint32_t done = 0;

        if (*fd < 0 || *entry != part.entry) {
            pst_close_fd(fd);
            *entry = part.entry;
            *fd = relay_tree_open_entry(tree, part.entry);
            if (*fd < 0)
                return *fd;
        }
        while (done < part.bytes) {
            ssize_t n = pread(*fd, into + done, part.bytes - done, (off_t)(part.at + done));

            if (n == 0 || (n < 0 && errno != EINTR))
                return n == 0 ? -ESTALE : -errno;
            done += n > 0 ? (uint32_t)n : 0;
        }
        into += part.bytes;
    }
    return 0;
}

static int tree_read(struct relay_tree *tree, struct link *link)
{
    pst_cleanup_free uint8_t *buffer = malloc(tree->plan.pieces.piece_bytes);
    pst_cleanup_close int fd = -1;
    uint32_t entry = 0;
    int r = 0;

    if (!buffer)
        return link_fail(link, -ENOMEM, "out of memory");
    for (uint32_t piece = 0; r == 0 && piece < tree->plan.count; piece++) {
        r = tree_read_piece(tree, piece, buffer, &fd, &entry);
        if (r < 0)
            return link_fail(link, r, "%.200s: %s", tree->plan.m.entries[entry].path,
                             r == -ESTALE ? "changed while it was read" : strerror(-r));
        relay_piece_digest(buffer, pst_piece_length(&tree->plan.pieces, piece), tree->plan.digests[piece]);
        r = link_alive(link);
    }
    return r;
}

int relay_tree_prepare(struct relay_tree *tree, uint32_t members, struct link *link)
{
    const struct pst_filters all = {.count = 0};
    struct pst_manifest *m = &tree->plan.m;
    char fault[PST_FAULT_BYTES];
    uint32_t odd = 0;
    int r = pst_manifest_scan(tree->folder_fd, tree->leaf, &all, m, &odd, fault);

    if (r < 0)
        return link_fail(link, r, "%s", fault);
    tree->copies = !pst_chain_pays(members, m->file_bytes, PST_BROADCAST_FANOUT);
    if (tree->copies)
        return 0;
    if (m->entries[0].kind == PST_ENTRY_FOLDER) {
        tree->root_fd = openat(tree->folder_fd, tree->leaf, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (tree->root_fd < 0)
            return link_fail(link, -errno, "%.200s: %s", tree->leaf, strerror(errno));
    }
    r = relay_plan_cut(&tree->plan, pst_piece_bytes(members, m->file_bytes));
    if (r < 0)
        return link_fail(link, r, "%.200s: %s", tree->leaf, strerror(-r));
    r = tree_read(tree, link);
    if (r == 0)
        relay_plan_digest(&tree->plan, tree->digest);
    return r;
}

int relay_tree_open_entry(void *ctx, uint32_t entry)
{
    const struct relay_tree *tree = ctx;
    const struct pst_carry_place place = {tree->folder_fd, tree->leaf};
    bool has_holes;

    return carry_open_entry(tree->root_fd, &place, &tree->plan.m.entries[entry], &has_holes);
}

void relay_tree_fini(struct relay_tree *tree)
{
    pst_close_fd(&tree->root_fd);
    pst_close_fd(&tree->folder_fd);
    relay_plan_fini(&tree->plan);
}

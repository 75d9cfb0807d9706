/* SPDX-License-Identifier: Apache-2.0 */
/* tree.c: the source's tree. It is listed when the broadcast begins; a batch is read for the digests of its
 * pieces when the first child comes to it, shortly before it is sent. */
#include "files/relay/feed_priv.h"

#include <fcntl.h>
#include <stdio.h>

static int tree_open_entry(void *ctx, uint32_t entry);

/* Reads one piece, with the file that was read last open in *@fd. Return: 0, or -errno and the file in
 * *@entry. */
static int tree_read_piece(struct relay_tree *tree, uint32_t piece, uint8_t *into, int *fd, uint32_t *entry)
{
    struct pst_piece_walk walk;
    struct pst_piece_part part;

    pst_piece_walk(&tree->plan.pieces, piece, &walk);
    while (pst_piece_next(&walk, &part)) {
        int r;

        if (*fd < 0 || *entry != part.entry) {
            pst_close_fd(fd);
            *entry = part.entry;
            *fd = tree_open_entry(tree, part.entry);
            if (*fd < 0)
                return *fd;
        }
        r = pst_read_at(*fd, part.at, into, part.bytes);
        if (r < 0)
            return r;
        into += part.bytes;
    }
    return 0;
}

/* Return: as the next. */
static int tree_read_batch(struct relay_tree *tree, uint32_t batch, uint32_t *entry)
{
    struct relay_plan *plan = &tree->plan;
    pst_cleanup_free uint8_t *buffer = malloc(plan->pieces.piece_bytes);
    pst_cleanup_close int fd = -1;
    uint32_t first = batch * plan->batch_pieces;
    int r = buffer ? 0 : -ENOMEM;

    for (uint32_t piece = first; r == 0 && piece < first + relay_batch_count(plan, batch); piece++) {
        r = tree_read_piece(tree, piece, buffer, &fd, entry);
        if (r == 0)
            relay_digest(plan->blake2b, buffer, pst_piece_length(&plan->pieces, piece), plan->digests[piece]);
    }
    return r;
}

static int tree_make_batch(void *ctx, uint32_t batch, uint32_t *entry)
{
    struct relay_tree *tree = ctx;
    int r = 0;

    pthread_mutex_lock(&tree->lock);
    pst_assert(batch < tree->plan.batch_count);
    pst_assert(tree->made);
    pst_assert(tree->signer);
    if (!tree->made[batch]) {
        r = tree_read_batch(tree, batch, entry);
        if (r == 0)
            relay_sign(tree->signer, &tree->plan, batch);
        tree->made[batch] = r == 0;
    }
    pthread_mutex_unlock(&tree->lock);
    return r;
}

/* A file that lies in no folder. */
static int tree_reopen(int fd, const struct pst_entry *entry)
{
    int r = pst_source_check(fd, entry), copy = r == 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : r;

    pst_assert(fd >= 0);
    return r == 0 && copy < 0 ? -errno : copy;
}

static int tree_open_entry(void *ctx, uint32_t entry)
{
    const struct relay_tree *tree = ctx;
    bool has_holes;

    pst_assert(entry < tree->plan.m.count);
    pst_assert(tree->plan.m.entries[entry].kind == PST_ENTRY_FILE);
    if (tree->fds)
        return tree_reopen(tree->fds[entry], &tree->plan.m.entries[entry]);
    return pst_source_open(&tree->source, &tree->plan.m.entries[entry], &has_holes);
}

const struct relay_feed_ops relay_tree_ops = {.open = tree_open_entry, .make_batch = tree_make_batch};

void relay_tree_init(struct relay_tree *tree)
{
    *tree = (struct relay_tree){.source = {.folder_fd = -1, .root_fd = -1, .leaf = tree->leaf}};
    pthread_mutex_init(&tree->lock, NULL);
}

/* The tree is listed. */
static int tree_cut(struct relay_tree *tree, uint32_t members)
{
    struct pst_manifest *m = &tree->plan.m;
    int r = tree->fds ? 0 : pst_source_open_root(&tree->source, m);

    if (r < 0)
        return r;
    r = relay_plan_cut(&tree->plan, pst_piece_bytes(members, m->file_bytes));
    if (r < 0)
        return r;
    tree->plan.blake2b = relay_prefers_blake2b();
    tree->made = calloc(tree->plan.batch_count, sizeof(*tree->made));
    tree->signer = relay_signer_open(tree->key);
    return tree->made && tree->signer ? 0 : -ENOMEM;
}

int relay_tree_gather(struct relay_tree *tree, const struct pst_broadcasts_settings *settings,
                      const char *group, const char *name, char fault[PST_FAULT_BYTES])
{
    struct pst_broadcast_files files = {.fds = NULL};
    int r = settings->gather(settings->ctx, group, name, &files, fault);

    pst_assert(tree->plan.m.count == 0 && !tree->fds);
    pst_assert(r < 0 || (files.fds && files.m.count > 0));
    tree->plan.m = files.m;
    tree->fds = files.fds;
    snprintf(tree->leaf, sizeof(tree->leaf), "%.255s", name);
    return r;
}

static int tree_scan(struct relay_tree *tree, uint32_t members, char fault[PST_FAULT_BYTES])
{
    const struct pst_filters all = {.count = 0};
    struct pst_manifest *m = &tree->plan.m;
    uint32_t odd = 0;
    int r;

    pst_assert(m->count == 0);
    pst_assert(tree->source.folder_fd >= 0);
    r = pst_source_list(&tree->source, &all, m, &odd, fault);
    if (r == 0)
        tree->copies = !pst_chain_pays(members, m->file_bytes, PST_BROADCAST_FANOUT);
    return r;
}

int relay_tree_prepare(struct relay_tree *tree, uint32_t members, char fault[PST_FAULT_BYTES])
{
    int r = tree->fds ? 0 : tree_scan(tree, members, fault);

    if (r < 0 || tree->copies)
        return r;
    r = tree_cut(tree, members);
    if (r < 0)
        snprintf(fault, PST_FAULT_BYTES, "%.200s: %s", tree->leaf, strerror(-r));
    return r;
}

static void tree_close_files(struct relay_tree *tree)
{
    for (uint32_t i = 0; tree->fds && i < tree->plan.m.count; i++)
        pst_close_fd(&tree->fds[i]);
    free(tree->fds);
    tree->fds = NULL;
    pst_close_fd(&tree->source.root_fd);
    pst_close_fd(&tree->source.folder_fd);
}

void relay_tree_shrink(struct relay_tree *tree)
{
    tree_close_files(tree);
    relay_plan_shrink(&tree->plan);
}

void relay_tree_fini(struct relay_tree *tree)
{
    tree_close_files(tree);
    relay_signer_close(tree->signer);
    free(tree->made);
    relay_plan_fini(&tree->plan);
    pthread_mutex_destroy(&tree->lock);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree.h: broadcasts of files, as trees that grow while they are used. A tree has a group, a key and a
 * source; its members join one after the other and get ranks from 1. The source has rank 0, and rank r
 * fetches from its parent, rank (r - 1) / fanout, so each serves @fanout others at the most.
 *
 * A member whom two others could not reach is lost: who joins later, and who reports it, gets the next member
 * on the way to the source that is not. A single report moves the reporter alone, since the fault may be its
 * own.
 *
 * Pure: no clock, no network. One caller at a time. Time is handed in, in ms; texts are borrowed during
 * calls. Source: docs/reference/data-store.md, broadcasts.
 */
#ifndef PST_FILES_TREE_H
#define PST_FILES_TREE_H

#include "files/catalogue/catalogue.h"

enum {
    PST_TREE_FANOUT = 50, /* unless the first to join says */
    PST_TREE_FANOUT_MAX = 1000,
    PST_TREE_MEMBERS_MAX = 20000, /* of a tree */
    PST_TREES_MAX = 1024,
    PST_TREE_GROUP_BYTES_MAX = 1024,
    PST_TREE_LIFE_MS = 3600 * 1000, /* after the last call for it */
};

struct pst_trees;

/* Return: NULL without memory. */
struct pst_trees *pst_trees_open(void);
/* Returns NULL. */
struct pst_trees *pst_trees_close(struct pst_trees *trees);

/* A member, or a tree's source. */
struct pst_tree_pod {
    const char *ip, *pod_name; /* @pod_name: NULL as "" */
};

/* Where a member stands. Texts live until the next call. */
struct pst_tree_place {
    uint32_t rank, members; /* the source is none */
    uint32_t parent_rank;
    struct pst_tree_pod parent, source;
    const char *source_path;
};

/**
 * pst_tree_join() - a member joins, or asks again where it stands
 * @key: normal, of 1 byte or more
 * @fanout: of a new tree; 0: PST_TREE_FANOUT
 * @source, @source_path: of a new tree, and of an old one from now on; NULL if there is none
 * Return: 0 and *@out. -ENOENT: a new tree without a source. -EINVAL: a text is empty or too long, or the
 * fanout. -ENOSPC: too many trees, or members. -ENOMEM.
 */
int pst_tree_join(struct pst_trees *trees, const char *group, struct pst_bytes key,
                  const struct pst_tree_pod *member, uint32_t fanout, const struct pst_tree_pod *source,
                  const char *source_path, uint64_t now_ms, struct pst_tree_place *out);
/*
 * @reporter could not reach its parent at @ip. Return: 0 and its new place, the same one if it has been moved
 * already. -ENOENT: no such tree, or @reporter is no member. -EHOSTUNREACH: @ip is the source, behind which
 * there is nobody. -EINVAL: @ip is not its parent, and never was one.
 */
int pst_tree_unreachable(struct pst_trees *trees, const char *group, struct pst_bytes key,
                         const char *reporter, const char *ip, uint64_t now_ms, struct pst_tree_place *out);

struct pst_tree_info {
    const char *group;
    struct pst_bytes key;
    uint32_t fanout, members, lost;
    struct pst_tree_pod source;
};

typedef void pst_tree_each(void *arg, const struct pst_tree_info *tree);

void pst_trees_list(const struct pst_trees *trees, pst_tree_each *each, void *arg);
/* Forgets trees that nobody has called for. */
void pst_trees_forget(struct pst_trees *trees, uint64_t now_ms);

#endif

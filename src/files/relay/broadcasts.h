/* SPDX-License-Identifier: Apache-2.0 */
/*
 * broadcasts.h: the source's side of pipelined broadcasts. The store has the tree, or an agent the memory of
 * tensors: it is the source, and keeps the row of members (`chain/chain.h`). A broadcast has a group and a
 * tree's name; the first member to join makes it, and then the source reads the tree once, for the digests of
 * its pieces.
 *
 * Any thread: those of the port for trees serve members, one each. Source: docs/reference/tree-protocol.md.
 */
#ifndef PST_FILES_BROADCASTS_H
#define PST_FILES_BROADCASTS_H

#include "files/carry/carry.h"
#include "files/chain/chain.h"

enum {
    PST_BROADCAST_VERSION = 2,           /* of its frames */
    PST_BROADCASTS_MAX = 64,             /* then the one that was idle longest is forgotten */
    PST_BROADCAST_LIFE_MS = 3600 * 1000, /* after the last call for it */
    PST_BROADCAST_MEMBERS = 64,          /* that are reckoned with, unless the first says */
    PST_BROADCAST_FANOUT = 50,           /* of the tree of copies that a row is compared with */
};

struct pst_broadcasts;

/* A tree of files that lie in no folder. */
struct pst_broadcast_files {
    struct pst_manifest m;
    int *fds; /* malloc()ed: of each entry, which belong to it; -1 of a folder */
};

struct pst_broadcasts_settings {
    /* A tree that lies in a folder: as of struct pst_carry_server_settings. NULL: there is @gather. */
    int (*resolve)(void *ctx, const char *name, bool writes, int *folder_fd, char leaf[256],
                   char fault[PST_FAULT_BYTES]);
    bool munged;
    /* One that does not: fills *@out, which is zeroed and belongs to the broadcast, in failure too. Such a
     * tree is never one of copies. Any thread. Return: 0, or -errno with a text in @fault. */
    int (*gather)(void *ctx, const char *group, const char *name, struct pst_broadcast_files *out,
                  char fault[PST_FAULT_BYTES]);
    void *ctx;
};

/* Return: NULL without memory. */
struct pst_broadcasts *pst_broadcasts_open(const struct pst_broadcasts_settings *settings);
/* Nobody is served any more. Returns NULL. */
struct pst_broadcasts *pst_broadcasts_close(struct pst_broadcasts *all);
/* The connections of those who are served end; they come again to a source that starts anew. */
void pst_broadcasts_stop(struct pst_broadcasts *all);
/* What the carry server hands on. Return: 0 or the link's error. */
int pst_broadcasts_serve(struct pst_broadcasts *all, struct link *link, uint32_t operation, const char *name);
void pst_broadcasts_forget(struct pst_broadcasts *all, uint64_t now_ms);

struct pst_broadcast_info {
    const char *group, *name;
    uint32_t members, piece_bytes, pieces;
    uint64_t bytes;
};

/* Called for each broadcast, and behind it for its members. */
struct pst_broadcast_each {
    void (*broadcast)(void *arg, const struct pst_broadcast_info *info);
    pst_chain_each *member;
    void *arg;
};

/* @group: NULL all. The callbacks may not call back. */
void pst_broadcasts_list(struct pst_broadcasts *all, const char *group,
                         const struct pst_broadcast_each *each);

#endif

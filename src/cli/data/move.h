/* SPDX-License-Identifier: Apache-2.0 */
/*
 * move.h: files and folders between this host and a data store, or from another pod. Bytes go by the store's
 * own protocol or by the real rsync, as `--transport` says. Main thread; a call blocks it.
 *
 * What is not at its destination here yet appears there whole. Until then it lies in a hidden folder beside
 * it, where the next try goes on: `.penstock-NAME.tree` of the native transport, `.penstock-NAME.part` of
 * rsync. What is there already is brought up to date file by file.
 */
#ifndef PST_CLI_MOVE_H
#define PST_CLI_MOVE_H

#include "cli/data/data.h"
#include "files/tree/arrival.h"

/* All of it is borrowed during a call. */
struct pst_move {
    bool puts; /* from here to there */
    const char *local;
    const char *key;    /* normal */
    bool is_folder;     /* put: @local is one. get: what the key's folder has becomes @local */
    const char *source; /* get: another pod's rsync URL; NULL: the store */
    bool is_local;
};

/* Return: 0, and *@result grows; else a text in @fault and -errno, with @move->is_local set if this host was
 * at fault, and no other source would serve better. */
int pst_move(struct pst_data *data, struct pst_move *move, struct pst_arrival_result *result,
             char fault[PST_FAULT_BYTES]);
/* Whether the next can be done, asked before bytes move. */
int pst_move_check_removal(const struct pst_data *data, const struct pst_move *move,
                           char fault[PST_FAULT_BYTES]);
/* Removes from the key's folder what the folder @move->local does not have. Wants rsync. */
int pst_move_remove_others(struct pst_data *data, const struct pst_move *move, char fault[PST_FAULT_BYTES]);

/* ---- places of this host, for rsync ---- */

/* Makes the folder @path, and those in front of it. Return: 0 or -errno. */
int pst_place_mkdirs(const char *path);
/* Removes a file, or a folder with all that it has; no link is followed. Return: 0 or -errno. */
int pst_place_remove(const char *path);
/* Removes every folder @name that lies below @path. Return: 0 or -errno. */
int pst_place_remove_named(const char *path, const char *name);
/* Whether a link is among what lies below the folder @path. */
bool pst_place_has_links(const char *path);

#endif

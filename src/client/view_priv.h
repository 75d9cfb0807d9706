/* SPDX-License-Identifier: Apache-2.0 */
/* view_priv.h: values looked at in place: the memory of this process that shows pieces of a node's arenas. */
#ifndef PST_VIEW_PRIV_H
#define PST_VIEW_PRIV_H

#include "client/client_priv.h"

/* A view's words. */
enum { VIEW_HANDLE, VIEW_SHARD, VIEW_MAP, VIEW_STITCH };

/* ---- stitch.c ---- */

/* Where a piece lies in an arena's file. */
struct pst_piece_file {
    int fd;
    uint64_t offset;
};

enum { PST_VIEW_PIECES_MAX = 1024 };

/* Maps @count pieces behind one another at @view->data. Return: 0 or -errno. */
int pst_stitch(const struct pst_wire_piece *pieces, const struct pst_piece_file *files, uint32_t count,
               struct penstock_view *view);
void pst_unstitch(struct penstock_view *view);

/* ---- arenas.c: a node's arenas, mapped for views ---- */

struct pst_arena_map;

/* Maps those of the channel's present session at *@map. Return: 0 (NULL when it brought none) or -errno. */
int pst_arena_map_open(struct pst_arena_map **map, struct pst_channel *channel);
/* Makes pieces readable that were named in @session. Return: 0 or -errno. */
int pst_arena_map_view(struct pst_arena_map **map, struct pst_channel *channel, uint64_t session,
                       const struct pst_wire_piece *pieces, uint32_t count, struct penstock_view *view);
void pst_arena_map_unview(struct penstock_view *view);
/* True while the session that gave the view lives. */
bool pst_arena_map_live(const struct penstock_view *view, const struct pst_channel *channel);
/* Lets go of those of a session that is over: their views alone hold its socket then. */
void pst_arena_map_check(struct pst_arena_map **map, const struct pst_channel *channel);
void pst_arena_map_drop(struct pst_arena_map **map);
/* Views go with their store, released or not. */
void pst_arena_map_close(struct pst_arena_map **map);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * map_fetch.h: a pool map on its way here, piece by piece. A master that has another one meanwhile begins it
 * anew. Pure: the caller asks, from `at` on, and hands over what comes.
 */
#ifndef PST_MAP_FETCH_H
#define PST_MAP_FETCH_H

#include "pool/map.h"

struct pst_map_fetch {
    uint8_t *bytes; /* map_bytes of them, of which the first `at` are there */
    uint64_t at, map_bytes;
    uint64_t version;  /* that the pieces are of */
    uint32_t restarts; /* since pst_map_fetch_begin() */
};

/* @fetch is zeroed, or has been used. */
void pst_map_fetch_begin(struct pst_map_fetch *fetch);
void pst_map_fetch_fini(struct pst_map_fetch *fetch);
/*
 * @answer: struct pst_pool_map and a piece, of the pool map with @version. Return: 1 ask again, from
 * fetch->at on; 0 it is here, or with no map_bytes the one that the asker has; -EPROTO no master says that,
 * -ENOMEM.
 */
int pst_map_fetch_take(struct pst_map_fetch *fetch, struct pst_bytes answer, uint64_t version);
/* The pool map that is here, with room for @members_max. Return: as of pst_map_decode(), or -EPROTO: the
 * master says that the asker has it, who has none. */
int pst_map_fetch_decode(const struct pst_map_fetch *fetch, uint32_t members_max, struct pst_map **out);

#endif

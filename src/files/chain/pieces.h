/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pieces.h: a tree as a row of pieces of one size, which a broadcast passes from member to member. The bytes
 * of all files, in the order of the manifest, follow each other without a gap; a piece is a part of that row.
 * So small files travel together, and a large one comes in many pieces.
 *
 *     files    | a       | b | c                  | d  |
 *     pieces   |    0    |    1    |    2    |    3    |
 *
 * An empty file is in no piece. Pure; any thread. Source: docs/reference/data-store.md, broadcasts.
 */
#ifndef PST_FILES_PIECES_H
#define PST_FILES_PIECES_H

#include "base/base.h"

enum {
    PST_PIECE_BYTES_MIN = 16 << 10,
    PST_PIECE_BYTES_MAX = 1 << 20,
    PST_PIECES_MAX = 1 << 22, /* of a tree: 4 TiB in the largest */
    PST_PIECES_SHARE = 16, /* passing a piece through the whole chain takes such a part of the tree's time */
    PST_CHAIN_HOP_BYTES =
        128 << 10, /* what a link carries while a member turns a piece round: 1 ms at 1 Gbit/s */
};

/*
 * How large the pieces of a tree of @bytes are, if @members take part, the source among them: the largest
 * power of two, of 16 KiB to 1 MiB, of which @members - 1 are a sixteenth of the tree at the most. Return: 0:
 * the tree has more than PST_PIECES_MAX of the largest.
 */
uint32_t pst_piece_bytes(uint32_t members, uint64_t bytes);

/*
 * Whether a chain ends sooner than a tree whose members fetch whole copies, @fanout from each. The chain
 * takes the time of @bytes and, for each member, of a piece and a hop; the tree as often that of @bytes as a
 * parent has children, on each level.
 */
bool pst_chain_pays(uint32_t members, uint64_t bytes, uint32_t fanout);

/* The row: where each file begins. */
struct pst_pieces {
    const uint64_t *starts; /* @entries + 1 of them, which do not fall; the last is where the row ends */
    uint32_t entries;
    uint32_t piece_bytes;
};

uint32_t pst_pieces_count(const struct pst_pieces *pieces);
/* Of one piece: all have the same but the last. */
uint32_t pst_piece_length(const struct pst_pieces *pieces, uint32_t piece);

/* A part of a piece: bytes of one file. */
struct pst_piece_part {
    uint32_t entry;
    uint64_t at; /* in the file */
    uint32_t bytes;
};

/* Goes through the parts of a piece in their order. */
struct pst_piece_walk {
    const struct pst_pieces *pieces;
    uint64_t at, end; /* in the row */
    uint32_t entry;
};

void pst_piece_walk(const struct pst_pieces *pieces, uint32_t piece, struct pst_piece_walk *walk);
/* Return: false there are no more. */
bool pst_piece_next(struct pst_piece_walk *walk, struct pst_piece_part *out);

#endif

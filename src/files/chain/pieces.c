/* SPDX-License-Identifier: Apache-2.0 */
/* pieces.c: sizes of pieces, and which bytes of which files a piece has. */
#include "files/chain/pieces.h"

_Static_assert(PST_PIECE_BYTES_MIN <= PST_PIECE_BYTES_MAX && PST_PIECE_BYTES_MAX % PST_PIECE_BYTES_MIN == 0,
               "sizes of pieces");

uint32_t pst_piece_bytes(uint32_t members, uint64_t bytes)
{
    uint64_t most = bytes / PST_PIECES_SHARE / (members > 1 ? members - 1 : 1);
    uint32_t piece_bytes = PST_PIECE_BYTES_MAX;

    while (piece_bytes > PST_PIECE_BYTES_MIN && piece_bytes > most)
        piece_bytes /= 2;
    while (piece_bytes < PST_PIECE_BYTES_MAX && pst_div_up(bytes, piece_bytes) > PST_PIECES_MAX)
        piece_bytes *= 2;
    return pst_div_up(bytes, piece_bytes) <= PST_PIECES_MAX ? piece_bytes : 0;
}

/* How often the time of the whole tree the last level of a tree of copies ends after the start. */
static uint64_t copies_in_a_row(uint32_t receivers, uint32_t fanout)
{
    uint64_t level = fanout, left = receivers, copies = 0;

    pst_assert(fanout > 0);
    while (left > 0) {
        uint64_t here = pst_min(level, left);

        copies += pst_min(fanout, here);
        left -= here;
        level *= fanout;
    }
    return copies;
}

bool pst_chain_pays(uint32_t members, uint64_t bytes, uint32_t fanout)
{
    uint32_t piece_bytes = pst_piece_bytes(members, bytes);

    if (members <= 2 || piece_bytes == 0)
        return false;
    return bytes + (uint64_t)(members - 1) * (piece_bytes + PST_CHAIN_HOP_BYTES) <
           copies_in_a_row(members - 1, fanout) * bytes;
}

static uint64_t row_bytes(const struct pst_pieces *pieces)
{
    pst_assert(pieces->starts[0] == 0);
    return pieces->starts[pieces->entries];
}

uint32_t pst_pieces_count(const struct pst_pieces *pieces)
{
    uint64_t count = pst_div_up(row_bytes(pieces), pieces->piece_bytes);

    pst_assert(count <= PST_PIECES_MAX);
    return (uint32_t)count;
}

uint32_t pst_piece_length(const struct pst_pieces *pieces, uint32_t piece)
{
    pst_assert(piece < pst_pieces_count(pieces));
    return (uint32_t)pst_min(pieces->piece_bytes, row_bytes(pieces) - (uint64_t)piece * pieces->piece_bytes);
}

/* The file that has the byte @at of the row. */
static uint32_t entry_at(const struct pst_pieces *pieces, uint64_t at)
{
    uint32_t low = 0, high = pieces->entries; /* starts[low] <= at < starts[high] */

    pst_assert(at < row_bytes(pieces));
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;

        if (pieces->starts[middle] <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

void pst_piece_walk(const struct pst_pieces *pieces, uint32_t piece, struct pst_piece_walk *walk)
{
    uint64_t at = (uint64_t)piece * pieces->piece_bytes;

    *walk = (struct pst_piece_walk){pieces, at, at + pst_piece_length(pieces, piece), entry_at(pieces, at)};
}

bool pst_piece_next(struct pst_piece_walk *walk, struct pst_piece_part *out)
{
    const uint64_t *starts = walk->pieces->starts;

    pst_assert(walk->at <= walk->end);
    if (walk->at == walk->end)
        return false;
    while (starts[walk->entry + 1] <= walk->at)
        walk->entry++;
    pst_assert(walk->entry < walk->pieces->entries);
    pst_assert(starts[walk->entry] <= walk->at);
    *out = (struct pst_piece_part){walk->entry, walk->at - starts[walk->entry],
                                   (uint32_t)(pst_min(walk->end, starts[walk->entry + 1]) - walk->at)};
    walk->at += out->bytes;
    return true;
}

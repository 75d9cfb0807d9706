/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pooled.h: a tree as values of a store. Its files' bytes, holes left out, follow each other in the order of
 * the entries; this row is cut into chunks, each a value that is named by its SHA-256:
 *
 *     tree/NAME         the root: figures of the tree, and the chunks that have its list
 *     chunk/SHA-256     a chunk of the list, or of the row
 *     the list          entries, holes, chunks of the row
 *
 * Whoever makes a tree cuts as they like. A reader believes a root and a list only as far as these functions
 * have checked them: entries as a manifest does, holes that lie in files, chunks that are the row.
 *
 * Bytes: docs/reference/pool-trees.md. Pure; one thread at a time.
 */
#ifndef PST_FILES_POOLED_H
#define PST_FILES_POOLED_H

#include "files/tree/chunk.h"
#include "files/tree/manifest.h"

#define PST_POOLED_TREES  "tree/"
#define PST_POOLED_CHUNKS "chunk/"

enum {
    PST_POOLED_NAME_BYTES_MAX = 1024,
    PST_POOLED_KEY_BYTES = sizeof(PST_POOLED_CHUNKS) - 1 + 2 * PST_SHA256_BYTES, /* of a chunk */
    PST_POOLED_LIST_BYTES_MAX = 1 << 30,
    PST_POOLED_CHUNKS_MAX = 1 << 24, /* of a row: more than 1 TiB of them on the average */
};

struct pst_pooled_chunk {
    uint8_t sha256[PST_SHA256_BYTES];
    uint32_t bytes; /* of the value, and of the row that it is */
};

/* Zeroed at first. */
struct pst_pooled_chunks {
    struct pst_pooled_chunk *list;
    uint32_t count, room;
    uint64_t bytes;
};

/* Of a file; in the order of entries and places. */
struct pst_pooled_hole {
    uint32_t entry;
    uint64_t at, bytes;
};

/* Zeroed at first. */
struct pst_pooled {
    struct pst_manifest m;
    struct pst_pooled_hole *holes;
    uint32_t hole_count, hole_room;
    uint64_t hole_bytes;
    struct pst_pooled_chunks chunks;
};

/* Zeroed at first. */
struct pst_pooled_root {
    uint32_t entry_count, file_count, chunk_count;
    uint64_t file_bytes, data_bytes; /* of files, and without their holes */
    struct pst_pooled_chunks parts;
};

void pst_pooled_chunks_fini(struct pst_pooled_chunks *chunks);
void pst_pooled_root_fini(struct pst_pooled_root *root);
void pst_pooled_fini(struct pst_pooled *tree);

/* The key of a chunk, with a NUL behind it. */
void pst_pooled_key(const struct pst_pooled_chunk *chunk, char out[PST_POOLED_KEY_BYTES + 1]);
/* Whether the key is that of a chunk, whose digest goes to @sha256. */
bool pst_pooled_key_parse(const void *key, size_t key_bytes, uint8_t sha256[PST_SHA256_BYTES]);

/* Return: 0; -EBADMSG no chunk is as long, -E2BIG, -ENOMEM. */
int pst_pooled_chunks_add(struct pst_pooled_chunks *chunks, const struct pst_pooled_chunk *chunk);
/* Return: 0; -EBADMSG it is not behind the last one, or not in a file; -ENOMEM. */
int pst_pooled_hole_add(struct pst_pooled *tree, const struct pst_pooled_hole *hole);

/* Takes the next bytes, borrowed. Return: 0, or what ends the writing. */
typedef int pst_pooled_write(void *ctx, const void *data, size_t bytes);
/* The list of a whole tree. Return: 0, or what @write returned. */
int pst_pooled_encode(const struct pst_pooled *tree, pst_pooled_write *write, void *ctx);
/* Both decode into what is zeroed, and is to be ended either way. Return: 0, -EBADMSG, -E2BIG, -ENOMEM; of a
 * root -EPROTONOSUPPORT a later version wrote it. */
int pst_pooled_decode(const struct pst_pooled_root *root, const void *list, size_t bytes,
                      struct pst_pooled *out);
int pst_pooled_root_decode(const void *data, size_t bytes, struct pst_pooled_root *out);
/* @parts: of the tree's list. Return: 0, *@out, for free(), and its length; -ENOMEM. */
int pst_pooled_root_encode(const struct pst_pooled *tree, const struct pst_pooled_chunks *parts,
                           uint8_t **out, size_t *bytes);

/* ---- what lies where ---- */

enum { PST_POOLED_HOLE = UINT32_MAX };

/* A part of a file that is a hole, or lies in one chunk. */
struct pst_pooled_piece {
    uint32_t entry, chunk; /* @chunk: PST_POOLED_HOLE */
    uint32_t chunk_offset;
    uint64_t at, bytes;
};

/* Zeroed at first but for the tree, which is whole. A copy of a walk goes on from the same place. */
struct pst_pooled_walk {
    const struct pst_pooled *tree;
    uint32_t entry, hole, chunk, chunk_offset;
    uint64_t at;
};

/* The next piece of the files, in their order; empty files have none. Return: whether there was one. */
bool pst_pooled_walk_next(struct pst_pooled_walk *walk, struct pst_pooled_piece *out);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trees_priv.h: trees in a pool or a node, as the parts of this folder see them: command.c reads arguments
 * and prints, put.c, get.c and prune.c do what they say, upload.c and fetch.c move chunks, earlier.c has what
 * a put replaces, roots.c reads roots and lists, lock.c keeps puts and prunes apart.
 *
 * All functions: main thread, borrow what they are given; 0, or -errno with a text in the fault of `trees`.
 */
#ifndef PST_CLI_TREES_PRIV_H
#define PST_CLI_TREES_PRIV_H

#include "cli/cli.h"
#include "files/pooled/pooled.h"
#include "files/tree/arrival.h"
#include "files/tree/source.h"

#define TREES_LOCKS "tree-lock/"
#define TREES_PRUNE "tree-prune"

enum {
    TREES_BATCH_BYTES = 16 << 20, /* of chunks underway */
    TREES_BATCH_CHUNKS = 1024,
    TREES_KEY_BYTES = 64 + PST_POOLED_NAME_BYTES_MAX, /* of any key here, with a NUL */
    TREES_TRIES = 8,                                  /* of writes whose outcome is not known */
};

struct trees {
    struct penstock *store;
    const char *name; /* of the tree; "": all of them */
    bool durable;
    uint32_t flags; /* enum pst_arrival_flags; of a put PST_ARRIVAL_FORCE alone */
    struct pst_filters filters;
    struct pst_progress *bar;
    char fault[PST_FAULT_BYTES];
};

int trees_fail(struct trees *trees, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* What an operation on @key ended with, as an errno with its text. */
int trees_fail_key(struct trees *trees, const char *key, int result);
/* Runs one operation. Return: its result. */
int trees_run(struct trees *trees, struct penstock_op *op);
/* The key of the tree's root. */
void trees_root_key(const struct trees *trees, char key[TREES_KEY_BYTES]);

/* ---- lock.c ---- */

/*
 * A value that ends by itself, written anew until it is given back. A put holds its tree's, a prune its own.
 * A put that finds a prune's waits for it; a prune that finds a put's waits for that. As each writes its own
 * before it looks for the other's, no two of them go on.
 */
struct trees_lock {
    char key[TREES_KEY_BYTES];
    char token[40];
    uint64_t generation; /* 0: it is not held */
    uint64_t written_ns;
};

/* Waits for whoever has it. -EBUSY: for too long. */
int trees_lock_take(struct trees *trees, struct trees_lock *lock, const char *key, uint32_t wait_ms);
/* Of the tree, with no prune underway. */
int trees_lock_tree(struct trees *trees, struct trees_lock *lock);
/* To be called every few seconds. -ESTALE: it was lost. */
int trees_lock_keep(struct trees *trees, struct trees_lock *lock);
/* The same, whenever it was written last: a node that began anew has no locks. Before what nobody could take
 * back. */
int trees_lock_prove(struct trees *trees, struct trees_lock *lock);
/* Return: whether it was held until now. */
bool trees_lock_give(struct trees *trees, struct trees_lock *lock);

/* ---- upload.c ---- */

/* Chunks on their way into the store. */
struct upload {
    struct trees *trees;
    struct trees_lock *lock;
    struct pst_pooled_chunks *list; /* gets them */
    uint8_t *buffer;                /* TREES_BATCH_BYTES */
    size_t filled, cut;             /* bytes in it, and those that belong to a chunk */
    struct upload_chunk *chunks;    /* that have not been sent; TREES_BATCH_CHUNKS */
    struct penstock_op *ops;
    uint32_t count;
    uint64_t sent, there; /* bytes of chunks */
};

int upload_open(struct upload *u, struct trees *trees, struct trees_lock *lock);
void upload_close(struct upload *u);
/* Room for the next bytes. */
int upload_space(struct upload *u, uint8_t **at, size_t *room);
/* So many were written there. */
int upload_filled(struct upload *u, size_t bytes);
/* What follows begins a chunk. */
int upload_cut(struct upload *u);
/* Cuts, and sends what is left. */
int upload_end(struct upload *u);
/* Bytes from elsewhere; @u: struct upload. */
int upload_write(void *u, const void *data, size_t bytes);

/* Appends chunks that are known, if all of them are in the store. Return: 1 done, 0 they are not. */
int upload_known(struct upload *u, const struct pst_pooled_chunk *chunks, uint32_t count);

/* ---- earlier.c ---- */

/* The tree that has the name until a put ends. Zeroed at first; @first NULL: there is none. */
struct earlier {
    struct pst_pooled tree;
    uint32_t *first; /* of each entry the first chunk, if it is a file that shares none */
};

int earlier_load(struct trees *trees, struct earlier *earlier);
void earlier_fini(struct earlier *earlier);
/* The chunks of a file with the entry's path, size and time. Return: whether there is one. */
bool earlier_find(const struct earlier *earlier, const struct pst_entry *entry, uint32_t *chunk,
                  uint32_t *count);

/* ---- fetch.c ---- */

struct trees_slot {
    const struct pst_pooled_chunk *chunk;
    uint8_t *data; /* gets its bytes */
};

/* Reads chunks, TREES_BATCH_CHUNKS at the most, and checks their digests. -ENOENT one is not there, -EBADMSG
 * its bytes are others; then *@failed is its place. */
int trees_fetch(struct trees *trees, const struct trees_slot *slots, uint32_t count, uint32_t *failed);

/* ---- roots.c ---- */

/* Reads and checks a root. *@root is zeroed, and to be ended either way. @generation: NULL is fine. */
int trees_root(struct trees *trees, const char *name, struct pst_pooled_root *root, uint64_t *generation);
/* Reads the list of a root. *@tree is zeroed, and to be ended either way. */
int trees_list(struct trees *trees, const char *name, const struct pst_pooled_root *root,
               struct pst_pooled *tree);
/* Calls @each for every key that begins so. Return: what @each returned, if not 0; a fault unless the listing
 * came to its end. */
int trees_each_key(struct trees *trees, const char *prefix,
                   int (*each)(void *ctx, const struct penstock_entry *), void *ctx);
/* What the root's generation is, 0: there is none. */
int trees_root_generation(struct trees *trees, uint64_t *generation);
/* Calls @each with the name of every tree. It may use the store. Return: what @each returned, if not 0. */
int trees_each(struct trees *trees, int (*each)(void *ctx, const char *name), void *ctx);

/* ---- what the commands do ---- */

int trees_put(struct trees *trees, int folder_fd, const char *leaf, struct pst_arrival_result *result);
int trees_get(struct trees *trees, int folder_fd, const char *leaf, struct pst_arrival_result *result);
/* Removes the root. */
int trees_remove(struct trees *trees);

struct trees_pruned {
    uint64_t chunks, bytes; /* removed */
    uint64_t kept;          /* chunks */
};

/* @wait_ms: how long for puts, and for another prune. -EBUSY: they did not end. */
int trees_prune(struct trees *trees, uint32_t wait_ms, struct trees_pruned *pruned);

#endif

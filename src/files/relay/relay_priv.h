/* SPDX-License-Identifier: Apache-2.0 */
/*
 * relay_priv.h: the parts of a pipelined broadcast, and the frames that members and source exchange.
 *
 *     plan.c        what is broadcast: the manifest, its pieces and their digests
 *     feed.c        serves a child: the store's part and a member's alike (feed_priv.h)
 *     call.c        a member's calls to the store
 *     follow.c      a member fetches from its parent
 *     member.c      all that a member does
 *     broadcasts.c  the store's side: broadcasts by group and name, and what it answers
 *     tree.c        the source's tree: its plan, and digests as they are needed; sign.c its word for them
 *     digest.c      digests of pieces
 *     sink.c        a member whose tree gets a place in a folder
 *
 * A digest of a piece is SHA-256, or where the source's processor has no instructions for that BLAKE2b, the
 * first 32 bytes. That of the transfer of one tree between two sides, which trust each other, is keyed: each
 * could make other bytes with the same one, and here members in between must not be able to. The source signs
 * digests, and every member has the key from the store.
 */
#ifndef PST_FILES_RELAY_PRIV_H
#define PST_FILES_RELAY_PRIV_H

#include "files/carry/carry_priv.h"
#include "files/chain/chain.h"
#include "files/chain/pieces.h"
#include "files/chain/turns.h"
#include "files/relay/broadcasts.h"
#include "files/tree/source.h"

#include <pthread.h>

enum {
    RELAY_KEY_BYTES = 32, /* Ed25519 */
    RELAY_SIGNATURE_BYTES = 64,
    RELAY_BATCH_BYTES = 1 << 20, /* pieces whose digests are signed together */
    RELAY_BATCH_PIECES_MAX = RELAY_BATCH_BYTES / PST_PIECE_BYTES_MIN,
    RELAY_GROUP_BYTES_MAX = 1024,
};

_Static_assert((int)RELAY_BATCH_BYTES >= (int)PST_PIECE_BYTES_MAX, "a batch has a piece");
_Static_assert(4 + RELAY_SIGNATURE_BYTES + RELAY_BATCH_PIECES_MAX * PST_SHA256_BYTES <=
                   (int)LINK_FRAME_BYTES_MAX,
               "a frame has room for a batch's digests");
_Static_assert(4 + (int)PST_PIECE_BYTES_MAX <= (int)LINK_FRAME_BYTES_MAX, "a frame has room for a piece");
_Static_assert((int)PST_CHAIN_BEAT_MS < (int)PST_CHAIN_SILENCE_MS &&
                   (int)PST_CHAIN_SILENCE_MS < (int)PST_CHAIN_GONE_MS,
               "a child reports a dead parent before the store takes the child for dead");

/* What a member tells the store of itself. */
enum relay_word {
    RELAY_PROGRESS = 1,
    RELAY_DONE,
    RELAY_SILENT,      /* its parent is, */
    RELAY_WRONG_BYTES, /* or has passed on what the source does not have */
    RELAY_LEAVE,
};

/* Of PLACE. */
enum relay_place_flags { RELAY_MAY_LEAVE = 1, RELAY_COPIES = 2, RELAY_BLAKE2B = 4 };
/* Of FOLLOW. */
enum relay_follow_flags { RELAY_WANTS_PLAN = 1 };

/* ---- plan.c ---- */

struct relay_plan {
    struct pst_manifest m;
    uint64_t *starts;
    struct pst_pieces pieces; /* of @m and @starts */
    uint32_t count;           /* of pieces */
    uint32_t batch_pieces, batch_count;
    uint8_t manifest_digest[PST_SHA256_BYTES]; /* SHA-256 of the entries and the pieces' length */
    bool blake2b;                              /* digests of pieces are, and not SHA-256 */
    /* Of a batch: known once it has been made, or has come. */
    uint8_t (*digests)[PST_SHA256_BYTES];
    uint8_t (*signatures)[RELAY_SIGNATURE_BYTES];
};

void relay_plan_fini(struct relay_plan *plan);
/* Its numbers alone stay. */
void relay_plan_shrink(struct relay_plan *plan);
/* Cuts the tree of @plan->m. Return: 0, -ENOMEM, -E2BIG too many pieces. */
int relay_plan_cut(struct relay_plan *plan, uint32_t piece_bytes);
/* How many pieces a batch has: all have the same but the last. */
uint32_t relay_batch_count(const struct relay_plan *plan, uint32_t batch);
int relay_batch_send(struct link *link, const struct relay_plan *plan, uint32_t batch);
/* The frame's digests become those of @batch. Return: 0; -EBADMSG: they are not the source's, whose key is
 * @key. */
int relay_batch_take(struct pst_reader *frame, const uint8_t key[RELAY_KEY_BYTES], struct relay_plan *plan,
                     uint32_t batch);

/* ---- digest.c ---- */

/* Of a piece; @blake2b: as the source has said. */
void relay_digest(bool blake2b, const void *data, size_t bytes, uint8_t out[PST_SHA256_BYTES]);
/* Whether a source on this processor takes BLAKE2b: it has no instructions for SHA-256. */
bool relay_prefers_blake2b(void);

/* ---- sign.c ---- */

struct relay_signer;

/* Draws a key. Return: NULL without memory. */
struct relay_signer *relay_signer_open(uint8_t public_key[RELAY_KEY_BYTES]);
/* Returns NULL. */
struct relay_signer *relay_signer_close(struct relay_signer *signer);
/* Signs the digests of a batch, and with them the manifest. */
void relay_sign(const struct relay_signer *signer, struct relay_plan *plan, uint32_t batch);
bool relay_verify(const uint8_t public_key[RELAY_KEY_BYTES], const struct relay_plan *plan, uint32_t batch);

/* ---- frames: plan.c ---- */

/* Where a member stands, as the store says. */
struct relay_place {
    bool may_leave, copies, blake2b;
    uint32_t rank, parent_rank;
    uint16_t port; /* 0: the parent is the source */
    char host[PST_CHAIN_HOST_BYTES_MAX + 1];
    uint32_t piece_bytes, pieces;
    uint64_t bytes; /* of the tree */
    uint8_t key[RELAY_KEY_BYTES];
};

int relay_send_place(struct link *link, const struct relay_place *place);
int relay_receive_place(struct link *link, struct relay_place *out);

/* ---- tree.c ---- */

/* The source's tree. */
struct relay_tree {
    struct pst_source source; /* its descriptors are the tree's, -1: none */
    char leaf[256];
    int *fds;    /* of entries that lie in no folder; NULL: they do */
    bool copies; /* fetching copies is quicker: there is no plan beyond the manifest */
    struct relay_plan plan;
    uint8_t key[RELAY_KEY_BYTES];
    struct relay_signer *signer;
    pthread_mutex_t lock; /* of batches that are made */
    bool *made;
};

struct relay_feed_ops;

/* Its context is a tree. */
extern const struct relay_feed_ops relay_tree_ops;

void relay_tree_init(struct relay_tree *tree);
/* Takes over files that lie in no folder. */
int relay_tree_gather(struct relay_tree *tree, const struct pst_broadcasts_settings *settings,
                      const char *group, const char *name, char fault[PST_FAULT_BYTES]);
/* Lists the tree, whose leaf and source.folder_fd are set, unless it was gathered; @members: the source too.
 * Return: 0, or -errno with a text. */
int relay_tree_prepare(struct relay_tree *tree, uint32_t members, char fault[PST_FAULT_BYTES]);
/* Its numbers alone stay. */
void relay_tree_shrink(struct relay_tree *tree);
void relay_tree_fini(struct relay_tree *tree);

#endif

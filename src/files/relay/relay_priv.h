/* SPDX-License-Identifier: Apache-2.0 */
/*
 * relay_priv.h: the parts of a pipelined broadcast, and the frames by which its members and the store speak.
 *
 *     plan.c        what is broadcast: the manifest, its pieces and their digests
 *     feed.c        serves a child: the store's part and a member's alike
 *     call.c        a member's calls to the store
 *     follow.c      a member fetches from its parent
 *     member.c      all that a member does
 *     broadcasts.c  the store's side: broadcasts by group and name, and what it answers
 *     prepare.c     the plan of the store's tree
 *
 * A digest of a piece is SHA-256. That of the transfer of one tree between two sides, which trust each other,
 * is keyed: each could make other bytes with the same one, and here members in between must not be able to.
 */
#ifndef PST_FILES_RELAY_PRIV_H
#define PST_FILES_RELAY_PRIV_H

#include "files/carry/carry_priv.h"
#include "files/chain/chain.h"
#include "files/chain/pieces.h"
#include "files/chain/turns.h"
#include "files/relay/broadcasts.h"

#include <pthread.h>

enum {
    RELAY_DIGEST_BYTES = 32,
    RELAY_GROUP_BYTES_MAX = 1024,
};

/* What a member tells the store of itself. */
enum relay_word {
    RELAY_PROGRESS = 1,
    RELAY_DONE,
    RELAY_SILENT,      /* its parent is, */
    RELAY_WRONG_BYTES, /* or has passed on what the source does not have */
    RELAY_LEAVE,
};

/* Of PLACE. */
enum relay_place_flags { RELAY_MAY_LEAVE = 1, RELAY_COPIES = 2 };
/* Of FOLLOW. */
enum relay_follow_flags { RELAY_WANTS_PLAN = 1 };

/* ---- plan.c ---- */

struct relay_plan {
    struct pst_manifest m;
    uint64_t *starts;
    struct pst_pieces pieces; /* of @m and @starts */
    uint32_t count;           /* of pieces */
    uint8_t (*digests)[RELAY_DIGEST_BYTES];
};

void relay_plan_fini(struct relay_plan *plan);
/* Cuts the tree of @plan->m. Return: 0, -ENOMEM, -E2BIG too many pieces. */
int relay_plan_cut(struct relay_plan *plan, uint32_t piece_bytes);
void relay_piece_digest(const void *data, size_t bytes, uint8_t out[RELAY_DIGEST_BYTES]);
/* Of all of the plan: who knows it can check a plan, and with that every piece. */
void relay_plan_digest(const struct relay_plan *plan, uint8_t out[RELAY_DIGEST_BYTES]);
/* Both: 0 or the link's error; of the latter -EBADMSG: it is not the plan whose digest is @digest. */
int relay_plan_send(struct link *link, const struct relay_plan *plan);
int relay_plan_receive(struct link *link, uint32_t piece_bytes, const uint8_t digest[RELAY_DIGEST_BYTES],
                       struct relay_plan *plan);

/* ---- frames: plan.c ---- */

/* Where a member stands, as the store says. */
struct relay_place {
    bool may_leave, copies;
    uint32_t rank, parent_rank;
    uint16_t port; /* 0: the parent is the source */
    char host[PST_CHAIN_HOST_BYTES_MAX + 1];
    uint32_t piece_bytes, pieces;
    uint64_t bytes; /* of the tree */
    uint8_t digest[RELAY_DIGEST_BYTES];
};

void relay_put_text(struct link *link, const char *text);
/* Sets @frame->bad if the text is longer than @cap - 1, or has a NUL. */
void relay_read_text(struct pst_reader *frame, char *out, size_t cap);
int relay_send_place(struct link *link, const struct relay_place *place);
int relay_receive_place(struct link *link, struct relay_place *out);

/* ---- feed.c ---- */

/*
 * From what a child is served: pieces that are there, read from their files. One child at a time; a new one
 * takes the place of another, which the store has moved.
 */
struct relay_feed {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    const struct relay_plan *plan; /* NULL: it has not come yet */
    uint32_t have;
    bool over;                   /* nobody is served any more */
    char fault[PST_FAULT_BYTES]; /* a file that cannot be read; "": none */
    uint64_t children;           /* so many have come: the number of the newest */
    struct link *child;          /* NULL: none is served */
    bool child_done;             /* the newest has everything */
    uint64_t served_ms;          /* when a piece was sent last */
    /* A file for reading, which the feed closes. Return: -errno. */
    int (*open)(void *ctx, uint32_t entry);
    void *ctx;
};

/* A child's FOLLOW. */
struct relay_follow {
    char group[RELAY_GROUP_BYTES_MAX + 1];
    uint8_t digest[RELAY_DIGEST_BYTES];
    uint32_t next;
    bool wants_plan;
};

void relay_feed_init(struct relay_feed *feed, int (*open)(void *ctx, uint32_t entry), void *ctx);
void relay_feed_fini(struct relay_feed *feed);
void relay_feed_plan(struct relay_feed *feed, const struct relay_plan *plan, uint32_t have);
/* Another piece is there. */
void relay_feed_add(struct relay_feed *feed);
/* Ends it: whoever is served is told, and nobody is from then on. */
void relay_feed_end(struct relay_feed *feed);
/* Waits until the newest child has everything, @ms long at the most. */
void relay_feed_wait(struct relay_feed *feed, uint32_t ms);
/* When a piece was sent last. */
uint64_t relay_feed_served_ms(struct relay_feed *feed);
/* Return: 0 or the link's error. */
int relay_receive_follow(struct link *link, struct relay_follow *out);
/* Serves a child of the broadcast @digest, of @count pieces, to its end. Return: 0 or the link's error. */
int relay_feed_serve(struct relay_feed *feed, struct link *link, const struct relay_follow *follow,
                     const uint8_t digest[RELAY_DIGEST_BYTES], uint32_t count);

/* ---- prepare.c ---- */

/* The store's tree. */
struct relay_tree {
    int folder_fd, root_fd; /* -1: none */
    char leaf[256];
    bool copies; /* fetching copies is quicker: there is no plan beyond the manifest */
    struct relay_plan plan;
    uint8_t digest[RELAY_DIGEST_BYTES];
};

/* Lists and reads the tree @leaf of @folder_fd, which are set; @members: the source too. Return: 0 or the
 * link's error, to whose peer signs of life are sent. */
int relay_tree_prepare(struct relay_tree *tree, uint32_t members, struct link *link);
int relay_tree_open_entry(void *tree, uint32_t entry);
void relay_tree_fini(struct relay_tree *tree);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * feed_priv.h: what serves a child, of a source and of a member alike. Of those who have one: broadcasts.c,
 * tree.c, member_priv.h.
 */
#ifndef PST_FILES_FEED_PRIV_H
#define PST_FILES_FEED_PRIV_H

#include "files/relay/relay_priv.h"

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
    uint32_t served;             /* pieces that some child was sent, */
    uint64_t served_ms; /* and when the last of them was: one that comes again and again keeps nobody */
    const struct relay_feed_ops *ops;
    void *ctx;
};

struct relay_feed_ops {
    /* A file for reading, which the feed closes. Return: -errno. */
    int (*open)(void *ctx, uint32_t entry);
    /* Makes the digests of a batch; NULL: they are known with its pieces. Return: 0, or -errno and the file
     * at fault in *@entry. */
    int (*make_batch)(void *ctx, uint32_t batch, uint32_t *entry);
};

/* A child's FOLLOW. */
struct relay_follow {
    char group[RELAY_GROUP_BYTES_MAX + 1];
    uint8_t key[RELAY_KEY_BYTES];
    uint32_t next;
    bool wants_plan;
};

void relay_feed_init(struct relay_feed *feed, const struct relay_feed_ops *ops, void *ctx);
void relay_feed_fini(struct relay_feed *feed);
void relay_feed_plan(struct relay_feed *feed, const struct relay_plan *plan, uint32_t have);
/* Another piece is there. */
void relay_feed_add(struct relay_feed *feed);
/* Ends it: the connection of whoever is served ends, and nobody is from then on. */
void relay_feed_end(struct relay_feed *feed);
/* Waits until the newest child has everything, @ms long at the most. */
void relay_feed_wait(struct relay_feed *feed, uint32_t ms);
/* When a piece was sent that no child had been sent. */
uint64_t relay_feed_served_ms(struct relay_feed *feed);
/* Return: 0 or the link's error. */
int relay_receive_follow(struct link *link, struct relay_follow *out);
/* Serves a child of the broadcast with @key, of @count pieces, to its end. Return: 0 or the link's error. */
int relay_feed_serve(struct relay_feed *feed, struct link *link, const struct relay_follow *follow,
                     const uint8_t key[RELAY_KEY_BYTES], uint32_t count);

#endif

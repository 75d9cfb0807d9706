/* SPDX-License-Identifier: Apache-2.0 */
/*
 * member_priv.h: a member, as its parts see it. Three kinds of threads: the caller's fetches (follow.c), one
 * tells the store (member.c), and those of its server serve children (feed.c).
 */
#ifndef PST_FILES_MEMBER_PRIV_H
#define PST_FILES_MEMBER_PRIV_H

#include "files/relay/feed_priv.h"
#include "files/relay/relay.h"

enum {
    MEMBER_CONNECT_MS = 1500,
    MEMBER_CALL_MS = 10000, /* for an answer of the source, unless the timeout is shorter */
    MEMBER_TELL_MS = 1000,
    MEMBER_RETRY_MS = 100,
    MEMBER_LINGER_MS = 10000, /* for a child that fetches nothing */
    MEMBER_JOINS_MAX = 4,     /* of a store that starts again and again */
};

_Static_assert((int)MEMBER_TELL_MS < (int)PST_CHAIN_GONE_MS, "a member that calls is not taken for dead");

struct relay_member {
    const struct pst_broadcast_options *options;
    const struct pst_broadcast_sink *sink;
    void *sink_ctx;
    uint32_t timeout_ms;
    uint64_t id;
    char host[PST_CHAIN_HOST_BYTES_MAX + 1]; /* of the server, as others reach it */
    struct pst_carry_server *server;
    struct relay_feed feed;
    struct relay_plan plan;
    bool has_plan;
    uint32_t batches; /* so many have come, with their digests */
    pthread_mutex_t sink_lock;
    bool begun;                /* the sink has */
    _Atomic uint64_t piece_ms; /* when a piece came last, or it joined; later: none is awaited */

    pthread_mutex_t call_lock; /* one call at a time: what was answered last is how it is */
    pthread_mutex_t lock;      /* of all below */
    pthread_cond_t changed;
    struct relay_place place; /* its key, pieces and rank stay once it has joined */
    int parent_fd;            /* -1: none */
    bool stopping;            /* the teller's end */
    bool forgotten;           /* the store does not know this member: it has started anew */
    pthread_t teller;
    bool tells;
};

/* Whether the caller wants no more of it. */
static inline bool member_is_stopped(const struct relay_member *m)
{
    return m->options->stop && *m->options->stop;
}

/* ---- call.c ---- */

/* Opens the server and joins. Return: 0 and the member's place; -errno with a text. */
int member_join(struct relay_member *m, char fault[PST_FAULT_BYTES]);
/* Tells the store, and takes the place that it answers; if that has another parent, fetching from the old one
 * ends. @told: NULL, or set if the error is the store's own word. Return: 0, or -errno with a text. */
int member_tell(struct relay_member *m, enum relay_word word, uint32_t parent_rank, bool *told,
                char fault[PST_FAULT_BYTES]);

/* ---- follow.c ---- */

enum follow_end {
    FOLLOW_ALL,    /* everything has come and is in its place */
    FOLLOW_SILENT, /* the parent failed, */
    FOLLOW_WRONG,  /* or its bytes are wrong */
    FOLLOW_FAILED, /* here, or at the source: the broadcast is over for this member */
};

/* Fetches from the parent of @place, as long as that goes. Return: how it ended; but for the first a text,
 * and of FOLLOW_FAILED *@error. */
enum follow_end member_follow(struct relay_member *m, const struct relay_place *place, int *error,
                              char fault[PST_FAULT_BYTES]);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * turns.h: what a member of a chain does next, towards its child and its parent. It takes pieces in their
 * order from its parent, and passes those that it has on to its child. Towards a child that has all of them
 * it beats, also when it starves itself: else everybody behind a dead member would blame a parent that lives.
 *
 * Pure: time is handed in, in ms. Any thread.
 */
#ifndef PST_FILES_TURNS_H
#define PST_FILES_TURNS_H

#include "base/base.h"

enum {
    PST_CHAIN_BEAT_MS = 500,
    PST_CHAIN_SILENCE_MS = 1500, /* then a child reports its parent */
};

/* A child as its parent sees it. */
struct pst_served {
    uint32_t next;    /* the piece that it gets next; what is below it has */
    uint64_t said_ms; /* when something was sent to it last */
};

enum pst_serve_turn {
    PST_SERVE_PIECE, /* send @next */
    PST_SERVE_BEAT,
    PST_SERVE_WAIT, /* for a piece, until a beat is due */
    PST_SERVE_END,  /* it has everything */
};

/* @have: pieces that this member has, @count: of the tree. *@wait_ms: of PST_SERVE_WAIT. */
static inline enum pst_serve_turn pst_serve_turn(const struct pst_served *child, uint32_t have,
                                                 uint32_t count, uint64_t now_ms, uint32_t *wait_ms)
{
    uint64_t since_ms = now_ms > child->said_ms ? now_ms - child->said_ms : 0;

    pst_assert(have <= count);
    pst_assert(child->next <= count);
    if (child->next < have)
        return PST_SERVE_PIECE;
    if (child->next == count)
        return PST_SERVE_END;
    if (since_ms >= PST_CHAIN_BEAT_MS)
        return PST_SERVE_BEAT;
    *wait_ms = PST_CHAIN_BEAT_MS - (uint32_t)since_ms;
    return PST_SERVE_WAIT;
}

/* For how long a parent that was heard at @heard_ms may still be silent; 0: it is to be reported. */
static inline uint32_t pst_parent_patience_ms(uint64_t heard_ms, uint64_t now_ms)
{
    uint64_t since_ms = now_ms > heard_ms ? now_ms - heard_ms : 0;

    return since_ms >= PST_CHAIN_SILENCE_MS ? 0 : PST_CHAIN_SILENCE_MS - (uint32_t)since_ms;
}

#endif

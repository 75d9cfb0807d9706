/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tier_priv.h: a shard's side of the log and of the device: what it has underway there. The files of tier/
 * include it.
 */
#ifndef PST_STORE_TIER_TIER_PRIV_H
#define PST_STORE_TIER_TIER_PRIV_H

#include "base/limits.h"
#include "log/value.h"
#include "store/shard_priv.h"
#include "store/tier.h"
#include "store/tier/device_priv.h"
#include "store/tier/flush_priv.h"
#include "store/tier/older_priv.h"
#include "store/tier/reclaim_priv.h"

enum {
    PST_SAVES_MAX = 64,
    PST_FETCHES_MAX = 1024,
    PST_FETCH_BUCKETS = 256,
    PST_TIER_PIECES = 8,      /* of a value; more are allocated */
    PST_TIER_TURN_NS = 10000, /* what is due at the log in one go: requests wait meanwhile */
};

#define PST_TIER_MAGIC 0x74696572u

/* The pieces of a value on its way. */
struct pst_tier_iov {
    struct iovec *iov; /* own, or more than that */
    int count;
    struct iovec own[PST_TIER_PIECES];
};

enum pst_save_reason {
    PST_SAVE_DEMOTES, /* to give its memory up */
    PST_SAVE_LASTS,   /* a writer waits for its sync */
    PST_SAVE_FLUSH,
};

/* A value on its way to the log; holds a reference. */
struct pst_save {
    struct pst_list link; /* idle or underway */
    struct pst_tier *tier;
    struct pst_record *record;
    struct pst_tier_wait *wait;
    struct pst_log_append append;
    struct pst_tier_iov pieces;
    struct pst_fetch *fetch; /* of a value on the device: it has the bytes */
    uint64_t newer;          /* generation of what has overwritten the value; 0: nothing, or that is gone */
    uint32_t pages;          /* counted as coming back */
    bool demotes, of_flush;
};

/* When values were wanted, in rounds of as many as there are values where they would go. */
struct pst_rounds {
    uint8_t round;       /* 1 to 15 */
    uint64_t round_left; /* of them */
};

/* A value on its way back, from the log or the device; holds a reference to its stub, then to the record that
 * has the bytes. */
struct pst_fetch {
    struct pst_list link; /* in its bucket */
    struct pst_list todo; /* in the tier's list while it could not begin */
    struct pst_list waits;
    uint32_t users; /* waits, ended ones too */
    struct pst_tier *tier;
    struct pst_record *stub, *record;
    uint64_t from, bytes;
    uint64_t since_ns; /* it began to want memory; 0: not yet */
    bool whole, underway, ended;
    bool of_device; /* not of the log */
    bool lowers;    /* to leave the device for memory, whoever reads it */
    int result;
    struct pst_log_read read;
    struct pst_device_copy copy;
    struct pst_tier_iov pieces;
    uint32_t pages;
};

struct pst_tier {
    uint32_t magic;
    bool closing;
    struct pst_shard *shard;
    struct pst_lane *lane;     /* NULL: no log */
    struct pst_device *device; /* NULL: none */
    uint64_t value_bytes_max;
    _Atomic uint64_t full_until_ns; /* the log was full; 0: it is not known to be */
    uint64_t starved_ns;            /* a durable write or a flush found the log full; 0: it took one since */
    uint64_t starved_since_ns;      /* for the first time */
    uint64_t told_generation, told_ns;
    struct pst_save saves[PST_SAVES_MAX];
    struct pst_list saves_idle;
    uint32_t saves_underway, reads_underway;
    uint32_t overtaken; /* saves underway whose value has been overwritten */
    bool log_busy;      /* it took no more until the next poll */
    struct pst_turn turn;
    bool turn_begun;         /* the poll's; after it that of what is demoted until the next one */
    bool demoted;            /* in it: a value at least */
    uint64_t (*clock)(void); /* of turns */
    struct pst_list done;    /* at the log: to be looked at */
    struct pst_list wanted;  /* waits for saves that have not begun */
    struct pst_list fetches[PST_FETCH_BUCKETS];
    struct pst_list todo; /* fetches that have not begun */
    uint32_t fetch_count;
    struct pst_rounds rounds; /* of fetches without promotion */
    struct pst_list ended;
    struct pst_flush flush;
    struct pst_reclaiming reclaim;
    struct pst_olders olders;
};

static inline bool pst_tier_logs(const struct pst_tier *t)
{
    return t && t->lane;
}

/* ---- tier.c ---- */

/* The pieces of a record's value. Return: 0 or -ENOMEM. */
int pst_tier_pieces(struct pst_shard *s, const struct pst_record *r, struct pst_tier_iov *out);
void pst_tier_pieces_free(struct pst_tier_iov *pieces);
/* The log takes no more for now. */
void pst_tier_full(struct pst_tier *t, uint64_t now_ns);
/* It has more room than when it was asked last: the next poll asks it again. */
void pst_tier_ask_again(struct pst_tier *t);
/* Whether it may take more again soon: segments are being taken back, or may be. */
bool pst_tier_awaits_room(struct pst_tier *t);
void pst_tier_begin_turn(struct pst_tier *t);
void pst_tier_end_wait(struct pst_tier *t, struct pst_tier_wait *wait, int result);

/* ---- save.c ---- */

/* Nothing keeps the record but one reference, which is the caller's. */
bool pst_record_only_ours(struct pst_shard *s, const struct pst_record *r);
/* The log has the record's value there; @crc of one of one block. */
void pst_record_clean(struct pst_shard *s, struct pst_record *r, struct pst_log_place place, uint32_t crc);
/* That of the record's value; NULL: none is underway. */
struct pst_save *pst_save_underway(struct pst_tier *t, const struct pst_record *r);
/* With a value that is away goes a whole fetch of it, which is the save's then. Return: 0, PST_BUSY all saves
 * are underway, -ENOSPC, -ENOMEM, -EFBIG, -EIO. */
int pst_save_begin(struct pst_tier *t, struct pst_record *r, enum pst_save_reason reason,
                   struct pst_fetch *fetch, struct pst_save **out);
void pst_save_done(struct pst_tier *t, struct pst_save *save, uint64_t now_ns);
/* A value is overwritten by @r; one that has overwritten another goes. Saves of what was there before know.
 */
void pst_save_superseded(struct pst_tier *t, const struct pst_record *old, const struct pst_record *r);
void pst_save_forget(struct pst_tier *t, const struct pst_record *r);
/* Begins what durable writes wait for. Return: true when something happened. */
bool pst_save_run(struct pst_tier *t);

/* ---- fetch.c ---- */

/* Reads so much of a value that is away, or shares a fetch that does. Return: a fetch to leave; NULL: not
 * now. */
struct pst_fetch *pst_fetch_join(struct pst_tier *t, struct pst_record *stub, uint64_t offset,
                                 uint64_t bytes);
void pst_fetch_leave(struct pst_fetch *fetch);
void pst_fetch_done(struct pst_tier *t, struct pst_fetch *fetch, int result, uint64_t now_ns);
/* Begins to bring a value from the device down into memory. Return: false: not now. */
bool pst_fetch_lower(struct pst_tier *t, struct pst_record *r);
/* Whether the value was wanted in this round or in the last one; that it is now, of so many values. */
bool pst_rounds_lately(const struct pst_rounds *rounds, const struct pst_record *r);
void pst_rounds_note(struct pst_rounds *rounds, struct pst_record *r, uint64_t values);
/* Begins what could not begin before. */
bool pst_fetch_run(struct pst_tier *t, uint64_t now_ns);

/* ---- stub.c ---- */

/* The record's stub takes its place in the indexes, and its memory goes; nothing refers to it. */
void pst_stub_replace(struct pst_shard *s, struct pst_record *r);
/* A record that says where the device has the value takes the record's place, and its memory goes; nothing
 * refers to it. Return: that record; NULL: no memory for it. */
struct pst_record *pst_record_lift(struct pst_shard *s, struct pst_record *r, const struct pst_run *runs,
                                   uint32_t run_count);
/* The record takes the place of the one that is away; false: it cannot now. Nobody but fetches refers to
 * that. */
bool pst_stub_promote(struct pst_shard *s, struct pst_record *away, struct pst_record *r, uint64_t now_ns);
/* A stub for what a scan found, over @old, which may be NULL. Return: 0, -ENOSPC, -ENOMEM, -EBADMSG. */
int pst_stub_add(struct pst_shard *s, const struct pst_log_found *found, struct pst_record *old);
void pst_stub_forgotten(struct pst_shard *s, const struct pst_record *stub);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flush_priv.h: a shard's flush, as the files of tier/ see it. The functions are flush.c's.
 */
#ifndef PST_STORE_TIER_FLUSH_PRIV_H
#define PST_STORE_TIER_FLUSH_PRIV_H

#include "base/limits.h"
#include "base/list.h"
#include "log/log.h"

struct pst_fetch;
struct pst_record;
struct pst_save;
struct pst_tier;

enum pst_flush_state { PST_FLUSH_NONE, PST_FLUSH_WALK, PST_FLUSH_SAVES, PST_FLUSH_SYNC };

/* All of the shard is made durable; flush.c says how. */
struct pst_flush {
    struct pst_list waits;      /* of this one */
    struct pst_list waits_next; /* that came while it was underway */
    enum pst_flush_state state;
    bool walks, walks_next;  /* it is more than a sync; so is the next one */
    bool missed;             /* a value was overwritten before the walk came to it, or its save failed */
    bool takes_newer;        /* the walk: in its stead */
    struct pst_fetch *fetch; /* of the value that the walk is at, where the device alone has that */
    uint64_t short_ns;       /* since when such values find no memory; 0: the last one did */
    uint64_t again_ns;       /* none is tried before */
    uint32_t saves;          /* that it waits for */
    int result;              /* the first fault, or 0 */
    uint64_t generation;     /* later ones are not its business */
    uint8_t key[PST_KEY_BYTES_MAX]; /* the walk is behind it */
    uint16_t key_bytes;
    struct pst_log_sync op;
};

/* A value is overwritten. @underway: its save, or NULL. @behind: one that it has overwritten is being saved.
 */
void pst_flush_superseded(struct pst_tier *t, const struct pst_record *old, struct pst_save *underway,
                          bool behind);
/* A save that the flush waits for has ended. */
void pst_flush_save_done(struct pst_tier *t, const struct pst_save *save, int result);
/* Begins one, or carries it on. Return: true when something happened. */
bool pst_flush_run(struct pst_tier *t);
void pst_flush_synced(struct pst_tier *t, int result);
/* Nor does anything wait for one, or for a save. */
bool pst_flush_idle(const struct pst_tier *t);

#endif

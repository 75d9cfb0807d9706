/* tier_priv.h: a shard's side of the log: what it has underway there. */
#ifndef PST_TIER_PRIV_H
#define PST_TIER_PRIV_H

#include "store/log_reclaim.h"
#include "store/shard_priv.h"

enum {
    PST_SAVES_MAX = 64,
    PST_FETCHES_MAX = 1024,
    PST_FETCH_BUCKETS = 256,
    PST_MOVES_MAX = 32,
    PST_TIER_PIECES = 8, /* of a value; more are allocated */
    PST_DEMOTED_BYTES_MAX =
        1 << 20, /* begun in one go, rounded up to whole values: requests wait meanwhile */
};

#define PST_TIER_MAGIC 0x74696572u

/* The pieces of a value on its way. */
struct pst_tier_iov {
    struct iovec *iov; /* own, or more than that */
    int count;
    struct iovec own[PST_TIER_PIECES];
};

/* A value on its way to the log; holds a reference. */
struct pst_save {
    struct pst_list link; /* idle or underway */
    struct pst_tier *tier;
    struct pst_record *record;
    struct pst_tier_wait *wait;
    struct pst_log_append append;
    struct pst_tier_iov pieces;
    uint32_t pages; /* counted as coming back */
    bool demotes, of_flush;
};

/* A value on its way back; holds a reference to its stub, then to the record that has the bytes. */
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
    int result;
    struct pst_log_read read;
    struct pst_tier_iov pieces;
    uint32_t pages;
};

/* All of the shard is made durable: a walk over its keys, the saves that it began, then a sync. */
struct pst_flush {
    struct pst_list waits;      /* of this one */
    struct pst_list waits_next; /* that came while it was underway */
    bool underway, walked, syncing;
    bool walks, walks_next; /* it is more than a sync; so is the next one */
    uint32_t saves;
    int result;
    uint64_t generation; /* later ones are not its business */
    uint8_t key[PST_KEY_BYTES_MAX];
    uint16_t key_bytes;
    struct pst_log_flush op;
};

/* A value on its way from a segment that is taken back to another one. */
struct pst_move {
    struct pst_list link; /* idle */
    struct pst_log_move log;
};

enum pst_reclaiming_state {
    PST_RECLAIMING_NONE,
    PST_RECLAIMING_WALK,
    PST_RECLAIMING_MOVES, /* the last of them end */
    PST_RECLAIMING_END,   /* the log frees it */
};

/* The segment that is taken back. */
struct pst_reclaiming {
    uint8_t state;
    bool dense;   /* values that may be evicted are, instead of being moved */
    bool pending; /* `found` could not be moved yet */
    bool counted; /* among those that the store hopes for */
    bool vain;    /* the last one ended badly */
    bool failed;  /* a value could not be moved now */
    bool stays;   /* one could not be read */
    uint32_t moving;
    uint64_t look_ns;       /* next */
    uint64_t rest_until_ns; /* the last one gained too little */
    uint64_t moved_bytes;   /* of its values */
    struct pst_log_found found;
    struct pst_move moves[PST_MOVES_MAX];
    struct pst_list idle;
};

/* What the log has of a key whose newer value it does not have yet. */
struct pst_older {
    uint64_t newer; /* generation of the one in memory; 0: free */
    uint64_t key_hash;
    uint64_t generation;
    struct pst_log_place place;
    uint64_t value_bytes : 48;
    uint64_t attr_bytes : 16;
};

struct pst_olders {
    struct pst_older *slots;
    uint64_t room, count;
};

struct pst_tier {
    uint32_t magic;
    bool closing;
    struct pst_shard *shard;
    struct pst_lane *lane;
    uint64_t value_bytes_max;
    _Atomic uint64_t full_until_ns; /* the log was full; 0: it is not known to be */
    uint64_t starved_ns;            /* a durable write or a flush found the log full; 0: it took one since */
    uint64_t told_generation, told_ns;
    struct pst_save saves[PST_SAVES_MAX];
    struct pst_list saves_idle;
    uint32_t saves_underway, reads_underway;
    bool log_busy;          /* it took no more until the next poll */
    uint64_t demoted_bytes; /* since the last one */
    struct pst_list wanted; /* waits for saves that have not begun */
    struct pst_list fetches[PST_FETCH_BUCKETS];
    struct pst_list todo; /* fetches that have not begun */
    uint32_t fetch_count;
    uint8_t turn;       /* 1 to 15: a turn is as many fetches without promotion as memory has values */
    uint64_t turn_left; /* of them */
    struct pst_list ended;
    struct pst_flush flush;
    struct pst_reclaiming reclaim;
    struct pst_olders olders;
};

/* ---- tier.c ---- */

/* The pieces of a record's value. Return: 0 or -ENOMEM. */
int pst_tier_pieces(struct pst_shard *s, const struct pst_record *r, struct pst_tier_iov *out);
void pst_tier_pieces_free(struct pst_tier_iov *pieces);
/* The log takes no more for now. */
void pst_tier_full(struct pst_tier *t, uint64_t now_ns);
/* It has more room than when it was asked last: the next poll asks it again. */
void pst_tier_ask_again(struct pst_tier *t);
/* Whether it may take more again soon: segments are being taken back, or may be. */
bool pst_tier_hopes(struct pst_tier *t);
void pst_tier_end_wait(struct pst_tier *t, struct pst_tier_wait *wait, int result);

/* ---- save.c ---- */

/* The log has the record's value there; @crc of one of one block. */
void pst_record_clean(struct pst_shard *s, struct pst_record *r, struct pst_log_place place, uint32_t crc);
/* Return: 0, PST_BUSY all saves are underway, -ENOSPC, -ENOMEM, -EFBIG, -EIO. */
int pst_save_begin(struct pst_tier *t, struct pst_record *r, bool durable, bool demotes,
                   struct pst_save **out);
void pst_save_done(struct pst_tier *t, struct pst_save *save, uint64_t now_ns);
/* Begins what is wanted, and walks on. Return: true when something happened. */
bool pst_save_run(struct pst_tier *t);
void pst_flush_done(struct pst_tier *t, int result);
bool pst_flush_idle(const struct pst_tier *t);

/* ---- fetch.c ---- */

void pst_fetch_done(struct pst_tier *t, struct pst_fetch *fetch, uint64_t now_ns);
/* Begins what could not begin before. */
bool pst_fetch_run(struct pst_tier *t, uint64_t now_ns);

/* ---- reclaim.c ---- */

/* Whether the log takes more, or will when some shard has taken a segment back. */
bool pst_reclaim_gains(const struct pst_tier *t);
void pst_reclaim_init(struct pst_tier *t);
void pst_move_done(struct pst_tier *t, struct pst_move *move);
/* Takes segments back when few are free. Return: true when something happened. */
bool pst_reclaim_run(struct pst_tier *t, uint64_t now_ns);

/* ---- older.c ---- */

/* What the log has behind @newer, which is in memory alone; NULL: nothing. */
struct pst_older *pst_older_find(struct pst_tier *t, const struct pst_record *newer);
/* Sets whom it is behind. Return: false: no memory. */
bool pst_older_add(struct pst_tier *t, const struct pst_record *newer, struct pst_older older);
struct pst_log_value pst_older_value(const struct pst_older *older, struct pst_bytes key);
/* It is lost, or may be: nothing is written. */
void pst_older_forget(struct pst_tier *t, struct pst_older *older, struct pst_bytes key);
/* What is behind @r is dead: as soon as @ticket is durable, by which the log has @r; 0: at once. */
void pst_older_bury(struct pst_tier *t, const struct pst_record *r, uint64_t ticket);

/* ---- stub.c ---- */

/* The record's stub takes its place in the indexes, and its memory goes; nothing refers to it. */
void pst_stub_replace(struct pst_shard *s, struct pst_record *r);
/* The record takes its stub's place; false: it cannot now. Nobody but fetches refers to the stub. */
bool pst_stub_promote(struct pst_shard *s, struct pst_record *stub, struct pst_record *r, uint64_t now_ns);
/* A stub for what a scan found, over @old, which may be NULL. Return: 0, -ENOSPC, -ENOMEM, -EBADMSG. */
int pst_stub_add(struct pst_shard *s, const struct pst_log_found *found, struct pst_record *old);
void pst_stub_forgotten(struct pst_shard *s, const struct pst_record *stub);

#endif

/*
 * slot.h: writes that take more than one step. A *slot* is memory for a key's next value: reserved, written
 * in pieces, then committed or aborted; nobody else sees it. A *change* is a part of a commit over several
 * keys: prepared in every shard that it touches, then applied in all of them or undone.
 *
 * Slots belong to a *holder*, a session's side of one shard, and end with it. What all holders of a session
 * keep is counted in its *quota*. Threads: a holder has its shard's, a quota any.
 */
#ifndef PST_SLOT_H
#define PST_SLOT_H

#include "base/list.h"
#include "store/store.h"

/* ---- quotas ---- */

struct pst_quota {
    uint64_t slots_max, pins_max, bytes_max; /* 0: no limit */
    _Atomic uint64_t slots;                  /* reserved and not yet committed */
    _Atomic uint64_t pins;                   /* hard pins made, less those taken back */
    _Atomic uint64_t bytes;                  /* of values kept by slots and views */
};

/* Count against a limit. @quota may be NULL. Return: 0 or -EDQUOT, and nothing is counted. */
int pst_quota_take_slot(struct pst_quota *quota);
int pst_quota_take_pin(struct pst_quota *quota);
int pst_quota_take_bytes(struct pst_quota *quota, uint64_t bytes);
void pst_quota_give_slot(struct pst_quota *quota);
void pst_quota_give_pin(struct pst_quota *quota); /* at none there is nothing to give */
void pst_quota_give_bytes(struct pst_quota *quota, uint64_t bytes);

/* ---- claims ---- */

enum pst_claim_kind {
    PST_CLAIM_SLOT,   /* a slot that other slots of the key have to respect */
    PST_CLAIM_SHARED, /* a commit relies on the key: no writes until it has ended */
    PST_CLAIM_WHOLE,  /* a commit changes the key: no reads either */
};

/* Who has a say about a key, in one table a shard. */
struct pst_claim {
    struct pst_claim *next;
    struct pst_bytes key; /* its owner's */
    uint64_t hash;
    enum pst_claim_kind kind;
};

/* How many keys commits have locked at present, for a look without a call; lives as long as the shard. */
const uint32_t *pst_shard_locks(const struct pst_shard *shard);
/* True when a commit underway keeps an operation on the key waiting. */
bool pst_shard_locked(const struct pst_shard *shard, const struct pst_lookup *lookup, bool for_reading);

/* ---- slots ---- */

enum {
    PST_TIER_DRAM = 2,
    PST_SLOT_LOCATION_BYTES_MAX = 223,
    PST_SLOT_GAPS_MAX = 32,
};

#define PST_SLOT_GROWS UINT64_MAX /* value_bytes of a put whose size its commit tells */

struct pst_recent; /* commits that may be asked for again */

struct pst_holder {
    struct pst_list slots;
    struct pst_recent *recent; /* made with the first slot */
    struct pst_quota *quota;   /* NULL: no limits */
};

void pst_holder_init(struct pst_holder *holder, struct pst_quota *quota);
/* Gives up all slots; those that a transfer or a commit still uses go with that. */
void pst_holder_end(struct pst_shard *shard, struct pst_holder *holder);

struct pst_slot;

/*
 * Reserves memory for a value. Without @replace the slot owns its key: no other such slot is given, and the
 * put is one of PST_PUT_IF_ABSENT unless it names a generation. With @replace it is like any put.
 * Return: 0, PST_EXISTS or PST_STALE with *@answer, PST_OWNED, -EDQUOT, and what pst_shard_reserve() says.
 */
int pst_slot_reserve(struct pst_shard *shard, struct pst_holder *holder, const struct pst_put *put,
                     bool replace, uint64_t now_ns, struct pst_slot **out, struct pst_answer *answer);
struct pst_slot *pst_slot_find(const struct pst_holder *holder, uint64_t handle);
uint64_t pst_slot_handle(const struct pst_slot *slot);
/*
 * Where the slot lies, as text of at most PST_SLOT_LOCATION_BYTES_MAX: the pages, or where they are too many
 * a digest of them; "" for one that grows. Return: its length.
 */
size_t pst_slot_location(const struct pst_shard *shard, const struct pst_slot *slot,
                         char text[PST_SLOT_LOCATION_BYTES_MAX + 1]);

/*
 * Begins to write [@offset, @offset + @bytes); it may only be committed when all of it has been written.
 * Return: 0, then pst_slot_written() ends it; -ERANGE outside of the slot, -E2BIG more than PST_SLOT_GAPS_MAX
 * gaps, PST_BUSY; of a slot that grows also -ENOSPC, -EFBIG, -EDQUOT.
 */
int pst_slot_write(struct pst_shard *shard, struct pst_slot *slot, uint64_t offset, uint64_t bytes,
                   uint64_t now_ns);
/* @landed: the bytes are there. */
void pst_slot_written(struct pst_shard *shard, struct pst_slot *slot, uint64_t offset, uint64_t bytes,
                      bool landed);
/* The slot's memory like pst_record_piece(); while it is being written. */
bool pst_slot_piece(const struct pst_shard *shard, const struct pst_slot *slot, uint64_t offset,
                    uint64_t bytes, struct iovec *piece);
/*
 * The addresses of a slot's memory, which may be changed there until the commit: what has not been written is
 * cleared, and all of it counts as written. Return: pieces, -E2BIG more than @max, -EOPNOTSUPP it grows,
 * -EBUSY it is being written.
 */
int pst_slot_map(struct pst_shard *shard, struct pst_slot *slot, struct iovec *pieces, int max);

/* What a commit says about its slot. */
struct pst_slot_named {
    uint64_t handle;
    struct pst_bytes key, location;
    uint64_t bytes;
    uint32_t crc; /* with @checksum */
    uint8_t tier;
    bool checksum, durable;
};

/*
 * Makes a slot's value visible. Nothing is done with PST_BUSY, and where it cannot be durable: -EOPNOTSUPP,
 * -EFBIG. Anything else but PST_OK has given the slot up: PST_EXISTS, PST_STALE; PST_MISS no such slot;
 * -EMSGSIZE another size, -EINVAL another key, location or tier, or durable with an end, -ENODATA not all of
 * it is written. Committing again what was committed lately answers as the first time.
 */
int pst_slot_commit(struct pst_shard *shard, struct pst_holder *holder, const struct pst_slot_named *named,
                    uint64_t now_ns, struct pst_answer *answer);
/* The same up to where it becomes visible: with 0 the record is the caller's, for a struct pst_change. */
int pst_slot_take(struct pst_shard *shard, struct pst_holder *holder, const struct pst_slot_named *named,
                  uint64_t now_ns, struct pst_put *put, struct pst_reservation *reservation,
                  struct pst_answer *answer);
/* Harmless when there is none (any more). */
void pst_slot_abort(struct pst_shard *shard, struct pst_holder *holder, uint64_t handle);

/* ---- changes ---- */

enum pst_change_kind {
    PST_CHANGE_CHECK,
    PST_CHANGE_PUT,
    PST_CHANGE_DELETE,
    PST_CHANGE_KEEP, /* the value that is there stays until the commit has ended; PST_MISS: there is none */
};

struct pst_change {
    struct pst_change *next; /* of the same shard */
    enum pst_change_kind kind;
    struct pst_put put;   /* key and conditions; of a put also its value's shape */
    const void *value;    /* to be copied, unless a slot has it */
    uint64_t slot_handle; /* 0: none */
    struct pst_reservation
        reservation; /* of a put whose value is written: its record; given up in any case */
    int result;      /* why it fails */
    struct pst_answer answer;

    /* The store's between prepare and the end. */
    struct pst_claim claim;
    struct pst_record *old, *fresh;
    uint64_t generation; /* of @fresh; of a delete: up to which values go */
    uint32_t check;      /* makes @fresh whole */
    struct pst_slot *slot;
    bool claimed, linked;
};

/*
 * Locks the keys, checks the conditions, reserves memory. All or none: when one change fails, nothing stays
 * behind. @holder: NULL when the session has ended. @look_only: only checks (another shard has failed
 * already). Return: true when all of them can be applied, which then cannot fail.
 */
bool pst_changes_prepare(struct pst_shard *shard, const struct pst_holder *holder, struct pst_change *first,
                         bool look_only, uint64_t now_ns);
/* All shards have prepared theirs: makes it so, in one step also for who finds the arenas later. Any of the
 * shards' threads. Apply, then, in every shard. */
void pst_changes_decide(struct pst_store *store, const struct pst_change *changes, uint32_t count);
/* One of the two ends what was prepared, and unlocks. */
void pst_changes_apply(struct pst_shard *shard, struct pst_change *first, uint64_t now_ns);
void pst_changes_undo(struct pst_shard *shard, struct pst_change *first);

#endif

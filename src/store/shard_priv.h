/* shard_priv.h: what the files of store/ share. */
#ifndef PST_SHARD_PRIV_H
#define PST_SHARD_PRIV_H

#include "store/store.h"
#include "store/slot.h"
#include "store/index.h"
#include "store/kept.h"
#include "store/order.h"
#include "store/policy.h"
#include "store/tier.h"

enum {
    PST_STATE_RESERVED = 4,     /* record state: being written, in no index */
    PST_RUNS_MAX = 16384,       /* runs of one value; a store so scattered that it takes more says NO_SPACE */
    PST_OWNER_BYTES_MIN = 2048, /* slots from this size on carry an owner word */
    PST_CLAIM_BUCKETS = 4096,
};

#define PST_TAIL_STAYS UINT64_MAX

/* Owner words: the record's reference, and whether the slot is its tail. */
#define PST_OWNER_TAIL (1ull << 63)

struct pst_pin;
struct pst_tier;
struct pst_listeners;

struct pst_pins {
    struct pst_pin **buckets;
    uint64_t bucket_count; /* a power of two, or 0 */
    uint64_t count;
    uint64_t bytes; /* of the values that they keep */
};

struct pst_pin {
    struct pst_pin *next;
    uint64_t ref;
    uint64_t value_bytes;
    uint64_t until_ns; /* TTL pin; 0: none */
    uint32_t refs;     /* transfers and views */
    uint32_t hard;     /* hard pins on the key */
    bool doomed;       /* cleared: goes with its last pin */
};

struct pst_claims {
    uint32_t locks; /* claims of commits among them */
    struct pst_claim *buckets[PST_CLAIM_BUCKETS];
};

/* Values with an end: expiry.c. */
struct pst_expiries {
    struct pst_expiry *heap;
    uint64_t count, room;
    uint64_t live;    /* records with a time that keys name */
    uint64_t pending; /* that are being written, for which there is room */
    uint64_t wall_ms; /* what time it is */
};

struct pst_shard {
    struct pst_store *store;
    uint8_t *base;       /* of the arenas: offsets count from here */
    uint32_t slot_shift; /* the arenas' */
    struct pst_index *index;
    struct pst_order *order;
    struct pst_slab *slab;
    struct pst_pins pins;
    struct pst_tier *tier; /* NULL: the store has no log */
    uint64_t hash_seed;
    uint64_t generation;     /* the last one given; the low byte is the shard */
    uint64_t generation_max; /* none above it yet: pst_generations_take() */
    uint64_t changes;        /* counts whatever a record's reference may not survive */
    struct pst_lines *lines; /* of records that may go, one for each group */
    uint64_t listed;         /* records in them */
    uint64_t ssd_cache_keys; /* that may be evicted, and whose values are on SSD alone */
    uint64_t doomed_count;
    uint64_t all_kept_ms; /* when eviction last found only records that someone keeps */
    uint64_t gone_count;  /* values that made room */
    uint32_t number;
    uint32_t listener_count; /* waits and watches: whether anyone is to be told of a change */
    uint32_t ready_count;    /* waits that are ready */
    struct pst_listeners *listeners;
    struct pst_shard_stat stat;
    struct pst_shard_later stat_later;
    struct pst_run *runs; /* scratch, PST_RUNS_MAX */
    struct pst_claims claims;
    struct pst_expiries expiries;
    uint64_t slot_handle; /* the last one given */

    /* Read by other shards. */
    _Atomic uint32_t puts_underway; /* their memory is taken, their values are still on the way */
    _Atomic uint64_t tail_ms; /* when the record at the cold end was used; UINT64_MAX: nothing to evict */
} __attribute__((aligned(128)));

struct pst_prefix_quota {
    const struct pst_prefix_number *limit; /* in bytes */
    _Atomic uint64_t bytes;                /* of values that are there or being written */
    _Atomic uint64_t wanted;               /* a write was told to wait until there is room for so many more */
    _Atomic uint64_t wanted_ns;            /* when; 0: nobody waits */
    _Atomic bool evicting;                 /* a shard does so for another's write */
};

struct pst_store {
    struct pst_arenas arenas;
    struct pst_pages pages;
    struct pst_log *log; /* NULL: none */
    uint32_t shard_count;
    uint32_t pages_low; /* fewer free pages than this start eviction */
    uint64_t slot_seed;
    uint32_t check_seed;
    uint64_t start_ns;     /* monotonic */
    uint64_t epoch_ns;     /* recency counts from here; modulo 2^64, since it may be before the clock's 0 */
    struct pst_kept *kept; /* NULL: the arenas end with the store */
    pthread_mutex_t words_lock; /* of what is kept */
    struct pst_restored restored;
    const struct pst_policy *policy;
    uint64_t wall_offset_ms; /* from the monotonic clock to the real-time one, modulo 2^64 */
    struct pst_prefix_number *ttls;
    uint32_t ttl_count;
    struct pst_prefix_number *limits;
    struct pst_prefix_quota *quotas; /* one for each limit */
    uint32_t quota_count;
    uint32_t group_count; /* of lines in each shard: those of no quota, then each quota's */
    uint32_t cache_prefix_count;
    struct pst_bytes cache_prefixes[PST_CLASSES_MAX];
    struct pst_shard *shards;
    _Atomic uint32_t extent_pages; /* in use by values of their own pages, written and unfinished ones */
    _Atomic uint32_t cache_pages;  /* those among them whose keys may be evicted */
    _Atomic uint32_t spill_pages;  /* of other values that may go to the log */
    uint32_t pages_spare;   /* that writes leave free, so that what is on SSD can be read; 0: without a log */
    _Atomic uint32_t saves; /* values on their way to the log, and back */
    _Atomic uint32_t reclaims;     /* segments that shards take back */
    _Atomic uint32_t saving_pages; /* of values on their way to the log, which will then go */
    _Atomic bool ssd_full;         /* the log took no more when it was last asked */
    _Atomic uint32_t pages_wanted; /* a write was told to wait until this many pages are free */
    _Atomic uint64_t wanted_ns;    /* when; it asks again soon, or has given up */
};

/* References name records in the indexes: the offset in units of slots' starts + 1, so that 0 is none. */
static inline uint64_t pst_ref_of_offset(const struct pst_shard *s, uint64_t offset)
{
    return (offset >> s->slot_shift) + 1;
}

static inline uint64_t pst_ref_offset(const struct pst_shard *s, uint64_t ref)
{
    return (ref - 1) << s->slot_shift;
}

static inline struct pst_record *pst_ref_record(const struct pst_shard *s, uint64_t ref)
{
    return (struct pst_record *)(void *)(s->base + pst_ref_offset(s, ref));
}

static inline uint64_t pst_shard_ms(const struct pst_shard *s, uint64_t now_ns)
{
    return (now_ns - s->store->epoch_ns) / 1000000;
}

static inline uint64_t pst_record_offset(const struct pst_shard *s, const struct pst_record *r)
{
    return (uint64_t)((const uint8_t *)r - s->base);
}

static inline uint64_t pst_record_ref(const struct pst_shard *s, const struct pst_record *r)
{
    return pst_ref_of_offset(s, pst_record_offset(s, r));
}

/* ---- memory.c: a record's memory ---- */

/* How many whole pages a value takes at the least. */
uint32_t pst_value_pages(const struct pst_shard *s, uint64_t value_bytes);
/* How many pages of its own a record has. */
uint32_t pst_record_pages(const struct pst_record *r);
/* Takes slot, pages and tail for a record of this shape and fills all of it but the value. Return: 0 or
 * -ENOSPC, -ENOMEM. */
int pst_record_take(struct pst_shard *s, const struct pst_put *put, bool cache, struct pst_record **out);
/*
 * The same for a value that lies in pages already, whole ones but for the last: what is more than a value of
 * this size takes is moved or given back. @runs is the caller's to forget on success.
 */
int pst_record_take_pages(struct pst_shard *s, const struct pst_put *put, bool cache, struct pst_run *runs,
                          uint32_t run_count, struct pst_record **out);
/* Copies the whole value into a record that is being written. */
void pst_record_fill(const struct pst_shard *s, const struct pst_record *r, const uint8_t *value);
/* The contiguous piece at @offset of pages that no record names yet, at most @bytes of it. */
struct iovec pst_runs_piece(const struct pst_shard *s, const struct pst_run *runs, uint32_t run_count,
                            uint64_t offset, uint64_t bytes);
/* Pages for a value that is still written, and back; with what the arena's trailer says of them. */
int pst_runs_take(struct pst_shard *s, uint32_t pages, struct pst_run *runs, uint32_t runs_max);
void pst_runs_give(struct pst_shard *s, const struct pst_run *runs, uint32_t run_count);
/* Takes the pages that a record of an earlier process names. Return: 0, -ERANGE there are no such ones,
 * -EEXIST. */
int pst_runs_claim(struct pst_shard *s, const struct pst_run *runs, uint32_t run_count);
/* Tells the record's slots whose they are. */
void pst_record_own_slots(struct pst_shard *s, struct pst_record *r);
/* The word by which the record becomes whole, or with 0 goes. */
struct pst_word pst_record_word(const struct pst_shard *s, const struct pst_record *r, uint32_t check);
/* Gives back what a record has outside of its slot. */
void pst_record_give_value(struct pst_shard *s, const struct pst_record *r);
/* Gives all of a record's memory back. */
void pst_record_give(struct pst_shard *s, struct pst_record *r);
/* Moves a record to the slot at @offset, and its tail to the one at @tail_offset if that does not stay: both
 * are the shard's. Tells everyone who refers to it; those that it had go back to @from_slab. A process that
 * ends meanwhile leaves one of the two whole, or both. */
void pst_record_move(struct pst_shard *s, struct pst_record *r, uint64_t offset, uint64_t tail_offset,
                     struct pst_slab *from_slab);
/* Empties the sparsest slab page that can be, by moving or evicting what it holds. Return: true when a page
 * became free. */
bool pst_shard_take_back(struct pst_shard *s, uint32_t used_percent);

/* ---- shard.c: links ---- */

bool pst_key_evictable(const struct pst_store *store, struct pst_bytes key);
/* Takes a record's memory, making room as long as that helps; @fetch: from what is spare, too. Return: 0,
 * -ENOSPC, PST_BUSY, -ENOMEM. */
int pst_record_reserve(struct pst_shard *s, const struct pst_put *put, bool fetch, uint64_t now_ns,
                       struct pst_record **out);
/* No memory for a write of @pages pages: others may have to evict. Return: -ENOSPC or PST_BUSY. */
int pst_shard_no_room(struct pst_shard *s, uint32_t pages, uint64_t now_ns);
/* Return: 0, -EINVAL, -ENAMETOOLONG, -EFBIG. */
int pst_put_check_shape(const struct pst_shard *s, const struct pst_put *put);
/* Return: 0 when the put may go on over @old, PST_EXISTS or PST_STALE with *@answer. */
int pst_put_check(const struct pst_put *put, const struct pst_record *old, struct pst_answer *answer);
/* Makes a reserved record, which the indexes name, its key's value; @old is what they named before. */
void pst_shard_expose(struct pst_shard *s, struct pst_record *r, struct pst_record *old, uint64_t now_ns,
                      struct pst_answer *answer);
/* A change has made its record the key's. */
void pst_reservation_taken(struct pst_shard *s, struct pst_reservation *reservation);
/* Gives a record the generation that it will be found with; 0: the next one. Return: the checksum that makes
 * it whole. */
uint32_t pst_record_number(struct pst_shard *s, struct pst_record *r, uint64_t generation);

int pst_shard_link(struct pst_shard *s, const struct pst_lookup *lookup, struct pst_record *r,
                   struct pst_record *old);
/* Takes a record out of the indexes; its memory goes now or with its last reference. @what: what happened to
 * its key. */
void pst_shard_unlink_as(struct pst_shard *s, struct pst_record *r, enum pst_wire_what what);

static inline void pst_shard_unlink(struct pst_shard *s, struct pst_record *r)
{
    pst_shard_unlink_as(s, r, PST_WIRE_CHANGE_DELETED);
}

/* Lets the record's memory go now or with its last reference; it is in no index any more. */
void pst_shard_drop(struct pst_shard *s, struct pst_record *r);

/* A record enters its shard's recency list, or leaves it, should it be one of those. */
void pst_record_list(struct pst_shard *s, struct pst_record *r, uint64_t now_ns);
void pst_record_unlist(struct pst_shard *s, struct pst_record *r);

/* Takes the key out of the indexes, not its record. */
void pst_shard_unname(struct pst_shard *s, struct pst_record *r);

/* ---- restore.c ---- */

/* Finds what an earlier process left, and makes it this store's. Return: 0, -ENOMEM, -ENOSPC with *@fault. */
int pst_store_restore(struct pst_store *store, const char **fault);

/* ---- tier.c: what the engine asks a shard's side of the log, @tier may be NULL where said ---- */

int pst_tier_open(struct pst_store *store, const struct pst_tier_options *options, const char **fault);
/* Makes all that can be durable, and lets go of the log. */
void pst_tier_close(struct pst_store *store);
/* True when the record's memory can be had by moving its value to the log, or is there already. May be NULL.
 */
bool pst_tier_takes(const struct pst_tier *tier, const struct pst_record *r);
/* Does that, or begins to. Return: false: not now. */
bool pst_tier_demote(struct pst_tier *tier, struct pst_record *r, uint64_t now_ns);
/* True when there will be room for a write of @pages by itself. */
bool pst_tier_relieves(const struct pst_shard *s, uint32_t pages, uint64_t now_ns);
/* True when no more demotions can begin for now. May be NULL. */
bool pst_tier_busy(const struct pst_tier *tier);
/* Adds what the log as a whole has to tell. */
void pst_tier_figures(const struct pst_store *store, struct pst_shard_later *out);
/* The record's key has gone, or has another value. */
/* @r has taken @old's place: what the log has of @old stays until it has @r. */
void pst_tier_supersede(struct pst_tier *tier, struct pst_record *old, const struct pst_record *r);
void pst_tier_forget(struct pst_tier *tier, const struct pst_record *r);

/* ---- claims.c ---- */

bool pst_claim_is(const struct pst_claim *claim, const struct pst_lookup *lookup);
void pst_claim_add(struct pst_shard *s, struct pst_claim *claim);
void pst_claim_remove(struct pst_shard *s, struct pst_claim *claim);
bool pst_claim_find(struct pst_shard *s, const struct pst_lookup *lookup, enum pst_claim_kind kind);

/* ---- slot.c ---- */

/* For a commit over several keys: the record of a slot that is written and of this key, which stays the
 * slot's until it is taken. Return: 0, PST_BUSY, -EINVAL another key, -EMSGSIZE, -ENODATA. */
int pst_slot_lend(struct pst_slot *slot, const struct pst_put *put, struct pst_record **out);
void pst_slot_return(struct pst_shard *s, struct pst_slot *slot, bool taken);
/* ---- watch.c ---- */

int pst_listeners_open(struct pst_shard *s);
void pst_listeners_close(struct pst_shard *s);
/* Tells of a change while s->listener_count is above 0. */
void pst_shard_tell(struct pst_shard *s, const struct pst_record *r, enum pst_wire_what what);

/* ---- pins.c ---- */

struct pst_pin *pst_pins_find(const struct pst_pins *pins, uint64_t ref);
/* The one that is there, or a new one; NULL: no memory. */
struct pst_pin *pst_pins_add(struct pst_pins *pins, uint64_t ref, uint64_t value_bytes);
void pst_pins_remove(struct pst_pins *pins, struct pst_pin *pin);
void pst_pins_rename(struct pst_pins *pins, struct pst_pin *pin, uint64_t ref);
void pst_pins_fini(struct pst_pins *pins);
/* True when neither reference nor pin keeps the record; forgets a pin that is over. */
bool pst_record_loose(struct pst_shard *s, struct pst_record *r, uint64_t now_ns);
/* Moves the key's pins from an overwritten record to its successor. Return: 0 or -ENOMEM. */
int pst_pins_inherit(struct pst_shard *s, struct pst_record *from, struct pst_record *to);
/* Deletes doomed records whose pins are over. */
void pst_pins_expire(struct pst_shard *s, uint64_t now_ns);

/* ---- recency.c ---- */

void pst_recency_add(struct pst_shard *s, struct pst_record *r, uint64_t now_ns);
void pst_recency_remove(struct pst_shard *s, struct pst_record *r);
/* Corrects the neighbours after @r moved here from where @from named it. */
void pst_recency_moved(struct pst_shard *s, struct pst_record *r, uint64_t from);
/* Tells other shards that there may be something to evict here again. */
void pst_recency_loosened(struct pst_shard *s);
/* Tells other shards how cold this one's cold end is. */
void pst_recency_publish(struct pst_shard *s);
/* Puts a record that may not go to the young end of its line. */
void pst_recency_spare(struct pst_shard *s, struct pst_record *r, uint64_t now_ns);

/* ---- prefix_quota.c ---- */

int pst_prefix_quotas_open(struct pst_store *store, const struct pst_prefix_number *options, uint32_t count);
void pst_prefix_quotas_close(struct pst_store *store);
/* Which lines the key's record is in; 0: those of no quota. */
uint32_t pst_key_group(const struct pst_store *store, struct pst_bytes key);
/* Counts a record that comes or goes. */
void pst_prefix_quota_count(struct pst_shard *s, const struct pst_record *r, bool comes);
/* Makes room for a value among those of its quota. Return: 0, PST_BUSY other shards can, or -ENOSPC with
 * *@answer: see pst_shard_reserve(). */
int pst_prefix_quota_admit(struct pst_shard *s, const struct pst_put *put, uint64_t now_ns,
                           struct pst_answer *answer);
/* Evicts for writes in other shards. Return: true when there is more to do. */
bool pst_prefix_quotas_tick(struct pst_shard *s, int evictions_max, uint64_t now_ns);

int pst_prefix_numbers_copy(const struct pst_prefix_number *from, uint32_t count,
                            struct pst_prefix_number **out);

/* ---- expiry.c ---- */

#define PST_TTL_MS_MAX (1ull << 40)

/* When a value that is put now ends; 0: never. */
uint64_t pst_put_expires_ms(const struct pst_shard *s, const struct pst_put *put);
/* For a record with an end that is being written: what pst_expiry_add() will need. Return: 0 or -ENOMEM. */
int pst_expiry_prepare(struct pst_shard *s);
void pst_expiry_abandon(struct pst_shard *s);
void pst_expiry_add(struct pst_shard *s, const struct pst_record *r);
/* The same with a record that an earlier process left. */
void pst_expiry_restored(struct pst_shard *s, const struct pst_record *r);
/* One that was added is no key's any more. */
void pst_expiry_remove(struct pst_shard *s);
/* Takes an expired record of this key, which nobody finds, out of the indexes. */
void pst_expiry_make_way(struct pst_shard *s, const struct pst_lookup *lookup);
/* Return: true when there is more to do at once. */
bool pst_expiries_tick(struct pst_shard *s);
void pst_expiries_fini(struct pst_shard *s);

static inline bool pst_record_expired(const struct pst_shard *s, const struct pst_record *r)
{
    return pst_unlikely(r->flags & PST_RECORD_EXPIRES) && !(r->state & PST_STATE_RESERVED) &&
           pst_record_expires_ms(r) <= s->expiries.wall_ms;
}

/* ---- evict.c ---- */

/* Evicts one record of a group, though not @spared. Return: false when nothing can be. */
bool pst_group_evict(struct pst_shard *s, uint32_t group, const struct pst_record *spared, uint64_t now_ns);

/* Evicts one record. Return: false when nothing can be. */
bool pst_shard_evict(struct pst_shard *s, uint64_t now_ns);
/* Evicts this one. */
void pst_record_evict(struct pst_shard *s, struct pst_record *r);
/*
 * Makes room after an allocation failed that needs @pages pages at once (0: any room will do). Nothing goes
 * for one that cannot have them even when all of the shard has gone. Return: true when it is worth trying
 * again.
 */
bool pst_shard_make_room(struct pst_shard *s, uint32_t pages, uint64_t now_ns);
/* False when what stays holds too many of the store's pages for a write of @pages. */
bool pst_store_pages_obtainable(const struct pst_store *store, uint32_t pages);
/* True when other shards can make room for a write of @pages pages. */
bool pst_store_evictable_elsewhere(const struct pst_shard *s, uint32_t pages);

#endif

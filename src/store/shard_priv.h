/* shard_priv.h: what the files of store/ share. */
#ifndef PST_SHARD_PRIV_H
#define PST_SHARD_PRIV_H

#include "store/store.h"
#include "store/index.h"
#include "store/order.h"

enum {
    PST_STATE_RESERVED = 4,     /* record state: being written, in no index */
    PST_RUNS_MAX = 16384,       /* runs of one value; a store so scattered that it takes more says NO_SPACE */
    PST_OWNER_BYTES_MIN = 2048, /* slots from this size on carry an owner word */
};

/* Owner words: the record's reference, and whether the slot is its tail. */
#define PST_OWNER_TAIL (1ull << 63)

struct pst_pin;

struct pst_pins {
    struct pst_pin **buckets;
    uint64_t bucket_count; /* a power of two, or 0 */
    uint64_t count;
};

struct pst_pin {
    struct pst_pin *next;
    uint64_t ref;
    uint64_t until_ns; /* TTL pin; 0: none */
    uint32_t refs;     /* transfers and views */
    uint32_t hard;     /* hard pins on the key */
    bool doomed;       /* cleared: goes with its last pin */
};

struct pst_shard {
    struct pst_store *store;
    uint8_t *base; /* of the arenas: offsets count from here */
    struct pst_index *index;
    struct pst_order *order;
    struct pst_slab *slab;
    struct pst_pins pins;
    uint64_t hash_seed;
    uint64_t generation;     /* the last one given; the low byte is the shard */
    uint64_t changes;        /* counts whatever a record's reference may not survive */
    uint64_t newest, oldest; /* recency list of cache records, as references */
    uint64_t doomed_count;
    uint32_t all_kept_ds; /* when eviction last found only records that someone keeps */
    uint32_t number;
    struct pst_shard_stat stat;
    struct pst_run *runs; /* scratch, PST_RUNS_MAX */

    /* Read by other shards. */
    _Atomic uint32_t tail_ds; /* when the oldest cache record was used; UINT32_MAX: nothing to evict */
} __attribute__((aligned(128)));

struct pst_store {
    struct pst_arenas arenas;
    struct pst_pages pages;
    uint32_t shard_count;
    uint32_t pages_low; /* fewer free pages than this start eviction */
    uint64_t slot_seed;
    uint32_t check_seed;
    uint64_t start_ns; /* monotonic: recency counts from here */
    uint32_t cache_prefix_count;
    struct pst_bytes cache_prefixes[PST_CLASSES_MAX];
    struct pst_shard *shards;
    _Atomic uint32_t pages_wanted; /* a write was told to wait until this many pages are free */
    _Atomic uint64_t wanted_ns;    /* when; it asks again soon, or has given up */
};

/* References name records in the indexes: offset / 16 + 1, so that 0 is none. */
static inline uint64_t pst_ref_of_offset(uint64_t offset)
{
    return offset / 16 + 1;
}

static inline uint64_t pst_ref_offset(uint64_t ref)
{
    return (ref - 1) * 16;
}

static inline struct pst_record *pst_ref_record(const struct pst_shard *s, uint64_t ref)
{
    return (struct pst_record *)(void *)(s->base + pst_ref_offset(ref));
}

static inline uint64_t pst_record_offset(const struct pst_shard *s, const struct pst_record *r)
{
    return (uint64_t)((const uint8_t *)r - s->base);
}

static inline uint64_t pst_record_ref(const struct pst_shard *s, const struct pst_record *r)
{
    return pst_ref_of_offset(pst_record_offset(s, r));
}

/* ---- memory.c: a record's memory ---- */

/* Takes slot, pages and tail for a record of this shape and fills all of it but the value. Return: 0 or
 * -ENOSPC, -ENOMEM. */
int pst_record_take(struct pst_shard *s, const struct pst_put *put, bool cache, struct pst_record **out);
/* Gives all of a record's memory back. */
void pst_record_give(struct pst_shard *s, struct pst_record *r);
/* Empties the sparsest slab page that can be, by moving or evicting what it holds. Return: true when a page
 * became free. */
bool pst_shard_take_back(struct pst_shard *s, uint32_t used_percent);

/* ---- shard.c: links ---- */

int pst_shard_link(struct pst_shard *s, const struct pst_lookup *lookup, struct pst_record *r,
                   struct pst_record *old);
/* Takes a record out of the indexes; its memory goes now or with its last reference. */
void pst_shard_unlink(struct pst_shard *s, struct pst_record *r);
/* Lets the record's memory go now or with its last reference; it is in no index any more. */
void pst_shard_drop(struct pst_shard *s, struct pst_record *r);

/* ---- pins.c ---- */

struct pst_pin *pst_pins_find(const struct pst_pins *pins, uint64_t ref);
struct pst_pin *pst_pins_add(struct pst_pins *pins,
                             uint64_t ref); /* the one that is there, or a new one; NULL: no memory */
void pst_pins_remove(struct pst_pins *pins, struct pst_pin *pin);
void pst_pins_rename(struct pst_pins *pins, struct pst_pin *pin, uint64_t ref);
void pst_pins_fini(struct pst_pins *pins);
/* True when neither reference nor pin keeps the record; forgets a pin that is over. */
bool pst_record_loose(struct pst_shard *s, struct pst_record *r, uint64_t now_ns);
/* Moves the key's pins from an overwritten record to its successor. Return: 0 or -ENOMEM. */
int pst_pins_inherit(struct pst_shard *s, struct pst_record *from, struct pst_record *to);
/* Deletes doomed records whose pins are over. */
void pst_pins_expire(struct pst_shard *s, uint64_t now_ns);

/* ---- evict.c ---- */

void pst_recency_add(struct pst_shard *s, struct pst_record *r, uint64_t now_ns);
void pst_recency_remove(struct pst_shard *s, struct pst_record *r);
/* Corrects the neighbours after @r moved here. */
void pst_recency_moved(struct pst_shard *s, struct pst_record *r);
/* Tells other shards that there may be something to evict here again. */
void pst_recency_loosened(struct pst_shard *s);
/* Evicts one record. Return: false when nothing can be. */
bool pst_shard_evict(struct pst_shard *s, uint64_t now_ns);
/* Makes room after an allocation failed. Return: true when it is worth trying again. */
bool pst_shard_make_room(struct pst_shard *s, uint64_t now_ns);
/* True when another shard has something to evict. */
bool pst_store_evictable_elsewhere(const struct pst_shard *s);

#endif

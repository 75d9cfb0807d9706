/*
 * store.h: the engine. A *store* is a node's memory cut into *shards*; each shard owns the keys of its slots.
 *
 * A shard is used by one thread at a time (its own, or whoever holds its lock when embedded). Shards share
 * only the page bitmap and a few figures about memory pressure. Nothing here blocks, sleeps, logs or knows a
 * network.
 *
 * Large values are written in two steps: pst_shard_reserve() gives memory that nobody sees, the caller fills
 * it, and pst_shard_commit() makes it the key's value at once. Large values are read under a reference:
 * pst_shard_ref() keeps a record's bytes where they are until pst_shard_unref(), whatever happens to the key.
 */
#ifndef PST_STORE_H
#define PST_STORE_H

#include "base/base.h"
#include "base/options.h"
#include "mem/mem.h"
#include "store/record.h"
#include "store/policy.h"
#include "store/tier.h"
#include "wire/wire.h"

#include <sys/uio.h>

struct pst_store;
struct pst_shard;

#define PST_GENERATION_MAX (1ull << 63) /* the clock gets there in 2262 */

enum {
    PST_SHARDS_MAX = 256,
    PST_CLASSES_MAX = 64,
};

/* Outcomes that the caller must handle; errors are negative errno. */
enum pst_outcome {
    PST_OK = 0,
    PST_MISS = 1,
    PST_EXISTS = 2,
    PST_STALE = 3,
    PST_BUSY = 4,
    PST_OWNED = 6, /* a slot has the key */
};

/* Something about the keys with this prefix that have no longer one of the same kind. */
struct pst_prefix_number {
    struct pst_bytes prefix;
    uint64_t number;
};

/* Reads "PREFIX=NUMBER", each into one of @out, which borrows its prefix. Return: 0 or -EINVAL with the
 * reason in
 * @fault, which calls it @what. */
int pst_prefix_numbers_parse(const struct pst_strings *texts, const char *what, struct pst_prefix_number *out,
                             char fault[PST_FAULT_BYTES]);

struct pst_store_options {
    struct pst_arena_options arenas;
    uint32_t shard_count;
    uint32_t watermark_percent;        /* eviction starts when more of the pages are in use */
    const char *const *cache_prefixes; /* keys that begin with one of them are `cache`; others are `keep` */
    uint32_t cache_prefix_count;
    const char *policy; /* which of those goes first (policy.h); NULL: the default */
    const struct pst_prefix_number *quotas;
    uint32_t quota_count;
    const struct pst_prefix_number *ttls; /* in ms: how long values live that do not say so themselves */
    uint32_t ttl_count;
    struct pst_tier_options ssd;
};

/* Return: 0, -EINVAL, -ENOMEM, -ENOSPC; *@fault names the reason (see pst_arenas_open(), pst_log_open()). */
int pst_store_open(const struct pst_store_options *options, struct pst_store **out, const char **fault);
struct pst_store *pst_store_close(struct pst_store *store);

struct pst_shard *pst_store_shard(struct pst_store *store, uint32_t index);
uint32_t pst_store_shard_count(const struct pst_store *store);
const struct pst_arenas *pst_store_arenas(const struct pst_store *store);
uint64_t pst_store_value_bytes_max(const struct pst_store *store);

/* What was there when the store was opened. */
struct pst_restored {
    bool taken_up; /* there was something to look at */
    uint64_t keys, value_bytes;
    uint64_t dropped; /* records whose memory was not theirs alone */
    uint64_t moved;   /* to another shard, since there is another number of them */
    uint64_t held;    /* pages that stay as they are, since clients of the earlier process look at them */
    uint64_t ms;
    uint64_t ssd_keys, ssd_dropped, ssd_ms; /* the same of the log */
};
const struct pst_restored *pst_store_restored(const struct pst_store *store);

/* Keys the hash that routes keys to shards (wire/route.h); random, as long as the arenas live. */
uint64_t pst_store_slot_seed(const struct pst_store *store);

/* ---- one key ---- */

/* A key and its hash in this store, so that a batch can prefetch; then also what the prefetch saw. */
struct pst_lookup {
    struct pst_bytes key;
    uint64_t hash;
    uint64_t seen_ref;     /* the one record that it may be; 0: not known */
    uint64_t seen_changes; /* of the shard: a later change makes seen_ref worthless */
};

struct pst_lookup pst_shard_lookup(const struct pst_shard *shard, struct pst_bytes key);
void pst_shard_prefetch(const struct pst_shard *shard,
                        const struct pst_lookup *lookup); /* first: the bucket */
void pst_shard_prefetch_record(const struct pst_shard *shard,
                               struct pst_lookup *lookup); /* then: the record */
/* Says what time it is: whatever expires before is not found any more. As pst_shard_tick() does. */
void pst_shard_time(struct pst_shard *shard, uint64_t now_ns);
/* True while some key has an end. */
bool pst_shard_expires(const struct pst_shard *shard);
/* Return: the record, or NULL. No side effect. Valid until the shard's next change. */
struct pst_record *pst_shard_find(const struct pst_shard *shard, const struct pst_lookup *lookup);
/* Counts as a use for eviction. */
void pst_shard_touch(struct pst_shard *shard, struct pst_record *record, uint64_t now_ns);

/* Bytes [@offset, @offset + @bytes) of a value as pieces of arena memory. Return: pieces written, -E2BIG more
 * than @iov_max. */
int pst_record_iov(const struct pst_shard *shard, const struct pst_record *record, uint64_t offset,
                   uint64_t bytes, struct iovec *iov, int iov_max);
/* The contiguous piece that begins at @offset, at most @bytes of it. Return: false when @bytes is 0. */
bool pst_record_piece(const struct pst_shard *shard, const struct pst_record *record, uint64_t offset,
                      uint64_t bytes, struct iovec *piece);
/* Whether a value that an earlier process left is what its writer's checksum says: looked at once, before the
 * first read. Return: 0 or -EBADMSG. */
int pst_record_verify_now(struct pst_shard *shard, struct pst_record *record);
static inline int pst_record_verify(struct pst_shard *shard, struct pst_record *record)
{
    return pst_likely(!(record->state & PST_RECORD_UNVERIFIED)) ? 0 : pst_record_verify_now(shard, record);
}
/* Where a value lies, for people and for views: see struct pst_location. */
void pst_record_location(const struct pst_shard *shard, const struct pst_record *record,
                         struct pst_location *out);

/*
 * Which bytes a read gets: all of a value that fits into @bytes (@exact: that has just this size), or with
 * @range [@offset, @offset + @bytes). Return: 0 and *@length, -ENOBUFS, -EMSGSIZE, -ERANGE.
 */
int pst_record_plan(const struct pst_record *record, bool range, bool exact, uint64_t offset, uint64_t bytes,
                    uint64_t *length);
/* Where the @offset of a range lies: from INT64_MAX + 1 on it counts back from the end. Behind the value when
 * it is before its beginning. */
uint64_t pst_record_range_offset(const struct pst_record *record, uint64_t offset);
/*
 * Whether a read wants the value of this generation: with PST_PUT_IF_GENERATION only @generation, with
 * PST_PUT_IF_ABSENT on top any other. Return: 0, PST_STALE it is another one, PST_EXISTS it is that one.
 */
int pst_record_wanted(const struct pst_record *record, uint8_t flags, uint64_t generation);

enum pst_put_flag {
    PST_PUT_IF_ABSENT = 1,
    PST_PUT_IF_GENERATION = 2, /* if_generation 0: the key must be absent */
    PST_PUT_CHECKSUM = 4,
    PST_PUT_FETCHED = 128, /* of a value that is there: no time of its prefix */
};

struct pst_put {
    struct pst_lookup lookup;
    struct pst_bytes attrs;
    uint64_t value_bytes;
    uint64_t if_generation;
    uint32_t value_crc;
    uint64_t ttl_ms;     /* 0: what its prefix says */
    uint64_t generation; /* another store's, for a copy of its value: PST_EXISTS when one as late is there; 0:
                            a new one */
    uint16_t depth;
    uint8_t flags;
};

/* What a put, delete or look-up tells: of the value that is there now, or of the one that was removed. */
struct pst_answer {
    uint64_t generation;
    uint64_t value_bytes;
};

/* Whether what the put writes can be durable. Return: 0; -EOPNOTSUPP there is no log, -EINVAL the value will
 * have an end, -EFBIG it is larger than the log takes: *@answer says what that is. */
int pst_put_check_durable(const struct pst_shard *shard, const struct pst_put *put,
                          struct pst_answer *answer);

/* A value being written: memory that only its writer knows. */
struct pst_reservation {
    struct pst_record *record;
    uint64_t offset;
    bool brief; /* who finds no room waits for its end */
};

/*
 * Checks the conditions (PST_EXISTS, PST_STALE: *@answer names the value that is there) and takes memory.
 * Return: 0, an outcome, PST_BUSY (other shards can free memory: run pst_shard_tick() there and try again),
 * -ENOSPC (where it is a quota's doing, *@answer has the length of its prefix and its bytes), -EFBIG larger
 * than the store, -EINVAL empty key, -ENAMETOOLONG, -ENOMEM.
 */
int pst_shard_reserve(struct pst_shard *shard, const struct pst_put *put, uint64_t now_ns,
                      struct pst_reservation *reservation, struct pst_answer *answer);
/* Its writer may take its time. */
void pst_reservation_lasts(struct pst_shard *shard, struct pst_reservation *reservation);
/* The pieces of a reservation's value, like pst_record_iov(). */
int pst_reservation_iov(const struct pst_shard *shard, const struct pst_reservation *reservation,
                        struct iovec *iov, int iov_max);
/* Checks the conditions again and makes the value visible. Gives the reservation up in any case. */
int pst_shard_commit(struct pst_shard *shard, const struct pst_put *put, struct pst_reservation *reservation,
                     uint64_t now_ns, struct pst_answer *answer);
void pst_shard_abort(struct pst_shard *shard, struct pst_reservation *reservation);
/* Reserve, copy from @value, commit. */
int pst_shard_put(struct pst_shard *shard, const struct pst_put *put, const void *value, uint64_t now_ns,
                  struct pst_answer *answer);

/* @conditional: only the value of this generation. Return: 0, PST_MISS, PST_STALE. */
int pst_shard_delete(struct pst_shard *shard, const struct pst_lookup *lookup, bool conditional,
                     uint64_t if_generation, struct pst_answer *answer);

/* A client begins or ends to look at a referenced record in the arenas: noted there for a later process,
 * which has to leave these bytes as they are. */
void pst_record_viewed(struct pst_shard *shard, const struct pst_record *record, bool begins);
/* The last one that was given; values from now on have later ones than @generation, which is below
 * PST_GENERATION_MAX. */
uint64_t pst_shard_generation(const struct pst_shard *shard);
void pst_shard_pass_generation(struct pst_shard *shard, uint64_t generation);
/* Deletes a value of @generation or before, as another store did. Return: 0, PST_MISS, PST_BUSY. */
int pst_shard_delete_copy(struct pst_shard *shard, const struct pst_lookup *lookup, uint64_t generation);
/* What the clock says of a value with an end, and back: ms since 1970. */
uint64_t pst_shard_wall_ms(const struct pst_shard *shard);
/* Keeps a record's bytes in place. Return: 0 or -ENOMEM. */
int pst_shard_ref(struct pst_shard *shard, struct pst_record *record);
void pst_shard_unref(struct pst_shard *shard, struct pst_record *record);

/*
 * Keeps a key from eviction: for @ttl_ms, or with 0 until unpinned (hard pins count). Overwriting keeps the
 * pin. Return: 0, PST_MISS, -ENOMEM. Unpin: -EINVAL when it has no hard pin.
 */
int pst_shard_pin(struct pst_shard *shard, const struct pst_lookup *lookup, uint64_t ttl_ms, uint64_t now_ns);
int pst_shard_unpin(struct pst_shard *shard, const struct pst_lookup *lookup);
bool pst_shard_pinned(struct pst_shard *shard, const struct pst_lookup *lookup, uint64_t now_ns);

/* ---- many keys ---- */

/* Keys in [start, end) in order; an empty end: no end. With @after, start itself is left out. */
struct pst_range {
    struct pst_bytes start;
    struct pst_bytes end;
    bool after;
    bool (*wanted)(void *ctx,
                   struct pst_bytes key); /* a sweep leaves other keys, and counts them; NULL: all are */
    void *ctx;
};

/*
 * Writes the range's first keys into @buf as struct pst_wire_entry, each with its key, as many as fit.
 * Return: bytes written, -ENOBUFS not even one fits. *@end: the range's end was reached.
 */
int64_t pst_shard_list(struct pst_shard *shard, const struct pst_range *range, void *buf, size_t room,
                       bool *end);

enum { PST_SWEEP_BYTES_MAX = sizeof(struct pst_wire_sweep) + PST_KEY_BYTES_MAX };

/*
 * Deletes keys of the range, a bounded number at a time. @spare_pinned: those with a pin stay until their
 * last pin goes.
 * @buf gets a struct pst_wire_sweep and the key behind which to go on. Return: bytes written; 0: busy, a
 * commit underway holds the first key.
 */
size_t pst_shard_sweep(struct pst_shard *shard, const struct pst_range *range, bool spare_pinned,
                       uint64_t now_ns, uint8_t buf[PST_SWEEP_BYTES_MAX]);

/* ---- memory pressure ---- */

/*
 * Evicts above the watermark when this shard's tail is the coldest, helps a shard that waits for pages, ends
 * pins whose time is over. Bounded. Return: true when there is more to do at once.
 */
bool pst_shard_tick(struct pst_shard *shard, uint64_t now_ns);

#define PST_SHARD_COUNTERS(X)                                                                                \
    X(keys, "keys", "keys stored")                                                                           \
    X(value_bytes, "bytes", "bytes of values stored")                                                        \
    X(cache_keys, "keys", "keys that may be evicted")                                                        \
    X(puts, "count", "values written")                                                                       \
    X(gets, "count", "values read")                                                                          \
    X(hits, "count", "look-ups that found their key")                                                        \
    X(misses, "count", "look-ups that did not")                                                              \
    X(deletes, "count", "keys deleted")                                                                      \
    X(evictions, "count", "keys evicted")                                                                    \
    X(evicted_bytes, "bytes", "bytes of values evicted")                                                     \
    X(moved, "count", "values moved to take a slab page back")                                               \
    X(no_space, "count", "writes refused for want of memory")                                                \
    X(pinned, "keys", "records with a pin or a reference")                                                   \
    X(slab_pages, "pages", "pages cut into slots")                                                           \
    X(slab_bytes, "bytes", "bytes of slots in use")                                                          \
    X(index_bytes, "bytes", "memory of both indexes")

struct pst_shard_stat {
#define X(name, unit, text) uint64_t name;
    PST_SHARD_COUNTERS(X)
#undef X
};

/* Counters that came later: figures keep their place in the answer that carries them. */
#define PST_SHARD_LATER(X)                                                                                   \
    X(pinned_bytes, "bytes", "bytes of values with a pin or a reference")                                    \
    X(slots, "slots", "slots reserved and not yet committed")                                                \
    X(slot_bytes, "bytes", "bytes of memory in them")                                                        \
    X(waits, "gets", "gets that wait for their key")                                                         \
    X(watches, "watches", "watches of prefixes")                                                             \
    X(ssd_keys, "keys", "keys whose values are on SSD alone")                                                \
    X(ssd_bytes, "bytes", "bytes of their values")                                                           \
    X(demotions, "count", "values moved from memory to SSD")                                                 \
    X(demoted_bytes, "bytes", "bytes of them that were written")                                             \
    X(promotions, "count", "values brought back into memory")                                                \
    X(fetches, "count", "reads of the SSD for values")                                                       \
    X(fetched_bytes, "bytes", "bytes that they read")                                                        \
    X(ssd_corrupt, "count", "values on SSD that were found damaged")                                         \
    X(ssd_errors, "count", "reads and writes that the SSD failed")                                           \
    X(ssd_hits, "operations", "operations that found their value on SSD alone")                              \
    X(ssd_capacity_bytes, "bytes", "bytes that the log may take")                                            \
    X(ssd_live_bytes, "bytes", "bytes of values there, of those in memory, too")                             \
    X(ssd_appended_bytes, "bytes", "bytes of values that were written there")                                \
    X(ssd_written_bytes, "bytes", "all bytes that were written there")                                       \
    X(ssd_moved_bytes, "bytes", "bytes of values moved to take segments back")                               \
    X(ssd_reclaimed_bytes, "bytes", "bytes of segments taken back")                                          \
    X(restored_keys, "keys", "keys that the start found in memory and on SSD")                               \
    X(restored_dropped, "count", "records that it found and left out")                                       \
    X(restored_ms, "ms", "how long that took")                                                               \
    X(refused_secret, "clients", "clients refused: a wrong secret, or none")                                 \
    X(refused_version, "clients", "clients refused: no version that both speak")                             \
    X(refused_busy, "clients", "clients refused: no room for another session, or not now")                   \
    X(refused_other, "clients", "clients refused: too slow, or none of ours")                                \
    X(malformed, "count", "messages that broke the protocol; their sessions end")

struct pst_shard_later {
#define X(name, unit, text) uint64_t name;
    PST_SHARD_LATER(X)
#undef X
};

void pst_shard_stat(struct pst_shard *shard, struct pst_shard_stat *out);
void pst_shard_stat_later(const struct pst_shard *shard, struct pst_shard_later *out);
/* The counters that the caller's paths keep: reads. */
void pst_shard_count_read(struct pst_shard *shard, bool hit);

struct pst_store_stat {
    uint64_t page_bytes, pages, pages_used, arenas;
};
void pst_store_stat(const struct pst_store *store, struct pst_store_stat *out);

/* One shard's answer to a question for figures; whole-process figures are the same from every shard. */
struct pst_figures {
    struct pst_shard_stat shard;
    struct pst_store_stat store;
    uint64_t rss_anon_bytes, sessions, uptime_ms;
    struct pst_shard_later later;
};

/* What an answer of the first version holds. */
enum { PST_FIGURES_BYTES_MIN = offsetof(struct pst_figures, later) };

/* Fills all but `sessions`, and what a node has refused. */
void pst_figures_read(struct pst_store *store, struct pst_shard *shard, struct pst_figures *out);

#endif

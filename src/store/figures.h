/* SPDX-License-Identifier: Apache-2.0 */
/*
 * figures.h: what a shard and its store count. Whoever counts, or asks for figures, includes it.
 */
#ifndef PST_STORE_FIGURES_H
#define PST_STORE_FIGURES_H

#include "base/base.h"

struct pst_shard;
struct pst_store;

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
    X(slab_pages, "pages", "pages cut into cells")                                                           \
    X(slab_bytes, "bytes", "bytes of cells in use")                                                          \
    X(index_bytes, "bytes", "memory of both indexes")

struct pst_shard_stat {
#define X(name, unit, text) uint64_t name;
    PST_SHARD_COUNTERS(X)
#undef X
};

/* Counters that came later. Figures keep their place in the answer that carries them: another one goes to the
 * end of the last list of struct pst_figures. */
#define PST_SHARD_LATER(X)                                                                                   \
    X(pinned_bytes, "bytes", "bytes of values with a pin or a reference")                                    \
    X(reservations, "reservations", "reservations not yet committed")                                        \
    X(reservation_bytes, "bytes", "bytes of memory in them")                                                 \
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
    X(ssd_capacity_bytes, "bytes", "bytes that the log can keep")                                            \
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
    X(malformed, "count", "messages that broke the protocol; their sessions end")                            \
    X(copies_asked, "keys", "keys whose put asked for several copies")                                       \
    X(refused_plain, "clients", "clients refused: without TLS, which the node wants")                        \
    X(refused_tls, "clients", "clients refused: no TLS 1.3, or nothing in common")                           \
    X(refused_certificate, "clients", "clients refused: no certificate, or one that proves nothing")         \
    X(refused_expired, "clients", "clients refused: a certificate outside of its time")                      \
    X(refused_replayed, "clients", "clients refused: TLS records that were replayed or changed")             \
    X(refused_by_client, "clients", "clients that did not believe the node's certificate")                   \
    X(forbidden, "operations", "operations refused: beyond what their client's grant allows")

struct pst_shard_later {
#define X(name, unit, text) uint64_t name;
    PST_SHARD_LATER(X)
#undef X
};

/* What a shard has in device memory. */
#define PST_SHARD_DEVICE(X)                                                                                  \
    X(hbm_keys, "keys", "keys whose values are in device memory")                                            \
    X(hbm_bytes, "bytes", "bytes of their values")                                                           \
    X(hbm_capacity_bytes, "bytes", "bytes of device memory for values")                                      \
    X(hbm_used_bytes, "bytes", "bytes of its pages that are in use")                                         \
    X(hbm_promotions, "count", "values moved from memory to the device")                                     \
    X(hbm_demotions, "count", "values moved from the device to memory or SSD")                               \
    X(hbm_hits, "operations", "operations that found their value on the device")                             \
    X(hbm_errors, "count", "copies that the device failed")

struct pst_shard_device {
#define X(name, unit, text) uint64_t name;
    PST_SHARD_DEVICE(X)
#undef X
};

/* Requests whose operations are of one kind, and those that mix several; what a node's shard counts the time
 * of. X(name) */
#define PST_SHARD_TIMES(X)                                                                                   \
    X(other)                                                                                                 \
    X(get)                                                                                                   \
    X(put)                                                                                                   \
    X(stat)                                                                                                  \
    X(delete)                                                                                                \
    X(pin)                                                                                                   \
    X(reserve)                                                                                               \
    X(write)                                                                                                 \
    X(commit)                                                                                                \
    X(list)                                                                                                  \
    X(view)                                                                                                  \
    X(watch)                                                                                                 \
    X(copy)                                                                                                  \
    X(pool)                                                                                                  \
    X(mixed)

enum {
#define X(name) PST_TIME_##name,
    PST_SHARD_TIMES(X)
#undef X
        PST_TIME_COUNT,
    PST_TIME_FIRST_SHIFT = 8, /* the first bucket is below 256 ns, each next one below twice as much */
    PST_TIME_BUCKETS = 26,    /* the last: all others */
};

/* As struct penstock_time of penstock.h. */
struct pst_time {
    uint64_t total_ns;
    uint64_t counts[PST_TIME_BUCKETS];
};

void pst_shard_stat(struct pst_shard *shard, struct pst_shard_stat *out);
void pst_shard_stat_later(const struct pst_shard *shard, struct pst_shard_later *out);
void pst_shard_stat_device(const struct pst_shard *shard, struct pst_shard_device *out);

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
    struct pst_time times[PST_TIME_COUNT];
    struct pst_shard_device device;
};

_Static_assert(offsetof(struct pst_figures, times) == 480, "figures keep their place");
_Static_assert(offsetof(struct pst_figures, device) == 3720, "figures keep their place");

/* What an answer of the first version holds. */
enum { PST_FIGURES_BYTES_MIN = offsetof(struct pst_figures, later) };

/* Fills all but `sessions`, `times`, and what a node has refused. */
void pst_figures_read(struct pst_store *store, struct pst_shard *shard, struct pst_figures *out);

#endif

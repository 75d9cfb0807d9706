/* SPDX-License-Identifier: Apache-2.0 */
/*
 * figures.h: what a shard and its store count. Whoever counts, or asks for figures, includes it. What each
 * counts, and in which unit, wire/figures.h says.
 */
#ifndef PST_STORE_FIGURES_H
#define PST_STORE_FIGURES_H

#include "base/base.h"

struct pst_shard;
struct pst_store;

#define PST_SHARD_COUNTERS(X)                                                                                \
    X(keys)                                                                                                  \
    X(value_bytes)                                                                                           \
    X(cache_keys)                                                                                            \
    X(puts)                                                                                                  \
    X(gets)                                                                                                  \
    X(hits)                                                                                                  \
    X(misses)                                                                                                \
    X(deletes)                                                                                               \
    X(evictions)                                                                                             \
    X(evicted_bytes)                                                                                         \
    X(moved)                                                                                                 \
    X(no_space)                                                                                              \
    X(pinned)                                                                                                \
    X(slab_pages)                                                                                            \
    X(slab_bytes)                                                                                            \
    X(index_bytes)

struct pst_shard_stat {
#define X(name) uint64_t name;
    PST_SHARD_COUNTERS(X)
#undef X
};

/* Counters that came later. Figures keep their place in the answer that carries them: another one goes to the
 * end of the last list of struct pst_figures. */
#define PST_SHARD_LATER(X)                                                                                   \
    X(pinned_bytes)                                                                                          \
    X(reservations)                                                                                          \
    X(reservation_bytes)                                                                                     \
    X(waits)                                                                                                 \
    X(watches)                                                                                               \
    X(ssd_keys)                                                                                              \
    X(ssd_bytes)                                                                                             \
    X(demotions)                                                                                             \
    X(demoted_bytes)                                                                                         \
    X(promotions)                                                                                            \
    X(fetches)                                                                                               \
    X(fetched_bytes)                                                                                         \
    X(ssd_corrupt)                                                                                           \
    X(ssd_errors)                                                                                            \
    X(ssd_hits)                                                                                              \
    X(ssd_capacity_bytes)                                                                                    \
    X(ssd_live_bytes)                                                                                        \
    X(ssd_appended_bytes)                                                                                    \
    X(ssd_written_bytes)                                                                                     \
    X(ssd_moved_bytes)                                                                                       \
    X(ssd_reclaimed_bytes)                                                                                   \
    X(restored_keys)                                                                                         \
    X(restored_dropped)                                                                                      \
    X(restored_ms)                                                                                           \
    X(refused_secret)                                                                                        \
    X(refused_version)                                                                                       \
    X(refused_busy)                                                                                          \
    X(refused_other)                                                                                         \
    X(malformed)                                                                                             \
    X(copies_asked)                                                                                          \
    X(refused_plain)                                                                                         \
    X(refused_tls)                                                                                           \
    X(refused_certificate)                                                                                   \
    X(refused_expired)                                                                                       \
    X(refused_replayed)                                                                                      \
    X(refused_by_client)                                                                                     \
    X(forbidden)

struct pst_shard_later {
#define X(name) uint64_t name;
    PST_SHARD_LATER(X)
#undef X
};

/* What a shard has in device memory. */
#define PST_SHARD_DEVICE(X)                                                                                  \
    X(hbm_keys)                                                                                              \
    X(hbm_bytes)                                                                                             \
    X(hbm_capacity_bytes)                                                                                    \
    X(hbm_used_bytes)                                                                                        \
    X(hbm_promotions)                                                                                        \
    X(hbm_demotions)                                                                                         \
    X(hbm_hits)                                                                                              \
    X(hbm_errors)

struct pst_shard_device {
#define X(name) uint64_t name;
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

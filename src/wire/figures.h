/* SPDX-License-Identifier: Apache-2.0 */
/*
 * figures.h: the figures of struct penstock_stat, for those who show them: `penstock stat` and /metrics. The
 * one place that says what each is called, what it counts and in which unit.
 */
#ifndef PST_WIRE_FIGURES_H
#define PST_WIRE_FIGURES_H

#include "base/base.h"

enum pst_figure_type { PST_FIGURE_GAUGE, PST_FIGURE_COUNTER, PST_FIGURE_HISTOGRAM };
/* Metrics are in bytes and seconds, whatever a figure is in. */
enum pst_figure_unit { PST_FIGURE_COUNT, PST_FIGURE_BYTES, PST_FIGURE_MS, PST_FIGURE_US, PST_FIGURE_NS };

/* The order in which they are shown. FIGURE(member, metric, type, unit, text); the metric is "" if a node by
 * itself has none. */
#define PST_STAT_FIGURES(HEADING, FIGURE)                                                                    \
    HEADING("values")                                                                                        \
    FIGURE(keys, "penstock_keys", GAUGE, COUNT, "keys stored")                                               \
    FIGURE(value_bytes, "penstock_value_bytes", GAUGE, BYTES, "bytes of their values")                       \
    FIGURE(cache_keys, "penstock_cache_keys", GAUGE, COUNT, "keys that may be evicted")                      \
    FIGURE(pinned, "penstock_pinned", GAUGE, COUNT, "values pinned or in transfer")                          \
    FIGURE(pinned_bytes, "penstock_pinned_bytes", GAUGE, BYTES, "bytes of values pinned or in transfer")     \
    FIGURE(reservations, "penstock_reservations", GAUGE, COUNT, "reservations not yet committed")            \
    FIGURE(reservation_bytes, "penstock_reservation_bytes", GAUGE, BYTES, "bytes of memory in reservations") \
    FIGURE(waits, "penstock_waits", GAUGE, COUNT, "gets that wait for their key")                            \
    FIGURE(watches, "penstock_watches", GAUGE, COUNT, "watches of prefixes, counted in every shard")         \
    HEADING("memory")                                                                                        \
    FIGURE(pages_used, "penstock_pages_used", GAUGE, COUNT, "pages in use")                                  \
    FIGURE(pages, "penstock_pages", GAUGE, COUNT, "pages in all")                                            \
    FIGURE(page_bytes, "penstock_page_bytes", GAUGE, BYTES, "bytes of a page")                               \
    FIGURE(arenas, "penstock_arenas", GAUGE, COUNT, "arenas")                                                \
    FIGURE(slab_pages, "penstock_slab_pages", GAUGE, COUNT, "pages cut into cells")                          \
    FIGURE(slab_bytes, "penstock_slab_bytes", GAUGE, BYTES, "bytes of cells in use")                         \
    FIGURE(index_bytes, "penstock_index_bytes", GAUGE, BYTES, "bytes of indexes")                            \
    FIGURE(rss_anon_bytes, "penstock_rss_anon_bytes", GAUGE, BYTES,                                          \
           "bytes of private memory in the process")                                                         \
    HEADING("operations")                                                                                    \
    FIGURE(puts, "penstock_puts_total", COUNTER, COUNT, "values written")                                    \
    FIGURE(gets, "penstock_gets_total", COUNTER, COUNT, "values asked for")                                  \
    FIGURE(hits, "penstock_hits_total", COUNTER, COUNT, "values asked for and found")                        \
    FIGURE(misses, "penstock_misses_total", COUNTER, COUNT, "values asked for and not found")                \
    FIGURE(deletes, "penstock_deletes_total", COUNTER, COUNT, "keys deleted")                                \
    FIGURE(evictions, "penstock_evictions_total", COUNTER, COUNT, "values evicted")                          \
    FIGURE(evicted_bytes, "penstock_evicted_bytes_total", COUNTER, BYTES, "bytes of values evicted")         \
    FIGURE(moved, "penstock_moved_total", COUNTER, COUNT, "values moved to free a page")                     \
    FIGURE(no_space, "penstock_no_space_total", COUNTER, COUNT, "writes refused for want of memory")         \
    HEADING("SSD")                                                                                           \
    FIGURE(ssd_keys, "penstock_ssd_keys", GAUGE, COUNT, "keys whose values are on SSD alone")                \
    FIGURE(ssd_bytes, "penstock_ssd_bytes", GAUGE, BYTES, "bytes of values that are on SSD alone")           \
    FIGURE(ssd_capacity_bytes, "penstock_ssd_capacity_bytes", GAUGE, BYTES, "bytes of SSD for values")       \
    FIGURE(ssd_live_bytes, "penstock_ssd_live_bytes", GAUGE, BYTES,                                          \
           "bytes of values on SSD, of those in memory, too")                                                \
    FIGURE(demotions, "penstock_demotions_total", COUNTER, COUNT, "values moved from memory to SSD")         \
    FIGURE(demoted_bytes, "penstock_demoted_bytes_total", COUNTER, BYTES,                                    \
           "bytes written to move values to SSD")                                                            \
    FIGURE(promotions, "penstock_promotions_total", COUNTER, COUNT, "values brought back into memory")       \
    FIGURE(fetches, "penstock_fetches_total", COUNTER, COUNT, "reads of the SSD for values")                 \
    FIGURE(fetched_bytes, "penstock_fetched_bytes_total", COUNTER, BYTES,                                    \
           "bytes read from the SSD for values")                                                             \
    FIGURE(ssd_hits, "penstock_ssd_hits_total", COUNTER, COUNT,                                              \
           "operations that found their value on SSD alone")                                                 \
    FIGURE(ssd_appended_bytes, "penstock_ssd_appended_bytes_total", COUNTER, BYTES,                          \
           "bytes of values written to SSD")                                                                 \
    FIGURE(ssd_written_bytes, "penstock_ssd_written_bytes_total", COUNTER, BYTES,                            \
           "bytes written to SSD in all")                                                                    \
    FIGURE(ssd_moved_bytes, "penstock_ssd_moved_bytes_total", COUNTER, BYTES,                                \
           "bytes of values moved on SSD to make room")                                                      \
    FIGURE(ssd_reclaimed_bytes, "penstock_ssd_reclaimed_bytes_total", COUNTER, BYTES,                        \
           "bytes of segments of the SSD taken back")                                                        \
    FIGURE(ssd_corrupt, "penstock_ssd_corrupt_total", COUNTER, COUNT, "values on SSD found damaged")         \
    FIGURE(ssd_errors, "penstock_ssd_errors_total", COUNTER, COUNT, "reads and writes that the SSD failed")  \
    HEADING("device memory")                                                                                 \
    FIGURE(hbm_keys, "penstock_hbm_keys", GAUGE, COUNT, "keys whose values are in device memory")            \
    FIGURE(hbm_bytes, "penstock_hbm_bytes", GAUGE, BYTES, "bytes of values that are in device memory")       \
    FIGURE(hbm_used_bytes, "penstock_hbm_used_bytes", GAUGE, BYTES, "bytes of device memory in use")         \
    FIGURE(hbm_capacity_bytes, "penstock_hbm_capacity_bytes", GAUGE, BYTES,                                  \
           "bytes of device memory for values")                                                              \
    FIGURE(hbm_promotions, "penstock_hbm_promotions_total", COUNTER, COUNT,                                  \
           "values moved from memory to the device")                                                         \
    FIGURE(hbm_demotions, "penstock_hbm_demotions_total", COUNTER, COUNT,                                    \
           "values moved from the device to memory or SSD")                                                  \
    FIGURE(hbm_hits, "penstock_hbm_hits_total", COUNTER, COUNT,                                              \
           "operations that found their value on the device")                                                \
    FIGURE(hbm_errors, "penstock_hbm_errors_total", COUNTER, COUNT, "copies that the device failed")         \
    HEADING("node")                                                                                          \
    FIGURE(nodes, "", GAUGE, COUNT, "nodes of the pool that was asked")                                      \
    FIGURE(shards, "penstock_shards", GAUGE, COUNT, "shards")                                                \
    FIGURE(sessions, "penstock_sessions", GAUGE, COUNT, "clients connected")                                 \
    FIGURE(uptime_ms, "penstock_uptime_seconds", GAUGE, MS, "time since the start")                          \
    FIGURE(restored_keys, "penstock_restored_keys", GAUGE, COUNT,                                            \
           "keys that the start found in memory and on SSD")                                                 \
    FIGURE(restored_dropped, "penstock_restored_dropped", GAUGE, COUNT,                                      \
           "records that the start left out, as not whole")                                                  \
    FIGURE(restored_ms, "penstock_restore_seconds", GAUGE, MS, "time that the start took to find keys")      \
    HEADING("refused")                                                                                       \
    FIGURE(refused_secret, "penstock_refused_secret_total", COUNTER, COUNT,                                  \
           "clients refused: a wrong secret, or none")                                                       \
    FIGURE(refused_version, "penstock_refused_version_total", COUNTER, COUNT,                                \
           "clients refused: no version that both speak")                                                    \
    FIGURE(refused_busy, "penstock_refused_busy_total", COUNTER, COUNT,                                      \
           "clients refused: no room for another session")                                                   \
    FIGURE(refused_other, "penstock_refused_other_total", COUNTER, COUNT,                                    \
           "clients refused: too slow, or none of ours")                                                     \
    FIGURE(refused_plain, "penstock_refused_plain_total", COUNTER, COUNT,                                    \
           "clients refused: without TLS, which the node wants")                                             \
    FIGURE(refused_tls, "penstock_refused_tls_total", COUNTER, COUNT,                                        \
           "clients refused: no TLS 1.3, or nothing in common")                                              \
    FIGURE(refused_certificate, "penstock_refused_certificate_total", COUNTER, COUNT,                        \
           "clients refused: no certificate, or one that proves nothing")                                    \
    FIGURE(refused_expired, "penstock_refused_expired_total", COUNTER, COUNT,                                \
           "clients refused: a certificate outside of its time")                                             \
    FIGURE(refused_replayed, "penstock_refused_replayed_total", COUNTER, COUNT,                              \
           "clients refused: TLS records that were replayed or changed")                                     \
    FIGURE(refused_by_client, "penstock_refused_by_client_total", COUNTER, COUNT,                            \
           "clients that did not believe the node's certificate")                                            \
    FIGURE(malformed, "penstock_malformed_total", COUNTER, COUNT, "messages that broke the protocol")        \
    FIGURE(forbidden, "penstock_forbidden_total", COUNTER, COUNT,                                            \
           "operations beyond what their client's grant allows")                                             \
    FIGURE(copies_asked, "penstock_copies_asked_total", COUNTER, COUNT,                                      \
           "keys whose put asked for several copies")

#endif

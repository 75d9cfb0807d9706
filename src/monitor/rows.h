/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rows.h: the metrics, a row each, for monitor/. From these rows come /metrics, `penstockd --metrics` and
 * docs/reference/metrics.md. Those of a store are the rows of `penstock stat` (wire/figures.h), those of a
 * pool name the lines that a master or a member tells of.
 */
#ifndef PST_MONITOR_ROWS_H
#define PST_MONITOR_ROWS_H

#include "directory/guest/guests.h"
#include "directory/tables.h"
#include "member/member.h"
#include "wire/figures.h"

/*
 * ROW(figure, label, metric, type, unit, text). A figure's name with a '*' stands for all that are so named,
 * and the label has what the '*' is; a histogram's names the count, beside which there are FIGURE_total_us,
 * FIGURE_us_N and FIGURE_us_more.
 */
#define MONITOR_POOL_ROWS(ROW)                                                                               \
    ROW("leads", NULL, "penstock_pool_leads", GAUGE, COUNT, "1: this master leads the pool; 0: it does not") \
    ROW("takeovers", NULL, "penstock_pool_takeovers_total", COUNTER, COUNT,                                  \
        "times that this master took the pool map, so as to lead")                                           \
    ROW("map_version", NULL, "penstock_pool_map_version", GAUGE, COUNT, "version of the pool map")           \
    ROW("term", NULL, "penstock_pool_term", GAUGE, COUNT, "masters that began from the stored pool map")     \
    ROW("directory_shard", NULL, "penstock_pool_directory_shard", GAUGE, COUNT,                              \
        "the share of the directory that this master has")                                                   \
    ROW("directory_shards", NULL, "penstock_pool_directory_shards", GAUGE, COUNT,                            \
        "shares that the directory has")                                                                     \
    ROW("members", NULL, "penstock_pool_members", GAUGE, COUNT, "nodes that are members of the pool")        \
    ROW("members_reporting", NULL, "penstock_pool_members_reporting", GAUGE, COUNT,                          \
        "members whose first report of their keys is not complete")                                          \
    ROW("members_suspect", NULL, "penstock_pool_members_suspect", GAUGE, COUNT,                              \
        "members that have not been heard of lately")                                                        \
    ROW("keys", NULL, "penstock_pool_keys", GAUGE, COUNT, "places of keys that the master knows")            \
    ROW("keys_bytes", NULL, "penstock_pool_keys_bytes", GAUGE, BYTES, "bytes of memory that this takes")     \
    ROW("reserved", NULL, "penstock_pool_reserved", GAUGE, COUNT, "places given out to puts underway")       \
    ROW("partitions_absent", NULL, "penstock_pool_partitions_absent", GAUGE, COUNT,                          \
        "partitions of which no node that had their keys is there")                                          \
    ROW("*_capacity_bytes", "tier", "penstock_pool_capacity_bytes", GAUGE, BYTES,                            \
        "bytes that the members have, by tier")                                                              \
    ROW("*_used_bytes", "tier", "penstock_pool_used_bytes", GAUGE, BYTES, "bytes of them in use, by tier")   \
    ROW("*_reserved_bytes", "tier", "penstock_pool_reserved_bytes", GAUGE, BYTES,                            \
        "bytes of them given out to puts underway, by tier")                                                 \
    ROW("malformed", NULL, "penstock_pool_malformed_total", COUNTER, COUNT,                                  \
        "questions to the master that broke the protocol")                                                   \
    ROW("located", NULL, "penstock_pool_located_total", COUNTER, COUNT,                                      \
        "keys that the master was asked for")                                                                \
    ROW("location_hits", NULL, "penstock_pool_location_hits_total", COUNTER, COUNT,                          \
        "keys that the master was asked for and knew a place of")                                            \
    ROW("blocks", NULL, "penstock_pool_blocks", GAUGE, COUNT, "blocks that engines hold")                    \
    ROW("blocks_added", NULL, "penstock_pool_blocks_added_total", COUNTER, COUNT, "blocks reported")         \
    ROW("blocks_refused", NULL, "penstock_pool_blocks_refused_total", COUNTER, COUNT,                        \
        "blocks reported that there was no room for")                                                        \
    ROW("blocks_removed", NULL, "penstock_pool_blocks_removed_total", COUNTER, COUNT, "blocks revoked")      \
    ROW("block_matches", NULL, "penstock_pool_block_matches_total", COUNTER, COUNT,                          \
        "questions for who holds blocks")                                                                    \
    ROW("block_hits", NULL, "penstock_pool_block_hits_total", COUNTER, COUNT,                                \
        "blocks that somebody held, in questions that count as hits")                                        \
    ROW("block_hits_dropped", NULL, "penstock_pool_block_hits_dropped_total", COUNTER, COUNT,                \
        "counts of hits that gave way to others before their time")                                          \
    ROW("guests", NULL, "penstock_pool_guests", GAUGE, COUNT, "nodes of mori's that are there")              \
    ROW("guest_keys", NULL, "penstock_pool_guest_keys", GAUGE, COUNT, "places of keys that they reported")   \
    ROW("call_*_failed", "call", "penstock_pool_call_failures_total", COUNTER, COUNT,                        \
        "questions to the master that it answered with an error")                                            \
    ROW("call_*", "call", "penstock_pool_call_duration_seconds", HISTOGRAM, US,                              \
        "how long the master took for a question")

#define MONITOR_GRANT_ROWS(ROW)                                                                              \
    ROW("grant.*.connections", "grant", "penstock_grant_connections", GAUGE, COUNT,                          \
        "clients connected by the grant's secrets")                                                          \
    ROW("grant.*.refused_read", "grant", "penstock_grant_refused_read_total", COUNTER, COUNT,                \
        "operations refused for want of the right to read")                                                  \
    ROW("grant.*.refused_write", "grant", "penstock_grant_refused_write_total", COUNTER, COUNT,              \
        "operations refused for want of the right to write")                                                 \
    ROW("grant.*.refused_admin", "grant", "penstock_grant_refused_admin_total", COUNTER, COUNT,              \
        "operations refused for want of the right to administer")

#define MONITOR_TIMES_METRIC "penstock_operation_duration_seconds"
#define MONITOR_TIMES_TEXT                                                                                   \
    "how long operations took, each as long as its request, without what a get waits for its key"

/* What the monitor counts itself; the last stands behind all. OWN(name, metric, type, text) */
#define MONITOR_OWN_ROWS(OWN)                                                                                \
    OWN(connections, "penstock_http_connections", GAUGE, "connections of this HTTP port")                    \
    OWN(scrapes, "penstock_http_scrapes_total", COUNTER, "answers of /metrics, this one included")           \
    OWN(failures, "penstock_http_scrape_failures_total", COUNTER,                                            \
        "times that the node did not tell its figures in time")                                              \
    OWN(spans_sent, "penstock_spans_sent_total", COUNTER, "spans of traced requests that a collector took")  \
    OWN(spans_dropped, "penstock_spans_dropped_total", COUNTER,                                              \
        "spans that it did not take in time, or that there was no room for")                                 \
    OWN(dropped, "penstock_http_series_dropped_total", COUNTER,                                              \
        "series that answers of /metrics left out, being too many")

#endif

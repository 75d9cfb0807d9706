/* SPDX-License-Identifier: Apache-2.0 */
/* tables.h: a directory's settings and what it counts, a row each. */
#ifndef PST_DIRECTORY_TABLES_H
#define PST_DIRECTORY_TABLES_H

#include "base/options.h"

/* TYPE, name, default, min, max, unit, text */
#define PST_DIRECTORY_OPTIONS(X)                                                                             \
    X(NUMBER, heartbeat_ms, "1000", 10, 60000, "ms", "time between two heartbeats of a node")                \
    X(NUMBER, heartbeats_missed, "3", 1, 100, "heartbeats", "late by so many, a node is given no new keys")  \
    X(NUMBER, member_ttl_ms, "10000", 50, 600000, "ms", "silent for so long, a node is a member no more")    \
    X(NUMBER, reaper_ms, "5000", 10, 60000, "ms", "time between two looks for such nodes")                   \
    X(NUMBER, lease_ms, "3000", 30, 60000, "ms", "a primary may serve for so long after a heartbeat")        \
    X(NUMBER, lease_margin_ms, "1000", 10, 60000, "ms", "so much later another takes its place")             \
    X(NUMBER, incomplete_ms, "60000", 0, 86400000, "ms", "a partition without a copy waits so long for one") \
    X(NUMBER, suspect_ms, "3000", 10, 60000, "ms", "a node that clients complain of is given no new keys")   \
    X(NUMBER, reserve_ms, "5000", 10, 600000, "ms", "room for a routed put is kept so long")                 \
    X(NUMBER, repair_again_ms, "10000", 10, 3600000, "ms",                                                   \
      "nodes look again for keys with too few copies so long after some could not be helped")                \
    X(NUMBER, warm_up_ms, "30000", 0, 3600000, "ms", "until a new node gets its full share of puts")         \
    X(NUMBER, nodes_min, "1", 1, 1024, "nodes", "partitions are dealt out when so many nodes are there")     \
    X(NUMBER, balance_partitions, "64", 0, 256, "partitions",                                                \
      "so many at a time move to nodes that have fewer than others; 0: none does")                           \
    X(NUMBER, members_max, "1024", 1, 16384, "nodes", "bound of members")                                    \
    X(NUMBER, entries_max, "16777216", 1024, 17179869184, "entries", "bound of keys, each of its places")    \
    X(NUMBER, reservations_max, "65536", 16, 16777216, "reservations", "bound of puts underway")             \
    X(NUMBER, directory_shards, "1", 1, 64, "shares",                                                        \
      "of the keys: the first is the leading master's, each other one a process's, see directory_shard")     \
    X(NUMBER, sweep_entries, "65536", 64, 1073741824, "entries", "of those of a lost node, given back a tick")

struct pst_directory_settings {
    PST_DIRECTORY_OPTIONS(PST_OPTION_MEMBER)
};

/* name, text */
#define PST_DIRECTORY_COUNTERS(X)                                                                            \
    X(registrations, "nodes that became members")                                                            \
    X(strangers, "questions of members and clients of another pool, refused")                                \
    X(refused_twice, "registrations refused since a living member has the id")                               \
    X(heartbeats, "heartbeats taken")                                                                        \
    X(heartbeats_stale, "heartbeats of a former membership, refused")                                        \
    X(heartbeats_past, "heartbeats that had come before, refused")                                           \
    X(heartbeats_bad, "heartbeats that say what cannot be, refused")                                         \
    X(gaps, "heartbeats with one missing before them")                                                       \
    X(syncs, "full reports completed")                                                                       \
    X(events, "additions and removals taken")                                                                \
    X(adds_dropped, "additions for which there was no room")                                                 \
    X(deaths, "members that ended without a word")                                                           \
    X(pauses, "times that the master did not run for so long that all nodes would be late")                  \
    X(promotions, "partitions that got another primary")                                                     \
    X(balanced, "partitions given to a node since it had fewer than others")                                 \
    X(partitions_incomplete, "partitions that lost their last copy")                                         \
    X(partitions_lost, "partitions without a copy that were given up")                                       \
    X(partitions_recovered, "partitions without a copy that are served again with what was durable")         \
    X(partitions_refused, "partitions dealt out anew and given back: the node's SSD could not be synced")    \
    X(partition_requests_stale, "changes of partitions asked for under an old epoch, refused")               \
    X(repairs, "copies of keys that nodes were told to send to others")                                      \
    X(repairs_none, "copies that no node had room for")                                                      \
    X(repairs_done, "copies that were sent, or were there")                                                  \
    X(repairs_failed, "copies that could not be sent")                                                       \
    X(repair_bytes, "bytes of values sent as copies")                                                        \
    X(reservations, "places given out to puts")                                                              \
    X(reservations_met, "places given out to puts and reported as filled")                                   \
    X(reservations_expired, "places given out to puts and not filled in time")                               \
    X(puts_unavailable, "puts for which no node had room")                                                   \
    X(lookups, "keys looked up")                                                                             \
    X(maps, "pool maps stored")

struct pst_directory_counters {
#define X(name, text) uint64_t name;
    PST_DIRECTORY_COUNTERS(X)
#undef X
};

#endif

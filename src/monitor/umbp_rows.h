/* SPDX-License-Identifier: Apache-2.0 */
/*
 * umbp_rows.h: the metrics that mori's own master has, by its names, types and labels, a row each, for
 * umbp.c. Names and labels are those of src/umbp/include/umbp/distributed/master/master_metrics.h in ROCm's
 * mori, and of its dashboards.
 */
#ifndef PST_MONITOR_UMBP_ROWS_H
#define PST_MONITOR_UMBP_ROWS_H

/*
 * ROW(metric, TYPE, labels, value, shown, text). Labels: NODE; TAGS: those of the node as well; TIER; RESULT,
 * which is "ok". Of @c, a guest, and @t, a tier, @value is the value and @shown whether there is one.
 */
#define MONITOR_UMBP_GUEST_ROWS(ROW)                                                                         \
    ROW("mori_umbp_client_capacity_total_bytes", GAUGE, TIER, (double)c->tiers[t].capacity_bytes,            \
        c->tiers[t].capacity_bytes > 0, "bytes that the node has, by tier")                                  \
    ROW("mori_umbp_client_capacity_available_bytes", GAUGE, TIER,                                            \
        (double)(c->tiers[t].capacity_bytes - c->tiers[t].used_bytes), c->tiers[t].capacity_bytes > 0,       \
        "bytes of them that are free, by tier")                                                              \
    ROW("mori_umbp_client_capacity_used_bytes", GAUGE, TIER, (double)c->tiers[t].used_bytes,                 \
        c->tiers[t].capacity_bytes > 0, "bytes of them in use, by tier")                                     \
    ROW("mori_umbp_client_capacity_utilization_ratio", GAUGE, TIER,                                          \
        (double)c->tiers[t].used_bytes / (double)c->tiers[t].capacity_bytes, c->tiers[t].capacity_bytes > 0, \
        "share of them in use, by tier")                                                                     \
    ROW("mori_umbp_client_kv_live_count", GAUGE, TIER | TAGS, (double)c->keys[t],                            \
        c->tiers[t].capacity_bytes > 0, "keys that the node has, as it counts them, by tier")                \
    ROW("mori_umbp_client_kv_live_count_total", GAUGE, NODE | TAGS,                                          \
        (double)c->keys[PST_POOL_HBM] + (double)c->keys[PST_POOL_DRAM] + (double)c->keys[PST_POOL_SSD],      \
        true, "keys that the node has, on all tiers")                                                        \
    ROW("mori_umbp_client_route_put_total", COUNTER, NODE, (double)c->counters.route_put, true,              \
        "puts that were sent to the node")                                                                   \
    ROW("mori_umbp_client_route_get_total", COUNTER, NODE, (double)c->counters.route_get, true,              \
        "gets that were sent to the node")                                                                   \
    ROW("mori_umbp_client_batch_route_put_total", COUNTER, NODE, (double)c->counters.batch_route_put, true,  \
        "puts of batches that were sent to the node")                                                        \
    ROW("mori_umbp_client_batch_route_get_total", COUNTER, NODE, (double)c->counters.batch_route_get, true,  \
        "gets of batches that were sent to the node")                                                        \
    ROW("mori_umbp_heartbeat_events_applied_total", COUNTER, NODE, (double)c->counters.events, true,         \
        "keys that the node reported as come or gone")                                                       \
    ROW("mori_umbp_heartbeat_seq_gap_total", COUNTER, NODE, (double)c->counters.gaps, true,                  \
        "heartbeats of the node with one missing before them")                                               \
    ROW("mori_umbp_external_kv_report_total", COUNTER, TIER | RESULT, (double)c->counters.report_calls[t],   \
        c->counters.report_calls[t] > 0, "reports of blocks that engines hold")                              \
    ROW("mori_umbp_external_kv_report_blocks_total", COUNTER, TIER, (double)c->counters.report_blocks[t],    \
        c->counters.report_calls[t] > 0, "blocks in these reports")                                          \
    ROW("mori_umbp_external_kv_revoke_total", COUNTER, TIER | RESULT, (double)c->counters.revoke_calls[t],   \
        c->counters.revoke_calls[t] > 0, "revocations of blocks that engines held")                          \
    ROW("mori_umbp_external_kv_revoke_blocks_total", COUNTER, TIER, (double)c->counters.revoke_blocks[t],    \
        c->counters.revoke_calls[t] > 0, "blocks in these revocations")                                      \
    ROW("mori_umbp_external_kv_live_count", GAUGE, NODE, (double)c->block_count, true,                       \
        "blocks of the node that are known, each on each of its tiers")

/* ROW(metric, TYPE, value, text). Of @s, what is known of all. */
#define MONITOR_UMBP_TOTAL_ROWS(ROW)                                                                         \
    ROW("mori_umbp_client_count", GAUGE, (double)s->count, "nodes that are there")                           \
    ROW("mori_umbp_external_kv_match_total", COUNTER, (double)s->totals.match_calls,                         \
        "questions for who holds blocks")                                                                    \
    ROW("mori_umbp_external_kv_match_queried_blocks_total", COUNTER, (double)s->totals.match_queried,        \
        "blocks asked for")                                                                                  \
    ROW("mori_umbp_external_kv_match_matched_blocks_total", COUNTER, (double)s->totals.match_matched,        \
        "blocks found, at each node that holds them")

#endif

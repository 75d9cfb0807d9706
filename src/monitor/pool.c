/* SPDX-License-Identifier: Apache-2.0 */
/* pool.c: what a pool's master alone tells, as JSON: its members and its map. */
#include "monitor/monitor_priv.h"

#include "pool/map.h"
#include "web/reply.h"

#include <stdio.h>

static bool is_master(const struct pst_monitor *monitor, struct pst_web_answer *answer)
{
    if (!monitor->ops->map)
        monitor_detail(answer, 404, "only a pool's master tells this");
    return monitor->ops->map;
}

/* ---- members ---- */

static struct pst_json *node_json(const struct penstock_pool_node *node)
{
    struct pst_json *json = pst_json_new_object();
    struct pst_id id;
    char text[PST_ID_TEXT_BYTES];

    _Static_assert(sizeof(id.bytes) == sizeof(node->id), "both are a node's id");
    memcpy(id.bytes, node->id, sizeof(id.bytes));
    pst_id_print(&id, text);
    pst_json_add_integer(json, "member", node->member);
    pst_json_add_text(json, "id", text);
    pst_json_add_text(json, "address", node->address);
    pst_json_add_text(json, "state", penstock_pool_node_state(node));
    pst_json_add_integer(json, "primaries", node->primaries);
    pst_json_add_integer(json, "copies", node->copies);
    monitor_add_count(json, "keys_left", node->keys_left);
    monitor_add_count(json, "capacity_bytes", node->capacity_bytes);
    monitor_add_count(json, "used_bytes", node->used_bytes);
    return json;
}

void monitor_nodes(struct pst_monitor *monitor, const struct pst_web_request *request,
                   struct pst_web_answer *answer)
{
    struct penstock_pool_node *members = NULL;
    size_t count = PST_MAP_MEMBERS_MAX;
    struct pst_json *json, *nodes;
    int r;

    (void)request;
    if (!is_master(monitor, answer))
        return;
    members = calloc(count, sizeof(*members));
    r = members ? penstock_pool_nodes(monitor->store, members, &count) : -ENOMEM;
    if (r < 0) {
        monitor_no_answer(answer, r);
    } else {
        json = pst_json_new_object();
        nodes = pst_json_new_array();
        for (size_t i = 0; i < pst_min(count, PST_MAP_MEMBERS_MAX); i++)
            pst_json_add(nodes, NULL, node_json(&members[i]));
        pst_json_add(json, "nodes", nodes);
        pst_web_reply_json(answer, 200, json);
    }
    free(members);
}

/* ---- the pool map ---- */

static struct pst_json *member_json(const struct pst_map_member *member, uint32_t number)
{
    struct pst_json *json = pst_json_new_object();
    char id[PST_ID_TEXT_BYTES];

    pst_json_add_integer(json, "member", number);
    pst_id_print(&member->id, id);
    pst_json_add_text(json, "id", id);
    pst_id_print(&member->host, id);
    pst_json_add_text(json, "host", id);
    pst_json_add_text(json, "address", *member->address ? member->address : member->unix_path);
    monitor_add_count(json, "epoch", member->epoch);
    pst_json_add_flag(json, "gone", member->gone);
    pst_json_add_flag(json, "drains", member->drains);
    return json;
}

static struct pst_json *prefix_json(const struct pst_map_prefix *prefix)
{
    struct pst_json *json = pst_json_new_object();
    char text[PST_MAP_PREFIX_BYTES_MAX + 1];

    snprintf(text, sizeof(text), "%.*s", prefix->bytes, prefix->text);
    if (pst_json_add_text(json, "prefix", text) < 0)
        pst_json_add_null(json, "prefix");
    pst_json_add_text(json, "placement", prefix->placement == PST_PLACE_HOME ? "home" : "anywhere");
    pst_json_add_integer(json, "replicas", prefix->replicas);
    return json;
}

static struct pst_json *partition_json(const struct pst_map_partition *partition)
{
    static const char *const words[] = {
        [PST_MAP_EMPTY] = "empty", [PST_MAP_SERVED] = "served", [PST_MAP_INCOMPLETE] = "incomplete"};
    struct pst_json *json = pst_json_new_object(), *replicas = pst_json_new_array();

    pst_assert(partition->state < pst_count_of(words));
    pst_json_add_text(json, "state", words[partition->state]);
    if (partition->lost)
        pst_json_add_flag(json, "lost", true);
    for (uint32_t i = 0; i < partition->replica_count; i++)
        pst_json_add_integer(replicas, NULL, partition->replicas[i]);
    pst_json_add(json, "replicas", replicas);
    return json;
}

static struct pst_json *map_json(const struct pst_map *map)
{
    struct pst_json *json = pst_json_new_object(), *members = pst_json_new_array(),
                    *prefixes = pst_json_new_array(), *partitions = pst_json_new_array();
    char pool[PST_ID_TEXT_BYTES];

    pst_id_print(&map->pool, pool);
    pst_json_add_text(json, "pool", pool);
    monitor_add_count(json, "version", map->version);
    monitor_add_count(json, "term", map->term);
    for (uint32_t i = 0; i < map->members_max; i++)
        if (map->members[i].epoch)
            pst_json_add(members, NULL, member_json(&map->members[i], i));
    for (uint32_t i = 0; i < map->prefix_count; i++)
        pst_json_add(prefixes, NULL, prefix_json(&map->prefixes[i]));
    for (uint32_t i = 0; i < PST_PARTITIONS; i++)
        pst_json_add(partitions, NULL, partition_json(&map->partitions[i]));
    pst_json_add(json, "members", members);
    pst_json_add(json, "prefixes", prefixes);
    pst_json_add(json, "partitions", partitions);
    return json;
}

void monitor_map(struct pst_monitor *monitor, const struct pst_web_request *request,
                 struct pst_web_answer *answer)
{
    struct pst_map *map = NULL;
    int r;

    (void)request;
    if (!is_master(monitor, answer))
        return;
    r = monitor->ops->map(monitor->ctx, &map);
    if (r < 0) {
        monitor_no_answer(answer, r);
        return;
    }
    pst_web_reply_json(answer, 200, map_json(map));
    pst_map_close(map);
}

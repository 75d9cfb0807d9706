/* SPDX-License-Identifier: Apache-2.0 */
/* rows.c: how the members of a pipelined broadcast stand, for people and for those who wait. */
#include "agent/store/store_priv.h"

#include "base/clock.h"
#include "files/group/tree.h"

struct listing {
    struct pst_json *broadcasts;
    struct pst_json *members; /* of the one that was listed last; @broadcasts has it */
    struct pst_broadcast_info info;
    uint64_t now_ms;
};

static void add_broadcast(void *arg, const struct pst_broadcast_info *info)
{
    struct listing *listing = arg;
    struct pst_json *json = pst_json_new_object();

    listing->info = *info;
    listing->members = pst_json_new_array();
    pst_json_add_text(json, "key", info->name);
    pst_json_add_integer(json, "bytes", (int64_t)info->bytes);
    pst_json_add_integer(json, "pieces", info->pieces);
    pst_json_add_integer(json, "piece_bytes", info->piece_bytes);
    pst_json_add(json, "members", listing->members);
    pst_json_add(listing->broadcasts, NULL, json);
}

static void add_member(void *arg, const struct pst_chain_member *member)
{
    static const char *const states[] = {[PST_CHAIN_FETCHES] = "fetching",
                                         [PST_CHAIN_OUT] = "unreachable",
                                         [PST_CHAIN_DONE] = "done",
                                         [PST_CHAIN_LEFT] = "left"};
    const struct listing *listing = arg;
    struct pst_json *json = pst_json_new_object();
    uint64_t bytes = (uint64_t)member->pieces * listing->info.piece_bytes;

    pst_json_add_integer(json, "rank", member->rank);
    pst_json_add_text(json, "ip", member->address.host);
    pst_json_add_integer(json, "port", member->address.port);
    pst_json_add_integer(json, "parent_rank", member->parent_rank);
    pst_assert(member->state < pst_count_of(states));
    pst_json_add_text(json, "state", states[member->state]);
    pst_json_add_integer(json, "pieces", member->pieces);
    pst_json_add_integer(json, "bytes", (int64_t)pst_min(bytes, listing->info.bytes));
    pst_json_add_integer(json, "reports", member->reports);
    pst_json_add_flag(json, "refused", member->refused);
    pst_json_add_integer(json, "silent_ms", (int64_t)(listing->now_ms - member->heard_ms));
    pst_json_add(listing->members, NULL, json);
}

void broadcast_rows(struct call *call, struct pst_bytes raw_group)
{
    char group[PST_TREE_GROUP_BYTES_MAX + 1];
    struct listing listing = {.broadcasts = pst_json_new_array(), .now_ms = pst_now_ms()};
    const struct pst_broadcast_each each = {add_broadcast, add_member, &listing};
    struct pst_json *json;
    int r = pst_web_decode(raw_group, false, group, sizeof(group));

    if (r <= 0) {
        pst_json_free(listing.broadcasts);
        reply_detail(call, 400, "the group's name cannot be");
        return;
    }
    pst_broadcasts_list(call->store->rows, group, &each);
    json = pst_json_new_object();
    pst_json_add_text(json, "group_id", group);
    pst_json_add(json, "broadcasts", listing.broadcasts);
    reply_json(call, 200, json);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* answer.c: each question to the master: decoded, put to the directory, its answer encoded. The lock is held.
 */
#include "master/follow_priv.h"

#include "base/clock.h"
#include "wire/pool_block.h"
#include "wire/pool_key.h"
#include "wire/pool_member.h"

#define STRANGER_NS 10000000000ull

/* A question and its answer. */
struct question {
    struct pst_master *master;
    enum pst_standing standing;
    const struct pst_wire_op *op;
    uint64_t now_ns;
    uint8_t *to;
    size_t room;
    struct pst_wire_result *result;
};

static int answer(struct question *q, const void *data, size_t bytes)
{
    pst_assert(q->room <= UINT32_MAX);
    if (bytes > q->room)
        return -ENOBUFS;
    memcpy(q->to, data, bytes);
    q->result->bytes = (uint32_t)bytes;
    return 0;
}

static struct pst_id id_of(const uint8_t bytes[PST_POOL_ID_BYTES])
{
    struct pst_id id;

    memcpy(id.bytes, bytes, sizeof(id.bytes));
    return id;
}

static bool in_effect(const struct pst_master *m, uint64_t version)
{
    return pst_directory_map(m->directory)->version >= version;
}

/* ---- members ---- */

static int call_join(struct question *q)
{
    struct pst_master *m = q->master;
    struct pst_pool_join join;
    struct pst_registered registered = {0};
    struct pst_pool_joined joined;
    struct pst_register message;
    int r = pst_pool_get_join(q->op->attrs, &join);

    if (r < 0)
        return r;
    message = (struct pst_register){.id = id_of(join.id),
                                    .host = id_of(join.host),
                                    .start = join.start,
                                    .page_bytes = join.page_bytes,
                                    .kept_epoch = join.kept_epoch,
                                    .kept_durable = join.kept_durable,
                                    .address = join.address,
                                    .unix_path = join.unix_path,
                                    .tags = join.tags};
    r = pst_directory_register(m->directory, &message, q->now_ns, &registered);
    if (r == -EEXIST)
        answer(q, registered.holder->address, strlen(registered.holder->address));
    if (r == -EAGAIN || (r == 0 && !in_effect(m, registered.version)))
        return PST_POOL_BUSY;
    if (r < 0)
        return r;
    joined = (struct pst_pool_joined){.epoch = registered.epoch,
                                      .version = registered.version,
                                      .seed = pst_directory_map(m->directory)->seed,
                                      .heartbeat_ms = (uint32_t)registered.heartbeat_ms,
                                      .member = registered.member};
    memcpy(joined.pool, &pst_directory_map(m->directory)->pool, sizeof(joined.pool));
    return answer(q, &joined, sizeof(joined));
}

static int call_leave(struct question *q)
{
    struct pst_pool_member member;
    enum pst_left left;
    uint64_t version = 0;
    int r = pst_pool_get(q->op->attrs, &member, sizeof(member));

    if (r < 0)
        return r;
    left = !(member.ends & PST_POOL_END_VALUES)  ? PST_LEFT_KEPT
           : !(member.ends & PST_POOL_END_CACHE) ? PST_LEFT_LOST
                                                 : PST_LEFT_VOID;
    r = pst_directory_unregister(q->master->directory, member.member, member.epoch, left, q->now_ns,
                                 &version);
    /* One that is about to be removed is none already; whether it has taken effect is for the thread to see.
     */
    return r;
}

static int call_suspect(struct question *q)
{
    struct pst_pool_member member;
    int r = pst_pool_get(q->op->attrs, &member, sizeof(member));

    return r < 0 ? r : pst_directory_suspect(q->master->directory, member.member, member.epoch, q->now_ns);
}

static int call_drain(struct question *q)
{
    struct pst_pool_drain drain;
    uint64_t version = 0;
    struct pst_id id;
    int r = pst_pool_get(q->op->attrs, &drain, sizeof(drain));

    if (r < 0)
        return r;
    id = id_of(drain.id);
    r = pst_directory_drain(q->master->directory, &id, drain.drains != 0, &version);
    return r == 0 && !in_effect(q->master, version) ? PST_POOL_BUSY : r;
}

static int call_forgive(struct question *q)
{
    uint64_t version = 0;

    pst_directory_forgive(q->master->directory, &version);
    return in_effect(q->master, version) ? 0 : PST_POOL_BUSY;
}

/* The result's generation is the version of the pool map. */
static int call_share(struct question *q)
{
    struct pst_master *m = q->master;
    struct pst_pool_share share;
    uint64_t version = 0;
    int r = pst_pool_get_share(q->op->attrs, &share);

    if (r == 0)
        r = pst_directory_take_share(m->directory, share.share, share.start, share.address, q->now_ns,
                                     &version);
    q->result->generation = pst_directory_map(m->directory)->version;
    return r == 0 && !in_effect(m, version) ? PST_POOL_BUSY : r;
}

static int call_nodes(struct question *q)
{
    struct pst_directory_node nodes[PST_POOL_NODES_MAX];
    const struct pst_map *map = pst_directory_map(q->master->directory);
    uint32_t max = (uint32_t)pst_min(PST_POOL_NODES_MAX, q->room / sizeof(struct pst_pool_node));
    uint32_t first = (uint32_t)pst_min(q->op->offset, UINT32_MAX), count;

    if (max == 0)
        return -ENOBUFS;
    count = pst_directory_nodes(q->master->directory, first, q->now_ns, nodes, max);
    pst_assert(count <= max);
    for (uint32_t i = 0; i < count; i++) {
        const struct pst_directory_node *node = &nodes[i];
        const struct pst_map_member *member = &map->members[node->member];
        const struct pst_tier_use *dram = &node->tiers[PST_POOL_DRAM];
        struct pst_pool_node row = {.keys_left = node->keys_left,
                                    .dram = {dram->capacity_bytes, dram->used_bytes},
                                    .primaries = node->primaries,
                                    .copies = node->copies,
                                    .member = node->member};

        row.flags =
            (uint8_t)((node->drains ? PST_POOL_NODE_DRAINS : 0) |
                      (node->drained ? PST_POOL_NODE_DRAINED : 0) | (node->stuck ? PST_POOL_NODE_STUCK : 0) |
                      (node->suspect ? PST_POOL_NODE_SUSPECT : 0));
        pst_assert(node->member < q->master->members_max);
        memcpy(row.id, member->id.bytes, sizeof(row.id));
        memcpy(row.address, *member->address ? member->address : member->unix_path, sizeof(row.address));
        memcpy(q->to + i * sizeof(row), &row, sizeof(row));
    }
    q->result->bytes = (uint32_t)(count * sizeof(struct pst_pool_node));
    return 0;
}

static int answer_beat(struct question *q, const struct pst_pool_heartbeat *beat,
                       const struct pst_heartbeat_answer *said)
{
    struct pst_pool_want wants[PST_WANTS_MAX];
    struct pst_pool_beat out = {.sequence_next = said->sequence_next,
                                .sent_ns = beat->sent_ns,
                                .lease_version = said->lease_version,
                                .version = said->version,
                                .term = said->term,
                                .repair = said->repair,
                                .lease_ms = (uint32_t)said->lease_ms,
                                .sync = said->sync,
                                .want_count = (uint16_t)said->want_count};
    uint8_t bytes[sizeof(out) + sizeof(wants)];

    _Static_assert((int)PST_WANTS_MAX <= (int)PST_POOL_WANT_COUNT_MAX, "wants of a heartbeat");
    pst_assert(said->want_count <= PST_WANTS_MAX);
    memcpy(out.pool, beat->pool, sizeof(out.pool)); /* which is this one */
    for (uint32_t i = 0; i < said->want_count; i++)
        wants[i] = (struct pst_pool_want){.partition_epoch = said->wants[i].partition_epoch,
                                          .member_epoch = said->wants[i].member_epoch,
                                          .partition = said->wants[i].partition,
                                          .member = said->wants[i].member,
                                          .leads = said->wants[i].leads};
    return answer(q, bytes, pst_pool_put_beat(bytes, &out, wants));
}

static int call_heartbeat(struct question *q)
{
    struct pst_pool_event told[PST_POOL_EVENTS_MAX];
    struct pst_event events[PST_POOL_EVENTS_MAX];
    struct pst_heartbeat_answer said = {0};
    struct pst_pool_heartbeat beat;
    struct pst_heartbeat message;
    int r = pst_pool_get_heartbeat(q->op->attrs, &beat, told);

    if (r == 0 && q->room < sizeof(struct pst_pool_beat) + PST_WANTS_MAX * sizeof(struct pst_pool_want))
        r = -ENOBUFS;
    if (r < 0)
        return r;
    pst_assert(beat.event_count <= PST_POOL_EVENTS_MAX);
    for (uint32_t i = 0; i < beat.event_count; i++)
        events[i] = (struct pst_event){
            .key = told[i].key, .generation = told[i].generation, .kind = told[i].kind, .tier = told[i].tier};
    message = (struct pst_heartbeat){.member = beat.member,
                                     .epoch = beat.epoch,
                                     .sequence = beat.sequence,
                                     .flags = beat.flags,
                                     .share = beat.share,
                                     .share_last = beat.share_last,
                                     .event_count = beat.event_count,
                                     .events = events};
    _Static_assert((int)PST_POOL_TIER_COUNT + 1 == (int)PST_POOL_TIERS, "tiers count from 1");
    for (uint32_t i = 0; i < PST_POOL_TIER_COUNT; i++)
        message.tiers[i + 1] = (struct pst_tier_use){beat.tiers[i].capacity_bytes, beat.tiers[i].used_bytes};
    r = pst_directory_heartbeat(q->master->directory, &message, q->now_ns, &said);
    if (r != -ESTALE)
        answer_beat(q, &beat, &said);
    if (q->master->follower && (r == -ESTALE || r == -EILSEQ))
        pst_follow_hurry(q->master); /* the pool map may name it, or other shares */
    return r;
}

/* A change that cannot be stored may cost a node its lease until it is. */
static bool may_change(const struct question *q)
{
    return q->standing == PST_LEADS &&
           !(q->master->failing && q->master->keeper && q->master->keeper->ops->shared);
}

/* What is not done is asked for again: the pool map alone tells what was. */
static int call_copies(struct question *q)
{
    struct pst_pool_copy copies[PST_POOL_COPIES_MAX];
    struct pst_id pool;
    int count =
        pst_pool_get_items(q->op->attrs, &pool, sizeof(pool), copies, sizeof(copies[0]), PST_POOL_COPIES_MAX);

    _Static_assert(
        (int)PST_POOL_COPY_DROP == (int)PST_COPY_DROP && (int)PST_POOL_COPY_JOIN == (int)PST_COPY_JOIN &&
            (int)PST_POOL_COPY_LEAD == (int)PST_COPY_LEAD && (int)PST_POOL_COPY_TAKE == (int)PST_COPY_TAKE &&
            (int)PST_POOL_COPY_REFUSE == (int)PST_COPY_REFUSE,
        "changes of a partition");
    pst_assert(count <= PST_POOL_COPIES_MAX);
    for (int i = 0; i < count; i++) {
        const struct pst_copy_request request = {.member = copies[i].member,
                                                 .epoch = copies[i].epoch,
                                                 .change = (enum pst_copy_change)copies[i].change,
                                                 .partition = copies[i].partition,
                                                 .partition_epoch = copies[i].partition_epoch,
                                                 .copy = copies[i].copy,
                                                 .copy_epoch = copies[i].copy_epoch};
        uint64_t version;

        if (may_change(q))
            pst_directory_change_copy(q->master->directory, &request, &version); /* counts what it refuses */
    }
    return count < 0 ? count : 0;
}

/* A piece of the pool map from the operation's offset on, when it is newer than what the asker has. */
static int call_map(struct question *q)
{
    struct pst_master *m = q->master;
    const struct pst_map *map = pst_directory_map(m->directory);
    struct pst_pool_map head = {.map_bytes = q->op->known_version == map->version ? 0 : m->map_bytes};
    uint64_t piece = 0;

    pst_assert(m->map_bytes > 0 && m->map_bytes <= m->map_room); /* stored before anybody asked */
    q->result->generation = map->version;
    if (q->room < sizeof(head) + 1 || q->op->offset > m->map_bytes)
        return q->room < sizeof(head) + 1 ? -ENOBUFS : -EINVAL;
    if (head.map_bytes)
        piece = pst_min(m->map_bytes - q->op->offset, q->room - sizeof(head));
    memcpy(q->to, &head, sizeof(head));
    pst_assert(piece <= q->room - sizeof(head));
    pst_assert(q->op->offset + piece <= m->map_bytes);
    memcpy(q->to + sizeof(head), m->map + q->op->offset, piece);
    q->result->bytes = (uint32_t)(sizeof(head) + piece);
    return 0;
}

/* ---- keys ---- */

static const uint8_t statuses[] = {
    [PST_ROUTE_TO] = PST_POOL_ROUTED,
    [PST_ROUTE_EXISTS] = PST_POOL_EXISTS,
    [PST_ROUTE_UNAVAILABLE] = PST_POOL_UNAVAILABLE,
    [PST_ROUTE_MISS] = PST_POOL_MISS,
    [PST_ROUTE_INCOMPLETE] = PST_POOL_INCOMPLETE,
};

static void answer_routes(struct question *q, const struct pst_route *routes, uint32_t count)
{
    uint8_t *at = q->to;

    _Static_assert((int)PST_PLACES_MAX <= (int)PST_POOL_ROUTE_PLACES_MAX, "places of a route");
    pst_assert(count * PST_POOL_ROUTE_BYTES_MAX <= q->room);
    for (uint32_t i = 0; i < count; i++) {
        struct pst_pool_route route = {.status = statuses[routes[i].status],
                                       .place_count = (uint8_t)routes[i].places.count};

        pst_assert(routes[i].status < pst_count_of(statuses));
        pst_assert(routes[i].places.count <= PST_POOL_ROUTE_PLACES_MAX);
        for (uint32_t p = 0; p < routes[i].places.count; p++)
            route.places[p] = (struct pst_pool_place){.generation = routes[i].places.items[p].generation,
                                                      .member = routes[i].places.items[p].member,
                                                      .tier = routes[i].places.items[p].tier};
        at = pst_pool_put_route(at, &route);
    }
    pst_assert((size_t)(at - q->to) <= q->room);
    q->result->bytes = (uint32_t)(at - q->to);
}

/* Return: @count, or that some of the keys are not this master's to know of. */
static int check_share(const struct question *q, const struct pst_hash128 *keys, int count)
{
    if (count > 0 && !pst_directory_has_share_of(q->master->directory, keys, (uint32_t)count))
        return PST_POOL_OTHER_SHARE;
    return count;
}

/* Who asks, and about what. Return: items, -EPROTO, -ENOBUFS their routes may not fit into the answer. */
static int read_items(const struct question *q, void *head, size_t head_bytes, void *items, size_t item_bytes,
                      uint32_t max)
{
    int count = pst_pool_get_items(q->op->attrs, head, head_bytes, items, item_bytes, max);

    pst_assert(count <= (int)max);
    return count > 0 && (size_t)count * PST_POOL_ROUTE_BYTES_MAX > q->room ? -ENOBUFS : count;
}

static int call_locate(struct question *q)
{
    struct pst_hash128 keys[PST_POOL_LOCATE_MAX];
    struct pst_route routes[PST_POOL_LOCATE_MAX];
    struct pst_pool_asker asker;
    struct pst_caller caller;
    int count = read_items(q, &asker, sizeof(asker), keys, sizeof(keys[0]), PST_POOL_LOCATE_MAX);

    _Static_assert((int)PST_POOL_LOCATE_MAX <= (int)PST_DIRECTORY_BATCH_MAX, "keys that are located at once");
    count = check_share(q, keys, count);
    if (count < 0)
        return count;
    caller.host = id_of(asker.host);
    pst_directory_route_get(q->master->directory, &caller, keys, (uint32_t)count, q->now_ns, routes);
    q->master->located += (uint64_t)count;
    for (int i = 0; i < count; i++) {
        q->master->location_hits += routes[i].status == PST_ROUTE_TO;
        if (routes[i].status == PST_ROUTE_MISS && q->standing != PST_LEADS)
            routes[i].status = PST_ROUTE_INCOMPLETE; /* it may be at a node that asks another master */
    }
    pst_assert(q->master->location_hits <= q->master->located);
    answer_routes(q, routes, (uint32_t)count);
    return 0;
}

/* The same of keys that are to be placed. Return: as read_items(), or -EINVAL. */
static int read_puts(const struct question *q, void *head, size_t head_bytes,
                     struct pst_put puts[PST_POOL_PLACE_MAX])
{
    struct pst_pool_want_place wanted[PST_POOL_PLACE_MAX];
    int count = read_items(q, head, head_bytes, wanted, sizeof(wanted[0]), PST_POOL_PLACE_MAX);

    _Static_assert((int)PST_POOL_PLACE_MAX <= (int)PST_DIRECTORY_BATCH_MAX, "keys that are placed at once");
    for (int i = 0; i < count; i++) {
        puts[i] = (struct pst_put){.key = wanted[i].key,
                                   .bytes = wanted[i].bytes,
                                   .replicas = wanted[i].replicas,
                                   .evictable = wanted[i].evictable != 0};
        if (puts[i].replicas < 1 || puts[i].replicas > PST_PLACES_MAX)
            return -EINVAL;
        if (check_share(q, &puts[i].key, 1) < 0)
            return PST_POOL_OTHER_SHARE;
    }
    pst_assert(count <= PST_POOL_PLACE_MAX);
    return count;
}

static int call_place(struct question *q)
{
    struct pst_put puts[PST_POOL_PLACE_MAX];
    struct pst_route routes[PST_POOL_PLACE_MAX];
    struct pst_pool_asker asker;
    struct pst_caller caller;
    int count = read_puts(q, &asker, sizeof(asker), puts);

    if (count < 0)
        return count;
    caller.host = id_of(asker.host);
    pst_directory_route_put(q->master->directory, &caller, puts, (uint32_t)count, q->now_ns, routes);
    answer_routes(q, routes, (uint32_t)count);
    return 0;
}

static int call_repair(struct question *q)
{
    struct pst_put puts[PST_POOL_PLACE_MAX];
    struct pst_route routes[PST_POOL_PLACE_MAX];
    struct pst_pool_repair head;
    struct pst_repair message;
    int r, count = read_puts(q, &head, sizeof(head), puts);

    if (count < 0)
        return count;
    message = (struct pst_repair){.member = head.member,
                                  .epoch = head.epoch,
                                  .repair = head.repair,
                                  .flags = head.flags,
                                  .done = head.done,
                                  .failed = head.failed,
                                  .bytes = head.bytes};
    r = pst_directory_repair(q->master->directory, &message, puts, (uint32_t)count, q->now_ns, routes);
    if (r == 0)
        answer_routes(q, routes, (uint32_t)count);
    return r;
}

/* ---- blocks that engines hold ---- */

/* The head of a question about a node's blocks, and that node's number. Return: hashes, -ESTALE no such
 * member, -EPROTO. */
static int read_blocks(const struct question *q, struct pst_pool_blocks *head, struct pst_hash128 *hashes,
                       uint16_t *member)
{
    int count =
        pst_pool_get_items(q->op->attrs, head, sizeof(*head), hashes, sizeof(*hashes), PST_POOL_REPORT_MAX);
    struct pst_id id = id_of(head->id);

    count = check_share(q, hashes, count);
    if (count < 0)
        return count;
    *member = pst_map_find(pst_directory_map(q->master->directory), &id);
    pst_assert(*member == PST_MAP_NONE || *member < q->master->members_max);
    return *member == PST_MAP_NONE || !q->master->external_epochs[*member] ? -ESTALE : count;
}

/* The result's generation is how many were refused for want of room. */
static int call_report(struct question *q)
{
    struct pst_hash128 hashes[PST_POOL_REPORT_MAX];
    struct pst_pool_blocks head;
    uint16_t member;
    int count = read_blocks(q, &head, hashes, &member);

    if (count < 0)
        return count;
    pst_assert(count <= PST_POOL_REPORT_MAX);
    q->result->generation =
        pst_external_report(q->master->external, member, head.tier, hashes, (uint32_t)count);
    return 0;
}

/* The result's generation is how many went; of a tier or a node so many at a time. */
static int call_revoke(struct question *q)
{
    struct pst_hash128 hashes[PST_POOL_REPORT_MAX];
    struct pst_external *x = q->master->external;
    struct pst_pool_blocks head;
    uint16_t member;
    int count = read_blocks(q, &head, hashes, &member);

    if (count < 0)
        return count;
    pst_assert(count <= PST_POOL_REPORT_MAX);
    if (head.scope == PST_POOL_OF_HASHES)
        q->result->generation = pst_external_revoke(x, member, head.tier, hashes, (uint32_t)count);
    else if (head.scope == PST_POOL_OF_TIER)
        q->result->generation = pst_external_revoke_tier(x, member, head.tier, PST_POOL_REVOKE_MAX);
    else if (head.scope == PST_POOL_OF_NODE)
        q->result->generation = pst_external_revoke_node(x, member, PST_POOL_REVOKE_MAX);
    else
        return -EPROTO;
    return 0;
}

static int read_hashes(const struct question *q, struct pst_hash128 hashes[PST_POOL_MATCH_MAX])
{
    uint8_t none;

    return check_share(
        q, hashes, pst_pool_get_items(q->op->attrs, &none, 0, hashes, sizeof(*hashes), PST_POOL_MATCH_MAX));
}

/* As a member of that name has: the name itself if it fits with a zero behind it, else a hash of it. One that
 * is about to be forgotten has none. */
static void guest_id(const struct pst_master *m, uint32_t number, uint8_t id[PST_POOL_ID_BYTES])
{
    struct pst_hash128 hash;
    struct pst_guest guest;

    memset(id, 0, PST_POOL_ID_BYTES);
    if (!pst_guests_next(m->guests, number, &guest) || guest.number != number)
        return;
    hash = pst_hash128(guest.name.data, guest.name.len, 0);
    _Static_assert(sizeof(hash) == PST_POOL_ID_BYTES, "what stands for a long name");
    if (guest.name.len < PST_POOL_ID_BYTES)
        memcpy(id, guest.name.data, guest.name.len);
    else
        memcpy(id, &hash, sizeof(hash));
}

/* The result's generation is how many nodes have any, however many rows there was room for. */
static int call_match(struct question *q)
{
    enum { ROWS = 64 };
    struct pst_hash128 hashes[PST_POOL_MATCH_MAX];
    struct pst_external_match rows[ROWS];
    const struct pst_map *map = pst_directory_map(q->master->directory);
    uint32_t rows_max = (uint32_t)pst_min(ROWS, q->room / sizeof(struct pst_pool_match));
    int count = read_hashes(q, hashes);

    _Static_assert((int)PST_EXTERNAL_QUERY_MAX == (int)PST_POOL_MATCH_MAX &&
                       (int)PST_EXTERNAL_TIERS == (int)PST_POOL_BLOCK_TIERS,
                   "rows of a match");
    if (count < 0 || rows_max == 0)
        return count < 0 ? count : -ENOBUFS;
    q->result->generation = pst_external_match(q->master->external, hashes, (uint32_t)count, q->now_ns,
                                               q->op->flags & PST_WIRE_HIT, rows, rows_max);
    rows_max = (uint32_t)pst_min(rows_max, q->result->generation);
    for (uint32_t i = 0; i < rows_max; i++) {
        struct pst_pool_match row = {.hash_count = rows[i].hash_count, .member = (uint16_t)rows[i].node};

        pst_assert(rows[i].hash_count <= (uint32_t)count);
        if (rows[i].node < q->master->members_max)
            memcpy(row.id, map->members[rows[i].node].id.bytes, sizeof(row.id));
        else
            guest_id(q->master, rows[i].node - q->master->members_max, row.id);
        memcpy(row.tiers, rows[i].tiers, sizeof(row.tiers));
        memcpy(q->to + i * sizeof(row), &row, sizeof(row));
    }
    q->result->bytes = (uint32_t)(rows_max * sizeof(struct pst_pool_match));
    return 0;
}

static int call_hits(struct question *q)
{
    struct pst_hash128 hashes[PST_POOL_MATCH_MAX];
    uint32_t hits[PST_POOL_MATCH_MAX];
    int count = read_hashes(q, hashes);

    if (count < 0)
        return count;
    pst_external_hit_counts(q->master->external, hashes, (uint32_t)count, q->now_ns, hits);
    return answer(q, hits, (size_t)count * sizeof(hits[0]));
}

/* ---- all of them ---- */

/* Which of them begin with the id of the asker's pool. */
enum asks { ASKS_ANYONE, ASKS_IF_IT_SAYS, ASKS_OF_POOL };

static enum asks asks_of(uint8_t code)
{
    switch ((enum pst_pool_code)code) {
    case PST_POOL_JOIN:
    case PST_POOL_LEAVE:
    case PST_POOL_HEARTBEAT:
    case PST_POOL_SUSPECT:
    case PST_POOL_LOCATE:
    case PST_POOL_PLACE:
    case PST_POOL_COPIES:
    case PST_POOL_REPAIR:
    case PST_POOL_SHARE:
        return ASKS_OF_POOL;
    case PST_POOL_MAP:
        return ASKS_IF_IT_SAYS;
    case PST_POOL_FIGURES:
    case PST_POOL_DRAIN:
    case PST_POOL_NODES:
    case PST_POOL_FORGIVE:
    case PST_POOL_REPORT:
    case PST_POOL_REVOKE:
    case PST_POOL_MATCH:
    case PST_POOL_HITS:
        return ASKS_ANYONE;
    }
    return ASKS_ANYONE; /* a number that has no question: its answer says so */
}

/* The same one once, and others not as fast as somebody may draw their names. */
static void tell_of_stranger(struct pst_master *m, const struct pst_id *pool, uint64_t now_ns)
{
    char name[PST_ID_TEXT_BYTES], own[PST_ID_TEXT_BYTES];

    if (pst_id_equal(&m->stranger, pool) || (m->stranger_ns && now_ns < m->stranger_ns + STRANGER_NS))
        return;
    m->stranger = *pool;
    m->stranger_ns = now_ns;
    pst_id_print(pool, name);
    pst_id_print(&pst_directory_map(m->directory)->pool, own);
    pst_master_log(
        m,
        "a node with values of pool %s is refused: this is pool %s. If this one has lost its pool map, "
        "restore the file, or start with --adopt=%s",
        name, own, name);
}

/* A node that has no pool yet may join any. Return: 0, -EPROTO, -EXDEV. */
static int check_pool(const struct question *q)
{
    static const struct pst_id none;
    enum asks asks = asks_of(q->op->code);
    struct pst_id pool;
    int r;

    if (asks == ASKS_ANYONE || (asks == ASKS_IF_IT_SAYS && q->op->attrs.len == 0))
        return 0;
    if (q->op->attrs.len < sizeof(pool))
        return -EPROTO;
    memcpy(&pool, q->op->attrs.data, sizeof(pool));
    if ((q->op->code == PST_POOL_JOIN || q->op->code == PST_POOL_SHARE) && pst_id_equal(&pool, &none))
        return 0;
    r = pst_directory_check_pool(q->master->directory, &pool, q->now_ns);
    if (r < 0 && (q->op->code == PST_POOL_JOIN || q->op->code == PST_POOL_HEARTBEAT))
        tell_of_stranger(q->master, &pool, q->now_ns);
    return r;
}

static int call_figures(struct question *q)
{
    struct pst_master_figures figures;

    pst_master_figures_take(q->master, q->now_ns, &figures);
    q->result->bytes = (uint32_t)pst_master_figures_print(&figures, (char *)q->to, q->room);
    pst_assert(q->result->bytes <= q->room);
    return q->result->bytes ? 0 : -ENOBUFS;
}

/* What a master must be for a question: what changes the pool map is a leader's. COPIES waits for no change,
 * so that heartbeats behind it do not. */
static enum pst_standing standing_for(uint8_t code)
{
    switch ((enum pst_pool_code)code) {
    case PST_POOL_FIGURES:
        return PST_STANDS_BY;
    case PST_POOL_JOIN:
    case PST_POOL_LEAVE:
    case PST_POOL_REPAIR:
    case PST_POOL_DRAIN:
    case PST_POOL_FORGIVE:
    case PST_POOL_SHARE:
        return PST_LEADS;
    default:
        return PST_SPEAKS;
    }
}

/* What is the leading master's alone to answer. */
static bool is_for_leader(uint8_t code)
{
    switch ((enum pst_pool_code)code) {
    case PST_POOL_JOIN:
    case PST_POOL_LEAVE:
    case PST_POOL_MAP:
    case PST_POOL_COPIES:
    case PST_POOL_DRAIN:
    case PST_POOL_FORGIVE:
    case PST_POOL_SHARE:
        return true;
    default:
        return false;
    }
}

/* Return: 0, PST_POOL_BUSY it wants what cannot be stored for now, PST_POOL_STANDBY with the leader's address
 * as the answer, if there is one. */
static int check_standing(struct question *q)
{
    const struct pst_master *m = q->master;
    enum pst_standing wanted = standing_for(q->op->code);

    q->standing = pst_master_standing(m);
    if (q->standing >= wanted && !(m->follower && is_for_leader(q->op->code)))
        return wanted == PST_LEADS && !may_change(q) ? PST_POOL_BUSY : 0;
    answer(q, m->leader, strlen(m->leader));
    return PST_POOL_STANDBY;
}

static const struct {
    uint8_t code;
    int (*run)(struct question *q);
} calls[PST_MASTER_CALL_COUNT] = {
#define X(code, name) [PST_MASTER_CALL_##name] = {code, call_##name},
    PST_MASTER_CALLS(X)
#undef X
};

static void count(struct pst_master_call *call, uint64_t begin_ns, int r)
{
    uint64_t us = (pst_now_ns() - begin_ns) / 1000;
    uint32_t bucket = 0;

    while (bucket < PST_MASTER_BUCKETS - 1 && us >> bucket > 0)
        bucket++;
    call->us[bucket]++;
    call->us_total += us;
    call->count++;
    pst_assert(call->count > call->failed);
    call->failed += r < 0;
}

void pst_master_carry_out(void *ctx, const struct pst_wire_op *op, uint64_t now_ns, uint8_t *to, size_t room,
                          struct pst_wire_result *result)
{
    struct pst_master *m = ctx;
    uint64_t begin_ns = pst_now_ns();
    struct question q = {.master = m, .op = op, .to = to, .room = room, .result = result};
    int r = -EOPNOTSUPP;

    (void)now_ns; /* another shard may have asked with a later one already */
    pst_assert(m->magic == PST_MASTER_MAGIC);
    pthread_mutex_lock(&m->lock);
    q.now_ns = pst_now_ns();
    for (uint32_t i = 0; i < PST_MASTER_CALL_COUNT; i++) {
        if (calls[i].code != op->code)
            continue;
        r = check_standing(&q);
        r = r ? r : check_pool(&q);
        r = r ? r : calls[i].run(&q);
        m->malformed += r == -EPROTO;
        count(&m->calls[i], begin_ns, r);
        break;
    }
    if (m->directory && pst_directory_unstored(m->directory))
        pthread_cond_signal(&m->stir);
    pst_assert(result->bytes <= room);
    pthread_mutex_unlock(&m->lock);
    result->result = (int16_t)(r == -EPROTO ? -EINVAL : r);
}

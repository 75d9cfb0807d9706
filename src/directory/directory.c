/* SPDX-License-Identifier: Apache-2.0 */
/* directory.c: a directory's beginning and end, the pool map and its drafts, the clock's ticks. */
#include "directory/directory_priv.h"

#include "base/ms.h"

#include <stdio.h>

enum { DIRECTORY_MAGIC = 0x4d2e5c70 };

void directory_check(const struct pst_directory *d)
{
    pst_assert(d->magic == DIRECTORY_MAGIC);
    pst_assert(d->draft->version >= d->map->version);
    pst_assert(d->draft->epoch_next >= d->map->epoch_next);
    pst_assert(!d->storing_now || d->storing->version == d->map->version + 1);
    pst_assert(d->draft->term >= d->map->term);
    pst_assert(d->unreported <= d->settings.members_max);
    pst_assert(!d->follows || d->draft->version == d->map->version);
    pst_assert(d->move_count <= MOVES_MAX);
    pst_assert(d->reservations.live <= d->reservations.count);
    pst_assert(d->reservations.count <= d->reservations.max);
}

void pst_directory_preset(struct pst_directory_settings *settings)
{
#define PST_OPTION_SETTINGS struct pst_directory_settings
    const struct pst_options table = PST_OPTION_TABLE(PST_DIRECTORY_OPTIONS);
    char fault[PST_FAULT_BYTES];
    int r = pst_options_preset(&table, settings, fault);

    pst_assert(r == 0); /* numbers alone */
}

/* A pool that goes on by its name alone has the same hashes as before. */
static uint64_t seed_of(const struct pst_id *pool)
{
    return pst_hash64(pool, sizeof(*pool), 0);
}

/* ---- the pool map ---- */

const struct pst_map *pst_directory_map(const struct pst_directory *d)
{
    directory_check(d);
    return d->map;
}

/* What the draft begins from. */
static uint64_t version_before_draft(const struct pst_directory *d)
{
    pst_assert(!d->storing_now || d->storing->version > d->map->version);
    return d->storing_now ? d->storing->version : d->map->version;
}

struct pst_map *directory_draft(struct pst_directory *d)
{
    d->draft->version = version_before_draft(d) + 1;
    return d->draft;
}

bool pst_directory_unstored(const struct pst_directory *d)
{
    directory_check(d);
    return !d->storing_now && d->draft->version > d->map->version;
}

void pst_directory_store_again(struct pst_directory *d)
{
    directory_check(d);
    directory_draft(d);
    pst_assert(d->storing_now || pst_directory_unstored(d));
}

size_t pst_directory_store_begin(struct pst_directory *d, uint8_t *to, size_t cap, uint64_t *version)
{
    size_t bytes;

    pst_assert(pst_directory_unstored(d));
    pst_assert(!d->storing_now);
    pst_assert(d->draft->version == d->map->version + 1);
    pst_assert(d->draft->term >= d->map->term);
    for (uint32_t i = 0; i < PST_PARTITIONS; i++) { /* what no directory would read again is never stored */
        pst_assert(pst_map_partition_is_good(d->draft, &d->draft->partitions[i]));
        pst_assert(d->draft->partitions[i].epoch >= d->map->partitions[i].epoch);
    }
    pst_map_copy(d->storing, d->draft);
    d->storing_now = true;
    bytes = pst_map_encode_stored(d->storing, to, cap);
    pst_assert(bytes > 0);
    pst_assert(bytes <= cap);
    *version = d->storing->version;
    return bytes;
}

void pst_directory_stored(struct pst_directory *d, uint64_t version, uint64_t now_ns)
{
    struct pst_map *before = d->map;

    directory_check(d);
    pst_assert(d->storing_now);
    pst_assert(d->storing->version == version);
    pst_assert(version == before->version + 1);
    pst_assert(d->storing->term >= before->term);
    pst_assert(d->storing->epoch_next >= before->epoch_next);
    d->map = d->storing;
    d->storing = before;
    d->storing_now = false;
    d->counters.maps++;
    members_follow_map(d, now_ns);
}

/* Where the prefix is among those of the pool map, or belongs. */
static uint32_t prefix_at(const struct pst_map *map, struct pst_bytes text, bool *found)
{
    uint32_t at = 0;
    int order = 1;

    for (; at < map->prefix_count; at++) {
        const struct pst_map_prefix *prefix = &map->prefixes[at];

        order = pst_bytes_compare(pst_map_prefix_text(prefix), text);
        if (order >= 0)
            break;
    }
    pst_assert(map->prefix_count <= PST_MAP_PREFIXES_MAX);
    pst_assert(at <= map->prefix_count);
    *found = order == 0;
    return at;
}

int pst_directory_place(struct pst_directory *d, struct pst_bytes text, enum pst_placement placement,
                        uint32_t replicas, uint64_t *version)
{
    struct pst_map_prefix prefix = {.placement = (uint8_t)placement, .replicas = (uint8_t)replicas};
    bool found;
    uint32_t at = prefix_at(d->draft, text, &found);
    struct pst_map_prefix *known = &d->draft->prefixes[at];

    directory_check(d);
    if (text.len > PST_MAP_PREFIX_BYTES_MAX || placement > PST_PLACE_HOME || replicas < 1 ||
        replicas > PST_MAP_REPLICAS_MAX)
        return -EINVAL;
    *version = d->draft->version;
    if (found && known->placement == placement && known->replicas == replicas)
        return 0;
    if (!found && d->draft->prefix_count == PST_MAP_PREFIXES_MAX)
        return -ENOSPC;
    prefix.bytes = (uint8_t)text.len;
    if (text.len > 0)
        memcpy(prefix.text, text.data, text.len);
    *version = directory_draft(d)->version;
    pst_assert(found || d->draft->prefix_count < PST_MAP_PREFIXES_MAX);
    if (!found)
        memmove(known + 1, known, (d->draft->prefix_count++ - at) * sizeof(*known));
    pst_assert(at < d->draft->prefix_count);
    *known = prefix;
    return 0;
}

void pst_directory_forgive(struct pst_directory *d, uint64_t *version)
{
    bool known = true;

    directory_check(d);
    for (uint32_t i = 0; i < PST_PARTITIONS; i++) {
        known &= !d->map->partitions[i].lost;
        if (d->draft->partitions[i].lost)
            directory_draft(d)->partitions[i].lost = false;
    }
    /* Who asks again is not to wait for what others change meanwhile. */
    *version = known ? d->map->version : d->draft->version;
    pst_assert(*version <= d->draft->version);
}

/* What the settings have put into the draft stays. */
static void go_on_as(struct pst_map *map, const struct pst_id *pool, uint64_t floor)
{
    pst_assert(map->epoch_next <= 1); /* it has had no members */
    map->pool = *pool;
    map->seed = seed_of(pool);
    map->version = map->epoch_next = floor;
    for (uint32_t i = 0; i < PST_PARTITIONS; i++)
        map->partitions[i] = (struct pst_map_partition){.epoch = floor, .lost = true};
}

int pst_directory_adopt(struct pst_directory *d, const struct pst_id *pool, uint64_t floor)
{
    directory_check(d);
    pst_assert(!d->storing_now);
    if (pst_id_equal(pool, &d->map->pool))
        return 0;
    if (d->map->epoch_next > 1)
        return -EEXIST;
    go_on_as(d->map, pool, floor);
    go_on_as(d->draft, pool, floor);
    directory_draft(d);
    pst_assert(d->draft->term > d->map->term); /* since it opened */
    return 0;
}

int pst_directory_check_pool(struct pst_directory *d, const struct pst_id *pool, uint64_t now_ns)
{
    directory_check(d);
    if (pst_id_equal(pool, &d->map->pool))
        return 0;
    d->counters.strangers++;
    d->doubtful |= d->map->epoch_next == 1;
    d->strange_until_ns = pst_deadline_ns(now_ns, d->settings.member_ttl_ms);
    return -EXDEV;
}

/* ---- beginning and end ---- */

static int open_maps(struct pst_directory *d, struct pst_bytes stored, const struct pst_id *pool)
{
    uint32_t members_max = (uint32_t)d->settings.members_max;
    uint64_t seed = seed_of(pool);
    int r = stored.len > 0 ? pst_map_decode(stored, members_max, &d->map)
                           : pst_map_open(members_max, seed, &d->map);

    if (r == 0)
        r = pst_map_open(members_max, seed, &d->storing);
    if (r == 0)
        r = pst_map_open(members_max, seed, &d->draft);
    if (r < 0)
        return r;
    if (stored.len == 0)
        d->map->pool = *pool;
    pst_map_copy(d->draft, d->map);
    directory_draft(d)->term++;
    pst_assert(pst_directory_unstored(d)); /* nobody is answered in a term that may come again */
    return 0;
}

static int open_rest(struct pst_directory *d, struct pst_bytes stored, const struct pst_id *pool)
{
    int r;

    d->members = calloc(d->settings.members_max, sizeof(*d->members));
    d->weights = calloc(d->settings.members_max, sizeof(*d->weights));
    if (!d->members || !d->weights)
        return -ENOMEM;
    r = reserve_init(&d->reservations, (uint32_t)d->settings.reservations_max);
    if (r == 0)
        r = pst_keys_open(d->settings.entries_max, &d->keys);
    return r == 0 ? open_maps(d, stored, pool) : r;
}

int pst_directory_open(const struct pst_directory_settings *settings, struct pst_bytes stored,
                       const struct pst_id *pool, uint64_t now_ns, struct pst_directory **out)
{
    struct pst_directory *d = calloc(1, sizeof(*d));
    int r;

    pst_assert(settings->members_max >= 1 && settings->members_max <= PST_MAP_MEMBERS_MAX);
    if (!d)
        return -ENOMEM;
    d->magic = DIRECTORY_MAGIC;
    d->settings = *settings;
    r = open_rest(d, stored, pool);
    if (r < 0) {
        pst_directory_close(d);
        return r;
    }
    share_begin(d, now_ns);
    members_follow_map(d, now_ns);
    for (uint32_t i = 0; i < settings->members_max; i++)
        d->members[i].joined_ns = 0;
    for (uint32_t i = 0; i < PST_PARTITIONS; i++)
        d->incomplete_ns[i] = now_ns;
    d->awake_ns = now_ns;
    d->reap_ns = pst_deadline_ns(now_ns, settings->reaper_ms);
    d->repair_due_ns = UINT64_MAX;
    directory_check(d);
    *out = d;
    return 0;
}

struct pst_directory *pst_directory_close(struct pst_directory *d)
{
    if (!d)
        return NULL;
    pst_assert(d->magic == DIRECTORY_MAGIC);
    pst_assert(!d->members || d->unreported <= d->settings.members_max);
    pst_map_close(d->map);
    pst_map_close(d->storing);
    pst_map_close(d->draft);
    pst_keys_close(d->keys);
    reserve_fini(&d->reservations);
    free(d->members);
    free(d->weights);
    free(d);
    return NULL;
}

void pst_directory_tick(struct pst_directory *d, uint64_t now_ns)
{
    directory_check(d);
    members_wake(d, now_ns);
    if (d->follows) {
        share_tick(d, now_ns);
    } else {
        members_tick(d, now_ns);
        copies_tick(d, now_ns);
    }
    repair_tick(d, now_ns);
    reserve_tick(d, now_ns);
    (void)pst_keys_sweep(d->keys, d->settings.sweep_entries);
}

/* ---- figures ---- */

const struct pst_directory_counters *pst_directory_counters(const struct pst_directory *d)
{
    directory_check(d);
    return &d->counters;
}

void pst_directory_state(const struct pst_directory *d, uint64_t now_ns, struct pst_directory_state *out)
{
    struct pst_directory_state state = {.entries = pst_keys_count(d->keys),
                                        .entries_bytes = pst_keys_memory_bytes(d->keys),
                                        .reservations = d->reservations.live};

    directory_check(d);
    for (uint32_t i = 0; i < d->settings.members_max; i++) {
        const struct member *m = &d->members[i];

        if (!m->epoch)
            continue;
        state.members++;
        state.members_reporting += !m->synced;
        state.members_suspect += member_is_suspect(d, (uint16_t)i, now_ns);
        for (uint32_t tier = 0; tier < PST_POOL_TIERS; tier++) {
            state.tiers[tier].capacity_bytes += m->tiers[tier].capacity_bytes;
            state.tiers[tier].used_bytes += m->tiers[tier].used_bytes;
            state.reserved_bytes[tier] += m->tiers[tier].reserved_bytes;
        }
    }
    pst_assert(state.members_reporting == d->unreported);
    pst_assert(state.members <= d->settings.members_max);
    *out = state;
}

/* NULL: it is not among them. They are in the order of their numbers. */
static struct pst_directory_node *node_of(struct pst_directory_node *nodes, uint32_t count, uint16_t member)
{
    uint32_t low = 0, high = count;

    while (low < high) {
        uint32_t middle = (low + high) / 2;

        if (nodes[middle].member < member)
            low = middle + 1;
        else
            high = middle;
    }
    pst_assert(low <= count);
    return low < count && nodes[low].member == member ? &nodes[low] : NULL;
}

static void count_partitions(const struct pst_map *map, struct pst_directory_node *nodes, uint32_t count)
{
    for (uint32_t i = 0; i < PST_PARTITIONS; i++) {
        for (uint32_t at = 0; at < map->partitions[i].replica_count; at++) {
            struct pst_directory_node *node = node_of(nodes, count, map->partitions[i].replicas[at]);

            if (node && at == 0)
                node->primaries++;
            else if (node)
                node->copies++;
        }
    }
}

/* Those that copies may stay on, counted as far as any key wants copies. */
static uint32_t hosts_lasting(const struct pst_directory *d)
{
    const struct pst_map_member *members = d->draft->members;
    struct pst_places hosts = {0};

    _Static_assert((int)PST_MAP_REPLICAS_MAX <= (int)PST_PLACES_MAX, "hosts of copies");
    for (uint32_t i = 0; i < d->settings.members_max && hosts.count < PST_MAP_REPLICAS_MAX; i++)
        if (member_stays(d, (uint16_t)i) && !members[i].drains && !route_has_host(d, &hosts, (uint16_t)i))
            hosts.items[hosts.count++].member = (uint16_t)i;
    pst_assert(hosts.count <= PST_MAP_REPLICAS_MAX);
    return hosts.count;
}

/* What a node that drains has, and others cannot have. */
static void tell_of_drain(const struct pst_directory *d, struct pst_directory_node *node, uint32_t hosts)
{
    const struct member *m = &d->members[node->member];
    uint32_t partitions = node->primaries + node->copies;

    pst_assert(node->member < d->settings.members_max);
    pst_assert(d->members[node->member].epoch > 0);
    if (!node->drains)
        return;
    node->drained = m->looked && node->keys_left == 0 && partitions == 0;
    node->stuck = !node->drained &&
                  (hosts == 0 || m->alone_left > 0 || (partitions > 0 && hosts < pst_map_replicas(d->map)));
}

uint32_t pst_directory_nodes(const struct pst_directory *d, uint32_t first, uint64_t now_ns,
                             struct pst_directory_node *nodes, uint32_t max)
{
    uint32_t count = 0;

    directory_check(d);
    for (uint32_t i = first; i < d->settings.members_max && count < max; i++) {
        const struct member *m = &d->members[i];
        struct pst_directory_node *node = &nodes[count];

        if (!m->epoch || !member_stays(d, (uint16_t)i))
            continue;
        *node = (struct pst_directory_node){.member = (uint16_t)i,
                                            .drains = d->map->members[i].drains,
                                            .suspect = member_is_suspect(d, (uint16_t)i, now_ns),
                                            .keys_left = m->keys_left};
        for (uint32_t tier = 0; tier < PST_POOL_TIERS; tier++)
            node->tiers[tier] =
                (struct pst_tier_use){m->tiers[tier].capacity_bytes, m->tiers[tier].used_bytes};
        count++;
    }
    pst_assert(count <= max);
    count_partitions(d->map, nodes, count);
    for (uint32_t i = 0, hosts = hosts_lasting(d); i < count; i++)
        tell_of_drain(d, &nodes[i], hosts);
    return count;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* check.c: what must never be, and what must be when nothing has gone wrong for a while. */
#include "sim.h"

struct pst_hash128 key_of(uint32_t key)
{
    return pst_hash128(&key, sizeof(key), 7);
}

/* ---- pool maps ---- */

static void check_partition(struct sim *s, uint32_t number, const struct pst_map_partition *before,
                            const struct pst_map_partition *after)
{
    if (after->epoch < before->epoch || after->base < before->base)
        violation(s, "partition %u goes back from epoch %llu to %llu", number,
                  (unsigned long long)before->epoch, (unsigned long long)after->epoch);
    if (after->epoch == before->epoch &&
        memcmp(after->replicas, before->replicas, sizeof(after->replicas)) != 0)
        violation(s, "partition %u has other copies in the same epoch", number);
}

static void count_loss(struct sim *s, uint32_t used, const struct pst_map_partition *before,
                       const struct pst_map_partition *after)
{
    if (!after->lost || before->state == PST_MAP_EMPTY || pst_map_partition_dealt(before) ||
        after->base + (after->state == PST_MAP_EMPTY) == before->base)
        return;
    for (uint32_t key = 0; key < PARTITION_KEYS; key++) {
        if (s->gentle && s->floors[used][key])
            violation(s, "partition %u is given up with what was acknowledged", used);
        s->floors[used][key] = s->durable[used][key] = 0;
    }
    s->losses[used]++;
    s->counts.losses++;
}

/* Who has the partition came back to it with its disk alone: what was durable is there. It may have gone
 * again before a pool map was stored. */
static void count_recovery(struct sim *s, uint32_t used, const struct pst_map *map,
                           const struct pst_map_partition *before, const struct pst_map_partition *after)
{
    int at = pst_map_replica_at(before, after->replicas[0]), number;
    bool sparse = at >= before->replica_count - before->sparse;

    if (before->state != PST_MAP_INCOMPLETE || at < 0 || after->base != before->base ||
        (sparse ? after->sparse == after->replica_count : after->state != PST_MAP_SERVED))
        return;
    number = node_of_member(s, map, after->replicas[0]);
    if (!sparse) {
        if (s->nodes[number].up && s->nodes[number].start == map->members[after->replicas[0]].start &&
            s->nodes[number].homes[used].sparse && s->nodes[number].homes[used].data_epoch >= after->base)
            violation(s, "partition %u is node %d's as if it had all, and it has its disk alone", used,
                      number);
        return;
    }
    s->nodes[number].homes[used].sparse = false;
    for (uint32_t key = 0; key < PARTITION_KEYS; key++) {
        if (s->gentle && s->floors[used][key] > s->durable[used][key])
            violation(s, "partition %u is taken up with less than what was acknowledged", used);
        s->floors[used][key] = s->durable[used][key];
    }
    if (!after->lost)
        violation(s, "partition %u is taken up with what was durable, and nobody is told", used);
    s->losses[used]++;
    s->counts.recovered++;
}

/* A primary without an SSD has nobody keep on theirs what was durable: that has ended. */
static void end_promises(struct sim *s, uint32_t used, const struct pst_map *map)
{
    const struct pst_map_partition *partition = &map->partitions[partition_of_used(used)];
    int number = partition->state == PST_MAP_SERVED ? node_of_member(s, map, partition->replicas[0]) : -1;

    if (number >= 0 && !home_promises(s, number))
        memset(s->durable[used], 0, sizeof(s->durable[used]));
}

static void note_partition(struct sim *s, uint32_t used, const struct pst_map *map)
{
    const struct pst_map_partition *partition = &map->partitions[partition_of_used(used)];
    int nodes[PST_MAP_REPLICAS_MAX];

    for (int i = 0; i < PST_MAP_REPLICAS_MAX; i++)
        nodes[i] = i < partition->replica_count ? node_of_member(s, map, partition->replicas[i]) : -1;
    note(s, "version %llu: partition %u epoch %llu base %llu %s%s: %d %d %d %d",
         (unsigned long long)map->version, used, (unsigned long long)partition->epoch,
         (unsigned long long)partition->base,
         partition->state == PST_MAP_SERVED  ? "served"
         : partition->state == PST_MAP_EMPTY ? "empty"
                                             : "incomplete",
         partition->lost ? ", lost" : "", nodes[0], nodes[1], nodes[2], nodes[3]);
}

void check_map(struct sim *s, const struct pst_map *before, const struct pst_map *after)
{
    s->checked++;
    if (!before)
        return;
    if (after->version < before->version || after->term < before->term ||
        after->epoch_next < before->epoch_next)
        violation(s, "version %llu follows %llu", (unsigned long long)after->version,
                  (unsigned long long)before->version);
    for (uint32_t i = 0; i < after->members_max; i++)
        if (after->members[i].epoch && before->members[i].epoch > after->members[i].epoch)
            violation(s, "member %u goes back in its epoch", i);
    for (uint32_t i = 0; i < PST_PARTITIONS; i++)
        check_partition(s, i, &before->partitions[i], &after->partitions[i]);
    for (uint32_t i = 0; i < USED; i++)
        if (after->partitions[partition_of_used(i)].epoch > before->partitions[partition_of_used(i)].epoch) {
            note_partition(s, i, after);
            count_loss(s, i, &before->partitions[partition_of_used(i)],
                       &after->partitions[partition_of_used(i)]);
            count_recovery(s, i, after, &before->partitions[partition_of_used(i)],
                           &after->partitions[partition_of_used(i)]);
            end_promises(s, i, after);
        }
}

void check_leases(struct sim *s)
{
    for (uint32_t used = 0; used < USED; used++) {
        int serving = -1;

        for (uint32_t i = 0; i < s->node_count; i++) {
            if (!home_serves(s, &s->nodes[i], used))
                continue;
            if (serving >= 0)
                violation(s, "nodes %d and %u both serve partition %u", serving, i, used);
            serving = (int)i;
        }
        s->checked++;
    }
}

/* What the directory knows of a key, whose membership has not ended. */
void check_places(struct sim *s)
{
    for (uint32_t key = 0; s->current && key < s->key_count; key++) {
        struct pst_hash128 fingerprint = key_of(key);
        struct pst_directory *directory = directory_of(s, key);
        struct pst_places places;

        if (!directory)
            continue;
        pst_directory_look_up(directory, &fingerprint, 1, &places);
        for (uint32_t i = 0; i < places.count; i++) {
            const struct pst_map_member *member =
                &pst_directory_map(directory)->members[places.items[i].member];

            if (!member->epoch || member->gone)
                violation(s, "key %u is said to be at member %u, which is none", key, places.items[i].member);
        }
    }
    s->checked++;
}

/* A node that has been a member in reach for long has told of what it has held for as long. */
void check_missing(struct sim *s, const struct seat *seat, struct pst_hash128 fingerprint)
{
    enum { TOLD_MS = 20000 };
    struct pst_hash128 candidate = key_of(0);
    uint32_t key = 0;

    while (!pst_hash128_equal(&fingerprint, &candidate))
        candidate = key_of(++key);
    pst_assert(key < s->key_count);
    s->checked++;
    s->counts.missing++;
    for (uint32_t i = 0; i < s->node_count; i++) {
        const struct node *n = &s->nodes[i];
        uint64_t since_ns = pst_max(n->held_ns[key], n->unsteady_ns);

        if (n->up && n->epoch && n->held[key] && s->now_ns > since_ns + TOLD_MS * MS)
            violation(s, "key %u is missing, says %d, and node %u has it since %.3f", key, seat->who, i,
                      (double)n->held_ns[key] / 1e9);
    }
}

/* ---- writes ---- */

/* The node that is this copy of the partition by the stored pool map, and has what it had as one; -1: it is
 * away. */
static int node_of_copy(const struct sim *s, const struct pst_map_partition *partition, uint32_t at)
{
    const struct pst_map *map = s->current->map;
    int number = node_of_member(s, map, partition->replicas[at]);
    const struct node *n = number >= 0 ? &s->nodes[number] : NULL;

    return n && n->up && n->epoch == map->members[partition->replicas[at]].epoch ? number : -1;
}

void check_written(struct sim *s, int primary, uint32_t used, uint32_t key, struct value value)
{
    const struct pst_map_partition *partition = &s->current->map->partitions[partition_of_used(used)];

    s->checked++;
    if (partition->state != PST_MAP_SERVED || node_of_copy(s, partition, 0) != primary)
        return;
    for (uint32_t i = 0; i < partition->replica_count; i++) {
        int number = node_of_copy(s, partition, i);

        if (number >= 0 && s->nodes[number].homes[used].values[key].number < value.number)
            violation(s, "partition %u key %u: %llx is acknowledged by node %d, and copy %d has %llx", used,
                      key, (unsigned long long)value.number, primary, number,
                      (unsigned long long)s->nodes[number].homes[used].values[key].number);
    }
}

void check_read(struct sim *s, int primary, uint32_t used, uint32_t key)
{
    const struct pst_map_partition *partition = &s->current->map->partitions[partition_of_used(used)];
    uint64_t known = s->nodes[primary].homes[used].values[key].number;

    s->checked++;
    if (partition->state != PST_MAP_SERVED || node_of_copy(s, partition, 0) != primary)
        return;
    for (uint32_t i = 1; i < partition->replica_count; i++) {
        int number = node_of_copy(s, partition, i);

        if (number >= 0 && s->nodes[number].homes[used].values[key].number > known)
            violation(s,
                      "partition %u key %u: node %d tells %llx, no write is underway, and copy %d has %llx",
                      used, key, primary, (unsigned long long)known, number,
                      (unsigned long long)s->nodes[number].homes[used].values[key].number);
    }
}

bool was_refused(const struct sim *s, struct value value)
{
    return value.number && value.id < s->refused_max && s->refused[value.id];
}

void check_refused(struct sim *s, struct value value)
{
    if (value.id >= s->refused_max) {
        uint64_t max = 2 * value.id + 64;

        s->refused = realloc(s->refused, max);
        pst_assert(s->refused);
        memset(s->refused + s->refused_max, 0, max - s->refused_max);
        s->refused_max = max;
    }
    s->refused[value.id] = 1;
}

void check_none_refused(struct sim *s)
{
    for (uint32_t used = 0; s->current && used < USED; used++) {
        const struct pst_map_partition *partition = &s->current->map->partitions[partition_of_used(used)];

        for (uint32_t at = 0; partition->state == PST_MAP_SERVED && at < partition->replica_count; at++) {
            int number = node_of_copy(s, partition, at);

            for (uint32_t key = 0; number >= 0 && key < PARTITION_KEYS; key++)
                if (was_refused(s, s->nodes[number].homes[used].values[key]))
                    violation(s, "partition %u key %u: copy %d has a write that was refused", used, key,
                              number);
            s->checked++;
        }
    }
}

/* All that clients use has its copies, and nothing is the matter with any node. */
bool healthy(const struct sim *s)
{
    uint32_t copies = (uint32_t)pst_min(s->replicas, s->host_count);

    for (uint32_t i = 0; i < s->node_count; i++) {
        const struct node *n = &s->nodes[i];

        if (!n->up || !n->epoch || s->now_ns < n->frozen_until_ns || s->now_ns < n->cut_until_ns ||
            s->now_ns < n->peer_cut_until_ns ||
            s->now_ns > n->granted_ns + (s->settings.heartbeat_ms + 500) * MS)
            return false;
    }
    for (uint32_t i = 1; i < s->share_count; i++)
        if (!s->shares[i].directory)
            return false;
    for (uint32_t i = 0; s->current && i < USED; i++) {
        const struct pst_map_partition *partition = &s->current->map->partitions[partition_of_used(i)];

        if (partition->state != PST_MAP_SERVED || partition->replica_count < copies)
            return false;
    }
    return s->current && s->directory && s->now_ns >= s->drop_ns + 5000 * MS;
}

/* ---- the end ---- */

/* What the directory says is what nodes hold; where it had no room for a place, at least nothing else. */
static void check_keys(struct sim *s)
{
    for (uint32_t key = 0; key < KEYS_MAX; key++) {
        struct pst_directory *directory = directory_of(s, key);
        bool complete = pst_directory_counters(directory)->adds_dropped == 0;
        struct pst_hash128 fingerprint = key_of(key);
        struct pst_places places;
        uint32_t holders = s->holders[key];

        pst_directory_look_up(directory, &fingerprint, 1, &places);
        if (places.count > holders || (complete && places.count < holders))
            violation(s, "key %u is at %u nodes, and known at %u", key, holders, places.count);
        for (uint32_t i = 0; i < places.count; i++) {
            int number = node_of_member(s, s->current->map, places.items[i].member);

            if (number < 0 || s->nodes[number].held[key] != places.items[i].generation)
                violation(s, "key %u is not at node %d in that generation", key, number);
        }
        s->checked++;
    }
}

/* What was put to have copies has them, but where a node has let go of one, or no more places are remembered.
 */
static void check_copies(struct sim *s)
{
    const struct pst_map *map = s->current->map;

    for (uint32_t key = 0; key < KEYS_MAX; key++) {
        struct pst_hash128 fingerprint = key_of(key);
        uint32_t wanted = 1, hosts = 0;
        struct pst_places places;

        pst_directory_look_up(directory_of(s, key), &fingerprint, 1, &places);
        for (uint32_t i = 0; i < places.count; i++) {
            bool first = true;

            wanted = places.items[i].copies > wanted ? places.items[i].copies : wanted;
            for (uint32_t j = 0; j < i; j++)
                first &= !pst_id_equal(&map->members[places.items[i].member].host,
                                       &map->members[places.items[j].member].host);
            hosts += first;
        }
        s->checked++;
        if (places.count > 0 && places.count < PST_PLACES_MAX && hosts < pst_min(wanted, s->host_count))
            violation(s, "key %u is on %u hosts, and was put to be on %u", key, hosts, wanted);
    }
}

/* Return: entries of the share's directory. */
static uint64_t check_share_figures(struct sim *s, uint32_t share, uint64_t held)
{
    struct pst_directory_state state;

    pst_directory_state(share_directory(s, share),
                        share ? s->now_ns + s->shares[share].offset_ns : master_now(s), &state);
    if (state.members != s->node_count || state.members_reporting || state.members_suspect)
        violation(s, "share %u: %u members, %u of them reporting, %u suspect", share, state.members,
                  state.members_reporting, state.members_suspect);
    if (state.reservations || state.reserved_bytes[PST_POOL_DRAM])
        violation(s, "share %u: %llu reservations of %llu bytes are left", share,
                  (unsigned long long)state.reservations,
                  (unsigned long long)state.reserved_bytes[PST_POOL_DRAM]);
    if (state.tiers[PST_POOL_DRAM].used_bytes != held * KEY_BYTES)
        violation(s, "share %u: %llu bytes are used, and nodes hold %llu", share,
                  (unsigned long long)state.tiers[PST_POOL_DRAM].used_bytes,
                  (unsigned long long)held * KEY_BYTES);
    if (state.entries > held || state.entries_bytes > 64 * held + (512 << 10))
        violation(s, "share %u: %llu entries in %llu bytes for %llu keys", share,
                  (unsigned long long)state.entries, (unsigned long long)state.entries_bytes,
                  (unsigned long long)held);
    return state.entries;
}

static void check_figures(struct sim *s)
{
    uint64_t held = 0, entries = 0;
    uint32_t named = 0;

    for (uint32_t i = 0; i < s->node_count; i++)
        held += s->nodes[i].held_count;
    for (uint32_t i = 0; i < s->current->map->members_max; i++)
        named += s->current->map->members[i].epoch != 0;
    s->checked++;
    if (named != s->node_count)
        violation(s, "the map has %u members, and there are %u nodes", named, s->node_count);
    for (uint32_t i = 0; i < s->share_count; i++)
        entries += check_share_figures(s, i, held);
    if (entries > held)
        violation(s, "%llu entries for %llu keys", (unsigned long long)entries, (unsigned long long)held);
}

/* Nobody has many more partitions than another, where each could have any. */
static void check_balance(struct sim *s)
{
    uint32_t fair = PST_PARTITIONS * s->replicas / s->node_count, least = UINT32_MAX, most = 0;

    for (uint32_t i = 0; i < s->current->map->members_max; i++) {
        uint32_t partitions = 0;

        for (uint32_t j = 0; j < PST_PARTITIONS; j++)
            partitions += pst_map_replica_at(&s->current->map->partitions[j], (uint16_t)i) >= 0;
        if (!s->current->map->members[i].epoch)
            continue;
        least = (uint32_t)pst_min(least, partitions);
        most = (uint32_t)pst_max(most, partitions);
    }
    s->checked++;
    if (s->host_count == s->node_count && most > least + fair / 8 + 16)
        violation(s, "one node has %u partitions and another %u", most, least);
}

void check_end(struct sim *s)
{
    if (!healthy(s)) {
        for (uint32_t i = 0; s->current && i < USED; i++) {
            const struct pst_map_partition *partition = &s->current->map->partitions[partition_of_used(i)];

            note(s, "partition %u: state %u, %u copies, epoch %llu", i, partition->state,
                 partition->replica_count, (unsigned long long)partition->epoch);
        }
        for (uint32_t i = 0; i < s->node_count; i++) {
            const struct node *n = &s->nodes[i];

            note(s, "node %u: up %d, member %u, last lease %.3f s ago", i, n->up, n->epoch != 0,
                 (double)(s->now_ns - n->granted_ns) / 1e9);
        }
        note(s, "a copy was last to be dropped %.3f s ago", (double)(s->now_ns - s->drop_ns) / 1e9);
        violation(s, "the pool has not recovered");
        return;
    }
    check_keys(s);
    check_copies(s);
    check_figures(s);
    check_balance(s);
    check_none_refused(s);
    for (uint32_t i = 0; i < USED; i++) {
        const struct pst_map_partition *partition = &s->current->map->partitions[partition_of_used(i)];
        int number = node_of_member(s, s->current->map, partition->replicas[0]);

        s->checked++;
        if (!home_serves(s, &s->nodes[number], i))
            violation(
                s,
                "partition %u has a primary, node %d, that does not serve: its lease ends in %.3f s and "
                "needs map "
                "%llu of term %llu; it has map %llu",
                i, number,
                ((double)s->nodes[number].lease.until_ns - (double)node_now(s, &s->nodes[number])) / 1e9,
                (unsigned long long)s->nodes[number].lease.version,
                (unsigned long long)s->nodes[number].lease.term,
                (unsigned long long)node_map(&s->nodes[number])->version);
        for (uint32_t key = 0; key < PARTITION_KEYS; key++)
            if (s->nodes[number].homes[i].values[key].number < s->floors[i][key])
                violation(s, "partition %u key %u has lost what was acknowledged", i, key);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copies.c: who has a partition. A primary is displaced only when all leases that it was granted have run
 * out, by a copy that has all that it acknowledged; and it gets no lease before the pool map that says so is
 * in effect.
 */
#include "directory/directory_priv.h"

#include "base/ms.h"

enum { DEALT_PER_TICK = 512 }; /* partitions */

bool copy_is_fresh(const struct pst_directory *d, uint16_t member, uint64_t now_ns)
{
    return member_stays(d, member) && !member_lease_is_over(d, member, now_ns);
}

/* The place of a fresh copy besides @but, which this directory has heard; -1: there is none. */
static int fresh_copy(const struct pst_directory *d, const struct pst_map_partition *partition, uint16_t but,
                      uint64_t now_ns)
{
    for (int i = 0; i < partition->replica_count; i++)
        if (partition->replicas[i] != but && d->members[partition->replicas[i]].heard &&
            copy_is_fresh(d, partition->replicas[i], now_ns))
            return i;
    return -1;
}

static bool is_sparse(const struct pst_map_partition *partition, int at)
{
    pst_assert(partition->sparse <= partition->replica_count);
    return at >= partition->replica_count - partition->sparse;
}

static void take_out(struct pst_map_partition *partition, int at)
{
    pst_assert(at >= 0 && at < partition->replica_count && partition->replica_count <= PST_MAP_REPLICAS_MAX);
    partition->sparse -= is_sparse(partition, at);
    partition->replica_count--;
    memmove(&partition->replicas[at], &partition->replicas[at + 1],
            (size_t)(partition->replica_count - at) * sizeof(uint16_t));
    partition->replicas[partition->replica_count] = 0; /* so that equal partitions are equal bytes */
}

static void to_front(struct pst_map_partition *partition, int at)
{
    uint16_t member = partition->replicas[at];

    pst_assert(at >= 0 && at < partition->replica_count);
    pst_assert(partition->replica_count <= PST_MAP_REPLICAS_MAX);
    memmove(&partition->replicas[1], &partition->replicas[0], (size_t)at * sizeof(uint16_t));
    partition->replicas[0] = member;
}

/* Another first copy that was not handed the partition may have more or less than the others, and begins a
 * lineage. That is never the very next epoch, which nodes of before lineages take for a hand-over. */
static uint64_t next_epoch(const struct pst_map_partition *partition, const struct pst_map_partition *next,
                           bool handed)
{
    bool goes_on = partition->state == PST_MAP_EMPTY || next->state == PST_MAP_EMPTY ||
                   next->replicas[0] == partition->replicas[0] || handed;

    pst_assert(partition->state != PST_MAP_EMPTY || next->state != PST_MAP_EMPTY);
    return goes_on ? partition->epoch + 1
                   : (pst_map_lineage(partition->epoch + 1) + 1) << PST_MAP_LINEAGE_SHIFT;
}

/* The partition as it is to be, in the draft: another epoch, and its former primary waits for that pool map.
 */
static void write_partition_as(struct pst_directory *d, uint32_t number, struct pst_map_partition next,
                               bool handed)
{
    struct pst_map *draft = directory_draft(d);
    struct pst_map_partition *partition = &draft->partitions[number];
    bool served = partition->state == PST_MAP_SERVED;

    next.epoch = next_epoch(partition, &next, handed);
    pst_assert(next.epoch > partition->epoch);
    pst_assert((next.state == PST_MAP_EMPTY) == (next.replica_count == 0));
    pst_assert(next.sparse <= (next.state == PST_MAP_INCOMPLETE ? next.replica_count : 0));
    pst_assert(next.replica_count <= PST_MAP_REPLICAS_MAX);
    pst_assert(partition->state != PST_MAP_EMPTY || next.state != PST_MAP_EMPTY);
    pst_assert(next.base >= partition->base);
    pst_assert(next.lost || !partition->lost); /* forgiving is pst_directory_forgive()'s */
    pst_assert(next.base == partition->base ||
               (partition->state == PST_MAP_EMPTY && next.base == next.epoch));
    if (served && (next.state != PST_MAP_SERVED || next.replicas[0] != partition->replicas[0]))
        d->members[partition->replicas[0]].lease_version = draft->version;
    d->counters.promotions +=
        served && next.state == PST_MAP_SERVED && next.replicas[0] != partition->replicas[0];
    d->counters.partitions_incomplete +=
        partition->state != next.state && next.state == PST_MAP_INCOMPLETE && !pst_map_partition_dealt(&next);
    *partition = next;
}

static void write_partition(struct pst_directory *d, uint32_t number, struct pst_map_partition next)
{
    write_partition_as(d, number, next, false);
}

/* Nobody has it any more; @lost: with values that somebody may miss. */
static void give_up(struct pst_directory *d, uint32_t number, bool lost)
{
    const struct pst_map_partition *partition = &d->draft->partitions[number];

    pst_assert(partition->state != PST_MAP_EMPTY);
    write_partition(d, number,
                    (struct pst_map_partition){.base = partition->base, .lost = partition->lost || lost});
    d->counters.partitions_lost += lost;
}

/* It was not taken: nothing is lost with it. */
static void take_back(struct pst_directory *d, uint32_t number)
{
    pst_assert(pst_map_partition_dealt(&d->draft->partitions[number]));
    give_up(d, number, false);
}

/* Nobody serves. The copy at @at does from now on, with those others that are members; or alone, if it has
 * but what was durable. */
static void revive_partition(struct pst_directory *d, uint32_t number, int at)
{
    struct pst_map_partition next = d->draft->partitions[number];
    uint16_t member = next.replicas[at];
    bool sparse = is_sparse(&next, at);

    pst_assert(next.state != PST_MAP_EMPTY);
    pst_assert(!pst_map_partition_dealt(&next));
    for (int i = next.replica_count - 1; i >= 0; i--)
        if (next.replicas[i] != member &&
            (sparse || is_sparse(&next, i) || d->draft->members[next.replicas[i]].gone))
            take_out(&next, i);
    to_front(&next, pst_map_replica_at(&next, member));
    next.sparse = 0;
    next.lost |= sparse;
    next.state = PST_MAP_SERVED;
    write_partition(d, number, next);
    d->counters.partitions_recovered += sparse;
}

/* ---- ends and returns ---- */

/* Another copy is there: the partition goes on without @at. */
static void go_on_without(struct pst_directory *d, uint32_t number, int at, int fresh)
{
    struct pst_map_partition next = d->draft->partitions[number];
    uint16_t successor = next.replicas[fresh];

    pst_assert(at != fresh);
    pst_assert(at >= 0 && at < next.replica_count);
    pst_assert(next.state == PST_MAP_SERVED);
    take_out(&next, at);
    if (at == 0 && next.state == PST_MAP_SERVED)
        to_front(&next, pst_map_replica_at(&next, successor));
    write_partition(d, number, next);
}

/* The primary is silent: the copy at @at serves. The other stays a copy until its successor has it dropped,
 * which shows that this one lives: of two, one slow and one dead, either may be it. */
static void take_over(struct pst_directory *d, uint32_t number, int at)
{
    struct pst_map_partition next = d->draft->partitions[number];

    pst_assert(at > 0);
    pst_assert(at < next.replica_count);
    pst_assert(next.state == PST_MAP_SERVED); /* a backup, of one that is served */
    to_front(&next, at);
    write_partition(d, number, next);
}

/* The copy at @at ends, with what it had; @lost: as of give_up(). */
static void leave_behind(struct pst_directory *d, uint32_t number, int at, bool lost, uint64_t now_ns)
{
    struct pst_map_partition next = d->draft->partitions[number];

    pst_assert(next.state != PST_MAP_EMPTY);
    pst_assert(at >= 0 && at < next.replica_count);
    if (next.replica_count == 1) {
        give_up(d, number, lost);
        return;
    }
    take_out(&next, at);
    if (next.state == PST_MAP_SERVED)
        d->incomplete_ns[number] = now_ns;
    next.state = PST_MAP_INCOMPLETE;
    write_partition(d, number, next);
}

bool copies_leave(struct pst_directory *d, uint16_t member, enum pst_left left, uint64_t now_ns)
{
    bool waits = false;

    for (uint32_t i = 0; i < PST_PARTITIONS; i++) {
        const struct pst_map_partition *partition = &d->draft->partitions[i];
        int at = pst_map_replica_at(partition, member), fresh = fresh_copy(d, partition, member, now_ns);

        if (at < 0)
            continue;
        if (partition->state == PST_MAP_SERVED && fresh >= 0) {
            go_on_without(d, i, at, fresh);
            continue;
        }
        if (pst_map_partition_dealt(partition)) {
            take_back(d, i);
            continue;
        }
        if (left != PST_LEFT_KEPT) {
            leave_behind(d, i, at, left == PST_LEFT_LOST, now_ns);
            continue;
        }
        waits = true;
        if (partition->state == PST_MAP_SERVED) {
            struct pst_map_partition next = *partition;

            next.state = PST_MAP_INCOMPLETE;
            write_partition(d, i, next);
            d->incomplete_ns[i] = now_ns;
        }
    }
    return waits;
}

/* It has but what was durable: others may have more, and it waits for them behind those. */
static void wait_behind(struct pst_directory *d, uint32_t number, int at, uint64_t now_ns)
{
    struct pst_map_partition next = d->draft->partitions[number];
    uint16_t member = next.replicas[at];

    pst_assert(next.state != PST_MAP_EMPTY);
    pst_assert(at >= 0 && at < next.replica_count);
    pst_assert(!pst_map_partition_dealt(&next));
    if (next.state == PST_MAP_SERVED)
        d->incomplete_ns[number] = now_ns;
    next.state = PST_MAP_INCOMPLETE;
    take_out(&next, at);
    pst_assert(next.replica_count < PST_MAP_REPLICAS_MAX);
    next.replicas[next.replica_count++] = member;
    next.sparse++;
    pst_assert(next.sparse <= next.replica_count);
    write_partition(d, number, next);
}

bool copies_are_told(const struct pst_directory *d, uint16_t member, uint64_t now_ns)
{
    uint64_t end_ns = member_lease_end_ns(d, member);

    for (uint32_t i = 0; i < PST_PARTITIONS; i++) {
        const struct pst_map_partition *partition = &d->draft->partitions[i];
        bool fresh = false, heard = false;

        for (int at = 0; at < partition->replica_count && pst_map_replica_at(partition, member) >= 0; at++) {
            const struct member *m = &d->members[partition->replicas[at]];
            bool lives =
                partition->replicas[at] != member && copy_is_fresh(d, partition->replicas[at], now_ns);

            fresh |= lives;
            heard |= lives && m->heard && m->heard_ns > end_ns;
        }
        if (partition->state == PST_MAP_SERVED && fresh && !heard)
            return false;
    }
    return true;
}

void copies_return(struct pst_directory *d, uint16_t member, enum kept kept, uint64_t now_ns)
{
    for (uint32_t i = 0; i < PST_PARTITIONS; i++) {
        const struct pst_map_partition *partition = &d->draft->partitions[i];
        int at = pst_map_replica_at(partition, member), fresh = fresh_copy(d, partition, member, now_ns);

        if (at < 0)
            continue;
        if (partition->state == PST_MAP_SERVED && fresh >= 0)
            go_on_without(d, i, at, fresh);
        else if (pst_map_partition_dealt(partition))
            take_back(d, i);
        else if (kept == KEPT_NOTHING)
            leave_behind(d, i, at, true, now_ns);
        else if (kept == KEPT_DURABLE || is_sparse(partition, at))
            wait_behind(d, i, at, now_ns);
        else
            revive_partition(d, i, at);
    }
}

/* ---- time ---- */

static uint64_t score(uint64_t seed, uint32_t partition, uint64_t epoch)
{
    uint64_t x = seed ^ (partition + 1) * 0x9e3779b97f4a7c15 ^ epoch * 0xd6e8feb86659fd93;

    x = (x ^ x >> 32) * 0xd6e8feb86659fd93;
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93;
    return x ^ x >> 32;
}

static bool host_has_copy(const struct pst_map *map, const struct pst_map_partition *partition,
                          uint16_t member)
{
    pst_assert(member < map->members_max);
    for (uint32_t i = 0; i < partition->replica_count; i++)
        if (!map->members[partition->replicas[i]].drains &&
            pst_id_equal(&map->members[partition->replicas[i]].host, &map->members[member].host))
            return true;
    return false;
}

/* Who should be the partition's next copy: the same answer as long as the same members are there. One that
 * has refused a partition is so only where there is no other. */
static uint16_t best_copy(const struct pst_directory *d, uint32_t number,
                          const struct pst_map_partition *partition, uint64_t now_ns)
{
    uint16_t best = PST_MAP_NONE;
    uint64_t most = 0;

    for (uint32_t i = 0; i < d->settings.members_max; i++) {
        uint64_t points = d->members[i].unfit ? 0 : score(d->map->seed, number, d->members[i].epoch);

        if (points < most || !member_stays(d, (uint16_t)i) || d->members[i].sequence_next == 0 ||
            member_is_suspect(d, (uint16_t)i, now_ns) || member_drains(d, (uint16_t)i) ||
            pst_map_replica_at(partition, (uint16_t)i) >= 0 ||
            host_has_copy(d->draft, partition, (uint16_t)i))
            continue;
        best = (uint16_t)i;
        most = points;
    }
    pst_assert(best == PST_MAP_NONE || member_stays(d, best));
    return best;
}

/* Of a partition that was dealt out before any member may have values, from then. It goes to one, which drops
 * them first; the other copies join that one. */
static void deal_partition(struct pst_directory *d, uint32_t number, uint32_t replicas, uint64_t now_ns)
{
    struct pst_map_partition next = d->draft->partitions[number];
    bool anew = next.epoch > 0;

    pst_assert(next.state == PST_MAP_EMPTY);
    pst_assert(replicas <= PST_MAP_REPLICAS_MAX);
    while (next.replica_count < (anew ? 1 : replicas)) {
        uint16_t member = best_copy(d, number, &next, now_ns);

        if (member == PST_MAP_NONE)
            break;
        pst_assert(next.replica_count < PST_MAP_REPLICAS_MAX);
        pst_assert(pst_map_replica_at(&next, member) < 0);
        next.replicas[next.replica_count++] = member;
    }
    if (next.replica_count == 0)
        return;
    next.state = anew ? PST_MAP_INCOMPLETE : PST_MAP_SERVED;
    next.base = next.epoch + 1;
    write_partition(d, number, next);
}

uint32_t copies_lasting(const struct pst_directory *d, const struct pst_map_partition *partition)
{
    uint32_t count = 0;

    pst_assert(partition->replica_count <= PST_MAP_REPLICAS_MAX);
    for (uint32_t i = 0; i < partition->replica_count; i++)
        count += !member_drains(d, partition->replicas[i]);
    return count;
}

/* The place of a backup that drains, and is not needed, or of another that is too many; -1: there is none. */
static int spare_copy(const struct pst_directory *d, const struct pst_map_partition *partition,
                      uint32_t replicas, uint64_t now_ns)
{
    uint32_t lasting = copies_lasting(d, partition);

    pst_assert(partition->state == PST_MAP_SERVED);
    if (lasting < replicas && partition->replica_count < PST_MAP_REPLICAS_MAX)
        return -1;
    for (int i = 1; i < partition->replica_count; i++)
        if (member_drains(d, partition->replicas[i]))
            return i;
    return balance_spare(d, partition, replicas, now_ns);
}

/* Its primary goes on without it, once it has heard of that; until then it has one copy more than it needs.
 */
static void let_go(struct pst_directory *d, uint32_t number, uint32_t replicas, uint64_t now_ns)
{
    struct pst_map_partition next = d->draft->partitions[number];
    int at = next.state == PST_MAP_SERVED ? spare_copy(d, &next, replicas, now_ns) : -1;

    if (at < 1)
        return;
    pst_assert(next.replica_count > 1);
    pst_assert(at < next.replica_count);
    take_out(&next, at);
    write_partition(d, number, next);
}

/* Members to whom partitions may be dealt. */
static uint64_t members_there(const struct pst_directory *d, uint64_t now_ns)
{
    uint64_t count = 0;

    for (uint32_t i = 0; i < d->settings.members_max; i++)
        count += member_stays(d, (uint16_t)i) && d->members[i].sequence_next > 0 &&
                 !member_is_suspect(d, (uint16_t)i, now_ns);
    return count;
}

/* With nobody @there no time counts, and with too few to deal to nothing is given up. */
static void look_after(struct pst_directory *d, uint32_t number, uint64_t there, uint64_t now_ns)
{
    const struct pst_map_partition *partition = &d->draft->partitions[number];
    int fresh;

    pst_assert(number < PST_PARTITIONS);
    if (partition->state == PST_MAP_SERVED && member_stays(d, partition->replicas[0]) &&
        member_lease_is_over(d, partition->replicas[0], now_ns)) {
        fresh = fresh_copy(d, partition, partition->replicas[0], now_ns);
        if (fresh > 0)
            take_over(d, number, fresh);
    } else if (pst_map_partition_dealt(partition)) {
        if (!copy_is_fresh(d, partition->replicas[0], now_ns))
            take_back(d, number);
    } else if (partition->state == PST_MAP_INCOMPLETE) {
        bool late;

        if (there == 0)
            d->incomplete_ns[number] = now_ns;
        late = now_ns >= pst_deadline_ns(d->incomplete_ns[number], d->settings.incomplete_ms);
        fresh =
            fresh_copy(d, partition, PST_MAP_NONE, now_ns); /* of those that may have all, if there is one */
        if (fresh >= 0 &&
            (late || partition->sparse == partition->replica_count || !is_sparse(partition, fresh)))
            revive_partition(d, number, fresh);
        else if (late && there >= d->settings.nodes_min)
            give_up(d, number, true);
    }
}

void copies_tick(struct pst_directory *d, uint64_t now_ns)
{
    uint32_t replicas = pst_map_replicas(d->draft), left = DEALT_PER_TICK;
    uint64_t there = members_there(d, now_ns);
    bool deals = replicas > 0 && there >= d->settings.nodes_min;

    for (uint32_t i = 0; i < PST_PARTITIONS; i++) {
        look_after(d, i, there, now_ns);
        let_go(d, i, replicas, now_ns);
        if (d->draft->partitions[i].state == PST_MAP_EMPTY && deals && left > 0) {
            deal_partition(d, i, replicas, now_ns);
            left--;
        }
    }
    balance_tick(d, now_ns);
}

/* ---- what primaries ask for ---- */

static bool about_itself(const struct pst_copy_request *request)
{
    return request->change == PST_COPY_TAKE || request->change == PST_COPY_REFUSE;
}

/* What the partition's first copy may ask for, done. Return: 0, -ESTALE, -EINVAL. */
static int change_partition(const struct pst_directory *d, const struct pst_copy_request *request,
                            struct pst_map_partition *partition)
{
    int at = pst_map_replica_at(partition, request->copy);

    if (about_itself(request)) {
        if (!pst_map_partition_dealt(partition))
            return -ESTALE;
        if (request->change == PST_COPY_TAKE)
            partition->state = PST_MAP_SERVED;
        else
            *partition = (struct pst_map_partition){.base = partition->base, .lost = partition->lost};
        return 0;
    }
    if (partition->state != PST_MAP_SERVED)
        return -ESTALE;
    if (request->change == PST_COPY_DROP) {
        if (at > 0)
            take_out(partition, at);
        return 0;
    }
    if ((at < 0) != (request->change == PST_COPY_JOIN) || !member_stays(d, request->copy) ||
        d->members[request->copy].epoch != request->copy_epoch)
        return -ESTALE;
    if (request->change == PST_COPY_LEAD)
        to_front(partition, at);
    else if (partition->replica_count < PST_MAP_REPLICAS_MAX)
        partition->replicas[partition->replica_count++] = request->copy;
    else
        return -EINVAL;
    return 0;
}

int pst_directory_change_copy(struct pst_directory *d, const struct pst_copy_request *request,
                              uint64_t *version)
{
    struct pst_map_partition next;
    int r = -ESTALE;

    directory_check(d);
    if (request->partition >= PST_PARTITIONS || request->member >= d->settings.members_max ||
        request->copy >= d->settings.members_max || request->change > PST_COPY_REFUSE ||
        (request->copy == request->member) != about_itself(request))
        return -EINVAL;
    next = d->draft->partitions[request->partition];
    if (member_stays(d, request->member) && d->members[request->member].epoch == request->epoch &&
        next.epoch == request->partition_epoch && next.replicas[0] == request->member)
        r = change_partition(d, request, &next);
    d->counters.partition_requests_stale += r == -ESTALE;
    if (r < 0)
        return r;
    if (request->change == PST_COPY_REFUSE) {
        d->members[request->member].unfit = true;
        d->counters.partitions_refused++;
    }
    write_partition_as(d, request->partition, next, request->change == PST_COPY_LEAD);
    pst_assert(d->draft->version > d->map->version);
    *version = d->draft->version;
    return 0;
}

/* Who is to be primary in place of one that drains. */
static uint16_t successor(const struct pst_directory *d, const struct pst_map_partition *partition,
                          uint64_t now_ns)
{
    pst_assert(partition->replica_count <= PST_MAP_REPLICAS_MAX);
    for (uint32_t i = 1; i < partition->replica_count; i++)
        if (!member_drains(d, partition->replicas[i]) && copy_is_fresh(d, partition->replicas[i], now_ns) &&
            !member_is_suspect(d, partition->replicas[i], now_ns))
            return partition->replicas[i];
    return PST_MAP_NONE;
}

void copies_wanted(struct pst_directory *d, uint16_t member, uint64_t now_ns,
                   struct pst_heartbeat_answer *answer)
{
    /* When no keys have homes any more, partitions that were dealt out have values that they got before. */
    uint32_t replicas = (uint32_t)pst_max(pst_map_replicas(d->map), 1), searches = PST_WANTS_MAX;
    struct member *m = &d->members[member];

    pst_assert(member < d->settings.members_max);
    pst_assert(answer->want_count == 0);
    if (replicas < 2 && !member_drains(d, member))
        return;
    for (uint32_t i = 0; i < PST_PARTITIONS && searches > 0; i++) {
        uint32_t number = m->want_at++ % PST_PARTITIONS;
        const struct pst_map_partition *partition = &d->map->partitions[number];
        uint16_t copy;
        bool lacks;

        if (partition->state != PST_MAP_SERVED || partition->replicas[0] != member ||
            partition->epoch != d->draft->partitions[number].epoch)
            continue;
        lacks = copies_lasting(d, partition) < replicas && partition->replica_count < PST_MAP_REPLICAS_MAX;
        if (!lacks && !member_drains(d, member))
            continue;
        searches--;
        copy = lacks ? best_copy(d, number, partition, now_ns) : successor(d, partition, now_ns);
        pst_assert(answer->want_count < PST_WANTS_MAX);
        pst_assert(copy != member);
        if (copy != PST_MAP_NONE)
            answer->wants[answer->want_count++] = (struct pst_want){.partition = (uint16_t)number,
                                                                    .member = copy,
                                                                    .leads = !lacks,
                                                                    .partition_epoch = partition->epoch,
                                                                    .member_epoch = d->members[copy].epoch};
    }
}

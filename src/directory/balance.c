/* SPDX-License-Identifier: Apache-2.0 */
/*
 * balance.c: members that have fewer partitions than others are given some, a few at a time, while no
 * partition lacks a copy. A partition's primary has the member join, by the way that a lacking copy goes;
 * that is one too many, and of all its copies the one goes whose member has most. If that is the primary, it
 * hands the partition over first. What has joined needs no memory of why: a directory that begins anew goes
 * on.
 */
#include "directory/directory_priv.h"

#include "base/ms.h"

enum {
    LOOKS_PER_TICK = 512,   /* partitions */
    MOVE_MS = 30000,        /* one that takes longer is not counted any more; it may happen still */
    MARGIN_SHARE = 8,       /* of what each should have: less than that is no difference, */
    MARGIN_PARTITIONS = 16, /* nor is so little */
};

/* It may be given partitions, and may be asked for some. */
static bool is_able(const struct pst_directory *d, uint16_t member, uint64_t now_ns)
{
    pst_assert(member < d->settings.members_max);
    return member_stays(d, member) && !member_drains(d, member) && d->members[member].sequence_next > 0 &&
           !member_is_suspect(d, member, now_ns);
}

static bool all_are_able(const struct pst_directory *d, const struct pst_map_partition *partition,
                         uint64_t now_ns)
{
    for (uint32_t i = 0; i < partition->replica_count; i++)
        if (!is_able(d, partition->replicas[i], now_ns) || !copy_is_fresh(d, partition->replicas[i], now_ns))
            return false;
    return partition->state == PST_MAP_SERVED;
}

/* Whether a copy besides the one at @but lies on the member's host. */
static bool shares_host(const struct pst_directory *d, const struct pst_map_partition *partition, int but,
                        uint16_t member)
{
    pst_assert(but < partition->replica_count);
    for (int i = 0; i < partition->replica_count; i++)
        if (i != but &&
            pst_id_equal(&d->draft->members[partition->replicas[i]].host, &d->draft->members[member].host))
            return true;
    return false;
}

/* The place of the copy whose member has most; a backup rather than the primary. */
static int most_loaded(const struct pst_directory *d, const struct pst_map_partition *partition)
{
    int most = 0;

    pst_assert(partition->replica_count > 0);
    for (int i = 1; i < partition->replica_count; i++)
        if (d->members[partition->replicas[i]].partitions >= d->members[partition->replicas[most]].partitions)
            most = i;
    return most;
}

/* The backup whose member is primary of fewest. */
static uint16_t least_leading(const struct pst_directory *d, const struct pst_map_partition *partition)
{
    uint16_t least = partition->replicas[1];

    pst_assert(partition->replica_count > 1);
    for (int i = 2; i < partition->replica_count; i++)
        if (d->members[partition->replicas[i]].primaries < d->members[least].primaries)
            least = partition->replicas[i];
    return least;
}

int balance_spare(const struct pst_directory *d, const struct pst_map_partition *partition, uint32_t replicas,
                  uint64_t now_ns)
{
    int spare = -1;

    pst_assert(partition->replica_count <= PST_MAP_REPLICAS_MAX);
    if (replicas == 0 || partition->replica_count <= replicas || !all_are_able(d, partition, now_ns))
        return -1;
    for (int i = 0; i < partition->replica_count; i++) {
        bool shares = shares_host(d, partition, i, partition->replicas[i]);
        bool shared = spare >= 0 && shares_host(d, partition, spare, partition->replicas[spare]);

        if (spare < 0 || shares > shared ||
            (shares == shared && d->members[partition->replicas[i]].partitions >=
                                     d->members[partition->replicas[spare]].partitions))
            spare = i;
    }
    pst_assert(spare >= 0 && spare < partition->replica_count);
    return spare;
}

/* ---- who has what ---- */

/* Nobody waits any more for those that no partition names. */
static void forget_gone(struct pst_directory *d)
{
    pst_assert(d->settings.members_max == d->draft->members_max);
    for (uint32_t i = 0; i < d->settings.members_max; i++)
        if (d->draft->members[i].gone && d->members[i].partitions == 0)
            directory_draft(d)->members[i] = (struct pst_map_member){.epoch = 0};
}

static void count_partitions(struct pst_directory *d)
{
    for (uint32_t i = 0; i < d->settings.members_max; i++)
        d->members[i].partitions = d->members[i].primaries = 0;
    for (uint32_t i = 0; i < PST_PARTITIONS; i++) {
        const struct pst_map_partition *partition = &d->draft->partitions[i];

        pst_assert(partition->replica_count <= PST_MAP_REPLICAS_MAX);
        for (uint32_t j = 0; j < partition->replica_count; j++) {
            pst_assert(d->draft->members[partition->replicas[j]].epoch > 0);
            d->members[partition->replicas[j]].partitions++;
            d->members[partition->replicas[j]].primaries += j == 0;
        }
    }
}

/* As if it had happened. */
static void count_move(struct pst_directory *d, const struct move *move)
{
    const struct pst_map_partition *partition = &d->draft->partitions[move->partition];
    bool leads = partition->replicas[0] == move->from;

    pst_assert(partition->epoch == move->partition_epoch);
    pst_assert(move->member < d->settings.members_max);
    pst_assert(move->from != move->member);
    pst_assert(d->members[move->from].partitions > 0);
    pst_assert(d->members[move->from].primaries >= leads);
    if (pst_map_replica_at(partition, move->member) < 0) {
        d->members[move->from].partitions--;
        d->members[move->member].partitions++;
    }
    d->members[move->from].primaries -= leads;
    d->members[move->member].primaries += leads;
    pst_assert(d->members[move->member].primaries <= PST_PARTITIONS);
}

static void count_surplus(struct pst_directory *d, uint32_t replicas)
{
    d->surplus = 0;
    for (uint32_t i = 0; i < PST_PARTITIONS; i++) {
        const struct pst_map_partition *partition = &d->draft->partitions[i];

        if (replicas > 0 && copies_lasting(d, partition) > replicas) {
            pst_assert(d->members[partition->replicas[most_loaded(d, partition)]].partitions > 0);
            d->members[partition->replicas[most_loaded(d, partition)]].partitions--;
            d->surplus++;
        }
    }
    pst_assert(d->surplus <= PST_PARTITIONS);
}

static bool move_has_ended(struct pst_directory *d, const struct move *move, uint64_t now_ns)
{
    const struct pst_map_partition *partition = &d->draft->partitions[move->partition];

    pst_assert(move->partition < PST_PARTITIONS);
    if (partition->epoch != move->partition_epoch) {
        d->counters.balanced += pst_map_replica_at(partition, move->member) >= 0;
        return true;
    }
    return now_ns >= move->until_ns || d->members[move->member].epoch != move->member_epoch ||
           !is_able(d, move->member, now_ns) || !all_are_able(d, partition, now_ns);
}

static void end_moves(struct pst_directory *d, uint64_t now_ns)
{
    pst_assert(d->move_count <= MOVES_MAX);
    for (uint32_t i = 0; i < d->move_count;) {
        if (move_has_ended(d, &d->moves[i], now_ns))
            d->moves[i] = d->moves[--d->move_count];
        else
            count_move(d, &d->moves[i++]);
    }
}

/* ---- what would be better ---- */

/* What is known of all, for one tick. */
struct balance {
    uint32_t replicas, able, margin, margin_primaries, fewest;
};

/* Return: whether all partitions have their copies, and there are members to share them. */
static bool survey(const struct pst_directory *d, uint64_t now_ns, struct balance *b)
{
    *b = (struct balance){.replicas = pst_map_replicas(d->draft), .fewest = UINT32_MAX};
    for (uint32_t i = 0; i < PST_PARTITIONS; i++)
        if (d->draft->partitions[i].state != PST_MAP_SERVED ||
            copies_lasting(d, &d->draft->partitions[i]) < b->replicas)
            return false;
    for (uint32_t i = 0; i < d->settings.members_max; i++) {
        if (!is_able(d, (uint16_t)i, now_ns))
            continue;
        b->able++;
        b->fewest = (uint32_t)pst_min(b->fewest, d->members[i].partitions);
    }
    if (b->able == 0 || b->replicas == 0)
        return false;
    pst_assert(b->able <= d->settings.members_max);
    pst_assert(b->fewest <= PST_PARTITIONS);
    b->margin = PST_PARTITIONS * b->replicas / b->able / MARGIN_SHARE + MARGIN_PARTITIONS;
    b->margin_primaries = PST_PARTITIONS / b->able / MARGIN_SHARE + MARGIN_PARTITIONS;
    return true;
}

/* Of those that could have the copy in place of the one at @from, who has fewest. */
static uint16_t receiver(const struct pst_directory *d, const struct pst_map_partition *partition, int from,
                         uint64_t now_ns)
{
    uint16_t best = PST_MAP_NONE;

    for (uint32_t i = 0; i < d->settings.members_max; i++) {
        uint16_t member = (uint16_t)i;

        if (is_able(d, member, now_ns) && !d->members[i].unfit && pst_map_replica_at(partition, member) < 0 &&
            !shares_host(d, partition, from, member) &&
            (best == PST_MAP_NONE || d->members[i].partitions < d->members[best].partitions))
            best = member;
    }
    pst_assert(best == PST_MAP_NONE || best < d->settings.members_max);
    return best;
}

static void plan(struct pst_directory *d, const struct balance *b, uint32_t number, uint64_t now_ns)
{
    const struct pst_map_partition *partition = &d->draft->partitions[number];
    int from = most_loaded(d, partition);
    uint32_t has = d->members[partition->replicas[from]].partitions;
    uint16_t to = PST_MAP_NONE;

    pst_assert(number < PST_PARTITIONS);
    pst_assert(b->able > 0);
    if (partition->replica_count != b->replicas || !all_are_able(d, partition, now_ns))
        return;
    for (uint32_t i = 0; i < d->move_count; i++)
        if (d->moves[i].partition == number)
            return;
    if (has > b->fewest + b->margin && partition->replica_count < PST_MAP_REPLICAS_MAX)
        to = receiver(d, partition, from, now_ns);
    if (to != PST_MAP_NONE && has <= d->members[to].partitions + b->margin)
        to = PST_MAP_NONE;
    if (to == PST_MAP_NONE && partition->replica_count > 1) {
        from = 0;
        to = least_leading(d, partition);
        if (d->members[partition->replicas[0]].primaries <= d->members[to].primaries + b->margin_primaries)
            to = PST_MAP_NONE;
    }
    if (to == PST_MAP_NONE)
        return;
    pst_assert(d->move_count < MOVES_MAX);
    pst_assert(to != partition->replicas[from]);
    d->moves[d->move_count] = (struct move){.partition_epoch = partition->epoch,
                                            .member_epoch = d->members[to].epoch,
                                            .until_ns = pst_deadline_ns(now_ns, MOVE_MS),
                                            .partition = (uint16_t)number,
                                            .from = partition->replicas[from],
                                            .member = to};
    count_move(d, &d->moves[d->move_count++]);
}

void balance_tick(struct pst_directory *d, uint64_t now_ns)
{
    struct balance b;

    count_partitions(d);
    forget_gone(d);
    end_moves(d, now_ns);
    count_surplus(d, pst_map_replicas(d->draft));
    if (d->settings.balance_partitions == 0 || !survey(d, now_ns, &b))
        return;
    for (int i = 0; i < LOOKS_PER_TICK && d->move_count + d->surplus < d->settings.balance_partitions; i++)
        plan(d, &b, d->balance_at++ % PST_PARTITIONS, now_ns);
}

/* ---- what primaries are asked for ---- */

static void want(const struct pst_directory *d, uint32_t number, uint16_t member,
                 struct pst_heartbeat_answer *answer)
{
    const struct pst_map_partition *partition = &d->map->partitions[number];

    pst_assert(member < d->settings.members_max);
    pst_assert(number < PST_PARTITIONS);
    pst_assert(answer->want_count <= PST_WANTS_MAX);
    if (answer->want_count == PST_WANTS_MAX || partition->epoch != d->draft->partitions[number].epoch)
        return;
    answer->wants[answer->want_count++] =
        (struct pst_want){.partition = (uint16_t)number,
                          .member = member,
                          .leads = pst_map_replica_at(partition, member) > 0,
                          .partition_epoch = partition->epoch,
                          .member_epoch = d->members[member].epoch};
}

void balance_wanted(const struct pst_directory *d, uint16_t member, uint64_t now_ns,
                    struct pst_heartbeat_answer *answer)
{
    uint32_t replicas = pst_map_replicas(d->map);

    pst_assert(member < d->settings.members_max);
    pst_assert(d->move_count <= MOVES_MAX);
    for (uint32_t i = 0; i < d->move_count; i++) {
        const struct move *move = &d->moves[i];

        pst_assert(move->partition < PST_PARTITIONS);
        if (d->map->partitions[move->partition].replicas[0] == member &&
            d->map->partitions[move->partition].epoch == move->partition_epoch &&
            is_able(d, move->member, now_ns))
            want(d, move->partition, move->member, answer);
    }
    for (uint32_t i = 0; i < PST_PARTITIONS && d->surplus > 0; i++) {
        const struct pst_map_partition *partition = &d->map->partitions[i];

        if (partition->state == PST_MAP_SERVED && partition->replicas[0] == member &&
            balance_spare(d, partition, replicas, now_ns) == 0)
            want(d, i, least_leading(d, partition), answer);
    }
}

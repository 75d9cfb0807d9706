/* SPDX-License-Identifier: Apache-2.0 */
/* tombstones.c: tombstones: they wait for company in a group's head, some for a sync first. */
#include "log/lane_priv.h"

enum { TOMBSTONES_MIN = 1024, LATERS_MIN = 64 };

int pst_lane_add_tombstone(struct pst_lane *lane, const struct pst_log_tombstone *tombstone)
{
    pst_assert(tombstone->kind == PST_LOG_TOMBSTONE);
    pst_assert(lane->tombstone_count <= lane->tombstone_room);
    if (lane->tombstone_count == lane->tombstone_room) {
        uint64_t room = pst_max(2 * lane->tombstone_room, TOMBSTONES_MIN);
        void *more = realloc(lane->tombstones, room * sizeof(*tombstone));

        if (!more)
            return -ENOMEM;
        lane->tombstones = more;
        lane->tombstone_room = room;
    }
    lane->tombstones[lane->tombstone_count++] = *tombstone;
    pst_assert(lane->tombstone_count <= lane->tombstone_room);
    return 0;
}

void pst_lane_add_tombstones(struct pst_lane *lane, struct pst_group *g)
{
    pst_assert(g->state == PST_GROUP_OPEN);
    pst_assert(!g->large);
    while (lane->tombstone_count > 0 &&
           pst_group_head_bytes(g) + sizeof(struct pst_log_tombstone) <= PST_LOG_HEAD_BYTES_MAX) {
        memcpy(g->buffer + pst_group_head_bytes(g), &lane->tombstones[--lane->tombstone_count],
               sizeof(*lane->tombstones));
        g->entries_bytes += sizeof(*lane->tombstones);
        g->entry_count++;
        lane->stat.tombstones++;
    }
    pst_assert(pst_group_head_bytes(g) <= PST_LOG_HEAD_BYTES_MAX);
}

/* ---- those that wait ---- */

static int delete_later(struct pst_lane *lane, const struct pst_log_tombstone *tombstone, uint64_t ticket)
{
    pst_assert(ticket <= lane->issued);
    pst_assert(lane->later_count <= lane->later_room);
    if (lane->later_count == lane->later_room) {
        uint64_t room = pst_max(2 * lane->later_room, LATERS_MIN);
        void *more = realloc(lane->laters, room * sizeof(*lane->laters));

        if (!more)
            return -ENOMEM;
        lane->laters = more;
        lane->later_room = room;
    }
    lane->laters[lane->later_count++] = (struct pst_later){*tombstone, ticket};
    pst_assert(lane->later_count <= lane->later_room);
    return 0;
}

int pst_lane_tombstones_later(struct pst_lane *lane, const void *entries, uint64_t bytes)
{
    struct pst_bytes left = {entries, bytes};
    struct pst_log_any any;
    int kind, r = 0;

    pst_assert(lane->doubt_until > 0);
    while (r == 0 && (kind = pst_log_entry_next(&left, lane->log->segment_bytes, &any)) > 0)
        r = kind == PST_LOG_TOMBSTONE ? delete_later(lane, &any.tombstone, 0) : 0;
    return r;
}

bool pst_lane_doubt_held(const struct pst_lane *lane, uint64_t upto)
{
    pst_assert(upto <= lane->synced);
    return lane->later_count > 0 && lane->laters[0].ticket <= upto;
}

void pst_lane_laters_synced(struct pst_lane *lane)
{
    uint64_t count = 0;

    if (pst_lane_in_doubt(lane))
        return; /* what they wait for may be what is moved */
    while (count < lane->later_count && lane->laters[count].ticket <= lane->synced &&
           pst_lane_add_tombstone(lane, &lane->laters[count].tombstone) == 0)
        count++;
    pst_assert(count <= lane->later_count);
    lane->later_count -= count;
    if (count > 0)
        memmove(lane->laters, lane->laters + count, lane->later_count * sizeof(*lane->laters));
}

bool pst_lane_laters_wait(const struct pst_lane *lane)
{
    pst_assert(lane->later_count <= lane->later_room);
    return lane->later_count > 0 && lane->laters[0].ticket > lane->synced &&
           lane->laters[0].ticket <= lane->written;
}

/* ---- values that are dead ---- */

void pst_log_forget(struct pst_lane *lane, const struct pst_log_value *value, struct pst_log_place place)
{
    uint64_t bytes = pst_log_disk_bytes(value), before;

    pst_assert(place.segment < lane->log->segment_count);
    before = atomic_fetch_sub(&lane->log->segments[place.segment].live_bytes, bytes);
    pst_assert(before >= bytes);
}

int pst_lane_add_tombstone_at(struct pst_lane *lane, struct pst_log_tombstone tombstone, uint32_t segment,
                              uint64_t ticket)
{
    /* What a scan finds may make room for what is in doubt. */
    bool waits = ticket > lane->synced || (ticket > 0 && pst_lane_in_doubt(lane)) ||
                 (lane->log->scanning && lane->doubt_until > 0);

    pst_assert(segment < lane->log->segment_count);
    tombstone.target_sequence = lane->log->segments[segment].sequence;
    tombstone.target_segment = segment;
    return waits ? delete_later(lane, &tombstone, ticket) : pst_lane_add_tombstone(lane, &tombstone);
}

/* @era: of the copy, where it was made before the value died and came there after; or what it is now. */
static int delete_value(struct pst_lane *lane, const struct pst_log_value *value, struct pst_log_place place,
                        uint8_t flags, uint32_t era, uint64_t ticket)
{
    struct pst_log_tombstone tombstone = pst_log_tombstone_of(lane->log, value->key, value->generation);
    int r;

    pst_assert(!(flags & PST_TOMBSTONE_FAILED)); /* those are of values that never were */
    tombstone.flags = flags;
    tombstone.era = era;
    r = pst_lane_add_tombstone_at(lane, tombstone, place.segment, ticket);
    if (r == 0)
        pst_log_forget(lane, value, place);
    return r;
}

int pst_log_delete(struct pst_lane *lane, const struct pst_log_value *value, struct pst_log_place place)
{
    return delete_value(lane, value, place, 0, lane->log->era, 0);
}

int pst_log_delete_after(struct pst_lane *lane, const struct pst_log_value *value, struct pst_log_place place,
                         uint64_t ticket)
{
    return delete_value(lane, value, place, 0, lane->log->era, ticket);
}

int pst_log_delete_moved(struct pst_lane *lane, const struct pst_log_value *value, struct pst_log_place to)
{
    return delete_value(lane, value, to, 0, value->era, lane->written);
}

int pst_log_give_up(struct pst_lane *lane, const struct pst_log_value *value, struct pst_log_place place)
{
    int r = delete_value(lane, value, place, 0, value->era, 0);

    if (r == 0 && value->era == lane->log->era)
        pst_log_new_era(lane->log);
    return r;
}

int pst_log_delete_alone(struct pst_lane *lane, const struct pst_log_value *value, struct pst_log_place place)
{
    return delete_value(lane, value, place, PST_TOMBSTONE_EXACT, value->era, 0);
}

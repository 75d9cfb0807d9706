/* log_bury.c: tombstones: they wait for company in a group's head, some for a sync first. */
#include "store/log_lane_priv.h"

enum { TOMBSTONES_MIN = 1024, LATERS_MIN = 64 };

int pst_lane_bury(struct pst_lane *lane, const struct pst_log_tombstone *tombstone)
{
    if (lane->tombstone_count == lane->tombstone_room) {
        uint64_t room = pst_max(2 * lane->tombstone_room, TOMBSTONES_MIN);
        void *more = realloc(lane->tombstones, room * sizeof(*tombstone));

        if (!more)
            return -ENOMEM;
        lane->tombstones = more;
        lane->tombstone_room = room;
    }
    lane->tombstones[lane->tombstone_count++] = *tombstone;
    return 0;
}

void pst_lane_add_tombstones(struct pst_lane *lane, struct pst_group *g)
{
    while (lane->tombstone_count > 0 &&
           pst_group_head_bytes(g) + sizeof(struct pst_log_tombstone) <= PST_LOG_HEAD_BYTES_MAX) {
        memcpy(g->buffer + pst_group_head_bytes(g), &lane->tombstones[--lane->tombstone_count],
               sizeof(*lane->tombstones));
        g->entries_bytes += sizeof(*lane->tombstones);
        g->entry_count++;
        lane->stat.tombstones++;
    }
}

/* ---- those that wait ---- */

static int bury_later(struct pst_lane *lane, const struct pst_log_tombstone *tombstone, uint64_t ticket)
{
    if (lane->later_count == lane->later_room) {
        uint64_t room = pst_max(2 * lane->later_room, LATERS_MIN);
        void *more = realloc(lane->laters, room * sizeof(*lane->laters));

        if (!more)
            return -ENOMEM;
        lane->laters = more;
        lane->later_room = room;
    }
    lane->laters[lane->later_count++] = (struct pst_later){*tombstone, ticket};
    return 0;
}

void pst_lane_laters_synced(struct pst_lane *lane)
{
    uint64_t count = 0;

    if (pst_lane_in_doubt(lane))
        return; /* what they wait for may be what is moved */
    while (count < lane->later_count && lane->laters[count].ticket <= lane->synced &&
           pst_lane_bury(lane, &lane->laters[count].tombstone) == 0)
        count++;
    lane->later_count -= count;
    if (count > 0)
        memmove(lane->laters, lane->laters + count, lane->later_count * sizeof(*lane->laters));
}

bool pst_lane_laters_wait(const struct pst_lane *lane)
{
    return lane->later_count > 0 && lane->laters[0].ticket > lane->synced &&
           lane->laters[0].ticket <= lane->written;
}

/* ---- values that are dead ---- */

void pst_log_forget(struct pst_lane *lane, const struct pst_log_value *value, struct pst_log_place place)
{
    struct pst_segment *s = &lane->log->segments[place.segment];
    uint64_t before = atomic_fetch_sub(&s->live_bytes, pst_log_disk_bytes(value));

    pst_assert(before >= pst_log_disk_bytes(value));
}

int pst_lane_bury_at(struct pst_lane *lane, struct pst_log_tombstone tombstone, uint32_t segment,
                     uint64_t ticket)
{
    tombstone.target_sequence = lane->log->segments[segment].sequence;
    tombstone.target_segment = segment;
    return ticket > lane->synced ? bury_later(lane, &tombstone, ticket) : pst_lane_bury(lane, &tombstone);
}

/* @era: of the copy, where it was made before the value died and came there after; or what it is now. */
static int bury(struct pst_lane *lane, const struct pst_log_value *value, struct pst_log_place place,
                uint8_t flags, uint32_t era, uint64_t ticket)
{
    struct pst_log_tombstone tombstone = pst_log_tombstone_of(lane->log, value->key, value->generation);
    int r;

    tombstone.flags = flags;
    tombstone.era = era;
    r = pst_lane_bury_at(lane, tombstone, place.segment, ticket);
    if (r == 0)
        pst_log_forget(lane, value, place);
    return r;
}

int pst_log_bury(struct pst_lane *lane, const struct pst_log_value *value, struct pst_log_place place)
{
    return bury(lane, value, place, 0, lane->log->era, 0);
}

int pst_log_bury_after(struct pst_lane *lane, const struct pst_log_value *value, struct pst_log_place place,
                       uint64_t ticket)
{
    return bury(lane, value, place, 0, lane->log->era, ticket);
}

int pst_log_bury_moved(struct pst_lane *lane, const struct pst_log_value *value, struct pst_log_place to)
{
    return bury(lane, value, to, 0, value->era, lane->written);
}

int pst_log_bury_alone(struct pst_lane *lane, const struct pst_log_value *value, struct pst_log_place place)
{
    return bury(lane, value, place, PST_TOMBSTONE_EXACT, value->era, 0);
}

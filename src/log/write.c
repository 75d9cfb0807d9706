/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write.c: groups: how values are gathered, laid out and written, and how they end. A group
 * finds its place in a segment when it is closed. Tickets number the groups of a lane; they end in order, so
 * that one number tells what is written and one what is synced. Heads and indexes of segments are written as
 * groups without values.
 */
#include "log/lane_priv.h"

#include "base/clock.h"

enum {
    GROUPS_BUSY = 2,       /* with so many underway small groups wait for company */
    TOMBSTONES_ALONE = 90, /* so many are written without company */
    INDEX_BYTES_MIN = 64 << 10,
    REST_NS = 10000000, /* after the second failure in a row; twice that each time, ... */
    REST_SHIFT_MAX = 7, /* ... so often */
    FRESH_SHARE = 16,   /* of a segment: with less in it there is room for the tenths that live in another */
};

static void group_becomes(struct pst_group *g, enum pst_group_state state)
{
    static const uint8_t follows[] = {
        [PST_GROUP_FREE] = 1 << PST_GROUP_OPEN | 1 << PST_GROUP_WRITTEN,
        [PST_GROUP_OPEN] = 1 << PST_GROUP_FREE,
        [PST_GROUP_WRITING] = 1 << PST_GROUP_OPEN,
        [PST_GROUP_WRITTEN] = 1 << PST_GROUP_WRITING,
    };

    pst_assert(state < pst_count_of(follows));
    pst_assert(follows[state] >> g->state & 1);
    g->state = (uint8_t)state;
}

/* ---- groups ---- */

struct pst_group *pst_group_take(struct pst_lane *lane)
{
    for (uint32_t i = 0; i < PST_LANE_GROUPS; i++) {
        struct pst_group *g = &lane->groups[i];

        if (g->state != PST_GROUP_FREE)
            continue;
        pst_assert(pst_list_empty(&g->appends));
        pst_assert(g->io_left == 0);
        pst_assert(!g->image);
        group_becomes(g, PST_GROUP_OPEN);
        g->large = false;
        g->result = 0;
        g->entry_count = g->put_count = g->move_count = g->entries_bytes = g->packed_bytes = g->direct_bytes =
            g->end_blocks = 0;
        g->iov_count = 2;
        g->image = NULL;
        return g;
    }
    return NULL;
}

static uint32_t groups_busy(const struct pst_lane *lane)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < PST_LANE_GROUPS; i++)
        count += lane->groups[i].state > PST_GROUP_OPEN;
    return count;
}

static void group_submit(struct pst_lane *lane, struct pst_group *g, const struct iovec *iov,
                         uint32_t iov_count, uint64_t offset, uint64_t bytes)
{
    const struct pst_disk_op op = {.verb = PST_DISK_WRITE,
                                   .file = g->segment,
                                   .offset = offset,
                                   .bytes = bytes,
                                   .iov = iov,
                                   .iov_count = iov_count};

    pst_assert(g->state == PST_GROUP_WRITING);
    pst_assert(g->io_left < pst_count_of(g->io));
    pst_assert(bytes > 0);
    pst_assert(pst_log_is_whole(offset));
    pst_assert(offset + bytes <= lane->log->segment_bytes);
    pst_lane_submit(lane, &g->io[g->io_left++], PST_IO_GROUP, g, &op);
    lane->stat.written_bytes += bytes;
}

bool pst_lane_writes_to(const struct pst_lane *lane, uint32_t segment)
{
    pst_assert(segment < lane->log->segment_count);
    for (uint32_t i = 0; i < PST_LANE_GROUPS; i++) {
        if (lane->groups[i].state >= PST_GROUP_WRITING && lane->groups[i].segment == segment)
            return true;
    }
    return false;
}

static void group_issue(struct pst_lane *lane, struct pst_group *g)
{
    group_becomes(g, PST_GROUP_WRITING);
    g->ticket = ++lane->issued;
    pst_assert(lane->issued > lane->written);
    pst_assert(lane->issued - lane->written <= PST_LANE_GROUPS);
    g->io_left = 0;
}

/* ---- the segment that is written ---- */

/* Free segments that values leave alone, one for each lane: to move what lives elsewhere and for tombstones
 * there is always one. */
static bool log_may_take(const struct pst_log *log, bool last_resort)
{
    pst_assert(log->free_count <= log->segment_count);
    return log->free_count > (last_resort ? 0 : log->lane_count);
}

void pst_lane_note_provided(struct pst_lane *lane)
{
    bool fresh = lane->index_now.entries && lane->at <= lane->log->segment_bytes / FRESH_SHARE;

    atomic_store_explicit(&lane->provided, fresh || lane->reclaim.took, memory_order_relaxed);
}

/* Whether values of this lane may take what is left of its segment: each lane can still empty one then. */
static bool lane_may_fill(const struct pst_lane *lane)
{
    const struct pst_log *log = lane->log;
    uint32_t needed = 1;

    pst_assert(lane->index < log->lane_count);
    for (uint32_t i = 0; i < log->lane_count; i++)
        needed += i != lane->index && !atomic_load_explicit(&log->lanes[i]->provided, memory_order_relaxed);
    return log->free_count >= needed;
}

static int take_segment(struct pst_lane *lane, bool last_resort, uint32_t *out)
{
    struct pst_log *log = lane->log;
    int r = -ENOSPC;

    pthread_mutex_lock(&log->lock);
    /* From another start for each lane, so that folders are used alike; those that failed once come last. */
    for (uint32_t n = 0; log_may_take(log, last_resort) && n < 2 * log->segment_count; n++) {
        uint32_t i = (uint32_t)((log->sequence + n) % log->segment_count);
        struct pst_segment *s = &log->segments[i];

        if (s->state != PST_SEGMENT_FREE || s->failed != (n >= log->segment_count) ||
            atomic_load(&s->readers) > 0)
            continue;
        pst_assert(log->free_count > 0);
        pst_segment_becomes(s, PST_SEGMENT_OPEN);
        s->failed = false;
        s->lane = lane->index;
        s->sequence = ++log->sequence;
        s->live_bytes = s->value_bytes = 0;
        s->moved = false;
        log->free_count--;
        *out = i;
        r = 0;
        break;
    }
    pthread_mutex_unlock(&log->lock);
    pst_assert(r < 0 || *out < log->segment_count);
    return r;
}

static void write_segment_head(struct pst_lane *lane, struct pst_group *g, uint32_t segment)
{
    pst_assert(g->entry_count == 0);
    pst_assert(pst_list_empty(&g->appends));
    pst_log_make_head(lane->log, segment, PST_SEGMENT_HEAD_USED, g->buffer);
    g->iov[0] = (struct iovec){g->buffer, PST_LOG_DATA_AT};
    g->segment = segment;
    group_issue(lane, g);
    group_submit(lane, g, g->iov, 1, 0, PST_LOG_DATA_AT);
}

/* A segment that an earlier process had begun, or that another lane lent. What is to be emptied soon is
 * written on only where no other segment is free: else nothing could be moved, nor deleted. */
static bool resume_segment(struct pst_lane *lane)
{
    struct pst_log *log = lane->log;
    bool found = false;

    pthread_mutex_lock(&log->lock);
    for (uint32_t i = 0; !found && log->resume_count > 0 && i < log->segment_count; i++) {
        struct pst_segment *s = &log->segments[i];

        if (s->resume_at == 0 || (s->repeated && log->free_count > 0))
            continue;
        log->resume_count--;
        pst_assert(!lane->index_now.entries);
        lane->at = s->resume_at;
        s->resume_at = 0;
        found = s->state == PST_SEGMENT_FULL && !s->failed && !s->closed;
        if (!found)
            continue;
        pst_segment_becomes(s, PST_SEGMENT_OPEN);
        lane->index_now = (struct pst_index){.entries = s->entries,
                                             .bytes = s->entries_bytes,
                                             .room = s->entries_room,
                                             .entry_count = s->entry_count,
                                             .segment = i};
        s->entries = NULL;
        lane->cramped = false;
    }
    pst_assert(found == (lane->index_now.entries != NULL));
    pthread_mutex_unlock(&log->lock);
    return found;
}

void pst_lane_rests(struct pst_lane *lane, uint32_t failed)
{
    pst_assert(failed > 0);
    if (failed > 1)
        lane->rests_until_ns = pst_now_ns() + ((uint64_t)REST_NS << pst_min(failed - 2, REST_SHIFT_MAX));
}

/* Return: 0, -EBUSY, -ENOSPC, -ENOMEM, -EIO while it rests. */
static int open_segment(struct pst_lane *lane, bool last_resort)
{
    struct pst_group *g;
    uint8_t *entries;
    uint32_t segment;
    int r;

    pst_assert(!lane->index_now.entries);
    if (pst_now_ns() < lane->rests_until_ns)
        return -EIO;
    g = pst_group_take(lane);
    if (!g)
        return -EBUSY;
    entries = aligned_alloc(PST_LOG_ALIGN_BYTES, INDEX_BYTES_MIN);
    r = entries ? take_segment(lane, last_resort, &segment) : -ENOMEM;
    if (r < 0) {
        free(entries);
        group_becomes(g, PST_GROUP_FREE);
        return r;
    }
    lane->index_now = (struct pst_index){.entries = entries, .room = INDEX_BYTES_MIN, .segment = segment};
    lane->at = PST_LOG_DATA_AT;
    lane->cramped = false;
    lane->reclaim.took = lane->reclaim.took || (last_resort && lane->reclaim.stage != PST_RECLAIM_NONE);
    pst_lane_note_provided(lane);
    write_segment_head(lane, g, segment);
    pst_assert(lane->index_now.bytes == 0);
    pst_assert(lane->at == PST_LOG_DATA_AT);
    return 0;
}

/* ---- full and failed segments ---- */

static void mark_full(struct pst_lane *lane, uint32_t segment)
{
    pthread_mutex_lock(&lane->log->lock);
    pst_segment_becomes(pst_lane_segment(lane, segment), PST_SEGMENT_FULL);
    pthread_mutex_unlock(&lane->log->lock);
}

static void tombstones_again(struct pst_lane *lane, const void *entries, uint64_t bytes)
{
    struct pst_bytes left = {entries, bytes};
    struct pst_log_any any;
    int kind;

    while ((kind = pst_log_entry_next(&left, lane->log->segment_bytes, &any)) > 0) {
        if (kind == PST_LOG_TOMBSTONE)
            lane->stat.failed += pst_lane_add_tombstone(lane, &any.tombstone) < 0;
    }
    pst_assert(kind == 0);
}

/* What is known of a segment whose index will not be written. */
static void keep_index(struct pst_lane *lane, struct pst_index *ix)
{
    tombstones_again(lane, ix->entries, ix->bytes);
    pst_segment_keep_index(pst_lane_segment(lane, ix->segment), ix);
}

void pst_lane_fail_segment(struct pst_lane *lane, uint32_t segment)
{
    pst_lane_segment(lane, segment)->failed = true;
    if (lane->index_now.entries && lane->index_now.segment == segment) {
        keep_index(lane, &lane->index_now);
        lane->cramped = true;
        pst_lane_note_provided(lane);
    }
    for (uint32_t i = 0; i < lane->seal_count; i++) {
        if (lane->seals[i].segment != segment)
            continue;
        keep_index(lane, &lane->seals[i]);
        lane->seal_count--;
        memmove(&lane->seals[i], &lane->seals[i + 1], (lane->seal_count - i) * sizeof(lane->seals[0]));
        break;
    }
    pst_assert(lane->seal_count <= PST_LANE_SEALS);
    mark_full(lane, segment);
}

/* Its index is written once all that it tells of is synced: what an index says may be believed. Return: 0,
 * -EBUSY. */
int pst_lane_seal(struct pst_lane *lane)
{
    pst_assert(lane->index_now.entries);
    pst_assert(lane->seal_count <= PST_LANE_SEALS);
    if (lane->seal_count == PST_LANE_SEALS)
        return -EBUSY;
    pst_segment_becomes(pst_lane_segment(lane, lane->index_now.segment), PST_SEGMENT_SEALED);
    lane->index_now.last_ticket = lane->issued;
    lane->seals[lane->seal_count++] = lane->index_now;
    lane->index_now = (struct pst_index){0};
    lane->cramped = true;
    pst_assert(lane->seal_count <= PST_LANE_SEALS);
    pst_assert(!lane->index_now.entries);
    return 0;
}

static bool index_fits(const struct pst_lane *lane, const struct pst_group *g, uint64_t group_bytes)
{
    uint64_t index_bytes = lane->index_now.bytes + g->entries_bytes;

    pst_assert(lane->index_now.bytes <= lane->index_now.room);
    return lane->at + group_bytes + pst_log_whole(index_bytes) + PST_LOG_ALIGN_BYTES <=
           lane->log->segment_bytes;
}

bool pst_lane_fits(const struct pst_lane *lane, const struct pst_group *g, uint64_t more)
{
    uint64_t bytes =
        pst_log_whole(pst_group_head_bytes(g)) + pst_log_whole(g->packed_bytes) + g->direct_bytes;

    pst_assert(g->state == PST_GROUP_OPEN);
    pst_assert(!g->image);
    return !lane->index_now.entries || index_fits(lane, g, bytes + more);
}

static int index_room(struct pst_index *ix, uint64_t more)
{
    uint64_t room = ix->room;
    uint8_t *entries;

    pst_assert(ix->entries);
    pst_assert(ix->bytes <= ix->room);
    while (room < ix->bytes + more + 2 * PST_LOG_ALIGN_BYTES)
        room *= 2;
    if (room == ix->room)
        return 0;
    entries = aligned_alloc(PST_LOG_ALIGN_BYTES, room);
    if (!entries)
        return -ENOMEM;
    memcpy(entries, ix->entries, ix->bytes);
    free(ix->entries);
    ix->entries = entries;
    ix->room = room;
    pst_assert(ix->bytes + more <= ix->room);
    return 0;
}

/* Return: 0 and the lane's segment has room for the group; -EBUSY, -ENOSPC, -ENOMEM. */
static int lane_find_room(struct pst_lane *lane, const struct pst_group *g, uint64_t group_bytes,
                          bool last_resort)
{
    int r = pst_log_begun(lane->log) ? 0 : -EBUSY;

    if (r == 0 && lane->index_now.entries && !index_fits(lane, g, group_bytes))
        r = pst_lane_seal(lane);
    if (r == 0 && !lane->index_now.entries && !pst_lane_sync_takes(lane))
        r = -EBUSY;
    /* What is resumed may be all but full: then the next one. */
    while (r == 0 && !lane->index_now.entries && resume_segment(lane) && !index_fits(lane, g, group_bytes))
        r = pst_lane_seal(lane);
    if (r == 0 && !lane->index_now.entries)
        r = open_segment(lane, last_resort);
    if (r == -ENOSPC && last_resort && pst_lane_awaits_segment(lane))
        r = -EBUSY;
    if (r == 0)
        r = index_room(&lane->index_now, g->entries_bytes);
    pst_assert(r != 0 || index_fits(lane, g, group_bytes));
    return r;
}

/* ---- closing a group ---- */

static void place_values(struct pst_group *g, uint32_t offset, uint64_t packed_at, uint64_t direct_at)
{
    pst_list_each (link, &g->appends) {
        struct pst_log_append *a = pst_list_entry(link, struct pst_log_append, op.link);
        uint64_t at = g->large ? 0 : (a->packed ? packed_at : direct_at) + a->data_at;
        uint32_t place = offset + (uint32_t)at;

        pst_assert(place >= PST_LOG_DATA_AT);
        pst_assert(a->entry_at < PST_LOG_HEAD_BYTES_MAX);
        a->place = (struct pst_log_place){g->segment, place};
        memcpy(g->buffer + a->entry_at + offsetof(struct pst_log_entry, offset), &place, sizeof(place));
    }
}

/* A large value's checksums lie behind its entry; they count for the head, not for the index. */
static void seal_head(struct pst_lane *lane, struct pst_group *g, uint64_t used_bytes, uint64_t bytes,
                      uint32_t offset)
{
    struct pst_group_head head = {.sequence = pst_lane_segment(lane, g->segment)->sequence,
                                  .segment = g->segment,
                                  .offset = offset,
                                  .bytes = (uint32_t)bytes,
                                  .used_bytes = (uint32_t)used_bytes,
                                  .entries_bytes = g->entries_bytes,
                                  .entry_count = g->entry_count};

    pst_assert(pst_log_is_whole(bytes));
    pst_assert(pst_log_is_whole(offset));
    pst_assert(used_bytes <= bytes);
    pst_assert(used_bytes <= PST_LOG_HEAD_BYTES_MAX);
    pst_assert(g->entries_bytes + sizeof(head) <= used_bytes);
    memcpy(g->buffer, &head, sizeof(head));
    memset(g->buffer + used_bytes, 0, pst_log_whole(used_bytes) - used_bytes);
    pst_group_seal((struct pst_group_head *)(void *)g->buffer, lane->log->seed);
}

static void add_to_index(struct pst_lane *lane, const struct pst_group *g)
{
    struct pst_index *ix = &lane->index_now;

    pst_assert(ix->entries);
    pst_assert(ix->bytes + g->entries_bytes <= ix->room);
    memcpy(ix->entries + ix->bytes, g->buffer + sizeof(struct pst_group_head), g->entries_bytes);
    ix->bytes += g->entries_bytes;
    ix->entry_count += g->entry_count;
    pst_assert(ix->bytes <= ix->room);
}

static void submit_shared(struct pst_lane *lane, struct pst_group *g, uint64_t head_room,
                          uint64_t packed_room, uint64_t offset, uint64_t bytes)
{
    struct iovec *iov = g->iov;

    pst_assert(g->iov_count >= 2 && g->iov_count <= PST_GROUP_PIECES);
    iov[0] = (struct iovec){g->buffer, head_room};
    iov[1] = (struct iovec){g->buffer + PST_LOG_HEAD_BYTES_MAX, packed_room};
    if (packed_room == 0) {
        iov++;
        iov[0] = g->iov[0];
    }
    group_submit(lane, g, iov, (uint32_t)(g->iov + g->iov_count - iov), offset, bytes);
}

/* The pieces of a large value are its owner's, where there are too many for one write with the head. */
static void submit_large(struct pst_lane *lane, struct pst_group *g, const struct pst_log_append *a,
                         uint64_t head_room, uint64_t offset)
{
    uint64_t whole = a->value.value_bytes / PST_LOG_ALIGN_BYTES * PST_LOG_ALIGN_BYTES;

    pst_assert(g->large);
    pst_assert(whole > 0);
    pst_assert(pst_list_first(&g->appends, struct pst_log_append, op.link) == a);
    g->iov[0] = (struct iovec){g->buffer, head_room};
    group_submit(lane, g, g->iov, 1, offset, head_room);
    group_submit(lane, g, a->iov, a->iov_count, offset + head_room, whole);
    if (whole < a->value.value_bytes) {
        g->iov[1] = (struct iovec){g->buffer + PST_LOG_HEAD_BYTES_MAX, PST_LOG_ALIGN_BYTES};
        group_submit(lane, g, &g->iov[1], 1, offset + head_room + whole, PST_LOG_ALIGN_BYTES);
    }
}

/* Tombstones and moves make room elsewhere. */
static bool is_last_resort(const struct pst_group *g)
{
    return g->move_count > 0 || g->put_count == 0;
}

int pst_group_close(struct pst_lane *lane, struct pst_group *g, uint64_t crcs_bytes)
{
    uint64_t used = pst_group_head_bytes(g) + crcs_bytes, head_room = pst_log_whole(used);
    uint64_t packed_room = pst_log_whole(g->packed_bytes);
    uint64_t bytes = head_room + packed_room + g->direct_bytes;
    uint64_t offset;
    int r = lane_find_room(lane, g, bytes, is_last_resort(g));

    if (r < 0)
        return r;
    offset = lane->at;
    lane->at += bytes;
    pst_assert(lane->at >= PST_LOG_DATA_AT && lane->at < lane->log->segment_bytes);
    pst_lane_note_provided(lane);
    g->segment = lane->index_now.segment;
    place_values(g, (uint32_t)offset, head_room, head_room + packed_room);
    seal_head(lane, g, used, bytes, (uint32_t)offset);
    add_to_index(lane, g);
    memset(g->buffer + PST_LOG_HEAD_BYTES_MAX + g->packed_bytes, 0, packed_room - g->packed_bytes);
    group_issue(lane, g);
    if (g->direct_bytes > 0 && g->iov_count == 2)
        submit_large(lane, g, pst_list_first(&g->appends, struct pst_log_append, op.link), head_room, offset);
    else
        submit_shared(lane, g, head_room, packed_room, offset, bytes);
    return 0;
}

static void end_appends(struct pst_lane *lane, struct pst_group *g, int result)
{
    pst_list_each_safe (link, &g->appends) {
        pst_list_remove(link);
        pst_lane_done(lane, pst_list_entry(link, struct pst_log_op, link), result);
    }
    pst_assert(pst_list_empty(&g->appends));
}

void pst_group_fail(struct pst_lane *lane, struct pst_group *g, int result)
{
    pst_assert(g->io_left == 0);
    pst_assert(!g->image);
    pst_assert(result < 0);
    pst_assert(g != lane->open);
    group_becomes(g, PST_GROUP_FREE);
    end_appends(lane, g, result);
    tombstones_again(lane, g->buffer + sizeof(struct pst_group_head), g->entries_bytes);
}

int pst_lane_close_open(struct pst_lane *lane)
{
    struct pst_group *g = lane->open;
    int r = g ? pst_group_close(lane, g, 0) : 0;

    pst_assert(!g || !g->large);
    if (r == -EBUSY)
        return r;
    lane->open = NULL;
    if (r < 0)
        pst_group_fail(lane, g, r);
    return r;
}

bool pst_lane_takes(const struct pst_lane *lane)
{
    return log_may_take(lane->log, false) ||
           (!atomic_load_explicit(&lane->cramped, memory_order_relaxed) && lane_may_fill(lane));
}

bool pst_lane_has_room(struct pst_lane *lane, uint64_t bytes)
{
    static const struct pst_group none;
    const struct pst_group *g = lane->open;

    bytes += 4 * PST_LOG_ALIGN_BYTES;
    if (g)
        bytes += pst_group_head_bytes(g) + g->packed_bytes + g->direct_bytes;
    if (lane->summing.group)
        bytes += pst_log_disk_bytes(&lane->summing.append->value) + PST_LOG_ALIGN_BYTES;
    if (log_may_take(lane->log, false))
        return true;
    if (!lane->index_now.entries || !index_fits(lane, &none, bytes)) {
        lane->cramped = true;
        return false;
    }
    return lane_may_fill(lane);
}

void pst_log_sync(struct pst_lane *lane, struct pst_log_sync *flush)
{
    flush->op.verb = PST_LOG_SYNC;
    pst_list_push_back(&lane->flushes, &flush->op.link);
}

/* ---- what has been written ---- */

void pst_group_io_ended(struct pst_lane *lane, struct pst_group *g, int result)
{
    pst_assert(result <= 0);
    pst_assert(g->state == PST_GROUP_WRITING);
    pst_assert(g->io_left > 0 && g->io_left <= pst_count_of(g->io));
    (void)lane;
    if (result < 0) /* its file was all there: to the owner -ENOSPC would say that the log is full */
        g->result = result == -ENOSPC ? -EIO : result;
    if (--g->io_left == 0)
        group_becomes(g, PST_GROUP_WRITTEN);
}

static void mark_dirty(struct pst_lane *lane, uint32_t segment)
{
    pst_assert(segment < lane->log->segment_count);
    for (uint32_t i = 0; i < lane->dirty_count; i++) {
        if (lane->dirty[i] == segment)
            return;
    }
    pst_assert(lane->dirty_count < pst_count_of(lane->dirty));
    lane->dirty[lane->dirty_count++] = segment;
}

static void written_well(struct pst_lane *lane, struct pst_group *g)
{
    struct pst_segment *s = pst_lane_segment(lane, g->segment);

    pst_assert(!s->failed);
    pst_assert(g->ticket == lane->written);
    lane->writes_failed = 0;
    mark_dirty(lane, g->segment);
    pst_list_each_safe (link, &g->appends) {
        struct pst_log_append *a = pst_list_entry(link, struct pst_log_append, op.link);

        pst_segment_gets(s, pst_log_disk_bytes(&a->value));
        s->moved = s->moved || a->op.verb == PST_LOG_MOVE_APPEND;
        if (a->op.verb == PST_LOG_APPEND)
            lane->stat.appended_bytes += a->value.value_bytes;
        pst_list_remove(link);
        a->op.ticket = g->ticket;
        if (a->durable)
            pst_list_push_back(&lane->waiting, link);
        else
            pst_lane_done(lane, &a->op, 0);
    }
    if (g->image)
        mark_full(lane, g->segment);
}

void pst_lane_delete_failed(struct pst_lane *lane, const struct pst_log_append *a, uint32_t segment)
{
    struct pst_log_tombstone tombstone = {.generation = a->value.generation,
                                          .key_hash = a->key_hash,
                                          .key_check = a->key_check,
                                          .era = a->value.era,
                                          .flags = PST_TOMBSTONE_EXACT | PST_TOMBSTONE_FAILED,
                                          .kind = PST_LOG_TOMBSTONE};

    pst_assert(a->op.verb == PST_LOG_APPEND);
    lane->stat.failed += pst_lane_add_tombstone_at(lane, tombstone, segment, 0) < 0;
}

void pst_lane_flushes_again(struct pst_lane *lane, uint64_t ticket)
{
    pst_assert(ticket > lane->synced);
    pst_list_each_safe (link, &lane->waiting) {
        struct pst_log_op *op = pst_list_entry(link, struct pst_log_op, link);

        if (op->verb == PST_LOG_APPEND || op->ticket < ticket)
            continue;
        pst_list_remove(link);
        pst_list_push_back(&lane->flushes, link);
    }
}

static void written_badly(struct pst_lane *lane, struct pst_group *g, int result)
{
    struct pst_segment *s = pst_lane_segment(lane, g->segment);
    bool first = !s->failed;

    pst_assert(result < 0);
    if (first)
        pst_lane_rests(lane, ++lane->writes_failed);
    lane->stat.upkeep_failed += pst_list_empty(&g->appends);
    pst_list_each (link, &g->appends) {
        struct pst_log_append *a = pst_list_entry(link, struct pst_log_append, op.link);

        if (a->op.verb == PST_LOG_APPEND) /* what was to be moved is still where it was */
            pst_lane_delete_failed(lane, a, g->segment);
    }
    end_appends(lane, g, result);
    if (first && !g->image && g->entry_count == 0)
        s->hollow = true; /* without its head */
    if (g->image) {       /* before another lane may choose the segment */
        struct pst_index ix = {.entries = g->image, .bytes = g->entries_bytes, .segment = g->segment};

        g->image = NULL;
        keep_index(lane, &ix);
    }
    pst_lane_fail_segment(lane, g->segment); /* deletes again what its index has */
    pst_lane_flushes_again(lane, g->ticket);
}

static struct pst_group *next_written(struct pst_lane *lane)
{
    for (uint32_t i = 0; i < PST_LANE_GROUPS; i++) {
        if (lane->groups[i].state == PST_GROUP_WRITTEN && lane->groups[i].ticket == lane->written + 1)
            return &lane->groups[i];
    }
    return NULL;
}

static void retire_groups(struct pst_lane *lane)
{
    struct pst_group *g;

    while ((g = next_written(lane))) {
        int result = g->result == 0 && pst_lane_segment(lane, g->segment)->failed ? -EIO : g->result;

        lane->written++;
        pst_assert(result <= 0);
        pst_assert(lane->written <= lane->issued);
        if (result == 0)
            written_well(lane, g);
        else
            written_badly(lane, g, result);
        free(g->image);
        g->image = NULL;
        pst_assert(pst_list_empty(&g->appends));
        group_becomes(g, PST_GROUP_FREE);
    }
}

/* ---- a step ---- */

/* Return: 0 or -EBUSY. */
static int write_index(struct pst_lane *lane, struct pst_index *ix)
{
    struct pst_group *g = pst_group_take(lane);
    uint64_t room = pst_log_whole(ix->bytes), bytes = room + PST_LOG_ALIGN_BYTES;
    struct pst_segment_tail tail = {.sequence = pst_lane_segment(lane, ix->segment)->sequence,
                                    .segment = ix->segment,
                                    .index_bytes = (uint32_t)ix->bytes,
                                    .entry_count = ix->entry_count};

    pst_assert(ix->entries);
    pst_assert(ix->bytes <= ix->room);
    if (!g)
        return -EBUSY;
    tail.index_offset = (uint32_t)(lane->log->segment_bytes - bytes);
    tail.index_check = pst_log_index_check(ix->entries, ix->bytes, lane->log->seed);
    pst_assert(tail.sequence > 0);
    pst_assert(pst_log_is_whole(tail.index_offset));
    pst_segment_tail_seal(&tail, lane->log->seed);
    pst_assert(bytes <= ix->room);
    pst_assert(ix->last_ticket <= lane->synced);
    memset(ix->entries + ix->bytes, 0, bytes - ix->bytes);
    memcpy(ix->entries + room, &tail, sizeof(tail));
    g->image = ix->entries;
    g->entries_bytes = (uint32_t)ix->bytes;
    g->segment = ix->segment;
    g->iov[0] = (struct iovec){ix->entries, bytes};
    group_issue(lane, g);
    group_submit(lane, g, g->iov, 1, tail.index_offset, bytes);
    return 0;
}

static void write_indexes(struct pst_lane *lane)
{
    while (lane->seal_count > 0 && lane->seals[0].last_ticket <= lane->synced &&
           write_index(lane, &lane->seals[0]) == 0) {
        lane->seal_count--;
        memmove(lane->seals, lane->seals + 1, lane->seal_count * sizeof(lane->seals[0]));
    }
    pst_assert(lane->seal_count <= PST_LANE_SEALS);
}

/* What a flush waits for can go nowhere. */
static void fail_flushes(struct pst_lane *lane, int result)
{
    pst_assert(result < 0);
    while (!pst_list_empty(&lane->flushes)) {
        struct pst_log_op *op = pst_list_first(&lane->flushes, struct pst_log_op, link);

        pst_list_remove(&op->link);
        pst_lane_done(lane, op, result);
    }
}

/* For the open group: in the owner's next turn, or from a segment that is taken back. */
static bool more_comes(const struct pst_lane *lane)
{
    bool moves = lane->moves_reading > 0 || !pst_list_empty(&lane->moves);

    pst_assert(lane->open && !lane->open->large);
    return lane->grows || (moves && lane->open->put_count == 0);
}

static void write_open(struct pst_lane *lane, const struct pst_turn *turn)
{
    bool now = !pst_list_empty(&lane->flushes);
    bool alone = now || lane->tombstone_count >= TOMBSTONES_ALONE;
    int r = 0;

    if (!now && lane->open && more_comes(lane))
        return; /* in large groups: else heads would take room */
    do {
        if (!lane->open && lane->tombstone_count > 0 && alone)
            lane->open = pst_group_take(lane);
        if (!lane->open)
            return;
        pst_lane_add_tombstones(lane, lane->open);
        if (!now && groups_busy(lane) >= GROUPS_BUSY)
            return;
        r = pst_lane_close_open(lane);
    } while (r == 0 && alone && lane->tombstone_count > 0 && !pst_turn_is_over(turn));
    if (r < 0 && r != -EBUSY)
        fail_flushes(lane, r);
    pst_assert(r <= 0);
}

/* A flush waits for what is numbered now, once nothing is without a number. Return: whether there are
 * tombstones to write first that a doubt has held back. */
static bool number_flushes(struct pst_lane *lane)
{
    if (lane->open || lane->summing.group || lane->tombstone_count > 0 || pst_lane_laters_wait(lane))
        return false;
    while (!pst_list_empty(&lane->flushes)) {
        struct pst_log_op *op = pst_list_first(&lane->flushes, struct pst_log_op, link);
        bool over = lane->issued <= lane->synced, doubt = over && pst_lane_in_doubt(lane);

        pst_assert(op->verb == PST_LOG_SYNC || op->verb > PST_LOG_MOVE);
        if (over && !doubt && pst_lane_doubt_held(lane, lane->synced)) {
            pst_lane_laters_synced(lane);
            return !pst_lane_doubt_held(lane, lane->synced);
        }
        pst_list_remove(&op->link);
        op->ticket = lane->issued;
        if (over)
            pst_lane_done(lane, op, doubt ? -EIO : 0);
        else
            pst_list_push_back(&lane->waiting, &op->link);
    }
    return false;
}

void pst_lane_write_step(struct pst_lane *lane, const struct pst_turn *turn)
{
    do {
        retire_groups(lane);
        write_indexes(lane);
        write_open(lane, turn);
    } while (number_flushes(lane) || pst_lane_sync_step(lane));
    pst_lane_lend(lane);
    pst_assert(lane->synced <= lane->written && lane->written <= lane->issued);
}

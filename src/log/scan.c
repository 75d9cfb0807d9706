/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scan.c: finding again what earlier processes left. A segment that was closed has an index, which is
 * believed when its hash is right. One that was not is walked group by group, its values are checked, and it
 * is closed with an index of what was good. Two rounds: the first learns what is dead, the second tells of
 * the rest.
 */
#include "log/lane_priv.h"
#include "base/fault.h"
#include "base/hash.h"
#include "log/scan.h"

enum {
    WINDOW_BYTES = 4 << 20,
    IMAGE_BYTES_MIN = 64 << 10,
    GRAVES_MIN = 1 << 12,
};

/* A generation of a key that is dead, up to an era; or, as generation 0, for an era up to which generation
 * all are. */
struct grave {
    uint64_t key_hash, generation;
    uint64_t target_sequence, upto;
    uint32_t key_check, era;
    bool used;
};

/* Entries of a segment: its index, as read or as gathered. */
struct image {
    uint8_t *entries;
    uint64_t bytes, room;
    uint32_t entry_count;
};

struct pst_log_scan {
    struct pst_log *log;
    uint32_t segment; /* the next one */
    struct image now;
    struct pst_bytes left; /* of `now` */
    struct grave *graves;
    uint64_t grave_count, grave_room;
    uint8_t *window;
    uint64_t window_at, window_bytes;
    uint32_t window_segment;
    uint8_t *head; /* of the group that is walked */
    uint32_t walked_to;
    struct pst_log_scanned told;
};

/* ---- reading ---- */

/* *@out: [@at, @at + @bytes) of a segment; valid until the next call. Return: 0 or -errno. */
static int scan_view(struct pst_log_scan *scan, uint32_t segment, uint64_t at, uint64_t bytes,
                     const void **out)
{
    uint64_t begin = at / PST_LOG_ALIGN_BYTES * PST_LOG_ALIGN_BYTES;

    pst_assert(bytes <= WINDOW_BYTES - PST_LOG_ALIGN_BYTES);
    pst_assert(at + bytes <= scan->log->segment_bytes);
    if (scan->window_segment != segment || at < scan->window_at ||
        at + bytes > scan->window_at + scan->window_bytes) {
        uint64_t want = pst_min(WINDOW_BYTES, scan->log->segment_bytes - begin);
        int r = pst_log_segment_read(scan->log, segment, scan->window, want, begin);

        scan->window_bytes = 0;
        if (r < 0)
            return r;
        scan->told.bytes_read += want;
        scan->window_segment = segment;
        scan->window_at = begin;
        scan->window_bytes = want;
    }
    pst_assert(at + bytes <= scan->window_at + scan->window_bytes);
    pst_assert(scan->window_bytes <= WINDOW_BYTES);
    *out = scan->window + (at - scan->window_at);
    return 0;
}

static int image_room(struct image *im, uint64_t more)
{
    uint64_t room = pst_max(im->room, IMAGE_BYTES_MIN);
    uint8_t *entries;

    pst_assert(im->bytes <= im->room);
    while (room < im->bytes + more + 2 * PST_LOG_ALIGN_BYTES)
        room *= 2;
    if (room == im->room)
        return 0;
    entries = aligned_alloc(PST_LOG_ALIGN_BYTES, room);
    if (!entries)
        return -ENOMEM;
    if (im->bytes > 0)
        memcpy(entries, im->entries, im->bytes);
    free(im->entries);
    im->entries = entries;
    im->room = room;
    return 0;
}

static void image_fini(struct image *im)
{
    free(im->entries);
    *im = (struct image){0};
}

/* Return: 1 and the segment's index in @im, 0 it has none that can be believed, -errno. */
static int read_index(struct pst_log_scan *scan, uint32_t segment, struct image *im)
{
    const struct pst_log *log = scan->log;
    struct pst_segment_tail tail;
    const void *at;
    uint64_t room;
    int r = scan_view(scan, segment, log->segment_bytes - PST_LOG_ALIGN_BYTES, sizeof(tail), &at);

    if (r < 0)
        return r;
    memcpy(&tail, at, sizeof(tail));
    if (!pst_segment_tail_good(&tail, log->seed, segment, log->segment_bytes) ||
        tail.sequence != log->segments[segment].sequence)
        return 0;
    im->bytes = 0;
    if (image_room(im, tail.index_bytes) < 0)
        return -ENOMEM;
    room = pst_round_up(tail.index_bytes, PST_LOG_ALIGN_BYTES);
    r = pst_log_segment_read(log, segment, im->entries, room, tail.index_offset);
    if (r < 0)
        return r;
    scan->told.bytes_read += room;
    im->bytes = tail.index_bytes;
    im->entry_count = tail.entry_count;
    pst_assert(im->bytes <= im->room);
    return pst_log_index_check(im->entries, im->bytes, log->seed) == tail.index_check;
}

/* ---- walking what has no index ---- */

/* A large value's checksums, behind its entry. NULL: there are not as many as it needs. */
static const uint32_t *checksums_of(const struct pst_group_head *head, const struct pst_log_any *any)
{
    const uint32_t *crcs = (const void *)((const uint8_t *)(head + 1) + head->entries_bytes);
    uint64_t bytes = 4 * pst_div_up(any->value.value_bytes, PST_LOG_BLOCK_BYTES);

    pst_assert(!pst_log_one_block(any->value.value_bytes));
    if (head->used_bytes - sizeof(*head) - head->entries_bytes < bytes ||
        any->crc != pst_crc32c(0, crcs, bytes) || any->offset != head->offset)
        return NULL;
    return crcs;
}

/* Return: 1, 0 it is damaged, -errno. */
static int value_check(struct pst_log_scan *scan, uint32_t segment, const struct pst_log_any *any)
{
    const struct pst_log_value *v = &any->value;
    bool large = !pst_log_one_block(v->value_bytes);
    const uint32_t *crcs = large ? checksums_of((const void *)scan->head, any) : &any->crc;
    uint64_t begin = any->offset + (large ? pst_log_large_at(v) : 0);

    if (!crcs || begin + v->value_bytes > scan->log->segment_bytes)
        return 0;
    for (uint64_t at = 0; at == 0 || at < v->value_bytes; at += PST_LOG_BLOCK_BYTES) {
        uint64_t bytes = pst_min(v->value_bytes - at, PST_LOG_BLOCK_BYTES);
        const void *data;
        int r = scan_view(scan, segment, begin + at, bytes, &data);

        if (r < 0)
            return r;
        if (pst_crc32c(0, data, bytes) != crcs[at / PST_LOG_BLOCK_BYTES])
            return 0;
    }
    return 1;
}

/* Adds what is good in the group whose head is in scan->head. Return: 0 or -errno. */
static int add_group(struct pst_log_scan *scan, uint32_t segment, struct image *im)
{
    const struct pst_group_head *head = (const void *)scan->head;
    struct pst_bytes left = {head + 1, head->entries_bytes};
    struct pst_log_any any;
    int kind, r = image_room(im, head->entries_bytes);

    while (r == 0) {
        const uint8_t *entry = left.data;
        uint64_t bytes;
        int good = 1;

        kind = pst_log_entry_next(&left, scan->log->segment_bytes, &any);
        if (kind <= 0)
            break;
        if (kind == PST_LOG_VALUE)
            good = value_check(scan, segment, &any);
        if (good < 0)
            return good;
        if (good == 0) {
            scan->told.damaged_values++;
            continue;
        }
        bytes = (uint64_t)((const uint8_t *)left.data - entry);
        pst_assert(im->bytes + bytes <= im->room);
        memcpy(im->entries + im->bytes, entry, bytes);
        im->bytes += bytes;
        im->entry_count++;
    }
    return r;
}

/* Return: 1 a group of this use of the segment begins at @at, and its head is in scan->head; 0 none; -errno.
 */
static int group_at(struct pst_log_scan *scan, uint32_t segment, uint64_t at)
{
    const struct pst_log *log = scan->log;
    uint64_t sequence = log->segments[segment].sequence;
    uint64_t room = pst_min(PST_LOG_HEAD_BYTES_MAX, log->segment_bytes - at);
    const struct pst_group_head *head;
    const void *data;
    int r = scan_view(scan, segment, at, room, &data);

    pst_assert(at % PST_LOG_ALIGN_BYTES == 0);
    pst_assert(at < log->segment_bytes);
    if (r < 0)
        return r;
    head = data;
    if (head->magic != PST_GROUP_MAGIC)
        return 0;
    if (pst_group_good(head, room, log->seed, log->segment_bytes) && head->segment == segment &&
        head->sequence == sequence && head->offset == at) {
        memcpy(scan->head, head, head->used_bytes);
        return 1;
    }
    scan->told.damaged_groups += head->sequence == sequence;
    return 0;
}

/* Not only up to the first that is damaged: what comes behind may be durable. */
static int scan_walk(struct pst_log_scan *scan, uint32_t segment, struct image *im)
{
    uint64_t at = PST_LOG_DATA_AT, end = scan->log->segment_bytes - PST_LOG_ALIGN_BYTES;
    int r = image_room(im, 0);

    im->bytes = 0;
    im->entry_count = 0;
    scan->walked_to = PST_LOG_DATA_AT;
    while (r == 0 && at < end) {
        uint64_t bytes = PST_LOG_ALIGN_BYTES;

        r = group_at(scan, segment, at);
        if (r > 0) {
            bytes = ((const struct pst_group_head *)(const void *)scan->head)->bytes;
            r = add_group(scan, segment, im);
            scan->walked_to = (uint32_t)(at + bytes);
        }
        at += bytes;
    }
    pst_assert(r < 0 || (scan->walked_to <= end && scan->walked_to % PST_LOG_ALIGN_BYTES == 0));
    return r;
}

/* ---- what is dead ---- */

static bool of_key(const struct grave *g, const struct pst_log_tombstone *t)
{
    return g->key_hash == t->key_hash && g->key_check == t->key_check;
}

static struct grave *grave_of(const struct pst_log_scan *scan, const struct pst_log_tombstone *t,
                              uint64_t generation)
{
    uint64_t i = t->key_hash ^ generation * 0x9e3779b97f4a7c15ull;

    pst_assert(scan->grave_count < scan->grave_room);
    for (;; i++) {
        struct grave *g = &scan->graves[i & (scan->grave_room - 1)];

        if (!g->used || (of_key(g, t) && g->generation == generation && (generation || g->era == t->era)))
            return g;
    }
}

/* Whether all of the key are dead, up to this generation and this era at least. */
static bool all_deleted(const struct pst_log_scan *scan, const struct pst_log_tombstone *t)
{
    pst_assert(scan->grave_count < scan->grave_room);
    for (uint64_t i = t->key_hash;; i++) {
        const struct grave *g = &scan->graves[i & (scan->grave_room - 1)];

        if (!g->used)
            return false;
        if (of_key(g, t) && g->generation == 0 && g->era >= t->era && g->upto >= t->generation)
            return true;
    }
}

static int graves_grow(struct pst_log_scan *scan)
{
    struct pst_log_scan more = {.grave_room = pst_max(2 * scan->grave_room, GRAVES_MIN)};

    pst_assert(scan->grave_count <= scan->grave_room);
    more.graves = calloc(more.grave_room, sizeof(*more.graves));
    if (!more.graves)
        return -ENOMEM;
    for (uint64_t i = 0; i < scan->grave_room; i++) {
        const struct grave *g = &scan->graves[i];
        struct pst_log_tombstone t = {.key_hash = g->key_hash, .key_check = g->key_check, .era = g->era};

        if (g->used)
            *grave_of(&more, &t, g->generation) = *g;
    }
    pst_assert((more.grave_room & (more.grave_room - 1)) == 0);
    free(scan->graves);
    scan->graves = more.graves;
    scan->grave_room = more.grave_room;
    return 0;
}

static void graves_add_one(struct pst_log_scan *scan, const struct pst_log_tombstone *t, uint64_t generation)
{
    struct grave *g = grave_of(scan, t, generation);

    pst_assert(!g->used || of_key(g, t));
    scan->grave_count += !g->used;
    *g = (struct grave){.key_hash = t->key_hash,
                        .generation = generation,
                        .target_sequence = t->target_sequence,
                        .upto = pst_max(g->upto, t->generation),
                        .key_check = t->key_check,
                        .era = (uint32_t)pst_max(g->era, t->era),
                        .used = true};
}

/* Stands for a generation in one segment: a value that could not be written there may lie elsewhere since. */
static uint64_t copy_of(uint64_t generation, uint64_t sequence)
{
    return ~generation ^ sequence * 0x9e3779b97f4a7c15ull;
}

/* What failed there may live elsewhere, and is not to be moved to where this would kill it. */
static void close_failed(const struct pst_log_scan *scan, const struct pst_log_tombstone *t)
{
    struct pst_segment *s =
        t->target_segment < scan->log->segment_count ? &scan->log->segments[t->target_segment] : NULL;

    if (s && t->flags & PST_TOMBSTONE_FAILED && s->sequence == t->target_sequence)
        s->repeated = s->closed = true;
}

static int graves_add(struct pst_log_scan *scan, const struct pst_log_tombstone *t)
{
    pst_assert(t->generation > 0);
    if (4 * (scan->grave_count + 2) >= 3 * scan->grave_room && graves_grow(scan) < 0)
        return -ENOMEM;
    if (t->flags & PST_TOMBSTONE_EXACT) {
        graves_add_one(scan, t, copy_of(t->generation, t->target_sequence));
        close_failed(scan, t);
    } else {
        graves_add_one(scan, t, t->generation);
        graves_add_one(scan, t, 0);
    }
    return 0;
}

/* What is appended from now on lies behind all eras of tombstones: one may have begun without a trace. */
static void see_era(struct pst_log *log, const struct pst_log_any *any, int kind)
{
    uint32_t era = kind == PST_LOG_TOMBSTONE ? any->tombstone.era + 1 : any->value.era;

    log->era = (uint32_t)pst_max(log->era, era);
}

static int learn_dead(struct pst_log_scan *scan, const struct image *im)
{
    struct pst_bytes left = {im->entries, im->bytes};
    struct pst_log_any any;
    int kind, r = 0;

    while (r == 0 && (kind = pst_log_entry_next(&left, scan->log->segment_bytes, &any)) > 0) {
        see_era(scan->log, &any, kind);
        if (kind == PST_LOG_TOMBSTONE && any.tombstone.generation > 0)
            r = graves_add(scan, &any.tombstone);
    }
    return r;
}

/* ---- the two rounds ---- */

static bool to_scan(const struct pst_log_scan *scan, uint32_t segment)
{
    pst_assert(segment < scan->log->segment_count);
    return scan->log->segments[segment].state == PST_SEGMENT_FULL &&
           scan->log->segments[segment].sequence > 0 && !scan->log->segments[segment].hollow;
}

/* What a killed process wrote may be in the disk's cache still. If it stays there, what it tells of the dead
 * is told again. Return: 0, -ENOMEM. */
static int keep_index(struct pst_log_scan *scan, uint32_t segment)
{
    struct pst_segment *s = &scan->log->segments[segment];
    int r = 0;

    pst_assert(scan->now.entries);
    pst_assert(s->state == PST_SEGMENT_FULL);
    s->failed = s->unsynced = scan->log->folders[segment % scan->log->folder_count].unsynced ||
                              pst_fault(PST_FAULT_disk_sync_eio) || fdatasync(scan->log->fds[segment]) < 0;
    for (uint32_t i = 0; r == 0 && s->unsynced && i < scan->log->lane_count; i++) {
        scan->log->lanes[i]->doubt_until = UINT64_MAX; /* whose keys they are the log does not know */
        r = pst_lane_tombstones_later(scan->log->lanes[i], scan->now.entries, scan->now.bytes);
    }
    s->resume_at = s->failed ? 0 : scan->walked_to;
    scan->log->resume_count += s->resume_at > 0;
    free(s->entries);
    s->entries = scan->now.entries;
    s->entries_bytes = scan->now.bytes;
    s->entries_room = scan->now.room;
    s->entry_count = scan->now.entry_count;
    scan->now = (struct image){0};
    return r;
}

static int first_round(struct pst_log_scan *scan)
{
    pst_assert(scan->segment == 0);
    pst_assert(scan->told.values == 0);
    for (uint32_t i = 0; i < scan->log->segment_count; i++) {
        const struct pst_segment *s = &scan->log->segments[i];
        int r;

        scan->told.damaged_segments += s->state == PST_SEGMENT_FULL && s->sequence == 0;
        if (!to_scan(scan, i))
            continue;
        r = read_index(scan, i, &scan->now);
        if (r == 0) {
            r = scan_walk(scan, i, &scan->now);
            if (r == 0)
                r = learn_dead(scan, &scan->now);
            if (r == 0)
                r = keep_index(scan, i);
        } else if (r > 0) {
            r = learn_dead(scan, &scan->now);
        }
        if (r < 0)
            return r;
    }
    return 0;
}

int pst_log_scan_open(struct pst_log *log, struct pst_log_scan **out)
{
    struct pst_log_scan *scan = calloc(1, sizeof(*scan));
    int r = -ENOMEM;

    if (!scan)
        return r;
    pst_assert(!log->scanning);
    scan->log = log;
    log->scanning = true;
    scan->window_segment = UINT32_MAX;
    scan->window = aligned_alloc(PST_LOG_ALIGN_BYTES, WINDOW_BYTES);
    scan->head = malloc(PST_LOG_HEAD_BYTES_MAX);
    if (scan->window && scan->head && graves_grow(scan) == 0)
        r = first_round(scan);
    if (r < 0) {
        pst_log_scan_close(scan, NULL);
        return r;
    }
    pst_assert(scan->segment == 0);
    pst_assert(scan->left.len == 0);
    *out = scan;
    return 0;
}

/* Return: 1 and scan->left, 0 there is no further segment, -errno. */
static int next_segment(struct pst_log_scan *scan)
{
    pst_assert(scan->segment <= scan->log->segment_count);
    while (scan->segment < scan->log->segment_count) {
        uint32_t i = scan->segment++;
        const struct pst_segment *s = &scan->log->segments[i];
        int r = 1;

        if (!to_scan(scan, i))
            continue;
        scan->left = (struct pst_bytes){s->entries, s->entries_bytes};
        if (s->entries)
            return 1;
        r = read_index(scan, i, &scan->now);
        if (r < 0)
            return r;
        if (r == 0) { /* it was there in the first round */
            scan->told.damaged_segments++;
            scan->left = (struct pst_bytes){NULL, 0};
            continue;
        }
        scan->left = (struct pst_bytes){scan->now.entries, scan->now.bytes};
        return 1;
    }
    return 0;
}

/* An earlier copy of this value's generation may have been deleted there. */
static bool is_in(const struct grave *grave, const struct pst_log_value *value)
{
    return grave->used && grave->era >= value->era;
}

/* A copy that no tombstone names as its target keeps those from being dropped that kill it. */
static bool is_deleted(struct pst_log_scan *scan, const struct pst_log_value *value)
{
    struct pst_segment *s = &scan->log->segments[scan->segment - 1];
    struct pst_log_tombstone t = pst_log_tombstone_of(scan->log, value->key, value->generation);
    const struct grave *this = grave_of(scan, &t, value->generation);
    bool deleted = is_in(this, value);

    pst_assert(scan->segment > 0 && scan->segment <= scan->log->segment_count);
    t.era = value->era;
    if (!deleted && !all_deleted(scan, &t)) {
        deleted = is_in(grave_of(scan, &t, copy_of(value->generation, s->sequence)), value);
        scan->told.deleted += deleted;
        return deleted;
    }
    if (!deleted || this->target_sequence != s->sequence)
        s->repeated = true;
    scan->told.deleted++;
    return true;
}

int pst_log_scan_next(struct pst_log_scan *scan, struct pst_log_found *found)
{
    struct pst_log *log = scan->log;
    struct pst_log_any any;

    for (;;) {
        int kind = pst_log_entry_next(&scan->left, log->segment_bytes, &any);

        if (kind <= 0) {
            int r = next_segment(scan);

            if (r <= 0)
                return r;
            continue;
        }
        if (kind != PST_LOG_VALUE)
            continue;
        log->generation_floor = pst_max(log->generation_floor, any.value.generation);
        if (is_deleted(scan, &any.value))
            continue;
        pst_assert(scan->segment > 0);
        scan->told.values++;
        *found = (struct pst_log_found){any.value, {scan->segment - 1, any.offset}, any.crc};
        return 1;
    }
}

struct pst_log_scan *pst_log_scan_close(struct pst_log_scan *scan, struct pst_log_scanned *scanned)
{
    if (!scan)
        return NULL;
    if (scanned)
        *scanned = scan->told;
    scan->log->scanning = false;
    image_fini(&scan->now);
    free(scan->graves);
    free(scan->window);
    free(scan->head);
    free(scan);
    return NULL;
}

void pst_log_adopt(struct pst_log *log, const struct pst_log_found *found)
{
    pst_assert(found->place.segment < log->segment_count);
    pst_segment_gets(&log->segments[found->place.segment], pst_log_disk_bytes(&found->value));
}

void pst_log_repeated(struct pst_log *log, const struct pst_log_found *found)
{
    pst_assert(found->place.segment < log->segment_count);
    log->segments[found->place.segment].repeated = true;
}

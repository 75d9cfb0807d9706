/* SPDX-License-Identifier: Apache-2.0 */
/* log.c: opening and closing a log and its lanes, what a lane's poll does, and figures. */
#include "log/lane_priv.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/limits.h"

#include <stdio.h>
#include <sys/mman.h>

enum {
    MIB = 1 << 20,
    SEGMENT_BYTES = 256 * MIB,
    DEPTH_MAX = 1024,
};

static const uint64_t GENERATIONS_AHEAD =
    1ull << 46; /* nanoseconds, of a shard that writes without a pause: 19 h */

struct pst_log_tombstone pst_log_tombstone_of(const struct pst_log *log, struct pst_bytes key,
                                              uint64_t generation)
{
    pst_assert(key.len > 0 && key.len <= PST_KEY_BYTES_MAX);
    return (struct pst_log_tombstone){.generation = generation,
                                      .key_hash = pst_hash64(key.data, key.len, log->seed),
                                      .key_check = (uint32_t)pst_hash64(key.data, key.len, ~log->seed),
                                      .kind = PST_LOG_TOMBSTONE};
}

/* ---- open and close ---- */

static int check_options(const struct pst_log_options *o, uint64_t segment_bytes)
{
    uint64_t count = o->bytes / segment_bytes;

    if (o->folder_count == 0 || o->folder_count > PST_LOG_FOLDERS_MAX)
        return pst_fail(-EINVAL, "1 to %d folders, not %u", PST_LOG_FOLDERS_MAX, o->folder_count);
    if (segment_bytes < MIB || segment_bytes > SEGMENT_BYTES || segment_bytes % MIB)
        return pst_fail(-EINVAL, "segments are of 1 to 256 whole MiB, not of %llu bytes",
                        (unsigned long long)segment_bytes);
    if (o->lane_count == 0 || o->lane_count > PST_LANES_MAX || o->depth == 0 || o->depth > DEPTH_MAX)
        return pst_fail(-EINVAL, "1 to %d lanes of depth 1 to %d, not %u of %u", PST_LANES_MAX, DEPTH_MAX,
                        o->lane_count, o->depth);
    if (count < 2 * (uint64_t)o->lane_count + 2 || count > PST_LOG_SEGMENTS_MAX)
        return pst_fail(-EINVAL,
                        "%llu MiB are %llu segments of %llu MiB: %u shards need %u at least, %d are possible",
                        (unsigned long long)o->bytes / MIB, (unsigned long long)count,
                        (unsigned long long)segment_bytes / MIB, o->lane_count, 2 * o->lane_count + 2,
                        PST_LOG_SEGMENTS_MAX);
    return 0;
}

static int log_mark_begun(struct pst_log *log)
{
    uint64_t highest, generation;
    int r;

    pthread_mutex_lock(&log->lock);
    pst_assert(!log->begun);
    highest = atomic_load(&log->generation_highest); /* some may have been given out already */
    generation = pst_max(log->generation_floor, highest ? highest + GENERATIONS_AHEAD : 0);
    r = pst_log_marker_write(log, generation);
    if (r == 0) {
        atomic_store(&log->generation_ceiling, highest ? generation : 0);
        atomic_store(&log->begun, true);
    }
    pst_assert(log->begun == (r == 0));
    pthread_mutex_unlock(&log->lock);
    return r;
}

int pst_log_begin(struct pst_log *log, const char **fault)
{
    *fault = pst_error_text();
    return log_mark_begun(log);
}

bool pst_log_begun(const struct pst_log *log)
{
    return atomic_load_explicit(&log->begun, memory_order_acquire);
}

static int log_open_all(struct pst_log *log, const struct pst_log_options *options)
{
    int r = pst_log_folders_open(log, options);

    pst_assert(log->lane_count > 0);
    pst_assert(log->segment_count >= 2 * log->lane_count + 2);
    if (r == 0)
        r = pst_log_segments_open(log);
    if (r < 0)
        return r;
    pst_assert(log->epoch > 0);
    pst_assert(log->folder_count > 0);
    log->sequence = log->epoch << 32;
    for (uint32_t i = 0; r == 0 && i < options->lane_count; i++)
        r = pst_lane_open(log, i, options);
    if (r == 0) {
        const char *note = pst_disk_note(log->lanes[0]->disk);

        snprintf(log->note, sizeof(log->note), "%s%s%s",
                 log->buffered ? "the file system has no direct I/O" : "", log->buffered && *note ? "; " : "",
                 note);
    }
    return r == 0 && !options->held ? log_mark_begun(log) : r;
}

int pst_log_open(const struct pst_log_options *options, struct pst_log **out, const char **fault)
{
    uint64_t segment_bytes = options->segment_bytes ? options->segment_bytes : SEGMENT_BYTES;
    struct pst_log *log;
    int r = check_options(options, segment_bytes);

    *fault = pst_error_text();
    if (r < 0)
        return r;
    log = calloc(1, sizeof(*log));
    if (!log)
        return pst_fail(-ENOMEM, "no memory for a log");
    pthread_mutex_init(&log->lock, NULL);
    log->segment_bytes = segment_bytes;
    log->segment_count = (uint32_t)(options->bytes / segment_bytes);
    log->lane_count = options->lane_count;
    log->common = PST_SEGMENT_NONE;
    log->segments = calloc(log->segment_count, sizeof(*log->segments));
    log->fds = malloc(log->segment_count * sizeof(*log->fds));
    log->lanes = calloc(log->lane_count, sizeof(struct pst_lane *));
    for (uint32_t i = 0; log->fds && i < log->segment_count; i++)
        log->fds[i] = -1;
    r = log->segments && log->fds && log->lanes ? log_open_all(log, options)
                                                : pst_fail(-ENOMEM, "no memory for segments");
    if (r < 0) {
        pst_log_close(log);
        return r;
    }
    pst_assert(log->lanes[log->lane_count - 1]);
    pst_assert(log->begun == !options->held);
    *out = log;
    return 0;
}

struct pst_log *pst_log_close(struct pst_log *log)
{
    bool whole;

    if (!log)
        return NULL;
    pst_assert(log->free_count <= log->segment_count);
    pst_assert(log->resume_count <= log->segment_count);
    whole = log->begun && log->lanes[log->lane_count - 1];
    pst_assert(!whole || log->epoch > 0);
    for (uint32_t i = 0; log->lanes && i < log->lane_count; i++)
        log->lanes[i] = pst_lane_close(log->lanes[i]);
    /* An orderly end leaves no gap in the generations; where the marker cannot be written it does. */
    if (whole && log->generation_highest > 0)
        pst_log_marker_write(log, log->generation_highest);
    for (uint32_t i = 0; log->fds && i < log->segment_count; i++)
        pst_close_fd(&log->fds[i]);
    pst_log_folders_close(log);
    pthread_mutex_destroy(&log->lock);
    for (uint32_t i = 0; log->segments && i < log->segment_count; i++)
        free(log->segments[i].entries);
    free(log->segments);
    free(log->fds);
    free(log->lanes);
    free(log);
    return NULL;
}

uint64_t pst_log_name(const struct pst_log *log)
{
    return pst_hash64(log->store_id, sizeof(log->store_id), 0);
}

void pst_log_new_era(struct pst_log *log)
{
    atomic_fetch_add(&log->era, 1);
}

const char *pst_log_note(const struct pst_log *log)
{
    return log->note;
}

uint64_t pst_log_value_bytes_max(const struct pst_log *log)
{
    pst_assert(log->segment_bytes >= MIB);
    /* Two heads, the group's head, the entry a second time in the index, the tail. */
    return log->segment_bytes - PST_LOG_DATA_AT - PST_LOG_HEAD_BYTES_MAX - 3 * PST_LOG_ALIGN_BYTES;
}

uint64_t pst_log_generation_floor(const struct pst_log *log)
{
    return log->generation_floor;
}

int pst_log_generations(struct pst_log *log, uint64_t highest)
{
    uint64_t ceiling, before = atomic_load(&log->generation_highest);
    int r = 0;

    pst_assert(highest > 0);
    while (before < highest && !atomic_compare_exchange_weak(&log->generation_highest, &before, highest))
        ; /* before is what it is now */
    if (!pst_log_begun(log) || highest + GENERATIONS_AHEAD / 2 < atomic_load(&log->generation_ceiling))
        return 0;
    pthread_mutex_lock(&log->lock);
    ceiling = highest + GENERATIONS_AHEAD;
    if (ceiling > atomic_load(&log->generation_ceiling)) {
        r = pst_log_marker_write(log, ceiling);
        if (r == 0)
            atomic_store(&log->generation_ceiling, ceiling);
    }
    pst_assert(r < 0 || atomic_load(&log->generation_ceiling) >= ceiling);
    pthread_mutex_unlock(&log->lock);
    return r;
}

struct pst_lane *pst_log_lane(struct pst_log *log, uint32_t index)
{
    pst_assert(index < log->lane_count);
    return log->lanes[index];
}

/* ---- lanes ---- */

/* One piece of memory for all buffers, so that it can be registered. */
static int lane_take_memory(struct pst_lane *lane, uint32_t depth)
{
    uint8_t *at;

    pst_assert(depth > 0);
    pst_assert(!lane->memory);
    pst_assert(lane->large_count == 0);
    lane->reading_room = depth;
    lane->memory_bytes = PST_LOG_DATA_AT + (uint64_t)PST_LANE_GROUPS * PST_GROUP_BUFFER_BYTES +
                         (uint64_t)depth * PST_READ_SMALL_BYTES +
                         (uint64_t)PST_READ_LARGES * PST_READ_LARGE_BYTES;
    at = mmap(NULL, lane->memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return -ENOMEM;
    lane->memory = at;
    lane->readings = calloc(depth, sizeof(*lane->readings));
    if (!lane->readings)
        return -ENOMEM;
    for (uint32_t i = 0; i < PST_LANE_GROUPS; i++, at += PST_GROUP_BUFFER_BYTES) {
        lane->groups[i].buffer = at;
        pst_list_init(&lane->groups[i].appends);
    }
    lane->free_head = at;
    at += PST_LOG_DATA_AT;
    for (uint32_t i = 0; i < PST_READ_LARGES; i++, at += PST_READ_LARGE_BYTES)
        lane->larges[lane->large_count++] = at;
    for (uint32_t i = 0; i < depth; i++, at += PST_READ_SMALL_BYTES)
        lane->readings[i].small = at;
    pst_assert(at == lane->memory + lane->memory_bytes);
    pst_assert(lane->reading_count == 0);
    pst_assert(lane->large_count == PST_READ_LARGES);
    return 0;
}

static int lane_open_disk(struct pst_lane *lane, const struct pst_log_options *o)
{
    struct pst_log *log = lane->log;
    pst_cleanup_free struct iovec *regions = calloc(o->region_count + 1, sizeof(*regions));
    const char *fault = "";
    struct pst_disk_options options = {
        .driver = o->driver,
        .depth = 3 * (o->depth + PST_LANE_GROUPS) + PST_LANE_DIRTY +
                 1, /* never full: lanes count for themselves */
        .regions = regions,
        .region_count = o->region_count + 1,
        .fds = log->fds,
        .fd_count = log->segment_count,
    };
    int r;

    pst_assert(lane->memory);
    pst_assert(!lane->disk);
    if (!regions)
        return pst_fail(-ENOMEM, "no memory for a lane");
    if (o->region_count > 0)
        memcpy(regions, o->regions, o->region_count * sizeof(*regions));
    regions[o->region_count] = (struct iovec){lane->memory, lane->memory_bytes};
    pst_assert(options.depth <= PST_DISK_DEPTH_MAX);
    r = pst_disk_open(&options, &lane->disk, &fault);
    return r < 0 ? pst_fail(r, "%s", fault) : 0;
}

int pst_lane_open(struct pst_log *log, uint32_t index, const struct pst_log_options *options)
{
    struct pst_lane *lane = calloc(1, sizeof(*lane));
    int r;

    pst_assert(index < log->lane_count);
    pst_assert(!log->lanes[index]);
    if (!lane)
        return pst_fail(-ENOMEM, "no memory for a lane");
    lane->log = log;
    lane->index = index;
    lane->cramped = true;
    pst_list_init(&lane->flushes);
    pst_list_init(&lane->waiting);
    pst_list_init(&lane->ended);
    pst_list_init(&lane->done);
    pst_list_init(&lane->moves);
    pst_list_init(&lane->checks);
    r = lane_take_memory(lane, options->depth);
    if (r < 0)
        pst_fail(r, "no memory for the buffers of a lane");
    else
        r = lane_open_disk(lane, options);
    if (r < 0) {
        pst_lane_close(lane);
        return r;
    }
    pst_assert(lane->disk);
    pst_assert(pst_lane_idle(lane));
    log->lanes[index] = lane;
    return 0;
}

struct pst_lane *pst_lane_close(struct pst_lane *lane)
{
    if (!lane)
        return NULL;
    pst_assert(!lane->disk || pst_lane_idle(lane));
    pst_assert(lane->written <= lane->issued && lane->synced <= lane->written);
    pst_assert(lane->moves_reading == 0);
    pst_assert(lane->moving_bytes == 0);
    pst_assert(pst_list_empty(&lane->moves));
    pst_disk_close(lane->disk);
    free(lane->index_now.entries);
    for (uint32_t i = 0; i < lane->seal_count; i++)
        free(lane->seals[i].entries);
    if (lane->memory)
        munmap(lane->memory, lane->memory_bytes);
    free(lane->tombstones);
    free(lane->laters);
    free(lane->readings);
    free(lane);
    return NULL;
}

/* ---- what goes to the disk ---- */

void pst_lane_submit(struct pst_lane *lane, struct pst_lane_io *io, enum pst_lane_io_kind kind, void *owner,
                     const struct pst_disk_op *op)
{
    int r;

    pst_assert(op->file < lane->log->segment_count);
    *io = (struct pst_lane_io){.op = *op, .kind = (uint8_t)kind, .owner = owner};
    r = pst_disk_submit(lane->disk, &io->op);
    pst_assert(r == 0);
}

void pst_log_make_head(const struct pst_log *log, uint32_t segment, uint32_t in_use,
                       uint8_t to[PST_LOG_DATA_AT])
{
    struct pst_segment_head head = {.sequence = log->segments[segment].sequence,
                                    .version = PST_LOG_VERSION,
                                    .segment = segment,
                                    .in_use = in_use,
                                    .lane = log->segments[segment].lane};

    pst_assert(segment < log->segment_count);
    pst_assert(in_use <= PST_SEGMENT_HEAD_FAILED);
    pst_segment_head_seal(&head, log->seed);
    memset(to, 0, PST_LOG_DATA_AT);
    memcpy(to, &head, sizeof(head));
    memcpy(to + PST_LOG_ALIGN_BYTES, &head, sizeof(head));
}

/* ---- polling ---- */

void pst_lane_done(struct pst_lane *lane, struct pst_log_op *op, int result)
{
    pst_assert(result <= 0);
    op->result = result;
    switch (op->verb) {
    case PST_LOG_RECLAIM_FLUSH:
        pst_reclaim_flushed(lane, result);
        return;
    case PST_LOG_MOVE_READ:
        pst_move_read(lane, pst_container_of(op, struct pst_log_move, read.op));
        return;
    case PST_LOG_MOVE_APPEND:
        pst_move_appended(lane, pst_container_of(op, struct pst_log_move, append.op));
        return;
    default:
        lane->stat.failed += result == -EIO || result == -ENOSPC;
        pst_assert(op->verb <= PST_LOG_MOVE);
        lane->stat.corrupt += result == -EBADMSG;
        pst_list_push_back(&lane->done, &op->link);
    }
}

static void lane_io_ended(struct pst_lane *lane, struct pst_lane_io *io)
{
    switch (io->kind) {
    case PST_IO_GROUP:
        pst_group_io_ended(lane, io->owner, io->op.result);
        return;
    case PST_IO_SYNC:
        pst_sync_io_ended(lane);
        return;
    case PST_IO_RECLAIM:
        pst_reclaim_io_ended(lane);
        return;
    default:
        pst_assert(io->kind == PST_IO_READ);
        pst_reading_io_ended(lane, io->owner, io->op.result);
    }
}

/* All of what has ended: what takes time of it waits to be computed. Return: whether any had. */
static bool lane_look_at_ended(struct pst_lane *lane)
{
    if (pst_list_empty(&lane->ended))
        return false;
    do {
        struct pst_disk_op *op = pst_list_first(&lane->ended, struct pst_disk_op, link);

        pst_list_remove(&op->link);
        lane_io_ended(lane, pst_container_of(op, struct pst_lane_io, op));
    } while (!pst_list_empty(&lane->ended));
    pst_assert(pst_list_empty(&lane->ended));
    return true;
}

/* Checksums of what was read and of what is to be written, a step of each. Return: whether there were any. */
static bool lane_compute_sums(struct pst_lane *lane, const struct pst_turn *turn)
{
    bool any = false, more;

    do {
        bool checked = pst_lane_check_step(lane);

        more = pst_lane_sum_step(lane) || checked;
        any = any || more;
    } while (more && !pst_turn_is_over(turn));
    return any;
}

bool pst_lane_poll(struct pst_lane *lane, const struct pst_turn *turn, struct pst_list *done)
{
    bool any = !pst_list_empty(&lane->done) || lane->grew, more;

    lane->grows = lane->grew;
    lane->grew = false;
    /* What is done goes back at once: its owner may have more for the disk before the rest is looked at. */
    do {
        more = pst_moves_step(lane, turn);
        more = lane_compute_sums(lane, turn) || more;
        pst_lane_write_step(lane, turn);
        pst_reclaim_step(lane);
        pst_disk_poll(lane->disk, turn, &lane->ended);
        more = lane_look_at_ended(lane) || pst_disk_has_more(lane->disk) || more;
        any = any || more || !pst_list_empty(&lane->done);
    } while (more && pst_list_empty(&lane->done) && !pst_turn_is_over(turn));
    pst_assert(lane->synced <= lane->written && lane->written <= lane->issued);
    pst_list_splice(done, &lane->done);
    return any;
}

int pst_lane_descriptor(const struct pst_lane *lane)
{
    pst_assert(lane->disk);
    return pst_disk_descriptor(lane->disk);
}

/* Tombstones may wait for company, and full segments for their sync. */
bool pst_lane_idle(const struct pst_lane *lane)
{
    return pst_disk_underway(lane->disk) == 0 && pst_list_empty(&lane->ended) && !lane->open &&
           !lane->summing.group && lane->issued == lane->written && lane->reading_count == 0 &&
           lane->reclaim.stage == PST_RECLAIM_NONE && pst_list_empty(&lane->flushes) &&
           pst_list_empty(&lane->waiting) && pst_list_empty(&lane->done);
}

/* ---- figures ---- */

void pst_log_stat(const struct pst_log *log, struct pst_log_stat *out)
{
    struct pst_log_stat sum = {.segments = log->segment_count,
                               .segments_free = log->free_count,
                               .segment_bytes = log->segment_bytes,
                               .capacity_bytes =
                                   (log->segment_count - 2 * log->lane_count) * log->segment_bytes};

    pst_assert(log->free_count <= log->segment_count);
    pst_assert(log->segment_count > 2 * log->lane_count);
    for (uint32_t i = 0; i < log->segment_count; i++) {
        sum.live_bytes += atomic_load(&log->segments[i].live_bytes);
        sum.segments_failed += atomic_load(&log->segments[i].failed);
        sum.segments_unsynced += pst_segment_doubtful(&log->segments[i]);
    }
    for (uint32_t i = 0; i < log->lane_count; i++) {
        const struct pst_lane *lane = log->lanes[i];

#define X(name) sum.name += lane->stat.name;
        PST_LOG_COUNTERS(X)
#undef X
    }
    *out = sum;
}

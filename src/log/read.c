/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read.c: reading values back. Whole blocks go straight to where the reader wants them; the rest, and
 * what wants to lie where no disk writes, through buffers of the lane. Nothing is handed out before its
 * checksum is right.
 */
#include "log/lane_priv.h"
#include "base/hash.h"

enum { STEP_BYTES = 8 << 10 /* a microsecond, or a few */ };

void pst_log_span(uint64_t value_bytes, uint64_t *offset, uint64_t *bytes)
{
    uint64_t begin = *offset / PST_LOG_BLOCK_BYTES * PST_LOG_BLOCK_BYTES;
    uint64_t end = pst_min(pst_round_up(*offset + *bytes, PST_LOG_BLOCK_BYTES), value_bytes);

    pst_assert(*offset <= value_bytes);
    pst_assert(*bytes <= value_bytes - *offset);
    *offset = begin;
    *bytes = end - begin;
}

static uint64_t down_block(uint64_t n)
{
    return n - n % PST_LOG_ALIGN_BYTES;
}

/* ---- taking and giving ---- */

static struct pst_reading *reading_take(struct pst_lane *lane, bool large)
{
    pst_assert(lane->reading_count <= lane->reading_room);
    pst_assert(lane->large_count <= PST_READ_LARGES);
    if (large && lane->large_count == 0)
        return NULL;
    for (uint32_t i = 0; i < lane->reading_room; i++) {
        struct pst_reading *g = &lane->readings[(lane->reading_hint + i) % lane->reading_room];

        if (g->read)
            continue;
        lane->reading_hint = (lane->reading_hint + i + 1) % lane->reading_room;
        *g = (struct pst_reading){.small = g->small};
        if (large)
            g->large = lane->larges[--lane->large_count];
        pst_assert(g->small);
        pst_assert(g->io_left == 0);
        lane->reading_count++;
        return g;
    }
    return NULL;
}

static void reading_give(struct pst_lane *lane, struct pst_reading *g)
{
    pst_assert(g->read);
    pst_assert(lane->reading_count > 0);
    pst_assert(g->io_left == 0);
    pst_assert(!g->large || lane->large_count < PST_READ_LARGES);
    if (g->large)
        lane->larges[lane->large_count++] = g->large;
    g->read = NULL;
    g->large = NULL;
    lane->reading_count--;
}

static void reading_submit(struct pst_lane *lane, struct pst_reading *g, const struct iovec *iov,
                           uint32_t iov_count, uint64_t offset, uint64_t bytes)
{
    const struct pst_disk_op op = {.verb = PST_DISK_READ,
                                   .file = g->read->place.segment,
                                   .offset = offset,
                                   .bytes = bytes,
                                   .iov = iov,
                                   .iov_count = iov_count};

    pst_assert(pst_log_is_whole(offset));
    pst_assert(offset + bytes <= lane->log->segment_bytes);
    pst_assert(g->io_left < pst_count_of(g->io));
    pst_assert(bytes > 0);
    pst_lane_submit(lane, &g->io[g->io_left++], PST_IO_READ, g, &op);
    lane->stat.read_bytes += bytes;
}

/* ---- starting ---- */

static void submit_bounced(struct pst_lane *lane, struct pst_reading *g, uint8_t *bounce, uint64_t at)
{
    uint64_t begin = down_block(at), end = pst_round_up(at + g->read->bytes, PST_LOG_ALIGN_BYTES);

    g->bounce = bounce + (at - begin);
    g->bounce_iov = (struct iovec){bounce, end - begin};
    pst_assert(end - begin <= (g->large ? PST_READ_LARGE_BYTES : PST_READ_SMALL_BYTES));
    reading_submit(lane, g, &g->bounce_iov, 1, begin, end - begin);
}

static void submit_direct(struct pst_lane *lane, struct pst_reading *g, uint8_t *tail, uint64_t at)
{
    const struct pst_log_read *read = g->read;
    uint64_t whole = down_block(read->bytes);

    pst_assert(pst_log_is_whole(at));
    pst_assert(read->iov_count > 0);
    if (whole > 0)
        reading_submit(lane, g, read->iov, read->iov_count, at, whole);
    if (whole < read->bytes) {
        g->tail_iov = (struct iovec){tail, PST_LOG_ALIGN_BYTES};
        reading_submit(lane, g, &g->tail_iov, 1, at + whole, PST_LOG_ALIGN_BYTES);
    }
}

/* Return: 0, or -EBUSY. */
static int read_one_block(struct pst_lane *lane, struct pst_log_read *read)
{
    uint64_t at = read->place.offset;
    bool direct = pst_log_is_whole(at) && pst_log_pieces_aligned(read->iov, read->iov_count);
    uint64_t bounce_bytes =
        direct ? 0 : pst_round_up(at % PST_LOG_ALIGN_BYTES + read->bytes, PST_LOG_ALIGN_BYTES);
    struct pst_reading *g = reading_take(lane, bounce_bytes > PST_READ_SMALL_BYTES);

    pst_assert(read->bytes > 0);
    pst_assert(read->offset == 0);
    if (!g)
        return -EBUSY;
    g->read = read;
    if (direct)
        submit_direct(lane, g, g->small, at);
    else
        submit_bounced(lane, g, g->large ? g->large : g->small, at);
    return 0;
}

/* With its head, where the checksums lie. Return: 0, -EBUSY, or -EINVAL. */
static int read_large(struct pst_lane *lane, struct pst_log_read *read)
{
    uint64_t head_bytes = pst_log_large_at(&read->value);
    uint64_t at = read->place.offset + head_bytes + read->offset;
    bool direct = pst_log_pieces_aligned(read->iov, read->iov_count),
         large = !direct || head_bytes > PST_LOG_ALIGN_BYTES;
    struct pst_reading *g;

    pst_assert(head_bytes <= PST_LOG_HEAD_BYTES_MAX);
    pst_assert(pst_log_is_whole(read->place.offset));
    if (!direct && read->bytes > PST_LOG_BOUNCE_BYTES_MAX)
        return -EINVAL;
    g = reading_take(lane, large);
    if (!g)
        return -EBUSY;
    g->read = read;
    g->head = large ? g->large + PST_LOG_BOUNCE_BYTES_MAX : g->small;
    g->head_iov = (struct iovec){g->head, head_bytes};
    reading_submit(lane, g, &g->head_iov, 1, read->place.offset, head_bytes);
    if (direct)
        submit_direct(lane, g, g->small + PST_LOG_ALIGN_BYTES, at);
    else
        submit_bounced(lane, g, g->large, at);
    return 0;
}

static bool within_value(const struct pst_log *log, const struct pst_log_read *read)
{
    uint64_t offset = read->offset, bytes = read->bytes;

    pst_assert(log->segment_bytes > PST_LOG_DATA_AT);
    if (offset > read->value.value_bytes || bytes > read->value.value_bytes - offset)
        return false;
    pst_log_span(read->value.value_bytes, &offset, &bytes);
    return offset == read->offset && bytes == read->bytes && read->place.segment < log->segment_count &&
           read->place.offset >= PST_LOG_DATA_AT &&
           (pst_log_one_block(read->value.value_bytes) || pst_log_is_whole(read->place.offset)) &&
           read->place.offset + pst_log_disk_bytes(&read->value) <= log->segment_bytes;
}

int pst_lane_read(struct pst_lane *lane, struct pst_log_read *read, uint8_t verb)
{
    struct pst_segment *s;
    int r;

    pst_assert(verb == PST_LOG_READ || verb > PST_LOG_MOVE);
    if (!within_value(lane->log, read))
        return -EINVAL;
    read->op.verb = verb;
    s = &lane->log->segments[read->place.segment];
    atomic_fetch_add(&s->readers, 1);
    if (read->bytes == 0) {
        atomic_fetch_sub(&s->readers, 1);
        pst_lane_done(lane, &read->op, 0);
        return 0;
    }
    r = pst_log_one_block(read->value.value_bytes) ? read_one_block(lane, read) : read_large(lane, read);
    if (r < 0)
        atomic_fetch_sub(&s->readers, 1);
    return r;
}

int pst_log_read(struct pst_lane *lane, struct pst_log_read *read)
{
    return pst_lane_read(lane, read, PST_LOG_READ);
}

/* ---- checking ---- */

uint32_t pst_cursor_crc(struct pst_cursor *c, uint32_t crc, uint64_t bytes)
{
    while (bytes > 0) {
        uint64_t n = pst_min(bytes, c->iov->iov_len - c->skip);

        crc = pst_crc32c(crc, (const uint8_t *)c->iov->iov_base + c->skip, n);
        bytes -= n;
        c->skip += n;
        if (c->skip == c->iov->iov_len) {
            c->iov++;
            c->skip = 0;
        }
    }
    return crc;
}

bool pst_sum_step(struct pst_sum *sum, uint32_t *crc)
{
    uint64_t bytes = pst_min(STEP_BYTES, pst_min(sum->left_bytes, PST_LOG_BLOCK_BYTES - sum->block_bytes));

    pst_assert(bytes > 0);
    pst_assert(sum->block_bytes < PST_LOG_BLOCK_BYTES);
    sum->crc = pst_cursor_crc(&sum->at, sum->crc, bytes);
    sum->left_bytes -= bytes;
    sum->block_bytes += (uint32_t)bytes;
    if (sum->left_bytes > 0 && sum->block_bytes < PST_LOG_BLOCK_BYTES)
        return false;
    pst_assert(sum->left_bytes == 0 || sum->block_bytes == PST_LOG_BLOCK_BYTES);
    *crc = sum->crc;
    sum->block_bytes = sum->crc = 0;
    return true;
}

/* The head that lies before a large value is of this value. Return: its checksums, or NULL. */
static const uint32_t *checksums_of(const struct pst_log *log, const struct pst_reading *g)
{
    const struct pst_log_read *read = g->read;
    const struct pst_log_value *v = &read->value;
    const struct pst_group_head *head = (const void *)g->head;
    uint64_t count = pst_div_up(v->value_bytes, PST_LOG_BLOCK_BYTES);
    uint64_t entry_bytes = pst_log_entry_bytes(v->key.len, v->attrs.len);
    struct pst_bytes entries = {head + 1, entry_bytes};
    struct pst_log_any any;
    const uint32_t *crcs = (const void *)(g->head + sizeof(*head) + entry_bytes);

    pst_assert(!pst_log_one_block(v->value_bytes));
    pst_assert(g->head);
    if (!pst_group_good(head, pst_log_large_at(v), log->seed, log->segment_bytes) ||
        head->segment != read->place.segment || head->offset != read->place.offset ||
        head->entries_bytes != entry_bytes || head->used_bytes != sizeof(*head) + entry_bytes + 4 * count ||
        pst_log_entry_next(&entries, log->segment_bytes, &any) != PST_LOG_VALUE)
        return NULL;
    if (any.value.generation != v->generation || any.value.value_bytes != v->value_bytes ||
        !pst_bytes_equal(any.value.key, v->key) || any.crc != pst_crc32c(0, crcs, 4 * count))
        return NULL;
    return crcs;
}

/* Return: 0, or -EBADMSG: it is of another value. */
static int reading_begin_check(struct pst_lane *lane, struct pst_reading *g)
{
    const struct pst_log_read *read = g->read;

    g->crcs = &read->crc;
    if (!pst_log_one_block(read->value.value_bytes)) {
        g->crcs = checksums_of(lane->log, g);
        if (!g->crcs)
            return -EBADMSG;
        g->crcs += read->offset / PST_LOG_BLOCK_BYTES;
    }
    pst_assert(read->bytes > 0);
    pst_assert(g->io_left == 0);
    g->bounced = (struct iovec){g->bounce, read->bytes};
    g->sum = (struct pst_sum){.at = {g->bounce ? &g->bounced : read->iov, 0}, .left_bytes = read->bytes};
    pst_list_push_back(&lane->checks, &g->link);
    return 0;
}

static void reading_scatter(const struct pst_log_read *read, const uint8_t *from)
{
    pst_assert(read->bytes > 0 && read->bytes <= PST_LOG_BOUNCE_BYTES_MAX);
    for (uint32_t i = 0; i < read->iov_count; i++) {
        memcpy(read->iov[i].iov_base, from, read->iov[i].iov_len);
        from += read->iov[i].iov_len;
    }
}

static void reading_put_tail(const struct pst_reading *g)
{
    const struct iovec *last = &g->read->iov[g->read->iov_count - 1];
    uint64_t bytes = g->read->bytes % PST_LOG_ALIGN_BYTES;

    pst_assert(g->read->iov_count > 0);
    pst_assert(last->iov_len >= bytes);
    memcpy((uint8_t *)last->iov_base + last->iov_len - bytes, g->tail_iov.iov_base, bytes);
}

static void reading_done(struct pst_lane *lane, struct pst_reading *g, int result)
{
    struct pst_log_read *read = g->read;
    uint32_t readers;

    pst_assert(result <= 0);
    pst_assert(g->io_left == 0);
    if (result == 0 && g->bounce)
        reading_scatter(read, g->bounce);
    readers = atomic_fetch_sub(&lane->log->segments[read->place.segment].readers, 1);
    pst_assert(readers > 0);
    pst_lane_done(lane, &read->op, result);
    reading_give(lane, g);
}

bool pst_lane_check_step(struct pst_lane *lane)
{
    struct pst_reading *g;
    bool good = true;
    uint32_t crc;

    if (pst_list_empty(&lane->checks))
        return false;
    g = pst_list_first(&lane->checks, struct pst_reading, link);
    pst_assert(g->read);
    pst_assert(g->io_left == 0);
    pst_assert(g->crcs);
    if (pst_sum_step(&g->sum, &crc))
        good = crc == *g->crcs++;
    if (good && g->sum.left_bytes > 0)
        return true;
    pst_list_remove(&g->link);
    reading_done(lane, g, good ? 0 : -EBADMSG);
    return true;
}

void pst_reading_io_ended(struct pst_lane *lane, struct pst_reading *g, int result)
{
    pst_assert(g->read);
    pst_assert(g->io_left > 0 && g->io_left <= pst_count_of(g->io));
    if (result < 0)
        g->result = result;
    if (--g->io_left > 0)
        return;
    if (g->result == 0 && g->tail_iov.iov_base)
        reading_put_tail(g);
    if (g->result == 0)
        g->result = reading_begin_check(lane, g);
    if (g->result < 0)
        reading_done(lane, g, g->result);
}

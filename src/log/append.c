/* SPDX-License-Identifier: Apache-2.0 */
/*
 * append.c: values on their way into a group: as they lie where they lie in whole blocks, else packed
 * together; a value of several blocks has a group for itself.
 */
#include "log/lane_priv.h"
#include "base/hash.h"

enum { GROUPS_A_SEGMENT = 4 /* at least, however small it is */ };

static uint64_t pieces_bytes(const struct pst_log_append *a)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < a->iov_count; i++)
        bytes += a->iov[i].iov_len;
    return bytes;
}

static void append_gather(const struct pst_log_append *a, uint8_t *to)
{
    pst_assert(pieces_bytes(a) <= PST_LOG_BOUNCE_BYTES_MAX);
    for (uint32_t i = 0; i < a->iov_count; i++) {
        memcpy(to, a->iov[i].iov_base, a->iov[i].iov_len);
        to += a->iov[i].iov_len;
    }
}

static void add_entry(struct pst_group *g, struct pst_log_append *a)
{
    pst_assert(g->state == PST_GROUP_OPEN);
    a->entry_at = (uint32_t)pst_group_head_bytes(g);
    pst_assert(a->entry_at + pst_log_entry_bytes(a->value.key.len, a->value.attrs.len) <=
               PST_LOG_HEAD_BYTES_MAX);
    g->entries_bytes += (uint32_t)pst_log_entry_put(g->buffer + a->entry_at, &a->value, 0, a->crc);
    g->entry_count++;
    g->put_count += a->op.verb == PST_LOG_APPEND;
    g->move_count += a->op.verb == PST_LOG_MOVE_APPEND;
    pst_list_push_back(&g->appends, &a->op.link);
}

static void add_packed(struct pst_group *g, struct pst_log_append *a)
{
    uint8_t *packed = g->buffer + PST_LOG_HEAD_BYTES_MAX;
    uint32_t at = (uint32_t)pst_round_up(g->packed_bytes, PST_LOG_PACK_BYTES);

    pst_assert(at + a->value.value_bytes <=
               PST_GROUP_PACKED_BYTES - (uint64_t)g->end_blocks * PST_LOG_ALIGN_BYTES);
    memset(packed + g->packed_bytes, 0, at - g->packed_bytes);
    append_gather(a, packed + at);
    a->packed = true;
    a->data_at = at;
    g->packed_bytes = at + (uint32_t)a->value.value_bytes;
}

/* The last block, where the value does not fill it, with zeros behind. */
static void fill_last_block(const struct pst_log_append *a, uint8_t *to)
{
    const struct iovec *last = &a->iov[a->iov_count - 1];
    uint64_t bytes = a->value.value_bytes % PST_LOG_ALIGN_BYTES;

    pst_assert(a->iov_count > 0);
    pst_assert(last->iov_len >= bytes);
    memcpy(to, (const uint8_t *)last->iov_base + last->iov_len - bytes, bytes);
    memset(to + bytes, 0, PST_LOG_ALIGN_BYTES - bytes);
}

static void add_direct(struct pst_group *g, struct pst_log_append *a)
{
    uint64_t rest = a->value.value_bytes % PST_LOG_ALIGN_BYTES;

    pst_assert(a->value.value_bytes > 0);
    pst_assert(g->iov_count >= 2);
    a->packed = false;
    a->data_at = g->direct_bytes;
    for (uint32_t i = 0; i < a->iov_count; i++) {
        uint64_t bytes = a->iov[i].iov_len - (i + 1 == a->iov_count ? rest : 0);

        if (bytes > 0)
            g->iov[g->iov_count++] = (struct iovec){a->iov[i].iov_base, bytes};
    }
    if (rest > 0) {
        uint8_t *block = g->buffer + PST_GROUP_BUFFER_BYTES - (uint64_t)++g->end_blocks * PST_LOG_ALIGN_BYTES;

        pst_assert(block >= g->buffer + PST_LOG_HEAD_BYTES_MAX + g->packed_bytes);
        fill_last_block(a, block);
        g->iov[g->iov_count++] = (struct iovec){block, PST_LOG_ALIGN_BYTES};
    }
    pst_assert(g->iov_count <= PST_GROUP_PIECES);
    g->direct_bytes += (uint32_t)pst_log_whole(a->value.value_bytes);
    pst_assert(pst_log_is_whole(g->direct_bytes));
}

/* At a segment's end the group is written without the value, and leaves less of a gap. */
static bool segment_ends(const struct pst_lane *lane, const struct pst_log_append *a)
{
    uint64_t more = pst_log_whole(a->value.value_bytes) + 2 * PST_LOG_ALIGN_BYTES;

    pst_assert(lane->open && lane->open->state == PST_GROUP_OPEN);
    return pst_lane_fits(lane, lane->open, 0) && !pst_lane_fits(lane, lane->open, more);
}

static bool group_fits(const struct pst_lane *lane, const struct pst_log_append *a, bool packed)
{
    const struct pst_group *g = lane->open;
    uint64_t data_bytes = pst_min(PST_GROUP_DATA_BYTES, lane->log->segment_bytes / GROUPS_A_SEGMENT);
    uint64_t packed_bytes = g->packed_bytes + (uint64_t)g->end_blocks * PST_LOG_ALIGN_BYTES;

    pst_assert(g->state == PST_GROUP_OPEN);
    pst_assert(!g->large);
    pst_assert(g->iov_count >= 2);
    packed_bytes += packed ? a->value.value_bytes + PST_LOG_PACK_BYTES : PST_LOG_ALIGN_BYTES;
    return pst_group_head_bytes(g) + pst_log_entry_bytes(a->value.key.len, a->value.attrs.len) <=
               PST_LOG_HEAD_BYTES_MAX &&
           packed_bytes <= PST_GROUP_PACKED_BYTES && g->iov_count + a->iov_count + 1 <= PST_GROUP_PIECES &&
           g->direct_bytes + g->packed_bytes < data_bytes && !segment_ends(lane, a);
}

static int append_shared(struct pst_lane *lane, struct pst_log_append *a)
{
    bool odd = !pst_log_is_whole(a->value.value_bytes) && a->value.value_bytes <= PST_PACK_BYTES_MAX;
    bool packed = odd || a->value.value_bytes == 0 || a->iov_count > PST_GROUP_PIECES / 4 ||
                  !pst_log_pieces_aligned(a->iov, a->iov_count);

    pst_assert(pst_log_one_block(a->value.value_bytes));
    if (lane->open && !group_fits(lane, a, packed) && pst_lane_close_open(lane) == -EBUSY)
        return -EBUSY;
    if (!lane->open)
        lane->open = pst_group_take(lane);
    if (!lane->open)
        return -EBUSY;
    a->crc = pst_cursor_crc(&(struct pst_cursor){a->iov, 0}, 0, a->value.value_bytes);
    add_entry(lane->open, a);
    if (packed)
        add_packed(lane->open, a);
    else
        add_direct(lane->open, a);
    lane->grew = true;
    pst_assert(lane->open->entry_count > 0);
    pst_assert(lane->open->state == PST_GROUP_OPEN);
    return 0;
}

/* Return: 0: it is written when its checksums are there; -EBUSY, -EINVAL. */
static int append_large(struct pst_lane *lane, struct pst_log_append *a)
{
    struct pst_group *g = NULL;

    pst_assert(!pst_log_one_block(a->value.value_bytes));
    if (!pst_log_pieces_aligned(a->iov, a->iov_count) && a->value.value_bytes > PST_LOG_BOUNCE_BYTES_MAX)
        return -EINVAL;
    if (!lane->summing.group && pst_lane_close_open(lane) != -EBUSY)
        g = pst_group_take(lane);
    if (!g)
        return -EBUSY;
    pst_assert(!lane->open);
    pst_assert(!lane->summing.group);
    g->large = true;
    a->crc = 0;
    add_entry(g, a);
    lane->summing = (struct pst_summing){.group = g,
                                         .append = a,
                                         .sum = {.at = {a->iov, 0}, .left_bytes = a->value.value_bytes},
                                         .crcs = (uint32_t *)(void *)(g->buffer + pst_group_head_bytes(g))};
    return 0;
}

/* The value's checksums are there: so are its entry and its data. */
static void fill_large(const struct pst_summing *s)
{
    struct pst_log_append *a = s->append;
    struct pst_group *g = s->group;

    pst_assert(g->large);
    pst_assert(s->count == pst_div_up(a->value.value_bytes, PST_LOG_BLOCK_BYTES));
    a->crc = pst_crc32c(0, s->crcs, 4 * s->count);
    memcpy(g->buffer + a->entry_at + offsetof(struct pst_log_entry, crc), &a->crc, sizeof(a->crc));
    pst_assert(pst_log_whole(pst_group_head_bytes(g) + 4 * s->count) == pst_log_large_at(&a->value));
    if (!pst_log_pieces_aligned(a->iov, a->iov_count)) {
        add_packed(g, a);
    } else if (a->iov_count + 3 <= PST_GROUP_PIECES) {
        add_direct(g, a); /* one write with the head */
    } else {
        g->direct_bytes = (uint32_t)pst_log_whole(a->value.value_bytes);
        if (!pst_log_is_whole(a->value.value_bytes))
            fill_last_block(a, g->buffer + PST_LOG_HEAD_BYTES_MAX);
    }
}

bool pst_lane_sum_step(struct pst_lane *lane)
{
    struct pst_summing *s = &lane->summing;
    int r;

    if (!s->group)
        return false;
    pst_assert(s->group->state == PST_GROUP_OPEN);
    pst_assert(s->group->large);
    pst_assert(s->group->entry_count == 1);
    if (s->sum.left_bytes > 0) {
        s->count += pst_sum_step(&s->sum, &s->crcs[s->count]);
        if (s->sum.left_bytes > 0)
            return true;
        fill_large(s);
    }
    pst_assert(s->sum.left_bytes == 0);
    pst_assert(s->count > 0);
    r = pst_group_close(lane, s->group, 4 * s->count);
    if (r == -EBUSY)
        return false;
    if (r < 0)
        pst_group_fail(lane, s->group, r);
    s->group = NULL;
    return true;
}

int pst_lane_append(struct pst_lane *lane, struct pst_log_append *a, uint8_t verb)
{
    struct pst_log_tombstone tombstone;

    pst_assert(pieces_bytes(a) == a->value.value_bytes);
    pst_assert(verb == PST_LOG_APPEND || verb > PST_LOG_MOVE);
    if (a->value.value_bytes > pst_log_value_bytes_max(lane->log))
        return -EFBIG;
    if (!pst_log_begun(lane->log))
        return -EBUSY;
    if (verb == PST_LOG_APPEND && !pst_lane_has_room(lane, pst_log_disk_bytes(&a->value)))
        return -ENOSPC;
    a->op.verb = verb;
    tombstone = pst_log_tombstone_of(lane->log, a->value.key, a->value.generation);
    a->key_hash = tombstone.key_hash;
    a->key_check = tombstone.key_check;
    if (verb == PST_LOG_APPEND) /* what is moved has its own */
        a->value.era = lane->log->era;
    return pst_log_one_block(a->value.value_bytes) ? append_shared(lane, a) : append_large(lane, a);
}

int pst_log_append(struct pst_lane *lane, struct pst_log_append *append)
{
    return pst_lane_append(lane, append, PST_LOG_APPEND);
}

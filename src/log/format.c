/* SPDX-License-Identifier: Apache-2.0 */
/* format.c: sealing what a log writes, and believing what it reads: nothing before its hash and its
 * lengths are right. */
#include "log/format.h"

#include "base/hash.h"
#include "base/limits.h"

_Static_assert(sizeof(struct pst_group_head) + sizeof(struct pst_log_entry) + PST_KEY_BYTES_MAX +
                       PST_ATTR_BYTES_MAX + 8 <=
                   PST_LOG_HEAD_BYTES_MAX,
               "the longest entry fits a group's head");
_Static_assert(offsetof(struct pst_segment_head, check) == 8 && offsetof(struct pst_group_head, check) == 8 &&
                   offsetof(struct pst_segment_tail, check) == 8,
               "`check` is the second member of each");

/* From behind `check`, the second member of each. */
static uint64_t check_of(const void *what, uint64_t bytes, uint64_t seed)
{
    pst_assert(bytes > 16);
    return pst_hash64((const uint8_t *)what + 16, bytes - 16, seed);
}

void pst_segment_head_seal(struct pst_segment_head *head, uint64_t seed)
{
    head->magic = PST_SEGMENT_MAGIC;
    head->check = check_of(head, sizeof(*head), seed);
}

bool pst_segment_head_good(const struct pst_segment_head *head, uint64_t seed, uint32_t segment)
{
    return head->magic == PST_SEGMENT_MAGIC && head->check == check_of(head, sizeof(*head), seed) &&
           head->version == PST_LOG_VERSION && head->segment == segment;
}

void pst_group_seal(struct pst_group_head *head, uint64_t seed)
{
    pst_assert(head->used_bytes >= sizeof(*head) && head->used_bytes <= PST_LOG_HEAD_BYTES_MAX);
    head->magic = PST_GROUP_MAGIC;
    head->check = check_of(head, head->used_bytes, seed);
}

bool pst_group_good(const struct pst_group_head *head, uint64_t room, uint64_t seed, uint64_t segment_bytes)
{
    return room >= sizeof(*head) && head->magic == PST_GROUP_MAGIC && head->used_bytes >= sizeof(*head) &&
           head->used_bytes <= room && head->used_bytes <= PST_LOG_HEAD_BYTES_MAX &&
           head->check == check_of(head, head->used_bytes, seed) &&
           head->entries_bytes <= head->used_bytes - sizeof(*head) && head->bytes >= head->used_bytes &&
           head->bytes % PST_LOG_ALIGN_BYTES == 0 && head->offset % PST_LOG_ALIGN_BYTES == 0 &&
           (uint64_t)head->offset + head->bytes <= segment_bytes;
}

void pst_segment_tail_seal(struct pst_segment_tail *tail, uint64_t seed)
{
    tail->magic = PST_TAIL_MAGIC;
    tail->check = check_of(tail, sizeof(*tail), seed);
}

bool pst_segment_tail_good(const struct pst_segment_tail *tail, uint64_t seed, uint32_t segment,
                           uint64_t segment_bytes)
{
    return tail->magic == PST_TAIL_MAGIC && tail->check == check_of(tail, sizeof(*tail), seed) &&
           tail->segment == segment && tail->index_offset % PST_LOG_ALIGN_BYTES == 0 &&
           (uint64_t)tail->index_offset + tail->index_bytes <= segment_bytes - PST_LOG_ALIGN_BYTES;
}

uint64_t pst_log_index_check(const void *entries, uint64_t bytes, uint64_t seed)
{
    return pst_hash64(entries, bytes, seed);
}

uint64_t pst_log_entry_put(void *to, const struct pst_log_value *value, uint32_t offset, uint32_t crc)
{
    uint64_t bytes = pst_log_entry_bytes(value->key.len, value->attrs.len);
    struct pst_log_entry e = {
        .generation = value->generation,
        .value_bytes = value->value_bytes,
        .offset = offset,
        .crc = crc,
        .value_crc = value->value_crc,
        .era = value->era,
        .key_bytes = (uint16_t)value->key.len,
        .attr_bytes = (uint16_t)value->attrs.len,
        .depth = value->depth,
        .flags = value->flags & 31u,
        .copies = value->copies & 7u,
        .kind = PST_LOG_VALUE,
    };
    uint8_t *p = to;

    pst_assert(value->key.len > 0 && value->key.len <= PST_KEY_BYTES_MAX);
    pst_assert(value->attrs.len <= PST_ATTR_BYTES_MAX);
    memset(p + bytes - 8, 0, 8);
    memcpy(p, &e, sizeof(e));
    memcpy(p + sizeof(e), value->key.data, value->key.len);
    if (value->attrs.len > 0)
        memcpy(p + sizeof(e) + value->key.len, value->attrs.data, value->attrs.len);
    return bytes;
}

static int next_value(struct pst_bytes *entries, uint64_t segment_bytes, struct pst_log_any *any)
{
    const uint8_t *at = entries->data;
    struct pst_log_entry e;
    uint64_t bytes;

    memcpy(&e, at, sizeof(e));
    bytes = pst_log_entry_bytes(e.key_bytes, e.attr_bytes);
    if (e.key_bytes == 0 || e.key_bytes > PST_KEY_BYTES_MAX || e.attr_bytes > PST_ATTR_BYTES_MAX ||
        bytes > entries->len || e.generation >= PST_GENERATION_LOG_MAX || e.value_bytes > segment_bytes ||
        e.offset > segment_bytes - e.value_bytes)
        return -EBADMSG;
    any->value = (struct pst_log_value){
        .key = {at + sizeof(e), e.key_bytes},
        .attrs = {at + sizeof(e) + e.key_bytes, e.attr_bytes},
        .generation = e.generation,
        .value_bytes = e.value_bytes,
        .value_crc = e.value_crc,
        .era = e.era,
        .depth = e.depth,
        .copies = e.copies,
        .flags = e.flags,
    };
    any->offset = e.offset;
    any->crc = e.crc;
    pst_assert(bytes >= sizeof(e) && bytes <= entries->len);
    *entries = (struct pst_bytes){at + bytes, entries->len - bytes};
    return PST_LOG_VALUE;
}

int pst_log_entry_next(struct pst_bytes *entries, uint64_t segment_bytes, struct pst_log_any *any)
{
    const uint8_t *at = entries->data;

    if (entries->len == 0)
        return 0;
    if (entries->len < sizeof(struct pst_log_entry))
        return -EBADMSG;
    switch (at[offsetof(struct pst_log_entry, kind)]) {
    case PST_LOG_VALUE:
        return next_value(entries, segment_bytes, any);
    case PST_LOG_TOMBSTONE:
        memcpy(&any->tombstone, at, sizeof(any->tombstone));
        *entries = (struct pst_bytes){at + sizeof(any->tombstone), entries->len - sizeof(any->tombstone)};
        return PST_LOG_TOMBSTONE;
    default:
        return -EBADMSG;
    }
}

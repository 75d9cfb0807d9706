/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_log.c: what a log reads from its segments: heads, indexes' ends, groups, entries. Entries that were
 * put come back; sealed things are good, and bad with any byte changed; whatever is walked stays within its
 * bytes.
 */
#include "fuzz.h"

#include "log/format.h"
#include "base/limits.h"

enum { SEGMENT_BYTES = 1 << 20, ENTRIES_MAX = 8 };

static const uint64_t seed = 7;

static void walk(struct pst_bytes entries)
{
    const uint8_t *begin = entries.data, *end = begin + entries.len;
    struct pst_log_any any;
    int kind;

    while ((kind = pst_log_entry_next(&entries, SEGMENT_BYTES, &any)) > 0) {
        pst_assert(kind == PST_LOG_VALUE || kind == PST_LOG_TOMBSTONE);
        pst_assert((const uint8_t *)entries.data > begin &&
                   (const uint8_t *)entries.data + entries.len == end);
        if (kind == PST_LOG_TOMBSTONE)
            continue;
        pst_assert(any.value.key.len > 0 && any.value.key.len <= PST_KEY_BYTES_MAX);
        pst_assert((const uint8_t *)any.value.attrs.data + any.value.attrs.len <=
                   (const uint8_t *)entries.data);
        pst_assert(any.offset + any.value.value_bytes <= SEGMENT_BYTES);
    }
    pst_assert(kind == 0 || kind == -EBADMSG);
}

/* As they are: none of it was sealed, so that nothing but an accident of 64 bits makes it good. */
static void raw(struct fuzz *in)
{
    size_t bytes;
    uint8_t *copy = fuzz_take(in, 4096, &bytes);

    walk((struct pst_bytes){copy, bytes});
    pst_assert(!pst_group_good((const void *)copy, bytes, seed, SEGMENT_BYTES));
    if (bytes >= sizeof(struct pst_segment_head))
        pst_assert(!pst_segment_head_good((const void *)copy, seed, 0));
    if (bytes >= sizeof(struct pst_segment_tail))
        pst_assert(!pst_segment_tail_good((const void *)copy, seed, 0, SEGMENT_BYTES));
    free(copy);
}

static struct pst_log_value value_of(struct fuzz *in)
{
    static uint8_t names[PST_KEY_BYTES_MAX + PST_ATTR_BYTES_MAX];

    return (struct pst_log_value){
        .key = {names, fuzz_below(in, 300) + 1},
        .attrs = {names + PST_KEY_BYTES_MAX, fuzz_below(in, PST_ATTR_BYTES_MAX + 1)},
        .generation = fuzz_number(in, 8) & INT64_MAX,
        .value_bytes = fuzz_below(in, SEGMENT_BYTES / 2),
        .value_crc = (uint32_t)fuzz_number(in, 4),
        .depth = (uint16_t)fuzz_number(in, 2),
        .flags = fuzz_number(in, 1) & 31,
        .copies = fuzz_number(in, 1) & 7};
}

static void assert_same(const struct pst_log_any *any, const struct pst_log_value *v, uint32_t offset,
                        uint32_t crc)
{
    const struct pst_log_value *is = &any->value;

    pst_assert(pst_bytes_equal(is->key, v->key) && pst_bytes_equal(is->attrs, v->attrs));
    pst_assert(is->generation == v->generation && is->value_bytes == v->value_bytes && is->depth == v->depth);
    pst_assert(is->value_crc == v->value_crc && is->flags == v->flags && is->copies == v->copies);
    pst_assert(any->offset == offset && any->crc == crc);
}

/* A group whose head may say anything of itself, but is sealed. */
static void sealed(struct fuzz *in)
{
    uint8_t *buffer = calloc(1, PST_LOG_HEAD_BYTES_MAX);
    struct pst_group_head *head = (void *)buffer;
    uint32_t count = fuzz_below(in, ENTRIES_MAX + 1), at = sizeof(*head);
    struct pst_log_any any;
    bool good;

    pst_assert(buffer);
    for (uint32_t i = 0; i < count; i++) {
        struct pst_log_value v = value_of(in);
        uint32_t offset = fuzz_below(in, SEGMENT_BYTES / 2), crc = (uint32_t)fuzz_number(in, 4);
        struct pst_bytes one = {buffer + at, pst_log_entry_put(buffer + at, &v, offset, crc)};

        at += (uint32_t)one.len;
        if (v.generation >= PST_GENERATION_LOG_MAX) {
            pst_assert(pst_log_entry_next(&one, SEGMENT_BYTES, &any) == -EBADMSG);
            continue;
        }
        pst_assert(pst_log_entry_next(&one, SEGMENT_BYTES, &any) == PST_LOG_VALUE && one.len == 0);
        assert_same(&any, &v, offset, crc);
    }
    *head = (struct pst_group_head){.offset = (uint32_t)fuzz_number(in, 3),
                                    .bytes = (uint32_t)fuzz_number(in, 3),
                                    .used_bytes = at,
                                    .entries_bytes = at - (uint32_t)sizeof(*head),
                                    .entry_count = count};
    if (fuzz_number(in, 1) & 1)
        head->entries_bytes = (uint32_t)fuzz_number(in, 4);
    pst_group_seal(head, seed);
    good = pst_group_good(head, PST_LOG_HEAD_BYTES_MAX, seed, SEGMENT_BYTES);
    pst_assert(!pst_group_good(head, at - 1, seed, SEGMENT_BYTES) &&
               !pst_group_good(head, at, seed + 1, SEGMENT_BYTES));
    if (good)
        walk((struct pst_bytes){head + 1, head->entries_bytes});
    buffer[fuzz_below(in, at)] ^= (uint8_t)(1 + fuzz_below(in, 255));
    pst_assert(!pst_group_good(head, PST_LOG_HEAD_BYTES_MAX, seed, SEGMENT_BYTES));
    free(buffer);
}

static void ends(struct fuzz *in)
{
    struct pst_segment_tail tail = {.index_offset = (uint32_t)fuzz_number(in, 4),
                                    .index_bytes = (uint32_t)fuzz_number(in, 4)};
    struct pst_segment_head head = {.sequence = fuzz_number(in, 8), .version = (uint32_t)fuzz_number(in, 1)};

    pst_segment_tail_seal(&tail, seed);
    if (pst_segment_tail_good(&tail, seed, 0, SEGMENT_BYTES))
        pst_assert((uint64_t)tail.index_offset + tail.index_bytes <= SEGMENT_BYTES - PST_LOG_ALIGN_BYTES);
    pst_segment_head_seal(&head, seed);
    pst_assert(pst_segment_head_good(&head, seed, 0) == (head.version == PST_LOG_VERSION));
    pst_assert(!pst_segment_head_good(&head, seed, 1));
    ((uint8_t *)&head)[fuzz_below(in, sizeof(head))] ^= (uint8_t)(1 + fuzz_below(in, 255));
    pst_assert(!pst_segment_head_good(&head, seed, 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz in = {data, bytes};

    switch (fuzz_number(&in, 1) % 3) {
    case 0:
        raw(&in);
        break;
    case 1:
        sealed(&in);
        break;
    default:
        ends(&in);
    }
    return 0;
}

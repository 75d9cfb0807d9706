/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format.h: how a log lies on disk. Little-endian; offsets from the segment's start, in bytes; what
 * begins on a block of 4 KiB is marked |.
 *
 *   segment     | struct pst_segment_head, twice (a block each)
 *               | groups, one behind the other
 *               | entries of all groups (the index), then in the last block struct pst_segment_tail: once it
 * is full
 *
 *   group       | struct pst_group_head
 *                 entries
 *                 checksums, for a value of more than one block: alone in its group, with one for each block
 *               | values that lay in memory as they liked, each at a multiple of 64
 *               | values of whole blocks, each
 *
 *   entry         struct pst_log_entry, key, attributes, to the next multiple of 8
 *               or struct pst_log_tombstone: one value is dead
 *
 * Heads, tails and indexes are believed when their keyed hash is right: no value that is stored can pose as
 * one, nor what a former use of the segment has left, for all carry the segment's sequence, which is never
 * used twice.
 */
#ifndef PST_LOG_FORMAT_H
#define PST_LOG_FORMAT_H

#include "log/value.h"

enum {
    PST_LOG_VERSION = 1,
    PST_LOG_ALIGN_BYTES = 4096,
    PST_LOG_PACK_BYTES = 64,
    PST_LOG_HEAD_BYTES_MAX = 64 << 10, /* head, entries and checksums of a group */
    PST_LOG_DATA_AT = 2 * PST_LOG_ALIGN_BYTES,
};

#define PST_SEGMENT_MAGIC 0x676573747370ull /* "pstseg" */
#define PST_GROUP_MAGIC   0x707267747370ull /* "pstgrp" */
#define PST_TAIL_MAGIC    0x786469747370ull /* "pstidx" */

_Static_assert(PST_LOG_HEAD_BYTES_MAX % PST_LOG_ALIGN_BYTES == 0, "a group's head is whole blocks");
_Static_assert(PST_LOG_BLOCK_BYTES % PST_LOG_ALIGN_BYTES == 0, "checksums are of whole blocks");
_Static_assert(PST_LOG_ALIGN_BYTES % PST_LOG_PACK_BYTES == 0, "packed values fill blocks");

enum pst_segment_use {
    PST_SEGMENT_HEAD_FREE, /* whatever lies behind */
    PST_SEGMENT_HEAD_USED,
    PST_SEGMENT_HEAD_FAILED, /* as free, but never to be used again */
};

struct pst_segment_head {
    uint64_t magic;
    uint64_t check; /* of what follows */
    uint64_t sequence;
    uint32_t version;
    uint32_t segment; /* its number: a file under another name is not believed */
    uint32_t in_use;  /* enum pst_segment_use */
    uint32_t lane;
};
_Static_assert(sizeof(struct pst_segment_head) == 40, "segment head layout");

struct pst_group_head {
    uint64_t magic;
    uint64_t check; /* of what follows, to the end of the checksums */
    uint64_t sequence;
    uint32_t segment;
    uint32_t offset;     /* its own */
    uint32_t bytes;      /* with the values; a multiple of 4096 */
    uint32_t used_bytes; /* head, entries, checksums */
    uint32_t entries_bytes;
    uint32_t entry_count;
};
_Static_assert(sizeof(struct pst_group_head) == 48, "group head layout");

struct pst_segment_tail {
    uint64_t magic;
    uint64_t check; /* of what follows */
    uint64_t sequence;
    uint64_t index_check; /* of the index */
    uint32_t segment;
    uint32_t index_offset;
    uint32_t index_bytes;
    uint32_t entry_count;
};
_Static_assert(sizeof(struct pst_segment_tail) == 48, "segment tail layout");

enum pst_log_kind { PST_LOG_VALUE = 1, PST_LOG_TOMBSTONE = 2 };

struct pst_log_entry {
    uint64_t generation;
    uint64_t value_bytes;
    uint32_t offset; /* the place's: the value's, or with checksums the group's */
    uint32_t crc;    /* of the value; with checksums, of these */
    uint32_t value_crc;
    uint32_t era;
    uint16_t key_bytes;
    uint16_t attr_bytes;
    uint16_t depth;
    uint8_t flags : 5;
    uint8_t copies : 3; /* earlier programs look at none of these bits, and write 0 */
    uint8_t kind;
};
_Static_assert(sizeof(struct pst_log_entry) == 40, "entry layout");

enum {
    PST_TOMBSTONE_EXACT = 1,  /* kills this copy alone: neither earlier generations nor one elsewhere */
    PST_TOMBSTONE_FAILED = 2, /* its segment takes no more: a later copy there would be dead, too */
};

struct pst_log_tombstone {
    uint64_t generation; /* of the dead value; older ones of its key are dead, too, in its era and before */
    uint64_t key_hash;
    uint64_t target_sequence; /* of the segment that has it */
    uint32_t target_segment;
    uint32_t key_check; /* another hash */
    uint32_t era;       /* later ones' copies it does not kill */
    uint16_t zeros;
    uint8_t flags;
    uint8_t kind;
};
_Static_assert(sizeof(struct pst_log_tombstone) == 40, "tombstone layout");
_Static_assert(offsetof(struct pst_log_tombstone, kind) == offsetof(struct pst_log_entry, kind), "one place");

static inline bool pst_log_one_block(uint64_t value_bytes)
{
    return value_bytes <= PST_LOG_BLOCK_BYTES;
}

static inline uint64_t pst_log_entry_bytes(size_t key_bytes, size_t attr_bytes)
{
    return pst_round_up(sizeof(struct pst_log_entry) + key_bytes + attr_bytes, 8);
}

/* Where a value of several blocks begins behind its place. */
static inline uint64_t pst_log_large_at(const struct pst_log_value *v)
{
    pst_assert(!pst_log_one_block(v->value_bytes));
    return pst_round_up(sizeof(struct pst_group_head) + pst_log_entry_bytes(v->key.len, v->attrs.len) +
                            4 * pst_div_up(v->value_bytes, PST_LOG_BLOCK_BYTES),
                        PST_LOG_ALIGN_BYTES);
}

/* ---- seal: fill in `check`; open: whether what lies there is that. @seed is the store's. ---- */

void pst_segment_head_seal(struct pst_segment_head *head, uint64_t seed);
bool pst_segment_head_good(const struct pst_segment_head *head, uint64_t seed, uint32_t segment);

void pst_group_seal(struct pst_group_head *head, uint64_t seed);
/* @room: bytes that lie there. Entries of a good group may be walked. */
bool pst_group_good(const struct pst_group_head *head, uint64_t room, uint64_t seed, uint64_t segment_bytes);

void pst_segment_tail_seal(struct pst_segment_tail *tail, uint64_t seed);
bool pst_segment_tail_good(const struct pst_segment_tail *tail, uint64_t seed, uint32_t segment,
                           uint64_t segment_bytes);
uint64_t pst_log_index_check(const void *entries, uint64_t bytes, uint64_t seed);

/* ---- entries ---- */

/* Room for an entry is the caller's. Return: its bytes. */
uint64_t pst_log_entry_put(void *to, const struct pst_log_value *value, uint32_t offset, uint32_t crc);
/*
 * The entry at the front of @entries, which it takes away. Return: PST_LOG_VALUE and *@value with *@offset
 * and *@crc; PST_LOG_TOMBSTONE and *@tombstone; 0: the end; -EBADMSG.
 */
struct pst_log_any {
    struct pst_log_value value;
    uint32_t offset, crc;
    struct pst_log_tombstone tombstone;
};
int pst_log_entry_next(struct pst_bytes *entries, uint64_t segment_bytes, struct pst_log_any *any);

#endif

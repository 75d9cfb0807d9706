/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record.h: how a value is described inside an arena. Little-endian, position independent, 8-byte aligned.
 *
 *   struct pst_record          32 bytes
 *   struct pst_recency         24 bytes, only of those that pst_record_listed() names
 *   struct pst_log_place       8 bytes, only with PST_RECORD_TIERED: where the log has a copy
 *   key                        key_bytes
 *   attributes                 attr_bytes
 *   (to the next multiple of 8; with PST_RECORD_EXPIRES the last 8 bytes of that are its time)
 *   value                      value_bytes, or with PST_RECORD_EXTERNAL:
 *   struct pst_external        16 bytes, then run_count times struct pst_run
 *
 * `check` covers the record's offset and everything but itself, `state`, the recency links and the place. It
 * is written last and cleared first, so that a reader of a dead process's arena takes neither half a record
 * for a whole one nor what is left of one, or a copy of its bytes, for one that is there.
 *
 * A value that lies in the log alone has a *stub*, with PST_RECORD_ON_DISK: the record, whose checksum gives
 * way to the place, key and attributes, and nothing else. A restart gets it back from the log.
 *
 * One in device memory has PST_RECORD_ON_DEVICE: in its value's place is a struct pst_device_runs, 8 bytes,
 * then run_count times struct pst_run, of pages of the device. The process takes it along when it ends.
 */
#ifndef PST_STORE_RECORD_H
#define PST_STORE_RECORD_H

#include "base/base.h"
#include "base/limits.h"
#include "log/value.h"
#include "mem/pages.h"
#include "store/recency.h"

enum {
    PST_INLINE_BYTES_MAX = 2048, /* larger values lie outside of their record */
    PST_DEPTH_NONE = 0xffff,
    PST_RECORD_ATTRS_MASK = (1 << 13) - 1,
};
_Static_assert((int)PST_ATTR_BYTES_MAX <= (int)PST_RECORD_ATTRS_MASK, "13 bits");

#define PST_VALUE_BYTES_MASK ((1ull << 48) - 1)

enum { /* flags: kept */
       PST_RECORD_EXTERNAL = 1,
       PST_RECORD_CACHE = 2,    /* may be evicted */
       PST_RECORD_CHECKSUM = 4, /* value_crc holds the writer's crc32c */
       PST_RECORD_ON_DISK = 8,  /* a stub */
       PST_RECORD_TIERED = 16,  /* the store has a log, which takes it; not together with an end */
       PST_RECORD_EXPIRES = 32, /* the last 8 bytes before the body are when, in ms of the real-time clock */
       PST_RECORD_ON_DEVICE = 64, /* the value is in device memory; not together with an end */
};

enum {                          /* state: of this process only */
       PST_RECORD_PINNED = 1,   /* the shard's pin table has an entry */
       PST_RECORD_UNLINKED = 2, /* no longer in the index; freed with its last reference */
       PST_RECORD_UNVERIFIED =
           8,                   /* of an earlier process; its bytes have not been checked against value_crc */
       PST_RECORD_USED_AT = 16, /* in the upper half: when the value was wanted last and did not move up, as
                                   pst_rounds.round; of a stub also when it was in memory; 0: not yet */
};

struct pst_record {
    union {
        uint32_t check;
        uint32_t stub_offset;
    };
    uint32_t value_crc; /* with PST_RECORD_CHECKSUM the writer's; of a value of one block with a place: the
                           log's */
    uint64_t generation;
    uint64_t value_bytes : 48;
    uint64_t stub_segment : 16;
    uint16_t key_bytes;
    uint16_t attr_bytes : 13;
    uint16_t copies : 3; /* that a pool shall have; 0: what it says of the prefix */
    uint16_t depth;
    uint8_t flags;
    uint8_t state;
};
_Static_assert(sizeof(struct pst_record) == 32, "record layout");

_Static_assert(PST_DEPTH_NONE == UINT16_MAX, "a record's depth");
_Static_assert(2 * PST_RECORD_ON_DEVICE - 1 <= UINT8_MAX, "flags are 8 bits");

struct pst_external {
    uint64_t tail_offset; /* slab cell of the last bytes; meaningless when tail_bytes is 0 */
    uint32_t tail_bytes;
    uint32_t run_count;
};
_Static_assert(sizeof(struct pst_external) == 16, "external layout");

struct pst_device_runs {
    uint32_t run_count, spare;
    struct pst_run runs[];
};
_Static_assert(sizeof(struct pst_device_runs) == 8, "device layout");

/* Whether the value's bytes are elsewhere than in the arenas. */
static inline bool pst_record_away(const struct pst_record *r)
{
    return r->flags & (PST_RECORD_ON_DISK | PST_RECORD_ON_DEVICE);
}

/* Whether the record is in its shard's recency list: it may be evicted, or go to the log. */
static inline bool pst_record_listed(uint8_t flags)
{
    const uint8_t spills = PST_RECORD_TIERED | PST_RECORD_EXTERNAL;

    return !(flags & (PST_RECORD_ON_DISK | PST_RECORD_ON_DEVICE)) &&
           (flags & PST_RECORD_CACHE || (flags & spills) == spills);
}

static inline struct pst_recency *pst_record_recency(const struct pst_record *r)
{
    pst_assert(pst_record_listed(r->flags));
    return (struct pst_recency *)(r + 1);
}

static inline size_t pst_record_place_at(uint8_t flags)
{
    return sizeof(struct pst_record) + (pst_record_listed(flags) ? sizeof(struct pst_recency) : 0);
}

static inline size_t pst_record_key_at(uint8_t flags)
{
    bool place = flags & PST_RECORD_TIERED && !(flags & PST_RECORD_ON_DISK);

    return pst_record_place_at(flags) + (place ? sizeof(struct pst_log_place) : 0);
}

static inline struct pst_bytes pst_record_key(const struct pst_record *r)
{
    return (struct pst_bytes){(const uint8_t *)r + pst_record_key_at(r->flags), r->key_bytes};
}

static inline struct pst_bytes pst_record_attrs(const struct pst_record *r)
{
    struct pst_bytes key = pst_record_key(r);

    return (struct pst_bytes){(const uint8_t *)key.data + key.len, r->attr_bytes};
}

/* Where the value or the external part begins, from the record's start. */
static inline size_t pst_record_body_at(uint8_t flags, size_t key_bytes, size_t attr_bytes)
{
    return pst_round_up(
        pst_record_key_at(flags) + key_bytes + attr_bytes + (flags & PST_RECORD_EXPIRES ? 8 : 0), 8);
}

static inline void *pst_record_body(const struct pst_record *r)
{
    return (uint8_t *)(uintptr_t)r + pst_record_body_at(r->flags, r->key_bytes, r->attr_bytes);
}

static inline uint64_t pst_record_expires_ms(const struct pst_record *r)
{
    pst_assert(r->flags & PST_RECORD_EXPIRES);
    return ((const uint64_t *)pst_record_body(r))[-1];
}

static inline void pst_record_set_expiry(struct pst_record *r, uint64_t ms)
{
    pst_assert(r->flags & PST_RECORD_EXPIRES);
    ((uint64_t *)pst_record_body(r))[-1] = ms;
}

static inline struct pst_external *pst_record_external(const struct pst_record *r)
{
    pst_assert(r->flags & PST_RECORD_EXTERNAL);
    return pst_record_body(r);
}

static inline struct pst_run *pst_external_runs(const struct pst_external *e)
{
    return (struct pst_run *)(e + 1);
}

static inline struct pst_device_runs *pst_record_device_runs(const struct pst_record *r)
{
    pst_assert(r->flags & PST_RECORD_ON_DEVICE);
    return pst_record_body(r);
}

static inline size_t pst_record_bytes(const struct pst_record *r)
{
    size_t body_at = pst_record_body_at(r->flags, r->key_bytes, r->attr_bytes);

    if (r->flags & PST_RECORD_ON_DISK)
        return body_at;
    if (r->flags & PST_RECORD_ON_DEVICE)
        return body_at + sizeof(struct pst_device_runs) +
               pst_record_device_runs(r)->run_count * sizeof(struct pst_run);
    if (!(r->flags & PST_RECORD_EXTERNAL))
        return body_at + r->value_bytes;
    return body_at + sizeof(struct pst_external) + pst_record_external(r)->run_count * sizeof(struct pst_run);
}

#endif

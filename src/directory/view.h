/*
 * view.h: the only state of a pool that must last: who is a member, which prefixes have which placement, and
 * who has each slot. Pure; whoever holds a view reads it, the directory alone makes new ones.
 *
 * Members have numbers, which slots and the directory's keys refer to. A number is taken again only when
 * nothing in the view refers to it; who keeps a number keeps the epoch with it.
 */
#ifndef PST_VIEW_H
#define PST_VIEW_H

#include "base/base.h"
#include "wire/route.h"

enum {
    PST_VIEW_COPIES_MAX = 4, /* of a slot, the primary among them */
    PST_VIEW_PREFIXES_MAX = 64,
    PST_VIEW_PREFIX_BYTES_MAX = 255,
    PST_VIEW_ADDRESS_BYTES = 128, /* texts are with their NUL */
    PST_VIEW_TAGS_BYTES = 64,
    PST_VIEW_MEMBERS_MAX = 8192,
    PST_VIEW_NONE = UINT16_MAX,
};

struct pst_id {
    uint8_t bytes[16];
};

struct pst_view_member {
    struct pst_id id;   /* the node's, the same after a restart */
    struct pst_id host; /* copies lie on distinct ones; nobody is nearer than who shares it */
    uint64_t epoch;     /* of this membership; 0: nobody has the number */
    uint64_t start;     /* the process, by a number that it drew */
    uint64_t page_bytes;
    bool gone;                            /* ended, and slots wait for its return */
    bool drains;                          /* it is to be needed for nothing any more */
    char address[PST_VIEW_ADDRESS_BYTES]; /* host:port */
    char unix_path[PST_VIEW_ADDRESS_BYTES];
    char tags[PST_VIEW_TAGS_BYTES];
};

enum pst_view_state {
    PST_VIEW_EMPTY,      /* nobody has it */
    PST_VIEW_SERVED,     /* by copies[0], with a lease; the others have all that it acknowledged */
    PST_VIEW_INCOMPLETE, /* all copies are gone or silent; any of them may come back with what it kept. Or
                            it was dealt out anew, and is not taken yet: pst_view_slot_dealt() */
};

struct pst_view_slot {
    uint64_t epoch; /* more with every change */
    uint64_t base;  /* the epoch in which it was dealt out empty: what was written before is void */
    uint8_t state;
    bool lost; /* values were: a key that is not found is LOST */
    uint8_t copy_count;
    uint8_t sparse; /* of an INCOMPLETE one: so many, the last, are back with what was durable alone */
    uint16_t copies[PST_VIEW_COPIES_MAX];
};

enum pst_placement {
    PST_PLACE_ANYWHERE,
    PST_PLACE_HOME,
};

struct pst_view_prefix {
    uint8_t placement;
    uint8_t replicas; /* copies that a value should have; a slot has as many as the highest of `home` */
    uint8_t bytes;
    char text[PST_VIEW_PREFIX_BYTES_MAX];
};

struct pst_view {
    uint64_t version;    /* one more with every view that is stored */
    uint64_t term;       /* one more with every directory that began from the stored view */
    uint64_t epoch_next; /* of members */
    uint64_t seed;       /* of fingerprints and slots */
    uint32_t members_max;
    uint32_t prefix_count;
    struct pst_view_prefix prefixes[PST_VIEW_PREFIXES_MAX]; /* in order */
    struct pst_view_slot slots[PST_SLOTS];
    struct pst_view_member members[];
};

/* An empty one, of version 0. Return: 0 or -ENOMEM. */
int pst_view_open(uint32_t members_max, uint64_t seed, struct pst_view **out);
struct pst_view *pst_view_close(struct pst_view *view);
/* Both have the same members_max. */
void pst_view_copy(struct pst_view *to, const struct pst_view *from);

/* The number of the member with that id; PST_VIEW_NONE: there is none. */
uint16_t pst_view_find(const struct pst_view *view, const struct pst_id *id);
/* The longest prefix that @key has; NULL: none, and it may lie anywhere. */
const struct pst_view_prefix *pst_view_prefix_of(const struct pst_view *view, struct pst_bytes key);
/* Copies that a slot should have: what the `home` prefixes want at most; 0: there are none. */
uint32_t pst_view_replicas(const struct pst_view *view);
/* A copy's place among a slot's copies; -1: it has none. */
int pst_view_copy_at(const struct pst_view_slot *slot, uint16_t member);

static inline uint32_t pst_view_slot_of(const struct pst_view *view, struct pst_bytes key)
{
    return (uint32_t)pst_hash64(key.data, key.len, view->seed) & (PST_SLOTS - 1);
}

/* It was given up, and dealt out anew to its one copy, which takes it when it has dropped what it had of
 * before. */
static inline bool pst_view_slot_dealt(const struct pst_view_slot *slot)
{
    return slot->state == PST_VIEW_INCOMPLETE && slot->base == slot->epoch;
}

static inline bool pst_id_equal(const struct pst_id *a, const struct pst_id *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

/*
 * As bytes, docs/protocol.md's numbers (little-endian) without padding. Texts and prefixes are a byte for the
 * length and that many bytes.
 *
 *   u32 "pstv"  u16 format, 1  u16 prefixes  u32 members  u64 version, term, epoch_next, seed
 *
 *   each prefix: u8 placement, replicas  text
 *
 *   each member: u16 number  u8 1 gone, 2 drains  16 id  16 host  u64 epoch, start, page_bytes
 *                texts: address, unix path, tags
 *
 *   4096 slots:  u64 epoch, base  u8 state  u8 1 lost, 2 * sparse  u8 copies  u16 each copy
 *
 *   u32 crc32c of all before
 */
size_t pst_view_encode(const struct pst_view *view, uint8_t *to, size_t cap); /* 0: @cap is too small */
size_t pst_view_bytes_max(uint32_t members_max);
/*
 * A view with room for @members_max. Return: 0, -EBADMSG damaged or not one that a directory makes,
 * -EPROTONOSUPPORT another format, -E2BIG it has members with higher numbers, -ENOMEM.
 */
int pst_view_decode(struct pst_bytes from, uint32_t members_max, struct pst_view **out);

#endif

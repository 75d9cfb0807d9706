/* SPDX-License-Identifier: Apache-2.0 */
/*
 * map.h: the only state of a pool that must last: who is a member, which prefixes have which placement, and
 * who has each partition. Pure; whoever holds a pool map reads it, the directory alone makes new ones.
 *
 * Members have numbers, which partitions and the directory's keys refer to. A number is taken again only when
 * nothing in the pool map refers to it; who keeps a number keeps the epoch with it.
 */
#ifndef PST_MAP_H
#define PST_MAP_H

#include "base/base.h"
#include "wire/route.h"

enum {
    PST_MAP_REPLICAS_MAX = 4, /* of a partition, the primary among them */
    PST_MAP_PREFIXES_MAX = 64,
    PST_MAP_PREFIX_BYTES_MAX = 255,
    PST_MAP_ADDRESS_BYTES = 128, /* texts are with their NUL */
    PST_MAP_TAGS_BYTES = 64,
    PST_MAP_MEMBERS_MAX = 16384,
    PST_MAP_SHARES_MAX = 64, /* of the directory */
    PST_MAP_NONE = UINT16_MAX,
};

struct pst_id {
    uint8_t bytes[16];
};

struct pst_map_member {
    struct pst_id id;   /* the node's, the same after a restart */
    struct pst_id host; /* replicas lie on distinct ones; no other node is nearer than one that shares it */
    uint64_t epoch;     /* of this membership; 0: nobody has the number */
    uint64_t start;     /* the process, by a number that it drew */
    uint64_t page_bytes;
    uint64_t kept_epoch; /* of the membership whose values it began with; 0: of none, or it has been heard */
    bool gone;           /* ended, and partitions wait for its return */
    bool drains;         /* it is to be needed for nothing any more */
    char address[PST_MAP_ADDRESS_BYTES]; /* host:port */
    char unix_path[PST_MAP_ADDRESS_BYTES];
    char tags[PST_MAP_TAGS_BYTES];
};

enum pst_map_state {
    PST_MAP_EMPTY,      /* nobody has it */
    PST_MAP_SERVED,     /* by replicas[0], with a lease; the others have all that it acknowledged */
    PST_MAP_INCOMPLETE, /* all replicas are gone or silent; any may come back with what it kept. Or
                            it was dealt out anew, and is not taken yet: pst_map_partition_dealt() */
};

struct pst_map_partition {
    uint64_t epoch; /* more with every change; its upper bits are pst_map_lineage() */
    uint64_t base;  /* the epoch in which it was dealt out empty: what was written before is void */
    uint8_t state;
    bool lost; /* values were: a key that is not found is LOST */
    uint8_t replica_count;
    uint8_t sparse; /* of an INCOMPLETE one: so many, the last, are back with what was durable alone */
    uint16_t replicas[PST_MAP_REPLICAS_MAX];
};

enum pst_placement {
    PST_PLACE_ANYWHERE,
    PST_PLACE_HOME,
};

struct pst_map_prefix {
    uint8_t placement;
    uint8_t replicas; /* that a value should have; a partition has as many as the highest of `home` */
    uint8_t bytes;
    char text[PST_MAP_PREFIX_BYTES_MAX];
};

static inline struct pst_bytes pst_map_prefix_text(const struct pst_map_prefix *prefix)
{
    return (struct pst_bytes){prefix->text, prefix->bytes};
}

/* Who has a share of the directory's keys. The first share is the leading master's, wherever that is. */
struct pst_map_share {
    uint64_t start; /* the process, by a number that it drew; 0: nobody has taken the share yet */
    char address[PST_MAP_ADDRESS_BYTES];
};

struct pst_map {
    struct pst_id pool;  /* drawn when the pool began: nothing that follows means anything in another one */
    uint64_t version;    /* one more with every pool map that is stored */
    uint64_t term;       /* one more with every directory that began from the stored pool map */
    uint64_t epoch_next; /* of members */
    uint64_t seed;       /* of fingerprints and partitions */
    uint32_t members_max;
    uint32_t prefix_count;
    struct pst_map_prefix prefixes[PST_MAP_PREFIXES_MAX]; /* in order */
    uint32_t share_count;                                 /* 1: the leading master has all keys */
    struct pst_map_share shares[PST_MAP_SHARES_MAX];
    struct pst_map_partition partitions[PST_PARTITIONS];
    struct pst_map_member members[];
};

/* An empty one, of version 0. Return: 0 or -ENOMEM. */
int pst_map_open(uint32_t members_max, uint64_t seed, struct pst_map **out);
struct pst_map *pst_map_close(struct pst_map *map);
/* Both have the same members_max. */
void pst_map_copy(struct pst_map *to, const struct pst_map *from);

/* The number of the member with that id; PST_MAP_NONE: there is none. */
uint16_t pst_map_find(const struct pst_map *map, const struct pst_id *id);
/* The longest prefix that @key has; NULL: none, and it may lie anywhere. */
const struct pst_map_prefix *pst_map_prefix_of(const struct pst_map *map, struct pst_bytes key);
/* Replicas that a partition should have: what the `home` prefixes want at most; 0: there are none. */
uint32_t pst_map_replicas(const struct pst_map *map);
/* The member's place among a partition's replicas; -1: it has none. */
int pst_map_replica_at(const struct pst_map_partition *partition, uint16_t member);

/* Its epochs, state and replicas go together, and its replicas are members': one that a directory may make.
 */
bool pst_map_partition_is_good(const struct pst_map *map, const struct pst_map_partition *partition);

static inline uint32_t pst_map_partition_of(const struct pst_map *map, struct pst_bytes key)
{
    return (uint32_t)pst_hash64(key.data, key.len, map->seed) & (PST_PARTITIONS - 1);
}

/* The share that a key's fingerprint falls to, by bits that no table of a directory looks at. */
static inline uint32_t pst_map_share_of(const struct pst_hash128 *key, uint32_t share_count)
{
    return (uint32_t)((key->high >> 8 & UINT32_MAX) * share_count >> 32);
}

/* It was given up, and dealt out anew to one replica, which takes it when it has dropped what it had of
 * before. */
static inline bool pst_map_partition_dealt(const struct pst_map_partition *partition)
{
    return partition->state == PST_MAP_INCOMPLETE && partition->base == partition->epoch;
}

enum { PST_MAP_LINEAGE_SHIFT = 16 };

/* Within one lineage the partition's primary changes by hand-overs alone: each primary has all that the
 * one before it had, and no other replica has more. */
static inline uint64_t pst_map_lineage(uint64_t partition_epoch)
{
    return partition_epoch >> PST_MAP_LINEAGE_SHIFT;
}

enum { PST_ID_TEXT_BYTES = 2 * sizeof(struct pst_id) + 1 };

/* As hexadecimal digits, and from as many of them. Return: 0, -EINVAL. */
void pst_id_print(const struct pst_id *id, char text[PST_ID_TEXT_BYTES]);
int pst_id_parse(const char *text, struct pst_id *id);

static inline bool pst_id_equal(const struct pst_id *a, const struct pst_id *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

/*
 * As bytes, docs/reference/protocol.md's numbers (little-endian) without padding. Texts and prefixes are a
 * byte for the length and that many bytes.
 *
 *   u32 "pstv"  u16 format, 2 or 3  u16 prefixes  u32 members  16 pool  u64 version, term, epoch_next, seed
 *
 *   each prefix: u8 placement, replicas  text
 *
 *   each member: u16 number  u8 1 gone, 2 drains, 4 kept  16 id  16 host  u64 epoch, start, page_bytes
 *                texts: address, unix path, tags  if kept, as in a stored one alone: u64 kept_epoch
 *
 *   4096 partitions:  u64 epoch, base  u8 state  u8 1 lost, 2 * sparse  u8 replicas  u16 each one's member
 *
 *   format 3, which is that of several shares:  u16 shares, each but the first: u64 start  text: address
 *
 *   u32 crc32c of all before
 */
size_t pst_map_encode(const struct pst_map *map, uint8_t *to, size_t cap); /* 0: @cap is too small */
/* With what the next directory alone is to know; others need not be able to read it. */
size_t pst_map_encode_stored(const struct pst_map *map, uint8_t *to, size_t cap);
size_t pst_map_bytes_max(uint32_t members_max);
/*
 * A pool map with room for @members_max. Return: 0, -EBADMSG damaged or not one that a directory makes,
 * -EPROTONOSUPPORT another format, -E2BIG it has members with higher numbers, -ENOMEM.
 */
int pst_map_decode(struct pst_bytes from, uint32_t members_max, struct pst_map **out);

#endif

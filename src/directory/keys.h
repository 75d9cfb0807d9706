/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keys.h: which member holds a key, in bounded bytes: one shard of the directory's table. One thread at a
 * time. A key is named by its *fingerprint*, a pst_hash128() keyed by the pool's seed. Advice only: a key
 * that did not fit is missing, and nobody acts on a place before its owner has compared the whole key.
 *
 * An entry is a key at one member, on the tier that was told last, 32 bytes. It carries the member's *round*,
 * a number that only grows; entries of a round before the oldest that counts are not there any more, whenever
 * the sweep comes by. So a member's end costs one assignment, and a full report replaces what was known in
 * one step.
 */
#ifndef PST_KEYS_H
#define PST_KEYS_H

#include "base/base.h"
#include "base/hash.h"

enum {
    PST_PLACES_MAX = 6,           /* of one key; more are not remembered */
    PST_KEYS_MEMBERS_MAX = 16384, /* members are numbered below */
};

struct pst_place {
    uint64_t generation;
    uint16_t member;
    uint8_t tier;
    uint8_t copies; /* that the key was put to have; 0: nobody has said */
};

struct pst_places {
    uint32_t count;
    struct pst_place items[PST_PLACES_MAX];
};

struct pst_keys;

/* @entries_max: the bound of what is remembered; those that do not count any more are beside it. Return: 0 or
 * -ENOMEM. */
int pst_keys_open(uint64_t entries_max, struct pst_keys **out);
struct pst_keys *pst_keys_close(struct pst_keys *keys);

/*
 * The key is at @place, and on no other tier of this member; of two generations there the newer is kept.
 * Return: 0, -ENOSPC at the bound, -EMLINK when PST_PLACES_MAX other places are known, -ENOMEM; what does not
 * fit is not remembered.
 */
int pst_keys_add(struct pst_keys *keys, struct pst_hash128 key, struct pst_place place);
/* The key has left the place's member, whatever its tier, with that generation and those before it. Where
 * else it is one copy is enough from now on: its node let go of it, since it was deleted, or is of the kind
 * that may be evicted. */
void pst_keys_remove(struct pst_keys *keys, struct pst_hash128 key, struct pst_place place);
/* Writes the places of each key; touches nothing that another look-up would notice. */
void pst_keys_look_up(const struct pst_keys *keys, const struct pst_hash128 *fingerprints, uint32_t count,
                      struct pst_places *places);

/* What is added from now on belongs to a new picture of the member; what was known stays beside it ... */
void pst_keys_begin(struct pst_keys *keys, uint16_t member);
/* ... until the picture is complete and alone counts. */
void pst_keys_complete(struct pst_keys *keys, uint16_t member);
/* Nothing that was known of the member counts any more. */
void pst_keys_forget(struct pst_keys *keys, uint16_t member);

/* Gives back what no longer counts, looking at @entries_max places in the table. Return: false when there is
 * nothing left to find. */
bool pst_keys_sweep(struct pst_keys *keys, uint64_t entries_max);

/* Entries, with those that no longer count until they are swept. */
uint64_t pst_keys_count(const struct pst_keys *keys);
uint64_t pst_keys_memory_bytes(const struct pst_keys *keys);

#endif

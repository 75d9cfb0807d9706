/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reserve_priv.h: room at members that puts underway were given, until it is reported as filled or its time
 * is over. Route.c reserves, members.c says what has come.
 */
#ifndef PST_DIRECTORY_RESERVE_PRIV_H
#define PST_DIRECTORY_RESERVE_PRIV_H

#include "directory/route.h"

struct pst_directory;

struct reservation {
    struct pst_hash128 key;
    uint64_t bytes;
    uint64_t expires_ns;
    uint64_t epoch;
    uint16_t member;
    uint8_t tier;   /* 0: met already */
    uint8_t copies; /* that the key is to have */
    uint32_t next;
};

/* In the order in which they expire, and by key; places are numbered from 1, modulo their number. */
struct reservations {
    struct reservation *items;
    uint32_t *heads;
    uint32_t max, head_mask;
    uint32_t first, count;
    uint64_t live;
};

int reserve_init(struct reservations *r, uint32_t max);
void reserve_fini(struct reservations *r);
void reserve_add(struct pst_directory *d, const struct pst_put *put, struct pst_place place, uint64_t now_ns);
/* Where the key's puts underway go. */
void reserve_find(const struct pst_directory *d, const struct pst_hash128 *key, struct pst_places *places);
/* The member has the key: what was reserved for it there is its use now. Return: how many copies its puts
 * underway are to make; 0: there are none. */
uint8_t reserve_met(struct pst_directory *d, const struct pst_hash128 *key, uint16_t member);
void reserve_tick(struct pst_directory *d, uint64_t now_ns);

#endif

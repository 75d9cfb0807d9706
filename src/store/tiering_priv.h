/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tiering_priv.h: what the engine asks of a shard's side of the log and the device. Files that evict, restore
 * or replace records include it; the functions are those of tier/. @tier may be NULL where said.
 */
#ifndef PST_STORE_TIERING_PRIV_H
#define PST_STORE_TIERING_PRIV_H

#include "base/base.h"

struct pst_record;
struct pst_shard;
struct pst_shard_later;
struct pst_store;
struct pst_tier;
struct pst_tier_options;
struct pst_device_options;
struct pst_shard_device;

int pst_tier_open(struct pst_store *store, const struct pst_tier_options *options,
                  const struct pst_device_options *device, const char **fault);
/* Brings what is in memory to the log, and waits until nothing is underway: the last that shards do. Again:
 * nothing. Return: 0, or why the first value that could not be written was not. */
int pst_tiers_settle(struct pst_store *store);
/* Settles them, and lets go of the log. */
void pst_tier_close(struct pst_store *store);
/* True when the record's memory can be had by moving its value to the log, or is there already. May be NULL.
 */
bool pst_tier_takes(const struct pst_tier *tier, const struct pst_record *r);
/* Does that, or begins to. Return: false: not now. */
bool pst_tier_demote(struct pst_tier *tier, struct pst_record *r, uint64_t now_ns);
/* True when there will be room for a write of @pages by itself. */
bool pst_tier_relieves(const struct pst_shard *s, uint32_t pages, uint64_t now_ns);
/* True when no more demotions can begin for now. May be NULL. */
bool pst_tier_busy(const struct pst_tier *tier);
/* Adds what the log as a whole has to tell. */
void pst_tier_figures(const struct pst_store *store, struct pst_shard_later *out);
/* @r has taken @old's place: what the log has of @old stays until it has @r. */
void pst_tier_supersede(struct pst_tier *tier, struct pst_record *old, const struct pst_record *r);
/* The record's key has gone, or has another value. */
void pst_tier_forget(struct pst_tier *tier, const struct pst_record *r);
/* A record has become its key's: its value may move up. */
void pst_tier_offer(struct pst_tier *tier, struct pst_record *r);
/* The same of one that would have to leave memory. Return: true: it does, and its memory comes back soon. */
bool pst_tier_lift(struct pst_tier *tier, struct pst_record *r);
/* A record whose value is on the device lies here now; its part of the device is free. */
void pst_tier_moved(struct pst_tier *tier, struct pst_record *r);
void pst_tier_give_device(struct pst_tier *tier, const struct pst_record *r);
/* Carries on what the device has underway, for those who poll seldom. May be NULL. */
void pst_tier_tick(struct pst_tier *tier, uint64_t now_ns);
void pst_tier_device_figures(const struct pst_tier *tier, struct pst_shard_device *out);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* runs.h: what the runs of soak_tier share. */
#ifndef RUNS_H
#define RUNS_H

#include "host.h"
#include "keeper.h"

struct order {
    const char *folder, *plant, *penstockd, *faulty_penstockd;
    uint64_t seed, end_ns;
};

/* However slow the machine, some rounds. */
bool goes_on(const struct order *o, const struct keeper *k, uint64_t round);
/* A number that follows from the order's seed. */
uint64_t dice(const struct order *o, uint64_t stream, uint64_t number);
struct host host_of(const struct order *o);
/* Waits until all clients have found what they may; @h: in that node. */
void await_settled(struct keeper *k, struct host *h);
void new_ssd(const char *folder);
void embedded_url(const struct order *o, const char *driver, uint64_t shards, char url[700]);
/* Return: whether the store is open. */
bool open_embedded(struct keeper *k, struct penstock **out);

int run_kill(const struct order *o);
int run_cut(const struct order *o);
int run_faults(const struct order *o);
int run_flips(const struct order *o);

#endif

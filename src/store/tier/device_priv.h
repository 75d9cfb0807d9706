/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_priv.h: a shard's part of a device, where values lie above memory. tier_priv.h includes it; the
 * functions are device.c's, unless said otherwise.
 *
 * The part is cut into pages of 64 KiB; which of them are free, and the order in which values were used last,
 * the host knows. A *lift* copies a value there from memory, which then gives its place up. Whoever reads the
 * value fetches it, as one on SSD: into a record that nobody knows (fetch.c). It *lowers* when the device is
 * short of pages: then that record takes its place. Copies go on piece by piece, as the shard is polled.
 */
#ifndef PST_STORE_TIER_DEVICE_PRIV_H
#define PST_STORE_TIER_DEVICE_PRIV_H

#include "base/list.h"
#include "base/turn.h"
#include "mem/pages.h"

#include <sys/uio.h>

enum {
    PST_DEVICE_PAGE_BYTES = 64 << 10, /* smaller values stay in memory */
    PST_DEVICE_RUNS_MAX = 16,         /* of a value */
};

struct pst_device_options;
struct pst_fetch;
struct pst_gpu_event;
struct pst_record;
struct pst_shard_device;
struct pst_store;
struct pst_tier;

/* Bytes on their way between memory and the device. */
struct pst_device_copy {
    struct pst_list link;
    const struct iovec *iov;
    uint32_t piece;    /* of those, that is copied; from */
    uint64_t piece_at; /* this byte on */
    const struct pst_run *runs;
    uint64_t from; /* byte of the value at which they begin */
    uint64_t bytes, done;
    struct pst_gpu_event *event; /* behind all of them; NULL: not all have begun */
    bool in;                     /* to the device */
    int result;
};

/* Opens each shard's part, and locks the arenas for copies. Return: 0, -errno with *@why. */
int pst_devices_open(struct pst_store *store, const struct pst_device_options *options, const char **why);
void pst_devices_unlock(struct pst_store *store);
void pst_device_close(struct pst_tier *t);

/* True when something happened, or will without anybody's doing. */
bool pst_device_run(struct pst_tier *t, const struct pst_turn *turn, uint64_t now_ns);
bool pst_device_idle(const struct pst_tier *t);

/* Whether the device is to be read for the value, not the log. */
bool pst_device_has(const struct pst_tier *t, const struct pst_record *r);
void pst_device_used(struct pst_tier *t, const struct pst_record *r);
/* Begins to read what the fetch wants into its pieces; pst_fetch_done() ends it. */
void pst_device_read(struct pst_tier *t, struct pst_fetch *fetch);
/* That failed. Return: PST_BUSY it is worth another try, -EIO. */
int pst_device_failed(struct pst_tier *t, struct pst_record *r);
/* The value is not the device's any more; its pages go with the record. */
void pst_device_forget(struct pst_tier *t, const struct pst_record *r);
/* A value was to come down: it has, or that came to nothing. */
void pst_device_lowered(struct pst_tier *t, struct pst_record *r, int result);

#endif

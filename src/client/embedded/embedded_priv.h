/* SPDX-License-Identifier: Apache-2.0 */
/* embedded_priv.h: what the files of the embedded store share. */
#ifndef PST_LOCAL_PRIV_H
#define PST_LOCAL_PRIV_H

#include "client/client_priv.h"
#include "store/put.h"
#include "store/store.h"
#include "store/tier.h"
#include "store/watch.h"

enum {
    COPY_LOCKED_BYTES_MAX = 64 << 10, /* longer copies let the lock go */
    PRESSURE_ROUNDS = 64,             /* tries of a write while other shards evict for it */
    LOCAL_WAITS_MAX = 4096,           /* operations that wait for keys and changes */
    LOCAL_WATCHES_MAX = 256,          /* in one shard */
    LOCAL_PARKED = -EINPROGRESS,      /* the operation waits */
    ROUND_MS_MAX = 20, /* operations that wait for the disk may wait for memory, which no descriptor tells */
};

struct pst_local {
    struct penstock *handle;
    struct pst_store *store;
    uint32_t shard_count;
    pthread_mutex_t *locks;
    struct pst_holder *holders; /* of reservations: this process is one session */
    uint32_t timeout_ms;        /* of a wait that names none */
    /* Under the store's lock, which is taken inside of a shard's: */
    struct pst_list waits;
    uint32_t wait_count;
    pthread_cond_t stirred; /* a wait has become ready */
    bool disk_led;          /* a thread polls the disk for all */
    int wake_fd;            /* wakes it; -1: no SSD */
    int disks_fd;           /* readable when a shard's disk has something; -1: no SSD */
};

struct pst_shard *pst_local_lock(struct pst_local *l, uint32_t shard);
void pst_local_unlock(struct pst_local *l, uint32_t shard);
/* Lets every shard evict for the one that found no room. */
void pst_local_relieve(struct pst_local *l);

/* Does an operation; with @until_ns in the future it may begin to wait. Return: its result or LOCAL_PARKED.
 */
int pst_local_apply(struct pst_local *l, uint32_t number, struct penstock_op *op, uint64_t until_ns);

/* What a put or a reserve asks of its shard; without its key and a put's checksum. */
struct pst_put pst_local_put(const struct penstock_op *op);
/* Tells the caller what the store said. */
void pst_local_answer(struct penstock_op *op, const struct pst_answer *answer);

/* ---- reservations.c ---- */

/* An operation on a reservation of this shard. Return: its result. */
int pst_local_reservation_op(struct pst_local *l, uint32_t shard, struct penstock_op *op);
/* penstock_reservation_memory() */
int pst_local_reservation_memory(struct pst_local *l, uint32_t shard, uint64_t handle, struct iovec *pieces,
                                 int max);

/* ---- commit.c ---- */

int pst_local_commit(struct pst_local *l, struct penstock_op *op);

/* ---- tier.c; the shard's lock is held where an operation is given ---- */

int pst_local_tier_init(struct pst_local *l);
void pst_local_tier_fini(struct pst_local *l);
bool pst_local_tiered(const struct pst_local *l);
/* Finds bytes [*@offset, + @bytes) of a value that may be on SSD: in *@record, from *@offset on. Return: 0,
 * LOCAL_PARKED until they are there, PENSTOCK_BUSY, -errno. */
int pst_local_fetch(struct pst_local *l, uint32_t number, struct penstock_op *op, struct pst_record **record,
                    uint64_t *offset, uint64_t bytes);
/* Parks the operation until the record is durable, or all of the shard. Return: LOCAL_PARKED, -errno. */
int pst_local_save(struct pst_local *l, uint32_t number, struct penstock_op *op, struct pst_record *record);
int pst_local_flush(struct pst_local *l, uint32_t number, struct penstock_op *op);
/* Carries on what the disk has underway, or sleeps until somebody has; the store's lock is held, and let go
 * meanwhile. Return: true when there is more to do at once. */
bool pst_local_tier_round(struct pst_local *l, uint64_t until_ns);
/* A write found no room, and was tried *@tries times before: lets others make some. No lock is held. Return:
 * whether to try again. */
bool pst_local_again(struct pst_local *l, struct penstock_op *op, int *tries);
/* A read found no memory to fetch into. Return: whether to try again. */
bool pst_local_once_more(const struct pst_local *l, struct penstock_op *op);

/* ---- wait.c ---- */

void pst_local_waits_init(struct pst_local *l);
void pst_local_waits_fini(struct pst_local *l);
/* Begins to wait for the SSD; the shard's lock is held. Return: LOCAL_PARKED and *@wait to be begun, -ENOMEM.
 */
int pst_local_park_tier(struct pst_local *l, uint32_t number, struct penstock_op *op,
                        struct pst_tier_wait **wait);
/* It cannot be begun after all. Return: @result. */
int pst_local_unpark(struct pst_local *l, struct pst_tier_wait *wait, int result);
/* Sleeps until something stirs; the store's lock is held, and let go meanwhile. */
void pst_local_sleep(struct pst_local *l, uint64_t until_ns);
/* Begins to wait for a key, or with @watch for that. The shard's lock is held. Return: LOCAL_PARKED,
 * -EDQUOT, -ENOMEM. */
int pst_local_park(struct pst_local *l, uint32_t number, struct penstock_op *op, uint64_t until_ns,
                   const struct pst_lookup *lookup, struct pst_watch *watch);
/* Tells whoever waits for them of waits that are ready. The shard's lock is held. */
void pst_local_wake(struct pst_local *l, struct pst_shard *shard);
/* Watches, by their address. The shard's lock is held. */
int pst_local_watch(struct pst_local *l, uint32_t number, struct penstock_op *op, uint64_t until_ns);
/* See struct pst_backend. */
uint64_t pst_local_await(struct penstock *store, const struct pst_op_list *done, size_t count,
                         uint64_t deadline_ns);

#endif

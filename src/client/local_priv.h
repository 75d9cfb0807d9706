/* local_priv.h: what the files of the embedded store share. */
#ifndef PST_LOCAL_PRIV_H
#define PST_LOCAL_PRIV_H

#include "client/client_priv.h"
#include "store/slot.h"
#include "store/store.h"

enum {
    COPY_LOCKED_BYTES_MAX = 64 << 10, /* longer copies let the lock go */
    PRESSURE_ROUNDS = 64,             /* tries of a write while other shards evict for it */
};

struct pst_local {
    struct pst_store *store;
    uint32_t shard_count;
    pthread_mutex_t *locks;
    struct pst_holder *holders; /* of slots: this process is one session */
};

struct pst_shard *pst_local_lock(struct pst_local *l, uint32_t shard);
void pst_local_unlock(struct pst_local *l, uint32_t shard);
/* Lets every shard evict for the one that found no room. */
void pst_local_relieve(struct pst_local *l);

/* ---- local_slots.c ---- */

/* An operation on a slot of this shard. Return: its result. */
int pst_local_slot_op(struct pst_local *l, uint32_t shard, struct penstock_op *op);
/* penstock_slot_memory() */
int pst_local_slot_memory(struct pst_local *l, uint32_t shard, uint64_t handle, struct iovec *pieces,
                          int max);

/* ---- local_commit.c ---- */

int pst_local_commit(struct pst_local *l, struct penstock_op *op);

#endif

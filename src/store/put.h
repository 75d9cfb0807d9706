/* SPDX-License-Identifier: Apache-2.0 */
/*
 * put.h: writes of one key. Whoever puts includes it.
 *
 * Large values are written in two steps: pst_shard_reserve() gives memory that nobody sees, the caller fills
 * it, and pst_shard_commit() makes it the key's value at once.
 */
#ifndef PST_STORE_PUT_H
#define PST_STORE_PUT_H

#include "store/shard.h"

#include <sys/uio.h>

enum pst_put_flag {
    PST_PUT_IF_ABSENT = 1,
    PST_PUT_IF_GENERATION = 2, /* if_generation 0: the key must be absent */
    PST_PUT_CHECKSUM = 4,
    PST_PUT_LASTS = 64,    /* it may stay underway: a quota counts it beside the old value */
    PST_PUT_FETCHED = 128, /* of a value that is there: no time of its prefix */
};

struct pst_put {
    struct pst_lookup lookup;
    struct pst_bytes attrs;
    uint64_t value_bytes;
    uint64_t if_generation;
    uint32_t value_crc;
    uint64_t ttl_ms;     /* 0: what its prefix says */
    uint64_t generation; /* another store's, for a copy of its value: PST_EXISTS when one as late is there; 0:
                            a new one */
    uint16_t depth;
    uint8_t copies; /* that a pool shall have of the value; 0: what it says of the prefix */
    uint8_t flags;
};

/* Whether what the put writes can be durable. Return: 0; -EOPNOTSUPP there is no log, -EINVAL the value will
 * have an end, -EFBIG it is larger than the log takes, which is @answer->limit_bytes. */
int pst_put_check_durable(const struct pst_shard *shard, const struct pst_put *put,
                          struct pst_answer *answer);

/* A value being written: memory that only its writer knows. */
struct pst_pending {
    struct pst_record *record;
    uint64_t offset;
    bool brief; /* who finds no room waits for its end */
};

/*
 * Checks the conditions (PST_EXISTS, PST_STALE: *@answer names the value that is there) and takes memory.
 * Return: 0, an outcome, PST_BUSY (other shards can free memory: run pst_shard_tick() there and try again),
 * -ENOSPC (of a quota, *@answer has its bytes and the length of its prefix), -EFBIG larger
 * than the store, -EINVAL empty key, -ENAMETOOLONG, -ENOMEM.
 */
int pst_shard_reserve(struct pst_shard *shard, const struct pst_put *put, uint64_t now_ns,
                      struct pst_pending *pending, struct pst_answer *answer);
/* Its writer may take its time. */
void pst_pending_lasts(struct pst_shard *shard, struct pst_pending *pending);
/* The pieces of a pending value, like pst_record_iov(). */
int pst_pending_iov(const struct pst_shard *shard, const struct pst_pending *pending, struct iovec *iov,
                    int iov_max);
/* Checks the conditions again and makes the value visible. Gives up what is pending in any case. */
int pst_shard_commit(struct pst_shard *shard, const struct pst_put *put, struct pst_pending *pending,
                     uint64_t now_ns, struct pst_answer *answer);
void pst_shard_abort(struct pst_shard *shard, struct pst_pending *pending);
/* Reserve, copy from @value, commit. */
int pst_shard_put(struct pst_shard *shard, const struct pst_put *put, const void *value, uint64_t now_ns,
                  struct pst_answer *answer);

#endif

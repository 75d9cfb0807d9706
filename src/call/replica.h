/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replica.h: what other nodes have to have before it shows. A shard's thread prepares a change and hands it
 * over; whoever sends it (master/) says when the copies hold it, and is told when it shows, or never will.
 * The memory is the shard's, and stays as it is in between.
 */
#ifndef PST_REPLICA_H
#define PST_REPLICA_H

#include "base/base.h"
#include "base/list.h"
#include "base/traceparent.h"

#include <sys/uio.h>

enum pst_replica_what {
    PST_REPLICA_PUT,
    PST_REPLICA_DELETE,
    PST_REPLICA_SEND, /* a value that shows already; to who joins, or to `member`, alone */
};

struct pst_replica_write {
    struct pst_bytes key, attrs;
    struct iovec *pieces; /* of the value */
    int piece_count;
    uint64_t value_bytes;
    uint64_t generation;
    uint64_t expires_ms;      /* of the real-time clock; 0: never */
    uint64_t partition_epoch; /* the sender's: under which the copies have it */
    uint32_t crc;
    uint16_t depth;
    uint8_t what;
    uint8_t copies; /* wished for */
    bool checksum;  /* crc is the value's */
    bool durable;   /* who has it says so when a crash would not lose it */
};

/* What a write came to: the latest of these that any part of it came to. */
enum pst_replica_fate {
    PST_REPLICA_HELD,    /* all have it */
    PST_REPLICA_REFUSED, /* none took it */
    PST_REPLICA_WAITS,   /* until there is another pool map */
    PST_REPLICA_AGAIN,   /* the pool map has changed meanwhile */
    PST_REPLICA_LOST,    /* another may have the partition: nothing is known */
};

struct pst_replica {
    struct pst_list link, queue; /* the sender's, as the next seven */
    uint64_t number;
    uint32_t sends;
    enum pst_replica_fate fate;
    int refusal;     /* why, if it was refused */
    bool to_joining; /* the replicas have it */
    bool sent;       /* somebody may have some of it */
    uint8_t copies;  /* that have it when it is done, this node's among them */
    struct pst_replica_write *writes;
    uint32_t write_count;
    struct pst_traceparent trace; /* that it belongs to, if any */
    bool addressed;               /* a SEND of what may lie anywhere, to `member` */
    uint16_t member;
    /* Once, on any thread. @result: 0 the copies hold it; -errno none of them took it; else it is not known.
     */
    void (*done)(struct pst_replica *replica, int result);
};

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report.h: a node's side of heartbeats: which keys came and went, in order, one message at a time. Pure, one
 * thread. The queue of events is bounded: what does not fit makes a full report, which walks through what the
 * node has, piece by piece, while events go on.
 */
#ifndef PST_REPORT_H
#define PST_REPORT_H

#include "base/base.h"
#include "base/hash.h"

enum pst_pool_tier { /* fastest first; the numbers are the wire's */
                     PST_POOL_HBM = 1,
                     PST_POOL_DRAM = 2,
                     PST_POOL_SSD = 3,
                     PST_POOL_TIERS,
};

enum pst_event_kind {
    PST_EVENT_ADD,
    PST_EVENT_DEL, /* that generation and those before */
};

struct pst_event {
    struct pst_hash128 key;
    uint64_t generation;
    uint8_t kind;
    uint8_t tier;
};

enum pst_heartbeat_flag {
    PST_HEARTBEAT_BEGIN = 1,  /* a full report begins: what was known counts until its end */
    PST_HEARTBEAT_END = 2,    /* it ends with this message: what it did not name is not there */
    PST_HEARTBEAT_COPIES = 4, /* the node has keys whose puts asked for several replicas */
};

enum {
    PST_HEARTBEAT_EVENTS_MAX = 2048,
    PST_WANTS_MAX = 256,
};

/* No node has more: sums over all of them do not wrap around. */
#define PST_TIER_BYTES_MAX (1ull << 56)

struct pst_tier_use {
    uint64_t capacity_bytes, used_bytes;
};

/* A number too many, or too few, and the node has to report in full: nothing is taken out of order. */
struct pst_heartbeat {
    uint16_t member;
    uint64_t epoch;
    uint64_t sequence; /* one more with every heartbeat of a membership; from 1, with BEGIN */
    uint32_t flags;
    uint16_t share,
        share_last; /* of which keys it tells: of that share of the directory, out of so many more */
    uint32_t event_count;
    const struct pst_event *events; /* borrowed; applied in order */
    struct pst_tier_use tiers[PST_POOL_TIERS];
};

/* What the primary of a partition is asked for. */
struct pst_want {
    uint16_t partition;
    uint16_t member;
    bool leads; /* another replica shall be primary in its place; else one is lacking: it fills the member,
                 * which joins
                 */
    uint64_t partition_epoch, member_epoch;
};

struct pst_heartbeat_answer {
    uint64_t sequence_next; /* that is taken; 0: only one with BEGIN is */
    bool sync;              /* report in full: what is known may not be what is there */
    uint64_t lease_ms;      /* from the sending on; 0: none for now */
    uint64_t lease_version; /* of the pool map that the lease needs: the last that took a partition from the
                               node */
    uint64_t version;       /* of the pool map in effect */
    uint64_t term;
    uint64_t repair; /* which time that nodes are to look for keys with too few replicas; 0: never yet */
    uint32_t want_count;
    struct pst_want wants[PST_WANTS_MAX];
};

struct pst_report;

/*
 * Writes up to @room of the keys that the node has to tell of as PST_EVENT_ADD, going on where the last call
 * ended, or with @again from the beginning. A key that is there throughout has to come; others may. *@ended:
 * there are no more. Return: their number, which may be 0 before the end, too.
 */
typedef uint32_t (*pst_report_walk)(void *ctx, bool again, struct pst_event *to, uint32_t room, bool *ended);

/* @events_max: in the queue; @message_max: in one message, up to PST_HEARTBEAT_EVENTS_MAX. Return: 0 or
 * -ENOMEM. */
int pst_report_open(uint32_t events_max, uint32_t message_max, pst_report_walk walk, void *ctx,
                    struct pst_report **out);
struct pst_report *pst_report_close(struct pst_report *report);

/* A membership begins: with a full report. */
void pst_report_join(struct pst_report *report, uint16_t member, uint64_t epoch);
/* It tells of the keys of that share of the directory, 0 to @share_last, and of no others: by default of the
 * only one. With others than before a full report begins. */
void pst_report_of_share(struct pst_report *report, uint16_t share, uint16_t share_last);
/* A key came or went. */
void pst_report_event(struct pst_report *report, const struct pst_event *event);
/* Events were lost before they came here: the report has to be full. */
void pst_report_lost(struct pst_report *report);
/*
 * The heartbeat to send: the last one, unchanged, while it has not been answered. Valid until the next call.
 * @sent_ns: when it was first made, from which a lease counts.
 */
const struct pst_heartbeat *pst_report_next(struct pst_report *report,
                                            const struct pst_tier_use tiers[PST_POOL_TIERS], uint64_t now_ns,
                                            uint64_t *sent_ns);
/*
 * An answer has come, with what pst_directory_heartbeat() returned. Return: 0; -EAGAIN it is to no heartbeat
 * that waits, and says nothing; -ESTALE register again.
 */
int pst_report_answered(struct pst_report *report, uint64_t sequence, int result,
                        const struct pst_heartbeat_answer *answer);
/* Whether there is more to say than waits for the next beat. */
bool pst_report_is_behind(const struct pst_report *report);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault.h: fault points: places that fail on demand, in test builds. Each stands where the code has an error
 * path already, and asks pst_fault() whether to take it. In release builds that is a constant, and nothing of
 * the table is left.
 *
 * Armed by PENSTOCK_FAULTS when the program starts, or by pst_faults_arm(): "net_busy:nth=3" fails the third
 * pass of the point and no other, "net_busy:per_million=1000" one pass in a thousand on average, and "seed=7"
 * chooses which ones. The same text gives the same passes the same fate in every run. Any thread.
 */
#ifndef PST_FAULT_H
#define PST_FAULT_H

#include "base/base.h"

/* Sorted. */
#define PST_FAULTS(X)                                                                                        \
    X(boot_mac_enomem)           /* OpenSSL has no memory for a proof */                                     \
    X(call_bulk_enomem)          /* a client has no memory to take a bulk message */                         \
    X(call_none_free)            /* a client has no request free */                                          \
    X(copies_one_round)          /* joining nodes get a write before replicas have it */                     \
    X(device_copy_eio)           /* a device cannot copy */                                                  \
    X(disk_open_eio)             /* a file cannot be opened */                                               \
    X(disk_read_eio)             /* a file cannot be read */                                                 \
    X(disk_room_enospc)          /* a file cannot have its bytes */                                          \
    X(disk_short)                /* the system moves a part of what was asked */                             \
    X(disk_sync_eio)             /* a file cannot be synced */                                               \
    X(disk_write_eio)            /* a file cannot be written, though it was */                               \
    X(disk_write_enospc)         /* the file system is full */                                               \
    X(disk_write_none)           /* a file cannot be written, and nothing of it was */                       \
    X(index_enomem)              /* the hash index cannot grow */                                            \
    X(log_marker_eio)            /* a log's folder cannot be marked */                                       \
    X(log_read_eio)              /* a start cannot read what is in a log */                                  \
    X(net_bulk_busy)             /* the transport takes no bulk message for now */                           \
    X(net_open_fails)            /* a connection cannot be opened */                                         \
    X(net_receive_busy)          /* the transport cannot begin to receive for now */                         \
    X(net_send_busy)             /* the transport takes no message for now */                                \
    X(net_send_fails)            /* a connection breaks while something is sent */                           \
    X(node_none_free)            /* a shard has no request free */                                           \
    X(node_port_fails)           /* a shard's port cannot be opened */                                       \
    X(node_probe_lost)           /* a shard's message to itself is lost */                                   \
    X(node_session_enomem)       /* a node has no memory for a session */                                    \
    X(node_shard_session_enomem) /* a shard has no memory for a session */                                   \
    X(order_enomem)              /* the ordered index cannot grow */                                         \
    X(pages_enospc)              /* no page is free */                                                       \
    X(pin_enomem)                /* no memory to remember a pin or a reference */                            \
    X(record_enospc)             /* no room for a record */                                                  \
    X(slab_page_enomem)          /* no memory to describe a slab page */                                     \
    X(view_enomem)               /* no memory to remember a view */

enum pst_fault {
#define X(name) PST_FAULT_##name,
    PST_FAULTS(X)
#undef X
        PST_FAULT_COUNT
};

#ifdef PST_FAULTS_ON

/* Whether this pass of the point fails. */
bool pst_fault(enum pst_fault fault);
/* Forgets what was armed and counted, and arms @text. Return: 0, or -EINVAL and nothing is armed. */
int pst_faults_arm(const char *text);
/* Passes since the points were armed, and how many of them failed. */
uint64_t pst_fault_passes(enum pst_fault fault);
uint64_t pst_fault_hits(enum pst_fault fault);
/* A number that only depends on @seed, @stream and @number, for chance that can be replayed. */
uint64_t pst_fault_dice(uint64_t seed, uint64_t stream, uint64_t number);
/* "name=value,name=value": the first value of @name as a number. Return: true when it is there and a number.
 */
bool pst_fault_setting(const char *text, const char *name, uint64_t *out);

#else

static inline bool pst_fault(enum pst_fault fault)
{
    (void)fault;
    return false;
}

#endif
#endif

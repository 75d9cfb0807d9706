/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keeper.h: where the pool map of a pool lasts, and which master may change it. map_file.c keeps it in a
 * file, which one master has. etcd/ keeps it in an etcd that masters share: one of them leads, and the others
 * wait.
 *
 * A pool map replaces the one before it in one step, and lasts when the call returns. A keeper looks into
 * none. One thread at a time, but hold(), which is any.
 */
#ifndef PST_KEEPER_H
#define PST_KEEPER_H

#include "base/options.h"

struct pst_keeper;

/* For how long a master that has taken it has it, in CLOCK_BOOTTIME, which goes on while a machine sleeps. */
struct pst_hold {
    uint64_t
        leads_until_ns; /* until then nobody else changes the pool map; UINT64_MAX: as long as it lives */
    uint64_t speaks_until_ns; /* and until then nobody moves what this master's nodes have; not before that */
    bool lost;                /* it is taken no more, as far as is known here */
    bool gone;                /* somebody has deleted what was kept: it is to be stored again */
};

/* take(): another master has it. */
enum { PST_KEEPER_OTHERS = 1, PST_KEEPER_SAME = 2, PST_KEEPER_GONE = 3 };

struct pst_keeper_ops {
    bool shared; /* masters may wait for it. One that nobody shares fails at once */
    /*
     * Becomes the one that changes the pool map, and reads it. @stored: freed by the caller; empty when there
     * is none yet. Return: 0, PST_KEEPER_SAME nobody has changed it since this keeper was lost,
     * PST_KEEPER_GONE the same, but it is not there any more, and is to be swapped in again,
     * PST_KEEPER_OTHERS with the leader's address as @fault, -EBUSY, -EFBIG, -errno with the reason in
     * @fault.
     */
    int (*take)(struct pst_keeper *keeper, size_t bytes_max, struct pst_bytes *stored,
                char fault[PST_FAULT_BYTES]);
    /* Return: 0, -ESTALE another has changed it, or may: it is lost; -errno what was there may still be, and
     * nothing else than the same is to be tried again. With the reason in @fault. */
    int (*swap)(struct pst_keeper *keeper, uint64_t version_before, uint64_t version, struct pst_bytes map,
                char fault[PST_FAULT_BYTES]);
    /* @fault: NULL, or the reason if it could not be held on to lately, else "". */
    struct pst_hold (*hold)(struct pst_keeper *keeper, char fault[PST_FAULT_BYTES]);
    /* Another may take it. Whatever has not taken it is left alone. */
    void (*give)(struct pst_keeper *keeper);
    void (*close)(struct pst_keeper *keeper);
};

struct pst_keeper {
    const struct pst_keeper_ops *ops;
    const char *name;  /* in messages */
    uint64_t grace_ms; /* who had it last may speak for so long after it was lost */
};

#endif

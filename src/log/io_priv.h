/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_priv.h: one operation at a lane's disk. All that waits for one embeds it; the headers of groups,
 * readings and reclaim include it.
 */
#ifndef PST_LOG_IO_PRIV_H
#define PST_LOG_IO_PRIV_H

#include "disk/disk.h"

#include <stdint.h>

struct pst_lane;

enum pst_lane_io_kind { PST_IO_GROUP, PST_IO_SYNC, PST_IO_READ, PST_IO_RECLAIM };

struct pst_lane_io {
    struct pst_disk_op op;
    uint8_t kind;
    void *owner;
};

/* Hands @op over to the disk, in @io until its end, of which @owner is told by its @kind. The queue has room:
 * it is as deep as a lane can have operations. */
void pst_lane_submit(struct pst_lane *lane, struct pst_lane_io *io, enum pst_lane_io_kind kind, void *owner,
                     const struct pst_disk_op *op);

#endif

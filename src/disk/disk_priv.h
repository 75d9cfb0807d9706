/* SPDX-License-Identifier: Apache-2.0 */
/* disk_priv.h: what a driver does for a queue. For disk/ alone. */
#ifndef PST_DISK_PRIV_H
#define PST_DISK_PRIV_H

#include "disk/disk.h"
#include "base/error.h"

struct pst_disk_ops {
    const char *name;
    /* Makes the driver's part. Return: 0, or -errno with a text by pst_fail(). */
    int (*open)(struct pst_disk *disk, const struct pst_disk_options *options);
    void (*close)(struct pst_disk *disk);
    /* Begins to transfer op->now, or to sync. Return: 0, or -EBUSY: again at the next poll. */
    int (*start)(struct pst_disk *disk, struct pst_disk_op *op);
    /* Tells the system of what was started, and pst_disk_moved() of what has ended. */
    void (*reap)(struct pst_disk *disk);
};

struct pst_disk {
    const struct pst_disk_ops *ops;
    void *driver;
    int *fds;
    uint32_t fd_count, depth, underway;
    int descriptor;        /* the driver's */
    struct pst_list ready; /* to be started */
    struct pst_list done;
    char note[256];
};

extern const struct pst_disk_ops pst_disk_io_uring, pst_disk_posix, pst_disk_simulated;

void pst_disk_add_note(struct pst_disk *disk, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A started operation has ended: bytes transferred, or -errno. On the queue's thread. */
void pst_disk_moved(struct pst_disk *disk, struct pst_disk_op *op, int64_t result);

static inline uint64_t pst_disk_at(const struct pst_disk_op *op)
{
    return op->offset + op->moved_bytes;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simulated.h: the driver `simulated`, in test builds: files behind a disk with a write cache that keeps no
 * order. What was written is read, but reaches the files with a sync only; operations end in any order, by
 * seed
 * ("simulated:seed=7"). pst_simulated_cut() is a power cut.
 */
#ifndef PST_DISK_SIMULATED_H
#define PST_DISK_SIMULATED_H

#include "base/base.h"

/*
 * Of what was not synced some writes reach the files, some in part (in sectors of 512 bytes), the others are
 * forgotten;
 * @seed says which. From then on every operation of the process's simulated queues ends with -EIO.
 */
void pst_simulated_cut(uint64_t seed);
/* Power is back. */
void pst_simulated_restore(void);

#endif

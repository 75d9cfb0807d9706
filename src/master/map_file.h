/* SPDX-License-Identifier: Apache-2.0 */
/*
 * map_file.h: where the pool map of a pool lasts: one file, that one master at a time has. A pool map
 * replaces the one before it in one step, and is on the disk when the call returns. One thread at a time.
 */
#ifndef PST_MAP_FILE_H
#define PST_MAP_FILE_H

#include "base/options.h"

struct pst_map_file;

/*
 * Takes the lock beside the file, FILE.lock, and reads what is there. @stored: freed by the caller; empty
 * when there is no file yet. Nothing is looked into. Return: 0, -EBUSY another process has it, -EFBIG,
 * -errno; with the reason in @fault.
 */
int pst_map_file_open(const char *path, size_t bytes_max, struct pst_map_file **out, struct pst_bytes *stored,
                      char fault[PST_FAULT_BYTES]);
/* Return: 0, -ESTALE another than @version_before was stored last, -errno: what was there still is. */
int pst_map_file_swap(struct pst_map_file *file, uint64_t version_before, uint64_t version,
                      struct pst_bytes map);
/* What was stored by then is the version that the first swap names. */
struct pst_map_file *pst_map_file_close(struct pst_map_file *file);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scan.h: what earlier processes left in a log. Whoever takes it up after a restart includes this, and so
 * does reclaim.h, which tells of values in the same form.
 */
#ifndef PST_LOG_SCAN_H
#define PST_LOG_SCAN_H

#include "log/value.h"

/* A value as found on disk; key and attrs until the next one. */
struct pst_log_found {
    struct pst_log_value value;
    struct pst_log_place place;
    uint32_t crc;
};

struct pst_log_scan;

struct pst_log_scanned {
    uint64_t values, deleted, damaged_values, damaged_groups, damaged_segments, bytes_read;
};

/*
 * Before anything is appended: walks what earlier processes left, in one thread. For each value that is found
 * the owner adopts it, or deletes it (an older generation of a key: pst_log_delete(), in any lane), or, where
 * the same generation was found before, pst_log_repeated(). Return: 1 and *@found, 0 at the end, -errno;
 * of those -EIO with a text by pst_fail(): what cannot be read may be newer than what can.
 */
int pst_log_scan_open(struct pst_log *log, struct pst_log_scan **out);
int pst_log_scan_next(struct pst_log_scan *scan, struct pst_log_found *found);
struct pst_log_scan *pst_log_scan_close(struct pst_log_scan *scan, struct pst_log_scanned *scanned);
void pst_log_adopt(struct pst_log *log, const struct pst_log_found *found);
void pst_log_repeated(struct pst_log *log, const struct pst_log_found *found);

#endif

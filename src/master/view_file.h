/*
 * view_file.h: where the view of a pool lasts: one file, that one master at a time has. A view replaces the
 * one before it in one step, and is on the disk when the call returns. One thread at a time.
 */
#ifndef PST_VIEW_FILE_H
#define PST_VIEW_FILE_H

#include "base/options.h"

struct pst_view_file;

/*
 * Takes the lock beside the file, FILE.lock, and reads what is there. @stored: freed by the caller; empty
 * when there is no file yet. Nothing is looked into. Return: 0, -EBUSY another process has it, -EFBIG,
 * -errno; with the reason in @fault.
 */
int pst_view_file_open(const char *path, size_t bytes_max, struct pst_view_file **out,
                       struct pst_bytes *stored, char fault[PST_FAULT_BYTES]);
/* Return: 0, -ESTALE another than @version_before was stored last, -errno: what was there still is. */
int pst_view_file_swap(struct pst_view_file *file, uint64_t version_before, uint64_t version,
                       struct pst_bytes view);
/* What was stored by then is the version that the first swap names. */
struct pst_view_file *pst_view_file_close(struct pst_view_file *file);

#endif

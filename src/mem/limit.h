/* SPDX-License-Identifier: Apache-2.0 */
/* limit.h: how much memory this process can still get. For who is about to take much of it. */
#ifndef PST_MEM_LIMIT_H
#define PST_MEM_LIMIT_H

#include "base/base.h"

/* The tightest bound on the memory that this process can still get. */
struct pst_limit {
    uint64_t left_bytes; /* UINT64_MAX: none found */
    char text[192];      /* which one, with its figures */
};

/* @root is put before /proc and /sys: "" but in tests. */
void pst_limit_read(const char *root, struct pst_limit *out);

#endif

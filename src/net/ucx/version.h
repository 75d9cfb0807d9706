/* SPDX-License-Identifier: Apache-2.0 */
/*
 * version.h: versions of UCX, and which of them may talk to each other. A version is one number, major,
 * minor and release a byte each; 0 is one that nobody told. Pure, but for pst_ucx_version(). Any thread.
 *
 * UCX does not say what of its bytes is the same in two versions. So versions that were seen together may
 * talk (tests/ucx/matrix.py), and any other one talks to its own kind.
 */
#ifndef PST_UCX_VERSION_H
#define PST_UCX_VERSION_H

#include "base/base.h"

#define PST_UCX_VERSION(major, minor, release) ((major) << 16 | (minor) << 8 | (release))

enum {
    PST_UCX_SHORT_NUMBERS = PST_UCX_VERSION(1, 22, 0),
    PST_UCX_SEEN_FIRST = PST_UCX_VERSION(1, 13, 0), /* the floor: older ones are not used */
    PST_UCX_SEEN_END = PST_UCX_VERSION(1, 23, 0),   /* the first that nobody has seen */
    PST_UCX_TEXT_BYTES = 16,
};

_Static_assert((int)PST_UCX_SEEN_FIRST < (int)PST_UCX_SHORT_NUMBERS &&
                   (int)PST_UCX_SHORT_NUMBERS < (int)PST_UCX_SEEN_END,
               "both kinds of numbers were seen");

static inline bool pst_ucx_seen(uint32_t version)
{
    return version >= PST_UCX_SEEN_FIRST && version < PST_UCX_SEEN_END;
}

/* Whether processes with these versions may talk. */
static inline bool pst_ucx_fits(uint32_t a, uint32_t b)
{
    return a == 0 || b == 0 || a >> 8 == b >> 8 || (pst_ucx_seen(a) && pst_ucx_seen(b));
}

/*
 * Whether both understand what addresses say of namespaces, whose numbers have 8 bytes before 1.22 and 4 from
 * then on, and nobody tells how many. Otherwise none gets through over the loopback device, nor over shared
 * memory but where the namespaces are those that the machine began with, which addresses leave out.
 */
static inline bool pst_ucx_same_numbers(uint32_t a, uint32_t b)
{
    return a == 0 || b == 0 || (a < PST_UCX_SHORT_NUMBERS) == (b < PST_UCX_SHORT_NUMBERS);
}

/* "1.13.1" */
void pst_ucx_print(uint32_t version, char out[PST_UCX_TEXT_BYTES]);
/* This process's. Return: 0 when there is no UCX. */
uint32_t pst_ucx_version(void);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* version.c: versions of UCX in words; also in a build without it. */
#include "net/ucx/version.h"

#include <stdio.h>

void pst_ucx_print(uint32_t version, char out[PST_UCX_TEXT_BYTES])
{
    pst_assert(version <= PST_UCX_VERSION(UINT8_MAX, UINT8_MAX, UINT8_MAX));
    snprintf(out, PST_UCX_TEXT_BYTES, "%u.%u.%u", version >> 16, version >> 8 & UINT8_MAX,
             version & UINT8_MAX);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* version.c: which UCX this process has. */
#include "net/ucx/ucx_priv.h"

#include <stdio.h>

void pst_ucx_print(uint32_t version, char out[PST_UCX_TEXT_BYTES])
{
    pst_assert(version <= PST_UCX_VERSION(UINT8_MAX, UINT8_MAX, UINT8_MAX));
    snprintf(out, PST_UCX_TEXT_BYTES, "%u.%u.%u", version >> 16, version >> 8 & UINT8_MAX,
             version & UINT8_MAX);
}

static uint32_t version_byte(unsigned number)
{
    return number > UINT8_MAX ? UINT8_MAX : number;
}

uint32_t pst_ucx_version(void)
{
    unsigned major, minor, release;

    if (pst_ucx_load() < 0)
        return 0;
    ucp_get_version(&major, &minor, &release);
    return PST_UCX_VERSION(version_byte(major), version_byte(minor), version_byte(release));
}

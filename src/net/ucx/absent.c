/* SPDX-License-Identifier: Apache-2.0 */
/* absent.c: what stands for UCX in a build without it (Meson's option ucx). */
#include "net/net_priv.h"
#include "net/ucx/version.h"

int pst_ucx_load(void)
{
    return -ELIBACC;
}

const char *pst_ucx_load_fault(void)
{
    return "this build has no UCX";
}

const char *ucx_settings_fault(void)
{
    return pst_ucx_load_fault();
}

int pst_ucx_open(const struct pst_net_options *options, struct pst_net **out)
{
    pst_assert(options && out);
    return -ELIBACC;
}

uint32_t pst_ucx_version(void)
{
    return 0;
}

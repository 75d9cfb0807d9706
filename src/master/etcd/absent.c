/* SPDX-License-Identifier: Apache-2.0 */
/* absent.c: a pool map in etcd, in a build without libcurl. */
#include "master/etcd/etcd.h"

#include <stdio.h>

int pst_etcd_open(const struct pst_etcd_settings *settings, const char *address, struct pst_keeper **out,
                  char fault[PST_FAULT_BYTES])
{
    (void)address;
    (void)out;
    pst_assert(settings->etcd);
    snprintf(fault, PST_FAULT_BYTES, "etcd: this penstockd was built without libcurl");
    return -EOPNOTSUPP;
}

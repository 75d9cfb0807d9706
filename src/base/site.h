/* SPDX-License-Identifier: Apache-2.0 */
/* site.h: names under which a browser may reach this host. Pure; any thread. */
#ifndef PST_SITE_H
#define PST_SITE_H

#include "base/base.h"

/*
 * Whether a Host field, port and all, has a name that anyone in the world may have given to this host's
 * address: neither an address, nor a name without a dot, of localhost or a cluster's, nor @own.
 */
bool pst_host_is_foreign(struct pst_bytes host, const char *own);

#endif

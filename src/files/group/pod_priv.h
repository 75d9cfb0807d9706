/* SPDX-License-Identifier: Apache-2.0 */
/* pod_priv.h: the texts by which pods say who they are; groups of all kinds take the same. */
#ifndef PST_FILES_POD_PRIV_H
#define PST_FILES_POD_PRIV_H

#include "files/catalogue/catalogue.h"

/* Whether @text, which may be NULL, has 1 to @bytes_max bytes. */
static inline bool pod_text_fits(const char *text, size_t bytes_max)
{
    return text && *text && strnlen(text, bytes_max + 1) <= bytes_max;
}

static inline bool pod_ip_fits(const char *ip)
{
    return pod_text_fits(ip, PST_IP_BYTES_MAX);
}

/* NULL and "": it has none. */
static inline bool pod_name_fits(const char *pod_name)
{
    return !pod_name || !*pod_name || pod_text_fits(pod_name, PST_NAME_BYTES_MAX);
}

#endif

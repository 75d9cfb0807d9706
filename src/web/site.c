/* SPDX-License-Identifier: Apache-2.0 */
/* site.c: whether a page of another site asks, by a browser of this host that lets it. */
#include "web/head_priv.h"

#include "base/site.h"

#include <strings.h>

bool head_is_of_another_site(const struct head *head)
{
    const char *host = head->origin.len ? memmem(head->origin.data, head->origin.len, "://", 3) : NULL;
    size_t bytes = host ? head->origin.len - (size_t)(host + 3 - (const char *)head->origin.data) : 0;

    if (head->origin.len == 0 || head_reads(head))
        return false;
    return bytes != head->host.len || bytes == 0 || strncasecmp(host + 3, head->host.data, bytes) != 0;
}

bool head_names_a_foreign_host(const struct head *head, const char *own)
{
    return pst_host_is_foreign(head->host, own);
}

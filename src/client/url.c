/* url.c: what follows the '?' of a store's URL. */
#include "client/client_priv.h"

#include "base/options.h"

#include <stdio.h>

int pst_query_apply(const struct pst_option *rows, size_t count, void *settings, const char *query)
{
    char fault[PST_FAULT_BYTES], pair[512];

    while (*query) {
        size_t len = strcspn(query, "&");
        int r;

        snprintf(pair, sizeof(pair), "%.*s", (int)pst_min(len, sizeof(pair) - 1), query);
        r = *pair ? pst_options_set_pair(rows, count, settings, pair, fault) : 0;
        if (r < 0)
            return pst_fail(-EINVAL, "%s", fault);
        query += len + (query[len] == '&');
    }
    return 0;
}

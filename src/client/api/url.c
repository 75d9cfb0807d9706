/* SPDX-License-Identifier: Apache-2.0 */
/* url.c: a store's URL: which kind of store, where, and what follows the '?'. */
#include "client/client_priv.h"

#include "base/options.h"

#include <stdio.h>

int pst_url_parse(const char *text, struct pst_url *out)
{
    static const struct {
        const char *scheme, *address;
        bool pool;
    } schemes[] = {
        {"node+unix://", "unix://", false},
        {"node://", "", false},
        {"unix://", "unix://", false},
        {"pool://", "", true},
    };
    size_t len = strcspn(text, "?");

    pst_assert(text && out);
    *out = (struct pst_url){.query = text[len] ? text + len + 1 : text + len};
    if (len == 4 && strncmp(text, "mem:", 4) == 0) {
        out->embedded = true;
        return 0;
    }
    for (size_t i = 0; i < pst_count_of(schemes); i++) {
        size_t skip = strlen(schemes[i].scheme);
        int n;

        if (strncmp(text, schemes[i].scheme, skip) != 0)
            continue;
        n = snprintf(out->address, sizeof(out->address), "%s%.*s", schemes[i].address,
                     (int)pst_min(len - skip, 1000), text + skip);
        if (n < 0 || (size_t)n >= sizeof(out->address))
            return pst_fail(-EINVAL, "%.100s...: address longer than %zu bytes", text,
                            sizeof(out->address) - 1);
        out->pool = schemes[i].pool;
        return 0;
    }
    return pst_fail(-EINVAL, "%.200s: a store's URL begins with mem:, node://, node+unix:// or pool://",
                    text);
}

enum { PAIR_BYTES = 4400 }; /* a setting with the longest path for its value */

int pst_query_read(const struct pst_options *table, void *settings, const char *query)
{
    char fault[PST_FAULT_BYTES], pair[PAIR_BYTES];
    int r = pst_options_preset(table, settings, fault);

    while (r == 0 && *query) {
        size_t len = strcspn(query, "&");

        if (len >= sizeof(pair))
            return pst_fail(-EINVAL, "'%.100s...' is too long for a setting", query);
        snprintf(pair, sizeof(pair), "%.*s", (int)len, query);
        r = *pair ? pst_options_set_pair(table, settings, pair, fault) : 0;
        query += len + (query[len] == '&');
    }
    return r < 0 ? pst_fail(r == -ENOMEM ? r : -EINVAL, "%s", fault) : 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* query.c: texts of a query. */
#include "web/web.h"

#include "base/percent.h"

int pst_web_decode(struct pst_bytes raw, bool plus, char *buf, size_t cap)
{
    int len;

    pst_assert(cap > 0);
    len = pst_percent_decode(raw, plus, buf, cap - 1);
    if (len >= 0)
        buf[len] = 0;
    return len;
}

int pst_web_query(struct pst_bytes query, const char *name, char *buf, size_t cap)
{
    size_t name_bytes = strlen(name);

    pst_assert(name_bytes > 0);
    while (query.len) {
        const char *end = memchr(query.data, '&', query.len);
        struct pst_bytes part = {query.data, end ? (size_t)(end - (const char *)query.data) : query.len};
        const char *text = part.data;

        query.data = text + part.len + (end ? 1 : 0);
        query.len -= part.len + (end ? 1 : 0);
        if (part.len < name_bytes || memcmp(text, name, name_bytes) != 0)
            continue;
        if (part.len == name_bytes)
            return pst_web_decode((struct pst_bytes){"", 0}, true, buf, cap);
        if (text[name_bytes] == '=')
            return pst_web_decode((struct pst_bytes){text + name_bytes + 1, part.len - name_bytes - 1}, true,
                                  buf, cap);
    }
    return -ENOENT;
}

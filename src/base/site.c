/* SPDX-License-Identifier: Apache-2.0 */
#include "base/site.h"

#include <arpa/inet.h>
#include <strings.h>

enum { HOST_BYTES = 254 };

/* The name in front of the port. Return: false it is too long. */
static bool host_name(struct pst_bytes field, char host[HOST_BYTES])
{
    const char *text = field.data, *end = text + field.len, *at;

    if (field.len >= HOST_BYTES)
        return false;
    if (field.len && *text == '[') { /* an IPv6 address */
        at = memchr(++text, ']', field.len - 1);
        end = at ? at : text;
    } else if ((at = field.len ? memrchr(text, ':', field.len) : NULL)) {
        end = at;
    }
    if (end > text)
        memcpy(host, text, (size_t)(end - text));
    host[end > text ? end - text : 0] = 0;
    return true;
}

bool pst_host_is_foreign(struct pst_bytes field, const char *own)
{
    /* What no domain of the world ends with: those of this host, of a cluster, of a network. */
    static const char *const near[] = {".localhost", ".svc", ".local", ".internal"};
    char host[HOST_BYTES];
    uint8_t address[16];
    size_t bytes;

    if (!host_name(field, host))
        return true;
    bytes = strlen(host);
    if (bytes > 0 && host[bytes - 1] == '.')
        host[--bytes] = 0;
    if (!memchr(host, '.', bytes) || strcasecmp(host, own) == 0 || inet_pton(AF_INET, host, address) == 1 ||
        inet_pton(AF_INET6, host, address) == 1)
        return false;
    for (size_t i = 0; i < pst_count_of(near); i++) {
        size_t end = strlen(near[i]);

        if (bytes > end && strcasecmp(host + bytes - end, near[i]) == 0)
            return false;
    }
    return true;
}

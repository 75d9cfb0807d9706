/* SPDX-License-Identifier: Apache-2.0 */
/* site.c: whether a page of another site asks, by a browser of this host that lets it. */
#include "web/head_priv.h"

#include <arpa/inet.h>
#include <strings.h>

enum { HOST_BYTES = 254 };

bool head_is_of_another_site(const struct head *head)
{
    const char *host = head->origin.len ? memmem(head->origin.data, head->origin.len, "://", 3) : NULL;
    size_t bytes = host ? head->origin.len - (size_t)(host + 3 - (const char *)head->origin.data) : 0;

    if (head->origin.len == 0 || head_reads(head))
        return false;
    return bytes != head->host.len || bytes == 0 || strncasecmp(host + 3, head->host.data, bytes) != 0;
}

/* The name in front of the port. Return: false it is too long. */
static bool host_of(const struct head *head, char host[HOST_BYTES])
{
    const char *text = head->host.data, *end = text + head->host.len, *at;

    if (head->host.len >= HOST_BYTES)
        return false;
    if (head->host.len && *text == '[') { /* an IPv6 address */
        at = memchr(++text, ']', head->host.len - 1);
        end = at ? at : text;
    } else if ((at = head->host.len ? memrchr(text, ':', head->host.len) : NULL)) {
        end = at;
    }
    if (end > text)
        memcpy(host, text, (size_t)(end - text));
    host[end > text ? end - text : 0] = 0;
    return true;
}

bool head_names_a_foreign_host(const struct head *head, const char *own)
{
    /* What no domain of the world ends with: those of this host, of a cluster, of a network. */
    static const char *const near[] = {".localhost", ".svc", ".local", ".internal"};
    char host[HOST_BYTES];
    uint8_t address[16];
    size_t bytes;

    if (!host_of(head, host))
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

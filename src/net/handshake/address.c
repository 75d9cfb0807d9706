/* SPDX-License-Identifier: Apache-2.0 */
/* address.c: bootstrap addresses as text. Pure. */
#include "net/handshake/handshake_priv.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <sys/un.h>

static const char fault_form[] = "server address must be host:port";
static const char fault_port[] = "invalid port number";
static const char fault_path[] = "unix path too long";
static const char fault_relative[] = "unix path must be /PATH or unix:///PATH";

static int parse_path(const char *path, struct pst_boot_address *out, const char **fault)
{
    size_t len = strlen(path);

    _Static_assert(sizeof(out->path) == sizeof(((struct sockaddr_un *)0)->sun_path), "the kernel's bound");
    pst_assert(path[0] == '/');
    if (len >= sizeof(out->path)) {
        *fault = fault_path;
        return -EINVAL;
    }
    *out = (struct pst_boot_address){0};
    memcpy(out->path, path, len + 1);
    return 0;
}

/* Digits only, 0 to 65535: 0 stands for any port where one listens. */
static bool parse_port(const char *text, uint16_t *out)
{
    uint32_t port = 0;

    if (!*text || strlen(text) > 5)
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return false;
        port = port * 10 + (uint32_t)(*text - '0');
    }
    *out = (uint16_t)port;
    return port <= UINT16_MAX;
}

/* Splits "host:port" and "[v6]:port". Return: false when it is neither. */
static bool address_split(const char *text, const char **host, size_t *host_len, const char **port)
{
    const char *colon;

    if (text[0] == '[') {
        const char *end = strchr(text, ']');

        if (!end || end[1] != ':')
            return false;
        *host = text + 1;
        *host_len = (size_t)(end - text - 1);
        *port = end + 2;
        return *host_len > 0;
    }
    colon = strchr(text, ':');
    if (!colon || strchr(colon + 1, ':')) /* a bare v6 address is ambiguous */
        return false;
    *host = text;
    *host_len = (size_t)(colon - text);
    *port = colon + 1;
    pst_assert(*host_len < strlen(text));
    pst_assert(*port > *host);
    return true;
}

/* Whether a path was meant; it is none of those that are taken. */
static bool may_be_path(const char *text)
{
    const char *slash = strchr(text, '/'), *colon = strchr(text, ':');

    return strncmp(text, "unix:/", 6) == 0 || (slash && (!colon || slash < colon));
}

int pst_boot_transport_parse(const char *text, enum pst_boot_transport *out)
{
    static const char *const names[] = {
        [PST_BOOT_UCX] = "ucx", [PST_BOOT_STREAM] = "stream", [PST_BOOT_AUTO] = "auto"};

    pst_assert(out);
    if (!text) {
        *out = PST_BOOT_AUTO;
        return 0;
    }
    for (size_t i = 0; i < pst_count_of(names); i++) {
        if (strcmp(text, names[i]) != 0)
            continue;
        *out = (enum pst_boot_transport)i;
        return 0;
    }
    return -EINVAL;
}

int pst_boot_address_parse(const char *text, struct pst_boot_address *out, const char **fault)
{
    const char *host, *port_text;
    size_t host_len;
    uint16_t port;

    pst_assert(text && out && fault);
    if (text[0] == '/')
        return parse_path(text, out, fault);
    if (strncmp(text, "unix://", 7) == 0 && text[7] == '/')
        return parse_path(text + 7, out, fault);
    if (may_be_path(text)) {
        *fault = fault_relative;
        return -EINVAL;
    }
    if (!address_split(text, &host, &host_len, &port_text) || host_len >= sizeof(out->host) ||
        memchr(host, '[', host_len) || memchr(host, ']', host_len)) {
        *fault = fault_form;
        return -EINVAL;
    }
    if (!parse_port(port_text, &port)) {
        *fault = fault_port;
        return -EINVAL;
    }
    pst_assert(host_len < sizeof(out->host));
    *out = (struct pst_boot_address){.port = port};
    memcpy(out->host, host, host_len);
    return 0;
}

void pst_boot_address_print(const struct pst_boot_address *address, char *buf, size_t cap)
{
    bool v6 = strchr(address->host, ':') != NULL;

    pst_assert(buf);
    pst_assert(cap > 0);
    if (address->path[0])
        snprintf(buf, cap, "unix://%s", address->path);
    else
        snprintf(buf, cap, "%s%s%s:%u", v6 ? "[" : "", address->host, v6 ? "]" : "", address->port);
}

bool pst_boot_address_loopback(const struct pst_boot_address *address)
{
    struct in_addr v4;
    struct in6_addr v6;

    if (address->path[0] || strcmp(address->host, "localhost") == 0)
        return true;
    if (inet_pton(AF_INET, address->host, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, address->host, &v6) != 1)
        return false;
    return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

bool pst_boot_address_wildcard(const struct pst_boot_address *address)
{
    struct in_addr v4;
    struct in6_addr v6;

    if (address->path[0])
        return false;
    if (!address->host[0] || strcmp(address->host, "*") == 0)
        return true;
    if (inet_pton(AF_INET, address->host, &v4) == 1)
        return v4.s_addr == INADDR_ANY;
    if (inet_pton(AF_INET6, address->host, &v6) != 1)
        return false;
    return IN6_IS_ADDR_UNSPECIFIED(&v6) ||
           (IN6_IS_ADDR_V4MAPPED(&v6) && memcmp(v6.s6_addr + 12, "\0\0\0\0", 4) == 0);
}

void boot_address_unix(const struct pst_boot_address *address, struct sockaddr_un *out)
{
    pst_assert(address->path[0]);
    pst_assert(memchr(address->path, 0, sizeof(address->path)));
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(out->sun_path, address->path, sizeof(out->sun_path));
}

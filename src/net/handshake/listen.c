/* SPDX-License-Identifier: Apache-2.0 */
/* listen.c: listening sockets for the bootstrap: TCP, and unix with what a dead server left behind. */
#include "net/handshake/server_priv.h"

#include <dirent.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

enum {
    LISTEN_BACKLOG = 256,
    SWEPT_AFTER_S = 60, /* between its bind and its listen a server's socket looks like one that was left */
};

/* Whether @un is a socket that nobody serves any more. Return: 1 it is, 0 nothing is there, -EADDRINUSE,
 * -errno. */
static int path_stale(const struct sockaddr_un *un)
{
    pst_cleanup_close int fd = -1;
    struct stat st;

    pst_assert(un->sun_family == AF_UNIX);
    if (lstat(un->sun_path, &st) != 0)
        return errno == ENOENT ? 0 : -errno;
    if (!S_ISSOCK(st.st_mode)) /* somebody's file: not ours to remove */
        return -EADDRINUSE;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    if (connect(fd, (const struct sockaddr *)un, sizeof(*un)) == 0 || errno != ECONNREFUSED)
        return -EADDRINUSE;
    return 1;
}

int pst_boot_listen_unix(const struct pst_boot_address *address, uint64_t *inode)
{
    struct sockaddr_un un;
    struct stat st;
    int fd, r;

    pst_assert(address->path[0] && inode);
    boot_address_unix(address, &un);
    r = path_stale(&un);
    if (r < 0)
        return r;
    if (r == 1 && unlink(un.sun_path) != 0 && errno != ENOENT)
        return -errno;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    /* Before bind the mode becomes the path's: there is no moment at which others may connect. */
    if (fchmod(fd, 0600) != 0 || bind(fd, (const struct sockaddr *)&un, sizeof(un)) != 0 ||
        listen(fd, LISTEN_BACKLOG) != 0 || lstat(un.sun_path, &st) != 0) {
        r = -errno;
        close(fd);
        return r;
    }
    *inode = st.st_ino;
    return fd;
}

void pst_boot_sweep(const char *folder, const char *prefix)
{
    struct dirent *entry;
    DIR *dir = opendir(folder);

    pst_assert(*prefix);
    while (dir && (entry = readdir(dir))) {
        struct sockaddr_un un = {.sun_family = AF_UNIX};
        struct stat st;
        int n = snprintf(un.sun_path, sizeof(un.sun_path), "%s/%s", folder, entry->d_name);

        if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0 && (size_t)n < sizeof(un.sun_path) &&
            lstat(un.sun_path, &st) == 0 && st.st_uid == geteuid() &&
            st.st_mtime + SWEPT_AFTER_S < time(NULL) && path_stale(&un) == 1)
            unlink(un.sun_path);
    }
    if (dir)
        closedir(dir);
}

static int listen_one(const struct addrinfo *ai)
{
    int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int one = 1, zero = 0, r;

    pst_assert(ai->ai_addrlen > 0);
    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (ai->ai_family == AF_INET6) /* "::" serves both families */
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
    if (bind(fd, ai->ai_addr, ai->ai_addrlen) == 0 && listen(fd, LISTEN_BACKLOG) == 0)
        return fd;
    r = -errno;
    close(fd);
    return r;
}

static uint16_t port_of(int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } sa = {.any = {.sa_family = AF_UNSPEC}};
    socklen_t bytes = sizeof(sa);

    pst_assert(fd >= 0);
    if (getsockname(fd, &sa.any, &bytes) != 0)
        return 0;
    return ntohs(sa.any.sa_family == AF_INET6 ? sa.v6.sin6_port : sa.v4.sin_port);
}

int pst_boot_listen_tcp(struct pst_boot_address *address)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list = NULL;
    bool any = !address->host[0] || strcmp(address->host, "*") == 0;
    int fd = -EADDRNOTAVAIL;
    char port[8];

    pst_assert(!address->path[0]);
    snprintf(port, sizeof(port), "%u", address->port);
    if (getaddrinfo(any ? NULL : address->host, port, &hints, &list) != 0)
        return -EADDRNOTAVAIL;
    for (struct addrinfo *ai = list; ai && fd < 0; ai = ai->ai_next)
        fd = listen_one(ai);
    freeaddrinfo(list);
    if (fd >= 0)
        address->port = port_of(fd);
    return fd;
}

int boot_listen(struct pst_boot_address *address, uint64_t *inode)
{
    pst_assert(address && inode);
    *inode = 0;
    return address->path[0] ? pst_boot_listen_unix(address, inode) : pst_boot_listen_tcp(address);
}

void pst_boot_unlisten_unix(const struct pst_boot_address *address, uint64_t inode)
{
    struct stat st;

    pst_assert(address->path[0]);
    /* Another server may have taken the path over. */
    if (lstat(address->path, &st) == 0 && st.st_ino == inode)
        unlink(address->path);
}

void boot_unlisten(const struct boot_listener *listener)
{
    pst_assert(listener->magic == BOOT_LISTENER_MAGIC && listener->fd >= 0);
    close(listener->fd);
    if (listener->address.path[0])
        pst_boot_unlisten_unix(&listener->address, listener->inode);
}

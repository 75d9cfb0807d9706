/* SPDX-License-Identifier: Apache-2.0 */
/* listen.c: listening sockets for the bootstrap: TCP, and unix with what a dead server left behind. */
#include "net/handshake/server_priv.h"

#include <dirent.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

enum {
    LISTEN_BACKLOG = 256,
    LOCK_MS_MAX = 2000,
    LOCK_AGAIN_MS = 5,
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

/*
 * Two servers that find the same stale socket at once would each remove it, the later one the other's new
 * one. So they take turns by a lock on its folder. Another user may hold that lock as long as they like, and
 * a folder that may not be read has none: without the lock a server starts all the same. Return: a descriptor
 * or -1.
 */
static int lock_folder(const char *path)
{
    char folder[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
    char *slash;
    int fd;

    snprintf(folder, sizeof(folder), "%s", path);
    slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = 0;
    fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int waited_ms = 0; fd >= 0 && waited_ms < LOCK_MS_MAX; waited_ms += LOCK_AGAIN_MS) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
            break;
        usleep(LOCK_AGAIN_MS * 1000);
    }
    return fd;
}

static int listen_at(const struct sockaddr_un *un, uint64_t *inode)
{
    struct stat st;
    int fd, r = path_stale(un);

    if (r < 0)
        return r;
    if (r == 1 && unlink(un->sun_path) != 0 && errno != ENOENT)
        return -errno;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    /* Before bind the mode becomes the path's: there is no moment at which others may connect. */
    if (fchmod(fd, 0600) != 0 || bind(fd, (const struct sockaddr *)un, sizeof(*un)) != 0 ||
        listen(fd, LISTEN_BACKLOG) != 0 || lstat(un->sun_path, &st) != 0) {
        r = -errno;
        close(fd);
        return r;
    }
    *inode = st.st_ino;
    return fd;
}

int pst_boot_listen_unix(const struct pst_boot_address *address, uint64_t *inode)
{
    pst_cleanup_close int lock = -1;
    struct sockaddr_un un;

    pst_assert(address->path[0]);
    pst_assert(inode);
    boot_address_unix(address, &un);
    lock = lock_folder(un.sun_path);
    return listen_at(&un, inode);
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
    pst_assert(listener->magic == BOOT_LISTENER_MAGIC);
    pst_assert(listener->fd >= 0);
    close(listener->fd);
    if (listener->address.path[0])
        pst_boot_unlisten_unix(&listener->address, listener->inode);
}

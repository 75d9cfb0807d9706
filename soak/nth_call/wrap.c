/* SPDX-License-Identifier: Apache-2.0 */
#include "wrap.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/timerfd.h>
#include <unistd.h>

static _Atomic int armed_mode = -1; /* -1: not armed */
static _Atomic unsigned calls, fail_at;
static _Atomic bool hit;
static _Atomic(const char *) hit_name = "";
static bool planted;

/* ---- which call fails ---- */

void fail_arm(enum fail_mode mode, unsigned nth)
{
    calls = 0;
    fail_at = nth;
    hit = false;
    armed_mode = (int)mode;
}

bool fail_disarm(void)
{
    armed_mode = -1;
    return hit;
}

const char *fail_name(void)
{
    return hit_name;
}

void fail_plant(void)
{
    planted = true;
}

void *__real_malloc(size_t bytes);
static void *keep(void *block);

/* Return: true when this call is the one, with errno set. @hard, @soft: the errno of a mode, 0: not counted.
 */
static bool fails(const char *name, int hard, int soft)
{
    int mode = armed_mode, error = mode == FAIL_HARD ? hard : mode == FAIL_INTERRUPTED ? soft : 0;

    if (error == 0 || atomic_fetch_add(&calls, 1) + 1 != fail_at)
        return false;
    hit = true;
    hit_name = name;
    if (planted) {
        (void)keep(__real_malloc(100));
        (void)!dup(STDERR_FILENO);
    }
    errno = error;
    return true;
}

/* Memory of the kernel's own, which can be busy and nothing worse. */
static bool anonymous(int fd)
{
    char path[40], target[16] = "";

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return readlink(path, target, sizeof(target) - 1) > 0 && strncmp(target, "anon_inode:", 11) == 0;
}

/* ---- blocks ---- */

enum { BLOCKS_MAX = 1 << 20 };

static uintptr_t blocks[BLOCKS_MAX]; /* open addressing; 1: a block was here */
static size_t block_count;
static pthread_mutex_t blocks_lock = PTHREAD_MUTEX_INITIALIZER;

static size_t place_of(const void *block)
{
    return ((uintptr_t)block >> 4) * 0x9e3779b97f4a7c15ull >> 44;
}

static void *keep(void *block)
{
    size_t at = place_of(block);

    if (!block)
        return NULL;
    pthread_mutex_lock(&blocks_lock);
    while (blocks[at] > 1)
        at = (at + 1) % BLOCKS_MAX;
    blocks[at] = (uintptr_t)block;
    block_count++;
    pthread_mutex_unlock(&blocks_lock);
    return block;
}

/* Blocks that a library made are not there. */
static void forget(void *block)
{
    size_t at = place_of(block);

    pthread_mutex_lock(&blocks_lock);
    for (size_t i = 0; i < BLOCKS_MAX && blocks[at] != 0 && blocks[at] != (uintptr_t)block; i++)
        at = (at + 1) % BLOCKS_MAX;
    if (block && blocks[at] == (uintptr_t)block) {
        blocks[at] = 1;
        block_count--;
    }
    pthread_mutex_unlock(&blocks_lock);
}

size_t fail_blocks(void)
{
    size_t count;

    pthread_mutex_lock(&blocks_lock);
    count = block_count;
    pthread_mutex_unlock(&blocks_lock);
    return count;
}

/* ---- memory ---- */

void *__wrap_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes)
{
    return fails("malloc", ENOMEM, 0) ? NULL : keep(__real_malloc(bytes));
}

void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes)
{
    return fails("calloc", ENOMEM, 0) ? NULL : keep(__real_calloc(count, bytes));
}

void *__real_realloc(void *block, size_t bytes);
void *__wrap_realloc(void *block, size_t bytes);
void *__wrap_realloc(void *block, size_t bytes)
{
    if (fails("realloc", ENOMEM, 0))
        return NULL;
    forget(block);
    return keep(__real_realloc(block, bytes));
}

void *__real_aligned_alloc(size_t align, size_t bytes);
void *__wrap_aligned_alloc(size_t align, size_t bytes);
void *__wrap_aligned_alloc(size_t align, size_t bytes)
{
    return fails("aligned_alloc", ENOMEM, 0) ? NULL : keep(__real_aligned_alloc(align, bytes));
}

char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);
char *__wrap_strdup(const char *text)
{
    return fails("strdup", ENOMEM, 0) ? NULL : keep(__real_strdup(text));
}

char *__real_strndup(const char *text, size_t bytes);
char *__wrap_strndup(const char *text, size_t bytes);
char *__wrap_strndup(const char *text, size_t bytes)
{
    return fails("strndup", ENOMEM, 0) ? NULL : keep(__real_strndup(text, bytes));
}

void __real_free(void *block);
void __wrap_free(void *block);
void __wrap_free(void *block)
{
    forget(block);
    __real_free(block);
}

/* ---- system calls: WRAP(return type, failure, hard errno, soft errno, name, parameters, arguments) ---- */

#define WRAP(type, failure, hard, soft, name, parameters, arguments)                                         \
    type __real_##name parameters;                                                                           \
    type __wrap_##name parameters;                                                                           \
    type __wrap_##name parameters                                                                            \
    {                                                                                                        \
        return fails(#name, hard, soft) ? (failure) : __real_##name arguments;                               \
    }

WRAP(void *, MAP_FAILED, ENOMEM, 0, mmap, (void *at, size_t n, int prot, int flags, int fd, off_t off),
     (at, n, prot, flags, fd, off))
WRAP(int, -1, ENOMEM, 0, madvise, (void *at, size_t n, int advice), (at, n, advice))
WRAP(int, -1, ENOSPC, 0, ftruncate, (int fd, off_t bytes), (fd, bytes))
WRAP(int, -1, ENOSPC, EINTR, fallocate, (int fd, int mode, off_t off, off_t n), (fd, mode, off, n))
WRAP(int, -1, EMFILE, 0, memfd_create, (const char *name, unsigned flags), (name, flags))
WRAP(int, -1, EMFILE, 0, eventfd, (unsigned value, int flags), (value, flags))
WRAP(int, -1, EMFILE, 0, epoll_create1, (int flags), (flags))
WRAP(int, -1, ENOSPC, 0, epoll_ctl, (int fd, int op, int what, struct epoll_event *event),
     (fd, op, what, event))
WRAP(int, -1, EINTR, EINTR, epoll_wait, (int fd, struct epoll_event *events, int max, int ms),
     (fd, events, max, ms))
WRAP(int, -1, EINTR, EINTR, poll, (struct pollfd * fds, nfds_t n, int ms), (fds, n, ms))
WRAP(int, -1, EMFILE, 0, timerfd_create, (int clock, int flags), (clock, flags))
WRAP(int, -1, EMFILE, 0, socket, (int domain, int type, int protocol), (domain, type, protocol))
WRAP(int, -1, ECONNREFUSED, 0, connect, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n))
WRAP(int, -1, EMFILE, EINTR, accept4, (int fd, struct sockaddr *a, socklen_t *n, int flags),
     (fd, a, n, flags))
WRAP(int, -1, EADDRINUSE, 0, bind, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n))
WRAP(int, -1, EADDRINUSE, 0, listen, (int fd, int backlog), (fd, backlog))
WRAP(int, -1, ENOBUFS, 0, getsockopt, (int fd, int level, int name, void *value, socklen_t *n),
     (fd, level, name, value, n))
WRAP(int, -1, ENOBUFS, 0, setsockopt, (int fd, int level, int name, const void *value, socklen_t n),
     (fd, level, name, value, n))
WRAP(int, -1, ENOBUFS, 0, getsockname, (int fd, struct sockaddr *a, socklen_t *n), (fd, a, n))
WRAP(int, -1, ENOTCONN, 0, getpeername, (int fd, struct sockaddr *a, socklen_t *n), (fd, a, n))
WRAP(ssize_t, -1, ECONNRESET, EINTR, send, (int fd, const void *data, size_t n, int flags),
     (fd, data, n, flags))
WRAP(ssize_t, -1, ECONNRESET, EINTR, recv, (int fd, void *data, size_t n, int flags), (fd, data, n, flags))
WRAP(ssize_t, -1, ECONNRESET, EINTR, sendmsg, (int fd, const struct msghdr *m, int flags), (fd, m, flags))
WRAP(ssize_t, -1, ECONNRESET, EINTR, recvmsg, (int fd, struct msghdr *m, int flags), (fd, m, flags))
WRAP(ssize_t, -1, EINTR, EINTR, getrandom, (void *out, size_t n, unsigned flags), (out, n, flags))
WRAP(int, -1, EIO, 0, stat, (const char *path, struct stat *out), (path, out))
WRAP(int, -1, EIO, 0, lstat, (const char *path, struct stat *out), (path, out))
WRAP(int, -1, EIO, 0, fstat, (int fd, struct stat *out), (fd, out))
WRAP(int, -1, EIO, EINTR, statvfs, (const char *path, struct statvfs *out), (path, out))
WRAP(int, -1, EPERM, 0, fchmod, (int fd, mode_t mode), (fd, mode))
WRAP(int, -1, ENOLCK, EINTR, flock, (int fd, int how), (fd, how))
WRAP(int, -1, ENOSPC, 0, linkat, (int a, const char *from, int b, const char *to, int flags),
     (a, from, b, to, flags))
WRAP(DIR *, NULL, EMFILE, 0, opendir, (const char *path), (path))
WRAP(FILE *, NULL, EMFILE, 0, fopen, (const char *path, const char *mode), (path, mode))
WRAP(int, EAI_MEMORY, ENOMEM, 0, getaddrinfo,
     (const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **out),
     (host, port, hints, out))
WRAP(int, EAGAIN, EAGAIN, 0, pthread_create,
     (pthread_t * thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg),
     (thread, attr, run, arg))

ssize_t __real_read(int fd, void *data, size_t bytes);
ssize_t __wrap_read(int fd, void *data, size_t bytes);
ssize_t __wrap_read(int fd, void *data, size_t bytes)
{
    return fails("read", anonymous(fd) ? EAGAIN : EIO, EINTR) ? -1 : __real_read(fd, data, bytes);
}

ssize_t __real_write(int fd, const void *data, size_t bytes);
ssize_t __wrap_write(int fd, const void *data, size_t bytes);
ssize_t __wrap_write(int fd, const void *data, size_t bytes)
{
    return fails("write", anonymous(fd) ? 0 : ENOSPC, EINTR) ? -1 : __real_write(fd, data, bytes);
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    va_list args;
    mode_t mode;

    va_start(args, flags);
    mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;
    va_end(args);
    return fails("open", EMFILE, 0) ? -1 : __real_open(path, flags, mode);
}

int __real_openat(int folder, const char *path, int flags, ...);
int __wrap_openat(int folder, const char *path, int flags, ...);
int __wrap_openat(int folder, const char *path, int flags, ...)
{
    return fails("openat", EMFILE, 0) ? -1 : __real_openat(folder, path, flags);
}

int __real_fcntl(int fd, int what, ...);
int __wrap_fcntl(int fd, int what, ...);
int __wrap_fcntl(int fd, int what, ...)
{
    va_list args;
    int value;

    va_start(args, what);
    value = va_arg(args, int);
    va_end(args);
    /* Asking for flags does not fail. */
    return fails("fcntl", what == F_DUPFD_CLOEXEC ? EMFILE : 0, 0) ? -1 : __real_fcntl(fd, what, value);
}

/* ---- a command with a failure in it: FAIL_NTH, FAIL_MODE, and what became of it in FAIL_REPORT ---- */

static void report(void)
{
    const char *path = getenv("FAIL_REPORT");
    char line[80];
    int fd = path ? __real_open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;

    if (fd < 0)
        return;
    fail_disarm();
    snprintf(line, sizeof(line), "%d %u %s\n", hit, calls, fail_name());
    (void)!__real_write(fd, line, strlen(line));
    close(fd);
}

__attribute__((constructor)) static void arm_from_environment(void)
{
    const char *nth = getenv("FAIL_NTH"), *mode = getenv("FAIL_MODE");

    if (!nth)
        return;
    atexit(report);
    fail_arm(mode && strcmp(mode, "interrupted") == 0 ? FAIL_INTERRUPTED : FAIL_HARD, (unsigned)atoi(nth));
}

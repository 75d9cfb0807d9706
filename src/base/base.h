/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base.h: what every room stands on: assertions that stay in release builds, size arithmetic, clean-up.
 * Pure; any thread. Source: docs/explanation/rooms.md, base.
 */
#ifndef PST_BASE_H
#define PST_BASE_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define pst_likely(x)   __builtin_expect(!!(x), 1)
#define pst_unlikely(x) __builtin_expect(!!(x), 0)

/* Prints the broken assertion and aborts: a bug in this program, never a peer's bad input. */
_Noreturn void pst_assert_failed(const char *text, const char *file, int line);

#define pst_assert(x)                                                                                        \
    do {                                                                                                     \
        if (pst_unlikely(!(x)))                                                                              \
            pst_assert_failed(#x, __FILE__, __LINE__);                                                       \
    } while (0)

#define pst_container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))
#define pst_count_of(array)                 (sizeof(array) / sizeof((array)[0]))

static inline uint64_t pst_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t pst_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Rounds up to a multiple of @unit (any number above zero). */
static inline uint64_t pst_round_up(uint64_t n, uint64_t unit)
{
    pst_assert(unit > 0);
    return (n + unit - 1) / unit * unit;
}

static inline uint64_t pst_div_up(uint64_t n, uint64_t unit)
{
    pst_assert(unit > 0);
    return n / unit + (n % unit != 0);
}

static inline bool pst_add_overflows(uint64_t a, uint64_t b, uint64_t *sum)
{
    return __builtin_add_overflow(a, b, sum);
}

static inline void pst_free_ptr(void *p)
{
    free(*(void **)p);
}

static inline void pst_close_fd(int *fd)
{
    if (*fd >= 0)
        pst_assert(close(*fd) == 0 || errno != EBADF); /* closed twice, it was another's in between */
    *fd = -1;
}

/* Eventfds (and, to clear, timers) that do not block: whoever polls @fd wakes, until it is cleared. */
void pst_event_set(int fd);
void pst_event_clear(int fd);

#define pst_cleanup_free  __attribute__((cleanup(pst_free_ptr)))
#define pst_cleanup_close __attribute__((cleanup(pst_close_fd)))

/* A key or a value as bytes that someone else owns. */
struct pst_bytes {
    const void *data;
    size_t len;
};

static inline struct pst_bytes pst_bytes_of(const char *text)
{
    return (struct pst_bytes){text, strlen(text)};
}

/* memcmp order, then length: the order of every listing. */
static inline int pst_bytes_compare(struct pst_bytes a, struct pst_bytes b)
{
    size_t len = a.len < b.len ? a.len : b.len;
    int order = len ? memcmp(a.data, b.data, len) : 0;

    return order ? order : (a.len > b.len) - (a.len < b.len);
}

static inline bool pst_bytes_equal(struct pst_bytes a, struct pst_bytes b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

static inline bool pst_bytes_begin(struct pst_bytes bytes, struct pst_bytes prefix)
{
    return bytes.len >= prefix.len && (prefix.len == 0 || memcmp(bytes.data, prefix.data, prefix.len) == 0);
}

#endif

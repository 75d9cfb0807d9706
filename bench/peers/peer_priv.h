/* SPDX-License-Identifier: Apache-2.0 */
/* peer_priv.h: what the files behind peer.h share. */
#ifndef PENSTOCK_BENCH_PEER_PRIV_H
#define PENSTOCK_BENCH_PEER_PRIV_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

/* A connected, blocking socket for "1.2.3.4:port" or "/path", or a negative errno. */
int peer_connect(const char *address);
int peer_send_all(int fd, const char *bytes, size_t byte_count);
/* Bytes received, at least one, or a negative errno: -ECONNRESET when the peer has closed, -EMSGSIZE without
 * @room. Polls for @spin_ns before it sleeps. */
ssize_t peer_receive(int fd, char *bytes, size_t room, uint64_t spin_ns);

/* Times in a table of logarithmic steps, each cut in 256: within 0.4 % at any length, and of fixed size. */
#define PEER_TIMES_CUT_BITS 8
#define PEER_TIMES_CUTS     (1U << PEER_TIMES_CUT_BITS)
struct peer_times {
    uint64_t count;
    uint32_t bins[(64 - PEER_TIMES_CUT_BITS + 1) * PEER_TIMES_CUTS];
};
void peer_times_add(struct peer_times *t, uint64_t elapsed_ns);
/* Microseconds below which @share (0 to 1) of the times lie; 0 when there are none. */
double peer_times_us(const struct peer_times *t, double share);

static inline uint64_t peer_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

#endif

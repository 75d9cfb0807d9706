/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot_rig.h: what the tests of the bootstrap share: a server that a thread polls over real sockets, with a
 * clock that can be set, so that no test waits for a timeout; and clients in the test's thread.
 */
#ifndef PST_TEST_BOOT_RIG_H
#define PST_TEST_BOOT_RIG_H

#include "lib/cm.h"

#include "base/clock.h"
#include "net/handshake/handshake_priv.h"

#include <pthread.h>
#include <stdatomic.h>

#define SECOND_NS 1000000000ull

struct rig {
    struct pst_boot_server *server;
    struct pst_boot_address tcp, path;
    pthread_t thread;
    bool running;
    atomic_bool stop;
    atomic_ullong fixed_ns; /* 0: the real clock */
    atomic_int welcomes, connects, ends, refusals;
    atomic_int welcome_error, connect_error;
    atomic_int kind; /* enum pst_boot_refusal of the last one */
    bool same_host, descriptors;
    int arena_fd;
    atomic_int attaches;
    struct stream_channel *attached; /* the last one, and what came behind its frame; the test's */
    uint32_t shard;
    size_t early_bytes;
    uint8_t early[256];
    char why[128], address[64];
    pthread_mutex_t lock;
};

struct client {
    struct pst_boot_welcome welcome;
    int fds[PST_BOOT_ARENAS_MAX];
    struct pst_boot_link *link;
    const char *fault;
};

extern const struct pst_boot_server_ops rig_ops;

void rig_run(struct rig *rig);
void rig_halt(struct rig *rig);
void rig_open_with(struct rig *rig, const struct pst_boot_server_options *options);
void rig_open(struct rig *rig, const char *secret, uint32_t sessions_max, uint32_t handshakes_max);
void rig_close(struct rig *rig);
int dial_with(struct client *c, const struct pst_boot_address *address,
              const struct pst_boot_client_options *options);
int dial(struct client *c, const struct pst_boot_address *address, const char *secret, bool network_only);
int client_address(struct client *c);
/* Waits until @count reached @wanted. */
void await_count(const atomic_int *count, int wanted);
void expect_session(struct rig *rig, const struct pst_boot_address *address, const char *secret);
int raw_connect(struct rig *rig);
/* Reads up to the end of file. Return: bytes read. */
size_t raw_drain(int fd, uint8_t *buf, size_t cap);
size_t hello_frame(uint8_t out[BOOT_HEAD_BYTES + BOOT_HELLO_BYTES]);

#endif

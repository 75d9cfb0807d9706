/* SPDX-License-Identifier: Apache-2.0 */
/*
 * raw_session.h: a session with a node that says what it is told to, over the bootstrap socket and UCX as any
 * client, but without a client's care: operations are encoded as they are, values go wherever their parts
 * say. One thread.
 */
#ifndef PST_TEST_RAW_SESSION_H
#define PST_TEST_RAW_SESSION_H

#include "net/handshake.h"
#include "net/net.h"
#include "wire/wire.h"

enum {
    RAW_SHARDS_MAX = 8,
    RAW_BODY_BYTES_MAX = PST_NET_EAGER_BYTES_MAX,
};

struct raw_body {
    uint32_t count;
    size_t bytes;
    uint8_t data[RAW_BODY_BYTES_MAX];
};

/* What came back; @body has the results of a REPLY. */
typedef void (*raw_heard)(void *ctx, uint32_t shard, const struct pst_wire_head *head, struct pst_bytes body);

struct raw;

/* All sessions of the process share @net. Return: NULL: refused, with the reason in *@fault. */
/* PENSTOCK_TRANSPORT=stream: sessions, and the net that they are given, use the stream. */
enum pst_net_transport raw_transport(void);
struct raw *raw_open(struct pst_net *net, const struct pst_boot_address *address, struct pst_bytes secret,
                     raw_heard heard, void *ctx, const char **fault);
struct raw *raw_close(struct raw *raw);
uint32_t raw_shards(const struct raw *raw);
uint32_t raw_shard_of(const struct raw *raw, struct pst_bytes key);
/* Adds an operation as it is. Return: false: no room. */
bool raw_add(struct raw_body *body, const struct pst_wire_op *op);
/* Sends a request. Return: 0, -EBUSY, -ECONNRESET. */
int raw_ask(struct raw *raw, uint32_t shard, uint32_t request, uint32_t timeout_ms,
            const struct raw_body *body);
/* Sends @bytes of a value, zeros, as one message with these parts. Return: as raw_ask(). */
int raw_send(struct raw *raw, uint32_t shard, uint32_t request, uint32_t index,
             const struct pst_wire_part *parts, uint32_t part_count, uint64_t bytes);
/* Looks at what has come. Return: false: the session is over. */
bool raw_poll(struct raw *raw);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * call.h: outgoing requests: a *channel* is a session with one node, over which operations travel in batches.
 *
 * A channel is used by one thread at a time; pst_channel_poll() does all the work. Operations are the
 * caller's (struct penstock_op) and come back on the list that was named at submit, always exactly once: with
 * the node's answer, or by their deadline with what is known. When a session breaks, the channel connects
 * anew: reads are sent again, writes that were sent end as PENSTOCK_UNKNOWN, writes that the node refused as
 * busy are tried again until their deadline.
 */
#ifndef PST_CALL_H
#define PST_CALL_H

#include "base/base.h"
#include "net/handshake.h"
#include "net/net.h"
#include "wire/wire.h"

#include <penstock/penstock.h>

struct pst_channel;

_Static_assert((int)PST_BOOT_VERSION == (int)PST_WIRE_VERSION &&
                   (int)PST_BOOT_VERSION_OLDEST == (int)PST_WIRE_VERSION_OLDEST,
               "a session has one version");

/* ---- operations, wherever they are carried out ---- */

enum {
    PST_OP_PIECES_MAX = PST_NET_BULK_IOV_MAX,
    PST_OP_BYTES_PER_MS = 64 << 10, /* extra time that a large value gets */
    PST_OP_EXTRA_MS_MAX = 24 * 3600 * 1000,
};

/* Ended operations, in the order of their end, linked through penstock_op.reserved. */
struct pst_op_list {
    struct penstock_op *first, *last;
    size_t count;
    int wake_fd; /* an eventfd that every push writes to; 0: none */
};

void pst_op_list_push(struct pst_op_list *list, struct penstock_op *op);
struct penstock_op *pst_op_list_pop(struct pst_op_list *list);
/* All of @first come before those of @list, and are its own. */
void pst_op_list_prepend(struct pst_op_list *list, const struct pst_op_list *first);
/*
 * Clears what earlier use left in @op and checks it. @shard: negative to go by key, as all operations of the
 * public interface do; the codes that are not public name their shard, but for
 * COPY. Return: 0, -EINVAL, -ENAMETOOLONG.
 */
int pst_op_begin(struct penstock_op *op, int shard, struct pst_op_list *done);
void pst_op_end(struct penstock_op *op, int result);
/* The request that it travelled in last: the session's place in the node, then the request's number in it. 0:
 * none. */
uint64_t pst_op_request(const struct penstock_op *op);
/* @op ends with what @sent brought, which was sent for it; @copies of a value were written. */
void pst_op_end_as(struct penstock_op *op, const struct penstock_op *sent, int result, uint32_t copies);
/* Of one that has ended. */
void pst_op_set_copies(struct penstock_op *op, uint32_t copies);
uint32_t pst_op_copies(const struct penstock_op *op);
/* Of a view that has ended: the session of the channel that has it. */
void pst_op_set_session(struct penstock_op *op, uint64_t session);
uint64_t pst_op_session(const struct penstock_op *op);
/* The trace that it belongs to, borrowed until it has ended; NULL: none. Set before it is submitted; what is
 * submitted again keeps it. */
enum { PST_OP_TRACE = 4 }; /* of its words; words_priv.h has the others */
static inline void pst_op_set_trace(struct penstock_op *op, const struct pst_traceparent *trace)
{
    op->reserved[PST_OP_TRACE] = (void *)(uintptr_t)trace;
}
static inline const struct pst_traceparent *pst_op_trace(const struct penstock_op *op)
{
    return op->reserved[PST_OP_TRACE];
}
/* The list that an operation underway will be pushed to. */
struct pst_op_list *pst_op_done_list(const struct penstock_op *op);
/* Writes to the list's descriptor, where it has one. */
void pst_op_list_wake(const struct pst_op_list *list);
/* Until when an operation underway is tried again; 0: not set since its begin. */
uint64_t pst_op_deadline(const struct penstock_op *op);
void pst_op_set_deadline(struct penstock_op *op, uint64_t ns);
/* How long an operation waits for what is not there yet; @preset_ms: unless it says. 0: it does not. */
uint64_t pst_op_wait_ms(const struct penstock_op *op, uint64_t preset_ms);
/* Where the range of a get begins, as in a message: from INT64_MAX + 1 on it counts back from the value's
 * end. */
uint64_t pst_op_range_offset(const struct penstock_op *op);
/* The @bytes at @offset of an operation's buffers. Return: pieces, or -E2BIG. */
int pst_op_pieces(const struct penstock_op *op, uint64_t offset, uint64_t bytes, struct iovec *iov,
                  int iov_max);
/* Copies @bytes from @from to the operation's buffers at @offset, or the other way. */
void pst_op_copy_in(const struct penstock_op *op, uint64_t offset, const void *from, uint64_t bytes);
void pst_op_copy_out(const struct penstock_op *op, uint64_t offset, void *to, uint64_t bytes);
/* crc32c of the first @bytes of its buffers. */
uint32_t pst_op_crc(const struct penstock_op *op, uint64_t bytes);

/* ---- grants: what a node allows this process, by name ---- */

/* Any thread. Return: a number of its own for each name, 0 for "" or when there are too many. */
uint32_t pst_grant_number(const char *name);
/* The reverse: "" for none. */
void pst_grant_name(uint32_t number, char name[PST_BOOT_GRANT_BYTES_MAX + 1]);
/* penstock_error_detail.denied of an operation beyond the grant. */
enum { PST_DENIED_RIGHT = 0xff, PST_DENIED_GRANT_SHIFT = 8 };

/* An operation of the public interface: on a key. */
static inline bool pst_op_public(const struct penstock_op *op)
{
    return pst_code_has(op->code, PST_CODE_PUBLIC);
}

/* Some get more time the more bytes they move; a size that no value has gets no more than a day. */
static inline uint64_t pst_op_extra_ms(const struct penstock_op *op)
{
    return pst_code_has(op->code, PST_CODE_LONG)
               ? pst_min(op->bytes / PST_OP_BYTES_PER_MS, PST_OP_EXTRA_MS_MAX)
               : 0;
}

/* How many of the operations behind it in a request belong to it: those of a commit, at its data. */
static inline uint32_t pst_op_members(const struct penstock_op *op)
{
    return op->code == PST_WIRE_COMMIT ? (uint32_t)op->member_count : 0;
}

/* ---- channels ---- */

struct pst_channel_options {
    struct pst_boot_address address;
    struct pst_boot_address near; /* a unix socket that is tried first; no path: none */
    struct pst_bytes secret;      /* borrowed while the channel lives, as is the next */
    struct pst_tls *tls;          /* over TCP; NULL: plain */
    bool network_only;
    enum pst_boot_transport transport;
    bool fabric_trusted; /* UCX may leave the loopback device */
    bool impatient;      /* who asks can go elsewhere: what the node is too busy for ends as that, and what
                            waits for a session ends with the first attempt that fails */
    bool insists;        /* pst_channel_open() waits for a node that drops connections, all of connect_ms */
    uint8_t copies;      /* wished for of what is put, in a pool; 0: what is said of its prefix */
    uint32_t connect_ms;
    uint32_t timeout_ms; /* of an operation; large ones get more */
};

/* A channel that connects when it is polled and has something to carry. Return: 0, -ENOMEM, -EACCES the
 * address is not on loopback; *@fault: a static text. */
int pst_channel_begin(const struct pst_channel_options *options, struct pst_channel **out,
                      const char **fault);
/* One that is connected. Return: 0, or as above, or -errno of net/handshake.h; *@fault: valid until the
 * thread opens another. */
int pst_channel_open(const struct pst_channel_options *options, struct pst_channel **out, const char **fault);
/* Every operation has ended before. */
struct pst_channel *pst_channel_close(struct pst_channel *channel);

/* Takes an operation for the shard of its key, or for @shard when it is not negative. It may travel at the
 * next flush. */
void pst_channel_submit(struct pst_channel *channel, struct penstock_op *op, int shard,
                        struct pst_op_list *done);
/* The same with a deadline, where the channel's own is not sooner. */
void pst_channel_submit_until(struct pst_channel *channel, struct penstock_op *op, int shard,
                              struct pst_op_list *done, uint64_t until_ns);
void pst_channel_flush(struct pst_channel *channel);
/* Makes progress. Return: true when something happened. */
bool pst_channel_poll(struct pst_channel *channel);
/* A descriptor that wakes when pst_channel_arm() returned 0 and something happened; -EAGAIN: poll first,
 * -EBUSY: poll again soon. */
int pst_channel_fd(struct pst_channel *channel);
int pst_channel_arm(struct pst_channel *channel);
/* Makes progress, or waits for some, @ms at the most, unless @done has an operation. */
void pst_channel_wait(struct pst_channel *channel, const struct pst_op_list *done, int ms);

/* Without a session, and something waits for one. */
bool pst_channel_connecting(const struct pst_channel *channel);
/* Why the last attempt failed; "" when none did. */
const char *pst_channel_fault(const struct pst_channel *channel);
/* 0 before the first session. */
uint32_t pst_channel_shards(const struct pst_channel *channel);
uint32_t pst_channel_shard_of(const struct pst_channel *channel, struct pst_bytes key);
/* Where the node has keys is by this; one that comes back may have another. */
uint64_t pst_channel_seed(const struct pst_channel *channel);
const char *pst_channel_lane(const struct pst_channel *channel);
/* The node's arenas, when its welcome brought them. Return: their number; descriptors stay the channel's. */
uint32_t pst_channel_arenas(const struct pst_channel *channel, const int **fds, uint64_t *stride);
/* Messages with operations in them that were sent. */
uint64_t pst_channel_requests(const struct pst_channel *channel);
/* Counts sessions: changes when the channel has connected anew, and views of an older session are gone. */
uint64_t pst_channel_session(const struct pst_channel *channel);

/* A duplicate of the session's socket, the caller's: as long as it is open, the node keeps the views of this
 * session, whatever becomes of the session itself. -errno. */
int pst_channel_hold(const struct pst_channel *channel);

int pst_channel_register(struct pst_channel *channel, void *addr, size_t bytes, void **handle);
void pst_channel_unregister(struct pst_channel *channel, void *handle);

#endif

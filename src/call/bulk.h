/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bulk.h: large values as bulk messages, the same in both directions. Long contiguous pieces travel alone and
 * are not copied; shorter ones share a message of up to PST_NET_PACK_BYTES_MAX. The sender's pieces come from
 * a callback, so that a client's buffers and a node's pages look alike.
 */
#ifndef PST_BULK_H
#define PST_BULK_H

#include "base/base.h"
#include "base/list.h"
#include "net/net.h"
#include "wire/wire.h"

enum {
    PST_BULK_ALONE_BYTES_MIN = 256 << 10,
    PST_BULK_DIRECT_BYTES_MIN = 64 << 10, /* the same where remote DMA reads what travels alone */
    /* Messages of one request at once: more would share the wire and the caches, and none would arrive
       sooner. */
    PST_BULK_UNDERWAY_MAX = 4,
    /* Announcements of a session that wait for their turn; only a transport that reorders makes any wait. */
    PST_BULK_PARKED_MAX = 1024,
};

/* A place in the sender's list of values. */
struct pst_bulk_cursor {
    uint32_t item;
    uint64_t offset; /* inside the value's bytes */
};

/*
 * The contiguous piece at @cursor, which first moves on to an item that has one, and the place of its
 * operation in the request. Return: false behind the last.
 */
typedef bool (*pst_bulk_next)(void *ctx, struct pst_bulk_cursor *cursor, struct iovec *piece, uint32_t *op);

/*
 * Sends what lies behind @cursor, as long as the transport takes it. @cursor and *@messages, which numbers
 * them, move on.
 * @piece_bytes_max: longest piece in one message. @arg comes back in each PST_NET_SENT; *@underway counts
 * those to expect. Return: 0 all sent, -EBUSY go on after the next poll, -EAGAIN after a send has ended,
 * -errno. At most one message per call is copied together: the port must be polled in between, so that what
 * was packed before travels meanwhile.
 */
int pst_bulk_send(struct pst_peer *peer, const struct pst_wire_head *head, pst_bulk_next next, void *ctx,
                  uint64_t piece_bytes_max, struct pst_bulk_cursor *cursor, void *arg, uint32_t *messages,
                  uint32_t *underway);

/*
 * Bulk messages of a request are taken in the order of their index. One that comes before its turn, or before
 * its request, is parked: announced, and not yet received.
 */
struct pst_bulk_park {
    struct pst_list parked;
    uint32_t count;
};

void pst_bulk_park_init(struct pst_bulk_park *park);
/* Drops all that is left. */
void pst_bulk_park_fini(struct pst_bulk_park *park);
/* Keeps the message of @event, or drops it when it is there already. Return: 0, -ENOBUFS too many (the caller
 * keeps it), -ENOMEM. */
int pst_bulk_park_add(struct pst_bulk_park *park, const struct pst_wire_head *head,
                      const struct pst_net_event *event);
/* Return: true and the message, which is the caller's then. */
bool pst_bulk_park_take(struct pst_bulk_park *park, uint32_t request, uint32_t index,
                        struct pst_wire_head *head, struct pst_net_event *event);
/* Drops what is there for a request that takes no more. */
void pst_bulk_park_drop(struct pst_bulk_park *park, uint32_t request);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copies_peer_priv.h: nodes that hold copies or are to, channels to them, and operations on their way there.
 * All of copies*.c sends by it.
 */
#ifndef PST_COPIES_PEER_PRIV_H
#define PST_COPIES_PEER_PRIV_H

#include "base/limits.h"
#include "call/call.h"
#include "pool/map.h"
#include "wire/pool_member.h"

enum { PEERS_MAX = 64 };

struct pst_copies;
struct pst_replica;
struct send;

/* How messages travel. Each that was submitted ends once, by copies_ended_send(), and never inside submit().
 */
struct copies_net {
    /* @member: NULL for this node itself. Return: 0 and @way, or -errno. */
    int (*open)(void *ctx, const struct pst_map_member *member, void **way);
    void (*close)(void *ctx, void *way); /* nothing is underway there */
    void (*submit)(void *ctx, struct send *send, int shard);
    uint32_t (*shards)(void *ctx, const void *way); /* 0 before the first answer */
};

/* A node that holds copies, or is this one. */
struct peer {
    uint16_t member;
    uint64_t epoch; /* of its membership; 0: none */
    void *way;
    uint32_t underway;
    uint64_t used_ns; /* last */
    bool failed;      /* it goes when nothing is underway any more */
};

/* One operation underway. */
struct send {
    struct penstock_op op;
    struct peer *peer;
    void (*ended)(struct pst_copies *c, struct send *send);
    struct pst_replica *replica; /* NULL: part of a join */
    uint32_t partition;
    uint64_t partition_epoch;
    void *flat; /* a value of more pieces than an operation takes */
    struct pst_wire_copy head;
    uint8_t attrs[PST_ATTR_BYTES_MAX];
};

/* Of a member's membership, by the pool map; 0: nobody has the number, or who has it has gone. */
uint64_t copies_member_epoch(const struct pst_copies *c, uint16_t member);
/* Who has that membership, with a channel. Return: NULL: there is none, or for now all channels are @busy. */
struct peer *copies_peer(struct pst_copies *c, uint16_t member, uint64_t epoch, bool *busy);
/* There is a channel to this node. */
bool copies_self(struct pst_copies *c);
struct send *copies_send_new(struct peer *peer);
void copies_submit(struct pst_copies *c, struct send *send, int shard);
/*
 * Reads the answer to a COPY_CLEAR, which a peer gave. Return: 1 all of the shard has been gone through, 0
 * there is more, behind the key in @resume; -EPROTO it makes no sense.
 */
int copies_read_swept(const struct send *send, const uint8_t *data, uint8_t resume[PST_WIRE_KEY_BYTES_MAX],
                      size_t *resume_bytes);
/* A peer that answers so has not taken a write, and is none the worse. */
bool copies_is_refusal(int result);
/* NULL: nothing. */
void copies_send_free(struct send *send);
/* Those whose membership has ended go. */
void copies_peers_follow_map(struct pst_copies *c);
void copies_close_failed(struct pst_copies *c);

/* ---- who drives the sender ---- */

/* A message has ended, with its result in @send->op. */
void copies_ended_send(struct pst_copies *c, struct send *send);
uint32_t copies_underway(const struct pst_copies *c);
void copies_close_peers(struct pst_copies *c);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* worker.h: a shard's thread: its port, its sessions, its requests, and what others tell it. */
#ifndef PST_NODE_WORKER_H
#define PST_NODE_WORKER_H

#include "base/list.h"
#include "net/handshake.h"
#include "net/net.h"
#include "node/session.h"
#include "node/times.h"
#include "store/shard.h"
#include "store/store.h"
#include "store/watch.h"
#include "wire/wire.h"

#include <pthread.h>
#include <stdatomic.h>

struct pst_node;
struct pst_request;
struct pst_commit;

#define PST_WORKER_MAGIC 0x776f726bu

enum {
    SINK_BYTES = PST_NET_PACK_BYTES_MAX,
    SCRATCH_BYTES = 64 << 10,
};

/* What a shard tells another one; a part of what it is about, and under one roof at a time. */
struct pst_commit_message {
    struct pst_list link;
    struct pst_commit *commit;
};

/*
 * Clients on this host write into one shared-memory queue. One that dies between taking a place in it and
 * filling it blocks the queue for good; so after every end of such a session the worker sends itself a
 * message, and opens its port anew when that does not come.
 */
struct pst_probe {
    struct pst_peer *self;
    uint64_t token;
    uint64_t awake_ns; /* a clock that stands still while the thread has no core to look at its port */
    uint64_t ticked_ns;
    uint64_t sent_ns;    /* awake_ns then; 0: none underway */
    uint64_t unarmed_ns; /* since then UCX had something to do and nothing has happened; 0: not so */
    uint64_t reopening_ns;
    uint64_t retry_ns; /* when to try to open the port again, should it be closed */
    uint32_t retry_ms; /* since the last time; 0: it did not fail */
    bool due;
    bool reopening; /* the old port's peers are being closed */
};

struct pst_worker {
    uint32_t magic;
    uint32_t number;
    struct pst_node *node;
    struct pst_shard *shard;
    const uint32_t *locks;                         /* keys of the shard that commits have locked */
    struct pst_port *port;                         /* UCX's; NULL: closed, and not to be opened for now */
    struct pst_port *stream;                       /* NULL: not offered */
    uint8_t address[2][PST_NET_ADDRESS_BYTES_MAX]; /* with and without shared memory */
    size_t address_bytes[2];                       /* 0: clients cannot connect now */
    pthread_t thread;
    bool running;
    int wake_fd;
    struct pst_probe probe;
    uint32_t parting;   /* shard sessions whose peer is being closed */
    uint64_t view_uses; /* the last view's, for its handle */
    uint64_t malformed; /* messages that broke the protocol */
    uint64_t forbidden; /* operations beyond their clients' grants */
    _Atomic bool has_mail;
    _Atomic bool stopping;
    _Atomic uint64_t keys;      /* published for everyone */
    pthread_mutex_t inbox_lock; /* of the session events and of the addresses */
    struct pst_list session_events;
    struct pst_list connections; /* of sessions over the stream; behind inbox_lock, as those */
    _Atomic bool mailed;
    struct pst_list commit_messages; /* of other shards; behind inbox_lock */
    uint32_t commits;                /* that it coordinates */
    struct pst_list shard_sessions;
    struct pst_shard_session **by_place; /* sessions by the low bits of their token */
    struct pst_list idle;                /* requests */
    struct pst_list stalled;             /* requests that the transport was too busy for */
    uint32_t request_count;
    uint32_t underway;
    struct pst_list late; /* requests that are answered later */
    struct pst_list due;  /* shard sessions with some to be answered as soon as they may */
    uint64_t late_ns;     /* the first whose time is over */
    bool tiered;          /* values may be away from memory; */
    bool logs;            /* and on an SSD */
    uint32_t waits;       /* gets among them */
    uint32_t watches;
    uint64_t watch_handle; /* the last one given; no session's is another's, nor an earlier node's */
    struct pst_times times;
    uint64_t now_ns; /* of this round; worker_clock() sets it */
    uint64_t tick_ns;
    int sleep_ms; /* at the longest, when idle */
    void *sink;   /* where refused bytes go */
    struct pst_wire_op ops[PST_WIRE_OPS_MAX];
    struct pst_lookup lookups[PST_WIRE_OPS_MAX];
    uint32_t missing_count;            /* of these operations, those beyond their client's grant: */
    uint8_t missing[PST_WIRE_OPS_MAX]; /* the right that each lacks; 0: none */
    uint8_t scratch[SCRATCH_BYTES];    /* of the operation at hand */
    uint8_t over_quota[16];            /* a result that says so; as `busy` */
    uint8_t busy[PST_WIRE_OPS_MAX]
                [16]; /* results that say busy; written once, so that a send may borrow them */
};

int pst_worker_init(struct pst_worker *w, struct pst_node *node, uint32_t number);
int pst_worker_start(struct pst_worker *w);
void pst_worker_stop(struct pst_worker *w); /* after node->stopping was set */
void pst_worker_fini(struct pst_worker *w);
/* Control thread: tells the shard what became of a session; each kind once. */
void pst_worker_tell(struct pst_worker *w, struct pst_session *session, enum pst_session_event_kind kind);
void pst_worker_wake(struct pst_worker *w);
/* Any shard: pst_commit_receive() will be called on @w's thread. Never waits and never fails. */
void pst_worker_post(struct pst_worker *w, struct pst_commit_message *message);
/* The reservations of a session in this shard; NULL: it has ended. */
struct pst_holder *pst_worker_holder(struct pst_worker *w, uint64_t token);
/* Control thread: hands a connection over. Return: 0 and the channel is the shard's, -ENOMEM. */
int pst_worker_attach(struct pst_worker *w, const struct pst_boot_attachment *attachment);
/* Control thread: the port's address for a new session. */
int pst_worker_address(struct pst_worker *w, bool network_only, void *buf, uint16_t *bytes);
/* The same of the stream's port, which a client needs not know, and the shard itself does. */
void pst_worker_stream_address(struct pst_worker *w, void *buf, uint16_t *bytes);
/* ---- port.c: a worker's port, and whether it still hears ---- */

int pst_worker_open_port(struct pst_worker *w);
/* The stream's, which stays open. */
int pst_worker_open_stream(struct pst_worker *w);
/* A client that may have shared memory with the port has ended. */
void pst_probe_want(struct pst_worker *w);
/* Sends what is due, notices what did not come, opens the port anew. Return: ms until it wants to be called
 * again. */
int pst_probe_tick(struct pst_worker *w);
/* True when the event was the probe's own. */
bool pst_probe_event(struct pst_worker *w, struct pst_net_event *event);

#endif

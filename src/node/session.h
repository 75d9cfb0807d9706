/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session.h: a client, as the node has it (pst_session) and as each shard has it (pst_shard_session), and how
 * the control thread tells a shard what becomes of it.
 */
#ifndef PST_NODE_SESSION_H
#define PST_NODE_SESSION_H

#include "base/list.h"
#include "call/bulk.h"
#include "net/net.h"
#include "store/reservation.h"
#include "wire/wire.h"

#include <stdatomic.h>

struct pst_grant;
struct pst_grant_shard;
struct pst_terms;
struct pst_worker;

#define PST_SESSION_MAGIC       0x73657373u
#define PST_SHARD_SESSION_MAGIC 0x76697369u

enum {
    VIEWS_MAX = 4096, /* of one session in one shard */
    VIEW_PIECES_MAX = 1024,
};

/* A client. Made and freed by the control thread; shards hold it until they have acknowledged its end. */
struct pst_session {
    uint32_t magic;
    struct pst_session_event
        *session_events;     /* one of each kind for each shard: none can fail for want of memory */
    uint64_t token;          /* the low 16 bits are its place in the node's table */
    uint32_t version;        /* of the protocol; messages of another one are dropped */
    void *boot;              /* for pst_boot_server_end() */
    struct pst_grant *grant; /* what it may do; NULL: anything */
    bool within;             /* a part of this process has it */
    bool same_host;
    bool stream; /* not UCX */
    bool views;  /* has the arenas' descriptors */
    bool shares; /* views, or its UCX uses memory of this host */
    bool ready;  /* the client may use its port */
    bool parted; /* over, but for what it shares */
    _Atomic bool ended;
    struct pst_quota quota;
    _Atomic uint32_t shards_opening; /* that have yet to open their way to the client */
    _Atomic uint32_t shards_left;    /* that still use it */
    _Atomic(const char *) kick;      /* set by a shard: the control thread ends the session for this reason */
    uint8_t address[PST_NET_ADDRESS_BYTES_MAX];
    size_t address_bytes;
    char peer[64]; /* for people */
};

/*
 * What the control thread tells a shard. A session that shares memory parts first: its connection and its
 * requests go. Its views, and what it is in the middle of taking, stay until its process has closed the
 * socket, since until then somebody may look at them.
 */
enum pst_session_event_kind {
    PST_SESSION_BEGINS,
    PST_SESSION_PARTS,
    PST_SESSION_ENDS,
    PST_SESSION_EVENT_KINDS
};

struct pst_session_event {
    struct pst_list link;
    struct pst_session *session;
    enum pst_session_event_kind kind;
};

/* What a client looks at. No handle is given twice, nor by the node's successor. */
struct pst_held_view {
    struct pst_record *record; /* NULL: none */
    uint64_t handle;
};

/* A shard's side of a session. */
struct pst_shard_session {
    uint32_t magic;
    struct pst_list link;
    struct pst_worker *worker;
    struct pst_session *session;
    struct pst_peer *peer;     /* NULL before the hello and after the end */
    bool ended;                /* the session is over: goes when the peer has */
    bool leaving;              /* the peer is being closed; its requests end with it */
    uint64_t leaving_ns;       /* since when, and since when over, of pst_probe's clock */
    struct pst_list requests;  /* underway */
    struct pst_list receiving; /* requests whose values are awaited */
    struct pst_bulk_park park; /* values that came before their turn */
    uint32_t *used;            /* by place of a request: its last use there, plus one; 0: none */
    uint32_t used_count;
    uint32_t underway;           /* requests */
    uint64_t moved_ns;           /* when the client last took or sent a part of one */
    struct pst_holder holder;    /* its reservations */
    struct pst_held_view *views; /* by the low bits of their handles */
    uint32_t view_count;
    struct pst_terms *terms; /* of its grant, as it looked at them last; NULL: it has none */
    uint64_t terms_version;
    struct pst_grant_shard *of_grant; /* what all of its grant's have underway here; NULL: as above */
    struct pst_list late;             /* requests that are answered later */
    uint32_t waits;                   /* gets among them */
    struct pst_list due;              /* those of them to be answered as soon as it may have a request */
    struct pst_list of_due;           /* in the worker's list of sessions with such */
    struct pst_list watches;
    uint32_t watch_count;
};

/* ---- a shard's thread ---- */

/* A session begins, its transport has let go of it, it ends. Return: 0 or -ENOMEM. */
int pst_shard_session_add(struct pst_worker *w, struct pst_session *session);
void pst_shard_session_peer_gone(struct pst_shard_session *v);
void pst_shard_session_end(struct pst_shard_session *v);
/* Ends a shard session that broke the protocol or fell silent. */
void pst_shard_session_leave(struct pst_shard_session *v, const char *why);
/* The same for one whose message broke the protocol, which is counted. */
void pst_shard_session_protocol_error(struct pst_shard_session *v, const char *why);

void pst_shard_session_release_views(struct pst_shard_session *v);
void pst_shard_session_drop_late(struct pst_shard_session *v);
/* By handle, or NULL. */
struct pst_watch *pst_shard_session_watch(struct pst_shard_session *v, uint64_t handle);
/* Return: 0, -EMFILE, -ENOMEM. */
int pst_shard_session_watch_open(struct pst_shard_session *v, const struct pst_wire_op *op, uint64_t *handle);
/* Return: 0 or -EBADF. */
int pst_shard_session_watch_close(struct pst_shard_session *v, uint64_t handle);
void pst_shard_session_close_watches(struct pst_shard_session *v);
/* Closes those of prefixes that its terms do not have any more. */
void pst_shard_session_close_unreadable(struct pst_shard_session *v);

#endif

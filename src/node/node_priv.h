/* node_priv.h: what the files of node/ share: sessions, shard threads, requests. */
#ifndef PST_NODE_PRIV_H
#define PST_NODE_PRIV_H

#include "base/list.h"
#include "call/bulk.h"
#include "net/boot.h"
#include "net/net.h"
#include "node/node.h"
#include "store/slot.h"
#include "store/store.h"
#include "store/watch.h"
#include "wire/route.h"
#include "wire/wire.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    VIEWS_MAX = 4096, /* of one session in one shard */
    VIEW_PIECES_MAX = 1024,
    REPLY_BYTES = PST_NET_EAGER_BYTES_MAX,
    SINK_BYTES = PST_NET_PACK_BYTES_MAX,
    SCRATCH_BYTES = 64 << 10,
};

/* A client. Made and freed by the control thread; shards hold it until they have acknowledged its end. */
struct pst_session {
    uint32_t magic;
    struct pst_note *notes; /* one of each kind for each shard: none can fail for want of memory */
    uint64_t token;         /* the low 16 bits are its place in the node's table */
    uint32_t version;       /* of the protocol; messages of another one are dropped */
    void *boot;             /* for pst_boot_server_end() */
    bool same_host;
    bool views;  /* has the arenas' descriptors */
    bool ready;  /* the client may use its port */
    bool parted; /* over, but for its views */
    _Atomic bool ended;
    struct pst_quota quota;
    _Atomic uint32_t shards_opening; /* that have yet to open their way to the client */
    _Atomic uint32_t shards_left;    /* that still use it */
    _Atomic bool overdue;            /* its client is too slow, or stopped, but lives */
    _Atomic(const char *) kick;      /* set by a shard: the control thread ends the session for this reason */
    uint8_t address[PST_NET_ADDRESS_BYTES_MAX];
    size_t address_bytes;
    char peer[64]; /* for people */
};

/*
 * What the control thread tells a shard. A session with views parts first: its connection and its requests
 * go. Its views stay until its process has closed the socket, since until then somebody may look at them.
 */
enum pst_note_kind { PST_NOTE_BEGIN, PST_NOTE_PART, PST_NOTE_END, PST_NOTE_KINDS };

struct pst_note {
    struct pst_list link;
    struct pst_session *session;
    enum pst_note_kind kind;
};

/* What a shard tells another one; a part of what it is about, and under one roof at a time. */
struct pst_mail {
    struct pst_list link;
    struct pst_commit *commit;
};

#define PST_NODE_MAGIC     0x6e6f6465u
#define PST_SESSION_MAGIC  0x73657373u
#define PST_VISITOR_MAGIC  0x76697369u
#define PST_WORKER_MAGIC   0x776f726bu
#define PST_REQUEST_MAGIC  0x72657175u
#define PST_INCOMING_MAGIC 0x696e636fu

/* A shard's side of a session. */
struct pst_visitor {
    uint32_t magic;
    struct pst_list link;
    struct pst_worker *worker;
    struct pst_session *session;
    struct pst_peer *peer;     /* NULL before the hello and after the end */
    bool ended;                /* the session is over: goes when the peer has */
    bool leaving;              /* the peer is being closed; its requests end with it */
    uint64_t leaving_ns;       /* since when, of pst_probe's clock */
    struct pst_list requests;  /* underway */
    struct pst_list receiving; /* requests whose values are awaited */
    struct pst_bulk_park park; /* values that came before their turn */
    uint32_t *used;            /* by place of a request: its last use there, plus one; 0: none */
    uint32_t used_count;
    uint32_t underway;         /* requests */
    struct pst_holder holder;  /* its slots */
    struct pst_record **views; /* by handle - 1; NULL: free */
    uint32_t view_count;
    struct pst_list late; /* requests that are answered later */
    uint32_t waits;       /* gets among them */
    struct pst_list watches;
    uint32_t watch_count;
};

enum pst_step_result { PST_STEP_MORE, PST_STEP_WAIT, PST_STEP_END };

/* A put or a slot's write whose value comes by bulk messages. */
struct pst_write {
    struct pst_put put; /* lookup.key points into the reservation's record */
    struct pst_reservation reservation;
    struct pst_slot *slot; /* that is written from `offset` on; NULL: a put */
    uint64_t offset;
    uint64_t slot_epoch; /* of a copy */
    uint64_t bytes_left; /* not yet announced */
    uint64_t bytes_landed;
    uint32_t op;
    uint32_t reply_at; /* of its result, to be filled in */
    bool refused, durable;
};

/* A get whose value goes by bulk messages; holds a reference. */
struct pst_read {
    struct pst_record *record;
    uint64_t offset;
    uint64_t bytes;
    uint32_t op;
};

/* What a request waits for at the SSD. */
struct pst_tiered {
    struct pst_tier_wait wait;
    struct pst_request *request;
    uint32_t reply_at; /* of the result that fails with a write */
    bool fetch;
    bool copy; /* the write is a primary's, who has to know that it was done, whatever becomes of it */
};

struct pst_tiereds {
    struct pst_tiered *items; /* PST_WIRE_OPS_MAX, made when first needed */
    uint32_t count, left;
};

/* A request's steps, in order: see request.c. */
#define PST_REQUEST_STEPS(X) X(fetches) X(values) X(answers) X(reply) X(drain)

enum {
#define X(name) PST_STEP_##name,
    PST_REQUEST_STEPS(X)
#undef X
        PST_STEP_COUNT
};

enum { PST_TRACE_ROLE = 63 };

/* What the log will say of a request, should it take long. Times are those of the worker's rounds. */
struct pst_trace {
    uint64_t begin_ns, since_ns;
    uint64_t step_ns[PST_STEP_COUNT];
    uint64_t codes; /* a bit for each code among the operations, PST_TRACE_ROLE for all of a role's */
    uint64_t body_bytes;
    uint32_t key_bytes;
    uint8_t key[60]; /* of the first operation, its beginning */
};

struct pst_request {
    uint32_t magic;
    struct pst_list link; /* in the worker's idle, stalled or the visitor's receiving list */
    struct pst_list of_visitor;
    struct pst_worker *worker;
    struct pst_visitor *visitor;
    const struct pst_step *step;
    uint32_t id;
    uint16_t count;
    uint64_t deadline_ns;
    uint32_t sends;                  /* that the transport still holds */
    uint32_t receives;               /* bulk messages on their way into our pages */
    uint32_t bulk_count;             /* sent */
    uint32_t bulks_next;             /* index of the one to be taken next */
    struct pst_bulk_cursor bulk_out; /* item: index into reads */
    uint32_t write_count, writes_open, read_count;
    uint8_t *reply;
    size_t reply_bytes;
    struct pst_list commits;    /* that the reply waits for */
    struct pst_tiereds fetches; /* that it waits for before it is carried out */
    struct pst_tiereds saves;   /* that the reply waits for */
    uint8_t *body;              /* the message, while it waits for fetches */
    size_t body_bytes;
    struct pst_write *writes; /* PST_WIRE_OPS_MAX, made when first needed */
    struct pst_read *reads;
    struct pst_trace trace;
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
    uint64_t sent_ns; /* awake_ns then; 0: none underway */
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
    struct pst_port *port;                         /* NULL: closed, and not to be opened for now */
    uint8_t address[2][PST_NET_ADDRESS_BYTES_MAX]; /* with and without shared memory */
    size_t address_bytes[2];                       /* 0: clients cannot connect now */
    pthread_t thread;
    bool running;
    int wake_fd;
    struct pst_probe probe;
    uint32_t parting;   /* visitors whose peer is being closed */
    uint64_t malformed; /* messages that broke the protocol */
    _Atomic bool noted;
    _Atomic bool stopping;
    _Atomic uint64_t keys;      /* published for everyone */
    pthread_mutex_t notes_lock; /* of the notes and of the addresses */
    struct pst_list notes;
    _Atomic bool mailed;
    struct pst_list mails; /* of other shards; behind notes_lock */
    uint32_t commits;      /* that it coordinates */
    struct pst_list visitors;
    struct pst_visitor **by_place; /* sessions by the low bits of their token */
    struct pst_list idle;          /* requests */
    struct pst_list stalled;       /* requests that the transport was too busy for */
    uint32_t request_count;
    uint32_t underway;
    struct pst_list late; /* requests that are answered later */
    struct pst_list due;  /* to be answered as soon as there is a request for them */
    uint64_t late_ns;     /* the first whose time is over */
    bool tiered;          /* the store has an SSD */
    uint32_t waits;       /* gets among them */
    uint32_t watches;
    uint64_t watch_handle; /* the last one given; no session's is another's, nor an earlier node's */
    uint64_t now_ns;       /* of this round */
    uint64_t tick_ns;
    int sleep_ms; /* at the longest, when idle */
    void *sink;   /* where refused bytes go */
    struct pst_wire_op ops[PST_WIRE_OPS_MAX];
    struct pst_lookup lookups[PST_WIRE_OPS_MAX];
    uint8_t scratch[SCRATCH_BYTES]; /* of the operation at hand */
    uint8_t over_quota[16];         /* a result that says so; as `busy` */
    uint8_t busy[PST_WIRE_OPS_MAX]
                [16]; /* results that say busy; written once, so that a send may borrow them */
};

struct pst_node {
    uint32_t magic;
    struct pst_store *store;
    struct pst_net *net;
    struct pst_boot_server *boot;
    struct pst_worker *workers;
    uint32_t worker_count;
    uint32_t requests_max;
    uint32_t session_requests_max;
    uint64_t slow_ns; /* requests that take longer are logged; 0: none */
    uint32_t waits_max, session_waits_max;
    uint32_t watches_max, session_watches_max;
    uint32_t sessions_max;
    struct pst_quota quota; /* the limits of every session */
    uint32_t spin_us;
    bool keeps;       /* its memory outlives it */
    bool opens_first; /* shards open their way to a client before it may use its port */
    uint64_t start_ns;
    struct pst_session **sessions;
    _Atomic uint32_t session_count;
    pthread_t control;
    bool controlled;
    struct {
        uint64_t since_ns;
        uint32_t count;
    } refusals; /* control thread: of the last second in which there were any */
    _Atomic uint64_t refused[PST_BOOT_REFUSALS];
    int wake_fd;
    _Atomic bool stopping;
    _Atomic uint32_t commits; /* underway */
    struct pst_node_role role;
    pst_log log;
    void *log_ctx;
    uint8_t secret[PST_BOOT_SECRET_BYTES_MAX];
    size_t secret_bytes;
    char urls[PST_STRINGS_MAX + 1][300];
    int url_count;
};

/* The shard that has the key. */
static inline uint32_t pst_node_route(const struct pst_node *node, struct pst_bytes key)
{
    return pst_route_shard(key, pst_store_slot_seed(node->store), node->worker_count);
}

/* Whether the node's role lets an operation on the key be carried out. Return: 0 or the operation's result.
 */
static inline int pst_node_may_serve(const struct pst_node *node, struct pst_bytes key)
{
    return pst_likely(!node->role.may_serve) ? 0 : node->role.may_serve(node->role.ctx, key);
}

/* Whether a write of the key shows only when other nodes have it. */
static inline bool pst_node_copied(const struct pst_node *node, struct pst_bytes key)
{
    return pst_unlikely(node->role.copied) && node->role.copied(node->role.ctx, key);
}

/* Wakes the control thread. */
void pst_node_wake(struct pst_node *node);
void pst_node_log(const struct pst_node *node, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- descriptors.c ---- */

/*
 * Lowers the number of sessions to what the process has descriptors for, and says how many handshakes there
 * may be at once. Called when all but the sockets is open. Return: 0 or -errno with the reason in @fault.
 */
int pst_node_fit_descriptors(struct pst_node *node, uint32_t listeners, uint32_t *handshakes_max,
                             char *fault);

/* ---- worker.c: a shard's thread ---- */

int pst_worker_init(struct pst_worker *w, struct pst_node *node, uint32_t number);
int pst_worker_start(struct pst_worker *w);
void pst_worker_stop(struct pst_worker *w); /* after node->stopping was set */
void pst_worker_fini(struct pst_worker *w);
/* Control thread: tells the shard what became of a session; each kind once. */
void pst_worker_note(struct pst_worker *w, struct pst_session *session, enum pst_note_kind kind);
void pst_worker_wake(struct pst_worker *w);
/* Any shard: pst_commit_mail() will be called on @w's thread. Never waits and never fails. */
void pst_worker_post(struct pst_worker *w, struct pst_mail *mail);
/* The slots of a session in this shard; NULL: it has ended. */
struct pst_holder *pst_worker_holder(struct pst_worker *w, uint64_t token);
/* Control thread: the port's address for a new session. */
int pst_worker_address(struct pst_worker *w, bool network_only, void *buf, uint16_t *bytes);
/* A session begins, its transport has let go of it, it ends. Return: 0 or -ENOMEM. */
int pst_visitor_add(struct pst_worker *w, struct pst_session *session);
void pst_visitor_peer_gone(struct pst_visitor *v);
void pst_visitor_end(struct pst_visitor *v);
/* Ends a visitor that broke the protocol or fell silent. */
void pst_visitor_leave(struct pst_visitor *v, const char *why);
/* The same for one whose message broke the protocol, which is counted. */
void pst_visitor_misspoke(struct pst_visitor *v, const char *why);

/* ---- port.c: a worker's port, and whether it still hears ---- */

int pst_worker_open_port(struct pst_worker *w);
void pst_probe_want(struct pst_worker *w);
/* Sends what is due, notices what did not come, opens the port anew. Return: ms until it wants to be called
 * again. */
int pst_probe_tick(struct pst_worker *w);
/* True when the event was the probe's own. */
bool pst_probe_event(struct pst_worker *w, struct pst_net_event *event);

/* ---- request.c: from message to reply ---- */

void pst_request_begin(struct pst_visitor *v, const struct pst_wire_head *head, struct pst_bytes body);
void pst_request_bulk(struct pst_visitor *v, const struct pst_wire_head *head, struct pst_net_event *event);
void pst_request_received(void *incoming, int status);
void pst_request_sent(struct pst_request *q);
void pst_request_run(struct pst_request *q);
/* Decodes @body into the worker's operations. Return: 0 or -EPROTO. */
int pst_request_decode(struct pst_worker *w, uint32_t count, struct pst_bytes body);
/* Tells every operation of the request that the node is busy. */
void pst_request_refuse(struct pst_visitor *v, const struct pst_wire_head *head);
/* Tells a request's one operation that it goes beyond what its session may. */
void pst_request_over_quota(struct pst_visitor *v, const struct pst_wire_head *head);
/* Carries out an operation that has waited. Return: false when no request is free. */
bool pst_request_deliver(struct pst_visitor *v, uint32_t id, uint64_t deadline_ns,
                         const struct pst_wire_op *op);
/* Gives up a request of a visitor that is gone; the transport has let go of it. */
void pst_request_abort(struct pst_request *q);
struct pst_request *pst_request_cast(void *p);
void pst_requests_fini(struct pst_worker *w);

/* ---- slow.c: requests that take long ---- */

void pst_trace_begin(struct pst_request *q, size_t body_bytes);
/* The request leaves this step. */
void pst_trace_step(struct pst_request *q, int step);
/* Logs it. */
void pst_trace_end(struct pst_request *q);

/* ---- late.c: what is answered later ---- */

/* The worker's first operation, alone in its request: keeps it when it has to wait. Return: false when it has
 * not. */
bool pst_late_begin(struct pst_visitor *v, const struct pst_wire_head *head);
/* Answers what is ready or out of time. Return: true when there was something. */
bool pst_late_run(struct pst_worker *w);
void pst_visitor_drop_late(struct pst_visitor *v);
/* By handle, or NULL. */
struct pst_watch *pst_visitor_watch(struct pst_visitor *v, uint64_t handle);
/* Return: 0, -EMFILE, -ENOMEM. */
int pst_visitor_watch_open(struct pst_visitor *v, const struct pst_wire_op *op, uint64_t *handle);
/* Return: 0 or -EBADF. */
int pst_visitor_watch_close(struct pst_visitor *v, uint64_t handle);
void pst_visitor_close_watches(struct pst_visitor *v);

/* ---- apply.c: what each operation does ---- */

/* What the operations behind this one leave of the reply's room. */
size_t pst_reply_room(const struct pst_request *q, uint32_t index);
void pst_reply_add(struct pst_request *q, const struct pst_wire_result *result);
struct pst_wire_result pst_reply_result(int result, const struct pst_answer *answer);
/* Someone else has to evict. */
void pst_workers_relieve(struct pst_worker *w);
/* What the worker's operation at @index, a put or a reserve, asks of the store; without a put's checksum. */
struct pst_put pst_asked_put(const struct pst_worker *w, uint32_t index);
/* Does the worker's decoded operations for @q and writes its reply as far as it is known. */
void pst_apply(struct pst_request *q);
void pst_visitor_release_views(struct pst_visitor *v);

/* ---- commit.c ---- */

/* Begins the commit at @index of the request's operations. Return: how many behind it belong to it. */
uint32_t pst_apply_commit(struct pst_request *q, uint32_t index);
/* The same with the one change that the operation at @index makes; the result is its own. */
void pst_apply_alone(struct pst_request *q, uint32_t index);
/* And with a large put whose value is there. Return: 0, or why not: the reservation is given up. */
int pst_commit_write(struct pst_request *q, struct pst_write *write);
void pst_commit_mail(struct pst_worker *w, struct pst_mail *mail);
/* The request ends before its commits, which then are not applied unless that was decided already. */
void pst_commit_call_off(struct pst_request *q);

/* ---- copy.c: what a slot's primary has other nodes do ---- */

void pst_apply_copy(struct pst_request *q, uint32_t index);
/* Makes a large one visible. Return: 0 or its result; the reservation is given up. */
int pst_copy_landed(struct pst_request *q, struct pst_write *write, struct pst_answer *answer);
void pst_apply_copy_clear(struct pst_request *q, uint32_t index);
/* Whether a client's sweep takes the key: not one that copies have, too, since they would not hear of it.
 * @node: a struct pst_node. */
bool pst_sweeps(void *node, struct pst_bytes key);
/* A put with its result to come, whose value comes by bulk messages. */
void pst_begin_write(struct pst_request *q, const struct pst_put *put,
                     const struct pst_reservation *reservation, uint32_t index, bool refused);

/* Which bytes a get of @record sends. Return: 0 and *@offset, *@bytes, or the get's result. */
int pst_plan_get(const struct pst_wire_op *op, const struct pst_record *record, uint64_t *offset,
                 uint64_t *bytes);
void pst_apply_prefetch(struct pst_worker *w, uint32_t count);

/* ---- fetch.c: what waits for the SSD ---- */

/* Begins to fetch what the worker's operations read that is on SSD. Return: false: nothing to wait for. */
bool pst_fetches_begin(struct pst_request *q, struct pst_bytes body);
/* They have been carried out, or never will be. */
void pst_tiereds_end(struct pst_request *q, struct pst_tiereds *t);
/* Has the record written before the reply goes, whose result at @reply_at it becomes should it fail; of NULL
 * all of the shard. Return: 0, -ENOMEM, -EOPNOTSUPP no SSD. */
int pst_request_save(struct pst_request *q, struct pst_record *record, uint32_t reply_at);
/* The same of what was deleted in the shard. Return: 0, also without an SSD; -ENOMEM. */
int pst_request_sync(struct pst_request *q, uint32_t reply_at);
/* Goes on with requests whose waits have ended. Return: true when there were some. */
bool pst_tiereds_run(struct pst_worker *w);

/* ---- slots.c ---- */

void pst_apply_reserve(struct pst_request *q, uint32_t index);
void pst_apply_slot_write(struct pst_request *q, uint32_t index);
void pst_apply_slot_commit(struct pst_request *q, uint32_t index);
void pst_apply_slot_abort(struct pst_request *q, uint32_t index);

#endif

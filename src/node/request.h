/* SPDX-License-Identifier: Apache-2.0 */
/*
 * request.h: one message's operations on their way to one reply: what they write and read by bulk messages,
 * what they wait for at the SSD. A shard's thread.
 */
#ifndef PST_NODE_REQUEST_H
#define PST_NODE_REQUEST_H

#include "base/list.h"
#include "call/bulk.h"
#include "node/session.h"
#include "node/trace.h"
#include "node/worker.h"
#include "store/put.h"
#include "store/tier.h"

#define PST_REQUEST_MAGIC  0x72657175u
#define PST_INCOMING_MAGIC 0x696e636fu

enum { REPLY_BYTES = PST_NET_EAGER_BYTES_MAX };

enum pst_step_result { PST_STEP_MORE, PST_STEP_WAIT, PST_STEP_END };

/* A put or a reservation's write whose value comes by bulk messages. */
struct pst_write {
    struct pst_put put; /* lookup.key points into the reservation's record */
    struct pst_pending pending;
    struct pst_reservation *reservation; /* that is written from `offset` on; NULL: a put */
    uint64_t offset;
    uint64_t partition_epoch; /* of a copy */
    uint64_t bytes_left;      /* not yet announced */
    uint64_t bytes_landed;
    uint32_t op;
    uint32_t reply_at; /* of its result, to be filled in */
    bool refused, durable;
    bool counted; /* its bytes, among its session's */
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
    bool written; /* the value shows: a failure says that it may not last */
};

struct pst_tiereds {
    struct pst_tiered *items; /* PST_WIRE_OPS_MAX, made when first needed */
    uint32_t count, left;
};

struct pst_request {
    uint32_t magic;
    struct pst_list link; /* in the worker's idle, stalled or the shard session's receiving list */
    struct pst_list of_shard_session;
    struct pst_worker *worker;
    struct pst_shard_session *shard_session;
    const struct pst_step *step;
    uint32_t id;
    uint16_t count;
    uint64_t deadline_ns;
    uint64_t turn_ns;                /* since when it is the client's to take or send, if it is */
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

/* ---- from message to reply ---- */

/* @trace: that it belongs to; NULL: none. */
void pst_request_begin(struct pst_shard_session *v, const struct pst_wire_head *head,
                       const struct pst_traceparent *trace, struct pst_bytes body);
void pst_request_bulk(struct pst_shard_session *v, const struct pst_wire_head *head,
                      struct pst_net_event *event);
void pst_request_received(void *incoming, int status);
void pst_request_sent(struct pst_request *q);
void pst_request_run(struct pst_request *q);
/* Decodes @body into the worker's operations, and looks which of them the session may not ask for. Return: 0
 * or -EPROTO. */
int pst_request_decode(struct pst_shard_session *v, uint32_t count, struct pst_bytes body);
/* Tells every operation of the request that the node is busy. */
void pst_request_refuse(struct pst_shard_session *v, const struct pst_wire_head *head);
/* Tells a request's one operation that it goes beyond what its session may. */
void pst_request_over_quota(struct pst_shard_session *v, const struct pst_wire_head *head);
/* Carries out an operation that has waited. Return: false when its session may not have one
 * more now. */
bool pst_request_deliver(struct pst_shard_session *v, uint32_t id, uint64_t deadline_ns,
                         const struct pst_traceparent *trace, const struct pst_wire_op *op);
/* Whoever has more than a few gets no further one. */
bool pst_requests_scarce(const struct pst_worker *w);
/* How long the client has taken and sent nothing for which its requests wait, beyond what the bytes may need.
 */
uint64_t pst_requests_silence_ns(const struct pst_shard_session *v);
/* Gives up a request of a shard session that is gone; the transport has let go of it. */
void pst_request_abort(struct pst_request *q);
struct pst_request *pst_request_cast(void *p);
void pst_requests_fini(struct pst_worker *w);

/* ---- grant/judge.c: what a session may ask for; the one place that says so ---- */

/* Which of the worker's operations are beyond the session's grant, by its terms of now. */
void pst_request_judge(struct pst_shard_session *v, uint32_t count);
/* Counts that the worker's operation at @index was refused for it, and may log it. */
void pst_request_forbidden(struct pst_shard_session *v, uint32_t index);

/* ---- late.c: what is answered later ---- */

/* The worker's first operation, alone in its request: keeps it when it has to wait. Return: false when it has
 * not. */
bool pst_late_begin(struct pst_shard_session *v, const struct pst_wire_head *head,
                    const struct pst_traceparent *trace);
/* Answers what is ready or out of time. Return: true when there was something. */
bool pst_late_run(struct pst_worker *w);

/* ---- fetch.c: what waits for the SSD ---- */

/* Begins to fetch what the worker's operations read that is on SSD. Return: false: nothing to wait for. */
bool pst_fetches_begin(struct pst_request *q, struct pst_bytes body);
/* They have been carried out, or never will be. */
void pst_tiereds_end(struct pst_request *q, struct pst_tiereds *t);
/* Has the record, which shows, written before the reply goes, whose result at @reply_at it becomes should it
 * fail; of NULL, which has gone, all of the shard. Return: 0, -EIO, -EINVAL the value has an end, -EOPNOTSUPP
 * no SSD. */
int pst_request_save(struct pst_request *q, struct pst_record *record, uint32_t reply_at);
/* Has all of the shard written. Return: 0, -ENOMEM, -EOPNOTSUPP. */
int pst_request_flush(struct pst_request *q, uint32_t reply_at);
/* The same of what was deleted in the shard. Return: 0, also without an SSD; -ENOMEM. */
int pst_request_sync(struct pst_request *q, uint32_t reply_at);
/* Goes on with requests whose waits have ended. Return: true when there were some. */
bool pst_tiereds_run(struct pst_worker *w);

#endif

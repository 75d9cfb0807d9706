/* SPDX-License-Identifier: Apache-2.0 */
/*
 * umbp_priv.h: what the methods of UMBPMaster share: a visit to whoever leads the pool, and an answer that
 * grows. All of it is the door's thread.
 */
#ifndef PST_UMBP_PRIV_H
#define PST_UMBP_PRIV_H

#include "base/clock.h"
#include "gateway/grpc/door_priv.h"
#include "directory/guest/samples.h"
#include "gateway/umbp.h"
#include "gateway/umbp/messages_priv.h"

struct umbp {
    const struct pst_umbp_ops *ops;
    void *ctx;
    uint64_t evict_ms; /* between two looks for nodes that are too full; 0: none */
    pthread_t thread;  /* which looks */
    bool evicting;     /* it is there */
    _Atomic bool stopping;
    pthread_mutex_t lock;
    pthread_cond_t stir;
};

extern const struct method method_register, method_unregister, method_heartbeat;
extern const struct method method_route_get, method_route_put, method_batch_route_get, method_batch_route_put,
    method_batch_lookup;
extern const struct method method_report_blocks, method_revoke_blocks, method_revoke_tier, method_revoke_node,
    method_match_blocks, method_hit_counts;
extern const struct method method_report_metrics;

/* ---- requests ---- */

/* What a decoder said, as status. Return: whether it was a request. */
bool umbp_decoded(struct stream *st, int r);
/* metrics.c: a MetricSample, behind the labels that are in @out. Return: whether it is one. */
bool umbp_read_sample(struct pst_bytes message, struct pst_sample *out);

/* ---- visits ---- */

struct visit {
    struct stream *stream;
    struct pst_guest_desk desk;
    uint64_t epoch;
    uint32_t steps;    /* until others have their turn */
    uint64_t since_ns; /* the door has listened to nobody else since */
};

/* Return: whether the desk is this call's; if it is not, the call has failed. */
bool visit_begin(struct visit *v, struct stream *st);
/* In front of each of many steps. The same, but the desk may have been others' meanwhile. */
bool visit_step(struct visit *v);
/* The same at once, behind what was many steps. */
bool visit_pause(struct visit *v);
void visit_end(struct visit *v);

/* ---- answers ---- */

struct answer {
    uint8_t *data;
    size_t bytes, room;
    bool failed; /* no memory, or more than a client takes */
};

void answer_free(struct answer *a);
void answer_number(struct answer *a, uint32_t number, uint64_t value); /* nothing for 0 */
void answer_text(struct answer *a, uint32_t number, struct pst_bytes text);
/* One of a row of numbers in a field of their own. */
void answer_packed(struct answer *a, uint64_t value);
/* @part as a field of @a, even if it is empty; and frees it. */
void answer_part(struct answer *a, uint32_t number, struct answer *part);
/* Sends the whole, and keeps it until the call has ended. */
void answer_send(struct stream *st, struct answer *a);
bool answer_drop(struct stream *st); /* of each method */

/* ---- evict.c ---- */

/* Return: 0 or -errno, and then evict_end() is wanted all the same. */
int evict_begin(struct umbp *umbp);
void evict_end(struct umbp *umbp);

#endif

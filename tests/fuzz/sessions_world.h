/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sessions_world.h: what fuzz_sessions.c and what it asks share: a node of several shards, its sessions, what
 * they have asked, and what is known of the node.
 */
#ifndef SESSIONS_WORLD_H
#define SESSIONS_WORLD_H

#include "fuzz.h"
#include "sessions_model.h"
#include "stub_net.h"

#include "node/commit.h"
#include "node/node_priv.h"
#include "node/request.h"

enum {
    WORKERS_MAX = 4,
    SESSIONS = 3,
    PLACES = 6, /* requests of a session in a shard */
    OPS_MAX = 6,
    RESERVATIONS = 12,
    VIEWS = 8,
    STEPS_MAX = 400,
    INLINE_MAX = 60,
    VALUE_MAX = 90000,
};

/* What was asked. */
struct asked_op {
    uint8_t code, id, bulk_id;
    uint32_t flags, key, reservation;
    uint64_t handle;
};

struct asked {
    bool open, garbage;
    uint32_t uses, count;
    struct asked_op ops[OPS_MAX];
    struct model_commit *commit;
};

struct reservation {
    bool live;
    uint32_t session, key;
    uint64_t handle, bytes;
    uint8_t id;
    uint16_t location_bytes;
    char location[PST_RESERVATION_LOCATION_BYTES_MAX + 1];
};

struct view {
    bool live;
    uint32_t session, worker;
    uint64_t handle, bytes;
    const uint8_t *at;
    uint8_t byte;
};

struct world {
    struct pst_node node;
    struct pst_worker *workers;
    struct stub_port *ports[WORKERS_MAX];
    struct pst_session sessions[SESSIONS];
    struct pst_session *by_place[SESSIONS];
    enum { SESSION_NONE, SESSION_ON, SESSION_ENDING } states[SESSIONS];
    struct asked asked[SESSIONS][WORKERS_MAX][PLACES];
    struct reservation reservations[RESERVATIONS];
    struct view views[VIEWS];
    struct model model;
    uint64_t now_ns, tokens;
    uint8_t ids;
    uint32_t keys_shard[MODEL_KEYS];
};

/* The one of this run. */
extern struct world *w;

struct pst_bytes key_of(uint32_t key);
struct pst_shard_session *shard_session_of(uint32_t session, uint32_t worker);
uint8_t next_id(void);
/* A sweep may have marked what is pinned in the shard. */
void doom(uint32_t worker);
void run_stalled(uint32_t worker);
void end_session(uint32_t number);

/* ---- sessions_answers.c: what comes back ---- */

/* A value is one byte, over and over. */
uint8_t byte_of(struct pst_bytes data);
/* A message that worker number @ctx sends. */
void hear_sent(void *ctx, struct pst_bytes header, struct pst_bytes data);

/* ---- sessions_ask.c: what a session says next ---- */

/* Operations that are answered at once. */
void ask_quick(struct fuzz *in, uint32_t session, uint32_t worker);
/* One whose value comes later, or that waits. */
void ask_slow(struct fuzz *in, uint32_t session, uint32_t worker);
/* Any shard may be told of any keys. */
void ask_commit(struct fuzz *in, uint32_t session, uint32_t worker);
/* Whatever the bytes say: the session may end, and any key may have changed. */
void ask_anything(struct fuzz *in, uint32_t session, uint32_t worker);
/* The next bytes of a value that is awaited. */
void send_value(struct fuzz *in, uint32_t session, uint32_t worker);

#endif

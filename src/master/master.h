/* SPDX-License-Identifier: Apache-2.0 */
/*
 * master.h: a pool's master: drives directory/ for whoever asks over a node's sessions, and keeps the pool
 * map. What it knows beyond the pool map comes from the nodes, and goes with it.
 *
 * The shards of the node that it is ask it, each from its thread; one lock lets one question through at a
 * time, each of a bounded number of keys. A thread of its own stores pool maps and looks after time. A
 * question whose answer has to wait for a pool map to be stored is told "busy", and asked again.
 *
 * Of several masters that share a keeper one leads. The others name it, and answer nothing else. One that has
 * a share of the directory follows the one that leads, and answers for its keys.
 */
#ifndef PST_MASTER_H
#define PST_MASTER_H

#include "base/options.h"
#include "call/call.h"
#include "directory/directory.h"
#include "directory/figures.h"
#include "directory/guest/desk.h"
#include "directory/route.h"
#include "wire/pool.h"

/* X(TYPE, name, default, min, max, unit, text) */
#define PST_MASTER_OPTIONS(X)                                                                                \
    X(STRING, pool_map, "", 0, 0, "FILE", "where a master keeps the pool map")                               \
    X(STRING, adopt, "", 0, 0, "POOL",                                                                       \
      "go on as this pool, whose pool map was lost: its nodes' logs name it; what is lost with it is in "    \
      "docs/how-to/recover.md")                                                                              \
    X(LIST, place, "", 0, 0, "PREFIX=PLACE",                                                                 \
      "'home:N': values of this prefix belong to one node, and N have them, as others do on one; "           \
      "'anywhere:N': they are what their name says, on any N nodes; may be repeated")                        \
    X(NUMBER, directory_shard, "0", 0, 63, "share",                                                          \
      "have that one of the pool's directory_shards, whose --master leads; 0: be a master that may lead")    \
    X(NUMBER, blocks_max, "1048576", 1024, 2147483647, "blocks",                                             \
      "bound of what engines report of memory of their own, each block on each of its places")               \
    X(NUMBER, block_hits_max, "262144", 1024, 2147483647, "blocks", "bound of those whose hits are counted") \
    X(NUMBER, block_hit_ttl_ms, "3600000", 10, 604800000, "ms", "hits are forgotten so long after the last")

struct pst_master_settings {
    PST_MASTER_OPTIONS(PST_OPTION_MEMBER)
    struct pst_directory_settings directory;
    struct pst_guest_settings guests;
    bool has_guests; /* mori's clients are served, too */
};

struct pst_master;

struct pst_keeper;

/*
 * Takes the pool map's file, and stores a first pool map when there is none. With a @keeper that masters
 * share it goes on until it can take that. @settings: borrowed as long as the master is there; @keeper: in
 * place of the file (keeper.h), or NULL; it is the master's from now on, and closed in failure, too; @log:
 * told of members that come and go, from any thread. Return: 0 or -errno with the reason in @fault.
 */
int pst_master_open(const struct pst_master_settings *settings, struct pst_keeper *keeper,
                    void (*log)(void *ctx, const char *line), void *log_ctx, struct pst_master **out,
                    char fault[PST_FAULT_BYTES]);

/* What a master follows that has a share of the directory. */
struct pst_master_leader {
    const struct pst_strings *leaders;  /* addresses of the pool's masters */
    const char *address;                /* where nodes and clients reach this one */
    struct pst_channel_options channel; /* to the leaders; what it names is borrowed until the end */
};

/* Begins to follow: one whose settings name a share, once, and from then on it answers. Return: 0 or -errno
 * with the reason in @fault. */
int pst_master_follow(struct pst_master *master, const struct pst_master_leader *leader,
                      char fault[PST_FAULT_BYTES]);
/* It follows no more: before the end of what the leader's channel has borrowed. NULL is fine. */
void pst_master_stop(struct pst_master *master);
/* Nobody asks any more. Returns NULL. */
struct pst_master *pst_master_close(struct pst_master *master);

/*
 * For who watches a master, any thread: nobody who asks the master waits for them, and they are as old as the
 * last turn of its thread. "name value" lines; return: bytes, 0 when they do not fit.
 */
size_t pst_master_published(struct pst_master *master, char *to, size_t room);
/* Whether it leads, and every partition has a node, or it stands by for one that leads, which @fault says
 * then. Return: 0, -EAGAIN with the reason. */
int pst_master_ready(struct pst_master *master, char fault[PST_FAULT_BYTES]);
/* A copy of the pool map in effect, for which askers wait as for each other. Return: 0, PST_POOL_STANDBY it
 * has none, -errno. */
int pst_master_map(struct pst_master *master, struct pst_map **out);

/*
 * What mori's clients ask about, of a master that has guests: others are locked out until it is left. Return:
 * false: this master does not lead, and nothing is to be left.
 */
bool pst_master_enter_guests(struct pst_master *master, struct pst_guest_desk *out);
void pst_master_leave_guests(struct pst_master *master);

/* A node's role (node.h); @ctx is the master. */
void pst_master_carry_out(void *ctx, const struct pst_wire_op *op, uint64_t now_ns, uint8_t *to, size_t room,
                          struct pst_wire_result *result);

#endif

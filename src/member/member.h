/* SPDX-License-Identifier: Apache-2.0 */
/*
 * member.h: the node's side of a pool: joins it, says that it lives, and reports what comes and goes. A
 * member is a client of its own node, whose watch and listing tell it what to report, and of the master; it
 * has one thread, which does everything. So a node that is in no pool pays nothing, and one that is, what a
 * watch costs.
 *
 * Never holds up its node; ends within twice shutdown_ms, whatever the master does.
 */
#ifndef PST_MEMBER_H
#define PST_MEMBER_H

#include "base/options.h"
#include "call/call.h"
#include "pool/serving.h"
#include "wire/pool.h"
#include "wire/pool_member.h"

#include <stdatomic.h>

/* X(TYPE, name, default, min, max, unit, text) */
#define PST_MEMBER_OPTIONS(X)                                                                                \
    X(LIST, master, "", 0, 0, "ADDRESS",                                                                     \
      "master of the pool to join; of several the next one is asked when one is gone")                       \
    X(STRING, node_id, "", 0, 0, "ID",                                                                       \
      "name in the pool: 32 hexadecimal digits, or a file with them, which is made; another at each start "  \
      "if not set")                                                                                          \
    X(STRING, host, "", 0, 0, "NAME", "machine that copies of a value do not share; by its boot if not set") \
    X(STRING, advertise, "", 0, 0, "ADDRESS",                                                                \
      "HOST:PORT where the pool reaches the node; the first that it listens on if not set")                  \
    X(STRING, tags, "", 0, 0, "TEXT", "what the pool map says of the node")                                  \
    X(NUMBER, report_ms, "20", 0, 10000, "ms", "changes of so long are reported together")                   \
    X(NUMBER, shutdown_ms, "3000", 10, 60000, "ms", "what a call to the master may take")

struct pst_member_settings {
    PST_MEMBER_OPTIONS(PST_OPTION_MEMBER)
};

/* What the attempts to join came to. */
#define PST_MEMBER_COUNTERS(X)                                                                               \
    X(joins, "times that a master took the node in")                                                         \
    X(joins_refused, "times that a master refused the node, or was none")                                    \
    X(masters_unreached, "times that no master was reached, or would talk to the node")

struct pst_member_counters {
#define X(name, text) _Atomic uint64_t name;
    PST_MEMBER_COUNTERS(X)
#undef X
};

/*
 * Who sends the node's writes to others, which the member opens as it knows how to reach its own node. All
 * are the member's thread, but may_send(), which is any: whether so many bytes may go now to give others
 * copies.
 */
struct pst_member_sender {
    void *ctx;
    /* @self: the node, borrowed until stop(); @changed_fd: written to when there is something for changes().
     * Return: 0 or -errno. */
    int (*open)(void *ctx, const struct pst_channel_options *self, int changed_fd);
    void (*stop)(void *ctx);
    /* In front of pst_serving_map(), with the same. Return: 0 or -ENOMEM. */
    int (*map)(void *ctx, const struct pst_map *map, uint16_t member, uint64_t epoch);
    /* What the master wants of the node, by the pool map that it has. */
    void (*wants)(void *ctx, const struct pst_pool_want *wants, uint32_t count);
    /* What to ask the master for. Return: how many. */
    uint32_t (*changes)(void *ctx, struct pst_pool_copy changes[PST_POOL_COPIES_MAX]);
    bool (*may_send)(void *ctx, uint64_t bytes, uint64_t now_ns);
    /* Whether no write is on its way to others. */
    bool (*idle)(void *ctx);
};

/* The node that joins. Pointers are borrowed: those above `serving` during the call, the others as long as
 * the member is there. */
struct pst_member_node {
    const char *url;       /* how this process opens it: "node+unix://..." */
    const char *address;   /* "host:port"; "" when it has none */
    const char *unix_path; /* the same socket */
    const char *secret_file;
    bool fabric_trusted;
    enum pst_boot_transport transport; /* to other nodes and masters */
    struct pst_tls *tls;   /* with which it connects to others; as long as the member is there; NULL: plain */
    uint64_t memory, disk; /* name the node's memory and SSD, */
    const char *beside;    /* and where to note whose values they have; NULL: they end with it (identity.h) */
    struct pst_serving *serving; /* told of the pool map and the lease */
    struct pst_member_counters *counters;
    const struct pst_member_sender *sender;
};

struct pst_member;
struct pst_wire_op;
struct pst_wire_result;

/*
 * Begins to join, and goes on until the end. @settings, @node: borrowed during the call; @log: from the
 * member's thread. Return: 0, -EINVAL, -errno with the reason in @fault. A master that is not there is no
 * error.
 */
int pst_member_open(const struct pst_member_settings *settings, const struct pst_member_node *node,
                    void (*log)(void *ctx, const char *line), void *log_ctx, struct pst_member **out,
                    char fault[PST_FAULT_BYTES]);
/* Becomes readable, and stays so, when the pool counts on the node: it has joined, it has the pool map, and
 * the master knows its memory. Any thread. */
int pst_member_ready_fd(const struct pst_member *member);
/* Waits for that, @ms at the most. Any thread. Return: 0, or -errno with the last trouble with a master in
 * @fault, -ETIMEDOUT if there was none. */
int pst_member_wait(struct pst_member *member, uint64_t ms, char fault[PST_FAULT_BYTES]);
/* The counters, as text, to whom asks a node for its pool's figures: carry_out() of node.h. Any thread. */
void pst_member_figures(const struct pst_member_counters *counters, const struct pst_wire_op *op, uint8_t *to,
                        size_t room, struct pst_wire_result *result);
/* Leaves the pool; before the node's end. Returns NULL. */
struct pst_member *pst_member_close(struct pst_member *member);

#endif

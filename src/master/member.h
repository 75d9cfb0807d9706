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
#include "master/copies.h"
#include "master/gate.h"

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
    X(STRING, tags, "", 0, 0, "TEXT", "what the pool's view says of the node")                               \
    X(NUMBER, report_ms, "20", 0, 10000, "ms", "changes of so long are reported together")                   \
    X(NUMBER, shutdown_ms, "3000", 10, 60000, "ms", "what a call to the master may take")

struct pst_member_settings {
    PST_MEMBER_OPTIONS(PST_OPTION_MEMBER)
};

/* The node that joins. */
struct pst_member_node {
    const char *url;       /* where this process opens it: "node+unix://..." */
    const char *address;   /* "host:port"; "" when it has none */
    const char *unix_path; /* "" when it has none */
    const char *secret_file;
    bool fabric_trusted;
    uint64_t memory, disk; /* name the node's memory and SSD (identity.h) */
    const struct pst_copies_settings *copying;
    struct pst_gate *gate; /* the node's; told of the view and the lease */
};

struct pst_member;

/*
 * Begins to join, and goes on until the end. @settings, @node: borrowed during the call; @log: from the
 * member's thread. Return: 0, -EINVAL, -errno with the reason in @fault. A master that is not there is no
 * error.
 */
int pst_member_open(const struct pst_member_settings *settings, const struct pst_member_node *node,
                    void (*log)(void *ctx, const char *line), void *log_ctx, struct pst_member **out,
                    char fault[PST_FAULT_BYTES]);
/* Leaves the pool; before the node's end. Returns NULL. */
struct pst_member *pst_member_close(struct pst_member *member);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* screen.h: what `penstock top` shows of one look at a store, on a terminal, as a line or as JSON. */
#ifndef PST_CLI_TOP_SCREEN_H
#define PST_CLI_TOP_SCREEN_H

#include "cli/cli.h"

enum { PST_LOOKS_KEPT = 60, PST_LOOK_NODES_MAX = 8192 };

/* Per second, since the look before. */
struct pst_rates {
    double gets, hits, puts, deletes, evictions, refused;
};

struct pst_look {
    int result; /* of the store's figures; the rest counts only if it is 0 */
    uint64_t at_ns, ping_ns;
    struct penstock_stat stat;
    struct pst_rates rates;
    struct penstock_pool_node *nodes; /* PST_LOOK_NODES_MAX of them, the caller's */
    size_t node_count;
};

/* How a figure went, the last look at the end. */
struct pst_history {
    double values[PST_LOOKS_KEPT];
    size_t count;
};

void pst_history_add(struct pst_history *history, double value);

void pst_screen_begin_now(void);
void pst_screen_end(void);
void pst_screen_end_now(void); /* within a signal, while nothing is being printed */
void pst_screen_show(const struct pst_cli *cli, const struct pst_look *look, const struct pst_history *gets,
                     const struct pst_history *puts);
/* A line of figures; the first has what they are above it. */
void pst_look_line(const struct pst_look *look, bool first);
void pst_look_json(const struct pst_look *look);

#endif

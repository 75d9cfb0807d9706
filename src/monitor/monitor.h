/* SPDX-License-Identifier: Apache-2.0 */
/*
 * monitor.h: what a node or a pool's master tells over HTTP those who watch it: whether it lives and serves,
 * its metrics for Prometheus, its keys, members and pool map as JSON. It is a client of its node, as a
 * gateway is, so its figures are those of `penstock stat`; a scrape takes no lock that an operation waits
 * for.
 *
 *     GET /                       a page for people, which asks for the rest; without a token
 *     GET /health                 the process lives; without a token
 *     GET /ready                  it serves; of a pool, it has joined; of a master, it leads, and each
 *                                 partition has a node, or it stands by for one that leads
 *     GET /metrics                rows.h
 *     GET /api/v1/pool/stats      what `penstock stat --json` prints
 *     GET /api/v1/pool/keys       of this node: ?prefix=TEXT&limit=NUMBER&after=CURSOR
 *     GET /api/v1/pool/nodes      of a master that leads
 *     GET /api/v1/pool/map        of a master that leads
 *
 * Bounds: 64 connections, 2 answers underway, each of which the node has 2 s for; 1,000 keys an answer; 2,000
 * series.
 */
#ifndef PST_MONITOR_H
#define PST_MONITOR_H

#include "base/options.h"
#include "directory/guest/desk.h"

/* X(TYPE, name, default, min, max, unit, text) */
#define PST_MONITOR_OPTIONS(X)                                                                               \
    X(STRING, http_token_file, "", 0, 0, "FILE",                                                             \
      "what who asks a node's or a master's http must show, on loopback, too; mode 0600")                    \
    X(FLAG, metrics_umbp, "no", 0, 0, "",                                                                    \
      "/metrics of a master with --umbp has what mori's own master tells, by its names")

struct pst_monitor_settings {
    PST_MONITOR_OPTIONS(PST_OPTION_MEMBER)
    /* As of the options with these names. */
    const char *http; /* NULL: nothing is served */
    const char *tls_certificate, *tls_key;
    bool guarded; /* not every local user is the node's client: keys are told for a token alone */
};

struct pst_map;
struct pst_monitor;

/* What it does not learn as its node's client; on any thread, once pst_monitor_serve() was called. */
struct pst_monitor_ops {
    const char *role; /* "node", "master" */
    /* Return: 0, with what there is to say in @fault; or -errno with the reason. */
    int (*ready)(void *ctx, char fault[PST_FAULT_BYTES]);
    /* "name value" lines beside those of penstock_stat(). Return: bytes, 0: there are none. NULL: the node is
     * asked for them. */
    size_t (*figures)(void *ctx, char *to, size_t room);
    /* NULL: it is no master. Return: 0, PST_POOL_STANDBY, -errno. */
    int (*map)(void *ctx, struct pst_map **out);
    /* What mori's clients ask about, until it is left; for metrics_umbp alone. Return: false: it does not
     * lead, and nothing is to be left. */
    bool (*enter)(void *ctx, struct pst_guest_desk *out);
    void (*leave)(void *ctx);
};

/*
 * Listens. From now on /health is answered, and /ready with 503. @ops: borrowed until closed. Return: 0,
 * -EINVAL a setting, as off loopback with neither a token nor TLS, or -errno; with the reason in @fault.
 */
int pst_monitor_open(const struct pst_monitor_settings *settings, const struct pst_monitor_ops *ops,
                     void *ctx, struct pst_monitor **out, char fault[PST_FAULT_BYTES]);
/* host:port, with the port that was picked. */
const char *pst_monitor_address(const struct pst_monitor *monitor);
/* Opens the node and begins to tell of it. @url: on a unix socket; @secret: that allows all; both borrowed
 * during the call. Return: 0 or -errno with the reason in @fault. */
int pst_monitor_serve(struct pst_monitor *monitor, const char *url, struct pst_bytes secret,
                      char fault[PST_FAULT_BYTES]);
/* Ends answers underway; before the node's end. NULL is fine. Returns NULL. */
struct pst_monitor *pst_monitor_close(struct pst_monitor *monitor);

/* A line for each metric, as `penstockd --metrics` prints them: name, type, unit, label, figure, text. */
void pst_monitor_list(void);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.h: the data store's server, `penstockd --role store`: it knows which keys there are and who has them
 * (HTTP on `http`), keeps files for those who put them here (an rsync daemon with the module [data]), and
 * carries rsync through WebSockets on the HTTP port. Source: docs/reference/data-store.md.
 *
 * Beneath `data`:
 *     files/NAMESPACE/KEY   what was put here; the rsync module [data] is files/
 *     catalogue.sqlite      keys, sources, lifespans, services
 *     rsyncd/               settings of the rsync daemon, its own
 */
#ifndef PST_AGENT_STORE_H
#define PST_AGENT_STORE_H

#include "base/options.h"

/* X(TYPE, name, default, min, max, unit, text). A node and a master have http, too. */
#define PST_HTTP_OPTIONS(X)                                                                                  \
    X(STRING, http, "", 0, 0, "ADDRESS",                                                                     \
      "HOST:PORT of HTTP; of a data store, with its WebSockets and the tunnel to its rsync, 127.0.0.1:8081 " \
      "if not set; of a node or a master: health, metrics, keys; port 0 picks one")

/* An agent has these, too. */
#define PST_RSYNC_OPTIONS(X)                                                                                 \
    X(NUMBER, rsync_port, "873", 0, 65535, "port",                                                           \
      "of a data store's or an agent's rsync daemon; 0 picks one")                                           \
    X(STRING, token_file, "", 0, 0, "FILE",                                                                  \
      "what clients off loopback must show, and rsync's password; mode 0600")

#define PST_DATA_STORE_OPTIONS(X)                                                                            \
    X(STRING, data, "", 0, 0, "FOLDER", "where a data store keeps its files and its catalogue")              \
    X(NUMBER, tree_port, "0", 0, 65535, "port", "of a data store's own protocol for trees; 0 picks one")     \
    X(STRING, namespace, "default", 0, 0, "NAMESPACE", "of keys whose request names none")                   \
    X(FLAG, http_network, "no", 0, 0, "",                                                                    \
      "http may be off loopback without a token, where everyone who gets there may read and write")          \
    X(STRING, store_address, "", 0, 0, "NAME",                                                               \
      "where pods find a data store's rsync; POD_IP, or the host's name, if not set")                        \
    X(SIZE, catalogue_bytes, "1G", 65536, 1ull << 40, "bytes", "bound of a data store's catalogue")

/* A node has options of these names, too. */
#define PST_DATA_STORE_TLS_OPTIONS(X)                                                                        \
    X(STRING, tls_certificate, "", 0, 0, "FILE", "PEM file for TLS on http")                                 \
    X(STRING, tls_key, "", 0, 0, "FILE", "and its private key")

struct pst_data_store_settings {
    PST_HTTP_OPTIONS(PST_OPTION_MEMBER)
    PST_RSYNC_OPTIONS(PST_OPTION_MEMBER)
    PST_DATA_STORE_OPTIONS(PST_OPTION_MEMBER)
    PST_DATA_STORE_TLS_OPTIONS(PST_OPTION_MEMBER)
};

#define PST_DATA_STORE_HTTP "127.0.0.1:8081" /* unless `http` says */

struct pst_data_store;

/*
 * Starts all of it, and serves from then on. @settings: borrowed until closed; @log: any thread. Return: 0,
 * -EINVAL a setting, or -errno, with the reason in @fault.
 */
int pst_data_store_open(const struct pst_data_store_settings *settings,
                        void (*log)(void *ctx, const char *line), void *log_ctx, struct pst_data_store **out,
                        char fault[PST_FAULT_BYTES]);
/* Ends connections, waits for answers underway. Returns NULL. */
struct pst_data_store *pst_data_store_close(struct pst_data_store *store);

#endif

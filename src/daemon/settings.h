/* SPDX-License-Identifier: Apache-2.0 */
/* settings.h: all that penstockd may be told, from a file, the environment and the command line. */
#ifndef PST_DAEMON_SETTINGS_H
#define PST_DAEMON_SETTINGS_H

#include "agent/pod.h"
#include "agent/store.h"
#include "base/options.h"
#include "gateway/gateway.h"
#include "gateway/s3.h"
#include "gateway/umbp.h"
#include "master/etcd/etcd.h"
#include "master/master.h"
#include "monitor/monitor.h"
#include "serve/serve.h"
#include "span/span.h"

#define PST_ROLE_OPTIONS(X)                                                                                  \
    X(STRING, role, "", 0, 0, "ROLE",                                                                        \
      "'master': knows a pool's nodes and keys, and has few values itself; 'store': the data store's files " \
      "and keys, and no values; 'agent': what a pod offers to others")

struct pst_role_settings {
    PST_ROLE_OPTIONS(PST_OPTION_MEMBER)
};

#define FOLLOW_OPTIONS(X)                                                                                    \
    X(STRING, follow, "", 0, 0, "URL", "have what that store has, and what changes there")                   \
    X(STRING, follow_prefix, "", 0, 0, "PREFIX", "as far as keys begin with it")                             \
    X(STRING, follow_secret_file, "", 0, 0, "FILE", "its secret; the node's own if not set")

struct follow_settings {
    FOLLOW_OPTIONS(PST_OPTION_MEMBER)
};

/* What is served. */
struct settings {
    struct pst_serve_settings serve;
    struct pst_tsgrpc_settings tsgrpc;
    struct pst_s3_settings s3;
    struct pst_umbp_settings umbp;
    struct pst_role_settings role;
    struct pst_master_settings master;
    struct pst_etcd_settings etcd;
    struct follow_settings follow;
    struct pst_data_store_settings data_store;
    struct pst_pod_settings pod;
    struct pst_monitor_settings monitor;
    struct pst_span_settings spans;
};

/* The last argument is NULL. Return: 0, or -errno with the reason in @fault. */
int daemon_settings_read(char *const *argv, struct settings *settings, char fault[PST_FAULT_BYTES]);
void daemon_settings_free(struct settings *settings);
bool daemon_role_is(const struct settings *settings, const char *role);
/* "name=value ..." of all that this role looks at, on one line. */
void daemon_settings_print(const struct settings *settings, char *buf, size_t cap);
void daemon_help(void);

#endif

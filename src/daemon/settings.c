/* SPDX-License-Identifier: Apache-2.0 */
/* settings.c: the tables of options that the daemon's parts have, as one; where each is read from. */
#include "daemon/settings.h"

#include "base/error.h"
#include "base/paths.h"

#include <stdio.h>

#define MASTER_DRAM "64M" /* unless the operator says: what its clients put is not for it to keep */

#define ROW(PART, TYPE, name, ...)                                                                           \
    {#name, .type = PST_OPTION_##TYPE, offsetof(struct settings, PART.name), __VA_ARGS__},
#define NODE_ROW(...)       ROW(serve.node, __VA_ARGS__)
#define TSGRPC_ROW(...)     ROW(tsgrpc, __VA_ARGS__)
#define S3_ROW(...)         ROW(s3, __VA_ARGS__)
#define MEMBER_ROW(...)     ROW(serve.member, __VA_ARGS__)
#define ROLE_ROW(...)       ROW(role, __VA_ARGS__)
#define MASTER_ROW(...)     ROW(master, __VA_ARGS__)
#define ETCD_ROW(...)       ROW(etcd, __VA_ARGS__)
#define UMBP_ROW(...)       ROW(umbp, __VA_ARGS__)
#define GUEST_ROW(...)      ROW(master.guests, __VA_ARGS__)
#define DIRECTORY_ROW(...)  ROW(master.directory, __VA_ARGS__)
#define FOLLOW_ROW(...)     ROW(follow, __VA_ARGS__)
#define COPIES_ROW(...)     ROW(serve.copying, __VA_ARGS__)
#define DATA_STORE_ROW(...) ROW(data_store, __VA_ARGS__)
#define POD_ROW(...)        ROW(pod, __VA_ARGS__)
#define MONITOR_ROW(...)    ROW(monitor, __VA_ARGS__)
#define SPAN_ROW(...)       ROW(spans, __VA_ARGS__)
#define SERVING_ROWS                                                                                         \
    PST_NODE_OPTIONS(NODE_ROW)                                                                               \
    PST_TSGRPC_OPTIONS(TSGRPC_ROW)                                                                           \
    PST_S3_OPTIONS(S3_ROW)                                                                                   \
    PST_MEMBER_OPTIONS(MEMBER_ROW) PST_COPIES_OPTIONS(COPIES_ROW) FOLLOW_OPTIONS(FOLLOW_ROW)
#define ROLE_ROWS PST_ROLE_OPTIONS(ROLE_ROW)
#define LEADING_ROWS                                                                                         \
    PST_MASTER_OPTIONS(MASTER_ROW)                                                                           \
    PST_ETCD_OPTIONS(ETCD_ROW)                                                                               \
    PST_DIRECTORY_OPTIONS(DIRECTORY_ROW) PST_UMBP_OPTIONS(UMBP_ROW) PST_GUEST_OPTIONS(GUEST_ROW)
#define HTTP_ROWS    PST_HTTP_OPTIONS(DATA_STORE_ROW)
#define MONITOR_ROWS PST_MONITOR_OPTIONS(MONITOR_ROW)
#define SPAN_ROWS    PST_SPAN_OPTIONS(SPAN_ROW)
#define STORE_ROWS   PST_DATA_STORE_OPTIONS(DATA_STORE_ROW)
#define RSYNC_ROWS   PST_RSYNC_OPTIONS(DATA_STORE_ROW)
#define POD_ROWS     PST_POD_OPTIONS(POD_ROW)
static const struct pst_option rows[] = {
    SERVING_ROWS ROLE_ROWS LEADING_ROWS HTTP_ROWS MONITOR_ROWS SPAN_ROWS STORE_ROWS RSYNC_ROWS POD_ROWS};
static const struct pst_options options = {.rows = rows, .count = pst_count_of(rows)};
static const struct pst_option role_rows[] = {ROLE_ROWS};
static const struct pst_options role_options = {.rows = role_rows, .count = pst_count_of(role_rows)};
static const struct pst_option node_rows[] = {SERVING_ROWS ROLE_ROWS HTTP_ROWS MONITOR_ROWS SPAN_ROWS};
static const struct pst_option master_rows[] = {
    SERVING_ROWS ROLE_ROWS LEADING_ROWS HTTP_ROWS MONITOR_ROWS SPAN_ROWS};
static const struct pst_option store_rows[] = {
    ROLE_ROWS HTTP_ROWS SPAN_ROWS STORE_ROWS RSYNC_ROWS PST_DATA_STORE_TLS_OPTIONS(NODE_ROW)};
static const struct pst_option agent_rows[] = {ROLE_ROWS RSYNC_ROWS POD_ROWS};

static bool explain(const struct pst_options *table, const char *name, char *fault);

static const struct role {
    const char *name, *noun;
    const char *service; /* as which a trace shows the process */
    const char *dram;    /* in place of the default; NULL: the default */
    struct pst_options options;
} roles[] = {
    {"", "a node", "penstock-node", NULL, {node_rows, pst_count_of(node_rows), explain}},
    {"master", "a master", "penstock-master", MASTER_DRAM, {master_rows, pst_count_of(master_rows), explain}},
    {"store", "a data store", "penstock-store", NULL, {store_rows, pst_count_of(store_rows), explain}},
    {"agent", "an agent", "penstock-agent", NULL, {agent_rows, pst_count_of(agent_rows), explain}},
};

/* Of the daemon alone. */
#define DAEMON_OPTIONS(X) X(STRING, config, "", 0, 0, "FILE", "file with 'name = value' lines")

struct daemon_settings {
    DAEMON_OPTIONS(PST_OPTION_MEMBER)
};

#define PST_OPTION_SETTINGS struct daemon_settings
static const struct pst_options daemon_options = PST_OPTION_TABLE(DAEMON_OPTIONS);

static bool has(const struct pst_options *table, const char *name)
{
    pst_assert(table->count > 0);
    for (size_t i = 0; i < table->count; i++) {
        if (strcmp(table->rows[i].name, name) == 0)
            return true;
    }
    return false;
}

/* Each option is some role's, and all of them are in the table of all. */
static void check_tables(void)
{
    for (size_t i = 0; i < options.count; i++) {
        bool taken = false;

        for (size_t k = 0; k < pst_count_of(roles); k++)
            taken |= has(&roles[k].options, rows[i].name);
        pst_assert(taken);
    }
    for (size_t k = 0; k < pst_count_of(roles); k++) {
        for (size_t i = 0; i < roles[k].options.count; i++)
            pst_assert(has(&options, roles[k].options.rows[i].name));
    }
}

void daemon_help(void)
{
    check_tables();
    printf(
        "usage: penstockd [OPTION...]\n\n"
        "Serves this machine's memory as a store of named values.\n"
        "Options may also be set as PENSTOCK_NAME in the environment and as 'name = value' lines of a file;\n"
        "the command line wins over the environment, the environment over the file; what may be repeated is\n"
        "taken from one of them alone. A variable in () is UMBP's for the same, and gives way to all of "
        "them.\n\n");
    pst_options_help(&options, stdout);
    pst_options_help(&daemon_options, stdout);
    printf("  --%-16s %-10s %s\n", "metrics", "", "what /metrics of --http tells, a line each");
    printf("  --%-16s %-10s %s\n", "help", "", "this text");
    printf("  --%-16s %-10s %s\n", "version", "", "version");
    printf("\nSIGTERM and SIGINT end the daemon; SIGUSR1 logs how many keys a node stores; SIGHUP\n"
           "has it read --grants and certificates again, and ends a daemon that has neither.\n");
}

static int read_flags(char *const *argv, const struct pst_options *table, struct daemon_settings *own,
                      struct settings *settings, char *fault)
{
    int used;

    pst_options_next_source(table, settings);
    for (; *argv; argv += used) {
        used = pst_options_set_flag(&daemon_options, own, argv, fault);
        if (used == -ENOENT)
            used = pst_options_set_flag(table, settings, argv, fault);
        if (used < 0)
            return used;
        if (used == 0) {
            snprintf(fault, PST_FAULT_BYTES, "'%.100s' is not an option", *argv);
            return -EINVAL;
        }
    }
    return 0;
}

/* Flags are read twice: they name the file, and win over it. What is wrong with them is found then. */
static int read_config_name(char *const *argv, const struct pst_options *table, struct daemon_settings *own,
                            char *fault)
{
    struct settings passed_over = {0};
    int r = pst_options_preset(&daemon_options, own, fault);

    if (r == 0)
        r = pst_options_environment(&daemon_options, own, fault);
    if (r == 0)
        (void)read_flags(argv, table, own, &passed_over, fault);
    pst_options_free(&options, &passed_over);
    return r;
}

/* @table: what flags and the file may say. @ambient: what the environment may, which is shared with other
 * roles. @dram: in place of the default, unless it is NULL. */
static int read_sources(char *const *argv, struct settings *settings, const struct pst_options *table,
                        const struct pst_options *ambient, const char *dram, char *fault)
{
    struct daemon_settings own = {0};
    int r = read_config_name(argv, table, &own, fault);

    if (r == 0)
        r = pst_options_preset(&options, settings, fault);
    if (r == 0 && dram)
        r = pst_options_set(&options, settings, "dram", dram, fault);
    if (r == 0)
        r = pst_options_aliases(ambient, settings, fault);
    if (r == 0 && own.config)
        r = pst_options_file(table, settings, own.config, fault);
    if (r == 0)
        r = pst_options_environment(ambient, settings, fault);
    if (r == 0)
        r = read_flags(argv, table, &own, settings, fault);
    pst_options_free(&daemon_options, &own);
    return r;
}

bool daemon_role_is(const struct settings *settings, const char *role)
{
    return settings->role.role && strcmp(settings->role.role, role) == 0;
}

/* NULL: there is no such role. */
static const struct role *role_of(const struct settings *settings)
{
    const char *name = settings->role.role ? settings->role.role : "";

    pst_assert(strcmp(roles[0].name, "") == 0); /* a node's, which nobody names */
    for (size_t i = 0; i < pst_count_of(roles); i++) {
        if (strcmp(roles[i].name, name) == 0)
            return &roles[i];
    }
    return NULL;
}

/* What is another role's. */
static bool explain(const struct pst_options *table, const char *name, char *fault)
{
    const struct role *role = pst_container_of(table, const struct role, options), *only = NULL;
    char flag[64];
    const struct pst_option *row;
    int takers = 0;

    snprintf(flag, sizeof(flag), "--%s", name);
    row = pst_options_find_flag(&options, flag);
    for (size_t i = 0; row && i < pst_count_of(roles); i++) {
        if (has(&roles[i].options, row->name)) {
            only = &roles[i];
            takers++;
        }
    }
    pst_assert(only != role);
    pst_assert(!row || takers > 0); /* each option is some role's */
    if (takers == 1)
        snprintf(fault, PST_FAULT_BYTES, "%s: only role=%s takes it", row->name, only->name);
    else if (takers > 1)
        snprintf(fault, PST_FAULT_BYTES, "%s: %s does not take it", row->name, role->noun);
    return takers > 0;
}

/* Whether all that is @name's has been left at its preset: the option itself, or with @more those that begin
 * with its name and '_'. Else *@out is one that was not. */
static bool is_left(const struct settings *settings, const struct settings *preset, const char *name,
                    bool more, const struct pst_option **out)
{
    size_t bytes = strlen(name);

    for (size_t i = 0; i < options.count; i++) {
        const char *end = rows[i].name + bytes;

        if (strncmp(rows[i].name, name, bytes) != 0 || (more ? *end != '_' : *end != '\0') ||
            !pst_option_differs(&rows[i], settings, preset))
            continue;
        *out = &rows[i];
        return false;
    }
    return true;
}

/* @why: what is wrong about any of @names that is set. */
static int check_left(const struct settings *settings, const struct settings *preset,
                      const char *const *names, size_t count, const char *why, char *fault)
{
    const struct pst_option *row;

    for (size_t i = 0; i < count; i++) {
        if (is_left(settings, preset, names[i], false, &row))
            continue;
        snprintf(fault, PST_FAULT_BYTES, "%s: %s", row->name, why);
        return -EINVAL;
    }
    return 0;
}

/* What is set beside an option that it belongs to, and that is not, was meant for something that is not
 * there. */
static int check_owned(const struct settings *settings, const struct settings *preset, char *fault)
{
    static const char *const owners[] = {"umbp", "tsgrpc", "s3", "http", "follow", "etcd", "ssd"};
    static const char *const names_in_pool[] = {"node_id", "tags"};
    const struct pst_option *row;

    for (size_t i = 0; i < pst_count_of(owners); i++) {
        bool store_http = daemon_role_is(settings, "store") && strcmp(owners[i], "http") == 0;

        if (store_http || !is_left(settings, preset, owners[i], false, &row) ||
            is_left(settings, preset, owners[i], true, &row))
            continue;
        snprintf(fault, PST_FAULT_BYTES, "%s: it belongs to %s, which is not set", row->name, owners[i]);
        return -EINVAL;
    }
    return settings->serve.member.master.count
               ? 0
               : check_left(settings, preset, names_in_pool, pst_count_of(names_in_pool),
                            "it belongs to master, which is not set", fault);
}

/* What the leading master of a pool decides. */
static int check_share(const struct settings *settings, const struct settings *preset, char *fault)
{
    static const char *const names[] = {"adopt", "place", "nodes_min", "directory_shards"};

    return settings->master.directory_shard > 0
               ? check_left(settings, preset, names, pst_count_of(names),
                            "the master that leads says that, not a share", fault)
               : 0;
}

static int check_belonging(const struct settings *settings, char *fault)
{
    struct settings preset = {0};
    int r = pst_options_preset(&options, &preset, fault);

    if (r == 0)
        r = check_share(settings, &preset, fault);
    if (r == 0)
        r = check_owned(settings, &preset, fault);
    pst_options_free(&options, &preset);
    return r;
}

/* These are clients of their own node, which serves a part of the pool's keys alone. */
static int check_pool(const struct settings *settings, char *fault)
{
    bool in_pool = settings->serve.member.master.count > 0 && !daemon_role_is(settings, "master");

    if (in_pool && settings->tsgrpc.tsgrpc) {
        snprintf(fault, PST_FAULT_BYTES,
                 "tsgrpc: a member of a pool serves a part of the keys alone: s3 serves all, also to "
                 "TensorStore");
        return -EINVAL;
    }
    if (in_pool && settings->follow.follow) {
        snprintf(
            fault, PST_FAULT_BYTES,
            "follow: a member of a pool serves a part of the keys alone: penstock follow --url pool://... "
            "serves all");
        return -EINVAL;
    }
    return 0;
}

static int check_values(const struct settings *settings, char *fault)
{
    if (settings->umbp.umbp &&
        (settings->master.directory_shard || settings->master.directory.directory_shards > 1)) {
        snprintf(fault, PST_FAULT_BYTES,
                 "umbp: mori's nodes tell one master of all blocks: the directory has one share");
        return -EINVAL;
    }
    if (settings->umbp.umbp && settings->master.guests.umbp_low > settings->master.guests.umbp_high) {
        snprintf(fault, PST_FAULT_BYTES, "umbp_low: %llu is above umbp_high, %llu",
                 (unsigned long long)settings->master.guests.umbp_low,
                 (unsigned long long)settings->master.guests.umbp_high);
        return -EINVAL;
    }
    if (settings->umbp.umbp &&
        settings->master.guests.umbp_ttl_ms <= settings->master.guests.umbp_heartbeat_ms) {
        snprintf(fault, PST_FAULT_BYTES, "umbp_ttl_ms: %llu is not above umbp_heartbeat_ms, %llu",
                 (unsigned long long)settings->master.guests.umbp_ttl_ms,
                 (unsigned long long)settings->master.guests.umbp_heartbeat_ms);
        return -EINVAL;
    }
    if (settings->monitor.metrics_umbp && !settings->umbp.umbp) {
        snprintf(fault, PST_FAULT_BYTES, "metrics_umbp: only a master with umbp has such figures");
        return -EINVAL;
    }
    if (!settings->serve.node.tls_key != !settings->serve.node.tls_certificate) {
        snprintf(fault, PST_FAULT_BYTES, "tls_certificate and tls_key go together");
        return -EINVAL;
    }
    return pst_spans_check(&settings->spans, fault);
}

/* A node is reached at least where its host's clients look for one. */
static int set_socket(struct settings *settings, char *fault)
{
    char path[108];
    int r;

    if (settings->serve.node.unix || settings->serve.node.listen.count || daemon_role_is(settings, "store") ||
        daemon_role_is(settings, "agent"))
        return 0;
    r = pst_default_socket(PST_NODE_SOCKET, true, path, sizeof(path));
    if (r == 0)
        return pst_options_set(&options, settings, "unix", path, fault);
    snprintf(fault, PST_FAULT_BYTES, "%.180s, or say where with --unix or --listen", pst_error_text());
    return r;
}

/* The environment may say the role, too; what else it says is for that role to read. NULL: there is no such
 * role, with the reason in @fault. What is wrong with other options is found when it is known whose they are.
 */
static const struct role *read_role(char *const *argv, char *fault)
{
    struct settings settings = {0};
    const struct role *role;

    (void)read_sources(argv, &settings, &options, &role_options, NULL, fault);
    role = role_of(&settings);
    if (!role)
        snprintf(fault, PST_FAULT_BYTES,
                 "role: '%.100s' is none of 'master', 'store' and 'agent'; without a role it is a node",
                 settings.role.role);
    pst_options_free(&options, &settings);
    return role;
}

int daemon_settings_read(char *const *argv, struct settings *settings, char fault[PST_FAULT_BYTES])
{
    const struct role *role = read_role(argv, fault);
    int r;

    if (!role)
        return -EINVAL;
    r = read_sources(argv, settings, &role->options, &role->options, role->dram, fault);
    if (r == 0)
        r = check_belonging(settings, fault);
    if (r == 0)
        r = check_pool(settings, fault);
    if (r == 0)
        r = check_values(settings, fault);
    if (r < 0)
        return r;
    settings->spans.service = role->service;
    settings->pod.rsync_port = settings->data_store.rsync_port;
    settings->pod.token_file = settings->data_store.token_file;
    settings->data_store.tls_certificate = settings->serve.node.tls_certificate;
    settings->data_store.tls_key = settings->serve.node.tls_key;
    settings->monitor.http = settings->data_store.http;
    settings->monitor.tls_certificate = settings->serve.node.tls_certificate;
    settings->monitor.tls_key = settings->serve.node.tls_key;
    settings->monitor.guarded = /* a unix socket is its user's alone; http on loopback is every user's */
        pst_node_proves_clients(&settings->serve.node) || settings->serve.node.listen.count == 0;
    settings->master.has_guests = settings->umbp.umbp != NULL;
    settings->s3.certificate = settings->serve.node.tls_certificate;
    settings->s3.private_key = settings->serve.node.tls_key;
    if (settings->serve.node.tls_certificate && !settings->s3.s3)
        settings->serve.node.tls = true; /* what else would it be for */
    return set_socket(settings, fault);
}

void daemon_settings_free(struct settings *settings)
{
    pst_options_free(&options, settings);
}

void daemon_settings_print(const struct settings *settings, char *buf, size_t cap)
{
    const struct role *role = role_of(settings);

    pst_assert(role);
    pst_options_print(&role->options, settings, buf, cap);
}

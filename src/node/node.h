/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node.h: serves a store to other processes: a control thread that accepts and authenticates, and a thread
 * for each shard that answers its requests. Any process may run one; the daemon is a thin main over it.
 */
#ifndef PST_NODE_H
#define PST_NODE_H

#include "base/base.h"
#include "base/options.h"
#include "store/settings.h"

/* X(TYPE, name, default, min, max, unit, text) */
#define PST_NODE_SERVED_OPTIONS(X)                                                                           \
    X(LIST, listen, "", 0, 0, "ADDRESS", "HOST:PORT to serve on; port 0 picks one; may be repeated")         \
    X(STRING, unix, "", 0, 0, "PATH", "unix socket to serve on")                                             \
    X(NUMBER, shards, "0", 0, 256, "threads", "shards, a thread each; 0: half of the cores")                 \
    X(LIST, class, "", 0, 0, "PREFIX=cache", "keys with this prefix may be evicted; may be repeated")
#define PST_NODE_SESSION_OPTIONS(X)                                                                          \
    X(STRING, secret_file, "", 0, 0, "FILE", "shared secret that clients must know; mode 0600")              \
    X(FLAG, tls, "no", 0, 0, "",                                                                             \
      "TLS on the ports of listen, by the certificate or without one by the secret; of itself with tls_ca, " \
      "tls_required, or a certificate without s3")                                                           \
    X(STRING, tls_certificate, "", 0, 0, "FILE",                                                             \
      "PEM file with the certificate for TLS and its chain: of a node, of s3, of a data store's http")       \
    X(STRING, tls_key, "", 0, 0, "FILE", "and its private key; of a node, mode 0600")                        \
    X(STRING, tls_ca, "", 0, 0, "FILE",                                                                      \
      "PEM file or hashed folder with the authorities of clients, which then need a certificate, and of a "  \
      "pool's other nodes")                                                                                  \
    X(STRING, tls_name, "", 0, 0, "NAME",                                                                    \
      "that certificates of a pool's other nodes have; the one of their address if not set")                 \
    X(FLAG, tls_optional, "no", 0, 0, "", "clients who know the secret need no certificate")                 \
    X(FLAG, tls_required, "no", 0, 0, "", "TLS for clients on this host, too; unix sockets have none")       \
    X(FLAG, insecure, "no", 0, 0, "", "clients who know the secret need no TLS, wherever they are")          \
    X(STRING, grants, "", 0, 0, "FILE",                                                                      \
      "secrets of clients that may do only some things; read again on SIGHUP")                               \
    X(STRING, fabric, "", 0, 0, "trusted", "'trusted': UCX may use the network, not only loopback")          \
    X(STRING, transport, "auto", 0, 0, "ucx|stream|auto",                                                    \
      "what clients may use: UCX, the stream over the sockets above, or as they wish")                       \
    X(STRING, devices, "", 0, 0, "DEVICES", "network devices for UCX with a trusted fabric")                 \
    X(STRING, folder, "/dev/shm", 0, 0, "FOLDER", "tmpfs folder for the arena files")                        \
    X(STRING, keep, "", 0, 0, "NAME",                                                                        \
      "the memory outlives the node; the next one with this name goes on with its values")                   \
    X(NUMBER, sessions, "1024", 1, 16384, "clients", "clients connected at once")                            \
    X(NUMBER, requests, "1024", 16, 65536, "requests",                                                       \
      "requests in flight in one shard; more are told busy")                                                 \
    X(NUMBER, session_requests, "512", 16, 65536, "requests",                                                \
      "of them those of one client in one shard; more are told busy")                                        \
    X(NUMBER, session_reservations, "4096", 1, 1 << 20, "reservations",                                      \
      "reservations that one client may have open")                                                          \
    X(NUMBER, session_pins, "65536", 1, 1ull << 32, "pins", "pins without end that one client may make")     \
    X(SIZE, session_pinned_bytes, "0", 0, 1ull << 44, "bytes",                                               \
      "values that one client may keep by reservations and views, or send and get; 0: all of the memory")    \
    X(NUMBER, value_ms, "600000", 1000, 86400000, "ms",                                                      \
      "how long a large value may be on its way; then its session ends")                                     \
    X(NUMBER, silent_ms, "30000", 1000, 86400000, "ms",                                                      \
      "when requests are scarce, a client that takes and sends nothing of one for so long loses its "        \
      "session")                                                                                             \
    X(NUMBER, waits, "4096", 1, 1048576, "gets", "gets that wait for their key in one shard")                \
    X(NUMBER, session_waits, "1024", 1, 1048576, "gets", "of them of one client")                            \
    X(NUMBER, watches, "256", 1, 65536, "watches", "watches of prefixes in one shard, 64 KiB each")          \
    X(NUMBER, session_watches, "32", 1, 65536, "watches", "of them of one client")                           \
    X(NUMBER, slow_ms, "1000", 0, 86400000, "ms",                                                            \
      "requests that take longer are logged, one line each; 0: none")                                        \
    X(NUMBER, spin_us, "50", 0, 1000000, "us", "how long an idle shard polls before it sleeps")

#define PST_NODE_OPTIONS(X) PST_NODE_SERVED_OPTIONS(X) PST_STORE_SETTINGS(X) PST_NODE_SESSION_OPTIONS(X)

struct pst_node_settings {
    PST_NODE_SERVED_OPTIONS(PST_OPTION_MEMBER)
    PST_STORE_SETTINGS_MEMBERS
    PST_NODE_SESSION_OPTIONS(PST_OPTION_MEMBER)
};

extern const struct pst_options pst_node_options;

struct pst_node;
struct pst_tls;
struct pst_wire_op;
struct pst_wire_result;
struct pst_replica;

/* What a node is besides a store. Functions may be NULL; those behind may_serve are there together. */
struct pst_node_role {
    void *ctx;
    /*
     * Answers operations of the codes from PST_WIRE_ROLE_FIRST on, on any shard's thread, which it does not
     * hold up. @to: gets the answer's data, @room bytes at the most, and result->bytes their number; without
     * room enough it does nothing and says -ENOBUFS.
     */
    void (*carry_out)(void *ctx, const struct pst_wire_op *op, uint64_t now_ns, uint8_t *to, size_t room,
                      struct pst_wire_result *result);
    /*
     * On any shard's thread: whether an operation on @key may be carried out. Asked before it is, and of a
     * large put once more before it becomes visible. Return: 0, or the operation's result.
     */
    int (*may_serve)(void *ctx, struct pst_bytes key);
    /* The same for the answer to a write of it that was sent to the others, and that all of them hold. */
    int (*may_answer)(void *ctx, struct pst_bytes key);
    /* On any shard's thread: whether watches hear from this node what happens to the key. */
    bool (*tells)(void *ctx, struct pst_bytes key);
    /* On any shard's thread: whether other nodes hold the key's value, too. */
    bool (*copied)(void *ctx, struct pst_bytes key);
    /* Sends a change to those, and calls its done() in any case; then hears that it has ended. */
    void (*replicate)(void *ctx, struct pst_replica *replica);
    void (*replicated)(void *ctx, struct pst_replica *replica);
    /* Whether the partition's primary of that epoch may change values here. Return: 0, or the result. */
    int (*may_copy)(void *ctx, uint32_t partition, uint64_t partition_epoch);
    /* On any shard's thread: whether the key belongs to other nodes alone, so that nobody looks for it here.
     */
    bool (*stranded)(void *ctx, struct pst_bytes key);
    /* The key's partition in the pool. */
    uint32_t (*partition_of)(void *ctx, struct pst_bytes key);
};

typedef void (*pst_log)(void *ctx, const char *line);

/* @settings: borrowed during the call; @role: NULL for a store alone. Return: 0 or -errno with the reason in
 * @fault. */
int pst_node_open(const struct pst_node_settings *settings, const struct pst_node_role *role, pst_log log,
                  void *log_ctx, struct pst_node **out, char fault[PST_FAULT_BYTES]);
/* Nothing refuses the start any more: the SSD may be written from now on. Return: 0 or -errno with @fault. */
int pst_node_begin(struct pst_node *node, char fault[PST_FAULT_BYTES]);
/*
 * Any thread: reads the file of grants again, which comes into force at once if nothing is wrong with it, and
 * the certificates, which clients from now on meet; what came of those is logged. Return: 0, or -errno with
 * the reason in @fault; the grants in force stay. -EOPNOTSUPP: the node has neither.
 */
int pst_node_reload(struct pst_node *node, char fault[PST_FAULT_BYTES]);

struct pst_node_secret {
    uint8_t data[4096];
    size_t bytes; /* 0: none is needed */
};

/*
 * What a part of this process proves that is a client of its node: what grant @grant allows, or NULL for
 * anything. It is good as long as the node lives. Return: 0, or -EINVAL with the reason in @fault.
 */
int pst_node_own_secret(struct pst_node *node, const char *grant, struct pst_node_secret *out,
                        char fault[PST_FAULT_BYTES]);
/* Ends every session, then the threads. */
struct pst_node *pst_node_close(struct pst_node *node);

/* Names the memory that --keep keeps, as long as it lives; 0: it ends with the node, or not all of it was
 * found whole. */
uint64_t pst_node_memory(const struct pst_node *node);
/* Names its SSD, whatever was found there: what a crash left half written was not durable. 0: it has none. */
uint64_t pst_node_disk(const struct pst_node *node);
const char *pst_node_url(const struct pst_node *node, int index);
uint64_t pst_node_keys(const struct pst_node *node);

/* Whether clients prove who they are, a unix socket's excepted. */
static inline bool pst_node_proves_clients(const struct pst_node_settings *settings)
{
    return settings->secret_file || settings->grants || settings->tls_ca;
}

/* The TLS that it serves with; NULL: none. */
struct pst_tls *pst_node_tls(const struct pst_node *node);
/* Whether pst_node_reload() has something to read. */
static inline bool pst_node_rereads(const struct pst_node_settings *settings)
{
    return settings->grants || settings->tls || settings->tls_ca || settings->tls_required;
}

/* Turns "PREFIX=cache" settings into prefixes. Return: 0 or -EINVAL with the reason in @fault. */
int pst_classes_parse(const struct pst_strings *classes, char *prefixes[PST_STRINGS_MAX], uint32_t *count,
                      char fault[PST_FAULT_BYTES]);
void pst_classes_free(char *prefixes[PST_STRINGS_MAX], uint32_t count);

#endif

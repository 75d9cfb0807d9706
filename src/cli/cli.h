/* SPDX-License-Identifier: Apache-2.0 */
/* cli.h: what the commands of `penstock` share: flags from tables, exit codes, JSON text, a progress bar. */
#ifndef PST_CLI_H
#define PST_CLI_H

#include "base/base.h"
#include "base/options.h"
#include "store/policy.h"

#include <penstock/penstock.h>

#include <stdio.h>

enum pst_exit {
    PST_EXIT_OK = 0,
    PST_EXIT_NOT_FOUND = 1,
    PST_EXIT_USAGE = 2,
    PST_EXIT_NO_SPACE = 3,
    PST_EXIT_NOT_ALLOWED = 4,
    PST_EXIT_UNREACHABLE = 5,
    PST_EXIT_CORRUPT = 6,
    PST_EXIT_OTHER = 7,
};

/* Flags of all commands. X(TYPE, name, default, min, max, unit, text) */
#define PST_CLI_OPTIONS(X)                                                                                   \
    X(STRING, url, "", 0, 0, "URL", "the store: node://HOST:PORT, node+unix:///PATH, mem: (PENSTOCK_URL)")   \
    X(STRING, secret_file, "", 0, 0, "FILE", "the node's shared secret (PENSTOCK_SECRET_FILE)")              \
    X(FLAG, tls, "no", 0, 0, "", "TLS, by the secret unless there is --tls-ca (PENSTOCK_TLS)")               \
    X(STRING, tls_ca, "", 0, 0, "FILE", "authorities of the node's certificate (PENSTOCK_TLS_CA)")           \
    X(STRING, tls_certificate, "", 0, 0, "FILE", "this client's certificate (PENSTOCK_TLS_CERTIFICATE)")     \
    X(STRING, tls_key, "", 0, 0, "FILE", "and its private key (PENSTOCK_TLS_KEY)")                           \
    X(STRING, tls_name, "", 0, 0, "NAME",                                                                    \
      "that the node's certificate has, if not that of its address (PENSTOCK_TLS_NAME)")                     \
    X(STRING, traceparent, "", 0, 0, "TRACEPARENT",                                                          \
      "the trace that it belongs to, 00-TRACE-SPAN-FLAGS (TRACEPARENT)")                                     \
    X(NUMBER, timeout, "10000", 1, 86400000, "ms", "how long one call may take")                             \
    X(FLAG, json, "no", 0, 0, "", "machine-readable output")                                                 \
    X(FLAG, long_, "no", 0, 0, "", "ls: size, generation and class too; tree ls, data ls: kind too (-l)")    \
    X(FLAG, all, "no", 0, 0, "", "stat: figures that are zero, too")                                         \
    X(FLAG, bytes, "no", 0, 0, "", "ls, stat, tree ls: exact sizes, in bytes")                               \
    X(FLAG, recursive, "no", 0, 0, "",                                                                       \
      "put, get: every file below a folder; data rm: folders with all that they have (-r)")                  \
    X(STRING, wait, "", 1, 0, "[=MS]",                                                                       \
      "get: wait for the key, MS long or as long as a call may take; node drain: until it is drained, MS "   \
      "long or without end")                                                                                 \
    X(STRING, range, "", 1, 0, "FROM:BYTES", "get: only this part of the value")                             \
    X(STRING, prefix, "", 1, 0, "PREFIX",                                                                    \
      "rm, data rm: every key with it; put, get --files: before the path; bench: of its keys")               \
    X(STRING, files, "", 1, 0, "LIST", "put, get: every file that LIST names, one path a line")              \
    X(FLAG, sha256, "no", 0, 0, "", "get --files: print digests instead of writing files")                   \
    X(FLAG, if_absent, "no", 0, 0, "", "put, load: only when there is no such key")                          \
    X(FLAG, replace, "no", 0, 0, "", "load: over keys that are there, too (as without it)")                  \
    X(STRING, if_generation, "", 1, 0, "N", "put, rm: only over this generation")                            \
    X(STRING, ttl, "", 1, 0, "MS", "put: the value ends after so long")                                      \
    X(FLAG, checksum, "no", 0, 0, "", "put, load: keep a checksum that every get verifies")                  \
    X(FLAG, durable, "no", 0, 0, "", "put, tree put: end when a crash would not lose it; wants an SSD")      \
    X(STRING, op, "get", 1, 0, "OP", "bench: get, put, exists, view-walk")                                   \
    X(SIZE, size, "64", 0, 1ull << 40, "bytes", "bench: size of a value")                                    \
    X(NUMBER, keys, "100000", 1, 1000000000, "keys", "bench: number of keys")                                \
    X(NUMBER, batch, "1", 1, 4096, "ops", "bench: operations submitted together")                            \
    X(NUMBER, inflight, "1", 1, 256, "batches", "bench: batches underway at once")                           \
    X(NUMBER, seconds, "3", 1, 3600, "s", "bench: how long")                                                 \
    X(NUMBER, every, "1000", 100, 3600000, "ms", "top: time from one look to the next")                      \
    X(NUMBER, count, "0", 0, 1000000000, "looks", "top: so many; 0: until it is interrupted")                \
    X(FLAG, fill, "no", 0, 0, "", "bench: put every key once")                                               \
    X(STRING, mix, "", 1, 0, "SIZE:PERCENT,...", "bench: put values of mixed sizes")                         \
    X(FLAG, until_full, "no", 0, 0, "", "bench: put until there is no space")                                \
    X(SIZE, page_size, "4K", 8, 1 << 30, "bytes", "replay: size of a page")                                  \
    X(STRING, policy, "chains", 1, 0, "POLICY,...", "replay: " PST_POLICY_NAMES)                             \
    X(STRING, capacity, "5%,10%,20%,40%", 1, 0, "N[%],...",                                                  \
      "replay: pages that fit, or of those in the trace")                                                    \
    X(STRING, ssd, "", 1, 0, "FOLDER",                                                                       \
      "replay: with an SSD below the memory, in this folder, which is empty")                                \
    X(STRING, ssd_capacity, "40%", 1, 0, "N[%]", "replay: pages that fit there")                             \
    X(NUMBER, clients, "1", 1, 64, "clients", "replay: so many at once, of a node or a pool")                \
    X(FLAG, belady, "no", 0, 0, "", "replay: what would be possible, too")                                   \
    X(STRING, plot, "", 1, 0, "FILE", "replay: draw hit rate over capacity, as SVG")                         \
    X(STRING, token_file, "", 0, 0, "FILE", "tree, data: the data store's token (PENSTOCK_DATA_TOKEN_FILE)") \
    X(STRING, group, "", 1, 1024, "NAME", "tree broadcast: those who fetch the tree from each other")        \
    X(NUMBER, members, "0", 0, 20000, "members", "tree broadcast: so many are expected; 0: not known")       \
    X(FLAG, force, "no", 0, 0, "", "tree, data: compare by content: size and time prove nothing")            \
    X(FLAG, in_place, "no", 0, 0, "", "tree, data: each file gets its place as soon as it is whole")         \
    X(LIST, filter, "", 1, 0, "[+-]PATTERN",                                                                 \
      "tree, data: take (+) or leave out (-) names that fit; the first that fits counts")                    \
    X(STRING, store_, "", 0, 0, "URL", "data: the data store's http:// or https:// (PENSTOCK_DATA_URL)")     \
    X(STRING, rsync, "", 0, 0, "HOST:PORT",                                                                  \
      "data: its rsync, if the URL does not lead there (PENSTOCK_DATA_RSYNC)")                               \
    X(STRING, ca, "", 0, 0, "FILE", "data: authorities to trust with https, as PEM (PENSTOCK_DATA_CA)")      \
    X(STRING, namespace, "", 0, 0, "NAME", "data: of the keys; 'default' unless POD_NAMESPACE says")         \
    X(STRING, transport, "", 0, 0, "auto|...",                                                               \
      "what carries operations: auto, ucx or stream; "                                                       \
      "data: what carries files: auto, native or rsync (PENSTOCK_DATA_TRANSPORT)")                           \
    X(FLAG, contents, "no", 0, 0, "", "data put, get: what a folder has, not the folder")                    \
    X(STRING, lifespan, "cluster", 1, 0, "LIFESPAN",                                                         \
      "data put, sync: cluster, or resource: until the service KT_SERVICE_NAME is cleaned up")               \
    X(FLAG, delete_, "no", 0, 0, "", "data sync: remove what the folder does not have")

struct pst_cli {
    PST_CLI_OPTIONS(PST_OPTION_MEMBER)
    char *const *args; /* behind the command */
    int arg_count;
    struct penstock *store;
};

/* Opens the store at @url. Return: 0 or the exit code of what was printed. */
int pst_cli_open(struct pst_cli *cli, const char *url);

/* Prints "penstock: what" and returns the exit code that belongs to @result. */
int pst_cli_fail(int result);
/* The same of an operation on @key. */
int pst_cli_fail_key(const char *key, int result);
int pst_cli_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* What --wait, which is set, says; 0: no number. Return: 0, or what the command ends with. */
int pst_cli_wait_ms(const struct pst_cli *cli, uint64_t *wait_ms);
int pst_cli_exit_code(int result);

/* Keeps what libraries print out of the command's output. */
void pst_output_begin(void);

/* A JSON string, quoted; bytes that are no text come as \u00XX. */
void pst_json_string(FILE *out, const void *text, size_t len);

void pst_json_base64(FILE *out, const void *data, size_t len);

/* A size for people, "6 B" or "1.50 MiB". Returns @text. */
enum { PST_SIZE_TEXT_BYTES = 24 };
const char *pst_size_text(uint64_t bytes, char text[PST_SIZE_TEXT_BYTES]);
/* The same, unless --bytes asks for the number. */
const char *pst_cli_size(const struct pst_cli *cli, uint64_t bytes, char text[PST_SIZE_TEXT_BYTES]);

/* A bar on standard error where that is a terminal, with the bytes so far and their rate. */
struct pst_progress {
    const char *what;
    uint64_t total_bytes; /* 0: not known yet */
    uint64_t files;       /* so far; 0: not told */
    uint64_t begun_ns, shown_ns;
    bool on;
};

void pst_progress_begin(struct pst_progress *p, const char *what, uint64_t total_bytes);
void pst_progress_show(struct pst_progress *p, uint64_t bytes);
void pst_progress_end(struct pst_progress *p);

/* ---- commands ---- */

int pst_cmd_put(struct pst_cli *cli);
int pst_cmd_get(struct pst_cli *cli);
int pst_cmd_ls(struct pst_cli *cli);
int pst_cmd_rm(struct pst_cli *cli);
int pst_cmd_stat(struct pst_cli *cli);
int pst_cmd_top(struct pst_cli *cli);
int pst_cmd_ping(struct pst_cli *cli);
int pst_cmd_flush(struct pst_cli *cli);
int pst_cmd_clear(struct pst_cli *cli);
int pst_cmd_bench(struct pst_cli *cli);
int pst_cmd_dump(struct pst_cli *cli);
int pst_cmd_tree(struct pst_cli *cli);
/* The same of trees that a data store has. */
int pst_cmd_tree_of_server(struct pst_cli *cli);
int pst_cmd_data_put(struct pst_cli *cli);
int pst_cmd_data_get(struct pst_cli *cli);
int pst_cmd_data_ls(struct pst_cli *cli);
int pst_cmd_data_rm(struct pst_cli *cli);
int pst_cmd_data_mkdir(struct pst_cli *cli);
int pst_cmd_data_sync(struct pst_cli *cli);
int pst_cmd_data_watch(struct pst_cli *cli);
int pst_cmd_load(struct pst_cli *cli);
int pst_cmd_replay(struct pst_cli *cli);
int pst_cmd_follow(struct pst_cli *cli);
int pst_cmd_watch(struct pst_cli *cli);
int pst_cmd_node(struct pst_cli *cli);
/* What the flags of `put` say of each of its operations. Return: 0 or the exit code of what was printed. */
int pst_put_options(const struct pst_cli *cli, struct penstock_op *op);
/* The many-files forms of put and get. */
int pst_put_files(struct pst_cli *cli);
int pst_get_files(struct pst_cli *cli);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data.h: a data store as the commands of `penstock data` see it: where it is, who asks, and requests to it.
 * It is opened by pst_data_open() from options and environment, with the same defaults as the Python package.
 * Main thread; a request blocks it.
 */
#ifndef PST_CLI_DATA_H
#define PST_CLI_DATA_H

#include "cli/cli.h"
#include "files/key.h"
#include "http/client.h"

enum { PST_DATA_TOKEN_BYTES_MAX = 256, PST_DATA_HOST_BYTES_MAX = 256, PST_DATA_NAMESPACE_BYTES_MAX = 255 };

enum pst_data_transport {
    PST_DATA_AUTO, /* native if the store has it and it can be reached, else rsync */
    PST_DATA_NATIVE,
    PST_DATA_RSYNC,
};

struct pst_data {
    struct pst_cli *cli;
    struct pst_http *http;
    char namespace[PST_DATA_NAMESPACE_BYTES_MAX + 1];
    char host[PST_DATA_HOST_BYTES_MAX]; /* of rsync and of the port for trees; without brackets */
    uint16_t rsync_port;                /* 0: neither is reached but through TLS */
    bool has_peers;                     /* other pods can be reached from here */
    enum pst_data_transport transport;
    char token[PST_DATA_TOKEN_BYTES_MAX + 1];
    size_t token_bytes;
};

/* Return: 0, or the exit code of what was printed. pst_data_close() is due after either. */
int pst_data_open(struct pst_cli *cli, struct pst_data *out);
void pst_data_close(struct pst_data *data);

/* A key in its normal form. Return: 0, or the exit code of what was printed: it cannot be, or is empty. */
int pst_data_key(const char *text, char key[PST_KEY_CAP]);

/*
 * A request about @key: METHOD /api/v1/keys/KEY@route?namespace=...&@query; NULL as @key: @route is the whole
 * path. @query may be "". Return: as pst_http_ask().
 */
int pst_data_ask(struct pst_data *data, const char *method, const char *key, const char *route,
                 const char *query, const struct pst_json *body, struct pst_json **out,
                 char fault[PST_FAULT_BYTES]);
/* The same. Return: 0, or the exit code of what was printed. */
int pst_data_call(struct pst_data *data, const char *method, const char *key, const char *route,
                  const char *query, const struct pst_json *body, struct pst_json **out);
/* Prints a fault. Return: the exit code that belongs to @result, a status of HTTP or -errno. */
int pst_data_fail(int result, const char *fault);

/* What GET keys/KEY tells. */
struct pst_data_info {
    bool found, stored;                     /* somebody has it; the store has it */
    bool is_folder;                         /* in the store */
    char store_ip[PST_DATA_HOST_BYTES_MAX]; /* what the store calls itself, if it has it */
};

/* Return: 0, or the exit code of what was printed. */
int pst_data_info(struct pst_data *data, const char *key, struct pst_data_info *out);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* tree.c: penstock tree: a file or folder to a data store's port for trees, from there, or from others who
 * fetch it. */
#include "cli/data/native.h"
#include "cli/data/report.h"

#include "base/clock.h"
#include "files/relay/relay.h"
#include "net/handshake.h"

#define SCHEME "tree://"

/* A tree of a server: tree://HOST:PORT/NAME. */
struct remote {
    struct pst_boot_address address;
    const char *name;
};

static bool is_remote(const char *text)
{
    return strncmp(text, SCHEME, sizeof(SCHEME) - 1) == 0;
}

/* Return: 0, or the exit code of what was printed. */
static int remote_parse(const char *text, struct remote *out)
{
    const char *slash = strchr(text + sizeof(SCHEME) - 1, '/'), *why = "";
    char address[300];

    if (!slash || !slash[1] || slash - text >= (ptrdiff_t)sizeof(address))
        return pst_cli_usage("'%.100s' is no " SCHEME "HOST:PORT/NAME", text);
    snprintf(address, sizeof(address), "%.*s", (int)(slash - text) - (int)(sizeof(SCHEME) - 1),
             text + sizeof(SCHEME) - 1);
    if (pst_boot_address_parse(address, &out->address, &why) < 0 || out->address.path[0])
        return pst_cli_usage("'%.100s': %s", text, *why ? why : "server address must be host:port");
    out->name = slash + 1;
    return 0;
}

static int transfer(const struct pst_cli *cli, const struct pst_native *native)
{
    uint64_t begun_ns = pst_now_ns();
    struct pst_arrival_result result = {0};
    struct pst_filter filters[PST_STRINGS_MAX];
    char fault[PST_FAULT_BYTES];
    int r = pst_native_filters(native->filters, filters);

    if (r)
        return r;
    r = pst_native_run(native, &result, fault);
    if (r == PST_NATIVE_UNREACHED)
        r = -ECONNREFUSED;
    if (r < 0)
        return pst_report_fault(r, fault);
    pst_report_moved(cli, native->puts ? "put" : "get", &result, begun_ns);
    return 0;
}

/* As a member of a broadcast. Few members get a small tree sooner as copies of the store's. */
static int broadcast(const struct pst_cli *cli, const struct pst_native *native)
{
    uint64_t begun_ns = pst_now_ns();
    struct pst_progress bar = {.on = false};
    const struct pst_broadcast_options options = {.host = native->host,
                                                  .port = native->port,
                                                  .group = cli->group,
                                                  .name = native->name,
                                                  .token = native->token,
                                                  .members = (uint32_t)cli->members,
                                                  .timeout_ms = native->timeout_ms,
                                                  .progress = pst_native_progress,
                                                  .ctx = &bar};
    struct pst_arrival_result result = {0};
    char leaf[NAME_MAX + 1], fault[PST_FAULT_BYTES];
    struct pst_carry_place place = {.leaf = leaf};
    pst_cleanup_close int folder = -1;
    int r;

    if (!cli->group || cli->filter.count || cli->force || cli->in_place)
        return pst_cli_usage("tree broadcast: takes --group, and neither --filter, --force nor --in-place");
    folder = pst_native_folder(native->local, leaf, fault);
    if (folder < 0)
        return pst_report_fault(folder, fault);
    place.folder_fd = folder;
    pst_progress_begin(&bar, "broadcast", 0);
    r = pst_broadcast_get(&options, &place, &result, fault);
    pst_progress_end(&bar);
    if (r == PST_BROADCAST_COPIES)
        return transfer(cli, native);
    if (r < 0)
        return pst_report_fault(r, fault);
    pst_report_moved(cli, "broadcast", &result, begun_ns);
    return 0;
}

int pst_cmd_tree_of_server(struct pst_cli *cli)
{
    bool puts = strcmp(cli->args[0], "put") == 0, broadcasts = strcmp(cli->args[0], "broadcast") == 0;
    const char *remote_text = cli->args[puts ? 2 : 1], *local = cli->args[puts ? 1 : 2];
    const char *token_file = cli->token_file ? cli->token_file : getenv("PENSTOCK_DATA_TOKEN_FILE");
    char token[PST_CARRY_TOKEN_BYTES_MAX], fault[PST_FAULT_BYTES];
    struct pst_native native = {.timeout_ms = (uint32_t)cli->timeout,
                                .puts = puts,
                                .local = local,
                                .flags = pst_native_flags(cli),
                                .filters = &cli->filter,
                                .token = {token, 0}};
    struct remote remote;
    int r;

    if (!puts && !broadcasts && strcmp(cli->args[0], "get") != 0)
        return pst_cli_usage("tree: '%.40s' is no action", cli->args[0]);
    if (cli->arg_count != 3 || cli->durable || cli->long_ || cli->bytes)
        return pst_cli_usage("tree %s takes FROM and TO, and --durable if it puts into a pool", cli->args[0]);
    if (!is_remote(remote_text) || is_remote(local))
        return pst_cli_usage("tree %s: from %s", cli->args[0],
                             puts ? "a path to " SCHEME "HOST:PORT/NAME" : SCHEME "HOST:PORT/NAME to a path");
    r = remote_parse(remote_text, &remote);
    if (r)
        return r;
    native.name = remote.name;
    native.host = remote.address.host;
    native.port = remote.address.port;
    if (token_file && *token_file) {
        r = pst_secret_read(token_file, token, sizeof(token), fault);
        if (r < 0)
            return pst_report_fault(r, fault);
        native.token.len = (size_t)r;
    }
    r = broadcasts ? broadcast(cli, &native) : transfer(cli, &native);
    explicit_bzero(token, sizeof(token));
    return r;
}

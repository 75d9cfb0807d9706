/* SPDX-License-Identifier: Apache-2.0 */
/* tree.c: penstock tree: a file or folder to a data store's port for trees, or from there. */
#include "cli/cli.h"

#include "base/clock.h"
#include "files/relay/relay.h"
#include "net/handshake.h"

#include <fcntl.h>
#include <limits.h>

#define SCHEME "tree://"

/* A tree of a server: tree://HOST:PORT/NAME. */
struct remote {
    struct pst_boot_address address;
    const char *name;
};

struct transfer {
    struct pst_cli *cli;
    struct pst_progress bar;
    struct pst_filter filters[PST_STRINGS_MAX];
    char token[PST_CARRY_TOKEN_BYTES_MAX];
    uint64_t begun_ns;
};

static int tree_fail(int error, const char *text)
{
    fprintf(stderr, "penstock: %s\n", text);
    return error == -ENOENT ? PST_EXIT_NOT_FOUND : pst_cli_exit_code(error);
}

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

/* Return: a socket, or the negative exit code of what was printed. */
static int remote_connect(const struct pst_cli *cli, const struct remote *remote)
{
    char fault[PST_FAULT_BYTES];
    int fd = pst_carry_connect(remote->address.host, remote->address.port, (uint32_t)cli->timeout, fault);

    return fd < 0 ? -tree_fail(fd, fault) : fd;
}

/* The folder that @path lies in, and its last part in @leaf. Return: a descriptor, or the negative exit code.
 */
static int local_open(const char *path, char leaf[NAME_MAX + 1])
{
    char copy[PATH_MAX], text[PST_FAULT_BYTES];
    size_t bytes = strlen(path);
    const char *slash;
    int fd = -1;

    while (bytes > 1 && path[bytes - 1] == '/')
        bytes--;
    if (bytes < sizeof(copy)) {
        snprintf(copy, sizeof(copy), "%.*s", (int)bytes, path);
        slash = strrchr(copy, '/');
        snprintf(leaf, NAME_MAX + 1, "%.*s", NAME_MAX, slash ? slash + 1 : copy);
        if (slash)
            copy[slash == copy ? 1 : slash - copy] = 0;
        fd = open(slash ? copy : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    } else {
        errno = ENAMETOOLONG;
    }
    if (fd >= 0 && *leaf && strcmp(leaf, ".") != 0 && strcmp(leaf, "..") != 0)
        return fd;
    snprintf(text, sizeof(text), "%.200s: %s", path,
             fd < 0 ? strerror(errno) : "names no file or folder of its own");
    pst_close_fd(&fd);
    return -tree_fail(fd < 0 ? -errno : -EINVAL, text);
}

static void transfer_progress(void *ctx, uint64_t bytes, uint64_t bytes_of_all)
{
    struct transfer *t = ctx;

    t->bar.total_bytes = bytes_of_all;
    pst_progress_show(&t->bar, bytes);
}

static int transfer_prepare(struct transfer *t, struct pst_carry_options *options)
{
    const struct pst_strings *filters = &t->cli->filter;
    char fault[PST_FAULT_BYTES];

    for (uint32_t i = 0; i < filters->count; i++) {
        if ((filters->items[i][0] != '+' && filters->items[i][0] != '-') || !filters->items[i][1])
            return pst_cli_usage("filter: '%.100s' is neither +PATTERN nor -PATTERN", filters->items[i]);
        t->filters[i] = (struct pst_filter){filters->items[i][0] == '+', filters->items[i] + 1};
    }
    options->filters = (struct pst_filters){t->filters, filters->count};
    if (t->cli->token_file) {
        int bytes = pst_secret_read(t->cli->token_file, t->token, sizeof(t->token), fault);

        if (bytes < 0)
            return tree_fail(bytes, fault);
        options->token = (struct pst_bytes){t->token, (size_t)bytes};
    }
    return 0;
}

static void transfer_tell(const struct transfer *t, const char *what, const struct pst_arrival_result *result)
{
    double seconds = (double)(pst_now_ns() - t->begun_ns) / 1e9;

    if (t->cli->json)
        printf("{\"files\": %llu, \"bytes\": %llu, \"moved\": %llu, \"matched\": %llu, \"seconds\": %.3f}\n",
               (unsigned long long)result->files, (unsigned long long)result->bytes,
               (unsigned long long)result->moved, (unsigned long long)result->matched, seconds);
    else
        printf("%s %llu files, %llu bytes in %.2f s, %.2f GB/s; %llu bytes were sent, %llu taken over\n",
               what, (unsigned long long)result->files, (unsigned long long)result->bytes, seconds,
               (double)result->bytes / 1e9 / seconds, (unsigned long long)result->moved,
               (unsigned long long)result->matched);
}

static int transfer_run(struct transfer *t, bool puts, const char *local, const struct remote *remote)
{
    struct pst_carry_options options = {.force = t->cli->force, .progress = transfer_progress, .ctx = t};
    struct pst_arrival_result result = {0};
    char leaf[NAME_MAX + 1], fault[PST_FAULT_BYTES];
    struct pst_carry_place place = {.leaf = leaf};
    pst_cleanup_close int folder = -1, fd = -1;
    int r = transfer_prepare(t, &options);

    if (r)
        return r;
    folder = local_open(local, leaf);
    if (folder < 0)
        return -folder;
    place.folder_fd = folder;
    fd = remote_connect(t->cli, remote);
    if (fd < 0)
        return -fd;
    pst_progress_begin(&t->bar, puts ? "put" : "get", 0);
    r = puts ? pst_carry_put(fd, &place, remote->name, &options, &result, fault)
             : pst_carry_get(fd, remote->name, &place, &options, &result, fault);
    pst_progress_end(&t->bar);
    if (r < 0)
        return tree_fail(r, fault);
    transfer_tell(t, puts ? "put" : "get", &result);
    return 0;
}

/* As a member of a broadcast. Few members get a small tree sooner as copies of the store's. */
static int transfer_broadcast(struct transfer *t, const char *local, const struct remote *remote)
{
    struct pst_broadcast_options options = {.host = remote->address.host,
                                            .port = remote->address.port,
                                            .group = t->cli->group,
                                            .name = remote->name,
                                            .members = (uint32_t)t->cli->members,
                                            .timeout_ms = (uint32_t)t->cli->timeout,
                                            .progress = transfer_progress,
                                            .ctx = t};
    struct pst_carry_options carry = {.filters.count = 0};
    struct pst_arrival_result result = {0};
    char leaf[NAME_MAX + 1], fault[PST_FAULT_BYTES];
    struct pst_carry_place place = {.leaf = leaf};
    pst_cleanup_close int folder = -1;
    int r = transfer_prepare(t, &carry);

    if (r)
        return r;
    if (!t->cli->group || t->cli->filter.count || t->cli->force)
        return pst_cli_usage("tree broadcast: takes --group, and neither --filter nor --force");
    folder = local_open(local, leaf);
    if (folder < 0)
        return -folder;
    place.folder_fd = folder;
    options.token = carry.token;
    pst_progress_begin(&t->bar, "broadcast", 0);
    r = pst_broadcast_get(&options, &place, &result, fault);
    pst_progress_end(&t->bar);
    if (r == PST_BROADCAST_COPIES)
        return transfer_run(t, false, local, remote);
    if (r < 0)
        return tree_fail(r, fault);
    transfer_tell(t, "broadcast", &result);
    return 0;
}

int pst_cmd_tree(struct pst_cli *cli)
{
    struct transfer t = {.cli = cli, .begun_ns = pst_now_ns()};
    bool puts = strcmp(cli->args[0], "put") == 0, broadcasts = strcmp(cli->args[0], "broadcast") == 0;
    const char *remote_text = cli->args[puts ? 2 : 1], *local = cli->args[puts ? 1 : 2];
    struct remote remote;
    int r;

    if (!puts && !broadcasts && strcmp(cli->args[0], "get") != 0)
        return pst_cli_usage("tree: '%.40s' is neither 'put', 'get' nor 'broadcast'", cli->args[0]);
    if (!is_remote(remote_text) || is_remote(local))
        return pst_cli_usage("tree %s: from %s", cli->args[0],
                             puts ? "a path to " SCHEME "HOST:PORT/NAME" : SCHEME "HOST:PORT/NAME to a path");
    r = remote_parse(remote_text, &remote);
    if (r == 0)
        r = broadcasts ? transfer_broadcast(&t, local, &remote) : transfer_run(&t, puts, local, &remote);
    explicit_bzero(t.token, sizeof(t.token));
    return r;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* command.c: penstock tree put, get, ls, rm and prune, of trees in a pool or a node. */
#include "cli/data/native.h"
#include "cli/data/report.h"
#include "cli/pooled/trees_priv.h"

#include "base/clock.h"
#include "base/error.h"

#include <inttypes.h>
#include <sys/stat.h>

enum { URL_BYTES = 4096, PRUNE_CALL_MS = 20000 };

/* ---- URLs ---- */

/* Where the address begins in a store's URL; 0: it is none. */
static size_t scheme_bytes(const char *text, bool *is_unix)
{
    static const struct {
        const char *scheme;
        bool is_unix;
    } schemes[] = {{"pool://", false}, {"node://", false}, {"node+unix://", true}, {"unix://", true}};

    for (size_t i = 0; i < pst_count_of(schemes); i++) {
        size_t bytes = strlen(schemes[i].scheme);

        if (strncmp(text, schemes[i].scheme, bytes) == 0) {
            *is_unix = schemes[i].is_unix;
            return bytes;
        }
    }
    return 0;
}

/* How much of a path, of @bytes, leads to a socket, below which nothing can lie; 0: nothing of it does. */
static size_t socket_bytes(const char *path, size_t bytes)
{
    char part[URL_BYTES];
    struct stat st;

    for (size_t at = 1; at <= bytes; at++) {
        if (at < bytes && path[at] != '/')
            continue;
        snprintf(part, sizeof(part), "%.*s", (int)at, path);
        if (stat(part, &st) == 0 && S_ISSOCK(st.st_mode))
            return at;
    }
    return 0;
}

/* STORE/NAME?SETTINGS: the URL of the store and the tree's name, "" if there is none. Return: 0, or the exit
 * code of what was printed. */
static int url_split(const char *text, char url[URL_BYTES], char name[PST_POOLED_NAME_BYTES_MAX + 1])
{
    bool is_unix = false;
    size_t skip = scheme_bytes(text, &is_unix), end = strcspn(text, "?"), store;

    pst_assert(skip > 0 && skip <= end);
    if (strlen(text) >= URL_BYTES)
        return pst_cli_usage("'%.100s...' is longer than any URL", text);
    if (is_unix)
        store = skip + socket_bytes(text + skip, end - skip);
    else
        store = skip + strcspn(text + skip, "/?");
    if (store == skip)
        return pst_cli_usage("'%.200s': %s", text,
                             is_unix ? "no part of it is the socket of a node" : "it names no host");
    snprintf(url, URL_BYTES, "%.*s%s", (int)store, text, text + end);
    store += text[store] == '/';
    if (end > store + PST_POOLED_NAME_BYTES_MAX)
        return pst_cli_usage("a tree's name has %d bytes at the most", PST_POOLED_NAME_BYTES_MAX);
    if (text[store] == '/')
        return pst_cli_usage("a tree's name does not begin with a slash");
    snprintf(name, PST_POOLED_NAME_BYTES_MAX + 1, "%.*s", end > store ? (int)(end - store) : 0, text + store);
    return 0;
}

/* ---- put and get ---- */

static int move_tree(const struct pst_cli *cli, struct trees *trees, bool puts)
{
    uint64_t begun_ns = pst_now_ns();
    struct pst_arrival_result result = {0};
    struct pst_progress bar = {.on = false};
    char leaf[NAME_MAX + 1];
    pst_cleanup_close int folder = pst_native_folder(cli->args[puts ? 1 : 2], leaf, trees->fault);
    int r;

    if (folder < 0)
        return pst_report_fault(folder, trees->fault);
    pst_progress_begin(&bar, puts ? "put" : "get", 0);
    trees->bar = &bar;
    r = puts ? trees_put(trees, folder, leaf, &result) : trees_get(trees, folder, leaf, &result);
    pst_progress_end(&bar);
    if (r < 0)
        return pst_report_fault(r, trees->fault);
    pst_report_moved(cli, puts ? "put" : "get", &result, begun_ns);
    return 0;
}

/* ---- ls ---- */

struct listing {
    const struct pst_cli *cli;
    struct trees *trees;
};

static void print_name(const char *name)
{
    char line[2 * PST_ENTRY_TEXT_BYTES_MAX];

    snprintf(line, sizeof(line), "%s", name);
    pst_printable(line);
    puts(line);
}

static int print_tree(void *ctx, const char *name)
{
    const struct listing *listing = ctx;
    struct pst_pooled_root root = {.entry_count = 0};
    char size[PST_SIZE_TEXT_BYTES];
    int r = 0;

    if (listing->cli->long_ || listing->cli->json)
        r = trees_root(listing->trees, name, &root, NULL);
    if (r == -ENOENT)
        return 0; /* it was removed meanwhile */
    if (r == 0 && listing->cli->json) {
        printf("{\"name\":");
        pst_json_string(stdout, name, strlen(name));
        printf(",\"files\":%" PRIu32 ",\"bytes\":%" PRIu64 ",\"data_bytes\":%" PRIu64 ",\"chunks\":%" PRIu32
               "}\n",
               root.file_count, root.file_bytes, root.data_bytes, root.chunk_count);
    } else if (r == 0) {
        if (listing->cli->long_)
            printf("%10" PRIu32 " %14s ", root.file_count, pst_cli_size(listing->cli, root.file_bytes, size));
        print_name(name);
    }
    pst_pooled_root_fini(&root);
    return r;
}

static void print_entry(const struct pst_cli *cli, const struct pst_entry *entry)
{
    static const char *const kinds[] = {
        [PST_ENTRY_FOLDER] = "folder", [PST_ENTRY_FILE] = "file", [PST_ENTRY_LINK] = "link"};
    char size[PST_SIZE_TEXT_BYTES];

    if (cli->json) {
        printf("{\"path\":");
        pst_json_string(stdout, entry->path, strlen(entry->path));
        printf(",\"kind\":\"%s\",\"mode\":%" PRIu32 ",\"bytes\":%" PRIu64 ",\"modified_ns\":%" PRId64
               ",\"target\":",
               kinds[entry->kind], entry->mode, entry->bytes, entry->modified_ns);
        pst_json_string(stdout, entry->target, strlen(entry->target));
        printf("}\n");
        return;
    }
    if (cli->long_)
        printf("%-6s %04o %14s ", kinds[entry->kind], entry->mode, pst_cli_size(cli, entry->bytes, size));
    print_name(*entry->path ? entry->path : ".");
}

static int list_tree(const struct pst_cli *cli, struct trees *trees)
{
    struct pst_pooled_root root = {.entry_count = 0};
    struct pst_pooled tree = {.holes = NULL};
    int r = trees_root(trees, trees->name, &root, NULL);

    if (r == 0)
        r = trees_list(trees, trees->name, &root, &tree);
    for (uint32_t i = 0; r == 0 && i < tree.m.count; i++)
        print_entry(cli, &tree.m.entries[i]);
    pst_pooled_fini(&tree);
    pst_pooled_root_fini(&root);
    return r;
}

static int list(const struct pst_cli *cli, struct trees *trees)
{
    struct listing listing = {cli, trees};
    int r = *trees->name ? list_tree(cli, trees) : trees_each(trees, print_tree, &listing);

    return r < 0 ? pst_report_fault(r, trees->fault) : 0;
}

/* ---- rm and prune ---- */

static int prune(const struct pst_cli *cli, struct trees *trees)
{
    struct trees_pruned pruned;
    char size[PST_SIZE_TEXT_BYTES];
    int r = trees_prune(trees, (uint32_t)cli->timeout, &pruned);

    if (r < 0)
        return pst_report_fault(r, trees->fault);
    if (cli->json)
        printf("{\"chunks\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"kept\":%" PRIu64 "}\n", pruned.chunks,
               pruned.bytes, pruned.kept);
    else
        printf("pruned %" PRIu64 " chunks, %s; %" PRIu64 " are in trees\n", pruned.chunks,
               pst_cli_size(cli, pruned.bytes, size), pruned.kept);
    return 0;
}

/* ---- all of them ---- */

static const struct action {
    const char *name;
    int arg_count; /* with the action */
    int url;       /* which of them */
    bool takes_name, wants_name;
} actions[] = {
    {"put", 3, 2, true, true}, {"get", 3, 1, true, true},     {"ls", 2, 1, true, false},
    {"rm", 2, 1, true, true},  {"prune", 2, 1, false, false},
};

static const struct action *action_find(const struct pst_cli *cli)
{
    for (size_t i = 0; i < pst_count_of(actions); i++) {
        if (strcmp(actions[i].name, cli->args[0]) == 0)
            return &actions[i];
    }
    return NULL;
}

/* Whether the command's tree lies in a pool or a node, rather than in a data store. */
static bool is_pooled(const struct pst_cli *cli)
{
    const struct action *action = action_find(cli);
    bool is_unix;

    pst_assert(cli->arg_count >= 2);
    if (!action || action->arg_count == 2)
        return action;
    return cli->arg_count == 3 && scheme_bytes(cli->args[action->url], &is_unix);
}

/* Return: 0, or the exit code of what was printed. */
static int check_arguments(const struct pst_cli *cli, const struct action *action, const char *name)
{
    bool moves = action->arg_count == 3, puts = moves && action->url == 2;

    if (*name == '\0' && action->wants_name)
        return pst_cli_usage("tree %s: the URL has no /NAME behind it", action->name);
    if (*name && !action->takes_name)
        return pst_cli_usage("tree %s is of all trees: its URL takes no /NAME", action->name);
    if (cli->group || cli->members || cli->token_file)
        return pst_cli_usage("tree %s: --group, --members and --token-file are of a data store",
                             action->name);
    if ((cli->force && !moves) || (cli->in_place && (!moves || puts)))
        return pst_cli_usage("tree %s of a pool does not take %s", action->name,
                             cli->in_place ? "--in-place" : "--force");
    if ((cli->filter.count || cli->durable) && !puts)
        return pst_cli_usage("tree %s of a pool takes neither --filter nor --durable", action->name);
    return 0;
}

static int run(struct pst_cli *cli, const struct action *action, struct trees *trees)
{
    int r;

    if (action->arg_count == 3)
        return move_tree(cli, trees, action->url == 2);
    if (strcmp(action->name, "ls") == 0)
        return list(cli, trees);
    if (strcmp(action->name, "prune") == 0)
        return prune(cli, trees);
    r = trees_remove(trees);
    return r < 0 ? pst_report_fault(r, trees->fault) : 0;
}

static int command(struct pst_cli *cli)
{
    const struct action *action = action_find(cli);
    const uint64_t timeout_ms = cli->timeout;
    char url[URL_BYTES], name[PST_POOLED_NAME_BYTES_MAX + 1];
    struct pst_filter filters[PST_STRINGS_MAX];
    struct trees trees = {.name = name, .durable = cli->durable, .flags = pst_native_flags(cli)};
    bool is_unix;
    int r;

    pst_assert(action);
    if (cli->arg_count != action->arg_count || !scheme_bytes(cli->args[action->url], &is_unix))
        return pst_cli_usage("tree %s takes %s", action->name,
                             action->takes_name ? "STORE[/NAME], a pool:// or node:// URL"
                                                : "the URL of a pool or a node");
    r = url_split(cli->args[action->url], url, name);
    if (r == 0)
        r = check_arguments(cli, action, name);
    if (r == 0)
        r = pst_native_filters(&cli->filter, filters);
    if (r)
        return r;
    trees.filters = (struct pst_filters){filters, cli->filter.count};
    if (!action->takes_name) /* no delete of a prune is underway for longer than its lock lasts */
        cli->timeout = pst_min(timeout_ms, PRUNE_CALL_MS);
    r = pst_cli_open(cli, url);
    cli->timeout = timeout_ms;
    if (r)
        return r;
    trees.store = cli->store;
    return run(cli, action, &trees);
}

int pst_cmd_tree(struct pst_cli *cli)
{
    return is_pooled(cli) ? command(cli) : pst_cmd_tree_of_server(cli);
}

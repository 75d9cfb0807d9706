/* SPDX-License-Identifier: Apache-2.0 */
/* get.c: penstock data get: a key's files to this host, from other pods if they can be reached, or from the
 * store. */
#include "cli/data/move.h"
#include "cli/data/report.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/percent.h"

#include <limits.h>
#include <stdio.h>

enum {
    PEERS_MAX = 8, /* that one get asks */
    SATURATED_TRIES = 5,
    SATURATED_MS = 100, /* the first pause; each is twice the last */
    PEER_PORT = 873,
};

struct get {
    struct pst_data data;
    char key[PST_KEY_CAP];
    char local[PATH_MAX];
    struct pst_data_info info;
    struct pst_arrival_result result;
};

/* Whom the store names. */
struct source {
    bool is_peer;
    bool counted; /* the store counts a request there until it is told that it has ended */
    char ip[PST_DATA_HOST_BYTES_MAX];
    char url[PATH_MAX];
};

/* ---- the source ---- */

/* An agent's URL of its own, or a path below the module "data" of other clients' pods. A module stands for
 * what a folder has; a file lies in one. */
static bool source_url(struct source *source, const char *path)
{
    const char *open = strchr(source->ip, ':') ? "[" : "", *end = *open ? "]" : "", *slash;
    int r;

    if (strncmp(path, "rsync://", 8) != 0) {
        r = snprintf(source->url, sizeof(source->url), "rsync://%s%s%s:%d/data/%s", open, source->ip, end,
                     PEER_PORT, path + strspn(path, "/"));
        return r < (int)sizeof(source->url);
    }
    slash = strchr(path + 8, '/');
    slash = slash ? strchr(slash + 1, '/') : NULL;
    r = snprintf(source->url, sizeof(source->url), "%s%s", path, slash ? "" : "/");
    return r < (int)sizeof(source->url);
}

static void pause_before(int attempt)
{
    uint64_t random;

    pst_random(&random, sizeof(random));
    usleep((useconds_t)((SATURATED_MS / 2 + random % SATURATED_MS) << attempt) * 1000);
}

/* One of those that serve as many as they may. */
static const char *any_saturated(const struct pst_json *json)
{
    const struct pst_json *ips = pst_json_get(json, "ips"), *ip = pst_json_first(ips);
    size_t count = pst_json_count(ips);
    uint64_t random;

    pst_random(&random, sizeof(random));
    for (uint64_t i = count ? random % count : 0; i > 0 && ip; i--)
        ip = pst_json_next(ip);
    return pst_json_text(ip);
}

/* Asks the store. Return: 0 and *@out, or the exit code of what was printed. */
static int source_choose(struct get *get, struct source *out)
{
    char fault[PST_FAULT_BYTES];
    struct pst_json *json = NULL;
    const char *ip, *path;
    int status = 503;

    for (int attempt = 0; attempt < SATURATED_TRIES && status == 503; attempt++) {
        json = pst_json_free(json);
        if (attempt)
            pause_before(attempt);
        status = pst_data_ask(&get->data, "GET", get->key, "/source", "", NULL, &json, fault);
    }
    if (status && status != 503) {
        pst_json_free(json);
        return pst_data_fail(status, fault);
    }
    ip = status ? any_saturated(json) : pst_json_text(pst_json_get(json, "ip"));
    path = status ? NULL : pst_json_text(pst_json_get(json, "src_path"));
    *out = (struct source){.counted = status == 0 && ip};
    snprintf(out->ip, sizeof(out->ip), "%s", ip ? ip : "");
    out->is_peer = *out->ip && strcmp(out->ip, get->info.store_ip) != 0 &&
                   source_url(out, path ? path : pst_key_leaf(get->key));
    pst_json_free(json);
    return 0;
}

/* ---- the store is told; if it cannot be, it forgets by itself ---- */

static void source_end(struct get *get, const struct source *source)
{
    char fault[PST_FAULT_BYTES];
    struct pst_json *body = source->counted ? pst_json_new_object() : NULL;

    if (!body)
        return;
    pst_json_add_text(body, "ip", source->ip);
    pst_data_ask(&get->data, "POST", get->key, "/source/complete", "", body, NULL, fault);
    pst_json_free(body);
}

static void source_report(struct get *get, const struct source *source)
{
    char fault[PST_FAULT_BYTES], route[3 * PST_DATA_HOST_BYTES_MAX + 16] = "/sources/";
    size_t front = strlen(route);

    pst_assert(pst_percent_encode(pst_bytes_of(source->ip), route + front, sizeof(route) - front) > 0);
    pst_data_ask(&get->data, "DELETE", get->key, route, "", NULL, NULL, fault);
}

/* ---- fetching ---- */

/* Return: 0, or the exit code of what was printed. */
static int fetch_stored(struct get *get)
{
    struct pst_move move = {.local = get->local, .key = get->key, .is_folder = get->data.cli->contents};
    char fault[PST_FAULT_BYTES];
    int r = pst_move(&get->data, &move, &get->result, fault);

    return r < 0 ? pst_report_fault(r, fault) : 0;
}

/* From those whom the store names, one after the other, until it names itself or nobody. Return: 0, or the
 * exit code of what was printed. */
static int fetch(struct get *get)
{
    char fault[PST_FAULT_BYTES];
    struct source source;

    for (int i = 0; i < PEERS_MAX; i++) {
        struct pst_move move = {
            .local = get->local, .key = get->key, .is_folder = get->data.cli->contents, .source = source.url};
        int r = source_choose(get, &source);

        if (r)
            return r;
        if (!source.is_peer) {
            r = get->info.stored ? fetch_stored(get) : PST_EXIT_NOT_FOUND;
            source_end(get, &source);
            if (!get->info.stored)
                break;
            return r;
        }
        r = pst_move(&get->data, &move, &get->result, fault);
        source_end(get, &source);
        if (r == 0 || move.is_local)
            return r < 0 ? pst_report_fault(r, fault) : 0;
        pst_report_line("%s: pod %s: %s", get->key, source.ip, fault);
        source_report(get, &source);
    }
    if (get->info.stored)
        return fetch_stored(get);
    pst_report_line("%s: the store does not have it, and no pod that does could be reached", get->key);
    return PST_EXIT_UNREACHABLE;
}

/* ---- the destination ---- */

/* Where it is to lie, and the folder in front of that. Return: 0, or the exit code of what was printed. */
static int local_open(struct get *get, const char *folder)
{
    pst_cleanup_free char *parent = NULL;
    size_t bytes = strlen(folder);
    char *slash;
    int r;

    while (bytes > 1 && folder[bytes - 1] == '/')
        bytes--;
    if (get->data.cli->contents)
        r = snprintf(get->local, sizeof(get->local), "%.*s", (int)bytes, folder);
    else
        r = snprintf(get->local, sizeof(get->local), "%.*s/%s", (int)bytes, folder, pst_key_leaf(get->key));
    if (r >= (int)sizeof(get->local))
        return pst_cli_usage("'%.100s' is too long", folder);
    parent = strdup(get->local);
    slash = parent ? strrchr(parent, '/') : NULL;
    if (!slash || slash == parent)
        return 0;
    *slash = 0;
    r = pst_place_mkdirs(parent);
    if (r == 0)
        return 0;
    pst_report_line("%s: %s", parent, strerror(-r));
    return PST_EXIT_OTHER;
}

static int run(struct get *get)
{
    struct pst_cli *cli = get->data.cli;
    int r = pst_data_key(cli->args[0], get->key);

    if (r == 0)
        r = pst_data_info(&get->data, get->key, &get->info);
    if (r)
        return r;
    if (!get->info.found) {
        pst_report_line("%s: nobody has this key", get->key);
        return PST_EXIT_NOT_FOUND;
    }
    r = local_open(get, cli->arg_count > 1 ? cli->args[1] : ".");
    if (r)
        return r;
    return get->data.has_peers || !get->info.stored ? fetch(get) : fetch_stored(get);
}

int pst_cmd_data_get(struct pst_cli *cli)
{
    uint64_t begun_ns = pst_now_ns();
    struct get get = {.result = {0}};
    int r = pst_data_open(cli, &get.data);

    if (r == 0)
        r = run(&get);
    if (r == 0)
        pst_report_moved(cli, "get", &get.result, begun_ns);
    pst_data_close(&get.data);
    return r;
}

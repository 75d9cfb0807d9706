/* SPDX-License-Identifier: Apache-2.0 */
/* put.c: penstock data put and sync: files and folders into a data store. */
#include "cli/data/move.h"
#include "cli/data/report.h"

#include "base/clock.h"

#include <stdio.h>
#include <sys/stat.h>

struct put {
    struct pst_data data;
    const char *service; /* the key goes when this is cleaned up; NULL: never */
    char key[PST_KEY_CAP];
    struct pst_arrival_result result;
    uint64_t begun_ns;
};

/* ---- what is asked for ---- */

static int take_lifespan(struct put *put)
{
    const char *text = put->data.cli->lifespan;

    if (strcmp(text, "cluster") == 0)
        return 0;
    if (strcmp(text, "resource") != 0)
        return pst_cli_usage("lifespan: '%.40s' is neither cluster nor resource", text);
    put->service = getenv("KT_SERVICE_NAME");
    return put->service && *put->service
               ? 0
               : pst_cli_usage("--lifespan resource needs KT_SERVICE_NAME in the environment");
}

/* Return: 0, or the exit code of what was printed. put_close() is due after either. */
static int put_open(struct put *put, struct pst_cli *cli, const char *key)
{
    int r;

    *put = (struct put){.begun_ns = pst_now_ns()};
    r = pst_data_open(cli, &put->data);
    if (r == 0)
        r = pst_data_key(key, put->key);
    return r ? r : take_lifespan(put);
}

static void put_close(struct put *put)
{
    pst_data_close(&put->data);
}

/* ---- one path ---- */

/* Return: its absolute form, for free(), and whether it is a folder; NULL: it is not there, which is printed.
 */
static char *path_open(const char *text, bool *is_folder)
{
    char *path = realpath(text, NULL);
    struct stat st;

    if (path && stat(path, &st) == 0) {
        *is_folder = S_ISDIR(st.st_mode);
        return path;
    }
    pst_report_line("%s: %s", text, strerror(errno));
    free(path);
    return NULL;
}

/* rsync would put a file into a folder that has its name. Return: 0, or the exit code of what was printed. */
static int put_check_file(struct put *put, const char *key)
{
    struct pst_data_info info = {.found = false};
    int r = pst_data_info(&put->data, key, &info);

    pst_assert(*key);
    if (r || !info.is_folder)
        return r;
    pst_report_line("%s: Is a directory; rm it first", key);
    return PST_EXIT_OTHER;
}

/* Return: 0, or the exit code of what was printed. */
static int put_path(struct put *put, const char *text, bool below)
{
    bool is_folder = false;
    pst_cleanup_free char *path = path_open(text, &is_folder), *joined = NULL;
    char key[PST_KEY_CAP], fault[PST_FAULT_BYTES];
    struct pst_move move = {.puts = true, .local = path, .key = put->key, .is_folder = is_folder};
    const char *name = path ? strrchr(path, '/') : NULL;
    int r;

    if (!path)
        return PST_EXIT_NOT_FOUND;
    if (!name[1])
        return pst_cli_usage("'%.100s' is the root of this host", text);
    if (below || (is_folder && !put->data.cli->contents)) {
        if (asprintf(&joined, "%s%s", put->key, name) < 0)
            return PST_EXIT_OTHER;
        r = pst_data_key(joined, key);
        if (r)
            return r;
        move.key = key;
    }
    r = is_folder ? 0 : put_check_file(put, move.key);
    if (r)
        return r;
    r = pst_move(&put->data, &move, &put->result, fault);
    return r < 0 ? pst_report_fault(r, fault) : 0;
}

/* ---- the key ---- */

/* What the store is called by others. */
static void store_name(const struct pst_data *data, char *out, size_t cap)
{
    const char *host = strstr(pst_http_url(data->http), "://") + 3;
    const char *colon = strrchr(host, ':');

    snprintf(out, cap, "%.*s", (int)(colon ? colon - host : (ptrdiff_t)strcspn(host, "/")), host);
}

/* Tells the store that it has the key, after it was asked whether it does: bytes may have gone to another one
 * that has its port. Return: 0, or the exit code of what was printed. */
static int put_register(struct put *put)
{
    struct pst_data *data = &put->data;
    char name[PST_DATA_HOST_BYTES_MAX];
    struct pst_data_info info = {.found = false};
    struct pst_json *body;
    int r = pst_data_info(data, put->key, &info);

    if (r)
        return r;
    if (!info.stored) {
        pst_report_line("%s: %s does not have it: the bytes went to another store on %s", put->key,
                        pst_http_url(data->http), data->host);
        return PST_EXIT_OTHER;
    }
    store_name(data, name, sizeof(name));
    body = pst_json_new_object();
    pst_json_add_text(body, "ip", name);
    pst_json_add_text(body, "lifespan", data->cli->lifespan);
    pst_json_add_text(body, "service_name", put->service);
    r = pst_data_call(data, "POST", put->key, "/store", "", body, NULL);
    pst_json_free(body);
    return r;
}

static int put_end(struct put *put, const char *what, int r)
{
    if (r == 0)
        r = put_register(put);
    if (r == 0)
        pst_report_moved(put->data.cli, what, &put->result, put->begun_ns);
    put_close(put);
    return r;
}

/* ---- commands ---- */

int pst_cmd_data_put(struct pst_cli *cli)
{
    struct put put;
    int r = put_open(&put, cli, cli->args[0]);

    for (int i = 1; r == 0 && i < cli->arg_count; i++)
        r = put_path(&put, cli->args[i], cli->arg_count > 2);
    return put_end(&put, "put", r);
}

/* What the folder has becomes what the key has. */
int pst_cmd_data_sync(struct pst_cli *cli)
{
    struct put put;
    char fault[PST_FAULT_BYTES];
    bool is_folder = false;
    pst_cleanup_free char *path = NULL;
    struct pst_move move = {.puts = true, .key = put.key, .is_folder = true};
    int r = put_open(&put, cli, cli->args[1]);

    if (r == 0)
        move.local = path = path_open(cli->args[0], &is_folder);
    if (r == 0 && !path)
        r = PST_EXIT_NOT_FOUND;
    if (r == 0 && !is_folder)
        r = pst_cli_usage("sync: '%.100s' is no folder", cli->args[0]);
    if (r == 0) {
        int error = cli->delete_ ? pst_move_check_removal(&put.data, &move, fault) : 0;

        if (error == 0)
            error = pst_move(&put.data, &move, &put.result, fault);
        if (error == 0 && cli->delete_)
            error = pst_move_remove_others(&put.data, &move, fault);
        r = error < 0 ? pst_report_fault(error, fault) : 0;
    }
    return put_end(&put, "sync", r);
}

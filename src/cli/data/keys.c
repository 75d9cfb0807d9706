/* SPDX-License-Identifier: Apache-2.0 */
/* keys.c: penstock data ls, rm, mkdir: a data store's keys. */
#include "cli/data/data.h"
#include "cli/data/report.h"

#include "base/error.h"
#include "base/percent.h"

#include <stdio.h>

/* ---- ls ---- */

static void print_item(const struct pst_cli *cli, const struct pst_json *item)
{
    const char *name = pst_json_text(pst_json_get(item, "name"));
    const char *locale = pst_json_text(pst_json_get(item, "locale"));
    char line[PST_KEY_CAP + 1];
    bool is_folder = false;

    if (!name || !locale)
        return;
    pst_json_flag(pst_json_get(item, "is_directory"), &is_folder);
    if (cli->json) {
        pst_cleanup_free char *text = pst_json_print(item);

        puts(text ? text : "{}");
        return;
    }
    snprintf(line, sizeof(line), "%s%s", name, is_folder ? "/" : "");
    pst_printable(line);
    if (cli->long_)
        printf("%-6s  %-20s  ", is_folder ? "folder" : "file", locale);
    puts(line);
}

/* What @key has. Return: 0 and the answer, the caller's; or the exit code of what was printed. */
static int list_below(struct pst_data *data, const char *key, struct pst_json **out)
{
    char query[3 * PST_KEY_CAP + 8] = "prefix=";
    int r = pst_percent_encode(pst_bytes_of(key), query + 7, sizeof(query) - 7);

    pst_assert(r >= 0);
    return pst_data_call(data, "GET", NULL, "/api/v1/keys/list", query, NULL, out);
}

/* The item of @key itself, in what its folder has; NULL: it is not listed there. */
static const struct pst_json *find_item(const struct pst_json *listing, const char *key)
{
    const struct pst_json *item = pst_json_first(pst_json_get(listing, "items"));

    for (; item; item = pst_json_next(item)) {
        const char *name = pst_json_text(pst_json_get(item, "name"));

        if (name && strcmp(name, pst_key_leaf(key)) == 0)
            return item;
    }
    return NULL;
}

/* Nothing lies below it: it is a file, an empty folder, or nothing. */
static int list_itself(struct pst_data *data, const char *key)
{
    struct pst_data_info info = {.found = false};
    struct pst_json *listing = NULL;
    const struct pst_json *item;
    char folder[PST_KEY_CAP];
    size_t leaf = (size_t)(pst_key_leaf(key) - key);
    bool is_folder = false;
    int r = pst_data_info(data, key, &info);

    if (r)
        return r;
    if (!info.found) {
        pst_report_line("%s: nobody has this key", key);
        return PST_EXIT_NOT_FOUND;
    }
    snprintf(folder, sizeof(folder), "%.*s", leaf ? (int)leaf - 1 : 0, key);
    r = list_below(data, folder, &listing);
    if (r)
        return r;
    item = find_item(listing, key);
    pst_json_flag(pst_json_get(item, "is_directory"), &is_folder);
    if (item && !is_folder)
        print_item(data->cli, item);
    pst_json_free(listing);
    return 0;
}

static int list(struct pst_data *data, const char *text)
{
    char key[PST_KEY_CAP] = "";
    struct pst_json *listing = NULL;
    const struct pst_json *items;
    int r = text[strspn(text, "/")] ? pst_data_key(text, key) : 0;

    if (r == 0)
        r = list_below(data, key, &listing);
    if (r)
        return r;
    items = pst_json_get(listing, "items");
    if (*key && pst_json_count(items) == 0)
        r = list_itself(data, key);
    for (const struct pst_json *item = pst_json_first(items); item; item = pst_json_next(item))
        print_item(data->cli, item);
    pst_json_free(listing);
    return r;
}

int pst_cmd_data_ls(struct pst_cli *cli)
{
    struct pst_data data;
    int r = pst_data_open(cli, &data);

    if (r == 0)
        r = list(&data, cli->arg_count ? cli->args[0] : "");
    pst_data_close(&data);
    return r;
}

/* ---- rm ---- */

/* Return: 0, or the exit code of what was printed. */
static int remove_key(struct pst_data *data, const char *text, bool prefix)
{
    char key[PST_KEY_CAP], query[64];
    struct pst_json *told = NULL;
    bool keys = false, files = false;
    int r = pst_data_key(text, key);

    if (r)
        return r;
    snprintf(query, sizeof(query), "recursive=%s&prefix_mode=%s", data->cli->recursive ? "true" : "false",
             prefix ? "true" : "false");
    r = pst_data_call(data, "DELETE", key, "", query, NULL, &told);
    if (r)
        return r;
    pst_json_flag(pst_json_get(told, "deleted_from_metadata"), &keys);
    pst_json_flag(pst_json_get(told, "deleted_from_filesystem"), &files);
    pst_json_free(told);
    if (keys || files)
        return 0;
    pst_report_line("%s: %s", key, prefix ? "no key begins so" : "nobody has this key");
    return PST_EXIT_NOT_FOUND;
}

int pst_cmd_data_rm(struct pst_cli *cli)
{
    struct pst_data data;
    int code = 0, r = pst_data_open(cli, &data);

    if (r == 0 && cli->prefix)
        r = remove_key(&data, cli->prefix, true);
    for (int i = 0; r == 0 && i < cli->arg_count; i++) {
        int one = remove_key(&data, cli->args[i], false);

        code = code ? code : one; /* the others go all the same */
    }
    pst_data_close(&data);
    return r ? r : code;
}

/* ---- mkdir ---- */

int pst_cmd_data_mkdir(struct pst_cli *cli)
{
    char key[PST_KEY_CAP];
    struct pst_data data;
    int r = pst_data_open(cli, &data);

    for (int i = 0; r == 0 && i < cli->arg_count; i++) {
        r = pst_data_key(cli->args[i], key);
        if (r == 0)
            r = pst_data_call(&data, "POST", key, "/mkdir", "", NULL, NULL);
    }
    pst_data_close(&data);
    return r;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* move.c: chooses what carries a tree, and says from where to where. */
#include "cli/data/move.h"
#include "cli/data/native.h"
#include "cli/data/rsync.h"

#include "base/clock.h"
#include "base/own.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>

#define USER "penstock"

enum { TURN_LOOK_US = 50000 }; /* of another command that fetches to the same place */

/* ---- the native transport ---- */

/* The store's port for trees. Return: 0, or PST_NATIVE_UNREACHED with a text in @fault. */
static int native_port(struct pst_data *data, uint16_t *out, char fault[PST_FAULT_BYTES])
{
    struct pst_json *json = NULL;
    int64_t port = 0, version = 0;
    int r = pst_data_ask(data, "GET", NULL, "/api/v1/transport", "", NULL, &json, fault);

    pst_json_integer(pst_json_get(json, "tree_port"), &port);
    pst_json_integer(pst_json_get(json, "version"), &version);
    pst_json_free(json);
    if (r)
        return PST_NATIVE_UNREACHED;
    if (version != PST_CARRY_VERSION || port <= 0 || port > UINT16_MAX) {
        snprintf(fault, PST_FAULT_BYTES, "%.150s has no port for trees of version %d",
                 pst_http_url(data->http), PST_CARRY_VERSION);
        return PST_NATIVE_UNREACHED;
    }
    *out = (uint16_t)port;
    return 0;
}

/* Return: as pst_native_run(). */
static int move_native(struct pst_data *data, struct pst_move *move, struct pst_arrival_result *result,
                       char fault[PST_FAULT_BYTES])
{
    char name[PST_DATA_NAMESPACE_BYTES_MAX + 1 + PST_KEY_CAP];
    struct pst_arrival_result moved = {0};
    struct pst_native native = {.host = data->host,
                                .timeout_ms = (uint32_t)data->cli->timeout,
                                .puts = move->puts,
                                .local = move->local,
                                .name = name,
                                .flags = pst_native_flags(data->cli),
                                .filters = &data->cli->filter,
                                .token = {data->token, data->token_bytes}};
    int r = native_port(data, &native.port, fault);

    snprintf(name, sizeof(name), "%s/%s", data->namespace, move->key);
    if (r == 0)
        r = pst_native_run(&native, &moved, fault);
    if (r)
        return r;
    pst_arrival_result_add(result, &moved);
    return 0;
}

/* ---- rsync ---- */

#define WILD "*?["

/* rsync expands these in what it is to fetch; behind a backslash they stand for themselves, as does a
 * backslash where there are none. */
static void escape(const char *text, char *out, size_t cap)
{
    bool wild = strpbrk(text, WILD);
    size_t at = 0;

    pst_assert(cap >= 2 * strlen(text) + 1);
    for (; *text; text++) {
        if (wild && strchr(WILD "]\\", *text))
            out[at++] = '\\';
        out[at++] = *text;
    }
    out[at] = 0;
}

/* The store's URL of a key. */
static void add_stored(struct pst_rsync *rsync, const struct pst_data *data, const char *key, bool fetches,
                       bool inside)
{
    const char *open = strchr(data->host, ':') ? "[" : "", *end = *open ? "]" : "";
    char escaped[2 * PST_KEY_CAP];

    escape(key, escaped, sizeof(escaped));
    pst_rsync_add(rsync, "rsync://%s%s%s%s:%u/data/%s/%s%s", data->token_bytes ? USER "@" : "", open,
                  data->host, end, data->rsync_port, data->namespace, fetches ? escaped : key,
                  inside ? "/" : "");
}

/* Another pod's URL; its agent asks for the same token as the store. */
static void add_peer(struct pst_rsync *rsync, const struct pst_data *data, const char *url)
{
    size_t scheme = sizeof("rsync://") - 1;

    pst_assert(strncmp(url, "rsync://", scheme) == 0);
    pst_rsync_add(rsync, "rsync://%s%s", data->token_bytes ? USER "@" : "", url + scheme);
}

static void rsync_begin(struct pst_rsync *rsync, const struct pst_data *data, bool filters)
{
    pst_rsync_init(rsync);
    if (data->cli->force)
        pst_rsync_add(rsync, "--ignore-times");
    pst_rsync_add(rsync, "--filter=- .penstock-*");
    if (filters)
        pst_rsync_add_filters(rsync, &data->cli->filter);
}

/* However they are written, a key that is there and fits would get what comes. */
static int check_target(const struct pst_data *data, const struct pst_move *move, char fault[PST_FAULT_BYTES])
{
    if (!strpbrk(data->namespace, WILD) && !strpbrk(move->key, WILD))
        return 0;
    snprintf(fault, PST_FAULT_BYTES,
             "%.60s/%.90s: rsync takes " WILD " for a pattern; --transport native does not", data->namespace,
             move->key);
    return -EINVAL;
}

static int put_rsync(struct pst_data *data, struct pst_move *move, struct pst_arrival_result *result,
                     char fault[PST_FAULT_BYTES])
{
    struct pst_rsync rsync;
    int r = check_target(data, move, fault);

    if (r < 0) {
        move->is_local = true;
        return r;
    }
    rsync_begin(&rsync, data, move->is_folder);
    pst_rsync_add(&rsync, "--copy-links");
    pst_rsync_add(&rsync, "--mkpath");
    pst_rsync_add(&rsync, "--");
    pst_rsync_add(&rsync, "%s%s", move->local, move->is_folder ? "/" : "");
    add_stored(&rsync, data, move->key, false, move->is_folder);
    r = pst_rsync_run(&rsync, "put", data->token, result, fault);
    move->is_local = rsync.is_local;
    pst_rsync_fini(&rsync);
    return r;
}

/* What a fetch makes: the paths that it goes through. */
struct fetch {
    char part[PATH_MAX], into[PATH_MAX + 1], made[PATH_MAX];
    bool whole;   /* it was not there, and appears at once */
    bool resumes; /* there is something of an earlier try */
    bool inside;  /* what a folder has, not the folder */
    /* Of the part, also if what is there is brought up to date: rsync inherits the lock, so that nobody else
     * is at it until its last process has ended, which may be after an interrupted command. -1: none. */
    int lock;
};

#define PARTIAL PST_KEY_RESERVED "partial" /* rsync's folders for files that are not whole */

/* Return: 0, or -errno with a text in @fault. */
static int fetch_plan(struct fetch *fetch, const struct pst_move *move, bool in_place,
                      char fault[PST_FAULT_BYTES])
{
    const char *slash = strrchr(move->local, '/'), *name = slash ? slash + 1 : move->local;
    const char *from = move->source ? move->source : move->key, *came_as = strrchr(from, '/');
    int folder_bytes = (int)(name - move->local);
    struct stat st = {0};
    bool exists = lstat(move->local, &st) == 0, renames;
    char part[PST_ARRIVAL_NAME_BYTES];
    int r = 0;

    pst_arrival_name_of(name, ".part", part);
    came_as = came_as ? came_as + 1 : from;
    renames = strcmp(came_as, name) != 0;
    fetch->inside = move->is_folder || !*came_as;
    fetch->whole = !exists && !(in_place && (fetch->inside || !renames));
    if (snprintf(fetch->part, sizeof(fetch->part), "%.*s%s", folder_bytes, move->local, part) >=
            (int)sizeof(fetch->part) ||
        strlen(name) > NAME_MAX ||
        snprintf(fetch->made, sizeof(fetch->made), "%s/%s", fetch->part, came_as) >= (int)sizeof(fetch->made))
        r = -ENAMETOOLONG;
    else if (fetch->whole)
        snprintf(fetch->into, sizeof(fetch->into), "%s/", fetch->part);
    else if (fetch->inside || renames || (exists && !S_ISDIR(st.st_mode)))
        snprintf(fetch->into, sizeof(fetch->into), "%s%s", move->local, fetch->inside ? "/" : "");
    else /* what comes under its own name goes into the folder that has it */
        snprintf(fetch->into, sizeof(fetch->into), "%.*s", folder_bytes ? folder_bytes : 2,
                 folder_bytes ? move->local : "./");
    if (r < 0)
        snprintf(fault, PST_FAULT_BYTES, "%.200s: %s", fetch->part, strerror(-r));
    return r;
}

/* Makes the part and locks it. Return: 0, or -errno with a text in @fault. */
static int fetch_lock(struct fetch *fetch, char fault[PST_FAULT_BYTES])
{
    struct stat locked, named;
    int r;

    fetch->resumes = access(fetch->part, F_OK) == 0;
    r = pst_place_mkdirs(fetch->part);
    if (r == 0) {
        fetch->lock = open(fetch->part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
        r = fetch->lock < 0 ? (errno == ENOENT ? -EWOULDBLOCK : -errno)
                            : pst_own_check(fetch->lock, S_IFDIR, 0);
    }
    if (r == 0 && flock(fetch->lock, LOCK_EX | LOCK_NB) < 0)
        r = -errno;
    /* Another command may have given it its final name in between. */
    if (r == 0 && (fstat(fetch->lock, &locked) < 0 || stat(fetch->part, &named) < 0 ||
                   locked.st_ino != named.st_ino || locked.st_dev != named.st_dev))
        r = -EWOULDBLOCK;
    if (r < 0)
        snprintf(fault, PST_FAULT_BYTES, "%.180s: %s", fetch->part,
                 r == -EWOULDBLOCK ? "it is arriving from elsewhere, too" : strerror(-r));
    return r;
}

/* Gives what has come its name. Return: 0, or -errno with a text in @fault. */
static int fetch_appear(const struct fetch *fetch, const struct pst_move *move, char fault[PST_FAULT_BYTES])
{
    const char *made = fetch->inside ? fetch->part : fetch->made;
    int r = fetch->resumes ? pst_place_remove_named(made, PARTIAL) : 0;

    if (r == 0 && rename(made, move->local) < 0)
        r = -errno;
    if (r == 0 && !fetch->inside)
        r = pst_place_remove(fetch->part);
    if (r < 0)
        snprintf(fault, PST_FAULT_BYTES, "%.200s: %s", move->local, strerror(-r));
    return r;
}

static int fetch_run(struct fetch *fetch, struct pst_data *data, struct pst_move *move,
                     struct pst_arrival_result *result, char fault[PST_FAULT_BYTES])
{
    struct pst_rsync rsync;
    int r;

    rsync_begin(&rsync, data, fetch->inside);
    pst_rsync_add(&rsync, "--partial-dir=" PARTIAL);
    if (fetch->whole) { /* what an earlier try has left, and the source has no more, goes */
        pst_rsync_add(&rsync, "--delete-excluded");
        pst_rsync_add(&rsync, "--filter=P " PARTIAL);
    } else if (!data->cli->in_place) {
        pst_rsync_add(&rsync, "--delay-updates");
    }
    if (move->source) {
        pst_rsync_add(&rsync, "--no-owner");
        pst_rsync_add(&rsync, "--no-group");
    }
    pst_rsync_add(&rsync, "--");
    if (move->source)
        add_peer(&rsync, data, move->source);
    else
        add_stored(&rsync, data, move->key, true, fetch->inside);
    pst_rsync_add(&rsync, "%s", fetch->into);
    r = pst_rsync_run(&rsync, "get", data->token, result, fault);
    move->is_local = rsync.is_local;
    pst_rsync_fini(&rsync);
    return r;
}

/* Plans a fetch, and waits until nobody else is at its part: then all of it may be there. */
static int fetch_begin(struct fetch *fetch, const struct pst_move *move, bool in_place,
                       char fault[PST_FAULT_BYTES])
{
    uint64_t until_ms = pst_now_ms() + PST_ARRIVAL_TURN_MS;
    int r;

    for (;;) {
        *fetch = (struct fetch){.lock = -1};
        r = fetch_plan(fetch, move, in_place, fault);
        if (r == 0)
            r = fetch_lock(fetch, fault);
        if (!fetch->whole &&
            (r == -EACCES || r == -EPERM || r == -EROFS)) { /* beside is no room for a lock */
            pst_close_fd(&fetch->lock);
            r = 0;
        }
        if (r != -EWOULDBLOCK || pst_now_ms() > until_ms)
            return r;
        pst_close_fd(&fetch->lock);
        usleep(TURN_LOOK_US);
    }
}

static int get_rsync(struct pst_data *data, struct pst_move *move, struct pst_arrival_result *result,
                     char fault[PST_FAULT_BYTES])
{
    struct fetch fetch;
    int r = fetch_begin(&fetch, move, data->cli->in_place, fault);

    move->is_local = r < 0;
    if (r == 0)
        r = fetch_run(&fetch, data, move, result, fault);
    if (r == 0 && fetch.whole) {
        r = fetch_appear(&fetch, move, fault);
        move->is_local = r < 0;
    }
    if (!fetch.whole && fetch.lock >= 0) {
        if (r == 0 && fetch.inside)
            r = pst_place_remove_named(move->local, PARTIAL);
        rmdir(fetch.part); /* it was there for its lock alone */
    }
    pst_close_fd(&fetch.lock);
    return r;
}

/* Return: 0, or -errno with a text in @fault. */
static int check_reach(const struct pst_data *data, const char *what, char fault[PST_FAULT_BYTES])
{
    if (data->rsync_port)
        return 0;
    snprintf(fault, PST_FAULT_BYTES,
             "%s: %.120s is reached by TLS alone; --rsync HOST:PORT names a way past it", what,
             pst_http_url(data->http));
    return -EPROTONOSUPPORT;
}

static int move_rsync(struct pst_data *data, struct pst_move *move, struct pst_arrival_result *result,
                      char fault[PST_FAULT_BYTES])
{
    int r = move->source ? 0 : check_reach(data, "rsync", fault);

    if (r < 0)
        return r;
    return move->puts ? put_rsync(data, move, result, fault) : get_rsync(data, move, result, fault);
}

int pst_move_check_removal(const struct pst_data *data, const struct pst_move *move,
                           char fault[PST_FAULT_BYTES])
{
    int r = check_reach(data, "sync --delete", fault);

    pst_assert(move->puts);
    pst_assert(move->is_folder);
    return r < 0 ? r : check_target(data, move, fault);
}

int pst_move_remove_others(struct pst_data *data, const struct pst_move *move, char fault[PST_FAULT_BYTES])
{
    struct pst_arrival_result result = {0};
    struct pst_rsync rsync;
    int r = pst_move_check_removal(data, move, fault);

    if (r < 0)
        return r;
    rsync_begin(&rsync, data, true);
    pst_rsync_add(&rsync, "--delete");
    pst_rsync_add(&rsync, "--existing");
    pst_rsync_add(&rsync, "--ignore-existing");
    pst_rsync_add(&rsync, "--");
    pst_rsync_add(&rsync, "%s/", move->local);
    add_stored(&rsync, data, move->key, false, true);
    r = pst_rsync_run(&rsync, "delete", data->token, &result, fault);
    pst_rsync_fini(&rsync);
    return r;
}

/* ---- which ---- */

/* rsync follows the links of what is put, as the Python package promises; the native transport keeps them. */
static bool wants_native(const struct pst_data *data, const struct pst_move *move)
{
    if (move->source || data->transport != PST_DATA_AUTO)
        return !move->source && data->transport == PST_DATA_NATIVE;
    return data->rsync_port && !(move->puts && move->is_folder && pst_place_has_links(move->local));
}

int pst_move(struct pst_data *data, struct pst_move *move, struct pst_arrival_result *result,
             char fault[PST_FAULT_BYTES])
{
    int r = PST_NATIVE_UNREACHED;

    pst_assert(*move->local);
    pst_assert(*move->key);
    pst_assert(!(move->puts && move->source));
    if (wants_native(data, move))
        r = move_native(data, move, result, fault);
    else
        return move_rsync(data, move, result, fault);
    if (r == PST_NATIVE_UNREACHED && data->transport == PST_DATA_AUTO)
        return move_rsync(data, move, result, fault);
    return r == PST_NATIVE_UNREACHED ? -ECONNREFUSED : r;
}

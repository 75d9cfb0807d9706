/* SPDX-License-Identifier: Apache-2.0 */
/* routes.c: from a request to what answers it. Paths stay as they were sent until a key is cut out of them:
 * a slash in a key may be encoded, and no key is decoded twice. */
#include "agent/store/store_priv.h"

#include <stdio.h>

struct route {
    const char *method, *name;
    bool has_body;
    void (*answer)(struct call *call);
};

/* The first whose name the path behind "keys/" ends with: longer ones first. */
static const struct route key_routes[] = {
    {"POST", "/source/complete", true, key_complete},
    {"GET", "/source", false, key_source},
    {"POST", "/publish", true, key_publish},
    {"POST", "/store", true, key_store},
    {"POST", "/mkdir", false, key_mkdir},
    {"POST", "/replace", true, key_replace},
    {"GET", "", false, key_info},
    {"DELETE", "", false, key_delete},
};

static void health(struct call *call)
{
    struct pst_json *json = pst_json_new_object();

    pst_json_add_text(json, "status", "healthy");
    reply_json(call, 200, json);
}

/* How trees are carried, for clients that speak more than rsync. */
static void transport(struct call *call)
{
    struct pst_json *json = pst_json_new_object();

    pst_json_add_integer(json, "tree_port", pst_carry_server_port(call->store->trees));
    pst_json_add_text(json, "tree_tunnel", "/tree/");
    pst_json_add_integer(json, "version", PST_CARRY_VERSION);
    pst_json_add_integer(json, "broadcast_version", PST_BROADCAST_VERSION);
    reply_json(call, 200, json);
}

static void stats(struct call *call)
{
    struct pst_data_store *store = call->store;
    struct pst_json *json = pst_json_new_object();
    struct pst_catalogue_stats stats;
    int r;

    pthread_mutex_lock(&store->lock);
    r = pst_catalogue_stats(store->catalogue, &stats);
    pthread_mutex_unlock(&store->lock);
    if (r < 0) {
        pst_json_free(json);
        reply_error(call, r);
        return;
    }
    pst_json_add_integer(json, "total_keys", (int64_t)stats.key_count);
    pst_json_add_integer(json, "total_sources", (int64_t)stats.source_count);
    pst_json_add_integer(json, "keys_with_store_pod", (int64_t)stats.store_key_count);
    reply_json(call, 200, json);
}

static const struct route whole_routes[] = {
    {"GET", "/health", false, health},
    {"GET", "/api/v1/stats", false, stats},
    {"GET", "/api/v1/transport", false, transport},
    {"GET", "/api/v1/keys/list", false, keys_list},
    {"POST", "/api/v1/keys/_/gpu/publish", true, gpu_publish},
    {"POST", "/api/v1/keys/_/gpu/source", true, gpu_source},
    {"POST", "/api/v1/fs/broadcast/report-unreachable", true, broadcast_unreachable},
    {"GET", "/api/v1/fs/broadcast/groups", false, broadcast_groups},
    {"GET", "/api/v1/gpu/broadcast/groups", false, exchange_groups},
    {"POST", "/api/v1/broadcast/join", true, quorum_join},
};

/* Something between the two is the route's to decode. */
static const struct {
    const char *method, *prefix, *suffix;
    void (*answer)(struct call *call, struct pst_bytes raw);
} part_routes[] = {
    {"DELETE", "/api/v1/services/", "/cleanup", service_cleanup},
    {"GET", "/api/v1/fs/broadcast/groups/", "", broadcast_rows},
    {"GET", "/api/v1/broadcast/", "/status", quorum_status},
    {"POST", "/api/v1/broadcast/", "/complete", quorum_complete},
};

/* ---- what a route takes ---- */

/* The first folder of its keys' paths: one part, and none that is hidden. */
static bool is_namespace(const char *name)
{
    return *name && *name != '.' && !strchr(name, '/') && pst_key_is_normal(name);
}

int store_namespace(const struct pst_data_store *store, struct pst_bytes query,
                    char namespace[PST_NAME_BYTES_MAX + 1])
{
    int r = pst_web_query(query, "namespace", namespace, PST_NAME_BYTES_MAX + 1);

    if (r == -ENOENT)
        r = snprintf(namespace, PST_NAME_BYTES_MAX + 1, "%s", store->settings->namespace);
    if (r < 0)
        return r;
    return is_namespace(namespace) ? 0 : -EINVAL;
}

int store_full_key(const char *namespace, const char *text, char out[PST_KEY_CAP])
{
    char key[PST_KEY_CAP];
    int r = pst_key_normalise(pst_bytes_of(text), key);

    if (r < 0)
        return r;
    if (r == 0)
        return -EINVAL;
    return snprintf(out, PST_KEY_CAP, "%s/%s", namespace, key) < PST_KEY_CAP ? 0 : -ENAMETOOLONG;
}

int store_full_key_of(const char *name, char out[PST_KEY_CAP])
{
    size_t bytes = strcspn(name, "/");
    char namespace[PST_NAME_BYTES_MAX + 1];

    if (bytes >= sizeof(namespace))
        return -ENAMETOOLONG;
    snprintf(namespace, sizeof(namespace), "%.*s", (int)bytes, name);
    return is_namespace(namespace) ? store_full_key(namespace, name + bytes, out) : -EINVAL;
}

static bool asks_with(const struct call *call, const char *method)
{
    const char *asked = call->request->method;

    return strcmp(method, strcmp(asked, "HEAD") == 0 ? "GET" : asked) == 0;
}

static int set_key(struct call *call, struct pst_bytes raw)
{
    char key[PST_KEY_CAP];
    int r = pst_key_decode(raw, key);

    if (r < 0)
        return r;
    if (asks_with(call, "DELETE") ? !pst_key_may_come(key) : pst_key_is_reserved(key))
        return -EINVAL;
    r = snprintf(call->key, sizeof(call->key), "%s%s%s", call->namespace, *key ? "/" : "", key);
    return r < (int)sizeof(call->key) ? 0 : -ENAMETOOLONG;
}

/* Return: whether there is a body as the route takes it; if not, the call is answered. */
static bool read_body(struct call *call)
{
    const char *fault = NULL;
    int r = pst_json_parse(call->request->body, &call->body, &fault);

    if (r < 0) {
        reply_detail(call, r == -ENOMEM ? 503 : r == -E2BIG ? 413 : 400, "the body: %s", fault);
        return false;
    }
    if (!pst_json_is_object(call->body)) {
        reply_detail(call, 422, "the body must be an object");
        return false;
    }
    return true;
}

static void run(struct call *call, const struct route *route)
{
    pst_assert(!call->body);
    if (!route->has_body || read_body(call))
        route->answer(call);
    call->body = pst_json_free(call->body);
}

/* ---- which route ---- */

/* Cuts @prefix and @suffix off. Return: whether @path has both, and something between. */
static bool cut(struct pst_bytes path, const char *prefix, const char *suffix, struct pst_bytes *between)
{
    size_t front = strlen(prefix), back = strlen(suffix);

    if (path.len <= front + back || memcmp(path.data, prefix, front) != 0 ||
        memcmp((const char *)path.data + path.len - back, suffix, back) != 0)
        return false;
    *between = (struct pst_bytes){(const char *)path.data + front, path.len - front - back};
    return true;
}

static bool cut_source(struct pst_bytes path, struct pst_bytes *key, struct pst_bytes *ip)
{
    static const char word[] = "/sources/";
    const char *slash = memrchr(path.data, '/', path.len);
    size_t front = slash ? (size_t)(slash + 1 - (const char *)path.data) : 0, bytes = sizeof(word) - 1;

    if (front <= bytes || front == path.len || memcmp(slash + 1 - bytes, word, bytes) != 0)
        return false;
    *key = (struct pst_bytes){path.data, front - bytes};
    *ip = (struct pst_bytes){slash + 1, path.len - front};
    return true;
}

/* Return: false there is no such route. */
static bool answer_key(struct call *call, struct pst_bytes path)
{
    struct pst_bytes raw = path, ip;
    const struct route *found = NULL;
    bool of_source = asks_with(call, "DELETE") && cut_source(path, &raw, &ip);
    int r;

    for (size_t i = 0; !of_source && !found && i < pst_count_of(key_routes); i++)
        if (asks_with(call, key_routes[i].method) && cut(path, "", key_routes[i].name, &raw))
            found = &key_routes[i];
    if (!of_source && !found)
        return false;
    r = set_key(call, raw);
    if (r == 0 && !*call_key(call))
        r = -EINVAL;
    if (r < 0)
        reply_error(call, r);
    else if (of_source)
        key_remove_source(call, ip);
    else
        run(call, found);
    return true;
}

/* Return: 0, 404 there is no such route, or 405 it takes another method. */
static int answer_call(struct call *call)
{
    struct pst_bytes path = call->request->path, part;
    bool known = false; /* by another method, unless it is a key's: "list" is one that may be deleted */

    for (size_t i = 0; i < pst_count_of(whole_routes); i++) {
        if (!pst_bytes_equal(path, pst_bytes_of(whole_routes[i].name)))
            continue;
        known = true;
        if (!asks_with(call, whole_routes[i].method))
            continue;
        run(call, &whole_routes[i]);
        return 0;
    }
    if (cut(path, "/api/v1/keys/", "", &part))
        return answer_key(call, part) ? 0 : 405;
    for (size_t i = 0; i < pst_count_of(part_routes); i++) {
        if (!cut(path, part_routes[i].prefix, part_routes[i].suffix, &part))
            continue;
        if (!asks_with(call, part_routes[i].method))
            return 405;
        part_routes[i].answer(call, part);
        return 0;
    }
    return known ? 405 : 404;
}

void store_answer(void *ctx, const struct pst_web_request *request, struct pst_web_answer *answer)
{
    struct call call = {.store = ctx, .request = request, .answer = answer};
    int status;

    if (store_namespace(call.store, request->query, call.namespace) < 0) {
        reply_detail(&call, 400, "namespace: must be one name without a slash that begins with no dot");
        return;
    }
    status = answer_call(&call);
    if (status)
        reply_detail(&call, status, status == 404 ? "Not Found" : "Method Not Allowed");
    pst_assert(!call.body);
}

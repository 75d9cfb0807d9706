/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.c: keys of tensors in device memory. Their source is a pod's data server, whose ports the catalogue
 * keeps as text where other sources have a path. */
#include "agent/store/store_priv.h"

enum { GPU_KEYS_MAX = 4096 };

static const char gpu_type[] = "gpu";

/* Return: the array of keys, NULL: the call is answered. */
static const struct pst_json *body_keys(struct call *call)
{
    const struct pst_json *keys = pst_json_get(call->body, "keys");
    size_t count = pst_json_count(keys);

    if (!pst_json_is_array(keys) || count == 0 || count > GPU_KEYS_MAX) {
        reply_detail(call, 422, "keys must be 1 to %d strings", GPU_KEYS_MAX);
        return NULL;
    }
    for (const struct pst_json *key = pst_json_first(keys); key; key = pst_json_next(key)) {
        if (!pst_json_text(key)) {
            reply_detail(call, 422, "keys must be strings");
            return NULL;
        }
    }
    return keys;
}

/* What of the body says where the server is, as the catalogue keeps it. Return: malloc()ed, or NULL. */
static char *print_server(struct call *call)
{
    static const char *const ports[] = {"nccl_port", "gpu_server_port"};
    struct pst_json *server = pst_json_new_object();
    const char *path = body_text(call, "gpu_server_socket");
    char *text;

    if (!path)
        return pst_json_free(server), NULL;
    for (size_t i = 0; i < pst_count_of(ports); i++) {
        const struct pst_json *given = pst_json_get(call->body, ports[i]);
        int64_t port;

        if (!given || pst_json_is_null(given))
            continue;
        if (!pst_json_integer(given, &port) || port < 0 || port > UINT16_MAX) {
            reply_detail(call, 422, "%s is no port", ports[i]);
            return pst_json_free(server), NULL;
        }
        pst_json_add_integer(server, ports[i], port);
    }
    if (*path)
        pst_json_add_text(server, "gpu_server_socket", path);
    text = pst_json_print(server);
    pst_json_free(server);
    return text;
}

static int publish_all(struct call *call, const struct pst_json *keys, const struct pst_source *source)
{
    struct pst_data_store *store = call->store;
    int r = 0;

    pst_assert(pst_json_is_array(keys));
    pthread_mutex_lock(&store->lock);
    for (const struct pst_json *key = pst_json_first(keys); key && r == 0; key = pst_json_next(key)) {
        r = store_full_key(call->namespace, pst_json_text(key), call->key);
        if (r == 0)
            r = pst_catalogue_publish(store->catalogue, pst_bytes_of(call->key), source, PST_LIFESPAN_UNSAID,
                                      NULL, now_ms());
    }
    pthread_mutex_unlock(&store->lock);
    return r;
}

void gpu_publish(struct call *call)
{
    const struct pst_json *keys = body_keys(call);
    struct pst_source source = {.data_type = gpu_type};
    pst_cleanup_free char *server = NULL;
    struct pst_json *json;
    int r;

    if (!keys || !(source.ip = body_ip(call)) || !(source.pod_name = body_text(call, "pod_name")) ||
        !(source.namespace = body_text(call, "namespace")) || !(server = print_server(call)))
        return;
    source.src_path = server;
    r = publish_all(call, keys, &source);
    if (r < 0) {
        reply_error(call, r);
        return;
    }
    json = reply_success();
    pst_json_add_integer(json, "count", (int64_t)pst_json_count(keys));
    pst_json_add_text(json, "data_type", gpu_type);
    reply_json(call, 200, json);
}

/* ---- who has them ---- */

/* What is told of the first source that is a data server. */
static void tell_source(void *arg, const struct pst_source_info *info)
{
    struct pst_json *told = arg, *server;
    const char *fault;
    int64_t port;

    if (pst_json_count(told) > 0 || strcmp(info->source.data_type, gpu_type) != 0 ||
        pst_json_parse(pst_bytes_of(info->source.src_path), &server, &fault) < 0)
        return;
    pst_json_add_flag(told, "found", true);
    pst_json_add_text(told, "ip", info->source.ip);
    pst_json_add_text(told, "pod_name", info->source.pod_name);
    pst_json_add_text(told, "namespace", info->source.namespace);
    if (pst_json_integer(pst_json_get(server, "nccl_port"), &port))
        pst_json_add_integer(told, "nccl_port", port);
    if (pst_json_integer(pst_json_get(server, "gpu_server_port"), &port))
        pst_json_add_integer(told, "gpu_server_port", port);
    if (pst_json_text(pst_json_get(server, "gpu_server_socket")))
        pst_json_add_text(told, "gpu_server_socket",
                          pst_json_text(pst_json_get(server, "gpu_server_socket")));
    pst_json_free(server);
}

void gpu_source(struct call *call)
{
    struct pst_data_store *store = call->store;
    const struct pst_json *keys = body_keys(call);
    struct pst_json *json, *sources;

    if (!keys)
        return;
    json = pst_json_new_object();
    sources = pst_json_new_object();
    pthread_mutex_lock(&store->lock);
    for (const struct pst_json *key = pst_json_first(keys); key; key = pst_json_next(key)) {
        struct pst_json *told = pst_json_new_object();

        if (told && store_full_key(call->namespace, pst_json_text(key), call->key) == 0)
            pst_catalogue_get(store->catalogue, pst_bytes_of(call->key), now_ms(), NULL, tell_source, told);
        if (told && pst_json_count(told) == 0)
            pst_json_add_flag(told, "found", false);
        pst_json_add(sources, pst_json_text(key), told);
    }
    pthread_mutex_unlock(&store->lock);
    pst_json_add(json, "sources", sources);
    reply_json(call, 200, json);
}

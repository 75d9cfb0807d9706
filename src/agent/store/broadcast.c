/* SPDX-License-Identifier: Apache-2.0 */
/*
 * broadcast.c: broadcasts of files: a pod joins over a WebSocket, and is told from whom it fetches. The web's
 * loop may not wait, and the catalogue may be waiting for its disk: so a thread answers what pods say, one
 * message after the other.
 */
#include "agent/store/inbox_priv.h"

#include "base/clock.h"

#include <stdio.h>

struct broadcasts {
    struct pst_data_store *store;
    pthread_mutex_t lock;
    pthread_cond_t wanted;
    struct pst_trees *trees;
    struct inbox inbox; /* of sockets that each wait for one answer */
    pthread_t thread;
    bool runs, stopping;
};

/* ---- the loop's thread ---- */

static void joiner_message(struct pst_data_store *store, struct pod_socket *socket, struct pst_bytes text)
{
    struct broadcasts *broadcasts = store->broadcasts;

    pthread_mutex_lock(&broadcasts->lock);
    if (inbox_put(&broadcasts->inbox, socket, text) < 0) /* as a rule it does not wait for its answer */
        socket_end(socket);
    pst_assert(socket->waiting <= 1);
    pthread_cond_signal(&broadcasts->wanted);
    pthread_mutex_unlock(&broadcasts->lock);
}

static void joiner_close(struct pst_data_store *store, struct pod_socket *socket)
{
    pthread_mutex_lock(&store->broadcasts->lock);
    inbox_close(socket);
    pthread_mutex_unlock(&store->broadcasts->lock);
}

const struct socket_ops broadcast_sockets = {sizeof(struct pod_socket), joiner_message, joiner_close};

/* ---- who has a key ---- */

struct source {
    struct pst_tree_pod pod;
    char ip[PST_IP_BYTES_MAX + 1], pod_name[PST_NAME_BYTES_MAX + 1], path[PST_SRC_PATH_BYTES_MAX + 1];
};

/* The peer that serves fewest; the store's own record says only where the store is. */
static void source_take(void *arg, const struct pst_source_info *info)
{
    struct source *source = arg;

    if (source->pod.ip || info->is_store)
        return;
    snprintf(source->ip, sizeof(source->ip), "%s", info->source.ip);
    snprintf(source->pod_name, sizeof(source->pod_name), "%s", info->source.pod_name);
    snprintf(source->path, sizeof(source->path), "%s", info->source.src_path);
    source->pod = (struct pst_tree_pod){source->ip, source->pod_name};
}

/* Return: whether anybody has the key, or -errno. */
static int source_find(struct call *call, struct source *source)
{
    struct pst_data_store *store = call->store;
    int r;

    *source = (struct source){.pod = {.ip = NULL}};
    if (key_is_stored(call)) {
        snprintf(source->path, sizeof(source->path), "%s", call->key);
        source->pod = (struct pst_tree_pod){store->address, NULL};
        return 1;
    }
    pthread_mutex_lock(&store->lock);
    r = pst_catalogue_get(store->catalogue, pst_bytes_of(call->key), now_ms(), NULL, source_take, source);
    pthread_mutex_unlock(&store->lock);
    return r < 0 && r != -ENOENT ? r : source->pod.ip != NULL;
}

/* ---- answers ---- */

static void add_place(struct pst_json *json, const struct pst_tree_place *place)
{
    const char *source_path = *place->source_path ? place->source_path : NULL;

    pst_assert(place->parent_rank < place->rank);
    pst_json_add_integer(json, "parent_rank", place->parent_rank);
    pst_json_add_text(json, "parent_ip", place->parent.ip);
    pst_json_add_text(json, "parent_pod_name", *place->parent.pod_name ? place->parent.pod_name : NULL);
    pst_json_add_text(json, "parent_path", place->parent_rank ? NULL : source_path);
    pst_json_add_text(json, "source_ip", place->source.ip);
    pst_json_add_text(json, "source_pod_name", *place->source.pod_name ? place->source.pod_name : NULL);
    pst_json_add_text(json, "source_path", source_path);
}

static const char *words_of(int error)
{
    return error == -ENOENT   ? "nobody has the key"
           : error == -ENOSPC ? "the broadcast has as many members as it may"
           : error == -EINVAL ? "the key, pod_ip, pod_name or fanout cannot be"
                              : strerror(-error);
}

static struct pst_json *join(struct broadcasts *broadcasts, const struct pod_socket *joiner,
                             const struct pst_json *said)
{
    struct call call = {.store = broadcasts->store};
    const char *action = pst_json_text(pst_json_get(said, "action"));
    const char *key = pst_json_text(pst_json_get(said, "key"));
    struct pst_tree_pod pod = {pst_json_text(pst_json_get(said, "pod_ip")),
                               pst_json_text(pst_json_get(said, "pod_name"))};
    const struct pst_json *given = pst_json_get(said, "fanout");
    struct pst_tree_place place;
    struct pst_json *json;
    struct source source;
    int64_t fanout = 0;
    int r;

    if (!action || strcmp(action, "join") != 0 || !key || !pod.ip)
        return socket_error("a pod says {\"action\": \"join\", \"key\", \"pod_ip\"}");
    if (!is_address(pod.ip))
        return socket_error("pod_ip is no address");
    if (given && !pst_json_is_null(given) &&
        (!pst_json_integer(given, &fanout) || fanout < 1 || fanout > PST_TREE_FANOUT_MAX))
        return socket_error("fanout must be 1 to 1000");
    pst_assert(fanout >= 0 && fanout <= PST_TREE_FANOUT_MAX);
    memcpy(call.namespace, joiner->namespace, sizeof(call.namespace));
    r = store_full_key(call.namespace, key, call.key);
    if (r == 0)
        r = source_find(&call, &source);
    if (r < 0)
        return socket_error(words_of(r));
    pthread_mutex_lock(&broadcasts->lock);
    r = pst_tree_join(broadcasts->trees, joiner->group, pst_bytes_of(call.key), &pod, (uint32_t)fanout,
                      r ? &source.pod : NULL, source.path, pst_now_ms(), &place);
    json = r < 0 ? socket_error(words_of(r)) : pst_json_new_object();
    if (r == 0) {
        pst_json_add_text(json, "event", "ready");
        pst_json_add_text(json, "group_id", joiner->group);
        pst_json_add_text(json, "key", call_key(&call));
        pst_json_add_integer(json, "rank", place.rank);
        pst_json_add_integer(json, "total_participants", place.members);
        add_place(json, &place);
    }
    pthread_mutex_unlock(&broadcasts->lock);
    return json;
}

static char *answer(struct broadcasts *broadcasts, const struct inbox_message *message)
{
    struct pst_json *said = NULL, *json;
    const char *fault;
    char *text;
    int r = pst_json_parse(message->text, &said, &fault);

    pst_assert(*message->socket->namespace);
    json = r < 0 ? socket_error(fault) : join(broadcasts, message->socket, said);
    text = json ? pst_json_print(json) : NULL;
    pst_json_free(json);
    pst_json_free(said);
    return text;
}

static void *serve(void *arg)
{
    struct broadcasts *broadcasts = arg;

    pthread_mutex_lock(&broadcasts->lock);
    while (!broadcasts->stopping || !pst_list_empty(&broadcasts->inbox.messages)) {
        struct inbox_message *message = inbox_take(&broadcasts->inbox);
        char *text;

        if (!message) {
            pthread_cond_wait(&broadcasts->wanted, &broadcasts->lock);
            continue;
        }
        pthread_mutex_unlock(&broadcasts->lock);
        text = answer(broadcasts, message);
        pthread_mutex_lock(&broadcasts->lock);
        pst_assert(message->socket->waiting == 1);
        socket_send(message->socket, text);
        inbox_done(message);
        free(text);
    }
    pthread_mutex_unlock(&broadcasts->lock);
    return NULL;
}

/* ---- routes ---- */

void broadcast_unreachable(struct call *call)
{
    struct broadcasts *broadcasts = call->store->broadcasts;
    const char *group = body_text_needed(call, "group_id"), *key, *reporter, *ip;
    struct pst_tree_place place;
    struct pst_json *json;
    int r;

    if (!group || !(key = body_text_needed(call, "key")) ||
        !(reporter = body_text_needed(call, "reporter_ip")) ||
        !(ip = body_text_needed(call, "unreachable_ip")))
        return;
    r = store_full_key(call->namespace, key, call->key);
    if (r < 0) {
        reply_error(call, r);
        return;
    }
    json = pst_json_new_object();
    pthread_mutex_lock(&broadcasts->lock);
    r = pst_tree_unreachable(broadcasts->trees, group, pst_bytes_of(call->key), reporter, ip, pst_now_ms(),
                             &place);
    pst_json_add_text(json, "status", r < 0 ? "error" : "ok");
    if (r == 0)
        add_place(json, &place);
    pthread_mutex_unlock(&broadcasts->lock);
    if (r < 0)
        pst_json_add_text(json, "error",
                          r == -ENOENT ? "the reporter is in no such broadcast"
                          : r == -EHOSTUNREACH
                              ? "the source itself was reported, behind which there is nobody"
                              : "the reporter never fetched from there");
    reply_json(call, 200, json);
}

static void add_tree(void *arg, const struct pst_tree_info *tree)
{
    struct pst_json *groups = arg, *json = pst_json_new_object();
    const char *key = memchr(tree->key.data, '/', tree->key.len);
    char text[PST_KEY_CAP];
    size_t bytes = key ? tree->key.len - (size_t)(key + 1 - (const char *)tree->key.data) : 0;

    pst_assert(bytes > 0 && bytes < sizeof(text));
    memcpy(text, key + 1, bytes);
    text[bytes] = 0;
    pst_json_add_text(json, "group_id", tree->group);
    pst_json_add_text(json, "key", text);
    pst_json_add_text(json, "source_ip", tree->source.ip);
    pst_json_add_integer(json, "fanout", tree->fanout);
    pst_json_add_integer(json, "total_participants", tree->members);
    pst_json_add_integer(json, "unreachable", tree->lost);
    pst_json_add(groups, NULL, json);
}

void broadcast_groups(struct call *call)
{
    struct broadcasts *broadcasts = call->store->broadcasts;
    struct pst_json *json = pst_json_new_object(), *groups = pst_json_new_array();

    pthread_mutex_lock(&broadcasts->lock);
    pst_trees_list(broadcasts->trees, add_tree, groups);
    pthread_mutex_unlock(&broadcasts->lock);
    pst_json_add(json, "groups", groups);
    reply_json(call, 200, json);
}

/* ---- beginning and end ---- */

int broadcasts_open(struct pst_data_store *store)
{
    struct broadcasts *broadcasts = calloc(1, sizeof(*broadcasts));
    int r;

    pst_assert(!store->broadcasts);
    if (!broadcasts)
        return -ENOMEM;
    store->broadcasts = broadcasts;
    broadcasts->store = store;
    inbox_init(&broadcasts->inbox, 1);
    pthread_mutex_init(&broadcasts->lock, NULL);
    pthread_cond_init(&broadcasts->wanted, NULL);
    broadcasts->trees = pst_trees_open();
    if (!broadcasts->trees)
        return -ENOMEM;
    r = -pthread_create(&broadcasts->thread, NULL, serve, broadcasts);
    broadcasts->runs = r == 0;
    return r;
}

void broadcasts_sweep(struct broadcasts *broadcasts)
{
    pthread_mutex_lock(&broadcasts->lock);
    pst_trees_forget(broadcasts->trees, pst_now_ms());
    pthread_mutex_unlock(&broadcasts->lock);
}

void broadcasts_close(struct broadcasts *broadcasts)
{
    if (!broadcasts)
        return;
    pthread_mutex_lock(&broadcasts->lock);
    broadcasts->stopping = true;
    pthread_cond_signal(&broadcasts->wanted);
    pthread_mutex_unlock(&broadcasts->lock);
    if (broadcasts->runs)
        pst_assert(pthread_join(broadcasts->thread, NULL) == 0);
    pst_assert(pst_list_empty(&broadcasts->inbox.messages));
    pst_trees_close(broadcasts->trees);
    pthread_cond_destroy(&broadcasts->wanted);
    pthread_mutex_destroy(&broadcasts->lock);
    free(broadcasts);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* keys.c: one key: who has it, who is to be asked for it, who comes and goes as a source of it. */
#include "agent/store/store_priv.h"

#include "base/hash.h"

#include <time.h>

static const char not_found[] = "Key not found";

uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

bool key_is_stored(const struct call *call)
{
    struct pst_root_stat stat;

    return pst_root_stat(call->store->files, call->key, &stat) == 0;
}

static void reply_not_found(struct call *call)
{
    struct pst_json *json = pst_json_new_object();

    pst_json_add_flag(json, "found", false);
    pst_json_add_text(json, "error", not_found);
    reply_json(call, 200, json);
}

/* ---- GET key ---- */

struct info {
    struct pst_json *sources;
    char store_ip[PST_IP_BYTES_MAX + 1];
};

static void info_key(void *arg, const struct pst_key_info *key)
{
    struct info *info = arg;

    strncpy(info->store_ip, key->store_ip, PST_IP_BYTES_MAX);
}

static void info_source(void *arg, const struct pst_source_info *found)
{
    struct info *info = arg;
    struct pst_json *source = found->is_store ? NULL : pst_json_new_object();

    if (!source)
        return;
    pst_json_add_text(source, "ip", found->source.ip);
    pst_json_add_number(source, "published_at", (double)found->published_ms / 1000);
    pst_json_add_integer(source, "request_count", found->request_count);
    if (*found->source.src_path)
        pst_json_add_text(source, "src_path", found->source.src_path);
    pst_json_add(info->sources, NULL, source);
}

void key_info(struct call *call)
{
    struct pst_data_store *store = call->store;
    struct info info = {.sources = pst_json_new_array()};
    struct pst_json *json;
    struct pst_root_stat stat;
    bool stored = pst_root_stat(store->files, call->key, &stat) == 0;
    int r;

    pthread_mutex_lock(&store->lock);
    r = pst_catalogue_get(store->catalogue, pst_bytes_of(call->key), now_ms(), info_key, info_source, &info);
    pthread_mutex_unlock(&store->lock);
    if (r < 0 && r != -ENOENT) {
        pst_json_free(info.sources);
        reply_error(call, r);
        return;
    }
    if (!stored && pst_json_count(info.sources) == 0) {
        pst_json_free(info.sources);
        reply_not_found(call);
        return;
    }
    json = pst_json_new_object();
    pst_json_add_text(json, "key", call_key(call));
    pst_json_add_flag(json, "found", true);
    pst_json_add_text(json, "store_pod_ip", !stored ? NULL : *info.store_ip ? info.store_ip : store->address);
    if (stored)
        pst_json_add_flag(json, "is_directory", stat.is_directory);
    pst_json_add(json, "sources", info.sources);
    reply_json(call, 200, json);
}

/* ---- GET source ---- */

/* The catalogue's choice; the store's own record goes if its file has. The file may also have come since
 * @stored was looked at, and the record with it. Return: as pst_catalogue_choose(). */
static int choose(struct call *call, bool stored, const char *asker_ip, struct pst_choice *choice)
{
    const struct pst_asker asker = {.ip = asker_ip, .outside = query_flag(call, "external")};
    struct pst_catalogue *catalogue = call->store->catalogue;
    struct pst_bytes key = pst_bytes_of(call->key);
    uint64_t random, now = now_ms();
    int r;

    pst_assert(catalogue);
    pst_random(&random, sizeof(random));
    r = pst_catalogue_choose(catalogue, key, now, &asker, random, choice);
    if (r < 0 || !choice->is_store || stored || key_is_stored(call))
        return r;
    r = pst_catalogue_remove_source(catalogue, key, choice->ip);
    return r < 0 ? r : pst_catalogue_choose(catalogue, key, now, &asker, random, choice);
}

/* Return: whether the catalogue has a record of the store's, or -errno. Under the lock. */
static int store_has_record(struct call *call)
{
    struct info info = {.sources = NULL};
    int r =
        pst_catalogue_get(call->store->catalogue, pst_bytes_of(call->key), now_ms(), info_key, NULL, &info);

    pst_assert(!info.sources);
    return r < 0 && r != -ENOENT ? r : *info.store_ip != 0;
}

/* A client is sent to itself only if nobody else has the key. */
static int choose_for_peer(struct call *call, bool stored, struct pst_choice *choice)
{
    struct pst_data_store *store = call->store;
    bool without_record; /* a file within a tree, or one that nobody has told the catalogue of */
    int r = 0;

    choice->saturated_count = 0;
    pthread_mutex_lock(&store->lock);
    if (stored)
        r = store_has_record(call);
    without_record = stored && r == 0;
    if (r >= 0)
        r = without_record && query_flag(call, "external")
                ? -ENOENT
                : choose(call, stored, call->request->peer, choice);
    if (r == -ENOENT && !without_record)
        r = choose(call, stored, NULL, choice);
    pthread_mutex_unlock(&store->lock);
    if (r == -EBUSY ? !without_record : r != -ENOENT || !stored)
        return r;
    *choice = (struct pst_choice){.is_store = true};
    memcpy(choice->ip, store->address, sizeof(choice->ip));
    return 0;
}

static void reply_saturated(struct call *call, const struct pst_choice *choice)
{
    struct pst_json *json = pst_json_new_object(), *detail = pst_json_new_object();
    struct pst_json *ips = pst_json_new_array(), *same = pst_json_new_array();

    pst_assert(choice->saturated_count <= PST_SATURATED_MAX);
    for (uint32_t i = 0; i < choice->saturated_count; i++) {
        pst_json_add_text(ips, NULL, choice->saturated[i]);
        pst_json_add_text(same, NULL, choice->saturated[i]);
    }
    pst_json_add_text(detail, "error", "every source serves as many as it may");
    pst_json_add(detail, "ips", ips);
    pst_json_add(json, "detail", detail);
    pst_json_add(json, "ips", same); /* where clients look for them */
    reply_json(call, 503, json);
}

/* The store's files lie in its module [data] by namespace and key. */
static void reply_choice(struct call *call, const struct pst_choice *choice)
{
    const char *path = choice->is_store ? call->key : choice->src_path;
    struct pst_json *json = pst_json_new_object();

    if (query_flag(call, "external")) {
        pst_json_add_text(json, "pod_name", *choice->pod_name ? choice->pod_name : NULL);
        pst_json_add_text(json, "namespace", *choice->namespace ? choice->namespace : call->namespace);
        pst_json_add_flag(json, "proxy_through_store", choice->is_store || !*choice->pod_name);
        pst_json_add_text(json, "peer_ip", choice->ip);
    } else {
        pst_json_add_text(json, "ip", choice->ip);
    }
    if (*path)
        pst_json_add_text(json, "src_path", path);
    reply_json(call, 200, json);
}

void key_source(struct call *call)
{
    struct pst_choice choice;
    int r = choose_for_peer(call, key_is_stored(call), &choice);

    if (r == -ENOENT)
        reply_not_found(call);
    else if (r == -EBUSY)
        reply_saturated(call, &choice);
    else if (r < 0)
        reply_error(call, r);
    else
        reply_choice(call, &choice);
}

/* ---- sources come and go ---- */

bool is_address(const char *ip)
{
    size_t bytes = strlen(ip);

    return bytes <= PST_IP_BYTES_MAX &&
           strspn(ip, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.:-_[]%") == bytes;
}

const char *body_ip(struct call *call)
{
    const char *ip = body_text_needed(call, "ip");

    if (!ip)
        return NULL;
    if (!is_address(ip)) {
        reply_detail(call, 422, "ip is no address");
        return NULL;
    }
    return ip;
}

static bool body_lifespan(struct call *call, enum pst_lifespan *lifespan)
{
    const char *text = body_text(call, "lifespan");

    *lifespan = PST_LIFESPAN_UNSAID;
    if (!text || !*text)
        return text != NULL;
    if (strcmp(text, "cluster") == 0)
        *lifespan = PST_LIFESPAN_CLUSTER;
    else if (strcmp(text, "resource") == 0)
        *lifespan = PST_LIFESPAN_RESOURCE;
    else
        reply_detail(call, 422, "lifespan must be 'cluster' or 'resource'");
    return *lifespan != PST_LIFESPAN_UNSAID;
}

enum record_as { RECORD_STORE, RECORD_PEER, RECORD_PEER_AGAIN };

static int catalogue_record(struct pst_data_store *store, struct pst_bytes key,
                            const struct pst_source *source, enum record_as as, enum pst_lifespan lifespan,
                            const char *service)
{
    int r;

    if (as == RECORD_PEER_AGAIN)
        return pst_catalogue_renew(store->catalogue, key, source, lifespan, service, now_ms());
    if (as == RECORD_STORE)
        r = pst_catalogue_store(store->catalogue, key, source, lifespan, service, now_ms());
    else
        r = pst_catalogue_publish(store->catalogue, key, source, lifespan, service, now_ms());
    return r < 0 ? r : 1;
}

/* Records the body's source. Return: 1, 0 it was withdrawn, or -1 the call is answered. */
static int record(struct call *call, struct pst_source *source, enum record_as as)
{
    enum pst_lifespan lifespan;
    const char *service;
    int r;

    if (!body_lifespan(call, &lifespan))
        return -1;
    service = body_text(call, "service_name");
    if (!service)
        return -1;
    if (lifespan == PST_LIFESPAN_RESOURCE && !*service) {
        reply_detail(call, 422, "lifespan 'resource' needs a service_name");
        return -1;
    }
    pthread_mutex_lock(&call->store->lock);
    r = catalogue_record(call->store, pst_bytes_of(call->key), source, as, lifespan,
                         *service ? service : NULL);
    pthread_mutex_unlock(&call->store->lock);
    if (r < 0)
        reply_error(call, r);
    pst_assert(r <= 1);
    return r < 0 ? -1 : r;
}

void key_publish(struct call *call)
{
    struct pst_source source = {.ip = body_ip(call)};
    struct pst_json *json;
    int r;

    if (!source.ip || !(source.pod_name = body_text(call, "pod_name")) ||
        !(source.namespace = body_text(call, "namespace")) ||
        !(source.src_path = body_text(call, "src_path")) ||
        !(source.data_type = body_text(call, "data_type")))
        return;
    if (!*source.namespace)
        source.namespace = call->namespace;
    if (!*source.data_type)
        source.data_type = "filesystem";
    r = record(call, &source, query_flag(call, "again") ? RECORD_PEER_AGAIN : RECORD_PEER);
    if (r < 0)
        return;
    json = pst_json_new_object();
    pst_json_add_flag(json, "success", r == 1);
    pst_json_add_text(json, "data_type", source.data_type);
    reply_json(call, 200, json);
}

void key_store(struct call *call)
{
    struct pst_source source = {.ip = body_ip(call), .namespace = call->namespace};
    int r;

    if (source.ip && call->store->address_is_said)
        source.ip = call->store->address;
    if (source.ip && (r = pst_root_sync(call->store->files)) < 0) { /* others are told of it from now on */
        reply_error(call, r);
        return;
    }
    if (source.ip && record(call, &source, RECORD_STORE) == 1)
        reply_json(call, 200, reply_success());
}

void key_complete(struct call *call)
{
    struct pst_data_store *store = call->store;
    const char *ip = body_ip(call);
    int r;

    if (!ip)
        return;
    pthread_mutex_lock(&store->lock);
    r = pst_catalogue_complete(store->catalogue, pst_bytes_of(call->key), ip);
    pthread_mutex_unlock(&store->lock);
    if (r < 0)
        reply_error(call, r);
    else
        reply_json(call, 200, reply_success());
}

void key_remove_source(struct call *call, struct pst_bytes raw_ip)
{
    struct pst_data_store *store = call->store;
    char ip[PST_IP_BYTES_MAX + 1];
    struct pst_json *json;
    int r = pst_web_decode(raw_ip, false, ip, sizeof(ip));

    if (r <= 0) {
        reply_detail(call, 400, "the source is no address");
        return;
    }
    pthread_mutex_lock(&store->lock);
    r = pst_catalogue_remove_source(store->catalogue, pst_bytes_of(call->key), ip);
    pthread_mutex_unlock(&store->lock);
    if (r < 0) {
        reply_error(call, r);
        return;
    }
    json = reply_success();
    pst_json_add_flag(json, "removed", r > 0);
    reply_json(call, 200, json);
}

void key_mkdir(struct call *call)
{
    struct pst_json *json;
    int r = pst_root_mkdir(call->store->files, call->key);

    if (r < 0) {
        reply_error(call, r);
        return;
    }
    json = reply_success();
    pst_json_add_text(json, "path", call_key(call));
    reply_json(call, 200, json);
}

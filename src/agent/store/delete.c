/* SPDX-License-Identifier: Apache-2.0 */
/*
 * delete.c: keys go, with their files. The files go first: what the catalogue says of the store counts only
 * with its file, so that a removal that ends in the middle leaves no key without one.
 */
#include "agent/store/store_priv.h"

void key_delete(struct call *call)
{
    struct pst_data_store *store = call->store;
    bool recursive = query_flag(call, "recursive"), prefix = query_flag(call, "prefix_mode");
    int flags = (recursive ? PST_DELETE_RECURSIVE : 0) | (prefix ? PST_DELETE_PREFIX : 0);
    uint64_t files = 0, keys = 0;
    struct pst_json *json;
    int r = prefix ? pst_root_remove_prefix(store->files, call->key, recursive, &files)
                   : pst_root_remove(store->files, call->key, recursive, &files);

    if (r == 0 || r == -ENOENT || r == -ENOTDIR) {
        pthread_mutex_lock(&store->lock);
        r = pst_catalogue_delete(store->catalogue, pst_bytes_of(call->key), flags, &keys);
        pthread_mutex_unlock(&store->lock);
    }
    if (r < 0) {
        reply_error(call, r);
        return;
    }
    json = reply_success();
    pst_json_add_flag(json, "deleted_from_metadata", keys > 0);
    pst_json_add_flag(json, "deleted_from_filesystem", files > 0);
    pst_json_add_integer(json, "deleted_metadata_count", (int64_t)keys);
    pst_json_add_integer(json, "deleted_fs_count", (int64_t)files);
    reply_json(call, 200, json);
}

/* ---- a service's keys ---- */

enum { BATCH = 256 };

struct batch {
    char (*keys)[PST_KEY_CAP];
    uint32_t count;
};

static bool batch_add(void *arg, const struct pst_key_info *key)
{
    struct batch *batch = arg;

    pst_assert(key->key.len < PST_KEY_CAP);
    memcpy(batch->keys[batch->count], key->key.data, key->key.len);
    batch->keys[batch->count++][key->key.len] = 0;
    return batch->count < BATCH;
}

/* Removes up to BATCH of them, each with its files. Return: how many, or -errno; *removed grows. */
static int remove_batch(struct pst_data_store *store, const char *service, const char *namespace,
                        struct batch *batch, uint64_t *removed)
{
    uint64_t files = 0, keys = 0;
    int r;

    batch->count = 0;
    pthread_mutex_lock(&store->lock);
    r = pst_catalogue_of_service(store->catalogue, service, namespace, batch_add, batch);
    pthread_mutex_unlock(&store->lock);
    for (uint32_t i = 0; r == 0 && i < batch->count; i++) {
        r = pst_root_remove(store->files, batch->keys[i], true, &files);
        if (r < 0 && r != -ENOENT && r != -ENOTDIR)
            return r;
        pthread_mutex_lock(&store->lock);
        r = pst_catalogue_delete(store->catalogue, pst_bytes_of(batch->keys[i]), 0, &keys);
        pthread_mutex_unlock(&store->lock);
        *removed += r == 0 ? keys : 0;
    }
    return r < 0 ? r : (int)batch->count;
}

void service_cleanup(struct call *call, struct pst_bytes raw_service)
{
    struct batch batch = {.keys = malloc(sizeof(*batch.keys) * BATCH)};
    char service[PST_NAME_BYTES_MAX + 1];
    struct pst_json *json;
    uint64_t removed = 0;
    int r = pst_web_decode(raw_service, false, service, sizeof(service));

    if (r >= 0 && !batch.keys)
        r = -ENOMEM;
    while (r >= 0 && (r = remove_batch(call->store, service, call->namespace, &batch, &removed)) == BATCH)
        ;
    free(batch.keys);
    if (r < 0) {
        reply_error(call, r);
        return;
    }
    json = reply_success();
    pst_json_add_integer(json, "deleted_count", (int64_t)removed);
    reply_json(call, 200, json);
}

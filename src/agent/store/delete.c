/* SPDX-License-Identifier: Apache-2.0 */
/*
 * delete.c: keys go, with their files. The files go first: what the catalogue says of the store counts only
 * with its file, so that a removal that ends in the middle leaves no key without one.
 */
#include "agent/store/store_priv.h"

/* What puts of @key, or with @prefix of those that begin with it, have left that broke off. One that is
 * underway goes on. */
static void forget_arrivals(struct pst_data_store *store, const char *key, bool prefix, uint64_t *removed)
{
    const char *leaf = pst_key_leaf(key);
    char folder[PST_KEY_CAP];
    pst_cleanup_close int fd = -1;

    pst_assert(leaf >= key);
    snprintf(folder, sizeof(folder), "%.*s", leaf == key ? 0 : (int)(leaf - key - 1), key);
    fd = pst_root_open_folder(store->files, folder);
    if (fd >= 0 && prefix)
        pst_arrival_forget_prefix(fd, leaf, removed);
    else if (fd >= 0 && pst_arrival_forget(fd, leaf) > 0)
        ++*removed;
}

static void note_entry(void *arg, const struct pst_root_entry *entry)
{
    pst_assert(*entry->name);
    *(bool *)arg = true;
}

/* What clients have put aside in the folder @key that shows nothing else: who was killed does not come for
 * it. Return: whether there was any. */
static bool forget_aside(struct pst_data_store *store, const char *key)
{
    char prefix[PST_KEY_CAP];
    pst_cleanup_close int fd = -1;
    bool has_more = false;
    uint64_t removed = 0;

    pst_assert(store->files);
    pst_assert(*key);
    if (snprintf(prefix, sizeof(prefix), "%s/" PST_KEY_ASIDE, key) >= PST_KEY_CAP ||
        pst_root_list(store->files, key, note_entry, &has_more) < 0 || has_more)
        return false;
    pst_root_remove_prefix(store->files, prefix, true, &removed);
    fd = pst_root_open_folder(store->files, key);
    if (fd >= 0)
        pst_arrival_forget_prefix(fd, PST_KEY_ASIDE, &removed);
    return removed > 0;
}

/* Of the key, or with PST_DELETE_PREFIX of all that begin with it. Return: 0 also if there were none. */
static int delete_files(struct pst_data_store *store, const char *key, int flags, uint64_t *removed)
{
    bool recursive = flags & PST_DELETE_RECURSIVE, prefix = flags & PST_DELETE_PREFIX;
    int r = prefix ? pst_root_remove_prefix(store->files, key, recursive, removed)
                   : pst_root_remove(store->files, key, recursive, removed);

    if (r == -ENOTEMPTY && !prefix && forget_aside(store, key))
        r = pst_root_remove(store->files, key, false, removed);
    r = r == -ENOENT || r == -ENOTDIR ? 0 : r;
    if (r == 0)
        forget_arrivals(store, key, prefix, removed);
    return r;
}

static int delete_key(struct pst_data_store *store, const char *key, int flags, uint64_t *removed)
{
    int r;

    pthread_mutex_lock(&store->lock);
    r = pst_catalogue_delete(store->catalogue, pst_bytes_of(key), flags, removed);
    pthread_mutex_unlock(&store->lock);
    return r;
}

void key_delete(struct call *call)
{
    struct pst_data_store *store = call->store;
    int flags = (query_flag(call, "recursive") ? PST_DELETE_RECURSIVE : 0) |
                (query_flag(call, "prefix_mode") ? PST_DELETE_PREFIX : 0);
    uint64_t files = 0, keys = 0;
    struct pst_json *json;
    int r = delete_files(store, call->key, flags, &files);

    if (r == 0)
        r = delete_key(store, call->key, flags, &keys);
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

/* ---- one in another's place ---- */

/* What a file below a key is called that is the key's value. */
#define VALUES "penstock-value."

/* A file where a folder with a value lies, or the other way round: no transfer does that without a moment at
 * which there is neither. */
void key_replace(struct call *call)
{
    struct pst_data_store *store = call->store;
    const char *text = body_text_needed(call, "by");
    char by[PST_KEY_CAP];
    int r = text ? store_full_key(call->namespace, text, by) : 0;

    if (!text)
        return;
    if (r == 0 && !pst_key_may_come(by))
        r = -EINVAL;
    if (r == 0)
        r = pst_root_replace(store->files, call->key, by, VALUES);
    if (r == -ENOTEMPTY)
        reply_detail(call, 400, "%s is a folder with more than a value, which stays", call->key);
    else if (r < 0)
        reply_error(call, r);
    else
        reply_json(call, 200, reply_success());
}

/* ---- a service's keys ---- */

enum { BATCH = 256 };

/* Keys that cannot be removed stay in front of those whose turn has not come. */
struct batch {
    char (*keys)[PST_KEY_CAP];
    uint32_t count;
    uint64_t staying, passed;
    int fault; /* the first */
};

static bool batch_add(void *arg, const struct pst_key_info *key)
{
    struct batch *batch = arg;

    pst_assert(key->key.len < PST_KEY_CAP);
    pst_assert(batch->count < BATCH);
    pst_assert(batch->passed <= batch->staying);
    if (batch->passed < batch->staying) {
        batch->passed++;
        return true;
    }
    memcpy(batch->keys[batch->count], key->key.data, key->key.len);
    batch->keys[batch->count++][key->key.len] = 0;
    return batch->count < BATCH;
}

/* Removes up to BATCH of them, each with its files. Return: how many had their turn, or -errno; *removed
 * grows. */
static int remove_batch(struct pst_data_store *store, const char *service, const char *namespace,
                        struct batch *batch, uint64_t *removed)
{
    uint64_t files = 0;
    int r;

    batch->count = 0;
    batch->passed = 0;
    pthread_mutex_lock(&store->lock);
    r = pst_catalogue_of_service(store->catalogue, service, namespace, batch_add, batch);
    pthread_mutex_unlock(&store->lock);
    if (r < 0)
        return r;
    pst_assert(batch->count <= BATCH);
    for (uint32_t i = 0; i < batch->count; i++) {
        uint64_t keys = 0;

        r = delete_files(store, batch->keys[i], PST_DELETE_RECURSIVE, &files);
        if (r == 0)
            r = delete_key(store, batch->keys[i], 0, &keys);
        *removed += keys;
        batch->staying += r < 0;
        batch->fault = batch->fault ? batch->fault : r;
    }
    return (int)batch->count;
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
    r = r < 0 ? r : batch.fault;
    if (r < 0) {
        reply_error(call, r);
        return;
    }
    json = reply_success();
    pst_json_add_integer(json, "deleted_count", (int64_t)removed);
    reply_json(call, 200, json);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* list.c: what lies beneath a key: the files that the store has, and the keys that pods have. */
#include "agent/store/store_priv.h"

#include <stdio.h>

struct item {
    char *name;
    char *locale; /* NULL: the store */
    bool is_directory;
};

struct listing {
    struct item *items;
    size_t count, room;
    int error; /* the first */
};

static void add(struct listing *listing, const char *name, size_t bytes, bool is_directory,
                const char *locale)
{
    struct item item = {.is_directory = is_directory};

    pst_assert(listing->count <= listing->room);
    pst_assert(listing->count <= PST_ROOT_ENTRIES_MAX);
    if (listing->error || bytes == 0 || name[0] == '.')
        return;
    if (listing->count == listing->room) {
        size_t room = listing->room ? 2 * listing->room : 64;
        struct item *items = realloc(listing->items, room * sizeof(*items));

        if (items) {
            listing->items = items;
            listing->room = room;
        } else {
            listing->error = -ENOMEM;
        }
    }
    if (listing->count == PST_ROOT_ENTRIES_MAX)
        listing->error = -E2BIG;
    if (listing->error)
        return;
    pst_assert(listing->count < listing->room);
    item.name = strndup(name, bytes);
    item.locale = locale ? strdup(locale) : NULL;
    listing->items[listing->count++] = item;
    if (!item.name || (locale && !item.locale))
        listing->error = -ENOMEM;
}

/* ---- files ---- */

static void add_entry(void *arg, const struct pst_root_entry *entry)
{
    add(arg, entry->name, strlen(entry->name), entry->is_directory, NULL);
}

static int list_files(const struct call *call, struct listing *listing)
{
    int r = pst_root_list(call->store->files, call->key, add_entry, listing);

    if (r == -ENOTDIR) { /* the key is a file */
        struct pst_root_stat stat;
        const char *leaf = pst_key_leaf(call->key);

        if (pst_root_stat(call->store->files, call->key, &stat) == 0)
            add(listing, leaf, strlen(leaf), false, NULL);
        r = 0;
    }
    return r == -ENOENT || r == -ELOOP ? 0 : r;
}

/* ---- keys ---- */

/* The next key behind a place in the catalogue. */
struct next {
    char key[PST_KEY_CAP + 1];
    size_t bytes; /* 0: there is none */
    bool is_peers;
    char pod_name[PST_NAME_BYTES_MAX + 1];
};

static bool take_first(void *arg, const struct pst_key_info *key)
{
    struct next *next = arg;

    pst_assert(key->key.len < PST_KEY_CAP);
    pst_assert(next->bytes == 0);
    memcpy(next->key, key->key.data, key->key.len);
    next->bytes = key->key.len;
    next->is_peers = key->source_count > (*key->store_ip ? 1u : 0u);
    snprintf(next->pod_name, sizeof(next->pod_name), "%s", *key->pod_name ? key->pod_name : "local");
    return false;
}

/* Where those behind the longest key begin, which no key begins with. Down to @base_bytes: there are none. */
static void next_step(struct next *next, size_t base_bytes)
{
    pst_assert(next->bytes <= PST_KEY_BYTES_MAX);
    pst_assert(base_bytes <= next->bytes);
    while (next->bytes > base_bytes && (uint8_t)next->key[next->bytes - 1] == UINT8_MAX)
        next->bytes--;
    if (next->bytes > base_bytes)
        next->key[next->bytes - 1] = (char)((uint8_t)next->key[next->bytes - 1] + 1);
}

/* The name that a key has beneath the first @base_bytes of it; then @next is where those behind it begin. */
static void add_next(struct listing *listing, struct next *next, size_t base_bytes)
{
    const char *name = next->key + base_bytes;
    const char *slash = memchr(name, '/', next->bytes - base_bytes);
    size_t bytes = slash ? (size_t)(slash - name) : next->bytes - base_bytes;

    pst_assert(next->bytes >= base_bytes);
    if (next->is_peers)
        add(listing, name, bytes, slash != NULL, next->pod_name);
    if (slash) { /* past all that the directory has */
        next->bytes = base_bytes + bytes + 1;
        next->key[next->bytes - 1] = '/' + 1;
    } else if (next->bytes < PST_KEY_BYTES_MAX) { /* "name", then "name-x" and such, then "name/..." */
        next->key[next->bytes++] = 0;
    } else {
        next_step(next, base_bytes);
    }
    pst_assert(next->bytes <= PST_KEY_BYTES_MAX);
}

static int list_keys(const struct call *call, struct listing *listing)
{
    struct pst_data_store *store = call->store;
    char base[PST_KEY_CAP + 1];
    int base_bytes = snprintf(base, sizeof(base), "%s/", call->key);
    struct next next = {.bytes = 0};
    struct pst_bytes from = {base, 0};
    int r = 0;

    if (base_bytes > PST_KEY_BYTES_MAX)
        return 0; /* no key is longer */
    while (r == 0 && !listing->error) {
        struct next found = {.bytes = 0};

        pthread_mutex_lock(&store->lock);
        r = pst_catalogue_list(store->catalogue, (struct pst_bytes){base, (size_t)base_bytes}, from,
                               take_first, &found);
        pthread_mutex_unlock(&store->lock);
        if (r < 0 || found.bytes == 0)
            break;
        next = found;
        add_next(listing, &next, (size_t)base_bytes);
        from = (struct pst_bytes){next.key, next.bytes};
        if (from.len == (size_t)base_bytes)
            break;
    }
    return r;
}

/* ---- the answer ---- */

/* Directories first, then by name; of one name the store's first. */
static int item_order(const void *left, const void *right)
{
    const struct item *a = left, *b = right;
    int order = strcmp(a->name, b->name);

    if (a->is_directory != b->is_directory)
        return a->is_directory ? -1 : 1;
    return order ? order : (a->locale != NULL) - (b->locale != NULL);
}

/* Marks what is a directory in one place and a key in another as a directory, and names it once. */
static int name_order(const void *left, const void *right)
{
    const struct item *a = left, *b = right;
    int order = strcmp(a->name, b->name);

    return order ? order : (a->locale != NULL) - (b->locale != NULL);
}

static void merge_names(struct listing *listing)
{
    size_t kept = 0;

    if (listing->count == 0)
        return;
    qsort(listing->items, listing->count, sizeof(*listing->items), name_order);
    for (size_t i = 1; i < listing->count; i++) {
        struct item *item = &listing->items[i], *last = &listing->items[kept];

        if (strcmp(item->name, last->name) != 0) {
            listing->items[++kept] = *item;
            continue;
        }
        last->is_directory |= item->is_directory;
        free(item->name);
        free(item->locale);
    }
    pst_assert(kept < listing->count);
    listing->count = kept + 1;
    qsort(listing->items, listing->count, sizeof(*listing->items), item_order);
}

static struct pst_json *print_items(const struct listing *listing)
{
    struct pst_json *items = pst_json_new_array();

    for (size_t i = 0; i < listing->count; i++) {
        const struct item *item = &listing->items[i];
        struct pst_json *json = pst_json_new_object();

        if (pst_json_add_text(json, "name", item->name) == -EILSEQ) {
            pst_json_free(json); /* JSON cannot say it */
            continue;
        }
        pst_json_add_flag(json, "is_directory", item->is_directory);
        pst_json_add_text(json, "locale", item->locale ? item->locale : "store");
        pst_json_add(items, NULL, json);
    }
    return items;
}

static int set_prefix(struct call *call, char prefix[PST_KEY_CAP])
{
    char text[PST_KEY_CAP];
    int r = pst_web_query(call->request->query, "prefix", text, sizeof(text));

    if (r == -ENOENT)
        r = text[0] = 0;
    if (r >= 0)
        r = pst_key_normalise(pst_bytes_of(text), prefix);
    if (r < 0)
        return r == -ENOSPC ? -ENAMETOOLONG : r;
    r = snprintf(call->key, sizeof(call->key), "%s%s%s", call->namespace, *prefix ? "/" : "", prefix);
    return r < (int)sizeof(call->key) ? 0 : -ENAMETOOLONG;
}

void keys_list(struct call *call)
{
    char prefix[PST_KEY_CAP];
    struct listing listing = {.count = 0};
    struct pst_json *json;
    int r = set_prefix(call, prefix);

    if (r == 0)
        r = list_files(call, &listing);
    if (r == 0)
        r = list_keys(call, &listing);
    if (r == 0)
        r = listing.error;
    if (r == 0) {
        merge_names(&listing);
        json = pst_json_new_object();
        pst_json_add_text(json, "prefix", prefix);
        pst_json_add(json, "items", print_items(&listing));
        reply_json(call, 200, json);
    } else {
        reply_error(call, r);
    }
    for (size_t i = 0; i < listing.count; i++) {
        free(listing.items[i].name);
        free(listing.items[i].locale);
    }
    free(listing.items);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * list.c: a listing of all shards: each gives its keys in order, a page at a time; the smallest of their
 * heads comes next. A key that moves between shards could be in no page: the next one of the shard that it
 * left, and behind the last one of its new shard. Keys move when a pool map has a new version, and when a
 * node that has its values from the SSD comes back with another seed. So pages are of one state of both. When
 * that changes, all pages are fetched again, from behind the last key that was handed out.
 */
#include "client/client_priv.h"

#include "wire/wire.h"

enum {
    PAGE_BYTES = 32 << 10,
    ROUNDS_MAX = 64, /* over all shards, until keys stay where they are for one of them */
};

#define LIST_MAGIC 0x6c697374u

struct page {
    uint8_t *data;
    size_t at, bytes;
    bool end; /* nothing follows this page */
};

struct penstock_list {
    uint32_t magic;
    struct penstock *store;
    uint32_t shards;
    uint64_t places; /* pst_places() that all pages are of */
    int64_t taken;   /* the shard whose head the caller holds, -1: none */
    bool whole;      /* the pages hold all that comes next; else they are to be fetched again */
    bool begun;      /* @from was handed out */
    bool copies;     /* of keys for which other nodes are asked belong here, too */
    size_t from_bytes, end_bytes;
    uint8_t from[PENSTOCK_KEY_BYTES_MAX]; /* where the listing starts, then the last key handed out */
    uint8_t end[PENSTOCK_KEY_BYTES_MAX];
    struct page *pages; /* @shards of them */
};

size_t pst_prefix_end(const void *prefix, size_t prefix_bytes, uint8_t end[PENSTOCK_KEY_BYTES_MAX])
{
    size_t len = pst_min(prefix_bytes, PENSTOCK_KEY_BYTES_MAX);

    if (len)
        memcpy(end, prefix, len);
    while (len > 0 && end[len - 1] == 0xff)
        len--;
    if (len > 0)
        end[len - 1]++;
    return len;
}

static struct pst_wire_entry head_of(const struct page *page, struct pst_bytes *key)
{
    struct pst_wire_entry entry;

    pst_assert(page->at + sizeof(entry) <= page->bytes);
    memcpy(&entry, page->data + page->at, sizeof(entry));
    *key = (struct pst_bytes){page->data + page->at + sizeof(entry), entry.key_bytes};
    return entry;
}

/* Checks a page that came from elsewhere: whole entries, keys in order behind @before (or from it on, before
 * the listing has @begun) and in front of the listing's end, which callers rely on; and at least one unless
 * nothing follows, so that a listing comes to its end. */
static bool page_sound(const struct page *page, struct pst_bytes before, bool begun, struct pst_bytes end)
{
    size_t at = 0;

    pst_assert(page->bytes <= PAGE_BYTES);
    while (at < page->bytes) {
        struct pst_wire_entry entry;
        struct pst_bytes key;

        if (page->bytes - at < sizeof(entry))
            return false;
        memcpy(&entry, page->data + at, sizeof(entry));
        at += sizeof(entry);
        if (entry.key_bytes < 1 || entry.key_bytes > PENSTOCK_KEY_BYTES_MAX ||
            page->bytes - at < entry.key_bytes)
            return false;
        key = (struct pst_bytes){page->data + at, entry.key_bytes};
        if (pst_bytes_compare(before, key) >= (begun ? 0 : 1) ||
            (end.len && pst_bytes_compare(key, end) >= 0))
            return false;
        before = key;
        begun = true;
        at += entry.key_bytes;
    }
    return page->end || page->bytes > 0;
}

/* Drops what nobody who asks for a key would find: copies, and what a node has that its key has left.
 * Return: the key of the last entry that there was, in @last. */
static struct pst_bytes page_keep_found(const struct penstock_list *list, uint32_t shard, struct page *page,
                                        uint8_t last[PENSTOCK_KEY_BYTES_MAX])
{
    struct pst_bytes key = {NULL, 0};
    size_t kept = 0, bytes;

    pst_assert(page->at == 0);
    pst_assert(page->bytes > 0 && page->bytes <= PAGE_BYTES);
    pst_assert(!list->copies);
    pst_enter(list->store);
    for (; page->at < page->bytes; page->at += bytes) {
        head_of(page, &key);
        bytes = sizeof(struct pst_wire_entry) + key.len;
        if (page->at + bytes == page->bytes)
            memcpy(last, key.data, key.len);
        if (!list->store->backend->finds(list->store, shard, key))
            continue;
        pst_assert(kept <= page->at);
        memmove(page->data + kept, page->data + page->at, bytes);
        kept += bytes;
    }
    pst_leave(list->store);
    pst_assert(page->at == page->bytes); /* a page is looked at before it counts */
    page->at = 0;
    page->bytes = kept;
    return (struct pst_bytes){last, key.len};
}

/* Fetches a page of a shard's keys behind @from, or with it if @after is false. */
static int list_fetch_from(struct penstock_list *list, uint32_t shard, struct pst_bytes from, bool after)
{
    struct page *page = &list->pages[shard];
    struct penstock_op op = {.code = PST_WIRE_LIST,
                             .flags = after ? PST_WIRE_AFTER : 0,
                             .key = from.data,
                             .key_bytes = (uint16_t)from.len,
                             .attrs = list->end,
                             .attr_bytes = (uint16_t)list->end_bytes,
                             .data = page->data,
                             .bytes = PAGE_BYTES};
    int r;

    pst_assert(shard < list->shards);
    pst_assert(from.len <= PENSTOCK_KEY_BYTES_MAX);
    pst_assert(page->data);
    page->at = page->bytes = 0;
    r = pst_run_one(list->store, &op, (int)shard);
    if (r)
        return r;
    page->bytes = pst_min(op.value_bytes, PAGE_BYTES);
    page->end = op.generation;
    if (page_sound(page, from, after, (struct pst_bytes){list->end, list->end_bytes}))
        return 0;
    page->bytes = 0;
    return pst_explain(list->store, NULL, -EPROTO);
}

/* Fetches a shard's first page behind @from, or with it before the listing has begun, that has a key of the
 * listing. */
static int list_fetch_page(struct penstock_list *list, uint32_t shard)
{
    struct page *page = &list->pages[shard];
    uint8_t last[PENSTOCK_KEY_BYTES_MAX];
    struct pst_bytes from = {list->from, list->from_bytes};
    int r = list_fetch_from(list, shard, from, list->begun);

    while (r == 0 && list->store->backend->finds && !list->copies && page->bytes > 0) {
        from = page_keep_found(list, shard, page, last);
        if (page->bytes > 0 || page->end)
            break;
        r = list_fetch_from(list, shard, from, true);
    }
    return r;
}

static void set_bounds(struct penstock_list *list, const struct penstock_list_options *o)
{
    struct pst_bytes start = {o->start, o->start_bytes}, prefix = {o->prefix, o->prefix_bytes};
    struct pst_bytes end = {o->end, o->end_bytes};
    uint8_t behind[PENSTOCK_KEY_BYTES_MAX];
    struct pst_bytes prefix_end = {behind, pst_prefix_end(prefix.data, prefix.len, behind)};

    pst_assert(start.len <= PENSTOCK_KEY_BYTES_MAX);
    pst_assert(end.len <= PENSTOCK_KEY_BYTES_MAX);
    if (pst_bytes_compare(prefix, start) > 0)
        start = prefix;
    if (prefix_end.len && (!end.len || pst_bytes_compare(prefix_end, end) < 0))
        end = prefix_end;
    list->from_bytes = start.len;
    list->end_bytes = end.len;
    if (start.len)
        memcpy(list->from, start.data, start.len);
    if (end.len)
        memcpy(list->end, end.data, end.len);
}

/* The only shard that can have something in the range: the owner of the one key that fits into it. -1: any
 * can. */
static int64_t only_shard(struct penstock_list *list)
{
    struct pst_bytes key = {list->from, list->from_bytes};
    int64_t shard;

    pst_assert(list->from_bytes <= sizeof(list->from));
    pst_assert(list->end_bytes <= sizeof(list->end));
    if (!key.len || list->end_bytes != key.len + 1 || list->end[key.len] != 0 ||
        memcmp(list->from, list->end, key.len) != 0)
        return -1;
    pst_enter(list->store);
    shard = list->store->backend->shard_of(list->store, key);
    pst_leave(list->store);
    return shard < pst_shards(list->store) ? shard : -1;
}

static void list_drop_pages(struct penstock_list *list)
{
    pst_assert(list->pages || list->shards == 0);
    for (uint32_t i = 0; i < list->shards; i++)
        free(list->pages[i].data);
    free(list->pages);
    list->pages = NULL;
    list->shards = 0;
}

/* Makes room for the pages of @shards shards. */
static int list_set_shards(struct penstock_list *list, uint32_t shards)
{
    if (shards == list->shards)
        return 0;
    list_drop_pages(list);
    list->pages = calloc(shards, sizeof(*list->pages));
    if (!list->pages)
        return pst_fail(-ENOMEM, "out of memory");
    list->shards = shards;
    return 0;
}

/* Fetches a page of each shard that may have some. */
static int list_fetch_round(struct penstock_list *list)
{
    int r = list_set_shards(list, pst_shards(list->store));
    int64_t only = r == 0 ? only_shard(list) : -1;

    pst_assert(r < 0 || only < (int64_t)list->shards);
    for (uint32_t i = 0; r == 0 && i < list->shards; i++) {
        struct page *page = &list->pages[i];

        page->at = page->bytes = 0;
        if ((only >= 0 && i != only) || pst_shard_at(list->store, i) < 0)
            continue;
        if (!page->data)
            page->data = malloc(PAGE_BYTES);
        r = page->data ? list_fetch_page(list, i) : pst_fail(-ENOMEM, "out of memory");
    }
    return r;
}

/* Of one key, the nodes that are not asked need not be there. What is listed to be deleted may lie anywhere.
 */
static int list_refresh(struct penstock_list *list)
{
    int r = pst_refresh(list->store);

    pst_assert(list->from_bytes <= sizeof(list->from));
    pst_assert(list->end_bytes <= sizeof(list->end));
    if (r == 0 && !list->copies)
        r = pst_whole(list->store, (struct pst_bytes){list->from, list->from_bytes},
                      (struct pst_bytes){list->end, list->end_bytes});
    return r < 0 && only_shard(list) >= 0 ? 0 : r;
}

/* Return: whether the pages are of places that no longer count, 0 or 1, or the fault. */
static int list_outdated(struct penstock_list *list)
{
    int r = list_refresh(list);

    pst_assert(list->magic == LIST_MAGIC);
    if (r < 0)
        return r;
    return pst_places(list->store) != list->places || pst_shards(list->store) != list->shards;
}

/* Fetches all pages, with keys at the same places. */
static int list_fetch_all(struct penstock_list *list)
{
    pst_assert(!list->whole);
    for (int rounds = 0; rounds < ROUNDS_MAX; rounds++) {
        int r = list_refresh(list), outdated;

        if (r < 0)
            return r;
        list->places = pst_places(list->store);
        r = list_fetch_round(list);
        outdated = list_outdated(list);
        list->whole = r == 0 && outdated == 0;
        if (outdated <= 0)
            return outdated < 0 ? outdated : r;
    }
    return pst_explain(list->store, NULL, -ESTALE);
}

static int list_open(struct penstock *store, const struct penstock_list_options *options, bool copies,
                     struct penstock_list **out)
{
    static const struct penstock_list_options everything = {.size = sizeof(everything)};
    const struct penstock_list_options *o = options ? options : &everything;
    struct penstock_list *list;
    int r = pst_store_check(store);

    if (r < 0)
        return r;
    if (!out || (o->prefix_bytes && !o->prefix) || (o->start_bytes && !o->start) || (o->end_bytes && !o->end))
        return pst_fail(-EINVAL,
                        "penstock_list_open: a bound without its bytes, or nowhere to put the listing");
    if (o->start_bytes > PENSTOCK_KEY_BYTES_MAX || o->end_bytes > PENSTOCK_KEY_BYTES_MAX ||
        o->prefix_bytes > PENSTOCK_KEY_BYTES_MAX)
        return pst_fail(-ENAMETOOLONG, "%s: key longer than %d bytes", store->url, PENSTOCK_KEY_BYTES_MAX);
    list = calloc(1, sizeof(*list));
    if (!list)
        return pst_fail(-ENOMEM, "out of memory");
    list->magic = LIST_MAGIC;
    list->store = store;
    list->taken = -1;
    list->copies = copies;
    set_bounds(list, o);
    r = list_fetch_all(list);
    if (r) {
        penstock_list_close(list);
        return r;
    }
    *out = list;
    return 0;
}

int penstock_list_open(struct penstock *store, const struct penstock_list_options *options,
                       struct penstock_list **out)
{
    return list_open(store, options, false, out);
}

int pst_list_open_copies(struct penstock *store, const struct penstock_list_options *options,
                         struct penstock_list **out)
{
    return list_open(store, options, true, out);
}

/* Steps over a shard's first entry, the key that was handed out. */
static int advance(struct penstock_list *list, uint32_t shard)
{
    struct page *page = &list->pages[shard];
    struct pst_bytes key;
    int r, outdated;

    pst_assert(shard < list->shards);
    pst_assert(page->at < page->bytes);
    head_of(page, &key);
    page->at += sizeof(struct pst_wire_entry) + key.len;
    pst_assert(page->at <= page->bytes); /* a page is looked at before it counts */
    if (page->at < page->bytes || page->end)
        return 0;
    r = list_fetch_page(list, shard);
    outdated = list_outdated(list);
    list->whole = r == 0 && outdated == 0;
    if (outdated)
        return outdated < 0 ? outdated : 0;
    return r;
}

/* Steps over the entry that the caller has seen, wherever there are copies of the value. */
static int advance_all(struct penstock_list *list)
{
    uint32_t taken = (uint32_t)list->taken;
    struct pst_bytes seen = {list->from, 0}, key;
    int r = 0;

    pst_assert(list->taken >= 0);
    pst_assert(taken < list->shards);
    head_of(&list->pages[taken], &key);
    memcpy(list->from, key.data, key.len);
    pst_assert(list->from_bytes <= sizeof(list->from));
    list->from_bytes = seen.len = key.len;
    list->begun = true;
    list->taken = -1;
    for (uint32_t i = 0; list->store->backend->shard_at && i < list->shards && r == 0 && list->whole; i++) {
        if (i == taken || list->pages[i].at == list->pages[i].bytes)
            continue;
        head_of(&list->pages[i], &key);
        if (pst_bytes_equal(seen, key))
            r = advance(list, i);
    }
    return r ? r : advance(list, taken);
}

int penstock_list_next(struct penstock_list *list, struct penstock_entry *out)
{
    struct pst_bytes best = {NULL, 0}, key;
    struct pst_wire_entry entry;
    int r;

    if (!list || !out)
        return pst_fail(-EINVAL, "penstock_list_next: no listing");
    pst_assert(list->magic == LIST_MAGIC);
    r = pst_store_check(list->store);
    if (r == 0 && list->taken >= 0)
        r = advance_all(list);
    if (r == 0 && !list->whole)
        r = list_fetch_all(list);
    if (r)
        return r;
    pst_assert(list->whole);
    pst_assert(list->taken < 0);
    for (uint32_t i = 0; i < list->shards; i++) {
        if (list->pages[i].at == list->pages[i].bytes)
            continue;
        head_of(&list->pages[i], &key);
        pst_assert(list->pages[i].at < list->pages[i].bytes);
        if (list->taken < 0 || pst_bytes_compare(key, best) < 0) {
            list->taken = i;
            best = key;
        }
    }
    if (list->taken < 0)
        return 0;
    pst_assert(list->taken < list->shards);
    entry = head_of(&list->pages[list->taken], &key);
    *out = (struct penstock_entry){.key = key.data,
                                   .key_bytes = key.len,
                                   .value_bytes = entry.value_bytes,
                                   .generation = entry.generation,
                                   .cache = entry.cache,
                                   .depth = entry.depth,
                                   .on_ssd = entry.away == PST_WIRE_ON_SSD,
                                   .on_device = entry.away == PST_WIRE_ON_DEVICE,
                                   .copies = entry.copies};
    return 1;
}

struct penstock_list *penstock_list_close(struct penstock_list *list)
{
    if (!list)
        return NULL;
    pst_assert(list->magic == LIST_MAGIC);
    list->magic = 0; /* a second close is found */
    list_drop_pages(list);
    free(list);
    return NULL;
}

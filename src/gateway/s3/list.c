/* SPDX-License-Identifier: Apache-2.0 */
/*
 * list.c: ListObjects, in both versions. An item of a page is a key or, with a delimiter, what a run of keys
 * has in common; a page begins behind an item, so either may be where the next one goes on.
 */
#include "gateway/s3/s3_priv.h"

#include "base/hex.h"
#include "base/percent.h"
#include "gateway/s3/wire/time_priv.h"

enum {
    STATS_AT_ONCE = 256,
    SKIPS_MAX = 32, /* keys of a run that are passed by, before the listing begins anew behind the run */
    PAGE_TEXT_BYTES = 256 << 10, /* held until the client has read it; a page of long keys is shorter */
    TOKEN_BYTES = 2 * PST_KEY_BYTES_MAX,
};

struct item {
    struct pst_bytes name; /* without the bucket; in the page's text */
    bool is_prefix;
    uint64_t bytes, generation;
    uint64_t written_ms;
};

struct page {
    struct s3_session *s;
    bool v2, encoded;
    struct pst_bytes prefix, delimiter;
    uint64_t max_keys;
    uint8_t after[PST_KEY_BYTES_MAX]; /* items behind this one */
    size_t after_bytes;
    struct item *items;
    size_t count;
    bool truncated;
    char *text;
    size_t text_bytes, text_room;
};

/* ---- what is asked for ---- */

static enum s3_code page_token(struct page *page, struct pst_bytes token)
{
    if (token.len == 0 || token.len % 2 || token.len > TOKEN_BYTES ||
        !pst_hex_parse(token.data, page->after, token.len / 2))
        return s3_because(page->s, S3_InvalidArgument, "the continuation token is none of ours");
    page->after_bytes = token.len / 2;
    pst_assert(page->after_bytes <= sizeof(page->after));
    return S3_OK;
}

static enum s3_code page_after(struct page *page)
{
    const struct s3_target *target = &page->s->target;
    struct pst_bytes after = s3_param(target, page->v2 ? "start-after" : "marker");

    if (page->v2 && s3_has_param(target, "continuation-token"))
        return page_token(page, s3_param(target, "continuation-token"));
    if (after.len > sizeof(page->after))
        return S3_KeyTooLongError;
    if (after.len)
        memcpy(page->after, after.data, after.len);
    page->after_bytes = after.len;
    return S3_OK;
}

static enum s3_code page_open(struct page *page)
{
    const struct s3_target *target = &page->s->target;
    struct pst_bytes type = s3_param(target, "list-type"), max = s3_param(target, "max-keys");
    struct pst_bytes encoding = s3_param(target, "encoding-type");

    pst_assert(!page->items);
    pst_assert(!page->text);
    page->v2 = type.data != NULL;
    page->max_keys = S3_LIST_MAX;
    if (page->v2 && !s3_text_is(type, "2"))
        return S3_InvalidArgument;
    if (max.len && !pst_http_number(max, &page->max_keys))
        return s3_because(page->s, S3_InvalidArgument, "max-keys is no number");
    page->max_keys = pst_min(page->max_keys, S3_LIST_MAX);
    pst_assert(page->max_keys <= S3_LIST_MAX);
    page->encoded = s3_text_is(encoding, "url");
    if (encoding.len && !page->encoded)
        return s3_because(page->s, S3_InvalidArgument, "the only encoding-type is url");
    page->prefix = s3_param(target, "prefix");
    page->delimiter = s3_param(target, "delimiter");
    page->text_room = PAGE_TEXT_BYTES + PST_KEY_BYTES_MAX;
    page->text = malloc(page->text_room);
    page->items = calloc(S3_LIST_MAX, sizeof(*page->items));
    return page->text && page->items ? page_after(page) : S3_SlowDown;
}

/* ---- what there is ---- */

/* What a key is listed as: itself, or up to the delimiter behind the prefix. */
static struct pst_bytes page_rolled(const struct page *page, struct pst_bytes key, bool *is_prefix)
{
    const char *rest = (const char *)key.data + page->prefix.len;
    const char *found = page->delimiter.len ? memmem(rest, key.len - page->prefix.len, page->delimiter.data,
                                                     page->delimiter.len)
                                            : NULL;

    pst_assert(key.len >= page->prefix.len);
    pst_assert(page->delimiter.len == 0 || !found || found >= rest);
    *is_prefix = found != NULL;
    if (found)
        key.len = (size_t)(found - (const char *)key.data) + page->delimiter.len;
    return key;
}

/* Return: false the page is full. */
static bool page_add(struct page *page, struct pst_bytes name, bool is_prefix,
                     const struct penstock_entry *entry)
{
    pst_assert(page->count <= page->max_keys);
    pst_assert(page->max_keys <= S3_LIST_MAX);
    if (page->count == page->max_keys || page->text_bytes > PAGE_TEXT_BYTES) {
        page->truncated = true;
        return false;
    }
    pst_assert(page->text_bytes + name.len <= page->text_room);
    memcpy(page->text + page->text_bytes, name.data, name.len);
    page->items[page->count++] = (struct item){.name = {page->text + page->text_bytes, name.len},
                                               .is_prefix = is_prefix,
                                               .bytes = entry->value_bytes,
                                               .generation = entry->generation};
    page->text_bytes += name.len;
    pst_assert(page->text_bytes <= page->text_room);
    return true;
}

static bool is_behind(const struct page *page, struct pst_bytes name)
{
    return page->after_bytes == 0 ||
           pst_bytes_compare(name, (struct pst_bytes){page->after, page->after_bytes}) > 0;
}

/* A pass of the store's listing. */
struct pass {
    char start[PST_KEY_BYTES_MAX + 1];
    size_t start_bytes;
    bool again; /* from @start on */
};

/* The first key behind all that begin with "BUCKET/" and @run. Return: false there is none. */
static bool pass_begin_behind(struct pass *pass, struct pst_bytes bucket, struct pst_bytes run)
{
    pst_assert(bucket.len + 1 + run.len <= PST_KEY_BYTES_MAX);
    memcpy(pass->start, bucket.data, bucket.len);
    pass->start[bucket.len] = '/';
    memcpy(pass->start + bucket.len + 1, run.data, run.len);
    pass->start_bytes = bucket.len + 1 + run.len;
    pst_assert(pass->start_bytes < sizeof(pass->start));
    while (pass->start_bytes > bucket.len + 1) {
        uint8_t *last = (uint8_t *)pass->start + pass->start_bytes - 1;

        if (*last < UINT8_MAX) {
            ++*last;
            return true;
        }
        pass->start_bytes--;
    }
    return false;
}

/* Items of one pass, which ends at the page's end, or where a long run of keys is better jumped over.
 * Return: what penstock_list_next() said last. */
static int page_pass(struct page *page, struct penstock_list *list, struct pass *pass)
{
    struct pst_bytes bucket = s3_bucket_of(s3_name_of(page->s)), run = {NULL, 0};
    struct penstock_entry entry;
    uint32_t skipped = 0;
    int r;

    pass->again = false;
    while ((r = penstock_list_next(list, &entry)) > 0) {
        struct pst_bytes key = {(const char *)entry.key + bucket.len + 1, entry.key_bytes - bucket.len - 1};
        bool is_prefix;
        struct pst_bytes name;

        pst_assert(entry.key_bytes > bucket.len);
        if (key.len == 0) /* "BUCKET/", which S3 cannot name */
            continue;
        name = page_rolled(page, key, &is_prefix);
        if (is_prefix && (pst_bytes_equal(name, run) || !is_behind(page, name))) {
            if (++skipped > SKIPS_MAX) {
                pass->again = pass_begin_behind(pass, bucket, name);
                return 0;
            }
            continue;
        }
        if (!is_behind(page, name))
            continue;
        skipped = 0;
        if (!page_add(page, name, is_prefix, &entry))
            return 0;
        if (is_prefix)
            run = page->items[page->count - 1].name;
    }
    return r;
}

static enum s3_code page_fill(struct page *page)
{
    struct pst_bytes bucket = s3_bucket_of(s3_name_of(page->s));
    char prefix[2 * PST_KEY_BYTES_MAX];
    size_t prefix_bytes = bucket.len + 1 + page->prefix.len, after_bytes;
    struct pass pass = {.again = page->max_keys > 0};
    int r = 0;

    if (prefix_bytes > PST_KEY_BYTES_MAX)
        return S3_OK; /* no key is so long */
    /* One that no key is as long as is cut: what lies between is not behind it. */
    after_bytes = pst_min(page->after_bytes, PST_KEY_BYTES_MAX - bucket.len - 1);
    pst_assert(bucket.len > 0);
    memcpy(prefix, bucket.data, bucket.len);
    prefix[bucket.len] = '/';
    if (page->prefix.len)
        memcpy(prefix + bucket.len + 1, page->prefix.data, page->prefix.len);
    memcpy(pass.start, bucket.data, bucket.len);
    pass.start[bucket.len] = '/';
    memcpy(pass.start + bucket.len + 1, page->after, after_bytes);
    pass.start_bytes = bucket.len + 1 + after_bytes;
    while (r == 0 && pass.again) {
        const struct penstock_list_options options = {.size = sizeof(options),
                                                      .prefix = prefix,
                                                      .prefix_bytes = prefix_bytes,
                                                      .start = pass.start,
                                                      .start_bytes = pass.start_bytes};
        struct penstock_list *list;

        r = penstock_list_open(page->s->s3->store, &options, &list);
        if (r == 0) {
            r = page_pass(page, list, &pass);
            penstock_list_close(list);
        }
    }
    return s3_result_of(page->s, r);
}

/* ---- when they were written ---- */

struct stats {
    struct penstock_op ops[STATS_AT_ONCE];
    struct s3_attrs attrs[STATS_AT_ONCE];
    struct item *items[STATS_AT_ONCE];
    char keys[STATS_AT_ONCE][PST_KEY_BYTES_MAX];
    size_t count;
};

static void stats_add(struct stats *stats, struct pst_bytes bucket, struct item *item)
{
    struct penstock_op *op = &stats->ops[stats->count];
    char *key = stats->keys[stats->count];

    pst_assert(stats->count < STATS_AT_ONCE);
    pst_assert(bucket.len + 1 + item->name.len <= sizeof(stats->keys[0]));
    memcpy(key, bucket.data, bucket.len);
    key[bucket.len] = '/';
    memcpy(key + bucket.len + 1, item->name.data, item->name.len);
    *op = (struct penstock_op){.code = 0};
    penstock_prep(op, PENSTOCK_STAT_KEY, key, bucket.len + 1 + item->name.len);
    op->attrs = stats->attrs[stats->count].data;
    op->attr_bytes = S3_ATTRS_BYTES_MAX;
    stats->items[stats->count++] = item;
}

/* What has been written since is told as it is now; what is gone, as it was. */
static enum s3_code stats_ask(struct s3_session *s, struct stats *stats)
{
    pst_assert(stats->count <= STATS_AT_ONCE);
    if (stats->count && penstock_batch(s->s3->store, stats->ops, stats->count) < 0)
        return S3_ServiceUnavailable;
    for (size_t i = 0; i < stats->count; i++) {
        const struct penstock_op *op = &stats->ops[i];

        if (op->result == PENSTOCK_MISS)
            continue;
        if (op->result != 0)
            return s3_result(s, op);
        stats->attrs[i].bytes = (uint16_t)pst_min(op->attr_bytes, S3_ATTRS_BYTES_MAX);
        s3_attrs_take(&stats->attrs[i]);
        stats->items[i]->bytes = op->value_bytes;
        stats->items[i]->generation = op->generation;
        stats->items[i]->written_ms = stats->attrs[i].written_ms;
    }
    stats->count = 0;
    return S3_OK;
}

static enum s3_code page_date(struct page *page)
{
    pst_cleanup_free struct stats *stats = malloc(sizeof(*stats));
    struct pst_bytes bucket = s3_bucket_of(s3_name_of(page->s));
    enum s3_code code = stats ? S3_OK : S3_SlowDown;

    if (!stats)
        return code;
    pst_assert(page->count <= S3_LIST_MAX);
    stats->count = 0;
    for (size_t i = 0; i < page->count && code == S3_OK; i++) {
        if (!page->items[i].is_prefix)
            stats_add(stats, bucket, &page->items[i]);
        if (stats->count == STATS_AT_ONCE)
            code = stats_ask(page->s, stats);
    }
    return code == S3_OK ? stats_ask(page->s, stats) : code;
}

/* ---- the document ---- */

static void page_leaf(const struct page *page, struct s3_xml *xml, const char *leaf, struct pst_bytes text)
{
    char buf[3 * PST_KEY_BYTES_MAX + 1];
    int n = page->encoded ? pst_percent_encode(text, buf, sizeof(buf)) : -ENOSPC;

    if (n >= 0)
        text = (struct pst_bytes){buf, (size_t)n};
    s3_xml_leaf(xml, leaf, text);
}

static void page_contents(const struct page *page, struct s3_xml *xml, const struct item *item)
{
    char etag[S3_ETAG_BYTES], time[S3_TIME_TEXT_BYTES];

    pst_assert(!item->is_prefix);
    s3_etag_print(item->generation, etag);
    s3_time_iso(item->written_ms ? item->written_ms : s3_now_ms(), time);
    s3_xml_open(xml, "Contents");
    page_leaf(page, xml, "Key", item->name);
    s3_xml_text(xml, "LastModified", time);
    s3_xml_text(xml, "ETag", etag);
    s3_xml_number(xml, "Size", item->bytes);
    s3_xml_text(xml, "StorageClass", "STANDARD");
    s3_xml_close(xml, "Contents");
}

static void page_where(const struct page *page, struct s3_xml *xml)
{
    const struct s3_target *target = &page->s->target;
    const struct item *last = page->count ? &page->items[page->count - 1] : NULL;
    char token[TOKEN_BYTES + 1];

    pst_assert(!last || last->name.len <= PST_KEY_BYTES_MAX);
    if (!page->v2) {
        page_leaf(page, xml, "Marker", s3_param(target, "marker"));
        if (page->truncated && last)
            page_leaf(page, xml, "NextMarker", last->name);
        return;
    }
    s3_xml_number(xml, "KeyCount", page->count);
    if (s3_has_param(target, "start-after"))
        page_leaf(page, xml, "StartAfter", s3_param(target, "start-after"));
    if (s3_has_param(target, "continuation-token"))
        s3_xml_leaf(xml, "ContinuationToken", s3_param(target, "continuation-token"));
    if (page->truncated && last) {
        pst_hex_print(last->name.data, last->name.len, token);
        s3_xml_text(xml, "NextContinuationToken", token);
    }
}

static enum s3_code page_answer(struct page *page)
{
    struct s3_xml xml;

    pst_assert(page->count <= page->max_keys);
    pst_assert(!page->truncated || page->max_keys == 0 || page->count > 0);
    s3_xml_begin(&xml, "ListBucketResult");
    s3_xml_leaf(&xml, "Name", s3_bucket_of(s3_name_of(page->s)));
    page_leaf(page, &xml, "Prefix", page->prefix);
    if (page->delimiter.len)
        page_leaf(page, &xml, "Delimiter", page->delimiter);
    s3_xml_number(&xml, "MaxKeys", page->max_keys);
    if (page->encoded)
        s3_xml_text(&xml, "EncodingType", "url");
    s3_xml_text(&xml, "IsTruncated", page->truncated && page->count ? "true" : "false");
    page_where(page, &xml);
    for (size_t i = 0; i < page->count; i++)
        if (!page->items[i].is_prefix)
            page_contents(page, &xml, &page->items[i]);
    for (size_t i = 0; i < page->count; i++) {
        if (!page->items[i].is_prefix)
            continue;
        s3_xml_open(&xml, "CommonPrefixes");
        page_leaf(page, &xml, "Prefix", page->items[i].name);
        s3_xml_close(&xml, "CommonPrefixes");
    }
    return s3_send_xml(page->s, &xml, "ListBucketResult");
}

enum s3_code s3_list_objects(struct s3_session *s)
{
    struct page page = {.s = s};
    enum s3_code code = page_open(&page);

    if (code == S3_OK)
        code = page_fill(&page);
    if (code == S3_OK && page.count == 0)
        code = s3_bucket_exists(s);
    if (code == S3_OK)
        code = page_date(&page);
    if (code == S3_OK)
        code = page_answer(&page);
    free(page.items);
    free(page.text);
    return code;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bucket.c: buckets, which are the first parts of keys. A bucket is there if a key has it, or if somebody has
 * created it: that is noted by an empty value ".s3/buckets/BUCKET". So a put needs no bucket before it.
 */
#include "gateway/s3/s3_priv.h"

#include "gateway/s3/wire/time_priv.h"

#include <stdio.h>

enum {
    MARKER_BYTES = sizeof(S3_BUCKETS_PREFIX) + S3_BUCKET_BYTES_MAX,
    BUCKETS_MAX = 2000,       /* that are listed */
    SCAN_KEYS_MAX = 64 << 10, /* without a slash, that are looked at for them */
};

static struct pst_bytes bucket_marker(const struct s3_session *s, char marker[MARKER_BYTES])
{
    struct pst_bytes bucket = s3_bucket_of(s3_name_of(s));
    int n = snprintf(marker, MARKER_BYTES, "%s%.*s", S3_BUCKETS_PREFIX, (int)bucket.len,
                     (const char *)bucket.data);

    pst_assert(n > 0 && n < MARKER_BYTES);
    pst_assert(s3_name_of(s)->bucket_bytes <= S3_BUCKET_BYTES_MAX);
    return (struct pst_bytes){marker, (size_t)n};
}

/* Return: 1 it has, 0, -errno. */
static int bucket_has_keys(struct s3_session *s)
{
    struct pst_bytes bucket = s3_bucket_of(s3_name_of(s));
    char prefix[S3_BUCKET_BYTES_MAX + 2];
    int n = snprintf(prefix, sizeof(prefix), "%.*s/", (int)bucket.len, (const char *)bucket.data);
    const struct penstock_list_options options = {
        .size = sizeof(options), .prefix = prefix, .prefix_bytes = (size_t)n};
    struct penstock_list *list;
    struct penstock_entry entry;
    int r;

    pst_assert(n > 0);
    pst_assert((size_t)n < sizeof(prefix));
    r = penstock_list_open(s->s3->store, &options, &list);
    if (r != 0)
        return r;
    pst_assert(list);
    r = penstock_list_next(list, &entry);
    penstock_list_close(list);
    return r;
}

enum s3_code s3_bucket_exists(struct s3_session *s)
{
    char marker[MARKER_BYTES];
    struct s3_object object;
    enum s3_code code = s3_stat(s, bucket_marker(s, marker), &object);
    int r;

    if (code != S3_NoSuchKey)
        return code;
    r = bucket_has_keys(s);
    if (r > 0)
        return S3_OK;
    return r < 0 ? s3_result_of(s, r) : S3_NoSuchBucket;
}

enum s3_code s3_head_bucket(struct s3_session *s)
{
    enum s3_code code = s3_bucket_exists(s);

    if (code != S3_OK)
        return code;
    s3_begin(s, 200);
    s3_field(s, "x-amz-bucket-region", "us-east-1"); /* some clients ask nothing before they know it */
    return s3_send_head(s, 0);
}

enum s3_code s3_create_bucket(struct s3_session *s)
{
    char marker[MARKER_BYTES];
    struct s3_attrs attrs = {.written_ms = 0};
    struct s3_sink sink = {.key = bucket_marker(s, marker), .attrs = &attrs, .conditional = true};
    uint64_t generation;
    enum s3_code code = s3_bucket_exists(s);

    if (code != S3_NoSuchBucket)
        return code == S3_OK ? S3_BucketAlreadyOwnedByYou : code;
    s3_attrs_stamp(&attrs, s3_now_ms());
    code = s3_sink_put(s, &sink, "", 0, &generation);
    if (code == S3_PreconditionFailed)
        return S3_BucketAlreadyOwnedByYou;
    return code == S3_OK ? s3_send_status(s, 200) : code;
}

enum s3_code s3_delete_bucket(struct s3_session *s)
{
    char text[MARKER_BYTES];
    struct pst_bytes marker = bucket_marker(s, text);
    struct penstock_op op = {0};
    int r = bucket_has_keys(s);

    if (r != 0)
        return r > 0 ? S3_BucketNotEmpty : s3_result_of(s, r);
    pst_assert(marker.len > sizeof(S3_BUCKETS_PREFIX) - 1);
    penstock_prep(&op, PENSTOCK_DELETE, marker.data, marker.len);
    penstock_batch(s->s3->store, &op, 1);
    if (op.result == PENSTOCK_MISS)
        return S3_NoSuchBucket;
    return op.result == 0 ? s3_send_status(s, 204) : s3_result(s, &op);
}

/* Of a bucket that is there, a document that says nothing. */
static enum s3_code bucket_says_nothing(struct s3_session *s, const char *root)
{
    struct s3_xml xml;
    enum s3_code code = s3_bucket_exists(s);

    if (code != S3_OK)
        return code;
    s3_xml_begin(&xml, root);
    return s3_send_xml(s, &xml, root);
}

/* Any region will do: that of us-east-1 has no name here. */
enum s3_code s3_bucket_location(struct s3_session *s)
{
    return bucket_says_nothing(s, "LocationConstraint");
}

/* Never enabled. */
enum s3_code s3_bucket_versioning(struct s3_session *s)
{
    return bucket_says_nothing(s, "VersioningConfiguration");
}

/* ---- all of them ---- */

struct bucket {
    char name[S3_BUCKET_BYTES_MAX + 1];
    uint64_t written_ms;
};

struct buckets {
    struct bucket *items; /* with some twice, until they are sorted */
    size_t count;
};

static void buckets_add(struct buckets *buckets, struct pst_bytes name)
{
    struct bucket *bucket = &buckets->items[buckets->count];

    if (buckets->count == BUCKETS_MAX || !s3_is_bucket(name))
        return;
    pst_assert(name.len < sizeof(bucket->name));
    *bucket = (struct bucket){.written_ms = 0};
    memcpy(bucket->name, name.data, name.len);
    buckets->count++;
    pst_assert(buckets->count <= BUCKETS_MAX);
}

static int buckets_created(struct s3_session *s, struct buckets *buckets)
{
    size_t prefix_bytes = sizeof(S3_BUCKETS_PREFIX) - 1;
    const struct penstock_list_options options = {
        .size = sizeof(options), .prefix = S3_BUCKETS_PREFIX, .prefix_bytes = prefix_bytes};
    struct penstock_list *list;
    struct penstock_entry entry;
    int r = penstock_list_open(s->s3->store, &options, &list);

    if (r != 0)
        return r;
    while (buckets->count < BUCKETS_MAX / 2 && (r = penstock_list_next(list, &entry)) > 0)
        buckets_add(buckets, (struct pst_bytes){(const char *)entry.key + prefix_bytes,
                                                entry.key_bytes - prefix_bytes});
    penstock_list_close(list);
    return r < 0 ? r : 0;
}

/* Goes on from @start to the end of a run of keys with one bucket, which it adds, and makes the place behind
 * it *@start. Return: 1 there may be more, 0, -errno. */
static int buckets_step(struct s3_session *s, struct buckets *buckets, char start[PST_KEY_BYTES_MAX + 1],
                        size_t *start_bytes, uint32_t *looked_at)
{
    const struct penstock_list_options options = {
        .size = sizeof(options), .start = start, .start_bytes = *start_bytes};
    struct penstock_list *list;
    struct penstock_entry entry;
    const char *slash = NULL;
    int r = penstock_list_open(s->s3->store, &options, &list);

    pst_assert(*start_bytes <= PST_KEY_BYTES_MAX);
    if (r != 0)
        return r;
    while (!slash && *looked_at < SCAN_KEYS_MAX && (r = penstock_list_next(list, &entry)) > 0) {
        slash = memchr(entry.key, '/', entry.key_bytes);
        ++*looked_at;
    }
    if (r > 0 && slash) {
        struct pst_bytes name = {entry.key, (size_t)(slash - (const char *)entry.key)};

        buckets_add(buckets, name);
        pst_assert(name.len < PST_KEY_BYTES_MAX);
        memcpy(start, name.data, name.len);
        start[name.len] = '/' + 1;
        *start_bytes = name.len + 1;
    }
    penstock_list_close(list);
    return r > 0 && slash && buckets->count < BUCKETS_MAX ? 1 : (r < 0 ? r : 0);
}

static int bucket_compare(const void *a, const void *b)
{
    return strcmp(((const struct bucket *)a)->name, ((const struct bucket *)b)->name);
}

static void buckets_sort(struct buckets *buckets)
{
    size_t kept = 0;

    pst_assert(buckets->count <= BUCKETS_MAX);
    qsort(buckets->items, buckets->count, sizeof(buckets->items[0]), bucket_compare);
    for (size_t i = 0; i < buckets->count; i++)
        if (kept == 0 || strcmp(buckets->items[kept - 1].name, buckets->items[i].name) != 0)
            buckets->items[kept++] = buckets->items[i];
    pst_assert(kept <= buckets->count);
    buckets->count = kept;
}

/* When it was created, as its marker has it. */
static uint64_t bucket_written_ms(struct s3_session *s, const char *name)
{
    char marker[MARKER_BYTES];
    struct s3_object object;
    int n = snprintf(marker, sizeof(marker), "%s%s", S3_BUCKETS_PREFIX, name);

    pst_assert(n > 0 && (size_t)n < sizeof(marker));
    if (s3_stat(s, (struct pst_bytes){marker, (size_t)n}, &object) != S3_OK || !object.attrs.written_ms)
        return s3_now_ms();
    return object.attrs.written_ms;
}

static enum s3_code buckets_answer(struct s3_session *s, const struct buckets *buckets)
{
    char time[S3_TIME_TEXT_BYTES];
    struct s3_xml xml;

    s3_xml_begin(&xml, "ListAllMyBucketsResult");
    s3_xml_open(&xml, "Owner");
    s3_xml_text(&xml, "ID", s->who ? s->who->id : "anonymous");
    s3_xml_close(&xml, "Owner");
    s3_xml_open(&xml, "Buckets");
    for (size_t i = 0; i < buckets->count; i++) {
        s3_time_iso(bucket_written_ms(s, buckets->items[i].name), time);
        s3_xml_open(&xml, "Bucket");
        s3_xml_text(&xml, "Name", buckets->items[i].name);
        s3_xml_text(&xml, "CreationDate", time);
        s3_xml_close(&xml, "Bucket");
    }
    s3_xml_close(&xml, "Buckets");
    s->why[0] = 0;
    return s3_send_xml(s, &xml, "ListAllMyBucketsResult");
}

enum s3_code s3_list_buckets(struct s3_session *s)
{
    struct buckets buckets = {.items = malloc(BUCKETS_MAX * sizeof(struct bucket))};
    char start[PST_KEY_BYTES_MAX + 1];
    uint32_t looked_at = 0;
    size_t start_bytes = 0;
    enum s3_code code;
    int r;

    if (!buckets.items)
        return S3_SlowDown;
    r = buckets_created(s, &buckets);
    if (r == 0)
        r = 1;
    while (r > 0)
        r = buckets_step(s, &buckets, start, &start_bytes, &looked_at);
    code = s3_result_of(s, r);
    if (code == S3_OK) {
        buckets_sort(&buckets);
        code = buckets_answer(s, &buckets);
    }
    free(buckets.items);
    return code;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* remove.c: DeleteObjects: many keys by one document. */
#include "gateway/s3/s3_priv.h"

struct removal {
    struct penstock_op op;
    struct s3_name name;
    enum s3_code code; /* why it is not even tried */
};

struct removals {
    struct s3_session *s;
    struct removal *items;
    size_t count, room;
};

enum s3_code s3_read_document(struct s3_session *s, char **text, size_t *bytes)
{
    uint64_t room = s->body.bytes;
    enum s3_code code;

    if (room == S3_BYTES_UNKNOWN)
        return S3_MissingContentLength;
    if (room > S3_DOCUMENT_BYTES)
        return s3_because(s, S3_MalformedXML, "a document has 4 MiB at most");
    *text = malloc(room + 1);
    if (!*text)
        return S3_SlowDown;
    code = s3_body_read(&s->body, *text, room + 1, bytes);
    return code == S3_OK && *bytes != room ? S3_IncompleteBody : code;
}

/* Makes room for one more; nothing else points into them yet. */
static struct removal *removal_add(struct removals *removals)
{
    size_t room = removals->room ? 2 * removals->room : 16;
    struct removal *items;

    pst_assert(removals->count <= removals->room);
    if (removals->count == removals->room) {
        items = realloc(removals->items, room * sizeof(*items));
        if (!items)
            return NULL;
        removals->items = items;
        removals->room = room;
    }
    return &removals->items[removals->count++];
}

static bool removal_came(void *ctx, const struct pst_bytes leaves[S3_XML_LEAVES_MAX])
{
    struct removals *removals = ctx;
    struct pst_bytes bucket = s3_bucket_of(s3_name_of(removals->s)), key = leaves[0];
    struct removal *item = key.len ? removal_add(removals) : NULL;

    if (!item)
        return false;
    *item = (struct removal){.code = S3_OK};
    item->name.bucket_bytes = (uint32_t)bucket.len;
    memcpy(item->name.text, bucket.data, bucket.len);
    item->name.text[bucket.len] = '/';
    if (bucket.len + 1 + key.len > PST_KEY_BYTES_MAX) {
        item->code = S3_KeyTooLongError;
        key.len = PST_KEY_BYTES_MAX - bucket.len - 1; /* for the answer */
    }
    memcpy(item->name.text + bucket.len + 1, key.data, key.len);
    item->name.bytes = (uint32_t)(bucket.len + 1 + key.len);
    pst_assert(item->name.bytes <= PST_KEY_BYTES_MAX);
    pst_assert(item->name.bucket_bytes < item->name.bytes);
    if (leaves[1].len) {
        item->op.flags = PENSTOCK_IF_GENERATION;
        item->op.if_generation = s3_etag_parse(leaves[1]);
        if (item->op.if_generation == 0)
            item->code = S3_PreconditionFailed;
    }
    if ((leaves[2].len && !s3_text_is(leaves[2], "null")) || leaves[3].len || leaves[4].len)
        item->code = S3_NotImplemented; /* the object is not what this asks for, or nobody looked */
    return true;
}

/* Those that may be, as one batch. */
static enum s3_code removals_do(struct removals *removals)
{
    struct s3_session *s = removals->s;
    struct penstock_op *ops = calloc(removals->count + 1, sizeof(*ops));
    size_t count = 0;
    int r = 0;

    if (!ops)
        return S3_SlowDown;
    pst_assert(removals->count <= S3_LIST_MAX);
    for (size_t i = 0; i < removals->count; i++) {
        struct removal *item = &removals->items[i];
        struct pst_bytes key = s3_store_key(&item->name);
        uint32_t flags = item->op.flags;

        if (item->code == S3_OK)
            item->code = s3_may(s, S3_MAY_WRITE, key);
        if (item->code != S3_OK)
            continue;
        ops[count] = item->op;
        penstock_prep(&ops[count], PENSTOCK_DELETE, key.data, key.len);
        ops[count].flags = flags;
        ops[count++].user = item;
    }
    pst_assert(count <= removals->count);
    if (count)
        r = penstock_batch(s->s3->store, ops, count);
    for (size_t i = 0; i < count && r >= 0; i++)
        if (ops[i].result != PENSTOCK_MISS)
            ((struct removal *)ops[i].user)->code = s3_result(s, &ops[i]);
    free(ops);
    return r < 0 ? s3_result_of(s, r) : S3_OK;
}

static enum s3_code removals_answer(const struct removals *removals, bool quiet)
{
    struct s3_xml xml;

    pst_assert(removals->count <= removals->room);
    s3_xml_begin(&xml, "DeleteResult");
    for (size_t i = 0; i < removals->count; i++) {
        const struct removal *item = &removals->items[i];
        bool done = item->code == S3_OK;

        if (done && quiet)
            continue;
        s3_xml_open(&xml, done ? "Deleted" : "Error");
        s3_xml_leaf(&xml, "Key", s3_key_of(&item->name));
        if (!done) {
            s3_xml_text(&xml, "Code", s3_error_of(item->code)->code);
            s3_xml_text(&xml, "Message", s3_error_of(item->code)->text);
        }
        s3_xml_close(&xml, done ? "Deleted" : "Error");
    }
    return s3_send_xml(removals->s, &xml, "DeleteResult");
}

enum s3_code s3_delete_objects(struct s3_session *s)
{
    static const struct s3_xml_form form = {
        .root = "Delete",
        .item = "Object",
        .leaves = {"Key", "ETag", "VersionId", "Size", "LastModifiedTime"},
        .flag = "Quiet",
        .items_max = S3_LIST_MAX,
        .item_came = removal_came};
    struct removals removals = {.s = s};
    pst_cleanup_free char *text = NULL;
    size_t bytes = 0;
    bool quiet = false;
    enum s3_code code = s3_read_document(s, &text, &bytes);

    if (code == S3_OK)
        code = s3_xml_read((struct pst_bytes){text, bytes}, &form, &removals, &quiet);
    if (code == S3_OK)
        code = removals_do(&removals);
    if (code == S3_OK)
        code = removals_answer(&removals, quiet);
    free(removals.items);
    return code;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* read_xml.c: documents of requests, by expat. A document type ends the reading: so there are no entities but
 * XML's own five. */
#include "gateway/s3/wire/head_priv.h"
#include "gateway/s3/wire/xml_priv.h"

#include <expat.h>

#define READER_MAGIC 0x73337872u

struct reader {
    uint32_t magic;
    const struct s3_xml_form *form;
    void *ctx;
    XML_Parser parser;
    bool wrong, flag;
    int depth;    /* elements that are open */
    bool in_item; /* the second of them is one */
    int leaf;     /* that is open: its place, -1: none */
    bool in_flag;
    uint32_t items;
    size_t bytes; /* of @text */
    struct {
        size_t at, bytes;
    } leaves[S3_XML_LEAVES_MAX];
    char text[S3_XML_LEAVES_MAX * S3_XML_LEAF_BYTES_MAX]; /* of the present item or flag */
};

static struct reader *reader_cast(void *arg)
{
    struct reader *reader = arg;

    pst_assert(reader && reader->magic == READER_MAGIC);
    return reader;
}

static void reader_fail(struct reader *r)
{
    r->wrong = true;
    XML_StopParser(r->parser, XML_FALSE);
}

/* Without a prefix for a namespace. */
static bool reader_is(const char *name, const char *wanted)
{
    const char *colon = strrchr(name, ':');

    return wanted && strcmp(colon ? colon + 1 : name, wanted) == 0;
}

static void reader_open(void *arg, const XML_Char *name, const XML_Char **attributes)
{
    struct reader *r = reader_cast(arg);

    (void)attributes;
    r->depth++;
    if (r->depth > S3_XML_DEPTH_MAX || (r->depth == 1 && !reader_is(name, r->form->root))) {
        reader_fail(r);
    } else if (r->depth == 2) {
        r->in_item = reader_is(name, r->form->item);
        r->in_flag = reader_is(name, r->form->flag);
        r->bytes = 0;
        memset(r->leaves, 0, sizeof(r->leaves));
    } else if (r->depth == 3 && r->in_item) {
        for (int i = 0; i < S3_XML_LEAVES_MAX; i++) {
            if (!reader_is(name, r->form->leaves[i]))
                continue;
            if (r->leaves[i].bytes) /* twice */
                reader_fail(r);
            r->leaf = i;
            r->leaves[i].at = r->bytes;
        }
    }
}

static void reader_item(struct reader *r)
{
    struct pst_bytes leaves[S3_XML_LEAVES_MAX];

    pst_assert(r->in_item);
    pst_assert(r->depth == 2);
    for (int i = 0; i < S3_XML_LEAVES_MAX; i++)
        leaves[i] = (struct pst_bytes){r->text + r->leaves[i].at, r->leaves[i].bytes};
    if (++r->items > r->form->items_max || !r->form->item_came(r->ctx, leaves))
        reader_fail(r);
    r->in_item = false;
}

static void reader_close(void *arg, const XML_Char *name)
{
    struct reader *r = reader_cast(arg);

    (void)name;
    pst_assert(r->depth > 0);
    if (r->depth == 3)
        r->leaf = -1;
    if (r->depth == 2 && r->in_item)
        reader_item(r);
    if (r->depth == 2 && r->in_flag)
        r->flag = pst_http_is(pst_http_trim((struct pst_bytes){r->text, r->bytes}), "true");
    r->in_flag = r->in_flag && r->depth > 2;
    r->depth--;
}

static void reader_text(void *arg, const XML_Char *text, int bytes)
{
    struct reader *r = reader_cast(arg);
    bool wanted = (r->depth == 3 && r->leaf >= 0) || (r->depth == 2 && r->in_flag);

    if (!wanted || bytes <= 0)
        return;
    if ((size_t)bytes > sizeof(r->text) - r->bytes) {
        reader_fail(r);
        return;
    }
    memcpy(r->text + r->bytes, text, (size_t)bytes);
    r->bytes += (size_t)bytes;
    pst_assert(r->bytes <= sizeof(r->text));
    if (r->leaf >= 0)
        r->leaves[r->leaf].bytes += (size_t)bytes;
}

static void reader_doctype(void *arg, const XML_Char *name, const XML_Char *system_id,
                           const XML_Char *public_id, int internal)
{
    (void)name;
    (void)system_id;
    (void)public_id;
    (void)internal;
    reader_fail(reader_cast(arg));
}

enum s3_code s3_xml_read(struct pst_bytes text, const struct s3_xml_form *form, void *ctx, bool *flag)
{
    struct reader *r = calloc(1, sizeof(*r));
    bool sound = false;

    pst_assert(text.len <= INT32_MAX);
    pst_assert(form->root);
    pst_assert(form->item);
    pst_assert(form->item_came);
    if (r)
        *r = (struct reader){.magic = READER_MAGIC, .form = form, .ctx = ctx, .leaf = -1};
    if (r)
        r->parser = XML_ParserCreate(NULL);
    if (r && r->parser) {
        XML_SetUserData(r->parser, r);
        XML_SetElementHandler(r->parser, reader_open, reader_close);
        XML_SetCharacterDataHandler(r->parser, reader_text);
        XML_SetStartDoctypeDeclHandler(r->parser, reader_doctype);
        sound = XML_Parse(r->parser, text.data, (int)text.len, XML_TRUE) == XML_STATUS_OK && !r->wrong;
        XML_ParserFree(r->parser);
        if (sound && flag)
            *flag = r->flag;
    }
    free(r);
    return sound ? S3_OK : S3_MalformedXML;
}

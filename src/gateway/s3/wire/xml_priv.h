/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xml_priv.h: the documents of S3's answers, written piece by piece, and those of its requests, which are
 * lists of items with a few leaves each. Included by all of s3. One thread at a time.
 */
#ifndef PST_S3_XML_PRIV_H
#define PST_S3_XML_PRIV_H

#include "base/base.h"
#include "gateway/s3/wire/error_priv.h"

enum {
    S3_XML_BYTES_MAX = 32 << 20, /* of an answer: 1,000 keys of 4,096 bytes, encoded */
    S3_XML_LEAVES_MAX = 5,
    S3_XML_LEAF_BYTES_MAX = 4200, /* a key and change */
    S3_XML_DEPTH_MAX = 8,
};

#define S3_XML_NAMESPACE "http://s3.amazonaws.com/doc/2006-03-01/"

/* ---- writing ---- */

struct s3_xml {
    char *text; /* freed by s3_xml_free() */
    size_t bytes, room;
    bool failed; /* too much, or no memory: nothing was added since */
};

/* @root: with the namespace of S3. */
void s3_xml_begin(struct s3_xml *xml, const char *root);
void s3_xml_open(struct s3_xml *xml, const char *name);
void s3_xml_close(struct s3_xml *xml, const char *name);
/* What XML cannot say, it says with U+FFFD. */
void s3_xml_leaf(struct s3_xml *xml, const char *name, struct pst_bytes text);
void s3_xml_text(struct s3_xml *xml, const char *name, const char *text);
void s3_xml_number(struct s3_xml *xml, const char *name, uint64_t number);
void s3_xml_free(struct s3_xml *xml);

/* ---- reading ---- */

/* <root> <item> <leaf>text</leaf>... </item>... <flag>true</flag> </root> */
struct s3_xml_form {
    const char *root, *item;
    const char *leaves[S3_XML_LEAVES_MAX];
    const char *flag; /* NULL: there is none */
    uint32_t items_max;
    /* An item has ended; leaves that were not there are empty. Return: false it is wrong. */
    bool (*item_came)(void *ctx, const struct pst_bytes leaves[S3_XML_LEAVES_MAX]);
};

/* @flag: whether the flag is there and true; NULL is fine. Return: S3_OK or S3_MalformedXML; declarations of
 * a document type, which entities need, are that, too. */
enum s3_code s3_xml_read(struct pst_bytes text, const struct s3_xml_form *form, void *ctx, bool *flag);

#endif

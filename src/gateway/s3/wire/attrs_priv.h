/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attrs_priv.h: what S3 knows of an object beside its bytes, as the attributes of the store's value. They
 * come and go with the value in one step, so they are never those of another one. A value that somebody else
 * wrote has none of ours: the time of its writing is unknown then, and its type the default. Included by all
 * of s3. Pure; any thread.
 *
 *     0        4         12
 *     +--------+---------+----------------------------------------------------------+
 *     | "S3" 0 | ms since| [code u8, of a user's own: name length u8, name,         |
 *     | 1      | 1970 u64|  value length u8, value]...                               |
 *     +--------+---------+----------------------------------------------------------+
 */
#ifndef PST_S3_ATTRS_PRIV_H
#define PST_S3_ATTRS_PRIV_H

#include "gateway/s3/wire/head_priv.h"

enum {
    S3_ATTRS_BYTES_MAX = 256,
    S3_ETAG_BYTES = 24, /* of an ETag with its quotes and a NUL */
};

struct s3_attrs {
    uint64_t written_ms; /* 0: unknown */
    uint16_t bytes;
    uint8_t data[S3_ATTRS_BYTES_MAX]; /* as the store keeps them */
};

/* Those that a PUT's head names. */
enum s3_code s3_attrs_make(const struct s3_head *head, uint64_t now_ms, struct s3_attrs *out);
/* The same under another time. */
void s3_attrs_stamp(struct s3_attrs *attrs, uint64_t now_ms);
/* @attrs->bytes and data were read: finds the time. What is not well formed counts as none. */
void s3_attrs_take(struct s3_attrs *attrs);
/* Goes through them; *@at is 0 at first. A user's own are "x-amz-meta-" and @name. Return: false there are no
 * more. */
bool s3_attrs_next(const struct s3_attrs *attrs, size_t *at, bool *own, struct pst_bytes *name,
                   struct pst_bytes *value);

/* An object's ETag is its generation: no other bytes ever have it. It has a dash, so that no client takes it
 * for an MD5. */
void s3_etag_print(uint64_t generation, char out[S3_ETAG_BYTES]);
/* With quotes or without. Return: 0 it is none of ours. */
uint64_t s3_etag_parse(struct pst_bytes text);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * target_priv.h: what a request is about: a bucket and a key, and the parameters of its query, decoded once.
 * Bucket and key together are the store's key: "BUCKET/KEY". Included by all of s3. Pure; any thread.
 */
#ifndef PST_S3_TARGET_PRIV_H
#define PST_S3_TARGET_PRIV_H

#include "base/limits.h"
#include "gateway/s3/wire/head_priv.h"

enum {
    S3_BUCKET_BYTES_MAX = 255,
    S3_PARAMS_MAX = 64,
};

struct s3_name {
    char text[PST_KEY_BYTES_MAX + 1]; /* "BUCKET/KEY", "BUCKET" or ""; ends with a NUL */
    uint32_t bytes, bucket_bytes;
};

struct s3_param {
    struct pst_bytes name, value;
};

struct s3_target {
    struct s3_name name;
    struct s3_param params[S3_PARAMS_MAX];
    uint32_t param_count;
    char text[S3_HEAD_BYTES_MAX]; /* of the parameters */
};

/* @domain: buckets may come as "BUCKET.DOMAIN" in the Host field; NULL: not. */
enum s3_code s3_target_parse(const struct s3_head *head, const char *domain, struct s3_target *out);
/* A name as x-amz-copy-source has it: still encoded, with a slash in front or none. */
enum s3_code s3_name_parse(struct pst_bytes path, struct s3_name *out);
/* Whether it can be a bucket's name. */
bool s3_is_bucket(struct pst_bytes bucket);
/* The first parameter of that name; .data is NULL if there is none. */
struct pst_bytes s3_param(const struct s3_target *target, const char *name);

static inline bool s3_has_param(const struct s3_target *target, const char *name)
{
    return s3_param(target, name).data != NULL;
}

static inline struct pst_bytes s3_bucket_of(const struct s3_name *name)
{
    return (struct pst_bytes){name->text, name->bucket_bytes};
}

/* Whether it names a key, and not a bucket alone. */
static inline bool s3_has_key(const struct s3_name *name)
{
    return name->bytes > name->bucket_bytes + 1;
}

/* Without the bucket. */
static inline struct pst_bytes s3_key_of(const struct s3_name *name)
{
    pst_assert(s3_has_key(name));
    return (struct pst_bytes){name->text + name->bucket_bytes + 1, name->bytes - name->bucket_bytes - 1};
}

/* The store's key. */
static inline struct pst_bytes s3_store_key(const struct s3_name *name)
{
    return (struct pst_bytes){name->text, name->bytes};
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * head_priv.h: the head of a request of HTTP/1.1, with all its fields, since a signature may be over any of
 * them. Included by all of s3. Pure; any thread. Strict: what a proxy could read in another way is refused.
 */
#ifndef PST_S3_HEAD_PRIV_H
#define PST_S3_HEAD_PRIV_H

#include "base/http.h"
#include "gateway/s3/wire/error_priv.h"

enum {
    S3_HEAD_BYTES_MAX = 32 << 10,
    S3_FIELDS_MAX = 128,
};

struct s3_field {
    struct pst_bytes name, value; /* the value without blanks around it */
};

/* Parts of the text that was parsed. */
struct s3_head {
    struct pst_bytes method, path, query; /* as they were sent */
    struct s3_field fields[S3_FIELDS_MAX];
    uint32_t field_count;
    uint64_t body_bytes; /* 0 without a length */
    bool has_length, chunked, keep_alive, expect_continue;
};

/* @bytes: as pst_http_head_end() said. */
enum s3_code s3_head_parse(const char *text, size_t bytes, struct s3_head *out);
/* The value of the first field of that name, in any case of letters; .data is NULL if there is none. */
struct pst_bytes s3_head_field(const struct s3_head *head, const char *name);

static inline bool s3_text_is(struct pst_bytes text, const char *word)
{
    return pst_bytes_equal(text, pst_bytes_of(word));
}

#endif

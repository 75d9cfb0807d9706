/* SPDX-License-Identifier: Apache-2.0 */
/* target.c: paths and queries. */
#include "gateway/s3/wire/target_priv.h"

#include "base/percent.h"

#include <strings.h>

bool s3_is_bucket(struct pst_bytes bucket)
{
    const char *at = bucket.data;

    if (bucket.len == 0 || bucket.len > S3_BUCKET_BYTES_MAX || at[0] == '.')
        return false;
    for (size_t i = 0; i < bucket.len; i++) {
        bool letter = (at[i] >= '0' && at[i] <= '9') || (at[i] >= 'a' && at[i] <= 'z') ||
                      (at[i] >= 'A' && at[i] <= 'Z');

        if (!letter && at[i] != '-' && at[i] != '_' && at[i] != '.')
            return false;
    }
    return true;
}

/* @out has @bucket_bytes of a bucket and a slash already, or nothing. @path: what follows. */
static enum s3_code name_decode(struct pst_bytes path, struct s3_name *out)
{
    int n = pst_percent_decode(path, false, out->text + out->bytes, PST_KEY_BYTES_MAX - out->bytes);
    const char *slash;

    pst_assert(out->bytes <= PST_KEY_BYTES_MAX);
    if (n < 0)
        return n == -ENOSPC ? S3_KeyTooLongError : S3_InvalidURI;
    out->bytes += (uint32_t)n;
    pst_assert(out->bytes <= PST_KEY_BYTES_MAX);
    out->text[out->bytes] = 0;
    slash = memchr(out->text, '/', out->bytes);
    out->bucket_bytes = slash ? (uint32_t)(slash - out->text) : out->bytes;
    pst_assert(out->bucket_bytes <= out->bytes);
    return out->bytes == 0 || s3_is_bucket(s3_bucket_of(out)) ? S3_OK : S3_InvalidBucketName;
}

static struct pst_bytes path_without_slash(struct pst_bytes path)
{
    if (path.len && *(const char *)path.data == '/')
        return (struct pst_bytes){(const char *)path.data + 1, path.len - 1};
    return path;
}

enum s3_code s3_name_parse(struct pst_bytes path, struct s3_name *out)
{
    out->bytes = out->bucket_bytes = 0;
    return name_decode(path_without_slash(path), out);
}

/* The bucket in front of ".DOMAIN" in a Host field; empty if there is none. */
static struct pst_bytes host_bucket(struct pst_bytes host, const char *domain)
{
    struct pst_bytes name = pst_http_cut(&host, ':');
    size_t tail = domain ? strlen(domain) + 1 : 0;
    const char *end;

    if (!domain || name.len <= tail || name.len - tail > S3_BUCKET_BYTES_MAX)
        return (struct pst_bytes){"", 0};
    end = (const char *)name.data + name.len - tail;
    if (*end != '.' || strncasecmp(end + 1, domain, tail - 1) != 0)
        return (struct pst_bytes){"", 0};
    return (struct pst_bytes){name.data, name.len - tail};
}

static int param_decode(struct pst_bytes raw, struct s3_target *out, size_t *used, struct pst_bytes *text)
{
    int n = pst_percent_decode(raw, true, out->text + *used, sizeof(out->text) - *used);

    pst_assert(*used <= sizeof(out->text));
    if (n < 0)
        return n;
    *text = (struct pst_bytes){out->text + *used, (size_t)n};
    *used += (size_t)n;
    pst_assert(*used <= sizeof(out->text));
    return 0;
}

static enum s3_code query_parse(struct pst_bytes query, struct s3_target *out)
{
    size_t used = 0;

    while (query.len) {
        struct pst_bytes value = pst_http_cut(&query, '&');
        struct pst_bytes name = pst_http_cut(&value, '=');
        struct s3_param *param = &out->params[out->param_count];

        pst_assert(out->param_count <= S3_PARAMS_MAX);
        if (name.len == 0)
            continue;
        if (out->param_count == S3_PARAMS_MAX || param_decode(name, out, &used, &param->name) < 0 ||
            param_decode(value, out, &used, &param->value) < 0)
            return S3_InvalidURI;
        out->param_count++;
    }
    return S3_OK;
}

enum s3_code s3_target_parse(const struct s3_head *head, const char *domain, struct s3_target *out)
{
    struct pst_bytes bucket = host_bucket(s3_head_field(head, "host"), domain);
    struct pst_bytes path = path_without_slash(head->path);
    enum s3_code code;

    out->param_count = out->name.bytes = out->name.bucket_bytes = 0;
    out->name.text[0] = 0;
    if (bucket.len) {
        pst_assert(bucket.len <= S3_BUCKET_BYTES_MAX);
        memcpy(out->name.text, bucket.data, bucket.len);
        out->name.text[bucket.len] = '/';
        out->name.bytes = (uint32_t)bucket.len + 1;
    }
    code = name_decode(path, &out->name);
    return code == S3_OK ? query_parse(head->query, out) : code;
}

struct pst_bytes s3_param(const struct s3_target *target, const char *name)
{
    pst_assert(target->param_count <= S3_PARAMS_MAX);
    for (uint32_t i = 0; i < target->param_count; i++)
        if (s3_text_is(target->params[i].name, name))
            return target->params[i].value;
    return (struct pst_bytes){NULL, 0};
}

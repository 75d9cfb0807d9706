/* SPDX-License-Identifier: Apache-2.0 */
/* auth.c: whose a request is, and what it may. */
#include "gateway/s3/s3_priv.h"

#include "base/site.h"

#include <stdio.h>

enum { FILE_BYTES = 64 << 10 };

/* ---- the file of credentials ---- */

/* Of a key or a secret: a blank ends it. */
static bool is_printed(struct pst_bytes text)
{
    for (size_t i = 0; i < text.len; i++)
        if (((const uint8_t *)text.data)[i] <= ' ' || ((const uint8_t *)text.data)[i] >= 0x7f)
            return false;
    return true;
}

static bool credential_read(struct pst_bytes line, struct s3_credential *out)
{
    struct pst_bytes secret = line, id = pst_http_cut(&secret, ' ');

    secret = pst_http_trim(secret);
    if (id.len == 0 || id.len >= sizeof(out->id) || secret.len == 0 || secret.len >= sizeof(out->secret) ||
        memchr(id.data, '/', id.len) || !is_printed(id) || !is_printed(secret))
        return false;
    pst_assert(!out->id[0]);
    pst_assert(!out->secret[0]);
    memcpy(out->id, id.data, id.len);
    memcpy(out->secret, secret.data, secret.len);
    return true;
}

static int credentials_parse(struct pst_s3 *s3, struct pst_bytes text, char fault[PST_FAULT_BYTES])
{
    for (int number = 1; text.len; number++) {
        struct pst_bytes line = pst_http_trim(pst_http_cut(&text, '\n'));

        if (line.len && ((const char *)line.data)[line.len - 1] == '\r')
            line.len--;
        if (line.len == 0 || *(const char *)line.data == '#')
            continue;
        if (s3->credential_count == S3_CREDENTIALS_MAX ||
            !credential_read(line, &s3->credentials[s3->credential_count])) {
            snprintf(fault, PST_FAULT_BYTES,
                     "s3_credentials: line %d is no access key and secret, or too many", number);
            return -EINVAL;
        }
        s3->credential_count++;
        pst_assert(s3->credential_count <= S3_CREDENTIALS_MAX);
    }
    if (s3->credential_count == 0)
        snprintf(fault, PST_FAULT_BYTES, "s3_credentials: the file has no access key");
    return s3->credential_count ? 0 : -EINVAL;
}

int s3_credentials_read(struct pst_s3 *s3, char fault[PST_FAULT_BYTES])
{
    pst_cleanup_free char *text = malloc(FILE_BYTES);
    int n, r;

    if (!s3->settings->s3_credentials)
        return 0;
    pst_assert(!s3->credentials);
    pst_assert(s3->credential_count == 0);
    s3->credentials = calloc(S3_CREDENTIALS_MAX, sizeof(*s3->credentials));
    if (!text || !s3->credentials) {
        snprintf(fault, PST_FAULT_BYTES, "s3_credentials: out of memory");
        return -ENOMEM;
    }
    n = pst_secret_read(s3->settings->s3_credentials, text, FILE_BYTES, fault);
    r = n < 0 ? n : credentials_parse(s3, (struct pst_bytes){text, (size_t)n}, fault);
    explicit_bzero(text, FILE_BYTES);
    return r;
}

/* ---- requests ---- */

static const struct s3_credential *credential_of(const struct pst_s3 *s3, struct pst_bytes id)
{
    const struct s3_credential *found = NULL;

    pst_assert(s3->credential_count <= S3_CREDENTIALS_MAX);
    for (uint32_t i = 0; i < s3->credential_count; i++)
        if (s3_same(pst_bytes_of(s3->credentials[i].id), id))
            found = &s3->credentials[i];
    return found;
}

/* Nobody is asked who they are, so a browser of this host must not lend its reach to the page of another. */
static bool is_of_another_site(const struct s3_session *s)
{
    const char *domain = s->s3->settings->s3_domain ? s->s3->settings->s3_domain : "";
    struct pst_bytes host = s3_head_field(&s->head, "host"), bucket = s3_bucket_of(s3_name_of(s));
    struct pst_bytes from = s3_head_field(&s->head, "sec-fetch-site");

    /* "BUCKET.DOMAIN" is this door's as DOMAIN is. */
    if (*domain && host.len > bucket.len && bucket.len && memcmp(host.data, bucket.data, bucket.len) == 0 &&
        ((const char *)host.data)[bucket.len] == '.')
        host = (struct pst_bytes){(const char *)host.data + bucket.len + 1, host.len - bucket.len - 1};
    if (from.data && !s3_text_is(from, "none") && !s3_text_is(from, "same-origin"))
        return true; /* images and frames of a page say no Origin */
    return s3_head_field(&s->head, "origin").data || pst_host_is_foreign(host, domain);
}

enum s3_code s3_authenticate(struct s3_session *s)
{
    struct s3_signature signature;
    enum s3_code code;

    pst_assert(s->magic == S3_SESSION_MAGIC);
    s->who = NULL;
    if (s->s3->credential_count == 0)
        return is_of_another_site(s) ? s3_because(s, S3_AccessDenied, "a page of another site asks") : S3_OK;
    code = s3_sign_read(&s->head, &s->target, &signature);
    if (code != S3_OK)
        return code;
    if (signature.kind == S3_UNSIGNED)
        return s3_because(s, S3_AccessDenied, "the request is not signed");
    s->who = credential_of(s->s3, signature.access_key);
    if (!s->who)
        return S3_InvalidAccessKeyId;
    pst_assert(s->who->secret[0]);
    code = s3_sign_check(&signature, &s->head, &s->target, pst_bytes_of(s->who->secret),
                         (int64_t)(s3_now_ms() / 1000), &s->signer);
    if (code == S3_AccessDenied)
        return s3_because(s, code, "Request has expired, is not valid yet, or leaves fields unsigned");
    return code;
}

enum s3_code s3_may(const struct s3_session *s, enum s3_right right, struct pst_bytes key)
{
    pst_assert(s->magic == S3_SESSION_MAGIC);
    pst_assert(key.data || key.len == 0);
    (void)right;
    return s->s3->credential_count && !s->who ? S3_AccessDenied : S3_OK;
}

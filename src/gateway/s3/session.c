/* SPDX-License-Identifier: Apache-2.0 */
/* session.c: a client's connection: requests one after the other, and which operation each one is. */
#include "gateway/s3/s3_priv.h"

#include "base/hash.h"
#include "base/hex.h"
#include "base/ms.h"
#include "base/traceparent.h"

#include <stdio.h>
#include <strings.h>

enum level { LEVEL_SERVICE, LEVEL_BUCKET, LEVEL_KEY };

/* An operation: its method, what it is about, and a parameter of the query that makes it this one. */
struct route {
    const char *method;
    enum level level;
    const char *param; /* NULL: none */
    enum s3_right right;
    enum s3_code (*run)(struct s3_session *s);
    const char *takes; /* further parameters, a blank in front of each and behind the last */
};

#define RESPONSE                                                                                             \
    " response-content-type response-cache-control response-content-disposition response-content-encoding "  \
    "response-content-language response-expires "

static const struct route routes[] = {
    {"GET", LEVEL_SERVICE, NULL, S3_MAY_LIST, s3_list_buckets, ""},
    {"GET", LEVEL_BUCKET, "location", S3_MAY_READ, s3_bucket_location, ""},
    {"GET", LEVEL_BUCKET, "versioning", S3_MAY_READ, s3_bucket_versioning, ""},
    {"GET", LEVEL_BUCKET, "uploads", S3_MAY_LIST, s3_list_uploads,
     " prefix key-marker upload-id-marker max-uploads encoding-type "},
    {"POST", LEVEL_BUCKET, "delete", S3_MAY_WRITE, s3_delete_objects, ""},
    {"GET", LEVEL_BUCKET, NULL, S3_MAY_LIST, s3_list_objects,
     " list-type prefix delimiter continuation-token start-after max-keys encoding-type fetch-owner marker "},
    {"HEAD", LEVEL_BUCKET, NULL, S3_MAY_READ, s3_head_bucket, ""},
    {"PUT", LEVEL_BUCKET, NULL, S3_MAY_WRITE, s3_create_bucket, ""},
    {"DELETE", LEVEL_BUCKET, NULL, S3_MAY_WRITE, s3_delete_bucket, ""},
    {"POST", LEVEL_KEY, "uploads", S3_MAY_WRITE, s3_create_upload, ""},
    {"PUT", LEVEL_KEY, "uploadId", S3_MAY_WRITE, s3_put_part, " partNumber "},
    {"GET", LEVEL_KEY, "uploadId", S3_MAY_READ, s3_list_parts, " max-parts part-number-marker "},
    {"POST", LEVEL_KEY, "uploadId", S3_MAY_WRITE, s3_complete_upload, ""},
    {"DELETE", LEVEL_KEY, "uploadId", S3_MAY_WRITE, s3_abort_upload, ""},
    {"GET", LEVEL_KEY, NULL, S3_MAY_READ, s3_get_object, RESPONSE},
    {"HEAD", LEVEL_KEY, NULL, S3_MAY_READ, s3_get_object, RESPONSE},
    {"PUT", LEVEL_KEY, NULL, S3_MAY_WRITE, s3_put_object, ""},
    {"DELETE", LEVEL_KEY, NULL, S3_MAY_WRITE, s3_delete_object, ""},
};

static enum level session_level(const struct s3_session *s)
{
    if (s3_name_of(s)->bytes == 0)
        return LEVEL_SERVICE;
    return s3_has_key(s3_name_of(s)) ? LEVEL_KEY : LEVEL_BUCKET;
}

static const struct route *session_route(const struct s3_session *s)
{
    enum level level = session_level(s);

    for (size_t i = 0; i < pst_count_of(routes); i++) {
        const struct route *route = &routes[i];

        if (route->level == level && s3_text_is(s->head.method, route->method) &&
            (!route->param || s3_has_param(&s->target, route->param)))
            return route;
    }
    return NULL;
}

/* Of a signature in the query, and what SDKs add that asks for nothing: an answer's checksums, if there are
 * some, and the name of a checksum that is elsewhere. Other fields that a presigner puts there are not read.
 */
static bool is_of_signature(struct pst_bytes name)
{
    static const char *const known[] = {"X-Amz-Algorithm",
                                        "X-Amz-Credential",
                                        "X-Amz-Date",
                                        "X-Amz-Expires",
                                        "X-Amz-SignedHeaders",
                                        "X-Amz-Signature",
                                        "X-Amz-Security-Token",
                                        "X-Amz-Content-Sha256",
                                        "x-amz-checksum-mode",
                                        "x-id",
                                        "x-amz-sdk-checksum-algorithm"};

    for (size_t i = 0; i < pst_count_of(known); i++)
        if (pst_http_is(name, known[i]))
            return true;
    return false;
}

static bool route_takes(const struct route *route, struct pst_bytes name)
{
    char word[64];

    pst_assert(route->takes);
    if (route->param && s3_text_is(name, route->param))
        return true;
    if (is_of_signature(name))
        return true;
    if (name.len == 0 || name.len + 2 > sizeof(word) || memchr(name.data, ' ', name.len))
        return false; /* two of them with their blank in between are none */
    word[0] = ' ';
    memcpy(word + 1, name.data, name.len);
    word[1 + name.len] = ' ';
    return memmem(route->takes, strlen(route->takes), word, name.len + 2) != NULL;
}

/* A listing is of keys with a prefix; DeleteObjects asks for each of its keys. */
static enum s3_code route_may(const struct s3_session *s, const struct route *route)
{
    struct pst_bytes prefix = s3_param(&s->target, "prefix");
    char key[2 * PST_KEY_BYTES_MAX];
    int n;

    if (route->run == s3_delete_objects)
        return S3_OK;
    if (route->right != S3_MAY_LIST || route->level == LEVEL_SERVICE)
        return s3_may(s, route->right, s3_store_key(s3_name_of(s)));
    n = snprintf(key, sizeof(key), "%.*s/", (int)s3_name_of(s)->bucket_bytes, s3_name_of(s)->text);
    pst_assert(n > 0 && (size_t)n < sizeof(key) - PST_KEY_BYTES_MAX);
    prefix.len = pst_min(prefix.len, PST_KEY_BYTES_MAX);
    if (prefix.len)
        memcpy(key + n, prefix.data, prefix.len);
    return s3_may(s, route->right, (struct pst_bytes){key, (size_t)n + prefix.len});
}

/* A parameter that nobody knows would make it another operation: "?tagging" must not put an object. */
static enum s3_code session_dispatch(struct s3_session *s)
{
    const struct route *route = session_route(s);
    enum s3_code code;

    if (!route)
        return S3_MethodNotAllowed;
    if (s3_open_store(s->s3) < 0)
        return S3_ServiceUnavailable;
    pst_assert(s->s3->store);
    pst_assert(s->target.param_count <= S3_PARAMS_MAX);
    for (uint32_t i = 0; i < s->target.param_count; i++) {
        struct pst_bytes name = s->target.params[i].name;

        if (!route_takes(route, name))
            return s3_because(s, S3_NotImplemented, "the parameter '%.*s' is not implemented here",
                              (int)pst_min(name.len, 64), (const char *)name.data);
    }
    code = route_may(s, route);
    return code == S3_OK ? route->run(s) : code;
}

/* ---- requests ---- */

/* Reads a head, which the link's memory holds until it is whole. Return: false the client has ended. */
static bool session_read_head(struct s3_session *s, size_t *head_bytes)
{
    size_t looked_at = 0;
    bool begun = false;

    *head_bytes = 0;
    s3_link_begin(&s->link);
    for (;;) {
        struct pst_bytes here = s3_link_here(&s->link);
        ssize_t n;

        if (here.len >= 2 && memcmp(here.data, "\r\n", 2) == 0) { /* behind the request before */
            s3_link_take(&s->link, 2);
            looked_at = 0;
            continue;
        }
        *head_bytes = pst_http_head_end(here.data, here.len, looked_at);
        pst_assert(*head_bytes <= here.len);
        if (*head_bytes || here.len >= S3_HEAD_BYTES_MAX)
            return true;
        looked_at = here.len;
        n = s3_link_fill(&s->link);
        if (n <= 0)
            return false;
        if (!begun) /* no longer idle: its time is the whole head's */
            s3_link_begin(&s->link);
        begun = true;
    }
}

static void session_begin(struct s3_session *s)
{
    uint64_t id;

    pst_assert(s->magic == S3_SESSION_MAGIC);
    pst_random(&id, sizeof(id));
    pst_hex_print((const uint8_t *)&id, sizeof(id), s->id);
    s->answered = false;
    s->ends = true; /* unless the head is sound, and the client stays */
    s->why[0] = 0;
    s->out_of_bytes = S3_BYTES_UNKNOWN;
    s->head = (struct s3_head){.field_count = 0};
    s->body = (struct s3_body){.link = &s->link};
}

/* What this thread asks the store for belongs to the trace that the client names, if it names one. */
static void session_trace(const struct s3_session *s)
{
    struct pst_bytes field = s3_head_field(&s->head, "traceparent");
    char text[PST_TRACEPARENT_TEXT_BYTES];

    snprintf(text, sizeof(text), "%.*s", (int)pst_min(field.len, sizeof(text) - 1), (const char *)field.data);
    if (penstock_trace(text) < 0)
        penstock_trace(NULL);
}

static enum s3_code session_request(struct s3_session *s, size_t head_bytes)
{
    struct pst_bytes here = s3_link_here(&s->link), payload;
    enum s3_code code;

    if (head_bytes == 0 || head_bytes > sizeof(s->in))
        return S3_RequestHeaderSectionTooLarge;
    pst_assert(head_bytes <= here.len);
    memcpy(s->in, here.data, head_bytes);
    s3_link_take(&s->link, head_bytes);
    code = s3_head_parse(s->in, head_bytes, &s->head);
    if (code == S3_OK)
        code = s3_target_parse(&s->head, s->s3->settings->s3_domain, &s->target);
    if (code == S3_OK)
        code = s3_authenticate(s);
    if (code != S3_OK)
        return code;
    pst_acceptor_keep(s->s3->acceptor, s->link.fd); /* until its answer, now that it is known */
    payload = s3_head_field(&s->head, "x-amz-content-sha256");
    if (!payload.data)
        payload = s3_param(&s->target, "X-Amz-Content-Sha256");
    code = s3_body_open(&s->body, &s->link, &s->head, payload, s->who ? &s->signer : NULL);
    if (code != S3_OK)
        return code;
    s->ends = !s->head.keep_alive;
    session_trace(s);
    s3_link_begin(&s->link);
    return session_dispatch(s);
}

static void session_run(struct s3_session *s)
{
    size_t head_bytes;

    while (!s->ends && session_read_head(s, &head_bytes)) {
        enum s3_code code;

        session_begin(s);
        code = session_request(s, head_bytes);
        pst_assert(code != S3_OK || s->answered);
        pst_assert(code != S3_CHANGED);
        if (code != S3_OK && code != S3_GONE)
            s3_send_error(s, code);
        s->ends |= code == S3_GONE;
        s3_body_close(&s->body);
        pst_acceptor_let_yield(s->s3->acceptor, s->link.fd);
    }
    s3_link_linger(&s->link);
}

void s3_session_serve(struct pst_s3 *s3, int fd)
{
    struct s3_session *s = malloc(sizeof(*s));

    pst_assert(s3->magic == S3_MAGIC);
    if (!s)
        return;
    s->magic = S3_SESSION_MAGIC;
    s->s3 = s3;
    s->ends = false;
    if (s3_link_open(&s->link, fd, s3->tls, pst_ns_of_ms(s3->settings->s3_stall_ms)) == 0)
        session_run(s);
    s3_link_close(&s->link);
    s->magic = 0;
    free(s);
}

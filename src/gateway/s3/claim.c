/* SPDX-License-Identifier: Apache-2.0 */
/*
 * claim.c: claims, of whichever gateway's requests. A claim is an empty value with a short life, which its
 * request makes longer while it works. So it ends by itself if the gateway does.
 */
#include "gateway/s3/upload_priv.h"

#include <poll.h>

enum {
    CLAIM_KEY_BYTES = sizeof(S3_CLAIMS_PREFIX) + UPLOAD_ID_BYTES,
    CLAIM_MS = 30000,
    CLAIM_AGAIN_MS = 5000, /* when it is made longer */
    CLAIM_WAIT_MS = 45000, /* for another one's end: less than clients wait for an answer */
    CLAIM_LOOK_MS = 50,
};

static struct pst_bytes claim_key(const struct upload *upload, char key[CLAIM_KEY_BYTES])
{
    int n = snprintf(key, CLAIM_KEY_BYTES, "%s%s", S3_CLAIMS_PREFIX, upload->id);

    pst_assert(n > 0 && n < CLAIM_KEY_BYTES);
    return (struct pst_bytes){key, (size_t)n};
}

static enum s3_code claim_is_anothers(struct s3_session *s)
{
    return s3_because(s, S3_SlowDown, "another request is completing the upload");
}

/* Makes it, or makes it longer. */
static enum s3_code claim_put(struct s3_session *s, struct upload *upload)
{
    char key[CLAIM_KEY_BYTES];
    struct s3_sink sink = {.key = claim_key(upload, key),
                           .conditional = true,
                           .if_generation = upload->claim,
                           .ttl_ms = CLAIM_MS};
    enum s3_code code = s3_sink_put(s, &sink, "", 0, &upload->claim);

    pst_assert(code != S3_OK || upload->claim > 0);
    upload->claim_again_ms = pst_now_ms() + CLAIM_AGAIN_MS;
    return code;
}

/* Return: false the client has gone, or the gateway ends. */
static bool claim_wait(struct s3_session *s)
{
    struct pollfd gone = {.fd = s->link.fd, .events = POLLRDHUP};

    pst_assert(s->link.fd >= 0);
    return poll(&gone, 1, CLAIM_LOOK_MS) <= 0;
}

enum s3_code s3_claim_take(struct s3_session *s, struct upload *upload)
{
    uint64_t until_ms = pst_now_ms() + CLAIM_WAIT_MS;
    enum s3_code code;

    pst_assert(strlen(upload->id) == UPLOAD_ID_BYTES);
    upload->claim = 0;
    while ((code = claim_put(s, upload)) == S3_PreconditionFailed) {
        if (pst_now_ms() >= until_ms)
            return claim_is_anothers(s);
        if (!claim_wait(s))
            return S3_GONE;
    }
    return code;
}

enum s3_code s3_claim_keep(struct s3_session *s, struct upload *upload, bool now)
{
    enum s3_code code;

    pst_assert(upload->claim > 0);
    if (!now && pst_now_ms() < upload->claim_again_ms)
        return S3_OK;
    code = claim_put(s, upload);
    return code == S3_PreconditionFailed || code == S3_NoSuchKey ? claim_is_anothers(s) : code;
}

enum s3_code s3_claim_look(struct s3_session *s, const struct upload *upload)
{
    char key[CLAIM_KEY_BYTES];
    struct s3_object claim;
    enum s3_code code = s3_stat(s, claim_key(upload, key), &claim);

    pst_assert(strlen(upload->id) == UPLOAD_ID_BYTES);
    if (code == S3_OK)
        return claim_is_anothers(s);
    return code == S3_NoSuchKey ? S3_OK : code;
}

void s3_claim_give(struct s3_session *s, struct upload *upload)
{
    char text[CLAIM_KEY_BYTES];

    (void)s3_delete_generation(s, claim_key(upload, text), upload->claim); /* else it ends by itself */
    upload->claim = 0;
}

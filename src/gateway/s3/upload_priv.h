/* SPDX-License-Identifier: Apache-2.0 */
/*
 * upload_priv.h: uploads in parts. An upload is an empty value whose attributes the object will have; its
 * parts are values of their own, in any order, until CompleteMultipartUpload makes one value of them. All of
 * them end by themselves a week after they were written. So an upload outlives a connection, and with an SSD
 * the node. One request at a time completes an upload: it has the claim. Once the object is there, the
 * upload's value is the object's ETag for a while, for those that complete it again. Included by upload.c,
 * complete.c, uploads.c and claim.c.
 *
 *     .s3/uploads/BUCKET/KEY/ID       the upload; ID: 32 hexadecimal digits
 *     .s3/parts/ID/NUMBER             a part; NUMBER: 5 digits
 *     .s3/claims/ID                   the claim
 */
#ifndef PST_S3_UPLOAD_PRIV_H
#define PST_S3_UPLOAD_PRIV_H

#include "gateway/s3/s3_priv.h"

enum {
    UPLOAD_ID_BYTES = 32,
    PART_KEY_BYTES = sizeof(S3_PARTS_PREFIX) + UPLOAD_ID_BYTES + 1 + 5,
};

struct upload {
    char id[UPLOAD_ID_BYTES + 1];
    char key[PST_KEY_BYTES_MAX + 1]; /* of its own value */
    size_t key_bytes;
    struct s3_object object; /* that value; its attributes are the object's */
    uint64_t claim;          /* its generation; 0: it is not ours */
    uint64_t claim_again_ms; /* when it is made longer */
};

static inline bool upload_is_completed(const struct upload *upload)
{
    return upload->object.bytes > 0;
}

/* ---- upload.c ---- */

/* The upload that the request names. Return: S3_OK, S3_NoSuchUpload, also once it is completed, another
 * error.
 */
enum s3_code s3_upload_find(struct s3_session *s, struct upload *out);
/* The same, completed or not. */
enum s3_code s3_upload_look(struct s3_session *s, struct upload *out);
/* @part: 1 to S3_PARTS_MAX. */
struct pst_bytes s3_part_key(const struct upload *upload, uint32_t part, char key[PART_KEY_BYTES]);
/* Makes it another value with the same attributes, so that a request which saw it before cannot end it. */
enum s3_code s3_upload_touch(struct s3_session *s, struct upload *upload);
/* The object is there, with this generation. */
void s3_upload_end(struct s3_session *s, struct upload *upload, uint64_t generation);
/* What an upload that is completed became. */
enum s3_code s3_upload_became(struct s3_session *s, const struct upload *upload, uint64_t *generation);

/* ---- claim.c ---- */

/* Waits for another request that has it. Return: S3_OK, to be given back; S3_SlowDown it lasts too long. */
enum s3_code s3_claim_take(struct s3_session *s, struct upload *upload);
/* While the work goes on, and with @now before its last step. */
enum s3_code s3_claim_keep(struct s3_session *s, struct upload *upload, bool now);
void s3_claim_give(struct s3_session *s, struct upload *upload);
/* Return: S3_OK nobody has it, S3_SlowDown somebody has. */
enum s3_code s3_claim_look(struct s3_session *s, const struct upload *upload);

#endif

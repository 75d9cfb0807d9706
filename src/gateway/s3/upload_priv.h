/* SPDX-License-Identifier: Apache-2.0 */
/*
 * upload_priv.h: uploads in parts. An upload is an empty value whose attributes the object will have; its
 * parts are values of their own, in any order, until CompleteMultipartUpload makes one value of them. All of
 * them end by themselves a week after they were written. So an upload outlives a connection, and with an SSD
 * the node. Included by upload.c, complete.c and uploads.c.
 *
 *     .s3/uploads/BUCKET/KEY/ID       the upload; ID: 32 hexadecimal digits
 *     .s3/parts/ID/NUMBER             a part; NUMBER: 5 digits
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
};

/* The upload that the request names. Return: S3_OK, S3_NoSuchUpload, another error. */
enum s3_code s3_upload_find(struct s3_session *s, struct upload *out);
/* @part: 1 to S3_PARTS_MAX. */
struct pst_bytes s3_part_key(const struct upload *upload, uint32_t part, char key[PART_KEY_BYTES]);
/* Ends the upload, for one request alone: another one is told S3_NoSuchUpload from now on. */
enum s3_code s3_upload_claim(struct s3_session *s, const struct upload *upload);
/* What was claimed is not needed: the upload is as before. */
void s3_upload_give_back(struct s3_session *s, const struct upload *upload);
/* Deletes the parts of an upload that has ended. */
enum s3_code s3_upload_drop_parts(struct s3_session *s, const struct upload *upload);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* conditions_priv.h: ranges, and the conditions under which a request is for what is there. Included by all
 * of s3. Pure; any thread. */
#ifndef PST_S3_CONDITIONS_PRIV_H
#define PST_S3_CONDITIONS_PRIV_H

#include "gateway/s3/wire/attrs_priv.h"

struct s3_range {
    bool partial;
    uint64_t offset, bytes;
};

/* @text: of a Range field, empty without one. What is no range of bytes, or several of them, counts as none.
 * Return: S3_OK or S3_InvalidRange. */
enum s3_code s3_range_parse(struct pst_bytes text, uint64_t value_bytes, struct s3_range *out);
/* Of a copy, which takes all that it asks for or fails. Return: S3_OK, S3_InvalidRange, S3_InvalidArgument.
 */
enum s3_code s3_range_within(struct pst_bytes text, uint64_t value_bytes, struct s3_range *out);
/*
 * Conditions of a read. @prefix: of their fields, "" or "x-amz-copy-source-". @written_ms: 0 unknown: no
 * condition on time holds then. Return: S3_OK, S3_PreconditionFailed, S3_NotModified.
 */
enum s3_code s3_conditions_read(const struct s3_head *head, const char *prefix, uint64_t generation,
                                uint64_t written_ms);
/* Of a write. @conditional: there is one: the key has *@generation, or 0: is absent. Return: S3_OK,
 * S3_NotImplemented, S3_PreconditionFailed for an ETag that no object here has. */
enum s3_code s3_conditions_write(const struct s3_head *head, bool *conditional, uint64_t *generation);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* error.c: the table of errors. */
#include "gateway/s3/wire/error_priv.h"

#include "base/base.h"

const struct s3_error *s3_error_of(enum s3_code code)
{
    static const struct s3_error errors[S3_CODES] = {
#define S3_ERROR_ROW(code, status, text) [S3_##code] = {#code, text, status},
        S3_ERRORS(S3_ERROR_ROW)
#undef S3_ERROR_ROW
    };

    pst_assert(code > S3_OK && code < S3_GONE);
    pst_assert(errors[code].code);
    return &errors[code];
}

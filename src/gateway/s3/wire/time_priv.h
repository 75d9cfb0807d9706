/* SPDX-License-Identifier: Apache-2.0 */
/* time_priv.h: times as S3 writes them, in seconds since 1970. Included by all of s3. Pure; any thread. */
#ifndef PST_S3_TIME_PRIV_H
#define PST_S3_TIME_PRIV_H

#include "base/base.h"

enum { S3_TIME_TEXT_BYTES = 32 };

/* "20130524T000000Z". Return: false it is none. */
bool s3_time_of_stamp(struct pst_bytes text, int64_t *out);
/* "Fri, 24 May 2013 00:00:00 GMT". */
bool s3_time_of_date(struct pst_bytes text, int64_t *out);
void s3_time_date(uint64_t ms, char out[S3_TIME_TEXT_BYTES]);
/* "2013-05-24T00:00:00.000Z", as documents have it. */
void s3_time_iso(uint64_t ms, char out[S3_TIME_TEXT_BYTES]);

#endif

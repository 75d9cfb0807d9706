/* SPDX-License-Identifier: Apache-2.0 */
/* time.c: times as texts. */
#include "gateway/s3/wire/time_priv.h"

#include <stdio.h>
#include <time.h>

static bool time_parse(struct pst_bytes text, const char *format, int64_t *out)
{
    char copy[S3_TIME_TEXT_BYTES];
    struct tm tm = {0};
    const char *end;

    if (text.len >= sizeof(copy))
        return false;
    snprintf(copy, sizeof(copy), "%.*s", (int)text.len, text.len ? (const char *)text.data : "");
    end = strptime(copy, format, &tm); /* nobody sets a locale here */
    if (!end || *end)
        return false;
    *out = timegm(&tm);
    return true;
}

bool s3_time_of_stamp(struct pst_bytes text, int64_t *out)
{
    return time_parse(text, "%Y%m%dT%H%M%SZ", out);
}

bool s3_time_of_date(struct pst_bytes text, int64_t *out)
{
    return time_parse(text, "%a, %d %b %Y %H:%M:%S GMT", out);
}

static struct tm time_parts(uint64_t ms)
{
    time_t seconds = (time_t)(ms / 1000);
    struct tm tm;

    pst_assert(gmtime_r(&seconds, &tm));
    return tm;
}

void s3_time_date(uint64_t ms, char out[S3_TIME_TEXT_BYTES])
{
    const struct tm tm = time_parts(ms);

    pst_assert(strftime(out, S3_TIME_TEXT_BYTES, "%a, %d %b %Y %H:%M:%S GMT", &tm) > 0);
}

void s3_time_iso(uint64_t ms, char out[S3_TIME_TEXT_BYTES])
{
    const struct tm tm = time_parts(ms);
    size_t bytes = strftime(out, S3_TIME_TEXT_BYTES, "%Y-%m-%dT%H:%M:%S", &tm);

    pst_assert(bytes > 0);
    snprintf(out + bytes, S3_TIME_TEXT_BYTES - bytes, ".%03uZ", (unsigned)(ms % 1000));
}

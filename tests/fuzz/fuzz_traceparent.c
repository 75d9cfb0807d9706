/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_traceparent.c: what is read as a traceparent fits on the wire, and is the same when it was written. */
#include "fuzz.h"

#include "base/traceparent.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char text[PST_TRACEPARENT_TEXT_BYTES];
    uint8_t *tight = malloc(bytes ? bytes : 1);
    struct pst_traceparent trace, again;
    int r;

    pst_assert(tight);
    memcpy(tight, data, bytes);
    r = pst_traceparent_parse((struct pst_bytes){tight, bytes}, &trace);
    free(tight);
    if (r < 0) {
        pst_assert(r == -EINVAL);
        return 0;
    }
    pst_assert(pst_traceparent_fits(&trace));
    pst_traceparent_print(&trace, text);
    pst_assert(strlen(text) == sizeof(text) - 1);
    r = pst_traceparent_parse(pst_bytes_of(text), &again);
    pst_assert(r == 0);
    pst_assert(memcmp(&again, &trace, sizeof(again)) == 0);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_trace.c: traces of requests. What is read is numbered without gaps, and the optimum stays in its
 * bounds. */
#include "fuzz.h"

#include "cli/replay/trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char fault[PST_FAULT_BYTES] = "";
    struct pst_trace trace;
    char *text = malloc(bytes ? bytes : 1); /* of just its size */
    uint32_t next = 0;
    int64_t some, all;

    pst_assert(text);
    memcpy(text, data, bytes);
    if (pst_trace_parse(text, bytes, &trace, fault) < 0) {
        pst_assert(strncmp(fault, "line ", 5) == 0 && !trace.pages && !trace.starts);
        free(text);
        return 0;
    }
    pst_assert(trace.starts[0] == 0 && trace.starts[trace.request_count] == trace.page_count);
    for (uint64_t i = 0; i < trace.page_count; i++) {
        pst_assert(trace.pages[i] <= next);
        next += trace.pages[i] == next;
    }
    pst_assert(next == trace.unique_count && next > 0);
    some = pst_trace_optimum(&trace, pst_max(1, next / 3));
    all = pst_trace_optimum(&trace, next);
    pst_assert(0 <= some && some <= all && (uint64_t)all <= trace.page_count - next);
    pst_trace_fini(&trace);
    free(text);
    return 0;
}

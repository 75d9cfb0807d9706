/* SPDX-License-Identifier: Apache-2.0 */
/* traceparent.c: the text of W3C's Trace Context, read and written. */
#include "base/traceparent.h"

#include "base/hex.h"

enum {
    TEXT_BYTES = PST_TRACEPARENT_TEXT_BYTES - 1, /* of version 00 */
    TRACE_AT = 3,
    SPAN_AT = TRACE_AT + 2 * PST_TRACE_ID_BYTES + 1,
    FLAGS_AT = SPAN_AT + 2 * PST_SPAN_ID_BYTES + 1,
    NO_VERSION = 0xff,
};

_Static_assert(FLAGS_AT + 2 == TEXT_BYTES, "the parts of a traceparent");

bool pst_traceparent_fits(const struct pst_traceparent *given)
{
    static const uint8_t none[PST_SPAN_ID_BYTES];

    return pst_traceparent_is(given) && memcmp(given->span_id, none, sizeof(none)) != 0 &&
           !(given->flags & ~PST_TRACE_FLAGS);
}

int pst_traceparent_parse(struct pst_bytes text, struct pst_traceparent *out)
{
    const char *at = text.data;
    struct pst_traceparent read;
    uint8_t version;

    if (text.len < TEXT_BYTES || at[TRACE_AT - 1] != '-' || at[SPAN_AT - 1] != '-' || at[FLAGS_AT - 1] != '-')
        return -EINVAL;
    /* Lower case alone, as the standard demands. */
    if (!pst_hex_parse(at, &version, 1) ||
        !pst_hex_parse(at + TRACE_AT, read.trace_id, sizeof(read.trace_id)) ||
        !pst_hex_parse(at + SPAN_AT, read.span_id, sizeof(read.span_id)) ||
        !pst_hex_parse(at + FLAGS_AT, &read.flags, 1))
        return -EINVAL;
    if (version == NO_VERSION || (text.len > TEXT_BYTES && (version == 0 || at[TEXT_BYTES] != '-')))
        return -EINVAL;
    read.flags &= version == 0 ? PST_TRACE_FLAGS : PST_TRACE_SAMPLED;
    if (!pst_traceparent_fits(&read))
        return -EINVAL;
    *out = read;
    return 0;
}

void pst_traceparent_print(const struct pst_traceparent *from, char to[PST_TRACEPARENT_TEXT_BYTES])
{
    pst_assert(pst_traceparent_fits(from));
    memcpy(to, "00-", TRACE_AT);
    pst_hex_print(from->trace_id, sizeof(from->trace_id), to + TRACE_AT);
    to[SPAN_AT - 1] = '-';
    pst_hex_print(from->span_id, sizeof(from->span_id), to + SPAN_AT);
    to[FLAGS_AT - 1] = '-';
    pst_hex_print(&from->flags, 1, to + FLAGS_AT);
}

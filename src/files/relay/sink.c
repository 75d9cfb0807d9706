/* SPDX-License-Identifier: Apache-2.0 */
/* sink.c: a member whose tree gets a place in a folder. */
#include "files/relay/relay.h"

#include <stdio.h>

struct tree_sink {
    const struct pst_carry_place *to;
    struct pst_arrival *arrival;
    struct pst_arrival_result result;
};

/* Return: @error, with the arrival's text. */
static int sink_fail(const struct tree_sink *sink, int error, char fault[PST_FAULT_BYTES])
{
    if (error < 0)
        snprintf(fault, PST_FAULT_BYTES, "%s", pst_arrival_fault(sink->arrival));
    return error;
}

static int sink_begin(void *ctx, const struct pst_manifest *m, char fault[PST_FAULT_BYTES])
{
    struct tree_sink *sink = ctx;
    int r;

    pst_assert(!sink->arrival);
    /* Everything comes, whatever is there: members behind this one get it from here. */
    r = pst_arrival_open(sink->to->folder_fd, sink->to->leaf, PST_ARRIVAL_FORCE, &sink->arrival, fault);
    return r < 0 ? r : sink_fail(sink, pst_arrival_begin(sink->arrival, m), fault);
}

static int sink_write(void *ctx, uint32_t entry, uint64_t at, const void *data, size_t bytes,
                      char fault[PST_FAULT_BYTES])
{
    struct tree_sink *sink = ctx;

    pst_assert(sink->arrival);
    return sink_fail(sink,
                     bytes > 0 ? pst_arrival_write(sink->arrival, entry, at, data, bytes)
                               : pst_arrival_empty(sink->arrival, entry),
                     fault);
}

static int sink_end(void *ctx, char fault[PST_FAULT_BYTES])
{
    struct tree_sink *sink = ctx;

    pst_assert(sink->arrival);
    return sink_fail(sink, pst_arrival_end(sink->arrival, &sink->result), fault);
}

static int sink_open(void *ctx, uint32_t entry)
{
    struct tree_sink *sink = ctx;

    pst_assert(sink->arrival);
    return pst_arrival_read(sink->arrival, entry);
}

static void sink_close(void *ctx)
{
    struct tree_sink *sink = ctx;

    sink->arrival = pst_arrival_close(sink->arrival);
    pst_assert(!sink->arrival);
}

int pst_broadcast_get(const struct pst_broadcast_options *options, const struct pst_carry_place *to,
                      struct pst_arrival_result *result, char fault[PST_FAULT_BYTES])
{
    static const struct pst_broadcast_sink ops = {
        .begin = sink_begin, .write = sink_write, .end = sink_end, .open = sink_open, .close = sink_close};
    struct tree_sink sink = {.to = to};
    int r = pst_broadcast_receive(options, &ops, &sink, fault);

    if (r == 0)
        *result = sink.result;
    return r;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* tsgrpc.c: the service KvStoreService, a client of its node; and answers that several of its methods give.
 */
#include "gateway/tsgrpc/tsgrpc_priv.h"

#include <stdio.h>

enum {
    STORE_TIMEOUT_MS = 5000,
    STORE_DESCRIPTORS = 40, /* of the door's store and queue */
};

_Static_assert((int)PROTO_HEAD_BYTES_MAX <= (int)HEAD_BYTES_MAX, "heads of answers");

static const struct method *const methods[] = {&method_read, &method_write, &method_delete, &method_list};
static const struct service service = {.name = "tsgrpc",
                                       .path = "/tensorstore_grpc.kvstore.KvStoreService/",
                                       .calls = "Read, Write, Delete and List",
                                       .methods = methods,
                                       .method_count = pst_count_of(methods),
                                       .request_bytes_max = PROTO_REQUEST_BYTES_MAX};

/* ---- its life ---- */

int pst_tsgrpc_open(const struct pst_tsgrpc_settings *settings, struct pst_door **out,
                    char fault[PST_FAULT_BYTES])
{
    const struct door_opening opening = {.service = &service,
                                         .address = settings->tsgrpc,
                                         .network = settings->tsgrpc_network,
                                         .connections_max = (uint32_t)settings->tsgrpc_connections,
                                         .stall_ms = settings->tsgrpc_stall_ms,
                                         .descriptors = STORE_DESCRIPTORS};

    return door_open(&opening, out, fault);
}

int pst_tsgrpc_serve(struct pst_door *door, const char *url, struct pst_bytes secret,
                     char fault[PST_FAULT_BYTES])
{
    const struct penstock_options options = {.size = sizeof(options),
                                             .secret = secret.len ? secret.data : NULL,
                                             .secret_bytes = secret.len,
                                             .timeout_ms = STORE_TIMEOUT_MS};
    int r;

    pst_assert(door->service == &service);
    pst_assert(!door->store);
    door_let_go(door, STORE_DESCRIPTORS);
    r = penstock_open(url, &options, &door->store);
    if (r == 0)
        r = penstock_queue_open(door->store, &door->queue);
    if (r < 0) {
        snprintf(fault, PST_FAULT_BYTES, "tsgrpc: %.200s", penstock_error());
        return r;
    }
    return door_run(door, fault);
}

/* ---- answers ---- */

void stream_written(struct stream *st, struct generation generation)
{
    if (!stream_open_yet(st))
        return;
    pst_assert(st->head_bytes == 0);
    pst_assert(st->body_left == 0);
    st->head_bytes = (uint32_t)proto_written(st->head, generation, st->wall_ns);
    stream_answer(st, true);
}

/* TensorStore tries again for minutes after EXHAUSTED, UNAVAILABLE and DEADLINE: these are for what passes.
 */
static enum status_code status_of(int result)
{
    static const struct {
        int result;
        enum status_code status;
    } table[] = {
        {PENSTOCK_BUSY, STATUS_UNAVAILABLE},
        {-EBUSY, STATUS_UNAVAILABLE},
        {PENSTOCK_MISS, STATUS_UNAVAILABLE}, /* of a reservation: lost with the connection */
        {PENSTOCK_UNKNOWN, STATUS_UNKNOWN},
        {PENSTOCK_STALE, STATUS_ABORTED},
        {PENSTOCK_EXISTS, STATUS_ABORTED},
        {-ENOSPC, STATUS_PRECONDITION},
        {-EFBIG, STATUS_INVALID},
        {-EDQUOT, STATUS_EXHAUSTED},
        {-EMFILE, STATUS_EXHAUSTED},
        {-ENOMEM, STATUS_EXHAUSTED},
        {-EINVAL, STATUS_INVALID},
        {-ENAMETOOLONG, STATUS_INVALID},
        {-ERANGE, STATUS_RANGE},
        {-ETIMEDOUT, STATUS_DEADLINE},
        {-ECONNREFUSED, STATUS_UNAVAILABLE},
        {-ECONNRESET, STATUS_UNAVAILABLE},
        {-EHOSTUNREACH, STATUS_UNAVAILABLE},
        {-ESTALE, STATUS_UNAVAILABLE},
        {-EACCES, STATUS_DENIED},
        {-EBADMSG, STATUS_DATA_LOSS},
    };

    for (size_t i = 0; i < pst_count_of(table); i++) {
        if (table[i].result == result)
            return table[i].status;
    }
    return STATUS_INTERNAL;
}

void stream_fail_result(struct stream *st, int result, struct pst_bytes key)
{
    stream_fail(st, status_of(result), "key '%.*s': %s", (int)pst_min(key.len, 100), (const char *)key.data,
                penstock_result_text(result));
}

/* SPDX-License-Identifier: Apache-2.0 */
/* one_get.h: a channel that is up, to a node of one shard, with one request underway: a get of "k". */
#ifndef PST_TEST_ONE_GET_H
#define PST_TEST_ONE_GET_H

#include "lib/cm.h"

#include "call/call_priv.h"

enum { ONE_GET_TOKEN = 0x1234 };

/* @channel and @call are zeros; @value has room for @bytes. */
static inline void one_get_begin(struct pst_channel *channel, struct pst_call *call, struct pst_port *port,
                                 struct penstock_op *op, struct pst_op_list *done, void *value, size_t bytes)
{
    channel->magic = PST_CHANNEL_MAGIC;
    channel->state = CHANNEL_UP;
    channel->port = port;
    channel->welcome =
        (struct pst_boot_welcome){.token = ONE_GET_TOKEN, .version = PST_WIRE_VERSION, .shard_count = 1};
    pst_list_init(&channel->idle);
    pst_list_init(&channel->unsent);
    pst_list_init(&channel->sent);
    pst_bulk_park_init(&channel->park);
    *op =
        (struct penstock_op){.code = PENSTOCK_GET, .key = "k", .key_bytes = 1, .data = value, .bytes = bytes};
    assert_int_equal(pst_op_begin(op, -1, done), 0);
    call->magic = PST_CALL_MAGIC;
    call->channel = channel;
    call->id = CALLS_MAX;
    call->state = CALL_SENT;
    call->ops[call->count++] = op;
    pst_list_push_back(&channel->sent, &call->link);
    channel->calls[channel->call_count++] = call;
}

#endif

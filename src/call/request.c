/* SPDX-License-Identifier: Apache-2.0 */
/* request.c: operations on their way out: gathered into requests, sent, tried again, ended. */
#include "call/call_priv.h"
#include "base/fault.h"

#include "base/clock.h"
#include "base/ms.h"

enum {
    BUSY_RETRY_NS = 200000,
    RETRIES_MAX = 4096, /* operations that no request takes, before a look at what waits ends */
};

static struct pst_call *call_new(struct pst_channel *ch)
{
    struct pst_call *call;

    if (pst_fault(PST_FAULT_call_none_free))
        return NULL;
    if (!pst_list_empty(&ch->idle)) {
        call = pst_list_first(&ch->idle, struct pst_call, link);
        pst_list_remove(&call->link);
        return call;
    }
    if (ch->call_count == CALLS_MAX)
        return NULL;
    call = calloc(1, sizeof(*call));
    if (!call)
        return NULL;
    call->body = malloc(CALL_BODY_BYTES);
    if (!call->body) {
        free(call);
        return NULL;
    }
    call->magic = PST_CALL_MAGIC;
    call->channel = ch;
    call->id = ch->call_count;
    pst_list_init(&call->link);
    ch->calls[ch->call_count++] = call;
    pst_assert(ch->call_count <= CALLS_MAX);
    pst_assert(call->id % CALLS_MAX == ch->call_count - 1);
    return call;
}

void pst_call_free(struct pst_call *call)
{
    pst_assert(call->channel->wait_count >= call->waits);
    pst_assert(call->state != CALL_IDLE);
    call->state = CALL_IDLE;
    call->channel->wait_count -= call->waits;
    pst_list_remove(&call->link);
    pst_list_push_front(&call->channel->idle, &call->link);
}

static struct pst_call *call_begin(struct pst_channel *ch, uint32_t shard,
                                   const struct pst_traceparent *trace)
{
    struct pst_call *call = call_new(ch);

    pst_assert(shard < ch->welcome.shard_count);
    if (!call)
        return NULL;
    pst_assert(call->state == CALL_IDLE);
    pst_assert(call->sends == 0);
    pst_assert(call->bulks_arriving == 0);
    call->id += CALLS_MAX;    /* the same place in the table, a number that no late answer carries */
    if (call->id < CALLS_MAX) /* numbers wrap around, and those name no request */
        call->id += CALLS_MAX;
    call->shard = shard;
    call->trace = trace;
    call->count = 0;
    call->state = CALL_OPEN;
    call->replied = false;
    call->values_in_bulk = call->waits = false;
    call->bulks_out = call->bulks_next = 0;
    call->bulk_out = (struct pst_bulk_cursor){0, 0};
    call->sends = 0;
    call->bulks_expected = call->bulks_arrived = call->bulks_arriving = 0;
    call->deadline_ns = 0;
    call->body_bytes = 0;
    return call;
}

/* A commit's members have large values in reservations. */
static bool carries_value(const struct penstock_op *op)
{
    return pst_code_has(op->code, PST_CODE_VALUE) && !(op->flags & PST_WIRE_IN_RESERVATION);
}

/* Its value follows by BULK. */
static bool value_in_bulk(const struct penstock_op *op)
{
    return carries_value(op) && op->bytes > PST_WIRE_INLINE_BYTES_MAX;
}

static uint64_t timeout_ms_of(const struct pst_channel *ch, const struct penstock_op *op)
{
    return ch->options.timeout_ms + pst_op_extra_ms(op);
}

/* The waiting that is left: an operation may be sent again in another session. */
static uint32_t wait_left_ms(const struct pst_call *call, const struct penstock_op *op)
{
    uint64_t answer_by_ns = pst_deadline_ns(pst_now_ns(), timeout_ms_of(call->channel, op));

    pst_assert(pst_wire_waits(op->code, op->flags));
    return (uint32_t)pst_min(pst_ms_left(pst_op_deadline(op), answer_by_ns), UINT32_MAX);
}

static void encode_op(struct pst_call *call, const struct penstock_op *op)
{
    uint32_t traits = pst_code_traits(op->code);
    uint8_t scratch[PST_WIRE_INLINE_BYTES_MAX];
    struct pst_wire_op wire = {
        .code = op->code,
        .flags = op->flags,
        .depth = op->depth,
        .key = {op->key, op->key_bytes},
        .bytes = op->bytes,
        .offset = op->offset,
        .if_generation = op->if_generation,
    };

    if (pst_unlikely(pst_wire_waits(op->code, op->flags)))
        wire.wait_ms = wait_left_ms(call, op);
    if (op->code == PENSTOCK_PUT) {
        wire.copies = call->channel->options.copies;
        if (op->flags & PENSTOCK_CHECKSUM)
            wire.value_crc = pst_op_crc(op, op->bytes);
    } else if (op->code == PENSTOCK_RESERVATION_COMMIT) {
        wire.value_crc = op->value_crc;
    }
    if (traits & PST_CODE_ATTRS)
        wire.attrs = (struct pst_bytes){op->attrs, op->attrs ? op->attr_bytes : 0};
    else if (op->attrs && traits & PST_CODE_READS)
        wire.flags |= PST_WIRE_WANT_ATTRS;
    if (value_in_bulk(op)) {
        wire.flags |= PST_WIRE_VALUE_IN_BULK;
        call->values_in_bulk = true;
    } else if (carries_value(op)) {
        wire.value = op->data;
        if (op->iov) {
            pst_op_copy_out(op, 0, scratch, op->bytes);
            wire.value = scratch;
        }
    }
    call->body_bytes = (size_t)(pst_wire_put_op(call->body + call->body_bytes, &wire) - call->body);
    pst_assert(call->body_bytes <= CALL_BODY_BYTES);
}

/* Notes in which request it travels. */
static void name_request(const struct pst_call *call, struct penstock_op *op)
{
    uint64_t number = (call->channel->welcome.token & 0xffff) << 32 | call->id;
    uintptr_t shard = (uintptr_t)op->reserved[OP_SHARD] & ((1 << OP_SHARD_BITS) - 1);

    pst_assert(call->id >= CALLS_MAX); /* 0 names no request */
    op->reserved[OP_SHARD] = (void *)(number << OP_SHARD_BITS | shard);
}

static void add_op(struct pst_call *call, struct penstock_op *op)
{
    pst_assert(call->count < PST_WIRE_OPS_MAX);
    encode_op(call, op);
    name_request(call, op);
    call->ops[call->count] = op;
    call->crc_wanted[call->count] = call->attrs_came[call->count] = false;
    call->announced[call->count] = call->promised[call->count] = 0;
    call->count++;
}

/* What may be answered late travels alone: a reply waits for all of its request. Return: false when no
 * request is free. */
static bool place_wait(struct pst_channel *ch, struct penstock_op *op, uint32_t shard)
{
    bool get = op->code == PENSTOCK_GET;
    struct pst_call *call;

    pst_assert(ch->wait_count <= WAITS_MAX);
    if (get && ch->wait_count == WAITS_MAX) { /* to wait for a place would hold up everything else */
        pst_op_end(op, -EDQUOT);
        return true;
    }
    call = call_begin(ch, shard, pst_op_trace(op));
    if (!call)
        return false;
    call->waits = get;
    ch->wait_count += get;
    add_op(call, op);
    call->deadline_ns = pst_op_deadline(op);
    pst_call_send(call);
    return true;
}

/* Return: false when no request is free. */
static bool place_op(struct pst_channel *ch, struct penstock_op *op)
{
    int shard = (int)((uintptr_t)op->reserved[OP_SHARD] & ((1 << OP_SHARD_BITS) - 1)) - 1;
    uint32_t members = pst_op_members(op);
    struct pst_call *call;

    pst_assert(members < PST_WIRE_OPS_MAX);
    pst_assert(ch->state == CHANNEL_UP);
    if (shard < 0)
        shard = (int)pst_channel_shard_of(ch, (struct pst_bytes){op->key, op->key_bytes});
    if ((uint32_t)shard >= ch->welcome.shard_count) { /* the node came back with fewer shards */
        pst_op_end(op, -ESTALE);
        return true;
    }
    if (pst_unlikely(op->code == PENSTOCK_PUT && op->bytes > ch->welcome.value_bytes_max)) {
        op->error_detail.limit_bytes = ch->welcome.value_bytes_max;
        pst_op_end(op, -EFBIG);
        return true;
    }
    if (pst_unlikely(pst_wire_waits(op->code, op->flags)))
        return place_wait(ch, op, (uint32_t)shard);
    call = ch->filling[shard];
    if (call &&
        (members || call->trace != pst_op_trace(op) ||
         (pst_code_of_role(op->code) && call->body_bytes + op->attr_bytes > PST_WIRE_BODY_BYTES_MAX))) {
        pst_call_send(call);
        call = NULL;
    }
    if (!call)
        call = ch->filling[shard] = call_begin(ch, (uint32_t)shard, pst_op_trace(op));
    if (!call)
        return false;
    add_op(call, op);
    for (uint32_t i = 0; i < members; i++)
        add_op(call, (struct penstock_op *)op->data + i);
    call->deadline_ns = pst_max(call->deadline_ns, pst_op_deadline(op));
    if (call->count == PST_WIRE_OPS_MAX || call->body_bytes >= CALL_BODY_FULL)
        pst_call_send(call);
    return true;
}

void pst_channel_submit(struct pst_channel *ch, struct penstock_op *op, int shard, struct pst_op_list *done)
{
    pst_channel_submit_until(ch, op, shard, done, UINT64_MAX);
}

/* @list: of the channel's waiting operations, or what becomes a part of them. */
static void add_waiting(struct pst_channel *ch, struct pst_op_list *list, struct penstock_op *op)
{
    ch->waiting_due_ns = pst_min(ch->waiting_due_ns, pst_op_deadline(op));
    pst_op_list_push(list, op);
}

/* Reading the clock takes a third of what a small operation does: one reading is for all that are submitted
 * together, unless one of them takes long, such as for a large value's checksum. */
static uint64_t submit_time(struct pst_channel *ch)
{
    uint64_t tick_ns = pst_tick_ns();

    if (!ch->submit_ns || tick_ns != ch->submit_tick_ns) {
        ch->submit_ns = pst_now_ns();
        ch->submit_tick_ns = tick_ns;
    }
    return ch->submit_ns;
}

void pst_channel_submit_until(struct pst_channel *ch, struct penstock_op *op, int shard,
                              struct pst_op_list *done, uint64_t until_ns)
{
    uint64_t timeout_ms = timeout_ms_of(ch, op) + pst_op_wait_ms(op, ch->options.timeout_ms);
    uint64_t now_ns = submit_time(ch);
    int r = pst_op_begin(op, shard, done);

    pst_assert(ch->magic == PST_CHANNEL_MAGIC);
    pst_op_set_deadline(op, pst_min(pst_deadline_ns(now_ns, timeout_ms), until_ns));
    if (now_ns > ch->tick_ns) { /* nobody has looked for a while: answers may lie there, and the session may
                                   be gone, so that what is sent into it would end as "unknown" */
        while (pst_channel_poll(ch))
            ;
    }
    if (r < 0 || (ch->state != CHANNEL_UP && pst_op_orphaned(op, &r)))
        pst_op_end(op, r);
    else if (ch->state != CHANNEL_UP || ch->waiting.count || !place_op(ch, op))
        add_waiting(ch, &ch->waiting, op);
}

void pst_channel_flush(struct pst_channel *ch)
{
    pst_assert(ch->welcome.shard_count <= PST_BOOT_SHARDS_MAX);
    for (uint32_t shard = 0; shard < ch->welcome.shard_count; shard++) {
        if (ch->filling[shard])
            pst_call_send(ch->filling[shard]);
    }
    ch->submit_ns = 0;
}

/* ---- sending ---- */

/* The piece of an operation's buffers that holds byte @offset, from there to the piece's end. */
static struct iovec piece_at(const struct penstock_op *op, uint64_t offset)
{
    uint64_t at = 0;
    uint32_t i = 0;

    pst_assert(offset < op->bytes);
    if (!op->iov)
        return (struct iovec){(uint8_t *)op->data + offset, op->bytes - offset};
    while (offset >= at + op->iov[i].iov_len)
        at += op->iov[i++].iov_len;
    pst_assert(i < op->iov_count); /* they are as long as the value */
    return (struct iovec){(uint8_t *)op->iov[i].iov_base + (offset - at), op->iov[i].iov_len - (offset - at)};
}

static bool next_piece(void *ctx, struct pst_bulk_cursor *cursor, struct iovec *piece, uint32_t *index)
{
    struct pst_call *call = ctx;

    pst_assert(call->magic == PST_CALL_MAGIC);
    for (; cursor->item < call->count; *cursor = (struct pst_bulk_cursor){cursor->item + 1, 0}) {
        const struct penstock_op *op = call->ops[cursor->item];

        if (!value_in_bulk(op) || cursor->offset == op->bytes)
            continue;
        *piece = piece_at(op, cursor->offset);
        *index = cursor->item;
        return true;
    }
    return false;
}

/* Return: true when everything of the request has been handed to the transport. */
static bool send_values(struct pst_call *call)
{
    struct pst_channel *ch = call->channel;
    struct pst_wire_head head = {.type = PST_WIRE_BULK,
                                 .version = (uint8_t)ch->welcome.version,
                                 .request = call->id,
                                 .token = ch->welcome.token};
    struct pst_peer *peer = ch->peers[call->shard];
    uint64_t pages_max;
    int r;

    pst_assert(call->magic == PST_CALL_MAGIC);
    pst_assert(ch->state == CHANNEL_UP);
    if (!call->values_in_bulk || call->replied)
        return true;
    /* However scattered its pages, the node receives a message into a bounded number of pieces: into one
     * where remote DMA reads no more. */
    pages_max = pst_peer_direct(peer) ? 1 : PST_NET_BULK_IOV_MAX - 8;
    r = pst_bulk_send(peer, &head, next_piece, call, pages_max * ch->welcome.page_bytes, &call->bulk_out,
                      call, &call->bulks_out, &call->sends);
    if (r < 0 && r != -EBUSY && r != -EAGAIN)
        pst_channel_break(ch, r);
    return r == 0;
}

static int send_body(struct pst_call *call)
{
    struct pst_channel *ch = call->channel;
    uint64_t now_ns = pst_now_ns();
    struct pst_wire_traced_head header;
    size_t header_bytes = sizeof(header.head);
    int r;

    header.head = (struct pst_wire_head){
        .type = PST_WIRE_REQUEST,
        .version = (uint8_t)ch->welcome.version,
        .count = call->count,
        .request = call->id,
        .token = ch->welcome.token,
        .timeout_ms = (uint32_t)pst_max(pst_min(pst_ms_left(call->deadline_ns, now_ns), UINT32_MAX), 1),
    };
    if (pst_unlikely(call->trace)) {
        header.trace = *call->trace;
        header_bytes = PST_WIRE_TRACED_BYTES;
    }
    r = pst_peer_send(ch->peers[call->shard], (struct pst_bytes){&header, header_bytes},
                      (struct pst_bytes){call->body, call->body_bytes}, call);

    pst_assert(call->count > 0);
    pst_assert(call->body_bytes > 0);
    pst_assert(call->sends == 0);
    if (r == 0)
        call->sends++;
    return r;
}

void pst_call_send(struct pst_call *call)
{
    struct pst_channel *ch = call->channel;
    int r;

    pst_assert(call->magic == PST_CALL_MAGIC);
    pst_assert(call->state == CALL_OPEN);
    if (ch->filling[call->shard] == call)
        ch->filling[call->shard] = NULL;
    pst_list_remove(&call->link);
    ch->submit_ns = 0;
    r = ch->state == CHANNEL_UP ? send_body(call) : -EBUSY;
    if (r == -EBUSY) {
        pst_list_push_back(&ch->unsent, &call->link);
        return;
    }
    pst_list_push_back(&ch->sent, &call->link);
    call->state = CALL_SENT;
    ch->requests += r >= 0;
    call->body_bytes = 0; /* sent: a write in it can no longer be called off */
    if (r < 0)
        pst_channel_break(ch, r);
    else
        send_values(call);
}

void pst_calls_send_unsent(struct pst_channel *ch)
{
    while (ch->state == CHANNEL_UP && !pst_list_empty(&ch->unsent)) {
        struct pst_call *call = pst_list_first(&ch->unsent, struct pst_call, link);

        pst_call_send(call);
        if (call->body_bytes) { /* still busy: back to the front */
            pst_list_remove(&call->link);
            pst_list_push_front(&ch->unsent, &call->link);
            return;
        }
    }
    pst_list_each_safe (it, &ch->sent) {
        if (ch->state == CHANNEL_UP && !send_values(pst_list_entry(it, struct pst_call, link)))
            return;
    }
}

/* There may be millions: once no request has taken RETRIES_MAX of them, the rest is looked at when one is
 * overdue.
 */
void pst_calls_retry_waiting(struct pst_channel *ch, uint64_t now_ns)
{
    bool due = now_ns >= ch->waiting_due_ns;
    bool soon = now_ns < ch->waiting_until_ns;
    struct pst_op_list left = {0};

    pst_assert((ch->waiting.first == NULL) == (ch->waiting.count == 0));
    if (due)
        ch->waiting_due_ns = UINT64_MAX;
    while (ch->waiting.count && (due || (ch->state == CHANNEL_UP && !soon && left.count < RETRIES_MAX))) {
        struct penstock_op *op = pst_op_list_pop(&ch->waiting);

        if (pst_op_deadline(op) <= now_ns) {
            pst_op_end(op, ch->state == CHANNEL_DOWN && ch->down_error ? ch->down_error
                           : op->result == PENSTOCK_BUSY               ? PENSTOCK_BUSY
                                                                       : -ETIMEDOUT);
        } else if (ch->state != CHANNEL_UP || soon || !place_op(ch, op)) {
            add_waiting(ch, &left, op);
        }
    }
    pst_op_list_prepend(&ch->waiting, &left);
    pst_channel_flush(ch);
}

/* ---- ends ---- */

/* What an operation comes to when its session has ended, and with it all that the session held. Return: false
 * when that does not settle it. */
static bool ends_with_session(const struct penstock_op *op, bool sent, int *result)
{
    pst_assert(op->reserved[OP_DONE_LIST]);
    if (pst_op_orphaned(op, result))
        return true;
    if (pst_code_has(op->code, PST_CODE_RETURNS))
        *result = 0;
    else if (op->code == PENSTOCK_WRITE_AT)
        *result = PENSTOCK_MISS;
    else if (sent && pst_code_has(op->code, PST_CODE_WRITES))
        *result = PENSTOCK_UNKNOWN;
    else
        return false;
    return true;
}

/* The node says how much of each value it sends: all of it must have come. */
static bool values_complete(const struct pst_call *call)
{
    pst_assert(call->count <= PST_WIRE_OPS_MAX);
    for (uint32_t i = 0; i < call->count; i++) {
        if (call->announced[i] != call->promised[i])
            return false;
    }
    return true;
}

void pst_call_ready(struct pst_call *call)
{
    struct pst_channel *ch = call->channel;

    pst_assert(call->magic == PST_CALL_MAGIC);
    if (!call->replied || call->sends || call->bulks_arrived < call->bulks_expected)
        return;
    if (!values_complete(call)) {
        pst_channel_break(ch, -EPROTO);
        return;
    }
    for (uint32_t i = 0, members; i < call->count; i += 1 + members) {
        struct penstock_op *op = call->ops[i];

        members = pst_op_members(op);
        if (op->result == PENSTOCK_BUSY && !ch->options.impatient) {
            if (!ch->waiting.count)
                ch->waiting_until_ns = pst_now_ns() + BUSY_RETRY_NS;
            add_waiting(ch, &ch->waiting, op);
            continue;
        }
        if (call->attrs_came[i])
            op->attr_bytes = call->attr_bytes[i];
        if (call->crc_wanted[i] && op->result == 0 && pst_op_crc(op, op->value_bytes) != call->crcs[i])
            op->result = -EBADMSG;
        pst_op_end(op, op->result);
        if (op->code == PST_WIRE_VIEW)
            pst_op_set_session(op, ch->session);
        else if (op->result == 0 && call->replicas[i])
            pst_op_set_copies(op, call->replicas[i]);
    }
    pst_call_free(call);
}

void pst_call_settle(struct pst_call *call, uint64_t now_ns)
{
    bool unsent = call->body_bytes > 0;

    pst_assert(call->magic == PST_CALL_MAGIC);
    pst_assert(call->sends == 0);
    pst_assert(call->bulks_arriving == 0);
    for (uint32_t i = 0, members; i < call->count; i += 1 + members) {
        struct penstock_op *op = call->ops[i];
        int result;

        members = pst_op_members(op);
        if (ends_with_session(op, !unsent, &result))
            pst_op_end(op, result);
        else if (pst_op_deadline(op) <= now_ns)
            pst_op_end(op, -ETIMEDOUT);
        else
            add_waiting(call->channel, &call->channel->waiting, op);
    }
    pst_call_free(call);
}

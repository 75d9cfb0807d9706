/* SPDX-License-Identifier: Apache-2.0 */
/*
 * answer.c: what comes back: replies, and large values straight into the callers' buffers. The node is
 * authenticated but not believed: an answer that does not fit its request ends the session. One that comes
 * late or a second time is dropped: the transport may do that to any message.
 */
#include "call/call_priv.h"
#include "base/fault.h"

struct bulk_in *pst_bulk_in_cast(void *p)
{
    struct bulk_in *in = p;

    pst_assert(in && in->magic == PST_BULK_IN_MAGIC);
    return in;
}

/* The request that a message belongs to, NULL when it has ended. Return: 0, or -EPROTO: it was never sent. */
static int call_of(struct pst_channel *ch, uint32_t id, struct pst_call **out)
{
    struct pst_call *call = id % CALLS_MAX < ch->call_count ? ch->calls[id % CALLS_MAX] : NULL;

    if (!call || pst_wire_later(id, call->id) || (id == call->id && call->state == CALL_OPEN))
        return -EPROTO;
    pst_assert(call->magic == PST_CALL_MAGIC);
    *out = id == call->id && call->state == CALL_SENT ? call : NULL;
    return 0;
}

/* How much data the answer to an operation may bring. */
static uint64_t answer_room(const struct penstock_op *op)
{
    if (op->code == PENSTOCK_RESERVE)
        return sizeof(struct penstock_reservation) - 1;
    return op->code == PENSTOCK_GET || pst_code_has(op->code, PST_CODE_ANSWERS) ? op->bytes : 0;
}

/* The location is as long as it says: it is sent back with the commit. */
static bool reservation_fits(const struct pst_wire_result *result)
{
    struct pst_wire_reservation reservation;

    pst_assert(result->result == 0);
    if (result->bytes < sizeof(reservation))
        return false;
    memcpy(&reservation, result->data, sizeof(reservation));
    return reservation.location_bytes == result->bytes - sizeof(reservation);
}

/* A read that succeeded brings the range, or the whole value, and no more than there is room for. An exact
 * one leaves none. */
static bool read_fits(const struct penstock_op *op, const struct pst_wire_result *result)
{
    uint64_t wanted = op->flags & PENSTOCK_RANGE ? op->bytes : result->value_bytes;
    uint64_t comes = result->flags & PST_WIRE_IN_BULK ? result->bulk_bytes : result->bytes;

    pst_assert(op->code == PENSTOCK_GET);
    if (result->flags & PST_WIRE_IN_BULK && result->bytes)
        return false;
    if (comes > op->bytes)
        return false;
    if (result->result != 0)
        return true;
    return comes == wanted && (!(op->flags & PENSTOCK_EXACT) || result->value_bytes == op->bytes);
}

/* Attributes into the caller's room, which stays known until the operation ends: it may be asked again. */
static void take_attrs(struct pst_call *call, uint32_t index, const struct pst_bytes *attrs)
{
    struct penstock_op *op = call->ops[index];

    pst_assert(index < call->count);
    pst_assert(op->attrs);
    if (attrs->len)
        memcpy(op->attrs, attrs->data, pst_min(attrs->len, op->attr_bytes));
    call->attrs_came[index] = true;
    call->attr_bytes[index] = (uint16_t)attrs->len;
}

static struct penstock_error_detail error_detail(const struct pst_channel *ch,
                                                 const struct pst_wire_result *result)
{
    pst_assert(result->flags & PST_WIRE_DETAIL);
    if (result->result == -EACCES) /* no bytes, but a right that is missing */
        return (struct penstock_error_detail){.denied = (uint32_t)(result->prefix_bytes & PST_DENIED_RIGHT) |
                                                        ch->grant << PST_DENIED_GRANT_SHIFT};
    return (struct penstock_error_detail){result->limit_bytes, (uint32_t)result->prefix_bytes, 0};
}

/* Return: 0 or -EPROTO when the node sends what was not asked for. */
static int take_result(struct pst_call *call, uint32_t index, const struct pst_wire_result *result)
{
    struct penstock_op *op = call->ops[index];
    uint32_t traits = pst_code_traits(op->code);
    uint64_t room = answer_room(op);
    bool gets = op->code == PENSTOCK_GET;

    pst_assert(index < call->count);
    pst_assert(call->state == CALL_SENT);
    if (op->code == PENSTOCK_RESERVE && result->result == 0 && !reservation_fits(result))
        return -EPROTO;
    if (result->bytes > room || (gets ? !read_fits(op, result) : result->flags & PST_WIRE_IN_BULK))
        return -EPROTO;
    if (result->flags & PST_WIRE_ATTRS &&
        (!(traits & PST_CODE_READS && op->attrs) || result->attrs.len > PST_ATTR_BYTES_MAX))
        return -EPROTO;
    if (result->flags & PST_WIRE_DETAIL && result->result >= 0) /* a failure's: what came has no size then */
        return -EPROTO;
    op->result = result->result;
    if (pst_unlikely(result->flags & PST_WIRE_DETAIL)) {
        op->error_detail = error_detail(call->channel, result);
    } else {
        op->generation = result->generation;
        op->value_bytes = traits & PST_CODE_ANSWERS ? result->bytes : result->value_bytes;
    }
    call->promised[index] = result->flags & PST_WIRE_IN_BULK ? result->bulk_bytes : 0;
    pst_op_copy_in(op, 0, result->data, result->bytes);
    if (op->code == PENSTOCK_RESERVE && result->result == 0)
        op->reservation->location[op->reservation->location_bytes] = 0; /* answer_room() has left a byte */
    if (result->flags & PST_WIRE_ATTRS)
        take_attrs(call, index, &result->attrs);
    call->crc_wanted[index] = result->flags & PST_WIRE_CRC && op->code == PENSTOCK_GET &&
                              !(op->flags & PENSTOCK_RANGE) && result->value_bytes <= op->bytes;
    call->crcs[index] = result->crc;
    call->replicas[index] = result->copies;
    return 0;
}

static int take_reply(struct pst_channel *ch, const struct pst_wire_head *head, struct pst_bytes body)
{
    struct pst_call *call;
    const uint8_t *at = body.data, *end = at + body.len;
    int r = call_of(ch, head->request, &call);

    pst_assert(head->type == PST_WIRE_REPLY);
    if (r < 0 || !call || call->replied)
        return r;
    if (call->count != head->count || head->bulk_count < call->bulks_next)
        return -EPROTO;
    for (uint32_t i = 0; i < head->count; i++) {
        struct pst_wire_result result;

        if (pst_wire_get_result(&at, end, &result) < 0 || take_result(call, i, &result) < 0)
            return -EPROTO;
    }
    if (at != end)
        return -EPROTO;
    pst_assert(call->state == CALL_SENT);
    pst_assert(call->bulks_next <= head->bulk_count);
    call->replied = true;
    call->bulks_expected = head->bulk_count;
    pst_call_ready(call);
    return 0;
}

static int take_welcome(struct pst_channel *ch, const struct pst_wire_head *head)
{
    pst_assert(head->type == PST_WIRE_WELCOME);
    pst_assert(ch->welcomed <= ch->welcome.shard_count);
    if (head->bulk_count >= ch->welcome.shard_count)
        return -EPROTO;
    ch->welcomed += !ch->welcomed_by[head->bulk_count];
    ch->welcomed_by[head->bulk_count] = true;
    return 0;
}

void pst_channel_on_message(struct pst_channel *ch, struct pst_net_event *event)
{
    struct pst_wire_head head;
    int r = pst_wire_get_head(event->header, &head);

    pst_assert(event->kind == PST_NET_EAGER);
    if (r == 0 && head.token == ch->welcome.token) {
        if (head.version != ch->welcome.version)
            r = -EPROTO;
        else if (head.type == PST_WIRE_WELCOME)
            r = take_welcome(ch, &head);
        else if (head.type == PST_WIRE_REPLY)
            r = take_reply(ch, &head, event->data);
        else
            r = -EPROTO;
    }
    pst_msg_free(event->msg);
    if (r < 0)
        pst_channel_break(ch, r);
}

/* Where the parts go. Return: pieces, -E2BIG too many, -EPROTO parts that were not asked for. */
static int bulk_scatter(struct pst_call *call, struct pst_bytes header, struct bulk_in *in, struct iovec *iov)
{
    uint64_t sum = 0;
    int count = 0, r = 0;

    pst_assert(in->part_count <= PST_WIRE_PARTS_MAX);
    for (uint32_t i = 0; i < in->part_count; i++) {
        struct pst_wire_part part = pst_wire_get_part(header, i);
        const struct penstock_op *op = part.op < call->count ? call->ops[part.op] : NULL;
        uint64_t end;

        if (!op || op->code != PENSTOCK_GET || pst_add_overflows(part.offset, part.bytes, &end) ||
            end > op->bytes || !part.bytes || part.offset != call->announced[part.op])
            return -EPROTO;
        call->announced[part.op] = end;
        in->parts[i] = part;
        sum += part.bytes;
    }
    for (uint32_t i = 0; i < in->part_count; i++, count += r) {
        const struct pst_wire_part *part = &in->parts[i];

        r = pst_op_pieces(call->ops[part->op], part->offset, part->bytes, iov + count, PIECES_MAX - count);
        if (r < 0)
            break;
    }
    if (in->part_count && count < PIECES_MAX && r >= 0)
        return count;
    pst_assert(sum > 0);
    pst_assert(!in->bounce);
    in->bounce = malloc(sum);
    if (!in->bounce)
        return -ENOMEM;
    iov[0] = (struct iovec){in->bounce, sum};
    return 1;
}

/* Return: 0 the message is being received, or -errno and it is still the caller's. */
static int bulk_receive(struct pst_call *call, const struct pst_wire_head *head,
                        const struct pst_net_event *event)
{
    struct bulk_in *in = pst_fault(PST_FAULT_call_bulk_enomem) ? NULL : calloc(1, sizeof(*in));
    struct iovec iov[PIECES_MAX];
    uint64_t sum = 0;
    int count;

    pst_assert(call->state == CALL_SENT);
    pst_assert(call->bulks_next == head->bulk_count);
    if (!in)
        return -ENOMEM;
    in->magic = PST_BULK_IN_MAGIC;
    in->call = call;
    in->part_count = head->count;
    count = bulk_scatter(call, event->header, in, iov);
    for (int i = 0; i < count; i++)
        sum += iov[i].iov_len;
    if (count < 0 || sum != event->data.len || pst_msg_receive(event->msg, iov, count, in) < 0) {
        free(in->bounce);
        free(in);
        return -EPROTO;
    }
    call->bulks_next++;
    call->bulks_arriving++;
    return 0;
}

/* More than the reply says would come into buffers that their owner has back. */
static bool wants_bulk(const struct pst_call *call, uint32_t index)
{
    pst_assert(call->state == CALL_SENT);
    pst_assert(call->bulks_arrived <= call->bulks_next);
    return !call->replied || index < call->bulks_expected;
}

/*
 * Takes the message when it is its turn, and those that have waited for it. Return: 0 (it is received, parked
 * or dropped), or -errno and it is still the caller's.
 */
static int take_bulk(struct pst_channel *ch, struct pst_wire_head *head, struct pst_net_event *event)
{
    struct pst_call *call;
    int r = call_of(ch, head->request, &call);

    pst_assert(head->type == PST_WIRE_BULK);
    pst_assert(head->version == ch->welcome.version);
    if (r < 0)
        return r;
    if (call && !wants_bulk(call, head->bulk_count))
        return -EPROTO;
    if (!call || head->bulk_count < call->bulks_next) {
        pst_msg_free(event->msg);
        return 0;
    }
    if (head->bulk_count > call->bulks_next)
        return pst_bulk_park_add(&ch->park, head, event);
    do
        r = bulk_receive(call, head, event);
    while (r == 0 && wants_bulk(call, call->bulks_next) &&
           pst_bulk_park_take(&ch->park, call->id, call->bulks_next, head, event));
    return r;
}

void pst_channel_on_bulk(struct pst_channel *ch, struct pst_net_event *event)
{
    struct pst_wire_head head;
    int r = pst_wire_get_head(event->header, &head);

    pst_assert(event->kind == PST_NET_BULK);
    if (ch->state != CHANNEL_UP) { /* the memory that it is for is about to be given back */
        pst_msg_free(event->msg);
        return;
    }
    /* Of a peer of ours: while something of a stranger's is received, the session could not end. */
    if (r == 0 && event->arg == ch && head.type == PST_WIRE_BULK && head.token == ch->welcome.token &&
        head.version == ch->welcome.version)
        r = take_bulk(ch, &head, event);
    else
        r = -EPROTO;
    if (r == 0)
        return;
    pst_msg_free(event->msg);
    pst_channel_break(ch, -EPROTO);
}

void pst_channel_on_received(struct bulk_in *in, int status)
{
    struct pst_call *call = in->call;

    pst_assert(call->magic == PST_CALL_MAGIC);
    pst_assert(call->state == CALL_SENT);
    pst_assert(call->bulks_arriving > 0);
    if (in->bounce && status == 0) {
        const uint8_t *from = in->bounce;

        for (uint32_t i = 0; i < in->part_count; from += in->parts[i++].bytes) {
            const struct pst_wire_part *part = &in->parts[i];

            pst_op_copy_in(call->ops[part->op], part->offset, from, part->bytes);
        }
    }
    call->bulks_arriving--;
    free(in->bounce);
    free(in);
    if (status < 0) {
        pst_channel_break(call->channel, status);
        return;
    }
    call->bulks_arrived++;
    pst_assert(call->bulks_arrived <= call->bulks_next);
    pst_call_ready(call);
}

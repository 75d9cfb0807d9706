/*
 * answer.c: what comes back: replies, and large values straight into the callers' buffers. The node is
 * authenticated but not believed: an answer that does not fit its request ends the session.
 */
#include "call/call_priv.h"

struct bulk_in *pst_bulk_in_cast(void *p)
{
    struct bulk_in *in = p;

    pst_assert(in && in->magic == PST_BULK_IN_MAGIC);
    return in;
}

static struct pst_call *call_of(struct pst_channel *ch, uint32_t id)
{
    struct pst_call *call = id % CALLS_MAX < ch->call_count ? ch->calls[id % CALLS_MAX] : NULL;

    return call && call->id == id ? call : NULL;
}

/* Return: 0 or -EPROTO when the node sends what was not asked for. */
static int take_result(struct pst_call *call, uint32_t index, const struct pst_wire_result *result)
{
    struct penstock_op *op = call->ops[index];
    bool reads = op->code == PENSTOCK_GET || op->code >= PST_WIRE_LIST;

    if (!reads && result->bytes)
        return -EPROTO;
    if (reads &&
        (result->bytes > op->bytes || (result->flags & PST_WIRE_IN_BULK && result->bulk_bytes > op->bytes)))
        return -EPROTO;
    op->result = result->result;
    op->generation = result->generation;
    op->value_bytes = op->code >= PST_WIRE_LIST ? result->bytes : result->value_bytes;
    if (op->code == PST_WIRE_VIEW)
        op->if_generation = call->channel->session;
    call->promised[index] = result->flags & PST_WIRE_IN_BULK ? result->bulk_bytes : 0;
    pst_op_copy_in(op, 0, result->data, result->bytes);
    if (result->flags & PST_WIRE_ATTRS && op->attrs) {
        if (result->attrs.len)
            memcpy(op->attrs, result->attrs.data, pst_min(result->attrs.len, op->attr_bytes));
        op->attr_bytes = (uint16_t)result->attrs.len;
    }
    call->crc_wanted[index] = result->flags & PST_WIRE_CRC && op->code == PENSTOCK_GET &&
                              !(op->flags & PENSTOCK_RANGE) && result->value_bytes <= op->bytes;
    call->crcs[index] = result->crc;
    return 0;
}

static int take_reply(struct pst_channel *ch, const struct pst_wire_head *head, struct pst_bytes body)
{
    struct pst_call *call = call_of(ch, head->request);
    const uint8_t *at = body.data, *end = at + body.len;

    if (!call || call->replied || call->count != head->count)
        return -EPROTO;
    for (uint32_t i = 0; i < head->count; i++) {
        struct pst_wire_result result;

        if (pst_wire_get_result(&at, end, &result) < 0 || take_result(call, i, &result) < 0)
            return -EPROTO;
    }
    if (at != end)
        return -EPROTO;
    call->replied = true;
    call->bulks_expected = head->bulk_count;
    pst_call_ready(call);
    return 0;
}

void pst_channel_on_message(struct pst_channel *ch, struct pst_net_event *event)
{
    struct pst_wire_head head;
    int r = pst_wire_get_head(event->header, &head);

    if (r == 0 && head.token == ch->welcome.token) {
        if (head.type == PST_WIRE_WELCOME)
            ch->welcomed++;
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
static int scatter(struct pst_call *call, struct pst_bytes header, struct bulk_in *in, struct iovec *iov)
{
    uint64_t sum = 0;
    int count = 0, r;

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
    in->bounce = malloc(sum);
    if (!in->bounce)
        return -ENOMEM;
    iov[0] = (struct iovec){in->bounce, sum};
    return 1;
}

void pst_channel_on_bulk(struct pst_channel *ch, struct pst_net_event *event)
{
    struct iovec iov[PIECES_MAX];
    struct pst_wire_head head;
    struct pst_call *call;
    struct bulk_in *in = NULL;
    int r = pst_wire_get_head(event->header, &head), count;
    uint64_t sum = 0;

    if (r < 0 || head.type != PST_WIRE_BULK || head.token != ch->welcome.token ||
        !(call = call_of(ch, head.request)))
        goto refuse;
    in = calloc(1, sizeof(*in));
    if (!in)
        goto refuse;
    in->magic = PST_BULK_IN_MAGIC;
    in->call = call;
    in->part_count = head.count;
    count = scatter(call, event->header, in, iov);
    if (count < 0)
        goto refuse;
    for (int i = 0; i < count; i++)
        sum += iov[i].iov_len;
    if (sum != event->data.len || pst_msg_receive(event->msg, iov, count, in) < 0)
        goto refuse;
    call->bulks_arriving++;
    return;
refuse:
    if (in)
        free(in->bounce);
    free(in);
    pst_msg_free(event->msg);
    pst_channel_break(ch, -EPROTO);
}

void pst_channel_on_received(struct bulk_in *in, int status)
{
    struct pst_call *call = in->call;

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
    pst_call_ready(call);
}

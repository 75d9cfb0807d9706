/* SPDX-License-Identifier: Apache-2.0 */
#include "call/bulk.h"

/* One message while it is put together. */
struct pack {
    struct pst_wire_head head;
    struct pst_wire_part parts[PST_WIRE_PARTS_MAX];
    struct iovec iov[PST_WIRE_PARTS_MAX];
    uint64_t bytes;
};

/* Adds a piece. Return: false when it belongs into another message. */
static bool pack_add(struct pack *pack, uint32_t op, uint64_t offset, struct iovec piece)
{
    uint16_t count = pack->head.count;

    pst_assert(count <= PST_WIRE_PARTS_MAX);
    pst_assert(piece.iov_len > 0);
    if (count == PST_WIRE_PARTS_MAX || (count && pack->bytes + piece.iov_len > PST_NET_PACK_BYTES_MAX))
        return false;
    pack->parts[count] = (struct pst_wire_part){.op = op, .offset = offset, .bytes = piece.iov_len};
    pack->iov[count] = piece;
    pack->bytes += piece.iov_len;
    pack->head.count++;
    return true;
}

/* Fills @pack from @cursor on and leaves @cursor behind it. @alone_bytes_min: a piece of so much travels
 * alone. Return: false when there was nothing. */
static bool pack_fill(struct pack *pack, pst_bulk_next next, void *ctx, uint64_t piece_bytes_max,
                      uint64_t alone_bytes_min, struct pst_bulk_cursor *cursor)
{
    struct iovec piece;
    uint32_t op;

    pst_assert(piece_bytes_max > 0);
    pst_assert(pack->head.type == PST_WIRE_BULK);
    pack->head.count = 0;
    pack->bytes = 0;
    while (next(ctx, cursor, &piece, &op)) {
        bool alone = piece.iov_len >= alone_bytes_min;

        if (alone && pack->head.count)
            break;
        piece.iov_len = pst_min(piece.iov_len, piece_bytes_max);
        if (!pack_add(pack, op, cursor->offset, piece))
            break;
        cursor->offset += piece.iov_len;
        if (alone)
            break;
    }
    pst_assert(pack->head.count <= PST_WIRE_PARTS_MAX);
    return pack->head.count > 0;
}

int pst_bulk_send(struct pst_peer *peer, const struct pst_wire_head *head, pst_bulk_next next, void *ctx,
                  uint64_t piece_bytes_max, struct pst_bulk_cursor *cursor, void *arg, uint32_t *messages,
                  uint32_t *underway)
{
    struct pack pack = {.head = *head};
    struct pst_bulk_cursor behind = *cursor;
    uint64_t alone_bytes_min = pst_peer_direct(peer) ? PST_BULK_DIRECT_BYTES_MIN : PST_BULK_ALONE_BYTES_MIN;

    pst_assert(head->type == PST_WIRE_BULK);
    pst_assert(messages);
    while (pack_fill(&pack, next, ctx, piece_bytes_max, alone_bytes_min, &behind)) {
        struct pst_bytes header = {&pack, sizeof(pack.head) + pack.head.count * sizeof(pack.parts[0])};
        int r;

        pack.head.bulk_count = *messages;
        r = *underway < PST_BULK_UNDERWAY_MAX
                ? pst_peer_send_bulk(peer, header, pack.iov, pack.head.count, arg)
                : -EAGAIN;
        if (r < 0)
            return r;
        *underway += r == 0;
        pst_assert(*underway <= PST_BULK_UNDERWAY_MAX);
        ++*messages;
        *cursor = behind;
        if (pack.head.count > 1)
            return -EBUSY;
    }
    return 0;
}

/* ---- before their turn ---- */

struct parked {
    struct pst_list link;
    struct pst_wire_head head;
    struct pst_net_event event;
};

void pst_bulk_park_init(struct pst_bulk_park *park)
{
    pst_list_init(&park->parked);
    park->count = 0;
}

static struct parked *parked_find(struct pst_bulk_park *park, uint32_t request, uint32_t index)
{
    pst_assert(park->count <= PST_BULK_PARKED_MAX);
    pst_list_each (it, &park->parked) {
        struct parked *parked = pst_list_entry(it, struct parked, link);

        if (parked->head.request == request && parked->head.bulk_count == index)
            return parked;
    }
    return NULL;
}

static void parked_free(struct pst_bulk_park *park, struct parked *parked)
{
    pst_assert(park->count > 0);
    park->count--;
    pst_list_remove(&parked->link);
    free(parked);
}

int pst_bulk_park_add(struct pst_bulk_park *park, const struct pst_wire_head *head,
                      const struct pst_net_event *event)
{
    struct parked *parked;

    pst_assert(head->type == PST_WIRE_BULK);
    pst_assert(event->kind == PST_NET_BULK);
    if (parked_find(park, head->request, head->bulk_count)) {
        pst_msg_free(event->msg);
        return 0;
    }
    if (park->count == PST_BULK_PARKED_MAX)
        return -ENOBUFS;
    parked = malloc(sizeof(*parked));
    if (!parked)
        return -ENOMEM;
    *parked = (struct parked){.head = *head, .event = *event};
    pst_list_push_back(&park->parked, &parked->link);
    park->count++;
    pst_assert(park->count <= PST_BULK_PARKED_MAX);
    return 0;
}

bool pst_bulk_park_take(struct pst_bulk_park *park, uint32_t request, uint32_t index,
                        struct pst_wire_head *head, struct pst_net_event *event)
{
    struct parked *parked = park->count ? parked_find(park, request, index) : NULL;

    pst_assert(park->count <= PST_BULK_PARKED_MAX);
    if (!parked)
        return false;
    pst_assert(parked->event.kind == PST_NET_BULK);
    pst_assert(parked->head.request == request);
    *head = parked->head;
    *event = parked->event;
    parked_free(park, parked);
    return true;
}

void pst_bulk_park_drop(struct pst_bulk_park *park, uint32_t request)
{
    pst_assert(pst_list_empty(&park->parked) == (park->count == 0));
    if (park->count == 0)
        return;
    pst_list_each_safe (it, &park->parked) {
        struct parked *parked = pst_list_entry(it, struct parked, link);

        if (parked->head.request != request)
            continue;
        pst_msg_free(parked->event.msg);
        parked_free(park, parked);
    }
}

void pst_bulk_park_fini(struct pst_bulk_park *park)
{
    while (park->count > 0)
        pst_bulk_park_drop(park, pst_list_first(&park->parked, struct parked, link)->head.request);
    pst_assert(pst_list_empty(&park->parked));
}

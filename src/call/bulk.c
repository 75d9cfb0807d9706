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

    if (count == PST_WIRE_PARTS_MAX || (count && pack->bytes + piece.iov_len > PST_NET_PACK_BYTES_MAX))
        return false;
    pack->parts[count] = (struct pst_wire_part){.op = op, .offset = offset, .bytes = piece.iov_len};
    pack->iov[count] = piece;
    pack->bytes += piece.iov_len;
    pack->head.count++;
    return true;
}

/* Fills @pack from @cursor on and leaves @cursor behind it. Return: false when there was nothing. */
static bool pack_fill(struct pack *pack, pst_bulk_next next, void *ctx, uint64_t piece_bytes_max,
                      struct pst_bulk_cursor *cursor)
{
    struct iovec piece;
    uint32_t op;

    pack->head.count = 0;
    pack->bytes = 0;
    while (next(ctx, cursor, &piece, &op)) {
        bool alone = piece.iov_len >= PST_BULK_ALONE_BYTES_MIN;

        pst_assert(piece.iov_len > 0);
        if (alone && pack->head.count)
            break;
        piece.iov_len = pst_min(piece.iov_len, piece_bytes_max);
        if (!pack_add(pack, op, cursor->offset, piece))
            break;
        cursor->offset += piece.iov_len;
        if (alone)
            break;
    }
    return pack->head.count > 0;
}

int pst_bulk_send(struct pst_peer *peer, const struct pst_wire_head *head, pst_bulk_next next, void *ctx,
                  uint64_t piece_bytes_max, struct pst_bulk_cursor *cursor, void *arg, uint32_t *messages,
                  uint32_t *underway)
{
    struct pack pack = {.head = *head};
    struct pst_bulk_cursor behind = *cursor;

    pst_assert(head->type == PST_WIRE_BULK);
    while (pack_fill(&pack, next, ctx, piece_bytes_max, &behind)) {
        struct pst_bytes header = {&pack, sizeof(pack.head) + pack.head.count * sizeof(pack.parts[0])};
        int r = *underway < PST_BULK_UNDERWAY_MAX
                    ? pst_peer_send_bulk(peer, header, pack.iov, pack.head.count, arg)
                    : -EAGAIN;

        if (r < 0)
            return r;
        *underway += r == 0;
        if (messages)
            ++*messages;
        *cursor = behind;
        if (pack.head.count > 1)
            return -EBUSY;
    }
    return 0;
}

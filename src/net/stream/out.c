/* SPDX-License-Identifier: Apache-2.0 */
/* out.c: frames on their way out. Many of them leave with one system call. */
#include "net/stream/stream_priv.h"

enum {
    WRITE_IOV_MAX = 64,
    WRITE_BYTES = 1 << 20, /* of one system call */
    WRITES_MAX = 4,        /* before others have their turn */
};

static struct stream_letter *letter_of(struct stream_out *out)
{
    return pst_container_of(out, struct stream_letter, out);
}

static void letter_free(struct stream_out *out)
{
    struct stream_letter *letter = letter_of(out);

    pst_assert(letter->peer->queued_bytes >= out->front_bytes);
    letter->peer->queued_bytes -= out->front_bytes;
    free(letter);
}

static void letter_written(struct stream_out *out)
{
    struct stream_op *op = out->op;

    letter_free(out);
    if (op)
        stream_op_end(op, 0);
}

struct stream_letter *stream_letter_new(struct stream_peer *peer, struct pst_bytes head,
                                        struct pst_bytes header, struct pst_bytes data)
{
    size_t bytes = head.len + header.len + data.len;
    struct stream_letter *letter = malloc(sizeof(*letter) + bytes);

    pst_assert(header.len <= PST_NET_HEADER_BYTES_MAX);
    pst_assert(data.len <= PST_NET_EAGER_BYTES_MAX);
    if (!letter)
        return NULL;
    letter->peer = peer;
    letter->out = (struct stream_out){.front = letter->front,
                                      .front_bytes = (uint32_t)bytes,
                                      .written = letter_written,
                                      .dropped = letter_free};
    pst_list_init(&letter->out.link);
    memcpy(letter->front, head.data, head.len);
    if (header.len)
        memcpy(letter->front + head.len, header.data, header.len);
    if (data.len)
        memcpy(letter->front + head.len + header.len, data.data, data.len);
    peer->queued_bytes += bytes;
    return letter;
}

void stream_out_push(struct stream_peer *peer, struct stream_out *out)
{
    pst_assert(peer->state != STREAM_PEER_OVER);
    pst_assert(pst_list_empty(&out->link));
    pst_assert(out->front_bytes > 0);
    pst_assert(out->front_done == 0);
    pst_assert(out->op || out->body_left == 0);
    pst_list_push_back(&peer->outs, &out->link);
}

/* ---- the bytes of a bulk message ---- */

static void body_prepare(struct stream_op *op)
{
    pst_assert(op->state == STREAM_OP_SENDS);
    pst_assert(op->left > 0);
    op->head.body_bytes = (uint32_t)pst_min(op->left, STREAM_BODY_BYTES_MAX);
    op->out.front_done = 0;
    op->out.body_left = op->head.body_bytes;
    stream_out_push(op->peer, &op->out);
}

static void body_written(struct stream_out *out)
{
    struct stream_op *op = pst_container_of(out, struct stream_op, out);

    pst_assert(op->magic == STREAM_OP_MAGIC);
    pst_assert(out->body_left == 0);
    if (op->left == 0)
        stream_op_end(op, 0);
    else
        body_prepare(op);
}

static void body_dropped(struct stream_out *out)
{
    pst_assert(pst_list_empty(&out->link)); /* it is its operation's, which ends by itself */
}

void stream_body_begin(struct stream_op *op, uint64_t to)
{
    pst_assert(op->state == STREAM_OP_ANNOUNCED);
    op->state = STREAM_OP_SENDS;
    op->head = (struct stream_head){.type = STREAM_BODY, .id = to};
    op->out = (struct stream_out){.front = (const uint8_t *)&op->head,
                                  .front_bytes = sizeof(op->head),
                                  .op = op,
                                  .written = body_written,
                                  .dropped = body_dropped};
    pst_list_init(&op->out.link);
    body_prepare(op);
}

/* ---- writing ---- */

/* The pieces that go next. Return: their number; *@total: their bytes. */
static int gather(const struct stream_peer *peer, struct iovec *iov, size_t *total)
{
    int count = 0;

    *total = 0;
    pst_list_each (it, &peer->outs) {
        const struct stream_out *out = pst_list_entry(it, struct stream_out, link);
        uint32_t front = out->front_bytes - out->front_done;
        size_t body = out->body_left;

        if (count + 1 >= WRITE_IOV_MAX || *total >= WRITE_BYTES)
            break;
        if (front > 0)
            iov[count++] = (struct iovec){(void *)(uintptr_t)(out->front + out->front_done), front};
        *total += front;
        if (body == 0)
            continue;
        count += stream_op_pieces(out->op, &body, iov + count, WRITE_IOV_MAX - count);
        *total += body;
        if (body < out->body_left)
            break;
    }
    pst_assert(count <= WRITE_IOV_MAX);
    return count;
}

static void outs_advance(struct stream_peer *peer, size_t bytes)
{
    while (bytes > 0) {
        struct stream_out *out = pst_list_first(&peer->outs, struct stream_out, link);
        uint32_t front = (uint32_t)pst_min(bytes, out->front_bytes - out->front_done);
        size_t body = pst_min(bytes - front, out->body_left);

        pst_assert(!pst_list_empty(&peer->outs));
        pst_assert(front + body > 0);
        out->front_done += front;
        out->body_left -= body;
        if (body > 0)
            stream_op_advance(out->op, body);
        bytes -= front + body;
        if (out->front_done < out->front_bytes || out->body_left > 0)
            continue;
        pst_list_remove(&out->link);
        out->written(out);
    }
}

void stream_out_flush(struct stream_peer *peer)
{
    for (int i = 0; i < WRITES_MAX && peer->state == STREAM_PEER_UP && !pst_list_empty(&peer->outs); i++) {
        struct iovec iov[WRITE_IOV_MAX];
        size_t total;
        int count = gather(peer, iov, &total);
        ssize_t n = stream_channel_writev(peer->channel, iov, count);

        pst_assert(n <= (ssize_t)total);
        if (n == -EAGAIN) {
            peer->blocked = true;
            stream_peer_changed(peer);
            return;
        }
        if (n < 0) {
            stream_peer_lose(peer, (int)n);
            return;
        }
        outs_advance(peer, (size_t)n);
    }
    if (peer->blocked) {
        peer->blocked = false;
        stream_peer_changed(peer);
    }
    if (peer->state == STREAM_PEER_UP && !pst_list_empty(&peer->outs))
        stream_peer_turn(peer);
}

void stream_out_hurry(struct stream_peer *peer)
{
    if (peer->state != STREAM_PEER_UP || peer->blocked)
        return;
    stream_peer_turn(peer);
    if (peer->wrote && stream_port_of(peer)->busy)
        return;
    peer->wrote = true;
    stream_out_flush(peer);
}

void stream_outs_drop(struct stream_peer *peer)
{
    while (!pst_list_empty(&peer->outs)) {
        struct stream_out *out = pst_list_first(&peer->outs, struct stream_out, link);

        pst_list_remove(&out->link);
        out->dropped(out);
    }
    pst_assert(peer->queued_bytes == 0);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* in.c: what comes over a peer's channel, and what the receiver does with it. */
#include "net/stream/stream_priv.h"

enum {
    READ_IOV_MAX = 64,
    READ_AHEAD_BYTES = 4096, /* while bulk messages come: what is read ahead is copied */
    PEERS_OF_ALL_OPS = 64,   /* that take nothing hold all operations of a port between them */
    EAGERS_MIN = 16,         /* one peer's share is no less */
};

/* ---- messages ---- */

/* A peer that this side dialled does not rest for what it has not taken: two sides that wait for each other
 * to read would stand still. */
static uint32_t eagers_max(const struct stream_peer *peer)
{
    uint32_t share = stream_port_of(peer)->ops_max / PEERS_OF_ALL_OPS;

    return peer->to_bytes > 0 ? UINT32_MAX : (uint32_t)pst_max(share, EAGERS_MIN);
}

void stream_in_weigh(struct stream_peer *peer)
{
    uint32_t share = eagers_max(peer);

    if (peer->state == STREAM_PEER_OVER)
        return;
    if (!peer->rests && (peer->msg_count >= STREAM_MSGS_MAX || peer->msg_bytes >= STREAM_MSG_BYTES_MAX ||
                         peer->eagers >= share)) {
        peer->rests = true;
        stream_peer_changed(peer);
    } else if (peer->rests && peer->msg_count <= STREAM_MSGS_MAX / 2 &&
               peer->msg_bytes <= STREAM_MSG_BYTES_MAX / 2 && peer->eagers <= share / 2) {
        peer->rests = false;
        stream_peer_changed(peer);
        stream_peer_turn(peer); /* the channel may have read more than it was asked for */
    }
}

static void peer_hold(struct stream_peer *peer, const struct stream_msg *msg)
{
    peer->msg_count++;
    peer->msg_bytes += msg->bytes_count;
    stream_in_weigh(peer);
}

static void peer_unhold(struct stream_peer *peer, const struct stream_msg *msg)
{
    pst_assert(peer->msg_count > 0);
    pst_assert(peer->msg_bytes >= msg->bytes_count);
    peer->msg_count--;
    peer->msg_bytes -= msg->bytes_count;
    stream_in_weigh(peer);
}

/* Off its lists: the caller's, to be freed. */
static void msg_take_off(struct stream_msg *msg)
{
    pst_assert(msg->base.magic == PST_MSG_MAGIC);
    pst_assert(pst_list_empty(&msg->node.link));
    pst_list_remove(&msg->link);
    if (msg->peer)
        peer_unhold(msg->peer, msg);
    msg->base.magic = 0;
}

static struct stream_msg *msg_new(struct stream_peer *peer, const struct stream_head *head)
{
    uint32_t bytes = head->header_bytes + head->body_bytes;
    struct stream_msg *msg = malloc(sizeof(*msg) + bytes);

    pst_assert(bytes >= head->header_bytes);
    if (!msg)
        return NULL;
    *msg = (struct stream_msg){.base = {.magic = PST_MSG_MAGIC, .port = peer->base.port},
                               .peer = peer,
                               .id = head->id,
                               .bytes_count = bytes};
    pst_list_init(&msg->node.link);
    msg->node.event = (struct pst_net_event){.kind = PST_NET_EAGER,
                                             .msg = &msg->base,
                                             .header = {msg->bytes, head->header_bytes},
                                             .data = {msg->bytes + head->header_bytes, head->body_bytes}};
    if (head->type == STREAM_BULK) {
        msg->base.bulk_bytes = head->value;
        msg->node.event.kind = PST_NET_BULK;
        msg->node.event.arg = peer->base.ctx;
        msg->node.event.data = (struct pst_bytes){NULL, head->value};
    }
    pst_list_push_back(&peer->msgs, &msg->link);
    peer_hold(peer, msg);
    return msg;
}

void stream_msgs_orphan(struct stream_peer *peer)
{
    struct stream_msg *half = peer->in.msg;

    if (half) { /* of which nobody has heard */
        peer->in.msg = NULL;
        msg_take_off(half);
        free(half);
    }
    pst_list_each_safe (it, &peer->msgs) {
        struct stream_msg *msg = pst_list_entry(it, struct stream_msg, link);

        pst_list_remove(&msg->link);
        peer_unhold(peer, msg);
        msg->peer = NULL;
        pst_list_push_back(&stream_port_of(peer)->orphans, &msg->link);
    }
    pst_assert(peer->msg_count == 0);
    pst_assert(peer->msg_bytes == 0);
}

static void answer_free(struct stream_out *out)
{
    free(pst_container_of(out, struct stream_msg, answer));
}

/* Answers a bulk message, whose memory carries the answer. */
static void msg_answer(struct stream_msg *msg, enum stream_type type, uint64_t value)
{
    struct stream_peer *peer = msg->peer;

    pst_assert(peer);
    pst_assert(msg->base.bulk_bytes > 0);
    msg_take_off(msg);
    msg->answer_head = (struct stream_head){.type = (uint8_t)type, .id = msg->id, .value = value};
    msg->answer = (struct stream_out){.front = (const uint8_t *)&msg->answer_head,
                                      .front_bytes = sizeof(msg->answer_head),
                                      .written = answer_free,
                                      .dropped = answer_free};
    pst_list_init(&msg->answer.link);
    stream_out_push(peer, &msg->answer);
    stream_out_hurry(peer);
}

int stream_msg_receive(struct pst_msg *base, const struct iovec *iov, int iov_count, void *arg)
{
    struct stream_msg *msg = stream_msg_cast(base);
    struct stream_op *op =
        stream_op_take(stream_port_cast(base->port), PST_NET_RECEIVED, iov, iov_count, arg);

    pst_assert(pst_list_empty(&msg->node.link));
    if (!op)
        return -EBUSY;
    if (!msg->peer) {
        stream_op_end(op, -ECANCELED);
        msg_take_off(msg);
        free(msg);
        return 0;
    }
    stream_op_start(op, msg->peer, STREAM_OP_RECEIVES);
    msg_answer(msg, STREAM_GO, stream_op_id(op));
    return 0;
}

void stream_msg_free(struct pst_msg *base)
{
    struct stream_msg *msg = stream_msg_cast(base);

    pst_assert(pst_list_empty(&msg->node.link));
    if (msg->peer && base->bulk_bytes > 0) {
        msg_answer(msg, STREAM_REFUSED, 0);
        return;
    }
    msg_take_off(msg);
    free(msg);
}

/* ---- frames ---- */

/* The other side answered an announcement. Return: 0 or -EPROTO. */
static int on_answer(struct stream_peer *peer, const struct stream_head *head)
{
    struct stream_op *op = stream_op_find(peer, head->id, STREAM_OP_ANNOUNCED);

    if (!op)
        return -EPROTO;
    if (head->type == STREAM_REFUSED) {
        stream_op_end(op, -ECANCELED);
        return 0;
    }
    stream_body_begin(op, head->value);
    if (!peer->blocked)
        stream_peer_turn(peer);
    return 0;
}

static int on_body(struct stream_peer *peer, const struct stream_head *head)
{
    struct stream_op *op = stream_op_find(peer, head->id, STREAM_OP_RECEIVES);

    if (!op || head->body_bytes > op->left)
        return -EPROTO;
    peer->in.op = op;
    peer->in.body_left = head->body_bytes;
    return 0;
}

/* A whole head has come. Return: 0, -EPROTO, -ENOMEM. */
static int on_head(struct stream_peer *peer)
{
    const struct stream_head *head = &peer->in.head;
    int r = stream_head_check(head);

    pst_assert(peer->in.head_bytes == STREAM_HEAD_BYTES);
    pst_assert(!peer->in.msg);
    pst_assert(!peer->in.op);
    if (r < 0)
        return r;
    switch (head->type) {
    case STREAM_GO:
    case STREAM_REFUSED:
        return on_answer(peer, head);
    case STREAM_BODY:
        return on_body(peer, head);
    default:
        peer->in.msg = msg_new(peer, head);
        peer->in.msg_done = 0;
        return peer->in.msg ? 0 : -ENOMEM;
    }
}

/* What the head announced has come, or the head announced nothing. */
static void frame_ends(struct stream_peer *peer)
{
    struct stream_in *in = &peer->in;
    struct stream_msg *msg = in->msg;
    struct stream_op *op = in->op;

    pst_assert(!msg || in->msg_done == msg->bytes_count);
    pst_assert(!op || in->body_left == 0);
    in->msg = NULL;
    in->op = NULL;
    in->head_bytes = 0;
    if (msg)
        pst_port_ready(peer->base.port, &msg->node);
    if (op && op->left == 0)
        stream_op_end(op, 0);
}

static size_t frame_left(const struct stream_in *in)
{
    if (in->msg)
        return in->msg->bytes_count - in->msg_done;
    return in->op ? in->body_left : 0;
}

/* ---- bytes ---- */

/* Return: bytes used of those that are there, or -errno. */
static ssize_t parse_some(struct stream_peer *peer, const uint8_t *data, size_t bytes)
{
    struct stream_in *in = &peer->in;
    size_t n;

    if (in->head_bytes < STREAM_HEAD_BYTES) {
        int r;

        n = pst_min(bytes, STREAM_HEAD_BYTES - in->head_bytes);
        memcpy((uint8_t *)&in->head + in->head_bytes, data, n);
        in->head_bytes += (uint32_t)n;
        r = in->head_bytes == STREAM_HEAD_BYTES ? on_head(peer) : 0;
        if (r < 0)
            return r;
    } else {
        n = pst_min(bytes, frame_left(in));
        if (in->msg) {
            memcpy(in->msg->bytes + in->msg_done, data, n);
            in->msg_done += (uint32_t)n;
        } else {
            stream_op_fill(in->op, data, n);
            in->body_left -= (uint32_t)n;
        }
    }
    if (in->head_bytes == STREAM_HEAD_BYTES && frame_left(in) == 0)
        frame_ends(peer);
    return (ssize_t)n;
}

void stream_in_parse(struct stream_peer *peer, const uint8_t *data, size_t bytes)
{
    while (bytes > 0 && peer->state == STREAM_PEER_UP) {
        ssize_t n = parse_some(peer, data, bytes);

        if (n < 0) {
            stream_peer_lose(peer, (int)n);
            return;
        }
        pst_assert(n > 0);
        pst_assert((size_t)n <= bytes);
        data += n;
        bytes -= (size_t)n;
    }
}

/* Where the next bytes go. Return: pieces; *@direct: bytes of them that the current frame takes. */
static int read_pieces(struct stream_peer *peer, struct iovec *iov, size_t *direct)
{
    struct stream_port *port = stream_port_of(peer);
    struct stream_in *in = &peer->in;
    int count = 0;

    *direct = frame_left(in);
    if (in->op) {
        count = stream_op_pieces(in->op, direct, iov, READ_IOV_MAX);
        if (*direct < in->body_left)
            return count;
    } else if (in->msg) {
        iov[count++] = (struct iovec){in->msg->bytes + in->msg_done, *direct};
    }
    iov[count++] = (struct iovec){port->scratch, peer->receives ? READ_AHEAD_BYTES : sizeof(port->scratch)};
    return count;
}

static void direct_came(struct stream_peer *peer, size_t bytes)
{
    struct stream_in *in = &peer->in;

    if (in->msg) {
        in->msg_done += (uint32_t)bytes;
    } else {
        stream_op_advance(in->op, bytes);
        in->body_left -= (uint32_t)bytes;
    }
    if (frame_left(in) == 0)
        frame_ends(peer);
}

bool stream_in_read(struct stream_peer *peer)
{
    struct iovec iov[READ_IOV_MAX + 1];
    size_t direct;
    int count = read_pieces(peer, iov, &direct);
    ssize_t n = stream_channel_readv(peer->channel, iov, count);

    pst_assert(peer->state == STREAM_PEER_UP);
    pst_assert(!peer->rests);
    if (n == -EAGAIN)
        return false;
    if (n <= 0) {
        stream_peer_lose(peer, n < 0 ? (int)n : -ECONNRESET);
        return true;
    }
    direct = pst_min(direct, (size_t)n);
    if (direct > 0)
        direct_came(peer, direct);
    stream_in_parse(peer, stream_port_of(peer)->scratch, (size_t)n - direct);
    if (peer->state == STREAM_PEER_UP && stream_channel_buffered(peer->channel))
        stream_peer_turn(peer);
    return true;
}

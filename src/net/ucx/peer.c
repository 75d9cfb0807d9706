/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer.c: one UCX endpoint, and what is sent over it. Endpoints report a peer's death and are closed by
 * force, which ends whatever is underway; the peer is gone only when all of that has ended.
 */
#include "net/ucx/ucx_priv.h"

#include "base/clock.h"
#include "base/ms.h"

#include <stdio.h>

_Static_assert(sizeof(struct iovec) == sizeof(ucp_dt_iov_t) &&
                   offsetof(struct iovec, iov_len) == offsetof(ucp_dt_iov_t, length),
               "pieces are handed to UCX as they are");

static struct pst_list *bucket_of(struct ucx_port *port, ucp_ep_h ep)
{
    uint64_t mixed = (uint64_t)(uintptr_t)ep * 0x9e3779b97f4a7c15u;

    _Static_assert(UCX_PEER_BUCKETS == 256, "the eight highest bits");
    pst_assert(ep);
    return &port->peers[mixed >> 56];
}

struct ucx_peer *ucx_peer_find(struct ucx_port *port, ucp_ep_h ep)
{
    pst_list_each (it, bucket_of(port, ep)) {
        struct ucx_peer *peer = pst_list_entry(it, struct ucx_peer, link);

        if (peer->ep == ep)
            return peer;
    }
    return NULL;
}

static void ucx_peer_failed(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    struct ucx_peer *peer = ucx_peer_cast(arg);

    (void)status;
    pst_assert(peer->ep == ep || peer->base.closing || !peer->ep);
    if (!peer->lost && !peer->base.closing)
        pst_port_ready(peer->base.port, &peer->node_lost);
    peer->lost = true;
}

static void node_init(struct pst_event_node *node, enum pst_net_kind kind, void *ctx)
{
    pst_assert(kind == PST_NET_PEER_LOST || kind == PST_NET_PEER_GONE);
    pst_list_init(&node->link);
    node->event = (struct pst_net_event){.kind = kind, .status = kind == PST_NET_PEER_LOST ? -ECONNRESET : 0};
    node->event.arg = ctx;
}

int ucx_peer_open(struct pst_port *base, const void *address, size_t bytes, void *ctx, struct pst_peer **out)
{
    struct ucx_port *port = ucx_port_cast(base);
    struct ucx_peer *peer = NULL;
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = address,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = ucx_peer_failed},
    };
    ucs_status_t status;

    if (!ucx_address_sound(&port->form, address, bytes))
        return -EPROTO;
    params.err_handler.arg = peer = calloc(1, sizeof(*peer));
    if (!peer)
        return -ENOMEM;
    peer->base = (struct pst_peer){.magic = PST_PEER_MAGIC, .port = base, .ctx = ctx};
    node_init(&peer->node_lost, PST_NET_PEER_LOST, ctx);
    node_init(&peer->node_gone, PST_NET_PEER_GONE, ctx);
    pst_list_init(&peer->parting);
    pst_list_init(&peer->held);
    pst_list_init(&peer->opened);
    status = ucp_ep_create(port->worker, &params, &peer->ep);
    if (status != UCS_OK) {
        free(peer);
        return ucx_errno(status);
    }
    pst_assert(peer->ep);
    pst_assert(!ucx_peer_find(port, peer->ep));
    pst_list_push_back(bucket_of(port, peer->ep), &peer->link);
    /* The other side may have connected first and announced something that is being received already. */
    pst_list_each (it, &port->ops_live) {
        struct ucx_op *op = pst_list_entry(it, struct ucx_op, link);

        if (!op->peer && op->ep == peer->ep) {
            op->peer = peer;
            peer->ops_count++;
        }
    }
    *out = &peer->base;
    return 0;
}

void ucx_peer_settle(struct ucx_peer *peer)
{
    pst_assert(peer->base.magic == PST_PEER_MAGIC);
    if (peer->ep || peer->ops_count > 0 || peer->gone)
        return;
    pst_assert(peer->base.closing);
    peer->gone = true;
    pst_port_ready(peer->base.port, &peer->node_gone);
}

void ucx_peer_close_now(struct ucx_peer *peer)
{
    struct pst_port *port = peer->base.port;
    ucp_request_param_t params = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
    ucs_status_ptr_t request;

    pst_assert(peer->base.closing);
    pst_assert(peer->ep);
    pst_list_remove(&peer->parting);
    pst_list_remove(&peer->opened);
    while (!pst_list_empty(&peer->held))
        ucx_op_end(pst_list_first(&peer->held, struct ucx_op, held), -ECANCELED);
    pst_port_unready(port, &peer->node_lost);
    ucx_messages_drop(ucx_port_cast(port), peer->ep);
    request = ucp_ep_close_nbx(peer->ep, &params);
    pst_assert(!UCS_PTR_IS_ERR(request)); /* it is ours, in this error mode, and open */
    if (UCS_PTR_IS_PTR(request))
        ucp_request_free(request);
    peer->ep = NULL;
    ucx_peer_settle(peer);
}

/*
 * A peer that has died may have left its request to connect in the socket. Should UCX find that behind the
 * close, it makes a new endpoint, queues an answer there, and aborts the process when that cannot be sent. So
 * an endpoint that may still be asked stays until UCX has read its socket to the end.
 */
void ucx_peer_close(struct pst_peer *base)
{
    struct ucx_peer *peer = ucx_peer_cast(base);

    pst_assert(base->closing);
    pst_assert(pst_list_empty(&peer->parting));
    if (peer->wired || peer->lost) {
        ucx_peer_close_now(peer);
        return;
    }
    peer->close_ns = pst_deadline_ns(pst_now_ns(), UCX_PARTING_MS);
    pst_list_push_back(&ucx_port_cast(base->port)->parting, &peer->parting);
}

void ucx_peers_part(struct ucx_port *port, bool all)
{
    uint64_t now_ns;

    pst_assert(port->worker);
    if (pst_list_empty(&port->parting))
        return;
    now_ns = pst_now_ns();
    pst_list_each_safe (it, &port->parting) {
        struct ucx_peer *peer = pst_list_entry(it, struct ucx_peer, parting);

        if (all || peer->lost || now_ns >= peer->close_ns)
            ucx_peer_close_now(peer);
    }
}

void ucx_peer_forget(struct ucx_peer *peer)
{
    pst_assert(!peer->ep);
    pst_assert(peer->ops_count == 0);
    pst_assert(peer->base.closing);
    pst_assert(pst_list_empty(&peer->node_lost.link));
    pst_port_unready(peer->base.port, &peer->node_gone);
    pst_list_remove(&peer->link);
    peer->base.magic = 0;
    free(peer);
}

/* A line of ucp_ep_print_info(): "# lane[0]: 1:posix/memory.0 md[1] -> md[1]/posix/sysdev[255] am am_bw#0".
 */
static bool lane_parse(const char *line, char *out, size_t cap)
{
    const char *at = strstr(line, "lane["), *end;

    pst_assert(cap > 1);
    if (!at || (!strstr(at, " am ") && !strstr(at, " am\n")))
        return false;
    at = strchr(at + strlen("lane["), ':'); /* ends "lane[0]" */
    at = at ? strchr(at + 1, ':') : NULL;   /* ends the resource's number */
    end = at ? strchr(at, '/') : NULL;
    if (!end || end - at - 1 <= 0 || (size_t)(end - at - 1) >= cap)
        return false;
    memcpy(out, at + 1, (size_t)(end - at - 1));
    out[end - at - 1] = 0;
    return true;
}

/* UCX 1.13 tells an endpoint's lanes only in print. */
static void lane_read(struct ucx_peer *peer)
{
    pst_cleanup_free char *text = NULL;
    size_t bytes;
    FILE *f = open_memstream(&text, &bytes);

    pst_assert(peer->ep);
    pst_assert(!peer->lane_known);
    strcpy(peer->lane, "unknown");
    if (!f)
        return;
    ucp_ep_print_info(peer->ep, f);
    if (fclose(f) != 0)
        return;
    for (char *line = text, *next; *line; line = next) {
        char saved;

        next = line + strcspn(line, "\n");
        next += *next == '\n';
        saved = *next;
        *next = 0;
        if (lane_parse(line, peer->lane, sizeof(peer->lane)))
            break;
        *next = saved;
    }
    peer->gathers =
        !strcmp(peer->lane, "posix") || !strcmp(peer->lane, "sysv") || !strcmp(peer->lane, "self");
    peer->direct = !strncmp(peer->lane, "rc", 2) || !strncmp(peer->lane, "dc", 2);
    peer->lane_known = true;
}

static struct ucx_peer *lane_of(struct pst_peer *base)
{
    struct ucx_peer *peer = ucx_peer_cast(base);

    if (!peer->lane_known && peer->ep && !peer->lost)
        lane_read(peer);
    return peer;
}

const char *ucx_peer_lane(struct pst_peer *base)
{
    return lane_of(base)->lane;
}

bool ucx_peer_gathers(struct pst_peer *base)
{
    return lane_of(base)->gathers;
}

bool ucx_peer_direct(struct pst_peer *base)
{
    return lane_of(base)->direct;
}

static void ucx_send_ended(void *request, ucs_status_t status, void *arg)
{
    struct ucx_op *op = ucx_op_cast(arg);

    pst_assert(request);
    pst_assert(op->node.event.kind == PST_NET_SENT);
    if (status == UCS_OK && op->peer)
        op->peer->wired = true;
    ucp_request_free(request);
    ucx_op_end(op, ucx_errno(status));
}

/* Return: 1 done, 0 underway; else -errno. */
static int send_now(struct ucx_op *op)
{
    struct iovec *iov = ucx_op_iov(op);
    bool gather = op->iov_count > 1;
    ucp_request_param_t params = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS |
                        UCP_OP_ATTR_FIELD_DATATYPE,
        .flags = op->flags,
        .datatype = gather ? ucp_dt_make_iov() : ucp_dt_make_contig(1),
        .cb.send = ucx_send_ended,
        .user_data = op,
    };
    void *buffer = gather ? iov : iov[0].iov_base;
    size_t count = gather ? (size_t)op->iov_count : iov[0].iov_len;
    ucs_status_ptr_t request =
        ucp_am_send_nbx(op->ep, op->am, op->header, op->header_bytes, buffer, count, &params);

    pst_assert(op->peer);
    pst_assert(op->ep);
    pst_assert(op->iov_count >= 1);
    if (UCS_PTR_IS_PTR(request))
        return 0;
    op->peer->wired |= !request;
    return request ? ucx_errno(UCS_PTR_STATUS(request)) : 1;
}

void ucx_peer_opened(struct ucx_peer *peer, bool well)
{
    pst_assert(peer->opening);
    pst_assert(peer->ops_count > 0);
    peer->opening = false;
    peer->ops_count--;
    if (well && peer->ep)
        pst_list_push_back(&ucx_port_cast(peer->base.port)->opened, &peer->opened);
    ucx_peer_settle(peer);
}

static void way_opened(void *request, ucs_status_t status, void *arg)
{
    pst_assert(request);
    pst_assert(status != UCS_INPROGRESS);
    ucp_request_free(request);
    ucx_peer_opened(ucx_peer_cast(arg), status == UCS_OK); /* else it fails, or is being closed */
}

/*
 * UCX asks a peer for its endpoint with whatever cannot leave at once, and what is asked so, or answered,
 * before a socket has been confirmed aborts the process when that socket fails (1.13). So nothing is sent
 * before the way is open. Return: whether it is, -errno.
 */
static int way_open(struct ucx_peer *peer)
{
    ucp_request_param_t params = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                  .cb.send = way_opened,
                                  .user_data = peer};
    ucs_status_ptr_t request;

    pst_assert(peer->ep);
    pst_assert(!peer->base.closing);
    if (peer->wired)
        return 1;
    if (peer->opening || !pst_list_empty(&peer->held))
        return 0;
    request = ucp_ep_flush_nbx(peer->ep, &params);
    if (!UCS_PTR_IS_PTR(request))
        return request ? ucx_errno(UCS_PTR_STATUS(request)) : 1;
    peer->opening = true;
    peer->ops_count++;
    return 0;
}

void ucx_peers_begin(struct ucx_port *port)
{
    while (!pst_list_empty(&port->opened)) {
        struct ucx_peer *peer = pst_list_first(&port->opened, struct ucx_peer, opened);

        pst_list_remove(&peer->opened);
        pst_assert(!peer->opening);
        while (!pst_list_empty(&peer->held)) {
            struct ucx_op *op = pst_list_first(&peer->held, struct ucx_op, held);
            int r;

            pst_list_remove(&op->held);
            r = send_now(op);
            if (r)
                ucx_op_end(op, r < 0 ? r : 0);
        }
    }
}

/*
 * Sends @op's pieces (none: no data). Return: 1 done, 0 underway; else -errno. @op is its pool's again unless
 * it is underway.
 */
static int op_send(struct ucx_op *op, struct ucx_peer *peer, enum ucx_am am, const void *header,
                   size_t header_bytes, uint32_t flags)
{
    int r;

    pst_assert(op->iov_count >= 1 && op->iov_count <= PST_NET_BULK_IOV_MAX);
    pst_assert(peer->ep);
    pst_assert(!peer->base.closing);
    r = way_open(peer);
    if (r < 0) {
        ucx_op_give(op);
        return r;
    }
    op->am = am;
    op->header = header;
    op->header_bytes = (uint32_t)header_bytes;
    op->flags = flags;
    ucx_op_start(op, peer, peer->ep);
    if (r == 0) {
        pst_list_push_back(&peer->held, &op->held);
        return 0;
    }
    r = send_now(op);
    if (r != 0) {
        ucx_op_stop(op);
        ucx_op_give(op);
    }
    return r;
}

static struct ucx_op *send_begin(struct ucx_peer *peer, void *arg)
{
    struct ucx_op *op = ucx_op_take(ucx_port_cast(peer->base.port));

    pst_assert(!op || op->pack < 0);
    if (op)
        op->node.event = (struct pst_net_event){.kind = PST_NET_SENT, .arg = arg};
    return op;
}

/* The header travels in front of the data, where UCX keeps it for the receiver. */
static int send_joined(struct ucx_op *op, struct ucx_peer *peer, struct pst_bytes header,
                       struct pst_bytes data)
{
    uint32_t header_bytes = (uint32_t)header.len;
    void *at = ucx_op_header(op, header, 0);

    pst_assert(header.len > 0 && header.len <= PST_NET_HEADER_BYTES_MAX);
    pst_assert(peer->base.magic == PST_PEER_MAGIC);
    if (!at) {
        ucx_op_give(op);
        return -ENOMEM;
    }
    memcpy(op->header_small, &header_bytes, sizeof(header_bytes));
    op->iov_small[0] = (struct iovec){.iov_base = at, .iov_len = header.len};
    op->iov_small[1] = (struct iovec){.iov_base = (void *)(uintptr_t)data.data, .iov_len = data.len};
    op->iov_count = data.len > 0 ? 2 : 1;
    return op_send(op, peer, UCX_AM_JOINED, op->header_small, sizeof(header_bytes), UCP_AM_SEND_FLAG_EAGER);
}

/*
 * Endpoints that exchange bulk messages have to know each other. UCX asks for that with the first message
 * that wants an answer, and aborts a process whose question, or whose answer to one, still waits for the
 * transport when its endpoint ends. So one side asks, the one that does not serve, and it asks early: as soon
 * as the way is open, with its second message, when no queue is full yet.
 */
static uint32_t eager_flags(struct ucx_peer *peer)
{
    const struct ucx_net *net = ucx_net_cast(peer->base.port->net);

    pst_assert(peer->ep);
    if (!peer->wired || peer->asked || net->shared->serves)
        return UCP_AM_SEND_FLAG_EAGER;
    peer->asked = true;
    return UCP_AM_SEND_FLAG_EAGER | UCP_AM_SEND_FLAG_REPLY;
}

int ucx_peer_send(struct pst_peer *base, struct pst_bytes header, struct pst_bytes data, void *arg)
{
    struct ucx_peer *peer = ucx_peer_cast(base);
    struct ucx_op *op;

    pst_assert(!peer->gone);
    if (peer->lost)
        return -ECONNRESET;
    op = send_begin(peer, arg);
    if (!op)
        return -EBUSY;
    if (header.len > pst_min(UCX_HEADER_SMALL, op->port->header_direct_max))
        return send_joined(op, peer, header, data);
    ucx_op_header(op, header, UCX_HEADER_SMALL);
    op->iov_small[0] = (struct iovec){.iov_base = (void *)(uintptr_t)data.data, .iov_len = data.len};
    op->iov_count = 1;
    return op_send(op, peer, UCX_AM_EAGER, op->header_small, header.len, eager_flags(peer));
}

/* A header longer than a first packet goes ahead as a message of its own. */
static int send_prefix(struct ucx_peer *peer, struct pst_bytes header, uint64_t number)
{
    struct ucx_op *op = send_begin(peer, NULL);
    void *at = op ? ucx_op_header(op, header, 0) : NULL;

    pst_assert(header.len > 0 && header.len <= PST_NET_HEADER_BYTES_MAX);
    if (!op)
        return -EBUSY;
    if (!at) {
        ucx_op_give(op);
        return -ENOMEM;
    }
    op->silent = true;
    memcpy(op->header_small, &number, sizeof(number));
    op->iov_small[0] = (struct iovec){.iov_base = at, .iov_len = header.len};
    op->iov_count = 1;
    return op_send(op, peer, UCX_AM_PREFIX, op->header_small, sizeof(number),
                   UCP_AM_SEND_FLAG_EAGER | UCP_AM_SEND_FLAG_REPLY);
}

int ucx_peer_send_bulk(struct pst_peer *base, struct pst_bytes header, const struct iovec *iov, int iov_count,
                       void *arg)
{
    struct ucx_peer *peer = ucx_peer_cast(base);
    struct ucx_port *port = ucx_port_cast(base->port);
    const uint32_t flags = UCP_AM_SEND_FLAG_RNDV | UCP_AM_SEND_FLAG_REPLY;
    bool parted = header.len > port->header_direct_max;
    uint64_t number = port->parted_number;
    struct ucx_op *op;
    void *at;
    int r;

    pst_assert(iov);
    pst_assert(iov_count >= 1);
    if (peer->lost)
        return -ECONNRESET;
    op = send_begin(peer, arg);
    if (!op)
        return -EBUSY;
    r = ucx_op_pieces(op, iov, iov_count);
    if (r == 0 && op->iov_count > 1 && !ucx_peer_gathers(base))
        r = ucx_op_pack(op);
    if (r == 0 && parted) {
        r = send_prefix(peer, header, number);
        header = (struct pst_bytes){.data = &number, .len = sizeof(number)};
        port->parted_number++;
    }
    at = r < 0 ? NULL : ucx_op_header(op, header, UCX_HEADER_SMALL);
    if (!at) {
        ucx_op_give(op);
        return r < 0 ? r : -ENOMEM;
    }
    return op_send(op, peer, parted ? UCX_AM_PARTED : UCX_AM_BULK, at, header.len, flags);
}

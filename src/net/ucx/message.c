/* SPDX-License-Identifier: Apache-2.0 */
/*
 * message.c: what arrives. UCX's handlers copy the header, keep UCX's hold on the data and queue an
 * event; the receiver frees or receives later. A message that is malformed or that no memory is there for is
 * dropped: its sender's deadline tells.
 */
#include "net/ucx/ucx_priv.h"

struct ucx_slab {
    struct pst_list link;
    struct ucx_msg msgs[UCX_MSG_SLAB];
};

static int slab_add(struct ucx_port *port)
{
    struct ucx_slab *slab = calloc(1, sizeof(*slab));

    pst_assert(pst_list_empty(&port->msgs_free));
    if (!slab)
        return -ENOMEM;
    pst_list_push_back(&port->slabs, &slab->link);
    for (int i = 0; i < UCX_MSG_SLAB; i++) {
        slab->msgs[i].base.port = &port->base;
        pst_list_init(&slab->msgs[i].node.link);
        pst_list_push_back(&port->msgs_free, &slab->msgs[i].link);
    }
    return 0;
}

static struct ucx_msg *msg_take(struct ucx_port *port, enum ucx_msg_kind kind)
{
    struct ucx_msg *msg;

    if (pst_list_empty(&port->msgs_free) && slab_add(port) < 0)
        return NULL;
    msg = pst_list_first(&port->msgs_free, struct ucx_msg, link);
    pst_assert(msg->base.magic == 0);
    pst_assert(!msg->desc);
    pst_list_remove(&msg->link);
    pst_list_push_back(&port->msgs_live, &msg->link);
    msg->base.magic = PST_MSG_MAGIC;
    msg->base.bulk_bytes = 0;
    msg->kind = kind;
    msg->ep = NULL;
    port->halves_count += kind != UCX_MSG_WHOLE;
    return msg;
}

/* Back to the pool; UCX's hold has been released or handed on. */
static void msg_give(struct ucx_port *port, struct ucx_msg *msg)
{
    pst_assert(msg->kind == UCX_MSG_WHOLE || port->halves_count > 0);
    pst_assert(msg->base.magic == PST_MSG_MAGIC);
    pst_assert(pst_list_empty(&msg->node.link));
    port->halves_count -= msg->kind != UCX_MSG_WHOLE;
    msg->base.magic = 0;
    msg->desc = NULL;
    pst_list_remove(&msg->link);
    pst_list_push_front(&port->msgs_free, &msg->link);
}

static void desc_release(struct ucx_port *port, struct ucx_msg *msg)
{
    pst_assert(msg->base.magic == PST_MSG_MAGIC);
    pst_assert(msg->base.port == &port->base);
    if (msg->desc)
        ucp_am_data_release(port->worker, msg->desc);
    msg->desc = NULL;
}

/* Return: where @header was copied to, or NULL without memory. */
static void *header_copy(struct ucx_msg *msg, const void *header, size_t bytes)
{
    void *at = msg->header_small;

    pst_assert(bytes <= PST_NET_HEADER_BYTES_MAX);
    if (bytes > sizeof(msg->header_small)) {
        if (!msg->header_big)
            msg->header_big = malloc(PST_NET_HEADER_BYTES_MAX);
        at = msg->header_big;
    }
    if (at && bytes > 0)
        memcpy(at, header, bytes);
    return at;
}

/* The context of the peer that has that endpoint; NULL: the other side connected, and no peer was opened. */
static void *ctx_of(struct ucx_port *port, ucp_ep_h ep)
{
    const struct ucx_peer *peer = ucx_peer_find(port, ep);

    return peer ? peer->base.ctx : NULL;
}

static void msg_deliver(struct ucx_port *port, struct ucx_msg *msg, enum pst_net_kind kind,
                        struct pst_bytes header, struct pst_bytes data)
{
    pst_assert(msg->kind == UCX_MSG_WHOLE);
    pst_assert(header.len <= PST_NET_HEADER_BYTES_MAX);
    pst_assert(kind == PST_NET_EAGER || kind == PST_NET_BULK);
    msg->node.event = (struct pst_net_event){.kind = kind, .msg = &msg->base, .header = header, .data = data};
    if (kind == PST_NET_BULK)
        msg->node.event.arg = ctx_of(port, msg->ep);
    pst_port_ready(&port->base, &msg->node);
}

/* Eager data that UCX lets us keep, or none at all; a rendezvous under an eager id is neither. */
static bool eager_valid(size_t bytes, const ucp_am_recv_param_t *param)
{
    if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)
        return false;
    return bytes == 0 || param->recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA;
}

static ucs_status_t eager_came(void *arg, const void *header, size_t header_bytes, void *data, size_t bytes,
                               const ucp_am_recv_param_t *param)
{
    struct ucx_port *port = ucx_port_cast(arg);
    struct ucx_msg *msg;
    void *at;

    if (!eager_valid(bytes, param) || header_bytes > UCX_HEADER_SMALL)
        return UCS_OK;
    msg = msg_take(port, UCX_MSG_WHOLE);
    if (!msg)
        return UCS_OK;
    at = header_copy(msg, header, header_bytes);
    pst_assert(at == msg->header_small);
    msg->desc = bytes > 0 ? data : NULL;
    msg_deliver(port, msg, PST_NET_EAGER, (struct pst_bytes){at, header_bytes},
                (struct pst_bytes){data, bytes});
    return bytes > 0 ? UCS_INPROGRESS : UCS_OK;
}

static ucs_status_t joined_came(void *arg, const void *header, size_t header_bytes, void *data, size_t bytes,
                                const ucp_am_recv_param_t *param)
{
    struct ucx_port *port = ucx_port_cast(arg);
    struct ucx_msg *msg;
    uint32_t joined;

    if (!eager_valid(bytes, param) || bytes == 0 || header_bytes != sizeof(joined))
        return UCS_OK;
    memcpy(&joined, header, sizeof(joined));
    if (joined > bytes || joined > PST_NET_HEADER_BYTES_MAX)
        return UCS_OK;
    msg = msg_take(port, UCX_MSG_WHOLE);
    if (!msg)
        return UCS_OK;
    pst_assert(data);
    msg->desc = data;
    msg_deliver(port, msg, PST_NET_EAGER, (struct pst_bytes){data, joined},
                (struct pst_bytes){(char *)data + joined, bytes - joined});
    return UCS_INPROGRESS;
}

static bool bulk_announced(const ucp_am_recv_param_t *param)
{
    const uint64_t wanted = UCP_AM_RECV_ATTR_FLAG_RNDV | UCP_AM_RECV_ATTR_FIELD_REPLY_EP;

    return (param->recv_attr & wanted) == wanted;
}

static ucs_status_t bulk_came(void *arg, const void *header, size_t header_bytes, void *desc, size_t bytes,
                              const ucp_am_recv_param_t *param)
{
    struct ucx_port *port = ucx_port_cast(arg);
    struct ucx_msg *msg;
    void *at;

    if (!bulk_announced(param) || bytes == 0 || header_bytes > PST_NET_HEADER_BYTES_MAX)
        return UCS_OK;
    msg = msg_take(port, UCX_MSG_WHOLE);
    if (!msg)
        return UCS_ERR_NO_MEMORY;
    at = header_copy(msg, header, header_bytes);
    if (!at) {
        msg_give(port, msg);
        return UCS_ERR_NO_MEMORY;
    }
    msg->desc = desc;
    msg->ep = param->reply_ep;
    msg->base.bulk_bytes = bytes;
    pst_assert(msg->base.bulk_bytes > 0);
    pst_assert(msg->ep);
    msg_deliver(port, msg, PST_NET_BULK, (struct pst_bytes){at, header_bytes},
                (struct pst_bytes){NULL, bytes});
    return UCS_INPROGRESS;
}

static struct ucx_msg *half_find(struct ucx_port *port, enum ucx_msg_kind kind, ucp_ep_h ep, uint64_t number)
{
    pst_assert(kind != UCX_MSG_WHOLE);
    if (port->halves_count == 0)
        return NULL;
    pst_list_each (it, &port->msgs_live) {
        struct ucx_msg *msg = pst_list_entry(it, struct ucx_msg, link);

        if (msg->kind == kind && msg->ep == ep && msg->number == number)
            return msg;
    }
    return NULL;
}

/* Both halves of a bulk message are there: @parted takes the header over and is delivered. */
static void halves_join(struct ucx_port *port, struct ucx_msg *parted, const void *header,
                        size_t header_bytes)
{
    void *at = header_copy(parted, header, header_bytes);

    pst_assert(parted->kind == UCX_MSG_PARTED);
    pst_assert(port->halves_count > 0);
    if (!at) {
        desc_release(port, parted);
        msg_give(port, parted);
        return;
    }
    parted->kind = UCX_MSG_WHOLE;
    port->halves_count--;
    msg_deliver(port, parted, PST_NET_BULK, (struct pst_bytes){at, header_bytes},
                (struct pst_bytes){NULL, parted->base.bulk_bytes});
}

static ucs_status_t parted_came(void *arg, const void *header, size_t header_bytes, void *desc, size_t bytes,
                                const ucp_am_recv_param_t *param)
{
    struct ucx_port *port = ucx_port_cast(arg);
    struct ucx_msg *msg, *prefix;
    uint64_t number;

    if (!bulk_announced(param) || bytes == 0 || header_bytes != sizeof(number) ||
        port->halves_count > port->ops_max)
        return UCS_OK;
    memcpy(&number, header, sizeof(number));
    prefix = half_find(port, UCX_MSG_PREFIX, param->reply_ep, number);
    msg = msg_take(port, UCX_MSG_PARTED);
    if (!msg)
        return UCS_ERR_NO_MEMORY;
    msg->desc = desc;
    msg->ep = param->reply_ep;
    msg->number = number;
    msg->base.bulk_bytes = bytes;
    pst_assert(port->halves_count > 0);
    if (prefix) {
        halves_join(port, msg, prefix->node.event.header.data, prefix->node.event.header.len);
        desc_release(port, prefix);
        msg_give(port, prefix);
    }
    return UCS_INPROGRESS;
}

static ucs_status_t prefix_came(void *arg, const void *header, size_t header_bytes, void *data, size_t bytes,
                                const ucp_am_recv_param_t *param)
{
    struct ucx_port *port = ucx_port_cast(arg);
    struct ucx_msg *msg;
    uint64_t number;

    if (!eager_valid(bytes, param) || !(param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) || bytes == 0 ||
        bytes > PST_NET_HEADER_BYTES_MAX || header_bytes != sizeof(number) ||
        port->halves_count > port->ops_max)
        return UCS_OK;
    memcpy(&number, header, sizeof(number));
    msg = half_find(port, UCX_MSG_PARTED, param->reply_ep, number);
    if (msg) {
        halves_join(port, msg, data, bytes);
        return UCS_OK;
    }
    msg = msg_take(port, UCX_MSG_PREFIX);
    if (!msg)
        return UCS_OK;
    msg->desc = data;
    msg->ep = param->reply_ep;
    msg->number = number;
    msg->node.event.header = (struct pst_bytes){data, bytes};
    return UCS_INPROGRESS;
}

int ucx_messages_open(struct ucx_port *port)
{
    static const struct {
        enum ucx_am id;
        ucp_am_recv_callback_t cb;
        uint32_t flags;
    } handlers[] = {
        {UCX_AM_EAGER, eager_came, UCP_AM_FLAG_WHOLE_MSG | UCP_AM_FLAG_PERSISTENT_DATA},
        {UCX_AM_JOINED, joined_came, UCP_AM_FLAG_WHOLE_MSG | UCP_AM_FLAG_PERSISTENT_DATA},
        {UCX_AM_BULK, bulk_came, 0},
        {UCX_AM_PARTED, parted_came, 0},
        {UCX_AM_PREFIX, prefix_came, UCP_AM_FLAG_WHOLE_MSG | UCP_AM_FLAG_PERSISTENT_DATA},
    };
    ucs_status_t status = UCS_OK;

    pst_assert(port->worker);
    pst_assert(pst_list_empty(&port->msgs_live));
    for (size_t i = 0; i < pst_count_of(handlers) && status == UCS_OK; i++) {
        ucp_am_handler_param_t param = {
            .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                          UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
            .id = handlers[i].id,
            .flags = handlers[i].flags,
            .cb = handlers[i].cb,
            .arg = &port->base,
        };

        status = ucp_worker_set_am_recv_handler(port->worker, &param);
    }
    return status == UCS_OK ? slab_add(port) : ucx_errno(status);
}

void ucx_messages_release(struct ucx_port *port)
{
    pst_list_each_safe (it, &port->msgs_live) {
        struct ucx_msg *msg = pst_list_entry(it, struct ucx_msg, link);

        desc_release(port, msg);
        if (pst_list_empty(&msg->node.link))
            continue; /* somebody has it, and will free it */
        pst_port_unready(&port->base, &msg->node);
        msg_give(port, msg);
    }
}

void ucx_messages_close(struct ucx_port *port)
{
    ucx_messages_release(port);
    pst_list_each_safe (it, &port->slabs) {
        struct ucx_slab *slab = pst_list_entry(it, struct ucx_slab, link);

        for (int i = 0; i < UCX_MSG_SLAB; i++) {
            pst_assert(!slab->msgs[i].desc);
            free(slab->msgs[i].header_big);
        }
        free(slab);
    }
}

void ucx_messages_drop(struct ucx_port *port, ucp_ep_h ep)
{
    pst_assert(ep);
    pst_list_each_safe (it, &port->msgs_live) {
        struct ucx_msg *msg = pst_list_entry(it, struct ucx_msg, link);

        if (msg->ep != ep)
            continue;
        desc_release(port, msg);
        msg->ep = NULL;
        if (msg->kind != UCX_MSG_WHOLE)
            msg_give(port, msg);
    }
}

static void receive_end(struct ucx_op *op, ucs_status_t status)
{
    pst_assert(op->node.event.kind == PST_NET_RECEIVED);
    if (status == UCS_OK)
        ucx_op_unstage(op);
    ucx_op_end(op, ucx_errno(status));
}

static void ucx_receive_ended(void *request, ucs_status_t status, size_t bytes, void *arg)
{
    (void)bytes;
    pst_assert(request);
    ucp_request_free(request);
    receive_end(ucx_op_cast(arg), status);
}

/*
 * Pieces, even a single one. For a plain buffer UCX may hand its address to the sender, and over TCP a socket
 * goes on being read after the forced close of its endpoint: late bytes would land in memory that has been
 * reused. Pieces are filled from packets that name our request, and once it has ended they are dropped; this
 * costs nothing measurable. Remote DMA ends with its queue pair, so there the plain buffer stays, for the
 * sake of zero copies; and UCX reads into nothing else, so a message of several pieces is copied once behind
 * one read, which is less than packets of 8 KiB cost.
 */
static ucs_status_ptr_t receive_start(struct ucx_op *op, void *desc)
{
    struct iovec *iov = ucx_op_iov(op), whole = iov[0];
    bool direct = op->peer && ucx_peer_direct(&op->peer->base);
    bool plain = direct && (op->iov_count == 1 || ucx_op_stage(op, &whole) == 0);
    ucp_request_param_t params = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_DATATYPE,
        .datatype = plain ? ucp_dt_make_contig(1) : ucp_dt_make_iov(),
        .cb.recv_am = ucx_receive_ended,
        .user_data = op,
    };

    pst_assert(desc);
    pst_assert(op->iov_count >= 1);
    return ucp_am_recv_data_nbx(op->port->worker, desc, plain ? whole.iov_base : iov,
                                plain ? whole.iov_len : (size_t)op->iov_count, &params);
}

int ucx_msg_receive(struct pst_msg *base, const struct iovec *iov, int iov_count, void *arg)
{
    struct ucx_msg *msg = ucx_msg_cast(base);
    struct ucx_port *port = ucx_port_cast(base->port);
    struct ucx_op *op = ucx_op_take(port);
    void *desc = msg->desc;
    ucp_ep_h ep = msg->ep;
    ucs_status_ptr_t request;

    pst_assert(msg->kind == UCX_MSG_WHOLE);
    pst_assert(pst_list_empty(&msg->node.link));
    if (!op)
        return -EBUSY;
    op->node.event = (struct pst_net_event){.kind = PST_NET_RECEIVED, .arg = arg};
    if (ucx_op_pieces(op, iov, iov_count) < 0) {
        ucx_op_give(op);
        return -EBUSY;
    }
    msg_give(port, msg);
    ucx_op_start(op, ep ? ucx_peer_find(port, ep) : NULL, ep);
    if (!desc) { /* its peer was closed in the meantime */
        ucx_op_end(op, -ECANCELED);
        return 0;
    }
    request = receive_start(op, desc);
    if (!UCS_PTR_IS_PTR(request))
        receive_end(op, UCS_PTR_STATUS(request));
    return 0;
}

void ucx_msg_free(struct pst_msg *base)
{
    struct ucx_msg *msg = ucx_msg_cast(base);
    struct ucx_port *port = ucx_port_cast(base->port);

    pst_assert(msg->kind == UCX_MSG_WHOLE);
    pst_assert(pst_list_empty(&msg->node.link));
    desc_release(port, msg);
    msg_give(port, msg);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* port.c: one UCX worker: its life, its progress, its sleep. Used by one thread at a time. */
#include "net/ucx/numbers.h"
#include "net/ucx/ucx_priv.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/ms.h"

static void port_free(struct ucx_port *port)
{
    pst_assert(port->base.magic == PST_PORT_MAGIC);
    pst_assert(pst_list_empty(&port->ops_live));
    for (uint32_t i = 0; port->ops && i < port->ops_max; i++)
        ucx_op_fini(&port->ops[i]);
    for (int i = 0; i < UCX_PACKS; i++)
        free(port->packs[i]);
    free(port->ops);
    port->base.magic = 0;
    free(port);
}

static int worker_open(struct ucx_port *port, ucp_context_h context)
{
    ucp_worker_params_t params = {
        .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_FLAGS,
        .thread_mode = UCS_THREAD_MODE_SINGLE,
        .flags = UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK, /* see worker_end() */
    };
    ucp_worker_attr_t attr = {.field_mask = UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER};
    struct ucx_numbers numbers;
    ucs_status_t status;

    pst_assert(!port->worker);
    pst_assert(context);
    ucx_numbers_hold(&numbers);
    status = ucp_worker_create(context, &params, &port->worker);
    ucx_numbers_release(&numbers);
    if (status != UCS_OK)
        return ucx_errno(status);
    pst_assert(port->worker);
    status = ucp_worker_get_efd(port->worker, &port->fd);
    if (status == UCS_OK)
        status = ucp_worker_query(port->worker, &attr);
    port->header_direct_max = pst_min(attr.max_am_header, PST_NET_HEADER_BYTES_MAX);
    /* The shortest header of ours, a u64, has to fit into any packet. */
    if (status == UCS_OK && port->header_direct_max < sizeof(uint64_t))
        return -ENODEV;
    return ucx_errno(status);
}

static unsigned worker_progress(struct ucx_port *port)
{
    bool serves = ucx_net_cast(port->base.net)->shared->serves;
    unsigned count;

    pst_assert(port->worker);
    if (serves)
        ucx_sockets_answering(true);
    count = ucp_worker_progress(port->worker);
    if (serves)
        ucx_sockets_answering(false);
    return count;
}

static struct ucx_port *port_new(struct pst_net *net, uint32_t events_max)
{
    struct ucx_port *port = calloc(1, sizeof(*port));

    pst_assert(events_max > 0);
    if (!port)
        return NULL;
    port->base = (struct pst_port){.magic = PST_PORT_MAGIC, .net = net};
    port->ops_max = events_max;
    pst_list_init(&port->base.ready);
    pst_list_init(&port->ops_free);
    pst_list_init(&port->ops_live);
    pst_list_init(&port->msgs_free);
    pst_list_init(&port->msgs_live);
    pst_list_init(&port->slabs);
    pst_list_init(&port->parting);
    pst_list_init(&port->opened);
    for (int i = 0; i < UCX_PEER_BUCKETS; i++)
        pst_list_init(&port->peers[i]);
    pst_random(&port->parted_number, sizeof(port->parted_number));
    port->ops = calloc(events_max, sizeof(*port->ops));
    for (uint32_t i = 0; port->ops && i < events_max; i++) {
        struct ucx_op *op = &port->ops[i];

        op->magic = UCX_OP_MAGIC;
        op->port = port;
        op->pack = -1;
        pst_list_init(&op->node.link);
        pst_list_init(&op->held);
        pst_list_push_back(&port->ops_free, &op->link);
    }
    return port;
}

static int learn_address(struct ucx_port *port)
{
    uint8_t address[PST_NET_ADDRESS_BYTES_MAX];
    int r = ucx_port_address(&port->base, false, address, sizeof(address));

    if (r > 0)
        ucx_address_learn(&port->form, address, (size_t)r);
    pst_assert(r < 0 || (size_t)r <= sizeof(address));
    return r < 0 ? r : 0;
}

int ucx_port_open(struct pst_net *net, uint32_t events_max, struct pst_port **out)
{
    struct ucx_port *port = port_new(net, events_max);
    int r = -ENOMEM;

    if (!port)
        return -ENOMEM;
    if (port->ops)
        r = worker_open(port, ucx_net_cast(net)->shared->context);
    if (r == 0)
        r = learn_address(port);
    if (r == 0)
        r = ucx_messages_open(port);
    if (r < 0) {
        if (port->worker)
            ucp_worker_destroy(port->worker);
        port_free(port);
        return r;
    }
    pst_assert(port->fd >= 0);
    pst_assert(!pst_list_empty(&port->ops_free));
    *out = &port->base;
    return 0;
}

/*
 * The end of a worker ends what its closed endpoints have underway. UCX aborts over what belongs to others: a
 * receive from a peer that is not open here.
 */
static bool port_is_endable(const struct ucx_port *port)
{
    pst_list_each (it, &port->ops_live) {
        const struct ucx_op *op = pst_list_entry(it, struct ucx_op, link);

        pst_assert(op->magic == UCX_OP_MAGIC);
        pst_assert(!op->peer || op->peer->base.closing);
        if (!op->peer)
            return false;
    }
    return true;
}

/* What the end of the worker would end has had its chance soon: it takes a millisecond, or for ever. Return:
 * true when UCX knows none of our operations any more. */
static bool port_drain(struct ucx_port *port)
{
    uint64_t begun_ns = pst_now_ns();

    while (!pst_list_empty(&port->ops_live)) {
        if (worker_progress(port) == 0 &&
            pst_now_ns() - begun_ns >
                pst_ns_of_ms(port_is_endable(port) ? UCX_DRAIN_ENDABLE_MS : UCX_DRAIN_MS))
            return false;
    }
    pst_assert(pst_list_empty(&port->ops_live));
    return true;
}

static void worker_end(struct ucx_port *port)
{
    pst_assert(port->worker);
    pst_assert(port_is_endable(port));
    ucx_peers_part(port, true);
    ucx_messages_release(port);
    ucp_worker_destroy(port->worker);
    port->worker = NULL;
    /* It tells the end of most. The others it forgets, and nobody is left to carry them on. */
    while (!pst_list_empty(&port->ops_live))
        ucx_op_end(pst_list_first(&port->ops_live, struct ucx_op, link), -ECANCELED);
    for (int i = 0; i < UCX_PEER_BUCKETS; i++) {
        pst_list_each (it, &port->peers[i]) {
            struct ucx_peer *peer = pst_list_entry(it, struct ucx_peer, link);

            if (peer->opening)
                ucx_peer_opened(peer, false);
        }
    }
    pst_assert(!port->worker);
    pst_assert(pst_list_empty(&port->ops_live));
}

void ucx_port_abandon(struct pst_port *base)
{
    struct ucx_port *port = ucx_port_cast(base);

    if (port->worker && port_is_endable(port))
        worker_end(port);
}

static void close_peers(struct ucx_port *port)
{
    pst_assert(port->worker);
    pst_assert(pst_list_empty(&port->parting));
    for (int i = 0; i < UCX_PEER_BUCKETS; i++) {
        pst_list_each_safe (it, &port->peers[i]) {
            struct ucx_peer *peer = pst_list_entry(it, struct ucx_peer, link);

            if (!peer->base.closing) {
                peer->base.closing = true;
                ucx_peer_close_now(peer);
            }
        }
    }
}

void ucx_port_close(struct pst_port *base)
{
    struct ucx_port *port = ucx_port_cast(base);

    if (port->worker) {
        ucx_peers_part(port, true);
        close_peers(port);
        if (!port_drain(port) && !port_is_endable(port)) {
            /* Better to lose this memory than the process. */
            ucx_net_cast(base->net)->shared->stuck = true;
            return;
        }
        worker_end(port);
    }
    for (int i = 0; i < UCX_PEER_BUCKETS; i++)
        pst_list_each_safe (it, &port->peers[i])
            ucx_peer_forget(pst_list_entry(it, struct ucx_peer, link));
    pst_assert(!port->worker);
    pst_assert(pst_list_empty(&port->ops_live));
    ucx_messages_close(port);
    port_free(port);
}

int ucx_port_address(struct pst_port *base, bool network_only, void *buf, size_t cap)
{
    struct ucx_port *port = ucx_port_cast(base);
    ucp_worker_attr_t attr = {
        .field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS | UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS,
        .address_flags = network_only ? UCP_WORKER_ADDRESS_FLAG_NET_ONLY : 0,
    };
    ucs_status_t status = ucp_worker_query(port->worker, &attr);
    int r;

    pst_assert(port->worker);
    if (status != UCS_OK)
        return ucx_errno(status);
    pst_assert(attr.address);
    pst_assert(attr.address_length > 0 && attr.address_length <= INT32_MAX);
    r = (int)attr.address_length;
    if (attr.address_length > cap || attr.address_length > PST_NET_ADDRESS_BYTES_MAX)
        r = -ENOSPC;
    else
        memcpy(buf, attr.address, attr.address_length);
    ucp_worker_release_address(port->worker, attr.address);
    return r;
}

void ucx_port_progress(struct pst_port *base)
{
    struct ucx_port *port = ucx_port_cast(base);

    if (!port->worker)
        return;
    /* Stops at the first event, so that answers leave before more is read. */
    for (int round = 0; round < UCX_PROGRESS_ROUNDS && base->ready_count == 0; round++)
        if (worker_progress(port) == 0)
            break;
    ucx_peers_begin(port);
    ucx_peers_part(port, false);
}

void ucx_port_taken(struct pst_port *base, struct pst_event_node *node)
{
    pst_assert(base->magic == PST_PORT_MAGIC);
    switch (node->event.kind) {
    case PST_NET_SENT:
    case PST_NET_RECEIVED:
        pst_assert(!pst_container_of(node, struct ucx_op, node)->silent);
        ucx_op_give(pst_container_of(node, struct ucx_op, node));
        break;
    case PST_NET_PEER_GONE:
        ucx_peer_forget(pst_container_of(node, struct ucx_peer, node_gone));
        break;
    case PST_NET_PEER_LOST: /* lives on until it is closed */
    case PST_NET_EAGER:     /* the receiver's until it is freed */
    case PST_NET_BULK:
        break;
    }
}

int ucx_port_fd(struct pst_port *base)
{
    return ucx_port_cast(base)->fd;
}

/*
 * Verbs do not promise to wake who arms a queue for what is in it already, and UCX trusts that they do: what
 * came between its last look and the arming is looked for once more.
 */
int ucx_port_arm(struct pst_port *base)
{
    struct ucx_port *port = ucx_port_cast(base);
    ucs_status_t status = UCS_ERR_BUSY;

    pst_assert(base->ready_count == 0);
    if (port->worker && pst_list_empty(&port->parting))
        status = ucp_worker_arm(port->worker);
    /* Callbacks may come of progress that counts as none. */
    if (status == UCS_OK &&
        (worker_progress(port) > 0 || base->ready_count > 0 || !pst_list_empty(&port->opened)))
        status = UCS_ERR_BUSY;
    return status == UCS_ERR_BUSY ? -EAGAIN : ucx_errno(status);
}

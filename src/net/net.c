/* SPDX-License-Identifier: Apache-2.0 */
/* net.c: checks what callers pass and dispatches to the transport; copies events out. Owns no connection
 * itself. */
#include "net/net_priv.h"
#include "base/fault.h"

bool pst_iov_total(const struct iovec *iov, int iov_count, size_t *total)
{
    uint64_t sum = 0;

    pst_assert(iov);
    pst_assert(iov_count > 0);
    pst_assert(total);
    for (int i = 0; i < iov_count; i++)
        if (pst_add_overflows(sum, iov[i].iov_len, &sum))
            return false;
    *total = sum;
    return true;
}

static const struct pst_net_ops *ops_of(const struct pst_port *port)
{
    pst_assert(port->magic == PST_PORT_MAGIC);
    pst_assert(port->net->magic == PST_NET_MAGIC);
    return port->net->ops;
}

static const struct pst_net_ops *peer_ops(const struct pst_peer *peer)
{
    pst_assert(peer->magic == PST_PEER_MAGIC);
    return ops_of(peer->port);
}

static const struct pst_net_ops *msg_ops(const struct pst_msg *msg)
{
    pst_assert(msg->magic == PST_MSG_MAGIC);
    return ops_of(msg->port);
}

int pst_net_open(const struct pst_net_options *options, struct pst_net **out)
{
    int r;

    pst_assert(options && out);
    if (options->transport == PST_NET_STREAM)
        return pst_stream_open(options, out);
#ifdef PST_FAULTS_ON
    static const char memory[] = "memory";
    const char *wanted = getenv("PENSTOCK_NET");

    if (wanted && strncmp(wanted, memory, strlen(memory)) == 0)
        return pst_mem_open(wanted + strlen(memory) + (wanted[strlen(memory)] == ':'), out);
#endif
    r = pst_ucx_load();
    return r < 0 ? r : pst_ucx_open(options, out);
}

const char *pst_net_fault(int result)
{
    pst_assert(result <= 0);
    if (result == -ELIBBAD)
        return ucx_settings_fault();
    if (result == -ELIBACC)
        return pst_ucx_load_fault();
    return result == -ENODEV ? "UCX found no usable device" : strerror(-result);
}

struct pst_net *pst_net_close(struct pst_net *net)
{
    if (!net)
        return NULL;
    pst_assert(net->magic == PST_NET_MAGIC);
    pst_assert(net->port_count == 0);
    net->ops->net_close(net);
    return NULL;
}

int pst_net_register(struct pst_net *net, void *addr, size_t bytes, void **out_handle)
{
    pst_assert(net->magic == PST_NET_MAGIC);
    pst_assert(addr);
    pst_assert(bytes > 0);
    pst_assert(out_handle);
    if (net->ops->net_register)
        return net->ops->net_register(net, addr, bytes, out_handle);
    *out_handle = addr;
    return 0;
}

void pst_net_unregister(struct pst_net *net, void *handle)
{
    pst_assert(net->magic == PST_NET_MAGIC);
    if (handle && net->ops->net_unregister)
        net->ops->net_unregister(net, handle);
}

int pst_port_open(struct pst_net *net, uint32_t events_max, struct pst_port **out)
{
    int r;

    pst_assert(net->magic == PST_NET_MAGIC);
    pst_assert(events_max > 0);
    pst_assert(out);
    r = net->ops->port_open(net, events_max, out);
    pst_assert(r <= 0);
    if (r == 0) /* ports of several threads share the net */
        __atomic_add_fetch(&net->port_count, 1, __ATOMIC_RELAXED);
    return r;
}

void pst_port_abandon(struct pst_port *port)
{
    if (ops_of(port)->port_abandon)
        ops_of(port)->port_abandon(port);
}

struct pst_port *pst_port_close(struct pst_port *port)
{
    struct pst_net *net;

    if (!port)
        return NULL;
    net = port->net;
    pst_assert(__atomic_load_n(&net->port_count, __ATOMIC_RELAXED) > 0);
    ops_of(port)->port_close(port);
    __atomic_sub_fetch(&net->port_count, 1, __ATOMIC_RELAXED);
    return NULL;
}

int pst_port_address(struct pst_port *port, bool network_only, void *buf, size_t cap)
{
    pst_assert(buf);
    pst_assert(cap > 0);
    return ops_of(port)->port_address(port, network_only, buf, cap);
}

int pst_port_poll(struct pst_port *port, struct pst_net_event *events, int max)
{
    const struct pst_net_ops *ops = ops_of(port);
    int count = 0;

    pst_assert(events);
    pst_assert(max > 0);
    if (port->ready_count == 0)
        ops->port_progress(port);
    while (count < max && port->ready_count > 0) {
        struct pst_event_node *node = pst_list_first(&port->ready, struct pst_event_node, link);

        pst_assert(node->event.kind <= PST_NET_PEER_GONE);
        pst_assert(node->event.status <= 0);
        pst_port_unready(port, node);
        events[count++] = node->event;
        ops->port_taken(port, node);
    }
    return count;
}

int pst_port_fd(struct pst_port *port)
{
    return ops_of(port)->port_fd(port);
}

int pst_port_arm(struct pst_port *port)
{
    const struct pst_net_ops *ops = ops_of(port);

    pst_assert(pst_list_empty(&port->ready) == (port->ready_count == 0));
    return port->ready_count > 0 ? -EAGAIN : ops->port_arm(port);
}

int pst_peer_open(struct pst_port *port, const void *address, size_t bytes, void *ctx, struct pst_peer **out)
{
    pst_assert(address && out);
    if (bytes == 0 || bytes > PST_NET_ADDRESS_BYTES_MAX)
        return -EINVAL;
    if (pst_fault(PST_FAULT_net_open_fails))
        return -ECONNRESET;
    return ops_of(port)->peer_open(port, address, bytes, ctx, out);
}

void pst_peer_close(struct pst_peer *peer)
{
    const struct pst_net_ops *ops = peer_ops(peer);

    pst_assert(!peer->closing);
    peer->closing = true;
    ops->peer_close(peer);
}

const char *pst_peer_lane(struct pst_peer *peer)
{
    return peer_ops(peer)->peer_lane(peer);
}

bool pst_peer_direct(struct pst_peer *peer)
{
    return peer_ops(peer)->peer_direct(peer);
}

bool pst_peer_gathers(struct pst_peer *peer)
{
    return peer_ops(peer)->peer_gathers(peer);
}

int pst_peer_send(struct pst_peer *peer, struct pst_bytes header, struct pst_bytes data, void *arg)
{
    const struct pst_net_ops *ops = peer_ops(peer);

    pst_assert(!peer->closing);
    if (header.len > PST_NET_HEADER_BYTES_MAX || data.len > PST_NET_EAGER_BYTES_MAX)
        return -EMSGSIZE;
    if (pst_fault(PST_FAULT_net_send_busy))
        return -EBUSY;
    if (pst_fault(PST_FAULT_net_send_fails))
        return -ECONNRESET;
    return ops->peer_send(peer, header, data, arg);
}

int pst_peer_send_bulk(struct pst_peer *peer, struct pst_bytes header, const struct iovec *iov, int iov_count,
                       void *arg)
{
    const struct pst_net_ops *ops = peer_ops(peer);
    size_t total;

    pst_assert(!peer->closing);
    if (header.len > PST_NET_HEADER_BYTES_MAX || iov_count < 1 || iov_count > PST_NET_BULK_IOV_MAX)
        return -EMSGSIZE;
    if (!pst_iov_total(iov, iov_count, &total) || total == 0)
        return -EMSGSIZE;
    if (pst_fault(PST_FAULT_net_bulk_busy))
        return -EBUSY;
    return ops->peer_send_bulk(peer, header, iov, iov_count, arg);
}

int pst_msg_receive(struct pst_msg *msg, const struct iovec *iov, int iov_count, void *arg)
{
    const struct pst_net_ops *ops = msg_ops(msg);
    size_t total;

    pst_assert(msg->bulk_bytes > 0);
    pst_assert(iov_count >= 1 && iov_count <= PST_NET_BULK_IOV_MAX);
    pst_assert(pst_iov_total(iov, iov_count, &total));
    pst_assert(total == msg->bulk_bytes);
    if (pst_fault(PST_FAULT_net_receive_busy))
        return -EBUSY;
    return ops->msg_receive(msg, iov, iov_count, arg);
}

void pst_msg_free(struct pst_msg *msg)
{
    if (msg)
        msg_ops(msg)->msg_free(msg);
}

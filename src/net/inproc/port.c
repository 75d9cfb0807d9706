/* SPDX-License-Identifier: Apache-2.0 */
/* port.c: the process's ports, the lock that they share, and a timer each that wakes its thread. */
#include "net/inproc/inproc_priv.h"

#include "base/clock.h"

#include <sys/timerfd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pst_list ports = {&ports, &ports};
static uint64_t ids;

void mem_lock(void)
{
    pthread_mutex_lock(&lock);
}

void mem_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

struct mem_port *mem_port_find(uint64_t id)
{
    pst_list_each (it, &ports) {
        struct mem_port *port = pst_list_entry(it, struct mem_port, all);

        if (port->id == id)
            return port;
    }
    return NULL;
}

/* Lets the descriptor become readable at @due_ns, or never with 0. */
static void set_timer(struct mem_port *port, uint64_t due_ns)
{
    struct itimerspec at = {.it_value = {(time_t)(due_ns / 1000000000), (long)(due_ns % 1000000000)}};
    int r = timerfd_settime(port->fd, TFD_TIMER_ABSTIME, &at, NULL);

    pst_assert(r == 0);
}

static uint64_t first_due(const struct mem_port *port)
{
    pst_assert(pst_list_empty(&port->inbox) == (port->inbox_count == 0));
    return pst_list_empty(&port->inbox) ? 0 : pst_list_first(&port->inbox, struct mem_packet, link)->due_ns;
}

void mem_post(struct mem_port *port, struct mem_packet *packet, uint64_t due_ns)
{
    struct pst_list *at = port->inbox.prev;

    pst_assert(pst_list_empty(&packet->link));
    packet->due_ns = due_ns;
    while (at != &port->inbox && pst_list_entry(at, struct mem_packet, link)->due_ns > due_ns)
        at = at->prev;
    pst_list_insert(at, &packet->link);
    port->inbox_count++;
    atomic_fetch_add(&port->pending, 1);
    if (port->armed)
        set_timer(port, first_due(port));
}

void mem_post_news(struct mem_port *port)
{
    atomic_fetch_add(&port->pending, 1);
    if (port->armed)
        set_timer(port, 1);
}

static void unlink_packet(struct mem_port *port, struct mem_packet *packet)
{
    pst_assert(port->inbox_count > 0);
    pst_assert(!pst_list_empty(&packet->link));
    pst_assert(atomic_load(&port->pending) >= port->inbox_count);
    pst_list_remove(&packet->link);
    port->inbox_count--;
    atomic_fetch_sub(&port->pending, 1);
}

void mem_unpost(struct mem_port *port, struct mem_packet *packet)
{
    pst_assert(packet->op && packet->op->copy == packet);
    packet->op->copy = NULL;
    unlink_packet(port, packet);
    mem_packet_free(packet);
}

static void tell_losses(struct mem_port *port)
{
    pst_assert(port->base.ready_count == 0);
    atomic_store(&port->pending, port->inbox_count);
    pst_list_each (it, &port->peers) {
        struct mem_peer *peer = pst_list_entry(it, struct mem_peer, link);

        if (peer->doomed)
            mem_peer_lose(peer);
    }
}

static void port_progress(struct pst_port *base)
{
    struct mem_port *port = mem_port_cast(base);
    uint64_t now_ns;

    if (!port->armed && atomic_load(&port->pending) == 0)
        return;
    now_ns = pst_now_ns();
    mem_lock();
    if (port->armed) {
        port->armed = false;
        set_timer(port, 0);
    }
    for (int round = 0; round < MEM_ROUNDS && base->ready_count == 0 && port->inbox_count > 0; round++) {
        struct mem_packet *packet = pst_list_first(&port->inbox, struct mem_packet, link);

        if (packet->due_ns > now_ns)
            break;
        unlink_packet(port, packet);
        mem_deliver(port, packet, now_ns);
    }
    if (base->ready_count == 0 && atomic_load(&port->pending) > port->inbox_count)
        tell_losses(port);
    mem_unlock();
}

static int port_arm(struct pst_port *base)
{
    struct mem_port *port = mem_port_cast(base);
    uint64_t due_ns;
    int r = 0;

    pst_assert(base->ready_count == 0);
    mem_lock();
    due_ns = first_due(port);
    if (atomic_load(&port->pending) > port->inbox_count || (due_ns && due_ns <= pst_now_ns())) {
        r = -EAGAIN;
    } else {
        port->armed = true;
        set_timer(port, due_ns);
    }
    mem_unlock();
    return r;
}

static int port_open(struct pst_net *net, uint32_t events_max, struct pst_port **out)
{
    struct mem_port *port = calloc(1, sizeof(*port));

    pst_assert(events_max > 0);
    if (port)
        port->ops = calloc(events_max, sizeof(*port->ops));
    if (!port || !port->ops) {
        free(port);
        return -ENOMEM;
    }
    port->fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (port->fd < 0) {
        free(port->ops);
        free(port);
        return -errno;
    }
    port->base = (struct pst_port){.magic = PST_PORT_MAGIC, .net = net};
    port->ops_max = events_max;
    pst_list_init(&port->base.ready);
    pst_list_init(&port->inbox);
    pst_list_init(&port->ops_free);
    pst_list_init(&port->ops_live);
    pst_list_init(&port->msgs);
    pst_list_init(&port->peers);
    for (uint32_t i = 0; i < events_max; i++) {
        port->ops[i] = (struct mem_op){.magic = MEM_OP_MAGIC, .port = port};
        pst_list_init(&port->ops[i].node.link);
        pst_list_push_back(&port->ops_free, &port->ops[i].link);
    }
    mem_lock();
    port->id = ++ids;
    pst_list_push_back(&ports, &port->all);
    mem_unlock();
    *out = &port->base;
    return 0;
}

/* With the lock held: nobody finds the port any more, and its peers' other ends will be told. */
static void port_leave(struct mem_port *port)
{
    pst_list_remove(&port->all);
    pst_list_each (it, &ports) {
        struct mem_port *other = pst_list_entry(it, struct mem_port, all);

        pst_list_each (at, &other->peers) {
            struct mem_peer *peer = pst_list_entry(at, struct mem_peer, link);

            if (peer->to != port->id)
                continue;
            peer->doomed = true;
            mem_post_news(other);
        }
    }
}

static void drop_events(struct mem_port *port)
{
    while (!pst_list_empty(&port->base.ready))
        pst_port_unready(&port->base, pst_list_first(&port->base.ready, struct pst_event_node, link));
    pst_assert(port->base.ready_count == 0);
}

static void port_close(struct pst_port *base)
{
    struct mem_port *port = mem_port_cast(base);

    mem_lock();
    port_leave(port);
    pst_list_each (it, &port->peers) {
        struct mem_peer *peer = pst_list_entry(it, struct mem_peer, link);

        peer->base.closing = true;
        if (!peer->gone)
            mem_peer_cut(peer);
    }
    pst_assert(!mem_port_find(port->id));
    while (!pst_list_empty(&port->ops_live)) /* receives from peers that were never opened */
        mem_op_end(pst_list_first(&port->ops_live, struct mem_op, link), -ECANCELED);
    drop_events(port);
    while (!pst_list_empty(&port->inbox)) {
        struct mem_packet *packet = pst_list_first(&port->inbox, struct mem_packet, link);

        unlink_packet(port, packet);
        mem_packet_free(packet);
    }
    pst_list_each_safe (it, &port->msgs) {
        struct mem_msg *msg = pst_list_entry(it, struct mem_msg, link);

        mem_msg_drop(msg);
        free(msg);
    }
    mem_unlock();
    pst_list_each_safe (it, &port->peers)
        mem_peer_forget(pst_list_entry(it, struct mem_peer, link));
    for (uint32_t i = 0; i < port->ops_max; i++)
        free(port->ops[i].iov);
    free(port->ops);
    close(port->fd);
    port->base.magic = 0;
    free(port);
}

static int port_address(struct pst_port *base, bool network_only, void *buf, size_t cap)
{
    size_t bytes = mem_address_bytes(network_only);

    pst_assert(bytes <= PST_NET_ADDRESS_BYTES_MAX);
    if (bytes > cap)
        return -ENOSPC;
    mem_address_write(mem_port_cast(base), network_only, buf);
    return (int)bytes;
}

static void port_taken(struct pst_port *base, struct pst_event_node *node)
{
    pst_assert(base->magic == PST_PORT_MAGIC);
    mem_lock();
    if (node->event.kind == PST_NET_SENT || node->event.kind == PST_NET_RECEIVED)
        mem_op_give(pst_container_of(node, struct mem_op, node));
    else if (node->event.kind == PST_NET_PEER_GONE)
        mem_peer_forget(pst_container_of(node, struct mem_peer, node_gone));
    mem_unlock();
}

static int port_fd(struct pst_port *base)
{
    return mem_port_cast(base)->fd;
}

/* ---- the net ---- */

static void net_close(struct pst_net *net)
{
    net->magic = 0;
    free(net);
}

const struct pst_net_ops pst_net_memory = {
    .name = "memory",
    .net_close = net_close,
    .port_open = port_open,
    .port_close = port_close,
    .port_address = port_address,
    .port_progress = port_progress,
    .port_taken = port_taken,
    .port_fd = port_fd,
    .port_arm = port_arm,
    .peer_open = mem_peer_open,
    .peer_close = mem_peer_close,
    .peer_lane = mem_peer_lane,
    .peer_direct = mem_peer_direct,
    .peer_gathers = mem_peer_gathers,
    .peer_send = mem_peer_send,
    .peer_send_bulk = mem_peer_send_bulk,
    .msg_receive = mem_msg_receive,
    .msg_free = mem_msg_free,
};

int pst_mem_open(const char *chance, struct pst_net **out)
{
    struct pst_net *net;

    if (*chance && pst_memory_chance(chance) < 0)
        return -EINVAL;
    net = calloc(1, sizeof(*net));
    if (!net)
        return -ENOMEM;
    *net = (struct pst_net){.magic = PST_NET_MAGIC, .ops = &pst_net_memory};
    *out = net;
    return 0;
}

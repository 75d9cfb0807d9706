/* SPDX-License-Identifier: Apache-2.0 */
/* acceptor.c: one thread that accepts, and detached ones that serve. */
#include "net/acceptor.h"

#include "base/list.h"
#include "base/wait.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

enum {
    RETRY_MS = 100,        /* without descriptors or memory */
    YIELD_NS = 1000000000, /* for a connection that has been told to end */
};

struct pst_acceptor {
    struct pst_acceptor_listener listeners[PST_ACCEPTOR_LISTENERS_MAX];
    uint32_t listener_count;
    const struct pst_acceptor_ops *ops;
    void *ctx;
    int stop_fd;
    pthread_t thread;
    bool runs;
    pthread_mutex_t lock;
    pthread_cond_t gone; /* a connection */
    struct pst_list connections;
    uint32_t counts[PST_ACCEPTOR_LISTENERS_MAX];
};

struct connection {
    struct pst_list link;
    struct pst_acceptor *acceptor;
    int fd;
    uint32_t listener;
    bool kept, yields; /* it has been told to end */
};

static void connection_end(struct connection *connection)
{
    struct pst_acceptor *acceptor = connection->acceptor;

    pthread_mutex_lock(&acceptor->lock);
    pst_assert(acceptor->counts[connection->listener] > 0);
    close(connection->fd); /* under the lock: pst_acceptor_close() shuts down what is listed */
    pst_list_remove(&connection->link);
    acceptor->counts[connection->listener]--;
    pthread_cond_broadcast(&acceptor->gone);
    pthread_mutex_unlock(&acceptor->lock);
    free(connection);
}

static void *connection_run(void *arg)
{
    struct connection *connection = arg;

    connection->acceptor->ops->serve(connection->acceptor->ctx, connection->fd, connection->listener);
    connection_end(connection);
    return NULL;
}

/* Under the lock. Ends the oldest connection whose client has not greeted. Return: whether there was one. */
static bool make_room(struct pst_acceptor *acceptor, uint32_t listener)
{
    uint64_t until_ns = pst_now_ns() + YIELD_NS;
    uint32_t most = 2 * acceptor->listeners[listener].connections_max;

    if (!acceptor->listeners[listener].greets)
        return false;
    while (acceptor->counts[listener] > most && pst_now_ns() < until_ns) /* those that end are on their way */
        pst_cond_wait_until(&acceptor->gone, &acceptor->lock, until_ns);
    if (acceptor->counts[listener] > most)
        return false;
    pst_list_each (it, &acceptor->connections) {
        struct connection *connection = pst_list_entry(it, struct connection, link);

        if (connection->listener == listener && !connection->kept && !connection->yields) {
            connection->yields = true;
            shutdown(connection->fd, SHUT_RDWR); /* its thread sees it */
            return true;
        }
    }
    return false;
}

/* Takes @fd over. */
static void connection_open(struct pst_acceptor *acceptor, int fd, uint32_t listener)
{
    struct connection *connection = malloc(sizeof(*connection));
    pthread_t thread;
    bool full;

    if (!connection) {
        close(fd);
        return;
    }
    *connection = (struct connection){.acceptor = acceptor, .fd = fd, .listener = listener};
    pthread_mutex_lock(&acceptor->lock);
    full = ++acceptor->counts[listener] > acceptor->listeners[listener].connections_max &&
           !make_room(acceptor, listener);
    pst_list_push_back(&acceptor->connections, &connection->link);
    pthread_mutex_unlock(&acceptor->lock);
    if (full && acceptor->ops->refuse)
        acceptor->ops->refuse(acceptor->ctx, fd, listener);
    if (full || pthread_create(&thread, NULL, connection_run, connection) != 0)
        connection_end(connection);
    else
        pthread_detach(thread);
}

static void *acceptor_run(void *arg)
{
    struct pst_acceptor *acceptor = arg;
    struct pollfd ready[1 + PST_ACCEPTOR_LISTENERS_MAX] = {{.fd = acceptor->stop_fd, .events = POLLIN}};

    for (uint32_t i = 0; i < acceptor->listener_count; i++)
        ready[1 + i] = (struct pollfd){.fd = acceptor->listeners[i].fd, .events = POLLIN};
    while (!ready[0].revents) {
        if (poll(ready, 1 + acceptor->listener_count, -1) <= 0)
            continue;
        for (uint32_t i = 0; i < acceptor->listener_count && !ready[0].revents; i++) {
            int fd = ready[1 + i].revents ? accept4(ready[1 + i].fd, NULL, NULL, SOCK_CLOEXEC) : -1;

            if (fd >= 0)
                connection_open(acceptor, fd, i);
            else if (ready[1 + i].revents && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
                poll(ready, 1, RETRY_MS);
        }
    }
    return NULL;
}

static void set_kept(struct pst_acceptor *acceptor, int fd, bool kept)
{
    pthread_mutex_lock(&acceptor->lock);
    pst_list_each (it, &acceptor->connections) {
        struct connection *connection = pst_list_entry(it, struct connection, link);

        if (connection->fd == fd)
            connection->kept = kept;
    }
    pthread_mutex_unlock(&acceptor->lock);
}

void pst_acceptor_keep(struct pst_acceptor *acceptor, int fd)
{
    set_kept(acceptor, fd, true);
}

void pst_acceptor_let_yield(struct pst_acceptor *acceptor, int fd)
{
    set_kept(acceptor, fd, false);
}

int pst_acceptor_open(const struct pst_acceptor_listener *listeners, uint32_t count,
                      const struct pst_acceptor_ops *ops, void *ctx, struct pst_acceptor **out)
{
    struct pst_acceptor *acceptor = calloc(1, sizeof(*acceptor));
    int r;

    pst_assert(count > 0 && count <= PST_ACCEPTOR_LISTENERS_MAX);
    pst_assert(ops->serve);
    if (!acceptor)
        return -ENOMEM;
    *acceptor = (struct pst_acceptor){.listener_count = count, .ops = ops, .ctx = ctx};
    memcpy(acceptor->listeners, listeners, count * sizeof(*listeners));
    pst_list_init(&acceptor->connections);
    pthread_mutex_init(&acceptor->lock, NULL);
    pst_cond_init(&acceptor->gone);
    *out = acceptor; /* connections may come before this returns */
    acceptor->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    r = acceptor->stop_fd < 0 ? -errno : -pthread_create(&acceptor->thread, NULL, acceptor_run, acceptor);
    acceptor->runs = r == 0;
    if (r < 0)
        *out = pst_acceptor_close(acceptor);
    return r;
}

void pst_acceptor_stop(struct pst_acceptor *acceptor)
{
    if (!acceptor || !acceptor->runs)
        return;
    pst_event_set(acceptor->stop_fd);
    pst_assert(pthread_join(acceptor->thread, NULL) == 0);
    acceptor->runs = false;
}

struct pst_acceptor *pst_acceptor_close(struct pst_acceptor *acceptor)
{
    if (!acceptor)
        return NULL;
    pst_acceptor_stop(acceptor);
    pthread_mutex_lock(&acceptor->lock);
    pst_list_each (it, &acceptor->connections)
        shutdown(pst_list_entry(it, struct connection, link)->fd, SHUT_RDWR);
    while (!pst_list_empty(&acceptor->connections))
        pthread_cond_wait(&acceptor->gone, &acceptor->lock);
    pthread_mutex_unlock(&acceptor->lock);
    for (size_t i = 0; i < pst_count_of(acceptor->counts); i++)
        pst_assert(acceptor->counts[i] == 0);
    pst_close_fd(&acceptor->stop_fd);
    pthread_mutex_destroy(&acceptor->lock);
    pthread_cond_destroy(&acceptor->gone);
    free(acceptor);
    return NULL;
}

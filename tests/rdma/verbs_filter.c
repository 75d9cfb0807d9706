/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs_filter.c: what stands between UCX and the verbs of a process of guest.py's, preloaded there.
 *
 * - Soft RoCE raises "last WQE reached" of a queue pair again and again, hardware once, and UCX 1.13 aborts
 *   over the second: only the first gets through.
 * - What is posted is counted by opcode, in VERBS_FILTER_FOLDER/PID, which outlives the process.
 * - So are sleeps on UCX's worker of a thread that has looked into a completion queue, then armed it, and not
 * looked again: what came in between would not wake it.
 * - VERBS_FILTER_DIE=N: the process is killed by its Nth datagram.
 * - Connections come from VERBS_FILTER_ADDRESS: both hosts are one to Linux, which tells them apart by that.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { OPCODES = 8, QUEUES_MAX = 16 };

struct counts { /* as guest.py reads them */
    _Atomic unsigned long posted[OPCODES], bytes[OPCODES], datagrams, sleeps, blind_sleeps;
};

static struct counts none, *counts = &none;
static _Atomic unsigned char seen[1 << 24 >> 3]; /* queue pairs that have raised it, by number */
static struct ibv_context_ops own;
static const struct ibv_cq *_Atomic of_datagrams[QUEUES_MAX]; /* completion queues */
static _Thread_local struct {
    const struct ibv_cq *queue; /* NULL: this thread has not looked into it, nor into those that follow */
    int armed;
} queues[QUEUES_MAX];

/* The library's own: it has older functions of the same name, too. */
static void *verbs(const char *name)
{
    void *library = dlopen("libibverbs.so.1", RTLD_NOW);
    void *found = library ? dlvsym(library, name, "IBVERBS_1.1") : NULL;

    if (!found)
        abort();
    return found;
}

static int is_of_datagrams(const struct ibv_cq *cq)
{
    int place = 0;

    while (place < QUEUES_MAX - 1 && of_datagrams[place] && of_datagrams[place] != cq)
        place++;
    return of_datagrams[place] == cq;
}

static void note_datagrams(const struct ibv_cq *cq)
{
    for (int place = 0; place < QUEUES_MAX && !is_of_datagrams(cq); place++) {
        const struct ibv_cq *none_yet = NULL;

        atomic_compare_exchange_strong(&of_datagrams[place], &none_yet, cq);
    }
}

static void count_request(const struct ibv_qp *qp, const struct ibv_send_wr *request)
{
    const char *die = getenv("VERBS_FILTER_DIE");
    unsigned long bytes = 0;

    if (qp->qp_type == IBV_QPT_UD) {
        note_datagrams(qp->send_cq);
        note_datagrams(qp->recv_cq);
        if (++counts->datagrams > (die ? strtoul(die, NULL, 10) : -1ul))
            raise(SIGKILL);
        return;
    }
    for (int i = 0; i < request->num_sge; i++)
        bytes += request->sg_list[i].length;
    counts->posted[request->opcode % OPCODES]++;
    counts->bytes[request->opcode % OPCODES] += bytes;
}

static int filter_post_send(struct ibv_qp *qp, struct ibv_send_wr *requests, struct ibv_send_wr **bad)
{
    for (const struct ibv_send_wr *request = requests; request; request = request->next)
        count_request(qp, request);
    return own.post_send(qp, requests, bad);
}

/* The place of @cq, or of the next one that is looked into. */
static int place_of(const struct ibv_cq *cq)
{
    int place = 0;

    while (place < QUEUES_MAX - 1 && queues[place].queue && queues[place].queue != cq)
        place++;
    return place;
}

static int filter_req_notify(struct ibv_cq *cq, int solicited_only)
{
    int place = place_of(cq);

    queues[place].armed = queues[place].queue == cq;
    return own.req_notify_cq(cq, solicited_only);
}

static int filter_poll_cq(struct ibv_cq *cq, int entries, struct ibv_wc *completions)
{
    int place = place_of(cq);

    queues[place].queue = cq;
    queues[place].armed = 0;
    return own.poll_cq(cq, entries, completions);
}

int connect(int fd, const struct sockaddr *to, socklen_t bytes)
{
    const char *address = getenv("VERBS_FILTER_ADDRESS");
    struct sockaddr_in from = {.sin_family = AF_INET};
    int late = 1; /* the port is chosen when it is known to whom */

    if (address && to->sa_family == AF_INET && inet_pton(AF_INET, address, &from.sin_addr) == 1) {
        setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &late, sizeof(late));
        bind(fd, (const struct sockaddr *)&from, sizeof(from));
    }
    return (int)syscall(SYS_connect, fd, to, bytes);
}

/* UCX's worker has an epoll descriptor, which collects its completion channels. */
static int waits_for_worker(const struct pollfd *fds, nfds_t count)
{
    char path[32], target[32] = "";

    for (nfds_t i = 0; i < count; i++) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fds[i].fd);
        if (readlink(path, target, sizeof(target) - 1) > 0 && !strncmp(target, "anon_inode:[eventpoll]", 22))
            return 1;
    }
    return 0;
}

int poll(struct pollfd *fds, nfds_t count, int ms)
{
    static int (*real)(struct pollfd *, nfds_t, int);
    int waits = ms != 0 && waits_for_worker(fds, count), blind = 0;

    if (!real)
        *(void **)(void *)&real = dlsym(RTLD_NEXT, "poll");
    for (int i = 0; i < QUEUES_MAX; i++)
        blind |= queues[i].armed && !is_of_datagrams(queues[i].queue);
    counts->sleeps += waits;
    counts->blind_sleeps += waits && blind;
    return real(fds, count, ms);
}

static void counts_share(void)
{
    const char *folder = getenv("VERBS_FILTER_FOLDER");
    char path[256];
    int fd;

    if (!folder || counts != &none)
        return;
    snprintf(path, sizeof(path), "%s/%d", folder, (int)getpid());
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(*counts)) < 0)
        abort();
    counts = mmap(NULL, sizeof(*counts), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    struct ibv_context *(*real)(struct ibv_device *), *context;

    *(void **)(void *)&real = verbs("ibv_open_device");
    context = real(device);
    if (!context)
        return NULL;
    counts_share();
    own = context->ops;
    context->ops.post_send = filter_post_send;
    context->ops.req_notify_cq = filter_req_notify;
    context->ops.poll_cq = filter_poll_cq;
    return context;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
    int (*real)(struct ibv_qp *);

    *(void **)(void *)&real = verbs("ibv_destroy_qp");
    seen[qp->qp_num >> 3] &= (unsigned char)~(1u << (qp->qp_num & 7));
    return real(qp);
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    int (*real)(struct ibv_context *, struct ibv_async_event *);
    void (*ack)(struct ibv_async_event *);

    *(void **)(void *)&real = verbs("ibv_get_async_event");
    *(void **)(void *)&ack = verbs("ibv_ack_async_event");
    for (;;) {
        int r = real(context, event);
        unsigned number =
            r == 0 && event->event_type == IBV_EVENT_QP_LAST_WQE_REACHED ? event->element.qp->qp_num : 0;
        unsigned char bit = (unsigned char)(1u << (number & 7));

        if (number == 0 || !(atomic_fetch_or(&seen[number >> 3], bit) & bit))
            return r;
        ack(event); /* the descriptor does not block: the next one, or none */
    }
}

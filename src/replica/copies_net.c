/* SPDX-License-Identifier: Apache-2.0 */
/* copies_net.c: the thread that sends what copies.c decides, and its channels to other nodes and its own. */
#include "replica/copies_priv.h"

#include "base/clock.h"
#include "call/call.h"

#include <poll.h>

enum {
    SLEEP_MS = 20,
    POLLS_MAX = 64,  /* of one channel in a round */
    SEND_MS = 10000, /* for a value that comes from a busy SSD */
    WAYS_MAX = PEERS_MAX + 1,
};

struct way {
    struct pst_channel *channel; /* NULL: none */
    struct pst_op_list done;
};

struct copies_thread {
    struct pst_copies copies; /* first: it is what others see */
    struct pst_channel_options node;
    struct way ways[WAYS_MAX];
    pthread_t thread;
    bool running;
};

static struct copies_thread *thread_of(struct pst_copies *c)
{
    return pst_container_of(c, struct copies_thread, copies);
}

/* ---- ways ---- */

static int way_open(void *ctx, const struct pst_map_member *member, void **out)
{
    struct copies_thread *t = ctx;
    struct pst_channel_options options = t->node;
    uint32_t replica_ms = (uint32_t)t->copies.settings.replica_ms;
    const char *fault, *address;
    struct way *way = t->ways;
    int r = 0;

    while (way->channel)
        way++;
    pst_assert(way < t->ways + WAYS_MAX);
    if (member) {
        address = *member->address ? member->address : member->unix_path;
        r = pst_boot_address_parse(address, &options.address, &fault);
        options.connect_ms = options.timeout_ms = replica_ms;
    } else {
        options.connect_ms = (uint32_t)pst_max(replica_ms, 1000);
        options.timeout_ms = SEND_MS + replica_ms;
    }
    if (r == 0)
        r = pst_channel_begin(&options, &way->channel, &fault);
    if (r == 0)
        *out = way;
    return r;
}

static void way_close(void *ctx, void *arg)
{
    struct way *way = arg;

    (void)ctx;
    pst_assert(way->channel);
    pst_assert(way->done.count == 0);
    pst_channel_close(way->channel);
    *way = (struct way){.channel = NULL};
}

static void way_submit(void *ctx, struct send *send, int shard)
{
    struct way *way = send->peer->way;

    (void)ctx;
    pst_assert(way->channel);
    pst_channel_submit(way->channel, &send->op, shard, &way->done);
}

static uint32_t way_shards(void *ctx, const void *arg)
{
    const struct way *way = arg;

    (void)ctx;
    pst_assert(way && way->channel);
    return pst_channel_shards(way->channel);
}

static const struct copies_net net = {
    .open = way_open, .close = way_close, .submit = way_submit, .shards = way_shards};

/* ---- the thread ---- */

static bool way_poll(struct pst_copies *c, struct way *way)
{
    struct penstock_op *op;
    bool busy = false;

    if (!way->channel)
        return false;
    pst_channel_flush(way->channel);
    for (int i = 0; i < POLLS_MAX && pst_channel_poll(way->channel); i++)
        busy = true;
    while (way->done.count && (op = pst_op_list_pop(&way->done))) {
        copies_ended_send(c, op->user);
        busy = true;
    }
    return busy;
}

static struct pollfd way_arm(struct way *way, int *sleep_ms)
{
    int r;

    if (!way->channel)
        return (struct pollfd){.fd = -1};
    pst_channel_flush(way->channel);
    r = pst_channel_arm(way->channel);
    if (r < 0)
        *sleep_ms = r == -EAGAIN ? 0 : 1;
    return (struct pollfd){.fd = pst_channel_fd(way->channel), .events = POLLIN};
}

static void *thread_main(void *arg)
{
    struct copies_thread *t = arg;
    struct pst_copies *c = &t->copies;
    struct pollfd fds[WAYS_MAX + 1];

    pst_assert(c->serving);
    pst_assert(c->changed_fd >= 0);
    while (!c->quit || copies_underway(c) > 0) {
        int sleep_ms = SLEEP_MS;
        bool busy = false;

        pst_event_clear(c->wake_fd);
        for (uint32_t i = 0; i < WAYS_MAX; i++)
            busy |= way_poll(c, &t->ways[i]);
        copies_turn(c, pst_now_ns(), pst_wall_ns());
        for (uint32_t i = 0; i < WAYS_MAX; i++)
            fds[i] = way_arm(&t->ways[i], &sleep_ms);
        fds[WAYS_MAX] = (struct pollfd){.fd = c->wake_fd, .events = POLLIN};
        if (!busy)
            poll(fds, WAYS_MAX + 1, sleep_ms);
    }
    copies_turn(c, pst_now_ns(), pst_wall_ns());
    return NULL;
}

int pst_copies_open(const struct pst_copies_settings *settings, const struct pst_channel_options *node,
                    struct pst_serving *serving, int wake_fd, struct pst_copies **out)
{
    struct copies_thread *t = calloc(1, sizeof(*t));
    int r;

    if (!t)
        return -ENOMEM;
    t->node = *node;
    r = copies_init(&t->copies, settings, serving, wake_fd, &net, t);
    if (r == 0)
        r = -pthread_create(&t->thread, NULL, thread_main, t);
    t->running = r == 0;
    if (r < 0) {
        pst_copies_close(&t->copies);
        return r;
    }
    *out = &t->copies;
    return 0;
}

void pst_copies_stop(struct pst_copies *c)
{
    struct copies_thread *t = c ? thread_of(c) : NULL;

    if (!t || !t->running)
        return;
    copies_stop(c);
    pthread_join(t->thread, NULL);
    t->running = false;
    copies_close_peers(c);
}

struct pst_copies *pst_copies_close(struct pst_copies *c)
{
    if (!c)
        return NULL;
    pst_copies_stop(c);
    copies_fini(c);
    free(thread_of(c));
    return NULL;
}

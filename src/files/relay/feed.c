/* SPDX-License-Identifier: Apache-2.0 */
/*
 * feed.c: serves a child. Pieces go from the kernel's cache to the socket: a child that is slow holds its own
 * thread, and no memory. The socket's deadlines bound how long it may.
 */
#include "files/relay/feed_priv.h"

#include "base/clock.h"
#include "base/ms.h"
#include "base/wait.h"

#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>

struct child {
    struct link *link;
    uint64_t number;
    struct pst_served served;
    uint32_t count;
    uint32_t batch; /* whose digests it was sent last; UINT32_MAX: none */
    int fd;         /* of the file that was read last; -1 */
    uint32_t entry;
};

void relay_feed_init(struct relay_feed *feed, const struct relay_feed_ops *ops, void *ctx)
{

    *feed = (struct relay_feed){.ops = ops, .ctx = ctx};
    pthread_mutex_init(&feed->lock, NULL);
    pst_cond_init(&feed->changed);
}

void relay_feed_fini(struct relay_feed *feed)
{
    pst_assert(!feed->child);
    pthread_cond_destroy(&feed->changed);
    pthread_mutex_destroy(&feed->lock);
}

void relay_feed_plan(struct relay_feed *feed, const struct relay_plan *plan, uint32_t have)
{
    pthread_mutex_lock(&feed->lock);
    pst_assert(!feed->plan);
    pst_assert(have <= plan->count);
    feed->plan = plan;
    feed->have = have;
    pthread_cond_broadcast(&feed->changed);
    pthread_mutex_unlock(&feed->lock);
}

void relay_feed_add(struct relay_feed *feed)
{
    pthread_mutex_lock(&feed->lock);
    pst_assert(feed->plan && feed->have < feed->plan->count);
    feed->have++;
    pst_assert(feed->have <= feed->plan->count);
    pthread_cond_broadcast(&feed->changed);
    pthread_mutex_unlock(&feed->lock);
}

void relay_feed_end(struct relay_feed *feed)
{
    pthread_mutex_lock(&feed->lock);
    feed->over = true;
    pthread_cond_broadcast(&feed->changed);
    pthread_mutex_unlock(&feed->lock);
}

/* Under the lock. */
static void feed_pause(struct relay_feed *feed, uint32_t ms)
{
    pst_cond_wait_until(&feed->changed, &feed->lock, pst_deadline_ns(pst_now_ns(), ms));
}

void relay_feed_wait(struct relay_feed *feed, uint32_t ms)
{
    uint64_t until_ms = pst_now_ms() + ms;

    pthread_mutex_lock(&feed->lock);
    for (uint64_t now_ms = pst_now_ms(); !feed->child_done && now_ms < until_ms; now_ms = pst_now_ms())
        feed_pause(feed, (uint32_t)(until_ms - now_ms));
    feed->child_done = false; /* once for each child */
    pthread_mutex_unlock(&feed->lock);
}

uint64_t relay_feed_served_ms(struct relay_feed *feed)
{
    uint64_t served_ms;

    pthread_mutex_lock(&feed->lock);
    served_ms = feed->served_ms;
    pthread_mutex_unlock(&feed->lock);
    return served_ms;
}

/* ---- a child ---- */

int relay_receive_follow(struct link *link, struct relay_follow *out)
{
    struct pst_reader frame;
    enum link_type type;
    uint64_t version;
    int r = link_receive(link, LINK_FOLLOW, &type, &frame);

    if (r < 0)
        return r;
    version = pst_read_number(&frame, 2);
    pst_read_copy(&frame, out->key, sizeof(out->key));
    out->next = (uint32_t)pst_read_number(&frame, 4);
    out->wants_plan = pst_read_number(&frame, 1) & RELAY_WANTS_PLAN;
    link_read_text(&frame, out->group, sizeof(out->group));
    if (version != PST_BROADCAST_VERSION)
        return link_fail(link, -EPROTONOSUPPORT, "the child speaks version %u of broadcasts, this side %d",
                         (unsigned)version, PST_BROADCAST_VERSION);
    if (frame.bad)
        return link_fail(link, -EPROTO, "the child follows nothing that there is");
    return 0;
}

/* It takes the place of one that is served. */
static void child_begin(struct relay_feed *feed, struct child *child)
{
    pst_assert(child->number == 0);
    pst_assert(child->fd < 0);
    pthread_mutex_lock(&feed->lock);
    if (feed->child)
        shutdown(feed->child->fd, SHUT_RDWR);
    feed->child = child->link;
    feed->child_done = false;
    child->number = ++feed->children;
    pthread_cond_broadcast(&feed->changed);
    pthread_mutex_unlock(&feed->lock);
}

static void child_end(struct relay_feed *feed, struct child *child, bool done)
{
    pthread_mutex_lock(&feed->lock);
    pst_assert(child->number > 0 && child->number <= feed->children);
    if (child->number == feed->children) {
        feed->child = NULL;
        feed->child_done = done;
        pthread_cond_broadcast(&feed->changed);
    }
    pthread_mutex_unlock(&feed->lock);
    pst_close_fd(&child->fd);
}

/* @entry cannot be read: whoever is served is told from now on. */
static int feed_fail(struct relay_feed *feed, int error, uint32_t entry)
{
    pst_assert(error < 0);
    pst_assert(feed->plan && entry < feed->plan->m.count);
    pthread_mutex_lock(&feed->lock);
    snprintf(feed->fault, sizeof(feed->fault), "%.180s: %s", feed->plan->m.entries[entry].path,
             error == -ESTALE ? "changed since the broadcast began" : strerror(-error));
    pthread_mutex_unlock(&feed->lock);
    return error;
}

/* Return: 0 and the open file in @child, or -errno. */
static int child_open(struct relay_feed *feed, struct child *child, uint32_t entry)
{
    if (child->fd >= 0 && child->entry == entry)
        return 0;
    pst_close_fd(&child->fd);
    child->fd = feed->ops->open(feed->ctx, entry);
    child->entry = entry;
    return child->fd >= 0 ? 0 : feed_fail(feed, child->fd, entry);
}

/* The digests of a batch go out in front of its first piece. Return: 0 or -errno. */
static int child_send_batch(struct relay_feed *feed, struct child *child, uint32_t batch)
{
    uint32_t entry = 0;
    int r = feed->ops->make_batch ? feed->ops->make_batch(feed->ctx, batch, &entry) : 0;

    if (r < 0)
        return feed_fail(feed, r, entry);
    pst_assert(batch < feed->plan->batch_count);
    child->batch = batch;
    return relay_batch_send(child->link, feed->plan, batch);
}

static int child_send_piece(struct relay_feed *feed, struct child *child)
{
    uint32_t piece = child->served.next, batch = piece / feed->plan->batch_pieces;
    struct pst_piece_walk walk;
    struct pst_piece_part part;
    int r = 0;

    pst_assert(piece < feed->plan->count);
    pst_assert(piece < child->count);
    if (batch != child->batch && child_send_batch(feed, child, batch) < 0)
        return child->link->error; /* if it has none, the next turn tells */
    pst_piece_walk(&feed->plan->pieces, piece, &walk);
    pst_assert(pst_piece_next(&walk, &part));
    if (child_open(feed, child, part.entry) < 0)
        return 0;
    link_put_number(child->link, piece, 4);
    r = link_send_head(child->link, LINK_PIECE, pst_piece_length(&feed->plan->pieces, piece));
    do {
        if (r == 0 && child_open(feed, child, part.entry) < 0) {
            shutdown(child->link->fd,
                     SHUT_RDWR); /* in the middle of a frame: told to it when it comes again */
            r = -EIO;
        }
        if (r == 0)
            r = link_send_file(child->link, child->fd, part.at, part.bytes);
    } while (r == 0 && pst_piece_next(&walk, &part));
    pst_assert(child->served.next == piece);
    child->served.next++;
    return r;
}

/* Why the child is served no more. Under the lock. Return: 0 it is served; -ESHUTDOWN this side ends;
 * -ECANCELED with a text in @fault. */
static int child_fault(const struct relay_feed *feed, const struct child *child, char fault[PST_FAULT_BYTES])
{
    pst_assert(child->number > 0 && child->number <= feed->children);
    if (feed->over)
        return -ESHUTDOWN;
    if (child->number == feed->children && !feed->fault[0])
        return 0;
    snprintf(fault, PST_FAULT_BYTES, "%s",
             child->number != feed->children ? "another child is served" : feed->fault);
    return -ECANCELED;
}

/* A side that ends says nothing: its child is to come again, as if it had been killed. */
static int child_fail(struct child *child, int error, const char *fault)
{
    pst_assert(error < 0);
    if (error != -ESHUTDOWN)
        return link_fail(child->link, error, "%s", fault);
    shutdown(child->link->fd, SHUT_RDWR);
    return error;
}

/* What is next for the child; waits, if there is nothing. Return: 0, or the link's error. */
static int child_turn(struct relay_feed *feed, struct child *child, enum pst_serve_turn *turn)
{
    char fault[PST_FAULT_BYTES];
    uint32_t wait_ms = 0;
    int r;

    pthread_mutex_lock(&feed->lock);
    pst_assert(!feed->plan || (feed->plan->count == child->count && feed->have <= child->count));
    *turn = pst_serve_turn(&child->served, feed->plan ? feed->have : 0, child->count, pst_now_ms(), &wait_ms);
    r = child_fault(feed, child, fault);
    if (r == 0 && *turn == PST_SERVE_WAIT)
        feed_pause(feed, wait_ms);
    if (*turn == PST_SERVE_PIECE && child->served.next >= feed->served) {
        feed->served = child->served.next + 1;
        feed->served_ms = pst_now_ms();
    }
    pthread_mutex_unlock(&feed->lock);
    return r < 0 ? child_fail(child, r, fault) : 0;
}

static int child_serve(struct relay_feed *feed, struct child *child)
{
    enum pst_serve_turn turn;
    int r;

    do {
        r = child_turn(feed, child, &turn);
        if (r == 0 && turn != PST_SERVE_WAIT)
            child->served.said_ms = pst_now_ms();
        if (r == 0 && turn == PST_SERVE_PIECE)
            r = child_send_piece(feed, child);
        else if (r == 0 && turn == PST_SERVE_BEAT)
            r = link_send(child->link, LINK_ALIVE);
    } while (r == 0 && turn != PST_SERVE_END);
    return r;
}

/* Waits for the plan, beating. */
static int child_send_plan(struct relay_feed *feed, struct child *child)
{
    char fault[PST_FAULT_BYTES];
    bool there = false;
    int r = 0;

    while (r == 0 && !there) {
        pthread_mutex_lock(&feed->lock);
        r = child_fault(feed, child, fault);
        if (r == 0 && !feed->plan)
            feed_pause(feed, PST_CHAIN_BEAT_MS);
        there = feed->plan;
        pthread_mutex_unlock(&feed->lock);
        if (r < 0)
            r = child_fail(child, r, fault);
        else if (!there)
            r = link_send(child->link, LINK_ALIVE);
    }
    return r < 0 ? r : carry_send_entries(child->link, &feed->plan->m);
}

int relay_feed_serve(struct relay_feed *feed, struct link *link, const struct relay_follow *follow,
                     const uint8_t key[RELAY_KEY_BYTES], uint32_t count)
{
    struct child child = {
        .link = link, .served = {.next = follow->next}, .count = count, .batch = UINT32_MAX, .fd = -1};
    struct pst_reader frame;
    enum link_type type;
    sigset_t pipe;
    int r = 0;

    if (memcmp(follow->key, key, RELAY_KEY_BYTES) != 0 || follow->next > count)
        return link_fail(link, -ESTALE, "the child follows another broadcast");
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE); /* sendfile() knows no MSG_NOSIGNAL */
    pthread_sigmask(SIG_BLOCK, &pipe, NULL);
    child_begin(feed, &child);
    if (follow->wants_plan)
        r = child_send_plan(feed, &child);
    if (r == 0)
        r = child_serve(feed, &child);
    if (r == 0)
        r = link_send(link, LINK_DONE);
    if (r == 0)
        r = link_receive(link, LINK_DONE, &type, &frame);
    child_end(feed, &child, r == 0);
    return r;
}

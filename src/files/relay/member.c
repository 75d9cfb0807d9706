/* SPDX-License-Identifier: Apache-2.0 */
/* member.c: all that a member does, from joining to leaving. */
#include "files/relay/member_priv.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/ms.h"
#include "base/wait.h"

#include <stdio.h>
#include <sys/socket.h>

/* A child wants a file. */
static int member_open_entry(void *ctx, uint32_t entry)
{
    struct relay_member *m = ctx;
    int fd;

    pthread_mutex_lock(&m->sink_lock);
    fd = m->sink->open(m->sink_ctx, entry);
    pthread_mutex_unlock(&m->sink_lock);
    return fd;
}

static const struct relay_feed_ops member_ops = {.open = member_open_entry};

/* Return: whether the teller is to stop. */
static bool member_pause(struct relay_member *m, uint32_t ms)
{
    uint64_t at_ns = pst_deadline_ns(pst_now_ns(), ms);
    bool stopping;

    pthread_mutex_lock(&m->lock);
    while (!m->stopping && pst_now_ns() < at_ns)
        pst_cond_wait_until(&m->changed, &m->lock, at_ns);
    stopping = m->stopping;
    pthread_mutex_unlock(&m->lock);
    return stopping;
}

static void member_end_parent(struct relay_member *m)
{
    pthread_mutex_lock(&m->lock);
    if (m->parent_fd >= 0)
        shutdown(m->parent_fd, SHUT_RDWR);
    pthread_mutex_unlock(&m->lock);
}

/* For how long no piece has come. The clock is read last: a piece that comes meanwhile is not of the future.
 */
static uint64_t member_silence_ms(const struct relay_member *m)
{
    uint64_t piece_ms = m->piece_ms, now_ms = pst_now_ms();

    pst_assert(piece_ms > 0);
    return now_ms - pst_min(now_ms, piece_ms);
}

static void *teller_run(void *arg)
{
    struct relay_member *m = arg;
    char ignored[PST_FAULT_BYTES];

    while (!member_pause(m, MEMBER_TELL_MS)) {
        member_tell(m, RELAY_PROGRESS, 0, NULL, ignored); /* a store that does not answer is asked again */
        if (member_is_stopped(m) || member_silence_ms(m) >= m->timeout_ms / 2)
            member_end_parent(m); /* it beats, but whatever the cause, nothing comes from it */
    }
    return NULL;
}

static void teller_stop(struct relay_member *m)
{
    if (!m->tells)
        return;
    pthread_mutex_lock(&m->lock);
    m->stopping = true;
    pthread_cond_signal(&m->changed);
    pthread_mutex_unlock(&m->lock);
    pst_assert(pthread_join(m->teller, NULL) == 0);
    m->tells = false;
}

static struct relay_place member_place(struct relay_member *m)
{
    struct relay_place place;

    pthread_mutex_lock(&m->lock);
    place = m->place;
    pthread_mutex_unlock(&m->lock);
    return place;
}

/* ---- fetching ---- */

/* The parent of @place has failed. Return: 0: the store has answered, or is asked again later; its error. */
static int member_report(struct relay_member *m, const struct relay_place *place, enum follow_end how,
                         char fault[PST_FAULT_BYTES])
{
    char text[PST_FAULT_BYTES];
    bool told = false;
    int r = 0;

    /* The teller may have learned of another place meanwhile, and the connection ended for that. */
    if (member_place(m).parent_rank == place->parent_rank)
        r = member_tell(m, how == FOLLOW_WRONG ? RELAY_WRONG_BYTES : RELAY_SILENT, place->parent_rank, &told,
                        text);
    if (r < 0 && told) {
        memcpy(fault, text, sizeof(text));
        return r;
    }
    if (r < 0 || member_place(m).parent_rank == place->parent_rank)
        member_pause(m, MEMBER_RETRY_MS); /* the same one again: the source, or the store does not answer */
    return 0;
}

static int member_fetch(struct relay_member *m, char fault[PST_FAULT_BYTES])
{
    char why[PST_FAULT_BYTES] = "";
    int error = 0;

    pst_assert(m->tells);
    pst_assert(m->timeout_ms > 0);
    for (;;) {
        struct relay_place place = member_place(m);
        enum follow_end how = member_follow(m, &place, &error, why);

        if (how == FOLLOW_ALL)
            return 0;
        if (how == FOLLOW_FAILED) {
            memcpy(fault, why, sizeof(why));
            return error;
        }
        if (member_is_stopped(m)) {
            snprintf(fault, PST_FAULT_BYTES, "the broadcast was given up");
            return -ECANCELED;
        }
        error = member_report(m, &place, how, fault);
        if (error < 0)
            return error;
        if (member_silence_ms(m) >= m->timeout_ms) {
            snprintf(fault, PST_FAULT_BYTES,
                     "no piece has come for %u ms, from member %u or any other; %.150s", m->timeout_ms,
                     place.parent_rank, why);
            return -ETIMEDOUT;
        }
    }
}

/* ---- beginning and end ---- */

/* Stays until nobody behind needs it, or fetches. */
static void member_linger(struct relay_member *m)
{
    uint64_t since_ms = pst_now_ms();
    char ignored[PST_FAULT_BYTES];

    pst_assert(!m->tells);
    while (!member_place(m).may_leave && !member_is_stopped(m) &&
           pst_now_ms() < since_ms + MEMBER_LINGER_MS) {
        relay_feed_wait(&m->feed, MEMBER_TELL_MS);
        member_tell(m, RELAY_DONE, 0, NULL, ignored);
        since_ms = pst_max(since_ms, relay_feed_served_ms(&m->feed));
    }
}

static void member_init(struct relay_member *m, const struct pst_broadcast_options *options,
                        const struct pst_broadcast_sink *sink, void *sink_ctx)
{

    *m = (struct relay_member){
        .options = options,
        .sink = sink,
        .sink_ctx = sink_ctx,
        .timeout_ms = options->timeout_ms ? options->timeout_ms : PST_BROADCAST_TIMEOUT_MS,
        .piece_ms = pst_now_ms(),
        .parent_fd = -1,
    };
    pst_random(&m->id, sizeof(m->id));
    relay_feed_init(&m->feed, &member_ops, m);
    pthread_mutex_init(&m->sink_lock, NULL);
    pthread_mutex_init(&m->call_lock, NULL);
    pthread_mutex_init(&m->lock, NULL);
    pst_cond_init(&m->changed);
}

static void member_fini(struct relay_member *m)
{
    teller_stop(m);
    pst_assert(m->parent_fd < 0);
    relay_feed_end(&m->feed);
    pst_carry_server_close(m->server);
    relay_feed_fini(&m->feed);
    if (m->begun)
        m->sink->close(m->sink_ctx);
    relay_plan_fini(&m->plan);
    pthread_cond_destroy(&m->changed);
    pthread_mutex_destroy(&m->lock);
    pthread_mutex_destroy(&m->call_lock);
    pthread_mutex_destroy(&m->sink_lock);
}

static int member_run(struct relay_member *m, char fault[PST_FAULT_BYTES])
{
    char ignored[PST_FAULT_BYTES];
    int r = member_join(m, fault);

    if (r < 0 || m->place.copies)
        return r < 0 ? r : PST_BROADCAST_COPIES;
    m->piece_ms = pst_now_ms();
    r = -pthread_create(&m->teller, NULL, teller_run, m);
    m->tells = r == 0;
    if (r == 0)
        r = member_fetch(m, fault);
    else
        snprintf(fault, PST_FAULT_BYTES, "a thread: %s", strerror(-r));
    teller_stop(m);
    if (r == 0)
        member_linger(m);
    if (r != -ETIMEDOUT) /* else there is no store that could be told */
        member_tell(m, RELAY_LEAVE, 0, NULL, ignored);
    return r;
}

int pst_broadcast_receive(const struct pst_broadcast_options *options, const struct pst_broadcast_sink *sink,
                          void *sink_ctx, char fault[PST_FAULT_BYTES])
{
    size_t bytes = strnlen(options->group, RELAY_GROUP_BYTES_MAX + 1);
    struct relay_member m;
    bool forgotten;
    int joins = 0, r;

    if (bytes == 0 || bytes > RELAY_GROUP_BYTES_MAX) {
        snprintf(fault, PST_FAULT_BYTES, "a group has a name of 1 to %d bytes", RELAY_GROUP_BYTES_MAX);
        return -EINVAL;
    }
    do {
        member_init(&m, options, sink, sink_ctx);
        r = member_run(&m, fault);
        forgotten = r == -ESTALE && m.forgotten;
        member_fini(&m);
    } while (forgotten && ++joins < MEMBER_JOINS_MAX);
    return r;
}

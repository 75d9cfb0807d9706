/* SPDX-License-Identifier: Apache-2.0 */
/*
 * follow.c: a master that has a share of the directory (directory/share.h) and never leads: its thread tells
 * the leading master, every heartbeat_ms, that it has the share, and takes the pool map from there. Nothing
 * of it lasts: its keys come from the nodes.
 */
#include "master/follow_priv.h"

#include "base/clock.h"
#include "base/ms.h"
#include "base/wait.h"
#include "wire/pool_share.h"

#include <stdarg.h>
#include <stdio.h>

enum {
    ASK_MS = 1000,
    RETRY_MS = 200, /* behind what has failed */
    SLEEP_MS = 20,  /* while an answer is awaited, so that deadlines are looked at */
    MAP_TRIES = 8,  /* another one may come while its pieces are fetched */
};

/* The same trouble is logged once. */
static void follow_trouble(struct pst_master *m, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void follow_trouble(struct pst_master *m, const char *format, ...)
{
    struct pst_follower *f = m->follower;
    char text[PST_FAULT_BYTES];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (strcmp(text, f->told) == 0)
        return;
    memcpy(f->told, text, sizeof(text));
    pst_master_log(m, "share %u of the directory: %s", f->self.share, text);
}

/* ---- asking ---- */

static void hang_up(struct pst_follower *f)
{
    pst_assert(f->channel);
    pst_assert(f->leader_at < f->leader_count);
    f->channel = pst_channel_close(f->channel);
    f->leader_at = (f->leader_at + 1) % f->leader_count;
}

static bool dial(struct pst_master *m)
{
    struct pst_follower *f = m->follower;
    const char *fault = "";
    char address[PST_MAP_ADDRESS_BYTES];
    int r;

    if (f->channel)
        return true;
    pst_assert(f->leader_at < f->leader_count);
    f->options.address = f->leaders[f->leader_at];
    r = pst_channel_open(&f->options, &f->channel, &fault);
    if (r == 0)
        return true;
    pst_boot_address_print(&f->options.address, address, sizeof(address));
    follow_trouble(m, "master %.100s: %s", address, *fault ? fault : strerror(-r));
    f->leader_at = (f->leader_at + 1) % f->leader_count;
    return false;
}

/* Return: the result; -ECONNRESET: it is to be asked again, of the next master. */
static int ask(struct pst_master *m, struct penstock_op *op, void *question, size_t bytes)
{
    struct pst_follower *f = m->follower;
    struct pst_op_list done = {0};

    pst_assert(f->channel);
    op->attrs = question;
    op->attr_bytes = (uint16_t)bytes;
    op->data = f->answer;
    op->bytes = sizeof(f->answer);
    pst_channel_submit(f->channel, op, 0, &done);
    pst_channel_flush(f->channel);
    while (!done.count)
        pst_channel_wait(f->channel, &done, SLEEP_MS);
    pst_assert(done.count == 1);
    if (op->result >= 0 || op->result == -EINVAL || op->result == -EEXIST || op->result == -EXDEV)
        return op->result;
    if (op->result == PST_POOL_STANDBY)
        follow_trouble(m, "the master that it asked does not lead");
    else
        follow_trouble(m, "the master that it asked: %s", strerror(-op->result));
    hang_up(f);
    return -ECONNRESET;
}

/* ---- the pool map ---- */

/* The lock is held. */
static void forget_all(struct pst_master *m)
{
    m->begun = false;
    pst_lead_end(m);
    memset(m->follower->self.pool, 0, sizeof(m->follower->self.pool));
}

/* The lock is held. */
static int begin_with(struct pst_master *m, const struct pst_map *map)
{
    struct pst_follower *f = m->follower;
    int r;

    m->begun = false;
    pst_lead_end(m);
    pst_assert(!m->directory);
    r = pst_lead_open_external(m);
    if (r == 0)
        r = pst_directory_open_share(&m->settings->directory, map, f->self.share, f->self.start, pst_now_ns(),
                                     &m->directory);
    if (r < 0)
        pst_lead_end(m);
    return r;
}

static int take_map(struct pst_master *m, const struct pst_map *map)
{
    struct pst_follower *f = m->follower;
    int r = -ESTALE;

    if (f->self.share >= map->share_count)
        return -EINVAL;
    pthread_mutex_lock(&m->lock);
    if (m->directory)
        r = pst_directory_follow(m->directory, map, pst_now_ns());
    if (r == -ESTALE)
        r = begin_with(m, map);
    if (r == 0) {
        pst_assert(m->directory);
        pst_assert(f->fetch.map_bytes <= m->map_room); /* it was decoded for as many members */
        memcpy(m->map, f->fetch.bytes, f->fetch.map_bytes);
        m->map_bytes = f->fetch.map_bytes;
        memcpy(f->self.pool, &map->pool, sizeof(f->self.pool));
        m->begun = true;
        pst_lead_follow_map(m);
    }
    pthread_mutex_unlock(&m->lock);
    return r;
}

static int fetch_map(struct pst_master *m)
{
    struct pst_follower *f = m->follower;
    struct pst_map *map = NULL;
    int r = 1;

    pst_map_fetch_begin(&f->fetch);
    while (r == 1 && f->fetch.restarts < MAP_TRIES) {
        struct penstock_op op = {.code = PST_POOL_MAP, .offset = f->fetch.at};

        r = ask(m, &op, NULL, 0);
        if (r == 0)
            r = pst_map_fetch_take(&f->fetch, (struct pst_bytes){f->answer, op.value_bytes}, op.generation);
        else if (r > 0)
            r = -EAGAIN;
    }
    r = r == 1 ? -EAGAIN : r;
    if (r == 0)
        r = pst_map_fetch_decode(&f->fetch, m->members_max, &map);
    if (r == 0)
        r = take_map(m, map);
    if (r == -E2BIG)
        follow_trouble(m, "the pool has more members than members_max says here");
    else if (r < 0 && r != -ECONNRESET && r != -EAGAIN)
        follow_trouble(m, "the pool map: %s", strerror(-r));
    pst_map_close(map);
    return r;
}

/* ---- a turn ---- */

/* The pool has no place for this process, for now. */
static void stand_by(struct pst_master *m, int r)
{
    struct pst_follower *f = m->follower;

    if (r == -EEXIST)
        follow_trouble(m, "another process has it");
    else if (r == -EINVAL)
        follow_trouble(m, "the pool has none of that number: see directory_shards of its master");
    else
        follow_trouble(m, "the master's pool is another one now");
    pst_assert(r < 0);
    pthread_mutex_lock(&m->lock);
    forget_all(m);
    pthread_mutex_unlock(&m->lock);
    if (r != -EXDEV)
        hang_up(f);
}

static uint64_t map_version(struct pst_master *m)
{
    uint64_t version;

    pthread_mutex_lock(&m->lock);
    version = m->directory ? pst_directory_map(m->directory)->version : 0;
    pthread_mutex_unlock(&m->lock);
    return version;
}

/* Return: whether the leading master was heard, and its pool map is the one here. */
static bool follow_turn(struct pst_master *m)
{
    struct pst_follower *f = m->follower;
    uint64_t asked_ns = pst_clock_read_ns(CLOCK_BOOTTIME);
    struct penstock_op op = {.code = PST_POOL_SHARE};
    int r;

    if (!dial(m))
        return false;
    r = ask(m, &op, &f->self, sizeof(f->self));
    if (r == -EEXIST || r == -EINVAL || r == -EXDEV)
        stand_by(m, r);
    if (r == 0 && op.generation != map_version(m))
        r = fetch_map(m);
    if (r != 0)
        return false;
    pthread_mutex_lock(&m->lock);
    pst_boot_address_print(&f->leaders[f->leader_at], m->leader, sizeof(m->leader));
    pthread_mutex_unlock(&m->lock);
    f->heard_ns = asked_ns;
    f->told[0] = '\0';
    return true;
}

void pst_follow_run(struct pst_master *m)
{
    struct pst_follower *f = m->follower;
    uint64_t ask_ns = 0;

    pst_assert(f);
    while (!m->stopping) {
        if (pst_now_ns() >= ask_ns || f->hurries) {
            bool heard;

            f->hurries = false;
            pthread_mutex_unlock(&m->lock);
            heard = follow_turn(m);
            ask_ns = pst_deadline_ns(pst_now_ns(), heard ? m->heartbeat_ms : RETRY_MS);
            pthread_mutex_lock(&m->lock);
        }
        if (m->directory)
            pst_directory_tick(m->directory, pst_now_ns());
        pst_master_publish(m);
        if (!m->stopping && !f->hurries)
            pst_cond_wait_until(&m->stir, &m->lock,
                                pst_min(ask_ns, pst_deadline_ns(pst_now_ns(), m->tick_ms)));
    }
}

enum pst_standing pst_follow_hold(const struct pst_master *m)
{
    uint64_t late_ms = m->heartbeat_ms * m->settings->directory.heartbeats_missed;

    pst_assert(m->follower);
    return pst_clock_read_ns(CLOCK_BOOTTIME) < pst_deadline_ns(m->follower->heard_ns, late_ms) ? PST_LEADS
                                                                                               : PST_SPEAKS;
}

void pst_follow_hurry(struct pst_master *m)
{
    pst_assert(m->follower);
    m->follower->hurries = true;
    pthread_cond_signal(&m->stir);
}

/* ---- beginning and end ---- */

int pst_follow_open(struct pst_master *m, const struct pst_master_leader *leader, char *fault)
{
    struct pst_follower *f = calloc(1, sizeof(*f));
    const char *why = "";

    pst_assert(!m->follower);
    pst_assert(m->settings->directory_shard > 0);
    snprintf(fault, PST_FAULT_BYTES, "out of memory");
    if (!f)
        return -ENOMEM;
    m->follower = f;
    f->options = leader->channel;
    f->options.connect_ms = f->options.timeout_ms = ASK_MS;
    f->self.share = (uint8_t)m->settings->directory_shard;
    while (!f->self.start)
        pst_random(&f->self.start, sizeof(f->self.start));
    if ((size_t)snprintf(f->self.address, sizeof(f->self.address), "%s", leader->address) >=
        sizeof(f->self.address)) {
        snprintf(fault, PST_FAULT_BYTES, "advertise: longer than %d bytes", PST_MAP_ADDRESS_BYTES - 1);
        return -EINVAL;
    }
    for (; f->leader_count < leader->leaders->count; f->leader_count++) {
        const char *text = leader->leaders->items[f->leader_count];
        int r;

        pst_assert(f->leader_count < PST_STRINGS_MAX);
        r = pst_boot_address_parse(text, &f->leaders[f->leader_count], &why);
        if (r < 0) {
            snprintf(fault, PST_FAULT_BYTES, "master %.150s: %s", text, why);
            return r;
        }
    }
    pst_assert(f->leader_count > 0);
    return 0;
}

void pst_follow_close(struct pst_master *m)
{
    if (!m->follower)
        return;
    pst_channel_close(m->follower->channel);
    pst_map_fetch_fini(&m->follower->fetch);
    free(m->follower);
    m->follower = NULL;
}

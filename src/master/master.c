/* SPDX-License-Identifier: Apache-2.0 */
/* master.c: a master's life, and its thread, which leads while it may, and looks after time. */
#include "master/master_priv.h"

#include "base/clock.h"
#include "base/ms.h"
#include "base/wait.h"
#include "master/follow_priv.h"
#include "master/map_file.h"
#include "master/stored.h"

#include <stdarg.h>
#include <stdio.h>

void pst_master_log(const struct pst_master *m, const char *format, ...)
{
    char line[512];
    va_list args;

    if (!m->log)
        return;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    m->log(m->log_ctx, line);
}

/* ---- its thread ---- */

enum pst_standing pst_master_hold(const struct pst_master *m)
{
    uint64_t now_ns = pst_clock_read_ns(CLOCK_BOOTTIME);
    struct pst_hold hold;

    if (m->follower)
        return pst_follow_hold(m);
    hold = m->keeper->ops->hold(m->keeper, NULL);
    if (now_ns < hold.leads_until_ns)
        return PST_LEADS;
    return now_ns < hold.speaks_until_ns ? PST_SPEAKS : PST_STANDS_BY;
}

enum pst_standing pst_master_standing(const struct pst_master *m)
{
    if (!m->begun)
        return PST_STANDS_BY;
    pst_assert(m->directory);
    pst_assert(m->map_bytes > 0);
    return pst_master_hold(m);
}

static void tell_of_standing(struct pst_master *m, enum pst_standing standing)
{
    static const char *const texts[] = {
        [PST_STANDS_BY] = "this master does not lead, and grants no lease any more",
        [PST_SPEAKS] = "this master does not lead for now: nodes serve on with the pool map that they have",
        [PST_LEADS] = "this master leads"};
    char fault[PST_FAULT_BYTES];

    m->keeper->ops->hold(m->keeper, fault);
    if (m->begun && standing != m->told)
        pst_master_log(m, "%s%s%s", texts[standing], standing != PST_LEADS && *fault ? ": " : "",
                       standing != PST_LEADS ? fault : "");
    m->told = m->begun ? standing : PST_STANDS_BY;
}

static void work(struct pst_master *m)
{
    enum pst_standing standing;

    if (m->keeper->ops->shared)
        pst_lead_step(m);
    standing = pst_master_standing(m);
    /* What cannot be stored is not to happen: who is silent meanwhile may be back by then. */
    if (standing == PST_LEADS && !(m->failing && m->keeper->ops->shared))
        pst_directory_tick(m->directory, pst_now_ns());
    if (m->guests)
        pst_guests_tick(m->guests, pst_now_ns());
    if (m->directory && pst_now_ns() >= m->retry_ns)
        pst_lead_store(m);
    if (m->keeper->ops->shared)
        tell_of_standing(m, pst_master_standing(m));
}

static void *master_main(void *arg)
{
    struct pst_master *m = arg;

    pst_assert(m->magic == PST_MASTER_MAGIC);
    pst_assert(m->running);
    pst_assert(m->tick_ms > 0);
    pthread_mutex_lock(&m->lock);
    if (m->follower)
        pst_follow_run(m);
    while (!m->stopping) {
        uint64_t until_ns = pst_deadline_ns(pst_now_ns(), m->tick_ms);

        work(m);
        pst_master_publish(m);
        if (!m->stopping)
            pst_cond_wait_until(&m->stir, &m->lock, until_ns);
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

/* ---- life ---- */

static int open_tables(struct pst_master *m, char *fault)
{
    pst_assert(m->members_max >= 1 && m->members_max <= PST_MAP_MEMBERS_MAX);
    pst_assert(!m->map);
    pst_assert(!m->external);
    snprintf(fault, PST_FAULT_BYTES, "out of memory");
    m->map_room = pst_stored_bytes_max(m->members_max);
    m->map = malloc(m->map_room);
    m->map_next = malloc(m->map_room);
    m->external_epochs = calloc(m->members_max, sizeof(*m->external_epochs));
    return m->map && m->map_next && m->external_epochs ? 0 : -ENOMEM;
}

static int open_keeper(struct pst_master *m, char *fault)
{
    if (m->keeper && m->settings->pool_map) {
        snprintf(fault, PST_FAULT_BYTES, "pool_map and etcd: a pool map is in one of them");
        return -EINVAL;
    }
    if (!m->keeper && !m->settings->pool_map) {
        snprintf(fault, PST_FAULT_BYTES, "a master needs a file for the pool map: set pool_map, or etcd");
        return -EINVAL;
    }
    return m->keeper ? 0 : pst_map_file_open(m->settings->pool_map, &m->keeper, fault);
}

/* Of a pool map that nobody else may have. */
static int lead(struct pst_master *m, char *fault)
{
    int r;

    pthread_mutex_lock(&m->lock);
    r = pst_lead_take(m, fault);
    if (r == 0) {
        r = pst_lead_store(m);
        if (r < 0)
            snprintf(fault, PST_FAULT_BYTES, "pool map: %s", strerror(-r));
    }
    pst_assert(r <= 0);
    pst_master_publish(m);
    pthread_mutex_unlock(&m->lock);
    return r;
}

static int open_thread(struct pst_master *m, char *fault)
{
    int r;

    m->running = true; /* the thread looks at it */
    r = -pthread_create(&m->thread, NULL, master_main, m);
    if (r < 0) {
        m->running = false;
        snprintf(fault, PST_FAULT_BYTES, "master's thread: %s", strerror(-r));
    }
    return r;
}

static int open_all(struct pst_master *m, char *fault)
{
    int r;

    if (m->settings->directory_shard) {
        snprintf(fault, PST_FAULT_BYTES, "directory_shard: only the master that leads keeps a pool map");
        return m->keeper || m->settings->pool_map ? -EINVAL : open_tables(m, fault);
    }
    r = open_keeper(m, fault);
    if (r == 0)
        r = open_tables(m, fault);
    if (r == 0 && !m->keeper->ops->shared)
        r = lead(m, fault);
    return r == 0 ? open_thread(m, fault) : r;
}

int pst_master_follow(struct pst_master *m, const struct pst_master_leader *leader,
                      char fault[PST_FAULT_BYTES])
{
    int r;

    pst_assert(m->magic == PST_MASTER_MAGIC);
    pst_assert(m->settings->directory_shard > 0);
    pst_assert(!m->running);
    pthread_mutex_lock(&m->lock); /* sessions may ask already */
    r = pst_follow_open(m, leader, fault);
    pthread_mutex_unlock(&m->lock);
    return r == 0 ? open_thread(m, fault) : r;
}

int pst_master_open(const struct pst_master_settings *settings, struct pst_keeper *keeper,
                    void (*log)(void *ctx, const char *line), void *log_ctx, struct pst_master **out,
                    char fault[PST_FAULT_BYTES])
{
    struct pst_master *m = calloc(1, sizeof(*m));
    int r;

    snprintf(fault, PST_FAULT_BYTES, "out of memory");
    if (!m) {
        if (keeper)
            keeper->ops->close(keeper);
        return -ENOMEM;
    }
    m->magic = PST_MASTER_MAGIC;
    m->settings = settings;
    m->keeper = keeper;
    m->log = log;
    m->log_ctx = log_ctx;
    m->members_max = (uint32_t)settings->directory.members_max;
    m->heartbeat_ms = settings->directory.heartbeat_ms;
    m->tick_ms = pst_max(pst_min(settings->directory.lease_margin_ms / 4, settings->directory.reaper_ms), 1);
    m->start_ns = pst_now_ns();
    pthread_mutex_init(&m->lock, NULL);
    pthread_mutex_init(&m->published_lock, NULL);
    pst_cond_init(&m->stir);
    r = open_all(m, fault);
    if (r < 0) {
        pst_master_close(m);
        return r;
    }
    *out = m;
    return 0;
}

void pst_master_stop(struct pst_master *m)
{
    if (!m || !m->running)
        return;
    pst_assert(m->magic == PST_MASTER_MAGIC);
    pthread_mutex_lock(&m->lock);
    m->stopping = true;
    pthread_cond_signal(&m->stir);
    pthread_mutex_unlock(&m->lock);
    pthread_join(m->thread, NULL);
    m->running = false;
    if (m->follower)
        m->follower->channel = pst_channel_close(m->follower->channel);
}

struct pst_master *pst_master_close(struct pst_master *m)
{
    if (!m)
        return NULL;
    pst_assert(m->magic == PST_MASTER_MAGIC);
    pst_master_stop(m);
    pst_follow_close(m);
    if (m->keeper)
        m->keeper->ops->close(m->keeper);
    pst_directory_close(m->directory);
    pst_guests_close(m->guests);
    pst_external_close(m->external);
    pthread_cond_destroy(&m->stir);
    pthread_mutex_destroy(&m->published_lock);
    pthread_mutex_destroy(&m->lock);
    free(m->external_epochs);
    free(m->map_next);
    free(m->map);
    m->magic = 0;
    free(m);
    return NULL;
}

bool pst_master_enter_guests(struct pst_master *m, struct pst_guest_desk *out)
{
    pst_assert(m->magic == PST_MASTER_MAGIC);
    pst_assert(m->settings->has_guests);
    pthread_mutex_lock(&m->lock);
    if (pst_master_standing(m) != PST_STANDS_BY) {
        *out = (struct pst_guest_desk){m->guests, m->external, pst_directory_map(m->directory)};
        return true;
    }
    pthread_mutex_unlock(&m->lock);
    return false;
}

void pst_master_leave_guests(struct pst_master *m)
{
    pthread_mutex_unlock(&m->lock);
}

int pst_master_map(struct pst_master *m, struct pst_map **out)
{
    uint8_t *bytes = malloc(m->map_room);
    size_t count;
    int r;

    pst_assert(m->magic == PST_MASTER_MAGIC);
    if (!bytes)
        return -ENOMEM;
    pthread_mutex_lock(&m->lock);
    r = pst_master_standing(m) == PST_STANDS_BY ? PST_POOL_STANDBY : 0;
    count = m->map_bytes;
    memcpy(bytes, m->map, count);
    pthread_mutex_unlock(&m->lock);
    if (r == 0)
        r = pst_map_decode((struct pst_bytes){bytes, count}, m->members_max, out);
    free(bytes);
    return r;
}
